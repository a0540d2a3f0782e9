"""The loop over a set of guards finds the rows that the interpreter finds: random guards over columns of every type."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pyarrow as pa
import pytest
from random_predicates import SCHEMA, TEXTS, batch_of, tree
from set_guards import any_test, texts_of_any_layout
from sizes import seeds

from cer_gpu.columnar.columns import Block
from cer_gpu.errors import QueryTypeError
from cer_gpu.expressions import string_sets
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.targets.numpy import rows_of
from cer_gpu.predicates import host_sets
from cer_gpu.predicates.cached_tables import set_tables
from cer_gpu.predicates.cuda.set_steps import SetSteps
from cer_gpu.predicates.host_sets import HostSets
from cer_gpu.predicates.late_tests import LateTest, LateTests


def sets_of(asked, schema: pa.Schema, named=None) -> tuple[HostSets, dict[int, LateTest], LateTests]:
    steps, binder = SetSteps(schema), Binder(schema, "")
    for k, (_, tested) in enumerate(asked):
        test = None if tested is None else binder.bind(tested)
        steps.add(tested, test, binder.inputs, named=named[k] if named else ())
    return HostSets(set_tables(steps), steps.inputs), steps.late, LateTests(schema)


def found_by(made: tuple[HostSets, dict[int, LateTest], LateTests], block: Block) -> list[list[int]]:
    sets, late, tests = made
    found = sets.find(block)
    assert all(found.of(guard).tolist() == [] for guard in np.flatnonzero(sets.tables.is_all))
    every = np.arange(block.n_rows, dtype=np.int32)
    rows = [every if sets.tables.is_all[k] else found.of(k) for k in range(len(sets.tables.is_all))]
    return [(tests.rows(k, each, block, late[k]) if k in late else each).tolist() for k, each in enumerate(rows)]


def expected_rows(asked, schema: pa.Schema, block: Block, named=None) -> list[list[int]]:
    expected = []
    for k, (_, tested) in enumerate(asked):
        rows = np.ones(block.n_rows, np.bool_)
        for name, text in named[k] if named else ():
            rows &= np.array([value == text for value in block.batch.column(name).to_pylist()], np.bool_)
        if tested is not None:
            binder = Binder(schema, "")
            rows = rows & rows_of(binder.bind(tested), binder.inputs, block)
        expected.append(np.flatnonzero(rows).tolist())
    return expected


@pytest.mark.parametrize("seed", seeds(12))
def test_rows_equal_those_of_the_interpreter(seed, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(host_sets, "PIECE_ROWS", rng.choice([64, 100, 1 << 13]))
    monkeypatch.setattr(host_sets, "FIRST_PIECE", rng.choice([1, 70, 512]))
    monkeypatch.setattr(host_sets, "PLAN_EVERY", rng.choice([2, 8]))
    monkeypatch.setattr(host_sets, "COMMON", rng.choice([0.0, 1 / 32, 0.5, 2.0]))
    monkeypatch.setattr(host_sets, "MAX_CACHED_STRINGS", rng.choice([0, 5, 1 << 19]))
    n = rng.choice([1, 10, 70, 150])
    asked = [(None, None)]
    while len(asked) <= n:
        with contextlib.suppress(QueryTypeError):  # some compare unlike values
            drawn = tree(any_test(rng, rng.randint(0, 3)))
            Binder(SCHEMA, "").bind(drawn)
            asked.append((None, drawn))
    named = [tuple(("type", rng.choice(["A", "B", "a"])) for _ in range(rng.choice([0, 0, 1]))) for _ in asked]
    named = [each + tuple(("text1", rng.choice(TEXTS)) for _ in range(rng.choice([0, 0, 0, 1]))) for each in named]
    sets = sets_of(asked, SCHEMA, named)
    for n_rows in rng.sample([0, 1, 63, 64, 65, 130, 300, 1025], 5):
        batch = batch_of(rng, n_rows + 5, rng.choice([0.0, 0.3]))
        for part in (batch, batch.slice(3, n_rows)):
            block = Block(part)
            assert found_by(sets, block) == expected_rows(asked, SCHEMA, block, named)


@pytest.mark.long("every layout of many texts")
def test_texts_of_any_layout_are_read(monkeypatch):

    monkeypatch.setattr(string_sets, "TOGETHER_FROM", 0)  # what is no UTF-8 matches nothing where texts are read alone
    asked, columns = texts_of_any_layout()
    for column in columns:
        schema = pa.schema({"t": column.type})
        sets = sets_of(asked, schema)
        for part in (column, column.slice(11, 40)):
            block = Block(pa.record_batch([part], schema=schema))
            found = found_by(sets, block)
            assert found == expected_rows(asked, schema, block)
        assert sum(map(bool, found)) > 30


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([float("nan"), None, -0.0, 0.0, 1.5, float("inf"), -float("inf")]), ("0", "1.5", "(-0.0)", "1e300")),
        (pa.array([2**64 - 1, 2**63, 0, None, 1], pa.uint64()), ("18446744073709551615", "9223372036854775808", "0")),
        (pa.array([-(2**63), 2**63 - 1, None, 0], pa.int64()), ("(-9223372036854775808)", "9223372036854775807", "0")),
    ],
)
@pytest.mark.parametrize("common", [0.0, 2.0])
def test_extremes_and_what_is_no_number(values, texts, common, monkeypatch):
    monkeypatch.setattr(host_sets, "FIRST_PIECE", 1)
    monkeypatch.setattr(host_sets, "COMMON", common)
    block = Block(pa.record_batch({"x": values}))
    written = [f"x {op} {text}" for op in ("=", "<", "<=", ">", ">=", "<>") for text in texts]
    asked = [(None, tree(each)) for text in written for each in (text, f"NOT {text}")]
    sets = sets_of(asked, block.batch.schema)
    for _ in range(2):
        assert found_by(sets, block) == expected_rows(asked, block.batch.schema, block)
