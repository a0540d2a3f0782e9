"""Events of a period of time, with the positions that they have among all events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Bools, Int64
from cer_gpu.columnar.clocks import UNITS_PER_SECOND, ZoneError, read_moment, time_column_type
from cer_gpu.columnar.columns import INTEGER, kind_of
from cer_gpu.columnar.fields import array_of
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
        Time in ISO 8601 of the first events that belong to it; None: those of any time do.
    before
        Time in ISO 8601 from which on events no longer belong to it, or None if there is none.

    Raises
    ------
    OptionError
        When one is no time, or there is nothing between them.
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
        """Return the ends as numbers of a type of times: the least that belongs to it, and the least after it.

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
        return read_moment(text, pa.timestamp("ns", "UTC"))
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
        moment = read_moment(text, kind)
    except ZoneError as error:
        raise OptionError(f"{text}: {error}\nhint: leave out the offset: the times of these events have none") from None
    if kind is not data_type:
        moment *= Fraction(UNITS_PER_SECOND[str(time_unit)], 10**9)
    return -int(-moment // 1)  # the least whole number that is not before it


def within_period(source: Source, time_column: str, period: Period, time_unit: str | None = None) -> Source:
    """Return the events of a period, with their row numbers among all (`ROW_COLUMN`); those without a time stay.

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
        known = np.asarray(times.is_valid())
        numbers = _time_numbers(times)
        kept = np.ones(batch.num_rows, np.bool_)
        if least is not None:
            kept &= numbers >= least
        if end is not None:
            kept &= numbers < end
        kept |= ~known
        return kept

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        n_rows = 0
        for batch in source.batches(list(dict.fromkeys([*(c for c in columns if c != ROW_COLUMN), time_column]))):
            kept = belong(batch)
            rows = n_rows + np.flatnonzero(kept)
            n_rows += batch.num_rows
            if ROW_COLUMN in columns:
                numbers = np.zeros(batch.num_rows, np.int64)
                numbers[kept] = rows
                batch = batch.append_column(pa.field(ROW_COLUMN, pa.int64()), pa.array(numbers))
            if len(rows):
                yield batch if len(rows) == batch.num_rows else batch.filter(pa.array(kept))

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
