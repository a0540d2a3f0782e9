"""Plain interpreter of register match automata, the reference for what is built from them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cer_gpu.automaton.rma import CURRENT, RegisterCondition, RegisterFormula, RegisterTransition

_Event = Mapping[str, Any]
Holds = Callable[[RegisterCondition, Sequence[_Event]], bool]
"""Evaluator: True if the test of a condition is TRUE for these events, given in the order of its selection."""


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
    after: set[Configuration] = set()
    index, registers = configuration.index, configuration.registers

    def applies(formula: RegisterFormula) -> bool:
        return all(
            holds(condition, [stream[_index_in(registers, index, register)] for register in condition.selection])
            != condition.negated
            for condition in formula
        )

    for state in _silent_closure(automaton, configuration.state):
        for transition in automaton.applicable(state, applies):
            written = tuple(index if r in transition.writes else row for r, row in enumerate(registers))
            marks = configuration.marks | {index} if transition.marked else configuration.marks
            after.add(Configuration(index + 1, transition.target, written, marks))
    return after


def _index_in(registers: tuple[int | None, ...], index: int, register: int) -> int:
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
            if any(automaton.is_final(state) for state in _silent_closure(automaton, configuration.state)):
                yield configuration
        current = reached


def _silent_closure(automaton: RegisterAutomaton, state: int) -> list[int]:
    """Return the states that silent transitions reach from a state, the state itself first."""
    reached = [state]
    for each in reached:  # the body appends to it
        reached += [target for target in automaton.silent_targets(each) if target not in reached]
    return reached
