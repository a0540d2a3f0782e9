"""Nodes with products, and heap-ordered unions of them.

papers: PCEA, section 5 (the data structure DS_w).  The paper's node is two things here: a *node* is an event and, for
each source of its transition, the union of the partial matches that it gathers (``L``, ``i`` and ``prod``); a *union*
is a node and two other unions (``uleft`` and ``uright``), neither of which has a later start (condition 5).  Nodes and
unions never change, so that what a node has gathered stays as it was: proposition 5.3 asks for persistence.

The unions of a list form a leftist heap (Crane, 1972), not the paper's tree with direction bits: a start that is the
latest becomes the root in constant time, where the paper's insertion goes down to a leaf, and the way down is no longer
than the binary logarithm of the number of unions.  (As it is written, the paper's tree grows by one level with each
start that is the latest, and is not balanced.)  Out of the window is what has left it with all below it; it is cut off
where an insertion meets it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import (
    FIRE_SOURCE,
    FIRE_SOURCES_END,
    NODE_POSITION,
    NODE_TRANSITION,
    RANK_BITS,
    UNION_LEFT,
    UNION_NODE,
    UNION_NUMBER,
    UNION_RANK,
    UNION_RIGHT,
    UNION_START,
)
from cer_gpu.backend.jit import helper

_U = np.uint64

N_NODES, N_UNIONS, N_TOPS = range(3)
"""Entries of `Nodes.tops`: nodes and unions in use."""

DEEPEST = 64
"""Longest way down a heap: more than the binary logarithm of the number of unions."""

_RANK = np.int32((1 << RANK_BITS) - 1)
"""The bits of the rank in UNION_RANK."""


class Nodes(NamedTuple):
    """Nodes, oldest first, each in a row: what a listing reads of one lies together.

    Attributes
    ----------
    tops : int64, shape (tops,), written
        Number of nodes, and of unions.
    records : int64, shape (nodes, fields), written
        Columns NODE_POSITION and NODE_TRANSITION, those below, and the union gathered for each source.
    place : int
        Column of the position that is reported; -1 if it is NODE_POSITION.
    ordinal : int
        Column of the number in the partition, where contiguity asks for it; else -1.
    time : int
        Column of the time, where the output has it; else -1.
    partition : int
        Column of the partition, where each has a window of its own; else -1.
    first_factor : int
        Column of the first union that was gathered.
    """

    tops: Any
    records: Any
    place: Any
    ordinal: Any
    time: Any
    partition: Any
    first_factor: Any


class Unions(NamedTuple):
    """Unions, oldest first; those below one are older.

    A union has all that a listing reads of a node without sources, so that it need not wait for the node.

    Attributes
    ----------
    links : int32, shape (unions, 8), written
        Columns UNION_NODE to UNION_RANK (-1: no union).
    starts : clock, shape (unions, 4), written
        The same memory; column UNION_START has the clock of the latest start among the products of the node
        (``max-start``).
    numbers : int64, shape (unions, 4), written
        The same memory; column UNION_NUMBER has the position of the event of a node without sources; of another node,
        the number of its products if all have its start, else 0.
    descent : int32, shape (DEEPEST,), written
        Scratch: the way down a heap.
    """

    links: Any
    starts: Any
    numbers: Any
    descent: Any


@helper
def is_live(unions, u, clock, length):
    """Return whether a union (or -1) reaches a start in the window that ends at a clock."""
    return u >= 0 and not (clock - unions.starts[_U(u), UNION_START] > length)


@helper
def add_product(nodes, events, event, transition):
    """Add the node of an event, whose factors are there, and return its number; there is space."""
    node = nodes.tops[N_NODES]
    n = _U(node)
    nodes.tops[N_NODES] = node + 1
    nodes.records[n, NODE_POSITION] = events.positions[event]
    nodes.records[n, NODE_TRANSITION] = transition
    if nodes.place >= 0:
        nodes.records[n, _U(nodes.place)] = events.places[event]
    if nodes.ordinal >= 0:
        nodes.records[n, _U(nodes.ordinal)] = events.ordinals[event]
    if nodes.time >= 0:
        nodes.records[n, _U(nodes.time)] = events.times[event]
    if nodes.partition >= 0:
        nodes.records[n, _U(nodes.partition)] = events.partitions[event]
    return node


@helper
def n_sources_of(automaton, nodes, node):
    """Return the number of sources of a node."""
    transition = _U(nodes.records[_U(node), NODE_TRANSITION])
    first, last = automaton.transitions[transition, FIRE_SOURCE], automaton.transitions[transition, FIRE_SOURCES_END]
    return np.int64(last - first)


@helper
def place_of(nodes, node, position):
    """Return the position of a node that is reported, given that of its event."""
    return nodes.records[_U(node), _U(nodes.place)] if nodes.place >= 0 else position


@helper
def leaf_of(unions, u):
    """Return the transition and 1 of a union's node if that has no sources, else 0."""
    return np.int64(unions.links[u, UNION_RANK] >> RANK_BITS)


@helper
def leaf_bits(transition):
    """Return the bits of UNION_RANK that tell the transition of a node without sources."""
    return np.int32((transition + 1) << RANK_BITS)


@helper
def products_alike(unions, u):
    """Return the number of products of a union's node if all have its start, else 0."""
    return np.int64(1) if leaf_of(unions, u) > 0 else unions.numbers[u, UNION_NUMBER]


@helper
def alike_in(unions, root, clock, length):
    """Return the number of products of a heap if all have the start of its top, and fit 15 bits; else 0."""
    u = _U(root)
    for side in (UNION_LEFT, UNION_RIGHT):
        if is_live(unions, np.int64(unions.links[u, _U(side)]), clock, length):
            return np.int64(0)
    alike = products_alike(unions, u)
    return alike if alike < 1 << 15 else np.int64(0)


@helper
def _add_union(nodes, unions, node, leaf, number, start, left, right):
    """Add a union with the higher rank at its left, and return its number."""
    rank_right = np.int32(0)
    if right >= 0:
        rank_left = unions.links[_U(left), UNION_RANK] & _RANK if left >= 0 else np.int32(0)
        rank_right = unions.links[_U(right), UNION_RANK] & _RANK
        if rank_left < rank_right:
            left, right, rank_right = right, left, rank_left
    union = nodes.tops[N_UNIONS]
    u = _U(union)
    nodes.tops[N_UNIONS] = union + 1
    unions.links[u, UNION_NODE] = node
    unions.links[u, UNION_LEFT] = left
    unions.links[u, UNION_RIGHT] = right
    unions.links[u, UNION_RANK] = (rank_right + 1) | leaf
    unions.starts[u, UNION_START] = start
    unions.numbers[u, UNION_NUMBER] = number
    return union


@helper
def united(nodes, unions, root, latest, node, leaf, number, start, clock, length):
    """Return the union of a heap and a node; there is space for DEEPEST unions.

    The heap stays as it is: the unions on the way down are copied.  `root` is -1 for an empty heap, `latest` the start
    of its root.  `leaf` is what `leaf_bits` says of a node without sources, else 0; `number` is that of UNION_NUMBER.
    """
    if root >= 0 and clock - latest > length:
        root = np.int64(-1)
    if root < 0 or latest <= start:
        return _add_union(nodes, unions, node, leaf, number, start, np.int64(root), np.int64(-1))
    n = 0
    at = np.int64(root)
    while is_live(unions, at, clock, length) and unions.starts[_U(at), UNION_START] > start:
        unions.descent[_U(n)] = at
        n += 1
        at = np.int64(unions.links[_U(at), UNION_RIGHT])
    below = at if is_live(unions, at, clock, length) else np.int64(-1)
    union = _add_union(nodes, unions, node, leaf, number, start, below, np.int64(-1))
    while n > 0:
        n -= 1
        u = _U(unions.descent[_U(n)])
        left = np.int64(unions.links[u, UNION_LEFT])
        if not is_live(unions, left, clock, length):
            left = np.int64(-1)
        node, leaf, number = (
            unions.links[u, UNION_NODE],
            unions.links[u, UNION_RANK] & ~_RANK,
            unions.numbers[u, UNION_NUMBER],
        )
        union = _add_union(nodes, unions, node, leaf, number, unions.starts[u, UNION_START], left, union)
    return union
