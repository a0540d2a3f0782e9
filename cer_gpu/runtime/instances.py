"""The state of one evaluation of a pattern with join predicates: instances, indexes, and the path under way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cer_gpu.arrays import Array, Bools, Int64
from cer_gpu.automaton.atom_graph import AtomTable
from cer_gpu.automaton.encoding import CONSUME_NONE, COUNT_WINDOW, GLOBAL_WINDOW
from cer_gpu.backend.arguments import plain
from cer_gpu.backend.joins import matching as loops
from cer_gpu.backend.joins import scanning
from cer_gpu.backend.joins.filters import Filters, StringTables, check_sizes, filters_of, with_strings
from cer_gpu.backend.joins.instances import Graph, Indexes, Instances, rebuild
from cer_gpu.backend.joins.lanes import LANES
from cer_gpu.backend.joins.reading import TILE
from cer_gpu.backend.joins.scan_tables import (
    MAX_SCANNED_STEPS,
    ScannedChain,
    find_origins,
    scanned_chain,
    without_indexes,
)
from cer_gpu.backend.joins.successors import drop_without_successors
from cer_gpu.backend.joins.whole_paths import LEFT, N_PROGRESS, General
from cer_gpu.backend.joins.writing import N_ENTRY, Path
from cer_gpu.columnar.memory import allocate
from cer_gpu.errors import no_memory
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.join_tables import JoinTables
from cer_gpu.runtime.joining import Joining, demand_of, forgets_by_partition
from cer_gpu.runtime.protocol import Length, ResultBuffers

_INITIAL_SIZE = 1 << 12
"""Initial capacity for instances of each atom; a power of two."""
_INITIAL_DEPTH = 1 << 8
"""Initial capacity for the events of a path."""
PICKED = 1 << 10
"""Maximum number of starts that are listed at once."""
MIN_AHEAD = 1 << 10
"""Least events at once among which those are looked for that nothing can follow."""
MAX_SLOTS = 1 << 22
"""Maximum number of slots of the table for that search."""
PADDING = 24
"""Numbers between the columns of instances: at powers of two, all of one instance would share a set of the cache.

As many more are read, though not used, where instances are tested together; there are `LANES` or more."""
MAX_NUMBERED = 1 << 30
"""Maximum number of entries of a hash index, which has numbers of 32 bits."""
MAX_SCANNED, MAX_SCANNED_IF_FAR = 1 << 7, 1 << 11
"""Maximum number of events of a step within reach that are all compared, where an index could find them; the second one
where events that are not neighbours are compared, as an index finds those of one edge alone."""
PARTNERS = 1 << 6
"""Maximum number of events after a far edge of an end that are noted, for the events between the two."""
WORK = 1 << 23
"""Work of one call of the loop, as `cer_gpu.backend.joins.whole_paths.STEP` measures it: well below a second."""


class InstanceGraph(Joining):
    """Runtime that stores events as instances of the atoms of a pattern, and finds matches backwards from ends.

    Parameters
    ----------
    table : AtomTable
    options : RunOptions
        With `joins`.
    length
        Length of the window, uint64 or float64; None if there is none.
    """

    engine = "instances"
    reserve: ClassVar[int] = 2
    """Capacity of the stacks for each instance that is within reach when there is no space for the next one."""
    least_size: ClassVar[int] = 0
    """Capacity up to which they grow whenever there is no space."""
    n_regs: ClassVar[int] = max(loops.N_REGS, scanning.N_REGS)

    def __init__(self, table: AtomTable, options: RunOptions, length: Length) -> None:
        joins = options.joins
        assert joins is not None
        n_forgotten = int(forgets_by_partition(options))
        super().__init__(options, length, distinct=table.graph.ambiguous, n_forgotten=n_forgotten)
        self._table = table
        self._indexes: Indexes
        self._joins: JoinTables = joins
        n_atoms = len(table.graph.atoms)
        self._heights = np.zeros(n_atoms, np.int64)
        self._bottoms = np.zeros(n_atoms, np.int64)
        self._path = np.zeros((_INITIAL_DEPTH, N_ENTRY), np.int64)
        self._fresh = np.zeros(n_atoms, np.int64)
        self._scratch = np.zeros(_INITIAL_DEPTH, np.int64)
        self._picked, self._partners = np.zeros(PICKED, np.int64), np.zeros(1 + PARTNERS, np.int64)
        self._tested = np.zeros((len(joins.graph["edges"]), 2), np.int64)
        general = joins.general
        self._judged = len(general["programs"]) > 0
        self._entries = np.zeros((_INITIAL_DEPTH if self._judged else 0, loops.N_SCOPE_ENTRY), np.int64)
        self._floors = np.zeros((len(table.graph.edges), loops.N_FLOOR), np.int64)
        self._scan: ScannedChain | None = None
        if wants_every(table, options) and not options.partitioned:
            self._scan = scanned_chain(joins.graph, joins.conditions, MAX_SCANNED, MAX_SCANNED_IF_FAR)
        self._scans = self._scan is not None
        if self._scan is not None:
            self._path = np.zeros((max(_INITIAL_DEPTH, MAX_SCANNED_STEPS), N_ENTRY), np.int64)
            self._without_indexes = without_indexes(joins.graph)
            self._n_scanned = len(self._scan.supported) * LANES - TILE
        self._stacks = self._allocate(_INITIAL_SIZE)
        self._make_indexes()
        picked, progress = np.zeros(len(general["choices"]) + 1, np.int64), np.zeros(N_PROGRESS, np.int64)
        atoms, instances = np.zeros((2, len(general["arguments"]) + 1), np.int64)
        self._general = General(**general, picked=picked, atoms=atoms, instances=instances, progress=progress)
        self._looks_ahead = options.window == GLOBAL_WINDOW and len(joins.graph["onward_edges"]) > 0
        self._next = np.zeros(2, np.int32)
        self._tests = filters_of(joins.conditions, joins.code, joins.plan.bound.constants, self._string_tables)

    @property
    def reads_columns(self) -> bool:
        """True while events are scanned."""
        return self._scans

    @property
    def tested(self) -> Int64:
        """Candidates that join predicates tested on each edge, and those that passed; shape (edges, 2)."""
        return self._tested[: len(self._table.graph.edges)]

    @property
    def n_bytes(self) -> int:
        """Bytes of the instances and their indexes."""
        n_own: int = sum(array.nbytes for array in (*self._stacks, *self._indexes))
        return super().n_bytes + n_own

    # ---- events -------------------------------------------------------------------------------------------

    def feed(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Process relevant events and yield full buffers, in order."""
        if self._scan is not None:
            self._scan = self._scan._replace(steps_of=self._bits_of(self._scan.atoms))
        return super().feed(self._followed(events))

    def _bits_of(self, atoms: Iterable[int]) -> Int64:
        """Return a bit for each of some atoms that events of a symbol satisfy; shape (symbols,)."""
        satisfied = [(self._table.atoms_of == atom).any(axis=1) << np.int64(bit) for bit, atom in enumerate(atoms)]
        bits: Int64 = np.bitwise_or.reduce(satisfied)
        return bits

    def _followed(self, events: RelevantEvents) -> RelevantEvents:
        """Return the events; those that nothing can follow get a symbol of no atom."""
        n = len(events.symbols)
        if n < MIN_AHEAD or not self._looks_ahead or self._scans:
            return events
        symbols = events.symbols.copy()
        if len(self._next) < min(2 * n, MAX_SLOTS):
            self._next = np.zeros(min(1 << (2 * n - 1).bit_length(), MAX_SLOTS), np.int32)
        group = plain(self._graph)
        drop_without_successors(
            symbols,
            events.window_clocks,
            self._length,
            events.partitions,
            np.ascontiguousarray(events.attributes),
            self._tests.conditions,
            *group,
            self._next,
        )
        return replace(events, symbols=symbols)

    def _lengthen_buffers(self, n_rows: int) -> None:
        self._path = np.concatenate([self._path, np.zeros_like(self._path)])
        self._entries = np.concatenate([self._entries, np.zeros_like(self._entries)])
        self._scratch = np.zeros(max(4 * n_rows, len(self._scratch)), np.int64)

    @property
    def _loop_arguments(self) -> tuple[tuple[Any, ...], ...]:
        if self._scans:
            assert self._scan is not None
            return self._graph, self._stacks, self._indexes, self._listing, self._scan
        scopes = loops.Scopes(self._entries, self._dead, self._floors)
        return self._filters, self._general, self._graph, self._stacks, self._indexes, self._listing, scopes

    def _run_loop(self, *arguments: Any) -> int:
        events, attributes, *others = arguments
        if self._scans:
            scanned: int = scanning.scan_events(events, np.ascontiguousarray(attributes.T), *others)
            return scanned
        self._general.progress[LEFT] = WORK
        status: int = loops.match_events(events, np.ascontiguousarray(attributes), *others)
        check_sizes(self._tests)
        return status

    @property
    def _listing(self) -> Path:
        return Path(self._path, self._fresh, self._scratch, self._picked, self._partners)

    @property
    def _graph(self) -> Graph:
        return Graph(atoms_of=self._table.atoms_of, marks=self._table.marks, **self._graph_fields)

    @property
    def _graph_fields(self) -> dict[str, Any]:
        return self._without_indexes if self._scans else self._joins.graph

    @property
    def _filters(self) -> Filters:
        return with_strings(self._tests, self._string_tables)

    @property
    def _string_tables(self) -> StringTables:
        assert self.options.strings is not None
        return self.options.strings.tables(ranked=self._joins.plan.bound.ranked)

    def live(self) -> Int64:
        """Return the positions that matches to come may hold, and perhaps others, ascending."""
        self._drop_unreachable(self._last_clocks[0])
        rows = self._stacks.places if self.options.placed else self._stacks.positions
        stacks = zip(rows, self._bottoms, self._heights, strict=True)
        return np.unique(np.concatenate([row[bottom:height] for row, bottom, height in stacks]))

    # ---- partitions -----------------------------------------------------------------------------------------

    def idle(self, n_partitions: int) -> Bools:
        """Return which of the first partitions hold nothing."""
        self._drop_unreachable(self._last_clocks[0])
        idle = np.ones(n_partitions, np.bool_)
        for row, height in zip(self._stacks.partitions, self._heights, strict=True):
            idle[row[:height]] = False
        return idle

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the partitions outside `mask` and renumber the others in order."""
        numbers = (np.cumsum(mask) - 1).astype(np.int32)
        for row, height in zip(self._stacks.partitions, self._heights, strict=True):
            row[:height] = numbers[row[:height]]
        self._renumber_partitions(mask)
        self._rebuild()

    def reserve_partitions(self, n: int) -> None:
        """Reserve memory for `n` partitions."""
        super().reserve_partitions(n)
        self._indexes = self._indexes._replace(forgotten=self._forgotten)

    # ---- strings ----------------------------------------------------------------------------------------------

    def strings_in(self, columns: list[int]) -> Int64:
        """Return the ids of the buffered strings of some columns of `RelevantEvents.attributes`."""
        self._drop_unreachable(self._last_clocks[0])
        ids = [self._valid_strings(q, column)[0] for q in range(len(self._heights)) for column in columns]
        return np.concatenate([np.empty(0, np.int64), *ids])

    def renumber_strings(self, columns: list[int], renumbered: Int64) -> None:
        """Replace the ids of the buffered strings of some columns, given the new id for each old one."""
        for q in range(len(self._heights)):
            for column in columns:
                numbers, valid = self._valid_strings(q, column)
                self._stacks.values[q, column, valid] = renumbered[numbers]
        self._rebuild()

    def _valid_strings(self, atom: int, column: int) -> tuple[Int64, Int64]:
        """Return the string ids of the instances of an atom, where there are any, and those instances."""
        n = self._heights[atom]
        valid = np.flatnonzero(self._stacks.values[atom, 0, :n] >> (column - 1) & 1)
        return self._stacks.values[atom, column, valid], valid

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        self._drop_unreachable(self._last_clocks[0])
        n = int(self._heights.max(initial=0))
        stacks = {
            name: _first_entries(array, self._heights, n)
            for name, array in self._stacks._asdict().items()
            if _deep(array)
        }
        return {
            **super().snapshot(),
            **stacks,
            "heights": self._heights,
            "size": np.array([self._stacks.positions.shape[1]]),
            "scans": np.array([self._scans]),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self._scans = "scans" in snapshot and bool(snapshot["scans"][0])
        self._heights[:] = snapshot["heights"]
        self._bottoms[:] = 0
        super().restore(snapshot)
        self._stacks = self._allocate(int(snapshot["size"][0]))
        for name, array in self._stacks._asdict().items():
            if _deep(array) and array.size:
                array[..., : snapshot[name].shape[-1]] = snapshot[name]
        self._make_indexes()
        self._rebuild()

    # ---- memory -----------------------------------------------------------------------------------------------

    def _allocate(self, capacity: int) -> Instances:
        options, joins = self.options, self._joins
        n_atoms = len(self._heights)
        numbered = (self._table.has_gaps and options.partitioned) or options.window == COUNT_WINDOW

        def rows(wanted: bool, dtype: npt.DTypeLike, padding: int = 0) -> Array:
            return allocate((n_atoms, capacity + padding if wanted else 0), dtype)

        return Instances(
            self._heights,
            self._bottoms,
            rows(True, np.int64),
            rows(options.placed, np.int64),
            rows(numbered, np.int64),
            rows(options.timed, np.int64),
            rows(options.partitioned, np.int32),
            allocate((n_atoms, joins.n_columns, capacity + PADDING), np.int64),
            rows(True, self._length.dtype, PADDING),
            rows(True, self._length.dtype),
            allocate((n_atoms, max(joins.n_incoming, 1), capacity + PADDING), np.int64),
            allocate((n_atoms, joins.n_ended, capacity), np.int64),
        )

    def _make_indexes(self) -> None:
        joins, graph, capacity = self._joins, self._graph, self._stacks.positions.shape[1]
        self._dead = np.zeros((len(self._heights), capacity) if self._judged else (0, 0), np.int64)
        n_entries = capacity << int(graph.index_shifts.max(initial=0))
        if n_entries > MAX_NUMBERED:
            raise MemoryError
        n_indexes = len(graph.index_atoms)
        n_blocks = sum(max(capacity >> shift, 1) for shift in (5, 10, 15))
        zones = (len(self._heights), joins.n_zones, n_blocks)
        self._indexes = Indexes(
            np.full((n_indexes, 4 * n_entries), -1, np.int64),
            allocate((n_indexes, n_entries), np.int32),
            allocate((n_indexes, n_entries), self._length.dtype),
            allocate(zones, np.int64),
            allocate(zones, np.int64),
            self._forgotten,
            self._tested,
        )

    def _rebuild(self) -> None:
        self._rebuild_within(self._last_clocks[0], np.empty((0, 0), np.int64))

    def _drop_unreachable(self, clock: Any) -> None:
        self._rebuild_within(clock, np.empty((len(self._heights), self._stacks.positions.shape[1] + 1), np.int64))

    def _rebuild_within(self, clock: Any, moved: Int64) -> None:
        groups = plain(self._graph, self._stacks, self._indexes)
        rebuild(*groups, self._clocks_at(clock), self._length, moved)

    def _take_indexes(self) -> None:
        """Find events by indexes from now on, as many are within reach."""
        self._scans = False
        self._make_indexes()
        self._rebuild()
        for a, height in enumerate(self._heights):
            attributes = np.ascontiguousarray(self._stacks.values[a, :, :height].T)
            groups = plain(self._graph, self._filters, self._stacks, self._indexes)
            find_origins(*groups, a, attributes)

    def _reserve_memory(self, clock: Any) -> None:
        """Drop what is out of reach for an event of this clock; take more memory if less than half is free."""
        size = self._stacks.positions.shape[1]
        self._drop_unreachable(clock)
        try:
            if self._scans and 2 * self._heights.max() > self._n_scanned:
                self._take_indexes()
            if size >= self.least_size and self.reserve * self._heights.max() <= size:
                return
            old, self._stacks = self._stacks, self._allocate(2 * size)
            for array, larger in zip(old, self._stacks, strict=True):
                if _deep(array) and array.size:
                    larger[..., : array.shape[-1]] = array
            self._make_indexes()
        except MemoryError:
            raise no_memory(size, "events of a step") from None
        self._rebuild()


def wants_every(table: AtomTable, options: RunOptions) -> bool:
    """Return True if all matches are wanted, as they are found: none is chosen, none ends others, none is a shard's."""
    joins = options.joins
    assert joins is not None
    demand = demand_of(options, distinct=table.graph.ambiguous)
    every = options.limit == 0 and options.consume == CONSUME_NONE and demand.gathered == demand.strict == 0
    whole = len(joins.general["programs"]) > 0 or len(joins.general["gaps"]) > 0
    return every and not whole and options.window != COUNT_WINDOW and demand.n_shards == 1


def _deep(array: Array) -> bool:
    """Return True for arrays with a row for each atom, and not one number."""
    return array.ndim > 1


def _first_entries(array: Array, heights: Int64, n: int) -> Array:
    """Return the first `n` entries of each row, with zeros where nothing was written."""
    if not array.shape[-1]:
        return array
    written = np.arange(n) < heights[:, np.newaxis]
    entries = array[..., :n]
    return np.where(written if array.ndim == 2 else written[:, np.newaxis], entries, 0).astype(array.dtype)
