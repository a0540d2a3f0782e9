"""IS NULL, and differences of times compared with lengths of time, equal to plain Python row by row."""

import datetime as dt
import operator
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from strategies import property_test

import cer_gpu
from cer_gpu.ceql.parser import parse
from cer_gpu.columnar.columns import Block
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.targets.numpy import rows_of


def answers(predicate, columns):
    """Return the truth of a predicate on each row (None: neither), by the tests of it and of its negation."""
    batch = pa.record_batch(columns)
    text = f"SELECT * FROM S WHERE S FILTER S[{predicate}]"
    tree = parse(text).formula.filter.predicate
    binder, block = Binder(batch.schema, text), Block(batch)
    yes, no = (
        np.broadcast_to(rows_of(binder.bind(tree, negated), binder.inputs, block), batch.num_rows)
        for negated in (False, True)
    )
    assert not (yes & no).any()
    return [True if y else False if n else None for y, n in zip(yes.tolist(), no.tolist(), strict=True)]


COLUMNS = {
    "n": pa.array([1, None, 0, 4]),
    "m": pa.array([0, 2, 0, None]),
    "v": pa.array([0.0, 1.0, None, float("nan")]),
    "s": pa.array(["a", None, "", "b"]),
    "d": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "flag": pa.array([True, False, None, None]),
    "day": pa.array([0, None, 2, 3], pa.date32()),
    "dec": pa.array([None, 1, 2, 3]).cast(pa.decimal128(30, 2)),
    "none": pa.nulls(4),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_null_where_it_has_no_value(name):
    expected = [value is None for value in COLUMNS[name].to_pylist()]
    assert answers(f"{name} IS NULL", COLUMNS) == expected
    assert answers(f"{name} IS NOT NULL", COLUMNS) == [not null for null in expected]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n + m", [False, True, False, True]),
        ("n / m", [True, True, True, True]),
        ("n % (m + 1)", [False, True, False, True]),
        ("1 / n", [False, True, True, False]),
        ("v / m", [False, False, True, True]),
        ("-(n * 2)", [False, True, False, False]),
        ("1 / 0", [True] * 4),
        ("1.0 / 0", [False] * 4),
        ("n + none", [True] * 4),
        ("3", [False] * 4),
        ("'x'", [False] * 4),
    ],
)
def test_an_expression_is_null_if_a_part_is_or_it_divides_an_integer_by_zero(expression, expected):
    assert answers(f"{expression} IS NULL", COLUMNS) == expected
    assert answers(f"{expression} IS NOT NULL", COLUMNS) == [not null for null in expected]


def test_null_is_told_from_an_unknown_test():
    assert answers("n > 0 OR n IS NULL", COLUMNS) == [True, True, False, True]


UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
LENGTHS = {"0 SECONDS": 0, "5 MINUTES": 300, "-1 HOURS 2 SECONDS": -3602, "0.25 SECONDS": Fraction(1, 4)}
COMPARISONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
INT64 = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-400, 400)


@property_test(0.5)
def test_differences_of_times_are_exact(data):
    kind = data.draw(st.sampled_from([pa.timestamp, pa.duration]))
    units = [data.draw(st.sampled_from(sorted(UNITS))) for _ in "xy"]
    rows = [data.draw(st.lists(st.none() | INT64, min_size=3, max_size=3)) for _ in "xy"]
    columns = {name: pa.array(row, kind(unit)) for name, row, unit in zip("xy", rows, units, strict=True)}
    op, length = data.draw(st.sampled_from(sorted(COMPARISONS))), data.draw(st.sampled_from(sorted(LENGTHS)))
    differences = [
        None if None in pair else Fraction(pair[0], UNITS[units[0]]) - Fraction(pair[1], UNITS[units[1]])
        for pair in zip(*rows, strict=True)
    ]
    expected = [None if each is None else COMPARISONS[op](each, LENGTHS[length]) for each in differences]
    assert answers(f"x - y {op} {length}", columns) == expected


def test_a_length_may_stand_on_either_side():
    columns = {"x": pa.array([0, 299, 300, 301], pa.duration("s"))}
    assert answers("x < 5 MINUTES", columns) == answers("5 MINUTES > x", columns) == [True, True, False, False]
    assert answers("x BETWEEN 5 MINUTES AND 5 MINUTES 0.5 SECONDS", columns) == [False, False, True, False]
    assert answers("x IN {0 SECONDS, 5 MINUTES}", columns) == [True, False, True, False]
    assert answers("1 HOURS = 60 MINUTES", columns) == [True] * 4


def test_differences_of_dates_and_of_times_of_day_are_lengths():
    columns = {
        "a": pa.array([dt.date(2024, 3, 1), dt.date(2023, 3, 1)], pa.date32()),
        "b": pa.array([dt.date(2024, 2, 28), dt.date(2023, 2, 28)], pa.date64()),
        "t": pa.array([dt.time(12, 0), dt.time(9, 30)], pa.time32("s")),
        "u": pa.array([dt.time(11, 0), dt.time(9, 0)], pa.time64("us")),
    }
    assert answers("a - b = 2 DAYS", columns) == [True, False]
    assert answers("t - u > 30 MINUTES", columns) == [True, False]
    for other in ("t > u + 30 MINUTES", "30 MINUTES + u < t", "t - 10 MINUTES > u + 10 MINUTES + 10 MINUTES"):
        assert answers(other, columns) == [True, False]
    assert answers("t - u - 10 MINUTES > 20 MINUTES", columns) == [True, False]


@pytest.mark.parametrize(
    "predicate",
    [
        "n > 5 MINUTES",
        "ts > 5 MINUTES",
        "ts - n > 5 MINUTES",
        "ts - zoned > 5 MINUTES",
        "ts - span > 5 MINUTES",
        "-(ts - ts) < 5 MINUTES",
        "'a' = 5 MINUTES",
        "ts - ts > 5",
        "5 MINUTES IS NULL",
        "5 MINUTES LIKE 'a'",
    ],
)
def test_lengths_of_time_are_compared_with_lengths_of_time_alone(predicate):
    schema = pa.schema(
        {
            "type": pa.string(),
            "n": pa.int64(),
            "ts": pa.timestamp("s"),
            "zoned": pa.timestamp("s", "UTC"),
            "span": pa.duration("s"),
        }
    )
    with pytest.raises(cer_gpu.QueryTypeError):
        cer_gpu.compile(f"SELECT * FROM S WHERE S FILTER S[{predicate}]", schema=schema)


def test_queries_read_lengths_and_nulls():
    events = pa.table(
        {
            "type": ["A"] * 3,
            "off": pa.array([0, 10, 20], pa.timestamp("s")),
            "on": pa.array([70, 50, None], pa.timestamp("ms")),
        }
    )
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS x FILTER x.off - x.on < 0 SECONDS OR x.on IS NULL")
    assert query.evaluate(events)["end"].to_pylist() == [0, 2]
