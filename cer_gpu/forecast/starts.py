"""The last events of substreams, and the partial matches that are under way after them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Int64
from cer_gpu.backend.forecasts.states import AGES
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.errors import OptionError
from cer_gpu.forecast.reading import StatesRead, read_states, readable_again


def lasts_of(read: Iterable[StatesRead]) -> list[StatesRead]:
    """Return the last event of each substream, in the order of the events."""
    lasts: dict[int, tuple[StatesRead, int]] = {}
    for each in read:
        found, back = np.unique(each.partitions[::-1], return_index=True)
        rows = len(each.partitions) - 1 - back
        own = each.at(rows)  # a row alone, so that batches are not kept for the few of their last events
        lasts.update((partition, (own, i)) for i, partition in enumerate(found.tolist()))
    by_batch: dict[int, tuple[StatesRead, list[int]]] = {}
    for each, row in lasts.values():
        by_batch.setdefault(id(each), (each, []))[1].append(row)
    chosen = []
    for each, kept in by_batch.values():
        rows = np.array(kept, np.int64)
        chosen.append(each.at(rows[np.argsort(each.order[rows])]))
    return sorted(chosen, key=lambda each: int(each.order[0]))


def starts_under_way(model: Any, events: Any, options: EvaluationOptions) -> pa.Table:
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
    rows = query.evaluate(events, output="funnel", **asked)
    rows = rows.filter(pc.equal(rows["stopped"], "end")).sort_by("start")
    starts, steps = rows["start"].to_numpy(), rows["step"].to_numpy()
    reader, read = read_states(query, events, model._form, options, grows=False)
    partitions, clocks, whole = np.full(len(starts), -1, np.int64), np.zeros(len(starts), np.uint64), list[StatesRead]()
    for each in read:
        positions = each.rows.column("end").to_numpy()
        order = np.argsort(positions, kind="stable")
        at = order[np.minimum(np.searchsorted(positions[order], starts), len(order) - 1)]
        here = positions[at] == starts
        partitions[here], clocks[here] = each.partitions[at[here]], each.clocks[at[here]]
        whole.append(each)
        whole = lasts_of(whole)
    of_partition = {int(p): (each, i) for each in whole for i, p in enumerate(each.partitions)}
    numbers, made = model._numbers(), []
    for start, step, partition, clock in zip(starts.tolist(), steps.tolist(), partitions.tolist(), clocks, strict=True):
        if partition < 0:
            continue
        each, row = of_partition[partition]
        age = reader.age_class(each.clocks[row], clock)
        symbols = int(each.states[row]) & ((1 << model._form.bits) - 1)
        states: Int64 = np.array([(step * AGES + age) << model._form.bits | symbols], np.int64)
        shown = model._rows(each.rows.slice(row, 1), numbers.of(states))
        at_state = shown.schema.get_field_index("state")
        for name, value in (("step", step), ("start", start)):
            shown = shown.add_column(at_state, pa.field(name, pa.int64()), pa.array([value], pa.int64()))
        made.append(shown)
    if not made:
        shown = model._rows(reader.no_rows, np.zeros(0, np.int64))
        at_state = shown.schema.get_field_index("state")
        for name in ("step", "start"):
            shown = shown.add_column(at_state, pa.field(name, pa.int64()), pa.array([], pa.int64()))
        made = [shown]
    return pa.Table.from_batches(made).combine_chunks()
