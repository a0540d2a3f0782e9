"""SELECT RECENT with quantifiers against its reference: random patterns, every output, any cut into batches."""

import itertools
import random
from collections import Counter

import pyarrow as pa
import pytest
import recent_path_strategies as drawn
import recent_strategies
import reference_recent as ref
import reference_recent_paths as paths
from cases import plain, sorted_rows
from hypothesis import given, note, settings
from hypothesis import strategies as st
from recent_cases import RecentCase
from sizes import scaled
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.errors import QueryError

SEEDS = st.integers(0, 2**32)
OUTPUTS = ("positions", "bindings", "events", "rows", "count", "ends")
REFUSED = ("may hold several events, and RECENT stores", "is known when a later step comes", "reads all repetitions of",
           "is one event known beforehand", "windows of parts within each other")  # fmt: skip


def answered(seed):
    """Draw queries until one is not refused; return it, as a tree and compiled."""
    for number in itertools.count():
        rnd = random.Random(f"{seed} {number}")
        query = drawn.DrawnPaths(rnd).query
        text = drawn.text_of(query)
        try:
            return rnd, query, cer_gpu.compile(text, time_column="ts", time_unit="s")
        except QueryError as error:
            message = str(error)
        assert any(reason in message for reason in REFUSED), message


class Case(RecentCase):
    """A random query, compiled, and a random stream."""

    def __init__(self, seed, n=40):
        rnd, query, compiled = answered(seed)
        note(compiled.text)
        super().__init__(rnd, query, compiled, n)

    @property
    def expected(self):
        """The rows of "bindings" as the reference writes them."""
        return paths.rows(self.query, self.stream, list(self.compiled.variables))


@settings(max_examples=scaled(60), deadline=None)
@given(SEEDS)
def test_engine_finds_what_the_definition_says(seed):
    case = Case(seed)
    assert case.found(case.compiled.evaluate(case.table, output="bindings")) == case.expected


@settings(max_examples=scaled(40), deadline=None)
@given(SEEDS, st.sampled_from(OUTPUTS))
def test_every_output_is_the_same_for_every_cut(seed, output):
    case = Case(seed)
    whole, rows = case.compiled.evaluate(case.table, output=output), case.expected
    ends = Counter(row[1] for row in rows)
    if output == "count":
        assert dict(zip(whole["end"].to_pylist(), whole["count"].to_pylist(), strict=True)) == ends
    elif output == "ends":
        assert sorted(whole["end"].to_pylist()) == sorted(ends)
    elif output != "rows":
        assert whole["end"].to_pylist() == [row[1] for row in rows]
    with small_sizes():
        pieces = case.pushed(output)
    assert pieces.schema == whole.schema
    assert plain(pieces.to_pylist()) == plain(whole.to_pylist())


@settings(max_examples=scaled(6), deadline=None)
@given(SEEDS)
def test_long_streams_in_small_memory(seed):
    case = Case(seed, 150)
    with small_sizes():
        assert case.found(case.pushed("bindings")) == case.expected


@settings(max_examples=scaled(12), deadline=None)
@given(SEEDS, st.sampled_from(["positions", "count"]))
def test_threads_shares_and_sets_find_the_same(seed, output):
    case = Case(seed)
    whole = case.compiled.evaluate(case.table, output=output)
    assert case.compiled.evaluate(case.table, output=output, threads=2).equals(whole)
    shares = [case.compiled.evaluate(case.table, output=output, shard=(k, 3)) for k in range(3)]
    assert sorted_rows(*shares) == sorted_rows(whole)
    others = {"one": case.compiled.text, "other": "SELECT RECENT * FROM S WHERE A ; B+ PARTITION BY [g]"}
    found = cer_gpu.compile_all(others, time_column="ts", time_unit="s").evaluate(case.table, output=output)
    assert found["one"].equals(whole)


@settings(max_examples=scaled(6), deadline=None)
@given(SEEDS)
def test_tasks_that_are_dealt_events_by_a_key_find_the_same(seed):
    cases = (Case(f"{seed} {n}") for n in itertools.count())
    case = next(each for each in cases if each.compiled.distribution.shared and " EVENTS" not in each.compiled.text)
    column_of = dict(case.compiled.distribution.shared)
    table = case.table.append_column("id", pa.array(range(case.table.num_rows)))
    parts = []
    for task in range(2):
        mask = [_task_of(event, column_of) in (None, task) for event in case.stream]
        parts.append(case.compiled.evaluate(table.filter(pa.array(mask)), output="events"))
    ids = [[event["id"] for event in row] for part in parts for row in part["events"].to_pylist()]
    whole = case.compiled.evaluate(table, output="events")["events"].to_pylist()
    assert sorted(ids) == sorted([event["id"] for event in row] for row in whole)


def _task_of(event, column_of):
    """The task of two that an event is dealt to by its key; None: both."""
    if event["type"] not in column_of:
        return None
    value = event[column_of[event["type"]]]
    return 2 if value is None or value != value else (ord(value[0]) if isinstance(value, str) else int(2 * value)) % 2


@pytest.mark.long("every match of SELECT ALL is listed: minutes")
@settings(max_examples=scaled(20), deadline=None)
@given(SEEDS)
def test_matches_are_some_of_all(seed):
    _, query, compiled = answered(seed)
    rnd = random.Random(seed)
    stream = recent_strategies.stream_of(rnd, 14)
    table = recent_strategies.table_of(stream)
    if query.consume != "NONE" or query.trailing:
        return
    recent = compiled.evaluate(table, output="positions")
    every = cer_gpu.compile(compiled.text.replace("SELECT RECENT", "SELECT ALL"), time_column="ts", time_unit="s")
    rows = {(row["start"], row["end"], *row["positions"]) for row in every.evaluate(table).to_pylist()}
    assert {(row["start"], row["end"], *row["positions"]) for row in recent.to_pylist()} <= rows


@settings(max_examples=scaled(60), deadline=None)
@given(SEEDS)
def test_both_references_agree_on_chains_without_quantifiers(seed):
    rnd = random.Random(seed)
    query = recent_strategies.Drawn(rnd).query
    text = recent_strategies.text_of(query)
    if "PREV(" in text:
        return  # one of them tests a filter that reads PREV(x) alone with x, the other with the event before
    stream = recent_strategies.stream_of(rnd, 40)
    names = ref.variables_in(query.formula)
    assert paths.rows(query, stream, names) == ref.rows(query, stream, names)


# ---------------------------------------------------------------------------------------------------------- by hand


def positions(where, types, **columns):
    query = cer_gpu.compile(f"SELECT RECENT * FROM S WHERE {where}")
    return query.evaluate(pa.table({"type": list(types), **columns}))["positions"].to_pylist()


def test_an_iteration_takes_the_events_after_the_latest_start():
    assert positions("A ; B+ ; C", "ABABBC") == [[2, 3, 4, 5]]
    assert positions("A ; B+", "ABBAB") == [[0, 1], [0, 1, 2], [3, 4]]
    assert positions("A ; B* ; C", "ABACC") == [[2, 3], [0, 1, 4]]


def test_a_first_iteration_goes_on_and_does_not_begin_anew():
    assert positions("A+ ; B", "AAABAB") == [[0, 1, 2, 3], [4, 5]]
    assert positions("A+ ; B WITHIN 2 EVENTS", "AAAAAB") == [[3, 4, 5]]


def test_counted_repetitions_are_the_latest_of_each_number():
    assert positions("A{1,3}", "AAAA") == [
        [0],
        *([0, 1], [1]),
        *([0, 1, 2], [1, 2], [2]),
        *([1, 2, 3], [2, 3], [3]),
    ]
    assert positions("A{2,} ; B", "AAAB") == [[1, 2, 3]]


def test_what_may_be_missing_ends_a_match_with_and_without_it():
    assert positions("A ; B?", "ABAAB") == [[0], [0, 1], [2], [3], [3, 4]]
    assert positions("A? ; B", "BABB") == [[0], [1, 2], [3]]


def test_parts_of_several_events_repeat():
    assert positions("(A ; B)+ ; C", "ABABCABC") == [[0, 1, 2, 3, 4], [5, 6, 7]]
    inside = "(A AS a ; B AS b FILTER b.x > a.x)+ ; C"
    assert positions(inside, "ABABABC", x=[1, 2, 5, 4, 5, 6, 0]) == [[4, 5, 6]]
    assert positions(inside, "ABABC", x=[1, 2, 5, 6, 0]) == [[0, 1, 2, 3, 4]]


def test_filters_read_the_first_the_latest_and_the_one_before():
    rising = "A+ AS a ; B AS b FILTER a.x > PREV(a).x AND b.x > LAST(a).x AND b.x < 10 * FIRST(a).x"
    assert positions(rising, "AAABAB", x=[1, 3, 2, 9, 4, 5]) == [[2, 3], [4, 5]]
    assert positions(rising, "AAABAAB", x=[1, 3, 5, 4, 8, 7, 9]) == [[5, 6]]
    by_key = "A AS a ; B+ AS b ; C AS c FILTER a.k = b.k AND b.k = c.k"
    assert positions(by_key, "AABBBCC", k=[1, 2, 1, 2, 1, 1, 2]) == [[0, 2, 4, 5], [1, 3, 6]]


def test_bars_of_one_way_leave_the_others():
    # a D bars the repetition, and not what follows it
    assert positions("A+ UNTIL (D) ; B", "AADAB") == [[3, 4]]
    assert positions("A+ UNTIL (D) ; B", "AADB") == [[0, 1, 3]]
    assert positions("A:+ ; B", "AACAB") == [[3, 4]]
    assert positions("A:+ ; B", "AACB") == [[0, 1, 3]]


def test_long_runs_take_memory_for_their_events_alone():
    n = 100_000
    query = cer_gpu.compile("SELECT RECENT * FROM S WHERE A AS a ; B+ AS b ; C AS c FILTER a.k = b.k AND b.k = c.k")
    table = pa.table({"type": ["A"] + ["B"] * n + ["A", "B", "C"], "k": [1] * (n + 4)})
    evaluator = query.evaluator()
    sizes, found = [], 0
    for batch in table.to_batches(max_chunksize=10_000):
        found += evaluator.push(batch).num_rows
        sizes.append(len(evaluator.checkpoint()))
    assert found == 1
    assert sizes[0] < 60 * 10_000
    assert sizes[-1] < 20_000  # the run was replaced


@pytest.mark.parametrize("where", ["A ; B{2,3} ; C", "A+ ; B", "A ; B* ; C", "(A ; B)+ ; C"])
def test_consumed_events_are_not_read_again(where):
    stream = "ABABBCAABBCABC" * 3
    query = cer_gpu.compile(f"SELECT RECENT * FROM S WHERE {where} CONSUME BY ANY")
    found = query.evaluate(pa.table({"type": list(stream)}))["positions"].to_pylist()
    ends = [row[-1] for row in found]
    assert found
    assert all(row[0] > end for row, end in itertools.product(found, ends) if row[-1] > end)
