"""Layered layout of a directed graph: places for its nodes, and routes for its edges that meet no node.

The method is that of Sugiyama: reverse the edges that close cycles, assign each node to a layer, order the layers so
that few edges cross, and move nodes towards their neighbours.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

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
    # the two edges of a middle turn together, so that it keeps one edge in and one out
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
    """Return the layer of each node: the length of the longest path to it; `middles` lie half-way."""
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
    best, fewest = [list(row) for row in rows], _crossings(rows, after)
    for sweep in range(_SWEEPS if len(layer) <= _LARGE else 2):
        down = sweep % 2 == 0
        neighbours = before if down else after
        for row, fixed in zip(rows[1:], rows, strict=False) if down else zip(rows[-2::-1], rows[::-1], strict=False):
            place = {node: i for i, node in enumerate(fixed)}
            own = {node: i for i, node in enumerate(row)}
            row.sort(key=lambda i: _mean([place[j] for j in neighbours[i]], own[i]))
        n_crossings = _crossings(rows, after)
        if n_crossings < fewest:
            best, fewest = [list(row) for row in rows], n_crossings
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
    """Align each chain of nodes without branches on one line if there is room."""
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
    """Return the places nearest to those wanted (least squares) that stay `offsets` apart (isotonic regression)."""
    blocks: list[tuple[float, int]] = []  # groups of touching places: (mean less the offsets, number of places)
    for want, offset in zip(wanted, offsets, strict=True):
        mean, n = want - offset, 1
        while blocks and blocks[-1][0] >= mean:
            other, m = blocks.pop()
            mean, n = (mean * n + other * m) / (n + m), n + m
        blocks.append((mean, n))
    means = [mean for mean, n in blocks for _ in range(n)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]
