"""Random events in random files, and random queries, for jobs that read the files by themselves."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import random
from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import cer_gpu
from spark_glue.files.footers import find_footers
from spark_glue.files.stored_events import Scan
from spark_glue.work import Work, work_of

BEGIN = dt.datetime(2024, 3, 31)

STRUCT = pa.struct([("p", pa.int64()), ("q", pa.string())])

PATTERNS = [
    "A ; B",
    "A ; B+ ; C",
    "A : B+",
    "A : B ; C",
    "A -> B -> C",
    "(A OR B) ; C",
    "A+ : C",
    "A AS a ; C FILTER a[x > 3]",
    "A ; X",
    "A ; !C ; B",
    "A ALL B",
    "A AS a ; B AS b FILTER b.k = a.k AND b.x > a.x",
    "A AS a ; B+ AS b ; C AS c FILTER c.x >= b.x + a.k",
    "A AS a ; B FILTER a[st.p > 2]",
    "A AS a ; B AS b FILTER a[LAG(x) > 3]",
    "A ; !B",
]
WINDOWS = [
    "",
    "WITHIN 6 EVENTS",
    "WITHIN 3 SECONDS",
    "WITHIN 9 SECONDS",
    "WITHIN 25 EVENTS",
    "WITHIN 9 SECONDS",
    "WITHIN 0 SECONDS",
    "WITHIN 7 [t]",
]
KEYS = ["", "", "PARTITION BY [k]", "PARTITION BY [k], [name]", "PARTITION BY [k, j]", "PARTITION BY [name]"]
STRATEGIES = ["ALL"] * 9 + ["ANY", "NEXT", "LAST", "MAX", "STRICT"]
OUTPUTS = ["positions", "bindings", "events", "count", "ends", "rows"]


def random_query(rng: random.Random) -> tuple[cer_gpu.Query, str]:
    """Return a query and an output."""
    pattern, window, keys = rng.choice(PATTERNS), rng.choice(WINDOWS), rng.choice(KEYS)
    if "!B" in pattern and pattern.endswith("!B") and not window:
        window = "WITHIN 6 EVENTS"
    if "+ AS b" in pattern:
        window = rng.choice(["WITHIN 6 EVENTS", "WITHIN 3 SECONDS"])  # without one, instances would be countless
    consume = "" if pattern.endswith("!B") else rng.choice([""] * 8 + ["CONSUME BY PARTITION", "CONSUME BY ANY"])
    limit = rng.choice([""] * 8 + ["LIMIT 1", "LIMIT 3"])
    shown, output = "*", rng.choice(OUTPUTS)
    if pattern in ("A ; B+ ; C", "A ; B") and rng.random() < 0.4:
        shown, output, limit = "COUNT(B), MAX(B.x) AS m, A.s", "measures", ""
    time_column = rng.choice(["ts", "ts", "ts", "t"])
    text = f"SELECT {rng.choice(STRATEGIES)} {shown} FROM S WHERE {pattern} {keys} {window} {consume} {limit}"
    unit = "s" if time_column == "t" else None
    return cer_gpu.compile(text, time_column=time_column, time_unit=unit), output


def random_set(rng: random.Random, draw: Callable[[], cer_gpu.Query], outputs: Sequence[str | None]) -> Work:
    """Return up to four queries, half of the times such that all can be dealt by range, or by key."""
    queries: dict[str, cer_gpu.Query] = {}
    wanted = rng.choice(["any", "any", "range", "key"])
    window = None
    for _ in range(rng.choice([1, 5, 40])):
        query = draw()
        one = work_of(query, "positions")
        first = next(iter(queries.values()), query)
        if query.time_column != first.time_column or (wanted == "key" and one.distribution.why_not_keys):
            continue
        if wanted == "range" and (one.distribution.why_not_ranges or window not in (None, one.window)):
            continue
        window = one.window
        queries[f"q{len(queries)}"] = query
        if len(queries) == 4:
            break
    return work_of(cer_gpu.QuerySet(queries or {"q": query}), rng.choice(outputs))


def random_work(rng: random.Random, *, many: bool) -> Work:
    """Return the work of a query, or of several."""
    if not many:
        return work_of(*random_query(rng))
    outputs = [None, None, *(output for output in OUTPUTS if output != "measures")]
    return random_set(rng, lambda: random_query(rng)[0], outputs)


def evaluated(work: Work, events: pa.Table) -> pa.Table:
    """Return the results of one process."""
    asked = cer_gpu.QuerySet(work.queries) if work.is_set else work.queries[""]
    return asked.stream(events, output=work.output).read_all()


def counted(work: Work, events: pa.Table) -> int:
    """Return the number of complex events."""
    return sum(query.count(events, threads=1) for query in work.queries.values())


def random_events(rng: random.Random, n: int) -> pa.Table:
    """Return events in the order of ts, with ties, and columns of many types."""
    spread = rng.choice([0.1, 0.5, 1, 3])
    seconds = sorted(rng.randrange(int(n * spread) + 1) for _ in range(n))
    names = rng.choice([["x", "y"], ["x", "y", None], [f"n{i}" for i in range(20)]])
    return pa.table(
        {
            "type": pa.array(rng.choices("ABCDX" if rng.random() < 0.7 else "ABCDDDDDDDE", k=n), pa.string()),
            "ts": pa.array([BEGIN + dt.timedelta(seconds=s) for s in seconds], pa.timestamp("us")),
            "t": pa.array(seconds, pa.int64()),
            "k": pa.array(rng.choices([1, 2, 3, None], k=n), pa.int32()),
            "j": pa.array(rng.choices([1, 2, None], k=n), pa.int32()),
            "name": pa.array(rng.choices(names, k=n), pa.string()),
            "x": pa.array([rng.randrange(10) for _ in range(n)], pa.int64()),
            "tie": pa.array(rng.choices([0, 1, 2, None], k=n), pa.int16()),
            "f": pa.array(rng.choices([0.5, -0.0, 0.0, float("nan"), None, -2.0], k=n), pa.float64()),
            "b": pa.array(rng.choices([True, False, None], k=n), pa.bool_()),
            "s": pa.array(rng.choices(["", "ä", "b", None], k=n), pa.string()),
            "d": pa.array([BEGIN.date() + dt.timedelta(days=s) for s in seconds], pa.date32()),
            "dec": pa.array([Decimal(rng.randrange(100)) / 10 for _ in range(n)], pa.decimal128(9, 1)),
            "bin": pa.array([bytes([rng.randrange(5)]) for _ in range(n)], pa.binary()),
            "list": pa.array([[rng.randrange(5)] * rng.randrange(3) for _ in range(n)], pa.list_(pa.int32())),
            "st": pa.array([{"p": rng.randrange(5), "q": "z"} for _ in range(n)], STRUCT),
        }
    )


def random_order(rng: random.Random, work: Work) -> list[str]:
    """Return columns that order the events."""
    first = rng.choice([work.times[0], work.times[0], work.times[0], "ts", "t", "d"])
    more = [name for name in ("tie", "f", "s", "b", "x", "ts") if name != first]
    return [first, *rng.sample(more, rng.choice([0, 0, 0, 1, 1, 2]))]


def in_spark_order(table: pa.Table, order: list[str]) -> pa.Table:
    """Return rows as Spark orders them: NULL first, NaN last, -0.0 as 0.0; ties keep their places."""

    def key(value):
        if value is None:
            return (0, 0)
        if isinstance(value, float):
            return (2, 0) if value != value else (1, value + 0.0)
        return (1, value.encode() if isinstance(value, str) else value)

    columns = [[key(value) for value in table[name].to_pylist()] for name in order]
    by = sorted(range(len(table)), key=lambda i: tuple(column[i] for column in columns))
    return table.take(pa.array(by, pa.int64()))


def random_files(rng: random.Random, table: pa.Table, order: list[str], folder: str, keys: list[str]):
    """Store rows of a table in files; return their scan and the rows in the order of the files."""
    n, layout = len(table), rng.choice(["in order", "files", "jitter", "jitter", "shuffled", "lie", "folders"])
    rows = list(range(n))
    if layout != "in order" or len(order) > 1:
        table = in_spark_order(table, order) if rng.random() < 0.7 else table
    if layout == "shuffled":
        rng.shuffle(rows)
    elif layout == "jitter":
        by = rng.choice([2, 8, 40])
        rows.sort(key=lambda i: i + rng.uniform(0, by))
    table = table.take(pa.array(rows, pa.int64()))
    n_files = rng.randint(1, 6)
    cuts = [0, *sorted(rng.choice([0, n // 2, rng.randrange(n + 1)]) for _ in range(n_files - 1)), n]
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise(cuts)]
    if layout in ("files", "jitter") and rng.random() < 0.5:
        rng.shuffle(parts)
    if layout == "lie":  # within a row group or file, out of order
        parts = [part.take(pa.array(rng.sample(range(len(part)), len(part)), pa.int64())) for part in parts]
    folders = ()
    named = []
    of_folders = [key for key in keys if key in ("k", "name")]
    if layout == "folders" and of_folders and n:
        column = rng.choice(of_folders)
        folders = (column,)
        for i, part in enumerate(parts):
            for value in rng.sample(pc.unique(table[column]).to_pylist(), len(pc.unique(table[column]))):
                mask = part[column].is_null() if value is None else pc.equal(part[column], value).fill_null(False)
                own = part.filter(mask)
                text = "__HIVE_DEFAULT_PARTITION__" if value is None else str(value)
                named.append((f"{column}={text}/part-{i}.parquet", own))
    else:
        named = [(f"part-{i}.{'arrow' if rng.random() < 0.15 else 'parquet'}", part) for i, part in enumerate(parts)]
    named.sort()
    named = named or [("part-0.parquet", table)]
    for name, part in named:
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        stored = part.drop_columns(list(folders))
        if rng.random() < 0.3:
            at = stored.column_names.index("ts")
            stored = stored.set_column(at, "ts", stored["ts"].cast(pa.timestamp("ms")))
        size = rng.choice([rng.choice([1, 3, 7]), 20, 50, 70, 100, 1000])
        if name.endswith("arrow"):
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, stored.schema) as writer:
                writer.write_table(stored, max_chunksize=size)
        else:
            statistics = rng.random() < 0.8
            pq.write_table(stored, path, row_group_size=size, write_statistics=statistics)
    schema = table.schema
    scan = Scan(tuple(os.path.join(folder, name) for name, _ in named), schema, folders=folders)
    return scan, pa.concat_tables(part for _, part in named)


def found_of(scan: Scan, work: Work, order: list[str]):
    return find_footers(scan, work.type_column, order[0])
