"""The output "funnel": how far each start of a chain gets."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from cer_gpu.output.form import Columns, Fields, Output
from cer_gpu.runtime.progress.buffers import STOPPED, ProgressBuffers

_POSITIONS = pa.list_(pa.int64())


class ProgressOutput(Output):
    """A row for each event that satisfies the first step: the steps reached, at the earliest events, and its stop.

    `stopped` is one of `STOPPED`: "complete", "window", "barred" by the event `barred_by`, or "end" of the events.
    """

    name = "funnel"
    row = "start"
    row_each = False
    positions: ClassVar[tuple[str, ...]] = ("start", "positions", "barred_by")
    by_starts = True

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        time_type = columns.time_type
        times: Fields = [] if time_type is None else [("times", pa.list_(time_type))]
        return [
            ("start", pa.int64()),
            *columns.keys,
            ("step", pa.int64()),
            ("positions", _POSITIONS),
            *times,
            ("stopped", pa.string()),
            ("barred_by", pa.int64()),
        ]

    def rows(self, found: ProgressBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each start."""
        offsets = pa.array(found.offsets)
        columns = [
            pa.array(found.positions[found.offsets[:-1]]),
            *keys,
            pa.array(np.diff(found.offsets).astype(np.int64)),
            pa.ListArray.from_arrays(offsets, pa.array(found.positions)),
            *(pa.ListArray.from_arrays(offsets, times) for times in self._time_columns(found.times)),
            pa.array(STOPPED, pa.string()).take(pa.array(found.states)),
            pa.array(found.barring, mask=found.barring < 0),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
