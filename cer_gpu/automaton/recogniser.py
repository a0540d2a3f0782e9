"""Automata of windowed expressions, unrolled and output-agnostic, and the tables of a recogniser.

papers: RMA, section 6 and appendix, algorithms 2, 6, 7 and 8.  ``WINDOW w`` admits matches with max - min < w, where
min is the first event that a run reads and max the last; ``WITHIN n EVENTS`` is w = n + 1.

The unrolled automaton of the paper (`unroll`) is a tree with a loop at its root.  Corollary 6.7 determinises it, though
the loop lets two runs that start at different events meet in one state of the tree, with different events in its
registers (`cer_gpu.automaton.rma`).  `unroll_in_phases` avoids that: the event at position j is stored in
register j modulo w - 1, and states tell positions modulo w - 1 apart.  A run that stored an event w - 1 positions ago
reads its last event now, so that no event that is still needed is overwritten, and the automaton determinises exactly.

A recogniser is the output-agnostic automaton of a pattern with join predicates, explored as a whole.  It has a single
run, which reports where matches end, and nothing else about them.  Its states grow exponentially with the window: it is
for windows of few events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cer_gpu.arrays import Int32, Int64
from cer_gpu.automaton.atom_graph import AtomGraph, AtomTable
from cer_gpu.automaton.normal_form import Guard, NormalForm
from cer_gpu.automaton.rma import (
    CURRENT,
    MAX_RMA_STATES,
    RMA,
    DeterministicRMA,
    RegisterFormula,
    RegisterLiteral,
    RegisterTransition,
    live_registers,
    may_hold_together,
)
from cer_gpu.automaton.rma_construction import build_rma, without_silent
from cer_gpu.errors import QueryTooLargeError

MAX_UNROLLED = 100_000
"""Most states of an unrolled automaton."""


def windowed_rma(
    formula: NormalForm, w: int, selected: frozenset[str] | None = None, *, max_states: int = MAX_UNROLLED
) -> RMA:
    """Build the unrolled automaton of ``formula WINDOW w`` (algorithms 2 and 6).

    Raises
    ------
    UnboundedFilterError
        When registers cannot test a join predicate.
    QueryTooLargeError
        When it has more than `max_states` states.
    """
    unrolled = unroll(without_silent(build_rma(formula, selected, loop=False)), w, max_states=max_states)
    loop = RegisterTransition(unrolled.start, (), unrolled.start)
    return replace(unrolled, transitions=(loop, *unrolled.transitions))


def output_agnostic_rma(
    formula: NormalForm,
    w: int,
    selected: frozenset[str] | None = None,
    *,
    max_states: int = MAX_RMA_STATES,
    max_unrolled: int = MAX_UNROLLED,
) -> DeterministicRMA:
    """Build the automaton with a single run that recognises the ends of the matches of ``formula WINDOW w``.

    Its states are made on demand, at most `max_states` of them.

    Raises
    ------
    UnboundedFilterError
        When registers cannot test a join predicate.
    QueryTooLargeError
        When the automaton unrolled in phases has more than `max_unrolled` states; later, when there are more than
        `max_states` states.
    """
    automaton = without_silent(build_rma(formula, selected, loop=False))
    phased = unroll_in_phases(automaton, w, max_states=max_unrolled)
    return DeterministicRMA(phased, output_agnostic=True, max_states=max_states)


# ---- the tree of the paper ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Copy:
    """State of a tree: the state that it is a copy of (CopyOfQ), and the last copy of each register on the way."""

    state: int
    latest: dict[int, int] = field(default_factory=dict)


def unroll(automaton: RMA, w: int, *, max_states: int = MAX_UNROLLED) -> RMA:
    """Unroll an automaton without silent transitions into the tree of its walks of length up to `w` (algorithms 7, 8).

    Every transition that writes has a register of its own.  Walks that cannot reach a final state in time are left out.
    """
    distance = _to_final(automaton)
    copies = [_Copy(automaton.start)]
    transitions: list[RegisterTransition] = []
    registers: list[str] = []
    front = [0]
    for length in range(1, w + 1):
        reached = []
        for source in front:
            copy = copies[source]
            for t in automaton.outgoing(copy.state):
                if distance[t.target] > w - length:
                    continue
                latest, writes = copy.latest, frozenset[int]()
                if t.writes:
                    latest = latest | dict.fromkeys(t.writes, len(registers))
                    writes = frozenset({len(registers)})
                    registers.append(", ".join(automaton.registers[register] for register in sorted(t.writes)))
                target = len(copies)
                _check_size(target, max_states)
                copies.append(_Copy(t.target, latest))
                reached.append(target)
                transitions.append(
                    RegisterTransition(source, _with_register_copies(t.guard, copy.latest), target, writes, t.marked)
                )
        front = reached
    finals = frozenset(number for number, copy in enumerate(copies) if copy.state in automaton.finals)
    return RMA(len(copies), 0, finals, tuple(registers), tuple(transitions))


# ---- phases ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Node:
    """State of an automaton unrolled in phases.

    Attributes
    ----------
    phase : int
        Position of the next event, modulo the number of phases.
    age : int
        Number of events that the run has read.
    state : int
        State that it is a copy of.
    places : tuple of (register, copy)
        The copy that holds the event of each live register.
    """

    phase: int
    age: int
    state: int
    places: tuple[tuple[int, int], ...] = ()


def unroll_in_phases(automaton: RMA, w: int, *, max_states: int = MAX_UNROLLED) -> RMA:
    """Unroll an automaton without silent transitions so that its determinised automaton is exact.

    It has the matches of ``unroll(automaton, w)`` with a loop at its start: the start states of the phases form a ring
    that reads any events.  The automaton must have no such loop itself.
    """
    distance, live = _to_final(automaton), live_registers(automaton)
    n_phases = max(w - 1, 1) if any(live) else 1
    start = _Node(0, 0, automaton.start)
    numbers, transitions = {start: 0}, list[RegisterTransition]()

    def number(node: _Node) -> int:
        if node not in numbers:
            _check_size(len(numbers), max_states)
            numbers[node] = len(numbers)
            nodes.append(node)
        return numbers[node]

    for node in (nodes := [start]):  # `number` appends to it
        phase = (node.phase + 1) % n_phases
        if node.age == 0:
            transitions.append(RegisterTransition(numbers[node], (), number(replace(node, phase=phase))))
        for t in automaton.outgoing(node.state):
            if distance[t.target] > w - node.age - 1:
                continue
            before = dict(node.places)
            after = before | dict.fromkeys(t.writes, node.phase)
            places = tuple((r, after[r]) for r in sorted(live[t.target]))
            stored = frozenset({node.phase}) if t.writes & live[t.target] else frozenset[int]()
            target = number(_Node(phase, node.age + 1, t.target, places))
            transitions.append(
                RegisterTransition(numbers[node], _with_register_copies(t.guard, before), target, stored, t.marked)
            )
    finals = frozenset(i for i, node in enumerate(nodes) if node.state in automaton.finals)
    names = tuple(f"event {phase} mod {n_phases}" for phase in range(n_phases)) if any(live) else ()
    return RMA(len(nodes), 0, finals, names, tuple(transitions))


# ---- both -----------------------------------------------------------------------------------------------------------


def _to_final(automaton: RMA) -> list[float]:
    """Return the length of the shortest walk from each state to a final one."""
    distance = [0.0 if automaton.is_final(state) else float("inf") for state in range(automaton.n_states)]
    for _ in range(automaton.n_states):
        for t in automaton.transitions:
            distance[t.source] = min(distance[t.source], distance[t.target] + 1)
    return distance


def _with_register_copies(guard: tuple[RegisterLiteral, ...], copies: dict[int, int]) -> tuple[RegisterLiteral, ...]:
    """Return a guard that reads copies of its registers (FindLastAppearance)."""
    names = copies | {CURRENT: CURRENT}
    return tuple(
        (tuple(replace(c, selection=tuple(names[r] for r in c.selection)) for c in formula), required)
        for formula, required in guard
    )


def _check_size(n_states: int, max_states: int) -> None:
    if n_states >= max_states:
        raise QueryTooLargeError(
            f"the unrolled automaton has more than {max_states:,} states", hint="a shorter window makes it smaller"
        )


_MAX_STATES = 256
MAX_MOVES = 1 << 13
MAX_RECOGNISED_EVENTS = 1 << 10
MAX_RECOGNISED_ATOMS = 63
"""Most atoms: one bitmask says which of them an event satisfies."""


@dataclass(frozen=True)
class RegisterTest:
    """A join predicate (an index of `AtomGraph.relations`), and the register of each of its variables."""

    relation: int
    registers: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Recogniser:
    """Deterministic automaton that recognises the ends of matches.

    A state has formulas; bit k of the number of a move says whether formula k of the state holds for the event.

    Attributes
    ----------
    n_registers : int
        Number of registers; one more, the last, holds the event that is read.
    tests : tuple of RegisterTest
    states : int32 array, shape (states, 4)
        First of the `listed` formulas, the one after the last, first of the `moves`, and 1 if matches end there.
    listed : int32 array, shape (listed,)
    formulas : int32 array, shape (formulas, 3)
        An atom whose guard the event must satisfy, first of the `tested`, and the one after the last.
    tested : int32 array, shape (tested,)
        Indices of `tests`.
    moves : int64 array, shape (moves, 2)
        Target, and the bits of the registers that take the event.
    idle : int32 array, shape (states, idle)
        State after 0, 1, ... events that satisfy no formula.  The last columns repeat the phases of the positions.
    period : int
        Number of the columns that repeat.
    """

    n_registers: int
    tests: tuple[RegisterTest, ...]
    states: Int32
    listed: Int32
    formulas: Int32
    tested: Int32
    moves: Int64
    idle: Int32
    period: int


class RecogniserTable(AtomTable):
    """Symbol table of the atoms that a recogniser tests events for.

    Attributes
    ----------
    recogniser : Recogniser
    """

    def __init__(self, graph: AtomGraph, recogniser: Recogniser) -> None:
        super().__init__(graph)
        self.recogniser = recogniser


def build_recogniser(formula: NormalForm, graph: AtomGraph, guards: Sequence[Guard], width: int) -> Recogniser:
    """Build the recogniser of ``formula WITHIN width EVENTS``.

    Parameters
    ----------
    formula
        The WHERE clause in LP-normal form.
    graph
        Its atom graph.
    guards
        Guards that the atoms of the graph name.
    width
        Length of the window, in positions after the first.

    Raises
    ------
    UnboundedFilterError
        When registers cannot test a join predicate.
    QueryTooLargeError
        When there are too many atoms, states or moves.
    SharedRegisterError
        When merged runs need different events in one register.
    """
    if len(graph.atoms) > MAX_RECOGNISED_ATOMS:
        raise QueryTooLargeError(f"a recogniser has at most {MAX_RECOGNISED_ATOMS} atoms")
    automaton = output_agnostic_rma(formula, width + 1, max_states=_MAX_STATES, max_unrolled=MAX_RECOGNISED_EVENTS)
    return _Explorer(graph, guards, automaton).explored(width)


@dataclass
class _Explorer:
    graph: AtomGraph
    guards: Sequence[Guard]
    automaton: DeterministicRMA
    tests: dict[RegisterTest, int] = field(default_factory=dict)
    numbers: dict[RegisterFormula, int] = field(default_factory=dict)
    formulas: list[tuple[int, int, int]] = field(default_factory=list)
    tested: list[int] = field(default_factory=list)
    moves: list[tuple[int, int]] = field(default_factory=list)

    def explored(self, width: int) -> Recogniser:
        """Return the tables of all states that the start state reaches."""
        states, listed, state = list[tuple[int, int, int, int]](), list[int](), 0
        while state < self.automaton.n_states:
            formulas = self._formulas_of(state)
            first = len(listed)
            listed += [self._formula_number(formula) for formula in formulas]
            states.append((first, len(listed), len(self.moves), int(self.automaton.is_final(state))))
            if len(self.moves) + (1 << len(formulas)) > MAX_MOVES:
                raise QueryTooLargeError(f"a recogniser has at most {MAX_MOVES:,} moves")
            self.moves += [self._register_move(state, formulas, bits) for bits in range(1 << len(formulas))]
            state += 1
        return Recogniser(
            self.automaton.n_registers,
            tuple(self.tests),
            np.array(states, np.int32),
            np.array(listed, np.int32),
            np.array(self.formulas, np.int32).reshape(len(self.formulas), 3),
            np.array(self.tested, np.int32),
            np.array(self.moves, np.int64),
            self._idle([first for _, _, first, _ in states], width),
            max(width, 1),
        )

    def _idle(self, firsts: list[int], width: int) -> Int32:
        """Return the states after events that satisfy no formula, given the first move of each state."""
        quiet = np.array([self.moves[first][0] for first in firsts], np.int32)
        columns = [np.arange(len(firsts), dtype=np.int32)]
        # what a run has read has left its window after `width` events; from then on there are phases alone
        for _ in range(width + max(width, 1)):
            columns.append(quiet[columns[-1]])
        return np.stack(columns, axis=1)

    def _formulas_of(self, state: int) -> list[RegisterFormula]:
        """Return the formulas that lead out of a state."""
        formulas: list[RegisterFormula] = []

        def note(formula: RegisterFormula) -> bool:
            formulas.append(formula)
            return False

        self.automaton.applicable(state, note)
        return formulas

    def _register_move(self, state: int, formulas: list[RegisterFormula], bits: int) -> tuple[int, int]:
        """Return target and registers of the move for which these formulas hold, or any if they cannot hold at once."""
        true = [formula for k, formula in enumerate(formulas) if bits >> k & 1]
        if not may_hold_together(true):
            return 0, 0
        (move,) = self.automaton.moves(state, frozenset(true))
        return move.target, sum(1 << register for register in move.writes)

    def _formula_number(self, formula: RegisterFormula) -> int:
        """Return the number of a formula: its guard, then its join predicates."""
        if formula not in self.numbers:
            self.numbers[formula] = len(self.formulas)
            begin, atom = len(self.tested), -1
            for condition in formula:
                if isinstance(condition.test, Guard):
                    atom = self._atom(condition.test, condition.negated)
                    continue
                relation = next(k for k, r in enumerate(self.graph.relations) if r.predicate == condition.test)
                current = self.automaton.n_registers
                registers = [current if register == CURRENT else register for register in condition.selection]
                test = RegisterTest(relation, tuple(zip(condition.variables, registers, strict=True)))
                self.tested.append(self.tests.setdefault(test, len(self.tests)))
            self.formulas.append((atom, begin, len(self.tested)))
        return self.numbers[formula]

    def _atom(self, guard: Guard, negated: bool) -> int:
        """Return an atom of the graph that has this guard."""
        number = self.guards.index(guard)
        return next(k for k, a in enumerate(self.graph.atoms) if a.tests == ((number, negated),))
