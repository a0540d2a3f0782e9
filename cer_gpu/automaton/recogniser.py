"""Tables of a recogniser: the output-agnostic automaton of a pattern with filters between events, explored as a whole.

papers: RMA, section 6, corollary 6.7.  The automaton has a single run, which tells where matches end, and
nothing else about them.  Its registers hold the events of the window (`cer_gpu.automaton.rma_unroll.unroll_in_phases`),
and its states grow exponentially with the window: it is for windows of few events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cer_gpu.arrays import Int32, Int64
from cer_gpu.automaton.atom_graph import AtomGraph, AtomTable
from cer_gpu.automaton.normal_form import Guard, NormalForm
from cer_gpu.automaton.rma import CURRENT, RegisterFormula, may_hold_together
from cer_gpu.automaton.rma_determinize import DeterministicRMA
from cer_gpu.automaton.rma_unroll import output_agnostic_rma
from cer_gpu.errors import QueryTooLargeError

_MAX_STATES = 256
MAX_MOVES = 1 << 13
MAX_RECOGNISED_EVENTS = 1 << 10
MAX_RECOGNISED_ATOMS = 63
"""Most atoms: one word says which of them an event satisfies."""


@dataclass(frozen=True)
class RegisterTest:
    """A filter between events (an index of `AtomGraph.relations`), and the register of each of its variables."""

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
        When registers cannot test a filter between events.
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
        """Return the number of a formula: its guard, then its filters between events."""
        if formula not in self.numbers:
            self.numbers[formula] = len(self.formulas)
            begin, atom = len(self.tested), -1
            for condition in formula:
                if isinstance(condition.test, Guard):
                    atom = self._atom(condition.test, condition.negated)
                    continue
                relation = next(k for k, r in enumerate(self.graph.relations) if r.predicate == condition.test)
                current = self.automaton.n_registers
                held = [current if register == CURRENT else register for register in condition.selection]
                test = RegisterTest(relation, tuple(zip(condition.variables, held, strict=True)))
                self.tested.append(self.tests.setdefault(test, len(self.tests)))
            self.formulas.append((atom, begin, len(self.tested)))
        return self.numbers[formula]

    def _atom(self, guard: Guard, negated: bool) -> int:
        """Return an atom of the graph that has this guard."""
        number = self.guards.index(guard)
        return next(k for k, a in enumerate(self.graph.atoms) if a.tests == ((number, negated),))
