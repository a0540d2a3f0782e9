"""Columns of LET: computed from each event, by name, before anything else.

A filter that reads a column of LET has its expression in its place, so that each way to evaluate predicates has it.
Keys, windows, SELECT, measures, LAG, and the values of aggregates OVER read columns by name: for them the column is
made from the events, under a name of its own (`LetColumn.column`).
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, TypeVar

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import AGGREGATES
from cer_gpu.ceql.paths import LET_MARK
from cer_gpu.ceql.traversal import children, fold, mapped, walk, with_children
from cer_gpu.errors import QuerySyntaxError

_HINT = (
    "LET computes from one event: LET day = date(ts), burst = COUNT(FAIL) OVER 1 MINUTE, change = price - LAG(price)"
)

_N = TypeVar("_N")


def with_let(query: s.QuerySyntax) -> s.QuerySyntax:
    """Return a query whose filters have the expressions of LET in the place of their names.

    Raises
    ------
    QuerySyntaxError
        When a name is given twice, or an expression is none over one event.
    """
    return _Rewriting(query).query() if query.let else query


class _Rewriting:
    """Rewriting of one query; `query` is called once."""

    def __init__(self, query: s.QuerySyntax) -> None:
        self._query = query
        self._columns: dict[str, s.LetColumn] = {}
        self._needs: dict[str, set[str]] = {}  # columns that must be made for an expression, by its name
        self._needed: set[str] = set()  # columns that what is being rewritten needs
        self._read: set[str] = set()  # columns that anything reads
        for column in query.let:
            self._check(column)
            self._needed = set()
            expression = self._in_filter(column.expression)
            self._needs[column.name] = self._needed
            self._columns[column.name] = replace(
                column, expression=expression, column=self._column_name(column.name, expression)
            )

    def query(self) -> s.QuerySyntax:
        """Return the query."""
        query, self._needed = self._query, set()
        partition = tuple(tuple(map(self._name, names)) for names in query.partition)
        select = query.select
        items = select.items and tuple(
            replace(item, attributes=item.attributes and tuple(map(self._name, item.attributes)))
            for item in select.items
        )
        measures = tuple(replace(each, expression=self._by_name(each.expression)) for each in select.measures)
        rewritten = replace(
            query,
            select=replace(select, items=items, measures=measures),
            formula=self._in_formula(query.formula),
            partition=partition,
            within=self._by_length(query.within),
            each_step=self._by_length(query.each_step),
            every=self._by_length(query.every),
            having=None if query.having is None else self._by_name(query.having),
        )
        columns = [
            replace(each, is_made=each.name in self._needed, is_read=each.name in self._read)
            for each in self._columns.values()
        ]
        return replace(rewritten, let=tuple(columns))

    def _check(self, column: s.LetColumn) -> None:
        text = self._query.text
        if column.name in self._columns:
            raise QuerySyntaxError(f"LET names {column.name!r} twice", text, *column.span)
        later = {each.name for each in self._query.let} - self._columns.keys()
        reads = False
        for node in walk(column.expression):
            if isinstance(node, s.Attribute):
                reads = True
                if node.variable is not None:
                    raise QuerySyntaxError("LET reads one event, and no variable", text, *node.span, hint=_HINT)
                if node.aggregate is None and node.name in later:
                    self._refuse_later(column, node)
            elif isinstance(node, s.Call) and node.function in AGGREGATES:
                hint = f"say over what: {node.function}(...) OVER 1 HOUR"
                raise QuerySyntaxError(f"{node.function} aggregates several events", text, *node.span, hint=hint)
            elif isinstance(node, s.Element):
                raise QuerySyntaxError("ANY is for filters, and LET has values", text, *node.span, hint=_HINT)
        if not reads:
            raise QuerySyntaxError(
                f"LET {column.name} reads no column of the events", text, *column.expression.span, hint=_HINT
            )

    def _refuse_later(self, column: s.LetColumn, read: s.Attribute) -> None:
        message, hint = f"LET reads {read.name!r} before it is defined", "a column of LET may read those before it"
        if read.name == column.name:
            message, hint = f"LET {column.name} reads itself", "give it a name that the events do not have"
        raise QuerySyntaxError(message, self._query.text, *read.span, hint=hint)

    def _column_name(self, name: str, expression: s.Expression) -> str:
        looks_back = any(isinstance(node, s.Attribute) and node.looks_back for node in walk(expression))
        # what looks back depends on the keys of the query; columns that it reads are distinguished by their own names
        context = repr(self._query.partition) if looks_back else ""
        return f"{name}{LET_MARK}{hashlib.sha256(repr((expression, context)).encode()).hexdigest()[:12]}"

    # ---- in the place of the name, or by name ----------------------------------------------------------------

    def _in_filter(self, node: Any) -> Any:
        """Return a predicate or an expression with expressions in the place of names."""

        def combine(node: Any, below: list[Any]) -> Any:
            if isinstance(node, s.Attribute):
                return self._attribute(node)
            if isinstance(node, s.Element) and node.list.name in self._columns:
                return replace(node, list=replace(node.list, name=self._column(node.list.name)))
            return with_children(node, below)

        return fold(node, combine, children)

    def _attribute(self, attribute: s.Attribute) -> s.Expression:
        if attribute.aggregate is not None:
            return replace(attribute, aggregate=self._aggregate(attribute.aggregate))
        column = self._columns.get(attribute.name)
        if column is None:
            return attribute
        self._read.add(attribute.name)
        if attribute.lag:
            return replace(attribute, name=self._column(attribute.name))
        self._needed |= self._needs[attribute.name]
        if attribute.variable is None:
            return column.expression

        def of_event(inner: s.Attribute) -> s.Attribute:
            return replace(inner, variable=attribute.variable, event=attribute.event)

        expression: s.Expression = mapped(column.expression, s.Attribute, of_event)
        return expression

    def _aggregate(self, aggregate: s.OverAggregate) -> s.OverAggregate:
        def predicate(node: s.Predicate | None) -> Any:
            return None if node is None else self._in_filter(node)

        keys = aggregate.keys and tuple(
            tuple(s.OwnKey(self._name(part.name), predicate(part.predicate)) for part in key) for key in aggregate.keys
        )
        return replace(
            aggregate,
            attribute=None if aggregate.attribute is None else self._column(aggregate.attribute),
            predicate=predicate(aggregate.predicate),
            condition=predicate(aggregate.condition),
            keys=keys,
            over=self._by_length(aggregate.over),
        )

    def _by_name(self, node: _N) -> _N:
        """Return a measure, or the condition of HAVING, that reads columns by name."""

        def renamed(attribute: s.Attribute) -> s.Attribute:
            return attribute if attribute.variable is None else replace(attribute, name=self._column(attribute.name))

        by_name: _N = mapped(node, s.Attribute, renamed)
        return by_name

    def _in_formula(self, formula: s.Formula) -> s.Formula:
        def combine(node: Any, below: list[Any]) -> Any:
            if isinstance(node, s.Attribute):
                return self._attribute(node)
            node = with_children(node, below)
            if isinstance(node, s.Windowed):
                return replace(node, within=self._by_length(node.within))
            if isinstance(node, s.Absence) and node.length is not None:
                return replace(node, length=self._by_length(node.length))
            return node

        rewritten: s.Formula = fold(formula, combine, children)
        return rewritten

    def _by_length(self, within: _N) -> _N:
        """Return a length, or None, whose attribute is a column."""
        if not isinstance(within, s.Within) or within.attribute is None:
            return within
        return replace(within, attribute=self._name(within.attribute))

    def _name(self, name: s.Name) -> s.Name:
        return replace(name, name=self._column(name.name)) if name.name in self._columns else name

    def _column(self, name: str) -> str:
        """Return the column to read for a name, which is made if it is one of LET."""
        if name not in self._columns:
            return name
        self._read.add(name)
        self._needed |= {name, *self._needs[name]}
        return self._columns[name].column
