"""Sets of runs of a chain as numbers: how many runs, and, where they are weighed, what their weights come to.

`cer_gpu.backend.chains.counting` adds and multiplies such sets.  The weight of a run is the sum of what its events add
to an expression over a match.  A set is a tuple of one number, or of four:

- how many runs it has;
- how many of them have a weight, as no value is NULL; for the least value, bits for what kinds of weights they have;
- the sum of the weights, or the least of the finite ones, as a float and as an integer modulo 2**64.

The float beside a sum of integers tells whether the integer is the sum itself.  Loops are compiled for each size of the
sets by itself, as the length of a tuple is known then: a count does nothing for weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper
from cer_gpu.backend.saturating import plus, times

FINITE, INFINITE, NEGATIVE, NOT_A_NUMBER = 1, 2, 4, 8
"""Kinds of weights, as bits; a sum has only the first, for those that are not NULL."""

_U = np.uint64
_ONE = np.uint64(1)
_NONE = np.uint64(0)
_FINITE = np.uint64(FINITE)
_INFINITE = np.uint64(INFINITE)
_NEGATIVE = np.uint64(NEGATIVE)
_NOT_A_NUMBER = np.uint64(NOT_A_NUMBER)


class RunSets(NamedTuple):
    """Sets of runs; only the first array is there where runs are not weighed.

    Attributes
    ----------
    runs : uint64, shape (at least 1, at least columns), written
    weighed : uint64, shape (at least 1, at least columns), written
        Runs with a weight, or the kinds of their weights.
    floats : float64, shape (at least 1, at least columns), written
    integers : uint64, shape (at least 1, at least columns), written
    """

    runs: Any
    weighed: Any
    floats: Any
    integers: Any


class Weights(NamedTuple):
    """Weights of events: at each of some steps, what an event adds to the expression.

    Attributes
    ----------
    kinds : uint64, shape (at least 0, weights), written
        Kind of each weight; 0 where it is NULL.
    floats : float64, shape (at least 0, weights), written
        The weight; 0 where it is not finite.
    integers : uint64, shape (at least 0, weights), written
    """

    kinds: Any
    floats: Any
    integers: Any


class WeightTotals(NamedTuple):
    """Buffers for what the weights of matches come to, beside their numbers.

    Attributes
    ----------
    weighed : uint64, shape (ends,), written
    floats : float64, shape (ends,), written
    integers : uint64, shape (ends,), written
    """

    weighed: Any
    floats: Any
    integers: Any


# ---- sets -------------------------------------------------------------------------------------------------------


@helper
def no_runs(sets):
    """Return the set of no runs, as one of `sets`."""
    if len(sets) == 1:
        return (_NONE,)
    return _NONE, _NONE, 0.0, _NONE


@helper
def one_run(sets):
    """Return the set of one run of weight 0, as one of `sets`."""
    if len(sets) == 1:
        return (_ONE,)
    return _ONE, _ONE, 0.0, _NONE


@helper
def set_at(sets, i, j):
    """Return a set from its place."""
    place = _U(i), _U(j)
    if len(sets) == 1:
        return (sets[0][place],)
    return sets[0][place], sets[1][place], sets[2][place], sets[3][place]


@helper
def put_set(sets, i, j, runs):
    """Write a set to its place."""
    place = _U(i), _U(j)
    sets[0][place] = runs[0]
    if len(sets) > 1:
        weighed = RunSets(*sets)
        weighed.weighed[place], weighed.floats[place], weighed.integers[place] = runs[1], runs[2], runs[3]


@helper
def unite(a, b, least):
    """Return the set of the runs of two sets."""
    runs = plus(a[0], b[0])
    if len(a) == 1:
        return (runs,)
    if b[1] == _NONE:
        weighed, number, integer = a[1], a[2], a[3]
    elif a[1] == _NONE:
        weighed, number, integer = b[1], b[2], b[3]
    elif least:
        weighed = a[1] | b[1]
        number = a[2]
        if not a[1] & _FINITE or (b[1] & _FINITE and b[2] < number):
            number = b[2]
        integer = min(np.int64(a[3]), np.int64(b[3]))
        integer = _U(integer)
    else:
        weighed = plus(a[1], b[1])
        number = a[2] + b[2]
        integer = a[3] + b[3]
    return runs, weighed, number, integer


@helper
def join_runs(a, b, least):
    """Return the set of all runs that one of `a` and one of `b` make together."""
    runs = times(a[0], b[0])
    if len(a) == 1:
        return (runs,)
    weighed, number, integer = _NONE, 0.0, _NONE
    if a[1] != _NONE and b[1] != _NONE:
        if least:
            weighed = _both_kinds(a[1], b[1])
            number = a[2] + b[2] if weighed & _FINITE else 0.0
            integer = a[3] + b[3]
        else:
            weighed = times(a[1], b[1])
            number = np.float64(a[1]) * b[2] + a[2] * np.float64(b[1])
            integer = a[1] * b[3] + a[3] * b[1]
    return runs, weighed, number, integer


@helper
def lengthen(runs, run, least):
    """Return the set of runs that the run of one event makes longer."""
    if len(runs) == 1:
        return runs
    return join_runs(runs, run, least)


@helper
def _both_kinds(a, b):
    """Return the kinds of the sums of weights of some kinds."""
    kinds = _NONE
    if a & _FINITE:
        kinds |= b
    if b & _FINITE:
        kinds |= a
    kinds |= a & b & (_INFINITE | _NEGATIVE)
    if (a & _NOT_A_NUMBER) | (b & _NOT_A_NUMBER):
        kinds |= _NOT_A_NUMBER
    if (a & _INFINITE and b & _NEGATIVE) or (a & _NEGATIVE and b & _INFINITE):
        kinds |= _NOT_A_NUMBER
    return kinds


# ---- weights of events ------------------------------------------------------------------------------------------


@helper
def run_of_event(weights, event, column):
    """Return the set of the run of one event, given the column of its weight, or -1."""
    if len(weights) == 0:
        return (_ONE,)
    kind, number, integer = _ONE, 0.0, _NONE
    if column >= 0:
        place = _U(event), _U(column)
        kind, number, integer = weights[0][place], weights[1][place], weights[2][place]
    return _ONE, kind, number, integer


@helper
def keep_weights(seen_weights, row, weights, event):
    """Write the weights of an event to row `row`."""
    if len(seen_weights) > 0:
        seen = Weights(*seen_weights)
        for k in range(seen.kinds.shape[1]):
            place, source = (row, _U(k)), (_U(event), _U(k))
            seen.kinds[place], seen.floats[place] = weights[0][source], weights[1][source]
            seen.integers[place] = weights[2][source]


@helper
def write_total(totals, out, runs):
    """Write what the weights of some runs come to."""
    if len(totals) > 0:
        output = WeightTotals(*totals)
        output.weighed[out], output.floats[out], output.integers[out] = runs[1], runs[2], runs[3]
