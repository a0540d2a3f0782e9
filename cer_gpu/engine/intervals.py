"""Of the relevant events of a block, those in the window of one that may end a complex event.

Where such ends are rare, all other events are passed over: no complex event to come can hold them.  Which ones are
passed over depends on where a stream is cut into blocks, so that this is for engines that list, or count, the same
whatever they were fed before the window.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cer_gpu.automaton.chain import Chain
from cer_gpu.automaton.determinize import Determinization
from cer_gpu.backend.windows import live_events
from cer_gpu.engine.loop import Int32

SAMPLE = 64
"""One event of so many tells how frequent the ends are."""
PAYS_UP_TO = 0.5
"""The share of events in live intervals, as the sample has it, up to which it pays to look for them."""


class LiveIntervals:
    """Finds the events that can still be of use.

    Parameters
    ----------
    table
    length
        Of the window, uint64 or float64.
    """

    def __init__(self, table: Chain | Determinization, length: np.uint64 | np.float64) -> None:
        self._table = table
        self._length = length
        self._kept = np.empty(0, np.int32)

    def among(self, symbols: Int32, clocks: npt.NDArray[Any]) -> Int32 | None:
        """Return the indices of these events, until the next call; None where all may be.

        Parameters
        ----------
        symbols : int32, shape (n,)
        clocks : uint64 or float64, shape (n,)
            Not decreasing.
        """
        n = len(symbols)
        ending = self._table.ending
        n_ends = np.count_nonzero(ending[symbols[::SAMPLE]]) * SAMPLE
        least = clocks[-1] - min(self._length, clocks[-1]) if clocks.dtype.kind == "u" else clocks[-1] - self._length
        in_window = n - int(np.searchsorted(clocks, least))
        if (n_ends + 1) * in_window > PAYS_UP_TO * n:
            return None
        if len(self._kept) < n:
            self._kept = np.empty(n, np.int32)
        symbols_that_end = np.flatnonzero(ending)
        only = int(symbols_that_end[0]) if len(symbols_that_end) == 1 else -1
        return self._kept[live_events(symbols, clocks, ending, only, self._length, self._kept) :]
