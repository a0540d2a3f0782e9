import pytest

from cer_gpu.backend.kernel_source import kernel_folder, kernel_names, read_kernel_source


def test_the_folder_holds_the_kernels():
    assert kernel_folder().joinpath("common.cuh").is_file()
    assert "predicate_bits" in kernel_names()


@pytest.mark.parametrize("name", kernel_names())
def test_includes_are_inlined_once_with_line_marks(name):
    source = read_kernel_source(name)
    assert '#include "' not in source
    assert source.count("enum cer_comparison {") == 1
    original = kernel_folder().joinpath(f"{name}.cu").read_text().splitlines()
    after = original.index('#include "common.cuh"') + 1
    _, mark, rest = source.partition(f'#line {after + 1} "kernels/{name}.cu"\n')
    assert mark
    assert rest.splitlines() == original[after:]


def test_an_unknown_kernel_is_named_with_what_there_is():
    with pytest.raises(FileNotFoundError, match=r"no CUDA source 'nothing\.cu'.*predicate_bits\.cu"):
        read_kernel_source("nothing")
