"""Public API: a query, compiled once by `cer_gpu.compile`, and evaluated over anything that holds events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.automaton.strategies import ALL
from cer_gpu.ceql.checks import check
from cer_gpu.ceql.syntax import QuerySyntax
from cer_gpu.ceql.variables import variables
from cer_gpu.columnar.clocks import TIME_UNITS
from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.fields import attribute_type, column_type
from cer_gpu.engine.evaluation_options import OF_EVENTS, EvaluationOptions, Sort, accepts_options, options_by_name
from cer_gpu.engine.execution import StreamingExecution
from cer_gpu.engine.shared_state import SharedState
from cer_gpu.errors import (
    CerError,
    OptionError,
    QueryError,
)
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.explain.explanation import Explanation
from cer_gpu.explain.facts import explain
from cer_gpu.explain.in_short import in_short
from cer_gpu.io.source import Source, with_field_column
from cer_gpu.io.sources import open_events, reading_again
from cer_gpu.io.string_types import with_times
from cer_gpu.order.sorting import order_ties, sort_source
from cer_gpu.order.streams import STREAM_COLUMN, by_stream, merge_sources
from cer_gpu.output.bound_measures import measure_errors, measures_of
from cer_gpu.output.form import Output
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.binding import Binding, Bindings
from cer_gpu.planning.distribution import Distribution
from cer_gpu.planning.file_pruning import FilePruning, needs_of, prune
from cer_gpu.planning.outputs import funnel_plan, output_of, why_not_output, with_aggregate
from cer_gpu.planning.passes import plan_of, schema_errors, strategy_notes
from cer_gpu.planning.physical import PhysicalPlan, physical_plan
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.predicates.guards import no_type_column, string_columns


def check_type_column(source: Source, name: str | None, types: Sequence[str]) -> None:
    """Raise QueryTypeError if events lack the column of their types; it names the columns that hold types of the query.

    Events that can be read only once are not looked into.

    Parameters
    ----------
    source
    name
        The column, or None if the stream's name is the type of all events.
    types
        Event types of the query; none: the events need no column of types.
    """
    if name is None or not types or attribute_type(source.schema, name) is not None or name in source.schema.names:
        return
    holding: dict[str, list[str]] = {}
    if source.rereadable or source.reads_ahead:
        holding = _holding(source, types)
    raise no_type_column(source.schema, name, holding)


def _holding(source: Source, types: Sequence[str]) -> dict[str, list[str]]:
    """Return the types of a query that the first rows have, by their columns."""
    names = string_columns(source.schema)
    types_by_column: dict[str, list[str]] = {}
    with contextlib.suppress(CerError), contextlib.closing(_first_batches(source, names)) as batches:
        for batch in batches:
            for name in names:
                column = batch.column(name)
                if is_string(column.type) or pa.types.is_dictionary(column.type):
                    values = set(pc.unique(column).to_pylist())
                    present = [each for each in types if each in values]
                    if present:
                        types_by_column[name] = present
            break
    return types_by_column


def _first_batches(source: Source, names: list[str]) -> Generator[pa.RecordBatch, None, None]:
    yield from source.batches(names)


def compiled_syntax(
    syntax: QuerySyntax,
    *,
    type_column: str | None,
    time_column: str | None,
    time_unit: str | None,
    schema: pa.Schema | None,
) -> tuple[Query | None, Sequence[CerError]]:
    """Compile a query as it was parsed and return it, or all its errors."""
    plan, notes, errors = planned(
        syntax, type_column=type_column, time_column=time_column, time_unit=time_unit, schema=schema
    )
    if plan is None:
        return None, errors
    query = Query(plan, tuple(notes))
    if schema is not None:
        try:
            query._bind(with_stream(schema) if plan.several_streams else schema)
        except CerError as error:
            return None, [error]
    return query, []


def check_time_unit(time_unit: str | None) -> None:
    """Raise OptionError for an unknown unit of times."""
    if time_unit is not None and time_unit not in TIME_UNITS:
        raise OptionError(f"time_unit must be one of {', '.join(TIME_UNITS)}, got {time_unit!r}")


def planned(
    syntax: QuerySyntax,
    *,
    type_column: str | None,
    time_column: str | None,
    time_unit: str | None,
    schema: pa.Schema | None,
) -> tuple[LogicalPlan | None, Sequence[str], list[QueryError]]:
    """Check a query as it was parsed, and return its plan and remarks on it, or None and all its errors."""
    try:
        time_columns = [] if schema is None else [field.name for field in schema if pa.types.is_timestamp(field.type)]
        checks = check(
            syntax,
            has_time_column=time_column is not None,
            has_type_column=type_column is not None,
            time_columns=time_columns,
        )
        errors: list[QueryError] = checks.errors
        later_errors = [*measure_errors(measures_of(syntax, variables(syntax.formula)), syntax.text)]
        if schema is not None:
            later_errors += schema_errors(syntax, schema, type_column, time_column, time_unit)
        # one error for a span: the attribute of another variable may also name no column
        said = {error.start for error in errors}
        errors += [error for error in later_errors if error.start is None or error.start not in said]
        if errors:
            return None, (), sorted(errors, key=lambda error: error.start or 0)
        plan = plan_of(syntax, type_column, time_column, time_unit)
    except QueryError as error:
        return None, (), [error]
    return plan, (*checks.notes, *strategy_notes(syntax)), []


def _listing_all(plan: LogicalPlan) -> LogicalPlan:
    """Return a plan without LIMIT and ANY."""
    return replace(plan, strategy=ALL if plan.strategy.most_at_an_end else plan.strategy, limit=None)


def with_stream(schema: pa.Schema) -> pa.Schema:
    """Return the schema of one of several streams with the column that merged streams have."""
    return schema if STREAM_COLUMN in schema.names else schema.append(pa.field(STREAM_COLUMN, pa.string()))


class Query(CompiledQuery):
    """A compiled query in CEQL; the result of `cer_gpu.compile`.  Immutable, and can be pickled and shared.

    Attributes
    ----------
    text : str
        The query as it was written.
    notes : tuple of str
        Remarks: variables that are not bound in every match, or that can hold several events.
    language : str
        "CEQL".
    reads_whole_table : bool
        False, as events are evaluated as they arrive.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x > a.x")
    >>> query.evaluate(pa.table({"type": ["A", "B", "B"], "x": [2, 1, 3]})).to_pylist()
    [{'start': 0, 'end': 2, 'positions': [0, 2]}]
    """

    language = "CEQL"
    reads_whole_table = False

    _plan: LogicalPlan

    def __init__(self, plan: LogicalPlan, notes: tuple[str, ...] = ()) -> None:
        self._plan = plan
        self.notes = notes
        self._bindings = Bindings(plan)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the plan, without its bindings to schemas."""
        return Query, (self._plan, self.notes)

    @property
    def text(self) -> str:
        """The query as it was written."""
        return self._plan.text

    @property
    def syntax(self) -> QuerySyntax:
        """The checked query, clause by clause."""
        return self._plan.syntax

    @property
    def default_output(self) -> str:
        """The default output: "measures" where SELECT has some, else "positions".

        With HAVING and no measure it is "bindings".
        """
        if self._plan.measures.measures:
            return "measures"
        return "bindings" if self._drops_rows else "positions"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that the query can have."""
        plan = self._plan
        return tuple(name for name, each in OUTPUTS.items() if why_not_output(plan, each) is None)

    def resolve_output(self, output: str | None) -> str:
        """Return the name of the requested output, by default the usual one; OptionError if the query lacks it."""
        return self._output(output).name

    def _output(self, name: str | None) -> type[Output]:
        return output_of(self._plan, self.default_output if name is None else name)

    def physical_plan(self, output: str | None = None) -> PhysicalPlan:
        """Return the plan that evaluates the query to an output and distributes its events, with the reasons."""
        return physical_plan(self._plan, self._output(output))

    @property
    def distribution(self) -> Distribution:
        """Exact ways to distribute the events to several evaluations."""
        return self.physical_plan().distribution

    def distribution_for(self, output: str | None) -> Distribution:
        """Return the exact ways to distribute the events for an output."""
        return self.physical_plan(output).distribution

    @property
    def types(self) -> tuple[str, ...]:
        """The event types that the query names; none without a type column."""
        return self._plan.event_types

    @property
    def _needed_types(self) -> tuple[str, ...] | None:
        """The types of the events that the query needs if a column has their positions, or None for all events."""
        plan = self._plan
        types = [guard.event_type for guard in plan.guards]
        if plan.type_column is None or plan.negates or plan.looks_back or plan.counts_positions:
            return None
        if plan.partition and self._counts_events:
            return None
        return None if None in types else tuple(dict.fromkeys(filter(None, types)))

    @property
    def _counts_events(self) -> bool:
        """True if numbers of events decide matches: windows of events, and events that follow one another."""
        plan = self._plan
        lengths = [plan.within, None if plan.every is None else plan.every.within]
        if plan.counts_positions or any(length is not None and length.kind == "events" for length in lengths):
            return True
        return physical_plan(plan, OUTPUTS["positions"]).table().has_gaps

    def with_aggregate(self, aggregate: str, output: str | None = "count") -> Query:
        """Return the query whose output "count" shows an aggregate, as the argument of `evaluate` requests."""
        if output != "count":
            raise OptionError(f"aggregate={aggregate!r} is for output='count'\nhint: output='count'")
        return self._changed(partial(with_aggregate, text=aggregate))

    @property
    def variables(self) -> tuple[str, ...]:
        """The selected variables, or those that measures name: the columns of "bindings" besides all others."""
        return self._plan.variables

    @property
    def _drops_rows(self) -> bool:
        """True if HAVING drops rows, so that only outputs of single matches are available."""
        return self._plan.having is not None

    def _without_choice(self) -> Query:
        """Return the query without LIMIT and ANY, which also finds the matches that they leave out."""
        return self._changed(_listing_all)

    def _changed(self, change: Callable[[LogicalPlan], LogicalPlan]) -> Query:
        """Return the query with another plan, derived from its own by a function that can be pickled."""
        return Query(change(self._plan), self.notes)

    def _window_units(self, schema: pa.Schema) -> int | float | None:
        """Return what a range of the stream needs before it, in events or in units of the column of the window.

        It is the window, and before it the windows of OVER aggregates, or None if there is no WITHIN.
        """
        binding = self._bind(schema)
        return None if binding.window_length is None else binding.reach[1].item()

    def __repr__(self) -> str:
        """Show the call that makes it."""
        return f"cer_gpu.compile({self.text!r})"

    def _repr_html_(self) -> str:
        """Show the query, its meaning and its columns in a notebook."""
        return in_short(self._plan, self.notes)

    def _bind(self, schema: pa.Schema) -> Binding:
        """Check the query against a schema; raises QueryTypeError when it does not match.

        Calls with the same schema return the same binding, which never changes.
        """
        binding = self._bindings.bind(schema)
        if self._plan.attributes is not None:
            binding.attribute_schema  # noqa: B018 - SELECT may name attributes that are not there
        binding.measures  # noqa: B018 - and so may measures
        for name in self._plan.unread:
            column_type(schema, name.name, self.text, name.span)
        return binding

    def columns(self, schema: pa.Schema, output: str | None = None) -> list[str]:
        """Return the names of the columns that the query reads from events of a schema.

        A column of which it reads only fields is listed by their paths (`cer_gpu.ceql.paths`).

        Examples
        --------
        >>> import cer_gpu, pyarrow as pa
        >>> query = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[x > 1]")
        >>> query.columns(pa.schema({"type": pa.string(), "x": pa.int64(), "y": pa.int64()}))
        ['type', 'x']
        """
        return self._bind(schema).columns_for(self._output(output))

    def output_schema(self, schema: pa.Schema, output: str | None = None) -> pa.Schema:
        """Return the schema of the results over events of a schema."""
        resolved = self._output(output)
        return resolved.schema_of(self._bind(schema).result_columns(resolved))

    @accepts_options(OF_EVENTS)
    def evaluate(self, events: Any, options: EvaluationOptions) -> pa.Table:
        """Find all matches.

        Parameters
        ----------
        events
            A pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, an object with the Arrow PyCapsule
            interface (pandas, Polars, DuckDB), an iterable of any of these, a `DeviceEvents`, or the path of a Parquet,
            Arrow IPC, CSV, JSON or EVTX file, of a folder (whose ``column=value`` folders are columns), a glob or
            an address such as ``s3://bucket/folder`` (or a list of these, read one after the other); or a mapping from
            the streams of FROM to any of these, which are merged by the time column (equal times in the order of the
            mapping).
        options
            Those of `cer_gpu.EvaluationOptions`, by their names.

        Returns
        -------
        pyarrow.Table
            In the order of time of the ends.  One row for each match: ``start`` and ``end`` (int64, rows of the
            input as it came, from 0), ``positions`` (list<int64>, in the order of time), with a time column
            ``start_time`` and ``end_time`` of its type, and a column for each key of PARTITION BY, named by the first
            name in its bracket.  Rows of several streams have columns for each: a column of positions, such as
            ``start``, has another one at the end, ``start_stream``, with the streams of its rows.

            "bindings": one row for each match, and a column for each selected variable: its position (int64, NULL
            where it holds none) if it holds at most one event, else a list<int64>.  ``SELECT *`` selects the variables
            of AS, and the types that have none.
            "events": besides, ``events``, a list of the rows at ``positions`` as structs of the selected attributes
            (those in the brackets of SELECT; all where an item has none).
            "count": one row for each position that ends matches: ``end``, ``count`` (int64), ``end_time``
            and keys; nothing is listed.
            "ends": one row for each position that ends matches: ``end``, ``end_time`` and keys; they are neither
            listed nor counted.
            "measures": one row for each match: ``start``, ``end``, times and keys, and a column for each measure of
            SELECT, of the type that Arrow gives it.
            "rows": one row for each event of a match and variable that is bound to it: ``match`` (int64, the number of
            the match, from 0), ``variable``, ``position``, and the selected attributes.
            "funnel": one row for each event that satisfies the first step of a chain, in order: ``start``, keys,
            ``step`` (int64, the number of steps reached), ``positions`` and, with a time column, ``times`` of these,
            ``stopped`` ("complete", "window", "barred" or "end"), and ``barred_by`` (int64, the position of the event
            that must not be there, else NULL).

        Raises
        ------
        QueryTypeError
            When the query does not match the events; before any row is read.
        EventsError
            When the events cannot be read, or a count passes int64.
        TimeOrderError
            When a time decreases or is missing.

        Examples
        --------
        >>> import cer_gpu, pyarrow as pa
        >>> query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b")
        >>> query.evaluate(pa.table({"type": ["A", "C", "B"]}), output="bindings").to_pylist()
        [{'start': 0, 'end': 2, 'positions': [0, 2], 'a': 0, 'b': 2}]
        """
        return reading_again(lambda source: self._reader(source, options).read_all(), events)

    @property
    def _counted_output(self) -> str | None:
        return None if self._drops_rows else "count"

    def _file_pruning(self, schema: pa.Schema, output: str | None = None) -> FilePruning | None:
        resolved = self._output(output)
        if resolved.by_starts or resolved.each_event:
            return None  # any event may show that a window has passed, or is requested
        return needs_of(self._bindings, schema)

    def _open_source(
        self,
        events: Any,
        *,
        sort: Sort = False,
        resident: bool = False,
        needs: Callable[[pa.Schema], FilePruning | None] | None = None,
    ) -> Source:
        """Open anything that `evaluate` takes; with `sort`, its events are read in the order of time.

        Unless `resident`, columns in the memory of a GPU are refused: only the evaluation knows how to read them.
        With `needs`, events that are not needed may come without their values.
        """
        time_column = self.time_column
        options = EvaluationOptions(sort=sort)
        options.check_time(time_column)
        events_by_stream = by_stream(events, self._plan.streams) if isinstance(events, Mapping) else {"": events}
        resident = resident and not sort and not isinstance(events, Mapping)
        sources = {name: open_events(each, resident=resident) for name, each in events_by_stream.items()}
        for source in sources.values():
            check_type_column(source, self._bindings.plan_over(source.schema).type_column, self.types)
        if needs is not None and not isinstance(events, Mapping):
            sources = {name: prune(source, needs(source.schema)) for name, source in sources.items()}
        if time_column is not None:
            sources = {name: with_times(source, time_column) for name, source in sources.items()}
            if sort or isinstance(events, Mapping):
                sources = {name: with_field_column(source, time_column) for name, source in sources.items()}
            sources = {
                name: sort_source(source, time_column) if sort or not source.ordered else source
                for name, source in sources.items()
            }
            if ties := options.ties(time_column):
                sources = {name: order_ties(source, time_column, ties) for name, source in sources.items()}
        if len(sources) == 1 and not self._plan.several_streams:
            return next(iter(sources.values()))
        return merge_sources(sources, time_column) if isinstance(events, Mapping) else sources[""]

    def _with_aggregate_of(self, options: EvaluationOptions) -> Query:
        return self if options.aggregate is None else self.with_aggregate(options.aggregate, options.output)

    def _new_execution(self, options: EvaluationOptions, sharing: SharedState | None = None) -> StreamingExecution:
        query = self._with_aggregate_of(options)
        output = query._output(options.output)
        if output.by_starts:
            query = query._as_funnel
        return StreamingExecution(query._bindings, options, output.name, sharing)

    @cached_property
    def _as_funnel(self) -> Query:
        """The query with the plan that evaluates its funnel."""
        plan = funnel_plan(self._plan)
        return self if plan is self._plan else self._changed(funnel_plan)

    @options_by_name
    def explain(self, events: Any = None, *, analyze: bool = False, detail: str = "summary") -> Explanation:
        """Explain the meaning of the query, and its evaluation.

        Parameters
        ----------
        events
            Anything that `evaluate` takes: the events that satisfy each predicate, and the relevant ones, are counted.
        analyze
            True to also find the matches in `events`, on one thread, and measure the time of each stage.
        detail
            Detail of the text: "summary" (the query in words, its columns, memory and speed), with it the "plan" or
            the "automaton", or "all".

        Returns
        -------
        Explanation
            ``str()`` and notebooks show it; `to_svg`, `to_dot` and `to_dict` give the automaton and all the facts.

        Raises
        ------
        OptionError
            When there is nothing to analyze, or `detail` is none of these.
        CerError
            As `evaluate`, if there are events.

        Examples
        --------
        >>> import cer_gpu
        >>> print(cer_gpu.compile("SELECT * FROM S WHERE A ; B").explain().words[1])
          1. an A event
        """
        if analyze and events is None:
            raise OptionError("there are no events to analyze the query on\nhint: events=... (--events)")
        if events is None:
            return explain(self._bindings, self.notes, None, None, detail)
        source = self._open_source(events)
        query = cast(Query, self.bind(source.schema))
        return explain(query._bindings, query.notes, source, query._match_source if analyze else None, detail)
