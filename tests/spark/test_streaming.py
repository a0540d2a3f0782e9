"""Queries over streams on Spark: the rows of one evaluation, whatever the micro-batches and interruptions."""

import datetime as dt
import glob
import random
import socket
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_streams import (
    PROVIDER,
    ROCKSDB,
    START,
    US,
    add_files,
    all_types,
    end_at,
    late_by,
    random_events,
    rows_of,
    run,
    stream_of,
    written,
)

import cer_gpu
from cer_gpu.rules import Rule, compile_rules

pytest.importorskip("pyspark")

from spark_glue.errors import SparkSetupError
from spark_glue.streaming import explain_stream, match_batches, match_stream
from spark_glue.streaming.stream_evaluation import in_order

KEYED = "SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 SECONDS"
SILENT = "SELECT * FROM S WHERE A ; !B PARTITION BY [k] WITHIN 5 SECONDS"
SHARED = "SELECT * FROM S WHERE A AS a ; B AS b FILTER a.name = b.name WITHIN 3 SECONDS"
WHOLE = "SELECT * FROM S WHERE A ; B ; C WITHIN 2 SECONDS"
POSITIONS = ("start", "end", "positions")


@pytest.fixture(scope="module")
def spark(spark):
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, ROCKSDB)
    yield spark
    spark.conf.set(PROVIDER, before)


def compiled(text):
    return cer_gpu.compile(text, time_column="ts")


def groups_of(spark, keys, groups):
    """Return the group of each key."""
    from pyspark.sql import functions as sf

    df = spark.createDataFrame([(key,) for key in keys], "k int")
    group = sf.pmod(sf.xxhash64("k"), sf.lit(groups)).alias("g")
    return {row.k: row.g for row in df.select("k", group).collect()}


def test_files_of_events_out_of_order_give_the_rows_of_one_evaluation(spark, tmp_path):
    """The queries are stopped after half of the files, and started again from their checkpoints."""
    events = random_events(1)
    arrived = late_by(2, events, 4)
    stream = stream_of(spark, tmp_path / "in")
    keyed, silent = compiled(KEYED), compiled(SILENT)
    found = {
        "keyed": match_stream(stream, keyed, lateness="4s", groups=3),
        "silent": match_stream(stream, silent, lateness="4s", output="positions", groups=1),
    }
    add_files(tmp_path / "in", arrived.slice(0, 200), 1)
    run(found, tmp_path)
    add_files(tmp_path / "in", arrived.slice(200), 1, first=2)
    add_files(tmp_path / "in", end_at(1_000), 1, first=4)
    queries = run(found, tmp_path)
    assert [query.exception() for query in queries] == [None, None]
    assert {p["numInputRows"] for p in queries[0].recentProgress} >= {200, 1}

    expected = silent.evaluate(events)  # one group: positions are those of the stream
    assert len(expected) > 20
    assert rows_of(written(spark, tmp_path, "silent", expected.schema)) == rows_of(expected)
    # positions number the events of a group
    group_of = groups_of(spark, range(9), 3)
    of_groups = []
    for group in range(3):
        own = events.filter(pa.array([k is not None and group_of[k] == group for k in events["k"].to_pylist()]))
        of_groups.append(keyed.evaluate(own, output="events"))
    expected = keyed.evaluate(events, output="events")
    found = written(spark, tmp_path, "keyed", expected.schema)
    assert len(expected) > 20
    assert rows_of(found) == rows_of(pa.concat_tables(of_groups))
    assert rows_of(found, without=POSITIONS) == rows_of(expected, without=POSITIONS)


def test_events_are_dealt_by_a_value_that_they_share(spark, tmp_path):
    events = random_events(3)
    add_files(tmp_path / "in", events, 2)
    query = compiled(SHARED)
    stream = stream_of(spark, tmp_path / "in")
    run({"shared": match_stream(stream, query, lateness="0s", output="rows", groups=3)}, tmp_path)
    expected = query.evaluate(events, output="rows")
    found = written(spark, tmp_path, "shared", expected.schema)
    assert len(expected) > 20
    apart = ["match", "position"]
    assert rows_of(found, without=apart) == rows_of(expected, without=apart)
    assert len(set(found["match"].to_pylist())) == len(set(expected["match"].to_pylist()))


def test_the_watermark_makes_known_what_no_event_of_its_group_does(spark, tmp_path):
    """The window of the A ends at second 6, included; the watermark passes 6.000 and then 6.001 seconds."""
    stream = stream_of(spark, tmp_path / "in")
    found = {"silent": match_stream(stream, compiled(SILENT), lateness="10s", groups=64)}
    add_files(tmp_path / "in", end_at(1, type="A", k=1), 1)
    add_files(tmp_path / "in", end_at(16), 1, first=1)
    run(found, tmp_path)
    assert pq_rows(tmp_path / "silent" / "out") == 0
    add_files(tmp_path / "in", end_at(16.001), 1, first=2)
    (query,) = run(found, tmp_path)
    assert pq_rows(tmp_path / "silent" / "out") == 1
    # by a timer: in a micro-batch without events
    assert [p["numInputRows"] for p in query.recentProgress if p["sink"].get("numOutputRows", 1)][-1] == 0


def pq_rows(folder):
    return sum(pq.read_metadata(path).num_rows for path in glob.glob(f"{folder}/*.parquet"))


def test_events_of_every_type_come_through_with_their_nulls(spark, tmp_path):
    from spark_glue.schema import to_spark

    events = all_types(random.Random(3), 50)
    events = events.append_column("type", pa.array(["A", "B"] * 25))
    events = events.append_column("ts", pa.array([START + 1_000_000 * i for i in range(50)], US))
    end = events.slice(49).set_column(events.num_columns - 1, "ts", pa.array([START + 10**9], US))
    add_files(tmp_path / "in", events, 2)
    add_files(tmp_path / "in", end.set_column(events.num_columns - 2, "type", pa.array(["Z"])), 1, first=2)
    stream = stream_of(spark, tmp_path / "in", to_spark(events.schema))
    query = compiled("SELECT * FROM S WHERE A ; B WITHIN 1 SECONDS")
    run({"all": match_stream(stream, query, groups=1)}, tmp_path)
    expected = query.evaluate(events, output="events")
    assert len(expected) == 25
    assert rows_of(written(spark, tmp_path, "all", expected.schema)) == rows_of(expected)


def test_times_without_a_zone_and_ties_are_streamed(spark, tmp_path):
    events = random_events(5, 120, 30, ties=True)
    arrived = late_by(6, events, 2)
    local = pa.timestamp("us")
    at = events.schema.get_field_index("ts")

    def as_local(table):
        return table.set_column(at, "ts", table["ts"].cast(pa.timestamp("us")).cast(local))

    add_files(tmp_path / "in", as_local(arrived), 1)  # one micro-batch: ties are in order of all columns
    add_files(tmp_path / "in", as_local(end_at(1_000)), 1, first=1)
    schema = "type string, ts timestamp_ntz, k int, x double, name string"
    query = compiled("SELECT * FROM S WHERE A ; B ; C WITHIN 1 SECONDS")
    stream = stream_of(spark, tmp_path / "in", schema)
    found = match_stream(stream, query, order_by=["ts", "x"], groups=1, output="positions")
    run({"local": found}, tmp_path)
    columns = ["type", "ts", "k", "x", "name"]
    expected = query.evaluate(in_order(as_local(events).select(["type", "ts", "x"]), ["ts", "x"]))
    assert len(expected) > 20
    assert columns == events.column_names
    assert rows_of(written(spark, tmp_path, "local", expected.schema)) == rows_of(expected)


def test_the_rate_source_is_a_stream(spark, tmp_path):
    rate = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    events = rate.selectExpr("if(value % 2 = 0, 'A', 'B') AS type", "timestamp AS ts", "value % 3 AS k", "value")
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 1 SECONDS", time_column="ts")
    found = match_stream(events, query, lateness="0s", groups=2)
    running = found.writeStream.format("memory").queryName("rated").outputMode("append").start()
    try:
        for _ in range(600):
            rows = spark.table("rated").limit(5).collect()
            if rows or not running.isActive:
                break
            time.sleep(0.1)
    finally:
        running.stop()
    assert running.exception() is None
    assert rows
    for row in rows:
        first, second = row.events
        assert (first.type, second.type) == ("A", "B")
        assert first.k == second.k == row.k
        assert dt.timedelta(0) <= second.ts - first.ts <= dt.timedelta(seconds=1)


def test_lines_of_a_socket_are_a_stream(spark, tmp_path):
    lines = ["A,2024-05-01 00:00:01,1", "A,2024-05-01 00:00:02,2", "B,2024-05-01 00:00:03,1", "C,2024-05-01 01:00:00,1"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
        events = text.selectExpr("split(value, ',') AS f").selectExpr(
            "f[0] AS type", "CAST(f[1] AS timestamp) AS ts", "CAST(f[2] AS int) AS k"
        )
        query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 1 MINUTES", time_column="ts")
        found = match_stream(events, query, lateness="1s", groups=2)
        running = found.writeStream.format("memory").queryName("lines").outputMode("append").start()
        try:
            server.settimeout(60)
            connection, _ = server.accept()
            with connection:
                connection.sendall("".join(f"{line}\n" for line in lines).encode())
                for _ in range(600):
                    rows = spark.table("lines").collect()
                    if rows or not running.isActive:
                        break
                    time.sleep(0.1)
        finally:
            running.stop()
    assert running.exception() is None
    (row,) = rows
    assert [(event.type, event.k) for event in row.events] == [("A", 1), ("B", 1)]


# ---- refused ---------------------------------------------------------------------------------------------------


def refused(spark, tmp_path, text=KEYED, *, schema="type string, ts timestamp, k int", time_column="ts", **options):
    (tmp_path / "in").mkdir(exist_ok=True)
    query = cer_gpu.compile(text, time_column=time_column)
    return match_stream(stream_of(spark, tmp_path / "in", schema), query, **options)


def test_one_task_is_said(spark, tmp_path):
    with pytest.warns(UserWarning, match=r"one task evaluates the whole stream: the query has no PARTITION BY"):
        refused(spark, tmp_path, WHOLE)
    assert refused(spark, tmp_path, WHOLE, groups=1).isStreaming
    with pytest.raises(cer_gpu.OptionError, match=r"8 groups would not give the rows of a single process: the query"):
        refused(spark, tmp_path, WHOLE, groups=8)
    assert explain_stream(compiled(WHOLE)) == "one task: the query has no PARTITION BY"
    assert explain_stream(compiled(KEYED)).startswith("groups of events by k,")
    assert explain_stream(compiled(SHARED)).startswith("groups of events by name,")
    beside = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 [x]", time_column="ts")
    assert "'x' never decreases" in explain_stream(beside)
    assert "forgets" in explain_stream(compiled(KEYED + " CONSUME BY ANY"))


def test_what_cannot_be_streamed_is_refused(spark, tmp_path):
    with pytest.raises(cer_gpu.QueryTypeError, match=r"names 'when', which the events do not have"):
        refused(spark, tmp_path, order_by="when")
    with pytest.raises(cer_gpu.QueryTypeError, match=r"ordered by 'k' first, which is int"):
        refused(spark, tmp_path, order_by="k", time_column=None, text="SELECT * FROM S WHERE A ; B PARTITION BY [k]")
    with pytest.raises(cer_gpu.OptionError, match=r"time of the query is 'at', and the stream is ordered by 'ts'"):
        refused(spark, tmp_path, time_column="at", schema="type string, ts timestamp, at timestamp, k int")
    with pytest.raises(cer_gpu.QueryTypeError, match=r"names 'k', which is array<int>: it has no order"):
        refused(
            spark, tmp_path, WHOLE, order_by=["ts", "k"], schema="type string, ts timestamp, k array<int>", groups=1
        )
    with pytest.raises(cer_gpu.OptionError, match=r"names no column"):
        refused(spark, tmp_path, order_by=[])
    with pytest.raises(cer_gpu.OptionError, match=r"cannot read the lateness"):
        refused(spark, tmp_path, lateness="soon")
    with pytest.raises(cer_gpu.OptionError, match=r"output"):
        refused(spark, tmp_path, output="all")
    with pytest.raises(cer_gpu.OptionError, match=r"groups must be a number from 1"):
        refused(spark, tmp_path, groups=0)
    with pytest.raises(cer_gpu.OptionError, match=r"expected a streaming DataFrame"):
        match_stream(spark.range(3), compiled(KEYED))
    with pytest.raises(cer_gpu.OptionError, match=r"expected a compiled query, got str"):
        match_stream(spark.range(3), KEYED)
    spark.conf.set(PROVIDER, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    try:
        with pytest.raises(SparkSetupError, match=r"must be kept in RocksDB.*\n.*hint: spark.conf.set"):
            refused(spark, tmp_path, groups=2)
    finally:
        spark.conf.set(PROVIDER, ROCKSDB)


# ---- batch by batch --------------------------------------------------------------------------------------------


def as_df(spark, table):
    return spark.createDataFrame(table.to_pandas(), "type string, ts timestamp, k int, x double, name string")


def found_in(folder, n):
    tables = [pq.read_table(f"{folder}/batch-{i}.parquet") for i in range(n)]
    return pa.concat_tables(tables)


def test_batches_that_are_repeated_write_the_same_files(spark, tmp_path):
    events = random_events(7, 240, 120)
    pieces = [late_by(8, events, 3).slice(i * 60, 60) for i in range(4)] + [end_at(1_000)]
    query = compiled("SELECT * FROM S WHERE A ; B ; !C WITHIN 3 SECONDS")
    out, states = str(tmp_path / "out"), str(tmp_path / "states")
    options = {"checkpoint": states, "lateness": "3s", "output": "positions"}
    function = match_batches(query, out, **options)
    for i, piece in enumerate(pieces):
        function(as_df(spark, piece), i)
        if i == 1:  # repeated by the same driver
            function(as_df(spark, piece), i)
        if i in (0, 2):  # and by another one
            before = (tmp_path / "out" / f"batch-{i}.parquet").read_bytes()
            function = match_batches(query, out, **options, by_partition=True)
            function(as_df(spark, piece), i)
            assert (tmp_path / "out" / f"batch-{i}.parquet").read_bytes() == before
    expected = query.evaluate(events)
    assert len(expected) > 10
    found = found_in(out, 5)
    assert rows_of(found.cast(expected.schema)) == rows_of(expected)
    assert sorted(path.name for path in (tmp_path / "states").iterdir()) == ["state-3", "state-4"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"batch-{i}.parquet" for i in range(5)]
    with pytest.raises(cer_gpu.CheckpointError, match=r"micro-batch 7 begins with the state after 6"):
        function(as_df(spark, pieces[0]), 7)
    with pytest.raises(cer_gpu.CheckpointError, match=r"micro-batch 0 begins"):
        function(as_df(spark, pieces[0]), 0)


def test_batches_check_their_options(spark, tmp_path):
    query = compiled(WHOLE)
    with pytest.raises(cer_gpu.OptionError, match="expected a compiled query"):
        match_batches(WHOLE, "out", checkpoint="states")
    with pytest.raises(cer_gpu.OptionError, match="lateness"):
        match_batches(query, "out", checkpoint="states", lateness=-1)
    with pytest.raises(cer_gpu.OptionError, match="output"):
        match_batches(query, "out", checkpoint="states", output="all")
    (tmp_path / "file").write_text("")
    function = match_batches(query, str(tmp_path / "file"), checkpoint=str(tmp_path / "states"))
    with pytest.raises(cer_gpu.CerError, match="cannot use the folder"):
        function(as_df(spark, end_at(1)), 0)


def test_a_set_is_streamed(spark, tmp_path):
    events = random_events(8, 120, 60)
    texts = {"keyed": KEYED, "silent": SILENT, "whole": WHOLE}
    queries = cer_gpu.compile_all(texts, time_column="ts")
    add_files(tmp_path / "in", events, 2)
    add_files(tmp_path / "in", end_at(1_000), 1, first=2)
    stream = stream_of(spark, tmp_path / "in")
    run({"set": match_stream(stream, queries, lateness="0s", output="positions", groups=1)}, tmp_path)
    states = str(tmp_path / "states")
    function = match_batches(queries, str(tmp_path / "batches"), checkpoint=states, lateness="0s", output="positions")
    for i, piece in enumerate([events.slice(0, 50), events.slice(50), end_at(1_000)]):
        function(as_df(spark, piece), i)
    for found in (spark.read.parquet(f"{tmp_path}/set/out").toArrow(), found_in(str(tmp_path / "batches"), 3)):
        assert sorted(set(found["query"].to_pylist())) == sorted(texts)
        for name, text in texts.items():
            expected = compiled(text).evaluate(events)
            assert len(expected) > 5
            own = found.filter(pa.array([query == name for query in found["query"].to_pylist()]))
            assert rows_of(own.select(expected.schema.names).cast(expected.schema)) == rows_of(expected), name


def test_rules_raise_alerts_on_a_stream(spark, tmp_path):
    """The stream is stopped after each file, and started again from its checkpoint, by key and on the driver."""
    rules = {
        "keyed": Rule("keyed", KEYED, level="high", techniques=("T1",)),
        "silent": Rule("silent", SILENT, level="low", id="1"),
        "sequence": Rule("sequence", "sequence by k with maxspan=5s [A where true] [B where true]", "eql", tags=("t",)),
        "missing": Rule("missing", "A where no.such.field == null and k == 1", "eql"),
    }
    rules = compile_rules(rules, time_column="ts", type_column="type", missing_fields="null")
    keyed = {name: rule for name, rule in rules.rules.items() if name != "missing"}
    keyed = compile_rules(keyed, time_column="ts", type_column="type", missing_fields="null")
    events = random_events(9, 160, 80)
    stream, states = stream_of(spark, tmp_path / "in"), str(tmp_path / "states")
    found = {"keyed": match_stream(stream, keyed, lateness="0s", output="alerts", groups=3)}
    pieces = [events.slice(0, 70), events.slice(70), end_at(1_000)]
    for i, piece in enumerate(pieces):
        add_files(tmp_path / "in", piece, 1, first=i)
        run(found, tmp_path)
        function = match_batches(rules, str(tmp_path / "b"), checkpoint=states, lateness="0s", output="alerts")
        function(as_df(spark, piece), i)
    by_key = spark.read.parquet(f"{tmp_path}/keyed/out").toArrow()
    for table, queries in (by_key, keyed), (found_in(str(tmp_path / "b"), 3), rules):
        expected = queries.alerts(pa.concat_tables(pieces)).cast(table.schema)
        assert min(expected["rule"].to_pylist().count(name) for name in queries) > 5
        # positions count the events of a group
        assert rows_of(table, without=POSITIONS) == rows_of(expected, without=POSITIONS)
    assert rows_of(table) == rows_of(expected)
