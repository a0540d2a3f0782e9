"""LIMIT n EVERY d: at most n matches of each partition in any d, in the order of their ends.

A match is selected if fewer than n of those selected before end at most d before it.  Those that wait for an absence
behind their end are decided in the same order, and selected then.  Those that wait until the window from their start
has passed are decided in the order of their starts, and d is measured there: from the latest start of each end.
Within one end the order is that in which they are listed, as for LIMIT n, which therefore holds, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int32, Int64
from cer_gpu.backend.limits import every as loops
from cer_gpu.columnar.clocks import Clock, earliest
from cer_gpu.columnar.columns import SelectedRows
from cer_gpu.columnar.memory import read_only
from cer_gpu.engine.blocks import EventBlock
from cer_gpu.output.form import part_of
from cer_gpu.runtime.counts import CountBuffers
from cer_gpu.runtime.events import RelevantEvents
from cer_gpu.runtime.matches import MatchBuffers
from cer_gpu.runtime.protocol import ResultBuffers

_INITIAL_SIZE = 1 << 10
"""Initial space for matches that were selected within the length."""
_NO_ENDS = read_only(np.zeros(0, np.int64))
_NOTED = ("noted_positions", "noted_partitions", "noted_clocks")
"""Names of the noted events in a checkpoint."""


class Throttle:
    """The choice among the matches of one evaluation.

    Parameters
    ----------
    n
        Most matches of a partition.
    column
        Column in which the length is measured; None: positions, or numbers in the partition.
    length
        In any such length, uint64 or float64.
    counts
        True: the length counts the events of a partition, whose clocks are numbers in it.
    by_starts
        True: matches are decided in the order of their starts, in which the length is measured.
    shard
        (k, n): shard k of n of the selected matches; None for all.

    Attributes
    ----------
    by_starts : bool
    n_suppressed : int
        Matches suppressed here that LIMIT n alone would have reported.
    """

    def __init__(
        self,
        n: int,
        column: str | None,
        length: Any,
        *,
        counts: bool,
        by_starts: bool,
        shard: tuple[int, int] | None,
    ) -> None:
        self._n, self._column, self._length = n, column, length
        self._counts, self._shard = counts, shard
        self.by_starts: bool = by_starts
        self._latest_starts = _NO_ENDS, _NO_ENDS
        self._clock: np.dtype[Any] = np.asarray(length).dtype
        self._now = earliest(self._clock)
        self._n_chosen = 0
        self._parts = np.full((1, loops.N_PART), -1, np.int64)
        self._parts[:, loops.TOTAL] = 0
        self._entries = np.zeros((0, loops.N_ENTRY), np.int64)
        self._regs = np.zeros(loops.N_REGS, np.int64)
        self._regs[loops.FREE] = self._regs[loops.END] = -1
        self._grow_entries()
        self.forget()

    @property
    def n_suppressed(self) -> int:
        """Number of matches suppressed here that LIMIT n alone would have reported."""
        return int(self._regs[loops.LEFT_OUT])

    def note(
        self, events: RelevantEvents, ending: Bools, block: EventBlock, clocks: dict[str, Clock], picked: SelectedRows
    ) -> None:
        """Record the events of a block in which the length is measured, by their symbols: they may end matches."""
        if self._column is None:
            values = (events.ordinals if self._counts else events.positions).view(np.uint64)
        else:
            clock = clocks[self._column]
            values = clock.window_clocks(clock.at(picked.rows, block.times[self._column]))
        chosen = np.arange(len(values)) if self.by_starts else np.flatnonzero(ending[events.symbols])
        partitions = events.partitions[chosen] if len(events.partitions) else np.zeros(len(chosen), np.int32)
        self._noted.append((events.reported[chosen], partitions, values[chosen]))
        if len(values):
            self._now = max(self._now, values[-1])

    def forget(self, pending: Int64 = _NO_ENDS) -> None:
        """End a batch: further matches are measured in other events, or in the `pending` ones, ascending."""
        remaining: list[tuple[Int64, Int32, Array]] = []
        if len(pending):
            positions, partitions, clocks = self._noted_events()
            at = np.searchsorted(positions, pending)
            remaining = [(positions[at], partitions[at], clocks[at])]
        self._noted = remaining

    def measure_from(self, ends: Int64, starts: Int64) -> None:
        """Measure the next matches from the latest start of each end; `ends` ascend."""
        self._latest_starts = ends, starts

    def choose(self, matches: ResultBuffers) -> ResultBuffers:
        """Return the selected matches."""
        return self.choose_with_keys(matches, [])[0]

    def choose_with_keys(self, matches: ResultBuffers, keys: list[pa.Array]) -> tuple[ResultBuffers, list[pa.Array]]:
        """Return the selected matches, and their values of some columns."""
        if isinstance(matches, CountBuffers):
            chosen = self._count_selected(matches.ends, matches.counts)
            rows = self._own(np.flatnonzero(chosen))
            times = matches.times[rows] if len(matches.times) else matches.times
            return CountBuffers(matches.ends[rows], chosen[rows], times), [key.take(pa.array(rows)) for key in keys]
        assert isinstance(matches, MatchBuffers)
        mask = self.among(np.ones(len(matches), np.bool_), matches.ends)
        if mask.all():
            return matches, keys
        return matches.at(mask), [key.filter(pa.array(mask)) for key in keys]

    def among(self, candidates: Bools, ends: Int64) -> Bools:
        """Return the mask of the rows selected among the candidates that HAVING leaves, by the end of each row."""
        rows = np.flatnonzero(candidates)
        rows = self._own(rows[self._count_selected(ends[rows], np.empty(0, np.int64)) > 0])
        chosen = np.zeros(len(candidates), np.bool_)
        chosen[rows] = True
        return chosen

    def _own(self, rows: Int64) -> Int64:
        """Return the rows of the shard."""
        before, self._n_chosen = self._n_chosen, self._n_chosen + len(rows)
        return rows[part_of(self._shard, before)]

    def _count_selected(self, ends: Int64, amounts: Int64) -> Int64:
        """Return how many matches of each row are selected."""
        chosen = np.zeros(len(ends), np.int64)
        if not len(ends):
            return chosen
        if not self.by_starts:
            return self._select_in_order(ends, ends, amounts)
        all_ends, latest = self._latest_starts
        measured = latest[np.searchsorted(all_ends, ends)]
        order = np.lexsort((ends, measured))  # stable: rows of one end stay in their order
        chosen[order] = self._select_in_order(ends[order], measured[order], amounts[order[: len(amounts)]])
        return chosen

    def _select_in_order(self, ends: Int64, measured: Int64, amounts: Int64) -> Int64:
        """Return how many matches of each row are selected, in the order of the positions where they are measured."""
        chosen = np.zeros(len(ends), np.int64)
        positions, partitions, clocks = self._noted_events()
        at = np.searchsorted(positions, measured)
        partitions, clocks = partitions[at], clocks[at]
        self._reserve_partitions(int(partitions.max()) + 1)
        begin, regs = 0, self._regs
        while begin < len(ends):
            entries = self._parts, self._entries, self._entries.view(self._clock)
            arguments = ends, amounts, partitions, clocks, self._n, self._length
            begin = loops.keep_some(*arguments, entries, begin, chosen, regs)
            if begin < len(ends):
                self._grow_entries()
        return chosen

    def _noted_events(self) -> tuple[Int64, Int32, Array]:
        """Return the positions, partitions and clocks of the noted events."""
        if len(self._noted) > 1:
            positions, partitions, clocks = (np.concatenate(each) for each in zip(*self._noted, strict=True))
            self._noted = [(positions, partitions, clocks)]
        (noted,) = self._noted
        return noted

    # ---- partitions, and memory -----------------------------------------------------------------------------

    def holds(self, n_partitions: int) -> Bools:
        """Return the mask of the first partitions with selected matches to which a further match may be too close."""
        self._reserve_partitions(n_partitions)
        parts = self._parts[:n_partitions]
        holds: Bools = parts[:, loops.FIRST] >= 0
        if not self._counts:
            last = self._entries.view(self._clock)[parts[holds, loops.LAST], loops.CLOCK]
            holds[holds] = ~(self._now - last > self._length)
        return holds

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the partitions outside of `mask`, and renumber the remaining ones in their order."""
        self._reserve_partitions(len(mask))
        for first, last, _ in self._parts[: len(mask)][~mask & (self._parts[: len(mask), loops.FIRST] >= 0)].tolist():
            self._entries[last, loops.NEXT] = self._regs[loops.FREE]
            self._regs[loops.FREE] = first
        self._parts = self._parts[: len(mask)][mask]
        numbers = (np.cumsum(mask) - 1).astype(np.int32)
        self._noted = [(positions, numbers[partitions], clocks) for positions, partitions, clocks in self._noted]
        self._reserve_partitions(1)

    def _reserve_partitions(self, n: int) -> None:
        old = len(self._parts)
        if n > old:
            parts = np.full((max(n, 2 * old), loops.N_PART), -1, np.int64)
            parts[:, loops.TOTAL] = 0
            parts[:old] = self._parts
            self._parts = parts

    def _grow_entries(self) -> None:
        """Double the space for entries; the new ones are free."""
        old = len(self._entries)
        size = max(2 * old, _INITIAL_SIZE)
        entries = np.zeros((size, loops.N_ENTRY), np.int64)
        entries[:old] = self._entries
        entries[old:, loops.NEXT] = np.arange(old + 1, size + 1)
        entries[-1, loops.NEXT] = self._regs[loops.FREE]
        self._entries = entries
        self._regs[loops.FREE] = old

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, between two batches."""
        return {
            "parts": self._parts,
            "entries": self._entries,
            "regs": self._regs,
            "now": np.array([self._now]),
            "n_chosen": np.array([self._n_chosen]),
            **({} if not self._noted else dict(zip(_NOTED, self._noted_events(), strict=True))),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self._parts, self._entries, self._regs = snapshot["parts"], snapshot["entries"], snapshot["regs"]
        self._now, self._n_chosen = snapshot["now"][0], int(snapshot["n_chosen"][0])
        self._noted = [tuple(snapshot[name] for name in _NOTED)] if _NOTED[0] in snapshot else []
