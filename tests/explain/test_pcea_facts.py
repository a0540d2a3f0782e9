"""Parallelized complex event automata as text, as facts, and in the pictures that are made from these."""

from xml.etree import ElementTree

from pcea_examples import atoms_of, c0, p0

from cer_gpu.automaton.parallel_construction import build_pcea
from cer_gpu.explain.dot import to_dot
from cer_gpu.explain.drawing import to_svg
from cer_gpu.explain.pcea_facts import pcea_facts, pcea_text

SVG = "{http://www.w3.org/2000/svg}"
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


def test_figure_1_in_dot():
    assert to_dot(pcea_facts(p0())).splitlines()[4:-1] == [
        "  0 [shape=point];",
        '  1 [shape=circle, label="q0"];',
        '  2 [shape=circle, label="q1"];',
        '  3 [shape=doublecircle, label="q2"];',
        "  4 [shape=point];",
        '  0 -> 1 [label="T(x)\\n● ●"];',
        '  0 -> 2 [label="S(x, y)\\n● ●"];',
        '  1 -> 4 [label="(T(x), R(x, y))", arrowhead=none];',
        '  2 -> 4 [label="(S(x, y), R(x, y))", arrowhead=none];',
        '  4 -> 3 [label="R(x, y)\\n● ●"];',
    ]


def test_figure_2_in_svg():
    picture = ElementTree.fromstring(to_svg(pcea_facts(FIGURE_2)))
    assert picture.findtext(f"{SVG}title") == "Parallelised complex event automaton of 5 states"
    states = [group for group in picture.iter(f"{SVG}g") if "state" in (group.get("class") or "")]
    names = {group.findtext(f"{SVG}text"): group.get("class") for group in states}
    assert names == {
        None: "state join dot",
        "x": "state final",
        "0": "state inner",
        "y": "state inner",
        "1": "state inner",
        "2": "state inner",
    }
    # an arrowhead for each transition, at its target, and none where sources meet
    assert len(list(picture.iter(f"{SVG}polygon"))) == 8
