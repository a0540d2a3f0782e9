"""Join predicates over neighbours are predicates over one event: the same matches as by joins, and as by definition."""

from __future__ import annotations

from unittest import mock

import pyarrow as pa
import pytest
import reference as ref
import strategies as s
from answers import assert_right, candidates_of, with_and_without_checkpoints
from cases import Case, assert_same, pushed
from hypothesis import strategies as st
from rest_strategies import full_cases

import cer_gpu
from cer_gpu.planning import passes

OUTPUTS = ("positions", "bindings", "count", "ends")
operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
columns = st.sampled_from(["n", "m", "v", "s"])


@st.composite
def comparisons(draw, one, other):
    """Draw a comparison of an attribute of two events, at times with a second one, or where one is NULL."""
    name = draw(columns)
    left, right = (ref.VarAttr(variable, name, which) for variable, which in (one, other))
    test = ref.Compare(draw(operators), left, right)
    match draw(st.sampled_from(["one", "one", "two", "either", "null", "not"])):
        case "two":
            return ref.PredAnd(test, draw(comparisons(one, other)))
        case "either":
            return ref.PredOr(test, draw(comparisons(one, other)))
        case "null":
            return ref.PredOr(test, ref.IsNull(right, False))
        case "not":
            return ref.PredNot(test)
    return test


@st.composite
def run_formulas(draw):
    """Draw a contiguous run whose events are compared with those before them, with others around it."""
    one = draw(st.sampled_from(["A", "A", "B", ref.ANY]))
    least = draw(st.sampled_from([1, 1, 2, 3]))
    most = draw(st.sampled_from([least, least, least + 1, None]))
    run = ref.As(ref.Times(ref.EventType(one), least, most, ":"), "r")
    if least == 1 and most is None and draw(st.booleans()):
        run = ref.As(ref.ContigPlus(ref.EventType(one)), "r")
    conditions = [draw(comparisons(("r", "EACH"), ("r", "PREV")))]
    formula = run
    if draw(st.booleans()):
        later = ref.As(ref.EventType(draw(st.sampled_from(["A", "C"]))), "z")
        formula = draw(st.sampled_from([ref.Seq, ref.Seq, ref.Contig]))(run, later)
        if draw(st.booleans()):
            which = draw(st.sampled_from(["LAST", "LAST", "FIRST", "EACH"]))
            conditions.append(draw(comparisons(("z", "EACH"), ("r", which))))
    if draw(st.booleans()):
        formula = ref.Seq(ref.As(ref.EventType(draw(st.sampled_from(["A", "B"]))), "x"), formula)
        if draw(st.booleans()):
            conditions.append(draw(comparisons(("x", "EACH"), ("r", draw(st.sampled_from(["FIRST", "LAST"]))))))
    for condition in conditions:
        formula = ref.Filter(formula, ref.Relation(condition))
    return formula


@st.composite
def neighbour_formulas(draw):
    """Draw single events joined by `:` in part, some of which are compared."""
    names = ["x", "y", "z"][: draw(st.integers(2, 3))]
    formula = None
    for name in names:
        event = ref.As(ref.EventType(draw(st.sampled_from(["A", "A", "B", ref.ANY]))), name)
        joined = draw(st.sampled_from([ref.Contig, ref.Contig, ref.Seq]))
        formula = event if formula is None else joined(formula, event)
    for _ in range(draw(st.integers(1, 2))):
        one, other = draw(st.permutations(names))[:2]
        formula = ref.Filter(formula, ref.Relation(draw(comparisons((one, "EACH"), (other, "EACH")))))
    if draw(st.booleans()):
        formula = draw(st.sampled_from([ref.Plus, ref.ContigPlus]))(formula)
    elif draw(st.booleans()):
        formula = ref.Seq(formula, ref.EventType("C"))
    return formula


KINDS = {"runs": run_formulas(), "single events": neighbour_formulas()}


def cases(kind):
    return full_cases(queries=s.full_queries(formula=KINDS[kind]))


def by_joins(case):
    """Return the query of a case with its join predicates as they are written."""
    with mock.patch.object(passes, "without_neighbour_joins", lambda formula, sites: (formula, ())):
        return case.compile()


@pytest.mark.parametrize("kind", KINDS)
@s.property_test(0.3)
def test_matches_are_those_of_the_definition_and_of_joins(kind, data):
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    case = Case(data, cases(kind))
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right(case, candidates, answer, output)
    if case.query.limit is None and case.query.strategy != "ANY":
        assert_same(pushed(case.compiled, case.batches, output=output), answer)
        joined = by_joins(case).evaluate(case.table, output=output)
        keys = [(name, "ascending") for name in ("end", "start", "count") if name in answer.column_names]
        assert answer.num_rows == joined.num_rows
        assert answer.select([name for name, _ in keys]).sort_by(keys) == (
            joined.select([name for name, _ in keys]).sort_by(keys)
        )


@s.property_test(0.05)
def test_a_checkpoint_between_any_two_batches_changes_nothing(data):
    assert_same(*with_and_without_checkpoints(data, Case(data, cases("runs")), "positions"))


READINGS = pa.table(
    {
        "type": ["R", "R", "R", "R", "R", "X", "R", "R", "R", "Z"],
        "temp": [1, 2, 3, 2, 3, 9, 4, 5, 6, 7],
        "m": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    }
)


@pytest.mark.parametrize(
    ("pattern", "filters", "spans"),
    [
        ("R:{3} AS r", "r.temp > PREV(r).temp", [(0, 2), (6, 8)]),
        ("R:{3} AS r ; Z AS z", "r.temp > PREV(r).temp AND z.temp > LAST(r).temp", [(0, 9), (6, 9)]),
        ("R:{3} AS r ; Z AS z", "r.temp > PREV(r).temp AND z.temp = LAST(r).temp + 1", [(6, 9)]),
        ("R AS a : R AS b : R AS c", "c.temp > b.temp AND b.temp > a.temp", [(0, 2), (6, 8)]),
        ("R AS a : R AS b : R AS c", "c.temp = a.temp + 2", [(0, 2), (6, 8)]),
    ],
)
def test_neighbours_are_compared_without_joins(pattern, filters, spans):
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern} FILTER {filters} PARTITION BY [m] WITHIN 20 EVENTS")
    found = query.evaluate(READINGS)
    assert sorted(zip(found["start"].to_pylist(), found["end"].to_pylist(), strict=True)) == spans
    assert query._plan.moved_joins != ()
    (line,) = [line for line in query.explain().passes if line.startswith("neighbours")]
    assert "rewritten as predicates over one event" in line
    assert ("neighbours, with LAG" in str(query.explain())) == ("LAST" not in filters)
    if "LAST" not in filters:
        assert query._plan.graph is None
        assert query._plan.parallel is None


def test_ranges_of_the_stream_stay_exact():
    query = cer_gpu.compile("SELECT * FROM S WHERE R:{3} AS r FILTER r.temp > PREV(r).temp WITHIN 5 EVENTS")
    assert query.distribution.tasks["range"] is None
    table = pa.concat_tables([READINGS] * 50)
    alone, shared = query.evaluate(table, threads=1), query.evaluate(table, threads=3)
    assert_same(alone, shared)
