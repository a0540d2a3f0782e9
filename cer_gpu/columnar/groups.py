"""Rows of a block by their groups: the values that one group needs lie side by side, in the order of the events.

Many readers that each need a few groups would fetch a cache line for each value from the columns themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Int32, Int64
from cer_gpu.backend.compaction import gather, group_rows
from cer_gpu.columnar.columns import Block, Coded, RowsOfBlock
from cer_gpu.columnar.memory import Scratch, read_only
from cer_gpu.columnar.strings import StringCoder

SPARSE = 4
"""Rows of a block to one in a group, from which on only the rows in groups are read, and not all in a pass."""


class Groups:
    """Rows of a block, group by group; the place of a row is its number in that order.

    Attributes
    ----------
    rows : int32, shape (places,)
        The row at each place, ascending in each group.
    every : int32, shape (places,)
        All places.
    """

    def __init__(self) -> None:
        self.rows: Int32
        self.every: Int32
        self.rows = self.every = self._groups = np.empty(0, np.int32)
        self._begins = np.zeros(1, np.int64)
        self._rows = Scratch(np.int32)
        self._memory: list[Scratch] = []
        self._ordered: dict[int, tuple[Array, Array]] = {}

    def read(self, groups: Int32, n_groups: int) -> None:
        """Go on to the next block.

        Parameters
        ----------
        groups : int32, shape (rows of the block,)
            Group of each row; -1 for a row of none.
        n_groups
        """
        self._ordered.clear()
        self._groups, self._begins = groups, np.empty(n_groups + 1, np.int64)
        rows = self._rows.empty(len(groups))
        group_rows(groups, self._begins, rows)
        self.rows = read_only(rows[: self._begins[-1]])
        if len(self.every) < len(self.rows):
            self.every = read_only(np.arange(len(self.rows), dtype=np.int32))

    @property
    def is_sparse(self) -> bool:
        """True if few rows are in a group."""
        return SPARSE * len(self.rows) < len(self._groups)

    @property
    def ascending(self) -> Int32:
        """The rows that are in a group, ascending."""
        return np.flatnonzero(self._groups >= 0).astype(np.int32)

    def places(self, group: int) -> slice:
        """Return the places of a group."""
        return slice(int(self._begins[group]), int(self._begins[group + 1]))

    def order(self, values: Array) -> Array:
        """Return the values of a block's rows at their places, valid until the next block; made at the first use."""
        known = self._ordered.get(id(values))
        if known is None:
            # the values are kept, so that no others get their id
            known = self._ordered[id(values)] = values, read_only(self._order(values))
        return known[1]

    def _order(self, values: Array) -> Array:
        if len(self._ordered) == len(self._memory):
            self._memory.append(Scratch(np.uint64))
        n, size = len(self.rows), values.itemsize
        memory = self._memory[len(self._ordered)].empty(-(-n * size // 8))
        bits = np.dtype(f"u{size}")
        ordered = memory.view(bits)[:n]
        gather(read_only(values.view(bits)), self.rows, ordered)
        return ordered.view(values.dtype)


class Picked(NamedTuple):
    """Relevant events of a block.

    Attributes
    ----------
    symbols : int32, shape (n,)
    rows : int32, shape (n,)
    places : int32, shape (n,), or None
        Their places in the groups, if these are known.
    groups : Groups or None
    """

    symbols: Int32
    rows: Int32
    places: Int32 | None = None
    groups: Groups | None = None

    def at(self, kept: Int64) -> Picked:
        """Return some of the events."""
        places = None if self.places is None else self.places[kept]
        return Picked(self.symbols[kept], self.rows[kept], places, self.groups)

    def within(self, values: Array) -> tuple[Int32, Array]:
        """Return where the events are, and the values to read there, given those of all rows of the block."""
        if self.places is None or self.groups is None:
            return self.rows, values
        return self.places, self.groups.order(values)


class OfGroup(RowsOfBlock):
    """The rows of one group of a block.

    Parameters
    ----------
    whole : Block
    groups : Groups
        Groups of its rows.
    number : int
        Number of the group.
    coders : dict from column to StringCoder
        As those of a block, for these rows.
    """

    def __init__(self, whole: Block, groups: Groups, number: int, coders: dict[str, StringCoder]) -> None:
        self._groups, self._places = groups, groups.places(number)
        super().__init__(whole, groups.rows[self._places], coders)

    def at(self, values: Array) -> Array:
        """Return the values at these rows, given those of all rows of the block."""
        return self._groups.order(values)[self._places]

    def coded(self, name: str) -> Coded:
        """Return a string column as codes into a dictionary: that of the column, or one of the texts of the group."""
        is_coded = pa.types.is_dictionary(self.whole.column(name).type)
        return super().coded(name) if is_coded else Block.coded(self, name)
