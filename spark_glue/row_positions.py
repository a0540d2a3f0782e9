"""Positions of the rows of a DataFrame in the stream, and ranges of the stream.

Rows that are in order in Parquet files are counted (`spark_glue.survey`); others are sorted, in one shuffle, as are all
on Spark Connect.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cer_gpu.ceql.paths import dotted, names_of, path_of
from cer_gpu.errors import QueryTypeError
from spark_glue.distribution import MAX_INT64, PART, PLACE, POSITION, Ranges, cut_into_ranges, even_ranges, null_error
from spark_glue.sessions import is_connect
from spark_glue.survey import (
    FILE,
    FIRST_COLUMN,
    IN_ORDER_COLUMN,
    LAST_COLUMN,
    LOCATION,
    N_ROWS,
    ROW,
    SURVEY_FILE_ROWS,
    WHERE,
    Stream,
    stream_of_survey,
    survey,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from spark_glue.work import Work

ADDED = (POSITION, PART, PLACE, FILE, ROW, LOCATION, WHERE)
"""Columns that are added to the events before the tasks evaluate them."""

SAMPLES = 10_000
"""Accuracy of the quantiles that cut the stream into ranges of like size: the relative error is 1 / SAMPLES."""


@dataclass(frozen=True)
class Numbered:
    """Rows of a stream with their positions.

    Attributes
    ----------
    df
        The columns that are read, as `wire_names` names them, and `POSITION`; and `WHERE`, where there are ranges.
    n_rows
    presorted
        True if the rows needed no sort.
    ranges
        The ranges of the stream, or None unless `number` was given a `cut`.
    range_of
        The range of a row, from 0.
    """

    df: DataFrame
    n_rows: int
    presorted: bool
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
    from pyspark.sql import functions as sf

    key = order_key(df, order[0])
    measure = None if cut is None or cut.column is None else order_key(df, cut.column)
    selected = [sf.col(quoted(name)).alias(alias) for name, alias in zip(columns, wire_names(columns), strict=True)]
    if cut is not None:
        selected.append((sf.col(POSITION) if measure is None else measure).alias(WHERE))
    located = None if is_connect(df) else _with_locations(df)
    if located is None:
        df = located_by_path(df)
    else:
        decimal = "decimal" in df.schema[order[0]].dataType.simpleString()
        same = cut is None or (cut.column == order[0] and not decimal)
        stream = _stream(located, order, None if same else measure)
        if stream is not None:
            numbered = _with_counted_positions(located, stream).select(POSITION, *selected)
            ranges = None if cut is None else even_ranges(stream, n_parts, cut.length, by_position=measure is None)
            own = sf.expr(f"CAST({quoted(POSITION)} * {n_parts} DIV {max(stream.n_rows, 1)} AS int)")
            return Numbered(numbered, stream.n_rows, True, ranges, own)
        df = located
    placed, lows, highs, firsts, n_rows = _sort_into_ranges(df, key, order, columns, n_parts, measure)
    numbered = placed.select(POSITION, PART, *selected)
    ranges = None
    if cut is not None:
        ranges = cut_into_ranges(firsts, lows, highs, cut.length)
    return Numbered(numbered, n_rows, False, ranges, sf.col(PART))


def wire_names(columns: Sequence[str]) -> list[str]:
    """Return what the columns that tasks read are called on the way: PySpark itself does not quote names."""
    return [f"${i}" for i in range(len(columns))]


def wire_column(attribute: str, columns: Sequence[str]) -> Column:
    """Return a column, or a field of one, that tasks read, named by `wire_names`."""
    from pyspark.sql import functions as sf

    names, aliases = names_of(attribute), dict(zip(columns, wire_names(columns), strict=True))
    n = next(n for n in range(len(names), 0, -1) if path_of(names[:n]) in aliases)
    return sf.col(quoted(path_of([aliases[path_of(names[:n])], *names[n:]])))


def _with_counted_positions(df: DataFrame, stream: Stream) -> DataFrame:
    """Add the positions to rows that are in order in their files."""
    from pyspark.sql import functions as sf

    offsets = sf.array(*(sf.lit(offset).cast("long") for offset in stream.offsets or (0,)))
    offset = sf.element_at(offsets, sf.col(quoted(FILE)) + 1)
    return df.withColumn(POSITION, (sf.col(quoted(ROW)) + offset).cast("long"))


def _sort_into_ranges(
    df: DataFrame, key: Column, order: Sequence[str], columns: Sequence[str], n_parts: int, measure: Column | None
) -> tuple[DataFrame, list[Any], list[Any], list[int], int]:
    """Sort the rows and count them, in ranges of like size; each begins with another value of the first column.

    Return the rows with `POSITION` and the range in `PART`, lower and upper bounds of `where` in each range, the first
    position of each range, and the number of rows.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    fractions = [k / n_parts for k in range(1, n_parts)]
    quantiles = sf.percentile_approx(key, fractions, SAMPLES) if fractions else sf.lit(None)
    bounds, n_rows, n_valid = df.agg(quantiles, sf.count(sf.lit(1)), sf.count(key)).collect()[0]
    if n_valid < n_rows:
        raise null_error(order[0], n_rows - n_valid, n_rows)
    own = sf.lit(0)
    for bound in sorted(set(bounds or [])):
        own = own + (key >= sf.lit(bound)).cast("int")
    of_range = df.groupBy(own.alias(PART)).agg(sf.count(sf.lit(1)), sf.min(sf.lit(0) if measure is None else measure))
    counts = {row[0]: (row[1], row[2]) for row in of_range.collect()}

    firsts = list(itertools.accumulate((counts.get(k, (0, None))[0] for k in range(n_parts)), initial=0))[:-1]
    if measure is None:
        lows, highs = firsts, [first - 1 for first in [*firsts[1:], n_rows]]
    else:
        end = math.inf if any(isinstance(low, float) for _, low in counts.values()) else MAX_INT64
        # a range without rows begins with the next one; the evaluation refuses a range of NULLs only
        least = [end if k not in counts or counts[k][1] is None else counts[k][1] for k in range(n_parts)]
        lows = list(itertools.accumulate(reversed(least), min))[::-1]
        highs = [*lows[1:], end]

    placed = df.withColumn(PART, own)
    if hasattr(placed, "repartitionById"):
        placed = placed.repartitionById(n_parts, PART)
    window = Window.partitionBy(PART).orderBy(*(column for _, column in sort_columns(df, order, columns)))
    offset = sf.element_at(sf.array(*map(sf.lit, firsts)), sf.col(PART) + 1)
    position = (sf.row_number().over(window) - 1 + offset).cast("long")
    return placed.withColumn(POSITION, position), lows, highs, firsts, n_rows


def sort_columns(df: DataFrame, order: Sequence[str], columns: Sequence[str]) -> list[tuple[str | None, Column]]:
    """Return what sorts the rows of a stream, first to last, each with the name of the column that it is, if it is one.

    Rows that agree on the order follow the order of their files, where `FILE` and `ROW` give it, and else their other
    columns that are read.
    """
    from pyspark.sql import functions as sf

    ties = [name for name in (FILE, ROW) if name in df.columns]
    ties += [name for name in columns if name not in order]
    return [(name, sf.col(quoted(name))) for name in order] + [_tie(df, name) for name in ties]


def located_by_path(df: DataFrame) -> DataFrame:
    """Return the rows with `FILE` and `ROW`, the path of their file and their number in it, where Spark knows them."""
    from pyspark.sql import functions as sf

    if not _has_row_positions(df):
        return df
    uri = sf.col("_metadata.file_path")
    # files are in the order of their paths, as in `as_path`, in which a blank is no %20
    path = sf.url_decode(sf.replace(uri, sf.lit("+"), sf.lit("%2B")))
    path = sf.when(uri.startswith("file:"), path).otherwise(uri)
    return df.withColumn(ROW, sf.col("_metadata.row_index")).withColumn(FILE, path)


def _with_locations(df: DataFrame) -> DataFrame | None:
    """Return the rows with `FILE` and `ROW`, their file by its number, or None if Spark does not know them."""
    from pyspark.sql import functions as sf

    if not _has_row_positions(df):
        return None
    df = located_by_path(df)
    if len(df.inputFiles()) < 2:
        return df.withColumn(FILE, sf.lit(0))
    paths = sorted(row[0] for row in df.select(quoted(FILE)).distinct().collect())
    # as rows: PySpark cuts an Arrow table into batches, and fails where the session's batches have no limit
    numbers = [(path, i) for i, path in enumerate(paths)]
    files = df.sparkSession.createDataFrame(numbers, f"`{FILE}` string, `$number` int")
    joined = df.join(sf.broadcast(files), on=FILE)
    return joined.withColumn(FILE, sf.col(quoted("$number"))).drop("$number")


_KEEP_ROWS = ("Project", "Filter", "SubqueryAlias", "View")
"""Nodes of a plan that pass on rows of a file, and neither join nor generate rows."""


def _has_row_positions(df: DataFrame) -> bool:
    """Return True if Spark knows the number of a row in its file; requesting it outright would log an error."""
    if is_connect(df):
        from spark_glue.files.connect import reads_files

        return reads_files(df)
    try:
        plan = df._jdf.queryExecution().analyzed()
        metadata = plan.metadataOutput()
        if metadata.size() != 1 or "row_index" not in metadata.apply(0).dataType().simpleString():
            return False
        while plan.children().size() == 1 and plan.nodeName() in _KEEP_ROWS:
            plan = plan.children().apply(0)
        return bool(plan.children().size() == 0)
    except Exception:  # other implementations of DataFrames have other internals
        return False


def _stream(df: DataFrame, order: Sequence[str], measure: Column | None) -> Stream | None:
    """Return the stream of the rows if they are in order, else None, in one pass over the columns of the order."""
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    read = df.select(
        (sf.col(quoted(FILE)).cast("long") * SURVEY_FILE_ROWS + sf.col(quoted(ROW))).alias(LOCATION),
        *(sf.col(quoted(name)).alias(alias) for name, alias in zip(order, wire_names(order), strict=True)),
        *([] if measure is None else [measure.alias(WHERE)]),
    )
    kind = (order_key(df, order[0]) if measure is None else measure).alias(WHERE)
    fields = [
        st.StructField(FILE, st.LongType()),
        st.StructField(ROW, st.LongType()),
        st.StructField(WHERE, df.select(kind).schema[0].dataType),
        st.StructField(N_ROWS, st.LongType()),
        st.StructField(IN_ORDER_COLUMN, st.BooleanType()),
    ]
    for end in (FIRST_COLUMN, LAST_COLUMN):
        fields += [st.StructField(f"{end}{i}", df.schema[name].dataType) for i, name in enumerate(order)]
    stretches = read.mapInArrow(partial(_survey, wire_names(order)), st.StructType(fields))
    return stream_of_survey(stretches.toArrow(), len(order))


def _survey(order: list[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return survey(batches, order)


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
