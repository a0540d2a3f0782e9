"""The state of one evaluation of a funnel: the starts that are not handed over yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cer_gpu.arrays import Bools, Int64
from cer_gpu.automaton.encoding import COUNT_WINDOW, GLOBAL_WINDOW
from cer_gpu.automaton.keyed_recent import RecentTable
from cer_gpu.backend.arguments import plain
from cer_gpu.backend.joins.filters import StringTables, check_sizes, with_strings
from cer_gpu.backend.progress import starts as loops
from cer_gpu.backend.recent.pending import Moves, Rows
from cer_gpu.columnar.buffer_leases import leased_slots
from cer_gpu.columnar.clocks import earliest
from cer_gpu.columnar.memory import allocate
from cer_gpu.errors import no_memory
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.matches import MatchBuffers
from cer_gpu.runtime.progress.buffers import ProgressBuffers
from cer_gpu.runtime.progress.table import FunnelTable
from cer_gpu.runtime.protocol import Length, ResultBuffers, Runtime

_INITIAL_SIZE = 1 << 12
"""Initial capacity for starts, a power of two."""
_MAX_AT_ONCE = 1 << 16
"""Maximum number of rows of one buffer."""


class Funnel(Runtime):
    """Runtime that moves starts from step to step, and hands them over in the order in which they began.

    Parameters
    ----------
    table
    options
        Without a strategy, LIMIT, CONSUME BY and shards.
    length
        Length of the window, uint64 or float64; None if there is none.
    """

    engine = "funnel"
    reads_chain = False
    keeps_partitions = True

    def __init__(self, table: FunnelTable | RecentTable, options: RunOptions, length: Length) -> None:
        self.options = options
        self._table = table
        self._counts = options.window == COUNT_WINDOW
        length = np.uint64(2**64 - 1) if length is None else length
        self._clock = length.dtype
        gap = length if options.gap is None else options.gap
        self._lengths = loops.Lengths(length, gap, options.gap is not None)
        self._now = earliest(self._clock)
        self._n_steps = len(table.steps)
        self._width = loops.PLACES + self._lengths.gapped + self._n_steps * (1 + options.timed)
        self._places = slice(loops.PLACES + self._lengths.gapped, self._width, 1 + options.timed)
        self._regs = np.zeros(loops.N_REGS, np.int64)
        self._rows = np.zeros((_INITIAL_SIZE, self._width), np.int64)
        self._lists = np.zeros((0, self._n_steps - 1), np.int64)
        self._lasts = np.zeros(0, np.int64)
        self._flushed = 0  # the first id that `flush` has not returned
        self._recycler = leased_slots().recycler
        self.reserve_partitions(1)

    @property
    def numbers_events(self) -> bool:
        """True where a window counts the events of a partition."""
        return self._counts

    def feed(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Process relevant events; `take_decided` returns the starts that they decide."""
        begin, n = 0, len(events.symbols)
        while begin < n:
            begin = self._move(events, begin)
            if begin < n:
                self._grow()
        yield from ()

    def _move(self, events: RelevantEvents, begin: int) -> int:
        """Move starts by the events from `begin` on, and return the first that there is no space for."""
        assert isinstance(self._table, FunnelTable)
        args = tuple(events.as_group), events.window_clocks, tuple(self._lengths), self._table.actions
        n_read: int = loops.move_starts(*args, tuple(self._starts), begin, self._regs)
        return n_read

    def pass_clock(self, clock: Any) -> None:
        """Note that the stream has come to a clock of the window."""
        self._now = max(self._now, self._clock.type(clock))

    @property
    def next_deadline(self) -> int | None:
        """Least clock of an event beyond the window of the first pending start, or None if none is pending."""
        base = int(self._regs[loops.BASE])
        if base == self._regs[loops.NEXT_ID] or self.options.window != GLOBAL_WINDOW:
            return None
        row = self._starts.clocks[base & (len(self._rows) - 1)]
        window_end = int(row[loops.CLOCK]) + int(self._lengths.window) + 1
        return (
            min(window_end, int(row[loops.LAST_CLOCK]) + int(self._lengths.gap) + 1)
            if self._lengths.gapped
            else window_end
        )

    @property
    def first_pending(self) -> int | None:
        """Position of the first start that is pending, or None if none is."""
        base = int(self._regs[loops.BASE])
        if base == self._regs[loops.NEXT_ID]:
            return None
        return int(self._rows[base & (len(self._rows) - 1), self._places.start])

    def take_decided(self, *, ended: bool = False) -> ProgressBuffers | None:
        """Return the decided starts before the first undecided one, in order, or None if there are no more."""
        empty, n_pending = self._recycler.empty, int(self._regs[loops.NEXT_ID] - self._regs[loops.BASE])
        if not n_pending:
            return None
        size = 1 << (min(n_pending, _MAX_AT_ONCE) - 1).bit_length()  # memory of few sizes is used again
        n_times = size * self._n_steps if self.options.timed else 0
        buffers = loops.DecidedStarts(
            empty((size + 1,), np.int32),
            empty((size * self._n_steps,), np.int64),
            empty((n_times,), np.int64),
            empty((size,), np.int8),
            empty((size,), np.int64),
        )
        state = tuple(self._starts), self._now, tuple(self._lengths), ended
        n = loops.take_decided(*state, tuple(buffers), self._n_steps, self._regs)
        if not n:
            return None
        n_values = int(buffers.offsets[n])
        times = buffers.times[:n_values] if self.options.timed else buffers.times
        return ProgressBuffers(
            buffers.offsets[: n + 1], buffers.positions[:n_values], times, buffers.states[:n], buffers.barring[:n]
        )

    def flush(self) -> MatchBuffers:
        """Return the starts since the last call, whose keys are wanted, as matches of one event."""
        ids = np.arange(self._flushed, self._regs[loops.NEXT_ID]) if self.options.partitioned else np.empty(0, np.int64)
        self._flushed = int(self._regs[loops.NEXT_ID])
        places = self._rows[ids & (len(self._rows) - 1), self._places.start]
        times = np.empty((2, 0), np.int64)
        nothing = np.empty(0, np.int64)
        return MatchBuffers(
            np.stack([places, places]), times, np.zeros(len(ids) + 1, np.int32), nothing, np.empty(0, np.int32)
        )

    def live(self) -> Int64:
        """Return the positions that rows to come may hold, ascending."""
        rows = self._pending_rows
        info = self._rows[rows, loops.INFO]
        n_reached = info % loops.REACHED + (info // loops.REACHED % loops.STATES == loops.BARRED)
        places = self._rows[rows, self._places]
        return np.unique(places[np.arange(self._n_steps) < n_reached[:, None]])

    @property
    def live_counts(self) -> dict[str, int]:
        """Number of pending starts."""
        return {"starts": int(self._regs[loops.NEXT_ID] - self._regs[loops.BASE])}

    @property
    def _starts(self) -> loops.Starts:
        return loops.Starts(self._rows, self._rows.view(self._clock), self._lists, self._lasts)

    @property
    def _pending_rows(self) -> Int64:
        """Rows of the pending starts, from the oldest to the newest."""
        rows: Int64 = np.arange(self._regs[loops.BASE], self._regs[loops.NEXT_ID]) & (len(self._rows) - 1)
        return rows

    # ---- partitions -----------------------------------------------------------------------------------------

    def idle(self, n_partitions: int) -> Bools:
        """Return which of the first partitions hold nothing: those without pending starts."""
        idle: Bools = (self._lists[:n_partitions] < self._regs[loops.BASE]).all(axis=1)
        return idle

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the partitions outside `mask` and renumber the others in order."""
        numbers = np.where(mask, np.cumsum(mask) - 1, 0)
        rows = self._pending_rows
        info = self._rows[rows, loops.INFO]
        rest = loops.REACHED * loops.STATES
        self._rows[rows, loops.INFO] = numbers[info // rest] * rest + info % rest
        self._lists = self._lists[: len(mask)][mask]
        self._lasts = self._lasts[: len(mask)][mask] if self._counts else self._lasts
        self.reserve_partitions(max(1, len(self._lists)))

    def reserve_partitions(self, n: int) -> None:
        """Reserve memory for `n` partitions."""
        old, width = self._lists.shape
        if n > old:
            lists = np.full((max(n, 2 * old), width), -1, np.int64)
            lists[:old] = self._lists
            self._lists = lists
        if self._counts and len(self._lasts) < len(self._lists):
            # that of a partition without a start is never read
            lasts = np.zeros(len(self._lists), np.int64)
            lasts[: len(self._lasts)] = self._lasts
            self._lasts = lasts

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        return {
            "regs": self._regs,
            "rows": self._rows[self._pending_rows],
            "size": np.array([len(self._rows)]),
            "lists": self._lists,
            "lasts": self._lasts,
            "now": np.array([self._now]),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self._regs, self._lists, self._lasts = snapshot["regs"], snapshot["lists"], snapshot["lasts"]
        self._now = snapshot["now"][0]
        self._flushed = int(self._regs[loops.NEXT_ID])
        self._rows = np.zeros((int(snapshot["size"][0]), self._width), np.int64)
        self._rows[self._pending_rows] = snapshot["rows"]

    # ---- memory -----------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Reserve memory for twice as many starts."""
        size = len(self._rows)
        try:
            rows = allocate((2 * size, self._width), np.int64)
        except MemoryError as error:
            raise no_memory(size, "starts that wait for their next step") from error
        ids = np.arange(self._regs[loops.BASE], self._regs[loops.NEXT_ID])
        rows[ids & (2 * size - 1)] = self._rows[ids & (size - 1)]
        self._rows = rows


class TestedFunnel(Funnel):
    """Runtime that tests each start that waits for a step, by join predicates with the events that it has reached.

    Parameters
    ----------
    table
        The steps of SELECT RECENT, without keys.
    options
        With `recent`.
    length
    """

    keeps_strings = True

    def __init__(self, table: RecentTable, options: RunOptions, length: Length) -> None:
        tables = options.recent
        assert tables is not None
        super().__init__(table, options, length)
        self._tables, self._recent = tables, table
        self._layout = tables.layout(timed=False)
        self._slot, self._width = self._width, self._width + int(self._layout.ends[-1])
        self._rows = np.zeros((_INITIAL_SIZE, self._width), np.int64)
        self._tests = tables.filters(self._string_tables)
        self._n_symbols = 0
        self._moves: Moves

    @property
    def _string_tables(self) -> StringTables:
        assert self.options.strings is not None
        return self.options.strings.tables(ranked=self._tables.bound.ranked)

    def _move(self, events: RelevantEvents, begin: int) -> int:
        if self._n_symbols != self._recent.n_symbols:
            self._n_symbols = self._recent.n_symbols
            self._moves = self._tables.moves(self._recent)
        starts, nothing = self._starts, np.zeros((0, 0), np.int64)
        no_keys = np.zeros(1, np.int64), np.zeros(1, np.uint64), nothing[0:0].ravel(), nothing.view(np.uint64), nothing
        partials = Rows(starts.rows, starts.clocks, *no_keys, nothing, nothing.ravel())
        groups = plain(self._moves, self._layout, partials, with_strings(self._tests, self._string_tables), starts)
        args = tuple(events.as_group), events.window_clocks, events.attributes, tuple(self._lengths)
        n_read: int = loops.test_starts(*args, *groups, self._slot, self._n_steps, begin, self._regs)
        check_sizes(self._tests)
        return n_read

    def strings_in(self, columns: list[int]) -> Int64:
        """Return the ids of the buffered strings of some columns of `RelevantEvents.attributes`."""
        ids = [self._rows[rows, word] for rows, word in self._strings(columns)]
        return np.concatenate([np.empty(0, np.int64), *ids])

    def renumber_strings(self, columns: list[int], renumbered: Int64) -> None:
        """Replace the ids of the buffered strings of some columns, given the new id for each old one."""
        for rows, word in self._strings(columns):
            self._rows[rows, word] = renumbered[self._rows[rows, word]]

    def _strings(self, columns: list[int]) -> Iterator[tuple[Int64, int]]:
        """Yield the words that hold values of some columns, and the rows of the pending starts that have one."""
        pending = self._pending_rows
        n_reached = self._rows[pending, loops.INFO] % loops.REACHED
        for step, stored in enumerate(self._layout.stored):
            rows = pending[n_reached > step]
            for column in columns:
                if stored[column] >= 0:
                    valid = self._rows[rows, self._slot + stored[0]] >> (column - 1) & 1 == 1
                    yield rows[valid], self._slot + int(stored[column])
