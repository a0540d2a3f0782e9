"""Clocks of events -> whether they ascend, where the window that ends at each begins, and which are of use."""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper, kernel

LIVE_CHUNK = 1 << 10
"""Events that `live_events` passes over at once where none of them is live."""
ABREAST = 4
"""Events that `window_lows` looks at together."""
FALL_CHUNK = 1 << 10
"""Values that `first_fall` passes over at once where they ascend."""

_U = np.uint64


@kernel
def window_lows(clocks, length, ring, ordinal, low, lows):
    """Find the first event in the window of each event: ``clock(end) - clock(first) <= length``.

    Two pointers, so that the cost does not depend on the window's length.  The trailing one passes over as many of
    `ABREAST` events as have left the window: a branch for each would be mispredicted about once for each event.

    Parameters
    ----------
    clocks : clock, shape (n,)
        Clocks of the relevant events of a block, not decreasing; int64 clocks come shifted by 2**63, so that
        differences are exact over their whole range.
    length : clock
        Length of the window, in units of the clocks.
    ring : clock, shape (2**ring,)
        Clocks of the events before these, by ordinal, from `low` on.
    ordinal, low : int
        Ordinal of the first of these events, and of the first event in the last window.
    lows : int64, shape (n,), written
        Ordinal of the first event in each window.

    Returns
    -------
    int
        The last low.
    """
    n = clocks.shape[0]
    i = 0
    while i < n and low < ordinal:
        low = _first_inside(ring, _U(ring.shape[0] - 1), low, ordinal, clocks[_U(i)], length)
        if low < ordinal:
            lows[_U(i)] = low
            i += 1
    here = max(low - ordinal, 0)
    while i < n:
        here = _first_inside(clocks, _U(-1), here, i + 1, clocks[_U(i)], length)
        lows[_U(i)] = low = ordinal + here
        i += 1
    return low


@helper
def _first_inside(clocks, mask, here, end, now, length):
    """Return the first event, from `here` on and before `end`, that is in the window that ends at `now`; else `end`."""
    n_left = np.int64(ABREAST)
    while n_left == ABREAST and here + ABREAST <= end:
        n_left = np.int64(0)
        for k in range(ABREAST):
            n_left += now - clocks[_U(here + k) & mask] > length
        here += n_left
    if n_left == ABREAST:
        while here < end and now - clocks[_U(here) & mask] > length:
            here += 1
    return here


@kernel
def live_events(symbols, clocks, ending, only, length, selected):
    """Find the events that are in the window of one that may end a match.

    Parameters
    ----------
    symbols : int32, shape (n,)
    clocks : clock, shape (n,)
        Clocks as in `window_lows`.
    ending : bool, shape (symbols,)
        True for a symbol whose events may end a match.
    only : int
        The one symbol for which `ending` holds; -1 where there are several.
    length : clock
        Length of the window.
    selected : int32, shape (at least n,), written
        Indices of these events, ascending, at the end of the array.

    Returns
    -------
    (int, int, int)
        The index in `selected` at which they begin, and the indices of the first and last event that may end one (-1 if
        there is none).
    """
    to = _U(selected.shape[0])
    end = _U(symbols.shape[0])
    first = last = np.int64(-1)
    latest = clocks[_U(0)]
    while end > 0:
        begin = end - min(end, _U(LIVE_CHUNK))
        ends = False
        if only >= 0:
            for i in range(begin, end):
                ends |= symbols[_U(i)] == only
        else:
            for i in range(begin, end):
                ends |= ending[_U(symbols[_U(i)])]
        if ends or (last >= 0 and not (latest - clocks[end - _U(1)] > length)):  # infinite clocks differ by NaN
            for back in range(end - begin):
                event = end - _U(back) - _U(1)
                clock = clocks[event]
                if ending[_U(symbols[event])]:
                    latest = clock
                    first = np.int64(event)
                    last = max(first, last)
                if last >= 0 and not (latest - clock > length):
                    to -= _U(1)
                    selected[to] = event
        end = begin
    return np.int64(to), first, last


@kernel
def first_fall(values):
    """Return the first row (of at least one) whose value is less than the one before, or NaN; n if there is none.

    Parameters
    ----------
    values : number, shape (n,)
    """
    n = values.shape[0]
    if values[_U(0)] != values[_U(0)]:
        return 0
    row = 1
    while row < n:
        end = min(row + FALL_CHUNK, n)
        falls = False
        for i in range(row, end):
            falls |= not values[_U(i)] >= values[_U(i - 1)]
        if falls:
            break
        row = end
    while row < n and values[_U(row)] >= values[_U(row - 1)]:
        row += 1
    return row
