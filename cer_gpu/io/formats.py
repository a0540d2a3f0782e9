"""Formats of stored events: the endings of their names, and their readers."""

from __future__ import annotations

import io
import os
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from cer_gpu.columnar.columns import is_string, plain_type
from cer_gpu.columnar.fields import attribute_type, names_in, retyped
from cer_gpu.io.compression import COMPRESSIONS, ZIP_ENDING, RawStream, check_size, named_codec
from cer_gpu.io.csv_files import csv_source
from cer_gpu.io.json_documents import JsonDocuments, are_lines, is_json
from cer_gpu.io.json_lines import STRING_BYTES, json_source
from cer_gpu.io.logs.converted import CONVERTER
from cer_gpu.io.logs.log_formats import HEAD_BYTES, LOG_FORMATS, LogFormat, recognised_log
from cer_gpu.io.source import BATCH_ROWS, READ_ERRORS, Parts, Source, with_batches
from cer_gpu.io.stores import StoredFile
from cer_gpu.io.text_files import reading_to_its_end
from cer_gpu.io.text_options import TextOptions

PARQUET_BYTES = 1 << 23
"""Bytes of a column of a local Parquet file to read at once."""
FILE_ROWS = 1 << 20
"""Maximum number of rows of a Parquet file to decode at once."""
FILE_BYTES = 1 << 24
"""Maximum size of the rows to decode at once, if they are more than `BATCH_ROWS`."""
_SMALL_BYTES = 1 << 16
"""Maximum size of a JSON file that is checked for an empty list."""
_CSV_BYTES = 1 << 20
"""Bytes of a block of CSV, the default of `pyarrow.csv.ReadOptions`."""
_STORED_BYTES = 1 << 26
"""Maximum decompressed size of a seekable log in memory; larger ones go to a temporary file."""
_COPIED_BYTES = 1 << 20


def _open_parquet(stored: StoredFile) -> Source:
    # pre-buffering would hold whole row groups in memory; reads from another machine should be few and large
    buffered = stored.store is not None
    piece = 0 if buffered else PARQUET_BYTES
    with stored.open() as opened, pq.ParquetFile(opened, pre_buffer=False) as file:
        schema, metadata = file.schema_arrow, file.metadata
    begins = [0, *accumulate(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))]
    rows_per_batch: dict[tuple[str, ...], int] = {}

    def read(columns: list[str], begin: int, end: int, *, several_threads: bool = False) -> Iterator[pa.RecordBatch]:
        types = {".".join(names_in(schema, name)): attribute_type(schema, name) for name in columns}
        names, strings = list(types), [name for name, data_type in types.items() if is_string(data_type)]
        with (
            stored.open() as opened,
            pq.ParquetFile(opened, pre_buffer=buffered, buffer_size=piece, read_dictionary=strings) as file,
        ):
            if (batch_rows := rows_per_batch.get(tuple(names))) is None:
                batch_rows = rows_per_batch[tuple(names)] = _rows_at_once(file, types)
            for group in range(bisect_right(begins, begin) - 1, file.num_row_groups):
                size = min(batch_rows, max(end - begin, 1))
                for batch in file.iter_batches(size, row_groups=[group], columns=names, use_threads=several_threads):
                    yield batch.slice(0, end - begin)
                    begin += batch.num_rows
                    if begin >= end:
                        return
                if begin < begins[group + 1]:  # Arrow takes a column that ends early for one at its end
                    raise EOFError(f"{begins[group + 1] - begin:,} rows of row group {group} are not there")

    return Source(
        schema,
        lambda columns: read(columns, 0, begins[-1], several_threads=len(columns) > 1),
        begins[-1],
        rereadable=True,
        reads_fields=True,
        parts=Parts(begins, read),
    )


def _rows_at_once(file: pq.ParquetFile, types: dict[str, pa.DataType | None]) -> int:
    """Return the number of rows to decode at once: more if rows are small, by types and the first row group."""
    n_bytes = 1.0
    for data_type in map(plain_type, types.values()):
        if is_string(data_type):
            n_bytes += 4
        elif pa.types.is_primitive(data_type):
            n_bytes += data_type.bit_width / 8
        else:
            return min(FILE_ROWS, BATCH_ROWS)
    metadata = file.metadata
    if metadata.num_row_groups and (first := metadata.row_group(0)).num_rows > BATCH_ROWS:
        # `column` ends the process if the description of a column is damaged; reading a row raises an error before
        next(file.iter_batches(1, row_groups=[0], columns=list(types)), None)
        own = [i for i in range(len(metadata.schema)) if metadata.schema.column(i).path in types]
        stored = sum(first.column(i).total_uncompressed_size for i in own)
        n_bytes = max(n_bytes, stored / first.num_rows)
    return min(FILE_ROWS, max(BATCH_ROWS, int(FILE_BYTES / n_bytes)))


def _open_ipc(stored: StoredFile) -> Source:
    def only(columns: list[str]) -> pa.ipc.IpcReadOptions:
        # omitted columns are not decompressed; an empty list would mean every column
        return pa.ipc.IpcReadOptions(
            included_fields=[schema.get_field_index(name) for name in columns or schema.names[:1]]
        )

    def read_stream(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with (
            stored.open() as opened,
            reading_to_its_end(opened, opened, may_end_before=True),
            pa.ipc.open_stream(opened, options=only(columns)) as reader,
        ):
            yield from reader

    def read_file(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with stored.open() as opened, pa.ipc.open_file(opened, options=only(columns)) as reader:
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i)

    with stored.open() as opened:
        if opened.read(6) == b"ARROW1":
            with pa.ipc.open_file(opened) as reader:
                schema, read = reader.schema, read_file
        else:
            opened.seek(0)
            with pa.ipc.open_stream(opened) as reader:
                schema, read = reader.schema, read_stream
    return Source(schema, read, rereadable=True)


def _open_orc(stored: StoredFile) -> Source:
    from pyarrow import orc

    with stored.open() as opened:
        file = orc.ORCFile(opened)
        schema, n_rows, n_stripes = file.schema, file.nrows, file.nstripes

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        names = columns or schema.names[:1]
        # ORC reads a name with a dot as the path of a field
        stored_names = None if any("." in name for name in names) else names
        with stored.open() as opened:
            file, remaining = orc.ORCFile(opened), n_rows
            for stripe in range(n_stripes):
                batch = file.read_stripe(stripe, stored_names).select(names)
                remaining -= batch.num_rows
                yield batch
        if remaining:
            raise EOFError(f"{remaining:,} rows are not there")

    return Source(schema, read, n_rows, rereadable=True)


# ---- text -----------------------------------------------------------------------------------------------------------


class _LimitedOpener:
    """Opener of a text file that enforces the limit on decompressed bytes.

    Parameters
    ----------
    stored
    block_bytes
        Size of the blocks that Arrow's reader turns into batches: it does not report its position in the stream.
    wrap
        Wraps the stream.
    """

    def __init__(
        self, stored: StoredFile, block_bytes: int, wrap: Callable[[Any], Any] = lambda stream: stream
    ) -> None:
        self._stored, self._block_bytes, self._wrap = stored, block_bytes, wrap
        self._last: Any = None
        self._n_batches = 0

    def __call__(self) -> Any:
        self._last, self._n_batches = self._stored.stream(), 0
        return self._wrap(self._last)

    def check(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch, or raise an error if more bytes were decompressed than the limit."""
        check_size(self._last, self._n_batches * self._block_bytes)  # those before this one
        self._n_batches += 1
        return batch

    def limited(self, source: Source) -> Source:
        """Return a source of these streams that raises an error beyond the limit."""
        as_types = source.as_types
        return with_batches(
            source, self.check, as_types=None if as_types is None else lambda types: self.limited(as_types(types))
        )


def _open_csv(delimiter: str, stored: StoredFile, options: TextOptions) -> Source:
    opened = _LimitedOpener(stored, _CSV_BYTES)
    return opened.limited(csv_source(opened, options, name=str(stored), delimiter=delimiter))


def _open_json_lines(stored: StoredFile, options: TextOptions, expected: pa.Schema | None = None) -> Source:
    return _json(stored, options, expected, as_lines=not stored.head(HEAD_BYTES).lstrip().startswith(b"["))


def _open_json(stored: StoredFile, options: TextOptions, expected: pa.Schema | None = None) -> Source:
    head = stored.head(STRING_BYTES)
    if len(head) < _SMALL_BYTES and not JsonDocuments(io.BytesIO(head), str(stored)).read(1):
        return _no_rows(expected or pa.schema([]))
    return _json(stored, options, expected, as_lines=are_lines(head))


def _no_rows(schema: pa.Schema) -> Source:
    """Return the rows of an empty JSON list, such as an hour without events."""

    def as_types(types: Mapping[str, pa.DataType]) -> Source:
        return _no_rows(retyped(schema, dict(types)))

    return Source(schema, lambda columns: iter(()), 0, rereadable=True, as_types=as_types, is_log=True)


def _json(stored: StoredFile, options: TextOptions, expected: pa.Schema | None, *, as_lines: bool) -> Source:
    name = str(stored)
    opened = _LimitedOpener(
        stored, STRING_BYTES, (lambda stream: stream) if as_lines else (lambda stream: JsonDocuments(stream, name))
    )
    return opened.limited(json_source(opened, options, expected, name=name))


# ---- logs -----------------------------------------------------------------------------------------------------------


def _open_log(format: LogFormat, stored: StoredFile, _: TextOptions) -> Source:
    log = CONVERTER.converted(log_identity(format, stored), format, partial(log_stream, format, stored))
    return log.source(str(stored))


def log_identity(format: LogFormat, stored: StoredFile) -> tuple[object, ...] | None:
    """Return the identity of a file of this machine and its state, or None if it is of another machine."""
    if stored.store is not None:
        return None
    facts = os.stat(stored.path)
    state = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return (format.name, os.path.abspath(stored.path), stored.member, stored.max_bytes, *state)


def log_stream(format: LogFormat, stored: StoredFile) -> IO[bytes]:
    """Open a decompressed log for reading lines, or as a seekable file if its format needs one."""
    stream = stored.stream()
    reader = io.BufferedReader(RawStream(stream), _COPIED_BYTES)
    if not format.is_seekable:
        return reader
    if isinstance(stream, pa.OSFile):
        reader.close()
        return open(stored.path, "rb")
    with reader:
        file = tempfile.SpooledTemporaryFile(_STORED_BYTES, prefix="cer_gpu-")  # noqa: SIM115 - its reader closes it
        try:
            while data := reader.read(_COPIED_BYTES):
                file.write(data)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file


# ---- formats --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """A format of files.

    Attributes
    ----------
    name
        For messages.
    endings
        Endings of names, in lower case.
    open
        Returns the rows of a file.
    is_string
        True if the whole file may be compressed: its name then ends in one of `COMPRESSIONS`, too.
    open_as
        Returns the rows of a file with the schema of its stream, or None if the format stores types.
    sniffed
        True if the content decides, as the name may belong to a file of another format.
    time_column
        Column of the times of the rows, or None if each file has its own.
    """

    name: str
    endings: tuple[str, ...]
    open: Callable[[StoredFile, TextOptions], Source]
    is_string: bool = False
    open_as: Callable[[StoredFile, TextOptions, pa.Schema], Source] | None = None
    sniffed: bool = False
    time_column: str | None = None

    def rows(self, stored: StoredFile, options: TextOptions, expected: pa.Schema | None) -> Source:
        """Return the rows of a file; JSON takes the types of `expected`, the schema of its stream, if not None."""
        if expected is None or self.open_as is None:
            return self.open(stored, options)
        return self.open_as(stored, options, expected)


_JSON = Format("JSON", (".json",), _open_json, is_string=True, open_as=_open_json, sniffed=True)
_LOGS = tuple(
    Format(
        format.name,
        format.endings,
        partial(_open_log, format),
        is_string=True,
        sniffed=True,
        time_column=format.time_column,
    )
    for format in LOG_FORMATS
)
_FORMATS = (
    Format("Parquet", (".parquet", ".pq", ".parq"), lambda stored, _: _open_parquet(stored)),
    Format("Arrow IPC", (".arrow", ".feather", ".ipc", ".arrows"), lambda stored, _: _open_ipc(stored)),
    Format("ORC", (".orc",), lambda stored, _: _open_orc(stored)),
    Format("CSV", (".csv",), partial(_open_csv, ","), is_string=True),
    Format("CSV", (".tsv",), partial(_open_csv, "\t"), is_string=True),
    Format("JSON lines", (".jsonl", ".ndjson"), _open_json_lines, is_string=True, open_as=_open_json_lines),
    _JSON,
    *_LOGS,
)
_NAMES = list(dict.fromkeys(format.name for format in _FORMATS))
FORMAT_NAMES = f"{', '.join(_NAMES[:-1])} or {_NAMES[-1]}"
"""All formats, for messages."""
ENDINGS = (
    ", ".join(ending for format in _FORMATS for ending in format.endings)
    + f" (text and logs also with {', '.join(COMPRESSIONS)} behind), or {ZIP_ENDING}"
)
"""All endings, for messages."""


def endings_of(name: str) -> tuple[str, ...]:
    """Return the endings of the names of files of a format."""
    return tuple(ending for format in _FORMATS if format.name == name for ending in format.endings)


def format_of(name: str) -> Format | None:
    """Return the format by the name of a file, or None if the name does not determine it."""
    name = name.lower()
    is_compressed = named_codec(name) is not None
    plain = name.rsplit(".", 1)[0] if is_compressed else name
    for format in _FORMATS:
        if format.endings and plain.endswith(format.endings) and (format.is_string or not is_compressed):
            return format
    return None


def is_name_of_events(name: str) -> bool:
    """Return True if the name of a file has the ending of a format of events or of an archive."""
    return format_of(name) is not None or name.lower().endswith(ZIP_ENDING)


def stored_format(stored: StoredFile) -> Format | None:
    """Return the format of a file, by its name, or by its first bytes if the name does not determine it, or None.

    Raises
    ------
    OSError, pyarrow.ArrowException
        When the file cannot be read.
    """
    named = format_of(stored.name)
    if named is not None and not named.sniffed:
        return named
    return _sniffed_format(stored) or named


def _sniffed_format(stored: StoredFile) -> Format | None:
    if stored.store is not None:
        return _recognised(stored)
    facts = os.stat(stored.path)
    state = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    name = _cached_format_name(stored.path, stored.member, state)
    return next((format for format in _FORMATS if format.name == name), None)


@lru_cache(maxsize=1 << 16)
def _cached_format_name(path: str, member: str | None, _: tuple[int, ...]) -> str | None:
    """Return the name of the format of a file of this machine, cached until the file changes."""
    format = _recognised(StoredFile(path, path, member=member))
    return None if format is None else format.name


def _recognised(stored: StoredFile) -> Format | None:
    head = stored.head(HEAD_BYTES)
    log = recognised_log(head)
    if log is not None:
        return _LOGS[LOG_FORMATS.index(log)]
    return _JSON if is_json(head, is_whole=len(head) < HEAD_BYTES) else None


def log_format_of(stored: StoredFile) -> LogFormat | None:
    """Return the format of a log, or None if a file is not a log or cannot be read."""
    try:
        format = stored_format(stored)
    except READ_ERRORS:
        return None
    return LOG_FORMATS[_LOGS.index(format)] if format in _LOGS else None


def is_recognised(stored: StoredFile) -> bool:
    """Return True if the format of a file is recognised by its first bytes."""
    try:
        return _sniffed_format(stored) is not None
    except READ_ERRORS:
        return False
