"""Evaluation of queries over a stream of batches, with all state carried on; one query is a set of one.

An evaluation has an intake, which puts events in order and accepts no more after the end; blocks, into which the
events are cut once for all queries; and a member for each query (`cer_gpu.engine.execution`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from cer_gpu.cache import gc_paused
from cer_gpu.columnar.batches import batch_of_rows, joined_batches
from cer_gpu.columnar.fields import columns_with, narrowest
from cer_gpu.columnar.resident import DeviceEvents, refuse_resident
from cer_gpu.engine.blocks import BLOCK_ROWS, Blocks
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.execution import StreamingExecution
from cer_gpu.engine.options import EvaluationOptions
from cer_gpu.engine.result_slices import ResultRange
from cer_gpu.engine.set_execution import QueryExecution, RangeClock
from cer_gpu.engine.shared_state import SharedState
from cer_gpu.engine.stream_input import StreamInput
from cer_gpu.engine.turns import Turns
from cer_gpu.errors import EventsError, OptionError, QueryErrorContext, did_you_mean
from cer_gpu.io.uuids import plain_uuids, without_uuids
from cer_gpu.order.lateness import parse_time
from cer_gpu.order.rows import ROW_COLUMN, with_rows
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.predicates.placement import BLOCKS_AT_ONCE, CUDA
from cer_gpu.stages import NO_STAGES

SET_ROWS = 4 * BLOCK_ROWS
"""Rows of a block of a set: each costs some calls for every query, which reads few of its events."""
JOINED_ROWS = 1 << 17
"""Rows to which the batches of a source are joined for many queries; longer ones stay as they are."""
MANY_QUERIES = 128
"""Queries from which on a block has more rows: twice as many from twice as many queries on, four times at most."""
MAX_ON_THREADS = 16
"""Most queries of a set that is evaluated on several threads unasked."""
MIN_OF_SHARE = 4
"""Fewest queries of each share of the work, if whole queries are dealt; else the keys of each query are."""

FoundBatches = Iterator[tuple[str, pa.RecordBatch]]
_Piece = TypeVar("_Piece")
_Found = TypeVar("_Found")


class BaseEvaluator(Generic[_Piece, _Found]):
    """Evaluation of queries by name, batch by batch: `push` events, `finish` at the end.

    Parameters
    ----------
    members
    options
    sharing
        Parts that the queries have in common; None: there is one query.
    """

    # from results with the names of their queries to results as they are handed over
    _told: Callable[[FoundBatches], Iterator[Any]] = staticmethod(iter)

    def __init__(
        self, members: Mapping[str, QueryExecution], options: EvaluationOptions, sharing: SharedState | None = None
    ) -> None:
        self._members = dict(members)
        self._options = options
        self._sharing = sharing
        self._plan = next((member.plan for member in members.values() if member.plan is not None), None)
        time = (None, None) if self._plan is None else (self._plan.time_column, self._plan.time_unit)
        self._intake = StreamInput(*time, options.lateness, options.late, options.start_position)
        self._blocks = Blocks((), options.position_column, options.start_position)
        self._schema: pa.Schema | None = None  # the last that was expected
        self._pushed_schema: pa.Schema | None = None  # that of the last batch as it came
        self._fitting: list[pa.Schema] = []  # those that need no change of the members
        self._names: list[str] | None = None  # columns that are read, in the order in which queries came
        self._n_of_stream: dict[str, int] = {}  # events pushed with the name of their stream
        self._turns: Turns | None = None  # of a set; None: not known yet
        self._result_range = ResultRange(options)
        self._advanced = -1  # the key of the time to which the stream has advanced

    def _gathered(self, pieces: Iterator[_Piece]) -> _Found:
        """Return the results of a batch together."""
        raise NotImplementedError

    @property
    def n_pushed(self) -> int:
        """Number of events pushed so far."""
        return self._intake.n_pushed

    @property
    def n_events(self) -> int:
        """Number of events evaluated so far; with `lateness`, some pushed events still wait."""
        return self._blocks.n_events

    @property
    def total_matches(self) -> int:
        """Number of matches of all queries so far."""
        return sum(member.n_matches for member in self._members.values())

    @property
    def n_suppressed(self) -> int:
        """Number of complex events so far that LIMIT n EVERY d left out, and LIMIT n alone would have kept."""
        return sum(member.n_suppressed for member in self._members.values())

    @property
    def n_late(self) -> int:
        """Number of events so far that came later than `lateness` allows."""
        return self._intake.n_late

    @property
    def limit_reached(self) -> bool:
        """True once all queries have reached their limit, or `head`: events that are pushed then are not read."""
        return bool(self._members) and all(member.limit_reached for member in self._members.values())

    def expect(self, schema: pa.Schema) -> None:
        """Bind to a schema; the first one fixes the types of the results.

        Raises
        ------
        QueryTypeError
            When a query does not fit the schema; in a set, the message begins with its name.
        """
        self._pushed_schema = self._pushed_schema or schema
        if self._fits(schema):
            return
        schema = without_uuids(schema)
        self._turns = None
        with gc_paused():
            changed = [self._expect(name, member, schema) for name, member in self._members.items()]
        if self._sharing is not None:
            self._sharing.all_bound()
        self._schema, self._names = schema, None
        self._fitting = [schema] if any(changed) else [schema, *self._fitting[:2]]
        self._intake.expect(schema)

    def _fits(self, schema: pa.Schema) -> bool:
        """Return True for a schema that changes nothing; none has UUIDs."""
        return any(schema is known or schema.equals(known) for known in self._fitting)

    def _expect(self, name: str, member: QueryExecution, schema: pa.Schema) -> bool:
        with QueryErrorContext(name):
            changed = member.expect(schema)
        self._blocks.watch(member.clocks)
        return changed

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the columns of a schema, which the queries expect, that some of them read."""
        if self._names is None:
            read = dict.fromkeys(name for member in self._members.values() for name in member.attributes)
            self._names = columns_with(schema, read)
        return self._names

    def attributes(self, schema: pa.Schema) -> list[str]:
        """Return the columns and fields of a schema, which the queries expect, that some of them read."""
        if len(self._members) == 1:
            return self._only.attributes
        return narrowest(schema, {name for member in self._members.values() for name in member.attributes})

    # ---- events ---------------------------------------------------------------------------------------------

    def push(self, batch: pa.RecordBatch | DeviceEvents, stream: str | None = None) -> _Found:
        """Read the events of a batch and return the complex events that end in it.

        Parameters
        ----------
        batch : pyarrow.RecordBatch or DeviceEvents
            The next events.  Columns may change their types, except columns of times.
        stream
            Stream of FROM that the events are from, if there are several.

        Returns
        -------
        pyarrow.RecordBatch, or of a set a dict from name to pyarrow.RecordBatch
            Complex events in the order of their ends, for the queries of a set that have some; `push_batches` yields
            the same in pieces of bounded size.

        Raises
        ------
        QueryTypeError
            At the first batch, when a query does not fit its schema.
        TimeOrderError
            When a time decreases (by more than `lateness`) or is missing.
        """
        return self._gathered(self.push_batches(batch, stream))

    def push_rows(self, rows: Sequence[Mapping[str, Any]], stream: str | None = None) -> _Found:
        """Read events that are mappings from columns to values, as `push`; a column that a row does not name is NULL.

        Raises
        ------
        OptionError
            Before the first batch, unless `expect` has said what columns there are.
        EventsError
            When a value does not fit its column, or a row names no column of the events.

        Examples
        --------
        >>> import cer_gpu, pyarrow as pa
        >>> evaluator = cer_gpu.compile("SELECT * FROM S WHERE A ; B").evaluator()
        >>> evaluator.expect(pa.schema({"type": pa.string(), "price": pa.float64()}))
        >>> evaluator.push_rows([{"type": "A", "price": 1.5}, {"type": "B"}])["positions"].to_pylist()
        [[0, 1]]
        """
        if self._pushed_schema is None:
            raise OptionError(
                "the columns of the events are not known yet\nhint: evaluator.expect(schema) first, or push a batch"
            )
        return self.push(batch_of_rows(rows, self._pushed_schema), stream)

    def push_batches(self, batch: pa.RecordBatch | DeviceEvents, stream: str | None = None) -> Iterator[_Piece]:
        """Read the events of a batch and yield the complex events that end in it, in pieces of bounded size.

        Pieces of a set are pairs of the name of a query and a batch.  Read all pieces before pushing the next batch;
        the batch is evaluated while they are read.
        """
        return self._told(self._pushed(batch, stream))

    def _pushed(self, batch: pa.RecordBatch | DeviceEvents, stream: str | None = None) -> FoundBatches:
        self._intake.check_open()
        if isinstance(batch, DeviceEvents):
            batch = batch.batch()
        if not isinstance(batch, pa.RecordBatch):
            raise EventsError(f"expected a pyarrow.RecordBatch, got {type(batch).__name__}")
        self._pushed_schema = batch.schema
        batch = batch if self._fits(batch.schema) else plain_uuids(batch)
        if stream is not None:
            batch = self._of_stream(batch, stream)
        self.expect(batch.schema)
        if self._sharing is not None:
            refuse_resident(batch, batch.schema.names, "a set of queries")
        else:
            self._only.refuse_resident(batch)
            names = self.columns(batch.schema)
            batch = batch.select(names) if names else batch
            if len(self._fitting) == 1:
                self._fitting.append(batch.schema)  # fewer columns fit, too
        if self.limit_reached:
            return iter(())
        self._intake.begin()
        return self._after_offset(self._in_order(batch))

    def advance_watermark(self, time: Any) -> _Found:
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
        pyarrow.RecordBatch, or of a set a dict from name to pyarrow.RecordBatch
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
        >>> evaluator.next_deadline
        16
        >>> evaluator.advance_watermark(16).column("positions").to_pylist()
        [[0]]
        """
        return self._gathered(self.advance_watermark_batches(time))

    def advance_watermark_batches(self, time: Any) -> Iterator[_Piece]:
        """As `advance`, but yield the complex events in pieces of bounded size."""
        return self._told(self._advanced_to(time))

    def _advanced_to(self, time: Any) -> FoundBatches:
        self._intake.check_open()
        if self._plan is None or self._plan.time_column is None:
            raise OptionError("a stream advances in time: name the time column\nhint: time_column=... (--time-column)")
        if self._schema is None or self.limit_reached:
            return iter(())
        key = min(max(parse_time(time, self._time_type) + self._offset, 0), 2**64 - 1)
        if key <= self._advanced:
            return iter(())
        self._intake.begin()
        return self._after_offset(self._advance(key))

    @property
    def next_deadline(self) -> int | None:
        """Least time, in units of the time column, to which `advance` can have an effect now; None: nothing waits."""
        if self._schema is None or self.limit_reached:
            return None
        keys = [self._intake.least, *(member.next_deadline for member in self._members.values())]
        least = min((key for key in keys if key is not None), default=None)
        return None if least is None else least - self._offset

    def finish(self) -> _Found:
        """End the stream and return the complex events of the events that still wait (none without a `lateness`).

        If no batch was pushed, the types of columns are not known, and the columns that need them are left out.
        """
        return self._gathered(self.finish_batches())

    def finish_batches(self) -> Iterator[_Piece]:
        """As `finish`, but yield the complex events in pieces of bounded size."""
        return self._told(self._finish())

    def _finish(self) -> FoundBatches:
        held = [] if self.limit_reached else self._intake.finish()
        try:
            with self._reading():
                for batch in held:
                    yield from self._after_offset(self._evaluate(batch))
                for name, member in self._members.items() if not self._intake.refusal else ():
                    yield from self._end(name, member)
        finally:
            self._intake.close()
            for member in self._members.values():
                member.release()
            if self._sharing is not None:
                self._sharing.release()

    def _end(self, name: str, member: QueryExecution) -> FoundBatches:
        """Yield the results of a query that the end of the stream completes."""
        if not member.limit_reached:
            yield from self._after_offset((name, rows) for rows in member.finish())

    def _after_offset(self, found: FoundBatches) -> FoundBatches:
        return self._result_range.after_offset(found, self._members)

    def _choose_results(self, found: FoundBatches) -> FoundBatches:
        return self._result_range.of_parts(found, self._members)

    def _over(self, batches: Iterable[pa.RecordBatch], n_rows: int | None = None) -> FoundBatches:
        """Push all batches, finish, and yield the complex events; `n_rows`, if known, is the number of all events."""
        if n_rows is not None:
            self._blocks.end = self.n_events + n_rows
            if self._longer > 1:
                batches = joined_batches(batches, JOINED_ROWS)
        if not self.limit_reached:
            for batch in batches:
                yield from self._pushed(batch)
                if self.limit_reached:
                    break
        yield from self._finish()

    def _in_order(self, batch: pa.RecordBatch) -> FoundBatches:
        with self._reading():
            for ready in self._intake.push(batch):
                yield from self._evaluate(ready)
                if self.limit_reached:
                    break

    def _advance(self, key: int) -> FoundBatches:
        with self._reading():
            for ready in self._intake.advance_watermark(key):
                yield from self._evaluate(ready)
                if self.limit_reached:
                    break
            self._keep_advanced(key)
            for name, member in self._members.items():
                for rows in () if member.limit_reached else member.advance_watermark(key, self.n_events):
                    yield name, rows

    def _reading(self) -> AbstractContextManager[None]:
        return self._intake.reading(lambda: self.total_matches)

    def _evaluate(self, events: pa.RecordBatch) -> FoundBatches:
        """Evaluate events in order, block by block."""
        self.expect(events.schema)
        if self._sharing is not None:
            yield from self._by_turns(events, self._sharing)
            return
        ((name, member),) = self._members.items()
        blocks, clocks = self._blocks, self._blocks.clocks
        batch = blocks.batch(events)
        many = member.among_threads or (isinstance(member, StreamingExecution) and member.placement[0] == CUDA)
        for columns in member.ahead(blocks.cut(events, BLOCK_ROWS * (BLOCKS_AT_ONCE if many else 1))):
            for rows in member.read(blocks.read(columns), clocks, batch):
                yield name, rows
            if member.limit_reached:
                return
        for rows in member.end_batch(batch):
            yield name, rows

    def _by_turns(self, events: pa.RecordBatch, sharing: SharedState) -> FoundBatches:
        """Evaluate events query by query over each block, which is a batch."""
        names = [*self.columns(events.schema), *(name for name in [ROW_COLUMN] if name in events.schema.names)]
        blocks, clocks = self._blocks, self._blocks.clocks
        events = events.select(list(dict.fromkeys(names))) if names else events
        for columns in sharing.ahead(blocks.cut(events, SET_ROWS * self._longer)):
            batch = blocks.batch(columns.batch)
            block = blocks.read(columns)
            self._turns = self._turns or Turns(self._members)
            sharing.next_block(self._turns.pipelines)
            for name, member in self._turns.of(block.columns):
                for rows in member.read_whole(block, clocks, batch):
                    yield name, rows
            if self.limit_reached:
                return

    @property
    def _has_many(self) -> bool:
        """True if there are so many queries that threads wait for Python's lock, unless they have much to do."""
        return len(self._members) > MAX_ON_THREADS

    @property
    def _longer(self) -> int:
        """Factor for the rows that all queries read before the first reads on."""
        return min(max(len(self._members) // MANY_QUERIES, 1), 4)

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

    # ---- the progress of time -------------------------------------------------------------------------------

    @property
    def _only(self) -> QueryExecution:
        """The only member, or the first of several."""
        return next(iter(self._members.values()))

    @property
    def _time_type(self) -> pa.DataType:
        timed = next(member for member in self._members.values() if isinstance(member, StreamingExecution))
        assert timed.binding.time_type is not None
        return timed.binding.time_type

    @property
    def _offset(self) -> int:
        """Key of the time 0."""
        return 0 if pa.types.is_unsigned_integer(self._time_type) else 1 << 63

    def _keep_advanced(self, key: int) -> None:
        if key >= 0 and self._plan is not None and self._plan.time_column is not None:
            self._advanced = key
            self._blocks.advance(self._plan.time_column, key)

    # ---- parts of the stream --------------------------------------------------------------------------------

    @property
    def _may_be_cut(self) -> bool:
        """True if no event was read yet, and no option needs the whole stream."""
        options = self._options
        return not self.n_pushed and options.lateness is None and options.shard is None and not options.position_column

    @property
    def _window(self) -> RangeClock | None:
        """Window that ranges of the stream need before them, known after `expect`; None: ranges are not exact."""
        windows = [member.window for member in self._members.values()]
        known = [window for window in windows if window is not None]
        if len(known) < len(windows) or len({column for column, _ in known}) != 1:
            return None
        return max(known, key=lambda window: window[1])

    @property
    def _most_shares(self) -> int | None:
        """Most shares of the work that are not empty; None: there is no bound, as keys can be dealt."""
        by_key = any(member.dealt_by_key for member in self._members.values())
        return None if by_key else len(self._members)

    def _part(self, begin: int, report_from: int) -> BaseEvaluator[tuple[str, pa.RecordBatch], Any]:
        """Return an evaluation of the stream from `begin` on that lists matches that end from `report_from` on."""
        return self._other(self._members, start_position=begin, report_from=report_from)

    def _restart(self, begin: int, report_from: int) -> None:
        """Begin another range of the stream; compiled code, and the symbols met, stay."""
        self._options = replace(self._options, start_position=begin, report_from=report_from)
        self._intake.n_pushed, self._intake.refusal = begin, ""
        self._fitting = []  # members begin with their first schemas
        if self._sharing is not None:
            self._sharing.restart()
        for member in self._members.values():
            member.restart(begin, report_from)
        self._blocks.restart(begin)

    def _share_of(self, k: int, n: int) -> BaseEvaluator[tuple[str, pa.RecordBatch], Any]:
        """Return an evaluation of the same stream for share `k` of `n` of the work.

        That is a share of the queries; where there are few, it is the share of the keys of each query that can be dealt
        by key, and a share of the others.
        """
        members, many = self._members, len(self._members) >= MIN_OF_SHARE * n
        whole = [name for name, each in members.items() if many or not each.dealt_by_key]
        mine = {name: each for name, each in members.items() if name not in whole or name in whole[k::n]}
        return self._other(mine, whole, key_shard=(k, n))

    def _other(
        self, members: Mapping[str, QueryExecution], whole: Collection[str] = (), **part: Any
    ) -> BaseEvaluator[tuple[str, pa.RecordBatch], Any]:
        sharing = None if self._sharing is None else self._sharing.another()
        part |= {"stages": NO_STAGES, **self._options.of_first_part}  # stages are those of one thread
        copies = {}
        for name, member in members.items():
            options = replace(member.options, **(part | {"key_shard": None} if name in whole else part))
            copies[name] = member.another(options, sharing)
            copies[name].among_threads = True
        other = BaseEvaluator[tuple[str, pa.RecordBatch], Any](copies, replace(self._options, **part), sharing)
        assert self._schema is not None
        other.expect(self._schema)
        return other

    @property
    def _numbers(self) -> dict[str, int]:
        """Number of complex events of each query."""
        return {name: member.n_matches for name, member in self._members.items()}

    @property
    def _first_held(self) -> dict[str, int]:
        """First event that may still have a row, for each query whose rows come in the order of their starts."""
        firsts = {name: member.first_held for name, member in self._members.items()}
        return {name: min(first, self.n_events) for name, first in firsts.items() if first is not None}

    @property
    def _tallies(self) -> dict[str, tuple[int, int, int]]:
        """Counts of each query, as `QueryExecution.add_tallies` takes them."""
        return {name: (m.n_suppressed, m.n_undecided, m.n_without_key) for name, m in self._members.items()}

    def _take_over(
        self, n_events: int, n_matches: Mapping[str, int], tallies: Mapping[str, tuple[int, int, int]] | None = None
    ) -> None:
        """Take over numbers of events and matches from evaluations of parts of the stream."""
        self._blocks.n_events = n_events
        for name, tallies_of_part in (tallies or {}).items():
            self._members[name].add_tallies(*tallies_of_part)
        for name, n in n_matches.items():
            self._members[name].add_matches(n)

    # ---- checkpoints ----------------------------------------------------------------------------------------

    @property
    def identities(self) -> dict[str, dict[str, Any]]:
        """Facts that tell the queries from others."""
        return {name: member.identity for name, member in self._members.items()}

    def checkpoint(self) -> bytes:
        """Return the state as bytes, from which `restore` of the query or set makes an evaluator that goes on here.

        Raises
        ------
        OptionError
            After `finish`, after an error, or before all complex events of a batch are read.
        """
        if self._intake.refusal:
            raise OptionError(f"{self._intake.refusal}: there is no state to keep")
        state = NamedState(self.identities, self._options.kept)
        state.facts |= {"streams": self._n_of_stream, "n_pushed": self.n_pushed, "n_events": self.n_events}
        state.facts["n_left_out"] = self._result_range.n_left_out
        if self._schema is not None:
            state.schemas["events"] = self._schema
            state.facts["advanced"] = self._advanced
            self._blocks.snapshot(state)
            self._intake.snapshot(state)
            if self._sharing is not None:
                self._sharing.snapshot(state)
        for name, member in self._members.items():
            member.snapshot(state.of(name))
        return state.to_bytes()

    def _restore(self, state: NamedState) -> None:
        """Go on from a checkpoint; nothing was read before."""
        if "events" in state.schemas:
            schema = state.schemas["events"]
            if self._sharing is not None:
                self._sharing.restore(state)
            for name, member in self._members.items():
                member.restore(state.of(name))
                self._expect(name, member, schema)
            self._schema = schema
            self._intake.expect(schema)
            self._blocks.restore(state)
            self._keep_advanced(state.facts["advanced"])
            self._intake.restore(state)
        self._n_of_stream = state.facts["streams"]
        self._result_range.n_left_out = state.facts["n_left_out"]
        self._intake.n_pushed, self._blocks.n_events = state.facts["n_pushed"], state.facts["n_events"]
