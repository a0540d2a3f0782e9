"""The device functions, built for the host, give what Python's integers and NumPy give."""

import ctypes
import math
import operator

import numpy as np
import pytest
from host_device import HostDevice

from cer_gpu.backend.compaction import UNSEEN, select_relevant
from cer_gpu.backend.kernel_source import read_kernel_source
from cer_gpu.predicates.cuda.selection import GROUP_TILES, TILE_ROWS

WRAPPERS = """
#define EACH(name, A, B, R, expression) \\
  extern "C" void name(const A* a, const B* b, cer_i64 n, R* out) { \\
    for (cer_i64 i = 0; i < n; ++i) { (void)b[i]; out[i] = expression; } \\
  }
#define ALL_OF(name, A, B) \\
  EACH(eq_##name, A, B, bool, cer_eq(a[i], b[i])) EACH(ne_##name, A, B, bool, cer_ne(a[i], b[i])) \\
  EACH(lt_##name, A, B, bool, cer_lt(a[i], b[i])) EACH(le_##name, A, B, bool, cer_le(a[i], b[i])) \\
  EACH(gt_##name, A, B, bool, cer_gt(a[i], b[i])) EACH(ge_##name, A, B, bool, cer_ge(a[i], b[i]))
#define OF_TWO(name, T) \\
  EACH(add_##name, T, T, T, cer_add(a[i], b[i])) EACH(sub_##name, T, T, T, cer_sub(a[i], b[i])) \\
  EACH(mul_##name, T, T, T, cer_mul(a[i], b[i])) EACH(div_##name, T, T, T, cer_div(a[i], b[i])) \\
  EACH(mod_##name, T, T, T, cer_mod(a[i], b[i])) EACH(neg_##name, T, T, T, cer_neg(a[i]))
ALL_OF(i8_i8, cer_i64, cer_i64)
ALL_OF(u8_u8, cer_u64, cer_u64)
ALL_OF(f8_f8, cer_f64, cer_f64)
#define WIDE(x) cer_widened(x, 1000000000000000000LL)
EACH(eq_wide, cer_i64, cer_u64, bool, cer_eq(WIDE(a[i]), WIDE(b[i])))
EACH(ne_wide, cer_i64, cer_u64, bool, cer_ne(WIDE(a[i]), WIDE(b[i])))
EACH(lt_wide, cer_i64, cer_u64, bool, cer_lt(WIDE(a[i]), WIDE(b[i])))
EACH(le_wide, cer_i64, cer_u64, bool, cer_le(WIDE(a[i]), WIDE(b[i])))
EACH(gt_wide, cer_i64, cer_u64, bool, cer_gt(WIDE(a[i]), WIDE(b[i])))
EACH(ge_wide, cer_i64, cer_u64, bool, cer_ge(WIDE(a[i]), WIDE(b[i])))
#define ALL_OF_MIXED(name, T) \\
  EACH(eq_f8_##name, cer_f64, T, bool, cer_eq(a[i], cer_widened(b[i], 1))) \\
  EACH(ne_f8_##name, cer_f64, T, bool, cer_ne(a[i], cer_widened(b[i], 1))) \\
  EACH(lt_f8_##name, cer_f64, T, bool, cer_lt(a[i], cer_widened(b[i], 1))) \\
  EACH(le_f8_##name, cer_f64, T, bool, cer_le(a[i], cer_widened(b[i], 1))) \\
  EACH(gt_f8_##name, cer_f64, T, bool, cer_gt(a[i], cer_widened(b[i], 1))) \\
  EACH(ge_f8_##name, cer_f64, T, bool, cer_ge(a[i], cer_widened(b[i], 1)))
ALL_OF_MIXED(i8, cer_i64)
ALL_OF_MIXED(u8, cer_u64)
extern "C" void difference(const cer_i64* a, const cer_i64* b, cer_i64 factor, cer_i64 n, cer_i64* high, cer_u64* low) {
  for (cer_i64 i = 0; i < n; ++i) {
    const cer_wide found = cer_sub(cer_widened(a[i], factor), cer_widened(b[i], 1));
    high[i] = found.high, low[i] = found.low;
  }
}
OF_TWO(i8, cer_i64)
OF_TWO(f8, cer_f64)
EACH(float_i8, cer_i64, cer_i64, cer_f64, cer_to_f64(a[i]))
EACH(float_u8, cer_u64, cer_u64, cer_f64, cer_to_f64(a[i]))
EACH(abs_i8, cer_i64, cer_i64, cer_i64, cer_abs(a[i]))
EACH(abs_f8, cer_f64, cer_f64, cer_f64, cer_abs(a[i]))
EACH(int_u8, cer_u64, cer_u64, cer_i64, static_cast<cer_i64>(a[i]))
EACH(bits, cer_u64, cer_u64, cer_f64, cer_f64_of_bits(a[i]))
EACH(overflow, cer_i64, cer_i64, cer_i64, a[i] + b[i])
extern "C" void valid(cer_u64 bits, cer_i64 first, cer_i64 n, bool* out) {
  for (cer_i64 i = 0; i < n; ++i) out[i] = cer_is_valid(bits, first, i);
}
extern "C" void bit(cer_u64 bits, cer_i64 first, cer_i64 n, bool* out) {
  for (cer_i64 i = 0; i < n; ++i) out[i] = cer_bit(bits, first + i);
}
EACH(entry, cer_u64, cer_u64, cer_i64, cer_entry(a[i], b[i], 7))
extern "C" void by_table(const cer_u16* words, cer_i64 n, const cer_i32* values, cer_i32* out) {
  for (cer_i64 i = 0; i < n; ++i) out[i] = cer_symbol(words + i, 1, nullptr, values, 0);
}
extern "C" void by_hash(const cer_u64* words, cer_i64 n, cer_i32 n_parts, const cer_u64* keys, const cer_i32* values,
                        cer_u64 mask, cer_i32* out) {
  for (cer_i64 i = 0; i < n; ++i) out[i] = cer_symbol(words + i * n_parts, n_parts, keys, values, mask);
}
"""

MIN, MAX = -(2**63), 2**63 - 1
INTEGERS = [MIN, MIN + 1, -(2**53) - 1, -7, -3, -2, -1, 0, 1, 2, 3, 7, 2**53, 2**53 + 1, 2**62, MAX - 1, MAX]
FLOATS = [
    *(-math.inf, -1.7e308, -(2.0**63), -7.5, -3.0, -1.0, -5e-324, -0.0),
    *(math.nan, 0.0, 5e-324, 0.1, 1.0, 3.0, 7.5, 2.0**53, 2.0**63, 1.7e308, math.inf),
]
NATURALS = [0, 1, 2, 3, 2**53, 2**53 + 1, 2**62, MAX - 1, MAX, 2**63, 2**63 + 1025, 2**64 - 1]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.fixture(scope="module")
def shim(build_on_host):
    return build_on_host(read_kernel_source("select.cuh") + WRAPPERS)


@pytest.fixture(autouse=True)
def _no_undefined_behaviour(request, no_undefined_behaviour):
    yield
    if "overflow" not in request.node.name:
        no_undefined_behaviour()


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


def apply(shim, name, a, b, dtype):
    out = np.empty(len(a), dtype)
    getattr(shim, name)(pointer(a), pointer(b), ctypes.c_longlong(len(a)), pointer(out))
    return out


def pairs(left, right):
    a, b = np.meshgrid(left, right)
    return a.ravel(), b.ravel()


VALUES = {
    "i8": np.array(INTEGERS, np.int64),
    "u8": np.array(NATURALS, np.uint64),
    "f8": np.array(FLOATS, np.float64),
}


def wrapped(value):
    return (value - MIN) % 2**64 + MIN


def quotient(a, b):
    if b == 0:
        return 0
    if (a, b) == (MIN, -1):
        return MIN  # no operands of a query: they are wide
    return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", lambda a, b: wrapped(a + b)),
        ("sub", lambda a, b: wrapped(a - b)),
        ("mul", lambda a, b: wrapped(a * b)),
        ("neg", lambda a, _: wrapped(-a)),
        ("div", quotient),
        ("mod", lambda a, b: 0 if b in (0, -1) else a - b * quotient(a, b)),
    ],
)
def test_integers(shim, name, expected):
    a, b = pairs(VALUES["i8"], VALUES["i8"])
    assert apply(shim, f"{name}_i8", a, b, np.int64).tolist() == [
        expected(int(x), int(y)) for x, y in zip(a, b, strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", np.add),
        ("sub", np.subtract),
        ("mul", np.multiply),
        ("neg", lambda a, _: -a),
        ("div", np.divide),
        ("mod", np.fmod),
    ],
)
def test_floats(shim, name, expected):
    a, b = pairs(VALUES["f8"], VALUES["f8"])
    out = apply(shim, f"{name}_f8", a, b, np.float64)
    with np.errstate(all="ignore"):
        want = expected(a, b)
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(np.signbit(out)[~np.isnan(out)], np.signbit(want)[~np.isnan(want)])


def test_the_sanitizer_sees_an_overflow(shim, capfd):
    apply(shim, "overflow", np.array([MAX]), np.array([1]), np.int64)
    assert "signed integer overflow" in capfd.readouterr().err


@pytest.mark.parametrize("comparison", COMPARISONS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("types", ["i8_i8", "u8_u8", "f8_f8", "f8_i8", "f8_u8", "wide"])
def test_comparisons(shim, types, comparison):
    left, right = ("i8", "u8") if types == "wide" else types.split("_")
    a, b = pairs(VALUES[left], VALUES[right])
    exact = [comparison(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert apply(shim, f"{comparison.__name__}_{types}", a, b, np.bool_).tolist() == exact


@pytest.mark.parametrize("factor", [1, 1000, 86_400 * 10**9, 10**18])
def test_differences_of_wide_integers(shim, factor):
    a, b = pairs(VALUES["i8"], VALUES["i8"])
    high, low = np.empty(len(a), np.int64), np.empty(len(a), np.uint64)
    sizes = ctypes.c_longlong(factor), ctypes.c_longlong(len(a))
    shim.difference(pointer(a), pointer(b), *sizes, pointer(high), pointer(low))
    found = [(above << 64) + below for above, below in zip(high.tolist(), low.tolist(), strict=True)]
    assert found == [x * factor - y for x, y in zip(a.tolist(), b.tolist(), strict=True)]


def test_conversions(shim):
    integers, naturals, floats = VALUES["i8"], VALUES["u8"], VALUES["f8"]
    assert apply(shim, "abs_i8", integers, integers, np.int64).tolist() == [wrapped(abs(x)) for x in INTEGERS]
    np.testing.assert_array_equal(apply(shim, "abs_f8", floats, floats, np.float64), np.abs(floats))
    assert apply(shim, "float_i8", integers, integers, np.float64).tolist() == [float(x) for x in INTEGERS]
    assert apply(shim, "float_u8", naturals, naturals, np.float64).tolist() == [float(x) for x in NATURALS]
    assert apply(shim, "int_u8", naturals, naturals, np.int64).tolist() == [wrapped(x) for x in NATURALS]
    bits = floats.view(np.uint64)
    np.testing.assert_array_equal(apply(shim, "bits", bits, bits, np.float64).view(np.uint64), bits)


@pytest.mark.parametrize("first", [0, 1, 7, 8, 13])
def test_packed_bits_and_validity(shim, first):
    bits = np.random.default_rng(first).random(1000) < 0.7
    # the bits before the first row are ones, so that a wrong offset shows
    packed = np.packbits(np.concatenate([np.ones(first, np.bool_), bits]), bitorder="little")
    for name in ("valid", "bit"):
        out = np.empty(1000, np.bool_)
        getattr(shim, name)(pointer(packed), ctypes.c_longlong(first), ctypes.c_longlong(1000), pointer(out))
        np.testing.assert_array_equal(out, bits)


def test_where_there_is_no_bitmap_no_row_is_null(shim):
    out = np.zeros(9, np.bool_)
    shim.valid(ctypes.c_void_p(0), ctypes.c_longlong(3), ctypes.c_longlong(9), pointer(out))
    assert out.all()


def test_entries_of_tables(shim):
    codes = np.array([0, 6, 7, 8, 2**31, 2**64 - 1], np.uint64)
    a, valid = pairs(codes, np.array([0, 1], np.uint64))
    expected = [min(code, 7) if known else 7 for code, known in zip(a.tolist(), valid.tolist(), strict=True)]
    assert apply(shim, "entry", a, valid, np.int64).tolist() == expected


def test_symbols_by_table(shim):
    rng = np.random.default_rng(0)
    values, words = rng.integers(-1, 100, 1 << 16, np.int32), rng.integers(0, 1 << 16, 5000, np.uint16)
    out = np.empty(5000, np.int32)
    shim.by_table(pointer(words), ctypes.c_longlong(5000), pointer(values), pointer(out))
    np.testing.assert_array_equal(out, values[words])


@pytest.mark.parametrize("n_parts", [1, 2, 3])
def test_symbols_by_hash(shim, n_parts):
    rng = np.random.default_rng(n_parts)
    known = np.unique(rng.integers(0, 5, (60, n_parts)).astype(np.uint64) << np.uint64(60), axis=0)
    keys, values = np.zeros((128, n_parts), np.uint64), np.full(128, UNSEEN, np.int32)
    nothing = np.empty(1, np.int32)
    for i in range(0, len(known), 2):
        _, _, slot = select_relevant(known, keys, values, i, nothing, nothing, 0)
        keys[slot], values[slot] = known[i], i
    words = known[rng.integers(0, len(known), 2000)]
    out = np.empty(2000, np.int32)
    numbers = [ctypes.c_longlong(2000), ctypes.c_int(n_parts), pointer(keys), pointer(values), ctypes.c_ulonglong(127)]
    shim.by_hash(pointer(words), *numbers, pointer(out))
    number = {tuple(word): i if i % 2 == 0 else UNSEEN for i, word in enumerate(known.tolist())}
    assert out.tolist() == [number[tuple(word)] for word in words.tolist()]


@pytest.mark.parametrize("lanes", [1, 32])
@pytest.mark.parametrize("n_tiles", [1, 31, 256, 257, 1500, 9000])
def test_compaction(build_on_host, lanes, n_tiles):
    names = ["cer_group_tiles", "cer_sum_groups", "cer_pack_tiles"]
    kernels = HostDevice(build_on_host, lanes).compile(read_kernel_source("compaction.cu"), names)
    rng = np.random.default_rng(n_tiles)
    counts = (rng.integers(0, TILE_ROWS + 1, n_tiles) * (rng.random(n_tiles) < 0.7)).astype(np.int32)
    n_rows, n = n_tiles * TILE_ROWS, int(counts.sum())
    symbols, rows = rng.integers(1, 9, n_rows, np.int32), np.arange(n_rows, dtype=np.int32)
    offsets, totals = np.empty(n_tiles, np.int32), np.empty(-(-n_tiles // GROUP_TILES) + 1, np.uint64)
    packed = np.full((2, n), -1, np.int32)
    at = [array.ctypes.data for array in (symbols, rows, counts, offsets, totals)]
    kernels["cer_group_tiles"](3, at[2], n_tiles, at[3], at[4])
    of_groups = np.add.reduceat(counts, np.arange(0, n_tiles, GROUP_TILES))
    np.testing.assert_array_equal(totals[:-1], of_groups)
    kernels["cer_sum_groups"](3, at[4], len(totals) - 1)
    np.testing.assert_array_equal(totals, [0, *np.cumsum(of_groups)])
    kernels["cer_pack_tiles"](5, *at, n_tiles, packed[0].ctypes.data, packed[1].ctypes.data)
    kept = (np.arange(TILE_ROWS) < counts[:, None]).ravel()
    np.testing.assert_array_equal(packed, [symbols[kept], rows[kept]])
