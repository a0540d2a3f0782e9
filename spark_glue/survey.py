"""Counts of the rows of a stream by the first column of its order, by which the stream is cut into ranges.

One pass over that column alone counts the rows of each bucket of values.  The width of the buckets is a power of two,
which each task of the pass doubles as it needs, so that the counts of all tasks add up exactly: a range that begins
where a bucket does has a position in the stream that is known before any row is sorted.  This module needs no Spark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.planning.distribution import at_or_before

WHERE = "$where"
"""Column that measures the window, as a number."""
FILE, ROW = "$file", "$row"
"""Columns of the file of a row, and of its number there."""
BUCKET_SHIFT, BUCKET, COUNT = "$shift", "$bucket", "$count"
"""Columns of the counts of a task: the logarithm of the width of buckets, the value of the bucket's first number
divided by the width (NULL for rows without a value), and the number of rows."""
LEAST_INT64, MAX_INT64 = -(2**63), 2**63 - 1
"""Smallest and largest 64-bit integers."""
MIN_BUCKETS, MAX_BUCKETS, BUCKETS_A_PART = 1 << 10, 1 << 12, 16
"""Most buckets that a task reports: at least, at most, and for each part."""
EVEN = 0.1
"""Share of the rows of an even part above which a bucket is counted again, in narrower buckets."""
MAX_PASSES = 3


@dataclass(frozen=True)
class Ranges:
    """Ranges of a stream, each with the window before it.

    A row of range k goes to range k, and to every later range j up to k + `reach` with ``begins[j] <= where``, where
    `where` is the position of the row for a window of events, and the value that measures the window otherwise.

    Attributes
    ----------
    firsts : tuple of int
        The first position of each range, ascending.
    begins : tuple of int or float
    reach : int
    bounds : tuple of int or float
        Least value of the first column of the order of each range but the first.
    starts : tuple of int
        Position of the first row that goes to each range, or none if rows come with their positions.
    """

    firsts: tuple[int, ...]
    begins: tuple[int | float, ...]
    reach: int
    bounds: tuple[int | float, ...] = ()
    starts: tuple[int, ...] = ()


def max_buckets(n_parts: int) -> int:
    """Return the most buckets that a task reports for a number of parts."""
    return min(max(MIN_BUCKETS, BUCKETS_A_PART * n_parts), MAX_BUCKETS)


def sort_key(values: pa.Array) -> pa.Array:
    """Return values that ascend as Spark orders a column; NULL stays NULL.

    Parameters
    ----------
    values
        Numbers, times, booleans or strings (also with a dictionary).

    Returns
    -------
    pyarrow.Array
        Integers for booleans and floats; other values as they are.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if not pa.types.is_floating(values.type):
        return values
    floats = values.cast(pa.float64()).fill_null(0).to_numpy() + 0.0  # -0.0 + 0.0 is 0.0
    bits = np.where(np.isnan(floats), np.float64(np.nan), floats).view(np.int64)
    # a negative float has a greater magnitude the less it is
    keys = np.where(bits < 0, bits ^ MAX_INT64, bits)
    return pa.array(keys, mask=values.is_null().to_numpy(zero_copy_only=False))


def count_by_bucket(
    batches: Iterable[pa.RecordBatch], n_max: int, within: Sequence[tuple[int, int]] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each bucket of values.

    Parameters
    ----------
    batches
        Batches whose only column has integers, floats, timestamps or dates.
    n_max
        Maximum number of buckets.
    within
        Bounds (first, last) of the values to count, as `sort_key` gives them, ascending; empty for all.

    Yields
    ------
    pyarrow.RecordBatch
        One batch with `BUCKET_SHIFT`, `BUCKET` and `COUNT`, or none if there are no rows.
    """
    shift, n_nulls = 0, 0
    buckets, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    lows, highs = (np.array([pair[i] for pair in within], np.int64) for i in (0, 1))
    for batch in batches:
        column = batch.column(0)
        if pa.types.is_temporal(column.type):
            column = column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
        column = sort_key(column)
        n_nulls += column.null_count
        values = column.drop_null().to_numpy().astype(np.int64, copy=False)
        if len(lows):
            at = np.searchsorted(lows, values, "right") - 1
            values = values[(at >= 0) & (values <= highs[at])]
        own, n_own = np.unique(values >> shift, return_counts=True)
        buckets, counts = _added(np.concatenate([buckets, own]), np.concatenate([counts, n_own]))
        while len(buckets) > n_max:
            shift += 1
            buckets, counts = _added(buckets >> 1, counts)
    if not len(buckets) and not n_nulls:
        return
    yield pa.record_batch(
        {
            BUCKET_SHIFT: pa.array(np.full(len(buckets) + 1, shift, np.int32)),
            BUCKET: pa.array(np.append(buckets, 0), mask=np.arange(len(buckets) + 1) == len(buckets)),
            COUNT: pa.array(np.append(counts, n_nulls)),
        }
    )


def _added(buckets: Int64, counts: Int64) -> tuple[Int64, Int64]:
    """Return each bucket once, ascending, with the sum of its counts."""
    distinct, at = np.unique(buckets, return_inverse=True)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, at, counts)
    return distinct, sums


@dataclass(frozen=True)
class BucketCounts:
    """Rows of a stream by buckets of the first column of its order.

    Attributes
    ----------
    lows, highs : ndarray, shape (n_buckets,), int64
        First and last value of each bucket as `sort_key` gives them, ascending.
    counts : ndarray, shape (n_buckets,), int64
    n_nulls : int
        Number of rows without a value.
    floating : bool
        True if the values are floats.
    """

    lows: Int64
    highs: Int64
    counts: Int64
    n_nulls: int
    floating: bool

    @property
    def n_rows(self) -> int:
        """Number of rows, without those that have no value."""
        return int(self.counts.sum())

    def too_wide(self, n_parts: int) -> list[tuple[int, int]]:
        """Return the bounds of the buckets of several values that have too many rows for parts of like size."""
        many = (self.counts > EVEN * self.n_rows / n_parts) & (self.highs > self.lows)
        return list(zip(self.lows[many].tolist(), self.highs[many].tolist(), strict=True))

    def refined(self, finer: BucketCounts) -> BucketCounts:
        """Return the counts with those of narrower buckets in place of the buckets that these divide."""
        undivided = np.ones(len(self.lows), bool)
        undivided[np.searchsorted(self.lows, finer.lows, "right") - 1] = False
        columns = [
            np.concatenate([getattr(self, name)[undivided], getattr(finer, name)])
            for name in ("lows", "highs", "counts")
        ]
        order = np.argsort(columns[0], kind="stable")
        lows, highs, counts = (column[order] for column in columns)
        return BucketCounts(lows, highs, counts, self.n_nulls, self.floating)

    def ranges(self, n_parts: int, length: int | float | None, *, by_position: bool) -> Ranges:
        """Return ranges of like size, each of which begins where a bucket does; there may be fewer of them.

        Parameters
        ----------
        n_parts
        length
            Length of the window, in events or in units of the column; None for ranges without the window before them.
        by_position
            True for a window of events.
        """
        firsts = np.cumsum(self.counts) - self.counts
        edges = [0]
        for k in range(1, n_parts):
            wanted = k * self.n_rows / n_parts
            edge = int(np.searchsorted(firsts, wanted))
            if edge and (edge == len(firsts) or firsts[edge] - wanted > wanted - firsts[edge - 1]):
                edge -= 1
            if edge > edges[-1] and math.isfinite(self._value(edge)):
                edges.append(edge)
        own = tuple(int(firsts[edge]) if len(firsts) else 0 for edge in edges)
        bounds = tuple(self._value(edge) for edge in edges[1:])
        if length is None:
            return Ranges(own, (), 0, bounds)
        begins = [0]
        for edge, first in zip(edges[1:], own[1:], strict=True):
            if by_position:
                begin = int(np.searchsorted(firsts, first - length, "right")) - 1
            else:
                begin = int(np.searchsorted(self.lows, self._key_before(self._value(edge), length), "right")) - 1
            begins.append(max(begin, 0))
        reach = max(
            (sum(begin < end for begin in begins[k + 1 :]) for k, end in enumerate([*edges[1:], len(firsts)])),
            default=0,
        )
        starts = tuple(int(firsts[begin]) if len(firsts) else 0 for begin in begins)
        return Ranges(own, tuple(self._value(begin) for begin in begins), reach, bounds, starts)

    def _value(self, bucket: int) -> int | float:
        """Return a value that is not after the rows of a bucket, and after those of all buckets before it."""
        if not len(self.lows) or (self.floating and not bucket):
            return -math.inf if self.floating else 0
        low = int(self.lows[bucket])
        if not self.floating:
            return low
        return float(np.int64(low if low >= 0 else low ^ MAX_INT64).view(np.float64))

    def _key_before(self, value: int | float, length: int | float) -> int:
        """Return, as `sort_key` gives it, a value that is at or before all that are at most a length before a value."""
        if isinstance(value, int) and isinstance(length, int):
            return max(value - length, LEAST_INT64)
        begin = at_or_before(value, length)
        if not self.floating:
            return LEAST_INT64 if begin <= LEAST_INT64 else math.floor(begin)
        return int(sort_key(pa.array([begin], pa.float64()))[0].as_py())


def counts_of(table: pa.Table, *, floating: bool) -> BucketCounts:
    """Return the counts of all tasks together, in the widest of their buckets."""
    columns = [table[name].combine_chunks() for name in (BUCKET_SHIFT, BUCKET, COUNT)]
    valid = columns[1].is_valid().to_numpy(zero_copy_only=False)
    shifts, counts = (columns[i].to_numpy().astype(np.int64) for i in (0, 2))
    buckets = columns[1].fill_null(0).to_numpy()[valid]
    shift = int(shifts[valid].max(initial=0))
    buckets, sums = _added(buckets >> (shift - shifts[valid]), counts[valid])
    lows = buckets << shift
    return BucketCounts(lows, lows + ((1 << shift) - 1), sums, int(counts[~valid].sum()), floating)
