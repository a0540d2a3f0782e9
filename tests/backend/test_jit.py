"""The undocumented flag of `cer_gpu.backend.jit` still does what it is there for."""

import numpy as np

from cer_gpu.backend.jit import helper, kernel


@helper
def _bump(array, other, i):
    array[i] += other[i]


@kernel
def bump_all(array, other):
    """Add with a helper that takes arrays, inside a loop with a branch."""
    for i in range(array.shape[0]):
        if other[i] > 0:
            _bump(array, other, i)


def test_kernels_count_no_references():
    array = np.arange(4)
    bump_all(array, np.array([0, 1, 2, 3]))
    assert array.tolist() == [0, 2, 4, 6]
    (compiled,) = bump_all.inspect_llvm().values()
    assert "define" in compiled
    assert "NRT_incref" not in compiled
    assert "NRT_decref" not in compiled
