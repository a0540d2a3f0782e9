"""Timestamps, dates, times of day and durations as exact numbers in units of their types."""

from __future__ import annotations

import datetime as dt
import re
from fractions import Fraction

import pyarrow as pa

UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class ZoneError(ValueError):
    """A moment written with an offset from UTC, for a type without a time zone."""


def per_second(data_type: pa.DataType) -> Fraction:
    """Return the number of units of a type of moments or durations in a second."""
    if pa.types.is_date(data_type):
        return Fraction(1, 86400) if pa.types.is_date32(data_type) else Fraction(10**3)
    return Fraction(UNITS_PER_SECOND[data_type.unit])


def has_zone(data_type: pa.DataType) -> bool:
    """Return True if values of a type are instants, not local times."""
    return bool(pa.types.is_timestamp(data_type) and data_type.tz)


def read_moment(text: str, data_type: pa.DataType) -> Fraction:
    """Read an ISO date and time (or time of day) as a number in units of a type.

    Without an offset, the time is UTC if the type has a time zone.

    Raises
    ------
    ValueError
        When the text has another form; ZoneError: only its offset from UTC does not fit.
    """
    # datetime would drop digits beyond microseconds
    fraction = re.search(r"(?<=:\d\d)[.,]\d+", text)
    if fraction is not None:
        text = text[: fraction.start()] + text[fraction.end() :]
    if pa.types.is_time(data_type):
        time = dt.time.fromisoformat(text.strip())
        if time.tzinfo is not None:
            raise ZoneError("a time of day has no time zone")
        seconds = Fraction(time.hour * 3600 + time.minute * 60 + time.second)
    else:
        moment = dt.datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=dt.UTC)
        elif not has_zone(data_type):
            raise ZoneError("an offset from UTC needs a column with a time zone")
        since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        seconds = Fraction(since.days * 86400 + since.seconds) + Fraction(since.microseconds, 10**6)
    if fraction is not None:
        seconds += Fraction("0." + fraction[0][1:])
    return seconds * per_second(data_type)
