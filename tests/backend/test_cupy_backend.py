"""The calls to CuPy: against a stand-in with its checks of arguments; and its own names, where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from host_device import has_compiler

import cer_gpu
from cer_gpu.backend import cupy_backend
from cer_gpu.backend.device import OutOfDeviceMemory
from cer_gpu.predicates import guards as predicates
from cer_gpu.predicates import placement

STAND_IN = Path(__file__).parent.parent / "stand_ins" / "cupy.py"
NAMES = [
    *("__version__", "from_dlpack", "RawModule", "cuda.alloc", "cuda.alloc_pinned_memory", "cuda.Device"),
    *("cuda.Stream", "cuda.memory.OutOfMemoryError", "cuda.nvrtc.getVersion", "cuda.set_allocator"),
    *("cuda.set_pinned_memory_allocator", "cuda.runtime.CUDARuntimeError", "cuda.runtime.driverGetVersion"),
    *("cuda.runtime.getDeviceCount", "cuda.runtime.getDeviceProperties", "cuda.runtime.memcpyAsync"),
    *("cuda.runtime.memcpyHostToDevice", "cuda.runtime.memcpyDeviceToHost", "cuda.runtime.runtimeGetVersion"),
]


@pytest.fixture
def cupy(monkeypatch):
    """The stand-in, as the module that `import cupy` finds."""
    spec = importlib.util.spec_from_file_location("cupy", STAND_IN)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "cupy", module)
    spec.loader.exec_module(module)
    return module


def test_a_query_by_a_stand_in_for_cupy(cupy, monkeypatch):
    if not has_compiler():
        pytest.skip("g++ is not installed: it builds the kernels for the host")
    monkeypatch.setattr(placement, "missing", lambda: None)
    device = cupy_backend.CupyDevice()
    monkeypatch.setattr(predicates, "open_device", lambda: device)
    rng = np.random.default_rng(0)
    events = pa.table({"type": pa.array(rng.choice(["A", "B", "C"], 3000)).dictionary_encode(), "x": rng.random(3000)})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[x > 0.5] WITHIN 10 EVENTS")
    assert query.evaluate(events, device="cuda").equals(query.evaluate(events, device="cpu"))
    cupy.device.n_free = 100
    with pytest.raises(cer_gpu.DeviceError, match="Stand-in GPU has no memory left"):
        query.evaluate(events, device="cuda")


def test_no_room_for_pinned_memory_is_told_as_no_room_on_the_device(cupy):
    device = cupy_backend.CupyDevice()
    assert device.pinned(1000).nbytes == 1000
    cupy.most_pinned = 999
    with pytest.raises(OutOfDeviceMemory, match="1,000 bytes of pinned memory"):
        device.pinned(1000)


def test_addresses_may_be_integers_of_numpy(cupy):
    device = cupy_backend.CupyDevice()
    queue, memory, there, back = device.queue(), device.allocate(8), device.pinned(8), device.pinned(8)
    there[:] = range(8)
    queue.write(np.uint64(memory.address), there)
    queue.read(back, np.int64(memory.address))
    queue.wait()
    assert back.tolist() == list(range(8))


@pytest.mark.parametrize(
    ("compiler", "headers", "what"),
    [(True, "/headers", None), (False, "/headers", "the compiler of CUDA"), (True, None, "the headers of CUDA")],
)
def test_what_cupy_lacks_to_compile_is_named(cupy, compiler, headers, what, monkeypatch):
    def version():
        if not compiler:
            raise RuntimeError("no libnvrtc.so.13")
        return 13, 0

    monkeypatch.setattr(cupy_backend.ctypes, "CDLL", lambda _: None)
    monkeypatch.setattr(cupy_backend.importlib.util, "find_spec", lambda _: True)
    monkeypatch.setattr(cupy.cuda.nvrtc, "getVersion", version)
    pathfinder = SimpleNamespace(find_nvidia_header_directory=lambda name: headers if name == "cudart" else "wrong")
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(pathfinder=pathfinder))
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", pathfinder)
    found = cupy_backend.missing_cupy.__wrapped__()
    assert (found is None) == (what is None)
    assert found is None or (f"CuPy does not find {what}" in found and "\nhint: pip install 'cer-gpu[gpu]'" in found)


def test_the_versions_of_what_measured(cupy):
    found = {"card": cupy.NAME, "CUDA of the driver": "13.0", "CUDA runtime": "13.0", "NVRTC": "13.0", "cupy": "14.2.0"}
    assert cupy_backend.versions() == found


def test_cupy_and_its_stand_in_have_these_names(cupy, monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy")
    modules = [cupy] if importlib.util.find_spec("cupy") is None else [cupy, importlib.import_module("cupy")]
    for module in modules:
        for name in NAMES:
            found = module
            for part in name.split("."):
                found = getattr(found, part)
