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

    Full ones are handed over and fresh ones taken (`cer_gpu.engine.matches.empty_of_pool`).

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
        self.n_ends = 0
        self._rows = matches.OUTPUT_ROWS
        self._timed, self._share = timed, share
        self._allocate()

    def take(self, n: int) -> CountBuffers:
        """Return the first `n` ends, of which each goes to one part as a whole; the arrays are empty then."""
        kept = slice(0, n)
        if self._share is not None:
            part, n_parts = self._share
            kept = slice((part - self.n_ends) % n_parts, n, n_parts)
        self.n_ends += n
        found = CountBuffers(self.ends[kept], self.counts[kept], self.times[kept])
        if self._share is None and 2 * n >= self._rows:
            self._allocate()
            return found
        return CountBuffers(found.ends.copy(), found.counts.copy(), found.times.copy())

    def _allocate(self) -> None:
        self.ends, self.counts = (matches.empty_of_pool((self._rows,), np.int64) for _ in range(2))
        self.times = matches.empty_of_pool((self._rows if self._timed else 0,), np.int64)


def too_many_at(position: int) -> EventsError:
    """Return the error for a count that int64 does not hold."""
    return EventsError(
        f"more than 2**63 - 1 complex events end at event {position}\n"
        "hint: a shorter WITHIN, or a selection strategy such as SELECT MAX"
    )
