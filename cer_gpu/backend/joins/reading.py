"""Reading of an event: it is pushed to the atoms that it satisfies, if it reaches a start (`cer_gpu.backend.joins`)."""

from __future__ import annotations

import numpy as np

from cer_gpu.automaton.encoding import BARRING_ATOM, COUNT_WINDOW, FINAL_ATOM, INITIAL_ATOM, STACKED_ATOM
from cer_gpu.backend.jit import helper
from cer_gpu.backend.joins.filters import passes
from cer_gpu.backend.joins.instances import NEVER, insert_instance, raise_best, widen_zones
from cer_gpu.backend.joins.search import after, begin_search, find, instance_of, look_up, newest

TILE = 256
"""Events that are read together, where all that is done with one step is done for all of them."""

_U = np.uint64


@helper
def store_instance(events, instances, attributes, q, event):
    """Write an event to the place above the top of an atom's stack."""
    i = _U(instances.heights[q])
    instances.positions[q, i] = events.positions[event]
    if instances.places.shape[1] > 0:
        instances.places[q, i] = events.places[event]
    if instances.ordinals.shape[1] > 0:
        instances.ordinals[q, i] = events.ordinals[event]
    if instances.times.shape[1] > 0:
        instances.times[q, i] = events.times[event]
    if instances.partitions.shape[1] > 0:
        instances.partitions[q, i] = events.partitions[event]
    for c in range(instances.values.shape[1]):
        instances.values[q, _U(c), i] = attributes[event, _U(c)]
    for g in range(instances.ended.shape[1]):
        instances.ended[q, _U(g), i] = NEVER


@helper
def store_places(events, instances, q, begin, rows, n, height):
    """Write where and when `n` events are, the rows of them from `begin` on, above the top of an atom's stack.

    `height` is that of the stack.  One column after the other, as their numbers are neighbours in memory.
    """
    for r in range(n):
        instances.positions[q, _U(height + r)] = events.positions[_U(begin + rows[_U(r)])]
    if instances.places.shape[1] > 0:
        for r in range(n):
            instances.places[q, _U(height + r)] = events.places[_U(begin + rows[_U(r)])]
    if instances.times.shape[1] > 0:
        for r in range(n):
            instances.times[q, _U(height + r)] = events.times[_U(begin + rows[_U(r)])]
    if instances.partitions.shape[1] > 0:
        for r in range(n):
            instances.partitions[q, _U(height + r)] = events.partitions[_U(begin + rows[_U(r)])]


@helper
def partition_of(events, instances, event):
    """Return the number of the partition of an event; 0 without partitions."""
    return np.int64(events.partitions[event] if instances.partitions.shape[1] > 0 else 0)


@helper
def ordinal_of(instances, q, i):
    """Return the number of an instance in the stream or partition, as contiguity counts."""
    return instances.ordinals[q, i] if instances.ordinals.shape[1] > 0 else instances.positions[q, i]


@helper
def _end_gaps(filters, graph, instances, indexes, e, i, clock, length):
    """Note at the sources of edge `e`, to an atom that bars, that event `i` ends what they wait for."""
    a, p = _U(graph.edges[e].target), _U(graph.edges[e].source)
    column = graph.edges[e].ended
    if column < 0:
        return
    position = instances.positions[a, i]
    all_below = graph.edges[e].test == graph.edges[e].last
    candidate = begin_search(graph, instances, e, a, i)
    while candidate >= 0:
        partner = find(graph, filters, instances, indexes, e, i, candidate, clock, length, np.int64(0), clock, False)
        if partner < 0:
            break
        at = instance_of(graph, e, partner)
        if instances.ended[p, _U(column), at] == NEVER:
            instances.ended[p, _U(column), at] = position
        elif all_below:
            break  # those below had ended, too
        candidate = after(graph, indexes, e, partner)


@helper
def read_event(events, window, options, filters, graph, instances, indexes, attributes, fresh, event):
    """Push an event to the atoms that it satisfies and that reach a start; note them in `fresh`.

    Returns
    -------
    int
        Number of candidates tested.
    """
    n_tested = np.int64(0)
    clock, length = window.clocks[event], window.length
    symbol = _U(events.symbols[event])
    per_partition = options.window == COUNT_WINDOW
    partition = partition_of(events, instances, event)
    j = _U(0)
    q = np.int64(graph.atoms_of[symbol, j])
    # first all look at what was there before the event
    while q >= 0:
        a = _U(q)
        flags = graph.flags[a]
        store_instance(events, instances, attributes, a, event)
        i = _U(instances.heights[a])
        latest = clock
        barring = flags & BARRING_ATOM != 0
        reached = barring or flags & INITIAL_ATOM != 0
        for edge in range(graph.incoming[a], graph.incoming[a + _U(1)]):
            e = _U(edge)
            p, slot = _U(graph.edges[e].source), _U(edge - graph.incoming[a])
            if not per_partition:
                bottom, height = instances.bottoms[p], instances.heights[p]
                while bottom < height and clock - instances.latest[p, _U(bottom)] > length:
                    bottom += 1
                instances.bottoms[p] = bottom
            if graph.edges[e].index >= 0:
                instances.origins[a, slot, i] = look_up(
                    graph, filters, instances, indexes, e, attributes, event, partition
                )
            else:
                instances.origins[a, slot, i] = instances.heights[p]
            n_tested -= indexes.tested[e, 0]
            if barring:
                _end_gaps(filters, graph, instances, indexes, e, i, clock, length)
            elif flags & STACKED_ATOM != 0 and flags & INITIAL_ATOM == 0:
                candidate = begin_search(graph, instances, e, a, i)
                ordinal = ordinal_of(instances, a, i)
                while candidate >= 0:
                    partner = find(graph, filters, instances, indexes, e, i, candidate, clock, length, ordinal,
                                 latest, reached)  # fmt: skip
                    if partner < 0:
                        break
                    latest = instances.latest[p, instance_of(graph, e, partner)]
                    reached = True
                    candidate = after(graph, indexes, e, partner)
            elif flags & STACKED_ATOM == 0:
                reached = True  # the listing finds out
            n_tested += indexes.tested[e, 0]
        if not barring:
            for edge in range(graph.far[a], graph.far[a + _U(1)]):
                e = _U(edge)
                n_tested -= indexes.tested[e, 0]
                if reached:
                    candidate = newest(graph, filters, instances, indexes, e, attributes, event, partition)
                    reached = find(graph, filters, instances, indexes, e, i, candidate, clock, length, np.int64(0),
                                   clock, False) >= 0  # fmt: skip
                n_tested += indexes.tested[e, 0]
        for test in range(graph.tests[a], graph.tests[a + _U(1)]):
            reached = reached and passes(filters, instances.values, _U(graph.own_tests[_U(test)]), a, i, a, i)
        instances.latest[a, i] = latest
        fresh[a] = reached
        j += _U(1)
        q = np.int64(graph.atoms_of[symbol, j])
    return n_tested


@helper
def keep_event(events, graph, instances, indexes, fresh, event):
    """Keep the instances that `read_event` wrote, where others may follow them."""
    symbol = _U(events.symbols[event])
    j = _U(0)
    q = np.int64(graph.atoms_of[symbol, j])
    while q >= 0:
        a = _U(q)
        if fresh[a] == 1 and graph.flags[a] & STACKED_ATOM != 0:
            _index_top(graph, instances, indexes, a)
        j += _U(1)
        q = np.int64(graph.atoms_of[symbol, j])


@helper
def _index_top(graph, instances, indexes, a):
    """Keep the instance above the top of an atom's stack."""
    i = instances.heights[a]
    raise_best(instances, a, i)
    widen_zones(graph, instances, indexes, a, i)
    for index in range(graph.index_atoms.shape[0]):
        if graph.index_atoms[_U(index)] == np.int64(a):
            insert_instance(graph, instances, indexes, _U(index), i)
    instances.heights[a] = i + 1


@helper
def only_begins(graph, symbol):
    """Return the atom at which events of a symbol can only begin matches, without a test of their own; or -1."""
    a = np.int64(graph.atoms_of[symbol, _U(0)])
    if a < 0 or graph.atoms_of[symbol, _U(1)] >= 0:
        return np.int64(-1)
    q = _U(a)
    plain = graph.flags[q] & (INITIAL_ATOM | STACKED_ATOM | FINAL_ATOM | BARRING_ATOM) == INITIAL_ATOM | STACKED_ATOM
    tested = graph.tests[q] < graph.tests[q + _U(1)] or graph.incoming[q] < graph.incoming[q + _U(1)]
    return a if plain and not tested else np.int64(-1)


@helper
def keep_begin(events, window, graph, instances, indexes, attributes, a, event):
    """Keep an event that can only begin matches, at an atom (`only_begins`)."""
    store_instance(events, instances, attributes, a, event)
    instances.latest[a, _U(instances.heights[a])] = window.clocks[event]
    _index_top(graph, instances, indexes, a)
