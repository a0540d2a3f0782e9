"""Keys of PARTITION BY dealt to threads: any number of them finds the table of one thread, row by row."""

from __future__ import annotations

import random
import threading

import pyarrow as pa
import pytest
from sizes import scaled, seeds
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.parallel import key_threads as module
from cer_gpu.parallel import range_threads as ranges
from cer_gpu.parallel.stream_splitter import StreamSplitter

SEEDS = seeds(scaled(25, most=600))
PATTERNS = ["A ; B", "A ; B+ ; C", "A : B+", "(A OR B)+ ; C", "A+ : C", "A AS a ; C FILTER a[x > 3]"]
PATTERNS += ["A AS a ; B AS b ; C AS c FILTER b.x > a.x AND c.text = a.text", "A AS a : B AS b FILTER b.x <> a.x"]
CLAUSES = ["", "", "WITHIN 6 EVENTS", "WITHIN 25 EVENTS", "WITHIN 4 EVENTS CONSUME BY PARTITION", "LIMIT 2"]
LONG = {"ALL": "WITHIN 9 EVENTS"}
"""Window that keeps the results of a strategy few if the query has no other."""


def random_events(rng, n):
    n_keys = rng.choice([1, 3, 40])
    keys = [f"key {i}" for i in range(n_keys)] + ["", None]
    table = pa.table(
        {
            "type": pa.array(rng.choices("ABCD", k=n), pa.string()),
            "text": pa.array(rng.choices(keys, k=n), pa.string()),
            "number": pa.array(rng.choices([0.0, -0.0, 1.5, float("nan"), None], k=n), pa.float64()),
            "x": pa.array([rng.randint(0, 9) for _ in range(n)], pa.int32()),
        }
    )
    if rng.random() < 0.5:
        table = table.set_column(1, "text", table["text"].dictionary_encode())
    return table


@pytest.mark.parametrize("seed", SEEDS)
def test_threads_by_key_find_the_table_of_one_thread(monkeypatch, seed):
    rng = random.Random(seed)
    strategy = ["ALL", "ANY", "NEXT", "LAST", "MAX", "STRICT"][seed % 6]
    keys, clause = rng.choice(["[text]", "[number]", "[text], [x]", "[text], [number]"]), rng.choice(CLAUSES)
    if not clause.startswith("WITHIN"):
        clause = f"{LONG.get(strategy, '')} {clause}"
    query = cer_gpu.compile(f"SELECT {strategy} * FROM S WHERE {rng.choice(PATTERNS)} PARTITION BY {keys} {clause}")
    events = random_events(rng, rng.randint(0, 300))
    batches = events.to_batches(max_chunksize=rng.choice([1, 7, 50, 1000]))
    output = ["positions", "bindings", "events", "count", "ends"][seed % 5]
    monkeypatch.setattr(module, "KEY_BATCH_ROWS", rng.choice([5, 33, 1000]))
    monkeypatch.setattr(module, "MAX_WAITING_BATCHES", rng.choice([1, 2, 16]))
    monkeypatch.setattr(module, "BATCHES_AHEAD", rng.choice([0, 1, 2]))
    with small_sizes():
        expected = query.evaluate(events, output=output, threads=1)
        reader = pa.RecordBatchReader.from_batches(events.schema, batches)
        found = query.evaluate(reader, output=output, threads=rng.randint(2, 4))
    assert found.schema == expected.schema
    assert repr(found.to_pylist()) == repr(expected.to_pylist())  # keys may be NaN


def test_a_forgotten_key_stays_with_its_thread(monkeypatch):
    """Dropping idle partitions changes the codes of texts, but not the thread of a text."""
    monkeypatch.setattr("cer_gpu.partition.partitions.SWEEP_PARTITIONS_FROM", 4)
    monkeypatch.setattr("cer_gpu.partition.partitions.SWEEP_STRINGS_FROM", 4)
    monkeypatch.setattr(module, "KEY_BATCH_ROWS", 7)
    rng = random.Random(5)
    n = 3000
    events = pa.table({"type": rng.choices("AB", k=n), "k": [f"k{i // 30 + rng.randint(0, 5)}" for i in range(n)]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 EVENTS")
    expected = query.evaluate(events, threads=1)
    assert expected.num_rows > 1000
    for threads in (2, 3):
        assert query.evaluate(events, threads=threads).equals(expected)


def test_each_thread_has_a_share_of_the_keys():
    query = cer_gpu.compile("SELECT * FROM S WHERE A PARTITION BY [k]")
    events = pa.table({"type": ["A"] * 3000, "k": list(range(3000))})
    evaluator = query.evaluator()
    evaluator.expect(events.schema)
    splitter = StreamSplitter(evaluator._group)
    shards = [splitter.shard_group(k, 3).push(events.to_batches()[0]) for k in range(3)]
    found = [[end for _, rows in shard for end in rows["end"].to_pylist()] for shard in shards]
    assert sorted(end for each in found for end in each) == list(range(3000))
    assert all(900 < len(each) < 1100 for each in found)


def test_the_error_message_is_that_of_one_thread():
    events = pa.table({"type": ["A"] * 300, "k": [1, 2, 3] * 100, "ts": [*range(250), 3, *range(251, 300)]})
    query = cer_gpu.compile("SELECT LAST * FROM S WHERE A ; A PARTITION BY [k] WITHIN 5 [ts]", time_column="ts")
    messages = []
    for threads in (1, 2):
        with pytest.raises(cer_gpu.TimeOrderError, match="event 250 ") as error:
            query.evaluate(events, threads=threads)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_threads_end_with_their_reader_and_their_counts_add_up(monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING_BATCHES", 1)
    before = threading.active_count()
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; A PARTITION BY [k] WITHIN 50 EVENTS")
    events = pa.table({"type": ["A"] * 20_000, "k": [i % 5 for i in range(20_000)]})
    reader = query._match_source(query._open_source(events), query.evaluator(), 3)
    assert next(reader).num_rows
    reader.close()
    assert threading.active_count() == before
    evaluator = query.evaluator()
    found = sum(batch.num_rows for batch in query._match_source(query._open_source(events), evaluator, 3))
    assert (evaluator.n_events, evaluator.n_matches) == (20_000, found)


def test_the_query_decides_between_keys_ranges_and_one_thread(monkeypatch):
    used = []
    for where, name in ((module, "on_threads_by_key"), (ranges, "on_threads")):
        original = getattr(where, name)
        monkeypatch.setattr(
            f"cer_gpu.evaluable.{name}", lambda *given, of=original, name=name: used.append(name) or of(*given)
        )
    events = pa.table({"type": ["A", "B"], "k": [1, 1], "ts": [1, 2]})
    for clauses in (
        "PARTITION BY [k]",
        "PARTITION BY [k] WITHIN 3 EVENTS",
        "PARTITION BY [k] WITHIN 3 [ts]",
        "PARTITION BY [k] CONSUME BY ANY",
        "",
    ):
        cer_gpu.compile(f"SELECT * FROM S WHERE A ; B {clauses}").evaluate(events, threads=2)
        used.append("")
    assert used == ["on_threads_by_key", "", "on_threads_by_key", "", "on_threads", "", "", ""]


@pytest.mark.parametrize("clause", ["", "WITHIN 3 EVENTS"])
def test_keys_that_are_null_with_an_empty_dictionary_are_dealt(clause):
    """No text has a number yet when the shares of the first keys are computed."""
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A ; B PARTITION BY [text], [x] {clause}")
    nothing = pa.DictionaryArray.from_arrays(pa.nulls(2, pa.int32()), pa.array([], pa.string()))
    texts = [nothing, pa.array(["a", "a"]).dictionary_encode()]
    batches = [pa.record_batch({"type": ["A", "B"], "text": text, "x": [1, 1]}) for text in texts]
    found = query.evaluate(batches, threads=2)
    assert found["positions"].to_pylist() == [[2, 3]]
    assert found.equals(query.evaluate(batches, threads=1))
