"""Memory of a search for a row pattern: the rows of the match so far, and the values of functions at each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.aggregates.segments import exceeds
from cer_gpu.backend.jit import helper

_U = np.uint64

COUNT, SUM_I, SUM_F, AVG, EXTREME, MATCHES = range(6)
"""Functions over the match so far."""


class SearchMemory(NamedTuple):
    """The match so far, row by row.

    Attributes
    ----------
    path : int16, shape (capacity,), written
        Place of each row.
    tried : int64, shape (capacity,), written
        The choice to go on with for each row; at the last of several rows that a place takes at once, -1 - n, if n rows
        are before them.
    resumed : int64, shape (capacity,), written
        For the first row of a repetition, the row after it that was tried last; -1 if there is none.
    counts : int64, shape (capacity, sets), written
        Rows of each set up to each row.
    positions : int64, shape (sets, capacity), written
        Rows of each set.
    totals : int64, shape (capacity, functions), written
        Values of functions at each row: a number, the bits of a float64, or a row.
    totals_f : float64, shape (capacity, functions), written
        The same memory.
    tallies : int64, shape (capacity, functions), written
        Values that are not NULL.
    counters : int64, shape (6,), written
        Matches of the partition so far, steps of all searches, and the search for the match that begins at the row at
        hand: its steps so far (0: it begins), its rows, and the choice to continue with; then 1 if anything is noted in
        `dead`.
    dead : int64, shape (a power of two, 1 + max reads of a place), written
        Rows and places after which nothing finishes: 1 + row * places + place, and what is read; a later one takes the
        space of an earlier one.  Without rows, nothing is noted.
    """

    path: Any
    tried: Any
    resumed: Any
    counts: Any
    positions: Any
    totals: Any
    totals_f: Any
    tallies: Any
    counters: Any
    dead: Any


@helper
def push_row(plan, memory, row, depth, place):
    """Add a row to the match so far; return False if a sum does not fit int64."""
    memory.path[_U(depth)] = place
    for s in range(plan.holds.shape[0]):
        i = _U(s)
        n = memory.counts[_U(depth - 1), i] if depth else 0
        if plan.holds[i, _U(place)]:
            memory.positions[i, _U(n)] = row
            n += 1
        memory.counts[_U(depth), i] = n
    for s in range(plan.functions.shape[0]):
        f = _U(s)
        kind, column = plan.functions[f, 0], plan.functions[f, 2]
        total = memory.totals[depth - 1, f] if depth else np.int64(0)
        tally = memory.tallies[depth - 1, f] if depth else np.int64(0)
        memory.totals[depth, f] = total
        if kind != MATCHES and plan.holds[plan.functions[f, 1], place] and (column < 0 or plan.valid[column, row]):
            tally += 1
            if kind == SUM_I:
                value = plan.inputs[column, row]
                more = total + value
                if ((total ^ more) & (value ^ more)) < 0:
                    return False
                memory.totals[depth, f] = more
            elif kind in (SUM_F, AVG):
                memory.totals_f[depth, f] += plan.inputs_f[column, row]
            elif kind == EXTREME:
                sign = plan.functions[f, 3]
                if tally == 1 or exceeds(plan.inputs[column, row], plan.inputs[column, total], sign):
                    memory.totals[depth, f] = row
        memory.tallies[depth, f] = tally
    return True


@helper
def push_rows(plan, memory, at, begin, last, place):
    """Let a repetition take rows from one to another, by their numbers in the match; no sum of integers overflows."""
    number_of_place = _U(place)
    for i in range(begin, last + 1):
        memory.path[_U(i)] = place
    for s in range(plan.holds.shape[0]):
        number = _U(s)
        n = memory.counts[_U(begin - 1), number] if begin > 0 else np.int64(0)
        if plan.holds[number, number_of_place]:
            for i in range(begin, last + 1):
                memory.positions[number, _U(n)] = at + i
                n += 1
                memory.counts[_U(i), number] = n
        else:
            for i in range(begin, last + 1):
                memory.counts[_U(i), number] = n
    for s in range(plan.functions.shape[0]):
        f = _U(s)
        kind, column = plan.functions[f, 0], plan.functions[f, 2]
        total = memory.totals[_U(begin - 1), f] if begin > 0 else np.int64(0)
        total_f = memory.totals_f[_U(begin - 1), f] if begin > 0 else 0.0
        tally = memory.tallies[_U(begin - 1), f] if begin > 0 else np.int64(0)
        if kind == MATCHES or not plan.holds[_U(plan.functions[f, 1]), number_of_place]:
            for i in range(begin, last + 1):
                memory.totals[_U(i), f] = total
                memory.tallies[_U(i), f] = tally
        elif kind in (SUM_F, AVG):
            for i in range(begin, last + 1):
                row = _U(at + i)
                if plan.valid[_U(column), row]:
                    tally += 1
                    total_f += plan.inputs_f[_U(column), row]
                memory.totals_f[_U(i), f] = total_f
                memory.tallies[_U(i), f] = tally
        else:
            sign = plan.functions[f, 3]
            for i in range(begin, last + 1):
                row = at + i
                if column < 0 or plan.valid[_U(column), _U(row)]:
                    tally += 1
                    if kind == SUM_I:
                        total += plan.inputs[_U(column), _U(row)]
                    elif kind == EXTREME and (
                        tally == 1
                        or exceeds(plan.inputs[_U(column), _U(row)], plan.inputs[_U(column), _U(total)], sign)
                    ):
                        total = row
                memory.totals[_U(i), f] = total
                memory.tallies[_U(i), f] = tally


@helper
def extend_rows(memory, depth, last, place):
    """Let the place of a row take more rows, of which no condition reads anything."""
    here, there = _U(depth), _U(last)
    for i in range(depth + 1, last + 1):
        memory.path[_U(i)] = place
    for s in range(memory.counts.shape[1]):
        memory.counts[there, _U(s)] = memory.counts[here, _U(s)]
    for s in range(memory.totals.shape[1]):
        memory.totals[there, _U(s)] = memory.totals[here, _U(s)]
        memory.tallies[there, _U(s)] = memory.tallies[here, _U(s)]
