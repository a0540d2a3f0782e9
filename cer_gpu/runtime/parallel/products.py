"""The state of one evaluation of a parallel pattern: partial matches as nodes and unions, under keys.

papers: PCEA, section 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from cer_gpu.arrays import Bools, Int64
from cer_gpu.automaton.encoding import (
    CONSUME_NONE,
    COUNT_WINDOW,
    NODE_FIELDS,
    NODE_POSITION,
    ROW_PARTITION,
    ROW_VALUES,
    UNION_START,
)
from cer_gpu.automaton.parallel_pattern import ParallelTable
from cer_gpu.backend.arguments import plain
from cer_gpu.backend.products import matching as loops
from cer_gpu.backend.products.arena import DEEPEST, N_NODES, N_TOPS, N_UNIONS, Nodes, Unions
from cer_gpu.backend.products.collection import collect_products, rehash
from cer_gpu.backend.products.enumeration import N_AGENDA, N_CHOSEN, N_WAITING, ProductListing
from cer_gpu.backend.products.keys import Automaton, KeyTable
from cer_gpu.columnar.memory import allocate, zeros
from cer_gpu.errors import no_memory
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.joining import Joining, forgets_by_partition
from cer_gpu.runtime.protocol import Length, ResultBuffers

_INITIAL_SIZE = 1 << 15
"""Initial capacity for nodes, for unions and for keys; a power of two."""
_INITIAL_DEPTH = 1 << 8
"""Initial capacity for the listing."""
_AHEAD = 32
"""Events whose keys are looked at together."""
_HEADS = 4 * _AHEAD
"""Maximum number of heaps that are read together."""
LINE = 8
"""Numbers in a line of the processor's cache: a row is as many, or a multiple."""
MIN_REACHED = 0.75
"""Fraction of the unions in reach, from which on it does not pay to look for the others soon again."""
MAX_GROWTH = 16
"""Ratio of the unions to those that were in reach when it was looked last, up to which that holds."""
_MAX_NODES = 2**31 - 1
"""Maximum number of nodes, and of unions."""


class Products(Joining):
    """Runtime of parallelised automata (papers: PCEA, algorithm 1).

    Parameters
    ----------
    table : ParallelTable
    options : RunOptions
        With `parallel`.
    length
        Length of the window, uint64 or float64; None if there is none.
    """

    engine = "products"
    n_regs: ClassVar[int] = loops.N_REGS

    def __init__(self, table: ParallelTable, options: RunOptions, length: Length) -> None:
        tables = options.parallel
        assert tables is not None
        distinct = table.pattern.ambiguous and not (options.labelled and table.pattern.labels_identify_steps)
        # one position alone is that of all partitions
        n_forgotten = 2 if forgets_by_partition(options) else int(options.consume != CONSUME_NONE)
        super().__init__(options, length, distinct=distinct, n_forgotten=n_forgotten)
        self._table, self._tables = table, tables
        self._tops = np.zeros(N_TOPS, np.int64)
        self._deepen(_INITIAL_DEPTH)
        self._nodes = self._allocate_nodes(_INITIAL_SIZE)
        self._unions = self._allocate_unions(_INITIAL_SIZE)
        n_keys = tables.n_keys
        self._key_rows, self._slots = np.zeros(n_keys + 1, np.int64), np.zeros((_AHEAD, n_keys + 1), np.uint64)
        self._heads, self._inner = np.zeros(_HEADS, np.int64), np.zeros(_HEADS, np.int64)
        self._counts, self._used = (np.zeros(len(tables.n_values), np.int64) for _ in range(2))
        self._rows, self._bases = self._allocate_rows([_INITIAL_SIZE] * len(tables.n_values))
        self._n_symbols = 0
        self._n_reached = 0  # unions in reach when it was looked last, if these were most; else 0
        self._arrays: Automaton

    @property
    def n_bytes(self) -> int:
        """Bytes of the partial matches, the look-up table and the listing."""
        arrays = (self._nodes.records, self._unions.links, *self._listing)
        n_own: int = sum(array.nbytes for array in arrays)
        return super().n_bytes + n_own

    @property
    def live_counts(self) -> dict[str, int]:
        """Nodes, unions and keys in reach of the last event."""
        self._drop_unreachable(self._last_clocks[0])
        nodes, unions = self._tops[N_NODES], self._tops[N_UNIONS]
        return {"nodes": int(nodes), "unions": int(unions), "keys": int(self._in_use.sum())}

    # ---- events -------------------------------------------------------------------------------------------

    def feed(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Process relevant events and yield full buffers, in order."""
        self._regs[loops.AHEAD] = 0
        return super().feed(events)

    @property
    def _loop_arguments(self) -> tuple[tuple[Any, ...], ...]:
        return self._automaton, self._nodes, self._unions, self._keys, self._listing

    def _run_loop(self, *arguments: Any) -> int:
        status: int = loops.update_events(*arguments)
        return status

    @property
    def _automaton(self) -> Automaton:
        if self._n_symbols != len(self._table.fired):
            self._n_symbols = len(self._table.fired)
            self._arrays = self._tables.automaton(self._table)
        return self._arrays

    @property
    def _keys(self) -> KeyTable:
        latest = self._rows.view(self._length.dtype)
        scratch = self._key_rows, self._slots, self._heads, self._inner
        return KeyTable(self._rows, latest, self._tables.n_lists, self._bases, self._counts, *scratch, self._forgotten)

    def live(self) -> Int64:
        """Return the positions that matches to come may hold, ascending."""
        self._drop_unreachable(self._last_clocks[0])
        column = self._nodes.place if self.options.placed else NODE_POSITION
        positions = self._nodes.records[: self._tops[N_NODES], column]
        return np.ascontiguousarray(positions[np.diff(positions, prepend=-1) > 0])  # nodes are in event order

    # ---- partitions -----------------------------------------------------------------------------------------

    def idle(self, n_partitions: int) -> Bools:
        """Return which of the first partitions hold nothing."""
        self._drop_unreachable(self._last_clocks[0])
        idle = np.ones(n_partitions, np.bool_)
        idle[self._rows[self._in_use, ROW_PARTITION] - 1] = False
        return idle

    @property
    def _in_use(self) -> Bools:
        """True for the rows with a list that is not empty, shape (slots,)."""
        first = ROW_VALUES + self._max_values
        lists = self._rows[:, first : first + self._tables.n_lists]
        used: Bools = (self._rows[:, ROW_PARTITION] > 0) & (lists >= 0).any(axis=1)
        return used

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the partitions outside `mask` and renumber the others in order."""
        numbers = np.cumsum(mask) - 1
        if self._nodes.partition >= 0:
            partitions = self._nodes.records[: self._tops[N_NODES], self._nodes.partition]
            partitions[:] = numbers[partitions]
        self._renumber_partitions(mask)
        self._rehash(np.diff(self._bases).tolist(), numbers.astype(np.int64))

    # ---- strings ----------------------------------------------------------------------------------------------

    def strings_in(self, columns: list[int]) -> Int64:
        """Return the ids of the buffered strings of some columns of `RelevantEvents.attributes`."""
        self._drop_unreachable(self._last_clocks[0])
        used = self._in_use
        ids = [self._rows[begin:end, value][used[begin:end]] for begin, end, value in self._string_values(columns)]
        return np.concatenate([np.empty(0, np.int64), *ids])

    def renumber_strings(self, columns: list[int], renumbered: Int64) -> None:
        """Replace the ids of the buffered strings of some columns, given the new id for each old one."""
        used = self._in_use
        for begin, end, value in self._string_values(columns):
            ids = self._rows[begin:end, value]
            ids[used[begin:end]] = renumbered[ids[used[begin:end]]]
        self._rehash(np.diff(self._bases).tolist())

    def _string_values(self, columns: list[int]) -> Iterator[tuple[int, int, int]]:
        """Yield the columns of the look-up table with values of some columns, each with the rows of its table."""
        for table, value in self._tables.values_of(columns):
            yield int(self._bases[table]), int(self._bases[table + 1]), ROW_VALUES + value

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        self._drop_unreachable(self._last_clocks[0])
        n_nodes, n_unions = int(self._tops[N_NODES]), int(self._tops[N_UNIONS])
        used = self._in_use
        return {
            **super().snapshot(),
            "records": self._nodes.records[:n_nodes],
            "links": self._unions.links[:n_unions],
            "rows": self._rows[used],
            "n_rows": self._used,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        n_nodes, n_unions = len(snapshot["records"]), len(snapshot["links"])
        self._tops[:] = n_nodes, n_unions
        self._nodes = self._allocate_nodes(_power(n_nodes))
        self._nodes.records[:n_nodes] = snapshot["records"]
        self._unions = self._allocate_unions(_power(n_unions))
        self._unions.links[:n_unions] = snapshot["links"]
        super().restore(snapshot)
        n_rows = snapshot["n_rows"].tolist()
        self._rows = snapshot["rows"]
        self._bases = np.cumsum([0, *n_rows])
        self._rehash([4 * n for n in n_rows])

    # ---- memory -----------------------------------------------------------------------------------------------

    @property
    def _max_values(self) -> int:
        """Maximum number of values in a row of the look-up table."""
        return max(self._tables.n_values)

    def _allocate_nodes(self, size: int) -> Nodes:
        options = self.options
        numbered = (self._table.has_gaps and options.partitioned) or options.window == COUNT_WINDOW
        several = options.partitioned and options.window == COUNT_WINDOW
        wanted = options.placed, numbered, options.timed, several
        place, ordinal, time, partition = (NODE_FIELDS + sum(wanted[:i]) if wanted[i] else -1 for i in range(4))
        first_factor = NODE_FIELDS + sum(wanted)
        size = max(size, 2 * self._tables.max_fired)
        records = allocate((size, first_factor + self._tables.max_sources), np.int64)
        return Nodes(self._tops, records, place, ordinal, time, partition, first_factor)

    def _allocate_unions(self, size: int) -> Unions:
        size = max(size, 2 * DEEPEST * self._tables.max_feeds)
        links = allocate((size, 8), np.int32)
        return Unions(links, links.view(self._length.dtype), links.view(np.int64), np.zeros(DEEPEST, np.int32))

    def _allocate_rows(self, sizes: list[int]) -> tuple[Int64, Int64]:
        """Return the rows of the look-up table, and the first of each table."""
        sizes = [_power(max(size, 4 * self._tables.n_keys)) for size in sizes]
        width = ROW_VALUES + self._max_values + 2 * self._tables.n_lists
        rows = zeros((sum(sizes), -(-width // LINE) * LINE), np.int64)
        return rows, np.cumsum([0, *sizes])

    def _deepen(self, size: int, n_rows: int = 0) -> None:
        """Make space for a longer listing, and for choosing among `n_rows` rows; the listing under way stays."""
        n_fired = self._tables.max_fired + 1
        listing = ProductListing(
            np.zeros((size, N_WAITING), np.int64),
            np.zeros((size, N_AGENDA), np.int64),
            np.zeros((size, N_CHOSEN), np.int64),
            np.zeros((size, N_CHOSEN), np.int64),
            np.zeros((size, 3), np.int64),
            np.zeros((n_fired, 3), np.int64),
            np.zeros(n_fired, self._length.dtype),
            np.zeros(max(4 * n_rows, size), np.int64),
        )
        for old, new in zip(getattr(self, "_listing", ())[:-1], listing, strict=False):
            new[: len(old)] = old
        self._listing = listing

    def _lengthen_buffers(self, n_rows: int) -> None:
        self._deepen(2 * len(self._listing.waiting), n_rows)

    def _drop_unreachable(self, clock: Any) -> None:
        groups = plain(self._automaton, self._nodes, self._unions, self._keys)
        moved = (np.empty(n + 1, np.int32) for n in self._tops)
        collect_products(*groups, self._clocks_at(clock), self._length, *moved, self._used)

    def _reserve_memory(self, clock: Any) -> None:
        """Drop what is out of reach for an event of this clock; take more memory where less than half is free."""
        if self._all_in_reach(clock):
            self._used[:] = self._counts
        else:
            before = int(self._tops[N_UNIONS])
            self._drop_unreachable(clock)
            n = int(self._tops[N_UNIONS])
            self._n_reached = n if n >= MIN_REACHED * before else 0
        tables = self._tables
        n_nodes, n_unions = int(self._tops[N_NODES]), int(self._tops[N_UNIONS])
        try:
            size = self._larger(len(self._nodes.records), n_nodes, tables.max_fired)
            if size > len(self._nodes.records):
                old, self._nodes = self._nodes, self._allocate_nodes(size)
                self._nodes.records[:n_nodes] = old.records[:n_nodes]
            size = self._larger(len(self._unions.links), n_unions, DEEPEST * tables.max_feeds)
            if size > len(self._unions.links):
                old_unions, self._unions = self._unions, self._allocate_unions(size)
                self._unions.links[:n_unions] = old_unions.links[:n_unions]
            sizes = np.diff(self._bases)
            if (2 * (self._counts + tables.n_keys) > sizes).any():
                self._rehash(np.where(3 * (self._used + tables.n_keys) > sizes, 2 * sizes, sizes).tolist())
        except MemoryError:
            raise no_memory(n_nodes, "partial matches") from None

    def _all_in_reach(self, clock: Any) -> bool:
        """Return True if hardly anything can be dropped: little was before, and old unions are still in the window."""
        n = int(self._tops[N_UNIONS])
        if not 0 < n <= MAX_GROWTH * self._n_reached or self.options.window == COUNT_WINDOW:
            return False
        return bool(clock - self._unions.starts[n // 8, UNION_START] <= self._length)

    def _larger(self, size: int, n: int, added: int) -> int:
        """Return a size that leaves three quarters free besides `n`, and space for what an event adds."""
        larger = size
        while 4 * n > larger or n + added > larger:
            larger *= 2
        if larger > _MAX_NODES:
            raise MemoryError
        return larger

    def _rehash(self, sizes: list[int], renumbered: Int64 | None = None) -> None:
        """Build the look-up table anew, without rows whose lists are empty."""
        rows, bases = self._allocate_rows(sizes)
        numbers = np.empty(0, np.int64) if renumbered is None else renumbered
        tables = self._tables
        widths = np.array(tables.n_values), self._max_values, tables.n_lists
        rehash(self._rows, self._bases, *widths, numbers, rows, bases, self._counts)
        self._regs[loops.AHEAD] = 0  # the slots of the next events are others
        self._rows, self._bases = rows, bases


def _power(n: int) -> int:
    """Return the least power of two that is not less than a number."""
    return 1 << max(n - 1, 1).bit_length()
