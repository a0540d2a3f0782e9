"""Events without partners are dropped unread: the answers, and their order, are as if all were read."""

from __future__ import annotations

from contextlib import contextmanager

import conjunction_strategies as conjunctions
import numpy as np
import pyarrow as pa
import pytest
import strategies
from answers import candidates_of
from cases import Case, assert_same, pushed
from hypothesis import strategies as st
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.runtime.parallel import reduction
from cer_gpu.runtime.parallel.products import Products

OUTPUTS = ("positions", "bindings", "count", "ends")
Q = "Q(x, y) <- T(id = x), S(id = x, loc = y), R(id = x, loc = y)"
ALL = "SELECT * FROM S WHERE T AS t ALL S AS s ALL R AS r FILTER s.id = t.id AND r.id = t.id"
CHAIN = "SELECT * FROM S WHERE T AS t ; S AS s ; R AS r FILTER s.id = t.id AND r.loc = s.loc"
BOTH = "SELECT * FROM S WHERE (T AS t ALL S AS s) ; R AS r FILTER s.id = t.id AND r.id = t.id AND r.loc = s.loc"
SELF = "SELECT * FROM S WHERE T AS t ALL T AS u ALL S AS s FILTER u.id = t.id AND s.id = t.id AND s.loc = u.loc"
TEXTS = (Q, ALL, CHAIN, BOTH, SELF)


@contextmanager
def everything_read():
    """Let no event be dropped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduction, "MIN_BUFFERED", 1 << 60)
        yield


def stream(n, *, n_ids=8, n_locs=3, types="TSRABC", seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, n_ids, n)
    nothing = rng.random(n) < 0.05
    return pa.table(
        {
            "type": pa.array(rng.choice(list(types), n)),
            "id": pa.array(ids, mask=nothing),
            "loc": rng.integers(0, n_locs, n),
            "at": np.cumsum(rng.integers(0, 3, n)),
            "moment": np.cumsum(rng.random(n)),
            "key": rng.integers(0, 2, n),
        }
    )


WINDOWS = (
    "WITHIN 9 EVENTS",
    *(
        pytest.param(window, marks=pytest.mark.long("a clock of another type"))
        for window in ("WITHIN 6 [at]", "WITHIN 4.5 [moment]", "WITHIN 7 SECONDS")
    ),
)


def compiled(text):
    return cer_gpu.compile(text, time_column="at", time_unit="s")


@contextmanager
def events_fed(fed):
    """Note the numbers of events that the runtime reads."""
    original = Products.feed

    def feed(self, events):
        fed.append(len(events.symbols))
        return original(self, events)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Products, "feed", feed)
        yield


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    "output",
    [
        "positions",
        *(pytest.param(each, marks=pytest.mark.long("as positions")) for each in ("count", "bindings", "ends")),
    ],
)
def test_answers_and_their_order_are_those_of_all_events(text, window, output):
    query, table = compiled(f"{text} {window}"), stream(600)
    with everything_read():
        expected = query.evaluate(table, output=output)
    fed = []
    with small_sizes(), events_fed(fed):
        assert query.evaluate(table, output=output).equals(expected)
    assert expected.num_rows
    assert sum(fed) < 0.8 * sum(kind in "TSR" for kind in table["type"].to_pylist())
    for rows in (1, 7, 50, 333):
        with small_sizes():
            evaluator = query.evaluator(output=output)
            found = [evaluator.push(batch) for batch in table.to_batches(rows)]
        assert pa.Table.from_batches([*found, evaluator.finish()]).equals(expected)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "output", ["positions", "count", pytest.param("events", marks=pytest.mark.long("as positions"))]
)
def test_a_table_of_many_batches_is_reduced_across_them(text, output):
    query, table = compiled(f"{text} WITHIN 20 EVENTS"), stream(600)
    with everything_read():
        expected = query.evaluate(table, output=output)
    cut, fed = pa.Table.from_batches(table.to_batches(10)), []
    with small_sizes(), events_fed(fed):
        assert query.evaluate(cut, output=output).equals(expected)
    if output == "count":  # values of events would have to wait with them
        assert sum(fed) < sum(kind in "TSR" for kind in table["type"].to_pylist())


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("rows", [13, pytest.param(40, marks=pytest.mark.long("another cut"))])
def test_events_before_a_checkpoint_may_be_partners(text, rows):
    query, table = compiled(f"{text} WITHIN 9 EVENTS"), stream(400)
    with everything_read():
        expected = query.evaluate(table)
    with small_sizes():
        evaluator, found = query.evaluator(), []
        for batch in table.to_batches(rows):
            evaluator = query.restore(evaluator.checkpoint())
            found.append(evaluator.push(batch))
    assert pa.Table.from_batches(found).equals(expected)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("rows", [1, 13, 100])
def test_answers_come_with_the_push_that_completes_them(text, rows):
    query, table = compiled(f"{text} WITHIN 9 EVENTS"), stream(400)
    with small_sizes():
        evaluator, first = query.evaluator(), 0
        for batch in table.to_batches(rows):
            ends = evaluator.push(batch)["end"].to_pylist()
            assert all(first <= end < first + batch.num_rows for end in ends)
            first += batch.num_rows
        assert evaluator.finish().num_rows == 0


@pytest.mark.parametrize("text", [Q, ALL, CHAIN])
@pytest.mark.parametrize("output", ["positions", "events", "count"])
def test_partitions_come_and_go(text, output):
    query = compiled(f"{text} PARTITION BY [key] WITHIN 9 [at]")
    table = stream(500, n_ids=3)
    keys = np.arange(500) // 60 + np.array(table["key"])
    table = table.set_column(table.schema.get_field_index("key"), "key", pa.array(keys))
    with everything_read():
        expected = query.evaluate(table, output=output)
    with small_sizes():
        assert query.evaluate(table, output=output).equals(expected)
        evaluator = query.evaluator(output=output)
        found = [evaluator.push(batch) for batch in table.to_batches(40)]
    assert pa.Table.from_batches(found).equals(expected)
    assert expected.num_rows


@pytest.mark.long("seventy combinations of clauses")
@pytest.mark.parametrize("clauses", ["", "LIMIT 2", "CONSUME BY ANY", "CONSUME BY ANY LIMIT 1"])
@pytest.mark.parametrize("strategy", ["ALL", "ANY", "NEXT", "LAST", "MAX", "STRICT"])
@pytest.mark.parametrize("pattern", [ALL, CHAIN, BOTH])
def test_clauses_choose_among_the_same(pattern, strategy, clauses):
    text = pattern.replace("SELECT", f"SELECT {strategy}") + f" WITHIN 8 EVENTS {clauses}"
    query, table = compiled(text), stream(400, n_ids=3, types="TSR")
    with everything_read():
        expected = query.evaluate(table)
    with small_sizes():
        assert query.evaluate(table).equals(expected)


@strategies.property_test(0.3)
def test_random_patterns_find_the_same_in_the_same_order(data):
    long = data.draw(st.booleans(), label="long")
    case = Case(data, conjunctions.long_full_cases() if long else conjunctions.cases())
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    candidates_of(case, output, long)  # small sizes stop at each step, and too many of them discard the example
    with everything_read():
        expected = case.compiled.evaluate(case.table, output=output)
    with small_sizes():
        assert_same(case.compiled.evaluate(case.table, output=output), expected)
        assert_same(pushed(case.compiled, case.batches, output=output), expected)
