"""Choice among the rows that HAVING keeps: LIMIT at each end, and the share of one evaluation among several."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from cer_gpu.arrays import Bools, Int64


def part_of(shard: tuple[int, int] | None, n_before: int) -> slice:
    """Return which of the next rows are those of a share (k, n), given the number of all rows before; None: all."""
    if shard is None:
        return slice(None)
    part, n_parts = share
    return slice((part - n_before) % n_parts, None, n_parts)


class Choosing(Protocol):
    """A choice among rows, which come in the order of their ends."""

    def among(self, kept: Bools, ends: Int64) -> Bools:
        """Return which of the kept rows are chosen, given the end of each row."""


class RowChoice:
    """Choice among kept rows, which come in the order of their ends.

    Parameters
    ----------
    limit
        Most rows at one end.
    share
        (k, n): of these, keep part k of n; None for all.
    """

    def __init__(self, limit: int, shard: tuple[int, int] | None) -> None:
        self._limit, self._share = limit, share
        self._end, self._n_at_end, self._n = -1, 0, 0

    def among(self, kept: Bools, ends: Int64) -> Bools:
        """Return which of the kept rows are chosen, given the end of each row."""
        rows = np.flatnonzero(kept)
        if not len(rows):
            return kept
        own = ends[rows]
        if bool((own[1:] < own[:-1]).any()):  # each end is whole here
            order = np.argsort(own, kind="stable")
            own, places = own[order], rows[order]
        else:
            places = rows
        numbers = np.arange(len(rows))
        begins = np.concatenate([[True], own[1:] != own[:-1]])
        before = np.maximum.accumulate(np.where(begins, numbers, 0))
        numbers -= before
        if own[0] == self._end:
            numbers[before == 0] += self._n_at_end
        self._end, self._n_at_end = int(own[-1]), int(numbers[-1]) + 1
        rows = np.sort(places[numbers < self._limit])
        n_before, self._n = self._n, self._n + len(rows)
        rows = rows[part_of(self._share, n_before)]
        chosen = np.zeros(len(kept), np.bool_)
        chosen[rows] = True
        return chosen

    def snapshot(self) -> list[int]:
        """Return the state from which `restore` goes on."""
        return [self._end, self._n_at_end, self._n]

    def restore(self, state: list[int]) -> None:
        """Go on from a snapshot."""
        self._end, self._n_at_end, self._n = state
