"""Partitions: keys of every type, their ids, and the time after which they are forgotten."""

from __future__ import annotations

import datetime
import decimal
import random

import numpy as np
import pyarrow as pa
import pytest
from cases import by_automaton

import cer_gpu
from cer_gpu.backend import evaluation
from cer_gpu.backend.chains import keyed_stacks
from cer_gpu.partition import partitions
from cer_gpu.runtime import keyed_stacks as engine_stacks


def positions(query, events):
    return query.evaluate(events)["positions"].to_pylist()


# ---- keys of every type --------------------------------------------------------------------------------------------

DAY, NAN = datetime.date(2020, 1, 1), float("nan")
KEYS = {
    "int8": pa.array([1, 2, None, 1, -1], pa.int8()),
    "uint64": pa.array([2**64 - 1, 0, None, 2**64 - 1, 1], pa.uint64()),
    "float": pa.array([0.0, NAN, None, -0.0, NAN], pa.float64()),
    "half": pa.array(np.array([1, 2, 3, 1, 4], np.float16)),
    "bool": pa.array([True, False, None, True, False]),
    "string": pa.array(["a", "", None, "a", "aa"]),
    "large string": pa.array(["a", "", None, "a", "aa"], pa.large_string()),
    "string view": pa.array(["a", "", None, "a", "a much longer text than twelve bytes"], pa.string_view()),
    "dictionary": pa.array(["a", "", None, "a", "aa"]).dictionary_encode(),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        [0, 1, None, 0, 2], pa.array(["a", "", "aa"], pa.string_view())
    ),
    "dictionary of ints": pa.array([5, 6, None, 5, 7]).dictionary_encode(),
    "binary": pa.array([b"\xff", b"", None, b"\xff", b"\x00"]),
    "fixed binary": pa.array([b"abc", b"abd", None, b"abc", b"xxx"], pa.binary(3)),
    "date": pa.array([DAY, None, None, DAY, DAY + datetime.timedelta(1)]),
    "timestamp": pa.array([1, 2, None, 1, 3], pa.timestamp("us", "UTC")),
    "duration": pa.array([1, 2, None, 1, 3], pa.duration("s")),
    "decimal": pa.array([decimal.Decimal("1.10"), None, None, decimal.Decimal("1.1"), decimal.Decimal(2)]),
    "long decimal": pa.array([10**30, 10**30 + 1, None, 10**30, 7], pa.decimal128(38, 0)),
    "decimal256": pa.array([10**50, 10**50 + 1, None, 10**50, 7], pa.decimal256(60, 0)),
}


@pytest.mark.parametrize("kind", KEYS)
def test_any_type_is_a_key(kind):
    events = pa.table({"type": ["A", "A", "A", "B", "B"], "key": KEYS[kind]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [key]")
    found = query.evaluate(events)
    expected = [[0, 3], [1, 4]] if kind in ("float", "bool") else [[0, 3]]
    assert found["positions"].to_pylist() == expected
    values = KEYS["string" if kind == "dictionary of views" else kind]
    values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    values = values.cast(pa.large_string()) if "view" in kind else values
    assert found.schema.field("key").type == values.type
    ends = found["end"].to_pylist()
    assert repr(found["key"].to_pylist()) == repr([values[end].as_py() for end in ends])


@pytest.mark.long("many keys in each layout")
@pytest.mark.parametrize("window", ["WITHIN 40 EVENTS", "WITHIN 30000 [ts]", ""])
@pytest.mark.parametrize("layout", ["plain", "dictionary", "a dictionary for each batch"])
@pytest.mark.parametrize("n_keys", [40, 12_000])
def test_keys_of_texts_and_of_numbers_give_the_same_partitions(layout, window, n_keys):
    """A key of one text is looked up by the text's word, and any other in a hash table."""
    rng, n = random.Random(n_keys), 60_000
    numbers = [rng.choice([None, *range(9)]) if rng.random() < 0.1 else rng.randrange(n_keys) for _ in range(n)]
    texts = pa.array([None if number is None else f"name {number}" for number in numbers])
    events = pa.table({"type": rng.choices("ABCZ", k=n), "number": numbers, "name": texts, "ts": range(n)})
    if layout != "plain":
        events = events.set_column(2, "name", texts.dictionary_encode())
    pieces = [events.slice(begin, 7_000) for begin in range(0, n, 7_000)]
    if layout == "a dictionary for each batch":
        pieces = [each.set_column(2, "name", each["name"].cast("string").dictionary_encode()) for each in pieces]
    tables = []
    for key in ("number", "name"):
        query = cer_gpu.compile(f"SELECT * FROM S WHERE A ; B ; C PARTITION BY [{key}] {window} CONSUME BY PARTITION")
        whole = query.evaluate(pa.concat_tables(pieces))
        shares = [query.evaluate(pa.concat_tables(pieces), shard=(k, 3)) for k in range(3)]
        assert all(share.num_rows < whole.num_rows for share in shares)
        assert pa.concat_tables(shares).sort_by("end")["positions"].equals(whole["positions"])
        tables.append(whole)
    assert tables[0].num_rows > 1000
    assert tables[1]["positions"].equals(tables[0]["positions"])


def test_keys_of_the_null_type_are_in_no_partition():
    events = pa.table({"type": ["A", "B"], "key": pa.nulls(2)})
    assert positions(cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [key]"), events) == []


def test_alternatives_of_a_key_may_be_of_two_types_of_numbers():
    events = pa.table({"type": ["A", "B"], "a": pa.array([1, None], pa.int32()), "b": pa.array([None, 1.0])})
    found = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [a, b]").evaluate(events)
    assert found.to_pylist() == [{"start": 0, "end": 1, "positions": [0, 1], "a": 1.0}]


def test_a_key_may_change_its_layout_but_not_its_kind():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [key]")
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["A"], "key": pa.array(["x"])}))
    found = evaluator.push(pa.record_batch({"type": ["B"], "key": pa.array(["x"]).dictionary_encode()}))
    assert found.to_pylist() == [{"start": 0, "end": 1, "positions": [0, 1], "key": "x"}]
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["A"], "key": pa.array([1])}))
    with pytest.raises(cer_gpu.EventsError, match="the key 'key' of PARTITION BY was int64 at first and is string now"):
        evaluator.push(pa.record_batch({"type": ["B"], "key": pa.array(["x"])}))


# ---- sweeps, and the size of stacks -------------------------------------------------------------------------------


def evaluate_in_pieces(query, events, rows=500):
    evaluator = query.evaluator()
    found = [evaluator.push(batch) for batch in events.to_batches(max_chunksize=rows)]
    return evaluator, pa.Table.from_batches(found)


ENGINES = pytest.mark.parametrize("engine", [lambda query: query, by_automaton], ids=["stacks", "automaton"])


@ENGINES
def test_partitions_are_forgotten_when_their_window_has_passed(monkeypatch, engine):
    monkeypatch.setattr(partitions, "SWEEP_PARTITIONS_FROM", 64)
    n = 20_000
    events = pa.table({"type": ["A", "B"] * (n // 2), "key": [i // 2 for i in range(n)], "ts": range(n)})
    query = engine(cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [key] WITHIN 10 [ts]"))
    evaluator, found = evaluate_in_pieces(query, events)
    assert found.num_rows == n // 2
    assert evaluator.pipeline.partitioner.partitions.n < 2000
    # without a window all are needed
    query = engine(cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [key]"))
    evaluator, found = evaluate_in_pieces(query, events)
    assert evaluator.pipeline.partitioner.partitions.n == n // 2


@ENGINES
@pytest.mark.parametrize("window", ["WITHIN 5 [ts]", "WITHIN 5 EVENTS", ""])
def test_texts_of_irrelevant_events_are_forgotten(monkeypatch, window, engine):
    monkeypatch.setattr(partitions, "SWEEP_PARTITIONS_FROM", 64)
    monkeypatch.setattr(partitions, "SWEEP_STRINGS_FROM", 64)
    n = 20_000
    events = pa.table({"type": ["Z"] * n, "key": [f"user {i}" for i in range(n)], "ts": range(n)})
    query = engine(cer_gpu.compile(f"SELECT * FROM S WHERE A ; B PARTITION BY [key] {window}"))
    evaluator, _ = evaluate_in_pieces(query, events)
    assert evaluator.pipeline.partitioner.partitions.n == 0
    assert evaluator.pipeline.partitioner.partitions._encoders[0].n_strings <= 1000


def test_texts_of_a_large_dictionary_are_not_forgotten_at_each_batch(monkeypatch):
    swept = []
    keep = partitions.Partitions.keep
    monkeypatch.setattr(partitions, "SWEEP_STRINGS_FROM", 64)
    monkeypatch.setattr(partitions.Partitions, "keep", lambda self, kept: (swept.append(len(kept)), keep(self, kept)))
    codes = pa.array([0, 1, 2] * 1000, pa.int32())
    keys = [pa.DictionaryArray.from_arrays(codes, [f"{name} {i}" for i in range(500)]) for name in "xy"]
    evaluator = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [key] WITHIN 5 EVENTS").evaluator()
    for key in keys:
        for batch in pa.table({"type": ["A", "A", "A", "B", "B", "B"] * 500, "key": key}).to_batches(max_chunksize=300):
            evaluator.push(batch)
    assert len(swept) <= 2  # the texts of the first dictionary, once the second is there
    assert evaluator.pipeline.partitioner.partitions._encoders[0].n_strings <= 510


@ENGINES
@pytest.mark.parametrize("window", ["WITHIN 7 EVENTS", "WITHIN 2000 [ts]", ""])
def test_sweeps_do_not_change_the_results(monkeypatch, window, engine):
    rng = random.Random(1)
    n = 4000
    keys = [f"k{rng.randrange(1, 400)}" for _ in range(n)]
    events = pa.table({"type": rng.choices("ABCD", k=n), "key": keys, "ts": range(n)})
    query = engine(cer_gpu.compile(f"SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [key] {window}"))
    expected = query.evaluate(events)
    assert expected.num_rows > 20
    for name in ("SWEEP_PARTITIONS_FROM", "SWEEP_STRINGS_FROM"):
        monkeypatch.setattr(partitions, name, 2)
    assert evaluate_in_pieces(query, events, rows=37)[1].equals(expected)


@ENGINES
def test_partitions_whose_start_has_left_their_window_are_forgotten(monkeypatch, engine):
    monkeypatch.setattr(partitions, "SWEEP_PARTITIONS_FROM", 64)
    n = 5000
    events = pa.table({"type": ["A", *"C" * 9] * n, "key": [i // 10 for i in range(10 * n)]})
    evaluator, _ = evaluate_in_pieces(
        engine(cer_gpu.compile("SELECT * FROM S WHERE A ; B ; C PARTITION BY [key] WITHIN 5 EVENTS")), events
    )
    assert evaluator.pipeline.partitioner.partitions.n < 1000


@pytest.mark.parametrize("n_keys", [63, 64, 128])
def test_stacks_drop_instances_out_of_reach_beside_a_key_never_consumed(n_keys):
    """For any period of the stream, a sample of the instances shows that most are out of reach."""
    turns = 2000
    types = [t for k in range(n_keys) for t in ("A", "Z" if k == 0 else "B")] * turns
    events = pa.table({"type": types, "key": [k for k in range(n_keys) for _ in "AB"] * turns})
    evaluator, _ = evaluate_in_pieces(
        cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [key] CONSUME BY PARTITION"), events, rows=5000
    )
    assert len(evaluator.pipeline.runtime._instances) <= 1 << 13


@pytest.mark.parametrize("window", ["WITHIN 20 EVENTS", "WITHIN 3000 [ts]", "CONSUME BY PARTITION", "CONSUME BY ANY"])
def test_stacks_hold_only_instances_within_reach(window):
    n = 200_000
    events = pa.table({"type": ["A", "B", "C", "Z"] * (n // 4), "key": [i // 4 % 50 for i in range(n)], "ts": range(n)})
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A ; B ; C PARTITION BY [key] {window}")
    evaluator, found = evaluate_in_pieces(query, events)
    assert found.num_rows >= n // 4
    assert len(evaluator.pipeline.runtime._instances) == 1 << 12
    if window != "CONSUME BY ANY":
        endless, _ = evaluate_in_pieces(cer_gpu.compile("SELECT * FROM S WHERE A ; B ; D PARTITION BY [key]"), events)
        assert n // 2 <= len(endless.pipeline.runtime._instances) < 1.3 * n // 2


@pytest.mark.parametrize("window", [150_000, 400_000])
def test_stacks_grow_in_small_steps_while_the_window_moves(window):
    """Two events of four stay in reach; the ends, in another partition, complete none of them."""
    n = 4 * window
    keys = [i // 4 % 50 if i % 4 < 2 else -1 for i in range(n)]
    events = pa.table({"type": ["A", "B", "C", "Z"] * (n // 4), "key": keys, "ts": range(n)})
    last = pa.table({"type": ["C"], "key": [0], "ts": [n]})
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A ; B ; C PARTITION BY [key] WITHIN {window} [ts]")
    evaluator, found = evaluate_in_pieces(query, pa.concat_tables([events, last]), rows=50_021)
    n_each = window // 200
    assert found.num_rows == n_each * (n_each + 1) // 2
    assert set(found["end"].to_pylist()) == {n}
    assert evaluator.pipeline.runtime._regs[keyed_stacks.BASE] > window
    assert window // 2 <= len(evaluator.pipeline.runtime._instances) < 1.3 * window // 2


def test_the_ring_grows_after_wrapping_around(monkeypatch):
    """50 events are in the window, and later 80: the ring has wrapped around many times when it grows."""
    for name in ("_INITIAL_SIZE", "GENTLE_FROM"):
        monkeypatch.setattr(engine_stacks, name, 64)
    times = [*range(0, 5000, 2), *range(5000, 5080)]
    events = pa.table({"type": ["A"] * len(times) + ["B"], "key": [1] * (len(times) + 1), "ts": [*times, 5080]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [key] WITHIN 100 [ts]")
    evaluator = query.evaluator()
    (batch,) = events.combine_chunks().to_batches()
    starts = sorted(evaluator.push(batch)["start"].to_pylist())
    assert starts == [i for i, time in enumerate(times) if time >= 4980]
    assert 64 < len(evaluator.pipeline.runtime._instances) < 128


def test_too_many_instances_are_refused_with_a_hint(monkeypatch):
    monkeypatch.setattr(keyed_stacks, "MAX_INSTANCES", 5000)
    events = pa.table({"type": ["A"] * 6000, "key": [1] * 6000})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [key]")
    assert query.evaluate(events.slice(0, 4000)).num_rows == 0
    with pytest.raises(cer_gpu.EventsError, match=r"no memory for more than 5000 partial results\nhint: add WITHIN"):
        query.evaluator().push(events.to_batches()[0])


def test_memory_for_many_partitions_is_given_back(monkeypatch):
    monkeypatch.setattr(partitions, "SWEEP_PARTITIONS_FROM", 64)
    n_near, n_far = 5_000, 40_000
    times = [*range(n_near), *range(n_near, n_near + 5000 * n_far, 5000)]
    events = pa.table({"type": ["A"] * len(times), "key": range(len(times)), "ts": times})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [key] WITHIN 10000 [ts]")
    evaluator, _ = evaluate_in_pieces(query, events.slice(0, n_near))
    assert len(evaluator.pipeline.runtime._tops) >= n_near
    evaluator, _ = evaluate_in_pieces(query, events)
    assert len(evaluator.pipeline.runtime._tops) < 2000
    assert len(evaluator.pipeline.partitioner.partitions._keys) < 2000


# ---- overflow of 32-bit numbers ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_numbers():
    """Let the kernels of one test bound numbers by 200."""
    original, limit = evaluation.evaluate_events, evaluation.MAX_NUMBER
    evaluation.MAX_NUMBER = 200
    evaluation.evaluate_events = type(original)(original.py_func, targetoptions=dict(original.targetoptions))
    yield
    evaluation.evaluate_events, evaluation.MAX_NUMBER = original, limit


@pytest.mark.long("reads millions of events of a partition")
@pytest.mark.parametrize(
    ("types", "ends"),
    [
        (["A"] + ["Z"] * 300 + ["A", "B"], [302]),  # longer without a relevant event than numbers reach
        (["A", "B"] * 300, list(range(1, 600, 2))),
        (["A"] + ["Z"] * 4 + ["B"] * 400, [5]),
    ],
)
def test_events_of_a_partition_are_renumbered_before_overflow(small_numbers, types, ends):
    other = ["A", "B"]
    events = pa.table({"type": [*other, *types], "k": [2, 2, *[1] * len(types)]})
    query = by_automaton(cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 EVENTS LIMIT 1"))
    assert query.evaluate(events)["end"].to_pylist() == [1, *(end + 2 for end in ends)]


@pytest.mark.long("compiles the automaton's loop for small numbers")
def test_events_too_far_apart_in_a_partition_are_refused(small_numbers):
    query = by_automaton(cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [k]"))
    events = pa.table({"type": ["A"] + ["B"] * 300, "k": [1] * 301})
    with pytest.raises(cer_gpu.EventsError, match="add WITHIN, or a shorter one"):
        query.evaluate(events)


@pytest.mark.parametrize("kind", [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(18, 2)], ids=str)
def test_alternatives_of_decimals_of_any_width_are_told_apart(kind):
    first = pa.array([None, decimal.Decimal("0.00"), decimal.Decimal("0.01")], kind)
    other = pa.array([decimal.Decimal("-0.01"), None, decimal.Decimal("-0.01")], kind)
    events = pa.table({"type": ["A"] * 3, "d": first, "e": other})
    query = cer_gpu.compile("SELECT * FROM S WHERE A PARTITION BY [d, e]")
    assert query.evaluate(events)["d"].to_pylist() == [
        decimal.Decimal("-0.01"),
        decimal.Decimal("0.00"),
        decimal.Decimal("0.01"),
    ]
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; A PARTITION BY [d, e]")
    assert query.evaluate(events).num_rows == 0
    assert query.evaluate(events.set_column(1, "d", pa.nulls(3, kind)))["positions"].to_pylist() == [[0, 2]]
