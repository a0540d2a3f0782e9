"""Rows of JSON lines: types inferred from the first block, times in strings, and columns of several types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.json as pa_json

from cer_gpu.ceql.paths import dotted, path_of
from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.fields import retyped
from cer_gpu.columnar.record_batches import empty_batch
from cer_gpu.errors import EventsError
from cer_gpu.io.json_documents import JsonDocuments
from cer_gpu.io.source import Source
from cer_gpu.io.string_types import (
    UTC,
    WiderTypes,
    cast_column,
    common_type,
    first_misfit,
    mixed_zones,
    time_type,
    to_times,
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
    zone_word,
)
from cer_gpu.io.text_options import USUAL, TextOptions, time_type_by

STRING_BYTES = 1 << 22
"""Bytes of JSON lines to parse at once; column types are inferred from the first block."""
_MIXED = pa.binary()
"""Placeholder for the type of values of several types; JSON has no binary values."""


def json_source(
    stream: Callable[[], Any],
    options: TextOptions = USUAL,
    expected: pa.Schema | None = None,
    *,
    probe: Callable[[], Any] | None = None,
    name: str = "the file",
) -> Source:
    """Return the rows of JSON lines, each an object; columns have the types of the first `STRING_BYTES`.

    Strings that are times in ISO 8601 become timestamps, in structs, too.  A column that is absent from the first block
    is omitted.

    Parameters
    ----------
    stream
        Opens the bytes.
    options
        Options for times and types are used; the others are for CSV.
    expected
        Columns that have these types whatever the first rows have, and are NULL if missing.  Other columns and fields
        of the first rows are in the schema, too.
    probe
        Opens the first rows; if None, `stream` can be called again.
    name
        Name of the file, for messages.
    """
    lines = _JsonLines(stream, probe, options, name)
    return lines.source() if expected is None else lines.expecting(expected)


class _JsonLines:
    """A file of JSON lines, and the types of its first rows."""

    def __init__(
        self, stream: Callable[[], Any], probe: Callable[[], Any] | None, options: TextOptions, name: str
    ) -> None:
        self._stream, self._options, self._name = stream, options, name
        self._is_rereadable = probe is None
        self._formats: dict[str, str] = dict(options.time_formats)
        self._conflicts: dict[str, str] = {}
        self._as_text: set[str] = set()
        self._at_first = (probe or stream)()
        block = next(_blocks(self._at_first), b"")
        inferred, first = _inferred(block)
        raw = self._resolve_mixed_types(inferred)
        if first is None or not first.schema.equals(raw):
            first = _parsed(block, pa.schema([field for field in raw if field.name not in self._as_text]))
        column_types = dict(options.column_types)
        fields = []
        for field in raw:
            values = pa.nulls(0, field.type) if field.name in self._as_text else first.column(field.name)
            fields.append(field.with_type(self._type_of(field.name, values, column_types.get(field.name))))
        self._schema = pa.schema(fields)
        self._raw = {field.name: _parsed_type(column_types.get(field.name, field.type)) for field in raw}
        self._types = {field.name: field.type for field in self._schema}

    def source(self, types: Mapping[str, pa.DataType] | None = None) -> Source:
        """Return the rows, with columns of other types."""
        types = dict(types or {})
        schema = retyped(self._schema, types)
        return Source(schema, partial(self._read_json, types=types), as_types=self.source, conflicts=self._conflicts)

    def expecting(self, expected: pa.Schema) -> Source:
        """Return the rows with the schema of a stream."""
        types = {}
        for field in _added(expected, self._schema):
            own = self._types.get(field.name, pa.null())
            wider = pa.types.is_integer(field.type) and pa.types.is_floating(own)
            types[field.name] = own if wider or pa.types.is_null(field.type) else field.type
        source = self.source(types)
        source.schema = pa.schema(
            [
                field.with_type(types.get(field.name, field.type))
                for field in _added(expected, self._schema, within=True)
            ]
        )
        return source

    # ---- types ------------------------------------------------------------------------------------------------

    def _resolve_mixed_types(self, inferred: pa.Schema) -> pa.Schema:
        """Return a schema with columns of several types as strings, and without such fields of structs."""
        fields = []
        for field in inferred:
            if field.type.equals(_MIXED):
                self._as_text.add(field.name)
                field = field.with_type(pa.string())
            else:
                field = field.with_type(self._plain_json_type(field.type, (field.name,)))
            fields.append(field)
        return pa.schema(fields)

    def _plain_json_type(self, kind: pa.DataType, path: tuple[str, ...]) -> pa.DataType:
        if pa.types.is_struct(kind):
            fields = []
            for field in kind:
                inside = (*path, field.name)
                if _is_mixed(field.type):
                    self._conflicts[path_of(inside)] = (
                        f"{self._name}: the field {dotted(path_of(inside))!r} has values of several types\n"
                        "hint: only columns of the whole object are read as text then, not fields inside of others"
                    )
                else:
                    fields.append(field.with_type(self._plain_json_type(field.type, inside)))
            return pa.struct(fields)
        return kind

    def _type_of(self, name: str, values: pa.Array, declared_type: pa.DataType | None) -> pa.DataType:
        """Return the type of a column that was parsed without times."""
        if name in self._formats:
            return time_type_of_format(self._formats[name], values, declared_type)
        if declared_type is not None:
            if is_string(declared_type):
                self._as_text.add(name)
            return declared_type
        return self._with_times(values, (name,))

    def _with_times(self, values: pa.Array, path: tuple[str, ...]) -> pa.DataType:
        kind = values.type
        if pa.types.is_struct(kind):
            inner = [(f.name, self._with_times(values.field(i), (*path, f.name))) for i, f in enumerate(kind)]
            return pa.struct(inner)
        if not is_string(kind) or path[0] in self._as_text:
            return kind
        name = path_of(path)
        format = self._options.time_format if len(path) == 1 else ""
        if format and (times := time_type_by(values, format)) is not None:
            self._formats[name] = format
            return times
        if (times := time_type(values)) is not None:
            return times
        if (rows := mixed_zones(values)) is not None:
            shown = [(row, values[row].as_py()) for row in rows]
            self._conflicts[name] = mixed_zones_message(dotted(name), self._name, *shown[0], self._name, *shown[1])
            return pa.timestamp("us", UTC)  # so that the conflict is the error
        return kind

    # ---- rows -------------------------------------------------------------------------------------------------

    def _read_json(self, columns: list[str], types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        names = columns or self._schema.names[:1]
        final = {name: types.get(name, self._types.get(name, pa.null())) for name in names}
        raw = pa.schema([(name, self._raw_type(name, kind)) for name, kind in final.items()])
        strings = [name for name in names if name in self._as_text or self._is_read_as_text(name, final[name])]
        opened, n_rows = self._stream(), 0
        column_types = dict(self._options.column_types)
        inferred = [name for name in names if name not in column_types and self._is_rereadable]
        try:
            with reading_to_its_end(opened, self._at_first):
                for batch in checked_for_rounding(self._batches(opened, raw, strings), inferred, self._check_exact):
                    yield self._typed_batch(batch, final, n_rows)
                    n_rows += batch.num_rows
        except pa.ArrowInvalid as error:
            raise self._wider_json_type(error, raw) from None

    def _check_exact(self, name: str) -> None:
        """Raise EventsError for an integer in a column of floats that the parser would round."""
        row = 0
        for block in _blocks(self._stream()):
            for line in filter(bytes.strip, block.splitlines()):
                value = json.loads(line).get(name)
                if isinstance(value, int) and abs(value) >> 53 and int(float(value)) != value:
                    raise EventsError(rounded_message(self._name, name, row, value))
                row += 1

    def _raw_type(self, name: str, kind: pa.DataType) -> pa.DataType:
        """Return the type with which a column is parsed; times are parsed as strings."""
        own = self._raw.get(name)
        if name in self._formats:
            return own or pa.string()
        return _parsed_type(read_type(own, kind))

    def _is_read_as_text(self, name: str, kind: pa.DataType) -> bool:
        own = self._raw.get(name, pa.null())
        return is_string(kind) and not is_string(own) and not pa.types.is_null(own)

    def _batches(self, opened: Any, raw: pa.Schema, strings: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield parsed rows; the columns `strings` may have values of several types."""
        if not strings and not isinstance(opened, JsonDocuments):  # Arrow's threads must not hold Python objects
            read, parse = pa_json.ReadOptions(block_size=STRING_BYTES), _only(raw)
            with pa_json.open_json(opened, read_options=read, parse_options=parse) as reader:
                yield from reader
            return
        others = pa.schema([field for field in raw if field.name not in strings])
        for block in _blocks(opened):
            try:
                yield _parsed(block, raw)
                continue
            except pa.ArrowInvalid as error:
                if "changed from" not in str(error) or not strings:
                    raise
            rows = [json.loads(line) for line in block.splitlines() if line.strip()]
            columns = {name: pa.array([_as_text(row.get(name)) for row in rows], pa.string()) for name in strings}
            if others:
                batch = _parsed(block, others)
                columns |= dict(zip(batch.schema.names, batch.columns, strict=True))
            yield pa.RecordBatch.from_arrays([columns[name] for name in raw.names], names=raw.names)

    def _typed_batch(self, batch: pa.RecordBatch, final: Mapping[str, pa.DataType], first: int) -> pa.RecordBatch:
        if all(field.type.equals(final[field.name]) for field in batch.schema):
            return batch
        arrays = []
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            kind = final[name]
            if name in self._formats:
                array = in_format(array, self._formats[name], kind, name, self._name, first)
            elif not array.type.equals(kind):
                array = self._as_times(array, kind, (name,), first)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def _as_times(self, array: pa.Array, kind: pa.DataType, path: tuple[str, ...], first: int) -> pa.Array:
        """Return a column with strings converted to times."""
        if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
            fields = [
                self._as_times(array.field(i), field.type, (*path, field.name), first) for i, field in enumerate(kind)
            ]
            return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
        name = dotted(path_of(path))
        try:
            return to_times(array, kind) if is_string(array.type) and _is_time(kind) else cast_column(array, kind)
        except pa.ArrowInvalid as error:
            if not is_string(array.type):
                raise EventsError(
                    f"{self._name}: column {name!r} is {array.type} here, and read as {kind} for all files: {error}"
                ) from None
            row = first_misfit(array, kind) or 0
            value = array[row].as_py()
            own_type = time_type(array.slice(row, 1))
            if own_type is not None and zones_differ(own_type, kind):
                raise EventsError(
                    f"{self._name}: column {name!r} has {value!r} in row {first + row:,}, {zone_word(own_type)}, and "
                    f"times before it or of other files are {zone_word(kind)}\nhint: give all an offset, or none"
                ) from None
            wider = own_type or pa.string()
            message = (
                f"{self._name}: column {name!r} is {kind} by the rows before, and has {value!r} in row "
                f"{first + row:,}\n"
                f"hint: {declared([(name, wider)])}"
            )
            raise (WiderTypes(message, {name: wider}) if len(path) == 1 else EventsError(message)) from None

    def _wider_json_type(self, error: Exception, raw: pa.Schema) -> Exception:
        """Return the error for a value that does not have the type of its column, with a type for all values."""
        hint = f"hint: columns have the types of the first {STRING_BYTES >> 20} MiB: {raw.to_string()}"
        plain = EventsError(f"{self._name}: cannot be read: {error}\n{hint}")
        if not self._is_rereadable:
            return plain
        common_types: dict[str, pa.DataType] = {name: pa.null() for name in raw.names}
        try:
            for block in _blocks(self._stream()):
                for field in _inferred(block)[0]:
                    if field.name in common_types:
                        common_types[field.name] = _common_type_of_structs(common_types[field.name], field.type)
        except (pa.ArrowInvalid, ValueError):
            return plain  # it is not JSON
        changed = {
            name: pa.string() if _is_mixed(kind) else kind
            for name, kind in common_types.items()
            if not kind.equals(raw.field(name).type) and not _parsed_type(kind).equals(raw.field(name).type)
        }
        changed = {name: kind for name, kind in changed.items() if name not in self._as_text}
        if not changed:
            return plain
        name = next(iter(changed))
        return WiderTypes(
            f"{self._name}: column {name!r} is {raw.field(name).type} in the rows before, and later rows are not: "
            f"{error}\nhint: {declared(changed.items())}",
            changed,
        )


# ---- blocks ---------------------------------------------------------------------------------------------------------


def _blocks(opened: Any) -> Iterator[bytes]:
    """Yield whole lines, about `STRING_BYTES` at a time."""
    rest = b""
    while more := opened.read(STRING_BYTES):
        rest += more
        end = rest.rfind(b"\n") + 1
        if end and rest[:end].strip():
            yield rest[:end]
            rest = rest[end:]
    if rest.strip():
        yield rest


def _only(schema: pa.Schema) -> pa_json.ParseOptions:
    return pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")


def _parsed(block: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return a block parsed with a schema."""
    if not block.strip():
        return empty_batch(schema)
    options = pa_json.ReadOptions(block_size=len(block) + 1)
    return _one_batch(pa_json.read_json(pa.BufferReader(block), options, parse_options=_only(schema)))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else empty_batch(table.schema)


def _inferred(block: bytes) -> tuple[pa.Schema, pa.RecordBatch | None]:
    """Return the JSON types of a block, and its rows, with pyarrow's times, if each column has one type.

    In the schema, times are strings, and columns of several types are `_MIXED`.

    Raises
    ------
    pyarrow.ArrowInvalid
        When it is not JSON, or its rows are not objects.
    """
    try:
        batch = _one_batch(pa_json.read_json(pa.BufferReader(block), pa_json.ReadOptions(block_size=len(block) + 1)))
    except pa.ArrowInvalid as error:
        if "changed from" not in str(error):
            raise
        try:
            rows = [json.loads(line) for line in block.splitlines() if line.strip()]
        except ValueError:
            raise error from None
        if not all(isinstance(row, dict) for row in rows):
            raise
        whole: pa.DataType = pa.struct([])
        for row in rows:
            whole = _common_type_of_structs(whole, _type_of_value(row))
        return pa.schema(list(whole)), None
    return pa.schema([field.with_type(_parsed_type(field.type)) for field in batch.schema]), batch


def _parsed_type(kind: pa.DataType) -> pa.DataType:
    """Return a type as the parser has it, with strings in place of times."""
    if _is_time(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_parsed_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_parsed_type(kind.value_type))
    return kind


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind))


def _is_mixed(kind: pa.DataType) -> bool:
    return bool(kind.equals(_MIXED) or (pa.types.is_list(kind) and _is_mixed(kind.value_type)))


def _type_of_value(value: Any) -> pa.DataType:
    if isinstance(value, dict):
        return pa.struct([(name, _type_of_value(each)) for name, each in value.items()])
    if isinstance(value, list):
        inner: pa.DataType = pa.null()
        for each in value:
            inner = _common_type_of_structs(inner, _type_of_value(each))
        return pa.list_(inner)
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if -(1 << 63) <= value < 1 << 63 else pa.float64()
    return pa.float64() if isinstance(value, float) else pa.string()


def _common_type_of_structs(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Return the common type of two types; structs have the fields of both."""
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        fields = {field.name: field.type for field in a}
        for field in b:
            fields[field.name] = _common_type_of_structs(fields.get(field.name, pa.null()), field.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.list_(_common_type_of_structs(a.value_type, b.value_type))
    return common_type(a, b) or _MIXED


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _added(expected: Iterable[pa.Field], others: Iterable[pa.Field], *, within: bool = False) -> list[pa.Field]:
    """Return the `expected` fields, followed by additional ones of `others`; `within` structs, too."""
    more = {field.name: field for field in others}
    fields = []
    for field in expected:
        other = more.pop(field.name, None)
        if within and other is not None and pa.types.is_struct(field.type) and pa.types.is_struct(other.type):
            field = field.with_type(pa.struct(_added(field.type, other.type, within=True)))
        fields.append(field)
    return [*fields, *more.values()]
