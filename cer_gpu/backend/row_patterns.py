"""Row patterns in linear time: a pass from the end tells which places can still finish, one from the start takes them.

The pass from the end is a deterministic automaton over the symbols of rows, read backward; its states are the sets of
places that may take a row and then finish.  With them, the pass from the start never turns back: the first place in the
order of preference that can finish is the one that backtracking would find (Frisch and Cardelli 2004, Greedy regular
expression matching).
"""

from __future__ import annotations

from cer_gpu.backend.jit import kernel

UNKNOWN = -1
"""An entry of a table that is not made yet."""
ACCEPT, NONE = -1, -2
"""In place of a place: the match ends, or nothing can take the row."""
PAST_LAST_ROW, TO_NEXT_ROW, TO_FIRST, TO_LAST = range(4)
"""Where the search for the next match begins."""
DONE, FULL, MISSING, SAME = range(4)
"""Outcomes of `walk`: all partitions done, a buffer full, no row to skip to, and a skip to the first row."""


@kernel
def mark_finishing(symbols, lasts, before, before_end, states, start, state):
    """Mark the state of each row, from the last one to the first.

    Parameters
    ----------
    symbols : int32, shape (n rows,)
    lasts : bool, shape (n rows,)
        The last row of each partition.
    before : int32, shape (n states, n symbols)
        State of a row with a symbol before a row with a state; `UNKNOWN`: not made yet.
    before_end : int32, shape (n symbols,)
        State of a row that is the last one of its partition.
    states : uint16, shape (n rows,), written
    start : int
        Row to begin at, downward.
    state : int
        State of the row after it.

    Returns
    -------
    (int, int)
        The row with an unknown state and the state of the row after it; -1 and 0 when all are known.
    """
    for i in range(start, -1, -1):
        found = before_end[symbols[i]] if lasts[i] else before[state, symbols[i]]
        if found < 0:
            return i, state
        states[i] = found
        state = found
    return -1, 0


@kernel
def walk(states, ends, choices, n_places, skip, targets, at, partition, starts, lengths, offsets, places):
    """Take the preferred places, match by match, until all rows are read or a buffer is full.

    Parameters
    ----------
    states : uint16, shape (n rows,)
    ends : int64, shape (n partitions,)
        The row after each partition.
    choices : int16, shape (n states, n_places + 2)
        After each place, before a row with a state: the place that takes the row, `ACCEPT` or `NONE`; then those that
        begin a match, and those that begin one at the first row of a partition.
    n_places : int
    skip : int
        `PAST_LAST_ROW`, `TO_NEXT_ROW`, `TO_FIRST` or `TO_LAST`.
    targets : bool, shape (n_places,)
        Places of the variable to skip to.
    at, partition : int
        Row to begin at, and its partition.
    starts, lengths, offsets : int64, shape (capacity,), written
        Of each match: its first row, its number of rows, and where its places begin.
    places : int16, shape (capacity,), written

    Returns
    -------
    (int, int, int, int, int)
        Outcome, matches, places, and the row and partition to go on at (for an error: those of the match).
    """
    n_matches = n_taken = 0
    while partition < len(ends):
        end = ends[partition]
        first = ends[partition - 1] if partition else 0
        while at < end:
            place = choices[states[at], n_places + 1 if at == first else n_places]
            if place == NONE:
                at += 1
                continue
            if n_matches == len(starts):
                return FULL, n_matches, n_taken, at, partition
            taken = n_taken
            row = at
            while place != ACCEPT:
                if taken == len(places):
                    return FULL, n_matches, n_taken, at, partition
                places[taken] = place
                taken += 1
                row += 1
                if row == end:
                    break
                place = choices[states[row], place]
            starts[n_matches], lengths[n_matches], offsets[n_matches] = at, row - at, n_taken
            n_matches += 1
            if row == at or skip == TO_NEXT_ROW:
                at += 1
            elif skip == PAST_LAST_ROW:
                at = row
            else:
                target = -1
                for i in range(n_taken, taken):
                    if targets[places[i]]:
                        target = at + i - n_taken
                        if skip == TO_FIRST:
                            break
                if target <= at:
                    return MISSING if target < 0 else SAME, n_matches, n_taken, at, partition
                at = target
            n_taken = taken
        partition += 1
    return DONE, n_matches, n_taken, at, partition
