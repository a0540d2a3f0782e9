"""Numbers of 32 bits that are counted anew: the tables are those of a run in which it never happens."""

import random

import pyarrow as pa
import pytest
from cases import by_automaton

import cer_gpu
from cer_gpu.output import retention
from cer_gpu.runtime import run

QUERIES = [
    "SELECT * FROM S WHERE A ; B+ ; C WITHIN 5 EVENTS",
    "SELECT * FROM S WHERE (A OR B)+ ; C WITHIN 6 EVENTS",
    "SELECT B FROM S WHERE A : (B OR C)+ ; A WITHIN 6 EVENTS LIMIT 2",
    "SELECT * FROM S WHERE A ; B ; C WITHIN 9 SECONDS",
    "SELECT * FROM S WHERE (A ; B)+ ; C WITHIN 8 [ts]",
]


def events():
    rng = random.Random(5)
    ts = sorted(rng.choices(range(6000), k=6000))
    return pa.table({"type": rng.choices("ABCD", k=6000), "ts": ts})


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize(
    ("method", "name", "value"), [("_rebase_nodes", "REBASE_NODE", 512), ("_shift_positions", "REBASE_POSITION", 64)]
)
def test_counting_anew_changes_nothing(monkeypatch, text, method, name, value):
    query = by_automaton(cer_gpu.compile(text, time_column="ts", time_unit="s"))
    expected = query.evaluate(events())
    assert expected.num_rows > 1000
    calls = []
    original = getattr(run.AutomatonRun, method)
    monkeypatch.setattr(run.AutomatonRun, method, lambda self, *given: calls.append(given) or original(self, *given))
    monkeypatch.setattr(run, name, value)
    monkeypatch.setattr(run, "INITIAL_SIZE", 4)
    evaluator = query.evaluator()
    pieces = [evaluator.push(batch) for batch in events().to_batches(max_chunksize=50)]
    assert len(calls) > 1
    assert pa.Table.from_batches(pieces).equals(expected)


def test_the_base_moves_over_a_long_stretch_without_relevant_events(monkeypatch):
    """Partial matches from before it are not found again."""
    monkeypatch.setattr(run, "REBASE_POSITION", 64)
    types = ["A", "B"] + ["Z"] * 1000 + ["B", "C", "A", "B"] + ["Z"] * 500 + ["A", "B", "C"]
    query = by_automaton(cer_gpu.compile("SELECT * FROM S WHERE A ; B ; C WITHIN 100 EVENTS"))
    evaluator = query.evaluator()
    batches = pa.table({"type": types}).to_batches(max_chunksize=40)
    found = pa.Table.from_batches([evaluator.push(batch) for batch in batches])
    last = len(types) - 1
    assert found.to_pylist() == [{"start": last - 2, "end": last, "positions": [last - 2, last - 1, last]}]


@pytest.mark.parametrize("first", [0, 3_000_000_000])
def test_a_window_may_hold_more_events_than_32_bits(first):
    """The base moves to the first event that still matters, though the window reaches back further."""
    query = by_automaton(cer_gpu.compile("SELECT * FROM S WHERE A ; B ; C WITHIN 3000000000 EVENTS"))
    evaluator = query.evaluator(position_column="at")
    found = []
    for begin in (first, first + (1 << 30), first + 3 * (1 << 30) - 100):
        at = pa.array([begin, begin + 1, begin + 2], pa.int64())
        found += evaluator.push(pa.record_batch({"type": ["A", "B", "C"], "at": at})).to_pylist()
        if begin == first + (1 << 30):
            evaluator = query.restore(evaluator.checkpoint())
            evaluator.push(pa.record_batch({"type": ["Z"], "at": pa.array([begin + 5], pa.int64())}))
    near, far = [first, first + 1, first + 2], [first + (1 << 30) + k for k in range(3)]
    last = [begin, begin + 1, begin + 2]
    pairs = [(near, far), (far, last)]
    expected = [tuple(near), *((*old[: 3 - k], *new[3 - k :]) for old, new in pairs for k in (1, 2, 3))]
    assert sorted(tuple(row["positions"]) for row in found) == sorted(expected)


@pytest.mark.parametrize("within", ["100 EVENTS", "100 [ts]"])
def test_nodes_that_left_the_window_make_room(within):
    """The ring of nodes does not follow the stream where nearly all is read by the loop for steady symbols."""
    table = pa.table({"type": random.Random(1).choices("ABCD", k=30_000), "ts": range(30_000)})
    evaluator = by_automaton(cer_gpu.compile(f"SELECT * FROM S WHERE A ; B ; C ; E WITHIN {within}")).evaluator()
    evaluator.push(table.to_batches()[0])
    steady = evaluator.pipeline.table.steady
    assert sorted(steady[:, 0][: evaluator.pipeline.table.n_symbols].tolist()) == [
        -1,
        1,
        1,
        1,
    ]  # the quiet one never comes
    assert len(evaluator.pipeline.runtime._nodes) <= 4 * run.INITIAL_SIZE


def test_a_complex_event_longer_than_any_buffer_is_listed():
    n = 600_000
    text = "SELECT * FROM S WHERE B : A :+ : C"
    table = pa.table({"type": ["B"] + ["A"] * n + ["C"]})
    found = by_automaton(cer_gpu.compile(text)).evaluate(table)
    assert found["positions"].combine_chunks().flatten().to_pylist() == list(range(n + 2))


def test_events_too_far_apart_without_a_window_are_an_error(monkeypatch):
    query = by_automaton(cer_gpu.compile("SELECT * FROM S WHERE A ; B"))
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["A"]}))
    evaluator._group.blocks.n_events = 1 << 31
    with pytest.raises(cer_gpu.EventsError, match="add WITHIN"):
        evaluator.push(pa.record_batch({"type": ["B"]}))


@pytest.mark.parametrize("within", ["3 EVENTS", "3 [ts]"])
@pytest.mark.parametrize("keys", ["", "PARTITION BY [k]"])
def test_trimming_kept_rows_loses_no_complex_event(monkeypatch, keys, within):
    rng = random.Random(0)
    n = 300
    events = pa.table({"type": ["A"] * n, "ts": range(n), "k": rng.choices([1, 2], k=n), "m": rng.choices([0, 1], k=n)})
    text = f"SELECT * FROM S WHERE A ; A ; (A FILTER A[m = 1]) {keys} WITHIN {within}"
    query = by_automaton(cer_gpu.compile(text))
    expected = query.evaluate(events, output="events")
    assert expected.num_rows > 30
    monkeypatch.setattr(retention, "TRIM_FROM", 5)
    monkeypatch.setattr(run, "INITIAL_SIZE", 4)
    assert query.evaluate(pa.Table.from_batches(events.to_batches(max_chunksize=7)), output="events").equals(expected)
