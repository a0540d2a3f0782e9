"""Bit vectors -> symbols of the relevant events; events that change nothing (quiet) are dropped."""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper, kernel

UNSEEN = -1
"""The symbol of a bit vector that has not been met yet."""

_U = np.uint64


@kernel
def select_relevant(words, keys, values, start, symbols, positions, n_selected):
    """Look up each word and keep the events whose symbol is not 0 (quiet).

    Words of at most 16 bits are indexes of a table; those of several uint64 are in an open-addressing hash table.

    Parameters
    ----------
    words : uint8 or uint16 or uint64, shape (n,), or (n, parts of a word)
    keys : uint64, shape (capacity, parts of a word), or (0, 0)
        Capacity a power of two, never full; empty for a table.
    values : int32, shape (possible words,), or (capacity,)
        Symbols; `UNSEEN` for a word that has not been met, or in a free slot.
    start : int
        Row to begin at.
    symbols, positions : int32, shape (at least n,), written
        The selected events, from `n_selected` on.
    n_selected : int
        Events selected so far.

    Returns
    -------
    (int, int, int)
        The row after the last one read (n, or the row of an unseen word), how many events are selected now, and the
        slot for the unseen word.
    """
    n = words.shape[0]
    end = _U(n_selected)
    for i in range(start, n):
        slot = _U(words[_U(i)]) if words.ndim == 1 else _slot_of(words, keys, values, i)
        symbol = values[slot]
        if symbol < 0:
            return i, np.int64(end), np.int64(slot)
        symbols[end] = symbol
        positions[end] = i
        end += _U(symbol > 0)
    return n, np.int64(end), np.int64(0)


@helper
def _slot_of(words, keys, values, row):
    """Return the slot of a word in the hash table, or the free one for it."""
    width = words.shape[1]
    mixed = _U(0)
    for k in range(width):
        mixed = (mixed ^ words[row, k]) * _U(0x9E3779B97F4A7C15)
        mixed ^= mixed >> _U(29)
    mask = _U(keys.shape[0] - 1)
    slot = mixed & mask
    while values[slot] >= 0:
        same = True
        for k in range(width):
            same &= keys[slot, k] == words[row, k]
        if same:
            break
        slot = (slot + _U(1)) & mask
    return slot


@kernel
def gather(values, rows, taken):
    """Copy the values of some rows to `taken`.

    Parameters
    ----------
    values : number, shape (rows of a block,)
    rows : int32, shape (n,)
    taken : number, shape (n,), written
    """
    for i in range(rows.shape[0]):
        taken[_U(i)] = values[_U(rows[_U(i)])]


@kernel
def gather_marked(values, marks, is_chosen, taken):
    """Copy the values whose mark is chosen to the beginning of `taken`, and return their number.

    Parameters
    ----------
    values : int64, shape (n,)
    marks : int32, shape (n,)
    is_chosen : bool, shape (marks,)
    taken : int64, shape (at least n + 1,), written

    Returns
    -------
    int
    """
    n = _U(0)
    for i in range(values.shape[0]):
        taken[n] = values[_U(i)]
        n += _U(is_chosen[_U(marks[_U(i)])])
    return np.int64(n)


@kernel
def list_marked(marks, is_chosen, rows, ranks):
    """List the rows whose mark is chosen, and return their number.

    Parameters
    ----------
    marks : uint16, shape (n,)
    is_chosen : bool, shape (marks,)
    rows : int32, shape (n + 1,), written
        The rows, ascending.
    ranks : int32, shape (n + 1,), written
        Number of listed rows before each row, and of all.

    Returns
    -------
    int
    """
    n_listed = _U(0)
    for i in range(marks.shape[0]):
        rows[n_listed] = i
        ranks[_U(i)] = n_listed
        n_listed += _U(is_chosen[_U(marks[_U(i)])])
    ranks[_U(marks.shape[0])] = n_listed
    return np.int64(n_listed)


@kernel
def group_rows(groups, begins, rows):
    """List the rows of each group in ascending order, group by group.

    Parameters
    ----------
    groups : int32, shape (rows of a block,)
        Group of each row, from 0; -1 for a row of none.
    begins : int64, shape (groups + 1,), written
        Begin of each group in `rows`; the last one is the number of rows of all groups.
    rows : int32, shape (rows of a block,), written
    """
    begins[:] = 0
    for i in range(groups.shape[0]):
        begins[_U(groups[_U(i)] + 1)] += groups[_U(i)] >= 0
    for group in range(1, begins.shape[0]):
        begins[_U(group)] += begins[_U(group - 1)]
    # the begins move to the ends while rows are written, and back afterwards
    for i in range(groups.shape[0]):
        group = groups[_U(i)]
        if group >= 0:
            rows[_U(begins[_U(group)])] = i
            begins[_U(group)] += 1
    for group in range(begins.shape[0] - 1, 0, -1):
        begins[_U(group)] = begins[_U(group - 1)]
    begins[0] = 0


@kernel
def merge_rows(rows, words, more, bit, merged, merged_words):
    """Merge two ascending lists of rows into one.

    Parameters
    ----------
    rows : int32, shape (n,)
    words : uint8 or uint16, shape (n,), or (0,)
        Word of each of these rows; empty: 1 for all.
    more : int32, shape (m,)
    bit : int
        Word of each of those.
    merged : int32, shape (at least n + m,), written
    merged_words : uint8 or uint16, shape (at least n + m,), written
        Bits of both words for a row that is in both lists.

    Returns
    -------
    int
        Number of merged rows.
    """
    i, j, k = _U(0), _U(0), _U(0)
    n, m = _U(rows.shape[0]), _U(more.shape[0])
    has_words = words.shape[0] > 0
    while i < n and j < m:
        a, b = rows[i], more[j]
        first, second = _U(a <= b), _U(b <= a)
        word = _U(words[i]) if has_words else _U(1)
        merged[k] = min(a, b)
        merged_words[k] = first * word | second * _U(bit)
        i += first
        j += second
        k += _U(1)
    while i < n:
        merged[k] = rows[i]
        merged_words[k] = words[i] if has_words else _U(1)
        i += _U(1)
        k += _U(1)
    while j < m:
        merged[k] = more[j]
        merged_words[k] = bit
        j += _U(1)
        k += _U(1)
    return np.int64(k)
