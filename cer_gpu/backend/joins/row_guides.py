"""Guides of the search for row patterns: the rows that the place after a gap can take, listed once for each start.

In ``R Z* B Z* M``, where B and M lie in a box around R, a search that extends the gap row by row tries every B of the
window.  Here the values that B and M compare with R lie in columns of their own; a loop without jumps selects the rows
that pass, and the gap is extended to one of these at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel

_U = np.uint64
_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_TILE = 64
"""Rows that are tested at once."""
_SHORT = 16
"""Rows from which on half of a tile is left out if it is beyond the last row that can pass."""
FIRST, LAST, OWN, OWN_END, STOP, FALLS, LIMIT, IS_NEEDED, N_GUIDE = range(9)
"""Columns of `Guides.guides`."""
OFFSET, COMPARISON, COMPARISON_END = range(3)
"""Columns of `Guides.own`."""
FULL_OF_HITS, NO_HITS = -2, -1
"""Results of `list_hits` besides the number of tiles."""


class Guides(NamedTuple):
    """Quiet places (`SearchPlan.quiet`) after which one other place follows, compared with the first row of the match.

    Attributes
    ----------
    of_place : int64, shape (places,)
        The guide of each quiet place, or -1.
    of_target : int64, shape (places,)
        For each place after a quiet one, the guide whose rows are exactly those that it can take in a match, or -1.
    start : int
        The only place that takes the first row of a match, and no other row.
    guides : int64, shape (guides, 8)
        Columns FIRST and LAST, the range in `rows`; OWN and OWN_END, that in `own`; STOP, the row of `own` whose values
        do not decrease, or -1; FALLS, 1 if they do not increase; LIMIT, an earlier guide whose rows follow those of
        this one, or -1; and IS_NEEDED, 1 if each match has one of its rows.
    rows : int64, shape (candidates,)
        Rows that can take the place after each quiet place, as far as the row alone tells, ascending.
    own : int64, shape (compared columns, 3)
        Columns OFFSET of the first value in `values`, and COMPARISON and COMPARISON_END, the range in `comparisons`.
    values : int64, shape (own values,)
        Columns of the candidates, all of them valid.
    comparisons : int64, shape (comparisons, 2)
        Operator of a comparison with the first row (`compared`), and the column of `SearchPlan.values` of that.
    cursors : int64, shape (guides,), written
        The first candidate of each guide after the row at hand.
    hits : int64, shape (guides, hit capacity), written
        Rows that pass with the first row of the match, ascending.
    n_hits : int64, shape (guides,), written
    ranges : int64, shape (compared columns, 2), written
        Least and greatest value that passes.
    passed : int64, shape (tile,), written
    """

    of_place: Any
    of_target: Any
    start: Any
    guides: Any
    rows: Any
    own: Any
    values: Any
    comparisons: Any
    cursors: Any
    hits: Any
    n_hits: Any
    ranges: Any
    passed: Any


@helper
def list_hits(guides, values, stored, at, end):
    """List the rows for a match that begins at row `at`, `stored` of `values`, of a partition that ends before another.

    Returns
    -------
    int
        Number of tiles that were tested; `NO_HITS` if there is no match; `FULL_OF_HITS` if there is no space.
    """
    n_tiles = np.int64(0)
    for number in range(guides.guides.shape[0]):
        g = _U(number)
        first, last, limit = guides.guides[g, FIRST], guides.guides[g, LAST], guides.guides[g, LIMIT]
        cursor = guides.cursors[g]
        while cursor < last and guides.rows[_U(cursor)] <= at:
            cursor += 1
        guides.cursors[g] = cursor
        before = end
        if limit >= 0:
            n_after = guides.n_hits[_U(limit)]
            before = guides.hits[_U(limit), _U(n_after - 1)] if n_after > 0 else np.int64(0)
        n = np.int64(0)
        if _set_ranges(guides, values, stored, g):
            while cursor < last and guides.rows[_U(cursor)] < before and not _is_beyond(guides, g, cursor - first):
                if n + _TILE > guides.hits.shape[1]:
                    return np.int64(FULL_OF_HITS)
                m = min(np.int64(_TILE), last - cursor)
                while m >= _SHORT and (
                    guides.rows[_U(cursor + (m >> 1))] >= before or _is_beyond(guides, g, cursor + (m >> 1) - first)
                ):
                    m >>= np.int64(1)
                n = _test_tile(guides, g, cursor, cursor - first, m, before, n)
                cursor += m
                n_tiles += 1
        guides.n_hits[g] = n
        if n == 0 and guides.guides[g, IS_NEEDED] == 1:
            return np.int64(NO_HITS)
    return n_tiles


@helper
def _set_ranges(guides, values, stored, g):
    """Set the range of each compared column; return False if no row passes."""
    row = _U(stored)
    valid = values[row, 0]
    possible = np.bool_(guides.guides[g, FIRST] < guides.guides[g, LAST])
    for c in range(guides.guides[g, OWN], guides.guides[g, OWN_END]):
        own = _U(c)
        least, greatest = np.int64(_LEAST), np.int64(_GREATEST)
        for line in range(guides.own[own, COMPARISON], guides.own[own, COMPARISON_END]):
            op, column = guides.comparisons[_U(line), 0], guides.comparisons[_U(line), 1]
            possible = possible and (valid >> (column - 1)) & 1 == 1
            y = values[row, _U(column)]
            if op == 2:
                possible = possible and y > _LEAST
                y -= 1
            elif op == 4:
                possible = possible and y < _GREATEST
                y += 1
            if op == 0 or op == 2 or op == 3:
                greatest = min(greatest, y)
            if op == 0 or op == 4 or op == 5:
                least = max(least, y)
        guides.ranges[own, 0], guides.ranges[own, 1] = least, greatest
        possible = possible and least <= greatest
    return possible


@helper
def _is_beyond(guides, g, i):
    """Return True if a candidate, by its number among those of a guide, and all after it are beyond the bound."""
    stop = guides.guides[g, STOP]
    if stop < 0:
        return False
    x = guides.values[_U(guides.own[_U(stop), OFFSET] + i)]
    return x < guides.ranges[_U(stop), 0] if guides.guides[g, FALLS] == 1 else x > guides.ranges[_U(stop), 1]


@helper
def _test_tile(guides, g, cursor, i, m, before, n):
    """Add those of `m` candidates to the hits that pass; return the number of hits."""
    rows, values, passed = guides.rows, guides.values, guides.passed
    for r in range(m):
        passed[_U(r)] = rows[_U(cursor + r)] < before
    for c in range(guides.guides[g, OWN], guides.guides[g, OWN_END]):
        own = _U(c)
        least, greatest, offset = guides.ranges[own, 0], guides.ranges[own, 1], guides.own[own, OFFSET] + i
        for r in range(m):
            x = values[_U(offset + r)]
            passed[_U(r)] &= np.int64(x >= least) & np.int64(x <= greatest)
    hits = guides.hits
    for r in range(m):
        hits[g, _U(n)] = rows[_U(cursor + r)]
        n += passed[_U(r)]
    return n


@helper
def next_hit(guides, g, row):
    """Return the first hit of a guide from a row on, or -1."""
    guide = _U(g)
    low, high = np.int64(0), guides.n_hits[guide]
    n = high
    while low < high:
        middle = (low + high) >> np.int64(1)
        if guides.hits[guide, _U(middle)] < row:
            low = middle + 1
        else:
            high = middle
    return guides.hits[guide, _U(low)] if low < n else np.int64(-1)


@kernel
def list_candidates(states, is_candidate, values, valid, columns, numbers, taken):
    """List the rows that can take a place, as far as the row alone tells, with the columns that are compared.

    Parameters
    ----------
    states : uint16, shape (n stored rows,)
        As of `walk_rows`, of the rows that have a row in `values`.
    is_candidate : bool, shape (states,)
    values : int64, shape (at least n stored rows, columns)
        As of `cer_gpu.backend.row_search.SearchPlan.values`.
    valid : int
        Bits of the columns that must be valid.
    columns : int64, shape (compared columns,)
    numbers : int32, shape (at least n stored rows + 1,), written
        The candidates' rows of `values`, ascending.
    taken : int64, shape (compared columns, at least n stored rows + 1), written
        Columns of the candidates.

    Returns
    -------
    int
        Number of candidates.
    """
    n = _U(0)
    for i in range(states.shape[0]):
        row = _U(i)
        if is_candidate[_U(states[row])] and values[row, _U(0)] & valid == valid:
            numbers[n] = i
            for c in range(columns.shape[0]):
                taken[_U(c), n] = values[row, _U(columns[_U(c)])]
            n += _U(1)
    return np.int64(n)


@kernel
def order_of_column(values, words, column, bit, ends):
    """Return the order and the range of the valid values of a column.

    Parameters
    ----------
    values : int64 or float64, shape (n read rows, columns)
        As of `cer_gpu.backend.row_search.SearchPlan.values`, or the same memory.
    words : int64, shape (n read rows, columns)
        The same memory: column 0 tells which columns are valid.
    column : int
    bit : int
        The bit of the column.
    ends : int64, shape (n partitions,)
        The row after each partition, ascending.

    Returns
    -------
    (int, bool, bool, bool, number, number)
        Number of valid values; whether they never decrease in a partition, and never increase; whether all are numbers
        and finite; and the least and the greatest one, or 0.
    """
    n_valid, partition = 0, 0
    rises = falls = is_finite = True
    least = greatest = before = values[0, 0] * 0
    end = np.int64(0)
    for i in range(values.shape[0]):
        row = _U(i)
        if not words[row, _U(0)] & bit:
            continue
        x = values[row, _U(column)]
        is_finite = is_finite and x - x == 0
        if i >= end:  # the first one of a partition has none before it
            before = x
            while partition < ends.shape[0] and ends[_U(partition)] <= i:
                partition += 1
            end = ends[_U(partition)] if partition < ends.shape[0] else np.int64(values.shape[0])
        rises = rises and x >= before
        falls = falls and x <= before
        least = x if n_valid == 0 else min(least, x)
        greatest = x if n_valid == 0 else max(greatest, x)
        before = x
        n_valid += 1
    return n_valid, rises, falls, is_finite, least, greatest
