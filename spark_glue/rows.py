"""Rows that Spark reads, dealt to the tasks of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_glue.deal import PART, PART_ROWS, PLACE, POSITION, Task, times_beside
from spark_glue.keys import part_of_key
from spark_glue.number import Cut, Numbered, as_sent, located_by_path, number, order_key, quoted, sent, sort_columns
from spark_glue.stage import plain_schema
from spark_glue.survey import WHERE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_glue.work import Work

_NULL = "$null"


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
    """

    df: DataFrame
    n_rows: int | None
    was_in_order: bool


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
    numbered = number(df, order, columns, n_parts, _cut(work, events) if dealing == "range" else None)
    firsts = numbered.ranges.firsts if numbered.ranges else ()
    task = Task(work, dealing, tuple(columns), results, firsts, n_parts, report)
    dealt = _dealt(numbered, work, columns, dealing, n_parts, types)
    parts = _parted(dealt, [PLACE, *sent(columns)], n_parts)
    found = parts.sortWithinPartitions(PLACE).mapInArrow(task, to_spark(results))
    return Dealt(found, numbered.n_rows, numbered.was_in_order)


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
    return Dealt(ordered.mapInArrow(task, to_spark(results)), None, False)


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
) -> DataFrame:
    """Return the rows of the given types with the part that each goes to, a copy for each of its parts."""
    from pyspark.sql import functions as sf

    df = numbered.df
    if types is not None:
        assert work.type_column is not None
        df = df.filter(as_sent(work.type_column, columns).isin(*types))
    if dealing == "replicate":
        return df.withColumn(PART, sf.explode(sf.sequence(sf.lit(0), sf.lit(n_parts - 1))))
    if dealing == "partition":
        part = part_of_key(df, work, columns, n_parts)
        return df.withColumn(PART, part).filter(sf.col(PART).isNotNull())
    assert numbered.ranges is not None
    own, found = numbered.range_of, numbered.ranges
    if not found.reach:
        return df.withColumn(PART, own)
    begins = sf.array(*map(sf.lit, found.begins))
    later = sf.sequence(own, sf.least(own + found.reach, sf.lit(n_parts - 1)))
    wanted = sf.filter(later, lambda part: (part == own) | (sf.element_at(begins, part + 1) <= sf.col(WHERE)))
    return df.withColumn(PART, sf.explode(wanted))
