"""Choices in an explanation: the evaluation makes the same ones, and the reasons are those of the query."""

import pyarrow as pa
import pytest
import strategies
from rendering import to_ceql

import cer_gpu
from cer_gpu.output.outputs import OUTPUTS
from spark_glue.distribution import choose_distribution
from spark_glue.work import work_of


def plan_of(query, events=None, **options):
    return cer_gpu.compile(query, **options).explain(events).to_dict()["plan"]


@strategies.property_test(0.5)
def test_explained_engines_and_distribution_are_those_of_the_evaluation(data):
    query = data.draw(strategies.full_queries(choosing=data.draw(strategies.st.booleans())))
    compiled = cer_gpu.compile(to_ceql(query), time_column="ts")
    plan = compiled.explain().to_dict()["plan"]
    engines = {output: compiled.evaluator(output=output).engine for output in plan["engine"]["by_output"]}
    assert plan["engine"]["by_output"] == engines
    for output in set(OUTPUTS) - set(engines):
        with pytest.raises(cer_gpu.OptionError):
            compiled.evaluator(output=output)
    assert plan["engine"]["chosen"] == compiled.evaluator().engine
    within = query.strategy in ("NEXT", "LAST", "MAX") and query.within is not None and not query.chooses_first
    assert ("each window in which a match ends is evaluated by itself" in plan["engine"]["why"]) == within
    assert ("no stacks" in plan["engine"]["why"]) == (plan["engine"]["chosen"] == "automaton" and not within)
    assert plan["distribution"]["chosen"] == choose_distribution(work_of(compiled), "auto")[0]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT * FROM S WHERE A : B", "there is no WITHIN, and stacks would keep what no neighbour followed"),
        ("SELECT * FROM S WHERE A : B+ PARTITION BY [k]", "there is no WITHIN"),
        ("SELECT STRICT * FROM S WHERE A ; B+ WITHIN 5 EVENTS", "events of a '+' are to be neighbours"),
        ("SELECT * FROM S WHERE A ; B :+", "':+' asks for neighbouring events"),
        ("SELECT * FROM S WHERE A ; (B ; C)+", "a step is more than one event"),
        ("SELECT * FROM S WHERE A ; NOT(B)", "a step is NOT(...)"),
        ("SELECT A FROM S WHERE A ; B", "SELECT does not keep every step"),
        ("SELECT * FROM S WHERE A", "the pattern has one step"),
        (f"SELECT * FROM S WHERE {' ; '.join('A' * 65)}", "more than 64 steps"),
        ("SELECT * FROM S WHERE A+ ; A+", "at several steps"),
        ("SELECT MAX * FROM S WHERE A ; B", "the strategy is MAX"),
    ],
)
def test_a_query_that_is_no_chain_says_why_it_uses_the_automaton(query, why):
    engine = plan_of(query)["engine"]
    assert engine["chosen"] == "automaton"
    assert why in engine["why"]


def test_the_bound_of_memory_follows_window_strategy_and_clauses():
    assert plan_of("SELECT * FROM S WHERE A ; B")["window"] is None
    assert plan_of("SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS")["window"] == {"kind": "events", "text": "5 positions"}
    for clauses, memory in (
        ("", "without WITHIN nothing is ever dropped"),
        ("CONSUME BY ANY", "until a match consumes them"),
        ("WITHIN 1 HOURS 1 SECONDS", "in the window"),
        ("PARTITION BY [k] WITHIN 5 EVENTS", "in the window of each partition"),
    ):
        assert memory in plan_of(f"SELECT * FROM S WHERE A ; B {clauses}", time_column="ts")["memory"]
    for query, dropped in (("A : B+ : C", False), ("A : (B :+) : C", True), ("A : B ; C", False), ("A", True)):
        for clauses in ("", "CONSUME BY ANY"):
            memory = plan_of(f"SELECT * FROM S WHERE {query} {clauses}")["memory"]
            assert ("dropped at the first event that does not continue it" in memory) == dropped
    assert "grows" in plan_of("SELECT STRICT * FROM S WHERE A : B")["memory"]
    for strategy, kept in (
        ("ALL", False),
        ("STRICT", False),
        ("ANY", False),
        ("NEXT", True),
        ("LAST", True),
        ("MAX", True),
    ):
        query = f"SELECT {strategy} * FROM S WHERE A ; B PARTITION BY [k] {{}} WITHIN 5 EVENTS"
        assert "never dropped" not in plan_of(query.format(""))["memory"]
        memory = plan_of(query.format("THEN"))["memory"]
        assert ("one state per partition, which is never dropped" in memory) == kept
    assert (
        "that wait until their window has passed" in plan_of("SELECT * FROM S WHERE A ; !B WITHIN 5 EVENTS")["memory"]
    )
    assert "that no event has excluded yet" in plan_of("SELECT * FROM S WHERE A -> B")["memory"]
    assert "grows with the relevant events" in plan_of("SELECT * FROM S WHERE A -> B ; C")["memory"]
    times = plan_of("SELECT * FROM S WHERE A WITHIN 26 HOURS 1 MINUTES 0.5 SECONDS", time_column="ts")["window"]
    assert times["text"] == "1 day 2 hours 1 minute 0.5 seconds"


def test_the_tier_of_predicates_is_explained_with_its_reason(monkeypatch):
    monkeypatch.setattr("cer_gpu.predicates.guards.TIER", None)
    query, events = "SELECT * FROM S WHERE A FILTER A[n > 1]", pa.table({"type": ["A"], "n": [2]})
    assert "compiled pass after" in plan_of(query, events)["predicates"]["why"]
    nothing = pa.table({"type": pa.nulls(1), "n": [2]})
    assert plan_of(query, nothing)["predicates"]["why"] == "these predicates are not compiled"
    monkeypatch.setattr("cer_gpu.predicates.guards.TIER", "compiled")
    facts = cer_gpu.compile(query).explain(events, analyze=True).to_dict()
    assert facts["plan"]["predicates"]["chosen"] == "compiled"
    assert facts["analysis"]["tiers"] == ["compiled"]


@pytest.mark.parametrize(
    ("pattern", "text", "plain"),
    [
        ("A ; B+ ; C", "A ; B+ ; C", True),
        ("A : B", "A : B", True),
        ("A ; !R ; (B OR D) ; C", "A ; !R ; (B OR D) ; C", False),
        ("A -> B ; C{2,3}", "A ; !B ; B ; C{2,3}", False),
        ("A ; B{2} ; C{2,}", "A ; B{2} ; C{2,}", False),
        ("A ; B ->+", "A ; B ->+", False),
    ],
)
def test_the_steps_of_a_chain_have_their_counts_and_gaps(pattern, text, plain):
    query = f"SELECT * FROM S WHERE {pattern} WITHIN 9 EVENTS"
    assert plan_of(query)["chain"] == {"text": text, "plain": plain}
    assert (f"chain         {text}" in str(cer_gpu.compile(query).explain(detail="plan"))) == (not plain)


def test_a_query_that_is_no_chain_has_no_steps():
    assert plan_of("SELECT * FROM S WHERE A ; B?")["chain"] is None
