"""Records of events by keys: an event that belongs to several partitions is read once for each.

A record has a position of its own, in which the number of the record among those of its event stands behind the
position of the event, so that what runtimes and pending matches know by position they know by key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.automaton.keyed_recent import KeyedRecentTable
from cer_gpu.columnar.columns import SelectedRows
from cer_gpu.partition.partitions import Partitions
from cer_gpu.partition.step_keys import NUMBER_BITS, KeysByStep, numbers_within
from cer_gpu.runtime.counts import CountBuffers
from cer_gpu.runtime.matches import MatchBuffers


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
        table, symbols = self._table, picked.symbols
        begins = table.firsts[symbols]
        counts = table.firsts[symbols + 1] - begins
        before = np.cumsum(counts) - counts
        n_parts = int(counts.sum())
        of_parts = table.parts[np.arange(n_parts) - np.repeat(before - begins, counts)]
        rows = np.repeat(picked.rows, counts)
        owners, columns = [np.empty(0, np.int64)], list[list[pa.Array]]()
        for number, role in enumerate(table.roles):
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
