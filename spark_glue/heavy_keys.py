"""Keys with so many rows that the task of one of them would delay a job by key, and the choice to cut them by time.

A job is over when its last task is.  Cut by time, the rows of a heavy key go to several tasks; but a pass over the rows
of these keys counts them before the job, and the windows before the ranges are read again.  They are cut only where
a model of the costs says that it pays: on few cores it seldom does, as the other tasks fill the cores meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_glue.row_positions import hash_of_key, quoted, wire_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_glue.work import Work

SAMPLED = 1 << 10
"""Rows for each one of the sample."""
LEAST_SAMPLE = 100
"""Fewest rows of the sample that show heavy keys."""
LEAST_OF_PART = 20
"""Fewest rows of the sample for each part that show heavy keys."""
HEAVY_PART = 0.5
"""Share of the rows of an even part from which on a key is heavy."""
ROW_SECONDS = 4e-6
"""Seconds of a core to receive, sort and evaluate a row."""
PASS_SECONDS = 1.0
"""Seconds of the job that counts the rows of heavy keys, and of a longer plan, without the rows."""
CUT_ROW_SECONDS = 2e-6
"""Seconds of a core to read a row, count it if it is of a heavy key, and find its ranges."""


@dataclass(frozen=True)
class HeavyKeys:
    """Heavy keys, and what is needed to say whether a cut of their rows by time pays.

    Attributes
    ----------
    keys : tuple of int
        Their hashes.
    n_parts
        Number of parts that their rows fill.
    n_rows
        Number of rows of the stream, about.
    largest
        Number of rows of the largest part if none is cut, about.
    n_at_once
        Number of tasks that run at once.
    """

    keys: tuple[int, ...] = ()
    n_parts: int = 0
    n_rows: float = 0.0
    largest: float = 0.0
    n_at_once: int = 1

    def n_light(self, n_parts: int) -> int:
        """Return how many of all parts the other keys fill, at least one."""
        return max(n_parts - self.n_parts, 1) if self.keys else n_parts

    def seconds_gained(self, sizes: Sequence[int] = (), n_again: int = 0) -> float:
        """Return the seconds by which a job is shorter if the rows are cut by time; negative if it is longer.

        Parameters
        ----------
        sizes
            Numbers of rows of the ranges, with the windows before them.
        n_again
            Number of rows in these windows, which are read again.
        """
        even = self.n_rows / self.n_at_once
        saved = max(self.largest, even) - max(even + n_again / self.n_at_once, *sizes, 0)
        return saved * ROW_SECONDS - PASS_SECONDS - even * CUT_ROW_SECONDS


NO_HEAVY = HeavyKeys()


def sample_of(df: DataFrame) -> DataFrame:
    """Return the sample of some rows in which `find_heavy_keys` finds keys."""
    return df.sample(fraction=1 / SAMPLED, seed=0)


def find_heavy_keys(sample: DataFrame, work: Work, columns: Sequence[str], n_parts: int, n_at_once: int) -> HeavyKeys:
    """Find the heavy keys, if a cut of their rows by time may pay; otherwise return none.

    Parameters
    ----------
    sample
        The events of the types that tasks need in a `sample_of` the stream.
    work, columns
        As for `spark_glue.row_positions.hash_of_key`.
    n_parts
        Number of parts, which are tasks.
    n_at_once
        Number of tasks that run at once.
    """
    from pyspark.sql import functions as sf

    selected = sample.select(
        *(sf.col(quoted(name)).alias(alias) for name, alias in zip(columns, wire_names(columns), strict=True))
    )
    keys = selected.select(hash_of_key(selected, work, columns).alias("key"))
    groups = keys.rollup("key").agg(sf.grouping("key").alias("all"), sf.count(sf.lit(1)).alias("n"))
    # more keys cannot have many; the first row is that of all rows
    counts = groups.orderBy(sf.desc("n"), sf.desc("all")).limit(2 + int(n_parts / HEAVY_PART)).collect()
    n_sampled = counts[0]["n"] if counts else 0
    of_part = n_sampled / n_parts
    if n_sampled < LEAST_SAMPLE or of_part < LEAST_OF_PART:
        return NO_HEAVY
    many = [row for row in counts[1:] if row["key"] is not None and row["n"] > HEAVY_PART * of_part]
    if not many:
        return NO_HEAVY
    n_heavy = sum(row["n"] for row in many)
    # the task of the largest key has its share of the other keys, too
    largest = many[0]["n"] + (n_sampled - n_heavy) / n_parts
    n_filled = min(max(round(n_heavy / of_part), 1), n_parts - 1)
    heavy = HeavyKeys(
        tuple(row["key"] for row in many), n_filled, n_sampled * SAMPLED, largest * SAMPLED, min(n_at_once, n_parts)
    )
    return heavy if heavy.seconds_gained() > 0 else NO_HEAVY
