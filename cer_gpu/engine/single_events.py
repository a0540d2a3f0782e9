"""Results of a query whose matches are single events: they are the rows of its guard, and need no runtime."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int32
from cer_gpu.columnar.clocks import Clock
from cer_gpu.engine.blocks import EventBlock
from cer_gpu.output.form import Output
from cer_gpu.output.retention import Retained
from cer_gpu.planning.binding import Binding
from cer_gpu.planning.physical import PhysicalPlan
from cer_gpu.runtime.matches import OUTPUT_ROWS, MatchBuffers

_NO_MARKS: Int32 = np.empty(0, np.int32)


class SingleEvents:
    """Results of a query with `PhysicalPlan.is_of_single_events`.

    Parameters
    ----------
    physical
    first
        Binding to the schema of the first batch, which fixes the types of the results.

    Attributes
    ----------
    output : Output
    """

    def __init__(self, physical: PhysicalPlan, first: Binding) -> None:
        plan = physical.plan
        self._time_column = plan.time_column
        retains = physical.output.retains(plan.head, plan.having)
        self._retained = Retained(*first.retained(physical.output)) if retains else None
        self.output: Output = physical.output(first.result_columns(physical.output), [], self._retained)

    def results(
        self, rows: Int32, block: EventBlock, clocks: dict[str, Clock], report_from: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the results of the events at some rows of a block, from position `report_from` on."""
        for begin in range(0, len(rows), OUTPUT_ROWS):
            yield self._rows_of_events(rows[begin : begin + OUTPUT_ROWS], block, clocks, report_from)

    def _rows_of_events(
        self, rows: Int32, block: EventBlock, clocks: dict[str, Clock], report_from: int
    ) -> pa.RecordBatch:
        positions = block.first + rows.astype(np.int64) if block.given is None else block.given[rows]
        if len(positions) and positions[0] < report_from:
            kept = positions >= report_from
            rows, positions = rows[kept], positions[kept]
        spans, n = np.stack([positions, positions]), len(positions)
        times = np.empty((2, 0), np.int64)
        if self._time_column is not None:
            times = np.stack([clocks[self._time_column].at(rows, block.times[self._time_column]).view(np.int64)] * 2)
        if self._retained is not None:
            self._retained.add(positions, block.columns.batch, rows)
        found = MatchBuffers(spans, times, np.arange(n + 1, dtype=np.int32), positions, _NO_MARKS)
        results = self.output.rows(found, [])
        if self._retained is not None:
            self._retained.keep_from(np.iinfo(np.int64).max)
        return results
