"""Tests answered together, by classes of rows, give the rows of each test alone."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pyarrow as pa
import pytest
from random_predicates import COLUMNS, LITERALS, SCHEMA, TEXTS, batch_of, predicate, tree
from sizes import seeds

from cer_gpu.columnar.columns import Block
from cer_gpu.errors import QueryTypeError
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.targets.numpy import rows_of
from cer_gpu.predicates import answers
from cer_gpu.predicates.answers import Answers


def simple(rng: random.Random) -> str:
    """Return a comparison of a column with a constant, or of a text."""
    if rng.random() < 0.3:
        column, text = rng.choice(COLUMNS["text"]), rng.choice(TEXTS).replace("'", "''")
        return rng.choice([f"{column} = '{text}'", f"{column} LIKE '%{text}%'", f"{column} <> '{text}'"])
    column, op = rng.choice(COLUMNS["number"]), rng.choice(["=", "<", "<=", ">", ">=", "<>"])
    return f"{column} {op} {rng.choice([each for each in LITERALS if '/' not in each])}"


def alone(text: str, block: Block) -> list[int]:
    binder = Binder(block.batch.schema, "")
    return np.flatnonzero(
        np.broadcast_to(rows_of(binder.bind(tree(text)), binder.inputs, block), block.n_rows)
    ).tolist()


@pytest.mark.parametrize("seed", seeds(6))
def test_rows_are_those_of_each_test_alone(seed, monkeypatch):
    rng = random.Random(seed)
    sizes = {"FROM_TESTS": rng.choice([1, 2]), "FROM_ROWS": 1, "FEW_OF": rng.choice([1, 4]), "MOST_CLASSES": 3}
    for name, size in sizes.items():
        monkeypatch.setattr(answers, name, size)
    texts = [simple(rng) for _ in range(80)]
    texts += [" AND ".join(rng.sample(texts, rng.choice([2, 3]))) for _ in range(30)]
    texts += [" OR ".join(rng.sample(texts, rng.choice([2, 3]))) for _ in range(30)]
    for _ in range(20):
        a, b, c, d, e = (simple(rng) for _ in range(5))
        texts.append(f"({a} AND ({b} OR {c}) OR {d}) AND {e}")
    texts += [f"{simple(rng)} AND {predicate(rng)}" for _ in range(20)]
    asked, tests = Answers(SCHEMA), {}
    for text in texts:
        with contextlib.suppress(QueryTypeError):  # some compare unlike values
            tests[text] = asked.bind(tree(text))
    assert len(tests) > 100
    coders = {}
    for nulls in (0.0, 0.3):
        for n in (1, 7, 300):
            block = Block(batch_of(rng, n, nulls), coders)
            for text, test in tests.items():
                found = asked.rows(test, block)
                assert (list(range(n)) if found is None else found.tolist()) == alone(text, block), text
    assert sum(each.n_tests >= sizes["FROM_TESTS"] for each in asked._classes.values()) > 10


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([float("nan"), None, -0.0, 0.0, 1.5, float("inf"), -float("inf")]), ("0", "1.5", "(-0.0)", "1e300")),
        (pa.array([2**64 - 1, 2**63, 0, None, 1], pa.uint64()), ("18446744073709551615", "9223372036854775808", "0")),
        (pa.array([-(2**63), 2**63 - 1, None, 0], pa.int64()), ("(-9223372036854775808)", "9223372036854775807", "0")),
    ],
)
def test_extremes_and_what_is_no_number_are_in_their_classes(values, texts, monkeypatch):
    monkeypatch.setattr(answers, "FROM_ROWS", 1)
    monkeypatch.setattr(answers, "FROM_TESTS", 1)
    monkeypatch.setattr(answers, "FEW_OF", 1)
    block = Block(pa.record_batch({"x": values}))
    asked = Answers(block.batch.schema)
    written = [f"x {op} {text}" for op in ("=", "<", "<=", ">", ">=") for text in texts]
    for text, test in [(text, asked.bind(tree(text))) for text in written]:
        found = asked.rows(test, block)
        assert (list(range(len(values))) if found is None else found.tolist()) == alone(text, block), text


def test_the_rows_of_many_tests_are_read_once(monkeypatch):
    passes, classify = [], answers.classify
    monkeypatch.setattr(answers, "classify", lambda *arrays: passes.append(1) or classify(*arrays))
    block = Block(pa.record_batch({"x": np.arange(5000), "name": ["a", "b", "c", "d", "e"] * 1000}))
    asked = Answers(block.batch.schema)
    tests = [asked.bind(tree(f"x = {i} AND name <> 'a'")) for i in range(20)]
    assert [asked.rows(test, block).tolist() for test in tests] == [[i] if i % 5 else [] for i in range(20)]
    assert len(passes) == 1
