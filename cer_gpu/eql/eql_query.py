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
from typing import Any, cast

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.grammar import check_nesting
from cer_gpu.ceql.paths import names_of
from cer_gpu.ceql.scopes import one_predicate, resolved
from cer_gpu.ceql.step_keys import StepwiseKeys
from cer_gpu.ceql.traversal import mapped, walk
from cer_gpu.engine.evaluation_options import OverridableDefault
from cer_gpu.eql import syntax as e
from cer_gpu.eql.conditions import EqlConditions, QueryFields
from cer_gpu.eql.keys import KeyedBy, QueryKeys
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

MAX_SAMPLED = 62
"""Most events of a sample: they are the alternatives of one step."""


PENDING_ONLY, EVERY_MATCH = "recent", "all"
"""Selections of a sequence: the most recent pending match of each step, as Elasticsearch, or all matches."""


def lower(
    query: e.EqlSyntax,
    *,
    type_column: str | None,
    schema: pa.Schema | None = None,
    missing_is_null: bool = False,
    selection: str = PENDING_ONLY,
    clock: tuple[str | None, str | None] = (None, None),
) -> ResolvedQuery:
    """Return a query as formula and clauses, over a schema if it is known; `clock` is the time column and its unit.

    Raises
    ------
    QueryError
        When it needs what is not supported, or names what the schema does not have.
    """
    around = QueryFields(query.text, schema, missing_is_null)
    lowering = _Lowering(query, around, type_column, selection, clock)
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

    def __init__(
        self,
        query: e.EqlSyntax,
        around: QueryFields,
        type_column: str | None,
        selection: str,
        clock: tuple[str | None, str | None],
    ) -> None:
        self._query, self._around, self._selection = query, around, selection
        self._clock, self._time_unit = clock
        self._category = None if type_column is None else e.Field(tuple(type_column.split(".")))
        self.types, self._by_test = _type_column(
            around, type_column, any(n.category is not None for n in walk(query) if isinstance(n, e.EventFilter))
        )
        first = {node.names[0] for node in walk(query) if isinstance(node, e.Field)}
        self._terms = [
            replace(term, name=term.name or _free(f"step{n}", first)) for n, term in enumerate(query.terms, 1)
        ]
        self._until_name = _free("until", first)
        self._keys = QueryKeys(query, around, by_steps=query.kind == "sample" or selection == PENDING_ONLY)
        self._has_filters = self._keys.kind is KeyedBy.FILTERS

    def query_syntax(self) -> s.QuerySyntax:
        query = self._query
        strategy = "ALL"
        step_keys = None
        if query.kind == "event":
            formula = self._filtered_event(query.terms[0].event, str(self._terms[0].name))
        elif query.kind == "sample":
            strategy = "RECENT"  # of one step: each event of a filter is a match by itself
            formula, step_keys = self._sample()
        else:
            strategy = "RECENT" if self._selection == PENDING_ONLY else "ALL"
            formula = self._sequence()
            step_keys = self._keys.of_steps(*self._roles())
        return s.QuerySyntax(
            text=query.text,
            select=s.Select(None, strategy),
            formula=formula,
            partition=self._keys.partition,
            within=query.maxspan,
            pipes=query.pipes,
            step_keys=step_keys,
        )

    # ---- keys -----------------------------------------------------------------------------------------------------

    def _roles(self) -> tuple[list[int], list[int]]:
        """Return the terms of the steps, and of the absences between and behind them, by their numbers among the keys.

        They are in the order in which `_sequence` has them.
        """
        steps, absences, waiting = list[int](), list[int](), list[int]()
        until = [] if self._query.until is None else [len(self._terms)]
        for n, term in enumerate(self._terms):
            if term.absent:
                waiting.append(n)
                continue
            for _ in range(term.runs):
                if steps:
                    absences += [*waiting, *until]
                waiting = []
                steps.append(n)
        return steps, [*absences, *waiting]

    def _equal_keys(self, number: int, variable: str) -> list[s.Filter]:
        """Return the filters that a term (by its number among the keys) has the keys of the first step."""
        return self._keys.equal_filters(number, variable, self._first_required, self._anchor)

    @property
    def _first_required(self) -> int:
        """Number of the first step that is not an absence."""
        return next(n for n, term in enumerate(self._terms) if not term.absent)

    # ---- samples --------------------------------------------------------------------------------------------------

    def _sample(self) -> tuple[s.Formula, StepwiseKeys | None]:
        """Return a step whose alternatives are the events of a sample, and the keys of each."""
        query = self._query
        numbers = range(len(self._terms))
        if not self._keys.of_terms[0]:
            raise self._around.error(
                "a sample has keys that all of its events share, and these share none",
                (self._terms[0].span[0], self._terms[-1].span[1]),
                "sample by host.id",
            )
        if len(numbers) > MAX_SAMPLED:
            raise QueryTooLargeError(
                f"a sample has at most {MAX_SAMPLED} filters, and this one {len(numbers):,}",
                query.text,
                *self._terms[MAX_SAMPLED].span,
            )
        events = [self._term_event(n, visible=frozenset()) for n in numbers]
        formula = events[0]
        for event in events[1:]:
            formula = s.Disjunction(formula, event, (formula.span[0], event.span[1]))
        return formula, self._keys.of_steps(numbers, ())

    # ---- steps ----------------------------------------------------------------------------------------------------

    def _sequence(self) -> s.Formula:
        terms = self._terms
        positive = [n for n, term in enumerate(terms) if not term.absent]
        first, last = positive[0], positive[-1]
        until = () if self._query.until is None else (self._until(),)
        visible: frozenset[str] = frozenset()
        formula: s.Formula | None = None
        absent: list[s.Absence] = []
        # missing at both ends: an event after the last step counts with one before the first, maxspan apart at most
        leading = range(first) if last < len(terms) - 1 else ()
        for n, term in enumerate(terms):
            if term.absent:
                length = None
                if n in leading and not self._has_filters:
                    continue
                if n < first:
                    if self._has_filters:
                        raise self._around.error(
                            "an event that must be missing before the first step has the keys that all steps share",
                            term.span,
                            "sequence by field ... ![...] [...]",
                        )
                    length = self._query.maxspan  # the parser requires it
                near = self._near(n, leading, first) if leading and n > last else ()
                absent.append(self._absence(n, visible, length, near))
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
        if term.runs > 1 and self._has_filters:
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
            [] if n == self._first_required and name in (None, f"{term.name}_1") else self._equal_keys(n, variable)
        )
        return self._filtered_event(event, variable, visible, filters, str(term.name))

    @property
    def _anchor(self) -> str:
        """Name of the event of the first step, to which keys are equal."""
        term = self._terms[self._first_required]
        return f"{term.name}_1" if term.runs > 1 and self._has_filters else str(term.name)

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
        tests += self._keys.equal_conditions(len(self._terms), n)
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

    def _near(self, n: int, leading: Sequence[int], first: int) -> list[s.Filter]:
        """Return the filter that an event after the last step is near one before the first that must be missing, too.

        It is at most `maxspan` after the last such event before the first step.
        """
        maxspan, clock = self._query.maxspan, self._clock
        if maxspan is None or clock is None:
            return []  # an error later
        term = self._terms[n]
        which = "FIRST" if self._terms[first].runs > 1 else "EACH"
        apart: list[s.Predicate] = []
        for other in leading:
            span = self._terms[other].span
            absence = self._absence(other, frozenset(), None)
            predicate = None if absence.filter is None else one_predicate(absence.filter)
            event = None if absence.event.name == s.ANY_TYPE else absence.event
            latest = s.OverAggregate("MAX", event, clock, predicate, maxspan, span, itself=False)
            own = s.Attribute(clock, term.span, s.Name(str(term.name), span=term.span))
            earlier = s.Attribute(
                f"`last ![...] {other + 1}`", span, s.Name(str(self._terms[first].name), span=span), which, 0, latest
            )
            apart.append(s.Apart(own, earlier, maxspan, self._time_unit, span))
        return [s.Relation(apart[0] if len(apart) == 1 else s.joined(s.Or, apart, term.span), (), term.span)]

    def _absence(
        self, n: int, visible: frozenset[str], length: s.Within | None, near: Sequence[s.Filter] = ()
    ) -> s.Absence:
        term = self._terms[n]
        variable = str(term.name)
        filters = [*self._equal_keys(n, variable), *near]
        name, filter_ = self._filtered(term.event, variable, visible, filters, variable)
        return s.Absence(name, s.Name(variable, span=name.span), filter_, term.span, length=length)

    def _until(self) -> s.Absence:
        until = self._query.until
        assert until is not None
        keys = self._equal_keys(len(self._terms), self._until_name)
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
        if self._keys.is_impossible:
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
            clock=(self.time_column_of(schema), self.time_unit),
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
