"""All distributions, tasks, files and batches give the table of a single process; on generators, without Spark.

What Spark does between the two passes (number the rows, send them, sort them) is done here with NumPy.
"""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from cases import sorted_rows
from sizes import scaled, seeds
from stored_files import evaluated, random_set
from stored_streams import stored_stream, surveyed

import cer_gpu
from spark_glue.distribution import (
    PART_ROWS,
    PLACE,
    Task,
    TaskReport,
    choose_distribution,
    cut_into_ranges,
    even_ranges,
)
from spark_glue.stage import plain_schema
from spark_glue.work import work_of

SEEDS = seeds(scaled(25, most=600))
STRATEGIES = ["ALL", "ANY", "NEXT", "LAST", "MAX", "STRICT"]
PATTERNS = [
    "A ; B",
    "A ; B+ ; C",
    "A : B+",
    "A : B ; C",
    "(A OR B) ; C",
    "A+ : C",
    "A AS a ; C FILTER a[x > 3]",
    "A ; X",
    "A AS a ; B AS b FILTER b.k = a.k AND b.x > a.x",
    "A AS a ; B+ AS b ; C AS c FILTER c.x >= b.x + a.k",
    "A ; B AS b FILTER b[COUNT(A) OVER 0.000008 SECONDS > 2]",
    "A AS a ; C AS c FILTER c[SUM(*.x) OVER 9 EVENTS > a.x]",
    "!(D) FOR 0.000006 SECONDS ; A ; B",
]
LIMITS = ["", "", "", "LIMIT 1", "LIMIT 3", "LIMIT 0", "LIMIT 2 EVERY 9 EVENTS", "LIMIT 1 EVERY 0.000005 SECONDS"]
WINDOWS = ["", "WITHIN 6 EVENTS", "WITHIN 25 EVENTS", "WITHIN 0.000009 SECONDS", "WITHIN 0 SECONDS", "WITHIN 7 [x]"]


def random_query(rng):
    keys = rng.choice(["", "", "PARTITION BY [k]", "PARTITION BY [k], [name]", "PARTITION BY [k, x]"])
    consume = rng.choice(["", "", "", "CONSUME BY PARTITION", "CONSUME BY ANY"])
    strategy, limit = rng.choice(STRATEGIES), rng.choice(LIMITS)
    return cer_gpu.compile(
        f"SELECT {strategy} * FROM S WHERE {rng.choice(PATTERNS)} {keys} {rng.choice(WINDOWS)} {consume} {limit}",
        time_column="ts",
    )


def random_stream(rng, n):
    table, _, _, times = stored_stream(rng, n, rng.randint(1, 3))
    return (
        table.drop_columns("id")
        .append_column("type", [rng.choices("ABCDX", k=n)])
        .append_column("k", [rng.choices([1, 2, 3, None], k=n)])
        .append_column("name", [rng.choices(["x", "y"], k=n)])
        .append_column("x", [times])
    )


def random_work(rng, *, many):
    outputs = ["positions", "events", "count", "ends"]
    if many:  # bindings of two queries may be of two types
        return random_set(rng, lambda: random_query(rng), [None, *outputs])
    query = random_query(rng)
    return work_of(query, rng.choice([*({"funnel"} & {*query.outputs}), "bindings", *outputs]))


def dealt(rng, events, work, distribution, n_parts):
    """Return the rows of each part, in the order of `PLACE`, and where ranges begin."""
    n = len(events)
    positions = np.arange(n)
    parts = [np.zeros(0, np.int64)] * n_parts
    firsts = ()
    if distribution == "broadcast":
        parts = [positions] * n_parts
    elif distribution == "key":
        rows = events.to_pylist()
        keys = [
            tuple(next((r[c] for c in names if r[c] is not None), None) for names in work.partition_keys) for r in rows
        ]
        of_key = {key: rng.randrange(n_parts) for key in keys}
        parts = [
            np.array([i for i in range(n) if None not in keys[i] and of_key[keys[i]] == part], np.int64)
            for part in range(n_parts)
        ]
    else:
        by_position = work.window.column is None
        length = work.window_units(events.schema)
        where = positions if by_position else np.array(events["x"])
        stream = surveyed(rng, events, ["ts"])
        if stream is not None and rng.random() < 0.7:
            found = even_ranges(stream, n_parts, length, by_position=by_position)
            own = positions * n_parts // n
        else:  # as a sort cuts them: anywhere, some without rows
            firsts = sorted(rng.choices(range(n + 1), k=n_parts - 1))
            firsts = [0, *firsts]
            ends = [*firsts[1:], n]
            lows = [int(where[first]) if first < n else 2**63 - 1 for first in firsts]
            highs = [int(where[end]) if end < n else 2**63 - 1 for end in ends]
            if by_position:
                lows, highs = firsts, [end - 1 for end in ends]
            found = cut_into_ranges(firsts, lows, highs, length)
            own = np.searchsorted(firsts, positions, "right") - 1
        firsts = found.firsts
        for part in range(n_parts):
            near = (own < part) & (part <= own + found.reach)
            parts[part] = np.flatnonzero((own == part) | (near & (found.begins[part] <= where)))
    if work.needed_types is not None:
        types = np.array(events["type"].to_pylist())
        parts = [rows[np.isin(types[rows], work.needed_types)] for rows in parts]
    return [
        events.take(rows).add_column(0, PLACE, [part * PART_ROWS + rows]) for part, rows in enumerate(parts)
    ], firsts


class Reports:
    def __init__(self):
        self.done: dict[int, TaskReport] = {}

    def add(self, value):
        self.done.update(value)


OVER = [
    "A ; B AS b FILTER b[COUNT(A) OVER 0.000008 SECONDS > 1] WITHIN 0.000003 SECONDS",
    "A AS a ; C AS c FILTER c[SUM(*.x) OVER 0.000009 SECONDS > 3 * a.x] PARTITION BY [k] WITHIN 0.000003 SECONDS",
    "A AS a FILTER a[COUNT(DISTINCT *.k) OVER 6 EVENTS = 3] WITHIN 2 EVENTS",
    "!(D) FOR 0.000009 SECONDS ; A ; B WITHIN 0.000002 SECONDS",
]


@pytest.mark.parametrize("text", OVER)
def test_ranges_read_what_is_over_the_past_before_their_windows(text):
    """The window alone before each range would not do, which some of the streams show."""
    differs = 0
    for seed in range(12):
        rng = random.Random(seed)
        work = work_of(cer_gpu.compile(f"SELECT * FROM S WHERE {text}", time_column="ts"), "positions")
        events = random_stream(rng, 150)
        expected = evaluated(work, events)
        for short in (work, ShortWork(work)):
            parts, firsts = dealt(rng, events, short, "range", 7)
            task = Task(
                work, "range", tuple(events.column_names), plain_schema(expected.schema), tuple(firsts), 7, Reports()
            )
            found = [batch for part in parts for batch in task(iter(part.to_batches()))]
            table = pa.Table.from_batches(found, expected.schema) if found else expected.slice(0, 0)
            if short is work:
                assert sorted_rows(table) == sorted_rows(expected), seed
            else:
                differs += sorted_rows(table) != sorted_rows(expected)
    assert differs


class ShortWork:
    """Work whose ranges have the window alone before them."""

    def __init__(self, work):
        self.work = work

    def window_units(self, schema):
        return self.work._first_query._bind(schema).window_length.item()

    def __getattr__(self, name):
        return getattr(self.work, name)


@pytest.mark.parametrize("many", [False, True], ids=["query", "set"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_table_of_a_single_process(seed, many):
    rng = random.Random(seed)
    work = random_work(rng, many=many)
    events = random_stream(rng, rng.randint(1, 150))
    n_parts = rng.choice([1, 2, 3, 7])
    columns = work.columns(events.schema)
    given = events.select(columns)
    expected = evaluated(work, given)
    for distribution in ("key", "range", "broadcast"):
        try:
            choose_distribution(work, distribution)
        except cer_gpu.OptionError:
            continue
        parts, firsts = dealt(rng, events, work, distribution, n_parts)
        reports = Reports()
        results = plain_schema(expected.schema)
        task = Task(work, distribution, tuple(columns), results, tuple(firsts), n_parts, reports)
        # parts may share a task of Spark, and each task begins anew
        n_tasks = rng.randint(1, n_parts)
        found = []
        for number in range(n_tasks):
            rows = pa.concat_tables([part.select([PLACE, *columns]) for part in parts[number::n_tasks]])
            batches = rows.to_batches(max_chunksize=rng.choice([1, 7, 1000]))
            found += list(task(iter(batches)))
        table = pa.Table.from_batches(found, expected.schema) if found else expected.slice(0, 0)
        assert sorted_rows(table) == sorted_rows(expected), (seed, distribution)
        assert sum(done.n_rows for done in reports.done.values()) == sum(map(len, parts))
        if work.output == "positions":
            assert sum(done.n_matches for done in reports.done.values()) == len(table)
