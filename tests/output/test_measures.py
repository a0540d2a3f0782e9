"""Measures, HAVING, "rows", aggregates and limits, against plain Python over the rows of "bindings"."""

import datetime as dt
import itertools
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.errors import EventsError, OptionError, QueryError, QueryTypeError

PATTERN = "FROM S WHERE A AS a ; B+ AS b ; (C AS c OR D AS d) WITHIN 7 EVENTS"
BARE = "SELECT a, b, c, d " + PATTERN


def stream(n=60, seed=1):
    """Return random events with columns of all types that measures have a rule for."""
    rng = random.Random(seed)

    def column(value, type_):
        return pa.array([None if rng.random() < 0.2 else value(k) for k in range(n)], type_)

    return pa.table(
        {
            "type": [rng.choice("ABBBCDX") for _ in range(n)],
            "key": pa.array([rng.choice("uv") for _ in range(n)]),
            "i": column(lambda k: rng.randrange(-9, 9), pa.int64()),
            "small": column(lambda k: rng.randrange(200), pa.uint8()),
            "big": column(lambda k: 2**63 + rng.randrange(5), pa.uint64()),
            "f": column(lambda k: rng.choice([0.5, -1.5, 2.0, float("nan")]), pa.float64()),
            "d": column(lambda k: Decimal(rng.randrange(-999, 999)) / 100, pa.decimal128(5, 2)),
            "wide": column(lambda k: Decimal(10**24 + rng.randrange(9)), pa.decimal128(30, 0)),
            "t": column(lambda k: rng.choice(["x", "yy", "", "é"]), pa.string()),
            "coded": column(lambda k: rng.choice(["p", "q"]), pa.string()).dictionary_encode(),
            "flag": column(lambda k: rng.random() < 0.5, pa.bool_()),
            "ts": pa.array([dt.datetime(2020, 1, 1, 0, 0, k) for k in range(n)], pa.timestamp("ms")),
            "on": column(lambda k: dt.date(2020, 1, 1 + rng.randrange(9)), pa.date32()),
            "length": column(lambda k: dt.timedelta(seconds=k), pa.duration("s")),
        }
    )


EVENTS = stream()
ROWS = EVENTS.to_pylist()


def held(row, variable):
    """Return the events that a variable holds in a row of "bindings"."""
    value = row[variable]
    return [ROWS[p] for p in (value if isinstance(value, list) else [] if value is None else [value])]


def known(row, variable, name):
    return [event[name] for event in held(row, variable) if event[name] is not None]


def ordered(values):
    return [value for value in values if value == value] or values


def expected_sum(row, variable, name):
    values = known(row, variable, name)
    return sum(values[1:], values[0]) if values else None


def one(row, variable, name, place=0):
    events = held(row, variable)
    return events[place][name] if events else None


def minus(x, y):
    return None if x is None or y is None else x - y


MEASURES = [
    ("a.i", pa.int64(), lambda r: one(r, "a", "i")),
    ("d.t", pa.string(), lambda r: one(r, "d", "t")),
    ("LAST(b).coded", pa.string(), lambda r: one(r, "b", "coded", -1)),
    ("FIRST(b).ts", pa.timestamp("ms"), lambda r: one(r, "b", "ts")),
    ("COUNT(b)", pa.int64(), lambda r: len(held(r, "b"))),
    ("COUNT(d)", pa.int64(), lambda r: len(held(r, "d"))),
    ("COUNT(*)", pa.int64(), lambda r: len(r["positions"])),
    ("SUM(b.i)", pa.int64(), lambda r: expected_sum(r, "b", "i")),
    ("SUM(b.small)", pa.uint64(), lambda r: expected_sum(r, "b", "small")),
    ("SUM(d.small)", pa.uint64(), lambda r: expected_sum(r, "d", "small")),
    ("SUM(b.f)", pa.float64(), lambda r: expected_sum(r, "b", "f")),
    ("SUM(b.d)", pa.decimal128(38, 2), lambda r: expected_sum(r, "b", "d")),
    ("SUM(b.wide)", pa.decimal128(38, 0), lambda r: expected_sum(r, "b", "wide")),
    ("SUM(b.length)", pa.duration("s"), lambda r: expected_sum(r, "b", "length")),
    ("SUM(b.flag)", pa.uint64(), lambda r: expected_sum(r, "b", "flag")),
    ("AVG(b.i)", pa.float64(), lambda r: minus(sum(v) / len(v), 0) if (v := known(r, "b", "i")) else None),
    ("AVG(b.d)", pa.float64(), lambda r: sum(map(float, v)) / len(v) if (v := known(r, "b", "d")) else None),
    ("MIN(b.i)", pa.int64(), lambda r: min(known(r, "b", "i"), default=None)),
    ("MAX(b.f)", pa.float64(), lambda r: max(ordered(known(r, "b", "f")), default=None)),
    ("MIN(b.f)", pa.float64(), lambda r: min(ordered(known(r, "b", "f")), default=None)),
    ("MAX(b.t)", pa.string(), lambda r: max(known(r, "b", "t"), default=None)),
    ("MIN(b.coded)", pa.string(), lambda r: min(known(r, "b", "coded"), default=None)),
    ("MAX(b.big)", pa.uint64(), lambda r: max(known(r, "b", "big"), default=None)),
    ("MIN(b.d)", pa.decimal128(5, 2), lambda r: min(known(r, "b", "d"), default=None)),
    ("MAX(b.on)", pa.date32(), lambda r: max(known(r, "b", "on"), default=None)),
    ("MAX(b.flag)", pa.bool_(), lambda r: max(known(r, "b", "flag"), default=None)),
    ("LIST(b.i)", pa.list_(pa.int64()), lambda r: [e["i"] for e in held(r, "b")] or None),
    ("LIST(d.t)", pa.list_(pa.string()), lambda r: [e["t"] for e in held(r, "d")] or None),
    ("LAST(b).i - a.i", pa.int64(), lambda r: minus(one(r, "b", "i", -1), one(r, "a", "i"))),
    ("LAST(b).ts - a.ts", pa.duration("ms"), lambda r: minus(one(r, "b", "ts", -1), one(r, "a", "ts"))),
    ("LAST(b).d - a.d", pa.decimal128(6, 2), lambda r: minus(one(r, "b", "d", -1), one(r, "a", "d"))),
    ("a.ts + 5 MINUTES", pa.timestamp("ms"), lambda r: one(r, "a", "ts") + dt.timedelta(minutes=5)),
    ("upper(a.t)", pa.large_string(), lambda r: None if (t := one(r, "a", "t")) is None else t.upper()),
    ("COUNT(b) * 2 + 1", pa.int64(), lambda r: len(held(r, "b")) * 2 + 1),
    ("7 / (COUNT(b) - 2)", pa.int64(), lambda r: None if (n := len(held(r, "b")) - 2) == 0 else int(7 / n)),
    ("COUNT(b) % 2", pa.int64(), lambda r: len(held(r, "b")) % 2),
    ("COUNT(b) / 2.0", pa.float64(), lambda r: len(held(r, "b")) / 2),
    ("-COUNT(b)", pa.int64(), lambda r: -len(held(r, "b"))),
]


def plain(values):
    return ["NaN" if isinstance(v, float) and v != v else v for v in values]


@pytest.mark.parametrize(("text", "data_type", "value"), MEASURES, ids=[text for text, _, _ in MEASURES])
def test_a_measure_is_that_of_each_valuation_with_arrows_type(text, data_type, value):
    bindings = cer_gpu.compile(BARE).evaluate(EVENTS, output="bindings").to_pylist()
    assert len(bindings) > 50
    answer = cer_gpu.compile(f"SELECT a, b, c, d, {text} AS m {PATTERN}").evaluate(EVENTS)
    assert answer.column_names == ["start", "end", "m"]
    assert answer.schema.field("m").type == data_type
    assert answer["start"].to_pylist() == [row["start"] for row in bindings]
    found, expected = plain(answer["m"].to_pylist()), plain(map(value, bindings))
    if pa.types.is_floating(data_type):
        expected = [v if v in (None, "NaN") else pytest.approx(v) for v in expected]
    assert found == expected


ALL = ", ".join(f"{text} AS m{k}" for k, (text, _, _) in enumerate(MEASURES))


def test_no_cut_buffer_or_checkpoint_changes_measures():
    query = cer_gpu.compile(f"SELECT {ALL} {PATTERN} HAVING m4 > 1 OR m7 IS NULL LIMIT 3")
    whole = query.evaluate(EVENTS)
    assert whole.num_rows
    for size in (1, 7):
        evaluator, parts = query.evaluator(), []
        for batch in EVENTS.to_batches(max_chunksize=size):
            parts.append(evaluator.push(batch))
            evaluator = query.restore(evaluator.checkpoint())
        assert str(pa.Table.from_batches([*parts, evaluator.finish()]).to_pylist()) == str(whole.to_pylist())
    with small_sizes():
        assert str(query.evaluate(EVENTS).to_pylist()) == str(whole.to_pylist())


def test_partitions_times_and_shares_of_measures():
    text = f"SELECT COUNT(b) AS n, SUM(b.i) AS s {PATTERN.replace('WITHIN', 'PARTITION BY [key] WITHIN')}"
    query = cer_gpu.compile(text, time_column="ts")
    answer = query.evaluate(EVENTS)
    assert answer.column_names == ["start", "end", "start_time", "end_time", "key", "n", "s"]
    shares = [query.evaluate(EVENTS, shard=(k, 3)).to_pylist() for k in range(3)]
    assert sorted(itertools.chain(*shares), key=str) == sorted(answer.to_pylist(), key=str)
    assert all(shares)


# ---- HAVING --------------------------------------------------------------------------------------------------------


def test_having_keeps_what_is_true_before_limit_and_in_every_share():
    text = f"SELECT COUNT(b) AS n, SUM(b.i) AS s {PATTERN}"
    everything = cer_gpu.compile(text).evaluate(EVENTS).to_pylist()
    kept = [row for row in everything if row["s"] is not None and row["s"] > 0 and row["n"] > 1]
    having = f"{text} HAVING s > 0 AND n > 1"
    assert 0 < len(kept) < len(everything)
    assert cer_gpu.compile(having).evaluate(EVENTS).to_pylist() == kept
    limited = cer_gpu.compile(f"{having} LIMIT 2")
    expected = [row for _, rows in itertools.groupby(kept, lambda row: row["end"]) for row in [*rows][:2]]
    assert limited.evaluate(EVENTS).to_pylist() == expected
    shares = [limited.evaluate(EVENTS, shard=(k, 2)).to_pylist() for k in range(2)]
    assert sorted(itertools.chain(*shares), key=str) == sorted(expected, key=str)


def test_having_alone_drops_valuations():
    query = cer_gpu.compile(f"SELECT b {PATTERN} HAVING COUNT(b) = 2 AND MAX(b.t) LIKE 'y'")
    found = query.evaluate(EVENTS)
    assert found.column_names == ["start", "end", "positions", "b"]
    rows = cer_gpu.compile(f"SELECT b {PATTERN}").evaluate(EVENTS, output="bindings").to_pylist()
    kept = [r for r in rows if len(r["b"]) == 2 and "y" in (max(known(r, "b", "t"), default=None) or "")]
    assert found.to_pylist() == kept
    assert kept


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("abs(s) > 5", lambda s, t: s is not None and abs(s) > 5),
        ("upper(MAX(b.t)) = 'YY' OR length(MAX(b.t)) = 0", lambda s, t: t in ("yy", "")),
        ("abs(s - 1) IS NULL", lambda s, t: s is None),
    ],
)
def test_having_takes_functions_of_measures(condition, holds):
    text = f"SELECT SUM(b.i) AS s, MAX(b.t) AS t {PATTERN}"
    everything = cer_gpu.compile(text).evaluate(EVENTS).to_pylist()
    kept = [row for row in everything if holds(row["s"], row["t"])]
    assert 0 < len(kept) < len(everything)
    assert cer_gpu.compile(f"{text} HAVING {condition}").evaluate(EVENTS).to_pylist() == kept


def test_having_follows_the_choice_of_any_and_changes_no_consumption():
    events = pa.table({"type": ["A", "B", "A", "B"], "x": [1, 2, 3, 4]})
    chosen = cer_gpu.compile("SELECT ANY a.x AS x FROM S WHERE A AS a ; B").evaluate(events)["x"].to_pylist()
    text = f"SELECT ANY a.x AS x FROM S WHERE A AS a ; B HAVING x <> {chosen[-1]}"
    assert cer_gpu.compile(text).evaluate(events)["x"].to_pylist() == [x for x in chosen if x != chosen[-1]]
    consuming = "SELECT a.x AS x FROM S WHERE A AS a ; B HAVING x > 1 CONSUME BY ANY"
    assert cer_gpu.compile(consuming).evaluate(events)["x"].to_pylist() == [3]


@pytest.mark.parametrize("output", ["positions", "events", "count", "ends"])
def test_outputs_without_valuations_refuse_having(output):
    query = cer_gpu.compile(f"SELECT COUNT(b) AS n {PATTERN} HAVING n > 1")
    with pytest.raises(OptionError, match="HAVING chooses among valuations"):
        query.evaluate(EVENTS, output=output)


# ---- errors --------------------------------------------------------------------------------------------------------

WRONG = [
    ("SUM(b.t) AS q", "measure 'q': SUM needs numbers, and column 't' is string"),
    ("AVG(b.ts)", "AVG needs numbers"),
    ("a.t + 1", "measure 'a.t \\+ 1': there is no string \\+ int64"),
    ("a.i - a.ts", "there is no int64 - timestamp"),
    ("SUM(b.nothing)", "the events have no column 'nothing'"),
    ("abs(a.t)", "abs takes a number"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_measures_that_do_not_fit_are_refused(text, message):
    with pytest.raises(QueryTypeError, match=message):
        cer_gpu.compile(f"SELECT {text} {PATTERN}", schema=EVENTS.schema)
    with pytest.raises(QueryTypeError, match=message):
        cer_gpu.compile(f"SELECT {text} {PATTERN}").evaluate(EVENTS)


def test_an_attribute_of_several_events_is_refused():
    with pytest.raises(QueryError, match=r"(?s)'b' can hold several events.*FIRST\(b\)\.i, LAST\(b\)\.i"):
        cer_gpu.compile(f"SELECT b.i {PATTERN}")


def test_two_measures_of_one_name_are_refused():
    with pytest.raises(QueryError, match="two measures are called 'k'"):
        cer_gpu.compile(f"SELECT a.i AS k, c.i AS k {PATTERN}")


@pytest.mark.parametrize("data_type", [pa.int64(), pa.duration("ns")])
def test_sums_fit_if_only_what_is_added_on_the_way_does_not(data_type):
    large = 2**62
    events = pa.table({"type": ["A"] * 4, "v": pa.array([large, large, -large, -large], data_type)})
    found = cer_gpu.compile("SELECT SUM(a.v) AS s FROM S WHERE A{4} AS a").evaluate(events)
    assert found["s"].type == data_type
    assert found["s"].cast(pa.int64()).to_pylist() == [0]


def test_sums_beyond_their_type_are_errors():
    events = pa.table(
        {"type": ["A", "B", "B", "C"], "i": [0, 2**62, 2**62, 0], "u": pa.array([0, 1, 2, 3], pa.uint8())}
    )
    query = cer_gpu.compile("SELECT SUM(b.i) AS s FROM S WHERE A ; B+ AS b ; C")
    with pytest.raises(EventsError, match=r"measure 's': SUM\(b.i\) of the match from 0 to 3 is beyond int64"):
        query.evaluate(events)
    with pytest.raises(EventsError, match="measure 'p': the value of a measure does not fit"):
        cer_gpu.compile("SELECT MAX(b.i) * 4 AS p FROM S WHERE A ; B+ AS b ; C").evaluate(events)
    big = pa.table({"type": ["A", "B", "B", "C"], "i": pa.array([0, 2**63, 2**63 - 1, 0], pa.uint64())})
    assert max(query.evaluate(big)["s"].to_pylist()) == 2**64 - 1


# ---- rows, single variables, limits --------------------------------------------------------------------------------


def test_rows_are_the_events_of_each_valuation_and_variable():
    query = cer_gpu.compile(f"SELECT a[i, t], b[i] {PATTERN}")
    answer = query.evaluate(EVENTS, output="rows")
    assert answer.column_names == ["match", "variable", "position", "i", "t"]
    expected = []
    for match, row in enumerate(query.evaluate(EVENTS, output="bindings").to_pylist()):
        events = sorted([(row["a"], "a"), *((p, "b") for p in row["b"])])
        expected += [(match, name, p, ROWS[p]["i"], ROWS[p]["t"]) for p, name in events]
    assert [tuple(row.values()) for row in answer.to_pylist()] == expected
    evaluator, parts = query.evaluator(output="rows"), []
    for batch in EVENTS.to_batches(max_chunksize=9):
        parts.append(evaluator.push(batch))
        evaluator = query.restore(evaluator.checkpoint())
    assert pa.Table.from_batches(parts).equals(answer)
    assert query.evaluate(EVENTS, output="rows", threads=2).equals(answer)


def test_variables_of_one_event_are_scalars_and_no_column_comes_twice():
    events = pa.table({"type": ["A", "B", "B", "C"]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B+ ; (C AS x OR D AS y)")
    found = query.evaluate(events, output="bindings")
    assert found.column_names == ["start", "end", "positions", "a", "B", "x", "y"]
    types = {name: found.schema.field(name).type for name in found.column_names[3:]}
    assert types == {"a": pa.int64(), "B": pa.list_(pa.int64()), "x": pa.int64(), "y": pa.int64()}
    assert {(row["a"], row["x"], row["y"]) for row in found.to_pylist()} == {(0, 3, None)}
    twice = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B ; A").evaluate(events, output="bindings")
    assert twice.column_names[3:] == ["A", "a", "B"]


@pytest.mark.parametrize("output", ["positions", "bindings", "events", "measures", "count", "ends"])
@pytest.mark.parametrize("limit", [0, 1, 5, 10**6])
def test_the_limit_stops_after_so_many_results(output, limit):
    query = cer_gpu.compile(f"SELECT a.i AS i, COUNT(b) AS n {PATTERN}")
    whole = query.evaluate(EVENTS, output=output)
    first = str(whole.slice(0, limit).to_pylist())
    assert str(query.evaluate(EVENTS, output=output, limit=limit).to_pylist()) == first
    evaluator, parts = query.evaluator(output=output, limit=limit), []
    for batch in EVENTS.to_batches(max_chunksize=5):
        parts.append(evaluator.push(batch))
        evaluator = query.restore(evaluator.checkpoint())
    assert str(pa.Table.from_batches(parts).to_pylist()) == first
    assert evaluator.limit_reached == (limit <= whole.num_rows)


def test_the_limit_of_rows_counts_valuations_and_reads_no_further():
    query = cer_gpu.compile(f"SELECT a, b {PATTERN}")
    whole = query.evaluate(EVENTS, output="rows")
    limited = query.evaluate(EVENTS, output="rows", limit=3)
    assert limited.equals(whole.slice(0, whole["match"].to_pylist().index(3)))
    read = []

    def batches():
        for batch in EVENTS.to_batches(max_chunksize=5):
            read.append(batch)
            yield batch

    query.evaluate(batches(), limit=1)
    assert len(read) < len(EVENTS.to_batches(max_chunksize=5))
    with pytest.raises(OptionError, match="limit must be a number"):
        query.evaluate(EVENTS, limit=-1)


# ---- aggregates over all complex events of an end ------------------------------------------------------------------

AGGREGATES = [
    ("SUM(LAST(b).i - a.i)", lambda r: minus(one(r, "b", "i", -1), one(r, "a", "i")), sum),
    ("MAX(a.t)", lambda r: one(r, "a", "t"), max),
    ("MIN(LAST(b).ts - a.ts)", lambda r: minus(one(r, "b", "ts", -1), one(r, "a", "ts")), min),
    ("AVG(a.i)", lambda r: one(r, "a", "i"), lambda v: sum(v) / len(v)),
    ("SUM(a.d)", lambda r: one(r, "a", "d"), lambda v: sum(v, Decimal(0))),
    ("SUM(d.small)", lambda r: one(r, "d", "small"), sum),
]


@pytest.mark.parametrize(("text", "value", "reduce"), AGGREGATES, ids=[text for text, _, _ in AGGREGATES])
def test_an_aggregate_is_over_all_valuations_of_an_end(text, value, reduce):
    query = cer_gpu.compile(BARE)
    expected = []
    for end, rows in itertools.groupby(query.evaluate(EVENTS, output="bindings").to_pylist(), lambda r: r["end"]):
        values = [v for v in map(value, rows) if v is not None]
        expected.append({"end": end, text: reduce(values) if values else None})
    answer = query.evaluate(EVENTS, output="count", aggregate=text)
    assert answer.to_pylist() == expected
    with small_sizes():
        assert query.evaluate(EVENTS, output="count", aggregate=text).equals(answer)
    shares = [query.evaluate(EVENTS, output="count", aggregate=text, shard=(k, 3)).to_pylist() for k in range(3)]
    assert [row for rows in itertools.zip_longest(*shares) for row in rows if row] == expected
    evaluator, parts = query.evaluator(output="count", aggregate=text), []
    for batch in EVENTS.to_batches(max_chunksize=4):
        parts.append(evaluator.push(batch))
        evaluator = query.restore(evaluator.checkpoint())
    assert pa.Table.from_batches(parts).equals(answer)


def test_count_of_all_is_the_count_and_lists_nothing():
    events = pa.table({"type": ["A"] + ["B"] * 40 + ["A"]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B+ ; A")
    found = query.evaluate(events, output="count", aggregate="COUNT( * )")
    assert found.to_pylist() == [{"end": 41, "COUNT( * )": 2**40 - 1}]


@pytest.mark.parametrize(
    ("select", "options", "error", "message"),
    [
        ("*", {"aggregate": "SUM(a.i)"}, OptionError, "is for output='count'"),
        ("b", {"aggregate": "SUM(a.i)", "output": "count"}, OptionError, "names 'a', which SELECT does not keep"),
        ("*", {"aggregate": "SUM(b.i)", "output": "count"}, QueryError, "'b' can hold several events"),
        ("*", {"aggregate": "SUM(a.t)", "output": "count"}, QueryTypeError, "string, which SUM does not take"),
        ("*", {"aggregate": "SUM(a.x)", "output": "count"}, QueryTypeError, "no column 'x'"),
    ],
)
def test_wrong_aggregates_are_refused(select, options, error, message):
    with pytest.raises(error, match=message):
        cer_gpu.compile(f"SELECT {select} {PATTERN}").evaluate(EVENTS, **options)


# ---- many complex events -------------------------------------------------------------------------------------------


def test_many_buffers_of_measures_are_those_of_positions():
    """Rows of several buffers, with few events and with many between those that match."""
    for types in (["A", "B", "C"], ["A", "B", "C"] + ["X"] * 40):
        rng = np.random.default_rng(5)
        n = 3000
        events = pa.table({"type": np.array(types)[rng.integers(0, len(types), n)], "i": rng.integers(0, 100, n)})
        pattern = f"FROM S WHERE A AS a ; B AS b ; C AS c WITHIN {60 if len(types) == 3 else 600} EVENTS"
        i = events["i"].to_numpy()
        held_positions = np.array(cer_gpu.compile(f"SELECT * {pattern}").evaluate(events)["positions"].to_pylist())
        found = cer_gpu.compile(f"SELECT a, c.i - b.i AS d, SUM(b.i) AS s, MAX(c.i) AS m {pattern}").evaluate(events)
        expected = i[held_positions]
        assert found["d"].to_numpy().tolist() == (expected[:, 2] - expected[:, 1]).tolist()
        assert found["s"].to_numpy().tolist() == expected[:, 1].tolist()
        assert found["m"].to_numpy().tolist() == expected[:, 2].tolist()
