"""Every kind of source gives the same events, reads only the needed columns, and has readable errors."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu.io import formats
from cer_gpu.io.formats import FORMAT_NAMES
from cer_gpu.io.sources import open_events

QUERY = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[x > 5 AND name <> 'n3'] WITHIN 6 EVENTS")
N = 90


def events() -> pa.Table:
    rng = random.Random(7)
    return pa.table(
        {
            "unused": [[i] for i in range(N)],
            "type": [rng.choice("ABC") for _ in range(N)],
            "x": [rng.choice([None, 3, 6, 9]) for _ in range(N)],
            "name": [f"n{rng.randrange(5)}" for _ in range(N)],
            "at": pa.array(range(N), pa.timestamp("us")),
        }
    )


TABLE = events()
FLAT = TABLE.drop_columns("unused")
EXPECTED = QUERY.evaluate(TABLE)


class Stream:
    """Object with the PyCapsule interface of a stream, and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Batch:
    """Object with the PyCapsule interface of an array, and nothing else."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


def dictionaries_that_differ(table: pa.Table, rows: int) -> list[pa.RecordBatch]:
    """Return batches with strings in a dictionary for each batch."""
    batches = []
    for batch in table.to_batches(max_chunksize=rows):
        arrays = [a.dictionary_encode() if pa.types.is_string(a.type) else a for a in batch.columns]
        batches.append(pa.RecordBatch.from_arrays(arrays, names=table.schema.names))
    return batches


def in_memory() -> dict[str, object]:
    batches = TABLE.to_batches(max_chunksize=7)
    return {
        "table": TABLE,
        "table in chunks": pa.Table.from_batches(batches),
        "table with dictionaries": pa.Table.from_batches(dictionaries_that_differ(TABLE, 7)),
        "table of views": TABLE.set_column(1, "type", TABLE["type"].cast(pa.string_view())),
        "record batch": TABLE.combine_chunks().to_batches()[0],
        "slice": pa.concat_tables([TABLE.slice(5, 3), TABLE]).combine_chunks().slice(3),
        "reader": pa.RecordBatchReader.from_batches(TABLE.schema, iter(batches)),
        "list of batches": batches,
        "generator": (b for b in batches),
        "list of tables": [TABLE.slice(0, 20), TABLE.slice(20, 0), TABLE.slice(20)],
        "generator of frames": (Stream(TABLE.slice(k, 13)) for k in range(0, N, 13)),
        "tables and batches": [*TABLE.slice(0, 9).to_batches(), TABLE.slice(9)],
        "frames of pandas": (FLAT.slice(k, 40).to_pandas() for k in range(0, N, 40)),
        "scanner": ds.dataset(TABLE).scanner(columns=["at", "name", "x", "type"], batch_size=11),
        "batches with dictionaries": dictionaries_that_differ(TABLE, 11),
        "in-memory dataset": ds.dataset(TABLE),
        "capsule stream": Stream(TABLE),
        "capsule array": Batch(TABLE.combine_chunks().to_batches()[0]),
        "struct array": TABLE.combine_chunks().to_struct_array().combine_chunks(),
    }


@pytest.mark.parametrize("kind", list(in_memory()))
def test_sources_in_memory_give_the_same_events(kind):
    assert QUERY.evaluate(in_memory()[kind]).equals(EXPECTED)


def write_ipc(path: Path, table: pa.Table, make=pa.ipc.new_file, **options) -> None:
    with (
        pa.OSFile(str(path), "wb") as sink,
        make(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer,
    ):
        writer.write_table(table, max_chunksize=8)


WRITERS = {
    "one.parquet": lambda p: pq.write_table(TABLE, p),
    "groups.parquet": lambda p: pq.write_table(TABLE, p, row_group_size=7),
    "plain.pq": lambda p: pq.write_table(TABLE, p, row_group_size=20, use_dictionary=False, compression="none"),
    "large.parquet": lambda p: pq.write_table(TABLE.set_column(1, "type", TABLE["type"].cast(pa.large_string())), p),
    "views.parquet": lambda p: pq.write_table(TABLE.set_column(1, "type", TABLE["type"].cast(pa.string_view())), p),
    "dictionaries.parquet": lambda p: pq.write_table(pa.Table.from_batches(dictionaries_that_differ(TABLE, N)), p),
    "file.arrow": lambda p: write_ipc(p, TABLE),
    "compressed.arrow": lambda p: write_ipc(p, TABLE, compression="zstd"),
    "stream.arrows": lambda p: write_ipc(p, TABLE, pa.ipc.new_stream),
    "stream.arrow": lambda p: write_ipc(p, TABLE, pa.ipc.new_stream),
    "deltas.arrow": lambda p: write_ipc(
        p, pa.Table.from_batches(dictionaries_that_differ(TABLE, N)), emit_dictionary_deltas=True
    ),
    "f.feather": lambda p: feather.write_feather(TABLE, str(p)),
    "one.orc": lambda p: orc.write_table(TABLE, p),
    "stripes.orc": lambda p: orc.write_table(TABLE, p, stripe_size=256, batch_size=16, compression="zstd"),
    "comma.csv": lambda p: pa_csv.write_csv(FLAT, p),
    "UPPER.CSV": lambda p: pa_csv.write_csv(FLAT, p),
    "tab.tsv": lambda p: pa_csv.write_csv(FLAT, p, pa_csv.WriteOptions(delimiter="\t")),
}


def write_compressed_csv(path: Path) -> None:
    with pa.CompressedOutputStream(str(path), "gzip") as sink:
        pa_csv.write_csv(FLAT, sink)


def json_lines(table: pa.Table) -> bytes:
    return b"".join(json.dumps(row, default=str).encode() + b"\n" for row in table.to_pylist())


WRITERS["zipped.csv.gz"] = write_compressed_csv
WRITERS["lines.jsonl"] = lambda p: p.write_bytes(json_lines(TABLE))
WRITERS["lines.NDJSON"] = lambda p: p.write_bytes(json_lines(FLAT))
WRITERS["lines.jsonl.gz"] = lambda p: p.write_bytes(gzip.compress(json_lines(FLAT)))


def write_compressed_tsv(path: Path) -> None:
    plain = pa.BufferOutputStream()
    pa_csv.write_csv(FLAT, plain, pa_csv.WriteOptions(delimiter="\t"))
    path.write_bytes(bz2.compress(plain.getvalue()))


WRITERS["tab.tsv.bz2"] = write_compressed_tsv


@pytest.mark.parametrize("name", WRITERS)
def test_files_of_each_format_give_the_same_events(name, tmp_path):
    path = tmp_path / name
    WRITERS[name](path)
    assert QUERY.evaluate(path).equals(EXPECTED)
    assert QUERY.evaluate(str(path)).equals(EXPECTED)
    assert QUERY.stream([path]).read_all().equals(EXPECTED)


@pytest.fixture
def parts(tmp_path) -> list[Path]:
    """Write the events to three files of three formats."""
    folder = tmp_path / "parts"
    folder.mkdir()
    files = [folder / "a.parquet", folder / "b.arrow", folder / "c.csv"]
    pq.write_table(TABLE.slice(0, 31), files[0], row_group_size=9)
    write_ipc(files[1], TABLE.slice(31, 30))
    pa_csv.write_csv(FLAT.slice(61), files[2])
    return files


def test_lists_of_paths_and_folders_are_read_in_order(parts):
    assert QUERY.evaluate(parts).equals(EXPECTED)
    assert QUERY.evaluate(tuple(str(p) for p in parts)).equals(EXPECTED)
    (parts[0].parent / "README").write_text("not an event file")
    (parts[0].parent / "._a.parquet").write_text("nor is this")
    (parts[0].parent / "z.parquet").mkdir()
    assert QUERY.evaluate(parts[0].parent).equals(EXPECTED)
    reverse = QUERY.evaluate(parts[::-1])
    assert not reverse.equals(EXPECTED)  # files are read in the order of the list


def test_datasets_of_several_files_are_read_in_order(tmp_path):
    files = []
    for k, start in enumerate((0, 40, 40, 65)):
        files.append(str(tmp_path / f"{k}.parquet"))
        pq.write_table(TABLE.slice(start, (40, 0, 25, 25)[k]), files[-1], row_group_size=11)
    assert QUERY.evaluate(ds.dataset(files)).equals(EXPECTED)
    assert QUERY.evaluate(ds.dataset(tmp_path)).equals(EXPECTED)
    with_arrow = ds.dataset(TABLE.schema.empty_table())
    assert QUERY.evaluate(ds.dataset([ds.dataset(files), with_arrow])).equals(EXPECTED)


def test_positions_count_the_rows_that_the_filter_of_a_dataset_keeps():
    kept = ds.dataset(TABLE).filter(ds.field("type") != "C")
    assert QUERY.evaluate(kept).equals(QUERY.evaluate(kept.to_table()))


def test_data_frames_of_pandas_are_read():
    pd = pytest.importorskip("pandas")
    frame = TABLE.drop_columns("unused").to_pandas()
    assert QUERY.evaluate(frame).equals(EXPECTED)
    frame["type"] = pd.Categorical(frame["type"])
    assert QUERY.evaluate(frame.set_index(pd.Index(range(5, N + 5)))).equals(EXPECTED)
    with pytest.raises(cer_gpu.EventsError, match="cannot read this DataFrame as a table of events"):
        QUERY.evaluate(pd.DataFrame({"type": ["A", 1], "x": [1, 2], "name": ["a", "b"]}))


def test_relations_of_duckdb_are_read():
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        relation = connection.from_arrow(FLAT)
        assert QUERY.evaluate(relation).equals(EXPECTED)
        assert QUERY.evaluate(relation.order('"at"')).equals(EXPECTED)


def test_data_frames_of_polars_are_read():
    polars = pytest.importorskip("polars")
    assert QUERY.evaluate(polars.from_arrow(FLAT)).equals(EXPECTED)


# ---- columns that are read ------------------------------------------------------------------------------------------


def test_parquet_reads_only_the_columns_that_the_query_needs(tmp_path):
    """The bytes of every other column are destroyed."""
    path = tmp_path / "e.parquet"
    pq.write_table(TABLE, path, row_group_size=30, compression="none", use_dictionary=False)
    metadata = pq.ParquetFile(path).metadata
    data = bytearray(path.read_bytes())
    for g in range(metadata.num_row_groups):
        for c in range(metadata.num_columns):
            column = metadata.row_group(g).column(c)
            if column.path_in_schema.split(".")[0] in ("unused", "at"):
                start = column.data_page_offset
                data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(data)
    assert QUERY.evaluate(path).equals(EXPECTED)
    timed = cer_gpu.compile(QUERY.text, time_column="at")
    with pytest.raises(cer_gpu.EventsError, match=r"e\.parquet: cannot be read"):
        timed.evaluate(path)
    positions = cer_gpu.compile("SELECT * FROM S WHERE S ; S WITHIN 1 EVENTS", type_column=None)
    assert positions.evaluate(path).num_rows == N - 1


@pytest.mark.parametrize("name", ["groups.parquet", "file.arrow", "stream.arrow", "comma.csv", "lines.jsonl"])
def test_files_give_only_the_requested_columns(name, tmp_path):
    path = tmp_path / name
    WRITERS[name](path)
    for columns in (["x"], ["name", "type"]):
        batches = list(open_events(path).batches(columns))
        assert {frozenset(b.schema.names) for b in batches} == {frozenset(columns)}
        assert sum(b.num_rows for b in batches) == N
    assert sum(b.num_rows for b in open_events(path).batches([])) == N


def test_parquet_is_read_by_row_group(tmp_path):
    path = tmp_path / "groups.parquet"
    WRITERS["groups.parquet"](path)
    batches = open_events(path).batches(["x"])
    assert next(batches).num_rows == 7


def test_the_number_of_rows_is_known_if_it_costs_nothing(parts):
    assert open_events(TABLE).n_rows == N
    assert open_events(parts[0]).n_rows == 31
    assert open_events(parts).n_rows is None
    assert open_events(iter(TABLE.to_batches())).n_rows is None


def test_names_with_dots_and_spaces_are_read(tmp_path):
    table = pa.table({"a.b": ["A", "B"], "a": [{"b": 1}, {"b": 2}], "x y": [1, 2]})
    pq.write_table(table, tmp_path / "dots.parquet")
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER B[`x y` = 2]", type_column="a.b")
    assert query.evaluate(tmp_path / "dots.parquet")["positions"].to_pylist() == [[0, 1]]


def test_columns_of_one_name_may_be_there_if_they_are_not_read(tmp_path):
    table = pa.table([["A", "B"], [1, 2], [1, 2], [9, 9]], names=["type", "y", "y", "x"])
    pq.write_table(table, tmp_path / "twice.parquet")
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[x = 9]")
    for source in (table, tmp_path / "twice.parquet", table.to_reader()):
        assert query.evaluate(source).num_rows == 1
    anything = cer_gpu.compile("SELECT * FROM S WHERE S", type_column=None)
    assert anything.evaluate(pa.table([[1, 2], [1, 2]], names=["y", "y"])).num_rows == 2


# ---- errors ---------------------------------------------------------------------------------------------------------

GARBAGE = bytes(random.Random(3).randrange(256) for _ in range(400))
BROKEN = {
    "empty.parquet": b"",
    "empty.arrow": b"",
    "empty.csv": b"",
    "empty.csv.gz": b"",
    "newline.csv": b"\n",
    "garbage.parquet": GARBAGE,
    "garbage.arrow": GARBAGE,
    "garbage.csv": GARBAGE,
    "magic.parquet": b"PAR1" + GARBAGE + b"PAR1",
    "magic.arrow": b"ARROW1\0\0" + GARBAGE + b"ARROW1",
    "ragged.csv": b"type,x,name\nA,1,a\nB\n",
    "latin.csv": b"type,x,name\xe9\nA,1,a\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(BROKEN[name])
    with pytest.raises(cer_gpu.EventsError) as caught:
        QUERY.evaluate(path)
    assert str(caught.value).startswith(f"{path}: cannot be read: ")


@pytest.mark.parametrize("name", ["groups.parquet", "file.arrow", "stream.arrow", "compressed.arrow", "zipped.csv.gz"])
def test_truncated_files_are_refused(name, tmp_path):
    path = tmp_path / name
    WRITERS[name](path)
    whole = path.read_bytes()
    for share in (0.02, 0.3, 0.6, 0.9, 0.99):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(cer_gpu.EventsError, match="cannot be read"):
            QUERY.evaluate(path)


def test_parquet_with_broken_pages_is_refused(tmp_path):
    path = tmp_path / "groups.parquet"
    pq.write_table(TABLE, path, row_group_size=30)
    data = bytearray(path.read_bytes())
    data[4:400] = GARBAGE[:396]
    path.write_bytes(data)
    with pytest.raises(cer_gpu.EventsError, match=r"groups\.parquet: cannot be read"):
        QUERY.evaluate(path)


def test_parquet_with_a_damaged_description_of_a_column_is_refused(tmp_path, monkeypatch):
    """pyarrow ends the process where it looks at this histogram of levels before it reads a row."""
    path = tmp_path / "e.parquet"
    pq.write_table(
        pa.table({"type": ["A", "B"] * 500, "x": [9] * 1000}), path, compression="none", use_dictionary=False
    )
    of_two, of_three = b"\x26\x00\xd0\x0f", b"\x36\x00\x50\x0f"
    data = path.read_bytes()
    assert of_two in data
    path.write_bytes(data.replace(of_two, of_three))
    monkeypatch.setattr(formats, "BATCH_ROWS", 100)
    with pytest.raises(cer_gpu.EventsError, match=r"e\.parquet: cannot be read: .*histogram size mismatch"):
        cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[x > 5]").evaluate(path)


@pytest.mark.parametrize("kind", [pa.int64(), pa.struct([("label", pa.int64())]), pa.timestamp("s", tz="label")])
@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_names_that_are_not_utf_8_are_refused(tmp_path, kind, new):
    path = tmp_path / "e.arrow"
    schema = pa.schema({"type": pa.string(), "label": kind})
    with new(str(path), schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([pa.array(["A"]), pa.nulls(1, kind)], schema=schema))
    path.write_bytes(path.read_bytes().replace(b"label", b"\xff\xff\xff\xff\xff"))
    with pytest.raises(cer_gpu.EventsError, match=r"e\.arrow: cannot be read: .*codec can't decode"):
        QUERY.evaluate(path)
    if new is pa.ipc.new_stream:
        with path.open("rb") as file, pytest.raises(cer_gpu.EventsError, match="the stream of events cannot be read"):
            QUERY.evaluate(pa.ipc.open_stream(file))


def test_csv_whose_numbers_become_text_cannot_be_compared_with_numbers(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("type,x,name\n" + "A,1,a\n" * 300_000 + "B,one,b\n")
    with pytest.raises(
        cer_gpu.EventsError, match=r"(?s)e\.csv: column 'x' is int64 in the rows before, .*'one' in row 300,000"
    ):
        QUERY.stream(path).read_all()
    with pytest.raises(cer_gpu.EventsError, match=r"if that is NULL, null_values=\['', 'one'\]"):
        QUERY.evaluate(path)
    assert QUERY.evaluate(cer_gpu.Files(path, null_values=["", "one"])).num_rows == 0


def test_paths_that_lead_nowhere_are_refused_with_a_hint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(TABLE, "flights.parquet")
    Path("folder").mkdir()
    Path("notes.txt").write_text("hello")
    cases = {
        "flihgts.parquet": "flihgts.parquet: no such file\nhint: did you mean 'flights.parquet'?",
        "no/such/e.parquet": "no/such/e.parquet: no such file\nhint: no folder no/such",
        "notes.txt": "notes.txt: cannot tell the format from the name or the content\nhint: expected a name that ends",
        "events.parquet": "events.parquet: no such file",
        "folder": f"folder: no {FORMAT_NAMES} file in this folder",
        "folder/x.csv": f"x.csv: no such file\nhint: no {FORMAT_NAMES} file in that folder",
        "*.arrow": f"*.arrow: no {FORMAT_NAMES} file fits this pattern",
        "": "expected the path of a file or folder, got an empty string",
        "nul\0.parquet": "no such file",
        QUERY.text * 9: "File name too long",
    }
    for path, message in cases.items():
        with pytest.raises(cer_gpu.EventsError) as caught:
            QUERY.evaluate(path)
        assert message in str(caught.value)
        assert ("did you mean" in str(caught.value)) == (path == "flihgts.parquet")
    with pytest.raises(cer_gpu.EventsError, match="no such file"):
        QUERY.evaluate(["flights.parquet", "other.parquet"])


def test_a_second_file_without_a_column_is_refused(tmp_path):
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    pq.write_table(TABLE, files[0])
    pq.write_table(TABLE.rename_columns(["unused", "type", "xx", "name", "at"]), files[1])
    with pytest.raises(
        cer_gpu.EventsError, match=r"b\.parquet: no column 'x'.*, which .*a\.parquet has\nhint: did you mean 'xx'"
    ):
        QUERY.evaluate(files)
    reader = QUERY.stream(files)  # before the first row
    with pytest.raises(cer_gpu.EventsError):
        reader.read_next_batch()
    pq.write_table(pa.table({"a": pa.array([], pa.int8())}).select([]), files[1])
    with pytest.raises(cer_gpu.EventsError, match="the file has no columns"):
        QUERY.evaluate(files)


def test_a_second_file_may_have_another_type_of_the_same_kind(tmp_path):
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    pq.write_table(TABLE.slice(0, 40), files[0])
    at = TABLE.schema.get_field_index("x")
    for data_type in (pa.int8(), pa.float32(), pa.decimal128(30, 2)):
        pq.write_table(TABLE.slice(40).set_column(at, "x", TABLE["x"].slice(40).cast(data_type)), files[1])
        assert QUERY.evaluate(files).equals(EXPECTED)
    pq.write_table(TABLE.set_column(at, "x", TABLE["x"].cast(pa.string())), files[1])
    with pytest.raises(cer_gpu.EventsError, match=r"b\.parquet: column 'x' is string, and int64 in .*a\.parquet"):
        QUERY.evaluate(files)


def test_datasets_that_break_are_refused(tmp_path):
    files = [str(tmp_path / f"{k}.parquet") for k in "ab"]
    pq.write_table(TABLE, files[0])
    pq.write_table(TABLE.set_column(2, "x", pa.array([1.5] * N)), files[1])
    with pytest.raises(cer_gpu.EventsError, match="cannot read the dataset"):
        QUERY.evaluate(ds.dataset(files))
    dataset = ds.dataset(files[0])
    os.remove(files[0])
    with pytest.raises(cer_gpu.EventsError, match=r"cannot read the dataset.*a\.parquet"):
        QUERY.evaluate(dataset)


WRONG = [
    (None, "got NoneType"),
    (5, "got int"),
    (b"e.parquet", "got bytes"),
    (object(), "got object"),
    (QUERY, "got Query"),
    ([], "an empty iterable has no schema"),
    (iter([]), "an empty iterable has no schema"),
    ([1], "got int in it"),
    ([None], "got NoneType in it"),
    ([TABLE, pa.array([1])], "cannot read this Int64Array as a table of events"),
    ([TABLE, TABLE.drop_columns("x")], "table 1 of the iterable: no column 'x' (or more than one), which table 0 has"),
    ([TABLE, TABLE.set_column(2, "x", TABLE["name"])], "table 1 of the iterable: column 'x' is string, and int64 in"),
    ([*TABLE.to_batches(), None], "got NoneType in it"),
    (["e.parquet", TABLE], "got str in it"),
    (TABLE.to_pylist(), "got dict in it"),
    (np.zeros(3), "got float64 in it"),
    (TABLE.schema, "got Field in it"),
    (pa.array([1]), "cannot read this Int64Array as a table of events"),
    (TABLE["x"], "cannot read this ChunkedArray as a table of events"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[m for _, m in WRONG])
def test_objects_that_hold_no_events_are_refused(wrong, message):
    with pytest.raises(cer_gpu.EventsError) as caught:
        QUERY.evaluate(wrong)
    assert message in str(caught.value)


def test_a_stream_that_breaks_is_an_error():
    def batches(error):
        yield TABLE.to_batches()[0]
        raise error

    for error in (OSError("the disk is gone"), pa.ArrowInvalid("bad page")):
        reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches(error))
        with pytest.raises(cer_gpu.EventsError, match=f"the stream of events broke: {error}"):
            QUERY.evaluate(reader)


def test_sources_can_be_opened_again(tmp_path):
    path = tmp_path / "one.parquet"
    WRITERS["one.parquet"](path)
    for events in (path, TABLE, ds.dataset(TABLE)):
        assert QUERY.evaluate(events).equals(QUERY.evaluate(events))
    source = open_events(path)
    assert open_events(source) is source
