"""Formats of stored events: the endings of their names, and their readers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from cer_gpu.columnar.columns import is_string, plain_type
from cer_gpu.columnar.fields import attribute_type, names_in
from cer_gpu.io.csv_files import csv_source
from cer_gpu.io.json_lines import json_source
from cer_gpu.io.source import BATCH_ROWS, Parts, Source
from cer_gpu.io.stores import StoredFile
from cer_gpu.io.text_files import reading_to_its_end
from cer_gpu.io.text_options import TextOptions

PARQUET_BYTES = 1 << 23
"""Bytes of a column of a local Parquet file to read at once."""
FILE_ROWS = 1 << 20
"""Most rows of a Parquet file to decode at once."""
FILE_BYTES = 1 << 24
"""Most bytes of the rows to decode at once, if they are more than `BATCH_ROWS`."""


def _open_parquet(stored: StoredFile) -> Source:
    # pre-buffering would keep whole row groups in memory; reads from another machine are better few and large
    buffered = stored.store is not None
    piece = 0 if buffered else PARQUET_BYTES
    with stored.open() as opened, pq.ParquetFile(opened, pre_buffer=False) as file:
        schema, metadata = file.schema_arrow, file.metadata
    begins = [0, *accumulate(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))]
    most_rows: dict[tuple[str, ...], int] = {}

    def read(columns: list[str], begin: int, end: int, *, several_threads: bool = False) -> Iterator[pa.RecordBatch]:
        types = {".".join(names_in(schema, name)): attribute_type(schema, name) for name in columns}
        names, texts = list(types), [name for name, data_type in types.items() if is_string(data_type)]
        with (
            stored.open() as opened,
            pq.ParquetFile(opened, pre_buffer=buffered, buffer_size=piece, read_dictionary=texts) as file,
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


def _open_csv(delimiter: str, stored: StoredFile, compression: str | None, options: TextOptions) -> Source:
    return csv_source(partial(stored.stream, compression), options, name=str(stored), delimiter=delimiter)


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
    open: Callable[[StoredFile, str | None, TextOptions], Source]
    is_text: bool = False

    def open_as(self, stored: StoredFile, compression: str | None, options: TextOptions, expected: pa.Schema) -> Source:
        """Return the rows of a file as those of a stream with a schema: JSON lines take its types."""
        if self.name == _JSON_LINES:
            return json_source(partial(stored.stream, compression), options, expected, name=str(stored))
        return self.open(stored, compression, options)


_JSON_LINES = "JSON lines"
_FORMATS = (
    Format("Parquet", (".parquet", ".pq", ".parq"), lambda stored, *_: _open_parquet(stored)),
    Format("Arrow IPC", (".arrow", ".feather", ".ipc", ".arrows"), lambda stored, *_: _open_ipc(stored)),
    Format("CSV", (".csv",), partial(_open_csv, ","), is_text=True),
    Format("CSV", (".tsv",), partial(_open_csv, "\t"), is_text=True),
    Format(
        _JSON_LINES,
        (".jsonl", ".ndjson"),
        lambda stored, codec, options: json_source(partial(stored.stream, codec), options, name=str(stored)),
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
