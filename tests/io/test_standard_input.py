"""Events that come through a pipe: the format is told by the first bytes, and the rows are those of a file."""

from __future__ import annotations

import gzip
import io
import json
from functools import partial

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

import cer_gpu
from cer_gpu.io import formats, sources
from cer_gpu.io.sources import open_standard_input

N = 3000
TABLE = pa.table({"type": ["A", "B", "C"] * (N // 3), "x": range(N), "name": ["n, 1", None, "n 2"] * (N // 3)})
QUERY = cer_gpu.compile("SELECT * FROM S WHERE A : B FILTER A[x > 5 AND name = 'n, 1']")


def separated(delimiter: str) -> bytes:
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(TABLE, sink, pa_csv.WriteOptions(delimiter=delimiter))
    return sink.getvalue().to_pybytes()


def arrow() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=100)
    return sink.getvalue().to_pybytes()


LINES = "".join(json.dumps(row) + "\n" for row in TABLE.to_pylist()).encode()
GIVEN = {
    "Arrow": arrow(),
    "CSV": separated(","),
    "tabs": separated("\t"),
    "JSON lines": LINES,
    "blanks before": b"\n  " + LINES,
    "no end of the last line": LINES[:-1],
    "JSON lines with a byte order mark": b"\xef\xbb\xbf" + LINES,
    "CSV with a byte order mark": b"\xef\xbb\xbf" + separated(","),
    "gzip CSV": gzip.compress(separated(",")),
    "gzip JSON lines": gzip.compress(LINES),
    "gzip Arrow": gzip.compress(arrow()),
}


@pytest.mark.parametrize("head", [100, 1 << 22])
@pytest.mark.parametrize("kind", GIVEN)
def test_every_format_gives_the_same_events(kind, head, monkeypatch):
    monkeypatch.setattr(sources, "STRING_BYTES", head)
    assert QUERY.evaluate(open_standard_input(io.BytesIO(GIVEN[kind]))).equals(QUERY.evaluate(TABLE))


@pytest.mark.parametrize("reader", ["json_source", "csv_source"])
def test_the_bytes_that_threads_of_arrow_read_belong_to_arrow(reader, monkeypatch):
    # a thread that drops an object of Python while the interpreter ends aborts the process
    opened = []

    def watching(stream, *given, probe, **options):
        def watched(open):
            opened.append(open())
            return opened[-1]

        return getattr(formats, reader)(partial(watched, stream), *given, probe=partial(watched, probe), **options)

    monkeypatch.setattr(sources, reader, watching)
    given = LINES if reader == "json_source" else separated(",")
    list(open_standard_input(io.BytesIO(given)).batches(["x"]))
    assert len(opened) == 2
    assert all(isinstance(each, pa.BufferReader) for each in opened)


WRONG = {
    b"": "standard input is empty: expected an Arrow IPC stream",
    b"\x89PNG\r\n\x1a\n123": r"got b'\x89PNG\r\n\x1a\n'...",
    b"PAR1asdf": "got Parquet, which cannot be read from a pipe",
    b"nonsense": "standard input cannot be read: ",
    b'{"a": 1': "standard input cannot be read: JSON parse error",
    b"[1]\n": "changed from object to array",
    b"type,x,name\n1\n": "Expected 3 columns, got 1",
    separated(",") + b"D,1\n": "Expected 3 columns, got 2",
    gzip.compress(LINES)[:50]: "standard input cannot be read: ",
    arrow()[:2000]: "cannot be read",
}


@pytest.mark.parametrize("wrong", WRONG, ids=list(WRONG.values()))
def test_what_cannot_be_read_is_refused(wrong):
    with pytest.raises(cer_gpu.EventsError) as caught:
        QUERY.evaluate(open_standard_input(io.BytesIO(wrong)))
    assert WRONG[wrong] in str(caught.value) or "broke" in str(caught.value)
