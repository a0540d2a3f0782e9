"""The loops that follow the state of each substream, and number the states met.

A state is one number: the furthest step that is live, the age class of the youngest partial match at that step, and the
last symbols.  From the low end on there are BITS bits for each of the last symbols, the newest one lowest, then the age
class, and then the step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import prefetch

BITS = 8
"""Bits of a symbol in a state; 0 is no symbol, before the first event of a substream."""
AGES = 8
"""Numbers of age classes in a state: the classes are fewer."""

_AHEAD = 8
"""Events from the prefetch of the state of a substream to its use."""

N_CODES, N_REGS = range(2)
"""Registers: how many states have a number."""

_U = np.uint64


class StateMoves(NamedTuple):
    """StateMoves of the pattern, as bits of the symbols of events.

    Attributes
    ----------
    moves : uint64, shape (symbols,)
        Bit k: the event satisfies step k.
    bars : uint64, shape (symbols,)
        Bit k: the event must not lie between step k - 1 and step k.
    symbols : int64, shape (symbols,)
        Symbols as numbered in states, from 1 on.
    n : int
        Number of steps.
    """

    moves: Any
    bars: Any
    symbols: Any
    n: Any


class Followed(NamedTuple):
    """Memory of each substream.

    Attributes
    ----------
    latest : clock, shape (partitions, steps), written
        Clock of the first event of the youngest partial match that has reached step k.
    live : uint64, shape (partitions,), written
        Bit k: there is one.
    states : int64, shape (partitions,), written
        State after the last event; -1 before the first one.
    """

    latest: Any
    live: Any
    states: Any


class Ages(NamedTuple):
    """Classes of the age of a partial match.

    Attributes
    ----------
    length : clock
        Longest age of a live one.
    edges : clock, shape (classes - 1,)
        Least age of each class but the first, ascending.
    """

    length: Any
    edges: Any


class StateTable(NamedTuple):
    """States by their numbers.

    Attributes
    ----------
    keys : int64, shape (size,), written
        Hash table of states; -1: free.
    numbers : int32, shape (size,), written
        Number of each.
    codes : int64, shape (size // 2,), written
        State of each number.
    """

    keys: Any
    numbers: Any
    codes: Any


@helper
def age_class(age, edges):
    """Return the class of an age."""
    index = np.int64(0)
    for k in range(edges.shape[0]):
        index += age >= edges[_U(k)]
    return index


@kernel
def follow_states(symbols, partitions, clocks, steps, followed, ages, bits, states, ends):
    """Move each substream on by its events.

    Parameters
    ----------
    symbols : int32, shape (n,)
    partitions : int32, shape (n,), or (0,)
        Empty: all events are of partition 0.
    clocks : clock, shape (n,)
        Within a partition they do not decrease.
    steps : StateMoves, read
    followed : Followed
    ages : Ages
    bits : int
        Bits of the last symbols: `BITS` for each one that a state has.
    states : int64, shape (n,), written
        State after each event.
    ends : bool, shape (n,), written
        True where an event satisfies the last step while a partial match waits for it.
    """
    steps, followed, ages = StateMoves(*steps), Followed(*followed), Ages(*ages)
    latest, live_of, state_of = followed.latest, followed.live, followed.states
    n_steps, length, edges = np.int64(steps.n), ages.length, ages.edges
    mask = (np.int64(1) << np.int64(bits)) - 1
    one, partitioned = _U(1), partitions.shape[0] > 0
    p = _U(0)
    for i in range(symbols.shape[0]):
        row = _U(i)
        if partitioned:
            p = _U(partitions[row])
            if i + _AHEAD < symbols.shape[0]:
                ahead = _U(partitions[_U(i + _AHEAD)])
                prefetch(state_of, ahead)
                prefetch(live_of, ahead)
        symbol, clock = _U(symbols[row]), clocks[row]
        moves, bars = steps.moves[symbol], steps.bars[symbol]
        live, before = live_of[p], state_of[p]
        ended = False
        if (moves | bars) != _U(0):
            for back in range(n_steps):
                k = n_steps - 1 - back
                bit = one << _U(k)
                if moves & bit:
                    goes = k == 0
                    start = clock
                    if k > 0 and live & (bit >> one):
                        start = latest[p, _U(k - 1)]
                        goes = clock - start <= length
                    if goes and k == n_steps - 1:
                        ended = True
                    elif goes and (not live & bit or latest[p, _U(k)] < start):
                        latest[p, _U(k)] = start
                        live |= bit
                if k > 0 and bars & bit:
                    live &= ~(bit >> one)
        step, age = np.int64(0), np.int64(0)
        if live:
            for back in range(n_steps - 1):
                k = n_steps - 2 - back
                bit = one << _U(k)
                if live & bit:
                    since = clock - latest[p, _U(k)]
                    if since <= length:
                        step, age = k + 1, age_class(since, edges)
                        break
                    live &= ~bit
        live_of[p] = live
        last = np.int64(0) if before < 0 else before
        state = ((step * AGES + age) << np.int64(bits)) | (((last << np.int64(BITS)) | steps.symbols[symbol]) & mask)
        state_of[p] = state
        states[row] = state
        ends[row] = ended


@kernel
def number_states(states, numbered, begin, numbers, regs):
    """Give each state a number, in the order in which states are met.

    Parameters
    ----------
    states : int64, shape (n,)
    numbered : StateTable
    begin : int
        State to begin at.
    numbers : int32, shape (n,), written
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        The first state not numbered for lack of space, or n if all were.
    """
    numbered = StateTable(*numbered)
    keys, state_ids, codes = numbered.keys, numbered.numbers, numbered.codes
    mask = _U(keys.shape[0] - 1)
    n = regs[N_CODES]
    for i in range(begin, states.shape[0]):
        state = states[i]
        slot = ((_U(state) * _U(0x9E3779B97F4A7C15)) >> _U(20)) & mask
        while keys[slot] != state:
            if keys[slot] < 0:
                if n == codes.shape[0]:
                    regs[N_CODES] = n
                    return i
                keys[slot], state_ids[slot], codes[_U(n)] = state, n, state
                n += 1
                break
            slot = (slot + _U(1)) & mask
        numbers[i] = state_ids[slot]
    regs[N_CODES] = n
    return states.shape[0]


@kernel
def mark_last(partitions, seen, stamp, last):
    """Mark the last event of each partition among some events.

    Parameters
    ----------
    partitions : int32, shape (n,)
    seen : int64, shape (partitions,), written
        Number of the last call that met the partition.
    stamp : int
        Number of this call: greater than all before.
    last : bool, shape (n,), written
    """
    for back in range(partitions.shape[0]):
        i = _U(partitions.shape[0] - 1 - back)
        p = _U(partitions[i])
        last[i] = seen[p] != stamp
        seen[p] = stamp


@kernel
def mark_passing(partitions, numbers, above, was_above, passing):
    """Mark the events after which a state is above a threshold, and after the event before in its partition was not.

    Parameters
    ----------
    partitions : int32, shape (n,), or (0,)
        Empty: all events are of partition 0.
    numbers : int32, shape (n,)
        Numbers of the states.
    above : bool, shape (states,)
        True for a state that is above.
    was_above : bool, shape (partitions,), written
    passing : bool, shape (n,), written
    """
    p = _U(0)
    for i in range(numbers.shape[0]):
        row = _U(i)
        if partitions.shape[0] > 0:
            p = _U(partitions[row])
        now = above[_U(numbers[row])]
        passing[row] = now and not was_above[p]
        was_above[p] = now


@kernel
def mark_ends(positions, ends, marks):
    """Mark the events at which matches end.

    Parameters
    ----------
    positions : int64, shape (n,)
        Ascending.
    ends : int64, shape (m,)
        Positions of ends, ascending.
    marks : bool, shape (n,), written
    """
    at, n = 0, ends.shape[0]
    for i in range(positions.shape[0]):
        row = _U(i)
        position = positions[row]
        while at < n and ends[_U(at)] < position:
            at += 1
        marks[row] = at < n and ends[_U(at)] == position
