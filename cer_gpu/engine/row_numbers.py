"""Row numbers of the input as it came, for the positions of a stream in another order.

Positions within the engine count the events in the order in which they are evaluated.  A result tells the rows of the
input, which are retained for as long as a complex event to come may hold the event.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.engine.blocks import Batch
from cer_gpu.order.rows import ROW_COLUMN
from cer_gpu.output.outputs import Output
from cer_gpu.output.retention import Retained

Int64 = npt.NDArray[np.int64]


class RowNumbers:
    """Rows of the input, by position.

    Parameters
    ----------
    output
        Output whose positions are exchanged for rows.
    """

    def __init__(self, output: Output) -> None:
        self._columns = output.columns_of_positions
        # what is only counted, or only ends, names no earlier event
        whole = not output.counted and output.most_at_an_end != 1
        self.retained = Retained(pa.schema([("row", pa.int64())]), [ROW_COLUMN]) if whole else None

    def add(self, positions: Int64, batch: pa.RecordBatch, rows: npt.NDArray[np.int32]) -> None:
        """Retain the row numbers of relevant events."""
        if self.retained is not None:
            self.retained.add(positions, batch, rows)

    def exchange(self, results: pa.RecordBatch, batch: Batch) -> pa.RecordBatch:
        """Return results that end in a batch, with rows of the input in place of positions."""
        for i in self._columns:
            column = results.column(i)
            made = self._list(column, batch) if pa.types.is_list(column.type) else self._rows(column, batch)
            results = results.set_column(i, results.schema.field(i), made)
        return results

    def _list(self, column: pa.ListArray, batch: Batch) -> pa.ListArray:
        begin = column.offsets[0].as_py()
        offsets = column.offsets if not begin else pa.array(column.offsets.to_numpy() - begin)
        return pa.ListArray.from_arrays(offsets, self._rows(column.flatten(), batch))

    def _rows(self, positions: pa.Array, batch: Batch) -> pa.Array:
        known = positions.drop_null().to_numpy()
        if self.retained is not None:
            rows: Any = self.retained.take(known).field(0)
        else:
            rows = batch.events.column(ROW_COLUMN).take(pa.array(batch.rows_at(known)))
        if not positions.null_count:
            return rows
        valid = np.asarray(positions.is_valid())
        places = np.cumsum(valid) - 1
        return rows.take(pa.array(places, mask=~valid))
