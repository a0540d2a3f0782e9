"""CEQL as MATCH_RECOGNIZE: the matches of the reference, or a reason why there is no such statement."""

import pyarrow as pa
import pytest
import reference as ref
import strategies
from cases import Case
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.exploring.as_sql import NoSqlError, as_sql

NAMES = ("x", "y", "B 2")
EVENTS = pa.table(
    {
        "type": ["A", "B", "C", "A", "B", None, "A", "B"],
        "x": [1, 2, 3, None, 5, 6, 7, 8],
        "k": ["p", "p", "q", "p", None, "p", "q", "q"],
        "ts": pa.array(range(0, 8000, 1000), pa.timestamp("ms")),
    }
)

numbers = st.sampled_from([ref.Attr("n"), ref.Attr("m"), ref.Attr("v"), *map(ref.Const, (-1, 0, 1, 2.5))])
operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
sums = st.builds(ref.Arith, st.sampled_from("+-*"), numbers, numbers)
tests = st.one_of(
    st.builds(ref.Compare, operators, st.sampled_from([ref.Attr("n"), ref.Attr("v")]), numbers),
    st.builds(
        ref.Compare, operators, st.builds(ref.Arith, st.sampled_from("+-*"), numbers, numbers), st.just(ref.Attr("m"))
    ),
    st.builds(ref.Compare, operators, st.just(ref.Attr("s")), st.sampled_from([*map(ref.Const, ("a", "it's", ""))])),
    st.builds(ref.IsNull, st.sampled_from([ref.Attr("n"), ref.Attr("s")])),
    st.builds(ref.In, st.just(ref.Attr("n")), st.just((ref.Const(0), ref.Const(1)))),
)
predicates = st.recursive(
    tests,
    lambda below: st.one_of(
        st.builds(ref.PredNot, below), st.builds(ref.PredAnd, below, below), st.builds(ref.PredOr, below, below)
    ),
    max_leaves=3,
)


@st.composite
def joins(draw, names):
    """Draw a filter over single events: between two of them, of one, or one of both."""
    one, other = draw(st.sampled_from(names)), draw(st.sampled_from(names))
    right = draw(st.sampled_from([ref.VarAttr(other, "m"), ref.Arith("+", ref.VarAttr(other, "v"), ref.Const(1))]))
    between = ref.Relation(ref.Compare(draw(operators), ref.VarAttr(one, "n"), right))
    alone = ref.Unary(one, draw(predicates))
    return draw(st.sampled_from([between, alone, ref.FilterOr(between, alone), ref.FilterAnd(alone, between)]))


@st.composite
def chain_cases(draw):
    """Draw a chain that SQL can say, and events for it."""
    n = draw(st.integers(1, 3))
    steps = []
    for name in NAMES[:n]:
        step = ref.As(ref.EventType(draw(st.sampled_from(strategies.TYPES))), name)
        steps.append(ref.Filter(step, ref.Unary(name, draw(predicates))) if draw(st.booleans()) else step)
    formula = steps[0]
    for k, step in enumerate(steps[1:], 1):
        is_next = k == n - 1 and draw(st.integers(0, 2)) == 2
        if is_next and draw(st.booleans()):
            step = ref.Filter(step, draw(joins(NAMES[: k + 1])))
        formula = (ref.Next if is_next else ref.Contig)(formula, step)
        if not is_next and draw(st.booleans()):
            formula = ref.Filter(formula, draw(joins(NAMES[: k + 1])))
    has_next = any(isinstance(node, ref.Next) for node in ref.descendants(formula))
    query = ref.Query(
        formula,
        within=draw(st.sampled_from([None, ("time", 2000), ("time", 5000)])),
        partition_by=draw(st.sampled_from([(), (("s",),), (("n",), ("s",))])),
        strategy="ALL" if has_next else draw(st.sampled_from(["ALL", "STRICT"])),
    )
    return query, draw(strategies.streams(query, 12))


def matches_of(statement, events, n):
    """Return the positions of each match, of n events each."""
    numbered = events.append_column("row of it", pa.array(range(events.num_rows), pa.int64()))
    rows = cer_gpu.compile(statement).evaluate(numbered)["row of it"].to_pylist()
    return sorted(tuple(rows[k : k + n]) for k in range(0, len(rows), n))


@strategies.property_test()
def test_the_statement_has_the_matches_of_the_reference(data):
    case = Case(data, chain_cases(), timestamps=True)
    statement = as_sql(case.compiled, case.table.schema, case.type_column, case.time_column)
    n = sum(isinstance(node, ref.EventType) for node in ref.descendants(case.query.formula))
    assert matches_of(statement, case.table, n) == sorted(positions for _, _, positions in case.expected())


@strategies.property_test(0.5)
def test_a_query_of_any_kind_has_its_own_matches_or_no_statement(data):
    case = Case(data, strategies.cases(depth=2))
    try:
        statement = as_sql(case.compiled, case.table.schema, case.type_column, case.time_column)
    except NoSqlError:
        return
    n = sum(isinstance(node, ref.EventType) for node in ref.descendants(case.query.formula))
    assert matches_of(statement, case.table, n) == sorted(positions for _, _, positions in case.expected())


def statement_of(text, **options):
    options = {"type_column": "type", "time_column": "ts", **options}
    return as_sql(cer_gpu.compile(text, **options), EVENTS.schema, options["type_column"], options["time_column"])


def test_the_statement_is_one_that_a_person_would_write():
    text = (
        "SELECT * FROM S WHERE A AS a : B AS b FILTER b.x > a.x AND a[x > 0 OR x IS NULL] PARTITION BY [k] "
        "WITHIN 2 SECONDS"
    )
    assert statement_of(text) == (
        """\
SELECT * FROM events MATCH_RECOGNIZE (
  PARTITION BY "k"
  ORDER BY "ts"
  MEASURES MATCH_NUMBER() AS match, CLASSIFIER() AS variable
  ALL ROWS PER MATCH
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN ("a" "b")
  DEFINE "a" AS "type" = 'A' AND (("x" > 0) OR ("x" IS NULL)) AND "k" IS NOT NULL,
         "b" AS "type" = 'B' AND ("x" > "a"."x") AND "ts" - "a"."ts" <= INTERVAL '2' SECOND
)"""
    )


def test_measures_of_select_are_those_of_the_statement():
    text = "SELECT a.x, b.x - a.x AS d FROM S WHERE A AS a -> (B AS b FILTER b.x >= a.x + 1)"
    rows = cer_gpu.compile(statement_of(text)).evaluate(EVENTS)
    assert rows.to_pylist() == cer_gpu.compile(text, time_column="ts").evaluate(EVENTS).select(["a.x", "d"]).to_pylist()
    assert rows.num_rows == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT * FROM S WHERE A ; B", "`;` finds every later event"),
        ("SELECT * FROM S WHERE A : B:+", "a step is repeated"),
        ("SELECT * FROM S WHERE A OR B", "OR between events"),
        ("SELECT * FROM S WHERE A : A", "same name"),
        ("SELECT * FROM S WHERE A ; !B -> C", "absence"),
        ("SELECT * FROM S WHERE A AS a -> B AS b FILTER b[x > 1]", "tests the event that -> took"),
        ("SELECT * FROM S WHERE A -> B -> C", "events follow"),
        ("SELECT * FROM S WHERE A : B WITHIN 3 EVENTS", "no length of time"),
        ("SELECT MAX * FROM S WHERE A : B", "SELECT MAX"),
        ("SELECT a FROM S WHERE A AS a : B", "selects variables"),
        ("SELECT COUNT(*) FROM S WHERE A : B", "function"),
        ("SELECT * FROM S WHERE A : B LIMIT 1", "LIMIT"),
        ("SELECT * FROM S WHERE A AS a FILTER a[k LIKE 'x.*']", "pattern"),
        ("SELECT * FROM S WHERE A AS a FILTER a[LAG(x) > 1]", "columns of single events"),
        ("SELECT * FROM S, T WHERE S>A : T>B", "several streams"),
    ],
)
def test_others_have_a_reason(text, reason):
    with pytest.raises(NoSqlError, match=reason):
        statement_of(text)
