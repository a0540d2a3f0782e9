"""The output "progress": how far each start of a chain gets, compared with the definition, in any cut, set and order."""

from __future__ import annotations

import functools
from dataclasses import replace

import pyarrow as pa
import pytest
import reference as ref
import reference_progress as reference
import rest_strategies as rest
import strategies
from answers import with_and_without_checkpoints
from cases import Case, CaseOfStreams, assert_same, plain, pushed
from hypothesis import strategies as st
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.errors import OptionError


def is_positive(formula):
    return not any(isinstance(part, ref.Not) for part in ref.descendants(formula))


steps = rest.single_events(rest.Scope(), False).filter(is_positive)


@st.composite
def chains(draw):
    """Draw a chain of one to five steps, with arrows, absences and counted repetitions."""
    formula = draw(steps)
    for _ in range(draw(st.sampled_from([2, 1, 3, 0, 4]))):
        shape = draw(st.sampled_from(["seq", "seq", "next", "absent", "absent", "times"]))
        right = draw(steps)
        if shape == "times":
            right = ref.Times(right, *[draw(st.integers(1, 2))] * 2, draw(st.sampled_from([";", "->"])))
        if shape == "next":
            formula = ref.Next(formula, right)
        else:
            formula = ref.Seq(formula, right, draw(rest.absences(rest.Scope(), False)) if shape == "absent" else ())
    return formula


@st.composite
def cases(draw, stream_for=strategies.streams):
    query = draw(strategies.queries(formula=chains(), conditions=strategies.likely_conditions))
    query = replace(query, partition_by=draw(st.just(()) | strategies.partition_keys()))
    stream = draw(stream_for(query, 30))
    return query, [{**event, ref.STREAM: query.streams[0]} for event in stream]


def rows_of(table):
    columns = (table[name].to_pylist() for name in ("positions", "stopped", "barred_by"))
    return [reference.Progress(tuple(p), stopped, by) for p, stopped, by in zip(*columns, strict=True)]


def assert_right(case, answer):
    """Check the rows, and that steps, times and keys are those of the positions."""
    answer.validate(full=True)
    assert rows_of(answer) == reference.progress(case.query, case.events)
    positions = answer["positions"].to_pylist()
    assert answer["start"].to_pylist() == [p[0] for p in positions]
    assert answer["step"].to_pylist() == [len(p) for p in positions]
    if case.time_column:
        stamps = case.whole[case.time_column]
        assert answer.schema.field("times").type == pa.list_(stamps.type)
        assert answer["times"].to_pylist() == [stamps.take(pa.array(p)).to_pylist() for p in positions]
    keys = [ref.partition_key(case.query, case.events[p[0]]) for p in positions]
    for k, names in enumerate(case.query.partition_by):
        assert len(answer[names[0]]) == len(keys)
        groups = {}
        for key, value in zip(keys, plain(answer[names[0]].to_pylist()), strict=True):
            assert groups.setdefault(key[k], value) == value


@strategies.property_test(1)
def test_progress_is_that_of_the_definition_in_any_cut(data):
    case = Case(data, cases())
    answer = case.compiled.evaluate(case.whole, output="progress")
    assert_right(case, answer)
    assert_same(pushed(case.compiled, case.batches, output="progress"), answer)
    assert_same(case.compiled.evaluate(case.table, output="progress", threads=2), answer)


@strategies.property_test(0.5)
def test_checkpoints_and_small_sizes_give_the_same(data):
    case = Case(data, cases())
    answer = case.compiled.evaluate(case.whole, output="progress")
    with small_sizes():
        assert_same(*with_and_without_checkpoints(data, case, "progress"))
        assert_same(pushed(case.compiled, case.batches, output="progress"), answer)


@strategies.property_test(0.3)
def test_shares_deal_the_starts(data):
    case = Case(data, cases())
    n = data.draw(st.integers(2, 3), label="shares")
    whole = rows_of(case.compiled.evaluate(case.whole, output="progress"))
    for k in range(n):
        with small_sizes():
            part = case.compiled.evaluate(case.table, output="progress", share=(k, n))
        assert rows_of(part) == whole[k::n]
