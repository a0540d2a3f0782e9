"""Results beside those that a case expects."""

import datetime
import decimal
import itertools
import random

import pytest
from sizes import seeds

from cer_gpu.rule_tests.case_runner import different_count, different_positions, different_rows, is_as_expected, too_few

TEMPORAL = datetime.datetime(2024, 5, 14, 17, 30, tzinfo=datetime.UTC)
EQUAL = [
    (1, 1.0),
    (0.1 + 0.2, 0.3),
    (1, decimal.Decimal("1.00")),
    (float("nan"), float("nan")),
    (None, None),
    ({"a": 1}, {"a": 1, "b": 2}),
    ([{"a": 1}, {}], [{"a": 1, "b": 2}, {"c": 3}]),
    ("2024-05-14T17:30:00", TEMPORAL.replace(tzinfo=None)),
    (TEMPORAL.replace(tzinfo=None), TEMPORAL),
    (datetime.date(2024, 5, 14), datetime.date(2024, 5, 14)),
]
DIFFERENT = [
    (1, True),
    (True, 1),
    (None, 0),
    (1, "1"),
    ("1", 1),
    ({"a": 1}, {"b": 1}),
    ({"a": None}, {}),
    ([1], [1, 2]),
    ([1, 2], [2, 1]),
    ("noon", TEMPORAL),
    (TEMPORAL, "2024"),
    (float("nan"), 1.0),
]


@pytest.mark.parametrize(("wanted", "found"), EQUAL)
def test_values_that_are_as_expected(wanted, found):
    assert is_as_expected(wanted, found)


@pytest.mark.parametrize(("wanted", "found"), DIFFERENT)
def test_values_that_are_not(wanted, found):
    assert not is_as_expected(wanted, found)


def test_the_order_of_matches_does_not_matter_and_how_often_one_is_there_does():
    assert different_positions([[1, 2], [0]], [[0], [1, 2]]) == []
    assert different_positions([[0], [0]], [[0], [1]]) == [
        "expected other positions",
        "  missing: [0]",
        "  unexpected: [1]",
    ]
    assert different_positions([], [[0]])[0] == "expected no match, got 1 match"


def test_rows_are_compared_in_the_columns_that_are_named():
    got = [{"n": 1, "end": 3}, {"n": 2, "end": 4}]
    assert different_rows([{"n": 2}, {"end": 3}], got) == []
    assert different_rows([{"n": 2}], got) == ["expected 1 match, got 2 matches", "  unexpected: n = 1"]


def test_a_count_that_differs_shows_the_rows():
    assert different_count(2, [{}, {}]) == []
    assert different_count(0, [{"end": n} for n in range(7)])[-2:] == ["  got: end = 4", "  and 2 more got"]


def test_a_least_number_is_passed_by_more():
    assert too_few(2, [{"end": 1}] * 3) == too_few(2, [{}, {}]) == []
    assert too_few(2, [{"end": 4}]) == ["expected at least 2 matches, got 1 match", "  got: end = 4"]


@pytest.mark.parametrize("seed", seeds(100))
def test_as_many_rows_as_can_be_have_a_partner(seed):
    """Rows that name few columns fit several: those that are missing are as few as the best choice leaves."""
    draw = random.Random(seed)
    columns = ("a", "b")
    got = [{name: draw.randrange(3) for name in columns} for _ in range(draw.randrange(5))]
    wanted = [{name: draw.randrange(3) for name in columns if draw.random() < 0.6} for _ in range(draw.randrange(5))]
    choices = itertools.permutations([*got, *([None] * len(wanted))], len(wanted))
    best = max(sum(map(is_as_expected, wanted, chosen)) for chosen in choices)
    lines = different_rows(wanted, got)
    assert (lines == []) == (best == len(wanted) == len(got))
    assert sum(line.startswith("  missing") for line in lines) == len(wanted) - best
