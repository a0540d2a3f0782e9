"""Times as 64-bit keys, by which events are sorted, merged and reordered.

A key is a uint64.  Keys order as the times do; differences of keys of integers and timestamps equal those of the times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int64, UInt64
from cer_gpu.columnar import clocks
from cer_gpu.columnar.clocks import UNITS_PER_SECOND, Clock, ZoneError, ordered, read_timestamp, time_column_type
from cer_gpu.columnar.columns import INTEGER, Block, kind_of
from cer_gpu.columnar.fields import array_of, column_type
from cer_gpu.errors import OptionError
from cer_gpu.io.source import Source
from cer_gpu.order.row_column import ROW_COLUMN, check_no_rows

_FORM = "a date and a time such as 2026-11-27, 2026-11-27T12:30 or 2026-11-27T12:30:00Z"


@dataclass(frozen=True)
class Period:
    """A period of time.

    Parameters
    ----------
    after
        Time in ISO 8601 from which events belong to it, or None if they may be of any time.
    before
        Time in ISO 8601 from which on events no longer belong to it, or None if there is none.

    Raises
    ------
    OptionError
        When one is not a time, or there is nothing between them.
    """

    after: str | None = None
    before: str | None = None

    def __post_init__(self) -> None:
        """Check the times."""
        ends = [_instant(name, text) for name, text in (("after", self.after), ("before", self.before)) if text]
        if len(ends) == 2 and ends[0] >= ends[1]:
            raise OptionError(f"no time is after {self.after} and before {self.before}")

    def __bool__(self) -> bool:
        """Return True if it has an end."""
        return self.after is not None or self.before is not None

    def bounds(self, data_type: pa.DataType, time_unit: str | None = None) -> tuple[int | None, int | None]:
        """Return the ends as numbers of a time type: the least that belongs to the period, and the least after it.

        Parameters
        ----------
        data_type
        time_unit
            Unit of a column of integers.

        Raises
        ------
        OptionError
            When the type has no such times.
        """
        return _time_number(self.after, data_type, time_unit), _time_number(self.before, data_type, time_unit)


def _instant(name: str, text: str) -> Fraction:
    try:
        return read_timestamp(text, pa.timestamp("ns", "UTC"))
    except ValueError:
        raise OptionError(f"{name}: expected {_FORM}, got {text!r}") from None


def _time_number(text: str | None, data_type: pa.DataType, time_unit: str | None) -> int | None:
    if text is None:
        return None
    kind = data_type
    if kind_of(data_type) == INTEGER:
        if time_unit is None:
            raise OptionError(
                f"{text}: the time column holds integers of an unknown unit\nhint: name their unit (--time-unit)"
            )
        kind = pa.timestamp("ns", "UTC")
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise OptionError(f"{text}: expected a column of timestamps, dates or integers, and the time column is {kind}")
    try:
        instant = read_timestamp(text, kind)
    except ZoneError as error:
        raise OptionError(f"{text}: {error}\nhint: leave out the offset: the times of these events have none") from None
    if kind is not data_type:
        instant *= Fraction(UNITS_PER_SECOND[str(time_unit)], 10**9)
    return -int(-instant // 1)  # the least whole number that is not before it


def within_period(source: Source, time_column: str, period: Period, time_unit: str | None = None) -> Source:
    """Return the events of a period and those without a time, with their row numbers among all (`ROW_COLUMN`).

    Raises
    ------
    QueryTypeError
        When there is no such column, or it holds no times.
    OptionError
        When its times cannot be compared with the ends of the period.
    """
    data_type = time_column_type(source.schema, time_column)
    least, end = period.bounds(data_type, time_unit)
    check_no_rows(source.schema)

    def belong(batch: pa.RecordBatch) -> Bools:
        times = array_of(batch, time_column)
        if isinstance(times, pa.DictionaryArray):
            times = times.dictionary_decode()
        present = np.asarray(times.is_valid())
        numbers = _time_numbers(times)
        mask = np.ones(batch.num_rows, np.bool_)
        if least is not None:
            mask &= numbers >= least
        if end is not None:
            mask &= numbers < end
        mask |= ~present
        return mask

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        n_rows = 0
        for batch in source.batches(list(dict.fromkeys([*(c for c in columns if c != ROW_COLUMN), time_column]))):
            mask = belong(batch)
            rows = n_rows + np.flatnonzero(mask)
            n_rows += batch.num_rows
            if ROW_COLUMN in columns:
                numbers = np.zeros(batch.num_rows, np.int64)
                numbers[mask] = rows
                batch = batch.append_column(pa.field(ROW_COLUMN, pa.int64()), pa.array(numbers))
            if len(rows):
                yield batch if len(rows) == batch.num_rows else batch.filter(pa.array(mask))

    return replace(
        source,
        schema=source.schema.append(pa.field(ROW_COLUMN, pa.int64())),
        read=read,
        n_rows=None,
        origins=(),
        parts=None,
        without=None,
        as_types=None,
        numbered=True,
    )


def _time_numbers(times: pa.Array) -> Int64:
    """Return times as numbers of their units, 0 for NULL."""
    width = pa.int32() if pa.types.is_date32(times.type) else pa.int64()
    stored = times.cast(pa.int64()) if pa.types.is_integer(times.type) else times.view(width).cast(pa.int64())
    numbers: Int64 = stored.fill_null(0).to_numpy(zero_copy_only=False)
    return numbers


TimeKeys = UInt64

_SIGN = np.uint64(1 << 63)


def to_keys(values: Array) -> TimeKeys:
    """Return the keys of integers (of any width) or of floats that are not NaN; -0.0 has the key of 0.0."""
    if values.dtype.kind != "f":
        return ordered(values)
    bits = (values.astype(np.float64) + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def to_floats(keys: TimeKeys) -> npt.NDArray[np.float64]:
    """Return the floats that have these keys."""
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)


def time_of_key(key: int, data_type: pa.DataType) -> pa.Scalar:
    """Return the time of a type that has this key."""
    if pa.types.is_floating(data_type):
        return pa.scalar(float(to_floats(np.array([key], np.uint64))[0]))
    return clocks.key_to_time(key, data_type)


def stable_order(keys: TimeKeys) -> Int64 | None:
    """Return the permutation of rows that sorts the keys stably, or None if they are in order."""
    n = len(keys)
    falls = np.count_nonzero(keys[1:] < keys[:-1])
    if not falls:
        return None
    if falls < n >> 4:  # a few sorted runs: a merge sort uses them as they are
        return np.argsort(keys, kind="stable")
    # radix sort, low digits of the keys first, each above its row in one number: such numbers sort several times as
    # fast as rows, and no two are equal
    low = keys.min()
    n_bits = (n - 1).bit_length()
    row_mask, rows = np.uint64((1 << n_bits) - 1), np.arange(n, dtype=np.uint64)
    order: Int64 | None = None
    for shift in range(0, int(keys.max() - low).bit_length(), 64 - n_bits):
        digits = (keys - low) >> np.uint64(shift)
        digits = (digits if order is None else digits[order]) << np.uint64(n_bits)
        digits |= rows
        digits.sort()
        step = (digits & row_mask).view(np.int64)
        order = step if order is None else order[step]
    return order


def order_column_type(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of a column that events are ordered by: a time type, or a float.

    Raises
    ------
    QueryTypeError
        When there is no such column, or its values are no times.
    """
    data_type = column_type(schema, name, None, None)
    return data_type if pa.types.is_floating(data_type) else time_column_type(schema, name)


class Times(Clock):
    """Clock whose times come in any order; none may be missing, and their type may not change."""

    @property
    def n_rows(self) -> int:
        """Events read so far."""
        return self._n_rows

    @property
    def type(self) -> pa.DataType | None:
        """The type of the times (of a dictionary's values), once a batch was read."""
        return self._type

    def keys(self, batch: pa.RecordBatch) -> TimeKeys:
        """Return the keys of a batch's times, shape (n,).

        Raises
        ------
        TimeOrderError, EventsError
            As `Clock.read`, except that time may decrease.
        """
        keys = self.keys_before_gap(batch)
        if len(keys) < batch.num_rows:
            self.fail_at_gap(batch, len(keys))
        self.count(len(keys))
        return keys

    def count(self, n_rows: int) -> None:
        """Count events as read."""
        self._n_rows += n_rows

    def resume(self, n_rows: int, data_type: pa.DataType) -> None:
        """Continue after `n_rows` events, whose times have this type."""
        self._n_rows, self._type = n_rows, data_type

    def keys_before_gap(self, batch: pa.RecordBatch) -> TimeKeys:
        """Return the keys up to the first time that is missing; the batch does not count as read yet.

        Raises
        ------
        QueryTypeError
            When the batch has no such column, or its values are no times.
        EventsError
            When they are of another type than before.
        """
        data_type = order_column_type(batch.schema, self.name)
        block = Block(batch)
        if self._type is None:
            self._type = data_type
        elif data_type != self._type:
            self.read(block)  # raises
        values, valid = block.numbers(self.name), block.valid(self.name)
        present = np.ones(len(values), np.bool_) if valid is None else valid
        if values.dtype.kind == "f":
            present = present & ~np.isnan(values)
        return to_keys(values if present.all() else values[: int(np.argmin(present))])

    def fail_at_gap(self, batch: pa.RecordBatch, row: int) -> None:
        """Raise the TimeOrderError of a row whose time is missing."""
        self._n_rows += row
        self.read(Block(batch.slice(row, 1)))  # raises
