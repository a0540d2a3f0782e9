"""Measure queries over stored events on Spark, read by the tasks and as rows of Spark, against a single process.

    python benchmarks/spark.py [--events N] [--row-events N] [--frame-events N] [--cores N] [--folder FOLDER]
                               [--frames-only] [--save]

The events are generated once, in the folder (default: among the temporary files), in Parquet files in the order of
time.  Jobs whose tasks read the files get all of them; those over rows of Spark get `--row-events`, in files of their
own, as they are slow.  The time that the same job takes over a thousand events is its start, and is distinguished.
DataFrames of several kinds, of `--frame-events` each, are measured beside Spark's floor: the same columns, shuffled and
sorted, and sent to a `mapInArrow` that drops all; seconds are the least of several runs of both in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from report import RESULTS, machine, save, show
from rich.console import Console

import cer_gpu
from cer_gpu import Query
from spark_glue import Summary, match, run, session

TYPES = ("A", "B", "C", "D", "E", "F", "G", "H", "I")
RARE = 1e-6
"""Share of the type that ends matches."""
N_KEYS = 10_000
PER_SECOND = 1000
FILE_EVENTS = 10_000_000
KEYED = "SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 60 SECONDS"
TIMED = "SELECT * FROM S WHERE A ; B+ ; C FILTER A[x > 0.99] AND B[x > 0.9] WITHIN 1 SECOND"
COUNTED = "SELECT * FROM S WHERE A ; B+ ; C FILTER A[x > 0.99] AND B[x > 0.9] WITHIN 1000 EVENTS"
LONG = "SELECT * FROM S WHERE A ; B ; C FILTER A[x > 0.9999] AND B[x > 0.999] WITHIN 1 HOUR"
FUNNEL = "SELECT * FROM S WHERE A ; B ; C FILTER A[x > 0.99] AND B[x > 0.99] PARTITION BY [k]"
START_EVENTS = 1000
Job = tuple[str, str, str, int]
"""Name, query, distribution and number of tasks."""
JOBS = [
    ("keys, by range", KEYED, "range", 2),
    ("keys, by range, 16 tasks", KEYED, "range", 16),
    ("a window of time, by range", TIMED, "range", 2),
    ("a long window, by range, 16 tasks", LONG, "range", 16),
    ("a window of events, by range", COUNTED, "range", 2),
    ("a window of events, by shares", COUNTED, "broadcast", 2),
    ("keys without a window, by key", FUNNEL, "key", 2),
]
ROW_JOBS = [
    ("keys, by key", KEYED, "key", 2),
    ("a window of time, by range", TIMED, "range", 2),
    ("a window of events, by shares", COUNTED, "broadcast", 2),
]


def generate(folder: Path, n_events: int) -> Path:
    """Write the events, unless they are there already, and return their folder."""
    events = folder / f"events-{n_events}"
    if events.exists():
        return events
    unfinished = folder / f".events-{n_events}"
    unfinished.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    share = np.full(len(TYPES), (1 - RARE) / (len(TYPES) - 1))
    share[TYPES.index("C")] = RARE
    seconds = 0.0
    for number, begin in enumerate(range(0, n_events, FILE_EVENTS)):
        n = min(FILE_EVENTS, n_events - begin)
        times = seconds + np.cumsum(rng.exponential(1 / PER_SECOND, n))
        seconds = float(times[-1])
        codes = rng.choice(len(TYPES), n, p=share).astype(np.int32)
        table = pa.table(
            {
                "type": pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(TYPES)),
                "k": rng.integers(0, N_KEYS, n).astype(np.int32),
                "ts": pa.array((times * 1e6).astype(np.int64), pa.timestamp("us")),
                "x": rng.random(n).astype(np.float32),
                "id": np.arange(begin, begin + n),
            }
        )
        pq.write_table(table, unfinished / f"part-{number:04}.parquet", row_group_size=1_000_000)
    unfinished.rename(events)
    return events


def single_process(events: Path, text: str, threads: int) -> dict[str, float]:
    """Evaluate a query in a process of its own, to know its peak memory, and write the results as a job does."""
    done = subprocess.run(
        [sys.executable, __file__, "--single", text, "--folder", str(events), "--threads", str(threads)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def single(events: Path, text: str, threads: int) -> None:
    """Print the time and memory of an evaluation in this process."""
    query = cer_gpu.compile(text, time_column="ts")
    first = pq.ParquetFile(next(events.glob("*.parquet"))).read_row_group(0).slice(0, START_EVENTS)
    for n_threads in {1, threads}:
        sum(batch.num_rows for batch in query.stream(first, threads=n_threads))
    begun, cpu = time.perf_counter(), time.process_time()
    n_matches = 0
    with tempfile.TemporaryDirectory() as out, contextlib.ExitStack() as opened:
        writer = None
        for batch in query.stream(str(events), threads=threads):
            if writer is None:
                writer = opened.enter_context(pq.ParquetWriter(f"{out}/found.parquet", batch.schema, use_dictionary=[]))
            writer.write_batch(batch, 1 << 20)
            n_matches += batch.num_rows
    taken, cpu = time.perf_counter() - begun, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": taken, "cpu": cpu, "matches": n_matches, "peak": peak}))


def cpu_times() -> tuple[float, float]:
    """Return the seconds of processor time that Java and Python have taken so far, below this process and in it."""
    java = python = 0.0
    own = psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        try:
            times = process.cpu_times()
            taken = times.user + times.system
            if "java" in process.name():
                java += taken
            else:
                python += taken + (times.children_user + times.children_system if process.pid != own.pid else 0.0)
        except psutil.NoSuchProcess:
            continue
    return java, python


def jobs(folder: Path, n_events: int, cores: int, source: str, chosen: Sequence[Job]) -> list[dict[str, object]]:
    """Run each job, and evaluate the same query in a single process."""
    events, start = generate(folder, n_events), generate(folder, START_EVENTS)
    spark = session(cores=cores, config={"spark.driver.memory": "6g"})
    rows: list[dict[str, object]] = []
    alone: dict[tuple[str, int], dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as out:
        for name, text, distribution, tasks in chosen:
            query = cer_gpu.compile(text, time_column="ts")
            for threads in (1, 2):
                if (text, threads) not in alone:
                    alone[text, threads] = single_process(events, text, threads)

            def job(
                stored: Path, query: Query = query, distribution: str = distribution, tasks: int = tasks
            ) -> tuple[Summary, tuple[float, ...]]:
                before = cpu_times()
                done = run(
                    spark.read.parquet(str(stored)),
                    query,
                    f"{out}/found",
                    order_by="ts",
                    distribution=distribution,
                    tasks=tasks,
                    output="positions",
                    source=source,
                    overwrite=True,
                )
                return done, tuple(after - first for after, first in zip(cpu_times(), before, strict=True))

            job(start)  # workers start, and load the loops
            begun, _ = job(start)
            done, (java, python) = job(events)
            assert done.n_matches == alone[text, 1]["matches"], (done.n_matches, alone[text, 1])
            n = done.n_rows
            rows.append(
                {
                    "workload": name,
                    "events": n,
                    "matches": done.n_matches,
                    "million events/s": n / done.seconds / 1e6,
                    "without the start": n / max(done.seconds - begun.seconds, 1e-3) / 1e6,
                    "one process, 1 thread": n / alone[text, 1]["seconds"] / 1e6,
                    "one process, 2 threads": n / alone[text, 2]["seconds"] / 1e6,
                    "start, s": begun.seconds,
                    "Java, us/event": java / n * 1e6,
                    "Python, us/event": python / n * 1e6,
                    "one process, us/event": alone[text, 1]["cpu"] / n * 1e6,
                    "shuffled, bytes/event": done.shuffled / n,
                    "events read / events": done.overlap,
                    "largest part / mean": done.skew,
                    "peak worker, MiB": done.peak_memory / 2**20,
                    "peak single, MiB": alone[text, 1]["peak"] / 2**20,
                }
            )
            print(f"{name}: {done}", file=sys.stderr)
    return rows


def frames_of(spark: Any, events: Path) -> dict[str, Any]:
    """Return DataFrames of the events that are no plain reads of files, by how they come about."""
    from pyspark.sql import functions as sf

    stored = spark.read.parquet(str(events))
    names = spark.range(N_KEYS).select(
        sf.col("id").cast("int").alias("k"), sf.concat(sf.lit("key "), "id").alias("name")
    )
    cached = stored.cache()
    cached.count()
    stored = spark.read.schema(cached.schema).parquet(f"{events}/*.parquet")  # not the cached one
    half = stored.count() // 2
    stored.createOrReplaceTempView("events")
    return {
        "cached": cached,
        "repartition(4)": stored.repartition(4),
        "join": stored.join(names, on="k"),
        "withColumn": stored.withColumn("x", sf.col("x") * 1),
        "union": stored.filter(sf.col("id") < half).union(stored.filter(sf.col("id") >= half)),
        "UDF": stored.withColumn("x", sf.pandas_udf(lambda x: x * 1, "float")(sf.col("x"))),
        "view": spark.sql("SELECT type, k, ts, CAST(x AS double) AS x, id FROM events WHERE x >= 0"),
    }


def drop_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read all batches, and yield none."""
    for _ in batches:
        pass
    yield from ()


def frames(folder: Path, n_events: int, cores: int, times: int = 2) -> list[dict[str, object]]:
    """Measure `match` of DataFrames beside the floor of Spark."""
    spark = session(cores=cores, config={"spark.driver.memory": "6g"})

    def seconds(work: Callable[[], Any]) -> float:
        begun = time.perf_counter()
        work().write.format("noop").mode("overwrite").save()
        return time.perf_counter() - begun

    rows: list[dict[str, object]] = []
    keyed = KEYED.replace("C PARTITION", "D FILTER A[x > 0.99] AND D[x > 0.99] PARTITION")
    for distribution, text in (("key", keyed), ("range", TIMED)):
        query = cer_gpu.compile(text, time_column="ts")
        for name, df in frames_of(spark, generate(folder, n_events)).items():
            columns = ["type", "ts", "x", *(["k"] if distribution == "key" else [])]

            found = match(df, query, order_by="ts", distribution=distribution, output="count").agg({"count": "sum"})
            n_matches = int(found.collect()[0][0] or 0)
            alone = query.evaluate(str(generate(folder, n_events)), output="count")["count"]
            assert n_matches == sum(alone.to_pylist()), (name, distribution, n_matches)

            def floor(df: Any = df, columns: list[str] = columns, distribution: str = distribution) -> Any:
                read = df.select(*columns)
                parts = read.repartition(cores, "k") if distribution == "key" else read.repartitionByRange(cores, "ts")
                return parts.sortWithinPartitions("ts").mapInArrow(drop_all, "type string")

            def matched(df: Any = df, query: Query = query, distribution: str = distribution) -> Any:
                return match(df, query, order_by="ts", distribution=distribution, output="positions")

            taken = [(seconds(floor), seconds(matched)) for _ in range(times + 1)][1:]
            least, own = (min(each) for each in zip(*taken, strict=True))
            rows.append(
                {
                    "DataFrame": name,
                    "distribution": distribution,
                    "events": n_events,
                    "floor, s": least,
                    "match, s": own,
                    "matches": n_matches,
                    "floor / match": least / own,
                    "million events/s": n_events / own / 1e6,
                }
            )
            print(rows[-1], file=sys.stderr)
    return rows


def main(arguments: list[str]) -> int:
    """Measure everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000_000, help="events of the stream")
    parser.add_argument("--row-events", type=int, default=20_000_000, help="events of the stream that Spark reads")
    parser.add_argument("--frame-events", default="1000000,3000000", help="events of the DataFrames, in sizes")
    parser.add_argument("--frames-only", action="store_true", help="measure DataFrames only")
    parser.add_argument("--cores", type=int, default=2, help="tasks of Spark at once")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the events are kept")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<machine>-spark.json")
    parser.add_argument("--single", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.single:
        single(options.folder, options.single, options.threads)
        return 0
    console = Console(width=180)
    results = {}
    for n_events in map(int, options.frame_events.split(",")):
        title = f"DataFrames beside Spark's floor, {n_events:,} events, local[{options.cores}]"
        results[title] = frames(options.folder, n_events, options.cores)
        show(console, title, results[title])
    stored = (("files", options.events, JOBS), ("rows", options.row_events, ROW_JOBS))
    for source, n_events, chosen in () if options.frames_only else stored:
        title = f"Spark, local[{options.cores}], {source}"
        results[title] = jobs(options.folder, n_events, options.cores, source, chosen)
        show(console, title, results[title])
    session().stop()
    if options.save:
        suffix = "-frames" if options.frames_only else ""
        save(console, RESULTS / f"{machine()}-spark{suffix}.json", results, ["python benchmarks/spark.py", *arguments])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
