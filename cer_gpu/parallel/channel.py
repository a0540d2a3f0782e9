"""Bounded queue from one thread to another, which hands on the end and errors, and can be given up by its reader."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Generic, TypeVar

_T = TypeVar("_T")


class _Stop(Exception):
    """Raised in the producer once the consumer has gone."""


class ChannelReader:
    """State of the reader of some channels; the threads that fill them end once it reads no more."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self.by: Thread = threading.current_thread()

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()

    @property
    def goes_on(self) -> bool:
        """True while a thread may read on; threads end with the process, even if a reader stopped halfway for good."""
        return not self._stopped.is_set() and (threading.main_thread().is_alive() or self.by.is_alive())

    def next_of(self, things: queue.Queue[_T | None]) -> _T | None:
        """Return the next item of a queue; None at its end, and once nobody reads any more."""
        while self.goes_on:
            try:
                return things.get(timeout=0.5)
            except queue.Empty:
                continue
        return None


class Channel(Generic[_T]):
    """Bounded queue of items from one thread to another, in their order.

    Parameters
    ----------
    reading
        State of the reader, shared by several channels.
    size
        Most items that wait to be read.
    """

    def __init__(self, reading: ChannelReader, size: int) -> None:
        self._queue: queue.Queue[_T | BaseException | None] = queue.Queue(size)
        self._reading = reading

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Fill the channel in this block, and hand on its end, or the error that ends it."""
        end: BaseException | None = None
        try:
            yield
        except _Stop:
            return
        except BaseException as error:
            end = error
        self._put(end)

    def put(self, item: _T) -> None:
        """Hand on an item; wait while the channel is full."""
        self._put(item)
        self.check()

    def check(self) -> None:
        """Leave the block that fills the channel once nobody reads any more."""
        if not self._reading.goes_on:
            raise _Stop

    def get(self) -> _T | None:
        """Return the next item, or None at the end; raise the error that ended the channel instead."""
        self._reading.by = threading.current_thread()
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def _put(self, item: _T | BaseException | None) -> None:
        while self._reading.goes_on:
            try:
                self._queue.put(item, timeout=0.1)
                return
            except queue.Full:
                continue
