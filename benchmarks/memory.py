"""Measure the memory of a long stream under a window, with or without partitions.

    python benchmarks/memory.py [--events N] [--keys N] [--texts]

Batches go through one evaluator; what is reported is how far the process's memory peaks above what it held, batches
included, before the first of them was pushed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from streams import random_types

import cer_gpu

BATCH = 1 << 20


def plain(n_events: int) -> Iterator[pa.RecordBatch]:
    """Yield events without keys, four batches over and over."""
    tables = [random_types(BATCH, seed=seed, shares={"C": 1e-6}).select(["type"]) for seed in range(4)]
    batches = [table.combine_chunks().to_batches()[0] for table in tables]
    for i in range(-(-n_events // BATCH)):
        yield batches[i % len(batches)]


def keyed(n_events: int, n_keys: int, texts: bool) -> Iterator[pa.RecordBatch]:
    """Yield events with a random key each: integers or texts."""
    rng = np.random.default_rng(0)
    rows = 1 << 17
    for i in range(-(-n_events // rows)):
        keys = pa.array(rng.integers(0, n_keys, rows))
        if texts:
            keys = pc.binary_join_element_wise("user-", keys.cast(pa.string()), "")
        types = random_types(rows, seed=i)["type"].combine_chunks()
        yield pa.record_batch({"type": types, "key": keys})


def main(arguments: list[str]) -> int:
    """Run the stream and print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000_000)
    parser.add_argument("--keys", type=int, help="partitions; none where left out")
    parser.add_argument("--texts", action="store_true", help="keys are texts")
    options = parser.parse_args(arguments)
    if options.keys is None:
        text, batches = "SELECT * FROM S WHERE A ; B ; C WITHIN 1000 EVENTS", plain(options.events)
    else:
        text = "SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [key] WITHIN 10 EVENTS"
        batches = keyed(options.events, options.keys, options.texts)
    query = cer_gpu.compile(text)
    first = next(batches)
    query.evaluate(first.slice(0, 1000))  # compiles the kernels
    evaluator = query.evaluator()
    process = psutil.Process()
    before = peak = process.memory_info().rss
    seconds, batch = 0.0, first
    while batch is not None:
        begun = time.perf_counter()
        for _ in evaluator.push_batches(batch):
            peak = max(peak, process.memory_info().rss)
        seconds += time.perf_counter() - begun
        peak = max(peak, process.memory_info().rss)
        batch = next(batches, None)
    print(
        f"{text}\n{evaluator.n_events:,} events, {evaluator.n_matches:,} complex events, {seconds:.1f} s: "
        f"{(peak - before) / 2**20:.0f} MiB above the {before / 2**20:.0f} MiB held before"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
