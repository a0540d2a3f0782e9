"""Forecasts: events each second of learning and of forecasting, beside those of the query itself.

    .venv/bin/python benchmarks/forecast.py [--events 1000000] [--repeat 5]

Seconds are CPU seconds of one thread, the fastest run; a ratio is to the query's own rate (its matches, one thread).
The flights are those of examples/data; the sequences are of nine random types, so that all types of the pattern are
three in nine; the keyed ones have 1,000 keys, and a window of a hundred events of each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import cer_gpu

FLIGHTS = Path(__file__).parent.parent / "examples" / "data" / "flights.parquet"
LATE = (
    "SELECT * FROM F WHERE LANDED AS a ; DEPARTED AS b FILTER a[delay > 120] AND b[delay > 60] "
    "PARTITION BY [tailnum] WITHIN 4 HOURS"
)
CHAIN = "SELECT * FROM S WHERE A ; B ; C AS c FILTER c[x > 0.999] {} WITHIN {} [ts]"
JOIN = "SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x > a.x + 0.99 WITHIN 1000 [ts]"


def random_events(n: int) -> pa.Table:
    """Return events of nine types with a key k, a number x, and their number ts."""
    rng = np.random.default_rng(0)
    types = pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, 9, n, np.int8)), pa.array(list("ABCDEFGHI")))
    return pa.table({"type": types, "k": rng.integers(0, 1000, n), "x": rng.random(n), "ts": np.arange(n)})


def rates(calls: dict[str, Callable[[], Any]], n: int, repeat: int) -> dict[str, float]:
    """Return million events each CPU second, of the fastest of the calls, which take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for run in range(repeat + 1):  # the first one compiles
        for name, call in calls.items():
            begin = time.process_time()
            call()
            if run:
                best[name] = min(best[name], time.process_time() - begin)
    return {name: n / seconds / 1e6 for name, seconds in best.items()}


def stream(evaluator: Any, batches: list[pa.RecordBatch]) -> None:
    """Push all batches."""
    for batch in batches:
        evaluator.push(batch)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    made = random_events(options.events)
    workloads = (
        ("flights, 4,000 keys", LATE, pq.read_table(FLIGHTS), ["4 hours"]),
        ("chain", CHAIN.format("", 1000), made, ["1000 events"]),
        ("chain, 1,000 keys", CHAIN.format("PARTITION BY [k]", 100_000), made, ["10 events"]),
        ("filter between events", JOIN, made, ["1000 events"]),
    )
    print("| workload | query | fit | forecast, last | query, stream | forecast, stream |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, text, table, within in workloads:
        query, n = cer_gpu.compile(text, time_column="ts"), table.num_rows
        model = query.fit(table, within=within)
        batches = table.combine_chunks().to_batches(max_chunksize=1 << 16)
        calls = {
            "query": lambda q=query, t=table: q.evaluate(t, threads=1),
            "fit": lambda q=query, t=table, w=within: q.fit(t, within=w),
            "last": lambda m=model, t=table: m.forecast(t),
            "pushed": lambda q=query, b=batches: stream(q.evaluator(), b),
            "watched": lambda q=query, b=batches, m=model: stream(q.evaluator(forecast=m, threshold=0.5), b),
        }
        r = rates(calls, n, options.repeat)
        print(
            f"| {name} | {r['query']:.1f} | {r['fit']:.1f} ({r['fit'] / r['query']:.2f}) | "
            f"{r['last']:.1f} ({r['last'] / r['query']:.2f}) | {r['pushed']:.1f} | "
            f"{r['watched']:.1f} ({r['watched'] / r['pushed']:.2f}) |"
        )


if __name__ == "__main__":
    main()
