"""Events that no complex event to come can hold are passed over, and nothing else."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.automaton.chain import Chain, Step
from cer_gpu.backend.windows import LIVE_CHUNK
from cer_gpu.engine import intervals
from cer_gpu.engine.intervals import LiveIntervals

A, B, C, B_AND_C = range(1, 5)


@pytest.fixture
def chain():
    found = Chain(tuple(Step((k,), False, frozenset("a")) for k in range(3)))
    assert [found.symbol(word) for word in (1, 2, 4, 6)] == [A, B, C, B_AND_C]
    return found


def test_the_symbols_that_may_end(chain):
    assert chain.ending[: B_AND_C + 1].tolist() == [False, False, False, True, True]


@pytest.mark.parametrize("seed", range(30))
def test_events_in_the_window_of_an_end_or_of_the_last_event(chain, monkeypatch, seed):
    monkeypatch.setattr(intervals, "PAYS_UP_TO", float("inf"))
    rng = np.random.default_rng(seed)
    n = int(rng.choice([1, 2, 300, 3 * LIVE_CHUNK + 5]))
    ends = rng.random(n) < rng.choice([0, 2 / n, 0.01, 0.5])
    symbols = np.where(ends, rng.choice([C] if seed % 2 else [C, B_AND_C], n), rng.choice([A, B], n)).astype(np.int32)
    length = int(rng.choice([0, 1, 40, 2 * LIVE_CHUNK, 2**63]))
    if seed % 3:
        clocks = np.cumsum(rng.integers(0, 3, n)).astype(np.uint64)
        window = np.uint64(length)
    else:
        clocks = np.sort(rng.normal(size=n) * n)
        clocks[n - n // 10 :] = np.inf
        window = np.float64(length)
    found = LiveIntervals(chain, window).among(symbols, clocks)
    of_use = np.flatnonzero(ends | (np.arange(n) == n - 1))
    with np.errstate(invalid="ignore"):
        expected = [
            i for i in range(n) if (clocks[of_use[of_use >= i]] - clocks[i] <= window).any() or np.isinf(clocks[i])
        ]
    assert found.tolist() == expected


def test_only_where_ends_are_rare(chain):
    live = LiveIntervals(chain, np.uint64(10))
    clocks = np.arange(10_000, dtype=np.uint64)
    symbols = np.full(10_000, A, np.int32)
    assert len(live.among(symbols, clocks)) == 11
    symbols[::10] = C
    assert live.among(symbols, clocks) is None
    assert LiveIntervals(chain, np.uint64(9_000)).among(np.full(10_000, A, np.int32), clocks) is None


@pytest.mark.parametrize("output", ["positions", "events", "count"])
@pytest.mark.parametrize("pattern", ["A ; B", "A ; B+ ; C", "A ; B ; (C OR D)"])
def test_rare_ends_in_a_long_stream(monkeypatch, pattern, output):
    rng = random.Random(pattern)
    n = 40_000
    last = pattern[-1] if pattern[-1] != ")" else "CD"
    others = [t for t in "ABCDE" if t not in last]
    types = rng.choices([*others, *last], [1] * len(others) + [0.0005] * len(last), k=n)
    times = pa.array(np.cumsum(rng.choices([0, 1, 5], k=n)), pa.timestamp("ms"))
    events = pa.table({"type": types, "ts": times, "i": list(range(n))})
    monkeypatch.setattr("cer_gpu.engine.evaluator.BLOCK_ROWS", 9_000)
    passed_over = []
    original = LiveIntervals.among

    def among(live, symbols, clocks):
        found = original(live, symbols, clocks)
        passed_over.append(0 if found is None else len(symbols) - len(found))
        return found

    monkeypatch.setattr(LiveIntervals, "among", among)
    for within in ("WITHIN 30 EVENTS", "WITHIN 0.05 SECONDS", "WITHIN 50 [ts]"):
        query = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern} {within}", time_column="ts")
        tables = []
        for share in (0.0, 0.9):
            monkeypatch.setattr(intervals, "PAYS_UP_TO", share)
            tables.append(query.evaluate(events, output=output, threads=1))
        assert tables[0].equals(tables[1])
        assert tables[0].num_rows > 0
    assert sum(passed_over) > n / 2
