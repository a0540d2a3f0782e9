"""Pairs by lists: the same as by the index of all patterns, and as brute force, for all that a pair may be."""

from __future__ import annotations

import itertools
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from small_sizes import small_sizes
from strategies import property_test

import cer_gpu
from cer_gpu.runtime import registry
from cer_gpu.runtime.pairs import PairJoin

KEYS = {
    "b.i = a.i": lambda a, b: a["i"] is not None and a["i"] == b["i"],
    "b.name = a.name": lambda a, b: a["name"] is not None and a["name"] == b["name"],
    "b.f = a.f": lambda a, b: a["f"] is not None and a["f"] == b["f"],
    "b.f BETWEEN a.f AND a.f + 1": lambda a, b: None not in (a["f"], b["f"]) and a["f"] <= b["f"] <= a["f"] + 1,
    "b.i BETWEEN a.i - 1 AND a.i + 1": lambda a, b: None not in (a["i"], b["i"]) and abs(b["i"] - a["i"]) <= 1,
}
"""Conditions for which there are lists, as functions of both events."""
TESTS = {
    "b.f > a.f": lambda a, b: None not in (a["f"], b["f"]) and b["f"] > a["f"],
    "b.name > a.name": lambda a, b: None not in (a["name"], b["name"]) and b["name"] > a["name"],
    "a.i + b.i * a.i <> 0": lambda a, b: None not in (a["i"], b["i"]) and a["i"] + b["i"] * a["i"] != 0,
}
STEPS = {
    "A AS a ; B AS b": (lambda e: e["type"] == "A", lambda e: e["type"] == "B"),
    "A AS a ; A AS b": (lambda e: e["type"] == "A", lambda e: e["type"] == "A"),
    "(A OR B) AS a ; (B OR C) AS b": (lambda e: e["type"] in "AB", lambda e: e["type"] in "BC"),
}


@st.composite
def streams(draw):
    """Draw events with ties in time, NULLs, NaN and zeros of both signs."""
    n, rng = draw(st.integers(1, 80)), np.random.default_rng(draw(st.integers(0, 2**32)))

    def some(values, type_):
        drawn = [values[k] for k in rng.integers(0, len(values), n)]
        return pa.array(drawn, type_, from_pandas=False)

    return pa.record_batch(
        {
            "type": some(["A", "B", "C"], pa.string()),
            "i": some([None, 0, 1, 2, 3, 2**63 - 1, -(2**63)], pa.int64()),
            "f": some([None, 0.0, -0.0, 0.5, 1.0, 7.25, float("nan"), float("inf")], pa.float64()),
            "name": some([None, "", "x", "y", "yy"], pa.string()),
            "k": some([1, 2], pa.int64()),
            "t": pa.array(np.cumsum(rng.integers(0, 3, n))),
        }
    )


def pairs_of(rows, steps, conditions, window, of_key):
    """Return the pairs of positions, by brute force."""
    begins, ends = steps
    return [
        [p, q]
        for q, b in enumerate(rows)
        for p, a in enumerate(rows[:q])
        if begins(a) and ends(b) and b["t"] - a["t"] <= window and not (of_key and a["k"] != b["k"])
        if all(holds(a, b) for holds in conditions)
    ]


@property_test(2)
def test_pairs_are_those_of_brute_force(data):
    events = data.draw(streams())
    names = data.draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True))
    tests = data.draw(st.lists(st.sampled_from(sorted(TESTS)), max_size=2, unique=True))
    formula, window = data.draw(st.sampled_from(sorted(STEPS))), data.draw(st.sampled_from([0, 1, 2, 5, 20, 60]))
    partition = data.draw(st.sampled_from(["", "PARTITION BY [k]"]))
    text = f"SELECT * FROM S WHERE {formula} FILTER {' AND '.join(names + tests)} {partition} WITHIN {window} [t]"
    rows = events.to_pylist()
    expected = pairs_of(rows, STEPS[formula], [(KEYS | TESTS)[name] for name in names + tests], window, partition)
    n, cut = events.num_rows, data.draw(st.integers(1, events.num_rows))
    batches = [events.slice(at, cut) for at in range(0, n, cut)]
    query = cer_gpu.compile(text)
    for by_lists in (True, False):
        with small_sizes() if data.draw(st.booleans()) else nullcontext(), pytest.MonkeyPatch.context() as monkeypatch:
            if not by_lists:
                monkeypatch.setattr(registry, "is_pair", lambda *_: False)
            listed = [row for answer in query.stream(batches) for row in answer["positions"].to_pylist()]
            assert sorted(listed) == sorted(expected), (by_lists, text)
            counted = [row for answer in query.stream(batches, output="count") for row in answer.to_pylist()]
            assert {row["end"]: row["count"] for row in counted} == {
                end: sum(q == end for _, q in expected) for end in {q for _, q in expected}
            }
            evaluator = query.evaluator()
            parts = [evaluator.push(events[:cut])]
            evaluator = query.restore(evaluator.checkpoint())
            parts += [evaluator.push(events[cut:]), evaluator.finish()]
            assert sorted(row for part in parts for row in part["positions"].to_pylist()) == sorted(expected)


def test_an_event_that_finds_none_in_its_window_leaves_the_ones_after_it():
    """All of them are read at once: what is out of reach is decided among those before the event alone."""
    events = pa.table({"type": ["A", "B", "A", "B"], "k": [1, 1, 1, 1], "t": [0, 100, 101, 102]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.k BETWEEN a.k AND a.k + 1 WITHIN 10 [t]")
    assert query.evaluate(events)["positions"].to_pylist() == [[2, 3]]


@pytest.mark.parametrize(("least", "greatest"), [(-1, 1), (0, 3), (-3, 0), (2, 9)])
def test_a_band_is_whole_at_both_ends_of_the_integers(least, greatest):
    numbers = [-(2**63), -(2**63) + 1, -(2**63) + 2, -1, 0, 1, 2, 2**63 - 2, 2**63 - 1]
    pairs = list(itertools.product(numbers, numbers))
    events = pa.table(
        {
            "type": ["A", "B"] * len(pairs),
            "i": pa.array([number for pair in pairs for number in pair], pa.int64()),
            "t": np.arange(len(pairs)).repeat(2) * 10,
        }
    )
    condition = f"b.i BETWEEN a.i + ({least}) AND a.i + ({greatest})"
    answer = cer_gpu.compile(f"SELECT * FROM S WHERE A AS a ; B AS b FILTER {condition} WITHIN 5 [t]").evaluate(events)
    expected = [2 * k for k, (x, y) in enumerate(pairs) if least <= y - x <= greatest]
    assert answer["start"].to_pylist() == expected


CANDIDATES = {
    "b.x BETWEEN a.x AND a.x + 1": 3,
    "b.x BETWEEN a.x AND a.x + 1 AND b.y BETWEEN a.y AND a.y + 1": 6,
    "b.y = a.y AND b.x BETWEEN a.x AND a.x + 1": 3,
}
"""Most candidates that may be tested for each pair that passes: bands have neighbouring cells, wider than they are."""


@pytest.mark.parametrize("scale", [1, 64, 1000])
@pytest.mark.parametrize("condition", CANDIDATES)
def test_values_at_regular_distances_are_in_lists_of_their_own(monkeypatch, condition, scale):
    rng, runs = np.random.default_rng(1), []
    x, y = rng.integers(0, 60, (2, 20_000)) * scale
    events = pa.table({"type": rng.choice(["A", "B"], 20_000), "x": x, "y": y.astype(float)})
    run = PairJoin._run_loop

    def noted(self, *arguments):
        runs.append(self)
        return run(self, *arguments)

    monkeypatch.setattr(PairJoin, "_run_loop", noted)
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A AS a ; B AS b FILTER {condition} WITHIN 5000 EVENTS")
    counted = query.evaluate(events, output="count", threads=1)
    n_tested, n_passed = runs[-1].tested[0].tolist()
    assert n_passed == sum(counted["count"].to_pylist()) > 1000
    assert n_tested <= CANDIDATES[condition] * n_passed + 2 * len(events)
