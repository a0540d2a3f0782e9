"""Sigma's rules here and by pySigma's back end for SQLite, over the same events: row by row, and how long both take.

    .venv/bin/python benchmarks/sigma_peer.py RULES.zip EVENTS.parquet --peer PYTHON [--each 300]

RULES is a zip file with a folder of YAML, or such a folder, of which the rules about Windows are taken; EVENTS is
windows.parquet, of which `--each` rows at most are drawn for each number and channel of events; PYTHON is an
interpreter with ``pySigma-backend-sqlite``.  Without the files there is nothing to do.

Both sides test the conditions of all rules on all events, without log sources, which every pipeline knows in another
way.  Seconds are CPU seconds of one thread; the SQLite table has no index, which patterns would not use.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sigma_rules import windows_rules

import cer_gpu
import cer_gpu.sigma

Rows = dict[str, list[int]]
"""Rows that each rule finds, by the file of the rule."""


def drawn(events: pa.Table, each: int) -> pa.Table:
    """Return `each` rows at most of each kind of events, in their order, always the same."""
    kinds = pc.binary_join_element_wise(pc.cast(events["EventID"], pa.string()), events["Channel"], " ")
    codes = kinds.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
    chosen = np.random.default_rng(1).permutation(len(codes))
    _, places, counts = np.unique(codes[chosen], return_index=False, return_inverse=True, return_counts=True)
    order = np.argsort(places, kind="stable")
    ranks = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return events.take(pa.array(np.sort(chosen[order[ranks < each]])))


def ours(files: list[str], events: pa.Table) -> tuple[Rows, float]:
    """Return the rows that rules find, and the seconds of the second evaluation; the first binds rules to columns."""
    rules = cer_gpu.sigma.load(files)
    queries = cer_gpu.compile_all(rules)
    queries.evaluate(events, output="ends")
    begin = time.process_time()
    found = queries.evaluate(events, output="ends")
    seconds = time.process_time() - begin
    return {str(rules.rules[name].file): answer["end"].to_pylist() for name, answer in found.items()}, seconds


def theirs(peer: str, files: list[str], events: pa.Table) -> tuple[Rows, dict[str, str], float]:
    """Return the rows that the queries of the back end find, the errors of the other rules, and the seconds."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        asked = [json.dumps({"name": file, "yaml": Path(file).read_text(encoding="utf-8")}) for file in files]
        (folder / "rules.jsonl").write_text("\n".join(asked))
        rows = ({name: value for name, value in event.items() if value is not None} for event in events.to_pylist())
        (folder / "events.jsonl").write_text("\n".join(json.dumps(row, default=str) for row in rows))
        engine = Path(__file__).with_name("sigma_peer_engine.py")
        subprocess.run([peer, "-I", str(engine), str(folder)], check=True)
        told = [json.loads(line) for line in (folder / "found.jsonl").read_text().splitlines()]
    found = {each["name"]: each["rows"] for each in told if "rows" in each}
    return (
        found,
        {each["name"]: each["error"] for each in told if "error" in each},
        sum(each.get("seconds", 0.0) for each in told),
    )


def compared(files: list[str], events: pa.Table, peer: str) -> None:
    """Print how many rules find the same rows, those that do not, and the rates."""
    mine, own = ours(files, events)
    other, failed, foreign = theirs(peer, files, events)
    both = mine.keys() & other.keys()
    print(f"{len(files):,} rules over {events.num_rows:,} events; read here: {len(mine):,}, for SQLite: {len(other):,}")
    for file, error in failed.items():
        print(f"  not read for SQLite: {Path(file).name}: {error.splitlines()[0]}")
    unlike = sorted(file for file in both if mine[file] != other[file])
    finding = [file for file in both if mine[file]]
    total = sum(len(mine[file]) for file in both)
    print(f"{len(both) - len(unlike):,} of {len(both):,} find the same rows: {total:,} of {len(finding):,} rules here")
    for file in unlike:
        here, there = set(mine[file]), set(other[file])
        print(f"  {Path(file).name}: {len(here - there):,} rows here alone, {len(there - here):,} in SQLite alone")
    for who, seconds in (("here", own), ("SQLite", foreign)):
        print(f"{who}: {seconds:.1f} s, {events.num_rows / seconds:,.0f} events/s with all rules")


def main() -> None:
    """Compare the rules of a file or folder over the events of another."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rules", type=Path)
    parser.add_argument("events", type=Path)
    parser.add_argument("--peer", default=sys.executable, help="interpreter with pySigma-backend-sqlite")
    parser.add_argument("--each", type=int, default=300)
    asked = parser.parse_args()
    if not asked.rules.exists() or not asked.events.exists():
        print(f"nothing to compare: {asked.rules} or {asked.events} is not there")
        return
    with tempfile.TemporaryDirectory() as place:
        folder = asked.rules
        if folder.is_file():
            folder = Path(place)
            with zipfile.ZipFile(asked.rules) as archive:
                archive.extractall(folder)
        compared(windows_rules(folder), drawn(pq.read_table(asked.events), asked.each), asked.peer)


if __name__ == "__main__":
    main()
