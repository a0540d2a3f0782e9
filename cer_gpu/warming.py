"""Compilation of the loops ahead of the first evaluation: a small query of each kind is evaluated.

Loops differ by kind of query and by types of columns.  Here are the usual ones: what a query needs besides is compiled
at its own first evaluation, and the pass over its predicates once many rows have come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cer_gpu.backend.jit import COMPILING
from cer_gpu.compilation import compile_for_set
from cer_gpu.errors import without_events_warnings
from cer_gpu.query_set import compile_all
from cer_gpu.row_patterns.compiling import compile_row_pattern

N_EVENTS = 20_000


class QueryKind(NamedTuple):
    """Queries whose loops are compiled together.

    Attributes
    ----------
    name
    queries
        Texts, without ``SELECT`` where all is selected.
    outputs
        Outputs requested of each.
    """

    name: str
    queries: tuple[str, ...]
    outputs: tuple[str, ...] = ("positions",)


class Warmed(NamedTuple):
    """Compilation of one kind.

    Attributes
    ----------
    name
        Name of the kind.
    n_compiled
        Functions that were compiled; 0 if all were on disk.
    """

    name: str
    n_compiled: int


LISTED = ("positions", "bindings", "count", "ends")

KINDS = (
    QueryKind(
        "sequences", ("A ; B WITHIN 5 EVENTS", "A ; B+ ; C WITHIN 5 EVENTS", "A ; B ; C WITHIN 5 SECONDS"), LISTED
    ),
    QueryKind(
        "sequences by key",
        (
            "A ; B PARTITION BY [k] WITHIN 50 EVENTS",
            "A ; B+ ; C PARTITION BY [k] WITHIN 50 SECONDS",
            "A ; B PARTITION BY [name] WITHIN 50 SECONDS",
            "A ; B PARTITION BY [k], [name] WITHIN 50 SECONDS",
            "SELECT LAST * WHERE A ; B ; C PARTITION BY [k] WITHIN 50 SECONDS",
        ),
        LISTED,
    ),
    QueryKind(
        "neighbours",
        ("A : B", "A : B : C WITHIN 5 SECONDS", "A : B PARTITION BY [k]", "A : B PARTITION BY [k] WITHIN 50 SECONDS"),
        LISTED,
    ),
    QueryKind(
        "counts and absences",
        (
            "A ; B{2,3} ; C WITHIN 8 EVENTS",
            "A ; !D ; B WITHIN 8 EVENTS",
            "A ; !D ; B{2,3} ; C WITHIN 8 EVENTS",
            "A ; !D ; B PARTITION BY [k] WITHIN 50 SECONDS",
            "A ; B{2,3} ; C PARTITION BY [k] WITHIN 50 SECONDS",
        ),
        LISTED,
    ),
    QueryKind(
        "the automaton",
        (
            "A ; (B ; C)+ ; D WITHIN 8 EVENTS",
            "A ; (B ; C)+ ; D WITHIN 8 SECONDS",
            "A ; (B ; C)+ ; D PARTITION BY [k] WITHIN 60 SECONDS",
            "A : (B : C)+ PARTITION BY [k] WITHIN 60 SECONDS",
        ),
        LISTED,
    ),
    QueryKind(
        "one match of each end",
        (
            "SELECT LAST * WHERE A ; (B ; C)+ ; D WITHIN 8 EVENTS",
            "SELECT NEXT * WHERE A ; (B ; C)+ ; D WITHIN 8 EVENTS",
            "SELECT MAX * WHERE A ; (B ; C)+ ; D WITHIN 8 EVENTS",
            "SELECT STRICT * WHERE A ; (B ; C)+ ; D WITHIN 8 EVENTS",
            "SELECT MAX * WHERE A ; B+ ; C PARTITION BY [k] WITHIN 60 SECONDS",
        ),
        ("positions", "count"),
    ),
    QueryKind(
        "joins",
        (
            "A AS x ; B AS y FILTER x.price < y.price WITHIN 5 EVENTS",
            "A AS x ; B AS y FILTER x.k = y.k WITHIN 5 SECONDS",
            "A AS x ; B AS y FILTER y.price BETWEEN x.price AND x.price + 0.1 WITHIN 5 EVENTS",
            "A AS x ; B AS y ; C AS z FILTER x.price < y.price AND y.price < z.price WITHIN 5 EVENTS",
            "A AS x ; B AS y ; C AS z FILTER y.price BETWEEN x.price AND x.price + 1 AND y.k = z.k WITHIN 5 EVENTS",
        ),
        ("positions", "count"),
    ),
    QueryKind("conjunctions", ("Q(v) <- A(k = v), B(k = v) WITHIN 50 EVENTS",), ("positions", "count")),
    QueryKind(
        "filters of all steps",
        (
            "A AS x : A AS y FILTER x.price < y.price WITHIN 2 EVENTS",
            "A AS a FILTER a.price > LAG(a.price) PARTITION BY [k]",
            " OR ".join(f"(A AS a{i} FILTER a{i}[price > 0.{i:02}])" for i in range(20)),
        ),
    ),
    QueryKind(
        "the latest partial match of each key",
        (
            "SELECT RECENT * WHERE A ; B ; C WITHIN 5 SECONDS",
            "SELECT RECENT * WHERE A ; B ; C WITHIN 5 EVENTS",
            "SELECT RECENT * WHERE A ; B+ ; C WITHIN 5 SECONDS",
            "SELECT RECENT * WHERE A AS a ; B AS b FILTER b.k = a.k WITHIN 50 SECONDS",
        ),
        ("positions", "bindings", "count"),
    ),
    QueryKind("in any order", ("A ALL B ALL C WITHIN 5 EVENTS", "A ALL B PARTITION BY [k] WITHIN 9 SECONDS"), LISTED),
    QueryKind(
        "measures",
        (
            "SELECT COUNT(*) AS n, SUM(b.price) AS s, MAX(b.price) AS m, FIRST(b).k AS f, AVG(b.k) AS a, COUNT(b) AS c,"
            " SUM(b.k) AS t, LIST(b.price) AS l WHERE A ; B+ AS b ; C WITHIN 6 EVENTS",
        ),
        ("measures", "rows"),
    ),
    QueryKind(
        "how far chains get",
        (
            "A ; !D ; B ; C WITHIN 5 SECONDS",
            "A ; B ; C WITHIN 5 EVENTS",
            "A ; B ; C PARTITION BY [k] WITHIN 50 SECONDS",
            "A ; B ; C PARTITION BY [k] WITHIN 50 EVENTS",
        ),
        ("funnel",),
    ),
    QueryKind(
        "many patterns of texts",
        ("A AS a ; B FILTER a[name GLOB {" + ", ".join(f"'*{i}?*'" for i in range(500)) + "} NOCASE] WITHIN 5 EVENTS",),
        ("count",),
    ),
    QueryKind(
        "limits in any length",
        (
            "A ; B PARTITION BY [k] WITHIN 50 SECONDS LIMIT 1 EVERY 9 SECONDS",
            "A ; B WITHIN 5 EVENTS LIMIT 1 EVERY 9 EVENTS",
        ),
        ("positions", "count"),
    ),
)
"""Kinds of queries that are compiled ahead of the first evaluation."""

SET = (
    "A ; B AS b FILTER b[price > 0.5] PARTITION BY [k] WITHIN 50 SECONDS",
    "A ; C PARTITION BY [k] WITHIN 50 SECONDS",
    "A ; D",
)
ROW_PATTERN = """
    SELECT * FROM events MATCH_RECOGNIZE (
        PARTITION BY k ORDER BY ts
        MEASURES LAST(B.price, 1) AS l, SUM(k) AS i, AVG(price) AS a, MAX(price) AS m, COUNT(*) AS c, ARRAY_AGG(k) AS g
        {rows} PATTERN (A B+) DEFINE B AS price < {price}
    )"""

FORECASTS = (
    "A ; B ; C WITHIN 50 SECONDS",
    "A ; B PARTITION BY [k] WITHIN 5 EVENTS",
    "A ; B PARTITION BY [k]",
    "A AS a ; B AS b FILTER b.price > a.price WITHIN 5 [price]",
)

READ_ONLY = ("A ; B PARTITION BY [name] WITHIN 50 SECONDS", "A ; B PARTITION BY [k]")

N_KINDS = len(KINDS) + 4
"""Number of kinds that `warm` yields: these, stored events, a set, row patterns, and forecasts."""


def warm() -> Iterator[Warmed]:
    """Compile the loops of all kinds of queries, so that later processes load them; yield each kind when it is done.

    Yields
    ------
    Warmed
    """
    events = _warm_up_events()
    for kind in KINDS:
        before = COMPILING.count
        for text in kind.queries:
            whole = text if text.startswith("SELECT") or "<-" in text else f"SELECT * WHERE {text}"
            query = compile_for_set(whole, time_column="ts")
            for output in kind.outputs:
                with without_events_warnings():
                    query.evaluate(events, output=output, limit=100)
        yield Warmed(kind.name, COMPILING.count - before)
    before = COMPILING.count
    stored = _read_only(events)
    for text in READ_ONLY:
        query = compile_for_set(f"SELECT * WHERE {text}", time_column="ts")
        for threads in 1, 2:
            query.evaluate(stored, threads=threads, limit=100)
    yield Warmed("stored events, and threads that share the keys", COMPILING.count - before)
    before = COMPILING.count
    compile_all({text: f"SELECT * WHERE {text}" for text in SET}, time_column="ts").evaluate(events, limit=100)
    yield Warmed("many queries in one pass", COMPILING.count - before)
    before = COMPILING.count
    for rows, price in (
        ("ONE ROW PER MATCH", "PREV(price)"),
        ("ALL ROWS PER MATCH AFTER MATCH SKIP TO NEXT ROW", "PREV(price)"),
        ("ALL ROWS PER MATCH", "A.price"),
    ):
        compile_row_pattern(ROW_PATTERN.format(rows=rows, price=price)).evaluate(events)
    yield Warmed("row patterns of SQL", COMPILING.count - before)
    before = COMPILING.count
    ordered = events.set_column(events.column_names.index("price"), "price", pa.array(np.arange(N_EVENTS) / 2))
    for text in FORECASTS:
        query = compile_for_set(f"SELECT * WHERE {text}", time_column="ts")
        model = query.fit(ordered, within=["9 seconds", "5 events"])
        model.forecast(ordered)
        evaluator = query.evaluator(forecast=model)
        for batch in ordered.to_batches():
            evaluator.push(batch)
    yield Warmed("forecasts", COMPILING.count - before)


def _warm_up_events() -> pa.Table:
    """Return events of four types: a key, a name, a price and a time each second."""
    rng = np.random.default_rng(0)
    types, names = pa.array(list("ABCD")), pa.array([f"n{i}" for i in range(50)])
    return pa.table(
        {
            "ts": pa.array(np.arange(N_EVENTS) * 1_000_000, pa.timestamp("us")),
            "type": types.take(pa.array(rng.integers(0, 4, N_EVENTS))),
            "k": pa.array(rng.integers(0, 50, N_EVENTS)),
            "name": names.take(pa.array(rng.integers(0, 50, N_EVENTS))),
            "price": pa.array(rng.random(N_EVENTS)),
        }
    )


def _read_only(events: pa.Table) -> pa.Table:
    """Return events in memory that is not to be written, as that of files and of Spark: loops have types of their own.

    Other arrays than those of strings are converted before a loop gets them.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, events.schema) as writer:
        writer.write_table(events)
    return pa.ipc.open_stream(sink.getvalue()).read_all()
