"""Events whose neighbours fit no place of the pattern are dropped: a semi-join of each event with those beside it.

papers: Yannakakis (VLDB 1981), both halves of a full reducer, over the edges of the position automaton (Glushkov, 1961)
that ask for the very next event.  The atoms that an event may be at are bits of a word; those that may follow are read
from a table by the bytes of the word.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper, kernel

_U = np.uint64


@helper
def _union(sets, word):
    """Return the union of the sets of the bits of a word."""
    union = _U(0)
    for byte in range(sets.shape[0]):
        union |= sets[_U(byte), (word >> _U(8 * byte)) & _U(255)]
    return union


@kernel
def drop_without_neighbours(symbols, numbers, partitions, accepted, free, after, before, atoms, last, selected):
    """List the events that may be part of a match by the events right before and right after them.

    An event without a neighbour in the block may have one outside of it, and is selected.

    Parameters
    ----------
    symbols : int32, shape (n,)
    numbers : int64, shape (n,)
        Ascending in each partition; those of neighbours differ by 1.
    partitions : int32, shape (n,), or (0,)
    accepted : uint64, shape (symbols,)
        Atoms that events of each symbol may be at.
    free : uint64, shape (2,)
        Atoms that need no neighbour before, and after.
    after, before : uint64, shape (bytes, 256)
        Atoms that may be right after, and right before, those of each byte of a word.
    atoms : uint64, shape (n,), written
        Atoms that each event may be at.
    last : int32, shape (partitions,), written
        The last event read of each partition; -1 if there is none.
    selected : int32, shape (n,), written

    Returns
    -------
    int
        Number of the events, whose indices are the last of `selected`.
    """
    n, partitioned = symbols.shape[0], partitions.shape[0] > 0
    last[:] = -1
    for i in range(n):
        event = _U(i)
        p = _U(partitions[event]) if partitioned else _U(0)
        word, j = accepted[_U(symbols[event])], last[p]
        if j >= 0:
            fits = free[0]
            if numbers[event] - numbers[_U(j)] == 1:
                fits |= _union(after, atoms[_U(j)])
            word &= fits
        atoms[event] = word
        last[p] = np.int32(i)
    last[:] = -1
    n_selected = _U(n)
    for back in range(n):
        i = n - 1 - back
        event = _U(i)
        p = _U(partitions[event]) if partitioned else _U(0)
        word, j = atoms[event], last[p]
        if j >= 0:
            fits = free[1]
            if numbers[_U(j)] - numbers[event] == 1:
                fits |= _union(before, atoms[_U(j)])
            word &= fits
        atoms[event] = word
        last[p] = np.int32(i)
        if word != _U(0):
            n_selected -= _U(1)
            selected[n_selected] = i
    return n - np.int64(n_selected)
