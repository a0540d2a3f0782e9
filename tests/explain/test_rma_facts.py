"""Register match automata as text, as facts, and in the pictures that are made from these."""

from xml.etree import ElementTree

import strategies
from rma_examples import atom, compare, either, expression_1, formulas, plus, related, then

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.automaton.recogniser import output_agnostic_rma, windowed_rma
from cer_gpu.automaton.rma import RMA, RegisterCondition, RegisterTransition
from cer_gpu.automaton.rma_construction import build_rma, without_silent
from cer_gpu.ceql import syntax as s
from cer_gpu.explain.drawing import to_svg
from cer_gpu.explain.explanation import to_dot
from cer_gpu.explain.facts import rma_facts, rma_text

SVG = "{http://www.w3.org/2000/svg}"


def test_figure_1_as_text():
    assert rma_text(build_rma(expression_1())).splitlines() == [
        "3 states: 0 is the start, final: 1",
        "r1 holds x",
        "0 → 0  TRUE/~/∅/○",
        "0 → 2  T/~/{r1}/●",
        "2 → 2  TRUE/~/∅/○",
        "2 → 1  H AND r1.id = id/(~, r1)/∅/●",
    ]


def test_silent_transitions_as_text():
    assert rma_text(build_rma(plus(atom("A")), loop=False)).splitlines() == [
        "5 states: 0 is the start, final: 1",
        "2 → 3  A/~/∅/●",
        "4 → 4  TRUE/~/∅/○",
        "0 → 2  ε",
        "3 → 1  ε",
        "3 → 4  ε",
        "4 → 2  ε",
    ]


def test_figure_3_b_as_text():
    assert rma_text(output_agnostic_rma(expression_1(), 2).explored()).splitlines() == [
        "3 states: 0 is the start, final: 2",
        "r1 holds event 0 mod 1",
        "0 → 1  T/~/{r1}/●",
        "0 → 0  NOT(T)/~/∅/○",
        "1 → 1  T AND NOT(H AND r1.id = id)/(~, r1)/{r1}/●",
        "1 → 2  NOT(T) AND H AND r1.id = id/(~, r1)/∅/●",
        "1 → 0  NOT(T) AND NOT(H AND r1.id = id)/(~, r1)/∅/○",
        "2 → 1  T/~/{r1}/●",
        "2 → 0  NOT(T)/~/∅/○",
    ]


def test_the_predicates_of_guards_and_disjunctions_as_text():
    either_id = s.Or((compare("x.id", "=", "y.id"), compare("x.id", "=", 3)))
    body = then(atom("A", 0, compare("p", ">", 1)), atom("B", 1, negated=True))
    lines = rma_text(build_rma(related(body, either_id, x=0, y=1), loop=False)).splitlines()
    assert lines[2:] == [
        "0 → 2  A[p > 1]/~/{r1}/●",
        "2 → 2  TRUE/~/∅/○",
        "2 → 1  NOT(B) AND (r1.id = id OR r1.id = 3)/(~, r1)/∅/●",
    ]


def test_a_field_of_a_register_as_text():
    field = s.Attribute("`st`.`n`", variable=s.Name("x"))
    predicate = s.Comparison("<", field, s.Literal(1, "1"))
    automaton = build_rma(then(atom("A", 0), related(atom("B", 1), predicate, x=0)))
    assert rma_text(automaton).splitlines()[-1] == "2 → 1  B AND r1.st.n < 1/(~, r1)/∅/●"


def test_facts_of_figure_1():
    facts = rma_facts(build_rma(expression_1()))
    assert facts["states"] == [
        {"id": 0, "kind": "initial"},
        {"id": 1, "kind": "final"},
        {"id": 2, "kind": "inner"},
    ]
    assert facts["registers"] == [{"name": "r1", "holds": "x"}]
    assert facts["silent"] == []
    assert facts["transitions"][-1] == {
        "source": 2,
        "target": 1,
        "formula": "H AND r1.id = id",
        "selection": ["~", "r1"],
        "writes": [],
        "text": "H AND r1.id = id/(~, r1)/∅/●",
        "kept": ["~"],
    }
    assert [t["kept"] for t in facts["transitions"]] == [[], ["~"], [], ["~"]]
    assert facts["transitions"][1]["writes"] == ["r1"]


def test_the_start_state_is_the_first_of_the_facts():
    loop = RegisterTransition(1, (((RegisterCondition(Guard("A")),), True),), 0)
    facts = rma_facts(RMA(2, 1, frozenset({0}), (), (loop,)))
    assert facts["states"] == [{"id": 0, "kind": "initial"}, {"id": 1, "kind": "final"}]
    assert [(t["source"], t["target"]) for t in facts["transitions"]] == [(0, 1)]


def assert_drawn(automaton):
    facts = rma_facts(automaton)
    root = ElementTree.fromstring(to_svg(facts))
    groups = list(root.iter(f"{SVG}g"))
    states = [group.get("data-state") for group in groups if group.get("data-state") is not None]
    assert sorted(map(int, states)) == list(range(automaton.n_states))
    shown = {}
    for group in groups:
        if group.get("data-transition") is not None:
            texts = [*group.findall(f"{SVG}title"), *group.findall(f"{SVG}text")]
            shown[int(group.get("data-transition"))] = texts[0].text
    assert [shown[i] for i in range(len(shown))] == [t["text"] for t in facts["transitions"]]
    dot = to_dot(facts)
    assert dot.count(" -> ") == 1 + len(automaton.transitions) + len(automaton.silent)
    for t in facts["transitions"]:
        assert f"{t['source']} -> {t['target']}" in dot
        assert t["text"].replace("&", "&amp;") in dot


def test_the_picture_of_a_marked_loop_has_its_output():
    automaton = output_agnostic_rma(expression_1(), 2).explored()
    assert "id)/(~, r1)/{r1}/●</text>" in to_svg(rma_facts(automaton))


def test_pictures_hold_every_state_and_transition():
    choice = then(either(atom("A", 0), atom("B", 0)), plus(atom("C", 1)))
    formula = related(choice, compare("x.k", "<", "y.k"), x=0, y=1)
    for automaton in (
        build_rma(formula),
        without_silent(build_rma(formula)),
        windowed_rma(expression_1(), 4),
        output_agnostic_rma(expression_1(), 3).explored(),
    ):
        assert_drawn(automaton)


@strategies.property_test(0.2)
def test_pictures_of_random_automata_hold_every_state_and_transition(data):
    assert_drawn(build_rma(data.draw(formulas())))
