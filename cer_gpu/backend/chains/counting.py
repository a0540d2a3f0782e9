"""Exact number of matches of a chain that end at each position, without listing them.

As in `cer_gpu.backend.counting`, with the sums of a chain (`cer_gpu.automaton.chain_sums`) in place of determinised
states: a run is at one place at a time, and an event adds the runs at one place to those at another.  An event of a
plain chain therefore costs one addition of rows for each of its steps.

The boundary is an event.  Runs that began after it are all in the window; those that began before it leave the window
one start at a time, and are counted as products of numbers, or of sets (`cer_gpu.backend.chains.weighing`):

- ``rows[k, 0]``: the runs at place k that began after the boundary;
- ``rows[k, c]``: the runs at place k that have come, since the boundary, of each run that was at place c then; 0 for
  c > k, as runs go to later places only;
- ``front[s, c - 1]``: the runs that were at place c at the boundary and had begun with start s or later.

With s the first start in the window, ``rows[k, 0]`` plus the sum over c of ``rows[k, c] * front[s, c - 1]`` runs are at
place k.  Example, `A ; B+ ; C`: at the boundary 3 runs have an A alone and 1 has a B, too, ``front[s] = (3, 1)``; then
comes a B, ``rows[2] = (0, 1, 2)``: 3 runs continue with it, 1 does or skips it, and 3 * 1 + 1 * 2 = 5 are at place 2.
When the first start after the boundary leaves the window, the last event becomes the boundary, by one walk back over
the window.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import CLEARED, CONSUME_NONE, END_OF_LIST, SUM_BEGINS, SUM_ENDS
from cer_gpu.backend.arguments import Counts, Events, Options, Window
from cer_gpu.backend.chains.weighing import (
    join_runs,
    keep_weights,
    lengthen,
    no_runs,
    one_run,
    put_set,
    run_of_event,
    set_at,
    unite,
    write_total,
)
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.saturating import MAX_SIGNED
from cer_gpu.backend.status import DONE, GROW_WINDOW, OUTPUT_FULL, TOO_MANY

# registers of `count_chain`: the next event of the batch; the ends in the buffers; of the relevant events, counted from
# 0, the next one and the first that may be in the window; of the starts, counted from 0, the next one, the first one in
# the window, and the first after the boundary
EVENT, N_OUT, NEXT_SEEN, FIRST_SEEN, NEXT_START, FIRST_START, BOUNDARY, N_REGS = range(8)

_U = np.uint64
_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Seen(NamedTuple):
    """Rings of the relevant events of the window and of its starts: number n of either is in row ``n & (2**ring - 1)``.

    Attributes
    ----------
    symbols : int32, shape (2**ring,), written
    clocks : clock, shape (2**ring,), written
    start_clocks : clock, shape (2**ring,), written
    """

    symbols: Any
    clocks: Any
    start_clocks: Any


class Sums(NamedTuple):
    """The sums of a chain (`cer_gpu.automaton.chain_sums.ChainSums`).

    Attributes
    ----------
    of_symbols : int32, shape (symbols, width)
        SUM_BEGINS and SUM_ENDS; (target, source, doubled) for each sum, in this order; then END_OF_LIST.
    finals : int32, shape (finals,)
        Places from which an event that ends runs ends them.
    weight_of : int32, shape (columns + 2,)
        Column of the weight of an event that takes runs to each place, and at last of one that ends them; -1: none.
    """

    of_symbols: Any
    finals: Any
    weight_of: Any


@helper
def _set_boundary(clock, length, sums, least, regs, next_seen, next_start, rows, ways, seen, seen_weights, front):
    """Make the last event the boundary: reset `rows`, fill `front` for the starts in the window; return the first."""
    of_symbols, mask = sums.of_symbols, seen.symbols.shape[0] - 1
    n_columns = ways[0].shape[1]
    for k in range(n_columns):
        put_set(rows, k + 1, 0, no_runs(rows))
        for c in range(n_columns):
            same = one_run(rows) if k == c else no_runs(rows)
            put_set(rows, k + 1, c + 1, same)
            put_set(ways, k, c, same)
    start = next_start
    i = next_seen - 1
    while i >= regs[FIRST_SEEN] and not (clock - seen.clocks[_U(i & mask)] > length):
        symbol = _U(seen.symbols[_U(i & mask)])
        if of_symbols[symbol, 0] & SUM_BEGINS:
            later = start & mask
            start -= 1
            for c in range(n_columns):
                put_set(front, start & mask, c, set_at(front, later, c) if start + 1 < next_start else no_runs(front))
        # ways[k - 1, c - 1]: runs at place c now that come of one run at place k before the event; its sums in reverse
        j = 1
        while of_symbols[symbol, _U(j)] != END_OF_LIST:
            j += 3
        while j > 1:
            j -= 3
            target, source = of_symbols[symbol, _U(j)], of_symbols[symbol, _U(j + 1)]
            twice = of_symbols[symbol, _U(j + 2)] != 0
            run = run_of_event(seen_weights, i & mask, sums.weight_of[_U(target)])
            for c in range(target - 1, n_columns):
                way = set_at(ways, target - 1, c)
                if source >= 0:
                    longer = lengthen(way, run, least)
                    if source == 0:
                        _add(front, start & mask, c, longer, least)
                    else:
                        _add(ways, source - 1, c, longer, least)
                if source == CLEARED:
                    put_set(ways, target - 1, c, no_runs(ways))
                elif twice:
                    put_set(ways, target - 1, c, unite(way, way, least))
        i -= 1
    regs[FIRST_SEEN] = i + 1
    return start


@helper
def _add(sets, i, j, runs, least):
    """Add runs to a set."""
    put_set(sets, i, j, unite(set_at(sets, i, j), runs, least))


@helper
def _ending(sums, least, rows, front, first, n_columns):
    """Return the set of the runs in the window that the next event ends, given the row of its first start, or -1."""
    total = no_runs(rows)
    for final in range(sums.finals.shape[0]):
        row = sums.finals[_U(final)]
        total = unite(total, set_at(rows, row, 0), least)
        if first >= 0:
            for c in range(row):
                before = set_at(front, first, c)
                if len(rows) == 1 or before[0] != _NONE:  # a test costs more than a count
                    total = unite(total, join_runs(set_at(rows, row, c + 1), before, least), least)
    return total


@helper
def _make_longer(sums, least, rows, symbol, weights, event):
    """Add the runs that an event makes longer to those at their places."""
    of_symbols = sums.of_symbols
    j = _ONE
    to = of_symbols[symbol, j]
    while to != END_OF_LIST:
        source = of_symbols[symbol, j + _ONE]
        if source == CLEARED:
            for c in range(to + 1):
                put_set(rows, to, c, no_runs(rows))
        elif of_symbols[symbol, j + _U(2)]:
            for c in range(to + 1):
                runs = set_at(rows, to, c)
                runs = unite(runs, runs, least)
                if len(rows) == 1 or c <= source:
                    runs = unite(runs, set_at(rows, source, c), least)
                put_set(rows, to, c, runs)
        else:
            run = run_of_event(weights, event, sums.weight_of[_U(to)])
            for c in range(source + 1):
                runs = set_at(rows, source, c)
                if len(rows) == 1 or runs[0] != _NONE:
                    _add(rows, to, c, lengthen(runs, run, least), least)
        j += _U(3)
        to = of_symbols[symbol, j]


@kernel
def count_chain(events, window, options, sums, seen, front, weights, seen_weights, output, totals, windowed, least,
                regs, rows, ways):  # fmt: skip
    """Count, or weigh, the matches that end at each event, from register EVENT on.

    Parameters
    ----------
    events : Events
    window : Window
    options : Options
    sums : Sums
    seen : Seen
    front : RunSets, or (runs,)
        For each start before the boundary, the runs at places 1, 2, ... at the boundary that began with it or later.
    weights : Weights, or (), read
        Those of the events; nothing where matches are only counted.
    seen_weights : Weights, or ()
        Those of the relevant events of the window.
    output : Counts
    totals : WeightTotals, or ()
    windowed : bool
        True if there is a window.
    least : bool
        True for the least weight, False for the sum of all.
    regs : int64, shape (N_REGS,), written
    rows : RunSets, or (runs,)
        One empty run and no others, which a start adds; then a row for each place that a run can continue from.
    ways : RunSets, or (runs,)

    Returns
    -------
    int
        DONE; OUTPUT_FULL; GROW_WINDOW, when twice the space is needed for the window; TOO_MANY at event EVENT.
    """
    events, window, options, sums = Events(*events), Window(*window), Options(*options), Sums(*sums)
    seen, output = Seen(*seen), Counts(*output)
    symbols, positions, clocks, length = events.symbols, events.positions, window.clocks, window.length
    limit, consume, report_from = options.limit, options.consume != CONSUME_NONE, options.report_from
    of_symbols, seen_clocks, start_clocks = sums.of_symbols, seen.clocks, seen.start_clocks
    mask = seen.symbols.shape[0] - 1
    n_columns = ways[0].shape[1]
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
                first_start = _set_boundary(
                    clock, length, sums, least, regs, next_seen, next_start, rows, ways, seen, seen_weights, front
                )
                boundary = next_start
        total = no_runs(rows)
        flags = of_symbols[symbol, 0]
        if flags & SUM_ENDS:
            first_row = first_start & mask if first_start < boundary else np.int64(-1)
            total = _ending(sums, least, rows, front, first_row, n_columns)
            if total[0] != _NONE:
                run = run_of_event(weights, i, sums.weight_of[_U(n_columns + 1)])
                total = lengthen(total, run, least)
        _make_longer(sums, least, rows, symbol, weights, i)
        if windowed:
            start_clocks[_U(next_start & mask)] = clock
            next_start += flags & SUM_BEGINS
            slot = _U(next_seen & mask)
            seen.symbols[slot], seen_clocks[slot] = symbols[event], clock
            keep_weights(seen_weights, slot, weights, i)
            next_seen += 1
        i += 1
        n_ended = total[0]
        if n_ended > _NONE:
            if limit > 0 and n_ended > _U(limit):
                n_ended = _U(limit)
            if consume:
                for k in range(n_columns):
                    for c in range(n_columns + 1):
                        put_set(rows, k + 1, c, no_runs(rows))
                regs[FIRST_SEEN] = next_seen
                first_start = boundary = next_start
            if n_ended > MAX_SIGNED:
                i -= 1
                status = TOO_MANY
                break
            if positions[event] >= report_from:
                out = _U(n_out)
                output.ends[out] = positions[event]
                output.counts[out] = np.int64(n_ended)
                write_total(totals, out, total)
                if output.times.shape[0] > 0:
                    output.times[out] = events.times[event]
                n_out += 1
                if n_out == output.ends.shape[0]:
                    status = OUTPUT_FULL
                    break
    regs[EVENT], regs[N_OUT] = i, n_out
    regs[NEXT_SEEN], regs[NEXT_START], regs[FIRST_START], regs[BOUNDARY] = next_seen, next_start, first_start, boundary
    return status
