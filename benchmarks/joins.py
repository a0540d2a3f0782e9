"""Workloads of filters between events: joins of the events of a window by inequality, by equality and by place."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
ONE_KEY = "A ; B of one key, x within 1"
MILLION = "A ; B of one of a million keys"
NO_B = "A, no B of its key in a second, of a million"
PAIR = "SELECT * FROM S WHERE A AS a ; B AS b FILTER {} WITHIN {{}} EVENTS"
WITHIN_ONE = "b.x BETWEEN a.x AND a.x + 1"
SAME = {
    ONE_KEY: "b.key = a.key",
    f"{ONE_KEY}: two columns": "b.tens = a.tens AND b.units = a.units",
    f"{ONE_KEY}: three columns": "b.first = a.first AND b.second = a.second AND b.third = a.third",
    f"{ONE_KEY}: texts": "b.name = a.name",
    f"{ONE_KEY}: A ; A": "b.key = a.key",
    MILLION: "b.wide = a.wide",
    f"{MILLION}: texts": "b.wide_name = a.wide_name",
}
"""Equalities of keys, by the names of queries; the first of several names is that of one integer key."""
KEYED = {
    **{
        name: PAIR.format(f"{WITHIN_ONE} AND {each}" if name.startswith(ONE_KEY) else each)
        for name, each in SAME.items()
    },
    NO_B: "SELECT * FROM S WHERE A AS a ; !(B AS b FILTER b.wide = a.wide) FOR 1 SECOND",
}
KEYED[f"{ONE_KEY}: A ; A"] = KEYED[ONE_KEY].replace("B AS b", "A AS b")
KEYED_WINDOW = 10_000


def keyed(n_events: int) -> pa.Table:
    """Return `trades` with their keys in two columns, in three and as texts, with one of a million keys, and a time."""
    table = trades(n_events)
    keys, wide = table["key"].to_numpy(), np.random.default_rng(4).integers(0, 1_000_000, n_events)
    columns = {
        "tens": keys // 100,
        "units": keys % 100,
        "first": keys // 400,
        "second": keys // 20 % 20,
        "third": keys % 20,
        "name": _names(keys),
        "wide": wide,
        "wide_name": _names(wide),
        "at": pa.array(np.arange(n_events), pa.timestamp("ms")),
    }
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


def _names(keys: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise("key ", pa.array(keys).cast(pa.string()), "")


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
        *(
            Workload(name, text.format(KEYED_WINDOW), keyed, {"window": KEYED_WINDOW}, times=SHARE, time_column="at")
            for name, text in KEYED.items()
        ),
    ]
