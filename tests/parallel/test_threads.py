"""Threads over ranges of a stream: any number of them finds the table of one thread, in the order of its ends."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest
from cases import sorted_rows
from sizes import scaled, seeds

import cer_gpu
from cer_gpu.io.source import Parts, Source
from cer_gpu.parallel import range_threads as module
from cer_gpu.parallel.channel import ChannelReader
from cer_gpu.parallel.range_threads import Range, RangeWindow, Sizes, cut_ranges
from cer_gpu.parallel.stream_splitter import StreamSplitter

SEEDS = seeds(scaled(25, most=600))
PATTERNS = ["A ; B", "A ; B+ ; C", "A : B+", "A : B ; C", "(A OR B) ; C", "A+ : C", "A AS a ; C FILTER a[x > 3]"]
PATTERNS += [
    "A AS a ; B AS b FILTER b.k = a.k AND b.x > a.x",
    "A ; B+ AS b ; C AS c FILTER c.x - 2 > b.x AND b.k >= PREV(b).k",
]
WINDOWS = [
    "WITHIN 6 EVENTS",
    "WITHIN 25 EVENTS",
    "WITHIN 9 SECONDS",
    "WITHIN 0 SECONDS",
    "WITHIN 7 [x]",
    "WITHIN 7 [f]",
]


@pytest.fixture
def small_ranges(monkeypatch):
    def set_sizes(rng):
        monkeypatch.setattr(module, "RANGE_ROWS", rng.randint(1, 40))
        monkeypatch.setattr(module, "RANGE_ROWS_IN_MEMORY", rng.randint(1, 40))
        monkeypatch.setattr(module, "WINDOWS_A_RANGE", rng.choice([0, 1, 3]))
        monkeypatch.setattr(module, "LONGEST_WINDOW", rng.choice([4, 30, 1000]))
        monkeypatch.setattr(module, "MAX_WAITING", rng.choice([1, 2, 64]))

    return set_sizes


def random_events(rng, n):
    times = sorted(rng.choices(range(n), k=n))
    return pa.table(
        {
            "type": rng.choices("ABCD", k=n),
            "k": rng.choices([1, 2, 3, None], k=n),
            "ts": pa.array(times, pa.timestamp("s")),
            "x": pa.array(times, pa.int32()),
            "f": pa.array([t / 2 - 5 for t in times], pa.float64()),
        }
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_threads_by_range_find_the_table_of_one_thread(small_ranges, seed):
    rng = random.Random(seed)
    small_ranges(rng)
    keys, pattern, window = rng.choice(["", "PARTITION BY [k]"]), rng.choice(PATTERNS), rng.choice(WINDOWS)
    strategy = ["ALL", "STRICT", "NEXT", "LAST", "MAX"][seed % 5]  # ANY keeps another event in a range
    text = f"SELECT {strategy} * FROM S WHERE {pattern} {keys} {window}"
    query = cer_gpu.compile(text, time_column="ts")
    events = random_events(rng, rng.randint(0, 200))
    batches = events.to_batches(max_chunksize=rng.choice([1, 7, 1000]))
    output = ["positions", "bindings", "events", "count", "ends"][(2 * seed + seed // 5) % 5]
    expected = query.evaluate(events, output=output, threads=1)
    reader = pa.RecordBatchReader.from_batches(events.schema, batches)
    found = query.evaluate(reader, output=output, threads=rng.randint(2, 4))
    assert found.schema == expected.schema
    assert sorted_rows(found) == sorted_rows(expected)
    assert found["end"].to_pylist() == expected["end"].to_pylist()


@pytest.mark.parametrize(
    ("strategy", "clauses"),
    [
        ("ALL", ""),
        ("ALL", "WITHIN 9 EVENTS CONSUME BY ANY"),
        ("ALL", "PARTITION BY [k] WITHIN 9 EVENTS"),
        ("ALL", "WITHIN 6 EVENTS LIMIT 1"),
        ("ANY", "WITHIN 6 EVENTS"),
    ],
)
def test_queries_that_ranges_would_change_find_the_table_of_one_thread(small_ranges, strategy, clauses):
    rng = random.Random(0)
    small_ranges(rng)
    where = "A ; B" if clauses in ("", "PARTITION BY [k] WITHIN 9 EVENTS") else "(A OR B)+ ; (B OR C) ; C"
    query = cer_gpu.compile(f"SELECT {strategy} * FROM S WHERE {where} {clauses}")
    events = random_events(rng, 200)
    assert query.evaluate(events, threads=2).equals(query.evaluate(events, threads=1))


def test_the_evaluator_counts_the_events_and_results_of_all_threads(small_ranges):
    rng = random.Random(1)
    small_ranges(rng)
    events = random_events(rng, 300)
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 9 EVENTS")
    evaluator = query.evaluator()
    found = sum(batch.num_rows for batch in query._match_source(query._open_source(events), evaluator, 3))
    assert (evaluator.n_events, evaluator.n_matches) == (300, found)


@pytest.mark.parametrize("row", [3, 50, 51, 299])
@pytest.mark.parametrize("value", [-1, None])
def test_a_wrong_time_is_reported_as_on_one_thread(monkeypatch, row, value):
    monkeypatch.setattr(module, "RANGE_ROWS", 10)
    monkeypatch.setattr(module, "RANGE_ROWS_IN_MEMORY", 10)
    times = list(range(300))
    times[row] = value
    events = pa.table({"type": ["A"] * 300, "ts": pa.array(times, pa.int64())})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 9 [ts]", time_column="ts")
    messages = []
    for threads in (1, 3):
        with pytest.raises(cer_gpu.TimeOrderError) as error:
            query.evaluate(events, threads=threads)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert f"event {row} " in messages[0]


def test_rounding_of_a_float_window_loses_no_complex_event(monkeypatch):
    """The end minus the start is the window's length, though the end minus the length exceeds the start."""
    monkeypatch.setattr(module, "RANGE_ROWS", 1)
    monkeypatch.setattr(module, "RANGE_ROWS_IN_MEMORY", 1)
    end = 0.057091294503929246
    events = pa.table({"type": ["A", "C", "B"], "x": [-0.042908705496070766, end, end]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 0.1 [x]")
    for threads in (1, 2):
        assert query.evaluate(events, threads=threads)["positions"].to_pylist() == [[0, 2]]


def test_threads_without_results_stop_with_their_reader():
    read = []

    def batches():
        for i in range(50):
            read.append(i)
            yield pa.record_batch({"type": ["A"]})

    reading = ChannelReader()
    reading.stop()
    evaluator = cer_gpu.compile("SELECT * FROM S WHERE A ; B").evaluator()
    evaluator.expect(pa.schema([("type", pa.string())]))
    module._Results(reading, Range(0, 0, batches())).find(module._GroupPool(StreamSplitter(evaluator._group)))
    assert len(read) == 1


def test_ranges_grow_once_fewer_complex_events_are_found(monkeypatch):
    """A stream with many complex events, and then none, is cut into short ranges, and then into long ones."""
    monkeypatch.setattr(module, "SAMPLE_ROWS", 100)
    monkeypatch.setattr(module, "MIN_RANGE_ROWS", 1)
    monkeypatch.setattr(module, "RESULT_BYTES", 10_000)
    events = pa.table({"type": ["A", "B"] * 3000 + ["Z"] * 20_000})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 9 EVENTS")
    expected = query.evaluate(events, threads=1)
    used = []
    read = module._Results.read
    monkeypatch.setattr(module._Results, "read", lambda results: used.append(results) or read(results))
    assert query.evaluate(events, threads=2).equals(expected)
    lengths = [results.n_rows for results in used]
    assert len(lengths) > 20
    assert max(lengths) > 10 * lengths[0]


def test_columns_may_change_their_types_from_range_to_range(monkeypatch):
    monkeypatch.setattr(module, "RANGE_ROWS", 40)
    monkeypatch.setattr(module, "SAMPLE_ROWS", 40)
    batches = [
        pa.record_batch({"type": ["A", "B", "C", "D"] * 50, "k": pa.array([1, 1, 2, 2] * 50, kind)})
        for kind in (pa.int64(), pa.int32(), pa.int64(), pa.int16(), pa.int64())
    ]
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[k > 0] WITHIN 3 EVENTS")
    keyed = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[k > 0] PARTITION BY [k]")
    for each, output in ((query, "events"), (keyed, "positions")):
        expected = each.evaluate(iter(batches), output=output, threads=1)
        assert expected.num_rows >= 250
        assert each.evaluate(iter(batches), output=output, threads=3).equals(expected)


def test_threads_end_with_their_reader(monkeypatch):
    monkeypatch.setattr(module, "RANGE_ROWS", 500)
    monkeypatch.setattr(module, "RANGE_ROWS_IN_MEMORY", 500)
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    before = threading.active_count()
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; A ; A WITHIN 200 EVENTS")
    reader = query._match_source(query._open_source(pa.table({"type": ["A"] * 20_000})), query.evaluator(), 3)
    assert next(reader).num_rows
    reader.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_a_number_of_threads_below_one_is_refused(threads):
    with pytest.raises(cer_gpu.OptionError, match="threads must be a positive number"):
        cer_gpu.compile("SELECT * FROM S WHERE A").evaluate(pa.table({"type": ["A"]}), threads=threads)


def test_ranges_have_the_window_before_them(monkeypatch):
    monkeypatch.setattr(module, "RANGE_ROWS", 10)
    monkeypatch.setattr(module, "RANGE_ROWS_IN_MEMORY", 10)
    monkeypatch.setattr(module, "WINDOWS_A_RANGE", 1)

    table = pa.table({"x": list(range(35))})
    cut = [
        (r.begin, r.first, sum(b.num_rows for b in r.batches))
        for r in cut_ranges(table.to_batches(), RangeWindow("x", np.uint64(4)), Sizes(2))
    ]
    assert cut == [(0, 0, 10), (5, 10, 15), (15, 20, 15), (25, 30, 10)]


@pytest.mark.parametrize(
    ("n_rows", "n_threads", "rows"), [(None, 2, 10), (20, 2, 10), (21, 2, 6), (100, 3, 9), (0, 2, 1)]
)
def test_a_known_stream_is_cut_into_ranges_of_like_size(monkeypatch, n_rows, n_threads, rows):
    monkeypatch.setattr(module, "RANGE_ROWS", 10)
    monkeypatch.setattr(module, "RANGE_ROWS_IN_MEMORY", 10)
    assert Sizes(n_threads, n_rows).next == rows


def test_ranges_are_short_after_many_bytes_of_results(monkeypatch):
    monkeypatch.setattr(module, "MIN_RANGE_ROWS", 100)
    monkeypatch.setattr(module, "RANGE_ROWS", 10_000)
    sizes = Sizes(2)
    for n_rows, share, following in ((10_000, 1, 10_000), (10_000, 10, 1_000), (1_000, 2, 500), (500, 500, 100)):
        sizes.adapt(n_rows, share * module.RESULT_BYTES)
        assert sizes.next == following
    sizes.adapt(100, 0)
    assert sizes.next == 10_000


@pytest.mark.parametrize(
    ("facts", "by_range", "n_threads"),
    [
        ({"n_rows": None}, True, 1),
        ({"n_rows": 9}, True, 1),
        ({"n_rows": 10}, True, 4),
        ({"n_rows": 10, "reads_ahead": True}, True, 3),
        ({"n_rows": 10, "reads_ahead": True, "parts": Parts([0, 2, 5, 7, 10], None)}, True, 4),
        ({"n_rows": 10, "reads_ahead": True, "parts": Parts([0, 2, 5, 7, 10], None)}, False, 3),
        ({"n_rows": 10, "reads_ahead": True, "parts": Parts([0, 6, 8, 10], None)}, True, 3),
    ],
)
def test_the_number_of_threads_follows_the_source(monkeypatch, facts, by_range, n_threads):
    monkeypatch.setattr(module, "MIN_ROWS_FOR_THREADS", 10)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    source = Source(pa.schema([]), lambda _: iter(()), **facts)
    assert module.threads_that_help(source, by_range=by_range) == n_threads


@pytest.mark.long("starts processes that end amid their work")
@pytest.mark.parametrize("clauses", ["WITHIN 200 EVENTS", "PARTITION BY [k] CONSUME BY PARTITION"])
def test_a_process_ends_with_results_read_in_part(tmp_path, clauses):
    program = f"""
import pyarrow as pa, cer_gpu
from cer_gpu.parallel import key_threads
from cer_gpu.parallel import range_threads as ranges
from cer_gpu.runtime import matches
matches.OUTPUT_ROWS, ranges.MAX_WAITING, key_threads.MAX_WAITING = 3, 1, 1
ranges.SAMPLE_ROWS = 1
query = cer_gpu.compile("SELECT * FROM S WHERE A ; A {clauses}")
reader = query.stream(pa.table({{"type": ["A"] * 300_000, "k": [1] * 300_000}}), threads=3)
while (end := reader.read_next_batch()["end"][0].as_py()) < 100:
    pass
print(end)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) > 0
    assert done.stderr == ""
