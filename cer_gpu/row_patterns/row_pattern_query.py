"""A compiled statement with MATCH_RECOGNIZE, and its evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Bools, Int64
from cer_gpu.backend.row_patterns import list_rows
from cer_gpu.columnar.clocks import Clock
from cer_gpu.columnar.columns import as_type, kind_of
from cer_gpu.columnar.fields import array_of, attribute_type, column_type, is_field_column, narrowest
from cer_gpu.columnar.resident import refuse_resident
from cer_gpu.engine.blocks import Batch, EventBlock
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.evaluation_options import OF_EVENTS, EvaluationOptions, Sort, accepts_options, options_by_name
from cer_gpu.engine.query_execution import QueryExecution
from cer_gpu.engine.shared_state import SharedState
from cer_gpu.errors import OptionError, QueryError, QueryTypeError, did_you_mean
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.io.source import Source
from cer_gpu.io.sources import open_events, reading_again
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.output.bound_measures import BoundMeasures
from cer_gpu.row_patterns.conditions import BoundConditions, Conditions
from cer_gpu.row_patterns.explaining import RowPatternExplanation, explain_row_pattern
from cer_gpu.row_patterns.leaves import RowAggregate, RowValue
from cer_gpu.row_patterns.ordering import field_of, is_comparable, ordered_rows
from cer_gpu.row_patterns.program import RowProgram
from cer_gpu.row_patterns.row_matching import RowMatches, Skip, find_matches
from cer_gpu.row_patterns.row_measures import LeafValues, Listed, Measures, RowColumns
from cer_gpu.row_patterns.statement import OMIT_EMPTY, WITH_UNMATCHED, Statement


class OfTable(Protocol):
    """A query with results once all rows are read (`cer_gpu.row_patterns.row_pattern_query`)."""

    @property
    def text(self) -> str:
        """The query as it was written."""

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the names of the columns that it reads."""

    def _columns_read(self, schema: pa.Schema) -> list[str]:
        """Return the names of the columns that it reads, and those of fields of structs, with dots."""

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of its results."""

    def _table_results(self, table: pa.Table, schema: pa.Schema, device: str) -> Iterator[pa.RecordBatch]:
        """Yield its results over a table."""


class BufferedExecution(QueryExecution):
    """Evaluation of one query over the whole table, whose rows are collected.

    Parameters
    ----------
    query, options
    """

    def __init__(self, query: OfTable, options: EvaluationOptions) -> None:
        super().__init__(options)
        self._query = query
        self._schema: pa.Schema | None = None
        self._table_results = pa.schema([])
        self._buffered: list[pa.RecordBatch] = []
        self._attributes: list[str] = []

    @property
    def identity(self) -> dict[str, Any]:
        """The text."""
        return {"text": self._query.text}

    @property
    def result_schema(self) -> pa.Schema:
        """Schema of the results; without columns before the first batch."""
        return self._table_results

    def clone(self, options: EvaluationOptions, sharing: SharedState | None) -> BufferedExecution:
        """See `QueryExecution`."""
        return BufferedExecution(self._query, options)

    def expect(self, schema: pa.Schema) -> bool:
        """See `QueryExecution`."""
        added = (ROW_COLUMN, STREAM_COLUMN, self.options.position_column)
        schema = pa.schema([field for field in schema if field.name not in added])
        results, names = self._query.output_schema(schema), self._query._columns_read(schema) or schema.names[:1]
        self._attributes = self._attributes or self._query.columns(schema)
        if self._schema is not None:
            return False
        self._schema, self._table_results = pa.schema([(name, attribute_type(schema, name)) for name in names]), results
        return True

    @property
    def attributes(self) -> list[str]:
        """Columns that are read, resolved by `expect`."""
        return list(self._attributes)

    def refuse_resident(self, batch: pa.RecordBatch) -> None:
        """See `QueryExecution`."""
        refuse_resident(batch, self.attributes, "MATCH_RECOGNIZE")

    def process(self, block: EventBlock, clocks: dict[str, Clock], batch: Batch) -> Iterator[pa.RecordBatch]:
        """Collect the rows of a block."""
        assert self._schema is not None
        names, batch = self._schema.names, block.columns.batch
        self._buffered.append(pa.RecordBatch.from_arrays([array_of(batch, name) for name in names], names=names))
        yield from ()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the results over all rows."""
        if self._schema is None:
            return
        table, self._buffered = collected(self._buffered, self._schema), []
        n_reported, (part, n_parts) = 0, self.options.shard or (0, 1)
        for rows in self._query._table_results(table, self._table_results, self.options.device):
            if n_parts > 1:
                number = np.arange(n_reported, n_reported + rows.num_rows)
                n_reported += rows.num_rows
                rows = rows.take(pa.array(np.flatnonzero(number % n_parts == part)))
            if self.options.last_result is not None:
                rows = rows.slice(0, self.options.last_result - self._n_results)
            self._n_results += rows.num_rows
            self.add_matches(rows.num_rows)
            yield rows
            if self.limit_reached:
                return

    def snapshot(self, state: NamedState) -> None:
        """Add the rows to a checkpoint."""
        super().snapshot(state)
        if self._schema is not None:
            state.schemas["results"] = self._table_results
            state.tables["held"] = collected(self._buffered, self._schema)

    def restore(self, state: NamedState) -> None:
        """See `QueryExecution`."""
        super().restore(state)
        if "held" in state.tables:
            self._table_results, self._schema = state.schemas["results"], state.tables["held"].schema
            self._buffered = state.tables["held"].to_batches()


def collected(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema as one table; files may have strings as codes, in some batches or in all.

    Raises
    ------
    EventsError
        When a value of a later batch does not fit the type of the first.
    """
    columns = []
    for each in schema:
        chunks, whose = [batch.column(each.name) for batch in batches], f"column {each.name!r}"
        if len({chunk.type for chunk in chunks}) > 1:
            chunks = [chunk if chunk.type == each.type else as_type(chunk, each.type, whose) for chunk in chunks]
        columns.append(pa.chunked_array(chunks, None if chunks else each.type))
    return pa.table(columns, names=schema.names)


class LastBinding:
    """Measures and conditions of a statement bound to the schema of the last table, which is mostly that of the next.

    Threads may share one; copies of it, and of its process, begin without any.
    """

    def __init__(self) -> None:
        self._last: tuple[pa.Schema, BoundMeasures, BoundConditions] | None = None

    def __reduce__(self) -> tuple[type[LastBinding], tuple[()]]:
        """Pickle nothing of it."""
        return LastBinding, ()

    def of(
        self, schema: pa.Schema, measures: Measures, conditions: Conditions, text: str
    ) -> tuple[BoundMeasures, BoundConditions]:
        """Return measures and conditions bound to a schema.

        Raises
        ------
        QueryTypeError
            When a column is unknown, or types do not go together.
        """
        last = self._last
        if last is None or not last[0].equals(schema, check_metadata=True):
            last = schema, measures.bind(schema, text), conditions.bind(schema, text)
            self._last = last
        return last[1], last[2]


@dataclass(frozen=True)
class RowPatternQuery(CompiledQuery):
    """A statement with MATCH_RECOGNIZE, compiled by `cer_gpu.compile`.  Immutable, and can be pickled.

    Attributes
    ----------
    text : str
        The statement.
    language : str
        "MATCH_RECOGNIZE".
    reads_whole_table : bool
        True: matching starts when all rows are read.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> falls = cer_gpu.compile('''SELECT * FROM t MATCH_RECOGNIZE (
    ...     ORDER BY ts MEASURES FIRST(A.x) AS high, LAST(B.x) AS low
    ...     PATTERN (A B+) DEFINE B AS x < PREV(x))''')
    >>> falls.evaluate(pa.table({"ts": [1, 2, 3, 4], "x": [5, 4, 2, 3]})).to_pylist()
    [{'high': 5, 'low': 2}]
    """

    language = "MATCH_RECOGNIZE"
    reads_whole_table = True
    _text: str
    _statement: Statement = field(repr=False)
    _program: RowProgram = field(repr=False)
    _conditions: Conditions = field(repr=False)
    _measures: Measures = field(repr=False)
    _skip: Skip = field(repr=False)
    _last_binding: LastBinding = field(default_factory=LastBinding, repr=False, compare=False)

    @accepts_options(OF_EVENTS)
    def evaluate(self, events: Any, options: EvaluationOptions) -> pa.Table:
        """Return the result of the statement over a table.

        Parameters
        ----------
        events
            Anything that `cer_gpu.Query.evaluate` takes but several streams; all of it is buffered in memory.
        options
            Those of `cer_gpu.EvaluationOptions`, by their names; those of time and of outputs have no use here.

        Returns
        -------
        pyarrow.Table
            ONE ROW PER MATCH: the columns of PARTITION BY and the measures.  ALL ROWS PER MATCH: all columns, those of
            PARTITION BY and ORDER BY before the measures.  Partitions are in the order of their first rows.

        Raises
        ------
        OptionError
            When there is no such option, or it cannot have the value.
        DeviceError
            When `device` is "cuda", and there is no GPU.
        EventsError
            When events cannot be read, a value does not fit its type, or AFTER MATCH SKIP has no row to continue at.
        QueryTypeError
            When a column is unknown, or types do not go together.
        QueryTooLargeError
            When the automaton is too large, or conditions on other rows of the match take too many steps.
        """
        return reading_again(lambda source: self._reader(source, options).read_all(), events)

    @property
    def text(self) -> str:
        """The statement."""
        return self._text

    def resolve_output(self, output: str | None) -> str:
        """Return the name of the only output; OptionError if another one is requested."""
        if output not in (None, self.default_output):
            raise OptionError(
                f"MATCH_RECOGNIZE has no output {output!r}: ONE ROW PER MATCH or ALL ROWS PER MATCH tells its rows\n"
                "hint: leave it out"
            )
        return self.default_output

    def _new_execution(self, options: EvaluationOptions, sharing: SharedState | None = None) -> BufferedExecution:
        self.resolve_output(options.output)
        if options.aggregate is not None:
            raise OptionError("aggregate is an option of CEQL; in MATCH_RECOGNIZE, MEASURES has aggregates")
        return BufferedExecution(self, options)

    def _open_source(self, events: Any, *, sort: Sort = False, resident: bool = False, needs: Any = None) -> Source:
        """Open anything that `evaluate` takes, or a mapping from the table of FROM to it."""
        EvaluationOptions(sort=sort).check_time(None)
        if not isinstance(events, Mapping):
            return open_events(events)
        table = self._statement.table
        if list(events) != [table]:
            raise OptionError(f"the statement reads one table, {table!r}, and got {', '.join(map(repr, events))}")
        return open_events(events[table])

    @options_by_name
    def explain(self, events: Any = None, *, analyze: bool = False, detail: str = "summary") -> RowPatternExplanation:
        """Explain the meaning of the statement, and its evaluation: clauses, conditions, places, and what it costs.

        Parameters
        ----------
        events
            Anything that `evaluate` takes: the statement is checked against its columns.
        analyze
            Not for statements yet.
        detail
            Detail of the text: "summary" (the statement in words, time and memory), with it the "plan" (conditions) or
            the "automaton" (places), or "all".

        Raises
        ------
        OptionError
            With `analyze`, or another `detail`.
        QueryTypeError
            When the statement does not fit the events.

        Examples
        --------
        >>> import cer_gpu
        >>> falls = cer_gpu.compile('''SELECT * FROM t MATCH_RECOGNIZE (
        ...     ORDER BY ts MEASURES LAST(x) AS low PATTERN (A B+) DEFINE B AS x < PREV(x))''')
        >>> print(falls.explain().words[1])
        At each row, the preferred match of A B+ that begins there is found.
        """
        if analyze:
            raise OptionError("MATCH_RECOGNIZE is not measured stage by stage\nhint: leave out analyze (--analyze)")
        if events is not None:
            self.output_schema(self._open_source(events).schema)
        searched = self._conditions.searched
        names = tuple(searched.predicates) if searched else ()
        return explain_row_pattern(self._statement, self._program, tuple(self._conditions.predicates), names, detail)

    def _repr_html_(self) -> str:
        """Show the explanation in a notebook."""
        return self.explain()._repr_html_()

    @property
    def syntax(self) -> Statement:
        """The statement, clause by clause."""
        return self._statement

    @property
    def outputs(self) -> tuple[str, ...]:
        """The form of the rows, which the statement determines."""
        return (self.default_output,)

    @property
    def default_output(self) -> str:
        """The form of the rows: "one row per match" or "all rows per match"."""
        return "all rows per match" if self._statement.all_rows else "one row per match"

    def columns(self, schema: pa.Schema, output: str | None = None) -> list[str]:
        """Return the names of the columns of a schema that the statement reads; fields of structs by their paths."""
        # if no column is read, any column gives the number of events
        return narrowest(schema, self._columns_read(schema)) or schema.names[:1]

    def _columns_read(self, schema: pa.Schema) -> list[str]:
        """Return the names of the columns that the statement reads, and those of fields of structs, with dots."""
        statement = self._statement
        named = {name for name, _ in statement.partition} | {each.column for each in statement.order}
        leaves = [*self._conditions.leaves.values(), *self._measures.leaves.values()]
        named |= {leaf.column for leaf in leaves if isinstance(leaf, RowValue | RowAggregate) and leaf.column}
        if statement.all_rows:
            named |= {name for name, _ in statement.select or () if name in schema.names}
            named |= set(schema.names) if statement.select is None else set()
        return [name for name in schema.names if name in named] + sorted(named - set(schema.names))

    def output_schema(self, schema: pa.Schema, output: str | None = None) -> pa.Schema:
        """Return the schema of the result over events of a schema.

        Raises
        ------
        QueryTypeError
            As `evaluate`.
        """
        measures, _ = self._bound(schema)
        available = {each.name: each for each in self._available(schema, measures)}
        for name in self.columns(schema):  # of two columns with one name, none can be read
            column_type(schema, name, self.text, None)
        return pa.schema([available[name].with_name(alias) for name, alias in self._selected(list(available))])

    def _bound(self, schema: pa.Schema) -> tuple[BoundMeasures, BoundConditions]:
        return self._last_binding.of(schema, self._measures, self._conditions, self.text)

    def _available(self, schema: pa.Schema, measures: BoundMeasures) -> list[pa.Field]:
        """Return the columns that SELECT can name."""
        statement = self._statement
        for each in statement.order:
            data_type = column_type(schema, each.column, self.text, each.span)
            if kind_of(data_type) is None:
                message = f"ORDER BY needs values in an order, and {each.column!r} is {data_type}"
                raise QueryTypeError(message, self.text, *each.span)
        for name, span in statement.partition:
            data_type = column_type(schema, name, self.text, span)
            if not is_comparable(data_type):
                message = f"PARTITION BY needs columns of plain values, and {name!r} is {data_type}"
                raise QueryTypeError(message, self.text, *span)
        first = [name for name, _ in statement.partition]
        if statement.all_rows:
            first += [each.column for each in statement.order if each.column not in first]
        unique = [name for name in schema.names if len(schema.get_all_field_indices(name)) == 1]
        rest = [name for name in unique if name not in first and not is_field_column(schema, name)]
        rest = rest if statement.all_rows else []
        measured = {name: pa.field(name, data_type) for name, data_type in measures.fields}
        whole = pa.schema([*schema, *((name, attribute_type(schema, name)) for name in first if name not in unique)])
        # a measure hides a column of its name
        return [measured.get(name) or field_of(whole, name) for name in dict.fromkeys([*first, *measured, *rest])]

    def _selected(self, available: Sequence[str]) -> list[tuple[str, str]]:
        if self._statement.select is None:
            return [(name, name) for name in available]
        for name, _ in self._statement.select:
            if name not in available:
                begin = self.text.find(name)
                hint = did_you_mean(name, available, "columns of the result")
                message = f"SELECT names {name!r}, which is no column of the result"
                raise QueryError(message, self.text, begin, begin + len(name), hint)
        return list(self._statement.select)

    @cached_property
    def _rows_shown(self) -> Bools:
        return np.array([not place.excluded for place in self._program.places], np.bool_)

    def _table_results(self, table: pa.Table, schema: pa.Schema, device: str) -> Iterator[pa.RecordBatch]:
        statement = self._statement
        measures, conditions = self._bound(table.schema)
        available = [each.name for each in self._available(table.schema, measures)]
        names = [name for name, _ in self._selected(available)]
        rows = ordered_rows(table, [name for name, _ in statement.partition], statement.order)
        if not rows.batch.num_rows:
            return
        symbols, satisfies = conditions.symbols(rows, device)
        every = np.ones(len(next(iter(satisfies.values()))) if satisfies else 1, np.bool_)
        satisfies |= {place.variable: every for place in self._program.places if place.variable not in satisfies}
        unmatched = _Unmatched(rows.batch.num_rows) if statement.empty == WITH_UNMATCHED else None
        columns = RowColumns(rows)

        def batch(matches: RowMatches, free: Int64 | None) -> pa.RecordBatch:
            listed = self._list_matches(matches, free) if statement.all_rows else None
            values = LeafValues(columns, matches, self._program, statement.subsets, listed)
            measured = dict(zip((name for name, _ in measures.fields), measures.columns(values), strict=True))
            taken = pa.array(matches.starts if listed is None else listed.rows)
            results = []
            for name, wanted in zip(names, schema, strict=True):
                column = measured[name] if name in measured else rows.batch.column(name).take(taken)
                results.append(column if column.type == wanted.type else column.cast(wanted.type))
            return pa.RecordBatch.from_arrays(results, schema=schema)

        search = conditions.search(rows, self._program, self._skip)
        for matches in find_matches(self._program, satisfies, symbols, rows.ends, self._skip, search):
            yield batch(matches, unmatched.before(matches) if unmatched else None)
        if unmatched is not None:
            yield batch(_NO_MATCHES, unmatched.rest())

    def _list_matches(self, matches: RowMatches, unmatched: Int64 | None) -> Listed:
        capacity = len(matches) + len(matches.places)
        rows, steps, numbers = (np.empty(capacity, np.int64) for _ in range(3))
        n = list_rows(matches.starts, matches.offsets, matches.places, self._rows_shown, rows, steps, numbers)
        rows, steps, numbers = rows[:n], steps[:n], numbers[:n]
        if self._statement.empty == OMIT_EMPTY:
            mask = steps >= 0
            rows, steps, numbers = rows[mask], steps[mask], numbers[mask]
        if unmatched is not None and len(unmatched):
            nothing = np.full(len(unmatched), -1, np.int64)
            begins = np.concatenate((matches.starts[numbers], unmatched)) if n else unmatched
            order = np.argsort(begins, kind="stable")
            rows, steps, numbers = (
                np.concatenate(pair)[order] for pair in ((rows, unmatched), (steps, nothing), (numbers, nothing))
            )
        return Listed(rows, steps, numbers)


_NONE = np.empty(0, np.int64)
_NO_MATCHES = RowMatches(_NONE, np.zeros(1, np.int64), np.empty(0, np.int16), _NONE)


class _Unmatched:
    """Rows that no match holds, and at which no empty match begins."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._n_reported = 0  # rows before it are reported, or matched
        self._covered = 0  # the row after those of the matches so far

    def before(self, matches: RowMatches) -> Int64:
        """Return the unmatched rows up to the beginning of the last match of a piece."""
        last = int(matches.starts[-1]) + 1
        marks = np.zeros(last - self._n_reported + 1, np.int64)
        begins = np.maximum(matches.starts, self._n_reported) - self._n_reported
        ends = np.minimum(matches.starts + np.maximum(matches.lengths, 1), last) - self._n_reported
        np.add.at(marks, begins, 1)
        np.add.at(marks, np.maximum(ends, begins), -1)
        free = np.cumsum(marks)[:-1] == 0
        free[: max(0, min(self._covered, last) - self._n_reported)] = False
        rows = np.flatnonzero(free) + self._n_reported
        self._n_reported = last
        self._covered = max(self._covered, int((matches.starts + np.maximum(matches.lengths, 1)).max()))
        return rows

    def rest(self) -> Int64:
        """Return the unmatched rows after the reported ones."""
        return np.arange(max(self._n_reported, self._covered), self._n_rows)
