"""Elastic's public rules in EQL as one query set over recorded Windows events: what compiles, and how long it takes.

    .venv/bin/python benchmarks/eql_rules.py [--data FOLDER] [--rules FILE] [--sizes 500,1000,2000]

The rules (a file of JSON lines with "name" and "query") and the events (windows.parquet, with make_ecs.py that gives
them the names of fields that the rules read) are not part of this repository: without them there is nothing to do.
Seconds are CPU seconds of the one thread that works.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cer_gpu.compilation import analyse
from cer_gpu.query_set import QuerySet

BESIDE = Path(__file__).resolve().parents[2] / "shared"


def rules_of(path: Path) -> dict[str, str]:
    """Return the queries of rules by their names, numbered where two have one name."""
    with gzip.open(path, "rt") as lines:
        rules = [json.loads(line) for line in lines]
    return {f"{number} {rule['name']}": rule["query"] for number, rule in enumerate(rules)}


def events_of(folder: Path) -> pa.Table:
    """Return the events under the rules' names of fields, in the order of time."""
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "ecs.parquet"
        subprocess.run([sys.executable, str(folder / "make_ecs.py"), str(path)], check=True)
        table = pq.read_table(path)
    return table.take(pc.sort_indices(table, [("@timestamp", "ascending")]))


def compiled(rules: dict[str, str], schema: pa.Schema | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the rules that compile, and the errors of the others."""
    found, wrong = {}, {}
    for name, text in rules.items():
        query, errors = analyse(text, language="eql", missing_fields="null", schema=schema)
        if query is None:
            wrong[name] = str(errors[0]).splitlines()[0]
        else:
            found[name] = query
    return found, wrong


def measure(queries: dict[str, Any], events: pa.Table) -> None:
    """Print what a set of rules finds, and how long it takes."""
    rules = QuerySet(queries)
    begin = time.thread_time()
    found = rules.evaluate(events, threads=1)
    seconds = time.thread_time() - begin
    rows = sum(table.num_rows for table in found.values())
    hit = sum(table.num_rows > 0 for table in found.values())
    print(f"{len(queries):6,} rules, {events.num_rows:,} events: {seconds:6.1f} s; {rows:,} matches of {hit} rules")


def main() -> None:
    """Compile the rules, and evaluate them as one set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=BESIDE / "data")
    parser.add_argument("--rules", type=Path, default=BESIDE / "rules" / "eql_rules.jsonl.gz")
    parser.add_argument("--sizes", default="500,1000,2000", help="Numbers of rules to measure beside all of them.")
    options = parser.parse_args()
    if not options.rules.exists() or not (options.data / "windows.parquet").exists():
        print(f"nothing to do: there are no rules in {options.rules}, or no windows.parquet in {options.data}")
        return
    rules = rules_of(options.rules)
    begin = time.thread_time()
    queries, wrong = compiled(rules, None)
    print(f"{len(queries):,} of {len(rules):,} rules compile, in {time.thread_time() - begin:.1f} s")
    for name, error in wrong.items():
        print(f"  {name}: {error}")
    events = events_of(options.data)
    begin = time.thread_time()
    queries, wrong = compiled(rules, events.schema)
    print(f"{len(queries):,} of them fit the events, compiled for their columns in {time.thread_time() - begin:.1f} s")
    for name, error in wrong.items():
        print(f"  {name}: {error}")
    QuerySet(queries).evaluate(events.slice(0, 50_000), threads=1)  # compiles loops
    names = list(queries)
    for size in [*(int(each) for each in options.sizes.split(",") if each), len(names)]:
        measure({name: queries[name] for name in names[:size]}, events)


if __name__ == "__main__":
    main()
