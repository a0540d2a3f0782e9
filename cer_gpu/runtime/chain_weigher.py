"""The state of one evaluation that weighs the complex events of a chain, and the arrays that its loop works on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cer_gpu.arrays import Array
from cer_gpu.automaton.chain import Chain
from cer_gpu.automaton.chain_sums import ChainSums
from cer_gpu.backend.arguments import Window, plain
from cer_gpu.backend.chains import counting, weighing
from cer_gpu.backend.status import Status
from cer_gpu.columnar.memory import larger_ring
from cer_gpu.errors import EventsError
from cer_gpu.runtime import matches
from cer_gpu.runtime.counts import WeighedBuffers, too_many_at
from cer_gpu.runtime.events import Relevant, RunOptions
from cer_gpu.runtime.protocol import Length, Runtime

_INITIAL_SIZE = 1 << 12
"""Initial room for the relevant events of a window."""


class ChainWeigher(Runtime):
    """Runtime that weighs the complex events of a chain, without partitions.

    Parameters
    ----------
    chain
    options
        Without partitions, with `weighing`.
    length
        Length of the window, uint64 or float64; None if there is none.
    """

    engine = "counter"
    reads_chain = True

    def __init__(self, chain: Chain, options: RunOptions, length: Length) -> None:
        assert options.weighing is not None
        self.options = options
        self._weighing = options.weighing
        self._sums = ChainSums(chain)
        self._weight_of = self._sums.weight_of(options.weighing)
        self._windowed = length is not None
        self._length = np.uint64(0) if length is None else length
        n_columns, n_weights = self._sums.n_rows, len(options.weighing.steps)
        size = _INITIAL_SIZE if self._windowed else 1
        self._regs = np.zeros(counting.N_REGS, np.int64)
        self._rows = _cells(n_columns + 1, n_columns + 1)
        self._rows[0][0, 0] = self._rows[1][0, 0] = 1
        self._ways = _cells(n_columns, n_columns)
        self._seen = np.zeros(size, np.int32), np.zeros(size, self._length.dtype), np.zeros(size, self._length.dtype)
        self._seen_weights = _cells(size, n_weights)[1:]
        self._front = _cells(size, n_columns)
        self._greatest = np.zeros(n_weights)
        self._n_ends = 0
        rows = matches.OUTPUT_ROWS
        self._out: tuple[Array, ...] = (
            np.zeros(rows, np.int64),
            np.zeros(rows, np.int64),
            np.zeros(rows if options.timed else 0, np.int64),
            np.zeros(rows, np.uint64),
            np.zeros(rows),
            np.zeros(rows, np.uint64),
        )

    def feed(self, events: Relevant) -> Iterator[WeighedBuffers]:
        """Process relevant events and yield full buffers, in the order of the ends."""
        n = len(self._weighing.steps)
        kinds, floats, integers = (np.ascontiguousarray(events.attributes[:, k * n : k * n + n]) for k in range(3))
        weights = kinds.view(np.uint64), floats.view(np.float64), integers.view(np.uint64)
        if self._weighing.whole:
            self._greatest = np.maximum(self._greatest, np.abs(weights[1]).max(axis=0, initial=0.0))
        self._regs[counting.EVENT] = 0
        while True:
            status = weighing.weigh_chain(
                *plain(events.as_group, weights, Window(events.window_clocks, self._length)),
                self.options.first_end,
                self._weighing.least,
                (self._sums.of_symbols, self._sums.finals, self._weight_of),
                self._seen,
                self._seen_weights,
                self._front,
                self._out,
                self._windowed,
                self._regs,
                self._rows,
                self._ways,
            )
            match Status(status):
                case Status.DONE:
                    break
                case Status.OUTPUT_FULL:
                    yield self.flush()
                case Status.GROW_WINDOW:
                    self._grow()
                case Status.TOO_MANY:
                    raise too_many_at(int(events.positions[self._regs[counting.EVENT]]))
                case other:
                    raise AssertionError(other)

    def flush(self) -> WeighedBuffers:
        """Return what was found since the last call."""
        n = int(self._regs[counting.N_OUT])
        self._regs[counting.N_OUT] = 0
        kept = slice(0, n)
        if self.options.share is not None:
            part, n_parts = self.options.share
            kept = slice((part - self._n_ends) % n_parts, n, n_parts)
        self._n_ends += n
        ends, counts, times, weighed, floats, integers = (each[kept].copy() for each in self._out)
        greatest = float(self._greatest.sum())
        return WeighedBuffers(ends, counts, times, weighed, floats, integers, greatest, self._weighing.whole)

    # ---- state that can be kept -----------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` goes on."""
        return {
            "regs": self._regs,
            "greatest": self._greatest,
            "scalars": np.array([self._n_ends]),
            **{f"{name}{k}": each for name in _GROUPS for k, each in enumerate(getattr(self, f"_{name}"))},
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self._regs, self._greatest = snapshot["regs"], snapshot["greatest"]
        (self._n_ends,) = map(int, snapshot["scalars"])
        for name in _GROUPS:
            n = len(getattr(self, f"_{name}"))
            setattr(self, f"_{name}", tuple(snapshot[f"{name}{k}"] for k in range(n)))

    # ---- room -----------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Make room for a window of twice as many events."""
        size = 2 * len(self._seen[0])
        try:
            for name in ("_seen", "_seen_weights", "_front"):
                setattr(self, name, tuple(larger_ring(each, size) for each in getattr(self, name)))
        except MemoryError:
            raise EventsError(
                f"no memory for more than {size // 2} events in a window\nhint: a shorter WITHIN"
            ) from None


_GROUPS = ("rows", "seen", "seen_weights", "front")


def _cells(*shape: int) -> tuple[Array, ...]:
    return tuple(np.zeros(shape, dtype) for dtype in (np.uint64, np.uint64, np.float64, np.uint64))
