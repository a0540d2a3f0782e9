"""The undocumented flag of `cer_gpu.backend.jit` still does what it is there for."""

import numpy as np

from cer_gpu.backend import jit


@jit.helper
def _bump(array, other, i):
    array[i] += other[i]


def test_kernels_count_no_references(monkeypatch):
    monkeypatch.setitem(jit._OPTIONS, "cache", False)  # what comes from the cache cannot be inspected

    @jit.kernel
    def bump_all(array, other):
        for i in range(array.shape[0]):
            if other[i] > 0:
                _bump(array, other, i)

    array = np.arange(4)
    bump_all(array, np.array([0, 1, 2, 3]))
    assert array.tolist() == [0, 2, 4, 6]
    (compiled,) = bump_all.inspect_llvm().values()
    assert "define" in compiled
    assert "NRT_incref" not in compiled
    assert "NRT_decref" not in compiled
