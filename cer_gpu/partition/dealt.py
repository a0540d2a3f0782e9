"""Partitions of one shard of the keys: the events of all others are left out before anything is looked up for them.

Every thread that reads a stream for its shard of the keys does this for all events, so it should cost little.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int32, Int64
from cer_gpu.backend.dealing import deal_events
from cer_gpu.columnar.columns import codes_of, take_rows, validity
from cer_gpu.columnar.dictionaries import DictionaryCache
from cer_gpu.columnar.memory import Scratch, read_only
from cer_gpu.columnar.strings import DictionaryEncoder, hashes_of
from cer_gpu.partition.key_index import KeyWords, Texts, encoder_of, joined_words
from cer_gpu.partition.partitions import Partitions

_NO_CODES = read_only(np.empty(0, np.int32))


class _TextWords:
    """Words of texts and byte strings that depend on their values alone."""

    def __init__(self) -> None:
        self._of_dictionary = DictionaryCache(hashes_of)
        self._coder = DictionaryEncoder()

    def coded(self, array: pa.Array) -> pa.Array:
        """Return texts with a dictionary."""
        if pa.types.is_dictionary(array.type):
            return array
        codes, values = self._coder.encode(array)
        valid = validity(array)
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=None if valid is None else ~valid), values)

    def of(self, array: pa.Array) -> tuple[KeyWords, Int32]:
        """Return the word of each text in a dictionary, and the codes of an array."""
        words = read_only(self._of_dictionary(array.dictionary).reshape(-1, 1))
        codes = codes_of(array, validity(array.indices))
        return words, read_only(codes.astype(np.int32, copy=False))


class DealtPartitions(Partitions):
    """Partitions of one shard of the keys.

    Parameters
    ----------
    types, every, numbered
        As those of all partitions.
    shard
        (k, n): shard k of n.
    """

    def __init__(self, types: list[pa.DataType], shard: tuple[int, int], *, every: bool, numbered: bool) -> None:
        super().__init__(types, every=every, numbered=numbered)
        self._shard = shard
        encoders = [encoder_of(kind) for kind in types]
        self._words = [_TextWords() if isinstance(each, Texts) else each for each in encoders]
        self._own, self._before = Scratch(np.int32), Scratch(np.int32)
        self._kept, self._places = Scratch(np.int32), Scratch(np.int32)

    def assign(self, keys: list[pa.Array], symbols: Int32, rows: Int32) -> tuple[Int32, Int32, Int32, Int64]:
        """Find the partitions of the relevant events of a block, as for all keys; events of other keys are left out."""
        if not self._every:
            taken = pa.array(rows)
            keys = [take_rows(key, taken) for key in keys]
        keys = [
            words.coded(key) if isinstance(words, _TextWords) else key
            for words, key in zip(self._words, keys, strict=True)
        ]
        n = len(keys[0])
        own, before = self._own.empty(n + 1), self._before.empty(n + 1)
        relevant = read_only(rows) if self._every else _NO_CODES  # else all of the keys are theirs
        kept, places = self._kept.empty(len(relevant) + 1), self._places.empty(len(relevant) + 1)
        words, codes = self._words_of(keys)
        n_own, n_kept = deal_events(words, codes, relevant, *self._shard, own, before, kept, places)
        own = own[:n_own]
        chosen = pa.array(own)
        keys = [take_rows(key, chosen) for key in keys]
        if not self._every:
            own, kept, places = rows[own], own, np.arange(n_own, dtype=np.int32)
        else:
            kept, places = kept[:n_kept], places[:n_kept]
        symbols, places, partitions, ordinals = super().assign(keys, symbols[kept], places)
        return symbols, own[places], partitions, ordinals

    def _words_of(self, keys: list[pa.Array]) -> tuple[KeyWords, Int32]:
        """Return words of the keys that depend on their values alone, and the codes by which events have them."""
        match self._words, keys:
            case [_TextWords() as only], [key]:
                return only.of(key)
        words = []
        for encode, key in zip(self._words, keys, strict=True):
            if isinstance(encode, _TextWords):
                of_texts, codes = encode.of(key)
                words.append(of_texts[codes])
            else:
                words.append(encode(key, None))
        return joined_words(words), _NO_CODES


def partitions_of(
    types: list[pa.DataType], key_shard: tuple[int, int] | None, *, every: bool, numbered: bool
) -> Partitions:
    """Return the partitions of shard k of n of the keys, for a deal (k, n), or of all; as `Partitions`."""
    if key_shard is None:
        return Partitions(types, every=every, numbered=numbered)
    return DealtPartitions(types, key_shard, every=every, numbered=numbered)
