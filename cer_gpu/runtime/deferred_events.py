"""Relevant events wait until one comes that may end a match, and only those in its window are evaluated.

If such ends are rare, most events leave the window unseen.  The events that are evaluated then depend on where a stream
is cut into blocks; this is for engines that list, or count, the same whatever they were fed before the window.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

from cer_gpu.arrays import Array
from cer_gpu.automaton.alphabet import Table
from cer_gpu.backend.windows import live_events
from cer_gpu.columnar.memory import Scratch
from cer_gpu.runtime.events import RelevantEvents

_SAMPLE = 64
"""Distance of the events in the sample that estimates the frequency of ends."""
PAYS_UP_TO = 0.5
"""Maximum fraction of events in the windows of ends, in the sample, for which it pays to look for them."""

MIN_EVENTS = 1 << 12
"""Minimum number of events buffered at once: buffering costs some memory and time for each piece."""


class DeferredEvents:
    """Buffer of events, without partitions, until it is decided whether they can be of use.

    Parameters
    ----------
    table
    length
        Length of the window, uint64 or float64.
    """

    def __init__(self, table: Table, length: np.uint64 | np.float64) -> None:
        self._table = table
        self._length = length
        self._buffered: list[RelevantEvents] = []
        self._indices = Scratch(np.int32)

    def take(self, events: RelevantEvents) -> list[RelevantEvents]:
        """Return the events to evaluate now, from the buffered ones and these."""
        ending = self._table.ending
        n, last_clock = len(events.symbols), events.window_clocks[-1]
        if n < MIN_EVENTS:
            return [*self.release(), events]
        n_ends = np.count_nonzero(ending[events.symbols[::_SAMPLE]]) * _SAMPLE
        in_window = n - self._first_in_window(events.window_clocks, last_clock)
        if n_ends * in_window > PAYS_UP_TO * n:
            return [*self.release(), events]
        indices = self._indices.empty(n)
        symbols_that_end = np.flatnonzero(ending)
        only = int(symbols_that_end[0]) if len(symbols_that_end) == 1 else -1
        begin, first, last = live_events(events.symbols, events.window_clocks, ending, only, self._length, indices)
        ready: list[RelevantEvents] = []
        if last >= 0:
            ready = [*self._in_window(self.release(), events.window_clocks[first]), events.at(indices[begin:])]
        self._buffered = self._in_window(self._buffered, last_clock)
        rest = events.at(slice(last + 1, None))
        if len(rest.symbols):
            self._buffered += [piece.copy() for piece in self._in_window([rest], last_clock)]
        return ready

    def release(self) -> list[RelevantEvents]:
        """Return all buffered events."""
        buffered, self._buffered = self._buffered, []
        return buffered

    def _in_window(self, pieces: list[RelevantEvents], clock: Any) -> list[RelevantEvents]:
        """Return those of some events, piece after piece, that are in the window that ends at `clock`."""
        n_dead = 0
        while n_dead < len(pieces) and self._first_in_window(pieces[n_dead].window_clocks[-1:], clock):
            n_dead += 1
        live = pieces[n_dead:]
        if live:
            live[0] = live[0].at(slice(self._first_in_window(live[0].window_clocks, clock), None))
        return live

    def _first_in_window(self, clocks: Array, clock: Any) -> int:
        with np.errstate(invalid="ignore"):  # infinite clocks differ by NaN
            return bisect_left(range(len(clocks)), True, key=lambda i: not clock - clocks[i] > self._length)
