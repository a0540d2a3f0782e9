"""Conditions on other rows of the match, found by search, against the backtracking reference."""

import itertools
import re

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.errors import EventsError, QueryError, QueryTooLargeError, QueryTypeError
from cer_gpu.row_patterns import conditions, row_matching, searching
from tests.row_patterns.test_statements import (
    CONDITIONS,
    EQUAL,
    LESS,
    MEASURES,
    MODES,
    _compare,
    check,
    statements,
    tables,
)
from tests.strategies import property_settings


def _and(a, b):
    return False if a is False or b is False else None if a is None or b is None else True


def _mean(values):
    return sum(values) / len(values) if values else None


def _plus(a, b):
    return None if a is None or b is None else a + b


OTHERS = [
    ("x < A.x", lambda m, v: LESS(m.last(None, "x"), m.last("A", "x"))),
    ("{v}.x >= LAST(B.x, 1)", lambda m, v: _compare(lambda a, b: a >= b)(m.last(v, "x"), m.last("B", "x", 1))),
    ("NOT f < FIRST(C.f)", lambda m, v: _compare(lambda a, b: not a < b)(m.last(None, "f"), m.first("C", "f"))),
    ("FIRST(x, 1) <> x", lambda m, v: _compare(lambda a, b: a != b)(m.first(None, "x", 1), m.last(None, "x"))),
    ("PREV(LAST(A.x)) = 1", lambda m, v: EQUAL(m.last("A", "x", 0, -1), 1)),
    ("NEXT(FIRST(x)) + 1 > x", lambda m, v: LESS(m.last(None, "x"), _plus(m.first(None, "x", 0, 1), 1))),
    ("s > LAST({v}.s, 1) OR f = 0.5", lambda m, v: _or(LESS(m.last(v, "s", 1), m.last(v, "s")), _half(m.last(v, "f")))),
    ("LAST({v}.x, 1) IS NULL", lambda m, v: m.last(v, "x", 1) is None),
    ("s = 'a' AND A.s LIKE 'a%'", lambda m, v: _and(EQUAL(m.last(v, "s"), "a"), _starts(m.last("A", "s")))),
    ("x < AVG(U.x)", lambda m, v: LESS(m.last(None, "x"), _mean(m.values("U", "x")))),
    ("SUM({v}.x) < 5", lambda m, v: LESS(sum(m.values(v, "x")) if m.values(v, "x") else None, 5)),
    ("SUM(f) + 1 <= 2.5", lambda m, v: LESS(sum(m.values(None, "f")), 1.6) if m.values(None, "f") else None),
    ("COUNT(*) < 4 AND COUNT({v}.s) > 0", lambda m, v: len(m.positions(None)) < 4 and len(m.values(v, "s")) > 0),
    ("COUNT(A.*) <= COUNT(U.x)", lambda m, v: len(m.positions("A")) <= len(m.values("U", "x"))),
    ("x < MAX(x)", lambda m, v: LESS(m.last(None, "x"), max(m.values(None, "x"), default=None))),
    ("MIN(A.s) = s", lambda m, v: EQUAL(min(m.values("A", "s"), default=None), m.last(None, "s"))),
    ("LAST(CLASSIFIER(), 1) = '{v}'", lambda m, v: EQUAL(m.classifier(None, 1), v)),
    ("CLASSIFIER(U) > FIRST(CLASSIFIER())", lambda m, v: LESS(m.classifier(None, -1), m.classifier("U"))),
    ("MATCH_NUMBER() < x", lambda m, v: LESS(m.number, m.last(None, "x"))),
    ("x IN (A.x, 3)", lambda m, v: _or(EQUAL(m.last(None, "x"), m.last("A", "x")), EQUAL(m.last(None, "x"), 3))),
    ("A.ts - ts <= 4", lambda m, v: _within(m.last("A", "ts"), m.last(None, "ts"), 4)),
    ("ts >= B.ts - 3", lambda m, v: _within(m.last("B", "ts"), m.last(None, "ts"), 3)),
    ("FIRST(ts) - ts < 6", lambda m, v: _within(m.first(None, "ts"), m.last(None, "ts"), 5)),
    ("{v}.x BETWEEN A.x - 1 AND A.x + 1 AND ts >= FIRST(C.ts, 1) - 3", lambda m, v: _and(_near(m, v), _soon(m))),
    ("ABS(x - A.x) > f", lambda m, v: LESS(m.last(v, "f"), _distance(m.last(None, "x"), m.last("A", "x")))),
]


def _or(a, b):
    return True if a or b else None if a is None or b is None else False


def _within(before, after, most):
    return None if before is None or after is None else before - after <= most


def _near(m, v):
    distance = _distance(m.last(v, "x"), m.last("A", "x"))
    return None if distance is None else distance <= 1


def _soon(m):
    return _within(m.first("C", "ts", 1), m.last(None, "ts"), 3)


def _half(x):
    return EQUAL(x, 0.5)


def _starts(text):
    return None if text is None else text.startswith("a")


def _distance(a, b):
    return None if a is None or b is None else abs(a - b)


@given(
    statements([*OTHERS, *CONDITIONS[::3]]),
    tables(),
    st.sampled_from([1, 3, row_matching.MATCHES]),
    st.sampled_from([1, 4, conditions.CONDITION_ROWS]),
)
@property_settings
def test_tables_are_those_of_the_reference(statement, rows, n_matches, n_rows):
    check(statement, rows, n_matches, n_rows)


NEAR = [
    ("ts >= A.ts - 4", lambda m, v: _within(m.last("A", "ts"), m.last(None, "ts"), 4)),
    ("{v}.x BETWEEN A.x - 1 AND A.x + 1", _near),
    ("x = A.x", lambda m, v: EQUAL(m.last(v, "x"), m.last("A", "x"))),
    ("FIRST(x) < {v}.x", lambda m, v: LESS(m.last("A", "x"), m.last(v, "x"))),
    ("NOT A.x <= x", lambda m, v: LESS(m.last(v, "x"), m.last("A", "x"))),
    ("s >= A.s", lambda m, v: _compare(lambda a, b: a >= b)(m.last(v, "s"), m.last("A", "s"))),
    ("f = A.f", lambda m, v: EQUAL(m.last(v, "f"), m.last("A", "f"))),
    ("x <> A.x", lambda m, v: _compare(lambda a, b: a != b)(m.last(v, "x"), m.last("A", "x"))),
]


@st.composite
def gaps_to_near_rows(draw):
    """Return statements such as A Z* B Z* C, whose B and C are compared with A."""
    drawn = st.tuples(st.sampled_from([0, 0, 1, 2]), st.booleans())
    gaps = [("repeat", ("var", "Z"), least, None, greedy) for least, greedy in draw(st.tuples(drawn, drawn))]
    tree = ("seq", ("var", "A"), gaps[0], ("var", "B"))
    tree = draw(
        st.sampled_from(
            [tree, (*tree, gaps[1], ("var", "C")), (*tree, ("repeat", ("seq", gaps[1], ("var", "C")), 0, 1, True))]
        )
    )
    chosen = {"A": draw(st.sampled_from(CONDITIONS))}
    for v in "BC":
        parts = draw(st.lists(st.sampled_from([*NEAR, *NEAR[:2], *OTHERS[:3]]), min_size=1, max_size=3))
        chosen[v] = (
            " AND ".join(f"({sql})" for sql, _ in parts),
            lambda m, v, parts=parts: _all(test(m, v) for _, test in parts),
        )
    chosen = {v: each for v, each in chosen.items() if v in str(tree)}
    skip = draw(st.sampled_from(["", "AFTER MATCH SKIP TO NEXT ROW", "AFTER MATCH SKIP TO FIRST B"]))
    needs = " ".join(sql or "" for sql, _ in chosen.values())
    assume("C" in chosen or not re.search(r"\bC\.", needs))
    measures = [(MEASURES[k], "") for k in (0, 6, 14)]
    return tree, chosen, measures, skip, draw(st.sampled_from(MODES[:2])), False


@given(gaps_to_near_rows(), tables(), st.sampled_from([1, 4, conditions.CONDITION_ROWS]))
@property_settings
def test_gaps_to_rows_compared_with_the_first_are_those_of_the_reference(statement, rows, n_rows):
    check(statement, rows, row_matching.MATCHES, n_rows)


def _all(truths):
    truths = list(truths)
    return False if False in truths else None if None in truths else True


@pytest.mark.parametrize("greedy", [True, False])
def test_a_gap_to_more_rows_than_fit_at_first(greedy):
    rows = pa.table({"ts": range(4000), "x": [0] * 1999 + [1] + [0] * 2000})
    gap = "Z*" if greedy else "Z*?"
    define = "A AS x = 1, B AS ts >= A.ts AND ts <= A.ts + 1500, C AS x < A.x AND ts <= A.ts + 1600"
    last = [(1999, 1999 + 1500, 1999 + 1600)] if greedy else [(1999, 2000, 2001)]
    assert found(define, rows, f"A {gap} B {gap} C", "A.ts AS a, B.ts AS b, C.ts AS c") == last


def found(define, rows, pattern="A B+", measures="COUNT(*) AS n", rest="ONE ROW PER MATCH"):
    text = f"SELECT * FROM t MATCH_RECOGNIZE (MEASURES {measures} {rest} PATTERN ({pattern}) DEFINE {define})"
    return [tuple(row.values()) for row in cer_gpu.compile(text).evaluate(rows).to_pylist()]


BIG = 2**53
TYPES = [
    pa.table({"x": pa.array([BIG + 1, BIG, BIG + 2], pa.int64())}),
    pa.table({"x": pa.array([BIG + 1, BIG, BIG + 2], pa.uint64())}),
    pa.table({"x": pa.array([BIG + 1, BIG, BIG + 2], pa.decimal128(18, 2))}),
    pa.table({"x": pa.array([BIG + 1, BIG, BIG + 2], pa.timestamp("us"))}),
    pa.table({"x": pa.array([BIG + 1, BIG, BIG + 2], pa.duration("ns"))}),
    pa.table({"x": pa.array(["b", "a", "c"])}),
    pa.table({"x": pa.array(["b", "a", "c"]).dictionary_encode()}),
    pa.table({"x": pa.array(["b", "a", "c"], pa.string_view())}),
    pa.table({"x": pa.array([1.5, -0.0, 2.5], pa.float32())}),
]


@pytest.mark.parametrize("rows", TYPES, ids=lambda rows: str(rows["x"].type))
def test_values_of_every_type_are_compared_exactly(rows):
    assert found("B AS x < A.x", rows) == [(2,)]
    assert found("B AS x > A.x", rows) == [(2,)]
    assert found("A AS x > FIRST(A.x)", rows, pattern="A+") == []
    assert found("B AS x < A.x AND A.x = MAX(x) AND x = MIN(x)", rows, rest="AFTER MATCH SKIP TO NEXT ROW") == [(2,)]


def test_the_least_integer_is_the_minimum():
    rows = pa.table({"t": range(4), "x": [5, -(2**63), 0, 7]})
    measures = "MIN(x) AS low, MAX(x) AS high, COUNT(*) AS n"
    assert found("A AS t < 2, C AS MIN(A.x) < -10", rows, "A+ C", measures) == [(-(2**63), 5, 3)]
    rows = pa.table({"t": range(4), "x": [5.0, float("nan"), float("-inf"), 7.0]})
    ((low, high),) = found("A AS t < 3, C AS MIN(A.x) < -10", rows, "A+ C", "MIN(x) AS low, MAX(x) AS high")
    assert low == float("-inf")
    assert high != high


def test_integers_and_floats_meet_exactly():
    rows = pa.table({"x": [BIG + 1, BIG], "f": [0.0, float(BIG)]})
    assert found("B AS f < A.x", rows) == [(2,)]
    assert found("B AS f = A.x", rows) == []


def test_times_are_compared_by_their_difference():
    rows = pa.table({"ts": pa.array([0, 60, 200, 400], pa.timestamp("s"))})
    assert found("B AS ts - A.ts <= INTERVAL '4' MINUTE", rows) == [(3,)]
    assert found("B AS ts <= A.ts + INTERVAL '4' MINUTE", rows) == [(3,)]
    assert found("B AS ts - INTERVAL '4' MINUTE <= FIRST(ts)", rows) == [(3,)]
    assert found("B AS ts - A.ts <= INTERVAL '4' MINUTE AND COUNT(*) < 3", rows) == [(2,), (2,)]


SUMS = [2**i for i in range(30)]
"""Numbers of which each choice has another sum."""


def test_a_search_that_takes_too_long_names_the_row_and_the_ways_out(monkeypatch):
    monkeypatch.setattr(searching, "STEPS", 1000)
    monkeypatch.setattr(searching, "STEPS_PER_ROW", 10)
    rows = pa.table({"x": SUMS})
    with pytest.raises(QueryTooLargeError, match=r"match at row 0 .* goes beyond 1,000 steps,") as caught:
        found("A AS x > 0, X AS SUM(A.x) > 1E12", rows, pattern="(A | B)* X")
    assert re.search(r"hint: bound a repetition as in B\{1,100\}", str(caught.value))
    assert found("C AS x > A.x", pa.table({"x": [1] * 30}), pattern="A B+ C") == []  # a square of the rows is within it
    with pytest.raises(QueryTooLargeError, match=r"match at row \d+ .* goes beyond 1,600 steps for all rows,"):
        found("C AS x > A.x", pa.table({"x": [1] * 60}), pattern="A B+ C")


def test_an_interrupt_is_seen_within_the_search_for_one_match(monkeypatch):
    monkeypatch.setattr(searching, "PAUSE", 50)
    monkeypatch.setattr(searching, "INITIAL_CAPACITY", 8)
    calls = []
    search = searching.k.search

    def counted(plan, memory, *rest):
        found = search(plan, memory, *rest)
        calls.append((found[0], found[3], memory[-2][searching.k.STEPS]))
        if len(calls) == 100:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(searching.k, "search", counted)
    rows = pa.table({"x": SUMS})
    with pytest.raises(KeyboardInterrupt):
        found("A AS COUNT(A.x) > 0, C AS SUM(A.x) > 1E12", rows, "(A | B)+ C")
    assert {row for _, row, _ in calls} == {0}
    steps = [n for _, _, n in calls]
    assert all(0 < b - a <= 50 for a, b in itertools.pairwise(steps))
    assert [outcome for outcome, *_ in calls].count(searching.k.DEEP) == 2
    assert steps[-1] > 4500


def test_a_sum_that_may_fall_ends_no_search():
    define = "C AS SUM(x) <= 1"
    assert found(define, pa.table({"x": [1, 2, 3, 4]}), "A B* C", "COUNT(*) AS n, MAX(x) AS high") == []
    assert found(define, pa.table({"x": [1, 2, 3, -5]}), "A B* C", "COUNT(*) AS n, MAX(x) AS high") == [(4, 3)]
    assert found(define, pa.table({"x": [1.0, 2.0, -5.0]}), "A B* C", "COUNT(*) AS n, MAX(x) AS high") == [(3, 2.0)]
    assert found(define, pa.table({"x": [None, None, 1]}), "A B* C", "COUNT(*) AS n, MAX(x) AS high") == [(3, 1)]


def test_a_sum_beyond_its_type_is_an_error():
    with pytest.raises(EventsError, match="a sum in DEFINE is beyond int64 in the match at row 0"):
        found("A AS SUM(x) > 0", pa.table({"x": [2**62, 2**62]}), pattern="A+")
    with pytest.raises(EventsError, match=r"SUM\(x\) adds up uint64, of which a value needs more than 63 bits"):
        found("A AS SUM(x) > 0", pa.table({"x": pa.array([2**63], pa.uint64())}), pattern="A+")


@pytest.mark.parametrize(
    ("define", "message"),
    [
        ("B AS x < FINAL LAST(A.x)", "FINAL has no meaning in DEFINE"),
        ("B AS ARRAY_AGG(A.x) IS NULL", "ARRAY_AGG is not supported in DEFINE"),
        ("B AS SUM(d) > 1", "which DEFINE cannot compare"),
        ("B AS AVG(s) > 1", "AVG needs numbers"),
        ("B AS ROUND(AVG(x)) > A.x", "round of AVG(x) is not supported"),
        ("B AS x < A.s", "cannot compare"),
        ("B AS x < A.y", "the events have no column 'y'"),
        ("B AS AVG(x) > A.s", "cannot compare"),
    ],
)
def test_what_is_wrong_or_not_supported_is_told(define, message):
    schema = pa.schema({"x": pa.int64(), "s": pa.string(), "d": pa.decimal128(9, 2)})
    text = f"SELECT * FROM t MATCH_RECOGNIZE (MEASURES COUNT(*) AS n PATTERN (A B) DEFINE {define})"
    with pytest.raises((QueryError, QueryTypeError), match=re.escape(message)):
        cer_gpu.compile(text, schema=schema)


@pytest.mark.parametrize("define", ["CLASSIFIER() LIKE 'B%'", "LOWER(CLASSIFIER()) = 'b'", "COUNT(*) > 1", "TRUE"])
def test_conditions_may_read_no_column(define):
    assert found(f"B AS {define}", pa.table({"x": [1, 2, 3]})) == [(3,)]


def test_columns_may_have_names_of_functions():
    rows = pa.table({"x": [1, 2, 3], "COUNT(*)": [7, 8, 9], "CLASSIFIER()": ["B", "B", "B"]})
    assert found('B AS COUNT(*) <= 2 AND "COUNT(*)" = 8', rows) == [(2,)]
    assert found("B AS FIRST(CLASSIFIER()) = 'A' AND \"CLASSIFIER()\" = 'B'", rows) == [(3,)]


def test_a_pattern_without_a_first_row_has_no_match():
    text = "SELECT * FROM t MATCH_RECOGNIZE (MEASURES COUNT(*) AS n PATTERN ($ B) DEFINE B AS x >= LAST(B.x, 1))"
    assert cer_gpu.compile(text).evaluate(pa.table({"x": [1, 2]})).num_rows == 0
