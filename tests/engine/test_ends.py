"""Output "ends": the positions that end complex events, each once, whatever lists them."""

from __future__ import annotations

import random

import join_strategies
import pyarrow as pa
import pytest
import reference as ref
import strategies
from cases import Case, assert_same, pushed
from hypothesis import strategies as st
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.physical import physical_plan

MANY = pa.table({"type": ["A"] + ["B"] * 2000 + ["C"], "n": range(2002)})


STARTS = ("start", "positions", "start_time")


def ends_of(table):
    return sorted(set(table["end"].to_pylist()))


@pytest.mark.parametrize("cases", [strategies.full_cases, join_strategies.full_join_cases])
@strategies.property_test(0.5)
def test_ends_are_the_ends_of_positions_in_any_cut(cases, data):
    case = Case(data, cases(choosing=data.draw(st.booleans(), label="choosing")))
    case.candidates()  # discards examples that are too large
    positions = case.compiled.evaluate(case.table)
    answer = case.compiled.evaluate(case.table, output="ends")
    assert answer["end"].to_pylist() == ends_of(positions)
    of_ends = positions.select([name for name in positions.column_names if name not in STARTS])
    assert answer.schema == of_ends.schema
    assert list(map(repr, answer.to_pylist())) == list(dict.fromkeys(map(repr, of_ends.to_pylist())))
    assert_same(pushed(case.compiled, case.batches, output="ends"), answer)


@strategies.property_test(0.4)
def test_ends_of_filters_between_events_are_those_of_the_reference(data):
    case = Case(data, join_strategies.full_join_cases(choosing=data.draw(st.booleans(), label="choosing")))
    expected = [end for end, _ in ref.counts_of(case.query, case.candidates())]
    with small_sizes():
        assert case.compiled.evaluate(case.table, output="ends")["end"].to_pylist() == expected


@pytest.mark.parametrize("cases", [strategies.full_cases, join_strategies.full_join_cases])
@strategies.property_test(0.3)
def test_checkpoints_change_no_end(cases, data):
    case = Case(data, cases(choosing=data.draw(st.booleans(), label="choosing")))
    case.candidates()
    answer = case.compiled.evaluate(case.table, output="ends")
    evaluator, found = case.compiled.evaluator(output="ends"), []
    for batch in case.batches:
        found.append(evaluator.push(batch))
        evaluator = case.compile().restore(evaluator.checkpoint())
    found.append(evaluator.finish())
    assert_same(pa.Table.from_batches(found), answer)
    assert evaluator.n_matches == answer.num_rows


@pytest.mark.parametrize("cases", [strategies.full_cases, join_strategies.full_join_cases])
@strategies.property_test(0.3)
def test_each_end_is_in_one_share(cases, data):
    case = Case(data, cases(choosing=data.draw(st.booleans(), label="choosing")))
    case.candidates()
    n = data.draw(st.integers(1, 4), label="shares")
    answer = case.compiled.evaluate(case.table, output="ends")["end"].to_pylist()
    parts = [case.compiled.evaluate(case.table, output="ends", shard=(k, n))["end"].to_pylist() for k in range(n)]
    assert sorted(end for part in parts for end in part) == answer


@pytest.mark.parametrize("cases", [strategies.full_cases, join_strategies.full_join_cases])
@strategies.property_test(0.2)
def test_threads_find_the_same_ends(cases, data):
    case = Case(data, cases(choosing=data.draw(st.booleans(), label="choosing")))
    case.candidates()
    answer = case.compiled.evaluate(case.table, output="ends")
    assert_same(case.compiled.evaluate(case.whole, output="ends", threads=3), answer)


CLAUSES = ["", "LIMIT 2", "PARTITION BY [k]", "WITHIN 60 EVENTS", "PARTITION BY [k] WITHIN 90 [n]", "CONSUME BY ANY"]


@pytest.mark.parametrize("clauses", CLAUSES)
@pytest.mark.parametrize("strategy", ["ALL", "ANY", "NEXT", "LAST", "MAX", "STRICT"])
@pytest.mark.parametrize("condition", ["", "FILTER B.v > A.v", "FILTER B.v = A.v"])
def test_every_strategy_has_the_ends_of_its_positions(strategy, condition, clauses):
    rng = random.Random(5)
    columns = {"type": rng.choices("ABC", k=400), "k": rng.choices([1, 2], k=400), "v": rng.choices(range(9), k=400)}
    events = pa.table(columns | {"n": range(400)})
    query = cer_gpu.compile(f"SELECT {strategy} * FROM S WHERE A ; B ; C {condition} {clauses}")
    answer = query.evaluate(events, output="ends")
    assert answer["end"].to_pylist() == ends_of(query.evaluate(events))
    assert answer.num_rows > 0


@pytest.mark.parametrize("strategy", ["ALL", "NEXT", "LAST", "MAX"])
@pytest.mark.parametrize("pattern", ["A ; B+ ; C", "A ; (B AS b)+ ; C AS c FILTER c.n > b.n"])
def test_nothing_is_enumerated(strategy, pattern):
    """There are 2**2000 - 1 complex events."""
    query = cer_gpu.compile(f"SELECT {strategy} * FROM S WHERE {pattern}")
    assert query.evaluate(MANY, output="ends").to_pylist() == [{"end": 2001}]


JOINED = "A AS a ALL A AS b ALL A AS c ALL A AS d ALL A AS e ALL A AS f"
EQUAL = " AND ".join(f"{one}.k = {other}.k" for one, other in zip("abcde", "bcdef", strict=True))


@pytest.mark.parametrize("pattern", ["C : (A AS x ALL A AS y)+", f"{JOINED} FILTER {EQUAL}"])
@pytest.mark.parametrize(("select", "limit"), [("ANY", ""), ("ALL", " LIMIT 1")])
@pytest.mark.parametrize("output", ["positions", "count"])
def test_one_of_an_end_is_found_without_the_others(pattern, select, limit, output):
    """Doubles are among the others, which are more than could be listed: 2.7 ** 60, and 50 ** 5."""
    events = pa.table({"type": ["C"] + ["A"] * 60, "k": [1] * 61})
    query = cer_gpu.compile(f"SELECT {select} * FROM S WHERE {pattern}{limit}")
    ends = list(range(1, 61))
    assert query.evaluate(events, output=output)["end"].to_pylist() == ends
    assert query.evaluate(events, output="ends")["end"].to_pylist() == ends
    with small_sizes():
        assert pushed(query, events.to_batches(7), output=output)["end"].to_pylist() == ends


def test_choices_that_change_no_end_are_left_out_of_the_plan():
    def plan_of(text):
        return physical_plan(cer_gpu.compile(text)._plan, OUTPUTS["ends"])

    window = "WITHIN 9 EVENTS"
    assert plan_of(f"SELECT ANY * FROM S WHERE A ; B {window} LIMIT 3").distribution.why_not_ranges is None
    assert plan_of("SELECT MAX * FROM S WHERE A ; B").plan.strategy.name == "ALL"
    assert plan_of(f"SELECT MAX * FROM S WHERE A ; B {window}").runtime == "stacks"
    assert plan_of(f"SELECT MAX * FROM S WHERE A ; B THEN {window}").plan.strategy.name == "MAX"  # it chooses before
    assert plan_of(f"SELECT MAX * FROM S WHERE A ; B FILTER B.v > A.v {window}").plan.strategy.name == "ALL"
    assert plan_of("SELECT STRICT * FROM S WHERE A ; B").plan.strategy.name == "STRICT"
    assert plan_of("SELECT * FROM S WHERE A ; B LIMIT 0").plan.limit == 0


def test_a_choice_longer_than_the_window_leaves_its_end_out():
    events = pa.table({"type": ["A", "A", "B"], "n": [0, 1, 2]})
    query = cer_gpu.compile("SELECT NEXT * FROM S WHERE A ; B THEN WITHIN 1 EVENTS")
    assert query.evaluate(events, output="ends").to_pylist() == []
    for pattern in ("A ; B", "A ; B FILTER B.n > A.n"):
        query = cer_gpu.compile(f"SELECT NEXT * FROM S WHERE {pattern} WITHIN 1 EVENTS")
        assert query.evaluate(events, output="ends").to_pylist() == [{"end": 2}]
