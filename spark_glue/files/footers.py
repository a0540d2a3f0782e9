"""Facts of stored files from their footers: row groups, and bounds of the columns that order and tell types.

No data pages are read, except of the order column where a file has no statistics of it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cer_gpu.errors import EventsError
from spark_glue.files.casting import in_unit, orders, readable
from spark_glue.files.folders import bucket_of, folder_values
from spark_glue.files.opening import Opener, reading
from spark_glue.files.stored_events import DirectReadError, File, FoundFiles, Group, Scan

THREADS = 16
"""Largest number of footers read at once: most of the time of one is spent waiting for its store."""

Bounds = tuple[int | None, int | None, int]
"""Least and greatest value of the order column, and number of NULLs."""

_Survey = Callable[[list[tuple[str, int]]], Sequence[Bounds]]

_CODECS = {
    "UNCOMPRESSED",
    *(name for name in ("SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD") if pa.Codec.is_available(name)),
}
_VERSION = b"org.apache.spark.version"
_LEGACY_DATES, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"


def find_footers(
    scan: Scan,
    type_column: str | None,
    order_column: str,
    *,
    columns: Sequence[str] | None = None,
    survey: _Survey | None = None,
    opener: Opener | None = None,
) -> FoundFiles:
    """Find the files of a scan, their row groups, and the bounds of their columns of order and of types.

    Parameters
    ----------
    scan
    type_column
        Column of the events that tells their types, or None.
    order_column
        First column of the order.
    columns
        Columns of the events that the query reads; by default (None) all of ``scan.schema``.
    survey
        Function that reads the bounds of the order column of row groups, given (path, number of the row group), where
        footers do not have them; if None, threads of this process read them.
    opener
        Opener of the files; by default (None) that of ``scan.options``.

    Raises
    ------
    DirectReadError
        If the order column cannot put files in order, or a file does not have the columns in types that a task can read
        as Spark does.
    EventsError
        If there is no such file.
    """
    opener = Opener(scan.options) if opener is None else opener
    footers = _Footers(scan, type_column, order_column, scan.schema.names if columns is None else columns, opener)
    with ThreadPoolExecutor(max(1, min(THREADS, len(scan.paths))), thread_name_prefix="cer_gpu footers") as pool:
        try:
            read = list(pool.map(footers.read, scan.paths))
            unknown = [(file.path, part.number) for file in read for part in file.parts if part.bounds is None]
            if not unknown:
                bounds: Sequence[Bounds] = []
            elif survey is not None:
                bounds = survey(unknown)
            else:
                bounds = list(pool.map(footers.survey, unknown))
        finally:
            pool.shutdown(cancel_futures=True)
    return _files_of_footers(scan, read, dict(zip(unknown, bounds, strict=True)))


def surveyed(opener: Opener, path: str, group: int, column: str, kind: pa.DataType) -> Bounds:
    """Read the bounds of the order column in a row group of a Parquet file, or a batch of an Arrow IPC file.

    Parameters
    ----------
    opener
    path
    group
        Number of the row group.
    column
        Name of the order column in the file.
    kind
        Type of the order column in the events.

    Returns
    -------
    (int or None, int or None, int)
        Least and greatest value in the unit of `kind`, and number of NULLs.

    Raises
    ------
    EventsError
        If the file cannot be read.
    """
    lows, highs, n_nulls = [], [], 0
    with reading(path):
        for values in _column_arrays(opener, path, group, column):
            n_nulls += values.null_count
            found = pc.min_max(_as_integers(values))
            if found["min"].is_valid:
                lows.append(in_unit(found["min"].as_py(), values.type, kind, up=False))
                highs.append(in_unit(found["max"].as_py(), values.type, kind, up=True))
    return min(lows, default=None), max(highs, default=None), n_nulls


def _column_arrays(opener: Opener, path: str, group: int, column: str) -> Any:
    """Yield the arrays of a column in a row group."""
    if opener.format(path) == "parquet":
        with opener.parquet(path) as file:
            for batch in file.iter_batches(1 << 20, row_groups=[group], columns=[column], use_threads=False):
                yield _plain_bounds(batch.column(column))
    else:
        with opener.ipc(path, [column]) as reader:
            yield _plain_bounds(reader.get_batch(group).column(column))


def _plain_bounds(values: pa.Array) -> pa.Array:
    if pa.types.is_run_end_encoded(values.type):
        values = pc.run_end_decode(values)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _as_integers(values: pa.Array) -> pa.Array:
    if pa.types.is_integer(values.type):
        return values
    return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())


def _files_of_footers(scan: Scan, read: list[_Footer], surveys: dict[tuple[str, int], Bounds]) -> FoundFiles:
    files, groups = [], []
    first = 0
    for i, footer in enumerate(read):
        n_rows = sum(part.n_rows for part in footer.parts)
        lacks = tuple(footer.lacks)
        files.append(File(footer.path, footer.size, footer.stamp, first, n_rows, footer.values, footer.bucket, lacks))
        starts = itertools.accumulate((part.n_rows for part in footer.parts), initial=0)
        for part, start in zip(footer.parts, starts, strict=False):
            low, high, n_nulls = part.bounds or surveys[footer.path, part.number]
            groups.append(Group(i, part.number, start, part.n_rows, low, high, n_nulls, part.types))
        first += n_rows
    return FoundFiles(scan, tuple(files), tuple(groups))


@dataclass(frozen=True)
class _BoundedRowGroup:
    """Row group with rows; `bounds` is None if its footer has none."""

    number: int
    n_rows: int
    bounds: Bounds | None
    types: tuple[str, str] | None


@dataclass(frozen=True)
class _Footer:
    path: str
    size: int
    stamp: int
    values: tuple[tuple[str, Any], ...]
    bucket: int | None
    parts: list[_BoundedRowGroup] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Leaves:
    """Places of the columns of order and types in Parquet files of one schema; -1: footers do not tell their bounds."""

    parquet: pq.ParquetSchema
    arrow: pa.Schema
    order: int
    stored: pa.DataType
    required: bool
    types: int
    lacks: list[str]


class _Footers:
    """Reader of footers."""

    def __init__(
        self, scan: Scan, type_column: str | None, order_column: str, columns: Sequence[str], opener: Opener
    ) -> None:
        names = scan.schema.names
        if names.count(order_column) != 1:
            raise DirectReadError(f"the stream is ordered by {order_column!r} first, which is no column at the top")
        self.order_type = scan.schema.field(order_column).type
        orders(self.order_type, order_column)
        wanted = dict.fromkeys([order_column, *columns])
        unknown = [name for name in wanted if names.count(name) != 1]
        if unknown:
            raise DirectReadError(f"no column {unknown[0]!r} (or more than one) in the events")
        self.order = scan.stored.get(order_column, order_column)
        self.type = None if type_column is None else scan.stored.get(type_column, type_column)
        by_name = {scan.stored.get(name, name): scan.schema.field(name).type for name in names}
        self.folders = {name: by_name.get(name) for name in scan.folders}
        self.wanted = {scan.stored.get(name, name): by_name[scan.stored.get(name, name)] for name in wanted}
        for name in self.folders:
            self.wanted.pop(name, None)
        self.timed = any(_has_time(kind) for kind in self.wanted.values())
        self.scan, self.opener = scan, opener
        self.leaves: _Leaves | None = None

    def read(self, path: str) -> _Footer:
        """Read the footer of a file.

        Raises
        ------
        DirectReadError
        EventsError
        """
        with _as_reasons():
            size, stamp = self.opener.stat(path)  # before the footer: a change after it will be noticed
            footer = _Footer(path, size, stamp, folder_values(path, self.folders), self._bucket(path))
            own = self._own_bounds(footer)
            with reading(path):
                parts = self._parquet(footer, own) if self.opener.format(path) == "parquet" else self._ipc(path, own)
        footer.parts.extend(part for part in parts if part.n_rows)
        return footer

    def survey(self, at: tuple[str, int]) -> Bounds:
        """Read the bounds of the order column in a row group, given its file and its number.

        Raises
        ------
        DirectReadError
        EventsError
        """
        with _as_reasons():
            return surveyed(self.opener, *at, self.order, self.order_type)

    def _bucket(self, path: str) -> int | None:
        return bucket_of(path) if self.scan.bucket_by else None

    def _own_bounds(self, footer: _Footer) -> dict[str, Any]:
        """Return the values of the columns of order and types that the folders of a file tell."""
        return {name: value for name, value in footer.values if name in (self.order, self.type)}

    # ---- Parquet -------------------------------------------------------------------------------------------------

    def _parquet(self, footer: _Footer, own: dict[str, Any]) -> list[_BoundedRowGroup]:
        path = footer.path
        with self.opener.parquet(path) as file:
            metadata = file.metadata
            leaves = self.leaves
            if leaves is None or not (
                metadata.schema.equals(leaves.parquet) and file.schema_arrow.equals(leaves.arrow)
            ):
                leaves = self.leaves = self._leaves(path, file)
            footer.lacks.extend(leaves.lacks)
            if self.timed:
                self._check_calendar(path, metadata)
            parts = []
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                n_rows = group.num_rows
                if not n_rows:
                    continue
                bounds = _folder_bounds(own[self.order], n_rows, self.order_type) if self.order in own else None
                if leaves.order >= 0:
                    column = group.column(leaves.order)
                    bounds = self._order_bounds(column, n_rows, leaves)
                    _check_codec(path, column.compression)
                types = _told_types(own, self.type)
                if leaves.types >= 0:
                    types = _string_bounds(group.column(leaves.types))
                parts.append(_BoundedRowGroup(number, n_rows, bounds, types))
            return parts

    def _leaves(self, path: str, file: pq.ParquetFile) -> _Leaves:
        """Check the columns of a file, and find those of order and types.

        Raises
        ------
        DirectReadError
        """
        schema, arrow = file.schema, file.schema_arrow
        columns = [schema.column(i) for i in range(len(schema))]
        tops = {column.name: i for i, column in enumerate(columns) if column.path == column.name}
        old = [column.path for column in columns if column.physical_type == "INT96"]
        lacks = []
        for name, kind in self.wanted.items():
            if self._lacks(arrow, name):
                lacks.append(name)
                continue
            nested = [each for each in old if each.startswith(name + ".") and each not in tops]
            if nested:
                raise DirectReadError(f"{path}: field {nested[0]!r} is INT96")
            self._check_column(path, arrow, name, kind, int96=name in old)
        order, types, required = -1, -1, False
        stored = self.order_type
        if self.order in self.wanted:
            stored = arrow.field(self.order).type
            leaf = columns[tops[self.order]]
            required = leaf.max_definition_level == 0
            order = -1 if leaf.physical_type == "INT96" else tops[self.order]
        if self.type in tops and self.type not in self.folders:
            kind = arrow.field(self.type).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
            types = tops[self.type] if text else -1
        return _Leaves(schema, arrow, order, stored, required, types, lacks)

    def _lacks(self, schema: pa.Schema, name: str) -> bool:
        """Return True if a file has not a column, in any case of its letters, and may lack it."""
        read = name == self.order or name in self.scan.filter_columns.names
        return self.scan.null_if_lacking and not read and name.lower() not in map(str.lower, schema.names)

    def _check_column(self, path: str, schema: pa.Schema, name: str, kind: pa.DataType, *, int96: bool = False) -> None:
        """Raise DirectReadError unless a file has a column that a task can read as Spark does."""
        n = schema.names.count(name)
        if n != 1:
            other = next((each for each in schema.names if each.lower() == name.lower()), None)
            also = "" if n or other is None else f", but {other!r}"
            raise DirectReadError(f"{path}: {'no' if not n else 'more than one'} column {name!r}{also}")
        reason = readable(schema.field(name).type, kind, int96=int96)
        if reason is not None:
            raise DirectReadError(f"{path}: column {name!r} is {reason}")

    def _check_calendar(self, path: str, metadata: pq.FileMetaData) -> None:
        """Raise DirectReadError if times of a file may be of the calendar that Spark 2 wrote."""
        notes = metadata.metadata or {}
        old = [key for key in (_LEGACY_DATES, _LEGACY_INT96) if key in notes]
        version = notes.get(_VERSION, b"").decode(errors="replace")
        if old or version.startswith(("0.", "1.", "2.", "3.0.")):
            why = old[0].decode() if old else f"Spark {version}"
            raise DirectReadError(f"{path}: dates and timestamps may be of the hybrid calendar ({why})")

    def _order_bounds(self, column: pq.ColumnChunkMetaData, n_rows: int, leaves: _Leaves) -> Bounds | None:
        """Return the bounds of the order column by its statistics, or None if they have none."""
        statistics = column.statistics
        if statistics is None:
            return None
        n_nulls = statistics.null_count if statistics.has_null_count else 0 if leaves.required else None
        if n_nulls is None:
            return None
        if n_nulls == n_rows:
            return None, None, n_nulls
        if not statistics.has_min_max:
            return None
        low, high = statistics.min_raw, statistics.max_raw
        stored = leaves.stored
        if pa.types.is_unsigned_integer(stored):
            low, high = low & 0xFFFFFFFF, high & 0xFFFFFFFF
        if low > high:
            return None  # a writer that compared otherwise
        # Parquet has days where Arrow may have milliseconds
        stored = pa.date32() if pa.types.is_date64(stored) else stored
        return in_unit(low, stored, self.order_type, up=False), in_unit(high, stored, self.order_type, up=True), n_nulls

    # ---- Arrow IPC -----------------------------------------------------------------------------------------------

    def _ipc(self, path: str, own: dict[str, Any]) -> list[_BoundedRowGroup]:
        with self.opener.ipc(path) as reader:
            schema = reader.schema
        for name, kind in self.wanted.items():
            self._check_column(path, schema, name, kind)
        if not schema.names:
            return []
        counted = self.order if self.order in self.wanted else next(iter(self.wanted), None)
        with self.opener.ipc(path, None if counted is None else [counted]) as reader:
            sizes = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
        told = self.order in own
        return [
            _BoundedRowGroup(
                number,
                n_rows,
                _folder_bounds(own[self.order], n_rows, self.order_type) if told else None,
                _told_types(own, self.type),
            )
            for number, n_rows in enumerate(sizes)
        ]


def _check_codec(path: str, name: str) -> None:
    """Raise DirectReadError if this pyarrow cannot decompress a column."""
    if name.split("_")[0] not in _CODECS:
        raise DirectReadError(f"{path}: compressed by {name}, which this pyarrow does not read")


@contextlib.contextmanager
def _as_reasons() -> Iterator[None]:
    """Raise an error of reading as a `DirectReadError`, unless there is no such file: Spark may know a way."""
    try:
        yield
    except EventsError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise
        raise DirectReadError(str(error)) from error


def _has_time(kind: pa.DataType) -> bool:
    """Return True if values of a type, or of a part of it, are dates or timestamps."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return True
    return any(_has_time(kind.field(i).type) for i in range(kind.num_fields))


def _folder_bounds(value: Any, n_rows: int, kind: pa.DataType) -> Bounds:
    """Return the bounds of the order column in a file whose folders tell its value."""
    if value is None:
        return None, None, n_rows
    number = _as_integers(pa.array([value], kind))[0].as_py()
    return number, number, 0


def _told_types(own: dict[str, Any], name: str | None) -> tuple[str, str] | None:
    value = own.get(name) if name is not None else None
    return (value, value) if isinstance(value, str) else None


def _string_bounds(column: pq.ColumnChunkMetaData) -> tuple[str, str] | None:
    """Return the bounds of a column of strings by its statistics, or None."""
    statistics = column.statistics
    if statistics is None or not statistics.has_min_max:
        return None
    low, high = statistics.min_raw, statistics.max_raw
    try:
        # a writer may cut long values
        return (low, high) if isinstance(low, str) else (low.decode(), high.decode())
    except UnicodeDecodeError:
        return None
