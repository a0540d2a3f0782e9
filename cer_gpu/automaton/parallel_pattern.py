"""Patterns whose joins a parallelised complex event automaton (PCEA) makes: conjunctions, chains, trees of equalities.

papers: PCEA, sections 3 and 4, appendix B.  A transition reads one event, for one place of the formula or, in a self
join, for several; it gathers a partial match for each of its sources, with which the event shares the values of
variables.  As in conjunctive queries, a variable is a set of values that the filters make equal.

Three kinds of patterns have such an automaton here, as far as all join predicates are equalities:

* a conjunction of single events that is hierarchical: its states are the nodes of the compact q-tree (theorem 4.1);
* steps one after the other, each with values of the one before (a chain, the paper's CCEA);
* a conjunction, then such steps: the first of them gathers the parts of the conjunction that it connects (figure 1).

The paper keeps a state for each variable and each self join that completed it, as a binary predicate there reads two
events alone; here a partial match is stored under its values, whatever it was read as, so that these states are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from cer_gpu.arrays import Bools, Int32
from cer_gpu.automaton.alphabet import NumberedAlphabet
from cer_gpu.automaton.atom_graph import AtomGraph, build_place_graph
from cer_gpu.automaton.conjunctive import ConjunctAtom, QTree, crossing, is_acyclic, q_tree, why_not_hierarchical
from cer_gpu.automaton.normal_form import Atom, Both, Guard, NormalForm, Related, Then, is_plain
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.one_event import may_be_one
from cer_gpu.ceql.traversal import walk

_MAX_TRANSITIONS = 4096
"""Most transitions."""
MAX_SELF_JOINS = 256
"""Most sets of several places at which one event may be: they are exponential in the atoms of a self join."""


@dataclass(frozen=True)
class Member:
    """A value of a variable: an expression over the event of one place, as the filter has it."""

    place: int
    expression: s.Expression


@dataclass(frozen=True)
class GatheredState:
    """A state whose partial matches a transition gathers, if the `key` variables have the values that its event has."""

    state: int
    key: tuple[int, ...]


@dataclass(frozen=True)
class ParallelTransition:
    """A transition ``(P, U, B, L, q)``: one event at all of `places`, a partial match of each source, the target."""

    places: tuple[int, ...]
    sources: tuple[GatheredState, ...]
    target: int


@dataclass(frozen=True)
class ParallelPattern:
    """A PCEA over the places of a formula.

    Attributes
    ----------
    graph : AtomGraph
        The atoms of the formula, each a place of its own, without the edges within its conjunction; and its filters.
    variables : tuple of tuple of Member
        The values that are equal, each set a variable.
    states : tuple of tuple of int
        For each state the places that its partial matches hold, at least.
    transitions : tuple of ParallelTransition
    finals : frozenset of int
    n_conjunction : int
        Number of places in the conjunction with which the pattern begins; they are the first.
    trees : tuple of (tuple of int, QTree)
        For each part of the conjunction its places and its compact q-tree, whose atoms are numbered as these places.
    without_choice : bool
        True if every run reads an event for each place.
    shares_events : bool
        True if several partial matches that a transition gathers may hold one event.
    ambiguous : bool
        True if one match may be found in several runs.
    """

    graph: AtomGraph
    variables: tuple[tuple[Member, ...], ...]
    states: tuple[tuple[int, ...], ...]
    transitions: tuple[ParallelTransition, ...]
    finals: frozenset[int]
    n_conjunction: int
    trees: tuple[tuple[tuple[int, ...], QTree], ...]
    without_choice: bool
    shares_events: bool
    ambiguous: bool

    @property
    def labels_identify_steps(self) -> bool:
        """True if the variables of the events of a match identify its run: each place has one of its own."""
        labels = [atom.selected for atom in self.graph.atoms]
        return all(one - frozenset[str]().union(*labels[:i], *labels[i + 1 :]) for i, one in enumerate(labels))

    @property
    def predicates(self) -> list[s.Predicate]:
        """Join predicates."""
        return [relation.predicate for relation in self.graph.relations]


def variables_at(variables: tuple[tuple[Member, ...], ...], place: int) -> frozenset[int]:
    """Return the variables that the event of a place has values of."""
    return frozenset(v for v, members in enumerate(variables) if any(member.place == place for member in members))


@dataclass(frozen=True)
class Conflict:
    """Proof that a conjunction is not hierarchical: two values that one event shares with different other events.

    Attributes
    ----------
    both, only_first, only_second : int
        Places: of the event that has both values, and of those that have only one of them.
    first, second : Member
        The values, as the event at `both` has them.
    acyclic : bool
        True: no PCEA has the joins of the conjunction (theorem 4.2).
    """

    both: int
    only_first: int
    only_second: int
    first: Member
    second: Member
    acyclic: bool


class NotParallelError(Exception):
    """The joins of a pattern are not those of a PCEA; the message says why.

    `conflict` is the reason where the conjunction is not hierarchical; the message has only numbers for it.
    """

    def __init__(self, message: str, conflict: Conflict | None = None) -> None:
        super().__init__(message)
        self.conflict = conflict


def build_parallel(
    formula: NormalForm, guards: Sequence[Guard], selected: frozenset[str], n_steps: int = 0
) -> ParallelPattern:
    """Build the automaton of a formula.

    Parameters
    ----------
    formula
        The WHERE clause in LP-normal form.
    guards
        `LogicalPlan.guards`.
    selected
        The selected variables.
    n_steps
        As for `cer_gpu.automaton.atom_graph.build_atom_graph`.

    Raises
    ------
    NotParallelError
        When the pattern has no such automaton, or none that is small.
    """
    if not is_plain(formula):
        raise NotParallelError("the pattern has absences, options or counted repetitions")
    n_conjunction = _conjunction(formula)
    return _ParallelBuilder(
        build_place_graph(formula, guards, selected, n_steps), tuple(guards), n_conjunction
    ).pattern()


def _conjunction(formula: NormalForm) -> int:
    """Return the number of places of the conjunction that begins a formula, or 0 if a single event does."""
    first = formula
    while isinstance(first, Then | Related):
        first = first.left if isinstance(first, Then) else first.body
    parts = list(walk(first)) if isinstance(first, Both) else []
    if not all(isinstance(part, Atom | Both | Related) for part in parts):
        raise NotParallelError("a side of the conjunction is not a single event")
    if sum(isinstance(part, Both) for part in walk(formula)) > sum(isinstance(part, Both) for part in parts):
        where = "behind another step" if parts else "behind another step, in an iteration, or under OR"
        raise NotParallelError(f"a conjunction stands {where}")
    return sum(isinstance(part, Atom) for part in parts)


class _ParallelBuilder:
    def __init__(self, graph: AtomGraph, guards: tuple[Guard, ...], n_conjunction: int) -> None:
        self.graph, self.guards, self.n_conjunction = graph, guards, n_conjunction
        self.states: dict[Any, int] = {}
        self.places_of_state: list[tuple[int, ...]] = []
        self.transitions: dict[ParallelTransition, None] = {}
        self.trees: dict[tuple[int, ...], QTree] = {}

    def pattern(self) -> ParallelPattern:
        graph = self.graph
        if any(edge.contiguous for edge in graph.edges):
            raise NotParallelError("steps follow one another without a gap")
        self.variables = self._joined_members()
        self.of_place = [variables_at(self.variables, place) for place in range(len(graph.atoms))]
        self._check_implied()
        finals: list[int] = []
        if self.n_conjunction and not self._step_places:
            finals = [self._conjunction_state(tuple(range(self.n_conjunction)))]
        else:
            self._check_connected()
            finals = [self._step_state(place) for place in self._step_places if graph.atoms[place].final]
            for place in self._first_steps():
                self._begin_step(place)
            for edge in graph.edges:
                if edge.source >= self.n_conjunction:
                    shared = self.of_place[edge.source] & self.of_place[edge.target]
                    source = GatheredState(self._step_state(edge.source), tuple(sorted(shared)))
                    self._add_transition(ParallelTransition((edge.target,), (source,), self._step_state(edge.target)))
        shares_events = any(self._are_one(pair) for pair in combinations(range(self.n_conjunction), 2))
        if shares_events:
            joined_labels([graph.atoms[place].selected for place in range(self.n_conjunction)])
        return ParallelPattern(
            graph,
            self.variables,
            tuple(self.places_of_state),
            tuple(self.transitions),
            frozenset(finals),
            self.n_conjunction,
            tuple(self.trees.items()),
            all(map(self._is_always, range(len(graph.atoms)))),
            shares_events,
            graph.ambiguous,
        )

    @property
    def _step_places(self) -> range:
        """The places after the conjunction."""
        return range(self.n_conjunction, len(self.graph.atoms))

    def _first_steps(self) -> list[int]:
        """Return the places that begin the pattern, or that come right after its conjunction."""
        if not self.n_conjunction:
            return [place for place in self._step_places if self.graph.atoms[place].initial]
        return sorted({e.target for e in self.graph.edges if e.source < self.n_conjunction})

    # ---- variables --------------------------------------------------------------------------------------------

    def _joined_members(self) -> tuple[tuple[Member, ...], ...]:
        """Return the sets of values that the filters make equal."""
        groups: list[dict[Member, None]] = []
        self.direct: set[frozenset[Member]] = set()  # values that one filter compares
        for relation in self.graph.relations:
            sides = equal_sides(relation.predicate)
            if sides is None:
                raise NotParallelError("a filter is not an equality of values of two events")
            members: list[list[Member]] = []
            for variable, expression in sides:
                places = relation.holds[relation.variables.index(variable)]
                if any(self.graph.atoms[place].repeats[0] for place in places):
                    raise NotParallelError("a filter reads events of an iteration")
                members.append([Member(place, expression) for place in sorted(places)])
            self.direct |= {frozenset((a, b)) for a in members[0] for b in members[1]}
            if not members[0] or not members[1]:
                continue
            together = dict.fromkeys(members[0] + members[1])
            touched = [group for group in groups if not group.keys().isdisjoint(together)]
            groups = [group for group in groups if all(group is not each for each in touched)]
            merged: dict[Member, None] = {}
            for group in (*touched, together):
                merged |= group
            groups.append(merged)
        return tuple(
            sorted(
                (tuple(sorted(group, key=_member_order)) for group in groups),
                key=lambda members: _member_order(members[0]),
            )
        )

    def _check_connected(self) -> None:
        """Refuse values that an event shares with one that it does not directly follow (theorem 4.2)."""
        edges = [(e.source, e.target) for e in self.graph.edges]
        for members in self.variables:
            places = {member.place for member in members}
            for source, target in edges:
                if source in places and target not in places and places & self._reach(target):
                    raise NotParallelError("a filter compares events that do not directly follow one another")

    def _check_implied(self) -> None:
        """Refuse values that are equal only where the event of a third place is present, which another run may lack.

        Values are compared at one place, between places of the conjunction, and along edges.
        """
        edges = {frozenset((edge.source, edge.target)) for edge in self.graph.edges}
        for members in self.variables:
            if all(self._is_always(member.place) for member in members):
                continue
            for one, other in combinations(members, 2):
                together = max(one.place, other.place) < self.n_conjunction
                joined = one.place == other.place or together or frozenset((one.place, other.place)) in edges
                if joined and frozenset((one, other)) not in self.direct:
                    raise NotParallelError("two values are equal only where a third event is there")

    def _reach(self, place: int) -> set[int]:
        reached: set[int] = set()
        todo = [place]
        while todo:
            after = set(self.graph.after(todo.pop())) - reached
            reached |= after
            todo += after
        return reached

    def _is_always(self, place: int) -> bool:
        """Return True if every run reads an event for a place."""
        if place < self.n_conjunction:
            return True
        seen: set[int] = set()
        todo = [first for first in self._first_steps() if first != place]
        while todo:
            each = todo.pop()
            if self.graph.atoms[each].final:
                return False
            seen.add(each)
            todo += [after for after in self.graph.after(each) if after != place and after not in seen]
        return True

    # ---- states and transitions -------------------------------------------------------------------------------

    def _numbered_state(self, key: Any, places: tuple[int, ...]) -> int:
        if key not in self.states:
            self.states[key] = len(self.places_of_state)
            self.places_of_state.append(places)
        return self.states[key]

    def _step_state(self, place: int) -> int:
        return self._numbered_state(place, (place,))

    def _add_transition(self, transition: ParallelTransition) -> None:
        self.transitions[transition] = None
        if len(self.transitions) > _MAX_TRANSITIONS:
            raise NotParallelError(f"the automaton has more than {_MAX_TRANSITIONS:,} transitions")

    def _begin_step(self, place: int) -> None:
        """Add the transition of a first step: it gathers the parts of the conjunction before it."""
        own = self.of_place[place]
        sources = []
        for part in self._connected_groups(range(self.n_conjunction), own):
            shared = frozenset().union(*(self.of_place[each] for each in part)) & own
            if any(not shared <= self.of_place[each] for each in part):
                raise NotParallelError(
                    "a step compares its event with one of a conjunction, and another of that may come after it"
                )
            sources.append(GatheredState(self._conjunction_state(part), tuple(sorted(shared))))
        self._add_transition(ParallelTransition((place,), tuple(sources), self._step_state(place)))

    def _connected_groups(self, places: Sequence[int], excluded: frozenset[int]) -> Iterator[tuple[int, ...]]:
        """Yield the places of a conjunction in groups, which variables other than the known ones connect."""
        waiting = list(places)
        while waiting:
            part = [waiting.pop(0)]
            for each in part:  # the body appends to it
                open_ = self.of_place[each] - excluded
                neighbours = [other for other in waiting if self.of_place[other] & open_]
                waiting = [other for other in waiting if other not in neighbours]
                part += neighbours
            yield tuple(sorted(part))

    # ---- conjunctions (theorem 4.1) ---------------------------------------------------------------------------

    def _conjunction_state(self, places: tuple[int, ...]) -> int:
        """Return the state of a conjunction of some places, with the states and transitions that lead to it."""
        if places in self.trees:
            return self.states[places, self.trees[places].root]
        atoms = [ConjunctAtom(place, frozenset(map(_variable_name, self.of_place[place]))) for place in places]
        reason = why_not_hierarchical(atoms, [f"#{place}" for place in places])
        if reason is not None:
            raise NotParallelError(f"the conjunction is not hierarchical: {reason}", self._conflict(places, atoms))
        tree = self.trees[places] = q_tree(atoms).compact()
        for node in tree.nodes:
            self._numbered_state((places, node), tuple(places[leaf] for leaf in tree.leaves(node)))
        for leaf in tree.leaves():
            self._add_transition(ParallelTransition((places[leaf],), (), self.states[places, leaf]))
        for chosen in self._self_joins(places):
            above = [set(tree.path(leaf)) for leaf in chosen]
            for variable in tree.inner:
                if all(variable in path for path in above):
                    sources = [
                        self._gathered_state(places, tree, node, chosen) for node in tree.incomplete(variable, chosen)
                    ]
                    read = tuple(places[leaf] for leaf in chosen)
                    self._add_transition(ParallelTransition(read, tuple(sources), self.states[places, variable]))
        return self.states[places, tree.root]

    def _conflict(self, places: tuple[int, ...], atoms: Sequence[ConjunctAtom]) -> Conflict | None:
        witness = crossing(atoms)
        if witness is None:
            return None
        both, one, other = (places[i] for i in (witness.both, witness.only_first, witness.only_second))
        first, second = (
            next(m for m in self.variables[int(v)] if m.place == both) for v in (witness.first, witness.second)
        )
        return Conflict(both, one, other, first, second, is_acyclic(atoms))

    def _gathered_state(
        self, places: tuple[int, ...], tree: QTree, node: Any, chosen: tuple[int, ...]
    ) -> GatheredState:
        shared = frozenset().union(*(tree.shared(node, leaf) for leaf in chosen))
        return GatheredState(self.states[places, node], tuple(sorted(map(int, shared))))

    def _self_joins(self, places: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield the sets of places, as leaves of the tree, at which one event may be."""
        waiting: list[tuple[int, ...]] = [(leaf,) for leaf in range(len(places))]
        n = 0
        while waiting:
            chosen = waiting.pop(0)
            yield chosen
            n += len(chosen) > 1
            if n > MAX_SELF_JOINS:
                raise NotParallelError(f"one event may be at more than {MAX_SELF_JOINS} sets of several places")
            waiting += [
                (*chosen, leaf)
                for leaf in range(chosen[-1] + 1, len(places))
                if self._are_one([places[each] for each in (*chosen, leaf)])
            ]

    def _are_one(self, places: Sequence[int]) -> bool:
        tests = (test for place in places for test in self.graph.atoms[place].tests)
        return may_be_one((self.guards[guard], negated) for guard, negated in tests)


def _member_order(member: Member) -> tuple[int, str]:
    return member.place, str(member.expression)


def _variable_name(variable: int) -> str:
    return str(variable)


def joined_labels(sets: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Return the unions of some sets of variables, the empty one first.

    Raises
    ------
    NotParallelError
        When they are more than MAX_SELF_JOINS.
    """
    labels = {frozenset[str](): None}
    for one in sets:
        labels |= {one | other: None for other in labels}
        if len(labels) > MAX_SELF_JOINS:
            raise NotParallelError(f"one event may be in more than {MAX_SELF_JOINS} sets of variables")
    return list(labels)


def equal_sides(predicate: s.Predicate) -> list[tuple[str, s.Expression]] | None:
    """Return both sides of an equality of two events, each with its variable, or None if a filter is not one."""
    if not (isinstance(predicate, s.Comparison) and predicate.op == "="):
        return None
    sides = []
    for side in (predicate.left, predicate.right):
        read = list(s.attributes(side))
        names = {attribute.variable.name for attribute in read if attribute.variable is not None}
        timed = any(isinstance(node, s.Duration) for node in walk(side))
        if len(names) != 1 or timed or any(attribute.event != "EACH" for attribute in read):
            return None
        sides.append((names.pop(), side))
    return sides


class ParallelTable(NumberedAlphabet):
    """Symbol table of a parallel pattern, with the symbols met so far.

    Attributes
    ----------
    pattern : ParallelPattern
    places_of : list of int
        For each symbol the places that its events may be at, as bits.
    fired : list of list of int
        For each symbol the transitions that its events may fire: first those whose target others gather.
    has_gaps : bool
        True if selected events must follow one another (`strict`).
    """

    def __init__(self, pattern: ParallelPattern, *, strict: bool = False) -> None:
        self.pattern = pattern
        self.has_gaps = strict
        gathered = {source.state for transition in pattern.transitions for source in transition.sources}
        order = range(len(pattern.transitions))
        self._firing_order = sorted(order, key=lambda t: pattern.transitions[t].target not in gathered)
        self._masks = [sum(1 << place for place in transition.places) for transition in pattern.transitions]
        self._make_labels()
        self.ending: Bools = np.zeros(0, np.bool_)
        self.places_of: list[int] = []
        self.fired: list[list[int]] = []
        super().__init__()

    def _make_labels(self) -> None:
        """Assign numbers to the sets of variables that may hold one event, also if several partial matches have it."""
        atoms = self.pattern.graph.atoms
        event_labels = [
            frozenset[str]().union(*(atoms[place].selected for place in transition.places))
            for transition in self.pattern.transitions
        ]
        # parts of a conjunction may hold one event
        in_conjunction = range(self.pattern.n_conjunction if self.pattern.shares_events else 0)
        joined = joined_labels([atoms[place].selected for place in in_conjunction])
        self.labels: list[frozenset[str]] = list(dict.fromkeys([*joined, *event_labels]))
        number = {label: i for i, label in enumerate(self.labels)}
        self.marks: Int32 = np.array([number[label] for label in event_labels], np.int32)
        n = len(joined) if self.pattern.shares_events else 0
        self.unions: Int32 = np.array([[number[a | b] for b in joined] for a in joined], np.int32)[:n, :n].copy()

    def passed_tests(self, word: int) -> int:
        """Return the tests that an event passes, given its bit vector."""
        return self.pattern.graph.satisfied(word)

    def add_symbol(self, symbol: int, passed: int) -> None:
        """Add a new symbol to the tables."""
        fired = [t for t in self._firing_order if self._masks[t] & ~passed == 0]
        self.places_of.append(passed)
        self.fired.append(fired)
        ends = any(self.pattern.transitions[t].target in self.pattern.finals for t in fired)
        self.ending = np.append(self.ending, ends)
