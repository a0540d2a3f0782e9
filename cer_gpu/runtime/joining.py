"""Base of the runtimes of joins: feeding of a loop, its buffers, and the state of each partition."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np

from cer_gpu.arrays import Array, Bools, Int64
from cer_gpu.automaton.encoding import CHOOSE_ALL, CONSUME_NONE, CONSUME_PARTITION, COUNT_WINDOW
from cer_gpu.automaton.strategies import STRATEGIES
from cer_gpu.backend.arguments import Counts, Demand, Matches, Window, plain
from cer_gpu.backend.joins import choosing as k
from cer_gpu.backend.status import Status
from cer_gpu.columnar.memory_limit import memory_error
from cer_gpu.runtime.counts import CountBuffers, CountOutput, too_many_at
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.matches import MAX_POSITIONS, MatchBuffers, OutputBuffers
from cer_gpu.runtime.protocol import Length, ResultBuffers, Runtime

PAIRS_AT_ONCE = 1 << 23
"""Matches of one end that are compared with others before a loop comes back: well below a second."""
_SCRATCH = 32
"""Bytes for each row of an end that the choice among them takes."""


class Joining(Runtime):
    """Runtime of joins, whose one loop stores partial matches and lists or counts what an event ends.

    Parameters
    ----------
    options : RunOptions
    length
        Length of the window, uint64 or float64; None if there is none.
    distinct : bool
        True if a match may be listed several times.
    n_forgotten : int
        Number of positions up to which CONSUME BY has forgotten, before partitions are reserved.

    Attributes
    ----------
    n_regs : int
        Registers of the loop.
    """

    reads_chain = False
    keeps_partitions = True
    keeps_strings = True
    n_regs: ClassVar[int]

    def __init__(self, options: RunOptions, length: Length, *, distinct: bool, n_forgotten: int) -> None:
        self.options = options
        self._length = np.uint64(2**64 - 1) if length is None else length
        self._demand = demand_of(options, distinct=distinct)
        self._regs = np.zeros(self.n_regs, np.int64)
        self._forgotten = np.full(n_forgotten, -1, np.int64)
        self._last_clocks = np.zeros(1, self._length.dtype)
        self._n_partitions = 1
        self._out = OutputBuffers(timed=options.timed, labelled=options.labelled)
        self._counted = CountOutput(timed=options.timed, shard=None)

    @property
    def numbers_events(self) -> bool:
        """True where a window counts the events of a partition."""
        return self.options.window == COUNT_WINDOW

    # ---- events -------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def _loop_arguments(self) -> tuple[tuple[Any, ...], ...]:
        """The arguments of the loop between its demand and the buffers for what it finds."""

    @abstractmethod
    def _run_loop(self, *arguments: Any) -> int:
        """Call the loop, and return its status."""

    @abstractmethod
    def _drop_unreachable(self, clock: Any) -> None:
        """Drop what is out of reach for an event of this clock."""

    @abstractmethod
    def _reserve_memory(self, clock: Any) -> None:
        """Drop what is out of reach for an event of this clock; take more memory where little is free."""

    @abstractmethod
    def _lengthen_buffers(self, n_rows: int) -> None:
        """Make space for a longer listing, and for choosing among `n_rows` rows."""

    def feed(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Process relevant events and yield full buffers, in order."""
        n, noted, regs = len(events.symbols), 0, self._regs
        regs[k.EVENT] = 0
        while True:
            args = (
                Window(events.window_clocks, self._length),
                self.options.as_group,
                self._demand,
                *self._loop_arguments,
            )
            groups = plain(*args, Matches(*self._out.to_fill), Counts(*self._counts_to_fill))
            regs[k.CHOICE_LEFT] = PAIRS_AT_ONCE
            match Status(self._run_loop(tuple(events.as_group), events.attributes, *groups, n, regs)):
                case Status.DONE:
                    break
                case Status.GROW_NODES:
                    event = int(regs[k.EVENT])
                    self._note_clocks(events, noted, event)
                    noted = event
                    self._reserve_memory(events.window_clocks[event])
                case Status.GROW_PATH:
                    n_rows = int(regs[k.N_OUT] - regs[k.FIRST_OUT])
                    with self._gathering(events, self._out.n_bytes + 2 * _SCRATCH * n_rows):
                        self._lengthen_buffers(n_rows)
                case Status.OUTPUT_FULL:
                    yield from self._drain(events)
                case Status.GO_ON:
                    yield self._nothing
                case Status.TOO_MANY:
                    raise too_many_at(int(events.reported[int(regs[k.EVENT])]))
                case other:
                    raise AssertionError(other)
        self._note_clocks(events, noted, n)

    def _drain(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Hand over what is complete, and make space in the buffers."""
        regs = self._regs
        if self.options.counted and regs[k.N_ENDS] == len(self._counted.to_fill[0]):
            yield self.flush()
            return
        n = int(regs[k.FIRST_OUT] if self._demand.gathered else regs[k.N_OUT])
        n_out, n_values = int(regs[k.N_OUT]), int(regs[k.N_VALUES])
        if not n:
            if self._out.is_widest:
                raise memory_error(self._gathered_at(events), f"more than {MAX_POSITIONS:,} positions")
            with self._gathering(events, self._out.n_bytes_when_wider + _SCRATCH * n_out):
                self._out.widen(n_out, n_values)
            return
        complete, rest = self._out.split(n, n_out, n_values)
        regs[k.N_OUT], regs[k.N_VALUES] = len(rest), len(rest.positions)
        regs[k.FIRST_OUT] = 0
        yield complete

    def _gathering(self, events: RelevantEvents, n_bytes: int) -> AbstractContextManager[None]:
        """Bound the memory for the matches of the event under way, which then take so many bytes."""
        return self.options.memory.reserve(n_bytes, lambda: self._gathered_at(events))

    def _gathered_at(self, events: RelevantEvents) -> str:
        """Return words on the matches of the event under way, for the message that they need too much."""
        regs = self._regs
        n, event = int(regs[k.N_OUT] - regs[k.FIRST_OUT]), int(regs[k.EVENT])
        end = self.options.end_in_words(int(events.reported[event]), events.times, event)
        if not n:
            return f"one match that ends at {end} needs"
        return f"{end} ends {n:,} matches so far, and choosing among them needs"

    def flush(self) -> ResultBuffers:
        """Return the results since the last full buffer."""
        regs = self._regs
        if self.options.counted:
            counts: CountBuffers = self._counted.take(int(regs[k.N_ENDS]))
            regs[k.N_ENDS] = 0
            return counts
        matches: MatchBuffers = self._out.take(int(regs[k.N_OUT]), int(regs[k.N_VALUES]))
        regs[k.N_OUT] = regs[k.N_VALUES] = 0
        return matches

    @property
    def _nothing(self) -> ResultBuffers:
        """Empty buffer, yielded so that the consumer can stop the loop early."""
        return self._counted.take(0) if self.options.counted else self._out.take(0, 0)

    @property
    def _counts_to_fill(self) -> list[Int64]:
        return self._counted.to_fill if self.options.counted else [np.empty(0, np.int64)] * 3

    # ---- clocks and partitions --------------------------------------------------------------------------------

    def _note_clocks(self, events: RelevantEvents, begin: int, end: int) -> None:
        """Note the last clocks, of each partition if its events are counted, after the events from `begin` to `end`."""
        if self.options.window == COUNT_WINDOW:
            self._last_clocks[events.partitions[begin:end]] = events.window_clocks[begin:end]
        elif end > begin:
            self._last_clocks[0] = events.window_clocks[end - 1]

    def _clocks_at(self, clock: Any) -> Array:
        """Return the last clock of each partition if its events are counted, else a clock for all."""
        return self._last_clocks if self.options.window == COUNT_WINDOW else np.array([clock], self._length.dtype)

    def _renumber_partitions(self, mask: Bools) -> None:
        """Move the state of each partition to the partition's new number."""
        n = int(mask.sum())
        arrays = [(self._last_clocks, 0)] + ([(self._forgotten, -1)] if forgets_by_partition(self.options) else [])
        for array, empty in arrays:
            if len(array) >= len(mask) > 0:
                array[:n] = array[: len(mask)][mask]
                array[n:] = empty

    def reserve_partitions(self, n: int) -> None:
        """Reserve memory for `n` partitions."""
        if n <= self._n_partitions:
            return
        self._n_partitions = max(n, 2 * self._n_partitions)
        if forgets_by_partition(self.options):
            self._forgotten = _longer(self._forgotten, self._n_partitions, -1)
        if self.options.window == COUNT_WINDOW:
            self._last_clocks = _longer(self._last_clocks, self._n_partitions, 0)

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        n_partitions = np.array([self._n_partitions])
        return {"forgotten": self._forgotten, "last_clocks": self._last_clocks, "n_partitions": n_partitions}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self._forgotten, self._last_clocks = snapshot["forgotten"], snapshot["last_clocks"]
        self._n_partitions = int(snapshot["n_partitions"][0])


def forgets_by_partition(options: RunOptions) -> bool:
    """Return True if CONSUME BY forgets what one partition has read, and not what all have."""
    return options.partitioned and options.consume == CONSUME_PARTITION


def demand_of(options: RunOptions, *, distinct: bool) -> Demand:
    """Return the options of a loop of joins; `distinct` if it may list a match several times."""
    strategy = STRATEGIES[options.strategy]
    distinct = distinct and options.limit != 1  # the first match of an end has no double before it
    gathered = distinct or strategy.choice != CHOOSE_ALL
    shard, n_shards = options.shard or (0, 1)
    whole = gathered or options.counted or options.limit > 0 or options.consume != CONSUME_NONE
    only_ends = options.only_ends and not gathered and not strategy.consecutive
    return Demand(
        counting=int(options.counted),
        gathered=int(gathered),
        strategy=strategy.choice,
        distinct=int(distinct),
        strict=int(strategy.consecutive),
        shard=shard,
        n_shards=n_shards,
        whole=int(whole),
        only_ends=int(only_ends),
    )


def _longer(array: Array, n: int, empty: Any) -> Array:
    grown = np.full(n, empty, array.dtype)
    grown[: len(array)] = array
    return grown
