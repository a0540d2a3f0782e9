"""Random queries on random streams in random layouts and cuts, compared with the definitions.

CER_GPU_EXAMPLES sets the number of examples of each property. A failing example prints the query's text.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import arrow_streams
import conjunction_strategies
import pyarrow as pa
import pytest
import reference as ref
import rendering
import strategies
from cases import Case, assert_same, by_automaton, pushed, rows_of
from hypothesis import assume
from hypothesis import strategies as st

import cer_gpu


def assert_well_formed(case: Case, answer: pa.Table) -> None:
    """Check types, order by end, ascending positions inside the interval, and times of start and end."""
    answer.validate(full=True)
    times = ["start_time", "end_time"] if case.time_column else []
    assert answer.column_names == ["start", "end", "positions", *times]
    assert answer.schema.types[:3] == [pa.int64(), pa.int64(), pa.list_(pa.int64())]
    rows = rows_of(answer)
    assert len(set(rows)) == len(rows)
    assert [end for _, end, _ in rows] == sorted(end for _, end, _ in rows)
    for start, end, positions in rows:
        assert all(a < b for a, b in itertools.pairwise([start - 1, *positions, end + 1]))
    if case.time_column:
        stamps = case.table[case.time_column]
        for name in ("start", "end"):
            assert answer[f"{name}_time"].to_pylist() == stamps.take(answer[name]).to_pylist()
            assert answer[f"{name}_time"].type == stamps.type


def cases(data, **kinds):
    """Return a strategy for queries without filters between events, one in four with ALL."""
    if strategies.CONJUNCTIONS and data.draw(st.integers(0, 3), label="kind of query") == 3:
        return conjunction_strategies.cases(formula=conjunction_strategies.formulas(), **kinds)
    return strategies.cases(**kinds)


@strategies.property_test()
def test_evaluate_finds_the_rows_of_the_reference(data):
    case = Case(data, cases(data))
    expected = case.expected()
    answer = case.compiled.evaluate(case.table)
    assert_well_formed(case, answer)
    assert sorted(rows_of(answer)) == expected
    assert sorted(rows_of(by_automaton(case.compiled).evaluate(case.table))) == expected


@strategies.property_test()
def test_random_predicates_select_the_events_of_the_reference(data):
    case = Case(data, strategies.predicate_cases())
    assert rows_of(pushed(case.compiled, case.batches)) == case.expected()


@strategies.property_test()
def test_random_arithmetic_selects_the_events_of_the_reference(data):
    case = Case(data, strategies.arithmetic_cases())
    assert rows_of(pushed(case.compiled, case.batches)) == case.expected()


NUMBERS = {
    "int": (*strategies.INTS, *strategies.EXTREME_INTS, None),
    "float": (*strategies.FLOATS, *strategies.EXTREME_FLOATS, None),
}


@pytest.mark.parametrize("op", ["+", "-", "*", "/", "%"])
@pytest.mark.parametrize(("left", "right"), list(itertools.product(NUMBERS, repeat=2)))
def test_arithmetic_of_extreme_numbers_is_that_of_the_reference(left, right, op):
    pairs = list(itertools.product(NUMBERS[left], NUMBERS[right]))
    stream = [{ref.TYPE: "A", "a": a, "b": b} for a, b in pairs]
    types = {"int": pa.int64(), "float": pa.float64()}
    a, b = pa.array([a for a, _ in pairs], types[left]), pa.array([b for _, b in pairs], types[right])
    table = pa.table({ref.TYPE: ["A"] * len(pairs), "a": a, "b": b})
    for operand in (ref.Attr("b"), ref.Neg(ref.Attr("b"))):
        for comparison in ("<", "=", ">"):
            expression = ref.Arith(op, ref.Attr("a"), operand)
            predicate = ref.PredNot(ref.Compare(comparison, expression, ref.Const(0)))
            query = ref.Query(ref.Filter(ref.EventType("A"), ref.Unary("A", predicate)))
            answer = cer_gpu.compile(rendering.to_ceql(query)).evaluate(table)
            assert rows_of(answer) == ref.evaluate(query, stream)


@strategies.property_test()
def test_any_cut_gives_the_same_table(data):
    case = Case(data, cases(data))
    expected = case.expected()
    whole = case.compiled.evaluate(arrow_streams.build_table(case.events, case.layout))
    assert_same(pushed(case.compiled, case.batches), whole)
    assert_same(case.compiled.evaluate(case.batches), whole)
    assert sorted(rows_of(whole)) == expected


@strategies.property_test()
def test_stream_gives_what_evaluate_gives(data):
    case = Case(data, cases(data))
    case.expected()
    reader = case.compiled.stream(case.table)
    assert_same(reader.read_all(), case.compiled.evaluate(case.table))


@strategies.property_test()
def test_limit_gives_a_legal_answer_and_the_same_for_every_cut(data):
    case = Case(data, cases(data, limits=True))
    candidates = case.candidates()
    answer = case.compiled.evaluate(case.table)
    assert_well_formed(case, answer)
    assert ref.is_choice(case.query, candidates, rows_of(answer))
    assert_same(pushed(case.compiled, case.batches), answer)
    other_cuts = data.draw(strategies.cuts(len(case.events)), label="other cuts")
    others = arrow_streams.build_batches(case.events, case.layout, other_cuts)
    assert_same(pushed(case.compiled, others), answer)


@strategies.property_test()
def test_single_events_report_what_ends_at_each(data):
    """The finest cut: each push reports exactly the complex events that end at its event."""
    case = Case(data, cases(data))
    expected = case.expected()
    evaluator = case.compiled.evaluator()
    every_place = list(range(1, len(case.events)))
    for position, batch in enumerate(arrow_streams.build_batches(case.events, case.layout, every_place)):
        rows = rows_of(evaluator.push(batch))
        assert sorted(rows) == [row for row in expected if row[1] == position]
    assert evaluator.finish().num_rows == 0


@strategies.property_test()
def test_dropped_and_reused_memory_leaves_no_trace(data):
    case = Case(data, strategies.long_cases())
    expected = case.expected(ref.evaluate_long)
    answer = pushed(case.compiled, case.batches)
    assert_well_formed(case, answer)
    assert sorted(rows_of(answer)) == expected
    assert_same(case.compiled.evaluate(case.table), answer)


def moment(milliseconds: int) -> str:
    """Return a literal of the time, to the second."""
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds):%Y-%m-%d %H:%M:%S}"


@strategies.property_test()
def test_timestamps_compare_with_date_literals_as_in_the_reference(data):
    conditions = strategies.time_comparisons(moment) | strategies.plain_comparisons
    case = Case(data, cases(data, depth=3, conditions=conditions), timestamps=True)
    expected = case.expected()
    assert sorted(rows_of(case.compiled.evaluate(case.table))) == expected


@strategies.property_test()
def test_a_decreasing_time_is_refused(data):
    case = Case(data, cases(data, windows="time"))
    times = [event[ref.TIME] for event in case.events]
    assume(len(set(times)) > 1)
    place = data.draw(st.sampled_from([p for p in range(1, len(times)) if times[p] > times[p - 1]]), label="place")
    case.events[place - 1 : place + 1] = [
        {**case.events[place - 1], ref.TIME: times[place]},
        {**case.events[place], ref.TIME: times[place - 1]},
    ]
    with pytest.raises(cer_gpu.TimeOrderError):
        case.compiled.evaluate(case.table)
    with pytest.raises(cer_gpu.TimeOrderError):
        pushed(case.compiled, case.batches)
