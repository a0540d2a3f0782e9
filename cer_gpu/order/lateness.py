"""Lateness of events, as a user writes it, in units of the time column."""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.clocks import UNITS_PER_SECOND, has_zone, per_second
from cer_gpu.errors import OptionError, did_you_mean

_FORMS = (
    "expected: a number of units of the time column, or a text such as '10 ns', '250ms', '1.5h', '5m', '2 min', '1d'"
)
_SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_NAMES = {
    "µs": "us",
    "μs": "us",
    **dict.fromkeys(["sec", "secs", "second", "seconds"], "s"),
    **dict.fromkeys(["m", "mins", "minute", "minutes"], "min"),
    **dict.fromkeys(["hr", "hrs", "hour", "hours"], "h"),
    **dict.fromkeys(["day", "days"], "d"),
}


def parse_lateness(
    value: str | int | float | dt.timedelta, time_type: pa.DataType, time_unit: str | None, *, what: str = "lateness"
) -> int | float:
    """Return a lateness in units of the time column, rounded down; for a column of floats it is not rounded.

    Parameters
    ----------
    value
        A number of units of the column, as a number or a text; a text with a unit of time (``'5s'``, ``'250ms'``,
        ``'1.5h'``, ``'2 min'``, ``'1d'``, ``'10us'``, ``'10 ns'``); or a timedelta.
    time_type
        Type of the time column.
    time_unit
        "s", "ms", "us" or "ns": the unit of an integer column, needed if `value` is a time.
    what
        Its name in messages.

    Raises
    ------
    OptionError
        For anything else, a negative value, or a time if the unit of the column is not known.
    """
    if isinstance(value, dt.timedelta):
        micros = (value.days * 86400 + value.seconds) * 10**6 + value.microseconds
        number, unit = Fraction(micros), "us"
    elif isinstance(value, str):
        number, unit = _parse_length(value, what)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        number, unit = Fraction(value), ""
    else:
        raise OptionError(f"cannot read the {what} {value!r}\n{_FORMS}")
    if number < 0:
        raise OptionError(f"the {what} must not be negative, got {value!r}\n{_FORMS}")
    if unit:
        number *= _SECONDS[unit] * _units_per_second(value, time_type, time_unit, what)
    if pa.types.is_floating(time_type):
        return float(min(number, Fraction(sys.float_info.max)))
    return math.floor(number)


def parse_time(value: Any, time_type: pa.DataType) -> int:
    """Return a time in units of the time column, rounded down.

    Parameters
    ----------
    value
        A number of units of the column, or a value of its kind: a datetime, date, timedelta, or Arrow or NumPy scalar.
    time_type
        Type of the time column: integers, timestamps, dates or durations.

    Raises
    ------
    OptionError
        For anything else, and for a time with a zone where the column has none, or the other way round.
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    try:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
    except (pa.ArrowException, TypeError, ValueError):
        scalar = pa.scalar(None)
    given = scalar.type
    if scalar.is_valid and _time_kind(given) == _time_kind(time_type):
        number = scalar.value if hasattr(scalar, "value") else scalar.as_py()
        if pa.types.is_integer(given):
            return int(number)
        return math.floor(Fraction(number) * per_second(time_type) / per_second(given))
    raise OptionError(
        f"cannot read {value!r} as a time of a column of type {time_type}\n"
        "expected: a number of units of the column, or a value of its type"
    )


def _time_kind(data_type: pa.DataType) -> str:
    """Return the kind of times that can be compared; "" for types of others."""
    if pa.types.is_integer(data_type):
        return "integer"
    if pa.types.is_duration(data_type):
        return "duration"
    if pa.types.is_date(data_type):
        return "local"
    return ("instant" if has_zone(data_type) else "local") if pa.types.is_timestamp(data_type) else ""


def _parse_length(text: str, what: str) -> tuple[Fraction, str]:
    """Return the number and the unit of a text; the unit is "" if there is none."""
    found = re.fullmatch(r"\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))\s*([^\W\d_]*)\s*", text)
    name = found[2].lower() if found else ""
    unit = _NAMES.get(name, name)
    if found is None or (unit and unit not in _SECONDS):
        hint = did_you_mean(name, _SECONDS, "units") if name else None
        raise OptionError(f"cannot read the {what} {text!r}\n{_FORMS}" + (f"\nhint: {hint}" if hint else ""))
    return Fraction(found[1]), unit


def _units_per_second(value: object, time_type: pa.DataType, time_unit: str | None, what: str) -> Fraction:
    if pa.types.is_timestamp(time_type) or pa.types.is_duration(time_type) or pa.types.is_date(time_type):
        return per_second(time_type)
    if pa.types.is_integer(time_type) and time_unit in UNITS_PER_SECOND:
        return Fraction(UNITS_PER_SECOND[time_unit])
    if pa.types.is_integer(time_type):
        hint = f"time_unit='s', 'ms', 'us' or 'ns' (--time-unit), or a {what} in units of the column"
    else:
        hint = f"a {what} in units of the column"
    raise OptionError(
        f"the {what} {value!r} is a time, and the time column is {time_type}, whose unit is not known\n"
        f"expected: a column of timestamps, dates or durations, or the unit of its integers\nhint: {hint}"
    )
