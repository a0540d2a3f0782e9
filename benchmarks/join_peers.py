"""Compare filters between events with joins of other engines, on the same events at the same time.

An engine may have several plans for one question; the fastest is kept, and named.  Buckets are as long as the window.
Seconds are the least of some runs, from Arrow events to a number of rows; DuckDB first stores them in a table, with
their positions.  The answer is compared with that of cer_gpu on the peer's events, as many as it reads in some seconds
(four times as many at each try).
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import pyarrow as pa
from joins import (
    BAND,
    CRIMES,
    EQUAL,
    KEYED,
    KEYED_WINDOW,
    NO_B,
    ONE_KEY,
    RARELY,
    SAME,
    SHARE,
    TEXTS,
    WINDOWS,
    WITHIN_ONE,
    crimes,
    keyed,
    trades,
)
from measure import Row, count
from peers import MAX_COMPARED, Elsewhere, _package
from rich.console import Console

import cer_gpu

TITLE = "Joins against peers"
NOTE = (
    "Least of three runs, from Arrow events to a number of rows; cer_gpu on one thread, DuckDB on one or on all cores, "
    "Polars on all."
)
RUNS = 3
INSIDE = "b.p > a.p AND b.p <= a.p + {w}"
CONDITIONS = {RARELY: "b.x > a.x + 99.9", BAND: "b.x BETWEEN a.x AND a.x + 0.001"}
NEAR = "{0}.lon BETWEEN r.lon - 0.05 AND r.lon + 0.05 AND {0}.lat BETWEEN r.lat - 0.02 AND r.lat + 0.02"
SOON = "{0}.ts <= r.ts + INTERVAL 30 MINUTE"


@dataclass(frozen=True)
class Question:
    """A join in CEQL, and as SQL for each plan: of a table `e` of events with their positions `p`.

    Attributes
    ----------
    steps : tuple of (str, float)
        Type of each event, and the bound that its x is below, for FlinkCEP.
    above : float, optional
        The bound of x over the x of the first event, for FlinkCEP.
    texts : dict
        Queries by name, with a place for the window.
    """

    name: str
    window: int
    sql: dict[str, str] = field(hash=False)
    events: Callable[[int], pa.Table] = trades
    time_column: str | None = None
    steps: tuple[tuple[str, float], ...] = ()
    above: float | None = None
    texts: dict[str, str] = field(default_factory=lambda: TEXTS, hash=False)

    @property
    def text(self) -> str:
        """Return the query in CEQL."""
        return self.texts[self.name].format(self.window)

    def query(self) -> cer_gpu.Query:
        """Return the query, compiled."""
        return cer_gpu.compile(self.text, time_column=self.time_column)


def of(kind: str, name: str, *, bucket: str = "", twice: bool = False) -> str:
    """Return the events of a type as a table of a join; `twice`: in their bucket and in the one before."""
    selected = f"SELECT *{bucket and f', {bucket} AS g'} FROM e WHERE type = '{kind}'"
    again = f" UNION ALL SELECT *, {bucket} - 1 AS g FROM e WHERE type = '{kind}'" if twice else ""
    return f"({selected}{again}) {name}"


def pairs(window: int, condition: str, then: str = "B") -> dict[str, str]:
    """Return the plans of a join of A and B (or what comes `then`) in a window, with a condition."""
    inside, bucket = INSIDE.format(w=window), f"p // {window}"
    a, b = of("A", "a"), of(then, "b")
    buckets = f"{of('A', 'a', bucket=bucket)} JOIN {of(then, 'b', bucket=bucket, twice=True)} ON a.g = b.g"
    return {
        "the window first": f"SELECT count(*) FROM {a} JOIN {b} ON {inside} AND {condition}",
        "the filter first": f"SELECT count(*) FROM {a} JOIN {b} ON {condition} AND {inside}",
        "buckets": f"SELECT count(*) FROM {buckets} AND {inside} AND {condition}",
    }


def equal(window: int) -> dict[str, str]:
    """Return the plans of a join of A, B and C of one key in a window."""
    bucket, order = f"p // {window}", f"b.p > a.p AND c.p > b.p AND c.p <= a.p + {window}"
    plain = f"{of('A', 'a')} JOIN {of('B', 'b')} ON b.key = a.key AND {INSIDE.format(w=window)}"
    a, b, c = (of(name.upper(), name, bucket=bucket, twice=name != "a") for name in "abc")
    buckets = f"{a} JOIN {b} ON b.key = a.key AND b.g = a.g AND {INSIDE.format(w=window)}"
    return {
        "keys": f"SELECT count(*) FROM {plain} JOIN {of('C', 'c')} ON c.key = a.key AND {order}",
        "keys and buckets": f"SELECT count(*) FROM {buckets} JOIN {c} ON c.key = a.key AND c.g = a.g AND {order}",
    }


def keys() -> Iterator[Question]:
    """Yield the questions of keys in one column or several, of texts, and of a B that does not come."""
    for name, same in SAME.items():
        condition = f"{same} AND {WITHIN_ONE}" if name.startswith(ONE_KEY) else same
        plans = pairs(KEYED_WINDOW, condition, "A" if name.endswith("A ; A") else "B")
        yield Question(name, KEYED_WINDOW, plans, keyed, "at", texts=KEYED)
    soon = "b.wide = a.wide AND b.p > a.p AND b.p <= a.p + 1000"
    absent = f"SELECT count(*) FROM {of('A', 'a')} WHERE NOT EXISTS (SELECT 1 FROM {of('B', 'b')} WHERE {soon})"
    yield Question(NO_B, KEYED_WINDOW, {"anti-join": absent}, keyed, "at", texts=KEYED)


def at_one_place() -> dict[str, str]:
    """Return the plans of the three crimes."""
    bucket, found = "epoch(ts)::BIGINT // 1800", {}
    battery, theft = (f"{SOON.format(name)} AND {NEAR.format(name)}" for name in "bm")
    for plan, g in (("as written", ""), ("buckets", bucket)):
        r, b, m = (
            of(kind, name, bucket=g, twice=bool(g) and name != "r")
            for kind, name in (("ROBBERY", "r"), ("BATTERY", "b"), ("CAR THEFT", "m"))
        )
        first, second = ("b.g = r.g AND ", "m.g = r.g AND ") if g else ("", "")
        found[plan] = (
            f"SELECT count(*) FROM {r} JOIN {b} ON {first}b.p > r.p AND {battery}"
            f" JOIN {m} ON {second}m.p > b.p AND {theft}"
        )
    return found


def questions() -> list[Question]:
    """Return all questions."""
    steps = (("A", 101.0), ("B", 101.0))
    return [
        *(Question(RARELY, w, pairs(w, CONDITIONS[RARELY]), steps=steps, above=99.9) for w in WINDOWS),
        *(Question(BAND, w, pairs(w, CONDITIONS[BAND])) for w in (100, 10_000, 100_000)),
        *(Question(EQUAL, w, equal(w)) for w in (10_000, 100_000)),
        Question(CRIMES, 0, at_one_place(), crimes, "ts"),
        *keys(),
    ]


class Peer(Protocol):
    """An engine that can be asked."""

    def missing(self) -> str | None:
        """Return the reason why it cannot run, or None if it can."""

    def name(self) -> str:
        """Return its name and version."""

    def fewest(self, question: Question) -> int:
        """Return the number of events of the first try."""

    def plans(self, question: Question) -> list[str]:
        """Return the names of its plans for a question; none: it cannot express it."""

    def ask(self, question: Question, table: pa.Table, plan: str) -> tuple[float, int]:
        """Return the seconds that it takes, and the number of matches that it finds."""


class DuckDB:
    """DuckDB: the join with its conditions in either order, for its own plan, and with buckets.

    `threads`: their number; None: one for each core.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads

    def missing(self) -> str | None:
        """See `Peer`."""
        return _package("duckdb")

    def name(self) -> str:
        """See `Peer`."""
        of_threads = "" if self._threads is None else f", {self._threads} thread"
        return f"DuckDB {importlib.import_module('duckdb').__version__}{of_threads}"

    def fewest(self, question: Question) -> int:
        """See `Peer`."""
        return 20_000

    def plans(self, question: Question) -> list[str]:
        """See `Peer`."""
        return list(question.sql)

    def ask(self, question: Question, table: pa.Table, plan: str) -> tuple[float, int]:
        """See `Peer`."""
        import duckdb

        begun = time.perf_counter()
        with duckdb.connect(config={} if self._threads is None else {"threads": self._threads}) as connection:
            connection.register("given", table)
            connection.execute("CREATE TABLE e AS SELECT row_number() OVER () - 1 AS p, * FROM given")
            found = connection.execute(question.sql[plan]).fetchone()
        assert found is not None
        return time.perf_counter() - begun, int(found[0])


class Polars:
    """Polars's ``join_where`` in its streaming engine: of inequalities alone, and with buckets."""

    def missing(self) -> str | None:
        """See `Peer`."""
        return _package("polars")

    def name(self) -> str:
        """See `Peer`."""
        return f"Polars {importlib.import_module('polars').__version__}"

    def fewest(self, question: Question) -> int:
        """See `Peer`."""
        return 20_000

    def plans(self, question: Question) -> list[str]:
        """See `Peer`: pairs of events only."""
        return ["join_where", "join_where, buckets"] if question.name in CONDITIONS else []

    def ask(self, question: Question, table: pa.Table, plan: str) -> tuple[float, int]:
        """See `Peer`."""
        import polars as pl

        begun, w = time.perf_counter(), question.window
        events: Any = pl.from_arrow(table)
        events = events.lazy().with_row_index("p").with_columns(pl.col("p").cast(pl.Int64))
        a = events.filter(pl.col("type") == "A").select(a="p", ax="x")
        b = events.filter(pl.col("type") == "B").select(b="p", bx="x")
        first, last, x, y = (pl.col(name) for name in ("a", "b", "ax", "bx"))
        kept = [y > x + 99.9] if question.name == RARELY else [y > x, y < x + 0.001]
        kept += [last > first, last <= first + w]
        if plan.endswith("buckets"):
            a, b = a.with_columns(g=first // w), b.with_columns(h=last // w)
            b = pl.concat([b, b.with_columns(pl.col("h") - 1)])
            kept.append(pl.col("g") == pl.col("h"))
        found = a.join_where(b, *kept).select(pl.len()).collect(engine="streaming").item()
        return time.perf_counter() - begun, int(found)


class FlinkCep(Elsewhere):
    """FlinkCEP with an iterative condition, which compares an event with that of the first step."""

    def __init__(self, interpreter: str | None) -> None:
        super().__init__("FlinkCEP", "flink_cep_peer.py", interpreter, "apache-flink")

    def fewest(self, question: Question) -> int:  # type: ignore[override]
        """See `Peer`: two windows, so that most events have a whole one before them."""
        return max(2 * question.window, 1000)

    def plans(self, question: Question) -> list[str]:
        """See `Peer`: as at each event partial matches are compared with each other, only if a minute is enough."""
        partial = question.window / 9
        compared = self.fewest(question) * 2 / 9 * partial**2
        return ["iterative condition"] if question.above is not None and compared <= MAX_COMPARED else []

    def ask(self, question: Question, table: pa.Table, plan: str) -> tuple[float, int]:  # type: ignore[override]
        """See `Peer`."""
        return super().ask(question, table, above=question.above)  # type: ignore[arg-type]


def all_peers(options: argparse.Namespace) -> list[Peer]:
    """Return all peers, missing or not."""
    return [DuckDB(), DuckDB(1), Polars(), FlinkCep(options.flink)]


def least(ask: Callable[[], tuple[float, int]], patience: float) -> tuple[float, int]:
    """Return the least seconds of some runs, and their answer; of one run, if it takes long."""
    taken, found = ask()
    for _ in range(RUNS - 1 if taken < patience / 4 else 0):
        taken = min(taken, ask()[0])
    return taken, found


@cache
def ours(question: Question, n_events: int) -> float:
    """Return the seconds that cer_gpu takes for a question."""
    query, table = question.query(), question.events(n_events)

    def ask() -> tuple[float, int]:
        begun = time.perf_counter()
        found = count(query, table)
        return time.perf_counter() - begun, found

    ask()  # compiles the kernels
    return least(ask, float("inf"))[0]


def compare(peer: Peer, question: Question, plan: str, n_events: int, patience: float) -> Row:
    """Ask a peer and cer_gpu the same question, and return the row."""
    table, n = question.events(n_events), min(peer.fewest(question), n_events)
    while True:
        taken, found = peer.ask(question, table.slice(0, n), plan)
        if taken > patience / 8 or n == n_events:
            break
        n = min(4 * n, n_events)
    if taken <= patience / 4:
        taken = min(taken, least(lambda: peer.ask(question, table.slice(0, n), plan), patience)[0])
    expected = count(question.query(), table.slice(0, n))
    assert found == expected, (question, plan, found, expected)
    whole = ours(question, n_events)
    return {
        "workload": question.name,
        "window": question.window or "30 minutes",
        "peer": f"{peer.name()}, {plan}",
        "cer_gpu, million events/s": n_events / whole / 1e6,
        "peer, million events/s": n / taken / 1e6,
        "peer's events": n,
        "found in them": found,
        "times as fast": taken / n / (whole / n_events),
    }


def compared(
    console: Console, options: argparse.Namespace, peers: list[Peer], asked: list[Question], share: float
) -> list[Row]:
    """Return a row for each question and peer that ran, with its fastest plan."""
    rows: list[Row] = []
    n_events = max(int(options.events * share), 10)
    for peer in peers:
        reason = peer.missing()
        if reason is not None:
            console.print(f"skipped: {reason}", highlight=False)
            continue
        for question in asked:
            tried = []
            for plan in peer.plans(question):
                with console.status(f"{peer.name()}, {plan}: {question.name}, window {question.window:,}"):
                    tried.append(compare(peer, question, plan, n_events, options.seconds))
                rate = tried[-1]["peer, million events/s"]
                console.print(f"[dim]{peer.name()}, {plan}: {question.name}, {question.window:,}: {rate:.3g}[/]")
            rows += sorted(tried, key=lambda row: float(str(row["times as fast"])))[:1]
    order = [question.name for question in asked]
    rows.sort(key=lambda row: (order.index(str(row["workload"])), str(row["window"]).zfill(9)))
    return rows


def against_peers(console: Console, options: argparse.Namespace) -> Iterator[tuple[str, list[Row], str]]:
    """Yield title, rows and a remark of the table: a row for each question and peer that ran."""
    yield TITLE, compared(console, options, all_peers(options), questions(), SHARE), NOTE
