"""A query spread over tasks gives the rows of a single process: any strategy, any number of tasks and partitions."""

from __future__ import annotations

import datetime
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import sorted_rows
from spark_settings import BATCH_ROWS, setting

import cer_gpu
from spark_glue import match
from spark_glue.deal import choose

pytest.importorskip("pyspark")


def random_events(n=1500, seed=0):
    rng = random.Random(seed)
    seconds = sorted(rng.choices(range(n), k=n))
    begin = datetime.datetime(2020, 3, 29)
    return pa.table(
        {
            "type": rng.choices("ABCD", k=n),
            "k": rng.choices([1, 2, 3, None], k=n),
            "name": rng.choices(["x", "y", "z"], k=n),
            "ts": pa.array(
                [begin + datetime.timedelta(seconds=s, microseconds=7) for s in seconds], pa.timestamp("us")
            ),
            "x": pa.array(seconds),
            "id": pa.array(range(n)),
        }
    )


@pytest.fixture(scope="module")
def events():
    return random_events()


@pytest.fixture(scope="module")
def df(spark, events):
    """The same rows, in no order."""
    shuffled = random.Random(1).sample(range(len(events)), len(events))
    return spark.createDataFrame(events.take(shuffled)).repartition(4).cache()


CASES = [
    ("SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 8 EVENTS", "partition", 3, "events"),
    ("SELECT MAX * FROM S WHERE A ; B ; C PARTITION BY [k] WITHIN 30 EVENTS", "partition", 2, "count"),
    ("SELECT STRICT * FROM S WHERE A ; B PARTITION BY [name], [k] CONSUME BY PARTITION", "partition", 3, "bindings"),
    ("SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [name] WITHIN 20 SECONDS", "range", 3, "positions"),
    ("SELECT * FROM S WHERE A ; B+ ; C WITHIN 9 EVENTS", "range", 3, "events"),
    ("SELECT * FROM S WHERE A : B ; C WITHIN 7 [x]", "range", 4, "count"),
    ("SELECT NEXT * FROM S WHERE A ; B ; C WITHIN 900 EVENTS", "replicate", 2, "events"),
    ("SELECT * FROM S WHERE A ; B CONSUME BY ANY", "replicate", 2, "count"),
    ("Q(n) <- A(name = n), B(name = n), C(name = n) WITHIN 40 EVENTS", "partition", 3, "bindings"),
    ("Q(n) <- A(name = n, k = k), B(name = n, k = k), C(k = k) WITHIN 40 SECONDS", "partition", 2, "positions"),
    ("SELECT MAX * FROM S WHERE A ALL B FILTER A.k = B.x WITHIN 50 EVENTS", "partition", 3, "events"),
    ("SELECT * FROM S WHERE A ALL B ALL C WITHIN 9 EVENTS", "range", 3, "count"),
    ("SELECT * FROM S WHERE A ALL B ALL C FILTER A.k < B.k AND B.x = C.x WITHIN 9 EVENTS", "range", 2, "bindings"),
    ("SELECT * FROM S WHERE A ALL B FILTER A.name = B.name CONSUME BY ANY", "replicate", 2, "positions"),
    ("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.name = a.name PARTITION BY [k]", "partition", 3, "bindings"),
    ("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.ts - a.ts > 9 SECONDS WITHIN 20 SECONDS", "range", 3, "events"),
    ("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.id > 2 * a.id", "replicate", 2, "count"),
]


@pytest.mark.parametrize(("text", "strategy", "tasks", "output"), CASES)
def test_the_rows_of_a_single_process(df, events, text, strategy, tasks, output):
    query = cer_gpu.compile(text, time_column="ts")
    expected = query.evaluate(events, output=output)
    assert expected.num_rows > 10
    found = match(df, query, order_by=["ts", "id"], strategy=strategy, tasks=tasks, output=output).toArrow()
    assert sorted_rows(found.cast(expected.schema)) == sorted_rows(expected)


def test_the_flights_by_aircraft(spark, flights):
    query = cer_gpu.compile(
        "SELECT * FROM flights WHERE LANDED AS a ; DEPARTED AS b FILTER a[delay > 120] AND b[delay > 60] "
        "PARTITION BY [tailnum] WITHIN 4 HOURS",
        time_column="ts",
    )
    expected = query.evaluate(flights).group_by("tailnum").aggregate([([], "count_all")])
    found = spark.read.parquet(flights).transform(match(query, order_by="ts", output="positions")).toArrow()
    # rows of equal times may have other positions, in the same substreams
    assert sorted_rows(found.group_by("tailnum").aggregate([([], "count_all")])) == sorted_rows(expected)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("SELECT * FROM S WHERE A ; B PARTITION BY [k]", "partition"),
        ("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 SECONDS CONSUME BY ANY", "replicate"),
        ("SELECT * FROM S WHERE A ; B WITHIN 5 SECONDS", "range"),
        ("SELECT STRICT * FROM S WHERE A ; B WITHIN 5 EVENTS", "range"),
        ("SELECT MAX * FROM S WHERE A ; B WITHIN 5 EVENTS", "range"),
        ("SELECT MAX * FROM S WHERE A ; B THEN WITHIN 5 EVENTS", "replicate"),
        ("SELECT * FROM S WHERE A ; B", "replicate"),
    ],
)
def test_what_auto_chooses(text, chosen):
    assert choose(cer_gpu.compile(text, time_column="ts"), "auto")[0] == chosen


@pytest.mark.parametrize(
    ("text", "strategy", "reason"),
    [
        ("SELECT * FROM S WHERE A ; B", "range", "no WITHIN"),
        ("SELECT * FROM S WHERE A ; B", "partition", "no PARTITION BY"),
        ("SELECT LAST * FROM S WHERE A ; B THEN WITHIN 5 EVENTS", "range", "LAST compares"),
        ("SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS CONSUME BY ANY", "range", "CONSUME BY ANY depends"),
        ("SELECT * FROM S WHERE A ; B PARTITION BY [k] CONSUME BY ANY", "partition", "CONSUME BY ANY forgets"),
        ("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 EVENTS", "range", "counts the events of a partition"),
        ("SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS LIMIT 3", "range", "LIMIT keeps the first"),
        ("SELECT ANY * FROM S WHERE A ; B WITHIN 5 EVENTS", "range", "ANY keeps the first"),
        ("SELECT * FROM S WHERE A ; B", "rnage", "strategy must be one of"),
    ],
)
def test_what_is_not_exact_is_refused(text, strategy, reason):
    with pytest.raises(cer_gpu.OptionError, match=reason):
        choose(cer_gpu.compile(text), strategy)


def test_times_that_are_not_the_order_need_all_events_together():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 SECONDS", time_column="ts")
    assert choose(query, "auto", "ts")[0] == "partition"
    assert choose(query, "auto", "id")[0] == "range"
    with pytest.raises(cer_gpu.OptionError, match="that 'ts' never decreases is to be seen only where"):
        choose(query, "partition", "id")


@pytest.mark.parametrize("change", ["distinct", "map", "union", "explode"])
def test_rows_that_are_not_those_of_files(spark, tmp_path, change):
    """They have no number in a file; duplicates that were taken out stay out."""
    table = pa.table({"type": list("AABBAB"), "id": [1, 1, 2, 2, 3, 4]})
    pq.write_table(table, tmp_path / "events.parquet")
    df = spark.read.parquet(str(tmp_path / "events.parquet"))
    if change == "distinct":
        df, rows = df.distinct(), [("A", 1), ("B", 2), ("A", 3), ("B", 4)]
    elif change == "map":
        df, rows = (
            df.mapInArrow(lambda batches: batches, df.schema),
            [("A", 1), ("A", 1), ("B", 2), ("B", 2), ("A", 3), ("B", 4)],
        )
    elif change == "union":
        df, rows = df.filter("id > 2").unionAll(df.filter("id > 3")), [("A", 3), ("B", 4), ("B", 4)]
    else:
        df = df.filter("id > 2").selectExpr("type", "explode(array(id, id)) AS id")
        rows = [("A", 3), ("A", 3), ("B", 4), ("B", 4)]
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    expected = query.evaluate(pa.table({"type": [t for t, _ in rows], "id": [i for _, i in rows]}))
    found = match(df, query, order_by="id", tasks=2, output="positions").toArrow()
    assert sorted_rows(found.cast(expected.schema)) == sorted_rows(expected)


@pytest.mark.parametrize(
    ("text", "strategy", "output"),
    [
        ("SELECT * FROM S WHERE A ; B FILTER B[`x y` > 9] PARTITION BY [`k.1`] WITHIN 8 EVENTS", "partition", "events"),
        ("SELECT A[`k.1`], B FROM S WHERE A ; B FILTER A[`k.1` < 3] WITHIN 7 [`x y`]", "range", "events"),
        ("SELECT NEXT * FROM S WHERE A ; B ; C WITHIN 900 EVENTS", "replicate", "count"),
    ],
)
@pytest.mark.parametrize("stored", [False, True])
def test_columns_may_have_dots_and_blanks_in_their_names(spark, tmp_path, events, text, strategy, output, stored):
    named = events.select(["type", "ts", "k", "x", "id"]).rename_columns(["we ird.type", "t.s", "k.1", "x y", "i`d"])
    if stored:  # two files, each in order
        pq.write_table(named.slice(0, 700), tmp_path / "0.parquet")
        pq.write_table(named.slice(700), tmp_path / "1.parquet")
        df = spark.read.parquet(str(tmp_path))
    else:
        df = spark.createDataFrame(named.take(list(range(len(named)))[::-1])).repartition(3)
    query = cer_gpu.compile(text, type_column="we ird.type", time_column="t.s")
    expected = query.evaluate(named, output=output)
    assert expected.num_rows > 10
    found = match(df, query, order_by=["t.s", "i`d"], strategy=strategy, tasks=3, output=output).toArrow()
    assert found.column_names == expected.column_names
    assert sorted_rows(found.cast(expected.schema)) == sorted_rows(expected)


@pytest.mark.parametrize(
    ("text", "strategy", "output"),
    [
        ("SELECT a[st.k, id], b[st] FROM S WHERE A AS a ; B AS b PARTITION BY [st.in.name]", "partition", "events"),
        ("SELECT a[st.k, st.in.name], b[ts] FROM S WHERE A AS a ; B AS b FILTER a[st.k < 3]", "range", "events"),
        ("SELECT * FROM S WHERE A AS a ; B AS b FILTER b[b.st.in.`a.b` > 9 AND st.k <> 2]", "range", "positions"),
    ],
)
@pytest.mark.parametrize("stored", [False, True])
def test_fields_of_structs(spark, tmp_path, events, text, strategy, output, stored):
    """Some structs are NULL."""
    inner = pa.StructArray.from_arrays([events["name"].combine_chunks(), events["x"].combine_chunks()], ["name", "a.b"])
    absent = pa.array([i % 7 == 0 for i in range(len(events))])
    st = pa.StructArray.from_arrays([events["k"].combine_chunks(), inner], ["k", "in"], mask=absent)
    at = pa.StructArray.from_arrays([events["x"].combine_chunks()], ["x"])
    table = events.select(["type", "ts", "id"]).append_column("st", st).append_column("at", at)
    if stored:
        pq.write_table(table.slice(0, 700), tmp_path / "0.parquet")
        pq.write_table(table.slice(700), tmp_path / "1.parquet")
        df = spark.read.parquet(str(tmp_path))
    else:
        df = spark.createDataFrame(table.take(list(range(len(table)))[::-1])).repartition(3)
    query = cer_gpu.compile(f"{text} WITHIN 7 [at.x]", time_column="ts")
    expected = query.evaluate(table, output=output)
    assert expected.num_rows > 10
    order = "id" if strategy == "range" else ["ts", "id"]
    if strategy == "partition":  # a window over another column than the first of the order needs all events together
        query = cer_gpu.compile(f"{text} WITHIN 7 SECONDS", time_column="ts")
        expected = query.evaluate(table, output=output)
    found = match(df, query, order_by=order, strategy=strategy, tasks=3, output=output).toArrow()
    assert sorted_rows(found.cast(expected.schema)) == sorted_rows(expected)


@pytest.mark.parametrize("rows", [0, -1])
def test_batches_of_spark_without_a_limit(spark, tmp_path, events, rows):
    """The setting of the session that means as many rows as there are."""
    pq.write_table(events.slice(0, 700), tmp_path / "0.parquet")
    pq.write_table(events.slice(700), tmp_path / "1.parquet")
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 20 SECONDS", time_column="ts")
    expected = query.evaluate(events, output="positions")
    with setting(spark, BATCH_ROWS, rows):
        df = spark.read.parquet(str(tmp_path))
        found = match(df, query, order_by=["ts", "id"], tasks=3, output="positions").toArrow()
    assert sorted_rows(found.cast(expected.schema)) == sorted_rows(expected)


@pytest.mark.parametrize(
    ("order", "message"), [("tss", "did you mean 'ts'"), ("name", "expected a timestamp, a date or")]
)
def test_a_wrong_order(df, order, message):
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    with pytest.raises(cer_gpu.QueryTypeError, match=message):
        match(df, query, order_by=order)
