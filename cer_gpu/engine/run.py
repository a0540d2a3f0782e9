"""The state of one evaluation: automaton tables, union lists, tECS and history, and the arrays that the loop works on.

Everything is bounded by the window: the ring of nodes and the history grow to what one window needs and no further.
Without a window nothing dies; nodes then grow with the stream, up to the bound of their 32-bit ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cer_gpu.automaton.determinize import Determinization
from cer_gpu.backend import evaluation as ev
from cer_gpu.errors import EventsError

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

REBASE_POSITION = 1 << 30
"""Positions are kept as 32-bit numbers from a base, which moves on once they pass this."""
REBASE_NODE = (1 << 31) - (1 << 26)
"""Nodes have 32-bit ids, which are counted anew from a smaller one once they pass this."""
OUTPUT_ROWS = 1 << 16
"""Complex events in one output buffer."""
INITIAL_SIZE = 1 << 10
"""Entries that rings, stacks and paths begin with (a power of two)."""


@dataclass(frozen=True)
class MatchBuffers:
    """Complex events as arrays; `offsets` and `positions` are those of an Arrow list array."""

    spans: Int64
    times: Int64
    offsets: Int32
    positions: Int64


class Run:
    """Feeds relevant events to the loop and gives it what it asks for.

    Parameters
    ----------
    table
        The determinised automaton.
    windowed
        Whether events leave the window (WITHIN).
    timed
        Whether start and end times are wanted.
    limit
        At most so many complex events for one end; 0 for all.
    """

    def __init__(self, table: Determinization, *, windowed: bool, timed: bool, limit: int = 0) -> None:
        self.table = table
        self.windowed = windowed
        self.timed = timed
        self.limit = limit
        self.base = 0
        self._regs = np.zeros(ev.N_REGS, np.int64)
        self._regs[ev.PREVIOUS] = -2
        self._regs[ev.LONGEST] = 1
        self._regs[ev.LAST_NODE] = REBASE_NODE
        self._nodes = np.zeros((INITIAL_SIZE, 4), np.int32)
        self._times = np.zeros(INITIAL_SIZE if timed else 0, np.int64)
        self._history = np.zeros((INITIAL_SIZE if windowed else 1, 2), np.int32)
        self._list_nodes = np.zeros((0, 8), np.int32)
        self._list_max = np.zeros((0, 8), np.int32)
        self._list_state = np.zeros((2, 0), np.int32)
        self._slot_of = np.zeros(0, np.int32)
        self._free = np.zeros(0, np.int32)
        self._scratch = np.zeros((3, 0), np.int32)
        self._roots = np.zeros((0, 2), np.int32)
        self._stack = np.zeros((INITIAL_SIZE, 2), np.int32)
        self._path = np.zeros(INITIAL_SIZE, np.int32)
        self._max_rows = OUTPUT_ROWS
        self._reserve_states()
        self._new_output(8 * OUTPUT_ROWS)

    @property
    def n_relevant(self) -> int:
        """Relevant events so far: the ordinal of the next one."""
        return int(self._regs[ev.ORDINAL])

    def feed(self, symbols: Int32, positions: Int64, lows: Int64, clocks: Int64) -> Iterator[MatchBuffers]:
        """Process relevant events and yield full buffers of complex events, in order.

        Parameters
        ----------
        symbols : int32, shape (n,)
        positions : int64, shape (n,)
            Over the whole input.
        lows : int64, shape (n,)
            Ordinals of the first event in each window (empty without a window).
        clocks : int64, shape (n,)
            Times for the output (empty when not timed).
        """
        if not len(symbols):
            return
        self._make_room(positions, lows)
        relative = (positions - self.base).astype(np.int32)
        self._regs[ev.EVENT] = 0
        while True:
            status = ev.run_events(
                symbols,
                relative,
                lows,
                clocks,
                self.windowed,
                self.timed,
                self.base,
                self.limit,
                self.table.actions,
                self.table.n_actions,
                self._regs,
                self._nodes,
                self._times,
                self._history,
                self._list_nodes,
                self._list_max,
                self._list_state,
                self._slot_of,
                self._free,
                self._scratch,
                self._roots,
                self._stack,
                self._path,
                self._spans,
                self._out_times,
                self._offsets,
                self._positions,
            )
            if status == ev.DONE:
                return
            if status == ev.NEED_STEP:
                active = np.flatnonzero(self._slot_of >= 0).astype(np.int32)
                self.table.resolve(int(self._regs[ev.WANTED]), active)
                self._reserve_states()
            elif status == ev.GROW_NODES:
                self._grow_nodes()
            elif status == ev.GROW_LISTS:
                self._list_nodes = _widen(self._list_nodes)
                self._list_max = _widen(self._list_max)
            elif status == ev.GROW_STACK:
                self._stack = np.concatenate([self._stack, np.zeros_like(self._stack)])
                self._path = np.concatenate([self._path, np.zeros_like(self._path)])
            elif self._regs[ev.N_OUT]:
                yield self.flush()
            else:  # a single complex event that no buffer holds
                self._new_output(2 * len(self._positions))

    def flush(self) -> MatchBuffers:
        """Return the complex events found since the last call."""
        n, n_values = int(self._regs[ev.N_OUT]), int(self._regs[ev.N_VALUES])
        buffers = MatchBuffers(
            self._spans[:n].copy(),
            self._out_times[:n].copy(),
            self._offsets[: n + 1].copy(),
            self._positions[:n_values].copy(),
        )
        self._regs[ev.N_OUT] = self._regs[ev.N_VALUES] = 0
        return buffers

    # ---- room -----------------------------------------------------------------------------------------------

    def _new_output(self, n_values: int) -> None:
        self._spans = np.zeros((self._max_rows, 2), np.int64)
        self._out_times = np.zeros((self._max_rows if self.timed else 0, 2), np.int64)
        self._offsets = np.zeros(self._max_rows + 1, np.int32)
        self._positions = np.zeros(n_values, np.int64)

    def _reserve_states(self) -> None:
        """Give every determinised state, and every list that an event may move, a place."""
        n_states, n_actions = self.table.n_states, self.table.actions.shape[1]
        old = len(self._slot_of)
        if old < n_states:
            size = 2 * n_states
            self._slot_of = np.concatenate([self._slot_of, np.full(size - old, -1, np.int32)])
            old_slots, slots = self._list_nodes.shape[0], 2 * size + 2
            added = np.arange(old_slots, slots, dtype=np.int32)[::-1]
            n_free = int(self._regs[ev.N_FREE])
            self._free = np.concatenate([self._free[:n_free], added, np.zeros(slots - len(added) - n_free, np.int32)])
            self._regs[ev.N_FREE] += len(added)
            width = self._list_nodes.shape[1]
            more = np.zeros((slots - old_slots, width), np.int32)
            self._list_nodes = np.concatenate([self._list_nodes, more])
            self._list_max = np.concatenate([self._list_max, more])
            self._list_state = np.concatenate([self._list_state, np.zeros((2, slots - old_slots), np.int32)], axis=1)
        if self._scratch.shape[1] < n_actions:
            self._scratch = np.zeros((3, n_actions), np.int32)
            self._roots = np.zeros((2 * n_actions, 2), np.int32)

    def _make_room(self, positions: Int64, lows: Int64) -> None:
        """Before a batch: history for its windows, and positions that fit 32 bits."""
        regs = self._regs
        if self.windowed:
            ordinals = np.arange(len(positions)) + regs[ev.ORDINAL]
            longest = int((ordinals - lows).max()) + 1
            if longest > len(self._history):
                self._history = _regrow(self._history, longest)
        if positions[-1] - self.base >= REBASE_POSITION:
            self._rebase_positions(int(positions[0]), int(positions[-1]), int(lows[0]) if self.windowed else 0)

    def _rebase_positions(self, first: int, last: int, low: int) -> None:
        """Move the base to the oldest event that is still in the window, or to the batch when none is."""
        regs = self._regs
        if self.windowed:
            inside = low < regs[ev.ORDINAL]
            oldest = self._history[low & (len(self._history) - 1), 0] if inside else first - self.base
            shift = int(oldest)
            self.base += shift
            regs[ev.PREVIOUS] -= shift
            starts = self._nodes[:, 0] >= 0
            for numbers, where in (
                (self._nodes[:, 0], starts),
                (self._nodes[:, 3], True),
                (self._list_max, True),
                (self._history[:, 0], True),
            ):
                # what is dead may fall below the range of 32 bits
                moved = np.maximum(numbers.astype(np.int64) - shift, np.iinfo(np.int32).min)
                np.copyto(numbers, moved.astype(np.int32), where=where)
        elif not (self._slot_of >= 0).any():  # nothing is open
            shift = first - self.base
            self.base += shift
            regs[ev.PREVIOUS] -= shift
        if last - self.base >= (1 << 31) - 2:
            raise EventsError(
                f"at event {last} the query may still need event {self.base}; at most 2**31 events are kept\n"
                "hint: add WITHIN, or a shorter one"
            )

    def _grow_nodes(self) -> None:
        """Make room in the ring, or count node ids anew from a smaller one."""
        regs = self._regs
        floor, after = int(regs[ev.FLOOR]), int(regs[ev.NEXT_NODE])
        if after > REBASE_NODE:
            self._rebase_nodes(floor)
            return
        size = len(self._nodes)
        try:
            nodes = _regrow(self._nodes, 2 * size)
            times = _regrow(self._times, 2 * size) if self.timed else self._times
        except MemoryError:
            raise EventsError(
                f"no memory for more than {size} nodes of partial results\nhint: add WITHIN, or a shorter one"
            ) from None
        self._nodes, self._times = nodes, times

    def _rebase_nodes(self, floor: int) -> None:
        shift = floor // len(self._nodes) * len(self._nodes)  # ids keep their places in the ring
        if shift == 0:
            raise EventsError(
                f"the query holds {int(self._regs[ev.NEXT_NODE])} partial results at once, more than can be kept\n"
                "hint: add WITHIN, or a shorter one"
            )
        for column in (1, 2):
            ids = self._nodes[:, column]
            ids[ids >= 0] -= shift
        self._list_nodes -= shift
        self._list_state[1][self._list_state[1] >= 0] -= shift
        self._history[:, 1] -= shift
        self._regs[ev.FLOOR] -= shift
        self._regs[ev.NEXT_NODE] -= shift


def _widen(lists: Int32) -> Int32:
    return np.concatenate([lists, np.zeros_like(lists)], axis=1)


def _regrow(ring: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return a larger ring (a power of two of at least `size`); every entry is where its id looks for it."""
    copies = (1 << (size - 1).bit_length()) // len(ring)
    return np.concatenate([ring] * copies)
