"""Sums, averages, variances and standard deviations over the values in the window of each key; sums have no error."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.over.exact_sums import (
    DIGITS,
    MASK,
    UNIT_OF_SQUARES,
    UNIT_OF_SUMS,
    WIDE_OF_SQUARES,
    WIDE_OF_SUMS,
    add_float,
    add_square,
    digits_of,
    float_of,
    last_place,
    mantissa_of,
    reserve_limbs,
    scaled,
    top_bits,
    top_place,
)
from cer_gpu.backend.over.window_queues import (
    FLOATS,
    HEAD,
    NATURALS,
    SIZE,
    VALUE,
    has_entry,
    has_left,
    pop_first,
    prefetch_entries,
    push_last,
)
from cer_gpu.ceql.functions import SUM, VARIANCE

# columns of a key's row after those of its queue, each part in as few lines of the cache as it can: whether the last
# result still holds, and that result; of integers, two limbs; of floats, the wide row, the base of the limbs, the
# numbers of values that are NaN, infinite, and infinite below 0, and the limbs; then those of squares, and their base
STILL_HOLDS, RESULT = 3, 4
INTEGER_LIMBS = 5
WIDE, BASE, NANS, PLUS, MINUS = range(5, 10)
LIMBS = 10
LIMBS_OF_INTEGERS, LIMBS_OF_FLOATS, LIMBS_OF_SQUARES = 2, 6, 9
SQUARES = LIMBS + LIMBS_OF_FLOATS
BASE_OF_SQUARES = SQUARES + LIMBS_OF_SQUARES
WIDTH_OF_INTEGERS, WIDTH_OF_FLOATS, WIDTH_OF_SQUARES = 8, 16, 32

_CLOSE = 2.0**-36
"""Part of the sum of squares below which a variance is computed from all digits: rounding leaves 2**-100 of it."""
_U = np.uint64


class ExactSums(NamedTuple):
    """Sums of all keys.

    Attributes
    ----------
    state : int64, shape (keys, width), written
        Rows of the keys, WIDTH_OF_INTEGERS or another of these; the limbs of squares follow those of sums.
    wide : int64, shape (wides, limbs), written
        Limbs of keys whose own do not reach, numbered from 1: WIDE_OF_SUMS, or more with WIDE_OF_SQUARES.
    n_wide : int64, shape (1,), written
        Rows in use, row 0 among them.
    results : float64, shape (keys, width), written
        The same memory as `state`, for the last results.
    digits : int64, shape (3 * DIGITS,), written
        Memory for the digits of a sum, those of squares, and what is left of both.
    powers : float64, shape (2046,)
        As of `cer_gpu.backend.over.exact_sums.scaled`.
    """

    state: Any
    wide: Any
    n_wide: Any
    results: Any
    digits: Any
    powers: Any


@helper
def _move_to_wide(sums, key, squares):
    """Move the limbs of a key to a wide row; return whether there is one."""
    wide = sums.n_wide[_U(0)]
    if wide >= sums.wide.shape[0]:
        return False
    state = sums.state
    sums.n_wide[_U(0)] = wide + 1
    for k in range(LIMBS_OF_FLOATS):
        limb = state[key, _U(LIMBS + k)]
        if limb != 0:
            sums.wide[_U(wide), _U(state[key, BASE] + k)] = limb
    if squares:
        for k in range(LIMBS_OF_SQUARES):
            limb = state[key, _U(SQUARES + k)]
            if limb != 0:
                sums.wide[_U(wide), _U(WIDE_OF_SUMS + state[key, BASE_OF_SQUARES] + k)] = limb
    state[key, WIDE] = wide
    return True


@helper
def _make_limbs_fit(sums, key, place, squares):
    """Make space for a value in the limbs of a key; return False if there is none."""
    state = sums.state
    if state[key, WIDE] != 0:
        return True
    base = reserve_limbs(state, key, LIMBS, LIMBS_OF_FLOATS, state[key, BASE], place >> 5, 3)
    if base >= 0:
        state[key, BASE] = base
    if squares and base >= 0:
        of_squares = state[key, BASE_OF_SQUARES]
        base = reserve_limbs(state, key, SQUARES, LIMBS_OF_SQUARES, of_squares, (2 * place) >> 5, 5)
        if base >= 0:
            state[key, BASE_OF_SQUARES] = base
    return base >= 0 or _move_to_wide(sums, key, squares)


@helper
def _add_to_sums(sums, key, bits, sign, kind, statistic):
    """Add a value (sign 1) or take it away (-1); return whether there was memory."""
    state = sums.state
    state[key, STILL_HOLDS] = 0
    if kind != FLOATS:  # 32 bits without a sign, and the rest, which of integers has it
        upper = bits >> 32
        state[key, _U(INTEGER_LIMBS)] += sign * (bits & MASK)
        state[key, _U(INTEGER_LIMBS + 1)] += sign * (upper & MASK if kind == NATURALS else upper)
        return True
    if (bits >> 52) & 0x7FF == 0x7FF:
        column = NANS if bits & ((1 << 52) - 1) != 0 else PLUS if bits >= 0 else MINUS
        state[key, _U(column)] += sign
        return True
    mantissa, place = mantissa_of(bits), last_place(bits)
    if mantissa == 0:
        return True
    squares = statistic >= VARIANCE
    if not _make_limbs_fit(sums, key, place, squares):
        return False
    signed = -sign if bits < 0 else sign
    wide = _U(state[key, WIDE])
    if wide == 0:
        add_float(state, key, LIMBS + (place >> 5) - state[key, BASE], mantissa, place & 31, signed)
        if squares:
            first = SQUARES + ((2 * place) >> 5) - state[key, BASE_OF_SQUARES]
            add_square(state, key, first, mantissa, (2 * place) & 31, sign)
    else:
        add_float(sums.wide, wide, place >> 5, mantissa, place & 31, signed)
        if squares:
            add_square(sums.wide, wide, WIDE_OF_SUMS + ((2 * place) >> 5), mantissa, (2 * place) & 31, sign)
    return True


@helper
def _sum_of_floats(sums, key):
    """Return the sum of the values of a key."""
    state = sums.state
    if state[key, NANS] > 0 or (state[key, PLUS] > 0 and state[key, MINUS] > 0):
        return np.nan
    if state[key, PLUS] > 0:
        return np.inf
    if state[key, MINUS] > 0:
        return -np.inf
    wide = _U(state[key, WIDE])
    if wide == 0:
        size = digits_of(state, key, LIMBS, LIMBS_OF_FLOATS, sums.digits, 0)
        return float_of(sums.digits, size, 32 * state[key, BASE] + UNIT_OF_SUMS, sums.powers)
    size = digits_of(sums.wide, wide, 0, WIDE_OF_SUMS, sums.digits, 0)
    return float_of(sums.digits, size, UNIT_OF_SUMS, sums.powers)


@helper
def _leading(digits, at, size):
    """Return a number of four digits, the first of all that there are, as a float64 and what it lacks."""
    a = np.float64(digits[_U(at + size - 1)]) * 2.0**96 if size > 0 else 0.0
    b = np.float64(digits[_U(at + size - 2)]) * 2.0**64 if size > 1 else 0.0
    c = np.float64(digits[_U(at + size - 3)]) * 2.0**32 if size > 2 else 0.0
    d = np.float64(digits[_U(at + size - 4)]) if size > 3 else 0.0
    high, rest = a + b, c + d
    low = b - (high - a)
    middle = low + rest
    # of what `middle` lacks either part may be the greater
    part = middle - low
    error = (low - (middle - part)) + (rest - part) + (d - (rest - c))
    total = high + middle
    return total, (middle - (total - high)) + error


@helper
def _product_and_error(x, y):
    """Return the product of two float64, and what it lacks."""
    product = x * y
    split = 134217729.0  # 2**27 + 1
    t = split * x
    x_high = t - (t - x)
    x_low = x - x_high
    t = split * y
    y_high = t - (t - y)
    y_low = y - y_high
    return product, ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


@kernel
def all_digits_of_spread(digits, n, size, base, n_squares, base_of_squares):
    """Compute ``n * squares - sum**2`` from all digits.

    Parameters
    ----------
    digits : int64, shape (3 * DIGITS,), written
        Digits of the sum, and from DIGITS on of the sum of squares; then, from the beginning, those of the result.
    n, size, base, n_squares, base_of_squares : int
        Number of values; numbers of digits, and the bases of these.

    Returns
    -------
    int, int
        Number of the digits of the result, and their base in units of squares.
    """
    out = 2 * DIGITS
    for k in range(DIGITS):
        digits[_U(out + k)] = 0
    begin = min(2 * base, base_of_squares)
    for k in range(n_squares):
        product = _U(n) * _U(digits[_U(DIGITS + k)])
        at = out + k + base_of_squares - begin
        digits[_U(at)] += np.int64(product & _U(MASK))
        digits[_U(at + 1)] += np.int64(product >> _U(32))
    for i in range(size):
        for j in range(size):
            product = _U(digits[_U(i)]) * _U(digits[_U(j)])
            at = out + i + j + 2 * base - begin
            digits[_U(at)] -= np.int64(product & _U(MASK))
            digits[_U(at + 1)] -= np.int64(product >> _U(32))
    carry = np.int64(0)
    n_digits = 0
    for k in range(DIGITS):
        digit = digits[_U(out + k)] + carry
        carry = digit >> 32
        digits[_U(k)] = digit & MASK
        if digit & MASK != 0:
            n_digits = k + 1
    return n_digits, begin


@helper
def _sample_spread(sums, key, statistic):
    """Return the variance or the standard deviation of the sample that the values of a key are, at least two."""
    state, digits = sums.state, sums.digits
    if state[key, NANS] > 0 or state[key, PLUS] > 0 or state[key, MINUS] > 0:
        return np.nan
    wide = _U(state[key, WIDE])
    if wide == 0:
        base, base_of_squares = state[key, BASE], state[key, BASE_OF_SQUARES]
        size = abs(digits_of(state, key, LIMBS, LIMBS_OF_FLOATS, digits, 0))
        n_squares = digits_of(state, key, SQUARES, LIMBS_OF_SQUARES, digits, DIGITS)
    else:
        base = base_of_squares = np.int64(0)
        size = abs(digits_of(sums.wide, wide, 0, WIDE_OF_SUMS, digits, 0))
        n_squares = digits_of(sums.wide, wide, WIDE_OF_SUMS, WIDE_OF_SQUARES, digits, DIGITS)
    if n_squares == 0:
        return 0.0
    n = state[key, SIZE]
    squares, lacking = _leading(digits, DIGITS, n_squares)
    place = 32 * (n_squares - 4 + base_of_squares)
    all_squares, lacks = _product_and_error(np.float64(n), squares)
    lacks += np.float64(n) * lacking
    spread = all_squares + lacks
    if size > 0:
        total, lacking = _leading(digits, 0, size)
        square, without = _product_and_error(total, total)
        without += 2.0 * total * lacking
        shift = 64 * (size - 4 + base) - place  # negative, as the square of a sum is at most n times the squares
        factor = sums.powers[_U(shift + 1022)] if shift > -1000 else 0.0
        spread = (all_squares - square * factor) + (lacks - without * factor)
    if spread < _CLOSE * all_squares:
        n_digits, base = all_digits_of_spread(digits, n, size, base, n_squares, base_of_squares)
        if n_digits == 0:
            return 0.0
        spread, place = top_bits(digits, n_digits), top_place(digits, n_digits) + 32 * base
        if place % 2 != 0:
            spread, place = 2.0 * spread, place - 1
    variance = spread / (np.float64(n) * np.float64(n - 1))
    if statistic == VARIANCE:
        return scaled(variance, place + UNIT_OF_SQUARES, sums.powers)
    return scaled(math.sqrt(variance), (place + UNIT_OF_SQUARES) // 2, sums.powers)


@helper
def _expire_sums(sums, pool, key, clock, length, kind, statistic):
    """Take out what has left the window of a key; return whether there was memory."""
    while has_left(pool, sums.state[key, HEAD], clock, length):
        if not _add_to_sums(sums, key, pool.cells[_U(sums.state[key, HEAD]), VALUE], -1, kind, statistic):
            return False
        pop_first(sums.state, pool, key)
    return True


@kernel
def sum_in_windows(events, start, sweep, n_keys, sums, pool, kind, statistic, integers, floats, has_result):
    """Sum the values in the window of each event; the first arguments are those of `window_queues.count_in_windows`.

    Parameters
    ----------
    events : WindowEvents
        Values are int64, or the bits of float64.
    start, sweep, n_keys : int
    sums : ExactSums
    pool : Pool
    kind : int
        INTEGERS, NATURALS (uint64) or FLOATS, which statistics from VARIANCE on need.
    statistic : int
        SUM, MEAN, or another of `cer_gpu.ceql.functions`.
    integers : int64, shape (block, 2), or (0, 2), written
        Lower and upper half of each sum of integers.
    floats : float64, shape (block,), or (0,), written
        Each other result.
    has_result : bool, shape (block,), written
        True where there is a result.

    Returns
    -------
    int
        Number of the first event that was not read, as the pool or the wide rows are full; or the number of all.
    """
    state = sums.state
    if sweep == 1:
        for each in range(n_keys):
            if not _expire_sums(sums, pool, _U(each), events.clocks[_U(start)], events.length, kind, statistic):
                break
        return start
    least = 2 if statistic >= VARIANCE else 1
    for k in range(start, events.rows.shape[0]):
        prefetch_entries(state, pool, events.keys, k)
        row, key, clock = _U(events.rows[_U(k)]), _U(events.keys[_U(k)]), events.clocks[_U(k)]
        if not _expire_sums(sums, pool, key, clock, events.length, kind, statistic):
            return k
        if events.chosen[row]:
            value = events.values[row]
            if not has_entry(pool) or not _add_to_sums(sums, key, value, 1, kind, statistic):
                return k
            pool.cells[_U(push_last(state, pool, key, clock)), VALUE] = value
        has_result[row] = state[key, SIZE] >= least
        if state[key, SIZE] < least:
            continue
        if kind != FLOATS and statistic == SUM:
            upper = state[key, _U(INTEGER_LIMBS + 1)] + (state[key, _U(INTEGER_LIMBS)] >> 32)
            integers[row, _U(0)] = (upper << 32) | (state[key, _U(INTEGER_LIMBS)] & MASK)
            integers[row, _U(1)] = upper >> 32
            continue
        if state[key, STILL_HOLDS] == 0:
            if statistic >= VARIANCE:
                sums.results[key, RESULT] = _sample_spread(sums, key, statistic)
            elif kind != FLOATS:
                size = digits_of(state, key, INTEGER_LIMBS, LIMBS_OF_INTEGERS, sums.digits, 0)
                sums.results[key, RESULT] = float_of(sums.digits, size, 0, sums.powers) / state[key, SIZE]
            else:
                total = _sum_of_floats(sums, key)
                sums.results[key, RESULT] = total if statistic == SUM else total / state[key, SIZE]
            state[key, STILL_HOLDS] = 1
        floats[row] = sums.results[key, RESULT]
    return events.rows.shape[0]
