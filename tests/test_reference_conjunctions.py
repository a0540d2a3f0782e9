"""The reference on ALL and on conjunctive queries: cases by hand, a printed example, and a second brute force."""

from __future__ import annotations

from dataclasses import replace

import conjunction_strategies as conjunctions
import join_strategies
import pytest
import reference as ref
import rendering
import strategies
from hypothesis import assume, given, settings
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
    assert ref.evaluate(Query(Seq(Plus(A), B), strategy="MAX", within=("events", 1)), events("AAB")) == []


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


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_formulas_with_all_agree_with_the_oracle(data):
    formula = data.draw(conjunctions.formulas())
    stream = data.draw(join_strategies.join_streams(Query(formula)))
    # as many events as leave at most 2**6 assignments
    stream = stream[: min(4, 6 // max(1, len(ref.defined_variables(formula))))]
    assert ref.valuations(formula, stream) == oracle(formula, stream)


@settings(max_examples=150, deadline=None)
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
