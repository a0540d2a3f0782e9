"""Evaluation of one query over a stream of batches, with all state carried from batch to batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.fields import columns_with
from cer_gpu.columnar.resident import DeviceEvents, refuse_resident
from cer_gpu.engine.blocks import BLOCK_ROWS, Batch, Blocks, EventBlock
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.intake import Intake
from cer_gpu.engine.options import FIELDS, EvaluationOptions
from cer_gpu.engine.pipeline import Pipeline, SharedBySet
from cer_gpu.errors import EventsError, OptionError, did_you_mean
from cer_gpu.order.lateness import parse_time
from cer_gpu.order.rows import ROW_COLUMN, with_rows
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.output.outputs import Aggregated, Columns
from cer_gpu.planning.binding import Binding, Bindings
from cer_gpu.planning.outputs import output_of, with_aggregate
from cer_gpu.planning.physical import physical_plan
from cer_gpu.predicates.placement import BLOCKS_AT_ONCE, CUDA, before_events
from cer_gpu.predicates.types_met import TypesMet, types_named
from cer_gpu.runtime.protocol import FoundBuffers

_KEPT = tuple(name for name in FIELDS if name not in ("device", "stages"))
"""Options of a checkpoint: another machine need not have the device."""


class Evaluator:
    """Evaluator of a query, batch by batch: `push` events, `finish` at the end.

    Made by `cer_gpu.Query.evaluator` and `cer_gpu.Query.restore`.  The concatenated results do not depend on the cut of
    the stream into batches.

    Attributes
    ----------
    n_events : int
        Events evaluated so far; with `lateness`, some pushed events still wait.
    n_matches : int
        Complex events found so far.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> evaluator = cer_gpu.compile("SELECT * FROM S WHERE A ; B").evaluator()
    >>> for types in (["A", "C"], ["B"]):
    ...     print(evaluator.push(pa.record_batch({"type": types}))["positions"].to_pylist())
    []
    [[0, 2]]
    >>> evaluator.finish().num_rows
    0
    """

    def __init__(
        self,
        bindings: Bindings,
        options: EvaluationOptions,
        shared: SharedBySet | None = None,
    ) -> None:
        plan = bindings.plan
        output = output_of(plan, options.output or "positions")
        self.physical = physical_plan(plan, output, share=options.share is not None)
        self.n_events = options.begin
        self.n_matches = 0
        self._bindings = bindings
        self._plan = plan
        self._options = options
        self._shared = shared
        self._types_met = types_named((guard.event_type for guard in plan.guards), plan.type_column)
        self._table = self.physical.table()
        self._pipeline: Pipeline | None = None
        self._intake = Intake(plan.time_column, plan.time_unit, options.lateness, options.late, options.begin)
        self._n_of_stream: dict[str, int] = {}  # events pushed with the name of their stream
        self._n_found = 0  # results so far
        self._advanced = -1  # the key of the time to which the stream has advanced
        self._among_threads = False  # True: larger blocks, as threads wait for one another between blocks

    @property
    def n_pushed(self) -> int:
        """Number of events pushed so far."""
        return self._intake.n_pushed

    @n_pushed.setter
    def n_pushed(self, n: int) -> None:
        self._intake.n_pushed = n

    @property
    def output(self) -> str:
        """Name of the output."""
        return self.physical.output.name

    @property
    def limit(self) -> int | None:
        """Number of results after which the evaluation ends; None: that of the events."""
        return self._options.limit

    @property
    def is_full(self) -> bool:
        """True once the limit is reached: events that are pushed then are not read."""
        return self.limit is not None and self._n_found >= self.limit

    @property
    def engine(self) -> str:
        """Family of the runtime: "stacks" (for chains), "automaton", or "counter" if complex events are counted."""
        return self.physical.engine

    @property
    def placement(self) -> tuple[str, str]:
        """Device ("cpu" or "cuda") for the predicates of the next events, and the reason."""
        if self._pipeline is None:
            return before_events(self._options.device)
        return self._pipeline.guards.placement.device, self._pipeline.guards.placement.reason

    @property
    def pipeline(self) -> Pipeline:
        """Pipeline of stages; available after `expect` or the first batch."""
        assert self._pipeline is not None
        return self._pipeline

    @property
    def holds_back(self) -> bool:
        """True if events are held back until one may end a complex event (`cer_gpu.runtime.live_intervals`)."""
        return self.physical.holds_back

    @property
    def n_late(self) -> int:
        """Number of events so far that came later than `lateness` allows."""
        return self._intake.n_late

    @property
    def notes(self) -> list[str]:
        """Remarks on the events read so far: types that the query names and no event has."""
        return self._types_met.notes if self.n_events > self._options.begin else []

    def expect(self, schema: pa.Schema) -> None:
        """Bind to a schema; the first one fixes the types of the results.

        Raises
        ------
        QueryTypeError
            When the query does not fit the schema.
        """
        self._bound(schema)

    def push(self, batch: pa.RecordBatch | DeviceEvents, stream: str | None = None) -> pa.RecordBatch:
        """Read the events of a batch and return the complex events that end in it.

        Parameters
        ----------
        batch : pyarrow.RecordBatch or DeviceEvents
            The next events.  Columns may change their types, except columns of times.
        stream
            Stream of FROM that the events are from, if there are several.

        Returns
        -------
        pyarrow.RecordBatch
            Complex events in the order of their ends; `push_batches` yields the same in pieces of bounded size.

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

        Read all pieces before pushing the next batch; the batch is evaluated while they are read.
        """
        self._intake.check_open()
        if isinstance(batch, DeviceEvents):
            batch = batch.batch()
        if not isinstance(batch, pa.RecordBatch):
            raise EventsError(f"expected a pyarrow.RecordBatch, got {type(batch).__name__}")
        if stream is not None:
            batch = self._of_stream(batch, stream)
        binding = self._bound(batch.schema).binding
        output = self.physical.output
        names = binding.columns_for(output)
        for_all = (
            f"output={output.name!r}"
            if output.weighed or output.retains(self._plan.head, self._plan.having)
            else "lateness"
            if self._options.lateness
            else ""
        )
        on_host = names if for_all else list(binding.columns_on_host)
        refuse_resident(batch, on_host, for_all or "the window, PARTITION BY or the column of positions")
        if self.is_full:
            return iter(())
        self._intake.begin()
        return self._in_order(batch.select(columns_with(batch.schema, names)) if names else batch)

    def advance(self, time: Any) -> pa.RecordBatch:
        """Take the promise that no event earlier than a time will come, and return what becomes known by it.

        With a `lateness`, held events up to that time are evaluated.  Complex events that end with an absence and
        whose window of time has passed by then are returned; windows of events, or over another column, end only with
        events.  An event that is earlier all the same is late, or, without a `lateness`, an error.  Going back changes
        nothing, and neither does a call before the first batch (or `expect`).

        Parameters
        ----------
        time : int, datetime, date, timedelta, or Arrow or NumPy scalar
            A number of units of the time column, or a value of its type.

        Returns
        -------
        pyarrow.RecordBatch
            As `push`; complex events that become known between the same two events come in the order of the calls.

        Raises
        ------
        OptionError
            Without a time column, when the time is of another kind, or where `push` is refused.

        Examples
        --------
        >>> import cer_gpu, pyarrow as pa
        >>> query = cer_gpu.compile("SELECT * FROM S WHERE A ; !B WITHIN 5 [ts]", time_column="ts")
        >>> evaluator = query.evaluator()
        >>> evaluator.push(pa.record_batch({"type": ["A"], "ts": [10]})).num_rows
        0
        >>> evaluator.due
        16
        >>> evaluator.advance(16).column("positions").to_pylist()
        [[0]]
        """
        return self._gathered(self.advance_batches(time))

    def advance_batches(self, time: Any) -> Iterator[pa.RecordBatch]:
        """As `advance`, but yield the complex events in pieces of bounded size."""
        self._intake.check_open()
        if self._plan.time_column is None:
            raise OptionError("a stream advances in time: name the time column\nhint: time_column=... (--time-column)")
        if self._pipeline is None or self.is_full:
            return iter(())
        key = self._key_of(parse_time(time, self._time_type))
        if key <= self._advanced:
            return iter(())
        self._intake.begin()
        return self._advance(key)

    @property
    def due(self) -> int | None:
        """Least time, in units of the time column, to which `advance` can have an effect now; None: nothing waits."""
        if self._pipeline is None or self.is_full:
            return None
        keys = [key for key in (self._intake.least, self._pipeline.due) if key is not None]
        return min(keys) - self._offset if keys else None

    def finish(self) -> pa.RecordBatch:
        """End the stream and return the complex events of the events that still wait (none without a `lateness`).

        If no batch was pushed, the types of columns are not known, and the columns that need them are left out.
        """
        return self._gathered(self.finish_batches())

    def finish_batches(self) -> Iterator[pa.RecordBatch]:
        """As `finish`, but yield the complex events in pieces of bounded size."""
        held = [] if self.is_full else self._intake.finish()
        try:
            with self._reading():
                for batch in held:
                    yield from self._evaluate(batch)
                if self._pipeline is not None and not self._intake.refusal and not self.is_full:
                    for rows, found in self._pipeline.finish():
                        yield self._first_of(rows, found)
                    yield from self._rest(None)
        finally:
            self._intake.close()
            if self._pipeline is not None:
                self._pipeline.guards.release()

    def _over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Push all batches, finish, and yield the complex events."""
        if not self.is_full:
            for batch in batches:
                yield from self.push_batches(batch)
                if self.is_full:
                    break
        yield from self.finish_batches()

    # ---- ranges of the stream -------------------------------------------------------------------------------

    @property
    def _may_be_cut(self) -> bool:
        """True if no event was read yet, and no option needs the whole stream."""
        options = self._options
        return not self.n_pushed and options.lateness is None and options.share is None and not options.position_column

    @property
    def _window(self) -> tuple[str | None, np.uint64 | np.float64]:
        """Column in which the window is measured (None: events), and its length; available after `expect`."""
        assert self._pipeline is not None
        binding = self._pipeline.binding
        assert binding.window_length is not None
        return binding.window_column, binding.window_length

    def _part(self, begin: int, first_end: int) -> Evaluator:
        """Return an evaluator of the stream from `begin` on that lists complex events that end from `first_end` on."""
        return self._other(replace(self._options, begin=begin, first_end=first_end))

    def _restart(self, begin: int, first_end: int) -> None:
        """Begin another range of the stream; compiled code, and the symbols met, stay."""
        assert self._pipeline is not None
        self._options = replace(self._options, begin=begin, first_end=first_end)
        self.n_pushed = self.n_events = begin
        self.n_matches = 0
        self._intake.refusal = ""
        self._pipeline.restart(self._options)
        self._blocks.restart(begin)

    def _of_keys(self, share: int, n_shares: int) -> Evaluator:
        """Return an evaluator for one share of the keys of PARTITION BY of the same stream."""
        return self._other(replace(self._options, deal=(share, n_shares)))

    def _other(self, options: EvaluationOptions) -> Evaluator:
        assert self._pipeline is not None
        other = Evaluator(self._bindings, options)
        other._among_threads = True
        other._types_met = self._types_met
        other._begin(self._pipeline.binding)
        return other

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def checkpoint(self) -> bytes:
        """Return the state as bytes, from which `cer_gpu.Query.restore` makes an evaluator that goes on here.

        Raises
        ------
        OptionError
            After `finish`, after an error, or before all complex events of a batch are read.
        """
        if self._intake.refusal:
            raise OptionError(f"{self._intake.refusal}: there is no state to keep")
        options = {name: value for name, value in vars(self._options).items() if name in _KEPT}
        if isinstance(self._options.lateness, timedelta):
            options["lateness"] = f"{self._options.lateness // timedelta(microseconds=1)}us"
        state = NamedState(self._plan, options)
        state.facts["streams"] = self._n_of_stream
        state.facts["n"] = [self.n_pushed, self.n_events, self.n_matches, self._n_found]
        state.facts["advanced"] = self._advanced
        if self._pipeline is not None and self.is_full:
            state.schemas["events"] = self._schema
        elif self._pipeline is not None:
            state.schemas["events"] = self._schema
            self._pipeline.snapshot(state)
            self._blocks.snapshot(state)
            self._intake.snapshot(state)
        return state.to_bytes()

    @classmethod
    def _restore(cls, bindings: Bindings, blob: bytes) -> Evaluator:
        """Make an evaluator from a checkpoint."""
        state = NamedState.from_bytes(bindings.plan, blob)
        share = state.options.pop("share")
        if state.options["aggregate"] is not None:
            bindings = Bindings(with_aggregate(bindings.plan, state.options["aggregate"]))
        evaluator = cls(bindings, EvaluationOptions(**state.options, share=None if share is None else tuple(share)))
        evaluator._n_of_stream = state.facts["streams"]
        evaluator.n_pushed, evaluator.n_events, evaluator.n_matches, evaluator._n_found = state.facts["n"]
        evaluator._types_met = TypesMet(())  # the types met before are not in the checkpoint
        if "events" in state.schemas and evaluator.is_full:
            evaluator._bound(state.schemas["events"])
        elif "events" in state.schemas:
            evaluator._choose(evaluator._bind(state.schemas["events"]))
            evaluator._table.restore(state.facts["table"])
            pipeline = evaluator._bound(state.schemas["events"])
            pipeline.restore(state, evaluator._bind(state.schemas["binding"]))
            evaluator._blocks.restore(state)
            evaluator._keep_advanced(state.facts.get("advanced", -1))
            evaluator._intake.restore(state)
        return evaluator

    def _keep_advanced(self, key: int) -> None:
        if key >= 0:
            assert self._plan.time_column is not None
            self._advanced = key
            self._blocks.advance(self._plan.time_column, key)

    # ---- the progress of time -------------------------------------------------------------------------------

    @property
    def _time_type(self) -> pa.DataType:
        time_type = self.pipeline.binding.time_type
        assert time_type is not None
        return time_type

    @property
    def _offset(self) -> int:
        """Key of the time 0."""
        return 0 if pa.types.is_unsigned_integer(self._time_type) else 1 << 63

    def _key_of(self, time: int) -> int:
        """Return the key of a time in units of the time column, or the nearest one."""
        return min(max(time + self._offset, 0), 2**64 - 1)

    def _advance(self, key: int) -> Iterator[pa.RecordBatch]:
        with self._reading():
            for ready in self._intake.advance(key):
                yield from self._evaluate(ready)
                if self.is_full:
                    break
            self._keep_advanced(key)
            if not self.is_full:
                for rows, found in self.pipeline.advance(key, self.n_events):
                    yield self._first_of(rows, found)
                yield from self._rest(None)

    # ---- one batch ------------------------------------------------------------------------------------------

    def _of_stream(self, batch: pa.RecordBatch, stream: str) -> pa.RecordBatch:
        streams = self._plan.streams
        if streams and stream not in streams:
            hint = did_you_mean(stream, streams, "streams in FROM")
            raise OptionError(f"stream {stream!r} is not in FROM" + (f"\nhint: {hint}" if hint else ""))
        if len(streams) < 2:
            return batch
        codes = pa.array(np.zeros(batch.num_rows, np.int32))
        batch = batch.append_column(STREAM_COLUMN, pa.DictionaryArray.from_arrays(codes, [stream]))
        n_pushed = self._n_of_stream.get(stream, 0)
        self._n_of_stream[stream] = n_pushed + batch.num_rows
        return with_rows(batch, n_pushed)

    def _bound(self, schema: pa.Schema) -> Pipeline:
        """Return the pipeline, made or bound anew for a schema."""
        if self._pipeline is None:
            return self._begin(self._bind(schema))
        if not self._pipeline.binding.fits(schema):
            self._pipeline.rebind(self._bind(schema))
        return self._pipeline

    def _bind(self, schema: pa.Schema) -> Binding:
        """Return the binding of the query to a schema."""
        return self._bindings.bind(schema, self._options.position_column)

    def _choose(self, binding: Binding) -> None:
        """List the complex events for an aggregate, where the types of its terms need that."""
        if self.physical.output.weighed and binding.weights is None:
            self.physical = physical_plan(self._plan, Aggregated, share=self._options.share is not None)
            self._table = self.physical.table()

    def _begin(self, binding: Binding) -> Pipeline:
        """Make the pipeline; the binding's schema fixes the types of the results."""
        self._choose(binding)
        given = self._options
        self._schema = binding.schema
        self._blocks = Blocks(binding.clocks, given.position_column, given.begin)
        pipeline = Pipeline(
            self.physical,
            binding,
            given,
            self._table,
            types_met=self._types_met,
            numbered=given.lateness is not None or ROW_COLUMN in binding.schema.names,
            shared=self._shared,
        )
        self._intake.expect(binding.schema)
        self._pipeline = pipeline
        return pipeline

    def _in_order(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        with self._reading():
            for ready in self._intake.push(batch):
                yield from self._evaluate(ready)
                if self.is_full:
                    break

    def _reading(self) -> AbstractContextManager[None]:
        return self._intake.reading(lambda: self.n_matches)

    def _evaluate(self, events: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        pipeline, blocks = self._bound(events.schema), self._blocks
        batch = blocks.batch(events)
        many = self._among_threads or pipeline.guards.placement.device == CUDA
        for columns in pipeline.ahead(blocks.cut(batch.events, BLOCK_ROWS * (BLOCKS_AT_ONCE if many else 1))):
            yield from self._read(blocks.read(columns), blocks, batch)
            if self.is_full:
                return
        yield from self._end_batch(batch)

    def _read(self, block: EventBlock, blocks: Blocks, batch: Batch) -> Iterator[pa.RecordBatch]:
        """Evaluate a block of a batch, with the clocks that `blocks` hold, and yield the complex events."""
        pipeline = self.pipeline
        self.n_events = block.first + block.columns.n_rows
        for found in pipeline.feed(block, blocks.clocks):
            if not len(found):
                if self._among_threads:  # the thread asks whether somebody still reads
                    yield empty_batch(pipeline.output.result_schema)
                continue
            rows = pipeline.rows(found, batch)
            if rows is not None:
                yield self._first_of(rows, found)
            if self.is_full:
                return
        for rows, found in pipeline.pass_by(block, blocks.clocks, batch):
            yield self._first_of(rows, found)
            if self.is_full:
                return

    def _end_batch(self, batch: Batch) -> Iterator[pa.RecordBatch]:
        """Yield the rest of the complex events that end in a batch, all of whose blocks were read."""
        pipeline = self.pipeline
        for found in pipeline.flush(batch):
            yield self._first_of(pipeline.rows(found, batch), found)
            if self.is_full:
                return
        yield from self._rest(batch)

    def _rest(self, batch: Batch | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows that the output held back."""
        rest = self.pipeline.rest(batch)
        if rest is not None:
            yield self._up_to_limit(rest, rest.num_rows)

    def _first_of(self, rows: pa.RecordBatch, found: FoundBuffers) -> pa.RecordBatch:
        """Return the rows of a buffer, up to the limit."""
        n, output = self.pipeline.output.n_of(found), self.pipeline.output
        self.n_matches += n
        return self._up_to_limit(rows, n if output.numbered else rows.num_rows)

    def _up_to_limit(self, rows: pa.RecordBatch, n: int) -> pa.RecordBatch:
        """Return the rows of the first of `n` results."""
        if self.limit is not None:
            rows = self.pipeline.output.first(rows, self.limit - self._n_found, n)
            self._n_found += n
        return rows

    def _gathered(self, pieces: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        found = list(pieces)
        if len(found) == 1:
            return found[0]
        if found:
            return pa.concat_batches(found)
        if self._pipeline is not None:
            return empty_batch(self._pipeline.output.result_schema)
        return empty_batch(self.physical.output.schema_of(Columns(self._plan.variables, single=self._plan.single)))


def first_rows(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield batches up to a number of rows; None: all."""
    left = limit
    for batch in batches:
        yield batch if left is None else batch.slice(0, left)
        if left is not None:
            left -= min(left, batch.num_rows)
            if not left:
                return


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
