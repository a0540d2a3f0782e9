"""Queries of a set that have met no relevant event: they wait without a pipeline, and nothing shows it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from sizes import seeds

import cer_gpu
from cer_gpu.engine import shared_state
from cer_gpu.engine.execution import StreamingExecution

QUERIES = {
    "one": "SELECT * FROM S WHERE A AS a FILTER a[x = 7]",
    "two": "SELECT * FROM S WHERE A AS a ; B AS b FILTER a[x > 5] AND b[name GLOB '*z*' NOCASE] WITHIN 50 EVENTS",
    "next": "SELECT * FROM S WHERE A : B WITHIN 4 [ts]",
    "limited": "SELECT * FROM S WHERE B AS b FILTER b[x > 6] LIMIT 1",
    "none": "SELECT * FROM S WHERE C AS c FILTER c[x = 1000]",
    "keyed": "SELECT * FROM S WHERE A ; B PARTITION BY [name] WITHIN 6 EVENTS",
}


def _batches(seed: int) -> list[pa.RecordBatch]:
    """Return batches of which the first have few relevant events, of schemas that change."""
    choice = random.Random(seed)
    batches, n = [], 0
    for number in range(6):
        n_rows = choice.randrange(0, 40)
        quiet = number < 3
        columns = {
            "type": pa.array(choice.choices("C" if quiet else "ABC", k=n_rows), pa.string()),
            "x": pa.array(choice.choices(range(10), k=n_rows), pa.int64() if number == 1 else pa.int32()),
            "name": pa.array(choice.choices(["az", "bZ", "c", None], k=n_rows), pa.string()),
            "ts": pa.array(range(n, n + n_rows), pa.int64()),
        }
        if number in (2, 4):
            columns["name"] = columns["name"].dictionary_encode()
        batches.append(pa.record_batch(columns))
        n += n_rows
    return batches


def _members(evaluator: cer_gpu.QuerySetEvaluator) -> dict[str, StreamingExecution]:
    return {name: each for name, each in evaluator._group.executions.items() if isinstance(each, StreamingExecution)}


def _run(name: str, batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    evaluator = cer_gpu.compile(QUERIES[name], time_column="ts").evaluator()
    return [row for part in (*map(evaluator.push, batches), evaluator.finish()) for row in part.to_pylist()]


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("restored", [False, True])
def test_a_set_finds_what_each_query_finds(seed: int, restored: bool) -> None:
    batches = _batches(seed)
    rules = cer_gpu.compile_all(QUERIES, time_column="ts")
    evaluator = rules.evaluator()
    found: dict[str, list[dict[str, object]]] = {name: [] for name in QUERIES}
    for batch in batches:
        if restored:
            evaluator = rules.restore(evaluator.checkpoint())
        for name, rows in evaluator.push(batch).items():
            found[name] += rows.to_pylist()
    for name, rows in evaluator.finish().items():
        found[name] += rows.to_pylist()
    assert found == {name: _run(name, batches) for name in QUERIES}


def test_it_wakes_at_its_first_relevant_event() -> None:
    rules = cer_gpu.compile_all(QUERIES, time_column="ts")
    evaluator = rules.evaluator()
    columns = {"x": [1, 7], "name": ["a", "b"], "ts": [1, 2]}
    evaluator.push(pa.record_batch({"type": ["C", "C"], **columns}))
    awake = {name for name, each in _members(evaluator).items() if each.started_pipeline is not None}
    assert awake == {"keyed"}  # its partitions are of all events
    found = evaluator.push(pa.record_batch({"type": ["A", "A"], **columns | {"ts": [3, 4]}}))
    assert found["one"]["positions"].to_pylist() == [[3]]
    awake = {name for name, each in _members(evaluator).items() if each.started_pipeline is not None}
    assert awake == {"keyed", "two", "next"}  # the results of "one" are single events, and need no pipeline


def test_types_of_results_are_those_of_the_first_batch() -> None:
    rules = cer_gpu.compile_all(QUERIES, time_column="ts")
    evaluator = rules.evaluator(output="events")
    first = pa.record_batch({"type": ["C"], "x": pa.array([1], pa.int32()), "name": ["a"], "ts": [1]})
    evaluator.push(first)
    found = evaluator.push(pa.record_batch({"type": ["A"], "x": pa.array([7], pa.int64()), "name": ["a"], "ts": [2]}))
    assert found["one"].schema.field("events").type.value_type.field("x").type == pa.int32()


def test_guards_are_bound_once_for_all_evaluations() -> None:
    rules = cer_gpu.compile_all(QUERIES, time_column="ts")
    events = pa.Table.from_batches([_batches(1)[3]])
    first = rules.evaluate(events)
    kept = rules._bound.guards
    assert kept is not None
    assert rules.evaluate(events) == first
    assert rules._bound.guards is kept
    other = events.set_column(1, "x", events["x"].cast(pa.int64()))
    assert {name: table.num_rows for name, table in rules.evaluate(other).items()} == {
        name: table.num_rows for name, table in first.items()
    }
    assert rules._bound.guards is not kept


def test_queries_that_wake_over_another_schema_share_their_guards(monkeypatch):

    made = []

    class Counted(shared_state.SharedGuards):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(shared_state, "SharedGuards", Counted)
    queries = cer_gpu.compile_all({f"{n}": f"SELECT * FROM S WHERE A AS a FILTER a[x = {n}]" for n in range(20)})
    evaluator = queries.evaluator()
    found = 0
    evaluator.push(pa.record_batch({"type": ["A"], "x": pa.array([-1], pa.int64())}))
    for n in range(20):
        batch = pa.record_batch({"type": ["A"], "x": pa.array([n], pa.int32())})
        found += sum(rows.num_rows for rows in evaluator.push(batch).values())
    assert found == 20
    assert len(made) <= 2
