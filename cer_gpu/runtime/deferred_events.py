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
"""Distance of the events in the sample that tells how frequent the ends are."""
PAYS_UP_TO = 0.5
"""The share of events in the windows of ends, as the sample has it, up to which it pays to look for them."""

MIN_EVENTS = 1 << 12
"""Least events at once that may be held back: holding costs some memory, and some time, for each piece."""


class DeferredEvents:
    """Buffer that holds events back, without partitions, until it is known whether they can be of use.

    Parameters
    ----------
    table
    length
        Length of the window, uint64 or float64.
    """

    def __init__(self, table: Table, length: np.uint64 | np.float64) -> None:
        self._table = table
        self._length = length
        self._held: list[RelevantEvents] = []
        self._indices = Scratch(np.int32)

    def take(self, events: RelevantEvents) -> list[RelevantEvents]:
        """Return the events to evaluate now, out of those held back and of these."""
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
        found: list[RelevantEvents] = []
        if last >= 0:
            found = [*self._in_window(self.release(), events.window_clocks[first]), events.at(indices[begin:])]
        self._held = self._in_window(self._held, last_clock)
        rest = events.at(slice(last + 1, None))
        if len(rest.symbols):
            self._held += [piece.copy() for piece in self._in_window([rest], last_clock)]
        return found

    def release(self) -> list[RelevantEvents]:
        """Return all that is held back."""
        held, self._held = self._held, []
        return held

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
