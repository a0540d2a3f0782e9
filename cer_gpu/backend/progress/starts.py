"""The loops for funnels: starts that wait for their next step, as linked lists for each partition and step.

A start is a row of `rows` (int64), a ring of a power of two rows; its id is one more than that of the start before it,
and its row is the id modulo the size.

* NEXT, the id of the start before it in its list, or -1;
* INFO, its partition, its state and the number of steps reached, as one number: see `info_of`;
* CLOCK, the clock of its first event, in the bits of `clocks`, the same memory;
* where steps may lie only so far apart, at LAST_CLOCK, the clock of the last step reached;
* from PLACES on, or after that, the position of each step reached, each with its time after it where the output has
  times; and, where an event bars the start, the position of that event in the place of the next step's.

The starts of a partition that have reached k steps are a list, from the latest to the earliest, so that ids decrease: a
start never overtakes an earlier one.  The row of the partition in `lists` has the first of each list.  Starts that move
on are put before those that have reached the step already, which began earlier.  A start that has left the window is
the end of its list, and one whose id is below `base` has been handed over: neither it nor what follows is read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import BARS
from cer_gpu.backend.arguments import Events
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.joins.filters import Filters
from cer_gpu.backend.operations import prefetch
from cer_gpu.backend.recent.pending import (
    BEGIN,
    MOVE,
    OP_CHOICE,
    OP_KIND,
    OP_STEP,
    OP_TEST,
    OP_TESTS_END,
    Moves,
    Rows,
    SlotLayout,
    keep_step,
    passes_all,
)

# a start
NEXT, INFO, CLOCK, PLACES = range(4)
LAST_CLOCK = PLACES

# states of a start; all but WAITING are final
WAITING, COMPLETE, WINDOW, BARRED, END = range(5)

# registers: the first pending id, and the id that the next start gets
BASE, NEXT_ID, N_REGS = range(3)

STATES = 8
REACHED = 128
"""More than the number of steps of a funnel."""

LISTS_AHEAD = 16
"""Events from the prefetch of a partition's lists to their use."""
STARTS_AHEAD = 8
"""Events from the prefetch of the starts in these lists to their use."""

_U = np.uint64


class Starts(NamedTuple):
    """The starts of all partitions.

    Attributes
    ----------
    rows : int64, shape (size, width), written
    clocks : clock, shape (size, width), written
        The same memory.
    lists : int64, shape (partitions, steps - 1), written
        The latest start of each list, or -1.
    lasts : int64, shape (partitions,), or (0,), written
        Number of the last event of each partition, where a window counts its events; else empty.
    """

    rows: Any
    clocks: Any
    lists: Any
    lasts: Any


class Lengths(NamedTuple):
    """Distances that the steps of a start may lie apart.

    Attributes
    ----------
    window : clock
        From the first step to the last.
    gap : clock
        From one step to the next.
    gapped : bool
        True if there is such a length.
    """

    window: Any
    gap: Any
    gapped: Any


class DecidedStarts(NamedTuple):
    """Buffers for decided starts: rows of "funnel".

    Attributes
    ----------
    offsets : int32, shape (rows + 1,), written
    positions : int64, shape (values,), written
        Positions of the steps that each reached.
    times : int64, shape (values,), or (0,), written
    states : int8, shape (rows,), written
    barring : int64, shape (rows,), written
        Position of the event that barred a start; -1 for others.
    """

    offsets: Any
    positions: Any
    times: Any
    states: Any
    barring: Any


@helper
def info_of(partition, state, n_reached):
    """Return the INFO of a start."""
    return (np.int64(partition) * STATES + state) * REACHED + n_reached


@helper
def state_of(info):
    """Return the state of a start."""
    return info // REACHED % STATES


@helper
def n_reached_of(info):
    """Return the number of steps that a start has reached."""
    return info % REACHED


@helper
def owner_of(info):
    """Return the partition of a start."""
    return info // (REACHED * STATES)


@kernel
def move_starts(events, clocks, lengths, actions, starts, begin, regs):
    """Let each event move the starts of its partition that wait for it, bar some, and begin one.

    Parameters
    ----------
    events : Events
    clocks : clock, shape (n,)
        Clocks of the events; within a partition they do not decrease.
    lengths : Lengths
    actions : int32, shape (symbols, steps + 1)
        `FunnelTable.actions`.
    starts : Starts
    begin : int
        Event to begin at.
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        The event after the last one read: n, or where there may be no space for its start.
    """
    events, lengths, starts = Events(*events), Lengths(*lengths), Starts(*starts)
    symbols, partitions, ordinals = events.symbols, events.partitions, events.ordinals
    positions = events.places if events.places.shape[0] > 0 else events.positions
    times, length, gap, gapped = events.times, lengths.window, lengths.gap, lengths.gapped
    rows, clock_of, lists, lasts = starts.rows, starts.clocks, starts.lists, starts.lasts
    n_events = symbols.shape[0]
    n_steps = np.int64(actions.shape[1]) - 1
    timed, parted, counts = times.shape[0] > 0, partitions.shape[0] > 0, lasts.shape[0] > 0
    stride, places_at = 1 + timed, PLACES + np.int64(gapped)
    size = np.int64(rows.shape[0])
    mask, width = size - 1, _U(rows.shape[1])
    base, next_id = regs[BASE], regs[NEXT_ID]
    i = begin
    while i < n_events and next_id - base < size:
        event = _U(i)
        if parted and i + LISTS_AHEAD < n_events:
            prefetch(lists, _U(partitions[event + _U(LISTS_AHEAD)]) * _U(lists.shape[1]))
            later = event + _U(STARTS_AHEAD)
            waited = np.int64(actions[_U(symbols[later]), 0]) >> 1
            if waited > 0:
                start = lists[_U(partitions[later]), _U(waited - 1)]
                if start >= base:
                    prefetch(rows, _U(start & mask) * width)
                    prefetch(rows, _U(start & mask) * width + _U(8))
        p = _U(partitions[event]) if parted else _U(0)
        if counts:
            lasts[p] = ordinals[event]
        symbol = _U(symbols[event])
        clock = clocks[event]
        position = positions[event]
        at = _U(0)
        action = np.int64(actions[symbol, at])
        while action >= 0:
            step = action >> 1
            place = _U(places_at + step * stride)
            if step == 0:
                row = _U(next_id & mask)
                clock_of[row, CLOCK] = clock
                if gapped:
                    clock_of[row, LAST_CLOCK] = clock
                rows[row, place] = position
                if timed:
                    rows[row, place + _U(1)] = times[event]
                if n_steps == 1:
                    rows[row, INFO] = info_of(p, COMPLETE, 1)
                else:
                    rows[row, INFO] = info_of(p, WAITING, 1)
                    rows[row, NEXT] = lists[p, 0]
                    lists[p, 0] = next_id
                next_id += 1
            else:
                first = lists[p, _U(step - 1)]
                lists[p, _U(step - 1)] = -1
                bars = action & 1 == BARS
                state = BARRED if bars else COMPLETE if step == n_steps - 1 else WAITING
                info = info_of(p, state, step if bars else step + 1)
                start, last = first, np.int64(-1)
                while start >= base:
                    row = _U(start & mask)
                    if clock - clock_of[row, CLOCK] > length or (gapped and clock - clock_of[row, LAST_CLOCK] > gap):
                        break
                    if gapped:
                        clock_of[row, LAST_CLOCK] = clock
                    rows[row, INFO] = info
                    rows[row, place] = position
                    if timed:
                        rows[row, place + _U(1)] = times[event]
                    last, start = start, rows[row, NEXT]
                if state == WAITING and last >= 0:
                    rows[_U(last & mask), NEXT] = lists[p, _U(step)]
                    lists[p, _U(step)] = first
                while start >= base:  # these have left the window
                    row = _U(start & mask)
                    rows[row, INFO] = info_of(p, WINDOW, step)
                    start = rows[row, NEXT]
            at += _U(1)
            action = np.int64(actions[symbol, at])
        i += 1
    regs[NEXT_ID] = next_id
    return i


@helper
def _merge(rows, mask, base, one, other):
    """Return the first of two lists of starts put together, from the latest to the earliest."""
    first, last = np.int64(-1), np.int64(-1)
    while one >= base or other >= base:
        next_ = max(one, other)
        if one >= other:
            one = rows[_U(one & mask), NEXT]
        else:
            other = rows[_U(other & mask), NEXT]
        if last < 0:
            first = next_
        else:
            rows[_U(last & mask), NEXT] = next_
        last = next_
    if last >= 0:
        rows[_U(last & mask), NEXT] = -1
    return first


@kernel
def test_starts(
    events, clocks, attributes, lengths, moves, layout, partials, filters, starts, slot, n_steps, begin, regs
):  # fmt: skip
    """Let each event move the starts of its partition that pass the tests of a step with it, bar some, and begin one.

    Parameters
    ----------
    events : Events
    clocks : clock, shape (n,)
        Clocks of the events; within a partition they do not decrease.
    attributes : int64, shape (n, columns)
        The bits of the valid columns, then the columns.
    lengths : Lengths
    moves : Moves
        Without keys.
    layout : SlotLayout
    partials : Rows
        Those of `starts`, with nothing else.
    filters : Filters
    starts : Starts
    slot : int
        Word of a start where what is stored of its events begins.
    n_steps : int
    begin : int
        Event to begin at.
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        The event after the last one read: n, or where there may be no space for its start.
    """
    events, lengths, starts = Events(*events), Lengths(*lengths), Starts(*starts)
    moves, layout, partials, filters = Moves(*moves), SlotLayout(*layout), Rows(*partials), Filters(*filters)
    symbols, partitions, ordinals = events.symbols, events.partitions, events.ordinals
    positions = events.places if events.places.shape[0] > 0 else events.positions
    times, length, gap, gapped = events.times, lengths.window, lengths.gap, lengths.gapped
    rows, clock_of, lists, lasts = starts.rows, starts.clocks, starts.lists, starts.lasts
    timed, parted, counts = times.shape[0] > 0, partitions.shape[0] > 0, lasts.shape[0] > 0
    stride, places_at = 1 + timed, PLACES + np.int64(gapped)
    size = np.int64(rows.shape[0])
    mask = size - 1
    base, next_id = regs[BASE], regs[NEXT_ID]
    i = begin
    while i < symbols.shape[0] and next_id - base < size:
        event = _U(i)
        p = _U(partitions[event]) if parted else _U(0)
        if counts:
            lasts[p] = ordinals[event]
        symbol, clock, position = _U(symbols[event]), clocks[event], positions[event]
        begun = False
        for o in range(moves.firsts[symbol], moves.firsts[symbol + _U(1)]):
            op = _U(o)
            kind, step, choice = moves.ops[op, OP_KIND], np.int64(moves.ops[op, OP_STEP]), moves.ops[op, OP_CHOICE]
            first_test, last_test = moves.ops[op, OP_TEST], moves.ops[op, OP_TESTS_END]
            place = _U(places_at + step * stride)
            if kind == BEGIN:
                row = _U(next_id & mask)
                if begun or not passes_all(moves, layout, partials, filters, row, slot, step, choice, attributes, event,
                                           first_test, last_test):  # fmt: skip
                    continue
                begun = True
                clock_of[row, CLOCK] = clock
                if gapped:
                    clock_of[row, LAST_CLOCK] = clock
                rows[row, place] = position
                if timed:
                    rows[row, place + _U(1)] = times[event]
                keep_step(layout, partials, row, slot, step, choice, event, position, attributes)
                rows[row, INFO] = info_of(p, COMPLETE if n_steps == 1 else WAITING, 1)
                if n_steps > 1:
                    rows[row, NEXT] = lists[p, 0]
                    lists[p, 0] = next_id
                next_id += 1
                continue
            bars = kind != MOVE
            state = BARRED if bars else COMPLETE if step == n_steps - 1 else WAITING
            start, passed = lists[p, _U(step - 1)], False
            lists[p, _U(step - 1)] = -1
            last, moved, last_moved = np.int64(-1), np.int64(-1), np.int64(-1)
            while start >= base:
                row, after = _U(start & mask), rows[_U(start & mask), NEXT]
                passed = passed or clock - clock_of[row, CLOCK] > length
                if passed or (gapped and clock - clock_of[row, LAST_CLOCK] > gap):
                    rows[row, INFO] = info_of(p, WINDOW, step)
                elif passes_all(moves, layout, partials, filters, row, slot, step, choice, attributes, event,
                                first_test, last_test):  # fmt: skip
                    if gapped:
                        clock_of[row, LAST_CLOCK] = clock
                    rows[row, INFO] = info_of(p, state, step if bars else step + 1)
                    rows[row, place] = position
                    if timed:
                        rows[row, place + _U(1)] = times[event]
                    if not bars:
                        keep_step(layout, partials, row, slot, step, choice, event, position, attributes)
                    if last_moved < 0:
                        moved = start
                    else:
                        rows[_U(last_moved & mask), NEXT] = start
                    last_moved = start
                else:
                    if last < 0:
                        lists[p, _U(step - 1)] = start
                    else:
                        rows[_U(last & mask), NEXT] = start
                    last = start
                start = after
            if last >= 0:
                rows[_U(last & mask), NEXT] = -1
            if last_moved >= 0 and state == WAITING:
                rows[_U(last_moved & mask), NEXT] = -1
                lists[p, _U(step)] = _merge(rows, mask, base, moved, lists[p, _U(step)])
        i += 1
    regs[NEXT_ID] = next_id
    return i


@kernel
def take_decided(starts, now, lengths, ended, decided, n_steps, regs):
    """Hand over starts in their order, up to the first that waits and may still move.

    Parameters
    ----------
    starts : Starts, read
    now : clock
        Clock of the last event of the stream; without meaning where a window counts the events of a partition.
    lengths : Lengths
    ended : bool
        True at the end of the stream: what waits has ended.
    decided : DecidedStarts
    n_steps : int
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        Number of starts written: fewer than the capacity, unless more may be decided.
    """
    starts, lengths, decided = Starts(*starts), Lengths(*lengths), DecidedStarts(*decided)
    length, gap, gapped = lengths.window, lengths.gap, lengths.gapped
    rows, clock_of, lasts = starts.rows, starts.clocks, starts.lasts
    offsets, positions, times = decided.offsets, decided.positions, decided.times
    counts, timed = lasts.shape[0] > 0, times.shape[0] > 0
    mask = np.int64(rows.shape[0]) - 1
    stride, places_at = 1 + timed, PLACES + np.int64(gapped)
    start, next_id = regs[BASE], regs[NEXT_ID]
    capacity = np.int64(decided.states.shape[0])
    n, n_values = np.int64(0), np.int64(0)
    offsets[0] = 0
    while start < next_id and n < capacity:
        row = _U(start & mask)
        info = rows[row, INFO]
        state = state_of(info)
        n_reached = n_reached_of(info)
        if state == WAITING:
            p = _U(owner_of(info))
            if counts:
                last = lasts[p]
                passed = last - rows[row, CLOCK] > np.int64(length)
                passed |= gapped and last - rows[row, LAST_CLOCK] > np.int64(gap)
            else:
                passed = now - clock_of[row, CLOCK] > length
                passed |= gapped and now - clock_of[row, LAST_CLOCK] > gap
            if not (passed or ended):
                break
            state = np.int64(WINDOW) if passed else np.int64(END)
        decided.states[_U(n)] = state
        decided.barring[_U(n)] = rows[row, _U(places_at + n_reached * stride)] if state == BARRED else -1
        for k in range(n_reached):
            positions[_U(n_values + k)] = rows[row, _U(places_at + k * stride)]
            if timed:
                times[_U(n_values + k)] = rows[row, _U(places_at + k * stride + 1)]
        n_values += n_reached
        n += 1
        offsets[_U(n)] = n_values
        start += 1
    regs[BASE] = start
    return n
