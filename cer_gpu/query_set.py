"""Many queries in one pass: `compile_all` compiles them, and a `QuerySet` evaluates them over the same events.

The events are read, decoded, put in order and cut into blocks once; guards that queries have in common are evaluated
once, over the events of their type (`cer_gpu.predicates.shared_guards`).  Behind that, each query has a pipeline of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from html import escape
from typing import Any

import pyarrow as pa

from cer_gpu.columnar.fields import columns_with, narrowest
from cer_gpu.columnar.recycling import Turn
from cer_gpu.columnar.resident import refuse_resident
from cer_gpu.compilation import compile_query
from cer_gpu.engine.blocks import BLOCK_ROWS, Batch, Blocks, EventBlock
from cer_gpu.engine.evaluator import Evaluator
from cer_gpu.engine.intake import Intake
from cer_gpu.engine.options import EvaluationOptions, taking
from cer_gpu.engine.sharing import Sharing
from cer_gpu.errors import EventsError, OptionError, QueryError, did_you_mean
from cer_gpu.explain.explanation import Explanation
from cer_gpu.io.source import Source
from cer_gpu.order.rows import ROW_COLUMN
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.query import Query

QUERY_COLUMN = "query"
"""Column of `QuerySet.stream` that names the query of each row."""

OF_SETS = ("device", "output", "sort", "lateness", "late", "limit")
"""Options over given events."""

SET_ROWS = 4 * BLOCK_ROWS
"""Rows of a block: each costs some calls for every query, which reads few of them."""

FoundBatches = Iterator[tuple[str, pa.RecordBatch]]


def compile_all(
    queries: Mapping[str, str],
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
    relations: Mapping[str, Any] | None = None,
) -> QuerySet:
    """Compile many queries, to be evaluated in one pass over the events.

    Parameters
    ----------
    queries
        Texts, or `pathlib.Path` of files with them, by the names of the queries; at least one.
    type_column, time_column, time_unit, schema, relations
        As those of `cer_gpu.compile`, the same for all queries.

    Returns
    -------
    QuerySet

    Raises
    ------
    QuerySyntaxError, QueryError, QueryTypeError, OptionError
        As `compile`, for the first query that is wrong; the message begins with its name.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> events = pa.table({"type": ["A", "B", "A", "C"]})
    >>> rules = {"ab": "SELECT * FROM S WHERE A ; B", "ac": "SELECT * FROM S WHERE A ; C"}
    >>> found = cer_gpu.compile_all(rules).evaluate(events)
    >>> {name: table["end"].to_pylist() for name, table in found.items()}
    {'ab': [1], 'ac': [3, 3]}
    """
    compiled = {}
    options: dict[str, Any] = {"type_column": type_column, "time_column": time_column, "time_unit": time_unit}
    for name, text in queries.items():
        with _in_query(name):
            compiled[name] = compile_query(text, schema=schema, relations=relations, **options)
    return QuerySet(compiled)


@contextmanager
def _in_query(name: str) -> Iterator[None]:
    """Let errors in a query begin with its name."""
    try:
        yield
    except QueryError as error:
        message = f"query {name!r}: {error.message}"
        raise type(error)(message, error.text, error.start, error.end, error.hint) from None


class QuerySet(Mapping[str, Query]):
    """Compiled queries by name, evaluated in one pass; made by `compile_all`.  Immutable, and can be pickled.

    Parameters
    ----------
    queries
        Queries with the same `type_column`, `time_column` and `time_unit`; if one of them names several streams in
        FROM, all name the same.

    Raises
    ------
    OptionError
        When there is none, or they cannot read the same events.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> rules = cer_gpu.compile_all({"ab": "SELECT * FROM S WHERE A ; B", "aa": "SELECT * FROM S WHERE A ; A"})
    >>> list(rules), rules["aa"]
    (['ab', 'aa'], cer_gpu.compile('SELECT * FROM S WHERE A ; A'))
    >>> with rules.stream(pa.table({"type": ["A", "A", "B"]})) as reader:
    ...     print(reader.read_all().select(["query", "positions"]).to_pylist())
    [{'query': 'ab', 'positions': [1, 2]}, {'query': 'ab', 'positions': [0, 2]}, {'query': 'aa', 'positions': [0, 1]}]
    """

    def __init__(self, queries: Mapping[str, Query]) -> None:
        self._queries = dict(queries)
        if not queries:
            raise OptionError("expected at least one query, got none")
        for name in self._queries:
            self._check(name)

    def __getitem__(self, name: str) -> Query:
        """Return a query by its name."""
        return self._queries[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._queries)

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self._queries)

    def __repr__(self) -> str:
        """Show how many queries there are."""
        return f"<cer_gpu.QuerySet of {len(self)} queries>"

    def _repr_html_(self) -> str:
        """Show each query under its name in a notebook."""
        return "\n".join(
            f"<details><summary>{escape(name)}</summary>{query._repr_html_()}</details>"
            for name, query in self._queries.items()
        )

    @property
    def _first(self) -> Query:
        return next(iter(self._queries.values()))

    def _check(self, name: str) -> None:
        check_same_events(self._queries[name], name, self._first, next(iter(self._queries)))

    @taking(OF_SETS)
    def evaluate(self, events: Any, options: EvaluationOptions) -> dict[str, pa.Table]:
        """Find all complex events of all queries.

        Parameters and errors are those of `Query.evaluate`; the queries are evaluated on one thread.

        Returns
        -------
        dict from str to pyarrow.Table
            For each query, the table that `Query.evaluate` returns on one thread.
        """
        evaluator = self._evaluator(options)
        source = self._source(events, sort=options.sort)
        schemas = self._schemas(source.schema, options.output)
        found: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._queries}
        for name, rows in self._matches(source, evaluator):
            found[name].append(rows)
        return {name: pa.Table.from_batches(found[name], schemas[name]) for name in self._queries}

    @taking(OF_SETS)
    def stream(self, events: Any, options: EvaluationOptions) -> pa.RecordBatchReader:
        """Find all complex events of all queries batch by batch, in bounded memory.

        Parameters and errors are those of `evaluate`.

        Returns
        -------
        pyarrow.RecordBatchReader
            The columns of the results of all queries, NULL in rows of queries that have no such column, and the column
            ``query`` (string) before them.  Each batch has rows of one query.

        Raises
        ------
        OptionError
            When a column has types in two queries that are not the same.
        """
        evaluator = self._evaluator(options)
        source = self._source(events, sort=options.sort)
        schema = self.output_schema(source.schema, options.output)
        return pa.RecordBatchReader.from_batches(schema, self._named(self._matches(source, evaluator), schema))

    def output_schema(self, schema: pa.Schema, output: str | None = None) -> pa.Schema:
        """Return the schema of `stream` over events of a schema."""
        fields = {QUERY_COLUMN: pa.field(QUERY_COLUMN, pa.string())}
        first: dict[str, str] = {}
        for name, columns in self._schemas(schema, output).items():
            for field in columns:
                known = fields.setdefault(field.name, field)
                first.setdefault(field.name, name)
                if known.type != field.type:
                    raise OptionError(
                        f"column {field.name!r} of the results is {known.type} in query {first.get(field.name)!r} and "
                        f"{field.type} in query {name!r}\n"
                        "hint: name it differently with AS, or take a table for each query: QuerySet.evaluate"
                    )
        return pa.schema(list(fields.values()))

    def _schemas(self, schema: pa.Schema, output: str | None) -> dict[str, pa.Schema]:
        schemas = {}
        for name, query in self._queries.items():
            with _in_query(name):
                schemas[name] = query.output_schema(schema, output)
        return schemas

    @staticmethod
    def _named(found: FoundBatches, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield batches of the results of all queries with the column that names the query."""
        for name, rows in found:
            columns = {field.name: rows.column(i) for i, field in enumerate(rows.schema)}
            columns[QUERY_COLUMN] = pa.repeat(pa.scalar(name, pa.string()), rows.num_rows)
            arrays = [
                columns[field.name] if field.name in columns else pa.nulls(rows.num_rows, field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _source(self, events: Any, *, sort: bool = False) -> Source:
        """Open anything that `evaluate` takes; with `sort`, its events are read in the order of time."""
        return self._first._source(events, sort=sort)

    def columns(self, schema: pa.Schema, output: str | None = None) -> list[str]:
        """Return the names of the columns that the queries read from events of a schema, as `Query.columns`."""
        return narrowest(schema, {name for query in self._queries.values() for name in query.columns(schema, output)})

    def _matches(self, source: Source, evaluator: QuerySetEvaluator) -> FoundBatches:
        """Yield the complex events of a source with the names of their queries, in pieces of bounded size."""
        names = self.columns(source.schema, evaluator.output)
        evaluator.expect(source.schema)
        with source.locating(lambda: evaluator.n_events):
            for batch in source.batches(names):
                yield from evaluator.push_batches(batch)
                if evaluator.is_full:
                    break
            yield from evaluator.finish_batches()

    @taking(tuple(name for name in OF_SETS if name != "sort"))
    def evaluator(self, options: EvaluationOptions) -> QuerySetEvaluator:
        """Return an evaluator of all queries for a stream that arrives batch by batch; options as of `evaluate`."""
        return self._evaluator(options)

    def _evaluator(self, options: EvaluationOptions) -> QuerySetEvaluator:
        return QuerySetEvaluator(self._queries, options)

    def explain(self, events: Any = None) -> dict[str, Explanation]:
        """Explain each query (`Query.explain`)."""
        return {name: query.explain(events) for name, query in self._queries.items()}


def check_same_events(query: Query, name: str, other: Query, other_name: str) -> None:
    """Refuse a query that cannot read the events that another one reads.

    Raises
    ------
    OptionError
    """
    for option in ("type_column", "time_column", "time_unit"):
        a, b = getattr(query, option), getattr(other, option)
        if a != b:
            raise OptionError(
                f"queries of a set have one {option}; it is {b!r} in query {other_name!r} and {a!r} in query {name!r}"
            )
    plans = query._bindings.plan, other._bindings.plan
    if plans[0].streams != plans[1].streams and any(plan.several_streams for plan in plans):
        named = [", ".join(plan.streams) or "one stream" for plan in plans]
        raise OptionError(
            f"queries of a set read the same streams; query {other_name!r} reads {named[1]}, and query {name!r} reads "
            f"{named[0]}"
        )


class QuerySetEvaluator:
    """Evaluator of many queries, batch by batch: `push` events, `finish` at the end; made by `QuerySet.evaluator`.

    Between batches queries may be added and removed.  For each, the concatenated results are those of
    `cer_gpu.Evaluator`, and do not depend on the cut of the stream into batches.

    Parameters
    ----------
    queries, options

    Attributes
    ----------
    output : str or None
        Output of all queries; None: the default of each.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> evaluator = cer_gpu.compile_all({"ab": "SELECT * FROM S WHERE A ; B"}).evaluator()
    >>> evaluator.push(pa.record_batch({"type": ["A", "B"]}))["ab"]["positions"].to_pylist()
    [[0, 1]]
    >>> evaluator.add("bb", "SELECT * FROM S WHERE B ; B")
    >>> found = evaluator.push(pa.record_batch({"type": ["B", "B"]}))
    >>> {name: rows.num_rows for name, rows in found.items()}
    {'ab': 2, 'bb': 1}
    """

    def __init__(
        self,
        queries: Mapping[str, Query],
        options: EvaluationOptions,
    ) -> None:
        self._first_name, self._first = next(iter(queries.items()))
        options.check_time(self._first.time_column)
        self.output = options.output
        self._options = replace(options, lateness=None, sort=False)
        self._lateness = options.lateness
        self._intake = Intake(self._first.time_column, self._first.time_unit, options.lateness, options.late)
        self._evaluators: dict[str, Evaluator] = {}
        self._turns: dict[str, Turn] = {}
        several = STREAM_COLUMN if self._first._bindings.plan.several_streams else None
        self._sharing = Sharing(self._first.type_column, several, options.device)
        self._blocks = Blocks((), self._options.position_column, self._options.begin)
        self._schema: pa.Schema | None = None
        self._names: dict[str, None] = {}  # columns that are read, in the order in which queries came
        for name, query in queries.items():
            self.add(name, query)

    # ---- queries --------------------------------------------------------------------------------------------

    def add(self, name: str, query: Query | str) -> None:
        """Add a query, which reads the events from the next one on; positions count from the begin of the stream.

        Parameters
        ----------
        name
            A name that no other query has.
        query
            A query, or its text, which is compiled with the options of the others.

        Raises
        ------
        OptionError
            When the name is taken, or the query cannot read the same events.
        QueryError
            As `cer_gpu.compile`, and when the query does not fit the events.
        """
        if name in self._evaluators:
            raise OptionError(f"there is a query {name!r} already\nhint: remove({name!r}) first")
        first = self._first
        if isinstance(query, str):
            with _in_query(name):
                query = compile_query(
                    query, type_column=first.type_column, time_column=first.time_column, time_unit=first.time_unit
                )
        check_same_events(query, name, first, self._first_name)
        options = replace(self._options, output=query.physical_plan(self.output).output.name, begin=self.n_events)
        evaluator = Evaluator(query._bindings, options, shared=self._sharing)
        self._turns[name] = self._sharing.turn()
        if self._schema is not None:
            self._expect(name, evaluator, self._schema)
        self._evaluators[name] = evaluator

    def remove(self, name: str) -> pa.RecordBatch:
        """Remove a query, and return the complex events that it would find if the stream ended here.

        Raises
        ------
        OptionError
            When there is no such query.
        """
        if name not in self._evaluators:
            hint = did_you_mean(name, self._evaluators, "queries")
            raise OptionError(f"there is no query {name!r}" + (f"\nhint: {hint}" if hint else ""))
        del self._turns[name]
        return self._evaluators.pop(name).finish()

    @property
    def n_pushed(self) -> int:
        """Number of events pushed so far."""
        return self._intake.n_pushed

    @property
    def n_events(self) -> int:
        """Number of events evaluated so far; with `lateness`, some pushed events still wait."""
        return self._blocks.n_events

    @property
    def n_matches(self) -> dict[str, int]:
        """Number of complex events found so far, by query."""
        return {name: evaluator.n_matches for name, evaluator in self._evaluators.items()}

    @property
    def n_late(self) -> int:
        """Number of events so far that came later than `lateness` allows."""
        return self._intake.n_late

    @property
    def notes(self) -> dict[str, list[str]]:
        """Remarks on the events read so far (`Evaluator.notes`), of the queries that have some."""
        return {name: evaluator.notes for name, evaluator in self._evaluators.items() if evaluator.notes}

    @property
    def is_full(self) -> bool:
        """True once all queries have reached the limit."""
        return bool(self._evaluators) and all(evaluator.is_full for evaluator in self._evaluators.values())

    # ---- events ---------------------------------------------------------------------------------------------

    def expect(self, schema: pa.Schema) -> None:
        """Bind all queries to a schema; the first one fixes the types of the results.

        Raises
        ------
        QueryTypeError
            When a query does not fit the schema; the message begins with its name.
        """
        if self._lateness is not None and ROW_COLUMN not in schema.names:
            schema = schema.append(pa.field(ROW_COLUMN, pa.int64()))
        self._schema = schema
        self._names.clear()
        for name, evaluator in self._evaluators.items():
            self._expect(name, evaluator, schema)
        self._intake.expect(schema)

    def _expect(self, name: str, evaluator: Evaluator, schema: pa.Schema) -> None:
        with _in_query(name):
            binding = evaluator._bind(schema)
            # made outside of its turn, as their memory is not that of one query
            self._sharing.guards(schema)
            self._sharing.add_partitions(binding.keys)
            with self._turns[name]:
                evaluator.expect(schema)
        self._blocks.watch(evaluator.pipeline.binding.clocks)
        read = evaluator.pipeline.binding.columns_for(evaluator.physical.output)
        self._names |= dict.fromkeys(columns_with(schema, read))

    def push(self, batch: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
        """Read the events of a batch and return the complex events that end in it, of the queries that have some.

        Raises
        ------
        QueryTypeError, TimeOrderError, EventsError
            As `Evaluator.push`.
        """
        return _gathered(self.push_batches(batch))

    def push_batches(self, batch: pa.RecordBatch) -> FoundBatches:
        """As `push`, but yield the complex events in pieces of bounded size, each with the name of its query."""
        self._intake.check_open()
        if not isinstance(batch, pa.RecordBatch):
            raise EventsError(f"expected a pyarrow.RecordBatch, got {type(batch).__name__}")
        refuse_resident(batch, batch.schema.names, "a set of queries")
        self._intake.begin()
        return self._in_order(batch)

    def finish(self) -> dict[str, pa.RecordBatch]:
        """End the stream and return the complex events of the events that still wait, of the queries that have some."""
        return _gathered(self.finish_batches())

    def finish_batches(self) -> FoundBatches:
        """As `finish`, but yield the complex events in pieces of bounded size, each with the name of its query."""
        if not self._intake.refusal:
            with self._reading():
                for batch in self._intake.finish():
                    yield from self._evaluate(batch)
                for name, evaluator in self._evaluators.items():
                    for rows in evaluator.finish_batches():
                        yield name, rows
        self._intake.close()
        self._sharing.release()

    def _reading(self) -> AbstractContextManager[None]:
        return self._intake.reading(lambda: sum(self.n_matches.values()))

    def _in_order(self, batch: pa.RecordBatch) -> FoundBatches:
        with self._reading():
            if self._schema is None:
                self.expect(batch.schema)
            for ready in self._intake.push(batch):
                yield from self._evaluate(ready)

    def _evaluate(self, events: pa.RecordBatch) -> FoundBatches:
        assert self._schema is not None
        if not self._schema.equals(events.schema):
            self.expect(events.schema)
        blocks, events = self._blocks, events.select(list(self._names)) if self._names else events
        for columns in self._sharing.ahead(blocks.cut(events, SET_ROWS)):
            batch = blocks.batch(columns.batch)
            block = blocks.read(columns)
            self._sharing.next_block(evaluator.pipeline for evaluator in self._evaluators.values())
            for name, evaluator in self._evaluators.items():
                for rows in self._read(evaluator, block, batch):
                    yield name, rows

    def _read(self, evaluator: Evaluator, block: EventBlock, batch: Batch) -> Iterator[pa.RecordBatch]:
        """Evaluate one query over a block that is a batch, so that nothing of it waits for the query's next turn."""
        if evaluator.is_full:
            return
        pipeline = evaluator.pipeline
        columns = block.columns.fork() if pipeline.binding.derived else block.columns
        for ready in pipeline.ahead([columns]):
            yield from evaluator._read(replace(block, columns=ready), self._blocks, batch)
        if not evaluator.is_full:
            yield from evaluator._end_batch(batch)


def _gathered(pieces: FoundBatches) -> dict[str, pa.RecordBatch]:
    found: dict[str, list[pa.RecordBatch]] = {}
    for name, rows in pieces:
        if rows.num_rows:
            found.setdefault(name, []).append(rows)
    return {name: each[0] if len(each) == 1 else pa.concat_batches(each) for name, each in found.items()}
