"""Strings -> codes of the distinct strings met so far: strings are compared once each, not once a row."""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import prefetch

_LARGE_TABLE = 1 << 14
"""Slots from which on a table does not stay in the nearest cache."""
_AHEAD = 16
"""Rows from the first prefetch for a string to its use: its slot, then the value in it, then the bytes of that."""

_U = np.uint64


@kernel
def hash_strings(offsets, data, hashes):
    """Hash strings by their bytes.

    Parameters
    ----------
    offsets : int32 or int64, shape (n + 1,)
        Offsets of an Arrow string array.
    data : uint8, shape (bytes,)
        Bytes of that array.
    hashes : uint64, shape (n,), written
    """
    for i in range(hashes.shape[0]):
        begin = offsets[_U(i)]
        hashes[_U(i)] = _hash(data, begin, offsets[_U(i + 1)] - begin)


@kernel
def encode_strings(
    offsets, data, mixed_of, start, codes, slots, hashes, value_offsets, value_bytes, n_placed, n_values
):
    """Write the number of each string's value; new values are numbered as they appear.

    Parameters
    ----------
    offsets : int32 or int64, shape (n + 1,)
        Offsets of an Arrow string array.
    data : uint8, shape (bytes,)
        Bytes of that array.
    mixed_of : uint64, shape (n,)
        Hashes of the strings (`hash_strings`).
    start : int
        Row to begin at.
    codes : int32, shape (n,), written
    slots : int32, shape (2**slots,), written
        Open-addressing hash table: the value in each slot, -1 in a free one.
    hashes : uint64, shape (values,), written
    value_offsets : int64, shape (values,), written
    value_bytes : uint8, shape (capacity,), written
        The distinct strings met so far, as in an Arrow array, and space for more.
    n_placed, n_values : int
        Number of distinct strings that have a slot, and of all that were met so far; the others get one first.

    Returns
    -------
    (int, int)
        The row after the last one done (n, or the row whose value did not fit), and the number of values.
    """
    mask = _U(slots.shape[0] - 1)
    n = codes.shape[0]
    large = slots.shape[0] >= _LARGE_TABLE
    for value in range(n_placed, n_values):
        if large and value + _AHEAD < n_values:
            prefetch(slots, hashes[_U(value + _AHEAD)] & mask)
        slot = hashes[_U(value)] & mask
        while slots[slot] >= 0:
            slot = (slot + _U(1)) & mask
        slots[slot] = value
    for i in range(start, n):
        if large and i + _AHEAD < n:
            prefetch(slots, mixed_of[_U(i + _AHEAD)] & mask)
            likely = slots[mixed_of[_U(i + _AHEAD // 2)] & mask]
            if likely >= 0:
                prefetch(hashes, _U(likely))
                prefetch(value_offsets, _U(likely))
            likely = slots[mixed_of[_U(i + _AHEAD // 4)] & mask]
            if likely >= 0:
                prefetch(value_bytes, _U(value_offsets[_U(likely)]))
        begin = offsets[_U(i)]
        length = offsets[_U(i + 1)] - begin
        mixed = mixed_of[_U(i)]
        slot = mixed & mask
        value = slots[slot]
        while value >= 0:
            if hashes[_U(value)] == mixed and _same(data, begin, length, value_bytes, value_offsets, value):
                break
            slot = (slot + _U(1)) & mask
            value = slots[slot]
        if value < 0:
            last = value_offsets[_U(n_values)]
            if 2 * n_values >= slots.shape[0] or n_values + 1 >= value_offsets.shape[0]:
                return i, n_values
            if last + length > value_bytes.shape[0]:
                return i, n_values
            _copy(data, begin, length, value_bytes, last)
            value = n_values
            value_offsets[_U(value + 1)] = last + length
            hashes[_U(value)] = mixed
            slots[slot] = value
            n_values += 1
        codes[_U(i)] = value
    return n, n_values


@helper
def _copy(data, begin, length, value_bytes, first):
    """Copy a string; words are read and written as far as that is within the arrays."""
    at, to, end = _U(begin), _U(first), _U(begin + length)
    within = end + _U(8) <= _U(data.shape[0]) and _U(first + length) + _U(8) <= _U(value_bytes.shape[0])
    while at < end:
        if within:
            word = _word(data, at)
            for k in range(8):
                value_bytes[to + _U(k)] = (word >> _U(8 * k)) & _U(255)
            at += _U(8)
            to += _U(8)
        else:
            value_bytes[to] = data[at]
            at += _U(1)
            to += _U(1)


@helper
def _word(data, at):
    """Return eight bytes as one word, which LLVM reads as one."""
    low = _U(data[at]) | _U(data[at + _U(1)]) << _U(8) | _U(data[at + _U(2)]) << _U(16) | _U(data[at + _U(3)]) << _U(24)
    at += _U(4)
    high = (
        _U(data[at]) | _U(data[at + _U(1)]) << _U(8) | _U(data[at + _U(2)]) << _U(16) | _U(data[at + _U(3)]) << _U(24)
    )
    return low | high << _U(32)


@helper
def _tail(data, at, n_bytes):
    """Return 1 to 7 bytes as one word; bytes beyond the array are not read."""
    word = _U(0)
    if at + _U(8) <= _U(data.shape[0]):
        word = _word(data, at) & _low_bytes(n_bytes)
    else:
        for i in range(n_bytes):
            word |= _U(data[at + _U(i)]) << (_U(8) * _U(i))
    return word


@helper
def _low_bytes(n_bytes):
    """Return the mask of the first 1 to 7 bytes of a word."""
    return (_U(1) << (_U(8) * n_bytes)) - _U(1)


@helper
def _hash(data, begin, length):
    mixed = _U(length)
    at, end = _U(begin), _U(begin + length)
    while at + _U(8) <= end:
        mixed = (mixed ^ _word(data, at)) * _U(0x9E3779B97F4A7C15)
        mixed ^= mixed >> _U(29)
        at += _U(8)
    if at < end:
        mixed ^= _tail(data, at, end - at)
    mixed *= _U(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> _U(29))


@helper
def _same(data, begin, length, value_bytes, value_offsets, value):
    first = value_offsets[_U(value)]
    if value_offsets[_U(value + 1)] - first != length:
        return False
    at, other, end = _U(begin), _U(first), _U(begin + length)
    while at + _U(8) <= end:
        if _word(data, at) != _word(value_bytes, other):
            return False
        at += _U(8)
        other += _U(8)
    return at == end or _tail(data, at, end - at) == _tail(value_bytes, other, end - at)
