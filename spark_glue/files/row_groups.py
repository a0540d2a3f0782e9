"""Rows of stored row groups, as events in the types that Spark has for them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.fields import attribute_type, columns_with, names_in
from cer_gpu.errors import EventsError
from cer_gpu.io.formats import FILE_BYTES, FILE_ROWS
from cer_gpu.io.source import BATCH_ROWS
from spark_glue.distribution import POSITION
from spark_glue.files.layout import Unit
from spark_glue.files.opening import Opener, check_file, reading
from spark_glue.files.stored_events import File, FileFooters
from spark_glue.files.stored_formats import OpenGroups

MAX_OPEN = 4
"""Maximum number of files that one reader has open: mapped files count as memory of the process."""


class RowGroups:
    """Reader of the row groups of a scan.

    Parameters
    ----------
    footers
    columns
        Columns and fields of the events to read (`cer_gpu.ceql.paths`).
    opener
    max_rows
        Most rows of a batch.

    Attributes
    ----------
    schema : pyarrow.Schema
        Columns of the batches, in the order of ``footers.scan.schema``; strings may come with a dictionary, and structs
        without the fields that are not read.
    """

    def __init__(self, footers: FileFooters, columns: Sequence[str], opener: Opener, max_rows: int = FILE_ROWS) -> None:
        self._footers, self._opener, self._max_rows = footers, opener, max_rows
        self._scan = scan = footers.scan
        self._columns = list(columns)
        schema = scan.schema
        tops = set(columns_with(schema, columns))
        self.schema: pa.Schema = pa.schema([field for field in schema if field.name in tops])
        self._folders = set(scan.folders)
        self._read_names: dict[tuple[str, ...], tuple[pa.Schema, list[str]]] = {}
        self._filter = reduce(and_, scan.filters) if scan.filters else None
        self._open: OrderedDict[int, OpenGroups] = OrderedDict()
        self._checked: set[int] = set()

    def file_of(self, unit: Unit) -> File:
        """Return the file of a row group."""
        return self._footers.files[unit.file]

    def locate(self, row: int) -> str:
        """Return the file of a row, by its number over all files, and its number there, for a message."""
        files = self._footers.files
        file = next((each for each in files if each.first <= row < each.first + each.n_rows), None)
        return f"row {row}" if file is None else f"{file.path}, row {row - file.first}"

    def rows_at_once(self, unit: Unit) -> int:
        """Return the number of rows of a batch: fewer of long rows."""
        n_bytes = self._bytes_of_row
        if n_bytes is None:
            return min(BATCH_ROWS, self._max_rows)
        if unit.n_rows > BATCH_ROWS:
            stored = self._file(unit).bytes_of_row(unit.number, self._stored_paths(self._columns))
            n_bytes = max(n_bytes, stored)
        usual = max(BATCH_ROWS, int(FILE_BYTES / n_bytes))
        # a row group that is a little larger is one batch, too: its order is then seen without a pass of its own
        n_rows = unit.n_rows if unit.n_rows <= 2 * usual else min(FILE_ROWS, usual)
        return max(1, min(self._max_rows, n_rows))

    @cached_property
    def _bytes_of_row(self) -> float | None:
        """Bytes that the columns of a row take, without its strings; None if they are not known."""
        n_bytes = 1.0
        for attribute in self._columns:
            kind = attribute_type(self._scan.schema, attribute)
            if kind is not None and is_string(kind):
                n_bytes += 4
            elif kind is not None and pa.types.is_primitive(kind):
                n_bytes += kind.bit_width / 8
            else:
                return None
        return n_bytes

    def batches(
        self, unit: Unit, *, columns: Sequence[str] | None = None, numbered: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the events of a row group in stored order.

        Parameters
        ----------
        unit
        columns
            Columns and fields to read; by default (None) all of this reader.
        numbered
            True to add the column `POSITION`, int64, of the numbers of the rows over all files.

        Raises
        ------
        EventsError
            If the file changed since it was listed, or cannot be read.
        """
        names = self._columns if columns is None else list(columns)
        wanted, paths = self._wanted(tuple(names))
        file, row = self.file_of(unit), unit.first
        size = self.rows_at_once(unit)
        with reading(file.path):
            for raw in self._file(unit).batches(unit.number, paths, size):
                n_rows = raw.num_rows
                table = self._with_folders(raw, file)
                if numbered:
                    table = table.append_column(POSITION, pa.array(np.arange(row, row + n_rows, dtype=np.int64)))
                table = self._not_deleted(table, file, row - file.first)
                row += n_rows
                if self._filter is not None:
                    table = self._passing(table)
                yield self._to_event_types(table, wanted, file.lacks, numbered=numbered)
        if row != unit.first + unit.n_rows:
            raise EventsError(
                f"{file.path}: row group {unit.number} has {row - unit.first:,} rows, and had {unit.n_rows:,} when the "
                "job was planned\nhint: run again"
            )

    def close(self) -> None:
        """Check that no file that was read has changed, and close all."""
        for number in sorted(self._checked):
            check_file(self._opener, self._footers.files[number])
        self.release()

    def release(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()

    # ---- files ----------------------------------------------------------------------------------------------

    def _file(self, unit: Unit) -> OpenGroups:
        """Return the open file of a row group; strings come with a dictionary, unless a filter reads them."""
        opened = self._open.get(unit.file)
        if opened is None:
            file, (paths, strings) = self.file_of(unit), self._opened_columns
            if unit.file not in self._checked:
                check_file(self._opener, file)
                self._checked.add(unit.file)
            strings = strings.difference(file.lacks)
            opened = self._opener.format(file.path).open(self._opener, file.path, paths, strings)
            self._open[unit.file] = opened
            if len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(unit.file)
        return opened

    def _wanted(self, names: tuple[str, ...]) -> tuple[pa.Schema, list[str]]:
        """Return the columns of batches of some columns and fields, and the paths of what is read in the files."""
        if names not in self._read_names:
            schema = self._scan.schema
            wanted = pa.schema(_read_fields(schema, [names_in(schema, name) for name in names]))
            paths = list(dict.fromkeys([*self._stored_paths(names), *self._filter_columns()]))
            self._read_names[names] = wanted, paths
        return self._read_names[names]

    @cached_property
    def _opened_columns(self) -> tuple[list[str], frozenset[str]]:
        """Columns that are read of a file, and those of strings that may come with a dictionary."""
        filtered = self._filter_columns()
        strings = {self._stored_name(f.name) for f in self.schema if is_string(f.type)}
        paths = [*self._stored_paths(self._columns, tops=True), *filtered]
        return paths, frozenset(strings - {*self._folders, *filtered})

    def _stored_name(self, name: str) -> str:
        return self._scan.stored.get(name, name)

    def _stored_paths(self, names: Sequence[str], *, tops: bool = False) -> list[str]:
        """Return the paths in the files of columns and fields of the events, without columns encoded in folders."""
        paths = []
        for name in names:
            top, *fields = names_in(self._scan.schema, name)
            if self._stored_name(top) not in self._folders:
                paths.append(self._stored_name(top) if tops else ".".join([self._stored_name(top), *fields]))
        return paths

    def _filter_columns(self, *, with_folders: bool = False) -> list[str]:
        """Return the stored columns that the filters read, and the columns encoded in folders."""
        return [name for name in self._scan.filter_columns.names if with_folders or name not in self._folders]

    def _passing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch, as it is stored, for which the filters are true."""
        read = [name for name in batch.schema.names if name in self._filter_columns(with_folders=True)]
        table = pa.Table.from_batches([batch.select(read or batch.schema.names[:1])])
        steps = [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
            acero.Declaration("project", acero.ProjectNodeOptions([self._filter], ["passes"])),
        ]
        passes = acero.Declaration.from_sequence(steps).to_table(use_threads=False)["passes"].combine_chunks()
        return batch if passes.true_count == batch.num_rows else batch.filter(passes)

    def _not_deleted(self, batch: pa.RecordBatch, file: File, first: int) -> pa.RecordBatch:
        """Return the rows of a batch that are not deleted; `first` is the number of its first row in the file."""
        deleted = self._scan.deleted.get(file.path)
        if deleted is None:
            return batch
        begin, end = np.searchsorted(deleted, [first, first + batch.num_rows])
        if begin == end:
            return batch
        stays = np.ones(batch.num_rows, bool)
        stays[deleted[begin:end] - first] = False
        return batch.filter(pa.array(stays))

    # ---- batches --------------------------------------------------------------------------------------------

    def _kind_of_folder(self, name: str) -> pa.DataType:
        shown = next((f.name for f in self._scan.schema if self._stored_name(f.name) == name), None)
        return pa.string() if shown is None else self._scan.schema.field(shown).type

    def _with_folders(self, raw: pa.RecordBatch, file: File) -> pa.RecordBatch:
        """Return a batch with columns for the values encoded in its folders."""
        if not self._folders:
            return raw
        stored = raw.select([name for name in raw.schema.names if name not in self._folders])
        arrays, fields = list(stored.columns), list(stored.schema)
        for name, value in file.values:
            kind = self._kind_of_folder(name)
            arrays.append(pa.repeat(pa.scalar(value, kind), raw.num_rows))
            fields.append(pa.field(name, kind))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _to_event_types(
        self, batch: pa.RecordBatch, wanted: pa.Schema, lacks: Sequence[str], *, numbered: bool
    ) -> pa.RecordBatch:
        arrays, fields = [], []
        for field in wanted:
            name = self._stored_name(field.name)
            arrays.append(
                pa.nulls(batch.num_rows, field.type)
                if name in lacks
                else _to_event_type(batch.column(name), field.type)
            )
            fields.append(pa.field(field.name, arrays[-1].type))
        if numbered:
            arrays.append(batch.column(POSITION))
            fields.append(pa.field(POSITION, pa.int64()))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _read_fields(holder: pa.Schema | pa.StructType, paths: Sequence[tuple[str, ...]]) -> list[pa.Field]:
    """Return the fields at paths, and those around them without their other fields."""
    fields = []
    for field in holder:
        own = [path for path in paths if path[0] == field.name]
        if own and all(len(path) > 1 for path in own):
            fields.append(field.with_type(pa.struct(_read_fields(field.type, [path[1:] for path in own]))))
        elif own:
            fields.append(field)
    return fields


def _to_event_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a stored column in its type for the events; strings may keep their dictionary."""
    if array.type == kind:
        return array
    if pa.types.is_dictionary(array.type) and pa.types.is_string(array.type.value_type) and pa.types.is_string(kind):
        return array
    if pa.types.is_struct(kind):
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        parts = [_to_event_type(pc.struct_field(array, field.name), field.type) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null() if array.null_count else None)
    return array.cast(kind)
