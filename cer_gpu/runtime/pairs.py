"""Runtime for patterns of two steps whose events an index finds: `cer_gpu.backend.joins.pairs`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cer_gpu.automaton.atom_graph import AtomTable
from cer_gpu.automaton.encoding import PROGRAM
from cer_gpu.backend.arguments import plain
from cer_gpu.backend.joins.filters import check_sizes
from cer_gpu.backend.joins.pairs import N_REGS, PairIndex, index_pairs, join_pairs, pair_index, pair_keys
from cer_gpu.backend.joins.scan_tables import without_indexes
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.instances import InstanceGraph, wants_every
from cer_gpu.runtime.protocol import Length, ResultBuffers


class PairJoin(InstanceGraph):
    """Runtime that keeps the events of the first of two steps, and finds those that pass with one of the second.

    Parameters
    ----------
    table : AtomTable
    options : RunOptions
        Those for which `is_pair` holds.
    length
        Length of the window, uint64 or float64; None if there is none.
    """

    reserve = 4
    least_size = 1 << 14
    n_regs = N_REGS
    _lists: PairIndex

    def __init__(self, table: AtomTable, options: RunOptions, length: Length) -> None:
        joins = options.joins
        assert joins is not None
        keys = pair_keys(joins.graph, joins.conditions)
        assert keys is not None
        edge = joins.graph["edges"][0]
        self._keys, self._earlier = keys, int(edge["source"])
        self._fields = without_indexes(joins.graph)
        self._fields["edges"]["shift"] = edge["shift"]
        first, tested, last = (int(edge[name]) for name in ("first", "test", "last"))
        # of the conditions that the index guarantees, the last are those of its cells, which are not of the query
        self._conditions = joins.conditions[[*range(first, tested - edge["shift"]), *range(tested, last)]]
        read = joins.conditions["column"][first:last]
        by_program = (self._conditions["kind"] == PROGRAM).any()
        self._columns = np.arange(1, joins.n_columns) if by_program else np.unique(read).astype(np.int64)
        super().__init__(table, options, length)
        self._looks_ahead = False

    @property
    def reads_columns(self) -> bool:
        """True."""
        return True

    @property
    def n_bytes(self) -> int:
        """Bytes of the instances and their lists."""
        n_lists: int = self._lists.heads.nbytes + self._lists.links.nbytes
        return super().n_bytes + n_lists

    @property
    def _graph_fields(self) -> dict[str, Any]:
        return self._fields

    @property
    def _loop_arguments(self) -> tuple[tuple[Any, ...], ...]:
        return (
            self._filters,
            self._graph,
            self._stacks,
            self._indexes,
            self._listing,
            self._lists._replace(kinds_of=self._kinds_of),
        )

    def feed(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Process relevant events and yield full buffers, in order."""
        self._kinds_of = self._bits_of((self._earlier, 1 - self._earlier))
        return super().feed(replace(events, attributes=np.ascontiguousarray(events.attributes.T)))

    def _run_loop(self, *arguments: Any) -> int:
        status: int = join_pairs(*arguments)
        check_sizes(self._tests)
        return status

    def _make_indexes(self) -> None:
        super()._make_indexes()
        self._lists = pair_index(self._keys, self._conditions, self._columns, self._stacks.positions.shape[1])

    def _drop_unreachable(self, clock: Any) -> None:
        """Drop what is out of reach for an event of this clock: the oldest, as all reach no further than themselves."""
        q, stacks = self._earlier, self._stacks
        bottom, height = int(self._bottoms[q]), int(self._heights[q])
        with np.errstate(invalid="ignore"):  # infinite clocks differ by NaN
            out = clock - stacks.latest[q, bottom:height] > self._length
        n_out = height if out.all() else bottom + int(out.argmin())
        if not n_out:
            return
        for array in (each[q] for each in stacks if each.ndim > 1 and each.size):
            array[..., : height - n_out] = array[..., n_out:height]
        self._heights[q], self._bottoms[q] = height - n_out, 0
        for numbers in (self._lists.heads, self._lists.links[n_out:height]):
            np.maximum(numbers - n_out, -1, out=numbers)
        self._lists.links[: height - n_out] = self._lists.links[n_out:height]

    def _rebuild_within(self, clock: Any, moved: Any) -> None:
        super()._rebuild_within(clock, moved)
        q = self._earlier
        height = self._heights[q]
        columns = np.ascontiguousarray(self._stacks.values[q, :, :height])
        index_pairs(*plain(self._lists), columns, self._stacks.partitions[q, :height], int(self._bottoms[q]))


def is_pair(table: AtomTable, options: RunOptions) -> bool:
    """Return True if `PairJoin` finds the matches of a pattern with join predicates."""
    joins = options.joins
    return joins is not None and wants_every(table, options) and pair_keys(joins.graph, joins.conditions) is not None
