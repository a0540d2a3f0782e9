"""Columns that filters between events read: exact orders and bounds, and texts under one numbering."""

import itertools
import operator

import numpy as np
import pyarrow as pa
import pytest

from cer_gpu.columnar.columns import Block, RowsOfBlock
from cer_gpu.expressions.inputs import Inputs
from cer_gpu.expressions.side_columns import (
    Bound,
    OrderKey,
    SideColumns,
    StringId,
    StringIds,
    inclusive,
)

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
