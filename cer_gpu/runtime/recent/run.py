"""The state of one evaluation of SELECT RECENT: a row of pending partial matches for each key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from cer_gpu.arrays import Array, Bools, Int64
from cer_gpu.automaton.encoding import CONSUME_NONE
from cer_gpu.automaton.keyed_recent import RecentTable
from cer_gpu.backend.arguments import plain
from cer_gpu.backend.joins.filters import StringTables, check_sizes, with_strings
from cer_gpu.backend.recent import moving as loops
from cer_gpu.backend.recent.ended import ENDED_NEXT, ENDED_SLOT, LIST_END, Ended, free_all
from cer_gpu.backend.recent.pending import ROW_PARTITION, ROW_VALUES, SLOT_LAST, Moves, Rows
from cer_gpu.columnar.memory import GrowableArray, zeros
from cer_gpu.errors import no_memory
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.joining import Joining, forgets_by_partition
from cer_gpu.runtime.protocol import Length, ResultBuffers

_INITIAL_SIZE = 1 << 10
"""Initial rows of keys; a power of two."""
_INITIAL_WORDS = 1 << 20
"""Most words of them all, unless there are `_MIN_SIZE` of them."""
_MIN_SIZE = 1 << 3
_AHEAD = 32
"""Events whose keys are looked at together; a power of two."""
_MAX_ROWS = 2**31
"""Maximum number of rows."""


class RecentRun(Joining):
    """Runtime of SELECT RECENT.

    Parameters
    ----------
    table : RecentTable
    options : RunOptions
        With `recent`.
    length
        Length of the window, uint64 or float64; None if there is none.
    """

    engine = "slots"
    n_regs: ClassVar[int] = loops.N_REGS

    def __init__(self, table: RecentTable, options: RunOptions, length: Length) -> None:
        tables = options.recent
        assert tables is not None
        # one position alone is that of all partitions
        n_forgotten = 2 if forgets_by_partition(options) else int(options.consume != CONSUME_NONE)
        super().__init__(options, length, distinct=False, n_forgotten=n_forgotten)
        self._table, self._tables = table, tables
        self._layout = tables.layout(timed=options.timed)
        self._keyed = tables.n_values > 0
        n_keys = len(tables.keys)
        self._counts, self._key_rows = np.zeros(1, np.int64), np.zeros(n_keys, np.int64)
        self._hashes, self._candidates = np.zeros((_AHEAD, n_keys), np.uint64), np.zeros((_AHEAD, n_keys), np.int64)
        self._bars = np.full((self._n_partitions, tables.n_bars) if tables.bars else (0, 0), -1, np.int64)
        self._takes = self._layout.ended >= 0
        n_rows = min(_INITIAL_SIZE, max(_MIN_SIZE, _INITIAL_WORDS >> int(self._layout.slots[-1]).bit_length()))
        self._memory = self._allocate(n_rows if self._keyed else self._n_partitions)
        self._index = np.zeros(2 * n_rows if self._keyed else 1, np.uint64)
        from_end = tables.lasting is not None
        self._waits = np.array([tables.lasting if from_end else self._length], self._length.dtype), int(from_end)
        self._free = np.full(1, LIST_END, np.int64)
        self._ended_memory = GrowableArray(_INITIAL_SIZE if self._takes else 0, ENDED_SLOT + int(self._layout.ends[-1]))
        self._free_from(0)
        self._empty(0)
        self._tests = tables.filters(self._string_tables)
        self._n_symbols = 0
        self._moves: Moves

    @property
    def live_counts(self) -> dict[str, int]:
        """Numbers of keys with partial matches that can advance, and of these partial matches."""
        live = self._live_rows()
        pending = self._in_use[live][:, self._layout.slots[:-1] + SLOT_LAST] >= 0
        waiting = {"matches that may be retracted": len(self._waiting())} if self._takes else {}
        return {"keys": int(live.sum()), "partial matches": int(pending.sum()), **waiting}

    # ---- events -------------------------------------------------------------------------------------------------

    @property
    def _n_ends(self) -> int:
        """Most matches that one event ends."""
        return 1

    def feed(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Process relevant events and yield full buffers, in order."""
        self._regs[loops.KEYS_AHEAD] = 0
        return super().feed(events)

    @property
    def _loop_arguments(self) -> tuple[tuple[Any, ...], ...]:
        if self._n_symbols != self._table.n_symbols:
            self._n_symbols = self._table.n_symbols
            self._moves = self._tables.moves(self._table)
        return self._moves, self._layout, self._rows, self._ended, with_strings(self._tests, self._string_tables)

    @property
    def _rows(self) -> Rows:
        words = self._words
        keys = self._counts, self._index, self._key_rows, self._hashes, self._candidates
        return Rows(words, words.view(self._length.dtype), *keys, self._bars, self._forgotten)

    @property
    def _ended(self) -> Ended:
        words = self._ended_memory.array
        return Ended(words, words.view(self._length.dtype), self._free, *self._waits, self._table.taker)

    @property
    def _words(self) -> Int64:
        return self._memory.array

    @property
    def _in_use(self) -> Int64:
        """The rows in use: where keys are not looked up, all."""
        return self._words[: self._counts[0]] if self._keyed else self._words

    @property
    def _string_tables(self) -> StringTables:
        assert self.options.strings is not None
        return self.options.strings.tables(ranked=self._tables.bound.ranked)

    def _run_loop(self, *arguments: Any) -> int:
        status: int = loops.move_events(*arguments)
        check_sizes(self._tests)
        return status

    def _lengthen_buffers(self, n_rows: int) -> None:
        raise AssertionError("an event ends one match at most")

    def live(self) -> Int64:
        """Return the positions that matches to come may hold, ascending."""
        positions = [self._words[rows, slot + word] for rows, slot, step in self._pending()
                for word in self._layout.positions[: step + 1]]  # fmt: skip
        return np.unique(np.concatenate([np.empty(0, np.int64), *positions]))

    def _pending(self) -> Iterator[tuple[Int64, int, int]]:
        """Yield, for each step but the last, the rows with a partial match that reached it, its slot and the step."""
        live = np.flatnonzero(self._live_rows())
        for step, slot in enumerate(self._layout.slots[:-1].tolist()):
            yield live[self._words[live, slot + SLOT_LAST] >= 0], slot, step

    # ---- partitions ---------------------------------------------------------------------------------------------

    def idle(self, n_partitions: int) -> Bools:
        """Return which of the first partitions hold nothing."""
        live = self._live_rows()
        if not self._keyed:
            idle: Bools = ~live[:n_partitions]
            return idle
        idle = np.ones(n_partitions, np.bool_)
        idle[self._in_use[live, ROW_PARTITION]] = False
        return idle

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the partitions outside `mask` and renumber the others in order."""
        if self._keyed:
            self._select_rows(self._live_rows(), np.where(mask, np.cumsum(mask) - 1, -1))
        else:
            self._move_rows(self._words, mask)
            self._empty(int(mask.sum()))
        if len(self._bars):
            self._move_rows(self._bars, mask)
            self._bars[int(mask.sum()) :] = -1
        self._renumber_partitions(mask)

    @staticmethod
    def _move_rows(rows: Int64, mask: Bools) -> None:
        rows[: int(mask.sum())] = rows[: len(mask)][mask]

    def reserve_partitions(self, n: int) -> None:
        """Reserve memory for `n` partitions."""
        super().reserve_partitions(n)
        if len(self._bars) and len(self._bars) < self._n_partitions:
            bars = np.full((self._n_partitions, self._bars.shape[1]), -1, np.int64)
            bars[: len(self._bars)] = self._bars
            self._bars = bars
        if not self._keyed and len(self._words) < self._n_partitions:
            n_old = len(self._words)
            try:
                self._memory.grow(self._n_partitions)
            except MemoryError:
                raise no_memory(n_old, "partitions") from None
            self._empty(n_old)

    # ---- strings --------------------------------------------------------------------------------------------------

    def strings_in(self, columns: list[int]) -> Int64:
        """Return the ids of the buffered strings of some columns of `RelevantEvents.attributes`."""
        self._live_rows()
        ids = [words[rows, word] for words, rows, word in self._strings(columns)]
        return np.concatenate([np.empty(0, np.int64), *ids])

    def renumber_strings(self, columns: list[int], renumbered: Int64) -> None:
        """Replace the ids of the buffered strings of some columns, given the new id for each old one."""
        if self._keyed:  # the keys of rows that hold nothing would not be exchanged
            self._select_rows(self._live_rows())
        for words, rows, word in list(self._strings(columns)):
            words[rows, word] = renumbered[words[rows, word]]
        if self._keyed:
            self._enter()

    def _strings(self, columns: list[int]) -> Iterator[tuple[Int64, Int64, int]]:
        """Yield the words that hold values of some columns, each with its memory, and the rows there that have one."""
        live = np.flatnonzero(self._live_rows())
        for value in range(self._tables.n_values):
            if any(key[value] in columns for key in self._tables.keys):
                yield self._words, live, ROW_VALUES + value
        slots = [(self._words, *each) for each in self._pending()]
        slots.append((self._ended_memory.array, self._waiting(), ENDED_SLOT, len(self._layout.slots) - 1))
        for words, rows, slot, step in slots:
            for of in self._stored_in(step):
                stored = self._layout.stored[of]
                for column in columns:
                    if stored[column] >= 0:
                        valid = words[rows, slot + stored[0]] >> (column - 1) & 1 == 1
                        yield words, rows[valid], slot + int(stored[column])

    def _stored_in(self, step: int) -> range:
        """Return the events that the slot of a step stores, in the numbers of `SlotLayout.stored`."""
        return range(step + 1)

    def _waiting(self) -> Int64:
        """Return the numbers of what ended and may be taken back."""
        return np.flatnonzero(self._ended_memory.array[:, ENDED_SLOT + SLOT_LAST] >= 0)

    # ---- snapshots ----------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        live = self._live_rows()
        words = self._in_use[live] if self._keyed else self._words
        waiting, ended = self._waiting(), self._ended_memory.array
        if self._takes:
            numbers = np.full(len(ended) + 1, LIST_END, np.int64)  # the last is LIST_END, too
            numbers[waiting] = np.arange(len(waiting))
            ended, words = ended[waiting], words.copy()
            ended[:, ENDED_NEXT] = numbers[ended[:, ENDED_NEXT]]
            words[:, self._layout.ended] = numbers[words[:, self._layout.ended]]
        return {**super().snapshot(), "words": words, "bars": self._bars, "ended": ended}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        super().restore(snapshot)
        self._bars = snapshot["bars"]
        words = snapshot["words"]
        self._memory = self._allocate(max(_INITIAL_SIZE, 2 * len(words)) if self._keyed else len(words))
        self._words[: len(words)] = words
        if self._keyed:
            self._counts[0] = len(words)
            self._enter()
        if self._takes:
            ended = snapshot["ended"]
            self._ended_memory = GrowableArray(max(_INITIAL_SIZE, 2 * len(ended)), ended.shape[1])
            self._ended_memory.array[: len(ended)] = ended
            self._free[0] = LIST_END
            self._free_from(len(ended))

    # ---- memory ---------------------------------------------------------------------------------------------------

    def _allocate(self, n_rows: int) -> GrowableArray:
        return GrowableArray(n_rows, max(1, int(self._layout.slots[-1]) + self._takes))

    def _free_from(self, begin: int) -> None:
        """Let all memory for what ended be free from one on."""
        if begin < len(self._ended_memory.array):
            free_all(*plain(self._ended), begin)

    def _empty(self, begin: int) -> None:
        """Let nothing be pending in the rows of partitions from one on."""
        if not self._keyed:
            loops.clear_rows(*plain(self._layout, self._rows), begin)

    def _drop_unreachable(self, clock: Any) -> None:
        self._live_rows(clock)

    def _live_rows(self, clock: Any = None) -> Bools:
        """Drop what can no longer advance at an event of a clock, or the last one; return which rows hold anything."""
        live = np.empty(len(self._in_use), np.bool_)
        clocks: Array = self._last_clocks if clock is None else self._clocks_at(clock)
        self._drop_pending(clocks, live)
        return live

    def _drop_pending(self, clocks: Array, live: Bools) -> None:
        groups = plain(self._layout, self._rows, self._ended)
        loops.drop_pending(*groups, clocks, self._length, int(self._keyed), live)

    def _select_rows(self, mask: Bools, renumbered: Int64 | None = None) -> None:
        """Drop the rows outside `mask`; partitions may have new numbers."""
        numbers = np.empty(0, np.int64) if renumbered is None else renumbered
        self._counts[0] = loops.keep_rows(self._words, mask, numbers)
        self._enter()

    def _enter(self) -> None:
        """Make the index anew."""
        n_slots = 1 << (2 * len(self._words) - 1).bit_length()
        if n_slots > len(self._index):
            self._index = zeros((n_slots,), np.uint64)
        else:
            self._index[:] = 0
        loops.index_rows(self._tables.n_values, tuple(self._rows))

    def _reserve_memory(self, clock: Any) -> None:
        """Drop the rows that hold nothing more at an event of this clock; allocate more memory if few do."""
        self._regs[loops.KEYS_AHEAD] = 0  # rows that were found ahead may be elsewhere
        live = self._live_rows(clock)
        n_ended, n_waiting = len(self._ended_memory.array), len(self._waiting()) if self._takes else 0
        if self._takes and (4 * n_waiting > 3 * n_ended or n_ended - n_waiting < self._n_ends):
            try:
                self._ended_memory.grow(2 * max(n_ended, self._n_ends))
            except MemoryError:
                raise no_memory(n_ended, "matches that may be retracted") from None
            self._free_from(n_ended)
        if not self._keyed or self._counts[0] < len(self._words):
            return
        n, size = int(live.sum()), len(self._words)
        try:
            if 4 * n > 3 * size:
                if 2 * size > _MAX_ROWS:
                    raise MemoryError
                self._memory.grow(2 * size)
                self._enter()
            else:
                self._select_rows(live)
        except MemoryError:
            raise no_memory(n, "keys with partial matches") from None
