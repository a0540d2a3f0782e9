"""Streams across micro-batches without Spark: order, state, packed rows."""

import datetime as dt
import random

import numpy as np
import pyarrow as pa
import pytest
from sizes import seeds
from spark_streams import US, all_types

import cer_gpu
from cer_gpu.rules import Rule, compile_rules
from spark_glue.stage import plain_schema
from spark_glue.streaming.stream_evaluation import Pack, StreamEvaluation, Unpack, in_order, microseconds, packed_state
from spark_glue.work import work_of


def shown(table):
    return [repr(row) for row in table.to_pylist()]


# ---- order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", seeds(20))
def test_the_order_does_not_depend_on_the_order_of_arrival(number):
    rng = random.Random(number)
    events = all_types(rng, rng.choice([0, 1, 2, 40]))
    times = pa.array([rng.randint(0, 8) for _ in range(len(events))], US)
    events = events.add_column(0, "ts", times).append_column("type", pa.array(rng.choices("AB", k=len(events))))
    order = rng.choice([["ts"], ["ts", "f64"], ["ts", "text", "i8"]])
    found = in_order(events, order)
    assert sorted(shown(found)) == sorted(shown(events))
    assert found["ts"].to_pylist() == sorted(times.to_pylist())
    mixed = events.take(pa.array(rng.sample(range(len(events)), len(events)), pa.int64()))
    cut = rng.randint(0, len(events))
    mixed = pa.concat_tables([mixed.slice(0, cut), mixed.slice(cut)])
    assert shown(in_order(mixed, order)) == shown(found)


def test_further_columns_are_ordered_as_spark_orders():
    values = [1.0, float("nan"), None, -0.0, 0.0, float("-inf"), float("inf")]
    events = pa.table({"ts": pa.array([5] * 7, US), "x": values, "n": pa.array([6, 5, 4, 1, 0, 2, 3])})
    found = in_order(events, ["ts", "x"])
    assert [str(x) for x in found["x"].to_pylist()] == ["None", "-inf", "-0.0", "0.0", "1.0", "inf", "nan"]
    # -0.0 and 0.0 agree in the order, so that the next column decides
    assert in_order(events, ["ts", "x", "n"])["n"].to_pylist() == [4, 2, 0, 1, 6, 3, 5]


def test_events_in_order_are_not_copied():
    events = pa.table({"ts": pa.array(range(5), US)})
    assert in_order(events, ["ts"]) is events


# ---- state -----------------------------------------------------------------------------------------------------

CASES = [
    ("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 3 SECONDS", "events"),
    ("SELECT * FROM S WHERE A ; !B PARTITION BY [k] WITHIN 3 SECONDS", "positions"),
    ("SELECT * FROM S WHERE A ; B ; C WITHIN 4 EVENTS", "bindings"),
    ("SELECT * FROM S WHERE A ; B WITHIN 2 SECONDS", "count"),
]


EVENTS = pa.schema([("type", pa.string()), ("ts", US), ("k", pa.int32())])


def evaluation_of(query, output, lateness, groups=1):
    work = work_of(query, output)
    return StreamEvaluation(work, plain_schema(work.output_schema(EVENTS)), ("ts",), lateness, groups)


def random_events(rng, n=200, seconds=60):
    times = sorted(rng.sample(range(seconds * 10**6), n))
    return pa.table(
        {
            "type": pa.array(rng.choices("AABC", k=n)),
            "ts": pa.array(times, US),
            "k": pa.array(rng.choices([1, 2, 3, None], k=n), pa.int32()),
        }
    )


def jumbled(rng, events, by):
    times = events["ts"].cast(pa.int64()).to_pylist()
    return events.take([i for _, i in sorted((t + rng.randint(0, by), i) for i, t in enumerate(times))])


@pytest.mark.parametrize("number", seeds(24))
def test_micro_batches_find_what_one_evaluation_finds(number):
    rng = random.Random(number)
    text, output = CASES[number % len(CASES)]
    query, events = cer_gpu.compile(text, time_column="ts"), random_events(rng)
    expected = query.evaluate(events, output=output)
    assert expected.num_rows > 5
    evaluation = evaluation_of(query, output, microseconds("2s"))
    arrived, stream, found, row = jumbled(rng, events, 2_000_000), evaluation.begin(), [], 0
    while row < len(events):
        n = rng.randint(0, 30)
        found += stream.push(arrived.slice(row, n))
        row += n
        if rng.random() < 0.5:
            found += stream.advance_by_events()
        if rng.random() < 0.5:
            stream = evaluation.resume(stream.to_bytes())
    while (due := stream.next_deadline) is not None:
        found += stream.advance_watermark(due)
    assert stream.n_late == 0
    table = pa.Table.from_batches(found)
    if output == "bindings":  # windows of events end only with events
        expected = expected.slice(0, len(table))
        assert len(table) > 5
    assert shown(table.cast(expected.schema)) == shown(expected)


@pytest.mark.parametrize("number", seeds(4))
def test_micro_batches_of_a_set_find_what_its_queries_find(number):
    rng = random.Random(number)
    queries = cer_gpu.compile_all({f"q{i}": text for i, (text, _) in enumerate(CASES)}, time_column="ts")
    events = random_events(rng)
    evaluation = evaluation_of(queries, None, microseconds("2s"))
    arrived, stream, found, row = jumbled(rng, events, 2_000_000), evaluation.begin(), [], 0
    while row < len(events):
        n = rng.randint(0, 30)
        found += [*stream.push(arrived.slice(row, n)), *stream.advance_by_events()]
        row += n
        if rng.random() < 0.5:
            stream = evaluation.resume(stream.to_bytes())
    while (due := stream.next_deadline) is not None:
        found += stream.advance_watermark(due)
    table = pa.Table.from_batches(found)
    for name, expected in queries.evaluate(events).items():
        own = table.filter(pa.compute.equal(table["query"], name)).select(expected.column_names)
        own = own.cast(expected.schema)
        assert len(own) > 5
        if name == "q2":  # windows of events end only with events
            expected = expected.slice(0, len(own))
        assert shown(own) == shown(expected)


RULES = {
    "keyed": Rule("keyed", CASES[0][0], level="high", techniques=("T1",)),
    "silent": Rule("silent", CASES[1][0], level="low", id="1"),
    "sequence": Rule("sequence", "sequence by k with maxspan=3s [A where true] [B where true]", "eql", tags=("t",)),
    "missing": Rule("missing", "A where no.such.field == null and k == 1", "eql"),
}


@pytest.mark.parametrize("number", seeds(3))
def test_micro_batches_of_rules_raise_the_alerts_of_one_evaluation(number):
    rng = random.Random(number)
    options = {"time_column": "ts", "type_column": "type", "missing_fields": "null"}
    rules, events = compile_rules(RULES, **options), random_events(rng)
    evaluation = evaluation_of(rules, "alerts", microseconds("2s"))
    arrived, stream, found, row = jumbled(rng, events, 2_000_000), evaluation.begin(), [], 0
    while row < len(events):
        n = rng.randint(0, 30)
        found += [*stream.push(arrived.slice(row, n)), *stream.advance_by_events()]
        row += n
        if rng.random() < 0.5:
            stream = evaluation.resume(stream.to_bytes())
    while (due := stream.next_deadline) is not None:
        found += stream.advance_watermark(due)
    table, expected = pa.Table.from_batches(found), rules.alerts(events)
    assert min(table["rule"].to_pylist().count(name) for name in RULES) > 5
    assert sorted(shown(table)) == sorted(shown(expected.cast(table.schema)))


def test_events_are_late_by_the_lateness_or_the_watermark():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B", time_column="ts")
    stream = evaluation_of(query, "positions", microseconds("2s")).begin()

    def pushed(kind, seconds):
        return sum(f.num_rows for f in stream.push(pa.table({"type": [kind], "ts": pa.array([seconds * 10**6], US)})))

    pushed("A", 10)
    pushed("A", 7)
    assert stream.n_late == 1
    list(stream.advance_watermark(9_500_000))
    pushed("A", 9)
    assert stream.n_late == 2
    pushed("B", 12)
    assert sum(found.num_rows for found in stream.advance_watermark(12_000_000)) == 1


def test_a_stream_of_other_options_is_refused():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B", time_column="ts")
    blob = evaluation_of(query, "positions", 1, 4).begin(3).to_bytes()
    with pytest.raises(cer_gpu.CheckpointError, match=r"with groups=4, and this one has groups=5"):
        evaluation_of(query, "positions", 1, 5).resume(blob, 3)
    with pytest.raises(cer_gpu.CheckpointError, match=r"with lateness=1, and"):
        evaluation_of(query, "positions", 2, 4).resume(blob, 3)
    with pytest.raises(cer_gpu.CheckpointError, match=r"with output='positions', and"):
        evaluation_of(query, "events", 1, 4).resume(blob, 3)
    other = cer_gpu.compile("SELECT * FROM S WHERE A ; C", time_column="ts")
    with pytest.raises(cer_gpu.CheckpointError, match=r"another query"):
        evaluation_of(other, "positions", 1, 4).resume(blob, 3)
    with pytest.raises(cer_gpu.CheckpointError, match=r"expected the state of a stream"):
        evaluation_of(query, "positions", 1, 4).resume(b"something else", 3)


def test_numbers_of_rows_differ_between_groups():
    query = cer_gpu.compile("SELECT * FROM S WHERE A", time_column="ts")
    evaluation = evaluation_of(query, "rows", 0, 2)
    events = pa.table({"type": ["A", "A"], "ts": pa.array([1, 2], US)})
    numbers = [n for k in range(2) for f in evaluation.begin(k).push(events) for n in f.column("match").to_pylist()]
    assert len(set(numbers)) == 4


# ---- packed rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 3])
def test_packed_rows_keep_every_type(pieces):
    rng = random.Random(pieces)
    events = all_types(rng, 60).append_column("ts", pa.array(range(60), US))
    groups = pa.array(rng.choices([0, 1, 5, None], k=60), pa.int32())
    pack = Pack(events.schema, tuple(events.column_names), "ts")
    rows = events.add_column(0, "group", groups).to_batches(max_chunksize=-(-60 // pieces))
    found = {}
    for batch in pack(iter(rows)):
        for group, blob in zip(batch["group"].to_pylist(), batch["blob"].to_pylist(), strict=True):
            found.setdefault(group, []).extend(pa.ipc.read_record_batch(pa.py_buffer(blob), pack.packed).to_pylist())
    assert sorted(found) == [0, 1, 5]
    for group, held in found.items():
        kept = events.filter(pa.array([g == group for g in groups.to_pylist()]))
        assert list(map(repr, held)) == shown(kept)


def test_packed_complex_events_are_bounded_pieces(monkeypatch):
    monkeypatch.setattr("spark_glue.streaming.stream_evaluation.MATCH_ROWS", 10)
    batch = pa.record_batch({"x": pa.array(range(35))})
    blobs = list(packed_state(iter([batch.slice(0, 4), batch.slice(4, 30), batch.slice(34)]), batch.schema))
    pieces = list(Unpack(batch.schema)(iter([pa.record_batch({"blob": pa.array(blobs, pa.binary())})])))
    assert pa.Table.from_batches(pieces)["x"].to_pylist() == list(range(35))
    assert max(piece.num_rows for piece in pieces) < 20
    assert list(packed_state(iter([batch.slice(0, 0)]), batch.schema)) == []


def test_events_without_a_time_are_refused_with_their_number():
    events = pa.table({"x": pa.array([4, 5, 6]), "ts": pa.array([1, None, 2], US)})
    rows = events.add_column(0, "group", pa.array([0, 0, 1], pa.int32())).to_batches()
    with pytest.raises(cer_gpu.QueryTypeError, match=r"'ts' first, which is NULL in 1 of 3 events"):
        list(Pack(events.schema, ("x", "ts"), "ts")(iter(rows)))


def test_lateness_is_a_time():
    assert microseconds("250ms") == 250_000
    assert microseconds(dt.timedelta(seconds=3)) == 3_000_000
    with pytest.raises(cer_gpu.OptionError, match="cannot read the lateness"):
        microseconds("soon")


def test_hidden_rows_do_not_matter():
    """A slice of a larger table is packed without the rest of it."""
    events = pa.table({"ts": pa.array(np.arange(10_000), US)}).slice(5_000, 3)
    pack = Pack(events.schema, ("ts",), "ts")
    (batch,) = pack(iter(events.add_column(0, "group", pa.array([0] * 3, pa.int32())).to_batches()))
    assert len(batch["blob"][0].as_py()) < 1_000
