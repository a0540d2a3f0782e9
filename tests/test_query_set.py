"""Many queries in one pass, compared with each query by itself."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from cases import sorted_rows
from sizes import scaled, seeds

import cer_gpu
import cer_gpu.engine.execution_group
import cer_gpu.engine.shared_state
import cer_gpu.partition.partitions
import cer_gpu.query_set
from cer_gpu.columnar.memory import read_only
from cer_gpu.engine.blocks import Blocks
from cer_gpu.predicates import host_sets
from cer_gpu.predicates.shared_guards import SharedGuards
from cer_gpu.runtime import matches

SEEDS = seeds(scaled(25, most=600))
PATTERNS = [
    "A ; B",
    "A ; B+ ; C",
    "A : B",
    "A AS a ; A AS b FILTER b[x > 50]",
    "(A AS a OR B) ; C FILTER a[x > 20 AND f < 40]",
    "A AS a ; B AS b FILTER a[name LIKE 'n%' AND x > 20]",
    "A AS a ; B AS b FILTER a[name = 'nemo']",
    "A AS a ; B AS b FILTER b.x > a.x",
    "A AS a ; B AS b FILTER b.k = a.k",
    "A ; !B ; C",
    "A ; !(B AS x FILTER x[x > 50]) ; C",
    "A ALL C",
    "A{2,3} ; D",
    "D AS a ; C AS b FILTER b[LAG(x, 1) > 20]",
    "D AS a ; C AS b FILTER a[length(name) = 4]",
    "Z ; A",
    "A AS a ; (B OR C OR D)+ ; D FILTER a[x IS NOT NULL]",
]
CLAUSES = [
    "WITHIN 9 EVENTS",
    "WITHIN 20 SECONDS",
    "PARTITION BY [k] WITHIN 40 SECONDS",
    "PARTITION BY [k] WITHIN 6 EVENTS",
    "PARTITION BY [name] WITHIN 30 SECONDS",
    "PARTITION BY [k], [name] WITHIN 30 [ts]",
    "PARTITION BY [k] WITHIN 25 [f]",
]
OUTPUTS = [None, "positions", "bindings", "events", "count", "ends"]


def random_queries(rng):
    texts = {}
    for i in range(rng.randint(1, 9)):
        strategy = rng.choice(["ALL"] * 4 + ["NEXT", "LAST", "MAX", "STRICT", "ANY"])
        texts[f"q{i}"] = f"SELECT {strategy} * FROM S WHERE {rng.choice(PATTERNS)} {rng.choice(CLAUSES)}"
    return texts


def random_events(rng, n):
    times = sorted(rng.choices(range(n), k=n))
    names = pa.array(rng.choices(["nemo", "dory", "nell", None], k=n))
    return pa.table(
        {
            "type": rng.choices(["A", "B", "C", "D", "E", None], k=n),
            "k": rng.choices([1, 2, 3, None], k=n),
            "name": names.dictionary_encode() if rng.random() < 0.5 else names,
            "ts": pa.array(times, pa.timestamp("s")),
            "x": pa.array(rng.choices([*range(100), None], k=n), pa.int32()),
            "f": pa.array([t / 2 - 5 for t in times], pa.float64()),
        }
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_set_finds_the_tables_of_its_queries(seed, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(cer_gpu.engine.execution_group, "SET_ROWS", rng.choice([5, 17, 1000]))
    monkeypatch.setattr(cer_gpu.predicates.shared_guards, "SPARSE", rng.choice([0, 1, 4]))
    monkeypatch.setattr(host_sets, "PIECE_ROWS", rng.choice([64, 1 << 13]))
    monkeypatch.setattr(host_sets, "FIRST_PIECE", rng.choice([1, 20, 512]))
    monkeypatch.setattr(host_sets, "MAX_CACHED_STRINGS", rng.choice([0, 1 << 19]))
    monkeypatch.setattr(cer_gpu.engine.shared_state, "MAX_SHARED", rng.choice([1, 3, 1000]))
    monkeypatch.setattr(cer_gpu.partition.partitions, "SWEEP_PARTITIONS_FROM", rng.choice([2, 4, 1000]))
    monkeypatch.setattr(matches, "OUTPUT_ROWS", rng.choice([2, 16, 1 << 17]))
    texts, events = random_queries(rng), random_events(rng, rng.randint(0, 150))
    output, limit = OUTPUTS[seed % len(OUTPUTS)], rng.choice([None, None, None, 3])
    queries = cer_gpu.compile_all(texts, time_column="ts")
    batches = events.to_batches(max_chunksize=rng.choice([1, 7, 1000]))
    reader = pa.RecordBatchReader.from_batches(events.schema, batches)
    found = queries.evaluate(reader, output=output, limit=limit)
    assert list(found) == list(texts)
    for name, table in found.items():
        expected = queries[name].evaluate(events, output=output, threads=1, limit=limit)
        assert table.schema == expected.schema
        assert table.equals(expected), texts[name]


@pytest.mark.parametrize("seed", list(SEEDS)[:20])
def test_queries_come_and_go_between_batches(seed, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(cer_gpu.partition.partitions, "SWEEP_PARTITIONS_FROM", rng.choice([2, 1000]))
    texts, events = random_queries(rng), random_events(rng, 120)
    added = random_queries(rng)
    evaluator = cer_gpu.compile_all(texts, time_column="ts").evaluator()
    found = [evaluator.push(batch) for batch in events[:60].to_batches(max_chunksize=13)]
    for name, text in added.items():
        evaluator.add("new " + name, text)
    gone = evaluator.remove("q0")
    found += [evaluator.push(batch) for batch in events[60:].to_batches(max_chunksize=13)]
    found.append(evaluator.finish())

    def rows(name):
        return [row for each in found if name in each for row in each[name].to_pylist()]

    for name, text in texts.items():
        query = cer_gpu.compile(text, time_column="ts")
        expected = query.evaluate(events[:60] if name == "q0" else events, threads=1).to_pylist()
        assert rows(name) + (gone.to_pylist() if name == "q0" else []) == expected
    for name, text in added.items():
        if "LAG" in text or "ANY" in text:
            continue  # what came before the query is not seen; another event may be kept
        expected = cer_gpu.compile(text, time_column="ts").evaluate(events[60:], threads=1).to_pylist()
        shifted = [
            {**row, "start": row["start"] + 60, "end": row["end"] + 60, "positions": [p + 60 for p in row["positions"]]}
            for row in expected
        ]
        assert sorted_rows(pa.Table.from_pylist(rows("new " + name))) == sorted_rows(pa.Table.from_pylist(shifted))


def test_late_events_are_put_in_order_for_all_queries():
    rng = random.Random(3)
    events = random_events(rng, 100)
    shuffled = events.take([i for start in range(0, 100, 4) for i in rng.sample(range(start, start + 4), 4)])
    texts = {
        "ab": "SELECT * FROM S WHERE A ; B WITHIN 9 SECONDS",
        "keys": "SELECT * FROM S WHERE B ; C PARTITION BY [k]",
    }
    queries = cer_gpu.compile_all(texts, time_column="ts")
    for options in ({"lateness": "60s"}, {"sort": True}):
        found = queries.evaluate(shuffled, **options)
        for name, table in found.items():
            assert table.num_rows
            assert table.equals(queries[name].evaluate(shuffled, threads=1, **options))


def test_several_streams_are_read_once():
    rng = random.Random(4)
    streams = {"S": random_events(rng, 60), "T": random_events(rng, 60)}
    texts = {
        name: f"SELECT * FROM S, T WHERE {p} WITHIN 9 SECONDS" for name, p in {"a": "S>A ; T>B", "b": "A ; B"}.items()
    }
    queries = cer_gpu.compile_all(texts, time_column="ts")
    for name, table in queries.evaluate(streams).items():
        assert table.num_rows
        assert table.equals(queries[name].evaluate(streams, threads=1))


def test_a_stream_names_the_query_of_each_row():
    events = random_events(random.Random(1), 200)
    texts = {
        "plain": "SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS",
        "keyed": "SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 SECONDS",
        "measured": "SELECT b.x - a.x AS gain FROM S WHERE A AS a ; B AS b WITHIN 5 EVENTS",
    }
    queries = cer_gpu.compile_all(texts, time_column="ts")
    found = queries.stream(events).read_all()
    assert found.schema == queries.output_schema(events.schema)
    assert found.column_names[0] == "query"
    for name, table in queries.evaluate(events).items():
        rows = found.filter(pa.compute.equal(found["query"], name)).select(table.column_names)
        assert table.num_rows
        assert rows.to_pylist() == table.to_pylist()


def test_columns_of_two_types_make_no_stream():
    texts = {
        "a": "SELECT b.x - a.x AS gain FROM S WHERE A AS a ; B AS b WITHIN 5 EVENTS",
        "b": "SELECT b.f - a.f AS gain FROM S WHERE A AS a ; B AS b WITHIN 5 EVENTS",
    }
    with pytest.raises(cer_gpu.OptionError, match="column 'gain' of the results is"):
        cer_gpu.compile_all(texts).stream(random_events(random.Random(1), 9))


def test_errors_name_their_query():
    good = "SELECT * FROM S WHERE A ; B"
    with pytest.raises(cer_gpu.QuerySyntaxError, match="query 'bad': "):
        cer_gpu.compile_all({"good": good, "bad": "SELECT * FROM S WHERE A ;; B"})
    with pytest.raises(cer_gpu.QueryTypeError, match="query 'bad': "):
        cer_gpu.compile_all({"good": good, "bad": f"{good} AS b FILTER b[q > 1]"}).evaluate(random_events(random, 5))
    with pytest.raises(cer_gpu.OptionError, match="at least one query"):
        cer_gpu.compile_all({})
    evaluator = cer_gpu.compile_all({"good": good}).evaluator()
    with pytest.raises(cer_gpu.OptionError, match="there is a query 'good' already"):
        evaluator.add("good", good)
    with pytest.raises(cer_gpu.OptionError, match="did you mean 'good'"):
        evaluator.remove("god")
    with pytest.raises(cer_gpu.OptionError, match="one time_column"):
        evaluator.add("timed", cer_gpu.compile(good, time_column="ts"))


def test_equal_guards_are_evaluated_once():
    texts = {f"q{i}": f"SELECT * FROM S WHERE A AS a ; {b} FILTER a[x > 20]" for i, b in enumerate("BCD")}
    rules = cer_gpu.compile_all(texts)
    rules.evaluate(random_events(random.Random(1), 100))
    assert rules._bound.guards is not None
    assert rules._bound.guards.guards.n_guards == 4


def test_only_columns_that_some_query_reads_are_taken(monkeypatch):
    taken = []
    batch = Blocks.batch
    monkeypatch.setattr(Blocks, "batch", lambda self, events: taken.append(events.schema.names) or batch(self, events))
    events = random_events(random.Random(1), 30).to_batches()[0]
    evaluator = cer_gpu.compile_all({"q": "SELECT * FROM S WHERE A AS a ; B FILTER a[x > 50]"}).evaluator()
    evaluator.push(events)
    evaluator.add("keys", "SELECT * FROM S WHERE A ; C PARTITION BY [k]")
    evaluator.push(events)
    evaluator.push(events.drop_columns("f"))
    assert [sorted(names) for names in taken] == [["type", "x"], ["k", "type", "x"], ["k", "type", "x"]]


def test_partitions_are_found_of_events_that_some_query_reads():
    rng = random.Random(6)
    events = random_events(rng, 400)
    texts = {
        "rare": "SELECT * FROM S WHERE Z ; A PARTITION BY [k] WITHIN 40 SECONDS",
        "all": "SELECT * FROM S WHERE A AS a ; B AS b FILTER b[LAG(x, 1) > 20] PARTITION BY [k] WITHIN 40 SECONDS",
    }
    types = pa.array(["Z" if rng.random() < 0.05 else kind for kind in events["type"].to_pylist()])
    types = pc.if_else(pc.equal(types, "A"), pa.scalar("Y"), types)
    events = events.set_column(0, "type", types)
    texts["rare"] = texts["rare"].replace("; A", "; Z")
    for names in (["rare"], ["rare", "all"], ["all", "rare"]):
        queries = cer_gpu.compile_all({name: texts[name] for name in names}, time_column="ts")
        evaluator = queries.evaluator()
        found = evaluator.push(events.combine_chunks().to_batches()[0])
        assert found["rare"].num_rows
        expected = queries["rare"].evaluate(events, threads=1)
        assert found["rare"].to_pylist() == expected.to_pylist()
        (shared,) = (each for each in evaluator._group.shared._partitions.values() if each.all.n)
        assert (True in shared._cached) == ("all" in names)


def test_an_error_ends_the_stream_of_all_queries():
    events = random_events(random.Random(1), 30).to_batches()[0]
    evaluator = cer_gpu.compile_all(
        {"q": "SELECT * FROM S WHERE A ; !B WITHIN 9 SECONDS"}, time_column="ts"
    ).evaluator()
    evaluator.push(events)
    with pytest.raises(cer_gpu.TimeOrderError):
        evaluator.push(events)
    with pytest.raises(cer_gpu.OptionError, match="an error ended the stream"):
        evaluator.push(events)
    assert evaluator.finish() == {}


@pytest.mark.parametrize("seed", seeds(20))
def test_lists_of_rows_are_merged_as_in_python(seed):
    rng = np.random.default_rng(seed)
    n, n_lists = int(rng.integers(1, 50)), int(rng.integers(1, 12))
    lists = [np.flatnonzero(rng.random(n) < 0.3).astype(np.int32) for _ in range(n_lists)]
    dtype = np.uint8 if n_lists <= 8 else np.uint16
    shared = SharedGuards(pa.schema([]), None, None)
    rows, words = shared.merge([read_only(each) for each in lists], dtype)
    every = sorted(set(np.concatenate(lists).tolist()))
    assert words.dtype == dtype
    assert rows.tolist() == every
    assert words.tolist() == [sum(1 << i for i, each in enumerate(lists) if row in each) for row in every]
