"""The state of one evaluation: partitions, union lists, tECS and history, and the arrays that the loop works on.

Everything is bounded by the window: the ring of nodes and the history grow to what one window needs and no further.
If windows do not end for all partitions at once, the nodes that are alive are collected before their ring grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cer_gpu.arrays import Array, Int32, Int64
from cer_gpu.automaton.determinize import Determinization
from cer_gpu.automaton.encoding import GLOBAL_WINDOW
from cer_gpu.backend import collection, tecs
from cer_gpu.backend import evaluation as ev
from cer_gpu.backend.arguments import Matches, plain
from cer_gpu.backend.listing import Listing, Shard
from cer_gpu.backend.status import Status
from cer_gpu.columnar.memory import larger_ring
from cer_gpu.errors import EventsError, no_memory
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.loop import Loop, tables_of
from cer_gpu.runtime.matches import MatchBuffers, OutputBuffers
from cer_gpu.runtime.protocol import Length

REBASE_POSITION = 1 << 30
"""Positions are stored as 32-bit numbers from a base, which advances once they pass this."""
REBASE_NODE = (1 << 31) - (1 << 26)
"""Nodes have 32-bit ids, which are counted anew from a smaller one once they pass this."""
INITIAL_SIZE = 1 << 10
"""Initial entries of rings, stacks and paths (a power of two)."""
LANDMARKS_A_WINDOW = ev.LANDMARKS // 2
"""Landmarks in a window measured in positions: once one has left it, the nodes before may be overwritten."""
_NEAR = 64
"""Positions between two of these landmarks, in addition to their part of the window."""
INITIAL_PAIRS = 4
"""Initial capacity for the pairs of a union list."""


class AutomatonRun(Loop):
    """Runtime that lists matches by the determinised automaton (CORE, algorithm 1)."""

    engine = "automaton"

    def __init__(self, table: Determinization, options: RunOptions, length: Length = None) -> None:
        super().__init__(table, options, np.zeros((0, tecs.PAIRS + 2 * INITIAL_PAIRS), np.int32))
        self._regs[tecs.LONGEST] = 1
        self._apart = max(options.width, 0) // LANDMARKS_A_WINDOW + _NEAR
        self._regs[tecs.LAST_NODE] = self._last_node
        extras = [options.timed, options.placed or options.numbers_its_partitions, options.labelled]
        self._layout = np.array([sum(extras[:c]) if extras[c] else -1 for c in range(3)])
        self._here = np.zeros(sum(extras), np.int64)
        # a collection costs some calls, what has left one window costs nothing
        n_nodes = INITIAL_SIZE if options.window == GLOBAL_WINDOW else 4 * INITIAL_SIZE
        self._nodes = np.zeros((n_nodes, 4), np.int32)
        self._extras = np.zeros((n_nodes, sum(extras)), np.int64)
        n_history = ev.LANDMARKS if options.in_positions else INITIAL_SIZE if options.window == GLOBAL_WINDOW else 1
        self._history = np.zeros((n_history, 2), np.int32)
        self._stack = np.zeros((INITIAL_SIZE, 2), np.int32)
        self._path = np.zeros(INITIAL_SIZE, np.int64)
        self._path_marks = np.zeros(INITIAL_SIZE, np.int32)
        part = () if options.shard is None else (*options.shard, 0, 0, 0)
        self._shard_state = np.array(part, np.float64)
        self._indices = np.zeros(len(self._stack) if options.shard else 0)
        self._reserve_weights()
        self._reserve_states()
        self._out = OutputBuffers(timed=options.timed, labelled=options.labelled)

    @property
    def _last_node(self) -> int:
        """The id from which on ids are counted anew; out of reach where collecting nodes does that."""
        return REBASE_NODE if self.options.window == GLOBAL_WINDOW else 1 << 40

    @property
    def _arena(self) -> tecs.Arena:
        return tecs.Arena(self._nodes, self._extras, self._layout, self._here, len(self._nodes) - 1)

    @property
    def needs_lows(self) -> bool:
        """True where the window is measured by clocks; positions alone decide what has left it."""
        return super().needs_lows and not self.options.in_positions

    def feed(self, events: RelevantEvents) -> Iterator[MatchBuffers]:
        """Process relevant events and yield full buffers of matches, in order."""
        if not len(events.symbols):
            return
        self._prepare_block(events)
        self._regs[tecs.EVENT] = 0
        options = self.options
        taken = events.as_group
        while True:
            groups = plain(taken, self._options, *self.working_groups)
            match Status(ev.evaluate_events(*groups, *self.working_arrays)):
                case Status.DONE:
                    break
                case Status.RENUMBER:
                    self._renumber(events, int(self._regs[tecs.EVENT]))
                case status:
                    yield from self.supply(status)
        if options.in_positions:
            self.last_low: int = int(events.positions[-1]) - options.width
        elif options.window == GLOBAL_WINDOW:
            self.last_low = self.base + int(self._history[events.lows[-1] & (len(self._history) - 1), 0])

    @property
    def working_groups(self) -> tuple[tuple[Any, ...], ...]:
        """Arguments that the loop takes after events and options."""
        return (
            ev.Numbering(self.base, self.options.numbers_its_partitions, self._apart),
            tables_of(self.table),
            self._lists,
            self._arena,
            Listing(self._roots, self._stack, self._path, self._path_marks),
            Shard(self._shard_state, self._root_weights, self._weights, self._stamps, self._indices),
            Matches(*self._out.to_fill),
        )

    @property
    def working_arrays(self) -> tuple[Int32, Int32]:
        """The arrays that the loop takes after `working_groups`."""
        return self._history, self._sources

    @property
    def distributed(self) -> Array:
        """State of the distribution of shards (`cer_gpu.backend.listing`); empty if there are none."""
        return self._shard_state

    @distributed.setter
    def distributed(self, distributed: Array) -> None:
        self._shard_state = distributed

    def supply(self, status: Status) -> Iterator[MatchBuffers]:
        """Supply what the loop requested by its status, and yield buffers that are full."""
        match status:
            case Status.NEED_STEP:
                self._resolve()
            case Status.GROW_NODES:
                self._grow_nodes()
            case Status.GROW_LISTS:
                self._slots = np.concatenate([self._slots, np.zeros_like(self._slots)], axis=1)
            case Status.GROW_SLOTS:
                self._grow_slots()
            case Status.GROW_PATH:
                self._stack = np.concatenate([self._stack, np.zeros_like(self._stack)])
                self._path = np.concatenate([self._path, np.zeros_like(self._path)])
                self._path_marks = np.concatenate([self._path_marks, np.zeros_like(self._path_marks)])
                self._indices = np.concatenate([self._indices, np.zeros_like(self._indices)])
            case Status.OUTPUT_FULL if self._regs[tecs.N_OUT]:
                yield self.flush()
            case Status.OUTPUT_FULL:  # a single match that no buffer holds
                self._out.widen()
            case other:
                raise AssertionError(other)

    def flush(self) -> MatchBuffers:
        """Return the matches since the last call."""
        matches = self._out.take(int(self._regs[tecs.N_OUT]), int(self._regs[tecs.N_VALUES]))
        self._regs[tecs.N_OUT] = self._regs[tecs.N_VALUES] = 0
        return matches

    def live(self) -> int | Int64:
        """Return the first position, or all (ascending), that matches to come may hold.

        The nodes of a GLOBAL_WINDOW lie in a ring, and are never collected.
        """
        if self.options.window == GLOBAL_WINDOW:
            return self.last_low
        self._collect()
        marks = self._nodes[: self._regs[tecs.NEXT_NODE], 0] >= 0
        column = self._layout[tecs.PLACE_COLUMN]
        if column >= 0:
            return np.unique(self._extras[: len(marks), column][marks])
        return np.unique(self._nodes[: len(marks), 0][marks].astype(np.int64) + self.base)

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        if self.options.window != GLOBAL_WINDOW:
            self._collect()  # all that is alive comes first
        n = len(self._nodes) if self.options.window == GLOBAL_WINDOW else int(self._regs[tecs.NEXT_NODE])
        return {
            **super().snapshot(),
            "nodes": self._nodes[:n],
            "extras": self._extras[:n],
            "history": self._history,
            "share": self._shard_state,
            "scalars": np.array([self.base, self.last_low, len(self._nodes)]),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        super().restore(snapshot)
        self._history, self._shard_state = snapshot["history"], snapshot["share"]
        self.base: int
        self.base, self.last_low, size = map(int, snapshot["scalars"])
        n = len(snapshot["nodes"])
        self._nodes = np.zeros((size, 4), np.int32)
        self._extras = np.zeros((size, self._extras.shape[1]), np.int64)
        self._nodes[:n], self._extras[:n] = snapshot["nodes"], snapshot["extras"]
        self._regs[tecs.LAST_NODE] = self._last_node
        self._reserve_weights()

    # ---- memory -----------------------------------------------------------------------------------------------

    def _reserve_for(self, n_states: int) -> None:
        self._sources = np.zeros((n_states + 1, ev.N_SOURCE), np.int32)
        self._roots = np.zeros(((n_states + 1) * self.table.max_moves, 3), np.int32)
        self._root_weights = np.zeros(len(self._roots) + 1 if self.options.shard else 0)

    def _reserve_weights(self) -> None:
        n = len(self._nodes) if self.options.shard else 0
        self._weights, self._stamps = np.zeros(n), np.full(n, -1, np.int64)

    def _prepare_block(self, events: RelevantEvents) -> None:
        """Prepare for a block: history for its windows, and positions that fit 32 bits."""
        first, last = int(events.positions[0]), int(events.positions[-1])
        if len(events.lows):
            ordinals = np.arange(self.n_relevant, self.n_relevant + len(events.lows))
            longest = int((ordinals - events.lows).max()) + 1  # the event that the window ends at is in it
            if longest > len(self._history):
                self._history = larger_ring(self._history, longest)
        if self.options.numbers_its_partitions or last - self.base < REBASE_POSITION:
            return
        if self.options.window == GLOBAL_WINDOW:
            self._shift_in_window(first, events.lows)
        else:
            self._shift_positions(min(self._collect(), first - self.base))
        if last - self.base > ev.MAX_NUMBER:
            raise _too_far(last, self.base)

    def _shift_in_window(self, first: int, lows: Int64) -> None:
        """Move the base to the oldest event that is still in the window, or to the block when none is."""
        oldest = first - self.base
        if self.options.in_positions:
            ids = np.arange(self._regs[tecs.FLOOR], self._regs[tecs.NEXT_NODE]) & (len(self._nodes) - 1)
            numbers = self._nodes[ids, 0].astype(np.int64)
            oldest = int(numbers[numbers >= max(oldest - self.options.width, 0)].min(initial=oldest))
        elif lows[0] < self.n_relevant:
            oldest = int(self._history[lows[0] & (len(self._history) - 1), 0])
        self._shift_positions(oldest)
        self._history[:, 0] = _lowered(self._history[:, 0], oldest)

    def _shift_positions(self, shift: int) -> None:
        self.base += shift
        starts = self._nodes[:, 0] >= 0
        self._nodes[starts, 0] = _lowered(self._nodes[starts, 0], shift)
        self._nodes[:, 3] = _lowered(self._nodes[:, 3], shift)
        maxima = self._slots[:, tecs.PAIRS + 1 :: 2]
        maxima[:] = _lowered(maxima, shift)

    def _renumber(self, events: RelevantEvents, event: int) -> None:
        """Count the events of partitions from a later origin: the first that the open event may still need."""
        part = self._parts[events.partitions[event]]
        ordinal, previous = int(events.ordinals[event]), int(part[tecs.PREVIOUS])
        part[tecs.PREVIOUS] = ordinal - 1  # events that are not relevant have moved the window on
        self._collect(shift_from=0)
        part[tecs.PREVIOUS] = previous
        if part[tecs.HEAD] < 0:
            part[tecs.ORIGIN] = ordinal
        if ordinal - part[tecs.ORIGIN] > ev.MAX_NUMBER:
            raise EventsError(
                f"at event {events.positions[event]} the query may still need one more than 2**31 events before in its "
                "partition\nhint: add WITHIN, or a shorter one"
            )

    def _collect(self, shift_from: int = 1 << 29) -> int:
        """Move the nodes that are alive together; return the smallest number among them."""
        regs = self._regs
        self.idle(len(self._parts))
        ids, n_parts = np.full(regs[tecs.NEXT_NODE], -1, np.int32), len(self._parts)
        groups, lows = plain(self._lists, self._arena, self._options), np.empty(n_parts, np.int64)
        return int(collection.collect_nodes(*groups, n_parts, shift_from, lows, ids))

    def _grow_nodes(self) -> None:
        """Make space for nodes: collect dead ones, or count ids again from a smaller one, or allocate more memory."""
        regs = self._regs
        size = len(self._nodes)
        if self.options.window == GLOBAL_WINDOW:
            if regs[tecs.NEXT_NODE] > REBASE_NODE:
                self._rebase_nodes()
                return
        else:
            self._collect()
            if 2 * regs[tecs.NEXT_NODE] <= size:
                # in a table that was just collected there is space, unless a single event needs more than all of it
                if self._collected_at == (regs[tecs.ORDINAL], size):
                    self._double_nodes(size)
                self._collected_at = (int(regs[tecs.ORDINAL]), size)
                return
        self._double_nodes(size)

    _collected_at = (-1, 0)

    def _double_nodes(self, size: int) -> None:
        try:
            nodes, extras = larger_ring(self._nodes, 2 * size), larger_ring(self._extras, 2 * size)
        except MemoryError:
            raise no_memory(size, "nodes of partial results") from None
        if 2 * size > 1 << 31:
            raise _too_many(size)
        self._nodes, self._extras = nodes, extras
        self._reserve_weights()

    def _rebase_nodes(self) -> None:
        regs = self._regs
        shift = int(regs[tecs.FLOOR]) // len(self._nodes) * len(self._nodes)  # ids keep their places in the ring
        if shift == 0:
            raise _too_many(int(regs[tecs.NEXT_NODE]))
        for column in (1, 2):
            ids = self._nodes[:, column]
            ids[ids >= 0] -= shift
        self._slots[:, tecs.PAIRS :: 2] -= shift
        merged = self._slots[:, tecs.MERGED]
        merged[merged >= 0] -= shift
        self._history[:, 1] -= shift
        regs[tecs.FLOOR] -= shift
        regs[tecs.NEXT_NODE] -= shift


def _too_many(n: int) -> EventsError:
    return EventsError(
        f"the query holds {n} partial results at once, more than can be kept\nhint: add WITHIN, or a shorter one"
    )


def _too_far(position: int, base: int) -> EventsError:
    return EventsError(
        f"at event {position} the query may still need event {base}; at most 2**31 events are kept\n"
        "hint: add WITHIN, or a shorter one"
    )


def _lowered(numbers: Int32, shift: int) -> Int32:
    """Subtract `shift`; numbers of what is dead stop at the end of the range of 32 bits."""
    return np.maximum(numbers.astype(np.int64) - shift, np.iinfo(np.int32).min).astype(np.int32)
