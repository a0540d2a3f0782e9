"""Formulas and clauses of a query over a schema: their filters, and the keys of PARTITION BY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.scopes import resolved
from cer_gpu.ceql.traversal import children, fold, with_children
from cer_gpu.columnar.columns import kind_of
from cer_gpu.resolution.predicates import PredicateFitter, predicate_of_truth

_FILTERS = s.VariableFilter | s.Relation


def fitted_query(query: s.QuerySyntax, fitter: PredicateFitter) -> s.QuerySyntax:
    """Return a query over the schema of a fitter; itself if the schema changes nothing.

    Attributes that are listed in SELECT or read by measures, and lengths in units of an attribute, stay as they are.
    """
    formula = _fitted_formula(query.formula, fitter)
    partition = _fitted_keys(query.partition, fitter)
    if partition is None:  # no event has a key
        formula, partition = _of_none(formula), ()
    unread = tuple(name for name in query.unread if fitter.place(name.name) is not None)
    if formula is query.formula and (partition, unread) == (query.partition, query.unread):
        return query
    return replace(query, formula=formula, partition=partition, unread=unread)


def _fitted_formula(formula: s.Formula, fitter: PredicateFitter) -> s.Formula:
    roles_changed = False

    def combine(node: Any, below: list[Any]) -> Any:
        nonlocal roles_changed
        if isinstance(node, s.VariableFilter):
            predicate = predicate_of_truth(fitter.fitted(node.predicate))
            return node if predicate is node.predicate else predicate and replace(node, predicate=predicate)
        if isinstance(node, s.Relation):
            made = _fitted_relation(node, fitter)
            roles_changed |= made is not node
            return made
        if all(new is old for new, old in zip(below, children(node), strict=True)):
            return node
        match node:
            case s.FilterAnd():
                rest = [each for each in below if each is not None]
                return None if not rest else rest[0] if len(rest) == 1 else s.joined(s.FilterAnd, rest, node.span)
            case s.FilterOr():
                return None if None in below else s.joined(s.FilterOr, below, node.span)
            case s.Filtered():
                return below[0] if below[1] is None else with_children(node, below)
            case s.Negation() | s.Absence():
                return replace(node, filter=below[0])
        return with_children(node, below)

    made: s.Formula = fold(formula, combine, lambda node: () if isinstance(node, _FILTERS) else children(node))
    return resolved(made) if roles_changed else made


def _fitted_relation(node: s.Relation, fitter: PredicateFitter) -> s.Relation | None:
    """Return a filter between events over the schema; None: it is TRUE for all.

    It is TRUE, too, where one of its variables holds no event: those that only tests of what is missing named stand in
    a test that is never TRUE.
    """
    truth = fitter.fitted(node.predicate)
    if truth is node.predicate or truth is True:
        return None if truth is True else node
    named = {} if truth is False else {_event_of(each): each for each in s.attributes(truth)}
    others = {_event_of(each): each for each in s.attributes(node.predicate) if _event_of(each) not in named}
    parts: list[s.Predicate] = [] if truth is False else [truth]
    if others:
        name = next(field.name for field in fitter.schema if kind_of(field.type) is not None)
        plain = [s.Attribute(name, each.span, each.variable, each.event) for each in others.values()]
        null = [s.IsNull(each, node.span) for each in plain]
        parts.append(s.joined(s.And, [*null, *(s.Not(each, node.span) for each in null)], node.span))
    return replace(node, predicate=parts[0] if len(parts) == 1 else s.joined(s.Or, parts, node.span), roles=())


def _event_of(attribute: s.Attribute) -> tuple[s.Name | None, str]:
    return attribute.variable, attribute.event


def _fitted_keys(
    partition: Sequence[tuple[s.Name, ...]], fitter: PredicateFitter
) -> tuple[tuple[s.Name, ...], ...] | None:
    """Return the keys that the events have; None: they lack one, so that they belong to no substream."""
    keys: list[tuple[s.Name, ...]] = []
    for names in partition:
        found = tuple(renamed for name in names if (renamed := fitter.key(name)) is not None)
        if found:
            keys.append(found)
        elif not any(name.nullable for name in names):
            return None
    return tuple(keys)


def _of_none(formula: s.Formula) -> s.Formula:
    """Return a formula that no events satisfy, with the variables of another."""

    def combine(node: Any, below: list[Any]) -> Any:
        made = with_children(node, below) if below else node
        match node:
            case s.EventType(defines=True):
                return s.Filtered(made, s.VariableFilter(node.event, s.SATISFIED_BY_NONE, node.span), node.span)
            case s.Assign(formula=s.EventType(defines=False)):
                return s.Filtered(made, s.VariableFilter(node.variable, s.SATISFIED_BY_NONE, node.span), node.span)
            case s.Negation():
                return replace(node, event=replace(node.event, name=s.ANY_TYPE), filter=None)
        return made

    none: s.Formula = fold(formula, combine, lambda node: () if isinstance(node, _FILTERS) else children(node))
    return none
