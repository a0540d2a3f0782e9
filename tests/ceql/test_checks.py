"""Checks before any schema is known: names, clauses that contradict themselves, notes."""

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.checks import Findings, check
from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.variables import defined_names, variables
from cer_gpu.resolution.ceql import analyse


def found(text, **options):
    return check(parse(text), **{"has_time_column": True, **options})


def messages(text, **options):
    return [error.message for error in found(text, **options).errors]


def formula(text):
    return parse(f"SELECT * FROM S WHERE {text}").formula


# ---- variables of a formula --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("A", {"A": True}),
        ("A AS x", {"A": True, "x": True}),
        ("NOT(A)", {}),
        ("NOT(A AS y FILTER y[a=1])", {}),
        ("NOT(A) AS x", {"x": False}),
        ("A ; B", {"A": True, "B": True}),
        ("A OR B", {"A": False, "B": False}),
        ("A AS x OR B AS x", {"A": False, "B": False, "x": True}),
        ("(A AS x OR B) ; A", {"A": True, "B": False, "x": False}),
        ("(A OR B) AS x +", {"A": False, "B": False, "x": True}),
        ("(A OR B) AS x", {"A": False, "B": False, "x": True}),
        ("(A OR NOT(B)) AS x", {"A": False, "x": False}),
        ("(NOT(A) ; B) AS x", {"B": True, "x": True}),
        ("A AS x ALL (B OR C)", {"A": True, "x": True, "B": False, "C": False}),
        ("(NOT(A) ALL B) AS x", {"B": True, "x": True}),
        ("A FILTER A[a=1]", {"A": True}),
    ],
)
def test_variables_are_always_bound_unless_or_or_not_spares_them(text, bound):
    always = variables(formula(text)).always
    assert {name: name in always for name in defined_names(formula(text))} == bound


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        ("A AS x ; B AS y", set()),
        ("A AS x OR B AS x", set()),
        ("A + ; B", {"A"}),
        ("A :+ AS x", {"A", "x"}),
        ("(A AS x)+", {"A", "x"}),
        ("A AS x ; B AS x", {"x"}),
        ("A ; A", {"A"}),
        ("(A ; B) AS x", {"x"}),
        ("A ALL A", {"A"}),
        ("(A ALL B) AS x", {"x"}),
        ("(A OR B) AS x", set()),
        ("(A OR (B : C)) AS x", {"x"}),
        ("(A FILTER A[a=1]) AS x", set()),
    ],
)
def test_variables_that_can_hold_several_events(text, repeated):
    assert variables(formula(text)).several == repeated


@pytest.mark.parametrize(
    ("text", "one"),
    [("A", True), ("NOT(A)", True), ("(A OR B) AS x FILTER x[a=1]", True), ("A ; B", False), ("A+", False)],
)
def test_one_event_is_told_from_several(text, one):
    assert variables(formula(text)).one_event is one


# ---- names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    [
        "A AS x FILTER x[a=1]",
        "A FILTER A[a=1]",
        "(A AS x OR B) FILTER x[a=1]",
        "(A AS x)+ FILTER x[a=1]",
        "A AS x ; B FILTER x[a=1] ; C FILTER x[b=2]",
        "NOT(A FILTER A[a=1])",
        "NOT(A AS x FILTER x[a=1] AND A[b=2])",
        "S>A AS x FILTER S>x[a=1]",
    ],
)
def test_filters_may_name_variables_of_the_filtered_formula(where):
    assert messages(f"SELECT * FROM S WHERE {where}") == []


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("A FILTER B[a=1]", "B"),
        ("A AS x FILTER y[a=1]", "y"),
        ("A AS x FILTER X[a=1]", "X"),
        ("NOT(A) FILTER A[a=1]", "A"),
        ("A ; B FILTER A.a > x.a", "x"),
        ("A ; B FILTER A.a > x.a AND A.b > x.b", "x"),
        ("A+ FILTER A.a > FIRST(x).a", "x"),
        ("A+ FILTER A[a > PREV(x).a]", "x"),
        ("NOT(A FILTER A.a > x.a) ; B", "x"),
        ("A FILTER A[a=1] AND (A[b=1] OR z[c=1])", "z"),
    ],
)
def test_unknown_variables_in_filters_are_refused(where, name):
    wrong = set(messages(f"SELECT * FROM S WHERE {where}"))
    assert wrong == {f"FILTER names '{name}', which the formula does not define"}


AFTER = "which stands after the filtered formula"
AROUND = "which the AS around it defines"
BRANCH = "which another branch of OR defines"
ONE = "and within NOT(...) a filter reads the one event that it stands for"


@pytest.mark.parametrize(
    ("where", "name", "why"),
    [
        ("(A FILTER B[a=1]) ; B", "B", AFTER),
        ("(A FILTER A.a > B.a) ; B", "B", AFTER),
        ("(A FILTER A[a > B.a])+ : (C ; B)", "B", AFTER),
        ("(A FILTER x[a=1]) AS x", "x", AROUND),
        ("(A ; B FILTER A.a > x.a)+ AS x", "x", AROUND),
        ("A AS x OR (B FILTER B.a > x.a)", "x", BRANCH),
        ("(B FILTER B.a > FIRST(x).a) OR (A+ AS x ; C)", "x", BRANCH),
        ("NOT(A FILTER x[a=1]) AS x", "x", ONE),
        ("A AS x ; NOT(B FILTER x[a=1])", "x", ONE),
        ("A AS x ; NOT(B FILTER B.a = x.a)", "x", ONE),
    ],
)
def test_filters_are_told_why_they_do_not_see_a_variable(where, name, why):
    assert messages(f"SELECT * FROM S WHERE {where}") == [f"FILTER names '{name}', {why}"]


@pytest.mark.parametrize(
    "where",
    [
        "A ; (B FILTER A[a=1])",
        "A ; B FILTER B.a > A.a",
        "A AS x ; (B AS y ; C AS z FILTER z.k = y.k + x.k)+",
        "A+ AS x FILTER x[a > PREV(x).a AND a < FIRST(x).b]",
        "A AS x ; (B OR (C FILTER C.a > x.a))",
    ],
)
def test_filters_may_name_variables_that_stand_before_their_formula(where):
    assert messages(f"SELECT * FROM S WHERE {where}") == []


def test_hints_name_the_variables_that_a_filter_sees():
    (error,) = found("SELECT * FROM S WHERE A AS first ; B ; (C AS z FILTER z.a > qqqqq.a) ; D").errors
    assert error.hint == "variables here: A, first, B, C, z"
    (error,) = found("SELECT * FROM S WHERE A AS first ; B ; (C AS z FILTER z.a > frist.a) ; D").errors
    assert error.hint == "did you mean 'first'?"


def test_patterns_and_streams_of_filters_between_events_are_checked():
    where = "A AS x ; B AS y FILTER y[a = x.a OR b LIKE '(']"
    assert messages(f"SELECT * FROM S WHERE {where}") == ["not a regular expression (RE2): missing ): ("]
    assert messages("SELECT * FROM S WHERE A AS x ; B AS y FILTER T>y[a = x.a AND b = x.b]") == [
        "stream 'T' is not in FROM"
    ]


def test_the_previous_event_of_one_event_is_refused_within_not():
    assert messages("SELECT * FROM S WHERE NOT(A FILTER A.a > PREV(A).a)") == [
        "PREV(A) is no event: NOT(...) stands for one event"
    ]


def test_unknown_variables_in_select_are_refused():
    assert messages("SELECT x, z, A FROM S WHERE A AS x ; NOT(B)") == [
        "SELECT names 'z', which the formula does not define"
    ]
    assert messages("SELECT B FROM S WHERE A ; NOT(B)") == ["SELECT names 'B', which the formula does not define"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT T>A FROM S WHERE A",
        "SELECT * FROM S WHERE T>A",
        "SELECT * FROM S WHERE NOT(T>A)",
        "SELECT * FROM S WHERE A FILTER T>A[a=1]",
        "SELECT * FROM S WHERE NOT(A FILTER T>A[a=1])",
    ],
)
def test_streams_that_are_not_in_from_are_refused(text):
    assert messages(text) == ["stream 'T' is not in FROM"]
    assert messages(text.replace("FROM S", "FROM T")) == []


def test_the_stream_is_the_type_without_a_type_column():
    assert messages("SELECT * FROM S WHERE S ; NOT(S)", has_type_column=False) == []
    assert messages("SELECT * FROM S WHERE S ; NOT(A)", has_type_column=False) == [
        "no events of type 'A': with type_column=None the stream's name is the only type"
    ]
    assert messages("SELECT * WHERE S", has_type_column=False) == [
        "type_column=None makes the stream's name the type of its events, and the query has no FROM"
    ]


@pytest.mark.parametrize("pattern", ["(", "[a-", "*", "(?<=a)b", r"\1", "a{2,1}"])
def test_wrong_regular_expressions_are_refused(pattern):
    texts = [f"A FILTER A[a NOT LIKE '{pattern}' OR b = 1]", f"NOT(A FILTER A[a LIKE '{pattern}'])"]
    for text in texts:
        (message,) = messages(f"SELECT * FROM S WHERE {text}")
        assert message.startswith("not a regular expression (RE2): ")


# ---- clauses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("SELECT * FROM S, T, S WHERE A", "FROM names stream 'S' twice"),
        ("SELECT * FROM S, T WHERE U>A", "stream 'U' is not in FROM"),
        ("SELECT * FROM S WHERE A PARTITION BY [a, b], [a]", "PARTITION BY has two keys named 'a'"),
    ],
)
def test_clauses_that_contradict_themselves_are_refused(text, wrong):
    (message,) = messages(text)
    assert message == wrong


def test_without_a_type_column_a_stream_has_one_type():
    text = "SELECT * FROM S, T WHERE S>T"
    (error,) = analyse(text, type_column=None)[1]
    assert error.message.startswith("no events of type 'T' in stream 'S'")


def test_the_defaults_may_be_written_out():
    compiled = cer_gpu.compile("SELECT ALL * FROM S WHERE A CONSUME BY NONE")
    assert compiled.evaluate(pa.table({"type": ["A"]})).num_rows == 1


@pytest.mark.parametrize("unit", ["HOURS", "MINUTES", "SECONDS"])
def test_windows_of_time_need_a_time_column(unit):
    text = f"SELECT * FROM S WHERE A WITHIN 5 {unit}"
    assert messages(text, has_time_column=True) == []
    assert messages(text, has_time_column=False) == ["a length in DAYS, HOURS, MINUTES or SECONDS needs a time column"]


@pytest.mark.parametrize("within", ["5 EVENTS", "5 [a]"])
def test_windows_of_events_and_attributes_need_no_time_column(within):
    assert messages(f"SELECT * FROM S WHERE A WITHIN {within}", has_time_column=False) == []


# queries that differ in one part differ in their results
STREAM = pa.table(
    {
        "type": ["A", "B", "A", "C", "B", "A", "B", "C"],
        "a": [1, 2, 3, 4, 5, 6, 7, None],
        "b": ["u", "v", "uv", None, "w", "vu", "u", "v"],
        "ts": pa.array([0, 1, 1, 2, 3, 5, 8, 13], pa.timestamp("s")),
    }
)
BASE = "SELECT * FROM S WHERE A AS x ; B AS y"


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (BASE, "SELECT x FROM S WHERE A AS x ; B AS y"),
        (BASE, "SELECT NONE FROM S WHERE A AS x ; B AS y"),
        (BASE, "SELECT * FROM S WHERE A AS x : B AS y"),
        (BASE, "SELECT * FROM S WHERE A AS x OR B AS y"),
        (BASE, "SELECT * FROM S WHERE A + AS x ; B AS y"),
        ("SELECT * FROM S WHERE A + ; B", "SELECT * FROM S WHERE (A ; B) +"),
        ("SELECT * FROM S WHERE A + ; B", "SELECT * FROM S WHERE A :+ ; B"),
        (BASE, "SELECT * FROM S WHERE NOT(A) AS x ; B AS y"),
        ("SELECT * FROM S WHERE NOT(A) ; B", "SELECT * FROM S WHERE NOT(A FILTER A[a > 1]) ; B"),
        (BASE, f"{BASE} FILTER x[a > 1]"),
        (f"{BASE} FILTER x[a > 1]", f"{BASE} FILTER y[a > 2]"),
        (f"{BASE} FILTER x[a > 1] AND y[a > 5]", f"{BASE} FILTER x[a > 1] OR y[a > 5]"),
        (f"{BASE} FILTER x[NOT a > 1]", f"{BASE} FILTER x[a > 1]"),
        (f"{BASE} FILTER x[b LIKE 'u']", f"{BASE} FILTER x[b LIKE '^u$']"),
        (f"{BASE} FILTER x[b IN {{'u'}}]", f"{BASE} FILTER x[b NOT IN {{'u'}}]"),
        (f"{BASE} FILTER x[a IN {{2..4}}]", f"{BASE} FILTER x[a IN {{2..}}]"),
        (f"{BASE} FILTER x[a IN {{..4}}]", f"{BASE} FILTER x[a IN RANGE(3, 4)]"),
        (BASE, f"{BASE} WITHIN 3 EVENTS"),
        (f"{BASE} WITHIN 3 EVENTS", f"{BASE} WITHIN 3 [ts]"),
        (f"{BASE} WITHIN 3 SECONDS", f"{BASE} WITHIN 1 MINUTE 3 SECONDS"),
        (f"{BASE} WITHIN 1 SECONDS", f"{BASE} WITHIN 1 HOURS 1 SECONDS"),
        (BASE, f"{BASE} LIMIT 1"),
    ],
)
def test_each_part_of_a_query_has_an_effect(text, other):
    results = [cer_gpu.compile(q, time_column="ts").evaluate(STREAM).to_pylist() for q in (text, other)]
    assert results[0] != results[1]


# ---- notes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (
            "SELECT * WHERE A AS x ALL (B ; A)",
            "an event of type 'A' can stand on both sides of ALL at once: it asks for no second one",
        ),
        (
            "SELECT * WHERE B ALL *",
            "an event of type 'B' can stand on both sides of ALL at once: it asks for no second one",
        ),
        (
            "SELECT * WHERE * ALL * AS x",
            "an event of any type can stand on both sides of ALL at once: it asks for no second one",
        ),
        (
            "SELECT * FROM S, T WHERE S>* ALL T>* ALL T>A",
            "an event of type 'T>A' can stand on both sides of ALL at once: it asks for no second one",
        ),
        (
            "SELECT * FROM S, T WHERE S>* ALL * AS x",
            "an event of any type of stream 'S' can stand on both sides of ALL at once: it asks for no second one",
        ),
        (
            "SELECT * FROM S, T WHERE S>A ALL S>A AS x ALL T>A",
            "an event of type 'S>A' can stand on both sides of ALL at once: it asks for no second one",
        ),
        (
            "SELECT * FROM S WHERE (A AS x OR B) FILTER x[a=1]",
            "variable 'x' is not bound in every match (another branch of OR); a filter on it holds where it is empty",
        ),
        (
            "SELECT x FROM S WHERE A AS x OR B",
            "variable 'x' is not bound in every match (another branch of OR); it keeps nothing where it is empty",
        ),
        (
            "SELECT * FROM S WHERE A + AS x FILTER x[a=1]",
            "variable 'x' can hold several events; a filter on it must hold for each of them",
        ),
        (
            "SELECT x FROM S WHERE (A OR NOT(B)) AS x",
            "variable 'x' is not bound in every match (another branch of OR); it keeps nothing where it is empty",
        ),
        (
            "SELECT * FROM S WHERE NOT(A) AS x",
            "variable 'x' never holds an event: NOT(...) holds none",
        ),
        (
            "SELECT * FROM S WHERE (A AS x OR C) ; B FILTER B.a > x.a",
            "variable 'x' is not bound in every match (another branch of OR); a filter on it holds where it is empty",
        ),
        (
            "SELECT * FROM S WHERE A+ AS x ; B FILTER B.a > x.a",
            "variable 'x' can hold several events; a filter on it must hold for each of them",
        ),
        (
            "SELECT * FROM S WHERE A AS x ; B FILTER x.a > PREV(x).a",
            "PREV(x) is no event, as 'x' holds one event here: the filter always holds",
        ),
        (
            "SELECT x FROM S WHERE A AS x? ; B",
            "variable 'x' is not bound in every match (none of ? or *); it keeps nothing where it is empty",
        ),
        (
            "SELECT * FROM S WHERE (A AS x OR C) ; B* FILTER x[a=1]",
            "variable 'x' is not bound in every match (another branch of OR, or none of ? or *); "
            "a filter on it holds where it is empty",
        ),
        (
            "SELECT * FROM S WHERE A AS x? ; B ; !(C FILTER C.a = x.a) ; D",
            "variable 'x' is not bound in every match (none of ? or *); a filter on it holds where it is empty",
        ),
        (
            "SELECT * FROM S WHERE A ; NOT(B FILTER B[a=1]) ; C",
            "NOT(B) is one event, that is not B; that no B lies between is ; !B ;",
        ),
        (
            "SELECT * FROM S WHERE A ; B PARTITION BY [host, user], [k]",
            "PARTITION BY [host, user] is one key, the first of these that an event has; several: [host], [user]",
        ),
        (
            "SELECT * FROM S WHERE A ; B THEN WITHIN 3 EVENTS",
            "THEN WITHIN is WITHIN where no match beats another, as with ALL",
        ),
    ],
)
def test_variables_that_hold_none_or_several_events_are_noted(text, note):
    assert found(text).notes == [note]


def test_the_previous_event_within_each_iteration_is_noted():
    assert "PREV(x) is no event" in found("SELECT * FROM S WHERE (A AS x FILTER x.a > PREV(x).a)+").notes[-1]


@pytest.mark.parametrize("where", ["A+ AS x FILTER FIRST(x).a < LAST(x).a", "A ; B FILTER B.a > A.a"])
def test_filters_between_single_events_have_no_notes(where):
    assert found(f"SELECT * FROM S WHERE {where}").notes == []


@pytest.mark.parametrize(
    "where",
    [
        "A ; !B ; C",
        "A -> B{2,3}",
        "A AS a ; !(B AS b FILTER b.a = a.a) ; C",
        "A+ AS a ; !(B AS b FILTER b.a = LAST(a).a AND b[c > 1]) ; C",
        "A AS a -> (B AS b FILTER b.a = a.a)",
        "A -> B+",
        "A : NOT(B) : C",
        "A -> NOT(B)",
        "(A ; !B) AS x",
        "A ; !B ; !(C FILTER C.a = A.a) FILTER A[a = 1]",
        "A ; (B? ; C)",
        "A AS a -> (B AS b OR C AS b)",
    ],
)
def test_next_events_and_absences_have_no_notes(where):
    assert found(f"SELECT * FROM S WHERE {where} WITHIN 5 EVENTS") == Findings([], [])


def test_a_note_is_given_once():
    assert len(cer_gpu.compile("SELECT * FROM S WHERE A+ FILTER A[a=1] AND A[b=2] OR A[c=3]").notes) == 1


@pytest.mark.parametrize(
    "text",
    [
        BASE,
        "SELECT x FROM S WHERE (A OR B) AS x FILTER x[a = 1]",
        f"{BASE} FILTER x[a > 1] AND y[a > 5] WITHIN 5 EVENTS LIMIT 1",
    ],
)
def test_most_queries_have_no_notes(text):
    assert cer_gpu.compile(text).notes == ()


def test_leaves_and_attributes_are_listed_from_left_to_right():
    tested = formula("A FILTER A[a + -b > c AND NOT (d LIKE 'x' OR e IN {f, 1})]").filter.predicate
    assert [a.name for a in s.attributes(tested)] == list("abcdef")
    assert [type(leaf) for leaf in s.leaves(tested)] == [s.Comparison, s.Like, s.Membership]


@pytest.mark.parametrize(
    ("strategy", "outcome"),
    [
        ("NEXT", "where its choice is longer than 30 MINUTES, that end has no match"),
        ("LAST", "where its choice is longer than 30 MINUTES, that end has no match"),
        ("MAX", "where one that it keeps is longer than 30 MINUTES, neither that one is reported nor a part of it"),
    ],
)
def test_strategies_that_choose_before_the_window_are_noted(strategy, outcome):
    text = f"SELECT {strategy} * FROM S WHERE A ; B THEN WITHIN 30\n MINUTES"
    notes = cer_gpu.compile(text, time_column="ts").notes
    assert notes == (f"{strategy} chooses before WITHIN is looked at: {outcome}",)
    assert cer_gpu.compile(f"SELECT {strategy} * FROM S WHERE A ; B").notes == ()
    assert cer_gpu.compile(f"SELECT {strategy} * FROM S WHERE A ; B WITHIN 3 EVENTS").notes == ()


@pytest.mark.parametrize("strategy", ["ALL", "ANY", "STRICT"])
def test_strategies_that_choose_within_the_window_are_not_noted(strategy):
    assert cer_gpu.compile(f"SELECT {strategy} * FROM S WHERE A ; B WITHIN 3 EVENTS").notes == ()


@pytest.mark.parametrize(
    ("pattern", "regular"),
    [("U%", "^U"), ("%U", "U$"), ("%U%", "U"), ("a%b", "^a.*b$"), ("%", "")],
)
def test_a_pattern_of_sql_is_noted(pattern, regular):
    notes = cer_gpu.compile(f"SELECT * FROM S WHERE A FILTER A[name LIKE '{pattern}']").notes
    assert notes == (f"LIKE searches for a regular expression (RE2), in which % means itself: write {regular!r}",)


@pytest.mark.parametrize("pattern", ["^U", "100%$", "U", "a.%"])
def test_a_regular_expression_is_not_noted(pattern):
    assert cer_gpu.compile(f"SELECT * FROM S WHERE A FILTER A[name LIKE '{pattern}']").notes == ()
