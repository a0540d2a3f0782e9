"""Source: events that are read in order, as batches with only the requested columns."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.ceql.paths import dotted, names_of, path_of
from cer_gpu.columnar.columns import DECIMAL, FLOAT, INTEGER, NOTHING, kind_of, types_within, validity
from cer_gpu.columnar.fields import attribute_type, columns_with, names_in, with_column
from cer_gpu.errors import EventsError, TimeOrderError, did_you_mean

BATCH_ROWS = 1 << 17
_BATCHES_AHEAD = 2
"""Batches of a file decoded ahead of the evaluation."""
READ_ERRORS = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError)
"""Exceptions of Arrow's readers for unreadable data."""


@dataclass(frozen=True)
class Parts:
    """Parts of a source, such as row groups, which several threads can read at once.

    Attributes
    ----------
    begins : list of int
        Positions of the first rows of the parts, and the number of all rows.
    read : callable
        ``read(columns, begin, end)`` yields the rows from `begin`, where a part begins, up to `end`.
    """

    begins: list[int]
    read: Callable[[list[str], int, int], Iterator[pa.RecordBatch]]

    def serve(self, n_threads: int) -> bool:
        """Return True if the rows can be divided about equally among `n_threads`."""
        largest = max((end - begin for begin, end in pairwise(self.begins)), default=0)
        return largest * n_threads <= 1.25 * self.begins[-1]


@dataclass(frozen=True)
class ColumnBounds:
    """Bounds of the values of a column in one file.

    Attributes
    ----------
    least, greatest
        Lower and upper bound of the values, without NULL and NaN.
    """

    least: Any
    greatest: Any


@dataclass(frozen=True)
class FilesOfRows:
    """Files of the rows of a source, by the row numbers in the input.

    Attributes
    ----------
    begins : sequence of (int, str)
        Number of the first row of each file, and the name of the file; it grows while they are read.
    """

    begins: Sequence[tuple[int, str]]

    def names(self, rows: pa.Array) -> pa.Array:
        """Return the names of the files of rows; NULL for NULL."""
        begins = list(self.begins)
        firsts, names = [first for first, _ in begins], pa.array([name for _, name in begins], pa.string())
        at = np.searchsorted(firsts, np.asarray(rows.fill_null(0)), side="right") - 1
        return names.take(pa.array(at, pa.int64(), mask=np.asarray(rows.is_null())))


MayHold = Callable[[Sequence[Mapping[str, ColumnBounds]]], list[bool]]
"""Returns for each file whether it may contain a relevant event, by the bounds of its columns."""


@dataclass(eq=False)
class Source:
    """Events that can be read once, in order.

    Attributes
    ----------
    schema : pyarrow.Schema
    read : callable
        Yields the batches with at least some columns; to be called by `batches`.
    n_rows : int or None
        Number of events, or None if unknown before reading.
    origins : sequence of (int, str)
        Position of the first event of each file, and the name of the file; may grow while they are read.
    rereadable : bool
        True if `batches` can be called again, and reads a few columns faster than all.
    in_memory : bool
        True if all events are in memory.
    reads_ahead : bool
        True if another thread reads the next batches.
    parts : Parts or None
        Parts to read at once, or None if the source cannot be read in parts.
    resident : bool
        True if columns may be in GPU memory, which the host must not read.
    reads_fields : bool
        True if `read` also takes fields of structs, and omits their other fields.
    numbered : bool
        True if a column has the row numbers of the events among more events (`cer_gpu.order.row_column.ROW_COLUMN`).
    ordered : bool
        False if the rows are ordered only by their times, as those of a table.
    without : callable or None
        ``without(may_hold, keep)`` returns the source with NULL in place of the values of files that need not be read,
        except in the columns `keep`; None if there are no file statistics.
    as_types : callable or None
        ``as_types(types)`` returns the same rows of a text file with columns of these types; those that it lacks are
        NULL.  None if the types are stored with the rows.
    conflicts : mapping from str to str
        Errors of columns and fields without a common type, by name; raised if they are read.
    remarks : mapping from str to str
        Remarks on columns whose type differs from that in some files.
    notes : sequence of str
        Remarks on the files themselves: parts of them that could not be read.
    is_log : bool
        True if the rows are those of a log.  Each kind of log has its own columns: missing ones cause no remark.
    files : FilesOfRows or None
        Files of the rows, also where these are reordered, or None if they are not of several files.
    time_hint : str
        Advice on converting strings to timestamps, with the name of the column as ``{0}``; may be empty.
    """

    schema: pa.Schema
    read: Callable[[list[str]], Iterator[pa.RecordBatch]]
    n_rows: int | None = None
    origins: Sequence[tuple[int, str]] = ()
    _: KW_ONLY
    rereadable: bool = False
    in_memory: bool = False
    reads_ahead: bool = False
    parts: Parts | None = None
    resident: bool = False
    reads_fields: bool = False
    numbered: bool = False
    ordered: bool = True
    without: Callable[[MayHold, frozenset[str]], Source] | None = None
    as_types: Callable[[Mapping[str, pa.DataType]], Source] | None = None
    conflicts: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    is_log: bool = False
    files: FilesOfRows | None = None
    time_hint: str = ""

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the events; batches have at least the named columns and fields.

        Raises
        ------
        EventsError
            When one of them has no common type.
        """
        for attribute in columns if self.conflicts else ():
            names = names_of(attribute)
            for path in (attribute, *(path_of(names[:n]) for n in range(1, len(names)))):
                if path in self.conflicts:
                    raise EventsError(self.conflicts[path])
        return self.read(columns if self.reads_fields else columns_with(self.schema, columns))

    def parts_for(self, n_threads: int) -> Parts | None:
        """Return the parts for `n_threads` to read at once, or None if there are none of about equal size."""
        return self.parts if self.parts is not None and self.parts.serve(n_threads) else None

    @contextmanager
    def locating(self, n_events: Callable[[], int]) -> Iterator[None]:
        """Add the name of the file to errors in the order of events.

        Parameters
        ----------
        n_events
            Returns the number of events evaluated so far, for errors without an event position.
        """
        try:
            yield
        except TimeOrderError as error:
            where = self.locate(n_events() if error.event is None else error.event)
            raise TimeOrderError(f"{where}: {error}" if where else str(error), error.event) from None

    def locate(self, position: int) -> str | None:
        """Return the file of an event, and the position of its first event, for a message."""
        if not self.origins:
            return None
        first, name = self.origins[bisect_right([o[0] for o in self.origins], position) - 1]
        return name if first == 0 else f"{name} (its first event is {first})"


def with_field_column(source: Source, name: str) -> Source:
    """Return a source with a column for the struct field at a dotted path, unless it has that column."""
    path = names_in(source.schema, name)
    if len(path) == 1:
        return source

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        own = [path_of(path) if each == name else each for each in columns]
        for batch in source.batches(list(dict.fromkeys(own))):
            yield with_column(batch, name) if name in columns else batch

    kind = attribute_type(source.schema, name)
    return replace(source, schema=source.schema.append(pa.field(name, kind)), read=read, reads_fields=True, parts=None)


def with_batches(source: Source, change: Callable[[pa.RecordBatch], pa.RecordBatch], **others: Any) -> Source:
    """Return a source with each batch transformed, also in its parts; `others` are fields to replace."""

    def changing(read: Callable[..., Iterator[pa.RecordBatch]]) -> Callable[..., Iterator[pa.RecordBatch]]:
        def read_all(*args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
            yield from map(change, read(*args, **options))

        return read_all

    parts = source.parts
    read_parts = None if parts is None else Parts(parts.begins, changing(parts.read))
    return replace(source, read=changing(source.read), parts=read_parts, **others)


def prefetch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches that another thread reads, up to `_BATCHES_AHEAD` of them in advance."""
    with ThreadPoolExecutor(1, thread_name_prefix="cer_gpu reader") as pool:
        coming = deque(pool.submit(next, batches, None) for _ in range(_BATCHES_AHEAD))
        try:
            while (batch := coming.popleft().result()) is not None:
                coming.append(pool.submit(next, batches, None))
                yield batch
        finally:
            pool.shutdown(cancel_futures=True)


def check_names(schema: pa.Schema) -> None:
    """Raise UnicodeDecodeError if the name of a column, of a field or of a time zone is not UTF-8."""
    names = schema.names
    for kind in (kind for each in schema.types for kind in types_within(each)):
        names += [kind.field(i).name for i in range(kind.num_fields)]
        names += [kind.tz] if pa.types.is_timestamp(kind) else []


def check_columns(file: object, schema: pa.Schema, first: object, expected: pa.Schema, columns: list[str]) -> None:
    """Raise EventsError unless a file has the columns of the first one, of the same kinds."""
    for attribute in columns:
        ours, theirs = attribute_type(schema, attribute), attribute_type(expected, attribute)
        name = dotted(attribute)
        if ours is None:
            hint = did_you_mean(name, schema.names, "columns") or "the file has no columns"
            raise EventsError(f"{file}: no column {name!r} (or more than one), which {first} has\nhint: {hint}")
        kinds = {kind_of(ours), kind_of(theirs)} - {NOTHING}
        if len(kinds) > 1 and not kinds <= {INTEGER, FLOAT, DECIMAL}:
            raise EventsError(f"{file}: column {name!r} is {ours}, and {theirs} in {first}")


_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_PLACES = np.array([i for i in range(36) if i not in (8, 13, 18, 23)])
"""Offsets of the digits; between them are hyphens."""


def with_plain_uuids(source: Source) -> Source:
    """Return a source whose columns of UUIDs are strings."""
    schema = without_uuids(source.schema)
    if schema is source.schema:
        return source
    return with_batches(source, plain_uuids, schema=schema)


def without_uuids(schema: pa.Schema) -> pa.Schema:
    """Return the schema with columns of UUIDs as strings, or the same if it has none."""
    if pa.uuid() not in schema.types:
        return schema
    return pa.schema([field.with_type(pa.string()) if field.type == pa.uuid() else field for field in schema])


def plain_uuids(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose columns of UUIDs are strings."""
    if pa.uuid() not in batch.schema.types:
        return batch
    for i, (name, kind) in enumerate(zip(batch.schema.names, batch.schema.types, strict=True)):
        if kind == pa.uuid():  # other columns are not touched: unread ones may be damaged
            batch = batch.set_column(i, name, uuid_strings(batch.column(i)))
    return batch


def uuid_strings(uuids: pa.Array) -> pa.Array:
    """Return UUIDs as strings of 36 characters, in lower case."""
    n, offset = len(uuids), uuids.offset
    valid = validity(uuids.storage)
    stored = uuids.storage.buffers()[1]
    own = (
        np.zeros((n, 16), np.uint8)
        if stored is None
        else np.frombuffer(stored, np.uint8)[16 * offset : 16 * (offset + n)]
    )
    own = own.reshape(n, 16)
    strings = np.full((n, 36), ord("-"), np.uint8)
    strings[:, _PLACES[::2]] = _DIGITS[own >> 4]
    strings[:, _PLACES[1::2]] = _DIGITS[own & 15]
    offsets = np.arange(n + 1, dtype=np.int32) * np.int32(36)
    array = pa.Array.from_buffers(pa.string(), n, [None, pa.py_buffer(offsets), pa.py_buffer(strings.reshape(-1))])
    return array if valid is None else pc.if_else(pa.array(valid), array, pa.scalar(None, pa.string()))
