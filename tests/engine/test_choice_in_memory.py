"""Memory of a choice among the complex events of one end: a limit bounds it, and the error names the end."""

from __future__ import annotations

import random
import re

import numpy as np
import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.runtime import matches

CHOSEN = "SELECT LAST * FROM S WHERE ((C AS a ; C AS b) ; (A+ AS c ; A AS d)) FILTER c.y <> b.x"
AMBIGUOUS = "SELECT * FROM S WHERE ((A AS a OR A+ AS b) ; (A+ AS c ; A+ AS d)) FILTER b[y < 304] AND a.y = b.x"
QUERIES = {"chosen": CHOSEN, "ambiguous": AMBIGUOUS}
TEXT = re.compile(
    r"event (\d+) ends ([\d,]+) matches so far, and choosing among them needs more than "
    r"max_memory \(47\.7 MiB\)\nhint: a shorter WITHIN, SELECT ANY, or a larger max_memory \(--max-memory\)"
)


def events_of(n: int) -> pa.Table:
    rng = random.Random(1)
    types = [rng.choice("ABCD") for _ in range(n)]
    return pa.table({"type": types, "x": np.arange(n), "y": [rng.randrange(600) for _ in range(n)]})


@pytest.mark.parametrize("output", ["positions", "count", "bindings"])
@pytest.mark.parametrize("query", QUERIES)
def test_a_choice_that_needs_too_much_is_an_error_that_names_the_end(query, output):
    events = events_of(300)
    compiled = cer_gpu.compile(QUERIES[query])
    with pytest.raises(cer_gpu.OutOfMemoryError) as error:
        compiled.evaluate(events, max_memory="50MB", output=output)
    told = TEXT.fullmatch(str(error.value))
    assert told, str(error.value)
    assert events["type"][int(told[1])].as_py() == "A"
    assert int(told[2].replace(",", "")) > 10_000
    evaluator = compiled.evaluator(max_memory="50MB", output=output)
    with pytest.raises(cer_gpu.OutOfMemoryError, match="choosing among them"):
        evaluator.push(events.to_batches()[0])
    with pytest.raises(cer_gpu.OptionError, match="an error ended the stream"):
        evaluator.push(events.to_batches()[0])


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_below_the_limit_finds_the_same(query):
    events = events_of(44)
    compiled = cer_gpu.compile(QUERIES[query])
    expected = compiled.evaluate(events)
    assert len(expected)
    assert compiled.evaluate(events, max_memory=60_000_000).equals(expected)


@pytest.mark.parametrize("query", QUERIES)
def test_wider_buffers_change_no_result(monkeypatch, query):
    """Buffers of few rows are widened, handed over and filled again all the time."""
    events = events_of(40)
    compiled = cer_gpu.compile(QUERIES[query], time_column="x")
    expected = compiled.evaluate(events, output="bindings")
    assert len(expected)
    for rows in 1, 3, 64:
        monkeypatch.setattr(matches, "OUTPUT_ROWS", rows)
        assert compiled.evaluate(events, output="bindings").equals(expected)


def test_more_positions_than_offsets_tell_are_an_error(monkeypatch):
    monkeypatch.setattr("cer_gpu.runtime.joining.MAX_POSITIONS", 1 << 21)
    monkeypatch.setattr(matches, "MAX_POSITIONS", 1 << 21)
    with pytest.raises(cer_gpu.OutOfMemoryError, match="choosing among them needs more than 2,097,152 positions"):
        cer_gpu.compile(CHOSEN).evaluate(events_of(300), max_memory="4GiB")


# ---- complex events that wait -----------------------------------------------------------------------------------

WAITING = {
    "events": "SELECT * FROM S WHERE A AS a ; A+ AS b ; !B WITHIN 40 EVENTS",
    "clock": "SELECT * FROM S WHERE A AS a ; A+ AS b ; !B WITHIN 40 SECONDS",
    "chosen": "SELECT MAX * FROM S WHERE A AS a ; A+ AS b ; !B WITHIN 40 SECONDS",
    "limited": "SELECT * FROM S WHERE A AS a ; A+ AS b ; !B PARTITION BY [k] WITHIN 40 EVENTS LIMIT 2",
}
WAITING_TEXT = re.compile(
    r"event (\d+) \(2024-01-01 00:00:(\d\d)\) ends ([\d,]+) matches so far, of ([\d,]+) that "
    r"wait for the end of their window, and keeping these needs more than max_memory \(19\.1 MiB\)\nhint: a shorter "
)


def waiting_events(n: int) -> pa.Table:
    times = np.datetime64("2024-01-01T00:00:00", "s") + np.arange(n)
    return pa.table({"type": ["A"] * n, "k": [1] * n, "ts": pa.array(times)})


@pytest.mark.parametrize("query", [name for name in WAITING if name != "limited"])
def test_matches_that_wait_and_need_too_much_are_an_error_that_names_the_end_and_its_time(query):
    compiled = cer_gpu.compile(WAITING[query], time_column="ts")
    with pytest.raises(cer_gpu.OutOfMemoryError) as error:
        compiled.evaluate(waiting_events(40), max_memory="20MB")
    told = WAITING_TEXT.match(str(error.value))
    assert told, str(error.value)
    end, second, at_end, waiting = (int(text.replace(",", "")) for text in told.groups())
    assert end == second
    # ends have some 2 ** end each, and those of the last one are half of all
    assert 10_000 < at_end <= waiting < 1_000_000
    assert at_end <= 2**end


@pytest.mark.parametrize("query", WAITING)
def test_matches_that_wait_below_the_limit_are_the_same(query):
    compiled = cer_gpu.compile(WAITING[query], time_column="ts")
    events = waiting_events(11)
    expected = compiled.evaluate(events)
    assert len(expected)
    assert compiled.evaluate(events, max_memory="20MB").equals(expected)


def test_a_choice_that_needs_too_much_names_the_time_of_the_end():
    events = events_of(300)
    times = np.datetime64("2024-01-01T00:00:00", "s") + np.arange(300)
    compiled = cer_gpu.compile(CHOSEN, time_column="ts")
    with pytest.raises(cer_gpu.OutOfMemoryError) as error:
        compiled.evaluate(events.append_column("ts", pa.array(times)), max_memory="50MB")
    told = re.match(r"event (\d+) \(2024-01-01 00:(\d\d):(\d\d)\) ends", str(error.value))
    assert told, str(error.value)
    assert int(told[1]) == 60 * int(told[2]) + int(told[3])


def test_a_checkpoint_does_not_hold_the_limit():
    compiled = cer_gpu.compile(CHOSEN)
    evaluator = compiled.evaluator(max_memory="50MB")
    evaluator.push(events_of(3).to_batches()[0])
    assert b"max_memory" not in evaluator.checkpoint()
