"""Events that no later event of a block can follow in a path are not stored: a semi-join of each step with the next.

papers: Yannakakis (VLDB 1981), the half of a full reducer that looks ahead.  One pass from the end of a block has, for
each hash of a key, the next event that asks an index for it.  An event whose own key none asks for, while its window
ends within the block, is in no match.  Keys of equal hashes count as one, so that some events stay in vain.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.automaton.encoding import QUIET
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.joins.instances import Graph

_U = np.uint64


@helper
def _slot(attributes, conditions, graph, partition, e, event, of_source, place, mask):
    """Return the slot of the key of an event at the source or the target of an edge; -1: it has none.

    Neighbouring cells of the last band are neighbours in the table, so that one line of the processor's cache has both;
    `place` tells those of the others.
    """
    edges = graph.edges
    h = (_U(partition) * _U(0x9E3779B97F4A7C15)) ^ e
    cell = _U(0)
    valid, first = attributes[event, 0], edges[e].first
    for c in range(first, edges[e].test):
        column = np.int64(conditions[_U(c)].column if of_source else conditions[_U(c)].other)
        if (valid >> (column - 1)) & 1 == 0:
            return np.int64(-1)
        value = attributes[event, _U(column)]
        if c == edges[e].test - 1 and edges[e].shift > 0:
            cell = _U(value >> np.int64(graph.index_bits[_U(edges[e].index)]))
        else:
            if of_source:
                value = np.int64(_U(value) + _U(graph.index_steps[_U(edges[e].index), place, _U(c - first)]))
            h = (h ^ _U(value)) * _U(0xFF51AFD7ED558CCD)
            h ^= h >> _U(32)
    return np.int64(((h ^ (h >> _U(29))) + cell) & mask)


@kernel
def drop_without_successors(symbols, clocks, length, partitions, attributes, conditions, graph, table):
    """Set the symbols of events that nothing can follow to one that stands for no atom.

    Parameters
    ----------
    symbols : int32, shape (n,), written
        Those of dropped events become QUIET.
    clocks : clock, shape (n,)
        They do not decrease.
    length : clock
    partitions : int32, shape (n,), or (0,)
    attributes : int64, shape (n, columns)
    conditions : CONDITION, shape (conditions,)
    graph : Graph
    table : int32, shape (slots,), written
        A power of two of them.
    """
    graph = Graph(*graph)
    n, mask = symbols.shape[0], _U(table.shape[0] - 1)
    table[:] = 0
    last = clocks[_U(n - 1)]
    for back in range(n):
        event = _U(n - 1 - back)
        symbol = _U(symbols[event])
        partition = np.int64(partitions[event] if partitions.shape[0] > 0 else 0)
        a = np.int64(graph.atoms_of[symbol, _U(0)])
        if a >= 0 and graph.atoms_of[symbol, _U(1)] < 0:
            q = _U(a)
            followed = graph.onward[q] == graph.onward[q + _U(1)] or not (last - clocks[event] > length)
            for line in range(graph.onward[q], graph.onward[q + _U(1)]):
                e = _U(graph.onward_edges[_U(line)])
                shift = np.int64(graph.edges[e].shift)
                cells = np.int64(shift > 0)
                place, places = 0, 1 << (shift - cells)
                while place < places and not followed:
                    slot = _slot(attributes, conditions, graph, partition, e, event, True, _U(place), mask)
                    for cell in range(1 + cells):
                        following = np.int64(table[_U(slot + cell) & mask]) - 1 if slot >= 0 else np.int64(-1)
                        if following >= 0 and not (clocks[_U(following)] - clocks[event] > length):
                            followed = True
                    place += 1
            if not followed:
                symbols[event] = QUIET
                continue
        j = _U(0)
        while graph.atoms_of[symbol, j] >= 0:
            target = _U(graph.atoms_of[symbol, j])
            for edge in range(graph.incoming[target], graph.incoming[target + _U(1)]):
                if graph.edges[_U(edge)].index >= 0:
                    slot = _slot(attributes, conditions, graph, partition, _U(edge), event, False, _U(0), mask)
                    if slot >= 0:
                        table[_U(slot)] = np.int64(event) + 1
            j += _U(1)
