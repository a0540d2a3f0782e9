"""Scalar functions of predicates, computed by Arrow block by block: ``abs``, ``lower``, ``hour`` and similar ones.

NULL in, NULL out.  Integers of fewer bits become int64 first, so that only the least int64 is its own ``abs``, as in
Arrow; floats become float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.clocks import has_zone, per_second
from cer_gpu.columnar.columns import DECIMAL, FLOAT, INTEGER, NOTHING, TEMPORAL, is_string, kind_of, plain_strings
from cer_gpu.errors import EventsError

MAX_DIGITS = 15
"""Most digits after the point that `round` keeps: more are not exact in a float64."""

_WHOLE = 2.0**52
"""Floats from here on are whole numbers."""

_ERA = 146_097 * 86_400
"""Seconds of 400 years, after which the calendar repeats, weekdays included."""

Compute = Callable[[pa.Array], pa.Array]


def number_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type in which a number is computed."""
    if pa.types.is_signed_integer(data_type):
        return pa.int64()
    if pa.types.is_floating(data_type):
        return pa.float64()
    if pa.types.is_decimal(data_type) and data_type.byte_width < 16:
        return pa.decimal128(data_type.precision, data_type.scale)
    return data_type


def rounded_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of a rounded number: a decimal may have one digit more."""
    if not pa.types.is_decimal(data_type):
        return number_type(data_type)
    digits, scale = data_type.precision + 1, data_type.scale
    return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(min(digits, 76), scale)


def is_number(data_type: pa.DataType) -> bool:
    """Return True for integers, floats and decimals."""
    return kind_of(data_type) in (INTEGER, FLOAT, DECIMAL) and not pa.types.is_duration(data_type)


def is_date(data_type: pa.DataType) -> bool:
    """Return True for timestamps and dates."""
    return kind_of(data_type) == TEMPORAL and not pa.types.is_time(data_type)


def is_clock(data_type: pa.DataType) -> bool:
    """Return True for timestamps and times of day."""
    return kind_of(data_type) == TEMPORAL and not pa.types.is_date(data_type)


def integer_type(_: pa.DataType) -> pa.DataType:
    """Return the type of integers that are made."""
    return pa.int64()


def string_type(_: pa.DataType) -> pa.DataType:
    """Return the type of the strings of a result."""
    return pa.large_string()


def absolute_value(_: int, data_type: pa.DataType) -> Compute:
    """Return the function ``abs``; an integer that does not fit int64 is an `EventsError`."""

    def compute(values: pa.Array) -> pa.Array:
        try:
            return pc.abs_checked(values.cast(number_type(data_type)))
        except pa.ArrowInvalid as error:
            raise EventsError(f"the value of abs does not fit int64: {error}") from None

    return compute


def rounded(digits: int, data_type: pa.DataType) -> Compute:
    """Return the function ``round`` to some digits after the point, half to even."""
    if pa.types.is_integer(data_type):
        return lambda values: values.cast(number_type(data_type))
    if pa.types.is_floating(data_type):
        return partial(_round_floats, digits=digits)
    return lambda values: pc.round(values.cast(rounded_type(data_type)), min(digits, max(0, data_type.scale)))


def of_strings(function: Compute) -> Callable[[int, pa.DataType], Compute]:
    """Return a function of strings that returns strings or integers."""

    def compute(values: pa.Array) -> pa.Array:
        result = function(plain_strings(values))
        return result.cast(pa.large_string() if is_string(result.type) else pa.int64())

    return lambda digits, data_type: compute


def is_value(data_type: pa.DataType) -> bool:
    """Return True for the types of single values that have a text form."""
    return kind_of(data_type) not in (None, NOTHING) and not pa.types.is_duration(data_type)


def as_text(_: int, data_type: pa.DataType) -> Compute:
    """Return the function ``string``: ``42``, ``42.0``, ``true``, ``2024-01-31 12:00:00``."""
    if pa.types.is_floating(data_type):
        return _strings_of_floats
    return lambda values: plain_strings(values).cast(pa.large_string())


def _strings_of_floats(values: pa.Array) -> pa.Array:
    strings = values.cast(pa.float64()).cast(pa.large_string())
    whole = pc.binary_join_element_wise(strings, pa.scalar(".0", pa.large_string()), pa.scalar("", pa.large_string()))
    return pc.if_else(pc.match_substring_regex(strings, "[.en]"), strings, whole)


def part_of_time(function: Compute) -> Callable[[int, pa.DataType], Compute]:
    """Return a function of times in the time zone of their type: hours, days, or weekdays, of which 0 is Monday."""
    return lambda digits, data_type: lambda values: function(_near(values)[0]).cast(pa.int64())


def year_of_time(digits: int, data_type: pa.DataType) -> Compute:
    """Return the function of times in the time zone of their type that gives their years."""

    def compute(values: pa.Array) -> pa.Array:
        near, eras = _near(values)
        return pc.add(pc.year(near).cast(pa.int64()), pc.multiply(eras, 400))

    return compute


def day_type(_: pa.DataType) -> pa.DataType:
    """Return the type of calendar days."""
    return pa.date32()


def day_of_time(digits: int, data_type: pa.DataType) -> Compute:
    """Return the function of times in the time zone of their type that gives their calendar days."""

    def compute(values: pa.Array) -> pa.Array:
        local = pc.local_timestamp(values) if has_zone(values.type) else values
        if pa.types.is_date(local.type):
            return local.cast(pa.date32())
        day = int(86400 * per_second(local.type))
        numbers = local.cast(pa.int64())
        days = pc.divide(numbers, day)  # towards zero
        days = pc.subtract(days, pc.less(numbers, pc.multiply(days, day)).cast(pa.int64()))
        return days.cast(pa.int32()).cast(pa.date32())

    return compute


TRUNC_UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
"""Units of ``trunc``; a week begins on Monday."""


def same_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of times that are made of times of a type."""
    return data_type


def beginning_of(unit: int, data_type: pa.DataType) -> Compute:
    """Return the function ``trunc``: the first instant of the hour, day, ... of a time in the zone of its type.

    A day, or longer, that begins at an hour that clocks have twice begins at the first of them; one that begins at an
    hour that clocks skip begins at the first instant after that.
    """
    name = TRUNC_UNITS[unit]
    short = name in ("second", "minute", "hour")

    def computed(values: pa.Array) -> pa.Array:
        if pa.types.is_date(values.type):
            return values if short else _floor(values.cast(pa.timestamp("ms")), name).cast(values.type)
        if not has_zone(values.type):
            return _floor(values, name)
        local = pc.local_timestamp(values)
        floor = _floor(local, name)
        # the same length of time before; right unless the clocks change between the two
        begin = pc.subtract(values.cast(pa.int64()), pc.subtract(local, floor).cast(pa.int64())).cast(values.type)
        exact = pc.assume_timezone(floor, values.type.tz, ambiguous="earliest", nonexistent="latest")
        keep = pc.equal(pc.local_timestamp(begin), floor) if short else pc.equal(begin, exact)
        return pc.if_else(keep, begin, exact).cast(values.type)

    return computed


def _floor(values: pa.Array, unit: str) -> pa.Array:
    """Return the beginnings of units of times without a zone, of any year."""
    near, eras = _near(values)
    floor = pc.floor_temporal(near, unit=unit, week_starts_monday=True)
    if isinstance(eras, int):
        return floor.cast(values.type)
    era = int(_ERA * per_second(values.type))
    return pc.add(floor.cast(pa.int64()), pc.multiply(eras, era)).cast(values.type)


def _near(values: pa.Array) -> tuple[pa.Array, pa.Array | int]:
    """Return times in years that Arrow knows, of 16 bits, and the eras of 400 years by which they are nearer."""
    if pa.types.is_time(values.type):
        return values, 0
    era = int(_ERA * per_second(values.type))
    whole = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
    ends = pc.min_max(values.cast(whole)).as_py().values()
    if all(end is None or abs(end) <= 50 * era for end in ends):
        return values, 0
    local = pc.local_timestamp(values) if has_zone(values.type) else values
    numbers = local.cast(whole)
    eras = pc.divide(numbers, era)
    return pc.subtract(numbers, pc.multiply(eras, era)).cast(whole).cast(local.type), eras


def _round_floats(values: pa.Array, digits: int) -> pa.Array:
    """Round floats, half to even; Arrow refuses large ones, which are whole."""
    values = values.cast(pa.float64())
    small = pc.less(pc.abs(values), _WHOLE)
    return pc.if_else(small, pc.round(pc.if_else(small, values, 0.0), digits), values)
