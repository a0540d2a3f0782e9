"""Arithmetic on NumPy arrays and scalars, as docs/language.md defines it ("Numbers").

It follows Arrow: int64 wraps around; integer division truncates toward zero and ``%`` has the sign of the dividend;
floats are IEEE 754.  Division of integers by zero, an error in Arrow, is NULL; the caller masks the result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def to_float(x: Any) -> Any:
    """Convert to float64."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) else np.float64(x)


def to_int64(x: Any) -> Any:
    """Convert to int64; a uint64 of 2**63 or more wraps around."""
    if isinstance(x, np.ndarray):
        return x.astype(np.int64)
    return np.int64((int(x) + 2**63) % 2**64 - 2**63)


def _divide(x: Any, y: Any) -> Any:
    """Divide integers, truncating toward zero; the smallest int64 by -1 is 0, as in Arrow."""
    y = np.where(y == 0, 1, y)
    overflow = (x == np.iinfo(np.int64).min) & (y == -1)
    quotient = np.floor_divide(x, np.where(overflow, 1, y))
    remainder = x - quotient * y
    quotient = quotient + ((remainder != 0) & ((remainder < 0) != (x < 0)))
    return np.where(overflow, 0, quotient)


def _remainder(x: Any, y: Any) -> Any:
    """Return the remainder of `_divide`, with the sign of `x`."""
    return np.fmod(x, np.where((y == 0) | (y == -1), 1, y))


def floats(array: pa.Array) -> npt.NDArray[np.float64]:
    """Convert decimals to float64; NULL becomes 0."""
    return np.asarray(array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))


INTEGER_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
}
FLOAT_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": np.fmod,
}
