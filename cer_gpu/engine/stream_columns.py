"""Derived columns that read events before their own: ``LAG``, OVER aggregates, and positions.

For ``LAG`` without PARTITION BY, the last events of a block are carried to the next.  With it, each partition has a
ring of the positions of its last events, and the values at these positions are retained.  No partition is ever dropped,
as an event of its key may come at any time: memory holds n values for each key of the stream, for the greatest n.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.backend.partitions import find_earlier
from cer_gpu.ceql.paths import dotted
from cer_gpu.ceql.syntax import COUNTED_POSITION
from cer_gpu.columnar.columns import Block, plain_array
from cer_gpu.columnar.dictionary_encoding import DictionaryEncoder
from cer_gpu.columnar.memory import allocate
from cer_gpu.engine.blocks import BLOCK_ROWS
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.over_groups import OverAggregates
from cer_gpu.errors import EventsError
from cer_gpu.expressions.derived import DerivedColumn, LagColumn, has_positions, lags_of, makers_of
from cer_gpu.output.retention import Retained
from cer_gpu.partition.partitions import PartitionKeys, partitions_of
from cer_gpu.planning.column_binding import BoundLet, BoundOverAggregates
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.predicates.shared_guards import SharedGuards


class StreamColumns:
    """The columns of a query over the blocks of a stream.

    Parameters
    ----------
    keys : PartitionKeys or None
        Keys of PARTITION BY, or None if there are none.
    derived : dict from str to DerivedColumn
        The columns, and others that are made of single events.
    over_aggregates : BoundOverAggregates or None
    key_shard
        (k, n): events of shard k of n of the keys only; the others get any values.
    shared
        Guards of the set of the query, over the same schema, or None for a single query.
    """

    def __init__(
        self,
        keys: PartitionKeys | None,
        derived: Mapping[str, DerivedColumn],
        over_aggregates: BoundOverAggregates | None,
        key_shard: tuple[int, int] | None = None,
        shared: SharedGuards | None = None,
    ) -> None:
        types, lags = [] if keys is None else keys.parts, lags_of(derived)
        self._lags = Lags(lags, keys, types, key_shard) if lags else None
        self._over_aggregates = (
            None if over_aggregates is None else OverAggregates(over_aggregates, keys, types, key_shard, shared)
        )
        self._positions = Positions(keys, types, key_shard) if has_positions(derived) else None

    def rebind(
        self,
        keys: PartitionKeys | None,
        derived: Mapping[str, DerivedColumn],
        over_aggregates: BoundOverAggregates | None,
        shared: SharedGuards | None = None,
    ) -> None:
        """Go on with the same columns of batches of another schema.

        Raises
        ------
        EventsError
            When the values buffered so far do not fit the new type of their column.
        """
        if self._lags is not None:
            self._lags.rebind(lags_of(derived), keys)
        if self._over_aggregates is not None:
            assert over_aggregates is not None
            self._over_aggregates.rebind(over_aggregates, keys, shared)
        if self._positions is not None:
            self._positions.rebind(keys)

    def add_to(self, block: Block) -> None:
        """Make the columns of the next block."""
        if self._lags is not None:
            self._lags.add_to(block)
        if self._over_aggregates is not None:
            self._over_aggregates.add_to(block)
        if self._positions is not None:
            self._positions.add_to(block)

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the state to a checkpoint."""
        if self._lags is not None:
            arrays, strings, state.tables["lags"] = self._lags.snapshot()
            state.add_arrays("lags", arrays)
            state.add_strings("lag_texts", strings)
        if self._over_aggregates is not None:
            arrays, strings, counted = self._over_aggregates.snapshot()
            state.add_arrays("pasts", arrays)
            state.add_strings("past_texts", strings)
            state.add_strings("past_values", counted)
        if self._positions is not None:
            arrays, strings = self._positions.snapshot()
            state.add_arrays("positions", arrays)
            state.add_strings("position_texts", strings)

    def restore(self, state: NamedState) -> None:
        """Go on from a checkpoint."""
        if self._lags is not None:
            self._lags.restore(state.part("lags"), state.strings("lag_texts"), state.tables["lags"])
        if self._over_aggregates is not None:
            self._over_aggregates.restore(
                state.part("pasts"), state.strings("past_texts"), state.strings("past_values")
            )
        if self._positions is not None:
            self._positions.restore(state.part("positions"), state.strings("position_texts"))


class Positions:
    """Column of the positions of events, which windows of EVENTS within a pattern compare.

    They count all events, relevant or not, in the stream or in each partition.  Only differences have a meaning: a part
    of a stream may begin to count anywhere.
    With PARTITION BY no partition is ever dropped, as an event of its key may come at any time.

    Parameters
    ----------
    keys
        Keys of PARTITION BY, or None if there are none.
    types
        Types of the keys.
    key_shard
        (k, n): events of shard k of n of the keys only; the others get any values.
    """

    def __init__(
        self, keys: PartitionKeys | None, types: list[pa.DataType], key_shard: tuple[int, int] | None = None
    ) -> None:
        self._types = types
        self._partitions = None if keys is None else partitions_of(types, key_shard, every=True, numbered=True)
        self._n_events = 0
        self.rebind(keys)

    def rebind(self, keys: PartitionKeys | None) -> None:
        """Go on with batches of another schema."""
        self._keys = keys

    def add_to(self, block: Block) -> None:
        """Make the column of the next block."""
        positions = np.arange(self._n_events, self._n_events + block.n_rows)
        self._n_events += block.n_rows
        if self._partitions is not None:
            assert self._keys is not None
            rows = np.arange(block.n_rows, dtype=np.int32)
            keys = self._keys.arrays(block.batch, self._types)
            _, rows, _, numbers = self._partitions.assign(keys, rows, rows)
            positions[rows] = numbers
        block.put(COUNTED_POSITION, pa.array(positions))

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[int, pa.Array]]:
        """Return the state: arrays, and the values of string keys."""
        arrays: dict[str, Any] = {"n_events": np.array([self._n_events])}
        if self._partitions is None:
            return arrays, {}
        of_keys, strings = self._partitions.snapshot()
        return arrays | {f"keys.{name}": array for name, array in of_keys.items()}, strings

    def restore(self, arrays: dict[str, Any], strings: dict[int, pa.Array]) -> None:
        """Go on from a snapshot."""
        self._n_events = int(arrays["n_events"][0])
        if self._partitions is not None:
            self._partitions.restore({n: arrays[f"keys.{n}"] for n in ("keys", "counts")}, strings)


class Lags:
    """Columns of earlier events over the blocks of a stream.

    Parameters
    ----------
    columns
        Columns to make, at least one, by name.
    keys
        Keys of PARTITION BY, or None if there are none.
    types
        Types of the keys.
    key_shard
        (k, n): events of shard k of n of the keys only; the others get any values.
    """

    def __init__(
        self,
        columns: Mapping[str, LagColumn],
        keys: PartitionKeys | None,
        types: list[pa.DataType],
        key_shard: tuple[int, int] | None = None,
    ) -> None:
        self._types = types
        self._partitions = None if keys is None else partitions_of(types, key_shard, every=True, numbered=False)
        attributes = list(dict.fromkeys(column.attribute for column in columns.values()))
        self._names = {attribute: str(i) for i, attribute in enumerate(attributes)}
        self._lags = np.unique(np.array([column.n for column in columns.values()], np.int64))
        self._max_lag = int(self._lags[-1])
        self._n_events = 0
        self._counts = np.zeros(0, np.int64)
        self._rings = np.zeros((0, self._max_lag), np.int64)
        self._tail: dict[str, pa.Array] | None = None  # values of the last events, without PARTITION BY
        self._retained: Retained | None = None  # values of the events in a ring
        self.rebind(columns, keys)

    def rebind(self, columns: Mapping[str, LagColumn], keys: PartitionKeys | None) -> None:
        """Go on with the same columns of batches of another schema.

        Raises
        ------
        EventsError
            When the values buffered so far do not fit the new type of their column.
        """
        self._columns, self._keys = columns, keys
        types = {column.attribute: column.type for column in columns.values()}
        schema = pa.schema([(name, types[attribute]) for attribute, name in self._names.items()])
        if self._tail is not None:
            self._tail = {a: _cast_to_first(v, schema.field(self._names[a]).type, a) for a, v in self._tail.items()}
        fresh = Retained(schema, list(self._names))
        if self._retained is not None:
            positions, rows = self._retained.snapshot()
            columns_of = [_cast_to_first(rows[name].combine_chunks(), types[a], a) for a, name in self._names.items()]
            fresh.restore(positions, pa.Table.from_arrays(columns_of, schema=schema))
        self._retained = fresh

    def add_to(self, block: Block) -> None:
        """Make the columns of the next block."""
        values = {
            attribute: _cast_to_first(plain_array(block.column(attribute)), column.type, attribute)
            for attribute, column in {c.attribute: c for c in self._columns.values()}.items()
        }
        columns = self._in_stream(values, block.n_rows) if self._keys is None else self._in_partitions(values, block)
        for name, column in self._columns.items():
            block.put(name, columns[column.attribute, column.n])
        self._n_events += block.n_rows

    def _in_stream(self, values: dict[str, pa.Array], n_rows: int) -> dict[tuple[str, int], pa.Array]:
        columns = {}
        tail = self._tail or {attribute: column.slice(0, 0) for attribute, column in values.items()}
        for column in self._columns.values():
            before, now = tail[column.attribute], values[column.attribute]
            n_missing = min(max(0, column.n - len(before)), n_rows)
            parts = [pa.nulls(n_missing, now.type), before.slice(max(0, len(before) - column.n)), now]
            columns[column.attribute, column.n] = pa.concat_arrays(parts).slice(0, n_rows)
        self._tail = {}
        for attribute, now in values.items():
            before = tail[attribute].slice(max(0, len(tail[attribute]) + min(0, n_rows - self._max_lag)))
            # a copy, which keeps no buffers of the block alive
            self._tail[attribute] = pa.concat_arrays([before, now.slice(max(0, n_rows - self._max_lag))])
        return columns

    def _in_partitions(self, values: dict[str, pa.Array], block: Block) -> dict[tuple[str, int], pa.Array]:
        assert self._keys is not None
        assert self._partitions is not None
        assert self._retained is not None
        rows = np.arange(block.n_rows, dtype=np.int32)
        _, rows, partitions, _ = self._partitions.assign(self._keys.arrays(block.batch, self._types), rows, rows)
        self._grow_rings(self._partitions.n)
        places = np.empty((len(self._lags), block.n_rows), np.int32)
        if len(rows) < block.n_rows:
            places.fill(block.n_rows)
        before = allocate((len(self._lags) * len(rows),), np.int64)
        is_buffered = np.zeros(block.n_rows, np.bool_)
        first = self._n_events
        n = find_earlier(rows, partitions, first, self._lags, self._counts, self._rings, places, before, is_buffered)
        earlier = self._retained.take(before[:n])
        columns = {}
        for column in self._columns.values():
            indices = pa.array(places[np.searchsorted(self._lags, column.n)])
            now, old = values[column.attribute], earlier.field(self._names[column.attribute])
            joined = pa.concat_arrays([now, pa.nulls(1, now.type), old])
            columns[column.attribute, column.n] = joined.take(indices)
        chosen = np.flatnonzero(is_buffered)
        self._retained.add(first + chosen, block.batch, chosen.astype(np.int32))
        if self._retained.wants_trim:
            rings = self._rings[: self._partitions.n]
            self._retained.keep(np.sort(rings[rings > 0]) - 1)
        return columns

    def _grow_rings(self, n_partitions: int) -> None:
        if n_partitions > len(self._counts):
            capacity = max(64, 2 * n_partitions)
            counts, rings = np.zeros(capacity, np.int64), np.zeros((capacity, self._max_lag), np.int64)
            counts[: len(self._counts)], rings[: len(self._rings)] = self._counts, self._rings
            self._counts, self._rings = counts, rings

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[int, pa.Array], pa.Table]:
        """Return the state: arrays, the values of string keys, and the values of earlier events."""
        assert self._retained is not None
        arrays: dict[str, Any] = {"n_events": np.array([self._n_events])}
        if self._partitions is None:
            tail = self._tail or {}
            return arrays, {}, pa.table([tail[a] for a in self._names if a in tail], [self._names[a] for a in tail])
        of_keys, strings = self._partitions.snapshot()
        n = self._partitions.n
        positions, rows = self._retained.snapshot()
        arrays |= {"counts": self._counts[:n], "rings": self._rings[:n], "positions": positions}
        return arrays | {f"keys.{name}": array for name, array in of_keys.items()}, strings, rows

    def restore(self, arrays: dict[str, Any], strings: dict[int, pa.Array], rows: pa.Table) -> None:
        """Go on from a snapshot."""
        assert self._retained is not None
        self._n_events = int(arrays["n_events"][0])
        if self._partitions is None:
            if rows.num_columns:
                self._tail = {a: rows[name].combine_chunks() for a, name in self._names.items()}
            return
        self._partitions.restore({n: arrays[f"keys.{n}"] for n in ("keys", "counts")}, strings)
        self._grow_rings(self._partitions.n)
        n = self._partitions.n
        self._counts[:n], self._rings[:n] = arrays["counts"], arrays["rings"]
        self._retained.restore(arrays["positions"], rows)


def _cast_to_first(column: pa.Array, data_type: pa.DataType, attribute: str) -> pa.Array:
    try:
        return column if column.type == data_type else column.cast(data_type)
    except pa.ArrowException as error:
        raise EventsError(
            f"LAG keeps values of column {dotted(attribute)!r}, which changed its type from {column.type} to "
            f"{data_type}, and one does not fit: {error}\nhint: cast the column to one type"
        ) from None


class LetColumns:
    """Maker of the columns of LET that a query reads by name.

    Parameters
    ----------
    bound : BoundLet
    plan
        Its keys are those of what looks back.
    key_shard
        (k, n): events of shard k of n of the keys only; the others get any values of what looks back.
    """

    def __init__(self, bound: BoundLet, plan: LogicalPlan, key_shard: tuple[int, int] | None = None) -> None:
        self._plan = plan
        self._coders: dict[str, DictionaryEncoder] = {}
        self._bound = bound
        self._states: dict[str, StreamColumns] = {}
        for column in bound.columns:
            if column.looks_back:
                keys = self._keys(column.name)
                self._states[column.name] = StreamColumns(keys, column.derived, column.over_aggregates, key_shard)

    def _keys(self, name: str) -> PartitionKeys | None:
        """Return the keys of what looks back, which a column that they are made of does not use."""
        plan, own = self._plan, {name for key in self._plan.partition_keys for name in key}
        missing = own - {*self._names_before(name), *self._bound.schema.names[: -len(self._bound.columns)]}
        return (
            PartitionKeys(plan.partition, self._bound.schema, plan.text)
            if plan.partition and not (missing & self._bound.names)
            else None
        )

    def _names_before(self, name: str) -> list[str]:
        names = [column.name for column in self._bound.columns]
        return names[: names.index(name)]

    def rebind(self, bound: BoundLet) -> None:
        """Go on with batches of another schema."""
        self._bound = bound
        for column in bound.columns:
            if column.looks_back:
                self._states[column.name].rebind(self._keys(column.name), column.derived, column.over_aggregates)

    def extend(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """Return the next events with the columns."""
        pieces = [
            self._extend(events.slice(start, BLOCK_ROWS)) for start in range(0, max(events.num_rows, 1), BLOCK_ROWS)
        ]
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _extend(self, events: pa.RecordBatch) -> pa.RecordBatch:
        for column in self._bound.columns:
            block = Block(events, self._coders)
            block.derive(makers_of(column.derived))
            if column.name in self._states:
                self._states[column.name].add_to(block)
            events = events.append_column(pa.field(column.name, column.type), column.make(block))
        return events

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the state to a checkpoint."""
        for i, each in enumerate(self._states.values()):
            each.snapshot(state.of(f"let {i}"))

    def restore(self, state: NamedState) -> None:
        """Go on from a checkpoint."""
        for i, each in enumerate(self._states.values()):
            each.restore(state.of(f"let {i}"))
