"""A snapshot of a table: its files in the order of their commits, and their rows as a source of events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.columnar.validation import validated
from cer_gpu.errors import EventsError
from cer_gpu.io.source import BATCH_ROWS, READ_ERRORS, ColumnBounds, MayHold, Parts, Source, prefetch
from cer_gpu.io.tables.names import TableName


class PlainFile(NamedTuple):
    """A Parquet file on this machine whose rows, except deleted ones, are exactly rows of a table.

    Attributes
    ----------
    path
    folders
        Values of partition columns by their stored names, which are not in the file.
    deleted : ndarray of int64, or None
        Numbers of the deleted rows, ascending, or None if there are none.
    """

    path: str
    folders: Mapping[str, Any]
    deleted: npt.NDArray[np.int64] | None = None


class PlainFiles(NamedTuple):
    """The Parquet files of a snapshot.

    Attributes
    ----------
    files : list of PlainFile
        Unordered.
    stored : mapping from str to str
        The name that a column has in the files, where that is another one.
    """

    files: list[PlainFile]
    stored: Mapping[str, str]


@dataclass(frozen=True)
class DataFile:
    """A file of a table.

    Attributes
    ----------
    name
        Path of the file, for messages.
    read
        Yields the rows of the file that are not deleted, in order, with the requested columns of the table's schema.
    n_rows
        Number of these rows, or None if unknown before they are read.
    begins
        Returns the first rows of its parts, as `Parts.begins`; None if it is one part.
    read_part
        Reads some of these rows, as `Parts.read`; None if it is one part.
    bounds
        ColumnBounds of its columns by name, as far as they are known.
    """

    name: str
    read: Callable[[list[str]], Iterator[pa.RecordBatch]]
    n_rows: int | None
    begins: Callable[[], Sequence[int]] | None = None
    read_part: Callable[[list[str], int, int], Iterator[pa.RecordBatch]] | None = None
    bounds: Mapping[str, ColumnBounds] = field(default_factory=dict)

    def with_types(self, own: pa.Schema, expected: pa.Schema) -> DataFile:
        """Return the file with the types of `expected`; columns that are not in its schema, `own`, are NULL."""

        def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
            there = [name for name in columns if name in own.names]
            for batch in self.read(there):
                arrays = [
                    conformed(batch.column(name), expected.field(name).type)
                    if name in there
                    else pa.nulls(batch.num_rows, expected.field(name).type)
                    for name in columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=columns) if columns else batch

        return replace(self, read=read, begins=None, read_part=None)

    def without_values(self, schema: pa.Schema, keep: frozenset[str]) -> DataFile:
        """Return the file with NULL in all columns except `keep`, the only ones that are read."""
        n_rows = self.n_rows
        if n_rows is None:
            return self

        def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
            own = [name for name in columns if name in keep]
            for batch in self.read(own) if own else _empty_rows(n_rows):
                arrays = [
                    batch.column(name) if name in keep else pa.nulls(batch.num_rows, schema.field(name).type)
                    for name in columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=columns) if columns else batch

        return replace(self, read=read, begins=None, read_part=None)


def _empty_rows(n_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield rows without any column that a query reads."""
    for first in range(0, n_rows, BATCH_ROWS):
        yield pa.RecordBatch.from_arrays([pa.nulls(min(BATCH_ROWS, n_rows - first))], names=[""])


class TableSnapshot(ABC):
    """A snapshot of a table, which does not change with the table.

    Attributes
    ----------
    name : str
        The table, for messages.
    pinned : TableName
        Name of the snapshot for other processes, without a catalogue if possible.
    table_id : str
        Identifier of the table; a table that replaces it has another one.
    version : str
        Version (Delta) or snapshot id (Iceberg); "" for an Iceberg table without a snapshot.
    schema : pyarrow.Schema
    """

    name: str
    pinned: TableName
    table_id: str
    version: str
    schema: pa.Schema

    @abstractmethod
    def files(self) -> list[DataFile]:
        """Return the files of the snapshot, in the order of their commits, and within a commit sorted by name."""

    @abstractmethod
    def plain_files(self) -> PlainFiles | None:
        """Return the files if a Parquet reader finds the rows of the table in them, or None.

        None for files in a store, and if values of other than partition columns, or types, are only in the metadata.
        """

    def source(self) -> Source:
        """Return all rows of the snapshot, as a source whose rows are ordered only by their times."""
        return source_of_files(self.name, self.schema, self.files())


def source_of_files(name: str, schema: pa.Schema, files: Sequence[DataFile]) -> Source:
    """Return the rows of files one after the other.

    Parameters
    ----------
    name
        The table, for messages.
    schema
        Schema of the rows of the files.
    files
    """
    origins: list[tuple[int, str]] = []

    def read_file(file: DataFile, columns: list[str], first: int) -> Iterator[pa.RecordBatch]:
        with reading_file(file.name):
            yield from validated(file.read(columns), columns, file.name, first, runs=False)

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        n_rows = 0
        for i, file in enumerate(files):
            origins[i:] = [(n_rows, file.name)]
            for batch in read_file(file, columns, n_rows):
                yield batch
                n_rows += batch.num_rows

    counts = [file.n_rows for file in files if file.n_rows is not None]
    firsts = [0, *accumulate(counts)]

    def read_parts(columns: list[str], begin: int, end: int) -> Iterator[pa.RecordBatch]:
        for file, (first, last) in zip(files, pairwise(firsts), strict=True):
            if not (begin < last and first < end):
                continue
            start, stop = max(begin, first), min(end, last)
            if file.read_part is None:  # the file is one part
                yield from _first_rows(read_file(file, columns, first), stop - start)
                continue
            with reading_file(file.name):
                batches = file.read_part(columns, start - first, stop - first)
                yield from validated(batches, columns, file.name, start, runs=False)

    def without(may_hold: MayHold, keep: frozenset[str]) -> Source:
        needed = may_hold([file.bounds for file in files])
        return source_of_files(
            name,
            schema,
            [
                file if is_needed else file.without_values(schema, keep)
                for file, is_needed in zip(files, needed, strict=True)
            ],
        )

    in_parts = len(counts) == len(files)
    if in_parts:
        origins += [(first, file.name) for first, file in zip(firsts, files, strict=False)]
    return Source(
        schema,
        lambda columns: prefetch(read(columns)),
        firsts[-1] if in_parts else None,
        origins,
        rereadable=True,
        reads_ahead=True,
        parts=_PartsOfFiles(files, firsts, read_parts) if in_parts else None,
        ordered=False,
        without=without,
    )


class _PartsOfFiles(Parts):
    """Parts of files; `begins` is computed lazily, so that files that are not read stay closed."""

    def __init__(
        self,
        files: Sequence[DataFile],
        firsts: Sequence[int],
        read: Callable[[list[str], int, int], Iterator[pa.RecordBatch]],
    ) -> None:
        object.__setattr__(self, "read", read)
        object.__setattr__(self, "_places", (files, firsts))

    @cached_property
    def begins(self) -> list[int]:
        """Positions of the first rows of the parts, and the number of all rows."""
        files, firsts = self._places  # type: ignore[attr-defined]
        begins = []
        for file, first in zip(files, firsts, strict=False):
            with reading_file(file.name):
                begins += [first + begin for begin in ((0,) if file.begins is None else file.begins()[:-1])]
        return [*begins, firsts[-1]]


def _first_rows(batches: Iterator[pa.RecordBatch], n_rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, n_rows)
        n_rows -= batch.num_rows
        if n_rows <= 0:
            return


@contextmanager
def reading_file(name: str) -> Iterator[None]:
    """Add the name of the file to errors of reading a table."""
    try:
        yield
    except EventsError:
        raise
    except FileNotFoundError as error:
        raise EventsError(
            f"{name}: is not there, though the table names it\n"
            "hint: it was removed (VACUUM, expired snapshots); read a newer version"
        ) from error
    except READ_ERRORS as error:
        raise EventsError(f"{name}: cannot be read: {error}") from error


def conformed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column cast to a type of a table; strings may be a dictionary.

    Raises
    ------
    pyarrow.ArrowException
        When its values cannot be cast.
    """
    if column.type == kind or (pa.types.is_dictionary(column.type) and column.type.value_type == kind):
        return column
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode().cast(kind)
    return column.cast(kind)
