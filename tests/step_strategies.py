"""Hypothesis strategies for windows within a pattern: local windows, EACH STEP, UNTIL, and absences with FOR.

They are put into the formulas of `rest_strategies`, whose queries have all other clauses.
"""

from __future__ import annotations

from dataclasses import replace

import reference as ref
import rest_strategies as rest
import strategies as s
from hypothesis import strategies as st

SHAPES = ("windows", "steps", "until", "all")


@st.composite
def lengths(draw, most=4):
    """Draw the length of a window of any kind."""
    n = draw(st.integers(0, most))
    return draw(st.sampled_from([("events", n), ("time", 1000 * n), ("attribute", n, s.ORDER_COLUMN)]))


def may_have_until(formula):
    """Return True for an iteration between whose repetitions events may lie."""
    match formula:
        case ref.Plus(body):
            return not ref.may_be_empty(body)
        case ref.Times(body, _, most, joint):
            return joint != ":" and (most is None or most > 1) and not ref.may_be_empty(body)
    return False


@st.composite
def windowed(draw, formula, scope=None, related=False, shape="all"):
    """Draw the formula with local windows around some of its parts, and UNTIL behind some of its iterations."""
    scope = rest.Scope() if scope is None else scope

    def part(of, inside=scope):
        return draw(windowed(of, inside, related, shape))

    match formula:
        case ref.EventType() | ref.Not():
            return formula
        case ref.Next(left):
            formula = replace(formula, left=part(left))
        case ref.Seq(left, right) | ref.Contig(left, right):
            formula = replace(formula, left=part(left), right=part(right, scope.behind(left)))
        case ref.Or(left, right) | ref.All(left, right):
            formula = replace(formula, left=part(left), right=part(right))
        case ref.As(body) | ref.Filter(body) | ref.ContigPlus(body) | ref.Plus(body):
            formula = replace(formula, body=part(body))
        case ref.Times(body, joint=joint) if joint != "->":
            formula = replace(formula, body=part(body))
    if may_have_until(formula) and shape in ("until", "all") and draw(st.booleans()):
        formula = replace(formula, until=(draw(rest.absent_events(scope.behind(formula.body), related)),))
    if shape in ("windows", "all") and draw(st.integers(0, 2)) == 2:
        formula = ref.Windowed(formula, draw(lengths()))
    return formula


@st.composite
def iterations(draw, related=False):
    """Draw a pattern with an iteration of some events."""
    body = draw(rest.formulas(2, 0, related, conjunctions=False))
    if ref.may_be_empty(body):
        body = ref.Seq(ref.EventType("A"), body)
    iteration = ref.Times(body, *draw(rest.bounds)) if draw(st.booleans()) else ref.Plus(body)
    if ref.may_be_empty(iteration) or draw(st.booleans()):
        pair = [iteration, draw(rest.leaves())]
        iteration = ref.Seq(*(pair if draw(st.booleans()) else pair[::-1]))
    return iteration


def formulas_of_kinds(related=False):
    """Return a strategy for formulas of every kind."""
    return st.one_of(rest.related if related else rest.plain, rest.with_all, rest.chains(), iterations(related))


@st.composite
def windowed_formulas(draw, shape="all", related=False):
    """Draw a formula of any kind with local windows and UNTIL."""
    return draw(windowed(draw(formulas_of_kinds(related)), related=related, shape=shape))


@st.composite
def queries(draw, shape="all", related=False, choosing=False, **kinds):
    """Draw a query with windows within its pattern."""
    query = draw(s.full_queries(formula=formulas_of_kinds(related), choosing=choosing, **kinds))
    query = replace(query, formula=draw(windowed(query.formula, related=related, shape=shape)))
    if shape in ("steps", "all") and draw(st.integers(0, 3)) > 0:
        query = replace(query, each_step=draw(lengths(3)))
        if draw(st.booleans()):
            query = replace(query, within=None)
    return query


@st.composite
def long_cases(draw, related=False, longest=250):
    """Draw a query with a narrow window, windows within its pattern, and a long stream."""
    query, stream = draw(rest.long_cases(formula=windowed_formulas(related=related), longest=longest))
    if draw(st.booleans()):
        query = replace(query, each_step=draw(lengths(2)), chooses_first=False)
    missing = ref.attributes(query) - set(stream[0])
    if s.ORDER_COLUMN in missing:
        stream = [{**event, s.ORDER_COLUMN: k // 2} for k, event in enumerate(stream)]
    return query, stream


def cases(shape="all", related=False, **kinds):
    """Return a strategy for queries with windows within their patterns, each with a stream."""
    return rest.full_cases(queries=queries(shape, related, **kinds))


@st.composite
def lasting_queries(draw, related=False, choosing=False):
    """Draw queries with an absence FOR a time at their end."""
    query = draw(rest.trailing_queries(related, choosing))
    length, within = draw(lengths()), draw(st.none() | lengths(6))
    each_step = draw(st.none() | st.none() | lengths(3))

    def lasting(formula):
        if isinstance(formula, ref.Trailing):
            body = formula.body
            if draw(st.integers(0, 3)) == 3:
                body = ref.EventType(draw(rest.types))
                if {x for event in formula.absent for x in ref.outer_variables(event)} - {body.name}:
                    body = formula.body
            if draw(st.integers(0, 2)) == 2:
                body = draw(windowed(body))
            return replace(formula, body=body, length=length)
        return replace(formula, body=lasting(formula.body))

    formula = lasting(query.formula)
    known = ref.defined_variables(formula)
    select = query.select
    if isinstance(select, tuple) and not {*select} <= known:
        select = "*"
    if isinstance(formula, ref.Filter) and not _reads_known(formula, known):
        formula = formula.body
    return replace(query, formula=formula, within=within, each_step=each_step, select=select)


def _reads_known(formula, known):
    """Return True if a filter names variables of its formula alone."""
    return all(node.variable in known for node in ref.descendants(formula.condition) if isinstance(node, ref.Unary))


def lasting_cases(related=False, choosing=False):
    """Return a strategy for queries with an absence FOR a time at their end, each with a stream."""
    return rest.full_cases(queries=lasting_queries(related, choosing))
