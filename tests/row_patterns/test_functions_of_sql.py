"""Functions of times, and casts, in DEFINE and MEASURES; hints on those that there are not."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import cer_gpu

TIMES = [
    dt.datetime(2024, 2, 29, 23),
    dt.datetime(2024, 3, 1, 5),
    dt.datetime(2024, 3, 1, 6),
    dt.datetime(2025, 3, 1, 6),
]
ROWS = pa.table(
    {
        "s": ["1", "2", "x", "4"],
        "x": [1, 2, 3, 4],
        "ts": pa.array(TIMES, pa.timestamp("us")),
        "zoned": pa.array(TIMES, pa.timestamp("us")).cast(pa.timestamp("us", "Asia/Tokyo")),
    }
)


def lasts(condition: str, measure: str = "B.x") -> list:
    text = f"""SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES {measure} AS m ONE ROW PER MATCH
        AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) DEFINE B AS {condition})"""
    return cer_gpu.compile(text).evaluate(ROWS)["m"].to_pylist()


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("DATE(ts) = DATE(PREV(ts))", [3]),
        ("CAST(ts AS DATE) = CAST(PREV(ts) AS DATE)", [3]),
        ("ts::DATE = DATE '2024-03-01'", [2, 3]),
        ("DATE_TRUNC('day', ts) = DATE_TRUNC('day', PREV(ts))", [3]),
        ("DATE_TRUNC('hour', ts) = ts AND TRUNC(ts, 'YEAR') = TRUNC(PREV(ts), 'year')", [2, 3]),
        ("TRUNC(ts, 'month') < ts", [2, 3, 4]),
        ("CAST(x AS DOUBLE) / 2 - TRUNC(CAST(x AS DOUBLE) / 2) > 0", [3]),
        ("DATE(zoned) = DATE(PREV(zoned))", [2, 3]),
        ("HOUR(ts) = 6", [3, 4]),
        ("MINUTE(ts) = 0 AND DAY(ts) = 1", [2, 3, 4]),
        ("YEAR(ts) > YEAR(PREV(ts))", [4]),
        ("MONTH(ts) = MONTH(PREV(ts))", [3, 4]),
        ("EXTRACT(YEAR FROM ts) = 2025", [4]),
        ("CAST(x AS VARCHAR) = s", [2, 4]),
        ("NUMBER(s) = 4", [4]),
    ],
)
def test_conditions(condition, wanted):
    assert lasts(condition) == wanted


def test_measures():
    assert lasts("B.x > 3", "DATE(B.ts)") == [dt.date(2025, 3, 1)]
    assert lasts("B.x > 3", "CAST(B.x AS VARCHAR)") == ["4"]


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("CAST(s AS INTEGER) > 1", r"NUMBER\(text\) is a number"),
        ("TRUNC(ts, 'DECADE') = ts", r"TRUNC\(ts, unit\): second, minute, hour, day"),
        ("DATE_TRUNC('millennium', ts) = ts", r"TRUNC\(ts, unit\): second, minute, hour, day"),
        ("COALESCE(x, 0) > 1", "x > 100 OR x IS NULL"),
        ("CASE WHEN x > 1 THEN 1 ELSE 0 END = 1", "the cases with OR and AND"),
        ("GREATEST(x, 2) = 2", "make a column of it first"),
        ("x < LAG(x)", r"write PREV\(x\)"),
        ("x < LEAD(x)", r"write NEXT\(x\)"),
    ],
)
def test_what_is_not_there_has_a_way_out(condition, hint):
    with pytest.raises(cer_gpu.QueryError, match=rf"(?s)is not supported in MATCH_RECOGNIZE.*hint: .*{hint}"):
        lasts(condition)


def test_a_query_in_from_is_given_as_its_table():
    text = "SELECT * FROM (SELECT * FROM t WHERE x > 1) MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS TRUE)"
    with pytest.raises(cer_gpu.QuerySyntaxError, match=r"hint: evaluate it first, and give its table as the events"):
        cer_gpu.compile(text)


def test_the_day_of_a_time_in_ceql():
    """Days are those of the zone, and before 1970, too."""
    times = [dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(1970, 1, 1), dt.datetime(1900, 2, 28, 1), *TIMES]
    for unit in ("s", "us", "ns"):
        events = pa.table({"ts": pa.array(times, pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)})
        query = cer_gpu.compile("SELECT date(a.ts) AS day FROM S WHERE S AS a", type_column=None)
        assert query.evaluate(events)["day"].to_pylist() == [time.date() for time in times]
        same = "SELECT * FROM S WHERE S AS a : S AS b FILTER date(b.ts) = date(a.ts)"
        assert cer_gpu.compile(same, type_column=None).evaluate(events)["start"].to_pylist() == [4]
        one = "SELECT * FROM S WHERE S AS a FILTER a[date(ts) > '2024-03-01']"
        assert cer_gpu.compile(one, type_column=None).evaluate(events)["start"].to_pylist() == [6]
