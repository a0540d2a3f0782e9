"""Pipeline of the stages of one query: from blocks to symbols, partitions, partial matches, complex events, rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cer_gpu.arrays import Array, Bools, Int32, Int64
from cer_gpu.automaton.alphabet import Table
from cer_gpu.automaton.encoding import COUNT_WINDOW, GLOBAL_WINDOW
from cer_gpu.columnar.clocks import Clock, WindowClocks
from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.memory import Scratch
from cer_gpu.columnar.rows import SelectedRows
from cer_gpu.engine.blocks import Batch, EventBlock
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.options import EvaluationOptions
from cer_gpu.engine.pending_starts import NO_POSITION, PendingStarts
from cer_gpu.engine.row_numbers import RowNumbers
from cer_gpu.engine.run_options import make_reduction, run_options
from cer_gpu.engine.shared_state import SharedState
from cer_gpu.engine.stream_columns import StreamColumns
from cer_gpu.engine.throttle import make_spacing
from cer_gpu.engine.waiting import Tallies, all_clocks, make_waiting
from cer_gpu.errors import EventsError
from cer_gpu.expressions.derived import makers_of, reads_one_event
from cer_gpu.expressions.side_columns import SideColumns, TextNumbers, text_columns
from cer_gpu.output.choice import RowChoice
from cer_gpu.output.form import Output
from cer_gpu.output.retention import Retained
from cer_gpu.partition.by_step import StepKeys
from cer_gpu.partition.dealt import partitions_of
from cer_gpu.partition.partitions import Partitions
from cer_gpu.partition.shared import SharedPartitions, ViewOfPartitions
from cer_gpu.planning.binding import Binding
from cer_gpu.planning.physical import PhysicalPlan
from cer_gpu.predicates.guards import GuardEvaluator
from cer_gpu.predicates.placement import CUDA
from cer_gpu.predicates.seen_types import SeenEventTypes
from cer_gpu.predicates.shared_guards import SharedGuards, SharedWords, may_share
from cer_gpu.predicates.symbols import SymbolTable
from cer_gpu.runtime.deferred_events import DeferredEvents
from cer_gpu.runtime.events import RelevantEvents
from cer_gpu.runtime.matches import MatchBuffers
from cer_gpu.runtime.progress.buffers import ProgressBuffers
from cer_gpu.runtime.progress.keyed import KeyedFunnelTable
from cer_gpu.runtime.protocol import FoundBuffers, Runtime
from cer_gpu.runtime.registry import make_runtime
from cer_gpu.stages import LOOP, OUTPUT, PARTITIONS, PREDICATES


class Pipeline:
    """One query over the blocks of a stream, as stages with names (`cer_gpu.stages`).

    Parameters
    ----------
    physical
    binding
        Binding to the schema of the first batch, which fixes the types of the results.
    asked
        Its device, stages, and part of the stream: the shard, the keys, and the first end.
    table
        Symbol table of the runtime (`PhysicalPlan.table`).
    types_met
        Collects the types of events.
    numbered
        True: the events have row numbers (`ROW_COLUMN`), which are reported in place of positions.
    shared
        Gives what this query shares with others; None: there are no others.

    Attributes
    ----------
    guards : GuardEvaluator or SharedWords
        Evaluation of predicates over batches of the last schema.
    runtime : Runtime
    partitions : Partitions or None
    tiers : set of str
        Tiers of the predicates so far (`GuardEvaluator.tier`).
    """

    def __init__(
        self,
        physical: PhysicalPlan,
        binding: Binding,
        asked: EvaluationOptions,
        table: Table,
        *,
        types_met: SeenEventTypes,
        numbered: bool = False,
        shared: SharedState | None = None,
    ) -> None:
        self.physical = physical
        self.binding: Binding
        self.binding = self._first = binding
        self.table = table
        self._device, self._types_met, self._stages = asked.device, types_met, asked.stages
        self._numbered = numbered
        self.tiers: set[str] = set()
        self._positions = Scratch(np.int64)
        self._shared, self._texts = shared, TextNumbers()
        self._compared = self._side_columns(binding)
        self.guards = self._guards_of(binding)
        self._makers = makers_of(binding.derived)
        self._symbols = SymbolTable(table, binding.guards.dtype, binding.guards.n_guards)
        self.restart(asked)

    def restart(self, asked: EvaluationOptions) -> None:
        """Begin another part of the stream; compiled code, and the symbols met, stay."""
        self.rebind(self._first)
        physical, binding, plan = self.physical, self._first, self.physical.plan
        self._texts = TextNumbers()
        if self._compared is not None:
            self._compared.restart(self._texts)
        self._weights = binding.weights if physical.output.weighed else None
        options = self._options = run_options(physical, binding, asked, self._texts)
        self.runtime: Runtime = make_runtime(physical.runtime, self.table, options, binding.window_length)
        self.runtime.stages = self._stages
        # an event that is not relevant still counts in a window of events, and breaks contiguity
        has_gaps = self.table.has_gaps or physical.strategy.consecutive
        self._every = options.window == COUNT_WINDOW or has_gaps
        counts = plan.every is not None and plan.every.within.kind == "events"
        self._every |= counts
        self._numbers = self.runtime.numbers_events or has_gaps or counts
        self.partitions: Partitions | ViewOfPartitions | None = None
        self._step_keys, self._parts = self._keys_of_steps(binding), binding.keys.parts
        if self._step_keys is not None:
            self._parts = self._step_keys.parts
        elif plan.partition and self._shared is not None and asked.key_shard is None:
            self.partitions = self._shared.partitions(binding.keys, numbered=self._numbers)
        if self._parts and self.partitions is None:
            self.partitions = self._partitions_of_its_own(asked.key_shard)
        self._stream_columns = StreamColumns(binding, asked.key_shard, self._guards_of_set(binding))
        self._window: WindowClocks | None = None
        if self.runtime.needs_lows:
            assert binding.window_length is not None
            self._window = WindowClocks(binding.window_length)
        self._reduction = make_reduction(physical, binding, self.table)
        self._live: DeferredEvents | None = None
        if physical.defers_events:
            assert binding.window_length is not None
            self._live = DeferredEvents(self.table, binding.window_length)
        retains = physical.output.retains(plan.head, plan.having)
        self._retained = Retained(*binding.retained(physical.output)) if retains else None
        shard = None if plan.pipes else asked.shard  # that of what pipes leave
        self._awaiting = make_waiting(physical, binding, self.table, self.runtime, self._options, shard)
        self.tallies: Tallies = Tallies(asked, counts_keys=self._step_keys is None)
        labels = self.table.labels if self._awaiting is None else self._awaiting.labels
        self.output: Output = physical.output(binding.result_columns(physical.output), labels, self._retained)
        self._rows = RowNumbers(self.output, binding.names_streams, waits=physical.waits) if self._numbered else None
        self._spacing = make_spacing(physical, binding, shard)
        if physical.limits_rows:
            assert plan.limit is not None
            self.output.choice = self._spacing or RowChoice(plan.limit, shard)
        if physical.output.whole_ends:
            self.output.reduce(shard)
        # (number, given position) of the first event of each batch
        self._places: list[tuple[int, int]] = [(0, 0)]

    def rebind(self, binding: Binding) -> None:
        """Evaluate the next batches with the binding to another schema."""
        if binding is not self.binding:
            self._check_compared(binding)
            self.binding = binding
            self._compared = self._side_columns(binding)
            self.guards = self._guards_of(binding)
            self._makers = makers_of(binding.derived)
            self._stream_columns.rebind(binding, self._guards_of_set(binding))
            self._step_keys = self._keys_of_steps(binding)

    def _guards_of(self, binding: Binding) -> GuardEvaluator | SharedWords:
        shared = self._guards_of_set(binding)
        if shared is None or not may_share(binding.guards, negates=self.physical.plan.negates):
            return GuardEvaluator(binding.guards, self._device, self._types_met, self._compared)
        return shared.words_for(binding.guards, self._types_met)

    def _guards_of_set(self, binding: Binding) -> SharedGuards | None:
        """Return the guards of the set; None: there is none, or a GPU evaluates them ahead of derived columns."""
        if self._shared is None:
            return None
        shared = self._shared.guards(binding.schema, binding.guards.type_column)
        return None if binding.derived and shared.device == CUDA else shared

    def _side_columns(self, binding: Binding) -> SideColumns | None:
        bound = None if self.physical.output.by_starts else binding.compared  # a funnel has no filters between events
        return None if bound is None else SideColumns(bound.columns, bound.binder.inputs, self._texts)

    def _check_compared(self, binding: Binding) -> None:
        """Refuse another schema under which filters between events compare values of other types."""
        first, other = self._first.compared, binding.compared
        if first is not None and other is not None and other.shape != first.shape:
            raise EventsError(
                "the columns that filters between events compare have other types than in the batches before\n"
                "hint: cast them to one type"
            )

    def ahead(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks with derived columns; on a GPU, the predicates of the next block are already in flight."""
        return self.guards.ahead(map(self._with_derived, blocks), self._symbols)

    def _with_derived(self, block: Block) -> Block:
        block.derive(self._makers)
        with self._stages.stage(PREDICATES):
            self._stream_columns.add_to(block)
        return block

    @property
    def reads(self) -> SharedWords | None:
        """See `QueryExecution`."""
        every = (self.partitions is not None and (self._every or self._numbers)) or self.physical.output.by_starts
        every |= self.physical.output.whole_ends or not all(map(reads_one_event, self.binding.derived.values()))
        every |= any(each is not None for each in (self._awaiting, self._reduction, self._spacing))
        return None if every or not isinstance(self.guards, SharedWords) else self.guards

    @property
    def numbers_rows(self) -> bool:
        """True if results name rows of the input in place of positions."""
        return self._rows is not None

    @property
    def first_held(self) -> int:
        """First event whose row of "funnel" is not handed over; `NO_POSITION` if there is none."""
        return self._awaiting.first_held if isinstance(self._awaiting, PendingStarts) else NO_POSITION

    @property
    def n_suppressed(self) -> int:
        """Number of complex events that LIMIT n EVERY d has left out."""
        return 0 if self._spacing is None else self._spacing.n_suppressed

    # ---- the stages of a block --------------------------------------------------------------------------------

    def feed(self, block: EventBlock, clocks: dict[str, Clock]) -> Iterator[FoundBuffers]:
        """Evaluate a block and yield full buffers of complex events that end in it, in the order of the ends.

        Parameters
        ----------
        block
        clocks
            Clocks of the stream, for the times of the relevant events.
        """
        columns = block.columns
        yield from self._before_sweeps()
        with self._stages.stage(PREDICATES):
            picked = SelectedRows(*self.guards.select(columns, self._symbols))
        self.tiers.add(self.guards.tier)
        self._sweep_texts()
        partitions, ordinals = np.empty(0, np.int32), np.empty(0, np.int64)
        if self.partitions is not None:
            with self._stages.stage(PARTITIONS):
                if isinstance(self.partitions, Partitions) and self.partitions.wants_sweep:
                    self._drop_idle(self.partitions)
                self.tallies.count_without_key(self.binding.keys, columns.batch, picked.rows, block.first)
                counted = self._awaiting is not None and self._options.window == COUNT_WINDOW
                if counted:
                    # an event that is not relevant may be the first beyond a window
                    every = np.zeros(columns.n_rows, np.int32)
                    every[picked.rows] = picked.symbols
                    picked = SelectedRows(every, np.arange(columns.n_rows, dtype=np.int32))
                keys = partial(self.binding.keys.arrays, columns.batch, self._parts)
                if self._step_keys is not None:
                    assert isinstance(self.partitions, Partitions)
                    picked, partitions = self._step_keys.assign(columns.batch, picked, self._parts, self.partitions)
                elif isinstance(self.partitions, Partitions):
                    symbols, rows, partitions, ordinals = self.partitions.assign(keys(), picked.symbols, picked.rows)
                    picked = SelectedRows(symbols, rows)
                else:
                    picked, partitions, ordinals = self.partitions.assign(keys, picked)
                if counted:
                    self._passing = partitions, ordinals, block.first + picked.rows.astype(np.int64)
            if self.runtime.keeps_partitions:
                self.runtime.reserve_partitions(self.partitions.n)
        if not len(picked.rows):
            return
        events = self._relevant(block, clocks, picked, partitions, ordinals)
        if self._spacing is not None:
            self._spacing.note(events, self.table.ending, block, clocks, picked)
        if self._retained is not None:
            self._retained.add(events.reported, columns.batch, picked.rows)
        if self._rows is not None:
            self._rows.add(events.reported, columns.batch, picked.rows)
        pieces = [events]
        if self._reduction is not None:
            with self._stages.stage(LOOP):
                pieces = self._reduction.take(events)
        for piece in pieces:
            yield from self._take(piece)

    def pass_by(self, block: EventBlock, clocks: dict[str, Clock], batch: Batch) -> Iterator[Any]:
        """Yield the rows of the complex events that waited until an event of the block, whose results were all read."""
        waiting = self._awaiting
        if waiting is None:
            return
        found = self.runtime.flush()
        assert isinstance(found, MatchBuffers)
        waiting.take(found, self._keys_of(found, batch))
        if self._options.window == COUNT_WINDOW:
            waiting.pass_events(*self._passing)
        else:
            waiting.pass_clocks(
                all_clocks(self.binding, block, clocks, partitioned=self.partitions is not None), block.first
            )
        yield from self._known()

    @property
    def next_deadline(self) -> int | None:
        """Least key of a time by which complex events that wait are known; None: time alone makes none known."""
        return self._awaiting.next_deadline if self._awaiting is not None and self._waits_for_time else None

    def advance_watermark(self, key: int, first: int) -> Iterator[Any]:
        """Yield the rows of the complex events that waited for a time, given by its key, before event `first`."""
        if self._awaiting is not None and self._waits_for_time:
            self._awaiting.pass_clocks(np.array([key], np.uint64), first)
            yield from self._known()

    @property
    def _waits_for_time(self) -> bool:
        return (
            self.physical.plan.time_column is not None and self.binding.window_column == self.physical.plan.time_column
        )

    @property
    def _is_plain(self) -> bool:
        """True if results are made of nothing but the runtime's."""
        return all(each is None for each in (self.partitions, self._retained, self._spacing, self._rows))

    def finish(self) -> Iterator[Any]:
        """Yield the rows of the complex events that wait at the end of the stream."""
        for piece in self._reduction.release(ended=True) if self._reduction is not None else ():
            for found in self._take(piece):
                yield self._results(found, [], None), found
            rest = self.runtime.flush()
            if len(rest):
                yield self._results(rest, [], None), rest
        if self._awaiting is not None:
            self._awaiting.finish()
            for rows, found in self._known():
                if self.tallies.reports(0 if isinstance(self._awaiting, PendingStarts) else self.output.n_of(found)):
                    yield rows, found

    def _known(self) -> Iterator[tuple[Any, FoundBuffers]]:
        assert self._awaiting is not None
        while (known := self._awaiting.known()) is not None:
            with self._stages.stage(OUTPUT):
                rows = self._results(*known, None)
            yield rows, known[0]

    def flush(self, batch: Batch) -> Iterator[FoundBuffers]:
        """Yield the rest of the complex events that end in a batch; then drop events that no future one can hold."""
        # results that are no more than positions need not come with their batch, where all events are there
        if self._reduction is not None and (batch.ends is None or batch.is_last or not self._is_plain):
            for piece in self._reduction.release(ended=batch.is_last):
                yield from self._take(piece)
        yield from self._rest()
        if self._spacing is not None:
            self._spacing.forget()
        of_rows = None if self._rows is None else self._rows.retained
        if not (kept := [each for each in (self._retained, of_rows) if each is not None]):
            return
        of_clocks = self.partitions is not None and self._options.window == GLOBAL_WINDOW
        if of_clocks and batch.given is not None and len(batch.given):
            self._places.append((batch.first, int(batch.given[0])))
        if any(each.wants_trim for each in kept):
            self.release()  # complex events to come may hold what is held back, too
            live = self.runtime.live()
            if self._awaiting is not None:
                held = self._awaiting.live()
                if isinstance(live, int):
                    live = min(live, int(held[0])) if len(held) else live
                else:
                    live = np.union1d(live, held)
            for each in kept:
                if isinstance(live, int):
                    each.keep_from(self._place_of(live))
                else:
                    each.keep(live)

    def release(self) -> None:
        """Feed the held-back events to the runtime; they end no complex event."""
        for held in self._live.release() if self._live is not None else ():
            assert not any(map(len, self._run(held)))

    def rows(self, found: FoundBuffers, batch: Batch) -> Any:
        """Return the complex events found in a batch as rows."""
        with self._stages.stage(OUTPUT):
            keys = self._keys_of(found, batch)
            if self._awaiting is None:
                return self._results(found, keys, batch)
            assert isinstance(found, MatchBuffers)
            self._awaiting.take(found, keys)
            return None

    def _results(self, found: FoundBuffers, keys: list[Any], batch: Batch | None) -> Any:
        """Return complex events as rows; those that end in no batch have waited."""
        results = self.output.rows(found, keys)
        return results if self._rows is None else self._rows.exchange(results, batch)

    def rest(self, batch: Batch | None) -> Any:
        """Return the rows that the output held back, after all others of a batch; None: there are none."""
        rest = self.output.rest()
        return rest if rest is None or self._rows is None else self._rows.exchange(rest, batch)

    def _keys_of(self, found: FoundBuffers, batch: Batch) -> list[Any]:
        """Return the keys of PARTITION BY at the ends of complex events."""
        if self.partitions is None:
            return []
        assert not isinstance(found, ProgressBuffers)  # their keys have waited (`PendingStarts`)
        return self.binding.keys.at(batch.events, batch.rows_at(found.ends), self._first.keys.types)

    def _keys_of_steps(self, binding: Binding) -> StepKeys | None:
        """Return the keys that depend on the steps which events satisfy; None: those of all events are the same."""
        if not isinstance(self.table, KeyedFunnelTable):
            return None
        return StepKeys(self.table, binding.keys, binding.schema, self.physical.plan.text)

    def _partitions_of_its_own(self, key_shard: tuple[int, int] | None = None) -> Partitions:
        return partitions_of(self._parts, key_shard, every=self._every, numbered=self._numbers)

    def shares(self, partitions: SharedPartitions) -> bool:
        """Return True if the query has a view on these partitions."""
        return isinstance(self.partitions, ViewOfPartitions) and self.partitions.shared is partitions

    def own_partitions(self) -> None:
        """Take over the shared partitions, and drop those that hold nothing of this query."""
        assert self.partitions is not None
        own = self._partitions_of_its_own()
        own.restore(*self.partitions.snapshot())
        self.partitions = own
        self._drop_idle(own)

    def busy(self, n: int) -> Bools:
        """Return which of the first `n` partitions hold something."""
        if self.runtime.keeps_partitions:
            self.runtime.reserve_partitions(n)
        busy: Bools = ~self.runtime.idle(n)
        if self._spacing is not None:
            busy |= self._spacing.holds(n)
        return busy if self._awaiting is None else busy | self._awaiting.holds(n)

    def keep_partitions(self, kept: Bools) -> None:
        """Drop what is held of the partitions that are not `kept`; the others are numbered anew in their order."""
        for holder in (self._awaiting, self._spacing):
            if holder is not None:
                holder.keep_partitions(kept)
        self.runtime.keep_partitions(kept)

    def _drop_idle(self, partitions: Partitions) -> None:
        kept = self.busy(partitions.n)
        partitions.keep(kept)
        self.keep_partitions(kept)

    def _sweep_texts(self) -> None:
        """Drop the texts that no partial match holds, once there are many."""
        bound = self.binding.compared
        if bound is None or not (self._texts.wants_sweep and self.runtime.keeps_texts):
            return
        self.release()  # held-back events have their numbers already
        columns = [1 + column for column in text_columns(bound.columns)]
        self.runtime.renumber_texts(columns, self._texts.keep(self.runtime.texts_in(columns)))

    def _relevant(
        self,
        block: EventBlock,
        clocks: dict[str, Clock],
        picked: SelectedRows,
        partitions: Int32,
        ordinals: Int64,
    ) -> RelevantEvents:
        """Return the relevant events of a block, valid until the next block."""
        plan, given, rows = self.physical.plan, block.given, picked.rows
        positions = self._positions.empty(len(rows))
        positions[:] = rows
        positions += block.first
        nothing = np.empty(0, np.int64)
        places = nothing
        if given is not None and self.partitions is None:
            positions = given[rows]
        elif given is not None:
            places = given[rows]
        times = {name: clocks[name].at(rows, block.times[name]) for name in self.binding.clocks}
        window_clocks: Array = positions.view(np.uint64)
        if self._options.window == COUNT_WINDOW:
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
                attributes = self._compared.of(block.columns, rows)
        return RelevantEvents(
            picked.symbols, positions, nothing, of_time, partitions, ordinals, places, window_clocks, attributes
        )

    def _before_sweeps(self) -> Iterator[FoundBuffers]:
        """Hand over the events that wait, where partitions or texts are about to get other numbers."""
        owned = isinstance(self.partitions, Partitions) and self.partitions.wants_sweep
        if self._reduction is not None and (owned or self._texts.wants_sweep):
            for piece in self._reduction.release():
                yield from self._take(piece)
            self._reduction.forget()
        if self._spacing is not None and owned:
            yield from self._rest()
            self._spacing.forget()

    def _take(self, events: RelevantEvents) -> Iterator[FoundBuffers]:
        """Feed events that may have partners, if they are in the window of one that may end a complex event."""
        for piece in [events] if self._live is None else self._live.take(events):
            yield from self._run(piece)

    def _run(self, events: RelevantEvents) -> Iterator[FoundBuffers]:
        """Feed relevant events to the runtime."""
        if self._awaiting is not None:
            self._awaiting.note(events)
        if self._window is not None:
            events = replace(events, lows=self._window.lows(events.window_clocks, self.runtime.n_relevant))
        for piece in events.near_one_another():
            yield from map(self._chosen, self._stages.each(LOOP, self.runtime.feed(piece)))

    def _rest(self) -> Iterator[FoundBuffers]:
        """Yield what the runtime found since its last full buffer."""
        if len(rest := self._chosen(self.runtime.flush())):
            yield rest

    def _chosen(self, found: FoundBuffers) -> FoundBuffers:
        """Return what LIMIT n EVERY d keeps; where HAVING comes first, the output chooses."""
        return found if self._spacing is None or self.physical.limits_rows else self._spacing.choose(found)

    def _place_of(self, position: int) -> int:
        """Return a given position at or before that of the event with this number, from the begins of the batches."""
        if self.binding.position_column is None or self.partitions is None:
            return position
        while len(self._places) > 1 and self._places[1][0] <= position:
            self._places.pop(0)
        return self._places[0][1]

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the state of all stages to a checkpoint."""
        self.release()
        state.facts["table"] = self.table.snapshot()
        state.schemas["binding"] = self.binding.schema
        state.add_arrays("run", self.runtime.snapshot())
        if self._window is not None:
            state.add_arrays("window", self._window.snapshot())
        if self.binding.compared is not None:
            state.add_texts("compared", {0: self._texts.texts()})
        if isinstance(self.partitions, Partitions):  # shared ones are kept by the set
            arrays, texts = self.partitions.snapshot()
            state.facts["owns_partitions"] = True
            state.add_arrays("partitions", arrays)
            state.add_texts("texts", texts)
        if self._retained is not None:
            state.arrays["retained"], state.tables["retained"] = self._retained.snapshot()
        if self._rows is not None and self._rows.retained is not None:
            state.arrays["rows"], state.tables["rows"] = self._rows.retained.snapshot()
        self._stream_columns.snapshot(state)
        if self._awaiting is not None:
            arrays, state.tables["awaiting"] = self._awaiting.snapshot()
            state.add_arrays("awaiting", arrays)
        if self._spacing is not None:
            state.add_arrays("spacing", self._spacing.snapshot())
        state.facts["output"] = self.output.snapshot()

    def restore(self, state: NamedState, binding: Binding) -> None:
        """Go on from a checkpoint with batches of a binding; the table must have been restored before."""
        self.rebind(binding)
        if self._reduction is not None:
            self._reduction.forget()
        self.runtime.restore(state.part("run"))
        if self._window is not None:
            self._window.restore(state.part("window"))
        if self.binding.compared is not None:
            self._texts.restore(state.texts("compared")[0])
        if state.facts.get("owns_partitions"):
            if not isinstance(self.partitions, Partitions):
                self.partitions = self._partitions_of_its_own()
            self.partitions.restore(state.part("partitions"), state.texts("texts"))
        if self._retained is not None:
            self._retained.restore(state.arrays["retained"], state.tables["retained"])
        if self._rows is not None and self._rows.retained is not None:
            self._rows.retained.restore(state.arrays["rows"], state.tables["rows"])
        self._stream_columns.restore(state)
        if self._awaiting is not None:
            self._awaiting.restore(state.part("awaiting"), state.tables["awaiting"])
        if self._spacing is not None:
            self._spacing.restore(state.part("spacing"))
        self.output.restore(state.facts["output"])
