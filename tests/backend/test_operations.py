"""Functions of generated code; `prefetch` uses undocumented parts of Numba, and must still be there."""

from functools import partial

import numpy as np

from cer_gpu.backend import jit
from cer_gpu.backend.operations import prefetch, quotient, remainder, wide_float, wide_quotient, wide_remainder
from cer_gpu.expressions.inputs import halves_of

LOW = -(2**63)


def test_prefetch_asks_the_processor_and_changes_nothing():
    @partial(jit.kernel, keep=False)  # a kernel loaded from disk cannot be inspected
    def total(array):
        found = 0
        for i in range(array.shape[0]):
            prefetch(array, np.uint64(i + 1000))
            found += array[i]
        return found

    assert total(np.arange(10)) == 45
    (compiled,) = total.inspect_llvm().values()
    assert "@llvm.prefetch" in compiled


def test_division_truncates_toward_zero():
    @jit.kernel
    def both(x, y, found):
        found[0], found[1] = quotient(x, y), remainder(x, y)

    found = np.zeros(2, np.int64)
    for x in (LOW, LOW + 1, -7, -1, 0, 1, 7, -LOW - 1):
        for y in (LOW, -7, -2, -1, 1, 2, 7, -LOW - 1):
            both(x, y, found)
            whole = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
            if (x, y) != (LOW, -1):  # its quotient is wide
                assert found[0] == whole, (x, y)
            assert found[1] == x - whole * y, (x, y)


def test_wide_integers_are_divided_and_made_floats_exactly():
    @jit.kernel
    def each(high, low, other_high, other_low, found, floats):
        x, y = (np.int64(high), np.uint64(low)), (np.int64(other_high), np.uint64(other_low))
        quotient, remainder = wide_quotient(x, y), wide_remainder(x, y)
        found[0], found[1] = quotient[0], np.int64(quotient[1])
        found[2], found[3] = remainder[0], np.int64(remainder[1])
        floats[0] = wide_float(x)

    def of_halves(high, low):
        return (int(high) << 64) + (int(low) & (2**64 - 1))

    found, floats = np.zeros(4, np.int64), np.zeros(1)
    numbers = [1, 7, 2**53 + 1, 2**63, 2**64 + 1, 2**64 - 1, 2**100 + 2**46, 2**100 + 2**47 + 1, 10**36 + 7, 2**127 - 1]
    numbers += [-x for x in numbers] + [LOW - 1]
    for x in numbers:
        for y in numbers:
            each(*halves_of(x), *halves_of(y), found, floats)
            whole = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
            assert (of_halves(*found[:2]), of_halves(*found[2:])) == (whole, x - whole * y), (x, y)
            assert floats[0] == float(x)
