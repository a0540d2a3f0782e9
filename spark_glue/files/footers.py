"""Facts of stored files from their footers: row groups, and bounds of the columns of order and types.

No data pages are read, except of the order column where a file has no statistics of it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.errors import EventsError
from spark_glue.files.casting import in_unit, orders
from spark_glue.files.folders import bucket_of, folder_values
from spark_glue.files.opening import Opener, reading
from spark_glue.files.stored_events import DirectReadError, File, FileFooters, Group, Scan
from spark_glue.files.stored_formats import STORED_FORMATS, Bounds, GroupFacts, ScanColumns, as_integers

THREADS, LOCAL_THREADS = 16, 2
"""Largest number of footers read at once from a store, where most of the time of one is spent waiting for it, and from
this machine, where Python's lock lets more threads only wait for one another."""
_PATHS_AT_ONCE = 64
"""Most footers that a thread reads before it returns them."""

_T = TypeVar("_T")
_R = TypeVar("_R")
_Survey = Callable[[list[tuple[str, int]]], Sequence[Bounds]]
_FooterJob = Callable[["FooterTask"], list["Footer"]]


def find_footers(
    scan: Scan,
    type_column: str | None,
    order_column: str,
    *,
    columns: Sequence[str] | None = None,
    survey: _Survey | None = None,
    job: _FooterJob | None = None,
    opener: Opener | None = None,
) -> FileFooters:
    """Find the files of a scan, their row groups, and the bounds of their columns of order and of types.

    Parameters
    ----------
    scan
    type_column
        Column of the events that has their types, or None.
    order_column
        First column of the order.
    columns
        Columns of the events that the query reads; by default (None) all of ``scan.schema``.
    survey
        Function that reads the bounds of the order column of row groups, given (path, number of the row group), where
        footers do not have them; if None, threads of this process read them.
    job
        Function that reads the footers; if None, threads of this process do.
    opener
        Opener of the files; by default (None) that of ``scan.options``.

    Raises
    ------
    DirectReadError
        If the order column cannot order files, or a file does not have the columns in types that a task can read
        as Spark does.
    EventsError
        If there is no such file.
    """
    opener = Opener(scan.options) if opener is None else opener
    columns = scan.schema.names if columns is None else columns
    footers = _Footers(scan, type_column, order_column, columns, opener)
    if job is None:
        read = footers.mapped(footers.read, scan.paths)
    else:
        read = job(FooterTask(scan, type_column, order_column, columns, opener))
    unknown = [(file.path, part.number) for file in read for part in file.parts if part.bounds is None]
    if not unknown:
        bounds: Sequence[Bounds] = []
    elif survey is not None:
        bounds = survey(unknown)
    else:
        bounds = footers.mapped(footers.survey, unknown)
    return _file_footers(scan, read, dict(zip(unknown, bounds, strict=True)))


class FooterTask:
    """Reader of the footers of files by their numbers, which tasks get.

    Parameters
    ----------
    scan, type_column, order_column, columns, opener
        As for `find_footers`.

    Attributes
    ----------
    paths : tuple of str
    """

    def __init__(
        self, scan: Scan, type_column: str | None, order_column: str, columns: Sequence[str], opener: Opener
    ) -> None:
        self.paths: tuple[str, ...] = scan.paths
        bare = replace(scan, paths=scan.paths[:1], deleted={})
        # a reader of footers, which depends on the formats of this process, is made in each task
        self._footers = partial(_Footers, bare, type_column, order_column, columns, opener)

    def read(self, numbers: Sequence[int]) -> list[Footer | None]:
        """Return footers, or None in place of those that cannot be read: `error_of` says why."""
        footers = self._footers()

        def footer(number: int) -> Footer | None:
            try:
                return footers.read(self.paths[number])
            except (DirectReadError, EventsError):
                return None

        return footers.mapped(footer, numbers)

    def read_again(self, number: int) -> Footer:
        """Return a footer.

        Raises
        ------
        DirectReadError
        EventsError
            If it cannot be read.
        """
        return self._footers().read(self.paths[number])


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
        for values in opener.format(path).values(opener, path, group, column):
            n_nulls += values.null_count
            bounds = pc.min_max(as_integers(values))
            if bounds["min"].is_valid:
                lows.append(in_unit(bounds["min"].as_py(), values.type, kind, up=False))
                highs.append(in_unit(bounds["max"].as_py(), values.type, kind, up=True))
    return min(lows, default=None), max(highs, default=None), n_nulls


def _file_footers(scan: Scan, read: list[Footer], surveys: dict[tuple[str, int], Bounds]) -> FileFooters:
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
    return FileFooters(scan, tuple(files), tuple(groups))


@dataclass(frozen=True, slots=True)
class Footer:
    """Facts of a file by its path and its footer.

    Attributes
    ----------
    path, size, stamp, values, bucket, lacks
        As in `File`.
    parts : list of GroupFacts
    """

    path: str
    size: int
    stamp: int
    values: tuple[tuple[str, Any], ...]
    bucket: int | None
    parts: list[GroupFacts] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)


class _Footers:
    """Reader of footers."""

    def __init__(
        self, scan: Scan, type_column: str | None, order_column: str, columns: Sequence[str], opener: Opener
    ) -> None:
        names = scan.schema.names
        if names.count(order_column) != 1:
            raise DirectReadError(f"the stream is ordered by {order_column!r} first, which is no column at the top")
        orders(scan.schema.field(order_column).type, order_column)
        wanted = dict.fromkeys([order_column, *columns])
        unknown = [name for name in wanted if names.count(name) != 1]
        if unknown:
            raise DirectReadError(f"no column {unknown[0]!r} (or more than one) in the events")
        by_name = {scan.stored.get(name, name): scan.schema.field(name).type for name in names}
        stored = {name: by_name[name] for name in (scan.stored.get(name, name) for name in wanted)}
        self.columns = ScanColumns(
            scan,
            scan.stored.get(order_column, order_column),
            scan.schema.field(order_column).type,
            None if type_column is None else scan.stored.get(type_column, type_column),
            {name: kind for name, kind in stored.items() if name not in scan.folders},
        )
        self.folders = {name: by_name.get(name) for name in scan.folders}
        self.scan, self.opener = scan, opener
        self.readers = {format: format.footers(opener, self.columns) for format in STORED_FORMATS}

    def mapped(self, function: Callable[[_T], _R], arguments: Sequence[_T]) -> list[_R]:
        """Return the results of a function that waits for files, of many arguments at once."""
        n_threads = LOCAL_THREADS if self.is_local else THREADS
        n_at_once = max(1, min(_PATHS_AT_ONCE, len(arguments) // (2 * n_threads)))
        some = [arguments[begin : begin + n_at_once] for begin in range(0, len(arguments), n_at_once)]
        with ThreadPoolExecutor(max(1, min(n_threads, len(some))), thread_name_prefix="cer_gpu footers") as pool:
            try:
                return [
                    each
                    for results in pool.map(lambda chosen: [function(argument) for argument in chosen], some)
                    for each in results
                ]
            finally:
                pool.shutdown(cancel_futures=True)

    @cached_property
    def is_local(self) -> bool:
        """True if the files are of this machine."""
        return all(self.opener.local(path) is not None for path in self.scan.paths[:1])

    def read(self, path: str) -> Footer:
        """Read the footer of a file.

        Raises
        ------
        DirectReadError
        EventsError
        """
        with _reading_errors():
            size, stamp = self.opener.stat(path)  # before the footer: a change after it will be noticed
            values = self.scan.values.get(path) or folder_values(path, self.folders)
            footer = Footer(path, size, stamp, values, self._bucket(path))
            with reading(path):
                parts, lacks = self.readers[self.opener.format(path)].read(path, dict(footer.values))
        footer.parts.extend(parts)
        footer.lacks.extend(lacks)
        return footer

    def survey(self, at: tuple[str, int]) -> Bounds:
        """Read the bounds of the order column in a row group, given its file and its number.

        Raises
        ------
        DirectReadError
        EventsError
        """
        with _reading_errors():
            return surveyed(self.opener, *at, self.columns.order, self.columns.order_type)

    def _bucket(self, path: str) -> int | None:
        return bucket_of(path) if self.scan.bucket_by else None


@contextlib.contextmanager
def _reading_errors() -> Iterator[None]:
    """Raise an error of reading as a `DirectReadError`, unless there is no such file: Spark may know a way."""
    try:
        yield
    except EventsError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise
        raise DirectReadError(str(error)) from error
