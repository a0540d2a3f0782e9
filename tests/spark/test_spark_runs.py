"""Real runs: the stage in Spark gives the rows that the query gives in this process."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_settings import BATCH_ROWS, setting

import cer_gpu
from spark_glue import match_schema, match_stage

pytest.importorskip("pyspark")

LATE_AGAIN = """
SELECT * FROM flights
WHERE (LANDED AS late ; DEPARTED AS again)
FILTER late[tailnum = 'N10575' AND delay > 60] AND again[tailnum = 'N10575' AND delay > 30]
WITHIN 4 HOURS
"""
CANCELLED = """
SELECT * FROM flights WHERE CANCELLED AS a : CANCELLED AS b : CANCELLED AS c
FILTER a[origin = 'LGA'] AND b[origin = 'LGA'] AND c[origin = 'LGA']
"""
KLEENE = """
SELECT * FROM flights WHERE DEPARTED AS first ; DEPARTED+ AS more ; LANDED AS last
FILTER first[carrier = 'HA' AND delay > 30] AND more[carrier = 'HA' AND delay > 10] AND last[carrier = 'HA']
WITHIN 50000 EVENTS
"""


@pytest.fixture(scope="module")
def events(spark, flights):
    return spark.read.parquet(flights)


@pytest.fixture
def halves(spark, flights):
    """The events in two partitions, in order."""
    with setting(spark, "spark.sql.files.maxPartitionBytes", Path(flights).stat().st_size * 2 // 3):
        yield spark.read.parquet(flights)


def on_spark(query, df):
    return df.mapInArrow(match_stage(query), match_schema(query, df)).toArrow()


def assert_same_rows(spark_table, table):
    """Compare values; Spark's types are its own: microseconds, nullable lists."""
    assert spark_table.column_names == table.column_names
    assert spark_table.cast(table.schema).combine_chunks().equals(table.combine_chunks())


@pytest.mark.parametrize(
    ("text", "time_column"),
    [(LATE_AGAIN, "ts"), (CANCELLED, None), (KLEENE, "ts"), (KLEENE, None)],
    ids=["late", "cancelled", "kleene", "kleene without time"],
)
def test_same_rows_as_in_this_process(events, flights, text, time_column):
    query = cer_gpu.compile(text, time_column=time_column)
    expected = query.evaluate(flights)
    assert expected.num_rows > 0
    assert_same_rows(on_spark(query, events.coalesce(1)), expected)


PARTITIONED = """
SELECT MAX late[ts, tailnum, delay], again[delay] FROM flights
WHERE LANDED AS late ; (DEPARTED AS again)+
FILTER late[delay > 120] AND again[delay > 60]
PARTITION BY [tailnum]
WITHIN 4 HOURS
"""


@pytest.mark.parametrize("output", ["events", "bindings", "count"])
def test_every_output(events, flights, output):
    query = cer_gpu.compile(PARTITIONED, time_column="ts")
    expected = query.evaluate(flights, output=output)
    assert expected.num_rows > 100
    df = events.coalesce(1)
    found = df.mapInArrow(match_stage(query, output=output), match_schema(query, df, output=output)).toArrow()
    assert found.column_names == expected.column_names
    # Spark keeps times in microseconds
    assert found.cast(expected.schema).to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("rows", [7, 997])
def test_small_batches_give_the_same(spark, events, flights, rows):
    # a few thousand rows are enough where each batch has seven
    few = events.where("ts < '2013-01-08'").coalesce(1)
    table = pq.read_table(flights)
    table = table.slice(0, few.count())
    query = cer_gpu.compile(LATE_AGAIN.replace("tailnum = 'N10575' AND", ""), time_column="ts")
    with setting(spark, BATCH_ROWS, rows):
        assert_same_rows(on_spark(query, few), query.evaluate(table))


def test_sorted_again(events, flights):
    """Rows that come in another order, sorted in their one partition."""
    query = cer_gpu.compile(LATE_AGAIN, time_column="ts")
    shuffled = events.orderBy("flight", "ts").coalesce(1).sortWithinPartitions("ts")
    columns = ["start_time", "end_time"]  # positions differ where times are equal
    expected = query.evaluate(flights).select(columns)
    found = on_spark(query, shuffled).select(columns)
    assert sorted(found.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)


def test_times_with_a_zone(spark, flights):
    """Timestamps of Spark's usual type keep their instants, whatever the time zone of the session."""
    table = pq.read_table(flights, columns=["type", "ts", "tailnum", "delay"])
    utc = table.set_column(1, "ts", table["ts"].cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")))
    query = cer_gpu.compile(LATE_AGAIN, time_column="ts")
    with setting(spark, "spark.sql.session.timeZone", "America/New_York"):
        instant = "cast(concat(cast(ts as string), 'Z') as timestamp) as ts"
        df = spark.read.parquet(flights).selectExpr("type", instant, "tailnum", "delay").coalesce(1)
        assert dict(df.dtypes)["ts"] == "timestamp"
        assert_same_rows(on_spark(query, df), query.evaluate(utc))


def test_schema_of_the_stage(events):
    query = cer_gpu.compile(LATE_AGAIN, time_column="ts")
    fields = {f.name: f.dataType.simpleString() for f in match_schema(query, events)}
    assert fields == {
        "start": "bigint",
        "end": "bigint",
        "positions": "array<bigint>",
        "start_time": "timestamp_ntz",
        "end_time": "timestamp_ntz",
    }
    assert match_schema(query, events.schema) == match_schema(query, events)


def test_schema_that_does_not_fit(events):
    query = cer_gpu.compile(LATE_AGAIN.replace("tailnum", "tail_num"), time_column="ts")
    with pytest.raises(cer_gpu.CerError, match="tail_num"):
        match_schema(query, events)


def test_stream_without_events(events):
    query = cer_gpu.compile(LATE_AGAIN, time_column="ts")
    assert on_spark(query, events.where("ts < '2000-01-01'").coalesce(1)).num_rows == 0


def test_several_partitions_are_refused(halves):
    from pyspark.errors import PythonException

    assert halves.rdd.getNumPartitions() == 2  # in order, so that nothing else is wrong
    query = cer_gpu.compile(LATE_AGAIN, time_column="ts")
    with pytest.raises(PythonException, match=r"several partitions(.|\n)*df\.coalesce\(1\)"):
        on_spark(query, halves)


def test_partitions_without_rows_do_no_harm(halves, flights):
    query = cer_gpu.compile(LATE_AGAIN, time_column="ts")
    january = halves.where("ts < '2013-02-01'")  # the second partition loses all rows
    assert january.rdd.getNumPartitions() == 2
    expected = query.evaluate(pq.read_table(flights).slice(0, january.count()))
    assert expected.num_rows > 0
    assert_same_rows(on_spark(query, january), expected)


def test_streaming_dataframe_is_refused(spark, tmp_path, events):
    from pyspark.errors import StreamingQueryException

    query = cer_gpu.compile(LATE_AGAIN, time_column="ts")
    events.limit(10).coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(events.schema).parquet(str(tmp_path / "in")).coalesce(1)
    out = stream.mapInArrow(match_stage(query), match_schema(query, stream))
    writer = out.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "state"))
    with pytest.raises(StreamingQueryException, match="micro-batch"):
        writer.trigger(availableNow=True).start().awaitTermination()


def test_error_on_a_worker_is_readable(events):
    """The message with which the query fails in this process, as it stands, in that of Spark."""
    from pyspark.errors import PythonException

    query = cer_gpu.compile(LATE_AGAIN, time_column="ts")
    backwards = events.limit(1000).coalesce(1).sortWithinPartitions("ts", ascending=False)
    with pytest.raises(cer_gpu.CerError) as here:
        query.evaluate(backwards.toArrow())
    with pytest.raises(PythonException) as there:
        on_spark(query, backwards)
    assert str(here.value) in str(there.value)
    assert "TimeOrderError" in str(there.value)


@pytest.mark.parametrize(("page", "n_blocks"), [("guides/spark.md", 7), ("reference/spark.md", 1)])
def test_examples_of_the_pages(page, n_blocks, spark, monkeypatch, capsys, tmp_path):
    root = Path(__file__).parents[2]
    blocks = re.findall(r"```python\n(.*?)```", (root / "docs" / page).read_text(), re.DOTALL)
    assert len(blocks) == n_blocks
    monkeypatch.chdir(root)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block.replace("/tmp/found", str(tmp_path / "found")), f"docs/{page}", "exec"), names)
    assert ("start_time" in capsys.readouterr().out) == (n_blocks > 1)
