"""Sorting in memory and on disk: the order of Python's sort for all batches, types and bounds."""

from __future__ import annotations

import datetime as dt
import gc
import itertools
import math
import os
import subprocess
import sys
import tempfile
from collections import deque
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import property_settings

import cer_gpu
from cer_gpu.io.source import Source
from cer_gpu.io.sources import open_events
from cer_gpu.order import layouts
from cer_gpu.order import sorting as order
from cer_gpu.order.sorting import sort_source
from cer_gpu.order.times import stable_order, time_of_key, to_floats, to_keys

LOW, HIGH, TOP = -(2**63), 2**63 - 1, 2**64 - 1
INTEGERS = [pa.from_numpy_dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
MOMENTS = [
    pa.timestamp("s"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "Europe/Paris"),
    pa.date32(),
    pa.date64(),
    pa.duration("ms"),
]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
STRINGS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint16(), pa.large_string()),
]


def numbers(values, data_type: pa.DataType) -> pa.Array:
    """Return times from the numbers behind them."""
    if data_type in MOMENTS:
        day = 86_400_000 if pa.types.is_date64(data_type) else 1
        width = pa.int32() if data_type.bit_width == 32 else pa.int64()
        return pa.array([v * day for v in values], width).view(data_type)
    return pa.array(values, data_type)


def time_values(data_type: pa.DataType):
    """Draw numbers that a time column can hold: few of them, so that many are equal, and the extremes."""
    if data_type in FLOATS:
        return st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 0.5, 2.0, math.inf])
    bits = data_type.bit_width
    if pa.types.is_unsigned_integer(data_type):
        return st.integers(0, 3) | st.sampled_from([2**bits - 1, 2**bits - 2, 2 ** (bits - 1)])
    if pa.types.is_date64(data_type):
        return st.integers(-3, 3)
    return st.integers(-3, 3) | st.sampled_from([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1])


def as_strings(values, data_type: pa.DataType) -> pa.Array:
    """Return strings in any layout; a dictionary may have NULL among its values, and unused values."""
    if not pa.types.is_dictionary(data_type):
        return pa.array(values, pa.string()).cast(data_type)
    known = ["unused", None, *dict.fromkeys(v for v in values if v is not None)]
    codes = pa.array([known.index(v) for v in values], data_type.index_type)
    return pa.DictionaryArray.from_arrays(codes, pa.array(known, data_type.value_type))


@st.composite
def time_types(draw):
    return draw(st.sampled_from([*INTEGERS, *MOMENTS, *FLOATS]))


@st.composite
def streams(draw, data_type: pa.DataType, longest: int = 60):
    """Draw batches of time, arrival (a number) and strings; layouts and widths change from batch to batch."""
    batches, n = [], 0
    for _ in range(draw(st.integers(0, 8))):
        values = draw(st.lists(time_values(data_type), max_size=longest // 6))
        if draw(st.booleans()):
            values = sorted(values)
        times = numbers(values, data_type)
        if draw(st.integers(0, 4)) == 0:
            times = times.dictionary_encode()
        name = st.sampled_from(["a", "b", "", None, "long text that is not inlined"]) | st.integers(0, 9).map(str)
        names = draw(st.lists(name, min_size=len(values), max_size=len(values)))
        columns = {
            "at": times,
            "row": pa.array(range(n, n + len(values)), draw(st.sampled_from([pa.int8(), pa.uint8(), pa.int64()]))),
            "name": as_strings(names, draw(st.sampled_from(STRINGS))),
        }
        n += len(values)
        batches.append(pa.record_batch(columns))
        if draw(st.booleans()):
            start = draw(st.integers(0, len(values)))
            batches[-1:] = [batches[-1].slice(0, start), batches[-1].slice(start)]
    return batches or [pa.record_batch({"at": numbers([], data_type), "row": pa.array([], pa.int8()), "name": []})]


def rows_of(batches) -> list[tuple]:
    """Return rows of time as a number, arrival, and name."""
    rows = []
    for batch in batches:
        at = batch.column("at")
        if pa.types.is_dictionary(at.type):
            at = at.dictionary_decode()
        if at.type in MOMENTS:
            at = at.view(pa.int32() if at.type.bit_width == 32 else pa.int64())
        rows += zip(at.to_pylist(), batch.column("row").to_pylist(), batch.column("name").to_pylist(), strict=True)
    return rows


@contextmanager
def bounds(ways: int = 64, batch_rows: int = 1 << 17, max_values: int = 1 << 16):
    """Set other bounds than the usual ones, and a temporary folder that must be empty in the end."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(tempfile, "tempdir", folder),
        mock.patch.object(order, "WAYS", ways),
        mock.patch.object(order, "BATCH_ROWS", batch_rows),
        mock.patch.object(layouts, "MAX_VALUES", max_values),
    ):
        yield Path(folder)
        assert os.listdir(folder) == []


# ---- keys -----------------------------------------------------------------------------------------------------------


@given(time_types().flatmap(lambda t: st.tuples(st.just(t), st.lists(time_values(t)))))
@property_settings
def test_keys_order_as_the_times_do(case):
    data_type, values = case
    array = numbers(values, data_type)
    raw = array.view(pa.int32() if data_type.bit_width == 32 else pa.int64()) if data_type in MOMENTS else array
    keys = to_keys(raw.to_numpy(zero_copy_only=False))
    for (a, x), (b, y) in itertools.combinations(zip(values, keys.tolist(), strict=True), 2):
        assert (a < b, a == b) == (x < y, x == y)
    if data_type not in FLOATS:
        assert [time_of_key(key, data_type) for key in keys.tolist()] == list(array)
    else:
        assert to_floats(keys).tolist() == values


@given(
    st.lists(st.integers(0, 5) | st.integers(0, TOP) | st.sampled_from([0, TOP, 2**63]), max_size=200),
    st.integers(0, 64),
)
@property_settings
def test_stable_order_is_that_of_python(values, shift):
    keys = np.array([v >> shift for v in values], np.uint64)
    found = stable_order(keys)
    expected = sorted(range(len(keys)), key=keys.tolist().__getitem__)
    assert (list(range(len(keys))) if found is None else found.tolist()) == expected


def test_stable_order_of_many_keys_is_that_of_numpy():
    rng = np.random.default_rng(0)
    for top in (2, 10**3, 2**40, 2**63):
        keys = rng.integers(0, top, 100_000, np.uint64) << np.uint64(1)
        assert (stable_order(keys) == np.argsort(keys, kind="stable")).all()


# ---- the order ------------------------------------------------------------------------------------------------------


@given(st.data(), time_types())
@property_settings
def test_streams_of_any_layout_are_sorted_under_any_bounds(data, data_type):
    batches = data.draw(streams(data_type))
    memory = data.draw(st.sampled_from([1, 200, 1000, 3000, 1 << 28]))
    ways, batch_rows = data.draw(st.sampled_from([2, 3, 64])), data.draw(st.sampled_from([1, 2, 7, 1 << 17]))
    expected = sorted(rows_of(batches), key=lambda row: row[0])
    with bounds(ways, batch_rows, data.draw(st.sampled_from([2, 1 << 16]))):
        found = list(sort_source(open_events(batches), "at", memory=memory).batches(["name", "row"]))
    assert rows_of(found) == expected
    assert all(set(batch.schema.names) == {"at", "row", "name"} for batch in found)


@given(st.data(), st.sampled_from([pa.int64(), pa.uint64()]))
@property_settings
def test_integers_of_all_sizes_are_sorted(data, data_type):
    low = LOW if data_type == pa.int64() else 0
    values = data.draw(st.lists(st.integers(low, low + TOP), max_size=40))
    cut = data.draw(st.integers(0, len(values)))
    batches = [pa.record_batch({"at": pa.array(part, data_type)}) for part in (values[:cut], values[cut:])]
    with bounds(2, 4):
        found = list(sort_source(open_events(batches), "at", memory=data.draw(st.sampled_from([1, 400]))).batches([]))
    assert [v for batch in found for v in batch["at"].to_pylist()] == sorted(values)


def test_columns_that_do_not_share_a_type_come_out_as_they_came():
    columns = [
        pa.array([2**53 + 1, 1]),
        pa.array([0.5, 1.5]),
        pa.array(["x", None]),
        pa.array([Decimal("0.1"), None], pa.decimal128(30, 1)),
        pa.array([2**64 - 1, 1], pa.uint64()),
        pa.array([3, 4], pa.int8()).dictionary_encode(),
        pa.array([None, None]),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array([5, 6])),
        pa.array([b"b", b"a"], pa.binary_view()),
        pa.array([[1], None]),
        pa.array([dt.datetime(2020, 1, 1), None], pa.timestamp("s")),
        pa.array([dt.datetime(2020, 1, 1), None], pa.timestamp("ns")),
    ]
    batches = [pa.record_batch({"at": pa.array([3, 1]), "x": column}) for column in columns]
    with bounds():
        for memory in (1, 1 << 20):
            found = list(sort_source(open_events(batches), "at", memory=memory).batches(["x"]))
            values = [v for batch in found for v in batch["x"].to_pylist()]
            assert values == [column[1].as_py() for column in columns] + [column[0].as_py() for column in columns]
            types = {str(batch.schema.field("x").type) for batch in found}
            assert {"int64", "double", "decimal128(30, 1)", "uint64", "timestamp[s]", "timestamp[ns]"} <= types


def test_a_dictionary_that_grows_too_large_goes_on_as_plain_strings():
    batches = [
        pa.record_batch({"at": [9 - i, i], "s": pa.array([f"v{i}", f"w{i}"]).dictionary_encode()}) for i in range(10)
    ]
    expected = sorted((row for b in batches for row in b.to_pylist()), key=lambda row: row["at"])
    for max_values, plain in ((20, False), (19, True), (1, True)):
        with bounds(max_values=max_values):
            found = list(sort_source(open_events(batches), "at", memory=1).batches(["s"]))
        assert [row for b in found for row in b.select(["at", "s"]).to_pylist()] == expected
        assert {b.schema.field("s").type for b in found} == {layouts.PLAIN if plain else layouts.CODED}


# ---- reading and writing ----------------------------------------------------------------------------------------


def shuffled(n: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"at": pa.array(rng.permutation(n)), "x": pa.array(np.arange(n)), "unused": pa.array([[1]] * n)})


def read_once(table: pa.Table, rows: int = 100) -> Source:
    """Return a source that cannot be read twice."""
    return open_events(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=rows)))


class Counted(Source):
    """Source that records the columns of each read."""

    def __init__(self, table: pa.Table, rows: int = 100) -> None:
        self.reads = []

        def read(columns):
            self.reads.append(columns)
            return iter(table.select(columns).to_batches(max_chunksize=rows))

        super().__init__(table.schema, read, table.num_rows, rereadable=True)


def no_folder():
    """Set a temporary folder that cannot be used."""
    return mock.patch.object(tempfile, "tempdir", "/there/is/no/such/folder")


def test_events_that_fit_the_memory_are_not_written():
    with no_folder():
        table = pa.Table.from_batches(sort_source(read_once(shuffled(5000)), "at").batches(["x"]))
    assert table["at"].to_pylist() == list(range(5000))


def test_events_in_order_are_read_twice_and_not_written():
    ordered = shuffled(5000).sort_by("at")
    source = Counted(ordered)
    with no_folder():
        table = pa.Table.from_batches(sort_source(source, "at", memory=1).batches(["x"]))
    assert table.equals(ordered.select(["x", "at"]))
    assert source.reads == [["at"], ["x", "at"]]
    assert sort_source(source, "at").n_rows == 5000


def test_consecutive_sorted_runs_share_one_file():
    ordered = shuffled(5000).sort_by("at")
    with bounds(batch_rows=64) as folder:
        batches = sort_source(read_once(ordered), "at", memory=10_000).batches(["x"])
        found = [next(batches)]
        (spill,) = folder.iterdir()
        assert len(list(spill.iterdir())) == 1
        table = pa.Table.from_batches([*found, *batches])
    assert table.equals(ordered.select(["x", "at"]))


def test_sorted_runs_far_apart_are_not_open_at_once():
    """Each sorted run overlaps the next one only: two are merged at a time, and none twice."""
    blocks = [shuffled(200, seed) for seed in range(20)]
    batches = [pa.record_batch({"at": pa.array(block["at"].to_numpy() + 150 * i)}) for i, block in enumerate(blocks)]
    with bounds(ways=3), mock.patch.object(order._Spill, "_merge_some", side_effect=AssertionError):
        found = list(sort_source(open_events(batches), "at", memory=4000).batches([]))
    assert [v for b in found for v in b["at"].to_pylist()] == sorted(v for b in batches for v in b["at"].to_pylist())


def test_files_are_removed_as_they_are_read():
    with bounds(ways=4, batch_rows=64) as folder:
        batches = sort_source(read_once(shuffled(5000)), "at", memory=4000).batches(["x"])
        next(batches)
        (spill,) = folder.iterdir()
        assert 1 < len(list(spill.iterdir())) <= 4
        deque(batches, maxlen=0)
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("memory", [2_000_000, 1 << 28])
@pytest.mark.parametrize("rows", [pytest.param(50, marks=pytest.mark.long("six thousand batches")), 10_000, 1_000_000])
def test_batches_are_neither_tiny_nor_huge(rows, memory):
    with bounds():
        source = read_once(shuffled(300_000).select(["at", "x"]), rows)
        sizes = [batch.num_rows for batch in sort_source(source, "at", memory=memory).batches(["x"])]
    assert sum(sizes) == 300_000
    assert max(sizes) <= 1 << 17
    assert len(sizes) < 10


def test_sorting_stays_within_its_memory():
    n = 1_000_000
    rng = np.random.default_rng(0)

    def read(columns):
        for _ in range(n // 10_000):
            yield pa.record_batch({"at": pa.array(rng.integers(0, 10**6, 10_000)), "x": pa.array(rng.random(10_000))})

    source = Source(pa.schema([("at", pa.int64()), ("x", pa.float64())]), read)
    before, most, found = pa.total_allocated_bytes(), 0, 0
    with bounds(batch_rows=1 << 12):
        for batch in sort_source(source, "at", memory=1 << 21).batches(["x"]):
            found += batch.num_rows
            most = max(most, pa.total_allocated_bytes() - before)
    assert found == n
    assert most < 1 << 22  # a quarter of the 16 MB of events


def test_a_query_over_sorted_events_finds_those_of_ordered_events():
    rng = np.random.default_rng(3)
    n = 3000
    table = pa.table(
        {
            "type": pa.array(rng.choice(["A", "B", "C"], n)).dictionary_encode(),
            "at": pa.array(rng.integers(0, 500, n)).cast(pa.timestamp("s")),
            "x": pa.array(rng.integers(0, 100, n)),
        }
    )
    query = cer_gpu.compile(
        "SELECT * FROM S WHERE A ; B ; C FILTER A[x > 90] AND C[x < 10] WITHIN 20 SECONDS", time_column="at"
    )
    order = np.argsort(table["at"].to_numpy(), kind="stable")
    expected = query.evaluate(table.take(pa.array(order)))
    assert expected.num_rows
    positions = [order[held].tolist() for held in expected["positions"].to_pylist()]
    with bounds(ways=3):
        for source in sort_source(read_once(table), "at", memory=10_000), sort_source(open_events(table), "at"):
            found = query.evaluate(source)
            assert found["positions"].to_pylist() == positions
            assert found.drop(["start", "end", "positions"]).equals(expected.drop(["start", "end", "positions"]))


def test_files_are_sorted(tmp_path):
    table = shuffled(1000).select(["at", "x"])
    for i in range(4):
        pq.write_table(table.slice(250 * i, 250), tmp_path / f"{i}.parquet", row_group_size=60)
    with bounds():
        for events in (tmp_path, ds.dataset(tmp_path), [tmp_path / f"{i}.parquet" for i in range(4)]):
            source = sort_source(open_events(events), "at", memory=2000)
            assert pa.Table.from_batches(source.batches(["x", "at"])).equals(table.sort_by("at").select(["x", "at"]))
    pq.write_table(table.sort_by("at").slice(0, 500), tmp_path / "0.parquet")
    pq.write_table(table.sort_by("at").slice(500), tmp_path / "1.parquet")
    source = open_events([tmp_path / "0.parquet", tmp_path / "1.parquet"])
    assert pa.Table.from_batches(sort_source(source, "at").batches(["at"]))["at"].to_pylist() == list(range(1000))
    assert source.locate(500) == f"{tmp_path / '1.parquet'} (its first event is 500)"


# ---- errors ---------------------------------------------------------------------------------------------------------


def batches_of(*columns) -> Source:
    return open_events([pa.record_batch({"at": column}) for column in columns])


@pytest.mark.parametrize("memory", [1, 1 << 20])
def test_missing_times_are_refused(memory):
    with (
        bounds(),
        pytest.raises(cer_gpu.TimeOrderError, match=r"the 'at' of event 4 is missing \(NULL\)\nexpected.*\nhint: le"),
    ):
        list(sort_source(batches_of(pa.array([5, 4, 3]), pa.array([1, None])), "at", memory=memory).batches([]))
    with bounds(), pytest.raises(cer_gpu.TimeOrderError, match=r"event 3 is not a number \(NaN\)"):
        list(sort_source(batches_of(pa.array([5.0, 4, 3]), pa.array([math.nan])), "at", memory=memory).batches([]))
    null = pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array([None, 5]))
    with bounds(), pytest.raises(cer_gpu.TimeOrderError, match=r"event 1 is missing"):
        list(sort_source(batches_of(null), "at", memory=memory).batches([]))


def test_missing_times_in_files_are_refused_with_the_file(tmp_path):
    pq.write_table(pa.table({"at": [3, 1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"at": [3, None]}), tmp_path / "b.parquet")
    source = open_events([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    with pytest.raises(
        cer_gpu.TimeOrderError, match=r"b.parquet \(its first event is 2\): the 'at' of event 3 is miss"
    ):
        list(sort_source(source, "at").batches([]))


def test_a_time_column_that_changes_its_type_is_refused():
    source = batches_of(pa.array([5]), pa.array([4], pa.int32()))
    with pytest.raises(cer_gpu.EventsError, match="changed its type: int64 before, int32 from event 1 on"):
        list(sort_source(source, "at").batches([]))


@pytest.mark.parametrize(
    "data_type",
    [pa.string(), pa.decimal128(10, 2), pa.time32("s"), pa.bool_(), pa.list_(pa.int8()), pa.binary()],
    ids=str,
)
def test_columns_that_are_no_times_are_refused(data_type):
    source = open_events(pa.table({"at": pa.nulls(2, data_type)}))
    with pytest.raises(cer_gpu.QueryTypeError, match="the time column 'at' must be a timestamp"):
        sort_source(source, "at")
    with pytest.raises(cer_gpu.QueryTypeError, match="no column 'time'"):
        sort_source(source, "time")


def test_columns_that_arrow_cannot_move_are_refused():
    maps = pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string_view(), pa.int8()))
    source = open_events(pa.table({"at": [2, 1], "x": maps}))
    with pytest.raises(cer_gpu.EventsError, match=r"column 'x' is map<string_view, .*\nhint: leave the column out"):
        list(sort_source(source, "at").batches(["x"]))
    assert sum(batch.num_rows for batch in sort_source(source, "at").batches([])) == 2


class Broken(Exception):
    """Error of a source."""


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt, cer_gpu.EventsError])
def test_the_folder_is_removed_when_the_source_breaks(error):
    def read(columns):
        yield from shuffled(5000).select(["at"]).to_batches(max_chunksize=100)
        assert os.listdir(tempfile.gettempdir())
        raise error

    with bounds(), pytest.raises(error):
        list(sort_source(Source(pa.schema([("at", pa.int64())]), read), "at", memory=1000).batches([]))


@pytest.mark.parametrize("ways", [3, pytest.param(64, marks=pytest.mark.long("as many files"))])
def test_the_folder_is_removed_when_reading_ends_early(ways):
    with bounds(ways, 128) as folder:
        batches = sort_source(read_once(shuffled(5000)), "at", memory=1000).batches([])
        next(batches)
        assert list(folder.iterdir())
        batches.close()
        assert list(folder.iterdir()) == []
        batches = sort_source(read_once(shuffled(5000)), "at", memory=1000).batches([])
        next(batches)
        del batches
        gc.collect()
        assert list(folder.iterdir()) == []


def test_a_missing_temporary_folder_is_reported():
    with (
        no_folder(),
        pytest.raises(cer_gpu.EventsError, match=r"temporary folder.*/no/such/folder.*\nexpected: .*\nhint: .*TMPDIR"),
    ):
        list(sort_source(read_once(shuffled(5000)), "at", memory=1000).batches([]))


def test_a_vanished_temporary_folder_is_reported():
    merge_runs = order.merge_runs

    def clear(*runs):
        for path in Path(tempfile.gettempdir()).rglob("*.arrows"):
            path.unlink()
        return merge_runs(*runs)

    with (
        bounds(),
        mock.patch.object(order, "merge_runs", side_effect=clear),
        pytest.raises(cer_gpu.EventsError, match=r"No such file.*\n?.*\nexpected.*\nhint: .*TMPDIR"),
    ):
        list(sort_source(read_once(shuffled(5000)), "at", memory=1000).batches([]))


FULL = """
import resource, sys, os
import pyarrow as pa, numpy as np
from cer_gpu.order.sorting import sort_source
from cer_gpu.io.sources import open_events
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
batches = [pa.record_batch({"at": pa.array(np.random.default_rng(i).permutation(10_000))}) for i in range(20)]
try:
    list(sort_source(open_events(batches), "at", memory=2_000_000).batches([]))
except Exception as error:
    print(type(error).__name__, error, os.listdir(sys.argv[1]))
"""


@pytest.mark.long("fills a file system")
@pytest.mark.skipif(sys.platform != "linux", reason="limits of file sizes")
def test_a_full_temporary_folder_is_reported_and_emptied(tmp_path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True, env=env, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout.startswith(
        f"EventsError the events do not fit the memory for sorting, and the temporary folder {tmp_path}"
    )
    assert done.stdout.endswith("TMPDIR []\n")


@pytest.mark.parametrize("output", ["positions", "events"])
def test_results_of_sorted_events_have_the_types_of_the_events(output):
    """Sorting widens the strings of dictionaries in between."""
    texts = pa.array(["x", "y", "x", "x"]).dictionary_encode()
    events = pa.table({"type": pa.array(["B", "A", "A", "B"]).dictionary_encode(), "k": texts, "ts": [4, 3, 1, 2]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [k]", time_column="ts")
    found = query.evaluate(events, sort=True, output=output)
    assert found["k"].to_pylist() == ["x", "x"]
    assert found.schema == query.output_schema(events.schema, output)


def test_hints_have_no_columns_that_sorting_adds():
    query = cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[zzz > 1]", time_column="at")
    with pytest.raises(cer_gpu.QueryTypeError, match=r"no column 'zzz'(?s:.*)hint: columns: type, at$"):
        query.evaluate(pa.table({"type": ["A", "A"], "at": [2, 1]}), sort=True)
