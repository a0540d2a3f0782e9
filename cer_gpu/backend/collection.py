"""Collection of the nodes of the tECS that are alive, for windows under which no order tells which ones are.

Under one window for all partitions, nodes die in the order in which they were made, and a ring needs no collection.
Otherwise (no window, or one that counts the events of each partition) `collect_nodes` finds the nodes that lists reach,
and moves them together.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.automaton.encoding import COUNT_WINDOW
from cer_gpu.backend import tecs
from cer_gpu.backend.arguments import Options
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.tecs import (
    CONSUMED,
    CONTROL,
    CURRENT,
    EPOCH,
    HEAD,
    LENGTH,
    MERGED,
    NEXT_NODE,
    NEXT_SLOT,
    ORIGIN,
    PREVIOUS,
    STATE,
    Arena,
    Lists,
)

_U = np.uint64


@helper
def _low(parts, p, options):
    """Return the first number that is in the window of the partition's next event."""
    low = np.int64(0)
    if options.window == COUNT_WINDOW:
        low = parts[p, PREVIOUS] + 1 - parts[p, ORIGIN] - options.width
    return max(low, np.int64(0))


@kernel
def drop_expired(lists, options, n_parts, low, idle):
    """Free the lists that have left their window, and note which partitions hold nothing.

    Parameters
    ----------
    lists : Lists
    options : Options
    n_parts : int
        Partitions to look at, of those there is space for.
    low : int
        First number in the window, of all partitions; ignored for COUNT_WINDOW.
    idle : bool, shape (n_parts,), written
        True for a partition that holds no more than a new one.
    """
    lists, options = Lists(*lists), Options(*options)
    parts, slots, slot_of, regs = lists.parts, lists.slots, lists.slot_of, lists.regs
    for i in range(n_parts):
        p = _U(i)
        if parts[p, EPOCH] != regs[CONSUMED]:
            tecs.forget(lists, p)
            parts[p, EPOCH] = regs[CONSUMED]
        first = _low(parts, p, options) if options.window == COUNT_WINDOW else np.int64(low)
        slot = parts[p, HEAD]
        while slot >= 0:
            onward = slots[_U(slot), NEXT_SLOT]
            if tecs.max_of(slots, _U(slot), 0) < first:
                if regs[CURRENT] == i:
                    slot_of[_U(slots[_U(slot), STATE])] = -1
                tecs.release(lists, p, slot)
            slot = onward
        idle[p] = parts[p, HEAD] < 0 and parts[p, CONTROL] == 0


@kernel
def collect_nodes(lists, arena, options, n_parts, shift_from, lows, new_ids):
    """Move the nodes that the lists reach together, in their order, and forget what has left the windows.

    A node refers to older ones only, so that one pass from the latest to the oldest finds them all.

    Parameters
    ----------
    lists : Lists
    arena : Arena
    options : Options
    n_parts : int
        Number of partitions.
    shift_from : int
        In a partition whose numbers passed this, they are counted anew from the first one in the window.
    lows : int64, shape (n_parts,), written
        The first number in the window of each partition, as it was before.
    new_ids : int32, shape (nodes,), written
        -1 before; then the new id of each node, -1 where it is dropped.

    Returns
    -------
    int
        The smallest number or position (as nodes have them) that is alive, or that of the next event.
    """
    lists, arena, options = Lists(*lists), Arena(*arena), Options(*options)
    smallest = _mark(lists, arena, options, n_parts, shift_from, lows, new_ids)
    _move(lists, arena, n_parts, new_ids)
    return smallest


@helper
def _mark(lists, arena, options, n_parts, shift_from, lows, owners):
    """Write the partition of each node that is alive, and return the smallest number or position among these."""
    parts, slots, nodes, window = lists.parts, lists.slots, arena.nodes, options.window
    n_nodes = lists.regs[NEXT_NODE]
    for i in range(n_parts):
        p = _U(i)
        low = _low(parts, p, options)
        lows[p] = low
        shift = _shift(low, window, shift_from)
        parts[p, ORIGIN] += shift
        slot = parts[p, HEAD]
        while slot >= 0:
            s = _U(slot)
            tecs.trim(slots, slot, low)
            slots[s, MERGED] = -1
            for k in range(slots[s, LENGTH]):
                node = tecs.node_of(slots, s, k)
                tecs.set_pair(slots, s, k, node, tecs.max_of(slots, s, k) - shift)
                owners[_U(node)] = i
            slot = slots[s, NEXT_SLOT]
    smallest = np.int64(1) << 62
    for back in range(n_nodes):
        x = _U(n_nodes - 1 - back)
        owner = owners[x]
        if owner < 0:
            continue
        low = lows[_U(owner)]
        if nodes[x, 1] >= 0:
            owners[_U(nodes[x, 1])] = owner
        sibling = nodes[x, 2]
        if sibling >= 0:
            if nodes[_U(sibling), 3] < low:
                nodes[x, 2] = -1
            else:
                owners[_U(sibling)] = owner
        nodes[x, 3] -= _shift(low, window, shift_from)
        if nodes[x, 0] >= 0:
            smallest = min(smallest, np.int64(nodes[x, 0]))
        smallest = min(smallest, np.int64(nodes[x, 3]))
    return smallest


@helper
def _shift(low, window, shift_from):
    return low if window == COUNT_WINDOW and low > shift_from else np.int64(0)


@helper
def _move(lists, arena, n_parts, new_ids):
    """Move the marked nodes together, and make all that refers to them refer to their new ids."""
    parts, slots, regs, nodes, extras = lists.parts, lists.slots, lists.regs, arena.nodes, arena.extras
    alive = np.int32(0)
    for i in range(regs[NEXT_NODE]):
        if new_ids[_U(i)] >= 0:
            new_ids[_U(i)] = alive
            alive += 1
    for i in range(regs[NEXT_NODE]):
        to = new_ids[_U(i)]
        if to >= 0:
            x, y = _U(to), _U(i)
            nodes[x, 0] = nodes[y, 0]
            nodes[x, 1] = new_ids[_U(nodes[y, 1])] if nodes[y, 1] >= 0 else nodes[y, 1]
            nodes[x, 2] = new_ids[_U(nodes[y, 2])] if nodes[y, 2] >= 0 else nodes[y, 2]
            nodes[x, 3] = nodes[y, 3]
            for c in range(extras.shape[1]):
                extras[x, c] = extras[y, c]
    for i in range(n_parts):
        slot = parts[_U(i), HEAD]
        while slot >= 0:
            s = _U(slot)
            for k in range(slots[s, LENGTH]):
                tecs.set_pair(slots, s, k, new_ids[_U(tecs.node_of(slots, s, k))], tecs.max_of(slots, s, k))
            slot = slots[s, NEXT_SLOT]
    regs[NEXT_NODE] = alive
