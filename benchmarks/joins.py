"""Workloads of filters between events: joins of the events of a window by inequality, by equality and by place."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
from measure import Workload
from streams import random_types

TITLE = "Joins"
ABOUT = "Filters between events; x is uniform in 0 to 100, keys are one of 10,000, and types one of nine."
SHARE = 0.4
"""Events of these streams, of the number that is asked for: 4 million of 10 million."""
WINDOWS = (100, 1000, 10_000, 100_000)
RARELY = "A ; B, B.x > A.x + 99.9"
BAND = "A ; B, B.x in A.x to A.x + 0.001"
EQUAL = "A ; B ; C of one key"
CRIMES = "three crimes at one place"
CRIMES_QUERY = """
    SELECT * WHERE ROBBERY AS r ; BATTERY AS b ; `CAR THEFT` AS m
    FILTER b[lon BETWEEN r.lon - 0.05 AND r.lon + 0.05 AND lat BETWEEN r.lat - 0.02 AND r.lat + 0.02]
      AND m[lon BETWEEN r.lon - 0.05 AND r.lon + 0.05 AND lat BETWEEN r.lat - 0.02 AND r.lat + 0.02]
    WITHIN 30 MINUTES
"""
TEXTS = {
    RARELY: "SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x > a.x + 99.9 WITHIN {} EVENTS",
    BAND: "SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x BETWEEN a.x AND a.x + 0.001 WITHIN {} EVENTS",
    EQUAL: "SELECT * FROM S WHERE A AS a ; B AS b ; C AS c FILTER b.key = a.key AND c.key = b.key WITHIN {} EVENTS",
    CRIMES: CRIMES_QUERY,
}
"""Queries by name, with a place for the number of events in the window."""


def trades(n_events: int) -> pa.Table:
    """Return random events of nine types, with x in 0 to 100 and one of 10,000 keys."""
    table = random_types(n_events, seed=1, n_keys=10_000)
    return table.set_column(table.column_names.index("x"), "x", pa.array(table["x"].to_numpy() * 100))


def crimes(n_events: int) -> pa.Table:
    """Return random crimes of a city, one each 6 seconds, which is 300 in half an hour."""
    shares = {"ROBBERY": 0.05, "BATTERY": 0.2, "CAR THEFT": 0.05}
    table = random_types(n_events, seed=2, names=[*shares, "OTHER"], shares=shares).select(["type"])
    rng = np.random.default_rng(3)
    columns = {
        "lon": pa.array(rng.uniform(-87.8, -87.5, n_events)),
        "lat": pa.array(rng.uniform(41.7, 42.0, n_events)),
        "ts": pa.array(np.sort(rng.integers(0, 6 * n_events, n_events)), pa.timestamp("s")),
    }
    for name, values in columns.items():
        table = table.append_column(name, values)
    return table


def _workload(name: str, window: int) -> Workload:
    return Workload(name, TEXTS[name].format(window), trades, {"window": window}, times=SHARE)


def _listing(name: str, condition: str, window: int, formula: str = "A AS a ; B AS b") -> Workload:
    text = f"SELECT * FROM S WHERE {formula} FILTER {condition} WITHIN {window} EVENTS"
    return Workload(f"listed: {name}", text, trades, {"window": window}, times=SHARE)


def workloads() -> list[Workload]:
    """Return all workloads."""
    ordered = partial(_listing, formula="A AS a ; B AS b ; C AS c")
    return [
        *(_workload(RARELY, window) for window in WINDOWS),
        *(_workload(BAND, window) for window in WINDOWS),
        *(_workload(EQUAL, window) for window in WINDOWS),
        _listing("A ; B, B.x > A.x + 50", "b.x > a.x + 50", 500),
        _listing("A ; B, B.x > A.x", "b.x > a.x", 1000),
        ordered("A ; B ; C, x grows", "b.x > a.x AND c.x > b.x", 150),
        Workload(CRIMES, CRIMES_QUERY, crimes, times=SHARE, time_column="ts"),
    ]
