"""Matches as arrays, between the loops that list them and Arrow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cer_gpu.arrays import Array, Bools, Int32, Int64
from cer_gpu.columnar.buffer_leases import leased_slots

OUTPUT_ROWS = 1 << 17
"""Matches in one output buffer: with more, what is filled and what is read are not in the cache together."""
MAX_POSITIONS = (1 << 31) - 1
"""Maximum number of positions in one output buffer: offsets are int32."""


@dataclass(frozen=True)
class MatchBuffers:
    """Matches as arrays; `offsets` and `positions` are those of an Arrow list array.

    `spans` and `times` have two rows, one for the starts and one for the ends.
    """

    spans: Int64
    times: Int64
    offsets: Int32
    positions: Int64
    marks: Int32

    def __len__(self) -> int:
        """Return the number of matches."""
        return len(self.spans[0])

    def at(self, mask: Bools) -> MatchBuffers:
        """Return some of the matches."""
        lengths = np.diff(self.offsets)
        entries = np.repeat(mask, lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths[mask])]).astype(np.int32)
        times = self.times[:, mask] if self.times.shape[1] else self.times
        marks = self.marks[entries] if len(self.marks) else self.marks
        return MatchBuffers(self.spans[:, mask], times, offsets, self.positions[entries], marks)

    def copy(self) -> MatchBuffers:
        """Return the matches in memory of their own."""
        return MatchBuffers(*(each.copy() for each in self.arrays))

    @property
    def n_matches(self) -> int:
        """The number of matches: one a row."""
        return len(self)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays, in the order of the fields."""
        return self.spans, self.times, self.offsets, self.positions, self.marks

    @property
    def ends(self) -> Int64:
        """Positions of the ends."""
        ends: Int64 = self.spans[1]
        return ends


class OutputBuffers:
    """The arrays that a loop writes matches to; full ones are handed over.

    Parameters
    ----------
    timed, labelled
        True if the output has times, and True if it has marks.
    """

    def __init__(self, *, timed: bool, labelled: bool) -> None:
        self._rows = OUTPUT_ROWS
        self._n_values = 8 * OUTPUT_ROWS
        self._timed, self._labelled = timed, labelled
        self._nothing: MatchBuffers | None = None
        self._cells = leased_slots()
        self._recycler = self._cells.recycler

    @property
    def _empty(self) -> MatchBuffers | None:
        """Arrays that hold nothing beyond the block that is read."""
        empty: MatchBuffers | None = self._cells[self._rows, self._n_values, self._timed, self._labelled].memory
        return empty

    @_empty.setter
    def _empty(self, arrays: MatchBuffers | None) -> None:
        self._cells[self._rows, self._n_values, self._timed, self._labelled].memory = arrays

    @property
    def to_fill(self) -> tuple[Array, ...]:
        """The arrays of `MatchBuffers`, in its order; allocated on request, as the previous ones may be free then."""
        arrays = self._empty
        if arrays is None:
            rows, n_values, empty = self._rows, self._n_values, self._recycler.empty
            arrays = self._empty = MatchBuffers(
                empty((2, rows), np.int64),
                empty((2, rows if self._timed else 0), np.int64),
                empty((rows + 1,), np.int32),
                empty((n_values,), np.int64),
                empty((n_values if self._labelled else 0,), np.int32),
            )
            arrays.offsets[0] = 0
        return arrays.arrays

    @property
    def is_widest(self) -> bool:
        """True if offsets of int32 reach no more positions."""
        return self._n_values == MAX_POSITIONS

    @property
    def n_bytes(self) -> int:
        """Bytes in use: one such buffer is filled while another is read."""
        of_row, of_value = 20 + 16 * self._timed, 8 + 4 * self._labelled
        return 2 * (self._rows * of_row + self._n_values * of_value)

    @property
    def n_bytes_when_wider(self) -> int:
        """Bytes that are taken once these are widened."""
        return 2 * self.n_bytes

    def widen(self, n: int = 0, n_values: int = 0) -> None:
        """Make space for more than the first `n` matches, with `n_values` positions, which stay."""
        if self.is_widest:
            raise MemoryError
        full, sizes = self._first(n, n_values), [each.nbytes for each in self.to_fill]
        self._empty = None
        self._n_values = min(2 * self._n_values, MAX_POSITIONS)
        self._rows *= 2 if n else 1
        self._empty = None
        self._refill(full)
        del full
        self._recycler.forget({*sizes} - {each.nbytes for each in self.to_fill})

    def split(self, n: int, n_all: int, n_values: int) -> tuple[MatchBuffers, MatchBuffers]:
        """Return the first `n` matches, and the rest of `n_all`, which is first in the next buffers."""
        matches, full = self._first(n, int(self.to_fill[2][n])), self._first(n_all, n_values)
        values = slice(int(full.offsets[n]), None)
        rest = MatchBuffers(
            full.spans[:, n:],
            full.times[:, n:],
            full.offsets[n:] - full.offsets[n],
            full.positions[values],
            full.marks[values],
        )
        self._empty = None
        self._refill(rest)
        return (matches if self._fill_half(matches) else matches.copy()), rest

    def _refill(self, rows: MatchBuffers) -> MatchBuffers:
        """Copy matches to the begin of empty buffers."""
        spans, times, offsets, positions, marks = self.to_fill
        n, n_values = len(rows), len(rows.positions)
        spans[:, :n], offsets[: n + 1], positions[:n_values] = rows.spans, rows.offsets, rows.positions
        times[:, :n], marks[:n_values] = rows.times, rows.marks
        return rows

    def _first(self, n: int, n_values: int) -> MatchBuffers:
        spans, times, offsets, positions, marks = self.to_fill
        return MatchBuffers(spans[:, :n], times[:, :n], offsets[: n + 1], positions[:n_values], marks[:n_values])

    def take(self, n: int, n_values: int) -> MatchBuffers:
        """Return the first `n` matches, which hold `n_values` positions; the buffers are empty then."""
        if not n:
            if self._nothing is None:
                self._nothing = self._first(0, 0).copy()
            return self._nothing
        matches = self._first(n, n_values)
        if self._fill_half(matches):
            self._empty = None
            return matches
        return matches.copy()

    def _fill_half(self, matches: MatchBuffers) -> bool:
        """Return True if matches fill half of the buffers or more: they are handed over without a copy."""
        return 2 * len(matches) >= self._rows or 2 * len(matches.positions) >= self._n_values
