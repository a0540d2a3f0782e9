"""Front end of CEQL: queries that are the same for every schema, and those that are resolved against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.scopes import resolved
from cer_gpu.ceql.traversal import children, fold, walk, with_children
from cer_gpu.columnar.columns import kind_of
from cer_gpu.errors import CerError, QueryError
from cer_gpu.query import Query, check_time_unit, compiled_syntax
from cer_gpu.resolution.predicates import PredicateResolver, predicate_of_truth
from cer_gpu.resolution.resolved_query import (
    AS_ERROR,
    AS_NULL,
    ParsedQuery,
    ResolvedQuery,
    SchemaDependentQuery,
    check_missing_fields,
    compiled_over,
    has_column,
)

_FILTERS = s.VariableFilter | s.Relation


def resolve_query(query: s.QuerySyntax, resolver: PredicateResolver) -> s.QuerySyntax:
    """Return a query over the schema of a resolver; the query itself if the schema changes nothing.

    Attributes that are listed in SELECT or read by measures, and lengths in units of an attribute, are unchanged.
    """
    let = _resolve_let(query.let, resolver)
    formula = _resolve_formula(query.formula, resolver)
    partition = _resolve_keys(query.partition, resolver)
    if partition is None:  # no event has a key
        formula, partition = _of_none(formula), ()
    unread = tuple(name for name in query.unread if resolver.place(name.name) is not None)
    if formula is query.formula and (partition, unread, let) == (query.partition, query.unread, query.let):
        return query
    return replace(query, formula=formula, partition=partition, unread=unread, let=let)


def _resolve_let(columns: Sequence[s.LetColumn], resolver: PredicateResolver) -> tuple[s.LetColumn, ...]:
    """Return the columns of LET over the schema, without those that are NULL for every event."""
    resolved_columns = []
    for column in columns:
        value = resolver.value(column.expression)
        resolver.fields[column.column,] = value
        if value is not None:
            resolved_columns.append(column if value is column.expression else replace(column, expression=value))
    return tuple(resolved_columns)


def _resolve_formula(formula: s.Formula, resolver: PredicateResolver) -> s.Formula:
    roles_changed = False

    def combine(node: Any, below: list[Any]) -> Any:
        nonlocal roles_changed
        if isinstance(node, s.VariableFilter):
            predicate = predicate_of_truth(resolver.resolve(node.predicate))
            return node if predicate is node.predicate else predicate and replace(node, predicate=predicate)
        if isinstance(node, s.Relation):
            relation = _resolve_relation(node, resolver)
            roles_changed |= relation is not node
            return relation
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

    rebuilt: s.Formula = fold(formula, combine, lambda node: () if isinstance(node, _FILTERS) else children(node))
    return resolved(rebuilt) if roles_changed else rebuilt


def _resolve_relation(node: s.Relation, resolver: PredicateResolver) -> s.Relation | None:
    """Return a join predicate over the schema, or None if it is TRUE for all.

    It is TRUE, too, where one of its variables holds no event: variables that only tests of missing fields named are
    in a test that is never TRUE.
    """
    truth = resolver.resolve(node.predicate)
    if truth is node.predicate or truth is True:
        return None if truth is True else node
    named = {} if truth is False else {_event_of(each): each for each in s.attributes(truth)}
    others = {_event_of(each): each for each in s.attributes(node.predicate) if _event_of(each) not in named}
    parts: list[s.Predicate] = [] if truth is False else [truth]
    if others:
        name = next(field.name for field in resolver.schema if kind_of(field.type) is not None)
        plain = [s.Attribute(name, each.span, each.variable, each.event) for each in others.values()]
        null = [s.IsNull(each, node.span) for each in plain]
        parts.append(s.joined(s.And, [*null, *(s.Not(each, node.span) for each in null)], node.span))
    return replace(node, predicate=parts[0] if len(parts) == 1 else s.joined(s.Or, parts, node.span), roles=())


def _event_of(attribute: s.Attribute) -> tuple[s.Name | None, str]:
    return attribute.variable, attribute.event


def _resolve_keys(
    partition: Sequence[tuple[s.Name, ...]], resolver: PredicateResolver
) -> tuple[tuple[s.Name, ...], ...] | None:
    """Return the keys that the events have, or None if they lack one, and so belong to no substream."""
    keys: list[tuple[s.Name, ...]] = []
    for names in partition:
        columns = tuple(renamed for name in names if (renamed := resolver.key(name)) is not None)
        if columns:
            keys.append(columns)
        elif not any(name.nullable for name in names):
            return None
    return tuple(keys)


def _of_none(formula: s.Formula) -> s.Formula:
    """Return a formula that no events satisfy, with the variables of another."""

    def combine(node: Any, below: list[Any]) -> Any:
        rebuilt = with_children(node, below) if below else node
        match node:
            case s.EventType(defines=True):
                return s.Filtered(rebuilt, s.VariableFilter(node.event, s.SATISFIED_BY_NONE, node.span), node.span)
            case s.Assign(formula=s.EventType(defines=False)):
                return s.Filtered(rebuilt, s.VariableFilter(node.variable, s.SATISFIED_BY_NONE, node.span), node.span)
            case s.Negation():
                return replace(node, event=replace(node.event, name=s.ANY_TYPE), filter=None)
        return rebuilt

    none: s.Formula = fold(formula, combine, lambda node: () if isinstance(node, _FILTERS) else children(node))
    return none


@dataclass(frozen=True)
class ParsedCeql(ParsedQuery):
    """A parsed query in CEQL, and the options by which it is compiled.

    Attributes
    ----------
    syntax : cer_gpu.ceql.syntax.QuerySyntax
    missing_fields : str
    """

    syntax: s.QuerySyntax
    missing_fields: str

    def resolver(self, schema: pa.Schema) -> PredicateResolver | None:
        """Return the resolver of predicates against a schema, or None if they are the same for every schema."""
        return PredicateResolver(schema) if self.missing_fields == AS_NULL else None

    def resolve(self, schema: pa.Schema | None) -> ResolvedQuery:
        """Return the query over a schema; events need no column of types if the query names none."""
        types = self.type_column
        if schema is None:
            return ResolvedQuery(self.syntax, types)
        spared = types is not None and not names_types(self.syntax) and not has_column(schema, types)
        column = None if spared else types
        resolver = self.resolver(schema)
        if resolver is None:
            return ResolvedQuery(self.syntax, column, requested_types=types, knows_schema=True)
        syntax = resolve_query(self.syntax, resolver)
        return ResolvedQuery(
            syntax, column, resolver.fields, requested_types=types, knows_schema=True, find=resolver.find
        )


def analyse(
    text: str,
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
    relations: Mapping[str, Sequence[str]] | None = None,
    missing_fields: str = AS_ERROR,
) -> tuple[Query | None, Sequence[CerError]]:
    """Compile a query in CEQL and return it, or its errors; parameters are those of `cer_gpu.compile`."""
    check_time_unit(time_unit)
    check_missing_fields(missing_fields)
    time_column = None if time_column is None else str(time_column)
    try:
        syntax = parse(text, relations)
    except QueryError as error:
        return None, [error]
    if missing_fields == AS_ERROR and (type_column is None or names_types(syntax)):
        return compiled_syntax(
            syntax, type_column=type_column, time_column=time_column, time_unit=time_unit, schema=schema
        )
    source = ParsedCeql(type_column, time_column, time_unit, syntax, missing_fields)
    return compiled_over(SchemaDependentQuery, source, schema)


def names_types(syntax: s.QuerySyntax) -> bool:
    """Return True if a query names a type of events, in its formula or in an OVER aggregate."""
    of_let = (node for column in syntax.let for node in walk(column.expression))
    for node in (*walk(syntax.formula), *of_let):
        if isinstance(node, s.EventType | s.Negation | s.Absence) and node.event.name != s.ANY_TYPE:
            return True
        if isinstance(node, s.Attribute) and any(aggregate.event is not None for aggregate in s.aggregates_in(node)):
            return True
    return False
