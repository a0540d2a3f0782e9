"""Aggregates over the rows that a variable holds, for each match of a buffer and each match of a row pattern.

Both are segments of entries, each of a row, and with a mark that says which variables hold it.  An aggregate has one
value for a segment or, if requested for `each` entry, one for the entries of the segment up to it.  Indices are
unsigned, so that none is taken to count from the end of an array.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel

_U = np.uint64


class Segments(NamedTuple):
    """Entries segment by segment, and those that a variable holds.

    Attributes
    ----------
    offsets : int32 or int64, shape (segments + 1,)
        First entry of each segment.
    marks : int16 or int32, shape (entries,)
    holds : bool, shape (marks,)
        True for the marks of entries that the variable holds.
    rows : int32 or int64, shape (entries,), or (0,)
        Row of each entry; empty where those of a segment follow one another.
    firsts : int64, shape (segments,), or (0,)
        Then the row of the first entry of each segment.
    """

    offsets: Any
    marks: Any
    holds: Any
    rows: Any
    firsts: Any


@helper
def _row(segments, i, p):
    """Return the row of entry `p`, which is in segment `i`."""
    if segments.rows.shape[0] > 0:
        return np.int64(segments.rows[_U(p)])
    return segments.firsts[_U(i)] + np.int64(p) - np.int64(segments.offsets[_U(i)])


@helper
def _is_bound(segments, p):
    """Return whether the variable holds an entry."""
    return segments.holds[_U(segments.marks[_U(p)])]


@helper
def exceeds(value, best, sign):
    """Return whether a value is above another one for sign 1, or below it for -1; no product, which could overflow."""
    return value > best if sign > 0 else value < best


@kernel
def find_bound_row(segments, first, nth, each, rows):
    """Find the `nth` row that a variable holds, from the first or from the last one.

    Parameters
    ----------
    segments : Segments
    first : bool
    nth : int
        0 for the first or last row itself.
    each : bool
    rows : int32 or int64, shape (segments,), or (entries,), written
        -1 where there is none.
    """
    segments = Segments(*segments)
    for i in range(segments.offsets.shape[0] - 1):
        begin, end = np.int64(segments.offsets[_U(i)]), np.int64(segments.offsets[_U(i + 1)])
        n = 0
        if each:
            at: Any = np.int64(-1)  # the matching entry
            behind = begin  # where the nth from the last is searched on
            for p in range(begin, end):
                if _is_bound(segments, p):
                    n += 1
                    if first:
                        if n == nth + 1:
                            at = p
                    elif n > nth:
                        # of the entries of the variable, one more lies after the result
                        behind += n > nth + 1
                        while not _is_bound(segments, behind):
                            behind += 1
                        at = behind
                rows[_U(p)] = _row(segments, i, at) if at >= 0 else -1
            continue
        rows[_U(i)] = -1
        for k in range(end - begin):
            entry = begin + k if first else end - 1 - k
            if _is_bound(segments, entry):
                if n == nth:
                    rows[_U(i)] = _row(segments, i, entry)
                    break
                n += 1


@kernel
def count_bound(segments, valid, each, counts):
    """Count the rows that a variable holds, of those that are not NULL.

    Parameters
    ----------
    segments : Segments
    valid : bool, shape (n rows,), or (0,)
        False for NULL; of shape (0,): no row is NULL.
    each : bool
    counts : int64, shape (segments,), or (entries,), written
    """
    segments = Segments(*segments)
    for i in range(segments.offsets.shape[0] - 1):
        n = 0
        for p in range(segments.offsets[_U(i)], segments.offsets[_U(i + 1)]):
            if valid.shape[0] == 0:
                n += _is_bound(segments, p)
            elif _is_bound(segments, p):
                n += valid[_U(_row(segments, i, p))]
            if each:
                counts[_U(p)] = n
        if not each:
            counts[_U(i)] = n


@kernel
def gather_bound(segments, bounds, gathered):
    """Gather the rows that a variable holds, segment by segment.

    Parameters
    ----------
    segments : Segments
    bounds : int64, shape (segments + 1,), written
        Offsets of the segments into `gathered`.
    gathered : int32 or int64, shape (entries,), written

    Returns
    -------
    int
        Number of rows.
    """
    segments = Segments(*segments)
    n = 0
    bounds[0] = 0
    for i in range(segments.offsets.shape[0] - 1):
        for p in range(segments.offsets[_U(i)], segments.offsets[_U(i + 1)]):
            if _is_bound(segments, p):
                gathered[_U(n)] = _row(segments, i, p)
                n += 1
        bounds[_U(i + 1)] = n
    return n


@kernel
def sum_bound(segments, values, valid, limits, each, sums, counts):
    """Add up the values of the rows that a variable holds, in their order.

    Parameters
    ----------
    segments : Segments
    values : int64 or float64, shape (n rows,)
    valid : bool, shape (n rows,), or (0,)
        False for NULL; of shape (0,): no row is NULL.
    limits : int64 or float64, shape (2,)
        Least and greatest sum.
    each : bool
    sums : int64 or float64, shape (segments,), or (entries,), written
        Sums, values and limits are of one type.
    counts : int64, shape (segments,), or (entries,), written
        Number of values that are not NULL.

    Returns
    -------
    int
        The first row whose sum is beyond the limits; -1 if there is none.
    """
    segments = Segments(*segments)
    least, greatest = limits[0], limits[1]
    for i in range(segments.offsets.shape[0] - 1):
        total = sums.dtype.type(0)
        n = 0
        for p in range(segments.offsets[_U(i)], segments.offsets[_U(i + 1)]):
            row = _row(segments, i, p)
            if _is_bound(segments, p) and (valid.shape[0] == 0 or valid[_U(row)]):
                value = values[_U(row)]
                if total > greatest - value if value >= 0 else total < least - value:
                    return row
                total += value
                n += 1
            if each:
                sums[_U(p)] = total
                counts[_U(p)] = n
        if not each:
            sums[_U(i)] = total
            counts[_U(i)] = n
    return np.int64(-1)


@kernel
def extreme_bound(segments, ranks, valid, sign, each, rows):
    """Find the row with the least or greatest value among those that a variable holds, the first of equals.

    Parameters
    ----------
    segments : Segments
    ranks : int64 or float64, shape (n rows,)
        In the order of the values; NaN is chosen last.
    valid : bool, shape (n rows,), or (0,)
        False for NULL; of shape (0,): no row is NULL.
    sign : int
        1 for the greatest value, -1 for the least.
    each : bool
    rows : int32 or int64, shape (segments,), or (entries,), written
        -1 where there is none.
    """
    segments = Segments(*segments)
    for i in range(segments.offsets.shape[0] - 1):
        best: Any = np.int64(-1)
        for p in range(segments.offsets[_U(i)], segments.offsets[_U(i + 1)]):
            row = _row(segments, i, p)
            if _is_bound(segments, p) and (valid.shape[0] == 0 or valid[_U(row)]):
                least = ranks[_U(max(best, 0))]
                if best < 0 or least != least or exceeds(ranks[_U(row)], least, sign):
                    best = row
            if each:
                rows[_U(p)] = best
        if not each:
            rows[_U(i)] = best
