"""Work of the tasks of a job: queries by name over the same events; one query is a set of one.

Plans, tasks, streams and explanations know `Work` alone.  This module needs no Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from cer_gpu.ceql.paths import dotted
from cer_gpu.engine.evaluation_options import RAISE, EvaluationOptions
from cer_gpu.engine.evaluator import BaseEvaluator, ResultFormatter
from cer_gpu.errors import OptionError, QueryErrorContext
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.in_one_table import named
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.distribution import Distribution
from cer_gpu.query_set import QuerySet, compile_all
from cer_gpu.rule import Rule
from cer_gpu.rules.alerts import ALERTS, WITH_EVENTS, AlertRows, alert_output, alerts_of, time_type_in
from cer_gpu.rules.rule_set import RuleSet

WorkEvaluator = BaseEvaluator[pa.RecordBatch, Any]
"""Evaluator of the events of one task, with the results of all queries as rows of one table."""

MAX_KEY_SHARDS = 64
"""Maximum number of tasks that each read all rows, and evaluate a shard of the keys."""
QUERIES_A_COPY = 256
"""Queries of a set whose evaluation takes about as long as Spark takes to send their events once more."""


@dataclass(frozen=True)
class TaskWindow:
    """Window of all that is evaluated.

    Attributes
    ----------
    column : str or None
        Column that measures it, or None for a window of events.
    """

    column: str | None


@dataclass(frozen=True)
class Work:
    """Work of the tasks of a job.  It can be pickled.

    Attributes
    ----------
    queries : dict from str to query
        The name of one that is no set is "".
    output : str or None
        Name of the output, or None if each query has its own.
    is_set : bool
        True: `query`, the first column of the results, names the queries.
    rules : dict from str to Rule, optional
        Rules of a set whose results are alerts, derived from the output "events".
    errors : str
        Treatment of queries of a set that do not match the events (`cer_gpu.compile_all`).
    """

    queries: Mapping[str, CompiledQuery]
    output: str | None = None
    is_set: bool = True
    rules: Mapping[str, Rule] | None = None
    errors: str = RAISE

    def __post_init__(self) -> None:
        """Refuse an output that a query cannot have."""
        for name, query in self.queries.items():
            try:
                query.resolve_output(self.output)
            except OptionError as error:
                raise OptionError(f"query {name!r}: {error}" if self.is_set else str(error)) from None

    @cached_property
    def _as_queries(self) -> QuerySet | CompiledQuery:
        return QuerySet(self.queries, errors=self.errors) if self.is_set else self._first_query

    @property
    def _first_query(self) -> CompiledQuery:
        return next(iter(self.queries.values()))

    @cached_property
    def _each(self) -> dict[str, Work]:
        """Work of each query."""
        return {name: Work({"": query}, self.output, is_set=False) for name, query in self.queries.items()}

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.queries)

    @property
    def text(self) -> str:
        """Words for the description of a job: the query, or their number and names."""
        return f"{self.n_queries} queries: {', '.join(self.queries)}" if self.is_set else self._first_query.text

    @property
    def shard_description(self) -> str:
        """Description of the shard of one of several tasks that all read all events."""
        return "evaluates its share of the queries" if self.is_set else "reports its share of the matches"

    @property
    def max_key_shards(self) -> int:
        """Maximum number of tasks that read all events for a shard of the keys; a shard of the queries costs less."""
        return 0 if self.is_set else MAX_KEY_SHARDS

    @property
    def max_copies(self) -> int | None:
        """Maximum number of tasks to send all events to by default; None for as many as the session runs at once."""
        return -(-self.n_queries // QUERIES_A_COPY) if self.is_set else None

    @property
    def numbered(self) -> bool:
        """True if rows have the numbers of their matches, which must be unique across tasks."""
        return self.output in OUTPUTS and OUTPUTS[self.output].numbered

    @property
    def type_column(self) -> str | None:
        """Column of event types."""
        return self._as_queries.type_column

    @property
    def time_column(self) -> str | None:
        """Column of times."""
        return self._as_queries.time_column

    @property
    def times(self) -> tuple[str, ...]:
        """Columns that must not decrease."""
        names = [name for query in self.queries.values() for name in (query.time_column, query.window_attribute)]
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def partition_keys(self) -> tuple[tuple[str, ...], ...]:
        """Brackets that all queries have: events that differ in one are in different partitions of each query."""
        first, *others = (query.partition_keys for query in self.queries.values())
        return tuple(bracket for bracket in first if all(bracket in keys for keys in others))

    @property
    def nullable_partition_keys(self) -> frozenset[tuple[str, ...]]:
        """Keys among `keys` for which NULL is a value, to one query at least."""
        return frozenset[tuple[str, ...]]().union(*(query.nullable_partition_keys for query in self.queries.values()))

    @cached_property
    def distribution(self) -> Distribution:
        """Distributions of the events that are exact for each query, and by which all can be distributed together."""
        if not self.is_set:
            return self._first_query.distribution_for(self.output)
        by_key = by_range = None
        for name, query in self.queries.items():
            distribution = query.distribution_for(self.output)
            keys, ranges = distribution.why_not_keys or distribution.why_not_key_tasks, distribution.why_not_ranges
            by_key = by_key or (keys and f"query {name!r}: {keys}")
            by_range = by_range or (ranges and f"query {name!r}: {ranges}")
        if by_key is None and not self.partition_keys:
            by_key = "the queries have no key of PARTITION BY in common"
        if by_range is None and self.window is None:
            measures = {one.window: f"{_measure(one.window)} in query {name!r}" for name, one in self._each.items()}
            by_range = f"windows are measured by {' and by '.join(measures.values())}"
        return Distribution(by_key, by_range)

    @property
    def window(self) -> TaskWindow | None:
        """Window that ranges of the stream need; None if there is none, or queries measure theirs in several ways."""
        if self.is_set:
            windows = {one.window for one in self._each.values()}
            return windows.pop() if len(windows) == 1 else None
        query, kind = self._first_query, self._first_query.window_kind
        columns = {"events": None, "time": query.time_column, "attribute": query.window_attribute}
        return None if kind is None else TaskWindow(columns[kind])

    @property
    def needed_types(self) -> tuple[str, ...] | None:
        """Types of the events that are needed if a column has their positions, or None for all events."""
        if self.output in OUTPUTS and OUTPUTS[self.output].by_starts:
            return None  # any event may show that a window has passed
        types_by_query = [query._needed_types for query in self.queries.values()]
        return (
            None
            if None in types_by_query
            else tuple(dict.fromkeys(name for types in types_by_query for name in types or ()))
        )

    @property
    def counts_stream(self) -> bool:
        """True if numbers of events in the whole stream decide matches, not only those of the events of a key."""
        return not self.partition_keys and any(query._counts_events for query in self.queries.values())

    @property
    def endless(self) -> bool:
        """True if results come before the end of the stream."""
        return not any(query.reads_whole_table for query in self.queries.values())

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the names of the columns that are read from events of a schema, as `Query.columns`."""
        if self.is_set:
            self.output_schema(schema)  # its errors name the query
        return self._as_queries.columns(schema, self.output)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the results over events of a schema."""
        if self.rules is not None:
            return self._alerts(schema).schema
        return self._as_queries.output_schema(schema, self.output)

    def _alerts(self, schema: pa.Schema) -> AlertRows:
        assert self.rules is not None
        assert isinstance(self._as_queries, QuerySet)
        queries, schemas = _fitting(self._as_queries, schema), {}
        for name, query in queries.items():
            with QueryErrorContext(name):
                schemas[name] = query.output_schema(schema, self.output)
        return AlertRows(self.rules, queries, time_type_in(schemas, queries))

    def window_units(self, schema: pa.Schema) -> int | float | None:
        """Return the length of the longest window, in events or in units of its column, or None if there is none."""
        lengths = [query._window_units(schema) for query in self.queries.values()]
        return max((length for length in lengths if length is not None), default=None)

    def parted(self, fits: Callable[[Work], bool]) -> tuple[Work | None, Work | None]:
        """Return the largest group of queries that satisfy `fits` and have one window, and the others or None."""
        windows = {name: one.window for name, one in self._each.items() if fits(one)}
        if not windows:
            return None, self
        common_window, _ = Counter(windows.values()).most_common(1)[0]
        fitting = {
            name: query for name, query in self.queries.items() if name in windows and windows[name] == common_window
        }
        others = {name: query for name, query in self.queries.items() if name not in fitting}
        return replace(self, queries=fitting), replace(self, queries=others) if others else None

    def evaluator(self, options: EvaluationOptions, results: pa.Schema) -> WorkEvaluator:
        """Return an evaluator of a shard of the work.

        Parameters
        ----------
        options
            The shard, the key shard, the start position and more; the output is that of the work.
        results
            `output_schema`, which may be in the types of Spark.
        """
        work, options = self, replace(options, output=self.output)
        if self.is_set and options.shard is not None:
            queries, shard = self._queries_of_shard(*options.shard)
            work, options = replace(self, queries=queries), replace(options, shard=shard)
        evaluator: WorkEvaluator = work._as_queries._checked_evaluator(options, self._result_formatter(results))
        return evaluator

    def restore(self, blob: bytes, results: pa.Schema) -> WorkEvaluator:
        """Return an evaluator that continues from a checkpoint of another."""
        evaluator: WorkEvaluator = self._as_queries._restored_evaluator(blob, self._result_formatter(results))
        return evaluator

    def _result_formatter(self, results: pa.Schema) -> ResultFormatter | None:
        """Return the formatter of the results of all queries as rows of one table, or None for one query."""
        if self.rules is not None:
            return partial(alerts_of, rules=self.rules, queries=self.queries, schema=results)
        return partial(named, schema=results) if self.is_set else None

    def _queries_of_shard(self, k: int, n: int) -> tuple[dict[str, CompiledQuery], tuple[int, int] | None]:
        """Return the queries of a shard, and the shard of their matches if there are more shards than queries."""
        # queries with the same keys stay together, as they have the same partitions
        names = sorted(self.queries, key=lambda name: self.queries[name].partition_keys)
        if n <= len(names):
            own = names[k * len(names) // n : (k + 1) * len(names) // n]
            return {name: self.queries[name] for name in own}, None
        i, of_query = k % len(names), k // len(names)
        return {names[i]: self.queries[names[i]]}, (of_query, len(range(i, n, len(names))))


def _measure(window: TaskWindow | None) -> str:
    assert window is not None
    return "events" if window.column is None else repr(dotted(window.column))


def work_of(
    query: Any, output: str | None = None, *, time_column: str | None = None, schema: pa.Schema | None = None
) -> Work:
    """Return the work of anything that `spark_glue.match` takes for a query.

    Parameters
    ----------
    query : query, QuerySet, RuleSet, or mapping from names to queries or query texts
    output
        "alerts" for a `RuleSet`; by default (None) the usual one: of one query, "measures" if SELECT has some, else
        "events".
    time_column
        Time column of query texts.
    schema
        That of the events, if it is known: of a set that requests it (errors="skip"), queries that do not match are
        left out.

    Raises
    ------
    OptionError
        For anything else, and for an output that a query cannot have.
    QueryError
        When a query text is wrong; the message begins with the name of the query.
    """
    if isinstance(query, Mapping) and not isinstance(query, QuerySet):
        compiled = bool(query) and all(isinstance(each, CompiledQuery) for each in query.values())
        query = QuerySet(query) if compiled else compile_all(query, time_column=time_column)
    if isinstance(query, RuleSet) and output == ALERTS:
        measured = [name for name, each in query.items() if alert_output(each) != WITH_EVENTS]
        if measured:
            raise OptionError(
                f"query {measured[0]!r}: alerts with measures, and of MATCH_RECOGNIZE, are not made on Spark\n"
                "hint: output=None has the rows of each query, or leave the rule out"
            )
        resolved = _fitting(query, schema)
        return Work(dict(resolved), WITH_EVENTS, rules=query.rules, errors=query._errors)
    if isinstance(query, QuerySet):
        return Work(dict(_fitting(query, schema)), output, errors=query._errors)
    if not isinstance(query, CompiledQuery):
        raise OptionError(
            f"expected a compiled query, got {type(query).__name__}\nhint: cer_gpu.compile(text, time_column=...)"
        )
    usual = "events" if query.default_output == "positions" else query.default_output
    return Work({"": query}, output or usual, is_set=False)


def _fitting(queries: QuerySet, schema: pa.Schema | None) -> QuerySet:
    return queries if schema is None or queries._errors == RAISE else queries.fitting(schema)


def holds_times(kind: pa.DataType | None) -> bool:
    """Return True for a type of times: a first column of the order that has it is the time column by default."""
    is_time = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_duration)
    return kind is not None and any(each(kind) for each in is_time)
