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
from cer_gpu.errors import QueryTooLargeError

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


MAX_RMA_STATES = 4096
_MAX_TRANSITIONS = 1 << 16
"""Most transitions of an automaton that `DeterministicRMA.explored` lists."""


class SharedRegisterError(ValueError):
    """Determinised automaton that would be wrong: merged runs need different events in one register."""


class DeterministicRMA:
    """The deterministic automaton (DRMA) of an automaton without silent transitions, made on demand.

    From a state, at most one transition with each output applies to an event; if `output_agnostic`, at most one of all.

    Parameters
    ----------
    automaton
    output_agnostic
        True: outputs are not distinguished, so that there is a single run, which recognises only the ends of matches;
        a transition is marked if one of those that it merges is.
    max_states
        Bound on the number of states.
    checked
        False: share registers as the paper does, even where that is wrong.
    """

    start = 0

    def __init__(
        self, automaton: RMA, *, output_agnostic: bool = False, max_states: int = MAX_RMA_STATES, checked: bool = True
    ) -> None:
        if automaton.silent:
            raise ValueError("determinisation needs an automaton without silent transitions")
        self.automaton = automaton
        self.output_agnostic = output_agnostic
        self.max_states = max_states
        self.checked = checked
        self._live = live_registers(automaton)
        self._states: dict[frozenset[int], int] = {}
        self._inside: list[frozenset[int]] = []
        self._formulas: list[list[RegisterFormula]] = []
        self._moves: dict[tuple[int, frozenset[RegisterFormula]], list[RegisterTransition]] = {}
        self._merged_state(frozenset({automaton.start}))

    @property
    def n_registers(self) -> int:
        """Number of registers: those of the automaton."""
        return self.automaton.n_registers

    @property
    def n_states(self) -> int:
        """Number of states met so far."""
        return len(self._inside)

    def states_of(self, state: int) -> frozenset[int]:
        """Return the states of the automaton that a state merges."""
        return self._inside[state]

    def is_final(self, state: int) -> bool:
        """Return True if a state merges a final state."""
        return not self.automaton.finals.isdisjoint(self._inside[state])

    def silent_targets(self, state: int) -> Collection[int]:
        """Return no state: there are no silent transitions."""
        return ()

    def applicable(self, state: int, applies: Callable[[RegisterFormula], bool]) -> Iterable[RegisterTransition]:
        """Return the transitions out of a state that apply, at most one for each output; build them if necessary."""
        return self.moves(state, frozenset(formula for formula in self._formulas[state] if applies(formula)))

    def moves(self, state: int, true: frozenset[RegisterFormula]) -> list[RegisterTransition]:
        """Return the transitions out of a state whose min-term requires these formulas and excludes all others."""
        transitions = self._moves.get((state, true))
        if transitions is None:
            transitions = self._moves[state, true] = self._marked_transitions(state, true)
        return transitions

    def explored(self) -> RMA:
        """Return the whole automaton: all states that some min-terms reach."""
        transitions: list[RegisterTransition] = []
        state = 0
        while state < self.n_states:
            for true in _min_terms(self._formulas[state]):
                transitions += self.moves(state, true)
                if len(transitions) > _MAX_TRANSITIONS:
                    raise QueryTooLargeError(
                        f"the deterministic automaton has more than {_MAX_TRANSITIONS:,} transitions"
                    )
            state += 1
        finals = frozenset(state for state in range(self.n_states) if self.is_final(state))
        return RMA(self.n_states, self.start, finals, self.automaton.registers, tuple(transitions))

    def _marked_transitions(self, state: int, true: frozenset[RegisterFormula]) -> list[RegisterTransition]:
        """Return the transitions of marked min-terms with the same formulas, one for each output."""
        enabled = [
            transition
            for inner in sorted(self._inside[state])
            for transition in self.automaton.outgoing(inner)
            if all((not formula or formula in true) == required for formula, required in transition.guard)
        ]
        # TRUE is in no min-term: required, it can be left out, and no min-term excludes it
        guard = tuple[RegisterLiteral, ...]((formula, formula in true) for formula in self._formulas[state])
        groups = [enabled] if self.output_agnostic else [[t for t in enabled if t.marked is o] for o in (False, True)]
        return [self._merged_transition(state, guard, group) for group in groups if group]

    def _merged_transition(
        self, source: int, guard: tuple[RegisterLiteral, ...], group: list[RegisterTransition]
    ) -> RegisterTransition:
        writes = frozenset[int]().union(*(t.writes for t in group))
        for t in group if self.checked else ():
            needed = (writes - t.writes) & self._live[t.target]
            if needed:
                name = self.automaton.registers[min(needed)]
                raise SharedRegisterError(
                    f"two runs in one state of the deterministic automaton need different events as {name!r}"
                )
        target = self._merged_state(frozenset(t.target for t in group))
        return RegisterTransition(source, guard, target, writes, any(t.marked for t in group))

    def _merged_state(self, inside: frozenset[int]) -> int:
        """Return the state that merges these, adding it if necessary."""
        if inside not in self._states:
            if self.n_states == self.max_states:
                raise QueryTooLargeError(f"the deterministic automaton has more than {self.max_states:,} states")
            self._states[inside] = self.n_states
            self._inside.append(inside)
            leaving = (t for inner in sorted(inside) for t in self.automaton.outgoing(inner))
            formulas = (formula for t in leaving for formula, _ in t.guard if formula)
            self._formulas.append(list(dict.fromkeys(formulas)))
        return self._states[inside]


def _min_terms(formulas: list[RegisterFormula]) -> Iterator[frozenset[RegisterFormula]]:
    """Yield the formulas that each min-term requires, but for those that no event satisfies together."""
    todo: list[tuple[int, frozenset[RegisterFormula]]] = [(0, frozenset())]
    while todo:
        number, true = todo.pop()
        if number == len(formulas):
            yield true
            continue
        todo.append((number + 1, true))
        formula = formulas[number]
        if may_hold_together((formula, *true)):
            todo.append((number + 1, true | {formula}))
