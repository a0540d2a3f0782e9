"""Reduction of the valuations of each end to one value: the sum, average, least or greatest of an expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.columnar.columns import BOOLEAN, STRING, TEMPORAL, kind_of
from cer_gpu.expressions.numbers import sum_type
from cer_gpu.output.leaves import MeasureLeaf, Values
from cer_gpu.runtime.matches import MatchBuffers


@dataclass(frozen=True)
class Aggregation:
    """An aggregate over all matches of an end.

    Attributes
    ----------
    function : str
        "COUNT", "SUM", "AVG", "MIN" or "MAX"; COUNT counts matches, others reduce an expression.
    name : str
        Name of its column: the source text.
    """

    function: str
    name: str


def reduced_type(function: str, data_type: pa.DataType) -> pa.DataType | None:
    """Return the type of an aggregate of values, or None if the type does not support it."""
    kind = kind_of(data_type)
    if kind is None or (function in ("SUM", "AVG") and kind in (STRING, TEMPORAL)):
        return None
    if function == "AVG":
        return None if pa.types.is_duration(data_type) else pa.float64()
    return sum_type(data_type) if function == "SUM" else data_type


class _Groups(Values):
    """Values in consecutive groups, in place of the events of variables."""

    def __init__(self, values: pa.Array, begins: Int64, ends: Int64) -> None:
        offsets = np.append(begins, len(values)).astype(np.int32)
        marks, places = np.zeros(len(values), np.int32), np.arange(len(values))
        matches = MatchBuffers(np.stack([ends, ends]), np.empty((2, 0), np.int64), offsets, places, marks)
        super().__init__(matches, [frozenset(["*"])], None, ["value"])
        self._numbered = places.astype(np.int32), pa.StructArray.from_arrays([values], names=["value"])

    @property
    def _event_rows(self) -> Any:
        return self._numbered


class Reduction:
    """Reduction of values end by end; the last end is buffered, as it may continue in the next buffer.

    Parameters
    ----------
    function
        "SUM", "AVG", "MIN" or "MAX".
    data_type
        Type of the result.
    shard
        (k, n): return shard k of n of the ends; None for all.
    """

    def __init__(self, function: str, data_type: pa.DataType, shard: tuple[int, int] | None) -> None:
        self._function, self._type, self._shard = function, data_type, shard
        self._open_end: pa.RecordBatch | None = None
        self._n = 0  # ends so far

    def take(self, values: pa.Array, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Take the values of further valuations, and return the ends that are complete.

        Parameters
        ----------
        values
        rows
            For each valuation, ``end`` and the other columns of its end.

        Returns
        -------
        pyarrow.RecordBatch
            The columns of `rows`, the value, and the number of values that are not NULL.
        """
        if not len(values):
            return self._batch(rows, pa.nulls(0, self._type), pa.array([], pa.int64()))
        if kind_of(values.type) == BOOLEAN and self._function in ("SUM", "AVG"):
            values = values.cast(pa.uint8())
        values = values.cast(self._type)
        counts = values.is_valid().cast(pa.int64())
        if self._open_end is not None:
            open_end, self._open_end = self._open_end, None
            values = pa.concat_arrays([open_end.column("value"), values])
            counts = pa.concat_arrays([open_end.column("n"), counts])
            shown = open_end.select(rows.schema.names)
            rows = pa.concat_batches([shown, rows])
        ends = rows.column("end").to_numpy()
        begins = np.concatenate([[0], 1 + np.flatnonzero(ends[1:] != ends[:-1])])
        function = "SUM" if self._function == "AVG" else self._function
        value = _Groups(values, begins, ends[begins]).of(MeasureLeaf(function, "*", "value", self._type))
        n = np.add.reduceat(counts.to_numpy(), begins)
        reduced = self._batch(rows.take(pa.array(begins)), value, pa.array(n))
        self._open_end = reduced.slice(len(begins) - 1)
        return self._finish(reduced.slice(0, len(begins) - 1))

    def rest(self) -> pa.RecordBatch | None:
        """Return the buffered last end, which is complete now, or None if there is none."""
        open_end, self._open_end = self._open_end, None
        return None if open_end is None else self._finish(open_end)

    def snapshot(self) -> list[int]:
        """Return the state that `restore` takes; no end is buffered between two batches."""
        assert self._open_end is None
        return [self._n]

    def restore(self, state: list[int]) -> None:
        """Continue from a snapshot."""
        (self._n,) = state

    def _batch(self, rows: pa.RecordBatch, value: pa.Array, n: pa.Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*rows.columns, value, n], names=[*rows.schema.names, "value", "n"])

    def _finish(self, reduced: pa.RecordBatch) -> pa.RecordBatch:
        before, self._n = self._n, self._n + reduced.num_rows
        if self._shard is not None:
            part, n_parts = self._shard
            reduced = reduced.take(pa.array(np.arange((part - before) % n_parts, reduced.num_rows, n_parts)))
        if self._function != "AVG":
            return reduced
        totals, n = reduced.column("value").to_numpy(zero_copy_only=False), reduced.column("n").to_numpy()
        with np.errstate(all="ignore"):
            average = pa.array(totals / n, mask=n == 0)
        return self._batch(reduced.select(reduced.schema.names[:-2]), average, reduced.column("n"))
