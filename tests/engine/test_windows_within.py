"""Local windows, EACH STEP, UNTIL and absences with FOR, compared with the definitions.

CER_GPU_EXAMPLES scales the number of random cases of each property; `make test-soak` runs many.
"""

from __future__ import annotations

import itertools
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import reference as ref
import rest_strategies as rest
import step_strategies as steps
import strategies
from answers import assert_right, assert_right_in_time, candidates_of, with_and_without_checkpoints
from cases import Case, CaseOfStreams, assert_same, pushed, rows_of
from hypothesis import strategies as st
from small_sizes import small_sizes

import cer_gpu

OUTPUTS = ("positions", "bindings", "events", "count", "ends")


@pytest.mark.parametrize("related", [False, True], ids=["single events", "filters between events"])
@pytest.mark.parametrize("shape", steps.SHAPES)
@strategies.property_test(0.07)
def test_windows_within_a_pattern_give_the_rows_of_the_reference(shape, related, data):
    choosing = data.draw(st.integers(0, 3), label="choosing") == 3
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    case = Case(data, steps.cases(shape, related, choosing=choosing, ambiguous=output == "bindings"))
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right(case, candidates, answer, output)
    assert_same(pushed(case.compiled, case.batches, output=output), answer)
    assert_same(*with_and_without_checkpoints(data, case, output))


@pytest.mark.parametrize("strategy", rest.COMPARING)
@strategies.property_test(0.05)
def test_strategies_choose_among_what_the_windows_leave(strategy, data):
    case = Case(data, steps.cases(strategies=(strategy,)))
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    candidates = candidates_of(case, output)
    assert_right(case, candidates, case.compiled.evaluate(case.table, output=output), output)


@strategies.property_test(0.07)
def test_threads_and_shares_give_the_rows_of_one(data):
    case = Case(data, steps.cases())
    expected = case.expected()
    assert sorted(rows_of(case.compiled.evaluate(case.table, threads=2))) == expected
    parts = [rows_of(case.compiled.evaluate(case.table, shard=(k, 2))) for k in range(2)]
    assert sorted(itertools.chain.from_iterable(parts)) == expected


@pytest.mark.parametrize("related", [False, True], ids=["single events", "filters between events"])
@pytest.mark.parametrize("output", ["positions", "bindings", "count", "ends"])
@strategies.property_test(0.07)
def test_absence_for_a_time_gives_the_reference(output, related, data):
    choosing = data.draw(st.integers(0, 3), label="choosing") == 3
    case = Case(data, steps.lasting_cases(related, choosing))
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right_in_time(case, candidates, answer, output)
    assert_same(pushed(case.compiled, case.batches, output=output), answer)
    assert_same(*with_and_without_checkpoints(data, case, output))


@strategies.property_test(0.05)
def test_windows_within_patterns_over_several_streams_give_the_reference(data):
    output = data.draw(st.sampled_from(["positions", "bindings"]), label="output")
    case = CaseOfStreams(data, rest.cases_of_several_streams(formula=steps.windowed_formulas()))
    candidates = candidates_of(case, output)
    answer = case.in_order(case.compiled.evaluate(case.tables, output=output))
    assert_right(case, candidates, answer, output)


@pytest.mark.parametrize("related", [False, True], ids=["single events", "filters between events"])
@strategies.property_test(0.07)
def test_long_streams_give_the_reference(related, data):
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    case = Case(data, steps.long_cases(related))
    candidates = candidates_of(case, output, long=True)
    with small_sizes():
        answer = case.compiled.evaluate(case.table, output=output)
        assert_same(*with_and_without_checkpoints(data, case, output))
    assert_right(case, candidates, answer, output)


@strategies.property_test(0.05)
def test_absence_for_a_time_is_told_at_the_first_event_beyond(data):
    case = Case(data, steps.lasting_cases())
    case.cuts = list(range(1, len(case.events)))
    candidates_of(case, "positions")
    survivors = ref.replace(case.query, strategy="ALL", limit=None)
    moments = ref.moments(case.query, case.events, ref.evaluate(survivors, case.events))
    evaluator = case.compiled.evaluator()
    for position, batch in enumerate(case.batches):
        told = rows_of(evaluator.push(batch))
        assert all(moments[row[:2]] == position for row in told)
    assert all(moments[row[:2]] == len(case.events) for row in rows_of(evaluator.finish()))


# --------------------------------------------------------------------------------------------- worked examples


def found(text, events, **options):
    """Return the positions of the complex events of a pattern."""
    return cer_gpu.compile(f"SELECT * FROM S WHERE {text}", **options).evaluate(events)["positions"].to_pylist()


LETTERS = pa.table({"type": list("ABCABABC"), "ts": [0, 1, 2, 3, 9, 10, 10, 12], "x": [5, 5, 4, 1, 2, 6, 7, 8]})


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        # the part alone: 3 and 4 are 6 seconds apart
        ("(A ; B WITHIN 2 SECONDS) ; C", [[0, 1, 2], [0, 1, 7], [5, 6, 7]]),
        ("(A ; B WITHIN 1 EVENTS) ; C", [[0, 1, 2], [0, 1, 7], [3, 4, 7], [5, 6, 7]]),
        ("(A ; (B ; C WITHIN 1 EVENTS) WITHIN 2 EVENTS)", [[0, 1, 2], [5, 6, 7]]),
        ("A ; B ; C WITHIN 2 SECONDS EACH STEP", [[0, 1, 2], [5, 6, 7]]),
        # an event of NOT(...) is a step, too
        ("A ; NOT(C) ; C WITHIN 1 SECONDS EACH STEP", [[0, 2]]),
        ("A+ UNTIL (C) ; C", [[0, 2], [0, 7], [3, 5, 7], [3, 7], [5, 7]]),
        # of each repetition its own C
        (
            "(A ; B AS b)+ UNTIL (C AS c FILTER c.x < b.x) ; C",
            [
                *([0, 1, 2], [0, 1, 7], [0, 4, 5, 6, 7], [0, 4, 7], [0, 6, 7]),
                *([3, 4, 5, 6, 7], [3, 4, 7], [3, 6, 7], [5, 6, 7]),
            ],
        ),
    ],
)
def test_windows_within_a_pattern(text, positions):
    assert sorted(found(text, LETTERS, time_column="ts", time_unit="s")) == positions


def test_an_absence_for_a_time_counts_from_the_end():
    options = {"time_column": "ts", "time_unit": "s"}
    assert found("A ; B ; !C FOR 1 SECONDS WITHIN 3 SECONDS", LETTERS, **options) == [[5, 6]]
    assert found("A ; !B FOR 2 SECONDS", LETTERS, **options) == [[3]]
    assert found("A ; !B FOR 0 SECONDS", LETTERS, **options) == [[0], [3]]
    # the window from the start of f would have passed before
    assert found("A ; B ; !C FOR 1 EVENTS WITHIN 1 EVENTS", LETTERS) == [[3, 4]]


FLOATS = pytest.mark.long("compiles the loops of joins for clocks of floats")


@pytest.mark.parametrize(
    ("values", "length"),
    [
        ([-(2**63), -(2**63) + 7, 2**63 - 8, 2**63 - 1], 7),
        ([-(2**63), 0, 1, 2**63 - 1], 2**63 - 1),
        (pa.array([0, 2**63, 2**63, 2**64 - 1], pa.uint64()), 2**63),
        pytest.param([0.0, 0.1, 0.3, 0.6], 0.2, marks=FLOATS),
        pytest.param([float("-inf"), 0.1, 0.3, float("inf")], 0.2, marks=FLOATS),
        ([Decimal("0.10"), Decimal("0.30"), Decimal("0.31"), Decimal("0.50")], 0.2),
        ([date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 4), date(2026, 1, 4)], 1),
        ([timedelta(seconds=s) for s in (0, 1, 3, 3)], 2_000_000),
        ([datetime(2026, 1, 1, 0, 0, s) for s in (0, 1, 3, 3)], 2_000_000),
    ],
    ids=["extremes", "wide", "unsigned", "floats", "infinite", "decimals", "dates", "durations", "times"],
)
def test_a_step_of_two_events_is_the_window(values, length):
    """The filter between two events rounds and compares as the window does."""
    events = pa.table({"type": list("ABAB"), "x": values})
    assert found(f"A ; B WITHIN {length} [x] EACH STEP", events) == found(f"A ; B WITHIN {length} [x]", events)
    assert found(f"(A ; B WITHIN {length} [x]) ; !C FOR 0 [x]", events) == found(f"A ; B WITHIN {length} [x]", events)


def test_a_window_around_the_whole_pattern_is_that_of_the_query():
    query = cer_gpu.compile("SELECT * FROM S WHERE (A ; B+ ; C WITHIN 5 EVENTS) AS x FILTER A[x > 1]")
    assert query._plan.graph is None
    assert query._plan.within.length == 5


def test_a_clock_within_a_pattern_must_not_decrease():
    events = pa.table({"type": list("ABC"), "x": [1, 3, 2]})
    with pytest.raises(cer_gpu.TimeOrderError, match="the 'x' of event 2"):
        found("(A ; B WITHIN 1 [x]) ; C", events)
    with pytest.raises(cer_gpu.QueryTypeError, match="needs a column of numbers or timestamps"):
        found("(A ; B WITHIN 1 [type]) ; C", events)


@pytest.mark.parametrize("lasts", ["FOR 1 EVENTS", "WITHIN 2 EVENTS"])
def test_an_absence_at_the_end_stands_behind_all_that_a_filter_copies(lasts):
    """A disjunction of filters on a variable of several events copies the pattern, and not what ends it."""
    filters = "FILTER A[x > 100] OR A[x < 5]"
    waits, _, window = lasts.partition("WITHIN")
    text = f"A ; A ; !C {waits} {filters}" + (f" WITHIN {window}" if window else "")
    events = pa.table({"type": list("AACAAB"), "x": [1, 2, 3, 4, 4, 4]})
    assert sorted(found(text, events)) == ([[1, 3], [3, 4]] if window else [[0, 3], [0, 4], [1, 3], [1, 4], [3, 4]])


def test_of_one_event_an_absence_for_a_time_is_one_in_its_window():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; !B FOR 3 EVENTS WITHIN 9 EVENTS")
    assert query._plan.graph is None
    assert query._plan.within.length == 3


def test_time_alone_tells_that_an_absence_has_lasted():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B ; !C FOR 5 SECONDS", time_column="ts", time_unit="s")
    evaluator = query.evaluator()
    assert evaluator.push(pa.record_batch({"type": ["A", "B"], "ts": [0, 100]})).num_rows == 0
    assert evaluator.advance_watermark(105).num_rows == 0
    assert rows_of(evaluator.advance_watermark(106)) == [(0, 1, (0, 1))]


def test_gaps_at_each_step_bound_what_is_kept():
    """Without WITHIN, at most (steps - 1) gaps lie between the first event and the last."""
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B{2} ; C WITHIN 3 EVENTS EACH STEP")
    assert query._plan.within.length == 9
    assert cer_gpu.compile("SELECT * FROM S WHERE A ; B+ WITHIN 3 EVENTS EACH STEP")._plan.within is None


# --------------------------------------------------------------------------------------- parts, keys and sets


def walk(n_events):
    """Return a long random stream of nine types and a hundred keys, in which times often repeat."""
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "type": np.array(list("ABCDEFGHI"))[rng.integers(0, 9, n_events)],
            "ts": np.cumsum(rng.integers(0, 3, n_events)),
            "k": rng.integers(0, 100, n_events),
        }
    )


QUERIES = {
    "parts": "(A ; B WITHIN 7 EVENTS) ; C WITHIN 30 SECONDS",
    "keys": "(A ; B WITHIN 1 EVENTS) ; C PARTITION BY [k] WITHIN 2000 SECONDS",
    "steps": "A ; B ; C WITHIN 30 SECONDS, 7 EVENTS EACH STEP",
    "until": "A+ UNTIL (B) ; C WITHIN 20 SECONDS",
    "lasting": "A ; B ; !C FOR 6 EVENTS WITHIN 10 SECONDS",
    "lasting by key": "A ; !B FOR 300 SECONDS PARTITION BY [k]",
}


def test_parts_of_a_stream_are_evaluated_alike():
    """Ranges begin to count positions anywhere, and keys are dealt to threads: the rows are those of one thread."""
    events = walk(30_000)
    for name, text in QUERIES.items():
        query = cer_gpu.compile(f"SELECT * FROM S WHERE {text}", time_column="ts", time_unit="s")
        one = query.evaluate(events, threads=1)
        assert one.num_rows > 100, name
        assert sorted(rows_of(query.evaluate(events, threads=2))) == sorted(rows_of(one)), name
    dealt = [
        cer_gpu.compile(f"SELECT * FROM S WHERE {QUERIES[name]}", time_column="ts", time_unit="s") for name in QUERIES
    ]
    chosen = [query.explain().to_dict()["plan"]["distribution"]["threads"]["chosen"] for query in dealt]
    assert chosen == ["range"] * 4 + ["one"] * 2


def test_a_set_gives_the_rows_of_each_query():
    events = walk(5_000)
    texts = {name: f"SELECT * FROM S WHERE {text}" for name, text in QUERIES.items()}
    together = cer_gpu.compile_all(texts, time_column="ts", time_unit="s").evaluate(events)
    for name, text in texts.items():
        alone = cer_gpu.compile(text, time_column="ts", time_unit="s").evaluate(events)
        assert_same(together[name], alone)
