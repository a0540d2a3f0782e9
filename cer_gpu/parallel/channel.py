"""What one thread finds and another reads: a queue of bounded length that ends, breaks, and can be given up."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class _Stop(Exception):
    """Nobody reads any more."""


class Reading:
    """Whether what threads find is still read; they end when it is not."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self.by = threading.current_thread()

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()

    @property
    def goes_on(self) -> bool:
        """Whether there is a thread that may read on: a process ends though what was read in part is never given up."""
        return not self._stopped.is_set() and (threading.main_thread().is_alive() or self.by.is_alive())

    def next_of(self, things: queue.Queue[T | None]) -> T | None:
        """Return what comes next in a queue; None at its end, and where nothing is read any more."""
        while self.goes_on:
            try:
                return things.get(timeout=0.5)
            except queue.Empty:
                continue
        return None


class Channel(Generic[T]):
    """Hands things from one thread to another, in their order.

    Parameters
    ----------
    reading
        Of several channels: whether it goes on.
    size
        Things that wait to be read, at most.
    """

    def __init__(self, reading: Reading, size: int) -> None:
        self._queue: queue.Queue[T | BaseException | None] = queue.Queue(size)
        self._reading = reading

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Fill the channel in this block: its end, or the error that ends it, is handed on."""
        end: BaseException | None = None
        try:
            yield
        except _Stop:
            return
        except BaseException as error:
            end = error
        self._put(end)

    def put(self, found: T) -> None:
        """Hand something on; waits while the channel is full."""
        self._put(found)
        self.check()

    def check(self) -> None:
        """End the block that fills the channel where nobody reads any more."""
        if not self._reading.goes_on:
            raise _Stop

    def get(self) -> T | None:
        """Return what comes next, None at the end; an error is raised where it came."""
        self._reading.by = threading.current_thread()
        found = self._queue.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def _put(self, found: T | BaseException | None) -> None:
        while self._reading.goes_on:
            try:
                self._queue.put(found, timeout=0.1)
                return
            except queue.Full:
                continue
