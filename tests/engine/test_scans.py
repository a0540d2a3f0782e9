"""Chains of comparisons whose windows hold few events: scans, scans up to some number of events, and brute force."""

from __future__ import annotations

import itertools
import operator
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from small_sizes import small_sizes
from strategies import property_test

import cer_gpu
from cer_gpu.backend.joins.lanes import LANES
from cer_gpu.runtime import instances
from cer_gpu.runtime.instances import InstanceGraph

OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}
LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
VALUES = {
    "i": [LEAST, LEAST + 1, -1, 0, 1, 2, GREATEST - 1, GREATEST, None],
    "f": [float("-inf"), -0.0, 0.0, 1.5, float("inf"), float("nan"), None],
    "s": ["a", "b", "ab", "", None],
}
TYPES = {"i": pa.int64(), "f": pa.float64(), "s": pa.string()}


@st.composite
def streams(draw):
    n, rng = draw(st.integers(1, 60)), np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = {
        name: pa.array([each[k] for k in rng.integers(0, len(each), n)], TYPES[name]) for name, each in VALUES.items()
    }
    times = pa.array(np.sort(rng.integers(0, n, n)))
    return pa.table({"type": rng.choice(list("ABC"), n), "k": rng.integers(0, 3, n), "t": times, **columns})


def brute_force(rows, steps, tests, window, partitioned):
    """Return the positions of all choices of events that pass."""
    of_step = [[p for p, row in enumerate(rows) if row["type"] == step] for step in steps]
    found = []
    for path in itertools.product(*of_step):
        if any(a >= b for a, b in itertools.pairwise(path)) or rows[path[-1]]["t"] - rows[path[0]]["t"] > window:
            continue
        if partitioned and len({rows[p]["k"] for p in path}) > 1:
            continue
        pairs = [(rows[path[i]][column], op, rows[path[j]][column]) for i, j, column, op in tests]
        if all(None not in (x, y) and OPERATORS[op](y, x) for x, op, y in pairs):
            found.append(list(path))
    return sorted(found)


@st.composite
def chains(draw):
    """Draw the steps, and the tests of later events with earlier ones."""
    steps = draw(st.lists(st.sampled_from("ABC"), min_size=3, max_size=4))
    pairs = list(itertools.combinations(range(len(steps)), 2))
    tests = draw(
        st.lists(
            st.tuples(st.sampled_from(pairs), st.sampled_from("iifs"), st.sampled_from(list(OPERATORS))),
            min_size=1,
            max_size=6,
        )
    )
    # strings are compared by their numbers: whether they are equal
    return steps, [(i, j, column, op if column != "s" or op == "<>" else "=") for (i, j), column, op in tests]


def text_of(steps, tests, window, partitioned):
    formula = " ; ".join(f"{step} AS e{i}" for i, step in enumerate(steps))
    filters = " AND ".join(f"e{j}.{column} {op} e{i}.{column}" for i, j, column, op in tests)
    return f"SELECT * FROM S WHERE {formula} FILTER {filters}{' PARTITION BY [k]' * partitioned} WITHIN {window} [t]"


@property_test(3)
def test_scans_agree_with_indexes_and_with_brute_force(data):
    events, (steps, tests) = data.draw(streams()), data.draw(chains())
    window, partitioned = data.draw(st.integers(1, 40)), data.draw(st.booleans())
    text = text_of(steps, tests, window, partitioned)
    expected = brute_force(events.to_pylist(), steps, tests, window, partitioned)
    ends = {end: sum(path[-1] == end for path in expected) for end in {path[-1] for path in expected}}
    batches = events.combine_chunks().to_batches(max_chunksize=data.draw(st.integers(1, len(events))))
    for most, small in itertools.product((0, LANES, 1 << 8), (False, True)):
        with small_sizes() if small else nullcontext(), pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(instances, "MAX_SCANNED", most)
            monkeypatch.setattr(instances, "MAX_SCANNED_IF_FAR", most)
            query = cer_gpu.compile(text)
            found = [p for part in query.stream(batches) for p in part["positions"].to_pylist()]
            counted = query.evaluate(events, output="count")
            assert sorted(found) == expected, (most, text)
            assert dict(zip(counted["end"].to_pylist(), counted["count"].to_pylist(), strict=True)) == ends


def near(n, spread):
    """Return events of which each third is an A, with x that repeats after `spread`."""
    return pa.table({"type": ["A", "B", "C"] * (n // 3), "x": pa.array(np.arange(n // 3 * 3) % spread)})


FAR = "SELECT * FROM S WHERE A AS a ; B AS b ; C AS c FILTER b.x > a.x AND c.x < b.x AND c.x >= a.x WITHIN {} EVENTS"


def watched(monkeypatch):
    """Return a list to which the kind of each loop that runs is added: whether it scans."""
    kinds = []
    run = InstanceGraph._run_loop

    def noted(self, *arguments):
        kinds.append(self._scans)
        return run(self, *arguments)

    monkeypatch.setattr(InstanceGraph, "_run_loop", noted)
    return kinds


@pytest.mark.parametrize(("window", "expected"), [(60, {True}), (900, {True, False})])
def test_long_windows_leave_the_scans(monkeypatch, window, expected):
    monkeypatch.setattr(instances, "MAX_SCANNED_IF_FAR", 1 << 6)
    kinds, events = watched(monkeypatch), near(900, 7)
    counted = cer_gpu.compile(FAR.format(window)).evaluate(events, output="count")
    assert set(kinds) == expected
    monkeypatch.setattr(instances, "MAX_SCANNED", 0)  # none are scanned
    assert cer_gpu.compile(FAR.format(window)).evaluate(events, output="count").equals(counted)
    assert counted.num_rows > 200


@pytest.mark.parametrize("cut", [90, 450])
def test_a_checkpoint_goes_on_in_the_way_that_it_was_made_in(monkeypatch, cut):
    monkeypatch.setattr(instances, "MAX_SCANNED_IF_FAR", 1 << 6)
    events, text = near(600, 7).to_batches()[0], FAR.format(240)
    expected = cer_gpu.compile(text).evaluate(events)
    evaluator = cer_gpu.compile(text).evaluator()
    parts = [evaluator.push(events[:cut])]
    kinds = watched(monkeypatch)
    evaluator = cer_gpu.compile(text).restore(evaluator.checkpoint())
    parts += [evaluator.push(events[cut:]), evaluator.finish()]
    assert [row for part in parts for row in part.to_pylist()] == expected.to_pylist()
    assert kinds[0] == (cut == 90)


def test_an_error_says_that_there_is_no_memory_for_the_indexes_after_the_scans(monkeypatch):
    def full(self):
        raise MemoryError

    monkeypatch.setattr(instances, "MAX_SCANNED_IF_FAR", 1 << 6)
    monkeypatch.setattr(InstanceGraph, "_take_indexes", full)
    with pytest.raises(cer_gpu.EventsError, match=r"no memory for more than .* events of a step\nhint: .*WITHIN"):
        cer_gpu.compile(FAR.format(900)).evaluate(near(900, 7))
