"""The state of one evaluation of a chain under PARTITION BY: stacks of each partition, linked in one array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cer_gpu.arrays import Bools, Int64
from cer_gpu.automaton.chain import Chain
from cer_gpu.automaton.encoding import GLOBAL_WINDOW
from cer_gpu.backend.arguments import plain
from cer_gpu.backend.chains import keyed_stacks as drops
from cer_gpu.backend.chains import keyed_stacks as loops
from cer_gpu.backend.chains import path_counts
from cer_gpu.columnar.memory import GROWS_IN_PLACE, GrowableArray, Scratch
from cer_gpu.errors import no_memory
from cer_gpu.runtime.counts import CountBuffers
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.matches import MatchBuffers
from cer_gpu.runtime.protocol import Length
from cer_gpu.runtime.stacks import ChainLister
from cer_gpu.stages import LISTING

_INITIAL_SIZE = 1 << 12
"""Initial capacity for instances."""

_SHRINK_FROM = 8
"""Capacity for partitions, as a multiple of the live ones, above which memory is released."""

FREE = 16
"""Under GLOBAL_WINDOW the ring of instances grows only when less than ``1 / FREE`` of it is free."""

GENTLE_FROM = 1 << 16
"""Instances from which on their ring grows by ``1 / FREE`` instead of doubling, if memory grows in place."""

_SAMPLE = 64
"""Distance of the instances in the sample that decides whether it pays to look at all of them."""

LARGEST_SAMPLE = 1 << 10
"""Maximum number of instances in that sample."""


class KeyedStacks(ChainLister):
    """Runtime that pushes relevant events to the stacks of their partitions, and lists the matches they end.

    Parameters
    ----------
    chain
    options
        Without shards.
    length
        Length of the window, uint64 or float64; None if there is none.
    """

    keeps_partitions = True

    def __init__(self, chain: Chain, options: RunOptions, length: Length) -> None:
        super().__init__(chain, options, length, loops.N_REGS)
        n_stacks = chain.n_waiting
        self._clock = self._length.dtype
        self._last_clock = self._length.dtype.type(0)
        self._tops = np.zeros((0, 2 * n_stacks + 1), np.int64)
        self._lasts = np.zeros((0, 2), np.int64)
        self._barred = np.zeros((0, len(chain.steps)), np.int64)
        width = loops.TIME + options.timed + chain.is_gapped + 2 * chain.is_counted
        width += 0 if options.spacing is None else options.spacing.n_columns + self._n_left
        width += options.window != GLOBAL_WINDOW
        self._ring = GrowableArray(max(_INITIAL_SIZE, 2 * n_stacks), width)
        self._ends = Scratch(np.int64, loops.N_END + self._n_left)
        self._gathered = self._new_stacks(0, ranged=True)
        self._sums = self._new_paths(0, gathered=True)
        if options.counted:
            self._grow_paths()
        self.reserve_partitions(1)

    def feed(self, events: RelevantEvents) -> Iterator[MatchBuffers | CountBuffers]:
        """Process relevant events and yield full buffers, in order."""
        begin, n = 0, len(events.symbols)
        ends, args = self._ends.empty(n * self._n_end_steps), self._loop_args(events)
        while begin < n:
            groups = plain(self._tops_of, self._instances_of)
            begin, n_ends = loops.push_keyed_events(*args, *groups, begin, self._regs, ends)
            yield from self.stages.each(LISTING, self._list(events, args, ends, n_ends))
            if begin < n:
                self._grow_ring(events.window_clocks[begin])
        if n:
            self._last_clock = events.window_clocks[-1]

    @property
    def _instance_groups(self) -> tuple[tuple[Any, ...], ...]:
        """No stacks, and the ring."""
        return (), self._instances_of

    @property
    def _counted_groups(self) -> tuple[tuple[Any, ...], ...]:
        """Stacks for the instances that an end may reach, and the ring."""
        return tuple(self._gathered), self._instances_of

    @property
    def _path_sums(self) -> path_counts.Paths:
        """Sums of paths for these instances."""
        return self._sums

    def _grow_paths(self) -> None:
        """Make space for more instances that an end may reach."""
        size = max(2 * self._gathered.places.shape[1], _INITIAL_SIZE)
        self._gathered = self._new_stacks(size, ranged=True)
        self._sums = self._new_paths(size, gathered=True)

    def live(self) -> Int64:
        """Return the positions that matches to come may hold, and perhaps others, ascending."""
        self._collect_instances(self._last_clock)
        return np.unique(self._instances[self._live_rows, loops.PLACE])

    @property
    def _tops_of(self) -> loops.Tops:
        return loops.Tops(self._tops, self._tops.view(self._clock), self._lasts, self._barred)

    @property
    def _instances_of(self) -> loops.Ring:
        return loops.Ring(self._instances, self._instances.view(self._clock))

    @property
    def _instances(self) -> Int64:
        return self._ring.array

    @property
    def _n_instances(self) -> int:
        return int(self._regs[loops.NEXT_ID] - self._regs[loops.BASE])

    @property
    def _live_rows(self) -> Int64:
        """Rows of the live instances, from the oldest to the newest."""
        rows: Int64 = np.arange(self._regs[loops.BASE], self._regs[loops.NEXT_ID]) - self._regs[loops.ORIGIN]
        return rows % len(self._instances)

    # ---- partitions -----------------------------------------------------------------------------------------

    def idle(self, n_partitions: int) -> Bools:
        """Return which of the first partitions hold nothing: those without a start in the window."""
        tops = self._tops[:n_partitions]
        idle: Bools = tops[:, 0] < self._regs[loops.FLOOR]
        if self.options.window == GLOBAL_WINDOW:
            latest = tops.view(self._clock)[:, tops.shape[1] // 2]
            with np.errstate(invalid="ignore"):  # infinite clocks differ by NaN
                idle |= self._last_clock - latest > self._length
        return idle

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the partitions outside `mask` and renumber the others in order."""
        tops = self._tops[: len(mask)][mask]
        if len(self._tops) > _SHRINK_FROM * len(tops):
            self._tops = tops
        else:
            self._tops[: len(tops)] = tops
            _empty(self._tops[len(tops) : len(mask)])
        if self.options.window != GLOBAL_WINDOW:
            numbers = np.append(np.where(mask, np.cumsum(mask) - 1, -1), -1)  # -1 stays
            owners = self._instances[: self._n_instances, -1]
            owners[:] = numbers[owners]
        if self._chain.has_gaps:
            self._lasts = self._lasts[: len(mask)][mask]
        if self._chain.is_gapped:
            self._barred = self._barred[: len(mask)][mask]
        self.reserve_partitions(max(1, len(self._tops)))

    def reserve_partitions(self, n: int) -> None:
        """Reserve memory for `n` partitions."""
        old, width = self._tops.shape
        if n > old:
            tops = np.empty((max(n, 2 * old), width), np.int64)
            tops[:old] = self._tops
            _empty(tops[old:])
            self._tops = tops
        if self._chain.has_gaps and len(self._lasts) < len(self._tops):
            # those of a partition that holds nothing are never read
            self._lasts = np.resize(self._lasts, (len(self._tops), 2))
        if self._chain.is_gapped and len(self._barred) < len(self._tops):
            # what barred a gap before a partition held anything bars nothing
            self._barred = np.resize(self._barred, (len(self._tops), self._barred.shape[1]))

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        return {
            "tops": self._tops,
            "lasts": self._lasts,
            "barred": self._barred,
            "instances": self._instances[self._live_rows],
            "size": np.array([len(self._instances)]),
            "regs": self._regs,
            "last_clock": np.array([self._last_clock]),
            "n_ends": np.array([self._counts.n_ends]),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self._tops, self._lasts, self._regs = snapshot["tops"], snapshot["lasts"], snapshot["regs"]
        self._barred = snapshot["barred"]
        self._last_clock = snapshot["last_clock"][0]
        (self._counts.n_ends,) = map(int, snapshot["n_ends"])
        self._ring = GrowableArray(int(snapshot["size"][0]), self._instances.shape[1])
        self._instances[self._live_rows] = snapshot["instances"]

    # ---- memory -----------------------------------------------------------------------------------------------

    def _grow_ring(self, clock: Any) -> None:
        """Drop what is out of reach for an event of this clock, and take more memory if that frees too little."""
        size = len(self._instances)
        # live instances are moved, unless windows end for all partitions at once
        free = max(size // (FREE if self.options.window == GLOBAL_WINDOW else 2), self._chain.n_waiting)
        if self._may_drop(free) and self._collect_instances(clock) <= size - free:
            return
        gentle = size >= GENTLE_FROM and GROWS_IN_PLACE
        more = max(size // FREE, self._chain.n_waiting) if gentle else size
        more = min(more, loops.MAX_INSTANCES - size)
        try:
            if more < self._chain.n_waiting:
                raise MemoryError
            self._ring.grow(size + more)
        except MemoryError:
            raise no_memory(size, "partial results") from None
        regs, instances = self._regs, self._instances
        begin = int(regs[loops.BASE] - regs[loops.ORIGIN])
        if regs[loops.NEXT_ID] - regs[loops.ORIGIN] > size:
            # rows from `begin` to the old end are older than those that wrapped around, and go to the new end
            for end in range(size, begin, -more):
                start = max(begin, end - more)
                instances[start + more : end + more] = instances[start:end]
            regs[loops.ORIGIN] -= more

    def _may_drop(self, n: int) -> bool:
        """Return whether, by a sample, enough instances may be out of reach."""
        if self.options.window == GLOBAL_WINDOW:
            return True
        stride = max(_SAMPLE, self._n_instances // LARGEST_SAMPLE)
        n_alive = stride * np.count_nonzero(self._are_alive(_anywhere(self._n_instances // stride, stride)))
        return bool(n_alive <= self._n_instances - n)

    def _are_alive(self, ids: Int64) -> Bools:
        """Return which of some instances a match to come may hold, if windows do not end for all at once."""
        instances, n_stacks = self._instances[ids], self._chain.n_waiting
        owners = instances[:, -1]
        tops = self._tops[owners]
        now, latest = tops.view(self._clock)[:, n_stacks], instances.view(self._clock)[:, loops.LATEST]
        with np.errstate(invalid="ignore"):  # infinite clocks differ by NaN
            inside = ~(now - latest > self._length)
        forgotten = np.maximum(self._regs[loops.FLOOR], tops[:, -1])
        alive: Bools = (owners >= 0) & inside & (np.minimum(ids, tops[:, 0]) >= forgotten)
        return alive

    def _collect_instances(self, clock: Any) -> int:
        """Drop what is out of reach for an event of this clock; return how many instances are left."""
        if self.options.window == GLOBAL_WINDOW:
            return int(drops.drop_oldest(*plain(self._instances_of), clock, self._length, self._regs))
        new_ids = np.empty(self._n_instances, np.int64)
        groups = plain(self._chain.arrays, self._tops_of, self._instances_of)
        left = drops.collect(*groups, len(self._tops), self._length, self._n_left, self._regs, new_ids)
        return int(left)


class KeyedStackCounter(KeyedStacks):
    """Runtime that counts the matches of a chain with gaps under PARTITION BY."""

    engine = "counter"


def _anywhere(n: int, stride: int) -> Int64:
    """Return `n` ids: one of each `stride` in turn, anywhere among them."""
    numbers = np.arange(n, dtype=np.uint64)
    mixed = (numbers * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    return (numbers * np.uint64(stride) + mixed % np.uint64(stride)).astype(np.int64)


def _empty(tops: Int64) -> None:
    """Empty the stacks of these partitions."""
    n_stacks = tops.shape[1] // 2
    tops[:, :n_stacks] = -1
    tops[:, n_stacks:] = 0
