"""Instances: the events stored for each atom of an atom graph, with indexes that find those that pass a filter.

papers: RMA, definition 4.3 (what a run keeps in registers); SASE's instance stacks.  Row q of each array belongs to
atom q, oldest first.  An instance is stored only if it reaches a start in the window through filters between
neighbouring atoms (`latest`); it stands for all paths that end in it.

Three ways lead from an instance to those before it, by the edge:

* *all*: the stack of the atom before, up to the height that it had (`origins`);
* *zone maps*: the same, but blocks of 32, 1,024 and 32,768 instances whose least and greatest values rule out all of
  them are skipped;
* *hash*: a list of the instances with equal columns (and partition), newest first; `origins` has its head;
* *grid*: the same, of cells for bands (`cer_gpu.expressions.bands`): an instance is in the list of its cell and in
  that of the next one, in two dimensions in four, each time as an entry of its own.

An entry of an index is an instance times 2**shift, and which of its places it is; without a grid the shift is 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel

NEVER = np.iinfo(np.int64).max
"""Position of an event that has not come."""

SHIFT = 5
"""Binary logarithm of the instances of a block of the finest zone map, and of the blocks in one of the next."""

ENTRY = (1 << 32) - 1
"""Bits of `Indexes.heads` for the entry."""
TAG = (1 << 63) - (1 << 32)
"""Bits of `Indexes.heads` for the hash: a search continues without a look at the entry's values where they differ."""

_U = np.uint64


class Graph(NamedTuple):
    """An atom graph, as loops read it.

    Attributes
    ----------
    atoms_of : int32, shape (symbols, atoms + 1)
    flags : int32, shape (atoms,)
        INITIAL_ATOM to BARRING_ATOM (`cer_gpu.automaton.encoding`).
    marks : int32, shape (atoms,)
    incoming : int32, shape (atoms + 1,)
        First edge into each atom; edges are ordered by their targets.
    edges : EDGE, shape (all edges,)
        Records of `cer_gpu.automaton.encoding`.
    far : int32, shape (atoms + 1,)
        First far edge into each atom: an event of its source must have come, though not just before, that passes with
        the target's.  They follow the edges of paths, ordered by their targets.
    watched : int32, shape (watched, 2)
        Columns WATCHED_ENDED and WATCHED_ALL: absences that are decided where an edge begins.
    tests : int32, shape (atoms + 1,)
        First of `own_tests` of each atom.
    own_tests : int32, shape (tests,)
        Conditions that an event alone must pass, as it is in two variables.
    distants : int32, shape (atoms + 1,)
        First of `distant` of each atom.
    distant : int32, shape (distant conditions, 3)
        Columns DISTANT_CONDITION to DISTANT_NEAREST: conditions between an event of the atom and later ones.
    aheads : int32, shape (atoms + 1,)
        First of `lookahead` of each atom; those of one atom are ordered by AHEAD_ATOM.
    lookahead : int32, shape (lookaheads, 3)
        Columns AHEAD_ATOM to AHEAD_ATOMS: conditions that a later event must pass, tested before a `+`.
    sets : bool, shape (sets, atoms)
        Sets of atoms that `distant` and `lookahead` name.
    levels : int32, shape (relations, atoms)
        Iterations around both the relation and the atom.
    loop_levels : int32, shape (relations, loops + 1)
        Index of each iteration among those around the relation; the last is for no iteration.
    zones : int32, shape (atoms, zones)
        Columns that each atom has zone maps for, or -1.
    index_atoms : int32, shape (indexes,)
    index_columns : int32, shape (indexes, keys)
        Columns of each index, then -1.
    index_steps : int64, shape (indexes, places, keys)
        Added to the columns for each of the places of an instance: 0 but in a grid.
    index_shifts : int32, shape (indexes,)
        Binary logarithm of the places of an instance.
    index_bits : int32, shape (indexes,)
        Binary logarithm of the step of the last band of a grid.
    onward : int32, shape (atoms + 1,)
        First of `onward_edges` of each atom.
    onward_edges : int32, shape (onward edges,)
        The edges from an atom, if some event must follow its own, and an index finds it along each of them.
    """

    atoms_of: Any
    flags: Any
    marks: Any
    incoming: Any
    edges: Any
    far: Any
    watched: Any
    tests: Any
    own_tests: Any
    distants: Any
    distant: Any
    aheads: Any
    lookahead: Any
    sets: Any
    levels: Any
    loop_levels: Any
    zones: Any
    index_atoms: Any
    index_columns: Any
    index_steps: Any
    index_shifts: Any
    index_bits: Any
    onward: Any
    onward_edges: Any


class Instances(NamedTuple):
    """The instances of all atoms; there is space for one more in each row before an event is read.

    Attributes
    ----------
    heights : int64, shape (atoms,), written
    bottoms : int64, shape (atoms,), written
        Instances of each atom that are out of reach: the lowest.
    positions : int64, shape (atoms, capacity), written
    places : int64, shape (atoms, capacity), or (atoms, 0), written
        The positions that are reported; empty if they are `positions`.
    ordinals : int64, shape (atoms, capacity), or (atoms, 0), written
        Numbers in the partition, where contiguity asks for them.
    times : int64, shape (atoms, capacity), or (atoms, 0), written
    partitions : int32, shape (atoms, capacity), or (atoms, 0), written
    values : int64, shape (atoms, columns, at least capacity), written
        Columns that filters read, after the bits of the valid ones.
    latest : clock, shape (atoms, at least capacity), written
        Clock of the latest start that an instance reaches through filters of neighbours.
    best : clock, shape (atoms, capacity), written
        Greatest `latest` of the instance and those below it.
    origins : int64, shape (atoms, max edges, at least capacity), written
        For each edge into the atom, where to look: a height, or the entry at the head of a list.
    ended : int64, shape (atoms, max gaps, capacity), written
        Position of the first event after the instance that some gap after it must not hold; `NEVER` if none has come.
    """

    heights: Any
    bottoms: Any
    positions: Any
    places: Any
    ordinals: Any
    times: Any
    partitions: Any
    values: Any
    latest: Any
    best: Any
    origins: Any
    ended: Any


class Indexes(NamedTuple):
    """Hash indexes and zone maps of the instances.

    Attributes
    ----------
    heads : int64, shape (indexes, 4 * entries), written
        Hash table: the newest entry of each key, and above it 31 bits of the key's hash; or -1.
    links : int32, shape (indexes, entries), written
        The entry before with the same key, or -1.
    best : clock, shape (indexes, entries), written
        Greatest `latest` of an entry and those before it with the same key.
    least : int64, shape (atoms, zones, blocks), written
        Least value of each block: those of 32 instances, then those of 1,024, then those of 32,768.
    greatest : int64, shape (atoms, zones, blocks), written
    forgotten : int64, shape (partitions,), or (0,), written
        Position up to which CONSUME BY PARTITION has forgotten each partition.
    tested : int64, shape (all edges, 2), written
        Candidates tested on each edge, and those that passed.
    """

    heads: Any
    links: Any
    best: Any
    least: Any
    greatest: Any
    forgotten: Any
    tested: Any


@helper
def is_valid(values, atom, i, column):
    """Return whether a column (from 1) of an instance is valid."""
    return (values[atom, 0, i] >> (np.int64(column) - 1)) & 1 == 1


@helper
def tag_of(h):
    """Return the bits of a key's hash that are stored with the entry at the head of its list."""
    return np.int64(h >> _U(1)) & TAG


@helper
def insert_instance(graph, instances, indexes, index, i):
    """Put instance `i` at the head of its lists in an index; one without a key is in no list."""
    values = instances.values
    p = _U(graph.index_atoms[index])
    columns, steps = graph.index_columns, graph.index_steps
    partitioned = instances.partitions.shape[1] > 0
    instance = _U(i)
    shift = np.int64(graph.index_shifts[index])
    places = (1 << shift) - 1
    for place in range(places + 1):
        indexes.links[index, _U(i << shift | place)] = -1
        indexes.best[index, _U(i << shift | place)] = instances.latest[p, instance]
    n = 0
    while n < columns.shape[1] and columns[index, _U(n)] >= 0:
        if not is_valid(values, p, instance, _U(columns[index, _U(n)])):
            return
        n += 1
    mask = _U(indexes.heads.shape[1] - 1)
    for place in range(places + 1):
        entry = i << shift | place
        h = _U(0x9E3779B97F4A7C15)
        if partitioned:
            h ^= _U(instances.partitions[p, instance])
            h *= _U(0xFF51AFD7ED558CCD)
        for c in range(n):
            h ^= _U(values[p, _U(columns[index, _U(c)]), instance]) + _U(steps[index, _U(place), _U(c)])
            h *= _U(0xFF51AFD7ED558CCD)
            h ^= h >> _U(32)
        slot, tag = (h ^ (h >> _U(29))) & mask, tag_of(h)
        while True:
            tagged = indexes.heads[index, slot]
            if tagged < 0:
                indexes.heads[index, slot] = tag | entry
                break
            if tagged & TAG != tag:
                slot = (slot + _U(1)) & mask
                continue
            head = tagged & ENTRY
            other, its_place = _U(head >> shift), _U(head & places)
            same = not partitioned or instances.partitions[p, other] == instances.partitions[p, instance]
            for c in range(n):
                column = _U(columns[index, _U(c)])
                mine = _U(values[p, column, instance]) + _U(steps[index, _U(place), _U(c)])
                same = same and _U(values[p, column, other]) + _U(steps[index, its_place, _U(c)]) == mine
            if same:
                indexes.heads[index, slot] = tag | entry
                indexes.links[index, _U(entry)] = head
                best = max(indexes.best[index, _U(entry)], indexes.best[index, _U(head)])
                indexes.best[index, _U(entry)] = best
                break
            slot = (slot + _U(1)) & mask


@helper
def widen_zones(graph, instances, indexes, q, i):
    """Take instance `i` of atom `q` into the zone maps."""
    capacity = instances.positions.shape[1]
    least, greatest = indexes.least, indexes.greatest
    for z in range(graph.zones.shape[1]):
        zone = _U(z)
        if graph.zones[q, zone] < 0:
            break
        column = _U(graph.zones[q, zone])
        first = np.int64(0)
        for level in range(1, 4):
            shift = SHIFT * level
            block = _U(first + (i >> shift))
            if i & ((1 << shift) - 1) == 0:
                least[q, zone, block] = np.iinfo(np.int64).max
                greatest[q, zone, block] = np.iinfo(np.int64).min
            if is_valid(instances.values, q, _U(i), column):
                x = instances.values[q, column, _U(i)]
                least[q, zone, block] = min(least[q, zone, block], x)
                greatest[q, zone, block] = max(greatest[q, zone, block], x)
            first += max(capacity >> shift, 1)


@helper
def raise_best(instances, q, i):
    """Set `best` of the topmost instance of an atom from its `latest` and what is below."""
    best = instances.latest[q, _U(i)]
    if i > instances.bottoms[q]:
        best = max(best, instances.best[q, _U(i - 1)])
    instances.best[q, _U(i)] = best


@helper
def _rebuild(graph, instances, indexes):
    """Build indexes and zone maps anew from the instances."""
    indexes.least[:] = np.iinfo(np.int64).max
    indexes.greatest[:] = np.iinfo(np.int64).min
    for q in range(instances.positions.shape[0]):
        for i in range(instances.bottoms[q], instances.heights[q]):
            raise_best(instances, _U(q), i)
            widen_zones(graph, instances, indexes, _U(q), i)
    for j in range(graph.index_atoms.shape[0]):
        for slot in range(indexes.heads.shape[1]):
            indexes.heads[_U(j), _U(slot)] = -1
        p = _U(graph.index_atoms[_U(j)])
        for i in range(instances.bottoms[p], instances.heights[p]):
            insert_instance(graph, instances, indexes, _U(j), i)


@kernel
def rebuild(graph, instances, indexes, clocks, length, moved):
    """Drop the instances that are out of reach, if any are to be dropped; build indexes and zone maps anew.

    Parameters
    ----------
    graph : Graph, read
    instances : Instances
    indexes : Indexes
    clocks : clock, shape (clocks,)
        Last clock of each partition; one for all if windows end for all at once.
    length : clock
        Length of the window.
    moved : int64, shape (atoms, capacity + 1), or (0, 0), written
        New place of each instance, the number of live ones below it; empty if all are live.
    """
    graph, instances, indexes = Graph(*graph), Instances(*instances), Indexes(*indexes)
    if moved.shape[0] > 0:
        _drop_instances(graph, instances, indexes, clocks, length, moved)
    _rebuild(graph, instances, indexes)


@helper
def _drop_instances(graph, instances, indexes, clocks, length, moved):
    """Drop the instances that are out of reach."""
    n_atoms = instances.positions.shape[0]
    forgets = indexes.forgotten.shape[0] > 0
    for q in range(n_atoms):
        a, n_live = _U(q), np.int64(0)
        for j in range(instances.heights[a]):
            i = _U(j)
            moved[a, i] = n_live
            mine = _U(instances.partitions[a, i] if clocks.shape[0] > 1 else 0)
            alive = j >= instances.bottoms[a] and not (clocks[mine] - instances.latest[a, i] > length)
            if alive and forgets:
                alive = instances.positions[a, i] > indexes.forgotten[_U(instances.partitions[a, i])]
            n_live += alive
        moved[a, _U(instances.heights[a])] = n_live
    # lists lead from dead instances to the next live one
    for j in range(graph.index_atoms.shape[0]):
        index, p = _U(j), _U(graph.index_atoms[_U(j)])
        shift = np.int64(graph.index_shifts[index])
        for at in range(instances.heights[p] << shift):
            link = np.int64(indexes.links[index, _U(at)])
            if link >= 0 and moved[p, _U((link >> shift) + 1)] == moved[p, _U(link >> shift)]:
                indexes.links[index, _U(at)] = indexes.links[index, _U(link)]
    for q in range(n_atoms):
        a = _U(q)
        for j in range(instances.heights[a]):
            i = _U(j)
            if moved[a, i + _U(1)] > moved[a, i]:
                for edge in range(graph.incoming[a], graph.incoming[a + _U(1)]):
                    e = _U(edge)
                    p, slot = _U(graph.edges[e].source), _U(edge - graph.incoming[a])
                    origin = instances.origins[a, slot, i]
                    if graph.edges[e].index >= 0:
                        shift = np.int64(graph.edges[e].shift)
                        if origin >= 0 and moved[p, _U((origin >> shift) + 1)] == moved[p, _U(origin >> shift)]:
                            origin = np.int64(indexes.links[_U(graph.edges[e].index), _U(origin)])
                        if origin >= 0:
                            origin = moved[p, _U(origin >> shift)] << shift | (origin & ((1 << shift) - 1))
                        instances.origins[a, slot, i] = origin
                    else:
                        instances.origins[a, slot, i] = moved[p, _U(origin)]
    for q in range(n_atoms):
        _move(instances, _U(q), moved)


@helper
def _move(instances, a, moved):
    """Move the live instances of an atom to their new places."""
    for j in range(instances.heights[a]):
        i, to = _U(j), _U(moved[a, _U(j)])
        if moved[a, i + _U(1)] == moved[a, i]:
            continue
        instances.positions[a, to] = instances.positions[a, i]
        instances.latest[a, to] = instances.latest[a, i]
        if instances.places.shape[1] > 0:
            instances.places[a, to] = instances.places[a, i]
        if instances.ordinals.shape[1] > 0:
            instances.ordinals[a, to] = instances.ordinals[a, i]
        if instances.times.shape[1] > 0:
            instances.times[a, to] = instances.times[a, i]
        if instances.partitions.shape[1] > 0:
            instances.partitions[a, to] = instances.partitions[a, i]
        for c in range(instances.values.shape[1]):
            instances.values[a, _U(c), to] = instances.values[a, _U(c), i]
        for f in range(instances.origins.shape[1]):
            instances.origins[a, _U(f), to] = instances.origins[a, _U(f), i]
        for g in range(instances.ended.shape[1]):
            instances.ended[a, _U(g), to] = instances.ended[a, _U(g), i]
    instances.heights[a] = moved[a, _U(instances.heights[a])]
    instances.bottoms[a] = 0
