"""Aggregates over the past and absences counted back, compared with the definitions, in any cut of a stream."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import past_strategies as past
import pyarrow as pa
import pytest
import reference_past
import strategies
from answers import assert_right, candidates_of, with_and_without_checkpoints
from cases import Case, assert_same, pushed, sorted_rows
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.columnar.columns import Block
from cer_gpu.engine import over_states
from cer_gpu.engine.stream_columns import StreamColumns
from cer_gpu.expressions.derived import makers_of
from cer_gpu.parallel import range_threads as ranges
from cer_gpu.planning.binding import bind

OUTPUTS = ("positions", "bindings", "count", "ends", "events")


@pytest.mark.parametrize("kind", past.KINDS)
@strategies.property_test(0.15)
def test_queries_that_look_back_give_the_rows_of_the_reference(kind, data):
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    case = Case(data, past.cases(kind), timestamps=True)
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right(case, candidates, answer, output)
    if case.query.limit is None and case.query.strategy != "ANY":
        assert_same(pushed(case.compiled, case.batches, output=output), answer)


@pytest.mark.parametrize("kind", past.KINDS)
@strategies.property_test(0.05)
def test_a_checkpoint_between_any_two_batches_changes_nothing(kind, data):
    case = Case(data, past.cases(kind), timestamps=True)
    assert_same(*with_and_without_checkpoints(data, case, "positions"))


# ------------------------------------------------------------------------------------------- columns by themselves

COLUMNS = {
    "x": [0.1, -0.1, 3.5, 1e300, -1e300, 1e-300, 5e-324, -0.0, 1e16, math.nan, math.inf, -math.inf, None],
    "f": [0.5, 0.25, -2.0, None],
    "i": [1, -1, 2**62, -(2**63), 2**63 - 1, 0, None],
    "u": [0, 1, 2**64 - 1, 2**63, None],
    "s": ["a", "b", "", "B", "\u00e9", "\uffff", "\U0001f600", "longer than that", None],
    "d": [Decimal("-0.03"), Decimal("7.00"), Decimal(10) ** 15, None],
    "t": [0, 5, -5, None],
}
TYPES = {
    "x": pa.float64(),
    "f": pa.float32(),
    "i": pa.int64(),
    "u": pa.uint64(),
    "s": pa.string(),
    "d": pa.decimal128(18, 2),
    "t": pa.timestamp("ms"),
}
OF = {
    "COUNT": "xs",
    "COUNT DISTINCT": "xiusdt",
    "SUM": "xfd",
    "AVG": "xfiu",
    "STDDEV": "xfi",
    "VARIANCE": "xfi",
    "MIN": "xfiusdt",
    "MAX": "xfiusdt",
}


def random_events(rng, n, keys):
    return {
        "type": rng.choices(["A", "B"], k=n),
        "k": rng.choices([*range(keys), None], k=n),
        "ts": sorted(rng.choices(range(n), k=n)),
        "c": sorted(rng.uniform(0, n) for _ in range(n)),
        **{name: rng.choices(values, k=n) for name, values in COLUMNS.items()},
    }


def table_of(events):
    return pa.table({name: pa.array(values, TYPES.get(name)) for name, values in events.items()})


def columns_of(text, table, cuts):
    """Return the columns that a query derives, over a table that is cut at some rows."""
    query = cer_gpu.compile(text)
    binding = bind(query._plan, table.schema)
    names = [name for names in binding.over_aggregates.columns.values() for name in names]
    earlier, parts = (
        StreamColumns(binding.partition_keys, binding.derived, binding.over_aggregates),
        {name: [] for name in names},
    )
    for begin, end in zip([0, *cuts], [*cuts, len(table)], strict=True):
        for batch in table.slice(begin, end - begin).combine_chunks().to_batches():
            block = Block(batch)
            block.derive(makers_of(binding.derived))
            earlier.add_to(block)
            for name in names:
                parts[name].append(block.column(name))
    return {name: pa.chunked_array(chunks).to_pylist() for name, chunks in parts.items()}


def expected_of(function, name, events, within, partitioned):
    """Return the values by the definition."""
    rows = [dict(zip(events, values, strict=True)) for values in zip(*events.values(), strict=True)]
    last, found = {}, []
    for row in rows:
        key = row["k"] if partitioned else 0
        if key is None:
            found.append(...)
            continue
        row[reference_past.BEFORE] = last.get(key)
        last[key] = row
        reached = [each for each in reference_past.within_reach(row, within) if each["type"] == "B"]
        values = [each[name] for each in reached if each[name] is not None]
        found.append(reference_past.aggregated(function, values))
    return found


def same(one, other):
    return one == other or (isinstance(one, float) and isinstance(other, float) and one != one and other != other)


@pytest.mark.parametrize("function", OF)
@strategies.property_test(0.2)
def test_columns_are_those_of_the_definition_bit_by_bit_in_any_cut(function, data):
    rng = random.Random(data.draw(st.integers(0, 2**32), label="seed"))
    n = rng.choice([1, 5, 60, 60, 200])
    events, partitioned = random_events(rng, n, rng.choice([1, 3, 20])), rng.random() < 0.6
    name, length = rng.choice(OF[function]), rng.choice([0, 1, 3, 10, 40])
    clock, within = rng.choice([("EVENTS", ("events", length)), ("[ts]", ("attribute", length, "ts"))])
    if rng.random() < 0.2:
        clock, within = "[c]", ("attribute", length, "c")
    word, *distinct = function.split()
    operand = f"{word}({' '.join([*distinct, ''])}B.{name}) OVER {length} {clock}"
    text = f"SELECT * FROM S WHERE A AS a FILTER a[{operand} IS NULL]" + " PARTITION BY [k]" * partitioned
    cuts = sorted(rng.sample(range(1, n), min(n - 1, rng.choice([0, 1, 5]))))
    (found,) = columns_of(text, table_of(events), cuts).values()
    expected = expected_of(function, name, events, within, partitioned)
    for k, (one, other) in enumerate(zip(found, expected, strict=True)):
        if other is ...:
            continue
        if function in ("STDDEV", "VARIANCE") and one is not None:
            assert same(one, other) or abs(one - other) <= 4e-16 * other, k
        else:
            assert same(as_number(one), other), k


def as_number(value):
    """Return a timestamp as its number."""
    return value if not hasattr(value, "timestamp") else int((value - EPOCH).total_seconds() * 1000)


EPOCH = pa.scalar(0, pa.timestamp("ms")).as_py()


@pytest.mark.parametrize("function", ["COUNT", "COUNT DISTINCT", "SUM", "STDDEV", "VARIANCE", "MAX", "MIN"])
def test_pools_grow_and_are_swept_of_what_idle_keys_hold(function, monkeypatch):
    monkeypatch.setattr(over_states, "MIN_ENTRIES", 2)
    monkeypatch.setattr(over_states, "MIN_SWEPT_STRINGS", 4)
    rng = random.Random(1)
    events = random_events(rng, 2000, 300)
    events["s"] = [str(rng.randrange(k + 1)) for k in range(2000)]
    name = {"COUNT DISTINCT": "s", "MIN": "s"}.get(function, "x")
    word, *distinct = function.split()
    text = f"SELECT * FROM S WHERE A AS a FILTER a[{word}({' '.join([*distinct, ''])}B.{name}) OVER 150 [ts] IS NULL]"
    (found,) = columns_of(text + " PARTITION BY [k]", table_of(events), [500, 501, 1200]).values()
    expected = expected_of(function, name, events, ("attribute", 150, "ts"), True)
    wrong = [
        k
        for k, (one, other) in enumerate(zip(found, expected, strict=True))
        if other is not ...
        and not same(one, other)
        and (name == "s" or not (one and abs(one - other) <= 4e-16 * other))
    ]
    assert not wrong


def test_a_sum_beyond_its_type_is_an_error():
    table = pa.table({"type": ["B"] * 3, "i": [2**62, 2**62, -(2**62)]})
    query = cer_gpu.compile("SELECT * FROM S WHERE B AS b FILTER b[SUM(B.i) OVER 2 EVENTS > 0]")
    with pytest.raises(cer_gpu.EventsError, match="beyond int64"):
        query.evaluate(table)
    mean = cer_gpu.compile("SELECT * FROM S WHERE B AS b FILTER b[AVG(B.i) OVER 2 EVENTS > 0]")
    assert mean.evaluate(table)["end"].to_pylist() == [0, 1, 2]


def test_sums_of_decimals_are_exact():
    values = pa.array(["0.10", "999999999999999.99", "-0.01"], pa.string()).cast(pa.decimal128(18, 2))
    query = cer_gpu.compile(
        "SELECT * FROM S WHERE B AS b FILTER "
        "b[SUM(B.d) OVER 9 EVENTS = 1000000000000000.08 AND d = MIN(B.d) OVER 9 EVENTS]"
    )
    assert query.evaluate(pa.table({"type": ["B"] * 3, "d": values}))["end"].to_pylist() == [2]


def test_a_great_value_leaves_no_trace():
    x = [0.1, 1e300, 0.2, 0.3]
    (found,) = columns_of(
        "SELECT * FROM S WHERE B AS b FILTER b[SUM(B.x) OVER 1 EVENTS > 0]",
        pa.table({"type": ["B"] * 4, "x": x}),
        [],
    ).values()
    assert found == [0.1, float(Fraction(0.1) + Fraction(1e300)), 1e300, 0.2 + 0.3]


THREADS = {
    # (length of OVER, PARTITION BY): how the events are dealt
    ("500 [ts]", ""): "range",
    ("500 [ts]", " PARTITION BY [k]"): "range",
    ("500 EVENTS", ""): "one",
    ("9 EVENTS", " PARTITION BY [k]"): "key",
}


@pytest.mark.parametrize(("over", "partition"), THREADS)
def test_threads_give_the_same(over, partition, monkeypatch):
    for name, size in {"RANGE_ROWS": 3000, "RANGE_ROWS_IN_MEMORY": 3000, "WINDOWS_A_RANGE": 1}.items():
        monkeypatch.setattr(ranges, name, size)
    rng = np.random.default_rng(3)
    n = 60_000
    table = pa.table(
        {
            "type": rng.choice(["A", "B"], n),
            "k": rng.integers(0, 5, n),
            "x": rng.normal(size=n) * 10.0 ** rng.integers(-8, 8, n),
            "ts": np.sort(rng.integers(0, n, n)),
        }
    )
    query = cer_gpu.compile(
        f"SELECT * FROM S WHERE A ; (!(B FILTER B[x > 1]) FOR 20 [ts] ; B AS b) FILTER "
        f"b[x > 1.5 * STDDEV(*.x) OVER {over} AND SUM(A.x) OVER {over} > 3]{partition} WITHIN 50 [ts]"
    )
    distribution = query.physical_plan().distribution
    assert distribution.threads == THREADS[over, partition]
    assert (distribution.why_not_ranges is None) == (distribution.threads == "range")
    assert distribution.tasks["range"] == distribution.why_not_ranges
    one, three = (query.evaluate(table, threads=threads) for threads in (1, 3))
    assert one.num_rows > 100
    assert sorted_rows(one) == sorted_rows(three)


def test_a_set_of_queries_gives_what_each_gives():
    rng = random.Random(5)
    table = table_of(random_events(rng, 300, 3))
    texts = {
        "sum": "SELECT * FROM S WHERE A AS a FILTER a[SUM(B.f) OVER 9 EVENTS > 1] PARTITION BY [k]",
        "plain": "SELECT * FROM S WHERE A ; B WITHIN 2 EVENTS",
        "clear": "SELECT * FROM S WHERE !B FOR 2 EVENTS ; A ; B WITHIN 3 EVENTS",
    }
    found = cer_gpu.compile_all(texts).evaluate(table)
    for name, text in texts.items():
        assert sorted_rows(found[name]) == sorted_rows(cer_gpu.compile(text).evaluate(table))


def test_types_that_change_between_batches_are_refused_by_name():
    query = cer_gpu.compile("SELECT * FROM S WHERE B AS b FILTER b[MAX(B.x) OVER 9 EVENTS > 1]")
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["B"], "x": [2]}))
    with pytest.raises(cer_gpu.EventsError, match="MAX OVER keeps values of column 'x'"):
        evaluator.push(pa.record_batch({"type": ["B"], "x": [2.5]}))


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "b[SUM(B.s) OVER 9 EVENTS > 1]": "SUM OVER needs numbers",
        "b[MAX(B.s) OVER 9 EVENTS > 1]": "compare",
        "b[AVG(B.t) OVER 9 EVENTS > 1]": "AVG OVER needs numbers",
        "b[COUNT(B.none) OVER 9 EVENTS > 1]": "the events have no column 'none'",
        "b[COUNT(B FILTER none = 1) OVER 9 EVENTS > 1]": "the events have no column 'none'",
        "b[COUNT(B) OVER 9 [s] > 1]": "WITHIN needs a column of numbers or timestamps",
        "b[MIN(B.w) OVER 9 EVENTS > 1]": "reads decimals of at most 18 digits",
    }.items(),
)
def test_what_does_not_fit_the_schema_is_told_at_compile_time(text, message):
    schema = pa.schema([("type", pa.string()), *TYPES.items(), ("w", pa.decimal128(30, 2))])
    with pytest.raises(cer_gpu.QueryError, match=message):
        cer_gpu.compile(f"SELECT * FROM S WHERE B AS b FILTER {text}", schema=schema)


def test_the_past_follows_the_order_of_time():
    events = pa.table({"type": ["A"] * 5, "x": [3, 1, 2, 5, 4], "ts": [3, 1, 2, 5, 4]})
    text = "SELECT * FROM S WHERE !(A FILTER A[x = 2]) FOR 1 EVENTS ; A AS a FILTER a[SUM(A.x) OVER 1 [ts] >= 5]"
    query = cer_gpu.compile(text, time_column="ts")
    expected = [4, 3]  # rows of 4 (3 + 4) and 5 (4 + 5); that of 3 comes just after 2
    assert query.evaluate(events, sort=True)["end"].to_pylist() == expected
    assert query.evaluate(events, lateness=5)["end"].to_pylist() == expected
    evaluator = query.evaluator(lateness=5)
    assert evaluator.push(events.to_batches()[0]).num_rows == 0
    assert evaluator.advance_watermark(5)["end"].to_pylist() == expected


def test_events_of_several_streams_are_told_apart():
    parts = {
        "S": pa.table({"type": ["A", "A"], "ts": [1, 4], "x": [1, 2]}),
        "T": pa.table({"type": ["A", "B"], "ts": [2, 3], "x": [10, 20]}),
    }
    found = {
        text: cer_gpu.compile(f"SELECT * FROM S, T WHERE S>A AS a FILTER a[{text}]", time_column="ts")
        .evaluate(parts)["end"]
        .to_pylist()
        for text in ("SUM(T>A.x) OVER 9 EVENTS = 10", "SUM(A.x) OVER 9 EVENTS = 13", "SUM(*.x) OVER 9 EVENTS = 33")
    }
    assert all(ends == [1] for ends in found.values())


def test_an_absence_counted_back_begins_any_part():
    table = pa.table({"type": list("ABABBCA"), "n": [1, 2, 3, 4, 5, 6, 7]})
    found = {
        text: cer_gpu.compile(f"SELECT * FROM S WHERE {text}").evaluate(table)["positions"].to_pylist()
        for text in (
            "!A FOR 1 EVENTS ; B",
            "!A FOR 1 EVENTS ; B+ ; C",
            "C ; (!B FOR 1 EVENTS ; A)",
            "(!A FOR 1 EVENTS ; B) OR C",
            "!(A FILTER A[n > 2]) FOR 9 EVENTS ; B",
        )
    }
    assert found == {
        "!A FOR 1 EVENTS ; B": [[4]],
        "!A FOR 1 EVENTS ; B+ ; C": [[4, 5]],
        "C ; (!B FOR 1 EVENTS ; A)": [[5, 6]],
        "(!A FOR 1 EVENTS ; B) OR C": [[4], [5]],
        "!(A FILTER A[n > 2]) FOR 9 EVENTS ; B": [[1]],
    }


def test_names_that_differ_in_blanks_are_two_columns():
    events = pa.table({"type": ["A"] * 2, "a b": [1, 1], "a  b": [100, 100]})
    text = "SELECT * FROM S WHERE A AS x FILTER x[SUM(*.`a b`) OVER 5 EVENTS = 2 AND SUM(*.`a  b`) OVER 5 EVENTS = 200]"
    assert cer_gpu.compile(text).evaluate(events)["end"].to_pylist() == [1]


@pytest.mark.long("compiles loops for clocks of floats")
def test_infinite_clocks_are_at_most_any_length_apart():
    """Their difference is NaN; WITHIN takes it for none that is longer."""
    events = pa.table({"type": list("ABB"), "x": [float("inf")] * 3})
    for formula in ("A ; B WITHIN 1 [x]", "B FILTER B[COUNT(A) OVER 1 [x] = 1]"):
        found = cer_gpu.compile(f"SELECT * FROM S WHERE {formula}").evaluate(events)
        assert found["end"].to_pylist() == [1, 2]
    assert cer_gpu.compile("SELECT * FROM S WHERE !A FOR 1 [x] ; B").evaluate(events).num_rows == 0


def test_types_that_no_event_has_are_told():
    events = pa.table({"type": ["A", "A"], "v": [1, 2]})
    for formula in ("A FILTER A[COUNT(AZ) OVER 3 EVENTS = 0]", "!AZ FOR 3 EVENTS ; A"):
        evaluator = cer_gpu.compile(f"SELECT * FROM S WHERE {formula}").evaluator()
        evaluator.push(events.to_batches()[0])
        evaluator.finish()
        assert "no event has the type 'AZ'; did you mean 'A'?" in evaluator.notes
    with pytest.raises(cer_gpu.QueryError, match="no events of type 'order'"):
        cer_gpu.compile(
            "SELECT * FROM orders WHERE orders AS b FILTER b[COUNT(order) OVER 3 EVENTS = 2]", type_column=None
        )
    with pytest.raises(cer_gpu.QueryError, match="is of events of a type, and 'a' is a variable"):
        cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b FILTER b[v > AVG(a.v) OVER 3 EVENTS]")


@pytest.mark.parametrize("options", [{"sort": True}, {"lateness": "1000s"}], ids=["sorted", "late"])
@pytest.mark.parametrize(
    ("formula", "ends"),
    [
        ("A FILTER A[COUNT(DISTINCT A.s) OVER 1 EVENTS = 2]", [0, 1]),
        ("A AS a ; A AS c FILTER c[f = a.x * MIN(*.f FILTER x <> 1) OVER 1 SECONDS]", [0, 2]),
    ],
)
def test_events_in_another_order_keep_what_is_over_the_past(formula, ends, options):
    """The order changes the types of columns of texts."""
    events = pa.table({"type": list("AAAA"), "ts": [3, 1, 2, 0], "s": list("uvvu"), "x": [1, 1, 2, 2], "f": [0.5] * 4})
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {formula}", time_column="ts", time_unit="s")
    in_order = query.evaluate(events.take([3, 1, 2, 0]))
    found = query.evaluate(events, **options)
    assert [[[3, 1, 2, 0][p] for p in row] for row in in_order["positions"].to_pylist()] == found[
        "positions"
    ].to_pylist()
    assert sorted({row[-1] for row in found["positions"].to_pylist()}) == ends


@pytest.mark.parametrize("function", ["MIN", "MAX"])
def test_extremes_of_strings_go_on_from_checkpoints(function, monkeypatch):
    monkeypatch.setattr(over_states, "MIN_SWEPT_STRINGS", 4)
    rng = random.Random(7)
    events = random_events(rng, 300, 3)
    events["s"] = [rng.choice([None, str(rng.randrange(k + 1))]) for k in range(300)]
    query = cer_gpu.compile(f"SELECT * FROM S WHERE B AS b FILTER b[{function}(*.s) OVER 20 [ts] = s] PARTITION BY [k]")
    table, evaluator, ends = table_of(events), query.evaluator(), []
    for begin in range(0, 300, 50):
        ends += evaluator.push(table.slice(begin, 50).combine_chunks().to_batches()[0])["end"].to_pylist()
        evaluator = query.restore(evaluator.checkpoint())
    expected = expected_of(function, "s", {**events, "type": ["B"] * 300}, ("attribute", 20, "ts"), True)
    assert ends == [
        i
        for i in range(300)
        if events["type"][i] == "B"
        and expected[i] is not ...
        and expected[i] == events["s"][i]
        and expected[i] is not None
    ]
