"""Gaps at each step and windows within a chain, in stacks: the rows of the reference, and those of the joins.

CER_GPU_EXAMPLES scales the number of random cases of each property; `make test-soak` runs many.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
import spaced_strategies as spaced
import strategies
from answers import assert_right, candidates_of, with_and_without_checkpoints
from cases import Case, assert_same, by_automaton, pushed, rows_of, sorted_rows
from hypothesis import strategies as st
from small_sizes import small_sizes

import cer_gpu

OUTPUTS = ("positions", "bindings", "events", "count", "ends")


@pytest.mark.parametrize("output", OUTPUTS)
@strategies.property_test(0.07)
def test_chains_with_gaps_and_windows_give_the_rows_of_the_reference_and_of_joins(output, data):
    choosing = data.draw(st.integers(0, 3), label="choosing") == 3
    case = Case(data, spaced.cases(choosing))
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right(case, candidates, answer, output)
    if not choosing:
        assert sorted_rows(by_automaton(case.compiled).evaluate(case.table, output=output)) == sorted_rows(answer)
        assert sorted_rows(case.compiled.evaluate(case.table, output=output, threads=2)) == sorted_rows(answer)
    assert_same(pushed(case.compiled, case.batches, output=output), answer)
    with small_sizes():
        assert_same(case.compiled.evaluate(case.table, output=output), answer)
        assert_same(*with_and_without_checkpoints(data, case, output))


@strategies.property_test(0.03)
def test_shares_give_the_rows_of_one(data):
    case = Case(data, spaced.cases())
    parts = [case.compiled.evaluate(case.table, shard=(k, 2)) for k in range(2)]
    assert sorted(row for part in parts for row in rows_of(part)) == case.expected()


# --------------------------------------------------------------------------------------------- which runtime

SPACED = (
    ("A ; B ; C WITHIN 9 SECONDS, 2 SECONDS EACH STEP", "stacks"),
    ("A ; B+ ; C WITHIN 2 SECONDS EACH STEP", "stacks"),
    ("A : B ; C WITHIN 9 EVENTS, 2 EVENTS EACH STEP", "stacks"),
    ("A -> B ; !C ; A WITHIN 2 SECONDS EACH STEP", "stacks"),
    ("A ; B ->+ ; C WITHIN 2 [x] EACH STEP", "stacks"),
    ("A ; B{2,} ; C WITHIN 2 SECONDS EACH STEP", "stacks"),
    ("A ; B ; C PARTITION BY [x] WITHIN 9 SECONDS, 2 SECONDS EACH STEP", "keyed_stacks"),
    ("A : B PARTITION BY [x] WITHIN 9 SECONDS, 2 SECONDS EACH STEP", "keyed_stacks"),
    ("(A ; B WITHIN 2 SECONDS) ; C", "stacks"),
    ("A ; (B ; C ; A WITHIN 2 SECONDS) ; C WITHIN 9 SECONDS", "stacks"),
    ("(A ; (B+ ; C WITHIN 2 SECONDS) WITHIN 3 SECONDS) ; A", "stacks"),
)
JOINED = (
    ("A ; B{2,3} ; C WITHIN 2 SECONDS EACH STEP", "a number of events is bounded"),
    ("(A ; B WITHIN 2 EVENTS) ; C WITHIN 9 SECONDS", "by other clocks than WITHIN"),
    ("A ; (A ; B WITHIN 2 SECONDS)+ ; C WITHIN 9 SECONDS", "more than one event"),
    ("(A ; B WITHIN 2 SECONDS) OR C ; B WITHIN 9 SECONDS", "more than one event"),
    ("A AS a ; B AS b FILTER a.x < b.x WITHIN 9 SECONDS, 2 SECONDS EACH STEP", "join predicates"),
    ("A : B ; (B+ ; C WITHIN 2 SECONDS)", "no WITHIN"),
)


def compiled(text):
    return cer_gpu.compile(f"SELECT * FROM S WHERE {text}", time_column="ts", time_unit="s")


@pytest.mark.parametrize(("text", "runtime"), SPACED)
def test_stacks_evaluate_windows_within_a_chain(text, runtime):
    query = compiled(text)
    for output in ("positions", "bindings", "ends"):
        assert query.physical_plan(output).runtime == runtime
        assert not query.physical_plan(output).plan.relates


@pytest.mark.parametrize(("text", "reason"), JOINED)
def test_joins_evaluate_the_others(text, reason):
    query = compiled(text)
    assert query.physical_plan("positions").engine in ("instances", "products")
    assert reason in query._plan.why_not_chain
    assert reason in query.physical_plan("positions").reason


def test_what_no_event_to_come_can_reach_is_dropped_without_a_window():
    kinds = (["A", "B", "B", "C"] * 3 + ["X"] * 4) * 500
    events = pa.table({"type": kinds, "ts": range(0, 10 * len(kinds), 10)})
    query = compiled("A ; B+ ; C WITHIN 30 SECONDS EACH STEP")
    sizes = []
    with small_sizes():
        evaluator = query.evaluator()
        for batch in events.to_batches(max_chunksize=1000):
            evaluator.push(batch)
            sizes.append(len(evaluator.checkpoint()))
    assert max(sizes) < 2 * sizes[0]
