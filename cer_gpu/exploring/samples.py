"""Events that are explored: all of them, and the samples over which queries are answered as one types."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.fields import array_of, attribute_type
from cer_gpu.compilation import TYPE_COLUMN, compile
from cer_gpu.editing.event_schema import EventSchema
from cer_gpu.engine.evaluation_options import Sort
from cer_gpu.errors import OptionError, did_you_mean
from cer_gpu.io.source import Source
from cer_gpu.io.sources import open_events
from cer_gpu.io.value_strings import plain_values
from cer_gpu.order.row_column import ROW_COLUMN, without_rows
from cer_gpu.report.events import ReportEvents, paths, rereadable

SAMPLE_EVENTS = 1_000_000
"""Most events of a sample."""
_MAX_LOADED_BYTES = 2 << 30
"""Most bytes of events that are batches in memory; of more, the last `SAMPLE_EVENTS` are."""
_BATCH_ROWS = 1 << 16
"""Rows of a batch, after each of which an evaluation can be stopped."""
_MAX_VALUES = 200
"""Most distinct values of a column that are completed."""


class EvaluationStopped(Exception):
    """An evaluation was stopped, by its reader or by a newer query."""


@dataclass(frozen=True)
class EventSample:
    """Events over which a query is answered.

    Attributes
    ----------
    table : pyarrow.Table or None
        The events, or None for all of them where these are not in memory.
    words : str
        Its extent, as the page says: "the last 1,000,000 of 5,000,000 events".
    n_events : int
    is_whole : bool
        True if it holds all events.
    """

    table: pa.Table | None
    words: str
    n_events: int
    is_whole: bool


class SampledEvents(ReportEvents):
    """The events of a sample, as a report reads them; reading them can be stopped.

    Parameters
    ----------
    explored
    sample
    check
        Called before each batch with the number of events read so far; it may raise `EvaluationStopped`.
    """

    def __init__(self, explored: ExploredEvents, sample: EventSample, check: Callable[[int], None]) -> None:
        self._explored = explored
        self._sample = sample
        self._check = check

    def open(self) -> Source:
        """Open the events from the beginning; positions are in reading order."""
        return without_rows(self.numbered())

    def numbered(self) -> Source:
        """Open the events with their row numbers in the input, where these differ from their positions."""
        table = self._sample.table
        if table is None:
            source = self._explored.open_all()
            return Source(source.schema, lambda names: self._checked(source.batches(names)), source.n_rows)
        return Source(
            table.schema,
            lambda names: self._checked(iter(_small_batches(table.select(_present(table, names))))),
            table.num_rows,
            rereadable=True,
            in_memory=True,
        )

    def _checked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        n_read = 0
        for batch in batches:
            self._check(n_read)
            yield batch
            n_read += batch.num_rows
        self._check(n_read)


def _present(table: pa.Table, names: Sequence[str]) -> list[str]:
    """Return the columns that are named; one at least, which tells the number of rows."""
    wanted = [name for name in dict.fromkeys(names) if name in table.column_names]
    return wanted or table.column_names[:1]


def _small_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(table.to_batches(max_chunksize=_BATCH_ROWS))


class ExploredEvents:
    """Events that are explored, with samples of them; `load` reads them once.

    Parameters
    ----------
    events
        Anything that `cer_gpu.Query.evaluate` takes, but a mapping of streams.
    type_column, time_column, time_unit, sort
        As of `cer_gpu.compile` and `cer_gpu.Query.evaluate`.
    finds_times
        Without a time column, take the only column of timestamps, and sort the events by it.

    Attributes
    ----------
    paths : list of str
    names : list of str
        Names of the files, without their folders; empty for events in memory.
    schema : pyarrow.Schema
    n_events : int
        Events read so far.
    is_loaded : bool
    notes : tuple of str
    """

    def __init__(
        self,
        events: Any,
        *,
        time_column: str | None = None,
        time_unit: str | None = None,
        sort: Sort = False,
        type_column: str | None = TYPE_COLUMN,
        finds_times: bool = True,
    ) -> None:
        self._events = rereadable(events)
        self.paths: list[str] = paths(events)
        self.names: list[str] = [os.path.basename(os.path.normpath(path)) or path for path in self.paths]
        schema = open_events(self._events).schema
        timestamps = [field.name for field in schema if pa.types.is_timestamp(field.type)]
        notes = []
        if time_column is not None and attribute_type(schema, time_column) is None:
            hint = did_you_mean(time_column, schema.names, "columns")
            raise OptionError(f"the events have no column {time_column!r}\nhint: {hint}")
        if finds_times and time_column is None and len(timestamps) == 1:
            time_column, sort = timestamps[0], True
            notes.append(f"times are those of {time_column}, the only column of timestamps, by which events are sorted")
        self.notes: tuple[str, ...] = tuple(notes)
        self.type_column: str | None = type_column
        self.time_column: str | None = time_column
        self.time_unit: str | None = time_unit
        self.sort: Sort = sort
        self._opener = compile(
            "SELECT * FROM S WHERE S", type_column=None, time_column=time_column, time_unit=time_unit
        )
        self.schema: pa.Schema = self.open_all(numbered=False).schema
        self.n_events: int = 0
        self.is_loaded: bool = False
        self._loaded: pa.Table | None = None
        self._n_dropped = 0
        self._by_key: dict[tuple[tuple[str, ...], int], EventSample | None] = {}
        self._loading = threading.Lock()

    def by_columns(self, type_column: str | None, time_column: str | None) -> ExploredEvents:
        """Return the same events with other columns of types and times; they are loaded again for other times."""
        is_same = time_column == self.time_column
        sort: Sort = self.sort if is_same else time_column is not None
        other = ExploredEvents(
            self._events,
            type_column=type_column,
            time_column=time_column,
            time_unit=self.time_unit,
            sort=sort,
            finds_times=False,
        )
        other.paths, other.names = self.paths, self.names
        if is_same and self.is_loaded:
            other._loaded, other._n_dropped, other.n_events = self._loaded, self._n_dropped, self.n_events
            other.is_loaded = True
        return other

    def open_all(self, *, numbered: bool = True) -> Source:
        """Open all events, in the order of time if they are sorted."""
        source = self._opener._open_source(self._events, sort=self.sort)
        return source if numbered else without_rows(source)

    def load(self, check: Callable[[int], None] = lambda n: None) -> None:
        """Read the events into memory, or count them and keep the last ones where they are too many.

        Parameters
        ----------
        check
            Called with the number of events read so far; it may raise `EvaluationStopped`.
        """
        with self._loading:
            if not self.is_loaded:
                self._read_all(check)

    def _read_all(self, check: Callable[[int], None]) -> None:
        self.n_events = 0
        source = self.open_all()
        batches, n_bytes, n_rows, is_cut = deque[pa.RecordBatch](), 0, 0, False
        for batch in source.batches(source.schema.names):
            check(self.n_events)
            batch = batch.select(source.schema.names)
            batches.append(batch)
            self.n_events += batch.num_rows
            n_rows += batch.num_rows
            n_bytes += batch.nbytes
            is_cut = is_cut or n_bytes > _MAX_LOADED_BYTES
            while is_cut and n_rows - batches[0].num_rows >= SAMPLE_EVENTS:
                n_rows -= batches.popleft().num_rows
        table = _as_table(list(batches), source.schema)
        if is_cut:
            table = table.slice(max(0, n_rows - SAMPLE_EVENTS))
        self._n_dropped = self.n_events - table.num_rows
        if self._n_dropped and ROW_COLUMN not in table.column_names:
            rows = pa.array(np.arange(self._n_dropped, self.n_events, dtype=np.int64))
            table = table.append_column(pa.field(ROW_COLUMN, pa.int64()), rows)
        self._loaded = _encoded(table)
        self.is_loaded = True

    def whole(self) -> EventSample:
        """Return all events."""
        words = f"all {self.n_events:,} events"
        return EventSample(None if self._n_dropped else self._loaded, words, self.n_events, True)

    def last(self, n: int) -> EventSample:
        """Return the last `n` events, or all if there are no more."""
        assert self._loaded is not None
        table = self._loaded
        if n >= self.n_events and not self._n_dropped:
            return self.whole()
        first = max(0, table.num_rows - n)
        words = f"the last {table.num_rows - first:,} of {self.n_events:,} events"
        shown = table.slice(first)
        if ROW_COLUMN not in table.column_names:
            rows = pa.array(np.arange(first, table.num_rows, dtype=np.int64))
            shown = shown.append_column(pa.field(ROW_COLUMN, pa.int64()), rows)
        return EventSample(shown, words, shown.num_rows, False)

    def of_keys(self, keys: tuple[str, ...], n: int) -> EventSample | None:
        """Return all events of some keys, about `n` of them, or None if there is no such column, or one key has more.

        Keys are drawn at random, always the same ones.
        """
        if (keys, n) not in self._by_key:
            if len(self._by_key) > 8:
                self._by_key.clear()
            self._by_key[keys, n] = self._draw_keys(keys, n)
        return self._by_key[keys, n]

    def _draw_keys(self, keys: tuple[str, ...], n: int) -> EventSample | None:
        table = self._loaded
        if table is None or self._n_dropped or n >= self.n_events or not keys:
            return None
        if any(attribute_type(table.schema, key) is None for key in keys):
            return None
        codes, n_keys = _codes_of(table, keys)
        counts = np.bincount(codes[codes >= 0], minlength=n_keys)
        order = np.random.default_rng(0).permutation(n_keys)
        n_drawn = int(np.searchsorted(np.cumsum(counts[order]), n, side="right"))
        if not n_drawn:
            return None
        is_drawn = np.zeros(n_keys + 1, np.bool_)
        is_drawn[order[:n_drawn]] = True
        rows = np.flatnonzero(is_drawn[codes])
        taken = table.take(pa.array(rows))
        if ROW_COLUMN not in table.column_names:
            taken = taken.append_column(pa.field(ROW_COLUMN, pa.int64()), pa.array(rows))
        words = f"{n_drawn:,} of {n_keys:,} keys with all of their {len(rows):,} events"
        return EventSample(taken.combine_chunks(), words, len(rows), False)

    def help(self) -> EventSchema:
        """Return columns, types and values, for completions."""
        if self._loaded is None:
            return EventSchema(self.schema)
        table = self._loaded.slice(max(0, self._loaded.num_rows - SAMPLE_EVENTS))
        values: dict[str, tuple[str, ...]] = {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            if is_string(kind):
                values[name] = _frequent(column)
        return EventSchema(self.schema, values.get(self.type_column or "", ()), values)


def _as_table(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return batches, whose columns may be of other types than in the schema and in one another, as a table."""
    columns = []
    for field in schema:
        chunks = [batch.column(field.name) for batch in batches]
        if len({chunk.type for chunk in chunks}) > 1:
            chunks = [plain_values(chunk).cast(field.type) for chunk in chunks]
        columns.append(pa.chunked_array(chunks, None if chunks else field.type))
    return pa.Table.from_arrays(columns, schema.names)


def _frequent(column: pa.ChunkedArray) -> tuple[str, ...]:
    """Return the distinct strings of a column, the most frequent first, at most `_MAX_VALUES`."""
    counted = column.value_counts()
    counts = counted.field("counts").to_numpy()
    order = np.argsort(-counts, kind="stable")[: _MAX_VALUES + 1]
    values = plain_values(counted.field("values").take(pa.array(order))).to_pylist()
    return tuple(value for value in values if value is not None)[:_MAX_VALUES]


def _encoded(table: pa.Table) -> pa.Table:
    """Return a table in one chunk for each column, with strings that repeat as dictionaries, which are read faster."""
    for i, field in enumerate(table.schema):
        column = table.column(i)
        if is_string(field.type) and len(column):
            head = column.slice(0, 100_000)
            if head.combine_chunks().nbytes and pc.count_distinct(head).as_py() * 4 <= len(head):
                table = table.set_column(i, field.name, column.dictionary_encode())
    return table.unify_dictionaries().combine_chunks()


def _codes_of(table: pa.Table, keys: Sequence[str]) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
    """Return the number of the key of each event, -1 where a part of it is NULL, and the number of keys."""
    codes = np.zeros(table.num_rows, np.int64)
    is_null = np.zeros(table.num_rows, np.bool_)
    for key in keys:
        batch = table.combine_chunks().to_batches()[0]
        column = plain_values(array_of(batch, key)) if key not in table.column_names else batch.column(key)
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        own = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        is_null |= own < 0
        codes = codes * (len(encoded.dictionary) + 1) + own + 1
    codes[is_null] = -1
    distinct, codes_of = np.unique(codes, return_inverse=True)
    n_null = int(len(distinct) > 0 and distinct[0] < 0)
    return codes_of - n_null, len(distinct) - n_null
