"""Executions of queries that are evaluated event by event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int32
from cer_gpu.automaton.alphabet import Table
from cer_gpu.columnar.buffer_leases import BufferLease
from cer_gpu.columnar.clocks import Clock
from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.record_batches import empty_batch
from cer_gpu.columnar.resident import refuse_resident, some_are_resident
from cer_gpu.engine.blocks import Batch, EventBlock
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.engine.pending_results import NO_POSITION, tally_notes
from cer_gpu.engine.pipeline import Pipeline
from cer_gpu.engine.query_execution import QueryExecution, RangeClock
from cer_gpu.engine.result_slices import ResultSlices, make_pipes
from cer_gpu.engine.shared_state import SharedState
from cer_gpu.engine.stream_columns import LetColumns
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.output.form import Columns, Output
from cer_gpu.output.outputs import Aggregated
from cer_gpu.output.retention import Retained
from cer_gpu.planning.binding import Binding, Bindings
from cer_gpu.planning.lazy_queries import LazyQuery, can_defer
from cer_gpu.planning.outputs import output_of
from cer_gpu.planning.physical import PhysicalPlan, physical_plan
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.predicates.guards import SeenEventTypes
from cer_gpu.predicates.shared_guards import SharedWords
from cer_gpu.runtime.matches import OUTPUT_ROWS, MatchBuffers
from cer_gpu.runtime.protocol import ResultBuffers

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
        positions = (
            block.first + rows.astype(np.int64) if block.explicit_positions is None else block.explicit_positions[rows]
        )
        if len(positions) and positions[0] < report_from:
            selected = positions >= report_from
            rows, positions = rows[selected], positions[selected]
        spans, n = np.stack([positions, positions]), len(positions)
        times = np.empty((2, 0), np.int64)
        if self._time_column is not None:
            times = np.stack([clocks[self._time_column].at(rows, block.times[self._time_column]).view(np.int64)] * 2)
        if self._retained is not None:
            self._retained.add(positions, block.columns.batch, rows)
        matches = MatchBuffers(spans, times, np.arange(n + 1, dtype=np.int32), positions, _NO_MARKS)
        results = self.output.rows(matches, [])
        if self._retained is not None:
            self._retained.keep_from(np.iinfo(np.int64).max)
        return results


class StreamingExecution(QueryExecution):
    """Evaluation of one query event by event, by a pipeline of its own.

    Parameters
    ----------
    query
        The bindings of the query, or, of a set, what is known of it without them.
    options
    output
        Name of the output.
    sharing
        Parts in common with the other queries of a set, or None if there are no others.
    seen_types
        Collects the types of events.
    """

    def __init__(
        self,
        query: Bindings | LazyQuery,
        options: EvaluationOptions,
        output: str,
        sharing: SharedState | None = None,
        seen_types: SeenEventTypes | None = None,
    ) -> None:
        super().__init__(options)
        self._output, self._sharing, self._query = output, sharing, query
        self._lease: AbstractContextManager[Any] = nullcontext() if sharing is None else sharing.lease()
        self._first: Binding | None = None  # to the first schema, which fixes the types of the results
        self._binding: Binding | None = None  # to the last one
        self._prefilter_schema: pa.Schema | None = None  # in place of the last one, while the query is not bound
        self._first_schema: pa.Schema | None = None  # the first schema, while the query is not bound
        self._prefilter: SharedWords | None = None  # until the first relevant event there is no pipeline
        self._pipeline: Pipeline | None = None
        self._let: LetColumns | None = None
        self._may_be_single: bool | None = None  # None if it is not known yet
        self._single: SingleEvents | None = None  # in place of a pipeline
        self._read: Sequence[str] = ()  # columns and fields
        self._pipes: ResultSlices | None = None
        self._planned: tuple[LogicalPlan, PhysicalPlan] | None = None
        types = query.plan.event_types if isinstance(query, Bindings) else query.types
        self._seen_types: SeenEventTypes = seen_types or SeenEventTypes(types)
        if isinstance(query, Bindings):
            self._bindings = query
            self._plan_for(query.plan)

    @cached_property
    def _bindings(self) -> Bindings:
        """Bindings of the query, built on first use of the plan."""
        assert not isinstance(self._query, Bindings)
        over = self._prefilter_schema
        return self._query.bindings() if over is None else self._query.bindings_over(over)

    @property
    def plan(self) -> LogicalPlan:  # type: ignore[override]
        """Plan of the query, or that over the schema of the first events."""
        return self._as_planned[0]

    @property
    def physical(self) -> PhysicalPlan:
        """Plan of its evaluation."""
        return self._as_planned[1]

    @property
    def _as_planned(self) -> tuple[LogicalPlan, PhysicalPlan]:
        return self._planned or self._plan_for(self._bindings.plan)

    def _plan_for(self, plan: LogicalPlan) -> tuple[LogicalPlan, PhysicalPlan]:
        """Choose how to evaluate a plan."""
        output, shared = output_of(plan, self._output), self.options.shard is not None
        physical = self._bindings.physical(plan, output, shared)
        if self._planned is None:
            self._pipes = make_pipes(physical, self.options)
        self._planned = plan, physical
        self.__dict__.pop("table", None)
        return self._planned

    @property
    def limits_rows(self) -> bool:  # type: ignore[override]
        """See `QueryExecution`."""
        return not self.physical.output.numbered

    def _bind_first(self) -> None:
        """Bind the query to the schema over which its binding was deferred."""
        if self._prefilter_schema is not None:
            assert self._first_schema is not None
            self._first, self._binding = self.bind(self._first_schema), self.bind(self._prefilter_schema)
            self._prefilter_schema = None

    @cached_property
    def table(self) -> Table:
        """Symbol table of the runtime."""
        return self.physical.table()

    @property
    def limit_reached(self) -> bool:
        """See `QueryExecution`."""
        return super().limit_reached or (self._pipes is not None and self._pipes.limit_reached)

    @property
    def pipeline(self) -> Pipeline:
        """Pipeline of stages; available after `expect`."""
        if self._pipeline is None:
            self._start_pipeline()
        assert self._pipeline is not None
        return self._pipeline

    @property
    def started_pipeline(self) -> Pipeline | None:
        """Pipeline of stages; None: the query has read no relevant event, or no schema."""
        return self._pipeline

    @property
    def reads(self) -> SharedWords | None:  # type: ignore[override]
        """See `QueryExecution`."""
        return self._pipeline.reads if self._pipeline is not None else self._prefilter

    @property
    def binding(self) -> Binding:
        """Binding to the schema of the last events; available after `expect`."""
        self._bind_first()
        assert self._binding is not None
        return self._binding

    @property
    def n_suppressed(self) -> int:
        """See `QueryExecution`."""
        return super().n_suppressed + (0 if self._pipeline is None else self._pipeline.n_suppressed)

    @property
    def n_undecided(self) -> int:
        """See `QueryExecution`."""
        return super().n_undecided + (0 if self._pipeline is None else self._pipeline.n_undecided)

    @property
    def n_without_key(self) -> int:
        """See `QueryExecution`."""
        return super().n_without_key + (0 if self._pipeline is None else self._pipeline.n_without_key)

    @property
    def placement(self) -> tuple[str, str]:
        """Device for the predicates of the next events, and the reason; available after `expect`."""
        placement = self.pipeline.guards.placement
        return placement.device, placement.reason

    @property
    def identity(self) -> dict[str, Any]:
        """The query text and the options of its compilation."""
        return dict(self._query.plan.identity if isinstance(self._query, Bindings) else self._query.identity)

    @property
    def result_schema(self) -> pa.Schema:
        """Schema of the results; before the first batch, without the columns whose types are not known."""
        if self._pipeline is not None:
            return self._pipeline.output.result_schema
        if self._single is not None:
            return self._single.output.result_schema
        return self.physical.output.schema_of(Columns(self.plan.variables, single=self.plan.single))

    @property
    def clocks(self) -> tuple[str, ...]:  # type: ignore[override]
        """Columns of times, which must not decrease."""
        return self._clocks if self._prefilter_schema is not None else self.binding.clocks

    @property
    def notes(self) -> list[str]:
        """Remarks on the events read so far: types that no event has, events without a key, what the end completed."""
        if self._sharing is not None:
            self._seen_types.add(list(self._sharing.types_seen))
        # the plan of a query that is asleep need not be made
        keys = self.plan.partition_keys if self.n_without_key else ()
        tallies = tally_notes(self.n_undecided, self.options.undecided, self.n_without_key, keys)
        return [*self._seen_types.notes, *tallies]

    @property
    def distributed_by_key(self) -> bool:  # type: ignore[override]
        """True if the shards of the keys are complete; no thread would know the numbers of rows before its own."""
        distribution = self.physical.distribution
        if self.physical.output.by_starts and self.pipeline.numbers_rows:
            return False  # rows of the input are not in the order of the events
        by_key = distribution.why_not_keys is None and distribution.why_not_merging is None
        return by_key and not self.physical.output.numbered

    @property
    def first_pending(self) -> int | None:  # type: ignore[override]
        """See `QueryExecution`."""
        if self._prefilter is not None or not self.physical.output.by_starts:
            return None
        return NO_POSITION if self._pipeline is None or self.limit_reached else self._pipeline.first_pending

    @property
    def window(self) -> RangeClock | None:
        """Window of the query, or None if it cannot be evaluated by ranges, or shards of the keys are better."""
        if self.physical.distribution.threads != "range" or self.physical.output.numbered:
            return None
        return self.binding.reach

    def clone(self, options: EvaluationOptions, sharing: SharedState | None) -> StreamingExecution:
        """Return an execution of the same query in another group, which collects types of events together with it."""
        return StreamingExecution(self._query, options, self._output, sharing, self._seen_types)

    # ---- schemas --------------------------------------------------------------------------------------------

    def bind(self, schema: pa.Schema) -> Binding:
        """Return the binding of the query to a schema."""
        return self._bindings.bind(schema, self.options.position_column)

    def expect(self, schema: pa.Schema) -> bool:
        """See `QueryExecution`."""
        if self._binding is not None and self._binding.covers(schema):
            return False
        if self._binding is None and (changed := self._defer_binding(schema)) is not None:
            return changed
        self._bind_first()
        if not isinstance(self._query, Bindings):
            self._bindings = self._query.bindings()  # those over any schema
        binding = self.bind(schema)
        self._binding, self._first = binding, self._first or binding
        self._read = ()
        self._bind_let(binding)
        if self._sharing is not None:
            # allocated outside its lease, as their memory is not that of one query
            guards = self._sharing.guards(schema, binding.guards.type_column)
            self._sharing.add_partitions(binding.keys)
            if self._pipeline is None and can_defer(self.plan, self.physical.output, binding):
                self._prefilter = guards.words_for(binding.guards, self._seen_types)
                return True
        if self._pipeline is None:
            self._start_pipeline()
            return True
        with self._lease:
            self._pipeline.rebind(binding)
        return True

    def _bind_let(self, binding: Binding) -> None:
        if binding.let is None:
            return
        if self._let is None:
            self._let = LetColumns(binding.let, self.plan, self.options.key_shard)
        else:
            self._let.rebind(binding.let)

    def _defer_binding(self, schema: pa.Schema) -> bool | None:
        """Defer the binding to a schema; return True if that changes what is read, or None if it is impossible."""
        query, before = self._query, self._prefilter_schema
        if isinstance(query, Bindings) or self._sharing is None:
            return None
        if before is not None and query.covers(before, schema):
            return False
        prefilter = None if self._planned or self.options.position_column else query.asleep(schema)
        if prefilter is None:
            return None
        if before is not None:
            prefilter_before = query.asleep(before)
            if prefilter_before is None or not prefilter.is_planned_as(prefilter_before):
                return None
        guards = self._sharing.guards(schema, prefilter.guards.type_column)
        self._prefilter = guards.words_for(prefilter.guards, self._seen_types)
        self._first_schema = self._first_schema or schema
        self._prefilter_schema, self._clocks, self._read = schema, prefilter.clocks, prefilter.attributes
        return True

    def with_let(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """See `QueryExecution`."""
        return events if self._let is None else self._let.extend(events)

    def _start_pipeline(self) -> None:
        """Make the pipeline."""
        self._bind_first()
        assert self._first is not None
        self._prefilter = None
        with self._lease:
            self._make_pipeline(self._first)
            self.pipeline.rebind(self.binding)

    def _choose(self, binding: Binding) -> None:
        """Evaluate the plan of a binding; list matches for an aggregate, where its terms' types need that."""
        if binding.plan is not self.plan and binding.plan != self.plan:
            self._plan_for(binding.plan)
        if self.physical.output.weighed and binding.weights is None:
            physical = physical_plan(self.plan, Aggregated, shard=self.options.shard is not None)
            self._planned = self.plan, physical
            self.__dict__.pop("table", None)

    def _make_pipeline(self, binding: Binding) -> None:
        """Make the pipeline; the binding's schema fixes the types of the results."""
        self._choose(binding)
        self._pipeline = Pipeline(
            self.physical,
            binding,
            self.options,
            self.table,
            seen_types=self._seen_types,
            numbered=self.options.lateness is not None or ROW_COLUMN in binding.schema.names,
            shared=self._sharing,
        )

    @property
    def attributes(self) -> list[str]:
        """Columns and fields that are read, known after `expect`."""
        if not self._read:
            self._read = self.binding.columns_for(self.physical.output)
        return list(self._read)

    def refuse_resident(self, batch: pa.RecordBatch) -> None:
        """See `QueryExecution`."""
        output, binding = self.physical.output, self.binding
        for_all = (
            f"output={output.name!r}"
            if output.weighed or output.retains(self.plan.head, self.plan.having)
            else "lateness"
            if self.options.lateness
            else ""
        )
        names = () if not some_are_resident() else self.attributes if for_all else binding.columns_on_host
        refuse_resident(batch, names, for_all or "the window, PARTITION BY or the column of positions")

    # ---- events ---------------------------------------------------------------------------------------------

    def restart(self, begin: int, report_from: int) -> None:
        """See `QueryExecution`."""
        super().restart(begin, report_from)
        if self._let is not None:
            assert self._first is not None
            assert self._first.let is not None
            self._let = LetColumns(self._first.let, self.plan, self.options.key_shard)
        if self._pipeline is None:
            self._binding = self._first
            return
        self._memory = getattr(self, "_memory", {})
        with BufferLease(self._memory):  # not in that of all queries, which holds the state of the pipeline
            self.pipeline.restart(self.options)
        self._binding, self._read = self.pipeline.binding, ()

    def prefetch(self, blocks: Iterable[Block]) -> Iterable[Block]:
        """Yield blocks with derived columns; on a GPU, the predicates of the next block are already in flight."""
        return self.pipeline.prefetch(blocks)

    def process_batch(self, block: EventBlock, clocks: dict[str, Clock], batch: Batch) -> Iterator[pa.RecordBatch]:
        """See `QueryExecution`."""
        if self._prefilter is not None:
            if self._is_single:
                yield from self._read_single(self._prefilter, block, clocks)
                return
            if not self._prefilter.has_relevant_events(block.columns):
                return
        columns = block.columns.fork() if self.binding.derived else block.columns
        for ready in self.pipeline.prefetch([columns]):
            yield from self.process(replace(block, columns=ready), clocks, batch)
        if not self.limit_reached:
            yield from self.end_batch(batch)

    @property
    def _is_single(self) -> bool:
        """True if the rows of the guard are the results, and there need be no pipeline."""
        if self._may_be_single is None:
            self._bind_first()
            assert self._first is not None
            self._choose(self._first)
            numbered = self.options.lateness is not None or ROW_COLUMN in self._first.schema.names
            self._may_be_single = self.physical.is_of_single_events and self.options.shard is None and not numbered
        return self._may_be_single

    def _read_single(self, words: SharedWords, block: EventBlock, clocks: dict[str, Clock]) -> Iterator[pa.RecordBatch]:
        if not len(rows := words.shared.rows(words.numbers[0], block.columns)):
            return
        if self._single is None:
            assert self._first is not None
            self._single = SingleEvents(self.physical, self._first)
        for results in self._single.results(rows, block, clocks, self.options.report_from):
            n, last = results.num_rows, self.options.last_result
            self.add_matches(n)
            yield results if last is None else results.slice(0, last - self._n_results)
            self._n_results += 0 if last is None else n
            if self.limit_reached:
                return

    def process(self, block: EventBlock, clocks: dict[str, Clock], batch: Batch) -> Iterator[pa.RecordBatch]:
        """See `QueryExecution`."""
        pipeline = self.pipeline
        for matches in pipeline.process(block, clocks):
            if not len(matches):
                if self.among_threads:
                    yield empty_batch(pipeline.output.result_schema)
                continue
            rows = pipeline.rows(matches, batch)
            if rows is not None:
                yield self._first_of(rows, matches)
            if self.limit_reached:
                return
        for rows, matches in pipeline.decide_by(block, clocks, batch):
            yield self._first_of(rows, matches)
            if self.limit_reached:
                return

    def end_batch(self, batch: Batch) -> Iterator[pa.RecordBatch]:
        """See `QueryExecution`."""
        pipeline = self.pipeline
        for matches in pipeline.flush(batch):
            yield self._first_of(pipeline.rows(matches, batch), matches)
            if self.limit_reached:
                return
        yield from self._rest(batch)

    @property
    def next_deadline(self) -> int | None:  # type: ignore[override]
        """Least key of a time that would decide a pending match, or None if none is pending."""
        return None if self._pipeline is None or self.limit_reached else self._pipeline.next_deadline

    def advance_watermark(self, key: int, n_events: int) -> Iterator[pa.RecordBatch]:
        """See `QueryExecution`."""
        if self._pipeline is None:
            return
        for rows, matches in self.pipeline.advance_watermark(key, n_events):
            yield self._first_of(rows, matches)
        yield from self._rest(None)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """See `QueryExecution`."""
        if self._pipeline is not None:
            for rows, matches in self._pipeline.finish():
                yield self._first_of(rows, matches)
                if self.limit_reached:
                    return
            yield from self._rest(None)
            left = None if self._pipes is None else self._pipes.finish()
            if left is not None:
                yield self._count_results(*left)

    def release(self) -> None:
        """See `QueryExecution`."""
        if self._pipeline is not None:
            self._pipeline.guards.release()

    def _rest(self, batch: Batch | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows that the output has buffered."""
        rest = self.pipeline.rest(batch)
        if rest is not None:
            yield self._up_to_limit(rest, rest.num_rows)

    def _first_of(self, rows: pa.RecordBatch, matches: ResultBuffers) -> pa.RecordBatch:
        """Return the rows of a buffer, up to the limit."""
        n = self.pipeline.output.n_of(matches)
        return self._count_results(*((rows, n) if self._pipes is None else self._pipes.take(rows, n)))

    def _count_results(self, rows: pa.RecordBatch, n: int) -> pa.RecordBatch:
        """Count the results that some rows show, and return the rows up to the limit."""
        self.add_matches(n)
        n = n if self.pipeline.output.numbered else rows.num_rows
        if self._pipes is None:
            return self._up_to_limit(rows, n)
        self._n_results += n
        return rows

    def _up_to_limit(self, rows: pa.RecordBatch, n: int) -> pa.RecordBatch:
        """Return the rows of the first of `n` results."""
        if self.options.last_result is not None:
            rows = self.pipeline.output.first(rows, self.options.last_result - self._n_results, n)
            self._n_results += n
        return rows

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the state of the pipeline to a checkpoint; that of a full one is not needed."""
        super().snapshot(state)
        if self._pipes is not None:
            arrays, state.tables["pipes"] = self._pipes.snapshot()
            state.add_arrays("pipes", arrays)
        if (first := self._first_schema if self._first is None else self._first.schema) is not None:
            state.schemas["events"], state.facts["asleep"] = first, self._pipeline is None
            if self._pipeline is not None and not self.limit_reached:
                self._pipeline.snapshot(state)
                if self._let is not None:
                    self._let.snapshot(state)

    def restore(self, state: NamedState) -> None:
        """See `QueryExecution`."""
        super().restore(state)
        if "pipes" in state.tables and self._as_planned and self._pipes is not None:
            self._pipes.restore(state.part("pipes"), state.tables["pipes"])
        self._seen_types = SeenEventTypes(())  # the types seen before are not in the checkpoint
        if "events" not in state.schemas:
            return
        schema = state.schemas["events"]
        if state.facts["asleep"] or self.limit_reached:
            self.expect(schema)
            return
        self._choose(self.bind(schema))
        self.table.restore(state.facts["table"])
        self.expect(schema)
        last = self.bind(state.schemas["binding"])
        self.pipeline.restore(state, last)
        if self._let is not None and last.let is not None:
            self._let.rebind(last.let)
            self._let.restore(state)
