"""Columns and types of events for an editor, from a file of events or a schema, and the problems of a query."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from cer_gpu.ceql.syntax import QuerySyntax
from cer_gpu.compilation import CompiledQuery, analyse_for_set
from cer_gpu.errors import CerError, OptionError, QueryError
from cer_gpu.io.sources import open_events
from cer_gpu.io.tables.names import DELTA_LOG, TableName
from cer_gpu.lints import lint


@dataclass(frozen=True)
class Problem:
    """An error, or a warning, of a query.

    Attributes
    ----------
    message : str
        With the hint, on a line of its own.
    start, end : int
        Offsets in the text (end exclusive).
    is_warning : bool
    """

    message: str
    start: int
    end: int
    is_warning: bool = False


def compiled_or_errors(
    text: str, schema: pa.Schema | None, options: Mapping[str, Any]
) -> tuple[CompiledQuery | None, Sequence[CerError]]:
    """Compile a query of any language, or return its errors, those of the options too."""
    try:
        return analyse_for_set(text, schema=schema, **options)
    except CerError as error:
        return None, [error]


def problems(text: str, schema: pa.Schema | None = None, options: Mapping[str, Any] | None = None) -> list[Problem]:
    """Return all that ``cer-gpu check`` reports on a query; nothing for an empty text.

    Parameters
    ----------
    text
    schema
        That of the events, if it is known.
    options
        Those of `cer_gpu.compile`, but `schema`.

    Examples
    --------
    >>> from cer_gpu.editing.event_schema import problems
    >>> for problem in problems("SELECT * FROM S WHERE A AS sale ; B FILTER sail[x > 1] WITHIN 9 EVENTS"):
    ...     print(problem.start, problem.end, problem.message)
    43 47 FILTER names 'sail', which the formula does not define
    hint: did you mean 'sale'?
    """
    if not text.strip():
        return []
    query, errors = compiled_or_errors(text, schema, options or {})
    reported = [_problem(text, error, is_warning=False) for error in errors]
    if query is not None:
        reported += [_problem(text, error, is_warning=True) for error in _warnings(query, schema)]
    return reported


def _warnings(query: CompiledQuery, schema: pa.Schema | None) -> Iterator[QueryError]:
    """Yield warnings, with the schema and without, each once."""
    syntax = query.syntax
    if not isinstance(syntax, QuerySyntax):
        return
    reported = set()
    for each_schema in (schema, None) if schema is not None else (None,):
        for each in lint(syntax, language=query.language, schema=each_schema):
            place = (each.kind, each.error.start, each.error.end)
            if place not in reported:
                reported.add(place)
                yield each.error


def _problem(text: str, error: CerError, *, is_warning: bool) -> Problem:
    """Return an error at its place; one without a place is at the first line with text."""
    start, end, message = None, None, str(error)
    if isinstance(error, QueryError):
        start, end = error.start, error.end
        message = error.message + (f"\nhint: {error.hint}" if error.hint else "")
    if start is None:
        start, end = len(text) - len(text.lstrip()), None
    start = min(start, len(text))
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    end = line_end if end is None else min(end, len(text))
    return Problem(message, start, max(end, start), is_warning)


SCHEMA_ENDING = ".schema.json"
"""Ending of schema files: what ``cer-gpu columns EVENTS --json`` prints."""

_TIMES = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")
_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)")
_LISTS = {"list": pa.list_, "large_list": pa.large_list}
_NESTED = re.compile(r"(list|large_list|struct)<(.*)>", re.DOTALL)
_SHAPE = 'expected {"columns": [{"name": "price", "type": "double"}, ...]}, as cer-gpu columns EVENTS --json prints it'


@dataclass(frozen=True)
class EventSchema:
    """Schema and types of events, as far as they are known without reading the events.

    Attributes
    ----------
    schema : pyarrow.Schema or None
        None if nothing is known.
    types : tuple of str
        Types of events, if they are known.
    values : mapping from str to tuple of str
        Values of columns of strings, the most frequent first, if they are known.
    """

    schema: pa.Schema | None = None
    types: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_event_schema(path: str | os.PathLike[str]) -> EventSchema:
    """Return the columns and types in a schema file, or the schema of events (a file, folder, glob, address or table).

    Parameters
    ----------
    path
        A file that ends in `SCHEMA_ENDING` is a schema file; of anything else no event is read.

    Raises
    ------
    OptionError, EventsError
        When it cannot be read.

    Examples
    --------
    >>> from cer_gpu.editing.event_schema import read_event_schema
    >>> read_event_schema("examples/data/flights.parquet").schema.names[:3]                # doctest: +SKIP
    ['type', 'ts', 'tailnum']
    """
    if not str(path).endswith(SCHEMA_ENDING):
        return EventSchema(open_events(str(path)).schema)
    try:
        written = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{path}: expected JSON: {error}") from None
    columns = written.get("columns") if isinstance(written, dict) else None
    if not isinstance(columns, list) or not all(_is_column(each) for each in columns):
        raise OptionError(f"{path}: {_SHAPE}")
    fields = []
    for each in columns:
        kind = arrow_type_of(each["type"])
        if kind is None:
            raise OptionError(f"{path}: column {each['name']!r}: expected an Arrow type, got {each['type']!r}")
        fields.append(pa.field(each["name"], kind))
    counted = written.get("types") or []
    names = [each.get("type") for each in counted if isinstance(each, dict)] if isinstance(counted, list) else []
    return EventSchema(pa.schema(fields), tuple(name for name in names if isinstance(name, str)))


def changed_at(path: str) -> int | None:
    """Return when a file of events, or the log of a table of Delta, was changed, or None if unknown."""
    table = TableName.parse(path)
    place = path if table is None else os.path.join(table.place, DELTA_LOG)
    return os.stat(place).st_mtime_ns if os.path.exists(place) else None


def fields_on_path(schema: pa.Schema, path: Sequence[str]) -> list[pa.Field] | None:
    """Return the fields of the struct at a path, of the schema if it is empty, or None if it is no struct.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from cer_gpu.editing.event_schema import fields_on_path
    >>> [field.name for field in fields_on_path(pa.schema({"st": pa.struct({"p": pa.int64()})}), ["st"])]
    ['p']
    """
    fields = list(schema)
    for name in path:
        kind = next((field.type for field in fields if field.name == name), None)
        if kind is None or not pa.types.is_struct(kind):
            return None
        fields = [kind.field(i) for i in range(kind.num_fields)]
    return fields


def _is_column(each: Any) -> bool:
    return isinstance(each, dict) and isinstance(each.get("name"), str) and isinstance(each.get("type"), str)


def arrow_type_of(text: str) -> pa.DataType | None:
    """Return the Arrow type that `str` shows as `text`, or None if no such type is known.

    Examples
    --------
    >>> from cer_gpu.editing.event_schema import arrow_type_of
    >>> arrow_type_of("struct<name: string, at: timestamp[us, tz=UTC]>").num_fields
    2
    """
    text = text.strip()
    with suppress(ValueError):
        return pa.type_for_alias(text)
    if times := _TIMES.fullmatch(text):
        return pa.timestamp(times[1], times[2])
    if decimal := _DECIMAL.fullmatch(text):
        with suppress(pa.ArrowInvalid, ValueError):
            return getattr(pa, f"decimal{decimal[1]}")(int(decimal[2]), int(decimal[3]))
    nested = _NESTED.fullmatch(text)
    if nested is None:
        return None
    fields = []
    for part in _split_at_commas(nested[2]):
        name, colon, kind = part.partition(": ")
        field_type = arrow_type_of(kind.removesuffix(" not null"))
        if not colon or field_type is None:
            return None
        fields.append(pa.field(name.strip(), field_type))
    if nested[1] == "struct":
        return pa.struct(fields)
    return _LISTS[nested[1]](fields[0].type) if len(fields) == 1 else None


def _split_at_commas(text: str) -> Iterator[str]:
    """Yield the parts between the commas outside brackets."""
    depth, start = 0, 0
    for i, sign in enumerate(text):
        depth += (sign in "<[(") - (sign in ">])")
        if sign == "," and depth == 0:
            yield text[start:i]
            start = i + 1
    if text[start:].strip():
        yield text[start:]


_FIRST_COMMENTS = re.compile(r"(?:[ \t]*(?:(?:--|//)[^\n]*)?\r?\n)*(?:[ \t]*(?:--|//)[^\n]*)?")
_NAMED = re.compile(r"^[ \t]*(?:--|//)[ \t]*events:[ \t]*(.+?)[ \t\r]*$", re.MULTILINE)


def events_beside(folder: str, events: str) -> str:
    """Return a name of events, relative to a folder, as it is from anywhere; addresses and catalogues do not change.

    Examples
    --------
    >>> from cer_gpu.editing.event_schema import events_beside
    >>> [events_beside("/q", events) for events in ["a.parquet", "delta:lake/t@3", "iceberg:cat.ns.t", "s3://b/t"]]
    ['/q/a.parquet', 'delta:/q/lake/t@3', 'iceberg:cat.ns.t', 's3://b/t']
    """
    table = TableName.parse(events)
    if "://" in events or (table is not None and table.kind != "delta"):
        return events
    return (
        os.path.join(folder, events) if table is None else str(replace(table, place=os.path.join(folder, table.place)))
    )


def events_named(text: str) -> str | None:
    r"""Return the events that a comment before a query names, ``-- events: trades.parquet``, or None.

    Examples
    --------
    >>> from cer_gpu.editing.event_schema import events_named
    >>> events_named("-- events: trades.parquet\nSELECT * FROM S WHERE A")
    'trades.parquet'
    """
    first = _FIRST_COMMENTS.match(text)
    named = _NAMED.search(first[0]) if first else None
    return named[1] if named else None
