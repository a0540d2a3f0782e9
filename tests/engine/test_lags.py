"""``LAG``: values of earlier events of the stream, whatever their type, for any cut, partitions and order."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
import strategies
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.output import retention

TEXTS = ["a", "b", None, "longer than that"]


def events_of(data):
    n = data.draw(st.integers(0, 40), label="events")

    def draw(values, label):
        return data.draw(st.lists(st.sampled_from(values), min_size=n, max_size=n), label=label)

    return {
        "type": draw(["A", "B"], "types"),
        "k": draw([1, 2, 3, None], "keys"),
        "x": draw([1, 2, 3, None], "numbers"),
        "s": draw(TEXTS, "texts"),
    }


def lagged(events, column, n, partitioned):
    """Return the value n events before each event, by the definition."""
    before = {}
    found = []
    for key, value in zip(events["k"], events[column], strict=True):
        key = key if partitioned else 0
        values = before.setdefault(key, [])
        found.append(values[-n] if key is not None and len(values) >= n else None)
        values.append(value)
    return found


def table_of(events, coded):
    texts = pa.array(events["s"], pa.string())
    return pa.table(
        {
            "type": pa.array(events["type"], pa.string()),
            "k": pa.array(events["k"], pa.int64()),
            "x": pa.array(events["x"], pa.int16()),
            "s": texts.dictionary_encode() if coded else texts,
        }
    )


def cut(data, table):
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(table)), max_size=6), label="cuts")), len(table)]
    return [
        batch
        for a, b in itertools.pairwise(cuts)
        for batch in table.slice(a, b - a).to_batches() or pa.Table.from_batches([], table.schema).to_batches()
    ]


@strategies.property_test(1)
def test_values_of_earlier_events_are_those_of_the_definition(data):
    events = events_of(data)
    partitioned = data.draw(st.booleans(), label="PARTITION BY")
    n, m = (data.draw(st.sampled_from([1, 2, 5, 30]), label="lag") for _ in range(2))
    text = f"SELECT * FROM S WHERE (A OR B) AS e FILTER e[x > LAG(x, {n}) OR LAG(s, {m}) = s OR LAG(x, {m}) IS NULL]"
    query = cer_gpu.compile(text + " PARTITION BY [k]" * partitioned)
    numbers, texts, others = (lagged(events, c, k, partitioned) for c, k in (("x", n), ("s", m), ("x", m)))
    expected = [
        i
        for i, (key, x, s) in enumerate(zip(events["k"], events["x"], events["s"], strict=True))
        if not (partitioned and key is None)
        and (
            (None not in (x, numbers[i]) and x > numbers[i])
            or (None not in (s, texts[i]) and s == texts[i])
            or others[i] is None
        )
    ]
    batches = cut(data, table_of(events, data.draw(st.booleans(), label="dictionary")))
    evaluator = query.evaluator()
    found = []
    stop = data.draw(st.integers(0, len(batches)), label="checkpoint")
    with mock.patch.object(retention, "TRIM_FROM", data.draw(st.sampled_from([1, 1 << 16]), label="trim")):
        for i, batch in enumerate(batches):
            if i == stop:
                evaluator = query.restore(evaluator.checkpoint())
            found += evaluator.push(batch)["end"].to_pylist()
    assert found == expected


@pytest.mark.parametrize("partition", ["", " PARTITION BY [k]"])
def test_lags_relate_events(partition):
    rng = np.random.default_rng(1)
    events = {
        "type": rng.choice(["A", "B", "C"], 60).tolist(),
        "k": rng.choice([1, 2], 60).tolist(),
        "x": rng.integers(0, 5, 60).tolist(),
        "s": ["a"] * 60,
    }
    query = cer_gpu.compile(
        "SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x > LAG(a.x) AND b[x <> LAG(x, 2)]" + partition
    )
    one, two = (lagged(events, "x", n, bool(partition)) for n in (1, 2))
    keys, x, types = events["k"], events["x"], events["type"]
    expected = [
        (i, j)
        for j in range(60)
        for i in range(j)
        if types[i] + types[j] == "AB"
        and (not partition or keys[i] == keys[j])
        and None not in (one[i], two[j])
        and x[j] > one[i]
        and x[j] != two[j]
    ]
    found = query.evaluate(table_of(events, coded=False))
    assert sorted(zip(found["start"].to_pylist(), found["end"].to_pylist(), strict=True)) == sorted(expected)


def test_lags_follow_the_order_of_time():
    events = pa.table({"type": ["A"] * 5, "x": [3, 1, 2, 5, 4], "ts": [3, 1, 2, 5, 4]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[x - LAG(x) = 1]", time_column="ts")
    expected = [2, 0, 4, 3]  # rows of 2, 3, 4 and 5
    assert query.evaluate(events, sort=True)["end"].to_pylist() == expected
    assert query.evaluate(events, lateness=5)["end"].to_pylist() == expected
    by_stream = cer_gpu.compile("SELECT * FROM S, T WHERE A FILTER A[x - LAG(x) = 1]", time_column="ts")
    parts = {"S": events.take([1, 0, 3]), "T": events.take([2, 4])}
    found = by_stream.evaluate(parts)
    assert found["end"].to_pylist() == [0, 1, 1, 2]
    assert found["end_stream"].to_pylist() == ["T", "S", "T", "S"]


def test_threads_by_key_give_the_same():
    rng = np.random.default_rng(2)
    n = 20_000
    events = pa.table({"type": rng.choice(["A", "B"], n), "k": rng.integers(0, 50, n), "x": rng.integers(0, 9, n)})
    text = "SELECT * FROM S WHERE A ; B FILTER B[x > LAG(x, 3)] AND A[x = LAG(x)] {}WITHIN 8 EVENTS"
    for partition, reason in ("", "LAG reads events"), ("PARTITION BY [k] ", None):
        query = cer_gpu.compile(text.format(partition))
        distribution = query.physical_plan().distribution
        assert (distribution.why_not_threads or "").startswith(reason or "")
        assert distribution.threads == ("key" if partition else "one")
        one, three = (query.evaluate(events, threads=threads) for threads in (1, 3))
        assert one.num_rows
        assert three.sort_by([("end", "ascending"), ("start", "ascending")]).equals(
            one.sort_by([("end", "ascending"), ("start", "ascending")])
        )


def test_all_events_are_needed():
    query = cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[x > LAG(x)]")
    assert query._needed_types is None
    assert query.physical_plan().distribution.tasks["range"].startswith("LAG reads events")


def test_a_column_may_become_wider_between_batches():
    query = cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[x > LAG(x)] PARTITION BY [k]")
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["A"], "k": [1], "x": pa.array([1], pa.int8())}))
    assert evaluator.push(pa.record_batch({"type": ["A"], "k": [1], "x": pa.array([2.5])}))["end"].to_pylist() == [1]
    with pytest.raises(cer_gpu.EventsError, match="LAG keeps values of column 'x', which changed its type"):
        evaluator.push(pa.record_batch({"type": ["A"], "k": [1], "x": pa.array([2], pa.int8())}))


def test_events_counted_by_explain_are_those_found():
    events = pa.table({"type": ["A", "B"] * 4, "k": [1, 1, 2, 2] * 2, "x": [1, 2, 3, 1, 5, 6, 2, 2]})
    for partition, expected in ("", 4), (" PARTITION BY [k]", 4):
        query = cer_gpu.compile("SELECT * FROM S WHERE (A OR B) AS e FILTER e[x > LAG(x)]" + partition)
        assert query.evaluate(events).num_rows == expected
        assert [fact["n_events"] for fact in query.explain(events).to_dict()["predicates"]] == [expected]
