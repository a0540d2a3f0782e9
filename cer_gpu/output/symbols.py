"""The output of `cer_gpu.forecast`: a row for each event, with what its state is made of."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from cer_gpu.output.form import Columns, Fields, Output
from cer_gpu.runtime.reading.symbols import EventBuffers

PARTITION, STATE_CODE, CLOCK = " partition", " state", " clock"
"""Columns beside the keys, by names that no key is likely to have."""


def without_states(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the positions, times and keys of rows alone."""
    return rows.select([name for name in rows.schema.names if name not in (PARTITION, STATE_CODE, CLOCK)])


class EventsRead(Output):
    """A row for each event that the taker of the runtime returns: its position, time and keys, and the state after it.

    No query is asked for it by name: `cer_gpu.planning.symbols.with_symbols` makes the plans that have it.
    """

    name = "symbols"
    row = "event"
    row_each = False
    positions: ClassVar[tuple[str, ...]] = ("end",)
    each_event = True

    @classmethod
    def _fields(cls, columns: Columns) -> Fields:
        times = [] if columns.time_type is None else [("end_time", columns.time_type)]
        own = [(PARTITION, pa.int32()), (STATE_CODE, pa.int64()), (CLOCK, pa.uint64())]
        return [("end", pa.int64()), *times, *columns.keys, *own]

    def rows(self, found: EventBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each event."""
        own = [pa.array(each) for each in (found.partitions, found.states, found.clocks)]
        columns = [pa.array(found.ends), *self._times(found.times), *keys, *own]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
