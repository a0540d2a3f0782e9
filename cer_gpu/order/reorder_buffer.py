"""Reordering of events that arrive late by a bounded time, as they arrive."""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.clocks import UNITS_PER_SECOND, _time_string, has_zone, per_second
from cer_gpu.columnar.columns import Block
from cer_gpu.errors import CerError, EventsError, OptionError, TimeOrderError, did_you_mean
from cer_gpu.io.source import BATCH_ROWS
from cer_gpu.order.layouts import Layouts, compact
from cer_gpu.order.sorting import Chunk, joined_chunks, sort_chunks
from cer_gpu.order.times import TimeKeys, Times, stable_order, time_of_key, to_floats, to_keys

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
        A number of units of the column, as a number or a string; a string with a unit of time (``'5s'``, ``'250ms'``,
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
    scalar_type = scalar.type
    if scalar.is_valid and _time_kind(scalar_type) == _time_kind(time_type):
        number = scalar.value if hasattr(scalar, "value") else scalar.as_py()
        if pa.types.is_integer(scalar_type):
            return int(number)
        return math.floor(Fraction(number) * per_second(time_type) / per_second(scalar_type))
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
    """Return the number and the unit of a string; the unit is "" if there is none."""
    match = re.fullmatch(r"\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))\s*([^\W\d_]*)\s*", text)
    name = match[2].lower() if match else ""
    unit = _NAMES.get(name, name)
    if match is None or (unit and unit not in _SECONDS):
        hint = did_you_mean(name, _SECONDS, "units") if name else None
        raise OptionError(f"cannot read the {what} {text!r}\n{_FORMS}" + (f"\nhint: {hint}" if hint else ""))
    return Fraction(match[1]), unit


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


LATE = ("raise", "drop")


class ReorderBuffer:
    """Buffer that releases an event once no event that precedes it can arrive.

    An event is late when its time is less than the greatest time of all events that arrived before it, minus the
    lateness.  The others come out in the order of time, equal times in the order of their arrival.  The cut of the
    events into batches changes neither.

    An event costs O(log n) steps on average, with n events buffered, however small the batches.  Buffered events keep
    about twice their own memory alive at most.

    Parameters
    ----------
    column
        Name of the time column: integers, timestamps, dates, durations or floats.
    lateness
        In units of the column, not negative; for floats, the difference is computed in float64.
    late
        "raise" ends the stream with an error at the first late event; "drop" leaves late events out.

    Attributes
    ----------
    n_events : int
        Events that arrived.
    n_late : int
        Late ones among them.
    n_buffered : int
        Events buffered now.

    Raises
    ------
    OptionError
        For a lateness that is negative or not finite, or another `late`.
    """

    def __init__(self, column: str, lateness: int | float, late: str) -> None:
        if late not in LATE:
            raise OptionError(f"late must be one of {', '.join(LATE)}, got {late!r}")
        if isinstance(lateness, bool) or not isinstance(lateness, int | float) or not 0 <= lateness < math.inf:
            raise OptionError(f"the lateness must be a number that is not negative, got {lateness!r}")
        self.column = column
        self.lateness = lateness
        self.late = late
        self.n_late: int = 0
        self._times = Times(column)
        self._greatest: int | None = None  # the key of the greatest time
        self._advanced: int | None = None  # the greatest key passed to `advance_watermark`
        self._layouts = Layouts()
        # sorted runs: all events of one arrived before those of the next
        self._runs: list[Chunk] = []
        self._refusal = ""

    @property
    def n_events(self) -> int:
        """Events that arrived."""
        return self._times.n_rows

    @property
    def n_buffered(self) -> int:
        """Events buffered now."""
        return sum(len(run.keys) for run in self._runs)

    def push(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Add the next events, and return, in order, those that no later arrival may precede.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Its columns may change from batch to batch, and so may their types, except that of the time.

        Returns
        -------
        list of pyarrow.RecordBatch
            Events with their original columns; strings may come in another layout, and integers or floats
            wider.  One batch, unless it would be large or columns changed.

        Raises
        ------
        TimeOrderError
            When a time is missing (NULL or NaN), or an event is late and `late` is "raise".  The error ends the
            stream: no more events are accepted, and buffered events are not returned.
        EventsError
            When the time column changes its type.
        """
        self._check_open()
        if not isinstance(batch, pa.RecordBatch):
            raise EventsError(f"expected a pyarrow.RecordBatch, got {type(batch).__name__}")
        try:
            self._take_until(batch)
            return self._release(self._limit())
        except CerError:
            self._refusal = "an error ended the stream"
            raise

    def advance_watermark(self, key: int) -> list[pa.RecordBatch]:
        """Advance the watermark to a time and return the events up to it.

        Events earlier than the watermark are late from then on.  An earlier time than the watermark changes nothing.

        Parameters
        ----------
        key
            Key of the time (`cer_gpu.order.times`).
        """
        self._check_open()
        if self._advanced is None or key > self._advanced:
            self._advanced = key
        return self._release(self._limit())

    @property
    def greatest(self) -> int | None:
        """Key of the greatest time of all events that arrived, or None if none did."""
        return self._greatest

    @property
    def least(self) -> int | None:
        """Key of the earliest buffered event, or None if none is buffered."""
        return min((int(run.keys[0]) for run in self._runs if len(run.keys)), default=None)

    def finish(self) -> list[pa.RecordBatch]:
        """End the stream and return the rest of the events, in order."""
        self._check_open()
        self._refusal = "the stream is finished"
        return self._release((1 << 64) - 1)

    def _check_open(self) -> None:
        if self._refusal:
            raise OptionError(f"{self._refusal}: make a new Reorder")

    # ---- arrival ----------------------------------------------------------------------------------------

    def _take_until(self, batch: pa.RecordBatch) -> None:
        keys = self._times.keys_before_gap(batch)
        late = np.zeros(len(keys), np.bool_)
        if len(keys):
            first = int(keys[0]) if self._greatest is None else self._greatest
            greatest = np.maximum.accumulate(np.concatenate([np.array([first], np.uint64), keys]))
            lowest = self._lowest(greatest[:-1])
            late = keys < lowest
            if self._advanced is not None:
                late |= keys < np.uint64(self._advanced)
            if late.any() and self.late == "raise":
                row = int(np.argmax(late))
                self._refuse(row, int(keys[row]), int(greatest[row]) if keys[row] < lowest[row] else None)
            self._greatest = int(greatest[-1])
        if len(keys) < batch.num_rows:
            self._times.fail_at_gap(batch, len(keys))
        self._times.count(batch.num_rows)
        self.n_late += int(np.count_nonzero(late))
        events = self._layouts.take_in(batch)
        rows = np.flatnonzero(~late) if late.any() else None
        keys = keys if rows is None else keys[rows]
        order = stable_order(keys)
        if order is not None:
            keys = keys[order]
            rows = order if rows is None else rows[order]
        if len(keys):
            self._runs.append(Chunk(keys, events if rows is None else events.take(pa.array(rows))))

    def _lowest(self, greatest: TimeKeys) -> TimeKeys:
        """Return the least keys that are not late, after events of these greatest keys."""
        if self._floating():
            return self._less(greatest)
        lateness = np.uint64(min(math.floor(self.lateness), (1 << 64) - 1))
        return np.where(greatest > lateness, greatest - lateness, np.uint64(0))

    def _limit(self) -> int:
        """Return the greatest key that no later arrival may precede, or -1 if there is none."""
        advanced = -1 if self._advanced is None else self._advanced
        if self._greatest is None:
            return advanced
        if self._floating():
            return max(advanced, int(self._less(np.array([self._greatest], np.uint64))[0]))
        return max(advanced, self._greatest - math.floor(self.lateness))

    def _floating(self) -> bool:
        return bool(pa.types.is_floating(self._times.type))

    def _less(self, keys: TimeKeys) -> TimeKeys:
        """Return the keys of floats minus the lateness, from the keys of the floats."""
        with np.errstate(over="ignore"):
            return to_keys(to_floats(keys) - float(min(self.lateness, sys.float_info.max)))

    def _refuse(self, row: int, key: int, greatest: int | None) -> None:
        """Raise the error of an event that is late after one with the key `greatest`, or after an advance."""
        data_type = self._times.type
        assert data_type is not None
        number = self.n_events + row
        event = f"the {self.column!r} of event {number} ({_time_string(time_of_key(key, data_type))}) is late"
        if greatest is None:
            assert self._advanced is not None
            advanced = _time_string(time_of_key(self._advanced, data_type))
            raise TimeOrderError(
                f"{event}: the stream has advanced to {advanced}\nexpected: no event earlier than that\n"
                "hint: advance less, or late='drop' (--late drop) to leave late events out",
                number,
            )
        before = _time_string(time_of_key(greatest, data_type))
        unit = f" {data_type.unit}" if hasattr(data_type, "unit") else ""
        raise TimeOrderError(
            f"{event}: {before} came before it, and the lateness is {self.lateness}{unit}\n"
            "expected: events out of the order of time by the lateness at most\n"
            "hint: a larger lateness, or late='drop' (--late drop) to leave late events out",
            number,
        )

    # ---- buffered events --------------------------------------------------------------------------------

    def _release(self, limit: int) -> list[pa.RecordBatch]:
        """Return the events up to a key, in order."""
        parts: list[Chunk] = []
        left: list[Chunk] = []
        for i, run in enumerate(self._runs):
            stop = 0 if limit < 0 else int(np.searchsorted(run.keys, np.uint64(limit), "right"))
            if stop:
                parts.append(run.slice(0, stop))
            if stop < len(run.keys):
                touched = stop > 0 or i == len(self._runs) - 1
                left.append(_trimmed(run.slice(stop, len(run.keys))) if touched else run)
        self._runs = left
        self._join_runs()
        if len(parts) == 1:
            parts = [_trimmed(parts[0])]
        batches = sort_chunks(parts, self._layouts, BATCH_ROWS)
        return [original for batch in batches for original in self._layouts.give_out(batch)]

    def _join_runs(self) -> None:
        """Join the last sorted runs until each is twice as long as all after it together: O(log n) are left."""
        first = len(self._runs) - 1
        n_rows = len(self._runs[first].keys) if self._runs else 0
        while first > 0 and len(self._runs[first - 1].keys) < 2 * n_rows:
            first -= 1
            n_rows += len(self._runs[first].keys)
        if 0 <= first < len(self._runs) - 1:
            self._runs[first:] = [self._join_pieces(self._runs[first:])]

    def _join_pieces(self, runs: list[Chunk]) -> Chunk:
        joined = joined_chunks(list(runs), self._layouts)
        order = stable_order(joined.keys)
        return joined if order is None else Chunk(joined.keys[order], joined.events.take(pa.array(order)))

    # ---- checkpoints ------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return the state from which `restore` continues.

        Returns
        -------
        table : pyarrow.Table or None
            The buffered events, in the columns of the layouts; None before the first batch.
        state : dict
            The rest of the state, in types that JSON has.
        """
        self._check_open()
        state = {
            "column": self.column,
            "lateness": self.lateness,
            "late": self.late,
            "n_events": self.n_events,
            "n_late": self.n_late,
            "greatest": self._greatest,
            "advanced": self._advanced,
            "layouts": self._layouts.state(),
        }
        if self._times.type is None:
            return None, state
        if len(self._runs) > 1:
            self._runs = [self._join_pieces(self._runs)]
        buffered = [self._layouts.conform(run.events) for run in self._runs]
        return pa.Table.from_batches(buffered, self._layouts.schema), state

    @classmethod
    def restore(cls, table: pa.Table | None, state: dict[str, Any]) -> ReorderBuffer:
        """Return a ReorderBuffer that continues where `snapshot` was taken."""
        reorder = cls(state["column"], state["lateness"], state["late"])
        reorder._advanced = state.get("advanced")
        if table is None:
            return reorder
        events = reorder._layouts.restore(state["layouts"], table)
        name = reorder._layouts.column(reorder.column)
        reorder._times.resume(state["n_events"], events.schema.field(name).type)
        reorder.n_late = state["n_late"]
        reorder._greatest = state["greatest"]
        if events.num_rows:
            reorder._runs = [Chunk(to_keys(Block(events).numbers(name)), events)]
        return reorder


def _trimmed(chunk: Chunk) -> Chunk:
    """Return a chunk that keeps at most twice its own memory alive."""
    keys = chunk.keys
    if keys.base is not None and keys.base.nbytes > 2 * keys.nbytes:
        keys = keys.copy()
    return Chunk(keys, compact(chunk.events))
