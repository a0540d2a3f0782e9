"""Whole jobs on real Spark: what is written, what is said, and what becomes of one that fails or is interrupted."""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import cer_gpu
from spark_glue import explain, job, match, plain_errors, run
from spark_glue.cli import main
from spark_glue.errors import plain_error
from spark_glue.match import plan_match
from spark_glue.sessions import short

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]
LATE_AGAIN = """
SELECT * FROM flights WHERE LANDED AS late ; DEPARTED AS again FILTER late[delay > 120] AND again[delay > 60]
PARTITION BY [tailnum] WITHIN 4 HOURS
"""


@pytest.fixture
def query():
    return cer_gpu.compile(LATE_AGAIN, time_column="ts")


@pytest.fixture
def df(spark, flights):
    return spark.read.parquet(flights)


def rows_of(table):
    return table.sort_by([("end", "ascending"), ("start", "ascending")]).to_pylist()


def read(folder, schema):
    return ds.dataset(str(folder), partitioning=ds.partitioning(flavor="hive")).to_table().select(schema.names)


@pytest.mark.parametrize(
    ("distribution", "source"),
    [("key", "files"), ("range", "files"), ("broadcast", "files"), ("key", "rows"), ("range", "rows")],
)
def test_a_job_over_a_file_gives_the_rows_of_a_single_process(df, flights, query, tmp_path, distribution, source):
    """Positions too: events of equal times keep the order of their file."""
    expected = query.evaluate(flights, output="events")
    options = {"distribution": distribution, "tasks": 3, "source": source, "row_numbers": True}
    summary = run(df, query, str(tmp_path / "found"), order_by="ts", **options)
    assert rows_of(pq.read_table(tmp_path / "found").cast(expected.schema)) == rows_of(expected)
    assert (summary.n_rows, summary.n_matches) == (pq.read_metadata(flights).num_rows, expected.num_rows)
    assert summary.presorted == (source == "files")
    assert len(summary.parts) == 3
    assert summary.peak_memory > 50e6
    assert summary.stages
    assert (summary.shuffled > 1e6) == (source == "rows")
    assert summary.counted_rows == (source == "rows")
    assert f"source    {source}: as asked" in str(summary)
    assert ("not counted beforehand" in str(summary)) == (source == "files")
    assert f"{expected.num_rows} matches" in str(summary)
    assert json.loads(json.dumps(summary.to_dict()))["distribution"] == distribution
    assert os.listdir(tmp_path) == ["found"]


def test_several_files_in_any_order_of_their_names(spark, flights, query, tmp_path):
    table = pq.read_table(flights)
    for name, begin, end in (("c", 0, 36_000), ("a", 36_000, 72_000), ("b", 72_000, len(table))):
        pq.write_table(table.slice(begin, end - begin), tmp_path / f"{name}.parquet", row_group_size=9_000)
    df = spark.read.parquet(*(str(tmp_path / f"{name}.parquet") for name in "abc"))
    paths = [str(tmp_path / f"{name}.parquet") for name in "abc"]
    for source, expected in (("rows", query.evaluate(flights)), ("files", query.evaluate(paths, sort=True))):
        options = {"order_by": "ts", "distribution": "range", "tasks": 4, "output": "positions"}
        found = plan_match(df, query, **options, source=source, row_numbers=True)
        assert found.presorted == (source == "files")
        assert found.n_parts == 4
        assert rows_of(found.df.toArrow().cast(expected.schema)) == rows_of(expected)


def test_events_that_are_not_in_order_are_sorted(spark, flights, query, tmp_path):
    table = pq.read_table(flights).slice(0, 50_000)
    mixed = table.sort_by("flight")
    path = str(tmp_path / "events.parquet")
    pq.write_table(mixed, path, row_group_size=10_000)
    df = spark.read.parquet(path)
    # by rows, positions count the rows in the order of time; by files, they are the numbers of the rows in the file
    in_order = query.evaluate(mixed.take(pc.sort_indices(mixed["ts"])))
    for source, expected in (("rows", in_order), ("files", query.evaluate(path, sort=True))):
        options = {"order_by": "ts", "distribution": "range", "tasks": 3, "output": "positions", "row_numbers": True}
        found = plan_match(df, query, **options, source=source)
        assert not found.presorted
        assert expected.num_rows > 10
        assert rows_of(found.df.toArrow().cast(expected.schema)) == rows_of(expected)


@pytest.mark.parametrize("distribution", ["key", "range", "broadcast"])
def test_one_task_counts_its_events(df, flights, query, tmp_path, distribution):
    """Rows that Spark sends: no pass counts them before."""
    expected = query.evaluate(flights, output="events")
    options = {"order_by": "ts", "distribution": distribution, "tasks": 1, "source": "rows", "row_numbers": True}
    summary = run(df, query, str(tmp_path / "found"), **options)
    assert rows_of(pq.read_table(tmp_path / "found").cast(expected.schema)) == rows_of(expected)
    n_rows = pq.read_metadata(flights).num_rows
    assert (summary.n_rows, summary.n_matches, summary.counted_rows) == (n_rows, expected.num_rows, False)
    assert "counted by the tasks" in str(summary)


class DieOnce:
    """Kills its process when the first part is done, after all rows of it were given."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def add(self, done: object) -> None:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("distribution", "source"), [("key", "rows"), ("range", "rows"), ("range", "files")])
def test_a_worker_that_is_killed(df, flights, query, tmp_path, distribution, source):
    """Its task runs again, and the rows are the same."""
    expected = query.evaluate(flights)
    mark = tmp_path / "killed"
    options = {"distribution": distribution, "source": source, "output": "positions", "row_numbers": True}
    found = plan_match(df, query, order_by="ts", report=DieOnce(mark), **options)
    assert rows_of(found.df.toArrow().cast(expected.schema)) == rows_of(expected)
    assert mark.exists()


def test_an_error_of_a_worker_arrives_as_it_is(spark, query):
    times = pa.array([10, 20, 15, 30], pa.timestamp("s"))
    events = pa.table({"type": ["LANDED"] * 4, "tailnum": ["x"] * 4, "delay": [1] * 4, "ts": times, "n": range(4)})
    df = match(spark.createDataFrame(events), query, order_by="n", distribution="range", tasks=1)
    expected = r"the 'ts' of event 2 .*00:00:15.* is less than the one before"
    with pytest.raises(cer_gpu.TimeOrderError, match=expected) as e, plain_errors():
        df.collect()
    assert "Traceback" not in str(e.value)
    assert "\tat " not in str(e.value)


def test_the_stack_of_java_is_left_out():
    text = (
        "[TASK_WRITE_FAILED] Failed.\n\tat org.apache.spark.X.y(X.scala:1)\nCaused by: PythonException: Traceback\n"
        "cer_gpu.errors.TimeOrderError: event 3 is wrong\nhint: sort\n\n\tat org.Z.z(Z.scala:2)\nDriver stacktrace:\n"
    )
    error = plain_error(RuntimeError(text))
    assert type(error) is cer_gpu.TimeOrderError
    assert str(error) == "event 3 is wrong\nhint: sort"


class OfJava:
    """What an exception of Java answers."""

    def __init__(self, *told):
        self.told = told

    def toString(self):
        return self.told[0]

    def getCause(self):
        return OfJava(*self.told[1:]) if self.told[1:] else None


def test_the_cause_is_told_where_spark_only_says_that_there_is_one():
    error = RuntimeError("An error occurred")
    lost = "java.io.EOFException: Python worker exited unexpectedly (crashed)"
    error.java_exception = OfJava("org.apache.spark.SparkException: Exception thrown in awaitResult: ", lost)
    told = str(plain_error(error))
    assert told.startswith("a worker was lost: Python worker exited unexpectedly (crashed)\nhint: ")
    error.java_exception = OfJava("org.apache.spark.SparkException: Job aborted.", "java.io.IOException: full")
    assert str(plain_error(error)) == "Job aborted."


def test_a_job_that_fails_leaves_nothing(spark, query, tmp_path):
    times = pa.array([10, 20, 15, 30], pa.timestamp("s"))
    events = pa.table({"type": ["LANDED"] * 4, "tailnum": ["x"] * 4, "delay": [1] * 4, "ts": times, "n": range(4)})
    with pytest.raises(cer_gpu.TimeOrderError, match="event 2") as e:
        run(spark.createDataFrame(events), query, str(tmp_path / "found"), order_by="n")
    assert "\tat " not in str(e.value)
    assert os.listdir(tmp_path) == []


def test_what_is_there_is_kept_until_the_new_one_is_whole(df, flights, query, tmp_path):
    out = tmp_path / "found"
    out.mkdir()
    (out / "old.txt").write_text("kept")
    with pytest.raises(cer_gpu.OptionError, match=r"is there already[\s\S]*--overwrite"):
        run(df, query, str(out), order_by="ts")
    few = df.where("carrier = 'B6' AND ts < '2013-03-01'")  # a folder for each aircraft takes its time
    options = {"source": "rows", "row_numbers": True, "overwrite": True, "partition_by": ["tailnum"]}
    run(few, query, str(out), order_by="ts", **options)
    table = pq.read_table(flights, filters=(pc.field("carrier") == "B6") & (pc.field("ts") < datetime(2013, 3, 1)))
    expected = query.evaluate(table, output="events")
    assert expected.num_rows > 10
    assert rows_of(read(out, expected.schema).cast(expected.schema)) == rows_of(expected)
    assert {path.name.partition("=")[0] for path in out.iterdir() if path.is_dir()} == {"tailnum"}
    assert os.listdir(tmp_path) == ["found"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "csv"}, "CSV has no lists"),
        ({"format": "xml"}, "must be one of parquet"),
        ({"partition_by": ["tailnumber"]}, "no column 'tailnumber'.*\n.*did you mean 'tailnum'"),
        ({"distribution": "keys"}, "distribution must be one of"),
        ({"order_by": "tss"}, "did you mean 'ts'"),
        ({"order_by": []}, "order_by names no column"),
        ({"tasks": 0}, "tasks must be a positive number"),
        ({"tasks": "4"}, "tasks must be a positive number, got '4'"),
        ({"output": "position"}, "did you mean 'positions'"),
        ({"source": "file"}, "did you mean 'files'"),
    ],
)
def test_what_is_refused_before_the_job(df, query, tmp_path, options, message):
    with pytest.raises(cer_gpu.CerError, match=message):
        run(df, query, str(tmp_path / "found"), **{"order_by": "ts", **options})
    assert os.listdir(tmp_path) == []


# ---- the command line -------------------------------------------------------------------------------------------


def test_the_command_line(spark, flights, query, tmp_path, capsys):
    out = tmp_path / "found"
    arguments = ["run", LATE_AGAIN, "--input", flights, "--order-by", "ts", "-o", str(out), "--output", "count"]
    assert main([*arguments, "--out-format", "csv", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    expected = query.evaluate(flights, output="count")
    assert said["n_matches"] == sum(expected["count"].to_pylist())
    n_lines = sum(len(path.read_text().splitlines()) for path in out.glob("*.csv"))
    assert n_lines == expected.num_rows
    assert main(arguments) == 1
    assert "is there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "/not/there"], "Path does not exist: file:/not/there"),
        (["--input", "nothing", "--format", "table"], "The table or view `nothing` cannot be found"),
        (["--input", "x", "--format", "delta"], "Failed to find the data source: delta"),
        (["--input", "FLIGHTS", "--read-option", "nonsense"], "expected NAME=VALUE"),
        (["--input", "FLIGHTS", "--time-column", "tss"], "did you mean 'ts'"),
    ],
)
def test_errors_at_the_command_line(spark, flights, tmp_path, capsys, arguments, message):
    given = [flights if argument == "FLIGHTS" else argument for argument in arguments]
    assert main(["run", LATE_AGAIN, *given, "--order-by", "ts", "-o", str(tmp_path / "found")]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert "\tat " not in said
    assert os.listdir(tmp_path) == []


def test_csv_and_json_are_read(spark, tmp_path, capsys):
    (tmp_path / "events.csv").write_text("type,id,x\nA,1,5\nB,2,7\nA,3,1\nB,4,9\n")
    (tmp_path / "events.json").write_text("".join(f'{{"type": "{t}", "id": {i}}}\n' for i, t in enumerate("ABAB")))
    for format_ in ("csv", "json"):
        source, out = str(tmp_path / f"events.{format_}"), str(tmp_path / f"found_{format_}")
        query = ["run", "SELECT * FROM S WHERE A ; B", "--input", source, "--format", format_, "--order-by", "id"]
        assert main([*query, "-o", out, "--output", "positions"]) == 0
        assert "3 matches" in capsys.readouterr().err
        assert sorted(pq.read_table(out)["positions"].to_pylist()) == [[0, 1], [0, 3], [2, 3]]


@pytest.mark.parametrize(
    ("order", "more", "message"),
    [
        ("tss", [], "order_by (--order-by) names 'tss', which the events do not have\nhint: did you mean 'ts'?"),
        ("ts", [], "('ts', the first column of --order-by, is string, which is not a time type"),
        ("ts", ["--schema", "type STRING, ts TIMESTAMP, x INT"], None),
    ],
)
def test_types_of_a_file_without_rows(spark, tmp_path, capsys, order, more, message):
    (tmp_path / "events.csv").write_text("type,ts,x\n")
    query = "SELECT * FROM S WHERE A ; B FILTER A[x > 3] WITHIN 5 SECONDS"
    arguments = ["run", query, "--input", str(tmp_path / "events.csv"), "--format", "csv", "--order-by", order, *more]
    assert main([*arguments, "-o", str(tmp_path / "found")]) == (0 if message is None else 1)
    assert (message or "0 events, 0 matches") in capsys.readouterr().err


def test_an_order_of_text(spark, tmp_path, capsys):
    (tmp_path / "events.csv").write_text("type,ts\nA,Mon 09:00\nB,Mon 10:00\n")
    arguments = ["run", "SELECT * FROM S WHERE A ; B", "--input", str(tmp_path / "events.csv"), "--format", "csv"]
    assert main([*arguments, "--order-by", "ts", "-o", str(tmp_path / "found")]) == 1
    assert "the stream is ordered by 'ts' first, which is string" in capsys.readouterr().err


def test_a_distribution_that_is_not_exact_is_refused_before_spark_starts(monkeypatch, capsys):
    monkeypatch.setattr("spark_glue.cli.session", None)
    query = "SELECT MAX * FROM S WHERE A ; B THEN WITHIN 5 SECONDS"
    arguments = ["run", query, "--input", "x", "--order-by", "ts", "-o", "y", "--distribution", "range"]
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert "MAX compares" in said
    assert "(--distribution broadcast)" in said


def test_a_query_that_is_not_compiled(df):
    with pytest.raises(cer_gpu.OptionError, match=r"expected a compiled query, got str[\s\S]*cer_gpu.compile"):
        match(df, LATE_AGAIN, order_by="ts")


def test_a_query_with_an_error(capsys):
    assert main(["run", "SELECT * FROM S WHERE", "--input", "x", "--order-by", "ts", "-o", "y"]) == 1
    assert "expected" in capsys.readouterr().err


def test_explain(capsys):
    assert main(["explain", "SELECT MAX * FROM S WHERE A ; B THEN WITHIN 5 SECONDS", "--time-column", "ts"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("broadcast: each task gets all events")
    assert "range would not be exact: MAX compares" in said
    assert "key would not be exact: the query has no PARTITION BY" in said


def test_explain_with_events(spark, flights, tmp_path, capsys):
    arguments = ["explain", LATE_AGAIN, "--input", flights, "--order-by", "ts", "--tasks", "4"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert said.startswith("range: each task reads a range of the stream and the window before it")
    assert "files: tasks read 1 file by themselves, in 4 pieces" in said
    assert "120,000 rows; 1." in said
    assert main([*arguments, "--source", "rows", "--distribution", "key"]) == 0
    said = capsys.readouterr().out
    assert "rows: Spark reads the rows and sends them to tasks, in 4 parts\n  as asked" in said
    joined = spark.read.parquet(flights).limit(5)
    said = explain(cer_gpu.compile(LATE_AGAIN, time_column="ts"), events=joined, order_by="ts")
    assert "rows: Spark reads the rows" in said
    assert said.endswith("it is limited")
    options = {"order_by": "ts", "tasks": 2, "source": "rows", "distribution": "range"}
    said = explain(cer_gpu.compile(LATE_AGAIN, time_column="ts"), events=joined, **options)
    assert said.endswith("they are computed twice, first for the counts of ts: cache them if that is long")
    assert "computed twice" not in explain(
        cer_gpu.compile(LATE_AGAIN, time_column="ts"), events=spark.read.parquet(flights), **options
    )


@pytest.mark.parametrize(
    ("source", "way"), [("rows", "evaluate by key"), ("files", "evaluate by range, reading files")]
)
def test_the_plan_that_spark_shows_names_the_query(spark, flights, source, way):
    found = match(
        spark.read.parquet(flights), cer_gpu.compile(LATE_AGAIN, time_column="ts"), order_by="ts", source=source
    )
    shown = found._jdf.queryExecution().toString()
    assert f"{short(LATE_AGAIN)}: {way}" in shown


def test_jobs_are_described_while_they_run(spark, df, query, tmp_path):
    """And what was said before is said again after."""
    context = spark.sparkContext
    plan_match(df, query, order_by="ts", distribution="range", tasks=2, source="rows")
    run(df, query, str(tmp_path / "found"), order_by="ts", tasks=2)
    assert context.getLocalProperty("spark.job.description") is None
    jobs = context._jsc.sc().statusStore().jobsList(None)
    words = [jobs.apply(i).description() for i in range(jobs.size())]
    words = [each.get() for each in words if each.isDefined()]
    late = [each for each in words if "SELECT * FROM flights WHERE LANDED AS late" in each]
    assert any("cut the stream into ranges" in each for each in late)
    assert any("evaluate by range, and write" in each for each in words)


def test_a_table_is_read_by_the_tasks_in_the_snapshot_that_it_had(spark, tmp_path):
    from deltalake import DeltaTable, write_deltalake

    name = str(tmp_path / "t")
    events = pa.table(
        {
            "type": ["A", "B", "A", "B"],
            "ts": pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC")),
            "day": ["x", "y", None, "x"],
            "of": [[1], [], None, [2, 3]],
        }
    )
    write_deltalake(name, events, partition_by=["day"])
    df = job.read(spark, f"delta:{name}")
    DeltaTable(name).delete("type = 'B'")
    query = cer_gpu.compile("SELECT * WHERE A ; B", time_column="ts")
    found = match(df, query, order_by="ts", output="events", tasks=2).toArrow()
    expected = query.evaluate(f"delta:{name}@0", output="events")
    assert sorted(map(str, found["events"].to_pylist())) == sorted(map(str, expected["events"].to_pylist()))
    assert found.num_rows == 3
    assert job.read(spark, f"delta:{name}").count() == 2
    with pytest.raises(cer_gpu.OptionError, match="expected one table, got 2"):
        job.read(spark, [f"delta:{name}", "events.parquet"])
