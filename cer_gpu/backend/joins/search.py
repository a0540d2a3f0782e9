"""Search for the instances before one: by hash, by zone maps, or one by one (`cer_gpu.backend.joins.instances`)."""

from __future__ import annotations

import numpy as np

from cer_gpu.automaton.encoding import (
    AT_LEAST,
    AT_MOST,
    BARRING_ATOM,
    COMPARE,
    GREATER,
    INITIAL_ATOM,
    LESS,
    STACKED_ATOM,
    WATCHED_ALL,
    WATCHED_ENDED,
)
from cer_gpu.backend.jit import helper
from cer_gpu.backend.joins.filters import all_pass, passes
from cer_gpu.backend.joins.instances import ENTRY, SHIFT, TAG, is_valid, tag_of
from cer_gpu.backend.operations import compared

_FEW = 4
"""Candidates of an edge that are looked at before an event is read."""

_U = np.uint64


@helper
def look_up(graph, filters, instances, indexes, e, attributes, event, partition):
    """Return the newest entry that edge `e` finds by its index for an event, or -1."""
    edges, conditions, values, steps = graph.edges, filters.conditions, instances.values, graph.index_steps
    index, p = _U(edges[e].index), _U(edges[e].source)
    partitioned = instances.partitions.shape[1] > 0
    first, last, shift = edges[e].first, edges[e].test, np.int64(edges[e].shift)
    h = _U(0x9E3779B97F4A7C15)
    if partitioned:
        h ^= _U(partition)
        h *= _U(0xFF51AFD7ED558CCD)
    valid = attributes[event, 0]
    for c in range(first, last):
        column = _U(conditions[_U(c)].other)
        if (valid >> np.int64(column - _U(1))) & 1 == 0:
            return np.int64(-1)
        h ^= _U(attributes[event, column])
        h *= _U(0xFF51AFD7ED558CCD)
        h ^= h >> _U(32)
    mask = _U(indexes.heads.shape[1] - 1)
    slot, tag = (h ^ (h >> _U(29))) & mask, tag_of(h)
    while True:
        tagged = indexes.heads[index, slot]
        if tagged < 0:
            return np.int64(-1)
        if tagged & TAG != tag:
            slot = (slot + _U(1)) & mask
            continue
        i = tagged & ENTRY
        other, place = _U(i >> shift), _U(i & ((1 << shift) - 1))
        same = not partitioned or instances.partitions[p, other] == partition
        for c in range(first, last):
            a, b = _U(conditions[_U(c)].column), _U(conditions[_U(c)].other)
            mine = _U(attributes[event, b])
            same = same and _U(values[p, a, other]) + _U(steps[index, place, _U(c - first)]) == mine
        if same:
            return i
        slot = (slot + _U(1)) & mask


@helper
def _possible(op, low, high, y):
    """Return whether a value from `low` to `high` may be at the left of a comparison with `y`."""
    if op == LESS:
        return low < y
    if op == AT_MOST:
        return low <= y
    if op == GREATER:
        return high > y
    if op == AT_LEAST:
        return high >= y
    return low <= y and y <= high


@helper
def _may_pass(graph, filters, instances, indexes, e, p, q, k, block):
    """Return whether a block of the zone maps of atom `p` may hold an instance that passes edge `e`."""
    conditions = filters.conditions
    for c in range(graph.edges[e].test, graph.edges[e].last):
        condition = _U(c)
        if conditions[condition].zone < 0:
            continue
        zone = _U(conditions[condition].zone)
        other = _U(conditions[condition].other)
        if not is_valid(instances.values, q, k, other):
            return False
        y = instances.values[q, other, k]
        if not _possible(conditions[condition].op, indexes.least[p, zone, block], indexes.greatest[p, zone, block], y):
            return False
    return True


@helper
def _below_ruled_out(graph, filters, instances, indexes, e, p, q, k, i, fresh):
    """Return the instance below the largest block, of those that end with `i`, of which none passes an edge; else `i`.

    All blocks that hold `i` are looked at if `fresh`.
    """
    capacity, first = instances.positions.shape[1], np.int64(0)
    for level in range(1, 4):
        first += max(capacity >> SHIFT * level, 1)
    for back in range(3):
        shift = SHIFT * (3 - back)
        first -= max(capacity >> shift, 1)
        at_boundary = fresh or i & ((1 << shift) - 1) == (1 << shift) - 1
        if at_boundary and not _may_pass(graph, filters, instances, indexes, e, p, q, k, _U(first + (i >> shift))):
            return (i >> shift << shift) - 1
    return i


@helper
def newest(graph, filters, instances, indexes, e, attributes, event, partition):
    """Return the newest candidate of edge `e` into an event that is not stored yet, or -1."""
    if graph.edges[e].index >= 0:
        return look_up(graph, filters, instances, indexes, e, attributes, event, partition)
    return instances.heights[_U(graph.edges[e].source)] - 1


@helper
def begin_search(graph, instances, e, q, k):
    """Return the candidate at which the search along edge `e` into instance `k` of atom `q` begins, or -1."""
    origin = instances.origins[q, _U(np.int64(e) - graph.incoming[q]), k]
    return origin if graph.edges[e].index >= 0 else origin - 1


@helper
def find(graph, filters, instances, indexes, e, k, i, clock, length, ordinal, better_than, bounded):
    """Return the next candidate, from `i` on towards older ones, that passes edge `e` into instance `k`, or -1.

    A candidate is an entry of the edge's index, or an instance if it has none (`instance_of`).

    Parameters
    ----------
    e : uint64, row of `Graph.edges`
    k : uint64, instance of the edge's target
    i : int64, candidate to begin at, or -1
    clock, length : clock
        End of the window, and its length.
    ordinal : int64
        Number of instance `k` in its stream or partition, for contiguity.
    better_than : clock
        If `bounded`, only candidates that reach a start later than this are wanted.
    """
    edges = graph.edges
    p, q = _U(edges[e].source), _U(edges[e].target)
    first, last = edges[e].test, edges[e].last
    hashed = edges[e].index >= 0
    index = _U(edges[e].index if hashed else 0)
    shift = np.int64(edges[e].shift)
    contiguous = edges[e].contiguous == 1
    zoned = edges[e].zoned == 1
    bottom = instances.bottoms[p]
    forgets = indexes.forgotten.shape[0] > 0
    fresh = True
    while i >> shift >= bottom:
        at = _U(i >> shift)
        best = indexes.best[index, _U(i)] if hashed else instances.best[p, at]
        if clock - best > length or (bounded and best <= better_than):
            return np.int64(-1)
        if forgets and instances.positions[p, at] <= indexes.forgotten[_U(instances.partitions[p, at])]:
            return np.int64(-1)
        if contiguous:
            before = instances.ordinals[p, at] if instances.ordinals.shape[1] > 0 else instances.positions[p, at]
            if before != ordinal - 1:
                return np.int64(-1)
        elif zoned and (fresh or i & 31 == 31):
            below = _below_ruled_out(graph, filters, instances, indexes, e, p, q, k, i, fresh)
            fresh = False
            if below < i:
                i = below
                continue
        if not (clock - instances.latest[p, at] > length) and not (bounded and instances.latest[p, at] <= better_than):
            indexes.tested[e, 0] += 1
            good = True
            for w in range(edges[e].watched, edges[e].watched_end):
                if instances.ended[p, _U(graph.watched[_U(w), WATCHED_ENDED]), at] < instances.positions[q, k]:
                    if graph.watched[_U(w), WATCHED_ALL] == 1:
                        return np.int64(-1)
                    good = False
            if good and all_pass(filters, instances.values, first, last, p, at, q, k):
                indexes.tested[e, 1] += 1
                return i
        if contiguous:
            return np.int64(-1)
        i = np.int64(indexes.links[index, _U(i)]) if hashed else i - 1
    return np.int64(-1)


@helper
def instance_of(graph, e, candidate):
    """Return the instance of a candidate of edge `e`."""
    return _U(candidate >> np.int64(graph.edges[e].shift))


@helper
def after(graph, indexes, e, i):
    """Return the next older candidate after `i` on edge `e`, or -1."""
    if graph.edges[e].contiguous == 1:
        return np.int64(-1)
    if graph.edges[e].index >= 0:
        return np.int64(indexes.links[_U(graph.edges[e].index), _U(i)])
    return i - 1


@helper
def _keep_passing(filters, values, c, p, q, k, picked, n):
    """Keep those of `n` picked instances of atom `p` that pass a condition; return their number."""
    conditions = filters.conditions
    n_selected = 0
    if conditions[c].kind == COMPARE:
        a, b, op = _U(conditions[c].column), _U(conditions[c].other), conditions[c].op
        if not is_valid(values, q, k, b):
            return 0
        y = values[q, b, k]
        bit = np.int64(a) - 1
        for r in range(n):
            i = _U(picked[_U(r)])
            picked[_U(n_selected)] = i
            # without a branch, as which of them pass cannot be foreseen
            n_selected += compared(op, values[p, a, i], y) & ((values[p, 0, i] >> bit) & 1)
        return n_selected
    for r in range(n):
        i = picked[_U(r)]
        if passes(filters, values, c, p, _U(i), q, k):
            picked[_U(n_selected)] = i
            n_selected += 1
    return n_selected


@helper
def pick_leaves(graph, filters, instances, indexes, e, k, i, clock, length, picked, n_max):
    """Pick up to `n_max` candidates of a leaf atom, from `i` on to older ones, that pass edge `e` into instance `k`.

    Each instance of a leaf atom is a start, so that the first one before the window ends the search.

    Returns
    -------
    (int, int)
        The number picked, and the next candidate or -1.
    """
    edges = graph.edges
    p, q = _U(edges[e].source), _U(edges[e].target)
    hashed = edges[e].index >= 0
    zoned = edges[e].zoned == 1
    bottom = instances.bottoms[p]
    forgets = indexes.forgotten.shape[0] > 0
    n = 0
    if not hashed:
        while n == 0 and i >= bottom:
            if zoned:
                below = _below_ruled_out(graph, filters, instances, indexes, e, p, q, k, i, True)
                if below < i:
                    i = below
                    continue
            last = max(bottom, i - n_max + 1)
            if zoned:
                last = max(last, i >> SHIFT << SHIFT)
            while last <= i and clock - instances.latest[p, _U(last)] > length:
                last += 1
            ends = last > i or (last > bottom and clock - instances.latest[p, _U(last - 1)] > length)
            for at in range(i, last - 1, -1):
                picked[_U(n)] = at
                n += 1
            i = np.int64(-1) if ends else last - 1
            indexes.tested[e, 0] += n
            for c in range(edges[e].test, edges[e].last):
                n = _keep_passing(filters, instances.values, _U(c), p, q, k, picked, n)
            indexes.tested[e, 1] += n
        return n, (i if i >= bottom else np.int64(-1))
    index, shift = _U(edges[e].index), np.int64(edges[e].shift)
    while i >> shift >= bottom and n < n_max:
        j = _U(i >> shift)
        out = clock - instances.latest[p, j] > length
        if forgets:
            out = out or instances.positions[p, j] <= indexes.forgotten[_U(instances.partitions[p, j])]
        if out:
            i = np.int64(-1)
        else:
            picked[_U(n)] = np.int64(j)
            n += 1
            i = np.int64(indexes.links[index, _U(i)])
    indexes.tested[e, 0] += n
    for c in range(edges[e].test, edges[e].last):
        n = _keep_passing(filters, instances.values, _U(c), p, q, k, picked, n)
    indexes.tested[e, 1] += n
    return n, (i if i >> shift >= bottom else np.int64(-1))


@helper
def note_partners(filters, graph, instances, indexes, partners, attributes, event, q, k, clock, length):
    """Note the instances that pass with the end `k` of atom `q` on its first far edge, if a path leads through one."""
    partners[0] = -1
    wanted = False
    for edge in range(graph.incoming[q], graph.incoming[q + _U(1)]):
        wanted = wanted or graph.edges[_U(edge)].through >= 0
    if not wanted:
        return
    e, n = _U(graph.far[q]), 0
    partition = np.int64(instances.partitions[q, k] if instances.partitions.shape[1] > 0 else 0)
    candidate = newest(graph, filters, instances, indexes, e, attributes, event, partition)
    while candidate >= 0:
        partner = find(graph, filters, instances, indexes, e, k, candidate, clock, length, np.int64(0), clock, False)
        if partner < 0:
            break
        n += 1
        if n == partners.shape[0]:
            return
        partners[_U(n)] = np.int64(instance_of(graph, e, partner))
        candidate = after(graph, indexes, e, partner)
    partners[0] = n


@helper
def with_partner(filters, graph, instances, partners, e, k):
    """Return 1 if one of the noted partners passes edge `e` into instance `k`, 0 if none does, -1 if all are newer."""
    p, q = _U(graph.edges[e].source), _U(graph.edges[e].target)
    met = -1
    for n in range(partners[0], 0, -1):
        i = _U(partners[_U(n)])
        if instances.positions[p, i] >= instances.positions[q, k]:
            break
        met = 0
        if all_pass(filters, instances.values, graph.edges[e].test, graph.edges[e].last, p, i, q, k):
            return 1
    return met


@helper
def ends_in_vain(graph, filters, instances, indexes, attributes, event, symbol, partition, clock, length):
    """Return whether an event can only end matches, and no index has an event that it could follow in one."""
    a = np.int64(graph.atoms_of[symbol, _U(0)])
    if a < 0 or graph.atoms_of[symbol, _U(1)] >= 0:
        return False
    q = _U(a)
    if graph.flags[q] & (INITIAL_ATOM | STACKED_ATOM | BARRING_ATOM) != 0:
        return False
    follows = False
    for edge in range(graph.incoming[q], graph.incoming[q + _U(1)]):
        follows = follows or _may_find(graph, filters, instances, indexes, _U(edge), attributes, event, partition,
                                       clock, length)  # fmt: skip
    for edge in range(graph.far[q], graph.far[q + _U(1)]):
        follows = follows and _may_find(graph, filters, instances, indexes, _U(edge), attributes, event, partition,
                                        clock, length)  # fmt: skip
    return not follows


@helper
def _may_find(graph, filters, instances, indexes, e, attributes, event, partition, clock, length):
    """Return False if the index of edge `e` has no instance in the window that an event could follow."""
    if graph.edges[e].index < 0:
        zoned = graph.edges[e].zoned == 1
        return not zoned or _blocks_may_pass(graph, filters, instances, indexes, e, attributes, event, clock, length)
    index = _U(graph.edges[e].index)
    candidate = look_up(graph, filters, instances, indexes, e, attributes, event, partition)
    for _ in range(_FEW):
        if candidate < 0 or clock - indexes.best[index, _U(candidate)] > length:
            return False
        if _may_follow(graph, filters, instances, e, instance_of(graph, e, candidate), attributes, event):
            return True
        candidate = np.int64(indexes.links[index, _U(candidate)])
    return candidate >= 0


@helper
def _blocks_may_pass(graph, filters, instances, indexes, e, attributes, event, clock, length):
    """Return False if the zone maps of edge `e` rule out all instances in the window that an event could follow."""
    conditions, p = filters.conditions, _U(graph.edges[e].source)
    capacity = instances.positions.shape[1]
    i = instances.heights[p] - 1
    while i >= instances.bottoms[p] and not (clock - instances.best[p, _U(i)] > length):
        first = max(capacity >> SHIFT, 1) + max(capacity >> 2 * SHIFT, 1)
        below = i
        for back in range(3):
            shift = SHIFT * (3 - back)
            block = _U(first + (i >> shift))
            possible = True
            for c in range(graph.edges[e].test, graph.edges[e].last):
                zone, column = conditions[_U(c)].zone, np.int64(conditions[_U(c)].other)
                if zone >= 0 and possible:
                    low, high = indexes.least[p, _U(zone), block], indexes.greatest[p, _U(zone), block]
                    possible = (attributes[event, 0] >> (column - 1)) & 1 == 1 and _possible(
                        conditions[_U(c)].op, low, high, attributes[event, _U(column)]
                    )
            if not possible:
                below = (i >> shift << shift) - 1
                break
            if back < 2:
                first -= max(capacity >> SHIFT * (2 - back), 1)
        if below == i:
            return True
        i = below
    return False


@helper
def _may_follow(graph, filters, instances, e, i, attributes, event):
    """Return False if an event fails a comparison of edge `e` with instance `i`; programs are not tested."""
    conditions, p = filters.conditions, _U(graph.edges[e].source)
    for c in range(graph.edges[e].test, graph.edges[e].last):
        condition = _U(c)
        if conditions[condition].kind == COMPARE:
            a, b = _U(conditions[condition].column), _U(conditions[condition].other)
            both_valid = (instances.values[p, _U(0), i] >> np.int64(a - _U(1))) & (
                attributes[event, 0] >> np.int64(b - _U(1))
            )
            if both_valid & 1 == 0 or not compared(
                conditions[condition].op, instances.values[p, a, i], attributes[event, b]
            ):
                return False
    return True
