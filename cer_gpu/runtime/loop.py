"""What the loop that lists and the loop that counts have in common: their events, partitions, states and slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from cer_gpu.automaton.determinize import Determinization
from cer_gpu.automaton.encoding import CONSUME_NONE, GLOBAL_WINDOW, NO_WINDOW
from cer_gpu.backend import collection, tecs
from cer_gpu.backend.arguments import Events, Options, Tables, plain

FARTHEST = 1 << 29
"""Between the positions of events that are read at once: with what is open from before, they must fit 32 bits."""

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RunOptions:
    """How events are to be read.

    Attributes
    ----------
    window
        NO_WINDOW, GLOBAL_WINDOW or COUNT_WINDOW (`cer_gpu.automaton.encoding`).
    width
        Of a window that counts events: all, or those of a partition (COUNT_WINDOW); -1 for others.
    partitioned
        Whether there are partitions.
    timed
        Whether start and end times are wanted.
    limit
        At most so many complex events for one end; 0 for all.
    consume
        CONSUME_NONE, CONSUME_PARTITION or CONSUME_ANY.
    labelled
        Whether the marks of the kept positions are wanted.
    share
        (k, n): list part k of n of the complex events; None for all.
    first_end
        Complex events that end before this position are not listed.
    placed
        Whether the positions that are reported are given.
    """

    window: int = NO_WINDOW
    width: int = -1
    partitioned: bool = False
    timed: bool = False
    limit: int = 0
    consume: int = CONSUME_NONE
    labelled: bool = False
    share: tuple[int, int] | None = None
    first_end: int = 0
    placed: bool = False

    @property
    def of_loops(self) -> Options:
        """The options as the loops take them."""
        return Options(self.window, self.width, self.consume, self.limit, self.first_end)

    @property
    def numbers_its_partitions(self) -> bool:
        """Whether starts are numbered in each partition by itself."""
        return self.partitioned and self.window != GLOBAL_WINDOW

    @property
    def in_positions(self) -> bool:
        """Whether the window is measured in positions, so that it needs no clocks."""
        return self.window == GLOBAL_WINDOW and self.width >= 0


@dataclass(frozen=True)
class Relevant:
    """Relevant events of a block.

    Attributes
    ----------
    symbols : int32, shape (n,)
    positions : int64, shape (n,)
        Over the whole input.
    lows : int64, shape (n,)
        Ordinals of the first event in each window (empty unless it is a GLOBAL_WINDOW, and one of clocks).
    clocks : int64, shape (n,)
        Times for the output (empty when not timed).
    partitions : int32, shape (n,)
        (empty when there are none)
    ordinals : int64, shape (n,)
        Numbers in the partition (empty where they do not matter).
    places : int64, shape (n,)
        The positions that are reported (empty where they are `positions`).
    moments : uint64 or float64, shape (n,)
        Clocks that the window is measured with.
    """

    symbols: Int32
    positions: Int64
    lows: Int64
    clocks: Int64
    partitions: Int32
    ordinals: Int64
    places: Int64
    moments: npt.NDArray[Any]

    @property
    def of_loops(self) -> Events:
        """The events as the loops take them."""
        return Events(self.symbols, self.positions, self.places, self.partitions, self.ordinals, self.lows, self.clocks)

    @property
    def reported(self) -> Int64:
        """The positions that are reported."""
        return self.places if len(self.places) else self.positions

    def at(self, indices: slice | Int32) -> Relevant:
        """Return some of the events."""
        return Relevant(*(each[indices] if len(each) else each for each in self._arrays))

    def copy(self) -> Relevant:
        """Return the events in memory of their own."""
        return Relevant(*(each.copy() for each in self._arrays))

    @property
    def _arrays(self) -> list[npt.NDArray[Any]]:
        return [getattr(self, f.name) for f in fields(self)]

    def near_one_another(self) -> Iterator[Relevant]:
        """Yield the events in pieces, so that the positions of each differ by no more than `FARTHEST`."""
        begin = 0
        while begin < len(self.positions):
            end = int(np.searchsorted(self.positions, self.positions[begin] + FARTHEST, "right"))
            if begin == 0 and end == len(self.positions):
                yield self
            else:
                yield self.at(slice(begin, end))
            begin = end


class Loop:
    """The state of one evaluation, as the arrays that a loop works on.

    Parameters
    ----------
    table
        The determinised automaton.
    options
    slots
        None yet, in the layout of the loop.

    Attributes
    ----------
    base : int
        The position that starts are counted from.
    last_low : int
        Under GLOBAL_WINDOW, what is before this position is not in the window of the last relevant event.
    """

    N_PART = tecs.N_PART

    def __init__(self, table: Determinization, options: RunOptions, slots: npt.NDArray[Any]) -> None:
        self.table = table
        self.options = options
        self.base = 0
        self.last_low = 0
        self._regs = np.zeros(tecs.N_REGS, np.int64)
        self._regs[tecs.CURRENT] = self._regs[tecs.FREE_SLOT] = -1
        self._parts = np.zeros((0, self.N_PART), np.int64)
        self._slots = slots
        self._slot_of = np.zeros(0, np.int32)
        self._options = options.of_loops
        self.reserve_partitions(1)

    @property
    def _lists(self) -> tecs.Lists:
        return tecs.Lists(self._regs, self._parts, self._slots, self._slot_of)

    @property
    def n_relevant(self) -> int:
        """Relevant events so far: the ordinal of the next one."""
        return int(self._regs[tecs.ORDINAL])

    # ---- partitions -----------------------------------------------------------------------------------------

    def idle(self, n_partitions: int) -> npt.NDArray[np.bool_]:
        """Return which of the first partitions hold nothing, after what has expired is dropped."""
        options, idle = self.options, np.zeros(n_partitions, np.bool_)
        low = self.last_low - self.base if options.window == GLOBAL_WINDOW else 0
        collection.drop_expired(*plain(self._lists, self._options), n_partitions, low, idle)
        return idle

    def keep_partitions(self, kept: npt.NDArray[np.bool_]) -> None:
        """Drop the partitions that are not `kept`; the others are numbered anew in their order."""
        self._slot_of.fill(-1)
        self._regs[tecs.CURRENT] = -1
        self._parts = self._parts[: len(kept)][kept]
        self.reserve_partitions(max(1, len(self._parts)))

    def reserve_partitions(self, n: int) -> None:
        """Make room for so many partitions."""
        old = len(self._parts)
        if n > old:
            added = np.full((max(n, 2 * old) - old, self.N_PART), -1, np.int64)
            added[:, tecs.CONTROL] = added[:, tecs.ORIGIN] = 0
            added[:, tecs.PREVIOUS], added[:, tecs.EPOCH] = -2, self._regs[tecs.CONSUMED]
            self._parts = np.concatenate([self._parts, added])

    # ---- state that can be kept -----------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return what another one needs to go on: arrays."""
        return {"regs": self._regs, "parts": self._parts, "slots": self._slots}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self._regs, self._parts, self._slots = snapshot["regs"], snapshot["parts"], snapshot["slots"]
        self._regs[tecs.CURRENT] = -1
        self._reserve_states()

    # ---- room -----------------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        """Compute the steps that are missing at the open event."""
        part = self._parts[self._regs[tecs.CURRENT]]
        active, slot = [], int(part[tecs.HEAD])
        while slot >= 0:
            active.append(int(self._slots[slot, tecs.STATE]))
            slot = int(self._slots[slot, tecs.NEXT_SLOT])
        self.table.resolve(int(self._regs[tecs.WANTED]), active, int(part[tecs.CONTROL]))
        self._reserve_states()

    def _reserve_states(self) -> None:
        """Give every determinised state a place."""
        old, n_states = len(self._slot_of), self.table.n_states
        if old < n_states or not old:
            size = max(2 * n_states, 4)
            self._slot_of = np.concatenate([self._slot_of, np.full(size - old, -1, np.int32)])
            self._reserve_for(size)

    def _reserve_for(self, n_states: int) -> None:
        """Make room for so many states where the loop needs it."""
        raise NotImplementedError

    def _grow_slots(self) -> None:
        """Make room for twice as many slots; the new ones are free."""
        old, width = self._slots.shape
        n = max(2 * old, 8)
        slots = np.zeros((n, width), self._slots.dtype)
        slots[:old] = self._slots
        slots[old:, tecs.NEXT_SLOT] = np.arange(old + 1, n + 1)
        slots[-1, tecs.NEXT_SLOT] = self._regs[tecs.FREE_SLOT]
        self._regs[tecs.FREE_SLOT] = old
        self._regs[tecs.N_FREE] += n - old
        self._slots = slots


def tables_of(table: Determinization) -> Tables:
    """Return the tables of a determinised automaton as the loops take them."""
    return Tables(table.steps, table.touched, table.steady, table.fresh, table.moves, table.max_moves, table.has_gaps)
