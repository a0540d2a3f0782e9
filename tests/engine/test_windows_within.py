"""Local windows, EACH STEP, UNTIL and absences with FOR, compared with the definitions.

CER_GPU_EXAMPLES scales the number of random cases of each property; `make test-long` runs many.
"""

from __future__ import annotations

import itertools

import pytest
import rest_strategies as rest
import step_strategies as steps
import strategies
from answers import assert_right, assert_right_in_time, candidates_of, with_and_without_checkpoints
from cases import Case, assert_same, pushed, rows_of
from hypothesis import strategies as st

OUTPUTS = ("positions", "bindings", "events", "count", "ends")


@pytest.mark.parametrize("related", [False, True], ids=["single events", "filters between events"])
@pytest.mark.parametrize("shape", steps.SHAPES)
@strategies.property_test(0.07)
def test_windows_within_a_pattern_give_the_rows_of_the_reference(shape, related, data):
    choosing = data.draw(st.integers(0, 3), label="choosing") == 3
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    case = Case(data, steps.cases(shape, related, choosing=choosing, ambiguous=output == "bindings"))
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right(case, candidates, answer, output)
    assert_same(pushed(case.compiled, case.batches, output=output), answer)
    assert_same(*with_and_without_checkpoints(data, case, output))


@pytest.mark.parametrize("strategy", rest.COMPARING)
@strategies.property_test(0.05)
def test_strategies_choose_among_what_the_windows_leave(strategy, data):
    case = Case(data, steps.cases(strategies=(strategy,)))
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    candidates = candidates_of(case, output)
    assert_right(case, candidates, case.compiled.evaluate(case.table, output=output), output)


@strategies.property_test(0.07)
def test_threads_and_shares_give_the_rows_of_one(data):
    case = Case(data, steps.cases())
    expected = case.expected()
    assert sorted(rows_of(case.compiled.evaluate(case.table, threads=2))) == expected
    parts = [rows_of(case.compiled.evaluate(case.table, share=(k, 2))) for k in range(2)]
    assert sorted(itertools.chain.from_iterable(parts)) == expected


@pytest.mark.parametrize("related", [False, True], ids=["single events", "filters between events"])
@pytest.mark.parametrize("output", ["positions", "bindings", "count", "ends"])
@strategies.property_test(0.07)
def test_absence_for_a_time_gives_the_reference(output, related, data):
    choosing = data.draw(st.integers(0, 3), label="choosing") == 3
    case = Case(data, steps.lasting_cases(related, choosing))
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right_in_time(case, candidates, answer, output)
    assert_same(pushed(case.compiled, case.batches, output=output), answer)
    assert_same(*with_and_without_checkpoints(data, case, output))
