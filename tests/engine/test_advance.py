"""`Evaluator.advance`: the promise that no earlier event is to come makes known what one evaluation finds later."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from sizes import scaled, seeds

import cer_gpu

N_CASES = scaled(60, most=600)

TIMED = [
    ("SELECT * FROM S WHERE A ; !B WITHIN 9 [ts]", "positions"),
    ("SELECT * FROM S WHERE A ; !B PARTITION BY [k] WITHIN 0.009 SECONDS", "events"),
    ("SELECT * FROM S WHERE A ; C ; !B PARTITION BY [k] WITHIN 30 [ts]", "bindings"),
    ("SELECT * FROM S WHERE A ; B ; C PARTITION BY [k] WITHIN 90 [ts]", "positions"),
    ("SELECT * FROM S WHERE A ; B WITHIN 4 EVENTS", "events"),
]
BY_END = [
    ("SELECT * FROM S WHERE A ; C ; !B WITHIN 25 [ts]", "count"),
    ("SELECT * FROM S WHERE A ; C ; !B WITHIN 25 [ts] LIMIT 2", "positions"),
    ("SELECT LAST * FROM S WHERE A ; C ; !B WITHIN 25 [ts]", "positions"),
]


def compiled(text):
    return cer_gpu.compile(text, time_column="ts", time_unit="ms")


def random_events(rng, n=120):
    times = sorted(rng.choices(range(-50, 5 * n), k=n))
    return pa.table(
        {
            "type": pa.array(rng.choices("AABCD", k=n), pa.string()),
            "ts": pa.array(times, pa.int64()),
            "k": pa.array(rng.choices([1, 2, None], k=n), pa.int64()),
        }
    )


def jumbled(rng, events, by):
    times = events["ts"].to_pylist()
    return events.take([i for _, i in sorted((t + rng.randint(0, by), i) for i, t in enumerate(times))])


def advanced(query, events, rng, output, checkpoints=True, **options):
    """Return the rows of an evaluation with random cuts, and before each the promise that the events allow."""
    evaluator, found, row = query.evaluator(output=output, **options), [], 0
    table = events.combine_chunks()
    nothing = table.to_batches()[0].slice(0, 0)
    while row < len(table):
        n = rng.randint(0, 9)
        found.append(evaluator.push(pa.concat_batches([nothing, *table.slice(row, n).to_batches()])))
        row += n
        to_come = table.slice(row)["ts"].to_pylist()
        if rng.random() < 0.7:
            now = min(to_come, default=10_000) - rng.choice([0, 0, 1, 5])
            found.append(evaluator.advance_watermark(now))
            assert evaluator.advance_watermark(now - rng.randint(0, 100)).num_rows == 0  # back
        if checkpoints and rng.random() < 0.3:
            evaluator = query.restore(evaluator.checkpoint())
    found.append(evaluator.finish())
    return pa.Table.from_batches(found)


@pytest.mark.parametrize("number", seeds(N_CASES))
def test_rows_and_their_order_are_those_of_one_evaluation(number):
    rng = random.Random(number)
    text, output = TIMED[number % len(TIMED)]
    query, events = compiled(text), random_events(rng)
    expected = query.evaluate(events, output=output)
    assert expected.num_rows
    assert advanced(query, events, rng, output).equals(expected)


@pytest.mark.parametrize("number", seeds(N_CASES // 2))
def test_rows_of_ends_are_those_of_one_evaluation(number):
    """Ends that become known between the same two events may come in another order."""
    rng = random.Random(number)
    text, output = BY_END[number % len(BY_END)]
    query, events = compiled(text), random_events(rng)
    expected = query.evaluate(events, output=output)
    assert expected.num_rows
    found = advanced(query, events, rng, output)
    assert Counter(map(str, found.to_pylist())) == Counter(map(str, expected.to_pylist()))


@pytest.mark.parametrize("number", seeds(N_CASES // 2))
def test_held_events_come_out_in_the_order_of_one_evaluation(number):
    rng = random.Random(number)
    text, output = TIMED[number % len(TIMED)]
    query, events = compiled(text), jumbled(rng, random_events(rng), 20)
    expected = query.evaluate(events, output=output, sort=True)
    assert advanced(query, events, rng, output, lateness=20).equals(expected)
    # a lateness that never ends: only the promises let events through
    assert advanced(query, events, rng, output, lateness=1 << 64).equals(expected)


@pytest.mark.parametrize("number", seeds(scaled(30, most=30)))
def test_trailing_absences_are_known_at_the_first_time_beyond_their_window(number):
    rng = random.Random(number)
    query, events = compiled("SELECT * FROM S WHERE A ; !B WITHIN 9 [ts]"), random_events(rng, 40)
    evaluator = query.evaluator(lateness=rng.choice([None, 3]))
    evaluator.expect(events.schema)
    at = {}
    for batch in events.to_batches(max_chunksize=1):
        (time,) = batch["ts"].to_pylist()
        for now in range(time if evaluator.next_deadline is None else evaluator.next_deadline, time + 1):
            for start in evaluator.advance_watermark(now)["start_time"].to_pylist():
                at[start] = now
        assert evaluator.push(batch).num_rows == 0
    while evaluator.next_deadline is not None:
        now = evaluator.next_deadline
        for start in evaluator.advance_watermark(now)["start_time"].to_pylist():
            at[start] = now
    assert at
    assert all(now == start + 10 for start, now in at.items())
    assert evaluator.finish().num_rows == 0


def test_due_is_the_next_time_that_has_an_effect():
    query = compiled("SELECT * FROM S WHERE A ; !B WITHIN 9 [ts]")
    evaluator = query.evaluator(lateness=100)
    assert evaluator.next_deadline is None
    evaluator.push(pa.record_batch({"type": ["A", "D"], "ts": [7, -3]}))
    assert evaluator.next_deadline == -3
    evaluator.advance_watermark(0)
    assert evaluator.n_events == 1
    assert evaluator.next_deadline == 7
    assert evaluator.advance_watermark(16).num_rows == 0
    assert evaluator.next_deadline == 17
    again = query.restore(evaluator.checkpoint())
    assert again.next_deadline == 17
    assert again.advance_watermark(17)["positions"].to_pylist() == [[0]]
    assert again.next_deadline is None


def test_windows_of_events_end_only_with_events():
    query = compiled("SELECT * FROM S WHERE A ; !B WITHIN 2 EVENTS")
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["A"], "ts": [1]}))
    assert evaluator.next_deadline is None
    assert evaluator.advance_watermark(10**9).num_rows == 0
    assert evaluator.push(pa.record_batch({"type": ["C"] * 3, "ts": [10**9] * 3})).num_rows == 1


def test_a_limit_ends_what_advance_returns():
    query = compiled("SELECT * FROM S WHERE A ; !B WITHIN 9 [ts]")
    evaluator = query.evaluator(limit=2)
    evaluator.push(pa.record_batch({"type": ["A"] * 3, "ts": [1, 2, 3]}))
    assert evaluator.advance_watermark(50).num_rows == 2
    assert evaluator.limit_reached
    assert evaluator.advance_watermark(60).num_rows == 0


# ---- promises that are broken ----------------------------------------------------------------------------------


def one(time):
    return pa.record_batch({"type": ["A"], "ts": [time]})


@pytest.mark.parametrize("restored", [False, True])
def test_an_event_before_the_promised_time_is_an_error_without_lateness(restored):
    query = compiled("SELECT * FROM S WHERE A ; B")
    evaluator = query.evaluator()
    evaluator.push(one(3))
    evaluator.advance_watermark(8)
    if restored:
        evaluator = query.restore(evaluator.checkpoint())
    evaluator.push(one(8))
    evaluator.advance_watermark(20)
    with pytest.raises(cer_gpu.TimeOrderError, match=r"'ts' of event 2 \(19\) is earlier than 20, to which the stream"):
        evaluator.push(one(19))


@pytest.mark.parametrize("restored", [False, True])
def test_an_event_before_the_promised_time_is_late_with_lateness(restored):
    query = compiled("SELECT * FROM S WHERE A ; B")
    for late in ("drop", "raise"):
        evaluator = query.evaluator(lateness=1000, late=late)
        evaluator.push(one(3))
        evaluator.advance_watermark(8)
        if restored:
            evaluator = query.restore(evaluator.checkpoint())
        evaluator.push(one(8))
        if late == "drop":
            evaluator.push(one(7))
            assert evaluator.n_late == 1
        else:
            with pytest.raises(cer_gpu.TimeOrderError, match=r"event 2 \(7\) is late: the stream has advanced to 8"):
                evaluator.push(one(7))


def test_without_a_time_column_there_is_no_promise():
    evaluator = cer_gpu.compile("SELECT * FROM S WHERE A ; B").evaluator()
    with pytest.raises(cer_gpu.OptionError, match=r"name the time column"):
        evaluator.advance_watermark(1)


def test_an_evaluator_that_is_finished_advances_no_more():
    evaluator = compiled("SELECT * FROM S WHERE A ; B").evaluator()
    evaluator.push(one(1))
    evaluator.finish()
    with pytest.raises(cer_gpu.OptionError, match="finished"):
        evaluator.advance_watermark(2)


def test_before_the_first_batch_nothing_is_known():
    evaluator = compiled("SELECT * FROM S WHERE A ; B").evaluator()
    assert evaluator.advance_watermark(5).num_rows == 0
    assert evaluator.push(one(1)).num_rows == 0


# ---- times of all kinds ----------------------------------------------------------------------------------------

NOON = dt.datetime(2024, 5, 1, 12)
KINDS = {
    "s": (pa.timestamp("s"), NOON, NOON + dt.timedelta(seconds=9), NOON + dt.timedelta(seconds=10)),
    "ns": (pa.timestamp("ns"), NOON, NOON + dt.timedelta(seconds=9), pa.scalar(NOON + dt.timedelta(seconds=10))),
    "zone": (
        pa.timestamp("us", "Europe/Berlin"),
        NOON.replace(tzinfo=dt.UTC),
        (NOON + dt.timedelta(seconds=9)).replace(tzinfo=dt.UTC),
        (NOON + dt.timedelta(seconds=10)).replace(tzinfo=dt.UTC),
    ),
    "duration": (pa.duration("ms"), dt.timedelta(0), dt.timedelta(seconds=9), dt.timedelta(seconds=10)),
    "numpy": (
        pa.timestamp("ms"),
        NOON,
        np.datetime64("2024-05-01T12:00:09.0009"),
        np.datetime64("2024-05-01T12:00:10", "us"),
    ),
    "date": (pa.date32(), dt.date(2024, 5, 1), dt.date(2024, 5, 1), dt.date(2024, 5, 2)),
    "date64": (pa.date64(), dt.date(2024, 5, 1), dt.date(2024, 5, 1), dt.datetime(2024, 5, 2, 3)),
    "unsigned": (pa.uint64(), 2**63, 2**63 + 9, np.uint64(2**63 + 10)),
    "far": (pa.int8(), 100, 109, 10**30),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_time_is_read_in_the_type_of_the_column(kind):
    data_type, start, inside, beyond = KINDS[kind]
    window = "WITHIN 9 [ts]" if pa.types.is_integer(data_type) else "WITHIN 9 SECONDS"
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A ; !B {window}", time_column="ts")
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["A"], "ts": pa.array([start], data_type)}))
    assert evaluator.advance_watermark(inside).num_rows == 0
    assert evaluator.advance_watermark(beyond).num_rows == 1


@pytest.mark.parametrize(
    ("data_type", "time"),
    [
        (pa.timestamp("us"), NOON.replace(tzinfo=dt.UTC)),
        (pa.timestamp("us", "UTC"), NOON),
        (pa.timestamp("us"), 1.5),
        (pa.timestamp("us"), dt.timedelta(1)),
        (pa.timestamp("us"), None),
        (pa.timestamp("us"), "2024-05-01"),
        (pa.int64(), NOON),
        (pa.int64(), True),
        (pa.int64(), object()),
    ],
)
def test_a_time_of_another_kind_is_refused(data_type, time):
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B", time_column="ts")
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["A"], "ts": pa.array([1], data_type)}))
    with pytest.raises(cer_gpu.OptionError, match="as a time of a column of type"):
        evaluator.advance_watermark(time)
    assert evaluator.push(pa.record_batch({"type": ["A"], "ts": pa.array([2], data_type)})).num_rows == 0
