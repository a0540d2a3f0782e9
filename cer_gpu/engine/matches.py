"""Complex events as arrays, between the loops that list them and Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

OUTPUT_ROWS = 1 << 16
"""Complex events in one output buffer."""


@dataclass(frozen=True)
class MatchBuffers:
    """Complex events as arrays; `offsets` and `positions` are those of an Arrow list array.

    `spans` and `times` have two rows: of the starts, and of the ends.
    """

    spans: Int64
    times: Int64
    offsets: Int32
    positions: Int64
    marks: Int32

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.spans[0])

    @property
    def ends(self) -> Int64:
        """Where they end."""
        ends: Int64 = self.spans[1]
        return ends


class OutputBuffers:
    """The arrays that a loop writes complex events to.

    Full ones are handed over and fresh ones taken (`empty_of_pool`).

    Parameters
    ----------
    timed, labelled
        Whether there are times, and marks.
    """

    def __init__(self, *, timed: bool, labelled: bool) -> None:
        self._rows = OUTPUT_ROWS
        self._timed, self._labelled = timed, labelled
        self._allocate(8 * OUTPUT_ROWS)

    def widen(self) -> None:
        """Make room for a complex event that did not fit into empty buffers."""
        self._allocate(2 * len(self.positions))

    def take(self, n: int, n_values: int) -> MatchBuffers:
        """Return the first `n` complex events, which hold `n_values` positions; the buffers are empty then."""
        found = MatchBuffers(
            self.spans[:, :n],
            self.times[:, :n],
            self.offsets[: n + 1],
            self.positions[:n_values],
            self.marks[:n_values],
        )
        if 2 * n >= self._rows or 2 * n_values >= len(self.positions):
            self._allocate(len(self.positions))
            return found
        return MatchBuffers(*(getattr(found, name).copy() for name in MatchBuffers.__dataclass_fields__))

    def _allocate(self, n_values: int) -> None:
        rows = self._rows
        self.spans = empty_of_pool((2, rows), np.int64)
        self.times = empty_of_pool((2, rows if self._timed else 0), np.int64)
        self.offsets = empty_of_pool((rows + 1,), np.int32)
        self.offsets[0] = 0
        self.positions = empty_of_pool((n_values,), np.int64)
        self.marks = empty_of_pool((n_values if self._labelled else 0,), np.int32)


def empty_of_pool(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array in memory of Arrow's pool, which gets it back once nothing refers to it.

    Memory that has been used before costs much less than fresh pages, also where it is used by another thread.
    """
    kind = np.dtype(dtype)
    return np.ndarray(shape, kind, pa.allocate_buffer(prod(shape) * kind.itemsize))
