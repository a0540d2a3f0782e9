"""Rows that Spark reads, dealt to the tasks of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_glue.deal import MOST_PARTS, PART, PART_ROWS, PLACE, POSITION, Task, against_dealings, times_beside
from spark_glue.keys import hash_of_key, part_of_key
from spark_glue.number import Cut, Numbered, as_sent, located_by_path, number, order_key, quoted, sent, sort_columns
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
SAMPLED_A_PART = 1000
"""Rows whose keys are looked at for each part."""


@dataclass(frozen=True)
class Dealt:
    """Rows of a stream, dealt to tasks.

    Attributes
    ----------
    df
        The complex events.
    n_rows : int or None
        Number of rows in the stream; None: they were not counted, for each task counts them.
    was_in_order : bool
        True if the rows needed no sort.
    n_parts : int
    n_heavy : int
        Number of keys whose rows are cut by time, as they have so many.
    """

    df: DataFrame
    n_rows: int | None
    was_in_order: bool
    n_parts: int
    n_heavy: int = 0


def deal_rows(
    df: DataFrame,
    work: Work,
    order: Sequence[str],
    dealing: str,
    n_parts: int,
    events: pa.Schema,
    report: Any = None,
) -> Dealt:
    """Deal the rows of a DataFrame to tasks.

    The rows are counted and cut into ranges before, unless each task gets all of them: it counts them itself then.

    Parameters
    ----------
    df, work
    order
        The columns that order the stream.
    dealing
        "partition", "range" or "replicate".
    n_parts
    events
        Schema of the DataFrame.
    report
        That of `spark_glue.deal.Task`.

    Raises
    ------
    QueryTypeError
        If the first column of the order is NULL in some row, or of another type than times and numbers.
    """
    from spark_glue.schema import to_spark

    columns, results = work.columns(events), plain_schema(work.output_schema(events))
    types = _needed(work, order[0])
    if columns and (n_parts == 1 or (dealing == "replicate" and types is None)):
        return _counted_by_tasks(df, work, order, dealing, n_parts, columns, results, report)
    cut = _cut(work, events) if dealing == "range" or _cuts_keys(work, order, dealing, n_parts) else None
    numbered = number(df, order, columns, n_parts, cut)
    firsts = numbered.ranges.firsts if numbered.ranges else ()
    heavy: tuple[int, ...] = ()
    if dealing == "partition":
        heavy = _heavy_keys(df, work, columns, n_parts, numbered.n_rows) if firsts else ()
        firsts = (*(0,) * n_parts, *firsts) if heavy else ()
    total = 2 * n_parts if heavy else n_parts
    task = Task(work, dealing, tuple(columns), results, firsts, total, report)
    dealt = _dealt(numbered, work, columns, dealing, n_parts, types, heavy)
    parts = _parted(dealt, [PLACE, *sent(columns)], total)
    found = parts.sortWithinPartitions(PLACE).mapInArrow(task, to_spark(results))
    return Dealt(found, numbered.n_rows, numbered.was_in_order, total, len(heavy))


def _cuts_keys(work: Work, order: Sequence[str], dealing: str, n_parts: int) -> bool:
    """Return True if the rows of one key can be cut by time, as those of a stream without keys."""
    return (
        dealing == "partition"
        and against_dealings(work, order[0])["range"] is None
        and work.window is not None
        and work.window.column == order[0]
        and 2 * n_parts <= MOST_PARTS
    )


def _heavy_keys(
    df: DataFrame, work: Work, columns: Sequence[str], n_parts: int, n_rows: int
) -> tuple[int, ...]:
    """Return the hashes of the keys that have so many rows that one task for all of them would hold up the job."""
    from pyspark.sql import functions as sf

    if n_rows < LEAST_SKEWED:
        return ()
    kept = df.select(*(sf.col(quoted(name)).alias(alias) for name, alias in zip(columns, sent(columns), strict=True)))
    key = hash_of_key(kept, work, columns)
    share = min(1.0, SAMPLED_A_PART * n_parts / n_rows)
    sample = kept.select(key.alias("key")).sample(share, seed=0).groupBy("key").count()
    found = sample.filter(sf.col("key").isNotNull() & (sf.col("count") > HEAVY_PART * share * n_rows / n_parts)).collect()
    return tuple(row["key"] for row in found)


def _parted(df: DataFrame, columns: Sequence[str], n_parts: int) -> DataFrame:
    """Return columns of rows that have a `PART`, those of a part in one task; `PLACE` is made of part and position."""
    from pyspark.sql import functions as sf

    if PLACE in columns:
        place = sf.col(quoted(PART)).cast("long") * PART_ROWS + sf.col(quoted(POSITION))
        df = df.select(place.alias(PLACE), *columns[1:])
        part = sf.expr(f"CAST(shiftright({quoted(PLACE)}, {PART_ROWS.bit_length() - 1}) AS int)")
    else:
        df, part = df.select(*map(quoted, columns)), sf.col(quoted(PART))
    if hasattr(df, "repartitionById"):  # since Spark 4.1; two parts that hash alike share a task before
        return df.repartitionById(n_parts, part)
    return df.repartition(n_parts, part)


def _counted_by_tasks(
    df: DataFrame,
    work: Work,
    order: Sequence[str],
    dealing: str,
    n_parts: int,
    columns: Sequence[str],
    results: pa.Schema,
    report: Any,
) -> Dealt:
    """Give all rows to each task, sorted by the order: one pass in all."""
    from pyspark.sql import functions as sf

    from spark_glue.schema import to_spark

    order_key(df, order[0])  # checks its type
    names = dict(zip(columns, sent(columns), strict=True))
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
        parts = _parted(whole, whole.columns, n_parts)
        shown.insert(0, PART)
        keys.insert(0, PART)
    ordered = parts.sortWithinPartitions(*map(quoted, keys)).select(*map(quoted, shown))
    first = names.get(order[0], _NULL)
    task = Task(work, dealing, tuple(columns), results, (), n_parts, report, (first, order[0]))
    return Dealt(ordered.mapInArrow(task, to_spark(results)), None, False, n_parts)


def _cut(work: Work, events: pa.Schema) -> Cut:
    window, length = work.window, work.window_units(events)
    assert window is not None
    assert length is not None
    return Cut(window.column, length)


def _needed(work: Work, first: str) -> tuple[str, ...] | None:
    """Return the types of events that tasks need, or None for all.

    Irrelevant events must be in order, too; a sort by the time column ensures that without sending them.
    """
    return None if times_beside(work, first) else work.needed_types


def _dealt(
    numbered: Numbered,
    work: Work,
    columns: Sequence[str],
    dealing: str,
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
        df = df.filter(as_sent(work.type_column, columns).isin(*types))
    if dealing == "replicate":
        return df.withColumn(PART, sf.explode(sf.sequence(sf.lit(0), sf.lit(n_parts - 1))))
    if dealing == "partition" and not heavy:
        part = part_of_key(df, work, columns, n_parts)
        return df.withColumn(PART, part).filter(sf.col(PART).isNotNull())
    ranges = _ranges_with_row(numbered, n_parts)
    if dealing == "range":
        return df.withColumn(PART, numbered.range_of if ranges is None else sf.explode(ranges))
    key = hash_of_key(df, work, columns)
    df = df.filter(key.isNotNull())
    cut = sf.array(numbered.range_of) if ranges is None else ranges
    cut = sf.transform(cut, lambda part: part + sf.lit(n_parts))
    parts = sf.when(key.isin(*heavy), cut).otherwise(sf.array(part_of_key(df, work, columns, n_parts)))
    return df.withColumn(PART, sf.explode(parts))


def _ranges_with_row(numbered: Numbered, n_parts: int) -> Column | None:
    """Return the ranges that need each row, in its own or in the window before them; None: only its own does."""
    from pyspark.sql import functions as sf

    assert numbered.ranges is not None
    own, found = numbered.range_of, numbered.ranges
    if not found.reach:
        return None
    begins = sf.array(*map(sf.lit, found.begins))
    later = sf.sequence(own, sf.least(own + found.reach, sf.lit(n_parts - 1)))
    return sf.filter(later, lambda part: (part == own) | (sf.element_at(begins, part + 1) <= sf.col(WHERE)))
