"""Aggregates for which nothing is listed, against the same aggregates over listed complex events."""

import contextlib
import itertools
import random
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from sizes import seeds
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.automaton.chain import Rejection
from cer_gpu.errors import EventsError
from cer_gpu.output.weights import Linear
from cer_gpu.planning import outputs

PATTERNS = [
    ("A AS a ; B AS b ; C AS c", "abc"),
    ("A AS a ; B+ AS b ; C AS c", "ac"),
    ("A AS a ; !X ; B AS b ; C AS c", "abc"),
    ("A AS a -> B AS b ; C AS c", "abc"),
    ("A AS a ; B{2,4} AS b ; C AS c", "ac"),
    ("A AS a ; B AS b ; C+ AS c", "ab"),
    ("A AS a ; A AS b ; B+ AS x ; A AS c", "abc"),
    ("A+ AS z ; A AS a ; A AS b", "ab"),
    ("A AS a ; B ->+ AS b ; C AS c", "ac"),
]
WINDOWS = ["", "WITHIN 5 EVENTS", "WITHIN 20 EVENTS", "WITHIN 10 seconds", "WITHIN 12 [k]"]


def stream(rng, n, nulls):
    """Return random events; some values are NULL, and some floats are not finite."""

    def column(value, type_):
        return pa.array([None if rng.random() < nulls else value() for _ in range(n)], type_)

    times = list(itertools.accumulate(rng.choice([0, 1, 1, 2, 5]) for _ in range(n)))
    odd = [float("inf"), -float("inf"), float("nan")]
    return pa.table(
        {
            "type": [rng.choice("AABBCX") for _ in range(n)],
            "i": column(lambda: rng.randrange(-9, 9), pa.int64()),
            "u": column(lambda: rng.randrange(200), pa.uint8()),
            "f": column(lambda: rng.randrange(-9, 9) / 4, pa.float64()),
            "g": column(lambda: rng.choice(odd) if rng.random() < 0.2 else rng.randrange(9) / 4, pa.float32()),
            "ts": pa.array(times, pa.timestamp("s")),
            "k": pa.array(times, pa.int64()),
        }
    )


def expression(rng, variables):
    """Return a random sum of terms over columns of one kind."""
    columns, terms = rng.choice(["iu", "fg"]), []
    for _ in range(rng.choice([1, 2, 2, 3])):
        one, other = (f"{rng.choice(variables)}.{rng.choice(columns)}" for _ in range(2))
        terms.append(rng.choice([one, one, f"-2 * {one}", f"({one} + {other}) * 3", f"({one} + 7)"]))
    return " - ".join(terms)


def assert_same(found, expected):
    """Integers and NULLs are equal; floats are, up to rounding."""
    assert found.schema == expected.schema
    for name in expected.schema.names:
        a, b = found[name], expected[name]
        assert a.is_null().to_pylist() == b.is_null().to_pylist()
        if pa.types.is_floating(a.type):
            a, b = (x.fill_null(0).to_numpy() for x in (a, b))
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
        else:
            assert a.to_pylist() == b.to_pylist()


@pytest.mark.long("forty combinations, each listed too")
@pytest.mark.parametrize("function", ["SUM", "AVG", "MIN", "MAX"])
@pytest.mark.parametrize("seed", seeds(10))
def test_weighing_is_aggregating_what_is_listed(function, seed):
    rng = random.Random(f"{function} {seed}")
    pattern, variables = rng.choice(PATTERNS)
    window = rng.choice(WINDOWS)
    events = stream(rng, 36 if window else 14, rng.choice([0, 0.2, 0.6]))
    aggregate = f"{function}({expression(rng, variables)})"
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern} {window}", time_column="ts")
    listing = mock.patch.object(outputs, "linear", return_value=Rejection("for the test"))
    with listing:
        expected = query.evaluate(events, output="count", aggregate=aggregate)
    assert query.with_aggregate(aggregate).physical_plan("count").runtime == "chain_weigher"
    assert_same(query.evaluate(events, output="count", aggregate=aggregate), expected)
    with small_sizes():
        assert_same(query.evaluate(events, output="count", aggregate=aggregate, threads=2), expected)
    shares = [query.evaluate(events, output="count", aggregate=aggregate, shard=(k, 3)) for k in range(3)]
    ends = [[row["end"] for row in share.to_pylist()] for share in shares]
    assert [e for row in itertools.zip_longest(*ends) for e in row if e is not None] == expected["end"].to_pylist()
    evaluator, parts = query.evaluator(output="count", aggregate=aggregate), []
    with small_sizes() if seed % 2 else contextlib.nullcontext():
        for batch in events.to_batches(max_chunksize=rng.choice([1, 3, 7])):
            parts.append(evaluator.push(batch))
            if rng.random() < 0.4:
                evaluator = query.restore(evaluator.checkpoint())
    parts.append(evaluator.finish())
    assert_same(pa.Table.from_batches(parts), expected)
    with listing:
        listed = query.evaluator(output="count", aggregate=aggregate)
        listed.push(events.to_batches()[0])
    assert evaluator.n_matches == listed.n_matches


def test_far_too_many_to_list_are_summed():
    events = pa.table({"type": ["A"] + ["B"] * 40 + ["A"], "i": [3, *range(40), 10]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B+ ; A AS c")
    found = query.evaluate(events, output="count", aggregate="SUM(c.i - a.i)")
    assert found["SUM(c.i - a.i)"].to_pylist() == [7 * (2**40 - 1)]


@pytest.mark.parametrize(
    ("value", "n", "fits"), [(2**60, 7, True), (2**60, 8, False), (-(2**60), 8, True), (-(2**60), 9, False)]
)
def test_a_sum_beyond_its_type_is_an_error(value, n, fits):
    events = pa.table({"type": ["A"] * n + ["B"], "i": [value] * n + [0]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b")
    if fits:
        assert query.evaluate(events, output="count", aggregate="SUM(a.i)")[1].to_pylist() == [n * value]
        return
    with pytest.raises(EventsError, match="is beyond int64"):
        query.evaluate(events, output="count", aggregate="SUM(a.i)")


def test_partial_sums_may_be_beyond_the_type():
    events = pa.table({"type": ["A"] * 18 + ["B"], "i": [2**60] * 9 + [-(2**60)] * 9 + [0]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b")
    assert query.evaluate(events, output="count", aggregate="SUM(a.i)")[1].to_pylist() == [0]


def test_weights_too_large_are_refused():
    events = pa.table({"type": ["A", "B"], "i": [2**61 + 1, 0]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b")
    with pytest.raises(EventsError, match="are too large for an aggregate that lists nothing"):
        query.evaluate(events, output="count", aggregate="SUM(a.i - b.i)")


@pytest.mark.parametrize(
    ("pattern", "aggregate", "reason"),
    [
        ("A AS a ; B AS b", "SUM(a.i * b.i)", "no sum of numbers times attributes"),
        ("A AS a ; B AS b", "MAX(abs(a.i))", "no sum of numbers times attributes"),
        ("A AS a ; B AS b", "SUM(a.i / 2)", "no sum of numbers times attributes"),
        ("A AS a ; B+ AS b ; A", "SUM(LAST(b).i)", "b may hold several events"),
        ("A AS a : B AS b WITHIN 5 EVENTS", "SUM(a.i)", "neighbours"),
        ("A AS a ; B AS b PARTITION BY [k]", "SUM(a.i)", "PARTITION BY"),
        ("A AS a ; B AS b LIMIT 2", "SUM(a.i)", "LIMIT"),
        ("A AS a ; B AS b CONSUME BY ANY", "SUM(a.i)", "CONSUME BY"),
        ("A AS a ; B AS b FILTER a.i < b.i", "SUM(a.i)", "join predicates"),
    ],
)
def test_other_aggregates_list(pattern, aggregate, reason):
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern}").with_aggregate(aggregate)
    assert not isinstance(query._plan.weights, Linear)
    assert reason in query._plan.weights.reason
    assert reason in query.physical_plan("count").reason


@pytest.mark.parametrize("aggregate", ["SUM(a.big)", "SUM(a.i * 1.5)", "MAX(a.t)", "SUM(a.i + b.f)", "SUM(a.d)"])
def test_other_types_list(aggregate):
    events = pa.table(
        {
            "type": ["A", "A", "B"],
            "i": [1, 2, 3],
            "f": [0.5, 1.5, 2.5],
            "big": pa.array([2**62, 1, 0], pa.uint64()),
            "t": ["x", "y", "z"],
            "d": pa.array([1, 2, 3], pa.decimal128(5, 2)),
        }
    )
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b")
    evaluator = query.evaluator(output="count", aggregate=aggregate)
    found = evaluator.push(events.to_batches()[0])
    assert evaluator.physical.runtime == "stacks"
    with mock.patch.object(outputs, "linear", return_value=Rejection("for the test")):
        assert pa.table(found).equals(query.evaluate(events, output="count", aggregate=aggregate))
    again = query.restore(evaluator.checkpoint())
    assert again.push(events.to_batches()[0]).num_rows == 1
