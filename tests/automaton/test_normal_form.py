"""LP-normal form: filters at their atoms, disjunctions merged where that is equivalent, copies bounded."""

import pytest

from cer_gpu.automaton import normal_form as nf
from cer_gpu.automaton.normal_form import Atom, Either, Guard, Repeat, Then, normal_form
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.parser import parse
from cer_gpu.errors import QueryTooLargeError


def formula(text):
    return parse(f"SELECT * FROM S WHERE {text}").formula


def normal(text, **options):
    return normal_form(formula(text), **options)


def predicate(text):
    return formula(f"A FILTER A[{text}]").filter.predicate


def atom(type_, *labels, where=None, negated=False):
    tested = predicate(where) if where else None
    return Atom(Guard(type_, tested), frozenset(labels), negated)


def atoms(node):
    match node:
        case Atom():
            return [node]
        case Repeat():
            return atoms(node.body)
        case _:
            return atoms(node.left) + atoms(node.right)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A", atom("A", "A")),
        ("A AS x AS y", atom("A", "A", "x", "y")),
        ("A ; B", Then(atom("A", "A"), atom("B", "B"), False)),
        ("A : B", Then(atom("A", "A"), atom("B", "B"), True)),
        ("A OR B", Either(atom("A", "A"), atom("B", "B"))),
        ("A +", Repeat(atom("A", "A"), False)),
        ("A :+ AS x", Repeat(atom("A", "A", "x"), True)),
        ("(A ; B) AS x", Then(atom("A", "A", "x"), atom("B", "B", "x"), False)),
        ("NOT(A)", atom("A", negated=True)),
        ("NOT(A) AS x", atom("A", negated=True)),
        ("NOT(A FILTER A[a=1])", atom("A", where="a=1", negated=True)),
        ("NOT(A AS x FILTER x[a=1] OR A[b=2] AND x[c=3])", atom("A", where="a=1 OR b=2 AND c=3", negated=True)),
    ],
)
def test_formulas_without_filters_keep_their_shape(text, expected):
    assert normal(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A FILTER A[a=1]", atom("A", "A", where="a=1")),
        ("A AS x FILTER x[a=1]", atom("A", "A", "x", where="a=1")),
        ("A AS x FILTER A[a=1] AND x[b=2]", atom("A", "A", "x", where="a=1 AND b=2")),
        ("A FILTER A[a=1] FILTER A[b=2]", atom("A", "A", where="a=1 AND b=2")),
        ("A FILTER A[a=1] AND A[a=1]", atom("A", "A", where="a=1")),
        ("A ; B FILTER B[a=1]", Then(atom("A", "A"), atom("B", "B", where="a=1"), False)),
        ("A ; A FILTER A[a=1]", Then(atom("A", "A", where="a=1"), atom("A", "A", where="a=1"), False)),
        ("(A ; B) AS x FILTER x[a=1]", Then(atom("A", "A", "x", where="a=1"), atom("B", "B", "x", where="a=1"), False)),
        ("A + FILTER A[a=1]", Repeat(atom("A", "A", where="a=1"), False)),
        ("A AS x OR B FILTER x[a=1]", Either(atom("A", "A", "x", where="a=1"), atom("B", "B"))),
        # the filter applies to the events that AS named below it only
        ("(A ; (B AS x FILTER x[a=1])) AS x", Then(atom("A", "A", "x"), atom("B", "B", "x", where="a=1"), False)),
        ("A ; NOT(A) FILTER A[a=1]", Then(atom("A", "A", where="a=1"), atom("A", negated=True), False)),
        ("(A FILTER A[a=1]) ; A", Then(atom("A", "A", where="a=1"), atom("A", "A"), False)),
    ],
)
def test_filters_are_pushed_to_their_atoms(text, expected):
    assert normal(text) == expected


def test_a_disjunction_on_one_event_becomes_one_predicate():
    assert normal("A FILTER A[a=1] OR A[b=2]") == atom("A", "A", where="a=1 OR b=2")
    assert normal("A ; B FILTER B[a=1] AND B[b=2] OR B[c=3]") == Then(
        atom("A", "A"), atom("B", "B", where="a=1 AND b=2 OR c=3"), False
    )
    # x holds one event in either branch
    assert normal("(A OR B) AS x FILTER x[a=1] OR x[b=2]") == Either(
        atom("A", "A", "x", where="a=1 OR b=2"), atom("B", "B", "x", where="a=1 OR b=2")
    )
    assert normal("(A AS x OR B AS x) FILTER x[a=1] OR x[b=2]") == Either(
        atom("A", "A", "x", where="a=1 OR b=2"), atom("B", "B", "x", where="a=1 OR b=2")
    )


# all events satisfy p, or all satisfy q; this is not "each satisfies p or q"
@pytest.mark.parametrize("text", ["A +", "A :+", "A ; A", "A : A", "(A ; B) AS A", "(A OR (B ; C)) AS A"])
def test_a_disjunction_on_several_events_copies_the_formula(text):
    both = normal(f"{text} FILTER A[a=1] OR A[b=2]")
    assert both == Either(normal(f"{text} FILTER A[a=1]"), normal(f"{text} FILTER A[b=2]"))


def test_a_disjunction_on_two_variables_copies_the_formula():
    assert normal("A ; B FILTER A[a=1] OR B[b=2]") == Either(
        normal("A ; B FILTER A[a=1]"), normal("A ; B FILTER B[b=2]")
    )
    # a conjunction of disjunctions is spread out to the product of their alternatives
    assert len(atoms(normal("A ; B FILTER (A[a=1] OR B[a=1]) AND (A[a=2] OR B[a=2])"))) == 8


def test_copies_are_bounded(monkeypatch):
    def text(n):
        return "A ; B FILTER " + " AND ".join(f"(A[a={i}] OR B[a={i}])" for i in range(n))

    monkeypatch.setattr(nf, "MAX_ATOMS", 256)
    assert len(atoms(normal(text(7)))) == 256
    for n in (8, 100):  # 2**101 atoms are refused as soon as 2**9 are
        with pytest.raises(QueryTooLargeError, match=r"more than 256 atoms.*\n.*x\[p OR q\]"):
            normal(text(n))


def test_without_types_a_guard_tests_none():
    assert normal("S ; NOT(S FILTER S[a=1])", typed=False) == Then(
        atom(None, "S"), atom(None, where="a=1", negated=True), False
    )


def test_guards_are_equal_if_their_predicates_are():
    first, second = atoms(normal("A AS x FILTER x[a = 1] ; A AS y FILTER y[a   =   1]"))
    assert first.guard == second.guard
    assert first.guard != atom("A", where="a = 1.0").guard
    assert isinstance(first.guard.predicate, s.Comparison)
