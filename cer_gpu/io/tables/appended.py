"""Events that were appended to a table since one of its versions, version by version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from cer_gpu.errors import EventsError
from cer_gpu.io.source import Source
from cer_gpu.io.tables.names import package_of
from cer_gpu.io.tables.table import DataFile, TableSnapshot, source_of_files

if TYPE_CHECKING:
    from cer_gpu.io.tables.delta import DeltaSnapshot
    from cer_gpu.io.tables.iceberg import IcebergSnapshot


@dataclass(frozen=True)
class Addition:
    """Rows that one version of a table appended.

    Attributes
    ----------
    version
        The version, or the id of the snapshot.
    table
        The newer snapshot of the table that told of it, whose schema the rows have.
    files
        Returns the files with the rows.
    """

    version: str
    table: TableSnapshot
    files: Callable[[], Sequence[DataFile]]

    @cached_property
    def _files(self) -> Sequence[DataFile]:
        return self.files()

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None: it is not known before they are read."""
        counts = [file.n_rows for file in self._files]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def source(self, expected: pa.Schema | None = None) -> Source:
        """Return the rows in the order in which they were appended.

        Parameters
        ----------
        expected
            Schema of rows before these: its columns have their types here, and are NULL if the table has them no more.

        Raises
        ------
        EventsError
            While it is read, when values do not fit the types.
        """
        return source_of_files(self.table.name, self.table.schema if expected is None else expected, self._as(expected))

    def _as(self, expected: pa.Schema | None) -> Sequence[DataFile]:
        if expected is None:
            return self._files
        return [file.with_types(self.table.schema, expected) for file in self._files]


def appended_since(table: TableSnapshot, since: str | None) -> list[Addition]:
    """Return the additions after a version up to that of a table, the oldest first.

    Commits that change no data, such as compactions, are passed over.

    Parameters
    ----------
    table
        The newest snapshot, as `cer_gpu.io.tables.opening.open_table` opens it.
    since
        A `TableSnapshot.version`, or an `Addition.version`; None: all rows of the snapshot are one addition.

    Raises
    ------
    EventsError
        When rows were deleted or rewritten since, the version is none of this table, or its log no longer tells.
    """
    if since is None:
        return [Addition(table.version, table, table.files)] if table.version else []
    if since == table.version:
        return []
    if hasattr(table, "actions_of"):
        return _of_delta(cast("DeltaSnapshot", table), since)
    return _of_iceberg(cast("IcebergSnapshot", table), since)


def _refused(table: TableSnapshot, version: object, operation: str) -> EventsError:
    return EventsError(
        f"{table.name}: {operation} in version {version} deleted or rewrote rows that were read before\n"
        "hint: a job over what is new reads tables to which rows are only appended; begin anew, with another state"
    )


# ---- Delta ----------------------------------------------------------------------------------------------------------


def _of_delta(table: DeltaSnapshot, since: str) -> list[Addition]:
    from cer_gpu.io.tables.delta import LoggedFile, data_files_later

    if not since.isdecimal() or int(since) > int(table.version):
        raise EventsError(f"{table.name}: there was no version {since}; the newest is {table.version}")
    found = []
    for version in range(int(since) + 1, int(table.version) + 1):
        actions = table.actions_of(version)
        if actions is None:
            raise EventsError(
                f"{table.name}: version {version} is no longer in its log, so that what came since version {since} "
                "cannot be told\nhint: run more often than the log is cleaned up; begin anew, with another state"
            )
        if any(_changes(action.get("remove")) for action in actions):
            told: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
            raise _refused(table, version, told.get("operation", "a commit"))
        added = [action["add"] for action in actions if _changes(action.get("add"))]
        if added:
            logged = [LoggedFile.of(add) for add in added]
            found.append(Addition(str(version), table, data_files_later(table, logged)))
    return found


def _changes(action: dict[str, Any] | None) -> bool:
    return action is not None and action.get("dataChange", True)


# ---- Iceberg --------------------------------------------------------------------------------------------------------


def _of_iceberg(table: IcebergSnapshot, since: str) -> list[Addition]:
    operations = package_of("iceberg", "table.snapshots").Operation
    found: list[Addition] = []
    for snapshot in table.ancestors():
        if str(snapshot.snapshot_id) == since:
            return found[::-1]
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if operation not in (operations.APPEND, operations.REPLACE):
            raise _refused(table, snapshot.snapshot_id, f"the operation {getattr(operation, 'value', operation)!r}")
        if operation == operations.APPEND and snapshot.summary.get("added-data-files", "0") != "0":
            found.append(Addition(str(snapshot.snapshot_id), table, table.appended_by(snapshot)))
        if since in (str(snapshot.parent_snapshot_id), "" if snapshot.parent_snapshot_id is None else None):
            return found[::-1]
    if not since and table.version == "":
        return []
    raise EventsError(
        f"{table.name}: snapshot {since} is none from which the table came, or it has expired\n"
        "hint: run more often than snapshots expire; begin anew, with another state"
    )
