"""Validation of Arrow data from outside, before anything follows its indices, offsets and lengths.

Arrow's readers and functions, and the kernels here, trust the data: they follow an index outside its dictionary, or an
offset outside the bytes, out of the memory of the array.  `RecordBatch.validate` checks lengths, and the first and last
offset; this module checks all between, in 0.05 to 0.3 ns for a value.  Wrong values that lead nowhere are left alone:
strings need not be UTF-8, and a decimal may have too many digits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Bools
from cer_gpu.backend.windows import first_fall
from cer_gpu.columnar.columns import has_arrays, stored_values, types_within, validity
from cer_gpu.columnar.dictionary_encoding import same_memory
from cer_gpu.columnar.fields import columns_with
from cer_gpu.columnar.memory import read_only
from cer_gpu.errors import EventsError

_HINT = (
    "hint: it was damaged, or what wrote it is at fault; pyarrow's RecordBatch.validate(full=True) checks all columns"
)
_INLINE = 12
"""Most bytes that a view holds inline."""


class _Damage(Exception):
    """An index, offset or length that leads out of the memory of an array.

    Parameters
    ----------
    why
    row
        Row of the array, or None if it is not known.
    """

    def __init__(self, why: str, row: int | None = None) -> None:
        super().__init__(why)
        self.row = row


def validated(
    batches: Iterable[pa.RecordBatch], columns: Collection[str], where: str, first: int = 0, *, runs: bool = True
) -> Iterator[pa.RecordBatch]:
    """Yield batches after checking the named columns.

    Parameters
    ----------
    batches
    columns
        Columns and fields that will be read: their columns are checked.
    where
        Name of the file or stream, for messages.
    first
        Position of the first row.
    runs
        True if columns may be run-end encoded; False for data that Arrow reads from bytes.

    Raises
    ------
    EventsError
        When an index, offset or length of a column leads out of its memory, or its type is not read.
    """
    dictionaries: dict[str, pa.Array] = {}
    for batch in batches:
        read = columns_with(batch.schema, columns)
        for i, field in enumerate(batch.schema):
            if field.name not in read:
                continue
            _check_type(field, where, runs)
            column = batch.column(i)
            try:
                _check_lengths(column)
                _check_array(column, field.name, dictionaries)
            except _Damage as damage:
                end = first + batch.num_rows - 1
                rows = f"events {first} to {end}" if damage.row is None else f"event {first + damage.row}"
                raise EventsError(f"{where}: column {field.name!r} of {rows} is damaged: {damage}\n{_HINT}") from None
        yield batch
        first += batch.num_rows


def _check_type(field: pa.Field, where: str, runs: bool) -> None:
    """Refuse a column of a type without arrays in pyarrow, or with arrays that can end the process."""
    # Arrow ends the process if the bytes announce a validity bitmap for runs
    has_runs = not runs and any(map(pa.types.is_run_end_encoded, types_within(field.type)))
    if has_runs or not has_arrays(field.type):
        raise EventsError(
            f"{where}: column {field.name!r} is {field.type}, which is not read from files and streams\n"
            "hint: leave the column out, or write it as another type"
            + (", such as pyarrow.compute.run_end_decode gives" if has_runs else "")
        )


def _check_lengths(array: pa.Array, *, full: bool = False) -> None:
    """Check an array with Arrow, in constant time, or fully in linear time."""
    try:
        array.validate(full=full)
    except pa.ArrowException as error:
        raise _Damage(str(error)) from None


def _check_array(array: pa.Array, path: str, dictionaries: dict[str, pa.Array]) -> None:
    """Check an array whose lengths are right, and the arrays inside it.

    Parameters
    ----------
    array
    path
        Path of the array in its batch.
    dictionaries
        Dictionaries checked last, by the paths of their arrays.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        _check_array(array.storage, path, dictionaries)
        return
    _check_nulls(array)
    if pa.types.is_dictionary(kind):
        _check_indices(array)
        checked, values = dictionaries.get(path), array.dictionary
        if checked is None or not same_memory(values, checked):
            _check_lengths(values)
            _check_inside(values, f"{path}.", dictionaries)
            dictionaries[path] = values
    elif pa.types.is_run_end_encoded(kind):
        ends = array.run_ends.to_numpy()
        if len(ends) and (ends[0] <= 0 or (ends[1:] <= ends[:-1]).any()):
            raise _Damage("its runs do not end one after another")
    elif pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        _check_views(array)
    elif pa.types.is_union(kind):
        _check_union(array)
    elif pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        _check_list_views(array)
    elif _has_offsets(kind):
        _check_offsets(array)
    for i, part in enumerate(_child_arrays(array)):
        _check_inside(part, f"{path}.{i}", dictionaries)


def _check_inside(array: pa.Array, path: str, dictionaries: dict[str, pa.Array]) -> None:
    """Check an array whose rows are not those of the batch."""
    try:
        _check_array(array, path, dictionaries)
    except _Damage as damage:
        raise _Damage(f"inside it, {damage}") from None


def _child_arrays(array: pa.Array) -> list[pa.Array]:
    """Return the child arrays of an array, cut to its rows."""
    kind = array.type
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        return [array.field(i) for i in range(kind.num_fields)]
    if pa.types.is_run_end_encoded(kind) or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return [array.values]
    if pa.types.is_fixed_size_list(kind):
        return [array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)]
    if not pa.types.is_nested(kind):
        return []
    offsets = _offsets(array)
    rows = slice(int(offsets[0]), int(offsets[-1])) if len(offsets) else slice(0, 0)
    values = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
    return [each.slice(rows.start, rows.stop - rows.start) for each in values]


def _check_nulls(array: pa.Array) -> None:
    bits = array.buffers()[0]
    if bits is not None and array.null_count:
        n_valid = pa.Array.from_buffers(pa.bool_(), len(array), [None, bits], offset=array.offset).true_count
        if n_valid + array.null_count != len(array):
            raise _Damage(f"{array.null_count} NULLs are announced, and there are {len(array) - n_valid}")


def _check_indices(array: pa.DictionaryArray) -> None:
    codes, n_values = stored_values(array.indices), len(array.dictionary)
    unsigned = codes.view(f"u{codes.itemsize}")  # turns a negative index into a large one
    if not len(codes) or unsigned.max() < n_values:
        return
    valid = validity(array.indices)  # the index of a NULL row is arbitrary
    outside = unsigned >= n_values if valid is None else (unsigned >= n_values) & valid
    if outside.any():
        row = int(np.argmax(outside))
        raise _Damage(f"its dictionary has {n_values} values, and the index is {codes[row]}", row)


def _has_offsets(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_list(kind)
        or pa.types.is_map(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_list(kind)
    )


def _offsets(array: pa.Array) -> Array:
    """Return the n + 1 offsets of an array of n rows; none if it has no rows."""
    kind = array.type
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_large_list(kind)
    return _buffer_numbers(
        array.buffers()[1], "i8" if large else "i4", array.offset, len(array) + 1 if len(array) else 0
    )


def _check_offsets(array: pa.Array) -> None:
    offsets = _offsets(array)
    end: int = first_fall(read_only(offsets)) if len(offsets) else 0
    if end < len(offsets):
        raise _Damage(f"it begins at {offsets[end - 1]} and ends at {offsets[end]}", end - 1)


def _check_views(array: pa.Array) -> None:
    buffers = array.buffers()
    lengths = _buffer_numbers(buffers[1], "i4", 4 * array.offset, 4 * len(array))[::4]
    if len(lengths) and not 0 <= lengths.min() <= lengths.max() <= _INLINE:
        _check_lengths(pa.Array.from_buffers(pa.binary_view(), len(array), buffers, offset=array.offset), full=True)


def _check_union(array: pa.UnionArray) -> None:
    kind, buffers = array.type, array.buffers()
    codes = _buffer_numbers(buffers[1], "i1", array.offset, len(array))
    _refuse_rows(~np.isin(codes, kind.type_codes), "its type is none of the union")
    if kind.mode == "dense":
        sizes = np.zeros(128, np.int64)
        sizes[kind.type_codes] = [len(array.field(i)) for i in range(kind.num_fields)]
        offsets = _buffer_numbers(buffers[2], "i4", array.offset, len(array))
        _refuse_rows((offsets < 0) | (offsets >= sizes[codes]), "it lies outside its values")


def _check_list_views(array: pa.Array) -> None:
    size = "i8" if pa.types.is_large_list_view(array.type) else "i4"
    _, first, lengths, *_ = array.buffers()
    begins, n = (_buffer_numbers(buffer, size, array.offset, len(array)) for buffer in (first, lengths))
    _refuse_rows((begins < 0) | (n < 0) | (begins > len(array.values) - n), "it lies outside its values")


def _refuse_rows(wrong: Bools, why: str) -> None:
    if wrong.any():
        raise _Damage(why, int(np.argmax(wrong)))


def _buffer_numbers(buffer: pa.Buffer | None, dtype: str, first: int, n: int) -> Array:
    if buffer is None or not n:
        return np.zeros(0, dtype)
    return np.frombuffer(buffer, dtype, n, first * np.dtype(dtype).itemsize)
