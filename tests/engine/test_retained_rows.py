"""Positions are rows of the input as it came, also of sorted, late and merged events."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.engine.pipeline_builder import RowNumbers
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.output import retention

PATTERNS = [
    "SELECT {} FROM S WHERE A AS a ; B AS b ; C AS c WITHIN 9 SECONDS",
    "SELECT {} FROM S WHERE A AS a ; B AS b ; C AS c PARTITION BY [k] WITHIN 40 SECONDS",
    "SELECT {} FROM S WHERE A AS a ; (B OR A ; C)+ AS b ; C AS c WITHIN 5 SECONDS",
    "SELECT {} FROM S WHERE A AS a ; B AS b ; C AS c FILTER b.x = a.x WITHIN 30 SECONDS",
    "SELECT {} FROM S WHERE A AS a ; B AS b ; C AS c FILTER b.x < a.x WITHIN 12 SECONDS",
    "SELECT {} FROM S WHERE A AS a ALL B AS b ALL C AS c FILTER a.x = b.x AND b.x = c.x WITHIN 20 SECONDS",
    "SELECT MAX {} FROM S WHERE A AS a ; B+ AS b ; C AS c WITHIN 6 SECONDS",
    "SELECT {} FROM S WHERE A AS a ; B AS b ; C AS c ; !(A AS d FILTER d.x = 0) WITHIN 8 SECONDS",
]
CHOICES = [
    ("*", "bindings"),
    ("b", "positions"),
    ("NONE", "events"),
    ("*", "count"),
    ("b", "ends"),
    ("*", "rows"),
]


def jumbled(n, seed):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "type": rng.choice(["A", "B", "C", "Z"], n),
            "k": rng.integers(0, 4, n),
            "x": rng.integers(0, 5, n),
            "ts": np.sort(rng.integers(0, n, n))[np.argsort(np.arange(n) + rng.integers(0, 20, n), kind="stable")],
        }
    )


def shown(table, rows):
    """Return results in order of time, with the row of the input of each of their positions."""

    def row(value):
        return (
            value if value is None else [int(rows[p]) for p in value] if isinstance(value, list) else int(rows[value])
        )

    columns = {
        name: [row(value) for value in table[name].to_pylist()]
        for name in table.column_names
        if name in ("start", "end", "position", "positions", "a", "b", "c", "A", "B", "C")
    }
    others = [name for name in table.column_names if name not in columns]
    return columns | {name: table[name].to_pylist() for name in others}


@pytest.mark.parametrize(("selected", "output"), CHOICES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_positions_are_rows_of_the_input(pattern, selected, output):
    events = jumbled(400, seed=len(pattern))
    order = np.argsort(events["ts"].to_numpy(), kind="stable")
    query = cer_gpu.compile(pattern.format(selected), time_column="ts", time_unit="s")
    expected = shown(query.evaluate(events.take(pa.array(order)), output=output), order)
    assert selected == "NONE" or any(len(column) for column in expected.values())
    with mock.patch.object(retention, "TRIM_FROM", 1):
        evaluator = query.evaluator(output=output, lateness=40)
        late = []
        for i, batch in enumerate(events.to_batches(max_chunksize=30)):
            late.append(evaluator.push(batch))
            if i == 7:
                evaluator = query.restore(evaluator.checkpoint())
        late.append(evaluator.finish())
        found = query.evaluate(iter(events.to_batches(max_chunksize=30)), sort=True, output=output)
    same = np.arange(len(events))
    assert shown(found, same) == expected
    assert shown(pa.Table.from_batches(late), same) == expected


def test_threads_report_rows_of_the_input():
    events = jumbled(30_000, seed=1)
    query = cer_gpu.compile(
        "SELECT * FROM S WHERE A AS a ; B AS b FILTER a[x = 0] WITHIN 4 SECONDS", time_column="ts", time_unit="s"
    )
    one, three = (query.evaluate(events, sort=True, threads=threads) for threads in (1, 3))
    order = np.argsort(events["ts"].to_numpy(), kind="stable")
    assert shown(one, range(len(events))) == shown(query.evaluate(events.take(pa.array(order)), threads=1), order)
    keys = [("end_time", "ascending"), ("end", "ascending"), ("start", "ascending")]
    assert three.drop(["positions"]).sort_by(keys).equals(one.drop(["positions"]).sort_by(keys))


@pytest.mark.parametrize("output", ["positions", "bindings", "events", "rows", "count", "ends"])
def test_rows_of_several_streams_come_with_their_streams(output):
    events = jumbled(300, seed=3)
    events = events.sort_by("ts")
    side = np.arange(300) % 3 == 0
    parts = {"S": events.filter(pa.array(side)), "T": events.filter(pa.array(~side))}
    query = cer_gpu.compile(
        "SELECT * FROM S, T WHERE S>A AS a ; B AS b FILTER b[x > 2] WITHIN 5 SECONDS", time_column="ts", time_unit="s"
    )
    found = query.evaluate(parts, output=output)
    assert found.num_rows
    for name in found.column_names:
        if f"{name}_stream" in found.column_names:
            lists = [v if isinstance(v, list) else [v] for v in found[name].to_pylist()]
            streams = [v if isinstance(v, list) else [v] for v in found[f"{name}_stream"].to_pylist()]
            times = [
                [parts[s]["ts"][p].as_py() for s, p in zip(*both, strict=True)]
                for both in zip(streams, lists, strict=True)
            ]
            assert all(each == sorted(each) for each in times)
            if name in ("start", "end") and f"{name}_time" in found.column_names:
                assert [at for (at,) in times] == found[f"{name}_time"].to_pylist()
            if name == "a":
                assert {s for each in streams for s in each} == {"S"}
    assert found.schema == query.output_schema(query._open_source(parts).schema, output)
    evaluator = query.evaluator(output=output)
    merged = list(query._open_source(parts).batches(["type", "k", "x", "ts", ROW_COLUMN]))
    again = pa.Table.from_batches([*(evaluator.push(batch) for batch in merged), evaluator.finish()])
    assert again.equals(found)


def test_pushed_streams_count_their_own_rows():
    query = cer_gpu.compile("SELECT * FROM S, T WHERE S>A ; T>B")
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["B", "A"]}), stream="S")
    evaluator = query.restore(evaluator.checkpoint())
    found = evaluator.push(pa.record_batch({"type": ["B"]}), stream="T")
    assert found.select(["start", "start_stream", "end", "end_stream"]).to_pylist() == [
        {"start": 1, "start_stream": "S", "end": 0, "end_stream": "T"}
    ]
    found = evaluator.push(pa.record_batch({"type": ["B"]}), stream="T")
    assert found["end"].to_pylist() == [1]


def test_a_column_of_this_name_is_refused():
    events = pa.table({"type": ["A"], "ts": [1], ROW_COLUMN: [5]})
    with pytest.raises(cer_gpu.EventsError, match="hint: rename it"):
        cer_gpu.compile("SELECT * FROM S WHERE A", time_column="ts").evaluate(events, sort=True)


def test_ordered_input_needs_no_row_numbers():
    with mock.patch.object(RowNumbers, "__init__", side_effect=AssertionError):
        events = pa.table({"type": ["A", "B"], "ts": [1, 2]})
        assert cer_gpu.compile("SELECT * FROM S WHERE A ; B", time_column="ts").evaluate(events).num_rows == 1


def test_rows_of_events_that_are_held_back_are_not_dropped():
    types, streams = "BXAAAAAAABAX", "USUUUUSUSSUS"
    given = {
        name: pa.table(
            {
                "type": [each for each, stream in zip(types, streams, strict=True) if stream == name],
                "ts": [time for time, stream in enumerate(streams) if stream == name],
            }
        )
        for name in "SU"
    }
    query = cer_gpu.compile("SELECT * FROM S, U WHERE A ; B WITHIN 4 EVENTS", time_column="ts", time_unit="s")
    expected = query.evaluate(given).to_pylist()
    assert [(row["start_stream"], row["start"]) for row in expected] == [("S", 2), ("U", 5), ("S", 1), ("U", 4)]
    with small_sizes():
        assert query.evaluate(given).to_pylist() == expected
