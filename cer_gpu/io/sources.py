"""Sources of events: files, tables, streams and more, read as batches in order, with only the requested columns."""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.columns import DECIMAL, FLOAT, INTEGER, NOTHING, is_string, kind_of, plain_type, types_within
from cer_gpu.columnar.fields import attribute_type, columns_with, names_in
from cer_gpu.columnar.resident import DeviceEvents
from cer_gpu.columnar.validation import validated
from cer_gpu.errors import EventsError, TimeOrderError, did_you_mean

BATCH_ROWS = 1 << 17
FILE_ROWS = 1 << 20
"""Most rows of a Parquet file to decode at once."""
FILE_BYTES = 1 << 24
"""Most bytes of the rows to decode at once, if they are more than `BATCH_ROWS`."""
BATCHES_AHEAD = 2
"""Batches of a file decoded ahead of the evaluation."""

_PARQUET = (".parquet", ".pq", ".parq")
_IPC = (".arrow", ".feather", ".ipc", ".arrows")
_CSV = (".csv", ".csv.gz", ".tsv")
_READ_ERRORS = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError)


@dataclass(frozen=True)
class Parts:
    """Parts of a source, such as row groups, which several threads can read at once.

    Attributes
    ----------
    begins : list of int
        Positions of the first rows of the parts, and the number of all rows.
    read : callable
        ``read(columns, begin, end)`` yields the rows from `begin`, where a part begins, up to `end`.
    """

    begins: list[int]
    read: Callable[[list[str], int, int], Iterator[pa.RecordBatch]]

    def serve(self, n_threads: int) -> bool:
        """Return True if `n_threads` can share the rows about equally."""
        largest = max((end - begin for begin, end in pairwise(self.begins)), default=0)
        return largest * n_threads <= 1.25 * self.begins[-1]


class Source:
    """Events that can be read once, in order.

    Attributes
    ----------
    schema : pyarrow.Schema
    n_rows : int or None
        Number of events; None: it is not known before reading.
    rereadable : bool
        True if `batches` can be called again, and reads a few columns faster than all.
    in_memory : bool
        True if all events are in memory.
    reads_ahead : bool
        True if another thread reads the next batches.
    parts : Parts or None
        Parts to read at once; None: the source cannot be read in parts.
    resident : bool
        True if columns may lie in the memory of a GPU, where the host must not read them.
    reads_fields : bool
        True if `read` also takes fields of structs, and omits their other fields.
    """

    def __init__(
        self,
        schema: pa.Schema,
        read: Callable[[list[str]], Iterator[pa.RecordBatch]],
        n_rows: int | None = None,
        origins: Sequence[tuple[int, str]] = (),
        *,
        rereadable: bool = False,
        in_memory: bool = False,
        reads_ahead: bool = False,
        resident: bool = False,
        reads_fields: bool = False,
        parts: Parts | None = None,
    ) -> None:
        self.schema = schema
        self.in_memory = in_memory
        self.reads_ahead = reads_ahead
        self.parts = parts
        self.resident = resident
        self.reads_fields = reads_fields
        self.n_rows = n_rows
        self.rereadable = rereadable
        self._read = read
        self._origins = origins

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the events; batches have at least the named columns and fields."""
        return self._read(columns if self.reads_fields else columns_with(self.schema, columns))

    def parts_for(self, n_threads: int) -> Parts | None:
        """Return the parts for `n_threads` to read at once; None: there are none, or their sizes are too unequal."""
        return self.parts if self.parts is not None and self.parts.serve(n_threads) else None

    @contextmanager
    def locating(self, n_events: Callable[[], int]) -> Iterator[None]:
        """Let errors in the order of events name the file.

        Parameters
        ----------
        n_events
            Returns the number of events evaluated so far.
        """
        try:
            yield
        except TimeOrderError as error:
            where = self.locate(n_events())
            raise TimeOrderError(f"{where}: {error}" if where else str(error)) from None

    def locate(self, position: int) -> str | None:
        """Return the file of an event, and the position of its first event, for a message."""
        if not self._origins:
            return None
        first, name = self._origins[bisect_right([o[0] for o in self._origins], position) - 1]
        return name if first == 0 else f"{name} (its first event is {first})"


def open_events(events: Any, *, resident: bool = False) -> Source:
    """Open anything that `cer_gpu.Query.evaluate` takes.

    Parameters
    ----------
    events
    resident
        True: accept columns in the memory of a GPU, which only the evaluation can read.

    Raises
    ------
    EventsError
        When the object holds no events, or a file cannot be read.
    """
    if isinstance(events, Source):
        return events
    if isinstance(events, str | os.PathLike):
        if not os.fspath(events):
            raise EventsError("expected the path of a file or folder, got an empty string")
        return _open_paths([Path(events)])
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
    # importing pyarrow.dataset imports pandas; if nobody imported it, `events` is no dataset
    datasets = sys.modules.get("pyarrow._dataset")
    if datasets is not None and isinstance(events, datasets.Dataset):
        return _open_dataset(events)
    if isinstance(events, pa.RecordBatchReader):
        return _open_reader(events)
    from cer_gpu.io.frames import open_frame  # which makes sources, too

    if (frame := open_frame(events)) is not None:
        return frame
    if hasattr(events, "__arrow_c_stream__") or hasattr(events, "__arrow_c_array__"):
        return _open_capsule(events)
    if isinstance(events, Mapping):
        raise EventsError("expected the events of one stream, got a mapping")
    if isinstance(events, Sequence) and events and all(isinstance(e, str | os.PathLike) for e in events):
        return _open_paths([Path(e) for e in events])
    if isinstance(events, Iterable) and not isinstance(events, bytes):
        return _open_iterable(iter(events))
    raise EventsError(
        f"expected a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, an iterable of RecordBatches, an object "
        f"with the Arrow PyCapsule interface, or a path; got {type(events).__name__}"
    )


# ---- in memory and streams --------------------------------------------------------------------------------------


def _open_capsule(events: Any) -> Source:
    try:
        if hasattr(events, "__arrow_c_stream__"):
            return open_events(pa.RecordBatchReader.from_stream(events))
        batch = pa.record_batch(events)
        return open_events(next(validated([batch], batch.schema.names, f"this {type(events).__name__}")))
    except _READ_ERRORS as error:
        raise EventsError(f"cannot read this {type(events).__name__} as a table of events: {error}") from error


def _open_iterable(batches: Iterator[Any]) -> Source:
    nothing = object()
    first = next(batches, nothing)
    if first is nothing:
        raise EventsError("an empty iterable of RecordBatches has no schema\nhint: give at least one, without rows")
    if not isinstance(first, pa.RecordBatch):
        raise EventsError(f"expected an iterable of pyarrow.RecordBatch, got {type(first).__name__} in it")

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        yield first
        for batch in batches:
            if not isinstance(batch, pa.RecordBatch):
                raise EventsError(f"expected an iterable of pyarrow.RecordBatch, got {type(batch).__name__} in it")
            yield batch

    return Source(first.schema, lambda columns: validated(read(columns), columns, "the stream of events"))


def _open_reader(reader: pa.RecordBatchReader) -> Source:
    try:
        _check_names(reader.schema)
    except UnicodeDecodeError as error:
        raise EventsError(f"the stream of events cannot be read: {error}") from error
    runs = not isinstance(reader, pa.ipc.RecordBatchStreamReader)
    return Source(
        reader.schema,
        lambda columns: validated(_batches_of(reader), columns, "the stream of events", runs=runs),
    )


def _check_names(schema: pa.Schema) -> None:
    """Raise UnicodeDecodeError if the name of a column, of a field or of a time zone is not UTF-8."""
    names = schema.names
    for kind in (kind for each in schema.types for kind in types_within(each)):
        names += [kind.field(i).name for i in range(kind.num_fields)]
        names += [kind.tz] if pa.types.is_timestamp(kind) else []


def _batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except _READ_ERRORS as error:
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
        except _READ_ERRORS as error:
            raise EventsError(f"cannot read the dataset: {error}") from error

    return Source(
        dataset.schema,
        lambda columns: validated(read(columns), columns, "the dataset", runs=False),
        rereadable=isinstance(dataset, pa_dataset.FileSystemDataset),
    )


# ---- files --------------------------------------------------------------------------------------------------------


def _open_paths(paths: list[Path]) -> Source:
    try:
        files = [file for path in paths for file in _files(path)]
    except OSError as error:
        raise EventsError(f"cannot find the events: {error}") from error
    sources = [_open_file(file) for file in files]
    schema = sources[0].schema
    origins: list[tuple[int, str]] = []

    def check(columns: list[str]) -> None:
        for file, source in zip(files, sources, strict=True):
            _check_columns(file, source.schema, files[0], schema, columns)

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        n_rows = 0
        check(columns)
        for i, (file, source) in enumerate(zip(files, sources, strict=True)):
            origins[i:] = [(n_rows, str(file))]
            with _reading(file):
                for batch in validated(source.batches(columns), columns, str(file), n_rows, runs=False):
                    yield batch
                    n_rows += batch.num_rows

    counts = [source.n_rows for source in sources]
    known = [count for count in counts if count is not None]
    begins = [0, *accumulate(known)]
    every = [source.parts for source in sources if source.parts is not None]

    def read_parts(columns: list[str], begin: int, end: int) -> Iterator[pa.RecordBatch]:
        check(columns)
        for file, parts, first, last in zip(files, every, begins, begins[1:], strict=False):
            if begin < last and first < end:
                with _reading(file):
                    start = max(begin, first)
                    batches = parts.read(columns, start - first, min(end, last) - first)
                    yield from validated(batches, columns, str(file), start, runs=False)

    in_parts = len(every) == len(sources)
    if in_parts:
        origins += [(begin, str(file)) for file, begin in zip(files, begins, strict=False)]
    starts = [begin + start for parts, begin in zip(every, begins, strict=False) for start in parts.begins[:-1]]
    return Source(
        schema,
        lambda columns: ahead(read(columns)),
        begins[-1] if len(known) == len(counts) else None,
        origins,
        rereadable=all(source.rereadable for source in sources),
        reads_ahead=True,
        reads_fields=True,
        parts=Parts([*starts, begins[-1]], read_parts) if in_parts else None,
    )


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Make errors of reading name the file."""
    try:
        yield
    except _READ_ERRORS as error:
        raise EventsError(f"{file}: cannot be read: {_reason(error)}") from error


def ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches that another thread reads, up to `BATCHES_AHEAD` of them in advance."""
    with ThreadPoolExecutor(1, thread_name_prefix="cer_gpu reader") as pool:
        coming = deque(pool.submit(next, batches, None) for _ in range(BATCHES_AHEAD))
        try:
            while (batch := coming.popleft().result()) is not None:
                coming.append(pool.submit(next, batches, None))
                yield batch
        finally:
            pool.shutdown(cancel_futures=True)


def _check_columns(file: Path, found: pa.Schema, first: Path, expected: pa.Schema, columns: list[str]) -> None:
    """Raise EventsError unless a file has the columns of the first one, of the same kinds."""
    for attribute in columns:
        ours, theirs = attribute_type(found, attribute), attribute_type(expected, attribute)
        name = dotted(attribute)
        if ours is None:
            hint = did_you_mean(name, found.names, "columns") or "the file has no columns"
            raise EventsError(f"{file}: no column {name!r} (or more than one), which {first} has\nhint: {hint}")
        kinds = {kind_of(ours), kind_of(theirs)} - {NOTHING}
        if len(kinds) > 1 and not kinds <= {INTEGER, FLOAT, DECIMAL}:
            raise EventsError(f"{file}: column {name!r} is {ours}, and {theirs} in {first}")


def _files(path: Path) -> list[Path]:
    """Return the path itself if it is a file, or all event files of a folder in the order of their names."""
    if path.is_dir():
        # files whose names begin with . or _ hold metadata, as for pyarrow's datasets
        found = sorted(p for p in path.iterdir() if p.is_file() and _format(p) is not None and p.name[0] not in "._")
        if not found:
            raise EventsError(f"{path}: no Parquet, Arrow IPC or CSV file in this folder")
        return found
    if not path.exists():
        if path.parent.is_dir():
            siblings = sorted(p.name for p in path.parent.iterdir() if _format(p) is not None or p.is_dir())
            hint = (
                did_you_mean(path.name, siblings, "events there") or "no Parquet, Arrow IPC or CSV file in that folder"
            )
        else:
            hint = f"no folder {path.parent}"
        raise EventsError(f"{path}: no such file\nhint: {hint}")
    if _format(path) is None:
        raise EventsError(
            f"{path}: cannot tell the format from the name\n"
            f"hint: expected a name that ends in {', '.join(_PARQUET + _IPC + _CSV)}"
        )
    return [path]


def _format(path: Path) -> str | None:
    name = path.name.lower()
    for kind, endings in (("parquet", _PARQUET), ("ipc", _IPC), ("csv", _CSV)):
        if name.endswith(endings):
            return kind
    return None


def _reason(error: Exception) -> str:
    """Return the reason why a file cannot be read: the system's, if any, as Arrow's text names the file again."""
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


def _open_file(path: Path) -> Source:
    with _reading(path):
        source = {"parquet": _open_parquet, "ipc": _open_ipc, "csv": _open_csv}[_format(path) or ""](path)
        _check_names(source.schema)
        return source


def _open_parquet(path: Path) -> Source:
    # pre-buffering would keep whole row groups in memory
    with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
        schema, metadata = file.schema_arrow, file.metadata
    begins = [0, *accumulate(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))]
    most_rows: dict[tuple[str, ...], int] = {}

    def read(columns: list[str], begin: int, end: int, *, several_threads: bool = False) -> Iterator[pa.RecordBatch]:
        types = {".".join(names_in(schema, name)): attribute_type(schema, name) for name in columns}
        names, texts = list(types), [name for name, data_type in types.items() if is_string(data_type)]
        with pq.ParquetFile(path, memory_map=True, pre_buffer=False, read_dictionary=texts) as file:
            if (most := most_rows.get(tuple(names))) is None:
                most = most_rows[tuple(names)] = _rows_at_once(file, types)
            for group in range(bisect_right(begins, begin) - 1, file.num_row_groups):
                size = min(most, max(end - begin, 1))
                for batch in file.iter_batches(size, row_groups=[group], columns=names, use_threads=several_threads):
                    yield batch.slice(0, end - begin)
                    begin += batch.num_rows
                    if begin >= end:
                        return

    return Source(
        schema,
        lambda columns: read(columns, 0, begins[-1], several_threads=len(columns) > 1),
        begins[-1],
        rereadable=True,
        reads_fields=True,
        parts=Parts(begins, read),
    )


def _rows_at_once(file: pq.ParquetFile, types: dict[str, pa.DataType | None]) -> int:
    """Return the number of rows to decode at once: more if rows are short, by types and by the first row group."""
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


def _open_ipc(path: Path) -> Source:
    def only(columns: list[str]) -> pa.ipc.IpcReadOptions:
        # omitted columns are not decompressed; an empty list would mean every column
        return pa.ipc.IpcReadOptions(
            included_fields=[schema.get_field_index(name) for name in columns or schema.names[:1]]
        )

    def read_stream(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(path)) as memory, pa.ipc.open_stream(memory, options=only(columns)) as reader:
            yield from reader

    def read_file(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(path)) as memory, pa.ipc.open_file(memory, options=only(columns)) as reader:
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i)

    with pa.memory_map(str(path)) as memory:
        if memory.read(6) == b"ARROW1":
            with pa.ipc.open_file(memory) as reader:
                schema, read = reader.schema, read_file
        else:
            memory.seek(0)
            with pa.ipc.open_stream(memory) as reader:
                schema, read = reader.schema, read_stream
    return Source(schema, read, rereadable=True)


def _open_csv(path: Path) -> Source:
    parse = pa_csv.ParseOptions(delimiter="\t" if path.name.lower().endswith(".tsv") else ",")

    def open_csv(columns: list[str] | None) -> pa_csv.CSVStreamingReader:
        convert = pa_csv.ConvertOptions(
            include_columns=columns, strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        return pa_csv.open_csv(str(path), parse_options=parse, convert_options=convert)

    with open_csv(None) as reader:
        schema = reader.schema

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with open_csv(columns or None) as reader:
            yield from reader

    return Source(schema, read)
