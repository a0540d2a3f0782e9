"""Views of Arrow arrays of every type and layout have the values that Arrow shows, row by row."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cer_gpu.columnar import columns, dictionary_encoding
from cer_gpu.columnar.columns import NUMPY_TYPES, Block, kind_of
from cer_gpu.columnar.dictionary_encoding import DictionaryEncoder

D = Decimal
ROOT = Path(__file__).parents[2]
INDEX_TYPES = (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())
STRINGS = ["b", None, "", "long enough to lie outside of a view", "b", "ö", "\U0001f600", None, "a\0b"]


def ints(bits: int, signed: bool) -> list[int | None]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return [low, None, high, 0, 1, None, high // 2, low + 1, 7]


NUMBERS = [
    *((pa.from_numpy_dtype(f"int{b}"), ints(b, True)) for b in (8, 16, 32, 64)),
    *((pa.from_numpy_dtype(f"uint{b}"), ints(b, False)) for b in (8, 16, 32, 64)),
    *((t, [0.5, None, -0.0, float("inf"), -1.5, None, 0.0, 2.0]) for t in (pa.float16(), pa.float32(), pa.float64())),
    (pa.bool_(), [True, None, False, False, True, None, True, True, False, True]),
]
DECIMALS = [
    (pa.decimal32(9, 2), [D("1.25"), None, D("-9999999.99"), D(0), None, D("0.01")]),
    (pa.decimal64(18, 4), [D("1.25"), None, D("-99999999999999.9999"), D(0), None]),
    (pa.decimal128(18, 2), [D("1.25"), None, D("-9999999999999999.99"), D(0), None, D("9999999999999999.99")]),
    (pa.decimal128(5, -2), [D(100), None, D(-9999900), D(0)]),
    (pa.decimal256(18, 2), [D("1.25"), None, D("-9999999999999999.99"), D(0), None, D("9999999999999999.99")]),
]
RAW = {pa.int32(): (-(2**31), 2**31 - 1), pa.int64(): (-(2**63), 2**63 - 1)}
MOMENTS = [
    (pa.date32(), pa.int32()),
    (pa.time32("s"), pa.int32()),
    (pa.time32("ms"), pa.int32()),
    (pa.date64(), pa.int64()),
    (pa.time64("us"), pa.int64()),
    (pa.time64("ns"), pa.int64()),
    *((pa.timestamp(u), pa.int64()) for u in ("s", "ms", "us", "ns")),
    *((pa.timestamp(u, "Europe/Berlin"), pa.int64()) for u in ("s", "ns")),
    *((pa.duration(u), pa.int64()) for u in ("s", "ms", "us", "ns")),
]


def through_ipc(array: pa.Array) -> pa.Array:
    """Return the array as a part of larger, read-only memory."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"x": array})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pa.ipc.open_stream(sink.getvalue()) as reader:
        return reader.read_next_batch().column("x")


def layouts(array: pa.Array) -> list[pa.Array]:
    """Return the array and many slices of it, with bits that begin anywhere in a byte."""
    n = len(array)
    long = pa.concat_arrays([array] * 5)
    parts = [array.slice(a, b - a) for a, b in ((0, n), (1, n), (3, n - 1), (2, 2), (0, 0), (n, n))]
    parts += [long.slice(k, 2 * n) for k in (7, 8, 9, 13)]
    parts += [through_ipc(part) for part in parts]
    parts += [pa.nulls(11, array.type), pa.nulls(30, array.type).slice(9, 10), pa.array([], array.type)]
    without = pa.array([v for v in array.to_pylist() if v is not None], array.type)
    return [*parts, without, without.slice(1)]


def encoded(array: pa.Array) -> list[pa.Array]:
    """Return dictionary arrays of the same values: NULL in codes or dictionary, duplicate and unused values."""
    plain = array.dictionary_encode()
    n = len(plain.dictionary)
    twice = pa.concat_arrays([plain.dictionary, pa.nulls(1, array.type), plain.dictionary])
    codes = [None if c is None else c + (i % 2) * (n + 1) for i, c in enumerate(plain.indices.to_pylist())]
    null_in_values = [n if c is None and i % 2 else c for i, c in enumerate(codes)]
    made = [(codes, twice), (null_in_values, twice)]
    return [
        pa.DictionaryArray.from_arrays(pa.array(c, index), values)
        for (c, values), index in itertools.product(made, INDEX_TYPES)
    ]


def block_of(array: pa.Array) -> Block:
    return Block(pa.record_batch({"other": pa.nulls(len(array)), "x": array}))


def check_validity(block: Block, values: list) -> None:
    valid = block.valid("x")
    found = [True] * block.n_rows if valid is None else valid.tolist()
    assert found == [v is not None for v in values]


def check_numbers(array: pa.Array, values: list) -> None:
    block = block_of(array)
    check_validity(block, values)
    numbers = block.numbers("x")
    assert len(numbers) == len(values)
    assert [repr(x) for x, v in zip(numbers.tolist(), values, strict=True) if v is not None] == [
        repr(v) for v in values if v is not None
    ]


def check_strings(array: pa.Array, coders: dict[str, DictionaryEncoder] | None = None) -> None:
    values = array.to_pylist() if not pa.types.is_dictionary(array.type) else [s.as_py() for s in array]
    block = Block(pa.record_batch({"x": array}), coders)
    check_validity(block, values)
    coded = block.coded("x")
    dictionary = coded.values.to_pylist()
    assert len(coded.codes) == len(values)
    assert [dictionary[c] for c, v in zip(coded.codes, values, strict=True) if v is not None] == [
        v for v in values if v is not None
    ]
    assert block.strings("x").to_pylist() == values


@pytest.mark.parametrize(("data_type", "values"), NUMBERS, ids=str)
def test_numbers_of_any_type_and_layout_are_read(data_type, values):
    array = pa.array(values, data_type)
    for part in layouts(array):
        check_numbers(part, part.to_pylist())


@pytest.mark.parametrize(("data_type", "values"), NUMBERS, ids=str)
def test_numbers_in_dictionaries_are_decoded(data_type, values):
    for array in encoded(pa.array(values, data_type)):
        for part in (array, array.slice(3), array.slice(1, 4), array.slice(2, 0)):
            check_numbers(part, [s.as_py() for s in part])


@pytest.mark.parametrize(("data_type", "values"), DECIMALS, ids=str)
def test_decimals_of_at_most_18_digits_count_their_last_digit(data_type, values):
    for part in layouts(pa.array(values, data_type)):
        raw = [None if v is None else int(v.scaleb(data_type.scale)) for v in part.to_pylist()]
        check_numbers(part, raw)


@pytest.mark.parametrize(("data_type", "storage"), MOMENTS, ids=str)
def test_moments_count_their_unit(data_type, storage):
    low, high = RAW[storage]
    array = pa.array([0, None, high, 5, low, None, 1, -1, 86_400_000], storage)
    for part in layouts(array):
        if len(part):
            check_numbers(part.view(data_type), part.to_pylist())


def test_floats_become_float64_and_integers_keep_their_width():
    assert block_of(pa.array([1.5], pa.float16())).numbers("x").dtype == np.float64
    assert block_of(pa.array([1.5], pa.float32())).numbers("x").dtype == np.float64
    assert block_of(pa.array([1], pa.uint16())).numbers("x").dtype == np.uint16


def test_float64_is_read_in_place():
    array = pa.array([1.0, 2.0, 3.0]).slice(1)
    assert block_of(array).numbers("x").__array_interface__["data"][0] == array.buffers()[1].address + 8


@pytest.mark.parametrize("data_type", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_strings_of_any_layout_are_coded(data_type):
    coders: dict[str, DictionaryEncoder] = {}
    for part in layouts(pa.array(STRINGS, data_type)):
        check_strings(part)
        check_strings(part, coders)


@pytest.mark.parametrize("data_type", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("index", INDEX_TYPES, ids=str)
def test_strings_in_dictionaries_are_read(data_type, index):
    values = pa.array(["b", None, "unused", "a", "b", "", "ö" * 20], data_type)
    codes = pa.array([0, 1, None, 3, 4, 6, 5, 0, None, 6], index)
    array = pa.DictionaryArray.from_arrays(codes, values)
    for part in (array, array.slice(1), array.slice(3, 5), array.slice(4, 0), array.slice(8, 1)):
        check_strings(part)
    check_strings(through_ipc(array))


def test_a_code_of_a_null_row_may_lie_outside_of_the_dictionary():
    codes = pa.Array.from_buffers(
        pa.int8(), 3, [pa.py_buffer(bytes([0b101])), pa.py_buffer(np.array([0, 99, 1], np.int8))], 1
    )
    check_strings(pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b"]), safe=False))


@pytest.mark.parametrize("dictionary", [pa.array([], pa.string()), pa.array([None], pa.string())], ids=str)
def test_a_dictionary_may_have_no_value(dictionary):
    array = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), dictionary)
    assert block_of(array).valid("x").tolist() == [False, False]
    assert block_of(array).coded("x").codes.tolist() == [0, 0]


def test_every_row_of_the_null_type_is_null():
    block = block_of(pa.nulls(3))
    assert block.valid("x").tolist() == [False] * 3
    assert len(block.numbers("x")) == 3


def test_a_coder_forgets_when_it_has_too_many_values():
    coders: dict[str, DictionaryEncoder] = {}
    rng = random.Random(1)
    for k in range(5):
        texts = [f"{k}-{rng.randrange(30_000)}" for _ in range(30_000)]
        check_strings(pa.array(texts), coders)


@pytest.mark.parametrize("most", [1, dictionary_encoding._MAX_REUSED])
def test_codes_begin_anew_after_a_coder_was_cleared(monkeypatch, most):
    monkeypatch.setattr(dictionary_encoding, "_MAX_REUSED", most)
    coder = DictionaryEncoder(bounded=False)
    for k in range(3):
        texts = [f"{k} {i % 700}" for i in range(2_000)]
        codes, values = coder.encode(pa.array(texts))
        assert codes.tolist() == [i % 700 for i in range(2_000)]
        assert values.to_pylist() == texts[:700]
        coder.clear()
        assert coder.n_values == 0
        assert values.to_pylist() == texts[:700]


@pytest.mark.parametrize("n", [2_000, 60_000])
def test_texts_that_differ_in_one_byte_have_codes_of_their_own(n):
    """Strings of any length are read eight bytes at a time, and from a table of many ones ahead."""
    rng = random.Random(n)
    texts = []
    for _ in range(n):
        text = ["a"] * rng.randrange(40)
        for _ in range(rng.choice([0, 1, 1, 4])):
            if text:
                text[rng.randrange(len(text))] = rng.choice("abcdefgh")
        texts.append("".join(text))
    coder = DictionaryEncoder(bounded=False)
    codes = coder.number(pa.array(texts)).tolist()
    again = coder.number(pa.array(texts[::-1], pa.large_string())).tolist()
    numbers: dict[str, int] = {}
    assert codes == [numbers.setdefault(text, len(numbers)) for text in texts]
    assert again == codes[::-1]
    assert coder.values().to_pylist() == list(numbers)


@given(st.lists(st.none() | st.text(max_size=12), max_size=30), st.integers(0, 9), st.data())
@settings(deadline=None)
def test_random_strings_are_coded(texts, offset, data):
    array = pa.array(texts, pa.string()).slice(min(offset, len(texts)))
    coders: dict[str, DictionaryEncoder] = {}
    check_strings(array, coders)
    other = pa.array(data.draw(st.lists(st.none() | st.sampled_from([*texts, "new"]), max_size=20)), pa.large_string())
    check_strings(other, coders)


@given(st.lists(st.none() | st.booleans(), max_size=70), st.integers(0, 70), st.integers(0, 70))
@settings(deadline=None)
def test_random_bits_are_unpacked(bits, a, b):
    start, stop = sorted((min(a, len(bits)), min(b, len(bits))))
    part = pa.array(bits, pa.bool_()).slice(start, stop - start)
    check_numbers(part, bits[start:stop])


def test_each_type_has_its_kind():
    expected = {
        columns.INTEGER: [pa.int8(), pa.uint64(), pa.duration("s"), pa.dictionary(pa.int8(), pa.int16())],
        columns.FLOAT: [pa.float16(), pa.float64()],
        columns.DECIMAL: [pa.decimal32(5), pa.decimal128(20, 3), pa.decimal256(70, 3)],
        columns.STRING: [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
        columns.BOOLEAN: [pa.bool_()],
        columns.TEMPORAL: [pa.timestamp("s"), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns")],
        columns.NOTHING: [pa.null()],
        None: [pa.binary(), pa.list_(pa.int8()), pa.struct([]), pa.month_day_nano_interval(), pa.uuid()],
    }
    assert {t: kind_of(t) for ts in expected.values() for t in ts} == {t: k for k, ts in expected.items() for t in ts}


def test_moments_are_counted_from_1970_in_their_unit():
    """One moment in all units, worked out by hand."""
    noon = dt.datetime(2013, 1, 31, 12, tzinfo=dt.UTC)
    seconds = int(noon.timestamp())
    naive = noon.replace(tzinfo=None)
    for unit, factor in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        assert block_of(pa.array([naive], pa.timestamp(unit))).numbers("x")[0] == seconds * factor
        assert block_of(pa.array([noon], pa.timestamp(unit, "Asia/Tokyo"))).numbers("x")[0] == seconds * factor
    assert block_of(pa.array([naive.date()], pa.date32())).numbers("x")[0] == seconds // 86_400


@pytest.mark.parametrize("view", [pa.string_view(), pa.binary_view()])
def test_dictionaries_of_views_become_plain_at_any_depth(view):
    texts = ["a value too long for the view itself", None, "b"]
    values = pa.array(texts, pa.string()).cast(pa.binary() if view == pa.binary_view() else pa.string()).cast(view)
    codes = pa.DictionaryArray.from_arrays(pa.array([2, 0, 1, None, 0], pa.uint32()), values)
    struct = pa.StructArray.from_arrays([codes], ["k"], mask=pa.array([False, True, False, False, False]))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, None, 2, 5], pa.int32()), codes)
    large = pa.LargeListArray.from_arrays(pa.array([0, 2, 5]), struct)
    ends = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 4, 5, 9], pa.int32()), codes)
    for column in (codes, struct, lists, large, ends):
        for piece in (column, column.slice(1), column.slice(1, 2), column.slice(0, 0)):
            found = columns.plain_array(piece)
            found.validate(full=True)
            assert found.type == columns.plain_type(piece.type)
            assert found.to_pylist() == piece.to_pylist()
            rows = list(range(len(piece)))[::-1]
            assert columns.take_rows(piece, pa.array(rows, pa.int32())).to_pylist() == found.to_pylist()[::-1]


def test_the_types_of_numbers_are_known_without_pandas():
    asked = [path for path in (ROOT / "cer_gpu").rglob("*.py") if "to_pandas_dtype" in path.read_text(encoding="utf-8")]
    assert asked == []  # Arrow before 26 imports pandas for it
    for data_type, dtype in NUMPY_TYPES.items():
        assert pa.array(np.zeros(1, dtype)).type == data_type
