"""Register match automata (RMA): automata with registers that hold events, and a plain interpreter of them.

papers: RMA, section 4.  We differ in that the guard of a transition is a list of formulas, each required or excluded,
and that each condition of a formula has its own register selection: a guard of the paper, ``f`` with one selection, is
one required formula, and a min-term is a list of several.  A run is accepting if it reaches a final state: the paper
also asks that its last event is marked, which a SELECT clause or NOT at the end of a pattern may prevent here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Protocol

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.ceql.one_event import may_be_one
from cer_gpu.ceql.syntax import Predicate

CURRENT = -1
"""Register that stands for the event that is read: the paper's ``~``."""

_Event = Mapping[str, Any]


@dataclass(frozen=True)
class RegisterCondition:
    """A test of the event that is read and of events in registers.

    Attributes
    ----------
    test : Guard or Predicate
        A guard tests the one event of `selection`; a predicate names its events by variables.
    selection : tuple of int
        Registers that hold the arguments, or `CURRENT` (the paper's ``rs``).
    variables : tuple of str
        The variables of the predicate that stand for the arguments; empty for a guard.
    negated : bool
        True if the condition holds wherever the test does not.
    """

    test: Guard | Predicate
    selection: tuple[int, ...] = (CURRENT,)
    variables: tuple[str, ...] = ()
    negated: bool = False


RegisterFormula = tuple[RegisterCondition, ...]
"""Conjunction of conditions; the empty one is TRUE."""
RegisterLiteral = tuple[RegisterFormula, bool]
"""A formula, and True if it must hold, False if it must not."""
Holds = Callable[[RegisterCondition, Sequence[_Event]], bool]
"""Evaluator: True if the test of a condition is TRUE for these events, given in the order of its selection."""


@dataclass(frozen=True)
class RegisterTransition:
    """A transition ``(source, f, rs) -> (target, R, o)`` of Δ.

    `guard` (f and rs) is a conjunction; `writes` (R) are the registers that take the event, and `marked` is the output:
    True for ``●`` (the event belongs to the match), False for ``○``.
    """

    source: int
    guard: tuple[RegisterLiteral, ...]
    target: int
    writes: frozenset[int] = frozenset()
    marked: bool = False

    @property
    def selection(self) -> tuple[int, ...]:
        """Registers that the guard reads, in the order of its conditions, `CURRENT` included."""
        found = [register for formula, _ in self.guard for condition in formula for register in condition.selection]
        return tuple(dict.fromkeys(found)) or (CURRENT,)

    @property
    def reads(self) -> frozenset[int]:
        """Registers that the guard reads, `CURRENT` not included."""
        return frozenset(self.selection) - {CURRENT}


class RegisterAutomaton(Protocol):
    """Interface that the interpreter runs: an `RMA`, or one whose states are made on demand."""

    @property
    def start(self) -> int:
        """The start state q^s."""

    @property
    def n_registers(self) -> int:
        """Number of registers."""

    def is_final(self, state: int) -> bool:
        """Return True if a run that reaches the state is accepting."""

    def applicable(self, state: int, applies: Callable[[RegisterFormula], bool]) -> Iterable[RegisterTransition]:
        """Return the transitions out of a state that apply, given the formulas that hold."""

    def silent_targets(self, state: int) -> Collection[int]:
        """Return the targets of the silent transitions (ε) out of a state."""


@dataclass(frozen=True)
class RMA:
    """A register match automaton with one start state: states ``0 .. n_states-1``.

    Attributes
    ----------
    n_states, start, finals
        The paper's Q, q^s and Q^f.
    registers : tuple of str
        RG: for each register, the variables that it holds, to be shown.
    transitions : tuple of RegisterTransition
        Δ without its silent transitions.
    silent : tuple of (source, target)
        The silent transitions (ε).
    """

    n_states: int
    start: int
    finals: frozenset[int]
    registers: tuple[str, ...]
    transitions: tuple[RegisterTransition, ...]
    silent: tuple[tuple[int, int], ...] = ()

    @property
    def n_registers(self) -> int:
        """Number of registers."""
        return len(self.registers)

    @cached_property
    def _outgoing(self) -> list[list[RegisterTransition]]:
        found: list[list[RegisterTransition]] = [[] for _ in range(self.n_states)]
        for transition in self.transitions:
            found[transition.source].append(transition)
        return found

    @cached_property
    def _silent(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in range(self.n_states)]
        for source, target in self.silent:
            found[source].append(target)
        return found

    def outgoing(self, state: int) -> Sequence[RegisterTransition]:
        """Return the transitions out of a state that read an event."""
        return self._outgoing[state]

    def is_final(self, state: int) -> bool:
        """Return True if a run that reaches the state is accepting."""
        return state in self.finals

    def applicable(self, state: int, applies: Callable[[RegisterFormula], bool]) -> Iterator[RegisterTransition]:
        """Yield the transitions out of a state that apply, given the formulas that hold."""
        for transition in self.outgoing(state):
            if all(applies(formula) == required for formula, required in transition.guard):
                yield transition

    def silent_targets(self, state: int) -> Collection[int]:
        """Return the targets of the silent transitions (ε) out of a state."""
        return self._silent[state]


# ---- runs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Configuration:
    """A configuration (i, q and the registers) of a run, and the match of the run so far (definitions 4.3 and 4.4).

    Attributes
    ----------
    index : int
        Index of the next event.
    state : int
    registers : tuple of int or None
        The index of the event that each register holds; None: it is empty (the paper's ``#``).
    marks : frozenset of int
        Indices of the marked events.
    """

    index: int
    state: int
    registers: tuple[int | None, ...]
    marks: frozenset[int] = frozenset()


def initial(automaton: RegisterAutomaton) -> Configuration:
    """Return the initial configuration: the start state, and empty registers."""
    return Configuration(0, automaton.start, (None,) * automaton.n_registers)


def successors(
    automaton: RegisterAutomaton, configuration: Configuration, stream: Sequence[_Event], holds: Holds
) -> set[Configuration]:
    """Return the successors of a configuration on the next event, silent transitions before it included."""
    found: set[Configuration] = set()
    index, registers = configuration.index, configuration.registers

    def applies(formula: RegisterFormula) -> bool:
        return all(
            holds(condition, [stream[_held(registers, index, register)] for register in condition.selection])
            != condition.negated
            for condition in formula
        )

    for state in silent_closure(automaton, configuration.state):
        for transition in automaton.applicable(state, applies):
            written = tuple(index if r in transition.writes else held for r, held in enumerate(registers))
            marks = configuration.marks | {index} if transition.marked else configuration.marks
            found.add(Configuration(index + 1, transition.target, written, marks))
    return found


def _held(registers: tuple[int | None, ...], index: int, register: int) -> int:
    """Return the index of the event that a condition reads from a register."""
    held = index if register == CURRENT else registers[register]
    if held is None:
        raise ValueError(f"the guard of a transition reads register {register}, which is empty")
    return held


def matches(automaton: RegisterAutomaton, stream: Sequence[_Event], holds: Holds) -> dict[int, set[frozenset[int]]]:
    """Return the matches of an automaton over a stream: sets of marked indices by the index of the last event read."""
    found: dict[int, set[frozenset[int]]] = {}
    for configuration in _accepting(automaton, stream, holds, marking=True):
        found.setdefault(configuration.index - 1, set()).add(configuration.marks)
    return found


def recognised(automaton: RegisterAutomaton, stream: Sequence[_Event], holds: Holds) -> set[int]:
    """Return the indices of the events at which a run becomes accepting: the automaton viewed as a recogniser."""
    return {configuration.index - 1 for configuration in _accepting(automaton, stream, holds, marking=False)}


def _accepting(
    automaton: RegisterAutomaton, stream: Sequence[_Event], holds: Holds, *, marking: bool
) -> Iterator[Configuration]:
    """Yield the last configurations of accepting runs; without `marking` all runs have the same, empty match."""
    current = {initial(automaton)}
    for _ in stream:
        reached = {after for before in current for after in successors(automaton, before, stream, holds)}
        if not marking:
            reached = {Configuration(c.index, c.state, c.registers) for c in reached}
        for configuration in reached:
            if any(automaton.is_final(state) for state in silent_closure(automaton, configuration.state)):
                yield configuration
        current = reached


def silent_closure(automaton: RegisterAutomaton, state: int) -> list[int]:
    """Return the states that silent transitions reach from a state, the state itself first."""
    found = [state]
    for reached in found:  # the body appends to it
        found += [target for target in automaton.silent_targets(reached) if target not in found]
    return found


# ---- structure --------------------------------------------------------------------------------------------------


def may_hold_together(formulas: Iterable[RegisterFormula]) -> bool:
    """Return False if the guards of several formulas rule out that one event satisfies all of them."""
    conditions = chain.from_iterable(formulas)
    return may_be_one((c.test, c.negated) for c in conditions if isinstance(c.test, Guard))


def live_registers(automaton: RMA) -> list[frozenset[int]]:
    """Return, for each state of an automaton without silent transitions, the registers that may be read later.

    A register is live in a state if a walk from the state reads it before it writes it.
    """
    live = [frozenset[int]()] * automaton.n_states
    changed = True
    while changed:
        changed = False
        for t in automaton.transitions:
            more = live[t.source] | t.reads | (live[t.target] - t.writes)
            changed |= more != live[t.source]
            live[t.source] = more
    return live
