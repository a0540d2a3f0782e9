"""Results that are pending until the watermark, or the end of the stream, decides them; and notes on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int32, Int64
from cer_gpu.automaton.encoding import COUNT_WINDOW
from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.clocks import Clock
from cer_gpu.engine.blocks import EventBlock
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.evaluation_options import HOLD
from cer_gpu.engine.pending_matches import PendingMatches
from cer_gpu.engine.pending_samples import PendingSamples
from cer_gpu.output.form import part_of
from cer_gpu.planning.binding import Binding
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.matches import MatchBuffers
from cer_gpu.runtime.progress.buffers import ProgressBuffers
from cer_gpu.runtime.protocol import HoldsStarts, ResultBuffers

NO_POSITION = np.iinfo(np.int64).max
"""Position after all events."""
_MAX_CHUNKS = 64
"""Most pieces of a column of keys: beyond, they become one."""


class PendingStarts:
    """The rows of "funnel" of one evaluation; takes the place of `cer_gpu.engine.pending_matches.PendingMatches`.

    The runtime (`cer_gpu.runtime.progress`) holds the starts.  A start is decided when it has stopped, and reported
    once all starts before it are; the keys of a start are read with its own event, and are buffered here.

    Parameters
    ----------
    runtime
    labels
        Variables of each mark of the runtime.
    shard
        (k, n): report shard k of n of the decided starts; None for all.

    Attributes
    ----------
    labels : list of frozenset of str
    """

    def __init__(self, runtime: HoldsStarts, labels: list[frozenset[str]], shard: tuple[int, int] | None) -> None:
        self.labels = labels
        self._runtime, self._shard, self._n_decided = runtime, shard, 0
        self._keys: list[pa.ChunkedArray] = []  # of the starts that the runtime holds, in their order
        self._ended = False

    def note(self, events: RelevantEvents) -> None:
        """Do nothing: the runtime reads the events."""

    def take(self, starts: MatchBuffers, keys: list[pa.Array]) -> None:
        """Buffer the keys of new starts."""
        if len(starts):
            buffered = self._keys or [pa.chunked_array([], key.type) for key in keys]
            self._keys = [
                pa.chunked_array([*old.chunks, key], old.type) for old, key in zip(buffered, keys, strict=True)
            ]
            if self._keys and self._keys[0].num_chunks > _MAX_CHUNKS:
                self._keys = [pa.chunked_array([key.combine_chunks()]) for key in self._keys]

    def pass_clocks(self, clocks: Array, first: int) -> None:
        """Read the clocks of all events of a block."""
        if len(clocks):
            self._runtime.pass_clock(clocks[-1])

    def pass_events(self, partitions: Int32, ordinals: Int64, positions: Int64) -> None:
        """Do nothing: the runtime has read all events of the partitions."""

    @property
    def next_deadline(self) -> int | None:
        """Least clock of an event that decides a start, or None if none is pending."""
        return self._runtime.next_deadline

    @property
    def first_pending(self) -> int:
        """Position of the first start that is not reported, or `NO_POSITION` if there is none."""
        return NO_POSITION if self._runtime.first_pending is None else self._runtime.first_pending

    def finish(self) -> None:
        """End the stream: all starts are decided."""
        self._ended = True

    def decided(self) -> tuple[ProgressBuffers, list[pa.Array]] | None:
        """Return the next decided starts, with the keys of their partitions, or None if there are no more."""
        while (starts := self._runtime.take_decided(ended=self._ended)) is not None:
            n = len(starts)
            keys = [_combine_chunks(key.slice(0, n)) for key in self._keys]
            self._keys = [key.slice(n) for key in self._keys]
            if self._shard is not None:
                chosen = part_of(self._shard, self._n_decided)
                self._n_decided += n
                starts = starts.at(chosen)
                keys = [key.take(pa.array(np.arange(n)[chosen])) for key in keys]
            if len(starts):
                return starts, keys
        return None

    def live(self) -> Int64:
        """Return no positions: the runtime reports them."""
        return np.empty(0, np.int64)

    def holds(self, n_partitions: int) -> Bools:
        """Return which of the first partitions have something here: none."""
        return np.zeros(n_partitions, np.bool_)

    def keep_partitions(self, mask: Bools) -> None:
        """Do nothing: starts have their keys here, and the numbers of their partitions in the runtime."""

    def snapshot(self) -> tuple[dict[str, Any], pa.Table]:
        """Return the state as arrays by name, and the keys."""
        names = [str(i) for i in range(len(self._keys))]
        return {"n_known": np.array([self._n_decided])}, pa.table(self._keys, names)

    def restore(self, arrays: dict[str, Any], keys: pa.Table) -> None:
        """Go on from a snapshot."""
        self._n_decided = int(arrays["n_known"][0])
        self._keys = keys.columns


def _combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    array = column.combine_chunks()
    return array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)


class PendingResults:
    """Pending results of one query, and the time axis that decides them.

    Parameters
    ----------
    results
        Pending matches, pending starts of a funnel, or the events of samples.
    binding
        Binding to the schema of the first batch.
    options
        Those of the runtime.
    undecided
        "report", or "hold": matches that only the end of the input decides are counted and not reported.
    partitioned
        True: events have partitions.

    Attributes
    ----------
    labels : list of frozenset of str
        Variables of each mark of the results.
    n_undecided : int
        Number of matches that only the end of the input decided.
    counts_events : bool
        True: a window counts the events of a partition, so that events that are not relevant decide results, too.
    """

    def __init__(
        self,
        results: PendingMatches | PendingStarts | PendingSamples,
        binding: Binding,
        options: RunOptions,
        undecided: str,
        *,
        partitioned: bool,
    ) -> None:
        self._results, self._undecided = results, undecided
        self.labels: list[frozenset[str]] = results.labels
        self.n_undecided: int = 0
        self.counts_events: bool = options.window == COUNT_WINDOW
        self._assigned: tuple[Int32, Int64, Int64] | None = None
        self._column, self._partitioned = binding.window_column, partitioned
        time_column = binding.plan.time_column
        self._is_decided_by_time = time_column is not None and self._column == time_column

    @property
    def first_pending(self) -> int:
        """First event whose row of "funnel" is pending; `NO_POSITION` if there is none."""
        return self._results.first_pending if isinstance(self._results, PendingStarts) else NO_POSITION

    def note(self, events: RelevantEvents) -> None:
        """Note relevant events, with which matches may begin."""
        self._results.note(events)

    def note_assigned(self, partitions: Int32, ordinals: Int64, positions: Int64) -> None:
        """Note the partitions of all events of a block, where windows count them (`counts_events`)."""
        self._assigned = partitions, ordinals, positions

    def add(self, results: ResultBuffers, keys: list[pa.Array]) -> None:
        """Add results, with the keys of their partitions; those that end with an absent event are withdrawn."""
        assert isinstance(results, MatchBuffers)
        self._results.take(results, keys)

    # ---- decisions ------------------------------------------------------------------------------------------

    def pass_block(self, block: EventBlock, clocks: dict[str, Clock]) -> None:
        """Decide by the events of a block, whose results were all added."""
        if self.counts_events:
            assert self._assigned is not None
            self._results.pass_events(*self._assigned)
        else:
            self._results.pass_clocks(self._window_clocks(block, clocks), block.first)

    def _window_clocks(self, block: EventBlock, clocks: dict[str, Clock]) -> Array:
        """Return the clocks of the window of all events of a block."""
        column = self._column
        rows = np.arange(block.columns.n_rows, dtype=np.int32)
        if column is not None:
            return clocks[column].window_clocks(clocks[column].at(rows, block.times[column]))
        if block.explicit_positions is not None and not self._partitioned:
            return block.explicit_positions.view(np.uint64)
        return (block.first + rows.astype(np.int64)).view(np.uint64)

    @property
    def next_deadline(self) -> int | None:
        """Least key of a time that decides a result, or None if time alone decides none."""
        return self._results.next_deadline if self._is_decided_by_time else None

    def advance_watermark(self, key: int, first: int) -> bool:
        """Decide by the time of a key, before event `first`; return True unless time decides nothing."""
        if self._is_decided_by_time:
            self._results.pass_clocks(np.array([key], np.uint64), first)
        return self._is_decided_by_time

    def finish(self) -> None:
        """Decide all results: the stream has ended."""
        self._results.finish()

    def decided(self) -> Iterator[tuple[ResultBuffers, list[pa.Array]]]:
        """Yield the results that are decided, in their order, with the keys of their partitions."""
        while (decided := self._results.decided()) is not None:
            yield decided

    def reports_at_end(self, n_matches: int) -> bool:
        """Count matches that only the end of the input decided; return True if they are reported."""
        if isinstance(self._results, PendingStarts | PendingSamples):
            return True
        self.n_undecided += n_matches
        return not (n_matches and self._undecided == HOLD)

    # ---- what the pending results refer to ------------------------------------------------------------------

    def live(self, live: int | Int64) -> int | Int64:
        """Return the first position, or all positions, that pending matches here or in the runtime may hold.

        Parameters
        ----------
        live
            Those of the runtime.
        """
        pending = self._results.live()
        if isinstance(live, int):
            return min(live, int(pending[0])) if len(pending) else live
        return np.union1d(live, pending)

    def measured(self, *, by_starts: bool) -> Int64:
        """Return the positions where pending matches end, or where matches may begin, ascending."""
        if not isinstance(self._results, PendingMatches):
            return np.empty(0, np.int64)
        return self._results.starts() if by_starts else self._results.ends()

    @property
    def latest_starts(self) -> tuple[Int64, Int64]:
        """Ends of the matches that were decided last, ascending, and the latest start of each."""
        assert isinstance(self._results, PendingMatches)
        return self._results.latest_starts

    def holds(self, n_partitions: int) -> Bools:
        """Return the mask of the first partitions that have pending results."""
        return self._results.holds(n_partitions)

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the partitions outside of `mask`, and renumber the remaining ones in their order."""
        self._results.keep_partitions(mask)

    def snapshot(self, state: NamedState) -> None:
        """Add the pending results to a checkpoint."""
        arrays, state.tables["awaiting"] = self._results.snapshot()
        state.add_arrays("awaiting", arrays)

    def restore(self, state: NamedState) -> None:
        """Continue from a checkpoint."""
        self._results.restore(state.part("awaiting"), state.tables["awaiting"])


def tally_notes(n_undecided: int, undecided: str, n_without_key: int, keys: Sequence[Sequence[str]]) -> list[str]:
    """Return the notes on matches that only the end of the input completed, and on events without a key."""
    notes = []
    if n_undecided:
        what = "match is" if n_undecided == 1 else "matches are"
        because = "no later event shows that the time of an absence has passed"
        if undecided == HOLD:
            notes.append(f"{n_undecided:,} {what} held back: {because} (--undecided)")
        else:
            notes.append(
                f"{n_undecided:,} {what} complete only because the input ends: {because} (undecided='hold', "
                "--undecided hold, holds them back)"
            )
    if n_without_key:
        names = " or ".join(dict.fromkeys(dotted(name) for own in keys for name in own))
        have, are = ("event of the pattern has", "is") if n_without_key == 1 else ("events of the pattern have", "are")
        notes.append(f"{n_without_key:,} {have} no key (NULL in {names}), and {are} in no match")
    return notes
