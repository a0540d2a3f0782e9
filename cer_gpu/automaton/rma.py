"""Register match automata (RMA): automata with registers that hold events.

papers: RMA, section 4.  We differ in that the guard of a transition is a list of formulas, each required or excluded,
and that each condition of a formula has its own register selection: a guard of the paper, ``f`` with one selection, is
one required formula, and a min-term is a list of several.  A run is accepting if it reaches a final state: the paper
also requires that its last event is marked, which a SELECT clause or NOT at the end of a pattern may prevent here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.ceql.one_event import may_be_one
from cer_gpu.ceql.syntax import Predicate

CURRENT = -1
"""Register that stands for the event that is read: the paper's ``~``."""


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
        registers = [register for formula, _ in self.guard for condition in formula for register in condition.selection]
        return tuple(dict.fromkeys(registers)) or (CURRENT,)

    @property
    def reads(self) -> frozenset[int]:
        """Registers that the guard reads, `CURRENT` not included."""
        return frozenset(self.selection) - {CURRENT}


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
        transitions: list[list[RegisterTransition]] = [[] for _ in range(self.n_states)]
        for transition in self.transitions:
            transitions[transition.source].append(transition)
        return transitions

    @cached_property
    def _silent(self) -> list[list[int]]:
        targets: list[list[int]] = [[] for _ in range(self.n_states)]
        for source, target in self.silent:
            targets[source].append(target)
        return targets

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


def silent_closure(automaton: RMA, state: int) -> list[int]:
    """Return the states that silent transitions reach from a state, the state itself first."""
    reached = [state]
    for each in reached:  # the body appends to it
        reached += [target for target in automaton.silent_targets(each) if target not in reached]
    return reached


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
