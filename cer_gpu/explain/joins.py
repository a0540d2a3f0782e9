"""Filters between events as plain data: their kinds, and the places and indexes by which they are tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from cer_gpu.automaton.atom_graph import NO_LOOP, AtomGraph, Edge
from cer_gpu.automaton.normal_form import Atom, NormalForm
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import walk
from cer_gpu.explain.presumed import presumed, sides_of
from cer_gpu.explain.writing import name_text, predicate_text
from cer_gpu.planning.binding import Binding
from cer_gpu.planning.plan import Plan
from cer_gpu.predicates.relations import Comparison, arguments_of
from cer_gpu.runtime.join_tables import ALL_TESTED, BY_HASH, BY_ZONES, NEXT_TO, EdgePlan, JoinPlan, Pair

_INDEXES = {NEXT_TO: "the event just before", BY_ZONES: "zone maps", ALL_TESTED: "one by one"}


def join_plan(plan: Plan, binding: Binding | None) -> JoinPlan | None:
    """Return the places of the filters between events of a query, or None if it has none.

    Without a binding, columns are presumed to hold numbers (`cer_gpu.explain.presumed`).
    """
    if plan.graph is None:
        return None
    if binding is not None and binding.joins is not None:
        return binding.joins.plan
    bound = presumed([relation.predicate for relation in plan.graph.relations])
    return JoinPlan(plan.graph, bound, bool(plan.partition))


def step_names(graph: AtomGraph, formula: NormalForm) -> list[str]:
    """Return a name for each atom: a variable, that of a filter first, else its type; with its number if not unique.

    Parameters
    ----------
    graph
    formula
        The formula of the graph.
    """
    atoms = [part for part in walk(formula) if isinstance(part, Atom)]
    names = []
    for number, atom in enumerate(atoms):
        kind = "any event" if atom.guard.event_type is None else name_text(atom.guard.event_type)
        related = [
            variable
            for relation in graph.relations
            for variable, held in zip(relation.variables, relation.holds, strict=True)
            if number in held and variable != atom.guard.event_type
        ]
        aliases = sorted(label for label in atom.labels if label != atom.guard.event_type and ">" not in label)
        if atom.negated:
            names.append(f"NOT({kind})")
        elif related or aliases:
            names.append(name_text((related or aliases)[0]))
        else:
            names.append(kind)
    often = Counter(names)
    return [name if often[name] == 1 else f"{name} (step {i})" for i, name in enumerate(names, 1)]


def step_facts(plan: JoinPlan, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the pairs of steps that may follow one another, with the index that finds the earlier events."""
    texts = _texts(plan)
    return [
        {
            "text": _edge_text(edge_plan.edge, names),
            "index": _INDEXES.get(edge_plan.index, edge_plan.index),
            "by_index": [texts[pair.relation] for pair in _by_index(plan, edge_plan)],
            "tested": [texts[pair.relation] for pair in _one_by_one(plan, edge_plan)],
        }
        for edge_plan in plan.edges
    ]


def relation_facts(plan: JoinPlan, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the filters between events, each with its kind, the reason for it, and the places where it is tested."""
    facts = []
    for number, (relation, text) in enumerate(zip(plan.graph.relations, _texts(plan), strict=True)):
        separable = isinstance(plan.bound.conditions[number], Comparison)
        facts.append(
            {
                "text": text,
                "variables": list(relation.variables),
                "separable": separable,
                "why": "each side reads one event" if separable else _inseparable(relation.predicate),
                "places": list(dict.fromkeys(_places(plan, number, names))),
            }
        )
    return facts


def searched(plan: JoinPlan, names: Sequence[str]) -> list[str]:
    """Return the pairs of steps between which candidates may be tested in vain."""
    return [
        f"{_edge_text(edge_plan.edge, names)} ({_INDEXES.get(edge_plan.index, 'after the hash')})"
        for edge_plan in plan.edges
        if edge_plan.tested and not edge_plan.edge.contiguous
    ]


def distant(plan: JoinPlan) -> list[Pair]:
    """Return the filters of two events between which other events of the pattern may lie, in one iteration."""
    pairs = dict.fromkeys(pair for pairs in plan.distant.values() for pair in pairs)
    return [pair for pair in pairs if _may_be_apart(plan.graph, pair)]


def _may_be_apart(graph: AtomGraph, pair: Pair) -> bool:
    """Return True if a path of two edges or more leads from the earlier event of a filter to the later one.

    On the way no iteration around both begins anew.
    """
    relation = graph.relations[pair.relation]
    earlier, later = relation.holds[pair.earlier], relation.holds[pair.later]
    for level in {relation.level(graph.atoms[atom]) for atom in earlier}:
        edges = [edge for edge in graph.edges if edge.loop == NO_LOOP or relation.loop_level(edge.loop) >= level]
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


# ---- places -----------------------------------------------------------------------------------------------------


def _places(plan: JoinPlan, number: int, names: Sequence[str]) -> Iterator[str]:
    relation = plan.graph.relations[number]
    for edge_plan in plan.edges:
        edge = _edge_text(edge_plan.edge, names)
        if any(pair.relation == number for pair in _by_index(plan, edge_plan)):
            yield f"{edge}: {_INDEXES.get(edge_plan.index, edge_plan.index)}"
        elif any(pair.relation == number for pair in edge_plan.tested):
            yield f"{edge}: one by one{_preselected(plan, edge_plan)}"
    for atom, pairs in plan.own.items():
        if any(pair.relation == number for pair in pairs):
            yield f"{names[atom]}: alone, as it is both {' and '.join(map(name_text, relation.variables))}"
    for pair in distant(plan):
        if pair.relation == number:
            earlier, later = (name_text(relation.variables[index]) for index in (pair.earlier, pair.later))
            earlier = f"PREV({earlier})" if pair.nearest else earlier
            yield f"{earlier} ... {later}: while listing, once both events are known"
    if number in plan.general:
        yield "whole paths: while listing"


def _by_index(plan: JoinPlan, edge_plan: EdgePlan) -> list[Pair]:
    """Return the filters of an edge that its index serves."""
    if edge_plan.index == NEXT_TO:
        return list(edge_plan.tested)
    if edge_plan.index == BY_ZONES:
        return [pair for pair in edge_plan.tested if plan.is_zoned(pair)]
    return list(edge_plan.guaranteed)


def _one_by_one(plan: JoinPlan, edge_plan: EdgePlan) -> list[Pair]:
    served = _by_index(plan, edge_plan)
    return [pair for pair in edge_plan.tested if pair not in served]


def _preselected(plan: JoinPlan, edge_plan: EdgePlan) -> str:
    """Return the words for the events among which a filter is tested one by one."""
    if edge_plan.index == BY_ZONES:
        return ", after the zone maps"
    if edge_plan.index == BY_HASH:
        return ", after the hash" if edge_plan.guaranteed else ", after the hash of the keys of PARTITION BY"
    return ""


def _edge_text(edge: Edge, names: Sequence[str]) -> str:
    sign = ":" if edge.contiguous else ";"
    following = "" if edge.loop == NO_LOOP else "next "
    return f"{names[edge.source]} {sign} {following}{names[edge.target]}"


def _texts(plan: JoinPlan) -> list[str]:
    return [predicate_text(relation.predicate) for relation in plan.graph.relations]


def _inseparable(predicate: s.Predicate) -> str:
    """Return the reason why no index serves a filter."""
    arguments = arguments_of(predicate)
    sides = sides_of(predicate)
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
