"""Recycled memory for results, reused once nothing refers to them, and memory of evaluations that take turns.

Fresh pages cost more than the writes to them, and recently written memory is still in the cache.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_TURN: ContextVar[BufferLease | None] = ContextVar("turn", default=None)

MAX_FREE = 4
"""Most free arrays of one size to keep: one is filled while another is read, and threads need some more."""


class Recycler:
    """Allocator of arrays in Arrow's pool that reuses memory once nothing refers to it."""

    def __init__(self) -> None:
        self._free: dict[int, deque[pa.Buffer]] = {}

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an uninitialised array."""
        kind = np.dtype(dtype)
        n_bytes = prod(shape) * kind.itemsize
        free = self._free.setdefault(n_bytes, deque(maxlen=MAX_FREE))
        memory = free.pop() if free else pa.allocate_buffer(n_bytes)
        lent = pa.py_buffer(memory)
        # Arrow arrays may be dropped in any thread, where append is safe
        weakref.finalize(lent, free.append, memory).atexit = False
        return np.ndarray(shape, kind, lent)

    def forget(self, sizes: Iterable[int]) -> None:
        """Give back the free memory of sizes, in bytes, that are not asked for again, and what of them is lent."""
        for n_bytes in sizes:
            self._free.pop(n_bytes, None)
        pa.default_memory_pool().release_unused()


class BufferSlot:
    """Buffer slot shared by executions that run one at a time; its contents do not survive a turn."""

    def __init__(self) -> None:
        self.memory: Any = None


class BufferLease:
    """One of several evaluations that take turns, each of which reads a whole block before the next one does.

    Objects made under ``with turn:`` use the same memory as their like in the other evaluations.

    Parameters
    ----------
    cells
        The memory that they have in common; empty at first.
    """

    def __init__(self, cells: dict[Hashable, BufferSlot]) -> None:
        self._cells = cells
        self._n_made = 0
        self._token: Token[BufferLease | None] | None = None

    def __enter__(self) -> BufferLease:
        """Begin."""
        self._token = _TURN.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        assert self._token is not None
        _TURN.reset(self._token)

    def cells(self) -> BufferSlots:
        """Return the cells of one more object that has such memory."""
        self._n_made += 1
        return BufferSlots(self._cells, self._n_made)


class BufferSlots:
    """Cells of one object, by their sizes and types.

    Attributes
    ----------
    recycler : Recycler
        That of the objects whose cells these are.
    """

    def __init__(self, cells: dict[Hashable, BufferSlot], number: int) -> None:
        self._cells, self._number = cells, number

    def __getitem__(self, key: Hashable) -> BufferSlot:
        """Return a cell, which is empty at first."""
        place = self._number, key
        cell = self._cells.get(place)
        if cell is None:
            cell = self._cells[place] = BufferSlot()
        return cell

    @property
    def recycler(self) -> Recycler:
        """Allocator of results."""
        cell = self[Recycler]
        if cell.memory is None:
            cell.memory = Recycler()
        found: Recycler = cell.memory
        return found


def leased_slots() -> BufferSlots:
    """Return cells for an object made now: in common with other evaluations, within a `BufferLease`, else its own."""
    turn = _TURN.get()
    return BufferSlots({}, 0) if turn is None else turn.cells()


@contextmanager
def outside_turns() -> Iterator[None]:
    """Make objects with memory of their own, within a turn, too: several evaluations read them."""
    token = _TURN.set(None)
    try:
        yield
    finally:
        _TURN.reset(token)
