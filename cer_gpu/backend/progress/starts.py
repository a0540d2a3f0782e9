"""The loops for funnels: starts that wait for their next step, as linked lists for each partition and step.

A start is a row of `rows` (int64), a ring of a power of two rows; its id is one more than that of the start before it,
and its row is the id modulo the size.

* NEXT, the id of the next start in its list, or -1;
* INFO, its partition, its state and the number of steps reached, packed: see `packed`;
* CLOCK, the clock of its first event, in the bits of `clocks`, the same memory;
* from PLACES on, the positions of the steps reached, and behind them, where a barring event stopped it, that one's;
* where the output has times, the times of the steps reached.

The starts of a partition that have reached k steps are a list, from the earliest to the latest: a start never
overtakes an earlier one.  The row of the partition in `lists` has the first and the last of each list.  The lists of
all steps, from the last step to the first, are in the order of the starts, too: what a window drops is first in its list.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import BARS
from cer_gpu.backend.arguments import Events, Window
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import prefetch

# a start
NEXT, INFO, CLOCK, PLACES = range(4)

# states of a start; all but WAITING are final
WAITING, COMPLETE, WINDOW, BARRED, END = range(5)

# registers: the first id that is kept, and the id that the next start gets
BASE, NEXT_ID, N_REGS = range(3)

STATES = 8
STEPS = 128
"""More steps than a funnel has."""

EVENTS_AHEAD = 16
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
    lists : int64, shape (partitions, 2 * (steps - 1)), written
        First and last start of each list; the last is not known where the first is -1.
    lasts : int64, shape (partitions,), or (0,), written
        Number of the last event of each partition, where a window counts its events; else empty.
    """

    rows: Any
    clocks: Any
    lists: Any
    lasts: Any


class Known(NamedTuple):
    """Buffers for starts that are known: rows of "progress".

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
def packed(partition, state, n_reached):
    """Return the INFO of a start."""
    return (np.int64(partition) * STATES + state) * STEPS + n_reached


@helper
def state_of(info):
    """Return the state of a start."""
    return info // STEPS % STATES


@helper
def n_reached_of(info):
    """Return the number of steps that a start has reached."""
    return info % STEPS


@helper
def partition_of(info):
    """Return the partition of a start."""
    return info // (STEPS * STATES)


@kernel
def move_starts(events, window, actions, starts, begin, regs):
    """Let each event move the starts of its partition that wait for it, bar some, and begin one.

    Parameters
    ----------
    events : Events
    window : Window
    actions : int32, shape (symbols, steps + 1)
        `FunnelTable.actions`.
    starts : Starts
    begin : int
        Event to begin at.
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        The event after the last one read: n, or where there may be no room for its start.
    """
    events, window, starts = Events(*events), Window(*window), Starts(*starts)
    symbols, partitions, ordinals = events.symbols, events.partitions, events.ordinals
    positions = events.places if events.places.shape[0] > 0 else events.positions
    times, clocks, length = events.times, window.clocks, window.length
    rows, clock_of, lists, lasts = starts.rows, starts.clocks, starts.lists, starts.lasts
    n_events = symbols.shape[0]
    n_steps = np.int64(actions.shape[1]) - 1
    timed = times.shape[0] > 0
    parted = partitions.shape[0] > 0
    counts = lasts.shape[0] > 0
    size = np.int64(rows.shape[0])
    mask = size - 1
    times_at = _U(PLACES + n_steps)
    base, next_id = regs[BASE], regs[NEXT_ID]
    i = begin
    while i < n_events and next_id - base < size:
        event = _U(i)
        if parted and i + EVENTS_AHEAD < n_events:
            prefetch(lists, _U(partitions[event + _U(EVENTS_AHEAD)]) * _U(lists.shape[1]))
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
            if step == 0:
                row = _U(next_id & mask)
                rows[row, NEXT] = -1
                clock_of[row, CLOCK] = clock
                rows[row, PLACES] = position
                if timed:
                    rows[row, times_at] = times[event]
                if n_steps == 1:
                    rows[row, INFO] = packed(p, COMPLETE, 1)
                else:
                    rows[row, INFO] = packed(p, WAITING, 1)
                    if lists[p, 0] < 0:
                        lists[p, 0] = next_id
                    else:
                        rows[_U(lists[p, 1] & mask), NEXT] = next_id
                    lists[p, 1] = next_id
                next_id += 1
            else:
                first_at, last_at = _U(2 * step - 2), _U(2 * step - 1)
                start = lists[p, first_at]
                while start >= 0 and clock - clock_of[_U(start & mask), CLOCK] > length:
                    row = _U(start & mask)
                    rows[row, INFO] = packed(p, WINDOW, step)
                    start = rows[row, NEXT]
                lists[p, first_at] = -1
                if start >= 0 and action & 1 == BARS:
                    while start >= 0:
                        row = _U(start & mask)
                        rows[row, INFO] = packed(p, BARRED, step)
                        rows[row, _U(PLACES + step)] = position
                        start = rows[row, NEXT]
                elif start >= 0:
                    state = COMPLETE if step == n_steps - 1 else WAITING
                    if state == WAITING:
                        if lists[p, _U(2 * step)] < 0:
                            lists[p, _U(2 * step)] = start
                        else:
                            rows[_U(lists[p, _U(2 * step + 1)] & mask), NEXT] = start
                        lists[p, _U(2 * step + 1)] = lists[p, last_at]
                    info = packed(p, state, step + 1)
                    while start >= 0:
                        row = _U(start & mask)
                        rows[row, INFO] = info
                        rows[row, _U(PLACES + step)] = position
                        if timed:
                            rows[row, times_at + _U(step)] = times[event]
                        start = rows[row, NEXT]
            at += _U(1)
            action = np.int64(actions[symbol, at])
        i += 1
    regs[NEXT_ID] = next_id
    return i


@kernel
def take_known(starts, now, length, ended, known, n_steps, regs):
    """Hand over starts in their order, up to the first that waits and may still move.

    Parameters
    ----------
    starts : Starts
    now : clock
        Clock of the last event of the stream; without meaning where a window counts the events of a partition.
    length : clock
    ended : bool
        True at the end of the stream: what waits has ended.
    known : Known
    n_steps : int
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        Number of starts handed over: fewer than there is room for, unless more may be known.
    """
    starts, known = Starts(*starts), Known(*known)
    rows, clock_of, lists, lasts = starts.rows, starts.clocks, starts.lists, starts.lasts
    offsets, positions, times = known.offsets, known.positions, known.times
    counts, timed = lasts.shape[0] > 0, times.shape[0] > 0
    mask = np.int64(rows.shape[0]) - 1
    times_at = PLACES + n_steps
    start, next_id = regs[BASE], regs[NEXT_ID]
    room = np.int64(known.states.shape[0])
    n, n_values = np.int64(0), np.int64(0)
    offsets[0] = 0
    while start < next_id and n < room:
        row = _U(start & mask)
        info = rows[row, INFO]
        state = state_of(info)
        n_reached = n_reached_of(info)
        if state == WAITING:
            p = _U(partition_of(info))
            if counts:
                passed = lasts[p] - rows[row, CLOCK] > np.int64(length)
            else:
                passed = now - clock_of[row, CLOCK] > length
            if not (passed or ended):
                break
            state = np.int64(WINDOW) if passed else np.int64(END)
            # all starts before it are known: it is the first of its list
            lists[p, _U(2 * n_reached - 2)] = rows[row, NEXT]
        known.states[_U(n)] = state
        known.barring[_U(n)] = rows[row, _U(PLACES + n_reached)] if state == BARRED else -1
        for k in range(n_reached):
            positions[_U(n_values + k)] = rows[row, _U(PLACES + k)]
            if timed:
                times[_U(n_values + k)] = rows[row, _U(times_at + k)]
        n_values += n_reached
        n += 1
        offsets[_U(n)] = n_values
        start += 1
    regs[BASE] = start
    return n
