"""Events taken from a larger stream: a column gives their positions, and ends before `report_from` are not listed."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from cases import sorted_rows

import cer_gpu


def random_events(n=1500, seed=0):
    rng = random.Random(seed)
    return pa.table(
        {
            "type": rng.choices("ABCD", k=n),
            "k": rng.choices([1, 1, 2, 3, None], k=n),
            "ts": sorted(rng.choices(range(n), k=n)),
            "position": pa.array(range(n), pa.int64()),
        }
    )


def evaluate(query, events, rows=40, **options):
    evaluator = query.evaluator(position_column="position", **options)
    found = []
    for batch in events.to_batches(max_chunksize=rows):
        found.append(evaluator.push(batch))
        evaluator = query.restore(evaluator.checkpoint())
    return pa.Table.from_batches(found)


@pytest.mark.long("an evaluator for each key of sixty streams")
@pytest.mark.parametrize("output", ["positions", "bindings", "events", "count", "ends"])
@pytest.mark.parametrize("strategy", ["ALL", "NEXT", "MAX", "STRICT"])
@pytest.mark.parametrize("window", ["WITHIN 9 EVENTS", "WITHIN 30 [ts]", ""])
def test_evaluators_of_single_partitions_find_the_whole_table(window, strategy, output):
    query = cer_gpu.compile(
        f"SELECT {strategy} * FROM S WHERE A ; B+ ; C PARTITION BY [k] {window} LIMIT 50", time_column="ts"
    )
    events = random_events()
    whole = query.evaluate(events.drop_columns("position"), output=output)
    assert whole.num_rows > 2
    parts = [events.filter(pc.equal(events["k"], k)) for k in (1, 2, 3)]
    assert sorted_rows(*(evaluate(query, part, output=output) for part in parts)) == sorted_rows(whole)


@pytest.mark.parametrize("output", ["positions", "events", "count", "ends"])
@pytest.mark.parametrize(
    ("text", "reach"),
    [
        ("SELECT * FROM S WHERE A ; B+ ; C WITHIN 8 EVENTS", lambda p, ts: p - 8),
        ("SELECT * FROM S WHERE A : B ; C WITHIN 8 EVENTS", lambda p, ts: p - 8),
        ("SELECT STRICT * FROM S WHERE A+ ; B WITHIN 8 EVENTS", lambda p, ts: p - 8),
        (
            "SELECT * FROM S WHERE A ; B+ ; C WITHIN 9 [ts]",
            lambda p, ts: next(i for i, t in enumerate(ts) if t >= ts[p] - 9),
        ),
    ],
)
def test_ranges_with_the_window_before_them_find_the_whole_table(text, reach, output):
    query, events = cer_gpu.compile(text), random_events()
    whole = query.evaluate(events.drop_columns("position"), output=output)
    assert whole.num_rows > 20
    parts, ts = [], events["ts"].to_pylist()
    for first, end in ((0, 150), (150, 151), (151, 333), (333, 1500)):
        begin = max(0, reach(first, ts))
        parts.append(evaluate(query, events.slice(begin, end - begin), output=output, report_from=first))
    assert sorted_rows(*parts) == sorted_rows(whole)


def test_positions_may_be_far_apart():
    """Gaps exceed 32 bits within a block and between blocks."""
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 [ts]")
    n = 200
    positions = [i * 10**9 for i in range(n)]
    events = pa.table({"type": ["A", "B"] * (n // 2), "k": [1] * n, "ts": range(n), "position": positions})
    found = evaluate(query, events, rows=50)
    assert found["positions"].to_pylist() == [
        [positions[a], positions[b]] for b in range(1, n, 2) for a in range(b - 1, max(-1, b - 6), -2)
    ]


@pytest.mark.parametrize("positions", [[0, 0], [1, 0], [-1, 0], [0, None]])
def test_positions_that_do_not_ascend_are_refused(positions):
    evaluator = cer_gpu.compile("SELECT * FROM S WHERE A").evaluator(position_column="position")
    with pytest.raises(cer_gpu.EventsError, match="must ascend from 0"):
        evaluator.push(pa.record_batch({"type": ["A", "A"], "position": pa.array(positions, pa.int64())}))


def test_positions_that_are_not_int64_are_refused():
    evaluator = cer_gpu.compile("SELECT * FROM S WHERE A").evaluator(position_column="type")
    with pytest.raises(cer_gpu.QueryTypeError, match="must be int64, and is string"):
        evaluator.push(pa.record_batch({"type": ["A"]}))
