"""Columns as text: JSON lines and CSV read back as the values that were written."""

import base64
import csv
import datetime
import io
import json
import math
import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import scaled

from cer_gpu.io.value_strings import csv_header, csv_lines, json_lines, json_strings, plain_values, to_csv

# ---- readers ------------------------------------------------------------------------------------------------------


def read_json(batch):
    """Return the rows of JSON lines; decimals and other numbers with a point are exact."""
    text = json_lines(batch).to_pybytes().decode()
    assert text.endswith("\n") or batch.num_rows == 0
    return [json.loads(line, parse_float=Decimal, parse_constant=pytest.fail) for line in text.split("\n")[:-1]]


def read_csv(batch):
    """Return the header and the fields of CSV."""
    text = (csv_header(batch.schema.names) + csv_lines(batch).to_pybytes()).decode()
    names, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    return names, rows


def expected(value, kind):
    """Return the JSON value of a value, by the table of cer_gpu.io.value_strings."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if value is None:
        return None
    if pa.types.is_floating(kind):
        if not math.isfinite(value):
            return None
        return Decimal(repr(value if kind != pa.float32() else float(str(np.float32(value)))))
    if pa.types.is_duration(kind):
        return duration(value)
    if pa.types.is_timestamp(kind):
        return moment(value, kind.unit) + ("" if kind.tz is None else "Z")
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        text = value.isoformat()
        return text if kind != pa.time64("us") else f"{value:%H:%M:%S}.{value.microsecond:06d}"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if pa.types.is_map(kind):
        return [{"key": expected(k, kind.key_type), "value": expected(v, kind.item_type)} for k, v in value]
    if pa.types.is_struct(kind):
        return {field.name: expected(value[field.name], field.type) for field in kind}
    if isinstance(value, list):
        return [expected(v, kind.value_type) for v in value]
    return value


def moment(value, unit):
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    digits = {"s": 0, "ms": 3, "us": 6}[unit]
    text = f"{value.replace(microsecond=0).isoformat()}.{value.microsecond:06d}"
    return text[: 19 + (digits and digits + 1)]


def duration(value):
    """Return a duration in ISO 8601, without parts that are 0."""
    rest, parts = abs(value) / datetime.timedelta(microseconds=1), []
    for name, unit in (("D", 86400), ("H", 3600), ("M", 60), ("S", 1)):
        n = rest / (unit * 10**6) if name == "S" else rest // (unit * 10**6)
        rest -= n * unit * 10**6
        text = f"{n:.6f}".rstrip("0").rstrip(".") if name == "S" else str(int(n))
        parts.append(f"{text}{name}" if n else "")
    day, time = parts[0], "".join(parts[1:])
    return ("-" if value < datetime.timedelta() else "") + (
        "P" + day + ("T" + time if time else "") if value else "PT0S"
    )


def expected_field(value, kind):
    """Return the CSV field of a value; the ellipsis: compare its JSON or float with the value."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if value is None:
        return ""
    if isinstance(value, list) and not pa.types.is_map(kind) and pa.types.is_integer(kind.value_type):
        return " ".join("null" if v is None else str(v) for v in value)
    if pa.types.is_nested(kind):
        return ...
    if isinstance(value, float):
        return ...
    if isinstance(value, bool):
        return str(value).lower()
    return str(expected(value, kind))


# ---- random columns -----------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["", '"', "\\", "a,b", "\n", "\r\n", "\x00", "\x1f", "null", "NULL", "  ", "\u2028", "\x85", "\U0001f600", "x\\n"]
)


def times(unit):
    step = {"s": 1_000_000, "ms": 1000, "us": 1}[unit]
    low, high = datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1)
    return st.datetimes(low, high).map(lambda t: t.replace(microsecond=t.microsecond // step * step % 1_000_000))


SCALARS = [
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.string_view(), TEXTS),
    (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    (pa.dictionary(pa.int32(), pa.int64()), st.integers(-5, 5)),
    (pa.bool_(), st.booleans()),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.float16(), st.floats(width=16)),
    (pa.decimal128(20, 3), st.decimals(-(10**16), 10**16, places=3)),
    (pa.decimal128(38, 20), st.decimals(-1, 1, places=20)),
    (pa.decimal256(50, 0), st.integers(-(10**49), 10**49).map(Decimal)),
    (pa.date32(), st.dates(datetime.date(1000, 1, 1))),
    (pa.time32("s"), st.times().map(lambda t: t.replace(microsecond=0))),
    (pa.time64("us"), st.times()),
    (pa.timestamp("s"), times("s")),
    (pa.timestamp("ms", "Europe/Paris"), times("ms").map(lambda t: t.replace(tzinfo=datetime.UTC))),
    (pa.timestamp("us"), times("us")),
    (pa.duration("ms"), st.integers(-(10**9), 10**9).map(lambda n: datetime.timedelta(milliseconds=n))),
    (pa.binary(), st.binary(max_size=5)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.null(), st.none()),
]


def nested(kinds):
    """Draw lists, structs and maps of the kinds."""
    return st.one_of(
        kinds.map(lambda k: (pa.list_(k[0]), st.lists(st.none() | k[1], max_size=3))),
        kinds.map(lambda k: (pa.large_list(k[0]), st.lists(st.none() | k[1], max_size=3))),
        kinds.map(lambda k: (pa.list_(k[0], 2), st.lists(st.none() | k[1], min_size=2, max_size=2))),
        kinds.map(lambda k: (pa.map_(pa.string(), k[0]), st.lists(st.tuples(TEXTS, st.none() | k[1]), max_size=2))),
        st.lists(st.tuples(TEXTS, kinds), max_size=3, unique_by=lambda named: named[0]).map(struct),
    )


def struct(fields):
    kind = pa.struct([pa.field(name, k[0]) for name, k in fields])
    return kind, st.fixed_dictionaries({name: st.none() | k[1] for name, k in fields})


KINDS = st.recursive(st.sampled_from(SCALARS), nested, max_leaves=4)


@st.composite
def batches(draw, kinds=KINDS):
    """Draw a batch that is a slice of a longer one, and the values of its columns."""
    n_before, n, n_after = draw(st.integers(0, 2)), draw(st.integers(0, 4)), draw(st.integers(0, 2))
    names = draw(st.lists(TEXTS, min_size=1, max_size=3, unique=True))
    arrays, columns = [], []
    for _ in names:
        kind, values = draw(kinds)
        total = n_before + n + n_after
        column = draw(st.lists(st.none() | values, min_size=total, max_size=total))
        if kind == pa.float16():
            array = pa.array([None if v is None else np.float16(v) for v in column], kind)
        else:
            array = pa.array(column, kind)
        arrays.append(array)
        columns.append(column[n_before : n_before + n])
    return pa.RecordBatch.from_arrays(arrays, names).slice(n_before, n), columns


# pa.array takes no Python floats for float16 in nested types
NESTABLE = KINDS.filter(lambda k: k[0] == pa.float16() or "halffloat" not in str(k[0]))


@given(batches(NESTABLE))
@settings(max_examples=scaled(30))
def test_json_lines_read_back(drawn):
    batch, columns = drawn
    kinds = batch.schema.types
    rows = [
        {name: expected(v, kind) for name, v, kind in zip(batch.schema.names, values, kinds, strict=True)}
        for values in zip(*columns, strict=True)
    ]
    assert read_json(batch) == rows


@given(batches(NESTABLE))
@settings(max_examples=scaled(30))
def test_csv_reads_back(drawn):
    batch, columns = drawn
    names, rows = read_csv(batch)
    assert names == batch.schema.names
    if len(names) == 1:  # the reader returns no field for a line with one empty field
        rows = [row or [""] for row in rows]
    assert len(rows) == batch.num_rows
    for k, (kind, column) in enumerate(zip(batch.schema.types, columns, strict=True)):
        for row, value in zip(rows, column, strict=True):
            field = expected_field(value, kind)
            if field is not ...:
                assert row[k] == field
            elif isinstance(value, float):
                assert np.array(row[k], float).astype(str) == np.array(value, float).astype(str)
            else:
                assert json.loads(row[k], parse_float=Decimal) == expected(value, kind)


# ---- the table of cer_gpu.io.value_strings ---------------------------------------------------------------------------


def texts(values, kind, render=json_strings):
    return render(pa.array(values, kind)).to_pylist()


def test_floats_have_the_shortest_text():
    values = [
        1.0,
        -0.0,
        0.1,
        1e-7,
        9999999999.0,
        1e10,
        1e15,
        1e300,
        5e-324,
        123456789012345680.0,
        float("nan"),
        float("-inf"),
        None,
    ]
    written = [
        "1.0",
        "-0.0",
        "0.1",
        "1e-7",
        "9999999999.0",
        "1e+10",
        "1e+15",
        "1e+300",
        "5e-324",
        "1.2345678901234568e+17",
    ]
    assert texts(values, pa.float64()) == [*written, "null", "null", "null"]
    assert texts(values, pa.float64(), to_csv) == [*written, "nan", "-inf", ""]
    assert texts([0.1, 16777216.0, 3.4e38], pa.float32()) == ["0.1", "16777216.0", "3.4e+38"]


def test_times_are_iso_8601():
    instant = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.UTC)
    paris = pa.timestamp("ns", "Europe/Paris")
    assert texts([instant, None], paris, to_csv) == ["2024-07-01T12:00:00.000000000Z", ""]
    assert texts([instant, None], paris) == ['"2024-07-01T12:00:00.000000000Z"', "null"]
    # a year of five digits moves the place of the T
    assert texts([0, 253_402_300_800], pa.timestamp("s"), plain_values) == [
        "1970-01-01T00:00:00",
        "10000-01-01T00:00:00",
    ]
    assert texts([253_402_300_799], pa.timestamp("s"), plain_values) == ["9999-12-31T23:59:59"]
    assert texts([1], pa.time64("ns"), plain_values) == ["00:00:00.000000001"]


def test_null_and_empty_differ_in_csv():
    batch = pa.record_batch({"a": pa.array(["", None, 'say "x"']), "b": pa.array([None, "null", "1"])})
    assert csv_lines(batch).to_pybytes() == b'"",\n,"null"\n"say ""x""","1"\n'
    options = pa_csv.ConvertOptions(
        column_types={"b": pa.string()}, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    text = csv_header(batch.schema.names) + csv_lines(batch).to_pybytes()
    assert pa_csv.read_csv(io.BytesIO(text), convert_options=options).to_pylist() == batch.to_pylist()


def test_names_are_quoted_if_necessary():
    assert csv_header(["start", "a b", 'a"b', "a,b", "a\rb", ""]) == b'start,a b,"a""b","a,b","a\rb",""\n'
    assert json_lines(pa.record_batch({'"\\\n': [1]})).to_pybytes() == b'{"\\"\\\\\\n": 1}\n'


def test_lists_of_structs_are_json():
    kind = pa.list_(pa.struct([("type", pa.string()), ("price", pa.float64())]))
    rows = [[{"type": "SELL", "price": 101.0}, {"type": "BUY", "price": None}], [], None, [None]]
    batch = pa.record_batch({"end": [1, 2, 3, 4], "events": pa.array(rows, kind)})
    assert json_lines(batch).to_pybytes().decode().splitlines() == [
        '{"end": 1, "events": [{"type": "SELL", "price": 101.0}, {"type": "BUY", "price": null}]}',
        '{"end": 2, "events": []}',
        '{"end": 3, "events": null}',
        '{"end": 4, "events": [null]}',
    ]
    assert csv_lines(batch).to_pybytes().decode().splitlines() == [
        '1,"[{""type"": ""SELL"", ""price"": 101.0}, {""type"": ""BUY"", ""price"": null}]"',
        '2,"[]"',
        "3,",
        '4,"[null]"',
    ]


def test_bytes_that_are_not_utf_8_are_replaced():
    raw = pa.array([b"\xff", b"ok", None], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    assert [json.loads(t) for t in json_strings(broken).to_pylist()] == ["\ufffd", "ok", None]
    assert to_csv(broken).to_pylist() == ['"\ufffd"', '"ok"', ""]


def test_rare_types_have_a_text():
    assert texts([(1, 2, 3), None], pa.month_day_nano_interval()) == ["[1, 2, 3]", "null"]
    assert texts([(1, 2, 3), None], pa.month_day_nano_interval(), to_csv) == ['"[1, 2, 3]"', ""]
    union = pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array(['"', None]), pa.array([5])]
    )
    assert json_strings(union).to_pylist() == ['"\\""', "5", "null"]
    assert json_strings(pc_run_end([1, 1, None])).to_pylist() == ["1", "1", "null"]
    assert texts([b"0" * 16], pa.uuid()) == ['"MDAwMDAwMDAwMDAwMDAwMA=="']
    assert texts([[1, None], None], pa.list_view(pa.int64())) == ["[1, null]", "null"]
    assert texts([[1, None], None], pa.list_view(pa.int64()), to_csv) == ["1 null", ""]
    assert texts([b"a", None], pa.binary_view()) == ['"YQ=="', "null"]
    long = pa.DictionaryArray.from_arrays(pa.array([2, None]), pa.array(["x", None, "y", "z"]))
    assert json_strings(long).to_pylist() == ['"y"', "null"]


def pc_run_end(values):
    return pa.array(values, pa.run_end_encoded(pa.int32(), pa.int64()))


def test_slices_of_maps_have_their_own_entries():
    rows = [[("a", 1)], [("b", None), ("c", 3)], None, [], [("d", 4)]]
    array = pa.array(rows, pa.map_(pa.string(), pa.int64()))
    for start in range(5):
        for n in range(6 - start):
            written = [json.loads(text) for text in json_strings(array.slice(start, n)).to_pylist()]
            kept = rows[start : start + n]
            assert written == [r if r is None else [{"key": k, "value": v} for k, v in r] for r in kept]


def test_special_characters_are_escaped_in_many_texts():
    values = [re.sub("x", '"', f"x{i}") if i % 3 else str(i) for i in range(1000)]
    array = pa.array(values).slice(7, 500)
    assert [json.loads(t) for t in json_strings(array).to_pylist()] == values[7:507]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_are_hours_minutes_and_seconds_whatever_their_unit(unit):
    seconds = [0, 5, -65, 4327, 86_400, 90_061, None]
    values = pa.array([None if n is None else datetime.timedelta(seconds=n) for n in seconds], pa.duration(unit))
    shown = ["0:00:00", "0:00:05", "-0:01:05", "1:12:07", "1d 0:00:00", "1d 1:01:01", None]
    assert plain_values(values).to_pylist() == shown
    assert to_csv(values).to_pylist() == ["PT0S", "PT5S", "-PT1M5S", "PT1H12M7S", "P1D", "P1DT1H1M1S", ""]
    assert plain_values(values[1:4]).to_pylist() == shown[1:4]


def test_fractions_and_the_least_durations_are_exact():
    least = pa.array([-(2**63), 2**63 - 1], pa.duration("us"))
    assert plain_values(least).to_pylist() == ["-106751991d 4:00:54.775808", "106751991d 4:00:54.775807"]
    assert to_csv(pa.array([1, -500_000_000], pa.duration("ns"))).to_pylist() == ["PT0.000000001S", "-PT0.5S"]
