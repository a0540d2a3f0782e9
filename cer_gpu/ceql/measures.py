"""Measures: the expressions of SELECT and HAVING over whole matches, built from the parsed expressions.

The parser leaves aggregates as calls with a name in upper case (`syntax.Call`), and, in HAVING, attributes as paths.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import AGGREGATES
from cer_gpu.ceql.paths import dotted, names_of, path_of
from cer_gpu.ceql.traversal import children, fold, walk, with_children
from cer_gpu.errors import QuerySyntaxError, did_you_mean


def measure_expression(expression: s.Expression, text: str) -> s.Expression:
    """Return an expression of SELECT with its aggregates as nodes.

    Raises
    ------
    QuerySyntaxError
        When an attribute has no variable, or an aggregate has the wrong operands.
    """
    reader = _Reader(text, None)
    measure: s.Expression = reader.read(expression)
    if not any(isinstance(node, s.Attribute | s.Aggregate) for node in walk(measure)):
        message = "expected a variable, or a measure that names one: x, x.price, COUNT(x)"
        raise QuerySyntaxError(message, text, *expression.span)
    return measure


def having_condition(predicate: s.Predicate, aliases: Collection[str], text: str) -> s.Predicate:
    """Return the condition of HAVING: an attribute without a variable is one of the aliases of SELECT's measures.

    Raises
    ------
    QuerySyntaxError
        As for `measure_expression`, and when a bare name is no alias.
    """
    condition: s.Predicate = _Reader(text, aliases).read(predicate)
    return condition


def aggregate_operand(expression: s.Expression, text: str) -> tuple[str, s.Expression | None]:
    """Return the function of a lone aggregate, and its operand: None for ``COUNT(*)``.

    Raises
    ------
    QuerySyntaxError
        When the expression is no aggregate of one operand, or the operand is no expression over attributes.
    """
    if not isinstance(expression, s.Call) or expression.function not in AGGREGATES:
        raise QuerySyntaxError("expected one aggregate", text, *expression.span, hint=LONE)
    function, operands = expression.function, expression.operands
    if function == "LIST":
        raise QuerySyntaxError("LIST gives no single value", text, *expression.span, hint=LONE)
    if function == "COUNT":
        if operands:
            message = "expected COUNT(*), which counts matches"
            raise QuerySyntaxError(message, text, *expression.span, hint=LONE)
        return function, None
    if len(operands) != 1:
        raise QuerySyntaxError(f"{function} takes one operand", text, *expression.span, hint=LONE)
    for node in walk(operands[0]):
        if isinstance(node, s.StringTest | s.Element):
            raise QuerySyntaxError("expected an expression over numbers", text, *node.span, hint=LONE)
        if isinstance(node, s.Call) and node.function in AGGREGATES:
            raise QuerySyntaxError(f"{node.function} stands within {function}", text, *node.span, hint=LONE)
        if isinstance(node, s.Attribute) and node.variable is None:
            raise _without_variable(node, text, LONE)
    if next(s.attributes(operands[0]), None) is None:
        raise QuerySyntaxError("expected an attribute of a variable", text, *operands[0].span, hint=LONE)
    return function, operands[0]


def named_variables(nodes: Sequence[s.Expression | s.Predicate]) -> list[s.Name]:
    """Return the variables that measures or the condition of HAVING name, in order, each once."""
    names: dict[tuple[str | None, str], s.Name] = {}
    for root in nodes:
        for node in walk(root):
            if isinstance(node, s.Attribute | s.Aggregate) and node.variable is not None:
                names.setdefault((node.variable.stream, node.variable.name), node.variable)
    return list(names.values())


class _Reader:
    """Reader of an expression or predicate; `aliases` are None in SELECT, where attributes name their variables."""

    def __init__(self, text: str, aliases: Collection[str] | None) -> None:
        self._text = text
        self._aliases = aliases

    def read(self, root: Any) -> Any:
        """Return a tree with its aggregates as nodes."""

        def descend(node: Any) -> Sequence[Any]:
            return () if _is_aggregate(node) else children(node)

        def rebuild(node: Any, below: list[Any]) -> Any:
            if _is_aggregate(node):
                return self._build_aggregate(node)
            if isinstance(node, s.Attribute):
                return self._check_attribute(node)
            if isinstance(node, s.Element):
                message = "ANY is for filters: it tests the elements of a list of one event"
                raise self._measure_error(message, node.span, "let it stand behind FILTER: x[ANY(tags) = 'x']")
            if isinstance(node, s.StringTest) and self._aliases is None:
                raise self._measure_error(f"{node.name}(...) is a predicate, and no measure", node.span, _MEASURE)
            return with_children(node, below)

        return fold(root, rebuild, descend)

    def _measure_error(self, message: str, span: s.Span, hint: str | None = None) -> QuerySyntaxError:
        return QuerySyntaxError(message, self._text, *span, hint=hint)

    def _check_attribute(self, attribute: s.Attribute) -> s.Attribute:
        if attribute.lag:
            raise self._measure_error(
                "LAG is for filters: a measure reads the events of the match", attribute.span, _LAG
            )
        if attribute.aggregate is not None:
            raise _refuse_over(attribute, self._text)
        if attribute.event == "PREV":
            raise self._measure_error("PREV is for filters: a measure has no chosen event", attribute.span, _MEASURE)
        qualified = self._qualified(attribute)
        if qualified.variable is None and self._aliases is not None:
            if qualified.name not in self._aliases:
                hint = did_you_mean(qualified.name, self._aliases, "measures of SELECT") if self._aliases else None
                message = f"HAVING names {qualified.name!r}, and SELECT has no measure of that name"
                raise self._measure_error(message, qualified.span, hint or _MEASURE)
            return qualified
        if qualified.variable is None:
            raise _without_variable(qualified, self._text, _MEASURE)
        return qualified

    def _qualified(self, attribute: s.Attribute) -> s.Attribute:
        """Return an attribute that is written as a path with its first name as the variable."""
        first, *rest = names_of(attribute.name)
        if attribute.variable is not None or not rest:
            return attribute
        start = attribute.span[0]
        width = len(first) + 2 * (self._text[start : start + 1] == "`")
        return replace(attribute, name=path_of(rest), variable=s.Name(first, None, (start, start + width)))

    def _build_aggregate(self, call: s.Call) -> s.Aggregate:
        function, operands = call.function, call.operands
        if function == "COUNT" and not operands:
            return s.Aggregate(function, None, None, call.span)
        example = "COUNT(x) or COUNT(*)" if function == "COUNT" else f"{function}(x.price)"
        if len(operands) != 1 or not isinstance(operands[0], s.Attribute):
            raise self._measure_error(f"{function} takes one operand: {example}", call.span, _MEASURE)
        attribute = self._qualified(operands[0])
        if attribute.event != "EACH" or attribute.lag:
            raise self._measure_error(f"{function} takes all events of a variable: {example}", attribute.span, _MEASURE)
        if function == "COUNT":
            if attribute.variable is not None:
                raise self._measure_error(
                    f"COUNT counts events: COUNT({attribute.variable.name})", attribute.span, _MEASURE
                )
            return s.Aggregate(function, s.Name(attribute.name, None, attribute.span), None, call.span)
        if attribute.variable is None:
            raise self._measure_error(
                f"{function} takes an attribute: {function}({attribute.name}.price)", attribute.span
            )
        return s.Aggregate(function, attribute.variable, attribute, call.span)


def _is_aggregate(node: object) -> bool:
    return isinstance(node, s.Call) and node.function in AGGREGATES


def _refuse_over(attribute: s.Attribute, text: str) -> QuerySyntaxError:
    message = "an OVER aggregate is for filters: a measure reads the events of the match"
    start, end = attribute.span
    let = " ".join(text[start:end].split())
    hint = f"name it after FROM, LET z = {let}, and read it of an event of the match: SELECT x.z"
    return QuerySyntaxError(message, text, start, end, hint=hint)


def _without_variable(attribute: s.Attribute, text: str, hint: str) -> QuerySyntaxError:
    if attribute.aggregate is not None:
        return _refuse_over(attribute, text)
    return QuerySyntaxError(f"expected the variable of {dotted(attribute.name)!r}", text, *attribute.span, hint=hint)


_LAG = "name it after FROM, LET before = LAG(price), and read it of an event of the match: SELECT x.before"
_MEASURE = "measures are of x.price, FIRST(x).price, LAST(x).price, COUNT(x), SUM(x.price), AVG, MIN, MAX and LIST"
LONE = "one aggregate over all matches: COUNT(*), SUM(x.price), AVG(b.price - a.price), MIN(...), MAX(...)"
