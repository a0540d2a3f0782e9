"""Devices for the kernels: the CPU, by g++, with warps of one lane and of 32 lanes, and a GPU if there is one."""

import pytest
from host_device import Build, HostDevice, has_compiler

from cer_gpu.backend import cupy_backend
from cer_gpu.predicates import guards as predicates
from cer_gpu.predicates import placement

WARPS = pytest.mark.long("runs each kernel once more, with warps of 32 lanes")
ARCHITECTURES = ["one lane", pytest.param("32 lanes", marks=WARPS), "gpu"]


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    if not has_compiler():
        pytest.skip("g++ is not installed: it builds the kernels for the host")
    return Build(tmp_path_factory.mktemp("kernels"), "-fsanitize=undefined", "-fno-sanitize-recover=all")


@pytest.fixture
def use(monkeypatch):
    """Return a function that makes its argument the device of `device="cuda"`."""

    def use(device):
        monkeypatch.setattr(placement, "missing", lambda: None)
        monkeypatch.setattr(predicates, "open_device", lambda: device)
        return device

    return use


@pytest.fixture
def host(build, use):
    """Device of one lane."""
    return use(HostDevice(build))


@pytest.fixture(params=ARCHITECTURES)
def device(request, use):
    """Each device in turn."""
    if request.param == "gpu":
        if (why := cupy_backend.missing_cupy()) is not None:
            pytest.skip(f"no GPU: {why}")
        return use(cupy_backend.CupyDevice())
    return use(HostDevice(request.getfixturevalue("build"), 1 if request.param == "one lane" else 32))
