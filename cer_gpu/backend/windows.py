"""Clocks of events -> whether they ascend, where the window that ends at each begins, and which are of use."""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import kernel

LIVE_CHUNK = 1 << 10
"""Events that `live_events` passes over at once where none of them is live."""
FALL_CHUNK = 1 << 10
"""Values that `first_fall` passes over at once where they ascend."""

_U = np.uint64


@kernel
def window_lows(clocks, start, length, ring, ordinal, low, lows):
    """Find the first relevant event in the window of each event: ``clock(end) - clock(first) <= length``.

    Two pointers over a ring that holds the clocks of the window, so that the cost does not depend on its length.

    Parameters
    ----------
    clocks : uint64 or float64, shape (n,)
        Not decreasing; int64 clocks come shifted by 2**63, so that differences are exact over their whole range.
    start : int
        Event to begin at.
    length : uint64 or float64
        Of the window, in units of the clocks.
    ring : like `clocks`, shape (a power of two,)
        Clocks of the relevant events by ordinal.
    ordinal, low : int
        Ordinal of the next event, and of the first event in the last window.
    lows : int64, shape (n,)
        Written: the ordinal of the first event in each window.

    Returns
    -------
    (int, int)
        How many events are done (fewer than n when the ring is too small), and the last low.
    """
    mask = _U(ring.shape[0] - 1)
    for i in range(start, clocks.shape[0]):
        clock = clocks[_U(i)]
        here = ordinal + (i - start)
        while low < here and clock - ring[_U(low) & mask] > length:
            low += 1
        if here - low >= ring.shape[0]:
            return i, low
        ring[_U(here) & mask] = clock
        lows[_U(i)] = low
    return clocks.shape[0], low


@kernel
def live_events(symbols, clocks, ending, only, length, kept):
    """Find the events that are in the window of one that may end a complex event.

    Parameters
    ----------
    symbols : int32, shape (n,)
    clocks : uint64 or float64, shape (n,)
        As in `window_lows`.
    ending : bool, shape (symbols,)
        Whether an event of this symbol may end a complex event.
    only : int
        The one symbol for which `ending` holds; -1 where there are several.
    length : like `clocks`
        Of the window.
    kept : int32, shape (at least n,)
        Written from its end: the indices of these events, ascending.

    Returns
    -------
    (int, int, int)
        Where in `kept` they begin, and the indices of the first and last event that may end one (-1: there is none).
    """
    to = _U(kept.shape[0])
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
                    kept[to] = event
        end = begin
    return np.int64(to), first, last


@kernel
def first_fall(values):
    """Return the first row (of at least one) whose value is less than the one before, or is NaN; n: there is none.

    Parameters
    ----------
    values : integers or float64, shape (n,)
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
