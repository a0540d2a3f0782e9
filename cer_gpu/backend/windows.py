"""Clocks of relevant events -> where the window that ends at each of them begins."""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import kernel

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
