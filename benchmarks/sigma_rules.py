"""SigmaHQ's public Windows rules as one query set over recorded Windows events: what loads, and how long it takes.

    .venv/bin/python benchmarks/sigma_rules.py [--data FOLDER] [--rules FILE] [--sizes 500,1000,2000]

The rules (a zip file with a folder of YAML) and the events (windows.parquet) are not part of this repository: without
them there is nothing to do.  Loading is timed in processes of their own, first with an empty cache, then with what the
first one kept.  Seconds are CPU seconds of the one thread that works; the first evaluation of a set binds its rules to
the schema, and those after it do not.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import cer_gpu
import cer_gpu.sigma

BESIDE = Path(__file__).resolve().parents[2] / "shared"
WINDOWS = "windows"

_LOADING = """
import sys, time
import cer_gpu, cer_gpu.sigma
begin = time.process_time()
rules = cer_gpu.sigma.load(sys.argv[1:], pipelines=["windows"])
read = time.process_time()
cer_gpu.compile_all(rules, time_column="ts")
print(f"{len(rules):,} rules read in {read - begin:.1f} s, compiled in {time.process_time() - read:.1f} s")
"""


def windows_rules(folder: Path) -> list[str]:
    """Return the files of the rules about Windows."""
    files = sorted(folder.rglob("*.yml"))
    return [str(path) for path in files if _is_of_windows(path.read_text(encoding="utf-8"))]


def _is_of_windows(text: str) -> bool:
    return any(line.split() == ["product:", WINDOWS] for line in text.splitlines())


def print_loading(files: list[str], cache: str) -> None:
    """Print how long a new process takes to load the rules, without a cache and with one."""
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    for what in ("nothing kept", "kept by content"):
        run = [sys.executable, "-c", _LOADING, *files]
        said = subprocess.run(run, env=environment, check=True, capture_output=True, text=True).stdout.strip()
        print(f"loading, {what}: {said}")


def seconds_of(rules: cer_gpu.QuerySet, events: pa.Table) -> tuple[float, int, int]:
    """Return the CPU seconds of an evaluation, and the numbers of matches and of rules that match."""
    begin = time.thread_time()
    found = rules.evaluate(events, threads=1)
    seconds = time.thread_time() - begin
    return seconds, sum(table.num_rows for table in found.values()), sum(t.num_rows > 0 for t in found.values())


def measure(texts: dict[str, str], events: pa.Table, *, first: bool = False) -> None:
    """Print how long a set of rules takes over events: the best of three times, and on request the first time."""
    rules = cer_gpu.compile_all(texts, time_column="ts")
    begun, _, _ = seconds_of(rules, events)
    seconds, rows, hit = min(seconds_of(rules, events) for _ in range(3))
    told = f" (the first time {begun:.1f} s)" if first else ""
    rate = events.num_rows / seconds / 1e6
    print(
        f"{len(texts):6,} rules, {events.num_rows:7,} events: {seconds:5.2f} s, {rate:.2f} M events/s{told};"
        f" {rows:,} matches of {hit} rules"
    )


def main() -> None:
    """Load the rules, and evaluate them as one set over all events and parts of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=BESIDE / "data")
    parser.add_argument("--rules", type=Path, default=BESIDE / "rules" / "sigma_rules.zip")
    parser.add_argument("--sizes", default="500,1000,2000", help="Numbers of rules to measure beside all of them.")
    options = parser.parse_args()
    path = options.data / "windows.parquet"
    if not options.rules.exists() or not path.exists():
        print(f"nothing to do: there are no rules in {options.rules}, or no windows.parquet in {options.data}")
        return
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        with zipfile.ZipFile(options.rules) as packed:
            packed.extractall(folder)
        files = windows_rules(Path(folder))
        print_loading(files, cache)
        rules = cer_gpu.sigma.load(files, pipelines=["windows"])
    print(f"{len(files):,} files of rules about Windows")
    events = pq.read_table(path)
    print(rules.summary(events.schema).split(" rules read columns")[0].rsplit("\n", 1)[0])
    cer_gpu.compile_all(dict(list(rules.items())[:100]), time_column="ts").evaluate(events, threads=1)  # makes loops
    names = list(rules)
    for size in (int(each) for each in options.sizes.split(",") if each):
        measure({name: rules[name] for name in names[:: max(len(names) // size, 1)][:size]}, events)
    measure(dict(rules), events, first=True)
    for part in (4, 2):
        measure(dict(rules), events.slice(0, events.num_rows // part))


if __name__ == "__main__":
    main()
