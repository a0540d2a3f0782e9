"""Memory of results, which is taken again once nothing refers to them.

Fresh pages cost more than what is written to them, and what was written a moment ago is still in the cache.
"""

from __future__ import annotations

import weakref
from collections import deque
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MOST_FREE = 4
"""Blocks that wait to be taken again: one is filled while another is read, and threads have some more."""


class Recycler:
    """Gives arrays in blocks of memory, of which it takes those again that nobody uses."""

    def __init__(self) -> None:
        self._free: deque[pa.Buffer] = deque(maxlen=MOST_FREE)

    def arrays(self, *wanted: tuple[tuple[int, ...], npt.DTypeLike]) -> list[npt.NDArray[Any]]:
        """Return arrays of the wanted shapes and dtypes, side by side in one block; their values are not set.

        Larger dtypes come before smaller ones, so that each array is aligned.
        """
        kinds = [(shape, np.dtype(dtype)) for shape, dtype in wanted]
        ends = np.cumsum([prod(shape) * dtype.itemsize for shape, dtype in kinds])
        block = self._block(int(ends[-1]))
        begins = [0, *map(int, ends[:-1])]
        return [np.ndarray(shape, dtype, block, begin) for (shape, dtype), begin in zip(kinds, begins, strict=True)]

    def _block(self, n_bytes: int) -> pa.Buffer:
        memory = None
        while self._free and (memory is None or memory.size != n_bytes):
            memory = self._free.pop()
        if memory is None or memory.size != n_bytes:
            memory = pa.allocate_buffer(n_bytes)
        lent = pa.py_buffer(memory)
        # arrays of Arrow may be dropped in any thread: appending is safe in all of them
        weakref.finalize(lent, self._free.append, memory).atexit = False
        return lent
