"""Clauses of the language in combination, all outputs and all ways to read, compared with the definitions.

CER_GPU_EXAMPLES scales the number of random cases of each property; `make test-soak` runs many.
"""

from __future__ import annotations

import itertools

import arrow_streams
import conjunction_strategies
import join_strategies
import pyarrow as pa
import pytest
import strategies
from answers import assert_right, candidates_of, with_and_without_checkpoints
from cases import Case, CaseOfStreams, assert_same, counts_of, pushed, rows_of
from hypothesis import strategies as st
from sizes import EXAMPLES
from small_sizes import small_sizes

OUTPUTS = ("positions", "bindings", "events", "count", "ends")


# ------------------------------------------------- queries with filters between events, with ALL, or with neither

FULL = (strategies.full_cases, join_strategies.full_join_cases, conjunction_strategies.full_cases)
LONG = (strategies.long_full_cases, join_strategies.long_join_cases, conjunction_strategies.long_full_cases)
OF_SEVERAL_STREAMS = (
    strategies.cases_of_several_streams,
    join_strategies.join_cases_of_several_streams,
    conjunction_strategies.cases_of_several_streams,
)


def of_a_kind(data, kinds):
    kind = data.draw(st.integers(0, 2 if strategies.CONJUNCTIONS else 1), label="filters between events, or ALL")
    return kinds[kind]


def full_cases(data, **kinds):
    return of_a_kind(data, FULL)(**kinds)


def long_full_cases(data, **kinds):
    return of_a_kind(data, LONG)(**kinds)


def cases_of_several_streams(data, **kinds):
    return of_a_kind(data, OF_SEVERAL_STREAMS)(**kinds)


# ---------------------------------------------------------------------------------------------- one stream


@strategies.property_test(0.6)
def test_positions_are_those_of_the_reference(data):
    case = Case(data, full_cases(data))
    candidates = candidates_of(case, "positions")
    answer = case.compiled.evaluate(case.table)
    assert_right(case, candidates, answer, "positions")
    assert_same(pushed(case.compiled, case.batches), answer)


@strategies.property_test(0.4)
def test_bindings_are_those_of_the_reference(data):
    ambiguous = data.draw(st.booleans(), label="ambiguous") or data.draw(st.booleans(), label="more of them")
    case = Case(data, full_cases(data, ambiguous=ambiguous))
    candidates = candidates_of(case, "bindings")
    answer = case.compiled.evaluate(case.table, output="bindings")
    assert_right(case, candidates, answer, "bindings")
    assert_same(pushed(case.compiled, case.batches, output="bindings"), answer)


@strategies.property_test(0.3)
def test_counts_are_those_of_the_reference(data):
    """A count is the number of rows of "positions" with the same end."""
    choosing, ambiguous = data.draw(st.booleans(), label="choosing"), data.draw(st.booleans(), label="ambiguous")
    case = Case(data, full_cases(data, choosing=choosing, ambiguous=ambiguous))
    candidates = candidates_of(case, "count")
    answer = case.compiled.evaluate(case.table, output="count")
    assert_right(case, candidates, answer, "count")
    ends = case.compiled.evaluate(case.table)["end"].to_pylist()
    assert counts_of(answer) == [(end, len(list(group))) for end, group in itertools.groupby(ends)]
    assert_same(pushed(case.compiled, case.batches, output="count"), answer)


@strategies.property_test(0.3)
def test_kept_events_are_those_of_the_reference(data):
    case = Case(data, full_cases(data, choosing=data.draw(st.booleans(), label="choosing")))
    candidates = candidates_of(case, "events")
    answer = case.compiled.evaluate(case.table, output="events")
    assert_right(case, candidates, answer, "events")
    assert_same(answer.drop_columns("events"), case.compiled.evaluate(case.table))
    assert_same(pushed(case.compiled, case.batches, output="events"), answer)


@strategies.property_test(0.4)
def test_limit_and_any_give_one_legal_answer_in_any_cut(data):
    output = data.draw(st.sampled_from(["positions", "bindings"]), label="output")
    case = Case(data, full_cases(data, choosing=True, ambiguous=output == "bindings"))
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right(case, candidates, answer, output)
    assert_same(pushed(case.compiled, case.batches, output=output), answer)
    others = data.draw(strategies.cuts(len(case.events)), label="other cuts")
    batches = arrow_streams.build_batches(case.events, case.layout, others)
    assert_same(pushed(case.compiled, batches, output=output), answer)


@strategies.property_test(0.2)
def test_single_events_report_what_ends_at_each(data):
    """The finest cut: each push reports exactly the complex events that end at its event."""
    case = Case(data, full_cases(data))
    expected = case.expected()
    evaluator = case.compiled.evaluator()
    every_place = list(range(1, len(case.events)))
    for position, batch in enumerate(arrow_streams.build_batches(case.events, case.layout, every_place)):
        rows = rows_of(evaluator.push(batch))
        assert sorted(rows) == [row for row in expected if row[1] == position]
    assert evaluator.finish().num_rows == 0


@strategies.property_test(0.2)
def test_every_way_to_read_gives_the_same(data):
    case = Case(data, full_cases(data, choosing=data.draw(st.booleans(), label="choosing")))
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.whole, output=output)
    assert_right(case, candidates, answer, output)
    assert_same(case.compiled.evaluate(case.table, output=output), answer)
    assert_same(case.compiled.evaluate(case.batches, output=output), answer)
    assert_same(case.compiled.stream(case.table, output=output).read_all(), answer)
    assert_same(pushed(case.compiled, case.batches, output=output), answer)


# ---------------------------------------------------------------------------------------------- checkpoints


@strategies.property_test(0.4)
def test_a_stream_with_checkpoints_gives_the_uninterrupted_table(data):
    """The evaluation resumes at several checkpoints, each time in a new evaluator."""
    case = Case(data, full_cases(data, choosing=data.draw(st.booleans(), label="choosing")))
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    candidates_of(case, output)  # discards examples that are too large
    assert_same(*with_and_without_checkpoints(data, case, output))


@strategies.property_test(0.1)
def test_a_restored_evaluator_shares_no_state_with_its_origin(data):
    case = Case(data, full_cases(data))
    expected = case.expected()
    first, *rest = case.batches
    original = case.compiled.evaluator()
    found = [original.push(first)]
    copy = case.compile().restore(original.checkpoint())
    copies = [*found, *(copy.push(batch) for batch in rest), copy.finish()]
    found += [*(original.push(batch) for batch in rest), original.finish()]
    assert sorted(rows_of(pa.Table.from_batches(found))) == expected
    assert_same(pa.Table.from_batches(copies), pa.Table.from_batches(found))


# ------------------------------------------------------------------------------------------ several streams


@pytest.mark.parametrize("output", ["positions", "bindings"])
@strategies.property_test(0.2)
def test_several_streams_give_the_reference(output, data):
    case = CaseOfStreams(data, cases_of_several_streams(data))
    candidates = candidates_of(case, output)
    assert_right(case, candidates, case.in_order(case.compiled.evaluate(case.tables, output=output)), output)


@strategies.property_test(0.2)
def test_streams_without_a_type_column_give_the_reference(data):
    """The type of an event is the name of its stream."""
    case = CaseOfStreams(data, cases_of_several_streams(data, typed=False), typed=False)
    candidates = candidates_of(case, "positions")
    assert_right(case, candidates, case.in_order(case.compiled.evaluate(case.tables)), "positions")


@strategies.property_test(0.2)
def test_several_streams_give_the_same_in_any_output_and_cut(data):
    case = CaseOfStreams(data, cases_of_several_streams(data, choosing=data.draw(st.booleans(), label="choosing")))
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.tables, output=output)
    assert_right(case, candidates, case.in_order(answer), output)
    readers = {name: table.to_reader(max_chunksize=2) for name, table in case.tables.items()}
    assert_same(case.compiled.evaluate(readers, output=output), answer)
    with small_sizes():
        assert_same(case.compiled.stream(case.uncut, output=output).read_all(), answer)


# -------------------------------------------------------------------------------------------- small sizes


@strategies.property_test(0.4)
def test_small_buffers_change_no_result(data):
    choosing = data.draw(st.booleans(), label="choosing")
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    case = Case(data, full_cases(data, choosing=choosing, ambiguous=output == "bindings"))
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    with small_sizes():
        assert_same(case.compiled.evaluate(case.table, output=output), answer)
        assert_same(*with_and_without_checkpoints(data, case, output))
    assert_right(case, candidates, answer, output)


@strategies.property_test(0.3)
def test_long_streams_give_the_reference(data):
    """Partitions come and go, and windows pass, many times over."""
    assert_long_streams(data, longest=250)


@pytest.mark.skipif(EXAMPLES < 1000, reason="about a second each: make test-soak")
@strategies.property_test(0.02)
def test_very_long_streams_give_the_reference(data):
    """Positions and node numbers are rebased several times."""
    assert_long_streams(data, longest=6000)


def assert_long_streams(data, longest):
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    case = Case(data, long_full_cases(data, ambiguous=output == "bindings", longest=longest))
    candidates = candidates_of(case, output, long=True)
    with small_sizes():
        answer = case.compiled.evaluate(case.table, output=output)
        assert_same(*with_and_without_checkpoints(data, case, output))
    assert_right(case, candidates, answer, output)
