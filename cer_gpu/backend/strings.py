"""Strings -> codes of the distinct strings met so far: strings are compared once each, not once a row."""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper, kernel

_U = np.uint64


@kernel
def encode_strings(offsets, data, start, codes, slots, hashes, value_offsets, value_bytes, n_values):
    """Write the number of each string's value; new values are numbered as they appear.

    Parameters
    ----------
    offsets : int32 or int64, shape (n + 1,)
        Offsets of an Arrow string array.
    data : uint8, shape (bytes,)
        Bytes of that array.
    start : int
        Row to begin at.
    codes : int32, shape (n,), written
    slots : int32, shape (2**slots,), written
        Open-addressing hash table: the value in each slot, -1 in a free one.
    hashes : uint64, shape (values,), written
    value_offsets : int64, shape (values,), written
    value_bytes : uint8, shape (room,), written
        The distinct strings met so far, as in an Arrow array, and room for more.
    n_values : int
        Number of distinct strings met so far.

    Returns
    -------
    (int, int)
        The row after the last one done (n, or the row for whose value there is no room), and the number of values.
    """
    mask = _U(slots.shape[0] - 1)
    n = codes.shape[0]
    for i in range(start, n):
        begin = offsets[_U(i)]
        length = offsets[_U(i + 1)] - begin
        mixed = _hash(data, begin, length)
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


@kernel
def hash_strings(offsets, data, hashes):
    """Hash strings by their bytes.

    Parameters
    ----------
    offsets : int32 or int64, shape (n + 1,)
    data : uint8, shape (bytes,)
    hashes : uint64, shape (n,), written
    """
    for i in range(hashes.shape[0]):
        hashes[_U(i)] = _hash(data, offsets[_U(i)], offsets[_U(i + 1)] - offsets[_U(i)])


@kernel
def place_values(hashes, n_values, slots):
    """Put values into a hash table of `encode_strings` that is empty (-1 everywhere).

    Parameters
    ----------
    hashes : uint64, shape (values,)
    n_values : int
    slots : int32, shape (2**slots,), written
    """
    mask = _U(slots.shape[0] - 1)
    for value in range(n_values):
        slot = hashes[_U(value)] & mask
        while slots[slot] >= 0:
            slot = (slot + _U(1)) & mask
        slots[slot] = value


@helper
def _hash(data, begin, length):
    mixed = _U(length)
    word = _U(0)
    for k in range(length):
        word = (word << _U(8)) | _U(data[_U(begin + k)])
        if k & 7 == 7:
            mixed = (mixed ^ word) * _U(0x9E3779B97F4A7C15)
            mixed ^= mixed >> _U(29)
            word = _U(0)
    mixed = (mixed ^ word) * _U(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> _U(29))


@helper
def _same(data, begin, length, value_bytes, value_offsets, value):
    first = value_offsets[value]
    same = value_offsets[value + 1] - first == length
    if same:
        for k in range(length):
            if data[_U(begin + k)] != value_bytes[_U(first + k)]:
                same = False
                break
    return same
