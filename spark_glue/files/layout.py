"""Order of stored row groups by the bounds of their first order column, and the points where the stream can be cut.

Row groups are read by their least values.  Rows of one are read in stored order where the next one begins no earlier
than it ends; where row groups overlap, the rows that the next one may precede are buffered until it is read
(`ordered_rows`).  A cut is a row group and a value: the rows before it are the rows of smaller values, or, if it is
clean, those of the row groups before it.  This module needs no Spark.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from spark_glue.files.stored_events import Group
from spark_glue.survey import LEAST_INT64, MAX_INT64


@dataclass(frozen=True, slots=True)
class Unit:
    """Row group with its position among the rows of all files.

    Attributes
    ----------
    file, number
        Index of its file, and its number there.
    first
        Number of its first row, over all files in the order of their paths.
    n_rows
    low, high
        Bounds of the first order column; both are `LEAST_INT64` if it is NULL everywhere.
    types : (str, str) or None
        Bounds of the column of types, or None if unknown.
    """

    file: int
    number: int
    first: int
    n_rows: int
    low: int
    high: int
    types: tuple[str, str] | None = None

    def without(self, types: Sequence[str]) -> bool:
        """Return True if no row is of one of the types, by the bounds."""
        return self.types is not None and not any(self.types[0] <= each <= self.types[1] for each in types)

    def rows_within(self, low: int, high: int) -> int:
        """Return the number of rows with values from `low` up to, not including, `high`, if they are spread evenly."""
        inside = min(high, self.high + 1) - max(low, self.low)
        return max(0, -(-self.n_rows * inside // (self.high - self.low + 1)))


def unit_of(group: Group, first: int) -> Unit:
    """Return a row group as a unit; `first` is the number of the first row of its file."""
    low, high = (LEAST_INT64, LEAST_INT64) if group.low is None or group.high is None else (group.low, group.high)
    return Unit(group.file, group.number, first + group.first_row, group.n_rows, low, high, group.types)


@dataclass(frozen=True)
class Layout:
    """Row groups of a stream, by their least values.

    Attributes
    ----------
    units : tuple of Unit
        Ascending by (low, first).
    single : bool
        True if one column orders the stream.
    """

    units: tuple[Unit, ...]
    single: bool

    @classmethod
    def from_units(cls, units: Iterable[Unit], *, single: bool) -> Layout:
        """Return the layout of row groups in any order."""
        return cls(tuple(sorted(units, key=lambda unit: (unit.low, unit.first))), single)

    @cached_property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(unit.n_rows for unit in self.units)

    @cached_property
    def highs(self) -> tuple[int, ...]:
        """Greatest value of all row groups up to each."""
        highs, high = [], LEAST_INT64
        for unit in self.units:
            high = max(high, unit.high)
            highs.append(high)
        return tuple(highs)

    @cached_property
    def presorted(self) -> bool:
        """True if the order by bounds is that of the numbers of rows, and no row group ends after the next begins."""
        return all(before.high <= unit.low and before.first < unit.first for before, unit in pairwise(self.units))

    @cached_property
    def overlaps(self) -> bool:
        """True if some row group begins before another one ends."""
        return any(high > unit.low for high, unit in zip(self.highs[:-1], self.units[1:], strict=True))

    def cuts(self) -> Iterator[CutPoint]:
        """Yield the points where the stream can be cut, ascending: before each row group with another least value.

        A cut is clean between row groups that do not meet, or whose rows of equal values are in order.
        """
        for i in range(1, len(self.units)):
            unit, high = self.units[i], self.highs[i - 1]
            meets = high >= unit.low
            if not meets or self.flows:
                yield CutPoint(i, unit.low, clean=True)
            elif unit.low > self.units[i - 1].low:
                yield CutPoint(i, unit.low, clean=False)

    def reaching(self, end: int, low: int) -> tuple[Unit, ...]:
        """Return the row groups up to number `end` (in this layout) that may have values from `low` on."""
        return tuple(unit for unit in self.units[bisect_left(self.highs, low) : end] if unit.high >= low)

    def max_buffered_rows(self, units: Sequence[Unit], low: int, high: int) -> int:
        """Return about how many rows with values in [low, high) must be buffered at once, to be sorted.

        A row group that overlaps no other is not buffered, except for one batch of it.
        """
        n_max = n_buffered = 0
        open_units: list[tuple[int, int]] = []
        for unit in units:
            while open_units and (open_units[0][0] < unit.low or (open_units[0][0] == unit.low and self.flows)):
                n_buffered -= heapq.heappop(open_units)[1]
            n = unit.rows_within(low, high)
            n_buffered += n
            heapq.heappush(open_units, (unit.high, n))
            n_max = max(n_max, n_buffered if len(open_units) > 1 else 0)
        return n_max

    @property
    def flows(self) -> bool:
        """True if rows of equal values in two row groups are in order."""
        return self.single and self.presorted


@dataclass(frozen=True)
class CutPoint:
    """Place where a stream can be cut.

    Attributes
    ----------
    unit : int
        Number, in the layout, of the first row group with no smaller values.
    value : int
        Its least value.
    clean : bool
        True if the rows before the cut are exactly the row groups before; False if they are the rows of smaller values.
    """

    unit: int
    value: int
    clean: bool


@dataclass(frozen=True)
class SplitRange:
    """Part of a stream that is evaluated from its begin to its end: a range of it, and the window before the range.

    Attributes
    ----------
    units : tuple of Unit
        In the order of their layout.
    n_before : int
        Number of the first row groups whose rows are all before the range.
    low : int or None
        Rows with smaller values are before the range, too; None if `n_before` counts all of them.
    begin : int
        Rows with smaller values are left out.
    end : int
        Rows with this value and larger ones are left out.
    presorted : bool
        True if the rows are stored in order, as far as bounds show.
    flows : bool
        True if rows of equal values in two row groups are, too, even if some row group is not in order.
    on_disk : bool
        True if the rows that must be sorted may exceed the memory.
    """

    units: tuple[Unit, ...]
    n_before: int = 0
    low: int | None = None
    begin: int = LEAST_INT64
    end: int = MAX_INT64 + 1
    presorted: bool = False
    flows: bool = False
    on_disk: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows in its row groups."""
        return sum(unit.n_rows for unit in self.units)
