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
            last = value_offsets[n_values]
            if 2 * n_values >= slots.shape[0] or n_values + 1 >= value_offsets.shape[0]:
                return i, n_values
            if last + length > value_bytes.shape[0]:
                return i, n_values
            for k in range(length):
                value_bytes[last + k] = data[begin + k]
            value = n_values
            value_offsets[value + 1] = last + length
            hashes[value] = mixed
            slots[slot] = value
            n_values += 1
        codes[_U(i)] = value
    return n, n_values


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
def _hash(data, begin, length):
    mixed = _U(length)
    at, end = _U(begin), _U(begin + length)
    while at + _U(8) <= end:
        mixed = (mixed ^ _word(data, at)) * _U(0x9E3779B97F4A7C15)
        mixed ^= mixed >> _U(29)
        at += _U(8)
    rest = _U(0)
    while at < end:
        rest = (rest << _U(8)) | _U(data[at])
        at += _U(1)
    mixed = (mixed ^ rest) * _U(0x9E3779B97F4A7C15)
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
    while at < end:
        if data[at] != value_bytes[other]:
            return False
        at += _U(1)
        other += _U(1)
    return True
