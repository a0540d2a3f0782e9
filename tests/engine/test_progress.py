"""The output "funnel": how far each start of a chain gets, by the definition, in any cut, set and order."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace
from unittest import mock

import pyarrow as pa
import pytest
import reference as ref
import reference_progress as reference
import rest_strategies as rest
import strategies
from answers import with_and_without_checkpoints
from cases import Case, CaseOfStreams, assert_same, plain, pushed
from hypothesis import assume
from hypothesis import strategies as st
from sizes import scaled, seeds
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.errors import OptionError
from cer_gpu.parallel import key_threads

steps = rest.single_events(rest.Scope(), False)


@st.composite
def chains(draw):
    """Draw a chain of one to five steps, with arrows, absences, neighbours and counted repetitions."""
    formula = draw(steps)
    for _ in range(draw(st.sampled_from([2, 1, 3, 0, 4]))):
        shape = draw(st.sampled_from(["seq", "seq", "next", "absent", "absent", "times", "contig"]))
        right = draw(steps)
        if shape == "times":
            least, more = draw(st.integers(1, 2)), draw(st.sampled_from([0, 0, 1, None]))
            joint = draw(st.sampled_from([";", "->", ";", "->", ":"]))
            right = ref.Times(right, least, None if more is None else least + more, joint)
            if joint == ";" and (more is None or least + more > 1) and draw(st.booleans()):
                right = replace(right, until=draw(rest.absences(rest.Scope(), False))[:1])
        if shape == "next":
            formula = ref.Next(formula, right, draw(st.just(()) | rest.absences(rest.Scope(), False)))
        elif shape == "contig":
            formula = ref.Contig(formula, right)
        else:
            formula = ref.Seq(formula, right, draw(rest.absences(rest.Scope(), False)) if shape == "absent" else ())
    return formula


@st.composite
def cases(draw, stream_for=strategies.streams):
    query = draw(strategies.queries(formula=chains(), conditions=strategies.likely_conditions))
    query = replace(query, partition_by=draw(st.just(()) | strategies.partition_keys()))
    repeats = any(isinstance(node, ref.Times) and node.least != node.most for node in ref.descendants(query.formula))
    if not repeats and draw(st.integers(0, 2)) == 0:  # by the clock of WITHIN
        kind, *others = query.within or ("events", 3)
        length = draw(strategies.lengths) * (1000 if kind == "time" else 1)
        query = replace(query, each_step=(kind, length, *others[1:]))
    stream = draw(stream_for(query, 30))
    return query, [{**event, ref.STREAM: query.streams[0]} for event in stream]


def rows_of(table):
    columns = (table[name].to_pylist() for name in ("positions", "stopped", "barred_by"))
    return [reference.Progress(tuple(p), stopped, by) for p, stopped, by in zip(*columns, strict=True)]


def assert_right(case, answer):
    """Check the rows, and that steps, times and keys are those of the positions."""
    answer.validate(full=True)
    assert rows_of(answer) == reference.progress(case.query, case.events)
    positions = answer["positions"].to_pylist()
    assert answer["start"].to_pylist() == [p[0] for p in positions]
    assert answer["step"].to_pylist() == [len(p) for p in positions]
    if case.time_column:
        stamps = case.whole[case.time_column]
        assert answer.schema.field("times").type == pa.list_(stamps.type)
        assert answer["times"].to_pylist() == [stamps.take(pa.array(p)).to_pylist() for p in positions]
    keys = [ref.partition_key(case.query, case.events[p[0]]) for p in positions]
    for k, names in enumerate(case.query.partition_by):
        assert len(answer[names[0]]) == len(keys)
        groups = {}
        for key, value in zip(keys, plain(answer[names[0]].to_pylist()), strict=True):
            assert groups.setdefault(key[k], value) == value


@strategies.property_test(1)
def test_progress_is_that_of_the_definition_in_any_cut(data):
    case = Case(data, cases())
    answer = case.compiled.evaluate(case.whole, output="funnel")
    assert_right(case, answer)
    assert_same(pushed(case.compiled, case.batches, output="funnel"), answer)
    assert_same(case.compiled.evaluate(case.table, output="funnel", threads=2), answer)


@strategies.property_test(0.5)
def test_checkpoints_and_small_sizes_give_the_same(data):
    case = Case(data, cases())
    answer = case.compiled.evaluate(case.whole, output="funnel")
    with small_sizes():
        assert_same(*with_and_without_checkpoints(data, case, "funnel"))
        assert_same(pushed(case.compiled, case.batches, output="funnel"), answer)


@strategies.property_test(0.3)
def test_shares_deal_the_starts(data):
    case = Case(data, cases())
    n = data.draw(st.integers(2, 3), label="shares")
    whole = rows_of(case.compiled.evaluate(case.whole, output="funnel"))
    for k in range(n):
        with small_sizes():
            part = case.compiled.evaluate(case.table, output="funnel", shard=(k, n))
        assert rows_of(part) == whole[k::n]


# ------------------------------------------------------------------------------ sets, orders, streams, and the clock

TEXTS = (
    "SELECT * FROM S WHERE A ; B ; C PARTITION BY [k] WITHIN 40 [ts]",
    "SELECT * FROM S WHERE A ; !D ; B ; C PARTITION BY [k] WITHIN 5 EVENTS",
    "SELECT * FROM S WHERE (A OR B) AS x ; !D ; C{2} FILTER x[n > 3] PARTITION BY [k]",
    "SELECT * FROM S WHERE A -> B -> C WITHIN 30 EVENTS",
    "SELECT * FROM S WHERE A ; !(B AS x FILTER x[n < 2]) ; D WITHIN 0.02 SECONDS",
)


def random_events(rng, n=200):
    return pa.table(
        {
            "type": pa.array(rng.choices("ABCD", k=n), pa.string()),
            "ts": pa.array(sorted(rng.choices(range(3 * n), k=n)), pa.int64()),
            "k": pa.array(rng.choices([1, 2, 3, None], k=n), pa.int64()),
            "n": pa.array(rng.choices(range(9), k=n), pa.int64()),
        }
    )


def compiled(text):
    return cer_gpu.compile(text, time_column="ts", time_unit="ms")


def cut(rng, table):
    begin = 0
    while begin < len(table):
        n = rng.randint(1, 40)
        yield from table.slice(begin, n).combine_chunks().to_batches()
        begin += n


@pytest.mark.parametrize("seed", seeds(scaled(3, most=60)))
def test_a_set_gives_the_rows_of_each_query_alone(seed):
    rng = random.Random(seed)
    events = random_events(rng)
    together = cer_gpu.compile_all({str(i): text for i, text in enumerate(TEXTS)}, time_column="ts", time_unit="ms")
    with small_sizes():
        found = together.evaluate(events, output="funnel", threads=rng.choice([1, 2]))
    for i, text in enumerate(TEXTS):
        assert_same(found[str(i)], compiled(text).evaluate(events, output="funnel"))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", seeds(scaled(2, most=60)))
def test_sorted_and_late_events_give_the_rows_in_order(text, seed):
    """Positions are rows of the input as it came; their order is that of time."""
    rng = random.Random(seed)
    events, query = random_events(rng), compiled(text)
    expected = query.evaluate(events, output="funnel")
    places = sorted(range(len(events)), key=lambda i: events["ts"][i].as_py() + rng.randint(0, 9))
    jumbled = events.take(places).append_column("at", pa.array(places))
    in_order = jumbled.sort_by([("ts", "ascending")])["at"].to_pylist()  # rows of equal times as they came
    expected = compiled(text).evaluate(events.take(in_order), output="funnel")
    row_at = [places.index(at) for at in in_order]

    def moved(rows):
        return [
            {
                **row,
                "start": row_at[row["start"]],
                "positions": [row_at[p] for p in row["positions"]],
                "barred_by": None if row["barred_by"] is None else row_at[row["barred_by"]],
            }
            for row in rows
        ]

    jumbled = jumbled.drop_columns(["at"])
    assert query.evaluate(jumbled, output="funnel", sort=True).to_pylist() == moved(expected.to_pylist())
    evaluator = query.evaluator(output="funnel", lateness=9)
    rows = [row for batch in cut(rng, jumbled) for row in evaluator.push(batch).to_pylist()]
    assert rows + evaluator.finish().to_pylist() == moved(expected.to_pylist())


@pytest.mark.parametrize("seed", seeds(scaled(3, most=60)))
def test_rows_come_when_time_makes_them_known(seed):
    rng = random.Random(seed)
    query, events = compiled(TEXTS[0]), random_events(rng)
    expected = query.evaluate(events, output="funnel").to_pylist()
    evaluator, rows, n = query.evaluator(output="funnel"), [], 0
    assert evaluator.next_deadline is None
    for batch in cut(rng, events):
        rows += evaluator.push(batch).to_pylist()
        n += batch.num_rows
        time = batch["ts"][-1].as_py()
        beyond = time + 41 if n == len(events) else events["ts"][n].as_py()
        waits = [row for row in expected[len(rows) :] if row["start"] < n]
        if waits:
            assert evaluator.next_deadline <= waits[0]["times"][0] + 41
        early = evaluator.advance_watermark(beyond).to_pylist()
        assert all(row["times"][0] < beyond - 40 or row["stopped"] in ("complete", "barred") for row in early[:1])
        rows += early
        assert evaluator.next_deadline is None or evaluator.next_deadline > beyond
    rows += evaluator.finish().to_pylist()
    # a promise about time is as good as an event: what it ends has left its window
    assert [{**row, "stopped": "window"} if row["stopped"] == "end" else row for row in expected] == rows


@strategies.property_test(0.1)
def test_several_streams_give_the_reference(data):
    case = CaseOfStreams(data, strategies.cases_of_several_streams(formula=chains()))
    assume(not any(isinstance(part, ref.Plus) for part in ref.descendants(case.query.formula)))
    query = replace(case.query, strategy="ALL", consume="NONE", select="*", brackets=())
    case.query = query
    case.write(data, timed=True)
    answer = case.in_order(case.compiled.evaluate(case.tables, output="funnel"))
    assert rows_of(answer) == reference.progress(query, case.events)


# ------------------------------------------------------------------------------------------------------ windowFunnel


@pytest.mark.parametrize("seed", seeds(scaled(30, most=3000)))
def test_the_longest_of_each_user_is_clickhouse_s_window_funnel(seed):
    """Times that rise, and conditions of which a row satisfies one: there both say the same."""
    rng = random.Random(seed)
    n, n_steps, window = rng.randint(0, 60), rng.randint(1, 4), rng.choice([1, 5, 20, 100])
    times = list(itertools.accumulate(rng.randint(1, 4) for _ in range(n)))
    types, users = rng.choices("ABCDE", k=n), rng.choices([1, 2, 3], k=n)
    text = f"SELECT * FROM S WHERE {' ; '.join('ABCD'[:n_steps])} PARTITION BY [user] WITHIN {window} [ts]"
    events = pa.table(
        {
            "type": pa.array(types, pa.string()),
            "ts": pa.array(times, pa.int64()),
            "user": users or pa.array([], pa.int64()),
        }
    )
    answer = compiled(text).evaluate(events, output="funnel")
    longest = dict.fromkeys(users, 0)
    for user, step in zip(answer["user"].to_pylist(), answer["step"].to_pylist(), strict=True):
        longest[user] = max(longest[user], step)
    for user in longest:
        rows = [
            (t, [e == step for step in "ABCD"[:n_steps]])
            for t, e, u in zip(times, types, users, strict=True)
            if u == user
        ]
        assert longest[user] == reference.window_funnel(window, rows)


def test_window_funnel_by_hand():
    a, b, both = (True, False), (False, True), (True, True)
    assert reference.window_funnel(5, [(0, a), (5, b)]) == 2
    assert reference.window_funnel(4, [(0, a), (5, b)]) == 1
    assert reference.window_funnel(5, [(0, b), (1, a)]) == 1
    assert reference.window_funnel(5, []) == 0
    # one row may be two conditions there, and rows of one time are read in the order of the conditions: not here
    assert reference.window_funnel(5, [(0, both)]) == 2
    assert reference.window_funnel(5, [(0, b), (0, a)]) == 2
    events = pa.table({"type": ["B", "A"], "ts": [0, 0]})
    answer = compiled("SELECT * FROM S WHERE A ; B WITHIN 5 [ts]").evaluate(events, output="funnel")
    assert answer["step"].to_pylist() == [1]


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT * FROM S WHERE A ; B* ; C", "a step may be missing"),
        ("SELECT * FROM S WHERE A ; B{1,2} ; C WITHIN 5 EVENTS EACH STEP", "a repeated step may reach on"),
        ("SELECT * FROM S WHERE A ; B? ; C", "a step may be missing"),
        ("SELECT * FROM S WHERE A ALL B", "its events come in any order"),
        ("SELECT * FROM S WHERE A ; (B OR C ; D)", "a step is more than one event"),
        ("SELECT * FROM S WHERE A ; !B WITHIN 5 EVENTS", "it ends with an absence"),
        ("SELECT * FROM S WHERE A : ((B ; C) OR D)", "OR is between longer parts"),
        ("SELECT * FROM S WHERE A ; (A OR B) AS b FILTER b.k > LAST(A).k", "only some alternatives of a step"),
        ("SELECT * FROM S WHERE A ; B WITHIN 9 EVENTS, 5 [n] EACH STEP", "measured by another clock"),
        ("SELECT * FROM S WHERE A ; (B ; C WITHIN 3 EVENTS)", "a window within the pattern"),
        ("SELECT MAX * FROM S WHERE A ; B", "it has SELECT MAX"),
        ("SELECT ANY * FROM S WHERE A ; B", "it has SELECT ANY"),
        ("SELECT * FROM S WHERE A ; B CONSUME BY ANY", "it has CONSUME BY ANY"),
        ("SELECT * FROM S WHERE A ; B LIMIT 1", "it has LIMIT"),
        ("SELECT A.n AS n FROM S WHERE A ; B", "it has measures"),
        ("SELECT A FROM S WHERE A ; B HAVING A.n > 1", "it has HAVING"),
        ("Q(x) <- A(k = x), B(k = x)", "it is a conjunctive query"),
        ("SELECT * FROM S WHERE " + " ; ".join("A" * 65), "it has more than 64 steps"),
    ],
)
def test_what_is_no_funnel_is_refused_by_name(text, reason):
    query = cer_gpu.compile(text)
    events = random_events(random.Random(0))
    with pytest.raises(OptionError, match=re.escape(reason)):
        query.evaluate(events, output="funnel")


@pytest.mark.parametrize(
    ("clauses", "exact"),
    [
        ("PARTITION BY [k] WITHIN 40 [ts]", {"broadcast"}),  # an event of another key may pass the window
        ("PARTITION BY [k] WITHIN 5 EVENTS", {"key", "broadcast"}),
        ("PARTITION BY [k]", {"key", "broadcast"}),
        ("WITHIN 5 EVENTS", {"broadcast"}),
    ],
)
def test_tasks_are_dealt_what_is_exact(clauses, exact):
    query = compiled(f"SELECT * FROM S WHERE A ; B {clauses}")
    ways = query.distribution_for("funnel").tasks
    assert {name for name, against in ways.items() if against is None} == exact


@pytest.mark.parametrize("clauses", ["PARTITION BY [k] WITHIN 40 [ts]", "PARTITION BY [k]"])
def test_threads_by_key_give_the_order_of_one(clauses):
    """A thread holds starts back whose successors another has handed over; what is merged is in order all the same."""
    rng = random.Random(5)
    events = random_events(rng, 3000)
    query = compiled(f"SELECT * FROM S WHERE A ; !D ; B ; C {clauses}")
    assert query.distribution_for("funnel").threads == "key"
    with mock.patch.object(key_threads, "KEY_BATCH_ROWS", 100):
        found = query.evaluate(events, output="funnel", threads=2)
        limited = query.evaluate(events, output="funnel", threads=2, limit=70)
    assert_same(found, query.evaluate(events, output="funnel", threads=1))
    assert_same(limited, found.slice(0, 70))
    assert found["start"].to_pylist() == sorted(found["start"].to_pylist())


def test_the_rows_of_an_example():
    events = pa.table(
        {
            "type": ["view", "cart", "view", "logout", "cart", "pay", "view"],
            "user": [1, 1, 2, 2, 2, 1, 1],
            "ts": [0, 10, 12, 15, 20, 25, 70],
        }
    )
    query = cer_gpu.compile(
        "SELECT * FROM S WHERE view ; !logout ; cart ; pay PARTITION BY [user] WITHIN 60 [ts]", time_column="ts"
    )
    assert query.evaluate(events, output="funnel").to_pylist() == [
        {
            "start": 0,
            "user": 1,
            "step": 3,
            "positions": [0, 1, 5],
            "times": [0, 10, 25],
            "stopped": "complete",
            "barred_by": None,
        },
        {"start": 2, "user": 2, "step": 1, "positions": [2], "times": [12], "stopped": "barred", "barred_by": 3},
        {"start": 6, "user": 1, "step": 1, "positions": [6], "times": [70], "stopped": "end", "barred_by": None},
    ]


def test_partitions_and_texts_that_hold_nothing_are_dropped():
    """Starts that the window has ended keep no memory, however many keys come by."""
    n = 200_000
    events = pa.table({"type": ["A", "B"] * (n // 2), "ts": range(n), "k": [f"key {i // 4}" for i in range(n)]})
    query = compiled("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 10 [ts]")
    evaluator = query.evaluator(output="funnel")
    blobs, n_rows = [], 0
    for batch in events.to_batches(max_chunksize=20_000):
        n_rows += evaluator.push(batch).num_rows
        blobs.append(len(evaluator.checkpoint()))
    assert n_rows + evaluator.finish().num_rows == n // 2
    assert blobs[-1] < 2 * max(blobs[:4])
