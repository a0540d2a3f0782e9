"""Standard input as a source of events: Arrow IPC, CSV or JSON lines, told by its first bytes."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any

import pyarrow as pa

from cer_gpu.errors import EventsError
from cer_gpu.io.csv_files import csv_source, delimiter_of
from cer_gpu.io.json_lines import TEXT_BYTES, json_source
from cer_gpu.io.source import READ_ERRORS, Source, check_names
from cer_gpu.io.sources import open_events
from cer_gpu.io.text_options import USUAL, TextOptions

_EXPECTED = (
    "expected an Arrow IPC stream (such as `cer-gpu run ... -o - --format arrow` writes), CSV with a header, or JSON "
    "lines, perhaps compressed by gzip"
)
_STREAM = b"\xff\xff\xff\xff"
_FILE = b"ARROW1\0\0"
_GZIP = b"\x1f\x8b"
_BINARY = bytes(set(range(32)) - set(b"\t\n\r\f\v"))
"""Bytes that no text has."""


def open_standard_input(file: IO[bytes], options: TextOptions = USUAL) -> Source:
    """Open events that come through a pipe.

    Parameters
    ----------
    file
        Arrow IPC: a stream, or a file, which is a stream between two magic strings; or CSV with a header, separated by
        commas or tabs, or JSON lines.  It may be compressed by gzip, is read once, and need not be seekable.
    options
        Options for reading text files.

    Raises
    ------
    EventsError
        When standard input is a terminal, is empty, or holds something else.
    """
    if file.isatty():
        raise EventsError(f"standard input is a terminal: {_EXPECTED}\nhint: ... | cer-gpu run QUERY -")
    try:
        return _open(_Rest(b"", file), options)
    except READ_ERRORS as error:
        raise EventsError(f"standard input cannot be read: {error}\nhint: {_EXPECTED}") from error


def _open(file: _Rest, options: TextOptions) -> Source:
    head = file.peek(len(_FILE))
    if not head:
        raise EventsError(f"standard input is empty: {_EXPECTED}")
    if head.startswith(_GZIP):
        return _open(_Rest(b"", pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "gzip")), options)
    if head == _FILE or head.startswith(_STREAM):
        if head == _FILE:
            file.read(len(_FILE))
        return open_events(pa.ipc.open_stream(file))
    if head.startswith(b"PAR1") or head.translate(None, _BINARY) != head:
        what = "Parquet, which cannot be read from a pipe" if head.startswith(b"PAR1") else f"{head!r}..."
        raise EventsError(
            f"standard input: {_EXPECTED}, got {what}\nhint: files of other formats are read by their names"
        )
    return _open_text(file, options)


def _open_text(file: _Rest, options: TextOptions) -> Source:
    """Open CSV or JSON lines; the schema is that of the first lines."""
    if file.peek(len(BOM_UTF8)) == BOM_UTF8:
        file.read(len(BOM_UTF8))
    head = file.peek(TEXT_BYTES)
    lines = head[: head.rfind(b"\n") + 1] or head

    def probe() -> Any:
        return _in_arrow(lines)

    def stream() -> Any:
        return _in_arrow(head) if len(head) < TEXT_BYTES else file

    if head.lstrip()[:1] in (b"{", b"["):
        source = json_source(stream, options, probe=probe, name="standard input")
    else:
        own = options if options.delimiter is not None else replace(options, delimiter=delimiter_of(lines))
        source = csv_source(stream, own, probe=probe, name="standard input")
    check_names(source.schema)
    return replace(source, read=lambda columns: _rows(source.batches(columns)), as_types=None)


def _in_arrow(data: bytes) -> pa.BufferReader:
    """Return a file of a copy in Arrow's memory.

    Arrow's threads may drop a file after its reader is closed.  If that is an object of Python, and the interpreter is
    ending just then, the process aborts.
    """
    copy = pa.BufferOutputStream()
    copy.write(data)
    return pa.BufferReader(copy.getvalue())


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except READ_ERRORS as error:
        raise EventsError(f"standard input cannot be read: {error}") from error


class _Rest:
    """File whose first bytes were read already: it returns these, then the rest."""

    closed = False

    def __init__(self, head: bytes, file: Any) -> None:
        self._head = head
        self._file = file

    def peek(self, n: int) -> bytes:
        """Return the next bytes, at most `n`, without passing over them."""
        while len(self._head) < n and (more := self._file.read(n - len(self._head))):
            self._head += more
        return self._head[:n]

    def read(self, n: int = -1) -> bytes:
        head, self._head = self._head, b""
        if n < 0:
            return head + bytes(self._file.read())
        self._head = head[n:]
        return head[:n] + bytes(self._file.read(n - len(head))) if n > len(head) else head[:n]

    def close(self) -> None:
        """Leave the file open: it is the caller's."""
