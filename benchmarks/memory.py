"""Measure the memory of a long stream under a window: ``python benchmarks/memory.py [--events N]``.

Batches of 1,048,576 events go through one evaluator; what is reported is how far the process's memory peaks above
what it held, batches included, before the first of them was pushed.
"""

from __future__ import annotations

import argparse
import sys
import time

import psutil
from streams import random_types

import cer_gpu

BATCH = 1 << 20


def main(arguments: list[str]) -> int:
    """Run the stream and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000_000)
    options = parser.parse_args(arguments)
    batches = [
        random_types(BATCH, seed=seed, shares={"C": 1e-6}).select(["type"]).combine_chunks().to_batches()[0]
        for seed in range(4)
    ]
    cer_gpu.compile("SELECT * FROM S WHERE A ; B").evaluate(batches[0].slice(0, 1))  # compiles the kernels
    evaluator = cer_gpu.compile("SELECT * FROM S WHERE A ; B ; C WITHIN 1000 EVENTS").evaluator()
    process = psutil.Process()
    before = peak = process.memory_info().rss
    begun, n_batches = time.perf_counter(), 0
    while evaluator.n_events < options.events:
        for _ in evaluator.push_batches(batches[n_batches % len(batches)]):
            peak = max(peak, process.memory_info().rss)
        n_batches += 1
        peak = max(peak, process.memory_info().rss)
    seconds = time.perf_counter() - begun
    print(
        f"{evaluator.n_events:,} events, {evaluator.n_matches:,} complex events, {seconds:.1f} s: "
        f"{(peak - before) / 2**20:.0f} MiB above the {before / 2**20:.0f} MiB held before"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
