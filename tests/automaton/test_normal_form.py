"""LP-normal form: filters at their atoms, disjunctions merged where that is equivalent, copies bounded."""

import pytest

from cer_gpu.automaton import normal_form as nf
from cer_gpu.automaton.cea import build_cea
from cer_gpu.automaton.chain import find_chain
from cer_gpu.automaton.normal_form import (
    Absent,
    Atom,
    Both,
    Either,
    Guard,
    Joint,
    Related,
    Repeat,
    Then,
    Trailing,
    guards_of,
    normal_form,
    sequence,
    unrelated,
)
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.traversal import walk
from cer_gpu.errors import QueryTooLargeError
from cer_gpu.explain.ceql_text import predicate_text


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


# ---- absences, options and quantifiers -------------------------------------------------------------------------------

A, B, C, D = (atom(name, name) for name in "ABCD")


def absent(type_, where=None, negated=False):
    return Absent(Guard(type_, predicate(where) if where else None), negated=negated)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A -> B", Then(A, B, False, (absent("B"),))),
        ("A -> NOT(B)", Then(A, atom("B", negated=True), False, (absent("B", negated=True),))),
        ("A -> (B OR C)", Then(A, Either(B, C), False, (absent("B"), absent("C")))),
        ("A -> B+", Then(A, Repeat(B, False), False, (absent("B"),))),
        ("A -> B ->{2,3}", Then(A, Repeat(B, False, 2, 3, (absent("B"),)), False, (absent("B"),))),
        ("A ; B ->+", Then(A, Repeat(B, False, absent=(absent("B"),)), False)),
        # what stands in the parentheses of B alone says which events may not lie between
        ("A -> (B FILTER B[a=1])", Then(A, atom("B", "B", where="a=1"), False, (absent("B", "a=1"),))),
        ("A -> B FILTER B[a=1]", Then(A, atom("B", "B", where="a=1"), False, (absent("B"),))),
        ("A ; !B ; C", Then(A, C, False, (absent("B"),))),
        ("A ; !B ; !C ; D", Then(A, D, False, (absent("B"), absent("C")))),
        ("A ; !(B FILTER B[a=1] OR B[b=2]) ; C", Then(A, C, False, (absent("B", "a=1 OR b=2"),))),
        ("A ; !(B AS x FILTER x[a=1] AND B[b=2]) ; C", Then(A, C, False, (absent("B", "a=1 AND b=2"),))),
        # a filter around is not one of the absent event
        ("A ; !A ; B FILTER A[a=1]", Then(atom("A", "A", where="a=1"), B, False, (absent("A"),))),
        ("A ; !B", Trailing(A, (absent("B"),))),
        ("(A ; !B) AS x", Trailing(atom("A", "A", "x"), (absent("B"),))),
        ("A ; !B FILTER A[a=1]", Trailing(atom("A", "A", where="a=1"), (absent("B"),))),
        ("A ; B?", Then(A, B, False, optional=(False, True))),
        ("A? : B", Then(A, B, True, optional=(True, False))),
        ("A -> B?", Then(A, B, False, (absent("B"),), (False, True))),
        ("A ALL B*", Both(A, Repeat(B, False), (False, True))),
        ("A ; (B? ; C?)", Then(A, Then(B, C, False, optional=(True, True)), False, optional=(False, True))),
        (
            "A ; (B OR C?) AS x",
            Then(A, Either(atom("B", "B", "x"), atom("C", "C", "x")), False, optional=(False, True)),
        ),
        ("A{1}", A),
        ("A{1,}", Repeat(A, False)),
        ("A{2}", Repeat(A, False, 2, 2)),
        ("A:{2,3}", Repeat(A, True, 2, 3)),
        ("A ; B{0,3}", Then(A, Repeat(B, False, 1, 3), False, optional=(False, True))),
        ("A ; (B?){2,3}", Then(A, Repeat(B, False, 1, 3), False, optional=(False, True))),
        ("A ; (B?):+", Then(A, Repeat(B, True), False, optional=(False, True))),
    ],
)
def test_absences_options_and_quantifiers(text, expected):
    assert normal(text) == expected


def test_filters_of_an_absence_that_name_other_events_are_its_relations():
    form = normal("A AS a ; !(B AS b FILTER b.k = a.k AND b[v > 1] AND a[w > 2]) ; C")
    (found,) = form.absent
    assert found.guard == Guard("B", predicate("v > 1"))
    assert [predicate_text(relation.predicate) for relation in found.relations] == ["b.k = a.k", "a.w > 2"]
    (of_b, of_a) = found.relations[0].roles
    assert of_b.sites == found.sites
    assert of_a.sites == form.left.sites
    # each alternative is an absence of its own
    assert len(normal("A AS a ; !(B AS b FILTER b.k < FIRST(a).k OR b[v > 1] AND b.j = a.j) ; C+").absent) == 1
    several = normal("(A AS a OR D) ; !(B AS b FILTER b.k < a.k OR b[v > 1]) ; C").absent
    assert [(len(each.relations), each.guard.predicate) for each in several] == [(1, None), (0, predicate("v > 1"))]


def test_the_next_event_is_compared_as_its_own_parentheses_say():
    form = normal("A AS a -> (B AS b FILTER b.k = a.k)")
    assert isinstance(form.right, Related)
    assert [each.relations for each in form.absent] == [(form.right.relation,)]
    outside = normal("A AS a -> B AS b FILTER b.k = a.k").body
    assert [each.relations for each in outside.absent] == [()]


def test_an_absence_of_several_streams_has_one_guard_for_each():
    form = normal("S>A ; !(B AS b FILTER S>b[v > 1]) ; C", streams=["S", "T"])
    assert [each.guard for each in form.absent] == [Guard("B", predicate("v > 1"), "S"), Guard("B", None, "T")]


def test_guards_of_absences_stand_in_the_order_of_the_text():
    form = normal("A ; !B ; C ->+ ; D ; !E")
    assert [guard.event_type for guard in guards_of(form)] == ["A", "B", "C", "D", "E"]


def test_the_skeleton_leaves_out_absences_with_filters_between_events():
    form = normal("A AS a ; !B ; !(C AS c FILTER c.k = a.k) ; D")
    assert unrelated(form) == Then(form.left, form.right, False, (absent("B"),))
    assert (
        unrelated(normal("A AS a ; !(C AS c FILTER c.k = a.k)")) == normal("A AS a ; !(C AS c FILTER c.k = a.k)").body
    )
    plain = normal("A ; !B ; C ->+ ; !D")
    assert unrelated(plain) is plain


def test_a_sequence_is_yielded_with_its_joints():
    text = "A ; !B ; C? : D -> A ; (B ; (C : D)) ; (A ; B)? ; (C? ; D)"
    found = list(sequence(normal(text)))
    assert [joint for _, joint in found] == [
        Joint(),
        Joint(False, (absent("B"),), (False, True)),
        Joint(True),
        Joint(False, (absent("A"),)),
        Joint(),
        Joint(),
        Joint(True),
        Joint(False, (), (False, True)),
        Joint(),
    ]


def test_a_sequence_that_may_begin_later_is_an_operand_of_its_own():
    assert list(sequence(normal("A ; (B? ; C)"))) == [(A, Joint()), (normal("B? ; C"), Joint())]
    assert list(sequence(normal("(A ; B)? ; C"))) == [(normal("A ; B"), Joint()), (C, Joint(optional=(True, False)))]
    assert list(sequence(normal("A? ; B"))) == [(A, Joint()), (B, Joint(optional=(True, False)))]
