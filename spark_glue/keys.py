"""Keys by which rows of Spark are dealt: those of PARTITION BY, or a value that all events of a complex event share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from spark_glue.number import as_sent

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from spark_glue.work import Work


def part_of_key(df: DataFrame, work: Work, columns: Sequence[str], n_parts: int) -> Column:
    """Return the part of each row by the hash of its key, from 0; NULL for rows that no complex event can hold.

    Parameters
    ----------
    df, work, columns
        As for `hash_of_key`.
    n_parts
    """
    from pyspark.sql import functions as sf

    return sf.pmod(hash_of_key(df, work, columns), sf.lit(n_parts)).cast("int")


def hash_of_key(df: DataFrame, work: Work, columns: Sequence[str]) -> Column:
    """Return a hash of 64 bits of the key of each row; NULL for rows that no complex event can hold.

    Parameters
    ----------
    df
        Rows with the columns that the query reads, as `spark_glue.number.sent` names them.
    work
        Work with keys of PARTITION BY, or with a shared value (`Distribution.shared`).
    columns
        Columns and fields that are read.
    """
    from pyspark.sql import functions as sf

    keys = [sf.coalesce(*(as_sent(name, columns) for name in names)) for names in work.partition_keys]
    keys = keys or [_shared_value(df, work, columns)]
    nullable = [names in work.nullable_partition_keys for names in work.partition_keys] or [False]
    needed = [key.isNotNull() for key, may_lack in zip(keys, nullable, strict=True) if not may_lack]
    # equal keys have equal hashes: -0.0 is 0.0, and there is one NaN
    return sf.when(reduce(and_, needed, sf.lit(True)), sf.xxhash64(*keys))


def _shared_value(df: DataFrame, work: Work, columns: Sequence[str]) -> Column:
    """Return the value that all events of a complex event share (`Distribution.shared`); NULL for events that have none.

    Equal values are equal here; unequal ones may be, too.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import NumericType

    found = []
    for event_type, name in work.distribution.shared:
        value = as_sent(name, columns)
        if isinstance(df.select(value).schema[0].dataType, NumericType):
            value = value.cast("double")
        if event_type is not None:
            assert work.type_column is not None
            value = sf.when(as_sent(work.type_column, columns) == event_type, value)
        found.append(value)
    return sf.coalesce(*found)
