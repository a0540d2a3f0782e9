"""A query over a streaming DataFrame, as an operator with state."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cer_gpu.ceql.paths import dotted
from cer_gpu.engine.evaluation_options import options_by_name
from cer_gpu.errors import OptionError, QueryTypeError, did_you_mean
from spark_glue.distribution import MAX_SHARDS, why_not_distributions
from spark_glue.errors import SparkSetupError
from spark_glue.local_session import ROCKSDB, STATE_STORE, package_folders
from spark_glue.row_positions import order_key, part_of_key, quoted, wire_names
from spark_glue.sessions import is_connect
from spark_glue.stage import plain_schema
from spark_glue.streaming.stream_evaluation import (
    BLOB,
    GROUP,
    PACKED,
    Pack,
    StreamEvaluation,
    Unpack,
    microseconds,
)
from spark_glue.work import Work, work_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TIME = "$time"
"""Column of the watermark."""
MAX_DEFAULT_GROUPS = 64
"""Number of groups unless one is given: the state of each is read and written at each micro-batch."""


@options_by_name
def match_stream(
    stream_df: DataFrame,
    query: Any,
    *,
    order_by: str | Sequence[str] = "ts",
    lateness: Any = "10s",
    output: str | None = None,
    groups: int | None = None,
) -> DataFrame:
    """Find the matches of a streaming DataFrame, in append mode.

    The state of the query is Spark's state, so that rows are written exactly once by the sinks that Spark does that
    for, whatever is killed meanwhile.

    Parameters
    ----------
    stream_df : DataFrame
        The events, from any streaming source.
    query : Query or QuerySet
        Result of `cer_gpu.compile` or `cer_gpu.compile_all`; its time column, if it has one, is the first of
        `order_by`.
    order_by
        The columns that order the stream, the first of them a timestamp without NULL.  Events of one micro-batch that
        agree on all of them are ordered by all other columns that the query reads, and come after those with the same
        time of the micro-batches before.
    lateness
        Time by which events may come late: the delay of Spark's watermark ("10s", a timedelta).  An event is left out
        if the watermark has passed its time where its group was evaluated, or an earlier micro-batch has an event of
        the group that is later by more than this.
    output
        As for ``query.evaluate``; by default (None) "measures" where SELECT has some, else "events".
    groups
        Number of groups to which the events are distributed by their keys: no more tasks than that have work.  It must
        stay the same for the life of a checkpoint.  By default (None) as many as `spark.sql.shuffle.partitions`, 64 at
        most; one if the query is not exact by key, with a warning.

    Returns
    -------
    DataFrame
        The columns of `match`.  Positions number the events of a group, from 0, in the order of evaluation.

    Raises
    ------
    OptionError
        For a DataFrame that does not stream, for several groups where the query is not exact by key, and for a query
        whose time is another column.
    QueryTypeError
        When the query does not match the events, or `order_by` names no timestamp.
    SparkSetupError
        When the session does not store state in RocksDB, or Spark is too old.

    Warns
    -----
    UserWarning
        When one task evaluates everything, and ``groups=1`` did not ask for it.
    """
    from spark_glue.schema import to_arrow, to_spark

    work = endless_work(query, output)
    if not stream_df.isStreaming:
        raise OptionError("expected a streaming DataFrame (spark.readStream)\nhint: match(df, query, order_by=...)")
    order = check_stream_order(stream_df, work, order_by)
    delay = microseconds(lateness)
    n_groups = _n_groups(stream_df, work, order, groups)
    events = to_arrow(stream_df.schema)
    work = endless_work(query, output, events)
    match_schema = plain_schema(work.output_schema(events))
    _check_session(stream_df)
    columns = read_columns(work, events, order)
    df = stream_df.select(
        *(_order_column(name).alias(alias) for name, alias in zip(columns, wire_names(columns), strict=True))
    )
    _show_packages(stream_df)
    pack = Pack(to_arrow(df.schema), tuple(columns), order[0])
    time = _instant(df, wire_names(columns)[columns.index(order[0])]).alias(TIME)
    df = df.select(time, *map(quoted, wire_names(columns))).withWatermark(
        quoted(TIME), f"{-(-delay // 1000)} milliseconds"
    )
    groups_ = df.select(_group(df, work, columns, n_groups).alias(GROUP), *map(quoted, wire_names(columns)))
    evaluation = StreamEvaluation(work, match_schema, tuple(order), delay, n_groups)
    grouped = groups_.mapInArrow(pack, PACKED).groupBy(GROUP)
    if not hasattr(grouped, "transformWithStateInPandas"):
        raise SparkSetupError("match_stream needs Spark 4 or later\nhint: match_batches, or pip install -U pyspark")

    from spark_glue.streaming.processor import GroupProcessor

    processor = GroupProcessor(evaluation, pack.packed, match_schema)
    state = grouped.transformWithStateInPandas(processor, f"{BLOB} binary", "Append", "EventTime")
    return state.mapInArrow(Unpack(match_schema), to_spark(match_schema))


def _show_packages(df: DataFrame) -> None:
    """Let the worker that Spark starts beside the driver, before the first micro-batch, import these packages.

    Spark gives the files of ``--py-files`` to all workers but this one, which has the environment of a function.
    """
    if is_connect(df):
        return
    context = df.sparkSession.sparkContext
    path = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    missing = [folder for folder in package_folders() if folder not in path]
    if missing:
        context.environment["PYTHONPATH"] = os.pathsep.join([*filter(None, path), *missing])


def explain_stream(query: Any, order_by: str | Sequence[str] = "ts") -> str:
    """Return as text how `match_stream` distributes the events of a query to tasks, with the reason."""
    order = [order_by] if isinstance(order_by, str) else list(order_by)
    work = endless_work(query)
    reason = why_not_distributions(work, order[0])["key"]
    if reason is not None:
        return f"one task: {reason}"
    names = [dotted(name) for names in work.partition_keys for name in names]
    names = names or [dotted(name) for _, name in work.distribution.shared]
    return f"groups of events by {', '.join(dict.fromkeys(names))}, each with an evaluator and a state of its own"


def check_stream_order(df: DataFrame, work: Work, order_by: str | Sequence[str]) -> list[str]:
    """Return the columns that order a stream.

    Raises
    ------
    OptionError
        When there are none, or the query measures time by another column than the first.
    QueryTypeError
        When the events lack one, one has nested values, or the first is no timestamp.
    """
    from pyspark.sql.types import AtomicType, TimestampNTZType, TimestampType

    order = [order_by] if isinstance(order_by, str) else list(order_by)
    if not order:
        raise OptionError("order_by names no column: expected those that order the stream, such as order_by='ts'")
    for name in order:
        if name not in df.columns:
            raise QueryTypeError(
                f"order_by names {name!r}, which the events do not have", hint=did_you_mean(name, df.columns, "columns")
            )
        if not isinstance(df.schema[name].dataType, AtomicType):
            nested = df.schema[name].dataType.simpleString()
            raise QueryTypeError(f"order_by names {name!r}, which is {nested}: it has no order")
    kind = df.schema[order[0]].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise QueryTypeError(
            f"the stream is ordered by {order[0]!r} first, which is {kind.simpleString()}",
            hint="expected a timestamp, as Spark's watermarks need it",
        )
    if work.time_column not in (None, order[0]):
        raise OptionError(
            f"the time of the query is {work.time_column!r}, and the stream is ordered by {order[0]!r}\n"
            f"hint: order_by={work.time_column!r}, or cer_gpu.compile(text, time_column={order[0]!r})"
        )
    return order


def endless_work(query: Any, output: str | None = None, schema: pa.Schema | None = None) -> Work:
    """Return the work of queries over a stream that never ends.

    Raises
    ------
    OptionError
        When a query reads whole tables.
    """
    work = work_of(query, output, schema=schema)
    if not work.endless:
        raise OptionError("MATCH_RECOGNIZE reads the whole table, and a stream never ends\nhint: match(df, query, ...)")
    return work


def read_columns(work: Work, events: pa.Schema, order: Sequence[str]) -> list[str]:
    """Return the columns and fields that are sent to Python: of the queries and of the order."""
    return list(dict.fromkeys([*work.columns(events), *order]))


def _n_groups(df: DataFrame, work: Work, order: Sequence[str], groups: int | None) -> int:
    reason = why_not_distributions(work, order[0])["key"]
    if groups is None:
        if reason is not None:
            warnings.warn(f"one task evaluates the whole stream: {reason}; groups=1 says so", stacklevel=3)
            return 1
        return min(int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1), MAX_DEFAULT_GROUPS)
    if type(groups) is not int or not 0 < groups <= MAX_SHARDS:
        raise OptionError(f"groups must be a number from 1 to {MAX_SHARDS:,}, got {groups!r}")
    if groups > 1 and reason is not None:
        raise OptionError(f"{groups} groups would not give the rows of a single process: {reason}\nhint: groups=1")
    return groups


def _check_session(df: DataFrame) -> None:
    provider = df.sparkSession.conf.get(STATE_STORE, None)
    if provider is None or not provider.endswith("RocksDBStateStoreProvider"):
        raise SparkSetupError(
            f"the state of match_stream must be kept in RocksDB, and {STATE_STORE} is {provider}\n"
            f"hint: spark.conf.set({STATE_STORE!r}, {ROCKSDB!r})"
        )


def _order_column(name: str) -> Column:
    from pyspark.sql import functions as sf

    return sf.col(quoted(name))


def _instant(df: DataFrame, name: str) -> Column:
    """Return a time as an instant, which Spark wants for a watermark; one without a zone as if it were UTC."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import TimestampType

    column = sf.col(quoted(name))
    if isinstance(df.schema[name].dataType, TimestampType):
        return column
    return sf.timestamp_micros(order_key(df, name))


def _group(df: DataFrame, work: Work, columns: Sequence[str], n_groups: int) -> Column:
    """Return the group of each event; NULL for events that no match can hold."""
    from pyspark.sql import functions as sf

    if n_groups == 1:
        return sf.lit(0).cast("int")
    return part_of_key(df, work, columns, n_groups)
