"""Queries whose results are counted off, their outputs, and a random stream for them."""

import pyarrow as pa

QUERIES = (
    "SELECT * FROM S WHERE A",
    "SELECT RECENT * FROM S WHERE A ; B PARTITION BY [g]",
    "SELECT RECENT * FROM S WHERE A ; B ; !C WITHIN 4 EVENTS",
    "SELECT * FROM S WHERE A+ ; B WITHIN 6 EVENTS",
    "SELECT A, B FROM S WHERE A ; C ; B WITHIN 6 EVENTS LIMIT 2",
    "SELECT a.x + b.x AS sum FROM S WHERE A AS a ; B AS b WITHIN 7 EVENTS HAVING sum > 1",
    "SELECT * FROM S WHERE A ; B PARTITION BY [g] LIMIT 1 EVERY 5 EVENTS",
)
OUTPUTS = ("positions", "bindings", "events", "rows", "measures")


def results_of(table, output):
    """Results, each as its rows."""
    rows = table.to_pylist()
    if output != "rows":
        return [[row] for row in rows]
    numbers = dict.fromkeys(row["match"] for row in rows)
    return [[row for row in rows if row["match"] == number] for number in numbers]


def stream_of(rnd, n):
    columns = {"type": [rnd.choice("AABBC") for _ in range(n)], "g": [rnd.randint(0, 1) for _ in range(n)]}
    return pa.table({**columns, "x": [rnd.randint(0, 2) for _ in range(n)]})
