"""Pipeline of the stages of one query: from blocks to symbols, partitions, partial matches, matches, rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cer_gpu.arrays import Array, Int32, Int64
from cer_gpu.automaton.alphabet import Table
from cer_gpu.automaton.encoding import COUNT_WINDOW
from cer_gpu.columnar.clocks import Clock
from cer_gpu.columnar.columns import Block, SelectedRows
from cer_gpu.columnar.memory import Scratch
from cer_gpu.engine.blocks import Batch, EventBlock
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.contiguity import ContiguityFilter
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.engine.partitioner import KeyRecords, Partitioner, PartitionState, of_events, of_records, with_events
from cer_gpu.engine.pending_results import NO_POSITION, PendingResults
from cer_gpu.engine.pipeline_builder import PipelineBuilder
from cer_gpu.engine.shared_state import SharedState
from cer_gpu.engine.stream_columns import StreamColumns
from cer_gpu.errors import EventsError
from cer_gpu.expressions.derived import makers_of, reads_one_event
from cer_gpu.expressions.side_columns import SideColumns, StringIds, string_columns
from cer_gpu.output.form import Output
from cer_gpu.planning.binding import Binding
from cer_gpu.planning.physical import PhysicalPlan
from cer_gpu.predicates.guards import GuardEvaluator, SeenEventTypes
from cer_gpu.predicates.placement import CUDA
from cer_gpu.predicates.shared_guards import SharedGuards, SharedWords, may_share
from cer_gpu.predicates.symbol_table import SymbolTable
from cer_gpu.runtime.events import RelevantEvents
from cer_gpu.runtime.progress.buffers import ProgressBuffers
from cer_gpu.runtime.protocol import ResultBuffers, Runtime
from cer_gpu.stages import LOOP, OUTPUT, PARTITIONS, PREDICATES


class Pipeline:
    """One query over the blocks of a stream, as stages with names (`cer_gpu.stages`).

    Parameters
    ----------
    physical
    binding
        Binding to the schema of the first batch, which fixes the types of the results.
    options
        The device, the stages, and the part of the stream: the shard, the keys, and the first position to report.
    table
        Symbol table of the runtime (`PhysicalPlan.table`).
    seen_types
        Collects the types of events.
    numbered
        True: the events have row numbers (`ROW_COLUMN`), which are reported in place of positions.
    shared
        State shared with the other queries of a set, or None if there are none.

    Attributes
    ----------
    guards : GuardEvaluator or SharedWords
        Evaluation of predicates over batches of the last schema.
    runtime : Runtime
    partitioner : Partitioner or None
    output : Output
    tiers : set of str
        Tiers of the predicates so far (`GuardEvaluator.tier`).
    """

    def __init__(
        self,
        physical: PhysicalPlan,
        binding: Binding,
        options: EvaluationOptions,
        table: Table,
        *,
        seen_types: SeenEventTypes,
        numbered: bool = False,
        shared: SharedState | None = None,
    ) -> None:
        self.physical = physical
        binding = self._own(binding)
        self.binding: Binding
        self.binding = self._first = binding
        self.table = table
        self._device, self._seen_types, self._stages = options.device, seen_types, options.stages
        self._numbered = numbered
        self.tiers: set[str] = set()
        self._positions = Scratch(np.int64)
        self._shared, self._strings = shared, StringIds()
        self._compared = self._side_columns(binding)
        self.guards = self._guards_of(binding)
        self._makers = makers_of(binding.derived)
        graph = physical.contiguity
        self._contiguity = None if graph is None else ContiguityFilter(graph, table)
        symbols = self._contiguity or table
        self._symbols = SymbolTable(symbols, binding.guards.dtype, binding.guards.n_guards)
        self.restart(options)

    def restart(self, options: EvaluationOptions) -> None:
        """Begin another part of the stream; compiled code, and the symbols seen, stay."""
        self.rebind(self._first)
        self._strings = StringIds()
        if self._compared is not None:
            self._compared.restart(self._strings)
        physical, binding = self.physical, self._first
        build = self._build = PipelineBuilder(physical, binding, options, self.table, self._shared)
        run = build.run_options(self._strings)
        self._counts_window = run.window == COUNT_WINDOW
        self.runtime: Runtime = build.runtime(run)
        self._window = build.window_clocks(self.runtime)
        self._semi_join = build.semi_join_filter()
        self._deferred = build.deferred_events()
        self._pending: PendingResults | None = build.pending_results(self.runtime, run)
        self._throttle = build.throttle()
        states: list[PartitionState] = [state for state in (self._throttle, self._pending) if state is not None]
        self.partitioner: Partitioner | None = build.partitioner(self.runtime, run, states)
        self._stream_columns = StreamColumns(
            binding.partition_keys,
            binding.derived,
            binding.over_aggregates,
            options.key_shard,
            self._guards_of_set(binding),
        )
        self._weights = binding.weights if physical.output.weighed else None
        self.output: Output
        self.output, attributes = build.output(self._pending, self._throttle)
        self._retained = build.retained_rows(self.output, attributes, run, numbered=self._numbered)

    def rebind(self, binding: Binding) -> None:
        """Evaluate the next batches with the binding to another schema."""
        binding = self._own(binding)
        if binding is not self.binding:
            self._check_compared(binding)
            self.binding = binding
            self._compared = self._side_columns(binding)
            self.guards = self._guards_of(binding)
            self._makers = makers_of(binding.derived)
            self._stream_columns.rebind(
                binding.partition_keys, binding.derived, binding.over_aggregates, self._guards_of_set(binding)
            )
            if self.partitioner is not None:
                self.partitioner.rebind(binding, self._build.step_keys(binding))

    def _own(self, binding: Binding) -> Binding:
        """Return the binding as the runtime reads it."""
        return binding if self.physical.plan.relates else binding.alone

    def _guards_of(self, binding: Binding) -> GuardEvaluator | SharedWords:
        shared = self._guards_of_set(binding)
        if shared is None or not may_share(binding.guards, negates=self.physical.plan.negates):
            return GuardEvaluator(binding.guards, self._device, self._seen_types, self._compared)
        return shared.words_for(binding.guards, self._seen_types)

    def _guards_of_set(self, binding: Binding) -> SharedGuards | None:
        """Return the guards of the set, or None if there is none, or a GPU evaluates them before derived columns."""
        if self._shared is None:
            return None
        shared = self._shared.guards(binding.schema, binding.guards.type_column)
        return None if binding.derived and shared.device == CUDA else shared

    def _side_columns(self, binding: Binding) -> SideColumns | None:
        by_keys = self.physical.output.by_starts and not self.physical.plan.tests_starts
        bound = None if by_keys else binding.compared  # keys of a funnel are no join predicates
        return None if bound is None else SideColumns(bound.columns, bound.binder.inputs, self._strings)

    def _check_compared(self, binding: Binding) -> None:
        """Refuse another schema under which join predicates compare values of other types."""
        first, other = self._first.compared, binding.compared
        if first is not None and other is not None and other.shape != first.shape:
            raise EventsError(
                "the columns that join predicates compare have other types than in the batches before\n"
                "hint: cast them to one type"
            )

    def prefetch(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks with derived columns; on a GPU, the predicates of the next block are already in flight."""
        return self.guards.prefetch(map(self._with_derived, blocks), self._symbols)

    def _with_derived(self, block: Block) -> Block:
        block.derive(self._makers)
        with self._stages.stage(PREDICATES):
            self._stream_columns.add_to(block)
        return block

    @property
    def reads(self) -> SharedWords | None:
        """See `QueryExecution`."""
        every = self.partitioner is not None and self.partitioner.needs_all_events
        every |= self.physical.output.by_starts or self.physical.output.whole_ends
        every |= not all(map(reads_one_event, self.binding.derived.values()))
        every |= any(each is not None for each in (self._pending, self._semi_join, self._throttle))
        return None if every or not isinstance(self.guards, SharedWords) else self.guards

    @property
    def numbers_rows(self) -> bool:
        """True if results name rows of the input in place of positions."""
        return self._retained.names_rows

    @property
    def first_pending(self) -> int:
        """First event whose row of "funnel" is pending; `NO_POSITION` if there is none."""
        return NO_POSITION if self._pending is None else self._pending.first_pending

    @property
    def n_suppressed(self) -> int:
        """Number of matches that LIMIT n EVERY d has suppressed."""
        return 0 if self._throttle is None else self._throttle.n_suppressed

    @property
    def n_undecided(self) -> int:
        """Number of matches that only the end of the input decided."""
        return 0 if self._pending is None else self._pending.n_undecided

    @property
    def n_without_key(self) -> int:
        """Number of events that the query could use, and that have no key of PARTITION BY."""
        return 0 if self.partitioner is None else self.partitioner.n_without_key

    # ---- the stages of a block --------------------------------------------------------------------------------

    def process(self, block: EventBlock, clocks: dict[str, Clock]) -> Iterator[ResultBuffers]:
        """Evaluate a block and yield full buffers of matches that end in it, in the order of the ends.

        Parameters
        ----------
        block
        clocks
            Clocks of the stream, for the times of the relevant events.
        """
        columns = block.columns
        yield from self._before_sweeps()
        with self._stages.stage(PREDICATES):
            selected = SelectedRows(*self.guards.select(columns, self._symbols))
        self.tiers.add(self.guards.tier)
        self._sweep_strings()
        partitions, ordinals = np.empty(0, np.int32), np.empty(0, np.int64)
        if self.partitioner is not None:
            with self._stages.stage(PARTITIONS):
                # an event that is not relevant may be the first after a window that counts events
                pending = self._pending if self._counts_window else None
                selected, partitions, ordinals = self.partitioner.assign(block, selected, all_rows=pending is not None)
                if pending is not None:
                    pending.note_assigned(partitions, ordinals, block.first + selected.rows.astype(np.int64))
        if self._contiguity is not None and self._contiguity.takes(len(selected.rows)):
            with self._stages.stage(LOOP):
                selected, partitions, ordinals = self._with_neighbours(block, selected, partitions, ordinals)
        if not len(selected.rows):
            return
        events = self._relevant(block, clocks, selected, partitions, ordinals)
        if self._throttle is not None:
            self._throttle.note(events, self.table.ending, block, clocks, selected)
        self._retain(events, columns, selected.rows)
        pieces = [events]
        if self._semi_join is not None:
            with self._stages.stage(LOOP):
                pieces = self._semi_join.take(events)
        for piece in pieces:
            yield from self._defer_or_run(piece)

    def _with_neighbours(
        self, block: EventBlock, selected: SelectedRows, partitions: Int32, ordinals: Int64
    ) -> tuple[SelectedRows, Int32, Int64]:
        """Return the relevant events whose neighbours fit the pattern."""
        assert self._contiguity is not None
        if self.partitioner is None:
            explicit = block.explicit_positions
            numbers = selected.rows.astype(np.int64) if explicit is None else explicit[selected.rows]
        else:
            numbers = ordinals
        fitting = self._contiguity.select(selected.symbols, numbers, partitions)
        if fitting is None:
            return selected, partitions, ordinals
        selected = selected._replace(symbols=selected.symbols[fitting], rows=selected.rows[fitting])
        return (
            (selected, partitions[fitting], ordinals[fitting]) if len(partitions) else (selected, partitions, ordinals)
        )

    @property
    def _records(self) -> KeyRecords | None:
        """Records of the events by their keys, or None if each event is read once."""
        return None if self.partitioner is None else self.partitioner.records

    def _retain(self, events: RelevantEvents, columns: Block, rows: Int32) -> None:
        """Retain what results may show of some events."""
        if self._records is None:
            self._retained.add(events.reported, columns.batch, rows)
            return
        self._records.note(events.reported)
        positions, first = np.unique(of_events(events.reported), return_index=True)
        self._retained.add(positions, columns.batch, rows[first])

    def _relevant(
        self,
        block: EventBlock,
        clocks: dict[str, Clock],
        selected: SelectedRows,
        partitions: Int32,
        ordinals: Int64,
    ) -> RelevantEvents:
        """Return the relevant events of a block, valid until the next block."""
        plan, explicit, rows = self.physical.plan, block.explicit_positions, selected.rows
        positions = self._positions.empty(len(rows))
        positions[:] = rows
        positions += block.first
        nothing = np.empty(0, np.int64)
        places = nothing
        if explicit is not None and self.partitioner is None:
            positions = explicit[rows]
        elif explicit is not None:
            places = explicit[rows]
        times = {name: clocks[name].at(rows, block.times[name]) for name in self.binding.clocks}
        window_clocks: Array = positions.view(np.uint64)
        if self._records is not None:
            positions = of_records(positions, self._records.numbers)
            places = of_records(places, self._records.numbers) if explicit is not None else places
        if self._counts_window:
            window_clocks = ordinals.view(np.uint64)
        column = self.binding.window_column
        if column is not None:
            window_clocks = clocks[column].window_clocks(times[column])
        of_time = nothing if plan.time_column is None else times[plan.time_column].view(np.int64)
        attributes = np.empty((len(rows), 0), np.int64)
        if self._weights is not None:
            with self._stages.stage(PREDICATES):
                attributes = self._weights.of(block.columns.batch, rows)
        elif self._compared is not None:
            with self._stages.stage(PREDICATES):
                attributes = self._compared.of(block.columns, rows, by_columns=self.runtime.reads_columns)
        return RelevantEvents(
            selected.symbols, positions, nothing, of_time, partitions, ordinals, places, window_clocks, attributes
        )

    def _before_sweeps(self) -> Iterator[ResultBuffers]:
        """Yield the results of buffered events before partitions or strings are renumbered."""
        sweeps = self.partitioner is not None and self.partitioner.is_swept
        if self._semi_join is not None and (sweeps or self._strings.wants_sweep):
            for piece in self._semi_join.release():
                yield from self._defer_or_run(piece)
            self._semi_join.forget()
        if self._throttle is not None and sweeps:
            yield from self._rest()
            self._end_throttled()

    def _sweep_strings(self) -> None:
        """Drop the strings that no partial match holds, once there are many."""
        bound = self.binding.compared
        if bound is None or not (self._strings.wants_sweep and self.runtime.keeps_strings):
            return
        self._release_deferred()  # deferred events have their numbers already
        columns = [1 + column for column in string_columns(bound.columns)]
        self.runtime.renumber_strings(columns, self._strings.keep(self.runtime.strings_in(columns)))

    def _defer_or_run(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Process events that may have partners, once one comes that may end a match with them."""
        for piece in [events] if self._deferred is None else self._deferred.take(events):
            yield from self._run_pieces(piece)

    def _release_deferred(self) -> None:
        """Process the deferred events; they end no match."""
        for events in self._deferred.release() if self._deferred is not None else ():
            assert not any(map(len, self._run_pieces(events)))

    def _run_pieces(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Process relevant events in the runtime."""
        if self._pending is not None:
            self._pending.note(events)
        if self._window is not None:
            events = replace(events, lows=self._window.lows(events.window_clocks, self.runtime.n_relevant))
        for piece in events.near_one_another():
            yield from map(self._apply_throttle, self._stages.each(LOOP, self.runtime.feed(piece)))

    def _rest(self) -> Iterator[ResultBuffers]:
        """Yield the matches of the runtime since its last full buffer."""
        if len(rest := self._apply_throttle(self.runtime.flush())):
            yield rest

    def _apply_throttle(self, matches: ResultBuffers) -> ResultBuffers:
        """Return the matches that LIMIT n EVERY d selects, or all if they are selected when they are decided."""
        return matches if self._throttle is None or self._selects_late else self._throttle.choose(matches)

    @property
    def _selects_late(self) -> bool:
        """True if LIMIT n EVERY d selects among decided matches, or, behind HAVING, among the rows of the output."""
        return self._pending is not None or self.physical.limits_rows

    def _end_throttled(self) -> None:
        """Drop the events in which no match ends that LIMIT n EVERY d may still select."""
        if self._throttle is None:
            return
        by_starts = self._throttle.by_starts
        if by_starts:
            self._release_deferred()  # matches may begin in deferred events, too
        self._throttle.forget(*([] if self._pending is None else [self._pending.measured(by_starts=by_starts)]))

    # ---- results ----------------------------------------------------------------------------------------------

    def rows(self, matches: ResultBuffers, batch: Batch) -> Any:
        """Return the matches of a batch as rows, or None if they are pending."""
        with self._stages.stage(OUTPUT):
            keys = self._keys_of(matches, batch)
            if self._pending is None:
                return self._result_rows(matches, keys, batch)
            self._pending.add(matches, keys)
            return None

    def _keys_of(self, matches: ResultBuffers, batch: Batch) -> list[Any]:
        """Return the keys of PARTITION BY at the ends of matches."""
        if self.partitioner is None:
            return []
        assert not isinstance(matches, ProgressBuffers)  # their keys are pending with them
        return self.partitioner.keys_at(matches.ends, batch)

    def _result_rows(self, matches: ResultBuffers, keys: list[Any], batch: Batch | None) -> Any:
        """Return matches as rows; without a batch, they were pending."""
        matches = matches if self._records is None else with_events(matches)
        return self._retained.with_row_numbers(self.output.rows(matches, keys), batch)

    def rest(self, batch: Batch | None) -> Any:
        """Return the rows that the output has buffered, after all others of a batch, or None if there are none."""
        rest = self.output.rest()
        return rest if rest is None else self._retained.with_row_numbers(rest, batch)

    def decide_by(self, block: EventBlock, clocks: dict[str, Clock], batch: Batch) -> Iterator[Any]:
        """Yield the rows of the pending matches that a block decides, whose own results were all read."""
        if self._pending is not None:
            matches = self.runtime.flush()
            self._pending.add(matches, self._keys_of(matches, batch))
            self._pending.pass_block(block, clocks)
            yield from self._report_decided(self._pending)

    @property
    def next_deadline(self) -> int | None:
        """Least key of a time that decides a pending match, or None if time alone decides none."""
        return None if self._pending is None else self._pending.next_deadline

    def advance_watermark(self, key: int, first: int) -> Iterator[Any]:
        """Yield the rows of the pending matches that the time of a key decides, before event `first`."""
        if self._pending is not None and self._pending.advance_watermark(key, first):
            yield from self._report_decided(self._pending)

    def finish(self) -> Iterator[Any]:
        """Yield the rows of the matches that are pending at the end of the stream."""
        for piece in self._semi_join.release(ended=True) if self._semi_join is not None else ():
            for matches in self._defer_or_run(piece):
                yield self._result_rows(matches, [], None), matches
            rest = self.runtime.flush()
            if len(rest):
                yield self._result_rows(rest, [], None), rest
        if self._pending is not None:
            self._pending.finish()
            for rows, matches in self._report_decided(self._pending):
                if self._pending.reports_at_end(self.output.n_of(matches)):
                    yield rows, matches

    def _report_decided(self, pending: PendingResults) -> Iterator[tuple[Any, ResultBuffers]]:
        for matches, keys in pending.decided():
            if self._throttle is not None and self._throttle.by_starts:
                self._throttle.measure_from(*pending.latest_starts)
            if self._throttle is not None and not self.physical.limits_rows:
                matches, keys = self._throttle.choose_with_keys(matches, keys)
                if not len(matches):
                    continue
            with self._stages.stage(OUTPUT):
                rows = self._result_rows(matches, keys, None)
            yield rows, matches

    def flush(self, batch: Batch) -> Iterator[ResultBuffers]:
        """Yield the rest of the matches that end in a batch; then drop events that no match to come can hold."""
        # results that are no more than positions need not come with their batch, where all events are there
        if self._semi_join is not None and (batch.ends is None or batch.is_last or not self._shows_positions_alone):
            for piece in self._semi_join.release(ended=batch.is_last):
                yield from self._defer_or_run(piece)
        yield from self._rest()
        self._end_throttled()
        self._retained.end_batch(batch, self._live)
        if self._records is not None:
            self._records.end_batch()

    @property
    def _shows_positions_alone(self) -> bool:
        """True if results are made of the runtime's alone."""
        return self.partitioner is None and self._throttle is None and self._retained.is_empty

    def _live(self) -> int | Int64:
        """Return the first position, or all positions (ascending), that matches to come may hold."""
        self._release_deferred()  # matches to come may hold deferred events, too
        live = self.runtime.live()
        live = live if self._pending is None else self._pending.live(live)
        if self._records is None or isinstance(live, int):
            return live
        events: Int64 = np.unique(of_events(live))
        return events

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the state of all stages to a checkpoint."""
        self._release_deferred()
        state.facts["table"] = self.table.snapshot()
        state.schemas["binding"] = self.binding.schema
        state.add_arrays("run", self.runtime.snapshot())
        if self._window is not None:
            state.add_arrays("window", self._window.snapshot())
        if self.binding.compared is not None:
            state.add_strings("compared", {0: self._strings.strings()})
        for stage in (self.partitioner, self._retained, self._stream_columns, self._pending):
            if stage is not None:
                stage.snapshot(state)
        if self._throttle is not None:
            state.add_arrays("spacing", self._throttle.snapshot())
        state.facts["output"] = self.output.snapshot()

    def restore(self, state: NamedState, binding: Binding) -> None:
        """Continue from a checkpoint with batches of a binding; the table must have been restored before."""
        self.rebind(binding)
        if self._semi_join is not None:
            self._semi_join.forget()
        self.runtime.restore(state.part("run"))
        if self._window is not None:
            self._window.restore(state.part("window"))
        if self.binding.compared is not None:
            self._strings.restore(state.strings("compared")[0])
        for stage in (self.partitioner, self._retained, self._stream_columns, self._pending):
            if stage is not None:
                stage.restore(state)
        if self._throttle is not None:
            self._throttle.restore(state.part("spacing"))
        self.output.restore(state.facts["output"])
