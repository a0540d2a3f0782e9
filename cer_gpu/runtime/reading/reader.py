"""The runtime that hands every event of the partitions to a taker: its symbol, its partition, its clock.

Forecasts follow the state of each partition by these (`cer_gpu.forecast`), block by block and without a copy, and
return the few events that become rows; there are no partial matches here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cer_gpu.arrays import Bools, Int64
from cer_gpu.automaton.encoding import COUNT_WINDOW
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.protocol import Length, ResultBuffers, Runtime
from cer_gpu.runtime.reading.symbols import NO_EVENTS, EventTable


class EventReader(Runtime):
    """Runtime that hands every event to `RunOptions.taker`.

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
        self._table = table

    @property
    def numbers_events(self) -> bool:
        """True where a window counts the events of a partition."""
        return self.options.window == COUNT_WINDOW

    def feed(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Yield the events that the taker returns of these."""
        assert self.options.taker is not None
        selected = self.options.taker(events, self._table.words)
        if len(selected):
            yield selected

    def flush(self) -> ResultBuffers:
        """Return no event: none is buffered."""
        return NO_EVENTS

    def live(self) -> Int64:
        """Return no position: what is handed over once is never listed again."""
        return np.empty(0, np.int64)

    def idle(self, n_partitions: int) -> Bools:
        """Return False for all partitions: their numbers are those of the states that follow them."""
        return np.zeros(n_partitions, np.bool_)

    def reserve_partitions(self, n: int) -> None:
        """Do nothing: partitions have no state here."""

    def keep_partitions(self, mask: Bools) -> None:
        """Do nothing: all partitions stay."""

    def snapshot(self) -> dict[str, Any]:
        """Return an empty state."""
        return {}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
