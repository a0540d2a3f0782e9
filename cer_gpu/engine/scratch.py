"""Memory for what is made of one block of events, and taken again for the next: fresh memory costs page faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cer_gpu.backend.compaction import gather
from cer_gpu.engine.inputs import read_only


class Scratch:
    """Memory of one dtype, as large as the most that was asked for.

    Parameters
    ----------
    dtype
    *row
        The shape of one row.
    """

    def __init__(self, dtype: npt.DTypeLike, *row: int) -> None:
        self._memory: npt.NDArray[Any] = np.empty((0, *row), dtype)

    def empty(self, n: int) -> npt.NDArray[Any]:
        """Return so many rows, in which anything stands; the next call returns the same memory."""
        if n > len(self._memory):
            # what is not written to takes no memory
            self._memory = np.empty((1 << (n - 1).bit_length(), *self._memory.shape[1:]), self._memory.dtype)
        return self._memory[:n]


class Gathered:
    """Takes the numbers of some rows to memory of its own, which the next call uses again."""

    def __init__(self) -> None:
        self._memory = {"i": Scratch(np.int64), "u": Scratch(np.uint64), "f": Scratch(np.float64)}

    def take(self, numbers: npt.NDArray[Any], rows: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """Return the numbers of the rows as int64, uint64 or float64."""
        taken = self._memory[numbers.dtype.kind].empty(len(rows))
        gather(read_only(numbers), rows, taken)
        return taken
