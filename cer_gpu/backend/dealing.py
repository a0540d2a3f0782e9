"""Keys -> the events of one share of the keys, before anything is looked up for them."""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper, kernel

_U = np.uint64


@helper
def _in_share(words, row, share, n_shares):
    """Return whether a key is in a share; the high bits of its hash tell, as the low ones choose rows of tables."""
    mixed = _U(0)
    for k in range(words.shape[1]):
        mixed = (mixed ^ words[row, _U(k)]) * _U(0x9E3779B97F4A7C15)
        mixed ^= mixed >> _U(32)
    return np.int64(((mixed >> _U(32)) * _U(n_shares)) >> _U(32)) == share


@kernel
def deal_events(words, codes, rows, share, n_shares, own, before, kept, places):
    """Find the events of one share of the keys.

    Parameters
    ----------
    words : uint64, shape (keys, words of a key)
        Keys as words that depend on their values alone.
    codes : int32, shape (n,), or (0,)
        Key of each event; empty: `words` has those of the events, one after the other.
    rows : int32, shape (relevant,)
        The relevant events.
    share, n_shares : int
        Number of this share, from 0, and of all.
    own : int32, shape (at least n + 1,), written
        Events of the share, ascending.
    before : int32, shape (n + 1,), written
        Events of the share before each event; then all.
    kept : int32, shape (at least relevant + 1,), written
        Indices of the relevant events of the share.
    places : int32, shape (at least relevant + 1,), written
        Their places among the events of the share.

    Returns
    -------
    (int, int)
        Events of the share, and relevant ones.
    """
    n_own = 0
    for i in range(before.shape[0] - 1):
        key = _U(codes[_U(i)]) if codes.shape[0] > 0 else _U(i)
        own[_U(n_own)] = i
        before[_U(i)] = n_own
        n_own += _in_share(words, key, share, n_shares)
    before[before.shape[0] - 1] = n_own
    n_kept = 0
    for j in range(rows.shape[0]):
        row = _U(rows[_U(j)])
        kept[_U(n_kept)] = j
        places[_U(n_kept)] = before[row]
        n_kept += before[row + _U(1)] - before[row]
    return n_own, n_kept
