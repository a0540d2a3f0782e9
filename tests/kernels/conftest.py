"""Compilers for the CUDA sources that need no GPU: NVRTC for the device, g++ for the host."""

import ctypes
import importlib.metadata
from collections.abc import Callable

import pytest
from host_device import Build, has_compiler

from cer_gpu.backend.cupy_backend import OPTIONS


class Nvrtc:
    """NVRTC through ctypes: it compiles for a device without a driver."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def compile(self, source: str, arch: str, *more: str) -> tuple[bytes, str]:
        """Return the cubin, or PTX for a virtual architecture (empty where the source is wrong), and the log."""
        lib, program = self.library, ctypes.c_void_p()
        assert lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"test.cu", 0, None, None) == 0
        try:
            options = [f"--gpu-architecture={arch}".encode(), *(option.encode() for option in (*OPTIONS, *more))]
            failed = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
            log = self._get(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
            kind = "PTX" if arch.startswith("compute") else "CUBIN"
            built = b"" if failed else self._get(program, f"nvrtcGet{kind}Size", f"nvrtcGet{kind}")
        finally:
            lib.nvrtcDestroyProgram(ctypes.byref(program))
        return built, log.rstrip(b"\0").decode()

    def _get(self, program: ctypes.c_void_p, size_name: str, name: str) -> bytes:
        size = ctypes.c_size_t()
        assert getattr(self.library, size_name)(program, ctypes.byref(size)) == 0
        buffer = ctypes.create_string_buffer(size.value)
        assert getattr(self.library, name)(program, buffer) == 0
        return buffer.raw


@pytest.fixture(scope="session")
def nvrtc() -> Nvrtc:
    try:
        shipped = importlib.metadata.files("nvidia-cuda-nvrtc") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package nvidia-cuda-nvrtc is not installed (it is in the extra dev)")
    libraries = [str(f.locate()) for f in shipped if f.name.startswith("libnvrtc") and ".alt." not in f.name]
    if not libraries:
        pytest.skip("the installed nvidia-cuda-nvrtc holds no libnvrtc for this platform")
    # libnvrtc looks for its builtins by name only: load them first
    loaded = {name: ctypes.CDLL(name) for name in sorted(libraries, key=lambda n: "builtins" not in n)}
    return Nvrtc(next(lib for name, lib in loaded.items() if "builtins" not in name))


@pytest.fixture(scope="session")
def build_on_host(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return what builds C++ text with g++ and its undefined-behaviour sanitizer, and loads it."""
    if not has_compiler():
        pytest.skip("g++ is not installed: it builds the device functions for the host")
    return Build(tmp_path_factory.mktemp("host_shim"), "-fsanitize=undefined")


@pytest.fixture
def no_undefined_behaviour(capfd: pytest.CaptureFixture[str]) -> Callable[[], None]:
    """Return a check that the sanitizer has reported nothing; it writes to the process's stderr."""

    def check() -> None:
        assert capfd.readouterr().err == ""

    return check
