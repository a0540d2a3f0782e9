"""The tables of a chain that is scanned (`cer_gpu.backend.joins.scanning`), and the way from scans to indexes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.arrays import Array
from cer_gpu.automaton.encoding import (
    AT_LEAST,
    AT_MOST,
    BARRING_ATOM,
    COMPARE,
    DIFFERENT,
    DISTANT_ATOMS,
    DISTANT_CONDITION,
    DISTANT_NEAREST,
    EQUAL,
    FINAL_ATOM,
    GREATER,
    INITIAL_ATOM,
    LESS,
)
from cer_gpu.backend.jit import kernel
from cer_gpu.backend.joins.filters import Filters
from cer_gpu.backend.joins.instances import Graph, Indexes, Instances
from cer_gpu.backend.joins.lanes import LANES
from cer_gpu.backend.joins.reading import TILE
from cer_gpu.backend.joins.search import look_up

MAX_SCANNED_STEPS = 8
"""Maximum number of steps of a chain that is scanned."""

# columns of `ScannedChain.lines`: the columns of the earlier event and of the later one, whose numbers are x and y;
# what both are exclusive-ored with; and 0 for x <= y, 1 for x < y, -1 for x <> y
EARLIER, LATER, SIGN, LESS_THAN, N_LINE = range(5)

_U = np.uint64


class ScannedChain(NamedTuple):
    """A chain of comparisons, by its steps.

    Attributes
    ----------
    atoms : int32, shape (scanned,)
        Atom of each step, in order.
    edges : int32, shape (scanned,)
        Edge into each; -1 for the first.
    first : int32, shape (scanned * scanned + 1,)
        First of `lines` for each later and earlier step: later * scanned + earlier.
    unequal : int32, shape (scanned * scanned,)
        First of those that ask for unequal numbers, which come last.
    lines : int64, shape (lines, 4)
        Columns EARLIER to LESS_THAN.
    sources : int32, shape (scanned, scanned)
        The steps before each one in the order in which they are tested: those that are compared with it come first.
    bits : int64, shape (scanned,)
        Bits of all columns that are read of the events of a step.
    limits : int64, shape (lines, TILE + 1), written
        Limits of the numbers that are tested with each event of a tile, and with an instance.
    masks : int64, shape (scanned, scanned, blocks), written
        Bits of the instances of each step that pass with the first events of the path; LANES for each block.
    supported : int64, shape (blocks,), written
        Scratch for one mask.
    steps_of : int64, shape (symbols,)
        A bit for each step that events of a symbol may be.
    kinds : int64, shape (TILE,), written
        These bits for the events of a tile.
    rows : int64, shape (TILE + 1,), written
        Events of a tile that may be the step under way, by their places in it; at last those that may end paths.
    before : int64, shape (scanned, TILE + 1), written
        Height of the stack of each step when each event of a tile came, and after the last.
    lows : int64, shape (scanned, TILE), written
        First instance of each step that each event of a tile can reach.
    reached : int64, shape (scanned, TILE, blocks), written
        Bits of the instances of each step, from there on, that pass with each event of a tile.
    """

    atoms: Any
    edges: Any
    first: Any
    unequal: Any
    lines: Any
    sources: Any
    bits: Any
    limits: Any
    masks: Any
    supported: Any
    steps_of: Any
    kinds: Any
    rows: Any
    before: Any
    lows: Any
    reached: Any


def scanned_chain(graph: dict[str, Any], conditions: Array, n_most: int, n_most_if_far: int) -> ScannedChain | None:
    """Return the steps of a graph that is a chain to be scanned, or None.

    It has three atoms or more, comparisons alone, and no index of equal values unless events that are not neighbours
    are compared, too: of two atoms an index finds what passes at once, as it does along equal values.

    Parameters
    ----------
    graph
        Fields of `Graph`.
    conditions : CONDITION, shape (conditions,)
    n_most
        Maximum number of instances of a step that are scanned; a multiple of LANES.
    n_most_if_far
        The same, where events that are not neighbours are compared.
    """
    flags, incoming = graph["flags"], graph["incoming"]
    n = len(flags)
    edges = graph["edges"][: incoming[n]]
    n_before = np.diff(incoming)
    initial = np.flatnonzero(flags & INITIAL_ATOM)
    plain = (edges["contiguous"] == 0) & (edges["loop"] < 0) & (edges["ended"] < 0)
    plain &= (edges["watched"] == edges["watched_end"]) & (edges["gaps"] == edges["gaps_end"])
    if (
        not 3 <= n <= MAX_SCANNED_STEPS
        or len(initial) != 1
        or np.count_nonzero(flags & FINAL_ATOM) != 1
        or (flags & BARRING_ATOM).any()
        or not plain.all()
        or len(graph["own_tests"])
        or len(graph["lookahead"])
        or (graph["distant"][:, DISTANT_NEAREST] == 1).any()
    ):
        return None
    atoms, into = [int(initial[0])], [-1]
    while len(atoms) < n:
        after = np.flatnonzero(edges["source"] == atoms[-1])
        if len(after) != 1 or n_before[edges["target"][after[0]]] != 1:
            return None
        into.append(int(after[0]))
        atoms.append(int(edges["target"][after[0]]))
    if len(set(atoms)) < n or not flags[atoms[-1]] & FINAL_ATOM:
        return None
    lists: list[list[int]] = [[] for _ in range(n * n)]
    for later in range(1, n):
        edge = edges[into[later]]
        # of the conditions that an index guarantees, the last are those of its cells, which are not of the query
        lists[later * n + later - 1] = [*range(edge["first"], edge["test"] - edge["shift"])]
        lists[later * n + later - 1] += range(edge["test"], edge["last"])
    for earlier, atom in enumerate(atoms):
        for row in graph["distant"][graph["distants"][atom] : graph["distants"][atom + 1]]:
            for later in range(earlier + 2, n):
                if graph["sets"][row[DISTANT_ATOMS], atoms[later]]:
                    lists[later * n + earlier].append(int(row[DISTANT_CONDITION]))
    is_far = any(lists[later * n + earlier] for later in range(n) for earlier in range(later - 1))
    keyed = (edges["test"] - edges["shift"] > edges["first"]).any()
    if not n_most or (keyed and not is_far):
        return None
    if any(conditions["kind"][each].tolist() != [COMPARE] * len(each) for each in lists):
        return None
    rows = [[row for line in each for row in _lines_of(conditions[line])] for each in lists]
    for each in rows:
        each.sort(key=lambda row: row[LESS_THAN] < 0)
    first = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    unequal = first[1:] - np.array([sum(row[LESS_THAN] < 0 for row in each) for each in rows], np.int32)
    lines = np.array([row for each in rows for row in each], np.int64).reshape(-1, N_LINE)

    n_blocks = ((n_most_if_far if is_far else n_most) + TILE) // LANES

    bits, sources = np.zeros(n, np.int64), np.zeros((n, n), np.int32)
    for later in range(1, n):
        compared = [earlier for earlier in range(later - 1, -1, -1) if lists[later * n + earlier]]
        others = [earlier for earlier in range(later - 1, -1, -1) if not lists[later * n + earlier]]
        sources[later, :later] = compared + others
        for earlier in compared:
            for line in conditions[lists[later * n + earlier]]:
                bits[earlier] |= 1 << int(line["column"] - 1)
                bits[later] |= 1 << int(line["other"] - 1)

    return ScannedChain(
        np.array(atoms, np.int32),
        np.array(into, np.int32),
        first,
        unequal,
        lines,
        sources,
        bits,
        np.zeros((len(lines), TILE + 1), np.int64),
        np.zeros((n, n, n_blocks), np.int64),
        np.zeros(n_blocks, np.int64),
        np.zeros(0, np.int64),
        np.zeros(TILE, np.int64),
        np.zeros(TILE + 1, np.int64),
        np.zeros((n, TILE + 1), np.int64),
        np.zeros((n, TILE), np.int64),
        np.zeros((n, TILE, n_blocks), np.int64),
    )


def _lines_of(condition: Any) -> list[list[int]]:
    """Return the lines of a condition."""
    op, columns = int(condition["op"]), [int(condition["column"]), int(condition["other"])]
    if op == DIFFERENT:
        return [[*columns, 0, -1]]
    at_most, at_least = [*columns, 0, int(op == LESS)], [*columns, -1, int(op == GREATER)]
    return ([at_most] if op in (LESS, AT_MOST, EQUAL) else []) + (
        [at_least] if op in (GREATER, AT_LEAST, EQUAL) else []
    )


def without_indexes(graph: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a graph whose stacks are searched without indexes and zone maps."""
    edges = graph["edges"].copy()
    edges["index"], edges["zoned"], edges["shift"] = -1, 0, 0
    names = ("index_atoms", "index_columns", "index_steps", "index_shifts", "index_bits")
    return {**graph, "edges": edges, "zones": graph["zones"][:, :0], **{name: graph[name][:0] for name in names}}


@kernel
def find_origins(graph, filters, instances, indexes, a, attributes):
    """Set where the search from each instance of an atom begins, by the indexes, in place of the height of a stack.

    Parameters
    ----------
    graph : Graph, read
    filters : Filters, read
    instances : Instances
    indexes : Indexes, read
    a : int
        The atom.
    attributes : int64, shape (height, columns)
        Columns of its instances.
    """
    graph, filters, instances, indexes = Graph(*graph), Filters(*filters), Instances(*instances), Indexes(*indexes)
    atom = _U(a)
    for edge in range(graph.incoming[atom], graph.incoming[atom + _U(1)]):
        e = _U(edge)
        if graph.edges[e].index < 0:
            continue
        index, shift, slot = _U(graph.edges[e].index), np.int64(graph.edges[e].shift), _U(edge - graph.incoming[atom])
        for k in range(attributes.shape[0]):
            i = _U(k)
            entry = look_up(graph, filters, instances, indexes, e, attributes, i, 0)
            while entry >= 0 and entry >> shift >= instances.origins[atom, slot, i]:
                entry = np.int64(indexes.links[index, _U(entry)])
            instances.origins[atom, slot, i] = entry
