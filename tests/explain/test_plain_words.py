"""A query in plain words: every event with its predicates, every clause, nothing else."""

import pytest
import strategies
from rendering import to_ceql

import cer_gpu
from cer_gpu.explain.ceql_text import name_text, predicate_text
from cer_gpu.printable import printable


def words_of(query, **options):
    return cer_gpu.compile(query, **options).explain().words


@strategies.property_test(0.5)
def test_every_event_and_clause_is_said(data):
    query = data.draw(strategies.full_queries(choosing=data.draw(strategies.st.booleans())))
    compiled = cer_gpu.compile(to_ceql(query), time_column="ts")
    said = "\n".join(compiled.explain().words)
    atoms = [t for t in compiled._plan.cea.transitions if t.guard >= 0]
    for atom in atoms:
        guard = compiled._plan.cea.guards[atom.guard]
        text = "any event" if guard.event_type is None else f"an event {name_text(guard.event_type)}"
        if guard.predicate is not None:
            text += f" with {predicate_text(guard.predicate)}"
        assert ("one event that is not " * atom.negated) + printable(text) in said
    typed = [atom for atom in atoms if compiled._plan.cea.guards[atom.guard].event_type is not None]
    assert said.count("an event ") == len(typed)
    assert ("each group is looked at by itself" in said) == bool(query.partition_by)
    assert ("rom its first event" in said) == (query.within is not None)
    assert ("forgotten" in said) == (query.consume != "NONE")
    assert ("(LIMIT)" in said) == (query.limit is not None)


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("A", ["an event A"]),
        ("A ; B : C", ["1. an event A", "2. later, an event B", "3. at the very next position, an event C"]),
        ("A ; (B : C)", ["1. an event A", "2. later, an event B", "3. at the very next position, an event C"]),
        ("A :+", ["one or more events in a row, each an event A"]),
        ("(A ; B) :+", ["one or more times, each right after the last:", "  1. an event A", "  2. later, an event B"]),
        ("A OR B OR NOT(C)", ["one of these:", "- an event A", "- an event B", "- one event that is not an event C"]),
        ("A AS y AS x", ["an event A, called x and y"]),
        ("A FILTER A[n > 1] AND A[m = 2]", ["an event A with n > 1 AND m = 2"]),
    ],
)
def test_each_operator_has_its_words(pattern, lines):
    assert words_of(f"SELECT * FROM S WHERE {pattern}")[1:-2] == ["  " + line for line in lines]


@pytest.mark.parametrize(
    ("clauses", "line"),
    [
        ("WITHIN 1 EVENTS", "at most 1 position."),
        ("WITHIN 1000 EVENTS", "at most 1,000 positions."),
        ("WITHIN 90 MINUTES", "at most 1 hour 30 minutes."),
        ("WITHIN 1 SECONDS", "at most 1 second."),
        ("WITHIN 0 SECONDS", "at most 0 seconds."),
        ("WITHIN 0.25 [`a b`]", "at most 0.25 in `a b`."),
        ("PARTITION BY [k]", "with the same k; each"),
        ("PARTITION BY [k, l], [m], [n]", "with the same k or else l, m and n; each"),
    ],
)
def test_windows_and_keys_have_their_words(clauses, line):
    assert line in words_of(f"SELECT * FROM S WHERE A {clauses}", time_column="ts")[2]


@pytest.mark.parametrize(
    ("strategy", "choice"),
    [
        ("NEXT", "the one that takes the earliest events it can, and as many as it can, is {} (NEXT)."),
        ("LAST", "the one that takes the latest events it can, and as many as it can, is {} (LAST)."),
        ("MAX", "those that are no part of another are {} (MAX)."),
    ],
)
def test_a_strategy_stands_behind_the_window_and_before_it_with_then_within(strategy, choice):
    choice = "Of those that end at one event, " + choice
    query = f"SELECT {strategy} * FROM S WHERE A"
    assert words_of(query)[2:-1] == [choice.format("reported")]
    subject = "Each" if strategy == "MAX" else "It"
    within = "rom its first event to its last there are at most 5 positions."
    assert words_of(query + " WITHIN 5 EVENTS")[2:-1] == [f"F{within}", choice.format("reported")]
    assert words_of(query + " THEN WITHIN 5 EVENTS")[2:-1] == [
        choice.format("chosen"),
        f"{subject} is reported only if f{within}",
    ]


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("A -> B", ["1. an event A", "2. later, the next event B"]),
        ("A ; !B ; B", ["1. an event A", "2. later, the next event B"]),
        ("A -> NOT(B)", ["1. an event A", "2. later, the next event that is not an event B"]),
        ("A -> (B OR C)", ["1. an event A", "2. later, the next of these:", "   - an event B", "   - an event C"]),
        (
            "A -> B FILTER B[x > 1]",
            ["1. an event A", "2. later, an event B with x > 1", "   between the two no event B"],
        ),
        ("A -> B ->{2,3}", ["1. an event A", "2. later, 2 to 3 events, each the next event B"]),
        ("A ->+", ["one or more events, each an event A, and each but the first the next such event"]),
        ("A ; B?", ["1. an event A", "2. later, if it is there, an event B"]),
        ("A{2} : B*", ["1. 2 events, with any others between, each an event A"]),
        ("A:{2,}", ["2 or more events in a row, each an event A"]),
        (
            "A AS a ; !(R AS r FILTER r.x = a.x) ; B",
            [
                "1. an event A, called a",
                "2. later, an event B",
                "   between the two no event R, called r, such that r.x = a.x",
            ],
        ),
    ],
)
def test_what_may_be_missing_absent_or_next_has_its_words(pattern, lines):
    assert words_of(f"SELECT * FROM S WHERE {pattern}")[1:-2][: len(lines)] == ["  " + line for line in lines]


@pytest.mark.parametrize(
    ("clauses", "line"),
    [
        ("PARTITION BY [k] LIMIT 2 EVERY 90 MINUTES", "At most 2 of each group in any 1 HOURS 30 MINUTES are reported"),
        ("LIMIT 1 EVERY 5 EVENTS", "At most 1 in any 5 EVENTS are reported"),
    ],
)
def test_limit_every_has_its_words(clauses, line):
    words = words_of(f"SELECT * FROM S WHERE A ; B {clauses}", time_column="ts")
    assert f"{line}, the first of them (LIMIT EVERY)." in words


def test_measures_having_and_lag_have_their_words():
    query = "SELECT a, a.x + 1 AS n, COUNT(b) FROM S WHERE A AS a ; B+ AS b FILTER a[x > LAG(x)] HAVING n > 3 LIMIT 2"
    assert words_of(query)[4:] == [
        "Reported of each: a.x + 1 as n and COUNT(b).",
        "Of these, only those with n > 3 are reported (HAVING).",
        "At most 2 that end at one event are reported (LIMIT).",
        "Of its events, those that a holds are kept.",
        "LAG(x) reads the event before it in the stream, of whatever type; NULL where there is none.",
    ]


def test_what_is_over_the_past_is_said():
    text = (
        "SELECT * FROM S WHERE !(R FILTER R[n > 2]) FOR 5 EVENTS ; A AS a ; B AS b FILTER b[m > 3 * "
        "AVG(A.n FILTER n > 0) OVER 2 MINUTES AND COUNT(DISTINCT *.user) OVER 4 EVENTS > a.n] PARTITION BY [k]"
    )
    explained = cer_gpu.compile(text, time_column="ts").explain()
    said = "\n".join(explained.words)
    mean, distinct = "AVG(A.n FILTER n > 0) OVER 2 MINUTES", "COUNT(DISTINCT *.user) OVER 4 EVENTS"
    assert "1. an event A with no R with n > 2 in the 5 EVENTS before it, called a" in said
    assert f"2. later, an event B with m > 3 * {mean}, called b" in said
    assert f"such that {distinct} at b > a.n" in said
    assert f"{mean} at an event is over the events A with n > 0 of its group at most 2 minutes before it" in said
    assert f"{distinct} at an event is over all events of its group at most 4 positions before it" in said
    memory = explained.to_dict()["plan"]["memory"]
    assert "for the absence of R, the time of the last one of each partition" in memory
    assert f"for {mean}, the values of its events in that window of each partition" in memory
    assert "an absence counted back holds at the beginning of the stream: nothing came before" in str(explained)
