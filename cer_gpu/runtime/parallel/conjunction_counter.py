"""The state of one evaluation that counts the matches of a conjunction by keys, and its loop's arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from cer_gpu.arrays import Array, Bools, Int64
from cer_gpu.automaton.encoding import NO_WINDOW
from cer_gpu.automaton.parallel_pattern import ParallelTable
from cer_gpu.backend.arguments import plain
from cer_gpu.backend.joins import choosing as k
from cer_gpu.backend.products import key_counts as loop
from cer_gpu.backend.products.key_counts import (
    END_LIVE,
    FIRST_AHEAD,
    FIRST_COUNT,
    FIRST_LIVE,
    LIVE_KEY,
    LIVE_PLACE,
    N_KEYS,
    OF_NODE_KEY,
    CountTree,
    KeyCounts,
    LiveEvents,
)
from cer_gpu.backend.status import Status
from cer_gpu.columnar.memory import GrowableArray, larger_ring, zeros
from cer_gpu.errors import no_memory
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.joining import Joining
from cer_gpu.runtime.parallel.parallel_tables import ConjunctionTree
from cer_gpu.runtime.parallel.products import Products
from cer_gpu.runtime.protocol import Length, ResultBuffers, Runtime

_INITIAL_SIZE = 1 << 15
"""Initial capacity for keys, and for the events of a window; a power of two."""
_GROWTH = 4
"""Factor by which memory for keys grows."""
_AHEAD = 64
"""Events whose keys are looked up together; a power of two."""
_MAX_KEYS = 2**31 - 1
"""Maximum number of keys."""


class ConjunctionCounter(Joining):
    """Runtime that counts the matches of a conjunction, of which no two events may be one, without partitions.

    Numbers of partial matches beyond 2**62 are not kept: from there on `Products` counts.

    Parameters
    ----------
    table : ParallelTable
    options : RunOptions
        With `parallel`, counted.
    length
        Length of the window, uint64 or float64; None if there is none.
    """

    engine = "counter"
    keeps_partitions = False
    reserve_partitions: ClassVar[Any] = Runtime.reserve_partitions  # there are none to keep, unlike in other joins
    n_regs: ClassVar[int] = loop.N_COUNT_REGS

    def __init__(self, table: ParallelTable, options: RunOptions, length: Length) -> None:
        assert options.parallel is not None
        super().__init__(options, length, distinct=False, n_forgotten=0)
        self._table, self._tables, self._given_length = table, options.parallel, length
        self._tree = ConjunctionTree(options.parallel)
        self._width = FIRST_COUNT + self._tree.n_columns + self._tree.max_values
        self._windowed = options.window != NO_WINDOW
        self._n_added = self._tree.n_nodes * _AHEAD  # keys that the events looked up together add, at most
        self._symbols = np.zeros(0, np.int32)
        self._keys = GrowableArray(_INITIAL_SIZE, self._width)
        self._slots = _empty_slots(_INITIAL_SIZE)
        self._ahead = np.zeros((_AHEAD, 2), np.uint64), np.zeros((_AHEAD, 2 + self._tree.max_values), np.int64)
        n = _INITIAL_SIZE if self._windowed else 0
        self._live: tuple[Array, Array] = np.zeros((n, 2), np.int32), np.zeros(n, self._length.dtype)
        self._next_position = 0
        self._first_live = 0  # the first event in the window when keys were dropped
        self._products: Products | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes of the numbers, the look-up table and the events in the window."""
        return super().n_bytes + self._keys.array.nbytes if self._products is None else self._products.n_bytes

    @property
    def live_counts(self) -> dict[str, int]:
        """Events in the window, and keys that count some."""
        if self._products is not None:
            return self._products.live_counts
        self._drop_unreachable(self._last_clocks[0])
        return {"events": int(self._regs[END_LIVE] - self._regs[FIRST_LIVE]), "keys": int(self._regs[N_KEYS])}

    # ---- events -------------------------------------------------------------------------------------------

    def feed(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Process relevant events and yield full buffers, in order."""
        self._next_position = int(events.positions[-1]) + 1
        if self._products is None:
            self._regs[FIRST_AHEAD] = 0
            yield from super().feed(events)
            if self._products is None:
                return
            yield self.flush()
            events = events.at(slice(int(self._regs[k.EVENT]), None))
        yield from self._products.feed(events)

    def flush(self) -> ResultBuffers:
        """Return the counts since the last full buffer."""
        if self._products is None or self._regs[k.N_ENDS]:
            return super().flush()
        return self._products.flush()

    @property
    def _loop_arguments(self) -> tuple[tuple[Any, ...], ...]:
        if len(self._symbols) != self._table.n_symbols:
            self._symbols = self._tree.places_of(self._table.places_of)
        tree = CountTree(self._symbols, *self._tree.arrays, self._tree.n_columns)
        return tree, KeyCounts(self._keys.array, self._slots, *self._ahead), LiveEvents(*self._live)

    def _run_loop(self, *arguments: Any) -> int:
        events, attributes, window, options, demand, tree, keys, live, _, counts, n_events, regs = arguments
        status: int = loop.count_by_keys(
            events, attributes, window, options, demand, tree, keys, live, counts, n_events, regs
        )
        if status == Status.TOO_MANY and self._windowed:
            self._products = self._fed_products()
            return Status.DONE
        return status

    @property
    def _live_events(self) -> tuple[Array, Array]:
        """The events in the window, the oldest first, as `LiveEvents`."""
        at = np.arange(self._regs[FIRST_LIVE], self._regs[END_LIVE]) % max(len(self._live[1]), 1)
        return self._live[0][at], self._live[1][at]

    def _fed_products(self) -> Products:
        """Return a runtime with the partial matches of the events in the window."""
        products = Products(self._table, self.options, self._given_length)
        members, clocks = self._live_events
        n, places = len(clocks), members[:, LIVE_PLACE].astype(np.int32)
        symbol_of = np.zeros(len(self._tree.arrays[0]), np.int32)
        symbol_of[self._symbols[self._symbols >= 0]] = np.flatnonzero(self._symbols >= 0)
        values = self._keys.array[members[:, LIVE_KEY], FIRST_COUNT + self._tree.n_columns :]
        nothing = np.empty(0, np.int64)
        events = RelevantEvents(
            symbols=symbol_of[places],
            positions=np.full(n, -1),  # before all that are reported
            lows=nothing,
            times=np.zeros(n if self.options.timed else 0, np.int64),
            partitions=np.empty(0, np.int32),
            ordinals=nothing,
            places=np.full(n if self.options.placed else 0, -1),
            window_clocks=clocks,
            attributes=self._tree.attributes_of(places, values),
        )
        for buffer in products.feed(events):
            assert not len(buffer)
        return products

    def live(self) -> int:
        """Return a position before which counts to come name no event: they name their ends alone."""
        return self._next_position

    # ---- strings ----------------------------------------------------------------------------------------------

    def strings_in(self, columns: list[int]) -> Int64:
        """Return the ids of the buffered strings of some columns of `RelevantEvents.attributes`."""
        if self._products is not None:
            return self._products.strings_in(columns)
        self._drop_unreachable(self._last_clocks[0])
        ids = [self._keys.array[: self._regs[N_KEYS]][of, value] for of, value in self._string_values(columns)]
        return np.concatenate([np.empty(0, np.int64), *ids])

    def renumber_strings(self, columns: list[int], renumbered: Int64) -> None:
        """Replace the ids of the buffered strings of some columns, given the new id for each old one."""
        if self._products is not None:
            self._products.renumber_strings(columns, renumbered)
            return
        for of, value in self._string_values(columns):
            rows = self._keys.array[: self._regs[N_KEYS]]
            rows[of, value] = renumbered[rows[of, value]]
        self._drop_unreachable(self._last_clocks[0])

    def _string_values(self, columns: list[int]) -> Iterator[tuple[Bools, int]]:
        """Yield the columns of rows with values of some columns, each with a mask of the rows of its node."""
        nodes = self._keys.array[: self._regs[N_KEYS], OF_NODE_KEY]
        for node, value in self._tree.values_of(columns):
            yield nodes == node, FIRST_COUNT + self._tree.n_columns + value

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        shared = {**super().snapshot(), "next_position": np.array([self._next_position])}
        if self._products is not None:
            return {**shared, **{f"products_{name}": each for name, each in self._products.snapshot().items()}}
        self._drop_unreachable(self._last_clocks[0])
        members, clocks = self._live_events
        return {**shared, "keys": self._keys.array[: self._regs[N_KEYS]], "members": members, "clocks": clocks}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        super().restore(snapshot)
        self._next_position = int(snapshot["next_position"][0])
        prefix = "products_"
        products = {name.removeprefix(prefix): each for name, each in snapshot.items() if name.startswith(prefix)}
        if products:
            self._products = Products(self._table, self.options, self._given_length)
            self._products.restore(products)
            return
        n = len(snapshot["keys"])
        self._reserve_keys(n)
        self._keys.array[:n] = snapshot["keys"]
        self._regs[N_KEYS] = n
        while len(self._live[0]) < len(snapshot["members"]):
            self._lengthen_ring()
        for each, name in zip(self._live, ("members", "clocks"), strict=True):
            each[: len(snapshot[name])] = snapshot[name]
        self._regs[[FIRST_LIVE, END_LIVE]] = 0, len(snapshot["members"])
        self._drop_unreachable(self._last_clocks[0])

    # ---- memory -----------------------------------------------------------------------------------------------

    def _drop_unreachable(self, clock: Any) -> None:
        groups = plain(*self._loop_arguments)
        moved = np.empty(int(self._regs[N_KEYS]) + 1, np.int32)
        loop.drop_unused_keys(*groups, moved, self._regs)
        self._regs[FIRST_AHEAD] = self._regs[k.EVENT]  # rows that were looked up have moved
        self._first_live = int(self._regs[FIRST_LIVE])

    def _reserve_memory(self, clock: Any) -> None:
        """Drop the keys that count nothing; take more memory where less than half is free."""
        n_live = int(self._regs[END_LIVE] - self._regs[FIRST_LIVE])
        try:
            if self._windowed and n_live == len(self._live[0]):
                self._lengthen_ring()
            if self._regs[N_KEYS] + self._n_added > len(self._keys.array):
                if self._regs[FIRST_LIVE] > self._first_live:  # else all keys count something
                    self._drop_unreachable(clock)
                if self._reserve_keys(int(self._regs[N_KEYS])):
                    self._drop_unreachable(clock)
        except MemoryError:
            raise no_memory(n_live, "events in a window", "a shorter WITHIN") from None

    def _lengthen_ring(self) -> None:
        members, clocks = (larger_ring(each, 2 * len(each)) for each in self._live)
        self._live = members, clocks

    def _reserve_keys(self, n: int) -> bool:
        """Make space for `n` keys, half as many, and what an event adds; return True if the hash table is new."""
        size = len(self._keys.array)
        while 3 * n > 2 * size or n + self._n_added > size:
            size *= _GROWTH
        if size > _MAX_KEYS:
            raise MemoryError
        if size == len(self._keys.array):
            return False
        self._keys.grow(size)
        self._slots = _empty_slots(size)
        return True

    def _lengthen_buffers(self, n_rows: int) -> None:
        raise NotImplementedError  # nothing is listed


def _empty_slots(n_keys: int) -> Array:
    return zeros((1 << max(2 * n_keys - 1, 1).bit_length(),), np.uint64)
