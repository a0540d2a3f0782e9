"""Measure the engine from Arrow input to Arrow output, on one core: ``make bench``.

Every figure is the median of several runs in one process; ratios compare runs that alternate, so that they hold
when the machine's speed drifts.  The floor is a bare pass over the columns that the query reads.

    python benchmarks/run.py [--events N] [--repeat K] [--save] [--compare]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from report import save, show, show_ratios
from rich.console import Console
from streams import random_types

import cer_gpu

HERE = Path(__file__).parent
FLIGHTS = HERE.parent / "examples" / "data" / "flights.parquet"
RARE = 1e-6
FILTERED = "SELECT * FROM S WHERE A ; B+ ; C FILTER A[x > 0.5] AND B[x < 0.3] AND C[x >= 0] WITHIN 100 EVENTS"


def seconds(*runs: Callable[[], object], repeat: int) -> list[float]:
    """Return the median CPU seconds of this thread for each of several functions, run in turn."""
    for run in runs:
        run()
    taken: list[list[float]] = [[] for _ in runs]
    for _ in range(repeat):
        for run, times in zip(runs, taken, strict=True):
            before = time.thread_time()
            run()
            times.append(time.thread_time() - before)
    return [statistics.median(times) for times in taken]


def floor(table: pa.Table, columns: list[str]) -> Callable[[], object]:
    """Return a bare pass: the sum of each column (of its codes, for dictionaries), or the bytes of its strings."""

    def run() -> None:
        for name in columns:
            for chunk in table[name].chunks:
                if pa.types.is_dictionary(chunk.type):
                    pc.sum(chunk.indices)
                elif pa.types.is_string(chunk.type):
                    pc.sum(pc.binary_length(chunk))
                    np.frombuffer(chunk.buffers()[2], np.uint8).max()
                else:
                    pc.sum(chunk)

    return run


def throughput(n_events: int, repeat: int) -> list[dict[str, object]]:
    """Sequences over nine types of which the last is rare: the cost of reading, not of listing."""
    query = "SELECT * FROM S WHERE A ; B+ ; C WITHIN 100 EVENTS"
    rows = []
    for layout, plain in (("dictionary", False), ("plain strings", True)):
        table = random_types(n_events, shares={"C": RARE}, plain=plain)
        for text in (query, FILTERED):
            compiled = cer_gpu.compile(text)
            found = compiled.evaluate(table).num_rows
            taken, bare = seconds(
                partial(compiled.evaluate, table, threads=1),
                floor(table, compiled.columns(table.schema)),
                repeat=repeat,
            )
            rows.append(
                {
                    "workload": f"{layout}: {text}",
                    "events": n_events,
                    "complex events": found,
                    "million events/s": n_events / taken / 1e6,
                    "times the floor": taken / bare,
                }
            )
    return rows


def windows(n_events: int, repeat: int) -> list[dict[str, object]]:
    """The same stream with one type missing, under windows of 100 and of 100,000 events."""
    rows = []
    for missing in ("A", "B", "C"):
        table = random_types(n_events, shares={missing: 0.0})
        queries = [cer_gpu.compile(f"SELECT * FROM S WHERE A ; B+ ; C WITHIN {n} EVENTS") for n in (100, 100_000)]
        runs = [partial(query.evaluate, table, threads=1) for query in queries]
        short, long = seconds(*runs, repeat=2 * repeat + 1)
        rows.append(
            {
                "workload": f"A ; B+ ; C, no event of type {missing}",
                "events": n_events,
                "million events/s, WITHIN 100": n_events / short / 1e6,
                "million events/s, WITHIN 100000": n_events / long / 1e6,
                "long / short": long / short,
            }
        )
    return rows


def threads(n_events: int, repeat: int) -> list[dict[str, object]]:
    """One thread and all of them (wall time)."""
    n_cores = len(os.sched_getaffinity(0))
    table = random_types(2 * n_events, shares={"C": RARE})
    rows = []
    for text in ("SELECT * FROM S WHERE A ; B+ ; C WITHIN 100 EVENTS", FILTERED):
        query = cer_gpu.compile(text)
        times: dict[int, list[float]] = {1: [], n_cores: []}
        for _ in range(repeat + 1):
            for n in times:
                before = time.perf_counter()
                query.evaluate(table, threads=n)
                times[n].append(time.perf_counter() - before)
        one, several = (statistics.median(taken[1:]) for taken in times.values())
        rows.append(
            {
                "workload": text,
                "events": len(table),
                "one thread, million events/s": len(table) / one / 1e6,
                f"{n_cores} threads, million events/s": len(table) / several / 1e6,
                "times as fast": one / several,
            }
        )
    return rows


def listing(limit: int, repeat: int) -> list[dict[str, object]]:
    """Complex events listed per second, for sequences of 3 to 9 and a Kleene pattern, into Arrow lists."""
    rows = []
    for n in (3, 5, 7, 9):
        names = list("ABCDEFGHI")[:n]
        copies = {3: 200, 5: 40, 7: 12, 9: 7}[n]
        types = [name for name in names for _ in range(copies)]
        table = pa.table({"type": types})
        query = cer_gpu.compile(f"SELECT * FROM S WHERE {' ; '.join(names)} LIMIT {limit}")
        rows.append(_listing(f"sequence of {n}", query, table, repeat))
    table = pa.table({"type": ["A"] + ["B"] * 20 + ["C"]})
    rows.append(_listing("A ; B+ ; C, 20 events B", cer_gpu.compile("SELECT * FROM S WHERE A ; B+ ; C"), table, repeat))
    return rows


def _listing(name: str, query: cer_gpu.Query, table: pa.Table, repeat: int) -> dict[str, object]:
    found = sum(batch.num_rows for batch in query.stream(table, threads=1))

    def run() -> None:
        for _ in query.stream(table, threads=1):
            pass

    (taken,) = seconds(run, repeat=repeat)
    return {"workload": name, "complex events": found, "million complex events/s": found / taken / 1e6}


def flights(repeat: int) -> list[dict[str, object]]:
    """The flights, from the Parquet file to the table of complex events (wall time)."""
    texts = sorted((HERE.parent / "examples" / "queries").glob("*.ceql"))
    rows = []
    for path in texts:
        query = cer_gpu.compile(path.read_text(encoding="utf-8"), time_column="ts")
        found = query.evaluate(FLIGHTS)
        times = []
        for _ in range(repeat):
            before = time.perf_counter()
            query.evaluate(FLIGHTS)
            times.append(time.perf_counter() - before)
        n = pa.parquet.read_metadata(FLIGHTS).num_rows
        rate = n / statistics.median(times) / 1e6
        rows.append({"workload": path.name, "events": n, "complex events": found.num_rows, "million events/s": rate})
    return rows


def main(arguments: list[str]) -> int:
    """Run everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000, help="events of the throughput workload")
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the median is taken")
    parser.add_argument("--compare", action="store_true", help="show rates as ratios to the results that are kept")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<machine>.json")
    options = parser.parse_args(arguments)
    console = Console(width=150)
    results = {}
    for title, run in (
        ("Events read per second", lambda: throughput(options.events, options.repeat)),
        ("Long windows", lambda: windows(max(options.events // 10, 1000), options.repeat)),
        ("Threads", lambda: threads(options.events, options.repeat)),
        ("Complex events listed per second", lambda: listing(min(options.events, 1_000_000), options.repeat)),
        ("Flights, from Parquet", lambda: flights(options.repeat)),
    ):
        results[title] = run()
        show(console, title, results[title])
    if options.compare:
        show_ratios(console, results)
    if options.save:
        save(console, "", results, "python benchmarks/run.py " + " ".join(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
