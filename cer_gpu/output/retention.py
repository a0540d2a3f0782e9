"""Retention of the rows that future matches may contain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Bools, Int32, Int64
from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.columns import as_type, check_movable, take_rows
from cer_gpu.columnar.fields import array_of, attribute_type
from cer_gpu.errors import EventsError

TRIM_FROM = 1 << 16
"""Minimum number of rows for a trim, which drops those that no future match can contain."""
MANY_TAKEN = 16
"""Chunks are merged and indexed before a lookup of at least one in so many rows."""
SPREAD = 4
"""Maximum number of positions per row for an index by position; sparser positions use binary search."""


class Retained:
    """Retained rows, by position.

    Parameters
    ----------
    schema : pyarrow.Schema
        Schema of the retained attributes.
    attributes
        Columns and fields of the events to retain.

    Raises
    ------
    EventsError
        When Arrow cannot move the values of a column.
    """

    def __init__(self, schema: pa.Schema, attributes: Sequence[str]) -> None:
        for field in schema:
            check_movable(field.name, field.type, "listed")
        self.schema = schema
        self._attributes = attributes
        self._positions: list[Int64] = []
        self._rows: list[pa.RecordBatch] = []
        self._trim_at = TRIM_FROM
        # positions of a chunk, and the index of the row at each position from the first on
        self._number_of: tuple[Int64, Int32] | None = None

    @property
    def n_rows(self) -> int:
        """Number of retained rows."""
        return sum(map(len, self._positions))

    @property
    def wants_trim(self) -> bool:
        """True if there are many more rows than after the last trim."""
        return self.n_rows >= self._trim_at

    def add(self, positions: Int64, batch: pa.RecordBatch, rows: Int32) -> None:
        """Retain rows of a batch; positions ascend from call to call."""
        if not len(rows) or not self.schema.names:
            return
        for attribute in self._attributes:
            if attribute_type(batch.schema, attribute) is None:
                raise EventsError(f"the events have no column {dotted(attribute)!r} any more (or more than one)")
        chosen = pa.array(rows)
        columns = [
            as_type(take_rows(array_of(batch, attribute), chosen), field.type, f"column {field.name!r}")
            for attribute, field in zip(self._attributes, self.schema, strict=True)
        ]
        self._positions.append(positions.copy())
        self._rows.append(pa.RecordBatch.from_arrays(columns, schema=self.schema))
        # merge chunks of similar size: chunks stay few, and each row is copied a logarithmic number of times
        while len(self._rows) > 1 and len(self._positions[-2]) < 2 * len(self._positions[-1]):
            self._positions[-2:] = [np.concatenate(self._positions[-2:])]
            self._rows[-2:] = [pa.concat_batches(self._rows[-2:])]

    def take(self, positions: Int64) -> pa.StructArray:
        """Return the rows at positions, which must all be retained."""
        if not self.schema.names:
            return pa.array([{}] * len(positions), pa.struct([]))
        rows = pa.Table.from_batches(self._rows, self.schema).take(pa.array(self._rows_at(positions)))
        columns = [pa.concat_arrays(c.chunks) if c.num_chunks else pa.array([], c.type) for c in rows.columns]
        return pa.StructArray.from_arrays(columns, fields=list(self.schema))

    def take_attribute(self, positions: Int64, attribute: int) -> pa.Array:
        """Return one attribute of the rows at positions, which must all be retained."""
        rows = pa.array(self._rows_at(positions))
        chunks = [batch.column(attribute) for batch in self._rows]
        taken = pa.chunked_array(chunks, self.schema.field(attribute).type).take(rows)
        return pa.concat_arrays(taken.chunks) if taken.num_chunks else pa.array([], taken.type)

    def _rows_at(self, positions: Int64) -> Int64 | Int32:
        """Return the indices of the rows at positions."""
        if MANY_TAKEN * len(positions) >= self.n_rows and len(self._rows) > 1:
            self._positions, self._rows = [np.concatenate(self._positions)], [pa.concat_batches(self._rows)]
        if len(self._rows) == 1 and MANY_TAKEN * len(positions) >= len(self._positions[0]) and len(positions):
            chunk = self._positions[0]
            span = int(chunk[-1] - chunk[0]) + 1
            if span <= SPREAD * len(chunk):
                if self._number_of is None or self._number_of[0] is not chunk:
                    numbers = np.empty(span, np.int32)
                    numbers[chunk - chunk[0]] = np.arange(len(chunk), dtype=np.int32)
                    self._number_of = chunk, numbers
                rows_of: Int32 = self._number_of[1].take(positions - chunk[0])
                return rows_of
        rows, before = np.empty(len(positions), np.int64), 0
        for chunk in self._positions:  # few chunks; positions ascend within and across them
            here = (positions >= chunk[0]) & (positions <= chunk[-1])
            rows[here] = before + np.searchsorted(chunk, positions[here])
            before += len(chunk)
        return rows

    def between(self, first: int, last: int) -> tuple[Int64, pa.StructArray]:
        """Return the positions from `first` to `last` of retained rows, and the rows."""
        positions, rows = [], []
        for chunk, batch in zip(self._positions, self._rows, strict=True):
            low, high = np.searchsorted(chunk, [first, last + 1])
            if low < high:
                positions.append(chunk[low:high])
                rows.append(batch.slice(low, high - low))
        if not rows:
            return np.empty(0, np.int64), pa.array([], pa.struct(list(self.schema)))
        merged = rows[0] if len(rows) == 1 else pa.concat_batches(rows)
        return np.concatenate(positions), pa.StructArray.from_arrays(merged.columns, fields=list(self.schema))

    def keep(self, positions: Int64) -> None:
        """Drop all rows but those at positions (ascending)."""
        self._filter([np.isin(chunk, positions, assume_unique=True) for chunk in self._positions])

    def keep_from(self, position: int) -> None:
        """Drop all rows before a position."""
        self._filter([chunk >= position for chunk in self._positions])

    def _filter(self, masks: list[Bools]) -> None:
        self._number_of = None
        self._rows = [rows.filter(pa.array(mask)) for rows, mask in zip(self._rows, masks, strict=True) if mask.any()]
        self._positions = [chunk[mask] for chunk, mask in zip(self._positions, masks, strict=True) if mask.any()]
        self._trim_at = max(TRIM_FROM, 2 * self.n_rows)

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[Int64, pa.Table]:
        """Return positions and rows."""
        positions = np.concatenate(self._positions) if self._positions else np.empty(0, np.int64)
        return positions, pa.Table.from_batches(self._rows, self.schema)

    def restore(self, positions: Int64, rows: pa.Table) -> None:
        """Replace all rows by those of a snapshot."""
        self._positions, self._rows = [], []
        if len(positions):
            self._positions = [positions]
            self._rows = [pa.concat_batches(rows.to_batches())]
