"""Executions of queries over one stream, with all state carried on; one query is a group of one.

A group has an input, which puts events in order and accepts none after the end; blocks, into which the events are cut
once for all queries; and an execution of each query (`cer_gpu.engine.execution`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.cache import gc_paused
from cer_gpu.columnar.clocks import time_column_type
from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.fields import columns_with, with_column
from cer_gpu.columnar.record_batches import coalesce_batches, empty_batch
from cer_gpu.columnar.resident import DeviceEvents, refuse_resident
from cer_gpu.engine.blocks import BLOCK_ROWS, Blocks
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.evaluation_options import EvaluationOptions, Lateness
from cer_gpu.engine.execution import StreamingExecution
from cer_gpu.engine.partitioner import Partitioner
from cer_gpu.engine.query_execution import QueryExecution
from cer_gpu.engine.result_slices import ResultRange
from cer_gpu.engine.shared_state import SharedState
from cer_gpu.errors import CerError, EventsError, OptionError, QueryErrorContext, did_you_mean, out_of_memory
from cer_gpu.io.source import plain_uuids, without_uuids
from cer_gpu.order.reorder_buffer import ReorderBuffer, parse_lateness, parse_time
from cer_gpu.order.row_column import ROW_COLUMN, with_rows
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.predicates.placement import BLOCKS_AT_ONCE, CUDA
from cer_gpu.predicates.shared_guards import SharedGuards


class StreamInput:
    """Input side of a stream: reorders late events and rejects input after the end.

    Parameters
    ----------
    time_column, time_unit
        As of `cer_gpu.compile`.
    lateness, late
        As of `cer_gpu.Query.evaluate`; checked before.
    begin
        Number of the first event.

    Attributes
    ----------
    n_pushed : int
        Events pushed so far.
    refusal : str
        The reason why no more events are accepted; empty if they are.
    """

    def __init__(
        self, time_column: str | None, time_unit: str | None, lateness: Lateness | None, late: str, begin: int = 0
    ) -> None:
        self.n_pushed: int = begin
        self.refusal: str = ""
        self._time_column, self._time_unit = time_column, time_unit
        self._lateness, self._late = lateness, late
        self._reorder: ReorderBuffer | None = None

    def expect(self, schema: pa.Schema) -> None:
        """Read lateness in the unit of the time column; the first schema counts."""
        if self._lateness is not None and self._reorder is None:
            assert self._time_column is not None
            units = parse_lateness(self._lateness, time_column_type(schema, self._time_column), self._time_unit)
            self._reorder = ReorderBuffer(self._time_column, units, self._late)

    @property
    def n_late(self) -> int:
        """Number of events so far that came later than allowed."""
        return 0 if self._reorder is None else self._reorder.n_late

    @property
    def least(self) -> int | None:
        """Key of the earliest buffered event, or None if none is buffered."""
        return None if self._reorder is None else self._reorder.least

    def check_open(self) -> None:
        """Raise OptionError if no more events are accepted."""
        if self.refusal:
            raise OptionError(f"{self.refusal}: make a new evaluator")

    def begin(self) -> None:
        """Refuse further events until the results of the current ones, under `reading`, are read to the end."""
        self.refusal = "the matches of the batch before were not all read"

    @contextmanager
    def reading(self, n_matches: Callable[[], int]) -> Iterator[None]:
        """Accept more events after this block, unless an error ends it.

        Parameters
        ----------
        n_matches
            Returns the number of matches so far, for the message when memory runs out.
        """
        try:
            yield
        except (CerError, MemoryError) as error:
            self.refusal = "an error ended the stream"
            if isinstance(error, CerError):
                raise
            raise out_of_memory(n_matches()) from None
        self.refusal = ""

    def push(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Take the next events and return those that are released, with their row numbers if events may be late."""
        ready = [batch]
        if self._reorder is not None:
            assert self._time_column is not None
            ready = self._reorder.push(with_rows(with_column(batch, self._time_column), self.n_pushed))
        self.n_pushed += batch.num_rows
        return ready

    def advance_watermark(self, key: int) -> list[pa.RecordBatch]:
        """Return the buffered events up to the time of a key, and refuse earlier ones from now on."""
        return [] if self._reorder is None else self._reorder.advance_watermark(key)

    def finish(self) -> list[pa.RecordBatch]:
        """Return the remaining buffered events; none after an error, or after the end."""
        return [] if self._reorder is None or self.refusal else self._reorder.finish()

    def close(self) -> None:
        """Accept no more events."""
        self.refusal = "the stream is finished"

    def snapshot(self, state: NamedState) -> None:
        """Add the buffered events to a checkpoint."""
        if self._reorder is not None:
            rows, facts = self._reorder.snapshot()
            state.facts["reorder"] = facts
            if rows is not None:
                state.tables["reorder"] = rows

    def restore(self, state: NamedState) -> None:
        """Go on from a checkpoint, after `expect`."""
        if self._reorder is not None:
            self._reorder = ReorderBuffer.restore(state.tables.get("reorder"), state.facts["reorder"])


class Turns:
    """Turns of the executions of an evaluation, until one comes, goes, or is bound to another schema.

    Parameters
    ----------
    executions
    """

    def __init__(self, executions: Mapping[str, QueryExecution]) -> None:
        self._executions = list(executions.items())
        self._each_block: set[int] = set()
        self._of_guard: dict[SharedGuards, dict[int, list[int]]] = {}
        for k, (_, execution) in enumerate(self._executions):
            words = execution.reads
            if words is None:
                self._each_block.add(k)
                continue
            of = self._of_guard.setdefault(words.shared, {})
            for number in words.numbers:
                of.setdefault(number, []).append(k)

    def of(self, block: Block) -> Iterator[tuple[str, QueryExecution]]:
        """Yield the executions that read a block, in their order."""
        turns = set(self._each_block)
        for shared, of in self._of_guard.items():
            for number in shared.guards_in(block):
                turns.update(of.get(number, ()))
        for k in sorted(turns):
            name, execution = self._executions[k]
            if not execution.limit_reached:
                yield name, execution
                if k not in self._each_block and execution.reads is None:
                    self._each_block.add(k)

    def partitioners(self) -> Iterator[Partitioner]:
        """Yield the partitioners of the pipelines that were started."""
        for _, execution in self._executions:
            pipeline = execution.started_pipeline if isinstance(execution, StreamingExecution) else None
            if pipeline is not None and pipeline.partitioner is not None:
                yield pipeline.partitioner


SET_ROWS = 4 * BLOCK_ROWS
"""Rows of a block of a set: each costs some calls for every query, which reads few of its events."""
JOINED_ROWS = 1 << 17
"""Rows to which the batches of a source are joined for many queries; longer ones stay as they are."""
MANY_QUERIES = 128
"""Queries from which on a block has more rows: twice as many from twice as many queries on, four times at most."""

NamedBatches = Iterator[tuple[str, pa.RecordBatch]]
"""Results, each with the name of its query."""


class ExecutionGroup:
    """Executions of queries by name over one stream, batch by batch.

    Parameters
    ----------
    executions
    options
    shared
        State that the queries share, or None if there is one query.
    skip
        Returns the names of the queries that a schema cannot bind, which are left out at the first batch; None refuses
        it.

    Attributes
    ----------
    executions : dict from str to QueryExecution
    skipped : dict from str to QueryExecution
        Those that were left out.
    input : StreamInput
    blocks : Blocks
    schema : pyarrow.Schema or None
        The last schema that was expected.
    pushed_schema : pyarrow.Schema or None
        The schema of the last batch as it came.
    """

    def __init__(
        self,
        executions: Mapping[str, QueryExecution],
        options: EvaluationOptions,
        shared: SharedState | None = None,
        skip: Callable[[pa.Schema], Collection[str]] | None = None,
    ) -> None:
        self.executions: dict[str, QueryExecution] = dict(executions)
        self.skipped: dict[str, QueryExecution] = {}
        self.options: EvaluationOptions = options
        self.shared: SharedState | None = shared
        self._skip = skip
        plans = (each.plan for each in executions.values() if each.plan is not None)
        self._plan = next(plans, None)
        time = (None, None) if self._plan is None else (self._plan.time_column, self._plan.time_unit)
        self.input: StreamInput = StreamInput(*time, options.lateness, options.late, options.start_position)
        self.blocks: Blocks = Blocks((), options.position_column, options.start_position)
        self.schema: pa.Schema | None = None
        self.pushed_schema: pa.Schema | None = None
        self._bound_schemas: list[pa.Schema] = []  # that need no change of the executions
        self._columns: list[str] | None = None  # that are read, in the order in which queries came
        self._n_of_stream: dict[str, int] = {}  # events pushed with the name of their stream
        self._turns: Turns | None = None  # of a set, or None if they must be recomputed
        self.result_range: ResultRange = ResultRange(options)
        self._watermark = -1  # the key of the time to which the stream has advanced

    @property
    def first(self) -> QueryExecution:
        """The only execution, or the first of several."""
        return next(iter(self.executions.values()))

    @property
    def n_matches(self) -> dict[str, int]:
        """Number of matches of each query so far."""
        return {name: each.n_matches for name, each in self.executions.items()}

    @property
    def total_matches(self) -> int:
        """Number of matches of all queries so far."""
        return sum(each.n_matches for each in self.executions.values())

    @property
    def limit_reached(self) -> bool:
        """True once all queries have reached their limit: events that are pushed then are not read."""
        return bool(self.executions) and all(each.limit_reached for each in self.executions.values())

    @property
    def block_factor(self) -> int:
        """Multiplier of the rows of a block: with many queries, longer blocks amortise what each costs per block."""
        return min(max(len(self.executions) // MANY_QUERIES, 1), 4)

    # ---- queries and schemas --------------------------------------------------------------------------------

    def add(self, name: str, execution: QueryExecution) -> None:
        """Add a query, which reads the events from the next one on."""
        if self.schema is not None:
            self._expect(name, execution, self.schema)
            self._columns = None
        self.executions[name] = execution
        self._turns = None

    def remove(self, name: str) -> pa.RecordBatch:
        """Remove a query, and return the matches that it would have if the stream ended here."""
        batches = [rows for _, rows in self._finish_query(name)]
        removed = self.executions.pop(name)
        removed.release()
        self._columns = self._turns = None
        if self.schema is not None:
            self.blocks.keep({clock for each in self.executions.values() for clock in each.clocks})
        return pa.concat_batches([empty_batch(removed.result_schema), *batches])

    def expect(self, schema: pa.Schema) -> None:
        """Bind to a schema; the first one fixes the types of the results.

        Raises
        ------
        QueryTypeError
            When a query does not fit the schema; in a set, the message begins with its name.
        """
        if self.schema is None:
            self._skip_misfits(schema)
        self.pushed_schema = self.pushed_schema or schema
        if self._is_bound(schema):
            return
        schema = without_uuids(schema)
        self._turns = None
        with gc_paused():
            changed = [self._expect(name, each, schema) for name, each in self.executions.items()]
        if self.shared is not None:
            self.shared.all_bound()
        self.schema, self._columns = schema, None
        self._bound_schemas = [schema] if any(changed) else [schema, *self._bound_schemas[:2]]
        self.input.expect(schema)

    def _skip_misfits(self, schema: pa.Schema) -> None:
        """Leave out the queries that do not fit the first schema."""
        for name in () if self._skip is None else self._skip(schema):
            if name in self.executions:
                self.skipped[name] = self.executions.pop(name)

    def _is_bound(self, schema: pa.Schema) -> bool:
        """Return True for a schema that changes nothing; none has UUIDs."""
        return any(schema is bound or schema.equals(bound) for bound in self._bound_schemas)

    def _expect(self, name: str, execution: QueryExecution, schema: pa.Schema) -> bool:
        with QueryErrorContext(name):
            changed = execution.expect(schema)
        self.blocks.watch(execution.clocks)
        return changed

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the columns of a schema, which was expected, that some query reads."""
        if self._columns is None:
            read = dict.fromkeys(name for each in self.executions.values() for name in each.attributes)
            self._columns = columns_with(schema, read)
        return self._columns

    # ---- events ---------------------------------------------------------------------------------------------

    def push(self, batch: pa.RecordBatch | DeviceEvents, stream: str | None = None) -> NamedBatches:
        """Yield the matches that end in a batch; the batch is evaluated while they are read."""
        self.input.check_open()
        if isinstance(batch, DeviceEvents):
            batch = batch.batch()
        if not isinstance(batch, pa.RecordBatch):
            raise EventsError(f"expected a pyarrow.RecordBatch, got {type(batch).__name__}")
        self.pushed_schema = batch.schema
        batch = batch if self._is_bound(batch.schema) else plain_uuids(batch)
        if stream is not None:
            batch = self._of_stream(batch, stream)
        self.expect(batch.schema)
        if self.shared is not None:
            refuse_resident(batch, batch.schema.names, "a set of queries")
        else:
            self.first.refuse_resident(batch)
            names = self.columns(batch.schema)
            batch = batch.select(names) if names else batch
            if len(self._bound_schemas) == 1:
                self._bound_schemas.append(batch.schema)  # fewer columns fit, too
        if self.limit_reached:
            return iter(())
        self.input.begin()
        return self._after_offset(self._push_in_order(batch))

    def _of_stream(self, batch: pa.RecordBatch, stream: str) -> pa.RecordBatch:
        streams = () if self._plan is None else self._plan.streams
        if streams and stream not in streams:
            hint = did_you_mean(stream, streams, "streams in FROM")
            raise OptionError(f"stream {stream!r} is not in FROM" + (f"\nhint: {hint}" if hint else ""))
        if len(streams) < 2:
            return batch
        codes, n_pushed = np.zeros(len(batch), np.int32), self._n_of_stream.get(stream, 0)
        batch = batch.append_column(STREAM_COLUMN, pa.DictionaryArray.from_arrays(codes, [stream]))
        self._n_of_stream[stream] = n_pushed + batch.num_rows
        return with_rows(batch, n_pushed)

    def _push_in_order(self, batch: pa.RecordBatch) -> NamedBatches:
        with self._reading_input():
            for ready in self.input.push(batch):
                yield from self._evaluate(ready)
                if self.limit_reached:
                    break

    def push_all(self, batches: Iterable[pa.RecordBatch], n_rows: int | None = None) -> NamedBatches:
        """Push all batches, finish, and yield the matches; `n_rows`, if known, is the number of all events."""
        if n_rows is not None:
            self.blocks.end = self.blocks.n_events + n_rows
            if self.block_factor > 1:
                batches = coalesce_batches(batches, JOINED_ROWS)
        if not self.limit_reached:
            for batch in batches:
                yield from self.push(batch)
                if self.limit_reached:
                    break
        yield from self.finish()

    def finish(self) -> NamedBatches:
        """End the stream and yield the matches of the events that are buffered, and those that are pending."""
        buffered = [] if self.limit_reached else self.input.finish()
        try:
            with self._reading_input():
                for batch in buffered:
                    yield from self._after_offset(self._evaluate(batch))
                for name in self.executions if not self.input.refusal else ():
                    yield from self._finish_query(name)
        finally:
            self.input.close()
            for each in self.executions.values():
                each.release()
            if self.shared is not None:
                self.shared.release()

    def _finish_query(self, name: str) -> NamedBatches:
        """Yield the results of a query that the end of the stream completes."""
        execution = self.executions[name]
        if not execution.limit_reached:
            yield from self._after_offset((name, rows) for rows in execution.finish())

    def _after_offset(self, results: NamedBatches) -> NamedBatches:
        return self.result_range.after_offset(results, self.executions)

    def _reading_input(self) -> AbstractContextManager[None]:
        return self.input.reading(lambda: self.total_matches)

    def _evaluate(self, events: pa.RecordBatch) -> NamedBatches:
        """Evaluate events in order, block by block."""
        self.expect(events.schema)
        if self.shared is not None:
            yield from self._evaluate_by_turns(events, self.shared)
            return
        ((name, execution),) = self.executions.items()
        events = execution.with_let(events)
        blocks, clocks = self.blocks, self.blocks.clocks
        batch = blocks.batch(events)
        on_gpu = isinstance(execution, StreamingExecution) and execution.placement[0] == CUDA
        n_rows = BLOCK_ROWS * (BLOCKS_AT_ONCE if execution.among_threads or on_gpu else 1)
        for columns in execution.prefetch(blocks.cut(events, n_rows)):
            for rows in execution.process(blocks.read(columns), clocks, batch):
                yield name, rows
            if execution.limit_reached:
                return
        for rows in execution.end_batch(batch):
            yield name, rows

    def _evaluate_by_turns(self, events: pa.RecordBatch, shared: SharedState) -> NamedBatches:
        """Evaluate events query by query over each block, which is a batch."""
        names = [*self.columns(events.schema), *(name for name in [ROW_COLUMN] if name in events.schema.names)]
        blocks, clocks = self.blocks, self.blocks.clocks
        events = events.select(list(dict.fromkeys(names))) if names else events
        for execution in self.executions.values():
            events = execution.with_let(events)
        for columns in shared.prefetch(blocks.cut(events, SET_ROWS * self.block_factor)):
            batch = blocks.batch(columns.batch)
            block = blocks.read(columns)
            self._turns = self._turns or Turns(self.executions)
            shared.next_block(self._turns.partitioners)
            for name, execution in self._turns.of(block.columns):
                for rows in execution.process_batch(block, clocks, batch):
                    yield name, rows
            if self.limit_reached:
                return

    # ---- the watermark --------------------------------------------------------------------------------------

    def advance_watermark(self, time: Any) -> NamedBatches:
        """Advance the watermark to a time, and yield the matches that this decides."""
        self.input.check_open()
        if self._plan is None or self._plan.time_column is None:
            raise OptionError("a stream advances in time: name the time column\nhint: time_column=... (--time-column)")
        if self.schema is None or self.limit_reached:
            return iter(())
        key = min(max(parse_time(time, self._time_type) + self._key_of_zero, 0), 2**64 - 1)
        if key <= self._watermark:
            return iter(())
        self.input.begin()
        return self._after_offset(self._advance_to(key))

    def _advance_to(self, key: int) -> NamedBatches:
        with self._reading_input():
            for ready in self.input.advance_watermark(key):
                yield from self._evaluate(ready)
                if self.limit_reached:
                    break
            self._set_watermark(key)
            for name, each in self.executions.items():
                for rows in () if each.limit_reached else each.advance_watermark(key, self.blocks.n_events):
                    yield name, rows

    def _set_watermark(self, key: int) -> None:
        if key >= 0 and self._plan is not None and self._plan.time_column is not None:
            self._watermark = key
            self.blocks.advance(self._plan.time_column, key)

    @property
    def next_deadline(self) -> int | None:
        """Earliest watermark that would release buffered events or decide a match, or None if nothing is pending."""
        if self.schema is None or self.limit_reached:
            return None
        keys = [self.input.least, *(each.next_deadline for each in self.executions.values())]
        least = min((key for key in keys if key is not None), default=None)
        return None if least is None else least - self._key_of_zero

    @property
    def _time_type(self) -> pa.DataType:
        timed = next(each for each in self.executions.values() if isinstance(each, StreamingExecution))
        assert timed.binding.time_type is not None
        return timed.binding.time_type

    @property
    def _key_of_zero(self) -> int:
        """Key of the time 0."""
        return 0 if pa.types.is_unsigned_integer(self._time_type) else 1 << 63

    # ---- parts of a stream ----------------------------------------------------------------------------------

    def restart(self, options: EvaluationOptions) -> None:
        """Begin another range of the stream, that of the options; compiled code, and the symbols seen, stay."""
        self.options = options
        begin = self.input.n_pushed = options.start_position
        self.input.refusal = ""
        self._bound_schemas = []  # executions begin with their first schemas
        if self.shared is not None:
            self.shared.restart()
        for each in self.executions.values():
            each.restart(begin, options.report_from)
        self.blocks.restart(begin)

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the state to a checkpoint.

        Raises
        ------
        OptionError
            After `finish`, after an error, or before all matches of a batch are read.
        """
        if self.input.refusal:
            raise OptionError(f"{self.input.refusal}: there is no state to keep")
        state.facts |= {
            "streams": self._n_of_stream,
            "n_pushed": self.input.n_pushed,
            "n_events": self.blocks.n_events,
            "n_left_out": self.result_range.n_skipped,
        }
        if self.schema is not None:
            state.schemas["events"] = self.schema
            state.facts["advanced"] = self._watermark
            self.blocks.snapshot(state)
            self.input.snapshot(state)
            if self.shared is not None:
                self.shared.snapshot(state)
        for name, each in self.executions.items():
            each.snapshot(state.of(name))

    def restore(self, state: NamedState) -> None:
        """Continue from a checkpoint; nothing was read before."""
        if "events" in state.schemas:
            schema = state.schemas["events"]
            self._skip_misfits(schema)
            if self.shared is not None:
                self.shared.restore(state)
            for name, each in self.executions.items():
                each.restore(state.of(name))
                self._expect(name, each, schema)
            self.schema = schema
            self.input.expect(schema)
            self.blocks.restore(state)
            self._set_watermark(state.facts["advanced"])
            self.input.restore(state)
        self._n_of_stream = state.facts["streams"]
        self.result_range.n_skipped = state.facts["n_left_out"]
        self.input.n_pushed, self.blocks.n_events = state.facts["n_pushed"], state.facts["n_events"]
