"""Measure what docs/explanation/benchmarks.md shows, and write its tables: one command, one machine, one commit.

    python benchmarks/page.py [--events N] [--repeat K] [--seconds S] [--only WORD ...] [--core PYTHON] [--flink PYTHON]

With its defaults it takes about a quarter of an hour on two cores.  Results go to <machine>-page.json in the folder of
results, with machine, commit, versions and command, and from there into the page (`benchmarks/report.py --fill`).
Parts that need what is not on the machine (peers, SigmaHQ's rules and recorded events) say so in a table of their own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import first_run
import join_peers
import kinds
import live
import peers
import pyarrow.parquet as pq
import rules_ready
import run
from report import RESULTS, Results, Row, filled, machine, save
from rich.console import Console
from sigma_rules import BESIDE
from workloads import families

PAGE = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "benchmarks.md"
BESIDE_PEERS, FIRST_ANSWER, PUSHED, FOLDER, MEMORY = (
    "Beside peers",
    "First answer",
    "Events pushed",
    "A folder of rules",
    "Memory",
)
LEFT_OUT = "Left out"
FIRST_QUERIES = ("import", "chain: A", "join")
PEER_WINDOWS = (100, 1000)
JOIN_WINDOWS = (100, 10_000, 0)
"""Windows of join questions in events; 0 is that of the crimes, which are in a time."""


def commit() -> str:
    """Return the commit of the checkout, with a plus where something was changed since."""
    there = Path(__file__).parent

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=there, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "../cer_gpu", "../kernels")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def beside_peers(console: Console, options: argparse.Namespace, left_out: list[Row]) -> list[Row]:
    """Ask peers the questions of the shorter windows."""
    rows: list[Row] = []
    for peer in peers.all_peers(options):
        reason = peer.missing()
        if reason is not None:
            left_out.append({"workload": reason})
            continue
        for question in peers.questions():
            if question.n == 3 and question.window in PEER_WINDOWS:
                with console.status(f"{peer.name()}: {question.name}, window {question.window:,}"):
                    row = peers.compare(peer, question, options.events, options.seconds)
                rows += [row] if row else []
    asked = [each for each in join_peers.questions() if each.window in JOIN_WINDOWS]
    rows += join_peers.compared(console, options, join_peers.all_peers(options), asked, join_peers.SHARE)
    of = ("workload", "window", "peer", "cer_gpu, million events/s", "peer, million events/s", "times as fast")
    rows = [{name: row.get(name) for name in of} for row in rows]
    return sorted(rows, key=lambda row: (str(row["workload"]), str(row["window"]), str(row["peer"])))


def first_answer(console: Console, options: argparse.Namespace) -> list[Row]:
    """Measure new processes up to their first results, with an empty cache of loops and a filled one."""
    rows = []
    for name, text in first_run.QUERIES.items():
        if name.startswith(FIRST_QUERIES):
            with console.status(name):
                rows.append(first_run.measured(name, text, 1, options.python))
    return [
        {
            name: value
            for name, value in row.items()
            if name in ("workload", "empty cache, CPU s", "filled cache, CPU s")
        }
        for row in rows
    ]


def pushed(options: argparse.Namespace, left_out: list[Row]) -> list[Row]:
    """Push events to one query and, where there are SigmaHQ's rules, to all of them."""
    rows = [live.pushed_to_one(options.pushes)]
    recorded = options.data / "windows.parquet"
    if options.rules.exists() and recorded.exists():
        part = pq.read_table(recorded).slice(0, 200_000).combine_chunks()
        rows += live.pushed_to_all(live.loaded(options.rules), part.to_batches()[0], options.pushes)
    else:
        left_out.append(
            {"workload": f"{PUSHED}: SigmaHQ's rules, or recorded events of Windows, are not on this machine"}
        )
    return rows


def folder_of_rules(console: Console, options: argparse.Namespace, left_out: list[Row]) -> list[Row]:
    """Measure the command over a folder of rules, from its start to the alerts."""
    recorded = options.data / "windows.parquet"
    if not (options.rules.exists() and recorded.exists()):
        left_out.append(
            {"workload": f"{FOLDER}: SigmaHQ's rules, or recorded events of Windows, are not on this machine"}
        )
        return []
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(options.rules).extractall(Path(folder, "all"))
        rules = rules_ready.only_windows(Path(folder))
        table = pq.read_table(recorded)
        for n_lines in (200, 100_000):
            path = rules_ready.as_lines(table.slice(0, n_lines), Path(folder, f"{n_lines}.jsonl"))
            with console.status(f"{FOLDER}, {n_lines:,} lines"):
                rows += rules_ready.measured(rules, path, n_lines, 1, None)
    return [{"workload": row.pop("what"), **row} for row in rows]


def memory(console: Console, options: argparse.Namespace) -> list[Row]:
    """Measure the memory of windows, keys and partial matches."""
    (family,) = (each for each in families(options.events) if each.title == MEMORY)
    return run.measured(family, console, argparse.Namespace(**vars(options), one_process=False))


def main(arguments: list[str]) -> int:
    """Measure everything, store it, and fill the page; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000, help="events of most streams")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each question")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each peer, for one question")
    parser.add_argument("--pushes", type=int, default=1000, help="pushes of one event")
    parser.add_argument("--core", metavar="PYTHON", help="an interpreter that has the package pycer")
    parser.add_argument("--flink", metavar="PYTHON", help="an interpreter that has the package apache-flink")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="interpreter of the first answers")
    parser.add_argument("--data", type=Path, default=BESIDE / "data", help="folder with windows.parquet")
    parser.add_argument("--rules", type=Path, default=BESIDE / "rules" / "sigma_rules.zip", help="zip file of rules")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only tables with one of these words in the title")
    parser.add_argument("--remark", default="", metavar="TEXT", help="what a reader must know of this measurement")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to fill")
    options = parser.parse_args(arguments)
    console, begun = Console(width=max(160, Console().width)), time.perf_counter()
    left_out: list[Row] = []
    words = [""]
    questions = kinds.measured(options.events, options.repeat, console, words) if _asked(options, kinds.KINDS) else {}
    parts: dict[str, Callable[[], list[Row]]] = {
        BESIDE_PEERS: lambda: beside_peers(console, options, left_out),
        FIRST_ANSWER: lambda: first_answer(console, options),
        PUSHED: lambda: pushed(options, left_out),
        FOLDER: lambda: folder_of_rules(console, options, left_out),
        MEMORY: lambda: memory(console, options),
    }
    results: Results = dict(questions)
    for title, measure in parts.items():
        if _asked(options, title):
            results[title] = measure()
            console.print(f"[dim]{title}: {time.perf_counter() - begun:.0f} s so far[/]", highlight=False)
    results[LEFT_OUT] = left_out
    target = options.results / f"{machine()}-page.json"
    if options.only and target.exists():
        results = json.loads(target.read_text(encoding="utf-8"))["results"] | results
    origin = {"commit": commit(), "events": f"{options.events:,}", "remark": options.remark}
    save(console, target, results, ["python benchmarks/page.py", *arguments], kinds.ABOUT, origin)
    options.page.write_text(filled(options.page.read_text(encoding="utf-8"), target), encoding="utf-8")
    console.print(f"{time.perf_counter() - begun:.0f} s; {options.page} has the tables of {target}")
    return 0


def _asked(options: argparse.Namespace, title: str) -> bool:
    return any(word.lower() in title.lower() for word in options.only or [""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
