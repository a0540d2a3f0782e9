"""The front door: `compile` a query once, evaluate it over anything that holds events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from cer_gpu.automaton.cea import CEA, build_cea
from cer_gpu.automaton.normal_form import normal_form
from cer_gpu.ceql.checks import check
from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.syntax import QuerySyntax, filters, variable_filters
from cer_gpu.engine.binding import type_errors
from cer_gpu.engine.clocks import TIME_UNITS, time_column_type, window_length
from cer_gpu.engine.evaluator import Binding, Evaluator, Plan, output_schema
from cer_gpu.engine.predicates import type_column_type
from cer_gpu.engine.sources import Source, open_events
from cer_gpu.errors import (
    CerError,
    DeviceError,
    OptionError,
    QueryError,
    QueryTooLargeError,
    TimeOrderError,
    did_you_mean,
)

OUTPUTS = ("positions", "bindings", "events", "count")
DEVICES = ("auto", "cpu", "cuda")


def compile(
    text: str,
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
) -> Query:
    """Compile a CEQL query.

    Parameters
    ----------
    text
        The query (docs/language.md).
    type_column
        The column that holds the type of each event; None: the stream's name (FROM) is the type of all of them.
    time_column
        The column that holds the time of each event: a timestamp, date, duration or integer that never decreases.
        The results then have start_time and end_time.
    time_unit
        "s", "ms", "us" or "ns": the unit of an integer time column, for WITHIN in HOURS, MINUTES or SECONDS.
    schema : pyarrow.Schema, optional
        Of the events: types are then checked here, and not at the first batch.

    Returns
    -------
    Query

    Raises
    ------
    QuerySyntaxError, QueryError
        With the place in the query, what was expected, and a hint.
    QueryTypeError
        When the query does not fit the schema.
    UnsupportedQueryError
        For a clause that is not evaluated yet.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> events = pa.table({"type": ["SELL", "BUY", "SELL"], "price": [101, 90, 95]})
    >>> query = cer_gpu.compile("SELECT * FROM S WHERE SELL AS a ; BUY ; SELL FILTER a[price > 100]")
    >>> query.evaluate(events).to_pylist()
    [{'start': 0, 'end': 2, 'positions': [0, 1, 2]}]
    """
    query, errors = analyse(text, type_column=type_column, time_column=time_column, time_unit=time_unit, schema=schema)
    if errors:
        raise errors[0]
    assert query is not None
    return query


def analyse(
    text: str,
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
) -> tuple[Query | None, Sequence[CerError]]:
    """Compile a query and return it, or all the errors that it has.

    Parameters are those of `compile`.
    """
    if time_unit is not None and time_unit not in TIME_UNITS:
        raise OptionError(f"time_unit must be one of {', '.join(TIME_UNITS)}, got {time_unit!r}")
    try:
        syntax = parse(text)
        found = check(syntax, has_time_column=time_column is not None, has_type_column=type_column is not None)
        errors: list[QueryError] = found.errors
        if schema is not None:
            errors += _schema_errors(syntax, schema, type_column, time_column, time_unit)
        if errors:
            return None, sorted(errors, key=lambda error: error.start or 0)
        cea = _automaton(syntax, typed=type_column is not None)
    except RecursionError:
        return None, [QueryTooLargeError("the query is nested too deeply")]
    except QueryError as error:
        return None, [error]
    query = Query(Plan(text, cea, syntax.within, syntax.limit, type_column, time_column, time_unit), tuple(found.notes))
    if schema is not None:
        try:
            query.bind(schema)
        except CerError as error:
            return None, [error]
    return query, []


def _schema_errors(
    syntax: QuerySyntax, schema: pa.Schema, type_column: str | None, time_column: str | None, time_unit: str | None
) -> list[QueryError]:
    """Return all that does not fit a schema: tests, the type column, the time column, the window."""
    predicates = [v.predicate for f in filters(syntax.formula) for v in variable_filters(f)]
    errors: list[QueryError] = [*type_errors(predicates, schema, syntax.text)]
    try:
        if type_column is not None:
            type_column_type(schema, type_column)
    except QueryError as error:
        errors.append(error)
    try:
        if time_column is not None:
            time_column_type(schema, time_column)
        within = syntax.within
        if within is not None and (within.kind != "time" or time_column is not None):
            window_length(within, schema, time_column, time_unit, syntax.text)
    except QueryError as error:
        errors.append(error)
    return errors


def _automaton(syntax: QuerySyntax, typed: bool) -> CEA:
    items = syntax.select.items
    selected = None if items is None else frozenset(item.variable.name for item in items)
    return build_cea(normal_form(syntax.formula, typed=typed), selected)


class Query:
    """A compiled query; made by `compile`.  Immutable, and can be pickled and shared.

    Attributes
    ----------
    text : str
        The query as it was written.
    notes : tuple of str
        Remarks: variables that are not bound in every match, or that can hold several events.
    """

    def __init__(self, plan: Plan, notes: tuple[str, ...] = ()) -> None:
        self._plan = plan
        self.notes = notes

    @property
    def text(self) -> str:
        """The query as it was written."""
        return self._plan.text

    @property
    def type_column(self) -> str | None:
        """The column of event types."""
        return self._plan.type_column

    @property
    def time_column(self) -> str | None:
        """The column of times."""
        return self._plan.time_column

    def __repr__(self) -> str:
        """Show how to make it again."""
        return f"cer_gpu.compile({self.text!r})"

    def bind(self, schema: pa.Schema) -> Binding:
        """Check the query against a schema; raises QueryTypeError when it does not fit."""
        return Binding(self._plan, schema)

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the names of the columns that the query reads from events of a schema."""
        return self.bind(schema).columns

    def output_schema(self, schema: pa.Schema, output: str = "positions") -> pa.Schema:
        """Return the schema of the results over events of a schema."""
        _check_options(output=output)
        return output_schema(self.bind(schema).time_type)

    def evaluate(
        self,
        events: Any,
        *,
        device: str = "auto",
        output: str = "positions",
        sort: bool = False,
        threads: int | None = None,
        share: tuple[int, int] | None = None,
    ) -> pa.Table:
        """Find all complex events.

        Parameters
        ----------
        events
            A pyarrow Table, RecordBatch, RecordBatchReader or Dataset, an iterable of RecordBatches, an object with
            the Arrow PyCapsule interface (pandas, Polars, DuckDB), or the path of a Parquet, Arrow IPC or CSV file
            (or a list of such paths, read one after the other).
        device
            "cpu", or "auto", which is the CPU as well: evaluation on a GPU is not there yet.
        output
            "positions".  "bindings", "events" and "count" are not there yet.
        sort, threads, share
            Not there yet; only the default (or ``threads=1``) is accepted.

        Returns
        -------
        pyarrow.Table
            One row for each complex event, ordered by its end: ``start`` and ``end`` (int64, positions in the input
            counted from 0), ``positions`` (list<int64>, ascending) and, with a time column, ``start_time`` and
            ``end_time`` of its type.

        Raises
        ------
        QueryTypeError
            When the query does not fit the events; before any row is read.
        EventsError
            When the events cannot be read.
        TimeOrderError
            When a time decreases or is missing.
        """
        reader = self.stream(events, device=device, output=output, sort=sort, threads=threads, share=share)
        return reader.read_all()

    def stream(
        self,
        events: Any,
        *,
        device: str = "auto",
        output: str = "positions",
        sort: bool = False,
        threads: int | None = None,
        share: tuple[int, int] | None = None,
    ) -> pa.RecordBatchReader:
        """Find all complex events batch by batch, in bounded memory.

        Parameters and errors are those of `evaluate`; the events are read while the reader is.

        Returns
        -------
        pyarrow.RecordBatchReader
            Closed by ``close()`` or at the end of a ``with`` block.
        """
        evaluator = self.evaluator(device=device, output=output, sort=sort, threads=threads, share=share)
        source = open_events(events)
        schema = self.output_schema(source.schema)
        return pa.RecordBatchReader.from_batches(schema, self.matches(source, evaluator))

    def matches(self, source: Source, evaluator: Evaluator) -> Iterator[pa.RecordBatch]:
        """Yield the complex events of a source, in pieces of bounded size."""
        for batch in source.batches(self.columns(source.schema)):
            try:
                yield from evaluator.push_batches(batch)
            except TimeOrderError as error:
                where = source.locate(evaluator.n_events)
                raise TimeOrderError(f"{where}: {error}" if where else str(error)) from None
        yield from evaluator.finish_batches()

    def evaluator(
        self,
        *,
        device: str = "auto",
        output: str = "positions",
        sort: bool = False,
        threads: int | None = None,
        share: tuple[int, int] | None = None,
    ) -> Evaluator:
        """Return an evaluator for a stream that arrives batch by batch.

        Parameters are those of `evaluate`.

        Examples
        --------
        >>> import cer_gpu, pyarrow as pa
        >>> evaluator = cer_gpu.compile("SELECT * FROM S WHERE A ; B").evaluator()
        >>> evaluator.push(pa.record_batch({"type": ["A", "A"]})).num_rows
        0
        >>> evaluator.push(pa.record_batch({"type": ["B"]})).column("positions").to_pylist()
        [[0, 2], [1, 2]]
        """
        _check_options(device=device, output=output, sort=sort, threads=threads, share=share)
        return Evaluator(self._plan)


def _check_options(
    *,
    device: str = "auto",
    output: str = "positions",
    sort: bool = False,
    threads: int | None = None,
    share: tuple[int, int] | None = None,
) -> None:
    if device not in DEVICES:
        raise OptionError(f"device must be one of {', '.join(DEVICES)}, got {device!r}")
    if device == "cuda":
        raise DeviceError("evaluation on a GPU is not there yet\nhint: device='cpu', or 'auto'")
    if output not in OUTPUTS:
        hint = did_you_mean(str(output), OUTPUTS, "outputs")
        raise OptionError(f"output must be one of {', '.join(OUTPUTS)}, got {output!r}\nhint: {hint}")
    if output != "positions":
        raise OptionError(f"output={output!r} is not there yet\nhint: output='positions'")
    if sort:
        raise OptionError("sort=True is not there yet\nhint: sort the events before")
    if threads not in (None, 1):
        raise OptionError("more than one thread is not there yet\nhint: threads=None")
    if share is not None:
        raise OptionError("share=(k, n) is not there yet\nhint: share=None")
