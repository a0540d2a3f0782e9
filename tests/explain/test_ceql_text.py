"""Predicates as text: they parse to the same predicate, and stay on one line."""

import pytest
import strategies
from cases import Case

from cer_gpu.automaton.normal_form import normal_form
from cer_gpu.automaton.strategies import STRATEGIES
from cer_gpu.ceql.parser import parse
from cer_gpu.explain.ceql_text import predicate_text
from cer_gpu.explain.plain_words import in_words
from cer_gpu.printable import printable


def reread(text):
    return parse(f"SELECT * FROM S WHERE A FILTER A[{text}]").formula.filter.predicate


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 OR b = 2 AND NOT c = 3",
        "(a = 1 OR b = 2) AND c = 3 AND d = 4",
        "a = 1 OR b = 2 OR c = 3",
        "NOT (a = 1 AND NOT b = 2)",
        "NOT NOT a = 1",
        "a - (b - c) * -(d + 1) / 2 % -(-e) >= 1.50",
        "-(a * b) < 1e3",
        "name LIKE '^it''s [a-z]+$' AND name NOT LIKE '--'",
        "`odd name` IN {1, 2.5, -3} OR `not` NOT IN {'a', ''}",
        "open = TRUE AND NOT open <> FALSE",
        "a IS NULL OR a / b IS NOT NULL AND NOT c IS NOT NULL",
        "b - a <= 5 MINUTES OR c > 1 DAYS 2 HOURS 0.125 SECONDS OR d = -(0 SECONDS)".replace(
            "-(0 SECONDS)", "-0 SECONDS"
        ),
    ],
)
def test_a_predicate_in_plainest_form_is_written_unchanged(text):
    assert predicate_text(reread(text)) == text


@strategies.property_test(0.5)
def test_written_predicates_parse_to_the_same_predicate(data):
    query = Case(data, strategies.predicate_cases()).compiled
    for guard in query._plan.cea.guards:
        if guard.predicate is not None:
            assert reread(predicate_text(guard.predicate)) == guard.predicate


def test_control_and_direction_characters_are_escaped():
    hostile = "a\nb\r\x1b[31m\u202e\u2028\ud800\xa0é漢"
    assert printable(hostile) == r"a\nb\r\x1b[31m\u202e\u2028\ud800\xa0é漢"


@pytest.mark.parametrize(
    "text", ["y.p > x.st.q", "FIRST(x).p < LAST(x).p", "x.p - PREV(x).p > y.p", "`y z`.p = x.`a b`"]
)
def test_a_filter_between_events_is_written_unchanged(text):
    where = "A+ AS x ; B AS y ; C AS `y z`"
    assert predicate_text(parse(f"SELECT * FROM S WHERE {where} FILTER {text}").formula.filter.predicate) == text


def test_join_predicates_come_after_what_they_filter():
    syntax = parse("SELECT * FROM S WHERE A AS x ; (B AS y FILTER y.p > x.p)+ FILTER LAST(y).q = x.q WITHIN 2 DAYS")
    assert in_words(syntax, normal_form(syntax.formula), STRATEGIES["ALL"])[:7] == [
        "Look in S for:",
        "  1. an A event (x)",
        "  2. later, one or more times, one after another:",
        "       a B event (y)",
        "       such that y.p > x.p",
        "  such that LAST(y).q = x.q",
        "The first and the last event of a match are at most 2 days apart.",
    ]
