"""Predicates over a schema, in which the attributes that the events have not are NULL.

A test of NULL is UNKNOWN, and an event has to satisfy a filter by TRUE.  Negations are pushed to the tests, so that all
above them only asks what is TRUE, and a test that is never TRUE is FALSE for every event: it falls out of an OR, and an
AND with it is FALSE itself.  A query that is the same for every event reads no column in the end.
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

FittedTruth = s.Predicate | bool
"""A predicate, or what it is for every event."""

_COMPARED = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def find_attribute(schema: pa.Schema, names: tuple[str, ...]) -> pa.DataType | None:
    """Return the type of a column, or of a field by its path, or None if there is none."""
    return attribute_type(schema, names[0] if len(names) == 1 else ".".join(f"`{name}`" for name in names))


class PredicateFitter:
    """Predicates of a query over a schema.

    Parameters
    ----------
    schema

    Attributes
    ----------
    found : dict from tuple of str to object
        Places of the attributes in the schema, by the names on their paths, or None if there is none.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.found: dict[tuple[str, ...], Any] = {}

    def find(self, schema: pa.Schema, names: tuple[str, ...]) -> Any:
        """Return the place of an attribute in a schema, or None if there is none."""
        return find_attribute(schema, names)

    def place(self, attribute: str) -> Any:
        """Return the place of an attribute, found once; None: the events have none."""
        names = names_of(attribute)
        if names not in self.found:
            self.found[names] = self.find(self.schema, names)
        return self.found[names]

    def key(self, name: s.Name) -> s.Name | None:
        """Return a key of PARTITION BY over the schema; None: the events have none."""
        return None if self.place(name.name) is None else name

    def fitted(self, predicate: s.Predicate) -> FittedTruth:
        """Return a predicate over the schema, or what it is for every event; itself if nothing of it is missing."""
        missing = [self.place(name) is None for name in names_read(predicate)]
        return self.truth(predicate, negated=False) if any(missing) else predicate

    # ---- truths ---------------------------------------------------------------------------------------------------

    def truth(self, node: s.Predicate, negated: bool) -> FittedTruth:
        """Return the predicate that is TRUE where a predicate is; negated, where that is FALSE."""
        if isinstance(node, s.Not):
            made = self.truth(node.operand, not negated)
            return node if isinstance(made, s.Not) and made.operand is node.operand else made
        if isinstance(node, s.And | s.Or):
            parts = [self.truth(operand, negated) for operand in node.operands]
            if not negated and all(part is operand for part, operand in zip(parts, node.operands, strict=True)):
                return node
            return joined_truths(s.And if isinstance(node, s.And) != negated else s.Or, parts, node.span)
        return self.leaf(node, negated)

    def leaf(self, node: s.Predicate, negated: bool) -> FittedTruth:
        """Return where a test is TRUE; negated, where it is FALSE."""
        if isinstance(node, s.AnyElement):
            return self.of_elements(node, negated)
        values = children(node)
        fitted = [self.value(value) for value in values]
        if isinstance(node, s.IsNull) and fitted[0] is None:
            return not negated
        if isinstance(node, s.Membership) and not negated:  # equal to one of those that are there
            fitted = [fitted[0], *(value for value in fitted[1:] if value is not None)]
            node = node if len(fitted) == len(values) else replace(node, values=node.values[: len(fitted) - 1])
            values = values[: len(fitted)]
        if None in fitted or len(fitted) < 1 + isinstance(node, s.Membership):
            return False
        leaf: s.Predicate = rebuilt(node, values, fitted)
        constant = constant_truth(leaf)
        if constant is not None:
            return constant != negated
        return negation(leaf) if negated else leaf

    def of_elements(self, node: s.AnyElement, negated: bool) -> FittedTruth:
        """Return where a test of the elements of a list is TRUE, or FALSE."""
        element, span = node.element, node.span
        if self.value(element.list) is None:
            return False
        if all(self.place(name) is not None for name in names_read(node.test)):
            return negation(node) if negated else node
        made = self.truth(node.test, negated)
        any_at_all = s.Or((s.IsNull(element, span), s.Not(s.IsNull(element, span), span)), span)
        if not negated:
            return made and s.AnyElement(any_at_all if made is True else made, span)
        if made is True:
            return negation(s.IsNull(element.list, span))
        return s.Not(s.AnyElement(any_at_all if made is False else negation(made), span), span)

    # ---- values ---------------------------------------------------------------------------------------------------

    def value(self, node: s.Expression) -> s.Expression | None:
        """Return a value over the schema, or None if it is NULL, as it reads what is missing."""
        if isinstance(node, s.Attribute):
            return self.attribute(node)
        values = children(node)
        if not values:
            return node
        fitted = [self.value(value) for value in values]
        return None if None in fitted else rebuilt(node, values, fitted)

    def attribute(self, node: s.Attribute) -> s.Expression | None:
        """Return an attribute over the schema, or a value in its place, or None if it is NULL."""
        if node.aggregate is None:
            return None if self.place(node.name) is None else node
        aggregate = node.aggregate
        empty = EMPTY.get(aggregate.function)
        of_none = None if empty is None else s.Literal(empty, "0", node.span)
        if aggregate.attribute is not None and self.place(aggregate.attribute) is None:
            return of_none
        predicate = aggregate.predicate and self.fitted(aggregate.predicate)
        condition = aggregate.condition and self.fitted(aggregate.condition)
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
        """Return keys over the schema: without columns that the events have not, or that are of none of them."""
        made = []
        for key in keys:
            parts = []
            for part in key:
                name, truth = self.key(part.name), True if part.predicate is None else self.fitted(part.predicate)
                if name is not None and truth is not False:
                    parts.append(s.OwnKey(name, None if truth is True else truth))
            made.append(tuple(parts))
        return tuple(made)


# ---- predicates ----------------------------------------------------------------------------------------------------


def names_read(predicate: s.Predicate) -> list[str]:
    """Return the names of the attributes that a predicate reads, those of aggregates OVER the past included."""
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
    """Return a node with new children; itself where they are the old ones."""
    same = all(mine is other for mine, other in zip(new, old, strict=True))
    return node if same else with_children(node, new)


@overload
def negation(predicate: s.Predicate) -> s.Predicate: ...
@overload
def negation(predicate: FittedTruth) -> FittedTruth: ...
def negation(predicate: FittedTruth) -> FittedTruth:
    """Return the negation of a predicate, or of what it is for every event."""
    if isinstance(predicate, bool):
        return not predicate
    return predicate.operand if isinstance(predicate, s.Not) else s.Not(predicate, predicate.span)


def joined_truths(kind: type[s.And] | type[s.Or], parts: Sequence[FittedTruth], span: s.Span) -> FittedTruth:
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


def predicate_of_truth(truth: FittedTruth) -> s.Predicate | None:
    """Return the predicate of a truth; None: every event satisfies it."""
    if isinstance(truth, bool):
        return None if truth else s.SATISFIED_BY_NONE
    return truth


def constant_truth(node: Any) -> bool | None:
    """Return the truth of a comparison of two numbers, or of two truths, or None if it is no such."""
    if not isinstance(node, s.Comparison):
        return None
    values = [each.value for each in (node.left, node.right) if isinstance(each, s.Literal)]
    if len(values) < 2 or isinstance(values[0], str) or isinstance(values[0], bool) != isinstance(values[1], bool):
        return None
    return bool(_COMPARED[node.op](*values))
