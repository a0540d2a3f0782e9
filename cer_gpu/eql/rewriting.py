"""Nodes of EQL that are rewritten before they are bound: conditions as texts, defaults, timestamps in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.patterns import network
from cer_gpu.ceql.traversal import children, with_children
from cer_gpu.eql import syntax as e
from cer_gpu.errors import QueryError, did_you_mean
from cer_gpu.resolution.predicates import ResolvedTruth, joined_truths, negation

SEARCHES = ("_arraysearch", "arraysearch")
"""Functions that test the elements of a list."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_condition(node: e.EqlExpression) -> bool:
    """Return True for a node that is a condition, and no value."""
    if isinstance(node, e.FunctionCall):
        return node.name.lower() in CONDITION_FUNCTIONS or node.name.lower() in SEARCHES
    return isinstance(node, e.Comparison | e.Match | e.NotCondition | e._Flat | e.Lineage)


def shown_condition(node: Any) -> e.FunctionCall | None:
    """Return the first ``string(condition)`` among the values of a test, or None if there is none."""
    if isinstance(node, e.FunctionCall) and node.name.lower() == "string" and len(node.operands) == 1:
        operand = node.operands[0]
        if is_condition(operand) or (isinstance(operand, e.ConstantValue) and isinstance(operand.value, bool)):
            return node
    return next(
        (condition_below for child in children(node) if (condition_below := shown_condition(child)) is not None), None
    )


def by_truths(test: e.EqlExpression, shown: e.FunctionCall) -> e.EqlExpression:
    """Return a test that reads ``string(condition)`` by cases: the condition holds, it does not, it is null.

    In the first two cases the text "true" or "false" stands in its place, and null in the last.
    """
    condition, span = shown.operands[0], test.span
    if isinstance(test, e.Comparison) and test.op == "!=" and not _tests_null(test):
        return e.NotCondition(by_truths(replace(test, op="=="), shown), span)
    if isinstance(condition, e.ConstantValue):
        return _with_text(test, shown, "true" if condition.value else "false")
    is_decided = e.Comparison("!=", condition, e.ConstantValue(None), span)
    holds = e.And((condition, is_decided, _with_text(test, shown, "true")), span)
    fails = e.And((e.NotCondition(condition, span), is_decided, _with_text(test, shown, "false")), span)
    unknown = e.And(
        (e.NotCondition(is_decided, span), _replaced(test, shown, e.ConstantValue(None, span=shown.span))), span
    )
    cases = (holds, fails, unknown) if _tests_null(test) else (holds, fails)
    return e.Or(cases, span)


def _tests_null(test: e.EqlExpression) -> bool:
    """Return True for a comparison with null."""
    sides = (test.left, test.right) if isinstance(test, e.Comparison) else ()
    return any(isinstance(side, e.ConstantValue) and side.value is None for side in sides)


def _with_text(test: e.EqlExpression, shown: e.FunctionCall, text: str) -> e.EqlExpression:
    replaced: e.EqlExpression = _replaced(test, shown, e.ConstantValue(text, span=shown.span))
    return replaced


def _replaced(node: Any, old: e.EqlExpression, new: e.EqlExpression) -> Any:
    """Return a node with another in place of one below it."""
    if node is old:
        return new
    below = children(node)
    return with_children(node, [_replaced(child, old, new) for child in below]) if below else node


def without_null_default(call: e.FunctionCall, is_missing: Callable[[e.Field], bool]) -> e.FunctionCall:
    """Return a call without an optional last operand that is null, or a field that the events do not have.

    Elasticsearch's functions then take the default: base 10 of ``number``, the end of the text of ``substring``.
    """
    n_required = WITH_DEFAULTS.get(call.name.lower())
    operands = call.operands
    if n_required is None or len(operands) != n_required + 1:
        return call
    last = operands[-1]
    is_null = isinstance(last, e.ConstantValue) and last.value is None
    is_null = is_null or (isinstance(last, e.Field) and last.optional and is_missing(last))
    return replace(call, operands=operands[:-1]) if is_null else call


def network_of(text: str) -> str:
    """Return a network, whose host bits may be set; raises ValueError for other texts."""
    try:
        network(text)
    except ValueError:
        with suppress(ValueError):
            return str(ip_network(text, strict=False))
        raise
    return text


def timestamp_constant(constant: e.ConstantValue, *, has_zone: bool) -> e.ConstantValue:
    """Return what a timestamp is compared with as a string: whole numbers are milliseconds since 1970.

    The Z of UTC is left out where the field has no time zone, and is in UTC.
    """
    value = constant.value
    if type(value) is int:
        try:
            timestamp = _EPOCH + timedelta(milliseconds=value)
        except OverflowError:
            return constant
        value = timestamp.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp.microsecond // 1000:03}Z"
        value = value.rjust(24, "0")
    if not isinstance(value, str):
        return constant
    return e.ConstantValue(value if has_zone else value.removesuffix("Z"), span=constant.span)


@dataclass(frozen=True)
class UnknownTruths:
    """Tests for NULL of the conditions of one event.

    Parameters
    ----------
    truth
        Returns the predicate that a condition holds, or, negated, that it does not.
    is_null
        Returns the predicate that a value is NULL, or, negated, that it is not.
    null_if_missing
        Returns null in place of a field that the events do not have.
    """

    truth: Callable[[e.EqlExpression, bool], ResolvedTruth]
    is_null: Callable[[e.EqlExpression, bool, s.Span], ResolvedTruth]
    null_if_missing: Callable[[e.EqlExpression], e.EqlExpression]

    def of(self, node: e.EqlExpression, negated: bool) -> ResolvedTruth:
        """Return the predicate that a condition is NULL, or, negated, that it is TRUE or FALSE."""
        unknown = self._unknown(node)
        return negation(unknown) if negated else unknown

    def _unknown(self, node: e.EqlExpression) -> ResolvedTruth:
        if not is_condition(node):
            return self.is_null(node, False, node.span)
        match node:
            case e.NotCondition():
                return self._unknown(node.operand)
            case e.And() | e.Or():
                undecided = [negation(self._is(each, isinstance(node, e.Or))) for each in node.operands]
                return joined_truths(s.And, [self._some_unknown(node.operands, node.span), *undecided], node.span)
            case e.Comparison():
                sides = [self.null_if_missing(each) for each in (node.left, node.right)]
                if node.op in ("==", "!=") and any(isinstance(x, e.ConstantValue) and x.value is None for x in sides):
                    return False
                return self._some_unknown(sides, node.span)
            case e.Match():
                return self._some_unknown((node.left, *node.values), node.span)
            case e.FunctionCall() if node.name.lower() not in SEARCHES:
                return self._some_unknown(children(node), node.span)
        return False

    def _some_unknown(self, nodes: Sequence[e.EqlExpression], span: s.Span) -> ResolvedTruth:
        """Return the predicate that one of some values and conditions is NULL."""
        return joined_truths(s.Or, list(map(self._unknown, nodes)), span)

    def _is(self, node: e.EqlExpression, truth: bool) -> ResolvedTruth:
        """Return the predicate that a condition is TRUE, or that it is FALSE, and not NULL."""
        return joined_truths(s.And, [self.truth(node, not truth), negation(self._unknown(node))], node.span)


OF_NUMBERS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "modulo": "%"}
"""Functions that are operators of arithmetic."""
OF_VALUES = {
    "between": "between",
    "concat": "concat",
    "indexof": "indexof",
    "length": "length",
    "number": "number",
    "string": "string",
    "substring": "substring",
}
"""Functions that return a value."""
CONDITION_FUNCTIONS = {
    "cidrmatch": "",
    "endswith": "endswith",
    "match": "",
    "startswith": "startswith",
    "stringcontains": "contains",
    "wildcard": "",
}
"""Functions that are conditions; "" for those only over constants, as a test of strings."""
_OPERANDS = {
    **dict.fromkeys(OF_NUMBERS, (2, 2)),
    **dict.fromkeys(("startswith", "endswith", "stringcontains"), (2, None)),
    **dict.fromkeys(("cidrmatch", "match", "wildcard"), (2, None)),
    "between": (3, 4),
    "concat": (1, None),
    "indexof": (2, 3),
    "length": (1, 1),
    "number": (1, 2),
    "string": (1, 1),
    "substring": (2, 3),
}
WITH_DEFAULTS = {"indexof": 2, "number": 1, "substring": 2}
"""Functions whose last operand has a default, which null stands for, too; and how many operands are before it."""
_NOCASE = ("between", "endswith", "indexof", "match", "startswith", "stringcontains", "wildcard")
_NAMES = {
    name.lower(): name
    for name in (
        *("add", "between", "cidrMatch", "concat", "divide", "endsWith", "indexOf", "length", "match", "modulo"),
        *("multiply", "number", "startsWith", "string", "stringContains", "substring", "subtract", "wildcard"),
    )
}
_ELSEWHERE = {
    "arraycontains": 'field == "value" holds if one element of a list passes',
    "arraycount": "_arraysearch(field, $x, ...) tells whether there is one",
    "matchlite": "regex",
    "safe": "a missing value satisfies no test",
}
"""Functions of Endgame's EQL that Elasticsearch's does not have, and what to write."""


def check_call(call: e.FunctionCall, text: str) -> None:
    """Refuse an unknown function, or the wrong number of operands.

    Raises
    ------
    QueryError
    """
    name = call.name.lower()
    if name not in _OPERANDS:
        hint = _ELSEWHERE.get(name) or did_you_mean(call.name, _NAMES.values(), "functions")
        raise QueryError(f"there is no function {call.name!r}", text, *call.span, hint=hint)
    if call.nocase and name not in _NOCASE:
        raise QueryError(f"{_NAMES[name]} has no form with ~", text, *call.span)
    n_min, n_max = _OPERANDS[name]
    n = len(call.operands)
    if n < n_min or (n_max is not None and n > n_max):
        expected = f"{n_min}" if n_min == n_max else f"{n_min} or more" if n_max is None else f"{n_min} to {n_max}"
        raise QueryError(f"{_NAMES[name]} takes {expected} operands, and has {n}", text, *call.span)


def literal_of(constant: e.ConstantValue) -> s.Literal:
    """Return a constant that is not null as a literal of CEQL."""
    assert constant.value is not None
    return s.Literal(constant.value, constant.text, constant.span)
