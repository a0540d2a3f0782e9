"""``trunc``: beginnings of hours, days, weeks, ... in the zone of the type, against the calendar of Python."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
import strategies
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.errors import QueryError
from cer_gpu.expressions.functions import TRUNC_UNITS

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Sao_Paulo"]


def beginning(local, unit):
    """Return the beginning of a unit of a local time, without its zone."""
    begin = local.replace(tzinfo=None, microsecond=0)
    fields = {"second": {}, "minute": {"second": 0}, "hour": {"second": 0, "minute": 0}}
    if unit in fields:
        return begin.replace(**fields[unit])
    begin = begin.replace(hour=0, minute=0, second=0)
    if unit == "week":
        return begin - dt.timedelta(days=begin.weekday())
    if unit == "quarter":
        return begin.replace(day=1, month=3 * ((begin.month - 1) // 3) + 1)
    return begin.replace(**{"day": {}, "month": {"day": 1}, "year": {"day": 1, "month": 1}}[unit])


def is_beginning(moment, local, unit, zone):
    """Return True if a UTC time is the first instant of the unit that a local time is in."""
    begin = beginning(local, unit)
    seen = moment.astimezone(zone).replace(tzinfo=None)
    before = (moment - dt.timedelta(microseconds=1)).astimezone(zone).replace(tzinfo=None)
    # the instant lies in the unit, and the one before it does not, or is a later one that the clocks repeat
    return seen >= begin and beginning(seen, unit) == begin and (before < begin or before > seen)


def truncated(values, unit):
    table = pa.table({"type": ["A"] * len(values), "t": values})
    text = f"SELECT a.b FROM S LET b = trunc(t, '{unit}') WHERE A AS a"
    return cer_gpu.compile(text).evaluate(table)["a.b"]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", TRUNC_UNITS)
@strategies.property_test(0.1)
def test_times_begin_with_their_unit_in_their_zone(zone, unit, data):
    near = st.integers(890_000, 900_000).map(lambda k: 1800 * k)
    seconds = st.integers(0, 2**31) | near
    times = data.draw(st.lists(seconds, min_size=1, max_size=8))
    moments = [dt.datetime.fromtimestamp(each, dt.UTC) for each in times]
    found = truncated(pa.array(moments, pa.timestamp("ms", zone)), unit).to_pylist()
    for moment, begin in zip(moments, found, strict=True):
        assert is_beginning(begin.astimezone(dt.UTC), moment.astimezone(ZoneInfo(zone)), unit, ZoneInfo(zone))


def test_an_hour_that_the_clocks_have_twice_is_two_hours():
    zone = ZoneInfo("Europe/Berlin")
    moments = [dt.datetime(2026, 10, 25, hour, 30, tzinfo=dt.UTC) for hour in (0, 1, 2)]  # 2:30, 2:30, 3:30
    values = pa.array(moments, pa.timestamp("us", "Europe/Berlin"))
    hours = [each.astimezone(dt.UTC).hour for each in truncated(values, "hour").to_pylist()]
    assert hours == [0, 1, 2]
    assert [each.astimezone(zone).hour for each in truncated(values, "day").to_pylist()] == [0, 0, 0]


def test_dates_and_times_without_a_zone():
    days = pa.array([dt.date(2026, 11, 28), None])
    assert truncated(days, "month").to_pylist() == [dt.date(2026, 11, 1), None]
    assert truncated(days, "hour").to_pylist() == days.to_pylist()
    times = pa.array([dt.datetime(2026, 11, 28, 13, 14, 15, 16), dt.datetime(1969, 12, 31, 23, 59)])
    assert truncated(times, "week").to_pylist() == [dt.datetime(2026, 11, 23), dt.datetime(1969, 12, 29)]


@pytest.mark.parametrize(
    ("text", "message"),
    [("trunc(t, 'days')", "units are second, minute"), ("trunc(t)", "trunc"), ("trunc(x, 'day')", "takes a timestamp")],
)
def test_other_operands_are_refused(text, message):
    table = pa.table({"type": ["A"], "t": pa.array([0], pa.timestamp("s")), "x": [1]})
    with pytest.raises(QueryError, match=message):
        cer_gpu.compile(f"SELECT a.b FROM S LET b = {text} WHERE A AS a").evaluate(table)
