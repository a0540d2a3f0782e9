"""Protocols of the GPU as the evaluation of predicates needs it; the rest of it runs, and is tested, without one.

`cer_gpu.backend.cupy_backend` implements them; the tests have a device that runs the same kernels on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

MAX_BY_VALUE = 480
"""Maximum number of 64-bit numbers that a kernel gets by value: all its parameters may have 4 KiB."""

Argument = int | npt.NDArray[np.uint64]
"""A number of 64 bits, or numbers that a kernel gets by value (`kernels/inputs.cuh`)."""


class OutOfDeviceMemory(Exception):
    """Out of memory on the device."""


class Memory(Protocol):
    """A piece of device memory, which is released when nothing refers to it any more.

    Attributes
    ----------
    address : int
        A multiple of 256.
    n_bytes : int
    """

    @property
    def address(self) -> int: ...  # noqa: D102

    @property
    def n_bytes(self) -> int: ...  # noqa: D102


class Queue(Protocol):
    """A queue of work for the device, done in order while the host continues."""

    def write(self, address: int, data: Bytes) -> None:
        """Copy pinned memory to the device; it must not change before `wait` returns."""

    def read(self, data: Bytes, address: int) -> None:
        """Copy device memory to pinned memory, which is written when `wait` returns."""

    def launch(self, kernel: Any, n_warps: int, *arguments: Argument) -> None:
        """Start a kernel with about `n_warps` warps, at least one."""

    def wait(self) -> None:
        """Return when everything is done."""


class Device(Protocol):
    """A GPU, or a stand-in for one.

    Attributes
    ----------
    name : str
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    def __hash__(self) -> int: ...  # noqa: D105

    def compile(self, source: str, names: Iterable[str]) -> Mapping[str, Any]:
        """Return kernels of a source by their names."""

    def queue(self) -> Queue:
        """Return a new queue; several run at once."""

    def allocate(self, n_bytes: int) -> Memory:
        """Return uninitialised device memory.

        Raises
        ------
        OutOfDeviceMemory
        """

    def pinned(self, n_bytes: int) -> Bytes:
        """Return host memory that the device can reach.

        Raises
        ------
        OutOfDeviceMemory
        """
