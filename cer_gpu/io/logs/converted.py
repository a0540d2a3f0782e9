"""Converted logs: each file is read once, as records, and cached as batches from which queries read columns.

Each column of a batch has one type.  Batches are cached until the process ends: compressed, in memory up to a budget,
and beyond it in anonymous files.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from itertools import accumulate, chain
from typing import IO, Any

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.fields import retyped
from cer_gpu.errors import EventsError
from cer_gpu.io.logs.log_formats import LogFormat
from cer_gpu.io.logs.records import Record, Skipped, Value
from cer_gpu.io.source import Parts, Source
from cer_gpu.io.string_types import cast_column, first_misfit

CHUNK_RECORDS = 1 << 14
"""Maximum number of records in a batch."""
CHUNK_BYTES = 1 << 25
"""Approximate maximum size of the values of a batch, unless one record is larger."""
_SAMPLED = 8
"""One in so many records is measured for its size."""
_FIXED_BYTES = 16
"""Approximate size of a value that is not a string."""
UTC_TIME = pa.timestamp("us", "UTC")
STRINGS = pa.list_(pa.string())
_TYPES: dict[type, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    bool: pa.bool_(),
    float: pa.float64(),
    datetime: UTC_TIME,
    list: STRINGS,
}


def batches_of(records: Iterable[Record]) -> Iterator[pa.RecordBatch]:
    """Yield records as batches of at most `CHUNK_RECORDS`.

    A batch has the columns of its own records, in order of appearance.  A column has the type of its values (timestamps
    in UTC); if these have several types, or are integers beyond 64 bits, they are converted to strings.  Missing values
    are NULL.
    """
    shapes = _Shapes()
    n_bytes = 0
    for record in records:
        if not shapes.n_records % _SAMPLED:
            n_bytes += _SAMPLED * sum(map(_size_of_value, record.values()))
        shapes.add(record)
        if shapes.n_records == CHUNK_RECORDS or n_bytes >= CHUNK_BYTES:
            yield shapes.batch()
            shapes, n_bytes = _Shapes(), 0
    if shapes.n_records:
        yield shapes.batch()


def _size_of_value(value: Value) -> int:
    return len(value) if isinstance(value, str) else _FIXED_BYTES


class _Shapes:
    """Records by their column names: most logs have few such shapes, and each is converted to columns at once.

    The values of a shape are in one list, record after record: with many small containers, garbage collection would
    take as long as everything else.
    """

    def __init__(self) -> None:
        self.n_records = 0
        self._of: dict[tuple[str, ...], tuple[list[int], list[Value]]] = {}

    def add(self, record: Record) -> None:
        """Add a record."""
        names = tuple(record)
        shape = self._of.get(names)
        if shape is None:
            shape = self._of[names] = [], []
        shape[0].append(self.n_records)
        shape[1].extend(record.values())
        self.n_records += 1

    def batch(self) -> pa.RecordBatch:
        """Return the records as a batch."""
        columns: dict[str, tuple[list[list[int]], list[list[Value]]]] = {}
        for names, (rows, values) in self._of.items():
            for i, name in enumerate(names):
                of_rows, of_values = columns.setdefault(name, ([], []))
                of_rows.append(rows)
                of_values.append(values[i :: len(names)])
        nullable_arrays = {name: self._array(*parts) for name, parts in columns.items()}
        arrays: dict[str, Any] = {name: array for name, array in nullable_arrays.items() if array is not None}
        kind = pa.struct([(name, array.type) for name, array in arrays.items()])
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * self.n_records, kind))
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_arrays(list(arrays.values()), fields=list(kind)))

    def _array(self, of_rows: list[list[int]], of_values: list[list[Value]]) -> pa.Array | None:
        """Return a column, with NULL at rows without a value, or None if it has no values."""
        array = array_of_values(of_values[0] if len(of_values) == 1 else [*chain.from_iterable(of_values)])
        if array is None or len(array) == self.n_records == len(of_rows[0]):
            return array
        at = np.full(self.n_records, -1, np.int64)
        at[[*chain.from_iterable(of_rows)]] = np.arange(len(array))
        return array.take(pa.array(at, mask=at < 0))


def array_of_values(values: Sequence[Value]) -> pa.Array | None:
    """Return values as an array of their common type, or else of strings, or None if all are None."""
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if not kinds:
        return None
    if len(kinds) == 1:
        try:
            return pa.array(values, _TYPES[kinds.pop()])
        except (OverflowError, pa.ArrowInvalid):  # an integer beyond 64 bits
            return pa.array([None if value is None else str(value) for value in values], pa.string())
    strings: list[str | None] = [None] * len(values)
    for kind in kinds:
        rows = [row for row, value in enumerate(values) if type(value) is kind]
        own: Any = array_of_values([values[row] for row in rows])
        for row, text in zip(rows, strings_of(own).to_pylist(), strict=True):
            strings[row] = text
    return pa.array(strings, pa.string())


def strings_of(array: Any) -> pa.Array:
    """Return values as strings: lists as JSON, all others as Arrow formats them."""
    if pa.types.is_list(array.type):
        lists = [None if each is None else json.dumps(each, ensure_ascii=False) for each in array.to_pylist()]
        return pa.array(lists, pa.string())
    return array.cast(pa.string())


def joined_type(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Return the type of a column that has two types in its batches: string if they differ."""
    return a if a == b else pa.string()


MEMORY_BYTES = 1 << 28
"""Bytes of compressed batches in memory, over all files of the process."""
SPILL_BYTES = 1 << 30
"""Maximum size of an anonymous file before the next is begun; it is deleted with the last of its batches."""
_CODEC = "zstd"


class Budget:
    """Budget for the memory of all cached batches.

    Parameters
    ----------
    n_bytes
    evict
        Called when the budget is exhausted; returns True if it evicted something.
    """

    def __init__(self, n_bytes: int, evict: Callable[[], bool] = lambda: False) -> None:
        self.n_bytes: int = n_bytes
        self.evict: Callable[[], bool] = evict
        self.n_used: int = 0
        self._changing = threading.RLock()  # a batch may be evicted while another is added

    def reserve(self, n_bytes: int) -> bool:
        """Reserve bytes, and return True if they are within the budget."""
        while True:
            with self._changing:
                if self.n_used + n_bytes <= self.n_bytes:
                    self.n_used += n_bytes
                    return True
            if not self.evict():
                return False

    def release(self, n_bytes: int) -> None:
        """Release bytes that are no longer in use."""
        with self._changing:
            self.n_used -= n_bytes


class _SpillFile:
    """Anonymous file to which batches are appended; the system deletes it when the process ends, even if killed."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(prefix="cer_gpu-")  # noqa: SIM115 - closed with this object
        self.pid = os.getpid()
        self.n_bytes = 0
        self._changing = threading.Lock()
        weakref.finalize(self, self.file.close)

    def append(self, data: pa.Buffer) -> int:
        """Append data, and return their offset."""
        with self._changing:
            place = self.n_bytes
            self.file.seek(place)
            self.file.write(data)
            self.file.flush()
            self.n_bytes += data.size
            return place

    def read(self, place: int, n_bytes: int) -> bytes:
        """Return appended data."""
        if hasattr(os, "pread"):  # a forked process shares the file position
            parts, end = [], place + n_bytes
            while place < end and (part := os.pread(self.file.fileno(), end - place, place)):
                parts.append(part)
                place += len(part)
            return b"".join(parts)
        with self._changing:
            self.file.seek(place)
            return self.file.read(n_bytes)


@lru_cache(maxsize=1 << 10)
def shared_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema, the same object for equal ones: thousands of files share the columns of a few event types."""
    return schema


@dataclass(eq=False)
class CachedBatch:
    """A compressed batch in the cache.

    Attributes
    ----------
    schema : pyarrow.Schema
    n_rows : int
    n_bytes : int
        Compressed.
    """

    schema: pa.Schema
    n_rows: int
    n_bytes: int
    _load: Callable[[], pa.Buffer | bytes]

    def read(self, columns: list[str]) -> pa.RecordBatch:
        """Return the requested columns, or the first one if there are none; only these are decompressed."""
        indices = [self.schema.get_field_index(name) for name in columns or self.schema.names[:1]]
        options = pa.ipc.IpcReadOptions(included_fields=indices, use_threads=False)
        with pa.ipc.open_stream(pa.py_buffer(self._load()), options=options) as reader:
            return reader.read_next_batch()


def compressed_batch(batch: pa.RecordBatch) -> pa.Buffer:
    """Return a batch as a stream of Arrow IPC."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=_CODEC, use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


class BatchCache:
    """Cache of compressed batches, in memory or in anonymous files.

    Parameters
    ----------
    budget
        Memory budget.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget: Budget = budget
        self._spill: weakref.ref[_SpillFile] | None = None
        self._changing = threading.Lock()

    def add(self, batch: pa.RecordBatch) -> CachedBatch:
        """Compress and store a batch, for as long as the returned object lives."""
        return self.add_compressed(compressed_batch(batch), batch.schema, batch.num_rows)

    def add_compressed(self, data: pa.Buffer, schema: pa.Schema, n_rows: int) -> CachedBatch:
        """Store a batch that `compressed_batch` returned."""
        if self.budget.reserve(data.size):
            cached = CachedBatch(shared_schema(schema), n_rows, data.size, lambda: data)
            weakref.finalize(cached, self.budget.release, data.size)
            return cached
        spill, n_bytes = self._spill_file(), data.size
        place = spill.append(data)
        return CachedBatch(shared_schema(schema), n_rows, n_bytes, lambda: spill.read(place, n_bytes))

    def _spill_file(self) -> _SpillFile:
        with self._changing:
            spill = None if self._spill is None else self._spill()
            # a forked process has its own file: both would write at the same offset
            if spill is None or spill.n_bytes >= SPILL_BYTES or spill.pid != os.getpid():
                spill = _SpillFile()
                self._spill = weakref.ref(spill)
            return spill


CACHED_LOG_BYTES = 1 << 32
"""Compressed bytes of logs that stay cached after their last use, in memory and on disk."""


@dataclass(eq=False)
class ConvertedLog:
    """A log as batches.

    Attributes
    ----------
    batches : list of CachedBatch
    schema : pyarrow.Schema
        Columns of all batches; a column with several types is a string.
    skipped : Skipped
        Parts of the file that could not be read.
    """

    batches: list[CachedBatch]
    schema: pa.Schema
    skipped: Skipped

    @property
    def n_bytes(self) -> int:
        """Compressed bytes of all batches."""
        return sum(batch.n_bytes for batch in self.batches)

    def source(self, name: str, types: Mapping[str, pa.DataType] | None = None) -> Source:
        """Return the rows.

        Parameters
        ----------
        name
            Name of the file, for messages.
        types
            Types of columns in place of their own; columns that the log lacks are NULL.
        """
        schema = shared_schema(retyped(self.schema, dict(types or {})))
        begins = [0, *accumulate(batch.n_rows for batch in self.batches)]

        def read(columns: list[str], begin: int, end: int) -> Iterator[pa.RecordBatch]:
            kinds = {each: schema.field(each).type if each in schema.names else pa.null() for each in columns}
            for at in range(bisect_right(begins, begin) - 1, len(self.batches)):
                if begins[at] >= end:
                    return
                yield _with_types(self.batches[at], kinds, name, begins[at])

        return Source(
            schema,
            lambda columns: read(columns, 0, begins[-1]),
            begins[-1],
            rereadable=True,
            parts=Parts(begins, read) if self.batches else None,
            as_types=partial(self.source, name),
            notes=self.notes(name),
            is_log=True,
        )

    def notes(self, name: str) -> list[str]:
        """Return remarks on skipped parts, with the name of the file."""
        return [
            f"{name}: skipped {count:,} x {reason} (first: {self.skipped.first[reason]})"
            for reason, count in self.skipped.reasons.most_common()
        ]


def _with_types(cached: CachedBatch, kinds: Mapping[str, pa.DataType], name: str, first: int) -> pa.RecordBatch:
    """Return columns of a batch with the types that they have in the whole log."""
    own = set(cached.schema.names)
    batch = cached.read([each for each in kinds if each in own])
    if not kinds:
        return batch
    arrays = [
        _as_type(batch.column(each), kind, each, name, first) if each in own else pa.nulls(cached.n_rows, kind)
        for each, kind in kinds.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(kinds))


def _as_type(array: pa.Array, kind: pa.DataType, column: str, name: str, first: int) -> pa.Array:
    if array.type == kind:
        return array
    try:
        return strings_of(array) if is_string(kind) else cast_column(array, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        row = first_misfit(array, kind) or 0
        raise EventsError(
            f"{name}: column {column!r} is {array.type}, and read as {kind} for all files; it has "
            f"{array[row].as_py()!r} in row {first + row:,}: {error}"
        ) from None


# ---- converting ------------------------------------------------------------------------------------------------------


class LogConverter:
    """Converter of logs, with a cache.

    Parameters
    ----------
    memory_bytes
        Budget of compressed batches in memory; others go to anonymous files.
    cached_bytes
        Bytes of logs that stay cached after their last use.

    Attributes
    ----------
    batch_cache : BatchCache
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES, cached_bytes: int = CACHED_LOG_BYTES) -> None:
        self.batch_cache: BatchCache = BatchCache(Budget(memory_bytes, self._evict_one))
        self._cached_bytes = cached_bytes
        self._in_use: weakref.WeakValueDictionary[Any, ConvertedLog] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[Any, ConvertedLog] = OrderedDict()
        self._n_recent_bytes = 0
        self._changing = threading.RLock()

    def converted(self, identity: Any, format: LogFormat, opened: Callable[[], IO[bytes]]) -> ConvertedLog:
        """Return a log as batches, from the cache if it is there.

        Parameters
        ----------
        identity
            Identifies the file and its state; None if it cannot be identified, and is not cached.
        format
        opened
            Opens the decompressed file.
        """
        cached = None if identity is None else self.cached(identity)
        if cached is not None:
            return cached
        skipped = Skipped()
        with opened() as stream:
            batches = [self.batch_cache.add(batch) for batch in batches_of(format.records(stream, skipped))]
        return self.add(identity, batches, skipped)

    def cached(self, identity: Any) -> ConvertedLog | None:
        """Return a log that was converted before, or None if it is not cached."""
        with self._changing:
            if identity in self._recent:
                self._recent.move_to_end(identity)
            return self._in_use.get(identity)

    def add(self, identity: Any, batches: list[CachedBatch], skipped: Skipped) -> ConvertedLog:
        """Return a log of batches in `batch_cache`, and cache it."""
        log = ConvertedLog(batches, _schema_of(batches), skipped)
        if identity is not None:
            with self._changing:
                self._in_use[identity] = log
                before = self._recent.pop(identity, None)  # two threads may have converted one file
                self._recent[identity] = log
                self._n_recent_bytes += log.n_bytes - (0 if before is None else before.n_bytes)
                while self._n_recent_bytes > self._cached_bytes and self._evict_one():
                    pass
        return log

    def _evict_one(self) -> bool:
        """Evict the least recently used log; its memory is freed unless it is being read."""
        with self._changing:
            if not self._recent:
                return False
            self._n_recent_bytes -= self._recent.popitem(last=False)[1].n_bytes
            return True


def _schema_of(batches: Sequence[CachedBatch]) -> pa.Schema:
    kinds: dict[str, pa.DataType] = {}
    for batch in batches:
        for field in batch.schema:
            kinds[field.name] = joined_type(kinds.get(field.name, field.type), field.type)
    return shared_schema(pa.schema(list(kinds.items())))


CONVERTER = LogConverter()
"""The converter of this process."""
