"""The device functions, built for the host, give what Python's integers and NumPy give."""

import ctypes
import math
import operator

import numpy as np
import pytest

from cer_gpu.backend.kernel_source import read_kernel_source

WRAPPERS = """
#define EACH(name, type, expression) \\
  extern "C" void name(const type* a, const type* b, cer_i64 n, type* out, bool* valid) { \\
    for (cer_i64 i = 0; i < n; ++i) { (void)b[i]; (void)valid[i]; out[i] = expression; } \\
  }
EACH(add_i64, cer_i64, cer_add_i64(a[i], b[i]))
EACH(sub_i64, cer_i64, cer_sub_i64(a[i], b[i]))
EACH(mul_i64, cer_i64, cer_mul_i64(a[i], b[i]))
EACH(neg_i64, cer_i64, cer_neg_i64(a[i]))
EACH(div_i64, cer_i64, cer_div_i64(a[i], b[i], valid + i))
EACH(mod_i64, cer_i64, cer_mod_i64(a[i], b[i], valid + i))
EACH(add_f64, double, cer_add_f64(a[i], b[i]))
EACH(sub_f64, double, cer_sub_f64(a[i], b[i]))
EACH(mul_f64, double, cer_mul_f64(a[i], b[i]))
EACH(neg_f64, double, cer_neg_f64(a[i]))
EACH(div_f64, double, cer_div_f64(a[i], b[i]))
EACH(mod_f64, double, cer_mod_f64(a[i], b[i]))
EACH(overflow, cer_i64, a[i] + b[i])
"""

MIN, MAX = -(2**63), 2**63 - 1
INTEGERS = [MIN, MIN + 1, -(2**53) - 1, -7, -3, -2, -1, 0, 1, 2, 3, 7, 2**53, 2**53 + 1, 2**62, MAX - 1, MAX]
FLOATS = [
    *(-math.inf, -1.7e308, -(2.0**63), -7.5, -3.0, -1.0, -5e-324, -0.0),
    *(math.nan, 0.0, 5e-324, 0.1, 1.0, 3.0, 7.5, 2.0**53, 2.0**63, 1.7e308, math.inf),
]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
NO_COMPARISON = len(COMPARISONS)


@pytest.fixture(scope="module")
def shim(build_on_host):
    return build_on_host(read_kernel_source("predicate_bits") + WRAPPERS)


@pytest.fixture(autouse=True)
def _no_undefined_behaviour(request, no_undefined_behaviour):
    yield
    if "overflow" not in request.node.name:
        no_undefined_behaviour()


def apply(shim, name, a, b):
    out, valid = np.empty_like(a), np.ones(len(a), np.bool_)
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (a, b, out, valid)]
    getattr(shim, name)(*pointers[:2], ctypes.c_longlong(len(a)), *pointers[2:])
    return out, valid


def pairs(values, dtype):
    a, b = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    return a.ravel(), b.ravel()


def wrapped(value):
    return (value - MIN) % 2**64 + MIN


def quotient(a, b):
    if b == 0:
        return None
    return 0 if (a, b) == (MIN, -1) else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a, b):
    return None if b == 0 else a - b * ((abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add_i64", lambda a, b: wrapped(a + b)),
        ("sub_i64", lambda a, b: wrapped(a - b)),
        ("mul_i64", lambda a, b: wrapped(a * b)),
        ("neg_i64", lambda a, _: wrapped(-a)),
        ("div_i64", quotient),
        ("mod_i64", remainder),
    ],
)
def test_integers(shim, name, expected):
    a, b = pairs(INTEGERS, np.int64)
    out, valid = apply(shim, name, a, b)
    got = [int(value) if ok else None for value, ok in zip(out, valid, strict=True)]
    assert got == [expected(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    assert (out[~valid] == 0).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add_f64", np.add),
        ("sub_f64", np.subtract),
        ("mul_f64", np.multiply),
        ("neg_f64", lambda a, _: -a),
        ("div_f64", np.divide),
        ("mod_f64", np.fmod),
    ],
)
def test_floats(shim, name, expected):
    a, b = pairs(FLOATS, np.float64)
    out, valid = apply(shim, name, a, b)
    with np.errstate(all="ignore"):
        want = expected(a, b)
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(np.signbit(out)[~np.isnan(out)], np.signbit(want)[~np.isnan(want)])
    assert valid.all()


def test_the_sanitizer_sees_an_overflow(shim, capfd):
    one = np.array([1])
    apply(shim, "overflow", np.array([MAX]), one)
    assert "signed integer overflow" in capfd.readouterr().err


def predicate_bits(shim, values, validity, bit_offset, literal, comparison, bit, words):
    """Launch the kernel for these types over all of `values`; words are changed in place."""
    ctype, suffix = {int: (ctypes.c_longlong, "i64"), float: (ctypes.c_double, "f64")}[type(literal)]
    column = "i64" if values.dtype == np.int64 else "f64"
    getattr(shim, f"cer_predicate_bits_{column}_{suffix}")(
        ctypes.c_void_p(values.ctypes.data),
        None if validity is None else ctypes.c_void_p(validity.ctypes.data),
        *(ctypes.c_longlong(bit_offset), ctypes.c_longlong(len(values)), ctype(literal)),
        *(ctypes.c_int(comparison), ctypes.c_int(bit), ctypes.c_void_p(words.ctypes.data)),
    )


@pytest.mark.parametrize("comparison", range(len(COMPARISONS)), ids=lambda c: COMPARISONS[c].__name__)
@pytest.mark.parametrize(
    ("values", "literals"),
    [
        (np.array(INTEGERS, np.int64), INTEGERS),
        (np.array(INTEGERS, np.int64), FLOATS),
        (np.array(FLOATS, np.float64), FLOATS),
    ],
    ids=["int_int", "int_float", "float_float"],
)
def test_comparisons(shim, values, literals, comparison):
    for literal in literals:
        words = np.zeros(len(values), np.uint64)
        predicate_bits(shim, values, None, 0, literal, comparison, 0, words)
        operand = values if isinstance(literal, int) else values.astype(np.float64)
        np.testing.assert_array_equal(words == 1, COMPARISONS[comparison](operand, literal))


@pytest.mark.parametrize("bit", [0, 31, 32, 63])
@pytest.mark.parametrize("bit_offset", [0, 1, 7, 8, 13])
def test_nulls_set_no_bit_and_other_bits_stay(shim, bit, bit_offset):
    rng = np.random.default_rng(bit_offset)
    values = rng.integers(-5, 5, 1000)
    valid = rng.random(1000) < 0.7
    before = rng.integers(0, 2**64, 1000, np.uint64)
    # the bits before the first row are ones, so that a wrong offset shows
    validity = np.packbits(np.concatenate([np.ones(bit_offset, np.bool_), valid]), bitorder="little")
    words = before.copy()
    predicate_bits(shim, values, validity, bit_offset, 0, COMPARISONS.index(operator.gt), bit, words)
    expected = before | (((values > 0) & valid).astype(np.uint64) << np.uint64(bit))
    np.testing.assert_array_equal(words, expected)


def test_no_rows_and_no_such_comparison(shim):
    predicate_bits(shim, np.empty(0, np.int64), None, 0, 1, 0, 0, np.empty(0, np.uint64))
    words = np.zeros(3, np.uint64)
    predicate_bits(shim, np.arange(3), None, 0, 1, NO_COMPARISON, 0, words)
    assert not words.any()
