"""Runtimes of strategies that compare, under WITHIN: the choice is made among the matches within the window.

The loops are those of `cer_gpu.backend.window_choice`; the windows are evaluated by an `AutomatonRun` or a `Counter`
without a window, which is set back for each.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from cer_gpu.arrays import Bools, Int64
from cer_gpu.automaton.encoding import CONSUME_NONE, COUNT_WINDOW, GLOBAL_WINDOW, NO_WINDOW
from cer_gpu.automaton.latest_starts import WindowTable
from cer_gpu.backend import window_choice as loops
from cer_gpu.backend.arguments import plain
from cer_gpu.backend.status import Status
from cer_gpu.columnar.memory import Scratch
from cer_gpu.errors import no_memory
from cer_gpu.runtime.counter import Counter
from cer_gpu.runtime.counts import too_many_at
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.protocol import Length, ResultBuffers, Runtime
from cer_gpu.runtime.run import AutomatonRun
from cer_gpu.stages import LISTING

_INITIAL_SIZE = 1 << 12
"""Initial capacity for the events of the windows."""


_NO_HISTORY, _NO_SOURCES = np.zeros((0, 2), np.int32), np.zeros((0, 0), np.int32)


class WindowChoice(Runtime):
    """The base of both runtimes: the events of the windows, and the ends that a window holds something of.

    Parameters
    ----------
    table
    options
        With a window.
    length
        Length of the window; it comes as `RelevantEvents.lows`, or as the width in `options`.
    """

    reads_chain = False
    lists_by_itself = True
    keeps_partitions = True
    _inner_type: ClassVar[type[AutomatonRun] | type[Counter]]
    """Class of the runtime of one window."""

    def __init__(self, table: WindowTable, options: RunOptions, length: Length = None) -> None:
        self.options = options
        self._inner: AutomatonRun | Counter = self._inner_type(table, _alone(options))
        self._table = table
        self._options = options.as_group
        self._regs = np.zeros(loops.N_REGS, np.int64)
        self._regs[loops.OPENED] = self._regs[loops.READ] = loops.NO_EVENT
        self._parts = np.zeros((0, loops.STARTS + table.latest.n_columns), np.int64)
        self._log = np.zeros((_INITIAL_SIZE, loops.N_LOG), np.int64)
        self._taken = np.zeros(0, np.int64)
        self._ends = Scratch(np.int64, loops.N_END)
        self._low = 0  # first number in the last window
        self._next = 0  # position after the last relevant event
        self._reserve_replay()
        self.reserve_partitions(1)

    @abstractmethod
    def _evaluate(self, ends: Int64, n_ends: int) -> int:
        """Call the loop that evaluates windows, and return its status."""

    @property
    def needs_lows(self) -> bool:
        """True where one window ends for all partitions at once, and is measured by clocks."""
        return self.options.window == GLOBAL_WINDOW and not self.options.in_positions

    @property
    def numbers_events(self) -> bool:
        """True where a window counts the events of a partition."""
        return self.options.window == COUNT_WINDOW

    @property
    def n_relevant(self) -> int:
        """The ordinal of the next relevant event; only where `needs_lows`."""
        return int(self._regs[loops.ORDINAL])

    @property
    def n_bytes(self) -> int:
        """Bytes of the events of the windows, and of the evaluation of one."""
        return super().n_bytes + self._inner.n_bytes

    @property
    def _state(self) -> loops.WindowState:
        return loops.WindowState(self._regs, self._parts, self._log, self._taken)

    def feed(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Process relevant events and yield full buffers of what is chosen, in the order of the ends."""
        n = len(events.symbols)
        ends = self._ends.empty(n)
        if not n:
            return
        latest = self._table.latest_starts()
        if len(self._taken) < len(latest.moves):
            self._taken = np.zeros(2 * len(latest.moves), np.int64)
        moves = latest.fresh, latest.begins, latest.moves, bool(self._table.has_gaps)
        begin = 0
        while begin < n:
            if self._n_logged == len(self._log):
                self._grow_log(events, begin)
            groups = plain(events.as_group, self._options)
            begin, n_ends = loops.find_ends(*groups, *moves, tuple(self._state), begin, ends)
            self._note_low(events, begin - 1)
            self._next = int(events.positions[begin - 1]) + 1
            yield from self.stages.each(LISTING, self._choose(ends, n_ends))

    def _choose(self, ends: Int64, n_ends: int) -> Iterator[ResultBuffers]:
        """Evaluate the windows of the first ends, and yield full buffers."""
        self._regs[loops.END] = 0
        while n_ends:
            match Status(self._evaluate(ends, n_ends)):
                case Status.DONE:
                    break
                case Status.TOO_MANY:
                    this = ends[self._regs[loops.END], loops.END_ID] - self._regs[loops.FIRST_ID]
                    raise too_many_at(int(self._log[this, loops.LOG_PLACE]))
                case status:
                    yield from self._inner.supply(status)

    def flush(self) -> ResultBuffers:
        """Return the results since the last full buffer."""
        return self._inner.flush()

    def live(self) -> int | Int64:
        """Return the first position, or all positions (ascending), that matches to come may hold."""
        self._drop_logged()
        rows = self._log[: self._n_logged]
        if self.options.window == COUNT_WINDOW:
            return np.unique(rows[:, loops.LOG_PLACE])
        if self.options.in_positions:
            return self._low
        return int(rows[0, loops.LOG_POSITION]) if len(rows) else self._next

    # ---- partitions -----------------------------------------------------------------------------------------

    def idle(self, n_partitions: int) -> Bools:
        """Return which of the first partitions hold nothing."""
        return ~self._hold(self._parts[:n_partitions])

    def _hold(self, parts: Int64) -> Bools:
        """Return which of some partitions have a run that may continue."""
        counted = self.options.window == COUNT_WINDOW
        low: Any = parts[:, loops.LAST_ORDINAL] + 1 - self.options.width if counted else self._low
        live: Bools = parts[:, loops.NEWEST] >= np.maximum(low, 0)
        live &= parts[:, loops.SEEN] == self._regs[loops.N_CONSUMED]
        return live

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the partitions outside `mask` and renumber the others in order."""
        renumbered = np.where(mask, np.cumsum(mask) - 1, -1)
        of_events = self._log[: self._n_logged, loops.LOG_PARTITION]
        of_events[:] = np.where(of_events < 0, -1, renumbered[of_events])
        self._parts = self._parts[: len(mask)][mask]
        self.reserve_partitions(max(1, len(self._parts)))

    def reserve_partitions(self, n: int) -> None:
        """Reserve memory for `n` partitions."""
        old, width = self._parts.shape
        if n > old:
            added = np.full((max(n, 2 * old) - old, width), -1, np.int64)
            added[:, loops.LAST_ORDINAL] = -2
            added[:, loops.SEEN] = self._regs[loops.N_CONSUMED]
            self._parts = np.concatenate([self._parts, added])

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues; windows are reevaluated then."""
        return {
            "regs": self._regs,
            "parts": self._parts,
            "log": self._log[: self._n_logged],
            "scalars": np.array([self._low, self._next, len(self._log)]),
            "dealt": self._inner.distributed,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self._regs, self._parts = snapshot["regs"], snapshot["parts"]
        self._regs[loops.OPENED] = self._regs[loops.READ] = loops.NO_EVENT
        self._low, self._next, size = map(int, snapshot["scalars"])
        self._log = np.zeros((size, loops.N_LOG), np.int64)
        self._log[: len(snapshot["log"])] = snapshot["log"]
        self._reserve_replay()
        self._inner.distributed = snapshot["dealt"]

    # ---- memory -----------------------------------------------------------------------------------------------

    @property
    def _n_logged(self) -> int:
        return int(self._regs[loops.NEXT_ID] - self._regs[loops.FIRST_ID])

    def _note_low(self, events: RelevantEvents, last: int) -> None:
        if self.options.in_positions:
            self._low = int(events.positions[last]) - self.options.width
        elif self.options.window == GLOBAL_WINDOW:
            self._low = int(events.lows[last])

    def _drop_logged(self) -> int:
        """Drop the events that have left their windows; return how many stay."""
        if self.options.window == COUNT_WINDOW:
            return self._keep_windows()
        n = self._n_logged
        n_dead = int(np.searchsorted(self._log[:n, loops.LOG_NUMBER], self._low))
        if n_dead:
            self._log[: n - n_dead] = self._log[n_dead:n]
        self._regs[loops.FIRST_ID] += n_dead
        return n - n_dead

    def _keep_windows(self) -> int:
        """Keep the events that are in the window of the next event of their partition; return how many stay.

        Ids are renumbered, and no evaluation of a window continues.
        """
        regs, parts, log = self._regs, self._parts, self._log[: self._n_logged]
        first, owners = int(regs[loops.FIRST_ID]), log[:, loops.LOG_PARTITION]
        lows = parts[:, loops.LAST_ORDINAL] + 1 - self.options.width
        mask = (owners >= 0) & (log[:, loops.LOG_NUMBER] >= lows[owners]) & self._hold(parts)[owners]
        new_ids = np.append(np.where(mask, np.cumsum(mask) - 1, loops.NO_EVENT), loops.NO_EVENT)
        log = log[mask]
        self._log[: len(log)] = log
        for ids in (self._log[: len(log), loops.LOG_BEFORE], parts[:, loops.LAST_ID]):
            ids[:] = new_ids[np.where(ids >= first, ids - first, -1)]
        regs[loops.FIRST_ID], regs[loops.NEXT_ID] = 0, len(log)
        regs[loops.OPENED] = loops.NO_EVENT
        return len(log)

    def _grow_log(self, events: RelevantEvents, event: int) -> None:
        """Drop what has left the windows before an event; take more memory if less than half is free."""
        self._note_low(events, event)
        n, size = self._drop_logged(), len(self._log)
        if 2 * n <= size:
            return
        try:
            log = np.zeros((2 * size, loops.N_LOG), np.int64)
            log[:n] = self._log[:n]
            self._log = log
            self._reserve_replay()
        except MemoryError:
            raise no_memory(n, "events in a window", "a shorter WITHIN") from None

    def _reserve_replay(self) -> None:
        """Make space for a window of all events in the log."""
        n = len(self._log)
        positions, places, ordinals, times = (np.zeros(n, np.int64) for _ in range(4))
        self._replay = loops.Replay(
            np.zeros(n, np.int32), positions, places, ordinals, times, np.zeros(0, np.int64), np.zeros(0, np.int32)
        )


def _alone(options: RunOptions) -> RunOptions:
    """Return the options for the evaluation of one window by itself."""
    return replace(options, window=NO_WINDOW, width=-1, partitioned=False, consume=CONSUME_NONE, placed=True)


class WindowLister(WindowChoice):
    """Runtime that lists what a strategy chooses within the window."""

    engine = "automaton"
    _inner_type = AutomatonRun
    _inner: AutomatonRun

    def _evaluate(self, ends: Int64, n_ends: int) -> int:
        state, groups = plain(self._state, self._replay), plain(*self._inner.working_groups)
        limit, counting = self.options.limit, ((), (), (), 0)
        arrays = self._inner.working_arrays
        status: int = loops.evaluate_windows(*state, ends, n_ends, limit, *groups, *arrays, *counting)
        return status


class WindowCounter(WindowChoice):
    """Runtime that counts what a strategy chooses within the window."""

    engine = "counter"
    _inner_type = Counter
    _inner: Counter

    def _evaluate(self, ends: Int64, n_ends: int) -> int:
        state, (tables, lists, *groups) = plain(self._state, self._replay), plain(*self._inner.working_groups)
        limit, listing = self.options.limit, ((), (), (), (), _NO_HISTORY, _NO_SOURCES)
        status: int = loops.evaluate_windows(
            *state, ends, n_ends, limit, (), tables, lists, *listing, *groups, self._table.n_states
        )
        return status
