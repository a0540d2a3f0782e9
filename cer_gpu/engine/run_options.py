"""Options of the runtime, and the buffer of semi-joins, by the plan of a query and its binding."""

from __future__ import annotations

import numpy as np

from cer_gpu.automaton.alphabet import Table
from cer_gpu.automaton.chain import Rejection
from cer_gpu.automaton.encoding import (
    CONSUME_ANY,
    CONSUME_NONE,
    CONSUME_PARTITION,
    COUNT_WINDOW,
    GLOBAL_WINDOW,
    NO_WINDOW,
)
from cer_gpu.automaton.parallel_pattern import ParallelTable
from cer_gpu.columnar.memory_limit import MemoryLimit
from cer_gpu.engine.options import EvaluationOptions
from cer_gpu.expressions.side_columns import TextNumbers
from cer_gpu.planning.binding import Binding
from cer_gpu.planning.physical import PhysicalPlan
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.runtime.events import RunOptions
from cer_gpu.runtime.reduction import SemiJoinFilter

_NEVER = np.iinfo(np.int64).max
"""A position after all events."""
_CONSUME = {"NONE": CONSUME_NONE, "PARTITION": CONSUME_PARTITION, "ANY": CONSUME_ANY}


def run_options(physical: PhysicalPlan, binding: Binding, asked: EvaluationOptions, texts: TextNumbers) -> RunOptions:
    """Return the options of the runtime; `texts` are numbered for its filters between events."""
    plan: LogicalPlan = physical.plan
    window, width = NO_WINDOW, -1
    if plan.within is not None:
        window = COUNT_WINDOW if plan.within.kind == "events" and plan.partition else GLOBAL_WINDOW
        if plan.within.kind == "events":
            assert binding.window_length is not None
            width = int(min(int(binding.window_length), 1 << 62))
    consume = _CONSUME[plan.consume]
    return RunOptions(
        window=window,
        width=width,
        partitioned=bool(plan.partition),
        timed=plan.time_column is not None,
        limit=(0 if physical.waits else physical.output.most_at_an_end)
        or plan.strategy.most_at_an_end
        or (0 if physical.limits_rows else plan.limit)
        or 0,
        consume=CONSUME_PARTITION if consume and not plan.partition else consume,
        labelled=physical.labelled,
        share=None if physical.deals_rows else asked.shard,
        report_from=_NEVER if plan.limit == 0 else asked.report_from,
        placed=binding.position_column is not None and bool(plan.partition),
        gap=binding.gap if physical.output.by_starts else None,
        counted=physical.counted,
        only_ends=physical.output.most_at_an_end == 1 and not physical.waits,
        strategy=plan.strategy.name,
        joins=binding.joins,
        parallel=binding.parallel,
        recent=binding.recent,
        texts=texts,
        memory=MemoryLimit(asked.max_memory),
        time_type=binding.time_type,
        weighing=binding.weights.weighing if physical.output.weighed and binding.weights is not None else None,
    )


def make_reduction(physical: PhysicalPlan, binding: Binding, table: Table) -> SemiJoinFilter | None:
    """Return the buffer in which events wait for partners; None: all are read at once."""
    joins = physical.semi_joins
    if isinstance(joins, Rejection):
        return None
    assert isinstance(table, ParallelTable)
    assert binding.parallel is not None
    assert binding.window_length is not None
    return SemiJoinFilter(binding.parallel, table, joins, binding.window_length, whole=physical.reorders)
