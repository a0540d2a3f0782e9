"""Rows that Spark reads, distributed to the tasks of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_glue.distribution import (
    MAX_SHARDS,
    PART,
    PART_ROWS,
    PLACE,
    POSITION,
    Task,
    times_beside,
    why_not_distributions,
)
from spark_glue.heavy_keys import NO_HEAVY, HeavyKeys, find_heavy_keys, sample_of
from spark_glue.row_positions import (
    Cut,
    Numbered,
    comparable_key,
    count_rows,
    hash_of_key,
    is_read_cheaply,
    located,
    number,
    order_key,
    part_of_key,
    quoted,
    range_of,
    sort_columns,
    type_name_of,
    values_of_key,
    wire_column,
    wire_names,
    without_partitions,
)
from spark_glue.sessions import most_tasks_at_once
from spark_glue.stage import plain_schema
from spark_glue.survey import WHERE, Ranges

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from spark_glue.work import Work

_NULL, _KEY = "$null", "$key"
MAX_COMPARED = 8
"""Most ranges that a window reaches over to compare a row with each of them."""


@dataclass(frozen=True)
class Distributed:
    """Rows of a stream, distributed to tasks.

    Attributes
    ----------
    df
        The matches.
    n_rows : int or None
        Number of rows in the stream, or None if tasks count them.
    n_parts : int
    n_heavy : int
        Number of heavy keys, whose rows are cut by time.
    observed : Observation or None
        Observation of the number of rows, if each task gets some that others do not, and no pass counted them.
    """

    df: DataFrame
    n_rows: int | None
    n_parts: int
    n_heavy: int = 0
    observed: Any = None


@dataclass(frozen=True)
class RowJob:
    """Job over rows that Spark sends.

    Attributes
    ----------
    work
    order
        The columns that order the stream.
    distribution
        "key", "range" or "broadcast".
    n_parts
    events
        Schema of the DataFrame.
    report
        That of `spark_glue.distribution.Task`.
    row_numbers
        That of `spark_glue.distribution.JobOptions`.
    """

    work: Work
    order: tuple[str, ...]
    distribution: str
    n_parts: int
    events: pa.Schema
    report: Any = None
    row_numbers: bool = False

    @cached_property
    def columns(self) -> list[str]:
        """Columns and fields that tasks read."""
        return self.work.columns(self.events)

    @cached_property
    def results(self) -> pa.Schema:
        """Columns of the results, in the types of Spark."""
        return plain_schema(self.work.output_schema(self.events))

    @property
    def types(self) -> tuple[str, ...] | None:
        """Types of events that tasks need if rows come with their positions, or None for all.

        Irrelevant events must be in order, too; a sort by the time column ensures that without sending them.
        """
        return None if times_beside(self.work, self.order[0]) else self.work.needed_types

    @property
    def counts_stream(self) -> bool:
        """True if positions must be those in the whole stream."""
        return self.row_numbers or self.work.counts_stream

    def window_cut(self) -> Cut:
        """Return the window to cut the stream into ranges by."""
        window, length = self.work.window, self.work.window_units(self.events)
        assert window is not None
        assert length is not None
        return Cut(window.column, length)

    def cuts_keys(self) -> bool:
        """Return True if the rows of one key can be cut by time, like a stream without keys."""
        work, first = self.work, self.order[0]
        return (
            self.distribution == "key"
            and why_not_distributions(work, first)["range"] is None
            and work.window is not None
            and work.window.column == first
            and 1 < self.n_parts < MAX_SHARDS
        )

    def tasks_count(self, df: DataFrame, heavy: HeavyKeys) -> bool:
        """Return True if tasks count the rows of their parts, which need no positions before."""
        if self.n_parts == 1 or not self.columns:
            return bool(self.columns)
        if self.distribution == "key":
            return not self.counts_stream and (not heavy.keys or self._is_cut_exactly(df))
        if self.distribution == "broadcast":
            return not self.counts_stream or self.types is None
        window = self.work.window
        if window is None or window.column not in (None, self.order[0]):
            return False
        return window.column is None or self._is_cut_exactly(df)

    def _is_cut_exactly(self, df: DataFrame) -> bool:
        # a decimal of more than 18 digits is not compared exactly as a number of 64 bits
        return type_name_of(df, order_key(df, self.order[0])) != "decimal"


def distribute_rows(df: DataFrame, job: RowJob) -> Distributed:
    """Distribute the rows of a DataFrame to tasks.

    By key, and where each task gets all rows, there is no pass over them before the job: each task sorts and counts
    its own.  By range, one pass counts them by the first column of the order, and so it does by key for the rows of
    heavy keys, which are cut by time where that pays (`spark_glue.heavy_keys`).  Only where positions in the whole
    stream decide the matches of a task that does not get all rows does a sort of all rows come first.

    Raises
    ------
    QueryTypeError
        If the first column of the order is NULL in some row, or of another type than times and numbers.
    """
    from spark_glue.schema import to_spark

    df, heavy = without_partitions(df), NO_HEAVY
    if job.cuts_keys() and is_read_cheaply(df):
        n_at_once = most_tasks_at_once(df.sparkSession, job.n_parts)
        sample = _of_types(sample_of(df), job, job.types)
        heavy = find_heavy_keys(sample, job.work, job.columns, job.n_parts, n_at_once)
    if job.tasks_count(df, heavy):
        return _counted_by_tasks(df, job, heavy)
    n_parts, columns = job.n_parts, job.columns
    cut = job.window_cut() if job.distribution == "range" or heavy.keys else None
    numbered = number(df, job.order, columns, n_parts, cut)
    if heavy.keys:
        numbered = _merge_ranges(numbered, heavy.n_parts)
    firsts = () if numbered.ranges is None else numbered.ranges.firsts
    n_light = heavy.n_light(n_parts)
    total = n_light + heavy.n_parts if heavy.keys else n_parts
    if heavy.keys:
        firsts = (*(0,) * n_light, *firsts)
    task = Task(job.work, job.distribution, tuple(columns), job.results, firsts, total, report=job.report)
    distributed = _assign_parts(numbered, job, n_light, heavy.keys)
    parts = _partition_rows(distributed, total, wire_names(columns))
    matches = parts.sortWithinPartitions(PLACE).mapInArrow(task, to_spark(job.results))
    return Distributed(matches, numbered.n_rows, total, len(heavy.keys))


def observe(rows: DataFrame) -> tuple[DataFrame, Any]:
    """Return rows whose number is observed by the job that reads them, and the observation, which has it as "n"."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    observation = Observation()
    return rows.observe(observation, sf.count(sf.lit(1)).alias("n")), observation


def _merge_ranges(numbered: Numbered, n_most: int) -> Numbered:
    """Return rows with fewer ranges, each of some that follow one another."""
    narrow = numbered.ranges
    assert narrow is not None
    n_ranges = len(narrow.firsts)
    n_wanted = min(n_most, n_ranges)
    begins = [-(-k * n_ranges // n_wanted) for k in range(n_wanted)]
    # a row that reaches over some ranges reaches over no more of these
    ranges = Ranges(
        tuple(narrow.firsts[k] for k in begins),
        tuple(narrow.begins[k] for k in begins),
        min(narrow.reach, n_wanted - 1),
    )
    own = (numbered.range_of * n_wanted / n_ranges).cast("int")
    return replace(numbered, ranges=ranges, range_of=own)


def _partition_rows(df: DataFrame, n_parts: int, columns: Sequence[str] = ()) -> DataFrame:
    """Return rows that have a `PART`, each part in one task, or `columns` and `PLACE` in place of part and position."""
    from pyspark.sql import functions as sf

    part = sf.col(quoted(PART))
    if POSITION in df.columns:
        place = part.cast("long") * PART_ROWS + sf.col(quoted(POSITION))
        df = df.select(place.alias(PLACE), *columns)
        part = sf.expr(f"CAST(shiftright({quoted(PLACE)}, {PART_ROWS.bit_length() - 1}) AS int)")
    if hasattr(df, "repartitionById"):  # since Spark 4.1; before, two parts with equal hashes were in one task
        return df.repartitionById(n_parts, part)
    return df.repartition(n_parts, part)


def _counted_by_tasks(df: DataFrame, job: RowJob, heavy: HeavyKeys) -> Distributed:
    """Give each task the rows of its parts, sorted by the order, in one shuffle; the tasks count them."""
    from pyspark.sql import functions as sf

    from spark_glue.schema import to_spark

    order, n_parts, columns = job.order, job.n_parts, job.columns
    order_key(df, order[0])  # checks its type
    names = dict(zip(columns, wire_names(columns), strict=True))
    df, observed, n_rows = located(df), None, None
    types = None if job.counts_stream else job.types
    everywhere = job.distribution == "broadcast" or n_parts == 1
    needed, rows = _of_types(df, job, types), df
    if job.report is not None and (types is not None or not everywhere):
        rows, observed = observe(df)
    rows = _of_types(rows, job, types)
    moved = [sf.col(quoted(name)).alias(alias) for name, alias in names.items()]
    shown, keys = list(names.values()), []
    ranges, span = Ranges((), (), 0), None
    checked: tuple[str, str] | None = None
    if job.distribution == "range" and n_parts > 1:
        counts = count_rows(needed, order[0], n_parts)
        ranges = counts.ranges(n_parts, job.window_cut().length, by_position=job.window_cut().column is None)
        n_rows = counts.n_rows if types is None else None
    else:
        checked = names.get(order[0], _NULL), order[0]
        if order[0] not in names:  # tasks need only see that it is not NULL
            moved.append(sf.when(sf.col(quoted(order[0])).isNotNull(), sf.lit(True)).alias(_NULL))
            shown.insert(0, _NULL)
        if heavy.keys:
            heavy, ranges = _ranges_of_heavy_keys(needed, job, heavy)
    if ranges.firsts:
        moved.append(comparable_key(df, order[0]).alias(WHERE))
        bounds, begins = (values_of_key(df, order[0], each) for each in (ranges.bounds, ranges.begins[1:]))
        span = range_of(sf.col(WHERE), bounds), range_of(sf.col(WHERE), begins)
    for i, (name, column) in enumerate(sort_columns(df, order, columns)):
        keys.append(names.get(name or "", f"$by{i}"))
        if name not in names:
            moved.append(column.alias(keys[-1]))
    rows, firsts, starts = rows.select(*moved), ranges.firsts, ranges.starts
    if heavy.keys:
        n_parts, firsts, starts = _parts_with_heavy_keys(heavy.n_light(n_parts), ranges)
    if n_parts == 1:
        parts = rows.repartition(1)
    else:
        placed = _with_parts(rows, job, span, None if checked is None else checked[0], heavy)
        parts = _partition_rows(placed, n_parts)
        shown.insert(0, PART)
        if not hasattr(parts, "repartitionById"):  # two parts may be in one task
            keys.insert(0, PART)
    ordered = parts.sortWithinPartitions(*map(quoted, keys)).select(*map(quoted, shown))
    task = Task(
        *(job.work, job.distribution, tuple(columns), job.results, firsts, n_parts, starts),
        *(job.report, checked),
    )
    matches = ordered.mapInArrow(task, to_spark(job.results))
    return Distributed(matches, n_rows, n_parts, len(heavy.keys), observed)


def _ranges_of_heavy_keys(rows: DataFrame, job: RowJob, heavy: HeavyKeys) -> tuple[HeavyKeys, Ranges]:
    """Count the rows of heavy keys by time, and return the ranges that pay; or neither keys nor ranges."""
    from pyspark.sql import functions as sf

    columns, first = job.columns, "$by0"
    named = [sf.col(quoted(name)).alias(alias) for name, alias in zip(columns, wire_names(columns), strict=True)]
    read = rows.select(sf.col(quoted(job.order[0])).alias(first), *named)
    many = read.filter(hash_of_key(read, job.work, columns).isin(*heavy.keys) & sf.col(first).isNotNull())
    counts = count_rows(many, first, heavy.n_parts)
    ranges = counts.ranges(heavy.n_parts, job.window_cut().length, by_position=False)
    ends = (*ranges.firsts[1:], counts.n_rows)
    sizes = [end - start for end, start in zip(ends, ranges.starts, strict=True)]
    if heavy.seconds_gained(sizes, sum(ranges.firsts) - sum(ranges.starts)) <= 0:
        return NO_HEAVY, Ranges((), (), 0)
    return replace(heavy, n_parts=len(ranges.firsts)), ranges


def _parts_with_heavy_keys(n_light: int, ranges: Ranges) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the number of parts, those of heavy keys last, and the first position to report and to count of each.

    All parts of heavy keys count from the same position, so that a position belongs to one event.
    """
    base, own = n_light * PART_ROWS, tuple(k * PART_ROWS for k in range(n_light))
    firsts, starts = ((*own, *(base + each for each in of)) for of in (ranges.firsts, ranges.starts))
    return n_light + len(ranges.firsts), firsts, starts


def _of_types(df: DataFrame, job: RowJob, types: Sequence[str] | None) -> DataFrame:
    """Return the rows of some types, and those whose time is NULL, which are an error."""
    from pyspark.sql import functions as sf

    if types is None:
        return df
    assert job.work.type_column is not None
    has_no_time = sf.col(quoted(job.order[0])).isNull()
    return df.filter(sf.col(quoted(job.work.type_column)).isin(*types) | has_no_time)


def _with_parts(
    rows: DataFrame, job: RowJob, span: tuple[Column, Column] | None, checked: str | None, heavy: HeavyKeys
) -> DataFrame:
    """Return rows with the `PART` that each goes to, a copy for each of its parts.

    `span` is the first and the last range of a row, by key of a row of heavy keys, and `checked` the column that must
    not be NULL.
    """
    from pyspark.sql import functions as sf

    if job.distribution == "range":
        assert span is not None
        return rows.select("*", sf.explode(sf.sequence(*span)).alias(PART))
    if job.distribution == "broadcast":
        return rows.select("*", sf.explode(sf.sequence(sf.lit(0), sf.lit(job.n_parts - 1))).alias(PART))
    assert checked is not None
    has_no_time = sf.col(quoted(checked)).isNull()  # such a row is sent, so that a task sees it
    if not heavy.keys:
        part = sf.when(has_no_time, sf.lit(0)).otherwise(part_of_key(rows, job.work, job.columns, job.n_parts))
        return rows.withColumn(PART, part).filter(sf.col(PART).isNotNull())
    assert span is not None
    n_light = heavy.n_light(job.n_parts)
    rows = rows.withColumn(_KEY, hash_of_key(rows, job.work, job.columns))
    key = sf.col(quoted(_KEY))
    light, many = sf.pmod(key, sf.lit(n_light)).cast("int"), key.isin(*heavy.keys)
    first, last = (sf.when(has_no_time, sf.lit(0)).when(many, each + sf.lit(n_light)).otherwise(light) for each in span)
    parts = sf.explode(sf.sequence(first, last)).alias(PART)
    return rows.filter(key.isNotNull() | has_no_time).select("*", parts).drop(_KEY)


def _assign_parts(numbered: Numbered, job: RowJob, n_parts: int, heavy: Sequence[int] = ()) -> DataFrame:
    """Return the rows of the needed types with the part that each goes to, a copy for each of its parts.

    Rows of `heavy` keys, by their hashes, go to parts from `n_parts` on, by range.
    """
    from pyspark.sql import functions as sf

    df, work, columns, distribution = numbered.df, job.work, job.columns, job.distribution
    if job.types is not None:
        assert work.type_column is not None
        df = df.filter(wire_column(work.type_column, columns).isin(*job.types))
    if distribution == "broadcast":
        return df.withColumn(PART, sf.explode(sf.sequence(sf.lit(0), sf.lit(n_parts - 1))))
    if distribution == "key" and not heavy:
        part = part_of_key(df, work, columns, n_parts)
        return df.withColumn(PART, part).filter(sf.col(PART).isNotNull())
    assert numbered.ranges is not None
    own, last = numbered.range_of, _last_range(numbered.range_of, numbered.ranges)
    if distribution == "range":
        return df.withColumn(PART, own if last is None else sf.explode(sf.sequence(own, last)))
    key = hash_of_key(df, work, columns)
    df, many = df.filter(key.isNotNull()), key.isin(*heavy)
    light = sf.pmod(key, sf.lit(n_parts)).cast("int")
    first = sf.when(many, own + sf.lit(n_parts)).otherwise(light)
    if last is None:
        return df.withColumn(PART, first)
    return df.withColumn(PART, sf.explode(sf.sequence(first, sf.when(many, last + sf.lit(n_parts)).otherwise(light))))


def _last_range(own: Column, ranges: Ranges) -> Column | None:
    """Return the last range with the row in the window before it, or None if windows reach over no range.

    Functions that take functions would say this for any number of ranges, and Spark interprets them.
    """
    from pyspark.sql import functions as sf

    n_ranges = len(ranges.firsts)
    if not ranges.reach:
        return None
    begins = sf.array(*map(sf.lit, ranges.begins))
    if ranges.reach > MAX_COMPARED:
        later = sf.sequence(own, sf.least(own + ranges.reach, sf.lit(n_ranges - 1)))
        reached = sf.filter(later, lambda part: (part == own) | (sf.element_at(begins, part + 1) <= sf.col(WHERE)))
        return sf.element_at(reached, -1)
    last = own
    for k in range(1, ranges.reach + 1):
        part = sf.least(own + k, sf.lit(n_ranges - 1))
        reaches = sf.coalesce(sf.element_at(begins, part + 1) <= sf.col(WHERE), sf.lit(False))
        last = last + ((part > last) & reaches).cast("int")
    return last
