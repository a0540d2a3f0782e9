"""Requirements on every result of a random case, and what its definition leaves to choose."""

from __future__ import annotations

import itertools

import arrow_streams
import pyarrow as pa
import reference as ref
from cases import MAX_VALUATIONS, bound_rows_of, counts_of, plain, rows_of
from hypothesis import assume
from hypothesis import strategies as st


def assert_columns(case, answer, output):
    """Check names, types and the order by end, and that times and keys are those of the events."""
    answer.validate(full=True)
    spans = {"count": ["end", "count"], "ends": ["end"]}.get(output, ["start", "end", "positions"])
    ends = ["end"] if output in ("count", "ends") else ["start", "end"]
    times = [f"{name}_time" for name in ends] if case.time_column else []
    keys = [names[0] for names in case.query.partition_by]
    more = {"bindings": list(ref.bound_variables(case.query)), "events": ["events"]}.get(output, [])
    assert answer.column_names == [*spans, *times, *keys, *more]
    positions = pa.list_(pa.int64())
    for name in spans:
        assert answer.schema.field(name).type == (positions if name == "positions" else pa.int64())
    several = ref.variables_of_several(case.query.formula)[0]
    for name in more if output == "bindings" else []:
        one_event = [] if name.rpartition(">")[2] in several else [pa.int64()]
        assert answer.schema.field(name).type in [positions, *one_event]
    found_ends = answer["end"].to_pylist()
    assert found_ends == sorted(found_ends)
    for time, at in zip(times, ends, strict=True) if times else ():
        stamps = case.whole[case.time_column]
        assert answer[time].type == stamps.type
        assert answer[time].to_pylist() == stamps.take(answer[at]).to_pylist()
    for names in case.query.partition_by:
        columns = [arrow_streams.column(case.whole, name) for name in names]
        values = list(zip(*(column.to_pylist() for column in columns), strict=True))
        expected = [next(value for value in values[end] if value is not None) for end in found_ends]
        if columns[0].type == columns[-1].type and not holds_strings(columns[0].type):
            assert answer[names[0]].type == columns[0].type
        assert plain(answer[names[0]].to_pylist()) == plain(expected)


def holds_strings(type_):
    """Return True for a layout of strings, which results need not keep."""
    return pa.types.is_dictionary(type_) or pa.types.is_string(type_) or pa.types.is_large_string(type_)


def assert_rows(answer):
    """Check that no row comes twice, and that positions ascend inside each interval."""
    for start, end, positions in rows_of(answer):
        assert all(a < b for a, b in itertools.pairwise([start - 1, *positions, end + 1]))


def assert_events(case, answer):
    """Check that the structs are the input rows at the kept positions, with the attributes that SELECT names."""
    names = ref.selected_attributes(case.query)
    assert pa.types.is_list(answer["events"].type)
    assert pa.types.is_struct(answer["events"].type.value_type)
    rows = case.whole.to_pylist()
    for found, positions in zip(answer["events"].to_pylist(), answer["positions"].to_pylist(), strict=True):
        for event, p in zip(found, positions, strict=True):
            # all attributes of merged events may include their stream
            assert event.pop(ref.STREAM, case.events[p][ref.STREAM]) == case.events[p][ref.STREAM]
            assert plain(event) == plain({name: ref.attribute(rows[p], name) for name in names or rows[p]})


def candidates_of(case, output, long=False):
    """Return, by brute force, all rows, from which LIMIT and ANY choose."""
    if output == "bindings":
        return case.candidates(ref.bindings_long if long else ref.bindings)
    return case.candidates(ref.evaluate_long if long else ref.evaluate)


def assert_right(case, candidates, answer, output):
    """Check that the answer is that of the definitions, or with LIMIT or ANY one of those that they allow."""
    assert_columns(case, answer, output)
    if output == "count":
        assert counts_of(answer) == ref.counts_of(case.query, candidates)
        return
    if output == "ends":
        assert answer["end"].to_pylist() == [end for end, _ in ref.counts_of(case.query, candidates)]
        return
    assert_rows(answer)
    found = bound_rows_of(answer, ref.bound_variables(case.query)) if output == "bindings" else rows_of(answer)
    if case.query.limit is None and case.query.strategy != "ANY":
        assert sorted(found) == candidates
    assert ref.is_choice(case.query, candidates, found)
    if output == "events":
        assert_events(case, answer)


def with_and_without_checkpoints(data, case, output):
    """Return the results batch by batch with a checkpoint before some of the batches, and those without."""
    batches = case.batches
    stops = data.draw(st.sets(st.integers(0, len(batches)), min_size=1), label="checkpoints before")
    evaluator, resumed = case.compiled.evaluator(output=output), case.compiled.evaluator(output=output)
    without, with_ = [], []
    for k in range(len(batches) + 1):
        if k in stops:
            blob = resumed.checkpoint()
            assert isinstance(blob, bytes)
            resumed = case.compile().restore(blob)
        for one, answers in ((evaluator, without), (resumed, with_)):
            answers.append(one.push(batches[k]) if k < len(batches) else one.finish())
    assert resumed.n_events == evaluator.n_events == len(case.events)
    assert resumed.n_matches == evaluator.n_matches
    return pa.Table.from_batches(with_), pa.Table.from_batches(without)


def survivors_of(case):
    """Return the complex events that the window and the absence leave, before anything chooses."""
    every = ref.replace(case.query, strategy="ALL", limit=None)
    try:
        return ref.evaluate(every, case.events, MAX_VALUATIONS)
    except ref.TooLarge:
        assume(False)


def assert_right_in_time(case, candidates, answer, output):
    """Check the rows, and that they come by moment, then by end and start."""
    by_end = answer.take(pa.compute.sort_indices(answer["end"])) if answer.num_rows else answer
    assert_right(case, candidates, by_end, output)
    moments = ref.moments(case.query, case.events, survivors_of(case))
    if output in ("count", "ends"):
        latest: dict[int, int] = {}
        for (_, end), moment in moments.items():
            latest[end] = max(moment, latest.get(end, 0))
        order = [(latest[end], end) for end in answer["end"].to_pylist()]
    else:
        spans = zip(answer["start"].to_pylist(), answer["end"].to_pylist(), strict=True)
        order = [(moments[span], *reversed(span)) for span in spans]
    assert order == sorted(order)
