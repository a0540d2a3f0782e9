"""The place where results wait until they are known, by the plan of a query."""

from __future__ import annotations

from typing import cast

import numpy as np

from cer_gpu.arrays import Array
from cer_gpu.automaton.table import Table
from cer_gpu.columnar.clocks import Clock
from cer_gpu.engine.awaiting import Awaiting
from cer_gpu.engine.blocks import EventBlock
from cer_gpu.engine.started import StartedRows
from cer_gpu.planning.binding import Binding
from cer_gpu.planning.physical import PhysicalPlan
from cer_gpu.runtime.protocol import HoldsStarts, Runtime


def make_waiting(
    physical: PhysicalPlan, binding: Binding, table: Table, runtime: Runtime, share: tuple[int, int] | None
) -> Awaiting | StartedRows | None:
    """Return where the results of a runtime wait; None: they are known when they are found."""
    if physical.output.by_starts:
        return StartedRows(cast(HoldsStarts, runtime), table.labels, share)
    if not physical.waits:
        return None
    plan = physical.plan
    whole = physical.limits_rows or physical.output.whole_ends
    return Awaiting(
        table.labels,
        plan.variables,
        binding.window_length,
        lasting=binding.lasting,
        labelled=physical.output.is_labelled(plan.head),
        timed=plan.time_column is not None,
        strategy=physical.strategy,
        limit=physical.limit,
        counted=physical.output.counted,
        only_ends=physical.output.most_at_an_end == 1,
        grouped=whole,
        share=None if whole else share,
    )


def all_clocks(binding: Binding, block: EventBlock, clocks: dict[str, Clock], *, partitioned: bool) -> Array:
    """Return the clocks of the window of all events of a block."""
    column = binding.window_column
    rows = np.arange(block.columns.n_rows, dtype=np.int32)
    if column is not None:
        return clocks[column].window_clocks(clocks[column].at(rows, block.times[column]))
    if block.given is not None and not partitioned:
        return block.given.view(np.uint64)
    return (block.first + rows.astype(np.int64)).view(np.uint64)
