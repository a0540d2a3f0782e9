"""Predicates as text: they parse to the same predicate, and stay on one line."""

import pytest
import strategies
from cases import Case

from cer_gpu.ceql.parser import parse
from cer_gpu.explain.writing import predicate_text, printable


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
