"""The stages of an evaluation, and the clock that may measure them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

DECODE, PREDICATES, PARTITIONS, LOOP, LISTING, OUTPUT, REST = (
    "decode",
    "predicates",
    "partitions",
    "loop",
    "listing",
    "output",
    "rest",
)
STAGES = {
    DECODE: "waiting for the next batch of events; files are decoded ahead, on another thread",
    PREDICATES: "predicates to bit vectors to symbols; only relevant events pass",
    PARTITIONS: "keys of PARTITION BY to partition numbers",
    LOOP: "relevant events to partial matches",
    LISTING: "partial matches to matches",
    OUTPUT: "matches to Arrow",
    REST: "everything else",
}
"""The stages in the order in which the data passes them, each in a line."""

Item = TypeVar("Item")

_NOTHING = contextlib.nullcontext()


class Stages:
    """The hook of a pipeline, called when a stage begins and ends; this one does nothing."""

    def stage(self, name: str | None) -> AbstractContextManager[None]:
        """Let a block of code be part of a stage, or of no stage if None."""
        return _NOTHING

    def each(self, name: str, items: Iterator[Item]) -> Iterator[Item]:
        """Return the same items; making each is part of a stage."""
        return items


NO_STAGES = Stages()


class MeasuredStages(Stages):
    """The seconds that each stage took; while a stage runs, the one around it does not.

    Attributes
    ----------
    seconds : dict from stage to float
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(STAGES, 0.0)
        self._running: list[str] = []
        self._since = 0.0

    @property
    def running(self) -> str | None:
        """The stage that runs now; None between stages."""
        return self._running[-1] or None if self._running else None

    @property
    def slowest(self) -> str | None:
        """The stage that took the most time so far; None before the first."""
        name = max(self.seconds, key=lambda each: self.seconds[each])
        return name if self.seconds[name] else None

    @contextlib.contextmanager
    def stage(self, name: str | None) -> Iterator[None]:
        """Count the time of a block of code as that of a stage."""
        self._switch()
        self._running.append(name or "")
        try:
            yield
        finally:
            self._switch()
            self._running.pop()

    def each(self, name: str, items: Iterator[Item]) -> Iterator[Item]:
        """Yield items; the time that making them takes is that of a stage."""
        while True:
            with self.stage(name):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._running and self._running[-1]:
            self.seconds[self._running[-1]] += now - self._since
        self._since = now
