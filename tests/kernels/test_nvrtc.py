"""Every kernel compiles for every generation of GPUs, without a warning."""

import pytest

from cer_gpu.backend.kernel_source import kernel_names, read_kernel_source

# one caller of every device function: nothing in the header goes uncompiled because no kernel uses it yet
ALL_OF_COMMON = """
CER_KERNEL cer_test_all(cer_i64* a, double* x, bool* valid) {
  const cer_i64 i = CER_FIRST_ROW, b = a[i];
  a[i] = cer_neg_i64(cer_add_i64(b, cer_sub_i64(b, cer_mul_i64(b, 3))));
  a[i] = cer_mod_i64(a[i], cer_div_i64(a[i], b, valid), valid);
  x[i] = cer_neg_f64(cer_add_f64(x[i], cer_sub_f64(x[i], cer_mul_f64(x[i], 3.0))));
  x[i] = cer_mod_f64(x[i], cer_div_f64(x[i], cer_to_f64(b)));
  valid[i] = cer_is_valid(nullptr, 0, i) && cer_compare(CER_GE, x[i], 0.5) && cer_compare(CER_LT, a[i], b);
}
"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
@pytest.mark.parametrize("name", kernel_names())
def test_kernels_compile(nvrtc, name, arch):
    source = read_kernel_source(name)
    if name == "predicate_bits":
        source += ALL_OF_COMMON
    cubin, log = nvrtc.compile(source, arch)
    assert log == ""
    assert cubin.startswith(b"\x7fELF")


def test_the_entry_points_have_plain_names(nvrtc):
    cubin, _ = nvrtc.compile(read_kernel_source("predicate_bits"), "sm_90")
    for types in ("i64_i64", "i64_f64", "f64_f64"):
        assert f".text.cer_predicate_bits_{types}\0".encode() in cubin


def test_a_broken_source_fails_and_the_message_names_the_file(nvrtc):
    broken = read_kernel_source("predicate_bits").replace("return a <= b;", "return a <= oops;")
    cubin, log = nvrtc.compile(broken, "sm_90")
    assert cubin == b""
    line = broken[: broken.index("oops")].count("\n")  # the mark of common.cuh is the line before its first
    first = broken[: broken.index('#line 1 "kernels/common.cuh"')].count("\n")
    assert f'kernels/common.cuh({line - first}): error: identifier "oops" is undefined' in log
