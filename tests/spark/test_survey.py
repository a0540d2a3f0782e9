"""Counts by buckets of values, and the ranges cut by them, whatever tasks and batches the rows come in."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pyarrow as pa
import pytest
from sizes import seeds

from spark_glue import survey
from spark_glue.survey import BucketCounts, count_by_bucket, counts_of


def column_of(rng, n, kind):
    """Return values with ties, a dense stretch among sparse ones, and some far away."""
    spread = rng.choice([3, 50, 10**6, 2**50])
    values = [rng.randrange(spread) - spread // 3 for _ in range(n)]
    values = [v if rng.random() < 0.5 else rng.randrange(7) for v in values]
    if rng.random() < 0.3:
        values[rng.randrange(n)] = rng.choice([-1, 1]) * 2**60
    if kind == "float":
        return pa.array([v / 8 if rng.random() < 0.9 else rng.choice([-0.0, math.inf, -math.inf]) for v in values])
    return pa.array(values, pa.int64()) if kind == "integer" else pa.array(values, pa.timestamp("us", "UTC"))


def counted(rng, column, n_parts, within=()):
    """Count in tasks, each with batches of any size."""
    rows = list(range(len(column)))
    rng.shuffle(rows)
    cuts = sorted(rng.choices(range(len(rows) + 1), k=rng.randint(0, 4)))
    tasks = [rows[begin:end] for begin, end in itertools.pairwise([0, *cuts, len(rows)])]
    found = []
    for task in tasks:
        batches = pa.table({"t": column.take(pa.array(task, pa.int64()))}).to_batches(max_chunksize=rng.choice([3, 40]))
        found += list(count_by_bucket(iter(batches), survey.max_buckets(n_parts), within))
    floating = pa.types.is_floating(column.type)
    table = pa.Table.from_batches(found) if found else pa.table({name: pa.array([], pa.int64()) for name in NAMES})
    return counts_of(table, floating=floating)


NAMES = (survey.BUCKET_SHIFT, survey.BUCKET, survey.COUNT)


@pytest.mark.parametrize("kind", ["integer", "float", "time"])
@pytest.mark.parametrize("seed", seeds(60))
def test_ranges_have_known_positions_and_the_window_before_them(monkeypatch, seed, kind):
    rng = random.Random(seed)
    monkeypatch.setattr(survey, "MIN_BUCKETS", rng.choice([2, 8, 64]))
    monkeypatch.setattr(survey, "BUCKETS_A_PART", 1)
    n, n_parts = rng.randint(1, 300), rng.choice([1, 2, 3, 7, 40])
    column = column_of(rng, n, kind)
    counts = counted(rng, column, n_parts)
    if rng.random() < 0.5 and (wide := counts.too_wide(n_parts)):
        counts = counts.refined(counted(rng, column, n_parts, wide))
    assert (counts.n_rows, counts.n_nulls) == (n, 0)
    values = np.sort(np.array(column.to_pylist() if kind == "float" else column.view(pa.int64()).to_pylist()))
    by_position, length = rng.random() < 0.5, rng.choice([0, 1, 5, n // 2, 10**6])
    ranges = counts.ranges(n_parts, length, by_position=by_position)
    assert len(ranges.bounds) + 1 == len(ranges.firsts) == len(ranges.begins) == len(ranges.starts) <= n_parts
    assert ranges.firsts[0] == ranges.starts[0] == 0
    assert list(ranges.firsts[1:]) == [int((values < bound).sum()) for bound in ranges.bounds]
    assert list(ranges.starts[1:]) == [int((values < begin).sum()) for begin in ranges.begins[1:]]
    assert sorted(set(ranges.firsts)) == list(ranges.firsts)
    for bound, first, begin, start in zip(
        ranges.bounds, ranges.firsts[1:], ranges.begins[1:], ranges.starts[1:], strict=True
    ):
        assert begin <= bound
        if by_position:
            assert start <= max(first - length, 0)
        else:
            assert not ((values < begin) & (values >= bound - length)).any()


@pytest.mark.parametrize("spread", ["even", "dense"])
def test_ranges_are_of_like_size(spread):
    """Although half of the rows are in a thousandth of the time."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 10**12, 100_000)
    values[::2] = rng.integers(0, 10**9, 50_000) if spread == "dense" else values[::2]
    batches = [pa.record_batch({"t": values[k : k + 1000]}) for k in range(0, len(values), 1000)]
    for n_parts in (2, 16, 100):
        most = survey.max_buckets(n_parts)
        counts = counts_of(pa.Table.from_batches(count_by_bucket(batches, most)), floating=False)
        while wide := counts.too_wide(n_parts):
            counts = counts.refined(
                counts_of(pa.Table.from_batches(count_by_bucket(batches, most, wide)), floating=False)
            )
        firsts = [*counts.ranges(n_parts, None, by_position=True).firsts, len(values)]
        assert len(firsts) == n_parts + 1
        assert max(np.diff(firsts)) < 1.2 * len(values) / n_parts


def test_missing_values_are_counted_apart():
    batches = [pa.record_batch({"t": pa.array([3, None, 1, None], pa.int32())})]
    counts = counts_of(pa.Table.from_batches(count_by_bucket(batches, 8)), floating=False)
    assert (counts.n_rows, counts.n_nulls, counts.lows.tolist()) == (2, 2, [1, 3])


def test_no_rows_are_one_range():
    none = np.zeros(0, np.int64)
    for floating in (False, True):
        ranges = BucketCounts(none, none, none, 0, floating).ranges(4, 5, by_position=False)
        assert (ranges.firsts, ranges.bounds, ranges.starts) == ((0,), (), (0,))
