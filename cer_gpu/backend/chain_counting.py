"""Exact number of complex events of a chain that end at each position, without listing them.

As in `cer_gpu.backend.counting`, with the steps of a chain in place of determinised states: a run is at one step at a
time, and an event of step k takes each run of step k - 1 there, beside those that stay (and, where step k is repeated,
each run of step k once more).  An event therefore costs one addition of rows.

Row k counts the runs at step k: column 0 those that began after the boundary, and column c + 1 those that each run at
step c when the boundary was set has become.  The row of a start in `front` has, for each step c, how many runs were
there then that began from this start on; the row of the first start in the window says what the columns are worth.
When the first start after the boundary leaves the window, the present is made the boundary, by one walk back over the
window.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import CONSUME_NONE
from cer_gpu.backend.arguments import Counts, Events, Options, Steps, Window
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
        Runs at each step at the boundary, from each of the starts before it on.
    """

    symbols: Any
    clocks: Any
    start_clocks: Any
    front: Any


@helper
def _set_boundary(clock, length, steps, regs, next_seen, next_start, rows, ways, seen):
    """Make the present the boundary: a column for each step, and `front` for each start in the window.

    Return the first of these starts.
    """
    steps_of, repeated, front, mask = steps.steps_of, steps.repeated, seen.front, seen.symbols.shape[0] - 1
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
        n_steps = 0
        while steps_of[symbol, _U(n_steps)] >= 0:
            n_steps += 1
        if steps_of[symbol, _U(n_steps - 1)] == 0:
            later = _U(start & mask)
            start -= 1
            for c in range(n_columns):
                others = front[later, _U(c)] if start + 1 < next_start else _U(0)
                front[_U(start & mask), _U(c)] = plus(others, ways[0, _U(c)])
        # ways from each step before the event to the columns; from the first step on, so that each reads what was
        for back in range(n_steps):
            k = steps_of[symbol, _U(n_steps - 1 - back)]
            if k < n_columns:
                for c in range(k, n_columns):
                    way = ways[_U(k), _U(c)]
                    if k > 0:
                        ways[_U(k - 1), _U(c)] = plus(ways[_U(k - 1), _U(c)], way)
                    if repeated[_U(k)]:
                        ways[_U(k), _U(c)] = plus(way, way)
        i -= 1
    regs[FIRST_SEEN] = i + 1
    return start


@kernel
def count_chain(events, window, options, steps, seen, output, windowed, regs, rows, ways):
    """Count the complex events that end at each event, from register EVENT on.

    Parameters
    ----------
    events : Events
    window : Window
    options : Options
    steps : Steps
    seen : Seen
    output : Counts
    windowed : bool
        True if there is a window.
    regs : int64, shape (N_REGS,), written
    rows : uint64, shape (columns + 1, columns + 1), written
        1 and zeros, which a start adds; then a row for each step that a run can go on from: for all but the last, and
        for the last if it is repeated.
    ways : uint64, shape (columns, columns), written

    Returns
    -------
    int
        DONE; OUTPUT_FULL; GROW_WINDOW, when twice the room is needed for the window; TOO_MANY at event EVENT.
    """
    events, window, options, steps = Events(*events), Window(*window), Options(*options), Steps(*steps)
    seen, output = Seen(*seen), Counts(*output)
    symbols, positions, clocks, length = events.symbols, events.positions, window.clocks, window.length
    limit, consume, first_end = options.limit, options.consume != CONSUME_NONE, options.first_end
    steps_of, repeated, front = steps.steps_of, steps.repeated, seen.front
    seen_symbols, seen_clocks, start_clocks = seen.symbols, seen.clocks, seen.start_clocks
    out_ends, out_counts, out_times = output.ends, output.counts, output.times
    last = repeated.shape[0] - 1
    mask = seen_symbols.shape[0] - 1
    n_columns = ways.shape[1]
    last_repeated = repeated[_U(last)]
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
                first_start = _set_boundary(clock, length, steps, regs, next_seen, next_start, rows, ways, seen)
                boundary = next_start
        total = _U(0)
        # from the last step down: each reads the row below it before the event is there
        j = _U(0)
        step = steps_of[symbol, j]
        while True:
            below = _U(step)
            if step == last:
                total = rows[below, 0]
                if last_repeated:
                    total = plus(total, rows[below + _ONE, 0])
                if first_start < boundary:
                    f = _U(first_start & mask)
                    for c in range(n_columns):
                        n_runs = rows[below, _U(c + 1)]
                        if last_repeated:
                            n_runs = plus(n_runs, rows[below + _ONE, _U(c + 1)])
                        total = plus(total, times(n_runs, front[f, _U(c)]))
            if step < n_columns:
                for c in range(n_columns + 1):
                    column = _U(c)
                    n_runs = rows[below + _ONE, column]
                    if repeated[below]:
                        n_runs = plus(n_runs, n_runs)
                    rows[below + _ONE, column] = plus(n_runs, rows[below, column])
            j += _ONE
            if steps_of[symbol, j] < 0:
                break
            step = steps_of[symbol, j]
        if windowed:
            start_clocks[_U(next_start & mask)] = clock
            next_start += step == 0
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
