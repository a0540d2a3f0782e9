"""The runtime that hands over every event of the partitions as it is read: its symbol, its partition, its clock.

Forecasts follow the state of each partition by these (`cer_gpu.forecast`); there are no partial matches here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cer_gpu.arrays import Array, Bools, Int64
from cer_gpu.automaton.encoding import COUNT_WINDOW
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.protocol import FoundBuffers, Length, Runtime
from cer_gpu.runtime.reading.symbols import EventBuffers, EventTable


class EventReader(Runtime):
    """Runtime that hands over every event.

    Parameters
    ----------
    table, options, length
        As `cer_gpu.runtime.registry.make_runtime` gives them.
    """

    engine = "events"
    reads_chain = False
    keeps_partitions = True

    def __init__(self, table: EventTable, options: RunOptions, length: Length) -> None:
        self.options = options

    @property
    def numbers_events(self) -> bool:
        """True where a window counts the events of a partition."""
        return self.options.window == COUNT_WINDOW

    def feed(self, events: RelevantEvents) -> Iterator[FoundBuffers]:
        """Yield the events, in memory of their own."""
        n = len(events.symbols)
        partitions = events.partitions.copy() if len(events.partitions) else np.zeros(n, np.int32)
        clocks: Array = events.window_clocks.copy()
        yield EventBuffers(
            events.reported.copy(), events.times.copy(), events.symbols.copy(), partitions, clocks.view(np.uint64)
        )

    def flush(self) -> FoundBuffers:
        """Return no event: none is held."""
        nothing = np.empty(0, np.int64)
        none = np.empty(0, np.int32)
        return EventBuffers(nothing, nothing, none, none, nothing.view(np.uint64))

    def live(self) -> Int64:
        """Return no position: what is handed over once is never listed again."""
        return np.empty(0, np.int64)

    def idle(self, n_partitions: int) -> Bools:
        """Return False for all partitions: their numbers are those of the states that follow them."""
        return np.zeros(n_partitions, np.bool_)

    def reserve_partitions(self, n: int) -> None:
        """Do nothing: partitions have no state here."""

    def keep_partitions(self, kept: Bools) -> None:
        """Do nothing: all are kept."""

    def snapshot(self) -> dict[str, Any]:
        """Return an empty state."""
        return {}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot."""
