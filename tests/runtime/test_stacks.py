"""Chains by stacks: which patterns are chains, and the same rows as from the automaton and from the definitions."""

from __future__ import annotations

import random
import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from cases import by_automaton, sorted_rows
from sizes import scaled, seeds
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.automaton.chain import Chain, ChainStep


def is_chain(pattern: str, clauses: str = "", select: str = "*", **options) -> bool:
    plan = cer_gpu.compile(f"SELECT {select} FROM S WHERE {pattern} {clauses}", **options)._plan
    return plan.chain is not None and plan.strategy.on_chains


@pytest.mark.parametrize(
    "pattern",
    [
        "A ; B",
        "A ; (B ; C) ; D",
        "A+ ; B",
        "A ; B+ ; C",
        "A ; A+ ; A",
        "(A OR B) ; (C OR B)+ ; A",
        "A ; B+ ; C+ ; D",
        "A ; B AS x ; C FILTER x[v > 1 OR v < 0]",
        "A ; B ; A+ FILTER B[v > 1]",
        "A -> B -> C",
        "A ; !D ; C",
        "A ; !(D AS d FILTER d[v > 1]) ; !C ; B+",
        "A ; B{3,5} ; C",
        "A{2} ; A{1,3} ; A",
        "A ; B ->+ ; C",
        "A -> B{2,4}",
        "(A -> B AS b) FILTER b[v > 1]",
    ],
)
def test_sequences_and_repeated_steps_are_chains(pattern):
    assert is_chain(pattern)
    assert is_chain(pattern, "WITHIN 3 EVENTS")
    for select, clauses in (("*", "CONSUME BY ANY"), ("*", "LIMIT 2"), ("ANY *", ""), ("*", "PARTITION BY [k]")):
        assert is_chain(pattern, clauses, select)
    for select in ("NEXT *", "MAX *", "NONE"):
        assert not is_chain(pattern, select=select)


@pytest.mark.parametrize(
    "pattern",
    [
        "A",
        "A : B",
        "A : B ->{2,4}",
        "A ; NOT(B) : C",
        "A ; B :+ ; C",
        "(A ; B)+ ; C",
        "(A ; B) OR C",
        "A ; (B ; C OR D) ; E",
        "A ; B+ ; (B OR C)+ ; D",  # a B may be at either step
        "A ; B+ ; B ; B+",
        "A ; B{1,2} ; B{1,2}",
        "A ; B? ; C",
        "A ; (B? ; C)",
        "A :{2,3} ; B",
        "A -> B ->{2,4}",  # an event may have too many before it that do
        "(A ; B ->+ AS b) FILTER b[v > 1]",  # a B that is not of the step bars it
        "A ; !(D AS d FILTER d.v > A.v) ; C",
        "A -> NOT(B)",
    ],
)
def test_other_patterns_are_no_chains(pattern):
    assert not is_chain(pattern)


@pytest.mark.parametrize(
    "pattern", ["A : B", "A : (B ; C) : (A OR D) ; B+ ; C", "A : B+", "A ; B+ : C ; D", "A{2,3} : B+ : C ->+"]
)
def test_neighbours_need_a_window_to_be_a_chain(pattern):
    assert is_chain(pattern, "WITHIN 3 EVENTS")
    assert not is_chain(pattern, "CONSUME BY ANY")
    assert not is_chain(pattern, "WITHIN 3 EVENTS", "NEXT *")


def test_strict_chains_are_of_neighbours():
    assert is_chain("A ; B : C", "WITHIN 3 EVENTS", "STRICT *")
    assert not is_chain("A ; B", select="STRICT *")
    assert not is_chain("A ; B+ ; C", "WITHIN 3 EVENTS", "STRICT *")


def test_an_event_between_that_is_not_selected_makes_no_chain():
    assert not is_chain("A ; B ; C", select="A, C")
    assert is_chain("A ; B ; C", select="A, C, B")


def test_evaluators_of_a_chain_name_their_engine():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    assert [query.evaluator(output=output).engine for output in ("positions", "events", "count")] == [
        "stacks", "stacks", "counter"]  # fmt: skip
    assert query.evaluator(shard=(0, 2)).engine == "automaton"
    assert query.evaluator(shard=(0, 2), output="count").engine == "counter"


def test_streams_tell_steps_apart():
    assert not is_chain("A+ ; A+ ; B")
    assert cer_gpu.compile("SELECT * FROM S, T WHERE S>A+ ; T>A+ ; B", time_column="t")._plan.chain is not None


def test_symbols_are_sets_of_steps():
    a, b, c = (ChainStep(guards, False, frozenset("x")) for guards in ((0,), (1, 2), (0,)))
    chain = Chain((a, b, c))
    assert [chain.symbol(word) for word in (0, 1, 2, 4, 3, 8, 9)] == [0, 1, 2, 2, 3, 0, 1]
    assert chain.steps_of[:4].tolist() == [[-1, -1, -1, -1], [2, 0, -1, -1], [1, -1, -1, -1], [2, 1, 0, -1]]
    other = Chain((a, b, c))
    other.restore(chain.snapshot())
    assert other.symbol(3) == 3


def random_query(rng: random.Random) -> tuple[str, str]:
    """Return WHERE and the clauses after it: chains, often with overlapping steps, neighbours, counts and absences."""
    n = rng.randint(2, 5)
    several = rng.random() < 0.3
    steps, filters = [], []
    for i in range(n):
        kinds = [f"{'ABCDE'[i] if several else rng.choice('ABC')}"]
        if rng.random() < 0.2 and not several:
            kinds.append(rng.choice("ABC"))
        step = f"({' OR '.join(kinds)})" if len(kinds) > 1 else kinds[0]
        if rng.random() < 0.4 if several else i == n // 2 and rng.random() < 0.6:
            step += rng.choice(["+", "+", "{1,2}", "{2,}", "{2,3}", " ->+", " ->{2,}"])
        elif rng.random() < 0.1:
            step += "{2}"
        if rng.random() < 0.4 and step[0] != "(" and "->" not in step:
            step = f"({step} AS x{i})"
            filters.append(f"x{i}[v {rng.choice(['<', '>=', '<>'])} {rng.randint(0, 3)}]")
        steps.append(step)
    window = rng.choice(["", f"WITHIN {rng.randint(0, 12)} EVENTS", f"WITHIN {rng.randint(0, 9)} SECONDS",
                         f"WITHIN {rng.randint(0, 9)} [t]", f"WITHIN {rng.randint(0, 9)} [f]"])  # fmt: skip
    where = steps[0]
    for step in steps[1:]:
        joined = [" ; ", " ; ", " ; ", " -> ", f" ; !{rng.choice('ABCD')} ; "] + [" : ", " : "] * bool(window)
        where += f"{rng.choice(joined)}{step}"
    where += f" FILTER {' AND '.join(filters)}" if filters else ""
    return where, window if rng.random() < 0.6 else f"PARTITION BY [k] {window}"


def random_events(rng: random.Random, n: int) -> pa.Table:
    steps = [rng.choice([0, 0, 1, 1, 2, 9]) for _ in range(n)]
    times = np.cumsum(steps)
    types = rng.choices("ABCDE", k=n)
    values = [rng.choice([0, 1, 2, 3, None]) for _ in range(n)]
    keys = rng.choices([1, 1, 2, 3, None], k=n)
    names = ("v", "t", "k")
    schema = pa.schema([("type", pa.string()), *((name, pa.int64()) for name in names), ("f", pa.float64())])
    return pa.table([types, values, times, keys, times / 2], schema=schema)


@pytest.mark.parametrize("seed", seeds(scaled(30)))
def test_stacks_list_the_rows_of_the_automaton(seed):
    rng = random.Random(seed)
    where, window = random_query(rng)
    # without a window the complex events of a long stream are too many
    events = random_events(rng, rng.randint(0, 14) if "WITHIN" not in window else rng.randint(0, 60))
    output = rng.choice(["positions", "bindings", "events"])
    timed = {"time_column": "t", "time_unit": "s"} if "SECONDS" in window or rng.random() < 0.5 else {}
    select = (
        "STRICT *" if not any(sign in where for sign in "+{") and "WITHIN" in window and rng.random() < 0.3 else "*"
    )
    query = cer_gpu.compile(f"SELECT {select} FROM S WHERE {where} {window}", **timed)
    assert query._plan.chain is not None
    with small_sizes():
        expected = by_automaton(query).evaluate(events, output=output, threads=1)
        found = query.evaluate(events, output=output, threads=1)
        assert sorted_rows(found) == sorted_rows(expected)
        assert found["end"].to_pylist() == expected["end"].to_pylist()
        assert stepwise(query, events, rng, output).equals(found)


@pytest.mark.parametrize("seed", seeds(scaled(15)))
def test_limits_choose_and_consumption_forgets(seed):
    """The rows are some of those of the automaton without LIMIT or ANY, and as many at each end as there may be."""
    rng = random.Random(seed)
    where, window = random_query(rng)
    events = random_events(rng, rng.randint(0, 14) if "WITHIN" not in window else rng.randint(0, 60))
    output = rng.choice(["positions", "bindings", "events"])
    consume = rng.choice(["", "CONSUME BY ANY", "CONSUME BY PARTITION"])
    select, limit, most = rng.choice([("ANY *", "", 1), ("*", "LIMIT 1", 1), ("*", "LIMIT 4", 4), ("*", "", 2**63)])
    timed = {"time_column": "t", "time_unit": "s"} if "SECONDS" in window or rng.random() < 0.5 else {}
    all_of_them = cer_gpu.compile(f"SELECT * FROM S WHERE {where} {window} {consume}", **timed)
    query = cer_gpu.compile(f"SELECT {select} FROM S WHERE {where} {window} {consume} {limit}", **timed)
    assert query._plan.chain is not None
    with small_sizes():
        candidates = by_automaton(all_of_them).evaluate(events, output=output, threads=1)
        found = query.evaluate(events, output=output, threads=1)
        assert not Counter(sorted_rows(found)) - Counter(sorted_rows(candidates))
        assert found["end"].to_pylist() == [
            end for end, n in sorted(Counter(candidates["end"].to_pylist()).items()) for _ in range(min(n, most))
        ]
        assert stepwise(query, events, rng, output).equals(found)


@pytest.mark.parametrize("seed", seeds(scaled(15)))
def test_the_chain_counter_counts_as_the_automaton(seed):
    rng = random.Random(seed)
    where, window = random_query(rng)
    events = random_events(rng, rng.randint(0, 200))
    consume = rng.choice(["", "", "CONSUME BY ANY", "CONSUME BY PARTITION"])
    select, limit = rng.choice([("ANY *", ""), ("*", "LIMIT 3"), ("*", ""), ("*", "")])
    timed = {"time_column": "t", "time_unit": "s"} if "SECONDS" in window or rng.random() < 0.5 else {}
    query = cer_gpu.compile(f"SELECT {select} FROM S WHERE {where} {window} {consume} {limit}", **timed)
    with small_sizes():
        try:
            expected = by_automaton(query).evaluate(events, output="count", threads=1)
        except cer_gpu.EventsError as error:
            with pytest.raises(cer_gpu.EventsError, match=re.escape(str(error))):
                query.evaluate(events, output="count", threads=1)
            return
        found = query.evaluate(events, output="count", threads=1)
        assert found.equals(expected)
        assert stepwise(query, events, rng, "count").equals(found)
    dealt = pa.concat_tables(query.evaluate(events, output="count", shard=(k, 3)) for k in range(3))
    assert dealt.sort_by("end").equals(found)


def stepwise(query, events, rng, output):
    """Push a few events at a time, and at times go on from a checkpoint."""
    evaluator = query.evaluator(output=output)
    pieces, row = [], 0
    while True:
        length = rng.randint(0, 9)
        for batch in events.slice(row, length).to_batches() or [pa.RecordBatch.from_pylist([], events.schema)]:
            pieces.append(evaluator.push(batch))
        if rng.random() < 0.3:
            evaluator = query.restore(evaluator.checkpoint())
        row += length
        if row >= len(events):
            return pa.Table.from_batches([*pieces, evaluator.finish()], query.output_schema(events.schema, output))


def test_a_complex_event_that_no_buffer_holds_is_listed():
    with small_sizes():
        found = cer_gpu.compile(f"SELECT * FROM S WHERE {'A ; ' * 40} B").evaluate(
            pa.table({"type": ["A"] * 41 + ["B"]})
        )
    assert [len(p) for p in found["positions"].to_pylist()] == [41] * 41


@pytest.mark.parametrize(("window", "reach"), [("", 10**9), ("WITHIN 9 EVENTS", 9)])
def test_stacks_with_instances_far_apart_are_listed_whole(window, reach):
    """The instances of a partition lie hundreds of others apart, and are fetched ahead; plain Python finds the rows."""
    rng, n = random.Random(0), 20_000
    types, keys = rng.choices("AABZ", k=n), [rng.randrange(700) for _ in range(n)]
    starts: dict[int, list[tuple[int, int]]] = {}
    counts: Counter[int] = Counter()
    expected = []
    for row, (kind, key) in enumerate(zip(types, keys, strict=True)):
        counts[key] += 1
        if kind == "A":
            starts.setdefault(key, []).append((row, counts[key]))
        elif kind == "B":
            expected += [(start, row) for start, number in starts.get(key, []) if counts[key] - number <= reach]
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A ; B PARTITION BY [k] {window}")
    found = query.evaluate(pa.table({"type": types, "k": keys}), threads=1)
    assert query.evaluator().physical.runtime == "keyed_stacks"
    assert sorted(zip(found["start"].to_pylist(), found["end"].to_pylist(), strict=True)) == sorted(expected)
    assert found["end"].to_pylist() == sorted(found["end"].to_pylist())


def test_memory_stays_within_the_window():
    events = pa.table({"type": ["A", "B", "D", "D"] * 50_000})
    evaluator = cer_gpu.compile("SELECT * FROM S WHERE A ; B ; C WITHIN 100 EVENTS").evaluator()
    counter = cer_gpu.compile("SELECT * FROM S WHERE A ; B ; C WITHIN 100 EVENTS").evaluator(output="count")
    for batch in events.to_batches(max_chunksize=10_000):
        evaluator.push(batch)
        counter.push(batch)
    assert evaluator.pipeline.runtime._stacks.places.shape[1] == 1 << 12
    assert len(counter.pipeline.runtime._seen[0]) == 1 << 12


def test_consumed_events_free_their_memory():
    events = pa.table({"type": ["A", "B", "B", "C"] * 50_000, "i": range(200_000)})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B ; C CONSUME BY ANY")
    for output in ("positions", "events"):
        evaluator = query.evaluator(output=output)
        found = [evaluator.push(batch).num_rows for batch in events.to_batches(max_chunksize=10_000)]
        assert sum(found) == 100_000
        assert evaluator.pipeline.runtime._stacks.places.shape[1] == 1 << 12
