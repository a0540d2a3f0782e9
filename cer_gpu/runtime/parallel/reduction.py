"""Semi-joins: relevant events are buffered until their windows have passed; only those with possible partners go on.

The events of a window are buffered, so that its possible successors are known when an event is decided; those of the
window before stay as well, for what came before it.  At the end of a batch all events are handed over, those whose
windows reach beyond it without a decision: no match is delayed by it.  Nothing depends on what is buffered: before the
first event that is known, and after the last one, all may be.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from cer_gpu.arrays import Array, Int64
from cer_gpu.automaton.parallel_pattern import ParallelTable
from cer_gpu.automaton.semi_joins import SemiJoin
from cer_gpu.backend.products.reduction import N_TAKING_PART, PLACE, JoinGroups, semi_join
from cer_gpu.columnar.memory import Scratch
from cer_gpu.runtime.events import RelevantEvents
from cer_gpu.runtime.join_tables import padded
from cer_gpu.runtime.parallel.parallel_tables import ParallelTables

MIN_BUFFERED = 1 << 12
"""Minimum number of events buffered at once."""
MAX_BUFFERED = 1 << 22
"""Maximum number of buffered events."""
MAX_REMAINING, MAX_REMAINING_STEPS, MAX_REMAINING_COUNTED = 0.6, 0.4, 0.25
"""Fractions of the events that remain, up to which it pays to look for partners: of conjunctions; of steps, which the
runtime reads faster, as it stores none that has no event before it; and of conjunctions that are counted by keys."""
PAYS_FROM = 0.2
"""Fraction of its events that a semi-join drops, from which on it pays."""
RESTS, RESTS_COUNTED = 8, 64
"""Ratio of the events to skip to those that were examined without a gain, also for conjunctions counted by keys."""
SLOTS_AN_EVENT = 8
"""Slots of a table for each event in a window."""
MAX_APART = 32
"""Events, at most, after which a window is moved on: one that is somewhat longer does no harm."""
TRIED = 1 << 17
"""Events among which partners are looked for, to see whether to wait for more."""
MIN_BITS, MAX_BITS = 8, 21
"""Bounds of the binary logarithm of the slots of a table."""


class SemiJoinFilter:
    """Buffer of events until it is decided whether they can have partners.

    Parameters
    ----------
    tables : ParallelTables
    table : ParallelTable
    joins : list of SemiJoin
        From the leaves to the root.
    length
        Length of the window, uint64 or float64.
    whole : bool
        True: the order of the matches of an end does not matter, so that all events without partners are dropped.
    brief : bool
        True: the runtime counts by keys, which takes no longer than most looks for partners.
    """

    def __init__(
        self,
        tables: ParallelTables,
        table: ParallelTable,
        joins: list[SemiJoin],
        length: np.uint64 | np.float64,
        *,
        whole: bool,
        brief: bool,
    ) -> None:
        self._table, self._length = table, length
        ordered = [join for join in joins if join.ordered]
        self._max_remaining = MAX_REMAINING_STEPS if len(ordered) == len(joins) else MAX_REMAINING
        self._brief, self._rests = brief, RESTS_COUNTED if brief else RESTS
        if brief:
            self._max_remaining = MAX_REMAINING_COUNTED
        # those of one key find little on the way back: what has lost its partners has lost its own ones, too
        back = ordered[-2::-1] if whole else []
        self._joins = [_groups_of(join, tables, whole=whole) for join in [*joins, *back]]
        self._places_of: Int64 = np.empty(0, np.int64)
        self._columns: dict[str, Array] = {}
        self._n = 0
        self._n_decided = 0  # the first of the buffered events, which were handed over or dropped
        self._since: Any = None  # the clock of the last event that is not buffered; None if there is none
        self._is_anew = False  # events may have come before the next one
        self._pause, self._tried = 0, False
        self._rest = [0] * len(self._joins)  # events that each semi-join is not to look at
        self._scratch, self._slots = Scratch(np.int32, N_TAKING_PART), Scratch(np.int32)
        self._words, self._chosen = Scratch(np.int64), Scratch(np.int32)

    def take(self, events: RelevantEvents) -> list[RelevantEvents]:
        """Return the events to evaluate now, from the buffered ones and these, in pieces that are not empty."""
        n = len(events.symbols)
        if self._is_anew:
            self._since, self._is_anew = events.window_clocks[0], False
        if self._pause > 0 or (n < MIN_BUFFERED and self._n == self._n_decided):
            ready = self.release()
            self._pause -= n
            self._forget(events.window_clocks[-1])
            return [*ready, events]
        ready = []
        if self._columns and self._differs(events):
            ready = self.release()
            self._columns = {}
        self._append(events)
        n_closed = self._first_open()
        if 4 * (n_closed - self._n_decided) >= 3 * self._n:
            ready += self._decide(n_closed)
        if self._n >= MAX_BUFFERED or (not self._tried and self._n >= TRIED and not self._promises()):
            ready += self._undecided() if self._brief else self.release()
        return ready

    def _undecided(self) -> list[RelevantEvents]:
        """Return all buffered events that are not decided."""
        if self._n == self._n_decided:
            return []
        ready = [self._at(slice(self._n_decided, self._n))]
        self._forget(self._clocks[-1])
        return ready

    def _promises(self) -> bool:
        """Return True if few events have partners among the buffered ones, so that it may pay to wait for more."""
        self._tried = True
        promises = not self._brief or 2 * self._first_open() >= self._n
        if promises:
            words = self._places()
            self._drop_partnerless(words, 0, self._n, trial=True)
            promises = bool(np.count_nonzero(words) <= self._max_remaining * self._n)
        if not promises:
            self._pause_for(self._rests * self._n)
        return promises

    def _pause_for(self, n: int) -> None:
        self._pause, self._tried = n, False

    def release(self, *, ended: bool = False) -> list[RelevantEvents]:
        """Return all buffered events that may have partners; if the stream has `ended`, none follow."""
        if self._n == self._n_decided:
            return []
        n_closed = self._n if ended else self._first_open()
        ready = []
        if ended or 4 * (n_closed - self._n_decided) >= self._n - self._n_decided:
            ready = self._decide(n_closed)
            rest, self._n_decided = slice(self._n_decided, self._n), self._n
        else:
            rest = slice(self._n_decided, self._n)
            self._forget(self._clocks[-1])
        if rest.stop > rest.start:
            ready.append(self._at(rest))
        return ready

    def forget(self) -> None:
        """Forget earlier events: partitions or strings are renumbered, or a checkpoint has none; none are buffered."""
        self._n = self._n_decided = 0
        self._is_anew = True

    # ---- buffered events --------------------------------------------------------------------------------------

    def _forget(self, clock: Any) -> None:
        self._n = self._n_decided = 0
        self._since = clock

    @property
    def _clocks(self) -> Array:
        """The clocks of the buffered events, which may be their positions."""
        clocks = self._columns.get("window_clocks")
        return (self._columns["positions"].view(np.uint64) if clocks is None else clocks)[: self._n]

    def _differs(self, events: RelevantEvents) -> bool:
        """Return True if the columns to buffer differ from the buffered ones."""
        return {name: each.dtype for name, each in _columns_of(events).items()} != {
            name: column.dtype for name, column in self._columns.items()
        }

    def _append(self, events: RelevantEvents) -> None:
        n = self._n + len(events.symbols)
        for name, added in _columns_of(events).items():
            column = self._columns.get(name)
            if column is None or len(column) < n:
                grown = np.empty((max(n, 2 * self._n), *added.shape[1:]), added.dtype)
                if column is not None:
                    grown[: self._n] = column[: self._n]
                self._columns[name] = column = grown
            column[self._n : n] = added
        self._n = n

    def _at(self, rows: slice | Int64) -> RelevantEvents:
        empty = np.empty(0, np.int64)
        at = {
            name: column[rows] if isinstance(rows, slice) else column.take(rows, axis=0)
            for name, column in self._columns.items()
        }
        if "partitions" not in at:
            at["partitions"] = np.empty(0, np.int32)
        at.setdefault("window_clocks", at["positions"].view(np.uint64))
        return RelevantEvents(**{name: at.get(name, empty) for name in _FIELDS})

    def _retain_open(self, decided: Int64, first_open: int) -> None:
        """Buffer only these of the decided events, and those from `first_open` on."""
        n = len(decided) + self._n - first_open
        for column in self._columns.values():
            column[: len(decided)] = column.take(decided, axis=0)
            column[len(decided) : n] = column[first_open : self._n]
        self._n, self._n_decided = n, len(decided)

    def _first_open(self) -> int:
        """Return the first of the events whose windows reach to the last one, or beyond."""
        clocks = self._clocks
        return self._first_in_window(clocks, clocks[-1])

    def _first_in_window(self, clocks: Array, clock: Any) -> int:
        """Return the first of some clocks, which ascend, from which a window may reach to another one."""
        low, high = 0, len(clocks)
        while low < high:
            middle = (low + high) // 2
            if clock >= clocks[middle] and clock - clocks[middle] > self._length:
                low = middle + 1
            else:
                high = middle
        return low

    # ---- partners ---------------------------------------------------------------------------------------------

    def _decide(self, n_closed: int) -> list[RelevantEvents]:
        """Decide the events before a number, and return those that may have partners."""
        n, begin, clocks = self._n, self._n_decided, self._clocks
        words = self._left(n_closed)
        left = begin + np.flatnonzero(words[begin:n_closed] != 0)
        if len(left) > self._max_remaining * (n_closed - begin):
            self._pause_for(self._rests * (n_closed - begin))
        ready = [self._at(left)] if len(left) else []
        if n_closed == n:
            self._forget(clocks[n - 1])
            return ready
        low = self._first_in_window(clocks[:n_closed], clocks[n_closed])
        self._retain_open(low + np.flatnonzero(words[low:n_closed]), n_closed)
        return ready

    def _left(self, n_closed: int) -> Int64:
        """Return the places at which each event may have partners, as bits."""
        n, words = self._n, self._places()
        first_decidable = self._n_decided
        if self._since is not None:
            in_view = self._clocks - self._since > self._length
            first_decidable = max(first_decidable, int(np.argmax(in_view)) if in_view.any() else n)
        if first_decidable < n_closed:
            self._drop_partnerless(words, first_decidable, n_closed)
        return words

    def _places(self) -> Int64:
        """Return the places at which each event may be, as bits."""
        if len(self._places_of) < self._table.n_symbols:
            self._places_of = np.array(self._table.places_of, np.int64)
            self._joins = [_with_symbols(join, self._table.places_of) for join in self._joins]
        words = self._words.empty(self._n)
        np.take(self._places_of, self._columns["symbols"][: self._n], out=words, mode="clip")  # else a copy
        return words

    def _drop_partnerless(self, words: Int64, first_decidable: int, n_closed: int, *, trial: bool = False) -> None:
        """Take from the words the places at which events have no partners, join by join, and back where it pays."""
        n, clocks = self._n, self._clocks
        partitions = self._columns["partitions"][:n] if "partitions" in self._columns else np.empty(0, np.int32)
        events = words, self._columns["symbols"][:n], clocks, self._length, self._columns["attributes"][:n], partitions
        n_in_window = self._n_in_window(clocks)
        bits = min(max((SLOTS_AN_EVENT * n_in_window).bit_length(), MIN_BITS), MAX_BITS)
        apart = min(max(n_in_window // 16, 1), MAX_APART)
        chosen = self._chosen.empty(n + 1)
        for number, join in enumerate(self._joins):
            if self._rest[number] > 0 and not trial:
                self._rest[number] -= n
                continue
            scratch = self._scratch.empty(n * len(join.places) + 1)
            slots = self._slots.empty(len(join.groups) << bits)
            at = first_decidable, n_closed, 1.0 - PAYS_FROM, apart, bits, slots, chosen, scratch
            n_here, n_dropped = semi_join(*events, tuple(join), *at)
            if n_dropped < PAYS_FROM * n_here and not trial:
                self._rest[number] = RESTS * n

    def _n_in_window(self, clocks: Array) -> int:
        """Return the number of events in one window, an estimate for the others."""
        middle = len(clocks) // 2
        return middle - self._first_in_window(clocks[:middle], clocks[middle])


_FIELDS = tuple(field.name for field in fields(RelevantEvents))


def _columns_of(events: RelevantEvents) -> dict[str, Array]:
    """Return the columns of events to buffer: not the empty ones, and not clocks that are the positions."""
    columns = {name: each for name in _FIELDS if len(each := getattr(events, name))}
    positions, clocks = columns["positions"], columns["window_clocks"]
    if clocks.dtype == np.uint64 and clocks.__array_interface__["data"] == positions.__array_interface__["data"]:
        del columns["window_clocks"]
    return columns


def _groups_of(join: SemiJoin, tables: ParallelTables, *, whole: bool) -> JoinGroups:
    """Return a semi-join with the columns of its keys."""
    placed = [(number, place) for number, group in enumerate(join.groups) for place in group]
    columns = [[tables.column_at(place, variable) for variable in join.key] for _, place in placed]
    places = [
        [number, place, sum(1 << (column - 1) for column in set(own))]
        for (number, place), own in zip(placed, columns, strict=True)
    ]
    n = len(join.groups)
    others = [(1 << n) - 1 - (1 << number) for number in range(n)]
    looks = [0, 1] if join.ordered else others
    groups = [
        [*each, int(whole or drops)] for each, drops in zip(zip(looks, others, strict=True), join.drops, strict=True)
    ]
    padded_columns = np.ascontiguousarray(padded(columns), np.int64)
    return JoinGroups(np.array(places, np.int64), padded_columns, np.array(groups, np.int64), np.empty(0, np.int64))


def _with_symbols(join: JoinGroups, places_of: list[int]) -> JoinGroups:
    """Return a semi-join with the only place of each symbol, given the places of each as bits."""
    at = [[p for p, place in enumerate(join.places[:, PLACE].tolist()) if word >> place & 1] for word in places_of]
    return join._replace(only=np.array([places[0] if len(places) == 1 else -1 for places in at], np.int64))
