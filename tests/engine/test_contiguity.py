"""Events are dropped whose neighbours fit no place of the pattern: the same rows, and few events for the runtime."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from cases import sorted_rows
from sizes import scaled, seeds
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.physical import PhysicalPlan, physical_plan

SHAPES = (
    "A:{3} AS a ; B AS b",
    "A:+ AS a ; B AS b",
    "A AS a : B AS b ; C AS c",
    "(A OR B):{2,4} AS a : C AS b",
    "A AS a ; B AS b : (A OR C) AS c ; B AS d",
    "A AS a : !B : C AS b",
    "(A AS a : B+ AS b) ; A:{2} AS c",
    "(A:{2} AS a OR B AS a) ; C AS b",
    "NOT(A):{2} AS a ; A AS b",
    "ALL(A AS a : B AS b, C AS c)",
    "A AS a ; !(B : C) ; A AS b",
)
FILTERS = ("", "b.v > a.v", "b.v > LAST(a).v", "a.v >= PREV(a).v", "a.v > PREV(a).v AND b.v > FIRST(a).v", "a[v > 1]")


def random_query(rng: random.Random) -> str:
    """Return a query some of whose events are neighbours, with its clauses."""
    strategy = rng.choice(["*", "*", "ANY *", "NEXT *", "MAX *", "LAST *", "STRICT *"])
    keys = rng.choice(["", "PARTITION BY [k]"])
    window = rng.choice(["", f"WITHIN {rng.randint(2, 12)} EVENTS", f"WITHIN {rng.randint(2, 12)} [t]"])
    consume = rng.choice(["", "", "CONSUME BY PARTITION", "CONSUME BY ANY"])
    condition = rng.choice(FILTERS)
    where = rng.choice(SHAPES) + (f" FILTER {condition}" if condition else "")
    return f"SELECT {strategy} FROM S WHERE {where} {keys} {window} {consume} {rng.choice(['', '', 'LIMIT 2'])}"


def random_events(rng: random.Random, n: int) -> pa.Table:
    """Return events of four types; some have no key, no value, or the time of the one before."""
    times = [0]
    for _ in range(n - 1):
        times.append(times[-1] + rng.choice([0, 1, 1, 3]))
    return pa.table(
        {
            "type": rng.choices("AABBCD", k=n),
            "v": pa.array([rng.choice([0, 1, 2, 3, 4, None]) for _ in range(n)], pa.int64()),
            "t": times,
            "k": pa.array([rng.choice([1, 2, 3, None]) for _ in range(n)], pa.int64()),
        }
    )


@pytest.mark.parametrize("seed", seeds(scaled(120)))
def test_events_without_neighbours_change_no_row(seed, monkeypatch):
    rng = random.Random(seed)
    while True:  # not all shapes are read with all filters and clauses
        try:
            query = cer_gpu.compile(random_query(rng))
            break
        except cer_gpu.QueryError:
            continue
    events = random_events(rng, rng.randint(2, 40))
    output = rng.choice(["positions", "bindings", "count", "ends"])
    length = rng.randint(1, len(events))
    with small_sizes():
        filtered = query.evaluate(events, output=output, threads=1)
        pieces = query.evaluate(events.to_batches(max_chunksize=length), output=output, threads=1)
    monkeypatch.setattr(PhysicalPlan, "contiguity", None)
    expected = query.evaluate(events, output=output, threads=1)
    assert sorted_rows(filtered) == sorted_rows(expected), query.text
    assert pieces.equals(filtered), query.text


@pytest.mark.parametrize(
    ("where", "output", "filtered"),
    [
        ("A:{3} AS a ; B AS b FILTER b.v > LAST(a).v PARTITION BY [k] WITHIN 9 [t]", "positions", True),
        ("A : A : A ; B PARTITION BY [k] WITHIN 9 [t]", "positions", True),
        ("A:{3} AS a ; B AS b PARTITION BY [k] WITHIN 9 [t]", "count", True),
        ("A : B PARTITION BY [k]", "positions", False),  # neighbours alone have a runtime of their own
        ("A ; B PARTITION BY [k] WITHIN 9 [t]", "positions", False),
        ("A : B ; C PARTITION BY [k]", "positions", False),  # the automaton lists in an order that dead runs change
        ("(A : B) ; !C FOR 9 [t] PARTITION BY [k]", "positions", False),
    ],
)
def test_patterns_with_neighbours_are_filtered(where, output, filtered):
    physical = physical_plan(cer_gpu.compile(f"SELECT * FROM S WHERE {where}")._plan, OUTPUTS[output])
    assert (physical.contiguity is not None) == filtered


def test_the_runtime_reads_runs_alone():
    """Of 40,000 readings, 400 are in a run of three, and the runtime stores no others."""
    n = 40_000
    value = [i % 300 if i % 300 < 3 else 3 - i % 2 for i in range(n)]  # rises twice in 300 events, and then by turns
    events = pa.table({"type": ["A"] * n, "v": value})
    query = cer_gpu.compile(
        "SELECT * FROM S WHERE A:{3} AS a ; B AS b FILTER a[v < 3] AND b.v > LAST(a).v WITHIN 100000 EVENTS"
    )
    evaluator = query.evaluator()
    for batch in events.to_batches(max_chunksize=10_000):
        evaluator.push(batch)
    stored = evaluator.pipeline.runtime.live()
    assert 0 < len(stored) < n / 50
