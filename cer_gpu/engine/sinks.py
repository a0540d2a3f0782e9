"""Complex events -> a file, written batch by batch, that appears whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from cer_gpu.errors import OptionError

ENDINGS = (".parquet", ".arrow", ".csv", ".jsonl")

WRITE_ROWS = 1 << 17
WRITE_BYTES = 1 << 24
"""Rows are gathered up to one of the two, and then written: few row groups, little memory."""


class Writer(Protocol):
    """What writes one format: pyarrow's writers, and those below."""

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Write rows."""

    def close(self) -> None:
        """Write the end of the format; the file itself stays open."""


class Sink:
    """Gathers rows and hands them to a writer.

    Parameters
    ----------
    writer
        Of the format.
    path
        The name of the file, for messages.
    """

    def __init__(self, writer: Writer, path: Path) -> None:
        self._writer = writer
        self._path = path
        self._gathered: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write complex events, now or later.

        Raises
        ------
        OSError
            When the file cannot be written, for example because the disk is full.
        """
        self._gathered.append(batch)
        n_rows = sum(b.num_rows for b in self._gathered)
        if n_rows >= WRITE_ROWS or sum(b.nbytes for b in self._gathered) >= WRITE_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the end of the format."""
        self._flush()
        with naming(self._path):
            self._writer.close()

    def _flush(self) -> None:
        if self._gathered:
            with naming(self._path):
                self._writer.write(pa.concat_batches(self._gathered))
            self._gathered = []


@contextlib.contextmanager
def open_sink(path: str | os.PathLike[str], schema: pa.Schema, inputs: Sequence[str] = ()) -> Iterator[Sink]:
    """Write a file of complex events; the format is that of the name's ending.

    The rows go to a hidden file beside it, which takes the name at the end of the ``with`` block. If the block
    ends with an error, of whatever kind, it is removed, and a file of that name that was there before stays as it is.

    Parameters
    ----------
    path
        Ends in one of ENDINGS.
    schema
        Of the complex events.
    inputs
        Files and folders that are read meanwhile, and so must not be overwritten.

    Raises
    ------
    OptionError
        For an unknown ending or an input; before anything is written.
    OSError
        When the file cannot be written.

    Notes
    -----
    CSV has ``positions`` as one column of numbers with a space between; CSV and JSON lines have times in ISO 8601 (in
    UTC, with a Z, where the column has a time zone) and durations as integers.
    """
    shown = Path(path)
    ending = _checked(shown, inputs)
    target = Path(os.path.realpath(shown))  # a link stays a link
    part = target.with_name(f".cer-gpu-{os.getpid()}-{secrets.token_hex(4)}.part")
    writer: Writer | None = None
    file: IO[bytes] | None = None
    try:
        with naming(shown):
            file = open(part, "xb")  # noqa: SIM115 - closed below, in two ways
            writer = _writer(ending, file, schema)
        sink = Sink(writer, shown)
        yield sink
        sink.close()
        with naming(shown):
            file.flush()
            os.fsync(file.fileno())
            file.close()
            os.replace(part, target)
    except BaseException:
        _abandon(writer, file)
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an OSError name the file that the user knows."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, f"cannot be written: {reason}", str(path)) from error


def _checked(path: Path, inputs: Sequence[str]) -> str:
    """Return the ending of a name under which a file may be written."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise OptionError(
            f"{path}: cannot tell the format from the name\nhint: expected a name that ends in {', '.join(ENDINGS)}"
        )
    if not path.parent.is_dir():
        raise OptionError(f"{path}: there is no folder {path.parent}")
    if path.exists() and not path.is_file():
        raise OptionError(f"{path}: is not a file, and cannot be replaced by one")
    for name in map(Path, inputs):
        if path.exists() and name.exists() and path.samefile(name):
            raise OptionError(f"{path}: is an input, and would be overwritten\nhint: write to another name")
        if name.is_dir() and name.samefile(path.parent):
            raise OptionError(f"{path}: would lie among the input, in the folder {name}\nhint: write to another folder")
    return ending


def _writer(ending: str, file: IO[bytes], schema: pa.Schema) -> Writer:
    match ending:
        case ".parquet":
            return pq.ParquetWriter(file, schema)  # type: ignore[no-any-return]
        case ".arrow":
            return pa.ipc.new_file(file, schema)  # type: ignore[no-any-return]
        case ".csv":
            return _CsvWriter(file, schema)
        case _:
            return _JsonWriter(file)


def _abandon(writer: Writer | None, file: IO[bytes] | None) -> None:
    """Close what is open; what cannot be written any more does not matter."""
    for opened in (writer, file):
        with contextlib.suppress(Exception):
            if opened is not None:
                opened.close()
    if isinstance(writer, pq.ParquetWriter):
        writer.is_open = False  # else it would try once more when it is deleted


class _CsvWriter:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._texts = pa.schema([(name, pa.string()) for name in schema.names])
        file.write((",".join(schema.names) + "\n").encode())
        options = pa_csv.WriteOptions(include_header=False, quoting_style="none")
        self._writer = pa_csv.CSVWriter(file, self._texts, write_options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [_joined(c, " ") if pa.types.is_list(c.type) else times_as_text(c) for c in batch.columns]
        self._writer.write(pa.RecordBatch.from_arrays(columns, schema=self._texts))

    def close(self) -> None:
        self._writer.close()


class _JsonWriter:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        parts: list[pa.Array | str] = []
        for i, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
            parts += [("{" if i == 0 else ", ") + json.dumps(name) + ": ", *_json(column)]
        lines = pc.binary_join_element_wise(*parts, "}\n", "")
        self._file.write("".join(lines.to_pylist()).encode())

    def close(self) -> None:
        pass


def _json(column: pa.Array) -> list[pa.Array | str]:
    """Return what to put together for the values of a column."""
    kind = column.type
    if pa.types.is_list(kind):
        return ["[", _joined(column, ", "), "]"]
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return ['"', times_as_text(column), '"']
    return [times_as_text(column)]


def _joined(lists: pa.Array, separator: str) -> pa.Array:
    return pc.binary_join(lists.cast(pa.list_(pa.string())), separator)


def times_as_text(column: pa.Array) -> pa.Array:
    """Return a column of integers or times as text: times in ISO 8601."""
    kind = column.type
    if pa.types.is_duration(kind):
        return column.cast(pa.int64()).cast(pa.string())
    if not pa.types.is_timestamp(kind):
        return column.cast(pa.string())
    utc = column.view(pa.timestamp(kind.unit)).cast(pa.string())
    iso = pc.replace_substring(utc, " ", "T", max_replacements=1)
    return iso if kind.tz is None else pc.binary_join_element_wise(iso, "Z", "")
