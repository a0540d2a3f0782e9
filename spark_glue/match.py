"""A query over a DataFrame, spread over the tasks of a job, with exactly the rows of a single process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cer_gpu.errors import OptionError, QueryTypeError, did_you_mean
from spark_glue.deal import PART, POSITION, Task, choose
from spark_glue.stage import match_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from cer_gpu.query import Query

SAMPLES = 10_000
"""Accuracy of the quantiles that cut the stream into ranges of like size: the error is 1 in so many."""


def match(
    df: Any,
    query: Query | None = None,
    *,
    order_by: str | Sequence[str],
    strategy: str = "auto",
    tasks: int | None = None,
    output: str = "events",
) -> Any:
    """Find all complex events of a DataFrame.

    Parameters
    ----------
    df : DataFrame
        The events. Left out, the function that takes it is returned: ``df.transform(match(query, order_by="ts"))``.
    query : Query
        What `cer_gpu.compile` returned. It travels to the workers as it is.
    order_by
        The columns that order the stream; the first is a timestamp, date or number.  Rows that agree on all of them are
        ordered by their other columns, so that the result does not depend on how the rows are stored.
    strategy
        "partition", "range", "replicate" (see `spark_glue.deal`), or "auto": the first of them that
        is exact for the query.
    tasks
        How many parts; None: as many as the session runs at once.
    output
        As for ``query.evaluate``.

    Returns
    -------
    DataFrame
        The rows of ``query.evaluate``, in any order. Positions count the rows of the whole stream in its order.
        Counting them, and finding where ranges begin, reads the ordering columns at once; the rest is done when the
        result is asked for.

    Raises
    ------
    OptionError
        For a strategy that is not exact for the query: with the reason, and one that is.
    CerError
        If the query does not fit the DataFrame.
    """
    options: dict[str, Any] = {"order_by": order_by, "strategy": strategy, "tasks": tasks, "output": output}
    if query is None:
        return partial(_match_with, df, options)
    return _match(df, query, **options)


def _match_with(query: Query, options: dict[str, Any], df: DataFrame) -> DataFrame:
    return _match(df, query, **options)


def _match(
    df: DataFrame, query: Query, order_by: str | Sequence[str], strategy: str, tasks: int | None, output: str
) -> DataFrame:
    order = [order_by] if isinstance(order_by, str) else list(order_by)
    _check_order(df, order)
    chosen, _ = choose(query, strategy)
    schema = match_schema(query, df, output=output)
    n_parts = tasks or df.sparkSession.sparkContext.defaultParallelism
    if n_parts < 1:
        raise OptionError(f"tasks must be a positive number, got {tasks!r}")
    columns = query.columns(_arrow_schema(df), output)
    numbered, n_rows = _numbered(df, order, columns, n_parts)
    dealt, firsts = _dealt(numbered, query, chosen, order[0], n_parts, n_rows)
    task = Task(query, output, chosen, firsts, n_parts)
    parts = dealt.repartition(n_parts, PART).sortWithinPartitions(PART, POSITION)
    return parts.select(PART, POSITION, *map(_quoted, columns)).mapInArrow(task, schema)


def _arrow_schema(df: DataFrame) -> pa.Schema:
    from spark_glue import schema

    return schema.to_arrow(df.schema)


def _check_order(df: DataFrame, order: list[str]) -> None:
    for name in order:
        if name not in df.columns:
            hint = did_you_mean(name, df.columns, "columns")
            raise QueryTypeError(f"order_by names {name!r}, which the events do not have", hint=hint)
    for name in (POSITION, PART):
        if name in df.columns:
            raise QueryTypeError(f"the events have a column {name!r}, a name that is needed here", hint="rename it")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _key(df: DataFrame, name: str) -> Column:
    """Return an ordering column as a number that ascends with it: microseconds or days of times."""
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    column, kind = sf.col(_quoted(name)), df.schema[name].dataType
    if isinstance(kind, st.TimestampType):
        return sf.unix_micros(column)
    if isinstance(kind, st.TimestampNTZType):  # by its parts, as no time zone must come into it
        minutes = (sf.unix_date(column.cast("date")).cast("long") * 24 + sf.hour(column)) * 60 + sf.minute(column)
        return minutes * 60_000_000 + (sf.date_part(sf.lit("SECOND"), column) * 1_000_000).cast("long")
    if isinstance(kind, st.DateType):
        return sf.unix_date(column)
    if isinstance(kind, st.NumericType):
        return column
    raise QueryTypeError(
        f"the stream is ordered by {name!r} first, which is {kind.simpleString()}",
        hint="expected a timestamp, a date or a number",
    )


def _numbered(df: DataFrame, order: list[str], columns: list[str], n_parts: int) -> tuple[DataFrame, int]:
    """Return the rows with their positions, and how many there are: one pass that counts, and one shuffle."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    key = _key(df, order[0])
    if df.filter(key.isNull()).limit(1).count():
        raise QueryTypeError(f"the stream is ordered by {order[0]!r}, which is NULL in some rows")
    shares = [k / n_parts for k in range(1, n_parts)]
    found = df.agg(sf.percentile_approx(key, shares, SAMPLES)).collect() if shares else [[None]]
    bounds = sorted(set(found[0][0] or []))
    bucket = sf.lit(0)
    for bound in bounds:
        bucket = bucket + (key >= sf.lit(bound)).cast("int")
    counts = {row[0]: row[1] for row in df.groupBy(bucket.alias("bucket")).count().collect()}
    before, total = [], 0
    for number in range(len(bounds) + 1):
        before.append(total)
        total += counts.get(number, 0)
    ties = [name for name in columns if name not in order and _orderable(df, name)]
    window = Window.partitionBy(bucket).orderBy(*map(_quoted, [*order, *ties]))
    offset = sf.element_at(sf.array(*map(sf.lit, before)), bucket + 1)
    position = (sf.row_number().over(window) - 1 + offset).cast("long")
    kept = list(dict.fromkeys([*order[:1], *columns]))
    return df.select(position.alias(POSITION), *map(_quoted, kept)), total


def _orderable(df: DataFrame, name: str) -> bool:
    from pyspark.sql import types as st

    return isinstance(df.schema[name].dataType, st.AtomicType)


def _dealt(
    df: DataFrame, query: Query, strategy: str, order: str, n_parts: int, n_rows: int
) -> tuple[DataFrame, tuple[int, ...]]:
    """Return the rows with the part that each goes to, once for each part, and where the parts of a range begin."""
    from pyspark.sql import functions as sf

    if strategy == "replicate":
        return df.withColumn(PART, sf.explode(sf.sequence(sf.lit(0), sf.lit(n_parts - 1)))), ()
    if strategy == "partition":
        keys = [sf.coalesce(*(sf.col(_quoted(name)) for name in names)) for names in query.clauses.keys]
        complete = df
        for key in keys:
            complete = complete.filter(key.isNotNull())
        # equal keys have equal hashes: -0.0 is 0.0, and there is one NaN
        return complete.withColumn(PART, sf.pmod(sf.xxhash64(*keys), sf.lit(n_parts)).cast("int")), ()
    firsts = tuple(k * n_rows // n_parts for k in range(n_parts))
    begins = _window_begins(df, query, order, firsts)
    own = sf.lit(-1)
    for first in firsts:
        own = own + (sf.col(POSITION) >= sf.lit(first)).cast("int")
    parts = sf.sequence(own, sf.lit(n_parts - 1))
    reached = sf.array(*(begin.cast("boolean") for begin in begins))
    wanted = sf.filter(parts, lambda part: (part == own) | sf.element_at(reached, part + 1))
    return df.withColumn(PART, sf.explode(wanted)), firsts


def _window_begins(df: DataFrame, query: Query, order: str, firsts: tuple[int, ...]) -> list[Column]:
    """Return for each range whether a row lies in the window before it (or after its begin)."""
    from pyspark.sql import functions as sf

    length = query.window_units(_arrow_schema(df))
    assert length is not None
    if query.clauses.window == "events":
        return [sf.col(POSITION) >= sf.lit(first - int(length)) for first in firsts]
    name = query.clauses.window_column or order
    key = _key(df, name)
    found = {
        row[0]: row[1]
        for row in df.filter(sf.col(POSITION).isin(list(set(firsts)))).select(POSITION, key.alias("key")).collect()
    }
    return [key >= sf.lit(found[first]) - sf.lit(length) if first in found else sf.lit(False) for first in firsts]
