"""Sum, or least value, of an expression over the complex events of a chain that end at each position, without listing.

The loop is that of `cer_gpu.backend.chains.counting`, over other numbers: where a run is counted there, here its weight
goes along, which is the sum of what its events add to the expression.  A cell stands for a set of runs:

- how many they are;
- how many of them have a weight, as no value is NULL; for the least value, bits for what kinds of weights they have;
- the sum of the weights, or the least of the finite ones, as a float and as an integer modulo 2**64.

Cells are added where sets are united, and multiplied where each run of one set goes on as each of another.  The float
beside a sum of integers tells whether the integer is the sum itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import CLEARED, END_OF_LIST, SUM_BEGINS, SUM_ENDS
from cer_gpu.backend.arguments import Events, Window
from cer_gpu.backend.chains.counting import (
    BOUNDARY,
    EVENT,
    FIRST_SEEN,
    FIRST_START,
    N_OUT,
    NEXT_SEEN,
    NEXT_START,
)
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.saturating import MOST_SIGNED, plus, times
from cer_gpu.backend.status import DONE, GROW_WINDOW, OUTPUT_FULL, TOO_MANY

FINITE, INFINITE, NEGATIVE, NOT_A_NUMBER = 1, 2, 4, 8
"""Kinds of weights, as bits; a sum has only the first, for those that are not NULL."""

_U = np.uint64
_ONE = np.uint64(1)
_NONE = np.uint64(0)
_FINITE = np.uint64(FINITE)
_INFINITE = np.uint64(INFINITE)
_NEGATIVE = np.uint64(NEGATIVE)
_NOT_A_NUMBER = np.uint64(NOT_A_NUMBER)


class WeighedRows(NamedTuple):
    """A row of one empty run, which a start adds to; then a row for each place that a run can go on from.

    Attributes
    ----------
    runs : uint64, shape (columns + 1, columns + 1), written
    weighed : uint64, shape (columns + 1, columns + 1), written
        Runs with a weight, or the kinds of their weights.
    floats : float64, shape (columns + 1, columns + 1), written
    integers : uint64, shape (columns + 1, columns + 1), written
    """

    runs: Any
    weighed: Any
    floats: Any
    integers: Any


class Ways(NamedTuple):
    """Ways from each place to the columns.

    Attributes
    ----------
    runs : uint64, shape (columns, columns), written
    weighed : uint64, shape (columns, columns), written
        Runs with a weight, or the kinds of their weights.
    floats : float64, shape (columns, columns), written
    integers : uint64, shape (columns, columns), written
    """

    runs: Any
    weighed: Any
    floats: Any
    integers: Any


class Front(NamedTuple):
    """Runs at each place at the boundary, from each of the starts before it on, at ``id & mask``.

    Attributes
    ----------
    runs : uint64, shape (2**ring, columns), written
    weighed : uint64, shape (2**ring, columns), written
        Runs with a weight, or the kinds of their weights.
    floats : float64, shape (2**ring, columns), written
    integers : uint64, shape (2**ring, columns), written
    """

    runs: Any
    weighed: Any
    floats: Any
    integers: Any


class Weights(NamedTuple):
    """Weights of events: at each of some steps, what an event adds to the expression.

    Attributes
    ----------
    kinds : uint64, shape (n, weights)
        Kind of each weight; 0 where it is NULL.
    floats : float64, shape (n, weights)
        The weight; 0 where it is not finite.
    integers : uint64, shape (n, weights)
    """

    kinds: Any
    floats: Any
    integers: Any


class SeenWeights(NamedTuple):
    """The weights of the relevant events of the window at ``id & mask``.

    Attributes
    ----------
    kinds : uint64, shape (2**ring, weights), written
        Kind of each weight; 0 where it is NULL.
    floats : float64, shape (2**ring, weights), written
        The weight; 0 where it is not finite.
    integers : uint64, shape (2**ring, weights), written
    """

    kinds: Any
    floats: Any
    integers: Any


class WeighedSums(NamedTuple):
    """The sums of a chain (`cer_gpu.automaton.chain_sums.ChainSums`), and the weights that go with them.

    Attributes
    ----------
    of_symbols : int32, shape (symbols, width)
    finals : int32, shape (finals,)
    weight_of : int32, shape (columns + 2,)
        Column of the weight of an event that takes runs to each row, and at last of one that ends them; -1: none.
    """

    of_symbols: Any
    finals: Any
    weight_of: Any


class WeighedSeen(NamedTuple):
    """The relevant events of the window at ``id & mask``, and likewise its starts.

    Attributes
    ----------
    symbols : int32, shape (2**ring,), written
    clocks : clock, shape (2**ring,), written
    start_clocks : clock, shape (2**ring,), written
    """

    symbols: Any
    clocks: Any
    start_clocks: Any


class _Weighed(NamedTuple):
    """Buffers for the ends.

    Attributes
    ----------
    ends : int64, shape (ends,), written
    counts : int64, shape (ends,), written
    times : int64, shape (ends,), or (0,), written
    weighed : uint64, shape (ends,), written
    floats : float64, shape (ends,), written
    integers : uint64, shape (ends,), written
    """

    ends: Any
    counts: Any
    times: Any
    weighed: Any
    floats: Any
    integers: Any


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


@helper
def _product(a, b, least):
    """Return the cell of all runs that one of `a` and one of `b` make together."""
    runs = times(a[0], b[0])
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
def _union(a, b, least):
    """Return the cell of the runs of two sets."""
    runs = plus(a[0], b[0])
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
def _at(cells, i, j):
    place = _U(i), _U(j)
    return cells.runs[place], cells.weighed[place], cells.floats[place], cells.integers[place]


@helper
def _put(cells, i, j, cell):
    place = _U(i), _U(j)
    cells.runs[place], cells.weighed[place] = cell[0], cell[1]
    cells.floats[place], cells.integers[place] = cell[2], cell[3]


@helper
def _add(cells, i, j, cell, least):
    _put(cells, i, j, _union(_at(cells, i, j), cell, least))


@helper
def _weight(weights, event, column):
    """Return the cell of an event that makes a run longer, given the column of its weight, or -1."""
    kind, number, integer = _ONE, 0.0, _NONE
    if column >= 0:
        place = _U(event), _U(column)
        kind, number, integer = weights.kinds[place], weights.floats[place], weights.integers[place]
    return _ONE, kind, number, integer


@helper
def _nothing():
    return _NONE, _NONE, 0.0, _NONE


@helper
def _set_boundary(clock, length, sums, least, regs, next_seen, next_start, rows, ways, seen, seen_weights, front):
    """Make the present the boundary: a column for each place, and `front` for each start in the window.

    Return the first of these starts.
    """
    of_symbols, mask = sums.of_symbols, seen.symbols.shape[0] - 1
    n_columns = ways.runs.shape[1]
    for k in range(n_columns):
        _put(rows, k + 1, 0, _nothing())
        for c in range(n_columns):
            same = _ONE if k == c else _NONE
            _put(rows, k + 1, c + 1, (same, same, 0.0, _NONE))
            _put(ways, k, c, (same, same, 0.0, _NONE))
    start = next_start
    i = next_seen - 1
    while i >= regs[FIRST_SEEN] and not (clock - seen.clocks[_U(i & mask)] > length):
        symbol = _U(seen.symbols[_U(i & mask)])
        if of_symbols[symbol, 0] & SUM_BEGINS:
            later = start & mask
            start -= 1
            for c in range(n_columns):
                _put(front, start & mask, c, _at(front, later, c) if start + 1 < next_start else _nothing())
        j = 1
        while of_symbols[symbol, _U(j)] != END_OF_LIST:
            j += 3
        while j > 1:
            j -= 3
            target, source = of_symbols[symbol, _U(j)], of_symbols[symbol, _U(j + 1)]
            twice = of_symbols[symbol, _U(j + 2)] != 0
            weight = _weight(seen_weights, i & mask, sums.weight_of[_U(target)])
            for c in range(target - 1, n_columns):
                way = _at(ways, target - 1, c)
                if source >= 0:
                    longer = _product(way, weight, least)
                    if source == 0:
                        _add(front, start & mask, c, longer, least)
                    else:
                        _add(ways, source - 1, c, longer, least)
                if source == CLEARED:
                    _put(ways, target - 1, c, _nothing())
                elif twice:
                    _put(ways, target - 1, c, _union(way, way, least))
        i -= 1
    regs[FIRST_SEEN] = i + 1
    return start


@kernel
def weigh_chain(
    events, weights, window, first_end, least, sums, seen, seen_weights, front, output, windowed, regs, rows, ways
):
    """Weigh the complex events that end at each event, from register EVENT on.

    Parameters
    ----------
    events : Events
    weights : Weights
    window : Window
    first_end : int
    least : bool
        True for the least weight, False for their sum.
    sums : WeighedSums
    seen : WeighedSeen
    seen_weights : SeenWeights
    front : Front
    output : _Weighed
    windowed : bool
        True if there is a window.
    regs : int64, shape (N_REGS,), written
    rows : WeighedRows
    ways : Ways

    Returns
    -------
    int
        DONE; OUTPUT_FULL; GROW_WINDOW, when twice the room is needed for the window; TOO_MANY at event EVENT.
    """
    events, weights, window = Events(*events), Weights(*weights), Window(*window)
    sums, seen, output = WeighedSums(*sums), WeighedSeen(*seen), _Weighed(*output)
    seen_weights, front, rows, ways = SeenWeights(*seen_weights), Front(*front), WeighedRows(*rows), Ways(*ways)
    symbols, positions, clocks, length = events.symbols, events.positions, window.clocks, window.length
    of_symbols, finals = sums.of_symbols, sums.finals
    mask = seen.symbols.shape[0] - 1
    n_columns, n_weights = ways.runs.shape[1], weights.kinds.shape[1]
    i, n_out = regs[EVENT], regs[N_OUT]
    next_seen, next_start, first_start, boundary = regs[NEXT_SEEN], regs[NEXT_START], regs[FIRST_START], regs[BOUNDARY]
    status = DONE
    while i < symbols.shape[0]:
        clock = clocks[_U(i)]
        symbol = _U(symbols[_U(i)])
        if windowed:
            if next_seen - regs[FIRST_SEEN] > mask:
                first = regs[FIRST_SEEN]
                while first < next_seen and clock - seen.clocks[_U(first & mask)] > length:
                    first += 1
                regs[FIRST_SEEN] = first
                if 2 * (next_seen - first) > mask:
                    status = GROW_WINDOW
                    break
            while first_start < boundary and clock - seen.start_clocks[_U(first_start & mask)] > length:
                first_start += 1
            if boundary < next_start and clock - seen.start_clocks[_U(boundary & mask)] > length:
                first_start = _set_boundary(
                    clock, length, sums, least, regs, next_seen, next_start, rows, ways, seen, seen_weights, front
                )
                boundary = next_start
        total = _nothing()
        flags = of_symbols[symbol, 0]
        if flags & SUM_ENDS:
            for final in range(finals.shape[0]):
                row = finals[_U(final)]
                total = _union(total, _at(rows, row, 0), least)
                if first_start < boundary:
                    for c in range(row):
                        before = _at(front, first_start & mask, c)
                        if before[0] != _NONE:
                            total = _union(total, _product(_at(rows, row, c + 1), before, least), least)
            if total[0] != _NONE:
                total = _product(total, _weight(weights, i, sums.weight_of[_U(n_columns + 1)]), least)
        j = _ONE
        to = of_symbols[symbol, j]
        while to != END_OF_LIST:
            source = of_symbols[symbol, j + _ONE]
            if source == CLEARED:
                for c in range(to + 1):
                    _put(rows, to, c, _nothing())
            elif of_symbols[symbol, j + _U(2)]:
                for c in range(to + 1):
                    cell = _at(rows, to, c)
                    cell = _union(cell, cell, least)
                    if c <= source:
                        cell = _union(cell, _at(rows, source, c), least)
                    _put(rows, to, c, cell)
            else:
                weight = _weight(weights, i, sums.weight_of[_U(to)])
                for c in range(source + 1):
                    cell = _at(rows, source, c)
                    if cell[0] != _NONE:
                        _add(rows, to, c, _product(cell, weight, least), least)
            j += _U(3)
            to = of_symbols[symbol, j]
        if windowed:
            seen.start_clocks[_U(next_start & mask)] = clock
            next_start += flags & SUM_BEGINS
            kept = _U(next_seen & mask)
            seen.symbols[kept] = symbols[_U(i)]
            seen.clocks[kept] = clock
            for k in range(n_weights):
                seen_weights.kinds[kept, _U(k)] = weights.kinds[_U(i), _U(k)]
                seen_weights.floats[kept, _U(k)] = weights.floats[_U(i), _U(k)]
                seen_weights.integers[kept, _U(k)] = weights.integers[_U(i), _U(k)]
            next_seen += 1
        i += 1
        if total[0] > _NONE:
            if total[0] > MOST_SIGNED:
                i -= 1
                status = TOO_MANY
                break
            if positions[_U(i - 1)] >= first_end:
                out = _U(n_out)
                output.ends[out] = positions[_U(i - 1)]
                output.counts[out] = np.int64(total[0])
                output.weighed[out], output.floats[out], output.integers[out] = total[1], total[2], total[3]
                if output.times.shape[0] > 0:
                    output.times[out] = events.times[_U(i - 1)]
                n_out += 1
                if n_out == output.ends.shape[0]:
                    status = OUTPUT_FULL
                    break
    regs[EVENT], regs[N_OUT] = i, n_out
    regs[NEXT_SEEN], regs[NEXT_START], regs[FIRST_START], regs[BOUNDARY] = next_seen, next_start, first_start, boundary
    return status
