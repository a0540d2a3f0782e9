"""SELECT RECENT: relevant events each second, of the loop alone and of the whole evaluation, by the number of keys.

    .venv/bin/python benchmarks/recent.py [--events 4000000] [--repeat 5]

The events are A, B and C in random order.  Seconds are CPU seconds of the one thread that works; shown is the fastest
run.  A table of keys begins small: its growth is part of the loop.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import cer_gpu
from cer_gpu.runtime.events import RelevantEvents
from cer_gpu.runtime.protocol import ResultBuffers
from cer_gpu.runtime.recent.run import RecentRun
from cer_gpu.runtime.registry import RUNTIMES

STEPS = "SELECT RECENT * FROM S WHERE A AS a ; B AS b ; C AS c"
EQUAL = "FILTER b.u = a.u AND c.u = b.u"
MANY = 1_000_000
WORKLOADS = (
    ("one key", f"{STEPS} WITHIN 1000 [t]", 1),
    ("one key, two steps", "SELECT RECENT * FROM S WHERE A ; B WITHIN 1000 [t]", 1),
    ("one key, an absence", "SELECT RECENT * FROM S WHERE A ; !C ; B WITHIN 1000 [t]", 1),
    ("one key, filters", f"{STEPS} FILTER b.x > a.x AND c.x > b.x WITHIN 1000 [t]", 1),
    ("keys of equalities", f"{STEPS} {EQUAL}", 10_000),
    ("keys of equalities", f"{STEPS} {EQUAL}", MANY),
    ("keys of equalities, a window", f"{STEPS} {EQUAL} WITHIN 100000 [t]", MANY),
    ("keys of equalities, a filter", f"{STEPS} {EQUAL} AND c.x > a.x", MANY),
    ("partitions", f"{STEPS} PARTITION BY [u]", MANY),
)


class TimedRun(RecentRun):
    """The runtime, which adds up the seconds of its loop and the events that it read."""

    seconds = 0.0
    n_events = 0

    def feed(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Process relevant events and yield full buffers, in order."""
        TimedRun.n_events += len(events.symbols)
        found = super().feed(events)
        while True:
            begin = time.thread_time()
            buffer = next(found, None)
            TimedRun.seconds += time.thread_time() - begin
            if buffer is None:
                return
            yield buffer


def events(n: int, n_keys: int) -> pa.Table:
    """Return random events with a key u, a number x, and their number t."""
    rng = np.random.default_rng(1)
    types = pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, 3, n).astype(np.int32)), pa.array(list("ABC")))
    return pa.table({"type": types, "u": rng.integers(0, n_keys, n), "x": rng.integers(0, 1000, n), "t": np.arange(n)})


def measure(text: str, table: pa.Table, repeat: int) -> tuple[float, float, int]:
    """Return relevant events each second of the loop, and of the whole; and the number of matches."""
    query = cer_gpu.compile(text)
    query.evaluate(table.slice(0, 100_000))  # compiles
    best = [0.0, 0.0]
    for _ in range(repeat):
        TimedRun.seconds, TimedRun.n_events = 0.0, 0
        begin = time.thread_time()
        found = query.evaluate(table, threads=1)
        whole = time.thread_time() - begin
        best = [max(best[0], TimedRun.n_events / TimedRun.seconds), max(best[1], TimedRun.n_events / whole)]
    return best[0], best[1], found.num_rows


def main() -> None:
    """Measure each workload, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    RUNTIMES["recent"] = TimedRun
    print(f"{'':32}{'keys':>10}{'loop, M/s':>12}{'all, M/s':>12}{'found':>12}")
    for name, text, n_keys in WORKLOADS:
        loop, whole, found = measure(text, events(asked.events, n_keys), asked.repeat)
        print(f"{name:32}{n_keys:>10,}{loop / 1e6:>12.1f}{whole / 1e6:>12.1f}{found:>12,}", flush=True)


if __name__ == "__main__":
    main()
