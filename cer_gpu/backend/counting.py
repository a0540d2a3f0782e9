"""Exact number of matches that end at each position, without listing them.

A determinised run stands for one match, so that matches are counted by counting runs.  Each active
state has a row of numbers in place of a union list: a union adds rows, a move adds a row to another.  Runs that the
window drops leave the sums as in a queue made of two stacks: at a *boundary* all active states get a column of their
own, and column 0 counts the runs that began since.  For each event up to the boundary, `front` has the number of runs
that began from it on and were in each of those states; the first event in the window says what the columns are worth.
When that first event passes the boundary, a new one is made, and `front` is filled by one walk back over the window:
constant time for each event, but for the number of states.

Numbers are those of `cer_gpu.backend.saturating`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import (
    FIRST_MOVE,
    FLAGS,
    GLOBAL_WINDOW,
    LAST_MOVE,
    MARK,
    NEXT_CONTROL,
    NO_STATE,
    NO_WINDOW,
    OUTPUT_MOVE,
    QUIET,
    STAY,
    TARGET,
    UNKNOWN,
)
from cer_gpu.backend import tecs
from cer_gpu.backend.arguments import Counts, Events, Options, Tables
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.saturating import MAX_SIGNED, plus, times
from cer_gpu.backend.status import DONE, GROW_LISTS, GROW_NODES, GROW_SLOTS, NEED_STEP, OUTPUT_FULL, TOO_MANY
from cer_gpu.backend.tecs import (
    BETWEEN,
    CONTROL,
    ENTERED,
    EVENT,
    FLOOR,
    GAP_DONE,
    HEAD,
    N_FREE,
    N_OUT,
    NEXT_NODE,
    NEXT_SLOT,
    OPEN,
    ORDINAL,
    PREVIOUS,
    STATE,
    WANTED,
    Lists,
)

# a partition, beyond what `tecs` has: its last record, the first one in the window up to the boundary, the boundary,
# the last column that it made, and the number of the first event after it (-1 if there is none)
LAST_RECORD, FRONT, BOUNDARY, LAST_COLUMN, FIRST_BACK, N_PART = range(tecs.N_PART, tecs.N_PART + 6)

# a slot: the latest start of its runs stands where a union list has its first maximum
LATEST = tecs.PAIRS + 1
N_SLOT = tecs.PAIRS + 2

# a record of a relevant event
SYMBOL, BEFORE, GAP, NUMBER, PREVIOUS_RECORD, NEXT_RECORD, N_RECORD = range(7)

# columns of `sources`: the slot of a state, the first of its moves, its latest start, and the state that it stays in
SLOT, MOVE, LATEST_START, STAYS_AT, N_SOURCE = range(5)

_U = np.uint64
_ONE = np.uint64(1)


class Records(NamedTuple):
    """The relevant events of the windows, and how many runs began from each on.

    Attributes
    ----------
    records : int64, shape (2**ring, N_RECORD), written
        The record of each id at ``id & mask``; those before register FLOOR are gone.
    front : uint64, shape (2**ring, columns), written
    ways : uint64, shape (2, states, columns), written
        Scratch of `_set_boundary`: the ways from each state to the columns, before and after an event.
    """

    records: Any
    front: Any
    ways: Any


class ActiveStates(NamedTuple):
    """The numbers of active states, and those that an event moves.

    Attributes
    ----------
    rows : uint64, shape (slots, columns), written
    sources : int64, shape (states, N_SOURCE), written
        The states that the event moves.
    copies : uint64, shape (states, columns), written
        Their rows, before any is written.
    """

    rows: Any
    sources: Any
    copies: Any


# ---- the window -------------------------------------------------------------------------------------------------


@helper
def _advance_front(parts, p, records, oldest, options, low, first):
    """Set FRONT to the first record in the window up to the boundary.

    Under GLOBAL_WINDOW `first` is the first id in it; `oldest` is the first that is not overwritten.
    """
    mask = records.shape[0] - 1
    front = parts[p, FRONT]
    boundary = parts[p, BOUNDARY]
    if front >= 0 and options.window == GLOBAL_WINDOW:
        if boundary < first:
            front = np.int64(-1)
        elif front < oldest:
            # look from the boundary back, over no more than a window; it takes another one to overwrite the front again
            front = boundary
            while records[_U(front & mask), PREVIOUS_RECORD] >= first:
                front = records[_U(front & mask), PREVIOUS_RECORD]
    while front >= 0 and records[_U(front & mask), NUMBER] < low:
        front = np.int64(-1) if front == boundary else records[_U(front & mask), NEXT_RECORD]
    parts[p, FRONT] = front


@helper
def _begin_columns(lists, rows, ways, p, n_states):
    """Give each active state a column of its own, in which there is one way to it; return how many there are."""
    slots = lists.slots
    n_columns = 0
    for q in range(n_states):
        for c in range(ways.shape[2]):
            ways[0, _U(q), _U(c)] = _U(0)
    slot = lists.parts[p, HEAD]
    while slot >= 0:
        s = _U(slot)
        n_columns += 1
        for c in range(rows.shape[1]):
            rows[s, _U(c)] = _U(0)
        rows[s, _U(n_columns)] = _ONE
        ways[0, _U(slots[s, STATE]), _U(n_columns - 1)] = _ONE
        slot = slots[s, NEXT_SLOT]
    return n_columns


@helper
def _step_back(tables, ways, now, symbol, n_states, n_columns):
    """Write the ways from before an event on to the other half of `ways`; return the number of that half."""
    steps, moves = tables.steps, tables.moves
    before = _U(1 - now)
    for q in range(n_states):
        step = steps[symbol, _U(q)]
        for c in range(n_columns):
            same = ways[_U(now), _U(q), _U(c)]
            ways[before, _U(q), _U(c)] = same if step == STAY else _U(0)
        if step >= 0:
            move = step
            while True:
                target = moves[_U(move), TARGET]
                if target >= 0:
                    for c in range(n_columns):
                        way = ways[_U(now), _U(target), _U(c)]
                        ways[before, _U(q), _U(c)] = plus(ways[before, _U(q), _U(c)], way)
                if moves[_U(move), FLAGS] & LAST_MOVE:
                    break
                move += 1
    return 1 - now


@helper
def _set_boundary(options, tables, lists, rows, window, p, n_states, low, first):
    """Make the present the boundary: a column for each active state, and `front` for each event in the window."""
    parts, records, front, ways = lists.parts, window.records, window.front, window.ways
    fresh, moves = tables.fresh, tables.moves
    mask = records.shape[0] - 1
    n_columns = _begin_columns(lists, rows, ways, p, n_states)
    last = parts[p, LAST_RECORD]
    parts[p, LAST_COLUMN] = n_columns - 1
    parts[p, FRONT] = parts[p, FIRST_BACK] = -1
    parts[p, BOUNDARY] = record = last
    now = 0
    while record >= 0 and (options.window != GLOBAL_WINDOW or record >= first):
        r = _U(record & mask)
        if records[r, NUMBER] < low:
            break
        symbol, control, gap = _U(records[r, SYMBOL]), _U(records[r, BEFORE]), records[r, GAP]
        if gap:
            control = _U(fresh[_U(QUIET), control, NEXT_CONTROL])
        # runs that begin at this event, and those that begin later
        for c in range(n_columns):
            front[r, _U(c)] = _U(0) if record == last else front[_U(parts[p, FRONT] & mask), _U(c)]
        move = fresh[symbol, control, FIRST_MOVE]
        while move >= 0:
            target = moves[_U(move), TARGET]
            if target >= 0:
                for c in range(n_columns):
                    front[r, _U(c)] = plus(front[r, _U(c)], ways[_U(now), _U(target), _U(c)])
            move = np.int32(-1) if moves[_U(move), FLAGS] & LAST_MOVE else move + 1
        parts[p, FRONT] = record
        now = _step_back(tables, ways, now, symbol, n_states, n_columns)
        if gap:
            now = _step_back(tables, ways, now, _U(QUIET), n_states, n_columns)
        record = records[r, PREVIOUS_RECORD]


@helper
def _enter(options, tables, lists, records, p, symbol, ordinal, number):
    """Open an event: switch to the lists of its partition, and write its record."""
    regs, parts = lists.regs, lists.parts
    tecs.enter(lists, p, tables.has_gaps, ordinal)
    if options.window != NO_WINDOW:
        r = _U(regs[NEXT_NODE] & (records.shape[0] - 1))
        records[r, SYMBOL] = symbol
        records[r, BEFORE] = parts[p, CONTROL]
        records[r, GAP] = 1 - regs[GAP_DONE]
        records[r, NUMBER] = number
        records[r, PREVIOUS_RECORD] = parts[p, LAST_RECORD]
        records[r, NEXT_RECORD] = -1


@helper
def _link_record(lists, records, p, oldest, number):
    """Let the record of the open event be the last one of its partition."""
    regs, parts = lists.regs, lists.parts
    newest = regs[NEXT_NODE]
    last = parts[p, LAST_RECORD]
    if last >= oldest:
        records[_U(last & (records.shape[0] - 1)), NEXT_RECORD] = newest
    parts[p, LAST_RECORD] = newest
    if parts[p, FIRST_BACK] < 0:
        parts[p, FIRST_BACK] = number
    regs[NEXT_NODE] += 1


# ---- one event --------------------------------------------------------------------------------------------------


@helper
def _drop_expired(lists, p, low):
    """Release the states whose latest start has left the window; return how many are left."""
    slots = lists.slots
    n_live = 0
    slot = lists.parts[p, HEAD]
    while slot >= 0:
        s = _U(slot)
        onward = slots[s, NEXT_SLOT]
        if slots[s, LATEST] < low:
            lists.slot_of[_U(slots[s, STATE])] = -1
            tecs.release(lists, p, slot)
        else:
            n_live += 1
        slot = onward
    return n_live


@helper
def _find_sources(tables, lists, sources, p, symbol):
    """Note the active states that do not stay on a symbol; return how many, or -1 where a step is not known."""
    slots = lists.slots
    missing = False
    n_live = 0
    slot = lists.parts[p, HEAD]
    while slot >= 0:
        s = _U(slot)
        step = tables.steps[symbol, _U(slots[s, STATE])]
        if step != STAY:
            missing |= step == UNKNOWN
            sources[_U(n_live), SLOT], sources[_U(n_live), MOVE] = slot, step
            n_live += 1
        slot = slots[s, NEXT_SLOT]
    return -1 if missing else n_live


@helper
def _copy_sources(tables, lists, numbers, n_live, p, n_columns):
    """Copy the row of each source before any is written, and release those that do not stay where they are."""
    slots, moves, sources = lists.slots, tables.moves, numbers.sources
    for k in range(n_live):
        live = _U(k)
        s = _U(sources[live, SLOT])
        state = slots[s, STATE]
        for c in range(n_columns + 1):
            numbers.copies[live, _U(c)] = numbers.rows[s, _U(c)]
        sources[live, LATEST_START] = slots[s, LATEST]
        stays = False
        move = _U(sources[live, MOVE])
        while True:
            stays |= moves[move, MARK] == 0 and moves[move, TARGET] == state
            if moves[move, FLAGS] & LAST_MOVE:
                break
            move += _ONE
        if not stays:
            lists.slot_of[_U(state)] = -1
            tecs.release(lists, p, sources[live, SLOT])
        sources[live, STAYS_AT] = state if stays else NO_STATE


@helper
def _slot_for(lists, rows, p, state):
    """Return the slot of a state, which is made if there is none."""
    slot = lists.slot_of[_U(state)]
    if slot >= 0:
        s = _U(slot)
    else:
        s = tecs.take_slot(lists, p, state)
        lists.slots[s, LATEST] = -1
        for c in range(lists.parts[p, LAST_COLUMN] + 2):
            rows[s, _U(c)] = _U(0)
    return s


@helper
def _n_ending(lists, window, copies, live, p, n_columns):
    """Return how many runs in the window the copied row of a source stands for."""
    total = copies[live, 0]
    if lists.parts[p, FRONT] >= 0:
        f = _U(lists.parts[p, FRONT] & (window.records.shape[0] - 1))
        for c in range(n_columns):
            total = plus(total, times(copies[live, _U(c + 1)], window.front[f, _U(c)]))
    return total


@helper
def _write_targets(tables, lists, numbers, window, n_live, p, begins, number, n_columns):
    """Add the rows of the sources, and a run that begins, to those of their targets; return how many runs end.

    papers: procedure ExecTrans, with numbers in place of union lists.
    """
    slots, moves, rows, sources, copies = lists.slots, tables.moves, numbers.rows, numbers.sources, numbers.copies
    total = _U(0)
    for k in range(n_live):
        live = _U(k)
        move = _U(sources[live, MOVE])
        while True:
            mark, target, flags = moves[move, MARK], moves[move, TARGET], moves[move, FLAGS]
            if flags & OUTPUT_MOVE:
                total = plus(total, _n_ending(lists, window, copies, live, p, n_columns))
            if target >= 0 and not (mark == 0 and target == sources[live, STAYS_AT]):
                s = _slot_for(lists, rows, p, target)
                slots[s, LATEST] = max(slots[s, LATEST], sources[live, LATEST_START])
                for c in range(n_columns + 1):
                    rows[s, _U(c)] = plus(rows[s, _U(c)], copies[live, _U(c)])
            if flags & LAST_MOVE:
                break
            move += _ONE
    while begins >= 0:
        target, flags = moves[_U(begins), TARGET], moves[_U(begins), FLAGS]
        if flags & OUTPUT_MOVE:
            total = plus(total, _ONE)
        if target >= 0:
            s = _slot_for(lists, rows, p, target)
            slots[s, LATEST] = number
            rows[s, 0] = plus(rows[s, 0], _ONE)
        begins = np.int32(-1) if flags & LAST_MOVE else begins + 1
    return total


@helper
def _count_step(tables, lists, numbers, window, p, symbol, number, n_columns):
    """Step over a gap or an event of this symbol; return (a status, how many runs end)."""
    regs, parts = lists.regs, lists.parts
    control = _U(parts[p, CONTROL])
    begins = tables.fresh[symbol, control, FIRST_MOVE]
    n_live = _find_sources(tables, lists, numbers.sources, p, symbol)
    status, total = DONE, _U(0)
    if n_live < 0 or begins == UNKNOWN:
        regs[WANTED] = symbol
        status = NEED_STEP
    elif regs[N_FREE] < (n_live + 1) * tables.max_moves:
        status = GROW_SLOTS
    else:
        _copy_sources(tables, lists, numbers, n_live, p, n_columns)
        total = _write_targets(tables, lists, numbers, window, n_live, p, begins, number, n_columns)
        parts[p, CONTROL] = tables.fresh[symbol, control, NEXT_CONTROL]
        regs[OPEN] = BETWEEN if regs[GAP_DONE] else ENTERED
        regs[GAP_DONE] = 1
    return status, total


@helper
def _write_count(events, options, lists, output, p, event, place, total):
    """Write how many matches end at the open event, and forget what they consume."""
    regs = lists.regs
    if place >= options.report_from:
        out = _U(regs[N_OUT])
        output.ends[out] = place
        output.counts[out] = np.int64(total)
        if output.times.shape[0] > 0:
            output.times[out] = events.times[event]
        regs[N_OUT] += 1
    tecs.consume(lists, p, options.consume)


@kernel
def count_events(events, options, tables, lists, numbers, window, output, n_states):
    """Feed relevant events to the automaton, as `cer_gpu.backend.evaluation.evaluate_events`, and count what ends.

    Parameters
    ----------
    events : Events
    options : Options
    tables : Tables
    lists : Lists
        Slots have N_SLOT columns: the header of `cer_gpu.backend.tecs`, and LATEST.
    numbers : ActiveStates
    window : Records
    output : Counts
    n_states : int
        Number of determinised states.

    Returns
    -------
    int
        A `Status`.
    """
    events, options, tables, lists = Events(*events), Options(*options), Tables(*tables), Lists(*lists)
    numbers, window, output = ActiveStates(*numbers), Records(*window), Counts(*output)
    regs, parts, records = lists.regs, lists.parts, window.records
    mask, rows = records.shape[0] - 1, numbers.rows
    windowed, globally = options.window != NO_WINDOW, options.window == GLOBAL_WINDOW
    partitioned, counted = events.partitions.shape[0] > 0, events.ordinals.shape[0] > 0
    status = DONE
    i = regs[EVENT]
    while i < events.symbols.shape[0]:
        event = _U(i)
        position = events.positions[event]
        place = events.places[event] if events.places.shape[0] > 0 else position
        p = _U(events.partitions[event]) if partitioned else _U(0)
        ordinal = events.ordinals[event] if counted else position
        number = position if globally else ordinal
        newest = regs[NEXT_NODE]
        first = events.lows[event] if globally else np.int64(0)
        if regs[OPEN] == BETWEEN:
            # twice the space of a window, so that records are overwritten only long after they have left it
            n_needed = 2 * (newest - first) if globally else newest
            if windowed and n_needed > mask:
                status = GROW_NODES
                break
            if regs[N_OUT] >= output.ends.shape[0]:
                status = OUTPUT_FULL
                break
            _enter(options, tables, lists, records, p, events.symbols[event], ordinal, number)
        low = np.int64(-1)
        if globally:
            low = records[_U(first & mask), NUMBER]
        elif windowed:
            low = number - options.width
        oldest = max(regs[FLOOR], newest - mask)
        if _drop_expired(lists, p, low) + 2 > rows.shape[1]:
            status = GROW_LISTS
            break
        if windowed:
            _advance_front(parts, p, records, oldest, options, low, first)
            if 0 <= parts[p, FIRST_BACK] < low:
                _set_boundary(options, tables, lists, rows, window, p, n_states, low, first)
        n_columns = parts[p, LAST_COLUMN] + 1
        total = _U(0)
        while regs[OPEN] == ENTERED and status == DONE:
            symbol = _U(events.symbols[event]) if regs[GAP_DONE] else _U(QUIET)
            status, n_ended = _count_step(tables, lists, numbers, window, p, symbol, number, n_columns)
            total = plus(total, n_ended)
        if status != DONE:
            break
        if options.limit > 0:
            total = min(total, _U(options.limit))
        if total > MAX_SIGNED:
            status = TOO_MANY
            break
        if windowed:
            _link_record(lists, records, p, oldest, number)
        if total > _U(0):
            _write_count(events, options, lists, output, p, event, place, total)
        parts[p, PREVIOUS] = ordinal
        regs[ORDINAL] += 1
        i += 1
    regs[EVENT] = i
    return status


@kernel
def compact_records(lists, options, window, n_parts, new_ids):
    """Move the records that are in the windows of their partitions together (COUNT_WINDOW).

    Parameters
    ----------
    lists : Lists
    options : Options
    window : Records
    n_parts : int
        Number of partitions.
    new_ids : int64, shape (2**ring,), written
        All -1 before.
    """
    lists, options, window = Lists(*lists), Options(*options), Records(*window)
    parts, regs, records, front, width = lists.parts, lists.regs, window.records, window.front, options.width
    for i in range(n_parts):
        p = _U(i)
        low = parts[p, PREVIOUS] + 1 - width
        oldest = np.int64(-1)
        record = parts[p, LAST_RECORD]
        while record >= 0 and records[_U(record), NUMBER] >= low:
            new_ids[_U(record)] = 1
            oldest = record
            record = records[_U(record), PREVIOUS_RECORD]
        if oldest < 0:
            parts[p, LAST_RECORD] = -1
            parts[p, FRONT] = -1
        else:
            records[_U(oldest), PREVIOUS_RECORD] = -1
            if parts[p, FRONT] >= 0 and new_ids[_U(parts[p, FRONT])] < 0:
                parts[p, FRONT] = oldest if oldest <= parts[p, BOUNDARY] else -1
    alive = np.int64(0)
    for i in range(regs[NEXT_NODE]):
        if new_ids[_U(i)] >= 0:
            new_ids[_U(i)] = alive
            alive += 1
    for i in range(regs[NEXT_NODE]):
        to = new_ids[_U(i)]
        if to >= 0:
            for c in range(records.shape[1]):
                records[_U(to), _U(c)] = records[_U(i), _U(c)]
            for link in range(PREVIOUS_RECORD, NEXT_RECORD + 1):
                other = records[_U(to), _U(link)]
                if other >= 0:
                    records[_U(to), _U(link)] = new_ids[_U(other)]
            for c in range(front.shape[1]):
                front[_U(to), _U(c)] = front[_U(i), _U(c)]
    for i in range(n_parts):
        p = _U(i)
        if parts[p, FRONT] >= 0:
            parts[p, FRONT] = new_ids[_U(parts[p, FRONT])]
            parts[p, BOUNDARY] = new_ids[_U(parts[p, BOUNDARY])]
        if parts[p, LAST_RECORD] >= 0:
            parts[p, LAST_RECORD] = new_ids[_U(parts[p, LAST_RECORD])]
    regs[NEXT_NODE] = alive
