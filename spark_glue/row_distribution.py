"""Rows that Spark reads, distributed to the tasks of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_glue.distribution import (
    MAX_SHARDS,
    PART,
    PART_ROWS,
    PLACE,
    POSITION,
    Ranges,
    Task,
    times_beside,
    why_not_distributions,
)
from spark_glue.row_positions import (
    Cut,
    Numbered,
    hash_of_key,
    located_by_path,
    number,
    order_key,
    part_of_key,
    quoted,
    sort_columns,
    wire_column,
    wire_names,
)
from spark_glue.stage import plain_schema
from spark_glue.survey import WHERE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from spark_glue.work import Work

_NULL = "$null"
LEAST_SKEWED = 1 << 17
"""Fewest rows of a stream whose keys with many of them are looked for."""
HEAVY_PART = 0.5
"""Share of the rows of an even part from which on a key has many: its rows are cut by time."""
MAX_COMPARED = 8
"""Most ranges that a window reaches over to compare a row with each of them."""
SAMPLED_A_PART = 1000
"""Rows whose keys are looked at for each part."""


@dataclass(frozen=True)
class Distributed:
    """Rows of a stream, distributed to tasks.

    Attributes
    ----------
    df
        The matches.
    n_rows : int or None
        Number of rows in the stream, or None if each task counts them.
    presorted : bool
        True if the rows needed no sort.
    n_parts : int
    n_heavy : int
        Number of heavy keys, whose rows are cut by time.
    """

    df: DataFrame
    n_rows: int | None
    presorted: bool
    n_parts: int
    n_heavy: int = 0


def distribute_rows(
    df: DataFrame,
    work: Work,
    order: Sequence[str],
    distribution: str,
    n_parts: int,
    events: pa.Schema,
    report: Any = None,
) -> Distributed:
    """Distribute the rows of a DataFrame to tasks.

    The rows are counted and cut into ranges before, unless each task gets all of them: it counts them itself then.

    Parameters
    ----------
    df, work
    order
        The columns that order the stream.
    distribution
        "key", "range" or "broadcast".
    n_parts
    events
        Schema of the DataFrame.
    report
        That of `spark_glue.distribution.Task`.

    Raises
    ------
    QueryTypeError
        If the first column of the order is NULL in some row, or of another type than times and numbers.
    """
    from spark_glue.schema import to_spark

    columns, results = work.columns(events), plain_schema(work.output_schema(events))
    types = _types_for_tasks(work, order[0])
    if columns and (n_parts == 1 or (distribution == "broadcast" and types is None)):
        return _counted_by_tasks(df, work, order, distribution, n_parts, columns, results, report)
    cut = (
        _range_cut(work, events) if distribution == "range" or _cuts_keys(work, order, distribution, n_parts) else None
    )
    numbered = number(df, order, columns, n_parts, cut)
    heavy = NO_HEAVY
    if numbered.ranges is not None and distribution == "key":
        heavy = _heavy_keys(df, work, columns, n_parts, numbered.n_rows)
        numbered = _merge_ranges(numbered, n_parts, heavy.n_parts)
    firsts = numbered.ranges.firsts if numbered.ranges is not None and (heavy.keys or distribution == "range") else ()
    n_light = max(n_parts - heavy.n_parts, 1)
    total = n_light + heavy.n_parts if heavy.keys else n_parts
    if heavy.keys:
        firsts = (*(0,) * n_light, *firsts)
    task = Task(work, distribution, tuple(columns), results, firsts, total, report)
    distributed = _assign_parts(
        numbered, work, columns, distribution, n_light if heavy.keys else n_parts, types, heavy.keys
    )
    parts = _partition_rows(distributed, [PLACE, *wire_names(columns)], total)
    matches = parts.sortWithinPartitions(PLACE).mapInArrow(task, to_spark(results))
    return Distributed(matches, numbered.n_rows, numbered.presorted, total, len(heavy.keys))


def _cuts_keys(work: Work, order: Sequence[str], distribution: str, n_parts: int) -> bool:
    """Return True if the rows of one key can be cut by time, like a stream without keys."""
    return (
        distribution == "key"
        and why_not_distributions(work, order[0])["range"] is None
        and work.window is not None
        and work.window.column == order[0]
        and n_parts < MAX_SHARDS
    )


@dataclass(frozen=True)
class HeavyKeys:
    """Keys with so many rows that a single task for one of them would delay the job.

    Attributes
    ----------
    keys : tuple of int
        Their hashes.
    n_parts
        Number of parts that their rows fill.
    """

    keys: tuple[int, ...] = ()
    n_parts: int = 0


NO_HEAVY = HeavyKeys()


def _heavy_keys(df: DataFrame, work: Work, columns: Sequence[str], n_parts: int, n_rows: int) -> HeavyKeys:
    """Find the keys with many rows in a sample of the rows."""
    from pyspark.sql import functions as sf

    if n_rows < LEAST_SKEWED:
        return NO_HEAVY
    fraction = min(1.0, SAMPLED_A_PART * n_parts / n_rows)
    selected = df.select(
        *(sf.col(quoted(name)).alias(alias) for name, alias in zip(columns, wire_names(columns), strict=True))
    )
    selected = selected.sample(fraction=fraction, seed=0)
    sample = selected.select(hash_of_key(selected, work, columns).alias("key")).groupBy("key").count()
    of_part = fraction * n_rows / n_parts
    many = sample.filter(sf.col("key").isNotNull() & (sf.col("count") > HEAVY_PART * of_part)).collect()
    if not many:
        return NO_HEAVY
    n_filled = round(sum(row["count"] for row in many) / of_part)
    return HeavyKeys(tuple(row["key"] for row in many), min(max(n_filled, 1), n_parts))


def _merge_ranges(numbered: Numbered, n_ranges: int, n_wanted: int) -> Numbered:
    """Return rows with fewer ranges, each of some that follow one another."""
    narrow = numbered.ranges
    assert narrow is not None
    if not n_wanted:
        return numbered
    begins = [-(-k * n_ranges // n_wanted) for k in range(n_wanted)]
    # a row that reaches over some ranges reaches over no more of these
    ranges = Ranges(
        tuple(narrow.firsts[k] for k in begins),
        tuple(narrow.begins[k] for k in begins),
        min(narrow.reach, n_wanted - 1),
    )
    own = (numbered.range_of * n_wanted / n_ranges).cast("int")
    return replace(numbered, ranges=ranges, range_of=own)


def _partition_rows(df: DataFrame, columns: Sequence[str], n_parts: int) -> DataFrame:
    """Return columns of rows that have a `PART`, each part in one task; `PLACE` encodes part and position."""
    from pyspark.sql import functions as sf

    if PLACE in columns:
        place = sf.col(quoted(PART)).cast("long") * PART_ROWS + sf.col(quoted(POSITION))
        df = df.select(place.alias(PLACE), *columns[1:])
        part = sf.expr(f"CAST(shiftright({quoted(PLACE)}, {PART_ROWS.bit_length() - 1}) AS int)")
    else:
        df, part = df.select(*map(quoted, columns)), sf.col(quoted(PART))
    if hasattr(df, "repartitionById"):  # since Spark 4.1; before, two parts with equal hashes were in one task
        return df.repartitionById(n_parts, part)
    return df.repartition(n_parts, part)


def _counted_by_tasks(
    df: DataFrame,
    work: Work,
    order: Sequence[str],
    distribution: str,
    n_parts: int,
    columns: Sequence[str],
    results: pa.Schema,
    report: Any,
) -> Distributed:
    """Give all rows to each task, sorted by the order: one pass in all."""
    from pyspark.sql import functions as sf

    from spark_glue.schema import to_spark

    order_key(df, order[0])  # checks its type
    names = dict(zip(columns, wire_names(columns), strict=True))
    df = located_by_path(df)
    moved = [sf.col(quoted(name)).alias(alias) for name, alias in names.items()]
    shown, keys = list(names.values()), []
    if order[0] not in names:  # tasks need only see that it is not NULL
        moved.append(sf.when(sf.col(quoted(order[0])).isNotNull(), sf.lit(True)).alias(_NULL))
        shown.insert(0, _NULL)
    for i, (name, column) in enumerate(sort_columns(df, order, columns)):
        keys.append(names.get(name or "", f"$by{i}"))
        if name not in names:
            moved.append(column.alias(keys[-1]))
    if n_parts == 1:
        parts = df.select(*moved).repartition(1)
    else:
        everywhere = sf.explode(sf.sequence(sf.lit(0), sf.lit(n_parts - 1))).alias(PART)
        whole = df.select(*moved).select("*", everywhere)
        parts = _partition_rows(whole, whole.columns, n_parts)
        shown.insert(0, PART)
        keys.insert(0, PART)
    ordered = parts.sortWithinPartitions(*map(quoted, keys)).select(*map(quoted, shown))
    first = names.get(order[0], _NULL)
    task = Task(work, distribution, tuple(columns), results, (), n_parts, report, (first, order[0]))
    return Distributed(ordered.mapInArrow(task, to_spark(results)), None, False, n_parts)


def _range_cut(work: Work, events: pa.Schema) -> Cut:
    window, length = work.window, work.window_units(events)
    assert window is not None
    assert length is not None
    return Cut(window.column, length)


def _types_for_tasks(work: Work, first: str) -> tuple[str, ...] | None:
    """Return the types of events that tasks need, or None for all.

    Irrelevant events must be in order, too; a sort by the time column ensures that without sending them.
    """
    return None if times_beside(work, first) else work.needed_types


def _assign_parts(
    numbered: Numbered,
    work: Work,
    columns: Sequence[str],
    distribution: str,
    n_parts: int,
    types: tuple[str, ...] | None,
    heavy: Sequence[int] = (),
) -> DataFrame:
    """Return the rows of the given types with the part that each goes to, a copy for each of its parts.

    Rows of `heavy` keys, by their hashes, go to parts from `n_parts` on, by range.
    """
    from pyspark.sql import functions as sf

    df = numbered.df
    if types is not None:
        assert work.type_column is not None
        df = df.filter(wire_column(work.type_column, columns).isin(*types))
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
