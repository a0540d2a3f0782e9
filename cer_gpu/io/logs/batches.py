"""Batches of records: columns that each have the type of their values, and the one type of a column over batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.io.logs.records import Record, Value

CHUNK_RECORDS = 1 << 14
"""Most records of a batch."""
CHUNK_BYTES = 1 << 25
"""About the most bytes of the values of a batch, unless one record alone has more."""
_SAMPLED = 8
"""One in so many records is measured."""
_FIXED_BYTES = 16
"""Bytes of a value that is no text, about."""
UTC_TIME = pa.timestamp("us", "UTC")
TEXTS = pa.list_(pa.string())
_TYPES: dict[type, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    bool: pa.bool_(),
    float: pa.float64(),
    datetime: UTC_TIME,
    list: TEXTS,
}


def batches_of(records: Iterable[Record]) -> Iterator[pa.RecordBatch]:
    """Yield records as batches of at most `CHUNK_RECORDS`.

    A batch has the columns of its own records, in the order in which they appear.  A column has the type of its values
    (timestamps in UTC); if these have several types, or are integers beyond 64 bits, it holds their texts.  A record
    without a value has NULL.
    """
    shapes = _Shapes()
    n_bytes = 0
    for record in records:
        if not shapes.n_records % _SAMPLED:
            n_bytes += _SAMPLED * sum(map(_size, record.values()))
        shapes.add(record)
        if shapes.n_records == CHUNK_RECORDS or n_bytes >= CHUNK_BYTES:
            yield shapes.batch()
            shapes, n_bytes = _Shapes(), 0
    if shapes.n_records:
        yield shapes.batch()


def _size(value: Value) -> int:
    return len(value) if isinstance(value, str) else _FIXED_BYTES


class _Shapes:
    """Records by their names of columns: most logs have few such shapes, and each is turned into columns at once.

    The values of a shape are in one list, record after record: many small containers would keep the collector of
    garbage busy for as long as all the rest takes.
    """

    def __init__(self) -> None:
        self.n_records = 0
        self._of: dict[tuple[str, ...], tuple[list[int], list[Value]]] = {}

    def add(self, record: Record) -> None:
        """Add a record."""
        names = tuple(record)
        shape = self._of.get(names)
        if shape is None:
            shape = self._of[names] = [], []
        shape[0].append(self.n_records)
        shape[1].extend(record.values())
        self.n_records += 1

    def batch(self) -> pa.RecordBatch:
        """Return the records as a batch."""
        columns: dict[str, tuple[list[list[int]], list[list[Value]]]] = {}
        for names, (rows, values) in self._of.items():
            for i, name in enumerate(names):
                of_rows, of_values = columns.setdefault(name, ([], []))
                of_rows.append(rows)
                of_values.append(values[i :: len(names)])
        made = {name: self._array(*parts) for name, parts in columns.items()}
        arrays: dict[str, Any] = {name: array for name, array in made.items() if array is not None}
        kind = pa.struct([(name, array.type) for name, array in arrays.items()])
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * self.n_records, kind))
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_arrays(list(arrays.values()), fields=list(kind)))

    def _array(self, of_rows: list[list[int]], of_values: list[list[Value]]) -> pa.Array | None:
        """Return a column, or None if it has no values; it is NULL at rows that have none."""
        array = array_of_values(of_values[0] if len(of_values) == 1 else [*chain.from_iterable(of_values)])
        if array is None or len(array) == self.n_records == len(of_rows[0]):
            return array
        at = np.full(self.n_records, -1, np.int64)
        at[[*chain.from_iterable(of_rows)]] = np.arange(len(array))
        return array.take(pa.array(at, mask=at < 0))


def array_of_values(values: Sequence[Value]) -> pa.Array | None:
    """Return values as an array of the one type of all, or else of texts; None: none has a value."""
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if not kinds:
        return None
    if len(kinds) == 1:
        try:
            return pa.array(values, _TYPES[kinds.pop()])
        except (OverflowError, pa.ArrowInvalid):  # an integer beyond 64 bits
            return pa.array([None if value is None else str(value) for value in values], pa.string())
    texts: list[str | None] = [None] * len(values)
    for kind in kinds:
        rows = [row for row, value in enumerate(values) if type(value) is kind]
        own: Any = array_of_values([values[row] for row in rows])
        for row, text in zip(rows, texts_of(own).to_pylist(), strict=True):
            texts[row] = text
    return pa.array(texts, pa.string())


def texts_of(array: Any) -> pa.Array:
    """Return the texts of values: lists as JSON, all others as Arrow writes them."""
    if pa.types.is_list(array.type):
        lists = [None if each is None else json.dumps(each, ensure_ascii=False) for each in array.to_pylist()]
        return pa.array(lists, pa.string())
    return array.cast(pa.string())


def joined_type(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Return the type of a column over batches in which it has two types: text, if they differ."""
    return a if a == b else pa.string()
