"""Parallelized finite automata (PFA): runs that are trees, an interpreter of them, and their determinisation.

papers: PCEA, section 3, proposition 3.2 and appendix A.  We differ in that determinisation makes only the sets of
states that strings reach, and leaves out transitions without sources.  The paper's construction takes them always,
while no run tree can: the node of such a transition would have no children, and the leaves have states of I instead.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from cer_gpu.errors import QueryTooLargeError

MAX_TREE_STATES = 4096

_State = Hashable
Symbol = Hashable


@dataclass(frozen=True)
class TreeStep:
    """A transition (P, a, q) of Δ: runs in each of the `sources` go on together in the `target`."""

    sources: frozenset[_State]
    symbol: Symbol
    target: _State


@dataclass(frozen=True)
class FiniteRunTree:
    """A run tree, or a part of one below a node: the state of the node, and the trees of its children."""

    state: _State
    children: frozenset[FiniteRunTree] = frozenset()


@dataclass(frozen=True)
class PFA:
    """A parallelized finite automaton (Q, Σ, Δ, I, F).

    Attributes
    ----------
    states, alphabet, steps, initial, final
        The paper's Q, Σ, Δ, I and F.
    """

    states: frozenset[_State]
    alphabet: frozenset[Symbol]
    steps: tuple[TreeStep, ...]
    initial: frozenset[_State]
    final: frozenset[_State]

    @property
    def size(self) -> int:
        """Number of states plus the size of the transitions, the paper's |P|."""
        return len(self.states) + sum(len(step.sources) + 1 for step in self.steps)

    def run_trees(self, string: Sequence[Symbol]) -> Iterator[FiniteRunTree]:
        """Yield the accepting run trees over a string: the last symbol is read at the root, the first above leaves."""
        for state in self.final:
            yield from self._trees(state, string)

    def _trees(self, state: _State, string: Sequence[Symbol]) -> Iterator[FiniteRunTree]:
        if not string:
            if state in self.initial:
                yield FiniteRunTree(state)
            return
        for step in self._into(state, string[-1]):
            ways = (list(self._trees(source, string[:-1])) for source in step.sources)
            yield from (FiniteRunTree(state, frozenset(children)) for children in itertools.product(*ways))

    def accepts(self, string: Sequence[Symbol]) -> bool:
        """Return True if there is an accepting run tree over a string."""

        @functools.cache
        def reached(state: _State, n_read: int) -> bool:
            if n_read == 0:
                return state in self.initial
            return any(
                all(reached(source, n_read - 1) for source in step.sources)
                for step in self._into(state, string[n_read - 1])
            )

        return any(reached(state, len(string)) for state in self.final)

    def _into(self, state: _State, symbol: Symbol) -> Iterator[TreeStep]:
        """Yield the transitions that a node with children can take: those that have sources."""
        return (step for step in self.steps if step.target == state and step.symbol == symbol and step.sources)


@dataclass(frozen=True)
class DFA:
    """The reachable part of the deterministic automaton of a PFA; states are numbers, and 0 is the start.

    Attributes
    ----------
    sets : tuple of frozenset
        For each state, the set of states of the PFA that it stands for.
    moves : dict
        The target for each state and symbol.
    final : frozenset of int
    """

    sets: tuple[frozenset[_State], ...]
    moves: dict[tuple[int, Symbol], int]
    final: frozenset[int]

    def accepts(self, string: Sequence[Symbol]) -> bool:
        """Return True if the automaton accepts a string of symbols of the alphabet."""
        state = 0
        for symbol in string:
            state = self.moves[state, symbol]
        return state in self.final


def determinize(automaton: PFA) -> DFA:
    """Return the deterministic automaton of a PFA with n states: at most 2^n states (proposition 3.2).

    A state is the set of states that run trees over a string can have at their roots.

    Raises
    ------
    QueryTooLargeError
        If strings reach more than `MAX_TREE_STATES` sets of states.
    """
    numbers = {automaton.initial: 0}
    moves: dict[tuple[int, Symbol], int] = {}
    waiting = [automaton.initial]
    for reached in waiting:  # the body appends to it
        for symbol in sorted(automaton.alphabet, key=repr):
            following = frozenset(
                step.target
                for step in automaton.steps
                if step.symbol == symbol and step.sources and step.sources <= reached
            )
            if following not in numbers:
                if len(numbers) == MAX_TREE_STATES:
                    raise QueryTooLargeError(f"the deterministic automaton has more than {MAX_TREE_STATES:,} states")
                numbers[following] = len(numbers)
                waiting.append(following)
            moves[numbers[reached], symbol] = numbers[following]
    final = frozenset(number for reached, number in numbers.items() if reached & automaton.final)
    return DFA(tuple(numbers), moves, final)
