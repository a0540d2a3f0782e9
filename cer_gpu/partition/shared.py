"""Partition ids that several queries with the same PARTITION BY share: each event of a block is looked up once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int32, Int64
from cer_gpu.backend.compaction import gather
from cer_gpu.columnar.columns import SelectedRows, take_rows
from cer_gpu.columnar.memory import Scratch, read_only
from cer_gpu.partition.partitions import Partitions

MAX_SHARED = 1 << 16
"""Most partitions that stay shared: each query allocates space for all of them, of which it may need few."""


class SharedPartitions:
    """Assignment of partition ids to the events of a stream: all, or those that the queries read if these are few.

    Parameters
    ----------
    types
        Types of the keys.
    numbered
        True: number the events of each partition.
    """

    def __init__(self, types: list[pa.DataType], *, numbered: bool) -> None:
        self.types = types
        self.numbered = numbered
        self.all: Partitions = Partitions(types, every=True, numbered=numbered)
        self._every = np.empty(0, np.int32)
        self.is_given_up = False
        # True: for all events, in memory that the next assignment reuses; False: for some of them
        self._cached: dict[bool, tuple[Int32, Int64, bool]] = {}

    def next_block(self) -> None:
        """Go on to the next block."""
        self._cached.clear()

    def ids(
        self, keys_of_block: Callable[[], list[pa.Array]], some: Callable[[], Int32 | None] | None
    ) -> tuple[Int32, Int64, bool]:
        """Return the partitions of the events of a block, their ordinals, and whether some have no key.

        Parameters
        ----------
        keys_of_block
            Returns the keys of all events of the block.
        some
            As of `SelectedRows`.

        Returns
        -------
        partitions : int32, shape (n rows,)
            -1 for an event without a key, or which no query of the set reads.
        ordinals : int64, shape (n rows,)
            Number of each event in its partition; empty unless `numbered`.
        some_have_none : bool
        """
        read = None if True in self._cached or self.numbered or some is None else some()
        cached = self._cached.get(read is None)
        if cached is None:
            cached = self._cached[read is None] = self._assign(keys_of_block(), read)
        return cached

    def _assign(self, keys: list[pa.Array], some: Int32 | None) -> tuple[Int32, Int64, bool]:
        """Assign the partitions of all events, or of some of them."""
        n = n_all = len(keys[0])
        if some is not None:
            keys, n = [take_rows(key, pa.array(some)) for key in keys], len(some)
        if len(self._every) < n:
            self._every = np.arange(n, dtype=np.int32)
        every = self._every[:n]
        _, selected, ids, ordinals = self.all.assign(keys, every, every)
        some_have_none = len(selected) < n
        if some is None and not some_have_none:
            return ids, ordinals, False
        of_all = np.full(n_all, -1, np.int32)
        of_all[selected if some is None else some[selected]] = ids
        all_ordinals = np.zeros(n_all if self.numbered else 0, np.int64)
        if self.numbered:
            all_ordinals[selected] = ordinals
        return of_all, all_ordinals, some_have_none


class ViewOfPartitions:
    """View of one query on shared partitions, in the place of its own (`cer_gpu.partition.partitions.Partitions`).

    Parameters
    ----------
    shared
    """

    def __init__(self, shared: SharedPartitions) -> None:
        self.shared = shared
        self._ids, self._ordinals = Scratch(np.int32), Scratch(np.int64)

    @property
    def n(self) -> int:
        """Number of known partitions."""
        return self.shared.all.n

    def assign(
        self, keys_of_block: Callable[[], list[pa.Array]], relevant: SelectedRows
    ) -> tuple[SelectedRows, Int32, Int64]:
        """Find the partitions of the relevant events of a block.

        Parameters
        ----------
        keys_of_block
            Returns the keys of all events of the block; called by the first query that reads them.
        relevant

        Returns
        -------
        relevant, partitions, ordinals
            Those of the relevant events that have a key, valid until the next call; the ordinals (int64) are empty
            unless they are numbered.
        """
        if not len(relevant.rows) and not self.shared.numbered:  # ordinals count the events of all blocks
            return relevant, np.empty(0, np.int32), np.empty(0, np.int64)
        ids, all_ordinals, some_have_none = self.shared.ids(keys_of_block, relevant.some)
        partitions = self._gather_rows(ids, relevant.rows, self._ids)
        if some_have_none:
            selected = np.flatnonzero(partitions >= 0)
            relevant, partitions = relevant.at(selected), partitions[selected]
        if not self.shared.numbered:
            return relevant, partitions, all_ordinals
        return relevant, partitions, self._gather_rows(all_ordinals, relevant.rows, self._ordinals)

    @staticmethod
    def _gather_rows(values: Any, rows: Int32, memory: Scratch) -> Any:
        taken = memory.empty(len(rows))
        gather(read_only(values), rows, taken)
        return taken

    def snapshot(self) -> tuple[dict[str, Any], dict[int, pa.Array]]:
        """Return the state as arrays, and the values of string keys."""
        return self.shared.all.snapshot()
