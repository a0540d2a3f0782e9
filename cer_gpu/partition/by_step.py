"""Keys of events that depend on the step that they satisfy, for funnels (`cer_gpu.runtime.progress.keyed`)."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Int32
from cer_gpu.ceql.syntax import Name
from cer_gpu.columnar.columns import as_type, take_rows
from cer_gpu.columnar.fields import array_of
from cer_gpu.columnar.rows import SelectedRows
from cer_gpu.partition.partitions import PartitionKeys, Partitions


class SymbolParts(Protocol):
    """The parts of the events of a symbol: `cer_gpu.runtime.progress.keyed.KeyedFunnelTable`."""

    columns: list[tuple[str, ...]]
    firsts: Int32
    parts: Int32


class StepKeys:
    """Keys over one schema: those of PARTITION BY, and one of each of several lists of columns.

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
        Types of the columns that tell keys apart.

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
            Types of the columns that tell keys apart, to which others are cast.
        partitions
        """
        table, symbols = self._table, picked.symbols
        begins = table.firsts[symbols]
        counts = table.firsts[symbols + 1] - begins
        before = np.cumsum(counts) - counts
        n = int(counts.sum())
        of_parts = table.parts[np.arange(n) - np.repeat(before - begins, counts)]
        rows = np.repeat(picked.rows, counts)
        keys = self._arrays(batch, rows, of_parts[:, 0], parts)
        symbols, kept, ids, _ = partitions.assign(keys, of_parts[:, 1].copy(), np.arange(n, dtype=np.int32))
        return SelectedRows(symbols, rows[kept]), ids

    def _arrays(self, batch: pa.RecordBatch, rows: Int32, lists: Int32, parts: list[pa.DataType]) -> list[pa.Array]:
        """Return the columns that tell keys apart, for some rows, given the number of the list of each."""
        n_of_partition = len(self._partition.parts)
        of_partition = self._partition.arrays(batch, parts[:n_of_partition])
        found = [take_rows(key, pa.array(rows)) for key in of_partition]
        own = [np.flatnonzero(lists == number) for number in range(len(self._table.columns))]
        order = np.empty(len(rows), np.int64)
        order[np.concatenate(own)] = np.arange(len(rows))
        for place, kind in enumerate(parts[n_of_partition:]):
            pieces = []
            for names, chosen in zip(self._table.columns, own, strict=True):
                column = take_rows(array_of(batch, names[place]), pa.array(rows[chosen]))
                pieces.append(_without_nan(as_type(column, kind, f"the key {names[place]!r}")))
            found.append(pa.concat_arrays(pieces).take(pa.array(order)))
        return found


def _without_nan(key: pa.Array) -> pa.Array:
    """Return a key with NULL in place of NaN, which equals nothing."""
    return pc.if_else(pc.is_nan(key), pa.scalar(None, key.type), key) if pa.types.is_floating(key.type) else key
