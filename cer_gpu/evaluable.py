"""Evaluation of anything compiled: `evaluate`, `stream`, `count`, `evaluator` and `restore`, of one query or a set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self

import pyarrow as pa

from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.evaluation_options import (
    OF_ARRIVALS,
    OF_COUNTS,
    OF_EVENTS,
    EvaluationOptions,
    Lateness,
    Sort,
    accepts_options,
    options_by_name,
)
from cer_gpu.engine.evaluator import BaseEvaluator, Evaluator, ResultFormatter
from cer_gpu.engine.execution_group import NamedBatches
from cer_gpu.engine.query_execution import QueryExecution
from cer_gpu.engine.shared_state import SharedState
from cer_gpu.errors import OptionError, OutOfMemoryError, out_of_memory, warn_of_events
from cer_gpu.explain.explanation import Explanation
from cer_gpu.expressions.targets.arrow import exact_sum
from cer_gpu.forecast.fitting import FitRequest, fit_forecasts
from cer_gpu.forecast.model import Forecast, WithinLengths
from cer_gpu.forecast.watching import ForecastEvaluator
from cer_gpu.io.source import Source
from cer_gpu.io.sources import reading_again
from cer_gpu.parallel.key_threads import on_threads_by_key
from cer_gpu.parallel.range_threads import RangeWindow, cut, on_threads, threads_that_help
from cer_gpu.parallel.stream_splitter import StreamSplitter
from cer_gpu.planning.distribution import Distribution
from cer_gpu.planning.file_pruning import FilePruning
from cer_gpu.planning.plan import LogicalPlan

_WHOLE_TABLE = "MATCH_RECOGNIZE reads the whole table"


class Evaluable(ABC):
    """One query, or queries by name, with the calls that evaluate them."""

    @property
    @abstractmethod
    def time_column(self) -> str | None:
        """The column of times."""

    @property
    @abstractmethod
    def _first_query(self) -> CompiledQuery:
        """Query that opens the events: of a set, the first that names the columns of types and times."""

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
        return self._first_query._open_source(events, sort=sort, resident=resident, needs=needs)

    def _file_pruning(self, schema: pa.Schema, output: str | None = None) -> FilePruning | None:
        """Return what an output needs of events of a schema, or None if it needs all of them."""
        first = self._first_query
        return None if first is self else first._file_pruning(schema, output)

    @abstractmethod
    def _new_evaluator(
        self, options: EvaluationOptions, result_formatter: ResultFormatter | None = None
    ) -> BaseEvaluator[Any, Any]:
        """Return an evaluator, whose pieces of results a formatter may make; options were checked."""

    @accepts_options(OF_ARRIVALS)
    def evaluator(self, options: EvaluationOptions) -> Any:
        """Return an evaluator for a stream that arrives batch by batch, with options of `cer_gpu.EvaluationOptions`.

        Examples
        --------
        >>> import cer_gpu, pyarrow as pa
        >>> evaluator = cer_gpu.compile("SELECT * FROM S WHERE A ; B").evaluator()
        >>> evaluator.push(pa.record_batch({"type": ["A", "A"]})).num_rows
        0
        >>> evaluator.push(pa.record_batch({"type": ["B"]})).column("positions").to_pylist()
        [[1, 2], [0, 2]]
        """
        if options.forecast is not None:
            return self._watching(options)
        return self._checked_evaluator(options)

    def _watching(self, options: EvaluationOptions) -> Any:
        """Return an evaluator of forecasts."""
        raise NotImplementedError

    def _watched_again(self, blob: bytes, forecast: Any) -> Any:
        """Return an evaluator of forecasts that continues from a checkpoint."""
        raise NotImplementedError

    def _checked_evaluator(self, options: EvaluationOptions, result_formatter: ResultFormatter | None = None) -> Any:
        options.check_time(self.time_column)
        return self._new_evaluator(options, result_formatter)

    @options_by_name
    def restore(self, blob: bytes, *, forecast: Forecast | Mapping[str, Forecast] | None = None) -> Any:
        """Return an evaluator that continues from the checkpoint of another one.

        It returns the rows that the other would have returned, had it gone on.

        Parameters
        ----------
        blob
            Result of `Evaluator.checkpoint`; restore only checkpoints from a source that you trust.
        forecast
            The forecast of the other one, if it had one (``evaluator(forecast=...)``); of a set, the forecasts of its
            queries.

        Raises
        ------
        CheckpointError
            When it is damaged, of another version, or of another query.

        Examples
        --------
        >>> import cer_gpu, pyarrow as pa
        >>> query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
        >>> evaluator = query.evaluator()
        >>> _ = evaluator.push(pa.record_batch({"type": ["A", "A"]}))
        >>> blob = evaluator.checkpoint()
        >>> query.restore(blob).push(pa.record_batch({"type": ["B"]})).column("positions").to_pylist()
        [[1, 2], [0, 2]]
        """
        if forecast is not None:
            return self._watched_again(blob, forecast)
        return self._restored_evaluator(blob)

    def _restored_evaluator(self, blob: bytes, result_formatter: ResultFormatter | None = None, **more: Any) -> Any:
        """Return an evaluator that continues from a checkpoint, with more options than it stores."""
        state = NamedState.from_bytes(self._new_evaluator(EvaluationOptions()).identities, blob)
        shard = state.options.pop("shard")
        options = EvaluationOptions(**state.options, shard=None if shard is None else tuple(shard), **more)
        evaluator = self._new_evaluator(options, result_formatter)
        evaluator._restore(state)
        return evaluator

    def _find_matches(
        self, source: Source, evaluator: BaseEvaluator[Any, Any], threads: int | None = 1
    ) -> NamedBatches:
        """Yield the matches of a source with the names of their queries, in pieces of bounded size.

        With several threads the evaluator itself evaluates nothing, and takes over their numbers of events and complex
        events; None for as many threads as help, or one for many queries.
        """
        evaluator.expect(source.schema)
        names = evaluator.attributes(source.schema)
        splitter = StreamSplitter(evaluator._group)
        threads = 1 if threads is None and splitter.has_many_queries else threads
        may_split = threads != 1 and splitter.may_split and not source.resident
        window = splitter.window if may_split else None
        n_threads = (threads_that_help(source, by_range=window is not None) if threads is None else threads) or 1
        if window is None:
            n_threads = min(n_threads, splitter.max_shards or n_threads) if may_split else 1
        if n_threads == 1:
            matches = evaluator._group.push_all(source.batches(names), source.n_rows)
        elif window is not None:
            matches = on_threads(splitter, *cut(source, names, RangeWindow(*window), n_threads), n_threads)
        else:
            matches = on_threads_by_key(splitter, source.batches(names), n_threads)
        try:
            with source.locating(lambda: evaluator.n_events):
                group = evaluator._group
                yield from matches if n_threads == 1 else group.result_range.of_parts(matches, group.executions)
        except OutOfMemoryError:  # which says more
            raise
        except MemoryError:  # in a thread
            raise out_of_memory(evaluator.total_matches) from None


def _with_warnings(matches: Iterator[pa.RecordBatch], evaluator: Evaluator) -> Iterator[pa.RecordBatch]:
    """Yield matches, and warn of what is noted on the events once all of them are read."""
    yield from matches
    if not evaluator.limit_reached:
        warn_of_events(evaluator.notes)


class CompiledQuery(Evaluable):
    """A compiled query of any language: all that callers ask of it, whatever its language is."""

    language: str
    """Its language, the name of one of `cer_gpu.compilation.LANGUAGES`."""
    reads_whole_table: bool
    """True if its results begin when all rows are read; False if events are evaluated as they come (`Query`)."""
    _plan: LogicalPlan | None = None  # None if it reads whole tables
    notes: tuple[str, ...] = ()
    """Remarks of the compilation."""
    missing_fields: tuple[str, ...] = ()
    """Fields that it names, the events have not, and that are taken for NULL."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The query as it was written."""

    @property
    @abstractmethod
    def syntax(self) -> Any:
        """The formula with its clauses, or the statement, as immutable nodes with their spans in `text`."""

    @property
    def compiled_by(self) -> str | None:
        """Cache key of the compilation, or None if the query was changed afterwards."""
        return repr((type(self).__name__, self.text, self.type_column, self.time_column, self.time_unit))

    @property
    def compile_options(self) -> dict[str, Any]:
        """Arguments of `cer_gpu.compile` that make the query, as JSON holds them."""
        relations = {} if self._plan is None else {name: list(columns) for name, columns in self._plan.relations}
        facts = {name: getattr(self, name) for name in ("text", "type_column", "time_column", "time_unit")}
        return {**facts, "language": self.language.lower(), "relations": relations or None}

    @property
    def identity(self) -> dict[str, Any]:
        """Facts that identify the query, for checkpoints; none of one over a whole table."""
        return {} if self._plan is None else self._plan.identity

    @property
    def is_spaced(self) -> bool:
        """True if it has LIMIT n EVERY d."""
        return self._plan is not None and self._plan.every is not None

    @property
    def compiled(self) -> CompiledQuery:
        """The query itself, where this is one of a set that is not compiled yet."""
        return self

    @property
    def _first_query(self) -> CompiledQuery:
        return self.compiled

    def bind(self, schema: pa.Schema) -> CompiledQuery:
        """Return the query with the names of columns that it has over events of a schema.

        Raises QueryError if the query does not match the schema.
        """
        return self

    @property
    def types(self) -> tuple[str, ...]:
        """The event types that it names: none."""
        return ()

    @property
    def type_column(self) -> str | None:
        """The column of event types."""
        return None if self._plan is None else self._plan.type_column

    @property
    def time_column(self) -> str | None:
        """The column of times."""
        return None if self._plan is None else self._plan.time_column

    @property
    def time_unit(self) -> str | None:
        """The unit of an integer time column."""
        return None if self._plan is None else self._plan.time_unit

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams of FROM, where positions are reported for each."""
        return () if self._plan is None else self._plan.streams

    @property
    def several_streams(self) -> bool:
        """True if it reads several streams, merged by the time column."""
        return False if self._plan is None else self._plan.several_streams

    @property
    def partition_keys(self) -> tuple[tuple[str, ...], ...]:
        """The column names in each bracket of PARTITION BY, where events can be distributed by them."""
        return () if self._plan is None else self._plan.partition_keys

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the columns of keys in results."""
        return () if self._plan is None else self._plan.key_names

    @property
    def nullable_partition_keys(self) -> frozenset[tuple[str, ...]]:
        """Keys among `keys` for which NULL is a value like any other."""
        return frozenset() if self._plan is None else self._plan.nullable_partition_keys

    @property
    def window_kind(self) -> str | None:
        """The kind of the window: "events", "time" or "attribute"; None where there is none."""
        return None if self._plan is None else self._plan.window

    @property
    def window_attribute(self) -> str | None:
        """The column of WITHIN n [attribute]."""
        return None if self._plan is None else self._plan.window_attribute

    @property
    def distribution(self) -> Distribution:
        """Exact ways to distribute the events to several evaluations."""
        return Distribution(_WHOLE_TABLE, _WHOLE_TABLE)

    def distribution_for(self, output: str | None) -> Distribution:
        """Return the exact ways to distribute the events for an output."""
        return self.distribution

    @property
    @abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """The forms that its results can have."""

    @property
    @abstractmethod
    def default_output(self) -> str:
        """The default form of its results."""

    @abstractmethod
    def resolve_output(self, output: str | None) -> str:
        """Return the name of the requested output, by default the usual one; OptionError if the query lacks it."""

    def physical_plan(self, output: str | None = None) -> Any:
        """Return the plan by which it is evaluated event by event; raises OptionError if it reads whole tables."""
        raise OptionError(_WHOLE_TABLE)

    @abstractmethod
    def columns(self, schema: pa.Schema, output: str | None = None) -> list[str]:
        """Return the columns that it reads from events of a schema; raises QueryTypeError if it does not match."""

    @abstractmethod
    def explain(self, events: Any = None, *, analyze: bool = False, detail: str = "summary") -> Explanation:
        """Explain its meaning, the passes of its compilation, and its evaluation."""

    @abstractmethod
    def _repr_html_(self) -> str:
        """Show it in a notebook."""

    @property
    def _counted_output(self) -> str | None:
        """Output by which matches are counted, or None if its rows are."""
        return None

    @property
    def _needed_types(self) -> tuple[str, ...] | None:
        """The types of the events that it needs if a column has their positions, or None for all events."""
        return None

    @property
    def _counts_events(self) -> bool:
        """True if numbers of events may decide matches: windows of events, and events that follow one another."""
        return True

    def _window_units(self, schema: pa.Schema) -> int | float | None:
        """Return the length of the window, in events or in units of its column, or None if there is no WITHIN."""
        return None

    def _with_aggregate_of(self, options: EvaluationOptions) -> Self:
        """Return the query whose output "count" shows the aggregate of the options, if there is one."""
        return self

    @abstractmethod
    def output_schema(self, schema: pa.Schema, output: str | None = None) -> pa.Schema:
        """Return the schema of its results over events of a schema; raises QueryTypeError if it does not match."""

    def _new_execution(self, options: EvaluationOptions, sharing: SharedState | None = None) -> QueryExecution:
        """Return an execution of the query."""
        return self.compiled._new_execution(options, sharing)

    def _watching(self, options: EvaluationOptions) -> ForecastEvaluator:
        options.check_time(self.time_column)
        return ForecastEvaluator(self, options)

    def _watched_again(self, blob: bytes, forecast: Any) -> ForecastEvaluator:
        return ForecastEvaluator.restored(self, blob, forecast)

    def _new_evaluator(self, options: EvaluationOptions, result_formatter: ResultFormatter | None = None) -> Evaluator:
        return Evaluator(self._new_execution(options), options, result_formatter)

    def _match_source(self, source: Source, evaluator: Evaluator, threads: int | None = 1) -> Iterator[pa.RecordBatch]:
        """Yield the matches of a source, as `_find_matches` does."""
        for _, rows in self._find_matches(source, evaluator, threads):
            yield rows

    def _reader(self, events: Any, options: EvaluationOptions) -> pa.RecordBatchReader:
        query, evaluator = self._with_aggregate_of(options), self._checked_evaluator(options)
        needs = partial(query._file_pruning, output=options.output)
        source = query._open_source(events, sort=options.sort, resident=True, needs=needs)
        schema = query.output_schema(source.schema, options.output)
        matches = self._match_source(source, evaluator, options.threads)
        return pa.RecordBatchReader.from_batches(schema, _with_warnings(matches, evaluator))

    @accepts_options(OF_EVENTS)
    def evaluate(self, events: Any, options: EvaluationOptions) -> pa.Table:
        """Find all matches, as `cer_gpu.Query.evaluate`."""
        return reading_again(lambda source: self._reader(source, options).read_all(), events)

    @accepts_options(OF_EVENTS)
    def stream(self, events: Any, options: EvaluationOptions) -> pa.RecordBatchReader:
        """Find all matches batch by batch, in bounded memory where the query allows it.

        Parameters and errors as in `evaluate`; the events are read while the reader is.

        Returns
        -------
        pyarrow.RecordBatchReader
            Closed by ``close()`` or at the end of a ``with`` block.

        Examples
        --------
        >>> import cer_gpu, pyarrow as pa
        >>> query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
        >>> with query.stream(pa.table({"type": ["A", "B", "B"]})) as reader:
        ...     print(sum(batch.num_rows for batch in reader))
        2
        """
        return self._reader(events, options)

    @accepts_options(OF_COUNTS)
    def count(self, events: Any, options: EvaluationOptions) -> int:
        """Return the number of matches, without listing them where that can be spared.

        Parameters as in `evaluate`, without `output`, `limit` and `aggregate`; with HAVING, the matches that
        pass are counted, and of MATCH_RECOGNIZE, the rows.
        """
        counted = replace(options, output=self._counted_output)

        def count(source: Any) -> int:
            with self._reader(source, counted) as reader:
                return sum(number_in(batch, self._counted_output) for batch in reader)

        return reading_again(count, events)

    @options_by_name
    def fit(
        self,
        history: Any,
        within: WithinLengths,
        order: int = 2,
        *,
        ages: int = 4,
        min_cases: int = 200,
        sort: Sort = False,
        lateness: Lateness | None = None,
        late: str = "raise",
        device: str = "auto",
    ) -> Forecast:
        """Learn from a history how long it takes from each state of the query until a match ends.

        A state of a substream is the furthest step that is live, the age of the youngest partial match there, and the
        last events, by the guards of the query that they satisfy (docs/guides/forecasts.md).

        Parameters
        ----------
        history
            Anything that `evaluate` takes.
        within
            The lengths within which a match may end, in time (``"10 minutes"``, ``"1 hour"``, a timedelta) or in
            events of the substream (``"100 events"``): one, or a list.
        order
            Number of the last events that a state distinguishes, at most 6.
        ages
            Number of classes of the age of a partial match, at most 8.
        min_cases
            Minimum number of events of the history for a state to count by itself; else the state above it is used.
        sort, lateness, late, device
            As of `cer_gpu.EvaluationOptions`.

        Returns
        -------
        Forecast

        Raises
        ------
        OptionError
            When a length cannot be read, or the query cannot be forecast: MATCH_RECOGNIZE, and a pattern that ends with
            an absence.
        CerError
            As `evaluate`.

        Examples
        --------
        >>> import cer_gpu, pyarrow as pa
        >>> query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
        >>> query.fit(pa.table({"type": ["A", "B"] * 500}), within="1 event")
        <Forecast of 1 event: 1,000 events, 500 ends, 2 states>
        """
        options = EvaluationOptions(sort=sort, lateness=lateness, late=late, device=device)
        return fit_forecasts({"": self}, history, FitRequest(within, order, ages, min_cases), options)[""]


def number_in(batch: pa.RecordBatch, counted_output: str | None) -> int:
    """Return the number of matches that a batch of results reports."""
    return batch.num_rows if counted_output is None else exact_sum(batch.column("count"))
