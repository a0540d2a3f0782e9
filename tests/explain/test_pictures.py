"""Text, DOT and SVG hold every state and transition; pictures are well-formed, and nothing in them overlaps."""

import itertools
import math
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import conjunction_strategies
import join_strategies
import lark
import pytest
import strategies
from cases import Case
from hypothesis import assume
from rendering import to_ceql

import cer_gpu
from cer_gpu.printable import printable

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
DOT = lark.Lark(
    r"""
    start: "digraph" ID "{" (statement ";")* "}"
    statement: ID "=" value -> setting
             | ID attributes -> node
             | ID "->" ID attributes? -> edge
    attributes: "[" ID "=" value ("," ID "=" value)* "]"
    value: ID | QUOTED
    ID: /[A-Za-z0-9_]+/
    QUOTED: /"(?:[^"\\]|\\.)*"/
    %ignore /\s+/
    """,
    parser="lalr",
)


def explained(data, depth):
    query = data.draw(strategies.queries(depth=depth))
    explanation = cer_gpu.compile(to_ceql(query), time_column="ts").explain(detail="all")
    assume(len(explanation.to_dict()["automaton"]["states"]) <= 30)
    return explanation


# ---- text and DOT ---------------------------------------------------------------------------------------------------


@strategies.property_test(0.5)
def test_text_has_every_transition_in_order(data):
    explanation = explained(data, 4)
    automaton = explanation.to_dict()["automaton"]
    said = str(explanation)
    lines = said[said.index("Automaton") : said.index("Plan")].splitlines()
    assert lines[1].split()[0] == str(len(automaton["states"]))
    pairs = [re.match(r" +(\d+) → (\d+)", line).groups() for line in lines[2:] if line]
    steps = automaton["transitions"] + automaton["silent"]
    assert [tuple(map(int, pair)) for pair in pairs] == [(step["source"], step["target"]) for step in steps]
    for line, transition in zip(lines[2:], automaton["transitions"], strict=False):
        assert printable(transition["text"]) in line
        assert ("●" in line) == bool(transition["kept"])


def drawn_by_dot(text):
    """Return the states and the edges, each with its label, that a picture by Graphviz would have."""
    assert not re.sub(r"\\[\\\"n]", "", text).count("\\")
    tree = DOT.parse(text)
    states = [str(node.children[0]) for node in tree.find_data("node")]
    edges = []
    for edge in tree.find_data("edge"):
        source, target, *attributes = edge.children
        parts = [str(part) for part in attributes[0].scan_values(lambda _: True)] if attributes else []
        values = dict(zip(parts[::2], parts[1::2], strict=True))
        edges.append((str(source), str(target), values.get("label")))
    return [s for s in states if s.isdigit()], [edge for edge in edges if edge[0] != "start"]


@strategies.property_test(0.5)
def test_dot_has_every_state_and_edge(data):
    explanation = explained(data, 4)
    automaton = explanation.to_dict()["automaton"]
    states, edges = drawn_by_dot(explanation.to_dot())
    assert states == [str(state["id"]) for state in automaton["states"]]
    steps = automaton["transitions"] + automaton["silent"]
    assert [edge[:2] for edge in edges] == [(str(step["source"]), str(step["target"])) for step in steps]
    for (_, _, label), transition in zip(edges, automaton["transitions"], strict=False):
        shown = re.sub(r"\\([\\\"])", r"\1", label[1:-1]).replace("&amp;", "&")
        assert shown.startswith(printable(transition["text"]))


# ---- SVG ------------------------------------------------------------------------------------------------------------


def places(svg):
    """Return the circles of states (x, y, r) by number, the boxes of labels (x, y, w, h), and the edges (d)."""
    root = ElementTree.fromstring(svg)
    circles, boxes = {}, []
    for group in root.iter(f"{SVG}g"):
        kinds = group.get("class").split()
        if "state" in kinds:
            circle = group.find(f"{SVG}circle")
            circles[int(group.get("data-state"))] = tuple(float(circle.get(name)) for name in ("cx", "cy", "r"))
        if "label" in kinds:
            rect = group.find(f"{SVG}rect")
            boxes.append(tuple(float(rect.get(name)) for name in ("x", "y", "width", "height")))
    return root, circles, boxes, [path.get("d") for path in root.findall(f"{SVG}path")]


def points(d):
    """Return points along an edge."""
    parts = re.findall(r"([MLC])([^MLC]*)", d)
    here = None
    for command, numbers in parts:
        ends = [tuple(map(float, pair.split(","))) for pair in numbers.split()]
        if command == "M":
            here = ends[0]
        for i in range(21) if command != "M" else ():
            t = i / 20
            if command == "L":
                yield tuple(a + (b - a) * t for a, b in zip(here, ends[0], strict=True))
            else:
                weights = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3]
                corners = [here, *ends]
                yield tuple(sum(w * p[k] for w, p in zip(weights, corners, strict=True)) for k in (0, 1))
        here = ends[-1]


def overlap(one, other):
    return all(one[k] < other[k] + other[k + 2] and other[k] < one[k] + one[k + 2] for k in (0, 1))


def assert_drawn(explanation):
    automaton = explanation.to_dict()["automaton"]
    root, circles, boxes, ways = places(explanation.to_svg())
    assert sorted(circles) == [state["id"] for state in automaton["states"]]
    shown = {}
    for group in root.iter(f"{SVG}g"):
        if group.get("data-transition") is not None:
            texts = [*group.findall(f"{SVG}title"), *group.findall(f"{SVG}text")]
            shown[int(group.get("data-transition"))] = texts[0].text
    expected = [printable(transition["text"]) for transition in automaton["transitions"]]
    assert [shown[i] for i in range(len(expected))] == expected
    silent = [path.get("data-silent") for path in root.iter(f"{SVG}path") if path.get("data-silent")]
    assert silent == [str(i) for i in range(len(automaton["silent"]))]

    width, height = float(root.get("width")), float(root.get("height"))
    solid = [(x - r, y - r, 2 * r, 2 * r) for x, y, r in circles.values()] + boxes
    for x, y, w, h in solid:
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
    for one, other in itertools.combinations(solid, 2):
        assert not overlap(one, other), (one, other)
    for way in ways:
        for x, y in points(way):
            for cx, cy, r in circles.values():
                assert math.dist((x, y), (cx, cy)) > r - 0.2, way
            for bx, by, bw, bh in boxes:
                assert not (bx + 0.2 < x < bx + bw - 0.2 and by + 0.2 < y < by + bh - 0.2), way


@strategies.property_test(0.5)
def test_svg_has_all_and_nothing_overlaps(data):
    assert_drawn(explained(data, data.draw(strategies.st.sampled_from([3, 4, 5]))))


@pytest.mark.parametrize(
    "pattern",
    [
        " ; ".join(f"E{i}" for i in range(29)),
        " : ".join(f"E{i}" for i in range(29)),
        "A OR B ; C OR D ; (E OR F ; G ; H) OR I+ OR J :+",
        "(((A+ ; B)+ : C)+ OR (D ; (E ; F+)+)) ; (A OR (B : (C OR D+) ; E))",
    ],
)
def test_svg_of_large_automata_has_no_overlap(pattern):
    assert_drawn(cer_gpu.compile(f"SELECT * FROM S WHERE {pattern}").explain())


@strategies.property_test(0.3)
def test_pictures_of_random_conjunctions_have_no_overlap(data):
    explanation = Case(data, conjunction_strategies.full_cases()).compiled.explain()
    automaton = explanation.to_dict()["automaton"]
    assume(len(automaton["states"]) <= 30)
    assert_drawn(explanation)
    states, edges = drawn_by_dot(explanation.to_dot())
    assert states == [str(state["id"]) for state in automaton["states"]]
    steps = automaton["transitions"] + automaton["silent"]
    assert [edge[:2] for edge in edges] == [(str(step["source"]), str(step["target"])) for step in steps]


@pytest.mark.parametrize(
    "pattern",
    [
        " ; ".join(f"E{i}" for i in range(12)) + " FILTER " + " AND ".join(f"E{i}.x = E{i + 1}.x" for i in range(11)),
        " ALL ".join("ABCDE") + " FILTER " + " AND ".join(f"A.x = {kind}.x" for kind in "BCDE"),
        "(A ALL B ALL C) ; D FILTER A.x = D.x AND B.y = D.y AND C.z = D.z",
        "(A ; B : C) ALL (D ; E)",
    ],
)
def test_labels_of_states_overlap_nothing(pattern):
    explanation = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern}").explain()
    assert_drawn(explanation)
    svg = explanation.to_svg()
    assert all(escape(state["label"]) in svg for state in explanation.to_dict()["automaton"]["states"][1:4])


def test_a_wide_picture_is_drawn_from_top_to_bottom():
    wide = cer_gpu.compile("SELECT * FROM S WHERE " + " ; ".join("ABCDEFGHIJKLMNO")).explain().to_svg()
    assert float(ElementTree.fromstring(wide).get("width")) < 600


def test_the_picture_in_the_documentation_is_current():
    query = (ROOT / "examples" / "queries" / "worse_and_worse.ceql").read_text(encoding="utf-8")
    drawn = cer_gpu.compile(query, time_column="ts").explain().to_svg()
    assert (ROOT / "docs" / "worse_and_worse.svg").read_text(encoding="utf-8") == drawn


@strategies.property_test(0.2)
def test_pictures_hold_the_automaton_of_filters_between_events(data):
    explanation = Case(data, join_strategies.full_join_cases()).compiled.explain(detail="all")
    automaton = explanation.to_dict()["automaton"]
    if len(automaton["states"]) <= 30:
        assert_drawn(explanation)
    states, edges = drawn_by_dot(explanation.to_dot())
    assert len(states) == len(automaton["states"])
    assert len(edges) == len(automaton["transitions"]) + len(automaton["silent"])
    said = str(explanation)
    lines = said[said.index("\nAutomaton") : said.index("\nPlan")].splitlines()
    steps = automaton.get("rules", automaton["transitions"]) + automaton["silent"]
    assert sum(" → " in line for line in lines) == len(steps)
    assert all(f"register {register['name']} holds" in said for register in automaton.get("registers", ()))


# ---- names with meaning in other languages ----------------------------------------------------------------------

HOSTILE = [
    '"quoted" \\',
    "\\",
    "\\N\\G",
    "<script>alert(1)</script>",
    "]]><svg onload='x'>",
    "a\nb\r\tc",
    "&lt;&amp;",
    "--",
    "\x00\x1b[31m",
    "\u202eolleh\u2066",
    "漢字" * 30,
    "x" * 300,
    "S>T",
    "{% raw %} ${x} %d",
]


TAGS = frozenset("div h4 pre details summary svg title style rect path polygon g circle text".split())  # noqa: SIM905


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        assert not any(name.startswith("on") for name, _ in attributes)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_only_text(name):
    quoted, text = f"`{name}`", name.replace("'", "''")
    pattern = f"{quoted} AS `{name}1` ; B FILTER `{name}1`[{quoted} = '{text}']"
    query = f"SELECT * FROM {quoted} WHERE {pattern} WITHIN 1 [{quoted}]"
    explanation = cer_gpu.compile(query).explain(detail="all")
    assert_drawn(explanation)
    states, edges = drawn_by_dot(explanation.to_dot())
    assert (len(states), len(edges)) == (3, 3)
    explanation.to_dot().encode()
    tags = Tags()
    tags.feed(explanation._repr_html_())
    assert tags.seen <= TAGS
    assert all(line.isprintable() for line in str(explanation).split("\n"))
    str(explanation).encode()


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_in_filters_between_events_are_only_text(name):
    quoted = f"`{name}`"
    pattern = f"{quoted} AS `{name}1` ; B AS `{name}2` FILTER `{name}2`.{quoted} > `{name}1`.x"
    explanation = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern}").explain(detail="all")
    assert explanation.to_dict()["automaton"]["model"] == "RMA"
    assert_drawn(explanation)
    drawn_by_dot(explanation.to_dot())
    tags = Tags()
    tags.feed(explanation._repr_html_())
    assert tags.seen <= TAGS
    assert all(line.isprintable() for line in str(explanation).split("\n"))
