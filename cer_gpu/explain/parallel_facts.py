"""The parallelised automaton of a query as plain data, in the query's own words; and its join predicates.

papers: PCEA, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Any

from cer_gpu.automaton.conjunctive import QTree
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.automaton.parallel_pattern import GatheredState, Member, ParallelPattern, ParallelTransition, equal_sides
from cer_gpu.automaton.semi_joins import SemiJoin
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import mapped
from cer_gpu.explain.ceql_text import expression_text, name_text, predicate_text, variable_text
from cer_gpu.explain.step_names import at_once, listed, tests_string

MAX_SHOWN_VALUES = 12
"""Most equal values that one line of a q-tree shows."""


@dataclass(frozen=True)
class _Equality:
    """A filter: its text, the two variables that it compares, and the places whose events these hold."""

    text: str
    names: tuple[str, str]
    places: tuple[frozenset[int], frozenset[int]]


@dataclass
class ParallelFacts:
    """Facts about a parallel pattern.

    Parameters
    ----------
    pattern : ParallelPattern
    names : sequence of str
        Names of the places (`cer_gpu.explain.step_names.place_names`).
    guards : sequence of Guard
        `LogicalPlan.guards`.
    streams : sequence of str
        Those that FROM names.
    """

    pattern: ParallelPattern
    names: Sequence[str]
    guards: Sequence[Guard]
    streams: Sequence[str] = ()
    _equalities: list[_Equality] = field(init=False)
    _compared: dict[tuple[int, int, int], list[str]] = field(init=False)
    _places_of_state: list[frozenset[int]] = field(init=False)
    _numbers: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        """Read the filters, and find the places that the partial matches of each state may hold."""
        numbers = {member: v for v, members in enumerate(self.pattern.variables) for member in members}
        self._equalities, self._compared = [], {}
        for relation in self.pattern.graph.relations:
            sides = equal_sides(relation.predicate)
            assert sides is not None
            (one, left), (other, _) = sides
            holders = dict(zip(relation.variables, relation.holds, strict=True))
            text = predicate_text(relation.predicate)
            self._equalities.append(_Equality(text, (one, other), (holders[one], holders[other])))
            for a, b in product(holders[one], holders[other]):
                for pair in (a, b), (b, a):
                    self._compared.setdefault((numbers[Member(a, left)], *pair), []).append(text)
        places_of = [frozenset(places) for places in self.pattern.states]
        grows = True
        while grows:
            grows = False
            for t in self.pattern.transitions:
                more = places_of[t.target].union(t.places, *(places_of[source.state] for source in t.sources))
                grows |= more != places_of[t.target]
                places_of[t.target] = more
        self._places_of_state = places_of
        # states are numbered from 1 on, those of fewer events first
        order = sorted(range(len(places_of)), key=lambda i: (len(places_of[i]), sorted(places_of[i]), i))
        self._numbers = {state: number for number, state in enumerate(order, 1)}

    @property
    def is_chain(self) -> bool:
        """True if no transition gathers several partial matches: the automaton is a CCEA."""
        return all(len(t.sources) <= 1 for t in self.pattern.transitions)

    @property
    def n_self_joins(self) -> int:
        """Number of sets of several places at which one event may be."""
        return len({t.places for t in self.pattern.transitions if len(t.places) > 1})

    # ---- the automaton ----------------------------------------------------------------------------------------

    def automaton(self) -> dict[str, Any]:
        """Return the automaton in the form of `cer_gpu.explain.facts.automaton_facts`, for the same pictures.

        State 0 means that no event is read: transitions without sources leave it.  A transition of several sources has
        its own state of kind ``join``, in which they meet: each source leads to it by its keys, and it leads to the
        target by the test of the event.  `name` is empty for those two kinds, as no partial match is ever in them.
        `label` is the name of a state: the events that its partial matches hold, or the step that was the last.
        `rules` has the transitions as they are: `sources` with the equalities (`keys`) by which each is found,
        `target`, the test of the event, and the variables that hold it.
        """
        pattern = self.pattern
        states: list[dict[str, Any]] = [{"id": 0, "kind": "initial", "name": ""}]
        for i, number in self._numbers.items():
            kind = "final" if i in pattern.finals else "inner"
            states.append({"id": number, "kind": kind, "label": self._state_name(i)})
        rules = [self._transition_rule(t) for t in pattern.transitions]
        edges: list[dict[str, Any]] = []

        def edge(source: int, target: int, text: str, labels: list[str]) -> None:
            edges.append({"source": source, "target": target, "text": text, "kept": labels})

        for rule in rules:
            target, test, variables = rule["target"], rule["text"], rule["kept"]
            if len(rule["sources"]) > 1:
                join = len(states)
                states.append({"id": join, "kind": "join", "name": ""})
                for source, keys in zip(rule["sources"], rule["keys"], strict=True):
                    edge(source, join, " AND ".join(keys) or "any", [])
                edge(join, target, test, variables)
            elif rule["sources"]:
                edge(rule["sources"][0], target, ", ".join([test, *rule["keys"][0]]), variables)
            else:
                edge(0, target, test, variables)
        return {
            "model": "PCEA",
            "is_chain": self.is_chain,
            "states": states,
            "transitions": edges,
            "silent": [],
            "rules": rules,
            "equal_values": [self._member_values(members) for members in pattern.variables],
            "q_tree": [line for places, tree in pattern.trees if tree.inner for line in self._tree(places, tree)],
        }

    def _transition_rule(self, t: ParallelTransition) -> dict[str, Any]:
        atoms = [self.pattern.graph.atoms[place] for place in t.places]
        tests = tests_string(dict.fromkeys(test for atom in atoms for test in atom.tests), self.guards)
        labels = frozenset[str]().union(*(atom.selected for atom in atoms))
        return {
            "sources": [self._numbers[source.state] for source in t.sources],
            "keys": [list(self._key_equalities(t, source)) for source in t.sources],
            "target": self._numbers[t.target],
            "text": " AND ".join([tests, *self._alone(t)]),
            "kept": sorted(variable_text(name, self.streams) for name in labels),
        }

    def _state_name(self, state: int) -> str:
        return listed(self.names[place] for place in self.pattern.states[state])

    def partners(self, joins: Sequence[SemiJoin]) -> list[str]:
        """Return the semi-joins that show which events have partners, each with the values that are equal."""
        lines = []
        for join in joins:
            groups = [listed(self.names[place] for place in group) for group in join.groups]
            here = {place for group in join.groups for place in group}
            shared = [
                " = ".join(self._member_values(m for m in self.pattern.variables[v] if m.place in here))
                for v in join.key
            ]
            order = " before " if join.ordered else " with "
            lines.append(order.join(groups) + (f", {', '.join(shared)}" if shared else ""))
        return lines

    def _event_text(self, t: ParallelTransition) -> str:
        return at_once([self.names[place] for place in t.places])

    def _key_equalities(self, t: ParallelTransition, source: GatheredState) -> Iterator[str]:
        """Yield the equalities by which an event finds partial matches: filters, or what follows from several."""
        places = self.pattern.states[source.state]
        for v in source.key:
            filters = [self._compared.get((v, *pair), ()) for pair in product(t.places, places)]
            direct = list(dict.fromkeys(chain.from_iterable(filters)))
            if not direct:
                members = self.pattern.variables[v]
                left = next(m.expression for m in members if m.place in places)
                right = next(m.expression for m in members if m.place in t.places)
                direct = [predicate_text(s.Comparison("=", left, right))]
            yield from direct

    def _alone(self, t: ParallelTransition) -> list[str]:
        """Return the equalities of values of one event that is at several places, or in several variables."""
        equalities: dict[frozenset[str], str] = {}
        for members in self.pattern.variables:
            here = [
                mapped(member.expression, s.Attribute, lambda attribute: s.Attribute(attribute.name, attribute.span))
                for member in members
                if member.place in t.places
            ]
            first = expression_text(here[0]) if here else ""
            for other in here[1:]:
                text = expression_text(other)
                if text != first:
                    equalities.setdefault(frozenset((first, text)), predicate_text(s.Comparison("=", here[0], other)))
        return list(equalities.values())

    # ---- values -----------------------------------------------------------------------------------------------

    def _member_values(self, members: Iterable[Member]) -> list[str]:
        return list(dict.fromkeys(expression_text(member.expression) for member in members))

    def _tree(self, places: tuple[int, ...], tree: QTree) -> Iterator[str]:
        """Yield the lines of a q-tree: the values that all events below a line share, and the events."""
        for node in tree.nodes:
            indent = "  " * (len(tree.ancestors(node)) - 1)
            if isinstance(node, int):
                yield indent + self.names[places[node]]
                continue
            below = {places[leaf] for leaf in tree.leaves(node)}
            shared = []
            for members in self.pattern.variables:
                here = [member for member in members if member.place in places]
                if below == {member.place for member in here}:
                    values = self._member_values(here)
                    more = [f"{len(values) - MAX_SHOWN_VALUES:,} more"] if len(values) > MAX_SHOWN_VALUES else []
                    shared.append(" = ".join([*values[:MAX_SHOWN_VALUES], *more]))
            yield indent + (", ".join(shared) or "(no value in common)")

    # ---- filters ----------------------------------------------------------------------------------------------

    def relation_facts(self) -> list[dict[str, Any]]:
        """Return the join predicates, each with its kind, and the transitions that test it."""
        places: list[dict[str, None]] = [{} for _ in self._equalities]
        for t in self.pattern.transitions:
            for number, place in self._tested(t):
                places[number][place] = None
        return [
            {
                "text": each.text,
                "variables": list(relation.variables),
                "separable": True,
                "why": "each side reads one event",
                "places": list(places[number]),
            }
            for number, (each, relation) in enumerate(zip(self._equalities, self.pattern.graph.relations, strict=True))
        ]

    def step_facts(self) -> list[dict[str, Any]]:
        """Return what the event of each transition finds, with the equalities that are its key."""
        return [
            {
                "text": f"{self._event_text(t)} finds {self._state_name(source.state)}",
                "index": "hash" if source.key else "all",
                "by_index": list(self._key_equalities(t, source)),
                "tested": [],
            }
            for t in self.pattern.transitions
            for source in t.sources
        ]

    def _tested(self, t: ParallelTransition) -> Iterator[tuple[int, str]]:
        """Yield the filters that a transition tests, each by its number with the words for the place."""
        event = self._event_text(t)
        sources_of: dict[int, set[int]] = {place: {-1} for place in t.places}  # -1 is the event
        for source in t.sources:
            for place in self._places_of_state[source.state]:
                sources_of.setdefault(place, set()).add(source.state)
        for number, equality in enumerate(self._equalities):
            one, other = (set().union(*(sources_of.get(place, ()) for place in side)) for side in equality.places)
            for pair in sorted({(min(a, b), max(a, b)) for a, b in product(one, other)}):
                match pair:
                    case (-1, -1):
                        yield (
                            number,
                            f"{event}: on the event alone, as it is {' and '.join(map(name_text, equality.names))}",
                        )
                    case (-1, state):
                        yield number, f"{event} finds {self._state_name(state)}: hash"
                    case (a, b) if a != b:
                        both = f"{self._state_name(a)} and {self._state_name(b)}"
                        yield number, f"{event} finds {both}: hash, as both contain its value"
