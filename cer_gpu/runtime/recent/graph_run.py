"""The state of one evaluation of SELECT RECENT with quantifiers: rows of pending partial matches, and their events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from cer_gpu.arrays import Array, Bools, Int64
from cer_gpu.automaton.keyed_recent import RecentTable
from cer_gpu.backend.arguments import plain
from cer_gpu.backend.joins.filters import check_sizes
from cer_gpu.backend.recent import advancing as loops
from cer_gpu.backend.recent import paths as k
from cer_gpu.backend.recent.pending import Rows
from cer_gpu.columnar.memory import GrowableArray
from cer_gpu.errors import no_memory
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.protocol import Length
from cer_gpu.runtime.recent.graph_tables import GraphTables
from cer_gpu.runtime.recent.run import RecentRun

_INITIAL_NODES = 1 << 12
"""Initial events of partial matches."""
_NO_BARS = np.zeros((0, 0), np.int64)


class GraphRun(RecentRun):
    """Runtime of SELECT RECENT with quantifiers.

    Parameters
    ----------
    table : RecentTable
    options : RunOptions
        With `recent`, which are `GraphTables`.
    length
        Length of the window, uint64 or float64; None if there is none.
    """

    engine = "slots"
    n_regs: ClassVar[int] = loops.N_PATH_REGS

    def __init__(self, table: RecentTable, options: RunOptions, length: Length) -> None:
        tables = options.recent
        assert isinstance(tables, GraphTables)
        self._graph_tables = tables
        self._n_nodes = np.zeros(1, np.int64)
        self._node_memory = GrowableArray(_INITIAL_NODES, k.N_NODE)
        self._fixed_paths = tables.paths(self._node_memory.array, self._n_nodes, timed=options.timed)
        super().__init__(table, options, length)

    @property
    def live_counts(self) -> dict[str, int]:
        """Numbers of keys with partial matches that can advance, of these partial matches, and of their events."""
        counts = super().live_counts
        self._compact()
        return {**counts, "events of partial matches": int(self._n_nodes[0])}

    # ---- events -------------------------------------------------------------------------------------------------

    def feed(self, events: RelevantEvents) -> Iterator[Any]:
        """Process relevant events and yield full buffers, in order."""
        self._regs[loops.NEXT_OP] = 0
        return super().feed(events)

    @property
    def _loop_arguments(self) -> tuple[tuple[Any, ...], ...]:
        moves, layout, rows, ended, tests = super()._loop_arguments
        return moves, layout, rows, self._paths, ended, tests

    @property
    def _rows(self) -> Rows:
        return super()._rows._replace(bars=_NO_BARS)  # they bar ways

    @property
    def _paths(self) -> k.PathTables:
        return self._fixed_paths._replace(nodes=self._node_memory.array, bars=self._bars)

    def _run_loop(self, *arguments: Any) -> int:
        status: int = loops.follow_ways(*arguments)
        check_sizes(self._tests)
        return status

    def live(self) -> Int64:
        """Return the positions that matches to come may hold, ascending."""
        self._live_rows()
        self._compact()
        return np.unique(self._node_memory.array[: self._n_nodes[0], k.NODE_PLACE])

    @property
    def _n_ends(self) -> int:
        return len(self._graph_tables.graph.lasts)

    def _stored_in(self, step: int) -> range:
        return range(2 * len(self._tables.pattern.steps) + 1)

    # ---- snapshots ----------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        self._live_rows()
        self._compact()
        return {**super().snapshot(), "nodes": self._node_memory.array[: self._n_nodes[0]].copy()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        super().restore(snapshot)
        nodes = snapshot["nodes"]
        self._node_memory = GrowableArray(max(_INITIAL_NODES, 2 * len(nodes)), k.N_NODE)
        self._node_memory.array[: len(nodes)] = nodes
        self._n_nodes[0] = len(nodes)

    # ---- memory ---------------------------------------------------------------------------------------------------

    def _drop_pending(self, clocks: Array, live: Bools) -> None:
        groups = plain(self._layout, self._rows, self._paths, self._ended)
        k.drop_closed(*groups, clocks, self._length, int(self._keyed), live)

    def _compact(self) -> None:
        """Remove the events of partial matches that are no longer there."""
        numbers = np.empty(int(self._n_nodes[0]), np.int64)
        groups = plain(self._layout, self._rows, self._paths, self._ended)
        k.compact_nodes(*groups, len(self._in_use), numbers)

    def _reserve_memory(self, clock: Any) -> None:
        """Drop what holds nothing more at an event of this clock; allocate more memory if little is free."""
        super()._reserve_memory(clock)
        size, n_steps = len(self._node_memory.array), len(self._tables.pattern.steps)
        if self._n_nodes[0] + n_steps <= size:
            return
        self._compact()
        n = int(self._n_nodes[0])
        if 4 * n > 3 * size or n + n_steps > size:
            try:
                self._node_memory.grow(2 * max(size, n_steps))
            except MemoryError:
                raise no_memory(n, "events of partial matches") from None
