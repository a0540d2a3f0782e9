"""Passing over of events that no complex event to come can hold, and of no others."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest
from sizes import seeds

import cer_gpu
from cer_gpu.automaton.chain import Chain, ChainStep
from cer_gpu.backend.windows import LIVE_CHUNK
from cer_gpu.runtime import deferred_events as intervals
from cer_gpu.runtime.chain_counter import ChainCounter
from cer_gpu.runtime.counter import Counter
from cer_gpu.runtime.deferred_events import DeferredEvents
from cer_gpu.runtime.events import RelevantEvents
from cer_gpu.runtime.stacks import StackLister

A, B, C, B_AND_C = range(1, 5)
CHAINS = ("A ; B", "A ; B+ ; C", "A ; B ; (C OR D)")


@pytest.fixture
def chain():
    found = Chain(tuple(ChainStep((k,), False, frozenset("a")) for k in range(3)))
    assert [found.symbol(word) for word in (1, 2, 4, 6)] == [A, B, C, B_AND_C]
    return found


def test_symbols_of_the_last_step_may_end(chain):
    assert chain.ending[: B_AND_C + 1].tolist() == [False, False, False, True, True]


def relevant(symbols, clocks):
    none = np.empty(0, np.int64)
    return RelevantEvents(
        symbols,
        np.arange(len(symbols)),
        none,
        none,
        none.astype(np.int32),
        none,
        none,
        clocks,
        np.empty((len(symbols), 0), np.int64),
    )


def fed(live, events, cuts):
    """The positions that are evaluated, one list for each cut of the events, and what is still held back."""
    found = []
    for begin, end in itertools.pairwise([0, *cuts, len(events.symbols)]):
        if begin < end:
            pieces = live.take(RelevantEvents(*(each[begin:end] for each in vars(events).values())))
            found.append([p for piece in pieces for p in piece.positions.tolist()])
    return found, [p for piece in live.release() for p in piece.positions.tolist()]


@pytest.mark.parametrize("seed", seeds(60))
def test_events_in_the_windows_of_ends_come_before_them_and_others_do_not(chain, monkeypatch, seed):
    monkeypatch.setattr(intervals, "PAYS_UP_TO", float("inf"))
    monkeypatch.setattr(intervals, "MIN_EVENTS", 1)
    rng = np.random.default_rng(seed)
    n = int(rng.choice([1, 2, 300, 3 * LIVE_CHUNK + 5]))
    ends = rng.random(n) < rng.choice([0, 2 / n, 0.01, 0.5])
    symbols = np.where(ends, rng.choice([C] if seed % 2 else [C, B_AND_C], n), rng.choice([A, B], n)).astype(np.int32)
    length = int(rng.choice([0, 1, 40, 2 * LIVE_CHUNK, 2**63]))
    if seed % 3:
        clocks, window = np.cumsum(rng.integers(0, 3, n)).astype(np.uint64), np.uint64(length)
    else:
        clocks, window = np.sort(rng.normal(size=n) * n), np.float64(length)
        clocks[n - n // 10 :] = np.inf
    cuts = sorted(rng.integers(0, n + 1, int(rng.choice([0, 1, 7]))).tolist())
    found, held = fed(DeferredEvents(chain, window), relevant(symbols, clocks), cuts)

    def in_window(i, ends):
        with np.errstate(invalid="ignore"):
            return bool(np.any((i <= ends) & ~(clocks[ends] - clocks[i] > window)))

    seen = [i for each in found for i in each]
    assert seen == sorted(set(seen))
    assert seen == [i for i in range(n) if in_window(i, np.flatnonzero(ends))]
    later = max(np.flatnonzero(ends), default=-1)
    assert held == [i for i in range(later + 1, n) if in_window(i, n - 1)]


def test_frequent_ends_hold_no_event_back(chain):
    live = DeferredEvents(chain, np.uint64(10))
    clocks = np.arange(10_000, dtype=np.uint64)
    rare, frequent = np.full(10_000, A, np.int32), np.full(10_000, A, np.int32)
    frequent[::10] = C
    assert live.take(relevant(rare, clocks)) == []
    held, events = live.take(relevant(frequent, clocks + np.uint64(10_000)))
    assert held.positions.tolist() == list(range(9_989, 10_000))
    assert len(events.symbols) == 10_000
    assert live.release() == []


def test_few_events_at_once_are_not_held_back(chain):
    """Pushed one by one, there would be as many pieces as events in the window."""
    live = DeferredEvents(chain, np.uint64(1000))
    (events,) = live.take(relevant(np.full(10, A, np.int32), np.arange(10, dtype=np.uint64)))
    assert len(events.symbols) == 10
    assert live.release() == []


def test_checkpoints_keep_events_that_are_held_back(monkeypatch):
    monkeypatch.setattr(intervals, "MIN_EVENTS", 1)
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B ; C WITHIN 100 EVENTS")
    types = ["A", *"D" * 50, "B", *"D" * 20, "C"]
    for output in ("positions", "count"):
        evaluator = query.evaluator(output=output)
        assert len(evaluator.push(pa.record_batch({"type": types[:60]}))) == 0
        again = query.restore(evaluator.checkpoint())
        for each in (again, evaluator):
            assert each.push(pa.record_batch({"type": types[60:]}))["end"].to_pylist() == [72]


@pytest.mark.parametrize(
    ("pattern", "output", "engine"),
    [
        *((pattern, "positions", StackLister) for pattern in CHAINS),
        *((pattern, "events", StackLister) for pattern in CHAINS),
        *((pattern, "count", ChainCounter) for pattern in CHAINS),
        ("A : B ; C", "count", Counter),
        ("A ; B :+ ; C", "count", Counter),
    ],
)
def test_rare_ends_in_a_long_stream(monkeypatch, pattern, output, engine):
    rng = random.Random(pattern)
    n = 40_000
    last = pattern[-1] if pattern[-1] != ")" else "CD"
    others = [t for t in "ABCDE" if t not in last]
    types = rng.choices([*others, *last], [1] * len(others) + [0.0005] * len(last), k=n)
    times = pa.array(np.cumsum(rng.choices([0, 1, 5], k=n)), pa.timestamp("ms"))
    events = pa.table({"type": types, "ts": times, "i": list(range(n))})
    monkeypatch.setattr("cer_gpu.engine.execution_group.BLOCK_ROWS", 9_000)
    monkeypatch.setattr(intervals, "MIN_EVENTS", 1)
    evaluated = []
    original = engine.feed

    def feed(run, events):
        evaluated.append(len(events.symbols))
        return original(run, events)

    monkeypatch.setattr(engine, "feed", feed)
    for within in ("WITHIN 30 EVENTS", "WITHIN 0.05 SECONDS", "WITHIN 50 [ts]"):
        query = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern} {within}", time_column="ts")
        tables, n_evaluated = [], []
        for share in (-1, 0.9):
            monkeypatch.setattr(intervals, "PAYS_UP_TO", share)
            evaluated.clear()
            tables.append(query.evaluate(events, output=output, threads=1))
            n_evaluated.append(sum(evaluated))
        assert tables[0].equals(tables[1])
        assert tables[0].num_rows > 0
        assert n_evaluated[1] < n_evaluated[0] / 2 or output == "events"
