"""Measures and HAVING in the reference, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import reference as ref
import reference_measures as measures
from reference import Aggregate, Arith, As, Attr, Call, Compare, Const, EventType, Or, Plus, Query, Seq, Times, VarAttr
from test_reference import events

A, B, C = (EventType(name) for name in "ABC")
STREAM = events("ABBC", n=[1, 2, 4, 10], v=[0.5, None, 1.5, 2.0])


def of(expression: ref.Expression, formula: ref.Formula | None = None, **clauses) -> list:
    """Return the values of a measure, by row."""
    query = Query(formula or Seq(Seq(A, Plus(B)), C), select=(), measures=(("m", expression),), **clauses)
    return [values[0] for _, _, values in measures.rows(query, STREAM)]


VALUES = [
    (Aggregate("COUNT", "B"), [1, 1, 2]),
    (Aggregate("SUM", "B", "n"), [2, 4, 6]),
    (Aggregate("AVG", "B", "n"), [2.0, 3.0, 4.0]),
    (Aggregate("MIN", "B", "n"), [2, 2, 4]),
    (Aggregate("MAX", "B", "n"), [2, 4, 4]),
    (Aggregate("LIST", "B", "n"), [[2], [2, 4], [4]]),
    (Aggregate("SUM", "B", "v"), [1.5, 1.5, None]),
    (Aggregate("LIST", "B", "v"), [[1.5], [None], [None, 1.5]]),
    (VarAttr("B", "n", "FIRST"), [2, 2, 4]),
    (VarAttr("B", "n", "LAST"), [2, 4, 4]),
    (Arith("/", Aggregate("SUM", "B", "n"), Aggregate("COUNT", "B")), [2, 3, 4]),
    (Call("abs", Arith("-", VarAttr("B", "n", "FIRST"), Const(5))), [1, 3, 3]),
]


@pytest.mark.parametrize(("expression", "values"), VALUES)
def test_measures_have_their_values(expression, values):
    assert sorted(of(expression), key=repr) == sorted(values, key=repr)


def test_one_row_for_each_valuation_of_the_variables_that_are_named():
    assert of(VarAttr("A", "n")) == [1]
    assert of(Arith("-", VarAttr("C", "n"), VarAttr("A", "n"))) == [9]
    formula = Seq(Seq(A, Plus(B)), C)
    query = Query(formula, select=("B",), measures=(("d", VarAttr("C", "n")),))
    assert ref.bound_variables(query) == ("B", "C")
    assert measures.rows(query, STREAM) == [(0, 3, (10,))] * 3


def test_aggregates_of_nothing_are_null_and_count_is_zero():
    formula = Seq(A, Seq(Times(As(B, "x"), 0, 1), C))
    named = (("n", Aggregate("COUNT", "x")), ("s", Aggregate("SUM", "x", "n")), ("f", VarAttr("x", "n")))
    rows = measures.rows(Query(formula, select=(), measures=named), STREAM)
    assert sorted(values for _, _, values in rows) == [(0, None, None), (1, 2, 2), (1, 4, 4)]


def test_count_of_all_names_all_variables():
    query = Query(Seq(Seq(A, Plus(B)), C), select=("C",), measures=(("n", Aggregate("COUNT")),))
    assert [values for _, _, values in measures.rows(query, STREAM)] == [(3,), (3,), (4,)]


def test_a_measure_of_one_event_needs_one():
    with pytest.raises(ValueError, match="several"):
        of(VarAttr("B", "n"))


def test_having_drops_rows_before_limit_and_after_everything_else():
    over_2 = Compare(">", Attr("m"), Const(2))
    total = Aggregate("SUM", "B", "n")
    assert sorted(of(total, having=over_2)) == [4, 6]
    assert of(total, having=Compare("=", Aggregate("COUNT", "B"), Const(2))) == [6]
    # what HAVING drops is compared, and consumes
    assert of(total, having=over_2, strategy="NEXT") == [6]
    assert of(total, having=Compare("<", Attr("m"), Const(6)), strategy="MAX") == []
    either = Query(Seq(A, Or(B, C)), select=("A",), measures=(("s", Aggregate("MAX", "C", "n")),), consume="ANY")
    assert measures.rows(replace(either, having=Compare(">", Attr("s"), Const(0))), STREAM) == []
    # NULL is not TRUE
    assert of(Aggregate("SUM", "B", "v"), having=Compare("<>", Attr("m"), Const(0))) == [1.5, 1.5]


def test_legal_answers_with_having():
    formula = Seq(Seq(A, Plus(B)), C)
    having = Compare(">", Attr("m"), Const(2))
    query = Query(formula, select=(), measures=(("m", Aggregate("SUM", "B", "n")),), having=having)
    candidates = measures.candidates(query, STREAM)
    four, six = (0, 3, (4,)), (0, 3, (6,))
    assert measures.is_choice(query, candidates, [six, four])
    assert not measures.is_choice(query, candidates, [six])
    limited = replace(query, limit=1)
    assert measures.is_choice(limited, candidates, [six])
    assert not measures.is_choice(limited, candidates, [])
    assert not measures.is_choice(limited, candidates, [(0, 3, (2,))])
    any_ = replace(query, strategy="ANY")
    assert measures.is_choice(any_, candidates, [four])
    assert measures.is_choice(any_, candidates, [])  # ANY chose the row that HAVING drops
    assert not measures.is_choice(any_, candidates, [four, six])
    everything = [(row, True) for row, _ in candidates]
    assert not measures.is_choice(any_, everything, [])
