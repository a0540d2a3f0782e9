"""Predicates over a schema, in which the attributes that the events do not have are NULL.

A test of NULL is UNKNOWN, and an event has to satisfy a filter by TRUE.  Negations are pushed to the tests, so that
everything above them needs only TRUE, and a test that is never TRUE is FALSE for every event: it drops out of an OR,
and an AND with it is FALSE itself.  A query that is the same for every event reads no column in the end.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import EMPTY
from cer_gpu.ceql.paths import names_of
from cer_gpu.ceql.traversal import children, with_children
from cer_gpu.columnar.fields import attribute_type

ResolvedTruth = s.Predicate | bool
"""A predicate, or its value for every event."""

_COMPARED = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def find_attribute(schema: pa.Schema, names: tuple[str, ...]) -> pa.DataType | None:
    """Return the type of a column, or of a field by its path, or None if there is none."""
    return attribute_type(schema, names[0] if len(names) == 1 else ".".join(f"`{name}`" for name in names))


class PredicateResolver:
    """Predicates of a query over a schema.

    Parameters
    ----------
    schema

    Attributes
    ----------
    fields : dict from tuple of str to object
        Places of the attributes in the schema, by the names on their paths, or None if there is none.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.fields: dict[tuple[str, ...], Any] = {}

    def find(self, schema: pa.Schema, names: tuple[str, ...]) -> Any:
        """Return the place of an attribute in a schema, or None if there is none."""
        return find_attribute(schema, names)

    def place(self, attribute: str) -> Any:
        """Return the place of an attribute, cached, or None if the events do not have it."""
        names = names_of(attribute)
        if names not in self.fields:
            self.fields[names] = self.find(self.schema, names)
        return self.fields[names]

    def key(self, name: s.Name) -> s.Name | None:
        """Return a key of PARTITION BY over the schema, or None if the events do not have it."""
        return None if self.place(name.name) is None else name

    def resolve(self, predicate: s.Predicate) -> ResolvedTruth:
        """Return a predicate over the schema, or its value for every event; the same object if nothing is missing."""
        missing = [self.place(name) is None for name in names_read(predicate)]
        return self.truth(predicate, negated=False) if any(missing) else predicate

    # ---- truths ---------------------------------------------------------------------------------------------------

    def truth(self, node: s.Predicate, negated: bool) -> ResolvedTruth:
        """Return the predicate that is TRUE where a predicate is; negated, where that is FALSE."""
        if isinstance(node, s.Not):
            truth = self.truth(node.operand, not negated)
            return node if isinstance(truth, s.Not) and truth.operand is node.operand else truth
        if isinstance(node, s.And | s.Or):
            parts = [self.truth(operand, negated) for operand in node.operands]
            if not negated and all(part is operand for part, operand in zip(parts, node.operands, strict=True)):
                return node
            return joined_truths(s.And if isinstance(node, s.And) != negated else s.Or, parts, node.span)
        return self.leaf(node, negated)

    def leaf(self, node: s.Predicate, negated: bool) -> ResolvedTruth:
        """Return where a test is TRUE; negated, where it is FALSE."""
        if isinstance(node, s.AnyElement):
            return self.of_elements(node, negated)
        values = children(node)
        resolved = [self.value(value) for value in values]
        if isinstance(node, s.IsNull) and resolved[0] is None:
            return not negated
        if isinstance(node, s.Membership) and not negated:  # equal to one of those that are present
            resolved = [resolved[0], *(value for value in resolved[1:] if value is not None)]
            node = node if len(resolved) == len(values) else replace(node, values=node.values[: len(resolved) - 1])
            values = values[: len(resolved)]
        if None in resolved or len(resolved) < 1 + isinstance(node, s.Membership):
            return False
        leaf: s.Predicate = rebuilt(node, values, resolved)
        constant = constant_truth(leaf)
        if constant is not None:
            return constant != negated
        return negation(leaf) if negated else leaf

    def of_elements(self, node: s.AnyElement, negated: bool) -> ResolvedTruth:
        """Return where a test of the elements of a list is TRUE, or FALSE."""
        element, span = node.element, node.span
        if self.value(element.list) is None:
            return False
        if all(self.place(name) is not None for name in names_read(node.test)):
            return negation(node) if negated else node
        truth = self.truth(node.test, negated)
        any_at_all = s.Or((s.IsNull(element, span), s.Not(s.IsNull(element, span), span)), span)
        if not negated:
            return truth and s.AnyElement(any_at_all if truth is True else truth, span)
        if truth is True:
            return negation(s.IsNull(element.list, span))
        return s.Not(s.AnyElement(any_at_all if truth is False else negation(truth), span), span)

    # ---- values ---------------------------------------------------------------------------------------------------

    def value(self, node: s.Expression) -> s.Expression | None:
        """Return a value over the schema, or None if it is NULL, as it reads a missing attribute."""
        if isinstance(node, s.Attribute):
            return self.attribute(node)
        values = children(node)
        if not values:
            return node
        resolved = [self.value(value) for value in values]
        return None if None in resolved else rebuilt(node, values, resolved)

    def attribute(self, node: s.Attribute) -> s.Expression | None:
        """Return an attribute over the schema, or a value in its place, or None if it is NULL."""
        if node.aggregate is None:
            return None if self.place(node.name) is None else node
        aggregate = node.aggregate
        empty = EMPTY.get(aggregate.function)
        of_none = None if empty is None else s.Literal(empty, "0", node.span)
        if aggregate.attribute is not None and self.place(aggregate.attribute) is None:
            return of_none
        predicate = aggregate.predicate and self.resolve(aggregate.predicate)
        condition = aggregate.condition and self.resolve(aggregate.condition)
        keys = aggregate.keys and self._own_keys(aggregate.keys)
        if predicate is False or condition is False or (keys is not None and not all(keys)):
            return of_none
        if predicate is aggregate.predicate and condition is aggregate.condition and keys == aggregate.keys:
            return node
        if condition is not None:  # of RISES, which has both
            predicate, condition = (s.SATISFIED_BY_ALL if each is True else each for each in (predicate, condition))
        predicate = None if predicate is True else predicate
        return replace(node, aggregate=replace(aggregate, predicate=predicate, condition=condition, keys=keys))

    def _own_keys(self, keys: tuple[tuple[s.OwnKey, ...], ...]) -> tuple[tuple[s.OwnKey, ...], ...]:
        """Return keys over the schema, without columns that the events do not have, or that no event has as its key."""
        resolved = []
        for key in keys:
            parts = []
            for part in key:
                name, truth = self.key(part.name), True if part.predicate is None else self.resolve(part.predicate)
                if name is not None and truth is not False:
                    parts.append(s.OwnKey(name, None if truth is True else truth))
            resolved.append(tuple(parts))
        return tuple(resolved)


# ---- predicates ----------------------------------------------------------------------------------------------------


def names_read(predicate: s.Predicate) -> list[str]:
    """Return the names of the attributes that a predicate reads, those of OVER aggregates included."""
    names: list[str] = []
    todo = [predicate]
    while todo:
        for attribute in s.attributes(todo.pop()):
            aggregate = attribute.aggregate
            if aggregate is None:
                names.append(attribute.name)
                continue
            names += [] if aggregate.attribute is None else [aggregate.attribute]
            names += [part.name.name for key in aggregate.keys or () for part in key]
            todo += aggregate.below
    return names


def rebuilt(node: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    """Return a node with new children; the node itself if they are the old ones."""
    same = all(mine is other for mine, other in zip(new, old, strict=True))
    return node if same else with_children(node, new)


@overload
def negation(predicate: s.Predicate) -> s.Predicate: ...
@overload
def negation(predicate: ResolvedTruth) -> ResolvedTruth: ...
def negation(predicate: ResolvedTruth) -> ResolvedTruth:
    """Return the negation of a predicate, or of its value for every event."""
    if isinstance(predicate, bool):
        return not predicate
    return predicate.operand if isinstance(predicate, s.Not) else s.Not(predicate, predicate.span)


def joined_truths(kind: type[s.And] | type[s.Or], parts: Sequence[ResolvedTruth], span: s.Span) -> ResolvedTruth:
    """Return the conjunction or disjunction of predicates, without those that are the same for every event."""
    absorbing = kind is s.Or
    if any(part is absorbing for part in parts):
        return absorbing
    rest = [part for part in parts if not isinstance(part, bool)]
    if not rest:
        return not absorbing
    if len(rest) == 1:
        return rest[0]
    return s.joined(s.And, rest, span) if kind is s.And else s.joined(s.Or, rest, span)


def predicate_of_truth(truth: ResolvedTruth) -> s.Predicate | None:
    """Return the predicate of a truth, or None if every event satisfies it."""
    if isinstance(truth, bool):
        return None if truth else s.SATISFIED_BY_NONE
    return truth


def constant_truth(node: Any) -> bool | None:
    """Return the truth of a comparison of two numbers, or of two truths, or None for other predicates."""
    if not isinstance(node, s.Comparison):
        return None
    values = [each.value for each in (node.left, node.right) if isinstance(each, s.Literal)]
    if len(values) < 2 or isinstance(values[0], str) or isinstance(values[0], bool) != isinstance(values[1], bool):
        return None
    return bool(_COMPARED[node.op](*values))
