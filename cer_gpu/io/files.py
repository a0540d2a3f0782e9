"""Files of events named by paths, folders, globs and URIs of stores, read one after the other."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from itertools import accumulate
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from cer_gpu.columnar.record_batches import constant_column
from cer_gpu.columnar.validation import validated
from cer_gpu.errors import EventsError, nearest_file
from cer_gpu.io.compression import ZIP_ENDING
from cer_gpu.io.folders import entries
from cer_gpu.io.formats import ENDINGS, FORMAT_NAMES, format_of, is_name_of_events, is_recognised, stored_format
from cer_gpu.io.logs.processes import convert_ahead
from cer_gpu.io.one_schema import in_one_schema, with_stream_schema
from cer_gpu.io.source import READ_ERRORS, FilesOfRows, Parts, Source, check_columns, check_names, prefetch
from cer_gpu.io.stores import Address, StoredFile, StoreListing, listing, open_store, path_in_store, uri_in_store
from cer_gpu.io.string_types import WiderTypes
from cer_gpu.io.text_options import TEXT_HINT, USUAL, TextOptions
from cer_gpu.printable import counted, utf8

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Representation of NULL in the name of a Hive partition folder."""
_LISTED = 8
"""Maximum number of skipped files that a note lists."""
_HINT_OF_NAMES = "tables are delta:PATH and iceberg:CATALOG.NAMESPACE.TABLE; a file whose name has a colon is ./NAME"


class UnreadableFileError(EventsError):
    """File of events that cannot be read.

    Parameters
    ----------
    message
    file
        Name of the file.
    """

    def __init__(self, message: str, file: str) -> None:
        super().__init__(message)
        self.file: str
        self.file = file


Unreadable = dict[str, str]
"""Errors of files that were skipped because they cannot be read, by the names of the files."""


@dataclass(frozen=True)
class Files:
    """Files of events with options for reading them.

    It can be used wherever a path or a list of paths of events can.

    Parameters
    ----------
    paths
        Path, folder, glob or URI, or a sequence of these.
    null_values
        Strings of fields of CSV that are NULL; by default (None) those of pyarrow, such as the empty field, ``NA``,
        ``N/A``, ``NULL``, ``null`` and ``NaN``.  In string columns only the empty field is NULL, if it is among them.
    strings_can_be_null
        True: all such fields are NULL in string columns, too, where they would otherwise remain strings.
    quoted_strings_can_be_null
        False: a quoted field is never NULL; in string columns, all other such fields are NULL, too.
    empty_is_text
        True: an empty field of a string column of CSV is the empty string.
    delimiter
        Separator of CSV; by default (None) the most frequent one of ``, ; | `` and tab in the header.
    decimal_comma
        True: numbers of CSV have a decimal comma: ``3,14``.
    time_format
        Format of times that are not in ISO 8601, as of ``strptime`` (``"%d/%m/%Y %H:%M:%S.%f"``): string columns that
        match it are times.  Or formats by column name, also ``"epoch"``: seconds since 1970.
    column_types
        Types of columns of text files (pyarrow's, or their names), in place of those inferred from the first rows.
    max_decompressed
        Maximum size of one compressed file, or of all files of an archive, after decompression: a number of bytes, or a
        string such as ``"100 GB"``; by default (None) 64 GiB.

    Notes
    -----
    The first three are those of `pyarrow.csv.ConvertOptions`.

    Examples
    --------
    >>> import cer_gpu
    >>> events = cer_gpu.Files("events.csv", null_values=["", "-"], time_format={"at": "%d.%m.%Y %H:%M"})
    >>> events.null_values
    ('', '-')
    """

    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    _: KW_ONLY
    null_values: Sequence[str] | None = None
    strings_can_be_null: bool = False
    quoted_strings_can_be_null: bool = True
    empty_is_text: bool = False
    delimiter: str | None = None
    decimal_comma: bool = False
    time_format: str | Mapping[str, str] | None = None
    column_types: Mapping[str, pa.DataType | str] | None = None
    max_decompressed: str | int | None = None

    def __post_init__(self) -> None:
        """Check the options.

        Raises
        ------
        OptionError
            When a value is invalid.
        """
        options = self.options()
        object.__setattr__(self, "null_values", options.null_values)

    def each(self) -> list[str | os.PathLike[str]]:
        """Return the paths as a list."""
        return [self.paths] if isinstance(self.paths, str | os.PathLike) else list(self.paths)

    def options(self) -> TextOptions:
        """Return the options for reading text files."""
        own = {field.name: getattr(self, field.name) for field in fields(Files) if field.name != "paths"}
        return TextOptions.from_values(**own)

    def with_types(self, types: Mapping[str, pa.DataType]) -> Files:
        """Return the same files with other types of columns."""
        return replace(self, column_types={**(self.column_types or {}), **types})


@dataclass(frozen=True)
class ReadableFiles(Files):
    """Files of events, of which those that cannot be read are skipped.

    Parameters
    ----------
    unreadable
        Files that are skipped; those that cannot be opened are added.
    """

    unreadable: Unreadable = field(default_factory=dict, kw_only=True)


def open_paths(
    paths: Sequence[str | os.PathLike[str]], options: TextOptions = USUAL, unreadable: Unreadable | None = None
) -> Source:
    """Open the events of files, folders and globs in the given order; the files of a folder are sorted by name.

    Parameters
    ----------
    paths
    options
    unreadable
        Files that are skipped, to which those that cannot be opened are added; if None, they are errors.

    Raises
    ------
    EventsError
        When there is no file, or one cannot be read.
    """
    if not all(os.fspath(path) for path in paths):
        raise EventsError("expected the path of a file or folder, got an empty string")
    files = _find_all(paths, options, unreadable)
    ahead_of_opening = convert_ahead(files)
    opened = [(file, source) for file in files if (source := _open_or_skip(file, options, unreadable)) is not None]
    if not opened:
        raise _none_readable(paths, unreadable or {})
    files = [file for file, _ in opened]
    folders = _folder_columns(files)
    one = in_one_schema(
        [source for _, source in opened], [str(file) for file in files], [file.folders for file in files]
    )
    del ahead_of_opening  # the sources hold the logs that they read
    sources = [_with_folders(source, file, folders) for source, file in zip(one.sources, files, strict=True)]
    if not one.schema.names and (file := _first_log(files)) is not None:
        reasons = "; ".join(note.removeprefix(f"{file}: ") for source in sources for note in source.notes[:1])
        what = "no records can be read" if reasons else "has no records"
        raise EventsError(f"{file}: {what}{f': {reasons}' if reasons else ''}\nhint: expected a log with events")
    folder_fields = [field for field in sources[0].schema if field.name not in one.schema.names]
    schema = pa.schema([*one.schema, *folder_fields])
    origins: list[tuple[int, str]] = []

    def check(columns: list[str]) -> None:
        for file, source in zip(files, sources, strict=True):
            check_columns(file, source.schema, files[0], schema, columns)

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        n_rows = 0
        check(columns)
        for i, (file, source) in enumerate(zip(files, sources, strict=True)):
            origins[i:] = [(n_rows, str(file))]
            with _naming_file(file), _unreadable(file):
                for batch in validated(source.batches(columns), columns, str(file), n_rows, runs=False):
                    yield batch
                    n_rows += batch.num_rows

    counts = [source.n_rows for source in sources]
    known_counts = [count for count in counts if count is not None]
    begins = [0, *accumulate(known_counts)]
    every = [source.parts for source in sources if source.parts is not None]

    def read_parts(columns: list[str], begin: int, end: int) -> Iterator[pa.RecordBatch]:
        check(columns)
        for file, parts, first, last in zip(files, every, begins, begins[1:], strict=False):
            if begin < last and first < end:
                with _naming_file(file), _unreadable(file):
                    start = max(begin, first)
                    batches = parts.read(columns, start - first, min(end, last) - first)
                    yield from validated(batches, columns, str(file), start, runs=False)

    in_parts = len(every) == len(sources)
    if in_parts:
        origins += [(begin, str(file)) for file, begin in zip(files, begins, strict=False)]
    starts = [begin + start for parts, begin in zip(every, begins, strict=False) for start in parts.begins[:-1]]
    return Source(
        schema,
        lambda columns: prefetch(read(columns)),
        begins[-1] if len(known_counts) == len(counts) else None,
        origins,
        rereadable=all(source.rereadable for source in sources),
        reads_ahead=True,
        reads_fields=True,
        parts=Parts([*starts, begins[-1]], read_parts) if in_parts else None,
        conflicts=one.conflicts,
        remarks=one.remarks,
        notes=[*_skipped_notes(unreadable), *(note for source in sources for note in source.notes)],
        files=FilesOfRows(origins) if len(files) > 1 else None,
        time_hint="" if any(source.as_types is None for source in sources) else TEXT_HINT,
    )


def _first_log(files: Sequence[StoredFile]) -> StoredFile | None:
    """Return the first of some files if all are logs, or None."""
    formats = map(stored_format, files)
    return files[0] if all(each is not None and each.time_column is not None for each in formats) else None


def _find_all(
    paths: Sequence[str | os.PathLike[str]], options: TextOptions, unreadable: Unreadable | None
) -> list[StoredFile]:
    """Return the files of all paths, without those that are skipped."""
    files = [file for path in paths for file in find_files(os.fspath(path), options, unreadable=unreadable)]
    return files if unreadable is None else [file for file in files if str(file) not in unreadable]


def _open_or_skip(file: StoredFile, options: TextOptions, unreadable: Unreadable | None) -> Source | None:
    """Open a file, or add its error to `unreadable`, if not None, and return None."""
    try:
        return _open_file(file, options)
    except EventsError as error:
        if unreadable is None:
            raise
        unreadable[str(file)] = str(error)
        return None


def _none_readable(paths: Sequence[str | os.PathLike[str]], unreadable: Unreadable) -> EventsError:
    """Return the error for events of which no file can be read."""
    name = ", ".join(os.fspath(path) for path in paths[:3]) + (", ..." if len(paths) > 3 else "")
    first = next(iter(unreadable.values()), "no file")
    if len(unreadable) == 1:
        return EventsError(first)
    return EventsError(f"{name}: none of {counted(len(unreadable), 'file')} can be read; the first: {first}")


def _skipped_notes(unreadable: Unreadable | None) -> list[str]:
    """Return the remarks on skipped files: their number, and the first errors."""
    if not unreadable:
        return []
    errors = [error.partition("\n")[0] for error in unreadable.values()]
    more = [f"and {counted(len(errors) - _LISTED, 'more file')}"] * (len(errors) > _LISTED)
    return [f"{counted(len(errors), 'file')} skipped, unreadable: {'; '.join([*errors[:_LISTED], *more])}"]


def times_of_logs(
    paths: Sequence[str | os.PathLike[str]], options: TextOptions = USUAL, unreadable: Unreadable | None = None
) -> dict[str | None, str]:
    """Return the time columns of files that are logs, each with the first such file; None is that of other files.

    Files that cannot be read are skipped and added to `unreadable`, if it is not None.

    Raises
    ------
    EventsError
        When there is no such file, or one cannot be read.
    """
    columns: dict[str | None, str] = {}
    for file in _find_all(paths, options, unreadable):
        try:
            with _naming_file(file):
                format = stored_format(file)
        except UnreadableFileError as error:
            if unreadable is None:
                raise
            unreadable[str(file)] = str(error)
            continue
        columns.setdefault(None if format is None else format.time_column, str(file))
    return columns


def open_next(file: StoredFile, first: int, expected: pa.Schema | None, options: TextOptions = USUAL) -> Source:
    """Open the next file of a growing stream.

    Parameters
    ----------
    file
    first
        Position of its first event.
    expected
        Schema of the first file, or None if this is the first.  Columns of JSON lines and of Hive folders get its
        types; those that JSON lines lack are NULL.

    Raises
    ------
    EventsError
        When it cannot be read, or a column of `expected` is missing or has another kind; the latter is raised when the
        column is read.
    """
    folder_types = _folder_columns([file])
    own = None
    if expected is not None:
        folder_types |= {name: expected.field(name).type for name in folder_types if name in expected.names}
        own = pa.schema([field for field in expected if field.name not in folder_types])
    source = _open_file(file, options, own)
    if own is not None:
        source = with_stream_schema(source, str(file), own, folder_types)
    source = _with_folders(source, file, folder_types)

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        if expected is not None:
            check_columns(file, source.schema, "the first file", expected, columns)
        with _naming_file(file):
            yield from validated(source.batches(columns), columns, str(file), first, runs=False)

    return replace(source, read=lambda columns: prefetch(read(columns)), origins=[(first, str(file))], parts=None)


def _open_file(file: StoredFile, options: TextOptions, expected: pa.Schema | None = None) -> Source:
    with _naming_file(file):
        format = stored_format(file)
        if format is None:  # it changed since it was listed
            raise EventsError(f"{file}: is no {FORMAT_NAMES} file")
        source = format.rows(file, options, expected)
        check_names(source.schema)
        return source


@contextmanager
def _naming_file(file: StoredFile) -> Iterator[None]:
    """Add the name of the file to errors of reading."""
    try:
        yield
    except READ_ERRORS as error:
        if isinstance(error, FileNotFoundError) and file.store is None and os.path.islink(file.path):
            message = f"{file}: is a link to {os.readlink(file.path)}, which is not there"
            raise UnreadableFileError(message, str(file)) from error
        raise UnreadableFileError(f"{file}: cannot be read: {_reason(error)}", str(file)) from error


@contextmanager
def _unreadable(file: StoredFile) -> Iterator[None]:
    """Add the file as an attribute to errors in its content."""
    try:
        yield
    except (WiderTypes, UnreadableFileError):
        raise
    except EventsError as error:
        raise UnreadableFileError(str(error), str(file)) from error


def _reason(error: Exception) -> str:
    """Return why a file cannot be read: the system's reason if any, as Arrow's message repeats the file name."""
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


# ---- listing --------------------------------------------------------------------------------------------------------


def find_files(
    name: str, options: TextOptions = USUAL, *, may_be_none: bool = False, unreadable: Unreadable | None = None
) -> list[StoredFile]:
    """Return the files named by a path, a folder, a glob, or the URI of one (``s3://bucket/folder``).

    Files of a folder and its subfolders are sorted by name, ``column=2`` before ``column=10``.  Files of a zip archive
    are its members.  Archives that cannot be read are skipped and added to `unreadable`, if it is not None.

    Raises
    ------
    EventsError
        When there is no file, unless `may_be_none` and it is a folder, or when the store cannot be read.
    """
    address = Address.parse(name) if "://" in name or name.startswith("file:/") else Address("", "", name)
    store = None if address.is_local else open_store(address)
    own = store or fs.LocalFileSystem()
    place = path_in_store(address, own)
    if len(place) > 1:
        place = place.rstrip("/")
    try:
        listed = None if "\0" in place else listing(own, place)
    except FileNotFoundError:
        hint = _HINT_OF_NAMES if ":" in name and "://" not in name else _nearest_name_hint(own, place)
        raise EventsError(f"{name}: no such file" + (f"\nhint: {hint}" if hint else "")) from None
    except (OSError, ValueError, pa.ArrowException) as error:
        store_hint = address.credentials_hint or (_HINT_OF_NAMES if ":" in name and "://" not in name else None)
        hint = f"\nhint: {store_hint}" if store_hint else ""
        raise EventsError(f"cannot find the events: {name}: {_reason(error)}{hint}") from error
    if "\0" in place:
        raise EventsError(f"{name}: no such file")
    if listed is None:
        return _one_file(StoredFile(place, name, store, max_bytes=options.max_decompressed), unreadable)
    if listed.table is not None:
        raise EventsError(
            f"{name}: a table of {listed.table}, whose files may hold rows that were deleted since\n"
            "hint: give a pyarrow.dataset or a reader that its own library makes"
        )
    files = _ordered_files(place, listed, store, address, options, unreadable)
    if not files and not unreadable and not may_be_none:
        kind = "in this folder" if place == listed.base else "fits this pattern"
        raise EventsError(f"{name}: no {FORMAT_NAMES} file {kind}")
    return files


def _ordered_files(
    place: str,
    listed: StoreListing,
    store: fs.FileSystem | None,
    address: Address,
    options: TextOptions,
    unreadable: Unreadable | None,
) -> list[StoredFile]:
    """Return the event files of a folder or a glob."""
    files = []
    for path, names in listed.files:
        shown = uri_in_store(address, place, path)
        file = StoredFile(path, shown, store, _hive_strings(names), max_bytes=options.max_decompressed)
        if path.lower().endswith(ZIP_ENDING):
            files += [(names + inside, member) for inside, member in _members(file, unreadable)]
        elif format_of(path) is not None or (store is None and is_recognised(file)):
            files.append((names, file))
    return [file for _, file in sorted(files, key=lambda each: [_rank(name) for name in each[0]])]


def _hive_strings(names: Sequence[str]) -> dict[str, str]:
    """Return the values, as strings, of the Hive columns in the path of a file."""
    strings = dict(utf8(name).split("=", 1) for name in names[:-1] if "=" in name.lstrip("="))
    return {name: unquote(value) for name, value in strings.items()}


def _one_file(file: StoredFile, unreadable: Unreadable | None) -> list[StoredFile]:
    """Return a file as a list, or the members of an archive.

    Raises
    ------
    EventsError
        When its format is unknown, or it is an archive without a file of events.
    """
    with _naming_file(file):
        if file.path.lower().endswith(ZIP_ENDING) or (not _is_binary_name(file) and file.is_archive()):
            members = [
                member for _, member in sorted(_members(file, unreadable), key=lambda each: [*map(_rank, each[0])])
            ]
            if not members and not unreadable:
                raise EventsError(f"{file}: no {FORMAT_NAMES} file in this archive")
            return members
        if stored_format(file) is None:
            raise EventsError(
                f"{file}: cannot tell the format from the name or the content\n"
                f"hint: expected a name that ends in {ENDINGS}"
            )
    return [file]


def _is_binary_name(file: StoredFile) -> bool:
    format = format_of(file.name)
    return format is not None and not format.is_string


def _members(file: StoredFile, unreadable: Unreadable | None) -> list[tuple[list[str], StoredFile]]:
    """Return the files of events in an archive, each with the parts of its path."""
    try:
        return _members_of(file)
    except UnreadableFileError as error:
        if unreadable is None:
            raise
        unreadable[str(file)] = str(error)
        return []


def _members_of(file: StoredFile) -> list[tuple[list[str], StoredFile]]:
    members = []
    with _naming_file(file):
        for inside in file.members():
            names = inside.split("/")
            if any(name.startswith((".", "__MACOSX")) for name in names):
                continue
            folders = {**file.folders, **_hive_strings(names)}
            member = replace(file, shown=f"{file.shown}/{inside}", member=inside, folders=folders)
            if format_of(member.name) is not None or is_recognised(member):
                members.append((names, member))
    return members


def _rank(name: str) -> tuple[str, int, str]:
    """Return a sort key for names of files and folders, with numbers after ``column=`` as numbers."""
    column, equals, value = name.partition("=")
    number = int(value) if equals and value.isdecimal() else -1
    return (column if equals else name, number, value)


def _nearest_name_hint(store: fs.FileSystem, place: str) -> str | None:
    """Return a hint for a path that does not exist: a similar name of events in its folder, or None."""
    parent, _, name = place.rpartition("/")
    if not isinstance(store, fs.LocalFileSystem):
        return "expected the path of a file, a folder, or a glob"
    if parent and not os.path.isdir(parent):
        return f"no folder {parent}"
    if os.path.islink(place):
        return f"it is a link to {os.readlink(place)}, which leads nowhere"
    neighbours = entries(store, parent or ".", below=False)
    names = [(each.base_name, each.type == fs.FileType.Directory) for each in neighbours]
    siblings = sorted(name for name, is_folder in names if is_folder or is_name_of_events(name))
    if not siblings:
        return f"no {FORMAT_NAMES} file in that folder"
    near = nearest_file(name, siblings)
    return f"did you mean {near!r}?" if near else None


# ---- Hive columns --------------------------------------------------------------------------------------


def _folder_columns(files: Sequence[StoredFile]) -> dict[str, pa.DataType]:
    """Return the types of the Hive columns: integers, dates, or else strings."""
    strings: dict[str, list[str]] = {}
    for file in files:
        for name, text in file.folders.items():
            strings.setdefault(name, []).append(text)
    return {name: _folder_column_type(values) for name, values in strings.items()}


def _folder_column_type(strings: Sequence[str]) -> pa.DataType:
    values = [text for text in strings if text != _NO_VALUE]
    for kind, (form, parse) in _KINDS.items():
        if not all(form.fullmatch(value) for value in values):
            continue
        try:
            for value in values:
                pa.scalar(parse(value), kind)
        except (ValueError, ArithmeticError, pa.ArrowException):
            continue
        return kind
    return pa.string()


_KINDS: Mapping[pa.DataType, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    pa.int64(): (re.compile(r"-?[0-9]+"), int),
    pa.date32(): (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), datetime.date.fromisoformat),
}
"""Pattern and parser of each type of Hive columns; others are strings."""


def _with_folders(source: Source, file: StoredFile, folders: Mapping[str, pa.DataType]) -> Source:
    """Return the rows of a file with the Hive columns of its path; a column of the file itself takes precedence."""
    added = {name: folders[name] for name in file.folders if name not in source.schema.names}
    if not added:
        return source
    fields = [pa.field(name, kind) for name, kind in added.items()]
    schema = pa.schema([*source.schema, *fields])
    values = {}
    for name, kind in added.items():
        text = file.folders[name]
        parse = _KINDS[kind][1] if kind in _KINDS else str
        values[name] = pa.scalar(None if text == _NO_VALUE else parse(text), kind)

    def with_added(read: Callable[..., Iterator[pa.RecordBatch]]) -> Callable[..., Iterator[pa.RecordBatch]]:
        def read_all(columns: list[str], *rows: int) -> Iterator[pa.RecordBatch]:
            own = [name for name in columns if name in added]
            for batch in read([name for name in columns if name not in added], *rows):
                arrays = [constant_column(values[name], batch.num_rows) for name in own]
                yield pa.RecordBatch.from_arrays([*batch.columns, *arrays], names=[*batch.schema.names, *own])

        return read_all

    parts = source.parts
    return replace(
        source,
        schema=schema,
        read=with_added(source.batches),
        parts=None if parts is None else Parts(parts.begins, with_added(parts.read)),
    )
