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
"""Arrays of a size that wait to be taken again: one is filled while another is read, and threads have some more."""


class Recycler:
    """Gives arrays in memory of Arrow's pool, of which it takes again what nobody uses."""

    def __init__(self) -> None:
        self._free: dict[int, deque[pa.Buffer]] = {}

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array whose values are not set."""
        kind = np.dtype(dtype)
        n_bytes = prod(shape) * kind.itemsize
        free = self._free.setdefault(n_bytes, deque(maxlen=MOST_FREE))
        memory = free.pop() if free else pa.allocate_buffer(n_bytes)
        lent = pa.py_buffer(memory)
        # arrays of Arrow may be dropped in any thread: appending is safe in all of them
        weakref.finalize(lent, free.append, memory).atexit = False
        return np.ndarray(shape, kind, lent)
