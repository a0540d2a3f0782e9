"""A match is one row, however many runs find it: `*` is of every type, so that one event fits several places."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import cer_gpu


def events(types, **columns):
    """Return events of these types, a millisecond apart, with x = 1, 2, 3 ... and k = 1."""
    n = len(types)
    times = pa.array(range(n), pa.timestamp("ms"))
    return pa.table({"type": list(types), "ts": times, "x": range(1, n + 1), "k": [1] * n, **columns})


def compiled(pattern, select="*", clauses="WITHIN 3 SECONDS"):
    return cer_gpu.compile(f"SELECT {select} FROM S WHERE {pattern} {clauses}", time_column="ts")


def rows_of(table):
    found = table.select(["start", "end", "positions"]).to_pylist()
    return [(row["start"], row["end"], *row["positions"]) for row in found]


# for each pattern the types of the events and the matches: start, end, positions
CASES = {
    "A ALL *": (
        "BABA",
        [(0, 1, 0, 1), (1, 1, 1), (1, 2, 1, 2), (0, 3, 0, 3), (1, 3, 1, 3), (2, 3, 2, 3), (3, 3, 3)],
    ),
    "A ALL `*`": (
        "BABA",
        [(0, 1, 0, 1), (1, 1, 1), (1, 2, 1, 2), (0, 3, 0, 3), (1, 3, 1, 3), (2, 3, 2, 3), (3, 3, 3)],
    ),
    "(A ALL *?) ; B": ("BABA", [(0, 2, 0, 1, 2), (1, 2, 1, 2)]),
    "A ALL *?": ("CA", [(0, 1, 0, 1), (1, 1, 1)]),
    "(A OR *) ALL B": (
        "BABA",
        [(0, 0, 0), (0, 1, 0, 1), (0, 2, 0, 2), (1, 2, 1, 2), (2, 2, 2), (0, 3, 0, 3), (2, 3, 2, 3)],
    ),
    "(A AS a OR * AS c) ; B AS b FILTER b.x > a.x": (
        "BABABA",
        [(0, 2, 0, 2), (1, 2, 1, 2), (0, 4, 0, 4), (1, 4, 1, 4), (2, 4, 2, 4), (3, 4, 3, 4)],
    ),
    "A AS a ALL * AS b FILTER a.k = b.k": (
        "BABABA",
        [
            *((0, 1, 0, 1), (1, 1, 1), (1, 2, 1, 2), (0, 3, 0, 3), (1, 3, 1, 3), (2, 3, 2, 3), (3, 3, 3), (1, 4, 1, 4)),
            *((3, 4, 3, 4), (0, 5, 0, 5), (1, 5, 1, 5), (2, 5, 2, 5), (3, 5, 3, 5), (4, 5, 4, 5), (5, 5, 5)),
        ],
    ),
    "(* AS a OR B AS c)+ ; A AS d FILTER d.x > c.x": (
        "BABA",
        [
            *((0, 1, 0, 1), (0, 3, 0, 1, 2, 3), (0, 3, 0, 1, 3), (0, 3, 0, 2, 3)),
            *((0, 3, 0, 3), (1, 3, 1, 2, 3), (1, 3, 1, 3), (2, 3, 2, 3)),
        ],
    ),
    "A+ ; *+": ("AAA", [(0, 1, 0, 1), (0, 2, 0, 1, 2), (0, 2, 0, 2), (1, 2, 1, 2)]),
    "*+ ; A+": ("BAA", [(0, 1, 0, 1), (0, 2, 0, 1, 2), (0, 2, 0, 2), (1, 2, 1, 2)]),
    "* AS a ; (A AS b)+ ; (* AS c)+ FILTER b.k = a.k": (
        "AAAA",
        [(0, 2, 0, 1, 2), (0, 3, 0, 1, 2, 3), (0, 3, 0, 1, 3), (0, 3, 0, 2, 3), (1, 3, 1, 2, 3)],
    ),
    "A AS a ; NOT(B) ; * AS b FILTER a.k = b.k": ("ACCA", [(0, 2, 0, 2), (0, 3, 0, 3)]),
    "NOT(A) ALL *": ("BA", [(0, 0, 0), (0, 1, 1)]),
    "(NOT(A) OR *) ; A": (
        "BABA",
        [(0, 1, 0, 1), (0, 1, 1), (0, 3, 0, 3), (0, 3, 3), (1, 3, 1, 3), (2, 3, 2, 3), (2, 3, 3)],
    ),
}
of_each_case = pytest.mark.parametrize("pattern", CASES)


@of_each_case
def test_each_match_is_one_row(pattern):
    types, matches = CASES[pattern]
    assert sorted(rows_of(compiled(pattern).evaluate(events(types)))) == sorted(matches)


@of_each_case
def test_counts_and_ends_are_those_of_the_rows(pattern):
    types, matches = CASES[pattern]
    query, table = compiled(pattern), events(types)
    ends = Counter(end for _, end, *_ in matches)
    assert query.count(table) == len(matches)
    assert {row["end"]: row["count"] for row in query.evaluate(table, output="count").to_pylist()} == ends
    assert query.evaluate(table, output="ends")["end"].to_pylist() == sorted(ends)


@of_each_case
def test_other_outputs_have_the_same_matches(pattern):
    types, matches = CASES[pattern]
    query, table = compiled(pattern), events(types)
    assert sorted(query.evaluate(table, output="events")["end"].to_pylist()) == sorted(end for _, end, *_ in matches)
    bindings = query.evaluate(table, output="bindings").to_pylist()
    assert len({repr(row) for row in bindings}) == len(bindings)  # those of one match differ in their variables
    assert {(row["start"], row["end"]) for row in bindings} == {(start, end) for start, end, *_ in matches}


@of_each_case
def test_cuts_checkpoints_shares_and_threads_change_nothing(pattern):
    types, matches = CASES[pattern]
    query, table = compiled(pattern), events(types)
    evaluator, found = query.evaluator(), []
    for batch in table.to_batches(max_chunksize=1):
        found += rows_of(evaluator.push(batch))
        evaluator = query.restore(evaluator.checkpoint())
    assert sorted(found + rows_of(evaluator.finish())) == sorted(matches)
    shares = [query.evaluate(table, shard=(k, 3)) for k in range(3)]
    assert sorted(row for share in shares for row in rows_of(share)) == sorted(matches)
    assert sorted(rows_of(query.evaluate(table, threads=2))) == sorted(matches)


@of_each_case
@pytest.mark.parametrize("strategy", ["MAX", "STRICT", "ANY", "LIMIT"])
def test_strategies_choose_among_matches_that_are_there_once(pattern, strategy):
    types, matches = CASES[pattern]
    select, clauses = (
        ("*", "WITHIN 3 SECONDS LIMIT 2") if strategy == "LIMIT" else (f"{strategy} *", "WITHIN 3 SECONDS")
    )
    query = compiled(pattern, select, clauses)
    found = rows_of(query.evaluate(events(types)))
    of_ends = {end: [row for row in matches if row[1] == end] for _, end, *_ in matches}
    if strategy in ("ANY", "LIMIT"):
        most = 1 if strategy == "ANY" else 2
        assert set(found) <= set(matches)
        assert Counter(end for _, end, *_ in found) == {end: min(most, len(rows)) for end, rows in of_ends.items()}
        assert len(set(found)) == len(found)
    elif strategy == "STRICT":
        assert sorted(found) == sorted(row for row in matches if row[-1] - row[2] == len(row) - 3)
    else:
        expected = [row for row in matches if not any({*row[2:]} < {*other[2:]} for other in of_ends[row[1]])]
        assert sorted(found) == sorted(expected)
    assert query.count(events(types)) == len(found)


def test_keys_and_consumption_see_each_match_once():
    keyed = events("BABABA", g=[1, 1, 2, 2, 1, 1])
    found = compiled("A AS a ALL * AS b FILTER a.k = b.k", clauses="PARTITION BY [g] WITHIN 3 SECONDS").evaluate(keyed)
    expected = [(0, 1, 0, 1), (1, 1, 1), (2, 3, 2, 3), (3, 3, 3), (1, 4, 1, 4), (0, 5, 0, 5), (1, 5, 1, 5)]
    assert sorted(rows_of(found)) == sorted([*expected, (4, 5, 4, 5), (5, 5, 5)])
    consumed = compiled("A ALL *", clauses="WITHIN 3 SECONDS CONSUME BY ANY").evaluate(events("BABA"))
    assert sorted(rows_of(consumed)) == [(0, 1, 0, 1), (1, 1, 1), (2, 3, 2, 3), (3, 3, 3)]


def test_streams_do_not_tell_an_event_from_one_of_any_type():
    streams = {"S": events("BA"), "T": events("A")}
    query = cer_gpu.compile("SELECT * FROM S, T WHERE S>A ALL *", time_column="ts")
    rows = query.evaluate(streams).to_pylist()
    assert len({repr(row) for row in rows}) == len(rows) == 3
    apart = cer_gpu.compile("SELECT * FROM S, T WHERE S>* ALL T>A", time_column="ts")
    assert apart.count(streams) == 2


def test_an_aggregate_is_over_matches_that_are_there_once():
    query = compiled("(A AS a OR * AS c) ; B AS b FILTER b.x > a.x", select="b")
    assert query.evaluate(events("BABABA"), output="count", aggregate="COUNT(*)").to_pylist() == [
        row | {"COUNT(*)": row.pop("count")} for row in query.evaluate(events("BABABA"), output="count").to_pylist()
    ]


NO_DOUBLES = [
    "A AS a ; B AS b FILTER b.x > a.x",
    "A AS a ; (B AS b)+ FILTER b.x > a.x",
    "(A AS a OR B AS c) ; C AS b FILTER b.x > a.x",
    "A ALL B",
    "A AS a ALL B AS b FILTER a.k = b.k",
    "* AS a ; B AS b FILTER b.x > a.x",
]
DOUBLES = [
    "(A AS a OR * AS c) ; C AS b FILTER b.x > a.x",
    "A ALL *",
    "A AS a ALL * AS b FILTER a.k = b.k",
    "* ALL B",
]


@pytest.mark.parametrize(
    ("pattern", "doubles"), [*((each, False) for each in NO_DOUBLES), *((each, True) for each in DOUBLES)]
)
def test_the_explanation_says_where_doubles_are_dropped(pattern, doubles):
    assert ("and duplicates dropped" in str(compiled(pattern).explain(detail="plan"))) is doubles


def test_steps_told_apart_by_types_alone_go_by_stacks():
    assert compiled("A ; B+ ; C+").physical_plan("positions").runtime == "stacks"
    for pattern in ("A ; B+ ; *+", "* ; B+ ; *+"):
        assert compiled(pattern).physical_plan("positions").runtime == "automaton"
