"""Stages of a pipeline, made by the plan of its query, the binding to the first schema, and the options."""

from __future__ import annotations

from typing import cast

import numpy as np

from cer_gpu.automaton.alphabet import Table
from cer_gpu.automaton.encoding import (
    CONSUME_ANY,
    CONSUME_NONE,
    CONSUME_PARTITION,
    COUNT_WINDOW,
    GLOBAL_WINDOW,
    NO_WINDOW,
)
from cer_gpu.automaton.parallel_pattern import ParallelTable
from cer_gpu.columnar.clocks import WindowClocks
from cer_gpu.columnar.memory_limit import MemoryLimit
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.engine.partitioner import Partitioner, PartitionState, StepKeys
from cer_gpu.engine.pending_matches import PendingMatches
from cer_gpu.engine.pending_results import PendingResults, PendingStarts
from cer_gpu.engine.retained_rows import RetainedRows, RowNumbers
from cer_gpu.engine.shared_state import SharedState
from cer_gpu.engine.throttle import Throttle
from cer_gpu.expressions.side_columns import TextNumbers
from cer_gpu.output.form import Output, RowChoice
from cer_gpu.output.retention import Retained
from cer_gpu.planning.binding import Binding
from cer_gpu.planning.physical import PhysicalPlan
from cer_gpu.runtime.deferred_events import DeferredEvents
from cer_gpu.runtime.events import RunOptions
from cer_gpu.runtime.progress.keyed import KeyedFunnelTable
from cer_gpu.runtime.protocol import HoldsStarts, Runtime
from cer_gpu.runtime.reduction import SemiJoinFilter
from cer_gpu.runtime.registry import make_runtime

_NEVER = np.iinfo(np.int64).max
"""Position after all events."""
_CONSUME = {"NONE": CONSUME_NONE, "PARTITION": CONSUME_PARTITION, "ANY": CONSUME_ANY}


class PipelineBuilder:
    """Maker of the stages of one pipeline; each call makes a new stage, without state.

    Parameters
    ----------
    physical
    binding
        Binding to the schema of the first batch.
    options
    table
        Symbol table of the runtime.
    shared
        State shared with the other queries of a set, or None if there are none.
    """

    def __init__(
        self,
        physical: PhysicalPlan,
        binding: Binding,
        options: EvaluationOptions,
        table: Table,
        shared: SharedState | None,
    ) -> None:
        self._physical, self._plan, self._binding = physical, physical.plan, binding
        self._options, self._table, self._shared = options, table, shared
        # with a slice of the results ("head", "tail"), the shard is one of what that leaves
        self._shard = None if self._plan.pipes else options.shard

    def run_options(self, strings: TextNumbers) -> RunOptions:
        """Derive the options of the runtime; `strings` interns the strings that join predicates compare."""
        physical, plan, binding, options = self._physical, self._plan, self._binding, self._options
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
            share=None if physical.deals_rows else options.shard,
            report_from=_NEVER if plan.limit == 0 else options.report_from,
            placed=binding.position_column is not None and bool(plan.partition),
            gap=binding.gap if physical.output.by_starts else None,
            counted=physical.counted,
            only_ends=physical.output.most_at_an_end == 1 and not physical.waits,
            strategy=plan.strategy.name,
            joins=binding.joins,
            parallel=binding.parallel,
            recent=binding.recent,
            texts=strings,
            memory=MemoryLimit(options.max_memory),
            time_type=binding.time_type,
            weighing=binding.weights.weighing if physical.output.weighed and binding.weights is not None else None,
        )

    def runtime(self, options: RunOptions) -> Runtime:
        """Return the runtime."""
        runtime: Runtime = make_runtime(self._physical.runtime, self._table, options, self._binding.window_length)
        runtime.stages = self._options.stages
        return runtime

    # ---- before the runtime ---------------------------------------------------------------------------------

    def step_keys(self, binding: Binding) -> StepKeys | None:
        """Return the keys that depend on the steps which an event satisfies, or None if all events have the same."""
        if not isinstance(self._table, KeyedFunnelTable):
            return None
        return StepKeys(self._table, binding.keys, binding.schema, self._plan.text)

    @property
    def is_partitioned(self) -> bool:
        """True if events have partitions."""
        return bool(self._binding.keys.parts) or isinstance(self._table, KeyedFunnelTable)

    def partitioner(self, runtime: Runtime, options: RunOptions, states: list[PartitionState]) -> Partitioner | None:
        """Return the partitioner, or None if events have no partitions."""
        if not self.is_partitioned:
            return None
        # an event that is not relevant still counts in a window of events, and breaks contiguity
        plan = self._plan
        counts = plan.every is not None and plan.every.within.kind == "events"
        counts |= self._table.has_gaps or self._physical.strategy.consecutive
        numbered = runtime.numbers_events or counts
        step_keys, view = self.step_keys(self._binding), None
        if step_keys is None and plan.partition and self._shared is not None and self._options.key_shard is None:
            view = self._shared.partitions(self._binding.keys, numbered=numbered)
        return Partitioner(
            self._binding,
            runtime,
            states,
            self._options,
            step_keys=step_keys,
            shared=view,
            all_events=options.window == COUNT_WINDOW or counts,
            numbered=numbered,
        )

    def window_clocks(self, runtime: Runtime) -> WindowClocks | None:
        """Return the clocks of the last window, or None if the runtime does not ask where windows begin."""
        if not runtime.needs_lows:
            return None
        assert self._binding.window_length is not None
        return WindowClocks(self._binding.window_length)

    def semi_join_filter(self) -> SemiJoinFilter | None:
        """Return the filter that drops events without join partners, or None if the plan has none."""
        joins = self._physical.semi_joins
        if isinstance(joins, str):
            return None
        assert isinstance(self._table, ParallelTable)
        assert self._binding.parallel is not None
        assert self._binding.window_length is not None
        return SemiJoinFilter(
            self._binding.parallel, self._table, joins, self._binding.window_length, whole=self._physical.reorders
        )

    def deferred_events(self) -> DeferredEvents | None:
        """Return the buffer of events until one may end a match, or None if the runtime reads them at once."""
        if not self._physical.defers_events:
            return None
        assert self._binding.window_length is not None
        return DeferredEvents(self._table, self._binding.window_length)

    # ---- after the runtime ----------------------------------------------------------------------------------

    def pending_results(self, runtime: Runtime, options: RunOptions) -> PendingResults | None:
        """Return the results that are pending, or None if all are decided when the runtime finds them."""
        results = self._pending(runtime, options)
        if results is None:
            return None
        return PendingResults(results, self._binding, options, self._options.undecided, partitioned=self.is_partitioned)

    def _pending(self, runtime: Runtime, options: RunOptions) -> PendingMatches | PendingStarts | None:
        physical, plan, output = self._physical, self._plan, self._physical.output
        if output.by_starts:
            return PendingStarts(cast(HoldsStarts, runtime), self._table.labels, self._shard)
        if not physical.waits:
            return None
        whole = physical.limits_rows or output.whole_ends
        return PendingMatches(
            self._table.labels,
            plan.variables,
            self._binding.window_length,
            lasting=self._binding.lasting,
            labelled=output.is_labelled(plan.head),
            strategy=physical.strategy,
            limit=physical.limit,
            counted=output.counted,
            only_ends=output.most_at_an_end == 1,
            grouped=whole,
            shard=None if whole else self._shard,
            options=options,
        )

    def throttle(self) -> Throttle | None:
        """Return the throttle of LIMIT n EVERY d, or None if the query has none."""
        every, length = self._plan.every, self._binding.every
        if every is None or length is None:
            return None
        counts = every.within.kind == "events" and bool(self._plan.partition)
        return Throttle(every.n, *length, counts=counts, shard=self._shard)

    def output(self, pending: PendingResults | None, throttle: Throttle | None) -> tuple[Output, Retained | None]:
        """Return the output, and the attributes of events that it retains, or None if it shows none."""
        physical, plan, binding = self._physical, self._plan, self._binding
        retains = physical.output.retains(plan.head, plan.having)
        retained = Retained(*binding.retained(physical.output)) if retains else None
        labels = self._table.labels if pending is None else pending.labels
        output: Output = physical.output(binding.result_columns(physical.output), labels, retained)
        if physical.limits_rows:
            assert plan.limit is not None
            output.choice = throttle or RowChoice(plan.limit, self._shard)
        if physical.output.whole_ends:
            output.reduce(self._shard)
        return output, retained

    def retained_rows(
        self, output: Output, attributes: Retained | None, options: RunOptions, *, numbered: bool
    ) -> RetainedRows:
        """Return the rows that results may show; with `numbered`, results name rows of the input."""
        binding = self._binding
        return RetainedRows(
            attributes,
            RowNumbers(output, binding.names_streams, waits=self._physical.waits) if numbered else None,
            given_in_partitions=binding.position_column is not None and self.is_partitioned,
            window_in_clocks=self.is_partitioned and options.window == GLOBAL_WINDOW,
        )
