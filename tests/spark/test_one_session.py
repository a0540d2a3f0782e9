"""One session of Spark for `make test`: a job of each way to deal a query, by files, and a stream that is interrupted.

All other tests with a session are marked `long` (conftest.py in this folder).
"""

import pyarrow.dataset as ds
import pytest
from spark_settings import setting
from spark_streams import PROVIDER, ROCKSDB, add_files, end_at, late_by, random_events, rows_of, run, stream_of, written

import cer_gpu

pytest.importorskip("pyspark")

from spark_glue import match, match_stream

KEYED = "SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 20 SECONDS"
POSITIONS = ("start", "end", "positions")


@pytest.fixture(scope="module")
def events():
    return random_events(7)


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        (KEYED, "key"),
        ("SELECT * FROM S WHERE A ; B+ ; C WITHIN 3 SECONDS", "range"),
        ("SELECT * FROM S WHERE A AS a ; C AS c FILTER c.x > 3 * a.x", "broadcast"),
    ],
)
def test_each_distribution_gives_the_rows_of_one_process(spark, events, text, distribution):
    query = cer_gpu.compile(text, time_column="ts")
    expected = query.evaluate(events)
    assert expected.num_rows > 10
    df = spark.createDataFrame(events.take(list(range(len(events)))[::-1])).repartition(3)
    options = {"order_by": "ts", "distribution": distribution, "tasks": 2, "output": "positions"}
    found = match(df, query, **options, row_numbers=True).toArrow()
    assert rows_of(found.cast(expected.schema)) == rows_of(expected)
    found = match(df, query, **options).toArrow()  # a number of its own for each event
    assert rows_of(found.cast(expected.schema), without=POSITIONS) == rows_of(expected, without=POSITIONS)
    assert max(found["end"].to_pylist()) >= len(events) if distribution == "key" else found.num_rows


def test_files_are_read_by_tasks(spark, events, tmp_path):
    ds.write_dataset(events, tmp_path, format="parquet", max_rows_per_file=150, max_rows_per_group=150)
    query = cer_gpu.compile(KEYED, time_column="ts")
    expected = query.evaluate(events, output="ends")
    found = match(str(tmp_path), query, order_by="ts", source="files", tasks=2, output="ends").toArrow()
    assert rows_of(found.cast(expected.schema)) == rows_of(expected)


def test_a_stream_stopped_amid_goes_on_from_its_checkpoint(spark, events, tmp_path):
    query = cer_gpu.compile(KEYED, time_column="ts")
    arrived = late_by(2, events, 4)
    with setting(spark, PROVIDER, ROCKSDB):
        found = {"keyed": match_stream(stream_of(spark, tmp_path / "in"), query, lateness="4s", groups=2)}
        add_files(tmp_path / "in", arrived.slice(0, 200), 1)
        run(found, tmp_path)
        add_files(tmp_path / "in", arrived.slice(200), 1, first=1)
        add_files(tmp_path / "in", end_at(1_000), 1, first=2)
        run(found, tmp_path)
    expected = query.evaluate(events, output="events")
    assert expected.num_rows > 10
    seen = written(spark, tmp_path, "keyed", expected.schema)
    assert rows_of(seen, without=POSITIONS) == rows_of(expected, without=POSITIONS)
