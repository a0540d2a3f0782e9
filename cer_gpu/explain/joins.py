"""Join predicates as plain data: their kinds, and the places and indexes by which they are tested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cer_gpu.automaton.atom_graph import AtomGraph, Edge
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import walk
from cer_gpu.errors import QueryError
from cer_gpu.explain.ceql_text import name_text, predicate_text
from cer_gpu.expressions.bands import Difference
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.relation_terms import Comparison, Condition, FilterProgram, argument_of, arguments_of
from cer_gpu.expressions.relations import BoundRelations, RelationBinder
from cer_gpu.expressions.terms import MIRRORED
from cer_gpu.planning.binding import Binding
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.runtime.join_plan import (
    ALL_TESTED,
    BY_GRID,
    BY_HASH,
    BY_HASH_AND_GRID,
    BY_ZONES,
    NEXT_TO,
    EdgePlan,
    JoinPlan,
    Pair,
)

_ZERO = s.Literal(0, "0")


def presumed(predicates: Sequence[s.Predicate]) -> BoundRelations:
    """Bind join predicates as if all columns held numbers, or timestamps next to a duration.

    Types may turn a comparison into a program: strings by ``<``, ``<>`` of numbers of two types, and some decimals.
    """
    columns: dict[str, int] = {}
    conditions = tuple(_presumed_condition(predicate, columns) for predicate in predicates)
    differences = tuple(map(_differences, predicates))
    return BoundRelations(conditions, (), (), (), Binder(pa.schema([]), ""), differences)


def compared_sides(predicate: s.Predicate) -> tuple[s.Expression, s.Expression] | None:
    """Return the sides of a comparison, perhaps negated, or None for other predicates."""
    while isinstance(predicate, s.Not):
        predicate = predicate.operand
    return (predicate.left, predicate.right) if isinstance(predicate, s.Comparison) else None


def _differences(predicate: s.Predicate) -> tuple[Difference, ...]:
    """Return the differences that a filter bounds if its columns are floats, or timestamps next to a duration."""
    if isinstance(predicate, s.Apart):
        return ()
    compares_times = any(isinstance(node, s.Duration) for node in walk(predicate))
    column_type = pa.timestamp("us") if compares_times else pa.float64()
    names = dict.fromkeys(attribute.name for attribute in s.attributes(predicate))
    binder = RelationBinder(pa.schema([(name, column_type) for name in names]), "")
    try:
        binder.condition(predicate)
    except QueryError:
        return ()
    return binder.differences[-1]


def _presumed_condition(predicate: s.Predicate, columns: dict[str, int]) -> Condition:
    program = FilterProgram(arguments_of(predicate), ())
    if isinstance(predicate, s.Apart):
        sides = [(argument_of(side), columns.setdefault(side.name, len(columns))) for side in _clocks(predicate)]
        return Comparison("<=", *sides[0], *sides[1])
    if not isinstance(predicate, s.Comparison):
        return program
    op, left, right = _times_apart(predicate.op, predicate.left, predicate.right)
    one, other = arguments_of(left), arguments_of(right)
    if len(one) != 1 or len(other) != 1 or one == other:
        return program
    columns_read = [columns.setdefault(_side_text(side), len(columns)) for side in (left, right)]
    return Comparison(op, one[0], columns_read[0], other[0], columns_read[1])


def _clocks(predicate: s.Apart) -> tuple[s.Attribute, s.Attribute]:
    return predicate.later, predicate.earlier


def _times_apart(op: str, left: s.Expression, right: s.Expression) -> tuple[str, s.Expression, s.Expression]:
    """Return a comparison; ``x - y <= 5 MINUTES`` is one of x with y, at the distance of a constant."""
    if isinstance(left, s.Duration):
        op, left, right = MIRRORED[op], right, left
    if isinstance(right, s.Duration) and isinstance(left, s.Arithmetic) and left.op == "-" and op != "<>":
        return op, left.left, left.right
    return op, left, right


def _side_text(side: s.Expression) -> str:
    return predicate_text(s.Comparison("=", side, _ZERO))


_INDEXES = {NEXT_TO: "the event just before", BY_ZONES: "zone maps", ALL_TESTED: "one by one"}


def join_plan(plan: LogicalPlan, binding: Binding | None) -> JoinPlan | None:
    """Return the places of the join predicates of a query, or None if it has none.

    Without a binding, columns are presumed to hold numbers (`cer_gpu.explain.joins`).
    """
    if plan.graph is None:
        return None
    if binding is not None and binding.joins is not None:
        return binding.joins.plan
    bound = presumed([relation.predicate for relation in plan.graph.relations])
    return JoinPlan(plan.graph, bound, bool(plan.partition))


@dataclass
class FilterPlaces:
    """Places at which the join predicates of a query are tested, in words.

    Parameters
    ----------
    plan : JoinPlan
    names : sequence of str
        Names of the steps (`cer_gpu.explain.step_names.step_names`).

    Attributes
    ----------
    strings : list of str
        The join predicates.
    edges : list of str
        The pairs of steps that may follow one another.
    distant : list of Pair
        Filters of two events between which other events of the pattern may be, in one iteration.
    """

    plan: JoinPlan
    names: Sequence[str]
    strings: list[str] = field(init=False)
    edges: list[str] = field(init=False)
    distant: list[Pair] = field(init=False)

    def __post_init__(self) -> None:
        """Name the edges, and find the filters between distant events."""
        plan = self.plan
        self.strings = [predicate_text(relation.predicate) for relation in plan.graph.relations]
        self.edges = [_edge_text(edge_plan.edge, self.names) for edge_plan in plan.edges]
        pairs = dict.fromkeys(pair for pairs in plan.distant.values() for pair in pairs)
        self.distant = [pair for pair in pairs if _may_be_apart(plan.graph, pair)]
        self._zoned = {pair for edge_plan in plan.edges for pair in edge_plan.tested if plan.is_zoned(pair)}

    @property
    def searched(self) -> list[str]:
        """Pairs of steps between which candidates may be tested in vain."""
        return [
            f"{edge} ({_INDEXES.get(edge_plan.index, f'after the {edge_plan.index}')})"
            for edge, edge_plan in zip(self.edges, self.plan.edges, strict=True)
            if edge_plan.tested and not edge_plan.edge.contiguous
        ]

    def searches(self, absence: int) -> bool:
        """Return True if the events of some gap of an absence are searched while matches are listed."""
        sources = {edge.source for edge in self.plan.graph.edges if absence in edge.absent}
        return any((absence, source) not in self.plan.watched for source in sources)

    @property
    def in_vain(self) -> bool:
        """True if paths may be found that do not pass."""
        absences = range(len(self.plan.graph.absences))
        return bool(self.plan.general or self.distant or any(map(self.searches, absences)))

    def step_facts(self) -> list[dict[str, Any]]:
        """Return the pairs of steps that may follow one another, with the index that finds the earlier events."""
        facts = []
        for edge, edge_plan in zip(self.edges, self.plan.edges, strict=True):
            by_index, others = self._served(edge_plan)
            facts.append(
                {
                    "text": edge,
                    "index": _INDEXES.get(edge_plan.index, edge_plan.index),
                    "by_index": [self.strings[pair.relation] for pair in by_index],
                    "tested": [self.strings[pair.relation] for pair in others],
                }
            )
        return facts

    def relation_facts(self) -> list[dict[str, Any]]:
        """Return the join predicates, each with its kind, the reason for it, and its places."""
        places: list[dict[str, None]] = [{} for _ in self.strings]
        for number, place in self._of_relations():
            places[number][place] = None
        facts = []
        for number, relation in enumerate(self.plan.graph.relations):
            separable = isinstance(self.plan.bound.conditions[number], Comparison)
            facts.append(
                {
                    "text": self.strings[number],
                    "variables": list(relation.variables),
                    "separable": separable,
                    "why": "each side reads one event" if separable else _inseparable(relation.predicate),
                    "places": list(places[number]),
                }
            )
        return facts

    def _served(self, edge_plan: EdgePlan) -> tuple[Sequence[Pair], Sequence[Pair]]:
        """Return the filters of an edge that its index evaluates, and those that are tested after it."""
        if edge_plan.index == NEXT_TO:
            return edge_plan.tested, ()
        zoned = self._zoned if edge_plan.index == BY_ZONES else set()
        served = [pair for pair in edge_plan.tested if pair in zoned or pair in edge_plan.proposed]
        return [*edge_plan.guaranteed, *served], [pair for pair in edge_plan.tested if pair not in served]

    def _of_relations(self) -> Iterator[tuple[int, str]]:
        """Yield the places of all relations, each with the number of the relation."""
        plan, relations = self.plan, self.plan.graph.relations
        for edge, edge_plan in zip(self.edges, plan.edges, strict=True):
            by_index, others = self._served(edge_plan)
            place, tested = f"{edge}: {_INDEXES.get(edge_plan.index, edge_plan.index)}", f"{edge}: {_after(edge_plan)}"
            yield from ((pair.relation, place) for pair in by_index)
            yield from ((pair.relation, tested) for pair in others)
        for atom, pairs in plan.own.items():
            for pair in pairs:
                both = " and ".join(map(name_text, relations[pair.relation].variables))
                yield pair.relation, f"{self.names[atom]}: on the event alone, as it is {both}"
        for pair in self.distant:
            variables = relations[pair.relation].variables
            earlier, later = (name_text(variables[index]) for index in (pair.earlier, pair.later))
            earlier = f"PREV({earlier})" if pair.nearest else earlier
            yield pair.relation, f"{earlier} ... {later}: while listing, once both events are known"
        for far in plan.far:
            both = f"{self.names[far.edge.source]} ... {self.names[far.edge.target]}"
            place = _INDEXES.get(far.index, far.index)
            for pair in (*far.guaranteed, *far.tested):
                yield pair.relation, f"{both}: {place}, before the events in between are searched"
        yield from ((number, "whole matches: while listing") for number in plan.general)
        for number, absence in enumerate(plan.graph.absences):
            if self.searches(number):
                for relation in absence.relations:
                    each = ", for each choice of the events before it" if plan.chooses(relation) else ""
                    yield relation, f"{self.names[absence.atom]}: while listing{each}"


def _after(edge_plan: EdgePlan) -> str:
    """Return the words for a test of the events that the index of an edge finds, one by one."""
    if edge_plan.index == BY_ZONES:
        return "one by one, after the zone maps"
    if edge_plan.index in (BY_GRID, BY_HASH_AND_GRID):
        return f"one by one, after the {edge_plan.index}"
    if edge_plan.index == BY_HASH:
        return f"one by one, after the hash{'' if edge_plan.guaranteed else ' of the keys of PARTITION BY'}"
    return "one by one"


def _edge_text(edge: Edge, names: Sequence[str]) -> str:
    sign = ":" if edge.contiguous else ";"
    following = "next " if edge.loops else ""
    return f"{names[edge.source]} {sign} {following}{names[edge.target]}"


def _may_be_apart(graph: AtomGraph, pair: Pair) -> bool:
    """Return True if a path of two edges or more leads from the earlier event of a filter to the later one.

    On the way no iteration around both begins anew.
    """
    relation = graph.relations[pair.relation]
    earlier, later = relation.holds[pair.earlier], relation.holds[pair.later]
    for level in {relation.level(graph.atoms[atom]) for atom in earlier}:
        edges = [edge for edge in graph.edges if relation.loop_level(edge.loops) >= level]
        after: dict[int, list[int]] = {}
        for edge in edges:
            after.setdefault(edge.source, []).append(edge.target)
        begin = [atom for atom in earlier if relation.level(graph.atoms[atom]) == level]
        between = {b for atom in begin for b in after.get(atom, ()) if not (pair.nearest and b in later)}
        todo, reached = list(between), set(between)
        while todo:
            following = set(after.get(todo.pop(), ()))
            if following & later:
                return True
            todo += following - reached
            reached |= following
    return False


def _inseparable(predicate: s.Predicate) -> str:
    """Return the reason why no index evaluates a filter."""
    arguments = arguments_of(predicate)
    sides = compared_sides(predicate)
    if len(arguments) > 2:
        return f"it reads {len(arguments)} events"
    if len(arguments) == 1:
        return "it reads one event"
    if sides is None:
        return "it is not one comparison"
    if any(len(arguments_of(side)) > 1 for side in sides):
        return "one side reads several events"
    if any(len(arguments_of(side)) == 0 for side in sides):
        return "one side reads no event"
    return "no index compares these types"
