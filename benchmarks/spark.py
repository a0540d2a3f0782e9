"""Measure queries over a stored stream on Spark, by key, by range and by shares, against a single process.

    python benchmarks/spark.py [--events N] [--cores N] [--folder FOLDER] [--save]

The events are generated once, in the folder (default: among the temporary files), in Parquet files in the order of
time.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from report import RESULTS, machine, save, show
from rich.console import Console

import cer_gpu
from spark_glue import run, session

TYPES = ("A", "B", "C", "D", "E", "F", "G", "H", "I")
RARE = 1e-6
"""Share of the type that ends complex events."""
N_KEYS = 10_000
PER_SECOND = 1000
FILE_EVENTS = 10_000_000
KEYED = "SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 60 SECONDS"
TIMED = "SELECT * FROM S WHERE A ; B+ ; C FILTER A[x > 0.99] AND B[x > 0.9] WITHIN 1 SECOND"
COUNTED = "SELECT * FROM S WHERE A ; B+ ; C FILTER A[x > 0.99] AND B[x > 0.9] WITHIN 1000 EVENTS"
LONG = "SELECT * FROM S WHERE A ; B ; C FILTER A[x > 0.9999] AND B[x > 0.999] WITHIN 1 HOUR"
JOBS = [
    ("by key", KEYED, "partition", 2),
    ("by range, a window of time", TIMED, "range", 2),
    ("by range, a window of time, 16 tasks", TIMED, "range", 16),
    ("by range, a long window, 16 tasks", LONG, "range", 16),
    ("by range, a window of events", COUNTED, "range", 2),
    ("by shares", COUNTED, "replicate", 2),
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


def single_process(events: Path, text: str) -> dict[str, float]:
    """Evaluate a query in a process of its own, to know its peak memory."""
    done = subprocess.run(
        [sys.executable, __file__, "--single", text, "--folder", str(events)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def single(events: Path, text: str) -> None:
    """Print the time and memory of an evaluation in this process."""
    query = cer_gpu.compile(text, time_column="ts")
    query.evaluate(pq.ParquetFile(next(events.glob("*.parquet"))).read_row_group(0).slice(0, 1000))
    begun = time.perf_counter()
    n_found = sum(batch.num_rows for batch in query.stream(str(events)))
    taken = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": taken, "complex events": n_found, "peak": peak}))


def jobs(events: Path, cores: int) -> list[dict[str, object]]:
    """Run each job, and evaluate the same query in a single process."""
    spark = session(cores=cores, config={"spark.driver.memory": "6g"})
    df = spark.read.parquet(str(events))
    rows: list[dict[str, object]] = []
    alone: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text, strategy, tasks in JOBS:
            query = cer_gpu.compile(text, time_column="ts")
            alone.setdefault(text, single_process(events, text))
            done = run(
                df,
                query,
                f"{folder}/found",
                order_by="ts",
                strategy=strategy,
                tasks=tasks,
                output="positions",
                overwrite=True,
            )
            assert done.n_found == alone[text]["complex events"], (done.n_found, alone[text])
            n = done.n_rows
            rows.append(
                {
                    "workload": name,
                    "events": n,
                    "complex events": done.n_found,
                    "million events/s": n / done.seconds / 1e6,
                    "single process": n / alone[text]["seconds"] / 1e6,
                    "counting pass, s": done.counting_seconds,
                    "shuffled, bytes/event": done.shuffled / n,
                    "events read / events": done.overlap,
                    "largest part / mean": done.skew,
                    "peak worker, MiB": done.peak_memory / 2**20,
                    "peak single, MiB": alone[text]["peak"] / 2**20,
                }
            )
            print(f"{name}: {done}", file=sys.stderr)
    spark.stop()
    return rows


def main(arguments: list[str]) -> int:
    """Measure everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000_000, help="events of the stream")
    parser.add_argument("--cores", type=int, default=2, help="tasks of Spark at once")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the events are kept")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<machine>-spark.json")
    parser.add_argument("--single", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.single:
        single(options.folder, options.single)
        return 0
    console = Console(width=180)
    title = f"Spark, local[{options.cores}], and a single process"
    results = {title: jobs(generate(options.folder, options.events), options.cores)}
    show(console, title, results[title])
    if options.save:
        save(console, RESULTS / f"{machine()}-spark.json", results, ["python benchmarks/spark.py", *arguments])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
