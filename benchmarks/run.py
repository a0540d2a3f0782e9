"""Measure everything, and store it as JSON, tables and pictures: ``make bench``.

    python benchmarks/run.py [--events N] [--repeat K] [--only WORD ...] [--seconds S] [--save] [--compare] ...

Each workload is measured in a process of its own, so that its memory is its own, from Arrow events to Arrow complex
events (which are formed and dropped, batch by batch).  Figures are medians of several calls in that process.  Peers
read the same events at the same time, and their answers are compared with ours.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import conjunction_peers
import gpu
import join_peers
from peers import TITLE, against_peers
from pictures import draw
from report import RESULTS, Results, Row, add, growth, machine, save, show, show_ratios, tables
from rich.console import Console
from workloads import Family, families


def pool(one_process: bool) -> Executor:
    """Return an executor of one function after another, each in a new process, or all in this one."""
    if one_process:
        return ThreadPoolExecutor(max_workers=1)
    return ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"), max_tasks_per_child=1)


def measured(family: Family, console: Console, options: argparse.Namespace) -> list[Row]:
    """Measure the workloads of a family one after another."""
    rows = []
    with pool(options.one_process) as executor:
        for workload in family.workloads:
            begun = time.perf_counter()
            at = ", ".join(f"{name} {value:,}" for name, value in (workload.at or {}).items())
            with console.status(f"{family.title}: {workload.name} {at}"):
                row = executor.submit(family.measure, workload, options.events, options.repeat).result()
            if options.one_process:  # memory left by earlier workloads is used again, and would not be counted
                row |= dict.fromkeys(row.keys() & {"peak, MiB", "bytes for each"})
            rows.append(row)
            taken = time.perf_counter() - begun
            console.print(f"[dim]{family.title}: {workload.name}{at and f', {at}'} ({taken:.1f} s)[/]", highlight=False)
    return rows


def main(arguments: list[str]) -> int:
    """Measure everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000, help="events of most streams")
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the median is taken")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only what has one of these words in its title")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each peer, for one question; 0: no peers")
    parser.add_argument("--core", metavar="PYTHON", help="an interpreter that has the package pycer")
    parser.add_argument("--flink", metavar="PYTHON", help="an interpreter that has the package apache-flink")
    parser.add_argument(
        "--one-process",
        action="store_true",
        help="for all, which saves the time of starting them; memory is not told then",
    )
    parser.add_argument("--long", action="store_true", help="also the memory of conjunctions over ten times the events")
    parser.add_argument("--compare", action="store_true", help="show rates as ratios to the results that are kept")
    parser.add_argument(
        "--save", action="store_true", help="write <machine>.json, .md and pictures; with --only, into those kept"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    options = parser.parse_args(arguments)
    console = Console(width=max(150, Console().width))
    words = [word.lower() for word in options.only or [""]]
    kept = options.results / f"{machine()}.json"
    results: Results = {}
    notes: dict[str, str] = {}
    begun = time.perf_counter()
    for family in families(options.events, long=options.long):
        if any(word in family.title.lower() for word in words):
            results[family.title] = measured(family, console, options)
            notes[family.title] = family.about
            show(console, family.title, results[family.title])
    if any(word in gpu.TITLE.lower() for word in words):
        for title, rows in gpu.measured([options.events], options.repeat).items():
            results[title], notes[title] = rows, gpu.NOTES[title]
            show(console, title, rows)
    compared = {
        TITLE: against_peers,
        join_peers.TITLE: join_peers.against_peers,
        conjunction_peers.TITLE: conjunction_peers.against_peers,
    }
    for compare in (compared[title] for title in compared if any(word in title.lower() for word in words)):
        for title, rows, note in compare(console, options) if options.seconds else ():
            results[title], notes[title] = rows, note
            if rows:
                show(console, title, rows)
    results["How they grow"] = growth(results)
    if results["How they grow"]:
        show(console, "How they grow", results["How they grow"])
    if options.compare:
        show_ratios(console, results, kept)
    if options.save:
        if options.only and kept.exists():
            add(console, kept, {title: rows for title, rows in results.items() if title in notes}, notes)
        else:
            save(console, kept, results, ["python benchmarks/run.py", *arguments], notes)
        kept.with_suffix(".md").write_text(tables(kept), encoding="utf-8")
        for picture in draw(kept):
            console.print(f"written: {picture}")
    console.print(f"{time.perf_counter() - begun:.0f} s in all, on {len(os.sched_getaffinity(0))} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
