"""Batches joined to larger ones, where each batch costs some calls for every query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

MOST_BYTES = 1 << 29
"""Bytes of batches that are joined to one."""


def joined_batches(batches: Iterable[pa.RecordBatch], n_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of at most so many rows, unless a batch has more by itself."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if held and not (batch.schema.equals(held[0].schema) and rows <= n_rows and size <= MOST_BYTES):
            yield from _joined(held)
            held, rows, size = [], batch.num_rows, batch.nbytes
        held.append(batch)
    yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) < 2:
        yield from batches
        return
    table = pa.Table.from_batches(batches)
    if any(pa.types.is_dictionary(field.type) for field in table.schema):
        table = table.unify_dictionaries()
    yield from table.combine_chunks().to_batches()


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
