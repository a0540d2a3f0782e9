"""Near misses of rules of a single event: events that satisfy all conditions of a rule but one, and which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cer_gpu.ceql import syntax as s
from cer_gpu.explain.ceql_text import attribute_text, name_text, predicate_text
from cer_gpu.planning.passes import plan_of
from cer_gpu.query import Query

_MAX_CONDITIONS = 12
"""Most conditions of a rule whose near misses are sought."""


@dataclass(frozen=True)
class WithoutOne:
    """A rule without one of its conditions.

    Attributes
    ----------
    query : Query
        Finds the events that satisfy the others.
    condition : str
        The condition that it lacks.
    columns : tuple of str
        Columns that this reads, as `cer_gpu.ceql.paths` names them.
    """

    query: Query
    condition: str
    columns: tuple[str, ...]


def without_each(query: Query) -> list[WithoutOne]:
    """Return a rule of a single event without each of its conditions, or nothing for other rules.

    Conditions are the type of the event and the operands of AND; a rule needs two at least.

    Parameters
    ----------
    query
        A query that is bound to a schema.
    """
    plan, syntax = query._plan, query.syntax
    if syntax.let or syntax.head is not None or len(syntax.streams) > 1:
        return []
    single = _single_event(syntax.formula)
    if single is None:
        return []
    event, predicates = single
    has_type = event.event.name != s.ANY_TYPE and plan.type_column is not None and event.event.stream is None
    if not 2 <= len(predicates) + has_type <= _MAX_CONDITIONS or any(_looks_back(each) for each in predicates):
        return []

    def without(type_of_event: s.EventType, conditions: list[s.Predicate]) -> Query:
        variable = s.Name("the event")
        formula: s.Formula = s.Assign(type_of_event, variable)
        if conditions:
            predicate = conditions[0] if len(conditions) == 1 else s.joined(s.And, conditions)
            formula = s.Filtered(formula, s.VariableFilter(variable, predicate))
        reduced = s.QuerySyntax(syntax.text, s.Select(), formula, syntax.streams)
        return Query(plan_of(reduced, plan.type_column, plan.time_column, plan.time_unit))

    misses = []
    for k, predicate in enumerate(predicates):
        columns = tuple(dict.fromkeys(attribute.name for attribute in s.attributes(predicate)))
        others = predicates[:k] + predicates[k + 1 :]
        misses.append(WithoutOne(without(event, others), predicate_text(predicate), columns))
    if has_type and plan.type_column is not None:
        of_any = replace(event, event=replace(event.event, name=s.ANY_TYPE))
        condition = f"{attribute_text(plan.type_column)} = {name_text(event.event.name)}"
        misses.append(WithoutOne(without(of_any, predicates), condition, (plan.type_column,)))
    return misses


def _single_event(formula: s.Formula) -> tuple[s.EventType, list[s.Predicate]] | None:
    """Return the event of a formula and the predicates that it satisfies, or None if it is not one such event."""
    predicates: list[s.Predicate] = []
    while not isinstance(formula, s.EventType):
        if isinstance(formula, s.Filtered):
            filters = list(_operands(formula.filter))
            for each in filters:
                if not isinstance(each, s.VariableFilter):
                    return None
                predicates += each.predicate.operands if isinstance(each.predicate, s.And) else [each.predicate]
        elif not isinstance(formula, s.Assign):
            return None
        formula = formula.formula
    return formula, predicates


def _operands(node: s.Filter) -> Iterator[s.Filter]:
    if isinstance(node, s.FilterAnd):
        for each in node.operands:
            yield from _operands(each)
    else:
        yield node


def _looks_back(predicate: s.Predicate) -> bool:
    return any(attribute.looks_back or attribute.variable is not None for attribute in s.attributes(predicate))
