"""A query spread over tasks gives the rows of a single process: any distribution, number of tasks and partitions."""

from __future__ import annotations

import datetime
import itertools
import random
import re
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from cases import sorted_rows
from sizes import seeds
from spark_settings import BATCH_ROWS, setting

import cer_gpu
from spark_glue import match, plain_errors
from spark_glue.distribution import choose_distribution
from spark_glue.files.stored_events import DirectReadError
from spark_glue.match import plan_match
from spark_glue.work import work_of

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


POSITIONS = ("start", "end", "positions")


def assert_rows_of_one_process(df, query, expected, **options):
    """Match with row numbers, and without: then positions are others, one for each event."""
    found = match(df, query, **options, row_numbers=True).toArrow()
    assert found.column_names == expected.column_names
    assert sorted_rows(found.cast(expected.schema)) == sorted_rows(expected)
    found = match(df, query, **options).toArrow().cast(expected.schema)
    if "positions" in expected.column_names:
        for positions in found["positions"].to_pylist():
            assert positions == sorted(set(positions))
    left = [name for name in POSITIONS if name in expected.column_names]
    others = [name for name in expected.column_names if options["output"] == "bindings" and name not in left]
    if not others:
        assert sorted_rows(found.drop_columns(left)) == sorted_rows(expected.drop_columns(left))
    ids = [position for column in left for position in found[column].to_pylist()]
    wanted = [position for column in left for position in expected[column].to_pylist()]
    flat, expected_flat = (
        [each for value in values for each in (value if isinstance(value, list) else [value])]
        for values in (ids, wanted)
    )
    # as many times as each event is in a result, whatever its number
    assert sorted(Counter(flat).values()) == sorted(Counter(expected_flat).values())


CASES = [
    ("SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 8 EVENTS", "key", 3, "events"),
    ("SELECT MAX * FROM S WHERE A ; B ; C PARTITION BY [k] WITHIN 30 EVENTS", "key", 2, "count"),
    ("SELECT STRICT * FROM S WHERE A ; B PARTITION BY [name], [k] CONSUME BY PARTITION", "key", 3, "bindings"),
    ("SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [name] WITHIN 20 SECONDS", "range", 3, "positions"),
    ("SELECT * FROM S WHERE A ; B+ ; C WITHIN 9 EVENTS", "range", 3, "events"),
    ("SELECT * FROM S WHERE A : B ; C WITHIN 7 [x]", "range", 4, "count"),
    ("SELECT NEXT * FROM S WHERE A ; B ; C WITHIN 900 EVENTS", "broadcast", 2, "events"),
    ("SELECT * FROM S WHERE A ; B CONSUME BY ANY", "broadcast", 2, "count"),
    ("Q(n) <- A(name = n), B(name = n), C(name = n) WITHIN 40 EVENTS", "key", 3, "bindings"),
    ("Q(n) <- A(name = n, k = k), B(name = n, k = k), C(k = k) WITHIN 40 SECONDS", "key", 2, "positions"),
    ("SELECT MAX * FROM S WHERE A ALL B FILTER A.k = B.x WITHIN 50 EVENTS", "key", 3, "events"),
    ("SELECT * FROM S WHERE A ALL B ALL C WITHIN 9 EVENTS", "range", 3, "count"),
    ("SELECT * FROM S WHERE A ALL B ALL C FILTER A.k < B.k AND B.x = C.x WITHIN 9 EVENTS", "range", 2, "bindings"),
    ("SELECT * FROM S WHERE A ALL B FILTER A.name = B.name CONSUME BY ANY", "broadcast", 2, "positions"),
    ("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.name = a.name PARTITION BY [k]", "key", 3, "bindings"),
    ("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.ts - a.ts > 9 SECONDS WITHIN 20 SECONDS", "range", 3, "events"),
    ("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.id > 2 * a.id", "broadcast", 2, "count"),
]


@pytest.mark.parametrize(("text", "distribution", "tasks", "output"), CASES)
def test_the_rows_of_a_single_process(df, events, text, distribution, tasks, output):
    query = cer_gpu.compile(text, time_column="ts")
    expected = query.evaluate(events, output=output)
    assert expected.num_rows > 10
    options = {"distribution": distribution, "tasks": tasks, "output": output}
    assert_rows_of_one_process(df, query, expected, order_by=["ts", "id"], **options)


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
        ("SELECT * FROM S WHERE A ; B PARTITION BY [k]", "key"),
        ("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 SECONDS CONSUME BY ANY", "broadcast"),
        ("SELECT * FROM S WHERE A ; B WITHIN 5 SECONDS", "range"),
        ("SELECT STRICT * FROM S WHERE A ; B WITHIN 5 EVENTS", "range"),
        ("SELECT MAX * FROM S WHERE A ; B WITHIN 5 EVENTS", "range"),
        ("SELECT MAX * FROM S WHERE A ; B THEN WITHIN 5 EVENTS", "broadcast"),
        ("SELECT * FROM S WHERE A ; B", "broadcast"),
    ],
)
def test_what_auto_chooses(text, chosen):
    assert choose_distribution(work_of(cer_gpu.compile(text, time_column="ts")), "auto")[0] == chosen


@pytest.mark.parametrize(
    ("text", "distribution", "reason"),
    [
        ("SELECT * FROM S WHERE A ; B", "range", "no WITHIN"),
        ("SELECT * FROM S WHERE A ; B", "key", "no PARTITION BY"),
        ("SELECT LAST * FROM S WHERE A ; B THEN WITHIN 5 EVENTS", "range", "LAST compares"),
        ("SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS CONSUME BY ANY", "range", "CONSUME BY ANY depends"),
        ("SELECT * FROM S WHERE A ; B PARTITION BY [k] CONSUME BY ANY", "key", "CONSUME BY ANY forgets"),
        ("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 EVENTS", "range", "counts the events of a partition"),
        ("SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS LIMIT 3", "range", "LIMIT keeps the first"),
        ("SELECT ANY * FROM S WHERE A ; B WITHIN 5 EVENTS", "range", "ANY keeps the first"),
        ("SELECT * FROM S WHERE A ; B", "rnage", "distribution must be one of"),
    ],
)
def test_what_is_not_exact_is_refused(text, distribution, reason):
    with pytest.raises(cer_gpu.OptionError, match=reason):
        choose_distribution(work_of(cer_gpu.compile(text)), distribution)


def test_times_that_are_not_the_order_need_all_events_together():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 SECONDS", time_column="ts")
    assert choose_distribution(work_of(query), "auto", "ts")[0] == "key"
    assert choose_distribution(work_of(query), "auto", "id")[0] == "range"
    with pytest.raises(cer_gpu.OptionError, match="that 'ts' never decreases is to be seen only where"):
        choose_distribution(work_of(query), "key", "id")


def test_ranges_of_a_stream_that_another_column_than_the_time_orders(spark):
    """The window before a range is measured by the time, not by the numbers that order the events."""
    table = random_events(60).select(["type", "ts"]).append_column("id", pa.array([i * 10**9 for i in range(60)]))
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 30 SECONDS", time_column="ts")
    expected = query.evaluate(table)
    assert expected.num_rows > 10
    df = spark.createDataFrame(table)
    found = match(
        df, query, order_by="id", distribution="range", tasks=4, output="positions", row_numbers=True
    ).toArrow()
    assert sorted_rows(found.cast(expected.schema)) == sorted_rows(expected)


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
    found = match(df, query, order_by="id", tasks=2, output="positions", row_numbers=True).toArrow()
    assert sorted_rows(found.cast(expected.schema)) == sorted_rows(expected)


@pytest.mark.parametrize(
    ("text", "distribution", "output"),
    [
        ("SELECT * FROM S WHERE A ; B FILTER B[`x y` > 9] PARTITION BY [`k.1`] WITHIN 8 EVENTS", "key", "events"),
        ("SELECT A[`k.1`], B FROM S WHERE A ; B FILTER A[`k.1` < 3] WITHIN 7 [`x y`]", "range", "events"),
        ("SELECT NEXT * FROM S WHERE A ; B ; C WITHIN 900 EVENTS", "broadcast", "count"),
    ],
)
@pytest.mark.parametrize("stored", [False, True])
def test_columns_may_have_dots_and_blanks_in_their_names(spark, tmp_path, events, text, distribution, output, stored):
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
    options = {"distribution": distribution, "tasks": 3, "output": output}
    assert_rows_of_one_process(df, query, expected, order_by=["t.s", "i`d"], **options)


@pytest.mark.parametrize(
    ("text", "distribution", "output"),
    [
        ("SELECT a[st.k, id], b[st] FROM S WHERE A AS a ; B AS b PARTITION BY [st.in.name]", "key", "events"),
        ("SELECT a[st.k, st.in.name], b[ts] FROM S WHERE A AS a ; B AS b FILTER a[st.k < 3]", "range", "events"),
        ("SELECT * FROM S WHERE A AS a ; B AS b FILTER b[b.st.in.`a.b` > 9 AND st.k <> 2]", "range", "positions"),
    ],
)
@pytest.mark.parametrize("stored", [False, True])
def test_fields_of_structs(spark, tmp_path, events, text, distribution, output, stored):
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
    order = "id" if distribution == "range" else ["ts", "id"]
    if distribution == "key":  # a window over another column than the first of the order needs all events together
        query = cer_gpu.compile(f"{text} WITHIN 7 SECONDS", time_column="ts")
        expected = query.evaluate(table, output=output)
    assert_rows_of_one_process(df, query, expected, order_by=order, distribution=distribution, tasks=3, output=output)


@pytest.mark.parametrize("rows", [0, -1])
def test_batches_of_spark_without_a_limit(spark, tmp_path, events, rows):
    """The setting of the session that means as many rows as there are."""
    pq.write_table(events.slice(0, 700), tmp_path / "0.parquet")
    pq.write_table(events.slice(700), tmp_path / "1.parquet")
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 20 SECONDS", time_column="ts")
    expected = query.evaluate(events, output="positions")
    with setting(spark, BATCH_ROWS, rows):
        df = spark.read.parquet(str(tmp_path))
        found = match(df, query, order_by=["ts", "id"], tasks=3, output="positions", row_numbers=True).toArrow()
    assert sorted_rows(found.cast(expected.schema)) == sorted_rows(expected)


@pytest.mark.parametrize(
    ("order", "message"), [("tss", "did you mean 'ts'"), ("name", "expected a timestamp, a date or")]
)
def test_a_wrong_order(df, order, message):
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    with pytest.raises(cer_gpu.QueryTypeError, match=message):
        match(df, query, order_by=order)


# ---- files that tasks read by themselves, and rows that Spark sends -----------------------------------------------


def stored(folder, table, rng):
    """Write events to files in a random layout, and return the paths in their order."""
    cuts = sorted({0, len(table), *rng.sample(range(1, len(table)), rng.randint(0, 3))})
    for i, (begin, end) in enumerate(itertools.pairwise(cuts)):
        part = table.slice(begin, end - begin)
        pq.write_table(part, folder / f"{rng.randint(0, 9)}{i}.parquet", row_group_size=rng.choice([50, 137, 5000]))
    return sorted(str(path) for path in folder.iterdir())


@pytest.mark.parametrize("seed", seeds(2))
def test_files_and_rows_give_the_rows_of_a_single_process(spark, tmp_path, seed):
    """Events of files in any order of their names, with equal times in several; by files, positions are row numbers."""
    rng = random.Random(seed)
    table = random_events(700, seed)
    if seed % 2:
        table = table.take(rng.sample(range(700), 700))  # in no order
    paths = stored(tmp_path, table, rng)
    together = pa.concat_tables([pq.read_table(path) for path in paths])
    in_order = together.take(pc.sort_indices(together["ts"]))  # stable: equal times stay in the order of files
    text, _, _, output = CASES[[3, 5][seed]]
    query = cer_gpu.compile(text, time_column="ts")
    expected = {
        "files": query.evaluate(paths, sort=True, output=output),
        "rows": query.evaluate(in_order, output=output),
    }
    assert expected["rows"].num_rows > 10
    df = spark.read.parquet(str(tmp_path))
    for source, rows in expected.items():
        for distribution in ("auto", "broadcast"):
            tasks = rng.choice([1, 2, 5])
            options = {"order_by": "ts", "distribution": distribution, "tasks": tasks, "row_numbers": True}
            made = plan_match(df, query, **options, output=output, source=source)
            assert made.source == source
            found = made.df.toArrow().cast(rows.schema)
            assert sorted_rows(found) == sorted_rows(rows), (source, distribution, tasks)


def test_paths_in_place_of_a_dataframe(spark, tmp_path, events):
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B+ ; C WITHIN 9 EVENTS")
    with pa.ipc.new_file(tmp_path / "events.arrow", events.schema) as writer:
        writer.write_table(events, max_chunksize=200)
    pq.write_table(events, tmp_path / "events.parquet")
    expected = query.evaluate(events, output="positions")
    for given in (tmp_path / "events.arrow", [str(tmp_path / "events.parquet")]):
        found = match(given, query, order_by=["ts", "id"], tasks=3, output="positions").toArrow()
        assert sorted_rows(found.cast(expected.schema)) == sorted_rows(expected)
    found = match(str(tmp_path / "events.parquet"), query, order_by=["ts", "id"], source="rows", output="positions")
    assert sorted_rows(found.toArrow().cast(expected.schema)) == sorted_rows(expected)
    with pytest.raises(cer_gpu.OptionError, match=r"events\.arrow: Spark does not read Arrow IPC files"):
        match(str(tmp_path / "events.arrow"), query, order_by="ts", source="rows")
    with pytest.raises(cer_gpu.EventsError, match="no such file"):
        match(str(tmp_path / "nothing.parquet"), query, order_by="ts")
    with pytest.raises(cer_gpu.OptionError, match="expected a DataFrame, a path or a list of paths, got int"):
        match(5, query, order_by="ts")


def test_filters_are_applied_before_events_are_counted(spark, tmp_path, events):
    pq.write_table(events, tmp_path / "events.parquet", row_group_size=200)
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B ; C WITHIN 9 SECONDS", time_column="ts")
    kept = events.filter((pc.field("x") > 200) & ((pc.field("name") != "y") | pc.field("k").is_null()))
    expected = query.evaluate(kept, output="count")
    df = spark.read.parquet(str(tmp_path)).filter("x > 200 AND (name <> 'y' OR k IS NULL)").select("type", "ts")
    for source in ("files", "rows"):
        found = match(df, query, order_by="ts", tasks=3, output="count", source=source).toArrow()
        assert sum(found["count"].to_pylist()) == sum(expected["count"].to_pylist()) > 10


def test_a_column_of_a_filter_is_checked_in_all_files(spark, tmp_path, events):
    """It is none of the events' columns, and Spark reads NULL where a file does not have it."""
    pq.write_table(events.slice(0, 700), tmp_path / "0.parquet")
    pq.write_table(events.slice(700).drop_columns(["x"]), tmp_path / "1.parquet")
    df = spark.read.option("mergeSchema", True).parquet(str(tmp_path)).filter("x IS NULL").select("type", "ts")
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 9 SECONDS", time_column="ts")
    made = plan_match(df, query, order_by="ts", tasks=2, output="count")
    assert made.source == "rows"
    assert "no column 'x'" in made.source_reason
    expected = query.evaluate(events.slice(700), output="count")
    assert sum(made.df.toArrow()["count"].to_pylist()) == sum(expected["count"].to_pylist()) > 10


@pytest.mark.parametrize(("distribution", "tasks"), [("range", 1), ("broadcast", 3), ("range", 3)])
@pytest.mark.parametrize("source", ["files", "rows"])
def test_nulls_in_the_first_column_of_the_order(spark, tmp_path, distribution, tasks, source):
    table = pa.table({"type": ["A", "B", "C", "A"], "n": [1, None, 2, None], "x": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "events.parquet")
    df = spark.read.parquet(str(tmp_path))
    # all events matter to a query that names no type of them for each
    query = cer_gpu.compile("SELECT STRICT * FROM S WHERE A ; B WITHIN 5 EVENTS")
    message = "the stream is ordered by 'n', which is NULL in 2 of 4 rows"
    with pytest.raises(cer_gpu.QueryTypeError, match=message), plain_errors():
        match(df, query, order_by="n", distribution=distribution, tasks=tasks, source=source).collect()


def test_files_that_tasks_cannot_read(spark, df, tmp_path, events):
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 9 EVENTS")
    with pytest.raises(DirectReadError, match=r"by themselves: it is cached\nhint: source='auto'"):
        match(df, query, order_by="ts", source="files")
    made = plan_match(df, query, order_by="ts", output="count")
    assert (made.source, made.source_reason) == ("rows", "it is cached")
    pq.write_table(events.set_column(3, "ts", pc.cast(events["x"], pa.float64())), tmp_path / "events.parquet")
    made = plan_match(spark.read.parquet(str(tmp_path)), query, order_by="ts", output="count")
    assert made.source == "rows"
    assert "files are put in order only by integers, timestamps and dates" in made.source_reason


def test_row_groups_without_statistics_are_surveyed_by_a_job(spark, tmp_path, events):
    pq.write_table(events, tmp_path / "events.parquet", row_group_size=35, write_statistics=False)
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B+ ; C WITHIN 9 SECONDS", time_column="ts")
    before = spark.sparkContext._jsc.sc().statusStore().jobsList(None).size()
    made = plan_match(str(tmp_path), query, order_by="ts", tasks=3, output="count")
    assert spark.sparkContext._jsc.sc().statusStore().jobsList(None).size() == before + 1
    assert (made.source, made.n_parts) == ("files", 3)
    expected = query.evaluate(events, output="count")
    assert sorted_rows(made.df.toArrow().cast(expected.schema)) == sorted_rows(expected)


@pytest.mark.parametrize("source", ["files", "rows"])
def test_no_events(spark, tmp_path, events, source):
    for k in (0, 1):
        (tmp_path / f"part={k}").mkdir()
        pq.write_table(events.slice(0, 0), tmp_path / f"part={k}" / "events.parquet")
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 9 SECONDS", time_column="ts")
    df = spark.read.parquet(str(tmp_path))
    for frame in (df, df.filter("part = 7")):
        for tasks in (1, 3):
            found = match(frame, query, order_by="ts", tasks=tasks, output="positions", source=source).toArrow()
            assert found.num_rows == 0
            assert found.column_names == query.evaluate(events).column_names


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("distribution", ["broadcast", "range"])
def test_events_of_one_time_follow_the_paths_of_their_files_whatever_way(spark, tmp_path, distribution, tasks):
    # as a URI, the first of these paths is the greater one
    names = ["k=a b+%2B", "k=a!b"]
    tables = [pa.table({"type": ["A"] * 9, "t": range(9)}), pa.table({"type": ["B"] * 9, "t": range(9)})]
    for name, table in zip(names, tables, strict=True):
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "0.parquet")
    query = cer_gpu.compile("SELECT * FROM S WHERE A : B WITHIN 0 [t]")
    whole = pa.concat_tables(tables).sort_by([("t", "ascending"), ("type", "ascending")])
    assert query.evaluate(whole, output="positions").num_rows == 9
    df = spark.read.parquet(str(tmp_path))
    for source in ("rows", "files"):
        assert match(df, query, order_by="t", distribution=distribution, tasks=tasks, source=source).count() == 9, (
            source
        )


HEAVY = [
    ("SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 9 SECONDS", "positions"),
    ("SELECT MAX * FROM S WHERE A ; B ; C PARTITION BY [k], [name] WITHIN 30 SECONDS", "events"),
    ("SELECT a.x AS x, COUNT(b) AS n FROM S WHERE A AS a ; B+ AS b ; D PARTITION BY [k] WITHIN 9 SECONDS", "measures"),
    ("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.name = a.name WITHIN 20 SECONDS", "ends"),
    ("Q(n) <- A(name = n), B(name = n), C(name = n) WITHIN 20 SECONDS", "bindings"),
]


def half_of_one_key(seed=7):
    """Return events of which one key, or value, has half."""
    events = random_events()
    rng = random.Random(seed)
    for column, usual in (("k", [2, 3, 4, 5, 6, None]), ("name", ["u", "v", "w", "x", "y", "z"])):
        many = 1 if column == "k" else "many"
        values = [many if rng.random() < 0.5 else rng.choice(usual) for _ in range(len(events))]
        events = events.set_column(events.column_names.index(column), column, pa.array(values))
    return events


@pytest.fixture
def cut_always(monkeypatch):
    monkeypatch.setattr("spark_glue.heavy_keys.SAMPLED", 1)
    monkeypatch.setattr("spark_glue.heavy_keys.PASS_SECONDS", -1.0)


@pytest.mark.parametrize("row_numbers", [False, True])
@pytest.mark.parametrize("lies", ["in order", "in no order"])
def test_a_key_with_half_of_all_events_is_cut_by_time(spark, tmp_path, cut_always, lies, row_numbers):
    events = half_of_one_key()
    rng = random.Random(7)
    pq.write_table(events, tmp_path / "events.parquet")
    df = spark.read.parquet(str(tmp_path)) if lies == "in order" else spark.createDataFrame(events).cache()
    for text, output in HEAVY:
        query = cer_gpu.compile(text, time_column="ts")
        expected = query.evaluate(events, output=output)
        assert expected.num_rows > 30
        tasks = rng.choice([3, 5, 16])
        options = {"order_by": ["ts", "id"], "distribution": "key", "tasks": tasks, "output": output, "source": "rows"}
        made = plan_match(df, query, **options, row_numbers=row_numbers)
        assert made.n_parts == tasks
        assert re.search(r"those of (1 key|\d+ keys) with many are cut by time$", made.input_plan)
        found = made.df.toArrow().cast(expected.schema)
        if not row_numbers:  # then positions identify events, and those of one process are others
            positions = [name for name in ("start", "end", "positions", *"ABC") if name in found.column_names]
            found, expected = found.drop_columns(positions), expected.drop_columns(positions)
        assert sorted_rows(found) == sorted_rows(expected), text
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [k]", time_column="ts")  # no window to cut by
    assert plan_match(df, query, order_by="ts", distribution="key", tasks=3, source="rows").n_parts == 3


def test_positions_of_a_key_that_is_cut_by_time_identify_events(spark, cut_always):
    events = half_of_one_key()
    df = spark.createDataFrame(events).cache()
    query = cer_gpu.compile(HEAVY[0][0], time_column="ts")
    options = {"order_by": ["ts", "id"], "distribution": "key", "tasks": 5, "source": "rows"}
    made = plan_match(df, query, **options, output="events")
    assert made.input_plan.endswith("those of 1 key with many are cut by time")
    found = made.df.toArrow().to_pylist()
    pairs = {
        (position, event["id"])
        for row in found
        for position, event in zip(row["positions"], row["events"], strict=True)
    }
    positions, numbers = zip(*sorted(pairs), strict=True)
    assert len(positions) == len(set(positions)) == len(set(numbers)) > 100
    assert len({position >> 44 for position in positions}) > 1, "parts of heavy keys and of others"
    of_heavy = [(position, number) for position, number in sorted(pairs) if events["k"][number].as_py() == 1]
    assert of_heavy == sorted(of_heavy, key=lambda pair: pair[1])


@pytest.mark.parametrize("is_heavy", [False, True])
def test_a_time_that_is_null_is_refused_where_a_key_is_cut_by_time(spark, cut_always, is_heavy):
    events = half_of_one_key()
    ones = [i for i, k in enumerate(events["k"].to_pylist()) if (k == 1) == is_heavy]
    times = [None if i == ones[7] else time for i, time in enumerate(events["ts"].to_pylist())]
    at = events.column_names.index("ts")
    df = spark.createDataFrame(events.set_column(at, "ts", pa.array(times, events.schema.field("ts").type))).cache()
    query = cer_gpu.compile(HEAVY[0][0], time_column="ts")
    options = {"order_by": ["ts", "id"], "distribution": "key", "tasks": 5, "source": "rows"}
    made = plan_match(df, query, **options)
    assert made.input_plan.endswith("those of 1 key with many are cut by time")
    with pytest.raises(cer_gpu.QueryTypeError, match="ordered by 'ts', which is NULL in 1 of"), plain_errors():
        made.df.collect()
