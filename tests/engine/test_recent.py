"""SELECT RECENT against its reference: random patterns and streams, every output, any cut into batches."""

import itertools
import random

import pyarrow as pa
import pytest
import recent_strategies as drawn
import reference_recent as ref
from cases import plain, sorted_rows
from hypothesis import example, given, note, settings
from hypothesis import strategies as st
from recent_cases import RecentCase
from sizes import scaled
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.errors import QueryTypeError

SEEDS = st.integers(0, 2**32)
OUTPUTS = ("positions", "bindings", "events", "rows", "count", "ends")


class Case(RecentCase):
    """A random query, compiled, and a random stream."""

    def __init__(self, seed, n=50):
        rnd = random.Random(seed)
        query = drawn.Drawn(rnd).query
        text = drawn.text_of(query)
        note(text)
        super().__init__(rnd, query, cer_gpu.compile(text, time_column="ts", time_unit="s"), n)

    @property
    def expected(self):
        """The rows of "bindings" as the reference writes them."""
        return ref.rows(self.query, self.stream, list(self.compiled.variables))


@settings(max_examples=scaled(250), deadline=None)
@given(SEEDS)
def test_engine_finds_what_the_definition_says(seed):
    case = Case(seed)
    assert case.found(case.compiled.evaluate(case.table, output="bindings")) == case.expected


@settings(max_examples=scaled(120), deadline=None)
@given(SEEDS, st.sampled_from(OUTPUTS))
@example(596, "ends")  # two that become known together, of which the later start has the earlier end
@example(596, "count")
@example(596, "bindings")
def test_every_output_is_the_same_for_every_cut(seed, output):
    case = Case(seed)
    whole, rows = case.compiled.evaluate(case.table, output=output), case.expected
    if output == "count":
        assert whole.select(["end", "count"]).to_pylist() == [{"end": row[1], "count": 1} for row in rows]
    else:
        wanted = "match" if output == "rows" else "end"
        kept = [row for row in rows if any(held for _, held in row[3])] if output == "rows" else rows
        numbers = list(dict.fromkeys(whole[wanted].to_pylist()))
        assert len(numbers) == len(kept)
        assert output == "rows" or numbers == [row[1] for row in rows]
    with small_sizes():
        pieces = case.pushed(output)
    assert pieces.schema == whole.schema
    assert plain(pieces.to_pylist()) == plain(whole.to_pylist())


@settings(max_examples=scaled(30), deadline=None)
@given(SEEDS)
def test_long_streams_in_small_memory(seed):
    case = Case(seed, 300)
    with small_sizes():
        assert case.found(case.pushed("bindings")) == case.expected


@settings(max_examples=scaled(60), deadline=None)
@given(SEEDS, st.sampled_from(["positions", "count"]))
def test_threads_shares_and_sets_find_the_same(seed, output):
    case = Case(seed)
    whole = case.compiled.evaluate(case.table, output=output)
    assert case.compiled.evaluate(case.table, output=output, threads=2).equals(whole)
    shares = [case.compiled.evaluate(case.table, output=output, shard=(k, 3)) for k in range(3)]
    assert sorted_rows(*shares) == sorted_rows(whole)
    others = {"one": case.compiled.text, "other": "SELECT RECENT * FROM S WHERE A ; B PARTITION BY [g]"}
    found = cer_gpu.compile_all(others, time_column="ts", time_unit="s").evaluate(case.table, output=output)
    assert found["one"].equals(whole)


@settings(max_examples=scaled(30), deadline=None)
@given(SEEDS)
def test_tasks_that_are_dealt_events_by_a_key_find_the_same(seed):
    cases = (Case(seed + n) for n in itertools.count())
    case = next(each for each in cases if each.compiled.distribution.shared and " EVENTS" not in each.compiled.text)
    column_of = dict(case.compiled.distribution.shared)
    table = case.table.append_column("id", pa.array(range(case.table.num_rows)))
    parts = []
    for task in range(2):
        kept = [_task_of(event, column_of) in (None, task) for event in case.stream]
        parts.append(case.compiled.evaluate(table.filter(pa.array(kept)), output="events"))
    ids = [[event["id"] for event in row] for part in parts for row in part["events"].to_pylist()]
    whole = case.compiled.evaluate(table, output="events")["events"].to_pylist()
    assert sorted(ids) == sorted([event["id"] for event in row] for row in whole)


def _task_of(event, column_of):
    """The task of two that an event is dealt to by its key; None: both."""
    if event["type"] not in column_of:
        return None
    value = event[column_of[event["type"]]]
    return 2 if value is None or value != value else (ord(value[0]) if isinstance(value, str) else int(2 * value)) % 2


# ---------------------------------------------------------------------------------------------------------- by hand


def events(types, **columns):
    return pa.table({"type": list(types), **columns})


def positions(where, table, **options):
    query = cer_gpu.compile(f"SELECT RECENT * FROM S WHERE {where}", **options)
    return query.evaluate(table)["positions"].to_pylist()


def test_the_latest_start_takes_the_place_of_the_one_before():
    assert positions("A ; B", events("AABB")) == [[1, 2]]
    assert positions("A ; B ; C", events("ABABCC")) == [[2, 3, 4]]
    # the first B moved on, and the second finds nothing; the partial match behind B stays
    assert positions("A ; B ; C", events("ABBC")) == [[0, 1, 3]]
    assert positions("A ; B ; C", events("ABAC")) == [[0, 1, 3]]


def test_an_event_moves_on_what_was_there_before_it():
    assert positions("A{3}", events("AAAAA")) == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert positions("A{2}", events("AAAA")) == [[0, 1], [1, 2], [2, 3]]


def test_one_step_is_every_event_that_satisfies_it():
    assert positions("A AS a FILTER a[x > 1]", events("AABA", x=[1, 2, 3, 4])) == [[1], [3]]


def test_an_absent_event_of_no_key_drops_what_waits_under_all_keys():
    table = events("AADBB", u=[1, 2, 9, 1, 2])
    assert positions("A AS a ; B AS b FILTER a.u = b.u", table) == [[0, 3], [1, 4]]
    assert positions("A AS a ; !D ; B AS b FILTER a.u = b.u", table) == []
    keyed = "A AS a ; !(D AS d FILTER d.u = a.u) ; B AS b FILTER a.u = b.u"
    assert positions(keyed, table) == [[0, 3], [1, 4]]
    assert positions(keyed, events("AADBB", u=[1, 2, 2, 1, 2])) == [[0, 3]]
    below = "A AS a ; !(D AS d FILTER d.u > a.u) ; B AS b FILTER a.u = b.u"
    assert positions(below, events("AADBB", u=[1, 2, 2, 1, 2])) == [[1, 4]]


def test_an_event_does_not_drop_what_it_has_just_placed():
    assert positions("A ; B ; !B ; C", events("ABC")) == [[0, 1, 2]]
    assert positions("A ; B ; !B ; C", events("ABBC")) == []


def test_an_absence_counted_back_is_a_test_of_its_step():
    table = events("DAABDBAB")
    assert positions("A ; (!D FOR 1 EVENTS ; B)", table) == [[2, 3], [6, 7]]
    # the first A stands right behind a D, and takes part in nothing
    assert positions("(!D FOR 1 EVENTS ; A){2}", table) == [[2, 6]]


def test_an_absence_at_the_end_takes_back_what_ended_before_it():
    table = events("ABABDABCCCC", u=[1, 1, 2, 2, 2, 1, 1, 0, 0, 0, 0])
    assert positions("A ; B ; !D WITHIN 4 EVENTS", table) == [[5, 6]]  # the D is in the window of both
    keyed = "A AS a ; B AS b FILTER a.u = b.u"
    by_key = f"({keyed}) ; !(D AS d FILTER d.u = a.u) WITHIN 4 EVENTS"
    assert positions(by_key, table) == [[0, 1], [5, 6]]
    assert positions(f"({keyed}) ; !D FOR 1 EVENTS", table) == [[0, 1], [5, 6]]
    assert positions(f"({keyed}) ; !D FOR 3 EVENTS", table) == [[5, 6]]
    below = f"({keyed}) ; !(D AS d FILTER d.u > a.u) WITHIN 4 EVENTS"
    assert positions(below, table) == [[2, 3], [5, 6]]
    assert positions("A ; B ; !D ; !C WITHIN 2 EVENTS", table) == [[0, 1]]
    assert positions("A ; !B FOR 1 EVENTS", events("AABA")) == [[0], [3]]
    assert positions("(A ; !D FOR 2 EVENTS) ; B", events("ABDADB")) == []
    assert positions("(A ; !D FOR 2 EVENTS) ; B", events("ABCDADB")) == [[0, 1]]


def test_what_may_be_taken_back_is_dropped_with_its_window():
    n = 20_000
    table = events("AB" * n, u=[i // 2 for i in range(2 * n)], ts=range(2 * n))
    query = cer_gpu.compile(
        "SELECT RECENT * FROM S WHERE (A AS a ; B AS b FILTER a.u = b.u) ; !(C AS c FILTER c.u = a.u) "
        "WITHIN 100 SECONDS",
        time_column="ts",
        time_unit="s",
    )
    evaluator = query.evaluator()
    found = sum(evaluator.push(batch).num_rows for batch in table.to_batches(max_chunksize=1000))
    assert found == n - 50
    assert len(evaluator.checkpoint()) < 60_000


def test_keys_of_unlike_columns_and_types():
    table = events("ABAB", src=pa.array([1, 9, 2, 9], pa.int32()), dst=[0.0, 2.0, 0.0, 2.0])
    assert positions("A AS a ; B AS b FILTER b.dst = a.src", table) == [[2, 3]]
    three = "A AS a ; B AS b ; A AS c FILTER b.dst = a.src AND c.src = b.dst"
    steps = events("AABA", src=pa.array([2, 1, 9, 2], pa.int32()), dst=[None, None, 2.0, None])
    assert positions(three, steps) == [[0, 2, 3]]
    # two columns of one step are a key only where they are equal
    both = "A AS a ; B AS b FILTER a.x = b.x AND a.y = b.x"
    assert positions(both, events("AAB", x=[1, 1, 1], y=[1, 2, 0])) == [[0, 2]]


def test_keys_of_types_that_are_compared_rounded_are_refused():
    where = "A AS a ; B AS b ; C AS c FILTER a.x = b.x AND b.x = c.y"
    schema = pa.schema({"type": pa.string(), "x": pa.decimal128(10, 2), "y": pa.float64()})
    with pytest.raises(QueryTypeError, match="decimals and floats are among three values or more"):
        cer_gpu.compile(f"SELECT RECENT * FROM S WHERE {where}", schema=schema)


def test_clauses_about_the_results():
    table = events("AABAB", x=[1, 5, 3, 2, 9])
    query = "SELECT RECENT a.x AS low, b.x - a.x AS gain FROM S WHERE A AS a ; B AS b"
    assert cer_gpu.compile(query).evaluate(table).select(["low", "gain"]).to_pylist() == [
        {"low": 5, "gain": -2},
        {"low": 2, "gain": 7},
    ]
    kept = cer_gpu.compile(f"{query} HAVING gain > 0 LIMIT 1").evaluate(table)
    assert kept["low"].to_pylist() == [2]
    assert cer_gpu.compile("SELECT RECENT * FROM S WHERE A ; B LIMIT 0").evaluate(table).num_rows == 0
    summed = cer_gpu.compile("SELECT RECENT * FROM S WHERE A AS a ; B AS b")
    found = summed.evaluate(table, output="count", aggregate="SUM(b.x)")
    assert found.to_pylist() == [{"end": 2, "SUM(b.x)": 3}, {"end": 4, "SUM(b.x)": 9}]


def test_events_are_dealt_to_tasks_by_keys_that_all_of_them_have():
    keyed = "A AS a ; !(D AS d FILTER d.y = a.x) ; B AS b FILTER a.x = b.y"
    cases = {
        keyed: (("A", "x"), ("B", "y"), ("D", "y")),
        f"{keyed} LIMIT 1 EVERY 9 EVENTS": (),
        f"{keyed} WITHIN 3 EVENTS EACH STEP": (),
        f"{keyed} CONSUME BY ANY": (),
        "A AS a ; !D ; B AS b FILTER a.x = b.y": (),
        "A AS a ; A AS b FILTER a.x = b.y": (),
        "A AS a ; B AS b FILTER a.x < b.y": (),
        "A AS a ; * AS b FILTER a.x = b.y": (),
        "A AS a ; !(* AS d FILTER d.y = a.x) ; B AS b FILTER a.x = b.x": (),
        "A AS a ; * AS b FILTER a.x = b.x": (("A", "x"), (None, "x")),
    }
    for text, shared in cases.items():
        assert cer_gpu.compile(f"SELECT RECENT * FROM S WHERE {text}").distribution.shared == shared
    every = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b FILTER a.x = b.y LIMIT 1 EVERY 9 EVENTS")
    assert every.distribution.shared == ()


def test_several_streams():
    query = cer_gpu.compile("SELECT RECENT * FROM s, t WHERE s>A AS a ; t>B AS b FILTER a.u = b.u", time_column="ts")
    streams = {
        "s": events("AAB", ts=pa.array([1, 2, 5], pa.timestamp("s")), u=[1, 2, 2]),
        "t": events("BB", ts=pa.array([3, 4], pa.timestamp("s")), u=[2, 1]),
    }
    found = query.evaluate(streams, output="bindings").select(["a", "b"]).to_pylist()
    assert found == [{"a": 1, "b": 0}, {"a": 0, "b": 1}]


def test_keys_out_of_the_window_are_dropped():
    n = 20_000
    table = events("A" * n, u=range(n), ts=range(n))
    query = cer_gpu.compile(
        "SELECT RECENT * FROM S WHERE A AS a ; B AS b FILTER a.u = b.u WITHIN 100 SECONDS",
        time_column="ts",
        time_unit="s",
    )
    evaluator = query.evaluator()
    for batch in table.to_batches(max_chunksize=1000):
        evaluator.push(batch)
    analysis = query.explain(table, analyze=True)._facts["analysis"]
    assert analysis["held"] == {"keys": 101, "partial matches": 101}
    assert len(evaluator.checkpoint()) < 40_000


def test_keys_that_come_and_go_are_found_where_they_were_moved():
    rnd, n, width = random.Random(3), 40_000, 200
    kinds = [rnd.choice("AB") for _ in range(n)]
    keys = [i // 4 + rnd.randint(0, 40) for i in range(n)]
    pending, expected = {}, []
    for i, (kind, key) in enumerate(zip(kinds, keys, strict=True)):
        if kind == "A":
            pending[key] = i
        elif key in pending and i - pending[key] <= width:
            expected.append([pending.pop(key), i])
    where = f"A AS a ; B AS b FILTER a.u = b.u WITHIN {width} EVENTS"
    table = events(kinds, u=keys)
    assert positions(where, table) == expected
    with small_sizes():
        assert positions(where, table.slice(0, 4000)) == [each for each in expected if each[1] < 4000]
