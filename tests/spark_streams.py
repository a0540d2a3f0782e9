"""Streams of files for the tests of Structured Streaming."""

import datetime as dt
import decimal
import os
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

US = pa.timestamp("us", "UTC")
START = 1_704_067_200_000_000
"""2024-01-01 in microseconds."""
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SCHEMA = "type string, ts timestamp, k int, x double, name string"


def random_events(seed, n=400, seconds=200, ties=False):
    """Return events in order of time; with `ties`, many share a second."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.choice(seconds * 1_000_000, n, replace=False))
    times = times // 1_000_000 * 1_000_000 if ties else times
    keys = rng.integers(0, 9, n)
    return pa.table(
        {
            "type": pa.array(rng.choice(list("AABC"), n)),
            "ts": pa.array(START + times, US),
            "k": pa.array(keys, pa.int32(), mask=keys == 8),
            "x": pa.array(rng.random(n).round(3), mask=rng.random(n) < 0.1),
            "name": pa.array(rng.choice(["u", "v", ""], n)),
        }
    )


def late_by(seed, events, seconds):
    """Return events as they arrive, each late by less than so many seconds."""
    times = events["ts"].cast(pa.int64()).to_numpy()
    rng = np.random.default_rng(seed)
    return events.take(pa.array(np.argsort(times + rng.integers(0, int(seconds * 1e6), len(times)), kind="stable")))


def end_at(seconds, **columns):
    """Return an event that no query of the tests needs; it moves the watermark."""
    values = {"type": "Z", "ts": START + int(seconds * 1_000_000), "k": 1_000, "x": 0.0, "name": "", **columns}
    schema = random_events(0, 1).schema
    return pa.table({name: pa.array([values[name]], schema.field(name).type) for name in schema.names})


def add_files(folder, table, n_files, first=0):
    """Write events as files of a stream, in the order in which Spark takes them."""
    os.makedirs(folder, exist_ok=True)
    size = -(-len(table) // n_files)
    for i in range(n_files):
        path = os.path.join(folder, f"{first + i:03}.parquet")
        pq.write_table(table.slice(i * size, size), path)
        stamp = time.time() - 1_000 + first + i  # Spark takes the oldest first
        os.utime(path, (stamp, stamp))


def stream_of(spark, folder, schema=SCHEMA):
    os.makedirs(folder, exist_ok=True)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(found, folder):
    """Write all that can be known of the files that are there, one query of `found` after the other; return them."""
    queries = []
    for name, df in found.items():
        writer = df.writeStream.format("parquet").option("path", f"{folder}/{name}/out")
        writer = writer.option("checkpointLocation", f"{folder}/{name}/checkpoint")
        queries.append(writer.trigger(availableNow=True).start())
        queries[-1].awaitTermination()
    return queries


def written(spark, folder, name, schema):
    """Return the rows that a query wrote, as a table of a schema."""
    table = spark.read.parquet(f"{folder}/{name}/out").toArrow()
    return table.select(schema.names).cast(schema)


def rows_of(table, *, without=()):
    """Return rows as a multiset."""
    table = table.drop_columns([name for name in without if name in table.column_names])
    return Counter(map(repr, table.to_pylist()))


def all_types(rng, n):
    """Return rows with a column of each type, with NULLs and with few values, so that many agree."""

    def some(values, kind):
        return pa.array(rng.choices([*values, None], k=n), kind)

    day, noon = dt.date(2024, 2, 29), dt.datetime(1969, 7, 20, 20, 17, 40, 5)
    inner = pa.struct([("p", pa.int32()), ("q", pa.list_(pa.string()))])
    return pa.table(
        {
            "i8": some([-1, 5], pa.int8()),
            "i32": some([2**31 - 1, -(2**31)], pa.int32()),
            "i64": some([2**53 + 1, -(2**63)], pa.int64()),
            "f32": some([0.1, float("nan"), -0.0, 0.0], pa.float32()),
            "f64": some([0.1, float("nan"), -0.0, 0.0, float("inf")], pa.float64()),
            "flag": some([True, False], pa.bool_()),
            "text": some(["", "a", "\u00e9\U0001f600"], pa.string()),
            "bytes": some([b"", b"\x00\xff"], pa.binary()),
            "day": some([day], pa.date32()),
            "zone": some([noon.replace(tzinfo=dt.UTC)], US),
            "local": some([noon], pa.timestamp("us")),
            "span": some([dt.timedelta(days=-1, microseconds=1)], pa.duration("us")),
            "money": some([decimal.Decimal("-0.01"), decimal.Decimal("12345678901234567.89")], pa.decimal128(19, 2)),
            "many": some([[1, None], [], [2]], pa.list_(pa.int64())),
            "nested": some([{"p": None, "q": ["x", None]}, {"p": 1, "q": None}], inner),
            "deep": some([[{"p": 1, "q": []}], [None]], pa.list_(inner)),
        }
    )
