"""Arithmetic on NumPy arrays and scalars, as docs/language.md defines it ("Numbers").

It follows Arrow: int64 wraps around; integer division truncates toward zero and ``%`` has the sign of the dividend;
floats are IEEE 754.  Division of integers by zero, an error in Arrow, is NULL; the caller masks the result.
"""

from __future__ import annotations

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
    """Convert to int64; a uint64 of 2**63 or more wraps around."""
    if isinstance(x, np.ndarray):
        return x.astype(np.int64)
    return np.int64((int(x) + 2**63) % 2**64 - 2**63)


def divide(x: Any, y: Any) -> Any:
    """Divide integers, truncating toward zero; the smallest int64 by -1 is 0, as in Arrow."""
    y = np.where(y == 0, 1, y)
    overflow = (x == np.iinfo(np.int64).min) & (y == -1)
    quotient = np.floor_divide(x, np.where(overflow, 1, y))
    remainder = x - quotient * y
    quotient = quotient + ((remainder != 0) & ((remainder < 0) != (x < 0)))
    return np.where(overflow, 0, quotient)


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
        found = pa.array(function(xs, ys), left.type, mask=~valid)
    return found if n is not None else found[0]


def divide_exactly(left: Any, right: Any) -> Any:
    """Return ``left / right`` of decimals of Arrow, or of a duration and an integer; by zero it is NULL."""
    return pc.divide(left, pc.if_else(pc.equal(right, 0), pa.scalar(None, right.type), right))


def widened(x: Any, factor: int = 1) -> Any:
    """Return integers times a factor, exactly: as int64 where all of them fit, else as Python's integers."""
    if not isinstance(x, np.ndarray):
        return int(x) * factor
    low, high = _ends(x)
    if min(low, low * factor) < _LEAST or max(high, high * factor) > _GREATEST:
        return x.astype(object) * factor
    return x.astype(np.int64) * np.int64(factor)


def wide_difference(x: Any, y: Any) -> Any:
    """Return ``x - y`` of results of `widened`, exactly."""
    (x_low, x_high), (y_low, y_high) = _ends(x), _ends(y)
    if x_low - y_high < _LEAST or x_high - y_low > _GREATEST or not all(_is_int64(each) for each in (x, y)):
        x, y = (each.astype(object) if isinstance(each, np.ndarray) else each for each in (x, y))
    return x - y


def compare_wide(compare: Any, x: Any, y: Any) -> Any:
    """Return a comparison of results of `widened`."""
    if not (_is_int64(x) and _is_int64(y)):
        x, y = (each.astype(object) if isinstance(each, np.ndarray) else each for each in (x, y))
    return np.asarray(compare(x, y)).astype(np.bool_)


def float_order(x: Any, y: Any) -> Any:
    """Return -1, 0 or 1 where a float is less than, equal to or greater than an integer of `widened`; 2 for NaN.

    They are compared exactly.
    """
    known = np.logical_not(np.isnan(x))
    whole = np.floor(np.where(known, x, 0.0))
    inside = (whole >= -(2.0**63)) & (whole < 2.0**63)
    floored = np.where(inside, whole, 0.0).astype(np.int64)
    y = y if isinstance(y, np.ndarray) else np.asarray(y, None if _is_int64(y) else object)
    if not inside.all() or y.dtype == object:
        finite = np.clip(whole, -(2.0**65), 2.0**65)
        floored = np.array([int(each) for each in np.atleast_1d(finite)], object).reshape(finite.shape)
    order = np.greater(floored, y).astype(np.int64) - np.less(floored, y).astype(np.int64)
    return np.where(known, np.where(order == 0, whole < x, order), 2)


_LEAST, _GREATEST = -(2**63), 2**63 - 1


def _ends(x: Any) -> tuple[int, int]:
    """Return the least and the greatest of some integers."""
    if not isinstance(x, np.ndarray):
        return int(x), int(x)
    return (int(x.min()), int(x.max())) if x.size else (0, 0)


def _is_int64(x: Any) -> bool:
    return x.dtype == np.int64 if isinstance(x, np.ndarray) else _LEAST <= int(x) <= _GREATEST
