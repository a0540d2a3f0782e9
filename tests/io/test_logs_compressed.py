"""Compression by content, archives as folders, and the limit of what comes out of both."""

import gzip
import io
import json
import struct
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evtx_writer import event_xml, evtx_bytes

import cer_gpu
from cer_gpu.errors import EventsError, OptionError
from cer_gpu.io.files import find_files
from cer_gpu.io.sources import open_events

CODECS = {"gz": "gzip", "zst": "zstd", "bz2": "bz2", "lz4": "lz4", "": None}
ROWS = [{"type": "A", "v": i} for i in range(20)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
CSV = ("type,v\n" + "".join(f"A,{i}\n" for i in range(20))).encode()
EVENTS = [event_xml(f"<EventID>{i}</EventID>", f"<EventData><Data Name='v'>{i}</Data></EventData>") for i in range(20)]
TEXTS = {"x.jsonl": LINES, "x.json": json.dumps(ROWS).encode(), "x.csv": CSV}


def compressed(data, codec):
    if codec is None:
        return data
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def values(path, **options):
    source = open_events(cer_gpu.Files(path, **options))
    return [value for batch in source.batches(["v"]) for value in batch.column("v").to_pylist()]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("codec", CODECS.values())
@pytest.mark.parametrize("ending", CODECS)
def test_text_is_decompressed_by_its_content_whatever_its_name(tmp_path, name, codec, ending):
    path = tmp_path / f"{name}.{ending}".rstrip(".")
    path.write_bytes(compressed(TEXTS[name], codec))
    assert values(path) == [*range(20)]
    assert values(tmp_path) == [*range(20)]


@pytest.mark.parametrize("codec", CODECS.values())
@pytest.mark.parametrize("name", ["x.evtx", "x.evtx.gz", "x.log", "x"])
def test_event_logs_too(tmp_path, codec, name):
    pytest.importorskip("evtx")
    (tmp_path / name).write_bytes(compressed(evtx_bytes(EVENTS), codec))
    assert values(tmp_path / name) == [str(i) for i in range(20)]


def test_several_members_of_gzip_are_one_file(tmp_path):
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(LINES[:100]) + gzip.compress(LINES[100:]))
    assert values(tmp_path) == [*range(20)]


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.csv.gz", "x.json.gz"])
def test_a_damaged_file_is_named(tmp_path, name):
    data = bytearray(compressed(TEXTS[name.removesuffix(".gz")], "gzip"))
    (tmp_path / name).write_bytes(b"\0\1" + data[2:])
    with pytest.raises(EventsError, match=name.replace(".", r"\.")):
        values(tmp_path / name)


def test_files_that_nothing_recognises_are_passed_over_in_folders_and_are_errors_alone(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(LINES)
    for name, data in {"notes.txt": b"hello", "x.bin": bytes(range(256)), "empty": b"", "y.yml": b"a: {b: 1}"}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(EventsError, match="cannot tell the format from the name or the content"):
            open_events(tmp_path / name)
    assert values(tmp_path) == [*range(20)]


# ---- archives -------------------------------------------------------------------------------------------------------


def archive(path, members, **options):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **options) as file:
        for name, data in members.items():
            file.writestr(name, data)


def parquet(rows):
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def test_an_archive_is_a_folder_of_its_members(tmp_path):
    members = {
        "b/k=2/x.jsonl": LINES,
        "b/k=10/x.csv.gz": gzip.compress(CSV),
        "a.parquet": parquet(ROWS),
        "c.unknown": json.dumps(ROWS).encode(),
        "readme.txt": b"hello",
        ".hidden.jsonl": LINES,
        "empty/": b"",
        "__MACOSX/x.jsonl": LINES,
    }
    archive(tmp_path / "logs.zip", members)
    shown = [str(file) for file in find_files(str(tmp_path / "logs.zip"))]
    inside = ["a.parquet", "b/k=2/x.jsonl", "b/k=10/x.csv.gz", "c.unknown"]
    assert shown == [f"{tmp_path}/logs.zip/{name}" for name in inside]
    assert [str(file) for file in find_files(str(tmp_path))] == shown
    assert values(tmp_path / "logs.zip") == [*range(20)] * 4
    (tmp_path / "z.jsonl").write_bytes(LINES)
    assert values(tmp_path) == [*range(20)] * 5


def test_folders_in_an_archive_tell_columns(tmp_path):
    archive(tmp_path / "x.zip", {"a/k=2/x.jsonl": LINES, "a/k=10/x.csv": CSV})
    source = open_events(tmp_path / "x.zip")
    assert [key for batch in source.batches(["k"]) for key in batch.column("k").to_pylist()] == [2] * 20 + [10] * 20


def test_large_members_are_in_a_file_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr("cer_gpu.io.stores._MEMBER_BYTES", 10)
    archive(tmp_path / "x.zip", {"a.parquet": parquet(ROWS), "b.csv": CSV, "c.json": TEXTS["x.json"], "d.jsonl": LINES})
    assert values(tmp_path) == [*range(20)] * 4


def test_event_logs_in_archives(tmp_path):
    pytest.importorskip("evtx")
    archive(tmp_path / "x.zip", {"a.evtx": evtx_bytes(EVENTS), "b.evtx.zst": compressed(evtx_bytes(EVENTS), "zstd")})
    assert values(tmp_path) == [str(i) for i in range(20)] * 2


def test_names_of_members_are_shown_escaped(tmp_path):
    archive(tmp_path / "x.zip", {"a\x1b[31m.jsonl": b'{"v": tru}\n'})
    with pytest.raises(EventsError) as raised:
        values(tmp_path)
    assert "\x1b" not in str(raised.value)
    assert "x.zip/a" in str(raised.value)


def test_an_encrypted_member_is_named(tmp_path):
    archive(tmp_path / "x.zip", {"a.jsonl": LINES})
    data = bytearray((tmp_path / "x.zip").read_bytes())
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag that says so
        data[data.index(magic) + at] |= 1
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(EventsError, match=r"x\.zip/a\.jsonl: is encrypted"):
        values(tmp_path / "x.zip")


@pytest.mark.parametrize("name", ["x.zip", "x.json", "x"])
def test_a_damaged_archive_is_named(tmp_path, name):
    archive(tmp_path / name, {"a.jsonl": LINES})
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(EventsError, match="cannot be read as a zip archive"):
        values(tmp_path / name)


def test_a_member_with_a_wrong_checksum_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("a.jsonl", LINES)
    data = bytearray((tmp_path / "x.zip").read_bytes())
    data[data.index(b'"A"') + 1] ^= 1
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(EventsError, match=r"x\.zip/a\.jsonl"):
        values(tmp_path)


def test_an_archive_without_events_says_so(tmp_path):
    archive(tmp_path / "x.zip", {"readme.txt": b"hello"})
    with pytest.raises(EventsError, match="in this archive"):
        values(tmp_path / "x.zip")


# ---- the limit ------------------------------------------------------------------------------------------------------

LONG = {
    "x.csv": b"type,v\n" + b"A,1\n" * 2_000_000,
    "x.jsonl": b'{"type": "A", "v": 1}\n' * 600_000,
    "x.json": b"[" + b'{"type": "A", "v": 1},\n' * 260_000 + b'{"v": 1}]',
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("codec", ["gzip"])
def test_a_file_that_becomes_too_large_is_an_error_with_the_limit(tmp_path, name, codec):
    (tmp_path / name).write_bytes(compressed(LONG[name], codec))
    with pytest.raises(EventsError, match=rf"{name}: has more than max_decompressed \(5\.0 MiB\)"):
        values(tmp_path / name, max_decompressed="5MiB")
    assert len(values(tmp_path / name, max_decompressed="1 GB")) == LONG[name].count(b"1")


def test_an_event_log_and_an_archive_too(tmp_path):
    pytest.importorskip("evtx")
    (tmp_path / "a.evtx").write_bytes(compressed(evtx_bytes(EVENTS * 30), "gzip"))
    with pytest.raises(EventsError, match=r"a\.evtx: has more than max_decompressed \(100\.0 KiB\)"):
        values(tmp_path / "a.evtx", max_decompressed="100KiB")
    archive(tmp_path / "b.zip", {f"{i}.jsonl": LINES for i in range(10)})
    with pytest.raises(EventsError, match=r"b\.zip.*: has more than max_decompressed \(1\.0 KiB\)"):
        values(tmp_path / "b.zip", max_decompressed=1024)


def test_what_an_archive_says_of_its_members_is_the_most_that_is_read(tmp_path):
    archive(tmp_path / "x.zip", {"a.jsonl": LINES * 1000})
    data = bytearray((tmp_path / "x.zip").read_bytes())
    entry = data.index(b"PK\x01\x02")
    struct.pack_into("<I", data, entry + 24, 100)  # its size
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(EventsError, match=r"x\.zip"):
        values(tmp_path / "x.zip", max_decompressed=10_000)


@pytest.mark.parametrize("size", ["", "x", 0, -1, 1.5])
def test_a_limit_is_a_size(size):
    with pytest.raises(OptionError, match="max_decompressed must be a size"):
        cer_gpu.Files("x.csv", max_decompressed=size)


def test_a_file_that_is_not_compressed_has_no_limit(tmp_path):
    (tmp_path / "x.csv").write_bytes(CSV)
    assert values(tmp_path, max_decompressed=1) == [*range(20)]
