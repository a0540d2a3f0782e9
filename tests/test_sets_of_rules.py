"""Sets of 1 to 300 rules, with and without types, find what each rule finds alone, however the stream is cut."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from sizes import scaled, seeds

import cer_gpu
from cer_gpu.predicates import host_sets

IMAGES = ["C:\\Windows\\cmd.exe", "C:\\Windows\\System32\\powershell.exe", "/bin/sh", "", None, "C:\\ä\\K\u212a.exe"]
TESTS = [
    "{v}[image GLOB '*\\{text}' NOCASE]",
    "{v}[NOT image GLOB '*{text}*' NOCASE]",
    "{v}[image = 'C:\\Windows\\cmd.exe' OR pid = {n}]",
    "{v}[pid > {n} AND user IN {{'SYSTEM', 'u{n}'}}]",
    "{v}[image IS NULL AND pid <> {n}]",
    "{v}[image LIKE '^C:.*{text}' AND score >= {n}.5]",
    "{v}[lower(user) = 'system' AND pid = {n}]",
    "{v}[image = user OR (pid < {n} AND score < 3)]",
    "{v}[pid = {n}]",
]


def rule(rng: random.Random, *, typed: bool) -> str:
    def test(variable: str) -> str:
        return rng.choice(TESTS).format(
            v=variable, n=rng.randrange(9), text=rng.choice(["cmd.exe", "shell", "SH", "k"])
        )

    a, b = rng.choices("ABC", k=2) if typed else ("S", "S")
    if rng.random() < 0.7:
        return f"SELECT * FROM S WHERE {a} AS x FILTER {test('x')}"
    window = rng.choice(["WITHIN 5 EVENTS", "WITHIN 20 [ts]", "PARTITION BY [user] WITHIN 9 EVENTS"])
    return f"SELECT * FROM S WHERE {a} AS x ; {b} AS y FILTER {test('x')} AND {test('y')} {window}"


def batches_of(rng: random.Random, n: int) -> list[pa.RecordBatch]:
    """Return a stream, cut anywhere; texts are plain or in dictionaries, and a column changes its type."""
    batches, at = [], 0
    quiet = rng.random() < 0.5  # rules sleep for a while
    while at < n:
        k = min(rng.choice([1, 1, 7, 64, 65, 200]), n - at)
        calm = quiet and at < n // 2
        image = pa.array(rng.choices(IMAGES[2:5] if calm else IMAGES, k=k), pa.string())
        columns = {
            "type": pa.array(rng.choices(["A", "B", "C", "D", None], k=k), pa.string()),
            "image": image.dictionary_encode() if rng.random() < 0.3 else image,
            "user": pa.array(rng.choices(["SYSTEM", "u1", "u2", "System", None], k=k), pa.string()),
            "pid": pa.array(rng.choices([*range(9), None], k=k), rng.choice([pa.int32(), pa.int64()])),
            "score": pa.array(rng.choices([0.5, 2.5, 3.0, float("nan"), None], k=k), pa.float64()),
            "ts": pa.array(range(at, at + k), pa.int64()),
        }
        batches.append(pa.record_batch(columns))
        at += k
    return batches


WAKING = 20261229
"""Seed of a case in which a query wakes over a schema that is neither of the last two."""


@pytest.mark.parametrize("seed", [*seeds(scaled(20)), pytest.param(WAKING, marks=pytest.mark.long("300 rules"))])
def test_a_set_finds_what_each_rule_finds_alone(seed, monkeypatch):
    assert_found_alone(seed, monkeypatch)


def test_a_query_that_wakes_over_a_third_schema_keeps_its_rows(monkeypatch):
    assert_found_alone(WAKING, monkeypatch, ("r29", "r218", "r219"))


def assert_found_alone(seed, monkeypatch, names=None):
    rng = random.Random(seed)
    monkeypatch.setattr(host_sets, "FIRST_PIECE", rng.choice([1, 50, 512]))
    monkeypatch.setattr(host_sets, "PIECE_ROWS", rng.choice([64, 1 << 13]))
    monkeypatch.setattr(host_sets, "MAX_CACHED_STRINGS", rng.choice([3, 1 << 19]))
    typed, n_rules = bool(seed % 2), [60, 5, 300, 1][seed // 2 % 4]
    texts = {f"r{k}": rule(rng, typed=typed) for k in range(n_rules)}
    texts = {name: texts[name] for name in names or texts}
    options = {"type_column": "type" if typed else None, "time_column": "ts"}
    rules, batches = cer_gpu.compile_all(texts, **options), batches_of(rng, 500)
    output = rng.choice(["positions", "events", "ends", "count"])
    found: dict[str, list[dict[str, object]]] = {name: [] for name in texts}
    evaluator = rules.evaluator(output=output)
    for batch in batches:
        if rng.random() < 0.1:
            evaluator = rules.restore(evaluator.checkpoint())
        for name, rows in evaluator.push(batch).items():
            found[name] += rows.to_pylist()
    for name, rows in evaluator.finish().items():
        found[name] += rows.to_pylist()
    for name, text in texts.items():
        alone = cer_gpu.compile(text, **options).evaluator(output=output)
        expected = [row for batch in batches for row in alone.push(batch).to_pylist()] + alone.finish().to_pylist()
        assert repr(found[name]) == repr(expected), text  # NaN is in some events
    assert n_rules < 5 or any(found.values())


def test_threads_and_shares_find_the_same():
    rng = random.Random(3)
    texts = {f"r{k}": rule(rng, typed=True) for k in range(40)}
    rules = cer_gpu.compile_all(texts, time_column="ts")
    types = {"pid": pa.int64(), "image": pa.string()}
    batches = [
        pa.record_batch(
            [c.cast(types.get(n, c.type)) for n, c in zip(b.schema.names, b.columns, strict=True)], names=b.schema.names
        )
        for b in batches_of(rng, 2000)
    ]
    events = pa.Table.from_batches(batches)
    one = rules.evaluate(events, threads=1)
    assert sum(map(len, one.values())) > 100
    for threads in (2, 3):
        many = rules.evaluate(events, threads=threads)
        for name in texts:
            assert sorted(map(repr, many[name].to_pylist())) == sorted(map(repr, one[name].to_pylist())), texts[name]
