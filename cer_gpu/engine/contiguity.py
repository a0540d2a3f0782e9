"""Filter of the events whose neighbours fit no place of the pattern, before a runtime reads them."""

from __future__ import annotations

import numpy as np

from cer_gpu.arrays import Array, Int32, Int64
from cer_gpu.automaton.alphabet import Table
from cer_gpu.automaton.atom_graph import AtomGraph
from cer_gpu.backend.contiguity import drop_without_neighbours
from cer_gpu.columnar.memory import Scratch
from cer_gpu.planning.physical import MAX_FILTERED_ATOMS

_ALWAYS = 1 << MAX_FILTERED_ATOMS
"""Bit of an event that is selected whatever its neighbours are."""
FILTERED_FROM = 1 << 10
"""Fewest events of a block that are filtered."""
_WORTHWHILE = 1 / 4
"""Least share of the events that a filter drops, or else it passes the next blocks."""
_PASSED = 15
"""Blocks that a filter passes then."""


class ContiguityFilter:
    """Filter that drops events which no match can hold, because of the events right before and after them.

    It takes the place of `table` where words get their symbols, and notes the atoms of each.

    Parameters
    ----------
    graph : AtomGraph
        At most `MAX_FILTERED_ATOMS` atoms.
    table : Table
    """

    def __init__(self, graph: AtomGraph, table: Table) -> None:
        self._graph, self._table = graph, table
        self._after, self._before = np.zeros((2, len(graph.atoms) // 8 + 1, 256), np.uint64)
        barring = sum(1 << i for i, atom in enumerate(graph.atoms) if atom.bars)
        begin = sum(1 << i for i, atom in enumerate(graph.atoms) if atom.initial) | barring
        end = sum(1 << i for i, atom in enumerate(graph.atoms) if atom.final) | barring
        for edge in graph.edges:
            if not edge.contiguous:
                begin, end = begin | 1 << edge.target, end | 1 << edge.source
                continue
            for sets, one, other in ((self._after, edge.source, edge.target), (self._before, edge.target, edge.source)):
                holds = np.arange(256) >> (one % 8) & 1 == 1
                sets[one // 8, holds] |= np.uint64(1 << other)
        self._free = np.array([begin | _ALWAYS, end | _ALWAYS], np.uint64)
        self._accepted = np.full(4, _ALWAYS, np.uint64)
        self._seen: set[int] = set()
        self._atoms, self._last, self._selected = Scratch(np.uint64), Scratch(np.int32), Scratch(np.int32)
        self._n_passed = 0

    def symbol(self, word: int) -> int:
        """Return the symbol of a bit vector, and note the atoms that its events may be at."""
        symbol = self._table.symbol(word)
        if symbol >= len(self._accepted):
            grown = np.full(max(symbol + 1, 2 * len(self._accepted)), _ALWAYS, np.uint64)
            grown[: len(self._accepted)] = self._accepted
            self._accepted = grown
        others = int(self._accepted[symbol]) if symbol in self._seen else 0  # of another word of the symbol
        self._accepted[symbol] = others | (self._graph.satisfied(word) or _ALWAYS)
        self._seen.add(symbol)
        return symbol

    def takes(self, n: int) -> bool:
        """Return True if the next block, of `n` relevant events, is to be filtered."""
        if n < FILTERED_FROM:
            return False
        if self._n_passed:
            self._n_passed -= 1
            return False
        return True

    def select(self, symbols: Int32, numbers: Int64, partitions: Int32) -> Int32 | None:
        """Return the indices of the events that may be part of a match, valid until the next call; None for all.

        Parameters
        ----------
        symbols : int32, shape (n,)
        numbers : int64, shape (n,)
            Ascending in each partition; those of neighbours differ by 1.
        partitions : int32, shape (n,), or (0,)
        """
        n = len(symbols)
        n_partitions = int(partitions.max()) + 1 if len(partitions) else 1
        selected = self._selected.empty(n)
        n_selected = drop_without_neighbours(
            symbols,
            numbers,
            partitions,
            self._accepted,
            self._free,
            self._after,
            self._before,
            self._atoms.empty(n),
            self._last.empty(n_partitions),
            selected,
        )
        if n - n_selected < _WORTHWHILE * n:
            self._n_passed = _PASSED
            if n == n_selected:
                return None
        rows: Array = selected[n - n_selected :]
        return rows
