"""Physical plan: the runtime of each query, and the readers of the plan."""

import pickle
from dataclasses import FrozenInstanceError

import pytest

import cer_gpu
from cer_gpu.automaton.chain import Chain
from cer_gpu.automaton.determinize import Determinization
from cer_gpu.automaton.keyed_recent import RecentTable
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.physical import CHOICES, Model, physical_plan
from cer_gpu.runtime.registry import RUNTIMES


def plan_of(text, **options):
    return cer_gpu.compile(text, **options)._plan


@pytest.mark.parametrize(
    ("text", "output", "runtime"),
    [
        ("SELECT * FROM S WHERE A ; B", "positions", "stacks"),
        ("SELECT * FROM S WHERE A ; B", "events", "stacks"),
        ("SELECT * FROM S WHERE A ; B PARTITION BY [k]", "positions", "keyed_stacks"),
        ("SELECT * FROM S WHERE A ; B", "count", "chain_counter"),
        ("SELECT * FROM S WHERE A ; B PARTITION BY [k]", "count", "counter"),
        ("SELECT * FROM S WHERE A : B WITHIN 9 EVENTS", "count", "counter"),
        ("SELECT * FROM S WHERE (A ; B)+ ; C", "count", "counter"),
        ("SELECT * FROM S WHERE (A ; B)+ ; C", "positions", "automaton"),
        ("SELECT NEXT * FROM S WHERE A ; B", "positions", "automaton"),
        ("SELECT NEXT * FROM S WHERE A ; B", "count", "counter"),
        ("SELECT NEXT * FROM S WHERE A ; B WITHIN 9 EVENTS", "positions", "window_lister"),
        ("SELECT NEXT * FROM S WHERE A ; B WITHIN 9 EVENTS", "count", "window_counter"),
        ("SELECT NEXT * FROM S WHERE A ; B WITHIN 9 EVENTS", "ends", "stacks"),
        ("SELECT NEXT * FROM S WHERE A ; B THEN WITHIN 9 EVENTS", "positions", "automaton"),
        ("SELECT * FROM S WHERE (A AS x OR A AS y) ; B", "positions", "stacks"),
        ("SELECT * FROM S WHERE (A AS x OR A AS y) ; B", "bindings", "automaton"),
    ],
)
def test_the_runtime_follows_pattern_and_output(text, output, runtime):
    physical = physical_plan(plan_of(text), OUTPUTS[output])
    assert (physical.model, physical.runtime, physical.engine) == (Model.CEA, runtime, RUNTIMES[runtime].engine)
    assert isinstance(physical.table(), Chain if RUNTIMES[runtime].reads_chain else Determinization)
    evaluator = cer_gpu.compile(text).evaluator(output=output)
    assert evaluator.physical.runtime == runtime


@pytest.mark.parametrize(("output", "runtime"), [("positions", "products"), ("count", "conjunction_counter")])
def test_conjunctions_are_counted_by_keys(output, runtime):
    physical = physical_plan(plan_of("SELECT * FROM S WHERE A ALL B FILTER A.k = B.k"), OUTPUTS[output])
    assert (physical.model, physical.runtime, physical.engine) == (Model.PCEA, runtime, RUNTIMES[runtime].engine)


@pytest.mark.parametrize("output", ["positions", "bindings", "count", "ends"])
@pytest.mark.parametrize(
    "where", ["A ; B", "A ; B PARTITION BY [k]", "A AS a ; B AS b FILTER a.x < b.x WITHIN 9 EVENTS"]
)
def test_recent_has_one_runtime_for_every_pattern_and_output(where, output):
    physical = physical_plan(plan_of(f"SELECT RECENT * FROM S WHERE {where}"), OUTPUTS[output])
    assert (physical.runtime, physical.engine, physical.defers_events) == ("recent", "slots", False)
    assert isinstance(physical.table(), RecentTable)
    assert physical.distribution.why_not_ranges is not None


def test_a_share_is_listed_by_the_automaton():
    plan = plan_of("SELECT * FROM S WHERE A ; B")
    assert physical_plan(plan, OUTPUTS["positions"], shard=True).runtime == "automaton"
    assert physical_plan(plan, OUTPUTS["count"], shard=True).runtime == "chain_counter"


def test_every_runtime_has_a_row_in_the_table():
    assert {choice.runtime for choice in CHOICES} == set(RUNTIMES)


def test_events_are_held_back_only_if_the_results_stay_the_same():
    window = "WITHIN 9 EVENTS"
    assert cer_gpu.compile(f"SELECT * FROM S WHERE A ; B {window}").physical_plan().defers_events
    assert not cer_gpu.compile("SELECT * FROM S WHERE A ; B").physical_plan().defers_events
    assert not cer_gpu.compile(f"SELECT * FROM S WHERE A ; B {window}").physical_plan("events").defers_events
    counted = "SELECT {} * FROM S WHERE (A ; B)+ ; C WITHIN 9 EVENTS {}"
    assert cer_gpu.compile(counted.format("", "")).physical_plan("count").defers_events
    assert cer_gpu.compile(counted.format("NEXT", "")).physical_plan("count").defers_events
    first = counted.replace("WITHIN", "THEN WITHIN")
    assert not cer_gpu.compile(first.format("NEXT", "")).physical_plan("count").defers_events
    assert not cer_gpu.compile(counted.format("", "CONSUME BY ANY")).physical_plan("count").defers_events


def test_a_plan_is_frozen_and_can_be_pickled():
    physical = cer_gpu.compile("SELECT MAX * FROM S WHERE A ; B").physical_plan()
    with pytest.raises(FrozenInstanceError):
        physical.runtime = "stacks"
    assert pickle.loads(pickle.dumps(physical)) == physical


def test_an_unknown_output_is_refused():
    with pytest.raises(cer_gpu.OptionError, match="did you mean 'count'"):
        cer_gpu.compile("SELECT * FROM S WHERE A").physical_plan("counts")


def test_explain_makes_no_evaluator(monkeypatch):
    def refuse(*_):
        raise AssertionError("an evaluator")

    monkeypatch.setattr("cer_gpu.engine.evaluator.Evaluator.__init__", refuse)
    assert cer_gpu.compile("SELECT * FROM S WHERE A ; B").explain().to_dict()["plan"]["engine"]["chosen"] == "stacks"
