"""Many queries in one pass: `compile_all` compiles them, and a `QuerySet` evaluates them over the same events.

The events are read, decoded, put in order and cut into blocks once; guards that queries have in common are evaluated
once, over the events of their type (`cer_gpu.predicates.shared_guards`).  Behind that, each query has a pipeline of its
own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from cer_gpu.cache import no_collection
from cer_gpu.ceql.query_file import read_query_file
from cer_gpu.columnar.batches import empty_batch
from cer_gpu.columnar.columns import plain_array, plain_type
from cer_gpu.columnar.fields import narrowest
from cer_gpu.compilation import (
    TYPE_COLUMN,
    CompiledQuery,
    compile_member,
    options_of_set,
)
from cer_gpu.engine.evaluation import Evaluation, FoundBatches
from cer_gpu.engine.member import QueryMember, SetMember
from cer_gpu.engine.options import OF_COUNTS, OF_EVENTS, EvaluationOptions, checking_names, taking
from cer_gpu.engine.sharing import BoundBefore, Sharing
from cer_gpu.errors import InQuery, OptionError, did_you_mean
from cer_gpu.evaluated import Evaluated, number_in
from cer_gpu.explain.explanation import Explanation
from cer_gpu.io.source import Source
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.planning.needs import Needs
from cer_gpu.preparing.lookup import SetLookup
from cer_gpu.preparing.over_schema import OverSchema
from cer_gpu.preparing.sets import FROM_QUERIES, compiled_together
from cer_gpu.printable import html_text

QUERY_COLUMN = "query"
"""Column of `QuerySet.stream` that names the query of each row."""
_MOST_OUTPUTS = 2
"""Choices of outputs for which what is known of the queries stays in memory."""


@checking_names
def compile_all(
    queries: Mapping[str, str],
    *,
    type_column: str | None = TYPE_COLUMN,
    time_column: str | None = None,
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
    relations: Mapping[str, Any] | None = None,
    language: str | None = None,
    missing_fields: str | None = None,
    selection: str = "recent",
) -> QuerySet:
    """Compile many queries, to be evaluated in one pass over the events.

    Parameters
    ----------
    queries
        Texts, or `pathlib.Path` of files with them, by the names of the queries; at least one.  Statements with
        MATCH_RECOGNIZE are among them, for which all rows are held until the end of the stream.
    type_column, time_column, time_unit, schema, relations, language, missing_fields, selection
        As those of `cer_gpu.compile`, the same for all queries; the last for those in EQL.  Columns that are not
        named are those of EQL if one query is in EQL.

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
    texts = {name: read_query_file(q) if isinstance(q, os.PathLike) else q for name, q in queries.items()}
    options: dict[str, Any] = {
        "type_column": type_column,
        "time_column": time_column,
        "time_unit": time_unit,
        "language": language,
        "missing_fields": missing_fields,
        "selection": selection,
    }
    options = options_of_set(texts.values(), options) | {"schema": schema, "relations": relations}
    compiled = compiled_together({name: (text, None) for name, text in texts.items()}, **options)
    for name, text in texts.items():
        if name not in compiled:
            with InQuery(name):
                compile_member(text, **options)
    return QuerySet(compiled)


class QuerySet(Mapping[str, CompiledQuery], Evaluated):
    """Compiled queries by name, evaluated in one pass; made by `compile_all`.  Immutable, and can be pickled.

    Parameters
    ----------
    queries
        Queries with the same `type_column`, `time_column` and `time_unit`, unless they read whole tables; if one of
        them names several streams in FROM, all name the same.

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

    def __init__(self, queries: Mapping[str, CompiledQuery]) -> None:
        self._queries = dict(queries)
        self._bound = BoundBefore()
        self._lookups: list[SetLookup] = []  # of the last outputs
        if not queries:
            raise OptionError("expected at least one query, got none")
        for name, query in self._queries.items():
            check_same_events(query, name, self._first, self._first_name)

    @property
    def _first_name(self) -> str:
        """Name of the first query that tells the columns of types and times, if there is one."""
        timed = (name for name, query in self._queries.items() if not query.reads_whole_table)
        return next(timed, next(iter(self._queries)))

    @property
    def _first(self) -> CompiledQuery:
        return self._queries[self._first_name]

    @property
    def type_column(self) -> str | None:
        """The column of event types."""
        return self._first.type_column

    @property
    def time_column(self) -> str | None:
        """The column of times."""
        return self._first.time_column

    def __getitem__(self, name: str) -> CompiledQuery:
        """Return a query by its name."""
        return self._queries[name].compiled

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
            f"<details><summary>{html_text(name)}</summary>{query._repr_html_()}</details>"
            for name, query in self.items()
        )

    @taking(OF_EVENTS)
    def evaluate(self, events: Any, options: EvaluationOptions) -> dict[str, pa.Table]:
        """Find all complex events of all queries.

        Parameters and errors are those of `Query.evaluate`.

        Returns
        -------
        dict from str to pyarrow.Table
            For each query, the table that `Query.evaluate` returns.
        """
        evaluator, source, schemas = self._opened(events, options)
        found: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._queries}
        with no_collection() if len(self) >= FROM_QUERIES else nullcontext():  # it would look through all queries
            for name, rows in self._found(source, evaluator, options.threads):
                found[name].append(rows)
        return {name: pa.Table.from_batches(found[name], schemas[name]) for name in self._queries}

    @taking(OF_EVENTS)
    def stream(self, events: Any, options: EvaluationOptions) -> pa.RecordBatchReader:
        """Find all complex events of all queries batch by batch, in bounded memory where the queries allow it.

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
        evaluator, source, schemas = self._opened(events, options)
        schema = self._joined(schemas)
        return pa.RecordBatchReader.from_batches(schema, named(self._found(source, evaluator, options.threads), schema))

    @taking(OF_COUNTS)
    def count(self, events: Any, options: EvaluationOptions) -> dict[str, int]:
        """Return the number of complex events of each query, as `Query.count`."""
        outputs = {name: query._counted_output for name, query in self._queries.items()}
        options.check_time(self.time_column)
        evaluator = self._closed(options, outputs)
        source = self._source(events, sort=options.sort, needs=partial(self._needs, outputs=outputs))
        counts = dict.fromkeys(self._queries, 0)
        for name, rows in self._found(source, evaluator, options.threads):
            counts[name] += number_in(rows, outputs[name])
        return counts

    def _opened(
        self, events: Any, options: EvaluationOptions
    ) -> tuple[QuerySetEvaluator, Source, Mapping[str, pa.Schema]]:
        options.check_time(self.time_column)
        source = self._source(events, sort=options.sort, needs=partial(self._needs, output=options.output))
        schemas = self._schemas(source.schema, options)
        return self._closed(options), source, schemas

    def _lookup(self, outputs: Mapping[str, str | None], output: str | None = None) -> SetLookup:
        """Return the queries by schemas, each for an output: its own, else one for all, else its usual one.

        OptionError: a query has no such output.
        """
        named = {name: query.output_for(outputs.get(name, output)) for name, query in self._queries.items()}
        for lookup in self._lookups:
            if lookup.outputs == named:
                return lookup
        self._lookups = [SetLookup(self._queries, named), *self._lookups[: _MOST_OUTPUTS - 1]]
        return self._lookups[0]

    def _prepared(
        self, schema: pa.Schema, outputs: Mapping[str, str | None] | None = None, output: str | None = None
    ) -> OverSchema:
        """Return what is known of the queries over a schema, for an output of each.

        QueryError: one does not fit; the message begins with its name.
        """
        over = self._over(schema, outputs or {}, output)
        for name in over.wrong:
            with InQuery(name):
                over.raise_error(name)
        return over

    def over(self, schema: pa.Schema) -> QuerySet:
        """Return the queries with the names of columns that they have over events of a schema.

        QueryError: one does not fit; the message begins with its name.
        """
        fitted = {}
        for name, query in self._queries.items():
            with InQuery(name):
                fitted[name] = query.over(schema)
        return QuerySet(fitted)

    def _over(self, schema: pa.Schema, outputs: Mapping[str, str | None], output: str | None = None) -> OverSchema:
        """Return what is known of the queries over a schema, without those that do not fit it."""
        return self._lookup(outputs, output).over(schema)

    def output_schema(self, schema: pa.Schema, output: str | None = None) -> pa.Schema:
        """Return the schema of `stream` over events of a schema."""
        return self._joined(self._schemas(schema, EvaluationOptions(output=output)))

    @staticmethod
    def _joined(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """Return the schema of the results of all queries in one table."""
        fields = {QUERY_COLUMN: pa.field(QUERY_COLUMN, pa.string())}
        first: dict[str, str] = {}
        for name, columns in schemas.items():
            for field in columns:
                known = fields.setdefault(field.name, field)
                first.setdefault(field.name, name)
                if known.type == field.type:
                    continue
                if plain_type(known.type) != plain_type(field.type):  # else one of them has codes of its texts
                    raise OptionError(
                        f"column {field.name!r} of the results is {known.type} in query {first.get(field.name)!r} and "
                        f"{field.type} in query {name!r}\n"
                        "hint: name it differently with AS, or take a table for each query: QuerySet.evaluate"
                    )
                fields[field.name] = known.with_type(plain_type(known.type))
        return pa.schema(list(fields.values()))

    def _schemas(self, schema: pa.Schema, options: EvaluationOptions) -> Mapping[str, pa.Schema]:
        """Return the schema of the results of each query."""
        if options.aggregate is None:
            return {
                name: query.result_schema
                for name, query in self._prepared(schema, output=options.output).queries.items()
            }
        schemas = {}
        for name, query in self._queries.items():
            with InQuery(name):
                schemas[name] = query._asked(options).output_schema(schema, options.output)
        return schemas

    def _source(
        self,
        events: Any,
        *,
        sort: bool = False,
        resident: bool = False,
        needs: Callable[[pa.Schema], Needs | None] | None = None,
    ) -> Source:
        return self._first._source(events, sort=sort, needs=needs)

    def _needs(
        self, schema: pa.Schema, output: str | None = None, outputs: Mapping[str, str | None] | None = None
    ) -> Needs | None:
        return self._over(schema, outputs or {}, output).needs

    def columns(self, schema: pa.Schema, output: str | None = None) -> list[str]:
        """Return the names of the columns that the queries read from events of a schema, as `Query.columns`."""
        return narrowest(schema, set(self._prepared(schema, output=output).attributes))

    def _matches(self, source: Source, evaluator: QuerySetEvaluator, threads: int | None = 1) -> FoundBatches:
        return self._found(source, evaluator, threads)

    def _evaluation(self, options: EvaluationOptions) -> QuerySetEvaluator:
        return self._made(options, {}, shares=True)

    def _closed(self, options: EvaluationOptions, outputs: Mapping[str, str | None] | None = None) -> QuerySetEvaluator:
        """Return an evaluator to which no query is added: one alone shares nothing."""
        return self._made(options, outputs or {}, shares=len(self) > 1)

    def _made(
        self, options: EvaluationOptions, outputs: Mapping[str, str | None], *, shares: bool
    ) -> QuerySetEvaluator:
        """Return an evaluator with an output of each query."""
        several = STREAM_COLUMN if self._first.several_streams else None
        sharing = Sharing(several, options.device, self._bound) if shares else None
        known = {} if sharing is None or options.aggregate else self._lookup(outputs, options.output).known
        asked = {output: replace(options, output=output) for output in {*outputs.values(), options.output}}
        members: dict[str, SetMember] = {}
        for name, query in self._queries.items():
            own = asked[outputs.get(name, options.output)]
            if name in known:
                members[name] = QueryMember(known[name], own, query.output_for(own.output), sharing)
            else:
                members[name] = query._member(own, sharing)
        return QuerySetEvaluator(members, options, sharing, self)

    def explain(self, events: Any = None) -> dict[str, Explanation]:
        """Explain each query (`Query.explain`)."""
        return {name: query.explain(events) for name, query in self.items()}


def check_same_events(query: CompiledQuery, name: str, other: CompiledQuery, other_name: str) -> None:
    """Refuse a query that cannot read the events that another one reads.

    Raises
    ------
    OptionError
    """
    for option in () if query.reads_whole_table else ("type_column", "time_column", "time_unit"):
        a, b = getattr(query, option), getattr(other, option)
        if a != b:
            raise OptionError(
                f"queries of a set have one {option}; it is {b!r} in query {other_name!r} and {a!r} in query {name!r}"
            )
    if query.streams != other.streams and (query.several_streams or other.several_streams):
        named = [", ".join(each.streams) or "one stream" for each in (query, other)]
        raise OptionError(
            f"queries of a set read the same streams; query {other_name!r} reads {named[1]}, and query {name!r} reads "
            f"{named[0]}"
        )


def named(found: FoundBatches, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield results of all queries as rows of one table, with the column that names the query."""
    for name, rows in found:
        columns = {field.name: rows.column(i) for i, field in enumerate(rows.schema)}
        columns[QUERY_COLUMN] = pa.repeat(pa.scalar(name, pa.string()), rows.num_rows)
        arrays = []
        for field in schema:
            column = columns[field.name] if field.name in columns else pa.nulls(rows.num_rows, field.type)
            arrays.append(column if column.type == field.type else plain_array(column))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class QuerySetEvaluator(Evaluation[tuple[str, pa.RecordBatch], dict[str, pa.RecordBatch]]):
    """Evaluator of many queries, batch by batch: `push` events, `finish` at the end; made by `QuerySet.evaluator`.

    Between batches queries may be added and removed.  For each, the concatenated results are those of
    `cer_gpu.Evaluator`, and do not depend on the cut of the stream into batches.

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
        self, members: Mapping[str, SetMember], options: EvaluationOptions, sharing: Sharing | None, queries: QuerySet
    ) -> None:
        super().__init__(members, options, sharing)
        self.output: str | None = options.output
        self._first, self._first_name = queries._first, queries._first_name

    def _gathered(self, pieces: Iterable[tuple[str, pa.RecordBatch]]) -> dict[str, pa.RecordBatch]:
        found: dict[str, list[pa.RecordBatch]] = {}
        for name, rows in pieces:
            if rows.num_rows:
                found.setdefault(name, []).append(rows)
        return {name: each[0] if len(each) == 1 else pa.concat_batches(each) for name, each in found.items()}

    @property
    def n_matches(self) -> dict[str, int]:
        """Number of complex events found so far, by query."""
        return self._numbers

    @property
    def notes(self) -> dict[str, list[str]]:
        """Remarks on the events read so far (`Evaluator.notes`), of the queries that have some."""
        read = {name: member for name, member in self._members.items() if self.n_events > member.options.begin}
        return {name: member.notes for name, member in read.items() if member.notes}

    def add(self, name: str, query: CompiledQuery | str) -> None:
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
        if name in self._members:
            raise OptionError(f"there is a query {name!r} already\nhint: remove({name!r}) first")
        first = self._first
        if isinstance(query, str):
            with InQuery(name):
                query = compile_member(
                    query, type_column=first.type_column, time_column=first.time_column, time_unit=first.time_unit
                )
        check_same_events(query, name, first, self._first_name)
        member = query._member(replace(self._options, begin=self.n_events), self._sharing)
        if self._schema is not None:
            self._expect(name, member, self._schema)
            self._names = None
        self._members[name] = member

    def remove(self, name: str) -> pa.RecordBatch:
        """Remove a query, and return the complex events that it would find if the stream ended here.

        Raises
        ------
        OptionError
            When there is no such query.
        """
        if name not in self._members:
            hint = did_you_mean(name, self._members, "queries")
            raise OptionError(f"there is no query {name!r}" + (f"\nhint: {hint}" if hint else ""))
        member = self._members.pop(name)
        self._names = None
        if self._schema is not None:
            self._blocks.keep({clock for each in self._members.values() for clock in each.clocks})
        found = [] if member.is_full else list(member.finish())
        member.release()
        return pa.concat_batches([empty_batch(member.result_schema), *found])
