"""The state of one evaluation that counts, or weighs, the matches of a chain, and its loop's arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cer_gpu.arrays import Array
from cer_gpu.automaton.chain import Chain
from cer_gpu.automaton.chain_sums import ChainSums
from cer_gpu.backend.arguments import Counts, Window, plain
from cer_gpu.backend.chains import counting as loop
from cer_gpu.backend.status import Status
from cer_gpu.columnar.memory import larger_ring
from cer_gpu.errors import no_memory
from cer_gpu.runtime.counts import CountBuffers, CountOutput, WeighedBuffers, too_many_at
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.protocol import Length, Runtime

_INITIAL_SIZE = 1 << 12
"""Initial capacity for the relevant events of a window."""
_DTYPES = (np.uint64, np.uint64, np.float64, np.uint64)
"""Numbers of a set of runs; the first is their number, and the others are there where runs are weighed."""
_SNAPSHOT_GROUPS = ("rows", "seen", "front", "seen_weights")
"""Groups of arrays that a snapshot holds."""


class ChainCounter(Runtime):
    """Runtime that counts the matches of a chain, without partitions, or weighs them as `RunOptions.weighing`.

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
        self._weighing = options.weighing
        weighed_steps = () if options.weighing is None else options.weighing.steps
        self._sums = ChainSums(chain)
        self._weight_of = self._sums.weight_of(weighed_steps)
        self._windowed = length is not None
        self._length = np.uint64(0) if length is None else length
        n_columns = self._sums.n_rows
        size = _INITIAL_SIZE if self._windowed else 1
        self._dtypes = _DTYPES[:1] if options.weighing is None else _DTYPES
        self._regs = np.zeros(loop.N_REGS, np.int64)
        self._rows = self._sets(n_columns + 1, n_columns + 1)
        for each in self._rows[:2]:
            each[0, 0] = 1
        self._ways = self._sets(n_columns, n_columns)
        self._seen = np.zeros(size, np.int32), np.zeros(size, self._length.dtype), np.zeros(size, self._length.dtype)
        self._front = self._sets(size, n_columns)
        self._seen_weights = self._sets(size, len(weighed_steps))[1:]
        self._greatest = np.zeros(len(weighed_steps))
        self._out = CountOutput(timed=options.timed, shard=options.shard, beside=self._dtypes[1:])

    def _sets(self, *shape: int) -> tuple[Array, ...]:
        """Return sets of no runs."""
        return tuple(np.zeros(shape, dtype) for dtype in self._dtypes)

    def feed(self, events: RelevantEvents) -> Iterator[CountBuffers]:
        """Process relevant events and yield full buffers of counts, in order."""
        weights = self._weights_of(events)
        self._regs[loop.EVENT] = 0
        while True:
            output = self._out.to_fill
            groups = plain(
                events.as_group,
                Window(events.window_clocks, self._length),
                self.options.as_group,
                loop.Sums(self._sums.of_symbols, self._sums.finals, self._weight_of),
                self._seen,
                self._front,
                weights,
                self._seen_weights,
                Counts(*output[:3]),
                tuple(output[3:]),
            )
            least = self._weighing is not None and self._weighing.least
            status = loop.count_chain(*groups, self._windowed, least, self._regs, self._rows, self._ways)
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

    def _weights_of(self, events: RelevantEvents) -> tuple[Array, ...]:
        """Return the weights of events, by their kinds, floats and integers; nothing where they have none."""
        if self._weighing is None:
            return ()
        n = len(self._weighing.steps)
        columns = (np.ascontiguousarray(events.attributes[:, k * n : k * n + n]) for k in range(3))
        weights = tuple(each.view(dtype) for each, dtype in zip(columns, self._dtypes[1:], strict=True))
        if self._weighing.whole:
            self._greatest = np.maximum(self._greatest, np.abs(weights[1]).max(axis=0, initial=0.0))
        return weights

    def flush(self) -> CountBuffers:
        """Return the counts since the last call."""
        n = int(self._regs[loop.N_OUT])
        self._regs[loop.N_OUT] = 0
        if self._weighing is None:
            return self._out.take(n)
        ends, counts, times, weighed, floats, integers = self._out.take_arrays(n)
        greatest, whole = float(self._greatest.sum()), self._weighing.whole
        return WeighedBuffers(ends, counts, times, weighed, floats, integers, greatest, whole)

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        return {
            "regs": self._regs,
            "greatest": self._greatest,
            "scalars": np.array([self._out.n_ends]),
            **{f"{name}{k}": each for name in _SNAPSHOT_GROUPS for k, each in enumerate(getattr(self, f"_{name}"))},
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self._regs, self._greatest = snapshot["regs"], snapshot["greatest"]
        (self._out.n_ends,) = map(int, snapshot["scalars"])
        for name in _SNAPSHOT_GROUPS:
            n = len(getattr(self, f"_{name}"))
            setattr(self, f"_{name}", tuple(snapshot[f"{name}{k}"] for k in range(n)))

    # ---- memory -----------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Make space for a window of twice as many events."""
        size = 2 * len(self._seen[0])
        try:
            for name in ("_seen", "_seen_weights", "_front"):
                setattr(self, name, tuple(larger_ring(each, size) for each in getattr(self, name)))
        except MemoryError:
            raise no_memory(size // 2, "events in a window", "a shorter WITHIN") from None
