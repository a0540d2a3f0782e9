"""Well-formed, safe, bounded: the examples of the papers (CEL, 5.1; RMA, section 3), and our own operators."""

import pytest

from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.properties import why_not_properties


@pytest.mark.parametrize(
    ("formula", "holds"),
    [
        ("T AS x", "well-formed safe bounded"),
        ("T AS x ; H AS y FILTER x[a = 1] AND y[a = 1]", "well-formed safe bounded"),
        # CEL, 5.1: x would be two events
        ("T AS x ; T AS x", "well-formed"),
        ("T AS x ; T AS x FILTER x[a = 1]", "well-formed"),
        ("T AS x OR T AS x", "well-formed safe bounded"),
        ("(T AS x)+ ; T AS x", "well-formed safe"),
        # a filter on a variable that may hold no event, or several by iteration
        ("T AS x OR H AS y FILTER x[a = 1]", "safe"),
        ("(T AS x)+ FILTER x[a = 1]", "safe"),
        ("(T AS x FILTER x[a = 1])+ ; H", "well-formed safe bounded"),
        # a variable that one branch of OR defines
        ("(T AS x OR H) ; B", "well-formed safe"),
        # a type is a variable if a filter names it
        ("A ; A", "well-formed safe bounded"),
        ("A ; A FILTER A[a = 1]", "well-formed"),
        ("A ; B FILTER A[a = 1]", "well-formed safe bounded"),
        # AS of several events, or of none
        ("(A ; B) AS x FILTER x[a = 1]", "safe"),
        ("(A OR B) AS x FILTER x[a = 1]", "well-formed safe bounded"),
        ("NOT(A) AS x ; B FILTER x[a = 1]", "safe"),
        ("NOT(A FILTER A[a = 1]) : B", "well-formed safe bounded"),
        # filters between variables: RMA, expressions 1 and 2, the nested one, and that of section 5
        ("(T AS x) ; (H AS y) FILTER x.id = y.id", "well-formed safe bounded"),
        ("(T AS x FILTER x.id = y.id)+ ; (H AS y)", "well-formed safe"),
        (
            "((T AS x1 ; T AS x2 FILTER x1.value = x2.value) ; (H AS x3 ; H AS x4 FILTER x3.value = x4.value)+)+",
            "well-formed safe bounded",
        ),
        ("(T AS x) ; (H AS y FILTER y.id = x.id)+", "well-formed safe"),
        # a type that a filter between variables names is a variable
        ("T ; H ; T FILTER H.id = T.id", "well-formed"),
        # of a variable that holds several events, or of one branch of OR
        ("T+ AS x ; H AS y FILTER y.id = x.id", "safe"),
        ("(T AS x OR B) ; H AS y FILTER y.id = x.id", "safe"),
        ("T AS x ; (H AS y FILTER y.id > FIRST(x).id)", "well-formed safe"),
        # ALL, which the papers do not have, as a sequence
        ("T AS x ALL H AS y FILTER x.id = y.id", "well-formed safe bounded"),
        ("T AS x ALL T AS x", "well-formed"),
        ("(T AS x OR H) ALL B", "well-formed safe"),
        ("(A ALL B) AS x FILTER x[a = 1]", "safe"),
        ("T AS x ; (H AS y FILTER y.id = x.id ALL B)", "well-formed safe"),
    ],
)
def test_formulas_have_the_properties_of_the_papers(formula, holds):
    against = why_not_properties(parse(f"SELECT * FROM S WHERE {formula}").formula)
    assert [name for name, reason in against.items() if reason is None] == holds.split()


def test_reasons_name_the_operator():
    against = why_not_properties(parse("SELECT * FROM S WHERE A AS x ALL (A AS x FILTER x[a = 1])").formula)
    assert against["safe"] == "'x' is defined on both sides of ALL"
    assert against["bounded"] == "'x' is used on both sides of ALL"


def test_a_conjunctive_query_has_all_three_properties():
    parsed = parse("Q(x) <- T(a = x, b = x), T(a = x), S(a = x, b = y), T_2(b = y, c = 3)")
    assert set(why_not_properties(parsed.formula).values()) == {None}


def test_reasons_name_the_variable():
    against = why_not_properties(parse("SELECT * FROM S WHERE (A AS x ; A AS x)+ FILTER x[a = 1]").formula)
    assert against == {
        "well-formed": "a filter names 'x', which need not be exactly one event there",
        "safe": "'x' is defined on both sides of ;",
        "bounded": "a filter names 'x', which need not be exactly one event there",
    }
