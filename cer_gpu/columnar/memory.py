"""Memory: for what is made of one block of events, taken again for the next, and for what grows.

Fresh memory costs a fault for each page, so that much at once is to come in large pages; and what the allocator gets
back it keeps, so that arrays that grow leave holes.
"""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from cer_gpu.backend.compaction import gather

LARGE = 1 << 20
"""Bytes from which on memory is asked of the system, to which it goes back when it is done with."""

GROWS_IN_PLACE = sys.platform == "linux"
"""Whether memory of the system becomes more without a copy."""

_PRIVATE: dict[str, Any] = {}
if hasattr(mmap, "MAP_PRIVATE"):  # not on Windows, where it is private anyway
    _PRIVATE["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array as one that is contiguous, aligned and not to be written to: code is compiled for these only."""
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        array = array.copy()
    elif not flags.writeable:
        return array
    array = array.view()
    array.flags.writeable = False
    return array


def room(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array in which anything stands; pages that are not written to take no memory.  Raises MemoryError."""
    n_bytes = prod(shape) * np.dtype(dtype).itemsize
    return np.empty(shape, dtype) if n_bytes < LARGE else np.ndarray(shape, dtype, _mapped(n_bytes))


def _mapped(n_bytes: int) -> mmap.mmap:
    """Return memory of the system."""
    try:
        memory = mmap.mmap(-1, n_bytes, **_PRIVATE)
    except OSError as error:
        raise MemoryError(str(error)) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # of a system without large pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class Rows:
    """Rows of int64 that may become more, where the system can without a copy: that would need the room of both.

    Parameters
    ----------
    n, width

    Attributes
    ----------
    array : int64, shape (n, width)
        Not to be kept: it is another one when there are more rows.
    """

    def __init__(self, n: int, width: int) -> None:
        self._memory: mmap.mmap | None = None
        self.array = self._room(n, width)

    def grow(self, n: int) -> None:
        """Let there be `n` rows; those that there were stay as they are.  Raises MemoryError."""
        before, memory = self.array.shape, self._memory
        if memory is not None and GROWS_IN_PLACE:
            del self.array
            try:
                memory.resize(n * before[1] * 8)
                before = (n, before[1])
            except (BufferError, OSError, SystemError, ValueError):
                pass  # no room there, or somebody looks at it
            self.array = _rows_of(memory, before)
        if before[0] < n:
            old = self.array
            self.array = self._room(n, before[1])
            self.array[: before[0]] = old

    def _room(self, n: int, width: int) -> npt.NDArray[np.int64]:
        if 8 * n * width < LARGE:
            return np.empty((n, width), np.int64)
        self._memory = _mapped(8 * n * width)
        return _rows_of(self._memory, (n, width))


def _rows_of(memory: mmap.mmap, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return an array while which lasts the memory cannot be resized."""
    return np.frombuffer(memory, np.int64, prod(shape)).reshape(shape)


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
