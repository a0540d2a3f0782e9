"""Conjunctive queries: atoms and a head become a formula with filters, as if written with SELECT."""

import pickle
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.checks import check
from cer_gpu.ceql.conjunctive import RESULT_COLUMNS
from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.paths import path_of
from cer_gpu.ceql.traversal import children, fold, walk, with_children
from cer_gpu.resolution.ceql import analyse

SCHEMA = pa.schema(
    {"type": pa.string(), "id": pa.int64(), "loc": pa.string(), "st": pa.struct({"p": pa.int32(), "q": pa.string()})}
)


def atoms(parsed):
    """Return the type and the name of each atom."""
    assigned = [node for node in walk(parsed.formula) if isinstance(node, s.Assign)]
    assert not any(node.formula.defines for node in assigned)
    return [(node.formula.event.name, node.variable.name) for node in assigned]


def same_formula(query, where):
    """Return True if a conjunctive query has the formula of WHERE, but for the variables that types define."""

    def without_variables(node, below):
        return replace(node, defines=False) if isinstance(node, s.EventType) else with_children(node, below)

    written = parse(f"SELECT * WHERE {where}").formula
    return parse(query).formula == fold(written, without_variables, children)


# ---- atoms ---------------------------------------------------------------------------------------------------------


def test_a_conjunctive_query_selects_all_of_its_atoms():
    parsed = parse("Q(x) <- T(id = x), S(id = x, loc = 3) AS s, R()")
    assert (parsed.select, parsed.streams) == (s.Select(), ())
    assert atoms(parsed) == [("T", "T"), ("S", "s"), ("R", "R")]
    assert parse("Q() <- T()").formula == s.Assign(s.EventType(s.Name("T"), defines=False), s.Name("T"))


def test_atoms_are_joined_from_the_left():
    formula = parse("Q() <- A(), B(), C()").formula
    assert isinstance(formula, s.Conjunction)
    assert isinstance(formula.left, s.Conjunction)
    assert formula.right.variable == s.Name("C")


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("Q() <- T(loc = 3) AS t", "T AS t FILTER t[loc = 3]"),
        ("Q() <- T(a == -3.5, b = 'it''s', c = TRUE) AS t", "T AS t FILTER t[a = -3.5 AND b = 'it''s' AND c = TRUE]"),
        ("Q() <- T(a = x, b = x) AS t", "T AS t FILTER t[a = b]"),
        ("Q() <- T(a = x, b = x, c = x) AS t", "T AS t FILTER t[a = b AND a = c]"),
        ("Q() <- T(st.p = x, b = x) AS t", "T AS t FILTER t[st.p = b]"),
        ("Q() <- T(`st`.`p q` = 1) AS t", "T AS t FILTER t[st.`p q` = 1]"),
        ("Q() <- T(a = x) AS t, S(b = x) AS s", "T AS t ALL S AS s FILTER t.a = s.b"),
        (
            "Q() <- T(a = x, b = y) AS t, S(b = y, a = x) AS s, R(c = x, d = 1) AS r",
            "T AS t ALL S AS s ALL (R AS r FILTER r[d = 1]) FILTER t.a = s.a AND t.a = r.c AND t.b = s.b",
        ),
        ("Q() <- T(a = x, b = x) AS t, S(c = x, d = x) AS s", None),
        # an atom called as the column of a struct: paths are of the own event
        (
            "Q() <- T(st.p = 1) AS t, S(st.p = 2) AS st",
            "(T AS t FILTER t[t.st.p = 1]) ALL (S AS st FILTER st[st.st.p = 2])",
        ),
        # a variable may be called as anything
        ("Q() <- T(a = t) AS t, S(b = t) AS s", "T AS t ALL S AS s FILTER t.a = s.b"),
        ("Q() <- T(a = _, b = _) AS t, S(b = _) AS s", "T AS t ALL S AS s"),
        ("q() <- t(a = TRUE) as `AS`", "t AS `AS` FILTER `AS`[a = TRUE]"),
    ],
)  # fmt: skip
def test_arguments_become_filters(query, where):
    if where is None:
        (between,) = s.relations(parse(query).formula)
        assert between.predicate == s.Comparison(
            "=", s.Attribute("a", variable=s.Name("t")), s.Attribute("c", variable=s.Name("s"))
        )
    else:
        assert same_formula(query, where)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("T(), S(), R()", "T S R"),
        ("T(), T(), T()", "T T_2 T_3"),
        ("T(), T() AS u, T()", "T u T_2"),
        ("T() AS u, T(), T()", "u T T_2"),
        ("T(), T(), T() AS T_2", "T T_3 T_2"),
        ("T(), T(), T_2()", "T T_3 T_2"),
        ("T_2(), T(), T()", "T_2 T T_3"),
        ("T(), S() AS T, T()", "T_2 T T_3"),
        ("T() AS T, T()", "T T_2"),
        ("`a b`(), `a b`()", "a b,a b_2"),
    ],
)
def test_an_atom_is_called_by_as_or_by_its_type(body, names):
    expected = names.split(",") if "," in names else names.split()
    assert [name for _, name in atoms(parse(f"Q() <- {body}"))] == expected


# ---- the head --------------------------------------------------------------------------------------------------------


def test_the_head_has_the_values_of_the_first_atoms():
    parsed = parse("Q(y, x, z) <- T(id = x) AS t, S(id = x, st.p = y), R(loc = z, id = z)")
    assert parsed.head == (
        s.HeadVariable("y", s.Name("S"), path_of(["st", "p"])),
        s.HeadVariable("x", s.Name("t"), "id"),
        s.HeadVariable("z", s.Name("R"), "loc"),
    )


def test_a_select_query_has_no_head_and_an_empty_head_is_one():
    assert parse("SELECT * WHERE A").head is None
    assert parse("Q() <- A(id = x)").head == ()


def test_a_head_may_leave_variables_out():
    whole = parse("Q(x, y) <- T(id = x, loc = y), S(id = x)")
    assert parse("Q(y) <- T(id = x, loc = y), S(id = x)").formula == whole.formula
    assert parse("Answers(y) <- T(id = x, loc = y), S(id = x)").formula == whole.formula


@pytest.mark.parametrize("name", RESULT_COLUMNS)
def test_a_head_variable_is_not_called_as_a_column_of_the_results(name):
    with pytest.raises(cer_gpu.QueryError, match="is a column of the results") as caught:
        parse(f"Q({name}) <- T(id = {name})")
    assert caught.value.hint == "call it id_of_T, for example"
    parse(f"Q() <- T(id = {name})")  # in the body it may be


def test_a_head_variable_is_not_called_as_a_key():
    with pytest.raises(cer_gpu.QueryError, match="by PARTITION BY"):
        parse("Q(k) <- T(id = k) PARTITION BY [k]")
    assert parse("Q(k) <- T(id = k) PARTITION BY [l, k]").head
    with pytest.raises(cer_gpu.QueryError, match="by PARTITION BY"):
        parse("Q(`st.p`) <- T(id = `st.p`) PARTITION BY [st.p]")


# ---- clauses, names, positions ---------------------------------------------------------------------------------------


def test_clauses_follow_the_atoms():
    text = "Q(x) <- T(id = x) PARTITION BY [k], [l, m] WITHIN 90 SECONDS LIMIT 4 ;"
    parsed = parse(text)
    assert parsed.text == text
    assert parsed.partition == ((s.Name("k"),), (s.Name("l"), s.Name("m")))
    assert parsed.within == s.Within("time", Fraction(90))
    assert (parsed.limit, parsed.consume) == (4, "NONE")


def test_comments_and_white_space_stand_between_any_tokens():
    text = "Q ( x , y ) <- T ( st . p = x , c = - 3 , d = 'a' ) AS t , S ( st . p = x , e = y ) WITHIN 3 EVENTS"
    for between in "\n\t", " /* ) <- */ ", " -- <- (\n":
        assert parse(text.replace(" ", between)) == parse(text)
    assert parse(text.replace(" ", "").replace("AS", " AS ").replace("WITHIN3", " WITHIN 3 ")) == parse(text)


def test_spans_point_at_arguments():
    text = "Q(y) <- T(id = x, loc = 3) AS t, S(st.p = x, q = y)"
    parsed = parse(text)
    (test,) = s.variable_filters(parsed.formula)
    (between,) = s.relations(parsed.formula)
    spanned = [
        text[slice(*node.span)] for node in (test.predicate, between.predicate, *s.attributes(between.predicate))
    ]
    assert spanned == ["loc = 3", "st.p = x", "id", "st.p"]
    assert text[slice(*parsed.head[0].span)] == "y"
    assert text[slice(*parsed.formula.span)] == text[8:]
    assert [text[slice(*name.span)] for name in parsed.unread] == ["q"]


def test_attributes_that_no_filter_reads_are_known():
    parsed = parse("Q(x) <- T(a = x, b = y, c = y, d = _, e = 3), U(f = z, g = x)")
    assert [name.name for name in parsed.unread] == ["d", "f"]


def test_nodes_can_be_pickled():
    parsed = parse("Q(x) <- T(x), S(x, 3)", {"T": ["id"], "S": ["id", "loc"]})
    assert pickle.loads(pickle.dumps(parsed)) == parsed


RELATIONS = {"T": ["id"], "S": ("id", "loc"), "R": ["st.p"]}


@pytest.mark.parametrize(
    ("by_position", "by_name"),
    [
        ("Q(x, y) <- T(x), S(x, y)", "Q(x, y) <- T(id = x), S(id = x, loc = y)"),
        ("Q(x) <- T(x), S(x, x), S(-1, 'a')", "Q(x) <- T(id = x), S(id = x, loc = x), S(id = -1, loc = 'a')"),
        ("Q(x) <- S(x, _) AS s, T(id = x), S()", "Q(x) <- S(id = x, loc = _) AS s, T(id = x), S()"),
        ("Q(x) <- R(x), U(id = x)", "Q(x) <- R(`st.p` = x), U(id = x)"),
    ],
)
def test_arguments_by_position_are_those_of_relations(by_position, by_name):
    first, second = parse(by_position, RELATIONS), parse(by_name)
    assert (first.formula, first.head) == (second.formula, second.head)
    assert parse(by_position, dict(first.relations)) == first
    assert {name for name, _ in first.relations} <= RELATIONS.keys()


def test_relations_are_kept_where_arguments_are_by_position():
    assert parse("Q(x) <- T(x), S(id = x)", RELATIONS).relations == (("T", ("id",)),)
    assert parse("Q(x) <- T(id = x)", RELATIONS).relations == ()
    assert parse("SELECT * WHERE T", RELATIONS).relations == ()


@pytest.mark.parametrize(
    ("query", "marked", "message", "hint"),
    [
        ("Q(x) <- T(id = x), Sx(x, 3)", "x", "by position, and relations do not name its columns", "did you mean 'S'?"),
        ("Q(x) <- Unlike(x)", "x", "by position, and relations do not name", "name them, Unlike(attribute = ...), or"),
        ("Q(x) <- S(x)", "x", "'S' has 2 columns, and 1 argument here", "relations name id, loc"),
        ("Q(x) <- S(x, 3, y)", "x, 3, y", "'S' has 2 columns, and 3 arguments here", "relations name id, loc"),
        ("Q(x) <- T(x, loc = 3)", "x", "by name and by position", "name the attributes of all arguments"),
    ],
)
def test_arguments_by_position_that_do_not_fit_are_refused(query, marked, message, hint):
    with pytest.raises(cer_gpu.QueryError) as caught:
        parse(query, RELATIONS)
    error = caught.value
    assert message in error.message
    assert error.hint.startswith(hint)
    assert query[error.start : error.end] == marked


@pytest.mark.parametrize(
    "relations", [7, ["T"], {"T": "id"}, {"T": 3}, {3: ["id"]}, {"T": ["id", 3]}, {"T": ["a", "a"]}]
)
def test_relations_map_types_to_columns(relations):
    with pytest.raises(cer_gpu.OptionError, match="relations"):
        cer_gpu.compile("Q(x) <- T(id = x)", relations=relations)


# ---- checks ----------------------------------------------------------------------------------------------------------


def test_atoms_of_one_type_may_be_one_event_and_a_note_says_so():
    found = check(parse("Q(x) <- T(id = x), T(loc = x), S(id = x)"), has_time_column=False)
    assert found.errors == []
    assert found.notes == ["two atoms of type 'T' can be the same event"]


def test_all_errors_against_a_schema_are_reported_at_once():
    _, errors = analyse(
        "Q(x) <- T(idd = x, loc = 3), S(id = x, st.r = 1) PARTITION BY [lok] WITHIN 1 HOUR", schema=SCHEMA
    )
    assert [error.message for error in errors] == [
        "the events have no column 'idd'",
        "cannot compare column 'loc' (string) with the number 3",
        "the struct 'st' has no field 'r'",
        "the events have no column 'lok'",
        "a length in DAYS, HOURS, MINUTES or SECONDS needs a time column",
    ]


def test_a_text_that_begins_otherwise_is_neither_kind_of_query():
    with pytest.raises(cer_gpu.QuerySyntaxError, match="expected SELECT, found 'WITH'"):
        parse("WITH x AS SELECT")
    with pytest.raises(cer_gpu.QuerySyntaxError, match="expected SELECT, found 'Q'"):
        parse("Q")
