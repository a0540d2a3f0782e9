"""Stand-in for CuPy over the memory of the host: the names that the package uses, and CuPy's checks of arguments.

CuPy declares the types of its arguments (in Cython), and refuses others; so does this module.  As on a GPU, copies and
kernels wait until their stream is synchronised, a copy must stay inside one piece of device memory and of pinned
memory, and a kernel goes to the current stream.  Kernels are built by g++ with warps of one lane (`host_device`).
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import operator
import shutil
import tempfile
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from host_device import Build, HostDevice, HostMemory

from cer_gpu.backend.device import OutOfDeviceMemory

__version__ = "14.2.0"
NAME = "Stand-in GPU"
N_BYTES = 1 << 32

_folder = Path(tempfile.mkdtemp())
atexit.register(shutil.rmtree, _folder, ignore_errors=True)
device = HostDevice(Build(_folder), n_bytes=N_BYTES)
_on_device: dict[int, int] = {}  # bytes of the pieces in use, by their addresses
_pinned: dict[int, int] = {}
_streams: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()
_numbers = itertools.count(1 << 20)
_current = threading.local()
most_pinned = N_BYTES


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"error {status}")
        self.status = status


class OutOfMemoryError(MemoryError):
    pass


class MemoryPointer:
    def __init__(self, size: int) -> None:
        try:
            self._memory = HostMemory(device, size)
        except OutOfDeviceMemory as error:
            raise OutOfMemoryError(str(error)) from None
        self.ptr, self.size = self._memory.address, size
        _on_device[self.ptr] = size
        weakref.finalize(self, _on_device.pop, self.ptr)


class Stream:
    """Queue that puts everything off until `synchronize`."""

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        assert non_blocking
        self.ptr, self.waiting = next(_numbers), []
        _streams[self.ptr] = self

    def __enter__(self) -> Stream:
        _current.stack = [*getattr(_current, "stack", []), self]
        return self

    def __exit__(self, *_: object) -> None:
        _current.stack.pop()

    def synchronize(self) -> None:
        for do in self.waiting:
            do()
        self.waiting.clear()


class RawKernel:
    def __init__(self, entry) -> None:
        self._entry = entry

    def __call__(self, grid: tuple, block: tuple, args: tuple, *, shared_mem: int = 0) -> None:
        assert (type(grid), type(block), block[0] % 32) == (tuple, tuple, 0)
        assert 1 <= grid[0] < 1 << 31
        assert 1 <= block[0] <= 1024
        # CuPy passes a NumPy scalar by its own type, and an array of one value by value; all others have 64 bits
        by_value = [type(argument) is np.ndarray for argument in args]
        assert all(one or type(argument) is np.uint64 for one, argument in zip(by_value, args, strict=True))
        assert all(argument.size == 1 for one, argument in zip(by_value, args, strict=True) if one)
        assert sum(argument.nbytes for argument in args) <= 4096
        args = tuple(a.copy() if one else a for one, a in zip(by_value, args, strict=True))
        (*_, stream) = getattr(_current, "stack", []) or [None]
        assert stream is not None, "a launch outside of a stream goes to the default one"
        numbers = lambda: (a.ctypes.data if type(a) is np.ndarray else int(a) for a in args)  # noqa: E731
        stream.waiting.append(lambda: self._entry(grid[0] * block[0] // 32, *numbers()))


class RawModule:
    def __init__(self, *, code: str, options: tuple[str, ...] = (), backend: str = "nvrtc") -> None:
        assert (type(code), type(options), backend) == (str, tuple, "nvrtc")
        assert all(type(option) is str for option in options)
        self._code = code

    def get_function(self, name: str) -> RawKernel:
        assert type(name) is str
        return RawKernel(device.compile(self._code, [name])[name])


def alloc(size: int) -> MemoryPointer:
    return MemoryPointer(operator.index(size))


def alloc_pinned_memory(size: int) -> memoryview:
    """Return a buffer as CuPy's pool does: of signed bytes, and longer than what was asked for."""
    if size > most_pinned:
        raise CUDARuntimeError(2)
    data = np.full(1 << max(operator.index(size) - 1, 511).bit_length(), 0x5A, np.int8)
    _pinned[data.ctypes.data] = data.nbytes
    weakref.finalize(data, _pinned.pop, data.ctypes.data)
    return memoryview(data)


def _inside(pieces: dict[int, int], address: int, size: int) -> bool:
    return any(first <= address <= first + n_bytes - size for first, n_bytes in pieces.copy().items())


def memcpy_async(dst: int, src: int, size: int, kind: int, stream: int) -> None:
    assert all(isinstance(number, int) for number in (dst, src, size, kind, stream)), "CuPy takes no integers of NumPy"
    to_device, from_device = kind in (1, 3), kind in (2, 3)
    assert kind in (1, 2, 3)
    assert _inside(_on_device if to_device else _pinned, dst, size)
    assert _inside(_on_device if from_device else _pinned, src, size)
    _streams[stream].waiting.append(lambda: ctypes.memmove(dst, src, size))


def from_dlpack(array):
    raise NotImplementedError


def _properties(number: int) -> dict[str, object]:
    assert number == 0
    return {"name": NAME.encode(), "totalGlobalMem": N_BYTES}


class Device:
    id = 0

    def synchronize(self) -> None:
        for stream in list(_streams.values()):
            stream.synchronize()


runtime = SimpleNamespace(
    CUDARuntimeError=CUDARuntimeError,
    driverGetVersion=lambda: 13000,
    getDeviceCount=lambda: 1,
    getDeviceProperties=_properties,
    memcpyAsync=memcpy_async,
    memcpyDeviceToHost=2,
    memcpyHostToDevice=1,
    runtimeGetVersion=lambda: 13000,
)
cuda = SimpleNamespace(
    Device=Device,
    Stream=Stream,
    alloc=alloc,
    alloc_pinned_memory=alloc_pinned_memory,
    memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
    runtime=runtime,
    set_allocator=lambda allocator=None: None,
    set_pinned_memory_allocator=lambda allocator=None: None,
)
