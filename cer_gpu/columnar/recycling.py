"""Recycled memory for results, reused once nothing refers to them.

Fresh pages cost more than the writes to them, and recently written memory is still in the cache.
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
"""Most free arrays of one size to keep: one is filled while another is read, and threads need some more."""


class Recycler:
    """Allocator of arrays in Arrow's pool that reuses memory once nothing refers to it."""

    def __init__(self) -> None:
        self._free: dict[int, deque[pa.Buffer]] = {}

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an uninitialised array."""
        kind = np.dtype(dtype)
        n_bytes = prod(shape) * kind.itemsize
        free = self._free.setdefault(n_bytes, deque(maxlen=MOST_FREE))
        memory = free.pop() if free else pa.allocate_buffer(n_bytes)
        lent = pa.py_buffer(memory)
        # Arrow arrays may be dropped in any thread, where append is safe
        weakref.finalize(lent, free.append, memory).atexit = False
        return np.ndarray(shape, kind, lent)
