"""The runtime "recogniser": ends of complex events with filters between events, in windows of few events."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace

import join_strategies
import numpy as np
import pyarrow as pa
import pytest
import reference as ref
import strategies
from cases import Case, assert_same, pushed
from contracts import check_call, contract
from hypothesis import assume
from hypothesis import strategies as st
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.backend.joins import recognition
from cer_gpu.backend.status import Status
from cer_gpu.planning import physical


def runtime_of(query):
    return query.physical_plan("ends").runtime


def by_instances(query, events, **options):
    """Return the ends that the runtime "instances" finds."""
    query = pickle.loads(pickle.dumps(query))  # without the physical plan that it keeps
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(physical, "recogniser_of", lambda plan: None)
        assert runtime_of(query) == "instances"
        return query.evaluate(events, output="ends", **options)


def drawn(data, most=4):
    """Draw a case that a recogniser answers."""
    query, stream = data.draw(join_strategies.join_cases(), label="query and stream")
    query = replace(query, within=("events", data.draw(st.integers(0, most), label="n")), limit=None)
    query = replace(query, strategy="ALL" if query.strategy == "STRICT" else query.strategy)
    case = Case(data, st.just((query, stream)))
    assume(runtime_of(case.compiled) == "recogniser")
    return case


@strategies.property_test(0.4)
def test_a_recogniser_finds_the_ends_of_the_reference(data):
    case = drawn(data)
    expected = [end for end, _ in ref.counts_of(case.query, case.candidates())]
    answer = case.compiled.evaluate(case.table, output="ends")
    assert answer["end"].to_pylist() == expected
    assert_same(pushed(case.compiled, case.batches, output="ends"), answer)
    assert_same(by_instances(case.compiled, case.table), answer)


@strategies.property_test(0.3)
def test_shares_threads_and_checkpoints_change_no_end(data):
    case = drawn(data)
    case.candidates()
    answer = case.compiled.evaluate(case.table, output="ends")
    parts = [case.compiled.evaluate(case.table, output="ends", shard=(k, 3)) for k in range(3)]
    assert sorted(end for part in parts for end in part["end"].to_pylist()) == answer["end"].to_pylist()
    assert_same(case.compiled.evaluate(case.whole, output="ends", threads=2), answer)
    with small_sizes():
        evaluator, found = case.compiled.evaluator(output="ends"), []
        for batch in case.batches:
            found.append(evaluator.push(batch))
            evaluator = case.compile().restore(evaluator.checkpoint())
        found.append(evaluator.finish())
    assert_same(pa.Table.from_batches(found), answer)


QUERIES = [
    "A AS a ; B AS b FILTER b.v > a.v WITHIN 4 EVENTS",
    "A AS a ; B AS b ; C AS c FILTER b.v > a.v AND c.v = a.v WITHIN 3 EVENTS",
    "A AS a : (B OR T0) AS b FILTER b.v - a.v > 2 WITHIN 5 EVENTS",
    "A AS a ; (B AS b FILTER b.v > a.v)+ ; C WITHIN 3 EVENTS",
    "(A AS a OR B AS a) ; C AS c FILTER a.t < c.t WITHIN 3 EVENTS",
]


@pytest.mark.parametrize("n_types", [3, 9, 60])
@pytest.mark.parametrize("pattern", QUERIES)
def test_long_streams_have_the_ends_that_instances_find(pattern, n_types):
    """With many types, most events are not relevant, and gaps are longer than the window."""
    rng, n = random.Random(n_types), 20_000
    types = [*"ABC", *(f"T{k}" for k in range(n_types - 3))]
    columns = {"type": rng.choices(types, k=n), "v": rng.choices([1, 2, 5, None], k=n)}
    events = pa.table(columns | {"t": rng.choices(["x", "y", "z"], k=n)})
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern}")
    assert runtime_of(query) == "recogniser"
    answer = query.evaluate(events, output="ends")
    assert_same(answer, by_instances(query, events))
    assert_same(query.evaluate(events, output="ends", threads=3), answer)
    assert answer.num_rows > 0 or n_types == 60


def test_calls_fit_the_contract_of_the_kernel(monkeypatch):
    made, stated, calls = recognition.recognise, contract("cer_gpu.backend.joins.recognition", "recognise"), []

    def checked(*arguments):
        unwritten = check_call(recognition, stated, arguments)
        before = [(where, value.copy()) for where, value in unwritten]
        status = made(*arguments)
        for (where, value), (_, then) in zip(unwritten, before, strict=True):
            assert np.array_equal(value, then), where
        calls.append(status)
        return status

    monkeypatch.setattr(recognition, "recognise", checked)
    rng = random.Random(1)
    columns = {"type": rng.choices("ABC", k=90), "v": rng.choices([1, 2, 5], k=90), "t": rng.choices("xyz", k=90)}
    with small_sizes():
        for pattern in QUERIES:
            query = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern}", time_column="at")
            query.evaluate(pa.table(columns | {"at": range(90)}), output="ends")
    assert {Status.DONE, Status.OUTPUT_FULL} <= set(calls)


def test_given_positions_count_in_the_window():
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.v > a.v WITHIN 2 EVENTS")
    events = pa.record_batch({"type": ["A", "B", "A", "B"], "v": [1, 2, 1, 2], "at": [3, 6, 100, 102]})
    evaluator = query.evaluator(output="ends", position_column="at")
    assert runtime_of(query) == "recogniser"
    assert evaluator.push(events)["end"].to_pylist() == [102]


BASE = "SELECT {} * FROM S WHERE A AS a ; B AS b FILTER b.v > a.v {}"


@pytest.mark.parametrize(
    ("strategy", "clauses", "runtime"),
    [
        ("", "WITHIN 3 EVENTS", "recogniser"),
        ("ANY", "WITHIN 3 EVENTS LIMIT 2", "recogniser"),
        ("MAX", "WITHIN 3 EVENTS", "recogniser"),
        ("STRICT", "WITHIN 3 EVENTS", "instances"),
        ("", "", "instances"),
        ("", "WITHIN 600 EVENTS", "instances"),
        ("", "WITHIN 3 [v]", "instances"),
        ("", "WITHIN 3 EVENTS CONSUME BY ANY", "instances"),
        ("", "PARTITION BY [v] WITHIN 3 EVENTS", "instances"),
        ("", "WITHIN 3 EVENTS LIMIT 0", "instances"),
    ],
)
def test_a_recogniser_is_chosen_for_small_windows_alone(strategy, clauses, runtime):
    query = cer_gpu.compile(BASE.format(strategy, clauses))
    assert runtime_of(query) == runtime
    assert query.physical_plan("positions").runtime == "instances"


@pytest.mark.parametrize(
    "pattern",
    [
        "A+ ; B AS b FILTER b.v > A.v WITHIN 3 EVENTS",  # a register for each A
        "A AS a ; B AS b ; C AS c ; D AS d FILTER b.v > a.v AND d.v > c.v WITHIN 6 EVENTS",  # many states
    ],
)
def test_other_patterns_are_left_to_instances(pattern):
    assert runtime_of(cer_gpu.compile(f"SELECT * FROM S WHERE {pattern}")) == "instances"
