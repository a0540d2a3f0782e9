"""A query over a DataFrame, spread over the tasks of a job, with exactly the rows of a single process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cer_gpu.errors import OptionError, QueryTypeError, did_you_mean
from cer_gpu.query import Query
from spark_glue.deal import MOST_PARTS, PART, PART_ROWS, PLACE, POSITION, Task, choose, times_beside
from spark_glue.number import ADDED, Cut, Numbered, as_sent, number, quoted, sent
from spark_glue.stage import match_schema
from spark_glue.survey import WHERE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


def match(
    df: Any,
    query: Query | None = None,
    *,
    order_by: str | Sequence[str],
    strategy: str = "auto",
    tasks: int | None = None,
    output: str | None = None,
) -> Any:
    """Find all complex events of a DataFrame.

    Parameters
    ----------
    df : DataFrame
        The events. Without it, `match` returns a function of them: ``df.transform(match(query, order_by="ts"))``.
    query : Query
        Result of `cer_gpu.compile`, pickled to the workers.
    order_by
        The columns that order the stream; the first is a timestamp, date or number.  Rows of Parquet files that agree
        on all of them keep the order of their files (by path); others are ordered by their other columns, so that the
        result does not depend on the order in which they arrive.
    strategy
        "partition", "range", "replicate" (see `spark_glue.deal`), or "auto": the first of them that
        is exact for the query.
    tasks
        Number of parts; None for as many as the session runs at once.
    output
        As for ``query.evaluate``; None: "measures" where SELECT has some, else "events".  The numbers of "rows" are
        unique, and those of one task follow one another.

    Returns
    -------
    DataFrame
        The rows of ``query.evaluate``, in any order. Positions count the rows of the whole stream in its order.
        The call reads the ordering columns, to count the rows and cut them into ranges; the rest runs when the result
        is requested.

    Raises
    ------
    OptionError
        For a strategy that is not exact for the query, with the reason and an exact one.
    CerError
        If the query does not fit the DataFrame.
    """
    options: dict[str, Any] = {"order_by": order_by, "strategy": strategy, "tasks": tasks, "output": output}
    if query is None:
        return partial(_match, df, options)
    return matching(df, query, **options).df


def _match(query: Query, options: dict[str, Any], df: DataFrame) -> DataFrame:
    return matching(df, query, **options).df


def asked_output(query: Query, output: str | None) -> str:
    """Return the output that is asked for; where none is, "measures" if SELECT has some, else "events"."""
    return output or ("events" if query.default_output == "positions" else query.default_output)


@dataclass(frozen=True)
class Matching:
    """Result of `match`, and the way to it.

    Attributes
    ----------
    df
        The complex events.
    strategy, reason
        The strategy, and the reason for it.
    n_parts
    n_rows
        Number of rows in the stream.
    was_in_order
        True if the rows needed no sort to be numbered.
    """

    df: DataFrame
    strategy: str
    reason: str
    n_parts: int
    n_rows: int
    was_in_order: bool


def matching(
    df: DataFrame,
    query: Query,
    *,
    order_by: str | Sequence[str],
    strategy: str = "auto",
    tasks: int | None = None,
    output: str | None = None,
    report: Any = None,
    check: Callable[[StructType], None] = lambda schema: None,
) -> Matching:
    """Find the complex events as `match` does, and return them with the way to them.

    `report` is that of `spark_glue.deal.Task`; `check` is called with the schema of the result before any row is read.
    """
    from pyspark.sql import functions as sf

    from spark_glue.schema import to_arrow

    if not isinstance(query, Query):
        raise OptionError(
            f"expected a compiled query, got {type(query).__name__}\nhint: cer_gpu.compile(text, time_column=...)"
        )
    order = [order_by] if isinstance(order_by, str) else list(order_by)
    if not order:
        raise OptionError("order_by names no column: expected those that order the stream, such as order_by='ts'")
    check_order(df, order)
    chosen, reason = choose(query, strategy, order[0])
    schema = match_schema(query, df, output=asked_output(query, output))
    check(schema)
    n_parts = df.sparkSession.sparkContext.defaultParallelism if tasks is None else tasks
    if n_parts < 1:
        raise OptionError(f"tasks must be a positive number, got {tasks!r}")
    if n_parts > MOST_PARTS:
        raise OptionError(f"at most {MOST_PARTS:,} tasks, got {n_parts:,}")
    output = asked_output(query, output)
    events = to_arrow(df.schema)
    columns = query.columns(events, output)
    numbered = number(df, order, columns, n_parts, _cut(query, events, order) if chosen == "range" else None)
    firsts = numbered.ranges.firsts if numbered.ranges else ()
    task = Task(query, output, chosen, tuple(columns), firsts, n_parts, report)
    dealt = _dealt(numbered, query, columns, chosen, n_parts, _needed(query, order[0]))
    place = (sf.col(quoted(PART)).cast("long") * PART_ROWS + sf.col(quoted(POSITION))).alias(PLACE)
    dealt = dealt.select(place, PART, *sent(columns))
    if hasattr(dealt, "repartitionById"):  # since Spark 4.1; two parts that hash alike share a task before
        parts = dealt.repartitionById(n_parts, PART)
    else:
        parts = dealt.repartition(n_parts, PART)
    found = parts.drop(PART).sortWithinPartitions(PLACE).mapInArrow(task, schema)
    return Matching(found, chosen, reason, n_parts, numbered.n_rows, numbered.was_in_order)


def _cut(query: Query, events: pa.Schema, order: list[str]) -> Cut:
    length = query.window_units(events)
    assert length is not None
    return Cut(None if query.window_kind == "events" else query.window_attribute or order[0], length)


def check_order(df: DataFrame, order: Sequence[str]) -> None:
    """Refuse ordering columns that the events lack, and events with a column of a reserved name.

    Raises
    ------
    QueryTypeError
        With the nearest name as the hint.
    """
    for name in order:
        if name not in df.columns:
            hint = did_you_mean(name, df.columns, "columns")
            raise QueryTypeError(f"order_by (--order-by) names {name!r}, which the events do not have", hint=hint)
    for name in ADDED:
        if name in df.columns:
            raise QueryTypeError(f"the events have a column {name!r}, a name that is needed here", hint="rename it")


def _needed(query: Query, first: str) -> tuple[str, ...] | None:
    """Return the types of events that tasks need, or None for all.

    Irrelevant events must be in order, too; a sort by the time column ensures that without sending them.
    """
    return None if times_beside(query, first) else query.needed_types


def _shared_value(df: DataFrame, query: Query, columns: Sequence[str]) -> Column:
    """Return the value that all events of a complex event share (`Dealing.shared`); NULL for events that have none.

    Equal values are equal here; unequal ones may be, too.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import NumericType

    found = []
    for event_type, name in query.physical_plan().dealing.shared:
        value = as_sent(name, columns)
        if isinstance(df.select(value).schema[0].dataType, NumericType):
            value = value.cast("double")
        if event_type is not None:
            assert query.type_column is not None
            value = sf.when(as_sent(query.type_column, columns) == event_type, value)
        found.append(value)
    return sf.coalesce(*found)


def _dealt(
    numbered: Numbered,
    query: Query,
    columns: Sequence[str],
    strategy: str,
    n_parts: int,
    types: tuple[str, ...] | None,
) -> DataFrame:
    """Return the rows of the given types with the part that each goes to, a copy for each of its parts."""
    from pyspark.sql import functions as sf

    df = numbered.df
    if types is not None:
        assert query.type_column is not None
        df = df.filter(as_sent(query.type_column, columns).isin(*types))
    if strategy == "replicate":
        return df.withColumn(PART, sf.explode(sf.sequence(sf.lit(0), sf.lit(n_parts - 1))))
    if strategy == "partition":
        keys = [sf.coalesce(*(as_sent(name, columns) for name in names)) for names in query.keys]
        keys = keys or [_shared_value(numbered.df, query, columns)]
        for key in keys:
            df = df.filter(key.isNotNull())
        # equal keys have equal hashes: -0.0 is 0.0, and there is one NaN
        return df.withColumn(PART, sf.pmod(sf.xxhash64(*keys), sf.lit(n_parts)).cast("int"))
    assert numbered.ranges is not None
    own, found = numbered.range_of, numbered.ranges
    if not found.reach:
        return df.withColumn(PART, own)
    begins = sf.array(*map(sf.lit, found.begins))
    later = sf.sequence(own, sf.least(own + found.reach, sf.lit(n_parts - 1)))
    wanted = sf.filter(later, lambda part: (part == own) | (sf.element_at(begins, part + 1) <= sf.col(WHERE)))
    return df.withColumn(PART, sf.explode(wanted))
