"""Evaluators, batch by batch: `push` events, `finish` at the end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from cer_gpu.columnar.fields import narrowest
from cer_gpu.columnar.record_batches import batch_of_rows, empty_batch
from cer_gpu.columnar.resident import DeviceEvents
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.engine.execution import StreamingExecution
from cer_gpu.engine.execution_group import ExecutionGroup, NamedBatches
from cer_gpu.engine.pipeline import Pipeline
from cer_gpu.engine.query_execution import QueryExecution
from cer_gpu.engine.shared_state import SharedState
from cer_gpu.errors import OptionError
from cer_gpu.planning.physical import PhysicalPlan
from cer_gpu.predicates.placement import before_events

ResultFormatter = Callable[[NamedBatches], Iterator[Any]]
"""Function from results with the names of their queries to the pieces that an evaluator hands over."""
_Piece = TypeVar("_Piece")
_Results = TypeVar("_Results")


class BaseEvaluator(Generic[_Piece, _Results]):
    """Evaluator of queries by name, batch by batch: `push` events, `finish` at the end.

    Parameters
    ----------
    executions
    options
    shared
        State that the queries share, or None if there is one query.
    skip
        As of `ExecutionGroup`.
    result_formatter
        Makes the pieces that `push_batches` yields; None yields pairs of the name of a query and a batch.
    """

    def __init__(
        self,
        executions: Mapping[str, QueryExecution],
        options: EvaluationOptions,
        shared: SharedState | None = None,
        skip: Callable[[pa.Schema], Collection[str]] | None = None,
        result_formatter: ResultFormatter | None = None,
    ) -> None:
        self._group = ExecutionGroup(executions, options, shared, skip)
        self._format_results: ResultFormatter = result_formatter or iter

    def _collect_results(self, pieces: Iterator[_Piece]) -> _Results:
        """Return the results of a batch together."""
        raise NotImplementedError

    @property
    def n_pushed(self) -> int:
        """Number of events pushed so far."""
        return self._group.input.n_pushed

    @property
    def n_events(self) -> int:
        """Number of events evaluated so far; with `lateness`, some pushed events are still buffered."""
        return self._group.blocks.n_events

    @property
    def total_matches(self) -> int:
        """Number of matches of all queries so far."""
        return self._group.total_matches

    @property
    def n_suppressed(self) -> int:
        """Number of matches so far that LIMIT n EVERY d suppressed, beyond those of LIMIT n alone."""
        return sum(each.n_suppressed for each in self._group.executions.values())

    @property
    def n_late(self) -> int:
        """Number of events so far that came later than `lateness` allows."""
        return self._group.input.n_late

    @property
    def limit_reached(self) -> bool:
        """True once all queries have reached their limit, or `head`: events that are pushed then are not read."""
        return self._group.limit_reached

    def expect(self, schema: pa.Schema) -> None:
        """Bind to a schema; the first one fixes the types of the results.

        Raises
        ------
        QueryTypeError
            When a query does not fit the schema; in a set, the message begins with its name.
        """
        self._group.expect(schema)

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the columns of a schema that at least one query reads; call `expect` first."""
        return self._group.columns(schema)

    def attributes(self, schema: pa.Schema) -> list[str]:
        """Return the columns and fields of a schema that at least one query reads; call `expect` first."""
        executions = self._group.executions
        if len(executions) == 1:
            return self._group.first.attributes
        return narrowest(schema, {name for each in executions.values() for name in each.attributes})

    def push(self, batch: pa.RecordBatch | DeviceEvents, stream: str | None = None) -> _Results:
        """Evaluate the events of a batch and return the matches that end in it.

        Parameters
        ----------
        batch : pyarrow.RecordBatch or DeviceEvents
            The next events.  Columns may change their types, except columns of times.
        stream
            Stream of FROM that the events are from, if there are several.

        Returns
        -------
        pyarrow.RecordBatch, or of a set a dict from name to pyarrow.RecordBatch
            Matches in the order of their ends, for the queries of a set that have some; `push_batches` yields
            the same in pieces of bounded size.

        Raises
        ------
        QueryTypeError
            At the first batch, when a query does not fit its schema.
        TimeOrderError
            When a time decreases (by more than `lateness`) or is missing.
        """
        return self._collect_results(self.push_batches(batch, stream))

    def push_rows(self, rows: Sequence[Mapping[str, Any]], stream: str | None = None) -> _Results:
        """Evaluate events that are mappings from columns to values, as `push`; columns that one does not name are NULL.

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
        schema = self._group.pushed_schema
        if schema is None:
            raise OptionError(
                "the columns of the events are not known yet\nhint: evaluator.expect(schema) first, or push a batch"
            )
        return self.push(batch_of_rows(rows, schema), stream)

    def push_batches(self, batch: pa.RecordBatch | DeviceEvents, stream: str | None = None) -> Iterator[_Piece]:
        """Evaluate the events of a batch and yield the matches that end in it, in pieces of bounded size.

        Pieces of a set are pairs of the name of a query and a batch.  Read all pieces before pushing the next batch;
        the batch is evaluated while they are read.
        """
        return self._format_results(self._group.push(batch, stream))

    def advance_watermark(self, time: Any) -> _Results:
        """Advance the watermark to a time, and return the matches that this decides: no earlier event will come.

        With a `lateness`, buffered events up to that time are evaluated.  Pending matches that end with an absence, and
        whose window of time has passed by then, are returned; windows of events, or over another column, end only with
        events.  An event that is earlier all the same is late, or, without a `lateness`, an error.  Going back changes
        nothing, and neither does a call before the first batch (or `expect`).

        Parameters
        ----------
        time : int, datetime, date, timedelta, or Arrow or NumPy scalar
            A number of units of the time column, or a value of its type.

        Returns
        -------
        pyarrow.RecordBatch, or of a set a dict from name to pyarrow.RecordBatch
            As `push`; matches that are decided between the same two events come in the order of the calls.

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
        return self._collect_results(self.advance_watermark_batches(time))

    def advance_watermark_batches(self, time: Any) -> Iterator[_Piece]:
        """Advance as `advance_watermark`, but yield the matches in pieces of bounded size."""
        return self._format_results(self._group.advance_watermark(time))

    @property
    def next_deadline(self) -> int | None:
        """Earliest watermark that would release buffered events or decide a pending match; None if nothing is pending.

        It is a number of units of the time column.
        """
        return self._group.next_deadline

    def finish(self) -> _Results:
        """End the stream and return the matches of the events that are still buffered, and those that are pending.

        If no batch was pushed, the types of columns are unknown, and the columns that need them are omitted.
        """
        return self._collect_results(self.finish_batches())

    def finish_batches(self) -> Iterator[_Piece]:
        """Finish as `finish`, but yield the matches in pieces of bounded size."""
        return self._format_results(self._group.finish())

    # ---- checkpoints ----------------------------------------------------------------------------------------

    @property
    def identities(self) -> dict[str, dict[str, Any]]:
        """Identities of the queries, including those that were left out."""
        executions = self._group.executions | self._group.skipped
        return {name: each.identity for name, each in executions.items()}

    def checkpoint(self) -> bytes:
        """Return the state as bytes, from which `restore` of the query or set makes an evaluator that continues here.

        Raises
        ------
        OptionError
            After `finish`, after an error, or before all matches of a batch are read.
        """
        state = NamedState(self.identities, self._group.options.stored)
        self._group.snapshot(state)
        return state.to_bytes()

    def _restore(self, state: NamedState) -> None:
        """Continue from a checkpoint; nothing was read before."""
        self._group.restore(state)


def _without_names(results: NamedBatches) -> Iterator[pa.RecordBatch]:
    return (rows for _, rows in results)


class Evaluator(BaseEvaluator[pa.RecordBatch, pa.RecordBatch]):
    """Evaluator of a query, batch by batch: `push` events, `finish` at the end.

    Made by `cer_gpu.Query.evaluator` and `cer_gpu.Query.restore`.  The concatenated results do not depend on the cut of
    the stream into batches.

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
        self, execution: QueryExecution, options: EvaluationOptions, result_formatter: ResultFormatter | None = None
    ) -> None:
        super().__init__({"": execution}, options, result_formatter=result_formatter or _without_names)
        self._empty: tuple[pa.Schema, pa.RecordBatch] | None = None

    def _collect_results(self, pieces: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        batches = list(pieces)
        if len(batches) == 1:
            return batches[0]
        if batches:
            return pa.concat_batches(batches)
        schema = self._group.first.result_schema
        if self._empty is None or self._empty[0] is not schema:
            self._empty = schema, empty_batch(schema)
        return self._empty[1]

    @property
    def n_matches(self) -> int:
        """Number of matches so far."""
        return self._group.first.n_matches

    @property
    def notes(self) -> list[str]:
        """Remarks on the events read so far: types that the query names and no event has."""
        return self._group.first.notes if self.n_events > self._group.options.start_position else []

    @property
    def _execution(self) -> StreamingExecution:
        execution = self._group.first
        assert isinstance(execution, StreamingExecution)
        return execution

    @property
    def physical(self) -> PhysicalPlan:
        """Plan by which the query is evaluated."""
        return self._execution.physical

    @property
    def output(self) -> str:
        """Name of the output."""
        return self.physical.output.name

    @property
    def engine(self) -> str:
        """Family of the runtime: "stacks" (for chains), "automaton", or "counter" if matches are counted."""
        return self.physical.engine

    @property
    def defers_events(self) -> bool:
        """True if events are deferred until one may end a match (`cer_gpu.runtime.deferred_events`)."""
        return self.physical.defers_events

    @property
    def placement(self) -> tuple[str, str]:
        """Device ("cpu" or "cuda") for the predicates of the next events, and the reason."""
        return (
            self._execution.placement if self._group.schema is not None else before_events(self._group.options.device)
        )

    @property
    def pipeline(self) -> Pipeline:
        """Pipeline of stages; available after `expect` or the first batch."""
        return self._execution.pipeline
