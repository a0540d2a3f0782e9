"""Operators on numbers in compiled code, and a prefetch: the spelling that `cer_gpu.expressions.operators` gives them.

Functions of int64 are for operands whose results fit (`cer_gpu.expressions.arithmetic`); those of NULL rows, which mean
nothing, may wrap around.  A wide integer has 128 bits: (int64 high, uint64 low), in two's complement.  Integers whose
results may not fit int64, and numbers of unlike types, scales or units that are compared, are wide.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper

try:
    from llvmlite import ir
    from numba.core import cgutils
    from numba.core.types import void
    from numba.extending import intrinsic
    from numba.np.arrayobj import make_array
except ImportError:  # undocumented parts of Numba: without them code is slower, with the same results

    @helper
    def prefetch(array, at):
        """Do nothing."""

else:

    @intrinsic
    def prefetch(typing_context, array, at):
        """Ask for the cache line of an element, which may lie beyond the array's end, and continue without it.

        In a loop with some work for each row, the processor has only few rows in flight and would wait for memory at
        each new line; on virtual machines we measured, loops take up to a third of the time with this.
        """

        def codegen(context, builder, signature, arguments):
            data = make_array(signature.args[0])(context, builder, arguments[0]).data
            address = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(function, [address, number(0), number(3), number(1)])  # to read, to all caches, data
            return context.get_dummy_value()

        return void(array, at), codegen


PLUS, MINUS, TIMES, DIVIDED, MODULO = range(5)
"""Codes of operators on two numbers in programs (`cer_gpu.backend.joins.filters`)."""
NEGATIVE, ABSOLUTE = range(2)
"""Codes of those on one."""


@helper
def of_two_integers(op, x, y):
    """Return ``x op y`` of int64, which fits; any value for a division by 0."""
    if op == PLUS:
        return np.int64(np.uint64(x) + np.uint64(y))
    if op == MINUS:
        return np.int64(np.uint64(x) - np.uint64(y))
    if op == TIMES:
        return np.int64(np.uint64(x) * np.uint64(y))
    if op == DIVIDED:
        return quotient(x, y)
    assert op == MODULO
    return remainder(x, y)


@helper
def of_two_floats(op, x, y):
    """Return ``x op y`` of float64."""
    if op == PLUS:
        return x + y
    if op == MINUS:
        return x - y
    if op == TIMES:
        return x * y
    if op == DIVIDED:
        return x / y
    assert op == MODULO
    return np.fmod(x, y)


@helper
def of_one_integer(op, x):
    """Return ``op x`` of an int64, which fits."""
    if op == NEGATIVE:
        return np.int64(np.uint64(0) - np.uint64(x))
    assert op == ABSOLUTE
    return absolute(x)


@helper
def of_one_float(op, x):
    """Return ``op x`` of a float64."""
    if op == NEGATIVE:
        return -x
    assert op == ABSOLUTE
    return abs(x)


@helper
def absolute(x):
    """Return ``|x|`` of an int64; the least is its own."""
    return np.int64(np.uint64(0) - np.uint64(x)) if x < 0 else x


@helper
def fmod(x, y):
    """Return the remainder of floats with the sign of `x`."""
    return np.fmod(x, y)


@helper
def quotient(x, y):
    """Return int64 ``x / y``, truncated toward zero; any value if `y` is 0, or if it is the smallest by -1."""
    small = (y == 0) | (y == -1)
    divisor = np.int64(1) if small else y
    cut = x // divisor + np.int64((x % divisor != 0) & ((x < 0) != (divisor < 0)))
    return np.int64(np.uint64(0) - np.uint64(x)) if small else cut


@helper
def remainder(x, y):
    """Return int64 ``x % y`` with the sign of `x`; any value if `y` is 0."""
    divisor = np.int64(1) if (y == 0) | (y == -1) else y
    rest = x % divisor
    return rest - divisor if (rest != 0) & ((x < 0) != (divisor < 0)) else rest


@helper
def compared(op, x, y):
    """Return ``x op y`` of two values of one type; `op` counts = <> < <= > >= from 0."""
    if op == 2:
        return x < y
    if op == 4:
        return x > y
    if op == 3:
        return x <= y
    if op == 5:
        return x >= y
    if op == 0:
        return x == y
    return x != y


@helper
def widened(x, factor):
    """Return int64 ``x`` times a positive int64 as a wide integer."""
    negative = x < 0
    high, low = wide_product(np.uint64(0) - np.uint64(x) if negative else np.uint64(x), np.uint64(factor))
    if negative:
        low = np.uint64(0) - low
        high = ~high + np.uint64(low == 0)
    return np.int64(high), low


@helper
def widened_natural(x, factor):
    """Return uint64 ``x`` times a positive int64, of which the product has at most 127 bits, as a wide integer."""
    high, low = wide_product(x, np.uint64(factor))
    return np.int64(high), low


@helper
def wide_product(x, y):
    """Return the upper and the lower half (uint64) of the product of two uint64."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b, c, d = x >> half, x & mask, y >> half, y & mask
    low, mixed = b * d, a * d
    mixed += low >> half
    other = b * c + (mixed & mask)
    return a * c + (mixed >> half) + (other >> half), (other << half) | (low & mask)


@helper
def wide_sum(x, y):
    """Return ``x + y`` of two wide integers."""
    low = x[1] + y[1]
    return np.int64(np.uint64(x[0]) + np.uint64(y[0]) + np.uint64(low < y[1])), low


@helper
def wide_times(x, y):
    """Return ``x * y`` of two wide integers."""
    high, low = wide_product(x[1], y[1])
    return np.int64(high + np.uint64(x[0]) * y[1] + x[1] * np.uint64(y[0])), low


@helper
def wide_negative(x):
    """Return ``-x`` of a wide integer."""
    low = np.uint64(0) - x[1]
    return np.int64(~np.uint64(x[0]) + np.uint64(low == 0)), low


@helper
def wide_absolute(x):
    """Return ``|x|`` of a wide integer."""
    return wide_negative(x) if x[0] < 0 else x


@helper
def is_short(x):
    """Return True if a wide integer fits int64."""
    return x[0] == np.int64(x[1]) >> np.int64(63)


@helper
def wide_quotient(x, y):
    """Return ``x / y`` of wide integers, truncated toward zero; any value if `y` is 0."""
    if is_short(x) and is_short(y) and y[1] != np.uint64(0xFFFFFFFFFFFFFFFF):
        short = quotient(np.int64(x[1]), np.int64(y[1]))
        return short >> np.int64(63), np.uint64(short)
    divided = wide_divided(wide_absolute(x), wide_absolute(y))
    result = divided[0], divided[1]
    return wide_negative(result) if (x[0] < 0) != (y[0] < 0) else result


@helper
def wide_remainder(x, y):
    """Return ``x % y`` of wide integers, with the sign of `x`; any value if `y` is 0."""
    if is_short(x) and is_short(y):
        short = remainder(np.int64(x[1]), np.int64(y[1]))
        return short >> np.int64(63), np.uint64(short)
    divided = wide_divided(wide_absolute(x), wide_absolute(y))
    result = divided[2], divided[3]
    return wide_negative(result) if x[0] < 0 else result


@helper
def wide_divided(x, y):
    """Return the halves of ``x / y`` and of the remainder, of absolute values; long division, bit by bit."""
    one, top = np.uint64(1), np.uint64(63)
    high, low = np.uint64(x[0]), x[1]
    rest_high = rest_low = np.uint64(0)
    divisor_high, divisor_low = np.uint64(y[0]), y[1]
    for _ in range(128):
        rest_high = (rest_high << one) | (rest_low >> top)
        rest_low = (rest_low << one) | (high >> top)
        high = (high << one) | (low >> top)
        low = low << one
        if rest_high > divisor_high or (rest_high == divisor_high and rest_low >= divisor_low):
            rest_high -= divisor_high + np.uint64(rest_low < divisor_low)
            rest_low -= divisor_low
            low |= one
    return np.int64(high), low, np.int64(rest_high), rest_low


@helper
def wide_float(x):
    """Return a wide integer as the nearest float64, ties to even."""
    if is_short(x):
        return np.float64(np.int64(x[1]))
    magnitude = wide_absolute(x)
    high, low = np.uint64(magnitude[0]), magnitude[1]
    scale = 1.0
    lost = np.uint64(0)
    while high != 0:  # a bit that stands for all that are lost decides ties
        lost |= low & np.uint64(1)
        low = (low >> np.uint64(1)) | (high << np.uint64(63))
        high >>= np.uint64(1)
        scale *= 2.0
    scaled = np.float64(low | lost) * scale
    return -scaled if x[0] < 0 else scaled


@helper
def sum_fits(x, y, total):
    """Return whether the sum of two wide integers is what `wide_sum` returned."""
    return (x[0] ^ total[0]) & (y[0] ^ total[0]) >= 0


@helper
def product_fits(x, y):
    """Return whether `wide_times` returns the product of two wide integers; False for -2**127, which it does."""
    if is_short(x) and is_short(y):
        return True
    a, b = wide_absolute(x), wide_absolute(y)
    if a[0] < 0 or b[0] < 0 or (a[0] > 0 and b[0] > 0):
        return (a[1] == 0 and a[0] == 0) or (b[1] == 0 and b[0] == 0)
    over, crossed = wide_product(np.uint64(a[0]), b[1]) if a[0] > 0 else wide_product(a[1], np.uint64(b[0]))
    high = wide_product(a[1], b[1])[0]
    total = high + crossed
    return over == 0 and total >= high and total < np.uint64(1 << 63)


@helper
def of_two_wide(op, x, y):
    """Return ``x op y`` of wide integers, and whether it fits; any value for a division by 0."""
    if op == PLUS:
        result = wide_sum(x, y)
        return result, sum_fits(x, y, result)
    if op == MINUS:
        result = wide_difference(x, y)
        return result, sum_fits(result, y, x)
    if op == TIMES:
        return wide_times(x, y), product_fits(x, y)
    if op == DIVIDED:
        return wide_quotient(x, y), True
    assert op == MODULO
    return wide_remainder(x, y), True


@helper
def of_one_wide(op, x):
    """Return ``op x`` of a wide integer, and whether it fits."""
    result = wide_negative(x) if op == NEGATIVE else wide_absolute(x)
    return result, not (result[0] < 0 and x[0] < 0)


@helper
def wide_difference(x, y):
    """Return ``x - y`` of two wide integers."""
    borrow = np.uint64(x[1] < y[1])
    return np.int64(np.uint64(x[0]) - np.uint64(y[0]) - borrow), x[1] - y[1]


@helper
def wide_equal(x, y):
    """Return whether two wide integers are equal; without a branch, so that loops are vectorised."""
    return (x[0] == y[0]) & (x[1] == y[1])


@helper
def wide_less(x, y):
    """Return whether a wide integer is less than another; without a branch, so that loops are vectorised."""
    return (x[0] < y[0]) | ((x[0] == y[0]) & (x[1] < y[1]))


@helper
def wide_order(x, y):
    """Return -1, 0 or 1 where a wide integer is less than, equal to or greater than another."""
    if x[0] != y[0]:
        return np.int64(-1) if x[0] < y[0] else np.int64(1)
    return np.int64(x[1] > y[1]) - np.int64(x[1] < y[1])


@helper
def float_compared(op, x, y):
    """Return ``x op y`` of a float64 and a wide integer, compared exactly."""
    if x != x:
        return op == 1
    whole = np.floor(x)
    if whole >= 170141183460469231731687303715884105728.0:
        return compared(op, np.int64(1), np.int64(0))
    if whole < -170141183460469231731687303715884105728.0:
        return compared(op, np.int64(0), np.int64(1))
    if -9223372036854775808.0 <= whole < 9223372036854775808.0:
        floored = np.int64(whole) >> np.int64(63), np.uint64(np.int64(whole))
    else:
        high = np.floor(whole / 18446744073709551616.0)  # exact, as is the rest
        floored = np.int64(high), np.uint64(whole - high * 18446744073709551616.0)
    order = wide_order(floored, y)
    return compared(op, np.int64(whole < x) if order == 0 else order, np.int64(0))
