"""Tests of two texts byte by byte, given by their numbers: one contains the other, or begins or ends with it."""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper, kernel

CONTAINS, BEGINS, ENDS = range(3)
"""Relations of a text to another one; in the empty text nothing is contained, and it is contained in nothing."""
_U = np.uint64


@kernel
def text_relates(offsets, letters, relation, text, other):
    """Return whether a text has a relation to another one.

    Parameters
    ----------
    offsets : int64, shape (at least numbers + 1,)
        First byte of each text.
    letters : uint8, shape (bytes,)
    relation : int
        `CONTAINS`, `BEGINS` or `ENDS`.
    text, other : int
        Numbers of the texts.

    Returns
    -------
    bool
    """
    begin, end = offsets[_U(text)], offsets[_U(text + 1)]
    first = offsets[_U(other)]
    n = offsets[_U(other + 1)] - first
    if n > end - begin:
        return False
    if relation == BEGINS:
        return _same(letters, begin, first, n)
    if relation == ENDS:
        return _same(letters, end - n, first, n)
    if n == 0:
        return False
    at, last, letter = begin, end - n, letters[_U(first)]
    while at <= last and not (letters[_U(at)] == letter and _same(letters, at, first, n)):
        at += 1
    return at <= last


@helper
def _same(letters, one, other, n):
    """Return whether n bytes are those at another place."""
    k = 0
    while k < n and letters[_U(one + k)] == letters[_U(other + k)]:
        k += 1
    return k == n
