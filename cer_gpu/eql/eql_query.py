"""Queries in EQL: lowered to the formulas and clauses of CEQL, and compiled as those are.

A sequence is a chain of steps for SELECT RECENT.  The fields of ``by`` that all steps share are PARTITION BY; where
steps have different ones, they are filters of equal values.  ``until``, and an event that must be missing, are absences
between steps, and ``maxspan`` is WITHIN.  A query is compiled once more when the schema of its events is
known.

Source: docs/reference/eql.md, which names that of each rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, islice
from typing import Any, cast

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.grammar import check_nesting
from cer_gpu.ceql.one_event import NameTest, may_be_one, name_test
from cer_gpu.ceql.paths import names_of
from cer_gpu.ceql.scopes import resolved
from cer_gpu.ceql.traversal import mapped, walk
from cer_gpu.engine.evaluation_options import OverridableDefault
from cer_gpu.eql import syntax as e
from cer_gpu.eql.conditions import EqlConditions, QueryFields
from cer_gpu.eql.parser import parse_eql
from cer_gpu.eql.syntax import EqlSyntax
from cer_gpu.errors import CerError, OptionError, QueryError, QueryTooLargeError
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.query import check_time_unit
from cer_gpu.resolution.fields import find_field
from cer_gpu.resolution.resolved_query import (
    AS_ERROR,
    AS_NULL,
    ParsedQuery,
    ResolvedQuery,
    SchemaDependentQuery,
    check_missing_fields,
    compiled_over,
)

MAX_SAMPLED = 12
"""Most events of a sample if some may be one: it has an atom for each set of them, and an automaton has a limit."""
_EVER = Fraction(2**62)
"""More events than any stream has."""


def sampled(
    events: Sequence[s.Formula], partition: tuple[tuple[s.Name, ...], ...], text: str
) -> tuple[s.Formula, dict[str, Any]]:
    """Return the formula of a sample, whose filters are not resolved yet, and the clauses that go with it.

    Parameters
    ----------
    events
        For each filter its event, ``R AS x [FILTER ...]``, each with its own variable.
    partition
        Keys that all of them share.
    text
        The query, for messages.

    Raises
    ------
    QueryError
        When there are none.
    QueryTooLargeError
        When there are more than `MAX_SAMPLED` events, and some may be one.
    """
    span = events[0].span[0], events[-1].span[1]
    if not partition:
        raise QueryError(
            "a sample has keys that all of its events share, and these share none",
            text,
            *span,
            hint="sample by host.id",
        )
    overlapping = (pair for pair in combinations(events, 2) if may_be_one((_name_test(event), False) for event in pair))
    pairs = list(islice(overlapping, 1) if len(events) > MAX_SAMPLED else overlapping)
    if pairs and len(events) > MAX_SAMPLED:
        raise QueryTooLargeError(
            f"a sample whose filters may take the same event has at most {MAX_SAMPLED}, and this one {len(events):,}",
            text,
            *events[MAX_SAMPLED].span,
            hint="filters of different categories may be more",
        )
    formula = events[0]
    for event in events[1:]:
        formula = s.Conjunction(formula, event, span)
    apart = [_different(*map(_variable, pair)) for pair in pairs]
    if apart:
        formula = s.Filtered(formula, apart[0] if len(apart) == 1 else s.joined(s.FilterAnd, apart, span), span)
    return formula, {"limit": 1, "every": s.Within("events", _EVER, None, span)}


def _assigned(event: s.Formula) -> s.Assign:
    while isinstance(event, s.Filtered):
        event = event.formula
    assert isinstance(event, s.Assign)
    return event


def _variable(event: s.Formula) -> s.Name:
    return _assigned(event).variable


def _name_test(event: s.Formula) -> NameTest:
    of_type = _assigned(event).formula
    assert isinstance(of_type, s.EventType)
    return name_test(of_type.event)


def _different(one: s.Name, other: s.Name) -> s.Filter:
    """Return the filter that the events of two variables differ."""
    span = other.span
    x, y = (s.Attribute(s.COUNTED_POSITION, span, name) for name in (one, other))
    at_most = s.Within("events", Fraction(0), None, span)
    apart = [s.Not(s.Apart(later, earlier, at_most, None, span), span) for later, earlier in ((x, y), (y, x))]
    return s.Relation(s.joined(s.Or, apart, span), (), span)


PENDING_ONLY, EVERY_MATCH = "recent", "all"
"""Selections of a sequence: the most recent pending match of each step, as Elasticsearch, or all matches."""


def lower(
    query: e.EqlSyntax,
    *,
    type_column: str | None,
    schema: pa.Schema | None = None,
    missing_is_null: bool = False,
    selection: str = PENDING_ONLY,
) -> ResolvedQuery:
    """Return a query as formula and clauses, over a schema if it is known.

    Raises
    ------
    QueryError
        When it needs what is not supported, or names what the schema does not have.
    """
    around = QueryFields(query.text, schema, missing_is_null)
    lowering = _Lowering(query, around, type_column, selection)
    syntax = lowering.query_syntax()
    check_nesting(syntax.formula, query.text)
    formula = resolved(syntax.formula)
    return ResolvedQuery(
        replace(syntax, formula=formula), lowering.types, around.resolved, knows_schema=schema is not None
    )


class _Lowering:
    """The steps of one query.

    Attributes
    ----------
    types : str or None
        As `cer_gpu.resolution.resolved_query.ResolvedQuery.type_column`: None, too, if it is a list, which the
        events' tests read.
    """

    def __init__(self, query: e.EqlSyntax, around: QueryFields, type_column: str | None, selection: str) -> None:
        self._query, self._around, self._selection = query, around, selection
        self._category = None if type_column is None else e.Field(tuple(type_column.split(".")))
        self.types, self._by_test = _type_column(
            around, type_column, any(n.category is not None for n in walk(query) if isinstance(n, e.EventFilter))
        )
        first = {node.names[0] for node in walk(query) if isinstance(node, e.Field)}
        self._terms = [
            replace(term, name=term.name or _free(f"step{n}", first)) for n, term in enumerate(query.terms, 1)
        ]
        self._until_name = _free("until", first)
        self._keys = self._all_keys()
        self._shared = all(keys == self._keys[0] for keys in self._keys)
        self._impossible = False  # a key is missing

    def query_syntax(self) -> s.QuerySyntax:
        query = self._query
        partition = self._partition() if query.kind != "event" else ()
        strategy = "ALL"
        own: dict[str, Any] = {}
        if query.kind == "event":
            formula = self._filtered_event(query.terms[0].event, str(self._terms[0].name))
        elif query.kind == "sample":
            events = [self._term_event(n, visible=frozenset()) for n in range(len(self._terms))]
            formula, own = sampled(events, partition, query.text)
        else:
            strategy = "RECENT" if self._selection == PENDING_ONLY else "ALL"
            formula = self._sequence()
        return s.QuerySyntax(
            text=query.text,
            select=s.Select(None, strategy),
            formula=formula,
            partition=partition,
            within=query.maxspan,
            pipes=query.pipes,
            **own,
        )

    # ---- keys -----------------------------------------------------------------------------------------------------

    def _all_keys(self) -> list[tuple[e.Field, ...]]:
        """Return the keys of each term, of until last, those before the terms first."""
        query = self._query
        terms = [*self._terms, *([] if query.until is None else [query.until])]
        keys = [(*query.keys, *term.keys) for term in terms]
        for term, own in zip(terms, keys, strict=True):
            if len(own) != len(keys[0]):
                raise self._around.error(
                    f"each step has as many keys as the first, {len(keys[0])}, and this one has {len(own)}", term.span
                )
        return keys

    def _partition(self) -> tuple[tuple[s.Name, ...], ...]:
        """Return the keys that all terms share."""
        if not self._shared:
            return ()
        partition: dict[str, s.Name] = {}
        for key in self._keys[0]:
            attribute = self._key_column(key)
            if attribute is not None:  # a key may come before the terms and at each of them
                nullable = key.optional and (attribute not in partition or partition[attribute].nullable)
                partition[attribute] = s.Name(attribute, span=key.span, nullable=nullable)
        return tuple((name,) for name in partition.values())

    def _key_column(self, key: e.Field) -> str | None:
        """Return the column of a key, or None if it is missing, and so NULL for all events."""
        place = self._around.find(key)
        if place is None:
            self._impossible |= not key.optional
            return None
        if place.in_list or isinstance(place.type, pa.StructType):
            message = f"a key is one value, and {key.name!r} is {'a list' if place.in_list else 'no value'}"
            raise self._around.error(message, key.span)
        return place.attribute

    def _equal_keys(self, number: int, variable: str, anchor: str) -> list[s.Filter]:
        """Return the filters that a term (by its number among the keys) has the keys of the first step."""
        if self._shared:
            return []
        filters: list[s.Filter] = []
        for own, first in zip(self._keys[number], self._keys[self._first_required], strict=True):
            if own.optional or first.optional:
                raise self._around.error(
                    "keys with ? are for fields that all steps share", own.span, "sequence by ?field [...] [...]"
                )
            mine, others = self._key_column(own), self._key_column(first)
            if mine is None or others is None:
                continue
            equal = s.Comparison(
                "=",
                s.Attribute(mine, own.span, s.Name(variable, span=own.span)),
                s.Attribute(others, first.span, s.Name(anchor, span=first.span)),
                own.span,
            )
            filters.append(s.Relation(equal, (), own.span))
        return filters

    @property
    def _first_required(self) -> int:
        """Number of the first step that is not an absence."""
        return next(n for n, term in enumerate(self._terms) if not term.absent)

    # ---- steps ----------------------------------------------------------------------------------------------------

    def _sequence(self) -> s.Formula:
        terms = self._terms
        positive = [n for n, term in enumerate(terms) if not term.absent]
        first, last = positive[0], positive[-1]
        until = () if self._query.until is None else (self._until(),)
        visible: frozenset[str] = frozenset()
        formula: s.Formula | None = None
        absent: list[s.Absence] = []
        for n, term in enumerate(terms):
            if term.absent:
                length = None
                if n < first:
                    if not self._shared:
                        raise self._around.error(
                            "an event that must be missing before the first step has the keys that all steps share",
                            term.span,
                            "sequence by field ... ![...] [...]",
                        )
                    length = self._query.maxspan  # the parser requires it
                absent.append(self._absence(n, visible, length))
                continue
            for step in self._runs(n, visible, is_last=n == last, until=until):
                if formula is None:
                    formula = s.Preceded(tuple(absent), step, step.span) if absent else step
                else:
                    span = (formula.span[0], step.span[1])
                    formula = s.Sequence(formula, step, False, span, absent=(*absent, *until))
                absent = []
            visible |= {str(term.name)}
        assert formula is not None
        if absent:
            formula = s.TrailingAbsence(formula, tuple(absent), (formula.span[0], absent[-1].span[1]))
        return formula

    def _runs(self, n: int, visible: frozenset[str], *, is_last: bool, until: tuple[s.Absence, ...]) -> list[s.Formula]:
        """Return a step as often as it runs; where until forbids more before the last event, that is separate."""
        term = self._terms[n]
        if term.runs > 1 and not self._shared:
            name = str(term.name)
            return [
                self._term_event(n, visible, f"{name}_{i}", forbid=not is_last or i < term.runs)
                for i in range(1, term.runs + 1)
            ]
        steps = []
        n_forbidden = 0 if not until else term.runs - is_last
        for runs, forbid in ((n_forbidden, True), (term.runs - n_forbidden, False)):
            if runs:
                step = self._term_event(n, visible, forbid=forbid)
                if runs > 1:
                    step = s.Iteration(step, False, term.span, runs, runs, until=until)
                steps.append(step)
        return steps

    def _term_event(
        self, n: int, visible: frozenset[str], name: str | None = None, *, forbid: bool = False
    ) -> s.Formula:
        """Return the event of a term; with `forbid`, one that does not match until."""
        term = self._terms[n]
        variable = name or str(term.name)
        event = term.event
        if forbid and self._query.until is not None:
            event = self._not_until(event, n)
        filters = (
            []
            if n == self._first_required and name in (None, f"{term.name}_1")
            else self._equal_keys(n, variable, self._anchor)
        )
        return self._filtered_event(event, variable, visible, filters, str(term.name))

    @property
    def _anchor(self) -> str:
        """Name of the event of the first step, to which keys are equal."""
        term = self._terms[self._first_required]
        return f"{term.name}_1" if term.runs > 1 and not self._shared else str(term.name)

    def _not_until(self, event: e.EventFilter, n: int) -> e.EventFilter:
        """Exclude events that also match `until`: they would end the sequence they extend."""
        until = self._query.until
        assert until is not None
        category = until.event.category
        if category is not None and event.category not in (None, category) and not self._by_test:
            return event  # an event has one category, unless these are lists
        tests = [until.event.condition]
        if category not in (None, event.category) and self._category is not None:
            tests.append(e.Comparison("==", self._category, e.ConstantValue(category)))
        if not self._shared:
            tests += [e.Comparison("==", a, b) for a, b in zip(self._keys[-1], self._keys[n], strict=True) if a != b]
        both = tests[0] if len(tests) == 1 else e.And(tuple(tests), until.span)
        condition = e.And((event.condition, e.NotCondition(both, until.span)), event.condition.span)
        return replace(event, condition=condition)

    def _filtered_event(
        self,
        event: e.EventFilter,
        variable: str,
        visible: frozenset[str] = frozenset(),
        filters: Sequence[s.Filter] = (),
        own: str = "",
    ) -> s.Formula:
        name, filter_ = self._filtered(event, variable, visible, filters, own)
        owner = s.Name(variable, span=event.category_span)
        formula: s.Formula = s.Assign(s.EventType(name, name.span, defines=False), owner, event.span)
        return formula if filter_ is None else s.Filtered(formula, filter_, event.span)

    def _absence(self, n: int, visible: frozenset[str], length: s.Within | None) -> s.Absence:
        term = self._terms[n]
        variable = str(term.name)
        name, filter_ = self._filtered(
            term.event, variable, visible, self._equal_keys(n, variable, self._anchor), variable
        )
        return s.Absence(name, s.Name(variable, span=name.span), filter_, term.span, length=length)

    def _until(self) -> s.Absence:
        until = self._query.until
        assert until is not None
        keys = self._equal_keys(len(self._terms), self._until_name, self._anchor)
        name, filter_ = self._filtered(until.event, self._until_name, frozenset(), keys, "")
        return s.Absence(name, s.Name(self._until_name, span=name.span), filter_, until.span)

    def _filtered(
        self, event: e.EventFilter, variable: str, visible: frozenset[str], filters: Sequence[s.Filter], own: str
    ) -> tuple[s.Name, s.Filter | None]:
        """Return the type of an event, and its filter."""
        if event.category is not None and self._by_test and self._category is not None:
            test = e.Comparison("==", self._category, e.ConstantValue(event.category))
            event = replace(event, category=None, condition=e.And((test, event.condition), event.condition.span))
        predicate = EqlConditions(self._around, visible | {own} if own else visible, own).predicate(event.condition)
        if self._impossible:
            predicate = s.SATISFIED_BY_NONE
        name = s.Name(s.ANY_TYPE if event.category is None else event.category, span=event.category_span)
        all_of = list(filters)
        owner = s.Name(variable, span=event.category_span)
        span = event.condition.span
        read = [] if predicate is None else list(s.attributes(predicate))
        # a path names its event: its first name may be that of another one
        if predicate is not None and any(a.variable is not None or len(names_of(a.name)) > 1 for a in read):
            own_event = mapped(
                predicate, s.Attribute, lambda a: a if a.variable is not None else replace(a, variable=owner)
            )
            all_of.insert(0, s.Relation(own_event, (), span))
        elif predicate is not None:
            all_of.insert(0, s.VariableFilter(owner, predicate, span))
        if not all_of:
            return name, None
        return name, all_of[0] if len(all_of) == 1 else s.joined(s.FilterAnd, all_of, span)


def _free(name: str, taken: set[str]) -> str:
    """Return a name for an event that begins no field, as it would be read as that field."""
    while name in taken:
        name += "_"
    return name


def _type_column(around: QueryFields, type_column: str | None, names_category: bool) -> tuple[str | None, bool]:
    """Return the column of categories, and True if it is a list, so that the events' tests read it.

    Events need none if the query names no category.
    """
    if around.schema is None or type_column is None:
        return type_column, False
    for names in ((type_column,), tuple(type_column.split("."))):
        place = find_field(around.schema, names)
        if place is not None:
            around.resolved[names] = place
            return (None, True) if place.in_list else (place.attribute, False)
    return (type_column if names_category else None), False


@dataclass(frozen=True)
class ParsedEql(ParsedQuery):
    """A parsed query in EQL, and the options by which it is compiled.

    Attributes
    ----------
    written : cer_gpu.eql.syntax.EqlSyntax
    missing_fields : str
    selection : str
    """

    written: EqlSyntax
    missing_fields: str
    selection: str

    def resolve(self, schema: pa.Schema | None) -> ResolvedQuery:
        """Return the query over a schema."""
        return lower(
            self.written,
            type_column=self.type_column,
            schema=schema,
            missing_is_null=self.missing_fields == AS_NULL,
            selection=self.selection,
        )

    def planned(
        self, resolved: ResolvedQuery, schema: pa.Schema | None, *, tested: bool = True
    ) -> tuple[LogicalPlan | None, Sequence[str], list[QueryError]]:
        """Return the plan and its notes, or the errors of the query; not `tested`: without those against the schema."""
        maxspan = self.written.maxspan
        if maxspan is not None and self.time_column_of(schema) is None:
            column = (
                "there is no time column" if self.time_column is None else f"the events have no {self.time_column!r}"
            )
            error = QueryError(
                f"maxspan needs the times of events, and {column}",
                self.written.text,
                *maxspan.span,
                hint="name their column: time_column=... (--time-column)",
            )
            return None, (), [error]
        return super().planned(resolved, schema, tested=tested)


def analyse(
    text: str,
    *,
    type_column: str | None = "event.category",
    time_column: str | None = OverridableDefault("@timestamp"),
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
    missing_fields: str = AS_ERROR,
    selection: str = PENDING_ONLY,
    relations: Any = None,
) -> tuple[EqlQuery | None, Sequence[CerError]]:
    """Compile a query in EQL and return it, or its errors; parameters are those of `cer_gpu.compile`."""
    check_time_unit(time_unit)
    check_missing_fields(missing_fields)
    if selection not in (PENDING_ONLY, EVERY_MATCH):
        raise OptionError(f"selection must be one of {PENDING_ONLY!r}, {EVERY_MATCH!r}, got {selection!r}")
    try:
        written = parse_eql(text)
    except QueryError as error:
        return None, [error]
    source = ParsedEql(type_column, time_column, time_unit, written, missing_fields, selection)
    query, errors = compiled_over(EqlQuery, source, schema)
    return cast(EqlQuery | None, query), errors


class EqlQuery(SchemaDependentQuery):
    """A compiled query in EQL, made by `cer_gpu.compile`; used as a `cer_gpu.Query` is.

    Attributes
    ----------
    language : str
        "EQL".
    missing_fields : tuple of str
        Fields that the events do not have, and that are null; () until a schema is known.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> query = cer_gpu.compile('process where process.name : "CMD*"')
    >>> events = pa.table({"event.category": ["process", "file"], "process.name": ["cmd.exe", "cmd.exe"]})
    >>> query.evaluate(events, output="ends").to_pylist()
    [{'end': 0}]
    """

    language = "EQL"
