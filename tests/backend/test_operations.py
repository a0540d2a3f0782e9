"""Functions of generated code; `prefetch` uses undocumented parts of Numba, and must still be there."""

from functools import partial

import numpy as np

from cer_gpu.backend import jit
from cer_gpu.backend.operations import prefetch, quotient, remainder

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
            expected = (0, 0) if (x, y) == (LOW, -1) else (whole, x - whole * y)
            assert tuple(found.tolist()) == expected, (x, y)
