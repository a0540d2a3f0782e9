"""Tests of a set that the steps of its guards do not decide, evaluated for candidate rows alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int32
from cer_gpu.ceql.syntax import Predicate
from cer_gpu.columnar.columns import (
    Block,
    DictionaryEncoded,
    RowsOfBlock,
    codes_of,
    plain_array,
    plain_strings,
    validity,
)
from cer_gpu.columnar.dictionary_encoding import DictionaryCache
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.by_arrow import arrow_rows
from cer_gpu.expressions.derived import Maker, makers_of
from cer_gpu.expressions.string_sets import TestTable
from cer_gpu.expressions.targets.numpy import rows_of

MAX_OF = 4
"""Rows of a block for each row in question, from which on these are tested alone."""

FEW_ROWS = 1 << 12
"""Rows of a block up to which candidate rows are tested alone, so that only their own strings are read."""


MANY_CODES = 64
"""Candidate rows from which on equal strings are looked up once."""

MAX_CACHED_COPIES = 1 << 14
"""Most strings whose results a test caches."""

LateTest = tuple[Predicate, tuple[int, ...]]
"""A predicate, and the places of its conjuncts that are still to be tested."""


class LateTests:
    """Tests by the numbers of their guards, for one evaluation; a test is bound at its first use.

    Parameters
    ----------
    schema : pyarrow.Schema
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._begin_tests(Binder(schema, ""), {}, {})  # each predicate was bound before, by itself

    def _begin_tests(self, binder: Binder, bound: dict[int, t.BoundPredicate], makers: dict[str, Maker]) -> None:
        self._binder, self._bound, self._makers = binder, bound, makers
        self._block: Block | None = None
        self._whole: _WholeBlock
        self._coded: dict[str, DictionaryEncoded] = {}  # of the block at hand
        self._lists: dict[int, tuple[pa.Array, list[bytes | None]]] = {}
        self._remember(0)

    def clone(self) -> LateTests:
        """Return the same tests, as far as they are bound, for another evaluation."""
        other, binder = LateTests.__new__(LateTests), Binder(self._binder.schema, "")
        tables = [(codes, _plain_table(table)) for codes, table in self._binder.inputs.tables]
        binder.inputs = replace(self._binder.inputs, tables=tables).fresh()
        binder.derived = dict(self._binder.derived)
        other._begin_tests(binder, dict(self._bound), makers_of(binder.derived))
        return other

    def forget(self) -> None:
        """Forget the block at hand."""
        self._block = None
        self._coded.clear()
        self._lists.clear()

    def _remember(self, first: int) -> None:
        tables = self._binder.inputs.tables
        tables[first:] = [(codes, _ResultCache(table, self._lists)) for codes, table in tables[first:]]

    def _bound_test(self, guard: int, late: LateTest) -> t.BoundPredicate:
        test = self._bound.get(guard)
        if test is None:
            predicate, places = late
            n_tables = len(self._binder.inputs.tables)
            whole = self._binder.bind(predicate)
            conjuncts = whole.tests if isinstance(whole, t.And) else (whole,)
            test = self._bound[guard] = t.And(tuple(conjuncts[place] for place in places))
            self._remember(n_tables)
            self._makers.update(
                (name, make) for name, make in makers_of(self._binder.derived).items() if name not in self._makers
            )
        return test

    def rows(self, guard: int, rows: Int32, block: Block, late: LateTest) -> Int32:
        """Return the rows of a block that satisfy the late test of a guard, among the candidate rows."""
        if not len(rows):
            return rows
        test, inputs, n_rows = self._bound_test(guard, late), self._binder.inputs, block.n_rows
        if block is not self._block:
            self.forget()
            self._block, self._whole = block, _WholeBlock(block, self._makers)
        if n_rows > FEW_ROWS and MAX_OF * len(rows) > n_rows:
            holds: Any = np.broadcast_to(rows_of(test, inputs, self._whole), (n_rows,))[rows]
        else:
            few = _FewRows(self._whole, rows, self._coded if n_rows <= FEW_ROWS else {})
            few.derive(self._makers)
            holds = np.broadcast_to(rows_of(test, inputs, few), (len(rows),))
        passing: Int32 = rows[holds]
        return passing


def _plain_table(table: DictionaryCache) -> DictionaryCache:
    return table.of if isinstance(table, _ResultCache) else table


class _ResultCache(DictionaryCache):
    """Table of a test of strings, which tests each string once: a log repeats few strings.

    Parameters
    ----------
    table
    lists
        Values of the dictionaries of a block, by the ids of their arrays, which stay referenced.

    Attributes
    ----------
    of : DictionaryCache
    """

    def __init__(self, table: DictionaryCache, lists: dict[int, tuple[pa.Array, list[bytes | None]]]) -> None:
        self.of: DictionaryCache = table
        self._lists = lists
        self._results: dict[bytes | None, bool] = {None: False}

    def __call__(self, values: pa.Array) -> Array:
        """See `DictionaryCache`."""
        return self.of(values)

    def at(self, values: pa.Array, codes: Array) -> Array:
        """See `DictionaryCache`."""
        if not len(values):
            return np.zeros(len(codes), np.bool_)
        places = None
        if len(codes) > MANY_CODES:
            codes, places = np.unique(codes, return_inverse=True)
        if len(values) > FEW_ROWS:
            values, codes = values.take(pa.array(codes)), np.arange(len(codes))
        if id(values) not in self._lists:
            kind = pa.large_binary() if pa.types.is_large_string(values.type) else pa.binary()
            self._lists[id(values)] = values, values.view(kind).to_pylist()
        listed, results = self._lists[id(values)][1], self._results
        strings = [listed[code] for code in codes.tolist()]
        missing = [text for text in dict.fromkeys(strings) if text not in results]
        if missing:
            if len(results) > MAX_CACHED_COPIES:
                results.clear()
                results[None] = False
                missing = [text for text in dict.fromkeys(strings) if text is not None]
            results.update(zip(missing, self._test_strings(missing), strict=True))
        at: Array = np.array([results[text] for text in strings], np.bool_)
        return at if places is None else at[places]

    def _test_strings(self, strings: list[bytes | None]) -> list[bool]:
        array = pa.array(strings, pa.large_binary()).view(pa.large_string())
        if isinstance(self.of, TestTable):  # by itself, as other tests of the column do not read these strings
            return list(map(bool, arrow_rows(self.of.test(array), False) != self.of.negated))
        return list(map(bool, self.of(array)[:-1]))


class _WholeBlock(Block):
    """A block with the computed columns, also of tests bound later; the others are those of the block."""

    def __init__(self, of: Block, makers: dict[str, Maker]) -> None:
        super().__init__(of.batch)
        self._of = of
        self.derive(makers)

    def column(self, name: str) -> pa.Array:
        """See `Block.column`."""
        return super().column(name) if name in self._makers else self._of.column(name)

    def valid(self, name: str) -> Bools | None:
        """See `Block.valid`."""
        return super().valid(name) if name in self._makers else self._of.valid(name)

    def numbers(self, name: str) -> Array:
        """See `Block.numbers`."""
        return super().numbers(name) if name in self._makers else self._of.numbers(name)

    def coded(self, name: str) -> DictionaryEncoded:
        """See `Block.coded`."""
        return super().coded(name) if name in self._makers else self._of.coded(name)


class _FewRows(RowsOfBlock):
    """Few rows of a block, whose strings are encoded alone, or with those of a small block."""

    def __init__(self, whole: Block, rows: Int32, encoded: dict[str, DictionaryEncoded]) -> None:
        super().__init__(whole, rows)
        self._encoded, self._is_small = encoded, whole.n_rows <= FEW_ROWS

    def column(self, name: str) -> pa.Array:
        """See `Block.column`."""
        if name in self._makers and name not in self._columns:
            self._columns[name] = self._makers[name](self)
        return super().column(name)

    def valid(self, name: str) -> Bools | None:
        """See `Block.valid`."""
        return Block.valid(self, name) if name in self._makers else super().valid(name)

    def numbers(self, name: str) -> Array:
        """See `Block.numbers`."""
        return Block.numbers(self, name) if name in self._makers else super().numbers(name)

    def coded(self, name: str) -> DictionaryEncoded:
        """See `Block.coded`."""
        if name not in self._coded:
            if not self._is_small or name in self._makers:
                self._coded[name] = _encode_column(self.column(name))
            else:
                if name not in self._encoded:
                    self._encoded[name] = _encode_column(self.whole.column(name))
                of_all = self._encoded[name]
                self._coded[name] = DictionaryEncoded(self.at(of_all.codes), of_all.values)
        return self._coded[name]


def _encode_column(array: pa.Array) -> DictionaryEncoded:
    if not pa.types.is_dictionary(array.type):
        array = plain_strings(plain_array(array)).dictionary_encode()
    return DictionaryEncoded(codes_of(array, validity(array.indices)), plain_strings(array.dictionary))
