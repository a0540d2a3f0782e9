"""Formats of stored files that tasks read by themselves: the row groups of a file, their bounds and their rows.

A new format is a class here, in `STORED_FORMATS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cer_gpu.io.formats import endings_of
from spark_glue.files.casting import in_unit, readable
from spark_glue.files.stored_events import DirectReadError, Scan

Bounds = tuple[int | None, int | None, int]
"""Least and greatest value of the order column, and number of NULLs."""

_CODECS = {
    "UNCOMPRESSED",
    *(name for name in ("SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD") if pa.Codec.is_available(name)),
}
_VERSION = b"org.apache.spark.version"
_LEGACY_DATES, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"


class OpensFiles(Protocol):
    """Way to open stored files (`spark_glue.files.opening.Opener`)."""

    def parquet(self, path: str, **options: Any) -> pq.ParquetFile:
        """Open a Parquet file."""

    def ipc(self, path: str, columns: Iterable[str] | None = None) -> pa.ipc.RecordBatchFileReader:
        """Open an Arrow IPC file."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """Facts of a row group by the footer of its file.

    Attributes
    ----------
    number, n_rows : int
    bounds : Bounds or None
        Bounds of the order column, or None if the footer lacks them.
    types : tuple of (str, str) or None
        Bounds of the column of types, or None if they are not known.
    """

    number: int
    n_rows: int
    bounds: Bounds | None
    types: tuple[str, str] | None


@dataclass(frozen=True)
class ScanColumns:
    """Columns of a scan that are read of files, by their names in these.

    Attributes
    ----------
    scan : Scan
    order : str
        First column of the order.
    order_type : pyarrow.DataType
        Its type in the events.
    type : str or None
        Column of types.
    stored : dict from str to pyarrow.DataType
        All columns that are read of the files themselves, with their types in the events.
    """

    scan: Scan
    order: str
    order_type: pa.DataType
    type: str | None
    stored: Mapping[str, pa.DataType]

    @property
    def are_timed(self) -> bool:
        """True if some have dates or timestamps."""
        return any(_has_time(kind) for kind in self.stored.values())

    def bounds_by_folder(
        self, of_folders: Mapping[str, Any], n_rows: int
    ) -> tuple[Bounds | None, tuple[str, str] | None]:
        """Return the bounds of the columns of order and types encoded in the folders of a file, or None for others.

        Parameters
        ----------
        of_folders
            Values of the columns encoded in folders.
        n_rows
        """
        bounds = None
        if self.order in of_folders:
            bounds = _bounds_of_value(of_folders[self.order], n_rows, self.order_type)
        value = None if self.type is None else of_folders.get(self.type)
        return bounds, (value, value) if isinstance(value, str) else None

    def may_lack(self, schema: pa.Schema, name: str) -> bool:
        """Return True if a file does not have a column, in any case of its letters, and need not."""
        read = name == self.order or name in self.scan.filter_columns.names
        return self.scan.null_if_lacking and not read and name.lower() not in map(str.lower, schema.names)

    def check(self, path: str, schema: pa.Schema, name: str, kind: pa.DataType, *, int96: bool = False) -> None:
        """Raise DirectReadError unless a file has a column that a task can read as Spark does."""
        n = schema.names.count(name)
        if n != 1:
            other = next((each for each in schema.names if each.lower() == name.lower()), None)
            also = "" if n or other is None else f", but {other!r}"
            raise DirectReadError(f"{path}: {'no' if not n else 'more than one'} column {name!r}{also}")
        reason = readable(schema.field(name).type, kind, int96=int96)
        if reason is not None:
            raise DirectReadError(f"{path}: column {name!r} is {reason}")


class FooterReader(ABC):
    """Reader of the footers of files of a format.

    Parameters
    ----------
    opener
    columns
    """

    def __init__(self, opener: OpensFiles, columns: ScanColumns) -> None:
        self._opener, self._columns = opener, columns

    @abstractmethod
    def read(self, path: str, of_folders: Mapping[str, Any]) -> tuple[list[GroupFacts], list[str]]:
        """Return the row groups of a file, and the columns that it lacks.

        Parameters
        ----------
        path
        of_folders
            Values of the columns encoded in its folders.

        Raises
        ------
        DirectReadError
            When the file does not have the columns in types that a task can read as Spark does.
        """


class OpenGroups(ABC):
    """Open file, whose row groups are read."""

    @abstractmethod
    def batches(self, number: int, columns: Sequence[str], max_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group, with at least the columns and fields named, as they are stored."""

    def bytes_of_row(self, number: int, columns: Sequence[str]) -> float:
        """Return the mean number of bytes that the columns of a row of a row group take, or 0 if it is not known."""
        return 0.0

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


class StoredFormat(ABC):
    """A format of stored files.

    Attributes
    ----------
    title : str
        Its name in messages, with its article.
    endings : tuple of str
        Endings of the names of its files.
    magic : bytes
        First bytes of its files.
    footers : type of FooterReader
    """

    title: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    magic: ClassVar[bytes]
    footers: ClassVar[type[FooterReader]]

    @abstractmethod
    def schema(self, opener: OpensFiles, path: str) -> pa.Schema:
        """Return the schema of a file."""

    @abstractmethod
    def values(self, opener: OpensFiles, path: str, number: int, column: str) -> Iterator[pa.Array]:
        """Yield the values of a column in a row group, without a dictionary."""

    @abstractmethod
    def open(self, opener: OpensFiles, path: str, columns: Sequence[str], strings: Iterable[str]) -> OpenGroups:
        """Open a file to read columns at the top; `strings` are those that may come with a dictionary."""


# ---- Parquet ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Leaves:
    """Indices of the columns of order and types in Parquet files of one schema; -1 if footers lack their bounds."""

    parquet: pq.ParquetSchema
    arrow: pa.Schema
    order: int
    stored: pa.DataType
    required: bool
    types: int
    lacks: list[str]


class _ParquetFooters(FooterReader):
    def __init__(self, opener: OpensFiles, columns: ScanColumns) -> None:
        super().__init__(opener, columns)
        self._leaves: _Leaves | None = None

    def read(self, path: str, of_folders: Mapping[str, Any]) -> tuple[list[GroupFacts], list[str]]:
        """See `FooterReader`."""
        columns = self._columns
        with self._opener.parquet(path) as file:
            metadata, leaves = file.metadata, self._leaves
            if leaves is None or not (
                metadata.schema.equals(leaves.parquet) and file.schema_arrow.equals(leaves.arrow)
            ):
                leaves = self._leaves = self._find_leaves(path, file)
            if columns.are_timed:
                _check_calendar(path, metadata)
            groups = []
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                n_rows = group.num_rows
                if not n_rows:
                    continue
                bounds, types = columns.bounds_by_folder(of_folders, n_rows)
                if leaves.order >= 0:
                    column = group.column(leaves.order)
                    bounds = _bounds_of_column(column, n_rows, leaves, columns.order_type)
                    _check_codec(path, column.compression)
                if leaves.types >= 0:
                    types = _bounds_of_types(group.column(leaves.types))
                groups.append(GroupFacts(number, n_rows, bounds, types))
            return groups, leaves.lacks

    def _find_leaves(self, path: str, file: pq.ParquetFile) -> _Leaves:
        """Check the columns of a file, and find the columns of order and types.

        Raises
        ------
        DirectReadError
        """
        columns, schema, arrow = self._columns, file.schema, file.schema_arrow
        stored_columns = [schema.column(i) for i in range(len(schema))]
        tops = {column.name: i for i, column in enumerate(stored_columns) if column.path == column.name}
        old = [column.path for column in stored_columns if column.physical_type == "INT96"]
        lacks = []
        for name, kind in columns.stored.items():
            if columns.may_lack(arrow, name):
                lacks.append(name)
                continue
            nested = [each for each in old if each.startswith(name + ".") and each not in tops]
            if nested:
                raise DirectReadError(f"{path}: field {nested[0]!r} is INT96")
            columns.check(path, arrow, name, kind, int96=name in old)
        order, types, required = -1, -1, False
        stored = columns.order_type
        if columns.order in columns.stored:
            stored = arrow.field(columns.order).type
            leaf = stored_columns[tops[columns.order]]
            required = leaf.max_definition_level == 0
            order = -1 if leaf.physical_type == "INT96" else tops[columns.order]
        if columns.type in tops and columns.type not in columns.scan.folders:
            kind = arrow.field(columns.type).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
            types = tops[columns.type] if text else -1
        return _Leaves(schema, arrow, order, stored, required, types, lacks)


class _ParquetGroups(OpenGroups):
    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file

    def batches(self, number: int, columns: Sequence[str], max_rows: int) -> Iterator[pa.RecordBatch]:
        """See `OpenGroups`."""
        names = list(columns) or self._file.schema_arrow.names[:1]
        yield from self._file.iter_batches(max_rows, row_groups=[number], columns=names, use_threads=False)

    def bytes_of_row(self, number: int, columns: Sequence[str]) -> float:
        """See `OpenGroups`."""
        group, read = self._file.metadata.row_group(number), set(columns)
        chunks = (group.column(i) for i in range(group.num_columns))
        stored = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in read)
        return float(stored / group.num_rows)

    def close(self) -> None:
        """Close the file."""
        self._file.close(force=True)


class ParquetFormat(StoredFormat):
    """Parquet."""

    title = "a Parquet"
    endings: ClassVar[tuple[str, ...]] = endings_of("Parquet")
    magic = b"PAR1"
    footers: ClassVar[type[FooterReader]] = _ParquetFooters

    def schema(self, opener: OpensFiles, path: str) -> pa.Schema:
        """Return the schema of a file, with timestamps of INT96 in UTC, as Spark has them."""
        with opener.parquet(path) as file:
            schema, stored = file.schema_arrow, file.schema
        old = {stored.column(i).path for i in range(len(stored)) if stored.column(i).physical_type == "INT96"}
        return pa.schema([f.with_type(pa.timestamp("us", "UTC")) if f.name in old else f for f in schema])

    def values(self, opener: OpensFiles, path: str, number: int, column: str) -> Iterator[pa.Array]:
        """See `StoredFormat`."""
        with opener.parquet(path) as file:
            for batch in file.iter_batches(1 << 20, row_groups=[number], columns=[column], use_threads=False):
                yield _decoded_values(batch.column(column))

    def open(self, opener: OpensFiles, path: str, columns: Sequence[str], strings: Iterable[str]) -> OpenGroups:
        """See `StoredFormat`."""
        return _ParquetGroups(opener.parquet(path, read_dictionary=sorted(strings)))


def _check_calendar(path: str, metadata: pq.FileMetaData) -> None:
    """Raise DirectReadError if times of a file may be of the calendar that Spark 2 wrote."""
    notes = metadata.metadata or {}
    old = [key for key in (_LEGACY_DATES, _LEGACY_INT96) if key in notes]
    version = notes.get(_VERSION, b"").decode(errors="replace")
    if old or version.startswith(("0.", "1.", "2.", "3.0.")):
        why = old[0].decode() if old else f"Spark {version}"
        raise DirectReadError(f"{path}: dates and timestamps may be of the hybrid calendar ({why})")


def _bounds_of_column(column: pq.ColumnChunkMetaData, n_rows: int, leaves: _Leaves, kind: pa.DataType) -> Bounds | None:
    """Return the bounds of the order column by its statistics, or None if they lack them."""
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
    return in_unit(low, stored, kind, up=False), in_unit(high, stored, kind, up=True), n_nulls


def _check_codec(path: str, name: str) -> None:
    """Raise DirectReadError if this pyarrow cannot decompress a column."""
    if name.split("_")[0] not in _CODECS:
        raise DirectReadError(f"{path}: compressed by {name}, which this pyarrow does not read")


def _bounds_of_types(column: pq.ColumnChunkMetaData) -> tuple[str, str] | None:
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


# ---- Arrow IPC -------------------------------------------------------------------------------------------------------


class _IpcFooters(FooterReader):
    def read(self, path: str, of_folders: Mapping[str, Any]) -> tuple[list[GroupFacts], list[str]]:
        """See `FooterReader`."""
        columns = self._columns
        with self._opener.ipc(path) as reader:
            schema = reader.schema
        for name, kind in columns.stored.items():
            columns.check(path, schema, name, kind)
        if not schema.names:
            return [], []
        counted = columns.order if columns.order in columns.stored else next(iter(columns.stored), None)
        with self._opener.ipc(path, None if counted is None else [counted]) as reader:
            sizes = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
        groups = [
            GroupFacts(i, n_rows, *columns.bounds_by_folder(of_folders, n_rows))
            for i, n_rows in enumerate(sizes)
            if n_rows
        ]
        return groups, []


class _IpcGroups(OpenGroups):
    def __init__(self, reader: pa.ipc.RecordBatchFileReader) -> None:
        self._reader = reader

    def batches(self, number: int, columns: Sequence[str], max_rows: int) -> Iterator[pa.RecordBatch]:
        """See `OpenGroups`; the columns are the whole file's."""
        batch = self._reader.get_batch(number)
        for begin in range(0, batch.num_rows, max_rows):
            yield batch.slice(begin, max_rows)

    def close(self) -> None:
        """Leave the file open for its last batch, which may be mapped from it."""


class IpcFormat(StoredFormat):
    """Arrow IPC with a footer: a stream (``.arrows``) has none, and cannot be split."""

    title = "an Arrow IPC"
    endings: ClassVar[tuple[str, ...]] = tuple(ending for ending in endings_of("Arrow IPC") if ending != ".arrows")
    magic = b"ARROW1"
    footers: ClassVar[type[FooterReader]] = _IpcFooters

    def schema(self, opener: OpensFiles, path: str) -> pa.Schema:
        """See `StoredFormat`."""
        with opener.ipc(path) as reader:
            return reader.schema

    def values(self, opener: OpensFiles, path: str, number: int, column: str) -> Iterator[pa.Array]:
        """See `StoredFormat`."""
        with opener.ipc(path, [column]) as reader:
            yield _decoded_values(reader.get_batch(number).column(column))

    def open(self, opener: OpensFiles, path: str, columns: Sequence[str], strings: Iterable[str]) -> OpenGroups:
        """See `StoredFormat`."""
        return _IpcGroups(opener.ipc(path, dict.fromkeys(columns) or self.schema(opener, path).names[:1]))


PARQUET, IPC = ParquetFormat(), IpcFormat()
STORED_FORMATS: tuple[StoredFormat, ...] = (PARQUET, IPC)


def named_format(path: str) -> StoredFormat | None:
    """Return the format by the name of a file, or None."""
    name = path.lower()
    return next((format for format in STORED_FORMATS if name.endswith(format.endings)), None)


# ---- values ----------------------------------------------------------------------------------------------------------


def _decoded_values(values: pa.Array) -> pa.Array:
    if pa.types.is_run_end_encoded(values.type):
        values = pc.run_end_decode(values)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def as_integers(values: pa.Array) -> pa.Array:
    """Return integers, or times as the integers that they are."""
    if pa.types.is_integer(values.type):
        return values
    return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())


def _has_time(kind: pa.DataType) -> bool:
    """Return True if values of a type, or of a part of it, are dates or timestamps."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return True
    return any(_has_time(kind.field(i).type) for i in range(kind.num_fields))


def _bounds_of_value(value: Any, n_rows: int, kind: pa.DataType) -> Bounds:
    """Return the bounds of the order column in a file whose folders encode its value."""
    if value is None:
        return None, None, n_rows
    number = as_integers(pa.array([value], kind))[0].as_py()
    return number, number, 0
