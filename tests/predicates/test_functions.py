"""Functions in predicates: values against plain Python, in every way to evaluate a predicate, and errors."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.predicates import guards

DAY = 86_400
N = 12
NUMBERS = [-(2**63), -7, -1, 0, 1, 2, 7, 2**63 - 1, None, 5, -2, 3]
FLOATS = [-2.5, -0.5, 0.5, 1.25, 2.675, math.nan, math.inf, -1e300, None, 4503599627370497.0, 0.125, 7.0]
TEXTS = ["ABC", "abc", "Straße", "ÄÖ", "", None, "aBc", "x" * 40, "äö", "abc", None, "ẞ"]
TIMES = [dt.datetime(2024, 3, day, hour) for day, hour in zip(range(1, 13), range(0, 24, 2), strict=True)]
EVENTS = pa.table(
    {
        "type": ["A", "B"] * 6,
        "n": NUMBERS,
        "small": pa.array([-128, 127, 3, None] * 3, pa.int8()),
        "f": FLOATS,
        "half": pa.array([-1.5, 2.0, None] * 4, pa.float32()),
        "money": pa.array([Decimal("-1.25"), Decimal("99.95"), None, Decimal("2.35")] * 3, pa.decimal128(4, 2)),
        "text": TEXTS,
        "coded": pa.array(TEXTS).dictionary_encode(),
        "view": pa.array(TEXTS, pa.string_view()),
        "at": pa.array(TIMES, pa.timestamp("us")),
        "zoned": pa.array(TIMES, pa.timestamp("ms", "UTC")).cast(pa.timestamp("ms", "Asia/Tokyo")),
        "date": pa.array([time.date() for time in TIMES], pa.date32()),
        "time": pa.array([time.time() for time in TIMES], pa.time32("s")),
        "st": [{"p": text} for text in TEXTS],
    }
)


TOKYO = [(time + dt.timedelta(hours=9)).hour for time in TIMES]
CASES = [
    ("abs(n / 2) = 3", [n is not None and abs(n) // 2 == 3 for n in NUMBERS]),
    ("abs(small) = 128", [n == -128 for n in [-128, 127, 3, None] * 3]),
    ("abs(f) > 1", [f is not None and abs(f) > 1 for f in FLOATS]),
    ("abs(half) = 1.5", [f == -1.5 for f in [-1.5, 2.0, None] * 4]),
    ("abs(money) = 1.25", [k % 4 == 0 for k in range(N)]),
    ("abs(n / 4 - 1) <= 3", [n is not None and abs(int(Fraction(n, 4)) - 1) <= 3 for n in NUMBERS]),
    ("round(f) = 0", [f is not None and math.isfinite(f) and round(f) == 0 for f in FLOATS]),
    ("round(f, 1) = 1.2", [f == 1.25 for f in FLOATS]),
    ("round(f) = f", [(f is not None and math.isinf(f)) or f in (-1e300, 4503599627370497.0, 7.0) for f in FLOATS]),
    ("round(n, 3) = n", [n is not None for n in NUMBERS]),
    ("round(money, 1) IN {-1.2, 100.0, 2.4}", [k % 4 != 2 for k in range(N)]),
    ("hour(at) >= 20", [time.hour >= 20 for time in TIMES]),
    ("hour(zoned) < 6", [hour < 6 for hour in TOKYO]),
    ("hour(time) = 4", [time.hour == 4 for time in TIMES]),
    ("day(at) = 3 OR day(date) = 9", [time.day in (3, 9) for time in TIMES]),
    ("weekday(at) IN {5, 6}", [time.weekday() >= 5 for time in TIMES]),
    ("weekday(date) = 0", [time.weekday() == 0 for time in TIMES]),
    ("minute(at) < 30", [time.minute < 30 for time in TIMES]),
    ("minute(time) = 4", [time.minute == 4 for time in TIMES]),
    ("week(at) <= 10 OR week(date) = 53", [time.isocalendar().week in (*range(11), 53) for time in TIMES]),
    ("month(at) = 3 OR month(date) = 9", [time.month in (3, 9) for time in TIMES]),
    ("year(at) >= 2000 AND year(date) < 2025", [2000 <= time.year < 2025 for time in TIMES]),
    ("abs(at - at) <= 0 SECONDS", [True] * N),
]
for column in ("text", "coded", "view", "st.p"):
    CASES += [
        (f"lower({column}) = 'abc'", [text is not None and text.lower() == "abc" for text in TEXTS]),
        (f"upper({column}) IN {{'ABC', 'ÄÖ'}}", [text is not None and text.upper() in ("ABC", "ÄÖ") for text in TEXTS]),
        (f"length({column}) = 3", [text is not None and len(text) == 3 for text in TEXTS]),
        (f"lower(upper({column})) LIKE '^a.c$'", [text is not None and text.lower() == "abc" for text in TEXTS]),
        (f"lower({column}) IS NULL", [text is None for text in TEXTS]),
        (f"lower({column}) = {column}", [text is not None and text.lower() == text for text in TEXTS]),
    ]


@pytest.mark.parametrize("tier", [guards.INTERPRETED, guards.COMPILED])
@pytest.mark.parametrize(("predicate", "expected"), CASES, ids=[predicate for predicate, _ in CASES])
def test_functions_agree_with_plain_python(predicate, expected, tier, monkeypatch):
    monkeypatch.setattr(guards, "TIER", tier)
    query = cer_gpu.compile(f"SELECT * FROM S WHERE (A OR B) AS x FILTER x[{predicate}]", schema=EVENTS.schema)
    rows = [k for k, holds in enumerate(expected) if holds]
    assert query.evaluate(EVENTS)["end"].to_pylist() == rows
    evaluator = query.evaluator()
    found = [row for b in EVENTS.to_batches(max_chunksize=5) for row in evaluator.push(b)["end"].to_pylist()]
    assert found == rows


def pairs(holds):
    """Return the pairs of an A and a later B for which a test holds."""
    return [(i, j) for j in range(1, N, 2) for i in range(0, j, 2) if holds(i, j)]


def both(values, test):
    return lambda i, j: values[i] is not None and values[j] is not None and test(values[i], values[j])


@pytest.mark.parametrize(
    ("predicate", "holds"),
    [
        ("lower(x.text) = lower(y.coded)", both(TEXTS, lambda a, b: a.lower() == b.lower())),
        ("lower(x.text) < upper(y.text)", both(TEXTS, lambda a, b: a.lower() < b.upper())),
        ("length(x.text) > length(y.view)", both(TEXTS, lambda a, b: len(a) > len(b))),
        ("abs(y.small - x.small) < 200", both([-128, 127, 3, None] * 3, lambda a, b: abs(b - a) < 200)),
        ("abs(y.half - x.half) >= 3.5", both([-1.5, 2.0, None] * 4, lambda a, b: abs(b - a) >= 3.5)),
        ("abs(y.at - x.at) <= 30 HOURS", both(TIMES, lambda a, b: b - a <= dt.timedelta(hours=30))),
        ("abs(y.n - x.n) IS NULL", lambda i, j: NUMBERS[i] is None or NUMBERS[j] is None),
        ("hour(x.at) = hour(y.at) - 2", both(TIMES, lambda a, b: a.hour == b.hour - 2)),
        ("abs(x.small) + 1 = 4 OR abs(y.small - x.small) = 255", None),
    ],
)
def test_functions_relate_events(predicate, holds):
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A AS x ; B AS y FILTER x[type = 'A'] AND {predicate}")
    small = [-128, 127, 3, None] * 3
    if holds is None:

        def holds(i, j):
            return small[i] == 3 or (None not in (small[i], small[j]) and abs(small[i] - small[j]) == 255)

    found = query.evaluate(EVENTS)
    assert sorted(zip(found["start"].to_pylist(), found["end"].to_pylist(), strict=True)) == sorted(pairs(holds))


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        ("x[abs(text) = 1]", "abs takes a number or a duration, and column 'text' (string) is none"),
        ("x[abs(text) = 1]", "hint: functions of texts are lower, upper, string, length"),
        ("x[lower(n) = 'a']", "lower takes a text, and column 'n' (int64) is none"),
        ("x[lower(lower(n)) = 'a']", "lower takes a text, and column 'n' (int64) is none"),
        ("x[length(abs(n)) = 1]", "length takes a text, and abs(n) (int64) is none"),
        ("x[hour(n) = 1]", "hint: cast the column to a timestamp"),
        ("x[hour(date) = 1]", "hour takes a timestamp or a time of day, and column 'date' (date32[day]) is none"),
        ("x[day(time) = 1]", "day takes a timestamp or a date"),
        ("x[round(f, 16) = 1]", "a whole number from 0 to 15"),
        ("x[round(f, n) = 1]", "the second operand of round is a whole number"),
        ("x[lower(text) > 3]", "cannot compare lower(text) (large_string) with the number 3"),
        ("x[lower(txt) = 'a']", "did you mean 'text'"),
        ("x[abs(at - date) = 3]", "a length of time, and no number"),
        ("round(x.f - y.f) = 1", "round reads one event, and this one several"),
    ],
)
def test_wrong_types_are_refused_with_a_hint(predicate, message):
    with pytest.raises(cer_gpu.QueryError) as error:
        cer_gpu.compile(f"SELECT * FROM S WHERE A AS x ; B AS y FILTER {predicate}", schema=EVENTS.schema)
    assert message in str(error.value)
    assert "^" in str(error.value)


def test_an_unknown_time_zone_is_refused():
    schema = pa.schema([("type", pa.string()), ("at", pa.timestamp("s", "Moon/Crater"))])
    with pytest.raises(cer_gpu.QueryTypeError, match="Moon/Crater"):
        cer_gpu.compile("SELECT * FROM S WHERE A AS x FILTER x[hour(at) = 1]", schema=schema)


def test_a_column_may_be_called_like_a_function():
    events = pa.table({"type": ["A", "A"], "x": ["a", "B"], "lower(x)": ["b", "b"]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[lower(x) = `lower(x)`]")
    assert query.evaluate(events)["end"].to_pylist() == [1]


@pytest.mark.parametrize("predicate", ["abs(n) = 7", "abs(n - 4) <= 3", "abs(-n) > 0"])
def test_absolute_values_that_do_not_fit_are_an_error(predicate):
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A FILTER A[{predicate}]")
    assert query.evaluate(pa.table({"type": ["A"], "n": [-7]})).num_rows == (predicate != "abs(n - 4) <= 3")
    with pytest.raises(cer_gpu.EventsError, match="does not fit int64"):
        query.evaluate(pa.table({"type": ["A"], "n": [-(2**63)]}))


def test_columns_without_values_satisfy_nothing():
    events = pa.table({"type": ["A"], "x": pa.nulls(1)})
    for predicate in "lower(x) = 'a'", "abs(x) = 1", "hour(x) = 1", "NOT length(x) = 1", "LAG(x) = 1":
        query = cer_gpu.compile(f"SELECT * FROM S WHERE A FILTER A[{predicate}]")
        assert query.evaluate(events).num_rows == 0


@pytest.mark.parametrize("data_type", [*(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")), pa.date32()], ids=str)
def test_parts_of_times_far_away_are_those_of_a_year_that_is_near(data_type):
    """The calendar repeats after 400 years; Arrow knows years of 16 bits."""
    bits = 31 if data_type == pa.date32() else 63
    a_second = Fraction(1, DAY) if bits == 31 else {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[data_type.unit]
    far = [2**bits - 1, -(2**bits), 2 ** (bits - 1), 1, -1, 0]
    events = pa.table(
        {"type": ["A"] * len(far), "at": pa.array(far, pa.int32() if bits == 31 else pa.int64()).view(data_type)}
    )
    near = [dt.datetime(1970, 1, 1) + dt.timedelta(seconds=int(x // a_second) % (146_097 * DAY)) for x in far]
    for part, values in (
        ("hour", [at.hour for at in near]),
        ("day", [at.day for at in near]),
        ("weekday", [at.weekday() for at in near]),
        ("minute", [at.minute for at in near]),
        ("week", [at.isocalendar().week for at in near]),
        ("month", [at.month for at in near]),
        ("year", [at.year + 400 * (int(x // a_second) // (146_097 * DAY)) for at, x in zip(near, far, strict=True)]),
    ):
        if part in ("hour", "minute") and bits == 31:
            continue
        for value in values:
            query = cer_gpu.compile(f"SELECT * FROM S WHERE A FILTER A[{part}(at) = {value}]")
            assert query.evaluate(events)["end"].to_pylist() == [k for k, x in enumerate(values) if x == value]
