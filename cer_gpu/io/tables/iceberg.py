"""Snapshots of Iceberg tables, read by `pyiceberg`: columns by field id, with deletes and partition values."""

from __future__ import annotations

import logging
import struct
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from cer_gpu.columnar.columns import is_string
from cer_gpu.errors import CerError, EventsError, did_you_mean
from cer_gpu.io.source import ColumnBounds
from cer_gpu.io.stores import Address
from cer_gpu.io.tables.names import TableName, natural, package_of, parse_timestamp
from cer_gpu.io.tables.table import DataFile, PlainFile, PlainFiles, TableSnapshot, conformed, reading_file


@contextmanager
def wrapping_iceberg_errors(name: str, done: str = "read") -> Iterator[None]:
    """Turn errors of `pyiceberg` into EventsError: the table cannot be "read" or "written"."""
    exceptions = package_of("iceberg", "exceptions")
    try:
        yield
    except (
        exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError, exceptions.NoSuchIcebergTableError,
    ) as error:  # fmt: skip
        raise EventsError(f"{name}: there is no such table of Iceberg: {error}") from error
    except CerError:
        raise
    except (pa.ArrowException, OSError, ValueError, NotImplementedError) as error:
        raise EventsError(f"{name}: cannot be {done} as a table of Iceberg: {error}") from error
    except Exception as error:
        if not _is_of_library(error):
            raise
        kind = "" if type(error).__module__.startswith("pyiceberg.") else f"{type(error).__name__}: "
        raise EventsError(f"{name}: cannot be {done} as a table of Iceberg: {kind}{error}") from error


def _is_of_library(error: Exception) -> bool:
    """Return True if an error was raised by or within `pyiceberg`: damaged metadata can raise any kind."""
    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [type(error).__module__, *frames]
    return any(name.startswith(("pyiceberg.", "sqlalchemy.")) for name in names)


def catalogue_of(table_name: TableName) -> tuple[Any, str]:
    """Return the catalogue of a table, from the configuration of `pyiceberg`, and the name of the table in it.

    Raises
    ------
    EventsError
        When the name has fewer than two parts, or there is no such catalogue.
    """
    first, dot, rest = table_name.place.partition(".")
    if not dot:
        raise EventsError(f"{table_name}: expected iceberg:CATALOG.NAMESPACE.TABLE, or iceberg:NAMESPACE.TABLE")
    settings = package_of("iceberg", "utils.config").Config()  # from the current environment
    names = settings.get_known_catalogs()
    if first not in names:
        if "." in rest or "default" not in names:
            no_default = "" if "." in rest else f", nor 'default' for the namespace {first!r}"
            raise EventsError(
                f"{table_name}: there is no catalogue {first!r}{no_default} in the configuration of pyiceberg\n"
                f"hint: {did_you_mean(first, names, 'catalogues') or 'it has none'}; "
                f"~/.pyiceberg.yaml, or PYICEBERG_CATALOG__{first.upper()}__URI"
            )
        first, rest = "default", table_name.place
    elif "." not in rest:
        raise EventsError(f"{table_name}: expected a namespace, too: iceberg:{first}.NAMESPACE.{rest}")
    with wrapping_iceberg_errors(str(table_name)):
        return package_of("iceberg", "catalog").load_catalog(first, **settings.get_catalog_config(first)), rest


class IcebergSnapshot(TableSnapshot):
    """A snapshot of a table of Iceberg."""

    def __init__(self, table_name: TableName) -> None:
        self.name: str = str(table_name)
        if "/" in table_name.place:
            with wrapping_iceberg_errors(self.name):
                self._table = package_of("iceberg", "table").StaticTable.from_metadata(table_name.place)
        else:
            catalogue, name = catalogue_of(table_name)
            with wrapping_iceberg_errors(self.name):
                try:
                    self._table = catalogue.load_table(name)
                except package_of("iceberg", "exceptions").NoSuchTableError as error:
                    beside = _tables_beside(catalogue, name)
                    hint = did_you_mean(name.rpartition(".")[2], beside, "tables in its namespace")
                    hint_line = f"\nhint: {hint}" if hint else ""
                    raise EventsError(f"{self.name}: there is no such table of Iceberg: {error}{hint_line}") from error
        with wrapping_iceberg_errors(self.name):
            snapshot = (
                self._table.current_snapshot()
                if table_name.snapshot is None
                else self._snapshot_named(table_name.snapshot)
            )
        self._snapshot = snapshot
        self.table_id: str = str(self._table.metadata.table_uuid)
        self.version: str = "" if snapshot is None else str(snapshot.snapshot_id)
        metadata = _path_of(self._table.metadata_location)  # its newest snapshot never changes
        pinned = table_name.snapshot if metadata is not None and table_name.snapshot is None else self.version
        self.pinned: TableName = TableName(table_name.kind, metadata or table_name.place, pinned)
        # the newest snapshot is read by the newest schema, which may have changed since; others by their own
        snapshot_id = None if table_name.snapshot is None else snapshot.snapshot_id
        with wrapping_iceberg_errors(self.name):
            self._scan = self._table.scan(snapshot_id=snapshot_id)
            self._fields = self._scan.projection()
            read_schema = package_of("iceberg", "io.pyarrow").schema_to_pyarrow(self._fields, include_field_ids=False)
        self.schema: pa.Schema = pa.schema(
            [field.with_type(_without_large_offsets(field.type)) for field in read_schema]
        )

    def _snapshot_named(self, text: str) -> Any:
        """Return the snapshot with an id, of a branch or tag, or as of a timestamp."""
        snapshot = self._table.snapshot_by_id(int(text)) if text.isdecimal() else self._table.snapshot_by_name(text)
        timestamp = parse_timestamp(text)
        if snapshot is None and timestamp is not None:
            snapshot = self._table.snapshot_as_of_timestamp(int(timestamp.timestamp() * 1000))
        if snapshot is None:
            snapshots = self._table.snapshots()
            if timestamp is not None and snapshots:
                first = datetime.fromtimestamp(min(each.timestamp_ms for each in snapshots) / 1000, UTC)
                raise EventsError(
                    f"{self.name}: there was no snapshot at that timestamp\n"
                    f"hint: the first that is left is of {first.isoformat(timespec='milliseconds')}"
                )
            names = [str(each.snapshot_id) for each in snapshots][-5:] + list(self._table.metadata.refs)
            raise EventsError(
                f"{self.name}: there is no snapshot {text!r}\n"
                f"hint: an id, a branch, a tag, or a timestamp in ISO 8601; the last: {', '.join(names) or 'none'}"
            )
        return snapshot

    def ancestors(self) -> Iterator[Any]:
        """Yield the snapshot and its ancestors that have not expired, newest first."""
        snapshot = self._snapshot
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)

    def appended_by(self, snapshot: Any) -> Callable[[], list[DataFile]]:
        """Return a function that returns the files that an ancestor appended, sorted by name."""

        def files() -> list[DataFile]:
            with wrapping_iceberg_errors(self.name):
                scan = self._table.incremental_append_scan().to_snapshot_id_inclusive(snapshot.snapshot_id)
                if snapshot.parent_snapshot_id is not None:
                    scan = scan.from_snapshot_id_exclusive(snapshot.parent_snapshot_id)
                return self.data_files(scan.plan_files())

        return files

    # ---- files --------------------------------------------------------------------------------------------------

    def files(self) -> list[DataFile]:
        """Return the files of the snapshot, in the order of their commits."""
        if self._snapshot is None:
            return []
        with wrapping_iceberg_errors(self.name):
            tasks = list(self._scan.plan_files())
            order = {
                entry.data_file.file_path: entry.sequence_number
                for manifest in self._snapshot.manifests(self._table.io)
                for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=True)
            }
        return self.data_files(tasks, order)

    def plain_files(self) -> PlainFiles | None:
        """Return the files if a Parquet reader finds the rows of the table in them, or None."""
        if self._snapshot is None:
            return PlainFiles([], {})
        if any(field.initial_default is not None or pa.types.is_nested(self.schema.field(field.name).type)
               for field in self._fields.fields):  # fmt: skip
            return None
        with wrapping_iceberg_errors(self.name):
            tasks = list(self._scan.plan_files())
            deleted = self._deleted_rows(tasks)
        paths = [_path_of(task.file.file_path) for task in tasks]
        if deleted is None or None in paths or any(task.file.file_format.name != "PARQUET" for task in tasks):
            return None
        in_folders = {field.source_id for spec in self._table.metadata.partition_specs for field in spec.fields}
        with ThreadPoolExecutor() as pool:
            names_by_file = list(pool.map(lambda path: self._stored_names(path, in_folders), paths))
        stored: dict[str, str] = {}
        for each in names_by_file:
            if each is None or any(stored.setdefault(name, own) != own for name, own in each.items() if own):
                return None
        # a column that a file lacks, by its id, must not be found there by its name
        for each, path in zip(names_by_file, paths, strict=True):
            assert each is not None
            missing = {stored.get(name, name) for name, own in each.items() if not own}
            if missing and missing & set(pq.read_schema(path).names):
                return None
        files = [
            PlainFile(str(path), {}, deleted.get(task.file.file_path)) for path, task in zip(paths, tasks, strict=True)
        ]
        return PlainFiles(files, {name: own for name, own in stored.items() if name != own})

    def _deleted_rows(self, tasks: Sequence[Any]) -> dict[str, npt.NDArray[np.int64]] | None:
        """Return the numbers of the deleted rows of files that have some, or None if they are not known by number."""
        read = getattr(package_of("iceberg", "io.pyarrow"), "_read_all_delete_files", None)
        if not any(task.delete_files for task in tasks):
            return {}
        if read is None:
            return None
        deleted: Mapping[str, Sequence[pa.ChunkedArray]] = read(self._table.io, tasks)
        return {
            path: np.unique(np.concatenate([rows.to_numpy() for rows in chunks]).astype(np.int64))
            for path, chunks in deleted.items()
        }

    def _stored_names(self, path: str, in_folders: set[int]) -> dict[str, str] | None:
        """Return the name of each column of the table in a file ("" if it lacks it), or None if types differ.

        Columns are matched by their ids.  Those with the ids `in_folders` may be missing in a file whose folders
        contain them.
        """
        with reading_file(path):
            there = pq.read_schema(path)
        own = {int((field.metadata or {}).get(b"PARQUET:field_id", -1)): field for field in there}
        names = {}
        for field in self._fields.fields:
            stored = own.get(field.field_id)
            if stored is None:
                if field.field_id in in_folders:
                    return None
                names[field.name] = ""
                continue
            if _without_large_offsets(stored.type) != self.schema.field(field.name).type:
                return None
            names[field.name] = stored.name
        return names

    def data_files(self, tasks: Iterable[Any], order: dict[str, int | None] | None = None) -> list[DataFile]:
        """Return files with their rows, sorted by the sequence numbers of their paths, then by name."""
        sequence_numbers = order or {}
        ordered = sorted(
            tasks, key=lambda task: (sequence_numbers.get(task.file.file_path) or 0, natural(task.file.file_path))
        )
        return [self._data_file(task) for task in ordered]

    def _data_file(self, task: Any) -> DataFile:
        reading = package_of("iceberg", "io.pyarrow")
        everything = package_of("iceberg", "expressions").AlwaysTrue()
        path = task.file.file_path

        def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
            names = columns or self.schema.names[:1]
            types = {name: self.schema.field(name).type for name in names}
            strings = tuple(name for name, kind in types.items() if is_string(kind))
            with wrapping_iceberg_errors(path):
                scan = reading.ArrowScan(
                    self._table.metadata, self._table.io, self._fields.select(*names), everything,
                    dictionary_columns=strings,
                )  # fmt: skip
                for batch in scan.to_record_batches([task]):
                    arrays = [conformed(batch.column(name), kind) for name, kind in types.items()]
                    yield pa.RecordBatch.from_arrays(arrays, names=names)

        n_rows = None if task.delete_files else task.file.record_count
        return DataFile(path, read, n_rows, bounds=self._column_bounds(task.file))

    def _column_bounds(self, file: Any) -> dict[str, ColumnBounds]:
        """Return the bounds of columns, including those of identity partition columns."""
        value_of = package_of("iceberg", "conversions").from_bytes
        bounds = {}
        least, greatest = file.lower_bounds or {}, file.upper_bounds or {}
        for field in self._fields.fields:
            low, high = least.get(field.field_id), greatest.get(field.field_id)
            if low is None or high is None or not field.field_type.is_primitive:
                continue
            kind = self.schema.field(field.name).type
            try:
                ends = [_bound_value(value_of(field.field_type, end), kind) for end in (low, high)]
            except (ValueError, TypeError, NotImplementedError, ArithmeticError, struct.error, pa.ArrowException):
                continue  # bounds of an earlier type of the column
            bounds[field.name] = ColumnBounds(*ends)
        return bounds


def _tables_beside(catalogue: Any, name: str) -> list[str]:
    """Return the names of the tables in the namespace of another one, or [] if the catalogue cannot list them."""
    try:
        return sorted(each[-1] for each in catalogue.list_tables(name.rpartition(".")[0]))
    except Exception:  # of any catalogue: this is only for a hint
        return []


def _path_of(location: str) -> str | None:
    """Return the path of a file of this machine, whose URI has no escapes, or None for other files."""
    if not Address.parse(location).is_local:
        return None
    return "/" + location.removeprefix("file:").lstrip("/") if location.startswith("file:") else location


def _without_large_offsets(kind: pa.DataType) -> pa.DataType:
    """Return a type without the large offsets that `pyiceberg` uses for strings and lists."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_large_offsets(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_large_offsets(field.type)) for field in kind])
    return kind


def _bound_value(value: Any, kind: pa.DataType) -> Any:
    """Return a bound as a Python value; timestamps and dates are stored as numbers."""
    if pa.types.is_temporal(kind) and isinstance(value, int):
        return pa.scalar(value, pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind).as_py()
    return value


def _is_news(record: logging.LogRecord) -> bool:
    """Return False for the warning on strings read as dictionaries, which is intended, as it is faster."""
    return not str(record.msg).startswith("Iceberg does not have a dictionary type")


logging.getLogger("pyiceberg.io.pyarrow").addFilter(_is_news)
