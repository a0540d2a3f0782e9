"""Merge of several streams of events, each in the order of time, into one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.clocks import Clock, has_zone
from cer_gpu.columnar.columns import DECIMAL, FLOAT, INTEGER, NOTHING, NUMPY_TYPES, STRING, Block, kind_of
from cer_gpu.columnar.record_batches import empty_batch
from cer_gpu.errors import EventsError, QueryTypeError, did_you_mean
from cer_gpu.io.source import BATCH_ROWS, Source
from cer_gpu.order.layouts import CODED, PLAIN, Layouts, stored_type, to_stored
from cer_gpu.order.row_column import ROW_COLUMN, with_rows
from cer_gpu.order.sorting import Chunk, joined_chunks, merge_runs
from cer_gpu.order.times import order_column_type, to_keys

STREAM_COLUMN = "$stream"
"""The column of merged events that names the stream of each: dictionary<int32, large_string>."""

_CHUNK_ROWS = 1 << 12
"""Minimum rows that the merge takes from a stream, joining small batches: each round costs time for every stream."""


def merge_sources(sources: Mapping[str, Source], column: str | None) -> Source:
    """Merge streams by time into one.

    Equal times are in the order of the mapping, and within a stream in its own.  Some thousand events of each stream
    are read ahead, or one batch if it is longer.

    Parameters
    ----------
    sources
        Sources by the names of the streams, at least one; each in the order of `column`.
    column
        Name of the time column, the same in all of them, or None if there is one stream, whose order is not checked.

    Returns
    -------
    Source
        Events with the columns of all streams, NULL where a stream lacks one, `STREAM_COLUMN`, and the number of each
        in its own stream, `ROW_COLUMN`.  The types of a
        column over the streams become one that holds all their values exactly: strings of any layout are strings,
        numbers the wider ones, timestamps have the finest unit.

    Raises
    ------
    EventsError
        When `column` is missing, its types differ in kind or in having a time zone, or a column has the name
        `STREAM_COLUMN`.
    QueryTypeError
        When a stream has no such column, or its values are no times.

    While it is read:

    TimeOrderError
        When a time is less than the one before in its stream, or missing; it names both, and the stream.
    EventsError
        When a requested column has types in two streams that do not merge, or a value does not fit the merged type.
    """
    if not sources:
        raise EventsError("expected at least one stream of events, got none")
    if column is None and len(sources) > 1:
        raise EventsError(
            "streams are merged by time: name the time column: time_column=... (--time-column)\n"
            f"streams: {', '.join(sources)}"
        )
    for name, source in sources.items():
        if STREAM_COLUMN in source.schema.names:
            raise EventsError(
                f"stream {name!r} has a column {STREAM_COLUMN!r}, which is what the column of the stream's name is "
                "called\nhint: rename it"
            )
        if column is not None:
            try:
                order_column_type(source.schema, column)
            except QueryTypeError as error:
                raise QueryTypeError(f"stream {name!r}: {error.message}", hint=error.hint) from None
    types: dict[str, pa.DataType] = {}
    conflicts: dict[str, EventsError] = {}
    all_names = dict.fromkeys(name for source in sources.values() for name in source.schema.names)
    for name in (name for name in all_names if name != ROW_COLUMN):
        schemas = {s: source.schema for s, source in sources.items() if name in source.schema.names}
        try:
            types[name] = _type_over(name, schemas, is_time=name == column)
        except EventsError as error:
            # a query may do without the column
            schema = next(iter(schemas.values()))
            conflicts[name], types[name] = error, schema.types[schema.names.index(name)]
    if column in conflicts:
        raise conflicts[column]

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        own = (STREAM_COLUMN, ROW_COLUMN)
        wanted = list(dict.fromkeys(c for c in [*columns, column] if c is not None and c not in own))
        for name in wanted:
            if name in conflicts:
                raise conflicts[name]
        return _merge(sources, {name: types[name] for name in wanted}, column, ROW_COLUMN in columns)

    counts = [source.n_rows for source in sources.values()]
    row_counts = [count for count in counts if count is not None]
    schema = pa.schema([*types.items(), (STREAM_COLUMN, CODED), (ROW_COLUMN, pa.int64())])
    remarks = {name: text for source in sources.values() for name, text in source.remarks.items()}
    notes = [note for source in sources.values() for note in source.notes]
    n_rows = sum(row_counts) if len(row_counts) == len(counts) else None
    return Source(schema, read, n_rows, remarks=remarks, notes=notes)


def _type_over(name: str, schemas: dict[str, pa.Schema], is_time: bool) -> pa.DataType:
    """Return the one type that a column has over all streams."""
    for stream, schema in schemas.items():
        if schema.names.count(name) > 1:
            raise EventsError(f"stream {stream!r} has {schema.names.count(name)} columns {name!r}\nhint: rename them")
    types = {stream: stored_type(schema.field(name).type) for stream, schema in schemas.items()}
    merged: pa.DataType | None = None
    for stream, data_type in types.items():
        wider = data_type if merged is None else _merged_type(merged, data_type, is_time)
        if wider is None:
            # the stream whose type does not merge with this one, or the first if only all of them together do not
            others = [s for s in types if s != stream]
            other = next((s for s in others if _merged_type(types[s], data_type, is_time) is None), others[0])
            theirs, ours = (schemas[s].field(name).type for s in (other, stream))
            zones = is_time and pa.types.is_timestamp(theirs) and pa.types.is_timestamp(ours)
            raise EventsError(
                f"column {name!r} is {theirs} in stream {other!r} and {ours} in stream {stream!r}\n"
                "expected: types of which one holds the values of the other\n"
                f"hint: {'give both a time zone, or none' if zones else 'rename the column in one of them, or cast it'}"
            )
        merged = wider
    assert merged is not None
    return merged


def _merged_type(a: pa.DataType, b: pa.DataType, is_time: bool = False) -> pa.DataType | None:
    """Return the type to which values of two stored types are cast where they are representable, or None."""
    if a == b or kind_of(b) == NOTHING:
        return a
    if kind_of(a) == NOTHING:
        return b
    kinds = {kind_of(a), kind_of(b)}
    if kinds == {STRING}:
        return PLAIN
    if len(kinds) > 1 and (is_time or kinds not in ({INTEGER, FLOAT}, {INTEGER, DECIMAL})):
        return None
    if DECIMAL in kinds:
        # Arrow's own rule leaves too few digits for integers
        (x, x_scale), (y, y_scale) = _decimal_digits(a), _decimal_digits(b)
        scale = max(x_scale, y_scale, 0)
        n_digits = max(x - x_scale, y - y_scale) + scale
        if n_digits > 76:
            return None
        return pa.decimal128(n_digits, scale) if n_digits <= 38 else pa.decimal256(n_digits, scale)
    if has_zone(a) and has_zone(b):
        b = pa.timestamp(b.unit, a.tz)  # the zone only says how an instant is shown
    try:
        schemas = [pa.schema([("x", a)]), pa.schema([("x", b)])]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def _decimal_digits(data_type: pa.DataType) -> tuple[int, int]:
    """Return the number of digits that values of a type have, and the number of those after the point."""
    if pa.types.is_decimal(data_type):
        return data_type.precision, data_type.scale
    return len(str(np.iinfo(NUMPY_TYPES[data_type]).max)), 0


def _merge(
    sources: Mapping[str, Source], types: dict[str, pa.DataType], column: str | None, numbered: bool
) -> Iterator[pa.RecordBatch]:
    layouts = Layouts()
    # strings are codes until a stream has plain ones
    fields = [(name, CODED if kind_of(data_type) == STRING else data_type) for name, data_type in types.items()]
    numbers = [(ROW_COLUMN, pa.int64())] if numbered else []
    layouts.take_in(empty_batch(pa.schema([*fields, (STREAM_COLUMN, CODED), *numbers])))
    names = pa.array(list(sources), PLAIN)
    # a round of the merge takes from all streams the events within one chunk's time: some batches together
    n_rows = max(_CHUNK_ROWS, 2 * BATCH_ROWS // len(sources))
    runs = [
        _Stream(i, names, source, types, column, layouts, n_rows, numbered) for i, source in enumerate(sources.values())
    ]
    batches = merge_runs(runs, layouts, BATCH_ROWS) if column is not None else (c.events for c in runs[0].chunks())
    for batch in batches:
        yield from layouts.give_out(batch)


@dataclass
class _Stream:
    """One stream as a sorted run of the merge."""

    index: int
    names: pa.Array
    source: Source
    types: dict[str, pa.DataType]
    column: str | None
    layouts: Layouts
    max_rows: int
    numbered: bool
    n_rows: int = 0
    first = 0

    def chunks(self) -> Iterator[Chunk]:
        """Yield the events, after checking their order."""
        pending: list[Chunk] = []
        n_pending = 0
        for piece in self._pieces():
            pending.append(piece)
            n_pending += piece.events.num_rows
            if n_pending >= _CHUNK_ROWS:
                yield joined_chunks(pending, self.layouts)
                n_pending = 0
        if pending:
            yield joined_chunks(pending, self.layouts)

    def _pieces(self) -> Iterator[Chunk]:
        wanted = [name for name in self.types if name in self.source.schema.names]
        if self.numbered and ROW_COLUMN in self.source.schema.names:
            wanted.append(ROW_COLUMN)
        clock = None if self.column is None else Clock(self.column)
        for batch in self.source.batches(wanted):
            for start in range(0, batch.num_rows, self.max_rows):
                piece = (batch.select(wanted) if wanted else batch).slice(start, self.max_rows)
                if clock is not None:
                    try:
                        clock.read(Block(piece))
                    except EventsError as error:
                        raise type(error)(f"{self._where()}: {error}") from None
                piece = self._unified(piece)
                keys = np.zeros(0, np.uint64) if clock is None else to_keys(Block(piece).numbers(clock.name))
                yield Chunk(keys, self.layouts.take_in(piece))
                self.n_rows += piece.num_rows

    def _unified(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the columns of all streams."""
        n = batch.num_rows
        columns = {
            name: self._cast_column(name, batch.column(name), data_type)
            if name in batch.schema.names
            else pa.nulls(n, CODED if kind_of(data_type) == STRING else data_type)
            for name, data_type in self.types.items()
        }
        codes = pa.array(np.full(n, self.index, np.int32))
        columns[STREAM_COLUMN] = pa.DictionaryArray.from_arrays(codes, self.names)
        if self.numbered:
            columns[ROW_COLUMN] = with_rows(batch, self.n_rows).column(ROW_COLUMN)
        return pa.RecordBatch.from_pydict(columns)

    def _cast_column(self, name: str, array: pa.Array, data_type: pa.DataType) -> pa.Array:
        """Cast to the type that a column has over all streams; others than the schema's are left to the layouts."""
        own_type = stored_type(array.type)
        if own_type == data_type or kind_of(data_type) == STRING or _merged_type(data_type, own_type) != data_type:
            return array
        try:
            return to_stored(array).cast(data_type)
        except pa.ArrowException as error:
            raise EventsError(
                f"{self._where()}: a value of column {name!r}, which is {array.type}, does not fit {data_type}, its "
                f"type over all streams: {error}\nhint: cast the column to one type in all streams"
            ) from error

    def _where(self) -> str:
        """Return the name of the stream, and that of the file being read, for a message."""
        file = self.source.locate(self.n_rows)
        return f"stream {self.names[self.index].as_py()!r}" + (f": {file}" if file else "")


def by_stream(events: Mapping[str, Any], streams: tuple[str, ...]) -> dict[str, Any]:
    """Return a mapping of events after checking that its names are the streams of the query."""
    if not events:
        raise EventsError("expected a mapping from stream name to events, got an empty one")
    for name in events:
        if streams and name not in streams:
            hint = did_you_mean(str(name), streams, "streams in FROM")
            if isinstance(events[name], list | tuple) and len(streams) == 1:
                hint = "of columns, pyarrow.table makes one table of events"
            raise EventsError(f"the mapping has events of {name!r}, which is not in FROM\nhint: {hint}")
    for name in streams:
        if name not in events:
            hint = did_you_mean(name, list(map(str, events)), "streams in the mapping")
            raise EventsError(f"the mapping has no events of stream {name!r}\nhint: {hint}")
    return dict(events)
