"""Measure live rules: events pushed to a set of rules one by one and by the thousand, one query, a file, and memory.

    python benchmarks/live.py [--data FOLDER] [--rules FILE] [--repeat K] [--open RULES,EVENTS] [--save]

SigmaHQ's public Windows rules (a zip file with a folder of YAML) and recorded Windows events (windows.parquet) are not
part of this repository: without them, only the single query is measured.  The set is bound to the schema of the events
before, so that what is measured is the work for events.  Seconds are CPU seconds of the thread that works; beside those
of the whole file stand those of a bare read of it by pyarrow, of which they are a multiple.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from report import RESULTS, Row, conclude
from rich.console import Console
from sigma_rules import BESIDE, windows_rules

import cer_gpu
import cer_gpu.sigma

PUSHES, FILE = "Events pushed to an evaluator", "All events of a file"
MEMORY = "Memory of a set whose windows are all open"
ABOUT = {
    PUSHES: (
        "CPU time of one push, the median of many and the best of them, with the events a second that the median "
        "stands for.  The rules have read 100,000 events before; the query has read 100."
    ),
    FILE: (
        "CPU time of all rules over all events, bound before, and of a bare read of the same file by pyarrow "
        "(pq.read_table, one thread): the median of several, in turns."
    ),
    MEMORY: (
        "Rules of two events within all events of the stream: each event begins a match of a rule, and none ends.  "
        "Memory of the process before it compiles, and most that it needs beyond that, a batch of 100,000 events "
        "included; seconds to compile, and for all events."
    ),
}
QUERY = "SELECT * FROM S WHERE A AS a ; B AS b FILTER a[x > 10] AND b[x < 90] WITHIN 100 EVENTS"
BEFORE = 100_000


def row_of_pushes(name: str, push: Callable[[int], object], n_events: int, n_pushes: int) -> Row:
    """Return how long pushes of so many events take."""
    seconds = []
    for k in range(n_pushes):
        begin = time.thread_time()
        push(k)
        seconds.append(time.thread_time() - begin)
    median = statistics.median(seconds)
    return {
        "workload": name,
        "events in a push": n_events,
        "median, ms": 1e3 * median,
        "best, ms": 1e3 * min(seconds),
        "events/s": n_events / median,
    }


def pushed_to_one(n_pushes: int) -> Row:
    """Measure one query, one event at a time."""
    rng, n = np.random.default_rng(0), n_pushes + 100
    events = pa.record_batch({"type": rng.choice(list("ABCD"), n), "x": 100 * rng.random(n)})
    evaluator = cer_gpu.compile(QUERY).evaluator()
    evaluator.push(events.slice(0, 100))
    batches = [events.slice(100 + k, 1) for k in range(n_pushes)]
    return row_of_pushes("one query", lambda k: evaluator.push(batches[k]), 1, n_pushes)


def pushed_to_all(rules: cer_gpu.QuerySet, events: pa.RecordBatch, n_pushes: int) -> list[Row]:
    """Measure all rules, one event at a time and by the thousand."""
    evaluator = rules.evaluator()
    evaluator.push(events.slice(0, BEFORE))
    rows, begin = [], BEFORE
    for n_events, n in ((1, n_pushes), (1000, max(n_pushes // 10, 1))):
        batches = [events.slice(begin + k * n_events, n_events) for k in range(n)]
        begin += n * n_events
        name = f"{len(rules):,} Sigma rules"
        rows.append(row_of_pushes(name, lambda k, batches=batches: evaluator.push(batches[k]), n_events, n))
    return rows


def over_file(rules: cer_gpu.QuerySet, path: Path, repeat: int) -> list[Row]:
    """Measure all rules over a file, in memory and as it is read, beside a bare read of it."""
    table = pq.read_table(path)
    (whole,) = table.combine_chunks().to_batches()

    def bare() -> object:
        return pq.read_table(path, use_threads=False)

    def in_memory() -> int:
        evaluator = bound(rules, table.schema)
        return sum(rows.num_rows for _, rows in evaluator.push_batches(whole))

    def from_file() -> int:
        evaluator = bound(rules, table.schema)
        batches = pq.ParquetFile(path).iter_batches(1 << 17, use_threads=False)
        return sum(rows.num_rows for batch in batches for _, rows in evaluator.push_batches(batch))

    ways: dict[str, Callable[[], object]] = {"bare read": bare, "rules, in memory": in_memory, "rules, read": from_file}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, object] = {}
    for _ in range(repeat):
        for name, way in ways.items():
            begin = time.process_time()
            found[name] = way()
            seconds[name].append(time.process_time() - begin)
    floor = statistics.median(seconds["bare read"])
    rows: list[Row] = []
    for name, each in seconds.items():
        median = statistics.median(each)
        row: Row = {"workload": name, "CPU s": median, "bare reads": median / floor}
        row |= {"events/s": table.num_rows / median, "matches": found[name] if isinstance(found[name], int) else ""}
        rows.append(row)
    return rows


def open_windows(n_rules: int, n_events: int) -> Row:
    """Measure rules of which every event begins a match; to be called in a process of its own."""
    text = "SELECT * FROM S WHERE * AS a ; * AS b FILTER a[x = {i}] AND b[y = {i}] WITHIN {n} EVENTS"
    texts = {f"{i}": text.format(i=i, n=n_events) for i in range(n_rules)}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    evaluator = cer_gpu.compile_all(texts, type_column=None).evaluator()
    compiled = time.perf_counter() - begin
    rng, n_matches, first = np.random.default_rng(0), 0, 0
    never = np.full(BEFORE, -1)
    begin = time.perf_counter()
    for k in range(n_events // BEFORE):
        found = evaluator.push(pa.record_batch({"x": rng.integers(0, n_rules, BEFORE), "y": never}))
        n_matches += sum(rows.num_rows for rows in found.values())
        if k == 0:
            first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "rules": n_rules,
        "events": n_events,
        "compile, s": compiled,
        "events, s": time.perf_counter() - begin,
        "before the rules, MiB": before / 1024,
        "after one batch, MiB more": (first - before) / 1024,
        "at the end, MiB more": (most - before) / 1024,
        "matches": n_matches,
    }


def measured_apart(n_rules: int, n_events: int) -> Row:
    """Measure open windows in a process of its own, whose memory is that of these rules alone."""
    call = f"import json, live; print(json.dumps(live.open_windows({n_rules}, {n_events})))"
    folder = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", call], cwd=folder, check=True, capture_output=True, text=True)
    row: Row = json.loads(done.stdout)
    return row


def bound(rules: cer_gpu.QuerySet, schema: pa.Schema) -> cer_gpu.QuerySetEvaluator:
    """Return an evaluator that expects events of a schema."""
    evaluator = rules.evaluator()
    evaluator.expect(schema)
    return evaluator


def loaded(rules: Path) -> cer_gpu.QuerySet:
    """Return the rules about Windows of a zip file."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(rules) as packed:
            packed.extractall(folder)
        texts = cer_gpu.sigma.load(windows_rules(Path(folder)), pipelines=["windows"])
    return cer_gpu.compile_all(texts, time_column="ts")


def main(arguments: list[str]) -> int:
    """Measure everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=BESIDE / "data")
    parser.add_argument("--rules", type=Path, default=BESIDE / "rules" / "sigma_rules.zip")
    parser.add_argument("--pushes", type=int, default=1000, help="pushes of one event")
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the median is taken")
    parser.add_argument("--open", default="2856,10000000", help="rules and events of the measure of memory")
    parser.add_argument("--save", action="store_true", help="write <machine>-live.json")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    options = parser.parse_args(arguments)
    console = Console(width=max(160, Console().width))
    tables: dict[str, list[Row]] = {PUSHES: [pushed_to_one(options.pushes)]}
    tables[MEMORY] = [measured_apart(*map(int, options.open.split(",")))]
    path = options.data / "windows.parquet"
    if options.rules.exists() and path.exists():
        rules = loaded(options.rules)
        (events,) = pq.read_table(path).combine_chunks().to_batches()
        rules = rules.bind(events.schema)
        tables[PUSHES] += pushed_to_all(rules, events, options.pushes)
        tables[FILE] = over_file(rules, path, options.repeat)
    else:
        console.print(f"there are no rules in {options.rules}, or no windows.parquet in {options.data}")
    conclude(console, options, tables, ["python benchmarks/live.py", *arguments], ABOUT, "live")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
