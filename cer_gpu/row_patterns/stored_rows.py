"""Rows of which the columns that conditions read are computed: those that a place whose rows are read can take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cer_gpu.arrays import Bools, Int32, Int64
from cer_gpu.backend.compaction import list_marked
from cer_gpu.backend.joins import match_memory as m
from cer_gpu.row_patterns.live_arguments import OfPlace, RowArgument

MOST_STORED, SAMPLED_STATES = 0.75, 1 << 12
"""Share of a sample of the rows from which on the columns of all rows are computed, and the size of that sample."""
MAX_SPARSENESS = 8
"""Most rows of a piece, as a multiple of the stored ones that it may have."""
MAX_RANKED = 2**31 - 1
"""Most rows of which some are left out, as their numbers have 32 bits."""


@dataclass(frozen=True)
class StoredRows:
    """Rows that have a row in `cer_gpu.backend.row_search.SearchPlan.values`.

    Attributes
    ----------
    n_rows : int
        All rows.
    rows : int32, shape (n stored rows,), or None if all rows are stored
    ranks : int32, shape (n rows + 1,), or (0,) if all rows are stored
        Number of stored rows before each row.
    """

    n_rows: int
    rows: Int32 | None
    ranks: Int32

    def __len__(self) -> int:
        """Return the number of stored rows."""
        return self.n_rows if self.rows is None else len(self.rows)

    def states(self, states: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
        """Return the states of stored rows from those of all rows."""
        return states if self.rows is None else states[self.rows]

    def ends(self, ends: Int64) -> Int64:
        """Return the ends of partitions that have stored rows, in numbers of stored rows."""
        if self.rows is None:
            return ends
        ends = np.unique(self.ranks[ends].astype(np.int64))
        return ends[ends > 0]

    def blocks(self, size: int) -> Iterator[tuple[int, int, int, Int32]]:
        """Yield pieces of the rows with about `size` stored ones.

        Yields
        ------
        (int, int, int, int32 array)
            First row, number of rows, number of the first stored row, and the stored rows, counted from the first row.
        """
        if self.rows is None:
            for begin in range(0, self.n_rows, size):
                n = min(size, self.n_rows - begin)
                yield begin, n, begin, np.arange(n, dtype=np.int32)
            return
        first = 0
        while first < len(self.rows):
            begin = int(self.rows[first])
            last = min(first + size, len(self.rows))
            if self.rows[last - 1] - begin > MAX_SPARSENESS * size:
                last = first + int(np.searchsorted(self.rows[first:last], begin + MAX_SPARSENESS * size))
            own = self.rows[first:last]
            yield begin, int(own[-1]) + 1 - begin, first, own - np.int32(begin)
            first = last


def stored_rows(
    arguments: Sequence[RowArgument],
    functions: Sequence[tuple[int, int, int, int]],
    conditions: Sequence[OfPlace],
    holds: Sequence[Sequence[bool]],
    able: Bools,
    states: npt.NDArray[np.uint16],
) -> StoredRows:
    """Return the rows of which a search can read columns.

    Rows around others, and those that functions add up, are any rows; then all rows are stored.

    Parameters
    ----------
    arguments, functions
        As of `cer_gpu.backend.row_search.SearchPlan`.
    conditions
        Those of each place on other rows.
    holds
        For each set, its places.
    able : bool, shape (n states, n places)
    states : uint16, shape (n rows,)
        As of `cer_gpu.backend.row_patterns.walk_rows`.
    """
    n = len(states)
    every = StoredRows(n, None, np.empty(0, np.int32))
    adds_up = any(kind != m.MATCHES for kind, *_ in functions)
    if n >= MAX_RANKED or adds_up or any(offset for *_, offset in arguments):
        return every
    read = np.array(
        [bool(own) or any(in_set[place] for in_set in holds) for place, own in enumerate(conditions)], np.bool_
    )
    is_stored: Bools = np.asarray(able[:, read].any(axis=1))
    if is_stored[states[:: max(1, n // SAMPLED_STATES)]].mean() > MOST_STORED:
        return every
    rows, ranks = np.empty(n + 1, np.int32), np.empty(n + 1, np.int32)
    n_stored = list_marked(states, is_stored, rows, ranks)
    return StoredRows(n, rows[:n_stored].copy(), ranks)
