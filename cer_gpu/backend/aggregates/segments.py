"""Aggregates over the events that a variable holds, for each complex event of a buffer.

A row is a complex event: entries ``offsets[i]`` to ``offsets[i + 1]`` of `marks` and `places` are those of its
positions.  Its variable holds the entries whose mark it `holds`; `places` are the rows at which the values of their
events stand.  Indices are unsigned, so that none is taken to count from the end of an array.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import kernel

_U = np.uint64


@kernel
def look_up_positions(positions, low, numbers, places):
    """Look up the row of each position.

    Parameters
    ----------
    positions : int64, shape (k,)
    low : int
    numbers : int32, shape (n,)
        Row of each position, counted from `low`.
    places : int32, shape (k,), written
    """
    for p in range(positions.shape[0]):
        places[_U(p)] = numbers[_U(positions[p] - low)]


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
        for p in range(offsets[_U(i)], offsets[_U(i + 1)]):
            if holds[_U(marks[_U(p)])]:
                place = places[_U(p)]
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
        for p in range(offsets[_U(i)], offsets[_U(i + 1)]):
            n += holds[_U(marks[_U(p)])]
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
        for p in range(offsets[_U(i)], offsets[_U(i + 1)]):
            if holds[_U(marks[_U(p)])]:
                gathered[n] = places[_U(p)]
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
        for p in range(offsets[_U(i)], offsets[_U(i + 1)]):
            place = _U(places[_U(p)])
            if holds[_U(marks[_U(p)])] and valid[place]:
                value = values[place]
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
        for p in range(offsets[_U(i)], offsets[_U(i + 1)]):
            place = _U(places[_U(p)])
            if holds[_U(marks[_U(p)])] and valid[place]:
                total += values[place]
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
    ranks : int64 or float64, shape (events,)
        In the order of the values; NaN is chosen last.
    valid : bool, shape (events,)
        False for NULL.
    sign : int
        1 for the greatest value, -1 for the least.
    found : int32, shape (rows,), written
        Place of the event; -1 where there is none.
    """
    for i in range(found.shape[0]):
        best = -1
        for p in range(offsets[_U(i)], offsets[_U(i + 1)]):
            place = places[_U(p)]
            if not holds[_U(marks[_U(p)])] or not valid[_U(place)]:
                continue
            rank, least = ranks[_U(place)], ranks[_U(max(best, 0))]
            if best < 0 or least != least or (rank > least if sign > 0 else rank < least):
                best = place
        found[i] = best
