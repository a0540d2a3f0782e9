"""Stored files, opened by their paths or URIs on the driver and by workers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from cer_gpu.errors import EventsError
from cer_gpu.io.stores import Address, listing, path_in_store, uri_in_store
from cer_gpu.io.tables.names import is_table_name
from spark_glue.files.stored_events import DirectReadError, File
from spark_glue.files.stored_formats import STORED_FORMATS, StoredFormat, named_format
from spark_glue.files.stores import address_of, relevant, store

_READ_ERRORS = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError)


@dataclass(frozen=True)
class Opener:
    """Way to open stored files; it can be pickled, and workers get it.

    Local files are read piece by piece, and never mapped: one that is cut short meanwhile is an error, and does not end
    the worker.  Those of other stores are read in few large requests.

    Attributes
    ----------
    options : mapping from str to str
        Settings of Hadoop, with credentials: they are left out of its representation.
    filesystem : pyarrow.fs.FileSystem or None
        The file system of all paths; if None, each path has its own.

    Examples
    --------
    >>> Opener({"fs.s3a.endpoint.region": "eu-west-1"})
    Opener(filesystem=None)
    """

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    filesystem: fs.FileSystem | None = None

    def __post_init__(self) -> None:
        """Keep only the settings that say how files are opened."""
        object.__setattr__(self, "options", relevant(self.options))

    def parquet(self, path: str, **options: Any) -> pq.ParquetFile:
        """Open a Parquet file; `options` as in `pyarrow.parquet.ParquetFile`.

        Timestamps of Parquet's INT96 come in microseconds, as in Spark.

        Raises
        ------
        EventsError
            If the file cannot be read.
        DirectReadError
            If neither pyarrow nor fsspec knows the file system.
        """
        options = {"coerce_int96_timestamp_unit": "us", **options}
        local = self.local(path)
        with reading(path):
            if local is not None:
                # neither mapped nor buffered: Arrow takes a buffered column that ends early for one at its end
                return pq.ParquetFile(local, memory_map=False, **{"pre_buffer": False, **options})
            own, place = self.place(path)
            return pq.ParquetFile(place, filesystem=own, **{"pre_buffer": True, **options})

    def ipc(self, path: str, columns: Iterable[str] | None = None) -> pa.ipc.RecordBatchFileReader:
        """Open an Arrow IPC file.

        Parameters
        ----------
        path
        columns
            Columns at the top that are read, at least one; all if None.

        Raises
        ------
        EventsError
            If the file cannot be read, has no such column (or two), or is a stream, which has no footer.
        DirectReadError
            If neither pyarrow nor fsspec knows the file system.
        """
        local = self.local(path)
        with reading(path):
            if local is not None:
                source = pa.OSFile(local)
            else:
                own, place = self.place(path)
                source = own.open_input_file(place)
            reader = pa.ipc.open_file(source)
            if columns is None:
                return reader
            numbers = [reader.schema.get_field_index(name) for name in columns]
            if -1 in numbers:
                name = list(columns)[numbers.index(-1)]
                raise EventsError(f"{path}: no column {name!r} (or more than one)")
            return pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=numbers))

    def format(self, path: str) -> StoredFormat:
        """Return the format of a file, by its name, or else by its first bytes.

        Raises
        ------
        DirectReadError
            If the file is in another format.
        EventsError
            If the file cannot be read.
        """
        stored_format = named_format(path)
        if stored_format is None:
            with reading(path):
                own, place = self.place(path)
                with own.open_input_file(place) as file:
                    head = file.read(max(len(format.magic) for format in STORED_FORMATS))
            stored_format = next((format for format in STORED_FORMATS if head.startswith(format.magic)), None)
        if stored_format is None:
            titles = " nor ".join(f"{format.title} file" for format in STORED_FORMATS)
            raise DirectReadError(f"{path}: neither {titles}")
        return stored_format

    def stat(self, path: str) -> tuple[int, int]:
        """Return the size of a file in bytes, and the time of its last change in nanoseconds (0: not known).

        Raises
        ------
        EventsError
            If there is no such file.
        """
        local = self.local(path)
        with reading(path):
            if local is not None:
                status = os.stat(local)
                return status.st_size, status.st_mtime_ns
            own, place = self.place(path)
            info = own.get_file_info(place)
            if info.type != fs.FileType.File:
                raise FileNotFoundError(path)
            return info.size, info.mtime_ns or 0

    def files(self, paths: Iterable[str | os.PathLike[str]]) -> list[str]:
        """Return the files of paths, ascending.

        Parameters
        ----------
        paths
            Files; folders, whose files are read recursively if their names end in .parquet, .pq,
            .parq, .arrow, .feather or .ipc and no name on the way begins with ``.`` or ``_`` (but ``_column=value``
            does); and globs of either, with ``*``, ``**``, ``?``, ``[abc]`` and ``{a,b}``.

        Returns
        -------
        list of str
            Local paths are absolute; those given as URIs stay URIs.

        Raises
        ------
        EventsError
            If there is no such file, or none in a folder.
        DirectReadError
            If a folder is a table of Delta, Hudi or Iceberg, not all of whose files are its rows, or neither pyarrow
            nor fsspec knows the file system.
        """
        return sorted(file for path in paths for file in self._files_of_path(os.fspath(path)))

    def _files_of_path(self, path: str) -> list[str]:
        """Return the files of one path, in any order."""
        if is_table_name(path):
            raise DirectReadError(
                f"{path}: is the name of a table, and no path of files\n"
                f"hint: give a DataFrame: spark_glue.read(spark, {path!r})"
            )
        address = address_of(path)
        if not address.scheme and self.filesystem is None:
            address = Address("", "", os.path.abspath(path))
        address = dataclasses.replace(address, path=address.path.rstrip("/") or "/")
        own, place = self.place(address)
        with reading(path):
            listed = listing(own, place)
        if listed is None:
            return [address.uri]
        if listed.table is not None:
            own_reader = f"spark_glue.read(spark, {f'delta:{path}'!r})"
            hint = own_reader if listed.table == "Delta" else f"spark.read.format({listed.table.lower()!r}).load(...)"
            raise DirectReadError(
                f"{path}: a table of {listed.table}, whose files may hold rows that were deleted since\n"
                f"hint: give a DataFrame: {hint}"
            )
        paths = [
            uri_in_store(address, place, each) for each, names in listed.files if named_format(names[-1]) is not None
        ]
        if not paths:
            endings = ", ".join(ending for format in STORED_FORMATS for ending in format.endings)
            raise EventsError(f"{path}: no file of events there\nhint: expected names that end in {endings}")
        return paths

    def local(self, path: str) -> str | None:
        """Return the path of a file of this machine, or None if another store has it."""
        if self.filesystem is not None:
            return None
        address = address_of(path)
        return address.path if address.is_local else None

    def place(self, path: str | Address) -> tuple[fs.FileSystem, str]:
        """Return the file system of a path, and its path there."""
        address = address_of(path) if isinstance(path, str) else path
        own = self.filesystem or store(address, self.options)
        return own, path_in_store(address, own)


def check_file(opener: Opener, file: File) -> None:
    """Raise if a file is not what it was when the job was planned.

    Raises
    ------
    EventsError
        If its size or the time of its last change differs, or it is gone.
    """
    hint = "hint: run again; write files under another name and rename them, so that each has its rows at once"
    try:
        size, stamp = opener.stat(file.path)
    except EventsError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise EventsError(f"{file.path}: changed since the job was planned: it is gone\n{hint}") from error
        raise
    if size != file.size:
        raise EventsError(
            f"{file.path}: changed since the job was planned: it had {file.size:,} bytes, and has {size:,}\n{hint}"
        )
    if stamp != file.stamp and stamp and file.stamp:
        raise EventsError(f"{file.path}: changed since the job was planned: it was written again\n{hint}")


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Raise errors of reading as an `EventsError` that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise EventsError(f"{path}: no such file") from error
    except _READ_ERRORS as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise EventsError(f"{path}: cannot be read: {reason}") from error
