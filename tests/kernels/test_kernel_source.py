import pytest

from cer_gpu.backend.kernel_source import kernel_folder, kernel_names, read_kernel_source

FILES = sorted(path.name for path in kernel_folder().iterdir() if path.name.endswith((".cu", ".cuh")))


def test_the_folder_holds_the_kernels():
    assert kernel_folder().joinpath("common.cuh").is_file()
    assert kernel_names() == ["compaction.cu", "guard_sets.cu"]


@pytest.mark.parametrize("name", FILES)
def test_includes_are_inlined_once_with_line_marks(name):
    source = read_kernel_source(name)
    assert '#include "' not in source
    assert source.count("enum { CER_TILE = ") == 1
    original = kernel_folder().joinpath(name).read_text().splitlines()
    after = max((k for k, line in enumerate(original) if line.startswith('#include "')), default=-1) + 1
    _, mark, rest = source.rpartition(f'#line {after + 1} "kernels/{name}"\n')
    assert mark
    assert rest.splitlines() == original[after:]


def test_what_stands_before_is_not_inlined_again():
    source = read_kernel_source("query_words.cuh", without=["select.cuh"])
    assert "cer_query_words" in source
    assert "cer_words_of_rows(" not in source


def test_an_unknown_kernel_is_named_with_what_there_is():
    with pytest.raises(FileNotFoundError, match=r"no CUDA source 'nothing\.cu'.*compaction\.cu"):
        read_kernel_source("nothing.cu")
