"""Batches joined to larger ones, where each batch costs some calls, and batches made of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cer_gpu.columnar.columns import is_string
from cer_gpu.errors import EventsError, did_you_mean

MAX_BYTES = 1 << 29
"""Bytes of batches that are joined to one."""


def coalesce_batches(batches: Iterable[pa.RecordBatch], n_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of at most `n_rows`, unless an input batch has more."""
    buffered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if buffered and not (batch.schema.equals(buffered[0].schema) and rows <= n_rows and size <= MAX_BYTES):
            yield from _join_buffered(buffered)
            buffered, rows, size = [], batch.num_rows, batch.nbytes
        buffered.append(batch)
    yield from _join_buffered(buffered)


def _join_buffered(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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


def constant_column(value: pa.Scalar, n_rows: int) -> pa.Array:
    """Return a column of one value; a string as a dictionary, so that predicates evaluate it once."""
    if is_string(value.type) and value.is_valid:
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), n_rows), pa.array([value.as_py()]))
    return pa.repeat(value, n_rows)


def batch_of_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows, which are mappings from names of columns to values, as a batch of a schema.

    Raises
    ------
    EventsError
        When a row names no column of the schema, or a value does not fit its column.
    """
    names = frozenset(schema.names)
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise EventsError(
                f"row {number}: expected a mapping from names of columns to values, got {type(row).__name__}"
            )
        for name in row:
            if name not in names:
                hint = did_you_mean(str(name), names, "columns")
                raise EventsError(
                    f"row {number}: the events have no column {name!r}" + (f"\nhint: {hint}" if hint else "")
                )
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        try:
            columns.append(pa.array(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            number = next(k for k, value in enumerate(values) if not _fits_type(value, field.type))
            raise EventsError(
                f"row {number}: {values[number]!r} does not fit column {field.name!r}, which is {field.type}: {error}"
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fits_type(value: object, data_type: pa.DataType) -> bool:
    try:
        pa.array([value], data_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True
