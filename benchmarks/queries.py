"""Measure many queries at once against the same queries one by one.

    python benchmarks/queries.py [--events N] [--queries N] [--rare N] [--repeat K] [--sysmon FILE] [--save]

Three sets: queries that are generated, over a stream in memory; a thousand of one key, most of which find nothing, over
a longer one; and the rules of `benchmarks/rules` over a log of Windows events, in memory and from its file.  The log is
not part of the repository: `--sysmon`, or the variable CER_GPU_SYSMON, names the file, and its rows are left out where
there is none.

Both ways run in turn on one thread, so that their ratio holds when the machine's speed drifts; every table of the one
is compared with that of the other.  A last measurement tells where the time of one by one goes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from report import RESULTS, Row, conclude
from rich.console import Console

import cer_gpu
from cer_gpu import Query
from cer_gpu.stages import DECODE, REST, STAGES, MeasuredStages

RULES = Path(__file__).parent / "rules"
SYSMON = "CER_GPU_SYSMON"
"""Variable of the environment that names the file of the log."""
DEFAULT_SYSMON = Path(__file__).parent / "data" / "sysmon.parquet"
TOGETHER, STAGES_OF_ONE, LEFT_OUT = "Many queries", "Where the time of one by one goes", "Queries left out"
ABOUT = {
    TOGETHER: (
        "Medians on one thread. One by one: Query.evaluate of each query in turn. At once: QuerySet.evaluate. "
        "All tables of the two are equal, or the run fails."
    ),
    STAGES_OF_ONE: (
        "Shares of the time of all queries one by one. The last column is the time of one query over no events: what "
        "each costs before it has read any."
    ),
}
N_TYPES, N_KEYS = 60, 10_000
PER_SECOND = 100
RARE_EVENTS = 8
"""Length of the stream of queries that find hardly anything, as a multiple of the other."""
WORDS = tuple(f"{a}{b}" for a in ("alpha", "beta", "gamma", "delta", "omega") for b in range(40))
PREDICATES = (
    *(f"x > {0.05 * i:.2f}" for i in range(10, 18)),
    *(f"n IN {{{i}, {i + 7}, {i + 20}}}" for i in range(4)),
    *(f"name LIKE '^{word}'" for word in ("alpha", "beta1", "gamma[0-4]", "(delta|omega)2")),
    *(f"name = '{word}'" for word in ("alpha3", "beta17")),
    *("n >= 10 AND x < 0.4", "n % 3 = 1 OR x > 0.9"),
)
"""The 20 predicates of the filters."""


@dataclass(frozen=True)
class Together:
    """Queries over the same events, in memory or in a file."""

    name: str
    texts: Mapping[str, str]
    events: pa.Table | str
    n_events: int

    def one_by_one(self) -> dict[str, Query]:
        """Return the queries, compiled one by one."""
        return {name: cer_gpu.compile(text, time_column="ts") for name, text in self.texts.items()}

    def at_once(self) -> cer_gpu.QuerySet:
        """Return the queries, compiled together."""
        return cer_gpu.compile_all(self.texts, time_column="ts")


def stream(n_events: int) -> pa.Table:
    """Return events of `N_TYPES` types and `N_KEYS` keys, a hundred each second."""
    rng = np.random.default_rng(11)
    codes = rng.integers(0, N_TYPES, n_events, dtype=np.int32)
    times = np.cumsum(rng.exponential(1e6 / PER_SECOND, n_events)).astype(np.int64)
    words = np.array(WORDS)[rng.integers(0, len(WORDS), n_events)]
    return pa.table(
        {
            "type": pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([f"T{i}" for i in range(N_TYPES)])),
            "k": rng.integers(0, N_KEYS, n_events, dtype=np.int32),
            "ts": pa.array(times).view(pa.timestamp("us")),
            "x": rng.random(n_events),
            "n": rng.integers(0, 30, n_events),
            "name": pa.array(words, pa.string()),
        }
    )


def generated(n_queries: int) -> dict[str, str]:
    """Return sequences of two and three types by key, a third of them with a filter on one event."""
    rng = np.random.default_rng(12)
    texts = {}
    for number in range(n_queries):
        types = rng.choice(N_TYPES, 2 + number % 2, replace=False)
        formula = " ; ".join(f"T{kind} AS {variable}" for kind, variable in zip(types, "abc", strict=False))
        predicate = PREDICATES[rng.integers(len(PREDICATES))]
        variable = "abc"[rng.integers(len(types))]
        condition = f"FILTER {variable}[{predicate}] " if number % 3 == 0 else ""
        texts[f"q{number}"] = f"SELECT * FROM S WHERE {formula} {condition}PARTITION BY [k] WITHIN 1000 SECONDS"
    return texts


def rare(n_queries: int) -> dict[str, str]:
    """Return sequences of two rare events of one key, most of which do not occur."""
    rng = np.random.default_rng(13)
    texts = {}
    for number in range(n_queries):
        first, second = rng.choice(N_TYPES, 2, replace=False)
        predicates = f"a[x > {0.97 + 0.02 * number / n_queries:.5f}] AND b[n = {number % 30} AND x < 0.5]"
        formula = f"T{first} AS a ; T{second} AS b FILTER {predicates}"
        texts[f"r{number}"] = f"SELECT * FROM S WHERE {formula} PARTITION BY [k] WITHIN 100 SECONDS"
    return texts


def rules() -> dict[str, str]:
    """Return the texts of the rules by their names."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(RULES.glob("*.ceql"))}


def sysmon(given: Path | None) -> Path | None:
    """Return the file of the log, if it is there."""
    path = given or Path(os.environ.get(SYSMON) or DEFAULT_SYSMON)
    return path if path.is_file() else None


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of processor time, of all threads, and the seconds on the clock that a function takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.process_time() - cpu, time.perf_counter() - wall


def measured(these: Together, repeat: int) -> Row:
    """Measure queries at once and one by one, in turn.

    Raises
    ------
    AssertionError
        When the results of a query differ.
    """
    compiling = []
    for compiled in (these.one_by_one, these.at_once):
        compiled()
        compiling.append(statistics.median(timed(compiled)[0] for _ in range(3)))
    queries, together = these.one_by_one(), these.at_once()

    def one_by_one() -> dict[str, pa.Table]:
        return {name: query.evaluate(these.events, threads=1) for name, query in queries.items()}

    def at_once() -> dict[str, pa.Table]:
        return together.evaluate(these.events)

    expected, found = one_by_one(), at_once()
    for name, table in expected.items():
        assert found[name].equals(table), name
    assert list(found) == list(expected)
    of_one, of_all = [], []
    for _ in range(repeat):
        of_one.append(timed(one_by_one))
        of_all.append(timed(at_once))
    singly, jointly = ([statistics.median(way) for way in zip(*each, strict=True)] for each in (of_one, of_all))
    return {
        "workload": these.name,
        "n": len(these.texts),
        "events": these.n_events,
        "matches": sum(table.num_rows for table in expected.values()),
        "one by one, CPU s": singly[0],
        "at once, CPU s": jointly[0],
        "one by one / at once, CPU": singly[0] / jointly[0],
        "at once / one of them, CPU": jointly[0] * len(these.texts) / singly[0],
        "one by one, wall s": singly[1],
        "at once, wall s": jointly[1],
        "one by one / at once, wall": singly[1] / jointly[1],
        "compiled one by one, CPU s": compiling[0],
        "compiled at once, CPU s": compiling[1],
    }


def staged(these: Together) -> Row:
    """Tell the shares of the stages in the time of all queries one by one, and the time of a query over no events."""
    queries = these.one_by_one()
    for stages in (MeasuredStages(), MeasuredStages()):  # the first pass compiles the kernels
        for query in queries.values():
            with stages.stage(REST):
                source = query._open_source(these.events)
                evaluator = query.evaluator(device="cpu", threads=1, stages=stages)
                evaluator.expect(source.schema)
                batches = source.batches(query.columns(source.schema, evaluator.output))
                found = [rows for each in stages.each(DECODE, batches) for rows in evaluator.push_batches(each)]
                pa.Table.from_batches([*found, *evaluator.finish_batches()], query.output_schema(source.schema))
    total = sum(stages.seconds.values())
    events = these.events if isinstance(these.events, pa.Table) else pq.read_schema(these.events).empty_table()
    nothing = events.slice(0, 0)
    empty = timed(lambda: [query.evaluate(nothing, threads=1) for query in queries.values()])[1]
    return {
        "workload": these.name,
        "n": len(these.texts),
        "s in all": total,
        **{f"{name}, %": 100 * stages.seconds[name] / total for name in STAGES},
        "over no events, ms": 1000 * empty / len(queries),
    }


def sets(n_events: int, n_queries: int, n_rare: int, log: Path | None) -> list[Together]:
    """Return the sets of queries with their events."""
    table, texts = stream(n_events), generated(n_queries)
    sizes = [size for size in (10, 50) if size < n_queries]
    found = [
        Together("generated, by key", dict(list(texts.items())[:size]), table, n_events) for size in [*sizes, n_queries]
    ]
    longer = stream(RARE_EVENTS * n_events)
    found.append(Together("rare, of one key", rare(n_rare), longer, longer.num_rows))
    if log is not None:
        events = pq.read_table(log)
        found.append(Together("rules of attacks, in memory", rules(), events, events.num_rows))
        found.append(Together("rules of attacks, from a file", rules(), str(log), events.num_rows))
    return found


def main(arguments: list[str]) -> int:
    """Measure everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000, help="events of the stream in memory")
    parser.add_argument("--queries", type=int, default=200, help="queries that are generated")
    parser.add_argument("--rare", type=int, default=1000, help="queries of one key that find hardly anything")
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the median is taken")
    parser.add_argument("--sysmon", type=Path, help=f"Parquet file of the log (default: {SYSMON}, or {DEFAULT_SYSMON})")
    parser.add_argument("--save", action="store_true", help="write <machine>-queries.json")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    options = parser.parse_args(arguments)
    console = Console(width=max(200, Console().width))
    log = sysmon(options.sysmon)
    results: dict[str, list[Row]] = {TOGETHER: [], STAGES_OF_ONE: [], LEFT_OUT: []}
    for these in sets(options.events, options.queries, options.rare, log):
        with console.status(f"{these.name}, {len(these.texts)}"):
            results[TOGETHER].append(measured(these, options.repeat))
            results[STAGES_OF_ONE].append(staged(these))
    if log is None:
        why = f"skipped: there is no file {options.sysmon or os.environ.get(SYSMON) or DEFAULT_SYSMON}"
        results[LEFT_OUT].append({"workload": "rules of attacks", "why": why})
    conclude(console, options, results, ["python benchmarks/queries.py", *arguments], ABOUT, "queries")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
