"""Many queries in one pass: `compile_all` compiles them, and a `QuerySet` evaluates them over the same events.

The events are read, decoded, sorted and cut into blocks once; guards that queries have in common are evaluated
once, over the events of their type (`cer_gpu.predicates.shared_guards`).  Behind that, each query has a pipeline of its
own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cer_gpu.cache import gc_paused
from cer_gpu.ceql.query_file import read_query_file
from cer_gpu.columnar.fields import narrowest
from cer_gpu.compilation import (
    TYPE_COLUMN,
    CompiledQuery,
    check_same_events,
    compile_for_set,
    options_of_set,
)
from cer_gpu.engine.evaluation_options import (
    OF_COUNTS,
    OF_EVENTS,
    RAISE,
    SKIP,
    EvaluationOptions,
    accepts_options,
    check_errors,
    checking_names,
    options_by_name,
)
from cer_gpu.engine.evaluator import BaseEvaluator, ResultFormatter
from cer_gpu.engine.execution import StreamingExecution
from cer_gpu.engine.execution_group import NamedBatches
from cer_gpu.engine.query_execution import QueryExecution
from cer_gpu.engine.shared_state import GuardCache, SharedState
from cer_gpu.errors import CerError, OptionError, QueryError, QueryErrorContext, did_you_mean
from cer_gpu.evaluable import Evaluable, number_in
from cer_gpu.explain.explanation import Explanation
from cer_gpu.forecast.sets import ForecastsOfSet
from cer_gpu.in_one_table import joined_schema, named
from cer_gpu.io.source import Source
from cer_gpu.io.sources import reading_again
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.file_pruning import FilePruning
from cer_gpu.preparing.facts import FROM_QUERIES
from cer_gpu.preparing.over_schema import OverSchema
from cer_gpu.preparing.sets import SetLookup, compiled_together
from cer_gpu.printable import html_text

_MAX_OUTPUTS = 2
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
    errors: str = RAISE,
) -> QuerySet:
    """Compile many queries, to be evaluated in one pass over the events.

    Parameters
    ----------
    queries
        Texts, or `pathlib.Path` of files with them, by the names of the queries; at least one.  Statements with
        MATCH_RECOGNIZE are among them, for which all rows are buffered until the end of the stream.
    type_column, time_column, time_unit, schema, relations, language, missing_fields, selection
        As in `cer_gpu.compile`, the same for all queries; the last for queries in EQL.  Columns that are not
        named default to EQL's if one query is in EQL.
    errors
        Treatment of queries that are wrong, or do not match the schema of the events: "raise", or "skip": they are
        left out, and `QuerySet.skipped` names them with the reason.

    Returns
    -------
    QuerySet

    Raises
    ------
    QuerySyntaxError, QueryError, QueryTypeError, OptionError
        As `compile`, for the first query that is wrong; the message begins with its name.  With errors="skip", if all
        are.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> events = pa.table({"type": ["A", "B", "A", "C"]})
    >>> rules = {"ab": "SELECT * FROM S WHERE A ; B", "ac": "SELECT * FROM S WHERE A ; C"}
    >>> found = cer_gpu.compile_all(rules).evaluate(events)
    >>> {name: table["end"].to_pylist() for name, table in found.items()}
    {'ab': [1], 'ac': [3, 3]}
    >>> rules["price"] = "SELECT * FROM S WHERE A AS a FILTER a[price > 1]"
    >>> rules = cer_gpu.compile_all(rules, errors="skip")
    >>> {name: table["end"].to_pylist() for name, table in rules.evaluate(events).items()}
    {'ab': [1], 'ac': [3, 3]}
    >>> {name: error.message for name, error in rules.skipped.items()}
    {'price': "the events have no column 'price'"}
    """
    check_errors(errors)
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
    skipped: dict[str, CerError] = {}
    for name, text in texts.items():
        if name not in compiled:
            try:
                compile_for_set(text, **options)
            except QueryError as error:
                skipped[name] = error
                if errors == RAISE:
                    break
    if skipped and (errors == RAISE or not compiled):
        _raise_first(skipped)
    return QuerySet(compiled, errors=errors, skipped=skipped)


def _raise_first(wrong: Mapping[str, CerError]) -> None:
    """Raise the first error, with the name of its query."""
    for name, error in wrong.items():
        with QueryErrorContext(name):
            raise error


class QuerySet(ForecastsOfSet, Mapping[str, CompiledQuery], Evaluable):
    """Compiled queries by name, evaluated in one pass; the result of `compile_all`.  Immutable, and can be pickled.

    Parameters
    ----------
    queries
        Queries with the same `type_column`, `time_column` and `time_unit`, unless they read whole tables; if one of
        them names several streams in FROM, all name the same.
    errors
        "raise", or "skip" to leave out queries that do not match the events, unless an evaluation says otherwise.
    skipped
        Queries that were left out before, with the reasons.

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

    def __init__(
        self,
        queries: Mapping[str, CompiledQuery],
        *,
        errors: str = RAISE,
        skipped: Mapping[str, CerError] | None = None,
    ) -> None:
        self._queries = dict(queries)
        self._errors = errors
        self._skipped = dict(skipped or {})
        self._misfits: Mapping[str, CerError] = {}  # queries that do not match the events evaluated last
        self._bound = GuardCache()
        self._lookups: list[SetLookup] = []  # of the last outputs
        self._parted: tuple[pa.Schema, QuerySet, dict[str, CerError]] | None = None  # without misfits of a schema
        if not queries:
            raise OptionError("expected at least one query, got none")
        for name, query in self._queries.items():
            check_same_events(query, name, self._first_query, self._first_name)

    @property
    def skipped(self) -> dict[str, CerError]:
        """The queries that were left out, with the reasons: wrong ones, and those that do not match the last schema."""
        return {**self._skipped, **self._misfits}

    @property
    def _first_name(self) -> str:
        """Name of the first query that determines the columns of types and times, if there is one."""
        timed = (name for name, query in self._queries.items() if not query.reads_whole_table)
        return next(timed, next(iter(self._queries)))

    @property
    def _first_query(self) -> CompiledQuery:
        return self._queries[self._first_name]

    @property
    def type_column(self) -> str | None:
        """The column of event types."""
        return self._first_query.type_column

    @property
    def time_column(self) -> str | None:
        """The column of times."""
        return self._first_query.time_column

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without what is known over schemas of events, which is recomputed."""
        return vars(self) | {"_lookups": [], "_parted": None}

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

    @accepts_options(OF_EVENTS)
    def evaluate(self, events: Any, options: EvaluationOptions) -> dict[str, pa.Table]:
        """Find all matches of all queries.

        Parameters and errors as in `Query.evaluate`.

        Returns
        -------
        dict from str to pyarrow.Table
            For each query, the table that `Query.evaluate` returns.
        """
        return reading_again(lambda source: self._tables(source, options), events)

    def _tables(self, events: Any, options: EvaluationOptions) -> dict[str, pa.Table]:
        together, evaluator, source = self._open(events, options)
        schemas = together._schemas(source.schema, options)
        batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in schemas}
        with gc_paused() if len(self) >= FROM_QUERIES else nullcontext():  # it would look through all queries
            for name, rows in self._find_matches(source, evaluator, options.threads):
                batches[name].append(rows)
        return {name: pa.Table.from_batches(batches[name], schema) for name, schema in schemas.items()}

    @accepts_options(OF_EVENTS)
    def stream(self, events: Any, options: EvaluationOptions) -> pa.RecordBatchReader:
        """Find all matches of all queries batch by batch, in bounded memory where the queries allow it.

        Parameters and errors as in `evaluate`.

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
        together, evaluator, source = self._open(events, options)
        schema = joined_schema(together._schemas(source.schema, options))
        return pa.RecordBatchReader.from_batches(
            schema, named(self._find_matches(source, evaluator, options.threads), schema)
        )

    @accepts_options(OF_COUNTS)
    def count(self, events: Any, options: EvaluationOptions) -> dict[str, int]:
        """Return the number of matches of each query, as `Query.count`."""
        return reading_again(lambda source: self._count_all(source, options), events)

    def _count_all(self, events: Any, options: EvaluationOptions) -> dict[str, int]:
        outputs = {name: query._counted_output for name, query in self._queries.items()}
        _, evaluator, source = self._open(events, options, outputs)
        counts = dict.fromkeys(evaluator._group.executions, 0)
        for name, rows in self._find_matches(source, evaluator, options.threads):
            counts[name] += number_in(rows, outputs[name])
        return counts

    def _open(
        self, events: Any, options: EvaluationOptions, outputs: Mapping[str, str | None] | None = None
    ) -> tuple[QuerySet, QuerySetEvaluator, Source]:
        """Return the queries that are evaluated over the events, their evaluator, and the events."""
        options.check_time(self.time_column)
        source = self._open_source(
            events,
            sort=options.sort,
            needs=lambda schema: self._queries_over(schema, options)._file_pruning(
                schema, output=options.output, outputs=outputs
            ),
        )
        together = self._queries_over(source.schema, options)
        return together, together._fixed_evaluator(options, outputs), source

    def _queries_over(self, schema: pa.Schema, options: EvaluationOptions) -> QuerySet:
        """Return the queries that are evaluated over events of a schema."""
        if self._skips(options):
            return self.fitting(schema)
        self._misfits = {}
        return self

    def _skips(self, options: EvaluationOptions) -> bool:
        return (options.errors or self._errors) == SKIP

    def fitting(self, schema: pa.Schema) -> QuerySet:
        """Return the queries that match events of a schema; `skipped` names the others.

        Raises QueryError if there is none; the message begins with the name of the first.
        """
        if self._parted is None or not self._parted[0].equals(schema, check_metadata=True):
            resolved = self._over_schema(schema, {})
            misfits: dict[str, CerError] = {}
            for name in resolved.wrong:
                try:
                    resolved.raise_error(name)
                except (QueryError, OptionError) as error:
                    misfits[name] = error
            if len(misfits) == len(self):
                _raise_first(misfits)
            fitting = [name for name in self._queries if name not in misfits]
            self._parted = schema, self._only(fitting, self._skipped | misfits), misfits
        _, together, self._misfits = self._parted
        return together

    def _only(self, names: Collection[str], skipped: Mapping[str, CerError] | None = None) -> QuerySet:
        """Return some of the queries, with what is known of them."""
        some = {name: self._queries[name] for name in names}
        together = QuerySet(some, skipped=skipped)
        is_all = len(some) == len(self)
        together._lookups = self._lookups if is_all else [lookup.only(some) for lookup in self._lookups]
        return together

    def _lookup(self, outputs: Mapping[str, str | None], output: str | None = None) -> SetLookup:
        """Return the queries by schemas, each for an output: its own, else one for all, else its usual one.

        Raises OptionError if a query has no such output.
        """
        named = {name: query.resolve_output(outputs.get(name, output)) for name, query in self._queries.items()}
        for lookup in self._lookups:
            if lookup.outputs == named:
                return lookup
        self._lookups = [SetLookup(self._queries, named), *self._lookups[: _MAX_OUTPUTS - 1]]
        return self._lookups[0]

    def _over_outputs(
        self, schema: pa.Schema, outputs: Mapping[str, str | None] | None = None, output: str | None = None
    ) -> OverSchema:
        """Return what is known of the queries over a schema, for an output of each.

        Raises QueryError if one does not match; the message begins with its name.
        """
        over = self._over_schema(schema, outputs or {}, output)
        for name in over.wrong:
            with QueryErrorContext(name):
                over.raise_error(name)
        return over

    def bind(self, schema: pa.Schema) -> QuerySet:
        """Return the queries with the names of columns that they have over events of a schema.

        Raises QueryError if one does not match; the message begins with its name.
        """
        bound = {}
        for name, query in self._queries.items():
            with QueryErrorContext(name):
                bound[name] = query.bind(schema)
        return QuerySet(bound)

    def _over_schema(
        self, schema: pa.Schema, outputs: Mapping[str, str | None], output: str | None = None
    ) -> OverSchema:
        """Return what is known of the queries that match a schema."""
        return self._lookup(outputs, output).over(schema)

    def output_schema(self, schema: pa.Schema, output: str | None = None) -> pa.Schema:
        """Return the schema of `stream` over events of a schema."""
        options = EvaluationOptions(output=output)
        return joined_schema(self._queries_over(schema, options)._schemas(schema, options))

    def _schemas(self, schema: pa.Schema, options: EvaluationOptions) -> Mapping[str, pa.Schema]:
        """Return the schema of the results of each query."""
        if options.aggregate is None:
            return {
                name: query.result_schema
                for name, query in self._over_outputs(schema, output=options.output).queries.items()
            }
        schemas = {}
        for name, query in self._queries.items():
            with QueryErrorContext(name):
                schemas[name] = query._with_aggregate_of(options).output_schema(schema, options.output)
        return schemas

    def _file_pruning(
        self, schema: pa.Schema, output: str | None = None, outputs: Mapping[str, str | None] | None = None
    ) -> FilePruning | None:
        return self._over_schema(schema, outputs or {}, output).needs

    def columns(self, schema: pa.Schema, output: str | None = None) -> list[str]:
        """Return the names of the columns that the queries read from events of a schema, as `Query.columns`."""
        if self._errors == SKIP:
            return self.fitting(schema).columns(schema, output)
        return narrowest(schema, set(self._over_outputs(schema, output=output).attributes))

    def _match_source(self, source: Source, evaluator: QuerySetEvaluator, threads: int | None = 1) -> NamedBatches:
        return self._find_matches(source, evaluator, threads)

    def _new_evaluator(
        self, options: EvaluationOptions, result_formatter: ResultFormatter | None = None
    ) -> QuerySetEvaluator:
        return self._evaluator_for(options, {}, shares=True, result_formatter=result_formatter)

    def _fixed_evaluator(
        self, options: EvaluationOptions, outputs: Mapping[str, str | None] | None = None
    ) -> QuerySetEvaluator:
        """Return an evaluator to which no query is added: a single one shares nothing."""
        return self._evaluator_for(options, outputs or {}, shares=len(self) > 1)

    def _evaluator_for(
        self,
        options: EvaluationOptions,
        outputs: Mapping[str, str | None],
        *,
        shares: bool,
        result_formatter: ResultFormatter | None = None,
    ) -> QuerySetEvaluator:
        """Return an evaluator with an output of each query."""
        several = STREAM_COLUMN if self._first_query.several_streams else None
        sharing = SharedState(several, options.device, self._bound) if shares else None
        prepared = {} if sharing is None or options.aggregate else self._lookup(outputs, options.output).lazy_queries
        options_by_output = {output: replace(options, output=output) for output in {*outputs.values(), options.output}}
        executions: dict[str, QueryExecution] = {}
        for name, query in self._queries.items():
            own = options_by_output[outputs.get(name, options.output)]
            output = query.resolve_output(own.output)
            if name in prepared and not OUTPUTS[output].by_starts:  # a funnel may have a plan of its own
                executions[name] = StreamingExecution(prepared[name], own, output, sharing)
            else:
                executions[name] = query._new_execution(own, sharing)
        return QuerySetEvaluator(executions, options, sharing, self, result_formatter)

    @options_by_name
    def explain(self, events: Any = None, *, detail: str = "summary") -> dict[str, Explanation]:
        """Explain each query (`Query.explain`)."""
        return {name: query.explain(events, detail=detail) for name, query in self.items()}


class QuerySetEvaluator(BaseEvaluator[tuple[str, pa.RecordBatch], dict[str, pa.RecordBatch]]):
    """Evaluator of many queries, batch by batch: `push` events, `finish` at the end; created by `QuerySet.evaluator`.

    Between batches queries may be added and removed.  For each, the concatenated results equal those of
    `cer_gpu.Evaluator`, and do not depend on the cut of the stream into batches.

    Attributes
    ----------
    output : str or None
        Output of all queries; None for the default of each.
    skipped : dict from str to CerError
        Queries that were left out (`compile_all`), with the reasons; those that do not match the events are known from
        the first batch, or `expect`, on.

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
        executions: Mapping[str, QueryExecution],
        options: EvaluationOptions,
        shared: SharedState | None,
        queries: QuerySet,
        result_formatter: ResultFormatter | None = None,
    ) -> None:
        skip = self._skip_misfits if queries._skips(options) else None
        super().__init__(executions, options, shared, skip, result_formatter)
        self.output: str | None = options.output
        self.skipped: dict[str, CerError] = dict(queries._skipped)
        self._first_query, self._first_name, self._fitting = queries._first_query, queries._first_name, queries.fitting

    def _skip_misfits(self, schema: pa.Schema) -> Collection[str]:
        """Record the queries that do not match the first schema, with the reasons, and return their names."""
        self.skipped = self._fitting(schema).skipped
        return self.skipped

    def _collect_results(self, pieces: Iterable[tuple[str, pa.RecordBatch]]) -> dict[str, pa.RecordBatch]:
        results: dict[str, list[pa.RecordBatch]] = {}
        for name, rows in pieces:
            if rows.num_rows:
                results.setdefault(name, []).append(rows)
        return {name: each[0] if len(each) == 1 else pa.concat_batches(each) for name, each in results.items()}

    @property
    def n_matches(self) -> dict[str, int]:
        """Number of matches found so far, by query."""
        return self._group.n_matches

    @property
    def notes(self) -> dict[str, list[str]]:
        """Remarks on the events read so far (`Evaluator.notes`), of the queries that have some."""
        executions = self._group.executions.items()
        read = {name: each for name, each in executions if self.n_events > each.options.start_position}
        return {name: notes for name, each in read.items() if (notes := each.notes)}

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
            As `cer_gpu.compile`, and when the query does not match the events.
        """
        if name in self._group.executions:
            raise OptionError(f"there is a query {name!r} already\nhint: remove({name!r}) first")
        first = self._first_query
        if isinstance(query, str):
            with QueryErrorContext(name):
                query = compile_for_set(
                    query, type_column=first.type_column, time_column=first.time_column, time_unit=first.time_unit
                )
        check_same_events(query, name, first, self._first_name)
        options = replace(self._group.options, start_position=self.n_events)
        self._group.add(name, query._new_execution(options, self._group.shared))

    def remove(self, name: str) -> pa.RecordBatch:
        """Remove a query, and return the matches that it would find if the stream ended here.

        Raises
        ------
        OptionError
            When there is no such query.
        """
        if name not in self._group.executions:
            hint = did_you_mean(name, self._group.executions, "queries")
            raise OptionError(f"there is no query {name!r}" + (f"\nhint: {hint}" if hint else ""))
        return self._group.remove(name)
