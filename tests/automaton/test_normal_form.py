"""LP-normal form: filters at their atoms, disjunctions merged where that is equivalent, copies bounded."""

import pytest

from cer_gpu.automaton import normal_form as nf
from cer_gpu.automaton.cea import build_cea
from cer_gpu.automaton.chain import find_chain
from cer_gpu.automaton.normal_form import Atom, Either, Guard, Related, Repeat, Then, normal_form, unrelated
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.traversal import walk
from cer_gpu.errors import QueryTooLargeError
from cer_gpu.explain.writing import predicate_text


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
        case Repeat() | Related():
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


# ---- filters between events ------------------------------------------------------------------------------------------


def relations(node):
    """Return the filters between events around a formula, the outermost first, and what they filter."""
    found = []
    while isinstance(node, Related):
        found.append(predicate_text(node.relation.predicate))
        node = node.body
    return found, node


def test_a_filter_between_events_stays_around_what_it_filters():
    found, body = relations(normal("A AS x ; B AS y FILTER y.a > x.a"))
    assert found == ["y.a > x.a"]
    assert isinstance(body, Then)
    then = normal("A AS x ; (B AS y FILTER y.a > x.a)+")
    assert relations(then.right.body)[0] == ["y.a > x.a"]
    assert isinstance(then.right, Repeat)


def test_several_filters_between_events_are_nested_the_first_innermost():
    found, body = relations(normal("A AS x ; B AS y FILTER y.a > x.a AND x[b = 1] AND y.b > x.b FILTER x.c = y.c"))
    assert found == ["x.c = y.c", "y.b > x.b", "y.a > x.a"]
    assert [each.guard.predicate for each in atoms(body)] == [predicate("b = 1"), None]


def test_each_choice_of_filters_has_its_own_filter_between_events():
    both = normal("A AS x ; B+ AS y FILTER y.a > x.a OR y.b > x.b AND y[c = 1]")
    assert isinstance(both, Either)
    assert [relations(side)[0] for side in (both.left, both.right)] == [["y.a > x.a"], ["y.b > x.b"]]
    assert [each.guard.predicate for each in atoms(both)] == [None, None, None, predicate("c = 1")]
    around = normal("A AS x ; B+ AS y FILTER y.c > x.c AND (y.a > x.a OR y.b > x.b)")
    assert [set(relations(side)[0]) for side in (around.left, around.right)] == [
        {"y.c > x.c", "y.a > x.a"},
        {"y.c > x.c", "y.b > x.b"},
    ]


def test_a_filter_on_one_variable_beside_one_between_events_is_a_choice_of_its_own():
    both = normal("A AS x ; B+ AS y FILTER y[a = 1] OR y[b > PREV(y).b]")
    assert relations(both.left) == ([], both.left)
    assert relations(both.right)[0] == ["y.b > PREV(y).b"]


def test_atoms_know_the_definitions_around_them_that_a_filter_names():
    related = normal("(A ; B) AS x ; (C OR D) AS y ; E FILTER y.a > x.a AND E.a > A.a")
    roles = {
        role.variable.name: role.sites
        for each in walk(related)
        if isinstance(each, Related)
        for role in each.relation.roles
    }
    a, b, c, d, e = atoms(related)
    assert a.sites == roles["x"] | roles["A"]
    assert b.sites == roles["x"]
    assert c.sites == d.sites == roles["y"]
    assert e.sites == roles["E"]
    assert all(atom.sites == frozenset() for atom in atoms(normal("(A ; B) AS x FILTER x[a = 1]")))


def test_atoms_of_one_type_at_different_definitions_are_different():
    first, second = (
        atoms(normal("A ; (A AS x ; B FILTER B.a > x.a)").left),
        atoms(normal("A ; (A AS x ; B FILTER B.a > x.a)").right),
    )
    assert first[0].guard == second[0].guard
    assert first[0].sites != second[0].sites
    inner = atoms(normal("A ; (A ; B FILTER B.a > A.a)"))
    assert [len(each.sites) for each in inner] == [0, 1, 1]


def test_atoms_know_their_streams():
    streams = [(each.guard.stream, each.stream) for each in atoms(normal("S>A ; B ; NOT(S>C)", streams=["S", "T"]))]
    assert streams == [("S", "S"), ("S", "S"), ("T", "T"), ("S", None)]
    assert [each.stream for each in atoms(normal("A", streams=["S"]))] == ["S"]
    assert [each.stream for each in atoms(normal("A"))] == [None]


def test_the_skeleton_has_no_filters_between_events():
    text = "A AS x ; (B AS y FILTER y.a > x.a)+ ; C FILTER C.a > x.a OR C.b > PREV(C).b"
    skeleton = unrelated(normal(text))
    assert not any(isinstance(part, Related) for part in walk(skeleton))
    assert skeleton.left.left.left.sites == frozenset(range(4)) & atoms(normal(text))[0].sites
    plain = normal("A ; B FILTER A[a = 1]")
    assert unrelated(plain) is plain


@pytest.mark.parametrize("text", ["A AS x ; B AS y FILTER y.a > x.a", "(A AS x ; B AS y FILTER y.a > x.a)+ ; C"])
def test_automaton_and_chain_are_those_of_the_skeleton(text):
    related = normal(text)
    cea = build_cea(related, None)
    assert cea == build_cea(unrelated(related), None)
    assert find_chain(related, cea.guards, None) == find_chain(unrelated(related), cea.guards, None)
