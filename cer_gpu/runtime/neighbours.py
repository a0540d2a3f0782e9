"""The state of one evaluation of a chain of neighbours under PARTITION BY: the last events of each partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cer_gpu.arrays import Bools, Int64
from cer_gpu.automaton.chain import Chain
from cer_gpu.automaton.encoding import GLOBAL_WINDOW
from cer_gpu.backend.arguments import Window, plain
from cer_gpu.backend.chains import neighbours as loops
from cer_gpu.backend.status import Status
from cer_gpu.runtime.counts import CountOutput
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.matches import OutputBuffers
from cer_gpu.runtime.protocol import Length, ResultBuffers, Runtime

_SHRINK_FROM = 8
"""Capacity for partitions, as a multiple of the live ones, above which memory is released."""


class NeighbourLister(Runtime):
    """Runtime that lists the matches of a chain of neighbours, or counts them if `RunOptions.counted`.

    Parameters
    ----------
    chain
        All steps but the first are neighbours.
    options
        With partitions.
    length
        Length of the window, uint64 or float64; None if there is none.
    """

    engine = "stacks"
    reads_chain = True
    keeps_partitions = True

    def __init__(self, chain: Chain, options: RunOptions, length: Length) -> None:
        self.options = options
        self._chain = chain
        self._length = np.uint64(2**64 - 1) if length is None else length
        self._last_clock = self._length.dtype.type(0)
        n_slots = 1 << (len(chain.steps) - 2).bit_length()
        self._width = 1 + (options.timed and not options.counted) + self._windowed
        self._rows = np.zeros((1, loops.SLOTS + n_slots * self._width), np.int64)
        self._regs = np.zeros(loops.N_REGS, np.int64)
        self._accepts = np.zeros(0, np.uint64)
        self._marks = np.arange(1, len(chain.steps) + 1 if options.labelled else 1, dtype=np.int32)
        self._out = OutputBuffers(timed=options.timed, labelled=options.labelled)
        self._counts = CountOutput(timed=options.timed, shard=options.shard)

    @property
    def _windowed(self) -> bool:
        """True if a window is not of the events of a partition."""
        return self.options.window == GLOBAL_WINDOW

    @property
    def numbers_events(self) -> bool:
        """True: neighbours have consecutive numbers."""
        return True

    def feed(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Process relevant events and yield full buffers, in the order of the ends."""
        self._regs[loops.EVENT] = 0
        while len(events.symbols):
            status = Status(self._read(events))
            if status == Status.DONE:
                self._last_clock = events.window_clocks[-1]
                break
            if self._regs[loops.N_OUT]:
                yield self.flush()
            else:  # a single match that no buffer holds
                self._out.widen()

    def _read(self, events: RelevantEvents) -> int:
        """Call the loop, and return its status."""
        if len(self._accepts) < self._chain.n_symbols:
            steps = self._chain.steps_of[: self._chain.n_symbols]
            bits = np.where(steps >= 0, np.uint64(1) << steps.clip(0).astype(np.uint64), np.uint64(0))
            self._accepts = np.bitwise_or.reduce(bits, axis=1)
        groups = plain(
            events.as_group._replace(positions=events.reported),
            Window(events.window_clocks, self._length),
            self.options.as_group,
            loops.Neighbours(
                len(self._chain.steps), self._width, self._accepts, self._rows, self._rows.view(self._length.dtype)
            ),
        )
        counted = self.options.counted
        output = ((), tuple(self._counts.to_fill)) if counted else (tuple(self._out.to_fill), ())
        status: int = loops.find_neighbours(*groups, self._marks, *output, self._regs)
        return status

    def flush(self) -> ResultBuffers:
        """Return the results since the last call."""
        n, n_values = int(self._regs[loops.N_OUT]), int(self._regs[loops.N_VALUES])
        self._regs[loops.N_OUT] = self._regs[loops.N_VALUES] = 0
        return self._counts.take(n) if self.options.counted else self._out.take(n, n_values)

    # ---- partitions -----------------------------------------------------------------------------------------

    def live(self) -> Int64:
        """Return the positions that matches to come may hold, and perhaps others, ascending."""
        return np.unique(self._rows[~self.idle(len(self._rows)), loops.SLOTS :: self._width])

    def idle(self, n_partitions: int) -> Bools:
        """Return which of the first partitions hold nothing: those whose last event begins or continues nothing."""
        rows = self._rows[:n_partitions]
        idle: Bools = (rows[:, loops.WAITING] == 0) | (rows[:, loops.EPOCH] < self._regs[loops.CONSUMED])
        if self._windowed:
            n_slots = (rows.shape[1] - loops.SLOTS) // self._width
            last = loops.SLOTS + self._width * ((rows[:, loops.ORDINAL] & (n_slots - 1)) + 1) - 1
            clocks = rows.view(self._length.dtype)[np.arange(n_partitions), last]
            with np.errstate(invalid="ignore"):  # infinite clocks differ by NaN
                idle |= self._last_clock - clocks > self._length
        return idle

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the partitions outside `mask` and renumber the others in order."""
        rows = self._rows[: len(mask)][mask]
        if len(self._rows) > _SHRINK_FROM * len(rows):
            self._rows = rows
        else:
            self._rows[: len(rows)] = rows
            self._rows[len(rows) : len(mask)] = 0
        self.reserve_partitions(1)

    def reserve_partitions(self, n: int) -> None:
        """Reserve memory for `n` partitions."""
        old = len(self._rows)
        if n > old:
            rows = np.zeros((max(n, 2 * old), self._rows.shape[1]), np.int64)
            rows[:old] = self._rows
            self._rows = rows

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        return {
            "rows": self._rows,
            "regs": self._regs,
            "last_clock": np.array([self._last_clock]),
            "scalars": np.array([self._counts.n_ends]),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self._rows, self._regs, self._last_clock = snapshot["rows"], snapshot["regs"], snapshot["last_clock"][0]
        (self._counts.n_ends,) = map(int, snapshot["scalars"])


class NeighbourCounter(NeighbourLister):
    """Runtime that counts the matches of a chain of neighbours: one at an end."""

    engine = "counter"
