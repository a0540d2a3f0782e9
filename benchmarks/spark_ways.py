"""Measure ways to a query on Spark.

A function of SQL is measured against `match` and a view of files; one key with half of all events with and without a
cut of its rows, and as the job chooses; and many small files, and folders of keys, once each.

    python benchmarks/spark_ways.py [--events N] [--files N] [--folders N] [--only sql,skew,small] [--cores N]
                                    [--folder FOLDER] [--save]

Seconds of the first two are medians of three, after one that is not counted; all ways must find as many matches.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from report import RESULTS, machine, save, show
from rich.console import Console
from spark import KEYED, cpu_times, generate

import cer_gpu
import spark_glue.heavy_keys
from spark_glue import Summary, match, register, register_sql, run, session

TIMES = 3
SKEW_TASKS = 8
SKEWED = "SELECT * FROM S WHERE A ; B ; C FILTER A[x > 0.98] AND B[x > 0.98] PARTITION BY [k] WITHIN 60 SECONDS"


def measured(work: Callable[[], Any], n_events: int) -> dict[str, float]:
    """Return seconds and processor time of some work, done several times after once, and what it returned last."""
    work()
    seconds, java, python = [], [], []
    for _ in range(TIMES):
        before, begun = cpu_times(), time.perf_counter()
        found = work()
        seconds.append(time.perf_counter() - begun)
        after = cpu_times()
        java.append(after[0] - before[0])
        python.append(after[1] - before[1])
    return {
        "seconds": statistics.median(seconds),
        "Java, us/event": statistics.median(java) / n_events * 1e6,
        "Python, us/event": statistics.median(python) / n_events * 1e6,
        "matches": found,
    }


def in_sql(spark: Any, events: Path, n_events: int) -> list[dict[str, object]]:
    """Measure a query with keys as a table function, by `match`, and as a view."""
    register(spark)
    register_sql(spark)
    spark.read.parquet(str(events)).createOrReplaceTempView("stored")
    text = KEYED.replace("C PARTITION", "D FILTER A[x > 0.99] AND D[x > 0.99] PARTITION")
    query = cer_gpu.compile(text, time_column="ts")
    options = f"path '{events}', orderBy 'ts', query '{text}', output 'ends'"
    ways: dict[str, Callable[[], int]] = {
        "cer_match(TABLE(stored), ...)": lambda: spark.sql(
            f"SELECT * FROM cer_match(TABLE(stored), '{text}', orderBy => 'ts', output => 'ends')"
        ).count(),
        "match, rows of Spark": lambda: match(
            spark.table("stored"), query, order_by="ts", output="ends", source="rows"
        ).count(),
        "match, tasks read the files": lambda: match(
            spark.table("stored"), query, order_by="ts", output="ends"
        ).count(),
        "a view USING cer": lambda: (
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW found USING cer OPTIONS ({options})"),
            spark.table("found").count(),
        )[1],
    }
    return [{"way": name, "events": n_events, **measured(way, n_events)} for name, way in ways.items()]


def skewed(folder: Path, n_events: int) -> Path:
    """Write events half of which have the key 0, unless they are there already."""
    path = folder / f"skewed-{n_events}.parquet"
    if not path.exists():
        rng = np.random.default_rng(1)
        times = np.cumsum(rng.exponential(1 / 1000, n_events))
        keys = np.where(rng.random(n_events) < 0.5, 0, rng.integers(1, 10_000, n_events)).astype(np.int32)
        table = pa.table(
            {
                "type": pa.array(rng.choice(list("ABCDEFGHI"), n_events)),
                "k": keys,
                "ts": pa.array((times * 1e6).astype(np.int64), pa.timestamp("us")),
                "x": rng.random(n_events).astype(np.float32),
            }
        )
        pq.write_table(table, path, row_group_size=1_000_000)
    return path


def with_a_heavy_key(spark: Any, events: Path, n_events: int, folder: str) -> list[dict[str, object]]:
    """Measure a job by key with and without a cut of the key with half of all events, and as it chooses."""
    query = cer_gpu.compile(SKEWED, time_column="ts")
    seconds, found = spark_glue.heavy_keys.PASS_SECONDS, []
    choices = {"its rows in one task": 1e9, "its rows cut by time": -1e9, "as the job chooses": seconds}
    for name, pass_seconds in choices.items():
        spark_glue.heavy_keys.PASS_SECONDS = pass_seconds
        done = [
            run(
                spark.read.parquet(str(events)),
                query,
                f"{folder}/found",
                order_by="ts",
                distribution="key",
                tasks=SKEW_TASKS,
                output="count",
                source="rows",
                overwrite=True,
            )
            for _ in range(1 + TIMES)
        ][1:]
        found.append(
            {
                "a key with half of all events": name,
                "events": n_events,
                "matches": done[-1].n_matches,
                "seconds": statistics.median(each.seconds for each in done),
                "parts": done[-1].n_parts,
                "largest part / mean": done[-1].skew,
                "slowest part, s": statistics.median(max(p.seconds for p in each.parts) for each in done),
                "events read / events": done[-1].overlap,
            }
        )
    spark_glue.heavy_keys.PASS_SECONDS = seconds
    assert len({each["matches"] for each in found}) == 1
    return found


def small_files(folder: Path, n_files: int, n_rows: int, *, keyed: bool) -> Path:
    """Write small files, unless they are there already: each the next of a stream, or of a key in its folder."""
    place = folder / f"{'folders' if keyed else 'files'}-{n_files}-{n_rows}"
    if place.exists():
        return place
    unfinished = folder / f".{place.name}"
    rng, seconds = np.random.default_rng(2), 0.0
    for number in range(n_files):
        times = seconds + np.cumsum(rng.exponential(1 / 1000, n_rows))
        seconds = 0.0 if keyed else float(times[-1])
        columns: dict[str, Any] = {
            "type": rng.choice(list("ABCDEFGHI"), n_rows),
            "ts": pa.array((times * 1e6).astype(np.int64), pa.timestamp("us")),
            "x": rng.random(n_rows).astype(np.float32),
        }
        path = unfinished / (f"k={number}" if keyed else "") / f"part-{number:06}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)
    unfinished.rename(place)
    return place


def with_small_files(folder: Path, n_files: int, n_folders: int, out: str) -> list[dict[str, object]]:
    """Measure jobs over many small files: seconds, and how much memory of the driver's process grows."""
    ranged = "SELECT * FROM S WHERE A ; B+ ; C FILTER A[x > 0.99] AND B[x > 0.99] AND C[x > 0.99] WITHIN 1 SECOND"
    keyed = "SELECT * FROM S WHERE A ; B ; C FILTER A[x > 0.9] AND B[x > 0.9] AND C[x > 0.9] PARTITION BY [k]"
    rows: list[dict[str, object]] = []
    for name, text, n, n_rows in (("files", ranged, n_files, 1000), ("folders of keys", keyed, n_folders, 10)):
        query = cer_gpu.compile(text, time_column="ts")
        is_keyed = text == keyed

        def job(place: Path, query: cer_gpu.Query = query) -> Summary:
            return run(str(place), query, f"{out}/found", order_by="ts", tasks=8, output="ends", overwrite=True)

        job(small_files(folder, 20, n_rows, keyed=is_keyed))  # workers start, and load the loops
        place = small_files(folder, n, n_rows, keyed=is_keyed)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        done = job(place)
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        rows.append(
            {
                "input": f"{n:,} {name} of {n_rows:,} rows",
                "seconds": done.seconds,
                "planned in, s": done.planning_seconds,
                "ms for each": done.seconds / n * 1e3,
                "driver, KiB for each": more / n,
                "largest part / mean": done.skew,
                "matches": done.n_matches,
            }
        )
    return rows


def main(arguments: list[str]) -> int:
    """Measure everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=5_000_000, help="events of the stream")
    parser.add_argument("--files", type=int, default=10_000, help="small files")
    parser.add_argument("--folders", type=int, default=10_000, help="folders of keys")
    parser.add_argument("--only", default="sql,skew,small", help="what is measured, separated by commas")
    parser.add_argument("--cores", type=int, default=2, help="tasks of Spark at once")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the events are kept")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<machine>-spark-ways.json")
    options = parser.parse_args(arguments)
    console = Console(width=180)
    spark = session(cores=options.cores, config={"spark.driver.memory": "4g"})
    results = {}
    with tempfile.TemporaryDirectory() as out:
        if "sql" in options.only:
            title = f"In SQL, local[{options.cores}]"
            results[title] = in_sql(spark, generate(options.folder, options.events), options.events)
            counts = {row["matches"] for row in results[title]}
            assert len(counts) == 1, counts
            show(console, title, results[title])
        if "skew" in options.only:
            title = f"One key with half of all events, local[{options.cores}], {SKEW_TASKS} tasks"
            results[title] = with_a_heavy_key(spark, skewed(options.folder, options.events), options.events, out)
            show(console, title, results[title])
        if "small" in options.only:
            title = f"Many small files, local[{options.cores}], 8 tasks"
            results[title] = with_small_files(options.folder, options.files, options.folders, out)
            show(console, title, results[title])
    spark.stop()
    if options.save:
        save(
            console, RESULTS / f"{machine()}-spark-ways.json", results, ["python benchmarks/spark_ways.py", *arguments]
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
