"""Stages of a pipeline, made by the plan of its query, the binding to the first schema, and the options."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int32, Int64
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
from cer_gpu.automaton.keyed_recent import KeyedRecentTable
from cer_gpu.automaton.parallel_pattern import ParallelTable
from cer_gpu.columnar.clocks import WindowClocks
from cer_gpu.columnar.fields import array_of
from cer_gpu.columnar.memory_limit import MemoryLimit
from cer_gpu.engine.blocks import Batch
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.engine.partitioner import KeyRecords, Partitioner, PartitionState, StepKeys, first_record
from cer_gpu.engine.pending_matches import PendingMatches
from cer_gpu.engine.pending_results import PendingResults, PendingStarts
from cer_gpu.engine.pending_samples import PendingSamples
from cer_gpu.engine.shared_state import SharedState
from cer_gpu.engine.throttle import Throttle
from cer_gpu.expressions.side_columns import StringIds
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.output.form import Output, RowChoice
from cer_gpu.output.retention import Retained
from cer_gpu.partition.partitions import PartitionKeys
from cer_gpu.partition.step_keys import NUMBER_BITS, KeysByStep
from cer_gpu.planning.binding import Binding
from cer_gpu.planning.physical import PhysicalPlan
from cer_gpu.runtime.deferred_events import DeferredEvents
from cer_gpu.runtime.events import RunOptions
from cer_gpu.runtime.parallel.reduction import SemiJoinFilter
from cer_gpu.runtime.progress.table import KeyedFunnelTable
from cer_gpu.runtime.protocol import HoldsStarts, Runtime
from cer_gpu.runtime.registry import make_runtime
from cer_gpu.runtime.spacing import Spacings


class RowNumbers:
    """Rows of the input as it came, by position, for results of a stream that is evaluated in another order.

    Parameters
    ----------
    output
        Output whose positions are exchanged for rows.
    names_streams
        True: rows are those of several streams, which the results name.
    waits
        True: matches are reported after the batch in which they end.

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
        """Return results that end in a batch (None if they were pending), with input rows in place of positions."""
        columns, streams = results.columns, []
        for i in self._columns:
            is_list = pa.types.is_list(columns[i].type)
            exchanged = self._rows_at_positions(columns[i].flatten() if is_list else columns[i], batch)
            if is_list:
                begin = columns[i].offsets[0].as_py() if len(columns[i]) else 0
                offsets = pa.array(columns[i].offsets.to_numpy() - begin)
                exchanged = [pa.ListArray.from_arrays(offsets, column) for column in exchanged]
            columns[i] = exchanged[0]
            streams += exchanged[1:]
        return pa.RecordBatch.from_arrays([*columns, *streams], schema=self._schema)

    def _rows_at_positions(self, positions: pa.Array, batch: Batch | None) -> list[pa.Array]:
        """Return the rows at positions, and their streams if these are named; NULL stays NULL."""
        non_null = positions.drop_null().to_numpy()
        if self.retained is not None:
            columns: list[pa.Array] = self.retained.take(non_null).flatten()
        else:
            assert batch is not None
            rows = pa.array(batch.rows_at(non_null))
            columns = [array_of(batch.events, name).take(rows) for name in self._attributes]
            columns = [c.cast(pa.string()) if pa.types.is_dictionary(c.type) else c for c in columns]
        if positions.null_count:
            valid = np.asarray(positions.is_valid())
            places = pa.array(np.cumsum(valid) - 1, mask=~valid)
            columns = [column.take(places) for column in columns]
        return columns


class RetainedRows:
    """Rows that the results of one query may show, retained for as long as a match to come may hold the event.

    Parameters
    ----------
    attributes
        Attributes of events, or None if results show none.
    numbers
        Row numbers of the input, or None if results name positions.
    given_in_partitions
        True: events with a position column are in partitions; runtimes then report numbers of events.
    window_in_clocks
        True: the window is one of the clocks of all events.

    Attributes
    ----------
    names_rows : bool
        True if results name rows of the input in place of positions.
    """

    def __init__(
        self,
        attributes: Retained | None,
        numbers: RowNumbers | None,
        *,
        positions_in_partitions: bool,
        window_in_clocks: bool,
    ) -> None:
        self._attributes, self._numbers = attributes, numbers
        self._by_number, self._in_clocks = positions_in_partitions, window_in_clocks
        of_rows = None if numbers is None else numbers.retained
        self._retained = {
            name: each for name, each in (("retained", attributes), ("rows", of_rows)) if each is not None
        }
        self.names_rows: bool = numbers is not None
        # (number, explicit position) of the first event of each batch
        self._begins: list[tuple[int, int]] = [(0, 0)]

    @property
    def is_empty(self) -> bool:
        """True if results show neither attributes nor row numbers."""
        return self._attributes is None and self._numbers is None

    def add(self, positions: Int64, batch: pa.RecordBatch, rows: Int32) -> None:
        """Retain the relevant events of a batch, at some of its rows."""
        for each in self._retained.values():
            each.add(positions, batch, rows)

    def with_row_numbers(self, results: pa.RecordBatch, batch: Batch | None) -> pa.RecordBatch:
        """Return results that end in a batch (None if they were pending), with row numbers if results name rows."""
        return results if self._numbers is None else self._numbers.exchange(results, batch)

    def end_batch(self, batch: Batch, live: Callable[[], int | Int64]) -> None:
        """Drop the rows that no match to come can hold, once there are many.

        Parameters
        ----------
        batch
        live
            Returns the first position, or all positions (ascending), that matches to come may hold.
        """
        if not self._retained:
            return
        if (
            self._by_number
            and self._in_clocks
            and batch.explicit_positions is not None
            and len(batch.explicit_positions)
        ):
            self._begins.append((batch.first, int(batch.explicit_positions[0])))
        if not batch.is_last and any(each.wants_trim for each in self._retained.values()):
            positions = live()
            for each in self._retained.values():
                if isinstance(positions, int):
                    each.keep_from(self._explicit_position(positions))
                else:
                    each.keep(positions)

    def _explicit_position(self, position: int) -> int:
        """Return an explicit position at or before that of the event with this number, by the begins of the batches."""
        if not self._by_number:
            return position
        while len(self._begins) > 1 and self._begins[1][0] <= position:
            self._begins.pop(0)
        return self._begins[0][1]

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the rows to a checkpoint."""
        for name, each in self._retained.items():
            state.arrays[name], state.tables[name] = each.snapshot()

    def restore(self, state: NamedState) -> None:
        """Continue from a checkpoint."""
        for name, each in self._retained.items():
            each.restore(state.arrays[name], state.tables[name])


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

    def run_options(self, strings: StringIds) -> RunOptions:
        """Derive the options of the runtime; `strings` interns the strings that join predicates compare."""
        physical, plan, binding, options = self._physical, self._plan, self._binding, self._options
        window, width = NO_WINDOW, -1
        if plan.within is not None:
            window = COUNT_WINDOW if plan.within.kind == "events" and plan.partition else GLOBAL_WINDOW
            if plan.within.kind == "events":
                assert binding.window_length is not None
                width = int(min(int(binding.window_length), 1 << 62))
        spacing = self._spacing
        counts_gaps = spacing is not None and spacing.column is None
        if window == NO_WINDOW and counts_gaps and plan.partition:
            window = COUNT_WINDOW  # events are numbered in their partition, for gaps alone
        consume = _CONSUME[plan.consume]
        in_records = plan.step_keys is not None
        report_from = _NEVER if plan.limit == 0 else options.report_from
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
            shard=None if physical.distributes_rows else options.shard,
            report_from=first_record(report_from) if in_records else report_from,
            placed=binding.position_column is not None and (bool(plan.partition) or in_records),
            number_bits=NUMBER_BITS if in_records else 0,
            spacing=spacing,
            gap=binding.gap if physical.output.by_starts else None,
            counted=physical.counted,
            only_ends=physical.output.most_at_an_end == 1 and not physical.waits,
            strategy=plan.strategy.name,
            joins=binding.joins,
            parallel=binding.parallel,
            recent=binding.recent,
            strings=strings,
            memory=MemoryLimit(options.max_memory),
            time_type=binding.time_type,
            taker=self._options.event_taker,
            weighing=binding.weights.weighing if physical.output.weighed and binding.weights is not None else None,
        )

    @property
    def _spacing(self) -> Spacings | None:
        """Bounds on distances within a chain, or None if there are none, or join predicates test them."""
        return None if self._plan.relates or self._physical.output.by_starts else self._binding.spacing

    def runtime(self, options: RunOptions) -> Runtime:
        """Return the runtime."""
        length = self._binding.window_length
        if length is None and options.spacing is not None:
            length = options.spacing.longest
        runtime: Runtime = make_runtime(self._physical.runtime, self._table, options, length)
        runtime.stages = self._options.stages
        return runtime

    # ---- before the runtime ---------------------------------------------------------------------------------

    def step_keys(self, binding: Binding) -> StepKeys | KeyRecords | None:
        """Return the keys that depend on the steps which an event satisfies, or None if all events have the same."""
        if isinstance(self._table, KeyedRecentTable):
            assert isinstance(binding.keys, KeysByStep)
            return KeyRecords(self._table, binding.keys)
        if not isinstance(self._table, KeyedFunnelTable):
            return None
        text, schema = self._plan.text, binding.full_schema
        keys = PartitionKeys((), schema, text) if isinstance(binding.keys, KeysByStep) else binding.keys
        return StepKeys(self._table, keys, schema, text)

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
        """Return the clocks of the last window, or None if the runtime does not need where windows begin."""
        if not runtime.needs_lows:
            return None
        assert self._binding.window_length is not None
        return WindowClocks(self._binding.window_length)

    def semi_join_filter(self) -> SemiJoinFilter | None:
        """Return the filter that drops events without join partners, or None if the plan has none."""
        joins = self._physical.semi_joins
        if isinstance(joins, Rejection):
            return None
        assert isinstance(self._table, ParallelTable)
        assert self._binding.parallel is not None
        assert self._binding.window_length is not None
        return SemiJoinFilter(
            self._binding.parallel,
            self._table,
            joins,
            self._binding.window_length,
            whole=self._physical.reorders,
            brief=self._physical.counts_keys,
        )

    def deferred_events(self) -> DeferredEvents | None:
        """Return the buffer of events until one may end a match, or None if the runtime reads them directly."""
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

    def _pending(self, runtime: Runtime, options: RunOptions) -> PendingMatches | PendingStarts | PendingSamples | None:
        physical, plan, output = self._physical, self._plan, self._physical.output
        if output.by_starts:
            return PendingStarts(cast(HoldsStarts, runtime), self._table.labels, self._shard)
        if not physical.waits:
            return None
        whole = physical.limits_rows or output.whole_ends
        if plan.step_keys is not None and plan.step_keys.samples:
            assert isinstance(self._table, KeyedRecentTable)
            return PendingSamples(
                self._table.labels,
                self._table.marks[0],
                counted=output.counted,
                by_ends=whole or output.counted or output.most_at_an_end == 1,
                shard=None if whole else self._shard,
            )
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
            grouped=whole or (plan.every is not None and plan.lasts is None),
            shard=None if whole or plan.every is not None else self._shard,
            options=options,
        )

    def throttle(self) -> Throttle | None:
        """Return the throttle of LIMIT n EVERY d, or None if the query has none."""
        plan, every, length = self._plan, self._plan.every, self._binding.every
        if every is None or length is None:
            return None
        counts = every.within.kind == "events" and bool(plan.partition)
        by_starts = self._physical.waits and plan.lasts is None
        return Throttle(every.n, *length, counts=counts, by_starts=by_starts, shard=self._shard)

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
            positions_in_partitions=binding.position_column is not None and self.is_partitioned,
            window_in_clocks=self.is_partitioned and options.window == GLOBAL_WINDOW,
        )
