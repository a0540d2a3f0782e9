"""The reference of windows within a pattern, against valuations worked out by hand."""

from __future__ import annotations

import pytest
import reference as ref

A, B, C = (ref.EventType(name) for name in "ABC")


def stream(types, times):
    return [{ref.TYPE: kind, ref.TIME: time, "x": k} for k, (kind, time) in enumerate(zip(types, times, strict=True))]


EVENTS = stream("ABCAB", [0, 1, 1, 5, 6])


def spans(formula, **clauses):
    return [row[:2] for row in ref.evaluate(ref.Query(formula, **clauses), EVENTS)]


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (("time", 1), [(0, 1), (3, 4)]),
        (("time", 0), []),
        (("events", 4), [(0, 1), (0, 4), (3, 4)]),
        (("attribute", 1, "x"), [(0, 1), (3, 4)]),
    ],
)
def test_a_local_window_bounds_its_part_alone(length, expected):
    assert spans(ref.Windowed(ref.Seq(A, B), length)) == expected
    part = ref.Seq(ref.Windowed(A, ("time", 0)), B)
    assert spans(part) == [(0, 1), (0, 4), (3, 4)]


def test_each_step_counts_events_that_no_variable_holds():
    formula = ref.Seq(ref.Seq(A, ref.Not("A")), B)  # A, then any but A, then B
    assert spans(formula, each_step=("time", 1)) == []
    assert spans(formula, each_step=("time", 5)) == [(0, 4)]
    assert [row[2] for row in ref.evaluate(ref.Query(formula, each_step=("time", 5)), EVENTS)] == [(0, 4)]


def test_until_bars_the_gap_between_two_repetitions():
    pairs = ref.Seq(A, ref.As(B, "b"))
    assert [row[2] for row in ref.evaluate(ref.Query(ref.Plus(pairs, (C,))), EVENTS)] == [(0, 1), (0, 4), (3, 4)]
    above = ref.Filter(ref.As(C, "c"), ref.Relation(ref.Compare("<", ref.VarAttr("c", "x"), ref.VarAttr("b", "x"))))
    whole = [(0, 1), (0, 1, 3, 4), (0, 4), (3, 4)]
    assert sorted(row[2] for row in ref.evaluate(ref.Query(ref.Plus(pairs, (above,))), EVENTS)) == whole


def test_an_absence_for_a_time_counts_from_the_end():
    formula = ref.Seq(A, B)
    assert spans(ref.Trailing(formula, (C,), ("events", 1))) == [(0, 4), (3, 4)]
    assert spans(ref.Trailing(formula, (A,), ("time", 3)), within=("time", 1)) == [(0, 1), (3, 4)]
    assert spans(ref.Trailing(formula, (A,), ("time", 4)), within=("time", 1)) == [(3, 4)]


def test_the_moment_is_the_first_event_beyond():
    query = ref.Query(ref.Trailing(A, (B,), ("time", 0)))
    rows = ref.evaluate(query, EVENTS)
    assert ref.moments(query, EVENTS, rows) == {(0, 0): 1, (3, 3): 4}
