"""Relevant events on their way into a runtime, and how the runtime is to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Int32, Int64
from cer_gpu.automaton.chain_sums import Weighing
from cer_gpu.automaton.encoding import CONSUME_NONE, GLOBAL_WINDOW, NO_WINDOW
from cer_gpu.backend.arguments import Events, Options
from cer_gpu.columnar.clocks import time_in_words
from cer_gpu.columnar.memory_limit import HALF_OF_MACHINE, MemoryLimit
from cer_gpu.expressions.side_columns import StringIds
from cer_gpu.runtime.join_tables import JoinTables
from cer_gpu.runtime.parallel.parallel_tables import ParallelTables
from cer_gpu.runtime.reading.symbols import EventBuffers
from cer_gpu.runtime.recent.tables import RecentTables
from cer_gpu.runtime.spacing import Spacings

EventTaker = Callable[["RelevantEvents", list[int]], EventBuffers]
FARTHEST = 1 << 29
"""Largest distance of positions that are read at once: with what is open from before, they must fit 32 bits."""


@dataclass(frozen=True)
class RunOptions:
    """Options of a runtime: how it reads events, and which matches are wanted.

    Attributes
    ----------
    window
        NO_WINDOW, GLOBAL_WINDOW or COUNT_WINDOW (`cer_gpu.automaton.encoding`).
    width
        Length of a window that counts events: all, or those of a partition (COUNT_WINDOW); -1 for others.
    partitioned
        True if there are partitions.
    timed
        True if start and end times are wanted.
    limit
        Maximum number of matches for one end; 0 for all.
    consume
        CONSUME_NONE, CONSUME_PARTITION or CONSUME_ANY.
    labelled
        True if the marks of the selected positions are wanted.
    shard
        (k, n): list part k of n of the matches; None for all.
    report_from
        Matches that end before this position are not listed.
    placed
        True if `RelevantEvents.places` gives the positions that are reported.
    number_bits
        Bits of positions behind that of the event: those of records of events that have several keys.
    gap
        Longest distance of two steps, by the clock of the window; None: any.  Only for a funnel.
    spacing
        Bounds on distances within a chain, or None.
    counted
        True if matches are counted.
    only_ends
        True if of each end only its position and time are wanted.
    strategy
        Name of the selection strategy, for a runtime that chooses among the matches of one end.
    joins
        Join predicates, or None.
    parallel
        Tables of a parallel pattern, or None.
    recent
        Tables of the steps of SELECT RECENT, or None.
    texts
        Ids of the strings that these filters compare, shared with the columns of `RelevantEvents.attributes`.
    weighing
        Weights of events, which are the columns of `RelevantEvents.attributes`; or None.
    memory
        Limit for the matches of one end that are gathered for a choice among them, and for pending ones.
    time_type
        Type of the times, for messages, or None if there are none.
    taker
        Takes the events, and the bit vectors of their symbols, of the runtime that hands them over.
    """

    window: int = NO_WINDOW
    width: int = -1
    partitioned: bool = False
    timed: bool = False
    limit: int = 0
    consume: int = CONSUME_NONE
    labelled: bool = False
    shard: tuple[int, int] | None = None
    report_from: int = 0
    placed: bool = False
    number_bits: int = 0
    gap: np.uint64 | np.float64 | None = None
    spacing: Spacings | None = None
    counted: bool = False
    only_ends: bool = False
    strategy: str = "ALL"
    joins: JoinTables | None = None
    parallel: ParallelTables | None = None
    recent: RecentTables | None = None
    strings: StringIds | None = None
    weighing: Weighing | None = None
    memory: MemoryLimit = HALF_OF_MACHINE
    time_type: pa.DataType | None = None
    taker: EventTaker | None = None

    @property
    def as_group(self) -> Options:
        """The options as the loops take them."""
        return Options(self.window, self.width, self.consume, self.limit, self.report_from)

    def end_in_words(self, position: int, times: Int64, at: int) -> str:
        """Return words on the event that ends matches, with the time `at` this place if there are times."""
        position >>= self.number_bits
        if self.time_type is None or not len(times):
            return f"event {position}"
        return f"event {position} ({time_in_words(int(times[at]), self.time_type)})"

    @property
    def numbers_its_partitions(self) -> bool:
        """True if starts are numbered in each partition by itself."""
        return self.partitioned and self.window != GLOBAL_WINDOW

    @property
    def in_positions(self) -> bool:
        """True if the window is measured in positions, and needs no clocks."""
        return self.window == GLOBAL_WINDOW and self.width >= 0


@dataclass(frozen=True)
class RelevantEvents:
    """Relevant events of a block.

    Attributes
    ----------
    symbols : int32, shape (n,)
    positions : int64, shape (n,)
        Row numbers over the whole input.
    lows : int64, shape (n,)
        Ordinals of the first event in each window (empty unless it is a GLOBAL_WINDOW, and one of clocks).
    times : int64, shape (n,)
        Times for the output (empty when not timed).
    partitions : int32, shape (n,)
        Partition of each event (empty when there are none).
    ordinals : int64, shape (n,)
        Numbers in the partition (empty where they do not matter).
    places : int64, shape (n,)
        The positions that are reported (empty where they are `positions`).
    window_clocks : uint64 or float64, shape (n,)
        Clocks that the window is measured with.
    attributes : int64, shape (n, k)
        The bits of the attributes that the runtime reads, one column each; k is 0 where it reads none.
    """

    symbols: Int32
    positions: Int64
    lows: Int64
    times: Int64
    partitions: Int32
    ordinals: Int64
    places: Int64
    window_clocks: Array
    attributes: Int64

    @property
    def as_group(self) -> Events:
        """The events as the loops take them."""
        return Events(self.symbols, self.positions, self.places, self.partitions, self.ordinals, self.lows, self.times)

    @property
    def reported(self) -> Int64:
        """The positions that are reported."""
        return self.places if len(self.places) else self.positions

    def at(self, indices: slice | Int32) -> RelevantEvents:
        """Return some of the events."""
        return RelevantEvents(*(each[indices] if len(each) else each for each in self._arrays))

    def copy(self) -> RelevantEvents:
        """Return the events in memory of their own."""
        return RelevantEvents(*(each.copy("K") for each in self._arrays))

    @property
    def _arrays(self) -> list[Array]:
        return [getattr(self, f.name) for f in fields(self)]

    def near_one_another(self) -> Iterator[RelevantEvents]:
        """Yield the events in pieces, so that the positions of each differ by no more than `FARTHEST`."""
        begin = 0
        while begin < len(self.positions):
            end = int(np.searchsorted(self.positions, self.positions[begin] + FARTHEST, "right"))
            if begin == 0 and end == len(self.positions):
                yield self
            else:
                yield self.at(slice(begin, end))
            begin = end
