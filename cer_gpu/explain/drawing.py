"""Picture of an automaton in SVG: circles for states, and arrows labelled with what an event must be."""

from __future__ import annotations

import itertools
import math
import textwrap
import unicodedata
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from cer_gpu.printable import printable

Point = tuple[float, float]
"""Coordinates: (from layer to layer, within a layer)."""

LAYER_GAP, NODE_GAP = 34.0, 18.0
_SWEEPS, _PASSES, _ROUNDS = 12, 40, 4
_LARGE = 1000  # nodes of a graph whose order and places are improved less


@dataclass(frozen=True)
class _Layout:
    """Places of nodes and routes of edges.

    Attributes
    ----------
    centres
        Centres of the nodes.
    routes
        For each edge, its points from source to target: straight between the first and second, the third and fourth,
        ... (through a layer), and free between the others.
    size
        Extent of the whole drawing, which begins at (0, 0).
    """

    centres: list[Point]
    routes: list[list[Point]]
    size: Point


def layered(sizes: Sequence[Point], edges: Sequence[tuple[int, int]], middles: Sequence[int] = ()) -> _Layout:
    """Lay out a graph without self-loops; node 0 comes first.

    Parameters
    ----------
    sizes
        Extent of each node, as a `Point`.
    edges
        Pairs (source, target).
    middles
        Nodes with one edge in and one out, to be put half-way between.
    """
    turned = _closing(len(sizes), edges)
    # the two edges of a middle turn together, so that it has one edge in and one out
    closing = {source for (source, _), back in zip(edges, turned, strict=True) if back} & set(middles)
    turned = [back or target in closing for (_, target), back in zip(edges, turned, strict=True)]
    forward = [(t, s) if back else (s, t) for (s, t), back in zip(edges, turned, strict=True)]
    layer = _layers(len(sizes), forward, middles)
    # an edge gets a dummy node in each layer between its ends
    extents = list(sizes)
    chains = []
    for source, target in forward:
        passed = range(layer[source] + 1, layer[target])
        chains.append([source, *range(len(extents), len(extents) + len(passed)), target])
        layer += passed
        extents += [(0.0, 0.0)] * len(passed)
    links = [(a, b) for chain in chains for a, b in itertools.pairwise(chain)]
    rows = _ordered(layer, links)
    across = _across(rows, links, extents)
    top = min(a - extents[i][1] / 2 for i, a in enumerate(across))
    across = [a - top for a in across]
    along, thickness, end = [], [], 0.0
    for row in rows:
        thick = max(extents[i][0] for i in row)
        along.append(end + thick / 2)
        thickness.append(thick)
        end += thick + LAYER_GAP
    routes = []
    for chain, back in zip(chains, turned, strict=True):
        points: list[Point] = []
        for i in chain:
            middle, half = along[layer[i]], thickness[layer[i]] / 2
            points += [(middle - half, across[i]), (middle + half, across[i])]
        source, target = chain[0], chain[-1]
        points[0] = along[layer[source]] + extents[source][0] / 2, across[source]
        points[-1] = along[layer[target]] - extents[target][0] / 2, across[target]
        routes.append(points[::-1] if back else points)
    centres = [(along[layer[i]], across[i]) for i in range(len(sizes))]
    return _Layout(centres, routes, (end - LAYER_GAP, max(a + extents[i][1] / 2 for i, a in enumerate(across))))


def _closing(n: int, edges: Sequence[tuple[int, int]]) -> list[bool]:
    """Return, for each edge, True if it closes a cycle in a depth-first search from the first node."""
    out: list[list[int]] = [[] for _ in range(n)]
    for number, (source, _) in enumerate(edges):
        out[source].append(number)
    closing = [False] * len(edges)
    seen, open_ = [False] * n, [False] * n
    for root in range(n):
        if seen[root]:
            continue
        seen[root] = open_[root] = True
        path = [(root, iter(out[root]))]
        while path:
            node, rest = path[-1]
            edge = next(rest, None)
            if edge is None:
                open_[node] = False
                path.pop()
                continue
            target = edges[edge][1]
            closing[edge] = open_[target]
            if not seen[target]:
                seen[target] = open_[target] = True
                path.append((target, iter(out[target])))
    return closing


def _layers(n: int, edges: Sequence[tuple[int, int]], middles: Sequence[int]) -> list[int]:
    """Return the layer of each node: the length of the longest path to it; `middles` are half-way."""
    before: list[list[int]] = [[] for _ in range(n)]
    after: list[list[int]] = [[] for _ in range(n)]
    for source, target in edges:
        after[source].append(target)
        before[target].append(source)
    layer, missing = [0] * n, [len(sources) for sources in before]
    ready = [i for i in range(n) if not missing[i]]
    for node in ready:  # the body appends to it
        for target in after[node]:
            layer[target] = max(layer[target], layer[node] + 1)
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    for node in middles:
        layer[node] = (layer[before[node][0]] + layer[after[node][0]]) // 2
    return layer


def _ordered(layer: Sequence[int], links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the nodes of each layer in an order with few crossings."""
    rows: list[list[int]] = [[] for _ in range(max(layer) + 1)]
    for node in range(len(layer)):
        rows[layer[node]].append(node)
    before: dict[int, list[int]] = {i: [] for i in range(len(layer))}
    after: dict[int, list[int]] = {i: [] for i in range(len(layer))}
    for source, target in links:
        after[source].append(target)
        before[target].append(source)
    best, min_crossings = [list(row) for row in rows], _crossings(rows, after)
    for sweep in range(_SWEEPS if len(layer) <= _LARGE else 2):
        down = sweep % 2 == 0
        neighbours = before if down else after
        for row, fixed in zip(rows[1:], rows, strict=False) if down else zip(rows[-2::-1], rows[::-1], strict=False):
            place = {node: i for i, node in enumerate(fixed)}
            own = {node: i for i, node in enumerate(row)}
            row.sort(key=lambda i: _mean([place[j] for j in neighbours[i]], own[i]))
        n_crossings = _crossings(rows, after)
        if n_crossings < min_crossings:
            best, min_crossings = [list(row) for row in rows], n_crossings
    return best


def _mean(numbers: list[int], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _crossings(rows: Sequence[Sequence[int]], after: dict[int, list[int]]) -> int:
    n_crossings = 0
    for row, below in itertools.pairwise(rows):
        place = {node: i for i, node in enumerate(below)}
        ends: list[int] = []
        for node in row:
            new = sorted(place[target] for target in after[node])
            n_crossings += sum(len(ends) - bisect_left(ends, end + 1) for end in new)
            for end in new:
                insort(ends, end)
    return n_crossings


def _across(rows: Sequence[Sequence[int]], links: Sequence[tuple[int, int]], extents: Sequence[Point]) -> list[float]:
    """Return places within the layers: near to the neighbours, in order and apart."""
    neighbours: list[list[int]] = [[] for _ in extents]
    for source, target in links:
        neighbours[source].append(target)
        neighbours[target].append(source)
    place = [0.0] * len(extents)
    offsets = []
    for row in rows:
        offset, at = [0.0], 0.0
        for a, b in itertools.pairwise(row):
            at += (extents[a][1] + extents[b][1]) / 2 + NODE_GAP
            offset.append(at)
        offsets.append(offset)
        for node, o in zip(row, offset, strict=True):
            place[node] = o - at / 2
    for number in range(_PASSES if len(extents) <= _LARGE else 4):
        for r in range(len(rows)) if number % 2 == 0 else reversed(range(len(rows))):
            row, offset = rows[r], offsets[r]
            wanted = [sum(place[j] for j in neighbours[i]) / len(neighbours[i]) if neighbours[i] else 0 for i in row]
            for node, at in zip(row, _spread_apart(wanted, offset), strict=True):
                place[node] = at
    _straighten(rows, links, extents, place)
    return place


def _straighten(
    rows: Sequence[Sequence[int]], links: Sequence[tuple[int, int]], extents: Sequence[Point], place: list[float]
) -> None:
    """Align each chain of nodes without branches on one line if there is space."""
    n_in, n_out = [0] * len(place), [0] * len(place)
    for source, target in links:
        n_out[source] += 1
        n_in[target] += 1
    following = {a: b for a, b in links if n_out[a] == n_in[b] == 1}
    lines = []
    for first in following.keys() - following.values():
        line = [first]
        while line[-1] in following:
            line.append(following[line[-1]])
        lines.append(line)
    sides: list[tuple[int | None, int | None]] = [(None, None)] * len(place)
    for row in rows:
        for before, node, after in zip([None, *row], row, [*row[1:], None], strict=False):
            sides[node] = before, after
    for _ in range(_ROUNDS):
        for line in sorted(lines, key=len, reverse=True):
            low, high = -math.inf, math.inf
            for node in line:
                before, after = sides[node]
                if before is not None:
                    low = max(low, place[before] + (extents[before][1] + extents[node][1]) / 2 + NODE_GAP)
                if after is not None:
                    high = min(high, place[after] - (extents[after][1] + extents[node][1]) / 2 - NODE_GAP)
            if low <= high:
                straight = min(max(sum(place[node] for node in line) / len(line), low), high)
                for node in line:
                    place[node] = straight


def _spread_apart(wanted: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Return the places nearest to the preferred ones (least squares), `offsets` apart (isotonic regression)."""
    blocks: list[tuple[float, int]] = []  # groups of touching places: (mean less the offsets, number of places)
    for want, offset in zip(wanted, offsets, strict=True):
        mean, n = want - offset, 1
        while blocks and blocks[-1][0] >= mean:
            other, m = blocks.pop()
            mean, n = (mean * n + other * m) / (n + m), n + m
        blocks.append((mean, n))
    means = [mean for mean, n in blocks for _ in range(n)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


RADIUS = 17.0
_DOT = 4.5  # radius of a state without a name
_MARGIN = 18.0
_CHARACTER, _LINE = 7.6, 17.0  # pixels: width of a character and height of a line in labels
_PADDING = 7.0
_LONGEST, _MAX_LINES = 30, 4  # bounds of a label: characters of a line, and lines
_WIDE = 1150.0
"""Greatest width of a picture from left to right, in pixels; a wider one goes from top to bottom."""
_LOOP = 26.0  # height of a self-loop above the circle of its state
_ASIDE = 10.0  # distance between the middle of a state and the end of a backward edge

_STYLE = """
.cea { font-family: Helvetica, Arial, sans-serif; font-size: 13px }
.cea .back { fill: #ffffff }
.cea circle { fill: #ffffff; stroke: #334155; stroke-width: 1.6 }
.cea .final circle { stroke: #15803d }
.cea .final .disc { fill: #dcfce7 }
.cea text { fill: #0f172a; text-anchor: middle }
.cea .label text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 12.5px }
.cea .label rect { fill: #f1f5f9; stroke: #cbd5e1 }
.cea .kept rect { fill: #e0edff; stroke: #7fb0f5 }
.cea .label .marks { fill: #1d4ed8 }
.cea path { fill: none; stroke: #64748b; stroke-width: 1.4 }
.cea .silent { stroke-dasharray: 4 4 }
.cea polygon { fill: #64748b }
.cea .note { fill: #64748b; font-size: 11.5px }
.cea .aside { text-anchor: start }
.cea .before { text-anchor: end }
"""


def to_svg(automaton: Mapping[str, Any]) -> str:
    """Return the self-contained picture of an automaton (`cer_gpu.explain.facts.automaton_facts`)."""
    picture = _Picture(automaton, down=False)
    if picture.size[0] > _WIDE:
        picture = _Picture(automaton, down=True)
    return picture.svg()


class _Picture:
    """Drawing of an automaton from left to right, or from top to bottom if `down`."""

    def __init__(self, automaton: Mapping[str, Any], *, down: bool) -> None:
        self.down = down
        self.title = _title(automaton)
        self.states = automaton["states"]
        self._n_states = sum(state.get("name") != "" for state in self.states)
        self.silent = [(step["source"], step["target"]) for step in automaton["silent"]]
        self.labels: list[_Label] = []
        self.loops: dict[int, list[dict[str, Any]]] = {}
        between: dict[tuple[Any, ...], _Label] = {}
        for number, transition in enumerate(automaton["transitions"]):
            ends = transition["source"], transition["target"]
            if ends[0] == ends[1]:
                self.loops.setdefault(ends[0], []).append({**transition, "number": number})
                continue
            # one label for all transitions between the same states with the same marks
            key = (*ends, tuple(transition["kept"]))
            if key not in between:
                between[key] = _Label(ends, transition["kept"])
                self.labels.append(between[key])
            between[key].add(number, ("✗ " if transition.get("takes_back") else "") + transition["text"])
        n = len(self.states)
        sizes = [self._turned(self._state_size(state["id"])) for state in self.states]
        sizes += [self._turned(label.size) for label in self.labels]
        edges = [edge for i, label in enumerate(self.labels, n) for edge in ((label.ends[0], i), (i, label.ends[1]))]
        layout = layered(sizes, edges + self.silent, range(n, len(sizes)))
        self.centres = [self._placed(point) for point in layout.centres]
        routes = [[self._placed(point) for point in route] for route in layout.routes]
        self.routes, self.silent_routes = routes[: len(edges)], routes[len(edges) :]
        self.notes = list(_notes(automaton))
        width, height = self._turned(layout.size)
        width, height = max(width, *map(_width, self.notes), 0.0), height + _LINE * len(self.notes)
        self.size = max(width + 2 * _MARGIN + (0 if down else 24), 300), height + 2 * _MARGIN + (48 if down else 24)

    def _turned(self, point: Point) -> Point:
        return (point[1], point[0]) if self.down else point

    def _placed(self, point: Point) -> Point:
        x, y = self._turned(point)
        return (x + _MARGIN, y + _MARGIN + 24) if self.down else (x + _MARGIN + 24, y + _MARGIN)

    def _is_dot(self, state: int) -> bool:
        """Return True for a state without a name: no run is ever in it."""
        return bool(self.states[state].get("name") == "")

    def _state_size(self, state: int) -> Point:
        """Return the width and height of a state with its label and its self-loops, as a box around its centre."""
        named = self._label(state)
        width = max(map(_width, named), default=0.0)
        loops = [line for loop in self.loops.get(state, ()) for line in _lines(loop["text"])]
        if not loops and not named:
            return 2 * RADIUS, 2 * RADIUS
        if self.down:
            aside = max([width + 4, *(_LOOP + 4 + _width(line) for line in loops)])
            return 2 * (RADIUS + aside), max(2 * RADIUS, _LINE * len(named))
        above, below = (_LOOP + _LINE * len(loops) if loops else 0), _LINE * len(named) + (4 if named else 0)
        return max(2 * RADIUS, width, *map(_width, loops)), 2 * (RADIUS + max(above, below))

    def _label(self, state: int) -> list[str]:
        """Return the lines of the text beside a state."""
        label = self.states[state].get("label")
        return _lines(label) if label else []

    # ---- elements -------------------------------------------------------------------------------------------

    def svg(self) -> str:
        width, height = round(self.size[0]), round(self.size[1])
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="cea" role="img" viewBox="0 0 {width} {height}" '
                f'width="{width}" height="{height}">',
                f"<title>{self.title} of {self._n_states} states</title>",
                f"<style>{_STYLE}</style>",
                f'<rect class="back" width="{width}" height="{height}"/>',
                *self._ways(),
                *(line for state in self.states for line in self._state_shapes(state)),
                *(
                    line
                    for i, label in enumerate(self.labels, len(self.states))
                    for line in label.drawn(self.centres[i])
                ),
                *_svg_text(self.notes, _MARGIN, height - 34.0 - _LINE * len(self.notes), "note aside"),
                *self._legend(width / 2, height - 16.0),
                "</svg>",
                "",
            ]
        )

    def _legend(self, x: float, y: float) -> Iterator[str]:
        yield f'<text class="note" x="{x - 75:.1f}" y="{y + 4:.1f}">● marks the event</text>'
        yield f'<path class="silent" d="M{_xy((x + 5, y))} L{_xy((x + 41, y))}"/>'
        yield f'<text class="note" x="{x + 90:.1f}" y="{y + 4:.1f}">reads no event</text>'

    def _ways(self) -> Iterator[str]:
        x, y = self.centres[0]
        before = (x, y - 45) if self.down else (x - 45, y)
        if not self._is_dot(0):
            yield from self._way([before, before], target=0)
        for number, route in enumerate(self.routes):
            ends = self.labels[number // 2].ends
            yield from self._way(route, ends[0] if number % 2 == 0 else None, ends[1] if number % 2 else None)
        for number, (route, ends) in enumerate(zip(self.silent_routes, self.silent, strict=True)):
            yield from self._way(route, *ends, f'class="silent" data-silent="{number}" ')

    def _way(
        self, route: list[Point], source: int | None = None, target: int | None = None, kind: str = ""
    ) -> Iterator[str]:
        """Draw an edge, with an arrowhead at its target."""
        route = list(route)
        if source is not None:
            self._attach(route, 0, 1, source)
        if target is not None:
            self._attach(route, -1, -2, target)
        d = f"M{_xy(route[0])}"
        for i, (a, b) in enumerate(itertools.pairwise(route)):
            d += f" L{_xy(b)}" if i % 2 == 0 else self._curve(a, b)
        yield f'<path {kind}d="{d}"/>'
        if target is not None and not self._is_dot(target):
            yield self._arrow(route[-1], self.centres[target])

    def _curve(self, a: Point, b: Point) -> str:
        if self.down:
            middle = (a[1] + b[1]) / 2
            return f" C{_xy((a[0], middle))} {_xy((b[0], middle))} {_xy(b)}"
        middle = (a[0] + b[0]) / 2
        return f" C{_xy((middle, a[1]))} {_xy((middle, b[1]))} {_xy(b)}"

    def _attach(self, route: list[Point], end: int, following: int, state: int) -> None:
        """End an edge at the circle of a state; a backward edge ends aside, as forward edges leave from the middle."""
        (x, y), (u, _) = self._turned(self.centres[state]), self._turned(route[end])
        aside, radius = 0.0, _DOT if self._is_dot(state) else RADIUS
        if end and u > x and radius > _ASIDE:
            aside = math.copysign(_ASIDE, self._turned(route[-3])[1] - y)
        out = math.copysign(math.sqrt(radius**2 - aside**2), u - x)
        route[end] = self._turned((x + out, y + aside))
        route[following] = self._turned((self._turned(route[following])[0], y + aside))

    def _arrow(self, tip: Point, centre: Point) -> str:
        x, y = tip
        if self.down:
            step = -7 if y < centre[1] else 7
            points = [tip, (x - 4, y + step), (x + 4, y + step)]
        else:
            step = -7 if x < centre[0] else 7
            points = [tip, (x + step, y - 4), (x + step, y + 4)]
        return f'<polygon points="{" ".join(map(_xy, points))}"/>'

    def _state_shapes(self, state: Mapping[str, Any]) -> Iterator[str]:
        x, y = self.centres[state["id"]]
        if self._is_dot(state["id"]):
            yield f'<g class="state {state["kind"]} dot" data-state="{state["id"]}">'
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_DOT:g}" style="fill:#334155"/></g>'
            return
        yield f'<g class="state {state["kind"]}" data-state="{state["id"]}">'
        for loop in self.loops.get(state["id"], ()):
            yield f'<g class="loop" data-transition="{loop["number"]}">'
            if len(_lines(loop["text"])) > 1:
                yield f"<title>{escape(printable(loop['text']))}</title>"
            yield from self._loop(x, y, _lines(loop["text"]))
            yield "</g>"
        yield f'<circle class="disc" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS:g}"/>'
        if state["kind"] == "final":
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS - 4:g}" style="fill:none"/>'
        name = str(state["id"])
        squeezed = f' textLength="{2 * RADIUS - 6:g}" lengthAdjust="spacingAndGlyphs"' if len(name) > 4 else ""
        yield f'<text x="{x:.1f}" y="{y + 4.5:.1f}"{squeezed}>{name}</text>'
        label = self._label(state["id"])
        if self.down:
            yield from _svg_text(label, x - RADIUS - 4, y - _LINE * len(label) / 2, "note before")
        else:
            yield from _svg_text(label, x, y + RADIUS, "note")
        yield "</g>"

    def _loop(self, x: float, y: float, lines: list[str]) -> Iterator[str]:
        """Draw a self-loop: above its state, or to the right in a picture from top to bottom."""

        def at(out: float, aside: float) -> str:
            return _xy((x + out, y + aside) if self.down else (x + aside, y - out))

        far = RADIUS + _LOOP
        yield f'<path d="M{at(12, -12)} C{at(far, -24)} {at(far, 24)} {at(12, 12)}"/>'
        yield f'<polygon points="{at(12, 12)} {at(20, 11)} {at(16, 18.5)}"/>'
        if self.down:
            yield from _svg_text(lines, x + far + 2, y - _LINE * len(lines) / 2, "note aside")
        else:
            yield from _svg_text(lines, x, y - far + 5 - _LINE * len(lines), "note")


def _title(automaton: Mapping[str, Any]) -> str:
    if automaton.get("model") == "PCEA":
        return "Parallelised complex event automaton"
    if automaton.get("model") == "atoms":
        return "Atom graph"
    if automaton.get("model") == "places":
        return "Places of a row pattern"
    return "Register match automaton" if "registers" in automaton else "Complex event automaton"


def _notes(automaton: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines below the picture, on events that are to be absent."""
    for absence in automaton.get("absences", ()):
        yield printable(
            f"{absence['name']}: no event in between is {' AND '.join([absence['text'], *absence['filters']])}"
        )
    if any(transition.get("takes_back") for transition in automaton["transitions"]):
        yield "✗ retracts the match that it follows"


class _Label:
    """Label of the edge between two states: one line or more for each transition, and the marks of all."""

    def __init__(self, ends: tuple[int, int], labels: list[str]) -> None:
        self.ends = ends
        self.marks = _lines("● " + ", ".join(labels)) if labels else []
        self.transitions: list[tuple[int, str, list[str]]] = []

    def add(self, number: int, text: str) -> None:
        text = printable(text)
        self.transitions.append((number, text, _lines(text)))

    @property
    def lines(self) -> list[str]:
        return [*(line for _, _, lines in self.transitions for line in lines), *self.marks]

    @property
    def size(self) -> Point:
        return max(map(_width, self.lines)) + 2 * _PADDING, _LINE * len(self.lines) + 2 * _PADDING - 4

    def drawn(self, centre: Point) -> Iterator[str]:
        width, height = self.size
        x, y = centre[0] - width / 2, centre[1] - height / 2
        yield f'<g class="label{" kept" if self.marks else ""}">'
        yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6"/>'
        y += _PADDING - 2
        for number, text, lines in self.transitions:
            yield f'<g class="transition" data-transition="{number}"><title>{escape(text)}</title>'
            yield from _svg_text(lines, centre[0], y)
            yield "</g>"
            y += _LINE * len(lines)
        yield from _svg_text(self.marks, centre[0], y, "marks")
        yield "</g>"


def _svg_text(lines: Iterable[str], x: float, y: float, kind: str = "") -> Iterator[str]:
    of_kind = f' class="{kind}"' if kind else ""
    for i, line in enumerate(lines):
        yield f'<text{of_kind} x="{x:.1f}" y="{y + _LINE * i + 13:.1f}">{escape(line)}</text>'


def _lines(text: str) -> list[str]:
    """Wrap a string into at most `_MAX_LINES` lines of `_LONGEST` characters; the rest becomes an ellipsis."""
    return textwrap.wrap(printable(text), _LONGEST, max_lines=_MAX_LINES, placeholder=" …", break_on_hyphens=False) or [
        ""
    ]


def _width(line: str) -> float:
    """Return the width of a line in pixels; wide (East Asian) characters count twice."""
    return _CHARACTER * sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def _xy(point: Point) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"
