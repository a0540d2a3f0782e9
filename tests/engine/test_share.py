"""Shares of the complex events: disjoint, complete together, and of like size (papers: the distributed algorithm)."""

from __future__ import annotations

import random
from collections import Counter

import cases
import pyarrow as pa
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.engine import execution_group
from cer_gpu.runtime import matches, run

OUTPUTS = ("positions", "bindings", "events", "count", "ends")


def parts_of(query, events, n, **options):
    return [query.evaluate(events, shard=(k, n), **options) for k in range(n)]


def rows_of(table):
    return [repr(row) for row in table.to_pylist()]


def assert_dealt(parts, whole):
    """Check that each row of the whole is in one share, and that each share is in the order of the ends."""
    dealt = Counter(row for part in parts for row in rows_of(part))
    assert dealt == Counter(rows_of(whole))
    for part in parts:
        assert part["end"].to_pylist() == sorted(part["end"].to_pylist())


def random_events(n, seed=0, types="ABCD"):
    rng = random.Random(seed)
    return pa.table({"type": rng.choices(types, k=n), "k": rng.choices([1, 2, None], k=n), "ts": range(n)})


@strategies.property_settings
@given(st.data())
def test_shares_of_random_queries_make_up_the_whole(data):
    case = cases.Case(data, strategies.full_cases())
    case.expected()
    output = data.draw(st.sampled_from(OUTPUTS))
    n = data.draw(st.integers(1, 5))
    whole = case.compiled.evaluate(case.table, output=output)
    assert_dealt(parts_of(case.compiled, case.table, n, output=output), whole)


WORKLOADS = [
    "SELECT * FROM S WHERE A ; B ; C WITHIN 60 EVENTS",
    "SELECT * FROM S WHERE A ; B ; C ; D ; A WITHIN 25 EVENTS",
    "SELECT * FROM S WHERE A ; B+ ; C WITHIN 24 EVENTS",
    "SELECT * FROM S WHERE (A OR B)+ ; C WITHIN 12 EVENTS",
    "SELECT A FROM S WHERE A ; B+ ; C WITHIN 60 EVENTS",
    "SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 40 EVENTS",
    "SELECT * FROM S WHERE A ; B ; C PARTITION BY [k] WITHIN 50 [ts]",
    "SELECT MAX * FROM S WHERE A+ ; C WITHIN 400 EVENTS",
    "SELECT * FROM S WHERE A : B",
    "SELECT * FROM S WHERE A ; B ; C LIMIT 3",
]


@pytest.mark.long("counts the rows of many shares")
@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("text", WORKLOADS)
def test_shares_are_within_ten_percent_of_even(text, n):
    events = random_events(1500, seed=7)
    query = cer_gpu.compile(text)
    whole = query.evaluate(events)
    parts = parts_of(query, events, n)
    assert_dealt(parts, whole)
    even = whole.num_rows / n
    assert even >= 10
    assert all(abs(part.num_rows - even) <= max(0.1 * even, 2) for part in parts)


def test_expired_paths_do_not_count_for_a_share():
    """Most paths of the tECS began before the window; they must not count for any share."""
    events = pa.table({"type": ["A"] + ["B"] * 30 + ["A"] * 3 + ["B"] * 9 + ["C"]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B+ ; C WITHIN 13 EVENTS")
    parts = parts_of(query, events, 4)
    assert [part.num_rows for part in parts] == [3 * (2**9 - 1) // 4 + (k > 2) for k in range(4)]


@pytest.mark.parametrize("n_kleene", [60, 64, 70, 500, 1100])
def test_counts_beyond_64_bits_are_dealt_evenly(n_kleene):
    """There are 2**n - 1 complex events; the 999 that LIMIT keeps are dealt."""
    events = pa.table({"type": ["A"] + ["B"] * n_kleene + ["C"]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B+ ; C LIMIT 999")
    parts = parts_of(query, events, 3)
    assert [part.num_rows for part in parts] == [333] * 3
    assert_dealt(parts, query.evaluate(events))


def test_shares_do_not_depend_on_cuts_or_sizes_of_buffers(monkeypatch):
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 9 EVENTS")
    events = random_events(800, seed=3)
    expected = parts_of(query, events, 3)
    for module, name, value in ((run, "INITIAL_SIZE", 4), (run, "REBASE_POSITION", 16), (matches, "OUTPUT_ROWS", 3)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(execution_group, "BLOCK_ROWS", 7)
    for k in range(3):
        stepwise = query.evaluator(shard=(k, 3))
        found = []
        for batch in events.to_batches(max_chunksize=11):
            found.append(stepwise.push(batch))
            stepwise = query.restore(stepwise.checkpoint())
        assert pa.Table.from_batches(found).equals(expected[k])


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0, 0), (0,), [0, 2], (0.0, 2), "half", (True, 2)])
def test_a_shard_that_is_no_pair_k_of_n_is_refused(shard):
    with pytest.raises(cer_gpu.OptionError, match=r"shard must be \(k, n\) with 0 <= k < n"):
        cer_gpu.compile("SELECT * FROM S WHERE A").evaluate(random_events(1), shard=shard)
