"""Tables as targets: one commit with all rows, or none; steps of applications; types that tables hold."""

import os
import signal
import subprocess
import sys

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.transforms import BucketTransform
from written_tables import rows_of, use_catalogue

from cer_gpu.errors import EventsError, OptionError
from cer_gpu.io.sources import open_events
from cer_gpu.io.tables.opening import open_table
from cer_gpu.io.tables.table_sinks import append_rows, committed_step

SCHEMA = pa.schema(
    [
        ("type", pa.dictionary(pa.int32(), pa.string())),
        ("small", pa.uint8()),
        ("large", pa.uint64()),
        ("at", pa.timestamp("ns", "Europe/Paris")),
        ("positions", pa.list_(pa.int64())),
        ("of", pa.struct([("x", pa.int16()), ("day", pa.date64())])),
    ]
)


def rows(*numbers):
    made = [
        {"type": "A", "small": 200, "large": 2**63 + n, "at": n * 1000, "positions": [n], "of": {"x": n, "day": 0}}
        for n in numbers
    ]
    return pa.RecordBatch.from_pylist(made, schema=SCHEMA)


@pytest.fixture(params=["delta", "iceberg"])
def name(request, tmp_path, monkeypatch):
    if request.param == "delta":
        return f"delta:{tmp_path}/t"
    use_catalogue(monkeypatch, tmp_path)
    return "iceberg:cat.made.t"


def test_rows_are_appended_by_one_commit_with_its_step(name):
    assert committed_step(name, "job") is None
    append_rows(name, SCHEMA, [rows(1), rows(2)], step=("job", 1))
    first = open_table(name).version
    append_rows(name, SCHEMA, [], step=("job", 2))
    append_rows(name, SCHEMA, [rows(3)])
    found = rows_of(open_events(name))
    assert sorted((int(row["large"]) - 2**63, row["small"], row["positions"], row["of"]["x"]) for row in found) == [
        (1, 200, [1], 1), (2, 200, [2], 2), (3, 200, [3], 3),
    ]  # fmt: skip
    assert open_events(f"{name}@{first}").n_rows == 2
    assert (committed_step(name, "job"), committed_step(name, "another")) == (2, None)


def test_with_an_error_nothing_is_appended(name):
    with pytest.raises(OptionError, match=r"cannot hold these results: .*would lose data"):
        append_rows(name, SCHEMA, [rows(1), rows(2).set_column(3, SCHEMA.field("at"), pa.array([1], SCHEMA.types[3]))])
    with pytest.raises(EventsError, match=r"there is no such table|there is no table"):
        open_table(name)
    append_rows(name, SCHEMA, [rows(1)])
    version = open_table(name).version

    def stopped():
        yield rows(2)
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        append_rows(name, SCHEMA, stopped())
    append_rows(name, SCHEMA, [])  # there is nothing to commit
    assert open_table(name).version == version


def test_columns_go_by_their_names(name):
    append_rows(name, pa.schema([("a", pa.int64()), ("b", pa.string())]), [])
    append_rows(
        name, pa.schema([("b", pa.large_string())]), [pa.record_batch({"b": pa.array(["x"], pa.large_string())})]
    )
    assert rows_of(open_events(name)) == [{"a": None, "b": "x"}]
    with pytest.raises(OptionError, match=r"the table has no column 'c'\nexpected: a, b"):
        append_rows(name, pa.schema([("c", pa.int64())]), [])
    with pytest.raises(OptionError, match="tables cannot hold column 'd', which is duration"):
        append_rows(name + "2", pa.schema([("d", pa.duration("s"))]), [])
    with pytest.raises(OptionError, match="expected a table to append to"):
        append_rows(f"{name}@1", SCHEMA, [])


def test_rows_go_to_the_partitions_of_a_table(tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"x": [1], "day": ["d"]}), partition_by=["day"])
    table = use_catalogue(monkeypatch, tmp_path).create_table(
        "ns.t", schema=pa.schema([("x", pa.int64()), ("day", pa.string())])
    )
    with table.update_spec() as spec:
        spec.add_identity("day")
        spec.add_field("x", BucketTransform(2))
    for name in (f"delta:{path}", "iceberg:cat.ns.t"):
        append_rows(
            name, pa.schema([("x", pa.int64()), ("day", pa.string())]), [pa.record_batch({"x": [2], "day": ["e"]})]
        )
        assert {"x": 2, "day": "e"} in rows_of(open_events(name))
        append_rows(name, pa.schema([("x", pa.int64())]), [pa.record_batch({"x": [3]})])
        assert {"x": 3, "day": None} in rows_of(open_events(name))
    assert list((tmp_path / "t").glob("day=e/*.parquet"))


def test_columns_that_may_not_be_null(name, tmp_path, monkeypatch):
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False), ("y", pa.string())])
    if name.startswith("delta:"):
        write_deltalake(str(tmp_path / "t"), pa.Table.from_pylist([], schema=schema))
    else:
        catalogue = use_catalogue(monkeypatch, tmp_path)
        catalogue.create_namespace("made")
        catalogue.create_table("made.t", schema=schema)
    append_rows(name, pa.schema([("x", pa.uint8())]), [pa.record_batch({"x": pa.array([3], pa.uint8())})])
    assert rows_of(open_events(name)) == [{"x": 3, "y": None}]
    with pytest.raises(OptionError, match="the table has column 'x', which may not be NULL, and which the results"):
        append_rows(name, pa.schema([("y", pa.string())]), [])
    with pytest.raises(OptionError, match="the table cannot hold these results"):
        append_rows(name, pa.schema([("x", pa.int64())]), [pa.record_batch({"x": pa.array([None], pa.int64())})])
    assert open_events(name).n_rows == 1


@pytest.mark.skipif(os.name != "posix", reason="it kills a process")
def test_a_killed_run_leaves_a_table_as_it_was(tmp_path):
    name = f"delta:{tmp_path}/t"
    append_rows(name, SCHEMA, [rows(1)])
    code = f"""
import time
from cer_gpu.io.tables.table_sinks import open_table_sink
from test_table_targets import SCHEMA, rows
with open_table_sink({name!r}, SCHEMA) as sink:
    sink.write(rows(2))
    print("written", flush=True)
    time.sleep(60)
"""
    here = os.path.dirname(__file__)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([here, os.path.dirname(here), *sys.path])}
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env)
    assert child.stdout.readline() == b"written\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert open_table(name).version == "0"
    assert open_events(name).n_rows == 1
