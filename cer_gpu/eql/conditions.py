"""Conditions of EQL as predicates of the language of values.

EQL has two truths.  A test of a value that is missing does not hold, and its negation does: NULL counts as FALSE at
each test, and not only where a whole condition is NULL.  Negations are therefore pushed to the tests, and a negated
one holds, too, where something that it reads is NULL.  A test of a list holds if it does for one of its elements.

Source: Elasticsearch, where a negation is a query of the documents that do not satisfy the test
(docs/reference/eql.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import walk
from cer_gpu.columnar.columns import BOOLEAN, STRING, is_string, kind_of
from cer_gpu.eql import syntax as e
from cer_gpu.eql.parser import glob_of, glob_of_text, has_wildcards
from cer_gpu.eql.regexes import re2_of
from cer_gpu.eql.rewriting import (
    CONDITION_FUNCTIONS,
    OF_NUMBERS,
    OF_VALUES,
    SEARCHES,
    UnknownTruths,
    by_truths,
    check_call,
    is_condition,
    literal_of,
    network_of,
    shown_condition,
    timestamp_constant,
    without_null_default,
)
from cer_gpu.errors import QueryError, QueryTypeError, did_you_mean
from cer_gpu.expressions.hints import article
from cer_gpu.resolution.fields import FieldPlace, field_names, fields_of, find_field
from cer_gpu.resolution.predicates import ResolvedTruth, joined_truths, negation

_NULL = e.ConstantValue(None)
_OPPOSITE = {"==": "!=", "!=": "=="}


@dataclass
class QueryFields:
    """Facts that the conditions of a query share.

    Attributes
    ----------
    text : str
    schema : pyarrow.Schema or None
        None if it is not known yet; then every field is taken for a value that is present.
    missing_is_null : bool
        True: a field that the schema does not have is NULL, like one with a question mark; False: it is an error.
    resolved : dict from tuple of str to FieldPlace or None
        Places of the fields, by the names on their paths.
    """

    text: str
    schema: pa.Schema | None = None
    missing_is_null: bool = False
    resolved: dict[tuple[str, ...], FieldPlace | None] = field(default_factory=dict)

    def error(self, message: str, span: s.Span, hint: str | None = None) -> QueryError:
        """Return an error that underlines a place in the query."""
        return QueryError(message, self.text, *span, hint=hint)

    def find(self, node: e.Field, names: tuple[str, ...] | None = None) -> FieldPlace | None:
        """Return the place of a field, or None if it is NULL, as the events do not have it.

        Raises
        ------
        QueryTypeError
            When there is none, and that is an error.
        """
        names = node.names if names is None else names
        if self.schema is None:
            return FieldPlace(".".join(names), pa.null())
        place = self.resolved[names] = find_field(self.schema, names)
        if place is None:
            name = ".".join(names)
            if not (node.optional or self.missing_is_null):
                hint = did_you_mean(name, field_names(self.schema), "fields")
                optional = f"?{name}, or missing_fields='null' (--missing-fields null), takes it for null"
                raise QueryTypeError(
                    f"the events have no field {name!r}",
                    self.text,
                    *node.span,
                    hint=f"{hint} {optional}"
                    if hint and hint.endswith("?")
                    else "; ".join(filter(None, (hint, optional))),
                )
        return place


@dataclass
class _Leaf:
    """Lists and fields that one test reads.

    Attributes
    ----------
    element : Element or None
        The element of the list that the test is of.
    is_null : bool
        True if a field is missing, so that the test holds for no event.
    """

    element: s.Element | None = None
    is_null: bool = False


class EqlConditions:
    """Conditions of one event.

    Parameters
    ----------
    around
    events
        Names of the events of other steps that conditions read, as in ``event0.process.name``.
    own
        Name of the event of this step, by which it reads itself, too, or "" if it has none.
    """

    def __init__(self, around: QueryFields, events: frozenset[str] = frozenset(), own: str = "") -> None:
        self._around, self._events, self._own = around, events, own
        self._elements: dict[str, s.Element] = {}  # of _arraysearch, by their variables
        self._types: dict[str, pa.DataType | None] = {}

    def predicate(self, condition: e.EqlExpression) -> s.Predicate | None:
        """Return the predicate that is TRUE for the events that satisfy a condition, or None if all do.

        Raises
        ------
        QueryError
            When it is no condition, or names something that does not exist.
        """
        truth = self.truth(condition, negated=False)
        return None if truth is True else s.SATISFIED_BY_NONE if truth is False else truth

    def truth(self, node: e.EqlExpression, negated: bool) -> ResolvedTruth:
        """Return the predicate that is TRUE where a condition holds; negated, where it does not."""
        match node:
            case e.NotCondition():
                return self.truth(node.operand, not negated)
            case e.And() | e.Or():
                parts = [self.truth(operand, negated) for operand in node.operands]
                return joined_truths(s.And if isinstance(node, e.And) != negated else s.Or, parts, node.span)
            case e.ConstantValue(value=bool(value)):
                return value != negated
            case e.Comparison() | e.Match() if (shown := shown_condition(node)) is not None:
                self._check_no_list(shown, "is the text of a condition")
                return self.truth(by_truths(node, shown), negated)
            case e.Field():
                self._check_field_type(
                    node, lambda kind: kind in (BOOLEAN, None), "a condition", f"compare it: {node.name} == ..."
                )
                return self._bind_test([node], lambda values: _is(values[0], True, node.span), negated, node.span)
            case e.Comparison():
                return self._compare(node, negated)
            case e.Match():
                return self._match(node, negated)
            case e.FunctionCall() if node.name.lower() in SEARCHES:
                return self._search(node, negated)
            case e.FunctionCall() if node.name.lower() in CONDITION_FUNCTIONS:
                operands, build = self._tested(node)
                return self._bind_test(operands, build, negated, node.span)
            case e.Lineage():
                return self._lineage(node, negated)
            case e.FunctionCall():
                check_call(node, self._around.text)
        what = "null" if isinstance(node, e.ConstantValue) and node.value is None else "a value"
        raise self._around.error(f"expected a condition, found {what}", node.span, "compare it: ... == ...")

    # ---- tests ----------------------------------------------------------------------------------------------------

    def _bind_test(
        self,
        operands: list[e.EqlExpression],
        build: Callable[[list[s.Expression]], ResolvedTruth],
        negated: bool,
        span: s.Span,
    ) -> ResolvedTruth:
        """Return a test of some operands, or its negation, given the function that builds it."""
        leaf = _Leaf()
        values = [self._bind_value_of(operand, leaf) for operand in operands]
        if leaf.is_null:
            return negated
        test = build(values)
        if isinstance(test, bool):
            test = (
                joined_truths(s.And, [_not_null(value, span) for value in values if _reads(value)], span)
                if test
                else False
            )
            if isinstance(test, bool):
                return test != negated
        nullable = [value for value in values if _reads(value)]
        element = leaf.element
        if element is None:
            if not negated:
                return test
            return joined_truths(s.Or, [negation(test), *(s.IsNull(value, span) for value in nullable)], span)
        if not negated:
            return s.AnyElement(test, span)
        of_element = [value for value in nullable if any(isinstance(n, s.Element) for n in walk(value))]
        others = [value for value in nullable if value not in of_element]
        certain = joined_truths(s.And, [test, *(_not_null(value, span) for value in of_element)], span)
        assert not isinstance(certain, bool)
        nulls = [s.IsNull(value, span) for value in (element.list, *others)]
        return joined_truths(s.Or, [s.Not(s.AnyElement(certain, span), span), *nulls], span)

    def _compare(self, node: e.Comparison, negated: bool) -> ResolvedTruth:
        left, right, op = node.left, node.right, node.op
        if op in _OPPOSITE:
            left, right = self._null_if_missing(left), self._null_if_missing(right)
        is_reversed = isinstance(left, e.ConstantValue) and not isinstance(right, e.ConstantValue)
        if is_reversed or (is_condition(right) and not is_condition(left)):
            left, right, op = right, left, {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(op, op)
        if isinstance(right, e.ConstantValue) and right.value is None:
            if op not in _OPPOSITE:
                raise self._around.error(f"null is compared by == and !=, and not by {op}", node.span)
            return self.is_null(left, negated != (op == "!="), node.span)
        if is_condition(left):
            if not (isinstance(right, e.ConstantValue) and isinstance(right.value, bool) and op in _OPPOSITE):
                raise self._around.error("a condition is compared with true or false, by == or !=", node.span)
            if right.value:
                return self.truth(left, negated != (op == "!="))
            operands, build = self._tested(left)
            return self._bind_test(operands, lambda values: negation(build(values)), negated != (op == "!="), node.span)
        if op == "!=":
            op, negated = "==", not negated
        sign = {"==": "="}.get(op, op)
        right = self._timestamp_value(left, self._as_text(left, right) if sign == "=" else right)
        if isinstance(right, e.ConstantValue) and type(right.value) in (int, float):
            self._check_field_type(
                left, lambda kind: kind != STRING, "a number", f'texts are compared with texts: {op} "{right.text}"'
            )
        operands = [left, right]
        return self._bind_test(
            operands, lambda values: s.Comparison(sign, values[0], values[1], node.span), negated, node.span
        )

    def _type(self, node: e.EqlExpression) -> pa.DataType | None:
        """Return the type of a field's values, or None for other nodes, or if it is not known."""
        if not isinstance(node, e.Field) or node.names[0].startswith("$") or self._around.schema is None:
            return None
        names = node.names[1:] if node.names[0] in self._events and node.names[1:] else node.names
        place = find_field(self._around.schema, names)
        return None if place is None or pa.types.is_null(place.type) else place.type

    def _check_field_type(
        self, node: e.EqlExpression, is_valid: Callable[[str | None], bool], expected: str, hint: str
    ) -> None:
        """Refuse a field of an unsuitable type."""
        data_type = self._type(node)
        if data_type is not None and not is_valid(kind_of(data_type)):
            assert isinstance(node, e.Field)
            message = f"expected {expected}, and {node.name!r} is {article(data_type)}"
            raise QueryTypeError(message, self._around.text, *node.span, hint)

    def _as_text(self, of: e.EqlExpression, value: Any) -> Any:
        """Return an integer as it is written, where it is compared with a field of strings."""
        if not isinstance(value, e.ConstantValue) or type(value.value) is not int:
            return value
        data_type = self._type(of)
        return e.ConstantValue(value.text, span=value.span) if data_type is not None and is_string(data_type) else value

    def _timestamp_value(self, of: e.EqlExpression, value: Any) -> Any:
        """Return a constant as a string where it is compared with a timestamp."""
        data_type = self._type(of)
        if not isinstance(value, e.ConstantValue) or data_type is None or not pa.types.is_timestamp(data_type):
            return value
        return timestamp_constant(value, has_zone=data_type.tz is not None)

    def _check_no_list(self, node: e.EqlExpression, what: str) -> None:
        """Refuse lists in a condition that is read as a value, of which there would be one for each element."""
        for part in walk(node):
            if isinstance(part, e.Field) and (place := self._place(part)) is not None and place.in_list:
                raise self._around.error(f"what {what} reads no list, and {part.name!r} is one", part.span)

    def _null_if_missing(self, node: e.EqlExpression) -> e.EqlExpression:
        """Return null in place of a field with a question mark that the events do not have.

        Elasticsearch writes it there before it makes tests of null of comparisons: ``?x == ?y`` is then TRUE.
        """
        return e.ConstantValue(None, span=node.span) if self._is_missing(node) else node

    def _is_missing(self, node: e.EqlExpression) -> bool:
        is_element = isinstance(node, e.Field) and node.names[0].startswith("$")
        return isinstance(node, e.Field) and node.optional and not is_element and self._place(node) is None

    def _place(self, node: e.Field) -> FieldPlace | None:
        """Return the place of a field, or None if the events do not have it, or it is one of an element."""
        if node.names[0].startswith("$"):
            return None
        return self._around.find(
            node, node.names[1:] if node.names[0] in self._events and node.names[1:] else node.names
        )

    def is_null(self, node: e.EqlExpression, negated: bool, span: s.Span) -> ResolvedTruth:
        """Return the predicate that a value is NULL.

        A list is NULL if all its elements are; a value computed from its elements also if that of one of them is.
        """
        if isinstance(node, e.ConstantValue):
            return (node.value is None) != negated
        if is_condition(node):
            if any(isinstance(part, e.And | e.Or) for part in walk(node)):
                self._check_no_list(node, "is one of several tests, compared with null,")
            return UnknownTruths(self.truth, self.is_null, self._null_if_missing).of(node, negated)
        leaf = _Leaf()
        value = self._bind_value_of(node, leaf)
        if leaf.is_null:
            return not negated
        if leaf.element is None:
            null: s.Predicate = s.IsNull(value, span)
            return negation(null) if negated else null
        has_value: s.Predicate = s.AnyElement(_not_null(leaf.element, span), span)
        empty = [negation(has_value), s.IsNull(leaf.element.list, span)]
        if value == leaf.element:
            return has_value if negated else joined_truths(s.Or, empty, span)
        one = s.AnyElement(s.And((_not_null(leaf.element, span), s.IsNull(value, span)), span), span)
        return (
            joined_truths(s.And, [has_value, negation(one)], span)
            if negated
            else joined_truths(s.Or, [one, *empty], span)
        )

    def _match(self, node: e.Match, negated: bool) -> ResolvedTruth:
        if node.op == "in" and any(not isinstance(value, e.ConstantValue) for value in node.values):
            if node.nocase:
                raise self._around.error("in~ takes a list of constants", node.span)
            return self._one_equal(node, negated)
        data_type = self._type(node.left)
        if data_type is not None and pa.types.is_timestamp(data_type):
            values = [value.value for value in node.values if isinstance(value, e.ConstantValue)]
            if any(type(value) is int for value in values):
                return self._one_equal(node, negated)
        operands, build = self._tested(node)
        return self._bind_test(operands, build, negated, node.span)

    def _one_equal(self, node: e.Match, negated: bool) -> ResolvedTruth:
        """Return the truth of a match as comparisons with its values."""
        equal = [e.Comparison("==", node.left, value, node.span) for value in node.values]
        return self.truth(e.Or(tuple(equal), node.span) if len(equal) > 1 else equal[0], negated)

    def _tested(
        self, node: e.EqlExpression
    ) -> tuple[list[e.EqlExpression], Callable[[list[s.Expression]], ResolvedTruth]]:
        """Return the operands of a test, and the function that builds it from their values."""
        match node:
            case e.Match():
                strings = [self._as_text(node.left, constant) for constant in self._constants(node)]
                return [node.left], lambda values: self._matched(node, strings, values[0])
            case e.FunctionCall() if node.name.lower() in CONDITION_FUNCTIONS:
                check_call(node, self._around.text)
                return self._called(node)
            case e.Comparison() if not is_condition(node.left) and not is_condition(node.right):
                sign = {"==": "=", "!=": "<>"}.get(node.op, node.op)
                return [node.left, node.right], lambda values: s.Comparison(sign, values[0], values[1], node.span)
        raise self._around.error("only a single test is compared with true or false", node.span, "write not (...)")

    def _constants(self, node: e.Match) -> list[e.ConstantValue]:
        """Return the constants at the right of an operator, and refuse anything else there."""
        constants: list[e.ConstantValue] = []
        for value in node.values:
            if isinstance(value, e.ConstantValue) and value.value is None:
                raise self._around.error(f"{node.op!r} compares with no null", value.span, "write == null")
            if not isinstance(value, e.ConstantValue):
                raise self._around.error(
                    f"{node.op!r} takes constants at its right", value.span, "fields are compared by =="
                )
            if isinstance(value.value, str) and node.op in (":", "like", "regex"):
                self._check_field_type(
                    node.left,
                    lambda kind: kind in (STRING, None),
                    "a text",
                    f'string(...) of it, or a number at the right of ==: string(field) {node.op} "..."',
                )
            if node.op in ("like", "regex") and not isinstance(value.value, str):
                raise self._around.error(f"{node.op} takes strings at its right", value.span)
            if node.op == "regex":
                self._regex(value)
            constants.append(value)
        return constants

    def _regex(self, value: e.ConstantValue) -> str:
        try:
            return re2_of(str(value.value))
        except ValueError as error:
            raise self._around.error(str(error), value.span) from None

    def _matched(self, node: e.Match, constants: list[e.ConstantValue], value: s.Expression) -> ResolvedTruth:
        """Return the test that a value equals, or matches, one of some constants."""
        strings = [constant for constant in constants if isinstance(constant.value, str)]
        others = [constant for constant in constants if constant not in strings]
        tests: list[ResolvedTruth] = []
        if node.op == "regex":
            patterns = tuple(s.Literal(rf"(?s)\A(?:{self._regex(each)})\z", span=each.span) for each in strings)
            tests.append(s.Like("LIKE", value, patterns, node.nocase, node.span))
        elif node.op == "in" and not node.nocase:
            literals = tuple(s.Literal(each.value, each.text, each.span) for each in strings)  # type: ignore[arg-type]
            tests += [s.Membership(value, literals, node.span)] if strings else []
        elif strings:
            globs = [self._glob(node, str(each.value)) for each in strings]
            patterns = tuple(s.Literal(glob, span=each.span) for glob, each in zip(globs, strings, strict=True))
            tests.append(s.StringTest("GLOB", value, patterns, node.nocase or node.op == ":", node.span))
        for each in others:
            tests.append(s.Comparison("=", value, literal_of(each), node.span))
        return joined_truths(s.Or, tests, node.span)

    def _glob(self, node: e.Match, text: str) -> str:
        return glob_of_text(text) if node.op == "in" or not has_wildcards(text) else glob_of(text)

    def _called(
        self, node: e.FunctionCall
    ) -> tuple[list[e.EqlExpression], Callable[[list[s.Expression]], ResolvedTruth]]:
        """Return the operands of a function that is a condition, and the function that builds its test."""
        name, operands, span = node.name.lower(), list(node.operands), node.span
        first, *others = operands
        constant = all(isinstance(other, e.ConstantValue) and isinstance(other.value, str) for other in others)
        if name in ("cidrmatch", "wildcard", "match"):
            if not constant:
                raise self._around.error(f"{node.name} takes strings behind its field", span)
            strings = [str(other.value) for other in others if isinstance(other, e.ConstantValue)]
            if name == "cidrmatch":
                literals = tuple(
                    s.Literal(self._network(t, o.span), span=o.span) for t, o in zip(strings, others, strict=True)
                )
                return [first], lambda values: s.StringTest("CIDR", values[0], literals, span=span)
            op = "like" if name == "wildcard" else "regex"
            return self._tested(e.Match(op, node.nocase, first, tuple(others), span))
        signs = {"startswith": ("", "*"), "endswith": ("*", ""), "stringcontains": ("*", "*")}
        if constant and not isinstance(first, e.ConstantValue):
            before, after = signs[name]
            strings = [str(other.value) for other in others if isinstance(other, e.ConstantValue)]
            if name == "stringcontains":  # an empty string is in no other
                strings = [text for text in strings if text]
            patterns = tuple(s.Literal(f"{before}{glob_of_text(text)}{after}", span=span) for text in strings)
            if not patterns:
                return [first], lambda values: False
            return [first], lambda values: s.StringTest("GLOB", values[0], patterns, node.nocase, span)
        called = CONDITION_FUNCTIONS[name] + "~" * node.nocase
        return operands, lambda values: _is(s.Call(called, tuple(values), span), True, span)

    def _network(self, text: str, span: s.Span) -> str:
        try:
            return network_of(text)
        except ValueError as error:
            raise self._around.error(str(error), span) from None

    def _search(self, node: e.FunctionCall, negated: bool) -> ResolvedTruth:
        """Return ``_arraysearch(list, $variable, condition)``: one element of a list satisfies a condition."""
        hint = "_arraysearch(field, $entry, $entry.name == ...)"
        if len(node.operands) != 3:
            raise self._around.error(f"{node.name} takes a list, a variable and a condition", node.span, hint)
        of, variable, condition = node.operands
        if not isinstance(of, e.Field) or not isinstance(variable, e.Field) or len(variable.names) != 1:
            raise self._around.error(f"{node.name} takes a list, a variable and a condition", node.span, hint)
        name = variable.names[0]
        if name in self._elements or self._elements:
            raise self._around.error(f"{node.name} stands in no other one", node.span)
        place = self._around.find(of)
        if place is None:
            return negated
        if self._around.schema is not None and not place.in_list:
            raise QueryTypeError(
                f"{node.name} takes a list, and {of.name!r} is {place.type}", self._around.text, *of.span
            )
        lists = s.Attribute(place.attribute, of.span)
        self._elements[name] = s.Element(lists, place.below, of.span)
        self._types[name] = place.type if self._around.schema is not None else None
        try:
            inner = self.truth(condition, negated=False)
            denied = self.truth(condition, negated=True) if negated else True
        finally:
            del self._elements[name]
        if inner is False:
            return negated
        if not negated:
            some = _not_null(s.Element(lists, place.below, of.span), node.span) if inner is True else inner
            return s.AnyElement(some, node.span)
        certain = denied if isinstance(denied, bool) else negation(denied)
        if isinstance(certain, bool):
            certain = _not_null(s.Element(lists, place.below, of.span), node.span)
        return joined_truths(s.Or, [negation(s.AnyElement(certain, node.span)), s.IsNull(lists, node.span)], node.span)

    def _lineage(self, node: e.Lineage, negated: bool) -> ResolvedTruth:
        event = node.event
        own = EqlConditions(self._around).predicate(event.condition)
        name = None if event.category is None else s.Name(event.category, span=event.category_span)
        ids = []
        for names in (("process", "entity_id"), ("process", "parent", "entity_id")):
            place = self._around.find(e.Field(names, span=node.span))
            if place is None:
                return negated
            ids.append(place.attribute)
        descends = s.descends(name, own, (ids[0], ids[1]), node.span)
        return negation(descends) if negated else descends

    # ---- values ---------------------------------------------------------------------------------------------------

    def _bind_value_of(self, node: e.EqlExpression, leaf: _Leaf) -> s.Expression:
        match node:
            case e.ConstantValue(value=None):
                leaf.is_null = True
                return s.Literal(0, "0", node.span)
            case e.ConstantValue():
                return literal_of(node)
            case e.Field():
                return self._field(node, leaf)
            case e.Minus():
                return s.Negative(self._bind_value_of(node.operand, leaf), node.span)
            case e.BinaryOperation():
                return s.Arithmetic(
                    node.op, self._bind_value_of(node.left, leaf), self._bind_value_of(node.right, leaf), node.span
                )
            case e.FunctionCall() if node.name.lower() in OF_NUMBERS:
                check_call(node, self._around.text)
                left, right = (self._bind_value_of(operand, leaf) for operand in node.operands)
                return s.Arithmetic(OF_NUMBERS[node.name.lower()], left, right, node.span)
            case e.FunctionCall() if node.name.lower() in OF_VALUES:
                check_call(node, self._around.text)
                node = without_null_default(node, self._is_missing)
                name = OF_VALUES[node.name.lower()] + "~" * node.nocase
                return s.Call(name, tuple(self._bind_value_of(operand, leaf) for operand in node.operands), node.span)
            case e.FunctionCall() if node.name.lower() not in CONDITION_FUNCTIONS:
                check_call(node, self._around.text)
        raise self._around.error("expected a value, found a condition", node.span)

    def _field(self, node: e.Field, leaf: _Leaf) -> s.Expression:
        first, *rest = node.names
        if first.startswith("$"):
            return self._of_element(node, tuple(rest), leaf)
        variable = None
        names = node.names
        if first in self._events and rest:
            names = tuple(rest)
            variable = s.Name(first, span=node.span) if first != self._own else None
        place = self._around.find(node, names)
        if place is None:
            leaf.is_null = True
            return s.Literal(0, "0", node.span)
        if isinstance(place.type, pa.StructType):
            raise QueryTypeError(
                f"{node.name!r} has fields, and is no value",
                self._around.text,
                *node.span,
                f"{node.name}.{place.type.field(0).name}",
            )
        attribute = s.Attribute(place.attribute, node.span, variable)
        if not place.in_list:
            return attribute
        if self._elements:
            raise self._around.error("a test within _arraysearch reads no other list", node.span)
        element = s.Element(attribute, place.below, node.span)
        if leaf.element is None:
            leaf.element = element
        elif leaf.element.list != attribute:
            raise self._around.error("a test reads one list, and this one two", node.span)
        return element

    def _of_element(self, node: e.Field, rest: tuple[str, ...], leaf: _Leaf) -> s.Expression:
        """Return a field of the element that a variable of _arraysearch denotes."""
        name = node.names[0]
        if name not in self._elements:
            hint = did_you_mean(name, self._elements, "variables")
            raise self._around.error(f"{name} is no variable here", node.span, hint)
        element, of = self._elements[name], self._types[name]
        if of is None or not rest:
            return replace(element, fields=(*element.fields, *rest), span=node.span)
        inner = next(fields_of(of, rest), None) if isinstance(of, pa.StructType) else None
        if inner is None:
            if not (node.optional or self._around.missing_is_null):
                names = [field.name for field in of] if isinstance(of, pa.StructType) else []
                message, hint = f"the elements have no field {'.'.join(rest)!r}", did_you_mean(rest[0], names, "fields")
                raise QueryTypeError(message, self._around.text, *node.span, hint)
            leaf.is_null = True
            return s.Literal(0, "0", node.span)
        return replace(element, fields=(*element.fields, *inner[0]), span=node.span)


def _reads(value: s.Expression) -> bool:
    """Return True for a value that is not the same for all events."""
    return any(isinstance(node, s.Attribute | s.Element) for node in walk(value))


def _is(value: s.Expression, truth: bool, span: s.Span) -> s.Predicate:
    return s.Comparison("=", value, s.Literal(truth, span=span), span)


def _not_null(value: s.Expression, span: s.Span) -> s.Predicate:
    return s.Not(s.IsNull(value, span), span)
