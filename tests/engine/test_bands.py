"""Differences bounded from both sides: scans, grid, zone maps, tests one by one and brute force find the same."""

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
from cer_gpu.backend.joins.lanes import LANES
from cer_gpu.runtime import instances, join_plan, registry
from cer_gpu.runtime.join_plan import JoinPlan

WAYS = ["lists", "grid", "zone maps", "one by one"]
"""Ways to find the events of an edge: pairs by lists; chains of three or more steps are scanned before."""


def take_away(monkeypatch, way):
    """Leave the ways before one in `WAYS` to find events that pass away."""
    most = {"scan": 1 << 8, "scan, then grid": LANES}.get(way, 0)
    monkeypatch.setattr(instances, "MAX_SCANNED", most)
    monkeypatch.setattr(instances, "MAX_SCANNED_IF_FAR", most)
    if way != "lists":
        monkeypatch.setattr(registry, "is_pair", lambda *_: False)
    if way in ("zone maps", "one by one"):
        monkeypatch.setattr(JoinPlan, "_bands", lambda *_: ((), ()))
    if way == "one by one":
        monkeypatch.setattr(join_plan, "_ZONED", ())


@st.composite
def sums(draw, side, constants):
    """Draw one side of a comparison, with the function that it is of a value."""
    constant = draw(constants)
    return draw(
        st.sampled_from(
            [
                (side, lambda x: x),
                (f"{side} + {constant}", lambda x: x + constant),
                (f"{side} - {constant}", lambda x: x - constant),
            ]
        )
    )


@st.composite
def comparisons(draw, column, constants):
    """Draw one band between events a and b, as text and as a function of two values."""
    least, greatest = sorted([draw(constants) - draw(constants), draw(constants)])
    if draw(st.integers(0, 4)) == 0:
        return f"ABS(b.{column} - a.{column}) <= {greatest}", lambda x, y: np.abs(y - x) <= greatest
    (left, of_left), (right, of_right) = (draw(sums(f"{event}.{column}", constants)) for event in "ba")
    low, high = draw(st.sampled_from([">", ">="])), draw(st.sampled_from(["<", "<="]))
    text = f"{left} {low} {right} + {least} AND {left} {high} {right} + {greatest}"
    holds = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}

    def passes(x, y):
        at_left, at_right = of_left(y), of_right(x)
        return holds[low](at_left, at_right + least) & holds[high](at_left, at_right + greatest)

    return text, passes


def events_of(rng, n, spread):
    return pa.table(
        {
            "type": rng.choice(["A", "B", "C"], n),
            "i": rng.integers(-spread, spread + 1, n),
            "f": np.round(rng.normal(0, spread, n), 1),
            "k": rng.integers(0, 3, n),
        }
    )


def pairs_of(events, window, of_key, conditions):
    """Return the pairs of positions by brute force."""
    types, key = np.array(events["type"].to_pylist()), events["k"].to_numpy()
    a, b = np.nonzero((types == "A")[:, None] & (types == "B"))
    kept = (a < b) & (b - a <= window)
    if of_key:
        kept &= key[a] == key[b]
    for column, passes in conditions:
        values = events[column].to_numpy()
        kept &= passes(values[a], values[b])
    return sorted(map(list, zip(a[kept].tolist(), b[kept].tolist(), strict=True)))


def found(text, batches):
    answers = cer_gpu.compile(text).stream(batches)
    return sorted(positions for answer in answers for positions in answer["positions"].to_pylist())


@property_test(2)
def test_all_ways_to_find_a_band_agree_with_brute_force(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n, spread = data.draw(st.integers(1, 120)), data.draw(st.sampled_from([2, 10, 1000]))
    events = events_of(rng, n, spread)
    constants = {"i": st.integers(0, 5), "f": st.integers(0, 50).map(lambda tenths: tenths / 10)}
    columns = data.draw(st.lists(st.sampled_from("if"), min_size=1, max_size=3))
    drawn = [(column, *data.draw(comparisons(column, constants[column]))) for column in columns]
    window, of_key = data.draw(st.integers(1, 100)), data.draw(st.sampled_from(["", "equal", "partition"]))
    filters = [text for _, text, _ in drawn] + ["b.k = a.k"] * (of_key == "equal")
    partition = "PARTITION BY [k]" if of_key == "partition" else ""
    text = f"SELECT * FROM S WHERE A AS a ; B AS b FILTER {' AND '.join(filters)} {partition} WITHIN {window} EVENTS"
    if of_key == "partition":
        text = text.replace("EVENTS", "[t]")
        events = events.append_column("t", pa.array(range(n)))
    expected = pairs_of(events, window, of_key, [(column, passes) for column, _, passes in drawn])
    size = data.draw(st.integers(1, n))
    batches = events.combine_chunks().to_batches(max_chunksize=size)
    for way in WAYS:
        with small_sizes() if data.draw(st.booleans()) else nullcontext(), pytest.MonkeyPatch.context() as monkeypatch:
            take_away(monkeypatch, way)
            assert found(text, batches) == expected, (way, text)


FAR = {
    "c.i BETWEEN a.i - 1 AND a.i + 1": lambda a, b, c: abs(c["i"] - a["i"]) <= 1,
    "c.k = a.k": lambda a, b, c: c["k"] == a["k"],
    "c.i > a.i": lambda a, b, c: c["i"] > a["i"],
    "c.f <> a.f": lambda a, b, c: c["f"] != a["f"],
}
NEAR = {
    "b.i BETWEEN a.i AND a.i + 2": lambda a, b, c: 0 <= b["i"] - a["i"] <= 2,
    "c.i - b.i BETWEEN 0 - 3 AND 1": lambda a, b, c: -3 <= c["i"] - b["i"] <= 1,
    "b.k = a.k": lambda a, b, c: b["k"] == a["k"],
}
WHOLE = {
    "a.i + b.i > c.i": lambda a, b, c: a["i"] + b["i"] > c["i"],
    "a.i + b.i + c.i < 4": lambda a, b, c: a["i"] + b["i"] + c["i"] < 4,
}


@property_test(1)
def test_filters_of_far_events_agree_with_brute_force(data):
    """With filters of neighbours and of whole paths beside them; the events are numbered along the way."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n, window = data.draw(st.integers(3, 60)), data.draw(st.integers(2, 40))
    events = events_of(rng, n, data.draw(st.sampled_from([2, 10])))
    chosen = {}
    for group, most in ((FAR, 2), (NEAR, 2), (WHOLE, 1)):
        names = data.draw(st.lists(st.sampled_from(sorted(group)), max_size=most, min_size=group is FAR, unique=True))
        chosen |= {name: group[name] for name in names}
    rows = events.to_pylist()
    of_type = {name: [p for p, row in enumerate(rows) if row["type"] == name] for name in "ABC"}
    expected = [
        [p, q, r]
        for p, q, r in itertools.product(*of_type.values())
        if p < q < r <= p + window and all(holds(rows[p], rows[q], rows[r]) for holds in chosen.values())
    ]
    text = f"SELECT * FROM S WHERE A AS a ; B AS b ; C AS c FILTER {' AND '.join(chosen)} WITHIN {window} EVENTS"
    batches = events.combine_chunks().to_batches(max_chunksize=data.draw(st.integers(1, n)))
    for way in ("scan", "scan, then grid", "grid"):
        with small_sizes() if data.draw(st.booleans()) else nullcontext(), pytest.MonkeyPatch.context() as monkeypatch:
            take_away(monkeypatch, way)
            assert found(text, batches) == expected, (way, text)


def test_far_filters_stand_beside_those_of_whole_paths():
    """A filter on all events of an iteration, around one whose events are compared with the first of each turn."""
    events = pa.table(
        {
            "type": ["A"] * 6,
            "n": [0, 1, 0, 3, 0, 0],
            "m": [0] * 6,
            "o": [3, 2, 3, 3, 0, 0],
            "w": [1.0, 1.0, 1.0, 0.0, 0.0, 0.0],
        }
    )
    turn = "A AS x {2} FILTER A.n / x.o IS NOT NULL AND A.n <> 1.05 * PREV(A).n AND A[w = 1.0 OR n - FIRST(A).n >= 2]"
    query = cer_gpu.compile(f"SELECT A FROM S WHERE ({turn}) {{2}} FILTER A[NOT n < x.m] WITHIN 9 EVENTS")
    assert query.evaluate(events)["positions"].to_pylist() == [[0, 1, 2, 3]]
