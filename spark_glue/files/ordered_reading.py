"""Rows of a range of the stream in its order.

Rows are checked as they are read.  Rows in order are passed on; others are sorted: within a row group,
or among the row groups that overlap, in memory or, where they may be too many, on disk.  Rows that agree on all columns
of the order keep the order of their numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Int64
from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.fields import array_of
from cer_gpu.errors import EventsError, QueryTypeError
from cer_gpu.io.source import Source
from cer_gpu.order.sorting import sort_source
from spark_glue.distribution import POSITION
from spark_glue.files.layout import SplitRange, Unit
from spark_glue.files.row_groups import RowGroups
from spark_glue.stage import plain_batch
from spark_glue.survey import LEAST_INT64, MAX_INT64, sort_key

_KEY = "$key"
"""Column added for a sort on disk: the first column of the order, as integers."""


class UnsortedInputError(Exception):
    """Signal that rows which were expected in order are not; it never reaches the user."""


@dataclass(frozen=True)
class FileRows:
    """Rows of a range that follow one another in its order.

    Attributes
    ----------
    batch : pyarrow.RecordBatch
    own : bool
        True if they are of the range, False if of the window before it.
    first : int
        Number of the first one, over all files.
    """

    batch: pa.RecordBatch
    own: bool
    first: int


class OrderedReader:
    """Reader of the rows of ranges in their order.

    Parameters
    ----------
    groups
        Reader of row groups, whose columns include the order columns.
    order
        Columns that order the stream.
    max_buffered_rows
        Most rows of a row group to sort in memory.
    memory
        Bytes that a sort on disk may hold.
    sorted_rows
        Fewest rows to sort at once, if more are to come.
    """

    def __init__(
        self,
        groups: RowGroups,
        order: Sequence[str],
        max_buffered_rows: int = 1 << 22,
        memory: int = 1 << 28,
        sorted_rows: int = 1 << 16,
    ) -> None:
        self._groups, self._order = groups, list(order)
        self._max_buffered_rows, self._memory, self._sorted_rows = max_buffered_rows, memory, sorted_rows

    # ---- rows in stored order --------------------------------------------------------------------------------

    def presorted(
        self, split_range: SplitRange, types: Sequence[str] | None = None, *, numbered: bool = False
    ) -> Iterator[FileRows]:
        """Yield the rows of a range in stored order, while they are in the order of the stream.

        Parameters
        ----------
        split_range
        types
            Row groups that have no row of these types are left out; if None, all are read.
        numbered
            True if the rows have the column `POSITION`.

        Raises
        ------
        UnsortedInputError
            At the first row group that is not in order; the rows before are the first ones of the order.
        """
        last: list[pa.Array] | None = None
        # rows that agree with the next row group's on the first column, until it is checked
        buffered: list[FileRows] = []
        for i, unit in enumerate(split_range.units):
            if types is not None and unit.without(types):
                continue
            several = unit.n_rows > self._groups.rows_at_once(unit)
            if several and not self._lies_in_order(unit):
                raise UnsortedInputError
            bound = MAX_INT64 + 1 if len(self._order) == 1 else _next_low(split_range, i)
            row = unit.first
            for batch in self._groups.batches(unit, numbered=numbered):
                n = batch.num_rows
                if not n:
                    continue
                if n < unit.n_rows and not several:
                    raise UnsortedInputError  # rows of a later batch may precede this one's
                keys = [self._first_order_column(batch, row), *self._sort_keys(batch, 1)]
                if not ascending(keys) or (last is not None and not _is_not_after(last, keys)):
                    raise UnsortedInputError
                last = [key.slice(n - 1) for key in keys]
                values = integers(keys[0])
                self._check_bounds(unit, row, values[[0, -1]])
                if unit.low < bound:
                    yield from buffered
                    buffered = []
                begin, end = _span_within(values, split_range.begin, split_range.end)
                split = end if i < split_range.n_before else begin
                if split_range.low is not None and i >= split_range.n_before:
                    split = int(np.clip(_rank(values, split_range.low), begin, end))
                checked = int(np.clip(_rank(values, bound), begin, end))
                for first, stop in pairwise(sorted({begin, split, checked, end})):
                    rows = FileRows(batch.slice(first, stop - first), first >= split, row + first)
                    if first < checked:
                        yield rows
                    else:
                        buffered.append(rows)
                if sum(rows.batch.num_rows for rows in buffered) > self._max_buffered_rows:
                    raise UnsortedInputError
                row += n
        yield from buffered

    # ---- rows in any order -----------------------------------------------------------------------------------

    def in_order(self, split_range: SplitRange) -> Iterator[FileRows]:
        """Yield the rows of a range, with the column `POSITION`, in their order."""
        batches = self._on_disk(split_range) if split_range.on_disk else self._swept(split_range)
        for batch, own in batches:
            if not batch.num_rows:
                continue
            split = 0 if own else batch.num_rows
            if own and split_range.low is not None:
                split = _rank(integers(array_of(batch, self._order[0])), split_range.low)
            first = batch.column(POSITION)[0].as_py()
            if split:
                yield FileRows(batch.slice(0, split), False, first)
            if split < batch.num_rows:
                yield FileRows(batch.slice(split), True, first)

    def _swept(self, split_range: SplitRange) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Yield the rows in order, with True for rows of row groups after the window.

        Rows are buffered until the row groups that may have rows before them are read.
        """
        buffered: list[pa.RecordBatch] = []
        least = MAX_INT64
        n_sorted = n_buffered = 0
        units = split_range.units
        for i, unit in enumerate(units):
            own = i >= split_range.n_before
            # rows with values before the bound are complete
            bound = units[i + 1].low + split_range.flows if i + 1 < len(units) else MAX_INT64 + 1
            if not buffered and unit.high < bound:
                for batch in self._sorted_group(unit, split_range):
                    yield batch, own
                continue
            for batch in self._rows_of_unit(unit, split_range):
                if batch.num_rows:
                    buffered.append(batch)
                    n_buffered += batch.num_rows
                    least = min(least, int(integers(array_of(batch, self._order[0])).min()))
            # each sort takes in at least as many rows as the one before left, however small the row groups are
            enough = n_buffered >= min(2 * n_sorted + self._sorted_rows, self._max_buffered_rows)
            enough |= i + 1 in (split_range.n_before, len(units))
            if buffered and least < bound and enough:
                rows = self._sort_batches(buffered)
                values = integers(array_of(rows, self._order[0]))
                complete = _rank(values, bound)
                yield rows.slice(0, complete), own
                buffered = [rows.slice(complete)] if complete < len(values) else []
                n_sorted = n_buffered = len(values) - complete
                least = int(values[complete]) if complete < len(values) else MAX_INT64

    def _sorted_group(self, unit: Unit, split_range: SplitRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one row group in order."""
        if unit.n_rows > self._groups.rows_at_once(unit) and self._lies_in_order(unit):
            yield from self._rows_of_unit(unit, split_range)
            return
        if unit.n_rows > self._max_buffered_rows:
            yield from self._sorted_on_disk(self._rows_of_unit(unit, split_range))
            return
        batches = [batch for batch in self._rows_of_unit(unit, split_range) if batch.num_rows]
        if len(batches) == 1 and ascending(self._sort_keys(batches[0])):
            yield batches[0]
        elif batches:
            yield self._sort_batches(batches)

    def _lies_in_order(self, unit: Unit) -> bool:
        """Return True if the rows of a row group are in order, by a pass over the columns of the order.

        NULL in the first one, which is an error, is passed over here.
        """
        last: list[pa.Array] | None = None
        for batch in self._groups.batches(unit, columns=self._order):
            if batch.num_rows and not array_of(batch, self._order[0]).null_count:
                keys = self._sort_keys(batch)
                if not ascending(keys) or (last is not None and not _is_not_after(last, keys)):
                    return False
                last = [key.slice(batch.num_rows - 1) for key in keys]
        return True

    def _rows_of_unit(self, unit: Unit, split_range: SplitRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group that are in the range or its window, in stored order."""
        row = unit.first
        for batch in self._groups.batches(unit, numbered=True):
            if batch.num_rows:
                row = batch.column(POSITION)[0].as_py()
                values = integers(self._first_order_column(batch, row))
                least, greatest = values.min(), values.max()
                self._check_bounds(unit, row, np.array([least, greatest]))
                if least < split_range.begin or greatest >= split_range.end:
                    mask = values >= max(split_range.begin, LEAST_INT64)
                    if split_range.end <= MAX_INT64:
                        mask &= values < split_range.end
                    batch = batch.filter(pa.array(mask))
            yield batch

    def _sort_batches(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Return the rows of batches, in any order, in theirs."""
        rows = batches[0] if len(batches) == 1 else _join_batches(batches)
        keys = self._sort_keys(rows)
        if ascending([*keys, rows.column(POSITION)]):
            return rows
        if len(keys) == 1:
            by = np.lexsort((rows.column(POSITION).to_numpy(), integers(keys[0])))
        else:
            named = {str(i): key for i, key in enumerate([*keys, rows.column(POSITION)])}
            sort_keys = [(name, "ascending", "at_start") for name in named]
            by = pc.sort_indices(pa.table(named), sort_keys=sort_keys).to_numpy()
        return rows.take(pa.array(by))

    # ---- on disk ---------------------------------------------------------------------------------------------

    def _on_disk(self, split_range: SplitRange) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Yield the rows in order, sorted on disk; rows below `SplitRange.low` are of the window."""
        units = sorted(split_range.units, key=lambda unit: unit.first)
        for batch in self._sorted_on_disk(batch for unit in units for batch in self._rows_of_unit(unit, split_range)):
            yield batch, True

    def _sorted_on_disk(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of batches, which come in the order of their numbers, in their order."""
        coming = (self._with_key(batch) for batch in batches if batch.num_rows)
        head = next(coming, None)
        if head is None:
            return
        source = Source(head.schema, lambda columns: itertools.chain([head], coming))
        buffered: list[pa.RecordBatch] = []  # rows that agree on the first column, which others may follow
        buffered_value = LEAST_INT64
        for batch in sort_source(source, _KEY, memory=self._memory).batches(head.schema.names):
            rows = batch.select([name for name in head.schema.names if name != _KEY])
            if len(self._order) == 1:
                yield rows
                continue
            values = batch.column(_KEY).to_numpy()
            if buffered and int(values[0]) != buffered_value:
                yield self._sort_batches(buffered)
                buffered = []
            buffered_value = int(values[-1])
            complete = _rank(values, buffered_value)
            if complete:
                yield self._sort_batches([*buffered, rows.slice(0, complete)])
                buffered = []
            buffered.append(rows.slice(complete))
        if buffered:
            yield self._sort_batches(buffered)

    def _with_key(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column(_KEY, pa.array(integers(array_of(batch, self._order[0]))))

    # ---- columns of the order --------------------------------------------------------------------------------

    def _first_order_column(self, batch: pa.RecordBatch, row: int) -> pa.Array:
        """Return the first column of the order after checking that it has no NULL; `row` is the number of its row."""
        first = array_of(batch, self._order[0])
        if first.null_count:
            at = int(np.argmin(first.is_valid().to_numpy(zero_copy_only=False)))
            row = batch.column(POSITION)[at].as_py() if POSITION in batch.schema.names else row + at
            raise QueryTypeError(
                f"{self._groups.locate(row)}: the stream is ordered by {dotted(self._order[0])!r}, which is NULL",
                hint="leave such events out, or give them a value",
            )
        return first

    def _sort_keys(self, batch: pa.RecordBatch, begin: int = 0) -> list[pa.Array]:
        return [sort_key(array_of(batch, name)) for name in self._order[begin:]]

    def _check_bounds(self, unit: Unit, row: int, ends: Int64) -> None:
        if ends[0] < unit.low or ends[1] > unit.high:
            file = self._groups.file_of(unit)
            raise EventsError(
                f"{file.path}: the statistics of {dotted(self._order[0])!r} in row group {unit.number} are wrong: they "
                f"say {unit.low} to {unit.high}, and a row has {ends[0] if ends[0] < unit.low else ends[1]}\n"
                "hint: source='rows', so that Spark reads the rows"
            )


def gathered(rows: Iterable[FileRows], n_rows: int) -> Iterator[FileRows]:
    """Yield the same rows in batches of at least `n_rows` rows, except for the last ones of a window and of a range."""
    buffered: list[FileRows] = []
    n_buffered = 0
    for each in rows:
        if buffered and each.own != buffered[0].own:
            yield _concat_rows(buffered)
            buffered, n_buffered = [], 0
        buffered.append(each)
        n_buffered += each.batch.num_rows
        if n_buffered >= n_rows:
            yield _concat_rows(buffered)
            buffered, n_buffered = [], 0
    if buffered:
        yield _concat_rows(buffered)


def _concat_rows(rows: list[FileRows]) -> FileRows:
    return (
        rows[0] if len(rows) == 1 else FileRows(_join_batches(each.batch for each in rows), rows[0].own, rows[0].first)
    )


def integers(array: pa.Array) -> Int64:
    """Return values of integers, times or dates, none of them NULL, as integers of 64 bits."""
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())
    values: Int64 = array.to_numpy().astype(np.int64, copy=False)
    return values


def ascending(keys: Sequence[pa.Array]) -> bool:
    """Return True if the rows of these columns, as `sort_key` makes them, are in their order; NULL is first."""
    n = len(keys[0])
    before, after = np.arange(0, n - 1), np.arange(1, n)
    every = True
    for i, key in enumerate(keys):
        left, right = (key.slice(0, n - 1), key.slice(1)) if every else (key.take(before), key.take(after))
        falls, ties = _falls(left, right, with_ties=i + 1 < len(keys))
        if falls:
            return False
        if i + 1 == len(keys) or not len(ties):
            return True
        before, after, every = before[ties], after[ties], False
    return True


def _is_not_after(last: Sequence[pa.Array], keys: Sequence[pa.Array]) -> bool:
    """Return True if a row, columns of one value each, is not after the first row of the columns `keys`."""
    return ascending([pa.concat_arrays([one, key.slice(0, 1)]) for one, key in zip(last, keys, strict=True)])


def _falls(left: pa.Array, right: pa.Array, *, with_ties: bool) -> tuple[bool, Int64]:
    """Return True if some value is less than the one before it, and the indices of equal ones."""
    none = np.empty(0, np.int64)
    if not left.null_count and not right.null_count and not is_string(left.type) and _has_integers(left.type):
        a, b = integers(left), integers(right)
        if bool((b < a).any()):
            return True, none
        return False, np.flatnonzero(a == b) if with_ties else none
    less = pc.less(right, left)
    null_left, null_right = (each.is_null().to_numpy(zero_copy_only=False) for each in (left, right))
    falls = less.fill_null(False).to_numpy(zero_copy_only=False) | (null_right & ~null_left)
    if falls.any():
        return True, none
    if not with_ties:
        return False, none
    equal = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False) | (null_left & null_right)
    return False, np.flatnonzero(equal)


def _has_integers(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _next_low(split_range: SplitRange, number: int) -> int:
    """Return the least value that a row group after one of a range may have."""
    return split_range.units[number + 1].low if number + 1 < len(split_range.units) else MAX_INT64 + 1


def _rank(values: Int64, bound: int) -> int:
    """Return the number of ascending values that are less than a bound."""
    if bound > MAX_INT64:
        return len(values)
    return int(np.searchsorted(values, max(bound, LEAST_INT64)))


def _span_within(values: Int64, low: int, high: int) -> tuple[int, int]:
    """Return the range of indices of ascending values in [low, high)."""
    begin = 0 if low <= int(values[0]) else _rank(values, low)
    end = len(values) if int(values[-1]) < high else _rank(values, high)
    return begin, max(begin, end)


def _join_batches(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of batches as one, with one dictionary for each string column."""
    batches = list(batches)
    if any(batch.schema != batches[0].schema for batch in batches):
        batches = [plain_batch(batch) for batch in batches]  # files differ in the layout of strings
    table: Any = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    return table.to_batches()[0]
