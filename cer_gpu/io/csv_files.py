"""Rows of CSV: types inferred from the first block, NULL, and wider types if later rows need them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.fields import retyped
from cer_gpu.errors import EventsError
from cer_gpu.io.source import Source
from cer_gpu.io.string_types import (
    UTC,
    WiderTypes,
    cast_column,
    common_type,
    first_misfit,
    inexact_integer,
    mixed_zones,
    time_type,
    type_of_strings,
    zones_differ,
)
from cer_gpu.io.text_files import (
    checked_for_rounding,
    declared,
    in_format,
    mixed_zones_message,
    read_type,
    reading_to_its_end,
    rounded_message,
    time_type_of_format,
)
from cer_gpu.io.text_options import USUAL, TextOptions, time_type_by

DELIMITERS = ",;\t|"
"""Separators that are detected in a header; on a tie, the first wins."""
_HEAD_BYTES = 1 << 16


def csv_source(
    stream: Callable[[], Any],
    options: TextOptions = USUAL,
    *,
    probe: Callable[[], Any] | None = None,
    name: str = "the file",
    delimiter: str | None = None,
) -> Source:
    """Return the rows of CSV with a header; columns have the types of the first MiB.

    Parameters
    ----------
    stream
        Opens the bytes.
    options
    probe
        Opens the first rows; if None, `stream` can be called again.
    name
        Name of the file, for messages.
    delimiter
        Separator if the options name none and the header has no other.
    """
    return _Csv(stream, probe, options, name, delimiter).source()


def delimiter_of(header: bytes, usual: str | None = None) -> str:
    """Return the separator of a header: the most frequent one of `DELIMITERS` outside of quotes."""
    parts = header.partition(b"\n")[0].split(b'"')[::2]
    counts = {each: sum(part.count(each.encode()) for part in parts) for each in DELIMITERS}
    best = max(DELIMITERS, key=lambda each: counts[each])
    return usual or "," if not counts[best] or (usual is not None and counts[usual]) else best


class _Csv:
    """A file of CSV, and the types of its first rows."""

    def __init__(
        self,
        stream: Callable[[], Any],
        probe: Callable[[], Any] | None,
        options: TextOptions,
        name: str,
        delimiter: str | None,
    ) -> None:
        self._stream, self._probe, self._options, self._name = stream, probe or stream, options, name
        self._is_rereadable = probe is None
        self._formats: dict[str, str] = dict(options.time_formats)
        self._conflicts: dict[str, str] = {}
        self._at_first = self._probe()
        if options.delimiter is None:
            head, self._at_first = _head(self._at_first), self._probe()
            delimiter = delimiter_of(head, delimiter)
        self._delimiter = options.delimiter or delimiter or ","
        self._schema = self._schema_of_first_block()
        self._types = {field.name: field.type for field in self._schema}

    def source(self, types: Mapping[str, pa.DataType] | None = None) -> Source:
        """Return the rows, with columns of other types."""
        types = dict(types or {})
        schema = retyped(self._schema, types)
        return Source(schema, partial(self._read_csv, types=types), as_types=self.source, conflicts=self._conflicts)

    def _open_reader(
        self, opened: Any, types: Mapping[str, pa.DataType], columns: list[str] | None = None, **more: Any
    ) -> Any:
        options = self._options
        nulls = {
            "null_values": options.null_values,
            "strings_can_be_null": options.strings_can_be_null or not options.quoted_strings_can_be_null,
            "quoted_strings_can_be_null": options.quoted_strings_can_be_null,
            "decimal_point": "," if options.decimal_comma else ".",
        }
        convert = pa_csv.ConvertOptions(
            include_columns=columns, include_missing_columns=columns is not None, column_types=types, **(nulls | more)
        )
        parse = pa_csv.ParseOptions(delimiter=self._delimiter)
        return pa_csv.open_csv(opened, parse_options=parse, convert_options=convert)

    # ---- types ------------------------------------------------------------------------------------------------

    def _schema_of_first_block(self) -> pa.Schema:
        """Return the schema inferred from the first block."""
        column_types = dict(self._options.column_types)
        raw = {**column_types, **dict.fromkeys(self._formats, pa.string())}
        with self._open_reader(self._at_first, raw) as reader:
            schema = reader.schema
            first = next(iter(reader), None)
        fields = []
        for i, field in enumerate(schema):
            kind = field.type
            strings = None if first is None or not is_string(kind) else first.column(i)
            if field.name in self._formats:
                kind = time_type_of_format(self._formats[field.name], strings, column_types.get(field.name))
            elif field.name not in column_types:
                kind = self._type_of(field.name, kind, strings)
            fields.append(field.with_type(kind))
        return pa.schema(fields)

    def _type_of(self, name: str, kind: pa.DataType, strings: pa.Array | None) -> pa.DataType:
        """Return the type of a column that pyarrow inferred as `kind`; strings may still be times."""
        if pa.types.is_timestamp(kind):
            coarse = pa.timestamp("us", kind.tz)
            return kind if kind.unit == "ns" and not self._reads(name, coarse) else coarse
        if strings is None:
            return kind
        if self._options.time_format and (times := time_type_by(strings, self._options.time_format)) is not None:
            self._formats[name] = self._options.time_format
            return times
        if (times := time_type(strings)) is not None:
            return times
        if (rows := mixed_zones(strings)) is not None:
            values = [(row, strings[row].as_py()) for row in rows]
            self._conflicts[name] = mixed_zones_message(name, self._name, *values[0], self._name, *values[1])
            return pa.timestamp("us", UTC)  # so that the conflict is the error
        return kind

    def _reads(self, name: str, kind: pa.DataType) -> bool:
        """Return True if the first block of a column can be read as a type."""
        try:
            with self._open_reader(self._probe(), {name: kind}, [name]) as reader:
                reader.read_next_batch()
        except pa.ArrowInvalid:
            return False
        return True

    # ---- rows -------------------------------------------------------------------------------------------------

    def _read_csv(self, columns: list[str], types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        if not columns:  # rows are counted, whatever they contain
            columns = self._schema.names[:1]
            types = dict.fromkeys(columns, pa.string())
        final = {name: types.get(name, self._types.get(name, pa.null())) for name in columns}
        raw = {
            name: pa.string() if name in self._formats else read_type(self._types.get(name), kind)
            for name, kind in final.items()
        }
        opened, n_rows = self._stream(), 0
        column_types = dict(self._options.column_types)
        inferred = [name for name in raw if name not in column_types and self._is_rereadable]
        try:
            with reading_to_its_end(opened, self._at_first), self._open_reader(opened, raw, columns) as reader:
                for batch in checked_for_rounding(reader, inferred, self._check_exact):
                    yield self._typed_batch(batch, final, n_rows)
                    n_rows += batch.num_rows
        except pa.ArrowInvalid as error:
            if "conversion error" not in str(error):
                raise
            raise self._wider_csv_type(
                error, {name: kind for name, kind in raw.items() if name not in self._formats}
            ) from None

    def _check_exact(self, name: str) -> None:
        """Raise EventsError for an integer in a column of floats that the parser would round."""
        n_rows = 0
        with self._open_reader(self._stream(), {name: pa.string()}, [name]) as reader:
            for batch in reader:
                strings = batch.column(0)
                if (row := inexact_integer(strings)) is not None:
                    raise EventsError(rounded_message(self._name, name, n_rows + row, strings[row]))
                n_rows += batch.num_rows

    def _typed_batch(self, batch: pa.RecordBatch, final: Mapping[str, pa.DataType], first: int) -> pa.RecordBatch:
        """Return a batch with NULL for empty strings, and with the final types of the columns."""
        arrays = []
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            kind = final[name]
            if is_string(array.type) and name in self._formats:
                array = in_format(array, self._formats[name], kind, name, self._name, first)
            elif is_string(array.type):
                array = array if self._empty_is_text else empty_as_null(array)
            elif not array.type.equals(kind):
                try:
                    array = cast_column(array, kind)
                except pa.ArrowInvalid as error:
                    raise EventsError(
                        f"{self._name}: column {name!r} is {array.type} here, and read as {kind} for all files: "
                        f"{error}\n"
                        f"hint: {declared([(name, pa.string())])}"
                    ) from None
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    @property
    def _empty_is_text(self) -> bool:
        options = self._options
        return (
            options.empty_is_text
            or not options.quoted_strings_can_be_null
            or (options.null_values is not None and "" not in options.null_values)
        )

    def _wider_csv_type(self, error: Exception, types: Mapping[str, pa.DataType]) -> Exception:
        """Return the error for a value that does not have the type of its column, with a type for all values."""
        names = [name for name, kind in types.items() if not is_string(kind)]
        if not self._is_rereadable:
            return EventsError(f"{self._name} cannot be read: {error}\nhint: {declared([(names[0], pa.string())])}")
        common_types: dict[str, pa.DataType] = dict.fromkeys(names, pa.null())
        misfits: dict[str, tuple[int, str]] = {}
        first, inexact = dict[str, tuple[int, str]](), dict[str, tuple[int, str]]()
        n_rows = 0
        strings = dict.fromkeys(names, pa.string())
        with self._open_reader(self._stream(), strings, names, strings_can_be_null=True) as reader:
            for batch in reader:
                for name in names:
                    strings = self._point(batch.column(name))
                    common_types[name] = common_type(common_types[name], type_of_strings(strings)) or pa.string()
                    if name not in misfits and (row := first_misfit(strings, types[name])) is not None:
                        misfits[name] = n_rows + row, batch.column(name)[row].as_py()
                    if name not in first and strings.null_count < len(strings):
                        row = pc.index(pc.is_valid(strings), True).as_py()
                        first[name] = n_rows + row, strings[row].as_py()
                    if pa.types.is_integer(types[name]) and (row := inexact_integer(strings)) is not None:
                        inexact.setdefault(name, (n_rows + row, strings[row].as_py()))
                n_rows += batch.num_rows
        if not misfits:
            return EventsError(f"{self._name} cannot be read: {error}")
        name, (row, value) = next(iter(misfits.items()))
        other = time_type(pa.array([value]))
        if other is not None and zones_differ(types[name], other):
            return EventsError(mixed_zones_message(name, self._name, *first[name], self._name, row, value))
        widened = {name: common_types[name] for name in misfits}
        if pa.types.is_floating(widened[name]) and (large := inexact.get(name)) is not None:
            return EventsError(
                f"{self._name}: column {name!r} has {value!r} in row {row:,}, and {large[1]} in row {large[0]:,}, "
                f"which is no float exactly\nhint: {declared([(name, pa.string())])}"
            )
        hint = declared(widened.items())
        if is_string(widened[name]):
            nulls = ["", value]
            as_null = f"null_values={nulls!r} (--null-values {shlex.quote(','.join(nulls))})"
            hint = f"if that is NULL, {as_null}; as text, {hint}"
        return WiderTypes(
            f"{self._name}: column {name!r} is {types[name]} in the rows before, and has {value!r} in row {row:,}\n"
            f"hint: {hint}",
            widened,
        )

    def _point(self, strings: pa.Array) -> pa.Array:
        """Return strings with a decimal point in place of a comma."""
        return pc.replace_substring(strings, ",", ".") if self._options.decimal_comma else strings


def _head(opened: Any) -> bytes:
    with opened:
        return bytes(opened.read(_HEAD_BYTES))


def empty_as_null(strings: pa.Array) -> pa.Array:
    """Return strings with NULL in place of empty ones."""
    if strings.offset or not len(strings) or not pa.types.is_string(strings.type):
        return pc.if_else(pc.equal(strings, ""), pa.scalar(None, strings.type), strings)
    _, offsets, data = strings.buffers()
    ends = np.frombuffer(offsets, np.int32, len(strings) + 1)
    is_filled = ends[1:] > ends[:-1]
    if is_filled.all():
        return strings
    valid = pa.py_buffer(np.packbits(is_filled, bitorder="little"))
    return pa.Array.from_buffers(strings.type, len(strings), [valid, offsets, data])
