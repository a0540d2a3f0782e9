"""Streams merged by time: the order of `heapq.merge` for all batches and types."""

from __future__ import annotations

import datetime as dt
import heapq
import math
from decimal import Decimal
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import property_settings

import cer_gpu
from cer_gpu.io.source import Source
from cer_gpu.io.sources import open_events
from cer_gpu.order import layouts, streams
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.order.streams import STREAM_COLUMN, merge_sources

STRINGS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.large_string()),
]
TIMES = [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")]
SCALE = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def rows_of(source: Source, columns: list[str]) -> list[dict]:
    return [row for batch in source.batches(columns) for row in batch.to_pylist()]


def of(**streams_: dict | pa.Table) -> dict[str, Source]:
    return {name: open_events(pa.table(columns)) for name, columns in streams_.items()}


@st.composite
def streams_of_events(draw):
    """Draw streams in the order of time, each with some of the columns, and batches of its own types."""
    found = {}
    for name in draw(st.lists(st.sampled_from(["A", "B", "C", "$", ""]), min_size=1, max_size=4, unique=True)):
        at = sorted(draw(st.lists(st.integers(-4, 6), max_size=20)))
        cuts = sorted(draw(st.lists(st.integers(0, len(at)), max_size=4)))
        has = draw(st.sets(st.sampled_from(["s", "x", "only " + name])))
        unit = draw(st.sampled_from(TIMES))
        wide, batches, n = draw(st.booleans()), [], 0
        for start, stop in zip([0, *cuts], [*cuts, len(at)], strict=True):
            moments = pa.array([t * SCALE[unit.unit] for t in at[start:stop]], pa.int64()).view(unit)
            columns = {"at": moments, "row": pa.array(range(start, stop), pa.int64())}
            if "s" in has:
                text = [draw(st.sampled_from(["a", "b", "", None, "c" * 20])) for _ in moments]
                kind = draw(st.sampled_from(STRINGS))
                plain = pa.array(text, pa.string())
                columns["s"] = (
                    plain.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else plain.cast(kind)
                )
            if "x" in has:
                columns["x"] = pa.array([float(i) for i in range(stop - start)]).cast(
                    pa.float64() if wide else pa.int8()
                )
            if "only " + name in has:
                columns["only " + name] = pa.array([True] * (stop - start), pa.bool_())
            n += stop - start
            batches.append(pa.record_batch(columns))
        found[name] = batches
    return found


@given(
    streams_of_events(), st.sampled_from([1, 5, 1 << 17]), st.sampled_from([1, 4, 1 << 13]), st.sampled_from([1, 99])
)
@property_settings
def test_streams_are_merged_as_by_heapq(found, batch_rows, chunk_rows, max_values):
    def listed(name):
        rows = [row for batch in found[name] for row in batch.to_pylist()]
        for row in rows:
            row["at"] = np.datetime64(row["at"], "ns")
        return [{STREAM_COLUMN: name, ROW_COLUMN: i, **row} for i, row in enumerate(rows)]

    expected = list(heapq.merge(*map(listed, found), key=lambda row: row["at"]))
    with (
        mock.patch.object(streams, "BATCH_ROWS", batch_rows),
        mock.patch.object(streams, "_CHUNK_ROWS", chunk_rows),
        mock.patch.object(layouts, "MAX_VALUES", max_values),
    ):
        source = merge_sources({name: open_events(batches) for name, batches in found.items()}, "at")
        columns = source.schema.names
        batches = list(source.batches(columns))
    every = [row for batch in batches for row in batch.to_pylist()]
    for row in every:
        row["at"] = np.datetime64(row["at"], "ns")
    assert every == [{name: row.get(name) for name in columns} for row in expected]
    assert all(batch.schema.names == columns for batch in batches)
    strings = pa.types.is_dictionary, pa.types.is_large_string
    for name in columns:
        types = {batch.schema.field(name).type for batch in batches}
        assert types <= {source.schema.field(name).type} or all(any(is_(t) for is_ in strings) for t in types)


def test_only_requested_columns_are_read_of_each_stream():
    read = []

    def source(name: str, table: pa.Table) -> Source:
        def batches(columns):
            read.append((name, columns))
            return iter(table.select(columns).to_batches())

        return Source(table.schema, batches, table.num_rows)

    a = source("a", pa.table({"x": [1, 2], "at": [1, 3], "unused": [0, 0]}))
    b = source("b", pa.table({"y": [1.5], "at": pa.array([2], pa.int8()), "unused": ["text"]}))
    merged = merge_sources({"a": a, "b": b}, "at")
    assert merged.n_rows == 3
    assert merged.schema.names == ["x", "at", "unused", "y", STREAM_COLUMN, ROW_COLUMN]
    assert rows_of(merged, ["y", "x", STREAM_COLUMN]) == [
        {"y": None, "x": 1, "at": 1, STREAM_COLUMN: "a"},
        {"y": 1.5, "x": None, "at": 2, STREAM_COLUMN: "b"},
        {"y": None, "x": 2, "at": 3, STREAM_COLUMN: "a"},
    ]
    assert read == [("a", ["x", "at"]), ("b", ["y", "at"])]
    assert rows_of(merged, [])[0] == {"at": 1, STREAM_COLUMN: "a"}
    (batch,) = merged.batches([])
    assert batch.schema.field(STREAM_COLUMN).type == pa.dictionary(pa.int32(), pa.large_string())
    b.n_rows = None
    assert merge_sources({"a": a, "b": b}, "at").n_rows is None


def test_one_stream_needs_no_time():
    events = pa.table({"type": ["A", "B"], "x": [2, 1]})
    for columns in ([], ["x"], ["type", "x"]):
        found = rows_of(merge_sources(of(S=events), None), columns)
        assert found == [{**{c: row[c] for c in columns}, STREAM_COLUMN: "S"} for row in events.to_pylist()]
    empty = merge_sources(
        {"S": open_events([pa.record_batch({"x": pa.array([], pa.int64())})]), **of(T={"x": [1]})}, "x"
    )
    assert rows_of(empty, ["x"]) == [{"x": 1, STREAM_COLUMN: "T"}]


@pytest.mark.parametrize(
    ("a", "b", "one"),
    [
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.uint8(), pa.int8(), pa.int16()),
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int64(), pa.decimal128(10, 2), pa.decimal128(21, 2)),
        (pa.uint8(), pa.decimal256(74, 74), None),
        (pa.uint64(), pa.decimal128(30, 20), pa.decimal256(40, 20)),
        (pa.decimal32(5, 1), pa.decimal128(10, -2), pa.decimal128(13, 1)),
        (pa.null(), pa.int8(), pa.int8()),
        (pa.null(), pa.string(), pa.large_string()),
        (pa.dictionary(pa.int8(), pa.int16()), pa.int32(), pa.int32()),
        (pa.date32(), pa.date64(), pa.date64()),
        (pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ns")),
        (pa.timestamp("s", "Europe/Paris"), pa.timestamp("ms", "UTC"), pa.timestamp("ms", "Europe/Paris")),
        (pa.duration("s"), pa.duration("us"), pa.duration("us")),
        (pa.string(), pa.large_string(), pa.large_string()),
    ],
    ids=str,
)
def test_types_of_a_column_merge_to_one_that_holds_all_values(a, b, one):
    def column(data_type):
        if pa.types.is_dictionary(data_type):
            return column(data_type.value_type).dictionary_encode()
        if pa.types.is_null(data_type):
            return pa.nulls(2)
        if pa.types.is_date32(data_type):
            return pa.array([3, 4], pa.int32()).view(data_type)
        if pa.types.is_date64(data_type):
            return pa.array([3 * 86_400_000, 4 * 86_400_000]).view(data_type)
        if pa.types.is_decimal(data_type):
            values = [Decimal(0), Decimal((0, (1,), -data_type.scale))]
            return pa.array(values, pa.decimal256(76, data_type.scale)).cast(data_type)
        return pa.array([3, 4]).cast(data_type)

    for first, second in ((a, b), (b, a)):
        source = merge_sources(of(A={"at": [1, 3], "x": column(first)}, B={"at": [2, 4], "x": column(second)}), "at")
        if one is None:
            with pytest.raises(cer_gpu.EventsError, match=r"column 'x' is .* in stream 'A'"):
                source.batches(["x"])
            continue
        found = pa.Table.from_batches(source.batches(["x"]))["x"]
        assert source.schema.field("x").type == (
            pa.timestamp("ms", first.tz) if pa.types.is_timestamp(one) and one.tz else one
        )
        assert found.type in (source.schema.field("x").type, layouts.CODED)
        expected = [column(first)[0], column(second)[0], column(first)[1], column(second)[1]]
        assert found.to_pylist() == [
            value.cast(found.type.value_type if found.type == layouts.CODED else found.type).as_py()
            for value in expected
        ]


def test_forty_finely_interleaved_streams_are_merged():
    n, k = 20_000, 40
    tables = {f"s{i}": pa.table({"at": np.arange(i, n, k), "x": np.arange(i, n, k) * 2}) for i in range(k)}
    source = merge_sources({name: open_events(t.to_batches(max_chunksize=9)) for name, t in tables.items()}, "at")
    table = pa.Table.from_batches(source.batches(["x"]))
    assert table["x"].to_pylist() == list(range(0, 2 * n, 2))
    assert table[STREAM_COLUMN].to_pylist() == [f"s{i % k}" for i in range(n)]


def test_merging_stays_within_bounded_memory():
    def endless(columns):
        for i in range(100):
            yield pa.record_batch({"at": np.arange(i * 10**4, (i + 1) * 10**4), "x": np.zeros(10**4)})

    schema = pa.schema([("at", pa.int64()), ("x", pa.float64())])
    before, most, n = pa.total_allocated_bytes(), 0, 0
    for batch in merge_sources({name: Source(schema, endless) for name in "ABC"}, "at").batches(["x"]):
        n += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert n == 3 * 10**6
    assert most < 2e7  # a third of the 60 MB of events


def test_a_query_over_merged_events_finds_those_of_one_stream():
    events = pa.table({"type": ["A", "B", "C"] * 50, "at": np.arange(150), "x": np.arange(150) % 7})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B ; C FILTER A[x > 4] WITHIN 9 EVENTS")
    parts = {t: events.filter(pa.array([s == t for s in events["type"].to_pylist()])) for t in "CAB"}
    merged = merge_sources({name: open_events(part) for name, part in parts.items()}, "at")
    expected = query.evaluate(events)
    assert expected.num_rows
    by_stream = cer_gpu.compile(query.text, type_column=STREAM_COLUMN)
    for found in query.evaluate(merged), by_stream.evaluate(merged):
        # each type is every third event, and a stream of its own
        assert found["positions_stream"].to_pylist() == [["A", "B", "C"]] * expected.num_rows
        assert [[3 * p + k for k, p in enumerate(held)] for held in found["positions"].to_pylist()] == expected[
            "positions"
        ].to_pylist()


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_a_decreasing_time_is_refused_with_its_stream(tmp_path):
    pq.write_table(pa.table({"at": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"at": [2, 5, 4]}), tmp_path / "b.parquet")
    files = open_events([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    with pytest.raises(
        cer_gpu.TimeOrderError,
        match=r"^stream 'B': .*b.parquet \(its first event is 2\): the 'at' of event 4 \(4\) is less than .*\(5\)\nexp",
    ):
        rows_of(merge_sources({**of(A={"at": [1, 2, 3]}), "B": files}, "at"), [])
    batches = [pa.record_batch({"at": [1, 3]}), pa.record_batch({"at": [2]})]
    with pytest.raises(cer_gpu.TimeOrderError, match=r"^stream 'A': the 'at' of event 2 \(2\) is less than .*\(3\)"):
        rows_of(merge_sources({"A": open_events(batches), **of(B={"at": [1]})}, "at"), [])


def test_missing_times_are_refused_with_their_stream():
    for column, what in (
        (pa.array([1, None]), r"missing \(NULL\)"),
        (pa.array([1, math.nan]), r"not a number \(NaN\)"),
    ):
        merged = merge_sources(of(A={"at": pa.array([1]).cast(column.type)}, B={"at": column}), "at")
        with pytest.raises(
            cer_gpu.TimeOrderError, match=f"^stream 'B': the 'at' of event 1 is {what}\nexp.*\nhint: leave"
        ):
            rows_of(merged, [])


def test_several_streams_need_a_time_column():
    with pytest.raises(cer_gpu.EventsError, match=r"by time: name the time column: time_column=... \(--time-column\)"):
        merge_sources(of(A={"at": [1]}, B={"at": [1]}), None)
    with pytest.raises(cer_gpu.EventsError, match="at least one stream"):
        merge_sources({}, "at")
    with pytest.raises(cer_gpu.QueryTypeError, match=r"stream 'B': the events have no column 'at'\nhint: did you mean"):
        merge_sources(of(A={"at": [1]}, B={"ate": [1]}), "at")
    with pytest.raises(cer_gpu.QueryTypeError, match="stream 'B': the time column 'at' must be a timestamp"):
        merge_sources(of(A={"at": [1]}, B={"at": ["1"]}), "at")
    with pytest.raises(cer_gpu.EventsError, match=r"stream 'B' has a column '\$stream'.*\nhint: rename it"):
        merge_sources(of(A={"at": [1]}, B={"at": [1], STREAM_COLUMN: [1]}), "at")


@pytest.mark.parametrize(
    ("a", "b", "hint"),
    [
        (pa.timestamp("s"), pa.timestamp("s", "UTC"), "give both a time zone, or none"),
        (pa.timestamp("s"), pa.int64(), "rename"),
        (pa.timestamp("s"), pa.date32(), "rename"),
        (pa.int64(), pa.float64(), "rename"),
        (pa.int64(), pa.duration("s"), "rename"),
    ],
    ids=str,
)
def test_times_of_different_kinds_are_refused(a, b, hint):
    sources = {name: open_events(pa.table({"at": pa.nulls(0, t)})) for name, t in (("A", a), ("B", b))}
    with pytest.raises(cer_gpu.EventsError) as error:
        merge_sources(sources, "at")
    assert f"column 'at' is {a} in stream 'A' and {b} in stream 'B'\nexpected: " in str(error.value)
    assert f"hint: {hint}" in str(error.value)


def test_times_that_do_not_fit_the_finest_unit_are_refused():
    far = pa.array([2**60]).view(pa.timestamp("s"))
    with pytest.raises(
        cer_gpu.EventsError, match=r"stream 'A': a value of column 'at', which is timestamp\[s\], does not"
    ):
        rows_of(merge_sources(of(A={"at": far}, B={"at": pa.array([0], pa.timestamp("ns"))}), "at"), [])
    with pytest.raises(
        cer_gpu.EventsError, match=r"stream 'B': a value of column 'at', which is uint64, does not fit int64"
    ):
        rows_of(merge_sources(of(A={"at": [1]}, B={"at": pa.array([2**63], pa.uint64())}), "at"), [])


def test_columns_whose_types_do_not_merge_are_refused_when_read():
    times = {"at": [1]}
    for a, b in (([1], ["x"]), ([1.5], pa.array([1], pa.decimal128(5, 1))), ([True], [1]), ([b"x"], ["x"])):
        merged = merge_sources(of(A={**times, "x": a}, B=times, C={**times, "x": b}, D={**times, "x": a}), "at")
        assert len(rows_of(merged, [])) == 4  # a query may do without the column
        with pytest.raises(
            cer_gpu.EventsError, match=r"column 'x' is .* in stream 'A' and .* in stream 'C'\n.*\nhint: re"
        ):
            merged.batches(["x"])
    twice = pa.Table.from_arrays([pa.array([1])] * 3, names=["at", "x", "x"])
    with pytest.raises(cer_gpu.EventsError, match=r"stream 'B' has 2 columns 'x'\nhint"):
        merge_sources({**of(A=times), "B": open_events(twice)}, "at").batches(["x"])


def test_values_that_do_not_fit_the_merged_type_are_refused():
    merged = merge_sources(of(A={"at": [1], "x": [2**53 + 1]}, B={"at": [1], "x": [0.5]}), "at")
    with pytest.raises(
        cer_gpu.EventsError, match=r"stream 'A': a value of column 'x', which is int64, does not fit doub"
    ):
        rows_of(merged, ["x"])


def test_values_unlike_the_schema_come_out_as_they_came():
    """An iterable may change its types; values that do not fit come out as they came."""
    batches = [pa.record_batch({"at": [1], "x": pa.array([1], pa.int8())}), pa.record_batch({"at": [3], "x": ["text"]})]
    merged = merge_sources({"A": open_events(batches), **of(B={"at": [2], "x": [5]})}, "at")
    assert [row["x"] for row in rows_of(merged, ["x"])] == [1, 5, "text"]
    batches[1] = pa.record_batch({"at": pa.array([3], pa.int8()), "x": [1]})
    with pytest.raises(cer_gpu.EventsError, match=r"stream 'A': column 'at' tells the time and changed its type"):
        rows_of(merge_sources({"A": open_events(batches)}, "at"), [])


def test_times_of_several_zones_are_merged_by_instant():
    noon = dt.datetime(2024, 1, 1, 12)
    paris = (
        pa.array([noon, noon + dt.timedelta(hours=2)]).cast(pa.timestamp("us")).cast(pa.timestamp("s", "Europe/Paris"))
    )
    utc = pa.array([noon + dt.timedelta(hours=1)]).cast(pa.timestamp("ns", "UTC"))
    merged = merge_sources(of(A={"at": paris}, B={"at": utc}), "at")
    assert [row[STREAM_COLUMN] for row in rows_of(merged, [])] == ["A", "B", "A"]
    assert merged.schema.field("at").type == pa.timestamp("ns", "Europe/Paris")
