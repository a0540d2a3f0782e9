"""The last events of substreams, and the partial matches that are under way after them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Int64
from cer_gpu.backend.forecasts.states import AGES, mark_last
from cer_gpu.columnar.columns import numbers_of
from cer_gpu.columnar.memory import Scratch, read_only
from cer_gpu.engine.options import EvaluationOptions
from cer_gpu.errors import OptionError
from cer_gpu.forecast.reading import FollowedEvents, StateReader, every_event, read_rows, readable_again
from cer_gpu.output.symbols import CLOCK, PARTITION, STATE_CODE
from cer_gpu.runtime.reading.symbols import EventBuffers

_FEW = 1 << 16
"""Rows of last events that are gathered before those are dropped that are no longer the last ones."""


class LastOfEach:
    """Choice of the last event of each substream in each block."""

    def __init__(self) -> None:
        self._seen, self._blocks, self._marks = np.zeros(0, np.int64), 0, Scratch(np.bool_)

    def __call__(self, events: FollowedEvents) -> EventBuffers:
        """Return the last events of a block."""
        n = len(events.states)
        if not len(events.partitions):
            return events.at(slice(max(n - 1, 0), n))
        if events.n_partitions > len(self._seen):
            self._seen = np.zeros(2 * events.n_partitions, np.int64)
        self._blocks += 1
        marks = self._marks.empty(n)
        mark_last(read_only(events.partitions), self._seen, self._blocks, marks)
        return events.at(np.flatnonzero(marks))


def last_rows(read: Iterable[pa.RecordBatch], reader: StateReader) -> pa.RecordBatch:
    """Return the last of the rows of each substream, in the order of the rows."""
    gathered, n, most = list[pa.RecordBatch](), 0, _FEW
    for rows in read:
        gathered.append(rows)
        n += rows.num_rows
        if n > most:
            gathered = [_lasts(gathered)]
            n = gathered[0].num_rows
            most = 2 * n + _FEW
    return _lasts(gathered or [reader.no_rows])


def _lasts(gathered: list[pa.RecordBatch]) -> pa.RecordBatch:
    rows = pa.concat_batches(gathered)
    partitions = numbers_of(rows.column(PARTITION))
    _, back = np.unique(partitions[::-1], return_index=True)
    return rows.take(pa.array(np.sort(len(partitions) - 1 - back)))


def starts_under_way(model: Any, events: Any, options: EvaluationOptions) -> pa.RecordBatch:
    """Return the forecasts for partial matches that are under way at the end of the events.

    Raises
    ------
    OptionError
        When the query is no chain, of which alone the funnel is known.
    """
    query, events = model.query, readable_again(events)
    if "funnel" not in query.outputs:
        raise OptionError(
            "at='starts' is for chains of steps, whose funnel is known (output='funnel'), and the query is none\n"
            "hint: at='last', after the last event of each substream"
        )
    asked = {name: getattr(options, name) for name in ("device", "sort", "lateness", "late")}
    funnel = query.evaluate(events, output="funnel", **asked)
    funnel = funnel.filter(pc.equal(funnel["stopped"], "end")).sort_by("start")
    starts, steps = funnel["start"].to_numpy(), funnel["step"].to_numpy()
    reader, read = read_rows(query, events, model._form, options, every_event)
    partitions, clocks = np.full(len(starts), -1, np.int64), np.zeros(len(starts), np.uint64)

    def noting_starts() -> Iterable[pa.RecordBatch]:
        for rows in read:
            positions = numbers_of(rows.column("end"))
            order = np.argsort(positions, kind="stable")
            at = order[np.minimum(np.searchsorted(positions, starts, sorter=order), len(order) - 1)]
            here = positions[at] == starts
            partitions[here] = numbers_of(rows.column(PARTITION))[at[here]]
            clocks[here] = numbers_of(rows.column(CLOCK))[at[here]]
            yield rows

    lasts = last_rows(noting_starts(), reader)
    known = np.flatnonzero(partitions >= 0)
    of_last = numbers_of(lasts.column(PARTITION))
    order = np.argsort(of_last)
    at = order[np.searchsorted(of_last, partitions[known], sorter=order)]
    rows = lasts.take(pa.array(at))
    states: Int64 = np.zeros(len(at), np.int64)
    if len(at):
        ages = reader.age_classes(numbers_of(rows.column(CLOCK)), clocks[known])
        symbols = numbers_of(rows.column(STATE_CODE)) & ((1 << model._form.bits) - 1)
        states = (steps[known] * AGES + ages) << model._form.bits | symbols
    shown: pa.RecordBatch = model._rows(rows, model._numbers().of(states))
    at_state = shown.schema.get_field_index("state")
    for name, values in (("step", steps), ("start", starts)):
        shown = shown.add_column(at_state, pa.field(name, pa.int64()), pa.array(values[known], pa.int64()))
    return shown
