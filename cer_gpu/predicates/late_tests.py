"""Tests of a set that the steps of its guards do not decide, asked of the rows in question alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int32
from cer_gpu.columnar.columns import Block, Coded, RowsOfBlock, codes_of, plain_array, plain_texts, validity
from cer_gpu.columnar.dictionaries import PerDictionary
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.derived import DerivedColumn, Maker, makers_of
from cer_gpu.expressions.inputs import Inputs
from cer_gpu.expressions.targets.numpy import rows_of

MOST_OF = 4
"""Rows of a block for each row in question, from which on these are tested alone."""

FEW_ROWS = 1 << 12
"""Rows of a block up to which those in question are tested alone, so that nothing is read but their own texts."""


MANY_CODES = 64
"""Rows in question from which on equal texts are looked up once."""

MOST_KNOWN = 1 << 14
"""Most texts that a test remembers."""

LateTest = tuple[t.Test, Inputs, Mapping[str, DerivedColumn]]
"""A test, the contents of its slots, and the columns that it reads and events do not have."""


class LateTests:
    """Tests by the numbers of their guards, for one evaluation."""

    def __init__(self, tests: dict[int, LateTest]) -> None:
        self._tests = tests
        self._state: dict[int, tuple[Inputs, dict[str, Maker]]] = {}
        self._block: Block | None = None
        self._coded: dict[str, Coded] = {}  # of the block at hand
        self._lists: dict[int, tuple[pa.Array, list[bytes | None]]] = {}

    def rows(self, guard: int, rows: Int32, block: Block) -> Int32:
        """Return the rows of a block that satisfy a guard, given those in question."""
        late = self._tests.get(guard)
        if late is None or not len(rows):
            return rows
        state = self._state.get(guard)
        if state is None:
            inputs = late[1].fresh()
            inputs.tables[:] = [(codes, _Remembered(table, self._lists)) for codes, table in inputs.tables]
            state = self._state[guard] = inputs, makers_of(late[2])
        (inputs, makers), n_rows = state, block.n_rows
        if n_rows > FEW_ROWS and MOST_OF * len(rows) > n_rows:
            if makers:
                block = block.fork()
                block.derive(makers)
            holds: Any = np.broadcast_to(rows_of(late[0], inputs, block), (n_rows,))[rows]
        else:
            if block is not self._block:
                self._block = block
                self._coded.clear()
                self._lists.clear()
            few = _FewRows(block, rows, self._coded if n_rows <= FEW_ROWS else {})
            few.derive(makers)
            holds = np.broadcast_to(rows_of(late[0], inputs, few), (len(rows),))
        found: Int32 = rows[holds]
        return found


class _Remembered(PerDictionary):
    """Table of a test of texts, which asks of each text once: a log has the same few texts again and again.

    Parameters
    ----------
    table
    lists
        Values of the dictionaries of a block, by the addresses of their arrays, which are kept.
    """

    def __init__(self, table: PerDictionary, lists: dict[int, tuple[pa.Array, list[bytes | None]]]) -> None:
        self._of, self._lists = table, lists
        self._known: dict[bytes | None, bool] = {None: False}

    def __call__(self, values: pa.Array) -> Array:
        """See `PerDictionary`."""
        return self._of(values)

    def at(self, values: pa.Array, codes: Array) -> Array:
        """See `PerDictionary`."""
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
        listed, known = self._lists[id(values)][1], self._known
        texts = [listed[code] for code in codes.tolist()]
        unknown = [text for text in dict.fromkeys(texts) if text not in known]
        if unknown:
            if len(known) > MOST_KNOWN:
                known.clear()
                unknown = list(dict.fromkeys(texts))
            asked = pa.array(unknown, pa.large_binary()).view(pa.large_string())
            known.update(zip(unknown, self._of(asked)[:-1].tolist(), strict=True))
        at: Array = np.array([known[text] for text in texts], np.bool_)
        return at if places is None else at[places]


class _FewRows(RowsOfBlock):
    """Few rows of a block, of which the texts are coded alone, or with those of a small block."""

    def __init__(self, whole: Block, rows: Int32, known: dict[str, Coded]) -> None:
        super().__init__(whole, rows)
        self._known, self._is_small = known, whole.n_rows <= FEW_ROWS

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

    def coded(self, name: str) -> Coded:
        """See `Block.coded`."""
        if name not in self._coded:
            if not self._is_small or name in self._makers:
                self._coded[name] = _coded(self.column(name))
            else:
                if name not in self._known:
                    self._known[name] = _coded(self.whole.column(name))
                of_all = self._known[name]
                self._coded[name] = Coded(self.at(of_all.codes), of_all.values)
        return self._coded[name]


def _coded(array: pa.Array) -> Coded:
    if not pa.types.is_dictionary(array.type):
        array = plain_texts(plain_array(array)).dictionary_encode()
    return Coded(codes_of(array, validity(array.indices)), plain_texts(array.dictionary))
