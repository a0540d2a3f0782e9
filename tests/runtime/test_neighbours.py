"""Chains of neighbours under PARTITION BY: the rows of the automaton, at any cut, and little memory."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from cases import by_automaton, sorted_rows
from sizes import scaled, seeds
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.physical import physical_plan


def random_query(rng: random.Random) -> tuple[str, dict[str, str]]:
    """Return a chain of neighbours, of types or of filters that overlap, with its clauses and options."""
    steps = []
    for i in range(rng.randint(2, 6)):
        kinds = rng.choices("ABC", k=rng.choice([1, 1, 2]))
        step = f"({' OR '.join(sorted(set(kinds)))})"
        steps.append(f"({step} AS x{i})" if rng.random() < 0.5 else step)
    filters = [f"x{i}[v {rng.choice(['<', '>=', '<>'])} 2]" for i, step in enumerate(steps) if f"x{i}" in step]
    strict = rng.random() < 0.2
    where = (" ; " if strict else " : ").join(steps)
    where += f" FILTER {' AND '.join(filters)}" if filters else ""
    windows = ["", f"WITHIN {rng.randint(0, 6)} EVENTS", f"WITHIN {rng.randint(0, 9)} [t]", "WITHIN 2 [f]",
               f"WITHIN {rng.randint(0, 20)} SECONDS"]  # fmt: skip
    window, consume = rng.choice(windows), rng.choice(["", "", "CONSUME BY PARTITION", "CONSUME BY ANY"])
    limit = rng.choice(["", "", "LIMIT 1"])
    timed = {"time_column": "t", "time_unit": "s"} if "SECONDS" in window or rng.random() < 0.5 else {}
    select = "STRICT *" if strict else "*"
    return f"SELECT {select} FROM S WHERE {where} PARTITION BY [k] {window} {consume} {limit}", timed


def random_events(rng: random.Random) -> pa.Table:
    """Return events, partition by partition or not; some have no key."""
    n = rng.randint(1, 80)
    times = [0.0]
    for _ in range(n):
        times.append(times[-1] + rng.choice([0, 0, 1, 2]))
    keys = [rng.choice([1, 2, 3, 4, None]) for _ in range(n)]
    keys = sorted(keys, key=lambda key: key or 0) if rng.random() < 0.5 else keys
    columns = {
        "type": pa.array(rng.choices("ABCABCABCD", k=n), pa.string()),
        "v": pa.array([rng.choice([0, 1, 2, 3, None]) for _ in range(n)], pa.int64()),
        "t": pa.array([int(time) for time in times[:n]], pa.int64()),
        "f": pa.array([time / 2 for time in times[:n]], pa.float64()),
        "k": pa.array(keys, pa.int64()),
    }
    return pa.table(columns)


def in_pieces(query: cer_gpu.Query, events: pa.Table, rng: random.Random, output: str) -> pa.Table:
    """Push a few events at a time, and at times go on from a checkpoint."""
    evaluator, pieces, row = query.evaluator(output=output), [], 0
    while row < len(events):
        length = rng.randint(1, 9)
        pieces += [evaluator.push(batch) for batch in events.slice(row, length).to_batches()]
        if rng.random() < 0.3:
            evaluator = query.restore(evaluator.checkpoint())
        row += length
    return pa.Table.from_batches([*pieces, evaluator.finish()], query.output_schema(events.schema, output))


@pytest.mark.parametrize("seed", seeds(scaled(30)))
def test_neighbours_give_the_rows_of_the_automaton(seed):
    rng = random.Random(seed)
    (text, options), events = random_query(rng), random_events(rng)
    query = cer_gpu.compile(text, **options)
    output = rng.choice(["positions", "bindings", "events", "count", "ends"])
    expected = by_automaton(query).evaluate(events, output=output, threads=1)
    with small_sizes():
        assert query.evaluator(output=output).physical.runtime.startswith("neighbour") or output in ("bindings", "ends")
        found = query.evaluate(events, output=output, threads=1)
        assert sorted_rows(found) == sorted_rows(expected)
        assert found["end"].to_pylist() == expected["end"].to_pylist()
        assert in_pieces(query, events, rng, output).equals(found)


@pytest.mark.parametrize("output", ["positions", "count"])
def test_shares_of_the_keys_are_those_of_the_whole(output):
    rng = random.Random(1)
    n = 3000
    events = pa.table({"type": rng.choices("ABD", k=n), "k": [rng.randrange(40) for _ in range(n)]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A : B : A PARTITION BY [k]")
    whole = query.evaluate(events, output=output, threads=1)
    assert whole.num_rows > 50
    assert query.evaluate(events, output=output, threads=2).equals(whole)
    parts = [query.evaluate(events, output=output, shard=(k, 3)) for k in range(3)]
    assert pa.concat_tables(parts).sort_by("end").equals(whole)


@pytest.mark.parametrize(("text", "output", "runtime"), [
    ("A : B PARTITION BY [k]", "positions", "neighbours"),
    ("A : B PARTITION BY [k]", "count", "neighbour_counter"),
    ("A : B : C PARTITION BY [k] WITHIN 9 EVENTS", "events", "neighbours"),
    ("A : B ; C PARTITION BY [k] WITHIN 9 EVENTS", "positions", "keyed_stacks"),
    ("A : B ; C PARTITION BY [k]", "positions", "automaton"),
    ("A : B", "positions", "automaton"),
    ("A : B WITHIN 9 EVENTS", "positions", "stacks"),
])  # fmt: skip
def test_neighbours_have_a_runtime_under_partition_by(text, output, runtime):
    plan = cer_gpu.compile(f"SELECT * FROM S WHERE {text}")._plan
    assert physical_plan(plan, OUTPUTS[output]).runtime == runtime


def test_what_no_neighbour_followed_takes_no_memory():
    """200,000 events begin something in each of 50 partitions; one of each is kept."""
    n = 200_000
    events = pa.table({"type": ["A"] * n, "k": [i // 7 % 50 for i in range(n)]})
    evaluator = cer_gpu.compile("SELECT * FROM S WHERE A : A : B PARTITION BY [k]").evaluator()
    for batch in events.to_batches(max_chunksize=10_000):
        assert evaluator.push(batch).num_rows == 0
    assert evaluator.pipeline.runtime._rows.nbytes < 10_000


def test_a_long_chain_fills_all_bits():
    types = ["A"] * 70
    events = pa.table({"type": types, "k": [1] * 70})
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {' : '.join(['A'] * 64)} PARTITION BY [k]")
    assert query.evaluator().physical.runtime == "neighbours"
    assert query.evaluate(events)["positions"].to_pylist() == [list(range(k, k + 64)) for k in range(7)]
