"""The reference on ALL and on conjunctive queries: cases by hand, a printed example, and a second brute force."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import conjunction_strategies as conjunctions
import conjunctive_rendering
import join_strategies
import pytest
import reference as ref
import reference_conjunctive as cq
import rendering
import strategies
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from reference import (
    All,
    As,
    Attr,
    Compare,
    Const,
    Contig,
    EventType,
    Filter,
    Not,
    Or,
    Plus,
    Query,
    Relation,
    Seq,
    Unary,
    VarAttr,
)
from reference_conjunctive import Atom, ConjunctiveQuery, Var
from sizes import scaled
from test_reference import Membership, events, oracle, unfiltered
from test_reference_joins import assert_in_scope

A, B, C = EventType("A"), EventType("B"), EventType("C")


def equal(one: str, other: str, name: str = "n") -> Relation:
    return Relation(Compare("=", VarAttr(one, name), VarAttr(other, name)))


def rows(formula: ref.Formula, types: str, n: list | None = None, **clauses) -> list[ref.Row]:
    return ref.evaluate(Query(formula, **clauses), events(types, **({"n": n} if n else {})))


# ----------------------------------------------------------------------------------------------- meaning of ALL

LATER = [(1, 3, (1, 3)), (2, 3, (2, 3))]
MEANINGS = [
    # any order: the earlier start, the later end
    (All(A, B), "AB", None, [(0, 1, (0, 1))]),
    (All(A, B), "BA", None, [(0, 1, (0, 1))]),
    (All(A, B), "ACBA", None, [(0, 2, (0, 2)), (2, 3, (2, 3))]),
    (All(A, B), "AA", None, []),
    (All(All(A, B), C), "CBA", None, [(0, 2, (0, 1, 2))]),
    # both may hold the same event, which stands once
    (All(A, A), "AA", None, [(0, 0, (0,)), (0, 1, (0, 1)), (1, 1, (1,))]),
    (All(As(A, "x"), As(A, "y")), "A", None, [(0, 0, (0,))]),
    (All(Seq(A, B), Seq(B, C)), "ABC", None, [(0, 2, (0, 1, 2))]),
    # interleaved
    (All(Seq(A, C), Seq(B, B)), "ABCB", None, [(0, 3, (0, 1, 2, 3))]),
    (All(Contig(A, C), B), "ACB", None, [(0, 2, (0, 1, 2))]),
    (All(Contig(A, C), B), "ABC", None, []),
    # inside a sequence: all of it before what follows, and behind what stands before
    (Seq(All(A, B), C), "BCAC", None, [(0, 3, (0, 2, 3))]),
    (Seq(C, All(A, B)), "ACBCAB", None, [(1, 4, (1, 2, 4)), (1, 5, (1, 4, 5)), (3, 5, (3, 4, 5))]),
    (Contig(A, All(B, C)), "ACABC", None, [(0, 3, (0, 1, 3)), (2, 4, (2, 3, 4))]),
    (Contig(All(B, C), A), "BCACA", None, [(0, 2, (0, 1, 2)), (0, 4, (0, 3, 4))]),
    # every iteration is a conjunction of its own, behind the one before
    (
        Plus(All(A, B)),
        "ABBA",
        None,
        [(0, 1, (0, 1)), (0, 2, (0, 2)), (0, 3, (0, 1, 2, 3)), (1, 3, (1, 3)), (2, 3, (2, 3))],
    ),
    (All(Plus(A), B), "AAB", None, [(0, 2, (0, 1, 2)), (0, 2, (0, 2)), (1, 2, (1, 2))]),
    # an event that is not one sets start and end
    (All(Not("A"), B), "AB", None, [(1, 1, (1,))]),
    (All(Not("A"), B), "BCA", None, [(0, 0, (0,)), (0, 1, (0,))]),
    # OR beside it
    (All(Or(A, C), B), "ACB", None, [(0, 2, (0, 2)), (1, 2, (1, 2))]),
    # AS around it takes the events of both
    (Filter(As(All(A, B), "x"), Unary("x", Compare(">", Attr("n"), Const(1)))), "ABA", [1, 2, 2], [(1, 2, (1, 2))]),
    # filters between both stand behind the conjunction, and join in any order
    (Filter(All(A, B), equal("A", "B")), "ABBA", [1, 1, 2, 2], [(0, 1, (0, 1)), (2, 3, (2, 3))]),
    (Filter(All(A, B), equal("A", "B")), "ABA", [1, None, None], []),
    # a variable of both operands holds the events of both: each of them is asked
    (Filter(All(As(A, "x"), As(B, "x")), equal("x", "x", "n")), "AB", [1, 2], [(0, 1, (0, 1))]),
    (
        Filter(All(All(As(A, "x"), As(A, "x")), B), equal("x", "B")),
        "AAB",
        [1, 2, 1],
        [(0, 2, (0, 2))],
    ),
    # a filter in an operand reads what stands before the whole conjunction
    (Seq(A, All(B, Filter(C, equal("C", "A")))), "ABCC", [1, 5, 2, 1], [(0, 3, (0, 1, 3))]),
]


@pytest.mark.parametrize(("formula", "types", "n", "expected"), MEANINGS)
def test_all_has_its_meaning(formula, types, n, expected):
    assert rows(formula, types, n) == expected


def test_a_filter_in_an_operand_reads_nothing_of_the_other():
    """The outer x is read, not the one beside the filter."""
    formula = Seq(As(A, "x"), All(As(B, "x"), Filter(C, equal("C", "x"))))
    assert rows(formula, "ABC", [1, 2, 1]) == [(0, 2, (0, 1, 2))]
    assert rows(formula, "ABC", [1, 2, 2]) == []


def test_prev_goes_through_both_operands():
    rising = Relation(Compare(">", VarAttr("x", "n"), VarAttr("x", "n", "PREV")))
    formula = Filter(All(As(A, "x"), As(B, "x")), rising)
    assert rows(formula, "AB", [1, 2]) == rows(formula, "BA", [1, 2]) == [(0, 1, (0, 1))]
    assert rows(formula, "BA", [2, 1]) == []


def test_bindings_tell_which_operand_took_the_event():
    stream = events("AA")
    query = Query(All(As(A, "x"), As(A, "y")), select=("x", "y"))
    found = [tuple(held for _, held in binding) for _, _, _, binding in ref.bindings(query, stream)]
    assert sorted(found) == sorted(((x,), (y,)) for x in range(2) for y in range(2))
    assert ref.counts(query, stream) == [(0, 1), (1, 2)]


def test_strategies_choose_in_the_window_with_all():
    """The conjunction that starts first is too long for the window, and beats nothing."""
    for strategy in ("NEXT", "MAX"):
        query = Query(All(Plus(A), B), strategy=strategy, within=("events", 1))
        assert ref.evaluate(query, events("AAB")) == [(1, 2, (1, 2))]


def test_all_in_a_partition():
    query = Query(All(A, B), partition_by=(("k",),), within=("events", 1))
    assert ref.evaluate(query, events("ABAB", k=[1, 2, 2, 1])) == [(0, 3, (0, 3)), (1, 2, (1, 2))]


def test_all_consumes():
    query = Query(All(A, B), consume="ANY")
    assert ref.evaluate(query, events("ABAAB")) == [(0, 1, (0, 1)), (2, 4, (2, 4)), (3, 4, (3, 4))]


def test_too_many_pairs_are_refused_even_if_they_are_few_valuations():
    with pytest.raises(ref.TooLarge):
        ref.valuations(All(Plus(A), Plus(A)), events("A" * 9), most=1000)
    assert len(ref.valuations(All(Plus(A), Plus(A)), events("A" * 9))) == 2**9 - 1


def test_variables_of_both_operands_may_hold_several_events():
    assert ref.variables_of_several(All(A, B)) == (set(), False)
    assert ref.variables_of_several(All(A, As(A, "x"))) == ({"A"}, False)
    assert ref.variables_of_several(As(All(A, B), "x"))[0] == {"x"}


TEXTS = [
    (All(All(A, B), C), "A ALL B ALL C"),
    (All(A, All(B, C)), "A ALL (B ALL C)"),
    (All(Contig(A, B), C), "A : B ALL C"),
    (Contig(A, All(B, C)), "A : (B ALL C)"),
    (All(Seq(A, B), Plus(C)), "A ; B ALL C +"),
    (Or(All(A, B), C), "A ALL B OR C"),
    (All(A, Or(B, C)), "A ALL (B OR C)"),
    (Plus(All(A, B)), "(A ALL B) +"),
    (Filter(All(A, B), equal("A", "B")), "A ALL B FILTER A.n = B.n"),
    (All(A, Filter(B, Unary("B", Compare("=", Attr("n"), Const(1))))), "A ALL (B FILTER B[n = 1])"),
]


@pytest.mark.parametrize(("formula", "text"), TEXTS)
def test_all_has_its_plain_text(formula, text):
    assert rendering.to_ceql(Query(formula)) == f"SELECT * FROM S WHERE {text}"


# ---------------------------------------------------------------------------------- random formulas with ALL


@settings(max_examples=scaled(150), deadline=None)
@given(st.data())
def test_random_formulas_with_all_agree_with_the_oracle(data):
    formula = data.draw(conjunctions.formulas())
    stream = data.draw(join_strategies.join_streams(Query(formula)))
    # as many events as leave at most 2**6 assignments
    stream = stream[: min(4, 6 // max(1, len(ref.defined_variables(formula))))]
    assert ref.valuations(formula, stream) == oracle(formula, stream)


@settings(max_examples=scaled(150), deadline=None)
@given(st.data())
def test_filters_between_events_of_conjunctions_agree_with_the_oracle(data):
    formula = data.draw(conjunctions.related)
    stream = data.draw(join_strategies.join_streams(Query(formula)))[:4]
    candidates = ref.valuations(unfiltered(formula), stream)
    assume(len(candidates) <= 100 and all(len(mu) <= 6 for _, _, mu in candidates))
    member = Membership(stream)
    assert ref.valuations(formula, stream) == {found for found in candidates if member.belongs(formula, *found)}


@strategies.property_test()
def test_random_formulas_with_all_name_variables_in_scope(data):
    kinds = {"ambiguous": data.draw(st.booleans()), "typed": data.draw(st.booleans())}
    query, _ = data.draw(conjunctions.cases_of_several_streams(**kinds))
    assert_in_scope(query.formula)
    assert any(isinstance(node, All) for node in ref.descendants(query.formula))


@strategies.property_test()
def test_long_streams_of_conjunctions_can_be_taken_window_by_window(data):
    query, stream = data.draw(conjunctions.full_cases())
    assume(query.within is not None)
    try:
        whole = ref.bindings(query, stream, most=3000)
        assert ref.bindings_long(query, stream, most=3000) == whole
    except ref.TooLarge:
        assume(False)


@strategies.property_test(0.3)
def test_operands_of_all_may_change_places(data):
    query, stream = data.draw(conjunctions.cases())

    def turned(formula):
        parts = {name: getattr(formula, name) for name in ("body", "left", "right") if hasattr(formula, name)}
        parts = {name: turned(part) for name, part in parts.items()}
        if isinstance(formula, All):
            parts = {"left": parts["right"], "right": parts["left"]}
        return replace(formula, **parts)

    try:
        found = ref.valuations(query.formula, stream, most=3000)
        assert ref.valuations(turned(query.formula), stream, most=3000) == found
    except ref.TooLarge:
        assume(False)


# ---------------------------------------------------------------------------------------- conjunctive queries


def atom(type_: str, alias: str | None = None, **given: str | int) -> Atom:
    """Return an atom; a string stands for a variable."""
    terms = {name: Var(term) if isinstance(term, str) else Const(term) for name, term in given.items()}
    return Atom(type_, tuple(terms.items()), alias)


def tuples(*found: tuple) -> list[ref.Event]:
    """Return a stream of tuples such as ("S", 2, 11), with their values in a and b."""
    return [{"type": name, **dict(zip("ab", values, strict=False))} for name, *values in found]


def answers(head: str, *atoms: Atom, stream: list[ref.Event], **clauses) -> list[tuple]:
    """Return (positions of the atoms, values of the head) by both kinds of brute force, which must agree."""
    conjunctive = ConjunctiveQuery(tuple(head), atoms, **clauses)
    query = cq.query(conjunctive)
    found = ref.bindings(query, stream)
    assert cq.bindings(conjunctive, stream) == found
    assert cq.answers(conjunctive, stream) == ref.head_rows(query, stream)
    assert len(ref.head_rows(query, stream)) == len(found)
    return sorted((tuple(p for _, (p,) in row[3]), ref.headed(query, stream, row)[3]) for row in found)


# papers: PCEA, example stream S0 and query Q0
S0 = tuples(("S", 2, 11), ("T", 2), ("R", 1, 10), ("S", 2, 11), ("T", 1), ("R", 2, 11), ("S", 4, 13), ("T", 1))
Q0 = (atom("T", a="x"), atom("S", a="x", b="y"), atom("R", a="x", b="y"))


def test_the_conjunctive_query_of_the_paper_has_two_answers():
    assert answers("xy", *Q0, stream=S0) == [((1, 0, 5), (2, 11)), ((1, 3, 5), (2, 11))]
    query = cq.query(ConjunctiveQuery(("x", "y"), Q0))
    assert ref.head_rows(query, S0) == [(0, 5, (0, 1, 5), (2, 11)), (1, 5, (1, 3, 5), (2, 11))]
    assert ref.counts(query, S0) == [(5, 2)]


def test_the_window_of_a_conjunctive_query_begins_with_its_first_event():
    assert answers("xy", *Q0, stream=S0, within=("events", 4)) == [((1, 3, 5), (2, 11))]
    assert answers("xy", *Q0, stream=S0, within=("events", 3)) == []


def test_atoms_of_one_type_may_have_the_same_event():
    """papers: PCEA, query Q1 of section 4 names T(x) twice."""
    stream = tuples(("T", 1), ("T", 1), ("R", 1, 5), ("S", 2, 5))
    q1 = (atom("T", a="x"), atom("R", a="x", b="y"), atom("S", a=2, b="y"), atom("T", a="x"))
    found = answers("xy", *q1, stream=stream)
    assert found == [((one, 2, 3, other), (1, 5)) for one in (0, 1) for other in (0, 1)]
    # "bindings" alone shows which atom has which event, and each choice is an answer
    query = cq.query(ConjunctiveQuery(("x", "y"), q1))
    rows = ref.head_rows(query, stream)
    assert [row[2] for row in rows] == [(0, 1, 2, 3), (0, 1, 2, 3), (0, 2, 3), (1, 2, 3)]
    assert ref.counts(query, stream) == [(3, 4)]
    assert ref.is_choice(query, rows, rows)
    assert not ref.is_choice(query, rows, [rows[0], *rows[0:1], rows[0], rows[3]])


def test_one_complex_event_with_two_heads_is_two_rows():
    stream = tuples(("S", 1, 2), ("S", 2, 1))
    ring = (atom("S", a="x", b="y"), atom("S", a="y", b="x"))
    assert answers("x", *ring, stream=stream) == [((0, 1), (1,)), ((1, 0), (2,))]
    query = cq.query(ConjunctiveQuery(("x",), ring))
    assert ref.head_rows(query, stream) == [(0, 1, (0, 1), (1,)), (0, 1, (0, 1), (2,))]
    assert ref.counts(query, stream) == [(1, 2)]


def test_null_joins_nothing_and_a_variable_in_one_place_takes_it():
    stream = tuples(("T", None), ("S", None, 1), ("T", 2), ("S", 2, None))
    assert answers("xy", atom("T", a="x"), atom("S", a="x", b="y"), stream=stream) == [((2, 3), (2, None))]
    assert answers("x", atom("T", a="x"), stream=stream) == [((0,), (None,)), ((2,), (2,))]
    assert answers("x", atom("S", a="x", b="x"), stream=stream) == []


def test_a_variable_twice_in_an_atom_and_constants_test_the_event():
    stream = tuples(("S", 1, 1), ("S", 1, 2), ("S", 2, 2), ("T", 2))
    assert answers("x", atom("S", a="x", b="x"), stream=stream) == [((0,), (1,)), ((2,), (2,))]
    assert answers("x", atom("S", a="x", b="x"), atom("T", a="x"), stream=stream) == [((2, 3), (2,))]
    assert answers("x", atom("S", a="x", b=2), stream=stream) == [((1,), (1,)), ((2,), (2,))]


def test_atoms_without_a_common_variable_are_every_pair():
    stream = tuples(("T", 1), ("S", 2, 2), ("T", 3))
    assert answers("xy", atom("T", a="x"), atom("S", a="y"), stream=stream) == [((0, 1), (1, 2)), ((2, 1), (3, 2))]
    assert answers("", atom("T"), atom("S"), stream=stream) == [((0, 1), ()), ((2, 1), ())]


def test_answers_lie_in_one_partition():
    stream = tuples(("T", 1, 1), ("S", 1, 2), ("T", 1, 2))
    assert answers("x", atom("T", a="x"), atom("S", a="x"), stream=stream, partition_by=(("b",),)) == [((2, 1), (1,))]


NAMES = [
    ("T S", ("T", "S")),
    ("T T T", ("T", "T_2", "T_3")),
    ("T T:u T", ("T", "u", "T_2")),
    ("T T:T_2 T", ("T", "T_2", "T_3")),
    ("S:T T T", ("T", "T_2", "T_3")),
    ("T T T_2", ("T", "T_3", "T_2")),
]


@pytest.mark.parametrize(("atoms", "names"), NAMES)
def test_atoms_have_names(atoms, names):
    made = [part.partition(":") for part in atoms.split()]
    assert ConjunctiveQuery((), tuple(Atom(type_, (), alias or None) for type_, _, alias in made)).names == names


SHAPES = [
    ("x xy xy", True, True),
    ("xy yz zx", False, False),
    ("x xy y", False, True),
    ("x y", True, True),
    ("xy xz x", True, True),
    ("xy yz zx xyz", False, True),
]


@pytest.mark.parametrize(("atoms", "hierarchical", "acyclic"), SHAPES)
def test_queries_are_hierarchical_or_acyclic(atoms, hierarchical, acyclic):
    conjunctive = ConjunctiveQuery((), tuple(atom("T", **{x: x for x in own}) for own in atoms.split()))
    assert cq.is_hierarchical(conjunctive) is hierarchical
    assert cq.is_acyclic(conjunctive) is acyclic


def test_conjunctive_queries_have_their_plain_text():
    atoms = (
        atom("T", n="x"),
        atom("odd one", "t 2", n="x", m=-3),
        Atom("S", (("s", Const("it's")), ("st.n", Var("by")))),
    )
    conjunctive = ConjunctiveQuery(("x", "by"), atoms, (("n", "m"), ("s",)), ("events", 5), 3)
    assert conjunctive_rendering.to_text(conjunctive) == (
        "Q(x, `by`) <- T(n = x), `odd one`(n = x, m = - 3) AS `t 2`, S(s = 'it''s', st.n = `by`) "
        "PARTITION BY[n, m],[s] WITHIN 5 EVENTS LIMIT 3"
    )
    by_position = ConjunctiveQuery(("x",), (atom("T", n="x"), atom("S", m="x", n=1)))
    relations = {"T": ["n"], "S": ["n", "s", "m"]}
    assert conjunctive_rendering.to_text(by_position, None, relations) == "Q(x) <- T(x), S(1, _, x)"


@strategies.property_test()
def test_random_conjunctive_queries_have_the_t_homomorphisms(data):
    conjunctive, stream = data.draw(conjunctions.conjunctive_cases())
    query = cq.query(conjunctive)
    try:
        assert ref.bindings(query, stream, most=10_000) == cq.bindings(conjunctive, stream)
    except ref.TooLarge:
        assume(False)
    assert ref.head_rows(query, stream) == cq.answers(conjunctive, stream)


@pytest.mark.parametrize("name", ["u", "d", "n"])
@strategies.property_test(4)
def test_no_key_of_a_random_query_has_the_name_of_a_variable(name, data):
    """Both are columns of "bindings", which refuses equal names."""
    formula = ref.All(ref.As(ref.EventType("A"), name), ref.EventType("B"))
    query = data.draw(strategies.full_queries(formula=st.just(formula)))
    assert name not in {names[0] for names in query.partition_by}


@pytest.mark.long("evaluates many draws by brute force")
def test_random_conjunctive_queries_are_of_every_kind():
    kinds = Counter()

    @settings(max_examples=300, database=None, derandomize=True, phases=[Phase.generate])
    @given(conjunctions.conjunctive_cases())
    def draw(case):
        conjunctive, stream = case
        hierarchical, acyclic = cq.is_hierarchical(conjunctive), cq.is_acyclic(conjunctive)
        types = [part.type for part in conjunctive.atoms]
        found = [
            ("hierarchical" if hierarchical else "acyclic" if acyclic else "cyclic"),
            "self join" if len({*types}) < len(types) else "no self join",
            "answers" if cq.answers(conjunctive, stream) else "no answer",
        ]
        kinds.update([*found, "all"])

    draw()
    assert kinds["hierarchical"] > kinds["all"] / 2
    assert kinds["answers"] > kinds["all"] / 2
    assert min(kinds[kind] for kind in ("acyclic", "self join", "no self join")) > kinds["all"] / 20
    assert kinds["cyclic"] > kinds["all"] / 50
