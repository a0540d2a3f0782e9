"""Sources of events: files, tables, streams, standard input and more, as batches with only the requested columns."""

from __future__ import annotations

import os
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import IO, Any, TypeVar

import pyarrow as pa

from cer_gpu.columnar.resident import DeviceEvents
from cer_gpu.columnar.validation import validated
from cer_gpu.errors import EventsError, QueryTypeError
from cer_gpu.io.csv_files import csv_source, delimiter_of
from cer_gpu.io.files import Files, Unreadable, open_paths
from cer_gpu.io.frames import open_frame
from cer_gpu.io.json_lines import STRING_BYTES, json_source
from cer_gpu.io.source import BATCH_ROWS, READ_ERRORS, Source, check_columns, check_names, with_plain_uuids
from cer_gpu.io.string_types import WiderTypes
from cer_gpu.io.tables.names import TABLE_PACKAGES
from cer_gpu.io.tables.opening import open_table, table_name_of
from cer_gpu.io.text_options import USUAL, TextOptions

_Result = TypeVar("_Result")

_NAMES_OF_TABLES = {
    TABLE_PACKAGES["delta"]: "'delta:PATH'",
    TABLE_PACKAGES["iceberg"]: "'iceberg:CATALOG.NAMESPACE.TABLE'",
}
"""Names of tables, by the packages whose objects users may pass instead."""


def open_events(events: Any, *, resident: bool = False) -> Source:
    """Open anything that `cer_gpu.Query.evaluate` takes.

    Parameters
    ----------
    events
    resident
        True: accept columns in GPU memory, which only the evaluation can read.

    Raises
    ------
    EventsError
        When the object has no events, or a file cannot be read.
    """
    return with_plain_uuids(_opened(events, resident))


def _opened(events: Any, resident: bool) -> Source:
    if isinstance(events, Source):
        return events
    if isinstance(events, str | os.PathLike):
        return _open_named([events])
    if isinstance(events, Files):
        return _open_named(events.each(), events.options(), getattr(events, "unreadable", None))
    if isinstance(events, DeviceEvents):
        if not resident:
            raise EventsError(
                "columns in the memory of a GPU can be evaluated, but not sorted, merged, explained or reported\n"
                "hint: give arrays of the host, such as those of cupy.asnumpy"
            )
        batch = events.batch()
        return Source(batch.schema, lambda columns: iter([batch.select(columns)]), batch.num_rows, resident=True)
    if isinstance(events, pa.RecordBatch):
        return Source(
            events.schema, lambda columns: iter([events.select(columns)]), events.num_rows,
            rereadable=True, in_memory=True,
        )  # fmt: skip
    if isinstance(events, pa.Table):
        return Source(
            events.schema,
            lambda columns: iter(events.select(columns).to_batches()),
            events.num_rows,
            rereadable=True,
            in_memory=True,
        )
    # importing pyarrow.dataset imports pandas; if it is not imported, `events` is not a dataset
    datasets = sys.modules.get("pyarrow._dataset")
    if datasets is not None and isinstance(events, datasets.Dataset):
        return _open_dataset(events)
    if datasets is not None and isinstance(events, datasets.Scanner):
        return _open_reader(events.to_reader())
    if isinstance(events, pa.RecordBatchReader):
        return _open_reader(events)
    if (frame := open_frame(events)) is not None:
        return frame
    if hasattr(events, "__arrow_c_stream__") or hasattr(events, "__arrow_c_array__"):
        return _open_capsule(events)
    if isinstance(events, Mapping):
        raise EventsError("expected the events of one stream, got a mapping")
    if isinstance(events, Sequence) and events and all(isinstance(e, str | os.PathLike) for e in events):
        return _open_named(events)
    if isinstance(events, Iterable) and not isinstance(events, bytes):
        return _open_iterable(iter(events))
    name = _NAMES_OF_TABLES.get(type(events).__module__.partition(".")[0])
    raise EventsError(
        f"expected a pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, an object with the Arrow "
        f"PyCapsule interface (a frame of pandas or Polars), an iterable of these, or a path; got "
        f"{type(events).__name__}" + (f"\nhint: give the name of the table: {name}" if name else "")
    )


def reading_again(evaluate: Callable[[Any], _Result], events: Any) -> _Result:
    """Evaluate events, and again with wider types if a later row of a text file needs them.

    Parameters
    ----------
    evaluate
        Reads all events, and has no side effects if it raises an error.
    events

    Raises
    ------
    WiderTypes
        When the events cannot be read again, or the query does not support the wider type.
    """
    widening: WiderTypes | None = None
    while True:
        try:
            return evaluate(events)
        except WiderTypes as wider:
            widening, again = wider, with_types(events, wider.types)
            if again is None:
                raise
            events = again
        except QueryTypeError:
            if widening is not None:
                raise widening from None
            raise


def with_types(events: Any, types: Mapping[str, pa.DataType]) -> Any:
    """Return files of events with other types of columns, or None if they have them already or are not files."""
    if isinstance(events, Mapping):
        each = {name: with_types(own, types) for name, own in events.items()}
        changed = {name: own for name, own in each.items() if own is not None}
        return {**events, **changed} if changed else None
    is_list = isinstance(events, list | tuple) and all(isinstance(each, str | os.PathLike) for each in events)
    if isinstance(events, str | os.PathLike) or (is_list and events):
        events = Files(events)
    if not isinstance(events, Files):
        return None
    declared = dict(events.options().column_types)
    if all(declared.get(name) == kind for name, kind in types.items()):
        return None
    return events.with_types(types)


def _open_named(
    names: Sequence[str | os.PathLike[str]], options: TextOptions = USUAL, unreadable: Unreadable | None = None
) -> Source:
    """Open the events of files, with options for text files, or those of one table; see `open_paths`."""
    tables = [name for name in names if table_name_of(os.fspath(name)) is not None]
    if not tables:
        return open_paths(names, options, unreadable)
    if len(names) > 1:
        raise EventsError(
            f"{tables[0]}: is a table, which is a whole stream: no files or tables come before it or after it\n"
            "hint: merge streams by time, each with its name: NAME=PATH, or a mapping"
        )
    return open_table(os.fspath(tables[0])).source()


# ---- in memory and streams --------------------------------------------------------------------------------------


def _open_capsule(events: Any) -> Source:
    try:
        if hasattr(events, "__arrow_c_stream__"):
            return open_events(pa.RecordBatchReader.from_stream(events))
        batch = pa.record_batch(events)
        return open_events(next(validated([batch], batch.schema.names, f"this {type(events).__name__}")))
    except READ_ERRORS as error:
        raise EventsError(f"cannot read this {type(events).__name__} as a table of events: {error}") from error


def _open_iterable(tables: Iterator[Any]) -> Source:
    """Open record batches, tables and frames, one at a time."""
    nothing = object()
    first = next(tables, nothing)
    if first is nothing:
        raise EventsError("an empty iterable has no schema\nhint: give at least one table or batch, without rows")
    schema = _open_table(first).schema
    coming = chain([first], tables)
    del first

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for number, table in enumerate(coming):
            source = _open_table(table)
            # record batches whose types differ are checked when they are read, as those of a reader
            if not isinstance(table, pa.RecordBatch) and source.schema != schema:
                check_columns(f"table {number} of the iterable", source.schema, "table 0", schema, columns)
            yield from source.batches(columns)

    return Source(schema, lambda columns: validated(read(columns), columns, "the stream of events"))


def _open_table(table: Any) -> Source:
    if isinstance(table, pa.RecordBatch | pa.Table):
        return open_events(table)
    if (frame := open_frame(table)) is not None:
        return frame
    if hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__"):
        return _open_capsule(table)
    raise EventsError(
        f"expected an iterable of record batches, tables or frames (Arrow PyCapsule interface), "
        f"got {type(table).__name__} in it"
        + ("\nhint: pyarrow.Table.from_pylist makes a table of rows" if isinstance(table, Mapping) else "")
    )


def _open_reader(reader: pa.RecordBatchReader) -> Source:
    try:
        check_names(reader.schema)
    except UnicodeDecodeError as error:
        raise EventsError(f"the stream of events cannot be read: {error}") from error
    runs = not isinstance(reader, pa.ipc.RecordBatchStreamReader)
    return Source(
        reader.schema,
        lambda columns: validated(_batches_of(reader), columns, "the stream of events", runs=runs),
    )


def _batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except READ_ERRORS as error:
            raise EventsError(f"the stream of events broke: {error}") from error
        yield batch


def _open_dataset(dataset: Any) -> Source:
    import pyarrow.dataset as pa_dataset

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        options: dict[str, Any] = {}
        if isinstance(dataset, pa_dataset.FileSystemDataset) and dataset.format.default_extname == "parquet":
            options["fragment_scan_options"] = pa_dataset.ParquetFragmentScanOptions(pre_buffer=False)
        try:
            scanner = dataset.scanner(
                columns=columns, batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1, **options
            )
            yield from scanner.to_batches()
        except READ_ERRORS as error:
            raise EventsError(f"cannot read the dataset: {error}") from error

    return Source(
        dataset.schema,
        lambda columns: validated(read(columns), columns, "the dataset", runs=False),
        rereadable=isinstance(dataset, pa_dataset.FileSystemDataset),
    )


_EXPECTED = (
    "expected an Arrow IPC stream (such as `cer-gpu run ... -o - --format arrow` writes), CSV with a header, or JSON "
    "lines, perhaps compressed by gzip"
)
_STREAM = b"\xff\xff\xff\xff"
_FILE = b"ARROW1\0\0"
_GZIP = b"\x1f\x8b"
_BINARY = bytes(set(range(32)) - set(b"\t\n\r\f\v"))
"""Bytes that do not occur in text."""


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
        When standard input is a terminal, is empty, or has another format.
    """
    if file.isatty():
        raise EventsError(f"standard input is a terminal: {_EXPECTED}\nhint: ... | cer-gpu run QUERY -")
    try:
        return _open_standard_stream(_PeekableFile(b"", file), options)
    except READ_ERRORS as error:
        raise EventsError(f"standard input cannot be read: {error}\nhint: {_EXPECTED}") from error


def _open_standard_stream(file: _PeekableFile, options: TextOptions) -> Source:
    head = file.peek(len(_FILE))
    if not head:
        raise EventsError(f"standard input is empty: {_EXPECTED}")
    if head.startswith(_GZIP):
        return _open_standard_stream(
            _PeekableFile(b"", pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "gzip")), options
        )
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


def _open_text(file: _PeekableFile, options: TextOptions) -> Source:
    """Open CSV or JSON lines; the schema is that of the first lines."""
    if file.peek(len(BOM_UTF8)) == BOM_UTF8:
        file.read(len(BOM_UTF8))
    head = file.peek(STRING_BYTES)
    lines = head[: head.rfind(b"\n") + 1] or head

    def probe() -> Any:
        return _in_arrow(lines)

    def stream() -> Any:
        return _in_arrow(head) if len(head) < STRING_BYTES else file

    if head.lstrip()[:1] in (b"{", b"["):
        source = json_source(stream, options, probe=probe, name="standard input")
    else:
        own = options if options.delimiter is not None else replace(options, delimiter=delimiter_of(lines))
        source = csv_source(stream, own, probe=probe, name="standard input")
    check_names(source.schema)
    return replace(source, read=lambda columns: _row_batches(source.batches(columns)), as_types=None)


def _in_arrow(data: bytes) -> pa.BufferReader:
    """Return a copy of data as a file in Arrow's memory.

    Arrow's threads may release a file after its reader is closed.  If that is a Python object, and the interpreter is
    shutting down, the process aborts.
    """
    copy = pa.BufferOutputStream()
    copy.write(data)
    return pa.BufferReader(copy.getvalue())


def _row_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except READ_ERRORS as error:
        raise EventsError(f"standard input cannot be read: {error}") from error


class _PeekableFile:
    """File whose first bytes were read already: it returns these, then the rest."""

    closed = False

    def __init__(self, head: bytes, file: Any) -> None:
        self._head = head
        self._file = file

    def peek(self, n: int) -> bytes:
        """Return the next bytes, at most `n`, without consuming them."""
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
        """Leave the file open: the caller closes it."""
