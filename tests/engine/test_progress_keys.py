"""The output "funnel" of chains whose steps share a value in unlike columns, against plain Python."""

import random
from dataclasses import replace

import pyarrow as pa
import recent_strategies as drawn
import reference_progress as ref
from hypothesis import given, note, settings
from hypothesis import strategies as st
from sizes import scaled
from small_sizes import small_sizes

import cer_gpu

COLUMNS = ("x", "x", "y", "v")


def drawn_steps(rnd):
    steps = []
    for k in range(rnd.choice([2, 2, 3, 4])):
        barring = [(rnd.choice("ABCD"), rnd.choice(COLUMNS)) for _ in range(rnd.choice([0, 0, 1, 2]) if k else 0)]
        steps.append(ref.KeyedStep(rnd.choice("AABBC"), rnd.choice(COLUMNS), tuple(barring)))
    return steps


def text_of(steps, within, strategy):
    parts, filters = [], []
    for k, step in enumerate(steps):
        for n, (kind, column) in enumerate(step.barring):
            parts.append(f"!({kind} AS n{k}_{n} FILTER n{k}_{n}.{column} = s0.{steps[0].column})")
        parts.append(f"{step.type} AS s{k}")
        if k:
            other = k - 1 if k % 2 else 0
            filters.append(f"s{k}.{step.column} = s{other}.{steps[other].column}")
    window = "" if within is None else f" WITHIN {within} SECONDS"
    return f"SELECT {strategy} * FROM S WHERE {' ; '.join(parts)} FILTER {' AND '.join(filters)}{window}"


@settings(max_examples=scaled(120), deadline=None)
@given(st.integers(0, 2**32))
def test_starts_go_on_with_equal_values(seed):
    rnd = random.Random(seed)
    steps = drawn_steps(rnd)
    within = rnd.choice([None, 2, 5, 9])
    text = text_of(steps, within, rnd.choice(["RECENT", "RECENT", "ALL"]))
    note(text)
    query = cer_gpu.compile(text, time_column="ts", time_unit="s")
    rows, ts = [], 0
    for _ in range(rnd.choice([6, 50])):
        ts += rnd.choice([0, 0, 1, 2])
        event = {"type": rnd.choice("AABBCD"), "ts": ts}
        event |= {name: rnd.choice([0, 1, 1, 2, 2, None]) for name in "xy"}
        event["v"] = rnd.choice([0.0, -0.0, 1.0, 2.0, float("nan"), None])
        rows.append(event)
    schema = pa.schema([("type", pa.string()), ("ts", pa.int64()), ("x", pa.int64()), ("y", pa.int16())])
    table = pa.Table.from_pylist(rows, schema.append(pa.field("v", pa.float64())))
    expected = ref.keyed_progress(steps, rows, within)
    found = query.evaluate(table, output="funnel")
    assert [ref.Progress(tuple(r["positions"]), r["stopped"], r["barred_by"]) for r in found.to_pylist()] == expected
    with small_sizes():
        evaluator, pieces, begin = query.evaluator(output="funnel"), [], 0
        while begin < table.num_rows:
            n = rnd.randint(1, 12)
            pieces += [evaluator.push(batch) for batch in table.slice(begin, n).combine_chunks().to_batches()]
            begin += n
            if rnd.random() < 0.3:
                evaluator = query.restore(evaluator.checkpoint())
        pieces.append(evaluator.finish())
    assert pa.Table.from_batches(pieces).to_pylist() == found.to_pylist()
    assert query.evaluate(table, output="funnel", threads=2).to_pylist() == found.to_pylist()
    others = {"one": text, "other": "SELECT RECENT * FROM S WHERE A ; B PARTITION BY [x]"}
    together = cer_gpu.compile_all(others, time_column="ts", time_unit="s").evaluate(table, output="funnel")
    assert together["one"].to_pylist() == found.to_pylist()


@settings(max_examples=scaled(300), deadline=None)
@given(st.integers(0, 2**32))
def test_starts_go_on_with_events_that_pass_the_join_predicates(seed):
    rnd = random.Random(seed)
    query = drawn.Drawn(rnd, lengths=False).query
    lengths = [None, *((kind, rnd.randint(0, 12)) for kind in ("events", "time", "attribute"))]
    query = replace(query, selected=None, trailing=(), lasts=None, consume="NONE", within=rnd.choice(lengths))
    text = drawn.text_of(query).replace("SELECT RECENT", rnd.choice(["SELECT", "SELECT RECENT"]))
    note(text)
    compiled = cer_gpu.compile(text, time_column="ts", time_unit="s")
    stream = drawn.stream_of(rnd, 40)
    table = drawn.table_of(stream)
    found = compiled.evaluate(table, output="funnel")
    rows = [ref.Progress(tuple(r["positions"]), r["stopped"], r["barred_by"]) for r in found.to_pylist()]
    assert rows == ref.tested_progress(query, stream)
    with small_sizes():
        evaluator, pieces, begin = compiled.evaluator(output="funnel"), [], 0
        while begin < table.num_rows:
            n = rnd.randint(1, 12)
            pieces += [evaluator.push(batch) for batch in table.slice(begin, n).combine_chunks().to_batches()]
            begin += n
            if rnd.random() < 0.3:
                evaluator = compiled.restore(evaluator.checkpoint())
        pieces.append(evaluator.finish())
    assert pa.Table.from_batches(pieces).to_pylist() == found.to_pylist()
    assert compiled.evaluate(table, output="funnel", threads=2).to_pylist() == found.to_pylist()
    others = {"one": text, "other": "SELECT * FROM S WHERE A ; B PARTITION BY [g]"}
    together = cer_gpu.compile_all(others, time_column="ts", time_unit="s").evaluate(table, output="funnel")
    assert together["one"].to_pylist() == found.to_pylist()


def test_keys_of_texts_and_of_partition_by():
    table = pa.table(
        {
            "type": list("AABBAB"),
            "host": ["h", "i", "h", "i", None, "h"],
            "x": pa.array(["u", "u", None, "u", "u", "u"]).dictionary_encode(),
            "y": ["-", "-", "u", "w", "u", "u"],
        }
    )
    query = cer_gpu.compile("SELECT RECENT * FROM S WHERE A AS a ; B AS b FILTER b.y = a.x PARTITION BY [host]")
    found = query.evaluate(table, output="funnel")
    assert found.select(["host", "positions", "stopped"]).to_pylist() == [
        {"host": "h", "positions": [0, 2], "stopped": "complete"},
        {"host": "i", "positions": [1], "stopped": "end"},
    ]
