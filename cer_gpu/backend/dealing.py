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
def deal_events(words, codes, share, n_shares, own, before):
    """Find the events of one share of the keys.

    Parameters
    ----------
    words : uint64, shape (keys, words of a key)
        Keys as words that depend on their values alone.
    codes : int32, shape (n,), or (0,)
        Key of each event; empty: `words` has those of the events, one after the other.
    share, n_shares : int
        Number of this share, from 0, and of all.
    own : int32, shape (at least n + 1,), written
        Events of the share, ascending.
    before : int32, shape (n + 1,), written
        Events of the share before each event; then all.

    Returns
    -------
    int
        Events of the share.
    """
    n_own = 0
    for i in range(before.shape[0] - 1):
        key = _U(codes[_U(i)]) if codes.shape[0] > 0 else _U(i)
        own[_U(n_own)] = i
        before[_U(i)] = n_own
        n_own += _in_share(words, key, share, n_shares)
    before[before.shape[0] - 1] = n_own
    return n_own


@kernel
def choose_own(rows, before, kept, places):
    """Choose the relevant events of a share.

    Parameters
    ----------
    rows : int32, shape (n relevant,)
    before : int32, shape (n + 1,)
        As `deal_events` writes them.
    kept : int32, shape (at least n relevant + 1,), written
        Indices of the relevant events of the share.
    places : int32, shape (at least n relevant + 1,), written
        Their places among the events of the share.

    Returns
    -------
    int
        Relevant events of the share.
    """
    n_kept = 0
    for j in range(rows.shape[0]):
        row = _U(rows[_U(j)])
        kept[_U(n_kept)] = j
        places[_U(n_kept)] = before[row]
        n_kept += before[row + _U(1)] - before[row]
    return n_kept
