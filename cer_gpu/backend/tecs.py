"""tECS, the compact structure of all partial matches: nodes and union lists (`cer_gpu.backend.listing` lists them).

papers: CORE, sections 5.1 and 5.2.  Differences: an output node and the union node above it are one node; merges are
cached until their list changes; the insertion order of states is lost (a list with a larger maximum is put in front
instead).

Nodes are rows of an int32 array, ``(position, next, sibling, max)``, at ``id & mask`` for a growing id:

* ``next >= 0``: an output node (marks `position`, continues at node `next`); ``position == -1``: a plain union whose
  left child is `next`;
* ``next == BOTTOM`` or ``BOTTOM_MARKED``: the start of a match at `position`, without or with its mark;
* ``sibling``: the other child of the union fused with the node, no child when it is below `floor`, the first id that
  is alive; its maximum is never greater (time-ordered);
* ``max``: the latest start that the node reaches, in the numbers that the window is measured with.

A row of `extras` (int64) has what only some queries need of a node, in columns that `layout` names (-1: absent): the
time of the event, its position where 32 bits do not hold it, and its mark (which variables hold it).

A union list is a row of `slots` (int32): a header, then pairs (node, max), the maxima decreasing from the second pair
on; the node of the first has no live sibling unless it is alone.  The lists of one partition are linked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import CONSUME_ANY, CONSUME_NONE
from cer_gpu.backend.jit import helper, kernel

BOTTOM, BOTTOM_MARKED = -1, -2

# header of a slot, and where its pairs begin
LENGTH, MERGED, STATE, NEXT_SLOT, PREVIOUS_SLOT = range(5)
PAIRS = 6

# layout of extras
TIME_COLUMN, PLACE_COLUMN, MARK_COLUMN = range(3)

# a partition: its first slot, what its selection strategy keeps, its last relevant event, and when it was consumed;
# its starts are counted from an origin where the window counts its events; what a loop keeps besides is -1 at first
HEAD, CONTROL, PREVIOUS, EPOCH, ORIGIN, N_PART = range(6)

# registers: the scalars of a run, which last from call to call
(
    EVENT,  # index of the event that comes next, or is under way
    OPEN,  # 1: that event has been entered (its place in the history is written), 2: its matches are being listed
    GAP_DONE,  # 1: the gap before that event has been stepped over
    ORDINAL,  # number of relevant events so far
    CURRENT,  # the partition whose lists `slot_of` has
    CONSUMED,  # how often everything was forgotten (CONSUME BY ANY)
    NEXT_NODE,  # id of the next node
    FREE_SLOT,  # the first free slot
    N_FREE,  # free slots
    LONGEST,  # length of the longest union list so far
    N_ROOTS,  # roots of the tECS to list at the open event
    ROOT,  # the root under way
    DEPTH,  # entries on the listing's stack
    N_HERE,  # matches listed at the open event (for LIMIT)
    N_OUT,  # matches in the output buffers
    N_VALUES,  # positions in the output buffers
    WANTED,  # symbol for which a step is missing
    FLOOR,  # id of the first node that is alive
    WEIGHED,  # 1: the nodes below the roots have been weighed (for shards)
    LAST_NODE,  # an id beyond this makes the loop return GROW_NODES, so that the caller counts from a smaller id
    LANDMARK,  # ordinal of the oldest landmark, and of the next one
    NEXT_LANDMARK,
    N_REGS,
) = range(23)

# what register OPEN says of the event under way
BETWEEN, ENTERED, LISTED = range(3)

_U = np.uint64


class Lists(NamedTuple):
    """Partitions, and the union lists of their active states.

    Attributes
    ----------
    regs : int64, shape (N_REGS,), written
    parts : int64, shape (partitions, N_PART or more), written
    slots : int32 or int64, shape (slots, slot_width), written
    slot_of : int32, shape (states,), written
        The list of each state in the partition CURRENT (papers: T); -1: the state is not active.
    """

    regs: Any
    parts: Any
    slots: Any
    slot_of: Any


class Arena(NamedTuple):
    """Nodes of the tECS.

    Attributes
    ----------
    nodes : int32, shape (2**ring, 4), written
    extras : int64, shape (2**ring, extras), written
    layout : int64, shape (3,)
    here : int64, shape (extras,), written
        Extras of the open event.
    mask : int
        Mask of ids: a node is at ``id & mask``.
    """

    nodes: Any
    extras: Any
    layout: Any
    here: Any
    mask: Any


# ---- nodes ------------------------------------------------------------------------------------------------------


@helper
def put(arena, node, position, onward, sibling, maximum):
    """Write a node of the open event (papers: extend, new-bottom)."""
    nodes, extras, here = arena.nodes, arena.extras, arena.here
    x = _U(node & arena.mask)
    nodes[x, 0] = position
    nodes[x, 1] = onward
    nodes[x, 2] = sibling
    nodes[x, 3] = maximum
    for c in range(extras.shape[1]):
        extras[x, c] = here[c]


@helper
def put_union(nodes, mask, node, onward, sibling, maximum):
    """Write a plain union."""
    x = _U(node & mask)
    nodes[x, 0] = -1
    nodes[x, 1] = onward
    nodes[x, 2] = sibling
    nodes[x, 3] = maximum


@helper
def copy(nodes, extras, mask, node, source, sibling, maximum):
    """Make `node` the output (or bottom) node `source` fused with a union with `sibling`."""
    x = _U(node & mask)
    y = _U(source & mask)
    nodes[x, 0] = nodes[y, 0]
    nodes[x, 1] = nodes[y, 1]
    nodes[x, 2] = sibling
    nodes[x, 3] = maximum
    for c in range(extras.shape[1]):
        extras[x, c] = extras[y, c]


# ---- union lists ------------------------------------------------------------------------------------------------


@helper
def node_of(slots, s, i):
    """Return the node of pair `i`."""
    return slots[s, _U(PAIRS + 2 * i)]


@helper
def max_of(slots, s, i):
    """Return the maximum of pair `i`."""
    return slots[s, _U(PAIRS + 2 * i + 1)]


@helper
def set_pair(slots, s, i, node, maximum):
    """Write pair `i`."""
    slots[s, _U(PAIRS + 2 * i)] = node
    slots[s, _U(PAIRS + 2 * i + 1)] = maximum


@helper
def merge(arena, lists, floor, slot, next_node):
    """Return (next free id, node that stands for the whole list): CORE, 5.2, figure 5 (e)."""
    slots = lists.slots
    s = _U(slot)
    if slots[s, LENGTH] == 1:
        merged = node_of(slots, s, 0)
    else:
        merged = slots[s, MERGED]
        if merged < 0:
            next_node = merge_all(arena.nodes, arena.extras, arena.mask, slots, floor, slot, next_node)
            merged = slots[s, MERGED]
    return next_node, merged


@kernel
def merge_all(nodes, extras, mask, slots, floor, slot, next_node):
    """Make the nodes that stand for a whole list of several; return the next free id.

    Parameters
    ----------
    nodes : int32, shape (2**ring, 4), written
    extras : int64, shape (2**ring, extras), written
    mask : int
    slots : int32, shape (slots, slot_width), written
    floor, slot, next_node : int
    """
    s = _U(slot)
    k = slots[s, LENGTH]
    merged = node_of(slots, s, k - 1)
    for i in range(k - 2, -1, -1):
        node = node_of(slots, s, i)
        if nodes[_U(node & mask), 2] < floor:
            copy(nodes, extras, mask, next_node, node, merged, max_of(slots, s, i))
        else:
            put_union(nodes, mask, next_node, node, merged, max_of(slots, s, i))
        merged = np.int32(next_node)
        next_node += 1
    slots[s, MERGED] = merged
    return next_node


@kernel
def _insert(nodes, extras, mask, slots, regs, floor, low, slot, node, maximum, next_node):
    """Insert a safe node into a list whose first maximum is not smaller; return the next free id.

    CORE, 5.2: ``_insert`` and ``union`` (figure 5 a to d); the first node is never united with.

    Parameters
    ----------
    nodes : int32, shape (2**ring, 4), written
    extras : int64, shape (2**ring, extras), written
    mask : int
    slots : int32, shape (slots, slot_width), written
    regs : int64, shape (N_REGS,), written
    floor, low, slot, node, maximum, next_node : int
    """
    s = _U(slot)
    k = slots[s, LENGTH]
    slots[s, MERGED] = -1
    if k == 1:
        # a node that is alone may carry a sibling: take it off
        first = node_of(slots, s, 0)
        sibling = nodes[_U(first & mask), 2]
        if sibling >= floor:
            copy(nodes, extras, mask, next_node, first, -1, max_of(slots, s, 0))
            slots[s, PAIRS] = next_node
            next_node += 1
            sibling_max = nodes[_U(sibling & mask), 3]
            if sibling_max >= low:
                set_pair(slots, s, 1, sibling, sibling_max)
                k = 2
    i = 1
    while i < k and max_of(slots, s, i) > maximum:
        i += 1
    if i < k and max_of(slots, s, i) == maximum:
        a = node_of(slots, s, i)
        a_sibling = nodes[_U(a & mask), 2]
        b_sibling = nodes[_U(node & mask), 2]
        # what has left the window is none, whether it has been collected or not: the order of listing depends on it
        if a_sibling >= floor and nodes[_U(a_sibling & mask), 3] < low:
            a_sibling = np.int32(-1)
        if b_sibling >= floor and nodes[_U(b_sibling & mask), 3] < low:
            b_sibling = np.int32(-1)
        if a_sibling < floor:
            copy(nodes, extras, mask, next_node, a, node, maximum)
        elif b_sibling < floor:
            copy(nodes, extras, mask, next_node, node, a, maximum)
        else:
            left, right = a_sibling, b_sibling
            if nodes[_U(left & mask), 3] < nodes[_U(right & mask), 3]:
                left, right = right, left
            left_max = nodes[_U(left & mask), 3]
            if nodes[_U(left & mask), 2] < floor and nodes[_U(left & mask), 0] >= 0:
                copy(nodes, extras, mask, next_node, left, right, left_max)
            else:
                put_union(nodes, mask, next_node, left, right, left_max)
            copy(nodes, extras, mask, next_node + 1, node, next_node, maximum)
            copy(nodes, extras, mask, next_node + 2, a, next_node + 1, maximum)
            next_node += 2
        slots[s, _U(PAIRS + 2 * i)] = next_node
        next_node += 1
    else:
        for t in range(k, i, -1):
            set_pair(slots, s, t, node_of(slots, s, t - 1), max_of(slots, s, t - 1))
        set_pair(slots, s, i, node, maximum)
        k += 1
    slots[s, LENGTH] = k
    if k > regs[LONGEST]:
        regs[LONGEST] = k
    return next_node


@helper
def trim(slots, slot, low):
    """Drop the tail that has left the window; the first node is known to be inside."""
    s = _U(slot)
    k = slots[s, LENGTH]
    if k > 1 and max_of(slots, s, k - 1) < low:
        while max_of(slots, s, k - 1) < low:
            k -= 1
        slots[s, LENGTH] = k
        slots[s, MERGED] = -1


# ---- the lists of a partition -----------------------------------------------------------------------------------


@helper
def link(lists, p, slot):
    """Put a slot in front of those of partition `p`."""
    slots, parts = lists.slots, lists.parts
    head = parts[p, HEAD]
    slots[_U(slot), NEXT_SLOT] = head
    slots[_U(slot), PREVIOUS_SLOT] = -1
    if head >= 0:
        slots[_U(head), PREVIOUS_SLOT] = slot
    parts[p, HEAD] = slot


@helper
def release(lists, p, slot):
    """Move a slot from those of partition `p` to the free ones."""
    slots, parts, regs = lists.slots, lists.parts, lists.regs
    onward = slots[_U(slot), NEXT_SLOT]
    before = slots[_U(slot), PREVIOUS_SLOT]
    if before >= 0:
        slots[_U(before), NEXT_SLOT] = onward
    else:
        parts[p, HEAD] = onward
    if onward >= 0:
        slots[_U(onward), PREVIOUS_SLOT] = before
    slots[_U(slot), NEXT_SLOT] = regs[FREE_SLOT]
    regs[FREE_SLOT] = slot
    regs[N_FREE] += 1


@kernel
def forget(lists, p):
    """Drop all partial matches of partition `p`, and the state of its selection strategy.

    Parameters
    ----------
    lists : Lists
    p : int
    """
    slots, parts, regs, slot_of = lists.slots, lists.parts, lists.regs, lists.slot_of
    while parts[p, HEAD] >= 0:
        slot = parts[p, HEAD]
        if regs[CURRENT] == np.int64(p):
            slot_of[_U(slots[_U(slot), STATE])] = -1
        release(lists, p, slot)
    parts[p, CONTROL] = 0
    for c in range(N_PART, parts.shape[1]):
        parts[p, _U(c)] = -1


@helper
def switch(lists, p):
    """Point `slot_of` to the lists of partition `p`."""
    slots, parts, regs, slot_of = lists.slots, lists.parts, lists.regs, lists.slot_of
    if regs[CURRENT] >= 0:
        slot = parts[_U(regs[CURRENT]), HEAD]
        while slot >= 0:
            slot_of[_U(slots[_U(slot), STATE])] = -1
            slot = slots[_U(slot), NEXT_SLOT]
    slot = parts[_U(p), HEAD]
    while slot >= 0:
        slot_of[_U(slots[_U(slot), STATE])] = slot
        slot = slots[_U(slot), NEXT_SLOT]
    regs[CURRENT] = p


@helper
def enter(lists, p, has_gaps, ordinal):
    """Open an event of partition `p`: point to its lists, and forget what was consumed."""
    regs, parts = lists.regs, lists.parts
    regs[OPEN] = ENTERED
    if regs[CURRENT] != np.int64(p):
        switch(lists, np.int64(p))
    if parts[p, EPOCH] != regs[CONSUMED]:
        forget(lists, p)
        parts[p, EPOCH] = regs[CONSUMED]
    regs[GAP_DONE] = not has_gaps or ordinal == parts[p, PREVIOUS] + 1


@helper
def consume(lists, p, consumption):
    """Forget what matches consume that end at an event of partition `p`."""
    if consumption != CONSUME_NONE:
        forget(lists, p)
        if consumption == CONSUME_ANY:
            lists.regs[CONSUMED] += 1
            lists.parts[p, EPOCH] = lists.regs[CONSUMED]


@helper
def take_slot(lists, p, state):
    """Take a free slot for a state of partition `p`, and return it."""
    slots, regs, slot_of = lists.slots, lists.regs, lists.slot_of
    slot = regs[FREE_SLOT]
    s = _U(slot)
    regs[FREE_SLOT] = slots[s, NEXT_SLOT]
    regs[N_FREE] -= 1
    slot_of[_U(state)] = slot
    slots[s, STATE] = state
    link(lists, p, slot)
    return s


@helper
def add_node(arena, lists, p, floor, low, state, number, onward, maximum, next_node):
    """Make a node of the open event and add it to the list of a state; return the next free id.

    papers: ``extend`` (or ``new-bottom``), then procedure Add.  Nodes that the node refers to are made before it: a
    node refers to older ones only.
    """
    slots = lists.slots
    slot = lists.slot_of[_U(state)]
    if slot < 0 or max_of(slots, _U(slot), 0) < low:
        s = _U(slot) if slot >= 0 else take_slot(lists, p, state)
        slots[s, LENGTH] = 1
        slots[s, MERGED] = -1
        put(arena, next_node, number, onward, -1, maximum)
        set_pair(slots, s, 0, next_node, maximum)
        return next_node + 1
    s = _U(slot)
    trim(slots, slot, low)
    if maximum >= max_of(slots, s, 0):
        # the new node takes the whole list as its sibling: the list is one node again
        next_node, merged = merge(arena, lists, floor, slot, next_node)
        put(arena, next_node, number, onward, merged, maximum)
        set_pair(slots, s, 0, next_node, maximum)
        slots[s, LENGTH] = 1
        slots[s, MERGED] = -1
        return next_node + 1
    put(arena, next_node, number, onward, -1, maximum)
    return _insert(arena.nodes, arena.extras, arena.mask, slots, lists.regs, floor, low, slot, next_node, maximum,
                  next_node + 1)  # fmt: skip


@helper
def add_list(arena, lists, p, floor, low, state, moved, next_node):
    """Give a state the list in slot `moved`, as it is or put together with its own; return the next free id.

    papers: procedure Add.
    """
    slots, slot_of = lists.slots, lists.slot_of
    slot = slot_of[_U(state)]
    if slot >= 0 and max_of(slots, _U(slot), 0) < low:
        release(lists, p, slot)
        slot = np.int32(-1)
    if slot < 0:
        slot_of[_U(state)] = moved
        slots[_U(moved), STATE] = state
    else:
        trim(slots, slot, low)
        if max_of(slots, _U(moved), 0) > max_of(slots, _U(slot), 0):
            slot_of[_U(state)] = moved
            slots[_U(moved), STATE] = state
            slot, moved = moved, slot
        next_node, merged = merge(arena, lists, floor, moved, next_node)
        maximum = max_of(slots, _U(moved), 0)
        next_node = _insert(arena.nodes, arena.extras, arena.mask, slots, lists.regs, floor, low, slot, merged, maximum,
                           next_node)  # fmt: skip
        release(lists, p, moved)
    return next_node
