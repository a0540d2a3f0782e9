"""Columns of OVER aggregates and of descent, computed for all events before predicates are evaluated.

A column is made in one pass over each block: what leaves a window is taken out, and what comes is added, so that the
cost does not depend on the length of the window.  Results do not depend on how the stream is cut into blocks: sums are
exact, so that they are those of the values in the window alone (`cer_gpu.backend.over.exact_sums`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Array, Bools, Int64
from cer_gpu.backend.over.descent import mark_descents
from cer_gpu.columnar.clocks import ordered
from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.memory import read_only
from cer_gpu.engine.over_states import AggregateState, DistinctState, StringExtremeState, new_state
from cer_gpu.expressions.derived import is_descent
from cer_gpu.expressions.over_aggregates import OverColumn
from cer_gpu.partition.partitions import PartitionKeys, partitions_of
from cer_gpu.planning.column_binding import BoundOverAggregates, TestPlace
from cer_gpu.predicates.guards import BoundGuards, GuardEvaluator
from cer_gpu.predicates.shared_guards import SharedGuards, may_share

_MAX_KEYS = 1 << 16
"""Most keys of an event."""


class _TestedEvents:
    """Tests of the events that aggregates are of, in common with other queries of a set where that is possible."""

    def __init__(self, bound: BoundGuards, shared: SharedGuards | None) -> None:
        self._shared = shared if shared is not None and may_share(bound, negates=False) else None
        if self._shared is not None:
            self._numbers = self._shared.numbers(bound)
        else:
            self._words = GuardEvaluator(bound)

    def of(self, block: Block) -> Callable[[int], Bools]:
        """Return a function of the number of a guard that returns which events of a block satisfy it."""
        if self._shared is not None:
            shared, numbers = self._shared, self._numbers
            return lambda number: shared.chosen(numbers[number], block)
        words = self._words.words(block)
        return lambda number: _has_bit(words, number)


class OverAggregates:
    """Columns of OVER aggregates, for the blocks of a stream.

    Parameters
    ----------
    bound
    keys
        Keys of PARTITION BY, or None if there are none.
    types
        Types of the keys.
    key_shard
        (k, n): events of shard k of n of the keys only; the others get any values.
    shared
        Guards of the set that the query is in, or None if it is alone.
    """

    def __init__(
        self,
        bound: BoundOverAggregates,
        keys: PartitionKeys | None,
        types: list[pa.DataType],
        key_shard: tuple[int, int] | None = None,
        shared: SharedGuards | None = None,
    ) -> None:
        every = bound.read_at is None
        distinct = dict.fromkeys(bound.own_keys.values())
        self._substreams = _KeyGroup(keys, types, key_shard, every=every)
        self._own = [_KeyGroup(own.columns, own.columns.parts, every=every) for own in distinct]
        self._states: list[AggregateState | DescentState | RisesState] = []
        for column in bound.columns:
            if column not in bound.reaches:
                self._states.append(DescentState(column) if is_descent(column) else RisesState(column))
                continue
            reach = bound.reaches[column]
            clock = np.dtype(np.float64 if isinstance(reach.length, np.float64) else np.uint64)
            own = bound.own_keys.get(column)
            grouped = keys is not None if own is None else bool(own.columns.names)
            self._states.append(new_state(column, clock, reach.column is not None or not grouped))
        self.rebind(bound, keys, shared)

    def rebind(
        self, bound: BoundOverAggregates, keys: PartitionKeys | None, shared: SharedGuards | None = None
    ) -> None:
        """Go on with the same columns of batches of another schema.

        Raises
        ------
        EventsError
            When the values buffered so far are of another type.
        """
        self._bound = bound
        self._substreams.keys = keys
        distinct = list(dict.fromkeys(bound.own_keys.values()))
        for group, keys_of_group in zip(self._own, distinct, strict=True):
            group.keys = keys_of_group.columns
        self._group = {column: self._own[distinct.index(own)] for column, own in bound.own_keys.items()}
        self._tests = [_TestedEvents(guards, shared) for guards in bound.tests]
        for state, column in zip(self._states, bound.columns, strict=True):
            state.rebind(column)

    def add_to(self, block: Block) -> None:
        """Make the columns of the next block."""
        results: dict[int, Callable[[int], Bools]] = {}  # a test may read columns that are computed before it

        def satisfied(place: TestPlace | None) -> Bools:
            if place is None:
                return np.ones(block.n_rows, np.bool_)
            test, guard = place
            if test not in results:
                results[test] = self._tests[test].of(block)
            return results[test](guard)

        read_at = self._bound.read_at
        for group in (self._substreams, *self._own):
            group.forget()
        for state, (column, names) in zip(self._states, self._bound.columns.items(), strict=True):
            group = self._group.get(column, self._substreams)
            chosen = satisfied(self._bound.test[column])
            if isinstance(state, DescentState):
                pass
            elif read_at is not None:
                rows, read = None, read_at[column]
                if read is not None and None not in read:
                    (rows,) = np.nonzero(reduce(np.logical_or, map(satisfied, read), chosen))
                group.read(block, self._with_own_keys(column, satisfied), rows)
            elif not group.is_read:
                group.read(block, self._with_own_keys(column, satisfied))
            if isinstance(state, RisesState):
                holds, before = satisfied(self._bound.condition[column]), satisfied(self._bound.before[column])
                values = state.make(group.rows, chosen & holds & ~before)
            elif isinstance(state, DescentState):
                values = state.make(block, chosen)
                for name in names:
                    block.source.put(name, values)  # for the guards that queries share
            else:
                reach = self._bound.reaches[column]
                clocks = group.clock(block, reach.column)
                values = state.make(block, group.rows, group.numbers, group.n_keys, clocks, reach.length, chosen)
            for name in names:
                block.put(name, values)
        for group in (self._substreams, *self._own):
            group.n_events += block.n_rows

    def _with_own_keys(
        self, column: OverColumn, satisfied: Callable[[TestPlace | None], Bools]
    ) -> list[list[Bools | None]]:
        """Return for each own key of a column the events that have each of its alternatives, or None if all have."""
        own = self._bound.own_keys.get(column)
        tests = () if own is None else own.tests
        return [[None if place is None else satisfied(place) for place in key] for key in tests]

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[int, pa.Array], dict[int, pa.Array]]:
        """Return the state: arrays, the values of string keys, and the strings that are counted."""
        arrays: dict[str, Any] = {"n_events": np.array([self._substreams.n_events])}
        of_keys: dict[int, pa.Array] = {}
        for group, (name, first) in zip((self._substreams, *self._own), self._named_groups(), strict=True):
            if group.partitions is not None:
                arrays_of_keys, strings = group.partitions.snapshot()
                arrays |= {f"{name}.{each}": array for each, array in arrays_of_keys.items()}
                of_keys |= {first + number: array for number, array in strings.items()}
        for i, (state, column) in enumerate(zip(self._states, self._bound.columns, strict=True)):
            n_keys = self._group.get(column, self._substreams).n_keys
            arrays |= {f"{i}.{name}": array for name, array in state.snapshot(n_keys).items()}
        counted = {i: each.strings() for i, each in enumerate(self._states) if isinstance(each, _WITH_STRINGS)}
        return arrays, of_keys, counted

    def restore(self, arrays: dict[str, Any], strings: dict[int, pa.Array], counted: dict[int, pa.Array]) -> None:
        """Go on from a snapshot."""
        for group, (name, first) in zip((self._substreams, *self._own), self._named_groups(), strict=True):
            group.n_events = int(arrays["n_events"][0])
            if group.partitions is not None:
                ours = {n - first: array for n, array in strings.items() if first <= n < first + _MAX_KEYS}
                group.partitions.restore({n: arrays[f"{name}.{n}"] for n in ("keys", "counts")}, ours)
        for i, state in enumerate(self._states):
            own = f"{i}."
            state.restore({name[len(own) :]: array for name, array in arrays.items() if name.startswith(own)})
            if isinstance(state, _WITH_STRINGS):
                state.restore_strings(counted[i])

    def _named_groups(self) -> Iterator[tuple[str, int]]:
        """Yield the name of each group in a checkpoint, and the number of its first key."""
        yield "keys", 0
        yield from ((f"keys{i}", i * _MAX_KEYS) for i in range(1, len(self._own) + 1))


class _KeyGroup:
    """Substreams of the events of blocks.

    Parameters
    ----------
    keys
        Keys of the events; None, or without columns: there is one substream.
    types
        Types of the keys.
    key_shard
        As that of `OverAggregates`.
    every
        True: all events of a block are looked up together.

    Attributes
    ----------
    rows, numbers : int32, shape (n,)
        Events of the block that have a key, and the numbers of their substreams.
    is_read : bool
        True if they are those of the current block.
    """

    def __init__(
        self,
        keys: PartitionKeys | None,
        types: list[pa.DataType],
        key_shard: tuple[int, int] | None = None,
        *,
        every: bool,
    ) -> None:
        self.keys, self._types = keys, types
        one = keys is None or not keys.names
        self.partitions = None if one else partitions_of(types, key_shard, every=every, numbered=every)
        self._every = every
        self.n_events = 0
        self.forget()

    @property
    def n_keys(self) -> int:
        """Number of substreams."""
        return 1 if self.partitions is None else self.partitions.n

    def forget(self) -> None:
        """Read nothing of the next block yet."""
        self.rows = self.numbers = np.empty(0, np.int32)
        self._clocks: dict[str | None, Array] = {}
        self.is_read = False

    def read(self, block: Block, having: Sequence[Sequence[Bools | None]] = (), events: Int64 | None = None) -> None:
        """Find the substreams of some events of a block, or of all; `having` is that of `PartitionKeys.arrays`."""
        self.is_read, self._clocks = True, {}
        rows = np.arange(block.n_rows, dtype=np.int32) if events is None else events.astype(np.int32)
        if self.partitions is None:
            self.rows, self.numbers = rows, np.zeros(len(rows), np.int32)
            if self._every:
                self._clocks = {None: np.arange(self.n_events, self.n_events + block.n_rows, dtype=np.uint64)}
            return
        if not len(rows):
            self.rows = self.numbers = rows
            return
        assert self.keys is not None
        arrays = self.keys.arrays(block.batch, self._types, having)
        _, self.rows, self.numbers, places = self.partitions.assign(arrays, rows, rows)
        if self._every:
            self._clocks = {None: places.view(np.uint64)}

    def clock(self, block: Block, column: str | None) -> Array:
        """Return the clock of the events that have a key: a column, or for None their places in their substreams."""
        if column not in self._clocks:
            assert column is not None
            of_rows = ordered(block.numbers(column))
            self._clocks[column] = of_rows if len(self.rows) == block.n_rows else of_rows[self.rows]
        return self._clocks[column]


def _has_bit(words: Array, bit: int) -> Bools:
    """Return which words have a bit (`GuardEvaluator.words`)."""
    word = words if words.ndim == 1 else words[:, bit // 64]
    mask: Bools = read_only((word >> word.dtype.type(bit % 64)) & word.dtype.type(1)).astype(np.bool_)
    return mask


class DescentState:
    """Descent of processes: the ids of processes that are marked, or descend from such, in the whole stream."""

    def __init__(self, column: OverColumn) -> None:
        self._ids, self._marks = pa.array([], pa.large_string()), np.zeros(0, np.uint8)
        self.rebind(column)

    def rebind(self, column: OverColumn) -> None:
        """Go on with the column of another schema."""
        self.column = column

    def make(self, block: Block, chosen: Bools) -> pa.Array:
        """Return the column of the next block, from the mask of events that mark their process."""
        results = np.zeros(block.n_rows, np.bool_)
        if not len(self._ids) and not chosen.any():
            return pa.array(results)
        (processes, parents), ids = block.coded_together(self.column.aggregate.ids)
        places = pc.index_in(ids, value_set=self._ids)
        existing = places.is_valid().to_numpy(zero_copy_only=False)
        places = places.fill_null(0).to_numpy()[existing]
        marks = np.zeros(len(ids), np.uint8)
        marks[existing] = self._marks[places]
        mark_descents(processes, parents, read_only(chosen), marks, results)
        self._marks[places] = marks[existing]
        (new,) = np.nonzero(marks.astype(np.bool_) & ~existing)
        if len(new):
            self._ids = pa.concat_arrays([self._ids, ids.take(pa.array(new))])
            self._marks = np.concatenate([self._marks, marks[new]])
        return pa.array(results)

    def snapshot(self, n_keys: int) -> dict[str, Array]:
        """Return the state as arrays."""
        return {"known": self._marks}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from a snapshot."""
        self._marks = np.array(arrays["known"])

    def strings(self) -> pa.Array:
        """Return the ids."""
        return self._ids

    def restore_strings(self, strings: pa.Array) -> None:
        """Go on with the ids of a snapshot."""
        self._ids = strings


class RisesState:
    """Rising edges of a condition, computed from its aggregate before and after the event; stateless."""

    def __init__(self, column: OverColumn) -> None:
        self.rebind(column)

    def rebind(self, column: OverColumn) -> None:
        """Go on with the column of another schema."""
        self.column = column

    def make(self, rows: Array, rises: Bools) -> pa.Array:
        """Return the column of the next block, from its events that have a key and the mask of rising edges."""
        results = np.zeros(len(rises), np.bool_)
        results[rows] = rises[rows]
        return pa.array(results)

    def snapshot(self, n_keys: int) -> dict[str, Array]:
        """Return the state as arrays."""
        return {}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from a snapshot."""


_WITH_STRINGS = DescentState | DistinctState | StringExtremeState
"""States that number strings."""
