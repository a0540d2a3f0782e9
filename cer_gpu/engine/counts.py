"""Counts of complex events as arrays, between the loops that count them and Arrow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cer_gpu.engine import matches
from cer_gpu.errors import EventsError

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CountBuffers:
    """Ends of complex events, how many end there, and their times (empty when not timed)."""

    ends: Int64
    counts: Int64
    times: Int64

    def __len__(self) -> int:
        """Return how many ends there are."""
        return len(self.ends)


class CountOutput:
    """The arrays that a loop writes ends and counts to.

    Parameters
    ----------
    timed
        Whether there are times.
    share
        (k, n): hand over part k of n of the ends; None for all.

    Attributes
    ----------
    n_ends : int
        Ends so far, also those of other parts.
    """

    def __init__(self, *, timed: bool, share: tuple[int, int] | None) -> None:
        rows = matches.OUTPUT_ROWS
        self.ends, self.counts = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self.times = np.zeros(rows if timed else 0, np.int64)
        self.n_ends = 0
        self._share = share

    def take(self, n: int) -> CountBuffers:
        """Return the first `n` ends, of which each goes to one part as a whole."""
        kept = slice(0, n)
        if self._share is not None:
            part, n_parts = self._share
            kept = slice((part - self.n_ends) % n_parts, n, n_parts)
        self.n_ends += n
        return CountBuffers(self.ends[kept].copy(), self.counts[kept].copy(), self.times[kept].copy())


def too_many_at(position: int) -> EventsError:
    """Return the error for a count that int64 does not hold."""
    return EventsError(
        f"more than 2**63 - 1 complex events end at event {position}\n"
        "hint: a shorter WITHIN, or a selection strategy such as SELECT MAX"
    )
