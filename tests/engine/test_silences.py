"""Absences with FOR in the middle of a pattern, counted from the end of what stands before, whatever follows."""

import random

import pyarrow as pa
import pytest
from sizes import scaled

import cer_gpu

# the formula with its absences, without them, and each: the variable behind which, the types, the length, a filter
CASES = [
    ("(A AS a ; !D FOR {d}) ; C AS c", "A AS a ; C AS c", [("a", "D", None)]),
    ("(A AS a ; B AS b ; !D FOR {d}) ; C+ AS c", "A AS a ; B AS b ; C+ AS c", [("b", "D", None)]),
    ("(A+ AS a ; !(D FILTER D[x > 1]) FOR {d}) ; C AS c ; B AS b", "A+ AS a ; C AS c ; B AS b", [("a", "D", "high")]),
    ("(A AS a ; !C FOR {d}) ; C AS c", "A AS a ; C AS c", [("a", "C", None)]),
    ("(A AS a ; !A FOR {d}) ; (A OR B)+ AS b", "A AS a ; (A OR B)+ AS b", [("a", "A", None)]),
    (
        "((A AS a ; !D FOR {d}) ; B AS b ; !C FOR {d}) ; A AS c",
        "A AS a ; B AS b ; A AS c",
        [("a", "D", None), ("b", "C", None)],
    ),
    ("(A AS a ; !D FOR {d}) ; B AS b ; !C FOR {d}", "A AS a ; B AS b", [("a", "D", None), ("b", "C", None)]),
    ("(A AS a ; !D FOR {d}) ; B AS b ; !C FOR {e}", "A AS a ; B AS b", [("a", "D", None), ("b", "C", None, 2)]),
    (
        "((A AS a ; !D FOR {d}) ; B AS b ; !D FOR {d}) ; C AS c",
        "A AS a ; B AS b ; C AS c",
        [("a", "D", None), ("b", "D", None)],
    ),
    ("A AS a ; !D FOR {e} ; !C FOR {d}", "A AS a", [("a", "D", None, 2), ("a", "C", None)]),
    ("(A AS a ; !D FOR {d}) ; !C FOR {e}", "A AS a", [("a", "D", None), ("a", "C", None, 2)]),
    (
        "((A AS a ; !D FOR {d}) ; C+ AS c) FILTER c[x > 2] OR a.x > c.x",
        "(A AS a ; C+ AS c) FILTER c[x > 2] OR a.x > c.x",
        [("a", "D", None)],
    ),
    ("(A AS a ; !(D AS d FILTER d.x > a.x) FOR {d}) ; C AS c", "A AS a ; C AS c", [("a", "D", "higher")]),
    ("B AS b ; ((A AS a ; !D FOR {d}) ; C AS c ; D? AS d)", "B AS b ; (A AS a ; C AS c ; D? AS d)", [("a", "D", None)]),
    ("(A AS a ; !D FOR {d}) ; (C AS c : B AS b) ; A AS e", "A AS a ; (C AS c : B AS b) ; A AS e", [("a", "D", None)]),
]
LENGTHS = {"time": "{} SECONDS", "events": "{} EVENTS", "attribute": "{} [n]"}


def stream(rng, n=22):
    times = sorted(rng.choices(range(20), k=n))
    return pa.table(
        {
            "type": rng.choices("ABCD", k=n),
            "k": rng.choices(range(2), k=n),
            "x": rng.choices(range(4), k=n),
            "ts": times,
            "n": [2 * t for t in times],
        }
    )


def expected(rows, absences, events, kind, length, keyed):
    """Return the valuations that no absent event takes back."""
    e = events.to_pydict()
    substream = [[j for j in range(len(e["ts"])) if not keyed or e["k"][j] == k] for k in e["k"]]
    place = [substream[i].index(i) for i in range(len(e["ts"]))]
    clock = {"time": e["ts"], "events": place, "attribute": e["n"]}[kind]

    def barred(row, variable, of_type, test, more=0):
        end = row[variable][-1] if isinstance(row[variable], list) else row[variable]
        return any(
            e["type"][j] == of_type
            and clock[j] - clock[end] <= length + more
            and (test != "high" or e["x"][j] > 1)
            and (test != "higher" or e["x"][j] > e["x"][end])
            for j in substream[end]
            if j > end
        )

    return [row for row in rows if not any(barred(row, *absence) for absence in absences)]


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize(("formula", "without", "absences"), CASES)
def test_no_such_event_comes_in_time_whatever_follows(formula, without, absences, kind):
    rng, n_found, n_cases = random.Random(f"{formula} {kind}"), 0, scaled(25)
    for _ in range(n_cases):
        events, length, keyed = stream(rng), rng.randrange(1, 6), rng.random() < 0.4
        clauses = (" PARTITION BY [k]" if keyed else "") + rng.choice([" WITHIN 9 SECONDS", " WITHIN 12 EVENTS", ""])
        options = {"time_column": "ts", "time_unit": "s"}
        extents = {"d": LENGTHS[kind].format(length), "e": LENGTHS[kind].format(length + 2)}
        text = f"SELECT * FROM S WHERE {formula.format(**extents)}{clauses}"
        query = cer_gpu.compile(text, **options)
        whole = query.evaluate(events, output="bindings").to_pylist()
        every = cer_gpu.compile(f"SELECT * FROM S WHERE {without}{clauses}", **options).evaluate(
            events, output="bindings"
        )
        rows = expected(every.to_pylist(), absences, events, kind, length, keyed)
        assert sorted(map(str, whole)) == sorted(map(str, rows))
        n_found += len(rows)
        evaluator, parts = query.evaluator(output="bindings"), []
        for at in range(0, events.num_rows, 5):
            parts += evaluator.push(events.slice(at, 5).combine_chunks().to_batches()[0]).to_pylist()
            evaluator = query.restore(evaluator.checkpoint())
        assert parts + evaluator.finish().to_pylist() == whole
    assert n_found or n_cases < 10


def test_another_event_than_the_absent_one_may_follow():
    table = pa.table({"type": list("ACBACC"), "ts": [0, 500, 800, 2000, 2100, 4000]})
    text = "SELECT * FROM S WHERE (A ; !B FOR 1 SECONDS) ; NOT(B)"
    found = cer_gpu.compile(text, time_column="ts", time_unit="ms").evaluate(table)
    assert found.select(["start", "end"]).to_pylist() == [{"start": 3, "end": 4}, {"start": 3, "end": 5}]


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("((A ; !D FOR 5 EVENTS) OR B) ; C", "may be missing or come again"),
        ("(A ; !D FOR 5 EVENTS)+ ; C", "may be missing or come again"),
        ("(A ; !(B FILTER B.x > 1) FOR 5 EVENTS) ; B", "could itself be the event that must be absent"),
        ("(A ; !D FOR 5 EVENTS) ; NOT(B)", "could itself be the event that must be absent"),
        ("(A ; !D FOR 5 EVENTS) ; (B ALL C)", "ALL follows an absence"),
        ("(A ; !D FOR 5 EVENTS) ; B ; !C", "different clocks"),
        ("A ; !D ; !C FOR 5 EVENTS", "different clocks"),
        ("(A ; !D FOR 5 SECONDS) ; !C FOR 6 EVENTS", "different clocks"),
        ("((A ; !D FOR 5 EVENTS) ; B ; !C FOR 6 [n]) ; B", "different clocks"),
        ("(A ; !D FOR 5 EVENTS) : B", "a side of ':'"),
        ("(A ; !D FOR 5 EVENTS) ; B?", "may be empty"),
    ],
)
def test_what_follows_an_absence_with_for_is_refused_by_name(formula, message):
    with pytest.raises(cer_gpu.QueryError, match=message):
        cer_gpu.compile(f"SELECT * FROM S WHERE {formula} WITHIN 9 EVENTS", time_column="ts")
