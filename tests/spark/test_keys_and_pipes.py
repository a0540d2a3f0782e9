"""Queries with keys whose NULL is a value, and with pipes, over the tasks of a job."""

from __future__ import annotations

import datetime
import random

import pyarrow as pa
import pytest
from changed_syntax import changed, with_nullable, with_pipes

from spark_glue import match
from spark_glue.work import work_of

pytest.importorskip("pyspark")


@pytest.fixture(scope="module")
def events():
    rnd, n = random.Random(5), 600
    begin = datetime.datetime(2020, 3, 29)
    return pa.table(
        {
            "type": rnd.choices("ABC", k=n),
            "k": pa.array(rnd.choices([1, 2, 3, None], k=n), pa.int64()),
            "s": pa.array(rnd.choices(["x", "y", None], k=n), pa.string()),
            "ts": pa.array([begin + datetime.timedelta(seconds=i) for i in range(n)], pa.timestamp("us")),
        }
    )


@pytest.mark.parametrize(
    ("query", "distribution"),
    [
        (with_nullable("SELECT RECENT * FROM S WHERE A ; B PARTITION BY [k], [s]", "s"), "key"),
        (with_nullable("SELECT RECENT * FROM S WHERE A ; B ; C PARTITION BY [s]", "s"), "key"),
        (with_pipes("SELECT RECENT * FROM S WHERE A ; B PARTITION BY [k]", ("tail", 20), ("head", 7)), "auto"),
        (with_pipes("SELECT * FROM S WHERE A ; B WITHIN 4 EVENTS", ("head", 11)), "broadcast"),
    ],
)
def test_tasks_find_what_one_process_finds(spark, events, query, distribution):
    df = spark.createDataFrame(events.take(random.Random(1).sample(range(len(events)), len(events)))).repartition(3)
    found = match(df, query, order_by="ts", distribution=distribution, tasks=3, output="positions", row_numbers=True)
    expected = query.evaluate(events, output="positions")
    rows = [row.asDict() for row in found.collect()]
    assert sorted(tuple(row["positions"]) for row in rows) == sorted(
        tuple(positions) for positions in expected["positions"].to_pylist()
    )
    assert len(rows) > 5


def test_distribution_of_pipes_has_a_reason():
    query = with_pipes("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 9 EVENTS", ("tail", 3))
    ways = work_of(query).distribution.tasks
    assert ways["key"] == ways["range"].replace("LIMIT", "tail") == "tail chooses among the results of all events"
    assert changed(query.text, lambda syntax: syntax).distribution.tasks["key"] is None
