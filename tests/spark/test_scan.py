"""Files behind DataFrames: the plan of each as a scan, or the reason why Spark reads the rows."""

from __future__ import annotations

import datetime
import pickle

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from spark_settings import setting

import cer_gpu
from spark_glue.files.scan import scan_of, scan_of_paths
from spark_glue.files.stored_events import DirectReadError
from spark_glue.files.stored_filters import (
    BeginsWith,
    ColumnComparison,
    ConstantFilter,
    IsTrue,
    NotFilter,
    NullFilter,
    OneOf,
    OrFilter,
    conjuncts,
    expression,
    filter_columns,
)

pytest.importorskip("pyspark")

DAY = datetime.datetime(2021, 3, 1, 12)


def stored(n=40):
    some = [None if i % 7 == 3 else i for i in range(n)]
    return pa.table(
        {
            "type": [None if i % 11 == 5 else "ABC"[i % 3] for i in range(n)],
            "ts": pa.array([DAY + datetime.timedelta(milliseconds=500 * i) for i in range(n)], pa.timestamp("ms")),
            "at": pa.array([DAY + datetime.timedelta(seconds=i) for i in range(n)], pa.timestamp("us", "UTC")),
            "day": pa.array([DAY.date() + datetime.timedelta(days=i % 5) for i in range(n)]),
            "n": pa.array(some, pa.int32()),
            "x": pa.array([float("nan") if i % 5 == 1 else v for i, v in enumerate(some)], pa.float64()),
            "f": pa.array(some, pa.float32()),
            "ok": pa.array([None if v is None else v % 2 == 0 for v in some]),
            "st": pa.array([{"k": i} for i in range(n)]),
            "a.b": pa.array(range(n), pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files in folders of two columns."""
    place = tmp_path_factory.mktemp("stored ö") / "events"
    table = stored()
    for i in range(4):
        part = place / f"k={i % 2}" / ("w=x y" if i < 2 else "w=__HIVE_DEFAULT_PARTITION__")
        part.mkdir(parents=True)
        pq.write_table(table.slice(10 * i, 10), part / f"{i}.parquet")
    return place


@pytest.fixture
def df(spark, folder):
    return spark.read.parquet(str(folder))


def read(scan):
    """The rows of a scan, as tasks will read them."""
    found = []
    for path in scan.paths:
        table = ds.dataset(path, format="parquet").to_table()
        for condition in scan.filters:
            table = table.filter(condition)
        told = [name for name in scan.schema.names if scan.stored.get(name, name) not in scan.folders]
        found.append(table.select([scan.stored.get(name, name) for name in told]).rename_columns(told))
    return found


def rows(scan):
    return sorted((str(row) for table in read(scan) for row in table.to_pylist()), key=str)


def of_spark(df, names):
    return sorted((str(row) for row in df.select(*(f"`{name}`" for name in names)).toArrow().to_pylist()), key=str)


FILTERS = [
    "n > 5",
    "5 < n AND n <= 31",
    "n = 7 OR n IS NULL",
    "NOT (n = 7)",
    "n <> 7 OR type = 'B'",
    "n IN (1, 2, 9)",
    "n IN (1, 2, NULL)",
    "NOT (n IN (1, 2) OR type = 'A')",
    "n IN (1,2,4,5,6,7,8,9,11,12,13,14,15,16)",
    "n NOT IN (1,2,4,5,6,7,8,9,11,12,13,14,15,16)",
    "type >= 'B'",
    "type IS NOT NULL AND type < 'C'",
    "type <=> NULL",
    "NOT (type <=> 'A')",
    "type LIKE 'B%'",
    "ok",
    "NOT ok",
    "ok IS NULL OR ok = false",
    "ts >= TIMESTAMP_NTZ '2021-03-01 12:00:05.25'",
    "ts < TIMESTAMP_NTZ '2021-03-01 12:00:05.5' OR ts = TIMESTAMP_NTZ '2021-03-01 12:00:09'",
    "at > TIMESTAMP '2021-03-01 12:00:09'",
    "day BETWEEN DATE '2021-03-02' AND DATE '2021-03-03'",
    "x > 6",
    "x >= 3 AND x < 20",
    "NOT (x > 6)",
    "NOT (x = 6)",
    "f <= 8.5",
    "`a.b` > 20",
    "n = 3000000000 OR n > 20",
    "st IS NOT NULL AND n > 7",
]


@pytest.mark.parametrize("condition", FILTERS)
def test_filters_choose_the_rows_that_spark_chooses(df, condition):
    chosen = df.filter(condition)
    scan = pickle.loads(pickle.dumps(scan_of(chosen)))
    names = ["ts", "n", "x"]
    expected = of_spark(chosen, names)
    assert 0 < len(expected) < 40
    assert rows(scan_of(chosen.select(*names))) == expected
    assert scan.filter_columns.names
    assert set(scan.filter_columns.names) <= set(df.columns)


def test_a_scan_of_chosen_and_renamed_columns(df, folder):
    scan = scan_of(df.selectExpr("TYPE", "ts AS time", "n", "`a.b` AS `c.d`", "k").filter("time > '1970-01-01'"))
    assert scan.schema.names == ["TYPE", "time", "n", "c.d", "k"]
    assert scan.schema.field("time").type == pa.timestamp("us")
    assert scan.stored == {"TYPE": "type", "time": "ts", "c.d": "a.b"}
    assert scan.folders == ("k", "w")
    assert scan.paths == tuple(sorted(str(path) for path in folder.rglob("*.parquet")))
    assert scan.filter_columns == pa.schema([("ts", pa.timestamp("us"))])
    assert scan.options == {}


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("k = 1", "13"),
        ("k = 1 AND n > 3", "13"),
        ("w = 'x y'", "01"),
        ("w IS NULL OR k = 0", "023"),
        ("k IN (0)", "02"),
    ],
)
def test_conditions_on_folders_choose_files(df, condition, kept):
    chosen = df.filter(condition)
    scan = scan_of(chosen)
    assert "".join(sorted(path[-len("0.parquet")] for path in scan.paths)) == kept
    assert rows(scan_of(chosen.select("ts"))) == of_spark(chosen, ["ts"])


def test_views_tables_and_aliases(spark, df, folder):
    df.createOrReplaceTempView("scanned")
    assert scan_of(spark.table("scanned").alias("a").select("a.ts")).schema.names == ["ts"]
    assert scan_of(spark.sql("SELECT ts, n AS m FROM scanned WHERE n > 3")).stored == {"m": "n"}
    spark.sql("DROP VIEW scanned")


def test_a_bucketed_table(spark, df, tmp_path):
    writer = df.select("type", "ts", "n").write.bucketBy(3, "type").sortBy("ts")
    writer.option("path", str(tmp_path / "bucketed")).saveAsTable("bucketed_events")
    try:
        scan = scan_of(spark.table("bucketed_events"))
        assert scan.bucket_by == ("type",)
        assert len(scan.paths) >= 3
    finally:
        spark.sql("DROP TABLE bucketed_events")


def reasons(spark, df):
    from pyspark.sql import functions as sf

    plain = df.select("type", "ts", "n")
    yield plain.join(plain.select("type"), "type"), "it joins"
    yield plain.limit(3), "it is limited"
    yield plain.sample(0.5, seed=1), "it is a sample"
    yield plain.union(plain), "it is a union"
    yield plain.distinct(), "it aggregates"
    yield spark.range(5), "its plan has Range"
    yield spark.createDataFrame([(1,)], "n int"), "in memory"
    yield df.select("ts", "_metadata.row_index"), "which Spark adds to the rows of a file"
    yield plain.withColumn("m", sf.col("n") + 1), "it computes"
    yield df.select("ts", "st.k"), "it computes"
    yield plain.filter("n % 2 = 1"), "is one that Spark evaluates"
    yield plain.filter("rand(3) > 0.5"), "is one that Spark evaluates"
    yield plain.filter("type LIKE '%B%'"), "is one that Spark evaluates"
    yield df.filter("x IN (1.0, 2.0)"), "a floating-point column, is looked up in a list"
    yield df.filter("x > double('NaN')"), "is compared with NaN"
    yield df.filter("k = 1 OR n > 3"), "of the folders, and on other columns"
    yield plain.mapInArrow(lambda batches: batches, plain.schema), "from a function of Python"
    yield df.select("ts", "ts"), "two columns of one name"
    yield df.filter("false").select("ts"), "in memory"


def test_reasons_why_spark_reads_the_rows(spark, df):
    for frame, reason in reasons(spark, df):
        with pytest.raises(DirectReadError, match=reason):
            scan_of(frame)


MODES = [
    ("ignoreCorruptFiles", "spark.sql.files.ignoreCorruptFiles", "true"),
    ("ignoreMissingFiles", "spark.sql.files.ignoreMissingFiles", "true"),
    ("datetimeRebaseMode", "spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
    ("int96RebaseMode", "spark.sql.parquet.int96RebaseModeInRead", "LEGACY"),
]


@pytest.mark.parametrize(("option", "name", "value"), MODES)
def test_files_that_spark_passes_over_or_dates_that_it_changes_are_left_to_it(spark, folder, option, name, value):
    events = str(folder)
    with pytest.raises(DirectReadError, match=f"it is read with {option} = {value}"):
        scan_of(spark.read.option(option, value).parquet(events))
    with setting(spark, name, value):
        with pytest.raises(DirectReadError, match=f"it is read with {name} = {value}"):
            scan_of(spark.read.parquet(events))
        other = "false" if value == "true" else "CORRECTED"
        assert scan_of(spark.read.option(option.upper(), other).parquet(events)).paths


def test_cached_rows_are_not_read_from_files(spark, df):
    kept = df.select("ts", "n").cache()
    try:
        for frame in (kept, df.select("ts", "n").filter("n > 3")):
            with pytest.raises(DirectReadError, match="it is cached"):
                scan_of(frame)
    finally:
        kept.unpersist()


def test_a_plan_that_may_not_be_looked_at():
    """As on clusters that are shared by several users."""

    class Closed:
        isStreaming = False

        @property
        def storageLevel(self):
            raise RuntimeError("not allowed\nat org.apache")

    with pytest.raises(DirectReadError, match=r"its plan cannot be read: not allowed$"):
        scan_of(Closed())


def test_other_formats_and_streams(spark, df, tmp_path):
    df.select("n").write.orc(str(tmp_path / "orc"))
    with pytest.raises(DirectReadError, match="of the format ORC, not Parquet"):
        scan_of(spark.read.orc(str(tmp_path / "orc")))
    with pytest.raises(DirectReadError, match="it is a stream"):
        scan_of(spark.readStream.format("rate").load())


# ---- conditions by themselves -----------------------------------------------------------------------------------


def test_conditions_name_their_columns():
    both = list(conjuncts(OrFilter(NullFilter("a"), NotFilter(IsTrue("b")))))
    assert len(both) == 1
    assert filter_columns(both[0]) == {"a", "b"}
    assert filter_columns(ConstantFilter(True)) == set()


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        (ColumnComparison("=", "a", pa.scalar(1)), pa.string()),
        (ColumnComparison("=", "a", pa.scalar("x")), pa.date32()),
        (ColumnComparison("=", "a", pa.scalar(0, pa.timestamp("us"))), pa.timestamp("us", "UTC")),
        (ColumnComparison("<", "a", pa.scalar(1.5)), pa.int64()),
        (OneOf("a", (pa.scalar(1), pa.scalar("x"))), pa.int64()),
        (BeginsWith("a", "x"), pa.int64()),
    ],
)
def test_values_of_other_types_are_left_to_spark(condition, kind):
    with pytest.raises(DirectReadError):
        expression(condition, {"a": kind})


# ---- paths ------------------------------------------------------------------------------------------------------


def test_paths_have_the_types_of_spark(spark, folder):
    scan, frame = scan_of_paths(folder), spark.read.parquet(str(folder))
    known = scan_of(frame)
    assert scan.paths == known.paths
    assert scan.folders == known.folders
    assert scan.schema.equals(known.schema)


def test_paths_of_arrow_ipc(tmp_path):
    table = pa.table({"type": pa.array(["A", "B"]).dictionary_encode(), "n": pa.array([1, 2], pa.uint16())})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    scan = scan_of_paths([str(tmp_path / "a.arrow")])
    assert scan.schema == pa.schema([("type", pa.string()), ("n", pa.int32())])
    assert scan.folders == ()


def test_folders_that_tell_other_columns(tmp_path):
    for name in ("k=1", "j=2"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"n": [1]}), tmp_path / name / "a.parquet")
    with pytest.raises(cer_gpu.EventsError, match=r"its folders tell \['k'\], and those of"):
        scan_of_paths(tmp_path)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2"], pa.int32()),
        (["1", "3000000000"], pa.int64()),
        (["1.5", "2"], pa.float64()),
        (["2021-03-01"], pa.date32()),
        (["1", "x"], pa.string()),
        (["__HIVE_DEFAULT_PARTITION__", "7"], pa.int32()),
    ],
)
def test_types_of_folders_are_those_of_spark(spark, tmp_path, values, kind):
    for value in values:
        (tmp_path / f"k={value}").mkdir()
        pq.write_table(pa.table({"n": [1]}), tmp_path / f"k={value}" / "a.parquet")
    assert scan_of_paths(tmp_path).schema.field("k").type == kind
    assert scan_of(spark.read.parquet(str(tmp_path))).schema.field("k").type == kind
