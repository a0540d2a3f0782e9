"""Rows of matches compared by their content: those that are taken back, and duplicates.

A row is a match: entries ``offsets[i]`` to ``offsets[i + 1]`` of `positions` and `marks` are its own.  Equal
rows are looked up in a hash table of row numbers, which has two places or more for each row, a power of two of them.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper, kernel

_U = np.uint64


@helper
def _slot_of(offsets, positions, marks, marked, row, n, table):
    """Return the place in the table of the first `n` entries of a row."""
    h = _U(0x9E3779B97F4A7C15)
    begin = offsets[_U(row)]
    for t in range(n):
        h ^= _U(positions[_U(begin + t)])
        h *= _U(0xFF51AFD7ED558CCD)
        if marked:
            h ^= _U(marks[_U(begin + t)])
            h *= _U(0xFF51AFD7ED558CCD)
        h ^= h >> _U(32)
    return (h ^ (h >> _U(29))) & _U(table.shape[0] - 1)


@helper
def _alike(offsets, positions, marks, marked, one, other, n):
    """Return whether row `one` has `n` entries, which are the first of row `other`."""
    x, y = offsets[_U(one)], offsets[_U(other)]
    if offsets[_U(one + 1)] - x != n:
        return False
    for t in range(n):
        if positions[_U(x + t)] != positions[_U(y + t)]:
            return False
        if marked and marks[_U(x + t)] != marks[_U(y + t)]:
            return False
    return True


@kernel
def drop_rows(spans, offsets, positions, marks, back, marked, mask, table):
    """Drop duplicate rows, or those that are taken back.

    A row comes again that has the spans and entries of an earlier one.  A row takes back another one if its entries are
    all of the other's and one more; both are dropped.

    Parameters
    ----------
    spans : int64, shape (2, rows)
    offsets : int32, shape (rows + 1,)
    positions : int64, shape (k,)
    marks : int32, shape (k,)
    back : bool, shape (rows,), or (0,)
        True for rows that take back another one; empty: rows that come again are dropped, and no others.
    marked : bool
        True if rows that differ in their marks alone are different.
    mask : bool, shape (rows,), written
        False for rows that are dropped.
    table : int64, shape (places,), written
    """
    table[:] = -1
    taken = back.shape[0] > 0
    for r in range(mask.shape[0]):
        row = np.int64(r)
        if taken and back[_U(r)]:
            continue
        n = offsets[_U(r + 1)] - offsets[_U(r)]
        slot = _slot_of(offsets, positions, marks, marked, row, n, table)
        again = False
        while table[slot] >= 0 and not again:
            other = _U(table[slot])
            again = not taken and spans[0, other] == spans[0, _U(r)] and spans[1, other] == spans[1, _U(r)]
            again = again and _alike(offsets, positions, marks, marked, table[slot], row, n)
            slot = (slot + _U(1)) & _U(table.shape[0] - 1)
        if again:
            mask[_U(r)] = False
        else:
            table[slot] = row
    for r in range(back.shape[0]):
        if not back[_U(r)]:
            continue
        row = np.int64(r)
        mask[_U(r)] = False
        n = offsets[_U(r + 1)] - offsets[_U(r)] - 1
        slot = _slot_of(offsets, positions, marks, marked, row, n, table)
        while table[slot] >= 0:
            if _alike(offsets, positions, marks, marked, table[slot], row, n):
                mask[_U(table[slot])] = False
                break
            slot = (slot + _U(1)) & _U(table.shape[0] - 1)
