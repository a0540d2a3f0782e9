"""Formats of stored events: the endings of their names, and their readers."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from cer_gpu.columnar.columns import is_string, plain_type
from cer_gpu.columnar.fields import attribute_type, names_in
from cer_gpu.io.source import BATCH_ROWS, Parts, Source
from cer_gpu.io.stores import StoredFile

FILE_ROWS = 1 << 20
"""Most rows of a Parquet file to decode at once."""
FILE_BYTES = 1 << 24
"""Most bytes of the rows to decode at once, if they are more than `BATCH_ROWS`."""
TEXT_BYTES = 1 << 22
"""Bytes of JSON lines to parse at once; the types of columns are those of the first so many."""


def _open_parquet(stored: StoredFile, compression: str | None) -> Source:
    # pre-buffering would keep whole row groups in memory; reads from another machine are better few and large
    buffered = stored.store is not None
    with stored.open() as opened, pq.ParquetFile(opened, pre_buffer=False) as file:
        schema, metadata = file.schema_arrow, file.metadata
    begins = [0, *accumulate(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))]
    most_rows: dict[tuple[str, ...], int] = {}

    def read(columns: list[str], begin: int, end: int, *, several_threads: bool = False) -> Iterator[pa.RecordBatch]:
        types = {".".join(names_in(schema, name)): attribute_type(schema, name) for name in columns}
        names, texts = list(types), [name for name, data_type in types.items() if is_string(data_type)]
        with (
            stored.open() as opened,
            pq.ParquetFile(opened, pre_buffer=buffered, read_dictionary=texts) as file,
        ):
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


def _open_ipc(stored: StoredFile, compression: str | None) -> Source:
    def only(columns: list[str]) -> pa.ipc.IpcReadOptions:
        # omitted columns are not decompressed; an empty list would mean every column
        return pa.ipc.IpcReadOptions(
            included_fields=[schema.get_field_index(name) for name in columns or schema.names[:1]]
        )

    def read_stream(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with stored.open() as memory, pa.ipc.open_stream(memory, options=only(columns)) as reader:
            yield from reader

    def read_file(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with stored.open() as memory, pa.ipc.open_file(memory, options=only(columns)) as reader:
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i)

    with stored.open() as memory:
        if memory.read(6) == b"ARROW1":
            with pa.ipc.open_file(memory) as reader:
                schema, read = reader.schema, read_file
        else:
            memory.seek(0)
            with pa.ipc.open_stream(memory) as reader:
                schema, read = reader.schema, read_stream
    return Source(schema, read, rereadable=True)


def csv_source(stream: Callable[[], Any], delimiter: str = ",") -> Source:
    """Return the rows of CSV with a header; columns have the types of the first MiB.

    Parameters
    ----------
    stream
        Opens the bytes; called once for the schema, and once for the rows.
    delimiter
    """
    parse = pa_csv.ParseOptions(delimiter=delimiter)

    def open_csv(columns: list[str] | None) -> pa_csv.CSVStreamingReader:
        convert = pa_csv.ConvertOptions(
            include_columns=columns, strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        return pa_csv.open_csv(stream(), parse_options=parse, convert_options=convert)

    with open_csv(None) as reader:
        schema = reader.schema

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with open_csv(columns or None) as reader:
            yield from reader

    return Source(schema, read)


def json_source(stream: Callable[[], Any], expected: pa.Schema | None = None) -> Source:
    """Return the rows of JSON lines, each an object; columns have the types of the first `TEXT_BYTES`.

    Texts that are moments in ISO 8601 become timestamps.  A column that is not among the first rows is left out.

    Parameters
    ----------
    stream
        Opens the bytes; called once for the schema, and once for the rows.
    expected
        Columns that have these types whatever the first rows have, and are NULL where there are none.  Other columns
        and fields of the first rows are in the schema, too.
    """
    options = pa_json.ReadOptions(block_size=TEXT_BYTES)
    with pa_json.open_json(stream(), read_options=options) as reader:
        first = reader.read_next_batch()
    schema = pa.schema([pa.field(name, _with_moments(first.column(i))) for i, name in enumerate(first.schema.names)])
    types = schema if expected is None else pa.schema(_added(expected, schema))
    if expected is not None:
        schema = pa.schema(_added(expected, schema, within=True))

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        wanted = pa.schema([types.field(name) for name in columns or types.names[:1]])
        parse = pa_json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
        try:
            with pa_json.open_json(stream(), read_options=options, parse_options=parse) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(
                f"{error}\nhint: columns have the types of the first {TEXT_BYTES >> 20} MiB: {wanted.to_string()}"
            ) from None

    return Source(schema, read)


def _added(expected: Iterable[pa.Field], found: Iterable[pa.Field], *, within: bool = False) -> list[pa.Field]:
    """Return fields with those found besides; `within` structs, too."""
    more = {field.name: field for field in found}
    fields = []
    for field in expected:
        other = more.pop(field.name, None)
        if within and other is not None and pa.types.is_struct(field.type) and pa.types.is_struct(other.type):
            field = field.with_type(pa.struct(_added(field.type, other.type, within=True)))
        fields.append(field)
    return [*fields, *more.values()]


def _with_moments(column: pa.Array) -> pa.DataType:
    """Return the type of a column of JSON: a timestamp if all of its texts are moments, with a zone or without."""
    if pa.types.is_timestamp(column.type):
        return pa.timestamp("us", column.type.tz)  # of whole seconds, as far as they were read
    if not pa.types.is_string(column.type) or column.null_count == len(column):
        return column.type
    for kind in (pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in ("UTC", None)):
        with contextlib.suppress(pa.ArrowInvalid):
            column.cast(kind)
            return kind
    return column.type


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
        Returns the rows of a file, decompressed by the codec of a name (None: the bytes as they are).
    is_text
        True if the whole file may be compressed: its name then ends in one of `COMPRESSIONS`, too.
    """

    name: str
    endings: tuple[str, ...]
    open: Callable[[StoredFile, str | None], Source]
    is_text: bool = False

    def open_as(self, stored: StoredFile, compression: str | None, expected: pa.Schema) -> Source:
        """Return the rows of a file as those of a stream with a schema: JSON lines take its types."""
        if self.name == _JSON_LINES:
            return json_source(partial(stored.stream, compression), expected)
        return self.open(stored, compression)


_JSON_LINES = "JSON lines"
_FORMATS = (
    Format("Parquet", (".parquet", ".pq", ".parq"), _open_parquet),
    Format("Arrow IPC", (".arrow", ".feather", ".ipc", ".arrows"), _open_ipc),
    Format("CSV", (".csv",), lambda stored, codec: csv_source(partial(stored.stream, codec)), is_text=True),
    Format("CSV", (".tsv",), lambda stored, codec: csv_source(partial(stored.stream, codec), "\t"), is_text=True),
    Format(
        _JSON_LINES,
        (".jsonl", ".ndjson"),
        lambda stored, codec: json_source(partial(stored.stream, codec)),
        is_text=True,
    ),
)
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
"""Codecs of Arrow by the endings of names."""
_NAMES = list(dict.fromkeys(format.name for format in _FORMATS))
FORMAT_NAMES = f"{', '.join(_NAMES[:-1])} or {_NAMES[-1]}"
"""All formats, for messages."""
ENDINGS = (
    ", ".join(ending for format in _FORMATS for ending in format.endings)
    + f" (text also with {', '.join(COMPRESSIONS)} behind)"
)
"""All endings, for messages."""


def format_of(name: str) -> tuple[Format, str | None] | None:
    """Return the format that the name of a file tells, and the codec of its compression; None: the name tells none."""
    name = name.lower()
    codec = next((codec for ending, codec in COMPRESSIONS.items() if name.endswith(ending)), None)
    plain = name if codec is None else name.rsplit(".", 1)[0]
    for format in _FORMATS:
        if plain.endswith(format.endings) and (codec is None or format.is_text):
            return format, codec
    return None
