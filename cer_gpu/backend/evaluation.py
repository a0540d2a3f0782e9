"""The automaton's loop: relevant events -> tECS and matches, in one compiled function.

papers: CORE, algorithm 1 (section 5.3) over the compact structure tECS (5.1, 5.2).  Where we differ: outputs stand
on transitions; an output node and the union node above it are one node; merges are kept until their list
changes; insertion order of states is not kept (a list with a larger maximum is put in front instead); nodes
live in a ring, and those made before the window's first event are dead.

Nodes are rows of an int32 array, ``(position, next, sibling, max)``, at ``id & mask`` for a growing id:

* ``next >= 0``: an output node (marks `position`, goes on at node `next`); ``position == -1``: a plain union whose
  left child is `next`;
* ``next == BOTTOM`` or ``BOTTOM_MARKED``: the start of a complex event at `position`, without or with its mark;
* ``sibling``: the other child of the union fused with the node, no child when it is dead or negative; its
  maximum is never greater (time-ordered);
* ``max``: the latest start that the node reaches.

A state's union list is a row of `list_nodes` and `list_max` (decreasing from index 1 on; the node at index 0 has
no live sibling unless it stands alone).  `regs` holds the scalars that last from call to call.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper, kernel

BOTTOM, BOTTOM_MARKED = -1, -2

# bits of an action's flags, as `cer_gpu.automaton.determinize` writes them
MARK_OUTPUT, UNMARK_OUTPUT, UNKNOWN = 1, 2, 4

# why the loop returns
DONE, NEED_STEP, GROW_NODES, GROW_LISTS, OUTPUT_FULL, GROW_STACK = 0, 1, 2, 3, 4, 5

# registers
(
    EVENT,  # index of the event that comes next, or is under way
    OPEN,  # 1: that event has been entered (its place in the history is written), 2: its matches are being listed
    GAP_DONE,  # 1: the gap before that event has been stepped over
    PREVIOUS,  # position of the last relevant event
    ORDINAL,  # number of relevant events so far
    NEXT_NODE,  # id of the next node
    N_FREE,  # free list slots
    LONGEST,  # length of the longest union list so far
    N_ROOTS,  # complex events of the open event: roots of the tECS to enumerate
    ROOT,  # the root under way
    DEPTH,  # entries on the enumeration stack
    N_HERE,  # complex events listed at the open event (for LIMIT)
    N_OUT,  # complex events in the output buffers
    N_VALUES,  # positions in the output buffers
    WANTED,  # symbol for which a step is missing
    FLOOR,  # id of the first node that is alive
    LAST_NODE,  # an id beyond this makes the loop return GROW_NODES, so that the caller counts from a smaller id
    N_REGS,
) = range(18)

_U = np.uint64


@helper
def _put(nodes, times, mask, node, position, onward, sibling, maximum, time, timed):
    x = _U(node & mask)
    nodes[x, 0] = position
    nodes[x, 1] = onward
    nodes[x, 2] = sibling
    nodes[x, 3] = maximum
    if timed:
        times[x] = time


@helper
def _copy(nodes, times, mask, node, source, sibling, maximum, timed):
    """Make `node` the output (or bottom) node `source` fused with a union with `sibling`."""
    x = _U(node & mask)
    y = _U(source & mask)
    nodes[x, 0] = nodes[y, 0]
    nodes[x, 1] = nodes[y, 1]
    nodes[x, 2] = sibling
    nodes[x, 3] = maximum
    if timed:
        times[x] = times[y]


@helper
def _merge(nodes, times, mask, list_nodes, list_max, list_len, list_merged, floor, slot, next_node, timed):
    """Return (next free id, node that stands for the whole list): CORE, 5.2, figure 5 (e)."""
    s = _U(slot)
    k = list_len[s]
    if k == 1:
        merged = list_nodes[s, 0]
    else:
        merged = list_merged[s]
        if merged < 0:
            merged = list_nodes[s, k - 1]
            for i in range(k - 2, -1, -1):
                node = list_nodes[s, i]
                if nodes[_U(node & mask), 2] < floor:
                    _copy(nodes, times, mask, next_node, node, merged, list_max[s, i], timed)
                else:
                    _put(nodes, times, mask, next_node, -1, node, merged, list_max[s, i], 0, timed)
                merged = np.int32(next_node)
                next_node += 1
            list_merged[s] = merged
    return next_node, merged


@helper
def _insert(nodes, times, mask, list_nodes, list_max, list_len, list_merged, floor, low, slot, node, maximum,
            next_node, timed):  # fmt: skip
    """Insert a safe node into a list whose first maximum is not smaller; return the next free id.

    CORE, 5.2: ``insert`` and ``union`` (figure 5 a to d); the first node is never united with.
    """
    s = _U(slot)
    k = list_len[s]
    list_merged[s] = -1
    if k == 1:
        # a node that stands alone may carry a sibling: take it off
        first = list_nodes[s, 0]
        sibling = nodes[_U(first & mask), 2]
        if sibling >= floor:
            _copy(nodes, times, mask, next_node, first, -1, list_max[s, 0], timed)
            list_nodes[s, 0] = next_node
            next_node += 1
            sibling_max = nodes[_U(sibling & mask), 3]
            if sibling_max >= low:
                list_nodes[s, 1] = sibling
                list_max[s, 1] = sibling_max
                k = 2
    i = 1
    while i < k and list_max[s, i] > maximum:
        i += 1
    if i < k and list_max[s, i] == maximum:
        a = list_nodes[s, i]
        a_sibling = nodes[_U(a & mask), 2]
        b_sibling = nodes[_U(node & mask), 2]
        if a_sibling < floor:
            _copy(nodes, times, mask, next_node, a, node, maximum, timed)
        elif b_sibling < floor:
            _copy(nodes, times, mask, next_node, node, a, maximum, timed)
        else:
            left, right = a_sibling, b_sibling
            if nodes[_U(left & mask), 3] < nodes[_U(right & mask), 3]:
                left, right = right, left
            left_max = nodes[_U(left & mask), 3]
            if nodes[_U(left & mask), 2] < floor and nodes[_U(left & mask), 0] >= 0:
                _copy(nodes, times, mask, next_node, left, right, left_max, timed)
            else:
                _put(nodes, times, mask, next_node, -1, left, right, left_max, 0, timed)
            _copy(nodes, times, mask, next_node + 1, node, next_node, maximum, timed)
            _copy(nodes, times, mask, next_node + 2, a, next_node + 1, maximum, timed)
            next_node += 2
        list_nodes[s, i] = next_node
        next_node += 1
    else:
        for t in range(k, i, -1):
            list_nodes[s, t] = list_nodes[s, t - 1]
            list_max[s, t] = list_max[s, t - 1]
        list_nodes[s, i] = node
        list_max[s, i] = maximum
        k += 1
    list_len[s] = k
    return next_node


@helper
def _trim(list_max, list_len, list_merged, slot, low):
    """Drop the tail that has left the window; the first node is known to be inside."""
    s = _U(slot)
    k = list_len[s]
    if k > 1 and list_max[s, k - 1] < low:
        while list_max[s, k - 1] < low:
            k -= 1
        list_len[s] = k
        list_merged[s] = -1


@helper
def _add_new(nodes, times, mask, list_nodes, list_max, list_len, list_merged, slot_of, free, regs, floor, low, state,
             node, maximum, next_node, timed):  # fmt: skip
    """Add a node made by this event to a state's list; return the next free id."""
    slot = slot_of[state]
    if slot < 0:
        regs[N_FREE] -= 1
        slot = free[regs[N_FREE]]
        slot_of[state] = slot
        list_len[slot] = 0
    elif list_max[slot, 0] < low:
        list_len[slot] = 0
    if list_len[slot] == 0:
        list_nodes[slot, 0] = node
        list_max[slot, 0] = maximum
        list_len[slot] = 1
        list_merged[slot] = -1
    else:
        _trim(list_max, list_len, list_merged, slot, low)
        if maximum >= list_max[slot, 0]:
            # the new node takes the whole list as its sibling: the list is one node again
            next_node, merged = _merge(
                nodes, times, mask, list_nodes, list_max, list_len, list_merged, floor, slot, next_node, timed
            )
            nodes[_U(node & mask), 2] = merged
            list_nodes[slot, 0] = node
            list_max[slot, 0] = maximum
            list_len[slot] = 1
            list_merged[slot] = -1
        else:
            next_node = _insert(nodes, times, mask, list_nodes, list_max, list_len, list_merged, floor, low, slot,
                                node, maximum, next_node, timed)  # fmt: skip
            if list_len[slot] > regs[LONGEST]:
                regs[LONGEST] = list_len[slot]
    return next_node


@helper
def _add_list(nodes, times, mask, list_nodes, list_max, list_len, list_merged, slot_of, free, regs, floor, low, state,
              moved, next_node, timed):  # fmt: skip
    """Give a state the list in slot `moved`, as it is or put together with its own; return the next free id."""
    slot = slot_of[state]
    if slot >= 0 and list_max[slot, 0] < low:
        free[regs[N_FREE]] = slot
        regs[N_FREE] += 1
        slot = -1
    if slot < 0:
        slot_of[state] = moved
    else:
        _trim(list_max, list_len, list_merged, slot, low)
        if list_max[moved, 0] > list_max[slot, 0]:
            slot_of[state] = moved
            slot, moved = moved, slot
        next_node, merged = _merge(
            nodes, times, mask, list_nodes, list_max, list_len, list_merged, floor, moved, next_node, timed
        )
        next_node = _insert(nodes, times, mask, list_nodes, list_max, list_len, list_merged, floor, low, slot,
                            merged, list_max[moved, 0], next_node, timed)  # fmt: skip
        if list_len[slot] > regs[LONGEST]:
            regs[LONGEST] = list_len[slot]
        free[regs[N_FREE]] = moved
        regs[N_FREE] += 1
    return next_node


@helper
def _enumerate(nodes, times, mask, regs, roots, stack, path, low, position, time, base, limit, timed,
               out_spans, out_times, out_offsets, out_positions):  # fmt: skip
    """List the complex events that end at the open event, from where the last call stopped; return a status.

    papers: CORE, theorem 2 and appendix B.1: depth first over a time-ordered tECS, left before right, and a right
    child only while its maximum is in the window, so that no step is in vain.  A stack entry is (node, size of the
    path above it); the size is inverted where the sibling of the node is on the stack already.
    """
    floor = regs[FLOOR]
    n_out, n_values, depth = regs[N_OUT], regs[N_VALUES], regs[DEPTH]
    status = DONE
    while regs[ROOT] < regs[N_ROOTS] and status == DONE:
        if depth == 0:
            path[0] = position
            stack[0, 0] = roots[regs[ROOT], 0]
            stack[0, 1] = roots[regs[ROOT], 1]
            depth = 1
        while depth > 0:
            depth -= 1
            node = stack[depth, 0]
            size = stack[depth, 1]
            visited = size < 0
            if visited:
                size = ~size
            start = np.int32(position)
            start_time = time
            end_code = node  # a root that begins at this very event is its own bottom node
            while node >= 0:
                x = _U(node & mask)
                if depth + 1 >= stack.shape[0] or size + 1 >= path.shape[0]:
                    status = GROW_STACK
                    break
                if not visited:
                    sibling = nodes[x, 2]
                    if sibling >= floor and nodes[_U(sibling & mask), 3] >= low:
                        stack[depth, 0] = sibling
                        stack[depth, 1] = size
                        depth += 1
                        visited = True
                        if depth + 1 >= stack.shape[0]:
                            status = GROW_STACK
                            break
                end_code = nodes[x, 1]
                if end_code < 0:
                    start = nodes[x, 0]
                    if timed:
                        start_time = times[x]
                    break
                visited = False
                if nodes[x, 0] >= 0:
                    path[size] = nodes[x, 0]
                    size += 1
                node = end_code
            length = size + (end_code == BOTTOM_MARKED)
            if status == DONE and (n_out + 1 >= out_offsets.shape[0] or n_values + length > out_positions.shape[0]):
                status = OUTPUT_FULL
                visited = True
            if status != DONE:
                stack[depth, 0] = node
                stack[depth, 1] = ~size if visited else size
                depth += 1
                break
            if end_code == BOTTOM_MARKED:
                path[size] = start
            for t in range(length):
                out_positions[_U(n_values + t)] = path[_U(length - 1 - t)] + base
            n_values += length
            out_spans[_U(n_out), 0] = start + base
            out_spans[_U(n_out), 1] = position + base
            if timed:
                out_times[_U(n_out), 0] = start_time
                out_times[_U(n_out), 1] = time
            n_out += 1
            out_offsets[_U(n_out)] = n_values
            regs[N_HERE] += 1
            if regs[N_HERE] == limit:
                depth = 0
                regs[ROOT] = regs[N_ROOTS]
        if status == DONE:
            regs[ROOT] += 1
    regs[N_OUT], regs[N_VALUES], regs[DEPTH] = n_out, n_values, depth
    return status


@kernel
def run_events(
    symbols,
    positions,
    lows,
    clocks,
    windowed,
    timed,
    base,
    limit,
    actions,
    n_actions,
    regs,
    nodes,
    times,
    history,
    list_nodes,
    list_max,
    list_state,
    slot_of,
    free,
    scratch,
    roots,
    stack,
    path,
    out_spans,
    out_times,
    out_offsets,
    out_positions,
):
    """Feed relevant events to the automaton, from register EVENT on, until all are read or something is needed.

    Parameters
    ----------
    symbols, positions : int32, shape (n,)
        Of the relevant events; positions are counted from `base`.
    lows : int64, shape (n,), or (0,) when not `windowed`
        Ordinal of the first relevant event in the window that ends at each event.
    clocks : int64, shape (n,), or (0,) when not `timed`
        Time of each event, for the output.
    limit : int
        Complex events listed at most for one end; 0 for all.
    actions, n_actions
        `Determinization.actions` and `n_actions`.
    regs : int64, shape (N_REGS,)
        The scalars of the run.
    nodes, times : int32 (capacity, 4) and int64 (capacity,) or (0,)
        The ring of tECS nodes (capacity a power of two) and the start times of bottom nodes.
    history : int32, shape (a power of two, 2)
        Position and first node of each relevant event, by ordinal.
    list_nodes, list_max : int32, shape (slots, longest)
        Union lists.
    list_state : int32, shape (2, slots)
        Length, and node that stands for the whole list (-1: none yet), of each union list.
    slot_of, free : int32
        The list of each determinised state (-1: inactive) and the free slots.
    scratch : int32, shape (3, actions)
        Slot, node and maximum of the sources of an event.
    roots, stack, path : int32
        Of the enumeration.
    out_spans, out_times : int64, shape (rows, 2)
        Start and end of each complex event, as positions and as times.
    out_offsets, out_positions : int32 (rows + 1,) and int64
        The kept positions as an Arrow list array.

    Returns
    -------
    int
        DONE, or what is needed before the next call: NEED_STEP (of symbol ``regs[WANTED]``), GROW_NODES, GROW_LISTS,
        OUTPUT_FULL, GROW_STACK.
    """
    mask = nodes.shape[0] - 1
    history_mask = history.shape[0] - 1
    list_len = list_state[0]
    list_merged = list_state[1]
    n_events = symbols.shape[0]
    i = regs[EVENT]
    while i < n_events:
        event = _U(i)
        position = positions[event]
        time = clocks[event] if timed else np.int64(0)
        low = np.int32(0)
        if regs[OPEN] == 0:
            regs[OPEN] = 1
            regs[GAP_DONE] = position == regs[PREVIOUS] + 1 or n_actions[0] == 0
            if windowed:
                here = _U(regs[ORDINAL] & history_mask)
                history[here, 0] = position
                history[here, 1] = regs[NEXT_NODE]
                regs[FLOOR] = history[_U(lows[event] & history_mask), 1]
        if windowed:
            low = history[_U(lows[event] & history_mask), 0]
        floor = regs[FLOOR]

        while regs[OPEN] == 1:
            symbol = _U(symbols[event]) if regs[GAP_DONE] else _U(0)
            n = n_actions[symbol]
            # 1. read all sources before any write (a state may be source and target of the same event)
            missing = False
            n_live = 0
            for k in range(n):
                action = _U(k)
                state = actions[symbol, action, 0]
                flags = actions[symbol, action, 3]
                slot = np.int32(0)
                if state > 0:
                    slot = slot_of[state]
                    if slot >= 0 and list_max[slot, 0] < low:
                        free[regs[N_FREE]] = slot
                        regs[N_FREE] += 1
                        slot_of[state] = -1
                        slot = np.int32(-1)
                scratch[0, action] = slot
                if slot >= 0:
                    n_live += 1
                    if flags & UNKNOWN:
                        missing = True
            if missing:
                regs[WANTED] = symbol
                regs[EVENT] = i
                return NEED_STEP
            next_node = regs[NEXT_NODE]
            if next_node + n_live * (3 * regs[LONGEST] + 12) - floor > mask or next_node > regs[LAST_NODE]:
                regs[EVENT] = i
                return GROW_NODES
            if regs[LONGEST] + 2 * n_live + 2 > list_nodes.shape[1]:
                regs[EVENT] = i
                return GROW_LISTS
            for k in range(n - 1, -1, -1):
                action = _U(k)
                slot = scratch[0, action]
                state = actions[symbol, action, 0]
                if slot >= 0 and state > 0:
                    _trim(list_max, list_len, list_merged, slot, low)
                    scratch[2, action] = list_max[slot, 0]
                    if actions[symbol, action, 1] >= 0 or actions[symbol, action, 3] != 0:
                        next_node, merged = _merge(
                            nodes,
                            times,
                            mask,
                            list_nodes,
                            list_max,
                            list_len,
                            list_merged,
                            floor,
                            slot,
                            next_node,
                            timed,
                        )
                        scratch[1, action] = merged
                    if actions[symbol, action, 2] != state:
                        slot_of[state] = -1

            # 2. write the targets, and note what ends here
            n_roots = 0
            for k in range(n - 1, -1, -1):
                action = _U(k)
                slot = scratch[0, action]
                if slot < 0:
                    continue
                state = actions[symbol, action, 0]
                mark_target = actions[symbol, action, 1]
                unmark_target = actions[symbol, action, 2]
                flags = actions[symbol, action, 3]
                if flags & MARK_OUTPUT:
                    roots[n_roots, 0] = scratch[1, action] if state > 0 else BOTTOM_MARKED
                    roots[n_roots, 1] = state > 0
                    n_roots += 1
                if flags & UNMARK_OUTPUT:
                    roots[n_roots, 0] = scratch[1, action] if state > 0 else BOTTOM
                    roots[n_roots, 1] = 0
                    n_roots += 1
                if state == 0:
                    if unmark_target >= 0:
                        node = next_node
                        _put(nodes, times, mask, node, position, BOTTOM, -1, position, time, timed)
                        next_node = _add_new(nodes, times, mask, list_nodes, list_max, list_len, list_merged, slot_of,
                                             free, regs, floor, low, unmark_target, node, position, next_node + 1,
                                             timed)  # fmt: skip
                elif unmark_target < 0:
                    free[regs[N_FREE]] = slot
                    regs[N_FREE] += 1
                elif unmark_target != state:
                    next_node = _add_list(nodes, times, mask, list_nodes, list_max, list_len, list_merged, slot_of,
                                          free, regs, floor, low, unmark_target, slot, next_node, timed)  # fmt: skip
                if mark_target >= 0:
                    node = next_node
                    maximum = np.int32(position)
                    onward = np.int32(BOTTOM_MARKED)
                    if state > 0:
                        maximum = scratch[2, action]
                        onward = scratch[1, action]
                    _put(nodes, times, mask, node, position, onward, -1, maximum, time, timed)
                    next_node = _add_new(nodes, times, mask, list_nodes, list_max, list_len, list_merged, slot_of, free,
                                         regs, floor, low, mark_target, node, maximum, next_node + 1,
                                         timed)  # fmt: skip
            regs[NEXT_NODE] = next_node
            if regs[GAP_DONE]:
                regs[OPEN] = 2
                regs[N_ROOTS] = n_roots
                regs[ROOT] = 0
                regs[N_HERE] = 0
            else:
                regs[GAP_DONE] = 1

        if regs[ROOT] < regs[N_ROOTS]:
            status = _enumerate(nodes, times, mask, regs, roots, stack, path, low, position, time, base, limit, timed,
                                out_spans, out_times, out_offsets, out_positions)  # fmt: skip
            if status != DONE:
                regs[EVENT] = i
                return status
        regs[OPEN] = 0
        regs[PREVIOUS] = position
        regs[ORDINAL] += 1
        i += 1
    regs[EVENT] = i
    return DONE
