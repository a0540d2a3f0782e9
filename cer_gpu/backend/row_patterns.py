"""Row patterns in linear time: a pass from the end tells which places can still finish, one from the start takes them.

The pass from the end is a deterministic automaton over the symbols of rows, read backward; its states are the sets of
places that may take a row and then finish.  With them, the pass from the start never turns back: the first place in the
order of preference that can finish is the one that backtracking would find (Frisch and Cardelli 2004, Greedy regular
expression matching).

No automaton is made of places that take several rows (`mark_counted`, `walk_counted`): the pass from the end marks for
each position and place if the match can continue there after the place, and links it with the next such position.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper, kernel

NOT_BUILT = -1
"""An entry of a table that is not made yet."""
ACCEPT, NONE = -1, -2
"""In place of a place: the match ends, or nothing can take the row."""
NOWHERE = 2**31 - 1
"""In place of a position: there is none."""
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
        `NOT_BUILT`: not made yet.  State 0 is that after the last row of a partition.
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
            entry = before[state + symbols[i]]
            if entry < 0:
                return i, partition, state
            states[i] = entry >> bits
            state = entry
        row = first - 1
        state = 0
        partition -= 1
    return -1, -1, 0


@kernel
def walk_past(states, ends, steps, bits, n_places, at, partition, starts, offsets, places):
    """Take the preferred places, one match after another, until all rows are read or a buffer is full.

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
        Index of the first place of each match, and that after the places of the last one.
    places : int16, shape (place capacity,), written

    Returns
    -------
    (int, int, int, int, int)
        Outcome, matches, places, and the row and partition to continue at.
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
            n_free = min(len(starts) - n_begun, len(places) - n_taken)
            if n_free == 0:
                outcome = FULL
                break
            if step == none:  # rows at which no match begins are passed by at once
                while at < end and steps[none + states[at]] == none:
                    at += 1
            stop = min(end, at + n_free, at + BLOCK)
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
        Index of the first place of each match, and that after the places of the last one.
    places : int16, shape (place capacity,), written

    Returns
    -------
    (int, int, int, int, int)
        Outcome, matches, places, and the row and partition to continue at (for an error: those of the match).
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


@kernel
def mark_counted(symbols, ends, partition, last, satisfies, counts, begins, nexts, at_end, runs, links):
    """Mark which places that take several rows can finish, from the last row of each partition to the first.

    A row of a partition has a position: rows before it in `symbols` and, as the end of each partition has one, too,
    partitions before it.

    Parameters
    ----------
    symbols : uint16, shape (n rows,)
        Those of the partitions at hand.
    ends : int64, shape (n partitions,)
        The row after each of all partitions.
    partition, last : int
        The first partition at hand, and that after the last one.
    satisfies : bool, shape (n symbols, n places)
        Places that can take a row with a symbol.
    counts : int32, shape (3, n places)
        The least and most rows of each place, and 1 where more are preferred.
    begins : int64, shape (n places + 3,)
        First of `nexts` of each place, and of the lists of starts.
    nexts : int16, shape (n nexts,)
        Places in the order of preference; `ACCEPT` ends a match.
    at_end : bool, shape (n places,)
        Places after which a match may end at the end of its partition.
    runs : int32, shape (n positions, n places), written
        Rows from a position that a place can take.
    links : int32, shape (n positions, n places), written
        The last position up to this one after which a match can go on after the place (-1 if none), or where fewer rows
        are preferred the first one from here on (2^31 - 1: none).
    """
    n_places = counts.shape[1]
    origin = ends[partition - 1] if partition else 0
    for p in range(partition, last):
        first = ends[p - 1] if p else 0
        begin = first - origin + p - partition
        end = begin + ends[p] - first
        for j in range(n_places):
            runs[end, j], links[end, j] = 0, end if at_end[j] else NOWHERE
        for at in range(end - 1, begin - 1, -1):
            symbol = symbols[at - (p - partition)]
            for j in range(n_places):
                runs[at, j] = runs[at + 1, j] + 1 if satisfies[symbol, j] else 0
            for j in range(n_places):
                links[at, j] = links[at + 1, j]
                for i in range(begins[j], begins[j + 1]):
                    place = nexts[i]
                    if place == ACCEPT or _can_take(counts, runs, links, at, place):
                        links[at, j] = at
                        break
        for j in range(n_places):
            if counts[2, j]:
                link = np.int32(-1)
                for at in range(begin, end + 1):
                    if links[at, j] == at:
                        link = np.int32(at)
                    links[at, j] = link


@helper
def _can_take(counts, runs, links, at, place):
    """Return whether a place can take rows from a position and finish, given the first positions to continue at."""
    least, run = counts[0, place], runs[at, place]
    return run >= least and links[at + least, place] <= at + min(run, counts[1, place])


@kernel
def walk_counted(
    ends, group, last, counts, begins, nexts, runs, links, skip, targets, at, partition, starts, offsets, places
):
    """Take the preferred places of the partitions at hand, match by match, until all are read or a buffer is full.

    Parameters
    ----------
    ends : int64, shape (n partitions,)
        As of `mark_counted`, like those that follow.
    group, last : int
        `partition` and `last` of `mark_counted`.
    counts : int32, shape (3, n places)
    begins : int64, shape (n places + 3,)
    nexts : int16, shape (n nexts,)
    runs : int32, shape (n positions, n places)
    links : int32, shape (n positions, n places)
    skip : int
        As of `walk_rows`, like those that follow.
    targets : bool, shape (n places,)
    at, partition : int
    starts : int64, shape (capacity,), written
    offsets : int64, shape (capacity + 1,), written
    places : int16, shape (place capacity,), written

    Returns
    -------
    (int, int, int, int, int)
        As of `walk_rows`.
    """
    n_matches = n_taken = offsets[0] = 0
    n_places = counts.shape[1]
    origin = ends[group - 1] if group else 0
    while partition < last:
        end = ends[partition]
        first = ends[partition - 1] if partition else 0
        shift = partition - group - origin
        while at < end:
            place = _next_place(counts, begins, nexts, runs, links, at + shift, n_places + (at == first))
            if place == NONE:
                at += 1
                continue
            if n_matches == len(starts):
                return FULL, n_matches, n_taken, at, partition
            taken, row = n_taken, at
            while place != ACCEPT:
                here = row + shift
                n_max = min(runs[here, place], counts[1, place])
                after = links[here + n_max, place] if counts[2, place] else links[here + counts[0, place], place]
                if taken + after - here > len(places):
                    return FULL, n_matches, n_taken, at, partition
                for i in range(after - here):
                    places[taken + i] = place
                taken += after - here
                row += after - here
                if row == end:
                    break
                place = _next_place(counts, begins, nexts, runs, links, after, place)
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
def _next_place(counts, begins, nexts, runs, links, at, before):
    """Return the place that takes rows from a position after another, `ACCEPT` or `NONE`."""
    for i in range(begins[before], begins[before + 1]):
        place = np.int64(nexts[i])
        if place == ACCEPT:
            return place
        least, run = np.int64(counts[0, place]), np.int64(runs[at, place])
        if run >= least:
            n_max = min(run, np.int64(counts[1, place]))
            greedy = counts[2, place]
            if links[at + n_max, place] >= at + least if greedy else links[at + least, place] <= at + n_max:
                return place
    return np.int64(NONE)


@helper
def next_start(skip, targets, places, offset, length, at):
    """Return the row to continue at after a match, -1 if it has no row to skip to, or `at` if that is its first row."""
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
    rows, steps, matches : int64, shape (capacity,), written
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
