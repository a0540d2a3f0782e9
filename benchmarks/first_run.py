"""Measure the first evaluation: processor time of a new process, with an empty cache of loops and a filled one.

    python benchmarks/first_run.py [--python PATH] [--repeat K] [--only WORD] [--save]

`--python` names the interpreter of an environment in which a wheel is installed, instead of the checkout.

Each query runs in a process of its own, twice with the same cache: first empty, then as the first run left it.
Processor time is that of the whole process, imports included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from report import RESULTS, Row, conclude
from rich.console import Console

FIRST_RUN = "The first run"
ABOUT = {
    FIRST_RUN: (
        "Processor time of a new process from its start to its first results, over 20,000 events: with an empty cache, "
        "and once more with the cache that it left."
    ),
}
QUERIES = {
    "import alone": "",
    "chain: A ; B WITHIN 5 EVENTS": "SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS",
    "chain by key: A ; B PARTITION BY [k]": "SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 50 SECONDS",
    "automaton: A ; (B ; C)+ ; D": "SELECT * FROM S WHERE A ; (B ; C)+ ; D WITHIN 8 EVENTS",
    "join: A ; B, A.x < B.x": "SELECT * FROM S WHERE A AS a ; B AS b FILTER a.x < b.x WITHIN 5 EVENTS",
    "conjunction: Q(v) <- A(k = v), B(k = v)": "Q(v) <- A(k = v), B(k = v) WITHIN 50 EVENTS",
    "row pattern: A B+": "SELECT * FROM S MATCH_RECOGNIZE (MEASURES 1 AS n PATTERN (A B+) DEFINE B AS x < PREV(x))",
}
CODE = """
import json, sys, time
import numpy as np, pyarrow as pa
import cer_gpu
text = sys.argv[1]
from cer_gpu.backend.jit import COMPILING
if text:
    n, rng = 20_000, np.random.default_rng(0)
    types = pa.array(list("ABCD")).take(pa.array(rng.integers(0, 4, n)))
    ts = pa.array(np.arange(n), pa.timestamp("s"))
    events = pa.table({"type": types, "ts": ts, "k": rng.integers(0, 50, n), "x": rng.random(n)})
    options = {} if "MATCH_RECOGNIZE" in text else {"time_column": "ts"}
    cer_gpu.compile(text, **options).evaluate(events)
print(json.dumps({"seconds": time.process_time(), "compiled": COMPILING.count}))
"""


def run(text: str, folder: str, python: str) -> dict[str, float]:
    """Return the processor time of a process with a cache in `folder`, and the functions that it compiled."""
    kept = {"NUMBA_CACHE_DIR": f"{folder}/loops", "XDG_CACHE_HOME": f"{folder}/cache", "CER_GPU_NOTICES": "off"}
    done = subprocess.run(
        [python, "-c", CODE, text], cwd=folder, env=os.environ | kept, capture_output=True, text=True, check=True
    )
    told: dict[str, float] = json.loads(done.stdout)
    return told


def measured(name: str, text: str, repeat: int, python: str) -> Row:
    """Measure one query `repeat` times."""
    first, later = [], []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            first.append(run(text, folder, python))
            later.append(run(text, folder, python))
    return {
        "workload": name,
        "empty cache, CPU s": statistics.median(each["seconds"] for each in first),
        "functions compiled": int(first[0]["compiled"]),
        "filled cache, CPU s": statistics.median(each["seconds"] for each in later),
        "compiled then": int(later[0]["compiled"]),
    }


def main(arguments: list[str]) -> int:
    """Measure everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="interpreter that runs the queries")
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the median is taken")
    parser.add_argument("--only", default="", metavar="WORD", help="only queries with this word in their name")
    parser.add_argument("--save", action="store_true", help="write <machine>-first-run.json")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    options = parser.parse_args(arguments)
    console = Console(width=max(160, Console().width))
    rows = []
    for name, text in QUERIES.items():
        if options.only not in name:
            continue
        with console.status(name):
            rows.append(measured(name, text, options.repeat, options.python))
    command = ["python benchmarks/first_run.py", *arguments]
    conclude(console, options, {FIRST_RUN: rows}, command, ABOUT, "first-run")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
