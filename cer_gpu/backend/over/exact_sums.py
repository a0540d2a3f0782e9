"""Sums without error: a number as limbs of 32 bits, of which values can be taken away as they were added.

The value is the sum of ``limb[k] * 2**(32 * (base + k))``, in units of the last place of the least float64 (2**-1074),
of its square, or of 1.  Limbs have 64 bits and a sign, and carry nothing to one another: taking a value away leaves
them as if it had never been there, so that they depend on the values in the window alone.  They hold 2**30 values.

A key has a few limbs, which move to where its values lie.  A key whose values are too far apart for them (1e-200 beside
1e200) gets a wide row, which has space for all float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from cer_gpu.backend.jit import helper

MASK = (1 << 32) - 1
UNIT_OF_SUMS, UNIT_OF_SQUARES = -1074, -2148
WIDE_OF_SUMS, WIDE_OF_SQUARES = 68, 136
"""Limbs of a wide row: all float64 lie in 66, and their squares in 133."""
DIGITS = 160
"""Space for the digits of a number: twice as many as a sum has, and a carry."""

_FRACTION = (1 << 52) - 1
_U = np.uint64


def _leading_zero_codegen(typing_context: Any, value: Any) -> Any:

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


_leading_zeros: Any = intrinsic(_leading_zero_codegen)
"""``_leading_zeros(value)`` is the number of leading zero bits of an int64 that is not 0."""


@helper
def mantissa_of(bits):
    """Return the integer mantissa of the bits of a finite float64, without its sign."""
    fraction = bits & _FRACTION
    return fraction if (bits >> 52) & 0x7FF == 0 else fraction | (_FRACTION + 1)


@helper
def last_place(bits):
    """Return the place of the last bit of the mantissa, in bits above 2**-1074."""
    exponent = (bits >> 52) & 0x7FF
    return exponent - 1 if exponent > 0 else exponent


@helper
def add_float(limbs, row, first, mantissa, shift, sign):
    """Add ``sign * mantissa * 2**shift`` to the limbs from `first` on; a mantissa has 53 bits, a shift is below 32."""
    low = (mantissa & MASK) << shift
    high = (mantissa >> 32) << shift
    limbs[row, _U(first)] += sign * (low & MASK)
    limbs[row, _U(first + 1)] += sign * ((low >> 32) + (high & MASK))
    limbs[row, _U(first + 2)] += sign * (high >> 32)


@helper
def add_square(limbs, row, first, mantissa, shift, sign):
    """Add ``sign * mantissa**2 * 2**shift`` to the limbs from `first` on; the arguments are those of `add_float`."""
    low, high = _U(mantissa & MASK), _U(mantissa >> 32)
    mask, bits = _U(MASK), _U(32)
    square, twice, top = low * low, _U(2) * low * high, high * high
    carry = (square >> bits) + (twice & mask)
    digit = (square & mask) << _U(shift)
    limbs[row, _U(first)] += sign * np.int64(digit & mask)
    above = digit >> bits
    digit = (carry & mask) << _U(shift)
    limbs[row, _U(first + 1)] += sign * np.int64(above + (digit & mask))
    above = digit >> bits
    carry = (carry >> bits) + (twice >> bits) + (top & mask)
    digit = (carry & mask) << _U(shift)
    limbs[row, _U(first + 2)] += sign * np.int64(above + (digit & mask))
    above = digit >> bits
    digit = ((carry >> bits) + (top >> bits)) << _U(shift)
    limbs[row, _U(first + 3)] += sign * np.int64(above + (digit & mask))
    limbs[row, _U(first + 4)] += sign * np.int64(digit >> bits)


@helper
def reserve_limbs(rows, row, column, n, base, first, n_needed):
    """Move the limbs of a key, from a column on, so that they reach from limb `first` over `n_needed`.

    Returns
    -------
    int
        The new base; -1: they are too few.
    """
    if base <= first and first + n_needed <= base + n:
        return base
    low, high = n, -1
    for k in range(n):
        if rows[row, _U(column + k)] != 0:
            low = min(low, k)
            high = k
    begin, end = first, first + n_needed
    if high >= 0:
        begin, end = min(begin, base + low), max(end, base + high + 1)
    if end - begin > n:
        return -1
    moved = max(begin - (n - (end - begin)) // 2, 0)
    shift = base - moved
    if shift > 0:
        for k in range(n - 1, -1, -1):
            rows[row, _U(column + k)] = rows[row, _U(column + k - shift)] if k >= shift else 0
    elif shift < 0:
        for k in range(n):
            rows[row, _U(column + k)] = rows[row, _U(column + k - shift)] if k - shift < n else 0
    return moved


@helper
def digits_of(rows, row, column, n, digits, at):
    """Write the digits of the absolute value of limbs, and return how many there are, with the sign of the value.

    Parameters
    ----------
    rows, row, column, n
        The limbs: `n` of a row, from a column on.
    digits : int64, written
        Digits of 32 bits from `at` on, the least first; there is space for ``n + 1``.
    at : int
    """
    carry = np.int64(0)
    size = 0
    for k in range(n):
        digit = rows[row, _U(column + k)] + carry
        carry = digit >> 32
        digits[_U(at + k)] = digit & MASK
        if digit & MASK != 0:
            size = k + 1
    if carry >= 0:
        digits[_U(at + n)] = carry
        return size if carry == 0 else n + 1
    carry = np.int64(0)
    size = 0
    for k in range(n):
        digit = carry - rows[row, _U(column + k)]
        carry = digit >> 32
        digits[_U(at + k)] = digit & MASK
        if digit & MASK != 0:
            size = k + 1
    digits[_U(at + n)] = carry
    return -size if carry == 0 else -n - 1


@helper
def top_bits(digits, size):
    """Return the first 64 bits of digits as a float64 from 2**63 to 2**64, correctly rounded; `size` is not 0."""
    first = digits[_U(size - 1)]
    second = digits[_U(size - 2)] if size > 1 else np.int64(0)
    third = digits[_U(size - 3)] if size > 2 else np.int64(0)
    rest = False
    for k in range(size - 4, -1, -1):
        if digits[_U(k)] != 0:
            rest = True
            break
    zeros = _leading_zeros(first) - 32
    used = 32 - zeros
    bits = (((_U(first) << _U(32)) | _U(second)) << _U(zeros)) | (_U(third) >> _U(used))
    if rest or (_U(third) & ((_U(1) << _U(used)) - _U(1))) != _U(0):
        bits |= _U(1)  # below the last bit of a float64, so that it only breaks ties
    return np.float64(bits)


@helper
def top_place(digits, size):
    """Return the place of the last of the first 64 bits (`top_bits`), in bits above the digits' unit."""
    return 32 * (size - 3) + 64 - _leading_zeros(digits[_U(size - 1)])


@helper
def scaled(value, place, powers):
    """Return ``value * 2**place``; `powers` are 2**k, from k = -1022 to 1023."""
    if -900 < place < 900:
        return value * powers[_U(place + 1022)]
    return math.ldexp(value, place)


@helper
def float_of(digits, size, unit, powers):
    """Return digits, in a unit of ``2**unit``, as the nearest float64; infinity beyond all.

    Parameters
    ----------
    digits, size
        From `digits_of`, with the sign of the value.
    unit : int
    powers : float64, shape (2046,)
        As of `scaled`.
    """
    if size == 0:
        return 0.0
    n = abs(size)
    value = scaled(top_bits(digits, n), top_place(digits, n) + unit, powers)
    return value if size > 0 else -value
