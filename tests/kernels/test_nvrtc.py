"""Every kernel compiles for every generation of GPUs, without a warning."""

import random
import re

import gpu_machine
import pytest
from programs import random_program, random_sides
from sizes import scaled, seeds

from cer_gpu.backend.kernel_source import kernel_folder, kernel_names, read_kernel_source
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.operators import FUNCTIONS, MIXED, OPERATORS
from cer_gpu.predicates.cuda.selection import GROUP_TILES, TILE_ROWS, select_source_of, sides_source_of, struct_of

ARCHITECTURES = ["sm_75", "sm_90", "sm_100"]
ADDED_BY_CUPY = ("-ftz=true", "--device-as-default-execution-space")
N_PROGRAMS = scaled(10, most=200)

# a caller of every device function: nothing goes uncompiled because no program uses it
ALL_FUNCTIONS = """
template <typename A, typename B>
CER_DEVICE bool cer_test_comparisons(A a, B b) {
  return cer_eq(a, b) && cer_ne(a, b) && cer_lt(a, b) && cer_le(a, b) && cer_gt(a, b) && cer_ge(a, b);
}
template <typename T>
CER_DEVICE T cer_test_arithmetic(T a, T b) {
  return cer_add(cer_sub(cer_mul(a, b), cer_neg(b)), cer_div(cer_mod(cer_abs(a), b), b));
}
CER_KERNEL cer_test_all(cer_i64* a, cer_u64* b, double* x, bool* out) {
  const cer_i64 i = CER_WARP + CER_LANE;
  a[i] = cer_test_arithmetic(a[i], static_cast<cer_i64>(b[i]));
  x[i] = cer_test_arithmetic(x[i], cer_to_f64(b[i]) + cer_to_f64(a[i]) + cer_f64_of_bits(b[i]));
  const cer_wide wide = cer_sub(cer_widened(a[i], 10), cer_widened(b[i], 1)), other = cer_wide_of(b[i], b[0]);
  out[i] = cer_test_comparisons(a[i], a[0]) && cer_test_comparisons(b[i], b[0]) && cer_test_comparisons(x[i], x[0]) &&
           cer_test_comparisons(wide, other) && cer_test_comparisons(x[i], wide) &&
           cer_is_valid(b[i], 0, i) && cer_bit(b[i], cer_entry(b[i], out[i], 3));
}
"""


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", kernel_names())
def test_kernels_compile(nvrtc, name, arch):
    cubin, log = nvrtc.compile(read_kernel_source(name), arch)
    assert log == ""
    assert cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_device_functions_compile(nvrtc, arch):
    cubin, log = nvrtc.compile(read_kernel_source("select.cuh") + ALL_FUNCTIONS, arch)
    assert log == ""
    assert cubin.startswith(b"\x7fELF")


def every_operator():
    """Return a program with each record of the operators, on operands of each of its types."""
    columns = {dtype: [t.Column(2 * k + i, dtype) for i in range(2)] for k, dtype in enumerate((t.I8, t.U8, t.F8))}
    operands = {
        **columns,
        t.WIDE: [t.ToWide(columns[t.I8][0], 10), t.ToWide(columns[t.U8][0])],
        MIXED: [columns[t.F8][0], t.ToWide(columns[t.I8][1])],
    }
    tests = []
    for record in (*OPERATORS.values(), *FUNCTIONS.values()):
        for of in record.of:
            x, y = operands[of]
            if record.symbol in t.COMPARISONS:
                tests += [t.Compare(record.symbol, x, y, negated) for negated in (False, True)]
            else:
                n = 1 if record in FUNCTIONS.values() else record.n_operands
                tests.append(t.Compare("=", t.Apply(record.symbol, (x, y)[:n]), y))
    return t.GuardProgram(len(tests), None, None, tuple(enumerate(tests)))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_operator_of_the_table_compiles(nvrtc, arch):
    source = select_source_of(every_operator())
    assert all(f"cer_{name}(" in source for name in ("eq", "ne", "lt", "le", "gt", "ge", "mod", "abs", "widened"))
    cubin, log = nvrtc.compile(source, arch)
    assert log == ""
    assert cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_of_random_programs_compile(nvrtc, arch):
    """All programs, each for one of the architectures; some of every width for all of them."""
    for number, seed in enumerate(seeds(N_PROGRAMS)):
        if number % len(ARCHITECTURES) == ARCHITECTURES.index(arch) or number < 4:
            cubin, log = nvrtc.compile(select_source_of(random_program(random.Random(seed))), arch)
            assert log == "", struct_of(random_program(random.Random(seed)))
            assert cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_of_random_sides_compile(nvrtc, arch):
    for seed in seeds(scaled(2, most=50)):
        source = sides_source_of(random_sides(random.Random(seed)))
        cubin, log = nvrtc.compile(source, arch)
        assert log == "", source
        assert b".text.cer_query_sides\0" in cubin


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_of_the_benchmark_compile(nvrtc, arch, monkeypatch):
    source = read_kernel_source("common.cuh") + gpu_machine.benchmark(monkeypatch).KERNELS
    cubin, log = nvrtc.compile(source, arch)
    assert log == ""
    for name in ("cer_copy_pairs", "cer_read_pairs"):
        assert f".text.{name}\0".encode() in cubin


def test_the_entry_points_have_plain_names(nvrtc):
    cubin, _ = nvrtc.compile(select_source_of(random_program(random.Random(0))), "sm_90")
    for name in ("cer_query_words", "cer_query_select"):
        assert f".text.{name}\0".encode() in cubin


def test_subnormal_float32_are_kept_under_the_options_that_cupy_adds(nvrtc):
    above_0 = t.Compare(">", t.Column(0, "f4"), t.Constant(0, t.F8), negated=False)
    source = select_source_of(t.GuardProgram(1, None, None, ((0, above_0),)))
    ptx, log = nvrtc.compile(source, "compute_90", *ADDED_BY_CUPY)
    assert log == ""
    assert b"cvt.f64.f32" in ptx
    assert b".ftz" not in ptx


def test_a_broken_source_fails_and_the_message_names_the_file(nvrtc):
    broken = read_kernel_source("select.cuh").replace("return a * b;", "return oops;")
    broken = broken.replace("__dmul_rn(a, b)", "__dmul_rn(a, oops)")
    cubin, log = nvrtc.compile(broken, "sm_90")
    assert cubin == b""
    lines = kernel_folder().joinpath("numbers.cuh").read_text().splitlines()
    (line,) = (k for k, text in enumerate(lines, start=1) if "__dmul_rn(a, b)" in text)
    assert f'kernels/numbers.cuh({line}): error: identifier "oops" is undefined' in log


def test_host_and_kernels_agree_on_sizes():
    source = read_kernel_source("compaction.cu")
    assert int(re.search(r"CER_TILE = (\d+)", source)[1]) == TILE_ROWS
    assert int(re.search(r"CER_GROUP = (\d+)", source)[1]) == GROUP_TILES
