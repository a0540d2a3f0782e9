"""Absences at the end of a part of a formula: they lie in the gap before what follows, however the part is written."""

import random

import pyarrow as pa
import pytest
from answers import rows_of

import cer_gpu

SAME = [
    ("(A ; !B) ; C", "A ; !B ; C"),
    ("(A AS a ; !(B FILTER B.x > a.x)) AS w ; C", "(A AS a) AS w ; !(B FILTER B.x > a.x) ; C"),
    ("((A ; !B) OR D) ; C", "(A ; !B ; C) OR (D ; C)"),
    ("(((A ; !B) ; D) OR (C ; !D)) ; B", "(A ; !B ; D ; B) OR (C ; !D ; B)"),
    ("(A ; !B)? ; C", "(A ; !B ; C) OR C"),
    ("A ; (B ; !C)? ; D", "(A ; B ; !C ; D) OR (A ; D)"),
    ("(A ; !B)+ ; C", "A+ UNTIL (B) ; !B ; C"),
    ("(A ; !B){2,3} ; C", "A{2,3} UNTIL (B) ; !B ; C"),
    ("D ; (A ; !B) ; C", "D ; A ; !B ; C"),
    ("(D ; (A ; !B)) ; C", "D ; A ; !B ; C"),
    ("D ; (A ; (C ; !B))", "D ; A ; C ; !B"),
    ("((A ; !B) ; !D) ; C", "A ; !B ; !D ; C"),
    ("(A ; !B) -> C", "A ; !B -> C"),
    ("(A ; !B) -> C", "A ; !B ; !C ; C"),
    ("((A ; !B) OR D) -> C", "(A ; !B -> C) OR (D -> C)"),
    ("(A ; !B)+ -> C", "A+ UNTIL (B) ; !B -> C"),
    ("A ; !B -> C+ ; D", "A ; !B ; !C ; C+ ; D"),
]


@pytest.mark.parametrize(("part", "whole"), SAME)
def test_the_gap_before_what_follows_is_meant(part, whole):
    rng = random.Random(part)
    found = 0
    for _ in range(8):
        events = pa.table({"type": rng.choices("ABCD", k=30), "x": rng.choices(range(4), k=30)})
        one, other = (
            rows_of(cer_gpu.compile(f"SELECT * FROM S WHERE {text} WITHIN 8 EVENTS").evaluate(events))
            for text in (part, whole)
        )
        assert one == other
        found += len(one)
    assert found


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("(A ; !B) : C", "a side of ':'"),
        ("(A ; !B) ALL C", "a side of ALL"),
        ("(A ; !B) OR C", "a branch of OR"),
        ("((A ; !B) OR C)+ ; D", "a branch of OR"),
        ("(A ; !B)+", "an iteration"),
        ("(A AS a ; !(B FILTER B.x > a.x))+ ; C", "its own event alone"),
        ("(A ; !B) ; C?", "a formula that may be empty"),
    ],
)
def test_what_nothing_ends_is_refused(formula, message):
    with pytest.raises(cer_gpu.QueryError, match=message):
        cer_gpu.compile(f"SELECT * FROM S WHERE {formula} WITHIN 8 EVENTS")
