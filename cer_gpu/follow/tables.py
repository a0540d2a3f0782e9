"""Tables in a live run: their commits that append rows are its parts, and a table can be the target.

Each version is read once, in its order.

The rows are first a file in the folder of the state, in the types of the table.  When the step is committed they are
published: the table is queried for the last step of this state that it has, and the rows are appended unless they are
there.  The commit that appends them records its step, too: publishing again changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from cer_gpu.errors import CheckpointError, EventsError, OptionError
from cer_gpu.follow.folder_watcher import STEP_FILES, Arrival, PollResult
from cer_gpu.follow.targets import LiveTarget, last_published
from cer_gpu.io.sinks import Sink
from cer_gpu.io.source import Source
from cer_gpu.io.stores import map_local
from cer_gpu.io.tables.names import TableName, package_of
from cer_gpu.io.tables.opening import open_table, table_name_of
from cer_gpu.io.tables.table import DataFile, TableSnapshot, source_of_files
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.order.sorting import sort_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cer_gpu.io.tables.delta import DeltaSnapshot
    from cer_gpu.io.tables.iceberg import IcebergSnapshot


class TableTarget(LiveTarget):
    """Table that gets the rows of each step by one commit.

    Parameters
    ----------
    name
        ``delta:PATH`` or ``iceberg:CATALOG.NAMESPACE.TABLE``.
    state
        Folder of the state.

    Raises
    ------
    OptionError
        When it is no table to append to.
    """

    def __init__(self, name: str, state: Path) -> None:
        table_name = TableName.parse(name)
        if table_name is None or table_name.snapshot is not None:
            raise OptionError(f"{name}: expected a table to append to: delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE")
        self.out: Path = state
        self.format: str = "arrow"
        self.usual: Path | None = None
        self.state: Path = state
        self._name = table_name
        self._application = f"cer-gpu:{os.path.realpath(state)}"

    @property
    def facts(self) -> dict[str, Any]:
        """The table."""
        return {"-o": self.identity}

    @property
    def identity(self) -> str:
        """Stable identifier of the table, stored in the log and checked on restart."""
        place = self._name.place
        if self._name.kind == "delta" and "://" not in place:
            place = os.path.realpath(place)
        return str(TableName(self._name.kind, place))

    @property
    def header(self) -> dict[str, Any]:
        """The name by which the table knows this state, also when its folder is moved."""
        return {"application": self._application}

    def check_new(self) -> None:
        """Refuse a table that has rows of a state that was in this folder."""
        step = self._committed()
        if step:
            raise OptionError(
                f"{self._name}: has the rows of {step:,} steps of a state in {self.state}, which is not there\n"
                "hint: restore the folder from a copy; or name another folder, and rows that the table has come again"
            )

    def resume(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Refuse a table that has other steps than the log."""
        header, *steps = entries
        self._application = header["application"]
        published, there = last_published(steps), self._committed()
        if there == published:
            return
        waiting = bool(steps) and published == steps[-1]["step"] and self.rows_of(steps[-1]) is not None
        if waiting and there == last_published(steps[:-1]):
            return
        expected = f"those up to step {published:,}" if published else "none"
        raise CheckpointError(
            f"{self._name}: expected the rows of the state {self.state}, {expected}, and found "
            f"{f'those up to step {there:,}' if there else 'none'}\n"
            "hint: the state or the table is an older copy, or the state was used in two places: restore both as they "
            "were at one time, or begin anew, with another folder and another table"
        )

    def _committed(self) -> int:
        from cer_gpu.io.tables.table_sinks import committed_step

        return committed_step(str(self._name), self._application) or 0

    def published(self, step: int) -> str:
        """Return the name of the table."""
        return str(self._name)

    def publish(self, entry: Mapping[str, Any]) -> None:
        """Append the rows, unless the table has them."""
        from cer_gpu.io.tables.table_sinks import append_once

        pending = self.rows_of(entry)
        if pending is None:
            return
        with map_local(pending) as file, pa.ipc.open_file(file) as rows:  # nobody else can cut it short
            batches = (rows.get_batch(i) for i in range(rows.num_record_batches))
            append_once(str(self._name), rows.schema, batches, (self._application, entry["step"]))
        pending.unlink()

    @contextmanager
    def writing(self, step: int, schema: pa.Schema) -> Iterator[Sink]:
        """Yield the sink for the rows of a step, cast to the types of the table, which the commit must have."""
        from cer_gpu.io.tables.table_sinks import target_conversion

        stored, cast = target_conversion(str(self._name), schema)
        with super().writing(step, stored) as sink:
            yield _Fitting(sink, cast)


class _Fitting:
    """Sink of rows that get the types of a table."""

    def __init__(self, sink: Sink, cast: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        self._sink, self._cast = sink, cast

    def write(self, batch: pa.RecordBatch) -> None:
        self._sink.write(self._cast(batch))


@dataclass(frozen=True)
class Addition:
    """Rows that one version of a table appended.

    Attributes
    ----------
    version
        The version, or the id of the snapshot.
    table
        The newer snapshot of the table that lists it, whose schema the rows have.
    files
        Returns the files with the rows.
    """

    version: str
    table: TableSnapshot
    files: Callable[[], Sequence[DataFile]]

    @cached_property
    def _data_files(self) -> Sequence[DataFile]:
        return self.files()

    @property
    def n_rows(self) -> int | None:
        """Number of rows, or None if unknown before they are read."""
        counts = [file.n_rows for file in self._data_files]
        reported = [count for count in counts if count is not None]
        return sum(reported) if len(reported) == len(counts) else None

    def source(self, expected: pa.Schema | None = None) -> Source:
        """Return the rows in the order in which they were appended.

        Parameters
        ----------
        expected
            Schema of rows before these: its columns have their types here, and are NULL if the table has them no more.

        Raises
        ------
        EventsError
            While it is read, when values are out of range of the types.
        """
        return source_of_files(self.table.name, self.table.schema if expected is None else expected, self._as(expected))

    def _as(self, expected: pa.Schema | None) -> Sequence[DataFile]:
        if expected is None:
            return self._data_files
        return [file.with_types(self.table.schema, expected) for file in self._data_files]


def appended_since(table: TableSnapshot, since: str | None) -> list[Addition]:
    """Return the additions after a version up to that of a table, the oldest first.

    Commits that change no data, such as compactions, are passed over.

    Parameters
    ----------
    table
        The newest snapshot, as `cer_gpu.io.tables.opening.open_table` opens it.
    since
        A `TableSnapshot.version`, or an `Addition.version`; if None, all rows of the snapshot are one addition.

    Raises
    ------
    EventsError
        When rows were deleted or rewritten since, the version is not one of this table, or its log no longer has it.
    """
    if since is None:
        return [Addition(table.version, table, table.files)] if table.version else []
    if since == table.version:
        return []
    if hasattr(table, "actions_of"):
        return _of_delta(cast("DeltaSnapshot", table), since)
    return _of_iceberg(cast("IcebergSnapshot", table), since)


def _refused_commit(table: TableSnapshot, version: object, operation: str) -> EventsError:
    return EventsError(
        f"{table.name}: {operation} in version {version} deleted or rewrote rows that were read before\n"
        "hint: a job over what is new reads tables to which rows are only appended; begin anew, with another state"
    )


# ---- Delta ----------------------------------------------------------------------------------------------------------


def _of_delta(table: DeltaSnapshot, since: str) -> list[Addition]:
    from cer_gpu.io.tables.delta import LoggedFile, data_files_later

    if not since.isdecimal() or int(since) > int(table.version):
        raise EventsError(f"{table.name}: there was no version {since}; the newest is {table.version}")
    additions = []
    for version in range(int(since) + 1, int(table.version) + 1):
        actions = table.actions_of(version)
        if actions is None:
            raise EventsError(
                f"{table.name}: version {version} is no longer in its log, so that the changes since version {since} "
                "are unknown\nhint: run more often than the log is cleaned up; begin anew, with another state"
            )
        if any(_changes(action.get("remove")) for action in actions):
            commit_info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
            raise _refused_commit(table, version, commit_info.get("operation", "a commit"))
        added = [action["add"] for action in actions if _changes(action.get("add"))]
        if added:
            logged = [LoggedFile.from_action(add) for add in added]
            additions.append(Addition(str(version), table, data_files_later(table, logged)))
    return additions


def _changes(action: dict[str, Any] | None) -> bool:
    return action is not None and action.get("dataChange", True)


# ---- Iceberg --------------------------------------------------------------------------------------------------------


def _of_iceberg(table: IcebergSnapshot, since: str) -> list[Addition]:
    operations = package_of("iceberg", "table.snapshots").Operation
    additions: list[Addition] = []
    for snapshot in table.ancestors():
        if str(snapshot.snapshot_id) == since:
            return additions[::-1]
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if operation not in (operations.APPEND, operations.REPLACE):
            raise _refused_commit(
                table, snapshot.snapshot_id, f"the operation {getattr(operation, 'value', operation)!r}"
            )
        if operation == operations.APPEND and snapshot.summary.get("added-data-files", "0") != "0":
            additions.append(Addition(str(snapshot.snapshot_id), table, table.appended_by(snapshot)))
        if since in (str(snapshot.parent_snapshot_id), "" if snapshot.parent_snapshot_id is None else None):
            return additions[::-1]
    if not since and table.version == "":
        return []
    raise EventsError(
        f"{table.name}: snapshot {since} is none from which the table came, or it has expired\n"
        "hint: run more often than snapshots expire; begin anew, with another state"
    )


STEP_ROWS = 1 << 22
"""Bound of the rows of the versions that one step reads; a step reads at least one version."""


@dataclass(frozen=True)
class _Version:
    """A version with the rows that it appended; `None` if it appended none."""

    table: TableSnapshot
    version: str
    addition: Addition | None

    def __str__(self) -> str:
        return f"{self.table.name}@{self.version}"


class TableArrivals:
    """Versions of a table of Delta, or snapshots of one of Iceberg, that appended rows.

    The first step reads all rows of the newest version.  Rows of one version are in the order of their times, if there
    is a time column, and else as they were written; their positions count the rows of the table in the order of its
    commits, as in an evaluation of the whole table.

    Parameters
    ----------
    name
        The table, without a snapshot.
    time_column
        If None, the order of the commits is that of the events.

    Raises
    ------
    EventsError
        When it is no table, or a snapshot of one.
    """

    def __init__(self, name: str, time_column: str | None) -> None:
        table_name = table_name_of(name)
        if table_name is None or table_name.snapshot is not None:
            raise EventsError(f"{name}: expected a table without a version: the versions that come are read")
        self._name, self._time_column = table_name, time_column
        self.noun = "version" if table_name.kind == "delta" else "snapshot"
        self._table: TableSnapshot | None = None

    @property
    def identity(self) -> str:
        """Stable identifier of the table, also distinct from that of a later table of the same name."""
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

    def poll(self, read: Mapping[str, int], but: Collection[str] = ()) -> PollResult:
        """Look for new versions, as `LiveSource.poll` says; names of `but` are none of a table."""
        table = open_table(self._name)
        since = list(read)[-1] if read else None
        arrivals, n_rows = list[Arrival](), 0
        for addition in appended_since(table, since):
            own = addition.n_rows or 0
            if arrivals and (len(arrivals) == STEP_FILES or n_rows + own > STEP_ROWS):
                break
            arrivals.append(Arrival(addition.version, _Version(table, addition.version, addition), own))
            n_rows += own
        if not arrivals and since not in (None, table.version):  # commits that changed no data, which may be forgotten
            arrivals = [Arrival(table.version, _Version(table, table.version, None), 0)]
        return PollResult(arrivals)

    def unacknowledged(self, read: Mapping[str, int]) -> Mapping[str, int]:
        """Return the newest version."""
        return dict(list(read.items())[-1:])

    def open(self, arrival: Arrival, first: int, expected: pa.Schema | None) -> Source | None:
        """Open the rows of a version, or return None if it appended none."""
        version: _Version = arrival.file
        if version.addition is None:
            return None
        schema = version.table.schema
        if expected is not None:
            own = [field for field in expected if field.name != ROW_COLUMN]
            schema = pa.schema([*own, *(field for field in schema if field.name not in expected.names)])
        source = _naming_version(version.addition.source(schema), version)
        if self._time_column is None:
            return source
        return _numbered_from(sort_source(source, self._time_column), first)


def _naming_version(source: Source, version: _Version) -> Source:
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


def _numbered_from(source: Source, first: int) -> Source:
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
