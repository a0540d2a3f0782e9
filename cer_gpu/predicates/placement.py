"""Choice of the device for predicates, with the reason: as requested, or the one measured to cost less."""

from __future__ import annotations

import threading
from functools import lru_cache

from cer_gpu.backend import cupy_backend
from cer_gpu.backend.device import Device
from cer_gpu.errors import DeviceError
from cer_gpu.expressions.terms import GuardProgram

CPU, CUDA, AUTO = "cpu", "cuda", "auto"
ROWS_TO_TRY = 1 << 22
"""With "auto", events evaluated on the CPU before a GPU is tried, as its kernels have to be compiled."""
ROWS_TO_MEASURE = 1 << 20
"""With "auto", events then timed on each device."""
REQUESTED = "asked for"
TRIED_LATER = f"a GPU is tried after {ROWS_TO_TRY:,} events of such queries"
BLOCKS_AT_ONCE = 4
"""Factor on the rows of a block for a GPU, or for one of several threads: each block costs some waiting."""


def missing() -> str | None:
    """Return the reason why no GPU can be used here, with a hint in a second line; None: one can."""
    return cupy_backend.missing_cupy()


@lru_cache(1)
def open_device() -> Device:
    """Return the GPU of this process."""
    return cupy_backend.CupyDevice()


def check_device(device: str) -> None:
    """Refuse device "cuda" if no GPU can be used.

    Raises
    ------
    DeviceError
        With the missing part, and how to install it.
    """
    if device == CUDA and (why := missing()) is not None:
        raise DeviceError(f"device='cuda' needs a GPU, and none can be used: {why}")


def before_events(device: str) -> tuple[str, str]:
    """Return the device of the first events of a query, and the reason."""
    if device != AUTO:
        return device, REQUESTED
    why = missing()
    return CPU, TRIED_LATER if why is None else why.partition("\n")[0]


class Costs:
    """Measured costs of one program on both devices, over all evaluations of this process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_rows = 0
        self._warm = False
        self._seconds = {CPU: 0.0, CUDA: 0.0}
        self._rows = {CPU: 0, CUDA: 0}

    def next(self) -> tuple[str, str]:
        """Return the device for the next block, and the reason."""
        if self._n_rows < ROWS_TO_TRY:
            return CPU, TRIED_LATER
        for name in (CPU, CUDA):
            if self._rows[name] < ROWS_TO_MEASURE:
                return name, "both devices are being measured"
        each = {name: self._seconds[name] / self._rows[name] * 1e9 for name in (CPU, CUDA)}
        best, other = sorted(each, key=lambda name: each[name])
        return best, f"{each[best]:.3g} ns for each event, and {each[other]:.3g} on {other}, measured"

    @property
    def is_measuring(self) -> bool:
        """True while blocks are timed, one after another."""
        return self._n_rows >= ROWS_TO_TRY and min(self._rows.values()) < ROWS_TO_MEASURE

    def took(self, name: str, n_rows: int, seconds: float) -> None:
        """Record the time of a block; the first one on a GPU, which compiles kernels, does not count."""
        with self._lock:
            if self.is_measuring and (name == CPU or self._warm):
                self._seconds[name] += seconds
                self._rows[name] += n_rows
            self._warm = self._warm or name == CUDA
            self._n_rows += n_rows


_costs = lru_cache(256)(lambda program: Costs())


class Placement:
    """Choice of the device for each block of one program.

    Parameters
    ----------
    requested
        "cpu", "cuda" or "auto".
    program : GuardProgram or None
        None if there is nothing to evaluate.

    Attributes
    ----------
    device : str
        Device of the next block: "cpu" or "cuda".
    reason : str
        Reason for it, for `explain`.
    """

    def __init__(self, requested: str, program: GuardProgram | None) -> None:
        check_device(requested)
        self.device: str
        self.reason: str
        self.device, self.reason = before_events(requested)
        self._costs: Costs | None = None
        if program is None:
            self.device, self.reason = CPU, "no event has a type, so that there is nothing to evaluate"
        elif requested == AUTO and missing() is None:
            self._costs = _costs(program)
            self.device, self.reason = self._costs.next()

    def choose(self, resident: bool) -> None:
        """Choose the device of the next block; `resident`: it has columns in the memory of a GPU.

        Raises
        ------
        DeviceError
            When a resident block would be evaluated on the CPU.
        """
        if self._costs is not None:
            self.device, self.reason = (CUDA, "columns are on the GPU") if resident else self._costs.next()
        if resident and self.device == CPU:
            raise DeviceError(
                f"columns are in the memory of a GPU, and predicates are evaluated on the CPU ({self.reason})\n"
                "hint: device='cuda', or give arrays of the host"
            )

    @property
    def is_measuring(self) -> bool:
        """True while blocks are timed, when no other work should go on."""
        return self._costs is not None and self._costs.is_measuring

    def took(self, name: str, n_rows: int, seconds: float) -> None:
        """Record the time of a block on a device."""
        if self._costs is not None:
            self._costs.took(name, n_rows, seconds)
