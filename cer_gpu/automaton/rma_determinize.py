"""Determinisation of register match automata, on demand, and the check that makes it exact.

papers: RMA, section 5, theorem 5.5 and algorithm 5; section 6, definition 6.1 and corollary 6.7 (output-agnostic).  We
differ in that states and min-terms are made from the start state on demand, rather than over the whole power set.

The paper keeps the registers of the automaton, so that runs merged into one state share them.  That is exact only if
no run overwrites a register that another one still reads, which the paper does not require: with the same marks, runs
of ``A+ ; A AS x ; A+ ; B FILTER B.k = x.k`` store different events as x, and the output-agnostic automaton of figure 3
(a) for w = 3 forgets the first of two T events.  Here every transition is checked: it may write a register only if no
merged run that does not write it can read it later.  Then all runs merged into a state agree with its registers, by
induction over the length of the run, and the automata are equivalent.  An automaton that fails the check is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from cer_gpu.automaton.rma import (
    RMA,
    RegisterFormula,
    RegisterLiteral,
    RegisterTransition,
    live_registers,
    may_hold_together,
)
from cer_gpu.errors import QueryTooLargeError

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
