"""Device that runs the kernels on the CPU, built by g++: a stand-in for a GPU.

Its queues put everything off until `wait`, which reveals memory that is written or read too early.  A warp has one
lane, or 32 that take turns wherever they wait for one another.
"""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from cer_gpu.backend.device import OutOfDeviceMemory

GXX = [
    *("g++", "-x", "c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-DCER_HOST_SHIM"),
    *("-Wall", "-Wextra", "-Werror", "-ffp-contract=off"),
]

WARP = """
#include <ucontext.h>
#include <cstdlib>
static ucontext_t cer_scheduler, cer_fibers[32];
static char cer_stacks[32][1 << 16];
static int cer_lane, cer_warp, cer_warps, cer_n_waiting, cer_parity[32], cer_values[2][32];
static inline const int* cer_all(int value) {
  int* values = cer_values[cer_parity[cer_lane] ^= 1];
  values[cer_lane] = value;
  ++cer_n_waiting;
  swapcontext(&cer_fibers[cer_lane], &cer_scheduler);
  return values;
}
#define CER_LANES 32
#define CER_LANE cer_lane
#define CER_WARP static_cast<cer_i64>(cer_warp)
#define CER_WARPS static_cast<cer_i64>(cer_warps)
static inline unsigned cer_ballot(bool holds) {
  const int* values = cer_all(holds);
  unsigned bits = 0;
  for (int k = 0; k < 32; ++k) bits |= static_cast<unsigned>(values[k]) << k;
  return bits;
}
static inline int cer_shifted_up(int value, int by) {
  const int* values = cer_all(value);
  return values[cer_lane < by ? cer_lane : cer_lane - by];
}
static inline int cer_of_last_lane(int value) { return cer_all(value)[31]; }
"""
LAUNCH = """
typedef void (*cer_entry_point)(cer_u64, cer_u64, cer_u64, cer_u64, cer_u64, cer_u64, cer_u64, cer_u64, cer_u64,
                                cer_u64);
static cer_entry_point cer_kernel;
static const cer_u64* cer_arguments;
static void cer_run_lane() {
  const cer_u64* a = cer_arguments;
  cer_kernel(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
}
extern "C" void cer_launch(void* kernel, int n_warps, const cer_u64* arguments) {
  cer_kernel = reinterpret_cast<cer_entry_point>(kernel), cer_arguments = arguments, cer_warps = n_warps;
  for (cer_warp = 0; cer_warp < n_warps; ++cer_warp) {
    for (cer_lane = 0; cer_lane < 32; ++cer_lane) {
      ucontext_t* fiber = &cer_fibers[cer_lane];
      getcontext(fiber);
      fiber->uc_stack.ss_sp = cer_stacks[cer_lane], fiber->uc_stack.ss_size = sizeof cer_stacks[cer_lane];
      fiber->uc_link = &cer_scheduler, cer_parity[cer_lane] = 0;
      makecontext(fiber, cer_run_lane, 0);
    }
    do {
      cer_n_waiting = 0;
      for (cer_lane = 0; cer_lane < 32; ++cer_lane) swapcontext(&cer_scheduler, &cer_fibers[cer_lane]);
      if (cer_n_waiting % 32) abort();  // some lanes wait for lanes that have ended
    } while (cer_n_waiting);
  }
}
"""
MAX_ARGUMENTS = 10


def has_compiler() -> bool:
    """Return True if kernels can be built for the host."""
    return shutil.which("g++") is not None


class Build:
    """Compiler of C++ texts, which builds each text once, and loads it."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._folder, self._flags = folder, flags
        self._number = itertools.count()
        self._built: dict[str, ctypes.CDLL] = {}

    def __call__(self, source: str) -> ctypes.CDLL:
        if source not in self._built:
            path = self._folder / f"shim{next(self._number)}.cpp"
            path.write_text(source)
            library = path.with_suffix(".so")
            done = subprocess.run([*GXX, *self._flags, "-o", library, path], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
            self._built[source] = ctypes.CDLL(str(library))
        return self._built[source]


class HostMemory:
    """Memory of a `HostDevice`."""

    def __init__(self, device: HostDevice, n_bytes: int) -> None:
        self._device = device
        self.n_bytes = n_bytes
        if device.n_free < n_bytes:
            raise OutOfDeviceMemory(f"{n_bytes:,} bytes, and {device.n_free:,} are free")
        device.n_free -= n_bytes
        self._data = np.full(n_bytes + 256, 0xA5, np.uint8)
        self.address = -(-self._data.ctypes.data // 256) * 256

    def __del__(self) -> None:
        if hasattr(self, "_data"):
            self._device.n_free += self.n_bytes
            self._data.fill(0xA5)


class HostQueue:
    """Queue that puts everything off until `wait`."""

    def __init__(self, device: HostDevice) -> None:
        self._device = device
        self._waiting: list[Callable[[], object]] = []

    def write(self, address, data):
        self._waiting.append(lambda: ctypes.memmove(address, data.ctypes.data, len(data)))

    def read(self, data, address):
        self._waiting.append(lambda: ctypes.memmove(data.ctypes.data, address, len(data)))

    def launch(self, kernel, n_warps, *arguments):
        self._device.n_launches += 1
        numbers = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
        addresses = lambda: (each.ctypes.data if isinstance(each, np.ndarray) else each for each in numbers)  # noqa: E731
        self._waiting.append(lambda: kernel(n_warps, *addresses()))

    def wait(self):
        for do in self._waiting:
            do()
        self._waiting.clear()


class HostDevice:
    """Device that runs kernels on the CPU.

    Parameters
    ----------
    build
        Function that builds and loads their source.
    lanes
        Lanes of a warp: 1, or 32.
    n_bytes
        Bytes of its memory.
    """

    name = "the host"

    def __init__(self, build: Callable[[str], ctypes.CDLL], lanes: int = 1, n_bytes: int = 1 << 40) -> None:
        self._build, self._lanes = build, lanes
        self.n_free = n_bytes
        self.n_launches = 0

    def compile(self, source: str, names: Iterable[str]):
        if self._lanes == 1:
            library = self._build(source)
            return {name: self._alone(library[name]) for name in names}
        library = self._build(WARP + source + LAUNCH)
        return {name: self._on_warps(library, library[name]) for name in names}

    @staticmethod
    def _alone(entry):
        return lambda _, *arguments: entry(*map(ctypes.c_ulonglong, arguments))

    @staticmethod
    def _on_warps(library, entry):
        def run(n_warps, *arguments):
            padded = (ctypes.c_ulonglong * MAX_ARGUMENTS)(*arguments)
            library.cer_launch(ctypes.cast(entry, ctypes.c_void_p), ctypes.c_int(max(n_warps - 1, 1)), padded)

        return run

    def queue(self) -> HostQueue:
        return HostQueue(self)

    def allocate(self, n_bytes: int) -> HostMemory:
        return HostMemory(self, n_bytes)

    def pinned(self, n_bytes: int):
        return np.full(n_bytes, 0x5A, np.uint8)
