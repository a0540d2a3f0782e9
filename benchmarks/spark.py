"""Measure queries over a stored stream on Spark, by key, by range and by shares, against a single process.

    python benchmarks/spark.py [--events N] [--cores N] [--folder FOLDER] [--save]

The events are generated once, in the folder (default: among the temporary files), in Parquet files in the order of
time.  Every figure of Spark is that of its second run in a session; the first one also starts the workers.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import cer_gpu

TYPES = ("A", "B", "C", "D", "E", "F", "G", "H", "I")
RARE = 1e-6
"""The share of the type that ends complex events."""
N_KEYS = 10_000
PER_SECOND = 1000
FILE_EVENTS = 10_000_000
QUERIES = {
    "by key": ("SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 60 SECONDS", "partition"),
    "by range, a window of time": (
        "SELECT * FROM S WHERE A ; B+ ; C FILTER A[x > 0.99] AND B[x > 0.9] WITHIN 1 SECOND",
        "range",
    ),
    "by range, a window of events": (
        "SELECT * FROM S WHERE A ; B+ ; C FILTER A[x > 0.99] AND B[x > 0.9] WITHIN 1000 EVENTS",
        "range",
    ),
    "by shares": ("SELECT * FROM S WHERE A ; B+ ; C FILTER A[x > 0.99] AND B[x > 0.9] WITHIN 1000 EVENTS", "replicate"),
}


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
    """Run a query in a process of its own, to know its peak memory."""
    done = subprocess.run(
        [sys.executable, __file__, "--single", text, "--folder", str(events)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def single(events: Path, text: str) -> None:
    """Print what a run in this process took."""
    query = cer_gpu.compile(text, time_column="ts")
    query.evaluate(pq.ParquetFile(next(events.glob("*.parquet"))).read_row_group(0).slice(0, 1000))
    begun = time.perf_counter()
    n_found = sum(batch.num_rows for batch in query.stream(str(events)))
    taken = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": taken, "complex events": n_found, "peak": peak}))
