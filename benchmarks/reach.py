"""Measure one evaluation over more events than memory holds: its rate, its memory, and whether it stays right.

    python benchmarks/reach.py [--events N] [--first-position P] [--window W] [--save]

The events are made while they are read, as a function of their number that repeats after ten windows, so that making
them costs little.  Each total is compared with the one that arithmetic gives: the matches of the first and the
second period are counted in plain Python, and all later periods are like the second.  The rows of the last period are
compared one by one.  Resident memory is sampled on the way.

With `--first-position`, the position of each event is given, and the first one is P: the rows then hold numbers beyond
2^32, or beyond 2^62, and have to be those of the same stream at 0, moved by P.
"""

from __future__ import annotations

import argparse
import sys
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from report import RESULTS, Row, conclude
from rich.console import Console

import cer_gpu

TYPES = ("A", "B", "C", "D", "E", "F", "G", "H")
BATCH = 1 << 18
MICROSECONDS = 1000
"""Mean time from one event to the next."""
SAMPLES = 100
"""Samples of memory, at equal distances."""
ABOUT = (
    "One evaluation on one thread, over events that are made batch by batch. Resident memory is the greatest "
    "of all samples in a part of the run; totals and the rows of the last period are as expected, or the run fails."
)
Rows = list[tuple[int, ...]]


@dataclass(frozen=True)
class Stream:
    """Events that repeat after a period, and a query over them.

    Attributes
    ----------
    shares : tuple of float
        Shares of the types A, B and C; the other types share the rest.
    n_keys : int
        Number of keys, or 1 for a query without them.
    window : int
        Greatest distance of start and end, in events, or in milliseconds if `timed`.
    """

    name: str
    output: str
    timed: bool
    shares: tuple[float, float, float]
    n_keys: int
    window: int
    made: list[float] = field(default_factory=lambda: [0.0], compare=False)

    @property
    def period(self) -> int:
        """Number of events after which they repeat; odd, so that batches begin everywhere in it."""
        return 10 * self.window + 3

    def text(self) -> str:
        """Return the query."""
        within = f"{self.window * MICROSECONDS / 1e6:.6f} SECONDS" if self.timed else f"{self.window} EVENTS"
        keys = "PARTITION BY [k]" if self.n_keys > 1 else ""
        return f"SELECT * FROM S WHERE A ; B ; C {keys} WITHIN {within}"

    @cached_property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Types, keys and times after the mean (int32, int32, int64) of one period."""
        rng = np.random.default_rng(7)
        others = (1 - sum(self.shares)) / (len(TYPES) - 3)
        share = [*self.shares, *[others] * (len(TYPES) - 3)]
        codes = rng.choice(len(TYPES), self.period, p=share).astype(np.int32)
        keys = rng.integers(0, self.n_keys, self.period, dtype=np.int32)
        return codes, keys, rng.integers(0, MICROSECONDS, self.period)

    def take(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return types, keys and times (microseconds) of the events from `first` to `last`, without `last`."""
        numbers = np.arange(first, last)
        at = numbers % self.period
        codes, keys, later = self.columns
        return codes[at], keys[at], numbers * MICROSECONDS + later[at]

    def batches(self, n_events: int, first_position: int | None, size: int) -> Iterator[pa.RecordBatch]:
        """Yield all events; the seconds of processor time that it took are added up in `made`."""
        codes, keys, later = (np.resize(column, self.period + size) for column in self.columns)
        names, steps = pa.array(TYPES), np.arange(size, dtype=np.int64)
        for first in range(0, n_events, size):
            begun = time.thread_time()
            n = min(size, n_events - first)
            of = slice(first % self.period, first % self.period + n)
            times = steps[:n] * MICROSECONDS
            times += later[of]
            times += first * MICROSECONDS
            columns = {
                "type": pa.DictionaryArray.from_arrays(pa.array(codes[of]), names),
                "k": pa.array(keys[of]),
                "ts": pa.array(times).view(pa.timestamp("us")),
            }
            if first_position is not None:
                columns["position"] = pa.array(steps[:n] + (first_position + first))
            batch = pa.record_batch(columns)
            self.made[0] += time.thread_time() - begun
            yield batch

    def found(self, first: int, last: int, begin: int = 0) -> Rows:
        """Return start, second position and end of each complex event that ends from `first` on, in plain Python."""
        origin = max(begin, first - 2 * self.window)
        codes, keys, times = self.take(origin, last)
        needed = np.flatnonzero(codes < 3)
        clock = times if self.timed else np.arange(origin, last)
        window = self.window * MICROSECONDS if self.timed else self.window
        starts: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        seconds: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        rows: Rows = []
        for row in needed.tolist():
            code, key, now = int(codes[row]), int(keys[row]), int(clock[row])
            if code < 2:
                at, when = (starts, seconds)[code][key]
                at.append(row + origin)
                when.append(now)
                continue
            if row + origin < first:
                continue
            (a_at, a_when), (b_at, b_when) = starts[key], seconds[key]
            lowest = bisect_left(a_when, now - window)
            for b in b_at[bisect_left(b_when, now - window) :]:
                rows += [(a, b, row + origin) for a in a_at[lowest : bisect_left(a_at, b)]]
        return rows

    def expected(self, n_events: int) -> int:
        """Return the number of matches of a stream, by arithmetic."""
        period = self.period
        ends = np.bincount([row[-1] for row in self.found(0, min(2 * period, n_events))], minlength=2 * period)
        if n_events <= 2 * period:
            return int(ends.sum())
        whole, rest = divmod(n_events - period, period)
        return int(ends[:period].sum() + whole * ends[period:].sum() + ends[period : period + rest].sum())


def streams(window: int) -> list[Stream]:
    """Return what is measured: a window of events whose answers are listed, and one of time, by key, counted."""
    rare, few = 10 / window, 1 / window
    return [
        Stream("a window of events, listed", "positions", False, (rare, rare, few), 1, window),
        Stream("a window of time, by key, counted", "count", True, (0.1, 0.1, 0.001), max(window // 100, 2), window),
    ]


def reached(stream: Stream, n_events: int, first_position: int | None, size: int = BATCH) -> Row:
    """Evaluate a query over all events of its stream, and compare what it finds with what is expected.

    Raises
    ------
    AssertionError
        When a total, or one of the rows of the last period, differs.
    """
    query = cer_gpu.compile(stream.text(), time_column="ts")
    column = None if first_position is None else "position"
    for batch in stream.batches(min(4 * size, n_events), first_position, size):  # compiles the kernels
        query.evaluator(output=stream.output, threads=1, position_column=column).push(batch)
    evaluator = query.evaluator(output=stream.output, threads=1, position_column=column)
    checked, moved = max(n_events - stream.period, 0), first_position or 0
    own, samples, last = psutil.Process(), [], []
    n_found, every = 0, max(n_events // SAMPLES, size)
    stream.made[0] = 0.0
    wall, cpu, done = time.perf_counter(), time.process_time(), 0
    for batch in stream.batches(n_events, first_position, size):
        for piece in evaluator.push_batches(batch):
            n_found += pc.sum(piece["count"]).as_py() or 0 if stream.output == "count" else piece.num_rows
            if done + size > checked and piece.num_rows:
                last.append(piece.filter(pc.greater_equal(piece["end"], checked + moved)))
        if done // every != (done + batch.num_rows) // every:
            samples.append(own.memory_info().rss / 2**20)
        done += batch.num_rows
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert done == n_events
    assert n_found == stream.expected(n_events), (n_found, stream.expected(n_events))
    rows = [tuple(position + moved for position in row) for row in stream.found(checked, n_events)]
    if stream.output == "count":
        ends, numbers = np.unique(np.array([row[-1] for row in rows], np.int64), return_counts=True)
        assert [pair for piece in last for pair in _pairs(piece)] == list(
            zip(ends.tolist(), numbers.tolist(), strict=True)
        )
    else:
        assert sorted(tuple(row) for piece in last for row in piece["positions"].to_pylist()) == sorted(rows)
    tenth = max(len(samples) // 10, 1)
    return {
        "workload": stream.name,
        "window": stream.window,
        "keys": stream.n_keys,
        "events": n_events,
        "first position": moved,
        "matches": n_found,
        "rows compared": len(rows),
        "greatest position": max((row[-1] for row in rows), default=None),
        "relevant, %": 100 * sum(stream.shares),
        "million events/s of CPU": n_events / cpu / 1e6,
        "million events/s of wall": n_events / wall / 1e6,
        "making events, % of CPU": 100 * stream.made[0] / cpu,
        "CPU, s": cpu,
        "wall, s": wall,
        "first tenth, MiB": max(samples[:tenth]),
        "middle, MiB": max(samples[tenth:-tenth], default=None),
        "last tenth, MiB": max(samples[-tenth:]),
    }


def _pairs(piece: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    return zip(piece["end"].to_pylist(), piece["count"].to_pylist(), strict=True)


def main(arguments: list[str]) -> int:
    """Measure everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000_000, help="events of each stream")
    parser.add_argument("--first-position", type=int, help="position of the first event, given to each event")
    parser.add_argument("--window", type=int, default=100_000, help="length of the windows, in events or milliseconds")
    parser.add_argument("--batch", type=int, default=BATCH, help="events of a batch")
    parser.add_argument("--save", action="store_true", help="write <machine>-reach.json")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    options = parser.parse_args(arguments)
    console = Console(width=max(200, Console().width))
    rows = [
        reached(stream, options.events, options.first_position, options.batch) for stream in streams(options.window)
    ]
    title = "One evaluation over many events"
    name = "reach" if options.first_position is None else "reach-positions"
    conclude(console, options, {title: rows}, ["python benchmarks/reach.py", *arguments], {title: ABOUT}, name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
