"""Exact number of complex events of a chain that end at each position, without listing them.

As in `cer_gpu.backend.counting`, with the sums of a chain (`cer_gpu.automaton.chain_sums`) in place of determinised
states: a run is at one place at a time, and an event adds the runs at one place to those at another.  An event of a
plain chain therefore costs one addition of rows for each of its steps.

Row k counts the runs at place k: column 0 those that began after the boundary, and column c those that each run at
place c when the boundary was set has become; columns beyond k are zero.  The row of a start in `front` has, for each
place, how many runs were there then that began from this start on; the row of the first start in the window says what
the columns are worth.  When the first start after the boundary leaves the window, the present is made the boundary, by
one walk back over the window.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import CLEARED, CONSUME_NONE, END_OF_LIST, SUM_BEGINS, SUM_ENDS
from cer_gpu.backend.arguments import Counts, Events, Options, Window
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.saturating import MOST_SIGNED, plus, times
from cer_gpu.backend.status import DONE, GROW_WINDOW, OUTPUT_FULL, TOO_MANY

# registers of `count_chain`: the event that comes next and what is in the buffers; ids of the next relevant event, and
# of the first one that may be in the window; of the next start, the first in the window, and the first after the
# boundary
EVENT, N_OUT, NEXT_SEEN, FIRST_SEEN, NEXT_START, FIRST_START, BOUNDARY, N_REGS = range(8)

_U = np.uint64
_ONE = np.uint64(1)


class Seen(NamedTuple):
    """The relevant events of the window at ``id & mask``, and likewise its starts.

    Attributes
    ----------
    symbols : int32, shape (2**ring,), written
    clocks : clock, shape (2**ring,), written
    start_clocks : clock, shape (2**ring,), written
    front : uint64, shape (2**ring, columns), written
        Runs at each place at the boundary, from each of the starts before it on.
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
    finals : int32, shape (finals,)
    """

    of_symbols: Any
    finals: Any


@helper
def _set_boundary(clock, length, sums, regs, next_seen, next_start, rows, ways, seen):
    """Make the present the boundary: a column for each place, and `front` for each start in the window.

    Return the first of these starts.
    """
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
        # ways from each place before the event to the columns: the sums backwards, from what they give to what they add
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
