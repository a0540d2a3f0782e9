"""Survey of a stored stream: a pass that counts its rows, checks their order, and finds where its ranges begin.

Rows that are in order already need no sort: the position of a row is its number in its file, plus the rows in the
files before it.  This module needs no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LOCATION, WHERE = "$location", "$where"
"""Columns that the pass reads besides the order columns (each costs more than all the rest of the pass): the
number of the row's file times `SURVEY_FILE_ROWS`, plus its number there; and the column of the window, as a number."""
SURVEY_FILE_ROWS = 1 << 40
"""Upper bound of the rows of a file."""
FILE, ROW = "$file", "$row"
N_ROWS, IN_ORDER_COLUMN, FIRST_COLUMN, LAST_COLUMN = "$n", "$in_order", "$first", "$last"
"""Columns of a run: number of rows, whether they are in order, and first and last values of each order column."""

MAX_SURVEY_RUNS = 256
"""Largest number of runs that one task reports; more of them let a range read less beyond its window."""
SHORTEST = 64
"""Initial length of a run, in rows."""


def survey(batches: Iterable[pa.RecordBatch], order: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the runs of a stream: rows that follow one another in a file.

    Parameters
    ----------
    batches
        Rows with `LOCATION` (int64), the columns of `order`, and perhaps `WHERE` (a number); without `WHERE`, the first
        column of the order, a number or a time, replaces it.
    order
        The columns that order the stream.

    Yields
    ------
    pyarrow.RecordBatch
        One row for a run: `FILE`, `ROW` and `WHERE` of its first row, `N_ROWS`, `IN_ORDER_COLUMN`, and for column i
        of the order ``$first{i}`` and ``$last{i}``.  The batch of the first run out of order is the last one.
    """
    table: pa.Table | None = None
    length, n_rows = SHORTEST, 0
    for batch in batches:
        if not batch.num_rows:
            continue
        n_rows += batch.num_rows
        runs = _rows_in_runs(batch, order, length)
        table = runs if table is None else pa.concat_tables([table, runs])
        if not pc.all(runs[IN_ORDER_COLUMN]).as_py():
            break
        while len(table) > MAX_SURVEY_RUNS and length < n_rows:
            length *= 2
            table = _merge_ranges(table, length, len(order))
    if table is not None:
        yield from table.combine_chunks().to_batches()


def _rows_in_runs(batch: pa.RecordBatch, order: list[str], length: int) -> pa.Table:
    """Return the runs of a batch, of at most `length` rows."""
    n = batch.num_rows
    files, rows = np.divmod(batch.column(LOCATION).to_numpy(), SURVEY_FILE_ROWS)
    columns = [batch.column(name) for name in order]
    same_file = files[1:] == files[:-1]
    rises = _is_not_after([c.slice(0, n - 1) for c in columns], [c.slice(1) for c in columns])
    begins = np.union1d(np.arange(0, n, length), np.flatnonzero(~same_file) + 1)
    ends = np.append(begins[1:], n)
    # rises[i] compares rows i and i + 1, both in a run except at its last row; a gap in the rows counts as a fall
    follows = rows[1:] == rows[:-1] + 1
    n_falls = np.concatenate([[0], np.cumsum(~(rises & follows))])
    in_order = n_falls[ends - 1] == n_falls[begins]
    in_order &= np.logical_and.reduce([c.is_valid().to_numpy(zero_copy_only=False)[begins] for c in columns])
    wheres = batch.column(WHERE) if WHERE in batch.schema.names else columns[0]
    firsts = {f"{FIRST_COLUMN}{i}": c.take(pa.array(begins)) for i, c in enumerate(columns)}
    lasts = {f"{LAST_COLUMN}{i}": c.take(pa.array(ends - 1)) for i, c in enumerate(columns)}
    runs = {
        FILE: files[begins],
        ROW: rows[begins],
        WHERE: as_number(wheres.take(pa.array(begins))),
        N_ROWS: ends - begins,
        IN_ORDER_COLUMN: in_order,
    }
    return pa.table({**runs, **firsts, **lasts})


def as_number(column: pa.Array) -> pa.Array:
    """Return times as numbers of their units, and numbers unchanged."""
    if not pa.types.is_temporal(column.type):
        return column
    if column.type.bit_width == 64:
        return column.view(pa.int64())
    return column.view(pa.int32())


def _merge_ranges(table: pa.Table, length: int, n_order: int) -> pa.Table:
    """Return the runs with neighbours joined in pairs, where a pair has at most `length` rows.

    A pair is in order if both runs are, and the last row of one is not after the first row of the other.
    """
    table = table.combine_chunks()
    n = len(table)
    links, rises = _links(table, n_order)
    sizes = table[N_ROWS].to_numpy()
    may = links & (sizes[1:] + sizes[:-1] <= length)
    # in a run of joints, every second one is merged, beginning with the first: a run joins one neighbour only
    starts = np.flatnonzero(may & ~np.concatenate([[False], may[:-1]]))
    run_start = np.zeros(n - 1, np.int64)
    run_start[starts] = starts
    run_start = np.maximum.accumulate(run_start)
    merged = may & ((np.arange(n - 1) - run_start) % 2 == 0)
    left = np.flatnonzero(np.concatenate([[True], ~merged]))
    right = np.flatnonzero(np.concatenate([~merged, [True]]))
    in_order = table[IN_ORDER_COLUMN].to_numpy()
    joined_rises = np.where(left == right, True, np.append(rises, True)[left])
    columns = {
        name: table[name].take(pa.array(right if name.startswith(LAST_COLUMN) else left)) for name in table.column_names
    }
    columns[N_ROWS] = pa.array(np.add.reduceat(sizes, left))
    columns[IN_ORDER_COLUMN] = pa.array(in_order[left] & in_order[right] & joined_rises)
    return pa.table(columns)


def _links(table: pa.Table, n_order: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return, for each run but the first, whether it continues the one before in its file, and in the order."""
    files, rows, sizes = (table[name].to_numpy() for name in (FILE, ROW, N_ROWS))
    links = (files[1:] == files[:-1]) & (rows[1:] == (rows + sizes)[:-1])
    return links, _is_not_after(*_neighbours(table, n_order))


def _neighbours(table: pa.Table, n_order: int) -> tuple[list[pa.Array], list[pa.Array]]:
    """Return the last rows of all runs but the last, and the first rows of all runs but the first."""
    lasts = [table[f"{LAST_COLUMN}{i}"].combine_chunks().slice(0, len(table) - 1) for i in range(n_order)]
    firsts = [table[f"{FIRST_COLUMN}{i}"].combine_chunks().slice(1) for i in range(n_order)]
    return lasts, firsts


def _is_not_after(before: list[pa.Array], after: list[pa.Array]) -> np.ndarray[Any, Any]:
    """Return, row by row, whether `before` is at or before `after` in the lexicographic order of their columns.

    The result is False if a NULL or a NaN decides.
    """
    decided = np.zeros(len(before[0]), bool)
    before_or_at = np.zeros(len(before[0]), bool)
    for left, right in zip(before, after, strict=True):
        try:
            less = _flags(pc.less(left, right))
            equal = _flags(pc.equal(left, right))
        except pa.ArrowNotImplementedError:
            return before_or_at
        before_or_at |= ~decided & less
        decided |= ~equal
    return before_or_at | ~decided


def _flags(flags: pa.Array) -> np.ndarray[Any, Any]:
    return flags.fill_null(False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Stream:
    """Stream whose rows are in order in their files.

    Attributes
    ----------
    n_rows : int
    offsets : tuple of int
        Position of a row minus its number in its file, for each file by its number.
    positions : ndarray, shape (n_stretches,), int64
        Position of the first row of each run, ascending.
    wheres : list of int, float or Decimal
        Value that measures the window at these rows.
    """

    n_rows: int
    offsets: tuple[int, ...]
    positions: np.ndarray[Any, Any]
    wheres: list[Any]


def stream_of_survey(table: pa.Table, n_order: int) -> Stream | None:
    """Return the stream of the runs of all tasks, or None if its rows are not in order.

    Files are read in the order of their first rows.  Equal rows of two files must be in the order of the files'
    numbers, as after a sort.
    """
    if not len(table):
        return Stream(0, (), np.zeros(0, np.int64), [])
    if not all(table[IN_ORDER_COLUMN].to_pylist()) or table[WHERE].null_count:
        return None
    table = table.sort_by([(FILE, "ascending"), (ROW, "ascending")]).combine_chunks()
    files = table[FILE].to_numpy()
    heads = np.flatnonzero(np.append(True, files[1:] != files[:-1]))
    tails = np.append(heads[1:], len(table)) - 1
    links, _ = _links(table, n_order)
    if (~links & (files[1:] == files[:-1])).any():
        return None  # rows are missing or duplicated
    ends = {f"{FIRST_COLUMN}{i}": table[f"{FIRST_COLUMN}{i}"].take(pa.array(heads)) for i in range(n_order)}
    ends |= {f"{LAST_COLUMN}{i}": table[f"{LAST_COLUMN}{i}"].take(pa.array(tails)) for i in range(n_order)}
    by_time = pc.sort_indices(
        pa.table({**ends, FILE: files[heads]}), [(name, "ascending") for name in [*ends, FILE]]
    ).to_numpy()
    spans = np.concatenate([np.arange(heads[i], tails[i] + 1) for i in by_time])
    table = table.take(pa.array(spans)).combine_chunks()
    _, rises = _links(table, n_order)
    if not rises.all() or _tied_backwards(table, n_order):
        return None
    sizes = table[N_ROWS].to_numpy()
    positions = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    offsets = np.zeros(int(files.max()) + 1, np.int64)
    firsts = np.flatnonzero(np.append(True, np.diff(table[FILE].to_numpy()) != 0))
    offsets[table[FILE].to_numpy()[firsts]] = positions[firsts] - table[ROW].to_numpy()[firsts]
    return Stream(int(sizes.sum()), tuple(offsets.tolist()), positions, table[WHERE].to_pylist())


def _tied_backwards(table: pa.Table, n_order: int) -> bool:
    """Return True if the last row of a file equals the first row of the next file, and that has a smaller number."""
    lasts, firsts = _neighbours(table, n_order)
    files = table[FILE].to_numpy()
    return bool((_is_not_after(firsts, lasts) & (files[1:] < files[:-1])).any())
