"""The loop of LIMIT n EVERY d: the recent matches of each partition, as a linked list over the last `length`.

An entry is a row of `entries` (int64): NEXT, the entry after it (a later one, or the next free one); AMOUNT, how many
matches were reported at an event; and CLOCK, its clock, in the bits of `clocks`, the same memory.  A partition is a
row of `parts`: its FIRST entry, or -1, its LAST one, and TOTAL, the sum of the amounts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import kernel

# an entry, and a partition
NEXT, AMOUNT, CLOCK, N_ENTRY = range(4)
FIRST, LAST, TOTAL, N_PART = range(4)

# registers: the first free entry, or -1; how many matches are left out; the end of the last row, and how many
# of that end are within LIMIT n
FREE, LEFT_OUT, END, N_AT_END, N_REGS = range(5)

_U = np.uint64


class RecentMatches(NamedTuple):
    """The matches that were reported recently.

    Attributes
    ----------
    parts : int64, shape (partitions, N_PART), written
    entries : int64, shape (size, N_ENTRY), written
    clocks : clock, shape (size, N_ENTRY), written
        The same memory.
    """

    parts: Any
    entries: Any
    clocks: Any


@kernel
def keep_some(ends, amounts, partitions, clocks, n_max, length, recent, begin, chosen, regs):
    """Keep at most `n_max` matches of a partition in any `length`, the earliest of them.

    Parameters
    ----------
    ends : int64, shape (n,)
        Positions of the ends of rows, ascending.
    amounts : int64, shape (n,), or (0,)
        Matches of each row; empty: one.
    partitions : int32, shape (n,)
    clocks : clock, shape (n,)
        Clock of each end; within a partition they do not decrease.
    n_max : int
    length : clock
    recent : RecentMatches
    begin : int
        Row to begin at.
    chosen : int64, shape (n,), written
        Number of matches of each row that are reported.
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        The row after the last one read: n, or where an entry is missing.
    """
    recent = RecentMatches(*recent)
    parts, entries, clock_of = recent.parts, recent.entries, recent.clocks
    counted = amounts.shape[0] > 0
    i = begin
    while i < ends.shape[0] and regs[FREE] >= 0:
        row = _U(i)
        p, clock, end = _U(partitions[row]), clocks[row], ends[row]
        if end != regs[END]:
            regs[END], regs[N_AT_END] = end, 0
        offered = min(amounts[row] if counted else np.int64(1), n_max - regs[N_AT_END])
        regs[N_AT_END] += offered
        first = parts[p, FIRST]
        while first >= 0 and clock - clock_of[_U(first), CLOCK] > length:
            entry = _U(first)
            parts[p, TOTAL] -= entries[entry, AMOUNT]
            later = entries[entry, NEXT]
            entries[entry, NEXT] = regs[FREE]
            regs[FREE] = first
            first = later
        parts[p, FIRST] = first
        taken = min(offered, n_max - parts[p, TOTAL])
        chosen[row] = taken
        regs[LEFT_OUT] += offered - taken
        if taken > 0:
            parts[p, TOTAL] += taken
            new = regs[FREE]
            entry = _U(new)
            regs[FREE] = entries[entry, NEXT]
            entries[entry, NEXT] = -1
            entries[entry, AMOUNT] = taken
            clock_of[entry, CLOCK] = clock
            if first < 0:
                parts[p, FIRST] = new
            else:
                entries[_U(parts[p, LAST]), NEXT] = new
            parts[p, LAST] = new
        i += 1
    return i
