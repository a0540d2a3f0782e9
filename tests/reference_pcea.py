"""Parallelized complex event automata (PCEA), chains among them (CCEA), and a plain interpreter of their run trees.

papers: PCEA, sections 2 and 3.  Predicates are values here: a unary predicate is an atom that an event must be an
instance of, and an equality predicate takes values from certain places of two events.  We differ in that an automaton
is unambiguous if no two *accepting* runs have one valuation, where the paper says no other run: a run that is not
accepting has no output.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

StateKey = Hashable
Label = Hashable
Valuation = frozenset[tuple[Label, int]]
"""Output of a run: pairs of a label and a position that it marks."""


@dataclass(frozen=True)
class Event:
    """A tuple R(a, b, ...) of a stream."""

    relation: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        """Return the event as the paper writes it."""
        return f"{self.relation}({', '.join(map(str, self.values))})"


# ---- predicates -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Variable:
    """A variable of an atom; all other terms are constants."""

    name: str

    def __str__(self) -> str:
        """Return the name."""
        return self.name


@dataclass(frozen=True)
class Pattern:
    """An atom R(x, y, 2), as the unary predicate of the events that are instances of it (U of an atom).

    Attributes
    ----------
    relation : str
    terms : tuple
        Variables and constants; an event has equal values wherever a variable is repeated.
    """

    relation: str
    terms: tuple[Any, ...]

    def __str__(self) -> str:
        """Return the atom as the paper writes it."""
        return f"{self.relation}({', '.join(map(str, self.terms))})"

    @cached_property
    def places(self) -> dict[Variable, int]:
        """First place of each variable among the terms."""
        found: dict[Variable, int] = {}
        for place, term in enumerate(self.terms):
            if isinstance(term, Variable):
                found.setdefault(term, place)
        return found

    def holds(self, event: Event) -> bool:
        """Return True if an event is an instance of the atom."""
        if event.relation != self.relation or len(event.values) != len(self.terms):
            return False
        return all(
            value == (event.values[self.places[term]] if isinstance(term, Variable) else term)
            for term, value in zip(self.terms, event.values, strict=True)
        )


@dataclass(frozen=True)
class Projection:
    """A partial function from events to tuples of values.

    Attributes
    ----------
    cases : tuple of (pattern, places)
        An event of a pattern has the values at these places; the first pattern that holds counts.
    """

    cases: tuple[tuple[Pattern, tuple[int, ...]], ...]

    def value(self, event: Event) -> tuple[Any, ...] | None:
        """Return the value of an event, or None where the function is not defined."""
        for pattern, places in self.cases:
            if pattern.holds(event):
                return tuple(event.values[place] for place in places)
        return None


@dataclass(frozen=True)
class Equality:
    """An equality predicate of B_eq: both projections are defined, of the earlier event and the later one, and equal.

    Attributes
    ----------
    left, right : Projection
        The partial functions of the earlier and of the later event.
    """

    left: Projection
    right: Projection

    def __str__(self) -> str:
        """Return the atoms of both sides."""
        sides = [" or ".join(str(pattern) for pattern, _ in side.cases) for side in (self.left, self.right)]
        return f"({', '.join(sides)})"

    def holds(self, earlier: Event, later: Event) -> bool:
        """Return True if a pair of events satisfies the predicate."""
        value = self.left.value(earlier)
        return value is not None and value == self.right.value(later)


def equality(earlier: Sequence[Pattern], later: Pattern) -> Equality:
    """Return the predicate of an event of one of several atoms, and a later one of another atom, that one h maps.

    Raises
    ------
    ValueError
        If the earlier atoms do not share the same variables with the later one: that is no equality predicate.
    """
    shared = {tuple(sorted(pattern.places.keys() & later.places.keys())) for pattern in earlier}
    if len(shared) != 1:
        raise ValueError(
            f"expected atoms that share the same variables with {later}, got {', '.join(map(str, earlier))}"
        )
    (variables,) = shared

    def case(pattern: Pattern) -> tuple[Pattern, tuple[int, ...]]:
        return pattern, tuple(pattern.places[variable] for variable in variables)

    return Equality(Projection(tuple(map(case, earlier))), Projection((case(later),)))


# ---- automata ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PceaTransition:
    """A transition (P, U, B, L, q) of Δ.

    Attributes
    ----------
    joins : tuple of (state, Equality)
        P and B: the states whose runs are gathered, each with the predicate of the last event of its run and the event
        that is read; empty for a transition that starts a run.
    unary : Pattern
        U, which the event satisfies.
    labels : frozenset
        L, the labels of the event; not empty.
    target : StateKey
    """

    joins: tuple[tuple[StateKey, Equality], ...]
    unary: Pattern
    labels: frozenset[Label]
    target: StateKey

    @property
    def sources(self) -> tuple[StateKey, ...]:
        """The states P."""
        return tuple(state for state, _ in self.joins)


@dataclass(frozen=True)
class PCEA:
    """A parallelized complex event automaton (Q, U, B, Ω, Δ, F).

    Attributes
    ----------
    states : tuple
        Q, in the order of pictures.
    transitions : tuple of PceaTransition
        Δ; its predicates are U and B, its labels Ω.
    finals : frozenset
        F.
    """

    states: tuple[StateKey, ...]
    transitions: tuple[PceaTransition, ...]
    finals: frozenset[StateKey]

    @property
    def size(self) -> int:
        """Number of states plus the size of the transitions, the paper's |P|."""
        return len(self.states) + sum(len(t.joins) + len(t.labels) for t in self.transitions)

    @property
    def is_chain(self) -> bool:
        """True if no transition gathers runs: the automaton is a CCEA up to names of states."""
        return all(len(t.joins) <= 1 for t in self.transitions)


def chain(
    states: Sequence[StateKey],
    initial: Iterable[tuple[StateKey, Pattern, Iterable[Label]]],
    steps: Iterable[tuple[StateKey, Pattern, Equality, Iterable[Label], StateKey]],
    finals: Iterable[StateKey],
) -> PCEA:
    """Return a chain complex event automaton (CCEA) as a PCEA.

    Parameters
    ----------
    states, steps, finals
        Q, Δ and F.
    initial
        The partial function I: at most one predicate and set of labels for each state.
    """
    starts = [PceaTransition((), unary, frozenset(labels), state) for state, unary, labels in initial]
    if len({start.target for start in starts}) < len(starts):
        raise ValueError("expected at most one initial predicate for each state")
    later = [PceaTransition(((p, b),), unary, frozenset(labels), q) for p, unary, b, labels, q in steps]
    return PCEA(tuple(states), (*starts, *later), frozenset(finals))


# ---- runs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunTree:
    """A run tree: the configuration (q, i, L) of its root, and the trees of its children, whose states differ."""

    state: StateKey
    position: int
    labels: frozenset[Label]
    children: frozenset[RunTree] = frozenset()

    def nodes(self) -> Iterator[RunTree]:
        """Yield the trees of all nodes, the root first."""
        yield self
        for child in self.children:
            yield from child.nodes()

    @cached_property
    def valuation(self) -> Valuation:
        """The output of the run."""
        return frozenset((label, node.position) for node in self.nodes() for label in node.labels)

    @property
    def first(self) -> int:
        """The least position of the run."""
        return min(node.position for node in self.nodes())

    @property
    def is_simple(self) -> bool:
        """True if no two nodes mark one position with one label: the run has the size of its output."""
        return len(self.valuation) == sum(len(node.labels) for node in self.nodes())


def run_trees(automaton: PCEA, stream: Sequence[Event]) -> list[list[RunTree]]:
    """Return, for each position of a stream, the run trees whose root is there, accepting or not."""
    found: list[list[RunTree]] = []
    for position, event in enumerate(stream):
        here: dict[RunTree, None] = {}  # two transitions may give the same tree
        for t in automaton.transitions:
            if t.unary.holds(event):
                ways = (
                    [tree for tree in _with_root(found, state) if predicate.holds(stream[tree.position], event)]
                    for state, predicate in t.joins
                )
                for children in itertools.product(*ways):
                    here[RunTree(t.target, position, t.labels, frozenset(children))] = None
        found.append(list(here))
    return found


def _with_root(found: Iterable[Iterable[RunTree]], state: StateKey) -> Iterator[RunTree]:
    return (tree for trees in found for tree in trees if tree.state == state)


def accepting_runs(automaton: PCEA, stream: Sequence[Event]) -> list[list[RunTree]]:
    """Return, for each position of a stream, the accepting runs at it."""
    return [[tree for tree in trees if tree.state in automaton.finals] for trees in run_trees(automaton, stream)]


def outputs(automaton: PCEA, stream: Sequence[Event], window: int | None = None) -> list[set[Valuation]]:
    """Return the output of an automaton at each position of a stream.

    With a window w, only outputs whose first position lies at most w before the last one count (section 5).
    """
    return [
        {tree.valuation for tree in trees if window is None or tree.position - tree.first <= window}
        for trees in accepting_runs(automaton, stream)
    ]


def ambiguous_runs(automaton: PCEA, stream: Sequence[Event]) -> tuple[RunTree, ...]:
    """Return accepting runs over a stream that an unambiguous automaton does not have, or nothing.

    That is a run that is not simple, or two runs with one valuation.
    """
    for trees in accepting_runs(automaton, stream):
        seen: dict[Valuation, RunTree] = {}
        for tree in trees:
            if not tree.is_simple:
                return (tree,)
            if tree.valuation in seen:
                return seen[tree.valuation], tree
            seen[tree.valuation] = tree
    return ()
