"""Measure MATCH_RECOGNIZE over generated tables, beside the same question in SQL with window functions on DuckDB.

    python benchmarks/row_patterns.py [--events N] [--repeat K] [--only WORD ...] [--save]

The shapes are those that engines publish for the clause: one partition, many, a quantifier, a funnel, sessions, no
match, and conditions of different selectivity; repetitions with large bounds, a mean of the match so far, rows far
above the mean of the rows before them, and crimes near to one another, of which conditions read other rows.  All run on
one thread, from Arrow or DuckDB's own table to an Arrow table, in turn; every table of a peer is compared with ours.  A
release of DuckDB that has the clause is a peer with the same statement.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from queries import timed
from report import RESULTS, Row, conclude
from rich.console import Console

import cer_gpu

TITLE, LEFT_OUT = "Row patterns", "Peers of row patterns left out"
ABOUT = {
    TITLE: (
        "Medians of processor time on one thread, from a table in memory to a table of matches. The question in SQL is "
        "told with window functions, run by DuckDB on its own table; all tables are equal, or the run fails."
    ),
}
CLAUSE = "SELECT * FROM t MATCH_RECOGNIZE ({} ORDER BY ts MEASURES {} ONE ROW PER MATCH PATTERN ({}) DEFINE {})"
FALLS = "B AS price < PREV(price), C AS price > PREV(price)"
FAR_ABOVE = "B AS x > 3 * AVG(A.x)"
LOWEST, SHORTEST, LONGEST, GAP = 1e9, 4, 1000, 30
WARM_UP = 4


def prices(n_events: int, n_keys: int = 1) -> pa.Table:
    """Return random walks of prices, key by key; ``ts`` counts the rows."""
    rng = np.random.default_rng(21)
    return pa.table(
        {
            "k": np.arange(n_events) * n_keys // n_events,
            "ts": np.arange(n_events),
            "price": np.cumsum(rng.normal(size=n_events)) + 1000,
        }
    )


def visits(n_events: int) -> pa.Table:
    """Return the events of users, one user behind another: types of a shop, and times in seconds."""
    rng = np.random.default_rng(22)
    types = ["view", "cart", "purchase", "other"]
    return pa.table(
        {
            "k": np.arange(n_events) // 20,
            "ts": np.cumsum(rng.geometric(0.05, n_events)),
            "type": pa.array(types).take(pa.array(rng.choice(4, n_events, p=[0.3, 0.1, 0.05, 0.55]))),
        }
    )


def numbers(n_events: int) -> pa.Table:
    """Return random numbers between 0 and 1."""
    return pa.table({"ts": np.arange(n_events), "x": np.random.default_rng(23).random(n_events)})


def spikes(n_events: int, share: float = 0.001) -> pa.Table:
    """Return numbers between 5 and 14 by keys of a thousand rows, a share of them 100; a tenth is not `ok`."""
    rng = np.random.default_rng(25)
    x = np.where(rng.random(n_events) < share, 100.0, rng.uniform(5, 14, n_events))
    ts = np.arange(n_events)
    return pa.table({"k": ts // 1000, "ts": ts, "x": x, "ok": rng.random(n_events) < 0.9})


def crimes(n_events: int) -> pa.Table:
    """Return random crimes of a city, one each 6 seconds, which is 300 in half an hour."""
    rng = np.random.default_rng(24)
    types = ["ROBBERY", "BATTERY", "MOTOR VEHICLE THEFT", "OTHER"]
    return pa.table(
        {
            "ts": pa.array(np.sort(rng.integers(0, 6 * n_events, n_events)), pa.timestamp("s")),
            "id": np.arange(n_events),
            "type": pa.array(types).take(pa.array(rng.choice(4, n_events, p=[0.05, 0.2, 0.05, 0.7]))),
            "lon": rng.uniform(-87.8, -87.5, n_events),
            "lat": rng.uniform(41.7, 42.0, n_events),
        }
    )


def runs(keys: str = "") -> str:
    """Return the begin of a statement of SQL: runs of rows that fall or rise, numbered in their partition."""
    over = f"OVER ({keys} ORDER BY ts)"
    by = "k, " if keys else ""
    return f"""
        WITH moves AS (SELECT *, sign(price - lag(price) {over}) AS move FROM t),
        marked AS (SELECT *, CASE WHEN move = lag(move) {over} THEN 0 ELSE 1 END AS begins FROM moves),
        numbered AS (SELECT *, sum(begins) {over} AS run FROM marked WHERE move IS NOT NULL),
        runs AS (
            SELECT {by}run, any_value(move) AS move, min(ts) AS ts, count(*) AS n,
                arg_min(price, ts) AS first, arg_max(price, ts) AS last
            FROM numbered GROUP BY {by}run
        )"""


def valleys(keys: str = "") -> str:
    """Return the statement of SQL for runs of falls with the runs of rises behind them."""
    over = f"OVER ({keys} ORDER BY run)"
    columns = "k, high, low, after, n" if keys else "high, low, after, n"
    return f"""{runs(keys)}, pairs AS (
            SELECT *, first AS high, last AS low, lead(last) {over} AS after, n + lead(n) {over} AS rows FROM runs
        )
        SELECT {columns.replace("n", "rows AS n")} FROM pairs WHERE move = -1 AND after IS NOT NULL"""


QUANTIFIED = f"""{runs()}
    SELECT ts + {SHORTEST} * unnest(range(n // {SHORTEST})) AS begun FROM runs WHERE move = 1"""
FUNNEL = """
    WITH views AS (SELECT k, min(ts) AS viewed FROM t WHERE type = 'view' GROUP BY k),
    carts AS (SELECT k, viewed, min(ts) AS chosen FROM t JOIN views USING (k)
        WHERE type = 'cart' AND ts > viewed GROUP BY k, viewed)
    SELECT k, viewed, chosen, min(ts) AS bought FROM t JOIN carts USING (k)
    WHERE type = 'purchase' AND ts > chosen GROUP BY k, viewed, chosen"""
SESSIONS = f"""
    WITH marked AS (SELECT *, CASE WHEN ts - lag(ts) OVER by_k <= {GAP} THEN 0 ELSE 1 END AS begins
        FROM t WINDOW by_k AS (PARTITION BY k ORDER BY ts)),
    numbered AS (SELECT *, sum(begins) OVER (PARTITION BY k ORDER BY ts) AS session FROM marked)
    SELECT k, min(ts) AS begun, max(ts) AS ended, count(*) AS n FROM numbered GROUP BY k, session"""
NOTHING = f"""
    WITH moves AS (SELECT *, price < lag(price) OVER by_ts AS falls, lead(price) OVER by_ts AS after
        FROM t WINDOW by_ts AS (ORDER BY ts))
    SELECT price AS low FROM moves WHERE falls AND after > {LOWEST}"""


def long_runs(least: int, share: float) -> str:
    """Return the statement of SQL for the begins of `least` rows, one behind another, above `share`."""
    return f"""
        WITH held AS (SELECT ts, ts - row_number() OVER (ORDER BY ts) AS run FROM t WHERE x > {share}),
        runs AS (SELECT min(ts) AS ts, count(*) AS n FROM held GROUP BY run)
        SELECT ts + {least} * unnest(range(n // {least})) AS begun FROM runs"""


def far_above(run: str) -> str:
    """Return the statement of SQL for the last row of the same `run` that is thrice above the mean from each row on."""
    return f"""
        WITH runs AS (SELECT *, {run} AS run FROM t),
        summed AS (SELECT *, coalesce(sum(x) OVER (PARTITION BY k, run ORDER BY ts
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM runs)
        SELECT a.k AS k, a.ts AS begun, max(b.ts) AS ended FROM summed AS a JOIN summed AS b
            ON a.k = b.k AND a.run = b.run AND b.ts > a.ts AND b.x > 3 * ((b.before - a.before) / (b.ts - a.ts))
        WHERE a.ok GROUP BY a.k, a.ts"""


def near(one: str, other: str) -> str:
    """Return the condition of SQL that one crime lies in the box around another."""
    return (
        f"{one}lon BETWEEN {other}.lon - 0.05 AND {other}.lon + 0.05 "
        f"AND {one}lat BETWEEN {other}.lat - 0.02 AND {other}.lat + 0.02"
    )


THEFT = "type = 'MOTOR VEHICLE THEFT'"
CRIMES_DEFINE = (
    f"R AS type = 'ROBBERY', B AS type = 'BATTERY' AND {near('', 'R')}, "
    f"M AS {THEFT} AND {near('', 'R')} AND ts - R.ts <= INTERVAL '30' MINUTE"
)
# with Z* before both, the last theft, and the last battery before it; crimes within half an hour share a slot
CRIMES = f"""
    WITH slots AS (SELECT *, epoch(ts)::BIGINT // 1800 AS slot FROM t WHERE type <> 'OTHER'),
    robberies AS (SELECT * FROM slots WHERE type = 'ROBBERY'),
    later AS (SELECT * REPLACE (unnest([slot, slot - 1]) AS slot) FROM slots),
    thefts AS (
        SELECT r.id AS id, any_value(r.slot) AS slot, any_value(r.lon) AS lon, any_value(r.lat) AS lat,
            max(m.id) AS theft
        FROM robberies AS r JOIN later AS m ON m.slot = r.slot AND m.id > r.id
            AND m.ts <= r.ts + INTERVAL 30 MINUTE AND {near("m.", "r")}
        WHERE m.{THEFT} GROUP BY r.id)
    SELECT r.id AS robbery, max(b.id) AS battery, any_value(theft) AS theft
    FROM thefts AS r JOIN later AS b ON b.slot = r.slot AND b.id BETWEEN r.id + 1 AND theft - 1 AND {near("b.", "r")}
    WHERE b.type = 'BATTERY' GROUP BY r.id"""


@dataclass(frozen=True)
class Shape:
    """One question.

    Attributes
    ----------
    name : str
    statement : str
        With MATCH_RECOGNIZE, over a table t.
    events : callable
        Function of the number of events to the table.
    sql : str
        The same question with window functions; "": it has no plain form.
    n_keys : int or None
    is_for_peers : bool
        False: peers that have the clause are not asked, as they take hours.
    """

    name: str
    statement: str
    events: Callable[[int], pa.Table]
    sql: str = ""
    n_keys: int | None = None
    is_for_peers: bool = True


def shapes(n_events: int) -> list[Shape]:
    """Return the questions for tables of a size."""
    n_keys = max(1, n_events // 100)
    series = partial(prices, n_keys=n_keys)
    shown = "FIRST(B.price) AS high, LAST(B.price) AS low, LAST(C.price) AS after, COUNT(*) AS n"
    chain = "A.price AS high, LAST(B.price) AS low, LAST(C.price) AS after, COUNT(*) AS n"
    key = "PARTITION BY k"
    return [
        Shape("scan: A B+ C", CLAUSE.format("", chain, "A B+ C", FALLS), prices),
        Shape("scan: B+ C+", CLAUSE.format("", shown, "B+ C+", FALLS), prices, valleys()),
        Shape("partitions: A B+ C", CLAUSE.format(key, chain, "A B+ C", FALLS), series, n_keys=n_keys),
        Shape("partitions: B+ C+", CLAUSE.format(key, shown, "B+ C+", FALLS), series, valleys(key), n_keys),
        Shape(
            f"quantifier: C{{{SHORTEST}}}",
            CLAUSE.format("", "FIRST(ts) AS begun", f"C{{{SHORTEST}}}", "C AS price > PREV(price)"),
            prices,
            QUANTIFIED,
        ),
        Shape(
            "funnel: ^ X*? V X*? C X*? P",
            CLAUSE.format(
                key,
                "V.ts AS viewed, C.ts AS chosen, P.ts AS bought",
                "^ X*? V X*? C X*? P",
                "V AS type = 'view', C AS type = 'cart', P AS type = 'purchase'",
            ),
            visits,
            FUNNEL,
            n_events // 20,
        ),
        Shape(
            "sessions: A B*",
            CLAUSE.format(
                key,
                "FIRST(ts) AS begun, LAST(ts) AS ended, COUNT(*) AS n",
                "A B*",
                f"B AS ts - PREV(ts) <= {GAP}",
            ),
            visits,
            SESSIONS,
            n_events // 20,
        ),
        Shape(
            "no match: B C",
            CLAUSE.format("", "B.price AS low", "B C", f"B AS price < PREV(price), C AS price > {LOWEST}"),
            prices,
            NOTHING,
        ),
        Shape(
            f"long quantifier: C{{{LONGEST}}}",
            CLAUSE.format("", "FIRST(ts) AS begun", f"C{{{LONGEST}}}", "C AS x > 0.002"),
            numbers,
            long_runs(LONGEST, 0.002),
        ),
        Shape(
            "bounds that overlap: A{0,500} B{500}",
            CLAUSE.format("", "A.ts AS begun, B.ts AS ended", "A{0,500} B{500}", "A AS x > 0.001, B AS x < 0.999"),
            numbers,
        ),
        Shape(
            "mean so far: A+ B",
            CLAUSE.format("", "FIRST(ts) AS begun, COUNT(*) AS n", "A+ B", "A AS AVG(A.x) < 0.5"),
            numbers,
        ),
        Shape(
            "sum so far: A+",
            CLAUSE.format("", "FIRST(ts) AS begun, COUNT(*) AS n", "A+", "A AS SUM(A.x) <= 100"),
            numbers,
        ),
        Shape(
            "far above the mean: A+ B, keys of 1,000, next row",
            CLAUSE.format(key, "FIRST(ts) AS begun, LAST(ts) AS ended", "A+ B", FAR_ABOVE).replace(
                "PER MATCH", "PER MATCH AFTER MATCH SKIP TO NEXT ROW"
            ),
            spikes,
            far_above("0").replace("WHERE a.ok", ""),
            max(1, n_events // 1000),
        ),
        Shape(
            "far above the mean: A+ B, runs of 10, next row",
            CLAUSE.format(key, "FIRST(ts) AS begun, LAST(ts) AS ended", "A+ B", f"A AS ok, {FAR_ABOVE}").replace(
                "PER MATCH", "PER MATCH AFTER MATCH SKIP TO NEXT ROW"
            ),
            spikes,
            far_above(
                "coalesce(sum((NOT ok)::INTEGER) OVER (PARTITION BY k ORDER BY ts "
                "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)"
            ),
            max(1, n_events // 1000),
        ),
        Shape(
            "far above the mean: A+ B, one partition",
            CLAUSE.format("", "FIRST(ts) AS begun, LAST(ts) AS ended", "A+ B", FAR_ABOVE),
            spikes,
            is_for_peers=False,
        ),
        Shape(
            "far above the mean: A+ B, one partition, no match",
            CLAUSE.format("", "FIRST(ts) AS begun, LAST(ts) AS ended", "A+ B", FAR_ABOVE),
            partial(spikes, share=0),
            is_for_peers=False,
        ),
        Shape(
            "crimes: R Z* B Z* M, next row",
            CLAUSE.format("", "R.id AS robbery, B.id AS battery, M.id AS theft", "R Z* B Z* M", CRIMES_DEFINE).replace(
                "PER MATCH", "PER MATCH AFTER MATCH SKIP TO NEXT ROW"
            ),
            crimes,
            CRIMES,
            is_for_peers=False,
        ),
        Shape(
            "crimes: R Z*? B Z*? M",
            CLAUSE.format("", "R.id AS robbery, B.id AS battery, M.id AS theft", "R Z*? B Z*? M", CRIMES_DEFINE),
            crimes,
            is_for_peers=False,
        ),
        *(
            Shape(
                f"selectivity {share:g}: A B",
                CLAUSE.format("", "A.ts AS begun, B.x AS x", "A B", f"A AS x < {share}, B AS x > 0.5"),
                numbers,
                f"SELECT ts AS begun, after AS x FROM (SELECT *, lead(x) OVER (ORDER BY ts) AS after FROM t) "
                f"WHERE x < {share} AND after > 0.5",
            )
            for share in (0.0001, 0.01, 0.3)
        ),
    ]


class DuckDB:
    """DuckDB on one thread, with a table t of its own."""

    def __init__(self, table: pa.Table) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.register("given", table)
        self._connection.execute("CREATE TABLE t AS SELECT * FROM given")

    def ask(self, text: str) -> pa.Table:
        """Return the table of a statement."""
        return self._connection.sql(text).to_arrow_table()


def without_the_clause() -> str | None:
    """Return the reason why DuckDB is no peer with MATCH_RECOGNIZE; None: it is one."""
    try:
        DuckDB(prices(3)).ask(CLAUSE.format("", "COUNT(*) AS n", "B+", "B AS price < PREV(price)"))
    except duckdb.Error as error:
        return f"DuckDB {duckdb.__version__} does not take the clause: {str(error).splitlines()[0]}"
    return None


def in_order(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the types of a schema, sorted by all columns."""
    table = table.select(schema.names).cast(schema)
    return table.sort_by([(name, "ascending") for name in schema.names]).combine_chunks()


def measured(shape: Shape, n_events: int, repeat: int, *, has_clause: bool) -> Row:
    """Measure a statement and its peers in turn.

    Raises
    ------
    AssertionError
        When a peer finds another table.
    """
    table = shape.events(n_events)
    query, peer = cer_gpu.compile(shape.statement), DuckDB(table)
    ways: dict[str, Callable[[], pa.Table]] = {"": lambda: query.evaluate(table)}
    if shape.sql:
        ways["window functions"] = lambda: peer.ask(shape.sql)
    if has_clause and shape.is_for_peers:
        ways["DuckDB's clause"] = lambda: peer.ask(shape.statement)
    for _ in range(WARM_UP):
        found = query.evaluate(table)
    expected = in_order(found, found.schema)
    for name, way in ways.items():
        assert in_order(way(), found.schema).equals(expected), (shape.name, name)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeat):
        for name, way in ways.items():
            taken[name].append(timed(way)[0])
    seconds = {name: statistics.median(times) for name, times in taken.items()}
    ours = seconds.pop("")
    keys: Row = {} if shape.n_keys is None else {"keys": shape.n_keys}
    row: Row = {"workload": shape.name, **keys, "events": n_events, "matches": found.num_rows}
    row |= {"million events/s": n_events / ours / 1e6, "ns/event": 1e9 * ours / n_events}
    for name, its in seconds.items():
        row |= {f"{name}, million events/s": n_events / its / 1e6, f"{name} / ours": its / ours}
    return row


def main(arguments: list[str]) -> int:
    """Measure everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000, help="rows of each table")
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the median is taken")
    parser.add_argument("--only", nargs="+", metavar="WORD", default=[""], help="only shapes with one of these words")
    parser.add_argument("--save", action="store_true", help="write <machine>-row-patterns.json")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    options = parser.parse_args(arguments)
    console = Console(width=max(200, Console().width))
    why = without_the_clause()
    results: dict[str, list[Row]] = {TITLE: [], LEFT_OUT: []}
    for shape in shapes(options.events):
        if any(word in shape.name for word in options.only):
            with console.status(shape.name):
                results[TITLE].append(measured(shape, options.events, options.repeat, has_clause=why is None))
    if why is not None:
        results[LEFT_OUT].append({"workload": "MATCH_RECOGNIZE on DuckDB", "why": why})
    conclude(console, options, results, ["python benchmarks/row_patterns.py", *arguments], ABOUT, "row-patterns")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
