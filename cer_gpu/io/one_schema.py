"""One schema for all files of a source, whatever the order of the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.fields import retyped
from cer_gpu.errors import EventsError
from cer_gpu.io.source import Source, with_batches
from cer_gpu.io.string_types import cast_column, common_type, zones_differ
from cer_gpu.io.text_files import mixed_zones_message, zone_word


@dataclass(frozen=True)
class OneSchema:
    """Sources whose columns have common types, as far as there are any.

    Attributes
    ----------
    sources : list of Source
    schema : pyarrow.Schema
        The schema of the first, with the common types, and with columns that only later text files have.
    conflicts, remarks : dict from str to str
        See `Source`.
    """

    sources: list[Source]
    schema: pa.Schema
    conflicts: dict[str, str]
    remarks: dict[str, str]


def in_one_schema(
    sources: Sequence[Source], names: Sequence[str], folder_columns: Sequence[Collection[str]]
) -> OneSchema:
    """Return sources with one type for each column.

    Text files are read with the common types, and have NULL for columns that they lack; times of other files are cast.
    A column without a common type is read as strings if all other files have strings; else each file keeps its type.

    Parameters
    ----------
    sources
    names
        Names of the files, for messages.
    folder_columns
        Hive columns of each file, which it need not contain.
    """
    first = sources[0].schema
    conflicts = {name: text for source in reversed(sources) for name, text in source.conflicts.items()}
    remarks: dict[str, str] = {}
    if all(source.schema.equals(first) for source in sources[1:]):
        return OneSchema(list(sources), first, conflicts, remarks)
    types: dict[str, pa.DataType] = {}
    named = [Counter(source.schema.names) for source in sources]
    for name in dict.fromkeys(name for each in named for name in each):
        counts = [each[name] for each in named]
        here = [i for i, n in enumerate(counts) if n]
        absent = [i for i, n in enumerate(counts) if not n and name not in folder_columns[i]]
        lacking = [] if any(source.is_log for source in sources) else absent  # each kind of log has its own columns
        if max(counts) > 1 or any(sources[i].as_types is None for i in absent):
            continue
        kinds = {i: sources[i].schema.field(name).type for i in here}
        common = _common(kinds)
        if common is None and (clash := _clash(kinds)) is not None:
            places = [(names[i], *_first_value(sources[i], name)) for i in clash]
            conflicts.setdefault(name, mixed_zones_message(name, *places[0], *places[1]))
            continue
        if common is None:
            if not all(is_string(kind) or sources[i].as_types is not None for i, kind in kinds.items()):
                continue
            common = pa.string()
        types[name] = common
        if (remark := _remark(name, kinds, lacking, common, names)) is not None:
            remarks[name] = remark
    schema = retyped(first, types)
    of_all = {field.name: field.type for field in schema if field.name not in conflicts}
    converted = [
        _as_types(source, {name: kind for name, kind in of_all.items() if name not in but}, name)
        for source, name, but in zip(sources, names, folder_columns, strict=True)
    ]
    return OneSchema(converted, schema, conflicts, remarks)


def with_stream_schema(source: Source, name: str, expected: pa.Schema, folder_columns: Collection[str]) -> Source:
    """Return a source whose times, and integers in columns of floats, are cast to the types of its stream.

    Columns that a text file lacks are NULL.

    Parameters
    ----------
    source
    name
        Name of the file, for messages.
    expected
        Schema of the stream.
    folder_columns
        Hive columns.
    """
    own = {field.name: field.type for field in source.schema}
    types, conflicts = dict[str, pa.DataType](), dict(source.conflicts)
    for field in expected:
        kind = own.get(field.name, pa.null())
        if field.name in folder_columns or kind == field.type or source.schema.names.count(field.name) > 1:
            continue
        if zones_differ(kind, field.type):
            row, value = _first_value(source, field.name)
            conflicts[field.name] = (
                f"{name}: column {field.name!r} has times {zone_word(kind)} ({value!r} in row {row:,}), and those of "
                f"the first file are {zone_word(field.type)}\nhint: give all an offset, or none"
            )
        elif _widens(kind, field.type) or (is_string(field.type) and not pa.types.is_nested(kind)):
            types[field.name] = field.type
    return replace(_as_types(source, types, name), conflicts=conflicts)


def _widens(kind: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(expected):
        return True  # those that need a finer unit are an error
    return bool(common_type(kind, expected) == expected)


def _common(kinds: Mapping[int, pa.DataType]) -> pa.DataType | None:
    common: pa.DataType | None = pa.null()
    for kind in kinds.values():
        common = None if common is None else common_type(common, kind)
    return common


def _clash(kinds: Mapping[int, pa.DataType]) -> tuple[int, int] | None:
    """Return two files of which one has times with a time zone and the other without, or None."""
    (first, kind), *others = kinds.items()
    other = next((i for i, each in others if zones_differ(kind, each)), None)
    if other is None:
        return None
    return (first, other) if getattr(kind, "tz", None) else (other, first)


def _first_value(source: Source, name: str) -> tuple[int, str]:
    """Return the index of the first row that has a value, and the value."""
    row = 0
    for batch in source.batches([name]):
        for value in batch.column(name):
            if value.is_valid:
                return row, str(value)
            row += 1
    return 0, "NULL"


def _remark(
    name: str, kinds: Mapping[int, pa.DataType], absent: Sequence[int], common: pa.DataType, names: Sequence[str]
) -> str | None:
    first: dict[str, int] = {}
    for i, kind in kinds.items():
        if not pa.types.is_null(kind) and not pa.types.is_nested(kind):
            first.setdefault(str(kind), i)
    if len(first) > 1:
        types = " and ".join(f"{kind} in {names[i]}" for kind, i in list(first.items())[:2])
        return f"column {name!r} is {types}: it is read as {common}"
    if absent:
        others = f" and {len(absent) - 1} more files" if len(absent) > 1 else ""
        return f"{names[absent[0]]}{others}: no column {name!r}, which is NULL there"
    return None


def _as_types(source: Source, types: Mapping[str, pa.DataType], name: str) -> Source:
    """Return a source with other types of columns, and text files with all columns."""
    if source.as_types is not None:
        own = {field.name: field.type for field in source.schema}
        changed = {column: kind for column, kind in types.items() if column not in own or own[column] != kind}
        return source.as_types(changed) if changed else source
    times = {
        field.name: types[field.name]
        for field in source.schema
        if field.name in types and field.type != types[field.name] and pa.types.is_timestamp(types[field.name])
    }
    return _cast_columns(source, times, name) if times else source


def _cast_columns(source: Source, types: Mapping[str, pa.DataType], name: str) -> Source:
    """Return a source some of whose columns are cast."""

    def cast(batch: pa.RecordBatch) -> pa.RecordBatch:
        names = batch.schema.names
        arrays = [_cast_column(batch.column(i), types.get(column), column, name) for i, column in enumerate(names)]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    return with_batches(source, cast, schema=retyped(source.schema, types))


def _cast_column(array: pa.Array, kind: pa.DataType | None, column: str, name: str) -> pa.Array:
    if kind is None:
        return array
    try:
        return cast_column(array, kind)
    except pa.ArrowInvalid as error:
        raise EventsError(
            f"{name}: column {column!r} is {array.type}, and read as {kind} for all files: {error}"
        ) from None
