"""Copies of arrays of the host to a device, by several threads, each by small pieces of pinned memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cer_gpu.backend.device import Bytes, Device

PIECE = 1 << 22
"""Bytes that a thread copies at once: fewer cost too many calls, and more too much pinned memory."""

_THREADS = 12
_AT_ONCE = 2
"""Pieces of each thread: one is filled while the other is on its way."""


class Staging:
    """Pinned memory and queues for copies to one device.

    Parameters
    ----------
    device : Device
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        n = min(_THREADS, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(n, "copy to a device")
        self._queues = [[device.queue() for _ in range(_AT_ONCE)] for _ in range(n)]
        self._pinned: list[list[Bytes]] = [[] for _ in range(n)]

    def copy(self, arrays: Iterable[tuple[int, Bytes]]) -> None:
        """Copy arrays to addresses of the device, and return when they are there.

        Raises
        ------
        OutOfDeviceMemory
            When there is no room for pinned memory.
        """
        pieces = [
            (address + first, data[first : first + PIECE])
            for address, data in arrays
            for first in range(0, len(data), PIECE)
        ]
        n = len(self._queues)
        if sum(len(data) for _, data in pieces) <= PIECE:
            self._copy_staged(0, pieces)
        else:
            for _ in self._threads.map(lambda thread: self._copy_staged(thread, pieces[thread::n]), range(n)):
                pass

    def _copy_staged(self, thread: int, pieces: list[tuple[int, Bytes]]) -> None:
        queues, pinned = self._queues[thread], self._pinned[thread]
        if pieces and not pinned:
            pinned.extend(self._device.pinned(PIECE) for _ in range(_AT_ONCE))
        turn, at = 0, 0  # small arrays share a piece
        for address, data in pieces:
            if at + len(data) > PIECE:
                turn, at = (turn + 1) % _AT_ONCE, 0
            if at == 0:
                queues[turn].wait()
            room = pinned[turn][at : at + len(data)]
            np.copyto(room, data)
            queues[turn].write(address, room)
            at += len(data)
        for queue in queues:
            queue.wait()
