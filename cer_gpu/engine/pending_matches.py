"""Matches pending on a trailing absence (``f ; !R``): reported once their window has closed without an R.

Those of ``f ; !R FOR d`` are pending until d has passed after their end.

The runtime finds the matches of f, and those of f and the next R (`cer_gpu.planning.pattern_spans`).  The first are
pending here; the second withdraw them.  The rest is decided at the first event beyond the window of its start, whose
ordinal is kept, or at the end of the stream.  It is reported in the order of decision, end and start.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int32, Int64
from cer_gpu.automaton.strategies import Strategy
from cer_gpu.backend.arguments import Matches, plain
from cer_gpu.backend.joins.choosing import CHOICE_LEFT, N_SHARED_REGS, choose_at_ends
from cer_gpu.backend.status import GO_ON
from cer_gpu.backend.waiting import drop_rows
from cer_gpu.output.form import part_of
from cer_gpu.planning.pattern_spans import TAKES_BACK
from cer_gpu.runtime import joining
from cer_gpu.runtime.counts import CountBuffers
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.matches import MatchBuffers
from cer_gpu.runtime.protocol import ResultBuffers

_UNDECIDED = -1
"""Ordinal of a match that is still pending."""
AT_THE_END = np.iinfo(np.int64).max
"""Ordinal of a match whose window is still open at the end of the stream."""

_TRIM_FROM = 1 << 12
_COPIES = 3
"""Copies of the pending matches that exist at once, while some are taken, sorted or concatenated."""


class _Events(NamedTuple):
    """Relevant events: positions, clocks of the window, partitions, and numbers in the stream or the partition."""

    positions: Int64
    clocks: Array
    partitions: Int32
    numbers: Int64

    def at(self, positions: Int64) -> Int64:
        """Return the indexes of the events at positions."""
        order = np.argsort(self.positions, kind="stable")
        indexes: Int64 = order[np.searchsorted(self.positions, positions, sorter=order)]
        return indexes

    def select(self, mask: Bools) -> _Events:
        """Return some of the events."""
        return _Events(self.positions[mask], self.clocks[mask], self.partitions[mask], self.numbers[mask])


class PendingMatches:
    """The pending matches of one evaluation, and the decided ones that are not reported yet.

    Parameters
    ----------
    labels
        Variables of each mark of the runtime.
    selected
        Variables that SELECT keeps.
    length
        Length of the window, uint64 or float64.
    lasting
        Time for which a match is pending after its last event; None: for `length` after its first.
    labelled
        True: matches that differ only in the variables of their events are different.
    strategy
        Selection strategy, among the matches of one end.
    limit
        Most matches of one end; 0: all.
    counted
        True: ends are wanted, with the numbers of their matches.
    only_ends
        True: one match of each end is wanted.
    grouped
        True: rows of one end are wanted together.
    shard
        (k, n): report shard k of n of the decided matches; None for all.
    options
        Those of the runtime: the limit of the memory, and whether there are times.

    Attributes
    ----------
    labels : list of frozenset of str
        Selected variables of each mark, as reported.
    latest_starts : tuple of int64
        Ends of the matches that were pending when some were decided last, ascending, and the latest start of each,
        where rows of one end are wanted together.
    """

    def __init__(
        self,
        labels: list[frozenset[str]],
        selected: tuple[str, ...],
        length: Any,
        *,
        lasting: Any = None,
        labelled: bool,
        strategy: Strategy,
        limit: int,
        counted: bool,
        only_ends: bool,
        grouped: bool,
        shard: tuple[int, int] | None,
        options: RunOptions,
    ) -> None:
        self.labels: list[frozenset[str]] = [label & frozenset(selected) for label in labels]
        self._takes_back = np.array([TAKES_BACK in label for label in labels])
        self._is_selected = np.array([bool(label) for label in self.labels])
        # marks that differ in variables that SELECT drops are one
        self._mark_of = np.array([self.labels.index(label) for label in self.labels], np.int32)
        self._reach, self._labelled, self._options = length, labelled, options
        self._waits_from_end = lasting is not None
        self._length = length if lasting is None else lasting
        self._limit, self._counted, self._only_ends = limit, counted, only_ends
        self._shard, self._n_decided = shard, 0
        self._strategy = strategy
        self._grouped = bool(limit) or counted or only_ends or grouped or strategy.compares
        self._rows = _NO_ROWS
        self._ordinals = np.empty(0, np.int64)
        self._clocks: Array = np.empty(0, np.asarray(length).dtype)
        self._partitions = np.empty(0, np.int32)
        self._keys: list[pa.Array] = []
        self._last_ordinals = np.empty(0, np.int64)  # in each partition, where a window counts its events
        self._events = _Events(np.empty(0, np.int64), self._clocks, self._partitions, np.empty(0, np.int64))
        self._trim_at = _TRIM_FROM
        self.latest_starts: tuple[Int64, Int64] = (np.empty(0, np.int64), np.empty(0, np.int64))

    # ---- what the runtime finds -------------------------------------------------------------------------------

    def note(self, events: RelevantEvents) -> None:
        """Note the clocks of relevant events, in which matches may begin."""
        partitions = events.partitions if len(events.partitions) else np.zeros(len(events.symbols), np.int32)
        numbers = events.ordinals if len(events.ordinals) else events.positions
        noted = self._events
        self._events = _Events(
            np.concatenate((noted.positions, events.reported)),
            np.concatenate((noted.clocks, events.window_clocks)),
            np.concatenate((noted.partitions, partitions)),
            np.concatenate((noted.numbers, numbers)),
        )

    def take(self, matches: MatchBuffers, keys: list[pa.Array]) -> None:
        """Add pending matches, and withdraw those that an absent event follows.

        Raises
        ------
        OutOfMemoryError
            When all pending matches together need more than the limit.
        """
        if len(matches):
            with self._reserve(matches):
                self._add_pending(matches, keys)

    def _add_pending(self, matches: MatchBuffers, keys: list[pa.Array]) -> None:
        n = len(self._rows)
        back = np.zeros(n + len(matches), np.bool_)
        back[n:] = self._takes_back[matches.marks[matches.offsets[1:] - 1]]
        remaining = np.ones(n + len(matches), np.bool_)
        at = self._events.at(matches.spans[1 if self._waits_from_end else 0])
        if self._strategy.consecutive:
            remaining[n:] &= self._are_consecutive(matches)
        self._rows = rows = _concat_matches(self._rows, matches)
        columns = (rows.spans, rows.offsets, rows.positions, rows.marks)
        drop_rows(*columns, back, True, remaining, _table_for(len(rows)))
        self._ordinals = np.concatenate([self._ordinals, np.full(len(matches), _UNDECIDED)])
        self._clocks = np.concatenate([self._clocks, self._events.clocks[at]])
        self._partitions = np.concatenate([self._partitions, self._events.partitions[at]])
        self._keys = [pa.concat_arrays(pair) for pair in zip(self._keys, keys, strict=True)] if self._keys else keys
        self._filter_rows(remaining)

    def _are_consecutive(self, matches: MatchBuffers) -> Bools:
        """Return the mask of the matches whose selected events have no other events between them."""
        selected = np.flatnonzero(self._is_selected[matches.marks])
        numbers = self._events.numbers[self._events.at(matches.positions[selected])]
        row = np.repeat(np.arange(len(matches)), np.diff(matches.offsets))[selected]
        apart = (row[1:] == row[:-1]) & (numbers[1:] != numbers[:-1] + 1)
        consecutive = np.ones(len(matches), np.bool_)
        consecutive[row[1:][apart]] = False
        return consecutive

    # ---- decisions --------------------------------------------------------------------------------------------

    def pass_clocks(self, clocks: Array, first: int) -> None:
        """Read the clocks of all events of a block, from the event with number `first` on."""
        pending = np.flatnonzero(self._ordinals == _UNDECIDED)
        own = self._clocks[pending]
        if own.dtype.kind == "u":
            last = own + np.minimum(self._length, np.uint64(2**64 - 1) - own)
        else:
            last = own + self._length
        passed = np.searchsorted(clocks, last, "right")
        decided = passed < len(clocks)
        self._ordinals[pending[decided]] = first + passed[decided]
        if len(clocks):
            self._trim(clocks[-1])

    @property
    def next_deadline(self) -> int | None:
        """Least clock of an event beyond the window of a pending match, or None if none is pending."""
        pending = self._clocks[self._ordinals == _UNDECIDED]
        return int(pending.min()) + int(self._length) + 1 if len(pending) else None

    def pass_events(self, partitions: Int32, ordinals: Int64, positions: Int64) -> None:
        """Read the partitions of all events of a block, their numbers in these, and their positions."""
        if not len(partitions):
            return
        more = max(int(partitions.max()) + 1 - len(self._last_ordinals), 0)
        self._last_ordinals = np.concatenate([self._last_ordinals, np.full(more, -1)])
        np.maximum.at(self._last_ordinals, partitions, ordinals)
        self._trim(self._last_ordinals.astype(np.uint64)[self._events.partitions])
        pending = np.flatnonzero(self._ordinals == _UNDECIDED)
        groups = np.unique(self._partitions[pending])
        group = np.searchsorted(groups, partitions)
        if not len(groups):
            return
        ours = np.flatnonzero(groups[np.minimum(group, len(groups) - 1)] == partitions)
        names = (group[ours].astype(np.int64) << 40) + ordinals[ours]
        order = np.argsort(names)
        beyond = self._clocks[pending].astype(np.int64) + np.int64(min(int(self._length), 1 << 39)) + 1
        wanted = (np.searchsorted(groups, self._partitions[pending]).astype(np.int64) << 40) + beyond
        place = np.searchsorted(names, wanted, sorter=order)
        decided = place < len(names)
        decided[decided] = names[order[place[decided]]] == wanted[decided]
        self._ordinals[pending[decided]] = positions[ours[order[place[decided]]]]

    def finish(self) -> None:
        """End the stream: all pending matches are decided."""
        self._ordinals[self._ordinals == _UNDECIDED] = AT_THE_END

    def decided(self) -> tuple[ResultBuffers, list[pa.Array]] | None:
        """Return the decided matches, in their order, with the keys of their partitions.

        Raises
        ------
        OutOfMemoryError
        """
        with self._reserve(_NO_ROWS):
            return self._take_decided()

    def _take_decided(self) -> tuple[ResultBuffers, list[pa.Array]] | None:
        rows = np.flatnonzero(self._ordinals != _UNDECIDED)
        if not len(rows):
            return None
        ordinals = self._ordinals[rows]
        if self._grouped:
            rows, ordinals = self._whole_ends(rows, ordinals)
            if not len(rows):
                return None
        spans = self._rows.spans[:, rows] >> self._options.number_bits
        # of equal ones, the first to be added stays first
        order = np.lexsort((rows, spans[0], spans[1], ordinals))
        rows = rows[order]
        taken = np.zeros(len(self._ordinals), np.bool_)
        taken[rows] = True
        matches, first = self._distinct(_project(_take_matches(self._rows, rows), self._is_selected, self._mark_of))
        rows = rows[first]
        if self._strategy.compares:
            first = self._choose_at_ends(matches, rows)
            matches, rows = _take_matches(matches, first), rows[first]
        if self._limit or self._only_ends:
            numbers = _numbers_at_ends(matches.spans[1], rows)
            first = np.flatnonzero(numbers < (1 if self._only_ends else self._limit))
            matches, rows = _take_matches(matches, first), rows[first]
        counts = None
        if self._counted:
            matches, rows, counts = self._count_ends(matches, rows)
        if self._shard is not None:
            first = np.arange(len(rows))[part_of(self._shard, self._n_decided)]
            self._n_decided += len(rows)
            matches, rows = _take_matches(matches, first), rows[first]
            counts = None if counts is None else counts[first]
        keys = [key.take(pa.array(rows)) for key in self._keys]
        self._filter_rows(~taken)
        if counts is not None:
            times = matches.times[1] if self._options.timed else np.empty(0, np.int64)
            return CountBuffers(matches.spans[1], counts, times), keys
        return matches, keys

    def _choose_at_ends(self, matches: MatchBuffers, rows: Int64) -> Int64:
        """Return the matches that the strategy chooses, among all of their ends."""
        order = np.lexsort((rows, matches.spans[1]))
        sorted_ = _take_matches(matches, order)
        # the loop moves rows: their numbers take the place of times
        numbers = np.stack([order, order])
        output = Matches(sorted_.spans.copy(), numbers, sorted_.offsets, sorted_.positions, sorted_.marks)
        ends = sorted_.spans[1]
        begins = np.flatnonzero(np.concatenate([[True], ends[1:] != ends[:-1], [True]]))
        scratch, n_selected = np.empty(3 * int(np.diff(begins).max()), np.int64), np.empty(len(begins) - 1, np.int64)
        regs = np.zeros(N_SHARED_REGS, np.int64)
        status = GO_ON
        while status == GO_ON:  # a signal is heeded in between
            regs[CHOICE_LEFT] = joining.PAIRS_AT_ONCE
            status = choose_at_ends(*plain(output), begins, self._strategy.choice, scratch, n_selected, regs)
        before = np.cumsum(n_selected) - n_selected
        selected = np.repeat(begins[:-1] - before, n_selected) + np.arange(int(n_selected.sum()))
        return np.sort(numbers[0, selected])

    def _count_ends(self, matches: MatchBuffers, rows: Int64) -> tuple[MatchBuffers, Int64, Int64]:
        """Return one match of each end, and how many the end has; rows of one end are adjacent."""
        ends = matches.spans[1]
        first = np.flatnonzero(np.concatenate([[True], ends[1:] != ends[:-1]]))
        counts = np.diff([*first, len(ends)]).astype(np.int64)
        return _take_matches(matches, first), rows[first], counts

    def _whole_ends(self, rows: Int64, ordinals: Int64) -> tuple[Int64, Int64]:
        """Return the decided rows of ends without pending rows, with the latest ordinal of the end.

        Ends are reported in the order of decision: pending matches are decided later than all that are decided now.
        """
        groups, group = np.unique(self._rows.spans[1], return_inverse=True)
        starts = np.full(len(groups), -1)
        np.maximum.at(starts, group, self._rows.spans[0])
        self.latest_starts = groups, starts
        latest = np.full(len(groups), _UNDECIDED)
        np.maximum.at(latest, group[rows], ordinals)
        open_ = np.zeros(len(groups), np.bool_)
        open_[group[self._ordinals == _UNDECIDED]] = True
        rows = rows[~open_[group[rows]]]
        return rows, latest[group[rows]]

    def _distinct(self, matches: MatchBuffers) -> tuple[MatchBuffers, Int64]:
        """Return each match once, as the first row of it, and these rows."""
        remaining = np.ones(len(matches), np.bool_)
        columns = (matches.spans, matches.offsets, matches.positions, matches.marks)
        drop_rows(*columns, np.empty(0, np.bool_), self._labelled, remaining, _table_for(len(matches)))
        first = np.flatnonzero(remaining)
        return (matches if len(first) == len(matches) else _take_matches(matches, first)), first

    # ---- memory ---------------------------------------------------------------------------------------------

    def _reserve(self, more: MatchBuffers) -> AbstractContextManager[None]:
        """Bound the memory of the pending matches and `more`, while they are copied and looked up."""
        n_rows = len(self._rows) + len(more)
        n_bytes = sum(array.nbytes for rows in (self._rows, more) for array in rows.arrays)
        n_bytes += sum(key.nbytes for key in self._keys)
        n_needed = _COPIES * n_bytes + _table_bytes(n_rows)
        return self._options.memory.reserve(n_needed, lambda: self._describe_pending(more))

    def _describe_pending(self, more: MatchBuffers) -> str:
        """Return a description of the pending matches and of the end with most of them, for an error message."""
        ends = np.concatenate([self._rows.spans[1], more.spans[1]])
        times = np.concatenate([self._rows.times[1], more.times[1]])
        positions, first, counts = np.unique(ends, return_index=True, return_counts=True)
        largest = int(np.argmax(counts))
        end = self._options.end_in_words(int(positions[largest]), times, int(first[largest]))
        waiting = f"of {len(ends):,} that wait for the end of their window, and keeping these needs"
        return f"{end} ends {int(counts[largest]):,} matches so far, {waiting}"

    def _filter_rows(self, remaining: Bools) -> None:
        """Drop all other matches."""
        if remaining.all():
            return
        self._rows = self._rows.at(remaining)
        self._ordinals, self._clocks = self._ordinals[remaining], self._clocks[remaining]
        self._partitions = self._partitions[remaining]
        mask = pa.array(remaining)
        self._keys = [key.filter(mask) for key in self._keys]

    def _trim(self, now: Any) -> None:
        """Drop the clocks of events that can begin no further match, as of the clock of the last event."""
        if len(self._events.positions) >= self._trim_at:
            self._events = self._events.select(~(now - self._events.clocks > self._reach))
            self._trim_at = max(_TRIM_FROM, 2 * len(self._events.positions))

    def live(self) -> Int64:
        """Return the positions that the matches here hold, begin or end with, ascending."""
        return np.unique(np.concatenate([self._rows.positions, self._rows.spans.ravel()]))

    def ends(self) -> Int64:
        """Return the positions where the matches here end, ascending."""
        return np.unique(self._rows.spans[1])

    def starts(self) -> Int64:
        """Return the positions where the matches here, and those to come of the events read, may begin, ascending."""
        return np.union1d(self._rows.spans[0], self._events.positions)

    def holds(self, n_partitions: int) -> Bools:
        """Return the mask of the partitions with pending matches."""
        mask = np.zeros(n_partitions, np.bool_)
        mask[self._partitions] = True
        return mask

    def keep_partitions(self, mask: Bools) -> None:
        """Renumber the partitions in `mask`; all others are empty."""
        numbers = (np.cumsum(mask) - 1).astype(np.int32)
        self._partitions = numbers[self._partitions]
        events = self._events.select(mask[self._events.partitions])
        self._events = events._replace(partitions=numbers[events.partitions])
        self._last_ordinals = self._last_ordinals[: len(mask)][mask[: len(self._last_ordinals)]]

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], pa.Table]:
        """Return the state: arrays, and the keys."""
        rows = self._rows
        arrays = {
            "spans": rows.spans,
            "times": rows.times,
            "offsets": rows.offsets,
            "positions": rows.positions,
            "marks": rows.marks,
            "moments": self._ordinals,
            "clocks": self._clocks,
            "partitions": self._partitions,
            **{f"event_{name}": array for name, array in self._events._asdict().items()},
            "last_ordinals": self._last_ordinals,
            "n_known": np.array([self._n_decided]),
        }
        return arrays, pa.table(self._keys, [str(i) for i in range(len(self._keys))])

    def restore(self, arrays: dict[str, Any], keys: pa.Table) -> None:
        """Go on from a snapshot."""
        self._rows = MatchBuffers(*(arrays[name] for name in ("spans", "times", "offsets", "positions", "marks")))
        self._ordinals, self._clocks = arrays["moments"], arrays["clocks"]
        self._partitions = arrays["partitions"]
        self._events = _Events(*(arrays[f"event_{name}"] for name in _Events._fields))
        self._last_ordinals, self._n_decided = arrays["last_ordinals"], int(arrays["n_known"][0])
        self._keys = [column.combine_chunks() for column in keys.columns]


def _table_for(n_rows: int) -> Int64:
    """Return an empty hash table for `n_rows` rows."""
    return np.empty(_table_bytes(n_rows) // 8, np.int64)


def _table_bytes(n_rows: int) -> int:
    return 8 << (2 * n_rows).bit_length()


_NO_ROWS = MatchBuffers(
    np.empty((2, 0), np.int64),
    np.empty((2, 0), np.int64),
    np.zeros(1, np.int32),
    np.empty(0, np.int64),
    np.empty(0, np.int32),
)


def _concat_matches(one: MatchBuffers, other: MatchBuffers) -> MatchBuffers:
    """Return the matches of two buffers."""
    offsets = np.concatenate([one.offsets, other.offsets[1:] + one.offsets[-1]]).astype(np.int32)
    return MatchBuffers(
        np.concatenate([one.spans, other.spans], axis=1),
        np.concatenate([one.times, other.times], axis=1),
        offsets,
        np.concatenate([one.positions, other.positions[: other.offsets[-1]]]),
        np.concatenate([one.marks, other.marks[: other.offsets[-1]]]),
    )


def _take_matches(rows: MatchBuffers, chosen: Int64) -> MatchBuffers:
    """Return some matches, in the order of `chosen`."""
    lengths = np.diff(rows.offsets)[chosen]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    entries = np.repeat(rows.offsets[:-1][chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
    times = rows.times[:, chosen] if rows.times.shape[1] else rows.times
    return MatchBuffers(rows.spans[:, chosen], times, offsets, rows.positions[entries], rows.marks[entries])


def _project(rows: MatchBuffers, is_selected: Bools, mark_of: Int32) -> MatchBuffers:
    """Return matches with the selected events alone, under other marks."""
    entries = is_selected[rows.marks]
    before = np.concatenate([[0], np.cumsum(entries)]).astype(np.int32)
    return MatchBuffers(
        rows.spans, rows.times, before[rows.offsets], rows.positions[entries], mark_of[rows.marks[entries]]
    )


def _numbers_at_ends(ends: Int64, rows: Int64) -> Int64:
    """Return for each row its number among those of its end, in the order of `rows`."""
    order = np.lexsort((rows, ends))
    own = ends[order]
    begins = np.concatenate([[True], own[1:] != own[:-1]])
    numbers = np.arange(len(own))
    numbers -= np.maximum.accumulate(np.where(begins, numbers, 0))
    back = np.empty(len(own), np.int64)
    back[order] = numbers
    return back
