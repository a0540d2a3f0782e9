"""Commits of a table that append rows, as parts of a live source: each version is read once, in its order."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from cer_gpu.errors import EventsError
from cer_gpu.follow.folder_watcher import STEP_FILES, Arrival, PollResult
from cer_gpu.io.source import Source
from cer_gpu.io.tables.appended import Addition, appended_since
from cer_gpu.io.tables.names import TableName
from cer_gpu.io.tables.opening import open_table, table_name_of
from cer_gpu.io.tables.table import TableSnapshot
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.order.sorting import sort_source

STEP_ROWS = 1 << 22
"""Bound of the rows of the versions that one step reads; a step reads at least one version."""


@dataclass(frozen=True)
class _Version:
    """A version with the rows that it appended; None: it appended none."""

    table: TableSnapshot
    version: str
    addition: Addition | None

    def __str__(self) -> str:
        return f"{self.table.name}@{self.version}"


class TableArrivals:
    """Versions of a table of Delta, or snapshots of one of Iceberg, that appended rows.

    The first step reads all rows of the newest version.  Rows of one version are in the order of their times, if there
    is a time column, and else as they were written; their positions count the rows of the table in the order of its
    commits, as those of an evaluation of the whole table do.

    Parameters
    ----------
    name
        The table, without a snapshot.
    time_column
        None: the order of the commits is that of the events.

    Raises
    ------
    EventsError
        When it is no table, or a snapshot of one.
    """

    def __init__(self, name: str, time_column: str | None) -> None:
        given = table_name_of(name)
        if given is None or given.snapshot is not None:
            raise EventsError(f"{name}: expected a table without a version: the versions that come are read")
        self._name, self._time_column = given, time_column
        self.noun = "version" if given.kind == "delta" else "snapshot"
        self._table: TableSnapshot | None = None

    @property
    def identity(self) -> str:
        """The table, by which it is told from others, also from a later one in its place."""
        if self._table is None:
            self.check()
            assert self._table is not None
        place = self._name.place
        if self._name.kind == "delta" and "://" not in place:
            place = os.path.realpath(place)
        return f"{TableName(self._name.kind, place)} ({self._table.table_id})"

    def check(self) -> None:
        """Raise EventsError unless there is such a table."""
        self._table = open_table(self._name)

    def look(self, read: Mapping[str, int], but: Collection[str] = ()) -> PollResult:
        """Look for new versions, as `LiveSource.look` says; names of `but` are none of a table."""
        table = open_table(self._name)
        since = list(read)[-1] if read else None
        found, n_rows = list[Arrival](), 0
        for addition in appended_since(table, since):
            own = addition.n_rows or 0
            if found and (len(found) == STEP_FILES or n_rows + own > STEP_ROWS):
                break
            found.append(Arrival(addition.version, _Version(table, addition.version, addition), own))
            n_rows += own
        if not found and since not in (None, table.version):  # commits that changed no data, which may be forgotten
            found = [Arrival(table.version, _Version(table, table.version, None), 0)]
        return PollResult(found)

    def remembered(self, read: Mapping[str, int]) -> Mapping[str, int]:
        """Return the newest version."""
        return dict(list(read.items())[-1:])

    def open(self, arrival: Arrival, first: int, expected: pa.Schema | None) -> Source | None:
        """Open the rows of a version; None: it appended none."""
        version: _Version = arrival.file
        if version.addition is None:
            return None
        schema = version.table.schema
        if expected is not None:
            own = [field for field in expected if field.name != ROW_COLUMN]
            schema = pa.schema([*own, *(field for field in schema if field.name not in expected.names)])
        source = _named(version.addition.source(schema), version)
        if self._time_column is None:
            return source
        return _counted(sort_source(source, self._time_column), first)


def _named(source: Source, version: _Version) -> Source:
    """Return the rows, the reading of columns that the table has no more being an error."""

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        gone = [name for name in columns if name not in version.table.schema.names]
        if gone:
            raise EventsError(
                f"{version}: the table has no column {', '.join(map(repr, gone))} any more\n"
                "hint: it was renamed or dropped: queries that name the new one begin anew, with another state"
            )
        return source.batches(columns)

    return replace(source, read=read, parts=None, without=None)


def _counted(source: Source, first: int) -> Source:
    """Return sorted rows whose numbers count from a position on."""
    if not first:
        return source

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for batch in source.batches(columns):
            if ROW_COLUMN not in batch.schema.names:
                yield batch
                continue
            at = batch.schema.get_field_index(ROW_COLUMN)
            numbers = pa.array(batch.column(at).to_numpy() + first)
            yield batch.set_column(at, batch.schema.field(at), numbers)

    return Source(source.schema, read, source.n_rows)
