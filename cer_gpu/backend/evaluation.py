"""The automaton's loop: relevant events -> tECS and matches, in one compiled function.

papers: CORE, algorithm 1 (section 5.3) over the structure of `cer_gpu.backend.tecs`.  Where we differ: outputs stand
on transitions; a list moves from state to state by its slot; nodes live in a ring, and those made before the window's
first event are dead.  Where the windows of partitions end apart from each other (or never), nothing dies by itself,
and `cer_gpu.backend.collection` finds what is alive.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.automaton.encoding import (
    CONSUME_ANY,
    CONSUME_NONE,
    COUNT_WINDOW,
    DIES,
    EVERY,
    FIRST_MOVE,
    FLAGS,
    GLOBAL_WINDOW,
    LAST,
    MARK,
    N_SOURCES,
    NEXT_CONTROL,
    OUTPUT,
    QUIET,
    SOURCE_MARK,
    SOURCE_TARGET,
    SOURCE_WIDTH,
    SOURCES,
    STAY,
    TARGET,
    UNKNOWN,
)
from cer_gpu.backend import tecs
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import prefetch
from cer_gpu.backend.status import DONE, GROW_LISTS, GROW_NODES, GROW_SLOTS, NEED_STEP, RENUMBER
from cer_gpu.backend.tecs import (
    BOTTOM,
    BOTTOM_MARKED,
    CONSUMED,
    CONTROL,
    CURRENT,
    EPOCH,
    EVENT,
    FLOOR,
    GAP_DONE,
    HEAD,
    LANDMARK,
    LAST_NODE,
    LENGTH,
    LONGEST,
    MARK_COLUMN,
    N_FREE,
    N_HERE,
    N_ROOTS,
    NEXT_LANDMARK,
    NEXT_NODE,
    NEXT_SLOT,
    OPEN,
    ORDINAL,
    ORIGIN,
    PAIRS,
    PLACE_COLUMN,
    PREVIOUS,
    ROOT,
    STATE,
    TIME_COLUMN,
    WANTED,
    WEIGHED,
)

MAX_NUMBER = (1 << 31) - 2
"""The largest number of a start; a larger one makes the loop return RENUMBER."""

LANDMARKS = 16
"""Events whose first nodes are kept where the window is measured in positions, at most."""

AHEAD = 24
"""So many events later a partition is read, which lies anywhere in memory."""

_U = np.uint64


@helper
def _look_ahead(partitions, parts, slots, nodes, mask, event):
    """Ask for the memory of the partitions of events to come: its row, then its first list, then the list's node."""
    prefetch(parts, _U(partitions[event + _U(AHEAD)]) * _U(parts.shape[1]))
    slot = parts[_U(partitions[event + _U(AHEAD - 8)]), HEAD]
    if slot >= 0:
        prefetch(slots, _U(slot) * _U(slots.shape[1]))
    slot = parts[_U(partitions[event + _U(AHEAD - 16)]), HEAD]
    if slot >= 0:
        onward = slots[_U(slot), NEXT_SLOT]
        if onward >= 0:
            prefetch(slots, _U(onward) * _U(slots.shape[1]))


@helper
def _lacking(regs, slots, mask, next_node, floor, n_states, max_moves):
    """Return what there is too little of for an event that so many states act on, a GROW status, or DONE."""
    n_moves = (n_states + 1) * max_moves
    longest = regs[LONGEST] + n_moves + 2
    status = DONE
    if next_node + (n_states + n_moves) * (longest + 8) - floor > mask or next_node > regs[LAST_NODE]:
        status = GROW_NODES
    elif PAIRS + 2 * longest > slots.shape[1]:
        status = GROW_LISTS
    elif regs[N_FREE] < n_moves:
        status = GROW_SLOTS
    return status


@helper
def _pass_landmarks(history, regs, number, low, apart, next_node):
    """Let the first node that is alive be that of the last landmark up to the window's start; set one where due."""
    while regs[LANDMARK] < regs[NEXT_LANDMARK] and history[_U(regs[LANDMARK] % LANDMARKS), 0] <= low:
        regs[FLOOR] = history[_U(regs[LANDMARK] % LANDMARKS), 1]
        regs[LANDMARK] += 1
    n = regs[NEXT_LANDMARK] - regs[LANDMARK]
    if n == 0 or (n < LANDMARKS and number - history[_U((regs[NEXT_LANDMARK] - 1) % LANDMARKS), 0] >= apart):
        history[_U(regs[NEXT_LANDMARK] % LANDMARKS), 0] = number
        history[_U(regs[NEXT_LANDMARK] % LANDMARKS), 1] = next_node
        regs[NEXT_LANDMARK] += 1


@helper
def _read_steady(symbols, positions, places, lows, clocks, window, width, apart, base, steady, max_moves, regs, parts,
                 slots, slot_of, nodes, extras, layout, here, history, scratch, i):  # fmt: skip
    """Read events that add to lists and change nothing else (`Determinization.steady`); return the first other one.

    The registers are those of one partition, and no event is open.
    """
    mask, history_mask = nodes.shape[0] - 1, history.shape[0] - 1
    time_column, place_column, mark_column = layout[TIME_COLUMN], layout[PLACE_COLUMN], layout[MARK_COLUMN]
    next_node, ordinal, floor = regs[NEXT_NODE], regs[ORDINAL], regs[FLOOR]
    first_one, n_events = i, symbols.shape[0]
    in_positions = window == GLOBAL_WINDOW and width >= 0
    look_at = np.int64(-1)  # the number of an event at which landmarks are looked at again
    low = np.int32(0)
    while i < n_events:
        event = _U(i)
        symbol = _U(symbols[event])
        n_sources = np.int64(steady[symbol, _U(N_SOURCES)])
        if n_sources < 0:
            break
        position = positions[event]
        number = np.int32(position - base)
        if in_positions:
            low = np.int32(max(number - width, 0))
            if number >= look_at:
                _pass_landmarks(history, regs, number, low, apart, next_node)
                floor = regs[FLOOR]
                look_at = number + apart
        elif window == GLOBAL_WINDOW:
            now, first = _U(ordinal & history_mask), _U(lows[event] & history_mask)
            history[now, 0] = number
            history[now, 1] = next_node
            low = history[first, 0]
            floor = np.int64(history[first, 1])
        if _lacking(regs, slots, mask, next_node, floor, n_sources, max_moves) != DONE:
            break  # the other loop asks for it
        if time_column >= 0:
            here[time_column] = clocks[event]
        if place_column >= 0:
            here[place_column] = places[event] if places.shape[0] > 0 else position
        i += 1
        ordinal += 1
        # read all sources before any write; what is read of a single one stays in registers
        n_live = 0
        onward, maximum = np.int32(BOTTOM), number
        for k in range(n_sources):
            row = _U(SOURCES + SOURCE_WIDTH * k)
            state = steady[symbol, row]
            begins = state < 0
            slot = slot_of[_U(max(state, 0))]
            s = _U(max(slot, 0))
            top = tecs.max_of(slots, s, 0)
            if begins | ((slot >= 0) & (top >= low)):
                mark = steady[symbol, row + _U(SOURCE_MARK)]
                maximum = number if begins else top
                bottom = np.int32(BOTTOM_MARKED) if mark > 0 else np.int32(BOTTOM)
                onward = bottom if begins else tecs.node_of(slots, s, 0)
                if not begins and slots[s, LENGTH] > 1:
                    tecs.trim(slots, slot, low)
                    next_node, onward = tecs.merge(nodes, extras, mask, slots, floor, slot, next_node)
                if n_sources > 1:
                    live = _U(n_live)
                    scratch[live, 0] = onward
                    scratch[live, 1] = maximum
                    scratch[live, 2] = row
                n_live += 1
        row = _U(SOURCES)
        for k in range(n_live):
            if n_sources > 1:
                live = _U(k)
                onward, maximum, row = scratch[live, 0], scratch[live, 1], _U(scratch[live, 2])
            if mark_column >= 0:
                here[mark_column] = steady[symbol, row + _U(SOURCE_MARK)]
            target = steady[symbol, row + _U(SOURCE_TARGET)]
            next_node = tecs.add_node(nodes, extras, here, mask, slots, parts, slot_of, regs, _U(0), floor, low,
                                      target, number, onward, maximum, next_node)  # fmt: skip
    if i > first_one:
        regs[NEXT_NODE], regs[ORDINAL], regs[FLOOR] = next_node, ordinal, floor
        parts[_U(0), PREVIOUS] = positions[_U(i - 1)]
    return i


@kernel
def run_events(
    symbols,
    positions,
    places,
    partitions,
    ordinals,
    lows,
    clocks,
    window,
    width,
    apart,
    by_partition,
    consume,
    has_gaps,
    base,
    limit,
    first_end,
    steps,
    touched,
    steady,
    fresh,
    moves,
    max_moves,
    regs,
    parts,
    slots,
    slot_of,
    nodes,
    extras,
    layout,
    here,
    history,
    scratch,
    roots,
    stack,
    path,
    path_marks,
    root_weights,
    weights,
    stamps,
    share,
    indices,
    out_spans,
    out_times,
    out_offsets,
    out_positions,
    out_marks,
):
    """Feed relevant events to the automaton, from register EVENT on, until all are read or something is needed.

    Parameters
    ----------
    symbols : int32, shape (n,)
    positions : int64, shape (n,)
    places : int64, shape (n,), or (0,)
        The positions that are reported, where they are others.
    partitions : int32, shape (n,), or (0,) where there is one
    ordinals : int64, shape (n,), or (0,)
        Number of each event in its partition, where that matters: for contiguity, or for the window.
    lows : int64, shape (n,), or (0,)
        For GLOBAL_WINDOW, unless it is measured in positions, the ordinal (over all relevant events) of the first event
        in the window that ends at each.
    clocks : int64, shape (n,), or (0,)
        Time of each event, where the output has it.
    window, width
        The kind of the window, and its length where it counts events (-1: it does not).
    apart
        Positions from one landmark to the next, at least.
    by_partition
        Whether starts are numbered in each partition by itself.
    consume, has_gaps, limit
        CONSUME; whether the gap between two events matters; complex events listed at most for one end (0: all).
    base
        Position that starts and marks are counted from.
    first_end
        Complex events that end before this position are not listed.
    steps, touched, steady, fresh, moves, max_moves
        Of the `Determinization`.
    regs, parts, slots, nodes, extras, layout
        See `cer_gpu.backend.tecs`.
    slot_of : int32, shape (states,)
        The list of each state in the partition CURRENT; -1: the state is not active.
    here : int64, like a row of extras
    history : int32, shape (a power of two, 2)
        For GLOBAL_WINDOW, position and first node of each relevant event, by ordinal; where it is measured in
        positions, of `LANDMARKS` of them.
    scratch : int32, shape (states + 1, 6)
        The lists that an event moves.
    roots, stack, path, path_marks
        Of the listing.
    root_weights, weights, stamps, share, indices
        Of a share of the complex events (see `cer_gpu.backend.tecs.weigh`); empty where all are listed.
    out_spans, out_times : int64, shape (2, rows)
        Starts and ends of the complex events, as positions and as times.
    out_offsets, out_positions, out_marks : int32 (rows + 1,), int64 and int32
        The kept positions as an Arrow list array, and their marks.

    Returns
    -------
    int
        A `Status`.
    """
    mask = nodes.shape[0] - 1
    history_mask = history.shape[0] - 1
    n_events = symbols.shape[0]
    partitioned = partitions.shape[0] > 0
    counted = ordinals.shape[0] > 0
    in_positions = window == GLOBAL_WINDOW and width >= 0
    time_column, place_column, mark_column = layout[TIME_COLUMN], layout[PLACE_COLUMN], layout[MARK_COLUMN]
    quickly = not (partitioned or has_gaps)
    i = regs[EVENT]
    while i < n_events:
        if quickly and regs[OPEN] == 0 and regs[CURRENT] == 0:
            i = _read_steady(symbols, positions, places, lows, clocks, window, width, apart, base, steady, max_moves,
                             regs, parts, slots, slot_of, nodes, extras, layout, here, history, scratch, i)  # fmt: skip
            if i == n_events:
                break
        event = _U(i)
        position = positions[event]
        if partitioned and i + AHEAD < n_events:
            _look_ahead(partitions, parts, slots, nodes, mask, event)
        place = places[event] if places.shape[0] > 0 else position
        time = clocks[event] if time_column >= 0 else np.int64(0)
        p = _U(partitions[event]) if partitioned else _U(0)
        moment = ordinals[event] if counted else position
        number = np.int32(0)
        if by_partition:
            if moment - parts[p, ORIGIN] > MAX_NUMBER:
                regs[EVENT] = i
                return RENUMBER
            number = np.int32(moment - parts[p, ORIGIN])
        else:
            number = np.int32(position - base)
        if regs[OPEN] == 0:
            regs[OPEN] = 1
            if regs[CURRENT] != np.int64(p):
                tecs.switch(slots, parts, slot_of, regs, np.int64(p))
            if parts[p, EPOCH] != regs[CONSUMED]:
                tecs.forget(slots, parts, regs, slot_of, p)
                parts[p, EPOCH] = regs[CONSUMED]
            regs[GAP_DONE] = not has_gaps or moment == parts[p, PREVIOUS] + 1
            if in_positions:
                _pass_landmarks(history, regs, number, max(number - width, 0), apart, regs[NEXT_NODE])
            elif window == GLOBAL_WINDOW:
                now = _U(regs[ORDINAL] & history_mask)
                history[now, 0] = number
                history[now, 1] = regs[NEXT_NODE]
                regs[FLOOR] = history[_U(lows[event] & history_mask), 1]
        low = np.int32(0)
        if in_positions:
            low = np.int32(max(number - width, 0))
        elif window == GLOBAL_WINDOW:
            low = history[_U(lows[event] & history_mask), 0]
        elif window == COUNT_WINDOW and number > width:
            low = np.int32(number - width)
        floor = regs[FLOOR]

        while regs[OPEN] == 1:
            symbol = _U(symbols[event]) if regs[GAP_DONE] else _U(QUIET)
            # 1. read all sources before any write (a state may be source and target of the same event)
            control = _U(parts[p, CONTROL])
            first_fresh = fresh[symbol, control, FIRST_MOVE]
            missing = first_fresh == UNKNOWN
            n_live = 0
            # the states that do something: those listed for the symbol, or all that are active; others may have
            # left the window unseen
            listed = touched[symbol, 0] != EVERY
            a = _U(0)
            slot = parts[p, HEAD]
            while True:
                if listed:
                    candidate = touched[symbol, a]
                    if candidate < 0:
                        break
                    a += _U(1)
                    slot = slot_of[_U(candidate)]
                    if slot < 0:
                        continue
                elif slot < 0:
                    break
                s = _U(slot)
                onward = slots[s, NEXT_SLOT]
                state = slots[s, STATE]
                step = steps[symbol, _U(state)]
                if step == DIES or tecs.max_of(slots, s, 0) < low:
                    slot_of[_U(state)] = -1
                    tecs.release(slots, parts, regs, p, slot)
                elif step != STAY:
                    missing |= step == UNKNOWN
                    live = _U(n_live)
                    scratch[live, 0] = slot
                    scratch[live, 1] = state
                    scratch[live, 2] = step
                    n_live += 1
                slot = onward
            if missing:
                regs[WANTED] = symbol
                regs[EVENT] = i
                return NEED_STEP
            next_node = regs[NEXT_NODE]
            n_states = max(np.int64(n_live), np.int64(steady[symbol, _U(N_SOURCES)]))
            status = _lacking(regs, slots, mask, next_node, floor, n_states, max_moves)
            if status != DONE:
                regs[EVENT] = i
                return status
            for k in range(n_live):
                live = _U(k)
                slot = scratch[live, 0]
                state = scratch[live, 1]
                move = _U(scratch[live, 2])
                stays = False
                makes_node = False
                while True:
                    flags = moves[move, FLAGS]
                    makes_node |= moves[move, MARK] > 0 or flags & OUTPUT != 0
                    stays |= moves[move, MARK] == 0 and moves[move, TARGET] == state
                    if flags & LAST:
                        break
                    move += _U(1)
                tecs.trim(slots, slot, low)
                scratch[live, 3] = stays
                scratch[live, 4] = tecs.max_of(slots, _U(slot), 0)
                if makes_node:
                    next_node, merged = tecs.merge(nodes, extras, mask, slots, floor, slot, next_node)
                    scratch[live, 5] = merged
                if not stays:
                    slot_of[_U(state)] = -1

            # 2. write the targets, and note what ends here
            if time_column >= 0:
                here[time_column] = time
            if place_column >= 0:
                here[place_column] = place
            n_roots = 0
            for k in range(n_live):
                live = _U(k)
                slot = scratch[live, 0]
                move = _U(scratch[live, 2])
                placed = scratch[live, 3] != 0
                while True:
                    mark, target, flags = moves[move, MARK], moves[move, TARGET], moves[move, FLAGS]
                    if flags & OUTPUT:
                        roots[n_roots, 0] = scratch[live, 5]
                        roots[n_roots, 1] = mark > 0
                        roots[n_roots, 2] = mark
                        n_roots += 1
                    if target >= 0:
                        if mark > 0:
                            if mark_column >= 0:
                                here[mark_column] = mark
                            next_node = tecs.add_node(nodes, extras, here, mask, slots, parts, slot_of, regs, p, floor,
                                                      low, target, number, scratch[live, 5], scratch[live, 4],
                                                      next_node)  # fmt: skip
                        elif target != scratch[live, 1]:
                            placed = True
                            next_node = tecs.add_list(nodes, extras, mask, slots, parts, slot_of, regs, p, floor, low,
                                                      target, slot, next_node)  # fmt: skip
                    if flags & LAST:
                        break
                    move += _U(1)
                if not placed:
                    tecs.release(slots, parts, regs, p, slot)
            if first_fresh >= 0:
                move = _U(first_fresh)
                while True:
                    mark, target, flags = moves[move, MARK], moves[move, TARGET], moves[move, FLAGS]
                    bottom = np.int32(BOTTOM_MARKED) if mark > 0 else np.int32(BOTTOM)
                    if flags & OUTPUT:
                        roots[n_roots, 0] = bottom
                        roots[n_roots, 1] = 0
                        roots[n_roots, 2] = mark
                        n_roots += 1
                    if target >= 0:
                        if mark_column >= 0:
                            here[mark_column] = mark
                        next_node = tecs.add_node(nodes, extras, here, mask, slots, parts, slot_of, regs, p, floor,
                                                  low, target, number, bottom, number, next_node)  # fmt: skip
                    if flags & LAST:
                        break
                    move += _U(1)
            parts[p, CONTROL] = fresh[symbol, control, NEXT_CONTROL]
            regs[NEXT_NODE] = next_node
            if regs[GAP_DONE]:
                regs[OPEN] = 2
                regs[N_ROOTS] = n_roots if place >= first_end else 0
                regs[ROOT] = 0
                regs[N_HERE] = 0
                regs[WEIGHED] = 0
                if n_roots > 0 and consume != CONSUME_NONE:
                    tecs.forget(slots, parts, regs, slot_of, p)
                    if consume == CONSUME_ANY:
                        regs[CONSUMED] += 1
                        parts[p, EPOCH] = regs[CONSUMED]
            else:
                regs[GAP_DONE] = 1

        if regs[ROOT] < regs[N_ROOTS]:
            status = DONE
            if share.shape[0] > 0 and regs[WEIGHED] == 0:
                status = tecs.weigh(nodes, mask, regs, roots, root_weights, weights, stamps, stack, share, low, limit)
            if status == DONE:
                status = tecs.list_roots(nodes, extras, layout, mask, regs, roots, stack, path, path_marks, low, place,
                                         time, base, limit, root_weights, weights, share, indices, out_spans, out_times,
                                         out_offsets, out_positions, out_marks)  # fmt: skip
            if status != DONE:
                regs[EVENT] = i
                return status
        regs[OPEN] = 0
        parts[p, PREVIOUS] = moment
        regs[ORDINAL] += 1
        i += 1
    regs[EVENT] = i
    return DONE
