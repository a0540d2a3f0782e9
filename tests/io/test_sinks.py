"""Files and pipes of complex events: nested columns, dictionaries, and errors of writing."""

import contextlib
import csv
import io
import json

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from cer_gpu.errors import OptionError
from cer_gpu.io import sinks
from cer_gpu.io.sinks import PIPE_FORMATS, SINK_FORMATS, open_pipe, open_sink

EVENT = pa.struct([("kind", pa.dictionary(pa.int8(), pa.string())), ("price", pa.float64())])
SCHEMA = pa.schema(
    [("end", pa.int64()), ("events", pa.list_(EVENT)), ("who", pa.dictionary(pa.int8(), pa.large_string()))]
)
PLAIN = pa.schema(
    [
        ("end", pa.int64()),
        ("events", pa.list_(pa.struct([("kind", pa.string()), ("price", pa.float64())]))),
        ("who", pa.large_string()),
    ]
)


def batch(k, n=2):
    """Return rows with dictionaries that no other batch has."""
    kinds = pa.DictionaryArray.from_arrays(pa.array([0, 1, None] * n, pa.int8()), pa.array([f"k{k}", f'"{k}"']))
    events = pa.StructArray.from_arrays([kinds, pa.array([float(k), None, 0.5] * n, pa.float64())], fields=list(EVENT))
    lists = pa.ListArray.from_arrays(pa.array([3 * i for i in range(n + 1)], pa.int32()), events)
    who = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int8()), pa.array([f"w{k}"], pa.large_string()))
    return pa.RecordBatch.from_arrays([pa.array(range(k, k + n), pa.int64()), lists, who], schema=SCHEMA)


def read(file, format):
    """Return the rows as Python values."""
    match format:
        case "parquet":
            return pq.read_table(file).to_pylist()
        case "arrow":
            raw = file.read()
            opened = pa.ipc.open_file(raw) if raw.startswith(b"ARROW1") else pa.ipc.open_stream(raw)
            assert opened.schema == PLAIN
            return opened.read_all().to_pylist()
        case "jsonl":
            return [json.loads(line) for line in file]
    rows = csv.DictReader(io.StringIO(file.read().decode(), newline=""), strict=True)
    return [{"end": int(row["end"]), "events": json.loads(row["events"]), "who": row["who"]} for row in rows]


@pytest.mark.parametrize("format", SINK_FORMATS)
def test_batches_may_have_dictionaries_of_their_own(tmp_path, format, monkeypatch):
    """All batches together have more values than one dictionary of 8-bit codes."""
    monkeypatch.setattr(sinks, "WRITE_ROWS", 300)
    monkeypatch.setattr(sinks, "TEXT_ROWS", 3)
    batches = [batch(k, 7) for k in range(150)]
    with open_sink(tmp_path / f"out.{format}", SCHEMA) as sink:
        for each in batches:
            sink.write(each)
    with open(tmp_path / f"out.{format}", "rb") as file:
        assert read(file, format) == [row for each in batches for row in each.to_pylist()]


@pytest.mark.parametrize("format", PIPE_FORMATS)
def test_rows_are_in_a_pipe_as_soon_as_they_are_written(format, monkeypatch):
    monkeypatch.setattr(sinks, "TEXT_ROWS", 3)
    file, written, n_whole = io.BytesIO(), [], 0

    @contextlib.contextmanager
    def whole():
        nonlocal n_whole
        n_whole += 1
        yield

    with open_pipe(file, SCHEMA, format, whole) as sink:
        for k in range(3):
            sink.write(batch(k, 4))
            written += batch(k, 4).to_pylist()
            assert read(io.BytesIO(file.getvalue()), format) == written
        n_before = n_whole
        sink.write(batch(0, 0))
        assert n_whole == n_before == 1 + 3 * 2
    assert not file.closed
    file.seek(0)
    assert read(file, format) == written


def test_long_rows_are_cut_into_pieces(monkeypatch):
    monkeypatch.setattr(sinks, "WRITE_BYTES", 1000)
    texts = pa.record_batch({"a": ["x" * 900] * 10})
    pieces = list(sinks._pieces(texts))
    assert [p.num_rows for p in pieces] == [2, 2, 2, 2, 2]
    assert [p.num_rows for p in sinks._pieces(pa.record_batch({"a": ["x" * 9000]}))] == [1]
    assert list(sinks._pieces(texts.slice(0, 0))) == []


@pytest.mark.parametrize("format", SINK_FORMATS)
def test_an_error_leaves_the_earlier_file_unchanged(tmp_path, format):
    path = tmp_path / f"out.{format}"
    path.write_text("from before")
    with contextlib.suppress(ZeroDivisionError), open_sink(path, SCHEMA) as sink:
        sink.write(batch(1))
        raise ZeroDivisionError
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "from before"


def test_an_error_leaves_a_stream_without_its_end():
    file = io.BytesIO()
    with contextlib.suppress(ZeroDivisionError), open_pipe(file, SCHEMA, "arrow") as sink:
        sink.write(batch(1))
        raise ZeroDivisionError
    assert not file.getvalue().endswith(b"\xff\xff\xff\xff\0\0\0\0")


def test_results_that_a_format_cannot_hold_are_refused(tmp_path):
    intervals = pa.schema([("a", pa.month_day_nano_interval())])
    message = r"out\.parquet: the format cannot hold these results: .*\nhint: another format"
    with pytest.raises(OptionError, match=message), open_sink(tmp_path / "out.parquet", intervals):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_given_format_takes_precedence_over_the_ending(tmp_path):
    for name, format in ("a.JSONL", None), ("b", "jsonl"), ("c.csv", "jsonl"):
        with open_sink(tmp_path / name, SCHEMA, format=format) as sink:
            sink.write(batch(1))
        with open(tmp_path / name, "rb") as file:
            assert read(file, "jsonl") == batch(1).to_pylist()
    with pytest.raises(OptionError, match="cannot tell the format"), open_sink(tmp_path / "d", SCHEMA):
        pass
