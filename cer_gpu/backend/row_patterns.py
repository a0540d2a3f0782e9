"""Row patterns in linear time: a pass from the end tells which places can still finish, one from the start takes them.

The pass from the end is a deterministic automaton over the symbols of rows, read backward; its states are the sets of
places that may take a row and then finish.  With them, the pass from the start never turns back: the first place in the
order of preference that can finish is the one that backtracking would find (Frisch and Cardelli 2004, Greedy regular
expression matching).
"""

from __future__ import annotations

from cer_gpu.backend.jit import helper, kernel

UNMADE = -1
"""An entry of a table that is not made yet."""
ACCEPT, NONE = -1, -2
"""In place of a place: the match ends, or nothing can take the row."""
PAST_LAST_ROW, TO_NEXT_ROW, TO_FIRST, TO_LAST = range(4)
"""Places to begin the search for the next match at."""
DONE, FULL, MISSING, SAME = range(4)
"""Outcomes of `walk_rows`: all partitions done, a buffer full, no row to skip to, and a skip to the first row."""
ENDS, BEGINS, TAKES = 1, 2, 4
"""Marks of a step of `walk_past`: a match ends before the row, one begins at it, and it is a row of a match."""
BLOCK = 256
"""Rows that `walk_past` reads before it looks for rows at which no match begins."""


@kernel
def mark_finishing(symbols, ends, before, bits, states, row, partition, state):
    """Mark the state of each row, from the last one to the first.

    Parameters
    ----------
    symbols : uint16, shape (n rows,)
    ends : int64, shape (n partitions,)
        The row after each partition.
    before : int32, shape (n entries,)
        At ``(state << bits) + symbol``, ``state << bits`` for a row with a symbol before a row with a state;
        `UNMADE`: not made yet.  State 0 is that after the last row of a partition.
    bits : int
        Bits of a symbol.
    states : uint16, shape (n rows,), written
    row, partition : int
        Row to begin at, downward, and its partition.
    state : int
        ``state << bits`` of the row after it.

    Returns
    -------
    (int, int, int)
        The row with an unknown state, its partition, and ``state << bits`` of the row after it; -1, -1 and 0 when all
        are known.
    """
    while partition >= 0:
        first = ends[partition - 1] if partition else 0
        for i in range(row, first - 1, -1):
            found = before[state + symbols[i]]
            if found < 0:
                return i, partition, state
            states[i] = found >> bits
            state = found
        row = first - 1
        state = 0
        partition -= 1
    return -1, -1, 0


@kernel
def walk_past(states, ends, steps, bits, n_places, at, partition, starts, offsets, places):
    """Take the preferred places, one match behind another, until all rows are read or a buffer is full.

    As `walk_rows` for `PAST_LAST_ROW` and a pattern of which every match has a row: then a row is read once, and has
    one step, without a branch: the end of a match and the begin of the next are steps like others.

    Parameters
    ----------
    states : uint16, shape (n rows,)
    ends : int64, shape (n partitions,)
        The row after each partition.
    steps : int32, shape (n entries,)
        At ``(place << bits) + state``, after a place and before a row with a state: ``place << bits`` for that which
        takes the row (`n_places`: none), plus `ENDS`, `BEGINS` and `TAKES`.  After place `n_places` no match is begun;
        after ``n_places + 1`` no row of the partition is read.
    bits : int
        Bits of a state, at least three.
    n_places : int
    at, partition : int
        Row to begin at, where no match is begun, and its partition.
    starts : int64, shape (capacity,), written
        First row of each match.
    offsets : int64, shape (capacity + 1,), written
        Index of the first place of each match, and that behind the places of the last one.
    places : int16, shape (room,), written

    Returns
    -------
    (int, int, int, int, int)
        Outcome, matches, places, and the row and partition to go on at.
    """
    n_begun = n_ended = n_taken = 0
    none = n_places << bits
    outcome = DONE
    for p in range(partition, len(ends)):
        end = ends[p]
        first = ends[p - 1] if p else 0
        partition = p + 1
        step = (n_places + (at == first)) << bits
        while at < end:
            room = min(len(starts) - n_begun, len(places) - n_taken)
            if room == 0:
                outcome = FULL
                break
            if step == none:  # rows at which no match begins are passed by at once
                while at < end and steps[none + states[at]] == none:
                    at += 1
            stop = min(end, at + room, at + BLOCK)
            for row in range(at, stop):
                step = steps[(step & ~7) + states[row]]
                n_ended += step & ENDS
                starts[n_begun], offsets[n_begun] = row, n_taken
                n_begun += step >> 1 & 1
                places[n_taken] = step >> bits
                n_taken += step >> 2 & 1
            at = stop
        if outcome == FULL:
            partition = p
            if n_begun > n_ended:  # found again in the next piece
                n_begun -= 1
                at, n_taken = starts[n_begun], offsets[n_begun]
            break
        n_ended = n_begun
    offsets[n_ended] = n_taken
    return outcome, n_ended, n_taken, at, partition


@kernel
def walk_rows(states, ends, choices, n_places, skip, targets, at, partition, starts, offsets, places):
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
    starts : int64, shape (capacity,), written
        First row of each match.
    offsets : int64, shape (capacity + 1,), written
        Index of the first place of each match, and that behind the places of the last one.
    places : int16, shape (room,), written

    Returns
    -------
    (int, int, int, int, int)
        Outcome, matches, places, and the row and partition to go on at (for an error: those of the match).
    """
    n_matches = n_taken = offsets[0] = 0
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
            starts[n_matches] = at
            n_matches += 1
            offsets[n_matches] = taken
            target = next_start(skip, targets, places, n_taken, row - at, at)
            if target <= at:
                return MISSING if target < 0 else SAME, n_matches, n_taken, at, partition
            at = target
            n_taken = taken
        partition += 1
    return DONE, n_matches, n_taken, at, partition


@helper
def next_start(skip, targets, places, offset, length, at):
    """Return the row to go on at after a match; -1: it has no row to skip to, `at`: that is its first row."""
    if length == 0 or skip == TO_NEXT_ROW:
        return at + 1
    if skip == PAST_LAST_ROW:
        return at + length
    target = -1
    for i in range(length):
        if targets[places[offset + i]]:
            target = at + i
            if skip == TO_FIRST:
                break
    return target


@kernel
def list_rows(starts, offsets, places, shown, rows, steps, matches):
    """List the rows of matches that are shown, and empty matches as their first row.

    Parameters
    ----------
    starts : int64, shape (n matches,)
        As of `walk_rows`.
    offsets : int64, shape (n matches + 1,)
        As of `walk_rows`.
    places : int16, shape (n steps,)
        As of `walk_rows`.
    shown : bool, shape (n_places,)
        False for the places in an exclusion.
    rows, steps, matches : int64, shape (room,), written
        The row; its place in `places`, -1 for an empty match; the match.

    Returns
    -------
    int
        Number of rows.
    """
    n = 0
    for i in range(starts.shape[0]):
        begin, end = offsets[i], offsets[i + 1]
        if begin == end:
            rows[n], steps[n], matches[n] = starts[i], -1, i
            n += 1
        for p in range(begin, end):
            if shown[places[p]]:
                rows[n], steps[n], matches[n] = starts[i] + p - begin, p, i
                n += 1
    return n
