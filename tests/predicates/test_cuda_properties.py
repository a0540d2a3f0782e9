"""Random queries on the CUDA kernels, built by g++ for the CPU, give the results of the definitions."""

from __future__ import annotations

import join_strategies
import pytest
import strategies
from cases import Case, pushed, rows_of
from host_device import Build, HostDevice, has_compiler
from small_sizes import small_sizes

from cer_gpu.predicates import guards as predicates
from cer_gpu.predicates import placement


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    if not has_compiler():
        pytest.skip("g++ is not installed: it builds the kernels for the host")
    return Build(tmp_path_factory.mktemp("kernels"), "-fsanitize=undefined", "-fno-sanitize-recover=all")


@strategies.property_test(0.02)
def test_predicates_match_the_definitions(data, build):
    evaluate(Case(data, strategies.predicate_cases()), build)


@strategies.property_test(0.02)
def test_arithmetic_matches_the_definitions(data, build):
    evaluate(Case(data, strategies.arithmetic_cases()), build)


@strategies.property_test(0.02)
def test_queries_match_the_definitions(data, build):
    case = Case(data, strategies.cases())
    with small_sizes():
        evaluate(case, build)


@strategies.property_test(0.02)
def test_filters_between_events_match_the_definitions(data, build):
    case = Case(data, join_strategies.join_cases())
    with small_sizes():
        evaluate(case, build)


def evaluate(case, build):
    expected = case.expected()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "missing", lambda: None)
        patch.setattr(predicates, "open_device", lambda: HostDevice(build))
        assert sorted(rows_of(pushed(case.compiled, case.batches, device="cuda"))) == sorted(expected)
