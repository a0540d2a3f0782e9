"""Exact number of complex events of a chain that end at each position, without listing them.

As in `cer_gpu.backend.counting`, with the sums of a chain (`cer_gpu.automaton.chain_sums`) in place of determinised
states: a run is at one place at a time, and an event adds the runs at one place to those at another.  An event of a
plain chain therefore costs one addition of rows for each of its steps.

The boundary is an event.  Runs that began after it are all in the window; those that began before it leave the window
one start at a time, and are counted as products (uint64):

- ``rows[k, 0]``: the runs at place k that began after the boundary;
- ``rows[k, c]``: the runs at place k that have come, since the boundary, of each run that was at place c then; 0 for
  c > k, as runs go to later places only;
- ``front[s, c - 1]``: the runs that were at place c at the boundary and had begun with start s or later.

With s the first start in the window, ``rows[k, 0]`` plus the sum over c of ``rows[k, c] * front[s, c - 1]`` runs are at
place k.  Example, `A ; B+ ; C`: at the boundary 3 runs have an A alone and 1 has a B, too, ``front[s] = (3, 1)``; then
comes a B, ``rows[2] = (0, 1, 2)``: 3 runs go on with it, 1 does or skips it, and 3 * 1 + 1 * 2 = 5 are at place 2.
When the first start after the boundary leaves the window, the last event becomes the boundary, by one walk back over
the window.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import CLEARED, CONSUME_NONE, END_OF_LIST, SUM_BEGINS, SUM_ENDS
from cer_gpu.backend.arguments import Counts, Events, Options, Window
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.saturating import MOST_SIGNED, plus, times
from cer_gpu.backend.status import DONE, GROW_WINDOW, OUTPUT_FULL, TOO_MANY

# registers of `count_chain`: the next event of the batch; the ends in the buffers; of the relevant events, counted from
# 0, the next one and the first that may be in the window; of the starts, counted from 0, the next one, the first one in
# the window, and the first after the boundary
EVENT, N_OUT, NEXT_SEEN, FIRST_SEEN, NEXT_START, FIRST_START, BOUNDARY, N_REGS = range(8)

_U = np.uint64
_ONE = np.uint64(1)


class Seen(NamedTuple):
    """Rings of the relevant events of the window and of its starts: number n of either is in row ``n & (2**ring - 1)``.

    Attributes
    ----------
    symbols : int32, shape (2**ring,), written
    clocks : clock, shape (2**ring,), written
    start_clocks : clock, shape (2**ring,), written
    front : uint64, shape (2**ring, columns), written
        For each start before the boundary, the runs at places 1, 2, ... at the boundary that began with it or later.
    """

    symbols: Any
    clocks: Any
    start_clocks: Any
    front: Any


class Sums(NamedTuple):
    """The sums of a chain (`cer_gpu.automaton.chain_sums.ChainSums`).

    Attributes
    ----------
    of_symbols : int32, shape (symbols, width)
        SUM_BEGINS and SUM_ENDS; (target, source, doubled) for each sum, in this order; then END_OF_LIST.
    finals : int32, shape (finals,)
        Places from which an event that ends runs ends them.
    """

    of_symbols: Any
    finals: Any


@helper
def _set_boundary(clock, length, sums, regs, next_seen, next_start, rows, ways, seen):
    """Make the last event the boundary: reset `rows`, fill `front` for the starts in the window; return the first."""
    of_symbols, front, mask = sums.of_symbols, seen.front, seen.symbols.shape[0] - 1
    n_columns = ways.shape[1]
    for k in range(n_columns):
        rows[_U(k + 1), 0] = _U(0)
        for c in range(n_columns):
            same = _ONE if k == c else _U(0)
            rows[_U(k + 1), _U(c + 1)] = same
            ways[_U(k), _U(c)] = same
    start = next_start
    i = next_seen - 1
    while i >= regs[FIRST_SEEN] and not (clock - seen.clocks[_U(i & mask)] > length):
        symbol = _U(seen.symbols[_U(i & mask)])
        if of_symbols[symbol, 0] & SUM_BEGINS:
            later = _U(start & mask)
            start -= 1
            for c in range(n_columns):
                front[_U(start & mask), _U(c)] = front[later, _U(c)] if start + 1 < next_start else _U(0)
        # ways[k - 1, c - 1]: runs at place c now that come of one run at place k before the event; its sums in reverse
        j = 1
        while of_symbols[symbol, _U(j)] != END_OF_LIST:
            j += 3
        while j > 1:
            j -= 3
            target, source = of_symbols[symbol, _U(j)], of_symbols[symbol, _U(j + 1)]
            twice = of_symbols[symbol, _U(j + 2)] != 0
            for c in range(target - 1, n_columns):
                way = ways[_U(target - 1), _U(c)]
                if source == 0:
                    front[_U(start & mask), _U(c)] = plus(front[_U(start & mask), _U(c)], way)
                elif source > 0:
                    ways[_U(source - 1), _U(c)] = plus(ways[_U(source - 1), _U(c)], way)
                if source == CLEARED:
                    ways[_U(target - 1), _U(c)] = _U(0)
                elif twice:
                    ways[_U(target - 1), _U(c)] = plus(way, way)
        i -= 1
    regs[FIRST_SEEN] = i + 1
    return start


@kernel
def count_chain(events, window, options, sums, seen, output, windowed, regs, rows, ways):
    """Count the complex events that end at each event, from register EVENT on.

    Parameters
    ----------
    events : Events
    window : Window
    options : Options
    sums : Sums
    seen : Seen
    output : Counts
    windowed : bool
        True if there is a window.
    regs : int64, shape (N_REGS,), written
    rows : uint64, shape (columns + 1, columns + 1), written
        1 and zeros, which a start adds; then a row for each place that a run can go on from.
    ways : uint64, shape (columns, columns), written

    Returns
    -------
    int
        DONE; OUTPUT_FULL; GROW_WINDOW, when twice the room is needed for the window; TOO_MANY at event EVENT.
    """
    events, window, options, sums = Events(*events), Window(*window), Options(*options), Sums(*sums)
    seen, output = Seen(*seen), Counts(*output)
    symbols, positions, clocks, length = events.symbols, events.positions, window.clocks, window.length
    limit, consume, first_end = options.limit, options.consume != CONSUME_NONE, options.first_end
    of_symbols, finals, front = sums.of_symbols, sums.finals, seen.front
    seen_symbols, seen_clocks, start_clocks = seen.symbols, seen.clocks, seen.start_clocks
    out_ends, out_counts, out_times = output.ends, output.counts, output.times
    mask = seen_symbols.shape[0] - 1
    n_columns = ways.shape[1]
    i, n_out = regs[EVENT], regs[N_OUT]
    next_seen, next_start, first_start, boundary = regs[NEXT_SEEN], regs[NEXT_START], regs[FIRST_START], regs[BOUNDARY]
    status = DONE
    while i < symbols.shape[0]:
        event = _U(i)
        clock = clocks[event]
        symbol = _U(symbols[event])
        if windowed:
            if next_seen - regs[FIRST_SEEN] > mask:
                first = regs[FIRST_SEEN]
                while first < next_seen and clock - seen_clocks[_U(first & mask)] > length:
                    first += 1
                regs[FIRST_SEEN] = first
                if 2 * (next_seen - first) > mask:
                    status = GROW_WINDOW
                    break
            while first_start < boundary and clock - start_clocks[_U(first_start & mask)] > length:
                first_start += 1
            if boundary < next_start and clock - start_clocks[_U(boundary & mask)] > length:
                first_start = _set_boundary(clock, length, sums, regs, next_seen, next_start, rows, ways, seen)
                boundary = next_start
        total = _U(0)
        flags = of_symbols[symbol, 0]
        if flags & SUM_ENDS:
            for final in range(finals.shape[0]):
                row = finals[_U(final)]
                total = plus(total, rows[_U(row), 0])
                if first_start < boundary:
                    f = _U(first_start & mask)
                    for c in range(row):
                        total = plus(total, times(rows[_U(row), _U(c + 1)], front[f, _U(c)]))
        j = _U(1)
        to = of_symbols[symbol, j]
        while to != END_OF_LIST:
            target = _U(to)
            source = of_symbols[symbol, j + _U(1)]
            if source == CLEARED:
                for c in range(to + 1):
                    rows[target, _U(c)] = _U(0)
            elif of_symbols[symbol, j + _U(2)]:
                for c in range(to + 1):
                    n_runs = rows[target, _U(c)]
                    rows[target, _U(c)] = plus(plus(n_runs, n_runs), rows[_U(source), _U(c)])
            else:
                for c in range(source + 1):
                    rows[target, _U(c)] = plus(rows[target, _U(c)], rows[_U(source), _U(c)])
            j += _U(3)
            to = of_symbols[symbol, j]
        if windowed:
            start_clocks[_U(next_start & mask)] = clock
            next_start += flags & SUM_BEGINS
            seen_symbols[_U(next_seen & mask)] = symbols[event]
            seen_clocks[_U(next_seen & mask)] = clock
            next_seen += 1
        i += 1
        if total > _U(0):
            if limit > 0 and total > _U(limit):
                total = _U(limit)
            if consume:
                for k in range(n_columns):
                    for c in range(n_columns + 1):
                        rows[_U(k + 1), _U(c)] = _U(0)
                regs[FIRST_SEEN] = next_seen
                first_start = boundary = next_start
            if total > MOST_SIGNED:
                i -= 1
                status = TOO_MANY
                break
            if positions[event] >= first_end:
                out = _U(n_out)
                out_ends[out] = positions[event]
                out_counts[out] = np.int64(total)
                if out_times.shape[0] > 0:
                    out_times[out] = events.times[event]
                n_out += 1
                if n_out == out_ends.shape[0]:
                    status = OUTPUT_FULL
                    break
    regs[EVENT], regs[N_OUT] = i, n_out
    regs[NEXT_SEEN], regs[NEXT_START], regs[FIRST_START], regs[BOUNDARY] = next_seen, next_start, first_start, boundary
    return status
