"""The loop of a recogniser: relevant events -> the positions that end matches, by one run with registers.

papers: RMA, definitions 4.3 and 6.1, and corollary 6.7; `cer_gpu.automaton.recogniser`.  An event that is not relevant
satisfies no formula of any state, and moves the run on all the same, as its window counts all events.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import COMPARE_RANKED
from cer_gpu.backend.arguments import Events, Matches
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.joins.filters import Filters, passes, run_events
from cer_gpu.backend.status import DONE, OUTPUT_FULL

# registers of the loop: the next event, the state, the position of the last event (-1 if none), and ends in the buffers
EVENT, STATE, LAST_POSITION, N_OUT, N_REGS = range(5)

# columns of `RecogniserArrays.states`, `formulas` and `moves`
FIRST_LISTED, LAST_LISTED, FIRST_OF_MOVES, IS_FINAL = range(4)
ATOM, FIRST_TESTED, LAST_TESTED = range(3)
TO_STATE, WRITES = range(2)

_U = np.uint64


class RecogniserArrays(NamedTuple):
    """A recogniser (`cer_gpu.automaton.recogniser.Recogniser`), as the loop reads it.

    Attributes
    ----------
    atoms_of : int32, shape (symbols, atoms + 1)
    states : int32, shape (states, 4)
    listed : int32, shape (listed,)
    formulas : int32, shape (formulas, 3)
    tested : int32, shape (tested,)
    arguments : int32, shape (conditions, max arguments)
        Registers of the arguments of each condition.
    moves : int64, shape (moves, 2)
    idle : int32, shape (states, idle)
    period : int
    """

    atoms_of: Any
    states: Any
    listed: Any
    formulas: Any
    tested: Any
    arguments: Any
    moves: Any
    idle: Any
    period: Any


class Registers(NamedTuple):
    """Registers of a run, each with the columns of its event; the last has the event that is read.

    Attributes
    ----------
    values : int64, shape (1, columns, registers), written
    atoms : int64, shape (max arguments,)
        Zeros: `values` of one atom.
    instances : int64, shape (max arguments,), written
        Registers of the arguments of a program.
    """

    values: Any
    atoms: Any
    instances: Any


@helper
def _pass_gap(automaton, state, gap):
    """Return the state after so many events that satisfy no formula."""
    idle, period = automaton.idle, automaton.period
    n = idle.shape[1]
    if gap >= n:
        gap = n - period + (gap - n) % period
    return np.int64(idle[_U(state), _U(gap)])


@helper
def _holds(automaton, filters, registers, formula):
    """Return whether the join predicates of a formula hold."""
    arguments = automaton.arguments
    for line in range(automaton.formulas[formula, FIRST_TESTED], automaton.formulas[formula, LAST_TESTED]):
        c = _U(automaton.tested[_U(line)])
        if filters.conditions[c].kind <= COMPARE_RANKED:
            one, other = _U(arguments[c, 0]), _U(arguments[c, 1])
            good = passes(filters, registers.values, c, _U(0), one, _U(0), other)
        else:
            for k in range(arguments.shape[1]):
                registers.instances[_U(k)] = arguments[c, _U(k)]
            begin, end = filters.conditions[c].begin, filters.conditions[c].end
            good = run_events(filters, registers.values, begin, end, registers.atoms, registers.instances)
        if not good:
            return False
    return True


@helper
def _next_state(automaton, filters, registers, symbol, state):
    """Return the state after the event in the last register, and let registers take the event."""
    satisfied = _U(0)
    j = _U(0)
    while automaton.atoms_of[symbol, j] >= 0:
        satisfied |= _U(1) << _U(automaton.atoms_of[symbol, j])
        j += _U(1)
    first = automaton.states[_U(state), FIRST_LISTED]
    bits = np.int64(0)
    for line in range(first, automaton.states[_U(state), LAST_LISTED]):
        formula = _U(automaton.listed[_U(line)])
        atom = _U(automaton.formulas[formula, ATOM])
        if (satisfied >> atom) & _U(1) != _U(0) and _holds(automaton, filters, registers, formula):
            bits |= np.int64(1) << np.int64(line - first)
    move = _U(automaton.states[_U(state), FIRST_OF_MOVES] + bits)
    values = registers.values
    current = _U(values.shape[2] - 1)
    for register in range(values.shape[2] - 1):
        if (automaton.moves[move, WRITES] >> np.int64(register)) & 1 == 1:
            for c in range(values.shape[1]):
                values[0, _U(c), _U(register)] = values[0, _U(c), current]
    return automaton.moves[move, TO_STATE]


@kernel
def recognise(events, attributes, filters, automaton, registers, output, report_from, shard, n_shards, regs):
    """Read events, and note the positions that end matches, from where the last call stopped.

    Parameters
    ----------
    events : Events
    attributes : int64, shape (n, columns)
    filters : Filters
    automaton : RecogniserArrays
    registers : Registers
    output : Matches
        Matches without a start and positions.
    report_from : int
        Ends before this position are left out.
    shard : int
    n_shards : int
        Note shard k of n of the ends.
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        DONE, or OUTPUT_FULL.
    """
    events, filters, automaton = Events(*events), Filters(*filters), RecogniserArrays(*automaton)
    registers, output = Registers(*registers), Matches(*output)
    values = registers.values
    current = _U(values.shape[2] - 1)
    i, state, last, n_out = regs[EVENT], regs[STATE], regs[LAST_POSITION], regs[N_OUT]
    status = DONE
    while i < events.symbols.shape[0]:
        if n_out + 1 >= output.offsets.shape[0]:
            status = OUTPUT_FULL
            break
        event = _U(i)
        position = events.positions[event]
        if last >= 0:
            state = _pass_gap(automaton, state, position - last - 1)
        for c in range(values.shape[1]):
            values[0, _U(c), current] = attributes[event, _U(c)]
        state = _next_state(automaton, filters, registers, _U(events.symbols[event]), state)
        last = position
        i += 1
        ours = n_shards == 1 or position % n_shards == shard
        if automaton.states[_U(state), IS_FINAL] == 1 and ours and position >= report_from:
            out = _U(n_out)
            output.spans[0, out] = output.spans[1, out] = position
            if output.times.shape[1] > 0:
                output.times[0, out] = output.times[1, out] = events.times[event]
            n_out += 1
            output.offsets[_U(n_out)] = 0
    regs[EVENT], regs[STATE], regs[LAST_POSITION], regs[N_OUT] = i, state, last, n_out
    return status
