"""The loops that follow the state of each substream, and number the states met.

A state is one number: the furthest step that is live, the age class of the youngest partial match at that step, and the
last symbols.  From the low end on there are BITS bits for each of the last symbols, the newest one lowest, then the age
class, and then the step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel

BITS = 8
"""Bits of a symbol in a state; 0 is no symbol, before the first event of a substream."""
AGES = 8
"""Numbers of age classes in a state: the classes are fewer."""

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
        Symbols as they stand in states, from 1 on.
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
    last : int64, shape (partitions,), written
        The last symbols; 0 before the first event.
    states : int64, shape (partitions,), written
        State after the last event; -1 before the first one.
    """

    latest: Any
    live: Any
    last: Any
    states: Any


class Ages(NamedTuple):
    """Classes of the age of a partial match.

    Attributes
    ----------
    length : clock
        Longest age of a live one.
    width : float
        Length of a class.
    n : int
        Number of classes; older ones are of the last class.
    """

    length: Any
    width: Any
    n: Any


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
def age_class(age, ages):
    """Return the class of an age."""
    if ages.width <= 0:
        return np.int64(0)
    return min(np.int64(ages.n - 1), np.int64(np.float64(age) / ages.width))


@kernel
def follow_states(symbols, partitions, clocks, steps, followed, ages, bits, states, before, ends):
    """Move each substream on by its events.

    Parameters
    ----------
    symbols : int32, shape (n,)
    partitions : int32, shape (n,)
    clocks : clock, shape (n,)
        Within a partition they do not decrease.
    steps : StateMoves, read
    followed : Followed
    ages : Ages
    bits : int
        Bits of the last symbols: `BITS` for each one that a state has.
    states : int64, shape (n,), written
        State after each event.
    before : int64, shape (n,), written
        State of the substream before it; -1: there was none.
    ends : bool, shape (n,), written
        True where an event satisfies the last step while a partial match waits for it.
    """
    steps, followed, ages = StateMoves(*steps), Followed(*followed), Ages(*ages)
    latest, live_of, last_of, state_of = followed.latest, followed.live, followed.last, followed.states
    n_steps = np.int64(steps.n)
    mask = np.int64(-1) if bits >= 64 else (np.int64(1) << np.int64(bits)) - 1
    one = _U(1)
    for i in range(symbols.shape[0]):
        p, symbol, clock = _U(partitions[i]), _U(symbols[i]), clocks[i]
        moves, bars = steps.moves[symbol], steps.bars[symbol]
        live = live_of[p]
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
                        goes = clock - start <= ages.length
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
                    if since <= ages.length:
                        step, age = k + 1, age_class(since, ages)
                        break
                    live &= ~bit
        live_of[p] = live
        last = ((last_of[p] << np.int64(BITS)) | steps.symbols[symbol]) & mask
        last_of[p] = last
        state = ((step * AGES + age) << np.int64(bits)) | last
        before[i] = state_of[p]
        state_of[p] = state
        states[i] = state
        ends[i] = ended


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
        The first state that was not numbered, as there is no room: n if all were.
    """
    numbered = StateTable(*numbered)
    keys, known, codes = numbered.keys, numbered.numbers, numbered.codes
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
                keys[slot], known[slot], codes[_U(n)] = state, n, state
                n += 1
                break
            slot = (slot + _U(1)) & mask
        numbers[i] = known[slot]
    regs[N_CODES] = n
    return states.shape[0]
