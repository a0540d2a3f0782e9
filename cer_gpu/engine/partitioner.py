"""Partitions of one query: events are assigned to them by their keys, and partitions that hold nothing are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Bools, Int32, Int64
from cer_gpu.automaton.keyed_recent import KeyedRecentTable
from cer_gpu.ceql.syntax import Name
from cer_gpu.columnar.columns import SelectedRows, as_type, take_rows
from cer_gpu.columnar.fields import array_of
from cer_gpu.engine.blocks import Batch, EventBlock
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.partition.partitions import PartitionKeys, Partitions, partitions_of
from cer_gpu.partition.shared import SharedPartitions, ViewOfPartitions
from cer_gpu.partition.step_keys import NUMBER_BITS, KeysByStep, numbers_within
from cer_gpu.planning.binding import Binding
from cer_gpu.runtime.counts import CountBuffers
from cer_gpu.runtime.matches import MatchBuffers
from cer_gpu.runtime.protocol import Runtime


class SymbolParts(Protocol):
    """The parts of the events of a symbol: `cer_gpu.runtime.progress.table.KeyedFunnelTable`."""

    columns: list[tuple[str, ...]]
    firsts: Int32
    parts: Int32


class StepKeys:
    """Keys over one schema: the keys of PARTITION BY, and one of each of several lists of columns.

    Parameters
    ----------
    table
        With the lists, of equal lengths; the columns at one place of them have a type in common.
    partition
        Keys of PARTITION BY.
    schema : pyarrow.Schema
    text
        The query, for error messages.

    Attributes
    ----------
    parts : list of pyarrow.DataType
        Types of the columns that identify keys.

    Raises
    ------
    QueryTypeError
        When columns at one place are of different kinds.
    """

    def __init__(self, table: SymbolParts, partition: PartitionKeys, schema: pa.Schema, text: str) -> None:
        self._table, self._partition = table, partition
        brackets = [tuple(map(Name, dict.fromkeys(names))) for names in zip(*table.columns, strict=True)]
        self.parts: list[Any] = [*partition.parts, *PartitionKeys(tuple(brackets), schema, text).types]

    def assign(
        self, batch: pa.RecordBatch, picked: SelectedRows, parts: list[pa.DataType], partitions: Partitions
    ) -> tuple[SelectedRows, Int32]:
        """Return the relevant events of a block once for each key that they have, with their partitions.

        Their symbols are then those of the parts.

        Parameters
        ----------
        batch
            Events of the block.
        picked
        parts
            Types of the columns that identify keys, to which others are cast.
        partitions
        """
        of_parts, rows = _rows_by_part(self._table, picked)
        n = len(rows)
        keys = self._arrays(batch, rows, of_parts[:, 0], parts)
        symbols, selected, ids, _ = partitions.assign(keys, of_parts[:, 1].copy(), np.arange(n, dtype=np.int32))
        return SelectedRows(symbols, rows[selected]), ids

    def _arrays(self, batch: pa.RecordBatch, rows: Int32, lists: Int32, parts: list[pa.DataType]) -> list[pa.Array]:
        """Return the columns that identify keys, for some rows, each with the number of its list."""
        n_of_partition = len(self._partition.parts)
        of_partition = self._partition.arrays(batch, parts[:n_of_partition])
        columns = [take_rows(key, pa.array(rows)) for key in of_partition]
        own = [np.flatnonzero(lists == number) for number in range(len(self._table.columns))]
        order = np.empty(len(rows), np.int64)
        order[np.concatenate(own)] = np.arange(len(rows))
        for place, kind in enumerate(parts[n_of_partition:]):
            pieces = []
            for names, chosen in zip(self._table.columns, own, strict=True):
                column = take_rows(array_of(batch, names[place]), pa.array(rows[chosen]))
                pieces.append(_without_nan(as_type(column, kind, f"the key {names[place]!r}")))
            columns.append(pa.concat_arrays(pieces).take(pa.array(order)))
        return columns


def _without_nan(key: pa.Array) -> pa.Array:
    """Return a key with NULL in place of NaN, which equals nothing."""
    return pc.if_else(pc.is_nan(key), pa.scalar(None, key.type), key) if pa.types.is_floating(key.type) else key


def _rows_by_part(table: SymbolParts | KeyedRecentTable, picked: SelectedRows) -> tuple[Int32, Int32]:
    """Return the parts of the symbols of some rows, shape (parts of all, 2), and the row of each."""
    begins = table.firsts[picked.symbols]
    counts = table.firsts[picked.symbols + 1] - begins
    before = np.cumsum(counts) - counts
    n = int(counts.sum())
    return table.parts[np.arange(n) - np.repeat(before - begins, counts)], np.repeat(picked.rows, counts)


class PartitionState(Protocol):
    """State of a stage, by partition."""

    def holds(self, n_partitions: int) -> Bools:
        """Return the mask of the first partitions that have state."""

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the partitions outside of `mask`, and renumber the remaining ones in their order."""


class Partitioner:
    """Assignment of the relevant events of one query to the partitions of PARTITION BY.

    Parameters
    ----------
    binding
        Binding to the schema of the first batch, which fixes the types of the keys.
    runtime
    states
        The stages other than the runtime whose state refers to partitions.
    options
        Its shard of the keys, and the position from which on matches are reported.
    step_keys
        Keys that depend on the steps that an event satisfies, or None if all events have the same.
    shared
        View on partitions that several queries share, or None if this query has its own.
    all_events
        True: events that are not relevant get partitions, too.
    numbered
        True: the events of each partition are numbered.

    Attributes
    ----------
    partitions : Partitions or ViewOfPartitions
    n_without_key : int
        Number of events that the query could use, and that have no key.
    """

    def __init__(
        self,
        binding: Binding,
        runtime: Runtime,
        states: Sequence[PartitionState],
        options: EvaluationOptions,
        *,
        step_keys: StepKeys | KeyRecords | None,
        shared: ViewOfPartitions | None,
        all_events: bool,
        numbered: bool,
    ) -> None:
        self._keys, self._types = binding.keys, binding.keys.types
        self._parts = binding.keys.parts if step_keys is None else step_keys.parts
        self._step_keys, self._runtime, self._states = step_keys, runtime, states
        self._all_events, self._numbered = all_events, numbered
        self.partitions: Partitions | ViewOfPartitions = shared or self._new_partitions(options.key_shard)
        self.n_without_key: int = 0
        # of threads with shards of the keys, one counts; of those with ranges of the stream, each counts its own events
        self._counts_keys = step_keys is None and (options.key_shard is None or options.key_shard[0] == 0)
        self._report_from = options.report_from

    def rebind(self, binding: Binding, step_keys: StepKeys | KeyRecords | None) -> None:
        """Read the keys of the next batches by the binding to another schema."""
        self._keys, self._step_keys = binding.keys, step_keys

    def _new_partitions(self, key_shard: tuple[int, int] | None = None) -> Partitions:
        return partitions_of(self._parts, key_shard, every=self._all_events, numbered=self._numbered)

    @property
    def records(self) -> KeyRecords | None:
        """Records of the events, or None if each is read once."""
        return self._step_keys if isinstance(self._step_keys, KeyRecords) else None

    @property
    def needs_all_events(self) -> bool:
        """True if events count in their partitions whether or not they are relevant."""
        return self._all_events or self._numbered

    def assign(self, block: EventBlock, selected: SelectedRows, *, all_rows: bool) -> tuple[SelectedRows, Int32, Int64]:
        """Find the partitions of the relevant events of a block.

        Parameters
        ----------
        block
        selected
            The relevant events.
        all_rows
            True: also of the other events, whose symbol is 0.

        Returns
        -------
        selected, partitions, ordinals
            The events that have a key, the partition (int32) of each, and its number in the partition (int64; empty
            unless they are numbered).
        """
        columns = block.columns
        if self.is_swept:
            self._drop_idle()
        self._count_without_key(columns.batch, selected.rows, block.first)
        if all_rows:
            symbols = np.zeros(columns.n_rows, np.int32)
            symbols[selected.rows] = selected.symbols
            selected = SelectedRows(symbols, np.arange(columns.n_rows, dtype=np.int32))
        keys = partial(self._keys.arrays, columns.batch, self._parts)
        ordinals = np.empty(0, np.int64)
        if self._step_keys is not None:
            assert isinstance(self.partitions, Partitions)
            selected, partitions = self._step_keys.assign(columns.batch, selected, self._parts, self.partitions)
        elif isinstance(self.partitions, Partitions):
            symbols, rows, partitions, ordinals = self.partitions.assign(keys(), selected.symbols, selected.rows)
            selected = SelectedRows(symbols, rows)
        else:
            selected, partitions, ordinals = self.partitions.assign(keys, selected)
        if self._runtime.keeps_partitions:
            self._runtime.reserve_partitions(self.partitions.n)
        return selected, partitions, ordinals

    def _count_without_key(self, batch: pa.RecordBatch, rows: Int32, first: int) -> None:
        """Count the events of some rows that have no key; row 0 of the batch is event `first`."""
        if self._counts_keys:
            own = rows if first >= self._report_from else rows[np.searchsorted(rows, self._report_from - first) :]
            self.n_without_key += self._keys.n_without(batch, own)

    def keys_at(self, ends: Int64, batch: Batch) -> list[pa.Array]:
        """Return the keys of the events, or of their records, of a batch at which matches end."""
        if self.records is not None:
            return self.records.at(ends)
        return self._keys.at(batch.events, batch.rows_at(ends), self._types)

    # ---- partitions that hold nothing -----------------------------------------------------------------------

    @property
    def is_swept(self) -> bool:
        """True if the next block drops partitions of this query, and renumbers the others."""
        return isinstance(self.partitions, Partitions) and self.partitions.wants_sweep

    def shares(self, partitions: SharedPartitions) -> bool:
        """Return True if the query has a view on these partitions."""
        return isinstance(self.partitions, ViewOfPartitions) and self.partitions.shared is partitions

    def own_partitions(self) -> None:
        """Take over the shared partitions, and drop those without state of this query."""
        own = self._new_partitions()
        own.restore(*self.partitions.snapshot())
        self.partitions = own
        self._drop_idle()

    def busy(self, n: int) -> Bools:
        """Return the mask of the first `n` partitions that hold something."""
        if self._runtime.keeps_partitions:
            self._runtime.reserve_partitions(n)
        busy: Bools = ~self._runtime.idle(n)
        for state in self._states:
            busy |= state.holds(n)
        return busy

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the state of the partitions outside of `mask`, and renumber the remaining ones in their order."""
        for state in self._states:
            state.keep_partitions(mask)
        self._runtime.keep_partitions(mask)

    def _drop_idle(self) -> None:
        assert isinstance(self.partitions, Partitions)
        busy = self.busy(self.partitions.n)
        self.partitions.keep(busy)
        self.keep_partitions(busy)

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the partitions of this query to a checkpoint; the set adds those that are shared."""
        if isinstance(self.partitions, Partitions):
            arrays, strings = self.partitions.snapshot()
            state.facts["owns_partitions"] = True
            state.add_arrays("partitions", arrays)
            state.add_strings("texts", strings)

    def restore(self, state: NamedState) -> None:
        """Continue from a checkpoint."""
        if state.facts.get("owns_partitions"):
            if not isinstance(self.partitions, Partitions):
                self.partitions = self._new_partitions()
            self.partitions.restore(state.part("partitions"), state.strings("texts"))


class KeyRecords:
    """Maker of the records of the events of blocks, and their keys until the end of the batch.

    Parameters
    ----------
    table
        Tells the parts of symbols, and the keys of each.
    keys
        Key columns over the schema of the batches.

    Attributes
    ----------
    parts : list of pyarrow.DataType
        Types of the columns that tell keys apart.
    numbers : int64 array
        Number of each record of the last block among those of its event.
    """

    def __init__(self, table: KeyedRecentTable, keys: KeysByStep) -> None:
        self._table, self._keys = table, keys
        self.parts: list[Any] = keys.parts
        self.numbers: Int64 = np.empty(0, np.int64)
        self._of_block: list[pa.Array] = []
        self._records_of_batch: list[tuple[Int64, list[pa.Array]]] = []

    def assign(
        self, batch: pa.RecordBatch, picked: SelectedRows, parts: list[pa.DataType], partitions: Partitions
    ) -> tuple[SelectedRows, Any]:
        """Return the relevant events of a block once for each key that they have, with their partitions.

        Parameters
        ----------
        batch
            Events of the block.
        picked
        parts
            Types of the columns that tell keys apart, to which others are cast.
        partitions
        """
        of_parts, rows = _rows_by_part(self._table, picked)
        owners, columns = [np.empty(0, np.int64)], list[list[pa.Array]]()
        for number, role in enumerate(self._table.roles):
            own = np.flatnonzero(of_parts[:, 0] == number)
            if len(own):
                expanded = self._keys.expand(batch, rows[own], role, parts)
                owners.append(own[expanded.rows])
                columns.append(expanded.keys)
        of_part = np.concatenate(owners)
        order = np.argsort(of_part, kind="stable")
        of_part = of_part[order]
        if columns:
            keys = [pa.concat_arrays(pieces).take(pa.array(order)) for pieces in zip(*columns, strict=True)]
        else:
            keys = [pa.array([], kind) for kind in parts]
        rows, n = rows[of_part], len(of_part)
        read = of_parts[of_part, 1].astype(np.int32)
        read, assigned, ids, _ = partitions.assign(keys, read, np.arange(n, dtype=np.int32))
        self.numbers = numbers_within(rows)[assigned]
        self._of_block = [key.take(pa.array(assigned)) for key in keys]
        return SelectedRows(read, rows[assigned]), ids

    def note(self, positions: Int64) -> None:
        """Note the positions of the records of the last block."""
        self._records_of_batch.append((positions.copy(), self._of_block))

    def at(self, ends: Int64) -> list[pa.Array]:
        """Return the keys, as results show them, of records of the batch at some positions."""
        positions = np.concatenate([np.empty(0, np.int64), *(each for each, _ in self._records_of_batch)])
        rows = pa.array(np.searchsorted(positions, ends))
        pieces = zip(*(keys for _, keys in self._records_of_batch), strict=True)
        columns = [pa.concat_arrays(each) for each in pieces] or [pa.array([], kind) for kind in self.parts]
        return self._keys.shown([column.take(rows) for column in columns])

    def end_batch(self) -> None:
        """Forget the keys of the records of a batch."""
        self._records_of_batch = []


def of_records(positions: Int64, numbers: Int64) -> Int64:
    """Return positions of records, of the positions of their events, and their numbers there."""
    return (positions << NUMBER_BITS) | numbers


def first_record(position: int) -> int:
    """Return the position of the first record of an event."""
    return min(position, np.iinfo(np.int64).max >> NUMBER_BITS) << NUMBER_BITS


def of_events(positions: Int64) -> Int64:
    """Return the positions of the events of records."""
    return positions >> NUMBER_BITS


def with_events(results: Any) -> Any:
    """Return what was found with positions of events in place of those of records."""
    if isinstance(results, CountBuffers):
        return replace(results, ends=of_events(results.ends))
    assert isinstance(results, MatchBuffers)
    return replace(results, spans=of_events(results.spans), positions=of_events(results.positions))
