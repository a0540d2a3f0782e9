"""Counting without listing: the counts are those of the rows that listing gives."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from sizes import seeds

import cer_gpu
from cer_gpu.runtime import run


def assert_counts_the_rows(query, events):
    counted = query.evaluate(events, output="count")
    listed = Counter(query.evaluate(events)["end"].to_pylist())
    assert dict(zip(counted["end"].to_pylist(), counted["count"].to_pylist(), strict=True)) == listed
    assert counted["end"].to_pylist() == sorted(listed)
    return len(listed)


QUERIES = [
    "SELECT * FROM S WHERE A ; B",
    "SELECT * FROM S WHERE A ; B+ ; C WITHIN 12 EVENTS",
    "SELECT * FROM S WHERE A ; B+ ; C WITHIN 9 SECONDS",
    "SELECT * FROM S WHERE (A OR B)+ ; C PARTITION BY [k] WITHIN 6 EVENTS",
    "SELECT * FROM S WHERE A ; B ; C PARTITION BY [k] WITHIN 40 [ts]",
    "SELECT * FROM S WHERE A : B ; C WITHIN 20 EVENTS",
    "SELECT MAX * FROM S WHERE A ; B+ ; C WITHIN 30 EVENTS",
    "SELECT NEXT A FROM S WHERE A+ ; B PARTITION BY [k] WITHIN 9 EVENTS",
    "SELECT STRICT * FROM S WHERE A+ ; B WITHIN 9 EVENTS CONSUME BY ANY",
    "SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 12 SECONDS CONSUME BY PARTITION",
]


@pytest.mark.parametrize("size", [2, 4, 1024])
@pytest.mark.parametrize("text", QUERIES)
def test_counts_are_those_of_the_listed_rows(monkeypatch, text, size):
    monkeypatch.setattr(run, "INITIAL_SIZE", size)
    rng = random.Random(text)
    n = 600
    events = pa.table(
        {"type": rng.choices("ABCD", k=n), "ts": sorted(rng.choices(range(n), k=n)), "k": rng.choices(range(4), k=n)}
    )
    assert assert_counts_the_rows(cer_gpu.compile(text, time_column="ts", time_unit="s"), events) > 5


@pytest.mark.parametrize("seed", seeds(30))
def test_a_busy_partition_makes_the_ring_grow_while_others_wait(seed):
    """Records overwritten in the smaller ring must not seem to be there in the larger one."""
    rng = random.Random(seed)
    rate, rows = rng.choice([9, 12, 15, 18]), []
    for step in range(260):
        rows += [("A", step, 0)] * int(rate if step < 150 else 2.6 * rate)
        if rng.random() < 0.5:
            rows.append((rng.choice("AAB"), step, rng.randrange(1, 30)))
    events = pa.table(dict(zip(("type", "ts", "k"), map(list, zip(*rows, strict=True)), strict=True)))
    query = cer_gpu.compile(
        "SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 60 SECONDS", time_column="ts", time_unit="s"
    )
    assert assert_counts_the_rows(query, events) > 10


@pytest.mark.parametrize("length", [1022, 1023, 1024, 2047, 2048])
def test_windows_as_long_as_a_ring_are_counted_exactly(length):
    events = pa.table({"type": ["A", "B"] * 5_000})
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A ; B WITHIN {length} EVENTS")
    assert assert_counts_the_rows(query, events) == 5_000


@pytest.mark.parametrize(("clause", "count"), [("SELECT ANY *", 1), ("SELECT *", 3)])
def test_a_limit_holds_where_a_count_passes_int64(clause, count):
    limit = " LIMIT 3" if count == 3 else ""
    events = pa.table({"type": ["A"] + ["B"] * 70 + ["C"]})
    query = cer_gpu.compile(f"{clause} FROM S WHERE A ; B+ ; C{limit}")
    assert query.evaluate(events, output="count").to_pylist() == [{"end": 71, "count": count}]


@pytest.mark.parametrize(("n", "fits"), [(62, True), (63, True), (64, False), (200, False)])
def test_a_count_beyond_int64_is_an_error(n, fits):
    events = pa.table({"type": ["A"] + ["B"] * n + ["C"]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B+ ; C")
    if fits:
        assert query.evaluate(events, output="count")["count"].to_pylist() == [2**n - 1]
        return
    with pytest.raises(cer_gpu.EventsError, match=rf"more than 2\*\*63 - 1 matches end at event {n + 1}"):
        query.evaluate(events, output="count")


def test_runs_beyond_int64_that_never_end_are_no_error():
    """Runs that nobody asks for may be as many as they like, also when the window forgets them."""
    events = pa.table({"type": ["A"] + ["B"] * 500 + ["A", "B", "B", "C"]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B+ ; C WITHIN 50 EVENTS")
    assert query.evaluate(events, output="count").to_pylist() == [{"end": 504, "count": 3}]
