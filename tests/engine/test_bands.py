"""Differences bounded from both sides: grid, zone maps, tests one by one and brute force find the same."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from small_sizes import small_sizes
from strategies import property_test

import cer_gpu
from cer_gpu.runtime import join_plan
from cer_gpu.runtime.join_plan import JoinPlan

WAYS = ["grid", "zone maps", "one by one"]


def take_away(monkeypatch, way):
    """Leave a way to find events that pass, and those before it in `WAYS` away."""
    if way != "grid":
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
        with pytest.MonkeyPatch.context() as monkeypatch:
            take_away(monkeypatch, way)
            with small_sizes() if data.draw(st.booleans()) else nullcontext():
                assert found(text, batches) == expected, (way, text)
