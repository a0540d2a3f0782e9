"""Row numbers of the input as it came, for the positions of a stream in another order.

Positions within the engine count the events in the order in which they are evaluated.  A result tells the rows of the
input, which are retained for as long as a complex event to come may hold the event.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int32, Int64
from cer_gpu.columnar.fields import array_of
from cer_gpu.engine.blocks import Batch
from cer_gpu.order.rows import ROW_COLUMN
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.output.form import Output
from cer_gpu.output.retention import Retained


class RowNumbers:
    """Rows of the input, by position.

    Parameters
    ----------
    output
        Output whose positions are exchanged for rows.
    names_streams
        True: rows are those of several streams, which the results name.
    waits
        True: complex events are reported behind the batch in which they end.

    Attributes
    ----------
    retained : Retained or None
        Rows, and their streams; None: results name only the events that end them.
    """

    def __init__(self, output: Output, names_streams: bool, *, waits: bool = False) -> None:
        self._columns, self._schema = output.columns_of_positions, output.result_schema
        self._attributes = [ROW_COLUMN, STREAM_COLUMN] if names_streams else [ROW_COLUMN]
        kinds = [pa.int64(), pa.string()]
        schema = pa.schema(list(zip(self._attributes, kinds, strict=False)))
        only_ends = (output.counted or output.most_at_an_end == 1) and not waits
        self.retained: Retained | None = None if only_ends else Retained(schema, self._attributes)

    def add(self, positions: Int64, batch: pa.RecordBatch, rows: Int32) -> None:
        """Retain the row numbers of relevant events."""
        if self.retained is not None:
            self.retained.add(positions, batch, rows)

    def exchange(self, results: pa.RecordBatch, batch: Batch | None) -> pa.RecordBatch:
        """Return results that end in a batch (None: they waited), with rows of the input in place of positions."""
        columns, streams = results.columns, []
        for i in self._columns:
            is_list = pa.types.is_list(columns[i].type)
            made = self._of(columns[i].flatten() if is_list else columns[i], batch)
            if is_list:
                begin = columns[i].offsets[0].as_py() if len(columns[i]) else 0
                offsets = pa.array(columns[i].offsets.to_numpy() - begin)
                made = [pa.ListArray.from_arrays(offsets, column) for column in made]
            columns[i] = made[0]
            streams += made[1:]
        return pa.RecordBatch.from_arrays([*columns, *streams], schema=self._schema)

    def _of(self, positions: pa.Array, batch: Batch | None) -> list[pa.Array]:
        """Return the rows at positions, and their streams if these are named; NULL stays NULL."""
        known = positions.drop_null().to_numpy()
        if self.retained is not None:
            columns: list[pa.Array] = self.retained.take(known).flatten()
        else:
            assert batch is not None
            rows = pa.array(batch.rows_at(known))
            columns = [array_of(batch.events, name).take(rows) for name in self._attributes]
            columns = [c.cast(pa.string()) if pa.types.is_dictionary(c.type) else c for c in columns]
        if positions.null_count:
            valid = np.asarray(positions.is_valid())
            places = pa.array(np.cumsum(valid) - 1, mask=~valid)
            columns = [column.take(places) for column in columns]
        return columns
