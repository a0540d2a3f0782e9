"""Filters between events that read whole paths, held to the definitions, however often the loop comes back."""

import join_strategies
import pyarrow as pa
import pytest
import strategies
from answers import assert_right, candidates_of
from cases import Case, assert_same
from hypothesis import strategies as st
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.runtime import instances

OUTPUTS = ("positions", "positions", "bindings", "count", "ends")


@strategies.property_test(0.6)
def test_filters_on_whole_paths_find_what_the_definitions_say(data):
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    choosing = data.draw(st.integers(0, 3), label="choosing") == 3
    case = Case(data, join_strategies.cases_on_whole_paths(choosing=choosing, ambiguous=output == "bindings"))
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right(case, candidates, answer, output)
    with small_sizes():
        assert_same(case.compiled.evaluate(case.table, output=output), answer)


def steps(n, x):
    """Return an A, so many B and a C, with one value but for those at the positions of `x`."""
    values = [1] * (n + 2)
    for position, value in x.items():
        values[position] = value
    return pa.table({"type": ["A", *"B" * n, "C"], "x": values})


@pytest.mark.parametrize(
    ("formula", "condition", "x", "n_found"),
    [
        ("A ; B+ AS b ; C", "LAST(b).x + FIRST(b).x > 100", {}, 0),
        ("A ; B+ AS b ; C", "LAST(b).x + FIRST(b).x > 100", {250: 60, 259: 60}, 2 + 2**8),
        ("A ; B+ AS b ; C", "LAST(b).x * FIRST(b).x = 6 AND b.x >= PREV(b).x", {10: 2, 290: 3}, 1),
        ("A AS a ; B+ AS b ; C AS c", "FIRST(b).x + a.x > c.x + LAST(b).x", {300: 9, 301: 9}, 0),
        ("A ; B+ AS b ; C+ AS c", "LAST(c).x + FIRST(c).x > LAST(b).x + FIRST(b).x", {}, 0),
    ],
)
@pytest.mark.parametrize("output", ["positions", "count", "ends"])
def test_choices_between_the_first_and_the_last_are_not_tried_in_vain(formula, condition, x, n_found, output):
    """Among 2**300 choices, the work follows the pairs of a first and a last event; with PREV, their middles too."""
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {formula} FILTER {condition}")
    table = steps(300, x)
    evaluator = query.evaluator(output=output)
    found = evaluator.push(table.to_batches()[0])
    n = sum(found["count"].to_pylist()) if output == "count" else found.num_rows
    assert n == (min(n_found, 1) if output == "ends" else n_found)
    assert evaluator.pipeline.runtime.tested.sum() < (300**3 if "PREV" in condition else 3 * 300**2)


IN_VAIN = ["a.x + b.x + c.x > 1000", "FIRST(b).x > b.x", "b.x + PREV(b).x + c.x > 1000"]


@pytest.mark.parametrize(
    ("condition", "options"),
    [
        *((condition, options) for condition in IN_VAIN for options in ({}, {"output": "count"}, {"threads": 2})),
        *((condition, {"output": "ends"}) for condition in IN_VAIN[:2]),  # one B alone has none before it
    ],
    ids=str,
)
def test_the_loop_comes_back_from_a_search_in_vain(monkeypatch, condition, options):
    """An interrupt is raised between two calls of the loop; of a stream on threads, by the one that reads."""
    run, called = instances.InstanceGraph._run_loop, []

    def interrupted(self, *args):
        called.append(self)
        if len(called) == 3:
            raise KeyboardInterrupt
        return run(self, *args)

    monkeypatch.setattr(instances.InstanceGraph, "_run_loop", interrupted)
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A AS a ; B+ AS b ; C AS c FILTER {condition} WITHIN 99 EVENTS")
    with pytest.raises(KeyboardInterrupt):
        query.evaluate(steps(60, {}), **options)
