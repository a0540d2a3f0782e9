"""How many complex events end at each position, exactly and without listing them.

A determinised run stands for one complex event, so that complex events are counted by counting runs.  Each active
state has a row of numbers in place of a union list: a union adds rows, a move adds a row to another.  What the window
drops is found as a queue finds its sum with two stacks: at a *boundary* all active states get a column of their own,
and column 0 counts the runs that began since.  For each event up to the boundary, `front` has the number of runs that
began from it on and were in each of those states; the first event in the window says what the columns are worth.
Where that first event passes the boundary, a new one is made, and `front` is filled by one walk back over the window:
constant time for each event, but for the number of states.

Numbers are those of `cer_gpu.backend.saturating`.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.automaton.encoding import (
    CONSUME_ANY,
    CONSUME_NONE,
    FIRST_MOVE,
    FLAGS,
    GLOBAL_WINDOW,
    LAST,
    MARK,
    NEXT_CONTROL,
    NO_WINDOW,
    OUTPUT,
    QUIET,
    STAY,
    TARGET,
    UNKNOWN,
)
from cer_gpu.backend import tecs
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.saturating import MOST_SIGNED, plus, times
from cer_gpu.backend.status import DONE, GROW_LISTS, GROW_NODES, GROW_SLOTS, NEED_STEP, OUTPUT_FULL, TOO_MANY
from cer_gpu.backend.tecs import (
    CONSUMED,
    CONTROL,
    CURRENT,
    EPOCH,
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
)

# a partition, beyond what `tecs` has: its last record, the first one in the window up to the boundary, the boundary,
# the last column that it made, and the number of the first event after it (-1: there is none)
LAST_RECORD, FRONT, BOUNDARY, LAST_COLUMN, FIRST_BACK, N_PART = range(tecs.N_PART, tecs.N_PART + 6)

# a slot: the latest start of its runs stands where a union list has its first maximum
LATEST = tecs.PAIRS + 1
N_SLOT = tecs.PAIRS + 2

# a record of a relevant event
SYMBOL, BEFORE, GAP, NUMBER, PREVIOUS_RECORD, NEXT_RECORD = range(6)

_U = np.uint64
_ONE = np.uint64(1)


@helper
def _slot_for(slots, parts, rows, regs, slot_of, p, state):
    """Return the slot of a state, which is made if there is none."""
    slot = slot_of[_U(state)]
    if slot >= 0:
        s = _U(slot)
    else:
        s = tecs.take_slot(slots, parts, slot_of, regs, p, state)
        slots[s, LATEST] = -1
        for c in range(parts[p, LAST_COLUMN] + 2):
            rows[s, _U(c)] = _U(0)
    return s


@helper
def _advance_front(parts, p, records, mask, oldest, window, low, first):
    """Let FRONT be the first record in the window up to the boundary.

    Under GLOBAL_WINDOW `first` is the first id in it; `oldest` is the first that is not overwritten.
    """
    front = parts[p, FRONT]
    boundary = parts[p, BOUNDARY]
    if front >= 0 and window == GLOBAL_WINDOW:
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
def _set_boundary(parts, p, slots, rows, records, mask, front, ways, steps, fresh, moves, n_states, window, low, first):
    """Make the present the boundary: a column for each active state, and `front` for each event in the window."""
    n_columns = 0
    for q in range(n_states):
        for c in range(ways.shape[2]):
            ways[0, _U(q), _U(c)] = _U(0)
    slot = parts[p, HEAD]
    while slot >= 0:
        s = _U(slot)
        n_columns += 1
        for c in range(rows.shape[1]):
            rows[s, _U(c)] = _U(0)
        rows[s, _U(n_columns)] = _ONE
        ways[0, _U(slots[s, STATE]), _U(n_columns - 1)] = _ONE
        slot = slots[s, NEXT_SLOT]
    parts[p, LAST_COLUMN] = n_columns - 1
    parts[p, FRONT] = -1
    parts[p, FIRST_BACK] = -1
    last = parts[p, LAST_RECORD]
    parts[p, BOUNDARY] = last
    record = last
    now = 0
    while record >= 0 and (window != GLOBAL_WINDOW or record >= first):
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
        if move >= 0:
            while True:
                target = moves[_U(move), TARGET]
                if target >= 0:
                    for c in range(n_columns):
                        front[r, _U(c)] = plus(front[r, _U(c)], ways[_U(now), _U(target), _U(c)])
                if moves[_U(move), FLAGS] & LAST:
                    break
                move += 1
        parts[p, FRONT] = record
        # ways from before the event on
        for part in range(2):
            if part == 1:
                if not gap:
                    break
                symbol = _U(QUIET)
            for q in range(n_states):
                step = steps[symbol, _U(q)]
                for c in range(n_columns):
                    same = ways[_U(now), _U(q), _U(c)]
                    ways[_U(1 - now), _U(q), _U(c)] = same if step == STAY else _U(0)
                if step >= 0:
                    move = step
                    while True:
                        target = moves[_U(move), TARGET]
                        if target >= 0:
                            for c in range(n_columns):
                                ways[_U(1 - now), _U(q), _U(c)] = plus(
                                    ways[_U(1 - now), _U(q), _U(c)], ways[_U(now), _U(target), _U(c)]
                                )
                        if moves[_U(move), FLAGS] & LAST:
                            break
                        move += 1
            now = 1 - now
        record = records[r, PREVIOUS_RECORD]


@kernel
def count_events(
    symbols,
    positions,
    places,
    partitions,
    ordinals,
    lows,
    clocks,
    window,
    width,
    consume,
    has_gaps,
    limit,
    first_end,
    steps,
    fresh,
    moves,
    max_moves,
    n_states,
    regs,
    parts,
    slots,
    rows,
    slot_of,
    records,
    front,
    scratch,
    copies,
    ways,
    out_ends,
    out_counts,
    out_times,
):
    """Feed relevant events to the automaton, as `cer_gpu.backend.evaluation.run_events`, and count what ends.

    Parameters
    ----------
    symbols, ..., max_moves
        As for `run_events`.
    n_states : int
        Determinised states.
    regs, slot_of
        As for `run_events`.
    parts : int64, shape (partitions, N_PART)
    slots : int64, shape (slots, N_SLOT)
        The header of `cer_gpu.backend.tecs`, and LATEST.
    rows : uint64, shape (slots, columns)
    records : int64, shape (a power of two, 6)
        The relevant events of the windows, at ``id & mask``; none before register FLOOR is there.
    front : uint64, shape (as many, columns)
    scratch, copies, ways : int64 (states, 4), uint64 (states, columns), uint64 (2, states, columns)
    out_ends, out_counts, out_times : int64, shape (rows,)

    Returns
    -------
    int
        A `Status`.
    """
    mask = records.shape[0] - 1
    n_events = symbols.shape[0]
    partitioned = partitions.shape[0] > 0
    counted = ordinals.shape[0] > 0
    i = regs[EVENT]
    while i < n_events:
        event = _U(i)
        position = positions[event]
        place = places[event] if places.shape[0] > 0 else position
        p = _U(partitions[event]) if partitioned else _U(0)
        moment = ordinals[event] if counted else position
        number = position if window == GLOBAL_WINDOW or not counted else moment
        newest = regs[NEXT_NODE]
        if regs[OPEN] == 0:
            first = lows[event] if window == GLOBAL_WINDOW else np.int64(0)
            # twice the room of a window, so that records are overwritten only long after they have left it
            room = 2 * (newest - first) if window == GLOBAL_WINDOW else newest
            if window != NO_WINDOW and room > mask:
                regs[EVENT] = i
                return GROW_NODES
            if regs[N_OUT] >= out_ends.shape[0]:
                regs[EVENT] = i
                return OUTPUT_FULL
            if regs[CURRENT] != np.int64(p):
                tecs.switch(slots, parts, slot_of, regs, np.int64(p))
            if parts[p, EPOCH] != regs[CONSUMED]:
                tecs.forget(slots, parts, regs, slot_of, p)
                parts[p, EPOCH] = regs[CONSUMED]
            regs[OPEN] = 1
            regs[GAP_DONE] = not has_gaps or moment == parts[p, PREVIOUS] + 1
            if window != NO_WINDOW:
                r = _U(newest & mask)
                records[r, SYMBOL] = symbols[event]
                records[r, BEFORE] = parts[p, CONTROL]
                records[r, GAP] = 1 - regs[GAP_DONE]
                records[r, NUMBER] = number
                records[r, PREVIOUS_RECORD] = parts[p, LAST_RECORD]
                records[r, NEXT_RECORD] = -1
        first = lows[event] if window == GLOBAL_WINDOW else np.int64(0)
        low = np.int64(-1)
        if window == GLOBAL_WINDOW:
            low = records[_U(first & mask), NUMBER]
        elif window != NO_WINDOW:
            low = number - width
        n_live = 0
        slot = parts[p, HEAD]
        while slot >= 0:
            s = _U(slot)
            onward = slots[s, NEXT_SLOT]
            if slots[s, LATEST] < low:
                slot_of[_U(slots[s, STATE])] = -1
                tecs.release(slots, parts, regs, p, slot)
            else:
                n_live += 1
            slot = onward
        if n_live + 2 > rows.shape[1]:
            regs[EVENT] = i
            return GROW_LISTS
        oldest = max(regs[FLOOR], newest - mask)
        if window != NO_WINDOW:
            _advance_front(parts, p, records, mask, oldest, window, low, first)
            if 0 <= parts[p, FIRST_BACK] < low:
                _set_boundary(parts, p, slots, rows, records, mask, front, ways, steps, fresh, moves, n_states,
                              window, low, first)  # fmt: skip
        n_columns = parts[p, LAST_COLUMN] + 1

        total = _U(0)
        while regs[OPEN] == 1:
            symbol = _U(symbols[event]) if regs[GAP_DONE] else _U(QUIET)
            # 1. read all sources before any write
            control = _U(parts[p, CONTROL])
            first_fresh = fresh[symbol, control, FIRST_MOVE]
            missing = first_fresh == UNKNOWN
            n_live = 0
            slot = parts[p, HEAD]
            while slot >= 0:
                s = _U(slot)
                step = steps[symbol, _U(slots[s, STATE])]
                if step != STAY:
                    missing |= step == UNKNOWN
                    scratch[_U(n_live), 0] = slot
                    scratch[_U(n_live), 1] = step
                    n_live += 1
                slot = slots[s, NEXT_SLOT]
            if missing:
                regs[WANTED] = symbol
                regs[EVENT] = i
                return NEED_STEP
            if regs[N_FREE] < (n_live + 1) * max_moves:
                regs[EVENT] = i
                return GROW_SLOTS
            for k in range(n_live):
                live = _U(k)
                s = _U(scratch[live, 0])
                state = slots[s, STATE]
                for c in range(n_columns + 1):
                    copies[live, _U(c)] = rows[s, _U(c)]
                scratch[live, 2] = slots[s, LATEST]
                stays = False
                move = _U(scratch[live, 1])
                while True:
                    stays |= moves[move, MARK] == 0 and moves[move, TARGET] == state
                    if moves[move, FLAGS] & LAST:
                        break
                    move += _ONE
                if not stays:
                    slot_of[_U(state)] = -1
                    tecs.release(slots, parts, regs, p, scratch[live, 0])
                scratch[live, 3] = state if stays else -1
            # 2. write the targets, and count what ends here
            for k in range(n_live):
                live = _U(k)
                move = _U(scratch[live, 1])
                while True:
                    mark, target, flags = moves[move, MARK], moves[move, TARGET], moves[move, FLAGS]
                    if flags & OUTPUT:
                        total = plus(total, copies[live, 0])
                        if parts[p, FRONT] >= 0:
                            f = _U(parts[p, FRONT] & mask)
                            for c in range(n_columns):
                                total = plus(total, times(copies[live, _U(c + 1)], front[f, _U(c)]))
                    if target >= 0 and not (mark == 0 and target == scratch[live, 3]):
                        s = _slot_for(slots, parts, rows, regs, slot_of, p, target)
                        slots[s, LATEST] = max(slots[s, LATEST], scratch[live, 2])
                        for c in range(n_columns + 1):
                            rows[s, _U(c)] = plus(rows[s, _U(c)], copies[live, _U(c)])
                    if flags & LAST:
                        break
                    move += _ONE
            if first_fresh >= 0:
                move = _U(first_fresh)
                while True:
                    target, flags = moves[move, TARGET], moves[move, FLAGS]
                    if flags & OUTPUT:
                        total = plus(total, _ONE)
                    if target >= 0:
                        s = _slot_for(slots, parts, rows, regs, slot_of, p, target)
                        slots[s, LATEST] = number
                        rows[s, 0] = plus(rows[s, 0], _ONE)
                    if flags & LAST:
                        break
                    move += _ONE
            parts[p, CONTROL] = fresh[symbol, control, NEXT_CONTROL]
            if regs[GAP_DONE]:
                regs[OPEN] = 0
            else:
                regs[GAP_DONE] = 1

        if limit > 0 and total > _U(limit):
            total = _U(limit)
        if total > MOST_SIGNED:
            regs[EVENT] = i
            return TOO_MANY
        if window != NO_WINDOW:
            last = parts[p, LAST_RECORD]
            if last >= oldest:
                records[_U(last & mask), NEXT_RECORD] = newest
            parts[p, LAST_RECORD] = newest
            if parts[p, FIRST_BACK] < 0:
                parts[p, FIRST_BACK] = number
            regs[NEXT_NODE] += 1
        if total > _U(0) and place >= first_end:
            out = _U(regs[N_OUT])
            out_ends[out] = place
            out_counts[out] = np.int64(total)
            if out_times.shape[0] > 0:
                out_times[out] = clocks[event]
            regs[N_OUT] += 1
        if total > _U(0) and consume != CONSUME_NONE:
            tecs.forget(slots, parts, regs, slot_of, p)
            if consume == CONSUME_ANY:
                regs[CONSUMED] += 1
                parts[p, EPOCH] = regs[CONSUMED]
        parts[p, PREVIOUS] = moment
        regs[ORDINAL] += 1
        i += 1
    regs[EVENT] = i
    return DONE


@kernel
def compact_records(parts, n_parts, records, front, width, regs, new_ids):
    """Move the records that are in the windows of their partitions together (COUNT_WINDOW).

    Parameters
    ----------
    new_ids : int64, shape (records,)
        All -1.
    """
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
