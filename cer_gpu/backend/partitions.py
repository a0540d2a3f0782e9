"""Keys -> dense numbers of partitions, and the number of each event in its partition."""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import prefetch

LARGE_TABLE = 1 << 15
"""Slots from which on a table does not stay in the cache."""
AHEAD = 16
"""So many events later a key is looked up, which lies anywhere in such a table."""

_U = np.uint64


@kernel
def assign_partitions(
    words,
    values,
    share,
    n_shares,
    valid,
    symbols,
    rows,
    table,
    keys,
    counts,
    start,
    n_selected,
    n_kept,
    n_keys,
    partitions,
    ordinals,
):
    """Give the keys of events numbers, new ones as they appear, and leave out relevant events without a key.

    Parameters
    ----------
    words : uint64, shape (n, n words)
        The key of each event that counts.
    values : uint64, shape (n, n words)
        The same, or numbers that depend on the values alone where words are numbered as they come.
    share, n_shares : int
        Only the keys of this share are assigned, by `values`; shares are of like size.
    valid : bool, shape (n,), or (0,) where all are
        Whether an event has a key (none of its parts is NULL).
    symbols, rows : int32, shape (n relevant,)
        The relevant ones among them; those with a key are moved to the front.
    table : int32, shape (a power of two,)
        Open-addressing hash table: the partition in each slot, -1 where there is none.
    keys : uint64, shape (capacity, n words)
    counts : int64, shape (capacity,)
        Events of each partition so far.
    start, n_selected, n_kept, n_keys : int
        Row to begin at, relevant events read and kept so far, and partitions.
    partitions : int32, shape (n relevant,)
    ordinals : int64, shape (n relevant,)
        Written for the events that are kept.

    Returns
    -------
    (int, int, int, int)
        Where it stopped: `start`, `n_selected`, `n_kept`, `n_keys` for the next call; before row n, because there was
        no room for a new key.
    """
    n, width = words.shape
    n_relevant = rows.shape[0]
    mask = _U(table.shape[0] - 1)
    row = start
    while row < n:
        if table.shape[0] >= LARGE_TABLE and row + AHEAD < n:
            prefetch(table, _hash(words, _U(row + AHEAD), width) & mask)
            likely = table[_hash(words, _U(row + AHEAD // 2), width) & mask]
            if likely >= 0:
                prefetch(keys, _U(likely) * _U(width))
                prefetch(counts, _U(likely))
        relevant = n_selected < n_relevant and rows[_U(n_selected)] == row
        r = _U(row)
        mine = True
        if n_shares > 1:
            # other bits than those that say where a key is looked for in a table
            mixed = (_hash(values, r, width) >> _U(32)) & _U(0xFFFFFFFF)
            mine = (mixed * _U(n_shares)) >> _U(32) == _U(share)
        if mine and (valid.shape[0] == 0 or valid[r]):
            slot = _hash(words, r, width) & mask
            found = table[slot]
            while found >= 0:
                same = True
                for k in range(width):
                    same &= keys[_U(found), _U(k)] == words[r, _U(k)]
                if same:
                    break
                slot = (slot + _U(1)) & mask
                found = table[slot]
            if found < 0 and relevant:
                # a partition without a relevant event holds nothing that could be counted from
                if 2 * n_keys >= table.shape[0] or n_keys >= keys.shape[0]:
                    break
                found = np.int32(n_keys)
                table[slot] = found
                for k in range(width):
                    keys[_U(found), _U(k)] = words[r, _U(k)]
                counts[_U(found)] = 0
                n_keys += 1
            if relevant:
                to = _U(n_kept)
                symbols[to] = symbols[_U(n_selected)]
                rows[to] = np.int32(row)
                partitions[to] = found
                ordinals[to] = counts[_U(found)]
                n_kept += 1
            if found >= 0:
                counts[_U(found)] += 1
        n_selected += relevant
        row += 1
    return row, n_selected, n_kept, n_keys


@kernel
def hash_keys(keys, n_keys, table):
    """Put the first keys into a hash table that is empty (-1 everywhere)."""
    mask = _U(table.shape[0] - 1)
    for i in range(n_keys):
        slot = _hash(keys, _U(i), keys.shape[1]) & mask
        while table[slot] >= 0:
            slot = (slot + _U(1)) & mask
        table[slot] = i


@helper
def _hash(words, row, width):
    mixed = _U(0)
    for k in range(width):
        mixed = (mixed ^ words[row, _U(k)]) * _U(0x9E3779B97F4A7C15)
        mixed ^= mixed >> _U(32)
    return mixed
