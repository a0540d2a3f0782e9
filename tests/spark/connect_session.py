"""Program of its own that uses Spark Connect, which cannot share a process with a classic session.

It runs every function ``check_*`` and prints, as JSON, the names of all with None or the error of each.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_streams import PROVIDER, ROCKSDB
from spark_streams import run as run_stream
from test_everywhere import WAYS, Case, by_batches, by_command, compared

import cer_gpu
from cer_gpu.errors import QuerySyntaxError
from spark_glue import explain, match, match_schema, match_stage, match_stream, plain_errors, read, run, session
from spark_glue.errors import SparkJobError
from spark_glue.files.scan import scan_of
from spark_glue.files.stored_events import DirectReadError
from spark_glue.local_session import find_java
from spark_glue.match import plan_match
from spark_glue.source import register, register_sql

BEGIN = datetime.datetime(2021, 3, 1)
TEXT = "SELECT * FROM S WHERE A AS a ; B AS b FILTER b.n > a.n WITHIN 9 SECONDS"


def stored(n=600):
    return pa.table(
        {
            "type": [None if i % 17 == 3 else "ABC"[i * i % 3] for i in range(n)],
            "ts": pa.array([BEGIN + datetime.timedelta(seconds=i // 3) for i in range(n)], pa.timestamp("ms")),
            "k": [i % 4 for i in range(n)],
            "n": pa.array([None if i % 13 == 5 else i % 29 for i in range(n)], pa.int32()),
        }
    )


def sorted_rows(table):
    return sorted(map(str, table.to_pylist()))


class Checks:
    """Checks, which share a session and files of events in order."""

    def __init__(self, spark, folder):
        self.spark, self.table = spark, stored()
        self.folder = folder / "events"
        self.folder.mkdir()
        for i in range(3):
            pq.write_table(self.table.slice(200 * i, 200), self.folder / f"{i}.parquet", row_group_size=60)
        self.df = spark.read.parquet(str(self.folder))
        self.query = cer_gpu.compile(TEXT, time_column="ts")

    def same(self, found, expected):
        assert expected.num_rows > 10
        assert sorted_rows(found.toArrow().cast(expected.schema)) == sorted_rows(expected)

    def check_files_are_read_by_tasks(self):
        expected = self.query.evaluate(self.table, output="positions")
        found = plan_match(self.df, self.query, order_by="ts", tasks=3, output="positions")
        assert (found.source, found.distribution, found.n_parts, found.n_rows) == ("files", "range", 3, 600)
        self.same(found.df, expected)

    def check_paths(self):
        found = match(str(self.folder), self.query, order_by="ts", output="events")
        self.same(found, self.query.evaluate(self.table, output="events"))

    def check_rows_of_spark_by_each_distribution(self):
        query = cer_gpu.compile(TEXT.replace("WITHIN", "PARTITION BY [k] WITHIN"), time_column="ts")
        expected = query.evaluate(self.table, output="positions")
        for distribution in ("key", "range"):
            options = {"order_by": "ts", "output": "positions", "source": "rows", "row_numbers": True}
            self.same(match(self.df, query, distribution=distribution, tasks=3, **options), expected)

    def check_a_column_of_a_dataframe_is_the_one_that_this_calls_so(self):
        swapped = self.df.select("type", "ts", self.df.k.alias("n"), self.df.n.alias("k"))
        scan = scan_of(swapped.filter((self.df.n > 3) & (swapped.n > 1)))
        assert sorted(str(each).split(" ")[0].removeprefix("(cast(").rstrip(",") for each in scan.filters) == ["k", "n"]
        assert [scan.filters[0].equals(each) for each in scan_of(self.df.filter(self.df.n > 3)).filters] == [True]
        with pytest.raises(DirectReadError, match="no column of the files by that name"):
            scan_of(self.df.withColumnRenamed("N", "m"))

    def check_a_file_that_is_named_twice_is_read_twice(self):
        path = str(self.folder / "0.parquet")
        for paths in ([path, path], [str(self.folder), path], [path, str(self.folder / "0*")]):
            with pytest.raises(DirectReadError, match="name a file twice"):
                scan_of(self.spark.read.parquet(*paths))
        found = match(self.spark.read.parquet(path, path), cer_gpu.compile("SELECT * FROM S WHERE A"), order_by="ts")
        assert found.count() == 2 * self.table.slice(0, 200)["type"].to_pylist().count("A")

    def check_one_task_counts_its_rows(self):
        df = self.spark.createDataFrame([("A", 1), ("B", 3), ("A", 2), ("B", 4)], "type string, n int")
        query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
        found = match(df, query, order_by="n", tasks=1, output="positions").toArrow()
        assert sorted(found["positions"].to_pylist()) == [[0, 2], [0, 3], [1, 2], [1, 3]]

    def check_filters_and_choices_of_columns(self):
        from pyspark.sql import functions as sf

        chosen = self.df.filter((sf.col("n") > 5) & ~(sf.col("type") == "C")).select("type", "ts", "n", "k")
        scan = scan_of(chosen)
        assert scan.schema.names == ["type", "ts", "n", "k"]
        assert scan.filter_columns.names == ["n", "type"]
        assert [Path(path).name for path in scan.paths] == ["0.parquet", "1.parquet", "2.parquet"]
        kept = self.table.filter((pa.compute.field("n") > 5) & (pa.compute.field("type") != "C"))
        found = plan_match(chosen, self.query, order_by="ts", tasks=2, output="bindings")
        assert found.source == "files"
        expected = self.query.evaluate(kept, output="bindings")
        assert found.df.count() == expected.num_rows > 10

    def check_reasons_why_spark_reads_the_rows(self):
        from pyspark.sql import functions as sf

        frames = [
            (self.df.limit(5), "its plan has limit"),
            (self.df.filter("n > 5"), "which the server parses"),
            (self.df.filter(sf.rand() > 0.5), "it computes"),
            (self.df.withColumn("m", sf.col("n") + 1), "its plan has with_columns"),
            (self.spark.range(3), "its plan has range"),
            (self.df.join(self.df, "n"), "its plan has join"),
            (self.df.filter(sf.col("ts") > sf.lit(BEGIN)), "timestamp"),
        ]
        for frame, reason in frames:
            with pytest.raises(DirectReadError, match=reason):
                scan_of(frame)

    def check_a_view_is_no_table(self):
        self.df.limit(3).createOrReplaceTempView("few")
        with pytest.raises(DirectReadError, match="few is no table of Parquet files"):
            scan_of(self.spark.table("few"))

    def check_folders_tell_columns(self):
        place = self.folder.parent / "dealt"
        for k in range(4):
            (place / f"k={k}").mkdir(parents=True)
            part = self.table.filter(pa.compute.equal(self.table["k"], k)).drop_columns(["k"])
            pq.write_table(part, place / f"k={k}" / "a.parquet")
        df = self.spark.read.parquet(str(place))
        assert scan_of(df).folders == ("k",)
        from pyspark.sql import functions as sf

        assert len(scan_of(df.filter(sf.col("k") >= 2)).paths) == 2
        query = cer_gpu.compile(TEXT.replace("WITHIN", "PARTITION BY [k] WITHIN"), time_column="ts")
        expected = query.evaluate(self.table, output="count")
        for distribution in ("key", "range"):
            found = match(df, query, order_by="ts", distribution=distribution, tasks=3, output="count").toArrow()
            assert sum(found["count"].to_pylist()) == sum(expected["count"].to_pylist()) > 10

    def check_explain(self):
        said = explain(self.query, events=self.df, order_by="ts", tasks=3)
        assert "files: tasks read 3 files by themselves, in 3 pieces" in said
        said = explain(self.query, events=self.df.limit(5), order_by="ts")
        assert "rows: Spark reads the rows" in said

    def check_read_and_the_bare_stage(self):
        df = read(self.spark, [str(self.folder / "0.parquet")]).coalesce(1)
        found = df.mapInArrow(match_stage(self.query), match_schema(self.query, df))
        self.same(found, self.query.evaluate(self.table.slice(0, 200)))

    def check_errors_of_workers_arrive_as_they_are(self):
        turned = self.table.take(pa.array(range(599, -1, -1)))
        df = self.spark.createDataFrame(turned.append_column("i", pa.array(range(600))).to_pandas())
        with pytest.raises(cer_gpu.TimeOrderError, match="is less than the one before") as e, plain_errors():
            match(df, self.query, order_by="i", distribution="range", tasks=1, source="rows").collect()
        assert "SQLSTATE" not in str(e.value)
        assert "Traceback" not in str(e.value)

    def check_the_data_source(self):
        register(self.spark)
        options = f"query '{TEXT}', path '{self.folder}', orderBy 'ts', output 'positions'"
        self.spark.sql(f"CREATE TEMPORARY VIEW matches USING cer OPTIONS ({options})")
        self.same(self.spark.table("matches"), self.query.evaluate(self.table, output="positions"))
        reader = self.spark.read.format("cer").options(query="SELEC", orderBy="ts")
        with pytest.raises(QuerySyntaxError, match="expected SELECT, found 'SELEC'"), plain_errors():
            _ = reader.load(str(self.folder)).schema

    def check_a_file_that_changed(self):
        place = self.folder.parent / "changing.parquet"
        pq.write_table(self.table, place)
        found = match(str(place), self.query, order_by="ts")
        pq.write_table(self.table.slice(0, 300), place)
        with pytest.raises(cer_gpu.EventsError, match=r"changing\.parquet: changed since") as e, plain_errors():
            found.collect()
        assert "hint: " in str(e.value)

    def one_at_a_time(self):
        return self.table.set_column(1, "ts", pa.array([BEGIN + datetime.timedelta(seconds=i) for i in range(600)]))

    def check_the_table_function_of_sql(self):
        table = self.one_at_a_time()
        self.spark.createDataFrame(table).repartition(3).createOrReplaceTempView("rows")
        register_sql(self.spark)
        found = self.spark.sql(f"SELECT * FROM cer_match(TABLE(rows), '{TEXT}', output => 'positions')")
        self.same(found, self.query.evaluate(table, output="positions"))

    def check_each_kind_of_query_in_each_way(self):
        ways = [way for way in WAYS if way is not by_command]
        for number, kind in enumerate(("eql", "set with a row pattern", "sigma")):
            place = self.folder.parent / f"kind {number}"
            place.mkdir()
            case = Case(self.spark, kind, place)
            for way in ways:
                if way is not by_batches or "row pattern" not in kind:
                    assert compared(way(case)) == compared(case.expected()), (kind, way)

    def check_a_table_of_delta(self):
        from deltalake import write_deltalake

        name = str(self.folder.parent / "delta")
        write_deltalake(name, self.one_at_a_time(), partition_by=["k"])
        df = read(self.spark, f"delta:{name}")
        query = cer_gpu.compile(TEXT, time_column="ts")
        found = match(df, query, order_by="ts", output="count", source="files").toArrow()
        expected = query.evaluate(f"delta:{name}", output="count")
        assert sum(found["count"].to_pylist()) == sum(expected["count"].to_pylist())

    def check_a_stream(self):
        query = cer_gpu.compile(f"{TEXT} LIMIT 1", time_column="ts")
        stream = self.spark.readStream.schema(self.df.schema).parquet(str(self.folder))
        found = match_stream(stream, query, order_by="ts", lateness="1s", output="ends", groups=1)
        run_stream({"found": found}, self.folder.parent)
        seen = self.spark.read.parquet(f"{self.folder.parent}/found/out").toArrow()
        expected = query.evaluate(self.table.sort_by("ts"), output="ends")
        assert set(seen["end_time"].to_pylist()) <= set(expected["end_time"].to_pylist())
        assert seen.num_rows > 10

    def check_errors_of_spark_are_short(self):
        with pytest.raises(SparkJobError, match="Path does not exist: file:/not/there"):
            read(self.spark, "/not/there")
        with pytest.raises(SparkJobError, match="Path does not exist"), plain_errors():
            self.spark.read.parquet("/not/there").collect()

    def check_what_cannot_be_had_is_refused(self):
        with pytest.raises(cer_gpu.OptionError, match=r"one of Spark Connect\nhint: match\(events"):
            run(self.df, self.query, str(self.folder.parent / "out"), order_by="ts")
        assert session() is self.spark
        with pytest.raises(DirectReadError, match=r"its plan has limit[\s\S]*hint: source='auto'"):
            match(self.df.limit(5), self.query, order_by="ts", source="files")
        assert not (self.folder.parent / "out").exists()


def main() -> None:
    os.environ.update(find_java().environment)
    os.environ.update({"PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1"})
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        PROVIDER: ROCKSDB,
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        spark = builder.getOrCreate()
        checks, found = Checks(spark, Path(folder)), {}
        for name in [name for name in dir(Checks) if name.startswith("check_")]:
            with contextlib.redirect_stdout(io.StringIO()):
                try:
                    getattr(checks, name)()
                    found[name] = None
                except BaseException:
                    found[name] = traceback.format_exc(limit=-8)
        print(json.dumps(found), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
