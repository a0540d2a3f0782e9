"""Arithmetic on NumPy arrays and scalars, as docs/reference/ceql_predicates.md defines it ("Numbers").

Integers are exact: terms of 64 bits are those whose results fit (`cer_gpu.expressions.arithmetic`), and all others
are wide: arrays of int64 where the values of a block allow it, else of Python's integers.  Integer division truncates
toward zero and ``%`` has the sign of the dividend, as in Arrow; floats are IEEE 754.  Division of integers by zero, an
error in Arrow, is NULL; the caller masks the result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def to_float(x: Any) -> Any:
    """Convert to float64."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) else np.float64(x)


def to_int64(x: Any) -> Any:
    """Convert integers that fit to int64."""
    return x.astype(np.int64) if isinstance(x, np.ndarray) else np.int64(x)


def divide(x: Any, y: Any) -> Any:
    """Divide integers, truncating toward zero; the quotient fits."""
    y = np.where(y == 0, 1, y)
    quotient = np.floor_divide(x, y)
    remainder = x - quotient * y
    return quotient + ((remainder != 0) & ((remainder < 0) != (x < 0)))


def remainder(x: Any, y: Any) -> Any:
    """Return the remainder of `divide`, with the sign of `x`."""
    return np.fmod(x, np.where((y == 0) | (y == -1), 1, y))


def floats(array: pa.Array) -> npt.NDArray[np.float64]:
    """Convert decimals to float64; NULL becomes 0."""
    return np.asarray(array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))


def sum_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the sum of values: that of Arrow's own, and durations for durations."""
    if pa.types.is_duration(data_type):
        return data_type
    if pa.types.is_decimal(data_type):
        wide = data_type.byte_width > 16
        return pa.decimal256(76, data_type.scale) if wide else pa.decimal128(38, data_type.scale)
    if pa.types.is_floating(data_type):
        return pa.float64()
    return pa.uint64() if pa.types.is_unsigned_integer(data_type) or pa.types.is_boolean(data_type) else pa.int64()


def by_numpy(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Return a function of NumPy over numbers of Arrow of one type; integers divided by zero are NULL."""
    n = next((len(x) for x in (left, right) if not isinstance(x, pa.Scalar)), None)
    x, y = (pa.repeat(each, 1 if n is None else n) if isinstance(each, pa.Scalar) else each for each in (left, right))
    valid = np.asarray(pc.and_(x.is_valid(), y.is_valid()))
    xs, ys = (each.fill_null(0).to_numpy(zero_copy_only=False) for each in (x, y))
    if pa.types.is_integer(left.type):
        valid = valid & (ys != 0)
    with np.errstate(all="ignore"):
        result = pa.array(function(xs, ys), left.type, mask=~valid)
    return result if n is not None else result[0]


def divide_integers(left: Any, right: Any) -> Any:
    """Return ``left / right`` of int64 of Arrow; by zero it is NULL.

    Raises
    ------
    pyarrow.ArrowInvalid
        When a quotient does not fit, of the least by -1.
    """
    overflow = pc.and_(pc.equal(left, _LEAST), pc.equal(right, -1))
    if (isinstance(overflow, pa.Scalar) and overflow.as_py() is True) or pc.any(overflow).as_py():
        raise pa.ArrowInvalid("overflow")
    return by_numpy(divide, left, right)


def divide_exactly(left: Any, right: Any) -> Any:
    """Return ``left / right`` of decimals of Arrow, or of a duration and an integer; by zero it is NULL."""
    return pc.divide(left, pc.if_else(pc.equal(right, 0), pa.scalar(None, right.type), right))


def widened(x: Any, factor: int = 1) -> Any:
    """Return integers times a factor, exactly: as int64 where all of them fit, else as Python's integers."""
    if not isinstance(x, np.ndarray):
        return int(x) * factor
    if factor == 1 and x.dtype != np.uint64:
        return x.astype(np.int64, copy=False)
    low, high = _integer_range(x)
    if min(low, low * factor) < _LEAST or max(high, high * factor) > _GREATEST:
        return x.astype(object) * factor
    return x.astype(np.int64) * np.int64(factor)


def quotient_of(x: int, y: int) -> int:
    """Return ``x / y`` of Python's integers, truncated toward zero."""
    quotient = abs(x) // abs(y)
    return -quotient if (x < 0) != (y < 0) else quotient


def remainder_of(x: int, y: int) -> int:
    """Return ``x % y`` of Python's integers, with the sign of `x`."""
    return x - y * quotient_of(x, y)


def wide_sums(x: Any, y: Any) -> Any:
    """Return ``x + y`` of wide integers."""
    (x_low, x_high), (y_low, y_high) = _integer_range(x), _integer_range(y)
    return operator.add(*_wide_enough(x, y, x_low + y_low, x_high + y_high))


def wide_differences(x: Any, y: Any) -> Any:
    """Return ``x - y`` of wide integers."""
    (x_low, x_high), (y_low, y_high) = _integer_range(x), _integer_range(y)
    return operator.sub(*_wide_enough(x, y, x_low - y_high, x_high - y_low))


def wide_products(x: Any, y: Any) -> Any:
    """Return ``x * y`` of wide integers."""
    corners = [x_end * y_end for x_end in _integer_range(x) for y_end in _integer_range(y)]
    return operator.mul(*_wide_enough(x, y, min(corners), max(corners)))


def wide_quotients(x: Any, y: Any) -> Any:
    """Return ``x / y`` of wide integers, truncated toward zero; any value where `y` is 0."""
    return _wide_divided(divide, quotient_of, x, y, _integer_range(x)[0] == _LEAST and _integer_range(y)[0] <= -1)


def wide_remainders(x: Any, y: Any) -> Any:
    """Return ``x % y`` of wide integers, with the sign of `x`; any value where `y` is 0."""
    return _wide_divided(remainder, remainder_of, x, y, False)


def _wide_divided(of_int64: Any, of_each: Any, x: Any, y: Any, overflows: bool) -> Any:
    if _is_int64(x) and _is_int64(y) and not overflows:
        return of_int64(*(each if isinstance(each, np.ndarray) else np.int64(each) for each in (x, y)))
    quotients = np.frompyfunc(lambda a, b: of_each(int(a), int(b) or 1), 2, 1)(x, y)
    return quotients if isinstance(quotients, np.ndarray) else int(quotients)


def wide_negatives(x: Any) -> Any:
    """Return ``-x`` of wide integers."""
    return operator.neg(_wide_enough(x, 0, -_integer_range(x)[1], -_integer_range(x)[0])[0])


def wide_absolutes(x: Any) -> Any:
    """Return the absolute values of wide integers."""
    return abs(_wide_enough(x, 0, 0, max(map(abs, _integer_range(x))))[0])


def _wide_enough(x: Any, y: Any, low: int, high: int) -> tuple[Any, Any]:
    """Return operands as int64 if they and the results, by their range, are; otherwise as Python's integers."""
    if low < _LEAST or high > _GREATEST or not (_is_int64(x) and _is_int64(y)):
        x, y = (each.astype(object) if isinstance(each, np.ndarray) else int(each) for each in (x, y))
    return x, y


def compare_wide(compare: Any, x: Any, y: Any) -> Any:
    """Return a comparison of wide integers."""
    if not (_is_int64(x) and _is_int64(y)):
        x, y = (each.astype(object) if isinstance(each, np.ndarray) else each for each in (x, y))
    return np.asarray(compare(x, y)).astype(np.bool_)


def float_order(x: Any, y: Any) -> Any:
    """Return -1, 0 or 1 where a float is less than, equal to or greater than a wide integer; 2 for NaN.

    They are compared exactly.
    """
    is_number = np.logical_not(np.isnan(x))
    whole = np.floor(np.where(is_number, x, 0.0))
    inside = (whole >= -(2.0**63)) & (whole < 2.0**63)
    floored = np.where(inside, whole, 0.0).astype(np.int64)
    y = y if isinstance(y, np.ndarray) else np.asarray(y, None if _is_int64(y) else object)
    if not inside.all() or y.dtype == object:
        finite = np.clip(whole, -(2.0**128), 2.0**128)
        floored = np.array([int(each) for each in np.atleast_1d(finite)], object).reshape(finite.shape)
    order = np.greater(floored, y).astype(np.int64) - np.less(floored, y).astype(np.int64)
    return np.where(is_number, np.where(order == 0, whole < x, order), 2)


_LEAST, _GREATEST = -(2**63), 2**63 - 1


def _integer_range(x: Any) -> tuple[int, int]:
    """Return the least and the greatest of some integers."""
    if not isinstance(x, np.ndarray):
        return int(x), int(x)
    return (int(x.min()), int(x.max())) if x.size else (0, 0)


def _is_int64(x: Any) -> bool:
    return x.dtype == np.int64 if isinstance(x, np.ndarray) else _LEAST <= int(x) <= _GREATEST
