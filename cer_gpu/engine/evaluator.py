"""The evaluation of one query over a stream of batches; all state is carried from batch to batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.automaton.chain import Chain
from cer_gpu.automaton.determinize import Determinization
from cer_gpu.backend.compaction import number_rows
from cer_gpu.backend.evaluation import COUNT_WINDOW, GLOBAL_WINDOW
from cer_gpu.columnar.clocks import Clock, Window
from cer_gpu.columnar.columns import Block, numbers_of
from cer_gpu.columnar.fields import columns_with
from cer_gpu.columnar.memory import Scratch
from cer_gpu.columnar.resident import DeviceEvents, refuse_resident
from cer_gpu.columnar.strings import StringCoder
from cer_gpu.engine.checkpoint import State
from cer_gpu.errors import CerError, EventsError, OptionError, did_you_mean
from cer_gpu.order.lateness import parse_lateness
from cer_gpu.order.reorder import Reorder
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.output.outputs import Output, output_schema
from cer_gpu.output.retention import Retained
from cer_gpu.partition.partitions import Partitions
from cer_gpu.planning.plan import Binding, Plan
from cer_gpu.predicates.placement import BLOCKS_AT_ONCE, CUDA, before_events
from cer_gpu.predicates.symbols import SymbolTable
from cer_gpu.predicates.types_met import TypesMet, types_named
from cer_gpu.runtime.chain_counter import ChainCounter
from cer_gpu.runtime.counter import Counter
from cer_gpu.runtime.counts import CountBuffers
from cer_gpu.runtime.keyed_stacks import KeyedStacks
from cer_gpu.runtime.live_intervals import LiveIntervals
from cer_gpu.runtime.loop import Relevant
from cer_gpu.runtime.matches import MatchBuffers
from cer_gpu.runtime.run import Run
from cer_gpu.runtime.stacks import Stacks

BLOCK_ROWS = 1 << 18
"""Rows evaluated at once: the temporaries of the predicates stay in the cache."""

Lateness = str | int | float | timedelta
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Options:
    """How an evaluator reads and what it gives; see `cer_gpu.Query.evaluator`.

    `begin` is the first position, and `deal` (k, n) for events of the k-th of n shares of the keys alone.
    """

    output: str = "positions"
    lateness: Lateness | None = None
    late: str = "refuse"
    share: tuple[int, int] | None = None
    position_column: str | None = None
    first_end: int = 0
    begin: int = 0
    deal: tuple[int, int] | None = None
    device: str = "auto"


class Evaluator:
    """Evaluates a query batch by batch: `push` events, `finish` at the end.

    Made by `cer_gpu.Query.evaluator` and `cer_gpu.Query.restore`.  The concatenated results do not depend on how the
    stream is cut.

    Attributes
    ----------
    n_pushed : int
        Events taken in so far.
    n_events : int
        Events read so far; with `lateness`, some are still held back.
    n_matches : int
        Complex events found so far.
    """

    def __init__(self, plan: Plan, options: Options) -> None:
        self.n_pushed = options.begin
        self.n_events = options.begin
        self.n_matches = 0
        self._last_position = -1
        self._places: list[tuple[int, int]] = [(0, 0)]  # of the first events of batches: their number, their position
        self._plan = plan
        self._options = options
        self._types_met = types_named((guard.event_type for guard in plan.cea.guards), plan.type_column)
        self._table = table_of(plan, options)
        self._binding: Binding | None = None
        self._positions = Scratch(np.int64)
        self._coders: dict[str, StringCoder] = {}
        self._reorder: Reorder | None = None
        self._refusal = ""  # why no more events are taken
        self._among_threads = False  # which wait for one another between blocks

    @property
    def output(self) -> str:
        """What the rows of the results are."""
        return self._options.output

    @property
    def engine(self) -> str:
        """What finds the complex events: "stacks" (for chains), "automaton", or "counter" where they are counted."""
        if self.output == "count":
            return "counter"
        return "stacks" if isinstance(self._table, Chain) else "automaton"

    @property
    def placement(self) -> tuple[str, str]:
        """On which device ("cpu" or "cuda") the predicates of the next events are evaluated, and why."""
        if self._binding is None:
            return before_events(self._options.device)
        return self._binding.guards.placement.device, self._binding.guards.placement.reason

    @property
    def holds_back(self) -> bool:
        """Whether events wait until one may end a complex event (`cer_gpu.runtime.live_intervals`)."""
        plan = self._plan
        if plan.within is None or plan.partition or self.output == "events":
            return False
        if isinstance(self._table, Chain):
            return True
        independent = plan.strategy in ("ALL", "STRICT") and plan.consume == "NONE"
        return independent and self.engine == "counter"

    @property
    def n_late(self) -> int:
        """Events that came later than `lateness` allows, so far."""
        return 0 if self._reorder is None else self._reorder.n_late

    @property
    def notes(self) -> list[str]:
        """Remarks on the events read so far: the types that the query names and none of them has."""
        return self._types_met.notes if self.n_events > self._options.begin else []

    def expect(self, schema: pa.Schema) -> None:
        """Let the results be those over events of a schema, unless there have been events already.

        Raises
        ------
        QueryTypeError
            When the query does not fit the schema.
        """
        if self._binding is None:
            self._bind(schema)

    def push(self, batch: pa.RecordBatch | DeviceEvents, stream: str | None = None) -> pa.RecordBatch:
        """Read the events of a batch and return the complex events that end in it.

        Parameters
        ----------
        batch : pyarrow.RecordBatch or DeviceEvents
            The next events.  Its columns may change their types, those that tell the time excepted.
        stream
            The stream of FROM that they are from, where there are several.

        Returns
        -------
        pyarrow.RecordBatch
            In the order of their ends; `push_batches` gives the same in pieces of bounded size.

        Raises
        ------
        QueryTypeError
            At the first batch, when the query does not fit its schema.
        TimeOrderError
            When a time decreases (by more than `lateness`) or is missing.
        """
        return self._gathered(self.push_batches(batch, stream))

    def push_batches(self, batch: pa.RecordBatch | DeviceEvents, stream: str | None = None) -> Iterator[pa.RecordBatch]:
        """Read the events of a batch and yield the complex events that end in it, in pieces of bounded size.

        The pieces must all be read before the next batch is pushed; the batch is evaluated while they are.
        """
        if self._refusal:
            raise OptionError(f"{self._refusal}: make a new evaluator")
        if isinstance(batch, DeviceEvents):
            batch = batch.batch()
        if not isinstance(batch, pa.RecordBatch):
            raise EventsError(f"expected a pyarrow.RecordBatch, got {type(batch).__name__}")
        if stream is not None:
            batch = self._of_stream(batch, stream)
        binding = self._bind(batch.schema)
        names = binding.columns_for(self.output)
        for_all = "output='events'" if self.output == "events" else "lateness" if self._options.lateness else ""
        on_host = names if for_all else binding.columns_on_host
        refuse_resident(batch, on_host, for_all or "the window, PARTITION BY or the column of positions")
        self._refusal = "the matches of the batch before were not all read"
        return self._in_order(batch.select(columns_with(batch.schema, names)) if names else batch)

    def finish(self) -> pa.RecordBatch:
        """End the stream and return what was still held back (nothing, unless there is a `lateness`).

        Where no batch was pushed, the types of columns are not known, and the columns that need them are left out.
        """
        return self._gathered(self.finish_batches())

    def finish_batches(self) -> Iterator[pa.RecordBatch]:
        """End the stream and yield what was still held back, in pieces of bounded size."""
        held = [] if self._reorder is None or self._refusal else self._reorder.finish()
        try:
            for batch in held:
                yield from self._evaluate(self._bind(batch.schema), batch)
        finally:
            self._refusal = "the stream is finished"
            if self._binding is not None:
                self._binding.guards.release()

    def over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Push all batches, finish, and yield what is found."""
        for batch in batches:
            yield from self.push_batches(batch)
        yield from self.finish_batches()

    # ---- ranges of the stream -------------------------------------------------------------------------------

    @property
    def may_be_cut(self) -> bool:
        """Whether nothing was read yet, and no option looks at the whole stream."""
        options = self._options
        return not self.n_pushed and options.lateness is None and options.share is None and not options.position_column

    @property
    def window(self) -> tuple[str | None, np.uint64 | np.float64]:
        """The column that the window is measured in (None: events), and its length; after `expect`."""
        assert self._binding is not None
        assert self._binding.window_length is not None
        return self._binding.window_column, self._binding.window_length

    def part(self, begin: int, first_end: int) -> Evaluator:
        """Return one for the same stream from position `begin` on, which lists what ends from `first_end` on."""
        return self._other(replace(self._options, begin=begin, first_end=first_end))

    def restart(self, begin: int, first_end: int) -> None:
        """Let a part be one from another position on, with what it has compiled and the symbols that it has met."""
        self._binding = self._first_binding
        self._options = replace(self._options, begin=begin, first_end=first_end)
        self.n_pushed = self.n_events = begin
        self.n_matches = 0
        self._refusal = ""
        self._start(self._first_binding)

    def of_keys(self, share: int, n_shares: int) -> Evaluator:
        """Return one for the same stream that evaluates one share of the keys of PARTITION BY."""
        return self._other(replace(self._options, deal=(share, n_shares)))

    def _other(self, options: Options) -> Evaluator:
        other = Evaluator(self._plan, options)
        other._among_threads = True
        other._types_met = self._types_met
        other.expect(self._schema)
        return other

    # ---- state that can be kept -----------------------------------------------------------------------------

    def checkpoint(self) -> bytes:
        """Return all state as bytes, from which `cer_gpu.Query.restore` makes an evaluator that goes on here.

        Raises
        ------
        OptionError
            After `finish`, after an error, or while matches of a batch are still to be read.
        """
        if self._refusal:
            raise OptionError(f"{self._refusal}: there is no state to keep")
        options = asdict(self._options)
        del options["device"]  # which another machine need not have
        if isinstance(self._options.lateness, timedelta):
            options["lateness"] = f"{self._options.lateness // timedelta(microseconds=1)}us"
        state = State(self._plan, options)
        state.facts["n"] = [self.n_pushed, self.n_events, self.n_matches, self._last_position]
        if self._binding is not None:
            state.facts["table"] = self._table.snapshot()
            state.schemas["events"] = self._schema
            state.schemas["binding"] = self._binding.schema
            for held in self._live.release() if self._live is not None else ():
                for _ in self._feed(held):  # what is held back ends nothing
                    raise AssertionError
            state.add_arrays("run", self._run.snapshot())
            if self._window is not None:
                state.add_arrays("window", self._window.snapshot())
            for i, clock in enumerate(self._clocks.values()):
                state.facts[f"clock{i}"], state.tables[f"clock{i}"] = clock.snapshot()
            if self._partitions is not None:
                arrays, texts = self._partitions.snapshot()
                state.add_arrays("partitions", arrays)
                state.tables |= {f"texts{i}": pa.table({"text": t}) for i, t in texts.items()}
            if self._retained is not None:
                positions, rows = self._retained.snapshot()
                state.arrays["retained"], state.tables["retained"] = positions, rows
            if self._reorder is not None:
                rows, facts = self._reorder.snapshot()
                state.facts["reorder"] = facts
                if rows is not None:
                    state.tables["reorder"] = rows
        return state.to_bytes()

    @classmethod
    def restore(cls, plan: Plan, blob: bytes) -> Evaluator:
        """Make an evaluator from a checkpoint."""
        state = State.from_bytes(plan, blob)
        share = state.options.pop("share")
        evaluator = cls(plan, Options(**state.options, share=None if share is None else tuple(share)))
        evaluator.n_pushed, evaluator.n_events, evaluator.n_matches, evaluator._last_position = state.facts["n"]
        evaluator._types_met = TypesMet(())  # what was met before is not known
        if "events" in state.schemas:
            evaluator._table.restore(state.facts["table"])
            evaluator._begin(evaluator._binding_of(state.schemas["events"]))
            evaluator._binding = evaluator._binding_of(state.schemas["binding"])
            evaluator._restore(state)
        return evaluator

    def _restore(self, state: State) -> None:
        self._run.restore(state.part("run"))
        if self._window is not None:
            self._window.restore(state.part("window"))
        for i, clock in enumerate(self._clocks.values()):
            clock.restore(state.facts[f"clock{i}"], state.tables[f"clock{i}"])
        if self._partitions is not None:
            prefix = "texts"
            texts = {
                int(n[len(prefix) :]): t["text"].combine_chunks()
                for n, t in state.tables.items()
                if n.startswith(prefix)
            }
            self._partitions.restore(state.part("partitions"), texts)
        if self._retained is not None:
            self._retained.restore(state.arrays["retained"], state.tables["retained"])
        if self._reorder is not None:
            self._reorder = Reorder.restore(state.tables.get("reorder"), state.facts["reorder"])

    # ---- one batch ------------------------------------------------------------------------------------------

    def _of_stream(self, batch: pa.RecordBatch, stream: str) -> pa.RecordBatch:
        streams = self._plan.streams
        if streams and stream not in streams:
            hint = did_you_mean(stream, streams, "streams in FROM")
            raise OptionError(f"stream {stream!r} is not in FROM" + (f"\nhint: {hint}" if hint else ""))
        if len(streams) < 2:
            return batch
        codes = pa.array(np.zeros(batch.num_rows, np.int32))
        return batch.append_column(STREAM_COLUMN, pa.DictionaryArray.from_arrays(codes, [stream]))

    def _bind(self, schema: pa.Schema) -> Binding:
        binding = self._binding
        if binding is None or not binding.fits(schema):
            fresh = self._binding_of(schema)
            if binding is None:
                self._begin(fresh)
            binding = self._binding = fresh
        return binding

    def _binding_of(self, schema: pa.Schema) -> Binding:
        options = self._options
        return Binding(
            self._plan,
            schema,
            with_attributes=options.output == "events",
            position_column=options.position_column,
            device=options.device,
            types_met=self._types_met,
        )

    def _begin(self, binding: Binding) -> None:
        self._schema = binding.schema
        self._first_binding = binding
        self._symbols = SymbolTable(self._table, binding.guards.dtype, binding.guards.n_guards)
        self._start(binding)

    def _start(self, binding: Binding) -> None:
        plan, given, output = self._plan, self._options, self.output
        options = self._run_options = binding.run_options(
            plan,
            labelled=output == "bindings",
            share=given.share,
            first_end=given.first_end,
            placed=given.position_column is not None and bool(plan.partition),
        )
        self._clocks = {name: Clock(name, given.begin) for name in binding.clocks}
        self._partitions = None
        if plan.partition:
            # events that are not relevant count where the window counts, and break what is contiguous
            every = options.window == COUNT_WINDOW or self._table.has_gaps
            self._partitions = Partitions(
                binding.keys.types, every=every, numbered=self._counts_partitions, deal=given.deal
            )
        self._keys_types = binding.keys.types
        self._run: Run | Counter | Stacks | KeyedStacks | ChainCounter
        if isinstance(self._table, Chain):
            of_chain = ChainCounter if output == "count" else KeyedStacks if plan.partition else Stacks
            self._run = of_chain(self._table, options, binding.window_length)
        else:
            self._run = (Counter if output == "count" else Run)(self._table, options)
        self._window = None
        wants_lows = isinstance(self._run, Counter) or (isinstance(self._run, Run) and not options.in_positions)
        if options.window == GLOBAL_WINDOW and wants_lows:
            assert binding.window_length is not None
            self._window = Window(binding.window_length)
        self._live: LiveIntervals | None = None
        if self.holds_back:
            assert binding.window_length is not None
            self._live = LiveIntervals(self._table, binding.window_length)
        self._retained = Retained(binding.attribute_schema, binding.attributes) if output == "events" else None
        self._output = Output(plan, binding, output, self._table.labels, self._retained)
        if given.lateness is not None:
            assert plan.time_column is not None
            assert binding.time_type is not None
            units = parse_lateness(given.lateness, binding.time_type, plan.time_unit)
            self._reorder = Reorder(plan.time_column, units, given.late)

    def _in_order(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        try:
            batches = [batch] if self._reorder is None else self._reorder.push(batch)
            self.n_pushed += batch.num_rows
            for ready in batches:
                yield from self._evaluate(self._bind(ready.schema), ready)
        except CerError:
            self._refusal = "an error ended the stream"
            raise
        self._refusal = ""

    def _evaluate(self, binding: Binding, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        first: int | Positions = self.n_events
        if self._options.position_column is not None:
            first = self._check_positions(batch.column(self._options.position_column))
            by_clocks = self._partitions is not None and self._run_options.window == GLOBAL_WINDOW
            if len(first) and self._retained is not None and by_clocks:
                self._places.append((self.n_events, int(first[0])))
        many = self._among_threads or binding.guards.placement.device == CUDA
        size = BLOCK_ROWS * (BLOCKS_AT_ONCE if many else 1)
        blocks = (Block(batch.slice(start, size), self._coders) for start in range(0, batch.num_rows, size))
        for block in binding.guards.ahead(blocks, self._symbols):
            for found in self._block(binding, block):
                yield self._to_arrow(found, binding, batch, first)
        rest = self._run.flush()
        if len(rest):
            yield self._to_arrow(rest, binding, batch, first)
        if self._retained is not None and self._retained.wants_trim:
            if self._run_options.window == GLOBAL_WINDOW and isinstance(self._run, Run):
                self._retained.keep_from(self._place_of(self._run.last_low))
            elif isinstance(self._run, Run | Stacks | KeyedStacks):
                self._retained.keep(self._run.live_positions())

    def _block(self, binding: Binding, block: Block) -> Iterator[MatchBuffers | CountBuffers]:
        name = self._options.position_column
        given = None if name is None else block.numbers(name)
        times = {column: clock.read(block, given) for column, clock in self._clocks.items()}
        symbols, rows = binding.guards.select(block, self._symbols)
        first = self.n_events
        self.n_events += block.n_rows
        partitions, ordinals = np.empty(0, np.int32), np.empty(0, np.int64)
        if self._partitions is not None:
            if self._partitions.wants_sweep:
                assert isinstance(self._run, Run | Counter | KeyedStacks)
                kept = ~self._run.idle(self._partitions.n)
                self._partitions.keep(kept)
                self._run.keep_partitions(kept)
            keys = binding.keys.arrays(block.batch, self._keys_types)
            symbols, rows, partitions, ordinals = self._partitions.assign(keys, symbols, rows)
            if isinstance(self._run, Run | Counter | KeyedStacks):
                self._run.reserve_partitions(self._partitions.n)
        if not len(rows):
            return
        positions = self._positions.empty(len(rows))
        number_rows(rows, first, positions)
        places = np.empty(0, np.int64)
        if given is not None and self._partitions is None:
            positions = given[rows]
        elif given is not None:
            places = given[rows]
        lows = clocks = np.empty(0, np.int64)
        moments: npt.NDArray[Any] = positions.view(np.uint64)
        if self._run_options.window == COUNT_WINDOW:
            moments = ordinals.view(np.uint64)
        relevant = {column: self._clocks[column].at(rows, values) for column, values in times.items()}
        if self._plan.time_column is not None:
            clocks = relevant[self._plan.time_column].view(np.int64)
        if binding.window_column is not None:
            moments = self._clocks[binding.window_column].moments(relevant[binding.window_column])
        if self._retained is not None:
            self._retained.add(places if len(places) else positions, block.batch, rows)
        events = Relevant(symbols, positions, lows, clocks, partitions, ordinals, places, moments)
        for piece in [events] if self._live is None else self._live.take(events):
            yield from self._feed(piece)

    def _feed(self, events: Relevant) -> Iterator[MatchBuffers | CountBuffers]:
        if self._window is not None:
            assert isinstance(self._run, Run | Counter)  # others look at the clocks themselves
            events = replace(events, lows=self._window.lows(events.moments, self._run.n_relevant))
        for piece in events.near_one_another():
            yield from self._run.feed(piece)

    def _check_positions(self, column: pa.Array) -> Positions:
        """Return the given positions of a batch after checking that they ascend."""
        positions = numbers_of(column)
        before = np.concatenate([[self._last_position], positions])
        if column.null_count or (before[1:] <= before[:-1]).any():
            raise EventsError(
                f"the positions in {self._options.position_column!r} must ascend from 0, and none may be missing"
            )
        self._last_position = int(before[-1])
        return positions

    def _place_of(self, position: int) -> int:
        """Return a given position that is not after that of an event, by the batches since."""
        if self._options.position_column is None or self._partitions is None:
            return position
        while len(self._places) > 1 and self._places[1][0] <= position:
            self._places.pop(0)
        return self._places[0][1]

    @property
    def _counts_partitions(self) -> bool:
        """Whether the number of an event in its partition matters."""
        options = self._run_options
        counts = options.window == COUNT_WINDOW if isinstance(self._table, Chain) else options.numbers_its_partitions
        return counts or self._table.has_gaps

    def _to_arrow(
        self, found: MatchBuffers | CountBuffers, binding: Binding, batch: pa.RecordBatch, first: int | Positions
    ) -> pa.RecordBatch:
        self.n_matches += int(found.counts.sum()) if isinstance(found, CountBuffers) else len(found)
        keys: list[Any] = []
        if self._partitions is not None:
            ends = found.ends - first if isinstance(first, int) else np.searchsorted(first, found.ends)
            keys = binding.keys.at(batch, pa.array(ends), self._keys_types)
        return self._output.rows(found, keys)

    def _gathered(self, pieces: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        found = list(pieces)
        if len(found) == 1:
            return found[0]
        if found:
            return pa.concat_batches(found)
        schema = output_schema(self._plan, None, self.output) if self._binding is None else self._output.schema
        return empty_batch(schema)


def table_of(plan: Plan, options: Options) -> Determinization | Chain:
    """Return what gives events their symbols: the steps where the pattern is a chain that can be listed, or counted."""
    labelled = options.output == "bindings"
    if options.output == "count":
        by_steps = not plan.partition and not any(step.neighbour for step in plan.chain or ())
    else:
        by_steps = options.share is None and not (labelled and any(step.labels is None for step in plan.chain or ()))
    if plan.chain is not None and by_steps:
        return Chain(plan.chain)
    return Determinization(plan.cea, plan.strategy, labelled=labelled)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
