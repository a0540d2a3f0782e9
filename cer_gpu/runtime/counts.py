"""Counts of matches as arrays, between the loops that count them and Arrow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cer_gpu.arrays import Array, Int64, UInt64
from cer_gpu.columnar.buffer_leases import leased_slots
from cer_gpu.errors import EventsError
from cer_gpu.runtime import matches


@dataclass(frozen=True)
class CountBuffers:
    """Ends of matches, how many end there, and their times (empty when not timed)."""

    ends: Int64
    counts: Int64
    times: Int64

    def __len__(self) -> int:
        """Return the number of ends."""
        return len(self.ends)

    @property
    def n_matches(self) -> int:
        """The number of matches over all ends."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class WeighedBuffers(CountBuffers):
    """Counts of matches, and what their weights come to (`cer_gpu.backend.chains.weighing.WeightTotals`).

    Attributes
    ----------
    greatest : float
        Greatest amount of the weights of one match, at most.
    whole : bool
        True: weights are integers.
    """

    weighed: UInt64
    floats: npt.NDArray[np.float64]
    integers: UInt64
    greatest: float
    whole: bool


class CountOutput:
    """The arrays that a loop writes ends and counts to; full ones are handed over.

    Parameters
    ----------
    timed
        True if the output has times.
    shard
        (k, n): hand over part k of n of the ends; None for all.
    beside
        Types of the numbers beside each count.

    Attributes
    ----------
    n_ends : int
        Ends so far, also those of other parts.
    """

    def __init__(self, *, timed: bool, shard: tuple[int, int] | None, beside: tuple[npt.DTypeLike, ...] = ()) -> None:
        self.n_ends: int = 0
        self._rows = matches.OUTPUT_ROWS
        self._timed, self._shard, self._beside = timed, shard, beside
        cells = leased_slots()
        self._recycler = cells.recycler
        self._empty = cells[self._rows, timed, beside]  # arrays that hold nothing beyond the block that is read

    @property
    def to_fill(self) -> list[Array]:
        """Arrays for ends, counts and times, and beside; allocated on request, as earlier ones may be free then."""
        arrays: list[Array] | None = self._empty.memory
        if arrays is None:
            sizes = (self._rows, self._rows, self._rows if self._timed else 0)
            arrays = [self._recycler.empty((size,), np.int64) for size in sizes]
            arrays += [self._recycler.empty((self._rows,), dtype) for dtype in self._beside]
            self._empty.memory = arrays
        return arrays

    def take(self, n: int) -> CountBuffers:
        """Return the first `n` ends, or those of them in the shard, and empty the arrays; no end is split."""
        return CountBuffers(*self.take_arrays(n))

    def take_arrays(self, n: int) -> list[Array]:
        """Return the contents of `take` as arrays, with those beside the counts."""
        rows = slice(0, n)
        if self._shard is not None:
            part, n_parts = self._shard
            rows = slice((part - self.n_ends) % n_parts, n, n_parts)
        self.n_ends += n
        arrays = [each[rows] for each in self.to_fill]
        if self._shard is None and 2 * n >= self._rows:
            self._empty.memory = None
            return arrays
        return [each.copy() for each in arrays]


class CountOverflow(EventsError):
    """Count that int64 does not hold."""


def too_many_at(position: int) -> CountOverflow:
    """Return the error for a count that int64 does not hold."""
    return CountOverflow(
        f"more than 2**63 - 1 matches end at event {position}\n"
        "hint: a shorter WITHIN, or a selection strategy such as SELECT MAX"
    )
