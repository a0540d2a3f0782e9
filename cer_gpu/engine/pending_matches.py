"""Matches pending on a trailing absence (``f ; !R``): reported once their window has closed without an R.

Those of ``f ; !R FOR d`` are pending until d has passed after their end.

The runtime finds what matches f, and what matches f and the next R (`cer_gpu.planning.pattern_spans`).  The first wait
here; the second take them back.  The rest is known at the first event beyond the window of its start, its moment,
or at the end of the stream.  It comes in the order of moment, end and start.
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
from cer_gpu.runtime.protocol import FoundBuffers

_UNKNOWN = -1
"""Moment of a match that still waits."""
AT_THE_END = np.iinfo(np.int64).max
"""Moment of a match whose window the stream does not pass."""

_TRIM_FROM = 1 << 12
_COPIES = 3
"""Copies of what waits that there are at once, while some of it is taken, sorted or put together."""


class _Events(NamedTuple):
    """Relevant events: positions, clocks of the window, partitions, and numbers in the stream or the partition."""

    positions: Int64
    clocks: Array
    partitions: Int32
    numbers: Int64

    def at(self, positions: Int64) -> Int64:
        """Return the indexes of the events at positions."""
        order = np.argsort(self.positions, kind="stable")
        found: Int64 = order[np.searchsorted(self.positions, positions, sorter=order)]
        return found

    def kept(self, kept: Bools) -> _Events:
        """Return some of the events."""
        return _Events(self.positions[kept], self.clocks[kept], self.partitions[kept], self.numbers[kept])


class PendingMatches:
    """The matches of one evaluation that wait, and those that are known and not handed over yet.

    Parameters
    ----------
    labels
        Variables of each mark of the runtime.
    selected
        Variables that SELECT keeps.
    length
        Length of the window, uint64 or float64.
    lasting
        Length for which a match waits behind its last event; None: for `length` behind its first.
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
    share
        (k, n): hand over part k of n of what is known; None for all.
    options
        Those of the runtime: the limit of the memory, and whether there are times.

    Attributes
    ----------
    labels : list of frozenset of str
        Selected variables of each mark: those of what is handed over.
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
        self.labels: list[frozenset[str]] = [held & frozenset(selected) for held in labels]
        self._takes_back = np.array([TAKES_BACK in held for held in labels])
        self._kept = np.array([bool(held) for held in self.labels])
        # marks that differ in variables that SELECT drops are one
        self._mark_of = np.array([self.labels.index(held) for held in self.labels], np.int32)
        self._reach, self._labelled, self._options = length, labelled, options
        self._waits_from_end = lasting is not None
        self._length = length if lasting is None else lasting
        self._limit, self._counted, self._only_ends = limit, counted, only_ends
        self._share, self._n_known = shard, 0
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

    def take(self, found: MatchBuffers, keys: list[pa.Array]) -> None:
        """Let matches wait, and take back those that an event to be absent follows.

        Raises
        ------
        OutOfMemoryError
            When all that then waits needs more than the limit.
        """
        if len(found):
            with self._room_for(found):
                self._add_found(found, keys)

    def _add_found(self, found: MatchBuffers, keys: list[pa.Array]) -> None:
        n = len(self._rows)
        back = np.zeros(n + len(found), np.bool_)
        back[n:] = self._takes_back[found.marks[found.offsets[1:] - 1]]
        kept = np.ones(n + len(found), np.bool_)
        at = self._events.at(found.spans[1 if self._waits_from_end else 0])
        if self._strategy.consecutive:
            kept[n:] &= self._are_consecutive(found)
        self._rows = rows = _concat_matches(self._rows, found)
        columns = (rows.spans, rows.offsets, rows.positions, rows.marks)
        drop_rows(*columns, back, True, kept, _table_for(len(rows)))
        self._ordinals = np.concatenate([self._ordinals, np.full(len(found), _UNKNOWN)])
        self._clocks = np.concatenate([self._clocks, self._events.clocks[at]])
        self._partitions = np.concatenate([self._partitions, self._events.partitions[at]])
        self._keys = [pa.concat_arrays(pair) for pair in zip(self._keys, keys, strict=True)] if self._keys else keys
        self._filter_rows(kept)

    def _are_consecutive(self, found: MatchBuffers) -> Bools:
        """Return which matches have kept events without others between."""
        kept = np.flatnonzero(self._kept[found.marks])
        numbers = self._events.numbers[self._events.at(found.positions[kept])]
        row = np.repeat(np.arange(len(found)), np.diff(found.offsets))[kept]
        apart = (row[1:] == row[:-1]) & (numbers[1:] != numbers[:-1] + 1)
        consecutive = np.ones(len(found), np.bool_)
        consecutive[row[1:][apart]] = False
        return consecutive

    # ---- what becomes known -----------------------------------------------------------------------------------

    def pass_clocks(self, clocks: Array, first: int) -> None:
        """Read the clocks of all events of a block, from the event with number `first` on."""
        waiting = np.flatnonzero(self._ordinals == _UNKNOWN)
        own = self._clocks[waiting]
        if own.dtype.kind == "u":
            last = own + np.minimum(self._length, np.uint64(2**64 - 1) - own)
        else:
            last = own + self._length
        passed = np.searchsorted(clocks, last, "right")
        known = passed < len(clocks)
        self._ordinals[waiting[known]] = first + passed[known]
        if len(clocks):
            self._trim(clocks[-1])

    @property
    def next_deadline(self) -> int | None:
        """Least clock of an event beyond the window of a match that waits, or None if none waits."""
        waiting = self._clocks[self._ordinals == _UNKNOWN]
        return int(waiting.min()) + int(self._length) + 1 if len(waiting) else None

    def pass_events(self, partitions: Int32, ordinals: Int64, positions: Int64) -> None:
        """Read the partitions of all events of a block, their numbers in these, and their positions."""
        if not len(partitions):
            return
        more = max(int(partitions.max()) + 1 - len(self._last_ordinals), 0)
        self._last_ordinals = np.concatenate([self._last_ordinals, np.full(more, -1)])
        np.maximum.at(self._last_ordinals, partitions, ordinals)
        self._trim(self._last_ordinals.astype(np.uint64)[self._events.partitions])
        waiting = np.flatnonzero(self._ordinals == _UNKNOWN)
        groups = np.unique(self._partitions[waiting])
        group = np.searchsorted(groups, partitions)
        if not len(groups):
            return
        ours = np.flatnonzero(groups[np.minimum(group, len(groups) - 1)] == partitions)
        names = (group[ours].astype(np.int64) << 40) + ordinals[ours]
        order = np.argsort(names)
        beyond = self._clocks[waiting].astype(np.int64) + np.int64(min(int(self._length), 1 << 39)) + 1
        wanted = (np.searchsorted(groups, self._partitions[waiting]).astype(np.int64) << 40) + beyond
        place = np.searchsorted(names, wanted, sorter=order)
        known = place < len(names)
        known[known] = names[order[place[known]]] == wanted[known]
        self._ordinals[waiting[known]] = positions[ours[order[place[known]]]]

    def finish(self) -> None:
        """End the stream: what waits is known."""
        self._ordinals[self._ordinals == _UNKNOWN] = AT_THE_END

    def known(self) -> tuple[FoundBuffers, list[pa.Array]] | None:
        """Return the matches that are known, in their order, with the keys of their partitions.

        Raises
        ------
        OutOfMemoryError
        """
        with self._room_for(_NO_ROWS):
            return self._take_decided()

    def _take_decided(self) -> tuple[FoundBuffers, list[pa.Array]] | None:
        rows = np.flatnonzero(self._ordinals != _UNKNOWN)
        if not len(rows):
            return None
        ordinals = self._ordinals[rows]
        if self._grouped:
            rows, ordinals = self._whole_ends(rows, ordinals)
            if not len(rows):
                return None
        spans = self._rows.spans[:, rows] >> self._options.number_bits
        # among alike ones the first that was found stays first
        order = np.lexsort((rows, spans[0], spans[1], ordinals))
        rows = rows[order]
        taken = np.zeros(len(self._ordinals), np.bool_)
        taken[rows] = True
        found, first = self._distinct(_projected(_take_matches(self._rows, rows), self._kept, self._mark_of))
        rows = rows[first]
        if self._strategy.compares:
            first = self._choose_at_ends(found, rows)
            found, rows = _take_matches(found, first), rows[first]
        if self._limit or self._only_ends:
            numbers = _numbers_at_ends(found.spans[1], rows)
            first = np.flatnonzero(numbers < (1 if self._only_ends else self._limit))
            found, rows = _take_matches(found, first), rows[first]
        counts = None
        if self._counted:
            found, rows, counts = self._count_ends(found, rows)
        if self._share is not None:
            first = np.arange(len(rows))[part_of(self._share, self._n_known)]
            self._n_known += len(rows)
            found, rows = _take_matches(found, first), rows[first]
            counts = None if counts is None else counts[first]
        keys = [key.take(pa.array(rows)) for key in self._keys]
        self._filter_rows(~taken)
        if counts is not None:
            times = found.times[1] if self._options.timed else np.empty(0, np.int64)
            return CountBuffers(found.spans[1], counts, times), keys
        return found, keys

    def _choose_at_ends(self, found: MatchBuffers, rows: Int64) -> Int64:
        """Return those of the matches, all of their ends, that the strategy chooses."""
        order = np.lexsort((rows, found.spans[1]))
        sorted_ = _take_matches(found, order)
        # the loop moves rows: their numbers take the place of times
        numbers = np.stack([order, order])
        output = Matches(sorted_.spans.copy(), numbers, sorted_.offsets, sorted_.positions, sorted_.marks)
        ends = sorted_.spans[1]
        begins = np.flatnonzero(np.concatenate([[True], ends[1:] != ends[:-1], [True]]))
        scratch, n_kept = np.empty(3 * int(np.diff(begins).max()), np.int64), np.empty(len(begins) - 1, np.int64)
        regs = np.zeros(N_SHARED_REGS, np.int64)
        status = GO_ON
        while status == GO_ON:  # a signal is heeded in between
            regs[CHOICE_LEFT] = joining.PAIRS_AT_ONCE
            status = choose_at_ends(*plain(output), begins, self._strategy.choice, scratch, n_kept, regs)
        before = np.cumsum(n_kept) - n_kept
        kept = np.repeat(begins[:-1] - before, n_kept) + np.arange(int(n_kept.sum()))
        return np.sort(numbers[0, kept])

    def _count_ends(self, found: MatchBuffers, rows: Int64) -> tuple[MatchBuffers, Int64, Int64]:
        """Return one match of each end, and how many the end has; rows of one end stand together."""
        ends = found.spans[1]
        first = np.flatnonzero(np.concatenate([[True], ends[1:] != ends[:-1]]))
        counts = np.diff([*first, len(ends)]).astype(np.int64)
        return _take_matches(found, first), rows[first], counts

    def _whole_ends(self, rows: Int64, ordinals: Int64) -> tuple[Int64, Int64]:
        """Return the known rows whose ends are known as a whole, and have the latest moment of the end.

        Ends come in the order of their moments: what still waits will be known later than all that is known now.
        """
        groups, group = np.unique(self._rows.spans[1], return_inverse=True)
        latest = np.full(len(groups), _UNKNOWN)
        np.maximum.at(latest, group[rows], ordinals)
        open_ = np.zeros(len(groups), np.bool_)
        open_[group[self._ordinals == _UNKNOWN]] = True
        rows = rows[~open_[group[rows]]]
        return rows, latest[group[rows]]

    def _distinct(self, found: MatchBuffers) -> tuple[MatchBuffers, Int64]:
        """Return each match once, as the first row of it, and these rows."""
        kept = np.ones(len(found), np.bool_)
        columns = (found.spans, found.offsets, found.positions, found.marks)
        drop_rows(*columns, np.empty(0, np.bool_), self._labelled, kept, _table_for(len(found)))
        first = np.flatnonzero(kept)
        return (found if len(first) == len(found) else _take_matches(found, first)), first

    # ---- room -----------------------------------------------------------------------------------------------

    def _room_for(self, more: MatchBuffers) -> AbstractContextManager[None]:
        """Bound the memory of all that waits, with what comes to it, while it is copied and looked up."""
        n_rows = len(self._rows) + len(more)
        n_bytes = sum(array.nbytes for rows in (self._rows, more) for array in rows.arrays)
        n_bytes += sum(key.nbytes for key in self._keys)
        n_needed = _COPIES * n_bytes + _table_bytes(n_rows)
        return self._options.memory.room_for(n_needed, lambda: self._waiting_at(more))

    def _waiting_at(self, more: MatchBuffers) -> str:
        """Return words on all that waits, and on the end of most, for the message that they need too much."""
        ends = np.concatenate([self._rows.spans[1], more.spans[1]])
        times = np.concatenate([self._rows.times[1], more.times[1]])
        positions, first, counts = np.unique(ends, return_index=True, return_counts=True)
        most = int(np.argmax(counts))
        end = self._options.end_in_words(int(positions[most]), times, int(first[most]))
        waiting = f"of {len(ends):,} that wait for the end of their window, and keeping these needs"
        return f"{end} ends {int(counts[most]):,} matches so far, {waiting}"

    def _filter_rows(self, kept: Bools) -> None:
        """Keep some of the matches."""
        if kept.all():
            return
        self._rows = self._rows.at(kept)
        self._ordinals, self._clocks = self._ordinals[kept], self._clocks[kept]
        self._partitions = self._partitions[kept]
        mask = pa.array(kept)
        self._keys = [key.filter(mask) for key in self._keys]

    def _trim(self, now: Any) -> None:
        """Drop the clocks of events that no match to come can begin with, given the clock of the last event."""
        if len(self._events.positions) >= self._trim_at:
            self._events = self._events.kept(~(now - self._events.clocks > self._reach))
            self._trim_at = max(_TRIM_FROM, 2 * len(self._events.positions))

    def live(self) -> Int64:
        """Return the positions that the matches here hold, begin or end with, ascending."""
        return np.unique(np.concatenate([self._rows.positions, self._rows.spans.ravel()]))

    def holds(self, n_partitions: int) -> Bools:
        """Return which partitions have matches that wait."""
        held = np.zeros(n_partitions, np.bool_)
        held[self._partitions] = True
        return held

    def keep_partitions(self, kept: Bools) -> None:
        """Give new numbers to the partitions, of which only some are kept."""
        numbers = (np.cumsum(kept) - 1).astype(np.int32)
        self._partitions = numbers[self._partitions]
        events = self._events.kept(kept[self._events.partitions])
        self._events = events._replace(partitions=numbers[events.partitions])
        self._last_ordinals = self._last_ordinals[: len(kept)][kept[: len(self._last_ordinals)]]

    # ---- state that can be kept -----------------------------------------------------------------------------

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
            "n_known": np.array([self._n_known]),
        }
        return arrays, pa.table(self._keys, [str(i) for i in range(len(self._keys))])

    def restore(self, arrays: dict[str, Any], keys: pa.Table) -> None:
        """Go on from a snapshot."""
        self._rows = MatchBuffers(*(arrays[name] for name in ("spans", "times", "offsets", "positions", "marks")))
        self._ordinals, self._clocks = arrays["moments"], arrays["clocks"]
        self._partitions = arrays["partitions"]
        self._events = _Events(*(arrays[f"event_{name}"] for name in _Events._fields))
        self._last_ordinals, self._n_known = arrays["last_ordinals"], int(arrays["n_known"][0])
        self._keys = [column.combine_chunks() for column in keys.columns]


def _table_for(n_rows: int) -> Int64:
    """Return an empty hash table for so many rows."""
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
    """Return some matches, in a given order."""
    lengths = np.diff(rows.offsets)[chosen]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    entries = np.repeat(rows.offsets[:-1][chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
    times = rows.times[:, chosen] if rows.times.shape[1] else rows.times
    return MatchBuffers(rows.spans[:, chosen], times, offsets, rows.positions[entries], rows.marks[entries])


def _projected(rows: MatchBuffers, kept: Bools, mark_of: Int32) -> MatchBuffers:
    """Return matches with the kept events alone, under other marks."""
    entries = kept[rows.marks]
    before = np.concatenate([[0], np.cumsum(entries)]).astype(np.int32)
    return MatchBuffers(
        rows.spans, rows.times, before[rows.offsets], rows.positions[entries], mark_of[rows.marks[entries]]
    )


def _numbers_at_ends(ends: Int64, found: Int64) -> Int64:
    """Return for each row its number among those of its end, in the order in which they were found."""
    order = np.lexsort((found, ends))
    own = ends[order]
    begins = np.concatenate([[True], own[1:] != own[:-1]])
    numbers = np.arange(len(own))
    numbers -= np.maximum.accumulate(np.where(begins, numbers, 0))
    back = np.empty(len(own), np.int64)
    back[order] = numbers
    return back
