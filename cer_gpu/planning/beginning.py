"""Tests of the event that a formula begins with: what absences counted back (``!(R) FOR d ; f``) stand for.

``!(R) FOR d ; f`` holds for the valuations of f whose first event is clear of R: no R lies strictly before it and at
most d before it.  That is a test of one event, so that it moves to the atoms that may be the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cer_gpu.automaton.normal_form import Atom, Either, NormalForm, Related, Repeat, Then, Trailing
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import NO_EVENT_WITHIN
from cer_gpu.ceql.scopes import one_predicate


def preceded(formula: NormalForm, absences: Sequence[s.Absence]) -> NormalForm:
    """Return the valuations of a formula before whose first event none of the absent ones lies."""
    tests = [_clear_of(absence) for absence in absences]
    return beginning_with(formula, tests[0] if len(tests) == 1 else s.joined(s.And, tests, absences[0].span))


def _clear_of(absence: s.Absence) -> s.Comparison:
    assert absence.length is not None
    predicate = None if absence.filter is None else one_predicate(absence.filter)
    event = None if absence.event.name == s.ANY_TYPE else absence.event
    past = s.OverAggregate(NO_EVENT_WITHIN, event, None, predicate, absence.length, absence.span)
    column = s.Attribute(f"`!{absence.event.name}`", absence.span, past=past)
    return s.Comparison("=", column, s.Literal(True, "", absence.span), absence.span)


def beginning_with(formula: NormalForm, test: s.Predicate) -> NormalForm:
    """Return the valuations of a formula whose first event passes a test.

    A sequence whose first part may be missing becomes an alternative for each case; of an iteration, the first one
    stands by itself.  A first event that is negated, and conjunctions, are refused before.
    """
    match formula:
        case Atom():
            assert not formula.negated
            own = formula.guard.predicate
            predicate = test if own is None else s.joined(s.And, [own, test])
            return replace(formula, guard=replace(formula.guard, predicate=predicate))
        case Either():
            return Either(beginning_with(formula.left, test), beginning_with(formula.right, test))
        case Then():
            with_left = replace(formula, left=beginning_with(formula.left, test), optional=(False, formula.optional[1]))
            return Either(with_left, beginning_with(formula.right, test)) if formula.optional[0] else with_left
        case Repeat():
            first = beginning_with(formula.body, test)
            if formula.most == 1:
                return first
            most = None if formula.most is None else formula.most - 1
            others = formula.body if most == 1 else replace(formula, least=max(formula.least - 1, 1), most=most)
            return Then(first, others, formula.contiguous, formula.absent, (False, formula.least == 1))
        case Related() | Trailing():
            return replace(formula, body=beginning_with(formula.body, test))
    raise AssertionError(f"refused before: {formula}")
