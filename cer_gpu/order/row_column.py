"""Row numbers of the input as it came, which events keep on their way into another order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cer_gpu.errors import EventsError
from cer_gpu.io.source import Source

ROW_COLUMN = "$row"
"""The column of reordered or merged events with the number of each in its own input: int64, from 0."""


def with_rows(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Return a batch with the row numbers of its events from `first` on, unless it has such a column."""
    if ROW_COLUMN in batch.schema.names:
        return batch
    rows = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
    return batch.append_column(pa.field(ROW_COLUMN, pa.int64()), rows)


def check_no_rows(schema: pa.Schema) -> None:
    """Refuse events that have a column of this name.

    Raises
    ------
    EventsError
    """
    if ROW_COLUMN in schema.names:
        raise EventsError(
            f"the events have a column {ROW_COLUMN!r}, which is what the column of their row numbers is called\n"
            "hint: rename it"
        )


def without_rows(source: Source) -> Source:
    """Return the same events without row numbers, so that positions count them in the order in which they are read."""
    if ROW_COLUMN not in source.schema.names:
        return source
    schema = source.schema.remove(source.schema.names.index(ROW_COLUMN))
    return Source(schema, source.batches, source.n_rows, remarks=source.remarks, notes=source.notes)
