"""The automaton's loop: relevant events -> tECS and matches, in one compiled function.

papers: CORE, algorithm 1 (section 5.3) over the structure of `cer_gpu.backend.tecs`.  Differences: outputs are on
transitions; a list moves from state to state by its slot; nodes live in a ring, and those made before the window's
first event are dead.  If the windows of partitions end apart from each other (or never), no node dies by itself, and
`cer_gpu.backend.collection` finds those that are alive.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import (
    COUNT_WINDOW,
    DIES,
    END_OF_LIST,
    EVERY,
    FIRST_MOVE,
    FLAGS,
    GLOBAL_WINDOW,
    LAST_MOVE,
    MARK,
    N_SOURCES,
    NEXT_CONTROL,
    NO_STATE,
    NOT_STEADY,
    OUTPUT_MOVE,
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
from cer_gpu.backend.arguments import Events, Matches, Options, Tables
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.listing import Listing, Shard, list_roots
from cer_gpu.backend.operations import prefetch
from cer_gpu.backend.status import DONE, GROW_LISTS, GROW_NODES, GROW_SLOTS, NEED_STEP, RENUMBER
from cer_gpu.backend.tecs import (
    BETWEEN,
    BOTTOM,
    BOTTOM_MARKED,
    CONTROL,
    CURRENT,
    ENTERED,
    EVENT,
    FLOOR,
    GAP_DONE,
    HEAD,
    LANDMARK,
    LAST_NODE,
    LENGTH,
    LISTED,
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
    Arena,
    Lists,
)

MAX_NUMBER = (1 << 31) - 2
"""The largest number of a start; a larger one makes the loop return RENUMBER."""

LANDMARKS = 16
"""Maximum number of events whose first nodes are kept, for a window that is measured in positions."""

_AHEAD = 24
"""Events from the prefetch of a partition to its use; partitions lie anywhere in memory."""

# columns of `sources`: the slot of a list, its state, the first of its moves, whether it stays where it is, its
# maximum, and the node that stands for it
SLOT, SOURCE, MOVE, STAYS, MAXIMUM, NODE, N_SOURCE = range(7)

# columns of `history`
NUMBER, FIRST_NODE = range(2)

_U = np.uint64


class Numbering(NamedTuple):
    """Numbering of the starts of matches in 32 bits.

    Attributes
    ----------
    base : int
        Position that is number 0.
    by_partition : bool
        True if starts are numbered in each partition by itself, from its ORIGIN.
    apart : int
        Positions from one landmark to the next, at least.
    """

    base: Any
    by_partition: Any
    apart: Any


# ---- the window -------------------------------------------------------------------------------------------------


@helper
def _in_positions(options):
    """Return whether the window is measured in positions."""
    return options.window == GLOBAL_WINDOW and options.width >= 0


@helper
def _pass_landmarks(history, regs, number, low, apart, next_node):
    """Set FLOOR to the first node of the last landmark up to the window's start; set a new landmark where needed."""
    while regs[LANDMARK] < regs[NEXT_LANDMARK] and history[_U(regs[LANDMARK] % LANDMARKS), NUMBER] <= low:
        regs[FLOOR] = history[_U(regs[LANDMARK] % LANDMARKS), FIRST_NODE]
        regs[LANDMARK] += 1
    n = regs[NEXT_LANDMARK] - regs[LANDMARK]
    if n == 0 or (n < LANDMARKS and number - history[_U((regs[NEXT_LANDMARK] - 1) % LANDMARKS), NUMBER] >= apart):
        history[_U(regs[NEXT_LANDMARK] % LANDMARKS), NUMBER] = number
        history[_U(regs[NEXT_LANDMARK] % LANDMARKS), FIRST_NODE] = next_node
        regs[NEXT_LANDMARK] += 1


@helper
def _note_in_history(history, ordinal, number, next_node):
    """Keep the number of an event, and the first node that it may make."""
    now = _U(ordinal & (history.shape[0] - 1))
    history[now, NUMBER] = number
    history[now, FIRST_NODE] = next_node


@helper
def _window_start(events, options, history, event, number):
    """Return the first number in the window that ends at an event."""
    low = np.int32(0)
    if _in_positions(options):
        low = np.int32(max(number - options.width, 0))
    elif options.window == GLOBAL_WINDOW:
        low = history[_U(events.lows[event] & (history.shape[0] - 1)), NUMBER]
    elif options.window == COUNT_WINDOW and number > options.width:
        low = np.int32(number - options.width)
    return low


# ---- space, and prefetching --------------------------------------------------------------------------------------


@helper
def _lacking(lists, arena, next_node, floor, n_states, max_moves):
    """Return the GROW status of what is too small for an event that `n_states` states act on, or DONE."""
    regs = lists.regs
    n_moves = (n_states + 1) * max_moves
    longest = regs[LONGEST] + n_moves + 2
    status = DONE
    if next_node + (n_states + n_moves) * (longest + 8) - floor > arena.mask or next_node > regs[LAST_NODE]:
        status = GROW_NODES
    elif PAIRS + 2 * longest > lists.slots.shape[1]:
        status = GROW_LISTS
    elif regs[N_FREE] < n_moves:
        status = GROW_SLOTS
    return status


@helper
def _look_ahead(partitions, lists, event):
    """Prefetch the partitions of events to come: the row of each, then its first two lists."""
    parts, slots = lists.parts, lists.slots
    prefetch(parts, _U(partitions[event + _U(_AHEAD)]) * _U(parts.shape[1]))
    slot = parts[_U(partitions[event + _U(_AHEAD - 8)]), HEAD]
    if slot >= 0:
        prefetch(slots, _U(slot) * _U(slots.shape[1]))
    slot = parts[_U(partitions[event + _U(_AHEAD - 16)]), HEAD]
    if slot >= 0:
        onward = slots[_U(slot), NEXT_SLOT]
        if onward >= 0:
            prefetch(slots, _U(onward) * _U(slots.shape[1]))


@helper
def _note_extras(events, arena, event):
    """Set the extras of the event's nodes to its time and place; their mark is that of a move."""
    time_column, place_column = arena.layout[TIME_COLUMN], arena.layout[PLACE_COLUMN]
    if time_column >= 0:
        arena.here[time_column] = events.times[event]
    if place_column >= 0:
        arena.here[place_column] = events.places[event] if events.places.shape[0] > 0 else events.positions[event]


# ---- steady symbols ---------------------------------------------------------------------------------------------


@helper
def _read_steady(events, options, numbering, tables, lists, arena, history, sources, i):
    """Read events that add to lists and change nothing else (`Determinization.steady`); return the first other one.

    The registers are those of one partition, and no event is open.
    """
    regs = lists.regs
    next_node, ordinal, floor = regs[NEXT_NODE], regs[ORDINAL], regs[FLOOR]
    first_one, n_events = i, events.symbols.shape[0]
    look_at = np.int64(-1)  # the number of an event at which landmarks are looked at again
    while i < n_events:
        event = _U(i)
        symbol = _U(events.symbols[event])
        n_sources = np.int64(tables.steady[symbol, _U(N_SOURCES)])
        if n_sources == NOT_STEADY:
            break
        number = np.int32(events.positions[event] - numbering.base)
        low = np.int32(0)
        if _in_positions(options):
            low = np.int32(max(number - options.width, 0))
            if number >= look_at:
                _pass_landmarks(history, regs, number, low, numbering.apart, next_node)
                floor = regs[FLOOR]
                look_at = number + numbering.apart
        elif options.window == GLOBAL_WINDOW:
            _note_in_history(history, ordinal, number, next_node)
            first = _U(events.lows[event] & (history.shape[0] - 1))
            low, floor = history[first, NUMBER], np.int64(history[first, FIRST_NODE])
        if _lacking(lists, arena, next_node, floor, n_sources, tables.max_moves) != DONE:
            break  # the other loop asks for it
        _note_extras(events, arena, event)
        i += 1
        ordinal += 1
        next_node = _extend_steady(tables, lists, arena, sources, symbol, n_sources, floor, low, number, next_node)
    if i > first_one:
        regs[NEXT_NODE], regs[ORDINAL], regs[FLOOR] = next_node, ordinal, floor
        lists.parts[_U(0), PREVIOUS] = events.positions[_U(i - 1)]
    return i


@helper
def _extend_steady(tables, lists, arena, sources, symbol, n_sources, floor, low, number, next_node):
    """Extend the lists of the sources of a steady symbol by the open event; return the next free id."""
    steady, slots, mark_column = tables.steady, lists.slots, arena.layout[MARK_COLUMN]
    # read all sources before any write; what is read of a single one stays in registers
    n_live = 0
    node, maximum = np.int32(BOTTOM), number
    for k in range(n_sources):
        row = _U(SOURCES + SOURCE_WIDTH * k)
        state = steady[symbol, row]
        begins = state == NO_STATE
        slot = lists.slot_of[_U(max(state, 0))]
        s = _U(max(slot, 0))
        top = tecs.max_of(slots, s, 0)
        if begins | ((slot >= 0) & (top >= low)):
            mark = steady[symbol, row + _U(SOURCE_MARK)]
            maximum = number if begins else top
            bottom = np.int32(BOTTOM_MARKED) if mark > 0 else np.int32(BOTTOM)
            node = bottom if begins else tecs.node_of(slots, s, 0)
            if not begins and slots[s, LENGTH] > 1:
                tecs.trim(slots, slot, low)
                next_node, node = tecs.merge(arena, lists, floor, slot, next_node)
            if n_sources > 1:
                live = _U(n_live)
                sources[live, MOVE], sources[live, MAXIMUM], sources[live, NODE] = row, maximum, node
            n_live += 1
    row = _U(SOURCES)
    for k in range(n_live):
        if n_sources > 1:
            live = _U(k)
            row, maximum, node = _U(sources[live, MOVE]), sources[live, MAXIMUM], sources[live, NODE]
        if mark_column >= 0:
            arena.here[mark_column] = steady[symbol, row + _U(SOURCE_MARK)]
        target = steady[symbol, row + _U(SOURCE_TARGET)]
        next_node = tecs.add_node(arena, lists, _U(0), floor, low, target, number, node, maximum, next_node)
    return next_node


# ---- other symbols ----------------------------------------------------------------------------------------------


@helper
def _enter(events, options, numbering, tables, lists, history, p, event, ordinal, number):
    """Open an event: switch to the lists of its partition, and let the window end at it."""
    regs = lists.regs
    tecs.enter(lists, p, tables.has_gaps, ordinal)
    if _in_positions(options):
        _pass_landmarks(history, regs, number, max(number - options.width, 0), numbering.apart, regs[NEXT_NODE])
    elif options.window == GLOBAL_WINDOW:
        _note_in_history(history, regs[ORDINAL], number, regs[NEXT_NODE])
        regs[FLOOR] = history[_U(events.lows[event] & (history.shape[0] - 1)), FIRST_NODE]


@helper
def _find_sources(tables, lists, sources, p, symbol, low):
    """Note the active states that do not stay on a symbol; return how many, or -1 where a step is not known.

    Lists that have left the window, and those of states that die, are released.
    """
    steps, touched, slots, slot_of = tables.steps, tables.touched, lists.slots, lists.slot_of
    missing = False
    n_live = 0
    # papers: keys(T); here those listed for the symbol, or all that are active; others may have left the window unseen
    listed = touched[symbol, 0] != EVERY
    a = _U(0)
    slot = lists.parts[p, HEAD]
    while True:
        if listed:
            candidate = touched[symbol, a]
            if candidate == END_OF_LIST:
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
            tecs.release(lists, p, slot)
        elif step != STAY:
            missing |= step == UNKNOWN
            live = _U(n_live)
            sources[live, SLOT], sources[live, SOURCE], sources[live, MOVE] = slot, state, step
            n_live += 1
        slot = onward
    return -1 if missing else n_live


@helper
def _merge_sources(tables, lists, arena, sources, n_live, floor, low, next_node):
    """Note the node and the maximum of each source before any is written; return the next free id.

    A state may be source and target of the same event.  papers: ``merge`` in ExecTrans, for all sources at once.
    """
    moves = tables.moves
    for k in range(n_live):
        live = _U(k)
        slot = sources[live, SLOT]
        state = sources[live, SOURCE]
        move = _U(sources[live, MOVE])
        stays = False
        makes_node = False
        while True:
            flags = moves[move, FLAGS]
            makes_node |= moves[move, MARK] > 0 or flags & OUTPUT_MOVE != 0
            stays |= moves[move, MARK] == 0 and moves[move, TARGET] == state
            if flags & LAST_MOVE:
                break
            move += _U(1)
        tecs.trim(lists.slots, slot, low)
        sources[live, STAYS] = stays
        sources[live, MAXIMUM] = tecs.max_of(lists.slots, _U(slot), 0)
        if makes_node:
            next_node, merged = tecs.merge(arena, lists, floor, slot, next_node)
            sources[live, NODE] = merged
        if not stays:
            lists.slot_of[_U(state)] = -1
    return next_node


@helper
def _note_root(listing, n_roots, node, is_extended, mark):
    """Note that the matches of a node end at the open event; return how many such nodes there are."""
    roots = listing.roots
    roots[n_roots, 0] = node
    roots[n_roots, 1] = is_extended
    roots[n_roots, 2] = mark
    return n_roots + 1


@helper
def _write_targets(tables, lists, arena, listing, sources, n_live, p, floor, low, number, next_node):
    """Make the moves of all sources, and note where matches end; return (next free id, roots).

    papers: procedure ExecTrans for each active state.
    """
    moves, mark_column = tables.moves, arena.layout[MARK_COLUMN]
    n_roots = 0
    for k in range(n_live):
        live = _U(k)
        slot = sources[live, SLOT]
        move = _U(sources[live, MOVE])
        placed = sources[live, STAYS] != 0
        while True:
            mark, target, flags = moves[move, MARK], moves[move, TARGET], moves[move, FLAGS]
            if flags & OUTPUT_MOVE:
                n_roots = _note_root(listing, n_roots, sources[live, NODE], mark > 0, mark)
            if target >= 0:
                if mark > 0:
                    if mark_column >= 0:
                        arena.here[mark_column] = mark
                    next_node = tecs.add_node(arena, lists, p, floor, low, target, number, sources[live, NODE],
                                              sources[live, MAXIMUM], next_node)  # fmt: skip
                elif target != sources[live, SOURCE]:
                    placed = True
                    next_node = tecs.add_list(arena, lists, p, floor, low, target, slot, next_node)
            if flags & LAST_MOVE:
                break
            move += _U(1)
        if not placed:
            tecs.release(lists, p, slot)
    return next_node, n_roots


@helper
def _begin_run(tables, lists, arena, listing, begins, p, floor, low, number, next_node, n_roots):
    """Make the moves of a run that begins at the open event; return (next free id, roots).

    papers: procedure ExecTrans for the initial state, with a new bottom node in place of a list.
    """
    moves, mark_column = tables.moves, arena.layout[MARK_COLUMN]
    move = _U(begins)
    while True:
        mark, target, flags = moves[move, MARK], moves[move, TARGET], moves[move, FLAGS]
        bottom = np.int32(BOTTOM_MARKED) if mark > 0 else np.int32(BOTTOM)
        if flags & OUTPUT_MOVE:
            n_roots = _note_root(listing, n_roots, bottom, False, mark)
        if target >= 0:
            if mark_column >= 0:
                arena.here[mark_column] = mark
            next_node = tecs.add_node(arena, lists, p, floor, low, target, number, bottom, number, next_node)
        if flags & LAST_MOVE:
            break
        move += _U(1)
    return next_node, n_roots


@helper
def _step(events, tables, lists, arena, listing, sources, p, event, low, number):
    """Step over the gap before the open event, or over the event; return (a status, roots, whether it was the event).

    papers: the body of procedure Evaluation.
    """
    regs, parts = lists.regs, lists.parts
    symbol = _U(events.symbols[event]) if regs[GAP_DONE] else _U(QUIET)
    control = _U(parts[p, CONTROL])
    begins = tables.fresh[symbol, control, FIRST_MOVE]
    floor, next_node, n_roots = regs[FLOOR], regs[NEXT_NODE], 0
    n_live = _find_sources(tables, lists, sources, p, symbol, low)
    status = NEED_STEP if n_live < 0 or begins == UNKNOWN else DONE
    if status == DONE:
        n_states = max(np.int64(n_live), np.int64(tables.steady[symbol, _U(N_SOURCES)]))
        status = _lacking(lists, arena, next_node, floor, n_states, tables.max_moves)
    else:
        regs[WANTED] = symbol
    if status == DONE:
        next_node = _merge_sources(tables, lists, arena, sources, n_live, floor, low, next_node)
        _note_extras(events, arena, event)
        next_node, n_roots = _write_targets(tables, lists, arena, listing, sources, n_live, p, floor, low, number,
                                            next_node)  # fmt: skip
        if begins >= 0:
            next_node, n_roots = _begin_run(tables, lists, arena, listing, begins, p, floor, low, number, next_node,
                                            n_roots)  # fmt: skip
        parts[p, CONTROL] = tables.fresh[symbol, control, NEXT_CONTROL]
        regs[NEXT_NODE] = next_node
    return status, n_roots


@helper
def _close(options, lists, p, n_roots, listed):
    """Note that matches end at the open event, and forget what they consume."""
    regs = lists.regs
    regs[OPEN] = LISTED
    regs[N_ROOTS] = n_roots if listed else 0
    regs[ROOT] = 0
    regs[N_HERE] = 0
    regs[WEIGHED] = 0
    if n_roots > 0:
        tecs.consume(lists, p, options.consume)


@kernel
def evaluate_events(events, options, numbering, tables, lists, arena, listing, shard, output, history, sources):
    """Feed relevant events to the automaton, from register EVENT on, until all are read or something is needed.

    papers: procedure Evaluation.

    Parameters
    ----------
    events : Events
    options : Options
    numbering : Numbering
    tables : Tables
    lists : Lists
    arena : Arena
    listing : Listing
    shard : Shard
    output : Matches
    history : int32, shape (2**history, 2), written
        For GLOBAL_WINDOW, NUMBER and FIRST_NODE of each relevant event, by ordinal; where it is measured in positions,
        of `LANDMARKS` of them.
    sources : int32, shape (states + 1, N_SOURCE), written
        The lists that an event moves.

    Returns
    -------
    int
        A `Status`.
    """
    events, options, numbering, tables = Events(*events), Options(*options), Numbering(*numbering), Tables(*tables)
    lists, arena, listing, shard = Lists(*lists), Arena(*arena), Listing(*listing), Shard(*shard)
    output = Matches(*output)
    regs, parts = lists.regs, lists.parts
    n_events = events.symbols.shape[0]
    partitioned = events.partitions.shape[0] > 0
    timed = arena.layout[TIME_COLUMN] >= 0
    quickly = not (partitioned or tables.has_gaps)
    status = DONE
    i = regs[EVENT]
    while i < n_events:
        if quickly and regs[OPEN] == BETWEEN and regs[CURRENT] == 0:
            i = _read_steady(events, options, numbering, tables, lists, arena, history, sources, i)
            if i == n_events:
                break
        event = _U(i)
        if partitioned and i + _AHEAD < n_events:
            _look_ahead(events.partitions, lists, event)
        position = events.positions[event]
        place = events.places[event] if events.places.shape[0] > 0 else position
        p = _U(events.partitions[event]) if partitioned else _U(0)
        ordinal = events.ordinals[event] if events.ordinals.shape[0] > 0 else position
        origin = parts[p, ORIGIN] if numbering.by_partition else numbering.base
        if numbering.by_partition and ordinal - origin > MAX_NUMBER:
            status = RENUMBER
            break
        number = np.int32((ordinal if numbering.by_partition else position) - origin)
        if regs[OPEN] == BETWEEN:
            _enter(events, options, numbering, tables, lists, history, p, event, ordinal, number)
        low = _window_start(events, options, history, event, number)
        while regs[OPEN] == ENTERED and status == DONE:
            last = regs[GAP_DONE]
            status, n_roots = _step(events, tables, lists, arena, listing, sources, p, event, low, number)
            if status == DONE:
                regs[GAP_DONE] = 1
                if last:
                    _close(options, lists, p, n_roots, place >= options.report_from)
        if status == DONE and regs[ROOT] < regs[N_ROOTS]:
            time = events.times[event] if timed else np.int64(0)
            status = list_roots(arena, lists, listing, shard, low, place, time, numbering.base, options.limit,
                                     output)  # fmt: skip
        if status != DONE:
            break
        regs[OPEN] = BETWEEN
        parts[p, PREVIOUS] = ordinal
        regs[ORDINAL] += 1
        i += 1
    regs[EVENT] = i
    return status
