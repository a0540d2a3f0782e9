"""Columns that filters between events read: exact orders and bounds, and texts under one numbering."""

import itertools
import operator
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import scaled

from cer_gpu.columnar.columns import Block, RowsOfBlock
from cer_gpu.expressions.inputs import Inputs
from cer_gpu.expressions.side_columns import (
    Bound,
    GridCell,
    OrderKey,
    Raw,
    SideColumns,
    StringId,
    StringIds,
    inclusive,
)
from cer_gpu.expressions.terms import Apply

OPERATORS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
INT64 = [-(2**63), -(2**63) + 1, -(2**53) - 1, -3, -1, 0, 1, 2, 3, 2**53, 2**53 + 1, 2**63 - 1]
UINT64 = [0, 1, 2, 3, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]
FLOAT64 = [
    *(-np.inf, -(2.0**64), -(2.0**63), -(2.0**53), -2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 2.5),
    *(2.0**53, 2.0**63 - 1024, 2.0**63, 2.0**64 - 2048, 2.0**64, np.inf, np.nan),
]


def keys(column, values, kind):
    """Return the keys of values, None where not valid."""
    schema = pa.schema([("x", kind)])
    inputs = Inputs(schema)
    block = Block(pa.RecordBatch.from_arrays([pa.array(values, kind)], schema=schema))
    made = column(inputs.column("x"))
    rows = np.arange(len(values), dtype=np.int32)
    found = SideColumns([made], inputs, StringIds()).of(block, rows)
    return [int(key) if valid & 1 else None for valid, key in found]


def exactly(op, x, y):
    """Compare a number with another; Python compares integers and floats exactly."""
    return OPERATORS[op](x, y)


@pytest.mark.parametrize(("values", "kind"), [(INT64, pa.int64()), (UINT64, pa.uint64()), (FLOAT64, pa.float64())])
def test_order_keys_compare_as_the_values(values, kind):
    found = keys(OrderKey, values, kind)
    for (x, a), (y, b) in itertools.product(zip(values, found, strict=True), repeat=2):
        if x == x and y == y:
            assert (a < b, a == b) == (x < y, x == y)
    assert [key for x, key in zip(values, found, strict=True) if x != x] == [None] * sum(x != x for x in values)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize(
    ("integers", "kind_of_integers", "values", "kind"),
    [
        (INT64, pa.int64(), FLOAT64, pa.float64()),
        (UINT64, pa.uint64(), FLOAT64, pa.float64()),
        (INT64, pa.int64(), UINT64, pa.uint64()),
    ],
)
def test_bounds_compare_integers_with_other_numbers_exactly(op, integers, kind_of_integers, values, kind):
    unsigned = pa.types.is_uint64(kind_of_integers)
    bounds = keys(lambda term: Bound(term, op, unsigned=unsigned), values, kind)
    of_integers = keys(OrderKey, integers, kind_of_integers)
    for (x, key), (y, bound) in itertools.product(
        zip(integers, of_integers, strict=True), zip(values, bounds, strict=True)
    ):
        passes = bound is not None and OPERATORS[inclusive(op)](key, bound)
        assert passes == exactly(op, x, y), (x, op, y)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize(("divisor", "plus"), [(1, 0), (1, 7), (1000, 0), (1000, -2500), (86_400, 3), (1, 2**62)])
def test_bounds_divide_and_add_without_rounding(op, divisor, plus):
    bounds = keys(lambda term: Bound(term, op, divisor, plus), INT64, pa.int64())
    for x, (y, bound) in itertools.product(INT64, zip(INT64, bounds, strict=True)):
        passes = bound is not None and OPERATORS[inclusive(op)](x, bound)
        assert passes == OPERATORS[op](x * divisor, y + plus), (x, op, y)


STORED = [pa.int8(), pa.int64(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64(), pa.timestamp("us")]


def terms_over(column, constants, n_sums):
    """Yield a column, and sums and differences with constants that are as deep as `n_sums`."""
    yield column
    if n_sums:
        for operand, constant in itertools.product(terms_over(column, constants, n_sums - 1), constants):
            yield from (Apply(op, (operand, constant)) for op in "+-")
            yield Apply("-", (constant, operand))
            yield Apply("negative", (operand,))


@given(st.data())
@settings(max_examples=scaled(400))
def test_columns_of_one_number_are_those_that_numpy_computes(data):
    kind = data.draw(st.sampled_from(STORED))
    values = FLOAT64 if pa.types.is_floating(kind) else UINT64 if kind == pa.uint64() else INT64
    if kind.bit_width < 64:
        values = [1.0, -0.0, 2.5, np.nan, np.inf] if pa.types.is_floating(kind) else [0, 1, 3, 100]
    drawn = data.draw(st.lists(st.sampled_from([*values, None]), min_size=1, max_size=40))
    array = pa.array(drawn, kind if not pa.types.is_temporal(kind) else pa.int64()).cast(kind)
    schema = pa.schema([("x", kind)])
    inputs = Inputs(schema)
    column = inputs.column("x")
    number = float if column.dtype == "f8" else int
    constants = [inputs.constant(number(each), column.dtype) for each in (0, 3, 2**40 + 1)]
    columns = []
    for term in data.draw(st.permutations([*terms_over(column, constants, 2 if column.dtype != "u8" else 0)]))[:6]:
        columns += [Raw(term), OrderKey(term)]
        width = 0.75 if column.dtype == "f8" else 64
        if column.dtype != "u8":
            ahead = data.draw(st.integers(0, 1))
            columns.append(GridCell(term, 1, Fraction(ahead, 3 if width < 1 else 1), width, ahead))
    rows = np.array(data.draw(st.lists(st.integers(0, len(drawn) - 1), unique=True).map(sorted)), np.int32)
    block = Block(pa.RecordBatch.from_arrays([array], schema=schema))
    found = SideColumns(columns, inputs, StringIds()).of(block, rows)
    for number, each in enumerate(columns):
        keys_of, valid = each.keys(inputs, RowsOfBlock(block, rows), StringIds())
        is_valid = np.ones(len(rows), np.bool_) if valid is None else valid
        assert list(found[:, 0] >> number & 1) == list(is_valid)
        is_nan = np.isnan(keys_of.view(np.float64)) & isinstance(each, Raw) & (column.dtype == "f8")
        assert list(found[is_valid & ~is_nan, 1 + number]) == list(keys_of[is_valid & ~is_nan])


def numbers_of(texts, numbers, name="x"):
    batch = pa.RecordBatch.from_arrays([texts], names=[name])
    found = numbers.of(name, RowsOfBlock(Block(batch), np.arange(len(texts), dtype=np.int32)))
    return list(found)


def test_texts_of_columns_dictionaries_and_batches_share_one_numbering():
    numbers = StringIds()
    first = numbers_of(pa.array(["b", "a", "b", "\U0001f525"]), numbers)
    assert first[0] == first[2]
    coded = pa.array(["\U0001f525", "a", "c"]).dictionary_encode()
    other = numbers_of(coded, numbers, "y")
    assert (other[0], other[1]) == (first[3], first[1])
    assert numbers_of(pa.array(["\ufffd", "c"], pa.large_string()), numbers)[1] == other[2]
    texts = numbers.strings().to_pylist()
    assert sorted(texts) == [texts[k] for k in np.argsort(numbers.ranks())]


def test_restored_texts_keep_their_numbers():
    numbers, again = StringIds(), StringIds()
    before = numbers_of(pa.array(["x", "y", "z"]), numbers)
    again.restore(numbers.strings())
    assert numbers_of(pa.array(["z", "x", "new"]), again)[:2] == [before[2], before[0]]


def test_null_is_not_valid():
    schema = pa.schema([("s", pa.string())])
    block = Block(pa.RecordBatch.from_arrays([pa.array(["a", None, "a"])], schema=schema))
    found = SideColumns([StringId("s")], Inputs(schema), StringIds()).of(block, np.arange(3, dtype=np.int32))
    assert list(found[:, 0]) == [1, 0, 1]
    assert found[0, 1] == found[2, 1]
