"""Memory that is reused from block to block, and memory that grows.

Fresh memory costs a fault for each page, so large arrays ask for large pages; and the allocator keeps memory that is
freed, so growing arrays would fragment it.
"""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from cer_gpu.arrays import Int64
from cer_gpu.backend.compaction import gather
from cer_gpu.columnar.buffer_leases import leased_slots

LARGE = 1 << 20
"""Bytes from which on memory is mapped from the system, and unmapped after use."""

GROWS_IN_PLACE = sys.platform == "linux"
"""True if mmap can grow a mapping in place (mremap)."""

_PRIVATE: dict[str, Any] = {}
if hasattr(mmap, "MAP_PRIVATE"):  # not on Windows, whose mappings are private anyway
    _PRIVATE["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array as a contiguous, aligned and read-only one, as compiled code expects; copy it only if needed."""
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        array = array.copy()
    elif not flags.writeable:
        return array
    array = array.view()
    array.flags.writeable = False
    return array


def allocate(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an uninitialised array, whose pages take memory only once written to; raises MemoryError."""
    n_bytes = prod(shape) * np.dtype(dtype).itemsize
    return np.empty(shape, dtype) if n_bytes < LARGE else np.ndarray(shape, dtype, _map_memory(n_bytes))


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array of zeros, whose pages take memory, and time, only once used; raises MemoryError."""
    array = allocate(shape, dtype)
    if array.nbytes < LARGE:
        array[...] = 0
    return array  # what the system maps is empty


def _map_memory(n_bytes: int) -> mmap.mmap:
    """Return memory mapped from the system."""
    try:
        memory = mmap.mmap(-1, n_bytes, **_PRIVATE)
    except OSError as error:
        raise MemoryError(str(error)) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the system has no large pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class GrowableArray:
    """Rows of int64 that can grow, in place if the system can: a copy needs the memory of both.

    Parameters
    ----------
    n, width

    Attributes
    ----------
    array : int64, shape (n, width)
        The rows; `grow` replaces the array, so keep no reference to it.
    """

    def __init__(self, n: int, width: int) -> None:
        self._memory: mmap.mmap | None = None
        self.array: Int64 = self._reserve_rows(n, width)

    def grow(self, n: int) -> None:
        """Grow to `n` rows, and keep the values of the present ones; raises MemoryError."""
        before, memory = self.array.shape, self._memory
        if memory is not None and GROWS_IN_PLACE:
            del self.array
            try:
                memory.resize(n * before[1] * 8)
                before = (n, before[1])
            except (BufferError, OSError, SystemError, ValueError):
                pass  # no space to grow in place, or another view of the memory
            self.array = _rows_of(memory, before)
        if before[0] < n:
            old = self.array
            self.array = self._reserve_rows(n, before[1])
            self.array[: before[0]] = old

    def _reserve_rows(self, n: int, width: int) -> npt.NDArray[np.int64]:
        if 8 * n * width < LARGE:
            return np.empty((n, width), np.int64)
        self._memory = _map_memory(8 * n * width)
        return _rows_of(self._memory, (n, width))


def _rows_of(memory: mmap.mmap, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return a view of memory as rows; while it lives, the memory cannot be resized."""
    return np.frombuffer(memory, np.int64, prod(shape)).reshape(shape)


def larger_ring(ring: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return a larger ring (a power of two of at least `size`), with each entry at its id modulo the new size."""
    copies = (1 << (size - 1).bit_length()) // len(ring)
    return np.concatenate([ring] * copies)


class Scratch:
    """Reusable memory of one dtype, which grows to the largest request.

    Parameters
    ----------
    dtype
    *row
        Shape of one row.
    """

    def __init__(self, dtype: npt.DTypeLike, *row: int) -> None:
        self._dtype, self._row = dtype, row
        self._cell = leased_slots()[np.dtype(dtype), row]
        if self._cell.memory is None:
            self._cell.memory = np.empty((0, *row), dtype)

    def empty(self, n: int) -> npt.NDArray[Any]:
        """Return `n` uninitialised rows; the next call returns the same memory."""
        memory: npt.NDArray[Any] = self._cell.memory
        if n > len(memory):
            memory = self._cell.memory = allocate((1 << (n - 1).bit_length(), *self._row), self._dtype)
        return memory[:n]


class GatherBuffer:
    """Gather of the numbers of some rows into reusable memory."""

    def __init__(self) -> None:
        self._memory = {"i": Scratch(np.int64), "u": Scratch(np.uint64), "f": Scratch(np.float64)}

    def take(self, numbers: npt.NDArray[Any], rows: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """Return the numbers of the rows as int64, uint64 or float64, valid until the next call."""
        taken = self._memory[numbers.dtype.kind].empty(len(rows))
        gather(read_only(numbers), rows, taken)
        return taken
