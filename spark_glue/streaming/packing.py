"""Events and matches as Arrow bytes in rows of Spark: what pandas would change stays as it is.

Spark's stateful operator hands rows to Python by pandas, one at a time, where an integer with NULL becomes a float and
times get other units.  A row that holds the events of a group as one Arrow record batch avoids both, and moves some
thousand events at the cost of one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.fields import batch_of
from spark_glue.streaming.stream_evaluation import check_times

GROUP, BLOB = "group", "blob"
PACKED = f"{GROUP} int, {BLOB} binary"
"""Schema of packed events, as Spark writes it."""
PACK_ROWS, PACK_BYTES = 1 << 17, 1 << 26
"""Events, and bytes of events, that a task packs at once."""
FOUND_ROWS = 1 << 16
"""Matches of a packed row."""


@dataclass(frozen=True)
class Pack:
    """Function for ``mapInArrow`` from events, with their group first, to packed events.

    Attributes
    ----------
    schema : pyarrow.Schema
        Schema of the columns after the group.
    attributes : tuple of str
        Columns and fields of the query that they are.
    time : str
        The attribute among them that tells the time.
    """

    schema: pa.Schema
    attributes: tuple[str, ...]
    time: str

    @property
    def packed(self) -> pa.Schema:
        """Schema of the packed events."""
        return batch_of(self.attributes, [pa.nulls(0, field.type) for field in self.schema]).schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield packed events, a row for each group of some events; those without a group are left out."""
        held: list[pa.RecordBatch] = []
        n_rows = n_bytes = 0
        for batch in batches:
            held.append(batch)
            n_rows, n_bytes = n_rows + batch.num_rows, n_bytes + batch.nbytes
            if n_rows >= PACK_ROWS or n_bytes >= PACK_BYTES:
                yield from self._pack(pa.Table.from_batches(held))
                held, n_rows, n_bytes = [], 0, 0
        if n_rows:
            yield from self._pack(pa.Table.from_batches(held))

    def events(self, table: pa.Table) -> pa.RecordBatch:
        """Return the events of rows without their group, in the types that the query sees."""
        columns = [
            pa.concat_arrays(column.chunks).cast(field.type) if column.num_chunks else pa.nulls(0, field.type)
            for column, field in zip(table.columns, self.schema, strict=True)
        ]
        check_times(columns[self.attributes.index(self.time)], self.time)
        return batch_of(self.attributes, columns)

    def _pack(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        groups, events = table.column(0).combine_chunks(), self.events(table.remove_column(0))
        if groups.null_count:
            kept = groups.is_valid()
            groups, events = groups.drop_null(), events.filter(kept)
        numbers = groups.to_numpy(zero_copy_only=False)
        order = np.argsort(numbers, kind="stable")
        numbers, events = numbers[order], events.take(pa.array(order))
        begins = np.flatnonzero(np.diff(numbers, prepend=-1))
        blobs = [
            events.slice(begin, end - begin).serialize().to_pybytes()
            for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(numbers)], strict=True)
        ]
        if blobs:
            columns = [pa.array(numbers[begins], pa.int32()), pa.array(blobs, pa.binary())]
            yield pa.record_batch(columns, [GROUP, BLOB])


@dataclass(frozen=True)
class Unpack:
    """Function for ``mapInArrow`` from packed matches to matches of a schema."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the matches."""
        for batch in batches:
            for blob in batch.column(0):
                yield unpacked(blob.as_py(), self.schema)


def packed_state(found: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[bytes]:
    """Yield matches as packed rows of bounded size.

    Parameters
    ----------
    found
    schema
        Their schema; only the nullability of its fields may be another one.
    """
    held: list[pa.RecordBatch] = []
    n_rows = n_bytes = 0
    for batch in found:
        for piece in _pieces(batch.cast(schema)):
            held.append(piece)
            n_rows, n_bytes = n_rows + piece.num_rows, n_bytes + piece.nbytes
            if n_rows >= FOUND_ROWS or n_bytes >= PACK_BYTES:
                yield pa.concat_batches(held).serialize().to_pybytes()
                held, n_rows, n_bytes = [], 0, 0
    if n_rows:
        yield pa.concat_batches(held).serialize().to_pybytes()


def unpacked(blob: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return the record batch of a packed row, given its schema."""
    return pa.ipc.read_record_batch(pa.py_buffer(blob), schema)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for begin in range(0, batch.num_rows, FOUND_ROWS):
        yield batch.slice(begin, FOUND_ROWS)
