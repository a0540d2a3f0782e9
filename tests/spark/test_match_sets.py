"""All queries of a set in one job of Spark give the rows of one process: by files, by rows, in any distribution."""

from __future__ import annotations

import datetime
import random
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from cases import sorted_rows

import cer_gpu
from spark_glue import explain, explain_stream, match, match_batches, plain_errors
from spark_glue.cli import main
from spark_glue.distribution import choose_distribution
from spark_glue.match import plan_input, plan_match
from spark_glue.work import work_of

BY_RANGE = {
    "sequence": "SELECT * FROM S WHERE A ; B+ ; C WITHIN 9 SECONDS",
    "by name": "SELECT a.x AS x, COUNT(b) AS n FROM S WHERE A AS a ; B AS b PARTITION BY [name] WITHIN 20 SECONDS",
    "never": "SELECT * FROM S WHERE A ; NOTHING WITHIN 5 SECONDS",
}
BY_KEY = {
    "last": "SELECT LAST * FROM S WHERE A ; B ; C PARTITION BY [k] WITHIN 30 EVENTS",
    "two keys": "SELECT * FROM S WHERE A ; B PARTITION BY [name], [k] CONSUME BY PARTITION",
    "absent": "SELECT * FROM S WHERE A ; !B PARTITION BY [k] WITHIN 9 SECONDS",
}
MIXED = {**BY_RANGE, **BY_KEY, "limited": "SELECT * FROM S WHERE A ; D WITHIN 9 EVENTS LIMIT 2"}
SETS = {"range": BY_RANGE, "key": BY_KEY, "broadcast": MIXED}


def some_events(n=700, seed=0):
    rng = random.Random(seed)
    seconds = sorted(rng.choices(range(n), k=n))
    begin = datetime.datetime(2020, 3, 29)
    return pa.table(
        {
            "type": rng.choices("ABCD", k=n),
            "k": pa.array(rng.choices([1, 2, 3, None], k=n), pa.int32()),
            "name": rng.choices(["x", "y", "z"], k=n),
            "ts": pa.array([begin + datetime.timedelta(seconds=s) for s in seconds], pa.timestamp("us")),
            "x": pa.array(seconds),
            "id": pa.array(range(n)),
        }
    )


def rows_of(queries, events, *, sort=False):
    """Return the rows of each query by its name, with the columns that this query has."""
    return {name: sorted_rows(table) for name, table in queries.evaluate(events, sort=sort).items()}


def by_query(found, queries, events):
    """Return the rows of a job in the same way; its columns that a query does not have are NULL."""
    parts = {}
    for name, query in queries.items():
        schema = query.output_schema(events)
        own = found.filter(pc.equal(found["query"], name))
        for other in set(found.column_names) - {"query", *schema.names}:
            assert own[other].null_count == len(own)
        parts[name] = sorted_rows(own.select(schema.names).cast(schema))
    return parts


@pytest.mark.parametrize("kind", SETS)
def test_files_and_rows_give_the_rows_of_one_process(spark, tmp_path, kind):
    table = some_events(seed=len(kind))
    for i, name in enumerate("ab"):
        pq.write_table(table.slice(350 * i, 350), tmp_path / f"{name}.parquet", row_group_size=100)
    queries = cer_gpu.compile_all(SETS[kind], time_column="ts")
    expected = rows_of(queries, table)
    assert sum(map(len, expected.values())) > 100
    df = spark.read.parquet(str(tmp_path))
    for source, tasks in (("files", 3), ("files", 9), ("rows", 3)):
        made = plan_match(df, queries, order_by=["ts", "id"], source=source, tasks=tasks, row_numbers=True)
        # by files, shares of the queries are as good as shares of the keys; of many tasks, some get ranges
        by_files = {"range": "range", "key": "broadcast", "broadcast": "range" if tasks == 9 else "broadcast"}
        assert made.distribution == (by_files[kind] if source == "files" else kind)
        assert made.df.columns[0] == "query"
        assert by_query(made.df.toArrow(), queries, table.schema) == expected, (source, tasks)


def test_queries_that_do_not_fit_the_events_are_left_out(spark, tmp_path):
    table = some_events(100)
    pq.write_table(table, tmp_path / "a.parquet")
    df = spark.read.parquet(str(tmp_path))
    misfit = {"misfit": "SELECT * FROM S WHERE A ; B FILTER B[price > 1] WITHIN 9 SECONDS"}
    queries = cer_gpu.compile_all({**misfit, **BY_RANGE}, time_column="ts", errors="skip")
    fitting = cer_gpu.compile_all(BY_RANGE, time_column="ts")
    for source in "files", "rows":
        found = match(df, queries, order_by=["ts", "id"], source=source, tasks=2, row_numbers=True).toArrow()
        assert by_query(found, fitting, table.schema) == rows_of(fitting, table)
        assert list(queries.skipped) == ["misfit"]
    with pytest.raises(cer_gpu.QueryTypeError, match="query 'misfit': the events have no column 'price'"):
        match(df, cer_gpu.compile_all({**misfit, **BY_RANGE}, time_column="ts"), order_by=["ts", "id"])


def test_a_set_is_not_sent_to_many_tasks_by_rows(spark):
    queries = cer_gpu.compile_all(MIXED, time_column="ts")
    df = spark.createDataFrame(some_events(10))
    assert plan_input(df, queries, order_by="ts").n_parts == 1
    assert plan_input(df, queries, order_by="ts", tasks=2).n_parts == 2
    assert plan_input(df, queries["limited"], order_by="ts").n_parts == 2


def test_folders_of_the_key_are_dealt_to_tasks(spark, tmp_path):
    table = some_events()
    ds.write_dataset(
        table.filter(table["k"].is_valid()),
        str(tmp_path),
        format="parquet",
        partitioning=["k"],
        partitioning_flavor="hive",
    )
    queries = cer_gpu.compile_all(BY_KEY, time_column="ts")
    made = plan_match(spark.read.parquet(str(tmp_path)), queries, order_by=["ts", "id"], tasks=2, source="files")
    assert (made.distribution, made.n_parts) == ("key", 2)
    found = made.df.toArrow()
    columns = ["k", "start_time", "end_time"]  # positions are those of the files
    for name, rows in queries.evaluate(table).items():
        own = found.filter(pc.equal(found["query"], name)).select(columns)
        assert sorted_rows(own.cast(rows.select(columns).schema)) == sorted_rows(rows.select(columns)), name


def test_no_events(spark, tmp_path):
    queries = cer_gpu.compile_all(MIXED, time_column="ts")
    pq.write_table(some_events().slice(0, 0), tmp_path / "empty.parquet")
    df = spark.read.parquet(str(tmp_path))
    for source in ("files", "rows"):
        found = match(df, queries, order_by="ts", source=source, tasks=2).toArrow()
        assert found.num_rows == 0
        assert found.column_names[0] == "query"
        assert "n" in found.column_names


def test_texts_by_name_and_the_form_for_transform(spark, tmp_path):
    """The first column of the order is the time column, if it holds times."""
    table = some_events(200)
    pq.write_table(table, tmp_path / "events.parquet")
    expected = rows_of(cer_gpu.compile_all(BY_RANGE, time_column="ts"), table)
    df = spark.read.parquet(str(tmp_path))
    queries = cer_gpu.compile_all(BY_RANGE, time_column="ts")
    found = df.transform(match(BY_RANGE, order_by="ts")).toArrow()
    assert by_query(found, queries, table.schema) == expected
    one = {"sequence": queries["sequence"]}
    assert match(df, one, order_by="ts").count() == len(expected["sequence"])
    with pytest.raises(cer_gpu.QueryError, match=r"query 'sequence': a length in DAYS.* needs a time column"):
        match(df, BY_RANGE, order_by="id")


def test_errors_name_the_query(spark, tmp_path):
    pq.write_table(some_events(50), tmp_path / "events.parquet")
    df = spark.read.parquet(str(tmp_path))
    wrong = cer_gpu.compile_all({"good": "SELECT * FROM S WHERE A", "bad": "SELECT * FROM S WHERE A FILTER A[xx > 1]"})
    for source in ("files", "rows"):
        with pytest.raises(cer_gpu.QueryTypeError, match=r"query 'bad': (.|\n)*xx"):
            match(df, wrong, order_by="ts", source=source)
    queries = cer_gpu.compile_all(MIXED, time_column="ts")
    with pytest.raises(cer_gpu.OptionError, match="query 'sequence': output='measures' shows"):
        match(df, queries, order_by="ts", output="measures")
    with pytest.raises(cer_gpu.OptionError, match="query 'last': WITHIN n EVENTS counts the events of a partition"):
        match(df, queries, order_by="ts", distribution="range")
    two = {"a": "SELECT a.x AS v FROM S WHERE A AS a", "b": "SELECT a.name AS v FROM S WHERE A AS a"}
    with pytest.raises(cer_gpu.OptionError, match="'v' of the results is int64 in query 'a' and string in query 'b'"):
        match(df, cer_gpu.compile_all(two), order_by="ts")


def test_a_task_names_the_place_of_a_wrong_event(spark, tmp_path):
    table = some_events(50)
    table = table.set_column(table.column_names.index("ts"), "ts", table["ts"].take(pa.array(range(50)[::-1])))
    pq.write_table(table, tmp_path / "events.parquet")
    queries = cer_gpu.compile_all({"a": "SELECT * FROM S WHERE A", "b": "SELECT * FROM S WHERE B"}, time_column="ts")
    found = match(spark.read.parquet(str(tmp_path)), queries, order_by="x", tasks=1, source="files")
    with pytest.raises(cer_gpu.TimeOrderError, match=r"events\.parquet, row 0 or a later one: "), plain_errors():
        found.count()


@pytest.mark.parametrize("kind", SETS)
def test_what_auto_chooses(kind):
    work = work_of(cer_gpu.compile_all(SETS[kind], time_column="ts"))
    assert choose_distribution(work, "auto", "ts")[0] == kind


def test_what_is_said_of_a_set():
    queries = cer_gpu.compile_all(MIXED, time_column="ts")
    lines = explain(queries).splitlines()
    assert lines[0] == "broadcast: each task gets all events, and evaluates its share of the queries"
    assert "not key: query 'sequence': the query has no PARTITION BY" in lines[1]
    assert "not range: query 'last': WITHIN n EVENTS counts" in lines[1]
    windows = {"a": "SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS", "b": "SELECT * FROM S WHERE A ; B WITHIN 5 SECONDS"}
    reason = choose_distribution(work_of(cer_gpu.compile_all(windows, time_column="ts")), "auto")[1]
    assert reason.endswith("not range: windows are measured by events in query 'a' and by 'ts' in query 'b'")
    keys = {
        "a": "SELECT * FROM S WHERE A ; B PARTITION BY [k] LIMIT 1",
        "b": "SELECT * FROM S WHERE A ; B PARTITION BY [name] LIMIT 1",
    }
    reason = choose_distribution(work_of(cer_gpu.compile_all(keys)), "auto")[1]
    assert reason.startswith("not key: the queries have no key of PARTITION BY in common; not range: ")


def test_statements_are_refused_where_a_stream_never_ends():
    text = "SELECT * FROM t MATCH_RECOGNIZE (MEASURES LAST(x) AS v PATTERN (A+) DEFINE A AS x > 1)"
    queries = cer_gpu.compile_all({**BY_RANGE, "rows": text}, time_column="ts")
    for refused in (
        lambda: explain_stream(queries, order_by="ts"),
        lambda: match_batches(queries, "out", checkpoint="states", order_by="ts", lateness="1s"),
    ):
        with pytest.raises(cer_gpu.OptionError, match="MATCH_RECOGNIZE reads the whole table, and a stream never ends"):
            refused()


def test_a_folder_of_queries_on_the_command_line(spark, tmp_path, capsys):
    table = some_events()
    pq.write_table(table, tmp_path / "events.parquet", row_group_size=100)
    rules = tmp_path / "rules"
    rules.mkdir()
    for name, text in BY_RANGE.items():
        (rules / f"{name}.ceql").write_text(text)
    given = ["--queries", str(rules), "--input", str(tmp_path / "events.parquet"), "--order-by", "ts"]
    out = tmp_path / "found"
    assert main(["run", *given, "-o", str(out), "--partition-by", "query", "--no-progress"]) == 0
    queries = cer_gpu.compile_all(BY_RANGE, time_column="ts")
    expected = queries.evaluate(table)
    assert f"{sum(map(len, expected.values())):,} matches" in capsys.readouterr().err
    found = ds.dataset(str(out), partitioning="hive").to_table()
    counted = Counter(found["query"].to_pylist())
    assert counted == {name: len(rows) for name, rows in expected.items() if len(rows)}
    assert main(["explain", *given]) == 0
    assert capsys.readouterr().out.startswith("range: each task reads a range of the stream")
    (rules / "wrong.ceql").write_text("SELECT * FROM S WHERE")
    assert main(["explain", *given]) == 1
    assert "wrong.ceql: the query ends too early" in capsys.readouterr().err
    assert main(["explain", "SELECT * FROM S WHERE A", *given]) == 2
    assert "expected QUERY or --queries FOLDER, got both" in capsys.readouterr().err
