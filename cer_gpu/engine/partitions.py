"""PARTITION BY: key columns -> dense numbers of partitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.backend.partitions import assign_partitions, hash_keys, hash_words
from cer_gpu.ceql.syntax import Name
from cer_gpu.engine.binding import column_type
from cer_gpu.engine.columns import Bools, is_string, known_codes, numbers_of, plain_type, take_rows, validity
from cer_gpu.engine.dictionaries import PerDictionary
from cer_gpu.engine.inputs import read_only
from cer_gpu.engine.scratch import Gathered, Scratch
from cer_gpu.engine.strings import StringCoder
from cer_gpu.errors import EventsError, QueryTypeError

Words = npt.NDArray[np.uint64]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

SWEEP_FROM = 1 << 15
"""Partitions from which on those that hold nothing are looked for."""

SWEEP_TEXTS_FROM = 1 << 16
"""Texts of keys from which on the same is done: events that only count leave theirs behind."""

SPARSE_BELOW = 1 << 18
"""Keys from which on the table has two rows for each, in place of four."""

NAN = np.float64("nan").view(np.uint64)


class Keys:
    """The key columns of a query over one schema.

    Parameters
    ----------
    brackets
        Of PARTITION BY: alternative names for each key.
    schema : pyarrow.Schema
    text
        The query, for error messages.

    Attributes
    ----------
    names : list of str
        Of the keys in the output: the first name of each bracket.
    types : list of pyarrow.DataType
    columns : list of str
        All columns that are read.

    Raises
    ------
    QueryTypeError
        For a column that there is not, whose values have no equality, or alternatives of different kinds.
    """

    def __init__(self, brackets: tuple[tuple[Name, ...], ...], schema: pa.Schema, text: str) -> None:
        self._brackets = [[name.name for name in names] for names in brackets]
        self.names = [names[0] for names in self._brackets]
        self.columns = list(dict.fromkeys(name for names in self._brackets for name in names))
        self.types = [_key_type(names, schema, text) for names in brackets]

    def arrays(self, batch: pa.RecordBatch, types: list[pa.DataType]) -> list[pa.Array]:
        """Return one column for each key: for each event the first of its names that is not NULL.

        Parameters
        ----------
        types
            Of the keys, which those of the columns may differ from; texts may keep their dictionary.
        """
        return [self._key(batch, names, kind) for names, kind in zip(self._brackets, types, strict=True)]

    def at(self, batch: pa.RecordBatch, rows: pa.Array, types: list[pa.DataType]) -> list[pa.Array]:
        """Return the keys of some events, in their types."""
        columns = [take_rows(batch.column(name), rows) for name in self.columns]
        batch = pa.RecordBatch.from_arrays(columns, self.columns)
        return [
            _cast(key, kind, name) for key, kind, name in zip(self.arrays(batch, types), types, self.names, strict=True)
        ]

    def _key(self, batch: pa.RecordBatch, names: list[str], kind: pa.DataType) -> pa.Array:
        columns = [batch.column(name) for name in names]
        if len(columns) == 1 and pa.types.is_dictionary(columns[0].type) and is_string(kind):
            return columns[0]
        columns = [_cast(column, kind, name) for column, name in zip(columns, names, strict=True)]
        return columns[0] if len(columns) == 1 else pc.coalesce(*columns)


def _cast(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        return column if column.type == kind else column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise EventsError(
            f"the key {name!r} of PARTITION BY was {kind} at first and is {column.type} now, and does not fit: {error}"
        ) from None


def _key_type(names: tuple[Name, ...], schema: pa.Schema, text: str) -> pa.DataType:
    """Return the one type of the alternatives of a key."""
    kinds = [column_type(schema, name.name, text, name.span) for name in names]
    for name, kind in zip(names, kinds, strict=True):
        if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
            raise QueryTypeError(
                f"PARTITION BY needs columns of plain values, and {name.name!r} is {kind}", text, *name.span
            )
    kind = kinds[0]
    for name, other in zip(names[1:], kinds[1:], strict=True):
        numbers = [pa.types.is_integer(k) or pa.types.is_floating(k) for k in (kind, other)]
        if kind != other and not all(numbers) and not (is_string(kind) and is_string(other)):
            if pa.types.is_null(kind) or pa.types.is_null(other):
                kind = other if pa.types.is_null(kind) else kind
                continue
            raise QueryTypeError(
                f"names in one bracket of PARTITION BY stand for the same key, but {names[0].name!r} is {kind} "
                f"and {name.name!r} is {other}",
                text,
                *name.span,
                hint="two brackets make two keys: [a], [b]",
            )
        if kind != other:
            both = [pa.schema([("key", k)]) for k in (kind, other)]
            kind = (
                pa.large_string() if is_string(kind) else pa.unify_schemas(both, promote_options="permissive")[0].type
            )
    return plain_type(kind)


class Partitions:
    """Numbers the partitions of a stream.

    Parameters
    ----------
    types
        Of the keys.
    every
        Whether events that are not relevant count in their partition too.
    numbered
        Whether the number of an event in its partition is wanted.
    deal
        (k, n): events of the k-th of n shares of the keys only.

    Attributes
    ----------
    n : int
        Partitions that are known.
    """

    def __init__(
        self, types: list[pa.DataType], *, every: bool, numbered: bool, deal: tuple[int, int] | None = None
    ) -> None:
        self.n = 0
        self._deal = deal or (0, 1)
        self._every, self._numbered = every, numbered
        self._encoders = [_encoder(kind) for kind in types]
        self._keys = np.zeros((0, sum(e.width for e in self._encoders)), np.uint64)
        self._counts = np.zeros(0, np.int64)
        self._hashes, self._numbers, self._ordinals = Scratch(np.uint64), Scratch(np.int32), Scratch(np.int64)
        self._resize(64)
        self._sweep_at = SWEEP_FROM
        self._sweep_texts_at = SWEEP_TEXTS_FROM

    @property
    def wants_sweep(self) -> bool:
        """Whether there are many more partitions, or texts, than after the last time that idle ones were dropped."""
        return self.n >= self._sweep_at or any(encoder.n_texts > self._sweep_texts_at for encoder in self._encoders)

    def assign(self, keys: list[pa.Array], symbols: Int32, rows: Int32) -> tuple[Int32, Int32, Int32, Int64]:
        """Find the partitions of the relevant events of a block.

        Parameters
        ----------
        keys
            Of all events of the block (`Keys.arrays`).
        symbols, rows : int32, shape (n relevant,)

        Returns
        -------
        symbols, rows, partitions, ordinals
            Of the relevant events that have a key; ordinals are int64, counted in the partition (empty unless wanted).
            They last until the next call.
        """
        looked_up = None if self._every else rows
        words = [encoder(key, looked_up) for encoder, key in zip(self._encoders, keys, strict=True)]
        key_words = _joined(words)
        hashes = self._hashes.empty(len(key_words))
        hash_words(key_words, hashes)
        present = self._present(keys, looked_up, words, hashes)
        n = len(rows)
        relevant = np.append(rows, np.int32(-1)) if self._every else rows
        partitions = self._numbers.empty(n + 1)
        ordinals = self._ordinals.empty(n + 1 if self._numbered else 0)
        row = n_read = 0
        while True:
            row, n_read, self.n = assign_partitions(
                key_words, hashes, present, not self._every, relevant, self._table, self._keys, self._counts,
                row, n_read, self.n, partitions, ordinals,
            )  # fmt: skip
            if row == len(key_words):
                break
            self._resize(2 * len(self._keys))
        partitions, ordinals = partitions[:n], ordinals[:n]
        if len(present):
            kept = np.flatnonzero(partitions >= 0)
            return symbols[kept], rows[kept], partitions[kept], ordinals[kept] if self._numbered else ordinals
        return symbols, rows, partitions, ordinals

    def _present(self, keys: list[pa.Array], rows: Int32 | None, words: list[Words], hashes: Words) -> Bools:
        """Return which events have a key (none of its parts is NULL) that is to be assigned; empty where all have."""
        present = np.empty(0, np.bool_)
        share, n_shares = self._deal
        if n_shares > 1:
            if any(isinstance(encoder, _Texts) for encoder in self._encoders):
                values = [encoder.hashes(each) for encoder, each in zip(self._encoders, words, strict=True)]
                hashes = np.empty(len(hashes), np.uint64)
                hash_words(_joined(values), hashes)
            # other bits than those that say where a key is looked for in a table
            present = (hashes >> np.uint64(32)) * np.uint64(n_shares) >> np.uint64(32) == share
        for key in keys:
            holds = validity(key)
            if holds is not None:
                holds = holds if rows is None else holds[rows]
                present = present & holds if len(present) else holds
        return present

    def keep(self, kept: Bools) -> None:
        """Drop the partitions that are not `kept`; the others are numbered anew in their order."""
        self.n = int(kept.sum())
        self._keys[: self.n] = self._keys[: len(kept)][kept]
        self._counts[: self.n] = self._counts[: len(kept)][kept]
        column = 0
        for encoder in self._encoders:
            encoder.keep(self._keys[: self.n, column])
            column += encoder.width
        self._sweep_at = max(SWEEP_FROM, 4 * self.n)
        self._sweep_texts_at = SWEEP_TEXTS_FROM + 2 * self.n
        self._resize(min(len(self._keys), _room_for(2 * self.n)))

    def _resize(self, capacity: int) -> None:
        if capacity != len(self._keys):
            keys, counts = np.zeros((capacity, self._keys.shape[1]), np.uint64), np.zeros(capacity, np.int64)
            keys[: self.n], counts[: self.n] = self._keys[: self.n], self._counts[: self.n]
            self._keys, self._counts = keys, counts
            self._table = np.empty((capacity * (4 if capacity < SPARSE_BELOW else 2), 2), np.int64)
        self._table.fill(-1)
        hashes = np.empty(self.n, np.uint64)
        hash_words(read_only(self._keys[: self.n]), hashes)
        hash_keys(hashes, self._table)

    # ---- state that can be kept -----------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[int, pa.Array]]:
        """Return what another one needs to go on: arrays, and for keys that are texts their values."""
        texts = {i: encoder.texts() for i, encoder in enumerate(self._encoders) if isinstance(encoder, _Texts)}
        return {"keys": self._keys[: self.n], "counts": self._counts[: self.n]}, texts

    def restore(self, snapshot: dict[str, Any], texts: dict[int, pa.Array]) -> None:
        """Go on from a snapshot of the same kind."""
        for i, encoder in enumerate(self._encoders):
            if isinstance(encoder, _Texts):
                encoder.restore(texts[i])
        n = len(snapshot["keys"])
        self._resize(_room_for(n))
        self._keys[:n], self._counts[:n] = snapshot["keys"], snapshot["counts"]
        self.n = n
        self._resize(len(self._keys))  # the table is made anew
        self._sweep_at = max(SWEEP_FROM, 4 * self.n)
        self._sweep_texts_at = SWEEP_TEXTS_FROM + 2 * self.n


def _room_for(n: int) -> int:
    """Return a power of two that so many keys fit into."""
    return max(64, 1 << max(0, n - 1).bit_length())


def _joined(words: list[Words]) -> Words:
    """Return the words of whole keys, not to be written to."""
    return read_only(words[0] if len(words) == 1 else np.concatenate(words, axis=1))


# ---- values as words ----------------------------------------------------------------------------------------------


class _Numbers:
    """Values of fixed width: equal ones, and only those, have equal words."""

    def __init__(self, kind: pa.DataType) -> None:
        wide = pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_interval(kind)
        self._n_bytes = kind.bit_width // 8 if wide else 0
        self.width = -(-self._n_bytes // 8) if wide else 1
        self._gathered = Gathered()

    def __call__(self, array: pa.Array, rows: Int32 | None) -> Words:
        """Return the words of an array, or of some of its rows; they last until the next call."""
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

    def _bytes(self, array: pa.Array) -> Words:
        padded = np.zeros((len(array), 8 * self.width), np.uint8)
        data = array.buffers()[1]
        if len(array) and data is not None:
            n = self._n_bytes
            padded[:, :n] = np.frombuffer(data, np.uint8, len(array) * n, array.offset * n).reshape(-1, n)
        words: Words = padded.view(np.uint64)
        return words

    def hashes(self, words: Words) -> Words:
        """Return words that depend on the values alone."""
        return words

    @property
    def n_texts(self) -> int:
        """How many texts are kept beside the words."""
        return 0

    def keep(self, words: Words) -> None:
        """Nothing is kept beside the words."""


class _Texts:
    """Texts and byte strings: the word of a value is its number in a dictionary of those met so far."""

    width = 1

    def __init__(self) -> None:
        self._coder = StringCoder(bounded=False)
        self._of_dictionary = PerDictionary(self._number)
        self._gathered = Gathered()

    def __call__(self, array: pa.Array, rows: Int32 | None) -> Words:
        """Return the words of an array, or of some of its rows; they last until the next call."""
        if pa.types.is_dictionary(array.type):
            codes, valid = numbers_of(array.indices), validity(array.indices)
            if rows is not None:
                codes, valid = self._gathered.take(codes, rows), None if valid is None else valid[rows]
            codes = self._of_dictionary(array.dictionary)[known_codes(codes, valid)]
        else:
            codes = self._number(array if rows is None else array.take(pa.array(rows)))
        words: Words = codes.astype(np.uint64).reshape(-1, 1)
        return words

    def hashes(self, words: Words) -> Words:
        """Return words that depend on the values alone, and not on which of them were met before."""
        return self._coder.hashes[words]

    @property
    def n_texts(self) -> int:
        """How many texts are kept beside the words."""
        return self._coder.n_values

    def keep(self, words: Words) -> None:
        """Forget the texts of all other words, and number the rest anew."""
        used, codes = np.unique(words, return_inverse=True)
        texts = self.texts().take(pa.array(used))
        words[:] = codes
        self.restore(texts)

    def texts(self) -> pa.Array:
        """Return the values by their numbers."""
        return self._coder.values()

    def restore(self, texts: pa.Array) -> None:
        """Take these values with their numbers."""
        self._coder = StringCoder(bounded=False)
        self._of_dictionary = PerDictionary(self._number)
        self._coder.number(texts)

    def _number(self, array: pa.Array) -> Int32:
        return self._coder.number(array)


def _encoder(kind: pa.DataType) -> _Numbers | _Texts:
    is_text = is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return _Texts() if is_text else _Numbers(kind)
