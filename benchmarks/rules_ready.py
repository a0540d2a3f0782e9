"""Measure how long a person with a folder of rules waits: the command, and calls of Python, from the first to the last.

    python benchmarks/rules_ready.py [--rules ZIP] [--data FOLDER] [--lines 200,100000] [--repeat K] [--save]

The rules (a zip file with a folder of SigmaHQ's rules in YAML) and the events (windows.parquet) are not part of this
repository: without them there is nothing to do.  Each row is a process of its own, imports included: first with an
empty cache, then with what the first has kept.  Loops are compiled before.  Beside them, the same file is read by
pyarrow alone, and by Zircolite where it is installed (`--zircolite PATH`), with the same rules.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from report import RESULTS, Row, conclude
from rich.console import Console
from sigma_rules import BESIDE, windows_rules

READY = "A folder of rules, ready"
ABOUT = {
    READY: (
        "Seconds from the start of a process to its end: elapsed, and of processors. The command is `cer-gpu run "
        "--queries FOLDER EVENTS --pipeline windows --time-column ts --skip-invalid`; Python evaluates the rules of "
        "the folder over the file, the time of the call alone, first in a process and then once more."
    ),
}
READ = "import sys, pyarrow.json as j; j.read_json(sys.argv[1])"
PYTHON = """
import json, sys, time
import cer_gpu.rules
rules = cer_gpu.rules.load(sys.argv[1], time_column="ts", pipelines=["windows"], errors="skip")
seconds = []
for _ in range(2):
    begun = time.perf_counter(), time.process_time()
    rules.evaluate(sys.argv[2])
    seconds.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
print(json.dumps(seconds))
"""


def timed(command: list[str], environment: dict[str, str]) -> tuple[float, float, str]:
    """Return the elapsed seconds and the processor seconds of a process, and what it printed."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=os.environ | environment, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun, used, done.stdout


def row(name: str, n_lines: int, times: list[tuple[float, float]], bare: float) -> Row:
    """Return a row of the table: the fastest run."""
    elapsed, used = min(each[0] for each in times), min(each[1] for each in times)
    return {
        "what": name,
        "lines": n_lines,
        "elapsed, s": elapsed,
        "processors, s": used,
        "of a bare read": f"{elapsed / bare:.1f}",
    }


def with_column(events: Path, number: int) -> Path:
    """Return a file of the same events with one more column."""
    path = events.with_suffix(f".{number}.jsonl")
    path.write_text(events.read_text(encoding="utf-8").replace("{", f'{{"column {number}": 1, ', 1), encoding="utf-8")
    return path


def only_windows(folder: Path) -> Path:
    """Copy the rules about Windows from `all` in a folder to `rules` in it, and return that."""
    for path in map(Path, windows_rules(folder / "all")):
        chosen = folder / "rules" / path.relative_to(folder / "all")
        chosen.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, chosen)
    return folder / "rules"


def as_lines(table: pa.Table, path: Path) -> Path:
    """Write events as lines of JSON, without NULL, and return the path."""
    with path.open("w", encoding="utf-8") as file:
        for event in table.to_pylist():
            known = {name: value for name, value in event.items() if value is not None}
            file.write(json.dumps(known, default=str) + "\n")
    return path


def measured(rules: Path, events: Path, n_lines: int, repeat: int, zircolite: str | None) -> list[Row]:
    """Measure everything over one file."""
    command = [sys.executable, "-m", "cer_gpu", "run", "--queries", str(rules), "--time-column", "ts"]
    command += ["--pipeline", "windows", "--skip-invalid", "-o", str(events.with_suffix(".found.jsonl")), str(events)]
    bare = [timed([sys.executable, "-c", READ, str(events)], {})[:2] for _ in range(repeat)]
    rows = [row("read by pyarrow alone", n_lines, bare, min(each[0] for each in bare))]
    of_bare = float(str(rows[0]["elapsed, s"]))
    with tempfile.TemporaryDirectory() as cache:
        kept = {"XDG_CACHE_HOME": cache, "CER_GPU_NOTICES": "off"}
        rows.append(row("the command, empty cache", n_lines, [timed(command, kept)[:2]], of_bare))
        later = [timed(command, kept)[:2] for _ in range(repeat)]
        rows.append(row("the command, second time", n_lines, later, of_bare))
        others = [timed([*command[:-1], str(with_column(events, k))], kept)[:2] for k in range(repeat)]
        rows.append(row("the command, rules kept, events with another column", n_lines, others, of_bare))
        python = [sys.executable, "-c", PYTHON, str(rules), str(events)]
        timed(python, kept)
        told = [json.loads(timed(python, kept)[2]) for _ in range(repeat)]
        for i, name in enumerate(("evaluate, first of a process, rules kept", "evaluate again")):
            rows.append(row(name, n_lines, [tuple(each[i]) for each in told], of_bare))
    if zircolite is not None:
        beside = [sys.executable, zircolite, "--events", str(events), "--ruleset", str(rules), "--jsonl"]
        rows.append(row("Zircolite", n_lines, [timed(beside, {})[:2]], of_bare))
    return rows


def main(arguments: list[str]) -> int:
    """Measure everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=BESIDE / "data", help="folder with windows.parquet")
    parser.add_argument("--rules", type=Path, default=BESIDE / "rules" / "sigma_rules.zip", help="zip file of rules")
    parser.add_argument("--lines", default="200,100000", help="lines of the files of events")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the fastest is shown")
    parser.add_argument("--zircolite", metavar="PATH", help="zircolite.py, to be measured beside")
    parser.add_argument("--save", action="store_true", help="write <machine>-rules-ready.json")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    options = parser.parse_args(arguments)
    console = Console(width=max(160, Console().width))
    if not (options.rules.exists() and (options.data / "windows.parquet").exists()):
        console.print("no rules, or no events: nothing to measure")
        return 0
    table = pq.read_table(options.data / "windows.parquet")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(options.rules).extractall(Path(folder, "all"))
        rules = only_windows(Path(folder))
        for n_lines in map(int, options.lines.split(",")):
            events = as_lines(table.slice(0, n_lines), Path(folder, f"{n_lines}.jsonl"))
            with console.status(f"{n_lines:,} lines"):
                rows += measured(rules, events, n_lines, options.repeat, options.zircolite)
    conclude(console, options, {READY: rows}, ["python benchmarks/rules_ready.py", *arguments], ABOUT, "rules-ready")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
