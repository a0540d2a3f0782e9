"""Everything that one query can be asked for, of sets: each member finds what its query finds alone."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from cases import sorted_rows
from sizes import scaled, seeds

import cer_gpu
import cer_gpu.engine.execution_group
import cer_gpu.parallel.key_threads
import cer_gpu.parallel.stream_splitter
import cer_gpu.partition.partitions
from cer_gpu.parallel import range_threads as ranges

SEEDS = seeds(scaled(10, most=240))
KEYED = "SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 9 SECONDS"
KINDS = {
    "chain": "SELECT * FROM S WHERE A ; B ; C WITHIN 9 SECONDS",
    "keyed": KEYED,
    "counted": "SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 6 EVENTS",
    "texts": "SELECT * FROM S WHERE A ; B PARTITION BY [name] WITHIN 20 SECONDS",
    "joined": "SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x > a.x WITHIN 9 SECONDS",
    "absent": "SELECT * FROM S WHERE A ; !B WITHIN 5 SECONDS",
    "last": "SELECT LAST * FROM S WHERE A ; B WITHIN 9 EVENTS",
    "measured": "SELECT b.x - a.x AS gain FROM S WHERE A AS a ; B AS b WITHIN 6 EVENTS",
    "conjunctive": "Q(x) <- A(k = x), B(k = x) WITHIN 9 SECONDS",
    "lagging": "SELECT * FROM S WHERE A ; B AS b FILTER b[LAG(x, 1) > 20] PARTITION BY [k] WITHIN 20 SECONDS",
    "rows": "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FIRST(D.x) AS high, LAST(E.x) AS low "
    "PATTERN (D E+) DEFINE E AS x < PREV(x))",
    "all rows": "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES MATCH_NUMBER() AS n ALL ROWS PER MATCH "
    "PATTERN (D E) DEFINE E AS x < PREV(x))",
}
RANGED = ("chain", "keyed", "joined", "conjunctive")


def random_events(rng, n):
    names = pa.array(rng.choices(["nemo", "dory", "nell", None], k=n), pa.string())
    return pa.table(
        {
            "type": rng.choices("ABCDE", k=n),
            "k": pa.array(rng.choices([1, 2, 3, None], k=n), pa.int64()),
            "name": names,
            "ts": pa.array(sorted(rng.choices(range(n), k=n)), pa.timestamp("s")),
            "x": pa.array(rng.choices([*range(100), None], k=n), pa.int32()),
        }
    )


def some(rng, kinds=tuple(KINDS)):
    chosen = rng.sample(kinds, rng.randint(1, len(kinds)))
    return cer_gpu.compile_all({name: KINDS[name] for name in chosen}, time_column="ts")


def jumbled(rng, events):
    order = sorted(range(len(events)), key=lambda i: (events["ts"][i].value + rng.randint(0, 5), i))
    return events.take(order)


def pushed(evaluator, batches, found):
    for batch in batches:
        for name, rows in evaluator.push(batch).items():
            found.setdefault(name, []).append(rows)
    return found


def finished(evaluator, found):
    for name, rows in evaluator.finish().items():
        found.setdefault(name, []).append(rows)
    return {name: [row for rows in pieces for row in rows.to_pylist()] for name, pieces in found.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_members_of_all_kinds_find_what_each_finds_alone(seed, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(cer_gpu.engine.execution_group, "SET_ROWS", rng.choice([7, 1000]))
    queries, events = some(rng), random_events(rng, 150)
    batches = events.to_batches(max_chunksize=rng.choice([1, 9, 1000]))
    found = queries.evaluate(pa.RecordBatchReader.from_batches(events.schema, batches))
    for name, query in queries.items():
        expected = query.evaluate(events, threads=1)
        assert found[name].schema == expected.schema
        assert found[name].equals(expected), name
    assert queries.count(events) == {name: query.count(events) for name, query in queries.items()}


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_sets_on_threads_find_the_rows_of_one(seed, threads, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(ranges, "SAMPLE_ROWS", 20)
    monkeypatch.setattr(ranges, "MIN_RANGE_ROWS", 10)
    monkeypatch.setattr(ranges, "WINDOWS_A_RANGE", 1)
    monkeypatch.setattr(cer_gpu.parallel.key_threads, "KEY_BATCH_ROWS", 40)
    monkeypatch.setattr(cer_gpu.parallel.stream_splitter, "MIN_SHARD_QUERIES", rng.choice([1, 4]))
    monkeypatch.setattr(cer_gpu.engine.execution_group, "MANY_QUERIES", rng.choice([1, 128]))
    queries, events = some(rng, RANGED if seed % 2 else tuple(KINDS)), random_events(rng, 300)
    limit = rng.choice([None, None, 5])
    evaluator = queries.evaluator(limit=limit)
    found = {name: [] for name in queries}
    for name, rows in queries._find_matches(queries._open_source(events), evaluator, threads):
        found[name].append(rows)
    for name, query in queries.items():
        expected = query.evaluate(events, threads=1, limit=limit)
        table = pa.Table.from_batches(found[name], expected.schema)
        if limit is None:
            assert sorted_rows(table) == sorted_rows(expected), name
            assert evaluator.n_matches[name] == len(expected)
        else:
            assert len(table) == len(expected)
        if "end" in table.column_names:
            assert table["end"].to_pylist() == expected["end"].to_pylist()
    assert limit is not None or evaluator.n_events == len(events)


def test_sets_with_one_window_are_dealt_by_ranges(monkeypatch):
    used = []
    for name in ("on_threads", "on_threads_by_key"):
        original = getattr(cer_gpu.evaluable, name)
        monkeypatch.setattr(
            cer_gpu.evaluable, name, lambda *given, of=original, name=name: used.append(name) or of(*given)
        )
    events = random_events(random.Random(1), 50)
    for kinds in (RANGED, ("keyed", "texts"), ("chain", "last"), ("absent",), ("chain", "rows")):
        cer_gpu.compile_all({name: KINDS[name] for name in kinds}, time_column="ts").evaluate(events, threads=2)
        used.append("")
    assert used == ["on_threads", "", "on_threads", "", "on_threads_by_key", "", "", "on_threads_by_key", ""]


@pytest.mark.parametrize("seed", [*SEEDS, 20261127])  # a statement over all columns among queries of a few
def test_a_set_goes_on_from_a_checkpoint_at_any_cut(seed, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(cer_gpu.partition.partitions, "SWEEP_PARTITIONS_FROM", rng.choice([2, 1000]))
    monkeypatch.setattr(cer_gpu.engine.shared_state, "MAX_SHARED", rng.choice([1, 2, 1000]))
    queries, events = some(rng), random_events(rng, 150)
    options = {"lateness": "5s"} if rng.random() < 0.5 else {}
    arriving = jumbled(rng, events) if options else events
    evaluator, found = queries.evaluator(**options), {}
    for batch in arriving.to_batches(max_chunksize=rng.choice([1, 9, 40])):
        pushed(evaluator, [batch], found)
        if rng.random() < 0.5:
            evaluator = queries.restore(evaluator.checkpoint())
    found = finished(evaluator, found)
    in_order = arriving.take(np.argsort(arriving["ts"].to_numpy(), kind="stable"))
    for name, query in queries.items():
        # partitions of a statement come in the order in which they are read: that of time where events are held back
        alone = query.evaluate(in_order) if query.reads_whole_table else query.evaluate(arriving, threads=1, **options)
        assert found.get(name, []) == alone.to_pylist(), name


def test_a_checkpoint_holds_queries_that_were_added():
    rng = random.Random(5)
    events = random_events(rng, 90)
    batches = events.to_batches(max_chunksize=30)
    first = cer_gpu.compile_all({"keyed": KEYED, "gone": KINDS["chain"]}, time_column="ts")
    evaluator, found = first.evaluator(), {}
    pushed(evaluator, batches[:1], found)
    evaluator.add("texts", KINDS["texts"])
    evaluator.remove("gone")
    pushed(evaluator, batches[1:2], found)
    blob = evaluator.checkpoint()
    with pytest.raises(cer_gpu.CheckpointError, match="of other queries: of 'keyed', 'texts', and not of"):
        first.restore(blob)
    both = cer_gpu.compile_all({"keyed": KEYED, "texts": KINDS["texts"]}, time_column="ts")
    expected = {name: list(pieces) for name, pieces in found.items()}
    finished_alone = finished(*[evaluator, pushed(evaluator, batches[2:], expected)])
    again = both.restore(blob)
    assert finished(again, pushed(again, batches[2:], found)) == finished_alone
    assert finished_alone["keyed"] == both["keyed"].evaluate(events).to_pylist()
    other = cer_gpu.compile_all({"keyed": KEYED, "texts": KEYED}, time_column="ts")
    with pytest.raises(cer_gpu.CheckpointError, match=r"of another query 'texts' \(its text differs\)"):
        other.restore(blob)


@pytest.mark.parametrize("lateness", [None, "5s"])
def test_a_set_advances_as_its_queries_do(lateness):
    rng = random.Random(3)
    queries = cer_gpu.compile_all({name: KINDS[name] for name in ("absent", "keyed", "last")}, time_column="ts")
    events = random_events(rng, 60)
    evaluators = {name: query.evaluator(lateness=lateness) for name, query in queries.items()}
    evaluator, time = queries.evaluator(lateness=lateness), None
    for batch in events.to_batches(max_chunksize=7):
        told = evaluator.push(batch)
        alone = {name: each.push(batch) for name, each in evaluators.items()}
        assert {n: r.to_pylist() for n, r in told.items()} == {n: r.to_pylist() for n, r in alone.items() if len(r)}
        dues = [each.next_deadline for each in evaluators.values() if each.next_deadline is not None]
        assert evaluator.next_deadline == min(dues, default=None)
        time = batch["ts"][-1].as_py()
        told = evaluator.advance_watermark(time)
        alone = {name: each.advance_watermark(time) for name, each in evaluators.items()}
        assert {n: r.to_pylist() for n, r in told.items()} == {n: r.to_pylist() for n, r in alone.items() if len(r)}
    assert evaluator.n_late == evaluators["keyed"].n_late


def test_an_aggregate_and_a_share_are_those_of_each_query():
    events = random_events(random.Random(2), 120)
    text = "SELECT * FROM S WHERE A AS a ; B AS b"
    queries = cer_gpu.compile_all({"a": text, "b": f"{text} WITHIN 9 EVENTS"}, time_column="ts")
    for options in ({"output": "count", "aggregate": "SUM(b.x - a.x)"}, {"shard": (1, 3)}, {"output": "rows"}):
        found = queries.evaluate(events, **options)
        for name, query in queries.items():
            assert found[name].num_rows
            assert found[name].equals(query.evaluate(events, **options))
    parts = [queries.evaluate(events, shard=(k, 3)) for k in range(3)]
    whole = queries.evaluate(events)
    for name in queries:
        assert sorted_rows(pa.concat_tables([part[name] for part in parts])) == sorted_rows(whole[name])
    with pytest.raises(cer_gpu.OptionError, match="aggregate is an option of CEQL"):
        cer_gpu.compile_all({"rows": KINDS["rows"]}).evaluate(events, output=None, aggregate="COUNT(*)")


def test_sets_read_files_and_streams_by_name(tmp_path):
    rng = random.Random(4)
    events = random_events(rng, 100)
    pq.write_table(events, tmp_path / "events.parquet", row_group_size=20)
    queries = cer_gpu.compile_all(KINDS, time_column="ts")
    found = queries.evaluate(tmp_path / "events.parquet", threads=2)
    for name, table in queries.evaluate(events).items():
        assert sorted_rows(found[name]) == sorted_rows(table)
    streams = {"S": events.slice(0, 50), "T": events.slice(50)}
    pair = cer_gpu.compile_all(
        {"a": "SELECT * FROM S, T WHERE S>A ; T>B", "b": "SELECT * FROM S, T WHERE A ; B"}, time_column="ts"
    )
    evaluator, found = pair.evaluator(), {}
    for name, table in streams.items():
        for batch in table.to_batches():
            for query, rows in evaluator.push(batch, name).items():
                found.setdefault(query, []).extend(rows.to_pylist())
    for name, table in pair.evaluate(streams).items():
        assert found[name] == table.to_pylist()
    with pytest.raises(cer_gpu.OptionError, match="queries of a set read the same streams"):
        cer_gpu.QuerySet({**pair, "rows": cer_gpu.compile(KINDS["rows"])})


def test_a_statement_alone_has_an_evaluator_and_checkpoints():
    events = random_events(random.Random(6), 60)
    query = cer_gpu.compile(KINDS["rows"])
    evaluator, found = query.evaluator(), []
    for batch in events.to_batches(max_chunksize=11):
        found += evaluator.push(batch).to_pylist()
        evaluator = query.restore(evaluator.checkpoint())
    assert found == []
    assert evaluator.finish().equals(query.evaluate(events).combine_chunks().to_batches()[0])
    shares = [query.evaluate(events, shard=(k, 2)) for k in range(2)]
    assert sorted_rows(pa.concat_tables(shares)) == sorted_rows(query.evaluate(events))


def test_texts_with_codes_and_without_are_one_column():
    names = pa.array(["n", "n", "d", "n"]).dictionary_encode()
    events = pa.table({"type": ["A", "B", "A", "B"], "name": names, "ts": pa.array(range(4), pa.timestamp("s"))})
    keyed = "SELECT * FROM S WHERE A ; B PARTITION BY [name]"
    rows = "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY name ORDER BY ts PATTERN (A B) DEFINE A AS A.type = 'A')"
    for order in (1, -1):
        kinds = dict([("keyed", keyed), ("rows", rows)][::order])
        found = cer_gpu.compile_all(kinds, time_column="ts").stream(events).read_all()
        assert found.schema.field("name").type == pa.string()
        told = [found.filter(pc.equal(found["query"], name))["name"].to_pylist() for name in ("keyed", "rows")]
        assert told == [["n", "n"], ["n"]]
