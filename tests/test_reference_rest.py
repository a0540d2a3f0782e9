"""Quantifiers, options, next-match, absence, LAG and functions in the reference: cases by hand, and equivalences."""

from __future__ import annotations

from dataclasses import replace

import pytest
import reference as ref
from reference import (
    All,
    As,
    Attr,
    Call,
    Compare,
    Const,
    Contig,
    ContigPlus,
    EventType,
    Filter,
    FilterOr,
    Next,
    Not,
    Or,
    Plus,
    Query,
    Relation,
    Seq,
    Times,
    Trailing,
    Unary,
    VarAttr,
)
from test_reference import events

A, B, C, D = (EventType(name) for name in "ABCD")
OVER_N = Compare(">", Attr("n"), Const(1))


def maybe(formula: ref.Formula) -> Times:
    return Times(formula, 0, 1)


def each(variable: str, name: str = "n") -> VarAttr:
    return VarAttr(variable, name)


def kept(formula: ref.Formula, types: str, n: list | None = None, **clauses) -> list[tuple[int, ...]]:
    """Return the kept positions of every complex event."""
    stream = events(types, **({"n": n} if n else {}))
    return sorted(row[2] for row in ref.evaluate(Query(formula, **clauses), stream))


HIGHER = Relation(Compare(">", each("B"), each("A")))
ABOVE_A = Filter(B, HIGHER)  # a B with more than the A before it
BELOW_A = Filter(As(D, "d"), Relation(Compare("<", each("d"), each("A"))))

MEANINGS = [
    # formula, types, n, kept positions
    # quantifiers
    (Times(A, 2, 2), "ABAA", None, [(0, 2), (0, 3), (2, 3)]),
    (Times(A, 2, 2, ":"), "ABAA", None, [(2, 3)]),
    (Times(A, 2), "AAA", None, [(0, 1), (0, 1, 2), (0, 2), (1, 2)]),
    (Times(A, 1, 2), "AAA", None, [(0,), (0, 1), (0, 2), (1,), (1, 2), (2,)]),
    (Times(A, 2, 3, ":"), "AAAA", None, [(0, 1), (0, 1, 2), (1, 2), (1, 2, 3), (2, 3)]),
    (Times(Seq(A, B), 2, 2), "ABAB", None, [(0, 1, 2, 3)]),
    (Seq(Seq(A, Times(B, 2, 3)), C), "ABBC", None, [(0, 1, 2, 3)]),
    (Seq(A, Times(Filter(B, Unary("B", OVER_N)), 2, 2)), "ABBB", [0, 2, 0, 2], [(0, 1, 3)]),
    # options
    (Seq(Seq(A, maybe(B)), C), "ABC", None, [(0, 1, 2), (0, 2)]),
    (Contig(Contig(A, maybe(B)), C), "ABC", None, [(0, 1, 2)]),
    (Contig(Contig(A, maybe(B)), C), "AC", None, [(0, 1)]),
    (Seq(maybe(A), B), "AB", None, [(0, 1), (1,)]),
    (Seq(A, maybe(B)), "AB", None, [(0,), (0, 1)]),
    (Seq(A, Times(B, 0)), "ABB", None, [(0,), (0, 1), (0, 1, 2), (0, 2)]),
    (Seq(A, Times(B, 0, None, ":")), "ABCB", None, [(0,), (0, 1), (0, 3)]),
    (Seq(A, Seq(maybe(B), maybe(C))), "ACB", None, [(0,), (0, 1), (0, 2)]),
    (Seq(A, Or(maybe(B), C)), "ABC", None, [(0,), (0, 1), (0, 2)]),
    (Seq(A, As(maybe(B), "x")), "AB", None, [(0,), (0, 1)]),
    (Plus(Seq(maybe(A), B)), "AB", None, [(0, 1), (1,)]),
    (Seq(B, ContigPlus(maybe(A))), "BAA", None, [(0,), (0, 1), (0, 1, 2), (0, 2)]),
    (All(A, maybe(B)), "BA", None, [(0, 1), (1,)]),
    # a filter holds where there is nothing to test
    (Seq(A, Filter(maybe(B), Unary("B", OVER_N))), "AB", [0, 0], [(0,)]),
    (Filter(Seq(A, maybe(B)), HIGHER), "ABB", [1, 1, 2], [(0,), (0, 2)]),
    # the next event that fits
    (Next(A, B), "ACBB", None, [(0, 2)]),
    (Next(A, B), "AABB", None, [(0, 2), (1, 2)]),
    (Next(A, Filter(B, Unary("B", OVER_N))), "ABBB", [0, 1, 2, 2], [(0, 2)]),
    (Next(A, As(Or(B, C), "x")), "ADCB", None, [(0, 2)]),
    (Next(A, ABOVE_A), "AABBB", [1, 2, 0, 2, 3], [(0, 3), (1, 4)]),
    # a filter further out is no part of what is next
    (Filter(Next(A, B), HIGHER), "AABBB", [1, 2, 0, 2, 3], []),
    (Next(A, Plus(B)), "ABB", None, [(0, 1), (0, 1, 2)]),
    (Next(A, Times(B, 2, 2)), "ABBB", None, [(0, 1, 2), (0, 1, 3)]),
    (Next(A, Times(B, 2, 2, "->")), "ACBCBB", None, [(0, 2, 4)]),
    (Times(A, 1, None, "->"), "ABAA", None, [(0,), (0, 2), (0, 2, 3), (2,), (2, 3), (3,)]),
    (Times(A, 2, 2, "->"), "ABAA", None, [(0, 2), (2, 3)]),
    (Times(Filter(A, Unary("A", OVER_N)), 2, 2, "->"), "AAA", [2, 0, 2], [(0, 2)]),
    (Seq(A, Times(B, 0, None, "->")), "ABB", None, [(0,), (0, 1), (0, 1, 2), (0, 2)]),
    (Next(maybe(A), B), "ABB", None, [(0, 1), (1,), (2,)]),
    (Next(A, maybe(B)), "ABB", None, [(0,), (0, 1)]),
    (Next(Seq(A, maybe(B)), C), "ACBC", None, [(0, 1), (0, 2, 3)]),
    (Next(A, Not("A")), "AABC", None, [(0,), (1,)]),
    # the next event, with no other one before it
    (Next(A, B, (D,)), "ACBB", None, [(0, 2)]),
    (Next(A, B, (D,)), "ADBAB", None, [(3, 4)]),
    (Next(A, Plus(B), (D,)), "ABDB", None, [(0, 1), (0, 1, 3)]),
    (Next(A, B, (BELOW_A,)), "AADB", [1, 3, 2, 0], [(0, 3)]),
    # absence in a gap
    (Seq(A, B, (D,)), "ADB", None, []),
    (Seq(A, B, (D,)), "DACBD", None, [(1, 3)]),
    (Seq(A, B, (D,)), "ADAB", None, [(2, 3)]),
    (Seq(A, B, (B,)), "ABB", None, [(0, 1)]),
    (Seq(A, B, (A, C)), "AACB", None, []),
    (Seq(A, B, (A, C)), "CAAB", None, [(2, 3)]),
    (Seq(A, B, (As(Filter(D, Unary("D", OVER_N)), "x"),)), "ADBDB", [0, 1, 0, 2, 0], [(0, 2)]),
    (Seq(A, B, (BELOW_A,)), "AADB", [1, 3, 2, 0], [(0, 3)]),
    (Seq(Plus(A), B, (D,)), "ADAB", None, [(0, 2, 3), (2, 3)]),
    # only what lies between counts: nothing inside of the operands
    (Seq(Seq(A, D), B, (D,)), "ADB", None, [(0, 1, 2)]),
    # an absence reads a formula further out, and holds where that has no event
    (Seq(A, Seq(B, C, (BELOW_A,))), "ABDC", [3, 0, 2, 0], []),
    (Seq(A, Seq(B, C, (BELOW_A,))), "ABDC", [1, 0, 2, 0], [(0, 1, 3)]),
    (Seq(Or(A, C), B, (BELOW_A,)), "CDB", [0, 0, 0], []),
    # in each iteration on its own
    (Times(Seq(A, B, (D,)), 2, 2), "ABDAB", None, [(0, 1, 3, 4)]),
]


@pytest.mark.parametrize(("formula", "types", "n", "positions"), MEANINGS)
def test_each_operator_has_its_meaning(formula, types, n, positions):
    assert kept(formula, types, n) == positions


def absent(event: ref.Formula) -> tuple[ref.Formula, ...]:
    return (event,)


EQUIVALENCES = [
    (Seq(Seq(A, maybe(B)), C), Or(Seq(A, C), Seq(Seq(A, B), C))),
    (Contig(Contig(A, maybe(B)), C), Or(Contig(A, C), Contig(Contig(A, B), C))),
    (Contig(A, Contig(maybe(B), C)), Or(Contig(A, C), Contig(A, Contig(B, C)))),
    (Seq(A, Times(B, 0)), Or(A, Seq(A, Plus(B)))),
    (Seq(A, Times(B, 0, None, ":")), Or(A, Seq(A, ContigPlus(B)))),
    (Times(A, 1, 1), A),
    (Times(A, 1), Plus(A)),
    (Times(A, 1, None, ":"), ContigPlus(A)),
    (Times(A, 2, 2), Seq(A, A)),
    (Times(A, 2, 3), Or(Seq(A, A), Seq(A, Seq(A, A)))),
    (Times(A, 2), Seq(A, Plus(A))),
    (Times(Or(A, B), 2, 2, ":"), Contig(Or(A, B), Or(A, B))),
    (Seq(Times(A, 0, 2), B), Or(B, Or(Seq(A, B), Seq(Seq(A, A), B)))),
    (Seq(Times(maybe(A), 2, 2), B), Seq(Times(A, 0, 2), B)),
    (Seq(Plus(maybe(A)), B), Seq(Times(A, 0), B)),
    (Next(A, B), Seq(A, B, absent(B))),
    (Next(A, ABOVE_A), Seq(A, ABOVE_A, absent(ABOVE_A))),
    (Next(A, B, (D,)), Seq(A, B, (B, D))),
    (Next(A, Plus(B)), Seq(A, Plus(B), absent(B))),
    (Next(A, Times(B, 1, None, "->")), Or(Next(A, B), Next(Next(A, B), Times(B, 1, None, "->")))),
    (Times(B, 3, 3, "->"), Next(Next(B, B), B)),
    (
        Next(A, As(Filter(Or(B, C), Unary("B", OVER_N)), "x")),
        Seq(A, As(Filter(Or(B, C), Unary("B", OVER_N)), "x"), (Filter(B, Unary("B", OVER_N)), C)),
    ),
    (Next(A, Or(B, C)), Or(Seq(A, B, (B, C)), Seq(A, C, (B, C)))),
    (Contig(A, B), Seq(A, B, (Or(A, Or(B, Or(C, D))),))),
    (
        Seq(A, B, (Filter(D, FilterOr(Unary("D", OVER_N), Unary("D", Compare("=", Attr("n"), Const(0))))),)),
        Seq(A, B, (Filter(D, Unary("D", OVER_N)), Filter(D, Unary("D", Compare("=", Attr("n"), Const(0)))))),
    ),
    (All(A, maybe(B)), Or(A, All(A, B))),
    (Seq(All(maybe(A), maybe(B)), C), Or(Or(C, Seq(A, C)), Or(Seq(B, C), Seq(All(A, B), C)))),
]
STREAMS = ["ABC", "AABBCC", "ABDABC", "CABBAC", "BABAB", "AAAA", "DADBDC", "ADDBBC"]


@pytest.mark.parametrize(("one", "other"), EQUIVALENCES)
def test_equal_formulas_have_equal_valuations(one, other):
    found = 0
    for k, types in enumerate(STREAMS):
        stream = events(types, n=[(3 * p + k) % 4 for p in range(len(types))])
        expected = ref.valuations(other, stream)
        assert ref.valuations(one, stream) == expected
        found += len(expected)
    assert found


@pytest.mark.parametrize(
    "formula", [maybe(A), Times(A, 0), Seq(maybe(A), maybe(B)), Or(A, maybe(B)), As(maybe(A), "x")]
)
def test_a_pattern_that_could_be_empty_is_refused(formula):
    assert ref.may_be_empty(formula)
    with pytest.raises(ValueError, match="could be empty"):
        ref.valuations(formula, events("AB"))
    assert not ref.may_be_empty(Seq(formula, C))


def test_bindings_of_options_hold_nothing_where_the_event_is_missing():
    assert ref.bindings(Query(Seq(As(A, "x"), As(maybe(B), "y"))), events("AB")) == [
        (0, 0, (0,), (("x", (0,)), ("B", ()), ("y", ()))),
        (0, 1, (0, 1), (("x", (0,)), ("B", (1,)), ("y", (1,)))),
    ]


def test_an_absence_defines_no_variable():
    formula = Seq(A, B, (Filter(As(D, "d"), Unary("d", OVER_N)),))
    assert ref.defined_variables(formula) == {"A", "B"}
    assert ref.variables_in_order(formula) == ["A", "B"]
    assert ref.outer_variables(Seq(B, C, (BELOW_A,))) == {"A"}
    assert ref.relates_events(Seq(A, C, (BELOW_A,)))
    assert ref.attributes(Query(formula)) == {"n"}


def test_gaps_are_those_of_the_substream():
    stream = events("ADB", k=[1, 2, 1])
    query = Query(Seq(A, B, (D,)))
    assert ref.evaluate(query, stream) == []
    assert ref.evaluate(replace(query, partition_by=(("k",),)), stream) == [(0, 2, (0, 2))]
    assert ref.evaluate(Query(Next(A, B), partition_by=(("k",),)), events("ABB", k=[1, 2, 1])) == [(0, 2, (0, 2))]


def test_what_consume_has_forgotten_bars_nothing():
    query = Query(Or(Seq(A, B, (D,)), C), consume="ANY")
    assert ref.evaluate(query, events("CDAB")) == [(0, 0, (0,)), (2, 3, (2, 3))]


# ---------------------------------------------------------------------------- absence at the end of a pattern


def trailing(types: str, ts: list[int] | None = None, **clauses) -> list[ref.Row]:
    stream = events(types, **({"ts": ts} if ts else {}))
    return ref.evaluate(Query(**{"formula": Trailing(Seq(A, B), (D,)), **clauses}), stream)


def test_an_absence_at_the_end_lasts_until_the_window_has_passed():
    within = {"within": ("events", 3)}
    assert trailing("ABCC", **within) == [(0, 1, (0, 1))]
    assert trailing("ABCD", **within) == []  # the window begins at the A, and 3 events behind are in it
    assert trailing("ABCCD", **within) == [(0, 1, (0, 1))]
    assert trailing("DADBCC", **within) == [(1, 3, (1, 3))]  # a D before the end bars nothing
    assert trailing("ACCCB", **within) == []
    timed = {"within": ("time", 10)}
    assert trailing("ABD", [0, 5, 10], **timed) == []
    assert trailing("ABD", [0, 5, 11], **timed) == [(0, 1, (0, 1))]
    # two that end at one event are distinguished by their windows
    assert trailing("AABD", [0, 5, 6, 12], **timed) == [(0, 2, (0, 2))]


def test_an_absence_at_the_end_reads_what_stands_before_it():
    below = Trailing(Seq(A, B), (BELOW_A,))
    query = Query(below, within=("events", 9))
    assert ref.evaluate(query, events("AABD", n=[1, 3, 0, 2])) == [(0, 2, (0, 2))]
    around = replace(query, formula=Filter(As(below, "x"), Unary("A", OVER_N)))
    assert ref.evaluate(around, events("AABD", n=[1, 3, 0, 5])) == [(1, 2, (1, 2))]


def test_an_absence_at_the_end_is_of_the_substream():
    stream = events("ABDCC", k=[1, 1, 2, 1, 1], ts=[0, 1, 2, 3, 4])
    query = Query(Trailing(Seq(A, B), (D,)), within=("events", 2), partition_by=(("k",),))
    survivors = ref.evaluate(query, stream)
    assert survivors == [(0, 1, (0, 1))]
    assert ref.moments(query, stream, survivors) == {(0, 1): 4}  # the third event of the substream behind the A
    timed = replace(query, within=("time", 1))
    assert ref.moments(timed, stream, ref.evaluate(timed, stream)) == {(0, 1): 2}  # of the input, of any substream
    assert ref.moments(replace(query, within=("events", 3)), stream, survivors) == {(0, 1): 5}  # the end of the input


def test_rows_of_one_end_have_one_moment_where_a_strategy_compares_them():
    stream = events("AABCCCC")
    query = Query(Trailing(Seq(A, B), (D,)), within=("events", 3))
    survivors = ref.evaluate(query, stream)
    assert ref.moments(query, stream, survivors) == {(0, 2): 4, (1, 2): 5}
    for clauses in ({"strategy": "NEXT"}, {"limit": 1}, {"strategy": "ANY"}):
        assert ref.moments(replace(query, **clauses), stream, survivors) == {(0, 2): 5, (1, 2): 5}


def test_long_streams_with_an_absence_at_the_end_can_be_taken_window_by_window():
    stream = events("AABCDABBCCADB" * 3, k=[p % 3 for p in range(39)])
    for within in (("events", 2), ("events", 5)):
        for keys in ((), (("k",),)):
            query = Query(Trailing(Seq(A, B), (D,)), within=within, partition_by=keys)
            assert ref.evaluate_long(query, stream) == ref.evaluate(query, stream) != []


# ------------------------------------------------------------------------------------------- LAG and functions


def test_lag_is_an_event_of_the_stream_of_whatever_type():
    rising = Filter(A, Unary("A", Compare(">", Attr("n"), Attr("n", lag=1))))
    assert kept(rising, "AABA", [1, 2, 5, 3]) == [(1,)]
    assert kept(rising, "AABA", [1, None, 0, 3]) == [(3,)]
    two_before = Filter(A, Unary("A", Compare("=", Attr("n"), Attr("n", lag=2))))
    assert kept(two_before, "ABAAA", [1, 2, 1, 3, 1]) == [(2,), (4,)]


def test_lag_is_null_where_nothing_is_before():
    first = Filter(A, Unary("A", ref.IsNull(Attr("n", lag=2))))
    assert kept(first, "AAAA", [1, 2, None, 4]) == [(0,), (1,)]


def test_lag_stays_in_the_substream_and_reaches_what_is_consumed():
    stream = events("AAAA", n=[1, 5, 2, 4], k=[1, 2, 1, 2])
    rising = Query(Filter(A, Unary("A", Compare(">", Attr("n"), Attr("n", lag=1)))), partition_by=(("k",),))
    assert ref.evaluate(rising, stream) == [(2, 2, (2,))]
    consuming = Query(rising.formula, consume="ANY")
    assert ref.evaluate(consuming, stream) == [(1, 1, (1,)), (3, 3, (3,))]
    assert ref.evaluate_long(replace(consuming, within=("events", 0)), stream) == [(1, 1, (1,)), (3, 3, (3,))]


def test_lag_of_a_variable_is_the_event_before_the_chosen_one():
    jump = Relation(Compare(">", VarAttr("B", "n"), ref.Arith("+", VarAttr("B", "n", lag=1), each("A"))))
    assert kept(Filter(Seq(A, B), jump), "ACBB", [2, 1, 4, 5]) == [(0, 2)]


FUNCTION_VALUES = [
    ("abs", -3, 3),
    ("abs", -2.5, 2.5),
    ("abs", -(2**63), 2**63),
    ("abs", None, None),
    ("round", 2.5, 2.0),
    ("round", 3.5, 4.0),
    ("round", -0.4, -0.0),
    ("round", 7, 7),
    ("round", None, None),
    ("lower", "Éa", "éa"),
    ("upper", "éa", "ÉA"),
    ("length", "é\U0001f525a", 3),
    ("length", "", 0),
    ("lower", None, None),
    ("hour", 3_600_000 * 5 + 1, 5),
    ("hour", -1, 23),
    ("day", 0, 1),
    ("day", -1, 31),
    ("weekday", 0, 3),
    ("minute", 59_999, 0),
    ("minute", -1, 59),
    ("week", 0, 1),
    ("week", -4 * 86_400_000, 52),  # Sunday, 28 December 1969
    ("month", -1, 12),
    ("year", -1, 1969),
    ("day", None, None),
]


def test_round_keeps_digits():
    assert ref.value_of(Call("round", Attr("a"), 1), {"a": 0.25}) == 0.2


@pytest.mark.parametrize(("function", "value", "expected"), FUNCTION_VALUES)
def test_functions_have_their_values(function, value, expected):
    found = ref.value_of(Call(function, Attr("a")), {"a": value})
    assert found == expected
    assert type(found) is type(expected)


# ------------------------------------------------------------------------------------------------- whole queries


def test_a_strategy_chooses_within_the_window():
    query = Query(Seq(A, B), strategy="NEXT", within=("events", 1))
    assert ref.evaluate(query, events("AAB")) == [(1, 2, (1, 2))]
    assert ref.evaluate(replace(query, chooses_first=True), events("AAB")) == []
    longest = Query(Seq(Plus(A), B), strategy="MAX", within=("events", 2))
    assert ref.evaluate(longest, events("AAAB")) == [(1, 3, (1, 2, 3))]
    assert ref.evaluate_long(longest, events("AAAB")) == [(1, 3, (1, 2, 3))]
    assert ref.evaluate(replace(longest, chooses_first=True), events("AAAB")) == []


def test_a_type_whose_events_have_an_alias_is_no_column_of_bindings():
    formula = Seq(As(A, "x"), Seq(Filter(As(Plus(B), "y"), Unary("y", OVER_N)), As(Filter(C, Unary("C", OVER_N)), "z")))
    assert ref.types_of_an_alias(formula) == {"A", "C"}
    assert ref.bound_variables(Query(formula)) == ("x", "B", "y", "z")
    assert ref.types_of_an_alias(Seq(As(A, "x"), A)) == set()
    assert ref.types_of_an_alias(As(A, "A")) == set()
    assert ref.bound_variables(Query(formula, select=("A",))) == ("A",)
