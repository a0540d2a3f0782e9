"""Late events, compared with the definition: the late ones, and the time and order in which the others come out."""

from __future__ import annotations

import gc
import json
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import property_settings

import cer_gpu
from cer_gpu.order import layouts
from cer_gpu.order.layouts import Layouts
from cer_gpu.order.reorder_buffer import ReorderBuffer

LOW, HIGH, TOP = -(2**63), 2**63 - 1, 2**64 - 1
MOMENTS = [pa.timestamp("us", "UTC"), pa.timestamp("s"), pa.duration("ns"), pa.date32(), pa.date64()]
TIMES = [pa.int64(), pa.uint64(), pa.int8(), pa.uint32(), pa.float64(), pa.float32(), *MOMENTS]
STRINGS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


def times_of(values, data_type: pa.DataType) -> pa.Array:
    if data_type in MOMENTS:
        return pa.array(values, pa.int32() if data_type.bit_width == 32 else pa.int64()).view(data_type)
    return pa.array(values, data_type)


def time_values(data_type: pa.DataType):
    day = 86_400_000 if pa.types.is_date64(data_type) else 1
    few = st.integers(0, 8).map(lambda v: v * day)
    if pa.types.is_floating(data_type):
        return few.map(float) | st.sampled_from([-math.inf, math.inf, -0.0, 0.5, 2.0**100])  # float32 has them all
    if data_type == pa.date64():
        return few
    bits, unsigned = data_type.bit_width, pa.types.is_unsigned_integer(data_type)
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return few | few | st.sampled_from([low, low + 1, high - 1, high])


def latenesses(data_type: pa.DataType):
    day = 86_400_000 if pa.types.is_date64(data_type) else 1
    usual = st.integers(0, 8).map(lambda v: v * day)
    return usual | st.sampled_from([0.5, 1.9]) | st.sampled_from([HIGH, HIGH + 1, TOP - 1, TOP, TOP + 1, 2**100])


def definition(times: list, lateness) -> tuple[list[int], list[int]]:
    """Return the arrivals that come out, in order, and those that are late."""
    late = [i for i, time in enumerate(times) if i and below(time, max(times[:i]), lateness)]
    return sorted(set(range(len(times))) - set(late), key=lambda i: (times[i], i)), late


def below(time, greatest, lateness) -> bool:
    if isinstance(time, float):
        return time < greatest - float(lateness)
    return time < greatest - Fraction(lateness)


def released(times: list, lateness, n: int) -> int:
    """Return the number of the first n events that have come out."""
    kept, _ = definition(times[:n], lateness)
    whole = lateness if isinstance(times[0], float) else math.floor(lateness) if times else 0
    return sum(times[i] <= max(times[:n]) - whole for i in kept)


def batch_of(values, first: int, data_type: pa.DataType, kind: pa.DataType = STRINGS[0], wide: bool = True):
    text = [None if i % 5 == 4 else f"v{i % 7}" for i in range(first, first + len(values))]
    names = pa.array(text, pa.string())
    return pa.record_batch(
        {
            "row": pa.array(range(first, first + len(values)), pa.int64() if wide else pa.int16()),
            "name": names.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else names.cast(kind),
            "at": times_of(values, data_type),
        }
    )


def rows_of(batches) -> list[int]:
    """Return the arrivals, after checking that each has its name."""
    rows = []
    for batch in batches:
        assert batch.num_rows
        for row, name in zip(batch["row"].to_pylist(), batch["name"].to_pylist(), strict=True):
            assert name == (None if row % 5 == 4 else f"v{row % 7}")
            rows.append(row)
    return rows


@st.composite
def arrivals(draw):
    """Draw a type, a lateness, times, and batches of them in changing layouts."""
    data_type = draw(st.sampled_from(TIMES))
    times = draw(st.lists(time_values(data_type), min_size=1, max_size=40))
    cuts = sorted(draw(st.lists(st.integers(0, len(times)), max_size=12)))
    if draw(st.integers(0, 3)) == 0:
        cuts = list(range(len(times)))
    batches = []
    for a, b in zip([0, *cuts], [*cuts, len(times)], strict=True):
        batch = batch_of(times[a:b], a, data_type, draw(st.sampled_from(STRINGS)), draw(st.booleans()))
        batches.append(batch)
    return draw(latenesses(data_type)), times, batches


def through_files(reorder: ReorderBuffer) -> ReorderBuffer:
    """Take a snapshot, write and read it, and go on from there."""
    table, state = reorder.snapshot()
    if table is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
        table = pa.ipc.open_file(sink.getvalue()).read_all()
    return ReorderBuffer.restore(table, json.loads(json.dumps(state)))


@given(arrivals(), st.sampled_from([2, 1 << 16]), st.data())
@property_settings
def test_events_come_out_in_order_as_early_as_the_definition_allows(case, max_values, data):
    lateness, times, batches = case
    kept, late = definition(times, lateness)
    reorder, found, n = ReorderBuffer("at", lateness, "drop"), [], 0
    with mock.patch.object(layouts, "MAX_VALUES", max_values):
        for batch in batches:
            found += rows_of(reorder.push(batch))
            n += batch.num_rows
            if n:
                assert len(found) == released(times, lateness, n)
            assert reorder.n_events == n
            assert reorder.n_buffered + len(found) + reorder.n_late == n
            if data.draw(st.integers(0, 4)) == 0:
                reorder = through_files(reorder)
        found += rows_of(reorder.finish())
    assert found == kept
    assert reorder.n_late == len(late)


@given(arrivals())
@property_settings
def test_the_first_late_event_is_refused(case):
    lateness, times, batches = case
    kept, late = definition(times, lateness)
    reorder, found = ReorderBuffer("at", lateness, "raise"), []
    try:
        for batch in batches:
            found += rows_of(reorder.push(batch))
        found += rows_of(reorder.finish())
    except cer_gpu.TimeOrderError as error:
        message = str(error)
        assert found == kept[: len(found)]
        with pytest.raises(cer_gpu.OptionError, match="an error ended the stream"):
            reorder.finish()
        assert f"the 'at' of event {late[0]} (" in message
    else:
        assert not late
        assert found == kept


def test_a_late_event_is_reported_with_both_times():
    reorder = ReorderBuffer("at", 1500, "raise")
    reorder.push(pa.record_batch({"at": pa.array([5000, 3500], pa.timestamp("ms"))}))
    with pytest.raises(
        cer_gpu.TimeOrderError,
        match=(
            r"^the 'at' of event 3 \(1970-01-01 00:00:03.499000\) is late: 1970-01-01 00:00:05 came before it, and the "
            r"lateness is 1500 ms\nexpected: .*\n"
            r"hint: a larger lateness, or late='drop' \(--late drop\) to leave late events out$"
        ),
    ):
        reorder.push(pa.record_batch({"at": pa.array([4000, 3499, 9000], pa.timestamp("ms"))}))
    for operation in (reorder.finish, reorder.snapshot, lambda: reorder.push(pa.record_batch({"at": [1]}))):
        with pytest.raises(cer_gpu.OptionError, match="an error ended the stream: make a new Reorder"):
            operation()
    reorder = ReorderBuffer("at", 1, "drop")
    assert reorder.finish() == []
    with pytest.raises(cer_gpu.OptionError, match="the stream is finished"):
        reorder.finish()


@pytest.mark.parametrize("value", [LOW, HIGH])
def test_a_late_event_with_an_extreme_time_is_reported(value):
    reorder = ReorderBuffer("at", 0, "raise")
    with pytest.raises(cer_gpu.TimeOrderError, match=rf"event 1 \({LOW}\) is late: {HIGH} came before it"):
        reorder.push(pa.record_batch({"at": [HIGH, LOW]}))


def test_missing_times_are_refused():
    for late in ("drop", "raise"):
        for column, what in (([5, None, 0], r"missing \(NULL\)"), ([5.0, math.nan, 0.0], r"not a number \(NaN\)")):
            reorder = ReorderBuffer("at", 9, late)
            reorder.push(pa.record_batch({"at": pa.array([1, 2]).cast(pa.array(column).type)}))
            with pytest.raises(cer_gpu.TimeOrderError, match=f"the 'at' of event 3 is {what}\nexpected.*\nhint: leave"):
                reorder.push(pa.record_batch({"at": column}))
    # the message names the first wrong event
    with pytest.raises(cer_gpu.TimeOrderError, match=r"event 1 .* is late"):
        ReorderBuffer("at", 1, "raise").push(pa.record_batch({"at": [5, 1, None]}))
    with pytest.raises(cer_gpu.TimeOrderError, match="event 1 is missing"):
        ReorderBuffer("at", 1, "raise").push(pa.record_batch({"at": [5, None, 1]}))


def test_columns_that_are_no_times_are_refused():
    for column in (["a"], [True], pa.array([1], pa.decimal128(5, 0)), pa.array([1], pa.time32("s"))):
        with pytest.raises(cer_gpu.QueryTypeError, match="the time column 'at' must be"):
            ReorderBuffer("at", 1, "drop").push(pa.record_batch({"at": column}))
    with pytest.raises(cer_gpu.QueryTypeError, match="no column 'at'"):
        ReorderBuffer("at", 1, "drop").push(pa.record_batch({"x": [1]}))
    reorder = ReorderBuffer("at", 1, "drop")
    reorder.push(pa.record_batch({"at": [1]}))
    with pytest.raises(cer_gpu.EventsError, match="changed its type: int64 before, int32 from event 1 on"):
        reorder.push(pa.record_batch({"at": pa.array([1], pa.int32())}))
    with pytest.raises(cer_gpu.EventsError, match=r"expected a pyarrow.RecordBatch, got Table"):
        ReorderBuffer("at", 1, "drop").push(pa.table({"at": [1]}))


@pytest.mark.parametrize("lateness", [-1, -0.5, math.nan, math.inf, "1", None, True])
def test_a_wrong_lateness_or_treatment_of_late_events_is_refused(lateness):
    with pytest.raises(cer_gpu.OptionError, match="the lateness must be a number that is not negative, got"):
        ReorderBuffer("at", lateness, "drop")
    with pytest.raises(cer_gpu.OptionError, match="late must be one of raise, drop, got 'keep'"):
        ReorderBuffer("at", 1, "keep")


def test_events_come_out_with_the_columns_that_they_came_with():
    batches = [
        {"at": [1, 4], "x": [1, 2]},
        {"at": [2, 5], "x": ["a", "b"]},
        {"x": [1.5, 2.5], "at": [3, 6]},
        {"at": [1, 7], "x": [3, None], "y": [[1], None]},
        {"at": [4, 8]},
        {"at": [4, 8], "x": [None, None]},
        {"at": [1, 9], "x": pa.array([4, 5], pa.int8())},
    ]
    rows = [row for columns in batches for row in pa.record_batch(columns).to_pylist()]
    for snapshots in (False, True):
        reorder, found = ReorderBuffer("at", 100, "raise"), []
        for columns in batches:
            found += reorder.push(pa.record_batch(columns))
            if snapshots:
                reorder = through_files(reorder)
        found += reorder.finish()
        assert [list(row.items()) for batch in found for row in batch.to_pylist()] == [
            list(row.items()) for row in sorted(rows, key=lambda row: row["at"])
        ]


def test_columns_of_the_same_name_stay_apart():
    batch = pa.RecordBatch.from_arrays([pa.array([2, 1]), pa.array([1, 2]), pa.array(["a", "b"])], ["at", "x", "x"])
    reorder = ReorderBuffer("at", 1, "drop")
    found = [*reorder.push(batch), *reorder.finish()]
    assert [[c.to_pylist() for c in part.columns] for part in found] == [[[1], [2], ["b"]], [[2], [1], ["a"]]]


def test_snapshots_without_held_events_restore():
    table, state = ReorderBuffer("at", 5, "drop").snapshot()
    assert table is None
    reorder = ReorderBuffer.restore(table, state)
    reorder.push(pa.record_batch({"at": pa.array([], pa.int8())}))
    reorder = through_files(reorder)
    with pytest.raises(cer_gpu.EventsError, match="changed its type: int8 before"):
        reorder.push(pa.record_batch({"at": [1]}))
    reorder = ReorderBuffer("at", 0, "drop")
    assert [batch["at"].to_pylist() for batch in reorder.push(pa.record_batch({"at": [1, 7]}))] == [[1, 7]]
    reorder = through_files(reorder)
    assert (reorder.n_events, reorder.n_buffered) == (2, 0)
    assert reorder.push(pa.record_batch({"at": [6]})) == []
    assert reorder.n_late == 1


# ---- cost -----------------------------------------------------------------------------------------------------------


@pytest.mark.long("holds many events back")
@pytest.mark.parametrize("shape", ["in order", "shuffled", "two clocks"])
def test_the_cost_of_an_event_is_logarithmic_in_the_held_events(shape):
    """The rows moved per event are some for each level of the sorted runs, not all held ones."""
    n, lateness = 6000, 2000
    rng = np.random.default_rng(0)
    at = np.arange(n)
    if shape == "shuffled":
        at = at + rng.integers(0, lateness, n)
    elif shape == "two clocks":
        at = at - np.where(rng.random(n) < 0.9, lateness - 1, 0)
    reorder, found = ReorderBuffer("at", lateness, "raise"), []
    moved, most_runs = 0, 0
    concat = Layouts.concat

    def counted(self, batches):
        nonlocal moved
        moved += sum(batch.num_rows for batch in batches)
        return concat(self, batches)

    with mock.patch.object(Layouts, "concat", counted):
        for i in range(n):
            found += reorder.push(pa.record_batch({"at": at[i : i + 1]}))
            most_runs = max(most_runs, len(reorder._runs))
    found += reorder.finish()
    assert [v for batch in found for v in batch["at"].to_pylist()] == sorted(at.tolist())
    assert moved < 2 * n * math.log2(lateness)
    assert most_runs < 2 * math.log2(lateness)


def test_a_few_held_events_do_not_keep_their_batch_alive():
    n = 500_000
    gc.collect()
    before = pa.total_allocated_bytes()
    reorder = ReorderBuffer("at", 5, "drop")
    for k in range(4):
        at = np.arange(k * n, (k + 1) * n)
        batch = pa.record_batch({"at": at, "x": at.astype(float)}).filter(pa.array(np.ones(n, np.bool_)))
        found = reorder.push(batch)
        assert sum(b.num_rows for b in found) == n - 5 * (k == 0)
        del batch, found
    gc.collect()
    assert reorder.n_buffered == 5
    assert pa.total_allocated_bytes() - before < 100_000


def test_slices_of_a_large_batch_do_not_keep_it_alive():
    """A slice would keep its whole batch alive, unless it is copied."""
    n = 1000
    before = pa.total_allocated_bytes()
    reorder = ReorderBuffer("at", n, "drop")
    for k in range(50):
        whole = pa.record_batch({"at": np.full(20_000, k)}).filter(pa.array(np.ones(20_000, np.bool_)))
        reorder.push(whole.slice(k, 1))
    del whole
    assert pa.total_allocated_bytes() - before < 100_000
    assert [v for batch in reorder.finish() for v in batch["at"].to_pylist()] == list(range(50))
