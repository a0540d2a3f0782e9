"""Windows in every form and unit, and the errors of times that decrease or are missing."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cer_gpu

LOW, HIGH = -(2**63), 2**63 - 1
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
INTEGER_TYPES = [pa.from_numpy_dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]


def pairs(within: str, *batches: pa.Array, **options) -> list[tuple[int, int]]:
    """Return the pairs of events of column x that are in one window; each array is a batch."""
    query = cer_gpu.compile(f"SELECT * FROM S WHERE S ; S WITHIN {within}", type_column=None, **options)
    evaluator = query.evaluator()
    found = [evaluator.push(pa.record_batch({"x": batch})) for batch in batches]
    return sorted((i, j) for f in found for i, j in zip(f["start"].to_pylist(), f["end"].to_pylist(), strict=True))


def expected(clocks: list, length: float | Fraction) -> list[tuple[int, int]]:
    """Return the same pairs by the definition."""
    return [(i, j) for i, j in itertools.combinations(range(len(clocks)), 2) if clocks[j] - clocks[i] <= length]


def numbers(values: list[int | None], data_type: pa.DataType) -> pa.Array:
    """Return moments or durations from their stored numbers."""
    return pa.array(values, pa.int32() if data_type.bit_width == 32 else pa.int64()).view(data_type)


# ---- positions and attributes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 2**31, 2**63, 10**30])
def test_a_window_of_events_counts_positions(n):
    assert pairs(f"{n} EVENTS", pa.array([0] * 4), pa.array([0] * 2)) == expected(range(6), n)


EDGES = [LOW, LOW + 1, -1, 0, 1, HIGH - 1, HIGH]


@pytest.mark.parametrize("n", [0, 1, 2, HIGH - 1, HIGH, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1, 2**64, 10**30])
def test_differences_beyond_int64_are_exact(n):
    assert pairs(f"{n} [x]", pa.array(EDGES)) == expected(EDGES, n)
    shifted = [e - LOW for e in EDGES]
    assert pairs(f"{n} [x]", pa.array(shifted, pa.uint64())) == expected(shifted, n)


@pytest.mark.parametrize("data_type", INTEGER_TYPES, ids=str)
def test_a_window_may_be_over_integers_of_any_type(data_type):
    clocks = [0, 0, 1, 3, 3, 100, 127]
    for n in (0, 2, 97, 126, 127):
        assert pairs(f"{n} [x]", pa.array(clocks, data_type)) == expected(clocks, n)
        assert pairs(f"{n}.9 [x]", pa.array(clocks[:3], data_type), pa.array(clocks[3:], data_type)) == expected(
            clocks, n
        )


@pytest.mark.parametrize("data_type", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_a_window_may_be_over_floats(data_type):
    clocks = [-1.5, -0.0, 0.0, 0.5, 0.5, 0.75, 100.0]
    for n in (0, 0.25, 0.5, 1.5, 2, 2.25, 99.5, 1000):
        assert pairs(f"{n} [x]", pa.array(clocks[:4], data_type), pa.array(clocks[4:], data_type)) == expected(
            clocks, n
        )


def test_a_window_over_floats_may_hold_infinities():
    clocks = [-math.inf, -math.inf, 0.0, math.inf, math.inf]
    assert pairs("1 [x]", pa.array(clocks)) == [(0, 1), (3, 4)]


@pytest.mark.parametrize(
    "data_type",
    [pa.decimal32(6, 2), pa.decimal64(12, 2), pa.decimal128(6, 2), pa.decimal128(18, 2), pa.decimal256(18, 2)],
    ids=str,
)
def test_decimal_attributes_are_exact(data_type):
    clocks = [Decimal("-0.10"), Decimal("0.20"), Decimal("0.20"), Decimal("0.31"), Decimal(9000)]
    for n in ("0", "0.1", "0.11", "0.3", "0.299", "0.41", "8999.8"):
        assert pairs(f"{n} [x]", pa.array(clocks, data_type)) == expected(clocks, Fraction(n))


def test_decimals_of_negative_scale_are_exact():
    clocks = [Decimal(100), Decimal(200), Decimal(400)]
    for n in (0, 99, 100, 200, 299, 300):
        assert pairs(f"{n} [x]", pa.array(clocks, pa.decimal128(5, -2))) == expected(clocks, n)


def test_moments_as_attributes_are_in_their_own_unit():
    assert pairs("1 [x]", numbers([0, 1, 2], pa.timestamp("ms"))) == [(0, 1), (1, 2)]
    assert pairs("1 [x]", numbers([0, 1, 2], pa.date32())) == [(0, 1), (1, 2)]
    assert pairs("1 [x]", numbers([0, 1, 2], pa.duration("ns"))) == [(0, 1), (1, 2)]


def test_a_window_may_be_over_a_dictionary_of_numbers():
    values = pa.array([7, 5, None, 6])
    column = pa.DictionaryArray.from_arrays(pa.array([1, 3, 0], pa.int8()), values)
    assert pairs("1 [x]", column) == [(0, 1), (1, 2)]
    with pytest.raises(cer_gpu.TimeOrderError, match=r"'x' of event 3 \(5\) is less than the one before \(7\)"):
        pairs("1 [x]", column, pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([5])))


@given(st.data(), st.sampled_from([pa.int64(), pa.uint64(), pa.float64()]))
@settings(deadline=None)
def test_windows_match_the_definition_in_any_cut(data, data_type):
    """The two-pointer window finds the same pairs as a comparison of all pairs."""
    if data_type == pa.float64():
        number = st.floats(allow_nan=False, allow_infinity=False, width=32)
    else:
        low = LOW if data_type == pa.int64() else 0
        number = st.integers(low, low + 20) | st.integers(low, low + 2**64 - 1)
    clocks = sorted(data.draw(st.lists(number, max_size=12)))
    n = data.draw(st.sampled_from([b - a for a, b in itertools.pairwise(clocks)] or [0]) | st.integers(0, 30))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(clocks)), max_size=3)))
    batches = [pa.array(clocks[a:b], data_type) for a, b in itertools.pairwise([0, *cuts, len(clocks)])]
    text = str(Fraction(n).numerator) if Fraction(n).denominator == 1 else f"{Decimal(n):f}"
    assert pairs(f"{text} [x]", *batches) == expected(clocks, float(n) if data_type == pa.float64() else n)


def test_the_ring_of_clocks_grows_and_wraps_around():
    """A long window makes the ring grow, and a short one reuses it from its beginning."""
    clocks = [0] * 3000 + [10**6 + i for i in range(3000)]
    query = cer_gpu.compile("SELECT * FROM S WHERE S AS a : S AS b WITHIN 2 [x]", type_column=None)
    found = query.evaluate(pa.table({"x": clocks}))
    assert found["end"].to_pylist() == [i for i in range(1, 6000) if i != 3000]


# ---- time -----------------------------------------------------------------------------------------------------------

LENGTHS = {
    "1 SECOND": 1,
    "1.5 SECONDS": Fraction(3, 2),
    "0.001 SECONDS": Fraction(1, 1000),
    "2 MINUTES": 120,
    "1 HOUR 1 MINUTE 1 SECOND": 3661,
    "0.5 HOURS": 1800,
    "24 HOURS": 86_400,
    "1e30 HOURS": 10**34,
}
MOMENTS = [0, Fraction(1, 1000), 1, Fraction(3, 2), Fraction(1501, 1000), 2, 120, 121, 1800, 3661, 86_400, 86_401]


@pytest.mark.parametrize("within", LENGTHS)
@pytest.mark.parametrize("unit", UNITS)
def test_windows_of_time_are_converted_to_the_unit_of_the_column(within, unit):
    seconds = [m for m in MOMENTS if (m * UNITS[unit]) % 1 == 0]
    stored = [int(m * UNITS[unit]) for m in seconds]
    same = expected(seconds, LENGTHS[within])
    for data_type in (pa.timestamp(unit), pa.timestamp(unit, "Asia/Tokyo"), pa.duration(unit)):
        assert pairs(within, numbers(stored, data_type), time_column="x") == same
    assert pairs(within, pa.array(stored), time_column="x", time_unit=unit) == same
    assert pairs(within, pa.array(stored, pa.uint64()), time_column="x", time_unit=unit) == same


@pytest.mark.parametrize(
    ("within", "days"), [("23 HOURS", 0), ("24 HOURS", 1), ("47 HOURS 59 MINUTES", 1), ("48 HOURS", 2), ("1 SECOND", 0)]
)
def test_windows_of_time_over_dates_are_in_days(within, days):
    dates = [-1, 0, 0, 1, 2, 4]
    assert pairs(within, numbers(dates, pa.date32()), time_column="x") == expected(dates, days)
    milliseconds = [d * 86_400_000 for d in dates]
    assert pairs(within, numbers(milliseconds, pa.date64()), time_column="x") == expected(dates, days)


def test_the_time_column_may_be_a_dictionary():
    column = pa.DictionaryArray.from_arrays(pa.array([1, 1, 0], pa.int8()), numbers([3, 1, None], pa.timestamp("s")))
    assert pairs("1 SECOND", column, time_column="x") == [(0, 1)]
    found = cer_gpu.compile("SELECT * FROM S WHERE S", type_column=None, time_column="x").evaluate(
        pa.table({"x": column})
    )
    assert found.schema.field("start_time").type == pa.timestamp("s")
    assert found["end_time"].cast(pa.int64()).to_pylist() == [1, 1, 3]


TIME_TYPES = [
    *INTEGER_TYPES,
    pa.date32(),
    pa.date64(),
    *(pa.timestamp(u, z) for u in UNITS for z in (None, "UTC")),
    *(pa.duration(u) for u in UNITS),
]


@pytest.mark.parametrize("data_type", TIME_TYPES, ids=str)
def test_start_and_end_times_have_the_type_of_the_column(data_type):
    stored = [5, 6, 100]
    column = pa.array(stored, data_type) if pa.types.is_integer(data_type) else numbers(stored, data_type)
    query = cer_gpu.compile("SELECT * FROM S WHERE S ; S WITHIN 1 EVENTS", type_column=None, time_column="x")
    found = query.evaluate(pa.table({"x": column}))
    assert found.schema == query.output_schema(pa.schema({"x": data_type}))
    assert found["start_time"].combine_chunks().equals(column.slice(0, 2))
    assert found["end_time"].combine_chunks().equals(column.slice(1, 2))


def test_times_at_the_ends_of_their_type_are_exact():
    query = cer_gpu.compile("SELECT * FROM S WHERE S ; S", type_column=None, time_column="x")
    for data_type, low, high in ((pa.int64(), LOW, HIGH), (pa.uint64(), 0, 2**64 - 1)):
        found = query.evaluate(pa.table({"x": pa.array([low, high], data_type)}))
        assert found.to_pylist() == [{"start": 0, "end": 1, "positions": [0, 1], "start_time": low, "end_time": high}]


# ---- times that decrease or are missing -----------------------------------------------------------------------------


def message_of(within: str, *batches: pa.Array, **options) -> str:
    with pytest.raises(cer_gpu.TimeOrderError) as caught:
        pairs(within, *batches, **options)
    return str(caught.value)


def test_a_decrease_within_a_batch_or_between_two_is_refused():
    for batches in ([[1, 2, 5, 4]], [[1, 2, 5], [4]], [[1, 2, 5], [], [4, 9]], [[1], [2, 5, 4]]):
        message = message_of("5 [x]", *(pa.array(b, pa.int64()) for b in batches))
        assert message.split("\n")[0] == "the 'x' of event 3 (4) is less than the one before (5)"
        assert "hint: sort the events by 'x' first: time_column='x', sort=True (--time-column x --sort)" in message


def test_the_message_numbers_events_over_all_blocks():
    n = 200_000
    clocks = list(range(n))
    clocks[150_000] = 3
    query = cer_gpu.compile("SELECT * FROM S WHERE S FILTER S[x < 0] WITHIN 5 [x]", type_column=None)
    with pytest.raises(cer_gpu.TimeOrderError, match=r"event 150000 \(3\) is less than the one before \(149999\)"):
        query.evaluate(pa.table({"x": clocks}))
    clocks[150_000] = None
    with pytest.raises(cer_gpu.TimeOrderError, match="event 150000 is missing"):
        query.evaluate(pa.table({"x": clocks}))


@pytest.mark.parametrize(
    ("column", "before", "after"),
    [
        (numbers([5, 4], pa.timestamp("s")), "1970-01-01 00:00:05", "1970-01-01 00:00:04"),
        (numbers([5001, 4], pa.timestamp("ms", "UTC")), "1970-01-01 00:00:05.001", "1970-01-01 00:00:00.004"),
        (numbers([2**62 + 1, 1], pa.timestamp("ns")), "2116-02-20 23:53:38.427387905", "1970-01-01 00:00:00.000000001"),
        (numbers([HIGH, LOW], pa.timestamp("s")), str(HIGH), str(LOW)),
        (numbers([5, 4], pa.timestamp("s", "No/Where")), "5", "4"),
        (numbers([2, 1], pa.date32()), "1970-01-03", "1970-01-02"),
        (numbers([2**31 - 1, 1], pa.date32()), str(2**31 - 1), "1970-01-02"),
        (numbers([5, 4], pa.duration("s")), "0:00:05", "0:00:04"),
        (pa.array([2**64 - 1, 2**63], pa.uint64()), str(2**64 - 1), str(2**63)),
        (pa.array([2.5, -1.0]), "2.5", "-1.0"),
        (pa.array([2.5, -1.0], pa.float16()), "2.5", "-1.0"),
        (pa.array([Decimal("2.50"), Decimal("-0.25")], pa.decimal128(5, 2)), "2.50", "-0.25"),
        (pa.array([Decimal("2.50"), Decimal("-0.25")], pa.decimal256(5, 2)), "2.50", "-0.25"),
    ],
    ids=lambda v: str(v.type) if isinstance(v, pa.Array) else "",
)
def test_the_message_shows_both_values(column, before, after):
    for batches in ([column], [column.slice(0, 1), column.slice(1)]):
        first = message_of("1 [x]", *batches).split("\n")[0]
        assert first.startswith(f"the 'x' of event 1 ({after}")
        assert f"less than the one before ({before}" in first


def test_missing_times_are_refused():
    for batches in ([[1, None, 3]], [[1], [None, 3]]):
        message = message_of("5 [x]", *(pa.array(b, pa.int64()) for b in batches))
        assert message.startswith("the 'x' of event 1 is missing (NULL)")
    assert "event 0 is missing" in message_of("5 [x]", pa.nulls(3, pa.float64()))
    assert "event 2 is not a number (NaN)" in message_of("5 [x]", pa.array([0.0, 1.0, math.nan]))
    nulls = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([5, None]))
    assert "event 1 is missing" in message_of("5 [x]", nulls)


def test_the_time_column_is_checked_without_a_window():
    query = cer_gpu.compile("SELECT * FROM S WHERE S", type_column=None, time_column="x")
    with pytest.raises(cer_gpu.TimeOrderError, match=r"event 1 \(1\) is less"):
        query.evaluate(pa.table({"x": [2, 1]}))


def test_a_window_over_an_attribute_beside_a_time_column():
    query = cer_gpu.compile("SELECT * FROM S WHERE S ; S WITHIN 1 [n]", type_column=None, time_column="x")
    table = pa.table({"x": [5, 5, 6], "n": [0, 1, 2]})
    assert query.evaluate(table)["positions"].to_pylist() == [[0, 1], [1, 2]]
    with pytest.raises(cer_gpu.TimeOrderError, match=r"'n' of event 1 \(0\)"):
        query.evaluate(pa.table({"x": [5, 6], "n": [1, 0]}))


def test_the_message_names_the_file(tmp_path):
    files = [tmp_path / f"{k}.parquet" for k in "abc"]
    for file, clocks in zip(files, ([1, 2, 3], [3, 5], [7, 6]), strict=True):
        pq.write_table(pa.table({"x": clocks}), file)
    query = cer_gpu.compile("SELECT * FROM S WHERE S WITHIN 5 [x]", type_column=None)
    with pytest.raises(cer_gpu.TimeOrderError) as caught:
        query.evaluate(files)
    expected_start = f"{files[2]} (its first event is 5): the 'x' of event 6 (6) is less than the one before (7)"
    assert str(caught.value).startswith(expected_start)
    with pytest.raises(cer_gpu.TimeOrderError) as caught:
        query.evaluate([files[2], files[0]])
    assert str(caught.value).startswith(f"{files[2]}: the 'x' of event 1")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pa.array([1]), pa.array([2], pa.uint64())),
        (pa.array([1]), pa.array([2.0])),
        (numbers([1], pa.timestamp("s")), numbers([2000], pa.timestamp("ms"))),
    ],
    ids=lambda a: str(a.type),
)
def test_a_clock_that_changes_its_type_is_refused(before, after):
    with pytest.raises(
        cer_gpu.EventsError, match=f"(?s)'x'.*changed its type.*{after.type}.*from event 1 on".replace("[", r"\[")
    ):
        pairs("5 [x]", before, after)


# ---- columns that are no clocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data_type",
    [pa.string(), pa.bool_(), pa.time32("s"), pa.list_(pa.int8()), pa.decimal128(30, 2), pa.null(), pa.binary()],
    ids=str,
)
def test_windows_need_numbers_or_moments(data_type):
    text = "SELECT * FROM S WHERE S WITHIN 5 [x]"
    with pytest.raises(cer_gpu.QueryTypeError, match="WITHIN needs a column of numbers or timestamps") as caught:
        cer_gpu.compile(text, type_column=None, schema=pa.schema({"x": data_type}))
    assert text[caught.value.start : caught.value.end] == "x"
    with pytest.raises(cer_gpu.QueryTypeError, match="time column 'x' must be"):
        cer_gpu.compile(
            "SELECT * FROM S WHERE S", type_column=None, time_column="x", schema=pa.schema({"x": data_type})
        )


def test_missing_clocks_are_refused():
    schema = pa.schema({"time": pa.int64()})
    with pytest.raises(cer_gpu.QueryTypeError, match=r"no column 'tme'(?s:.*)did you mean 'time'"):
        cer_gpu.compile("SELECT * FROM S WHERE S WITHIN 5 [tme]", type_column=None, schema=schema)
    with pytest.raises(cer_gpu.QueryTypeError, match=r"no column 'tme'(?s:.*)did you mean 'time'"):
        cer_gpu.compile("SELECT * FROM S WHERE S", type_column=None, time_column="tme", schema=schema)


def test_windows_of_time_over_integers_need_a_unit():
    text = "SELECT * FROM S WHERE S WITHIN 1 HOUR 5 SECONDS"
    with pytest.raises(cer_gpu.QueryTypeError, match="needs their unit") as caught:
        cer_gpu.compile(text, type_column=None, time_column="x", schema=pa.schema({"x": pa.int64()}))
    assert "time_unit='s'" in caught.value.hint
    assert "1 HOUR 5 SECONDS" in text[caught.value.start : caught.value.end]


def test_time_windows_need_a_time_column():
    with pytest.raises(cer_gpu.QueryError, match="needs a time column"):
        cer_gpu.compile("SELECT * FROM S WHERE S WITHIN 1 HOUR", type_column=None)
    with pytest.raises(cer_gpu.OptionError, match="time_unit must be one of s, ms, us, ns, got 'min'"):
        cer_gpu.compile("SELECT * FROM S WHERE S", type_column=None, time_unit="min")
