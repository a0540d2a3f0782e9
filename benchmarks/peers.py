"""Compare with what people use today, on the same events in the same run, with the same answers.

    python benchmarks/peers.py [--events N] [--seconds S] [--save]

The peer is DuckDB (all cores): a sequence in a window as a self-join over buckets of one window's length, the form that
it runs fastest.  It counts the complex events; cer_gpu (one thread) counts them too, or lists all where they are few.
A peer gets as many events as it reads in about S seconds; what it finds is compared with cer_gpu on the same.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from report import save, show
from rich.console import Console
from streams import random_types

import cer_gpu

WINDOWS = (100, 1000, 10_000, 100_000)
FEWEST = 5_000
"""Events of the first try of a peer."""


@dataclass(frozen=True)
class Workload:
    """A sequence of three types: in CEQL, with what is asked for, and the type and condition of each event for SQL."""

    name: str
    text: str
    output: str
    steps: list[tuple[str, str]]


def workloads(window: int) -> list[Workload]:
    """Return those for a window of so many events."""
    first, last = 30 / window, 0.01
    return [
        Workload(
            f"count all, WITHIN {window}",
            f"SELECT * FROM S WHERE A ; B ; C WITHIN {window} EVENTS",
            "count",
            [("A", "true"), ("B", "true"), ("C", "true")],
        ),
        Workload(
            f"list a few, WITHIN {window}",
            f"SELECT * FROM S WHERE A AS a ; B AS b ; C AS c FILTER a[x < {first}] AND b[x < 0.1] AND c[x < {last}] "
            f"WITHIN {window} EVENTS",
            "positions",
            [("A", f"x < {first}"), ("B", "x < 0.1"), ("C", f"x < {last}")],
        ),
    ]


def evaluate(workload: Workload, table: pa.Table) -> int:
    """Return how many complex events there are."""
    found = cer_gpu.compile(workload.text).evaluate(table, output=workload.output, threads=1)
    return sum(found["count"].to_pylist()) if workload.output == "count" else found.num_rows


def duckdb_count(table: pa.Table, steps: list[tuple[str, str]], window: int) -> int:
    """Count the complex events of a sequence of three in a window of events."""
    import duckdb

    connection = duckdb.connect()
    connection.register("given", table)
    connection.execute("CREATE TABLE events AS SELECT row_number() OVER () - 1 AS p, type, x FROM given")
    selected = [f"SELECT p, p // {window} AS bucket FROM events WHERE type = '{t}' AND {c}" for t, c in steps]
    found = connection.execute(
        f"""
        WITH a AS ({selected[0]}), b AS ({selected[1]}), c AS ({selected[2]}),
        ends AS (SELECT p, bucket FROM c UNION ALL SELECT p, bucket - 1 FROM c),
        middles AS (SELECT p, bucket FROM b UNION ALL SELECT p, bucket - 1 FROM b),
        pairs AS (
            SELECT a.p AS first, a.bucket AS bucket, ends.p AS last FROM a JOIN ends
            ON a.bucket = ends.bucket AND ends.p > a.p AND ends.p - a.p <= {window}
        )
        SELECT count(*) FROM pairs JOIN middles
        ON pairs.bucket = middles.bucket AND middles.p > pairs.first AND middles.p < pairs.last
        """
    ).fetchone()
    connection.close()
    assert found is not None
    return int(found[0])


def timed(run: Callable[[], int]) -> tuple[float, int]:
    """Return the seconds that a function takes, and what it returns."""
    begun = time.perf_counter()
    found = run()
    return time.perf_counter() - begun, found


def compare(n_events: int, seconds: float) -> list[dict[str, object]]:
    """Run all workloads."""
    table = random_types(n_events)
    rows: list[dict[str, object]] = []
    for window in WINDOWS:
        for workload in workloads(window):
            n = min(FEWEST, n_events)
            taken, expected = timed(partial(duckdb_count, table.slice(0, n), workload.steps, window))
            while taken < seconds / 4 and n < n_events:
                n = min(n_events, 4 * n)
                taken, expected = timed(partial(duckdb_count, table.slice(0, n), workload.steps, window))
            found = evaluate(workload, table.slice(0, n))
            assert found == expected, (workload, found, expected)
            whole, _ = timed(partial(evaluate, workload, table))
            rows.append(
                {
                    "workload": workload.name,
                    "DuckDB: events": n,
                    "complex events": found,
                    "million events/s": n / taken / 1e6,
                    "cer_gpu: events": n_events,
                    "cer_gpu: million events/s": n_events / whole / 1e6,
                    "times as fast": taken / n / (whole / n_events),
                }
            )
    return rows


def main(arguments: list[str]) -> int:
    """Run everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000, help="events of the stream")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the peer, for one workload")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<machine>-peers.json")
    options = parser.parse_args(arguments)
    console = Console(width=150)
    try:
        import duckdb
    except ModuleNotFoundError:
        console.print("skipped: the package duckdb is not installed")
        return 0
    title = f"Against DuckDB {duckdb.__version__}"
    results = {title: compare(options.events, options.seconds)}
    show(console, title, results[title])
    if options.save:
        save(console, "-peers", results, "python benchmarks/peers.py " + " ".join(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
