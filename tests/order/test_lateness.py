"""Lateness as a user writes it."""

from __future__ import annotations

import datetime as dt
import math
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import property_settings

import cer_gpu
from cer_gpu.order.reorder_buffer import parse_lateness

UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
TIME_UNITS = ["s", "ms", "us", "ns"]


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("5s", 5 * 10**6),
        ("250ms", 250_000),
        ("1.5h", 5400 * 10**6),
        ("2 min", 120 * 10**6),
        ("1d", 86400 * 10**6),
        ("10us", 10),
        ("10 µs", 10),
        ("10 μs", 10),
        ("999 ns", 0),
        ("1000ns", 1),
        (" .5 Seconds ", 500_000),
        ("2. days", 2 * 86400 * 10**6),
        ("1 HOUR", 3600 * 10**6),
        ("3 minutes", 180 * 10**6),
        ("7", 7),
        ("7.9", 7),
        ("0", 0),
        ("+1s", 10**6),
        (7, 7),
        (7.9, 7),
        (0, 0),
        (10**40, 10**40),
        (dt.timedelta(days=1, microseconds=3), 86400 * 10**6 + 3),
        (dt.timedelta(0), 0),
        (dt.timedelta.max, 86399999999999999999),
    ],
)
def test_every_form_of_a_lateness_is_read_exactly(text, micros):
    assert parse_lateness(text, pa.timestamp("us"), None) == micros


@given(st.decimals(0, 10**9, places=9), st.sampled_from(sorted(UNITS)), st.sampled_from(TIME_UNITS), st.booleans())
@property_settings
def test_units_are_exact(number, unit, time_unit, integer):
    expected = math.floor(Fraction(number) * UNITS[unit] / UNITS[time_unit])
    found = parse_lateness(
        f"{number:f}{unit}", *((pa.int64(), time_unit) if integer else (pa.timestamp(time_unit, "UTC"), None))
    )
    assert found == expected
    assert type(found) is int


def test_a_lateness_takes_the_unit_of_the_time_column():
    assert parse_lateness("36h", pa.date32(), None) == 1
    assert parse_lateness("1d", pa.date64(), None) == 86_400_000
    assert parse_lateness("1.5 ms", pa.duration("us"), None) == 1500
    assert parse_lateness("1.5 ms", pa.uint32(), "us") == 1500
    assert parse_lateness(0.75, pa.float64(), None) == 0.75
    assert parse_lateness("0.75", pa.float32(), None) == 0.75
    assert parse_lateness(7, pa.int64(), None) == 7


@pytest.mark.parametrize(
    "value",
    [
        "",
        "s",
        "5 parsecs",
        "1h 30min",
        "1e3s",
        "five",
        "1,5h",
        "--5s",
        "nan",
        "inf",
        None,
        [1],
        True,
        1j,
        math.nan,
        math.inf,
        b"5s",
        "5\x00s",
        "٣ s",
    ],
)
def test_an_unreadable_lateness_is_refused(value):
    with pytest.raises(
        cer_gpu.OptionError, match=r"cannot read the lateness .*\nexpected: a number of units of the time "
    ):
        parse_lateness(value, pa.timestamp("us"), None)


def test_a_wrong_unit_gets_a_hint_and_a_negative_lateness_is_refused():
    with pytest.raises(cer_gpu.OptionError, match="hint: did you mean 'min'"):
        parse_lateness("5 minz", pa.timestamp("us"), None)
    for value in (-1, "-1", "-1s", -0.5, dt.timedelta(microseconds=-1)):
        with pytest.raises(cer_gpu.OptionError, match="must not be negative, got"):
            parse_lateness(value, pa.timestamp("us"), None)


def test_a_time_needs_the_unit_of_an_integer_column():
    for value in ("5s", dt.timedelta(seconds=5)):
        with pytest.raises(
            cer_gpu.OptionError, match=r"is a time, and the time column is int64, .*\n.*\nhint: time_unit='s'"
        ):
            parse_lateness(value, pa.int64(), None)
        with pytest.raises(cer_gpu.OptionError, match=r"the time column is double, .*\n.*\nhint: a lateness in units"):
            parse_lateness(value, pa.float64(), "s")
