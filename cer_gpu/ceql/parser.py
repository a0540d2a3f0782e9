"""Parser of query texts into syntax trees (`cer_gpu.ceql.syntax`), by the grammar in grammar.lark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import lark
from lark.visitors import Transformer_NonRecursive

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.clauses import NocaseValues, OwnKeysBuilder, QueryBuilder, exact, extent, span_of, unexpected
from cer_gpu.ceql.conjunctive import Argument, QueryAtom, Relations, checked_relations
from cer_gpu.ceql.foreign import FUNCTIONS
from cer_gpu.ceql.functions import (
    AGGREGATES,
    ANY_OF,
    EVENTS,
    LAG,
    NAMES,
    OVER_AGGREGATES,
    RISES,
    SCALAR,
    TESTS,
    TRUTHS,
    numbered_operands,
)
from cer_gpu.ceql.grammar import UNITS, check_nesting, tree_parser
from cer_gpu.ceql.let import with_let
from cer_gpu.ceql.measures import LONE, aggregate_operand
from cer_gpu.ceql.paths import below, dotted, names_of, path_of
from cer_gpu.ceql.patterns import STRING_TESTS
from cer_gpu.ceql.scopes import resolved
from cer_gpu.ceql.syntax_errors import OF_EVENT, QUALIFIED, TERMS, check_query_text, no_truth, shortened, syntax_error
from cer_gpu.ceql.traversal import children as parts_of
from cer_gpu.ceql.traversal import mapped, walk
from cer_gpu.errors import QuerySyntaxError, did_you_mean

MAX_LAG = 1_000_000
"""Farthest event before that LAG reads."""


def parse(text: str, relations: Relations | None = None) -> s.QuerySyntax:
    """Parse a whole CEQL query.

    `relations` names the columns of types whose atoms in a conjunctive query have arguments by position.

    Raises
    ------
    QuerySyntaxError
        When the text is no query; it shows the place, the expected tokens, and the nearest keyword.
    QueryError
        When the names in a conjunctive query do not agree.
    OptionError
        When `relations` does not map names to lists of names.
    QueryTooLargeError
        When the query is nested too deeply.
    """
    check_query_text(text, "a query")
    query = QueryBuilder(text).build(_tree(text, "query"), checked_relations(relations))
    measured = [measure.expression for measure in query.select.measures]
    named = [column.expression for column in query.let]
    for root in (query.formula, *measured, *named, *([] if query.having is None else [query.having])):
        check_nesting(root, text)
    return with_let(replace(query, formula=resolved(query.formula)))


def parse_aggregate(text: str) -> tuple[str, s.Expression | None]:
    """Parse a lone aggregate over all matches, such as ``SUM(c.amount - a.amount)``.

    Returns
    -------
    function : str
        "COUNT", "SUM", "AVG", "MIN" or "MAX".
    operand : Expression or None
        Expression over attributes, each of which names its variable; None for ``COUNT(*)``.

    Raises
    ------
    QuerySyntaxError
        When the text is no such aggregate.
    """
    check_query_text(text, "an aggregate")
    if not text.strip():
        raise QuerySyntaxError("the aggregate is empty", hint=LONE)
    (expression,) = _tree(text, "lone_expression").children
    check_nesting(expression, text)
    return aggregate_operand(expression, text)


# ---- nodes of a parse tree ---------------------------------------------------------------------------------


def _tree(text: str, start: str) -> Any:
    """Return the parse tree of a text, with its formulas and expressions as nodes."""
    try:
        return _FormulaBuilder(text).transform(tree_parser().parse(text, start=start))
    except lark.exceptions.UnexpectedInput as error:
        raise syntax_error(text, error) from None
    except lark.exceptions.VisitError as error:
        raise error.orig_exc from None


def _node(make: Any) -> Any:
    """Return a method that builds ``make(*children, span)`` from a rule with its operands, in order, as children."""
    return lark.v_args(meta=True)(lambda self, meta, children: make(*children, span=span_of(meta)))


def _connective_builder(kind: Any) -> Any:
    """Return a method that builds a conjunction or disjunction from a rule with its operands as children."""
    return lark.v_args(meta=True)(lambda self, meta, children: s.joined(kind, children, span_of(meta)))


def _denied(method: str) -> Any:
    """Return a method that builds the negation of what another one builds."""
    return lark.v_args(meta=True)(
        lambda self, meta, children: s.Not(getattr(self, method)(meta, children), span_of(meta))
    )


def _compare(op: str) -> str:
    return {"==": "=", "!=": "<>"}.get(op, op)


@lark.v_args(meta=True)
class _FormulaBuilder(OwnKeysBuilder, Transformer_NonRecursive[Any, Any]):
    """Builder of formulas, filters and predicates, from the leaves up and without recursion."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def name(self, meta: Any, children: list[Any]) -> s.Name:
        text = str(children[0])
        return s.Name(text[1:-1] if text[0] in '`"' else text, None, span_of(meta))

    def keyword_name(self, meta: Any, children: list[Any]) -> s.Name:
        return s.Name(str(children[0]), None, span_of(meta))

    def path(self, meta: Any, children: list[Any]) -> s.Name:
        return s.Name(path_of([child.name for child in children]), None, span_of(meta))

    def event_name(self, meta: Any, children: list[Any]) -> s.Name:
        stream, _, name = children
        return s.Name(name.name, stream.name if stream else None, span_of(meta))

    def any_event(self, meta: Any, children: list[Any]) -> s.Name:
        stream = children[0]
        return s.Name(s.ANY_TYPE, stream.name if stream else None, span_of(meta))

    # expressions
    def number(self, meta: Any, children: list[Any]) -> s.Literal:
        text = str(children[0])
        number = exact(self.text, children[0])
        # an integer of more than 64 bits becomes a float64
        value = int(number) if text.isdigit() and number < 1 << 64 else float(number)
        return s.Literal(value, text, span_of(meta))

    def string(self, meta: Any, children: list[Any]) -> s.Literal:
        return s.Literal(_unquote(children[0]), "", span_of(meta))

    def boolean(self, meta: Any, children: list[Any]) -> s.Literal:
        return s.Literal(str(children[0]).upper() == "TRUE", "", span_of(meta))

    def length(self, meta: Any, children: list[Any]) -> s.Duration:
        return s.Duration(children[0], span_of(meta))

    def duration(self, meta: Any, children: list[Any]) -> Fraction:
        parts = [child for child in children if child is not None]
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return sum((exact(self.text, number) * UNITS[unit.type] for number, unit in pairs), Fraction(0))

    def attribute(self, meta: Any, children: list[Any]) -> s.Attribute:
        (path,) = children
        if isinstance(path, s.Attribute):
            return path
        return s.Attribute(path.name, span_of(meta))

    def qualified_path(self, meta: Any, children: list[Any]) -> s.Attribute:
        return self._attribute_node(meta, children[0], children[1:])

    def attribute_of(self, meta: Any, children: list[Any]) -> s.Attribute | s.Element:
        event, variable, *names = children
        which = event.name.upper()
        if which == ANY_OF and self.text[event.span[0]] != "`":
            return self.field_of_call(meta, [event, s.Attribute(variable.name, variable.span), *names])
        if which not in EVENTS or self.text[event.span[0]] == "`":
            raise self._syntax_error(
                f"expected FIRST, LAST or PREV before '(', found {shortened(event.name)!r}", event.span, OF_EVENT
            )
        return self._attribute_node(meta, variable, names, which)

    def field_of_call(self, meta: Any, children: list[Any]) -> s.Element:
        function, operand, *names = children
        if function.name.upper() != ANY_OF:
            hint = OF_EVENT if function.name.upper() in EVENTS else None
            raise self._syntax_error(f"{shortened(function.name)}(...) has no fields", span_of(meta), hint)
        element: s.Element = self.call(meta, [function, operand])
        return replace(element, fields=tuple(name.name for name in names))

    def _attribute_node(self, meta: Any, variable: s.Name, names: list[s.Name], event: str = "EACH") -> s.Attribute:
        return s.Attribute(path_of([name.name for name in names]), span_of(meta), variable, event)

    def call_of_name(self, meta: Any, children: list[Any]) -> Any:
        function, name = children
        return self.call(meta, [function, s.Attribute(name.name, name.span)])

    def call_of_all(self, meta: Any, children: list[Any]) -> Any:
        function = children[0]
        if function.name.upper() != "COUNT":
            raise self._syntax_error(
                f"expected COUNT before '(*)', found {shortened(function.name)!r}", function.span, _COUNT_ALL
            )
        return self.call(meta, [function])

    def call(self, meta: Any, children: list[Any]) -> Any:
        """Return a call of a scalar function or an aggregate (name in upper case), or a node for LAG, ANY or CIDR."""
        name, *operands = children
        upper, lower = name.name.upper(), name.name.lower()
        quoted = self.text[name.span[0]] == "`"
        if upper == LAG and not quoted:
            return self._lagged(meta, operands)
        if upper in EVENTS and not quoted:
            raise self._syntax_error(f"expected a variable and its attribute with {upper}", span_of(meta), OF_EVENT)
        if upper == ANY_OF and not quoted:
            if len(operands) != 1 or not isinstance(operands[0], s.Attribute) or operands[0].looks_back:
                raise self._syntax_error("ANY takes an attribute whose values are lists", span_of(meta), _OF_LIST)
            return s.Element(operands[0], (), span_of(meta))
        if upper in TRUTHS and not quoted:
            operand, *patterns = operands or [None]
            if not patterns or not all(isinstance(p, s.Literal) and isinstance(p.value, str) for p in patterns):
                raise self._syntax_error(
                    f"{upper} takes an attribute, and texts in quotes", span_of(meta), STRING_TESTS[upper].call
                )
            return s.StringTest(upper, operand, tuple(patterns), span=span_of(meta))
        if upper in AGGREGATES and not quoted:
            return s.Call(upper, tuple(operands), span_of(meta))
        if lower not in SCALAR or quoted:
            hint = FUNCTIONS.get(upper) or did_you_mean(lower if lower == name.name else upper, NAMES, "functions")
            raise self._syntax_error(f"there is no function {shortened(name.name)!r}", name.span, hint)
        n_min, n_max = SCALAR[lower]
        if len(operands) < n_min or (n_max is not None and len(operands) > n_max):
            expected = numbered_operands(n_min, n_max)
            raise self._syntax_error(f"{lower} takes {expected}, and {len(operands)} are given", span_of(meta))
        if lower == "round" and len(operands) == 2 and not s.is_whole(operands[1]):
            raise self._syntax_error(
                f"the second operand of {lower} is a whole number", operands[1].span, "round(price, 2)"
            )
        return s.Call(lower, tuple(operands), span_of(meta))

    def over_filter_of(self, event: s.Name | None, predicate: s.Predicate) -> s.Predicate:
        """Return the predicate of an OVER aggregate, whose attributes may name its type."""

        def bare(attribute: s.Attribute) -> s.Attribute:
            name = None if event is None else below(event.name, attribute.name)
            return attribute if name is None else replace(attribute, name=name)

        changed: s.Predicate = mapped(predicate, s.Attribute, bare)
        return changed

    def over_own_filter(self, meta: Any, children: list[Any]) -> tuple[s.Name, s.Predicate]:
        return children[0], children[1]

    def over_events(self, meta: Any, children: list[Any]) -> Any:
        (operand,) = children
        return s.Attribute(operand.name, operand.span) if isinstance(operand, s.Name) else operand

    def over_stream(self, meta: Any, children: list[Any]) -> Any:
        if len(children) == 2:
            return children[0], children[1]
        stream, _, path = children
        first, *rest = names_of(path.name)
        return s.Name(first, stream.name, span_of(meta)), s.Name(path_of(rest), None, path.span) if rest else None

    def over_distinct(self, meta: Any, children: list[Any]) -> s.Attribute:
        function, *others = children
        if isinstance(function, s.Name):  # COUNT(DISTINCT R.a)
            word, *others = others
            if word.name.upper() != "DISTINCT" or function.name.upper() != "COUNT":
                raise self._syntax_error(
                    f"expected COUNT(DISTINCT R.a), found {shortened(word.name)!r}", word.span, _OVER_HINT
                )
        name = s.Name("COUNT DISTINCT", None, span_of(meta))
        *others, keys = others
        return self.over_aggregate(meta, [name, *(each for each in others if each is not None), keys])

    def over_aggregate(self, meta: Any, children: list[Any]) -> s.Attribute:
        """Return an OVER aggregate as an attribute, whose name is its text."""
        function, operand, *predicates, length, keys = children
        upper = function.name.upper()
        if upper not in OVER_AGGREGATES or self.text[function.span[0]] == "`":
            hint = did_you_mean(upper, OVER_AGGREGATES, "aggregates") or _OVER_HINT
            raise self._syntax_error(f"there is no aggregate {shortened(function.name)!r} OVER", function.span, hint)
        nocase = isinstance(operand, NocaseValues)
        event, attribute = self._over_operand(operand.values if nocase else operand)
        if attribute is None and not OVER_AGGREGATES[upper].counts_events:
            raise self._syntax_error(f"{upper} takes an attribute of events", span_of(meta), _OVER_HINT)
        predicate = None
        for each in predicates:
            owner, predicate = each if isinstance(each, tuple) else (event, each)
            if event is not None and owner is not None and owner.name != event.name:
                raise self._syntax_error(
                    f"expected a filter of {event.name}, found {owner.name!r}", owner.span, _OVER_HINT
                )
            predicate = self.over_filter_of(event, predicate)
        event = None if event == s.Name(s.ANY_TYPE) else event  # in backquotes
        of = (upper, event, attribute, predicate, extent(self.text, length), span_of(meta))
        aggregate = s.OverAggregate(*of, keys=keys, nocase=nocase)
        self._refuse_lag(aggregate, "a filter of an OVER aggregate")
        return self.over_attribute(aggregate)

    def rises(self, meta: Any, children: list[Any]) -> s.Comparison:
        """Return the test that a condition begins to hold."""
        _, condition, predicate, keys = children
        aggregate = s.OverAggregate(RISES, None, None, predicate, None, span_of(meta), condition=condition, keys=keys)
        self._refuse_lag(aggregate, RISES)
        return s.Comparison("=", self.over_attribute(aggregate), s.Literal(True, "", aggregate.span), aggregate.span)

    def _refuse_lag(self, aggregate: s.OverAggregate, who: str) -> None:
        for inner in (each for predicate in aggregate.below for each in s.attributes(predicate)):
            if inner.lag:
                message = f"{who} reads no LAG"
                raise self._syntax_error(message, inner.span, "let the test of LAG stand beside it")

    def _over_operand(self, operand: Any) -> tuple[s.Name | None, str | None]:
        """Return the type and the attribute of the events of an aggregate, each or None if it names none."""
        match operand:
            case s.Name():
                return operand, None
            case s.Attribute(lag=0, aggregate=None, variable=None):
                first, *rest = names_of(operand.name)
                return s.Name(first, None, operand.span), path_of(rest) if rest else None
            case s.Attribute(lag=0, aggregate=None, variable=s.Name() as event):
                return event, operand.name
            case lark.Token():
                return None, None
            case (lark.Token(), s.Name() as path):
                return None, path.name
            case (s.Name() as event, path):
                return event, None if path is None else path.name
        raise self._syntax_error("expected a type, or a type and an attribute", operand.span, _OVER_HINT)

    def _lagged(self, meta: Any, operands: list[Any]) -> s.Attribute:
        attribute, *numbers = operands
        if not isinstance(attribute, s.Attribute) or attribute.looks_back or len(numbers) > 1:
            raise self._syntax_error("LAG takes an attribute, and how many events before", span_of(meta), _LAGS)
        lag = 1
        if numbers:
            (number,) = numbers
            if not isinstance(number, s.Literal) or not s.is_whole(number) or not 0 < int(number.value) <= MAX_LAG:
                raise self._syntax_error("the second operand of LAG is a number of events, from 1", number.span, _LAGS)
            lag = int(number.value)
        return replace(attribute, lag=lag, span=span_of(meta))

    negative = _node(s.Negative)

    def arithmetic(self, meta: Any, children: list[Any]) -> s.Arithmetic:
        left, op, right = children
        return s.Arithmetic(str(op), left, right, span_of(meta))

    # predicates
    def comparison(self, meta: Any, children: list[Any]) -> s.Comparison:
        left, op, right = children
        return s.compared_times(_compare(str(op)), left, right, span_of(meta))

    def test(self, meta: Any, children: list[Any]) -> s.Predicate:
        """Return a whole test, of the elements of a list where it names one, and refuse a value that is no truth."""
        (test,) = children
        if isinstance(test, s.Call) and test.function in TESTS:
            test = s.Comparison("=", test, s.Literal(True, "", test.span), test.span)
        if not isinstance(test, s.Predicate):
            raise no_truth(self.text, test.span)
        elements: dict[s.Span, s.Element] = {}
        for leaf in s.leaves(test):
            for operand in parts_of(leaf):
                elements.update({part.span: part for part in _elements(operand)})
                for part in walk(operand):
                    if isinstance(part, s.Element) and part.span not in elements:
                        raise self._syntax_error(
                            f"{self._source_text(part)} stands alone before its test", part.span, _OF_LIST
                        )
                    if isinstance(part, s.StringTest):
                        message = f"{part.name}(...) is a predicate, and no value"
                        raise self._syntax_error(
                            message, part.span, "join predicates with AND and OR, and deny one with NOT"
                        )
        if len(elements) > 1:
            raise self._syntax_error("one test has one ANY(...)", list(elements)[1], _OF_LIST)
        return s.AnyElement(test, span_of(meta)) if elements else test

    def _source_text(self, node: Any) -> str:
        return shortened(self.text[slice(*node.span)])

    def patterns(self, meta: Any, children: list[Any]) -> tuple[s.Literal, ...]:
        return tuple(s.Literal(_unquote(each), "", (each.start_pos, each.end_pos)) for each in children)

    def like(self, meta: Any, children: list[Any]) -> s.Like:
        return s.Like("LIKE", children[0], self.patterns(meta, children[1:]), span=span_of(meta))

    not_like = _denied("like")

    def glob(self, meta: Any, children: list[Any]) -> s.StringTest:
        operand, patterns, nocase = children
        return s.StringTest("GLOB", operand, patterns, nocase is not None, span_of(meta))

    not_glob = _denied("glob")

    def values(self, meta: Any, children: list[Any]) -> tuple[str, list[Any]]:
        return "values", children

    def interval(self, meta: Any, children: list[Any]) -> tuple[str, list[Any]]:
        return "interval", children

    def from_low(self, meta: Any, children: list[Any]) -> tuple[str, list[Any]]:
        return "interval", [children[0], None]

    def to_high(self, meta: Any, children: list[Any]) -> tuple[str, list[Any]]:
        return "interval", [None, children[0]]

    def in_(self, meta: Any, children: list[Any]) -> s.Predicate:
        operand, (kind, items) = children
        if kind == "values":
            return s.Membership(operand, tuple(items), span_of(meta))
        return s.within_bounds(operand, items[0], items[1], span_of(meta))

    not_in = _denied("in_")

    def in_range(self, meta: Any, children: list[Any]) -> s.Predicate:
        return s.within_bounds(children[0], children[1], children[2], span_of(meta))

    not_in_range = _denied("in_range")
    is_distinct = _node(s.distinct_from)
    is_not_distinct = _denied("is_distinct")
    is_null = _node(s.IsNull)
    is_not_null = _denied("is_null")
    not_ = _node(s.Not)
    and_ = _connective_builder(s.And)
    or_ = _connective_builder(s.Or)

    # filters, whose variables `cer_gpu.ceql.scopes` resolves
    def variable_filter(self, meta: Any, children: list[Any]) -> s.VariableFilter:
        self._refuse_aggregates(children[1])
        return s.VariableFilter(children[0], children[1], span_of(meta))

    def qualified_filter(self, meta: Any, children: list[Any]) -> s.Relation:
        attributes = list(s.attributes(children[0]))
        self._refuse_aggregates(children[0])
        if not attributes:
            raise self._syntax_error("expected an attribute of a variable in this filter", span_of(meta), QUALIFIED)
        for attribute in attributes:
            if attribute.aggregate is not None:
                message = "an OVER aggregate is of one event: write it in brackets"
                raise self._syntax_error(message, attribute.span, "x[amount > 3 * AVG(BUY.amount) OVER 30 DAYS]")
        for attribute in attributes:
            if attribute.variable is None:
                message = f"expected the variable of {dotted(attribute.name)!r}"
                raise self._syntax_error(message, attribute.span, QUALIFIED)
        return s.Relation(children[0], (), span_of(meta))

    def _refuse_aggregates(self, predicate: s.Predicate) -> None:
        for node in walk(predicate):
            if isinstance(node, s.Call) and node.function in AGGREGATES:
                message = f"{node.function} is an aggregate: a filter has one only with OVER"
                raise self._syntax_error(message, node.span, _AGGREGATED)

    def _syntax_error(self, message: str, span: s.Span, hint: str | None = None) -> QuerySyntaxError:
        return QuerySyntaxError(message, self.text, *span, hint=hint)

    filter_and = _connective_builder(s.FilterAnd)
    filter_or = _connective_builder(s.FilterOr)

    # formulas
    event = _node(s.EventType)
    negation = _node(s.Negation)
    assign = _node(s.Assign)
    filtered = _node(s.Filtered)
    either = _node(s.Disjunction)

    def filtered_or(self, meta: Any, children: list[Any]) -> s.Filtered:
        before, more = children
        span = (before.filter.span[0], more.span[1])
        return s.Filtered(before.formula, s.joined(s.FilterOr, (before.filter, more), span), span_of(meta))

    sequence = _node(partial(s.Sequence, contiguous=False))
    contiguous_sequence = _node(partial(s.Sequence, contiguous=True))
    next_sequence = _node(partial(s.Sequence, contiguous=False, next=True))

    def sequence_without(self, meta: Any, children: list[Any]) -> s.Sequence:
        return s.Sequence(children[0].formula, children[1], False, span_of(meta), absent=children[0].absent)

    def next_sequence_without(self, meta: Any, children: list[Any]) -> s.Sequence:
        return replace(self.sequence_without(meta, children), next=True)

    def guarded(self, meta: Any, children: list[Any]) -> s.TrailingAbsence:
        return s.TrailingAbsence(children[0], (children[1],), span_of(meta))

    def guarded_again(self, meta: Any, children: list[Any]) -> s.TrailingAbsence:
        guarded, absence = children
        return s.TrailingAbsence(guarded.formula, (*guarded.absent, absence), span_of(meta))

    def leading(self, meta: Any, children: list[Any]) -> tuple[s.Absence, ...]:
        *before, absence = children
        return (*(before[0] if before else ()), absence)

    preceded = _node(s.Preceded)
    absent = _node(s.Absence)
    absent_type = _node(partial(s.Absence, variable=None, filter=None))

    def absence(self, meta: Any, children: list[Any]) -> s.Absence:
        absent, length = children
        lasts = None if length is None else extent(self.text, length)
        rebuilt: s.Absence = replace(absent, span=span_of(meta), length=lasts)
        return rebuilt

    def until(self, meta: Any, children: list[Any]) -> tuple[s.Absence, ...]:
        return (replace(children[0], span=span_of(meta)),)

    def windowed(self, meta: Any, children: list[Any]) -> s.Windowed:
        formula, within = children
        return s.Windowed(formula, extent(self.text, within), span_of(meta))

    def both(self, meta: Any, children: list[Any]) -> s.Conjunction:
        left, _, right = children
        return s.Conjunction(left, right, span_of(meta))

    def iteration(self, meta: Any, children: list[Any]) -> s.Iteration:
        formula, until = children
        return s.Iteration(formula, False, span_of(meta), until=until or ())

    def contiguous_iteration(self, meta: Any, children: list[Any]) -> s.Iteration:
        formula, until = children
        return s.Iteration(formula, True, span_of(meta), until=until or ())

    def repeated(self, meta: Any, children: list[Any]) -> s.Iteration:
        formula, (how, n_min, n_max), until = children
        return s.Iteration(formula, how == ":", span_of(meta), n_min, n_max, how == "->", until or ())

    def quantifier(self, meta: Any, children: list[Any]) -> tuple[str, int, int | None]:
        """Return the operator between repetitions, and the least and greatest number of them."""
        sign, *counts = children
        how = str(sign)[:-1]
        if not counts:
            return how, int(sign == "->+"), 1 if sign == "?" else None
        number, comma, last = counts
        n_min = self._quantity(number)
        n_max = self._quantity(last) if last is not None else None if comma is not None else n_min
        if n_max == 0:
            raise self._syntax_error("a formula that is to be there 0 times is no formula", span_of(meta), _TIMES)
        if n_max is not None and n_max < n_min:
            raise self._syntax_error(f"at least {n_min} and at most {n_max} times is never", span_of(meta), _TIMES)
        return how, n_min, n_max

    def _quantity(self, token: Any) -> int:
        times = exact(self.text, token)
        if times.denominator != 1:
            raise unexpected(self.text, token, "expected how many times, a whole number")
        return int(times)

    # conjunctive queries
    def argument(self, meta: Any, children: list[Any]) -> Argument:
        attribute, comparison, term = children
        if comparison is not None and _compare(str(comparison)) != "=":
            raise unexpected(self.text, comparison, "expected = between an attribute and its term", TERMS)
        if isinstance(term, lark.Token):
            term = self.string(meta, [term])
        return Argument(attribute, term, span_of(meta))

    def query_atom(self, meta: Any, children: list[Any]) -> QueryAtom:
        event, *arguments, alias = children
        return QueryAtom(event, tuple(filter(None, arguments)), alias, span_of(meta))


_COUNT_ALL = "COUNT(*) counts all kept events; of one attribute it is SUM(x.price), AVG(x.price), ..."
_AGGREGATED = (
    "of a match: SELECT and HAVING, as in SELECT x, COUNT(x); of events before: x[COUNT(FAIL) OVER 1 MINUTE > 3]"
)
_OF_LIST = "a test that one element of a list passes: ANY(tags) = 'x', ANY(tags) LIKE '^x', ANY(prices) > 3"
_OVER_HINT = (
    "COUNT(FAIL) OVER 1 MINUTE, AVG(BUY.amount FILTER amount > 0) OVER 30 DAYS, COUNT(DISTINCT R.user) OVER 1 HOUR"
)
_LAGS = "of the event just before in the stream, and of the third before: LAG(price), LAG(price, 3)"
_TIMES = "A{2} is two, A{2,} two or more, A{2,4} two to four, A? none or one"


def _elements(operand: Any) -> Iterator[s.Element]:
    """Yield the elements of lists that are an operand, or within calls of functions there."""
    todo = [operand]
    while todo:
        each = todo.pop()
        if isinstance(each, s.Element):
            yield each
        elif isinstance(each, s.Call) and each.function not in AGGREGATES:
            todo += reversed(each.operands)


def _unquote(token: Any) -> str:
    return str(token)[1:-1].replace("''", "'")
