"""Operators on numbers in compiled code, and a prefetch: the spelling that `cer_gpu.expressions.operators` gives them.

A wide integer has 128 bits: (int64 high, uint64 low), in two's complement.  Numbers of unlike types, scales or units
become wide before they are compared, so that nothing wraps around.
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
        """Ask for the cache line of an element, which may lie beyond the array's end, and go on without it.

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
    """Return ``x op y`` of int64, which wraps around; any value for a division by 0."""
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
    """Return ``op x`` of an int64, which wraps around."""
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
    """Return int64 ``x / y``, truncated toward zero; the smallest by -1 is 0 as in Arrow; any value if `y` is 0."""
    small = (y == 0) | (y == -1)
    divisor = np.int64(1) if small else y
    cut = x // divisor + np.int64((x % divisor != 0) & ((x < 0) != (divisor < 0)))
    negated = np.int64(np.uint64(0) - np.uint64(x))  # the smallest negated is itself
    return (np.int64(0) if negated == x else negated) if small else cut


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
def wide_difference(x, y):
    """Return ``x - y`` of two wide integers."""
    borrow = np.uint64(x[1] < y[1])
    return np.int64(np.uint64(x[0]) - np.uint64(y[0]) - borrow), x[1] - y[1]


@helper
def wide_order(x, y):
    """Return -1, 0 or 1 where a wide integer is less than, equal to or greater than another."""
    if x[0] != y[0]:
        return np.int64(-1) if x[0] < y[0] else np.int64(1)
    return np.int64(x[1] > y[1]) - np.int64(x[1] < y[1])


@helper
def float_compared(op, x, y):
    """Return ``x op y`` of a float64 and the wide integer of an int64 or uint64, compared exactly."""
    if x != x:
        return op == 1
    whole = np.floor(x)
    if whole >= 18446744073709551616.0:
        return compared(op, np.int64(1), np.int64(0))
    if whole < -9223372036854775808.0:
        return compared(op, np.int64(0), np.int64(1))
    if whole < 0.0:
        order = wide_order((np.int64(-1), np.uint64(np.int64(whole))), y)
    else:
        order = wide_order((np.int64(0), np.uint64(whole)), y)
    return compared(op, np.int64(whole < x) if order == 0 else order, np.int64(0))
