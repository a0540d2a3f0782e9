"""The calls to CuPy, argument by argument: against a stand-in, and against CuPy's own names where it is installed."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from host_device import Build, HostDevice, has_compiler

import cer_gpu
from cer_gpu.backend import cupy_backend
from cer_gpu.predicates import guards as predicates
from cer_gpu.predicates import placement

NAMES = [
    *("from_dlpack", "RawModule", "cuda.alloc", "cuda.alloc_pinned_memory", "cuda.Device", "cuda.Stream"),
    *("cuda.memory.OutOfMemoryError", "cuda.runtime.CUDARuntimeError", "cuda.runtime.getDeviceCount"),
    *("cuda.runtime.getDeviceProperties", "cuda.runtime.memcpyAsync", "cuda.runtime.deviceSynchronize"),
    *("cuda.runtime.memcpyHostToDevice", "cuda.runtime.memcpyDeviceToHost", "cuda.runtime.memcpyDeviceToDevice"),
]
TO_DEVICE, TO_HOST = 1, 2


class OutOfMemoryError(Exception):
    pass


class Stand:
    """CuPy's names over the memory of the host; a launch outside of a stream is an error."""

    def __init__(self, build):
        self.build, self.current, self.free = build, None, 1 << 40
        self.on_device: list[np.ndarray] = []
        runtime = SimpleNamespace(
            memcpyAsync=self.memcpy,
            memcpyHostToDevice=TO_DEVICE,
            memcpyDeviceToHost=TO_HOST,
            getDeviceProperties=lambda number: {"name": b"a stand-in"},
        )
        device = SimpleNamespace(id=0, synchronize=lambda: None)
        self.cuda = SimpleNamespace(
            runtime=runtime,
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            Device=lambda: device,
            Stream=self.stream,
            alloc=self.alloc,
            alloc_pinned_memory=bytearray,
        )

    def RawModule(self, *, code, options, backend):
        assert (options, backend) == (cupy_backend.OPTIONS, "nvrtc")
        kernels = HostDevice(self.build)

        def get_function(name):
            entry = kernels.compile(code, [name])[name]

            def launch(grid, block, arguments):
                assert self.current is not None
                assert grid[0] * block[0] % 32 == 0
                assert all(type(argument) is np.uint64 for argument in arguments)
                entry(1, *map(int, arguments))

            return launch

        return SimpleNamespace(get_function=get_function)

    def stream(self, non_blocking):
        assert non_blocking
        stand = self

        class Stream:
            ptr = 7

            def __enter__(self):
                stand.current = self

            def __exit__(self, *_):
                stand.current = None

            def synchronize(self):
                pass

        return Stream()

    def alloc(self, size):
        if size > self.free:
            raise OutOfMemoryError(f"{size} bytes")
        data = np.full(size + 256, 0xA5, np.uint8)
        self.on_device.append(data)
        return SimpleNamespace(ptr=-(-data.ctypes.data // 256) * 256, data=data)

    def memcpy(self, target, source, size, kind, stream):
        assert stream == 7
        there, here = (target, source) if kind == TO_DEVICE else (source, target)
        inside = [data for data in self.on_device if 0 <= there - data.ctypes.data <= len(data) - size]
        assert len(inside) == 1
        assert not any(0 <= here - data.ctypes.data < len(data) for data in self.on_device)
        ctypes.memmove(target, source, size)


def test_a_query_by_a_stand_in_for_cupy(tmp_path, monkeypatch):
    if not has_compiler():
        pytest.skip("g++ is not installed: it builds the kernels for the host")
    stand = Stand(Build(tmp_path))
    monkeypatch.setitem(sys.modules, "cupy", stand)
    monkeypatch.setattr(placement, "missing", lambda: None)
    device = cupy_backend.CupyDevice()
    monkeypatch.setattr(predicates, "open_device", lambda: device)
    assert device.name == "a stand-in"
    rng = np.random.default_rng(0)
    events = pa.table({"type": pa.array(rng.choice(["A", "B", "C"], 3000)).dictionary_encode(), "x": rng.random(3000)})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[x > 0.5] WITHIN 10 EVENTS")
    assert query.evaluate(events, device="cuda").equals(query.evaluate(events, device="cpu"))
    stand.free = 100
    with pytest.raises(cer_gpu.DeviceError, match="a stand-in has no memory left"):
        query.evaluate(events, device="cuda")


def test_cupy_has_these_names():
    cupy = pytest.importorskip("cupy")
    for name in NAMES:
        found = cupy
        for part in name.split("."):
            found = getattr(found, part)
