"""Rows partition by partition, each in the order of ORDER BY; rows that come so already are not moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Bools, Int64
from cer_gpu.columnar.columns import check_movable, kind_of, plain_array, plain_type, types_within
from cer_gpu.row_patterns.statement import Order


@dataclass(frozen=True)
class OrderedRows:
    """The rows of a table, partition by partition.

    Attributes
    ----------
    batch : pyarrow.RecordBatch
        The rows in their new order, strings and bytes in layouts that Arrow can move.
    ends : int64, shape (n partitions,)
        The row after each partition.  Partitions are in the order of their first rows in the input.
    """

    batch: pa.RecordBatch
    ends: Int64

    @property
    def starts(self) -> Int64:
        """The first row of each partition."""
        return np.concatenate((np.zeros(min(1, len(self.ends)), np.int64), self.ends[:-1]))


def ordered_rows(table: pa.Table, partition: Sequence[str], order: Sequence[Order]) -> OrderedRows:
    """Return the rows of a table in the order of their partitions and of ORDER BY; ties keep the order of the input.

    Parameters
    ----------
    table
    partition
        Columns of PARTITION BY; NULL is a value like others there.
    order
        Columns of ORDER BY, of types that have an order.
    """
    n = table.num_rows
    movable = [_movable(column, name) for column, name in zip(table.columns, table.schema.names, strict=True)]
    table = pa.table(movable, names=table.schema.names).unify_dictionaries()
    columns = [whole_array(column) for column in table]
    batch = pa.RecordBatch.from_arrays(columns, names=table.schema.names)
    if not n:
        return OrderedRows(batch, np.empty(0, np.int64))
    codes, begins = _partition_codes([batch.column(name) for name in partition], n)
    rows: Int64 | None = None
    if codes is not None:
        rows = np.argsort(codes, kind="stable")
        begins = np.flatnonzero(np.diff(codes[rows], prepend=-1))
    ends = np.append(begins[1:], n)
    if order and not _is_in_order(batch, order, rows, begins):
        numbers = np.repeat(np.arange(len(begins), dtype=np.int64), np.diff(begins, append=n))
        rows = _sort_rows(batch if rows is None else batch.take(pa.array(rows)), numbers, order, rows)
    if rows is not None:
        batch = batch.take(pa.array(rows))
    return OrderedRows(batch, ends)


def whole_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; chunks that are slices of one array, in its order, are not copied."""
    chunks = [chunk for chunk in column.chunks if len(chunk)] or column.chunks
    first = chunks[0]
    if len(chunks) == 1:
        return first
    addresses, offset, is_slice = _addresses(first), first.offset, _has_own_buffers(first.type)
    for chunk in chunks:
        is_slice = is_slice and chunk.offset == offset and _addresses(chunk) == addresses
        offset += len(chunk)
    if is_slice:
        n_null = sum(chunk.null_count for chunk in chunks)
        return pa.Array.from_buffers(first.type, len(column), first.buffers(), n_null, first.offset)
    return pa.concat_arrays(chunks)


def _has_own_buffers(data_type: pa.DataType) -> bool:
    """Return True for arrays that are their buffers, without a dictionary or fields."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return pa.types.is_primitive(data_type) or any(is_kind(data_type) for is_kind in kinds)


def _addresses(array: pa.Array) -> list[tuple[int, int] | None]:
    """Return the place in memory of each buffer of an array."""
    return [None if buffer is None else (buffer.address, buffer.size) for buffer in array.buffers()]


def field_of(schema: pa.Schema, name: str) -> pa.Field:
    """Return a field as it is in the output: without runs and dictionaries of views, which Arrow does not support."""
    field = schema.field(name)
    if _keeps_codes(field.type):
        return field.with_type(pa.dictionary(field.type.index_type, plain_type(field.type), field.type.ordered))
    if any(pa.types.is_run_end_encoded(kind) or _is_unsupported(kind) for kind in types_within(field.type)):
        return field.with_type(plain_type(field.type))
    return field


def _is_unsupported(data_type: pa.DataType) -> bool:
    """Return True for dictionaries to which Arrow casts no values."""
    return bool(pa.types.is_dictionary(data_type)) and data_type.value_type not in (pa.string(), pa.large_string())


def is_comparable(data_type: pa.DataType) -> bool:
    """Return True if values of a type can be keys of PARTITION BY."""
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return kind_of(data_type) is not None or any(is_kind(data_type) for is_kind in kinds)


def comparable(values: pa.Array) -> pa.Array:
    """Return values in a type that Arrow sorts, ranks and hashes, in which equal values hash equally.

    Codes become strings, narrow decimals and floats wider ones, and -0.0 is 0.0.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_decimal32(values.type) or pa.types.is_decimal64(values.type):
        return values.cast(pa.decimal128(values.type.precision, values.type.scale))
    if pa.types.is_float16(values.type):
        values = values.cast(pa.float32())
    if pa.types.is_floating(values.type):
        return pc.add(values, pa.scalar(0.0, values.type))
    return values


def _keeps_codes(data_type: pa.DataType) -> bool:
    """Return True for columns with a dictionary; Arrow unifies those of float16 by their bits."""
    return bool(pa.types.is_dictionary(data_type)) and not pa.types.is_float16(data_type.value_type)


def _movable(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column in a layout that Arrow can move: without views or runs, but with a dictionary."""
    coded = _keeps_codes(column.type)
    chunks = [_coded(chunk) if coded else plain_array(chunk) for chunk in column.chunks]
    chunks = chunks or [pa.nulls(0, plain_type(column.type))]
    check_movable(name, chunks[0].type, "ordered")
    return pa.chunked_array(chunks)


def _coded(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return a column with a dictionary without NULL and views: Arrow unifies no others."""
    codes, values = column.indices, plain_array(column.dictionary)
    if values.null_count:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        codes = pa.array(np.cumsum(valid) - 1, mask=~valid).cast(codes.type).take(codes)
        values = values.drop_null()
    return pa.DictionaryArray.from_arrays(codes, values, ordered=column.type.ordered)


def _partition_codes(keys: Sequence[pa.Array], n: int) -> tuple[Int64 | None, Int64]:
    """Return the partition of each row, by its first row in the input; None where each partition is one run of rows.

    The second part are the first rows of the partitions, where they are runs.
    """
    if not keys:
        return None, np.zeros(1, np.int64)
    changes = np.zeros(n - 1, np.bool_)
    for key in keys:
        changes |= _changes(key)
    begins = np.concatenate(([0], np.flatnonzero(changes) + 1))
    firsts = pa.array(begins)
    codes = np.zeros(len(begins), np.int64)
    for key in keys:
        own = pc.dictionary_encode(comparable(key.take(firsts)), null_encoding="encode")
        codes = codes * max(1, len(own.dictionary)) + own.indices.to_numpy()
        codes = np.asarray(pc.dictionary_encode(pa.array(codes)).indices.to_numpy(), np.int64)
    if int(codes.max()) + 1 == len(begins):
        return None, begins
    return np.repeat(codes, np.diff(begins, append=n)), begins


def _changes(key: pa.Array) -> Bools:
    """Return, for each row but the first, True if its key may differ from that of the row before."""
    if pa.types.is_null(key.type):
        return np.zeros(len(key) - 1, np.bool_)
    if pa.types.is_dictionary(key.type):
        key = key.indices
    if pa.types.is_float16(key.type):
        key = comparable(key)
    differs = pc.not_equal(key.slice(1), key.slice(0, len(key) - 1))
    if key.null_count:
        nulls = key.is_null()
        one = pc.xor(nulls.slice(1), nulls.slice(0, len(key) - 1))
        differs = pc.if_else(pc.is_valid(differs), differs, one)
    return np.asarray(differs.to_numpy(zero_copy_only=False), np.bool_)


def _is_in_order(batch: pa.RecordBatch, order: Sequence[Order], rows: Int64 | None, begins: Int64) -> bool:
    """Return True if rows are provably in order; only a single column without NULL is checked."""
    column = batch.column(order[0].column)
    plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_temporal(column.type)
    if len(order) > 1 or column.null_count or not plain:
        return False
    values = column.to_numpy(zero_copy_only=False)
    if rows is not None:
        values = values[rows]
    in_order = values[1:] >= values[:-1] if order[0].ascending else values[1:] <= values[:-1]
    in_order[begins[1:] - 1] = True
    return bool(in_order.all())


def _sort_rows(batch: pa.RecordBatch, numbers: Int64, order: Sequence[Order], rows: Int64 | None) -> Int64:
    """Return the rows of the input in the order of their partitions and of ORDER BY."""
    names = ["partition"]
    columns: list[pa.Array] = [pa.array(numbers)]
    keys = [("partition", "ascending")]
    for i, each in enumerate(order):
        column = comparable(batch.column(each.column))
        if column.null_count:  # NULL first is TRUE after FALSE, descending
            names.append(f"null {i}")
            columns.append(column.is_null())
            keys.append((f"null {i}", "descending" if each.nulls_first else "ascending"))
        if (
            pa.types.is_floating(column.type) and not each.ascending
        ):  # NaN is the greatest; Arrow has it last in any case
            names.append(f"nan {i}")
            columns.append(pc.is_nan(column))
            keys.append((f"nan {i}", "descending"))
        names.append(str(i))
        columns.append(column)
        keys.append((str(i), "ascending" if each.ascending else "descending"))
    indices: Int64 = pc.sort_indices(pa.table(columns, names=names), sort_keys=keys).to_numpy().astype(np.int64)
    return indices if rows is None else rows[indices]
