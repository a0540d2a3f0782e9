"""Order of the rows of a DataFrame: what sorts them, the ranges of their stream, and their positions in it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from cer_gpu.ceql.paths import dotted, names_of, path_of
from cer_gpu.errors import QueryTypeError
from spark_glue.distribution import PART, PLACE, POSITION, cut_into_ranges, null_error
from spark_glue.sessions import PARTITIONING, is_connect, java_strings
from spark_glue.survey import (
    BUCKET,
    BUCKET_SHIFT,
    COUNT,
    FILE,
    MAX_INT64,
    MAX_PASSES,
    ROW,
    WHERE,
    BucketCounts,
    Ranges,
    count_by_bucket,
    counts_of,
    max_buckets,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from spark_glue.work import Work

LOCATION = "$location"
"""Column of the place of a row: the number of its file times `LOCATED_ROWS`, plus the row's number there."""
LOCATED_ROWS = 1 << 40
"""Upper bound of the rows of a file."""
ADDED = (POSITION, PART, PLACE, FILE, ROW, LOCATION, WHERE)
"""Columns that are added to the events before the tasks evaluate them."""


@dataclass(frozen=True)
class Numbered:
    """Rows of a stream with their positions.

    Attributes
    ----------
    df
        The columns that are read, as `wire_names` names them, and `POSITION`; and `WHERE`, where there are ranges.
    n_rows
    ranges
        The ranges of the stream, or None unless `number` was given a `cut`.
    range_of
        The range of a row, from 0.
    """

    df: DataFrame
    n_rows: int
    ranges: Ranges | None
    range_of: Column


@dataclass(frozen=True)
class Cut:
    """Window to cut a stream into ranges by.

    Attributes
    ----------
    column
        The column that measures the window, or None for a window of events.
    length
        Length of the window, in events or in units of the column.
    """

    column: str | None
    length: int | float


def number(
    df: DataFrame, order: Sequence[str], columns: Sequence[str], n_parts: int, cut: Cut | None = None
) -> Numbered:
    """Give each row its position.

    Parameters
    ----------
    df
        The events.
    order
        The columns that order the events.
    columns
        The selected columns.
    n_parts
        Number of parts of a sort, and of ranges.
    cut
        The window of the ranges, or None for no ranges.

    Raises
    ------
    QueryTypeError
        If the first column of the order is NULL in some row, or of another type than times and numbers.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    measure = None if cut is None or cut.column is None else order_key(df, cut.column)
    selected = [sf.col(quoted(name)).alias(alias) for name, alias in zip(columns, wire_names(columns), strict=True)]
    if cut is not None:
        selected.append((sf.col(POSITION) if measure is None else measure).alias(WHERE))
    df = located(df)
    counts = count_rows(df, order[0], n_parts)
    firsts = counts.ranges(n_parts, None, by_position=True)
    own = range_of(comparable_key(df, order[0]), values_of_key(df, order[0], firsts.bounds))
    window = Window.partitionBy(PART).orderBy(*(column for _, column in sort_columns(df, order, columns)))
    offset = sf.element_at(sf.array(*map(sf.lit, firsts.firsts)), sf.col(PART) + 1)
    placed = df.withColumn(PART, own)
    if hasattr(placed, "repartitionById"):
        placed = placed.repartitionById(n_parts, PART)
    placed = placed.withColumn(POSITION, (sf.row_number().over(window) - 1 + offset).cast("long"))
    ranges = None
    if cut is not None:
        ranges = cut_into_ranges(firsts.firsts, *_bounds_of_windows(df, own, measure, firsts, counts), cut.length)
    return Numbered(placed.select(POSITION, PART, *selected), counts.n_rows, ranges, sf.col(PART))


def _bounds_of_windows(
    df: DataFrame, own: Column, measure: Column | None, ranges: Ranges, counts: BucketCounts
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return lower and upper bounds of what measures the window in each range."""
    from pyspark.sql import functions as sf

    firsts = ranges.firsts
    if measure is None:
        return firsts, [first - 1 for first in [*firsts[1:], counts.n_rows]]
    least: dict[int, Any] = dict(df.groupBy(own.alias(PART)).agg(sf.min(measure)).collect())
    end = math.inf if any(isinstance(low, float) for low in least.values()) else MAX_INT64
    # a range without values begins with the next one; the evaluation refuses a range of NULLs only
    lows = [end if least.get(k) is None else least[k] for k in range(len(firsts))]
    for k in range(len(lows) - 1, 0, -1):
        lows[k - 1] = min(lows[k - 1], lows[k])
    return lows, [*lows[1:], end]


def count_rows(df: DataFrame, name: str, n_parts: int) -> BucketCounts:
    """Count the rows by the first column of their order, in one pass over it, or a few where values are uneven.

    Raises
    ------
    QueryTypeError
        If the column is NULL in some row, or of another type than times and numbers.
    """
    from pyspark.sql import types as st

    read = df.select(comparable_key(df, name).alias(WHERE))
    floating = isinstance(read.schema[0].dataType, st.DoubleType)
    kinds = {BUCKET_SHIFT: st.IntegerType(), BUCKET: st.LongType(), COUNT: st.LongType()}
    schema = st.StructType([st.StructField(each, kind) for each, kind in kinds.items()])

    def counted(within: Sequence[tuple[int, int]] = ()) -> BucketCounts:
        count = partial(count_by_bucket, n_max=max_buckets(n_parts), within=tuple(within))
        return counts_of(read.mapInArrow(count, schema).toArrow(), floating=floating)

    counts = counted()
    if counts.n_nulls:
        raise null_error(name, counts.n_nulls, counts.n_nulls + counts.n_rows)
    for _ in range(MAX_PASSES - 1):
        wide = counts.too_wide(n_parts) if n_parts > 1 else []
        if not wide:
            break
        counts = counts.refined(counted(wide))
    return counts


def range_of(key: Column, bounds: Sequence[Column]) -> Column:
    """Return the number of bounds at or before a key: a tree of comparisons, as many as its depth for a row."""
    from pyspark.sql import functions as sf

    def between(low: int, high: int) -> Column:
        if low == high:
            return sf.lit(low)
        middle = (low + high) // 2
        return sf.when(key >= bounds[middle], between(middle + 1, high)).otherwise(between(low, middle))

    return between(0, len(bounds))


def comparable_key(df: DataFrame, name: str) -> Column:
    """Return an ordering column as a time, an integer of 64 bits or a float: what `values_of_key` is compared with.

    Raises
    ------
    QueryTypeError
        If it is of another type than times and numbers.
    """
    from pyspark.sql import functions as sf

    key, kind = order_key(df, name), type_name_of(df, sf.col(quoted(name)))
    if kind in ("timestamp", "timestamp_ntz", "date"):
        return sf.col(quoted(name))
    return key.cast("double" if kind in ("float", "double") or type_name_of(df, key) == "decimal" else "long")


def values_of_key(df: DataFrame, name: str, values: Sequence[int | float]) -> list[Column]:
    """Return values of `BucketCounts` as literals of the type of `comparable_key`."""
    from pyspark.sql import functions as sf

    kind = type_name_of(df, sf.col(quoted(name)))
    if kind == "timestamp":
        return [sf.timestamp_micros(sf.lit(value)) for value in values]
    if kind == "timestamp_ntz":
        begin, literals = sf.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'"), []
        for value in values:
            days, micros = divmod(int(value), 86_400_000_000)
            seconds = sf.lit(Decimal(micros).scaleb(-6))
            literals.append(begin + sf.make_dt_interval(sf.lit(days), sf.lit(0), sf.lit(0), seconds))
        return literals
    if kind == "date":
        return [sf.date_from_unix_date(sf.lit(int(value))) for value in values]
    return [sf.lit(value) for value in values]


def type_name_of(df: DataFrame, column: Column) -> str:
    """Return the name of the type of a column."""
    return str(df.select(column).schema[0].dataType.typeName())


def wire_names(columns: Sequence[str]) -> list[str]:
    """Return what the columns that tasks read are called on the way: PySpark itself does not quote names."""
    return [f"${i}" for i in range(len(columns))]


def wire_column(attribute: str, columns: Sequence[str]) -> Column:
    """Return a column, or a field of one, that tasks read, named by `wire_names`."""
    from pyspark.sql import functions as sf

    names, aliases = names_of(attribute), dict(zip(columns, wire_names(columns), strict=True))
    n = next(n for n in range(len(names), 0, -1) if path_of(names[:n]) in aliases)
    return sf.col(quoted(path_of([aliases[path_of(names[:n])], *names[n:]])))


def sort_columns(df: DataFrame, order: Sequence[str], columns: Sequence[str]) -> list[tuple[str | None, Column]]:
    """Return what sorts the rows of a stream, first to last, each with the name of the column that it is, if it is one.

    Rows that agree on the order follow the order of their files, where `located` gives it, and else their other
    columns that are read.
    """
    from pyspark.sql import functions as sf

    ties = [name for name in (LOCATION, FILE, ROW) if name in df.columns]
    ties += [name for name in columns if name not in order]
    return [(name, sf.col(quoted(name))) for name in order] + [_tie(df, name) for name in ties]


def located(df: DataFrame) -> DataFrame:
    """Return the rows with their places in the files, where Spark knows them.

    These are in `LOCATION`, or on Spark Connect the path of the file in `FILE` and the number of the row in `ROW`.
    """
    from pyspark.sql import functions as sf

    if not has_row_positions(df):
        return df
    row, uri = sf.col("_metadata.row_index"), sf.col("_metadata.file_path")
    if is_connect(df):
        # files are in the order of their paths, as in `as_path`, in which a blank is no %20
        path = sf.url_decode(sf.replace(uri, sf.lit("+"), sf.lit("%2B")))
        path = sf.when(uri.startswith("file:"), path).otherwise(uri)
        return df.withColumn(ROW, row).withColumn(FILE, path)
    listed = java_strings(df.sparkSession, df._jdf.inputFiles())
    paths = sorted(listed, key=lambda path: unquote(path) if path.startswith("file:") else path)
    if len(paths) < 2:
        return df.withColumn(LOCATION, row)
    # as rows: PySpark cuts an Arrow table into batches, and fails where the session's batches have no limit
    numbers = [(re.sub("^file:/+", "file:/", path), i * LOCATED_ROWS) for i, path in enumerate(paths)]
    files = sf.broadcast(df.sparkSession.createDataFrame(numbers, f"`{FILE}` string, `{PLACE}` long"))
    # a join that leaves out no row: a file that came after the list was made is an error
    local = sf.concat(sf.lit("file:"), sf.substring(uri, len("file:///"), 1 << 30))
    uri = sf.when(uri.startswith("file:///"), local).otherwise(uri)
    joined = (
        df.withColumn(ROW, row).withColumn(LOCATION, uri).join(files, on=sf.col(LOCATION) == sf.col(FILE), how="left")
    )
    new = sf.raise_error(sf.concat(sf.lit("a file that was not there when the job was planned: "), sf.col(LOCATION)))
    first = sf.when(sf.col(PLACE).isNull(), new.cast("long")).otherwise(sf.col(PLACE))
    return joined.withColumn(LOCATION, first + sf.col(ROW)).drop(FILE, ROW, PLACE)


_KEEP_ROWS = ("Project", "Filter", "SubqueryAlias", "View")
"""Nodes of a plan that pass on rows of a file, and neither join nor generate rows."""


def has_row_positions(df: DataFrame) -> bool:
    """Return True if Spark knows the number of a row in its file; requesting it outright would log an error."""
    if is_connect(df):
        from spark_glue.files.connect import reads_files

        return reads_files(df)
    if _is_cached(df):
        return False
    try:
        plan = df._jdf.queryExecution().analyzed()
        metadata = plan.metadataOutput()
        if metadata.size() != 1 or "row_index" not in metadata.apply(0).dataType().simpleString():
            return False
        return _source(plan) is not None
    except Exception:  # other implementations of DataFrames have other internals
        return False


def without_partitions(df: DataFrame) -> DataFrame:
    """Return a DataFrame with the same rows, without what it does last to their partitions and order, if it can be."""
    if is_connect(df):
        return df
    try:
        java: Any = df._jdf
        plan, cached = java.queryExecution().analyzed(), java.queryExecution().withCachedData()
        own = plan
        while plan.nodeName() in PARTITIONING and plan.nodeName() == cached.nodeName():
            plan, cached = plan.children().apply(0), cached.children().apply(0)
        if plan is own:
            return df
        jvm: Any = df.sparkSession.sparkContext._jvm
        return type(df)(jvm.org.apache.spark.sql.classic.Dataset.ofRows(java.sparkSession(), plan), df.sparkSession)
    except Exception:  # other implementations of DataFrames have other internals
        return df


def is_read_cheaply(df: DataFrame) -> bool:
    """Return True if a pass over some columns reads these from files or from memory, and computes nothing before."""
    return _is_cached(df) or has_row_positions(df)


def _is_cached(df: DataFrame) -> bool:
    """Return True if the rows are read from memory; asking for their places would read the files instead."""
    try:
        source = _source(df._jdf.queryExecution().withCachedData())
        return source is not None and bool(source.nodeName() == "InMemoryRelation")
    except Exception:  # other implementations of DataFrames have other internals
        return False


def _source(plan: Any) -> Any:
    """Return the node of a plan of Spark whose rows, some of them, it passes on, or None if there is no such node."""
    while plan.children().size() == 1 and plan.nodeName() in _KEEP_ROWS:
        plan = plan.children().apply(0)
    return plan if plan.children().size() == 0 else None


def quoted(name: str) -> str:
    """Return the name of a column, or the path of a field, as Spark's expressions write it."""
    return ".".join("`" + each.replace("`", "``") + "`" for each in names_of(name))


def order_key(df: DataFrame, name: str) -> Column:
    """Return an ordering column as a number that ascends with it: microseconds or days of times.

    Raises
    ------
    QueryTypeError
        If it is of another type than times and numbers.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    column = sf.col(quoted(name))
    kind = df.select(column).schema[0].dataType
    if isinstance(kind, st.TimestampType):
        return sf.unix_micros(column)
    if isinstance(kind, st.TimestampNTZType):  # by its parts, independent of any time zone
        minutes = (sf.unix_date(column.cast("date")).cast("long") * 24 + sf.hour(column)) * 60 + sf.minute(column)
        return minutes * 60_000_000 + (sf.date_part(sf.lit("SECOND"), column) * 1_000_000).cast("long")
    if isinstance(kind, st.DateType):
        return sf.unix_date(column)
    if isinstance(kind, st.DecimalType) and kind.precision <= 18:  # in units of the last digit, as window lengths are
        return (column * sf.lit(10**kind.scale)).cast("long")
    if isinstance(kind, st.NumericType):
        return column
    raise QueryTypeError(
        f"the stream is ordered by {dotted(name)!r} first, which is {kind.simpleString()}",
        hint="expected a timestamp, a date or a number",
    )


def _tie(df: DataFrame, name: str) -> tuple[str | None, Column]:
    """Return an expression that orders rows by a column, a nested one by its hash; and the name of a column."""
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    column = sf.col(quoted(name))
    kind = df.select(column).schema[0].dataType
    if isinstance(kind, st.AtomicType):
        return name, column
    return None, sf.lit(0) if "map<" in kind.simpleString() else sf.xxhash64(column)  # maps have no order, and no hash


def part_of_key(df: DataFrame, work: Work, columns: Sequence[str], n_parts: int) -> Column:
    """Return the part of each row by the hash of its key, from 0; NULL for rows that no match can hold.

    Parameters
    ----------
    df, work, columns
        As for `hash_of_key`.
    n_parts
    """
    from pyspark.sql import functions as sf

    return sf.pmod(hash_of_key(df, work, columns), sf.lit(n_parts)).cast("int")


def hash_of_key(df: DataFrame, work: Work, columns: Sequence[str]) -> Column:
    """Return a hash of 64 bits of the key of each row; NULL for rows that no match can hold.

    Parameters
    ----------
    df
        Rows with the columns that the query reads, as `spark_glue.row_positions.wire_names` names them.
    work
        Work with keys of PARTITION BY, or with a shared value (`Distribution.shared`).
    columns
        Columns and fields that are read.
    """
    from pyspark.sql import functions as sf

    keys = [sf.coalesce(*(wire_column(name, columns) for name in names)) for names in work.partition_keys]
    keys = keys or [_shared_value(df, work, columns)]
    nullable = [names in work.nullable_partition_keys for names in work.partition_keys] or [False]
    needed = [key.isNotNull() for key, may_lack in zip(keys, nullable, strict=True) if not may_lack]
    # equal keys have equal hashes: -0.0 is 0.0, and there is one NaN
    return sf.when(reduce(and_, needed, sf.lit(True)), sf.xxhash64(*keys))


def _shared_value(df: DataFrame, work: Work, columns: Sequence[str]) -> Column:
    """Return the value that all events of a match have in common (`Distribution.shared`); NULL for events without one.

    Equal values are equal here; unequal ones may be, too.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import NumericType

    values = []
    for event_type, name in work.distribution.shared:
        value = wire_column(name, columns)
        if isinstance(df.select(value).schema[0].dataType, NumericType):
            value = value.cast("double")
        if event_type is not None:
            assert work.type_column is not None
            value = sf.when(wire_column(work.type_column, columns) == event_type, value)
        values.append(value)
    return sf.coalesce(*values)
