"""The GPU, by CuPy: memory, copies, streams, and kernels that NVRTC compiles.  The only module that imports CuPy."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from cer_gpu.backend.device import Argument, Bytes, OutOfDeviceMemory

OPTIONS = ("--std=c++17", "--fmad=false")
"""Options of the compiler: no operations are fused, so that each rounds once."""

_THREADS = 256
_WARPS = _THREADS // 32
_MAX_BLOCKS = 1 << 20
_NO_MEMORY = 2
"""cudaErrorMemoryAllocation."""
_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_INSTALL_DRIVER = "hint: install the driver of the GPU (Debian: apt-get install nvidia-driver), or use device='cpu'"
NO_DRIVER = f"there is no NVIDIA driver ({_DRIVER})\n{_INSTALL_DRIVER}"
_INSTALL_CUPY = "hint: pip install 'cer-gpu[gpu]', or use device='cpu'"


@lru_cache(1)
def missing_cupy() -> str | None:
    """Return why no GPU can be used here, and what to do about it in a second line, or None where one can."""
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return NO_DRIVER
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed\n{_INSTALL_CUPY}"
    import cupy

    try:
        n_devices = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"the driver finds no GPU ({error})\n{_INSTALL_DRIVER}"
    return _missing_to_compile() if n_devices else f"the driver finds no GPU\n{_INSTALL_DRIVER}"


def _missing_to_compile() -> str | None:
    """Return what CuPy lacks to compile kernels, with a hint; None: nothing."""
    import cupy

    try:
        cupy.cuda.nvrtc.getVersion()
    except RuntimeError as error:
        return f"CuPy does not find the compiler of CUDA ({error})\n{_INSTALL_CUPY}"
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return None  # a CuPy that looks for them in another way
    headers = find_nvidia_header_directory("cudart")
    return None if headers else f"CuPy does not find the headers of CUDA, and compiles nothing without\n{_INSTALL_CUPY}"


def from_dlpack(values: Any) -> Any:
    """Return an array of the device as a CuPy array, without a copy."""
    import cupy

    return cupy.from_dlpack(values)


def versions() -> dict[str, str]:
    """Return the name of the GPU, and the versions of CUDA that its driver, CuPy and CuPy's compiler are for."""
    import cupy

    runtime = cupy.cuda.runtime
    return {
        "card": CupyDevice().name,
        "CUDA of the driver": _version(runtime.driverGetVersion()),
        "CUDA runtime": _version(runtime.runtimeGetVersion()),
        "NVRTC": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
        "cupy": str(cupy.__version__),
    }


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def synchronize() -> None:
    """Wait until the device has finished all queued work."""
    import cupy

    cupy.cuda.Device().synchronize()


class CupyMemory:
    """Device memory of CuPy's pool."""

    def __init__(self, n_bytes: int) -> None:
        import cupy

        try:
            self._memory = cupy.cuda.alloc(max(n_bytes, 1))
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise OutOfDeviceMemory(str(error)) from None
        self.address: int = int(self._memory.ptr)
        self.n_bytes = n_bytes


class CupyQueue:
    """A CUDA stream."""

    def __init__(self) -> None:
        import cupy

        self._runtime = cupy.cuda.runtime
        self._stream = cupy.cuda.Stream(non_blocking=True)

    def write(self, address: int, data: Bytes) -> None:
        """Copy pinned memory to the device."""
        self._copy(address, data.ctypes.data, len(data), self._runtime.memcpyHostToDevice)

    def read(self, data: Bytes, address: int) -> None:
        """Copy device memory to pinned memory."""
        self._copy(data.ctypes.data, address, len(data), self._runtime.memcpyDeviceToHost)

    def _copy(self, target: int, source: int, n_bytes: int, kind: int) -> None:
        if n_bytes:  # CuPy takes no integers of NumPy for addresses
            self._runtime.memcpyAsync(int(target), int(source), n_bytes, kind, self._stream.ptr)

    def launch(self, kernel: Any, n_warps: int, *arguments: Argument) -> None:
        """Start a kernel with `n_warps` warps, rounded up to whole blocks of threads."""
        n_blocks = min(-(-n_warps // _WARPS), _MAX_BLOCKS)
        with self._stream:
            kernel((max(n_blocks, 1),), (_THREADS,), tuple(map(_by_value, arguments)))

    def wait(self) -> None:
        """Return when everything is done."""
        self._stream.synchronize()


def _by_value(argument: Argument) -> Any:
    """Return an argument as CuPy takes it: an array has one value, of all the bytes."""
    return argument.view(f"V{argument.nbytes}") if isinstance(argument, np.ndarray) else np.uint64(argument)


class CupyDevice:
    """The current device of CuPy."""

    def __init__(self) -> None:
        import cupy

        name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"]
        self.name: str = name.decode() if isinstance(name, bytes) else str(name)

    def compile(self, source: str, names: Iterable[str]) -> Mapping[str, Any]:
        """Return kernels of a source by their names; CuPy keeps what it compiles on disk."""
        import cupy

        module = cupy.RawModule(code=source, options=OPTIONS, backend="nvrtc")
        return {name: module.get_function(name) for name in names}

    def queue(self) -> CupyQueue:
        """Return a new stream."""
        return CupyQueue()

    def allocate(self, n_bytes: int) -> CupyMemory:
        """Return device memory."""
        return CupyMemory(n_bytes)

    def pinned(self, n_bytes: int) -> Bytes:
        """Return pinned memory of CuPy's pool, which the array keeps alive."""
        import cupy

        try:
            memory = cupy.cuda.alloc_pinned_memory(n_bytes)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            if error.status != _NO_MEMORY:
                raise
            raise OutOfDeviceMemory(f"no {n_bytes:,} bytes of pinned memory: {error}") from None
        return np.frombuffer(memory, np.uint8, n_bytes)
