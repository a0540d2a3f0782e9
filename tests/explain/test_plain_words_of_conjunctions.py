"""Patterns with ALL and conjunctive queries in plain words."""

import pytest

from cer_gpu.automaton.normal_form import normal_form
from cer_gpu.automaton.strategies import STRATEGIES
from cer_gpu.ceql.parser import parse
from cer_gpu.explain.plain_words import in_words


def words_of(text):
    parsed = parse(text)
    return in_words(parsed, normal_form(parsed.formula), STRATEGIES[parsed.select.strategy])


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("A ALL B", ["both of these, in any order:", "- an A event", "- a B event"]),
        ("A ALL (B ALL C)", ["all of these, in any order:", "- an A event", "- a B event", "- a C event"]),
        (
            "A ; (B ALL C)",
            ["1. an A event", "2. later, both of these, in any order:", "   - a B event", "   - a C event"],
        ),
        (
            "A ALL (B AS b ; C AS c) FILTER b.x = c.x",
            [
                "both of these, in any order:",
                "- an A event",
                "- 1. a B event (b)",
                "  2. later, a C event (c)",
                "such that b.x = c.x",
            ],
        ),
        (
            "A ALL (B AS b ; C AS c FILTER b.x = c.x)",
            [
                "both of these, in any order:",
                "- an A event",
                "- in this order:",
                "    1. a B event (b)",
                "    2. later, a C event (c)",
                "    such that b.x = c.x",
            ],
        ),
        ("(A ALL B)+", ["one or more times, one after another:", "  both of these, in any order:"]),
    ],
)
def test_operands_of_all_are_a_list(pattern, lines):
    said = words_of(f"SELECT * WHERE {pattern}")[1:-2]
    assert said[: len(lines)] == ["  " + line for line in lines]


def test_a_strategy_chooses_within_the_window():
    words = words_of("SELECT MAX * WHERE A ALL B WITHIN 5 EVENTS")
    assert words[4].startswith("The first and the last event of a match are at most 5 positions apart")
    assert words[5].endswith("are reported (MAX).")


def test_the_head_of_a_conjunctive_query_is_said():
    words = words_of("Q(x, `a b`) <- T(id = x), T(id = x, st.p = `a b`), S(id = x) AS s")
    assert words[1:8] == [
        "  all of these, in any order:",
        "  - a T event",
        "  - a T event (T_2)",
        "  - an S event (s)",
        "  such that T.id = T_2.id",
        "  and T.id = s.id",
        "All matches are reported.",
    ]
    assert words[-1] == "Each match also lists x (id of T) and `a b` (st.p of T_2)."
    assert words_of("Q() <- T(id = x)")[-1] == "Each match lists all of its events."
