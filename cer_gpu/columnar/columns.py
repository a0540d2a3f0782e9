"""NumPy views of the Arrow arrays of a block, without copies wherever Arrow's layout allows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int32, Int64
from cer_gpu.backend.compaction import gather
from cer_gpu.columnar.dictionary_encoding import DictionaryEncoder
from cer_gpu.columnar.fields import array_of
from cer_gpu.columnar.memory import read_only
from cer_gpu.errors import EventsError


class SelectedRows(NamedTuple):
    """Relevant events of a block.

    Attributes
    ----------
    symbols : int32, shape (n,)
    rows : int32, shape (n,)
    some : callable or None
        Returns the rows that any query of the set reads, ascending, or None if they are many;
        None in place of it if that is not known.
    """

    symbols: Int32
    rows: Int32
    some: Callable[[], Int32 | None] | None = None

    def at(self, indexes: Int64) -> SelectedRows:
        """Return some of the events."""
        return SelectedRows(self.symbols[indexes], self.rows[indexes], self.some)


INTEGER, FLOAT, DECIMAL, STRING, BOOLEAN, TEMPORAL, NOTHING = (
    "integer",
    "float",
    "decimal",
    "string",
    "boolean",
    "time",
    "null",
)

_WITHOUT_ARRAYS = (pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME)


def kind_of(data_type: pa.DataType) -> str | None:
    """Return the kind of an Arrow type, by which its values are compared, or None if no predicate can read it.

    Durations are integers in their own unit; a "time" is a timestamp, a date or a time of day.
    """
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if pa.types.is_integer(data_type) or pa.types.is_duration(data_type):
        return INTEGER
    if pa.types.is_floating(data_type):
        return FLOAT
    if pa.types.is_decimal(data_type):
        return DECIMAL
    if is_string(data_type):
        return STRING
    if pa.types.is_boolean(data_type):
        return BOOLEAN
    if pa.types.is_timestamp(data_type) or pa.types.is_date(data_type) or pa.types.is_time(data_type):
        return TEMPORAL
    if pa.types.is_null(data_type):
        return NOTHING
    return None


def is_string(data_type: pa.DataType) -> bool:
    """Return True if an Arrow type is one of the three layouts of UTF-8 strings."""
    return bool(
        pa.types.is_string(data_type) or pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type)
    )


def types_within(data_type: pa.DataType) -> Iterator[pa.DataType]:
    """Yield a type and all types nested in it."""
    yield data_type
    inner = [data_type.field(i).type for i in range(data_type.num_fields)]
    if isinstance(data_type, pa.BaseExtensionType):
        inner = [data_type.storage_type]
    elif pa.types.is_dictionary(data_type):
        inner = [data_type.value_type]
    for each in inner:
        yield from types_within(each)


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type in which a column is stored: without dictionary, runs or views, which Arrow cannot move.

    Nor is there a dictionary within structs and lists: Arrow cannot concatenate batches with different dictionaries if
    one holds a NULL.
    """
    if pa.types.is_dictionary(data_type) or pa.types.is_run_end_encoded(data_type):
        return plain_type(data_type.value_type)
    if pa.types.is_string_view(data_type):
        return pa.large_string()
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(plain_type(field.type)) for field in data_type])
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        make = pa.list_ if pa.types.is_list(data_type) else pa.large_list
        return make(data_type.value_field.with_type(plain_type(data_type.value_type)))
    return pa.large_binary() if pa.types.is_binary_view(data_type) else data_type


def take_rows(column: pa.Array, rows: pa.Array) -> pa.Array:
    """Return some rows of a column; values of runs and views get a layout that Arrow can move."""
    if pa.types.is_run_end_encoded(column.type):
        runs = np.searchsorted(column.run_ends.to_numpy(), rows.to_numpy() + column.offset, side="right")
        return take_rows(column.values, pa.array(runs))
    if pa.types.is_dictionary(column.type):
        return column.take(rows)  # moves the codes alone
    if any(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) for kind in types_within(column.type)):
        column = plain_array(column)
    return column.take(rows)


def plain_array(column: pa.Array) -> pa.Array:
    """Return a column in its `plain_type`; Arrow's own casts and decoders read no dictionary of views."""
    kind = plain_type(column.type)
    if column.type == kind:
        return column
    if pa.types.is_run_end_encoded(column.type):
        return plain_array(take_rows(column, pa.array(np.arange(len(column)))))
    if pa.types.is_dictionary(column.type):
        return plain_array(column.dictionary).take(column.indices)
    if pa.types.is_struct(kind):
        fields = [plain_array(column.field(i)) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        buffers = column.buffers()[:2]
        values = plain_array(column.values)
        return pa.Array.from_buffers(kind, len(column), buffers, column.null_count, column.offset, [values])
    return column.cast(kind)


def as_type(column: pa.Array, kind: pa.DataType, whose: str) -> pa.Array:
    """Return a column as another type, without a dictionary.

    Parameters
    ----------
    column
    kind
        Type that the column had at first.
    whose
        Name of the column for the message.

    Raises
    ------
    EventsError
        When a value does not fit, or a float would lose digits.
    """
    try:
        column = plain_array(column)
        if column.type == kind:
            return column
        result = column.cast(kind)
        if not pa.types.is_floating(kind) or _holds_numbers(result, column):
            return result
        reason = "a value has more digits"
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = str(error)
    raise EventsError(
        f"{whose} was {kind} at first and is {column.type} now, and does not fit: {reason}\n"
        "hint: give the column one type; that of text files is set by column_types (--column-types COLUMN=TYPE)"
    )


def _holds_numbers(floats: pa.Array, column: pa.Array) -> bool:
    """Return True if casting a column to floats was exact; Arrow itself checks integers alone."""
    if pa.types.is_decimal(column.type):
        return bool(floats.cast(column.type).equals(column))
    if not pa.types.is_floating(column.type) or column.type.bit_width <= floats.type.bit_width:
        return True
    back, original = (each.to_numpy(zero_copy_only=False) for each in (floats.cast(column.type), column))
    return np.array_equal(back, original, equal_nan=True)


def has_arrays(data_type: pa.DataType) -> bool:
    """Return True if pyarrow has arrays of a type; making one of a union without types ends the process."""
    return not any(
        kind.id in _WITHOUT_ARRAYS or (pa.types.is_union(kind) and not kind.num_fields)
        for kind in types_within(data_type)
    )


@cache  # all queries of a set request the same types
def _is_movable(data_type: pa.DataType) -> bool:
    with suppress(pa.ArrowNotImplementedError):
        if has_arrays(data_type):
            pa.nulls(0, data_type).take(pa.array([], pa.int64()))
            return True
    return False


def check_movable(name: str, data_type: pa.DataType, done: str) -> None:
    """Refuse a column whose values Arrow cannot move.

    Parameters
    ----------
    name
    data_type
        Type in which the values are stored (`plain_type`).
    done
        Participle for the message: events with such a column cannot be `done`.

    Raises
    ------
    EventsError
    """
    if _is_movable(data_type):
        return
    raise EventsError(
        f"column {name!r} is {data_type}, and events with such a column cannot be {done}\n"
        "hint: leave the column out, or cast it to another type"
    )


@dataclass(frozen=True)
class DictionaryEncoded:
    """A string column as codes into a dictionary: row i, unless NULL, is ``values[codes[i]]``."""

    codes: npt.NDArray[np.integer]
    values: pa.Array


class Block:
    """Columns of one block of events, and fields of structs in them; each view is made once, at its first use.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        Rows of the block, few enough that the temporaries of the predicates stay in the cache.
    coders : dict from column to DictionaryEncoder, optional
        Coders that the caller keeps from block to block, so that plain strings keep their codes.
    """

    def __init__(self, batch: pa.RecordBatch, coders: dict[str, DictionaryEncoder] | None = None) -> None:
        self.batch = batch
        self._makers: Mapping[str, Callable[[Block], pa.Array]] = {}
        self._coders = {} if coders is None else coders
        self.n_rows: int = batch.num_rows
        self._source: Block | None = None
        self._columns: dict[str, pa.Array] = {}
        self._valid: dict[str, Bools | None] = {}
        self._numbers: dict[str, Array] = {}
        self._coded: dict[str, DictionaryEncoded] = {}
        self._stored: dict[str, tuple[Array | None, pa.Array, pa.Array]] = {}
        self._together: dict[tuple[str, ...], tuple[list[Int32], pa.Array]] = {}

    def fork(self) -> Block:
        """Return a block of the same rows, with the views made so far, to which other columns can be added."""
        other = Block(self.batch, self._coders)
        other._columns, other._valid, other._numbers = dict(self._columns), dict(self._valid), dict(self._numbers)
        other._coded, other._stored = dict(self._coded), dict(self._stored)
        other._source = self.source
        return other

    @property
    def source(self) -> Block:
        """The block of which this is a fork, perhaps of a fork; else the block itself."""
        return self if self._source is None else self._source

    def derive(self, makers: Mapping[str, Callable[[Block], pa.Array]]) -> None:
        """Add columns that are computed from the others at their first use."""
        self._makers = makers

    def put(self, name: str, column: pa.Array) -> None:
        """Add a column."""
        self._columns[name] = column

    def column(self, name: str) -> pa.Array:
        """Return a column or field in its own layout."""
        if name not in self._columns:
            make = self._makers.get(name)
            self._columns[name] = array_of(self.batch, name) if make is None else make(self)
        return self._columns[name]

    def array(self, name: str) -> pa.Array:
        """Return a column; dictionaries of anything but strings are decoded."""
        array = self.column(name)
        if pa.types.is_dictionary(array.type) and not is_string(array.type.value_type):
            array = plain_array(array)
        return array

    def valid(self, name: str) -> Bools | None:
        """Return a mask of the rows that are not NULL, or None if no row is NULL."""
        if name not in self._valid:
            self._valid[name] = validity(self.column(name))
        return self._valid[name]

    def numbers(self, name: str) -> Array:
        """Return the values of an integer, float, boolean or temporal column; those of NULL rows are arbitrary.

        Integers keep their width; float16 and float32 become float64; timestamps are counted in their unit, and
        decimals of at most 18 digits in units of their last digit.
        """
        if name not in self._numbers:
            self._numbers[name] = numbers_of(self.array(name))
        return self._numbers[name]

    def coded(self, name: str) -> DictionaryEncoded:
        """Return a string column as codes into a dictionary."""
        if name not in self._coded:
            array = self.column(name)
            if pa.types.is_dictionary(array.type):
                coded = DictionaryEncoded(codes_of(array, validity(array.indices)), plain_strings(array.dictionary))
            else:
                coded = DictionaryEncoded(*self._coder(name).encode(plain_strings(array)))
            self._coded[name] = coded
        return self._coded[name]

    def _coder(self, name: str) -> DictionaryEncoder:
        if name not in self._coders:
            self._coders[name] = DictionaryEncoder()
        return self._coders[name]

    def coded_together(self, names: tuple[str, ...]) -> tuple[list[Int32], pa.Array]:
        """Return columns of strings or integers as codes into one dictionary of large strings; -1 for NULL.

        All blocks that are forks of one share them.
        """
        together = self.source._together
        if names not in together:
            arrays = [self.source.array(name) for name in names]
            together[names] = _coded_together(arrays, self._coder("\0".join(names)))
        return together[names]

    def stored_codes(self, name: str) -> tuple[Array | None, pa.Array, pa.Array]:
        """Return a string column's codes, their dictionary, and the array whose NULLs are those of the rows.

        If the codes are None, they are the values of that array.  Codes of NULL rows are arbitrary, and the array does
        not show rows that are NULL through a NULL in the dictionary.
        """
        if name not in self._stored:
            array = self.column(name)
            if pa.types.is_dictionary(array.type):
                self._stored[name] = None, plain_strings(array.dictionary), array.indices
            else:
                coded = self.coded(name)
                self._stored[name] = coded.codes, coded.values, array
        return self._stored[name]

    def strings(self, name: str) -> pa.Array:
        """Return a string column as an array of large strings."""
        return plain_array(self.column(name)).cast(pa.large_string())


class RowsOfBlock(Block):
    """Some rows of a block, of which only the columns that are read are taken.

    Parameters
    ----------
    whole : Block
    rows : int32 array
    coders
        As those of a block, for these rows.
    """

    def __init__(
        self, whole: Block, rows: npt.NDArray[np.int32], coders: dict[str, DictionaryEncoder] | None = None
    ) -> None:
        super().__init__(whole.batch, coders)
        self.whole: Block
        self.n_rows: int
        self.whole, self._rows, self.n_rows = whole, rows, len(rows)

    def at(self, values: Array) -> Array:
        """Return the values at these rows from those of all rows of the block."""
        return values[self._rows]

    def gather(self, values: Array, taken: Array) -> None:
        """Copy the values at these rows from those of all rows of the block."""
        gather(read_only(np.ascontiguousarray(values)), self._rows, taken)

    def column(self, name: str) -> pa.Array:
        """Return the rows of a column or field in its own layout."""
        if name not in self._columns:
            self._columns[name] = take_rows(self.whole.column(name), pa.array(self._rows))
        return self._columns[name]

    def valid(self, name: str) -> Bools | None:
        """Return a mask of the rows that are not NULL, or None for all."""
        valid = self.whole.valid(name)
        return None if valid is None else self.at(valid)

    def numbers(self, name: str) -> Array:
        """Return the rows of `Block.numbers`."""
        if name not in self._numbers:
            self._numbers[name] = self.at(self.whole.numbers(name))
        return self._numbers[name]

    def coded(self, name: str) -> DictionaryEncoded:
        """Return the rows of `Block.coded`."""
        coded = self.whole.coded(name)
        return DictionaryEncoded(self.at(coded.codes), coded.values)


def _coded_together(arrays: list[pa.Array], coder: DictionaryEncoder) -> tuple[list[Int32], pa.Array]:
    """Return the codes of strings or integers, -1 for NULL, and the values by code."""
    coded = [array.dictionary if pa.types.is_dictionary(array.type) else array for array in arrays]
    # in one call: a coder may give other codes in the next
    numbers, values = coder.encode(pa.concat_arrays([each.cast(pa.large_string()) for each in coded]))
    encoded, begin = [], 0
    for array, each in zip(arrays, coded, strict=True):
        own, valid = numbers[begin : begin + len(each)], validity(array)
        if pa.types.is_dictionary(array.type):
            codes = codes_of(array, validity(array.indices))
            own = own[codes] if len(own) else np.zeros(len(array), np.int32)
        encoded.append(read_only(own if valid is None else np.where(valid, own, np.int32(-1))))
        begin += len(each)
    return encoded, values


def plain_strings(values: pa.Array) -> pa.Array:
    """Return strings in a layout that Arrow's functions can read."""
    return values.cast(pa.large_string()) if pa.types.is_string_view(values.type) else values


def _bits(buffer: pa.Buffer, offset: int, length: int) -> Bools:
    """Unpack `length` bits (least significant first) from bit `offset` on."""
    first, last = offset // 8, (offset + length + 7) // 8
    packed = np.frombuffer(buffer, np.uint8, last - first, first)
    unpacked = np.unpackbits(packed, bitorder="little", count=offset % 8 + length)
    return unpacked[offset % 8 :].view(np.bool_)


def validity(array: pa.Array) -> Bools | None:
    """Return a mask of the rows that are not NULL, or None if no row is NULL."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    if pa.types.is_dictionary(array.type):
        # a row is NULL through its code or through the value that the code names
        valid, values_valid = validity(array.indices), validity(array.dictionary)
        if values_valid is None:
            return valid
        named: Bools = values_valid[codes_of(array, valid)]
        return named if valid is None else named & valid
    if array.null_count == 0:
        return None
    return _bits(array.buffers()[0], array.offset, len(array))


def codes_of(array: pa.DictionaryArray, valid: Bools | None) -> Array:
    """Return the codes of a dictionary array, as `codes_or_zero`."""
    return codes_or_zero(numbers_of(array.indices), valid)


def codes_or_zero(codes: Array, valid: Bools | None) -> Array:
    """Return codes with 0 for NULL rows, whose own may lie outside the dictionary."""
    return codes if valid is None else np.where(valid, codes, 0)


NUMPY_TYPES = {
    pa.from_numpy_dtype(np.dtype(name)): np.dtype(name)
    for name in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}
"""NumPy's type of the numbers of each type; Arrow before 26 imports pandas to determine it."""


def stored_values(array: pa.Array) -> Array:
    """Return the stored values of an array without a dictionary, without a copy.

    Booleans are packed bits (uint8), the first at bit `array.offset`; a decimal of more than 64 bits is several
    int64, the lowest first.
    """
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.int64)
    data_type, data = array.type, array.buffers()[1]
    first, n = array.offset, len(array)
    if pa.types.is_boolean(data_type):
        return np.zeros((first + n + 7) // 8, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    if pa.types.is_decimal(data_type):
        width = data_type.byte_width
        dtype: npt.DTypeLike = np.int32 if width == 4 else np.int64
        first, n = (first, n) if width <= 8 else (first * width // 8, n * width // 8)
    elif pa.types.is_timestamp(data_type) or pa.types.is_duration(data_type):
        dtype = np.int64
    elif pa.types.is_date(data_type) or pa.types.is_time(data_type):
        dtype = np.int32 if data_type.bit_width == 32 else np.int64
    else:
        dtype = NUMPY_TYPES[data_type]
    if n == 0 or data is None:
        return np.zeros(n, dtype)
    return np.frombuffer(data, dtype, n, first * np.dtype(dtype).itemsize)


def numbers_of(array: pa.Array) -> Array:
    """As `Block.numbers`, for an array without a dictionary."""
    data_type = array.type
    if pa.types.is_null(data_type):
        return np.zeros(len(array), np.int64)
    if pa.types.is_boolean(data_type):
        data = array.buffers()[1]
        return np.zeros(len(array), np.bool_) if data is None else _bits(data, array.offset, len(array))
    values = stored_values(array)
    if pa.types.is_decimal(data_type) and data_type.byte_width > 8:
        return values[:: data_type.byte_width // 8]  # the lowest word holds any value of at most 18 digits
    return values.astype(np.float64) if values.dtype.kind == "f" and values.dtype.itemsize < 8 else values
