"""Predicates over columns of every type, equal to plain three-valued Python, and errors of types that do not fit.

The arithmetic of cer_gpu/expressions/numbers.py is written once more here, row by row.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.ceql.parser import parse
from cer_gpu.columnar.columns import Block
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.targets.numpy import rows_of

OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
LOW, HIGH = -(2**63), 2**63 - 1
ANY_OPERATOR = st.sampled_from(list(OPERATORS))


def query_of(predicate: str) -> str:
    return f"SELECT * FROM S WHERE S FILTER S[{predicate}]"


def answers(predicate: str, columns: dict[str, pa.Array] | pa.RecordBatch) -> list[bool | None]:
    """Return the truth of a predicate on each row (None: neither), by the tests of it and of its negation."""
    batch = columns if isinstance(columns, pa.RecordBatch) else pa.record_batch(columns)
    text = query_of(predicate)
    tree = parse(text).formula.filter.predicate
    binder = Binder(batch.schema, text)
    block = Block(batch)
    yes, no = (
        np.broadcast_to(rows_of(binder.bind(tree, negated), binder.inputs, block), batch.num_rows)
        for negated in (False, True)
    )
    assert not (yes & no).any()
    return [True if y else False if n else None for y, n in zip(yes.tolist(), no.tolist(), strict=True)]


def each(op: str, left: list, right: Any) -> list[bool | None]:
    """Return `left op right` of Python values; `right` is one value, or one for each."""
    rights = right if isinstance(right, list) else [right] * len(left)
    compare = OPERATORS[op]
    return [None if a is None or b is None else compare(a, b) for a, b in zip(left, rights, strict=True)]


def literal(value: float) -> str:
    """Return a number as CEQL writes it."""
    text = repr(abs(value))
    return f"-{text}" if math.copysign(1, value) < 0 else text


# ---- integers and floats --------------------------------------------------------------------------------------------

INTEGER_TYPES = [pa.from_numpy_dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]


def edges(data_type: pa.DataType) -> list[int | None]:
    info = np.iinfo(data_type.to_pandas_dtype())
    near = {info.min, info.min + 1, -1, 0, 1, 2**31, 2**53, 2**53 + 1, HIGH, 2**63, info.max - 1, info.max}
    return [*sorted(v for v in near if info.min <= v <= info.max), None]


@pytest.mark.parametrize("data_type", INTEGER_TYPES, ids=str)
@pytest.mark.parametrize("op", OPERATORS)
def test_integers_compare_exactly_with_literals_of_any_size(data_type, op):
    values = edges(data_type)
    column = pa.array(values, data_type)
    for bound in {*values, -129, 256, LOW, HIGH, 2**63, 2**64 - 1} - {None}:
        assert answers(f"x {op} {bound}", {"x": column}) == each(op, values, bound)
        assert answers(f"{bound} {op} x", {"x": column}) == each(op, [bound] * len(values), values)


@pytest.mark.parametrize("op", OPERATORS)
def test_integers_of_two_types_compare_exactly(op):
    for a in INTEGER_TYPES:
        for b in (pa.int8(), pa.int64(), pa.uint64()):
            pairs = [(x, y) for x in edges(a) for y in edges(b)]
            xs, ys = ([p[k] for p in pairs] for k in (0, 1))
            assert answers(f"x {op} y", {"x": pa.array(xs, a), "y": pa.array(ys, b)}) == each(op, xs, ys), (a, b)


FLOATS = [0.0, -0.0, 1.5, -1.5, 2.0**53, math.inf, -math.inf, math.nan, 5e-324, 1.7e308, None]


@pytest.mark.parametrize("data_type", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("op", OPERATORS)
def test_floats_compare_as_ieee_754(data_type, op):
    column = pa.array(FLOATS, data_type) if data_type != pa.float16() else pa.array(FLOATS[:4] + FLOATS[5:8], data_type)
    values = column.to_pylist()
    for bound in (0, 1.5, -1.5, 2**53 + 1, 1e308):
        assert answers(f"x {op} {literal(bound)}", {"x": column}) == each(op, values, float(bound))
    pairs = [(x, y) for x in values for y in values]
    xs, ys = ([p[k] for p in pairs] for k in (0, 1))
    both = {"x": pa.array(xs, data_type), "y": pa.array(ys, pa.float64())}
    assert answers(f"x {op} y", both) == each(op, xs, ys)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("data_type", [pa.int8(), pa.int64(), pa.uint64()], ids=str)
def test_an_integer_that_meets_a_float_becomes_a_float64(op, data_type):
    xs = edges(data_type)
    rounded = [None if x is None else float(x) for x in xs]
    for y in FLOATS:
        columns = {"x": pa.array(xs, data_type), "y": pa.array([y] * len(xs), pa.float64())}
        assert answers(f"x {op} y", columns) == each(op, rounded, [y] * len(xs))
    for bound in (0.5, 9007199254740992.0, 1e19):
        assert answers(f"x {op} {bound}", {"x": pa.array(xs, data_type)}) == each(op, rounded, bound)


def test_nan_equals_nothing_and_zero_has_no_sign():
    xs = {"x": pa.array([math.nan, 0.0, -0.0, None])}
    assert answers("x = x", xs) == [False, True, True, None]
    assert answers("x <> x", xs) == [True, False, False, None]
    assert answers("x = -0.0", xs) == [False, True, True, None]
    assert answers("1 / x > 0", xs) == [False, True, False, None]


# ---- arithmetic -----------------------------------------------------------------------------------------------------


def integer_arithmetic(op: str, a: int, b: int) -> int | None:
    if op in "+-*":
        return {"+": a + b, "-": a - b, "*": a * b}[op]
    if b == 0:
        return None
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if op == "/" else a - quotient * b


def float_arithmetic(op: str, a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        x, y = np.float64(a), np.float64(b)
        return float({"+": x + y, "-": x - y, "*": x * y, "/": x / y, "%": np.fmod(x, y)}[op])


EDGE_INTS = st.sampled_from([LOW, LOW + 1, -7, -2, -1, 0, 1, 2, 7, 2**53 + 1, HIGH]) | st.integers(LOW, HIGH)
EDGE_FLOATS = st.sampled_from([f for f in FLOATS if f is not None]) | st.floats()


@given(st.sampled_from("+-*/%"), st.lists(st.tuples(EDGE_INTS, EDGE_INTS), min_size=1, max_size=20), EDGE_INTS)
@settings(deadline=None)
def test_integer_arithmetic_is_exact_and_truncates(op, pairs, bound):
    xs, ys = ([p[k] for p in pairs] for k in (0, 1))
    expected = [integer_arithmetic(op, x, y) for x, y in pairs]
    columns = {"x": pa.array(xs), "y": pa.array(ys)}
    assert answers(f"x {op} y <= {bound}", columns) == each("<=", expected, bound)
    by_literal = [integer_arithmetic(op, x, bound) for x in xs]
    assert answers(f"x {op} ({bound}) = y", columns) == each("=", by_literal, ys)
    from_literal = [integer_arithmetic(op, bound, x) for x in xs]
    assert answers(f"({bound}) {op} x < -y", columns) == each("<", from_literal, [-y for y in ys])


@given(st.sampled_from("+-*/%"), st.lists(st.tuples(EDGE_FLOATS, EDGE_INTS), min_size=1, max_size=20))
@settings(deadline=None)
def test_float_arithmetic_is_ieee_754(op, pairs):
    xs, ys = ([p[k] for p in pairs] for k in (0, 1))
    expected = [float_arithmetic(op, x, float(y)) for x, y in pairs]
    columns = {"x": pa.array(xs, pa.float64()), "y": pa.array(ys)}
    assert answers(f"x {op} y > 1", columns) == each(">", expected, 1.0)
    assert answers(f"-(x {op} y) >= x", columns) == each(">=", [-e for e in expected], xs)


@given(st.sampled_from("+-*/%"), EDGE_INTS, EDGE_INTS)
@settings(deadline=None)
def test_literals_and_columns_have_the_same_arithmetic(op, a, b):
    expected = integer_arithmetic(op, a, b)
    x = expected if expected is not None and LOW <= expected <= HIGH else 3
    assert answers(f"({a}) {op} ({b}) = x", {"x": pa.array([x, 3], pa.int64())})[0] == (
        None if expected is None else expected == x
    )


def test_arithmetic_on_columns_of_any_type_does_not_wrap_around():
    assert answers("x + x = 254", {"x": pa.array([127], pa.int8())}) == [True]
    assert answers("x - 1 = 4294967294", {"x": pa.array([2**32 - 1], pa.uint32())}) == [True]
    assert answers("x + 1 > 18446744073709551615", {"x": pa.array([2**64 - 1, 7], pa.uint64())}) == [True, False]
    assert answers("-x < 0", {"x": pa.array([LOW, 5, None])}) == [False, True, None]
    assert answers("x * x * x * x > x * x * x", {"x": pa.array([LOW, 1, HIGH, None])}) == [True, False, True, None]


def test_null_in_arithmetic_and_division_by_zero_are_unknown():
    xs = {"x": pa.array([1, None, 0]), "y": pa.array([0, 1, 2])}
    assert answers("x / y = 0", xs) == [None, None, True]
    assert answers("x % y = 0", xs) == [None, None, True]
    assert answers("1 / 0 = 1", xs) == [None] * 3
    assert answers("x * 1.0 / y > 1000", xs) == [True, None, False]


# ---- decimals -------------------------------------------------------------------------------------------------------

DECIMAL_TYPES = [
    pa.decimal32(6, 2),
    pa.decimal64(12, 2),
    pa.decimal128(6, 2),
    pa.decimal128(18, 2),
    pa.decimal128(19, 2),
    pa.decimal128(38, 2),
    pa.decimal256(6, 2),
    pa.decimal256(40, 2),
    pa.decimal256(76, 2),
]
CENTS = [-999_999, -125, -1, 0, 1, 124, 125, 126, 999_999]


@pytest.mark.long("every type of decimals")
@pytest.mark.parametrize("data_type", DECIMAL_TYPES, ids=str)
@pytest.mark.parametrize("op", OPERATORS)
def test_decimals_compare_exactly_with_literals(data_type, op):
    values = [*(Decimal(c).scaleb(-2) for c in CENTS), None]
    column = pa.array(values, data_type)
    for bound in ("1.25", "1.249", "1.2500000001", "-0.01", "0", "125", "-99999999999999", "1e300", "1.25e0"):
        assert answers(f"x {op} {bound}", {"x": column}) == each(op, values, Fraction(bound)), bound
        assert answers(f"{bound} {op} x", {"x": column}) == each(op, [Fraction(bound)] * 10, values), bound


@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        (pa.decimal128(5, -2), [100, -300, 9_999_900]),
        (pa.decimal128(30, -2), [100, -300, 10**29]),
        (pa.decimal256(76, 0), [100, 10**75, -(10**76) + 1]),
        (pa.decimal256(76, 76), [Decimal("0.25"), Decimal("-0.5"), Decimal(1).scaleb(-76)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("op", OPERATORS)
def test_decimals_at_the_ends_of_their_types_compare_exactly(data_type, values, op):
    column = pa.array([Decimal(v) for v in values], data_type)
    for bound in ("100", "-300", "99.5", "0.25", "1e75", "1e76", "-1e77", "0", "1e-76", "1e-77"):
        assert answers(f"x {op} {bound}", {"x": column}) == each(op, values, Fraction(bound)), bound


@pytest.mark.parametrize("op", OPERATORS)
def test_decimals_compare_exactly_with_each_other_and_with_integers(op):
    big = 12_345_678_901_234_567
    xs = [Decimal(big).scaleb(-2), Decimal(big + 1).scaleb(-2), Decimal(5), None]
    ys = [Decimal(big).scaleb(-2), Decimal(big).scaleb(-2) + Decimal("0.001"), Decimal(5), Decimal(1)]
    columns = {"x": pa.array(xs, pa.decimal128(17, 2)), "y": pa.array(ys, pa.decimal256(40, 3))}
    assert answers(f"x {op} y", columns) == each(op, xs, ys)
    ns = [2**64 - 1, 2**53 + 1, 5, 0]
    ds = [Decimal(2**64 - 1), Decimal(2**53), Decimal("4.99"), None]
    columns = {"n": pa.array(ns, pa.uint64()), "d": pa.array(ds, pa.decimal128(30, 2))}
    assert answers(f"n {op} d", columns) == each(op, ns, ds)
    assert answers(f"d {op} n", columns) == each(op, ds, ns)


def test_decimals_compare_with_durations_as_integers():
    columns = {"x": pa.array([Decimal("1.5"), Decimal(2), None]), "t": pa.array([1, 2, 3], pa.duration("s"))}
    assert answers("x = t", columns) == [False, True, None]
    assert answers("t < x", columns) == [True, False, None]


@pytest.mark.parametrize("op", OPERATORS)
def test_decimals_with_floats_and_in_arithmetic_are_floats(op):
    xs, ys = [Decimal("0.10"), Decimal("1.50"), None, Decimal("2.00")], [0.1, math.nan, 1.0, 2.5]
    columns = {"x": pa.array(xs, pa.decimal128(5, 2)), "y": pa.array(ys)}
    floats = [None if x is None else float(x) for x in xs]
    assert answers(f"x {op} y", columns) == each(op, floats, ys)
    assert answers(f"x * 2 {op} 3", columns) == each(op, [None if f is None else f * 2 for f in floats], 3.0)
    assert answers(f"-x {op} -1.5", columns) == each(op, [None if f is None else -f for f in floats], -1.5)
    assert answers(f"x {op} 1 + 1", columns) == each(op, floats, 2.0)


# ---- strings --------------------------------------------------------------------------------------------------------

TEXTS = ["", "a", "A", "ab", "b", "it's", "ö", "z", "\uffff", "\U0001f600", None]


def string_columns(texts: list[str | None]) -> list[pa.Array]:
    pairs = [pa.array(texts, t) for t in (pa.string(), pa.large_string(), pa.string_view())]
    values = pa.array([*texts, None, "unused", *texts])
    codes = [None if t is None else i + (i % 2) * (len(texts) + 2) for i, t in enumerate(texts)]
    pairs += [
        pa.DictionaryArray.from_arrays(pa.array(codes, index), values.cast(t))
        for index in (pa.int8(), pa.uint64())
        for t in (pa.string(), pa.large_string(), pa.string_view())
    ]
    return pairs


@pytest.mark.parametrize("column", string_columns(TEXTS), ids=lambda c: str(c.type))
def test_strings_of_any_layout_compare_by_code_points(column):
    for op in OPERATORS:
        for text in ("", "a", "it's", "ö", "\U0001f600", "unused"):
            quoted = text.replace("'", "''")
            assert answers(f"x {op} '{quoted}'", {"x": column}) == each(op, TEXTS, text)
            assert answers(f"'{quoted}' {op} x", {"x": column}) == each(op, [text] * len(TEXTS), TEXTS)
        assert answers(f"x {op} y", {"x": column, "y": pa.array(TEXTS[::-1])}) == each(op, TEXTS, TEXTS[::-1])
    found = [None if t is None else t in ("a", "ö", "none") for t in TEXTS]
    assert answers("x IN {'a', 'ö', 'none'}", {"x": column}) == found
    assert answers("x NOT IN {'a', 'ö', 'none'}", {"x": column}) == [None if f is None else not f for f in found]
    assert answers("x IN {'a'..'b'}", {"x": column}) == [None if t is None else "a" <= t <= "b" for t in TEXTS]
    for pattern in ("^a", "b$", "", "[^a-z]", "(?i)A"):
        matched = [None if t is None else re.search(pattern, t) is not None for t in TEXTS]
        assert answers(f"x LIKE '{pattern}'", {"x": column}) == matched
    assert answers("x = x AND x IN {x, 'a'}", {"x": column}) == [None if t is None else True for t in TEXTS]


def test_strings_of_two_dictionaries_compare_by_their_texts():
    for other in string_columns(TEXTS[::-1]):
        for column in string_columns(TEXTS):
            assert answers("x < y", {"x": column, "y": other}) == each("<", TEXTS, TEXTS[::-1])


def test_dictionaries_may_change_from_batch_to_batch():
    query = cer_gpu.compile("SELECT * WHERE A ; B FILTER A[x = 'p']")
    evaluator = query.evaluator()

    def batch(types, xs):
        dictionary = [pa.array(sorted(set(v), reverse=True)) for v in (types, xs)]
        codes = [[d.to_pylist().index(v) for v in vs] for d, vs in zip(dictionary, (types, xs), strict=True)]
        arrays = [
            pa.DictionaryArray.from_arrays(pa.array(c, pa.int8()), d) for c, d in zip(codes, dictionary, strict=True)
        ]
        return pa.record_batch(arrays, names=["type", "x"])

    found = [
        evaluator.push(batch(["A", "B"], ["p", "q"])),
        evaluator.push(batch(["B", "A", "C"], ["p", "q", "r"])),
        evaluator.push(batch(["B"], ["p"])),
    ]
    assert [f["positions"].to_pylist() for f in found] == [[[0, 1]], [[0, 2]], [[0, 5]]]


# ---- booleans, NULL and logic ---------------------------------------------------------------------------------------


def test_booleans_compare_by_equality():
    xs, ys = [True, False, None, True], [True, True, True, None]
    columns = {"x": pa.array(xs), "y": pa.array(ys)}
    for op in ("=", "<>"):
        assert answers(f"x {op} TRUE", columns) == each(op, xs, True)
        assert answers(f"FALSE {op} x", columns) == each(op, [False] * 4, xs)
        assert answers(f"x {op} y", columns) == each(op, xs, ys)
    assert answers("x IN {TRUE}", columns) == xs
    assert answers("x IN {TRUE, FALSE}", columns) == [True, True, None, True]


def test_a_column_of_the_null_type_makes_any_test_unknown():
    columns = {"x": pa.nulls(2), "y": pa.array([1, None])}
    for predicate in ("x = 1", "x < 'a'", "x = TRUE", "x = y", "x + 1 = 2", "-x = 1", "x LIKE 'a'", "x IN {1, 'a'}"):
        assert answers(predicate, columns) == [None, None]
    assert answers("x = 1 OR y = 1", columns) == [True, None]
    assert answers("x = 1 AND y = 2", columns) == [False, None]


def test_literals_alone_are_compared():
    columns = {"x": pa.array([1, None])}
    assert answers("1 < 2", columns) == [True, True]
    assert answers("'a' > 'b'", columns) == [False, False]
    assert answers("TRUE = FALSE OR x = 1", columns) == [True, None]
    assert answers("5 % 3 = 2 AND NOT 1 = 1.0", columns) == [False, False]


def test_in_is_three_valued():
    xs = [1, 2, 3, None]
    columns = {"x": pa.array(xs), "y": pa.array([3, None, 3, 3])}
    assert answers("x IN {1, 2.5, y}", columns) == [True, None, True, None]
    assert answers("x NOT IN {1, 2.5, y}", columns) == [False, None, False, None]
    assert answers("x IN {2..}", columns) == [False, True, True, None]
    assert answers("x IN {..2}", columns) == [True, True, False, None]
    assert answers("x IN {1.5..2.5}", columns) == [False, True, False, None]
    assert answers("x IN RANGE(y - 1, y)", columns) == [False, None, True, None]


@st.composite
def trees(draw, depth: int = 3) -> tuple[str, Callable[[dict[str, bool | None]], bool | None]]:
    """Draw a predicate over p, q, r, and its truth in Kleene's logic."""
    kind = draw(st.sampled_from(["leaf", "leaf", "not", "and", "or"])) if depth else "leaf"
    if kind == "leaf":
        name = draw(st.sampled_from("pqr"))
        return f"{name} = TRUE", lambda row: row[name]
    text, truth = draw(trees(depth - 1))
    if kind == "not":
        return f"NOT ({text})", lambda row: None if truth(row) is None else not truth(row)
    other_text, other = draw(trees(depth - 1))
    decisive = kind == "or"

    def value(row):
        both = (truth(row), other(row))
        return decisive if decisive in both else None if None in both else not decisive

    return f"({text} {kind.upper()} {other_text})", value


@given(trees())
@settings(max_examples=60, deadline=None)
def test_logic_is_kleenes(tree):
    text, truth = tree
    three = (True, False, None)
    rows = [{"p": p, "q": q, "r": r} for p in three for q in three for r in three]
    columns = {name: pa.array([row[name] for row in rows], pa.bool_()) for name in "pqr"}
    assert answers(text, columns) == [truth(row) for row in rows]


# ---- moments --------------------------------------------------------------------------------------------------------

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
SECOND = int(dt.datetime(2013, 1, 31, 12, 30, tzinfo=dt.UTC).timestamp())


def moments(numbers: list[int | None], data_type: pa.DataType) -> pa.Array:
    storage = pa.int32() if data_type.bit_width == 32 else pa.int64()
    return pa.array(numbers, storage).view(data_type)


@pytest.mark.long("every unit and operator")
@pytest.mark.parametrize("unit", PER_SECOND)
@pytest.mark.parametrize("op", OPERATORS)
def test_timestamps_compare_exactly_with_literals(unit, op):
    factor = PER_SECOND[unit]
    at = SECOND * factor
    numbers = [LOW, -1, 0, at - 1, at, at + 1, HIGH, None]
    texts = {
        "2013-01-31 12:30:00": Fraction(SECOND),
        "2013-01-31T12:30": Fraction(SECOND),
        "2013-01-31 12:30:00.000000001": SECOND + Fraction(1, 10**9),
        "2013-01-31 12:29:59.9999": SECOND - Fraction(1, 10**4),
        "1970-01-01": Fraction(0),
        "0001-01-01": Fraction(-62_135_596_800),
        "9999-12-31": Fraction(253_402_214_400),
    }
    for zone in (None, "UTC", "Asia/Tokyo"):
        column = moments(numbers, pa.timestamp(unit, zone))
        for text, seconds in texts.items():
            assert answers(f"x {op} '{text}'", {"x": column}) == each(op, numbers, seconds * factor), text
            assert answers(f"'{text}' {op} x", {"x": column}) == each(op, [seconds * factor] * 8, numbers), text
        if zone:
            assert answers(f"x {op} '2013-01-31 13:30:00+01:00'", {"x": column}) == each(op, numbers, at)
            assert answers(f"x {op} '2013-01-31T12:30:00Z'", {"x": column}) == each(op, numbers, at)


def test_dates_and_times_of_day_compare_with_literals():
    day = SECOND // 86_400
    dates = moments([day - 1, day, day + 1, None], pa.date32())
    assert answers("x = '2013-01-31'", {"x": dates}) == [False, True, False, None]
    assert answers("x < '2013-01-31 12:00'", {"x": dates}) == [True, True, False, None]
    assert answers("x IN {'2013-01-30', '2013-02-01'}", {"x": dates}) == [True, False, True, None]
    assert answers("x IN {'2013-01-31'..}", {"x": dates}) == [False, True, True, None]
    date64 = moments([day * 86_400_000, None], pa.date64())
    assert answers("x >= '2013-01-31'", {"x": date64}) == [True, None]
    for data_type in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        at = 45_000 * PER_SECOND[data_type.unit]
        times = moments([at - 1, at, at + 1, None], data_type)
        assert answers("x = '12:30'", {"x": times}) == [False, True, False, None]
        assert answers("x > '12:30:00.0000000001'", {"x": times}) == [False, False, True, None]


MOMENT_TYPES = [pa.date32(), pa.date64(), *(pa.timestamp(u) for u in PER_SECOND)]
TIME_TYPES = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
DURATION_TYPES = [pa.duration(u) for u in PER_SECOND]


def unit_of(data_type: pa.DataType) -> Fraction:
    """Return the unit of a type in seconds."""
    if data_type == pa.date32():
        return Fraction(86_400)
    return Fraction(1, 1000) if data_type == pa.date64() else Fraction(1, PER_SECOND[data_type.unit])


@pytest.mark.long("every pair of units")
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("types", [MOMENT_TYPES, TIME_TYPES, DURATION_TYPES], ids=lambda t: str(t[-1]))
def test_moments_of_two_units_compare_exactly(op, types):
    for a in types:
        for b in types:
            (low, high), ratio = (-(2**31), 2**31 - 1) if a.bit_width == 32 else (LOW, HIGH), unit_of(a) / unit_of(b)
            xs = [low, -2, -1, 0, 1, 2, high]
            whole = int(ratio) if ratio >= 1 else 1
            ys = [-whole - 1, -whole, -1, 0, 1, whole, whole + 1]
            ys = [y for y in ys if b.bit_width == 64 or abs(y) < 2**31]
            pairs = [(x, y) for x in [*xs, None] for y in [*ys, None]]
            left, right = ([p[k] for p in pairs] for k in (0, 1))
            expected = each(
                op,
                [None if x is None else x * unit_of(a) for x in left],
                [None if y is None else y * unit_of(b) for y in right],
            )
            assert answers(f"x {op} y", {"x": moments(left, a), "y": moments(right, b)}) == expected, (a, b)


def test_moments_of_two_time_zones_compare_as_instants():
    columns = {
        "x": moments([1, 2, 3, None], pa.timestamp("s", "UTC")),
        "y": moments([2000, 2000, 2999, 1], pa.timestamp("ms", "Asia/Tokyo")),
    }
    assert answers("x < y", columns) == [True, False, False, None]
    assert answers("x >= y", columns) == [False, True, True, None]


def test_durations_are_integers_in_their_unit():
    columns = {"x": moments([999, 1000, None], pa.duration("ms"))}
    assert answers("x >= 1000", columns) == [False, True, None]
    assert answers("x / 2 = 500", columns) == [False, True, None]


# ---- types that do not fit ------------------------------------------------------------------------------------------

SCHEMA = pa.schema(
    {
        "n": pa.int64(),
        "u": pa.uint64(),
        "f": pa.float64(),
        "d": pa.decimal128(20, 2),
        "wide": pa.decimal256(76, 0),
        "deep": pa.decimal256(76, 40),
        "s": pa.string(),
        "c": pa.dictionary(pa.int8(), pa.string()),
        "b": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us"),
        "zoned": pa.timestamp("us", "UTC"),
        "clock": pa.time32("s"),
        "took": pa.duration("s"),
        "list": pa.list_(pa.int64()),
        "struct": pa.struct({"a": pa.int64()}),
        "bytes": pa.binary(),
        "map": pa.map_(pa.string(), pa.int64()),
        "interval": pa.month_day_nano_interval(),
        "runs": pa.run_end_encoded(pa.int32(), pa.int64()),
    }
)
ERRORS = [
    # predicate, underlined text, words of the message, words of the hint
    ("n = 'a'", "n = 'a'", "cannot compare column 'n' (int64) with the string 'a'", ""),
    ("s = 1", "s = 1", "cannot compare column 's' (string) with the number 1", ""),
    ("c >= 1.5", "c >= 1.5", "cannot compare column 'c' (string) with the number 1.5", ""),
    ("n = s", "n = s", "column 'n' (int64) with column 's' (string)", ""),
    ("n = TRUE", "n = TRUE", "with the boolean TRUE", "TRUE and FALSE"),
    ("b = 1", "b = 1", "column 'b' (bool) with the number 1", "TRUE and FALSE"),
    ("b < TRUE", "b < TRUE", "booleans are compared by = and <>, not by <", ""),
    ("b = 'true'", "b = 'true'", "column 'b' (bool) with the string 'true'", "TRUE and FALSE"),
    ("d = 'x'", "d = 'x'", "column 'd' (decimal128(20, 2)) with the string 'x'", ""),
    ("wide = deep", "wide = deep", "76 digits", ""),
    ("day > 5", "day > 5", "column 'day' (date32[day]) with the number 5", "'2013-01-31 12:30:00'"),
    ("day > n", "day > n", "column 'day' (date32[day]) with column 'n' (int64)", "'2013-01-31 12:30:00'"),
    ("at = 'soon'", "'soon'", "cannot read 'soon' as a timestamp[us]", "'2013-01-31 12:30:00'"),
    ("'soon' = at", "'soon'", "cannot read 'soon' as a timestamp[us]", "'2013-01-31 12:30:00'"),
    ("at = '2013-01-31T12:00+01:00'", "'2013-01-31T12:00+01:00'", "cannot read", "needs a column with a time zone"),
    ("day = '2013-01-31T12:00Z'", "'2013-01-31T12:00Z'", "cannot read", "needs a column with a time zone"),
    ("clock = '25:00'", "'25:00'", "as a time32[s]", "'12:30:00'"),
    ("clock = '12:00+01:00'", "'12:00+01:00'", "as a time32[s]", "has no time zone"),
    ("clock < at", "clock < at", "column 'clock' (time32[s]) with column 'at' (timestamp[us])", ""),
    ("at < zoned", "at < zoned", "column 'at' (timestamp[us]) with column 'zoned'", ""),
    ("at = s", "s", "column 'at' (timestamp[us]) with column 's' (string)", ""),
    ("took = at", "took = at", "column 'took' (duration[s]) with column 'at'", ""),
    ("took = '1s'", "took = '1s'", "column 'took' (duration[s]) with the string '1s'", ""),
    ("n + s > 1", "s", "arithmetic needs numbers, and column 's' (string) is none", ""),
    ("n > -b", "b", "arithmetic needs numbers, and column 'b' (bool) is none", ""),
    ("n > 'a' * 2", "'a'", "arithmetic needs numbers, and the string 'a' is none", ""),
    ("at - day > 1", "at", "arithmetic needs numbers, and column 'at' (timestamp[us]) is none", ""),
    ("n + 1 = 'a'", "n + 1 = 'a'", "cannot compare the number n + 1 with the string 'a'", ""),
    ("n LIKE 'a'", "n", "LIKE needs a string, and column 'n' (int64) is none", ""),
    ("n IN {1, 'a'}", "'a'", "column 'n' (int64) with the string 'a'", ""),
    ("s IN {'a', 1}", "1", "column 's' (string) with the number 1", ""),
    ("s IN {1..2}", "", "column 's' (string) with the number 1", ""),
    ("n = 1 AND NOT (f = 1 OR s = 2)", "s = 2", "column 's' (string) with the number 2", ""),
    ("m = 1", "m", "the events have no column 'm'", ""),
    ("tok = 1", "tok", "the events have no column 'tok'", "did you mean 'took'?"),
    *((f"{name} = 1", name, f"column '{name}' is a", "") for name in SCHEMA.names[SCHEMA.names.index("list") :]),
    *((f"n = 1 OR {name} = 'a'", name, "which no predicate can read", "") for name in ("list", "bytes", "map")),
]


def underlined(error: cer_gpu.QueryError) -> str:
    return error.text[error.start : error.end]


@pytest.mark.parametrize(("predicate", "place", "message", "hint"), ERRORS, ids=[e[0] for e in ERRORS])
def test_errors_point_at_the_place(predicate, place, message, hint):
    text = query_of(predicate)
    with pytest.raises(cer_gpu.QueryTypeError) as caught:
        cer_gpu.compile(text, type_column=None, schema=SCHEMA)
    error = caught.value
    assert message in error.message
    if place:
        assert underlined(error) == place
        line, carets = str(error).split("\n")[1:3]
        assert line[carets.index("^") : carets.rindex("^") + 1] == place
    assert hint in (error.hint or "")
    with pytest.raises(cer_gpu.QueryTypeError, match=re.escape(message)):
        cer_gpu.compile(text, type_column=None).evaluate(SCHEMA.empty_table())


def test_types_are_checked_before_any_row_is_read():
    def rows():
        raise AssertionError("read")
        yield

    reader = pa.RecordBatchReader.from_batches(SCHEMA, rows())
    query = cer_gpu.compile(query_of("n = 'a'"), type_column=None)
    with pytest.raises(cer_gpu.QueryTypeError):
        query.stream(reader)


def test_columns_that_the_query_does_not_read_may_be_of_any_type():
    query = cer_gpu.compile(query_of("n = 1"), type_column=None, schema=SCHEMA)
    assert query.columns(SCHEMA) == ["n"]
    rows = pa.record_batch(
        {"list": pa.array([[1], None]), "n": pa.array([1, 1]), "map": pa.nulls(2, SCHEMA.field("map").type)}
    )
    assert query.evaluate(rows)["end"].to_pylist() == [0, 1]


def test_a_name_that_two_columns_have_is_refused():
    twice = pa.record_batch([pa.array([1]), pa.array([2]), pa.array([3]), pa.array([4])], names=["x", "y", "y", "z"])
    with pytest.raises(cer_gpu.QueryTypeError, match="2 columns 'y'") as caught:
        answers("x = 1 AND y = 2", twice)
    assert underlined(caught.value) == "y"
    assert answers("x = 1 AND z = 4", twice) == [True]


# ---- any layout, through the whole engine ---------------------------------------------------------------------------

LAYOUT_TYPES = [
    (pa.int16(), "> 3", lambda v: v > 3, [1, 9, None, 3, 4]),
    (pa.float32(), "> 3", lambda v: v > 3, [1.0, 9.0, None, 3.0, math.nan]),
    (pa.decimal128(30, 2), "> 3", lambda v: v > 3, [Decimal(1), Decimal(9), None, Decimal("3.01")]),
    (pa.bool_(), "= TRUE", lambda v: v, [True, False, None, True, True]),
    (pa.string(), "> 'b'", lambda v: v > "b", ["a", "c", None, "", "bb"]),
    (pa.string_view(), "> 'b'", lambda v: v > "b", ["a", "c", None, "", "bb"]),
    (pa.dictionary(pa.int8(), pa.string()), "> 'b'", lambda v: v > "b", ["a", "c", None, "", "bb"]),
    (
        pa.date32(),
        "> '1970-01-02'",
        lambda v: v > dt.date(1970, 1, 2),
        [dt.date(1970, 1, 1), dt.date(1970, 1, 3), None],
    ),
]


@pytest.mark.parametrize(("data_type", "condition", "holds", "values"), LAYOUT_TYPES, ids=lambda v: str(v)[:20])
def test_queries_read_columns_of_any_layout(data_type, condition, holds, values):
    query = cer_gpu.compile(query_of(f"x {condition}"), type_column=None)
    long = pa.concat_arrays([pa.array(values, data_type)] * 7)
    for offset, length in ((0, 7 * len(values)), (1, 9), (7, 8), (9, 0), (2, 1)):
        part = long.slice(offset, length)
        expected = [i for i, v in enumerate(part.to_pylist()) if v is not None and holds(v)]
        assert query.evaluate(pa.table({"x": part}))["end"].to_pylist() == expected
    chunks = pa.chunked_array([long.slice(3, 4), long.slice(0, 0), pa.nulls(3, data_type), long.slice(1, 9)])
    expected = [i for i, v in enumerate(chunks.to_pylist()) if v is not None and holds(v)]
    assert query.evaluate(pa.table({"x": chunks}))["end"].to_pylist() == expected
