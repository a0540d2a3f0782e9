"""Measure ten kinds of question over the same events, from memory, from Parquet and from CSV; and what is slow.

    python benchmarks/kinds.py [--events N] [--repeat K] [--only WORD ...] [--save]

Rates are those of `evaluate` as a user calls it: elapsed time of the fastest of several runs, on all cores, from events
to a table of matches.  Queries are compiled before, and loops are warm.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from report import RESULTS, Row, conclude
from rich.console import Console

import cer_gpu

KINDS, SLOW = "Kinds of question", "What is slow"
ABOUT = {
    KINDS: "Elapsed time on all cores, fastest run, from events to a table of matches.",
    SLOW: "Elapsed time on all cores, fastest run, events in memory.",
}
TYPES = "ABCDEFGHI"
N_KEYS, N_NAMES, N_RULES = 10_000, 2_000, 100


def events(n: int) -> pa.Table:
    """Return random events of nine types: a thousand a second, of 10,000 keys, with a number and a name."""
    rng = np.random.default_rng(0)
    names = pa.array([f"/usr/bin/tool-{i:04}" for i in range(N_NAMES)])
    return pa.table(
        {
            "type": pa.array(list(TYPES)).take(pa.array(rng.integers(0, len(TYPES), n))),
            "ts": pa.array(np.arange(n), pa.timestamp("ms")),
            "key": rng.integers(0, N_KEYS, n),
            "x": np.round(rng.random(n), 6),
            "name": names.take(pa.array(rng.integers(0, N_NAMES, n))),
        }
    )


@dataclass(frozen=True)
class Kind:
    """A question, and how its matches are counted.

    Attributes
    ----------
    name, shown : str
        The row's name, and the question.
    text : str or mapping
        The query, or the queries of a set.
    share : float
        Part of the events that it is asked of.
    """

    name: str
    shown: str
    text: str | Mapping[str, str]
    share: float = 1.0
    forecasts: bool = False

    def ask(self) -> Callable[[Any], int]:
        """Return a function from events to the number of matches."""
        if not isinstance(self.text, str):
            rules = cer_gpu.compile_all(self.text, time_column="ts")
            return lambda given: sum(table.num_rows for table in rules.evaluate(given).values())
        if "MATCH_RECOGNIZE" in self.text:
            statement = cer_gpu.compile(self.text)
            return lambda given: statement.evaluate(given).num_rows
        query = cer_gpu.compile(self.text, time_column="ts")
        if self.forecasts:
            model = query.fit(events(200_000), within=["1 minute"])
            return lambda given: model.forecast(given).num_rows
        return lambda given: query.evaluate(given).num_rows


def kinds() -> list[Kind]:
    """Return the ten kinds of question."""
    rules = {
        f"rule {i}": f"SELECT * FROM S WHERE {TYPES[i % 9]} AS e FILTER e[name GLOB '*tool-{i:03}*' AND x > 0.9]"
        for i in range(N_RULES)
    }
    falls = "MEASURES COUNT(B.x) AS n PATTERN (A B{3,} C) DEFINE B AS x < PREV(x), C AS x > PREV(x)"
    same, minute = "b.key = a.key", "WITHIN 1 MINUTES"
    return [
        Kind("filter on one event", "`A[x < 0.01]`", "SELECT * FROM S WHERE A FILTER A[x < 0.01]"),
        Kind(
            "sequence by key",
            "`A ; B ; C PARTITION BY [key]`",
            f"SELECT * FROM S WHERE A ; B ; C PARTITION BY [key] {minute}",
        ),
        Kind("join by equality", f"`A ; B`, `{same}`", f"SELECT * FROM S WHERE A AS a ; B AS b FILTER {same} {minute}"),
        Kind(
            "band join",
            "`A ; B`, `b.x` within 1e-6 of `a.x`",
            f"SELECT * FROM S WHERE A AS a ; B AS b FILTER ABS(b.x - a.x) < 0.000001 {minute}",
        ),
        Kind(
            "conjunction",
            "`A ALL B ALL C` of one key",
            f"SELECT * FROM S WHERE A AS a ALL B AS b ALL C AS c FILTER {same} AND c.key = a.key {minute}",
        ),
        Kind(
            "OVER aggregate",
            "`A`, at least 5 `B` of its key in an hour",
            "SELECT * FROM S WHERE A AS a FILTER a[COUNT(B) OVER 1 HOURS >= 5] PARTITION BY [key]",
        ),
        Kind(
            "RECENT",
            f"`SELECT RECENT A ; B`, `{same}`",
            f"SELECT RECENT * FROM S WHERE A AS a ; B AS b FILTER {same} {minute}",
        ),
        Kind(
            "MATCH_RECOGNIZE",
            "three falls and a rise, `A B{3,} C`, by key",
            f"SELECT * FROM S MATCH_RECOGNIZE (PARTITION BY key ORDER BY ts {falls})",
        ),
        Kind("rules", f"{N_RULES} filters with `GLOB`, one pass", rules),
        Kind(
            "forecast",
            "`A ; B ; C` of a key within a minute, after the last event of each key",
            f"SELECT * FROM S WHERE A ; B ; C PARTITION BY [key] {minute}",
            forecasts=True,
        ),
    ]


def slow() -> list[Kind]:
    """Return questions that cost far more than others of their kind, beside the fast form where there is one."""
    many, window = "A AS a ; B AS b FILTER", "WITHIN 1000 EVENTS"
    searched = "MEASURES COUNT(A.x) AS n PATTERN (A+ B) DEFINE A AS AVG(A.x) < 0.6, B AS x > AVG(A.x) + 0.3"
    return [
        Kind(
            "inequality with an index",
            "`b.x > a.x + 0.999`",
            f"SELECT * FROM S WHERE {many} b.x > a.x + 0.999 {window}",
            0.2,
        ),
        Kind(
            "inequality without an index",
            "`b.x - a.x > 0.999`",
            f"SELECT * FROM S WHERE {many} b.x - a.x > 0.999 {window}",
            0.2,
        ),
        Kind("many matches, listed", "`A ; B`, `b.x > a.x`", f"SELECT * FROM S WHERE {many} b.x > a.x {window}", 0.05),
        Kind("ALL by a product", "`A ALL (B ; C)`", "SELECT * FROM S WHERE A ALL (B ; C) WITHIN 20 EVENTS", 0.1),
        Kind("MAX, many ends", "`SELECT MAX A ; B ; C`", "SELECT MAX * FROM S WHERE A ; B ; C WITHIN 50 EVENTS", 0.1),
        Kind(
            "row pattern with a condition on the match",
            "`A+ B`, `AVG(A.x) < 0.6`",
            f"SELECT * FROM S MATCH_RECOGNIZE (ORDER BY ts {searched})",
            0.1,
        ),
    ]


def fastest(run: Callable[[], int], repeat: int) -> tuple[float, int]:
    """Return the elapsed seconds of the fastest of several runs after a first one, and the number of matches."""
    found, taken = run(), []
    for _ in range(repeat):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return min(taken), found


def measured(n_events: int, repeat: int, console: Console, words: list[str]) -> dict[str, list[Row]]:
    """Measure all questions that have one of the words in their names."""
    chosen = {
        title: [kind for kind in of if any(word in kind.name.lower() for word in words)]
        for title, of in ((KINDS, kinds()), (SLOW, slow()))
    }
    table, rows, slower = events(n_events), list[Row](), list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        parquet, text = Path(folder, "events.parquet"), Path(folder, "events.csv")
        pq.write_table(table, parquet, row_group_size=1 << 18)
        csv.write_csv(table, text)
        for kind in chosen[KINDS]:
            row: Row = {"workload": kind.name, "question": kind.shown, "matches": None}
            for source, given in (("memory", table), ("Parquet", parquet), ("CSV", text)):
                with console.status(f"{kind.name}, {source}"):
                    seconds, found = fastest(partial(kind.ask(), given), repeat)
                row[f"{source}, million events/s"] = n_events / seconds / 1e6
                assert row["matches"] in (None, found), f"{kind.name}: {source} has other matches"
                row["matches"] = found
            rows.append(row)
    for kind in chosen[SLOW]:
        part = table.slice(0, max(int(n_events * kind.share), 1000))
        with console.status(kind.name):
            seconds, found = fastest(partial(kind.ask(), part), repeat)
        rate = len(part) / seconds / 1e6
        slower.append({"workload": kind.name, "question": kind.shown, "million events/s": rate, "matches": found})
    return {KINDS: rows, SLOW: slower}


def main(arguments: list[str]) -> int:
    """Measure everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000, help="events of the stream")
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the fastest is taken")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only questions with one of these words in the name")
    parser.add_argument("--save", action="store_true", help="write <machine>-kinds.json")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    options = parser.parse_args(arguments)
    console = Console(width=max(160, Console().width))
    words = [word.lower() for word in options.only or [""]]
    results = measured(options.events, options.repeat, console, words)
    conclude(console, options, results, ["python benchmarks/kinds.py", *arguments], ABOUT, "kinds")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
