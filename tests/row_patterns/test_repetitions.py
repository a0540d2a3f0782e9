"""Repetitions of which functions are read, whose ends are found by sums of ranges, against the reference."""

import math
import operator
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.errors import EventsError
from cer_gpu.row_patterns import repetition_tables, searching
from tests.row_patterns.reference import Running, find_matches
from tests.row_patterns.test_row_matching import written
from tests.strategies import property_settings

SKIPS = {"PAST LAST ROW": "past last row", "TO NEXT ROW": "to next row"}
OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq}


def _total(values):
    """Return the sum of some numbers in their order, or None if there are none; Python's own sum adds more exactly."""
    total = None
    for value in values:
        total = value if total is None else total + value
    return total


def _mean(variable, column):
    def mean(m):
        values = [float(value) for value in m.values(variable, column)]
        return _total([0.0, *values]) / len(values) if values else None

    return mean


def _sum(variable, column):
    return lambda m: _total(m.values(variable, column))


def _count(variable, column=None):
    return lambda m: len(m.positions(variable) if column is None else m.values(variable, column))


def _extreme(variable, column, best):
    return lambda m: best(m.values(variable, column), default=None)


def _of(function, *reads):
    """Return a function of what others read, None if any of it is NULL."""

    def read(m):
        values = [each(m) for each in reads]
        return None if None in values else function(*values)

    return read


def _x(m):
    return m.last(None, "x")


def _f(m):
    return m.last(None, "f")


MEASURED = [
    ("x", "3 * AVG(A.x)", _x, _of(lambda a: 3 * a, _mean("A", "x"))),
    ("f", "AVG(A.f)", _f, _mean("A", "f")),
    ("f", "1.5 * AVG(f)", _f, _of(lambda a: 1.5 * a, _mean(None, "f"))),
    ("f", "AVG(U.f) + 0.25", _f, _of(lambda a: a + 0.25, _mean("U", "f"))),
    ("f", "0.1 - AVG(A.f)", _f, _of(lambda a: 0.1 - a, _mean("A", "f"))),
    (
        "2 * f",
        "AVG(A.x) - AVG(A.f)",
        _of(lambda f: 2 * f, _f),
        _of(lambda a, b: a - b, _mean("A", "x"), _mean("A", "f")),
    ),
    ("f", "SUM(A.f)", _f, _sum("A", "f")),
    ("x", "SUM(A.x)", _x, _sum("A", "x")),
    ("x", "SUM(x) - 2 * SUM(A.x)", _x, _of(lambda a, b: a - 2 * b, _sum(None, "x"), _sum("A", "x"))),
    ("SUM(A.f)", "1.5", _sum("A", "f"), lambda m: 1.5),
    ("f", "SUM(A.f) / COUNT(A.f)", _f, _of(lambda a, n: a / n if n else None, _sum("A", "f"), _count("A", "f"))),
    ("f * COUNT(A.*)", "SUM(A.f)", _of(lambda f, n: f * n, _f, _count("A")), _sum("A", "f")),
    ("COUNT(A.*)", "3", _count("A"), lambda m: 3),
    ("COUNT(*)", "x + COUNT(A.x)", _count(None), _of(lambda x, n: x + n, _x, _count("A", "x"))),
    ("COUNT(A.f)", "2", _count("A", "f"), lambda m: 2),
    ("x", "MIN(A.x)", _x, _extreme("A", "x", min)),
    ("x", "MAX(x) - 1", _x, _of(lambda a: a - 1, _extreme(None, "x", max))),
    ("f", "1.1 * MAX(A.f)", _f, _of(lambda a: 1.1 * a, _extreme("A", "f", max))),
    ("f", "0.5 - MIN(U.f)", _f, _of(lambda a: 0.5 - a, _extreme("U", "f", min))),
    ("AVG(A.f)", "FIRST(A.f)", _mean("A", "f"), lambda m: m.first("A", "f")),
    ("AVG(A.x)", "R.x", _mean("A", "x"), lambda m: m.last("R", "x")),
    (
        "SUM(A.x)",
        "LAST(A.x) + PREV(x)",
        _sum("A", "x"),
        _of(operator.add, lambda m: m.last("A", "x"), lambda m: m.last(None, "x", 0, -1)),
    ),
    ("AVG(A.f)", "MATCH_NUMBER() * 0.5", _mean("A", "f"), lambda m: m.number * 0.5),
    ("ABS(f - AVG(A.f))", "1", _of(lambda a, b: abs(a - b), _f, _mean("A", "f")), lambda m: 1),
    ("COUNT(*) * 0.5", "AVG(A.x)", _of(lambda n: n * 0.5, _count(None)), _mean("A", "x")),
]
OTHERS = [
    ("ts - FIRST(A.ts) <= 4", lambda m: m.last(None, "ts") - m.first("A", "ts") <= 4 if m.positions("A") else None),
    ("ts - R.ts < 6", lambda m: m.last(None, "ts") - m.last("R", "ts") < 6 if m.positions("R") else None),
    ("x > LAST(A.x)", lambda m: _of(operator.gt, _x, lambda m: m.last("A", "x"))(m)),
    ("f >= A.f", lambda m: _of(operator.ge, _f, lambda m: m.last("A", "f"))(m)),
]
LOCAL = [("x > 1", lambda m, v: _of(lambda x: x > 1, _x)(m)), ("k < 2", lambda m, v: m.last(v, "k") < 2)]
A, B, C, R = (("var", v) for v in "ABCR")


def _repeated(p, least=1, greedy=True):
    return ("repeat", p, least, None, greedy)


PATTERNS = {
    "A+ B": ("seq", _repeated(A), B),
    "A+? B": ("seq", _repeated(A, greedy=False), B),
    "A* B": ("seq", _repeated(A, 0), B),
    "R A+ B": ("seq", R, _repeated(A), B),
    "R A*? B": ("seq", R, _repeated(A, 0, greedy=False), B),
    "A+ B C": ("seq", _repeated(A), B, C),
    "A+? B C": ("seq", _repeated(A, greedy=False), B, C),
    "A+ B+ C": ("seq", _repeated(A), _repeated(B), C),
    "A{2,} B": ("seq", _repeated(A, 2), B),
    "(A+ B)+": _repeated(("seq", _repeated(A), B)),
    "A+ B A+? C": ("seq", _repeated(A), B, _repeated(A, greedy=False), C),
    "R A+ B R A+ C": ("seq", R, _repeated(A), B, R, _repeated(A), C),
    "A+ (B | C)": ("seq", _repeated(A), ("alt", B, C)),
}


def _compared(op, left, right, negated):
    def holds(m):
        x, y = left(m), right(m)
        if x is None or y is None:
            return None
        return OPERATORS[op](x, y) != negated

    return holds


def _some(truths):
    truths = list(truths)
    return True if True in truths else None if None in truths else False


def _all(truths):
    truths = list(truths)
    return False if False in truths else None if None in truths else True


@st.composite
def conditions(draw):
    """Return a condition of B or C on functions of the match so far."""
    parts = []
    for _ in range(draw(st.sampled_from([1, 1, 2]))):
        left, right, read_left, read_right = draw(st.sampled_from(MEASURED))
        op, negated = draw(st.sampled_from([*OPERATORS])), draw(st.sampled_from([False, False, True]))
        sql = f"{left} {op} {right}"
        parts.append((f"NOT {sql}" if negated else sql, _compared(op, read_left, read_right, negated)))
    joined, of_all = draw(st.sampled_from([(" AND ", _all), (" AND ", _all), (" OR ", _some)]))
    tests = [test for _, test in parts]
    more = draw(st.lists(st.sampled_from(OTHERS), max_size=1))
    sql = " AND ".join([f"({joined.join(sql for sql, _ in parts)})", *(sql for sql, _ in more)])
    return sql, lambda m: _all([of_all(test(m) for test in tests), *(test(m) for _, test in more)])


@st.composite
def statements(draw):
    name = draw(st.sampled_from([*PATTERNS]))
    define = {v: draw(conditions()) for v in "BC" if v in name}
    if draw(st.booleans()):
        sql, test = draw(st.sampled_from(LOCAL))
        define["A"] = sql, partial(test, v="A")
    if draw(st.booleans()):
        sql, test = draw(st.sampled_from(LOCAL))
        on_others, of_others = define["B"]
        both = partial(test, v="B"), of_others
        define["B"] = f"{sql} AND {on_others}", lambda m: _all(each(m) for each in both)
    return name, define, draw(st.sampled_from([*SKIPS]))


BIG = 2**53
FLOATS = {
    "near": [0.0, 0.1, 0.2, 0.3, 0.7, 1.1, 2.5, -0.0, -0.4],
    "equal": [0.1, 0.1, 0.1, 0.1, 0.3],
    "halves": [0.5, 1.5, 2.0, 3.25, -1.0],
    "wide": [1e300, -1e300, 1e-300, 1e16, 1.0, -1e16, 5e-324, 0.1],
    "huge": [1.7e308, -1.7e308, 1e308, 1.0],
    "some no numbers": [0.0, 0.1, 0.2, 0.3, 0.7, 1.1, 2.5, -0.4, 0.1, 3.0, math.nan, math.inf, -math.inf],
    "no numbers": [0.1, 2.0, math.nan, math.inf, -math.inf],
}
INTEGERS = {
    "small": [0, 1, 2, 3, 4, 9, -2],
    "equal": [1, 1, 1, 1, 2],
    "big": [BIG - 1, BIG, BIG + 1, BIG + 2, 1, -BIG],
    "too big": [2**62, 2**61, -(2**62), 1],
}


@st.composite
def tables(draw):
    n = draw(st.integers(0, 24))
    floats = st.sampled_from(FLOATS[draw(st.sampled_from(["near", "near", *FLOATS]))])
    integers = st.sampled_from(INTEGERS[draw(st.sampled_from(["small", "small", *INTEGERS]))])
    if draw(st.booleans()):
        floats, integers = st.one_of(floats, floats, st.none()), st.one_of(integers, integers, st.none())
    n_keys = draw(st.sampled_from([1, 1, 3]))
    return [{"k": i * n_keys // n, "ts": i // 2, "i": i, "x": draw(integers), "f": draw(floats)} for i in range(n)]


SCHEMA = pa.schema({"k": pa.int64(), "ts": pa.int64(), "i": pa.int64(), "x": pa.int64(), "f": pa.float64()})


def _without(monkeypatch):
    """Let the search extend all repetitions row by row."""

    def none_of(program, conditions, bounds, able, states, columns, read):
        of_place = np.full(len(program.places), -1, np.int64)
        return repetition_tables.RepetitionTables(columns, read).repetitions_of(of_place)

    monkeypatch.setattr(searching, "repetitions_of", none_of)


def _evaluated(query, rows):
    try:
        return query.evaluate(pa.Table.from_pylist(rows, SCHEMA)).to_pylist()
    except EventsError as error:
        return str(error)


@given(statements(), tables(), st.sampled_from([2, 1024]))
@property_settings
def test_matches_are_those_that_sql_prefers(statement, rows, capacity):
    name, define, skip = statement
    tree = PATTERNS[name]
    named = [v for v in "RABC" if f"'{v}'" in str(tree)]
    shown = ", ".join(f"{v} AS {sql}" for v, (sql, _) in define.items())
    lasts = ", ".join(f"LAST({v}.i) AS {v.lower()}, COUNT({v}.*) AS n{v.lower()}" for v in named)
    subset = "A, B" if "B" in named else "A"
    text = (
        f"SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY i MEASURES FIRST(i) AS begun, {lasts} "
        f"AFTER MATCH SKIP {skip} PATTERN ({written(tree)}) SUBSET U = ({subset}) DEFINE {shown})"
    )
    if "R." in shown and "R" not in named:
        text = text.replace("R.", "A.")
        define = {v: (sql, None) for v, (sql, _) in define.items()}
    query = cer_gpu.compile(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "INITIAL_CAPACITY", capacity)
        patch.setattr(searching, "PAUSE", 7)
        by_ranges = _evaluated(query, rows)
        _without(patch)
        assert by_ranges == _evaluated(query, rows)
    plain = all(row[c] is None or (math.isfinite(row[c]) and abs(row[c]) < 2**60) for row in rows for c in "xf")
    if not plain or any(test is None for _, test in define.values()):
        return
    wanted = []
    subsets = {"U": ("A", "B")}
    for key in dict.fromkeys(row["k"] for row in rows):
        part = [row for row in rows if row["k"] == key]
        tests = {v: (lambda m, test=test: test(m) is True) for v, (_, test) in define.items()}
        for match in find_matches(part, tree, tests, skip=SKIPS[skip], subsets=subsets):
            whole = Running(part, match.steps)
            counts = [each for v in named for each in (whole.last(v, "i"), len(whole.positions(v)))]
            wanted.append([key, whole.first(None, "i"), *counts])
    assert [list(row.values()) for row in by_ranges] == wanted


def _found(define, rows, pattern="A+ B", skip=""):
    text = (
        f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(ts) AS begun, LAST(ts) AS ended {skip} "
        f"PATTERN ({pattern}) DEFINE {define})"
    )
    return [tuple(row.values()) for row in cer_gpu.compile(text).evaluate(rows).to_pylist()]


NUMBERS = np.random.default_rng(65).uniform(5, 14, 3000)
SPIKED = np.where(np.arange(3000) % 997 == 996, 100.0, NUMBERS)


@pytest.mark.parametrize(
    ("define", "values", "expected"),
    [
        ("B AS x > 3 * AVG(A.x)", NUMBERS, []),
        ("B AS x > 3 * AVG(A.x)", SPIKED, [(0, 2990)]),
        ("B AS x > 3 * AVG(A.x)", np.where(np.arange(3000) == 10, np.nan, NUMBERS), []),
        ("B AS x > 3 * AVG(A.x)", np.where(np.arange(3000) == 10, np.inf, SPIKED), [(0, 10), (11, 2990)]),
        ("B AS x > 4 * MAX(A.x)", SPIKED, [(0, 996), (997, 1993), (1994, 2990)]),
        ("B AS x < MIN(A.x) - 1", np.arange(3000), []),
        ("B AS x < AVG(A.x)", np.arange(3000), []),
        ("B AS x > AVG(A.x)", np.full(3000, 3), []),
        ("B AS x > AVG(A.x)", np.full(3000, 0.75), []),
        ("B AS x > SUM(A.x)", np.full(3000, 3), []),
        ("B AS SUM(A.x) > 9000 - x AND ts < 2000", np.full(3000, 3), []),
        ("B AS COUNT(A.*) > 2998", np.zeros(3000), [(0, 2999)]),
    ],
)
def test_a_long_repetition_is_not_read_at_each_start(define, values, expected, monkeypatch):
    monkeypatch.setattr(searching, "STEPS_PER_ROW", 40)
    monkeypatch.setattr(searching, "STEPS", 20_000)
    assert _found(define, pa.table({"ts": range(3000), "x": values})) == expected


def test_integers_of_the_match_so_far_are_converted_to_floats():
    rows = pa.table({"ts": [1, 2, 3], "x": [2.0, 2.0, 3.0]})
    assert _found("B AS x > SUM(A.x) / COUNT(A.x)", rows) == [(1, 3)]
    assert _found("B AS x < COUNT(*) * 1.5", rows) == [(1, 3)]
    assert _found("B AS x > 2 * COUNT(A.x) + 0.5", rows) == [(2, 3)]


def test_sums_of_unsigned_integers_are_compared_as_such():
    rows = pa.table({"ts": range(4), "x": pa.array([0, 0, 2, 2], pa.uint64())})
    assert _found("B AS SUM(A.x) > 0", rows) == [(0, 3)]
    assert _found("B AS SUM(A.x) = x AND x > 0", rows) == [(0, 3)]
    assert _found("B AS SUM(A.x) < 1", rows) == [(0, 2)]
    assert _found("B AS x > SUM(A.x)", rows) == [(0, 2)]


def test_a_sum_beyond_its_type_is_an_error_where_it_is_met():
    rows = pa.table({"ts": range(4), "x": [2**62, 2**62, 0, 1]})
    with pytest.raises(EventsError, match="a sum in DEFINE is beyond int64 in the match at row 0"):
        _found("B AS x > SUM(A.x)", rows)
