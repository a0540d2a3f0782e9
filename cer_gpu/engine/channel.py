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


class Channel(Generic[T]):
    """Hands things from one thread to another, in their order.

    Parameters
    ----------
    stop
        Set when nobody reads any more: the thread that fills the channel then ends.
    size
        Things that wait to be read, at most.
    """

    def __init__(self, stop: threading.Event, size: int) -> None:
        self._queue: queue.Queue[T | BaseException | None] = queue.Queue(size)
        self._stop = stop
        self._reader = threading.current_thread()

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
        if not self._is_read:
            raise _Stop

    def get(self) -> T | None:
        """Return what comes next, None at the end; an error is raised where it came."""
        self._reader = threading.current_thread()
        found = self._queue.get()
        if isinstance(found, BaseException):
            raise found
        return found

    @property
    def _is_read(self) -> bool:
        """Whether somebody may read on: a process ends though results that are read in part are never given up."""
        return not self._stop.is_set() and self._reader.is_alive()

    def _put(self, found: T | BaseException | None) -> None:
        while self._is_read:
            try:
                self._queue.put(found, timeout=0.1)
                return
            except queue.Full:
                continue
