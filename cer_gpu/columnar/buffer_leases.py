"""Memory for results, recycled once nothing refers to them, and buffers leased to evaluations that run in turn.

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

_LEASE: ContextVar[BufferLease | None] = ContextVar("lease", default=None)

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
        """Release memory of sizes (in bytes) that are no longer requested: free memory now, lent memory after use."""
        for n_bytes in sizes:
            self._free.pop(n_bytes, None)
        pa.default_memory_pool().release_unused()


class BufferSlot:
    """Buffer slot shared by executions that run one at a time; its contents do not survive a lease."""

    def __init__(self) -> None:
        self.memory: Any = None


class BufferLease:
    """Lease of buffers to one of several evaluations, each of which reads a whole block before the next one does.

    Objects created under ``with lease:`` use the same memory as those of the same kind in the other evaluations.

    Parameters
    ----------
    slots
        The memory that the evaluations share; empty at first.
    """

    def __init__(self, slots: dict[Hashable, BufferSlot]) -> None:
        self._slots = slots
        self._n_users = 0
        self._token: Token[BufferLease | None] | None = None

    def __enter__(self) -> BufferLease:
        """Begin."""
        self._token = _LEASE.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        assert self._token is not None
        _LEASE.reset(self._token)

    def slots(self) -> BufferSlots:
        """Return the slots of one more object with such memory."""
        self._n_users += 1
        return BufferSlots(self._slots, self._n_users)


class BufferSlots:
    """Slots of one object, by their sizes and types.

    Attributes
    ----------
    recycler : Recycler
        Allocator of the results of the objects with these slots.
    """

    def __init__(self, slots: dict[Hashable, BufferSlot], number: int) -> None:
        self._slots, self._number = slots, number

    def __getitem__(self, key: Hashable) -> BufferSlot:
        """Return a slot, which is empty at first."""
        index = self._number, key
        slot = self._slots.get(index)
        if slot is None:
            slot = self._slots[index] = BufferSlot()
        return slot

    @property
    def recycler(self) -> Recycler:
        """Allocator of results."""
        slot = self[Recycler]
        if slot.memory is None:
            slot.memory = Recycler()
        memory: Recycler = slot.memory
        return memory


def leased_slots() -> BufferSlots:
    """Return slots for a new object: shared with other evaluations within a `BufferLease`, otherwise its own."""
    lease = _LEASE.get()
    return BufferSlots({}, 0) if lease is None else lease.slots()


@contextmanager
def outside_turns() -> Iterator[None]:
    """Give new objects memory of their own, even within a lease, as several evaluations read them."""
    token = _LEASE.set(None)
    try:
        yield
    finally:
        _LEASE.reset(token)
