"""Conversion of batches with changing columns into batches of one schema, which can be joined, and back again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.columns import FLOAT, INTEGER, NOTHING, STRING, check_movable, is_string, kind_of, plain_type
from cer_gpu.columnar.record_batches import empty_batch

PLAIN = pa.large_string()
CODED = pa.dictionary(pa.int32(), PLAIN)

MAX_VALUES = 1 << 16
MAX_VALUE_BYTES = 1 << 24
"""Bounds of a dictionary; a larger one is dropped, and its column continues as plain strings."""

_LAYOUT = "layout"


class Layouts:
    """Layouts of batches: each is converted to one schema, and returned with its original columns.

    Every converted batch has the columns "0", "1", ... of one schema.  Types that one type holds exactly share a
    column: all layouts of strings, and integers or floats of different widths.  Dictionaries of strings are
    recoded into one dictionary, which only grows; others are decoded.  Types that cannot share get columns of their
    own, and once batches differ in their columns, one more column holds the layout of each row.
    """

    def __init__(self) -> None:
        self.schema: pa.Schema = pa.schema([])
        self._names: list[str] = []
        self._types: list[pa.DataType] = []
        self._dictionaries: dict[int, _Dictionary] = {}
        self._layouts: list[list[int]] = []
        self._last: tuple[pa.Schema, int] | None = None

    def column(self, name: str) -> str:
        """Return the name under which the (first) column of a name is stored."""
        return str(self._names.index(name))

    def take_in(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the events of a batch in the present schema.

        Raises
        ------
        EventsError
            For a column of a type whose values Arrow cannot move.
        """
        if self._last is None or not self._last[0].equals(batch.schema):
            self._last = batch.schema, self._layout_number(batch.schema)
        layout = self._last[1]
        arrays: dict[int, pa.Array] = {}
        for column, array in zip(self._layouts[layout], batch.columns, strict=True):
            arrays[column] = self._fit(array, column)
        return self._build(arrays, batch.num_rows, layout)

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch converted earlier in the present schema."""
        return batch if batch.schema.equals(self.schema) else self._refit(batch)

    def _refit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = {i: batch.column(str(i)) for i in range(len(self._types)) if str(i) in batch.schema.names}
        named = _LAYOUT in batch.schema.names
        layouts = batch.column(_LAYOUT) if named else 0
        return self._build({i: self._fit(a, i) for i, a in arrays.items()}, batch.num_rows, layouts)

    def concat(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Join converted batches, at least one; the list is emptied, to free columns as they are joined."""
        parts = [self.conform(batch) for batch in batches]
        batches.clear()
        if len(parts) == 1:
            return parts[0]
        columns = [[part.column(i) for part in parts] for i in range(len(self.schema))]
        parts.clear()
        arrays = []
        for i, column in enumerate(columns):
            if pa.types.is_dictionary(column[0].type):
                codes = pa.concat_arrays([array.indices for array in column])
                arrays.append(self._dictionaries[i].named(codes))
            else:
                arrays.append(pa.concat_arrays(column))
            column.clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def give_out(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return the events of a batch with their original columns, in as few batches as possible."""
        batch = self.conform(batch)
        if len(self._layouts) == 1:
            return [self._select_columns(batch, 0)]
        layouts = batch.column(_LAYOUT).to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(layouts)) + 1).tolist(), len(layouts)]
        spans = pairwise(starts)
        return [self._select_columns(batch.slice(a, b - a), int(layouts[a])) for a, b in spans if b > a]

    def bare(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with codes in place of dictionaries, for a file."""
        arrays = [a.indices if pa.types.is_dictionary(a.type) else a for a in batch.columns]
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def named(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return a batch as it was before `bare`, when it had this schema."""
        arrays = [
            self._dictionaries[i].named(array) if pa.types.is_dictionary(field.type) else array
            for i, (array, field) in enumerate(zip(batch.columns, schema, strict=True))
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def state(self) -> dict[str, Any]:
        """Return the state that `restore` needs besides a batch of the present schema, in types that JSON has."""
        return {"names": self._names, "layouts": self._layouts}

    def restore(self, state: dict[str, Any], table: pa.Table) -> pa.RecordBatch:
        """Set new layouts to those of a state, and convert a table of its schema."""
        self._names, self._layouts = list(state["names"]), [list(layout) for layout in state["layouts"]]
        self._types = [stored_type(table.schema.field(str(i)).type) for i in range(len(self._names))]
        self._dictionaries = {i: _Dictionary() for i, data_type in enumerate(self._types) if data_type == CODED}
        self._describe()
        return self.concat([self._refit(batch) for batch in (table.to_batches() or [empty_batch(table.schema)])])

    # ---- schemas ----------------------------------------------------------------------------------------

    def _layout_number(self, schema: pa.Schema) -> int:
        """Find or make the columns for batches of a schema, and return the number of their layout."""
        layout: list[int] = []
        for field in schema:
            data_type = stored_type(field.type)
            column = self._column_for(field.name, data_type, layout)
            if column is None:
                check_movable(field.name, data_type, "brought into another order")
                column = len(self._names)
                self._names.append(field.name)
                self._types.append(data_type)
            if data_type == CODED:
                self._dictionaries.setdefault(column, _Dictionary())
            layout.append(column)
        if layout not in self._layouts:
            self._layouts.append(layout)
        self._describe()
        return self._layouts.index(layout)

    def _column_for(self, name: str, data_type: pa.DataType, taken: list[int]) -> int | None:
        for column, (existing, present) in enumerate(zip(self._names, self._types, strict=True)):
            if existing == name and column not in taken:
                common = _common_type(present, data_type)
                if common is not None:
                    self._types[column] = common
                    return column
        return None

    def _describe(self) -> None:
        fields = [pa.field(str(i), data_type) for i, data_type in enumerate(self._types)]
        if len(self._layouts) > 1:
            fields.append(pa.field(_LAYOUT, pa.int32()))
        self.schema = pa.schema(fields)

    # ---- columns ----------------------------------------------------------------------------------------

    def _fit(self, array: pa.Array, column: int) -> pa.Array:
        """Return values in the type of a column, or in one that `_build` can cast to it."""
        if self._types[column] == CODED and pa.types.is_dictionary(array.type):
            coded = self._dictionaries[column].encode(array)
            if coded is not None:
                return coded
            self._types[column] = PLAIN
            self._describe()
        return array

    def _build(self, arrays: dict[int, pa.Array], n_rows: int, layouts: pa.Array | int) -> pa.RecordBatch:
        columns = [
            _cast_wider(arrays[i], data_type) if i in arrays else pa.nulls(n_rows, data_type)
            for i, data_type in enumerate(self._types)
        ]
        if len(self._layouts) > 1:
            columns.append(pa.array(np.full(n_rows, layouts, np.int32)) if isinstance(layouts, int) else layouts)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _select_columns(self, batch: pa.RecordBatch, layout: int) -> pa.RecordBatch:
        columns = self._layouts[layout]
        return pa.RecordBatch.from_arrays([batch.column(i) for i in columns], names=[self._names[i] for i in columns])


class _Dictionary:
    """Dictionary of one column of strings; it only grows, so that codes into it stay valid."""

    def __init__(self) -> None:
        self._values = pa.array([], PLAIN)
        self._seen: pa.Array | None = None
        self._codes: pa.Array | None = None  # the code of each value of `_seen`

    def named(self, codes: pa.Array) -> pa.DictionaryArray:
        """Return codes with the values that they stand for."""
        return pa.DictionaryArray.from_arrays(codes, self._values, safe=False)

    def encode(self, array: pa.DictionaryArray) -> pa.DictionaryArray | None:
        """Return an array with codes into this dictionary, or None if the dictionary would become too large."""
        if self._seen is None or not self._seen.equals(array.dictionary):
            values = array.dictionary.cast(PLAIN)
            codes = pc.index_in(values, value_set=self._values)
            if codes.null_count:
                # a value of a dictionary may be NULL, or occur twice
                fresh = pc.unique(values.filter(pc.and_(pc.is_null(codes), pc.is_valid(values))))
                if len(fresh):
                    joined = pa.concat_arrays([self._values, fresh])
                    if len(joined) > MAX_VALUES or joined.nbytes > MAX_VALUE_BYTES:
                        return None
                    self._values = joined
                    codes = pc.index_in(values, value_set=joined)
            self._seen, self._codes = array.dictionary, codes
        assert self._codes is not None
        return self.named(self._codes.take(array.indices))


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch that keeps at most twice its own memory alive: a copy, if it is a small slice of its buffers."""
    if batch.get_total_buffer_size() <= 2 * batch.nbytes + (1 << 10):
        return batch
    return batch.take(pa.array(np.arange(batch.num_rows)))


def n_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch's rows, without the dictionaries, which batches share."""
    return sum(a.indices.nbytes if pa.types.is_dictionary(a.type) else a.nbytes for a in batch.columns)


def stored_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type in which values are stored: one that Arrow can join and take rows from."""
    if pa.types.is_dictionary(data_type):
        return CODED if is_string(data_type.value_type) else stored_type(data_type.value_type)
    if pa.types.is_run_end_encoded(data_type):
        return stored_type(data_type.value_type)
    if is_string(data_type):
        return PLAIN
    return plain_type(data_type)


def to_stored(array: pa.Array) -> pa.Array:
    """Return values in the type in which they are stored."""
    return _cast_wider(array, stored_type(array.type))


def _cast_wider(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast to a type that holds every value."""
    if array.type == data_type:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), data_type)
    if pa.types.is_run_end_encoded(array.type):
        return _cast_wider(pc.run_end_decode(array), data_type)
    if pa.types.is_dictionary(array.type):
        values = array.dictionary
        return _cast_wider((values.cast(PLAIN) if is_string(values.type) else values).take(array.indices), data_type)
    return array.cast(data_type)


def _common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return a type that holds the values of two stored types and compares as they do, or None."""
    if a == b or kind_of(b) == NOTHING:
        return a
    if kind_of(a) == NOTHING:
        return b
    kinds = {kind_of(a), kind_of(b)}
    if kinds == {STRING}:
        return PLAIN
    if kinds == {FLOAT}:
        return max(a, b, key=lambda t: t.bit_width)
    if kinds != {INTEGER} or not (pa.types.is_integer(a) and pa.types.is_integer(b)):
        return None
    if pa.types.is_signed_integer(a) == pa.types.is_signed_integer(b):
        return max(a, b, key=lambda t: t.bit_width)
    bits = max(t.bit_width * (1 if pa.types.is_signed_integer(t) else 2) for t in (a, b))
    return pa.from_numpy_dtype(f"int{bits}") if bits <= 64 else None
