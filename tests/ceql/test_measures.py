"""Measures of SELECT, HAVING, lone aggregates, LAG and functions: their nodes, and their text."""

import pytest

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.parser import MAX_LAG, parse, parse_aggregate
from cer_gpu.errors import QuerySyntaxError, QueryTooLargeError
from cer_gpu.explain.ceql_text import expression_text, predicate_text

X, Y = s.Name("x"), s.Name("y")


def query(select, having=None):
    clause = "" if having is None else f"HAVING {having}"
    return parse(f"SELECT {select} FROM S WHERE A+ AS x ; B AS y WITHIN 9 EVENTS {clause} CONSUME BY NONE LIMIT 2")


def of(variable, name, event="EACH"):
    return s.Attribute(name, variable=variable, event=event)


def aggregate(function, variable=None, name=None):
    return s.Aggregate(function, variable, None if name is None else of(variable, name))


def filter_(text):
    return parse(f"SELECT * FROM S WHERE A AS x ; B AS y FILTER {text}").formula.filter


@pytest.mark.parametrize(
    ("text", "expression", "name"),
    [
        ("y.a", of(Y, "a"), "y.a"),
        ("y.st.p AS p", of(Y, "`st`.`p`"), "p"),
        ("FIRST(x).a", of(X, "a", "FIRST"), "FIRST(x).a"),
        ("LAST(x).a", of(X, "a", "LAST"), "LAST(x).a"),
        ("COUNT(x)", aggregate("COUNT", X), "COUNT(x)"),
        ("count ( * ) AS n", aggregate("COUNT"), "n"),
        ("SUM(x.a)", aggregate("SUM", X, "a"), "SUM(x.a)"),
        ("max(x.st.p)", aggregate("MAX", X, "`st`.`p`"), "max(x.st.p)"),
        ("LIST(x.a)", aggregate("LIST", X, "a"), "LIST(x.a)"),
        ("round(AVG(x.a), 1)", s.Call("round", (aggregate("AVG", X, "a"), s.Literal(1, "1"))), "round(AVG(x.a), 1)"),
        ("y.a  -\nMIN(x.a)", s.Arithmetic("-", of(Y, "a"), aggregate("MIN", X, "a")), "y.a - MIN(x.a)"),
        ("-y.a AS minus", s.Negative(of(Y, "a")), "minus"),
    ],
)
def test_each_measure_is_an_expression_with_a_name(text, expression, name):
    (measure,) = query(text).select.measures
    assert (measure.expression, measure.name) == (expression, name)
    (again,) = query(expression_text(measure.expression)).select.measures
    assert again.expression == measure.expression


@pytest.mark.parametrize(
    ("select", "having", "items"),
    [
        ("y, COUNT(x)", None, [("y", True), ("x", False)]),
        ("COUNT(x), x[a]", None, [("x", True)]),
        ("y.a + SUM(x.a), FIRST(x).b", None, [("y", False), ("x", False)]),
        ("y.a AS k, COUNT(*)", "LAST(x).b > 1 AND k < 2", [("y", False), ("x", False)]),
        ("y", "COUNT(x) > 1", [("y", True), ("x", False)]),
        ("NONE", "x.a > 1", [("x", False)]),
    ],
)
def test_items_are_the_variables_that_select_and_having_name(select, having, items):
    assert [(item.variable.name, item.written) for item in query(select, having).select.items] == items


def test_count_of_all_alone_keeps_all_events():
    assert query("COUNT(*) AS n", "n > 2").select.items is None
    assert query("*", "COUNT(x) > 2").select.items is None


def test_strategies_and_measures_of_one_name_are_told_apart():
    for text, strategy, n_measures in [
        ("MAX(x.a)", "ALL", 1),
        ("LAST (x).a", "ALL", 1),
        ("MAX MAX(x.a)", "MAX", 1),
        ("LAST x, y.a", "LAST", 1),
        ("MAX x", "MAX", 0),
    ]:
        select = query(text).select
        assert (select.strategy, len(select.measures)) == (strategy, n_measures)


def test_having_reads_measures_by_their_alias_and_by_their_own_text():
    found = query("COUNT(x) AS n, y.a", "n > 2 AND (COUNT(*) < 9 OR NOT AVG(x.st.p) IS NULL) AND y.b IN {1, 2}").having
    assert predicate_text(found) == "n > 2 AND (COUNT(*) < 9 OR AVG(x.st.p) IS NOT NULL) AND y.b IN {1, 2}"
    assert found.operands[0].left == s.Attribute("n")
    assert found.operands[2].operand == of(Y, "b")


@pytest.mark.parametrize(
    ("text", "function", "operand"),
    [
        ("COUNT(*)", "COUNT", None),
        ("sum(x.a)", "SUM", of(X, "a")),
        ("AVG(y.a - FIRST(x).a)", "AVG", s.Arithmetic("-", of(Y, "a"), of(X, "a", "FIRST"))),
        ("MAX(abs(x.st.p))", "MAX", s.Call("abs", (of(X, "`st`.`p`"),))),
    ],
)
def test_a_lone_aggregate_is_its_function_and_operand(text, function, operand):
    assert parse_aggregate(text) == (function, operand)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x.a",
        "COUNT(x)",
        "SUM(x)",
        "SUM(a)",
        "SUM(x.a) + 1",
        "SUM(AVG(x.a))",
        "LIST(x.a)",
        "SUM(x.a, y.a)",
        "SUM(5)",
    ],
)
def test_other_texts_are_no_lone_aggregate(text):
    with pytest.raises(QuerySyntaxError):
        parse_aggregate(text)
    with pytest.raises(QuerySyntaxError, match="got NoneType"):
        parse_aggregate(None)


@pytest.mark.parametrize(
    ("text", "attribute"),
    [
        ("x[LAG(a) = 1]", s.Attribute("a", lag=1)),
        ("x[lag(st.p, 3) = 1]", s.Attribute("`st`.`p`", lag=3)),
        (f"LAG(x.a, {MAX_LAG}) = 1", s.Attribute("a", lag=MAX_LAG)),
    ],
)
def test_lag_is_an_attribute_of_an_event_before(text, attribute):
    found = filter_(text)
    assert isinstance(found, s.VariableFilter)
    assert found.predicate.left == attribute
    assert filter_(f"x[{predicate_text(found.predicate)}]") == found


def test_lag_of_an_event_of_another_variable_is_a_filter_between_events():
    found = filter_("y[LAG(a) = LAG(x.a, 2)]")
    assert predicate_text(found.predicate) == "LAG(y.a) = LAG(x.a, 2)"
    assert filter_(predicate_text(found.predicate)) == found


@pytest.mark.parametrize(
    "text",
    ["ABS(a) = 1", "round(a, -2) = 1", "lower(s) = 'x'", "length(upper(st.s)) > 2", "weekday(ts) + hour(ts) < day(ts)"],
)
def test_functions_stand_in_predicates(text):
    found = filter_(f"x[{text}]")
    assert any(isinstance(node, s.Call) for node in s.walk(found))
    assert filter_(f"x[{predicate_text(found.predicate)}]") == found


def test_deep_measures_are_refused():
    deep = "- " * 150 + "y.a"
    for make in (lambda: query(deep), lambda: query("y", f"{deep} > 1"), lambda: parse_aggregate(f"SUM({deep})")):
        with pytest.raises(QueryTooLargeError):
            make()
