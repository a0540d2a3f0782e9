"""Batches of records against plain Python: types by values, any cut into chunks, budgets, and one conversion a file."""

import datetime as dt
import gc
import io
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cer_gpu.io.logs.converted as batches_module
from cer_gpu.io.logs.converted import LogConverter, batches_of, joined_type
from cer_gpu.io.logs.log_formats import LogFormat

MOMENTS = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1)).map(lambda at: at.replace(tzinfo=dt.UTC))
VALUES = st.one_of(
    st.none(),
    st.text(st.characters(codec="utf-8"), max_size=3),
    st.integers(-(1 << 66), 1 << 66),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    MOMENTS,
    st.lists(st.text(st.characters(codec="utf-8"), max_size=2), max_size=2),
)
TYPED = st.sampled_from(
    [st.text(max_size=3, alphabet="xyé"), st.integers(-5, 5), st.booleans(), st.floats(-9, 9), MOMENTS]
)
NAMES = st.sampled_from(["a", "b", "c", "Ünit"])
RECORDS = st.one_of(
    st.lists(st.dictionaries(NAMES, VALUES), max_size=12),
    TYPED.flatmap(lambda one: st.lists(st.dictionaries(NAMES, st.none() | one), max_size=12)),
)
KINDS = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), float: pa.float64(), list: pa.list_(pa.string())}


def expected(records):
    """The table of records by the rules of the docs, one column at a time."""
    columns = {}
    for name in dict.fromkeys(name for record in records for name, value in record.items() if value is not None):
        values = [record.get(name) for record in records]
        kinds = {type(value) for value in values if value is not None}
        wide = any(type(value) is int and not -(1 << 63) <= value < 1 << 63 for value in values)
        if len(kinds) == 1 and not wide:
            kind = kinds.pop()
            columns[name] = pa.array(values, KINDS.get(kind, pa.timestamp("us", "UTC")))
        else:
            columns[name] = pa.array([None if value is None else as_text(value) for value in values], pa.string())
    return columns


def as_text(value):
    if type(value) is int or isinstance(value, str):
        return str(value)
    if isinstance(value, list):
        import json

        return json.dumps(value, ensure_ascii=False)
    kind = KINDS.get(type(value), pa.timestamp("us", "UTC"))
    return pa.array([value], kind).cast(pa.string())[0].as_py()


def converted(records, converter, identity=None):
    """The table that a converter makes of records."""
    format = LogFormat("test", (), lambda head: True, lambda stream, skipped: iter(records))
    log = converter.converted(identity, format, io.BytesIO)
    return log, log.source("file")


def columns_of(source):
    read = list(source.batches(source.schema.names))
    table = pa.Table.from_batches(read, source.schema)
    return {name: table[name].combine_chunks() for name in source.schema.names}, sum(b.num_rows for b in read)


@given(RECORDS, st.integers(1, 5), st.sampled_from([0, 300, 1 << 20]))
def test_any_cut_into_chunks_gives_the_columns_of_all_records(records, n_in_chunk, memory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches_module, "CHUNK_RECORDS", n_in_chunk)
        log, source = converted(records, LogConverter(memory))
    wanted = expected(records)
    assert set(source.schema.names) == set(wanted)
    found, n_rows = columns_of(source)
    for name, array in wanted.items():
        assert found[name].type == array.type, name
        assert found[name].to_pylist() == array.to_pylist(), name
    assert n_rows == source.n_rows == (len(records) if wanted else source.n_rows)
    assert all(batch.n_rows <= n_in_chunk for batch in log.batches)


def test_records_are_cut_by_their_bytes_too(monkeypatch):
    monkeypatch.setattr(batches_module, "CHUNK_BYTES", 1000)
    cut = list(batches_of({"a": "x" * 100} for _ in range(100)))
    assert sum(batch.num_rows for batch in cut) == 100
    assert max(batch.num_rows for batch in cut) <= 16


def test_columns_are_read_as_other_types_and_absent_ones_are_null():
    _, source = converted([{"a": 1, "b": "x"}, {"a": 2}], LogConverter())
    other = source.as_types({"a": pa.float64(), "z": pa.int64(), "b": pa.string()})
    table = pa.Table.from_batches(list(other.batches(["a", "z"])))
    assert table.to_pydict() == {"a": [1.0, 2.0], "z": [None, None]}
    assert other.schema.field("z").type == pa.int64()


def test_parts_are_the_chunks(monkeypatch):
    monkeypatch.setattr(batches_module, "CHUNK_RECORDS", 10)
    _, source = converted([{"a": i} for i in range(95)], LogConverter())
    assert source.parts.begins == [*range(0, 91, 10), 95]
    read = [batch["a"].to_pylist() for batch in source.parts.read(["a"], 30, 50)]
    assert read == [[*range(30, 40)], [*range(40, 50)]]


def test_a_file_is_converted_once_while_it_is_kept_and_memory_is_given_back():
    converter = LogConverter(memory_bytes=1 << 20, cached_bytes=1 << 30)
    log, _ = converted([{"a": 1}], converter, "one")
    assert converted([{"a": 2}], converter, "one")[0] is log
    assert converted([{"a": 2}], converter, "other")[0] is not log
    used = converter.batch_cache.budget.n_used
    assert used > 0
    del log, _
    gc.collect()
    assert converter.batch_cache.budget.n_used == used  # still kept
    small = LogConverter(memory_bytes=1 << 20, cached_bytes=0)
    log, _ = converted([{"a": 1}], small, "one")
    assert converted([{"a": 2}], small, "one")[0] is log  # in use
    del log, _
    gc.collect()
    assert small.batch_cache.budget.n_used == 0
    assert small._in_use.get("one") is None


def test_logs_used_last_make_room_before_disk_is_used(monkeypatch):
    converter = LogConverter(memory_bytes=2500)
    for i in range(6):
        log, _ = converted([{"a": os.urandom(400).hex()}], converter, i)
        assert converter.batch_cache.budget.n_used <= 2500
    del log, _
    gc.collect()
    assert converter.batch_cache._spill is None
    assert 0 < len(converter._recent) < 6


def test_beyond_the_budget_batches_are_in_a_file_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(batches_module, "CHUNK_RECORDS", 10)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    records = [{"a": os.urandom(50).hex(), "b": i} for i in range(200)]
    converter = LogConverter(memory_bytes=3000)
    log, source = converted(records, converter)
    spill = converter.batch_cache._spill()
    assert spill.n_bytes > 10_000
    assert [*tmp_path.iterdir()] == []
    found, _ = columns_of(source)
    assert found["b"].to_pylist() == [*range(200)]
    assert found["a"].to_pylist() == [record["a"] for record in records]
    file = spill.file
    del log, source, spill, found
    gc.collect()
    assert file.closed


def test_a_copy_of_the_process_reads_what_is_kept_and_writes_elsewhere(tmp_path):
    if not hasattr(os, "fork"):
        pytest.skip("no copies of processes here")
    code = """
import os, sys
sys.path.insert(0, {folder!r})
import test_logs_batches as t
records = [{{"a": os.urandom(50).hex(), "b": i}} for i in range(50)]
converter = t.LogConverter(memory_bytes=0)
log, source = t.converted(records, converter)
child = os.fork()
own = [{{"b": -1}}] * (7 if child else 5)
other = t.converted(own, converter)[1]
good = t.columns_of(source)[0]["b"].to_pylist() == [*range(50)] and t.columns_of(other)[1] == len(own)
if child:
    good = good and os.waitpid(child, 0)[1] == 0 and t.columns_of(source)[0]["b"].to_pylist() == [*range(50)]
os._exit(not good)
"""
    folder = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code.format(folder=folder)], timeout=120)
    assert done.returncode == 0


def test_two_types_of_a_column_are_text():
    assert joined_type(pa.int64(), pa.int64()) == pa.int64()
    assert joined_type(pa.int64(), pa.float64()) == pa.string()
