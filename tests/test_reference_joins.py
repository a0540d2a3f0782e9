"""The reference on filters between events: hand-made cases, a printed example, and a second, more naive formulation."""

from __future__ import annotations

import itertools
import operator
import random

import arrow_streams
import join_strategies
import pyarrow as pa
import pytest
import reference as ref
import rendering
import strategies
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference import (
    Arith,
    As,
    Attr,
    Between,
    Compare,
    Const,
    Contig,
    DurationConst,
    EventType,
    Filter,
    FilterAnd,
    FilterOr,
    In,
    InRange,
    IsNull,
    Like,
    Or,
    Plus,
    PredAnd,
    PredNot,
    PredOr,
    Query,
    Relation,
    Seq,
    Unary,
    VarAttr,
)
from sizes import scaled

A, B, C, R = EventType("A"), EventType("B"), EventType("C"), EventType("R")


def events(types: str, **columns: list) -> list[ref.Event]:
    """Return a stream of one-letter types."""
    return [
        {"type": t, **dict(zip(columns, row, strict=True))}
        for t, row in zip(types, zip(*columns.values(), strict=True), strict=True)
    ]


def each(variable: str, name: str = "n") -> VarAttr:
    return VarAttr(variable, name)


def first(variable: str, name: str = "n") -> VarAttr:
    return VarAttr(variable, name, "FIRST")


def last(variable: str, name: str = "n") -> VarAttr:
    return VarAttr(variable, name, "LAST")


def prev(variable: str, name: str = "n") -> VarAttr:
    return VarAttr(variable, name, "PREV")


def is_(op: str, left, right) -> Relation:
    """Return a filter with one comparison; a name stands for the attribute n of that variable."""
    left, right = (each(side) if isinstance(side, str) else side for side in (left, right))
    return Relation(Compare(op, left, right))


def kept(formula: ref.Formula, stream: list[ref.Event], **clauses) -> list[tuple[int, ...]]:
    """Return the kept positions of all complex events, sorted."""
    return sorted(row[2] for row in ref.evaluate(Query(formula, **clauses), stream))


# ------------------------------------------------------------------------------------------------ hand-made cases

HIGHER = is_(">", "B", "A")
THREE = Seq(Seq(As(R, "a"), As(R, "b")), As(R, "c"))
RISING = FilterAnd(is_(">", "b", "a"), is_(">", "c", "b"))
EITHER = Seq(Or(As(A, "x"), As(B, "y")), As(C, "z"))
V_SHAPE = Seq(Seq(As(R, "a"), As(Plus(R), "down")), As(Plus(R), "up"))
FALLING = is_("<", "down", prev("down"))
CLIMBING = is_(">", "up", prev("up"))

MEANINGS = [
    # formula, types, n, kept positions of the complex events
    (Filter(Seq(A, B), HIGHER), "ABAB", [1, 2, 3, 3], [(0, 1), (0, 3)]),
    (Seq(A, Filter(B, HIGHER)), "ABAB", [1, 2, 3, 3], [(0, 1), (0, 3)]),
    (Filter(Contig(A, B), HIGHER), "ABAB", [1, 2, 0, 3], [(0, 1), (2, 3)]),
    # each reading higher than the last, as three steps and as an iteration of any length
    (Filter(THREE, RISING), "RRRR", [1, 3, 2, 4], [(0, 1, 3), (0, 2, 3)]),
    (Filter(As(Plus(R), "r"), is_(">", "r", prev("r"))), "RRR", [1, 3, 2], [(0,), (0, 1), (0, 2), (1,), (2,)]),
    # PREV is the event before in the variable, not in the stream
    (Filter(As(Plus(R), "r"), is_("=", "r", prev("r"))), "RAR", [5, 0, 5], [(0,), (0, 2), (2,)]),
    # V: down from a, then up
    (
        Filter(
            Filter(Filter(V_SHAPE, FilterAnd(FALLING, CLIMBING)), is_("<", first("down"), "a")),
            is_(">", first("up"), last("down")),
        ),
        "RRRR",
        [5, 3, 1, 4],
        [(0, 1, 2, 3), (0, 1, 3), (0, 2, 3), (1, 2, 3)],
    ),
    # every event that a variable holds is compared with every one of the other
    (Filter(Seq(As(Plus(A), "x"), B), is_("<", "x", "B")), "AAB", [1, 3, 2], [(0, 2)]),
    (Filter(Seq(As(Plus(A), "x"), B), is_("<", first("x"), "B")), "AAB", [1, 3, 2], [(0, 1, 2), (0, 2)]),
    (Filter(Seq(As(Plus(A), "x"), B), is_("<", last("x"), "B")), "AAB", [3, 1, 2], [(0, 1, 2), (1, 2)]),
    (Filter(As(Seq(A, A), "x"), is_("<=", first("x"), last("x"))), "AAA", [2, 3, 2], [(0, 1), (0, 2)]),
    # a variable named twice is one choice
    (Filter(As(Plus(A), "x"), is_("=", each("x"), each("x"))), "AA", [1, 2], [(0,), (0, 1), (1,)]),
    # no test for the first event, not even of another condition beside PREV
    (
        Filter(
            As(Plus(A), "x"), Relation(PredAnd(Compare(">", prev("x"), Const(0)), Compare("=", each("x"), Const(7))))
        ),
        "AA",
        [1, 2],
        [(0,), (1,)],
    ),
    # true where a variable holds no event: the other branch of OR has no test
    (Filter(EITHER, is_("=", "x", "z")), "ABC", [1, 5, 2], [(1, 2)]),
    (Filter(EITHER, FilterAnd(is_("=", "x", "z"), is_("=", "y", "z"))), "ABC", [1, 2, 2], [(1, 2)]),
    (Filter(EITHER, is_("=", first("x"), "z")), "ABC", [1, 5, 2], [(1, 2)]),
    (Filter(EITHER, FilterOr(is_("=", "x", "z"), is_("=", "y", "z"))), "ABC", [1, 5, 2], [(0, 2), (1, 2)]),
    (Seq(Or(As(A, "x"), B), Filter(C, is_("=", "x", "C"))), "ABC", [1, 5, 2], [(1, 2)]),
    # NULL and NaN pass no test; the negation of UNKNOWN is UNKNOWN
    (Filter(Seq(A, B), HIGHER), "AAB", [None, 1, 2], [(1, 2)]),
    (Filter(Seq(A, B), Relation(PredNot(Compare(">", each("B"), each("A"))))), "AAB", [None, 3, 2], [(1, 2)]),
    (Filter(Seq(A, B), is_("=", "A", "B")), "AAB", [float("nan"), 0.0, -0.0], [(1, 2)]),
    (Filter(Seq(A, B), is_("<>", "A", "B")), "AAB", [float("nan"), 0.0, -0.0], [(0, 2)]),
    (Filter(Seq(A, B), Relation(IsNull(Arith("/", each("A"), each("B"))))), "ABB", [1, 0, 2], [(0, 1)]),
    (Filter(Seq(A, B), Relation(IsNull(Arith("+", each("A"), each("B")), True))), "ABB", [1, None, 2], [(0, 2)]),
    # BETWEEN includes both bounds
    (Filter(Seq(A, B), Relation(Between(each("B"), each("A"), Const(3)))), "ABBBB", [1, 0, 1, 3, 4], [(0, 2), (0, 3)]),
    (
        Filter(Seq(A, B), Relation(Between(each("B"), each("A"), Const(3), True))),
        "ABBBBB",
        [1, 0, 1, 3, 4, None],
        [(0, 1), (0, 4)],
    ),
    # int64 and float64 are compared exactly; within one event the integer becomes a float64
    (Filter(Seq(A, B), is_("=", "A", "B")), "AAB", [2**53 + 1, 2**53, 2.0**53], [(1, 2)]),
    (Filter(A, Unary("A", Compare("=", Attr("n"), Const(2.0**53)))), "AA", [2**53 + 1, 2**53], [(0,), (1,)]),
]


@pytest.mark.parametrize(("formula", "types", "n", "positions"), MEANINGS)
def test_filters_between_events_have_their_meaning(formula, types, n, positions):
    assert kept(formula, events(types, n=n)) == sorted(positions)


def test_a_comparison_of_one_event_is_not_exact_beside_others():
    own = Compare("=", each("B", "n"), each("B", "v"))
    formula = Filter(Seq(A, B), Relation(PredAnd(own, Compare("=", each("A", "n"), each("B", "n")))))
    big = 2**53 + 1
    assert kept(formula, events("AB", n=[big, big], v=[0.0, 2.0**53])) == [(0, 1)]
    assert (
        kept(Filter(Seq(A, B), is_("=", each("A", "n"), each("B", "v"))), events("AB", n=[big, 0], v=[0, 2.0**53]))
        == []
    )


# ------------------------------------------------------------------------------------- scopes of variables

PAIR = Seq(As(B, "y"), As(C, "z"))


def test_a_filter_in_an_iteration_is_tested_in_each_iteration():
    same = Filter(Seq(A, B), is_("=", "A", "B"))
    stream = events("ABAB", n=[1, 1, 2, 2])
    assert kept(Plus(same), stream) == [(0, 1), (0, 1, 2, 3), (2, 3)]
    # outside of the iteration every A is compared with every B
    assert kept(Filter(Plus(Seq(A, B)), is_("=", "A", "B")), stream) == [(0, 1), (2, 3)]


def test_a_filter_in_an_iteration_reads_what_stands_before_the_iteration():
    total = Relation(Compare("=", each("z"), Arith("+", each("y"), each("x"))))
    formula = Seq(As(A, "x"), Plus(Filter(PAIR, total)))
    stream = events("AABCBC", n=[1, 2, 5, 6, 1, 2])
    # with x = 1 (position 0): 6 = 5 + 1 and 2 = 1 + 1; with x = 2 neither
    assert kept(formula, stream) == [(0, 2, 3), (0, 2, 3, 4, 5), (0, 4, 5)]


def test_variables_of_earlier_iterations_are_not_read():
    formula = Plus(Seq(As(A, "x"), Filter(B, is_("=", "x", "B"))))
    assert (0, 1, 2, 3) in kept(formula, events("ABAB", n=[1, 1, 2, 2]))
    assert kept(formula, events("ABAB", n=[1, 1, 2, 1])) == [(0, 1), (0, 3)]


def test_the_filtered_formula_comes_before_what_stands_outside():
    inner = Filter(Seq(As(A, "x"), B), is_("=", "x", "B"))
    assert kept(Seq(As(A, "x"), inner), events("AAB", n=[9, 1, 1])) == [(0, 1, 2)]
    # x of the filtered formula holds nothing in the branch with C: no test, though an x stands before
    either = Filter(Or(As(A, "x"), C), Relation(Compare("=", each("x"), Const(0))))
    assert kept(Seq(As(A, "x"), either), events("AC", n=[9, 1])) == [(0, 1)]


def test_all_levels_outside_are_united():
    formula = Seq(As(A, "x"), Seq(As(B, "x"), Filter(C, is_(">", "C", "x"))))
    assert kept(formula, events("ABCC", n=[1, 3, 2, 4])) == [(0, 1, 3)]
    assert kept(formula, events("ABCC", n=[3, 1, 2, 4])) == [(0, 1, 3)]


def test_a_filter_may_read_only_what_stands_before():
    formula = Seq(Seq(As(A, "x"), As(B, "y")), Filter(C, is_("<", "x", "y")))
    assert kept(formula, events("ABBC", n=[2, 1, 3, 0])) == [(0, 2, 3)]


def test_variables_of_a_stream_hold_its_events():
    stream = [{**e, "$stream": s} for e, s in zip(events("AAB", n=[1, 2, 2]), "STT", strict=True)]
    formula = As(Plus(A), "x")
    assert kept(Filter(Seq(formula, B), is_("=", "T>x", "B")), stream) == [(0, 1, 2), (0, 2), (1, 2)]
    assert kept(Filter(Seq(formula, B), is_("=", "S>x", "B")), stream) == [(1, 2)]


# --------------------------------------------------------------------------------- examples of papers and users


def test_the_first_expression_of_the_paper_joins_sensors():
    # papers/004, table 1 and expression (1)
    stream = events("TTTHHT", id=[1, 1, 2, 1, 1, 2], value=[22, 24, 32, 70, 68, 33])
    pairs = Seq(As(EventType("T"), "x"), As(EventType("H"), "y"))
    every = [(0, 3), (0, 4), (1, 3), (1, 4), (2, 3), (2, 4)]
    assert kept(pairs, stream) == sorted(every)
    same_id = is_("=", each("x", "id"), each("y", "id"))
    assert kept(Filter(pairs, same_id), stream) == [(0, 3), (0, 4), (1, 3), (1, 4)]


def test_a_chain_of_custody_hands_on_from_holder_to_holder():
    # A hands over to its receiver, who hands over to the next one
    hand = EventType("H")
    steps = Seq(Seq(As(hand, "a"), As(hand, "b")), As(hand, "c"))
    handed = FilterAnd(
        is_("=", each("b", "giver"), each("a", "taker")), is_("=", each("c", "giver"), each("b", "taker"))
    )
    stream = events("HHHH", giver=["ann", "bob", "bob", "cy"], taker=["bob", "cy", "dan", "eve"])
    assert kept(Filter(steps, handed), stream) == [(0, 1, 3)]
    chain = Filter(As(Plus(hand), "h"), is_("=", each("h", "giver"), prev("h", "taker")))
    assert kept(chain, stream) == [(0,), (0, 1), (0, 1, 3), (0, 2), (1,), (1, 3), (2,), (3,)]


def test_differences_of_times_are_compared_with_durations():
    stream = events("ABB", ts=[0, 300_000, 300_001])
    soon = Compare("<=", Arith("-", each("B", "ts"), each("A", "ts")), DurationConst(300_000))
    assert kept(Filter(Seq(A, B), Relation(soon)), stream) == [(0, 1)]


# ------------------------------------------------------------------------------------------------- whole queries


def test_strategies_choose_in_the_window_with_filters_between_events():
    stream = events("AAB", n=[1, 1, 2])
    related = Query(Filter(Seq(A, B), HIGHER), strategy="NEXT", within=("events", 1))
    assert ref.evaluate(related, stream) == [(1, 2, (1, 2))]
    assert ref.evaluate_long(related, stream) == [(1, 2, (1, 2))]
    with pytest.raises(ValueError, match="no strategy but"):
        ref.evaluate_long(Query(Seq(A, B), strategy="NEXT", within=("events", 1), chooses_first=True), stream)


def test_a_filter_on_one_event_of_its_own_is_none_between_events():
    own = Relation(Compare("=", each("A"), Const(1)))
    assert not ref.relates_events(Filter(Seq(A, B), own))
    assert ref.relates_events(Seq(A, Filter(B, own)))
    assert not ref.relates_events(Filter(A, Relation(Compare("=", first("A"), Const(1)))))
    assert ref.relates_events(Filter(Plus(A), Relation(Compare("=", first("A"), Const(1)))))


def test_columns_of_filters_between_events_are_attributes_of_the_query():
    formula = Filter(Seq(A, B), Relation(PredOr(Compare("=", each("A", "p"), prev("B", "q")), IsNull(each("A", "ts")))))
    assert ref.attributes(Query(formula)) == {"p", "q"}
    assert ref.outer_variables(formula) == set()
    assert ref.outer_variables(Filter(B, is_("=", "A", "B"))) == {"A"}


def test_too_many_tests_are_refused_even_if_few_pass():
    stream = events("A" * 9, n=list(range(9)))
    equals = Seq(As(A, "x"), Filter(As(A, "y"), is_("=", "x", "y")))
    assert ref.valuations(equals, stream, most=30) == set()
    with pytest.raises(ref.TooLarge):
        ref.valuations(equals, stream, most=20)  # 81 tests


# ----------------------------------------------------- a second formulation: all choices of positions, then tests

# each test with its truth for the events that it names
CHAIN_TESTS = [
    (Compare("<", each("a"), each("b")), lambda e: _known(e, "ab") and e["a"] < e["b"]),
    (Compare("=", each("a"), each("c")), lambda e: _known(e, "ac") and e["a"] == e["c"]),
    (PredNot(Compare("=", each("b"), each("c"))), lambda e: _known(e, "bc") and e["b"] != e["c"]),
    (
        Compare(">", Arith("*", each("a"), each("b")), each("c")),
        lambda e: _known(e, "abc") and e["a"] * e["b"] > e["c"],
    ),
    (
        PredOr(Compare(">", each("c"), each("a")), IsNull(each("b"))),
        lambda e: e["b"] is None or (_known(e, "ac") and e["c"] > e["a"]),
    ),
    (
        Between(each("c"), each("a"), Arith("+", each("b"), Const(1))),
        lambda e: _known(e, "abc") and e["a"] <= e["c"] <= e["b"] + 1,
    ),
]


def _known(values: dict, names: str) -> bool:
    return all(values[name] is not None for name in names)


values_of_n = st.lists(st.sampled_from([0, 1, 2, 3, None]), min_size=7, max_size=7)
types_of_chain = st.text("AB", min_size=7, max_size=7)


@settings(max_examples=scaled(200), deadline=None)
@given(
    types_of_chain, values_of_n, st.text("AB", min_size=3, max_size=3), st.sets(st.sampled_from(range(6)), min_size=1)
)
def test_chains_are_all_choices_of_positions_that_pass(types, n, steps, tests):
    stream = events(types, n=n)
    chain = Seq(Seq(As(EventType(steps[0]), "a"), As(EventType(steps[1]), "b")), As(EventType(steps[2]), "c"))
    formula: ref.Formula = chain
    for k in tests:
        formula = Filter(formula, Relation(CHAIN_TESTS[k][0]))
    expected = [
        p
        for p in itertools.combinations(range(7), 3)
        if all(types[i] == step for i, step in zip(p, steps, strict=True))
        and all(CHAIN_TESTS[k][1](dict(zip("abc", (n[i] for i in p), strict=True))) for k in tests)
    ]
    assert kept(formula, stream) == sorted(expected)


@settings(max_examples=scaled(200), deadline=None)
@given(types_of_chain, values_of_n)
def test_iterations_are_all_choices_of_positions_that_pass_one_by_one(types, n):
    """`A AS x ; (A AS y ; B AS z FILTER z.n >= y.n + x.n)+`."""
    stream = events(types, n=n)
    test = Relation(Compare(">=", each("z"), Arith("+", each("y"), each("x"))))
    formula = Seq(As(A, "x"), Plus(Filter(Seq(As(A, "y"), As(B, "z")), test)))
    expected = []
    for size in (3, 5, 7):
        for p in itertools.combinations(range(7), size):
            if "".join(types[i] for i in p) != "A" + "AB" * (size // 2):
                continue
            values = [n[i] for i in p]
            pairs = zip(values[1::2], values[2::2], strict=True)
            if None not in values and all(z >= y + values[0] for y, z in pairs):
                expected.append(p)
    assert kept(formula, stream) == sorted(expected)


@settings(max_examples=scaled(200), deadline=None)
@given(types_of_chain, values_of_n, st.sampled_from(["<", "=", ">="]))
def test_prev_compares_neighbours_of_the_variable(types, n, op):
    """`A+ AS x FILTER x.n < PREV(x).n`."""
    stream = events(types, n=n)
    holds = {"<": operator.lt, "=": operator.eq, ">=": operator.ge}[op]
    expected = [
        p
        for size in range(1, 8)
        for p in itertools.combinations(range(7), size)
        if {types[i] for i in p} == {"A"}
        and all(None not in (n[i], n[j]) and holds(n[j], n[i]) for i, j in itertools.pairwise(p))
    ]
    assert kept(Filter(As(Plus(A), "x"), is_(op, "x", prev("x"))), stream) == sorted(expected)


@strategies.property_test()
def test_a_filter_on_the_last_step_is_one_on_the_whole_sequence(data):
    found = data.draw(join_strategies.chains_of_steps(most=3))
    names = [name for _, name, _ in found]
    assume(len(set(names)) == len(names))
    parts = [formula for formula, _, _ in found]
    assume(all(set.isdisjoint(*map(ref.defined_variables, pair)) for pair in itertools.combinations(parts, 2)))
    condition = data.draw(join_strategies.conditions(names))
    before = parts[0] if len(parts) == 2 else Seq(*parts[:2])
    whole, step = Filter(Seq(before, parts[-1]), condition), Seq(before, Filter(parts[-1], condition))
    stream = data.draw(join_strategies.join_streams(Query(whole), 8))
    assert ref.valuations(whole, stream) == ref.valuations(step, stream)


def assert_in_scope(formula: ref.Formula, outer: frozenset[str] = frozenset()) -> None:
    """Check that filters name only what their formula defines, or what stands before it."""
    if isinstance(formula, Filter):
        read = {variable.rpartition(">")[2] for variable, _ in ref.events_read(formula.condition)}
        assert read <= ref.defined_variables(formula.body) | outer
    for part in ref.children(formula):
        if isinstance(part, ref.Formula):
            follows = isinstance(formula, Seq | Contig) and part is formula.right
            assert_in_scope(part, outer | ref.defined_variables(formula.left) if follows else outer)


@strategies.property_test()
def test_random_filters_between_events_name_variables_in_scope(data):
    kinds = {"ambiguous": data.draw(st.booleans()), "typed": data.draw(st.booleans())}
    query, _ = data.draw(join_strategies.join_cases_of_several_streams(**kinds))
    assert_in_scope(query.formula)


@strategies.property_test(share=0.5)
def test_streams_of_filters_between_events_can_be_laid_out(data):
    query, stream = data.draw(join_strategies.full_join_cases())
    timestamps = ref.compares_durations(query.formula)
    layout = data.draw(arrow_streams.layouts(query, stream, timestamps))
    table = arrow_streams.build_table(stream, layout)
    assert table.num_rows == len(stream)
    assert {name.split(".")[0] for name in ref.attributes(query)} <= {*table.column_names}
    assert not timestamps or pa.types.is_timestamp(table.schema.field(ref.TIME).type)


@strategies.property_test()
def test_long_streams_of_filters_between_events_can_be_taken_window_by_window(data):
    query, stream = data.draw(join_strategies.full_join_cases())
    assume(query.within is not None and ref.relates_events(query.formula))
    try:
        whole = ref.bindings(query, stream, most=3000)
        assert ref.bindings_long(query, stream, most=3000) == whole
    except ref.TooLarge:
        assume(False)


# ------------------------------------------------------------------------------------------------------ rendering

TEXTS = [
    (is_(">", each("B", "price"), each("A", "price")), "B.price > A.price"),
    (
        Relation(PredAnd(Compare(">", each("B", "p"), each("A", "p")), Compare("<", each("B", "q"), prev("B", "q")))),
        "B[p > A.p AND q < PREV(B).q]",
    ),
    (Relation(PredNot(Compare("=", first("A"), last("B")))), "A[NOT FIRST(A).n = LAST(B).n]"),
    (FilterOr(is_("=", "A", "B"), Unary("B", Compare(">", Attr("n"), Const(3)))), "A.n = B.n OR B[n > 3]"),
    (Relation(Between(each("B"), Arith("-", each("A"), Const(1)), Const(7), True)), "B.n NOT BETWEEN A.n - 1 AND 7"),
    (Relation(IsNull(Arith("/", each("A"), each("B")))), "A.n / B.n IS NULL"),
    (Relation(IsNull(Arith("/", each("A"), each("B")), True)), "A.n / B.n IS NOT NULL"),
    (Relation(Like(each("A", "s"), "^a")), "A.s LIKE '^a'"),
    (Relation(In(each("A", "s"), (each("B", "t"), Const("a")))), "A.s IN {B.t, 'a'}"),
    (Relation(InRange(each("A"), each("B"), None)), "A.n IN {B.n ..}"),
    (
        is_("<=", Arith("-", each("B", "ts"), each("A", "ts")), DurationConst(300_000)),
        "B.ts - A.ts <= 5 MINUTES",
    ),
    (
        is_(">=", DurationConst(93_600_500), Arith("-", each("B", "ts"), each("A", "ts"))),
        "1 DAYS 2 HOURS 0.5 SECONDS >= B.ts - A.ts",
    ),
    (is_("=", DurationConst(0), Arith("-", each("B", "ts"), each("A", "ts"))), "0 SECONDS = B.ts - A.ts"),
    (Relation(Compare("=", each("S>A", "p"), each("B", "p"))), "S > A[p = B.p]"),
]


@pytest.mark.parametrize(("condition", "text"), TEXTS)
def test_filters_between_events_have_their_plain_text(condition, text):
    assert rendering.to_ceql(Query(Filter(Seq(A, B), condition))) == f"SELECT * FROM S WHERE A ; B FILTER {text}"


def test_a_dotted_attribute_gets_its_variable_where_a_variable_has_its_first_name():
    tests = PredAnd(Compare("=", each("b", "st.n"), each("st", "n")), Compare("=", each("b", "n"), Const(1)))
    formula = Filter(
        Seq(As(A, "st"), As(B, "b")), FilterAnd(Relation(tests), Unary("b", Compare("=", Attr("st.n"), Const(2))))
    )
    assert rendering.to_ceql(Query(formula)).endswith("FILTER b[b.st.n = st.n AND n = 1] AND b[b.st.n = 2]")


def test_one_comparison_has_several_forms():
    query = Query(Filter(Seq(A, B), is_(">", "B", "A")))
    texts = {without_spaces(rendering.to_ceql(query, random.Random(k))) for k in range(300)}
    forms = ["FILTER B[n > A.n]", "FILTER A[B.n > n]", "FILTER B.n > A.n", "FILTER B[B.n > A.n]"]
    assert [form for form in forms if not any(form.replace(" ", "") in text for text in texts)] == []


def without_spaces(text: str) -> str:
    """Return the text without white space and backquotes, in capital keywords."""
    return "".join(text.replace("`", "").split()).replace("filter", "FILTER").replace("Filter", "FILTER")
