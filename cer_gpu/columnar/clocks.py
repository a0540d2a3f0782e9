"""Clocks (columns of times, which must not decrease), and the window of a query over them."""

from __future__ import annotations

import datetime as dt
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Int32, Int64, UInt64
from cer_gpu.backend.windows import first_fall, window_lows
from cer_gpu.ceql.paths import dotted
from cer_gpu.ceql.syntax import Within
from cer_gpu.columnar.columns import DECIMAL, FLOAT, INTEGER, STRING, TEMPORAL, Block, kind_of, numbers_of
from cer_gpu.columnar.fields import column_type, fields_hint
from cer_gpu.columnar.memory import GatherBuffer, Scratch, larger_ring, read_only
from cer_gpu.errors import EventsError, QueryTypeError, TimeOrderError

UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class ZoneError(ValueError):
    """Timestamp with an offset from UTC, for a type without a time zone."""


def per_second(data_type: pa.DataType) -> Fraction:
    """Return the number of units of a type of timestamps or durations in a second."""
    if pa.types.is_date(data_type):
        return Fraction(1, 86400) if pa.types.is_date32(data_type) else Fraction(10**3)
    return Fraction(UNITS_PER_SECOND[data_type.unit])


def has_zone(data_type: pa.DataType) -> bool:
    """Return True if values of a type are instants, not local times."""
    return bool(pa.types.is_timestamp(data_type) and data_type.tz)


def read_timestamp(text: str, data_type: pa.DataType) -> Fraction:
    """Read an ISO date and time (or time of day) as a number in units of a type.

    Without an offset, the time is UTC if the type has a time zone.

    Raises
    ------
    ValueError
        When the text has another form; ZoneError: only its offset from UTC is invalid for the type.
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
        timestamp = dt.datetime.fromisoformat(text.strip())
        if timestamp.tzinfo is None:
            timestamp = timestamp.replace(tzinfo=dt.UTC)
        elif not has_zone(data_type):
            raise ZoneError("an offset from UTC needs a column with a time zone")
        since = timestamp - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        seconds = Fraction(since.days * 86400 + since.seconds) + Fraction(since.microseconds, 10**6)
    if fraction is not None:
        seconds += Fraction("0." + fraction[0][1:])
    return seconds * per_second(data_type)


TIME_UNITS = UNITS_PER_SECOND

_INITIAL_SIZE = 1 << 10
"""Initial capacity of the ring of a window, in events."""

_SORT = "sort the events by {0!r} first: time_column={0!r}, sort=True (--time-column {0} --sort)"
_FILL = "leave such events out, or give them a time"


class Clock:
    """Column of the times of events; it must not decrease, and no value may be missing.

    Parameters
    ----------
    name
        Name of the column.
    begin
        Number of the first event.
    """

    def __init__(self, name: str, begin: int = 0) -> None:
        self.name = name
        self._last: np.generic | None = None
        self._last_shown: pa.Scalar | None = None
        self._type: pa.DataType | None = None
        self._advanced = 0
        self._n_rows = begin
        self._gathered = GatherBuffer()
        self._ordered = Scratch(np.uint64)

    def read(self, block: Block, positions: Int64 | None = None) -> Array:
        """Return the column's values (integers in their own width, or float64) after checking their order.

        Raises
        ------
        TimeOrderError
            When a value decreases or is missing; it names both values, and the event by its position column or number.
        EventsError
            When the type of the column changes between blocks.
        """
        array = block.array(self.name)
        data_type = array.type
        if self._type is not None and data_type != self._type:
            raise EventsError(
                f"column {dotted(self.name)!r} tells the time and changed its type: "
                f"{self._type} before, {data_type} from event {self._n_rows} on"
            )
        self._type = data_type
        values = block.numbers(self.name)
        valid = block.valid(self.name)
        numbers = range(self._n_rows, self._n_rows + len(values)) if positions is None else positions
        if valid is not None and not valid.all():
            _fail(self.name, numbers[int(np.argmin(valid))], "is missing (NULL)", _FILL)
        if len(values):
            row: int = first_fall(read_only(values))
            if row < len(values) and values.dtype.kind == "f" and np.isnan(values).any():
                _fail(self.name, numbers[int(np.argmax(np.isnan(values)))], "is not a number (NaN)", _FILL)
            if self._last is not None and values[0] < self._last:
                what = f"({_time_string(array[0])}) is less than the one before ({_time_string(self._last_shown)})"
                _fail(self.name, numbers[0], what)
            if self._advanced and int(ordered(values[:1])[0]) < self._advanced:
                what = (
                    f"({_time_string(array[0])}) is earlier than {_time_string(key_to_time(self._advanced, data_type))}"
                )
                _fail(self.name, numbers[0], f"{what}, to which the stream has advanced", "advance less")
            if row < len(values):
                what = f"({_time_string(array[row])}) is less than the one before ({_time_string(array[row - 1])})"
                _fail(self.name, numbers[row], what)
            self._last, self._last_shown = values[-1], array[-1]
            self._n_rows += len(values)
        return values

    def advance(self, key: int) -> None:
        """Refuse times from now on that are earlier than that of a key (`ordered`), which must be of integers."""
        self._advanced = key

    def at(self, rows: Int32, values: Array) -> Array:
        """Return the values of some rows as int64, uint64 or float64, valid until the next call."""
        return self._gathered.take(values, rows)

    def window_clocks(self, values: Array) -> Array:
        """Return values from `at` as `ordered` clocks, valid until the next call."""
        return ordered(values, self._ordered.empty(len(values)) if values.dtype.kind == "i" else None)

    def snapshot(self) -> tuple[int, pa.Table]:
        """Return the state: the number of rows so far, and the last value."""
        last = [] if self._last_shown is None else [self._last_shown]
        return self._n_rows, pa.table({"last": pa.array(last, self._type or pa.null())})

    def restore(self, n_rows: int, last: pa.Table) -> None:
        """Go on from a snapshot."""
        self._n_rows = n_rows
        column = last["last"]
        if not pa.types.is_null(column.type):
            self._type = column.type
        if len(column):
            self._last_shown = column[0]
            self._last = numbers_of(column.combine_chunks())[0]


def _fail(name: str, position: int, what: str, hint: str = "") -> None:
    column = dotted(name)
    raise TimeOrderError(
        f"the {column!r} of event {position} {what}\n"
        "expected: events in the order of time, equal times allowed\n"
        f"hint: {hint or _SORT.format(column)}",
        position,
    )


def _time_string(value: pa.Scalar) -> str:
    """Return a time as text, or its number if it is outside the calendar or its time zone is unknown."""
    for show in (str, lambda v: str(v.cast(pa.string()))):
        try:
            text = show(value)
        except (ValueError, ArithmeticError, LookupError):
            continue
        if not text.startswith("<"):
            return text
    return str(value.value)


def time_in_words(time: int, data_type: pa.DataType) -> str:
    """Return a 64-bit time of a column as text."""
    return _time_string(times_to_arrow(np.array([time], np.int64), data_type)[0])


def times_to_arrow(times: Int64, data_type: pa.DataType) -> pa.Array:
    """Return 64-bit times as an array of the time column's type."""
    width = data_type.bit_width
    kind = "u" if pa.types.is_unsigned_integer(data_type) else "i"
    values = times.astype(f"{kind}{width // 8}", copy=False)
    return pa.Array.from_buffers(data_type, len(times), [None, pa.py_buffer(np.ascontiguousarray(values))])


def key_to_time(key: int, data_type: pa.DataType) -> pa.Scalar:
    """Return the integer or timestamp of a type that has this key (`ordered`)."""
    values = np.array([key], np.uint64)
    if not pa.types.is_unsigned_integer(data_type):
        values ^= np.uint64(1 << 63)
    return times_to_arrow(values.view(np.int64), data_type)[0]


def time_column_type(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of the time column; raise QueryTypeError unless it is one of times or integers."""
    data_type = column_type(schema, name, None, None)
    kind = kind_of(data_type)
    if kind not in (INTEGER, TEMPORAL) or pa.types.is_time(data_type):
        message = f"the time column {name!r} must be a timestamp, a date, a duration or an integer, and is {data_type}"
        hint = "make timestamps of it first, as pyarrow.compute.strptime" if kind == STRING else None
        raise QueryTypeError(message, hint=hint)
    return data_type


def window_length(
    within: Within, schema: pa.Schema, time_column: str | None, time_unit: str | None, text: str
) -> tuple[str | None, np.uint64 | np.float64]:
    """Return the column in which a window is measured (None: positions), and its length in units of that.

    Raises
    ------
    QueryTypeError
        When the column holds neither numbers nor times.
    """
    if within.kind == "events":
        return None, _uint64(within.length)
    if within.kind == "time":
        assert time_column is not None
        return time_column, _uint64(within.length * _units_per_second(schema, time_column, time_unit, within, text))
    assert within.attribute is not None
    name = within.attribute.name
    data_type = column_type(schema, name, text, within.attribute.span)
    kind = kind_of(data_type)
    if kind == FLOAT:
        return name, np.float64(within.length)
    if kind == DECIMAL and data_type.precision <= 18:
        return name, _uint64(within.length * Fraction(10) ** data_type.scale)
    if kind not in (INTEGER, TEMPORAL) or pa.types.is_time(data_type):
        raise QueryTypeError(
            f"WITHIN needs a column of numbers or timestamps, and {dotted(name)!r} is {data_type}",
            text,
            *within.attribute.span,
            hint="decimals may have at most 18 digits" if kind == DECIMAL else fields_hint(name, data_type),
        )
    return name, _uint64(within.length)


def _uint64(length: Fraction) -> np.uint64:
    return np.uint64(min(length.numerator // length.denominator, 2**64 - 1))


def _units_per_second(schema: pa.Schema, name: str, time_unit: str | None, within: Within, text: str) -> Fraction:
    data_type = time_column_type(schema, name)
    if not pa.types.is_integer(data_type):
        return per_second(data_type)
    if time_unit is None:
        raise QueryTypeError(
            f"WITHIN in HOURS, MINUTES or SECONDS over the integers of {name!r} needs their unit",
            text,
            *within.span,
            hint="time_unit='s', 'ms', 'us' or 'ns' (--time-unit)",
        )
    return Fraction(UNITS_PER_SECOND[time_unit])


class WindowClocks:
    """Sliding window over the relevant events: it finds the first event in the window that ends at each.

    Parameters
    ----------
    length
        Length in units of the clocks (ε), uint64 or float64.
    """

    def __init__(self, length: np.uint64 | np.float64) -> None:
        self._length = length
        dtype = np.float64 if isinstance(length, np.float64) else np.uint64
        self._ring = np.zeros(_INITIAL_SIZE, dtype)
        self._low = 0
        self._lows = Scratch(np.int64)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays."""
        return {"ring": self._ring, "low": np.array([self._low])}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self._ring, self._low = snapshot["ring"], int(snapshot["low"][0])

    def lows(self, clocks: Array, ordinal: int) -> Int64:
        """Return the ordinal of the first event in each window, valid until the next call.

        Parameters
        ----------
        clocks : uint64 or float64 (from `ordered`), shape (n,)
            Clocks of the relevant events of a block.
        ordinal : int
            Ordinal of the first of these events.
        """
        lows = self._lows.empty(len(clocks))
        self._low = low = int(window_lows(clocks, self._length, self._ring, ordinal, self._low, lows))
        end = ordinal + len(clocks)
        if len(self._ring) < end - low:
            self._ring = larger_ring(self._ring, end - low)
        first = max(low, ordinal)
        place, inside = first & (len(self._ring) - 1), clocks[first - ordinal :]
        n_to_its_end = len(self._ring) - place
        self._ring[place : place + len(inside)] = inside[:n_to_its_end]
        self._ring[: max(len(inside) - n_to_its_end, 0)] = inside[n_to_its_end:]
        return lows


def earliest(clock: np.dtype[Any]) -> Any:
    """Return the clock before all others: of integers (`ordered`) 0, of floats -inf."""
    return clock.type(-np.inf if clock.kind == "f" else 0)


def ordered(values: Array, memory: UInt64 | None = None) -> Array:
    """Return clocks for `WindowClocks`: float64 unchanged, integers as uint64 in the same order, exact differences."""
    if values.dtype.kind == "f":
        return values
    if values.dtype.kind == "u":
        return values.astype(np.uint64, copy=False)
    return np.bitwise_xor(values.astype(np.int64, copy=False).view(np.uint64), np.uint64(1 << 63), out=memory)
