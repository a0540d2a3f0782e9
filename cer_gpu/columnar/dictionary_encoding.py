"""Encoding of plain string columns as codes into a dictionary that is cached from block to block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Array
from cer_gpu.backend.strings import encode_strings, hash_strings
from cer_gpu.columnar.memory import Scratch

FEW_VALUES = 4
"""Ratio of the values of a dictionary to those requested, above which only the requested ones are computed."""


class DictionaryCache:
    """Table computed from the dictionary of a string column, and cached until the dictionary changes.

    Parameters
    ----------
    compute
        Makes the table, one row for each value, from the values of the dictionary.
    of_null : array, optional
        Last row of the table, that of NULL; None: zeros.
    """

    def __init__(self, compute: Callable[[pa.Array], Array], of_null: Array | None = None) -> None:
        self._compute, self._of_null = compute, of_null
        self._values: pa.Array | None = None  # referenced, so that no other array gets its address
        self._table: Array | None = None

    def fresh(self) -> DictionaryCache:
        """Return a new one with the same function, without a table."""
        return DictionaryCache(self._compute, self._of_null)

    def __call__(self, values: pa.Array) -> Array:
        """Return the table of a dictionary, with a last row for NULL (so that code 0 can always be looked up)."""
        if self._table is None or self._values is None or not same_memory(values, self._values):
            if self._table is None or not values.equals(self._values):
                rows = self._compute(values)
                last = np.zeros_like(rows, shape=(1, *rows.shape[1:]))
                last[:] = 0 if self._of_null is None else self._of_null
                self._table = np.concatenate([rows, last])
            self._values = values
        return self._table

    @property
    def is_expensive(self) -> bool:
        """True if computing few values may cost much less than computing all."""
        return True

    def at(self, values: pa.Array, codes: Array) -> Array:
        """Return the rows of a dictionary's table at some codes."""
        is_cached = self._table is not None and self._values is not None and same_memory(values, self._values)
        if not is_cached and FEW_VALUES * len(codes) < len(values):
            few, places = np.unique(codes, return_inverse=True)
            results: Array = self._compute(values.take(pa.array(few)))[places]
            return results
        at: Array = self(values)[codes]
        return at

    def codes(self, values: pa.Array) -> Array:
        """Return the codes of the values for which the table, of booleans, is True, ascending."""
        return np.flatnonzero(self(values)[:-1])


def same_memory(a: pa.Array, b: pa.Array) -> bool:
    """Return True if two arrays, both alive, are views of the same memory."""
    return (
        len(a) == len(b)
        and a.offset == b.offset
        and a.type == b.type
        and all(
            (x is None and y is None) or (x is not None and y is not None and x.address == y.address)
            for x, y in zip(a.buffers(), b.buffers(), strict=True)
        )
    )


_MAX_VALUES = 1 << 16
"""Most values of a dictionary; a larger one is dropped before the next block, so that memory stays bounded."""
_MAX_REUSED = 1 << 24
"""Most bytes of an array that is used again after its values were dropped."""


class DictionaryEncoder:
    """Encoder of one string column, block by block.

    Parameters
    ----------
    bounded
        True: many values may all be forgotten, and get new codes afterwards.
    """

    def __init__(self, *, bounded: bool = True) -> None:
        self._bounded = bounded
        self._mixed = Scratch(np.uint64)
        self._n_values = 0
        self._slots = np.full(64, -1, np.int32)
        self._hashes = np.zeros(65, np.uint64)  # always as long as the offsets
        self._offsets = np.zeros(65, np.int64)
        self._bytes = np.zeros(1 << 10, np.uint8)
        self._values: pa.Array | None = None

    def clear(self) -> None:
        """Forget all values; the next ones get codes from 0 on, in the same memory, unless that is large."""
        self._n_values, self._values = 0, None
        if max(self._slots.nbytes, self._offsets.nbytes) > _MAX_REUSED:
            self._slots, self._hashes, self._offsets = (
                self._slots[:64].copy(),
                self._hashes[:65].copy(),
                self._offsets[:65].copy(),
            )
        if self._bytes.nbytes > _MAX_REUSED:
            self._bytes = np.zeros(1 << 10, np.uint8)
        self._slots.fill(-1)

    def encode(self, array: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Array]:
        """Return the codes of strings, and the values by code.

        Parameters
        ----------
        array : pyarrow.StringArray or LargeStringArray
            Strings; NULL rows get an arbitrary code.
        """
        codes = self.number(array)
        return codes, self.values()

    @property
    def n_values(self) -> int:
        """Number of values that have a code."""
        return self._n_values

    def number(self, array: pa.Array) -> npt.NDArray[np.int32]:
        """Return the codes of strings, or of byte strings."""
        if self._bounded and self._n_values > _MAX_VALUES:
            self.clear()
        codes = np.zeros(len(array), np.int32)
        if not array.null_count:
            self._fill(*bytes_of(array), codes)
            return codes
        present = array.drop_null()  # most columns of a log have no value in most rows
        present_codes = np.zeros(len(present), np.int32)
        self._fill(*bytes_of(present), present_codes)
        codes[np.asarray(array.is_valid())] = present_codes
        return codes

    def values(self) -> pa.Array:
        """Return the values by code, as large strings (for byte strings perhaps not valid UTF-8)."""
        if self._values is None:
            n, size = self._n_values, int(self._offsets[self._n_values])
            buffers = [None, pa.py_buffer(self._offsets[: n + 1].copy()), pa.py_buffer(self._bytes[:size].copy())]
            self._values = pa.Array.from_buffers(pa.large_string(), n, buffers)
        return self._values

    @property
    def stored(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """The offsets of the values by code, and their bytes, perhaps with unused space, valid until the next call."""
        return self._offsets, self._bytes

    def _fill(self, offsets: npt.NDArray[Any], data: npt.NDArray[np.uint8], codes: npt.NDArray[np.int32]) -> None:
        row, n_before = 0, self._n_values
        mixed = self._mixed.empty(len(codes))
        hash_strings(offsets, data, mixed)
        n_placed = n_before
        while True:
            values = self._slots, self._hashes, self._offsets, self._bytes
            row, self._n_values = encode_strings(offsets, data, mixed, row, codes, *values, n_placed, self._n_values)
            if row == len(codes):
                break
            self._grow_values(int(offsets[row + 1] - offsets[row]))
            n_placed = self._n_values if self._slots is values[0] else 0
        if self._n_values > n_before:
            self._values = None

    def _grow_values(self, length: int) -> None:
        """Reserve space for one more value of `length` bytes, in each array that is too small."""
        n = self._n_values
        if 2 * n >= len(self._slots):
            self._slots = np.full(4 * len(self._slots), -1, np.int32)
        if n + 2 >= len(self._offsets):
            self._offsets = _reallocated(self._offsets, 4 * len(self._offsets))
            self._hashes = _reallocated(self._hashes, len(self._offsets))
        size = int(self._offsets[n])
        if size + length > len(self._bytes):
            self._bytes = _reallocated(self._bytes, 4 * max(len(self._bytes), length))


def _reallocated(array: Array, length: int) -> Array:
    """Return an array that begins as another one; memory beyond that is not touched."""
    longer = np.empty(length, array.dtype)
    longer[: len(array)] = array
    return longer


def hashes_of(array: pa.Array) -> npt.NDArray[np.uint64]:
    """Return the hashes of strings, or of byte strings; those of NULL are arbitrary."""
    hashes = np.empty(len(array), np.uint64)
    hash_strings(*bytes_of(array), hashes)
    return hashes


def bytes_of(array: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Return the offsets of strings, one more than strings, and their bytes."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype: npt.DTypeLike = np.int64 if large else np.int32
    _, offsets, data = array.buffers()
    bytes_ = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    if not len(array) or offsets is None:
        return np.zeros(len(array) + 1, dtype), bytes_
    return np.frombuffer(offsets, dtype, len(array) + 1, array.offset * np.dtype(dtype).itemsize), bytes_
