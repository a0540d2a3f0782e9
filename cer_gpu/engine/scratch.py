"""Memory: for what is made of one block of events, taken again for the next, and for what grows.

Fresh memory costs a fault for each page, so that much at once is to come in large pages; and what the allocator gets
back it keeps, so that arrays that grow leave holes.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from cer_gpu.backend.compaction import gather
from cer_gpu.engine.inputs import read_only

LARGE = 1 << 20
"""Bytes from which on memory is asked of the system, to which it goes back when it is done with."""

_PRIVATE: dict[str, Any] = {}
if hasattr(mmap, "MAP_PRIVATE"):  # not on Windows, where it is private anyway
    _PRIVATE["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def room(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array in which anything stands; pages that are not written to take no memory.  Raises MemoryError."""
    n_bytes = prod(shape) * np.dtype(dtype).itemsize
    if n_bytes < LARGE:
        return np.empty(shape, dtype)
    try:
        memory = mmap.mmap(-1, n_bytes, **_PRIVATE)
    except OSError as error:
        raise MemoryError(str(error)) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # of a system without large pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.ndarray(shape, dtype, memory)


def larger_ring(ring: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return a larger ring (a power of two of at least `size`); every entry is where its id looks for it."""
    copies = (1 << (size - 1).bit_length()) // len(ring)
    return np.concatenate([ring] * copies)


class Scratch:
    """Memory of one dtype, for as much as was asked for at most.

    Parameters
    ----------
    dtype
    *row
        The shape of one row.
    """

    def __init__(self, dtype: npt.DTypeLike, *row: int) -> None:
        self._memory: npt.NDArray[Any] = np.empty((0, *row), dtype)

    def empty(self, n: int) -> npt.NDArray[Any]:
        """Return so many rows, in which anything stands; the next call returns the same memory."""
        if n > len(self._memory):
            self._memory = room((1 << (n - 1).bit_length(), *self._memory.shape[1:]), self._memory.dtype)
        return self._memory[:n]


class Gathered:
    """Takes the numbers of some rows to memory of its own, which the next call uses again."""

    def __init__(self) -> None:
        self._memory = {"i": Scratch(np.int64), "u": Scratch(np.uint64), "f": Scratch(np.float64)}

    def take(self, numbers: npt.NDArray[Any], rows: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """Return the numbers of the rows as int64, uint64 or float64."""
        taken = self._memory[numbers.dtype.kind].empty(len(rows))
        gather(read_only(numbers), rows, taken)
        return taken
