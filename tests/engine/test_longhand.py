"""The operators in short against the same patterns in longhand: alternatives, and one event after another.

A gap without an R is written as `NOT(R) :+`, an option as an alternative, a count as copies: as users of an engine
without these operators had to write what tests of other engines ask for.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import cer_gpu


def passing(event, then):
    """Return longhand for what follows `:` where ``;`` goes on and no `event` lies in the gap before `then`."""
    return f"(((NOT({event}) :+) : {then}) OR {then})"


NEXT_A, NEXT_B = passing("A", "A"), passing("B", "B")
LONGHAND = {
    "A -> B": f"A : {NEXT_B}",
    "C ; A* -> B": f"(C : {NEXT_B}) OR (C ; (A+) : {NEXT_B})",
    "(C : A?) -> B": f"C : ((A : {NEXT_B}) OR {NEXT_B})",
    "C -> A? -> B": f"C : (({NEXT_A} : {NEXT_B}) OR {NEXT_B})",
    "C -> A ->+ -> B": f"C : ({NEXT_A} :+) : {NEXT_B}",
    "C -> A ->* ; B": f"(C ; B) OR ((C : ({NEXT_A} :+)) ; B)",
    "C -> A :+ -> B": f"C : {passing('A', '(A :+)')} : {NEXT_B}",
    "C -> (A ->{2})? -> B": f"C : (({NEXT_A} : {NEXT_A} : {NEXT_B}) OR {NEXT_B})",
    "C ; A{2,3} -> B": f"C ; ((A ; A : {NEXT_B}) OR (A ; A ; A : {NEXT_B}))",
    "(C : A:{2,}) ; B": "C : ((A : A) OR (A : A : (A :+))) ; B",
    "C? -> B ->{1,2}": f"B OR (B : {NEXT_B}) OR (C : {NEXT_B}) OR (C : {NEXT_B} : {NEXT_B})",
    "C ; !A ; B+": f"C : {passing('A', '(B +)')}",
    "C ; (NOT(A) :* : B)": "(C ; ((NOT(A) :+) : B)) OR (C ; B)",
}


@pytest.fixture(scope="module")
def events():
    rng = random.Random(5)
    types = pa.array(rng.choices("AAABBCCD", k=240))
    return pa.table({"type": types, "k": pa.array(rng.choices([0, 0, 0, 1, None], k=240))})


def rows(query, events, **options):
    table = cer_gpu.compile(query).stream(events.to_batches(max_chunksize=40), **options).read_all()
    return sorted(
        tuple(tuple(value) if isinstance(value, list) else value for value in row.values()) for row in table.to_pylist()
    )


KEYED = pytest.param("PARTITION BY [k] WITHIN 8 EVENTS", marks=pytest.mark.long("compiles listings by keys, too"))


@pytest.mark.parametrize("clauses", ["WITHIN 9 EVENTS", KEYED, "WITHIN 12 EVENTS CONSUME BY ANY"])
@pytest.mark.parametrize("formula", LONGHAND)
def test_operators_say_what_their_longhand_says(formula, clauses, events):
    for strategy in ("ALL", "NEXT", "MAX"):
        short, long = (f"SELECT {strategy} * FROM S WHERE {f} {clauses}" for f in (formula, LONGHAND[formula]))
        answers = rows(short, events)
        assert answers == rows(long, events)
        assert answers
        assert rows(short, events, output="count") == rows(long, events, output="count")
