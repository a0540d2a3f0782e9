"""Snapshots of Delta Lake tables: files of the log, with partition values, deletion vectors and column mapping."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.record_batches import constant_column
from cer_gpu.errors import EventsError, did_you_mean
from cer_gpu.io.formats import format_of
from cer_gpu.io.source import READ_ERRORS, ColumnBounds, Source
from cer_gpu.io.stores import Address, StoredFile, open_store, path_in_store, s3_endpoint
from cer_gpu.io.tables.names import DELTA_LOG, TableName, natural, package_of, parse_timestamp
from cer_gpu.io.tables.table import DataFile, PlainFile, PlainFiles, TableSnapshot, conformed, reading_file
from cer_gpu.io.text_options import USUAL

_FILE: Mapping[str, tuple[type, ...]] = {"path": (str,), "dataChange": (bool, type(None))}
_FORMS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "add": {**_FILE, "partitionValues": (dict, type(None)), "stats": (str, type(None))},
    "remove": _FILE,
    "commitInfo": {},
}
"""Types of the fields that are read from each action."""


def actions_in(text: str, path: str) -> list[dict[str, Any]]:
    """Return the actions of a commit, one for each line, without null fields.

    Parameters
    ----------
    text
    path
        Path of its file, for messages.

    Raises
    ------
    EventsError
        When a line is not an action.
    """
    actions = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            action = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise EventsError(f"{path}: is damaged: a line is no JSON: {error}") from error
        why = _why_no_action(action)
        if why is not None:
            raise EventsError(f"{path}: is damaged: line {number}: {why}")
        actions.append({name: value for name, value in action.items() if value is not None})
    return actions


def _why_no_action(action: object) -> str | None:
    if not isinstance(action, dict):
        return "expected an action"
    for name, form in _FORMS.items():
        field = action.get(name)
        if field is None:
            continue
        if not isinstance(field, dict):
            return f"{name!r} is no object"
        for key, types in form.items():
            if not isinstance(field.get(key), types):
                return f"{key!r} of {name!r} is {field[key]!r}" if key in field else f"{key!r} of {name!r} is missing"
    return None


def n_records(add: Mapping[str, Any]) -> int | None:
    """Return the number of rows in the statistics of an added file, or None if they do not contain it.

    Raises
    ------
    EventsError
        When they are damaged.
    """
    try:
        n_records = json.loads(add.get("stats") or "{}").get("numRecords")
    except (ValueError, AttributeError, RecursionError) as error:
        raise EventsError(f"the log of the table is damaged: the statistics of {add['path']!r} are no JSON") from error
    if n_records is not None and (not isinstance(n_records, int) or isinstance(n_records, bool) or n_records < 0):
        raise EventsError(f"the log of the table is damaged: {add['path']!r} has {n_records!r} rows")
    return n_records


_MANY_FILES = 64
"""With so many files or more, each is one part: footers are not read to distribute row groups over threads."""
_LOGS_AT_ONCE = 16
"""Commits of the log that are read concurrently."""
_MAPPING = "delta.columnMapping.mode"
_PHYSICAL = "delta.columnMapping.physicalName"
_READABLE = {
    "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
    "vacuumProtocolCheck", "catalogManaged", "variantType", "variantType-preview", "variantShredding-preview",
}  # fmt: skip
"""Reader features that are supported."""
_TYPES_ELSEWHERE = {"typeWidening", "typeWidening-preview", "variantShredding-preview"}
"""Features with which files may have other types than the table."""


def delta_options(place: str) -> dict[str, str]:
    """Return settings of a store that `deltalake` does not take from the environment itself."""
    endpoint = s3_endpoint()
    if place.startswith(("s3://", "s3a://")) and endpoint is not None and endpoint.startswith("http://"):
        return {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
    return {}


@contextmanager
def wrapping_delta_errors(name: str, done: str = "read") -> Iterator[None]:
    """Turn errors of `deltalake` into EventsError: the table cannot be "read", "opened" for output or "written"."""
    exceptions = package_of("delta", "exceptions")
    try:
        yield
    except exceptions.TableNotFoundError as error:
        if done != "read":
            raise EventsError(f"{name}: cannot be {done} as a table of Delta: {_first_line(error)}") from error
        table_name = TableName.parse(name)
        hint = None if table_name is None else _hint_of_folders(table_name.place)
        hint_line = f"\nhint: {hint}" if hint else ""
        raise EventsError(f"{name}: there is no table of Delta: {_first_line(error)}{hint_line}") from error
    except (exceptions.DeltaError, OSError, ValueError, pa.ArrowException) as error:
        raise EventsError(f"{name}: cannot be {done} as a table of Delta: {_first_line(error)}") from error
    except Exception as error:
        if type(error) is not Exception:  # internal errors of `deltalake` are plain Exceptions
            raise
        raise EventsError(f"{name}: cannot be {done} as a table of Delta: {_first_line(error)}") from error


def _hint_of_folders(place: str) -> str | None:
    """Return a hint for a local path that is not a table: what it is, or a table with a similar name."""
    if "://" in place:
        return None
    if os.path.isdir(place):
        return f"the folder has no {DELTA_LOG}; without 'delta:' its files are read"
    parent, name = os.path.split(place.rstrip("/"))
    if not os.path.isdir(parent or "."):
        return f"no folder {parent}"
    with os.scandir(parent or ".") as beside:
        tables = sorted(each.name for each in beside if os.path.isdir(os.path.join(each.path, DELTA_LOG)))
    return did_you_mean(name, tables, "tables beside it")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]


@dataclass(frozen=True)
class LoggedFile:
    """A file as recorded in the log.

    Attributes
    ----------
    path
        Relative to the folder of the table, or a URI; escaped as in the log.
    partition
        Values of the partition columns by their physical names.
    n_rows
        Number of its rows, including deleted ones, or None if unknown.
    bounds
        ColumnBounds of columns by their physical names.
    """

    path: str
    partition: Mapping[str, Any]
    n_rows: int | None = None
    bounds: Mapping[str, ColumnBounds] | None = None

    @classmethod
    def from_action(cls, add: Mapping[str, Any]) -> LoggedFile:
        """Return the file of an action of the log."""
        return cls(add["path"], add.get("partitionValues") or {}, n_records(add))


def data_files_later(table: DeltaSnapshot, logged: Sequence[LoggedFile]) -> Callable[[], list[DataFile]]:
    """Return a function that returns files of the log with their rows, sorted by name."""
    ordered = sorted(logged, key=lambda file: natural(file.path))
    return lambda: table.data_files(ordered)


class DeltaSnapshot(TableSnapshot):
    """A version of a table of Delta."""

    def __init__(self, table_name: TableName) -> None:
        self.name: str = str(table_name)
        self._place = table_name.place.rstrip("/") or "/"
        delta = package_of("delta")
        with wrapping_delta_errors(self.name):
            self._table = delta.DeltaTable(self._place, storage_options=delta_options(self._place) or None)
            if table_name.snapshot is not None:
                self._load(table_name.snapshot)
            self.version: str = str(self._table.version())
            self.pinned: TableName = TableName(table_name.kind, table_name.place, self.version)
            self._metadata, protocol = self._table.metadata(), self._table.protocol()
            self.table_id: str = str(self._metadata.id)
            fields = json.loads(self._table.schema().to_json())["fields"]
            self.schema: pa.Schema = pa.schema(pa.schema(self._table.schema().to_arrow()))
        self._check_readable(set(protocol.reader_features or ()))
        self._physical = {field["name"]: field.get("metadata", {}).get(_PHYSICAL, field["name"]) for field in fields}
        self._stored = {
            field["name"]: _stored_type(field["type"], self.schema.field(field["name"]).type) for field in fields
        }

    def _load(self, snapshot: str) -> None:
        timestamp = parse_timestamp(snapshot)
        if timestamp is None and not snapshot.isdecimal():
            raise EventsError(f"{self.name}: expected the number of a version, or a timestamp in ISO 8601 behind the @")
        newest = self._table.version()
        if timestamp is None and int(snapshot) > newest:
            raise EventsError(f"{self.name}: there is no version {snapshot}; the newest is {newest}")
        try:
            self._table.load_as_version(int(snapshot) if timestamp is None else timestamp)
        except package_of("delta", "exceptions").DeltaError as error:
            raise EventsError(
                f"{self.name}: version {snapshot} cannot be read: {_first_line(error)}\n"
                "hint: its log is cleaned up after some time; read a newer version"
            ) from error
        if timestamp is not None:
            self._refuse_before_the_first(timestamp)

    def _refuse_before_the_first(self, timestamp: datetime) -> None:
        """Refuse a timestamp before all versions, for which `deltalake` returns the oldest remaining version."""
        version = int(self._table.version())
        committed_ms = [
            value
            for action in self.actions_of(version) or []
            for key, value in action.get("commitInfo", {}).items()
            if key in ("timestamp", "inCommitTimestamp") and isinstance(value, int)
        ]
        if committed_ms and timestamp < (first := datetime.fromtimestamp(min(committed_ms) / 1000, UTC)):
            raise EventsError(
                f"{self.name}: there was no version at that timestamp\n"
                f"hint: version {version} is the first that is left, of {first.isoformat(timespec='milliseconds')}"
            )

    def _check_readable(self, features: set[str]) -> None:
        mode = self._metadata.configuration.get(_MAPPING, "none")
        if mode not in ("none", "name"):
            raise EventsError(
                f"{self.name}: the table maps columns by {mode}, which is not read here\n"
                "hint: give what its own library reads: pyarrow.table(deltalake.DeltaTable(...).scan())"
            )
        if unknown := sorted(features - _READABLE):
            raise EventsError(
                f"{self.name}: the table needs {', '.join(unknown)} of its readers, which is not read here\n"
                "hint: give what its own library reads: pyarrow.table(deltalake.DeltaTable(...).scan())"
            )

    # ---- files --------------------------------------------------------------------------------------------------

    def files(self) -> list[DataFile]:
        """Return the files of the version, in the order of their commits."""
        with wrapping_delta_errors(self.name):
            rows = self._added()
            masks = self._masks(rows)
        order = self._commits({row["path"] for row in rows})
        rows.sort(  # files of versions that are no longer in the log are ordered by their times
            key=lambda row: (
                order.get(row["path"], -1),
                0 if row["path"] in order else row["modification_time"] or 0,
                natural(row["path"]),
            )
        )
        logged = [
            LoggedFile(row["path"], row.get("partition") or {}, row["num_records"], _bounds_in(row)) for row in rows
        ]
        return self.data_files(logged, masks)

    def plain_files(self) -> PlainFiles | None:
        """Return the files if a Parquet reader finds the rows of the table in them, or None."""
        features = set(self._table.protocol().reader_features or ())
        stored = {name: physical for name, physical in self._physical.items() if name != physical}
        nested = any(map(pa.types.is_nested, self.schema.types))  # their fields have physical names, too
        if not self._address.is_local or features & _TYPES_ELSEWHERE or (stored and nested):
            return None
        with wrapping_delta_errors(self.name):
            rows = self._added()
            masks = self._masks(rows)
        if any("://" in row["path"] for row in rows):
            return None
        files = []
        for row in rows:
            path, values = self._path(row["path"]), row.get("partition") or {}
            mask = masks.get(path)
            files.append(PlainFile(path, values, None if mask is None else np.flatnonzero(~mask)))
        return PlainFiles(files, stored)

    def _added(self) -> list[dict[str, Any]]:
        """Return the add actions of the files of the version."""
        added: list[dict[str, Any]] = pa.table(self._table.get_add_actions(flatten=False)).to_pylist()
        return added

    def data_files(
        self, logged: Sequence[LoggedFile], masks: Mapping[str, npt.NDArray[np.bool_]] | None = None
    ) -> list[DataFile]:
        """Return files of the log with their rows."""
        few = len(logged) < _MANY_FILES
        return [self._data_file(file, (masks or {}).get(self._path(file.path)), few=few) for file in logged]

    def _data_file(self, file: LoggedFile, mask: npt.NDArray[np.bool_] | None, *, few: bool) -> DataFile:
        stored = StoredFile(self._path(file.path), self._path_for_messages(file.path), self._delta_store)
        source: Source | None = None

        def opened() -> Source:
            nonlocal source
            if source is None:
                source = _parquet_source(stored)
            return source

        constants = self._constants(file)

        def read(columns: list[str], *rows: int) -> Iterator[pa.RecordBatch]:
            of_file = opened()
            own = {name: self._physical[name] for name in columns if name not in constants}
            there = [physical for physical in own.values() if physical in of_file.schema.names]
            if rows:
                assert of_file.parts is not None
                batches = of_file.parts.read(there, *rows)
            else:
                batches = of_file.batches(there)
            for batch in batches if mask is None else _without_deleted_rows(batches, mask):
                yield self._conformed(batch, columns, own, constants)

        def begins() -> Sequence[int]:
            parts = opened().parts
            assert parts is not None
            return parts.begins

        n_rows = file.n_rows
        if n_rows is None:
            with reading_file(stored.shown):
                n_rows = opened().n_rows
        in_parts = mask is None and few
        if mask is not None and n_rows is not None:
            n_rows -= int((~mask[:n_rows]).sum())
        bounds = {
            name: (file.bounds or {})[physical]
            for name, physical in self._physical.items()
            if physical in (file.bounds or {})
        }
        bounds |= {
            name: ColumnBounds(value.as_py(), value.as_py()) for name, value in constants.items() if value.is_valid
        }
        return DataFile(stored.shown, read, n_rows, begins if in_parts else None, read if in_parts else None, bounds)

    def _conformed(
        self, batch: pa.RecordBatch, columns: list[str], own: Mapping[str, str], constants: Mapping[str, pa.Scalar]
    ) -> pa.RecordBatch:
        """Return rows of a file as rows of the table, with logical column names, and NULL for missing columns."""
        arrays = []
        for name in columns:
            kind = self.schema.field(name).type
            if name in constants:
                arrays.append(constant_column(constants[name], batch.num_rows))
            elif own[name] in batch.schema.names:
                arrays.append(_with_struct_names(conformed(batch.column(own[name]), self._stored[name]), kind))
            else:
                arrays.append(pa.nulls(batch.num_rows, kind))
        if not columns:
            return batch.select([])
        return pa.RecordBatch.from_arrays(arrays, names=columns)

    def _constants(self, file: LoggedFile) -> dict[str, pa.Scalar]:
        """Return the values of the partition columns."""
        constants = {}
        for name in self._metadata.partition_columns:
            value, kind = file.partition.get(self._physical[name]), self.schema.field(name).type
            try:
                constants[name] = _of_text(value, kind) if isinstance(value, str) else pa.scalar(value, kind)
            except (pa.ArrowException, ValueError, OverflowError) as error:
                raise EventsError(
                    f"{self.name}: the value {value!r} of the partition column {name!r} is not of its type {kind}"
                ) from error
        return constants

    @cached_property
    def _delta_store(self) -> Any:
        address = self._address
        return None if address.is_local else open_store(address)

    @property
    def _address(self) -> Address:
        place = self._place
        return Address.parse(place) if "://" in place or place.startswith("file:/") else Address("", "", place)

    def _path(self, path: str) -> str:
        """Return the path of a file in its store."""
        if "://" in path:  # a file of another table (shallow clone)
            address = Address.parse(path)
        else:
            own = self._address
            address = Address(own.scheme, own.authority, f"{own.path.rstrip('/')}/{unquote(path)}")
        return address.path if self._delta_store is None else path_in_store(address, self._delta_store)

    def _path_for_messages(self, path: str) -> str:
        return unquote(path) if "://" in path else f"{self._place.rstrip('/')}/{unquote(path)}"

    def _masks(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, npt.NDArray[np.bool_]]:
        """Return masks of the rows that are not deleted, by paths of files with deletion vectors.

        Parameters
        ----------
        rows
            The add actions of the version.

        Raises
        ------
        EventsError
            If a deletion vector is of no file of the version: its rows would be read.
        """
        if "deletionVectors" not in (self._table.protocol().reader_features or ()):
            return {}
        masks = {}
        for batch in pa.RecordBatchReader.from_stream(self._table.deletion_vectors()):
            for uri, mask in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                masks[self._of_uri(uri)] = mask.values.to_numpy(zero_copy_only=False)
        if unknown := min(masks.keys() - {self._path(row["path"]) for row in rows}, default=None):
            raise EventsError(f"{self.name}: a deletion vector is of {unknown!r}, which is no file of the version")
        return masks

    def _of_uri(self, uri: str) -> str:
        """Return the path in the store of a file that `deltalake` names by its URI.

        Its URIs of files of this machine are absolute, without symbolic links; the place of the table may be neither.
        """
        address = Address.parse(uri) if "://" in uri else Address("", "", unquote(uri))
        if self._delta_store is None:
            root = Address.parse(self._table.table_uri).path.rstrip("/") + "/"
            if address.path.startswith(root):
                return f"{self._address.path.rstrip('/')}/{address.path.removeprefix(root)}"
        return address.path if self._delta_store is None else path_in_store(address, self._delta_store)

    # ---- the log ------------------------------------------------------------------------------------------------

    def _commits(self, paths: set[str]) -> dict[str, int]:
        """Return the versions that added files, if their commits are in the log; others are older.

        Raises
        ------
        EventsError
            When no commit added a file, although all commits are in the log.
        """
        version_of: dict[str, int] = {}
        with ThreadPoolExecutor(_LOGS_AT_ONCE) as pool:
            for last in range(int(self.version), -1, -_LOGS_AT_ONCE):
                versions = range(last, max(last - _LOGS_AT_ONCE, -1), -1)
                for version, actions in zip(versions, pool.map(self.actions_of, versions), strict=True):
                    if actions is None:
                        return version_of
                    for action in actions:
                        if "add" in action:
                            version_of.setdefault(action["add"]["path"], version)
                if paths <= version_of.keys():
                    return version_of
        if unknown := min(paths - version_of.keys(), default=None):
            raise EventsError(f"{self.name}: its log is damaged: no commit added {unknown!r}")
        return version_of

    def actions_of(self, version: int) -> list[dict[str, Any]] | None:
        """Return the actions of a commit, or None if the log no longer has it.

        Raises
        ------
        EventsError
            When it cannot be read.
        """
        path = self._path(f"_delta_log/{version:020}.json")
        try:
            with StoredFile(path, path, self._delta_store).open() as file:
                text = file.read().decode()
        except FileNotFoundError:
            return None
        except READ_ERRORS as error:
            raise EventsError(f"{self.name}: its log cannot be read: {error}") from error
        return actions_in(text, path)


def _parquet_source(stored: StoredFile) -> Source:
    parquet = format_of(".parquet")
    assert parquet is not None
    return parquet.open(stored, USUAL)


def _without_deleted_rows(batches: Iterator[pa.RecordBatch], mask: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a deletion vector does not delete; rows after its end remain."""
    first = 0
    for batch in batches:
        own = mask[first : first + batch.num_rows]
        first += batch.num_rows
        if len(own) < batch.num_rows:
            own = np.concatenate([own, np.ones(batch.num_rows - len(own), np.bool_)])
        yield batch if own.all() else batch.filter(pa.array(own))


def _stored_type(logged: Any, kind: pa.DataType) -> pa.DataType:
    """Return the type of a column in files, where fields of structs have their physical names.

    Parameters
    ----------
    logged
        The type in the schema of the log.
    kind
        The type in the table.
    """
    if not isinstance(logged, dict):
        return kind
    if logged["type"] == "array":
        return pa.list_(kind.value_field.with_type(_stored_type(logged["elementType"], kind.value_type)))
    if logged["type"] == "map":
        return pa.map_(
            _stored_type(logged["keyType"], kind.key_type), _stored_type(logged["valueType"], kind.item_type)
        )
    if logged["type"] != "struct":
        return kind
    return pa.struct(
        field.with_type(_stored_type(own["type"], field.type)).with_name(own["metadata"].get(_PHYSICAL, own["name"]))
        for own, field in zip(logged["fields"], kind, strict=True)
    )


def _with_struct_names(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column with the names of struct fields of `kind`, without a copy."""
    if not pa.types.is_nested(kind) or column.type == kind:
        return column
    return pa.array(_Relabelled(column, kind))


@dataclass(frozen=True)
class _Relabelled:
    column: pa.Array
    kind: pa.DataType

    def __arrow_c_array__(self, requested: Any = None) -> tuple[Any, Any]:
        return self.kind.__arrow_c_schema__(), self.column.__arrow_c_array__()[1]


def _of_text(text: str, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a partition column from its string in the log; an empty string is NULL.

    A timestamp without a zone is in UTC; fractions of microseconds are truncated.
    """
    if not text:
        return pa.scalar(None, kind)
    if is_string(kind):
        return pa.scalar(text, kind)
    if not pa.types.is_timestamp(kind):
        return pa.scalar(text).cast(kind)
    timestamp = datetime.fromisoformat(text)
    if kind.tz is not None and timestamp.tzinfo is None:
        timestamp = timestamp.replace(tzinfo=UTC)
    return pa.scalar(timestamp, kind)


def _bounds_in(row: Mapping[str, Any]) -> dict[str, ColumnBounds]:
    """Return the bounds of the columns of a file; those of timestamps include the truncated part of a millisecond.

    Decimals with more digits than a double have no bounds, as `deltalake` and others may write them as doubles.
    """
    least, greatest = row.get("min") or {}, row.get("max") or {}
    bounds = {}
    for name in least.keys() & greatest.keys():
        low, high = least[name], greatest[name]
        if low is None or high is None or isinstance(low, dict | list):
            continue
        if isinstance(low, Decimal) and max(len(end.as_tuple().digits) for end in (low, high)) > sys.float_info.dig:
            continue
        bounds[name] = ColumnBounds(low, _end_of_millisecond(high) if isinstance(high, datetime) else high)
    return bounds


def _end_of_millisecond(timestamp: datetime) -> datetime:
    try:
        return timestamp + timedelta(milliseconds=1)
    except OverflowError:  # 9999-12-31T23:59:59.999, often used for an open end
        return timestamp.replace(microsecond=999_999)
