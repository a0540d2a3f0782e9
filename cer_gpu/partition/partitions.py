"""PARTITION BY: key columns, and the partition ids of events: of all, or of one shard of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Bools, Int32, Int64
from cer_gpu.backend.partitions import distribute_events, number_events
from cer_gpu.ceql.paths import dotted
from cer_gpu.ceql.syntax import Name
from cer_gpu.columnar.columns import as_type, codes_of, is_string, plain_strings, plain_type, take_rows, validity
from cer_gpu.columnar.dictionary_encoding import DictionaryCache, DictionaryEncoder, hashes_of
from cer_gpu.columnar.fields import array_of, column_type, fields_hint
from cer_gpu.columnar.memory import Scratch, read_only
from cer_gpu.errors import QueryTypeError
from cer_gpu.partition.key_index import KeyWords, Strings, encoder_of, index_of, joined_words

SWEEP_PARTITIONS_FROM = 1 << 15
"""Least number of partitions for a sweep, which drops those without state."""

SWEEP_STRINGS_FROM = 1 << 16
"""Least number of old strings for a sweep: the strings of keys remain after the events that had them."""


class PartitionKeys:
    """Key columns of a query over one schema.

    Parameters
    ----------
    brackets
        Brackets of PARTITION BY: alternative names for each key.
    schema : pyarrow.Schema
    text
        The query, for error messages.

    Attributes
    ----------
    names : list of str
        Names of the keys in the output: the first of each bracket.
    types : list of pyarrow.DataType
        Types of the keys in the output.
    parts : list of pyarrow.DataType
        Types of the columns that identify keys (`arrays`).  There are two for a key whose NULL is a value: the value,
        and whether it is NULL.
    columns : list of str
        All columns and fields to read.
    brackets : tuple of tuple of str
        Names of the columns and fields of each key.
    nullable : tuple of bool
        For each key, whether NULL is a value of it.
    nocase : tuple of bool
        For each key, whether strings that differ in the case of letters alone are one.

    Raises
    ------
    QueryTypeError
        When a column is missing, its values have no equality, or alternatives are of different kinds.
    """

    def __init__(self, brackets: tuple[tuple[Name, ...], ...], schema: pa.Schema, text: str) -> None:
        self.brackets: tuple[tuple[str, ...], ...] = tuple(tuple(name.name for name in names) for names in brackets)
        self.names: list[str] = [dotted(names[0]) for names in self.brackets]
        self.columns: list[str] = list(dict.fromkeys(name for names in self.brackets for name in names))
        self.types: list[pa.DataType] = [_key_type(names, schema, text) for names in brackets]
        self.nullable: tuple[bool, ...] = tuple(any(name.nullable for name in names) for names in brackets)
        self.nocase: tuple[bool, ...] = tuple(any(name.nocase for name in names) for names in brackets)
        self.parts: list[pa.DataType] = []
        for kind, nullable in zip(self.types, self.nullable, strict=True):
            self.parts += [kind, pa.bool_()] if nullable else [kind]

    @property
    def identity(self) -> tuple[Any, ...]:
        """Identity of the keys among those of other queries over the same events."""
        own = (self.nullable, self.nocase) if any(self.nocase) else (self.nullable,)
        return (self.brackets, *own) if any(map(any, own)) else self.brackets

    def arrays(
        self, batch: pa.RecordBatch, parts: list[pa.DataType], having: Sequence[Sequence[Bools | None]] = ()
    ) -> list[pa.Array]:
        """Return the columns that identify keys: for each event, the first of the alternatives that is not NULL.

        Parameters
        ----------
        parts
            Types of these columns (`parts`), to which others are cast; strings may keep their dictionary.
        having
            For each key, and each of its columns, the events whose key it is, or None for all.
        """
        columns = {name: array_of(batch, name) for name in self.columns}
        key_arrays, kinds = [], iter(parts)
        for i, (names, nullable) in enumerate(zip(self.brackets, self.nullable, strict=True)):
            of_key = [columns[name] for name in names]
            if having:
                of_key = [_where(column, events) for column, events in zip(of_key, having[i], strict=True)]
            key = self._bind_key(of_key, names, kind := next(kinds))
            key = _in_lower_case(key) if self.nocase[i] else key
            key_arrays += _with_null(key, kind) if nullable and next(kinds) is not None else [key]
        return key_arrays

    def n_without(self, batch: pa.RecordBatch, rows: Int32) -> int:
        """Return the number of some events that have no key: all alternatives of one are NULL."""
        if len(self.columns) == 1 and not any(self.nullable) and len(rows) == batch.num_rows:
            return int(array_of(batch, self.columns[0]).null_count)  # the rows are all
        missing: Bools | None = None
        for names, nullable in zip(self.brackets, self.nullable, strict=True):
            columns = [] if nullable else [array_of(batch, name) for name in names]
            if columns and all(column.null_count for column in columns):
                empty = np.ones(len(rows), np.bool_)
                for column in columns:
                    empty &= pc.is_null(column).to_numpy(zero_copy_only=False)[rows]
                missing = empty if missing is None else missing | empty
        return 0 if missing is None else int(np.count_nonzero(missing))

    def at(self, batch: pa.RecordBatch, rows: pa.Array, types: list[pa.DataType]) -> list[pa.Array]:
        """Return the keys of some events, in these types."""
        keys = self._keys_in({name: take_rows(array_of(batch, name), rows) for name in self.columns}, types)
        return [
            as_type(key, kind, f"the key {name!r} of PARTITION BY")
            for key, kind, name in zip(keys, types, self.names, strict=True)
        ]

    def _keys_in(self, columns: dict[str, pa.Array], types: list[pa.DataType]) -> list[pa.Array]:
        return [
            self._bind_key([columns[name] for name in names], names, kind)
            for names, kind in zip(self.brackets, types, strict=True)
        ]

    def _bind_key(self, columns: list[pa.Array], names: tuple[str, ...], kind: pa.DataType) -> pa.Array:
        if len(columns) == 1 and pa.types.is_dictionary(columns[0].type) and is_string(kind):
            return _readable_dictionary(columns[0])
        columns = [_as_key(column, kind, name) for column, name in zip(columns, names, strict=True)]
        # Arrow makes wider decimals of narrow ones
        return columns[0] if len(columns) == 1 else _as_key(pc.coalesce(*columns), kind, names[0])


def _readable_dictionary(column: pa.Array) -> pa.Array:
    """Return a column with a dictionary in a layout that Arrow's functions read."""
    if pa.types.is_string_view(column.type.value_type):
        return pa.DictionaryArray.from_arrays(column.indices, plain_strings(column.dictionary))
    return column


def _in_lower_case(key: pa.Array) -> pa.Array:
    """Return strings in lower case."""
    if pa.types.is_null(key.type):
        return key
    if not pa.types.is_dictionary(key.type):
        return pc.utf8_lower(plain_strings(key))
    values = pc.utf8_lower(plain_strings(key.dictionary)).dictionary_encode()  # several may have become one
    return pa.DictionaryArray.from_arrays(values.indices.take(key.indices), values.dictionary)


def _where(column: pa.Array, events: Bools | None) -> pa.Array:
    """Return a column that is NULL but for some events."""
    if events is None or events.all():
        return column
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return pc.if_else(pa.array(events), column, pa.scalar(None, column.type))


def _with_null(key: pa.Array, kind: pa.DataType) -> list[pa.Array]:
    """Return a key whose NULL is a value as two columns without NULL: any value in its place, and where it was."""
    missing = pc.is_null(key)
    if pa.types.is_dictionary(key.type):
        key = key.cast(key.type.value_type)
    if pa.types.is_null(kind):
        return [missing, missing]
    return [as_type(key, kind, "the key of PARTITION BY").fill_null(some_value(kind)), missing]


def some_value(kind: pa.DataType) -> pa.Scalar:
    """Return a value of a type."""
    if is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.scalar("" if is_string(kind) else b"", kind)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(64))])[0]


def _as_key(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    return as_type(column, kind, f"the key {name!r} of PARTITION BY")


def _key_type(names: tuple[Name, ...], schema: pa.Schema, text: str) -> pa.DataType:
    """Return the common type of the alternatives of a key."""
    kinds = [column_type(schema, name.name, text, name.span) for name in names]
    for name, kind in zip(names, kinds, strict=True):
        is_plain = not pa.types.is_nested(kind) and not pa.types.is_run_end_encoded(kind)
        if not is_plain or isinstance(kind, pa.BaseExtensionType):
            raise QueryTypeError(
                f"PARTITION BY needs columns of plain values, and {dotted(name.name)!r} is {kind}",
                text,
                *name.span,
                hint=fields_hint(name.name, kind),
            )
        if name.nocase and not is_string(kind) and not pa.types.is_null(kind):
            raise QueryTypeError(f"NOCASE is of strings, and {dotted(name.name)!r} is {kind}", text, *name.span)
    kind = kinds[0]
    for name, other in zip(names[1:], kinds[1:], strict=True):
        numbers = [pa.types.is_integer(k) or pa.types.is_floating(k) for k in (kind, other)]
        if kind != other and not all(numbers) and not (is_string(kind) and is_string(other)):
            if pa.types.is_null(kind) or pa.types.is_null(other):
                kind = other if pa.types.is_null(kind) else kind
                continue
            raise QueryTypeError(
                f"names in one bracket of PARTITION BY stand for the same key, but {dotted(names[0].name)!r} is {kind} "
                f"and {dotted(name.name)!r} is {other}",
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
    """Assignment of dense partition ids to the events of a stream.

    Parameters
    ----------
    types
        Types of the keys.
    every
        True: events that are not relevant count in their partition too.
    numbered
        True: number the events of each partition.

    Attributes
    ----------
    n : int
        Number of known partitions.
    """

    def __init__(self, types: list[pa.DataType], *, every: bool, numbered: bool) -> None:
        self.n: int = 0
        self._every, self._numbered = every, numbered
        self._encoders = [encoder_of(kind) for kind in types]
        self._keys = np.zeros((0, sum(e.width for e in self._encoders)), np.uint64)
        self._counts = np.zeros(0, np.int64)
        self._numbers, self._ordinals = Scratch(np.int32), Scratch(np.int64)
        self._index = index_of(self._encoders)
        self._resize(64)
        self._sweep_at = SWEEP_PARTITIONS_FROM
        self._sweep_strings_at = SWEEP_STRINGS_FROM

    @property
    def wants_sweep(self) -> bool:
        """True if there are many more partitions, or strings, than after the last sweep."""
        strings = (encoder.n_aside for encoder in self._encoders if isinstance(encoder, Strings))
        return self.n >= self._sweep_at or any(n > self._sweep_strings_at for n in strings)

    def assign(self, keys: list[pa.Array], symbols: Int32, rows: Int32) -> tuple[Int32, Int32, Int32, Int64]:
        """Find the partitions of the relevant events of a block.

        Parameters
        ----------
        keys
            Keys of all events of the block (`PartitionKeys.arrays`).
        symbols, rows : int32, shape (n relevant,)

        Returns
        -------
        symbols, rows, partitions, ordinals
            Those of the relevant events that have a key, valid until the next call; ordinals are the int64 numbers of
            events in their partition (empty unless `numbered`).
        """
        some_have_none = self._index.look_up(keys, None if self._every or len(rows) == len(keys[0]) else rows)
        runs = self._index.runs(rows)
        start = 0
        while True:
            start, self.n = self._index.assign(runs, self._keys, self._counts, start, self.n)
            if start == len(runs.ids):
                break
            self._resize(2 * len(self._keys))
        n = len(rows)
        partitions = self._numbers.empty(n + 1)
        ordinals = self._ordinals.empty(n + 1 if self._numbered else 0)
        number_events(*runs, self._counts, partitions, ordinals)
        partitions, ordinals = partitions[:n], ordinals[:n]
        if some_have_none:
            selected = np.flatnonzero(partitions >= 0)
            return (
                symbols[selected],
                rows[selected],
                partitions[selected],
                ordinals[selected] if self._numbered else ordinals,
            )
        return symbols, rows, partitions, ordinals

    def keep(self, mask: Bools) -> None:
        """Drop the partitions outside of `mask`; the remaining ones get new ids in their order."""
        self.n = int(mask.sum())
        self._keys[: self.n] = self._keys[: len(mask)][mask]
        self._counts[: self.n] = self._counts[: len(mask)][mask]
        column = 0
        for encoder in self._encoders:
            encoder.keep(self._keys[: self.n, column])
            column += encoder.width
        self._sweep_at = max(SWEEP_PARTITIONS_FROM, 4 * self.n)
        self._sweep_strings_at = SWEEP_STRINGS_FROM + 2 * self.n
        self._resize(min(len(self._keys), _capacity_for(2 * self.n)))

    def _resize(self, capacity: int) -> None:
        if capacity != len(self._keys):
            keys, counts = np.zeros((capacity, self._keys.shape[1]), np.uint64), np.zeros(capacity, np.int64)
            keys[: self.n], counts[: self.n] = self._keys[: self.n], self._counts[: self.n]
            self._keys, self._counts = keys, counts
        self._index.rebuild(self._keys, self.n)

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[int, pa.Array]]:
        """Return the state: arrays, and the values of string keys."""
        strings = {i: encoder.strings() for i, encoder in enumerate(self._encoders) if isinstance(encoder, Strings)}
        return {"keys": self._keys[: self.n], "counts": self._counts[: self.n]}, strings

    def restore(self, snapshot: dict[str, Any], strings: dict[int, pa.Array]) -> None:
        """Go on from a snapshot."""
        for i, encoder in enumerate(self._encoders):
            if isinstance(encoder, Strings):
                encoder.restore(strings[i])
        n = len(snapshot["keys"])
        self._resize(_capacity_for(n))
        self._keys[:n], self._counts[:n] = snapshot["keys"], snapshot["counts"]
        self.n = n
        self._resize(len(self._keys))  # rebuilds the index
        self._sweep_at = max(SWEEP_PARTITIONS_FROM, 4 * self.n)
        self._sweep_strings_at = SWEEP_STRINGS_FROM + 2 * self.n


def _capacity_for(n: int) -> int:
    """Return a power of two that holds `n` keys."""
    return max(64, 1 << max(0, n - 1).bit_length())


_NO_CODES = read_only(np.empty(0, np.int32))


class _StringWords:
    """Words of strings and byte strings that depend on their values alone."""

    def __init__(self) -> None:
        self._of_dictionary = DictionaryCache(hashes_of)
        self._coder = DictionaryEncoder()

    def coded(self, array: pa.Array) -> pa.Array:
        """Return strings with a dictionary."""
        if pa.types.is_dictionary(array.type):
            return array
        codes, values = self._coder.encode(array)
        valid = validity(array)
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=None if valid is None else ~valid), values)

    def of(self, array: pa.Array) -> tuple[KeyWords, Int32]:
        """Return the word of each string in a dictionary, and the codes of an array."""
        words = read_only(self._of_dictionary(array.dictionary).reshape(-1, 1))
        codes = codes_of(array, validity(array.indices))
        return words, read_only(codes.astype(np.int32, copy=False))


class DistributedPartitions(Partitions):
    """Partitions of one shard of the keys: the events of all other keys are dropped before any look-up.

    Every thread that reads a stream for its shard of the keys does this for all events, so it should cost little.

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
        self._words = [_StringWords() if isinstance(each, Strings) else each for each in encoders]
        self._own, self._before = Scratch(np.int32), Scratch(np.int32)
        self._selected, self._places = Scratch(np.int32), Scratch(np.int32)

    def assign(self, keys: list[pa.Array], symbols: Int32, rows: Int32) -> tuple[Int32, Int32, Int32, Int64]:
        """Find the partitions of the relevant events of a block, as for all keys; events of other keys are dropped."""
        if not self._every:
            taken = pa.array(rows)
            keys = [take_rows(key, taken) for key in keys]
        keys = [
            words.coded(key) if isinstance(words, _StringWords) else key
            for words, key in zip(self._words, keys, strict=True)
        ]
        n = len(keys[0])
        own, before = self._own.empty(n + 1), self._before.empty(n + 1)
        relevant = read_only(rows) if self._every else _NO_CODES  # else all of the keys are theirs
        selected, places = self._selected.empty(len(relevant) + 1), self._places.empty(len(relevant) + 1)
        words, codes = self._words_of(keys)
        n_own, n_selected = distribute_events(words, codes, relevant, *self._shard, own, before, selected, places)
        own = own[:n_own]
        chosen = pa.array(own)
        keys = [take_rows(key, chosen) for key in keys]
        if not self._every:
            own, selected, places = rows[own], own, np.arange(n_own, dtype=np.int32)
        else:
            selected, places = selected[:n_selected], places[:n_selected]
        symbols, places, partitions, ordinals = super().assign(keys, symbols[selected], places)
        return symbols, own[places], partitions, ordinals

    def _words_of(self, keys: list[pa.Array]) -> tuple[KeyWords, Int32]:
        """Return words of the keys that depend on their values alone, and the codes by which events have them."""
        match self._words, keys:
            case [_StringWords() as only], [key]:
                return only.of(key)
        words = []
        for encode, key in zip(self._words, keys, strict=True):
            if isinstance(encode, _StringWords):
                of_strings, codes = encode.of(key)
                words.append(of_strings[codes])
            else:
                words.append(encode(key, None))
        return joined_words(words), _NO_CODES


def partitions_of(
    types: list[pa.DataType], key_shard: tuple[int, int] | None, *, every: bool, numbered: bool
) -> Partitions:
    """Return the partitions of shard k of n of the keys, given (k, n), or else of all keys; as `Partitions`."""
    if key_shard is None:
        return Partitions(types, every=every, numbered=numbered)
    return DistributedPartitions(types, key_shard, every=every, numbered=numbered)
