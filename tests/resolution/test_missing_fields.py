"""CEQL in which an attribute that the events have not is NULL: the same as a column without values."""

from __future__ import annotations

import join_strategies
import past_strategies
import pyarrow as pa
import pytest
import reference as ref
import rest_strategies
import strategies
from cases import Case
from hypothesis import assume, note
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.ceql.parser import parse
from cer_gpu.resolution.ceql import resolve_query
from cer_gpu.resolution.predicates import PredicateResolver

EVENTS = pa.table(
    {
        "type": ["A", "B", "A", "B"],
        "x": [1, 2, 3, None],
        "tags": [["a"], [], None, ["b"]],
        "st": [{"p": 1}, {"p": 2}, None, {"p": None}],
    }
)


def compiled(text, **options):
    return cer_gpu.compile(text, missing_fields="null", **options)


def found(text, events=EVENTS, **options):
    return compiled(text, **options).evaluate(events)["positions"].to_pylist()


@pytest.mark.parametrize(
    ("predicate", "ends"),
    [
        ("y = 1", []),
        ("NOT y = 1", []),
        ("y IS NULL", [0, 1, 2, 3]),
        ("y IS NOT NULL", []),
        ("y + 1 IS NULL", [0, 1, 2, 3]),
        ("x = 1 OR y = 1", [0]),
        ("x = 1 AND y = 1", []),
        ("NOT (x = 1 AND y = 1)", [1, 2]),
        ("NOT (x = 1 OR y = 1)", []),
        ("x IN {1, y}", [0]),
        ("x NOT IN {1, y}", []),
        ("y IN {1, 2}", []),
        ("x BETWEEN 2 AND y", []),
        ("x NOT BETWEEN 2 AND y", [0]),
        ("st.q = 1 OR st.p = 2", [1]),
        ("LAG(y) IS NULL AND x = 1", [0]),
        ("LAG(y) = 1 OR x = 1", [0]),
        ("ANY(none) = 'a' OR ANY(tags) = 'b'", [3]),
        ("NOT ANY(none) = 'a'", []),
        ("ANY(tags) = concat(y, 'a')", []),
        ("NOT ANY(tags) = concat(y, 'a')", [1]),
        ("COUNT(* FILTER y = 1) OVER 2 EVENTS = 0", [0, 1, 2, 3]),
        ("COUNT(*.y) OVER 2 EVENTS = 0 AND x = 2", [1]),
        ("SUM(*.y) OVER 2 EVENTS IS NULL AND x = 2", [1]),
        ("SUM(*.y) OVER 2 EVENTS > 0 OR x = 2", [1]),
        ("RISES(COUNT(* FILTER x > 1 OR y = 1) OVER 9 EVENTS >= 1, x > 0)", [1]),
        ("RISES(COUNT(* FILTER y = 1) OVER 9 EVENTS >= 1, x > 0) OR x = 3", [2]),
        ("RISES(COUNT(* FILTER y IS NULL) OVER 9 EVENTS >= 2, x > 1)", [1]),
        ("RISES(COUNT(* FILTER x > 1) OVER 9 EVENTS >= 1, y IS NULL)", [1]),
        ("COUNT(* FILTER y IS NULL) OVER 2 EVENTS = 2", [1]),
        ("COUNT(* FILTER y = 1 OR x > 1) OVER 2 EVENTS = 2", [2, 3]),
    ],
)
def test_a_missing_attribute_is_null(predicate, ends):
    text = f"SELECT * FROM S WHERE * AS e FILTER e[{predicate}]"
    assert found(text) == [[end] for end in ends]


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ("SELECT * FROM S WHERE A AS a ; B AS b FILTER a.y = b.y", []),
        ("SELECT * FROM S WHERE A AS a ; B AS b FILTER a.y IS NULL AND b.x = 2", [[0, 1]]),
        ("SELECT * FROM S WHERE A AS a ; B AS b FILTER a[y IS NULL] OR b[x = 2]", [[0, 1], [0, 3], [2, 3]]),
        ("SELECT * FROM S WHERE A AS a ; B AS b FILTER a.y = b.y OR b.x = a.x + 1", [[0, 1]]),
        ("SELECT * FROM S WHERE A ; !(A AS z FILTER z[y = 1]) ; B AS b FILTER b[x IS NULL]", [[0, 3], [2, 3]]),
        ("SELECT * FROM S WHERE A ; !(A AS z FILTER z[y IS NULL]) ; B AS b FILTER b[x IS NULL]", [[2, 3]]),
        ("SELECT * FROM S WHERE A : NOT(B FILTER B[y = 1]) : A", [[0, 2]]),
        ("SELECT * FROM S WHERE A : NOT(B FILTER B[y IS NULL]) : A", []),
        ("SELECT * FROM S WHERE A ; B PARTITION BY [y]", []),
        ("SELECT * FROM S WHERE A ; B PARTITION BY [y, x]", []),
        ("SELECT * FROM S WHERE (A ; NOT(B)) OR A AS a PARTITION BY [x], [y]", []),
        ("SELECT RECENT * FROM S WHERE A ; B PARTITION BY [y] WITHIN 5 EVENTS", []),
        ("Q(a) <- A(x = a) AS one, B(y = a) AS two", []),
    ],
)
def test_in_whole_queries(text, positions):
    assert sorted(found(text)) == positions


def test_a_key_that_some_bracket_lacks_is_that_of_the_others():
    assert found("SELECT * FROM S WHERE A ; A PARTITION BY [y, k]", EVENTS.append_column("k", pa.array([1] * 4))) == [
        [0, 2]
    ]


def test_an_error_is_the_default():
    with pytest.raises(cer_gpu.QueryTypeError, match="no column 'y'"):
        cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[y = 1]", schema=EVENTS.schema)
    with pytest.raises(cer_gpu.OptionError, match="missing_fields must be one of 'error', 'null'"):
        cer_gpu.compile("SELECT * FROM S WHERE A", missing_fields="skip")


def test_what_is_missing_is_told_and_not_read():
    query = compiled("SELECT * FROM S WHERE * AS e FILTER e[y = 1 AND x = 2]", schema=EVENTS.schema)
    assert query.missing_fields == ("y",)
    assert query.notes == ("the events have no y: null",)
    assert query.columns(EVENTS.schema.remove(0)) == []
    assert compiled("SELECT * FROM S WHERE * AS e FILTER e[y = 1]").missing_fields == ()


def test_one_query_over_several_schemas():
    query = compiled("SELECT * FROM S WHERE * AS e FILTER e[x = 2 OR y = 1]")
    assert query.evaluate(EVENTS)["end"].to_pylist() == [1]
    assert query.evaluate(EVENTS.append_column("y", pa.array([None, None, 1, None])))["end"].to_pylist() == [1, 2]
    assert query.evaluate(EVENTS.drop_columns("x"))["end"].to_pylist() == []
    assert query.evaluate(EVENTS)["end"].to_pylist() == [1]


def test_events_of_any_type_need_no_column_of_types():
    text = "SELECT * FROM S WHERE * AS e FILTER e[x > 1]"
    untyped = EVENTS.drop_columns("type")
    for missing in ("error", "null"):
        query = cer_gpu.compile(text, missing_fields=missing)
        assert query.evaluate(untyped)["end"].to_pylist() == query.evaluate(EVENTS)["end"].to_pylist() == [1, 2]
        assert query.columns(untyped.schema) == ["x"]
    query = cer_gpu.compile("SELECT * FROM S WHERE * AS e FILTER e[COUNT(A) OVER 2 EVENTS > 1]")
    with pytest.raises(cer_gpu.QueryTypeError, match="no column 'type'"):
        query.evaluate(untyped)


def test_a_query_that_lacks_nothing_stays_as_it_is():
    syntax = parse(
        "SELECT * FROM S WHERE A AS a ; B AS b FILTER a[NOT (x = 1 AND x > 0)] AND b.x > a.x PARTITION BY [x]"
    )
    assert resolve_query(syntax, PredicateResolver(EVENTS.schema)) is syntax


@pytest.mark.parametrize(
    "queries",
    [
        strategies.full_cases(),
        join_strategies.full_join_cases(),
        rest_strategies.full_cases(),
        rest_strategies.lag_cases(),
        past_strategies.cases("conditions"),
    ],
    ids=["formulas", "filters between events", "absences and more", "LAG", "the past"],
)
@strategies.property_test(0.5)
def test_a_missing_column_is_one_without_values(queries, data):
    case = Case(data, queries, timestamps=True)
    kept = {name for names in case.query.partition_by for name in names} | {strategies.ORDER_COLUMN, ref.TIME}
    kept |= {name for names in case.query.brackets or () for name in names or ()}
    optional = sorted(name for name in ref.attributes(case.query) - kept if "." not in name)
    assume(optional)
    missing = data.draw(st.lists(st.sampled_from(optional), min_size=1, unique=True), label="missing")
    table = case.whole
    nulls = table
    for name in missing:
        place = table.column_names.index(name)
        nulls = nulls.set_column(place, name, pa.nulls(len(table), table.schema.field(name).type))
    note(f"without {missing}")
    options = {"time_column": case.time_column, "time_unit": case.layout.time_unit if case.time_column else None}
    expected = cer_gpu.compile(case.text, **options).evaluate(nulls)
    answer = compiled(case.text, **options).evaluate(table.drop_columns(missing))
    assert sorted(map(repr, answer.to_pylist())) == sorted(map(repr, expected.to_pylist()))
