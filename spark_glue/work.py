"""Work of the tasks of a job: one query, or all queries of a set, by one interface.

Plans, tasks and explanations know `Work` alone.  This module needs no Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from cer_gpu.ceql.paths import dotted
from cer_gpu.engine.options import EvaluationOptions
from cer_gpu.errors import OptionError
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.dealing import Dealing
from cer_gpu.query import Query
from cer_gpu.query_set import QuerySet, QuerySetEvaluator, compile_all
from spark_glue.stage import refuse_set

MOST_SHARERS = 64
"""Most tasks of which each reads all rows, and evaluates its share of the keys."""
QUERIES_A_COPY = 256
"""Queries of a set whose evaluation takes about as long as Spark takes to send their events once more."""


@dataclass(frozen=True)
class TaskWindow:
    """Window of all that is evaluated.

    Attributes
    ----------
    column : str or None
        Column that measures it; None: it is one of events.
    """

    column: str | None


class WorkEvaluator(Protocol):
    """Evaluator of the events of one task, as `cer_gpu.Evaluator`."""

    @property
    def n_events(self) -> int:
        """Number of events evaluated so far."""

    @property
    def n_matches(self) -> int:
        """Number of complex events found so far."""

    def push_batches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Read the events of a batch and yield the complex events that end in it."""

    def finish_batches(self) -> Iterator[pa.RecordBatch]:
        """End the stream and yield the complex events that are known by then."""


class Work(Protocol):
    """Work of the tasks of a job.  It can be pickled."""

    @property
    def text(self) -> str:
        """Words for the description of a job."""

    @property
    def output(self) -> str | None:
        """Name of the output; None: each query has its own."""

    @property
    def numbered(self) -> bool:
        """True if rows carry the numbers of their complex events, which no two tasks may share."""

    @property
    def n_queries(self) -> int:
        """Number of queries."""

    @property
    def type_column(self) -> str | None:
        """Column of event types."""

    @property
    def times(self) -> tuple[str, ...]:
        """Columns that must not decrease."""

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """Column names in each bracket of PARTITION BY by which events can be dealt."""

    @property
    def dealing(self) -> Dealing:
        """Exact ways to deal the events."""

    @property
    def window(self) -> TaskWindow | None:
        """Window that ranges of the stream need before them; None: there is none."""

    @property
    def needed_types(self) -> tuple[str, ...] | None:
        """Types of the events that are needed if a column tells their positions; None: all events."""

    @property
    def share(self) -> str:
        """Words on the share of the work of one of several tasks that all read all events."""

    @property
    def most_sharers(self) -> int:
        """Most tasks that read all events for the sake of a share of the keys."""

    @property
    def most_copies(self) -> int | None:
        """Most tasks to send all events to if none are asked for; None: as many as the session runs at once."""

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the names of the columns that are read from events of a schema, as `Query.columns`."""

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the results over events of a schema."""

    def window_units(self, schema: pa.Schema) -> int | float | None:
        """Return the length of the window, in events or in units of its column; None: there is none."""

    def parted(self, fits: Callable[[Work], bool]) -> tuple[Work | None, Work | None]:
        """Return the queries that fit and have one window, the most of them, and the others; None: there are none."""

    def evaluator(self, part: EvaluationOptions, events: pa.Schema, results: pa.Schema) -> WorkEvaluator:
        """Return an evaluator of a part of the work.

        Parameters
        ----------
        part
            The share, the deal of keys, the first event and the first end; other options are of no effect.
        events
            Schema of the first batch.
        results
            `output_schema` in the types of Spark.
        """


@dataclass(frozen=True)
class OneQuery:
    """Work of one query.

    Attributes
    ----------
    query : Query
    output : str
    """

    query: Query
    output: str

    share = "reports its share of the complex events"
    most_sharers = MOST_SHARERS
    most_copies = None
    n_queries = 1

    @property
    def text(self) -> str:
        """The text of the query."""
        return self.query.text

    @property
    def numbered(self) -> bool:
        """See `Work`."""
        return OUTPUTS[self.output].numbered

    @property
    def type_column(self) -> str | None:
        """See `Work`."""
        return self.query.type_column

    @property
    def times(self) -> tuple[str, ...]:
        """See `Work`."""
        names = (self.query.time_column, self.query.window_attribute)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """See `Work`."""
        return self.query.keys

    @property
    def dealing(self) -> Dealing:
        """See `Work`."""
        return self.query.physical_plan().dealing

    @property
    def window(self) -> TaskWindow | None:
        """See `Work`."""
        kind = self.query.window_kind
        columns = {"events": None, "time": self.query.time_column, "attribute": self.query.window_attribute}
        return None if kind is None else TaskWindow(columns[kind])

    @property
    def needed_types(self) -> tuple[str, ...] | None:
        """See `Work`."""
        return self.query._needed_types

    def columns(self, schema: pa.Schema) -> list[str]:
        """See `Work`."""
        return self.query.columns(schema, self.output)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See `Work`."""
        return self.query.output_schema(schema, self.output)

    def window_units(self, schema: pa.Schema) -> int | float | None:
        """See `Work`."""
        return self.query._window_units(schema)

    def parted(self, fits: Callable[[Work], bool]) -> tuple[Work | None, Work | None]:
        """See `Work`."""
        return (self, None) if fits(self) else (None, self)

    def evaluator(self, part: EvaluationOptions, events: pa.Schema, results: pa.Schema) -> WorkEvaluator:
        """See `Work`."""
        found = self.query.evaluator(
            output=self.output, share=part.share, position_column=part.position_column, first_end=part.first_end
        )
        if part.begin or part.deal is not None:
            found.expect(events)
            return found._part(part.begin, part.first_end) if part.deal is None else found._of_keys(*part.deal)
        return found


@dataclass(frozen=True)
class ManyQueries:
    """Work of the queries of a set, over the same events; `query`, the first column of the results, names them.

    Attributes
    ----------
    queries : QuerySet
    output : str or None
        Output of all queries; None: the default of each.
    """

    queries: QuerySet
    output: str | None = None

    share = "evaluates its share of the queries"
    most_sharers = 0  # a share of the queries costs each task less than all queries over a share of the keys

    def __post_init__(self) -> None:
        """Refuse an output that a query cannot have."""
        for name, query in self.queries.items():
            try:
                query.physical_plan(self.output)
            except OptionError as error:
                raise OptionError(f"query {name!r}: {error}") from None

    @cached_property
    def _each(self) -> dict[str, OneQuery]:
        return {name: OneQuery(query, self.output or query.default_output) for name, query in self.queries.items()}

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.queries)

    @property
    def most_copies(self) -> int:
        """See `Work`."""
        return -(-self.n_queries // QUERIES_A_COPY)

    @property
    def text(self) -> str:
        """Their number and names."""
        return f"{len(self.queries)} queries: {', '.join(self.queries)}"

    @property
    def numbered(self) -> bool:
        """See `Work`."""
        return self.output is not None and OUTPUTS[self.output].numbered

    @property
    def type_column(self) -> str | None:
        """See `Work`."""
        return next(iter(self.queries.values())).type_column

    @property
    def times(self) -> tuple[str, ...]:
        """See `Work`."""
        return tuple(dict.fromkeys(name for one in self._each.values() for name in one.times))

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """Brackets that all queries have: events that differ in one of them are of other partitions of each query."""
        first, *others = (one.keys for one in self._each.values())
        return tuple(bracket for bracket in first if all(bracket in keys for keys in others))

    @cached_property
    def dealing(self) -> Dealing:
        """Ways that are exact for each query, and by which all can be dealt together."""
        by_key = by_range = None
        for name, one in self._each.items():
            keys, ranges = one.dealing.against_keys, one.dealing.against_ranges
            by_key = by_key or (keys and f"query {name!r}: {keys}")
            by_range = by_range or (ranges and f"query {name!r}: {ranges}")
        if by_key is None and not self.keys:
            by_key = "the queries have no key of PARTITION BY in common"
        if by_range is None and self.window is None:
            measures = {one.window: f"{_measure(one.window)} in query {name!r}" for name, one in self._each.items()}
            by_range = f"windows are measured by {' and by '.join(measures.values())}"
        return Dealing(by_key, by_range)

    @property
    def window(self) -> TaskWindow | None:
        """Window of all queries; None: they have none, or measure theirs in several ways."""
        windows = {one.window for one in self._each.values()}
        return windows.pop() if len(windows) == 1 else None

    @property
    def needed_types(self) -> tuple[str, ...] | None:
        """See `Work`."""
        found = [one.needed_types for one in self._each.values()]
        return None if None in found else tuple(dict.fromkeys(name for types in found for name in types or ()))

    def columns(self, schema: pa.Schema) -> list[str]:
        """See `Work`."""
        self.output_schema(schema)  # its errors name the query
        return self.queries.columns(schema, self.output)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See `Work`."""
        return self.queries.output_schema(schema, self.output)

    def window_units(self, schema: pa.Schema) -> int | float | None:
        """Return the length of the longest window."""
        lengths = [one.window_units(schema) for one in self._each.values()]
        return max((length for length in lengths if length is not None), default=None)

    def parted(self, fits: Callable[[Work], bool]) -> tuple[ManyQueries | None, ManyQueries | None]:
        """See `Work`."""
        windows = {name: one.window for name, one in self._each.items() if fits(one)}
        if not windows:
            return None, self
        most, _ = Counter(windows.values()).most_common(1)[0]
        fitting = {name: query for name, query in self.queries.items() if name in windows and windows[name] == most}
        others = {name: query for name, query in self.queries.items() if name not in fitting}
        return replace(self, queries=QuerySet(fitting)), replace(self, queries=QuerySet(others)) if others else None

    def evaluator(self, part: EvaluationOptions, events: pa.Schema, results: pa.Schema) -> WorkEvaluator:
        """See `Work`."""
        queries, share = self._of_share(*(part.share or (0, 1)))
        evaluator = QuerySetEvaluator(queries, replace(part, output=self.output, share=share))
        return _NamedResults(evaluator, results)

    def _of_share(self, k: int, n: int) -> tuple[dict[str, Query], tuple[int, int] | None]:
        """Return the queries of a share, and the share of their complex events: of more shares than queries."""
        # queries with the same keys go together, as they share their partitions
        names = sorted(self.queries, key=lambda name: self.queries[name].keys)
        if n <= len(names):
            own = names[k * len(names) // n : (k + 1) * len(names) // n]
            return {name: self.queries[name] for name in own}, None
        i, of_query = k % len(names), k // len(names)
        return {names[i]: self.queries[names[i]]}, (of_query, len(range(i, n, len(names))))


def _measure(window: TaskWindow | None) -> str:
    assert window is not None
    return "events" if window.column is None else repr(dotted(window.column))


class _NamedResults:
    """Evaluator of a set whose results are rows of one table.

    Parameters
    ----------
    evaluator
    schema
        Columns of the results of all queries, after that of the query.
    """

    def __init__(self, evaluator: QuerySetEvaluator, schema: pa.Schema) -> None:
        self._evaluator, self._schema = evaluator, schema

    @property
    def n_events(self) -> int:
        """See `WorkEvaluator`."""
        return self._evaluator.n_events

    @property
    def n_matches(self) -> int:
        """Number of complex events of all queries so far."""
        return sum(self._evaluator.n_matches.values())

    def push_batches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """See `WorkEvaluator`."""
        return QuerySet._named(self._evaluator.push_batches(batch), self._schema)

    def finish_batches(self) -> Iterator[pa.RecordBatch]:
        """See `WorkEvaluator`."""
        return QuerySet._named(self._evaluator.finish_batches(), self._schema)


def work_of(query: Any, output: str | None = None, *, time_column: str | None = None) -> OneQuery | ManyQueries:
    """Return the work of anything that `spark_glue.match` takes for a query.

    Parameters
    ----------
    query : Query, QuerySet, or mapping from names to queries or their texts
    output
        None: the usual one.
    time_column
        Time column of texts.

    Raises
    ------
    OptionError
        For anything else, and for an output that a query cannot have.
    QueryError
        When a text is wrong; the message begins with the name of the query.
    """
    if isinstance(query, Mapping) and not isinstance(query, QuerySet):
        compiled = bool(query) and all(isinstance(each, Query) for each in query.values())
        query = QuerySet(query) if compiled else compile_all(query, time_column=time_column)
    return ManyQueries(query, output) if isinstance(query, QuerySet) else one_query(query, output)


def holds_times(kind: pa.DataType | None) -> bool:
    """Return True for a type of times: a first column of the order that has it is the time column by default."""
    is_time = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_duration)
    return kind is not None and any(each(kind) for each in is_time)


def one_query(query: Any, output: str | None = None) -> OneQuery:
    """Return the work of one query.

    Raises
    ------
    OptionError
        For anything else.
    """
    refuse_set(query)
    if not isinstance(query, Query):
        raise OptionError(
            f"expected a compiled query, got {type(query).__name__}\nhint: cer_gpu.compile(text, time_column=...)"
        )
    return OneQuery(query, asked_output(query, output))


def asked_output(query: Query, output: str | None) -> str:
    """Return the output that is asked for; where none is, "measures" if SELECT has some, else "events"."""
    return output or ("events" if query.default_output == "positions" else query.default_output)
