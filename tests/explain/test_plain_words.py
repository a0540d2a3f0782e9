"""A query in plain words: every event with its predicates, every clause, nothing else."""

import re

import pytest
import strategies
from rendering import to_ceql

import cer_gpu
from cer_gpu.explain.ceql_text import name_text, predicate_text
from cer_gpu.printable import printable


def words_of(query, **options):
    return cer_gpu.compile(query, **options).explain().words


ANY = "(?:any event|an event|(?:one or more|are not) events)"


@strategies.property_test(0.5)
def test_every_event_and_clause_is_said(data):
    query = data.draw(strategies.full_queries(choosing=data.draw(strategies.st.booleans())))
    compiled = cer_gpu.compile(to_ceql(query), time_column="ts")
    said = "\n".join(compiled.explain().words)
    atoms = [t for t in compiled._plan.cea.transitions if t.guard >= 0]
    for atom in atoms:
        guard = compiled._plan.cea.guards[atom.guard]
        mention = ANY if guard.event_type is None else _mention(re.escape(name_text(guard.event_type)), atom.negated)
        tests = "" if guard.predicate is None else f" with {re.escape(printable(predicate_text(guard.predicate)))}"
        assert re.search(rf"{mention}(?: \(.*\))?{tests}", said)
    typed = [atom for atom in atoms if compiled._plan.cea.guards[atom.guard].event_type is not None]
    assert len(re.findall(_mention(r"\S+", negated=False), said)) == len(typed)
    assert ("each such group is searched separately" in said) == bool(query.partition_by)
    assert ("first and " in said) == (query.within is not None)
    assert ("discarded" in said) == (query.consume != "NONE")
    assert ("(LIMIT)" in said) == (query.limit is not None)


def _mention(event_type, negated):
    """Return a pattern of the words for one event of a type, or several, or of another type."""
    one, several = rf"\ban? {event_type} event\b", rf"(?:\bone or more|\bare not) {event_type} events\b"
    if not negated:
        return f"(?:{one}|{several})"
    lead = r"\ban event(?: \(.*\))? that is not", r"\bone or more events(?: \(.*\))? that"
    return f"(?:{lead[0]} {one}|{lead[1]} {several})"


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("A", ["an A event"]),
        ("A ; B : C", ["1. an A event", "2. later, a B event", "3. at the very next position, a C event"]),
        ("A ; (B : C)", ["1. an A event", "2. later, a B event", "3. at the very next position, a C event"]),
        ("A :+", ["one or more A events, at consecutive positions"]),
        (
            "(A ; B) :+",
            ["one or more times, each directly after the previous one:", "  1. an A event", "  2. later, a B event"],
        ),
        ("A OR B OR NOT(C)", ["one of these:", "- an A event", "- a B event", "- an event that is not a C event"]),
        ("A AS y AS x", ["an A event (x and y)"]),
        ("A FILTER A[n > 1] AND A[m = 2]", ["an A event with n > 1 AND m = 2"]),
    ],
)
def test_each_operator_has_its_words(pattern, lines):
    assert words_of(f"SELECT * FROM S WHERE {pattern}")[1:-2] == ["  " + line for line in lines]


@pytest.mark.parametrize(
    ("clauses", "line"),
    [
        ("WITHIN 1 EVENTS", "at most 1 position apart."),
        ("WITHIN 1000 EVENTS", "at most 1,000 positions apart."),
        ("WITHIN 90 MINUTES", "at most 1 hour 30 minutes apart."),
        ("WITHIN 1 SECONDS", "at most 1 second apart."),
        ("WITHIN 0 SECONDS", "at most 0 seconds apart."),
        ("WITHIN 0.25 [`a b`]", "at most 0.25 in `a b`."),
        ("PARTITION BY [k]", "have the same k; each"),
        ("PARTITION BY [k, l], [m], [n]", "have the same k or else l, m and n; each"),
    ],
)
def test_windows_and_keys_have_their_words(clauses, line):
    assert line in words_of(f"SELECT * FROM S WHERE A {clauses}", time_column="ts")[2]


@pytest.mark.parametrize(
    ("strategy", "choice"),
    [
        ("NEXT", "the one that takes the earliest events it can, and as many as it can, is {} (NEXT)."),
        ("LAST", "the one that takes the latest events it can, and as many as it can, is {} (LAST)."),
        ("MAX", "those that are not part of another are {} (MAX)."),
    ],
)
def test_a_strategy_comes_after_the_window_and_before_it_with_then_within(strategy, choice):
    choice = "Of the matches that end at the same event, " + choice
    query = f"SELECT {strategy} * FROM S WHERE A"
    assert words_of(query)[2:-1] == [choice.format("reported")]
    subject = "Each" if strategy == "MAX" else "It"
    within = "last event of a match are at most 5 positions apart."
    assert words_of(query + " WITHIN 5 EVENTS")[2:-1] == [f"The first and the {within}", choice.format("reported")]
    assert words_of(query + " THEN WITHIN 5 EVENTS")[2:-1] == [
        choice.format("chosen"),
        f"{subject} is reported only if its first and its last event are at most 5 positions apart.",
    ]


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("A -> B", ["1. an A event", "2. later, the next B event"]),
        ("A ; !B ; B", ["1. an A event", "2. later, the next B event"]),
        ("A -> NOT(B)", ["1. an A event", "2. later, the next event that is not a B event"]),
        ("A -> (B OR C)", ["1. an A event", "2. later, the next of these:", "   - a B event", "   - a C event"]),
        (
            "A -> B FILTER B[x > 1]",
            ["1. an A event", "2. later, a B event with x > 1", "   with no B event since the previous step"],
        ),
        ("A -> B ->{2,3}", ["1. an A event", "2. later, the next two to three B events"]),
        ("A ->+", ["one or more consecutive A events"]),
        ("X{3} AS f FILTER f[n > 1]", ["three X events (f) with n > 1, not necessarily consecutive"]),
        ("X ->{3} AS f", ["three consecutive X events (f)"]),
        ("A ; B?", ["1. an A event", "2. later, optionally, a B event"]),
        ("A{2} : B*", ["1. two A events, not necessarily consecutive"]),
        ("A:{2,}", ["two or more A events, at consecutive positions"]),
        ("NOT(A):+", ["one or more events that are not A events, at consecutive positions"]),
        (
            "A AS a ; !(R AS r FILTER r.x = a.x) ; B",
            [
                "1. an A event (a)",
                "2. later, a B event",
                "   with no R event (r) since the previous step, such that r.x = a.x",
            ],
        ),
    ],
)
def test_what_may_be_missing_absent_or_next_has_its_words(pattern, lines):
    assert words_of(f"SELECT * FROM S WHERE {pattern}")[1:-2][: len(lines)] == ["  " + line for line in lines]


@pytest.mark.parametrize(
    ("clauses", "line"),
    [
        (
            "PARTITION BY [k] LIMIT 2 EVERY 90 MINUTES",
            "In any 1 hour 30 minutes, at most the first 2 matches per group are",
        ),
        ("LIMIT 1 EVERY 5 EVENTS", "In any 5 events, at most the first match is"),
    ],
)
def test_limit_every_has_its_words(clauses, line):
    words = words_of(f"SELECT * FROM S WHERE A ; B {clauses}", time_column="ts")
    assert f"{line} reported (LIMIT EVERY)." in words


def test_measures_having_and_lag_have_their_words():
    query = "SELECT a, a.x + 1 AS n, COUNT(b) FROM S WHERE A AS a ; B+ AS b FILTER a[x > LAG(x)] HAVING n > 3 LIMIT 2"
    assert words_of(query)[4:] == [
        "Each row has a.x + 1 as n and COUNT(b).",
        "Only rows with n > 3 are reported (HAVING).",
        "At most 2 that end at the same event are reported (LIMIT).",
        "Each match lists the events of a.",
        "LAG(x) reads the previous event of the stream, whatever its type; NULL if there is none.",
    ]


def test_what_is_over_the_past_is_said():
    text = (
        "SELECT * FROM S WHERE !(R FILTER R[n > 2]) FOR 5 EVENTS ; A AS a ; B AS b FILTER b[m > 3 * "
        "AVG(A.n FILTER n > 0) OVER 2 MINUTES AND COUNT(DISTINCT *.user) OVER 4 EVENTS > a.n] PARTITION BY [k]"
    )
    explained = cer_gpu.compile(text, time_column="ts").explain()
    said = "\n".join(explained.words)
    mean, distinct = "AVG(A.n FILTER n > 0) OVER 2 MINUTES", "COUNT(DISTINCT *.user) OVER 4 EVENTS"
    assert "1. an A event (a) with no R with n > 2 in the 5 EVENTS before it" in said
    assert f"2. later, a B event (b) with m > 3 * {mean}" in said
    assert f"such that {distinct} at b > a.n" in said
    assert f"{mean} at an event covers the A events with n > 0 of its group at most 2 minutes before it" in said
    assert f"{distinct} at an event covers all events of its group at most 4 positions before it" in said
    memory = explained.to_dict()["plan"]["memory"]
    assert "for the absence of R, the time of the last one per partition" in memory
    assert f"for {mean}, the values of its events in that window per partition" in memory
    assert "an absence counted back holds at the beginning of the stream: nothing came before" in str(explained)
