"""The state of one evaluation that only counts the complex events of a chain, and the arrays that its loop works on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cer_gpu.automaton.chain import Chain
from cer_gpu.automaton.chain_sums import ChainSums
from cer_gpu.backend.arguments import Counts, Window, plain
from cer_gpu.backend.chains import counting as loop
from cer_gpu.backend.status import Status
from cer_gpu.columnar.memory import larger_ring
from cer_gpu.errors import EventsError
from cer_gpu.runtime.counts import CountBuffers, CountOutput, too_many_at
from cer_gpu.runtime.events import Relevant, RunOptions
from cer_gpu.runtime.protocol import Length, Runtime

_INITIAL_SIZE = 1 << 12
"""Initial room for the relevant events of a window."""


class ChainCounter(Runtime):
    """Runtime that counts the complex events of a chain, without partitions.

    Parameters
    ----------
    chain
    options
        Without partitions.
    length
        Length of the window, uint64 or float64; None if there is none.
    """

    engine = "counter"
    reads_chain = True

    def __init__(self, chain: Chain, options: RunOptions, length: Length) -> None:
        self.options = options
        self._sums = ChainSums(chain)
        self._windowed = length is not None
        self._length = np.uint64(0) if length is None else length
        n_columns = self._sums.n_rows
        size = _INITIAL_SIZE if self._windowed else 1
        self._regs = np.zeros(loop.N_REGS, np.int64)
        self._rows = np.zeros((n_columns + 1, n_columns + 1), np.uint64)
        self._rows[0, 0] = 1
        self._ways = np.zeros((n_columns, n_columns), np.uint64)
        self._seen = np.zeros(size, np.int32)
        self._seen_clocks = np.zeros(size, self._length.dtype)
        self._start_clocks = np.zeros(size, self._length.dtype)
        self._front = np.zeros((size, n_columns), np.uint64)
        self._out = CountOutput(timed=options.timed, share=options.share)

    def feed(self, events: Relevant) -> Iterator[CountBuffers]:
        """Process relevant events and yield full buffers of counts, in order."""
        self._regs[loop.EVENT] = 0
        while True:
            groups = plain(
                events.as_group,
                Window(events.window_clocks, self._length),
                self.options.as_group,
                loop.Sums(self._sums.of_symbols, self._sums.finals),
                loop.Seen(self._seen, self._seen_clocks, self._start_clocks, self._front),
                Counts(*self._out.to_fill),
            )
            status = loop.count_chain(*groups, self._windowed, self._regs, self._rows, self._ways)
            match Status(status):
                case Status.DONE:
                    break
                case Status.OUTPUT_FULL:
                    yield self.flush()
                case Status.GROW_WINDOW:
                    self._grow()
                case Status.TOO_MANY:
                    raise too_many_at(int(events.positions[self._regs[loop.EVENT]]))
                case other:
                    raise AssertionError(other)

    def flush(self) -> CountBuffers:
        """Return the counts found since the last call."""
        n = int(self._regs[loop.N_OUT])
        self._regs[loop.N_OUT] = 0
        return self._out.take(n)

    # ---- state that can be kept -----------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` goes on."""
        return {
            "regs": self._regs,
            "rows": self._rows,
            "seen": self._seen,
            "seen_clocks": self._seen_clocks,
            "start_clocks": self._start_clocks,
            "front": self._front,
            "scalars": np.array([self._out.n_ends]),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self._regs, self._rows, self._front = snapshot["regs"], snapshot["rows"], snapshot["front"]
        self._seen, self._seen_clocks = snapshot["seen"], snapshot["seen_clocks"]
        self._start_clocks = snapshot["start_clocks"]
        (self._out.n_ends,) = map(int, snapshot["scalars"])

    # ---- room -----------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Make room for a window of twice as many events."""
        try:
            for name in ("_seen", "_seen_clocks", "_start_clocks", "_front"):
                array = getattr(self, name)
                setattr(self, name, larger_ring(array, 2 * len(array)))
        except MemoryError:
            raise EventsError(
                f"no memory for more than {len(self._seen)} events in a window\nhint: a shorter WITHIN"
            ) from None
