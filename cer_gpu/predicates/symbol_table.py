"""Map from words to symbols, numbered as they appear; it lets only relevant events pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cer_gpu.backend.compaction import UNSEEN, select_relevant
from cer_gpu.columnar.memory import Scratch, read_only

Words = npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.uint64]
MAX_WORDS = 1 << 16
"""Most words in the hash table, which is cleared beyond, so that memory stays bounded."""

Step = Callable[[npt.NDArray[np.int32], int, npt.NDArray[np.int32], npt.NDArray[np.int32], int], tuple[int, int, int]]
"""A function like `select_relevant` of the table, the first row, symbols, rows and the number selected before."""
Selected = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]

_NOTHING = np.empty(1, np.int32)


class SymbolSource(Protocol):
    """Numbering of words as symbols."""

    def symbol(self, word: int) -> int:
        """Return the symbol of a bit vector (bit g: the event satisfies guard g)."""


class SymbolTable:
    """Map from the words of one query to symbols.

    Parameters
    ----------
    table
        Gives each word its symbol: the table of the automaton, or what notes the words on their way to it.
    dtype
        Type of a word (`BoundGuards.dtype`).
    n_guards
        Bits of a word.

    Attributes
    ----------
    version : int
        Number that changes with each change of `arrays`.
    """

    def __init__(self, table: SymbolSource, dtype: npt.DTypeLike, n_guards: int) -> None:
        self._table = table
        self._selected = Scratch(np.int32), Scratch(np.int32)
        self.version: int = 0
        self._by_table = dtype != np.uint64
        if self._by_table:
            self._keys = np.zeros((0, 0), np.uint64)
            self._values = np.full(1 << 8 * np.dtype(dtype).itemsize, UNSEEN, np.int32)
        else:
            self._keys = np.zeros((1 << 10, (n_guards + 63) // 64), np.uint64)
            self._values = np.full(1 << 10, UNSEEN, np.int32)
        self._n_words = 0

    def select(self, words: Words) -> Selected:
        """Return symbols and rows (int32) of the relevant events of a block, valid until the next call."""
        words = read_only(words)
        symbols, rows = self._buffers(len(words) + 1)
        row, n_selected = 0, 0
        while True:
            row, n_selected, slot = self._keep_until_unseen(words, row, symbols, rows, n_selected)
            if row == len(words):
                return symbols[:n_selected], rows[:n_selected]
            if not self._by_table and self._n_words >= MAX_WORDS:
                self._forget_symbols()
                slot = self._symbol_slot(words, row)
            self._insert(words, row, slot)

    def select_by(self, step: Step, n: int) -> Selected:
        """As `select`, for the `n` rows of a block whose words (of at most 16 bits) `step` makes."""
        symbols, rows = self._buffers(n + 1)
        row, n_selected = 0, 0
        while True:
            row, n_selected, word = step(self._values, row, symbols, rows, n_selected)
            if row == n:
                return symbols[:n_selected], rows[:n_selected]
            self._values[word] = self._table.symbol(word)
            self.version += 1

    def arrays(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
        """Return keys (empty if a word has at most 16 bits) and values that ``kernels/symbols.cuh`` reads."""
        return self._keys, self._values

    def number(self, words: Words) -> None:
        """Assign symbols to words in their order, so that all of them, however many, have one."""
        if not self._by_table and self._n_words + len(words) > MAX_WORDS:
            self._forget_symbols()
        words = read_only(words)
        symbols, rows = self._buffers(len(words) + 1)
        row = 0
        while True:
            row, _, slot = self._keep_until_unseen(words, row, symbols, rows, 0)
            if row == len(words):
                return
            self._insert(words, row, slot)

    def _buffers(self, n: int) -> Selected:
        """Return memory for symbols and rows, reused from the block before."""
        symbols, rows = self._selected
        return symbols.empty(n), rows.empty(n)

    def _keep_until_unseen(
        self, words: Words, row: int, symbols: npt.NDArray[np.int32], rows: npt.NDArray[np.int32], n_selected: int
    ) -> tuple[int, int, int]:
        """Select the relevant rows up to a word without a symbol; return its row, the number selected, and its slot."""
        state: tuple[int, int, int] = select_relevant(words, self._keys, self._values, row, symbols, rows, n_selected)
        return state

    def _symbol_slot(self, words: Words, row: int) -> int:
        """Return the slot for a word without a symbol."""
        return self._keep_until_unseen(words, row, _NOTHING, _NOTHING, 0)[2]

    def _forget_symbols(self) -> None:
        self._values.fill(UNSEEN)
        self._n_words = 0

    def _insert(self, words: Words, row: int, slot: int) -> None:
        self.version += 1
        if self._by_table:
            self._values[slot] = self._table.symbol(slot)
            return
        if 2 * self._n_words >= len(self._keys):
            used = np.flatnonzero(self._values >= 0)
            keys, values = read_only(self._keys[used]), self._values[used]
            self._keys = np.zeros((2 * len(self._keys), self._keys.shape[1]), np.uint64)
            self._values = np.full(len(self._keys), UNSEEN, np.int32)
            for i in range(len(used)):
                at = self._symbol_slot(keys, i)
                self._keys[at], self._values[at] = keys[i], values[i]
            slot = self._symbol_slot(words, row)
        word = sum(int(part) << 64 * i for i, part in enumerate(words[row]))
        self._keys[slot], self._values[slot] = words[row], self._table.symbol(word)
        self._n_words += 1
