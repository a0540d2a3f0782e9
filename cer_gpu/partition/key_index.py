"""Encoding of keys as words, and lookup of the partition ids of words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Int32, Int64, UInt64
from cer_gpu.backend.partitions import UNASSIGNED, assign_partitions, find_runs, hash_keys
from cer_gpu.columnar.columns import codes_or_zero, is_string, numbers_of, validity
from cer_gpu.columnar.dictionary_encoding import DictionaryCache, DictionaryEncoder
from cer_gpu.columnar.memory import GatherBuffer, Scratch, allocate, read_only

KeyWords = UInt64

SPARSE_BELOW = 1 << 18
"""Keys from which on the hash table has two rows for each instead of four."""

NAN = np.float64("nan").view(np.uint64)

_NO_NUMBERS = np.empty(0, np.int32)
_ALL = np.empty(0, np.bool_)
"""Mask of the rows with a key: all of them."""


class Numbers:
    """Encoder of values of fixed width: words are equal if and only if values are."""

    def __init__(self, kind: pa.DataType) -> None:
        wide = pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_interval(kind)
        self._n_bytes = kind.bit_width // 8 if wide else 0
        self.width: int = -(-self._n_bytes // 8) if wide else 1
        self._gathered = GatherBuffer()

    def __call__(self, array: pa.Array, rows: Int32 | None) -> KeyWords:
        """Return the words of an array, or of some of its rows, valid until the next call."""
        if self._n_bytes:
            return self._bytes(array if rows is None else array.take(pa.array(rows)))
        values = numbers_of(array)
        if rows is not None and values.dtype != np.bool_:
            values = self._gathered.take(values, rows)
        elif rows is not None:
            values = values[rows]
        if values.dtype.kind == "f":
            words = (values + 0.0).view(np.uint64)  # -0.0 and 0.0 are one key
            missing = np.isnan(values)
            if missing.any():
                words[missing] = NAN
        else:
            words = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64, copy=False).view(np.uint64)
        return words.reshape(-1, 1)

    def _bytes(self, array: pa.Array) -> KeyWords:
        padded = np.zeros((len(array), 8 * self.width), np.uint8)
        data = array.buffers()[1]
        if len(array) and data is not None:
            n = self._n_bytes
            padded[:, :n] = np.frombuffer(data, np.uint8, len(array) * n, array.offset * n).reshape(-1, n)
        words: KeyWords = padded.view(np.uint64)
        return words

    def keep(self, words: KeyWords) -> None:
        """Do nothing: the words are the only state."""


class Strings:
    """Encoder of strings and byte strings: a word is the code of a value in a dictionary of those seen so far."""

    width = 1

    def __init__(self) -> None:
        self._taken = Scratch(np.int32)
        self._n_in_dictionary = 0
        self._forget_strings()

    def __call__(self, array: pa.Array, rows: Int32 | None) -> KeyWords:
        """Return the words of an array, or of some of its rows, valid until the next call."""
        codes, numbers = self.codes(array, rows)
        words: KeyWords = (numbers[codes] if len(numbers) else codes).astype(np.uint64).reshape(-1, 1)
        return words

    def codes(self, array: pa.Array, rows: Int32 | None) -> tuple[Int32, Int32]:
        """Return the codes of an array, or of some of its rows, and the words of codes (empty: codes are words)."""
        if not pa.types.is_dictionary(array.type):
            return self._coder.number(array if rows is None else array.take(pa.array(rows))), np.empty(0, np.int32)
        self._n_in_dictionary = len(array.dictionary)
        codes, valid = numbers_of(array.indices).astype(np.int32, copy=False), validity(array.indices)
        if rows is not None:
            codes = np.take(codes, rows, out=self._taken.empty(len(rows)), mode="clip")
            valid = None if valid is None else valid[rows]
        return codes_or_zero(codes, valid), self._of_dictionary(array.dictionary)

    @property
    def n_strings(self) -> int:
        """Number of strings that have a word."""
        return self._coder.n_values

    @property
    def n_aside(self) -> int:
        """Number of strings outside the current dictionary; strings of it, if dropped, would soon get words again."""
        return max(self.n_strings - self._n_in_dictionary, 0)

    def keep(self, words: KeyWords) -> None:
        """Drop the strings of all other words, and renumber the remaining ones."""
        used, codes = np.unique(words, return_inverse=True)
        strings = self.strings().take(pa.array(used))
        words[:] = codes
        self.restore(strings)

    def strings(self) -> pa.Array:
        """Return the strings in the order of their words."""
        return self._coder.values()

    def restore(self, strings: pa.Array) -> None:
        """Replace all strings by these, with their indices as words."""
        self._forget_strings()
        self._coder.number(strings)

    def _forget_strings(self) -> None:
        self._coder = DictionaryEncoder(bounded=False)
        self._of_dictionary = DictionaryCache(self._coder.number)


def encoder_of(kind: pa.DataType) -> Numbers | Strings:
    """Return the encoder of the values of a type."""
    of_strings = is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return Strings() if of_strings else Numbers(kind)


class Runs(NamedTuple):
    """Runs of equal keys in a block, as the kernels of `cer_gpu.backend.partitions` have them.

    Attributes
    ----------
    begins : int32, shape (runs + 1,)
    rows : int32, shape (relevant,)
    ids : int32, shape (runs,)
        Partition id of each run, or less than 0.
    """

    begins: Int32
    rows: Int32
    ids: Int32


class KeyIndex:
    """Index from keys to partition ids, used block by block."""

    _table: Array

    def __init__(self) -> None:
        self._prepared: tuple[Array, ...] = ()
        self._begins, self._ids = Scratch(np.int32), Scratch(np.int32)

    def rebuild(self, keys: KeyWords, n: int) -> None:
        """Index the first `n` of these keys, with space for all of them."""
        raise NotImplementedError

    def look_up(self, keys: list[pa.Array], rows: Int32 | None) -> bool:
        """Prepare the keys of a block, or of some of its rows; return True if some may be in no partition."""
        raise NotImplementedError

    def runs(self, rows: Int32) -> Runs:
        """Cut the prepared keys into runs of equal keys; `rows` are the relevant rows among them."""
        words, present = self._prepared[0], self._prepared[-1]
        begins = self._begins.empty(len(words) + 1)
        n = find_runs(words, present, begins)
        return Runs(read_only(begins[: n + 1]), rows, self._ids.empty(n))

    def assign(self, runs: Runs, keys: KeyWords, counts: Int64, start: int, n: int) -> tuple[int, int]:
        """Assign ids to the runs of the prepared keys; the arguments are those of `assign_partitions`."""
        begins, rows, ids = runs
        done: tuple[int, int] = assign_partitions(
            *self._prepared, begins, rows, self._table, keys, counts, start, n, ids
        )
        return done


class ByHash(KeyIndex):
    """Hash table of keys of any kind, with an encoder for each column."""

    def __init__(self, encoders: list[Numbers | Strings]) -> None:
        super().__init__()
        self._encoders = encoders
        self._table = np.empty((0, 2), np.int64)

    def rebuild(self, keys: KeyWords, n: int) -> None:
        """Hash the first `n` of these keys into a table with space for all."""
        capacity = len(keys) * (4 if len(keys) < SPARSE_BELOW else 2)
        if capacity != len(self._table):
            self._table = allocate((capacity, 2), np.int64)
        self._table.fill(UNASSIGNED)
        hash_keys(read_only(keys[:n]), self._table)

    def look_up(self, keys: list[pa.Array], rows: Int32 | None) -> bool:
        """Encode the keys of a block, or of some of its rows; return True if some may be in no partition."""
        words = [encoder(key, rows) for encoder, key in zip(self._encoders, keys, strict=True)]
        present = _ALL
        for key in keys:
            holds = validity(key)
            if holds is not None:
                holds = holds if rows is None else holds[rows]
                present = present & holds if len(present) else holds
        self._prepared = joined_words(words), _NO_NUMBERS, present
        return len(present) > 0


class ByString(KeyIndex):
    """Array from the words of strings to partition ids, for keys of one string column: no event needs a hash."""

    def __init__(self, encoder: Strings) -> None:
        super().__init__()
        self._encoder = encoder
        self._table = np.empty(0, np.int32)
        self._n_entered = 0

    def rebuild(self, keys: KeyWords, n: int) -> None:
        """Enter the first `n` of these keys."""
        self._table, self._n_entered = np.empty(0, np.int32), 0
        self._enter_new_strings()
        self._table[keys[:n, 0]] = np.arange(n, dtype=np.int32)

    def look_up(self, keys: list[pa.Array], rows: Int32 | None) -> bool:
        """Encode the strings of a block, or of some of its rows; return True if some may be in no partition."""
        codes, numbers = self._encoder.codes(keys[0], rows)
        self._enter_new_strings()
        holds = validity(keys[0])
        present = _ALL if holds is None else holds if rows is None else holds[rows]
        self._prepared = read_only(codes.reshape(-1, 1)), numbers, present
        return holds is not None

    def _enter_new_strings(self) -> None:
        """Enter new strings as unassigned."""
        n = self._encoder.n_strings
        if 0 < n == self._n_entered:
            return
        if n >= len(self._table):
            larger = np.empty(max(64, 1 << n.bit_length()), np.int32)
            larger[: self._n_entered] = self._table[: self._n_entered]
            self._table = larger
        self._table[self._n_entered : n] = UNASSIGNED
        self._n_entered = n


def index_of(encoders: list[Numbers | Strings]) -> KeyIndex:
    """Return the index for keys with these encoders."""
    match encoders:
        case [Strings() as only]:
            return ByString(only)
        case _:
            return ByHash(encoders)


def joined_words(words: list[KeyWords]) -> KeyWords:
    """Return the words of whole keys, joined from those of their columns, read-only."""
    return read_only(words[0] if len(words) == 1 else np.concatenate(words, axis=1))
