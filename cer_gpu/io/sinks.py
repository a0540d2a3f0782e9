"""Sinks of matches: a file that is written atomically, also in a store, or a pipe without delay."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pyarrow import fs

from cer_gpu.errors import OptionError
from cer_gpu.io.parts import name_part, open_part, part_beside, remove_stale_parts
from cer_gpu.io.stores import Address, open_store, path_in_store
from cer_gpu.io.value_strings import TEXT, csv_header, csv_lines, is_quoted, json_lines, to_csv
from cer_gpu.private_files import unfinished

_COPY_BYTES = 1 << 22
_WHOLE_AT_ONCE = ("s3", "gcs", "abfs")
"""File systems of pyarrow whose files are visible only after they are closed."""


def is_stored(path: str) -> bool:
    """Return True for the URI of a file in a store."""
    return "://" in path and not Address.parse(path).is_local


@contextlib.contextmanager
def stored_result_file(path: str, inputs: Sequence[str] = ()) -> Iterator[IO[bytes]]:
    """Yield a temporary file that is uploaded to a store at the end of the ``with`` block, unless there was an error.

    Parameters
    ----------
    path
        URI of the file in the store.
    inputs
        Files that are being read, which must not be overwritten.

    Raises
    ------
    OptionError
        When the path is an input.
    StoreError
        When the store cannot be opened.
    OSError
        When the file cannot be written.
    """
    if path in inputs:
        raise OptionError(f"{path}: is an input, and would be overwritten\nhint: write to another name")
    address = Address.parse(path)
    store = open_store(address)
    place = path_in_store(address, store)
    with tempfile.TemporaryFile(prefix="cer_gpu-") as file:
        yield file
        file.seek(0)
        if store.type_name in _WHOLE_AT_ONCE:
            _copy_to_store(file, store, place)
            return
        folder, _, name = place.rpartition("/")
        part = f"{folder}/.cer-gpu-{secrets.token_hex(4)}-{name}.part"
        try:
            _copy_to_store(file, store, part)
            store.move(part, place)
        except BaseException:
            with contextlib.suppress(OSError):
                store.delete_file(part)
            raise


def _copy_to_store(file: IO[bytes], store: fs.FileSystem, place: str) -> None:
    with store.open_output_stream(place) as out:
        shutil.copyfileobj(file, out, _COPY_BYTES)


SINK_FORMATS = ("parquet", "arrow", "csv", "jsonl")
PIPE_FORMATS = ("arrow", "csv", "jsonl")
SINK_ENDINGS = tuple(f".{name}" for name in SINK_FORMATS)

WRITE_ROWS = 1 << 17
WRITE_BYTES = 1 << 24
"""Limits of the rows buffered for Parquet and Arrow files, whichever comes first: few row groups, little memory."""
TEXT_ROWS = 1 << 14
"""Maximum number of rows formatted as text, or written to a pipe, at once."""


class Writer(Protocol):
    """Protocol of the writers of a format: pyarrow's, and those below."""

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Write rows."""

    def close(self) -> None:
        """Write the footer of the format; the file itself stays open."""


class Sink(Protocol):
    """Receiver of matches."""

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Write matches, immediately or buffered with later ones.

        Raises
        ------
        OSError
            When they cannot be written, for example because the disk is full.
        OptionError
            When the format cannot represent them.
        """


@contextlib.contextmanager
def open_sink(
    path: str | os.PathLike[str], schema: pa.Schema, inputs: Sequence[str] = (), format: str | None = None
) -> Iterator[Sink]:
    """Write a file of matches.

    Rows are written to a hidden file in the same folder, which is renamed at the end of the ``with`` block. If the
    block raises an error, the hidden file is removed, and an earlier file of the name stays unchanged.  Hidden files of
    killed writers of the same file are removed first (`cer_gpu.io.parts`).  The rows of a file in a store are
    buffered in a local temporary file, which is uploaded at the end of the block.

    Parameters
    ----------
    path
        Path of the file, or its URI in a store; without `format`, it must end in one of SINK_ENDINGS.
    schema
        Schema of the matches.
    inputs
        Files and folders that are being read, which must not be overwritten.
    format
        One of SINK_FORMATS; by default (None) the format of the name's ending.

    Raises
    ------
    OptionError
        When the ending is unknown, the path is an input, or the format cannot represent the output; raised before
        anything is written.
    OSError
        When the file cannot be written.

    Notes
    -----
    `cer_gpu.io.value_strings` defines the strings of values in CSV and JSON lines. Dictionaries are written as their
    values, as an Arrow file has only one dictionary for all its rows.
    """
    name = os.fspath(path)
    kind = _format(Path(path), format)
    with contextlib.ExitStack() as stack:
        if is_stored(name):
            stack.enter_context(naming(name))
            file = stack.enter_context(stored_result_file(name, inputs))
        else:
            file = stack.enter_context(result_file(path, inputs))
        yield stack.enter_context(open_writer(file, schema, kind, name))


@contextlib.contextmanager
def open_writer(file: IO[bytes], schema: pa.Schema, format: str, name: str) -> Iterator[Sink]:
    """Write matches to an open file, which stays open and is complete at the end of the ``with`` block.

    Parameters
    ----------
    file, schema
    format
        One of SINK_FORMATS.
    name
        Name of the file for messages.

    Raises
    ------
    OptionError, OSError
        As `open_sink`.
    """
    writer: Writer | None = None
    try:
        with naming(name):
            writer = _writer(format, file, schema)
        sink = _FileSink(writer, name, gather=format in ("parquet", "arrow"))
        yield sink
        sink.close()
    except BaseException:
        _abandon(writer)
        raise


@contextlib.contextmanager
def result_file(path: str | os.PathLike[str], inputs: Sequence[str] = ()) -> Iterator[IO[bytes]]:
    """Yield a hidden file in the folder of `path` that is renamed to it at the end of the ``with`` block.

    Raises
    ------
    OptionError
        When the path is an input, or no file can be written there.
    OSError
        When the file cannot be written.
    """
    shown = Path(path)
    check_target(shown, inputs)
    if _is_nowhere(shown):
        with naming(str(shown)), open(shown, "wb") as nowhere:
            yield nowhere
        return
    target = Path(os.path.realpath(shown))  # a link stays a link
    remove_stale_parts(target)
    part = part_beside(target)
    with unfinished(part):
        yield from _result_file(shown, target, part)


def _result_file(shown: Path, target: Path, part: Path) -> Iterator[IO[bytes]]:
    file: IO[bytes] | None = None
    try:
        with naming(str(shown)):
            file = open_part(part)
        yield file
        with naming(str(shown)):
            file.flush()
            os.fsync(file.fileno())
            name_part(file, part, target)
    except BaseException:
        _abandon(file)
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def open_pipe(
    file: IO[bytes],
    schema: pa.Schema,
    format: str,
    whole: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> Iterator[Sink]:
    """Write matches to a pipe, such as standard output, without delay.

    Parameters
    ----------
    file
        Pipe to write to, which stays open.
    schema
        Schema of the matches.
    format
        One of PIPE_FORMATS; "arrow" is the stream format of Arrow IPC.
    whole
        Returns a context that defers interrupts: rows are written within such contexts, so never partially.

    Raises
    ------
    BrokenPipeError
        When the reader has closed the pipe.
    OSError
        When the pipe cannot be written for another reason.
    """
    name = "standard output"
    with whole(), naming(name):
        writer = _writer(format, file, schema, seekable=False)
        file.flush()
    yield _PipeSink(writer, file, name, whole)
    with whole(), naming(name):
        writer.close()
        file.flush()


# ---- sinks --------------------------------------------------------------------------------------------------------


class _FileSink:
    """Sink to the writer of a file, which buffers rows if the format benefits from it."""

    def __init__(self, writer: Writer, name: str, *, gather: bool) -> None:
        self._writer = writer
        self._name = name
        self._gather = gather
        self._gathered: list[pa.RecordBatch] = []
        self._n_rows = self._n_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if not self._gather:
            with naming(self._name):
                for piece in _pieces(batch):
                    self._writer.write(piece)
            return
        # the dictionaries of all batches may have too many values for one
        self._gathered.append(decoded_rows(batch))
        self._n_rows += batch.num_rows
        self._n_bytes += batch.nbytes
        if self._n_rows >= WRITE_ROWS or self._n_bytes >= WRITE_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the buffered rows, and the footer of the format."""
        self._flush()
        with naming(self._name):
            self._writer.close()

    def _flush(self) -> None:
        if self._gathered:
            with naming(self._name):
                self._writer.write(pa.concat_batches(self._gathered))
            self._gathered = []
            self._n_rows = self._n_bytes = 0


class _PipeSink:
    """Sink to the writer of a pipe, which flushes after each piece."""

    def __init__(
        self, writer: Writer, file: IO[bytes], name: str, whole: Callable[[], AbstractContextManager[object]]
    ) -> None:
        self._writer = writer
        self._file = file
        self._name = name
        self._whole = whole

    def write(self, batch: pa.RecordBatch) -> None:
        for piece in _pieces(decoded_rows(batch)):
            with self._whole(), naming(self._name):
                self._writer.write(piece)
                self._file.flush()


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces whose text is small, so that it stays in the CPU cache for short rows."""
    n_pieces = max(-(-batch.num_rows // TEXT_ROWS), min(batch.num_rows, batch.nbytes // WRITE_BYTES))
    n_rows = -(-batch.num_rows // max(n_pieces, 1))
    for start in range(0, batch.num_rows, n_rows or 1):
        yield batch.slice(start, n_rows)


def decoded_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with its dictionaries decoded, those inside of lists and structs too."""
    schema = decoded_schema(batch.schema)
    return batch if schema.equals(batch.schema) else batch.cast(schema)


def decoded_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a batch that `decoded_rows` returns."""
    return pa.schema([_decoded_field(field) for field in schema], schema.metadata)


def _decoded_field(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    elif pa.types.is_struct(kind):
        kind = pa.struct([_decoded_field(child) for child in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_decoded_field(kind.value_field))
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_decoded_field(kind.value_field))
    elif pa.types.is_fixed_size_list(kind):
        kind = pa.list_(_decoded_field(kind.value_field), kind.list_size)
    return field.with_type(kind)


# ---- files --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Add the name of the file to errors of writing."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, f"cannot be written: {reason}", name) from error
    except pa.ArrowException as error:
        raise OptionError(f"{name}: the format cannot hold these results: {error}\nhint: another format") from error


def _format(path: Path, format: str | None) -> str:
    """Return `format`, or the format of the ending of a path if it is None."""
    if format is None and _is_nowhere(path):
        return "arrow"
    if format is None and path.suffix.lower() not in SINK_ENDINGS:
        raise OptionError(
            f"{path}: cannot tell the format from the name\n"
            f"hint: expected a name that ends in {', '.join(SINK_ENDINGS)}, or --format; "
            "tables are delta:PATH and iceberg:NAME"
        )
    return format or path.suffix.lower()[1:]


def check_target(path: Path, inputs: Sequence[str]) -> None:
    """Raise OptionError unless a file may be written to this path."""
    if not path.parent.is_dir():
        raise OptionError(f"{path}: there is no folder {path.parent}")
    if path.exists() and not path.is_file() and not _is_nowhere(path):
        raise OptionError(f"{path}: is not a file, and cannot be replaced by one")
    for name in map(Path, inputs):
        if path.exists() and name.exists() and path.samefile(name):
            raise OptionError(f"{path}: is an input, and would be overwritten\nhint: write to another name")
        if name.is_dir() and name.samefile(path.parent):
            raise OptionError(f"{path}: would lie among the input, in the folder {name}\nhint: write to another folder")


def _is_nowhere(path: Path) -> bool:
    """Return True for the null device, which drops what is written to it."""
    return os.path.realpath(path) == os.path.realpath(os.devnull)


def _writer(format: str, file: IO[bytes], schema: pa.Schema, *, seekable: bool = True) -> Writer:
    match format:
        case "parquet":
            return pq.ParquetWriter(file, decoded_schema(schema))  # type: ignore[no-any-return]
        case "arrow":
            new = pa.ipc.new_file if seekable else pa.ipc.new_stream
            return new(file, decoded_schema(schema))  # type: ignore[no-any-return]
        case "csv":
            return _CsvWriter(file, schema)
        case _:
            return _JsonWriter(file)


def _abandon(opened: Writer | IO[bytes] | None) -> None:
    """Close a writer or file after an error, and ignore further ones."""
    with contextlib.suppress(Exception):
        if opened is not None:
            opened.close()
    if isinstance(opened, pq.ParquetWriter):
        opened.is_open = False  # else its deletion would try to close it again


class _CsvWriter:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._file = file
        file.write(csv_header(schema.names))
        # Arrow's writer, which is faster, quotes all columns or none
        self._plain = None
        if not any(map(is_quoted, schema.types)):
            self._strings = pa.schema([(name, TEXT) for name in schema.names])
            options = pa_csv.WriteOptions(include_header=False, quoting_style="none")
            self._plain = pa_csv.CSVWriter(file, self._strings, write_options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        if self._plain is None:
            self._file.write(csv_lines(batch))
        else:
            self._plain.write(pa.RecordBatch.from_arrays([to_csv(c) for c in batch.columns], schema=self._strings))

    def close(self) -> None:
        if self._plain is not None:
            self._plain.close()


class _JsonWriter:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write(json_lines(batch))

    def close(self) -> None:
        pass
