"""States, ends and waiting times are those of the definition, for any stream and any cut of it."""

import importlib.util
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import scaled

import cer_gpu
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.forecast.estimates import ended_within, observed_within
from cer_gpu.forecast.reading import StateForm, StateReader, follow_all
from cer_gpu.forecast.wait_counts import StateNumbers, WaitCounter
from cer_gpu.runtime.reading.symbols import NO_EVENTS

_spec = importlib.util.spec_from_file_location("forecast_reference", Path(__file__).with_name("reference.py"))
ref = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ref)

CHAINS = {
    "A ; B": [({"A"}, set()), ({"B"}, set())],
    "A ; B ; C": [({"A"}, set()), ({"B"}, set()), ({"C"}, set())],
    "A ; A ; B": [({"A"}, set()), ({"A"}, set()), ({"B"}, set())],
    "A ; !(D) ; B ; C": [({"A"}, set()), ({"B"}, {"D"}), ({"C"}, set())],
    "A ; !(B) ; (B OR C) ; C": [({"A"}, set()), ({"B", "C"}, {"B"}), ({"C"}, set())],
    "A{2} ; !(A) ; C": [({"A"}, set()), ({"A"}, set()), ({"C"}, {"A"})],
    "A ; B+ ; C": [({"A"}, set()), ({"B"}, set()), ({"C"}, set())],
    "A": [({"A"}, set())],
}
TYPES = "ABCD"
streams = st.lists(
    st.tuples(st.sampled_from(TYPES), st.sampled_from(["x", "y", None]), st.integers(0, 3)), min_size=1, max_size=14
)

sized = settings(max_examples=scaled(300))


def events_of(drawn):
    ts = np.cumsum([step for *_, step in drawn]).tolist()
    return [{"type": t, "key": k, "ts": at} for (t, k, _), at in zip(drawn, ts, strict=True)]


def table_of(events):
    return pa.Table.from_pylist(events, schema=pa.schema({"type": pa.string(), "key": pa.string(), "ts": pa.int64()}))


def compiled(pattern, window):
    text = f"SELECT * FROM S WHERE {pattern} PARTITION BY [key] WITHIN {window} [ts]"
    return cer_gpu.compile(text, time_column="ts")


def pieces(events, cuts):
    table = table_of(events)
    bounds = sorted({0, len(events), *(cut for cut in cuts if cut < len(events))})
    return [batch for a, b in pairwise(bounds) for batch in table.slice(a, b - a).to_batches()]


def read(query, batches, order=2, ages=3):
    """Return a row for each event: position, partition, time, its state in types, and True where a match ends."""
    rows = []

    def note(events):
        names = [None, *(type_of(query, word) for word in reader.words)]
        for i, position in enumerate(events.reported.tolist()):
            step, age, last = reader.form.parts(int(events.states[i]))
            shown = step, age, tuple(names[symbol] for symbol in last)
            rows.append((position, int(events.partitions[i]), int(events.times[i]), shown, bool(events.ends[i])))
        return NO_EVENTS

    reader = StateReader(query, StateForm(order, ages, 1.0), note, grows=True)
    follow_all({"": reader}, query._open_source(batches), EvaluationOptions())
    return rows


def type_of(query, word):
    """Return the type that an event with these guards has; of one that satisfies none, "D" or "other"."""
    types = {guard.event_type for i, guard in enumerate(query._plan.guards) if word >> i & 1}
    return next(iter(types), "other")


def named(last, query):
    known = {guard.event_type for guard in query._plan.guards}
    return tuple(each if each is None or each in known else "other" for each in last)


@pytest.mark.parametrize("pattern", CHAINS)
@sized
@given(streams, st.integers(0, 9), st.lists(st.integers(1, 13), max_size=3))
def test_states_and_ends_are_those_of_the_definition_for_any_cut(pattern, drawn, window, cuts):
    events, query = events_of(drawn), compiled(pattern, window)
    expected = []
    for own in ref.substreams(events).values():
        substream = [events[i] for i in own]
        at = ref.ends(substream, CHAINS[pattern], window)
        for now, position in enumerate(own):
            step, age, last = ref.state(substream, CHAINS[pattern], now, window, 3, 2)
            expected.append((position, (step, age, named(last, query)), now in at))
    found = read(query, pieces(events, cuts))
    assert [(position, shown, end) for position, _, _, shown, end in found] == sorted(expected)
    assert {position for position, *_, end in found if end} == set(
        query.evaluate(table_of(events), output="ends")["end"].to_pylist()
    )


@sized
@given(streams, st.integers(0, 13))
def test_a_state_does_not_depend_on_what_comes_after(drawn, cut):
    events, query = events_of(drawn), compiled("A ; B ; C", 6)
    whole = [row[:4] for row in read(query, pieces(events, []))]
    before = [row[:4] for row in read(query, pieces(events[: cut + 1], []))]
    assert before == [row for row in whole if row[0] <= cut]


@pytest.mark.parametrize("asked", [([3, 7], [2, 5]), ([3, 7], []), ([], [2, 5])])
@sized
@given(streams, st.lists(st.integers(1, 13), max_size=3))
def test_waiting_times_are_counted_as_the_definition_says(asked, drawn, cuts):
    events, query = events_of(drawn), compiled("A ; B", 6)
    if all(event["key"] is None for event in events):
        return
    edges = [np.array(each, np.int64) for each in asked]
    numbers, counter = StateNumbers(), WaitCounter(*edges)
    counter._nodes = type(counter._nodes)(*(each[-4:].copy() for each in counter._nodes))  # little room, to grow
    counter._nodes.links[:, 1] = [1, 2, 3, -1]
    states = {}

    def count(followed):
        counter.add(followed, numbers.number(followed.states), len(numbers))
        states.update(zip(followed.reported.tolist(), followed.states.tolist(), strict=True))
        return NO_EVENTS

    reader = StateReader(query, StateForm(1, 2, 1.0), count, grows=True)
    follow_all({"": reader}, query._open_source(pieces(events, cuts)), EvaluationOptions())
    counts = counter.finish(numbers.codes)
    last = max(events[position]["ts"] for position in states)
    of_state = {}
    for own in ref.substreams(events).values():
        substream = [events[i] for i in own]
        at = ref.ends(substream, CHAINS["A ; B"], 6)
        for position, waited in zip(own, ref.waits(substream, at, last), strict=True):
            of_state.setdefault(states[position], []).append(waited)
    assert sorted(of_state) == sorted(counts.states.tolist())
    for kind, (seen, cut), bounds in (("time", counts.of("time"), asked[0]), ("events", counts.of("events"), asked[1])):
        ended, known = ended_within(seen, cut), observed_within(seen, cut)
        for row, code in enumerate(counts.states.tolist()):
            waited = [each[kind == "events"] for each in of_state[code]]
            was_seen = [each[2] for each in of_state[code]]
            assert ended[row].tolist() == pytest.approx(ref.life_table(waited, was_seen, bounds))
            expected = [sum(s or w > edge for w, s in zip(waited, was_seen, strict=True)) for edge in bounds]
            assert known[row].tolist() == expected
