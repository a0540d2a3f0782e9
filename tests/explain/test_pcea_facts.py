"""Parallelized complex event automata as text, as facts, and in the pictures that are made from these."""

from xml.etree import ElementTree

from pcea_examples import atoms_of, c0, p0

from cer_gpu.automaton.parallel_construction import build_pcea
from cer_gpu.explain.dot import to_dot
from cer_gpu.explain.drawing import to_svg
from cer_gpu.explain.pcea_facts import pcea_facts, pcea_text

FIGURE_2 = build_pcea(atoms_of("T(x), S(x, y), R(x, y)"))


def test_figure_1_as_text():
    assert pcea_text(p0()).splitlines() == [
        "3 states: q0, q1, q2; final: q2",
        "∅ → q0  T(x) / ●",
        "∅ → q1  S(x, y) / ●",
        "q0, q1 → q2  R(x, y), (T(x), R(x, y)), (S(x, y), R(x, y)) / ●",
    ]


def test_figure_2_as_text():
    assert pcea_text(FIGURE_2).splitlines() == [
        "5 states: x, 0, y, 1, 2; final: x",
        "∅ → 0  T(x) / 0",
        "∅ → 1  S(x, y) / 1",
        "∅ → 2  R(x, y) / 2",
        "y → x  T(x), (S(x, y) or R(x, y), T(x)) / 0",
        "0, 2 → x  S(x, y), (T(x), S(x, y)), (R(x, y), S(x, y)) / 1",
        "2 → y  S(x, y), (R(x, y), S(x, y)) / 1",
        "0, 1 → x  R(x, y), (T(x), R(x, y)), (S(x, y), R(x, y)) / 2",
        "1 → y  R(x, y), (S(x, y), R(x, y)) / 2",
    ]


def test_states_of_self_joins_as_text():
    assert pcea_text(build_pcea(atoms_of("R(x, y), R(y, x)"))).splitlines() == [
        "5 states: 0, 1, x{0}, x{0,1}, x{1}; final: x{0}, x{0,1}, x{1}",
        "∅ → 0  R(x, y) / 0",
        "∅ → 1  R(y, x) / 1",
        "1 → x{0}  R(x, y), (R(y, x), R(x, y)) / 0",
        "∅ → x{0,1}  R(x, x) / 0, 1",
        "0 → x{1}  R(y, x), (R(x, y), R(y, x)) / 1",
    ]


def test_sources_meet_in_a_state_of_their_own():
    facts = pcea_facts(p0())
    assert [(state["kind"], state["name"]) for state in facts["states"]] == [
        ("initial", ""),
        ("inner", "q0"),
        ("inner", "q1"),
        ("final", "q2"),
        ("join", ""),
    ]
    assert [(t["source"], t["target"], t["text"], t["kept"]) for t in facts["transitions"]] == [
        (0, 1, "T(x)", ["●"]),
        (0, 2, "S(x, y)", ["●"]),
        (1, 4, "(T(x), R(x, y))", []),
        (2, 4, "(S(x, y), R(x, y))", []),
        (4, 3, "R(x, y)", ["●"]),
    ]


def test_a_chain_has_no_joins():
    facts = pcea_facts(c0())
    assert {state["kind"] for state in facts["states"]} == {"initial", "inner", "final"}
    assert facts["transitions"][-1] == {
        "source": 2,
        "target": 3,
        "text": "R(x, y), (S(x, y), R(x, y))",
        "kept": ["●"],
    }


def test_figure_2_in_dot():
    dot = to_dot(pcea_facts(FIGURE_2))
    assert dot.count("->") == 1 + 3 + 3 + 2 * 3
    assert '[label="T(x), (S(x, y) or R(x, y), T(x))\\n● 0"]' in dot


def test_figure_2_in_svg():
    picture = ElementTree.fromstring(to_svg(pcea_facts(FIGURE_2)))
    names = {element.get("class") for element in picture.iter()}
    assert {"state join", "state final", "state initial"} <= names
