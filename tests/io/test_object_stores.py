"""Files, tables and results in a store: a server of S3 (moto's) on this machine.

It needs other versions than this project pins, and so has an environment of its own, which `make test` makes;
CER_GPU_MOTO names another ``moto_server``.
"""

import os
import socket
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyarrow import fs
from written_tables import rows_of

import cer_gpu
from cer_gpu.errors import OptionError
from cer_gpu.follow.tables import appended_since
from cer_gpu.io.sinks import open_sink
from cer_gpu.io.sources import open_events
from cer_gpu.io.tables.delta import delta_options
from cer_gpu.io.tables.opening import open_table
from cer_gpu.io.tables.table_sinks import append_rows, committed_step
from spark_glue.cli import main

OWN = Path(__file__).parents[2] / ".venv" / "s3" / "bin" / "moto_server"
SERVER = os.environ.get("CER_GPU_MOTO") or (str(OWN) if OWN.exists() else None)
QUERY = cer_gpu.compile("SELECT * WHERE A ; B")
EVENTS = pa.table({"type": ["A", "B", "C"], "x": [1, 2, 3], "day": ["d", "d", "e"]})
RESULTS = pa.schema([("positions", pa.list_(pa.int64()))])


@pytest.fixture(scope="module")
def server():
    if SERVER is None:
        pytest.skip("there is no moto_server: make .venv/s3/.installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    child = subprocess.Popen([SERVER, "-H", "127.0.0.1", "-p", str(port)], stdout=-3, stderr=-3)
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait()


@pytest.fixture
def store(server, monkeypatch):
    """Return the file system of a new bucket, and name the server in the environment."""
    told = {"ENDPOINT_URL": server, "ACCESS_KEY_ID": "me", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1"}
    for name, value in {**told, "EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    store = fs.S3FileSystem(endpoint_override=server, allow_bucket_creation=True, allow_bucket_deletion=True)
    store.create_dir("box")
    yield store
    store.delete_dir("box")


def test_files_folders_and_globs_are_read_by_their_addresses(store):
    for day in ("d", "e"):
        pq.write_table(EVENTS.drop(["day"]), f"box/events/day={day}/1.parquet", filesystem=store)
    assert QUERY.evaluate("s3://box/events/day=d/1.parquet")["positions"].to_pylist() == [[0, 1]]
    assert QUERY.count("s3://box/events") == QUERY.count("s3://box/events/day=*/*.parquet") == 3
    assert "day" in open_events("s3://box/events").schema.names


def test_tables_of_delta_are_read_and_written_in_a_store(store):
    write_deltalake("s3://box/t", EVENTS, partition_by=["day"], storage_options=delta_options("s3://box/t"))
    assert QUERY.evaluate("s3://box/t").equals(QUERY.evaluate("delta:s3://box/t@0"))
    assert QUERY.count("delta:s3://box/t") == 1
    append_rows("delta:s3://box/t", EVENTS.schema, EVENTS.to_batches(), step=("job", 7))
    (new,) = appended_since(open_table("s3://box/t"), "0")
    assert sorted(row["x"] for row in rows_of(new.source())) == [1, 2, 3]
    assert committed_step("delta:s3://box/t", "job") == 7


def test_a_job_over_what_is_new_goes_from_table_to_table_in_a_store(store, tmp_path, capsys):
    for at in range(2):
        rows = pa.table({"type": ["AB"[at]], "x": [at]})
        write_deltalake("s3://box/t", rows, mode="append", storage_options=delta_options("s3://box/t"))
        args = ["SELECT * WHERE A ; B", "--input", "delta:s3://box/t", "--state", str(tmp_path / "state")]
        assert main(["job", *args, "-o", "delta:s3://box/found"]) == 0
    assert "version 1: 1 row, 1 match -> delta:s3://box/found" in capsys.readouterr().err
    assert [row["positions"] for row in rows_of(open_events("delta:s3://box/found"))] == [[0, 1]]


def _stopped(batch):
    raise RuntimeError("stopped")


def test_results_appear_whole_or_not_at_all(store):
    batch = pa.record_batch({"positions": [[0, 1]]}, schema=RESULTS)
    with pytest.raises(RuntimeError, match="stopped"), open_sink("s3://box/r.parquet", RESULTS) as sink:
        sink.write(_stopped(batch))
    assert store.get_file_info("box/r.parquet").type == fs.FileType.NotFound
    for ending in ("parquet", "jsonl"):
        with open_sink(f"s3://box/r.{ending}", RESULTS) as sink:
            sink.write(batch)
    assert pq.read_table("box/r.parquet", filesystem=store).to_pylist() == [{"positions": [0, 1]}]
    assert store.open_input_stream("box/r.jsonl").read() == b'{"positions": [0, 1]}\n'
    with (
        pytest.raises(OptionError, match="is an input, and would be overwritten"),
        open_sink("s3://box/r.csv", RESULTS, ["s3://box/r.csv"]),
    ):
        pass


def test_stores_of_fsspec_are_read_and_written():
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    with memory.open("/box/1.csv", "w") as file:
        file.write("type,x\nA,1\nB,2\n")
    try:
        found = QUERY.evaluate("memory://box")
        with open_sink("memory://box/found.jsonl", found.schema) as sink:
            for batch in found.to_batches():
                sink.write(batch)
        assert memory.cat("/box/found.jsonl") == b'{"start": 0, "end": 1, "positions": [0, 1]}\n'
        assert sorted(memory.ls("/box", detail=False)) == ["/box/1.csv", "/box/found.jsonl"]
    finally:
        memory.rm("/box", recursive=True)
