"""Tables as targets: rows are buffered in a temporary file, and appended by one commit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from cer_gpu.errors import OptionError
from cer_gpu.io.sinks import Sink, decoded_rows, decoded_schema
from cer_gpu.io.stores import map_local, open_local
from cer_gpu.io.tables.delta import delta_options, wrapping_delta_errors
from cer_gpu.io.tables.iceberg import catalogue_of, wrapping_iceberg_errors
from cer_gpu.io.tables.names import TableName, package_of
from cer_gpu.private_files import unfinished

CommitStep = tuple[str, int]
"""Application, and the number of its step that a commit publishes."""
_STEP = "cer-gpu.step."
"""Prefix of the property of an Iceberg table or snapshot with the number of a step, before the application name."""


@contextmanager
def open_table_sink(name: str, schema: pa.Schema, step: CommitStep | None = None) -> Iterator[Sink]:
    """Append rows to a table by one commit at the end of the ``with`` block; after an error, nothing is appended.

    The table is created if there is none.  Columns are matched by name; missing ones are NULL.  Unsigned integers are
    stored as wider ones, timestamps in microseconds.

    Parameters
    ----------
    name
        ``delta:PATH`` or ``iceberg:CATALOG.NAMESPACE.TABLE``.
    schema
        Schema of the rows.
    step
        Application and number that go into the commit, to be read by `committed_step`.

    Raises
    ------
    OptionError
        When the name has a snapshot, or the table cannot store the rows.
    EventsError
        When the table cannot be read or written.
    OSError
        When the temporary folder cannot be written.
    """
    target = _target(name, schema)
    with tempfile.TemporaryDirectory(prefix="cer_gpu-") as folder, unfinished(Path(folder)):
        gathered = Path(folder) / "rows.arrow"
        with open_local(gathered, "wb") as file, pa.ipc.new_file(file, target.schema) as writer:
            yield _BufferingSink(target, writer.write_batch)
        with map_local(gathered) as file, pa.ipc.open_file(file) as reader:  # nobody else can truncate it
            target.append(_reader(reader), reader.num_record_batches > 0, step)


def append_rows(
    name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], step: CommitStep | None = None
) -> None:
    """Append rows to a table by one commit, as `open_table_sink` does; with a `step`, even without rows."""
    with open_table_sink(name, schema, step) as sink:
        for batch in batches:
            sink.write(batch)


def append_once(name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], step: CommitStep) -> bool:
    """Append rows by one commit with a step, unless the table has this or a later step of the application.

    The rows are not buffered: all must be available.

    Returns
    -------
    bool
        True if they were appended.
    """
    target = _target(name, schema)
    committed = target.last_step(step[0])
    if committed is not None and committed >= step[1]:
        return False
    target.append(pa.RecordBatchReader.from_batches(target.schema, map(target.conform, batches)), True, step)
    return True


def target_conversion(name: str, schema: pa.Schema) -> tuple[pa.Schema, Callable[[pa.RecordBatch], pa.RecordBatch]]:
    """Return the schema in which a table stores rows, and a function that converts rows to it.

    Raises
    ------
    OptionError
        When the table cannot store them; the function raises it for values that cannot be cast.
    """
    target = _target(name, schema)
    return target.schema, target.conform


def committed_step(name: str, application: str) -> int | None:
    """Return the number of the newest commit of an application, or None if there is no such commit or no table.

    Raises
    ------
    EventsError
        When the table cannot be read.
    """
    table_name = _target_name(name)
    if table_name.kind == "delta":
        return _DeltaTarget(table_name, pa.schema([])).last_step(application)
    return _IcebergTarget(table_name, pa.schema([])).last_step(application)


def _target_name(name: str) -> TableName:
    table_name = TableName.parse(name)
    if table_name is None or table_name.snapshot is not None:
        raise OptionError(f"{name}: expected a table to append to: delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE")
    return table_name


def _target(name: str, schema: pa.Schema) -> _Target:
    table_name = _target_name(name)
    return _DeltaTarget(table_name, schema) if table_name.kind == "delta" else _IcebergTarget(table_name, schema)


class _BufferingSink:
    """Sink of rows that are appended later."""

    def __init__(self, target: _Target, write: Callable[[pa.RecordBatch], None]) -> None:
        self._target, self._write = target, write

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._write(self._target.conform(batch))


def _reader(reader: pa.ipc.RecordBatchFileReader) -> pa.RecordBatchReader:
    batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    return pa.RecordBatchReader.from_batches(reader.schema, batches)


class _Target:
    """A table to append to.

    Attributes
    ----------
    schema : pyarrow.Schema
        Types in which the rows are stored: those of the table, or of the one that will be created.
    """

    def __init__(self, table_name: TableName, schema: pa.Schema) -> None:
        self._target_name = table_name
        own = self._load_schema()
        stored = _storable_schema(str(table_name), decoded_schema(schema))
        if own is not None:
            unknown = [field.name for field in stored if field.name not in own.names]
            if unknown:
                raise OptionError(
                    f"{table_name}: the table has no column {', '.join(map(repr, unknown))}\n"
                    f"expected: {', '.join(own.names)}\nhint: another table, or another --output"
                )
            needed = [field.name for field in own if not field.nullable and field.name not in stored.names]
            if needed:
                raise OptionError(
                    f"{table_name}: the table has column {', '.join(map(repr, needed))}, which may not be NULL, and "
                    "which the results have not\nhint: another table, or another --output"
                )
            stored = pa.schema([own.field(field.name).remove_metadata() for field in stored])
        self.schema = stored

    def _load_schema(self) -> pa.Schema | None:
        """Return the schema of the table, or None if there is none yet."""
        raise NotImplementedError

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the types of the table.

        Raises
        ------
        OptionError
            When they cannot be cast.
        """
        try:
            return decoded_rows(batch).cast(self.schema)
        except (pa.ArrowException, ValueError) as error:
            raise OptionError(f"{self._target_name}: the table cannot hold these results: {error}") from error

    def last_step(self, application: str) -> int | None:
        """Return the number of the newest step of an application."""
        raise NotImplementedError

    def append(self, rows: pa.RecordBatchReader, has_rows: bool, step: CommitStep | None) -> None:
        """Append rows by one commit; without rows, only if the table must be created, or there is a step."""
        raise NotImplementedError


class _DeltaTarget(_Target):
    def _load_schema(self) -> pa.Schema | None:
        delta = package_of("delta")
        self._place = self._target_name.place
        if "://" not in self._place:
            self._place = os.path.abspath(self._place)
        self._options = delta_options(self._place) or None
        with wrapping_delta_errors(str(self._target_name), "opened"):
            there = delta.DeltaTable.is_deltatable(self._place, self._options)
            self._table = delta.DeltaTable(self._place, storage_options=self._options) if there else None
            return None if self._table is None else pa.schema(self._table.schema().to_arrow())

    def last_step(self, application: str) -> int | None:
        if self._table is None:
            return None
        with wrapping_delta_errors(str(self._target_name)):
            version = self._table.transaction_version(application)
        return None if version is None else int(version)

    def append(self, rows: pa.RecordBatchReader, has_rows: bool, step: CommitStep | None) -> None:
        if not has_rows and self._table is not None and step is None:
            return
        delta = package_of("delta")
        marks = None if step is None else delta.CommitProperties(app_transactions=[delta.Transaction(*step)])
        with wrapping_delta_errors(str(self._target_name), "written"):
            if not has_rows and self._table is not None:
                self._table.create_write_transaction(
                    [], mode="append", schema=self._table.schema(), commit_properties=marks
                )
                return
            delta.write_deltalake(
                self._place, rows, mode="append", storage_options=self._options, commit_properties=marks,
                schema_mode="merge" if self._table is not None else None,
            )  # fmt: skip


class _IcebergTarget(_Target):
    def _load_schema(self) -> pa.Schema | None:
        reading = package_of("iceberg", "io.pyarrow")
        missing = package_of("iceberg", "exceptions")
        self._catalogue, self._name = catalogue_of(self._target_name)
        with wrapping_iceberg_errors(str(self._target_name)):
            try:
                self._table = self._catalogue.load_table(self._name)
            except (missing.NoSuchTableError, missing.NoSuchNamespaceError):
                self._table = self._own = None
                return None
            self._own = pa.schema(reading.schema_to_pyarrow(self._table.schema(), include_field_ids=False))
            return self._own

    def last_step(self, application: str) -> int | None:
        if self._table is None:
            return None
        step_property = self._table.properties.get(_STEP + application)  # it remains when snapshots expire
        if step_property is not None:
            return int(step_property)
        snapshot = self._table.current_snapshot()
        while snapshot is not None:
            step = None if snapshot.summary is None else snapshot.summary.get(_STEP + application)
            if step is not None:
                return int(step)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
        return None

    def append(self, rows: pa.RecordBatchReader, has_rows: bool, step: CommitStep | None) -> None:
        if not has_rows and self._table is not None and step is None:
            return
        marks = {} if step is None else {_STEP + step[0]: str(step[1])}
        with wrapping_iceberg_errors(str(self._target_name), "written"):
            if self._table is None:
                self._catalogue.create_namespace_if_not_exists(self._name.rpartition(".")[0])
                transaction = self._catalogue.create_table_transaction(self._name, schema=self.schema)
                transaction.append(rows.read_all(), snapshot_properties=marks)
                transaction.set_properties(marks)
                transaction.commit_transaction()
            else:
                with self._table.transaction() as changed:
                    changed.append(self._with_table_columns(rows.read_all()), snapshot_properties=marks)
                    changed.set_properties(marks)

    def _with_table_columns(self, rows: pa.Table) -> pa.Table:
        """Return rows with all columns of the table: `pyiceberg` needs the partition columns."""
        assert self._own is not None
        for field in self._own:
            if field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(len(rows), field.type))
        return rows


# ---- types ----------------------------------------------------------------------------------------------------------


def _storable_schema(name: str, schema: pa.Schema) -> pa.Schema:
    """Return a schema with types that both kinds of tables can store."""
    return pa.schema([pa.field(field.name, _stored_type(name, field.name, field.type)) for field in schema])


def _stored_type(name: str, column: str, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}[kind.bit_width]
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_stored_type(name, f"{column}.{field.name}", field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_stored_type(name, column, kind.value_type))
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        raise OptionError(
            f"{name}: tables cannot hold column {column!r}, which is {kind}\nhint: another --output, or a file"
        )
    return kind
