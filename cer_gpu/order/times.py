"""Times as 64-bit keys, by which events are sorted, merged and reordered.

A key is a uint64.  Keys order as the times do; keys of integers and moments have the differences of the times too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Array, Int64, UInt64
from cer_gpu.columnar import clocks
from cer_gpu.columnar.clocks import Clock, ordered, time_column_type
from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.fields import column_type

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
    if falls < n >> 4:  # a few sorted runs: a merge sort takes them as they stand
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
    """Return the type of a column that events are ordered by: one that tells the time, or a float.

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
        """Go on after so many events, whose times have this type."""
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
