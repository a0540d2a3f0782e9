"""NEXT, LAST and MAX choose among the complex events of an end that lie within the window.

The rows of ALL are those to choose from: other tests hold them to the definitions.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import arrow_streams
import pyarrow as pa
import pytest
import reference as ref
import rendering
import strategies
from cases import assert_same, bound_rows_of, counts_of, pushed, rows_of
from hypothesis import assume
from hypothesis import strategies as st
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.errors import EventsError
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.physical import physical_plan
from cer_gpu.query import Query

COMPARING = ("NEXT", "LAST", "MAX")
COMPARED_OUTPUTS = ("positions", "bindings", "events", "count", "ends")
MAX_ROWS = 20_000
AAB_AC = pa.table({"type": list("AABAC")})


def evaluated(text, events=AAB_AC, **options):
    return cer_gpu.compile(text).evaluate(events, **options)


# ---- by hand ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "window", "positions"),
    [
        ("NEXT", 4, [[0, 2, 4]]),
        ("NEXT", 3, [[1, 2, 4]]),  # what begins at 0 does not lie in the window, and beats nothing
        ("NEXT", 2, []),
        ("LAST", 4, [[1, 2, 4]]),
        ("LAST", 3, [[1, 2, 4]]),
        ("MAX", 4, [[1, 2, 4], [0, 2, 4]]),
        ("MAX", 3, [[1, 2, 4]]),
    ],
)
def test_what_is_too_long_beats_nothing(strategy, window, positions):
    found = evaluated(f"SELECT {strategy} * FROM S WHERE A ; B ; C WITHIN {window} EVENTS")
    assert found["positions"].to_pylist() == positions


def test_the_longest_run_within_the_window_is_found_however_long_the_stream():
    """On a long stream, something longer than the window is nearly always about."""
    failures = pa.table({"type": ["F"] * 50 + ["O"], "ts": pa.array(range(51), pa.timestamp("s"))})
    query = cer_gpu.compile("SELECT MAX * FROM S WHERE F+ ; O WITHIN 10 SECONDS", time_column="ts")
    assert query.evaluate(failures)["positions"].to_pylist() == [list(range(40, 51))]


def test_then_within_keeps_the_order_of_the_papers():
    plan = cer_gpu.compile("SELECT NEXT * FROM S WHERE A ; B ; C WITHIN 3 EVENTS")._plan
    first = Query(replace(plan, chooses_first=True))
    assert first.evaluate(AAB_AC).num_rows == first.evaluate(AAB_AC, output="ends").num_rows == 0
    assert physical_plan(first._plan, OUTPUTS["positions"]).runtime == "automaton"
    assert physical_plan(first._plan, OUTPUTS["positions"]).distribution.why_not_ranges is not None


@pytest.mark.parametrize("output", COMPARED_OUTPUTS)
def test_the_plan_of_a_choice_within_the_window(output):
    plan = cer_gpu.compile("SELECT MAX * FROM S WHERE A ; B+ ; C WITHIN 3 EVENTS")._plan
    physical = physical_plan(plan, OUTPUTS[output])
    expected = {"count": "window_counter", "ends": "stacks"}.get(output, "window_lister")
    assert physical.runtime == expected
    assert physical.distribution.why_not_ranges is None


def test_equal_positions_with_different_starts_all_stay():
    events = pa.table({"type": list("AAB")})
    for strategy in COMPARING:
        found = evaluated(f"SELECT {strategy} B FROM S WHERE A ; B WITHIN 2 EVENTS", events)
        assert sorted(rows_of(found)) == [(0, 2, (2,)), (1, 2, (2,))]


def test_a_window_counts_the_events_of_its_partition():
    events = pa.table({"type": list("AAxABxB"), "k": [1, 2, 2, 1, 2, 1, 1]})
    text = "SELECT NEXT * FROM S WHERE A ; B PARTITION BY [k] WITHIN {} EVENTS"
    assert evaluated(text.format(2), events)["positions"].to_pylist() == [[1, 4], [3, 6]]
    assert evaluated(text.format(3), events)["positions"].to_pylist() == [[1, 4], [0, 6]]


def test_what_was_consumed_is_no_rival():
    events = pa.table({"type": list("AABAB")})
    text = "SELECT MAX * FROM S WHERE A+ ; B WITHIN 9 EVENTS CONSUME BY ANY"
    assert evaluated(text, events)["positions"].to_pylist() == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize(("steps", "exact"), [(8, True), (35, False)])
def test_a_count_is_exact_or_too_large(steps, exact):
    """What is chosen are the sets of so many events A: none contains another."""
    n = 70
    events = pa.table({"type": ["A"] * n + ["B"]})
    text = f"SELECT MAX * FROM S WHERE {'A ; ' * steps} B WITHIN 500 EVENTS"
    if exact:
        assert evaluated(text, events, output="count")["count"].to_pylist() == [math.comb(n, steps)]
        return
    with pytest.raises(EventsError, match=f"end at event {n}"):
        evaluated(text, events, output="count")


# ---- random queries -----------------------------------------------------------------------------------------------


def chosen(query, rows):
    """Return those of the rows of ALL that a strategy keeps."""
    winners = ref.selected(query.strategy, {row[:3] for row in rows})
    return sorted(row for row in rows if row[:3] in winners)


class Drawn:
    """A query with a window and a strategy that compares, a stream, and the rows that the query has to find."""

    def __init__(self, data, longest):
        strategy = data.draw(st.sampled_from(COMPARING), label="strategy")
        limit = data.draw(st.sampled_from([None, None, 1, 2]), label="limit")
        case = strategies.long_full_cases(longest=longest, ambiguous=data.draw(st.booleans(), label="ambiguous"))
        query, self.events = data.draw(case, label="case")
        assume(not query.measures and query.having is None)
        self.query = replace(query, strategy=strategy, limit=limit)
        self.layout = data.draw(arrow_streams.layouts(self.query, self.events, False), label="layout")
        self.rng = random.Random(data.draw(st.integers(0, 2**16), label="text and cuts"))
        self.compiled = self._compiled(self.query)
        everything = self._compiled(replace(self.query, strategy="ALL", limit=None))
        assume(sum(everything.evaluate(self.table, output="count")["count"].to_pylist()) < MAX_ROWS)
        self.variables = ref.bound_variables(self.query)
        bound = everything.evaluate(self.table, output="bindings")
        self.rows = chosen(self.query, set(rows_of(bound)))
        self.bound_rows = chosen(self.query, bound_rows_of(bound, self.variables))

    def _compiled(self, query):
        unit = self.layout.time_unit
        text = rendering.to_ceql(query, self.rng)
        return cer_gpu.compile(text, type_column=ref.TYPE, time_column=ref.TIME, time_unit=unit)

    @property
    def table(self):
        return arrow_streams.build_table(self.events, self.layout)

    def batches(self):
        cuts = sorted(self.rng.choices(range(len(self.events) + 1), k=self.rng.randint(0, 9)))
        return arrow_streams.build_batches(self.events, self.layout, cuts)

    def assert_right(self, answer, output):
        found = bound_rows_of(answer, self.variables) if output == "bindings" else None
        expected = self.bound_rows if output == "bindings" else self.rows
        ends = sorted({row[1] for row in expected})
        if output == "count":
            most = self.query.limit or len(expected)
            assert counts_of(answer) == [(e, min(most, sum(row[1] == e for row in expected))) for e in ends]
        elif output == "ends":
            assert answer["end"].to_pylist() == ends
        elif self.query.limit is None:
            assert sorted(found or rows_of(answer)) == expected
        else:
            assert ref.is_choice(self.query, expected, found or rows_of(answer))


@strategies.property_test(1)
def test_random_queries_choose_among_the_rows_of_all(data):
    drawn = Drawn(data, data.draw(st.sampled_from([12, 60, 250]), label="longest"))
    output = data.draw(st.sampled_from(COMPARED_OUTPUTS), label="output")
    answer = drawn.compiled.evaluate(drawn.table, output=output)
    drawn.assert_right(answer, output)
    assert_same(pushed(drawn.compiled, drawn.batches(), output=output), answer)
    with small_sizes():
        assert_same(drawn.compiled.evaluate(drawn.table, output=output), answer)
        assert_same(resumed(drawn, output), answer)


def resumed(drawn, output):
    """Return the results of an evaluation with a checkpoint between any two batches."""
    evaluator, found = drawn.compiled.evaluator(output=output), []
    for batch in drawn.batches():
        found.append(evaluator.push(batch))
        evaluator = drawn.compiled.restore(evaluator.checkpoint())
    return pa.Table.from_batches([*found, evaluator.finish()])


@strategies.property_test(0.5)
def test_shares_and_threads_find_the_same(data):
    drawn = Drawn(data, 120)
    output = data.draw(st.sampled_from(["positions", "count", "bindings"]), label="output")
    whole = drawn.compiled.evaluate(drawn.table, output=output)
    n = data.draw(st.integers(1, 4), label="shares")
    shares = [drawn.compiled.evaluate(drawn.table, output=output, shard=(k, n)) for k in range(n)]
    assert sorted(map(str, pa.concat_tables(shares).to_pylist())) == sorted(map(str, whole.to_pylist()))
    assert_same(drawn.compiled.evaluate(drawn.table, output=output, threads=2), whole)
