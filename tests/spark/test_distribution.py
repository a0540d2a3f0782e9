"""All distributions, tasks, files and batches give the table of a single process; on generators, without Spark.

What Spark does between the two passes (send the rows, sort them, and number them where a task cannot) is done here
with NumPy.
"""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from cases import sorted_rows
from sizes import scaled, seeds
from stored_files import evaluated, random_set

import cer_gpu
from spark_glue.distribution import (
    PART,
    PART_ROWS,
    PLACE,
    Task,
    TaskReport,
    choose_distribution,
    cut_into_ranges,
)
from spark_glue.stage import plain_schema
from spark_glue.survey import count_by_bucket, counts_of
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
    times = sorted(rng.choices(range(n // 2 + 1), k=n))
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "type": rng.choices("ABCDX", k=n),
            "k": rng.choices([1, 2, 3, None], k=n),
            "name": rng.choices(["x", "y"], k=n),
            "x": times,
        }
    )


def random_work(rng, *, many):
    outputs = ["positions", "events", "count", "ends"]
    if many:  # bindings of two queries may be of two types
        return random_set(rng, lambda: random_query(rng), [None, *outputs])
    query = random_query(rng)
    return work_of(query, rng.choice([*({"funnel"} & {*query.outputs}), "bindings", *outputs]))


class Dealt:
    """Rows of each part, as tasks get them, and where ranges begin."""

    def __init__(self, rng, events, work, distribution, n_parts):
        n = len(events)
        positions, types = np.arange(n), work.needed_types
        self.rows = [positions[:0]] * n_parts
        self.firsts, self.starts = (), ()
        counts = rng.random() < 0.7 and not (distribution == "key" and work.counts_stream)
        if distribution == "broadcast":
            self.rows = [positions] * n_parts
            counts = counts and types is None
        elif distribution == "key":
            rows = events.to_pylist()
            keys = [
                tuple(next((r[c] for c in names if r[c] is not None), None) for names in work.partition_keys)
                for r in rows
            ]
            of_key = {key: rng.randrange(n_parts) for key in keys}
            self.rows = [
                np.array([i for i in range(n) if None not in keys[i] and of_key[keys[i]] == part], np.int64)
                for part in range(n_parts)
            ]
        elif counts:
            types = None
            self._in_counted_ranges(rng, events, work, n_parts)
        else:
            self._in_ranges(rng, events, work, n_parts)
        if types is not None:
            kinds = np.array(events["type"].to_pylist())
            self.rows = [rows[np.isin(kinds[rows], types)] for rows in self.rows]
        self.by_key = counts and distribution == "key"
        self.parts = [
            events.take(rows).add_column(
                0,
                PART if counts else PLACE,
                [np.full(len(rows), part, np.int32) if counts else part * PART_ROWS + rows],
            )
            for part, rows in enumerate(self.rows)
        ]

    def _in_ranges(self, rng, events, work, n_parts):
        """Cut the stream as a sort cuts it: anywhere, some ranges without rows."""
        n = len(events)
        positions, by_position = np.arange(n), work.window.column is None
        where = positions if by_position else np.array(events["x"])
        firsts = [0, *sorted(rng.choices(range(n + 1), k=n_parts - 1))]
        ends = [*firsts[1:], n]
        lows = [int(where[first]) if first < n else 2**63 - 1 for first in firsts]
        highs = [int(where[end]) if end < n else 2**63 - 1 for end in ends]
        if by_position:
            lows, highs = firsts, [end - 1 for end in ends]
        found = cut_into_ranges(firsts, lows, highs, work.window_units(events.schema))
        own = np.searchsorted(firsts, positions, "right") - 1
        self.firsts = found.firsts
        for part in range(n_parts):
            near = (own < part) & (part <= own + found.reach)
            self.rows[part] = np.flatnonzero((own == part) | (near & (found.begins[part] <= where)))

    def _in_counted_ranges(self, rng, events, work, n_parts):
        """Cut the stream where buckets of values begin."""
        column = events.select(["x"])
        batches = column.to_batches(max_chunksize=rng.choice([3, 10, 1000]))
        table = pa.Table.from_batches(count_by_bucket(batches, rng.choice([4, 16, 1000])))
        by_position = work.window.column is None
        found = counts_of(table, floating=False).ranges(
            n_parts, work.window_units(events.schema), by_position=by_position
        )
        self.firsts, self.starts = found.firsts, found.starts
        values = np.array(events["x"])
        first, last = (np.searchsorted(each, values, "right") for each in (found.bounds, found.begins[1:]))
        for part in range(n_parts):
            self.rows[part] = np.flatnonzero((first <= part) & (part <= last))

    def numbered(self, table, keys):
        """Return results by key with the positions of their events in the stream."""
        if not self.by_key:
            return table

        def position(value):
            if isinstance(value, list):
                return [position(each) for each in value]
            return value if value is None else int(self.rows[value // PART_ROWS][value % PART_ROWS])

        for i, field in enumerate(table.schema):
            kind = field.type.value_type if pa.types.is_list(field.type) else field.type
            if pa.types.is_int64(kind) and field.name not in (*keys, "count", "step"):
                values = [position(value) for value in table[i].to_pylist()]
                table = table.set_column(i, field, pa.array(values, field.type))
        return table


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
            dealt = Dealt(rng, events, short, "range", 7)
            task = task_of(work, "range", events.column_names, plain_schema(expected.schema), dealt, Reports())
            found = [batch for part in dealt.parts for batch in task(iter(part.to_batches()))]
            table = pa.Table.from_batches(found, expected.schema) if found else expected.slice(0, 0)
            if short is work:
                assert sorted_rows(table) == sorted_rows(expected), seed
            else:
                differs += sorted_rows(table) != sorted_rows(expected)
    assert differs


def task_of(work, distribution, columns, results, dealt, reports):
    n_parts = len(dealt.parts)
    return Task(work, distribution, tuple(columns), results, dealt.firsts, n_parts, dealt.starts, reports)


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
        dealt, reports = Dealt(rng, events, work, distribution, n_parts), Reports()
        task = task_of(work, distribution, columns, plain_schema(expected.schema), dealt, reports)
        # parts may share a task of Spark, and each task begins anew
        n_tasks = rng.randint(1, n_parts)
        found = []
        for number in range(n_tasks):
            own = dealt.parts[number::n_tasks]
            rows = pa.concat_tables([part.select([part.column_names[0], *columns]) for part in own])
            batches = rows.to_batches(max_chunksize=rng.choice([1, 7, 1000]))
            found += list(task(iter(batches)))
        table = pa.Table.from_batches(found, expected.schema) if found else expected.slice(0, 0)
        table = dealt.numbered(table, [name for bracket in work.partition_keys for name in bracket])
        assert sorted_rows(table) == sorted_rows(expected), (seed, distribution)
        assert sum(done.n_rows for done in reports.done.values()) == sum(map(len, dealt.parts))
        if work.output == "positions":
            assert sum(done.n_matches for done in reports.done.values()) == len(table)
