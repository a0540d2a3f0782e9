"""Sizes of memory, and the memory that a process can have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cer_gpu
from cer_gpu.columnar import memory_limit
from cer_gpu.columnar.memory_limit import MemoryLimit, machine_memory, shown_size, size_in_bytes

SIZES = {
    "500MB": 500_000_000,
    "2GiB": 2 << 30,
    "1.5 kib": 1536,
    " 7b ": 7,
    "1TB": 10**12,
    12345: 12345,
    "0.5GB": 5 * 10**8,
}


@pytest.mark.parametrize("size", SIZES)
def test_sizes_are_texts_or_bytes(size: str | int) -> None:
    assert size_in_bytes(size) == SIZES[size]


@pytest.mark.parametrize("size", ["", "2", "GB", "-1GB", "2XB", "0MB", "0.0001b", "1e3MB", 0, -5, 2.5, True, "٢GB"])
def test_what_is_no_size_is_refused(size: object) -> None:
    expected = f"max_memory must be a size such as '2GiB' or '500MB', or a number of bytes, got {size!r}"
    with pytest.raises(cer_gpu.OptionError) as error:
        cer_gpu.EvaluationOptions(max_memory=size)  # type: ignore[arg-type]
    assert str(error.value) == expected


@pytest.mark.parametrize(
    ("n", "shown"), [(5, "5 bytes"), (50_000_000, "47.7 MiB"), (2 << 30, "2.0 GiB"), (3 << 50, "3072.0 TiB")]
)
def test_sizes_are_shown(n: int, shown: str) -> None:
    assert shown_size(n) == shown


@pytest.mark.parametrize("version", [1, 2])
def test_the_least_limit_of_the_groups_around_a_process_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    root, name = (tmp_path, "memory.max") if version == 2 else (tmp_path / "memory", "memory.limit_in_bytes")
    inner = root / "a" / "b"
    inner.mkdir(parents=True)
    (inner / name).write_text("max\n" if version == 2 else f"{2**63 - 4096}\n")
    (root / "a" / name).write_text("7000000\n")
    (root / name).write_text("9000000\n")
    own = tmp_path / "own"
    own.write_text("0::/a/b\n" if version == 2 else "5:cpu,memory:/a/b\n4:cpuset:/x\n0::/\n")
    monkeypatch.setattr(memory_limit, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory_limit, "_OWN_CGROUPS", own)
    assert machine_memory() == 7_000_000
    assert MemoryLimit().n_bytes == 3_500_000
    assert MemoryLimit("1GB").n_bytes == 10**9


@pytest.mark.skipif(sys.platform != "linux", reason="other systems need not tell their memory")
def test_a_limit_of_the_address_space_is_one_of_the_memory() -> None:
    code = (
        "import resource\nfrom cer_gpu.columnar.memory_limit import MemoryLimit\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 31, -1))\nprint(MemoryLimit().n_bytes)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) <= 3 << 30


def test_where_the_system_tells_nothing_there_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "machine_memory", lambda: None)
    assert MemoryLimit().n_bytes is None
    with MemoryLimit().reserve(1 << 60, lambda: "nothing needs"):
        pass


def test_memory_that_the_system_refuses_is_the_same_error() -> None:
    with pytest.raises(cer_gpu.OutOfMemoryError) as error, MemoryLimit().reserve(1, lambda: "all of them need"):
        raise MemoryError
    assert str(error.value).splitlines()[0] == "all of them need more memory than is left"
