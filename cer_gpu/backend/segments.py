"""Aggregates over the events that a variable holds, for each complex event of a buffer.

A row is a complex event: entries ``offsets[i]`` to ``offsets[i + 1]`` of `marks` and `places` are those of its
positions.  Its variable holds the entries whose mark it `holds`; `places` number the distinct positions of the buffer,
by which the values of their events are looked up.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import kernel


@kernel
def note_positions(positions, low, noted):
    """Note which positions occur.

    Parameters
    ----------
    positions : int64, shape (k,)
    low : int
        The least of them.
    noted : int32, shape (at least greatest - least + 1,), written
        1 for each position that occurs, counted from `low`; else unchanged.
    """
    for p in range(positions.shape[0]):
        noted[positions[p] - low] = 1


@kernel
def number_positions(noted, low, distinct):
    """Give each noted position its number, in their order.

    Parameters
    ----------
    noted : int32, shape (n,), written
        1 for each position that occurs, and 0 for others; then the number of each that occurs.
    low : int
    distinct : int64, shape (at least as many as occur,), written
        The positions that occur, ascending.
    """
    n = 0
    for p in range(noted.shape[0]):
        if noted[p]:
            noted[p] = n
            distinct[n] = p + low
            n += 1


@kernel
def look_up_positions(positions, low, numbers, places):
    """Look up the number of each position.

    Parameters
    ----------
    positions : int64, shape (k,)
    low : int
    numbers : int32, shape (n,)
    places : int32, shape (k,), written
    """
    for p in range(positions.shape[0]):
        places[p] = numbers[positions[p] - low]


@kernel
def one_held(offsets, marks, holds, places, last, found):
    """Find the first or last event that a variable holds.

    Parameters
    ----------
    offsets : int32, shape (rows + 1,)
    marks : int32, shape (k,)
    holds : bool, shape (marks,)
    places : int32, shape (k,)
    last : int
        1 for the last event, else 0.
    found : int32, shape (rows,), written
        Place of the event; -1 where the variable holds none.
    """
    for i in range(found.shape[0]):
        place = -1
        for p in range(offsets[i], offsets[i + 1]):
            if holds[marks[p]]:
                place = places[p]
                if last == 0:
                    break
        found[i] = place


@kernel
def count_held(offsets, marks, holds, counts):
    """Count the events that a variable holds.

    Parameters
    ----------
    offsets : int32, shape (rows + 1,)
    marks : int32, shape (k,)
    holds : bool, shape (marks,)
    counts : int64, shape (rows,), written
    """
    for i in range(counts.shape[0]):
        n = 0
        for p in range(offsets[i], offsets[i + 1]):
            n += holds[marks[p]]
        counts[i] = n


@kernel
def gather_held(offsets, marks, holds, places, bounds, gathered):
    """Gather the events that a variable holds, row by row.

    Parameters
    ----------
    offsets : int32, shape (rows + 1,)
    marks : int32, shape (k,)
    holds : bool, shape (marks,)
    places : int32, shape (k,)
    bounds : int32, shape (rows + 1,), written
        Offsets of the rows into `gathered`.
    gathered : int32, shape (k,), written
        Places of the events.

    Returns
    -------
    int
        Number of events.
    """
    n = 0
    bounds[0] = 0
    for i in range(bounds.shape[0] - 1):
        for p in range(offsets[i], offsets[i + 1]):
            if holds[marks[p]]:
                gathered[n] = places[p]
                n += 1
        bounds[i + 1] = n
    return n


@kernel
def sum_integers(offsets, marks, holds, places, values, valid, sums, counts):
    """Add up the integers of the events that a variable holds.

    Parameters
    ----------
    offsets : int32, shape (rows + 1,)
    marks : int32, shape (k,)
    holds : bool, shape (marks,)
    places : int32, shape (k,)
    values : int64, shape (events,)
    valid : bool, shape (events,)
        False for NULL.
    sums : int64, shape (rows,), written
    counts : int64, shape (rows,), written
        Number of values that are not NULL.

    Returns
    -------
    int
        The first row whose sum int64 does not hold; -1 if there is none.
    """
    for i in range(sums.shape[0]):
        total = np.int64(0)
        n = 0
        for p in range(offsets[i], offsets[i + 1]):
            if holds[marks[p]] and valid[places[p]]:
                value = values[places[p]]
                more = total + value
                if ((total ^ more) & (value ^ more)) < 0:
                    return i
                total = more
                n += 1
        sums[i] = total
        counts[i] = n
    return -1


@kernel
def sum_floats(offsets, marks, holds, places, values, valid, sums, counts):
    """Add up the floats of the events that a variable holds, in their order.

    Parameters
    ----------
    offsets : int32, shape (rows + 1,)
    marks : int32, shape (k,)
    holds : bool, shape (marks,)
    places : int32, shape (k,)
    values : float64, shape (events,)
    valid : bool, shape (events,)
        False for NULL.
    sums : float64, shape (rows,), written
    counts : int64, shape (rows,), written
        Number of values that are not NULL.
    """
    for i in range(sums.shape[0]):
        total = 0.0
        n = 0
        for p in range(offsets[i], offsets[i + 1]):
            if holds[marks[p]] and valid[places[p]]:
                total += values[places[p]]
                n += 1
        sums[i] = total
        counts[i] = n


@kernel
def extreme_held(offsets, marks, holds, places, ranks, valid, sign, found):
    """Find the event with the least or greatest value among those that a variable holds, the first of equals.

    Parameters
    ----------
    offsets : int32, shape (rows + 1,)
    marks : int32, shape (k,)
    holds : bool, shape (marks,)
    places : int32, shape (k,)
    ranks : int64, shape (events,)
        In the order of the values.
    valid : bool, shape (events,)
        False for NULL.
    sign : int
        1 for the greatest value, -1 for the least.
    found : int32, shape (rows,), written
        Place of the event; -1 where there is none.
    """
    for i in range(found.shape[0]):
        best = -1
        for p in range(offsets[i], offsets[i + 1]):
            place = places[p]
            if not holds[marks[p]] or not valid[place]:
                continue
            if best < 0 or (ranks[place] > ranks[best] if sign > 0 else ranks[place] < ranks[best]):
                best = place
        found[i] = best
