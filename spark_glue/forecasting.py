"""Forecasts on Spark: learned by all tasks, whose counts add up, and given as a stage of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.columns import numbers_of
from cer_gpu.engine.evaluation_options import EvaluationOptions, options_by_name
from cer_gpu.errors import OptionError
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.forecast.fitting import FitRequest, HistoryPart, Learning, joined_parts
from cer_gpu.forecast.model import AT, Forecast, WithinLengths
from cer_gpu.forecast.reading import follow_all
from cer_gpu.forecast.watching import ForecastEvaluator
from spark_glue.match import check_order
from spark_glue.row_positions import quoted
from spark_glue.sessions import job_description, short, tasks_at_once
from spark_glue.stage import plain_batch, refuse_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_POSITIONS = ("position", "start")
"""Columns of forecasts that are left out: a task does not know the positions of its rows in the whole stream."""


@options_by_name
def fit(
    events: DataFrame,
    query: CompiledQuery,
    within: WithinLengths,
    order: int = 2,
    *,
    order_by: str | Sequence[str],
    ages: int = 4,
    min_cases: int = 200,
    tasks: int | None = None,
) -> Forecast:
    """Learn a forecast from a DataFrame, as `cer_gpu.Query.fit` does from the same rows.

    With PARTITION BY, rows are distributed to the tasks by their keys, and the counts of the tasks are added up; a
    query that is not exact by key, or has none, is learned by one task.  A job before that reads the time column alone,
    for the end of the history.

    Parameters
    ----------
    events
    query, within, order, ages, min_cases
        As in `cer_gpu.Query.fit`.
    order_by
        The columns that order the stream, the time column first.
    tasks
        Number of tasks; None for as many as the session runs at once.

    Raises
    ------
    OptionError, QueryTypeError
        As `cer_gpu.Query.fit`, and for an order that does not begin with the time column.
    """
    from spark_glue.schema import to_arrow

    request = FitRequest(within, order, ages, min_cases)
    by = _order(events, query, order_by)
    learning = Learning(query, to_arrow(events.schema), request)
    until: int | None = None
    with job_description(events.sparkSession, f"{short(query.text)}: learn"):
        if query.time_column is not None:
            ends = events.select(quoted(query.time_column)).mapInArrow(_last_times, "last long").collect()
            until = max((row["last"] for row in ends), default=None)
        rows = (
            _distribute_by_key(events, query, by, tasks)
            .mapInArrow(LearningStage(query, request, until), "part binary")
            .collect()
        )
    if not rows:
        return learning.forecast(learning.part())
    return learning.forecast(joined_parts([HistoryPart.from_bytes(bytes(row["part"])) for row in rows], order))


@options_by_name
def forecast(
    events: DataFrame,
    model: Forecast,
    *,
    order_by: str | Sequence[str],
    at: str = "last",
    threshold: float | None = None,
    tasks: int | None = None,
) -> DataFrame:
    """Forecast matches after the rows of a DataFrame.

    Parameters
    ----------
    events
        All events of each substream, from a point on at which nothing is under way.
    model
    order_by
        The columns that order the stream, the time column first.
    at, threshold
        As of `forecast_stage`.
    tasks
        Number of tasks; None for as many as the session runs at once.

    Returns
    -------
    DataFrame
        The rows of `cer_gpu.Forecast.forecast` without ``position`` and ``start``, in any order.
    """
    by = _order(events, model.query, order_by)
    distributed = _distribute_by_key(events, model.query, by, tasks)
    stage = ForecastStage(model, _check_output(at, threshold), threshold)
    return distributed.mapInArrow(stage, forecast_schema(model, events, at=at))


@options_by_name
def forecast_stage(model: Forecast, *, at: str = "events", threshold: float | None = None) -> _Stage:
    """Return a function for ``df.mapInArrow(forecast_stage(model), forecast_schema(model, df))``.

    The rows of each partition are in the order of time; with PARTITION BY, all rows of a key are in one partition, and
    otherwise all rows are.  `forecast` distributes and sorts them so.

    Parameters
    ----------
    model
        Result of `fit` or `cer_gpu.Query.fit`, pickled to the workers.
    at
        As of `cer_gpu.Forecast.forecast`.
    threshold
        Give the events alone after which a probability first passes it, as ``query.evaluator(forecast=model,
        threshold=...)`` does, or None for all that `at` requests.

    Raises
    ------
    OptionError
        For another `at`, or a threshold with one other than "events".
    StreamSplitError
        On the worker: for a streaming DataFrame, and for several partitions of a query without keys.
    """
    return ForecastStage(model, _check_output(at, threshold), threshold)


@options_by_name
def forecast_schema(model: Forecast, df: DataFrame | StructType, *, at: str = "events") -> StructType:
    """Return the schema of the rows of `forecast_stage`, an argument of ``mapInArrow``."""
    from pyspark.sql.types import StructType

    from spark_glue.schema import to_arrow, to_spark

    events = df if isinstance(df, StructType) else df.schema
    schema = model.output_schema(to_arrow(events), at=at)
    return to_spark(pa.schema([field for field in schema if field.name not in _POSITIONS]))


@dataclass(frozen=True)
class LearningStage:
    """Function of a task that counts its rows; a class, because pickle refers to it by name."""

    query: CompiledQuery
    request: FitRequest
    until: int | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the counts of a task, unless it has no rows."""
        read = _reader(batches)
        if read is None:
            return
        learning = Learning(self.query, read.schema, self.request)
        follow_all({"": learning.reader}, self.query._open_source(read), EvaluationOptions())
        part = learning.part(self.until).to_bytes()
        yield pa.record_batch([pa.array([part], pa.binary())], names=["part"])


@dataclass(frozen=True)
class ForecastStage:
    """Function of `forecast_stage`; a class, because pickle refers to it by name."""

    model: Forecast
    at: str
    threshold: float | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the forecasts for the rows of a task."""
        read = _reader(batches)
        if read is None:
            return
        refuse_parts(by_key=is_distributed_by_key(self.model.query))
        for rows in self._passing(read) if self.threshold is not None else self._all(read):
            if rows.num_rows:
                yield plain_batch(_without_positions(rows))

    def _all(self, read: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        return self.model._batches(read, self.at, EvaluationOptions())

    def _passing(self, read: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        options = EvaluationOptions(forecast=self.model, threshold=self.threshold)
        evaluator: ForecastEvaluator = self.model.query.evaluator(
            forecast=options.forecast, threshold=options.threshold
        )
        for batch in read:
            yield evaluator.push(batch)
        yield evaluator.finish()


def is_distributed_by_key(query: Any) -> bool:
    """Return True if the substreams of a query can be distributed to tasks by their keys."""
    return bool(query.partition_keys) and query.distribution_for(None).why_not_keys is None


def _check_output(at: str, threshold: float | None) -> str:
    if at not in AT:
        raise OptionError(f"at must be one of {', '.join(map(repr, AT))}, got {at!r}")
    if threshold is not None and at != "events":
        raise OptionError(f"a threshold is passed after events: at='events', got {at!r}")
    return at


def _order(events: Any, query: CompiledQuery, order_by: str | Sequence[str]) -> tuple[str, ...]:
    by = (order_by,) if isinstance(order_by, str) else tuple(order_by)
    check_order(events.columns, by)
    if query.time_column is not None and by[:1] != (query.time_column,):
        raise OptionError(f"order_by begins with the time column of the query, {query.time_column!r}, got {by!r}")
    return by


def _distribute_by_key(events: DataFrame, query: CompiledQuery, by: tuple[str, ...], tasks: int | None) -> DataFrame:
    """Return the rows distributed to tasks by their keys, or all in one partition, in their order."""
    from pyspark.sql import functions as sf

    if is_distributed_by_key(query):
        keys = [sf.coalesce(*(sf.col(quoted(name)) for name in names)) for names in query.partition_keys]
        n = tasks or tasks_at_once(events.sparkSession)
        distributed = events.repartition(n, sf.xxhash64(*keys))
    else:
        distributed = events.coalesce(1)
    return distributed.sortWithinPartitions(*(quoted(name) for name in by))


def _reader(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader | None:
    """Return the batches of a task, or None if it has no rows."""
    first = next((batch for batch in batches if batch.num_rows), None)
    return None if first is None else pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))


def _without_positions(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select([name for name in rows.schema.names if name not in _POSITIONS])


def _last_times(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the last time of a task, as its number of units."""
    last: int | None = None
    for batch in batches:
        times = numbers_of(batch.column(0).drop_null())
        if len(times):
            latest = int(np.max(times))
            last = latest if last is None else max(last, latest)
    if last is not None:
        yield pa.record_batch([pa.array([last], pa.int64())], names=["last"])
