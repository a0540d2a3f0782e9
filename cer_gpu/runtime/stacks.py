"""The state of one evaluation of a chain: a stack of instances for each step, and the arrays for listing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cer_gpu.arrays import Array, Int64
from cer_gpu.automaton.chain import Chain
from cer_gpu.automaton.encoding import CONSUME_NONE, COUNT_WINDOW
from cer_gpu.backend.arguments import Counts, Matches, Window, plain
from cer_gpu.backend.chains import listing, path_counts
from cer_gpu.backend.chains import stacks as loops
from cer_gpu.backend.status import Status
from cer_gpu.columnar.memory import Scratch, allocate
from cer_gpu.errors import no_memory
from cer_gpu.runtime.counts import CountBuffers, CountOutput, too_many_at
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.matches import MatchBuffers, OutputBuffers
from cer_gpu.runtime.protocol import Length, Runtime
from cer_gpu.stages import LISTING

_INITIAL_SIZE = 1 << 12
"""Initial capacity: instances of each stack, and events of a match."""
_OF_INSTANCES = ("places", "below", "latest", "bars", "clocks", "more", "firsts")
"""Fields of `Stacks` with a row of instances for each step."""


class ChainLister(Runtime):
    """The base of the runtimes with stacks, of a whole stream or of its partitions: the listing of matches.

    Parameters
    ----------
    chain
    options
    length
        Length of the window, uint64 or float64; None if there is none.
    n_regs
        Number of registers of the loops.
    """

    engine = "stacks"
    reads_chain = True
    lists_by_itself = True

    def __init__(self, chain: Chain, options: RunOptions, length: Length, n_regs: int = loops.N_REGS) -> None:
        self.options = options
        self._chain = chain
        self._length = np.uint64(2**64 - 1) if length is None else length
        self._marks = np.arange(1, len(chain.steps) + 1 if options.labelled else 1, dtype=np.int32)
        self._regs = np.zeros(n_regs, np.int64)
        spacing = options.spacing
        self._n_left = 0 if spacing is None else spacing.n_left_out
        self._frames = np.zeros((_INITIAL_SIZE, listing.N_FRAME + self._n_left), np.int64)
        self._path = np.zeros(_INITIAL_SIZE, np.int64)
        self._path_marks = np.zeros(_INITIAL_SIZE, np.int32)
        self._spacing = () if spacing is None else tuple(spacing.arrays())
        shape = (0, 0) if spacing is None else (_INITIAL_SIZE, len(spacing.windows) + 1)
        self._path_clocks = np.zeros(shape, self._length.dtype)
        self._out = OutputBuffers(timed=options.timed, labelled=options.labelled)
        self._counts = CountOutput(timed=options.timed, shard=options.shard)

    @property
    def numbers_events(self) -> bool:
        """True where a window counts the events of a partition."""
        return self.options.window == COUNT_WINDOW

    @property
    def _n_end_steps(self) -> int:
        """Number of steps with which an event may end matches."""
        return 1 if self.options.spacing is None else self.options.spacing.n_sources[-1]

    def flush(self) -> MatchBuffers | CountBuffers:
        """Return the matches, or the counts, since the last call."""
        n, n_values = int(self._regs[loops.N_OUT]), int(self._regs[loops.N_VALUES])
        self._regs[loops.N_OUT] = self._regs[loops.N_VALUES] = 0
        return self._counts.take(n) if self.options.counted else self._out.take(n, n_values)

    def _loop_args(self, events: RelevantEvents) -> tuple[tuple[Any, ...], ...]:
        """Return the arguments of the loops besides the instances."""
        window = Window(events.window_clocks, self._length)
        reported = events.as_group._replace(positions=events.reported)
        return tuple(plain(reported, window, self.options.as_group, self._chain.arrays, self._spacing))

    @property
    def _instance_groups(self) -> tuple[tuple[Any, ...], ...]:
        """Stacks and ring of the instances, of which one is empty."""
        raise NotImplementedError

    def _list(
        self, events: RelevantEvents, args: tuple[tuple[Any, ...], ...], ends: Int64, n_ends: int
    ) -> Iterator[MatchBuffers | CountBuffers]:
        """List, or count, the matches of the first ends, and yield full buffers."""
        regs, out = self._regs, self._out
        regs[loops.END] = 0
        if self.options.counted:
            yield from self._count(events, args, ends, n_ends)
            return
        while n_ends:
            frames = listing.Frames(self._marks, self._frames, self._path, self._path_marks, self._path_clocks)
            groups = plain(*self._instance_groups, frames, Matches(*out.to_fill))
            match Status(listing.list_ends(*args, *groups, ends, n_ends, regs)):
                case Status.DONE:
                    break
                case Status.GROW_PATH:
                    self._double_path()
                case Status.OUTPUT_FULL if regs[loops.N_OUT]:
                    yield self.flush()
                case Status.OUTPUT_FULL:
                    out.widen()
                case other:
                    raise AssertionError(other)

    def _count(
        self, events: RelevantEvents, args: tuple[tuple[Any, ...], ...], ends: Int64, n_ends: int
    ) -> Iterator[CountBuffers]:
        """Count the matches of the first ends, and yield full buffers."""
        regs = self._regs
        while n_ends:
            groups = plain(*self._counted_groups, self._path_sums, Counts(*self._counts.to_fill))
            match Status(path_counts.count_ends(*args, *groups, ends, n_ends, regs)):
                case Status.DONE:
                    break
                case Status.OUTPUT_FULL:
                    counts = self.flush()
                    assert isinstance(counts, CountBuffers)
                    yield counts
                case Status.GROW_PATH:
                    self._grow_paths()
                case Status.TOO_MANY:
                    raise too_many_at(int(events.positions[ends[regs[loops.END], loops.EVENT]]))
                case other:
                    raise AssertionError(other)

    @property
    def _counted_groups(self) -> tuple[tuple[Any, ...], ...]:
        """Stacks of which matches are counted, and the ring."""
        return self._instance_groups

    @property
    def _path_sums(self) -> path_counts.Paths:
        """Sums of paths for the instances of the stacks."""
        raise NotImplementedError

    def _grow_paths(self) -> None:
        """Make space for the sums of more instances."""
        raise NotImplementedError

    def _new_stacks(self, size: int, *, ranged: bool) -> loops.Stacks:
        """Return empty stacks."""
        chain, spacing, clock = self._chain, self.options.spacing, self._length.dtype
        n_steps = len(chain.steps)
        n_clocks = 0 if spacing is None else spacing.n_columns * n_steps
        n_more = self._n_left * n_steps
        n_ranges = 0 if spacing is None or not ranged else spacing.ranges[2]
        return loops.Stacks(
            counts=np.zeros(n_steps + 1, np.int64),
            bottoms=np.zeros(n_steps + 1, np.int64),
            tops=np.zeros(n_steps + 1, clock),
            places=np.zeros((n_steps, size), np.int64),
            below=np.zeros((n_steps, size), np.int64),
            latest=np.zeros((n_steps, size), clock),
            began=np.zeros(size if self.options.timed else 0, np.int64),
            barred=np.full(n_steps, -1, np.int64),
            bars=np.zeros((n_steps, size if chain.is_gapped else 0), np.int64),
            clocks=np.zeros((n_clocks, size if n_clocks else 0), clock),
            more=np.zeros((n_more, size if n_more else 0), np.int64),
            ranges=np.zeros((n_ranges, size if n_ranges else 0), np.int64),
            totals=np.zeros((2 * n_steps, size) if n_ranges else (0, 0), np.uint64),
            firsts=np.zeros((n_steps, size) if n_ranges else (0, 0), clock),
            summed=np.zeros((2, n_steps), np.int64),
        )

    def _new_paths(self, size: int, *, gathered: bool) -> path_counts.Paths:
        """Return sums of paths for stacks of some capacity."""
        n_steps = len(self._chain.steps)
        n_rows = path_counts.N_KINDS * n_steps
        return path_counts.Paths(
            sums=np.zeros((n_rows, size, 2), np.uint64),
            spans=np.zeros((n_rows + 1, 2), np.int64),
            lows=np.zeros((path_counts.N_LOWS, n_steps), np.int64),
            ids=np.zeros((n_steps, size) if gathered else (0, 0), np.int64),
            newest=np.zeros(n_steps, np.int64),
        )

    def _double_path(self) -> None:
        """Make space for longer matches; a path ends where its array does."""
        self._frames = np.concatenate([self._frames, np.zeros_like(self._frames)])
        self._path = np.concatenate([np.zeros_like(self._path), self._path])
        self._path_marks = np.concatenate([np.zeros_like(self._path_marks), self._path_marks])
        self._path_clocks = np.concatenate([self._path_clocks, np.zeros_like(self._path_clocks)])


class StackLister(ChainLister):
    """Runtime that pushes relevant events to the stacks of a chain, and lists the matches that they end.

    Parameters
    ----------
    chain
    options
        Without partitions and shards.
    length
        Length of the window, uint64 or float64; None if there is none.
    """

    def __init__(self, chain: Chain, options: RunOptions, length: Length) -> None:
        super().__init__(chain, options, length)
        self._stacks = self._new_stacks(_INITIAL_SIZE, ranged=options.counted)
        self._stacks.counts[0] = 1
        n_bottoms = len(chain.steps) * (options.consume != CONSUME_NONE)
        self._ends = Scratch(np.int64, loops.BOTTOMS + n_bottoms + self._n_left)
        self._sums = self._new_paths(0, gathered=False)

    def feed(self, events: RelevantEvents) -> Iterator[MatchBuffers | CountBuffers]:
        """Process relevant events and yield full buffers, in order."""
        begin, n = 0, len(events.symbols)
        ends, args = self._ends.empty(n * self._n_end_steps), self._loop_args(events)
        while begin < n:
            first = begin
            begin, n_ends = loops.push_events(*args, self._instance_groups[0], begin, ends)
            if begin == first:
                self._double()
            yield from self.stages.each(LISTING, self._list(events, args, ends, n_ends))
            if not self._chain.repeated[-1]:
                self._heights[-1] = self._stacks.bottoms[-1] = 0  # what ended there is listed

    @property
    def _instance_groups(self) -> tuple[tuple[Any, ...], ...]:
        """Stacks, and no ring."""
        return tuple(self._stacks), ()

    @property
    def _path_sums(self) -> path_counts.Paths:
        """Sums of paths for the instances of the stacks."""
        return self._sums

    def _grow_paths(self) -> None:
        """Make space for the sums of all instances that there is space for."""
        self._sums = self._new_paths(self._stacks.places.shape[1], gathered=False)

    @property
    def _heights(self) -> Int64:
        heights: Int64 = self._stacks.counts[1:]
        return heights

    def live(self) -> Int64:
        """Return the positions that matches to come may hold, and perhaps others, ascending."""
        reach = zip(self._stacks.places, self._stacks.bottoms[1:], self._heights, strict=True)
        return np.unique(np.concatenate([row[bottom:height] for row, bottom, height in reach]))

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        return {**self._instances_by(_written_part)._asdict(), "n_ends": np.array([self._counts.n_ends])}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        (self._counts.n_ends,) = map(int, snapshot["n_ends"])
        self._stacks = loops.Stacks(**{name: snapshot[name] for name in loops.Stacks._fields})

    @property
    def _owners(self) -> Int64:
        """Step of each row of ranges."""
        owners = np.zeros(len(self._stacks.ranges), np.int64)
        if len(owners) and self.options.spacing is not None:
            for rows in self.options.spacing.ranges[:2]:
                steps, _ = np.nonzero(rows >= 0)
                owners[rows[rows >= 0]] = steps
        return owners

    def _instances_by(self, change: Callable[[Array, Int64], Array]) -> loops.Stacks:
        """Return the stacks with their instances changed by a function of rows and of the heights of these."""
        changed = {}
        for name in _OF_INSTANCES:
            rows = getattr(self._stacks, name)
            changed[name] = change(rows, np.tile(self._heights, len(rows) // len(self._heights)))
        changed["ranges"] = change(self._stacks.ranges, self._heights[self._owners])
        changed["totals"] = change(self._stacks.totals, np.repeat(self._heights, 2)[: len(self._stacks.totals)])
        began = change(self._stacks.began[np.newaxis], self._heights[:1])[0]
        return self._stacks._replace(**changed, began=began)

    # ---- memory -----------------------------------------------------------------------------------------------

    def _double(self) -> None:
        """Reserve memory for twice as many instances of each step."""
        size = self._stacks.places.shape[1]
        try:
            self._stacks = self._instances_by(_doubled)
        except MemoryError:
            raise no_memory(size, "partial results of a step") from None


class StackCounter(StackLister):
    """Runtime that counts the matches of a chain with gaps."""

    engine = "counter"


def _doubled(stacks: Array, heights: Int64) -> Array:
    """Return stacks of twice the capacity."""
    n_stacks, n_each = stacks.shape
    grown = allocate((n_stacks, 2 * n_each), stacks.dtype)
    for new, old, height in zip(grown, stacks, heights, strict=True):
        new[:height] = old[:height]
    return grown


def _written_part(stacks: Array, heights: Int64) -> Array:
    """Return a copy with zeros where nothing was written."""
    return np.where(np.arange(stacks.shape[1]) < heights[:, np.newaxis], stacks, 0).astype(stacks.dtype)
