"""The loops for chains of neighbours under PARTITION BY: each event follows the one before it in its partition.

A match of n steps is n events of a partition with consecutive numbers, so that each end has one at most, and a
partition needs no stacks: a bit for each step at which a run waits, as in the shift-and algorithm (Baeza-Yates and
Gonnet, CACM 1992), and its last relevant events; those that no neighbour followed are overwritten.

A partition is a row of int64: ORDINAL, the number of its last relevant event; WAITING, the steps that this event
completed but the last one, a bit each; EPOCH, how many matches had been consumed when it came (CONSUME BY ANY);
then, for each of the last events, a slot: the position, the time where the output has times, and the clock where a
window is not of events.  The event of number k is in slot k modulo their number, which is a power of two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import CONSUME_ANY, CONSUME_NONE, COUNT_WINDOW, GLOBAL_WINDOW
from cer_gpu.backend.arguments import Counts, Events, Matches, Options, Window
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import prefetch
from cer_gpu.backend.status import DONE, OUTPUT_FULL

ORDINAL, WAITING, EPOCH, SLOTS = range(4)

# registers: the next event, matches in the buffers and their positions, and consumed ones
EVENT, N_OUT, N_VALUES, CONSUMED, N_REGS = range(5)

_AHEAD = 16
"""Events from the prefetch of a partition to its use; partitions lie anywhere in memory."""

_U = np.uint64


class Neighbours(NamedTuple):
    """The steps, and the last events of each partition.

    Attributes
    ----------
    n_steps : int
    width : int
        Columns of a slot.
    accepts : uint64, shape (symbols,)
        Steps that events of each symbol satisfy, a bit each.
    rows : int64, shape (partitions, columns), written
    clocks : clock, shape (partitions, columns), written
        The same memory.
    """

    n_steps: Any
    width: Any
    accepts: Any
    rows: Any
    clocks: Any


@helper
def _reached(neighbours, p, symbol, ordinal, epoch):
    """Return the steps that an event completes, a bit each."""
    rows = neighbours.rows
    follows = (rows[p, ORDINAL] + 1 == ordinal) & (rows[p, EPOCH] == epoch)
    waiting = _U(rows[p, WAITING]) * _U(follows)
    return (waiting << _U(1) | _U(1)) & neighbours.accepts[symbol]


@helper
def _slot(neighbours, ordinal):
    """Return the first column of the slot of an event."""
    n_slots = (neighbours.rows.shape[1] - SLOTS) // neighbours.width
    return _U(SLOTS + (ordinal & (n_slots - 1)) * neighbours.width)


@helper
def _ends(neighbours, reached, p, ordinal, clock, window, length):
    """Return whether a match ends with an event that completes these steps."""
    last = neighbours.n_steps - 1
    ended = (reached >> _U(last)) & _U(1) > _U(0)
    if ended and window == COUNT_WINDOW:
        ended = not (last > length)
    elif ended and window == GLOBAL_WINDOW:
        start = _slot(neighbours, ordinal - last) + _U(neighbours.width - 1)
        ended = not (clock - neighbours.clocks[p, start] > length)
    return ended


@helper
def _store(neighbours, p, reached, ordinal, epoch, position, clock, windowed):
    """Store an event as the last one of its partition; return its slot."""
    rows, n_steps = neighbours.rows, neighbours.n_steps
    slot = _slot(neighbours, ordinal)
    rows[p, ORDINAL] = ordinal
    rows[p, WAITING] = np.int64(reached & ((_U(1) << _U(n_steps - 1)) - _U(1)))
    rows[p, EPOCH] = epoch
    rows[p, slot] = position
    if windowed:
        neighbours.clocks[p, slot + _U(neighbours.width - 1)] = clock
    return slot


@helper
def _write_match(matches, neighbours, marks, p, ordinal, position, times, event, n_out, n_values):
    """Write the match that ends at an event."""
    output, rows, n_steps = Matches(*matches), neighbours.rows, neighbours.n_steps
    spans, positions = output.spans, output.positions
    for k in range(n_steps - 1):
        positions[_U(n_values + k)] = rows[p, _slot(neighbours, ordinal - n_steps + 1 + k)]
    positions[_U(n_values + n_steps - 1)] = position
    spans[0, _U(n_out)] = positions[_U(n_values)]
    spans[1, _U(n_out)] = position
    if times.shape[0] > 0:
        output.times[0, _U(n_out)] = rows[p, _slot(neighbours, ordinal - n_steps + 1) + _U(1)]
        output.times[1, _U(n_out)] = times[event]
    for k in range(marks.shape[0]):
        output.marks[_U(n_values + k)] = marks[_U(k)]
    output.offsets[_U(n_out + 1)] = n_values + n_steps


@helper
def _write_count(counts, position, times, event, n_out):
    """Write that one match ends at an event."""
    output = Counts(*counts)
    output.ends[_U(n_out)] = position
    output.counts[_U(n_out)] = 1
    if output.times.shape[0] > 0:
        output.times[_U(n_out)] = times[event]


@kernel
def find_neighbours(events, window, options, neighbours, marks, matches, counts, regs):
    """Read events, and list the matches that they end, or note those events.

    Parameters
    ----------
    events : Events
        Positions are those that are reported.
    window : Window
    options : Options
    neighbours : Neighbours
    marks : int32, shape (steps,), or (0,)
        The mark of each step; empty if the output has no marks.
    matches : Matches, or ()
        Nothing where matches are counted.
    counts : Counts, or ()
        Nothing where they are listed.
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        DONE, or OUTPUT_FULL.
    """
    events, window, options = Events(*events), Window(*window), Options(*options)
    neighbours = Neighbours(*neighbours)
    symbols, positions, partitions, ordinals = events.symbols, events.positions, events.partitions, events.ordinals
    times, clocks, length, rows = events.times, window.clocks, window.length, neighbours.rows
    windowed, n_steps = options.window == GLOBAL_WINDOW, neighbours.n_steps
    n_events = symbols.shape[0]
    n_out, n_values, epoch = regs[N_OUT], regs[N_VALUES], regs[CONSUMED]
    i = regs[EVENT]
    status = DONE
    while i < n_events:
        if len(matches) > 0:
            full = n_out >= matches[0].shape[1] or n_values + n_steps > matches[3].shape[0]
        else:
            full = n_out >= counts[0].shape[0]
        if full:
            status = OUTPUT_FULL
            break
        event = _U(i)
        if i + _AHEAD < n_events:
            prefetch(rows, _U(partitions[event + _U(_AHEAD)]) * _U(rows.shape[1]))
        p, ordinal = _U(partitions[event]), ordinals[event]
        reached = _reached(neighbours, p, _U(symbols[event]), ordinal, epoch)
        ended = _ends(neighbours, reached, p, ordinal, clocks[event], options.window, length)
        if ended and positions[event] >= options.report_from:
            if len(matches) > 0:
                _write_match(matches, neighbours, marks, p, ordinal, positions[event], times, event, n_out, n_values)
                n_values += n_steps
            else:
                _write_count(counts, positions[event], times, event, n_out)
            n_out += 1
        if ended and options.consume != CONSUME_NONE:
            reached = _U(0)
            epoch += options.consume == CONSUME_ANY
        slot = _store(neighbours, p, reached, ordinal, epoch, positions[event], clocks[event], windowed)
        if len(matches) > 0 and times.shape[0] > 0:
            rows[p, slot + _U(1)] = times[event]
        i += 1
    regs[EVENT], regs[N_OUT], regs[N_VALUES], regs[CONSUMED] = i, n_out, n_values, epoch
    return status
