"""Gaps at each step and windows within a chain, in stacks: the rows of the reference, and those of the joins.

CER_GPU_EXAMPLES scales the number of random cases of each property; `make test-soak` runs many.
"""

from __future__ import annotations

import itertools
import random

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
    ("A ; B{2,3} ; C WITHIN 2 SECONDS EACH STEP", "stacks"),
    ("A : B{1,3} : C{1,2} WITHIN 9 SECONDS, 2 SECONDS EACH STEP", "stacks"),
    ("A ; (B ->{1,3} ; C WITHIN 2 SECONDS) PARTITION BY [x]", "keyed_stacks"),
)
JOINED = (
    ("A ; B{1,64} ; C WITHIN 2 SECONDS EACH STEP", "more than 64 steps, one for each event of a '{n,m}'"),
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


@pytest.mark.parametrize(("text", "runtime"), [
    ("(A ; B ; C WITHIN 2 SECONDS) ; A", "stack_counter"),
    ("(A ; B+ WITHIN 2 SECONDS) ; C WITHIN 9 SECONDS", "stack_counter"),
    ("(A+ WITHIN 2 SECONDS) ; C", "stack_counter"),
    ("A ; (B ; C ; A WITHIN 2 SECONDS) WITHIN 9 SECONDS", "stack_counter"),
    ("(A ; B ; C WITHIN 2 SECONDS) ; A PARTITION BY [x]", "keyed_stack_counter"),
    ("A ; (B+ ; C ; A WITHIN 2 SECONDS)", "stack_counter"),
    ("A ; (B ; C ; A WITHIN 2 SECONDS) ; C", "stack_counter"),
    ("(A ; B+ WITHIN 2 SECONDS) ; (C ; A{1,2} ; C WITHIN 2 SECONDS) ; A", "stack_counter"),
    ("((A ; B ; C WITHIN 2 SECONDS) ; A ; B WITHIN 4 SECONDS) ; C", "instances"),
])  # fmt: skip
def test_windows_beside_one_another_are_counted_in_the_stacks_of_a_chain(text, runtime):
    assert compiled(text).physical_plan("count").runtime == runtime


def test_explain_says_why_windows_within_one_another_are_not_counted_in_stacks():
    query = compiled("((A ; B ; C WITHIN 2 SECONDS) ; A ; B WITHIN 4 SECONDS) ; C")
    assert "there is a window within another" in query.physical_plan("count").reason


@pytest.mark.parametrize("keys", ["", "PARTITION BY [k]"])
@pytest.mark.parametrize("text", [
    "(A ; B ; C WITHIN 6 SECONDS) ; A", "(A ; B+ WITHIN 6 SECONDS) ; C", "(A+ WITHIN 6 SECONDS) ; C",
    "(A : B ; !A ; C WITHIN 9 SECONDS) ; B+ ; A", "A ; B ; (C ; A ; B+ WITHIN 7 SECONDS)",
    "(A ; B{2,} WITHIN 9 SECONDS) : C", "A+ ; (B ; (A OR C) ; C WITHIN 9 SECONDS)",
    "A ; (B ; C ; A WITHIN 6 SECONDS) ; C", "(A{1,3} WITHIN 5 SECONDS) ; B ; (C{1,3} WITHIN 9 SECONDS)",
    "A ; (B+ WITHIN 5 SECONDS) ; (C ; A ->{1,2} WITHIN 9 SECONDS)", "A ; B{2,4} ; (C+ ; B WITHIN 9 SECONDS) ; A",
])  # fmt: skip
def test_counts_with_windows_are_the_numbers_of_the_matches_that_are_listed(text, keys):
    rng = random.Random(text + keys)
    n, n_counted = 400, 0
    times = list(itertools.accumulate(rng.choice([0, 1, 1, 2]) for _ in range(n)))
    events = pa.table({"type": rng.choices("ABCD", k=n), "k": rng.choices([1, 2, 3], k=n), "ts": times})
    for window in ("WITHIN 30 SECONDS", "WITHIN 12 SECONDS", "WITHIN 30 SECONDS, 8 SECONDS EACH STEP"):
        query = compiled(f"{text} {keys} {window}")
        counts = query.evaluate(events, output="count")
        assert query.physical_plan("count").runtime.endswith("stack_counter")
        listed = query.evaluate(events).group_by("end").aggregate([([], "count_all")]).sort_by("end")
        assert counts["count"].to_pylist() == listed["count_all"].to_pylist()
        assert counts["end"].to_pylist() == listed["end"].to_pylist()
        n_counted += counts.num_rows
    assert n_counted


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
