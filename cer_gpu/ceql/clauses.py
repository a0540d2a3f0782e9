"""Clauses of a query, built from a parse tree whose formulas and expressions are nodes already."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar, cast

import lark

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.conjunctive import ConjunctiveQuery
from cer_gpu.ceql.measures import having_condition, measure_expression, named_variables
from cer_gpu.ceql.paths import below
from cer_gpu.ceql.syntax_errors import shortened
from cer_gpu.errors import QuerySyntaxError

MAX_LIMIT = (1 << 63) - 1
"""Greatest LIMIT; a greater number is lowered to it."""

_Method = TypeVar("_Method", bound=Callable[..., Any])
_WITHIN = ("within", "within_each_step", "each_step_alone")


def _with_meta(method: _Method) -> _Method:
    """Let Lark pass the span in the text to a method, before the children."""
    return cast(_Method, lark.v_args(meta=True)(method))


@dataclass(frozen=True)
class NocaseValues:
    """Values of an OVER aggregate whose letter case does not matter."""

    values: Any


class OwnKeysBuilder:
    """Builder of the keys that an OVER aggregate has in place of those of the query."""

    text: str

    @_with_meta
    def own_keys(self, meta: Any, children: list[Any]) -> tuple[tuple[s.OwnKey, ...], ...]:
        """Return the keys; () for one pair of empty brackets."""
        keys = [each for each in children if isinstance(each, tuple)]
        if len(keys) > 1 and not all(keys):
            hint = "PARTITION BY [user], [host]; PARTITION BY [] for the whole stream"
            raise QuerySyntaxError("expected a column in each key", self.text, *span_of(meta), hint=hint)
        return tuple(key for key in keys if key)

    @_with_meta
    def own_key(self, meta: Any, children: list[Any]) -> tuple[s.OwnKey, ...]:
        """Return a key, of alternatives."""
        return tuple(each for each in children if each is not None)

    @_with_meta
    def key_column(self, meta: Any, children: list[Any]) -> s.Name:
        """Return a column of a key."""
        name: s.Name = children[0]
        return name if children[1] is None else replace(name, nocase=True)

    @_with_meta
    def over_values_nocase(self, meta: Any, children: list[Any]) -> NocaseValues:
        """Return the values that an aggregate is of, whose letter case does not matter."""
        return NocaseValues(children[0])

    @_with_meta
    def own_key_part(self, meta: Any, children: list[Any]) -> s.OwnKey:
        """Return a column of a key, and the events whose key it is."""
        return s.OwnKey(*children)

    def over_attribute(self, aggregate: s.OverAggregate) -> s.Attribute:
        """Return the column of an OVER aggregate, whose name is its text."""
        text = self.text[slice(*aggregate.span)].replace("`", " ")
        return s.Attribute(f"`{' '.join(text.split())}`", aggregate.span, aggregate=aggregate)


class QueryBuilder:
    """Builder of the query from its clauses."""

    def __init__(self, text: str) -> None:
        self.text = text

    def build(self, tree: lark.Tree[Any], relations: dict[str, tuple[str, ...]]) -> s.QuerySyntax:
        """Return the query of a parse tree; `relations` has the columns of atoms with arguments by position."""
        clauses: dict[str, Any] = {
            "within" if c.data in _WITHIN else c.data: c for c in tree.children if isinstance(c, lark.Tree)
        }
        partition, consume = clauses.get("partition"), clauses.get("consume")
        keys = tuple(tuple(key.children) for key in partition.children) if partition else ()
        if "head" in clauses:
            _, *head = clauses["head"].children
            conjunctive = ConjunctiveQuery(self.text, list(filter(None, head)), clauses["atoms"].children, relations)
            conjunctive.check_keys(keys)
            own: dict[str, Any] = {
                "head": conjunctive.head,
                "unread": conjunctive.unread,
                "relations": conjunctive.relations,
            }
            select, formula = s.Select(), conjunctive.formula
        else:
            having = clauses["having"].children[0] if "having" in clauses else None
            select, having = self._select_clause(clauses["select"], having)
            own, formula = {"having": having}, clauses["where"].children[0]
        within, each_step = self._lengths(clauses["within"]) if "within" in clauses else (None, None)
        limit, every = self._limit(clauses["limit"]) if "limit" in clauses else (None, None)
        return s.QuerySyntax(
            text=self.text,
            select=select,
            formula=formula,
            streams=tuple(clauses["from"].children) if "from" in clauses else (),
            partition=keys,
            within=within,
            each_step=each_step,
            chooses_first="within" in clauses and clauses["within"].children[0] is not None,
            consume=str(consume.children[0]).upper() if consume else "NONE",
            consume_span=span_of(consume.meta) if consume else (0, 0),
            limit=limit,
            every=every,
            let=tuple(self._let_column(each) for each in clauses["let"].children) if "let" in clauses else (),
            **own,
        )

    def _let_column(self, tree: Any) -> s.LetColumn:
        name, sign, expression = tree.children
        if str(sign) not in ("=", "=="):
            raise unexpected(self.text, sign, "expected = between a name of LET and its expression")
        return s.LetColumn(name.name, expression, name.span)

    def _select_clause(self, tree: lark.Tree[Any], having: s.Predicate | None) -> tuple[s.Select, s.Predicate | None]:
        """Return the clause, and the condition of HAVING, whose variables are among its items."""
        strategy = "ALL"
        items: tuple[s.SelectItem, ...] | None = None
        measures: tuple[s.Measure, ...] = ()
        for child in tree.children:
            assert isinstance(child, lark.Tree)
            if child.data == "strategy":
                strategy = str(child.children[0]).upper()
            elif child.data == "select_none":
                items = ()
            elif child.data == "select_items":
                items = tuple(self._item(item) for item in child.children if item.data == "select_item")
                measures = tuple(self._measure(item) for item in child.children if item.data == "measure")
        if having is not None:
            having = having_condition(having, [measure.name for measure in measures], self.text)
        named = [measure.expression for measure in measures] + ([] if having is None else [having])
        if items is not None and named:
            own = {(item.variable.stream, item.variable.name) for item in items}
            others = [name for name in named_variables(named) if (name.stream, name.name) not in own]
            items += tuple(s.SelectItem(name, None, name.span, written=False) for name in others)
            items = items if items or not measures else None  # COUNT(*) alone
        strategy = "NEXT" if strategy == "NXT" else strategy
        return s.Select(items, strategy, span_of(tree.meta), measures), having

    def _measure(self, tree: Any) -> s.Measure:
        expression, alias = tree.children
        start, end = expression.span
        name = " ".join(self.text[start:end].split()) if alias is None else alias.name
        return s.Measure(measure_expression(expression, self.text), name, span_of(tree.meta))

    def _item(self, tree: Any) -> s.SelectItem:
        variable, *listed = tree.children
        names = tuple(replace(n, name=below(variable.name, n.name) or n.name) for n in listed if n is not None)
        return s.SelectItem(variable, names or None, span_of(tree.meta))

    def _lengths(self, tree: Any) -> tuple[s.Within | None, s.Within | None]:
        """Return the window, and the longest gap at each step."""
        lengths = [extent(self.text, each) for each in tree.children[1:]]
        if tree.data == "each_step_alone":
            return None, lengths[0]
        return lengths[0], lengths[1] if tree.data == "within_each_step" else None

    def _limit(self, tree: Any) -> tuple[int, s.Within | None]:
        """Return how many, and in what length, or None for each end."""
        token, every = tree.children
        limit = exact(self.text, token)
        if limit.denominator != 1:
            raise unexpected(self.text, token, "expected a whole number after LIMIT")
        return min(int(limit), MAX_LIMIT), None if every is None else extent(self.text, every)


# ---- parts of clauses --------------------------------------------------------------------------------------------


def span_of(meta: Any) -> s.Span:
    """Return the span of a part of the parse tree."""
    return (0, 0) if meta.empty else (meta.start_pos, meta.end_pos)


def extent(text: str, tree: Any) -> s.Within:
    """Return a length of the stream: events, time, or the values of an attribute."""
    at = span_of(tree.meta)
    if tree.data == "within_events":
        length = exact(text, tree.children[0])
        if length.denominator != 1:
            raise unexpected(text, tree.children[0], "expected a whole number of events")
        return s.Within("events", length, None, at)
    if tree.data == "within_attribute":
        return s.Within("attribute", exact(text, tree.children[0]), tree.children[1], at)
    return s.Within("time", tree.children[0], None, at)


def exact(query: str, token: Any) -> Fraction:
    """Return the exact value of a number; refuse one that would take long to compute."""
    text = str(token)
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > 400 or len(exponent) > 4 or float(text) == math.inf:
        raise unexpected(query, token, "expected a number of at most 400 digits, and less than 1.8e308")
    return Fraction(text)


def unexpected(query: str, token: Any, message: str, hint: str | None = None) -> QuerySyntaxError:
    """Return the error of a token where something else is expected."""
    end = token.start_pos + len(token)
    return QuerySyntaxError(f"{message}, found {shortened(str(token))!r}", query, token.start_pos, end, hint)
