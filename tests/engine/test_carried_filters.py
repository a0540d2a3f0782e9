"""Filters whose events a path carries: FIRST and LAST, and single events; held to all subsets of short streams."""

import itertools
import re

import numpy as np
import pyarrow as pa
import pytest
from cases import by_instances
from sizes import seeds

import cer_gpu

CASES = {  # the pattern and its filter, the types of its events in order, and the filter on their values by type
    "first and last": (
        "A AS a ; B+ AS b ; C AS c FILTER LAST(b).x + FIRST(b).x > 13",
        "AB+C",
        lambda x: x["B"][-1] + x["B"][0] > 13,
    ),
    "first, last and both ends": (
        "A AS a ; B+ AS b ; C AS c FILTER LAST(b).x - FIRST(b).x > a.x - c.x",
        "AB+C",
        lambda x: x["B"][-1] - x["B"][0] > x["A"][0] - x["C"][0],
    ),
    "two repeated steps": (
        "A AS a ; B+ AS b ; D+ AS d ; C AS c FILTER FIRST(b).x + LAST(d).x > 7 AND LAST(b).x < FIRST(d).x + a.x - c.x",
        "AB+D+C",
        lambda x: x["B"][0] + x["D"][-1] > 7 and x["B"][-1] < x["D"][0] + x["A"][0] - x["C"][0],
    ),
    "a repeated sequence": (
        "A AS a ; (B AS b ; D AS d)+ ; C AS c FILTER LAST(d).x + FIRST(b).x > 6 AND LAST(b).x + c.x > FIRST(d).x - 3",
        "A(BD)+C",
        lambda x: x["D"][-1] + x["B"][0] > 6 and x["B"][-1] + x["C"][0] > x["D"][0] - 3,
    ),
    "beside filters of neighbours and of every event": (
        "A AS a ; B+ AS b ; C AS c FILTER b.x >= PREV(b).x AND a.x < b.x + 3 AND LAST(b).x + FIRST(b).x > 9",
        "AB+C",
        lambda x: sorted(x["B"]) == x["B"] and x["A"][0] < min(x["B"]) + 3 and x["B"][-1] + x["B"][0] > 9,
    ),
    "three single events": (
        "A AS a ; B+ ; D AS d ; B+ ; C AS c FILTER a.x + d.x + c.x > 8",
        "AB+DB+C",
        lambda x: x["A"][0] + x["D"][0] + x["C"][0] > 8,
    ),
    "a variable that may be missing": (
        "A AS a ; (B+ AS b OR D) ; C AS c FILTER LAST(b).x + FIRST(b).x + c.x > 17",
        "A(B+|D)C",
        lambda x: not x["B"] or x["B"][-1] + x["B"][0] + x["C"][0] > 17,
    ),
    "at the start": (
        "B+ AS b ; C AS c FILTER FIRST(b).x + LAST(b).x < c.x + 2",
        "B+C",
        lambda x: x["B"][0] + x["B"][-1] < x["C"][0] + 2,
    ),
    "at the end": (
        "A ; (B OR D)+ AS b FILTER LAST(b).x + FIRST(b).x > 14",
        "A[BD]+",
        lambda x: x["BD"][-1] + x["BD"][0] > 14,
    ),
}


def stream(seed, n=13):
    rng = np.random.default_rng(seed)
    types = rng.choice(list("ABBCDD"), n)
    types[[0, -1]] = "A", "C"
    return pa.table({"type": types, "x": rng.integers(0, 10, n), "k": rng.integers(0, 2, n)})


def subsets(events, types, passes, window, keyed):
    """Return the positions of all subsets of the events whose types and values are as a case wants them."""
    kinds, values, keys = (events[name].to_pylist() for name in ("type", "x", "k"))
    found = []
    for n in range(2, len(kinds) + 1):
        for chosen in itertools.combinations(range(len(kinds)), n):
            if chosen[-1] - chosen[0] > window or (keyed and len({keys[i] for i in chosen}) > 1):
                continue
            if re.fullmatch(types, "".join(kinds[i] for i in chosen)) is None:
                continue
            of = {each: [values[i] for i in chosen if kinds[i] in each] for each in ("A", "B", "C", "D", "BD")}
            if passes(of):
                found.append(list(chosen))
    return sorted(found)


@pytest.mark.long("lists all subsets")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("clauses", ["", " WITHIN 10 EVENTS", " PARTITION BY [k]"])
def test_all_subsets_that_pass_are_found_once(case, clauses):
    pattern, types, passes = case
    query = by_instances(cer_gpu.compile(f"SELECT * FROM S WHERE {pattern}{clauses}"))
    n_found = 0
    for seed in seeds(8):
        events = stream(seed)
        expected = subsets(events, types, passes, 10 if "WITHIN" in clauses else 99, "PARTITION" in clauses)
        n_found += len(expected)
        assert sorted(query.evaluate(events)["positions"].to_pylist()) == expected
        evaluator = query.evaluator()
        cut = [row for i in range(0, 13, 4) for row in evaluator.push(events.slice(i, 4).to_batches()[0]).to_pylist()]
        assert sorted(row["positions"] for row in cut) == expected
        counted = query.evaluate(events, output="count")
        assert sum(counted["count"].to_pylist()) == len(expected)
        ends = query.evaluate(events, output="ends")["end"].to_pylist()
        assert ends == sorted({row[-1] for row in expected})
    assert n_found


@pytest.mark.parametrize("threshold", ["100000", "LAST(c).x + 100000"])
@pytest.mark.parametrize("output", ["positions", "count", "ends"])
@pytest.mark.parametrize("clauses", ["", " WITHIN 1000 EVENTS", " PARTITION BY [k]"])
def test_events_between_first_and_last_are_not_tried_in_vain(threshold, output, clauses):
    """2^300 choices of B, none of which passes."""
    types = ["A", *"B" * 300, *"C" * 5]
    events = pa.table({"type": types, "x": range(len(types)), "k": [1] * len(types)})
    text = f"SELECT * FROM S WHERE A ; B+ AS b ; C AS c FILTER LAST(b).x + FIRST(b).x > {threshold}{clauses}"
    assert cer_gpu.compile(text).evaluate(events, output=output).num_rows == 0


def test_only_paths_that_end_well_are_followed():
    """All B from the first that passes to the last: 2^14 of 2^200 choices."""
    types = ["A", *"B" * 200, "C"]
    x = [0, *[0] * 100, 1, *[0] * 14, 1, *[0] * 84, 0]
    events = pa.table({"type": types, "x": x})
    text = "SELECT * FROM S WHERE A ; B+ AS b ; C FILTER FIRST(b).x + LAST(b).x > 1"
    found = cer_gpu.compile(text).evaluate(events)
    assert found.num_rows == 2**14 + 2  # and each of the two by itself
