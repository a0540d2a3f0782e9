"""Conjunctions counted by keys: the numbers of the rows, bounded memory, and numbers too large to be kept."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from cases import counts_of
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.runtime.parallel.conjunction_counter import ConjunctionCounter
from cer_gpu.runtime.parallel.products import Products

FLAT = "Q(x) <- A(k = x), B(k = x), C(k = x)"
TWO_KEYS = "Q(x, y) <- A(k = x), B(k = x, m = y), C(k = x, m = y)"
THREE_KEYS = "Q(x, y, s) <- A(k = x), B(k = x, m = y), C(k = x, m = y, s = s), D(k = x, m = y, s = s)"
BUSHY = "Q(x, y, s) <- A(k = x, m = y), B(k = x, m = y), C(k = x, s = s), D(k = x, s = s)"
APART = "Q(x, y) <- A(k = x), B(k = x), C(s = y), D(s = y)"
TWICE = "SELECT * FROM S WHERE A AS a ALL B AS b ALL C AS c FILTER b.k = a.k AND b.m = a.k AND c.k = b.k"
PATTERNS = (FLAT, TWO_KEYS, THREE_KEYS, BUSHY, APART, TWICE)
WINDOWS = ("", "WITHIN 11 EVENTS", "WITHIN 9 [at]", "WITHIN 9.5 [moment]", "WITHIN 7 SECONDS LIMIT 3")


def compiled(text):
    query = cer_gpu.compile(text, time_column="at", time_unit="s")
    assert query.physical_plan("count").runtime == "conjunction_counter"
    return query


def stream(n, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "type": rng.choice(list("ABCDE"), n),
            "k": pa.array(rng.integers(0, 2, n), mask=rng.random(n) < 0.05),
            "m": rng.integers(0, 2, n),
            "s": pa.array(rng.choice(["one", "two"], n), mask=rng.random(n) < 0.05),
            "at": np.cumsum(rng.integers(0, 3, n)),
            "moment": np.cumsum(rng.random(n)),
        }
    )


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("window", WINDOWS)
def test_counts_are_the_numbers_of_rows_in_any_cut(pattern, window):
    query, table = compiled(f"{pattern} {window}"), stream(250 if window else 50)
    expected = sorted(Counter(query.evaluate(table)["end"].to_pylist()).items())
    assert expected
    assert counts_of(query.evaluate(table, output="count")) == expected
    with small_sizes():
        assert counts_of(query.evaluate(table, output="count")) == expected
        evaluator, found = query.evaluator(output="count"), []
        for batch in table.to_batches(17):
            found.append(evaluator.push(batch))
            evaluator = query.restore(evaluator.checkpoint())
        found.append(evaluator.finish())
    assert counts_of(pa.Table.from_batches(found)) == expected
    shards = [query.evaluate(table, output="count", shard=(k, 3)) for k in range(3)]
    assert sorted(row for shard in shards for row in counts_of(shard)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM S WHERE A AS a ALL A AS b FILTER b.k = a.k",
        f"{FLAT} PARTITION BY [m]",
        "SELECT * FROM S WHERE (A AS a ALL B AS b) ; C AS c FILTER b.k = a.k AND c.k = a.k",
        "SELECT MAX * FROM S WHERE A AS a ALL B AS b FILTER b.k = a.k",
        "SELECT * FROM S WHERE A AS a ALL B AS b FILTER b.k = a.k WITHIN 9 EVENTS CONSUME BY ANY",
    ],
)
def test_other_patterns_are_counted_by_partial_matches(text):
    assert cer_gpu.compile(text).physical_plan("count").runtime == "products"


TYPES = "BCDEFGHIJK"
LARGE = "Q(x, y) <- A(k = x), " + ", ".join(f"{name}(k = x, m = y)" for name in TYPES) + " WITHIN 850 EVENTS"


def many(n, *, ended=""):
    """Return n events of each type but A, and then those of `ended`, all with equal values."""
    types = [*TYPES * n, *ended]
    return pa.table({"type": types, "k": [1] * len(types), "m": [2] * len(types)})


def runtimes(query, parts):
    """Return the runtimes and the counts of one evaluation with a checkpoint after each part."""
    evaluator, found, used = query.evaluator(output="count"), [], []
    for part in parts:
        evaluator = query.restore(evaluator.checkpoint())
        found += [evaluator.push(batch) for batch in part.to_batches()]
        used.append(evaluator.pipeline.runtime)
    return used, counts_of(pa.Table.from_batches([*found, evaluator.finish()]))


def test_more_partial_matches_than_a_number_holds_are_dropped_with_the_window():
    query = cer_gpu.compile(LARGE)
    used, found = runtimes(query, [many(80), many(0, ended="Z" * 860), many(2, ended="AA"), many(0, ended="A")])
    assert 80 ** len(TYPES) > 2**63
    assert all(isinstance(each, ConjunctionCounter) for each in used)
    assert isinstance(used[-1]._products, Products)
    first = 80 * len(TYPES) + 860 + 2 * len(TYPES)
    assert found == [(first + i, 2 ** len(TYPES)) for i in range(3)]


@pytest.mark.parametrize("cut", [(75,), (50, 25), (74, 1)])
def test_the_events_in_the_window_are_handed_over_once_numbers_are_too_large(cut):
    parts = [*map(many, cut), many(0, ended="A")]
    used, found = runtimes(cer_gpu.compile(LARGE), parts)
    assert 2**62 < 75 ** len(TYPES) < 2**63
    assert isinstance(used[-1]._products, Products)
    assert found == [(75 * len(TYPES), 75 ** len(TYPES))]


def test_a_count_beyond_int64_is_an_error_in_a_window_too():
    query, table = cer_gpu.compile(LARGE), many(80, ended="A")
    with pytest.raises(cer_gpu.errors.EventsError, match=f"end at event {80 * len(TYPES)}"):
        query.evaluate(table, output="count")


@pytest.mark.parametrize("pattern", [FLAT, TWO_KEYS])
def test_a_million_keys_one_after_the_other_leave_no_trace(pattern):
    query, n = compiled(f"{pattern} WITHIN 100 EVENTS"), 1 << 17
    rng = np.random.default_rng(1)
    evaluator, sizes = query.evaluator(output="count"), []
    for part in range(8):
        at = np.arange(part * n, (part + 1) * n)
        table = pa.table({"type": rng.choice(list("ABC"), n), "k": at // 20, "m": at % 2, "at": at})
        for batch in table.to_batches():
            assert evaluator.push(batch).num_rows
        sizes.append(evaluator.pipeline.runtime.n_bytes)
    assert sizes[-1] == sizes[1]
    assert evaluator.pipeline.runtime.live_counts["events"] <= 101
    assert evaluator.pipeline.runtime.live_counts["keys"] <= 202
