"""Quantifiers, options, next-match, absence, LAG, measures and HAVING in combination, compared with the definitions.

CER_GPU_EXAMPLES scales the number of random cases of each property; `make test-soak` runs many.
"""

from __future__ import annotations

import itertools

import arrow_streams
import join_strategies
import pyarrow as pa
import pytest
import reference as ref
import reference_measures as measures
import refused_queries
import rest_strategies as rest
import strategies
from answers import (
    assert_columns,
    assert_right,
    assert_right_in_time,
    candidates_of,
    survivors_of,
    with_and_without_checkpoints,
)
from cases import MAX_ROWS, MAX_VALUATIONS, Case, CaseOfStreams, assert_same, measure_rows_of, plain, pushed, rows_of
from hypothesis import assume
from hypothesis import strategies as st
from small_sizes import small_sizes

import cer_gpu

OUTPUTS = ("positions", "bindings", "events", "count", "ends")
KINDS = {
    "chains": rest.chains(),
    "filters on single events": rest.plain,
    "with ALL": rest.with_all,
    "filters between events": rest.related,
}


@pytest.mark.parametrize("text", refused_queries.QUERIES.values(), ids=refused_queries.QUERIES)
def test_what_has_no_meaning_is_refused(text):
    with pytest.raises(cer_gpu.QueryError):
        cer_gpu.compile(text)


# ------------------------------------------------------------------------------------------ the whole language


@pytest.mark.parametrize("output", ["positions", "bindings", "count", "ends", "events"])
@pytest.mark.parametrize("kind", KINDS)
@strategies.property_test(0.07)
def test_every_operator_gives_the_rows_of_the_reference(kind, output, data):
    case = Case(data, rest.full_cases(formula=KINDS[kind], ambiguous=output == "bindings"))
    candidates = candidates_of(case, output)
    assert_right(case, candidates, case.compiled.evaluate(case.table, output=output), output)


@strategies.property_test(0.1)
def test_limit_and_any_give_one_legal_answer_in_any_cut(data):
    output = data.draw(st.sampled_from(["positions", "bindings", "count"]), label="output")
    case = Case(data, rest.full_cases(choosing=True))
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right(case, candidates, answer, output)
    assert_same(pushed(case.compiled, case.batches, output=output), answer)


@strategies.property_test(0.1)
def test_any_cut_gives_the_same_table(data):
    case = Case(data, rest.full_cases())
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.whole, output=output)
    assert_right(case, candidates, answer, output)
    assert_same(pushed(case.compiled, case.batches, output=output), answer)
    assert_same(case.compiled.stream(case.table, output=output).read_all(), answer)


@strategies.property_test(0.07)
def test_single_events_report_what_ends_at_each(data):
    """The finest cut: each push reports exactly the complex events that end at its event."""
    case = Case(data, rest.full_cases())
    expected = case.expected()
    evaluator = case.compiled.evaluator()
    every_place = list(range(1, len(case.events)))
    for position, batch in enumerate(arrow_streams.build_batches(case.events, case.layout, every_place)):
        assert sorted(rows_of(evaluator.push(batch))) == [row for row in expected if row[1] == position]
    assert evaluator.finish().num_rows == 0


@strategies.property_test(0.1)
def test_a_stream_with_checkpoints_gives_the_uninterrupted_table(data):
    case = Case(data, rest.full_cases(choosing=data.draw(st.booleans(), label="choosing")))
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    candidates_of(case, output)  # discards examples that are too large
    assert_same(*with_and_without_checkpoints(data, case, output))


@strategies.property_test(0.07)
def test_shares_are_parts_of_the_whole(data):
    case = Case(data, rest.full_cases())
    expected = case.expected()
    n = data.draw(st.integers(2, 3), label="shares")
    parts = [rows_of(case.compiled.evaluate(case.table, shard=(k, n))) for k in range(n)]
    assert sorted(itertools.chain.from_iterable(parts)) == expected


@strategies.property_test(0.05)
def test_threads_give_the_rows_of_one(data):
    case = Case(data, rest.full_cases())
    expected = case.expected()
    assert sorted(rows_of(case.compiled.evaluate(case.table, threads=2))) == expected


@strategies.property_test(0.07)
def test_several_streams_give_the_reference(data):
    output = data.draw(st.sampled_from(["positions", "bindings"]), label="output")
    case = CaseOfStreams(data, rest.cases_of_several_streams())
    candidates = candidates_of(case, output)
    answer = case.in_order(case.compiled.evaluate(case.tables, output=output))
    assert_right(case, candidates, answer, output)


@strategies.property_test(0.1)
def test_long_streams_give_the_reference(data):
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    case = Case(data, rest.long_cases())
    candidates = candidates_of(case, output, long=True)
    with small_sizes():
        answer = case.compiled.evaluate(case.table, output=output)
        assert_same(*with_and_without_checkpoints(data, case, output))
    assert_right(case, candidates, answer, output)


# ---------------------------------------------------------------------- strategies, within the window and before it


@pytest.mark.parametrize("strategy", rest.COMPARING)
@strategies.property_test(0.1)
def test_strategies_choose_within_the_window(strategy, data):
    formula = st.one_of(strategies.formulas(whole=True), rest.plain, join_strategies.join_formulas(), rest.with_all)
    case = Case(data, rest.full_cases(strategies=(strategy,), formula=formula))
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right(case, candidates, answer, output)
    assert_same(*with_and_without_checkpoints(data, case, output))


@pytest.mark.parametrize("strategy", rest.COMPARING)
@strategies.property_test(0.1)
def test_strategies_choose_within_the_window_of_long_streams(strategy, data):
    formula = st.one_of(strategies.formulas(whole=True), rest.chains(), rest.plain)
    case = Case(data, rest.long_cases(formula=formula, strategies=(strategy,)))
    candidates = candidates_of(case, "positions", long=True)
    with small_sizes():
        answer = case.compiled.evaluate(case.table)
        assert_same(*with_and_without_checkpoints(data, case, "positions"))
    assert_right(case, candidates, answer, "positions")


# --------------------------------------------------------------------------- absence at the end of a pattern


@pytest.mark.parametrize("related", [False, True], ids=["single events", "filters between events"])
@pytest.mark.parametrize("output", ["positions", "bindings", "count", "ends"])
@strategies.property_test(0.07)
def test_absence_at_the_end_gives_the_reference(output, related, data):
    choosing = data.draw(st.integers(0, 3), label="choosing") == 3
    case = Case(data, rest.trailing_cases(related, choosing))
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right_in_time(case, candidates, answer, output)
    assert_same(pushed(case.compiled, case.batches, output=output), answer)
    assert_same(*with_and_without_checkpoints(data, case, output))


@strategies.property_test(0.07)
def test_absence_at_the_end_is_told_when_the_window_has_passed(data):
    """The finest cut: each push reports what its event tells, and the end of the input the rest."""
    case = Case(data, rest.trailing_cases(related=data.draw(st.booleans(), label="related")))
    expected = case.expected()
    moments = ref.moments(case.query, case.events, survivors_of(case))
    evaluator = case.compiled.evaluator()
    every_place = list(range(1, len(case.events)))
    for position, batch in enumerate(arrow_streams.build_batches(case.events, case.layout, every_place)):
        told = rows_of(evaluator.push(batch)) if case.events else []
        assert sorted(told) == [row for row in expected if moments[row[:2]] == position]
    rest_of_them = rows_of(evaluator.finish())
    assert sorted(rest_of_them) == [row for row in expected if moments[row[:2]] == len(case.events)]


# ------------------------------------------------------------------------------------------------ LAG, functions


@strategies.property_test(0.15)
def test_lag_and_functions_give_the_reference(data):
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    case = Case(data, rest.lag_cases())
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right(case, candidates, answer, output)
    assert_same(pushed(case.compiled, case.batches, output=output), answer)
    assert_same(*with_and_without_checkpoints(data, case, output))


@strategies.property_test(0.07)
def test_parts_of_times_give_the_reference(data):
    formula = strategies.formulas(depth=2, conditions=rest.time_functions, whole=True)
    case = Case(data, rest.full_cases(formula=formula), timestamps=True)
    days = pa.types.is_date(case.layout.types[ref.TIME])
    assume(not days)
    candidates = candidates_of(case, "positions")
    assert_right(case, candidates, case.compiled.evaluate(case.table), "positions")


# ------------------------------------------------------------------------------------------ measures and HAVING


def measured_candidates(case):
    """Return, by brute force, all rows of measures, each with True if HAVING keeps it."""
    query = ref.every_candidate(case.query)
    try:
        found = measures.candidates(query, case.events, MAX_VALUATIONS)
    except ref.TooLarge:
        assume(False)
    assume(len(found) <= MAX_ROWS)
    return found


def assert_measured(case, candidates, answer):
    answer.validate(full=True)
    times = ["start_time", "end_time"] if case.time_column else []
    keys = [names[0] for names in case.query.partition_by]
    assert answer.column_names == ["start", "end", *times, *keys, *(name for name, _ in case.query.measures)]
    assert answer["end"].to_pylist() == sorted(answer["end"].to_pylist())
    found = measure_rows_of(answer, case.query)
    if case.query.limit is None and case.query.strategy != "ANY":
        kept = [row for row, passes in candidates if passes]
        assert sorted(map(comparable, found)) == sorted(map(comparable, kept))
    candidates = [((*row[:2], comparable(row)), passes) for row, passes in candidates]
    assert measures.is_choice(case.query, candidates, [(*row[:2], comparable(row)) for row in found])


def comparable(row):
    """Return the row as text, in which numbers that are equal are the same."""
    return repr((*row[:2], [number(value) for value in row[2]]))


def number(value):
    if isinstance(value, list):
        return [number(part) for part in value]
    return value + 0.0 if isinstance(value, int | float) and not isinstance(value, bool) else value


@strategies.property_test(0.2)
def test_measures_give_the_reference(data):
    case = Case(data, rest.measure_cases(choosing=data.draw(st.integers(0, 3), label="choosing") == 3))
    candidates = measured_candidates(case)
    answer = case.compiled.evaluate(case.table)
    assert_measured(case, candidates, answer)
    assert_same(pushed(case.compiled, case.batches), answer)
    assert_same(case.compiled.evaluate(case.table, output="measures"), answer)


@strategies.property_test(0.07)
def test_measures_with_checkpoints_give_the_uninterrupted_table(data):
    case = Case(data, rest.measure_cases())
    measured_candidates(case)
    assert_same(*with_and_without_checkpoints(data, case, "measures"))


# -------------------------------------------------------------------------------------------- rows and limit


@strategies.property_test(0.1)
def test_rows_are_the_bindings_in_long_form(data):
    case = Case(data, rest.full_cases(ambiguous=True))
    candidates_of(case, "bindings")
    bound = case.compiled.evaluate(case.table, output="bindings")
    long = case.compiled.evaluate(case.table, output="rows")
    long.validate(full=True)
    variables = ref.bound_variables(case.query)
    held = [{name: bound[name][k].as_py() for name in variables} for k in range(bound.num_rows)]
    expected = {
        (k, name, position)
        for k, row in enumerate(held)
        for name, positions in row.items()
        for position in ([] if positions is None else [positions] if isinstance(positions, int) else positions)
    }
    found = list(zip(*(long[name].to_pylist() for name in ("match", "variable", "position")), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert [match for match, _, _ in found] == sorted(match for match, _, _ in found)
    events = case.whole.to_pylist()
    for name in set(long.column_names[3:]) & set(case.whole.column_names):
        assert plain(long[name].to_pylist()) == plain([events[position][name] for _, _, position in found])


@strategies.property_test(0.07)
def test_limit_keeps_the_first_rows(data):
    case = Case(data, rest.full_cases())
    output = data.draw(st.sampled_from(["positions", "bindings", "events"]), label="output")
    candidates_of(case, output)
    limit = data.draw(st.integers(0, 5), label="limit")
    answer = case.compiled.evaluate(case.table, output=output)
    assert_same(case.compiled.evaluate(case.table, output=output, limit=limit), answer.slice(0, limit))


@strategies.property_test(0.05)
def test_columns_of_bindings_are_scalars_where_one_event_is_held(data):
    case = Case(data, rest.full_cases())
    candidates = candidates_of(case, "bindings")
    answer = case.compiled.evaluate(case.table, output="bindings")
    assert_columns(case, answer, "bindings")
    for name in ref.bound_variables(case.query):
        if any(len(dict(row[3])[name]) > 1 for row in candidates):
            assert answer.schema.field(name).type == pa.list_(pa.int64())


@pytest.mark.parametrize("output", ["positions", "bindings", "events", "measures", "count", "ends", "rows"])
@pytest.mark.parametrize("select", ["*", "RECENT *", "MAX *", "ANY *"])
@pytest.mark.parametrize("last", ["WITHIN 8 SECONDS", "FOR 8 SECONDS", "WITHIN 8 SECONDS LIMIT 2"])
def test_what_becomes_known_together_comes_by_end_then_by_start(select, last, output):
    types, k = list("AABBAABBC"), [1, 2, 2, 1, 3, 4, 4, 3, 0]
    table = pa.table({"type": types, "k": k, "ts": [0, 0, 1, 1, 20, 20, 21, 21, 22]})
    columns = select.replace("*", "a.k AS k") if output == "measures" else select
    text = f"SELECT {columns} FROM S WHERE (A AS a ; B AS b FILTER a.k = b.k) ; !D {last}"
    # the pairs (0, 3) and (1, 2) become known at event 4, the others at the end
    compiled = cer_gpu.compile(text, time_column="ts", time_unit="s")
    answer = compiled.evaluate(table, output=output)
    if output == "rows":
        assert answer["position"].to_pylist() == [1, 2, 0, 3, 5, 6, 4, 7]
    else:
        assert answer["end"].to_pylist() == [2, 3, 6, 7]
    assert_same(pushed(compiled, table.to_batches(1), output=output), answer)


def test_an_end_is_told_although_a_later_one_still_waits():
    """Strategies choose at whole ends; the end at event 1 is known at event 3, that at event 2 at event 4."""
    evaluator = cer_gpu.compile("SELECT NEXT * FROM S WHERE A ; A ; !B WITHIN 2 EVENTS").evaluator()
    told = [rows_of(evaluator.push(pa.record_batch({"type": ["A"]}))) for _ in range(5)]
    assert told == [[], [], [], [(0, 1, (0, 1))], [(0, 2, (0, 2))]]


ABSENT = pa.table({"type": list("AABACBC"), "x": [5, 1, 3, 2, 0, 6, 0]})


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        # the B of 3 is above the A of 1 and the A of 2, and not above that of 5; the B of 6 is above all
        (
            "A+ AS a ; !(B AS b FILTER b.x > a.x) ; C",
            [[0, 1, 3, 4], [0, 1, 4], [0, 3, 4], [0, 4], [1, 3, 4], [3, 4]],
        ),
        (
            "A+ AS a ; (B AS b FILTER b.x > a.x)",
            [[0, 1, 3, 5], [0, 1, 5], [0, 3, 5], [0, 5], [1, 2], [1, 3, 5], [1, 5], [3, 5]],
        ),
        (
            "A+ AS a -> (B AS b FILTER b.x > a.x)",
            [[0, 1, 3, 5], [0, 1, 5], [0, 3, 5], [0, 5], [1, 2], [1, 3, 5], [3, 5]],
        ),
        (
            "A AS a ; A AS a ; !(B AS b FILTER b.x + 2 > a.x + b.x) ; C",
            [[0, 1, 4], [0, 1, 6], [0, 3, 4], [0, 3, 6], [1, 3, 4], [1, 3, 6]],
        ),
    ],
)
def test_an_absent_event_is_compared_with_each_event_of_a_variable(pattern, found):
    answer = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern}").evaluate(ABSENT)
    assert sorted(answer["positions"].to_pylist()) == found
