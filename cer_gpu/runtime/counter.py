"""The state of one evaluation that counts by the automaton, and the arrays that its loop works on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cer_gpu.arrays import Array
from cer_gpu.automaton.determinize import Determinization
from cer_gpu.automaton.encoding import GLOBAL_WINDOW, NO_WINDOW
from cer_gpu.backend import counting, tecs
from cer_gpu.backend.arguments import Counts, plain
from cer_gpu.backend.status import Status
from cer_gpu.errors import no_memory
from cer_gpu.runtime import run
from cer_gpu.runtime.counts import CountBuffers, CountOutput, too_many_at
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.loop import Loop, tables_of
from cer_gpu.runtime.protocol import Length


class Counter(Loop):
    """Runtime that counts matches by the determinised automaton."""

    engine = "counter"
    N_PART = counting.N_PART

    def __init__(self, table: Determinization, options: RunOptions, length: Length = None) -> None:
        super().__init__(table, options, np.zeros((0, counting.N_SLOT), np.int64))
        self._rows = np.zeros((0, 4), np.uint64)
        n_records = 1 if options.window == NO_WINDOW else run.INITIAL_SIZE
        self._records = np.zeros((n_records, counting.N_RECORD), np.int64)
        self._front = np.zeros((n_records, 4), np.uint64)
        self._reserve_states()
        self._out = CountOutput(timed=options.timed, shard=options.shard)

    @property
    def _window(self) -> counting.Records:
        return counting.Records(self._records, self._front, self._ways)

    def feed(self, events: RelevantEvents) -> Iterator[CountBuffers]:
        """Process relevant events and yield full buffers of counts, in order."""
        if not len(events.symbols):
            return
        self._regs[tecs.EVENT] = 0
        taken = events.as_group
        while True:
            groups = plain(taken, self._options, *self.working_groups)
            match Status(counting.count_events(*groups, self.table.n_states)):
                case Status.DONE:
                    break
                case Status.TOO_MANY:
                    raise too_many_at(int(events.reported[self._regs[tecs.EVENT]]))
                case status:
                    yield from self.supply(status)
        if self.options.window == GLOBAL_WINDOW:
            self.last_low: int = int(self._records[events.lows[-1] & (len(self._records) - 1), counting.NUMBER])

    @property
    def working_groups(self) -> tuple[tuple[Any, ...], ...]:
        """Arguments that the loop takes after events and options."""
        return (
            tables_of(self.table),
            self._lists,
            counting.ActiveStates(self._rows, self._sources, self._copies),
            self._window,
            Counts(*self._out.to_fill),
        )

    @property
    def distributed(self) -> Array:
        """State of the distribution of shards: ends so far, also those of other shards."""
        return np.array([self._out.n_ends])

    @distributed.setter
    def distributed(self, distributed: Array) -> None:
        (self._out.n_ends,) = map(int, distributed)

    def supply(self, status: Status) -> Iterator[CountBuffers]:
        """Supply what the loop requested by its status, and yield buffers that are full."""
        match status:
            case Status.NEED_STEP:
                self._resolve()
            case Status.GROW_NODES:
                self._grow_records()
            case Status.GROW_LISTS:
                self._widen()
            case Status.GROW_SLOTS:
                self._grow_slots()
                more = np.zeros((len(self._slots) - len(self._rows), self._rows.shape[1]), np.uint64)
                self._rows = np.concatenate([self._rows, more])
            case Status.OUTPUT_FULL:
                yield self.flush()
            case other:
                raise AssertionError(other)

    def flush(self) -> CountBuffers:
        """Return the counts since the last call."""
        n = int(self._regs[tecs.N_OUT])
        self._regs[tecs.N_OUT] = 0
        return self._out.take(n)

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        return {
            **super().snapshot(),
            "rows": self._rows,
            "records": self._records,
            "front": self._front,
            "scalars": np.array([self.last_low, self._out.n_ends]),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self._rows, self._records, self._front = snapshot["rows"], snapshot["records"], snapshot["front"]
        self.last_low, self._out.n_ends = map(int, snapshot["scalars"])
        super().restore(snapshot)
        self._reserve_ways(len(self._slot_of))

    # ---- memory -----------------------------------------------------------------------------------------------

    def _reserve_for(self, n_states: int) -> None:
        self._sources = np.zeros((n_states, counting.N_SOURCE), np.int64)
        self._reserve_ways(n_states)

    def _reserve_ways(self, n_states: int) -> None:
        width = self._rows.shape[1]
        self._copies = np.zeros((n_states, width), np.uint64)
        self._ways = np.zeros((2, n_states, width), np.uint64)

    def _widen(self) -> None:
        self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)], axis=1)
        self._front = np.concatenate([self._front, np.zeros_like(self._front)], axis=1)
        self._reserve_ways(len(self._slot_of))

    def _grow_records(self) -> None:
        n = int(self._regs[tecs.NEXT_NODE])
        if self.options.window == GLOBAL_WINDOW:  # overwritten records would seem to be there in a larger ring
            self._regs[tecs.FLOOR] = max(int(self._regs[tecs.FLOOR]), n - len(self._records))
        else:
            ids = np.full(len(self._records), -1, np.int64)
            counting.compact_records(*plain(self._lists, self._options, self._window), len(self._parts), ids)
            n = int(self._regs[tecs.NEXT_NODE])
            if 2 * n <= len(self._records):
                return
        try:
            self._records = np.concatenate([self._records, self._records])
            self._front = np.concatenate([self._front, self._front])
        except MemoryError:
            raise no_memory(n, "events in a window", "a shorter WITHIN") from None
