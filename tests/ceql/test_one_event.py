"""Which tests can be true of one event: types, ``*``, streams, NOT."""

from __future__ import annotations

import itertools

import pytest

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.one_event import NameTest, are_apart, may_be_one, name_test
from cer_gpu.ceql.parser import parse

A, B, ANY = Guard("A"), Guard("B"), Guard(None)
A_OF_S, A_OF_T, ANY_OF_T = Guard("A", None, "S"), Guard("A", None, "T"), Guard(None, None, "T")


def guard_of(event_type, text):
    formula = parse(f"SELECT * FROM S WHERE A FILTER A[{text}]").formula
    return Guard(event_type, next(s.variable_filters(formula.filter)).predicate)


LARGE, SMALL, ANY_LARGE = guard_of("A", "x > 3"), guard_of("A", "x < 3"), guard_of(None, "x > 3")


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ([], True),
        ([A], True),
        ([A, A], True),
        ([A, B], False),
        ([A, ANY], True),
        ([ANY, ANY], True),
        ([A, ANY, B], False),
        ([A, A_OF_S], True),
        ([A_OF_S, A_OF_T], False),
        ([A_OF_S, ANY_OF_T], False),
        ([A_OF_T, ANY_OF_T], True),
        ([LARGE, SMALL], True),  # predicates are not compared
        ([LARGE, B], False),
        ([ANY_LARGE, B], True),
    ],
)
def test_types_and_streams_rule_one_event_out(tests, expected):
    for order in itertools.permutations(tests):
        assert may_be_one((test, False) for test in order) is expected


@pytest.mark.parametrize(
    ("satisfied", "failed", "expected"),
    [
        ([], [A], True),
        ([A], [A], False),
        ([A], [B], True),
        ([A], [A_OF_S], True),
        ([A_OF_S], [A], False),
        ([ANY], [A], True),
        ([A], [ANY], False),
        ([], [ANY], False),  # NOT(*)
        ([], [ANY_OF_T], True),
        ([LARGE], [A], False),
        ([LARGE], [ANY_LARGE], False),
        ([LARGE], [guard_of("A", "x > 3")], False),
        ([LARGE], [SMALL], True),
        ([A], [LARGE], True),
    ],
)
def test_not_rules_out_what_satisfies_its_event(satisfied, failed, expected):
    tests = [*((test, False) for test in satisfied), *((test, True) for test in failed)]
    assert may_be_one(tests) is may_be_one(tests[::-1]) is expected


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], True),
        ([[A, ANY]], True),
        ([[A], [B]], True),
        ([[A, LARGE], [B]], True),
        ([[A], [SMALL]], False),
        ([[A], [B], [ANY]], False),
        ([[ANY], [B]], False),
        ([[A_OF_S, B], [A_OF_T]], True),
        ([[A_OF_S], [ANY_OF_T], [B]], False),
    ],
)
def test_groups_are_apart_if_no_event_is_of_two(groups, expected):
    assert are_apart(groups) is are_apart(groups[::-1]) is expected
    assert expected is all(
        not may_be_one(((one, False), (other, False)))
        for some, others in itertools.combinations(groups, 2)
        for one, other in itertools.product(some, others)
    )


def test_a_name_is_a_test_of_type_and_stream():
    assert name_test(s.Name("A", "S")) == NameTest("A", "S")
    assert name_test(s.Name("*")) == NameTest(None)
