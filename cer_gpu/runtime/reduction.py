"""Relevant events wait until their windows have passed, and only those that can have partners are evaluated.

The events of a window are held back, so that what can follow an event is known when it is decided upon; those of the
window before stay as well, for what came before it.  At the end of a batch all events are handed over, those whose
windows reach beyond it without a decision: no answer comes later for it.  Nothing depends on what is held: before the
first event that is known, and behind the last one, all may be.
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
from cer_gpu.runtime.parallel_tables import ParallelTables

MIN_HELD = 1 << 12
"""Least events at once that are held back."""
MAX_HELD = 1 << 22
"""Events that are held back at most."""
LEFT_AT_MOST, LEFT_OF_STEPS = 0.6, 0.4
"""Shares of the events that are left, up to which it pays to look for partners: of conjunctions, and of steps, which
the runtime reads faster, as it stores none that has no event before it."""
PAYS_FROM = 0.2
"""Share of its events that a semi-join drops, from which on it pays."""
RESTS = 8
"""Factor for the events that are not looked at, to those that were looked at in vain."""
SLOTS_AN_EVENT = 8
"""Slots of a table for each event in a window."""
MAX_APART = 32
"""Events, at most, after which a window is moved on: one that is somewhat longer does no harm."""
TRIED = 1 << 17
"""Events among which partners are looked for, to see whether to wait for more."""
MIN_BITS, MAX_BITS = 8, 21
"""Bounds of the binary logarithm of the slots of a table."""


class SemiJoinFilter:
    """Buffer that holds events back until it is known whether they can have partners.

    Parameters
    ----------
    tables : ParallelTables
    table : ParallelTable
    joins : list of SemiJoin
        From the leaves to the root.
    length
        Length of the window, uint64 or float64.
    whole : bool
        True: the order of the answers of an end does not matter, so that all events without partners are dropped.
    """

    def __init__(
        self,
        tables: ParallelTables,
        table: ParallelTable,
        joins: list[SemiJoin],
        length: np.uint64 | np.float64,
        *,
        whole: bool,
    ) -> None:
        self._table, self._length = table, length
        ordered = [join for join in joins if join.ordered]
        self._most_left = LEFT_OF_STEPS if len(ordered) == len(joins) else LEFT_AT_MOST
        # those of one key find little on the way back: what has lost its partners has lost its own ones, too
        back = ordered[-2::-1] if whole else []
        self._joins = [_groups_of(join, tables, whole=whole) for join in [*joins, *back]]
        self._places_of: Int64 = np.empty(0, np.int64)
        self._held: dict[str, Array] = {}
        self._n = 0
        self._n_decided = 0  # the first of those held, which were handed over or dropped
        self._since: Any = None  # the clock of the last event that is not held; None: there is none
        self._is_anew = False  # events may have come before the next one
        self._pause, self._tried = 0, False
        self._rest = [0] * len(self._joins)  # events that each semi-join is not to look at
        self._scratch, self._slots = Scratch(np.int32, N_TAKING_PART), Scratch(np.int32)
        self._words, self._chosen = Scratch(np.int64), Scratch(np.int32)

    def take(self, events: RelevantEvents) -> list[RelevantEvents]:
        """Return the events to evaluate now, out of those held back and of these, in pieces that are not empty."""
        n = len(events.symbols)
        if self._is_anew:
            self._since, self._is_anew = events.window_clocks[0], False
        if self._pause > 0 or (n < MIN_HELD and self._n == self._n_decided):
            found = self.release()
            self._pause -= n
            self._forget(events.window_clocks[-1])
            return [*found, events]
        found = []
        if self._held and self._differs(events):
            found = self.release()
            self._held = {}
        self._append(events)
        n_closed = self._first_open()
        if 4 * (n_closed - self._n_decided) >= 3 * self._n:
            found += self._decide(n_closed)
        if self._n >= MAX_HELD or (not self._tried and self._n >= TRIED and not self._promises()):
            found += self.release()
        return found

    def _promises(self) -> bool:
        """Return True if few of the events have partners among those held, so that it may pay to wait for more."""
        self._tried = True
        words = self._places()
        self._drop_partnerless(words, 0, self._n, trial=True)
        promises = bool(np.count_nonzero(words) <= self._most_left * self._n)
        if not promises:
            self._pause_for(RESTS * self._n)
        return promises

    def _pause_for(self, n: int) -> None:
        self._pause, self._tried = n, False

    def release(self, *, ended: bool = False) -> list[RelevantEvents]:
        """Return all events that are held back and may have partners; if the stream has `ended`, none come behind."""
        if self._n == self._n_decided:
            return []
        n_closed = self._n if ended else self._first_open()
        found = []
        if ended or 4 * (n_closed - self._n_decided) >= self._n - self._n_decided:
            found = self._decide(n_closed)
            rest, self._n_decided = slice(self._n_decided, self._n), self._n
        else:
            rest = slice(self._n_decided, self._n)
            self._forget(self._clocks[-1])
        if rest.stop > rest.start:
            found.append(self._at(rest))
        return found

    def forget(self) -> None:
        """Take the past as unknown: partitions or texts get other numbers, or a checkpoint has none; none are held."""
        self._n = self._n_decided = 0
        self._is_anew = True

    # ---- what is held -----------------------------------------------------------------------------------------

    def _forget(self, clock: Any) -> None:
        self._n = self._n_decided = 0
        self._since = clock

    @property
    def _clocks(self) -> Array:
        """The clocks of the events that are held, which may be their positions."""
        held = self._held.get("window_clocks")
        return (self._held["positions"].view(np.uint64) if held is None else held)[: self._n]

    def _differs(self, events: RelevantEvents) -> bool:
        """Return True if other columns are to be held than before."""
        return {name: each.dtype for name, each in _columns_of(events).items()} != {
            name: held.dtype for name, held in self._held.items()
        }

    def _append(self, events: RelevantEvents) -> None:
        n = self._n + len(events.symbols)
        for name, added in _columns_of(events).items():
            held = self._held.get(name)
            if held is None or len(held) < n:
                grown = np.empty((max(n, 2 * self._n), *added.shape[1:]), added.dtype)
                if held is not None:
                    grown[: self._n] = held[: self._n]
                self._held[name] = held = grown
            held[self._n : n] = added
        self._n = n

    def _at(self, rows: slice | Int64) -> RelevantEvents:
        empty = np.empty(0, np.int64)
        at = {
            name: held[rows] if isinstance(rows, slice) else held.take(rows, axis=0)
            for name, held in self._held.items()
        }
        if "partitions" not in at:
            at["partitions"] = np.empty(0, np.int32)
        at.setdefault("window_clocks", at["positions"].view(np.uint64))
        return RelevantEvents(**{name: at.get(name, empty) for name in _FIELDS})

    def _retain_open(self, decided: Int64, first_open: int) -> None:
        """Hold only these of the events that are decided upon, and those from `first_open` on."""
        n = len(decided) + self._n - first_open
        for held in self._held.values():
            held[: len(decided)] = held.take(decided, axis=0)
            held[len(decided) : n] = held[first_open : self._n]
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
        """Decide upon the events before a number, and return those of them that may have partners."""
        n, begin, clocks = self._n, self._n_decided, self._clocks
        words = self._left(n_closed)
        left = begin + np.flatnonzero(words[begin:n_closed])
        if len(left) > self._most_left * (n_closed - begin):
            self._pause_for(RESTS * (n_closed - begin))
        found = [self._at(left)] if len(left) else []
        if n_closed == n:
            self._forget(clocks[n - 1])
            return found
        low = self._first_in_window(clocks[:n_closed], clocks[n_closed])
        self._retain_open(low + np.flatnonzero(words[low:n_closed]), n_closed)
        return found

    def _left(self, n_closed: int) -> Int64:
        """Return the places at which each event may have partners, as bits."""
        n, words = self._n, self._places()
        first_known = self._n_decided
        if self._since is not None:
            known = self._clocks - self._since > self._length
            first_known = max(first_known, int(np.argmax(known)) if known.any() else n)
        if first_known < n_closed:
            self._drop_partnerless(words, first_known, n_closed)
        return words

    def _places(self) -> Int64:
        """Return the places at which each event may be, as bits."""
        if len(self._places_of) < self._table.n_symbols:
            self._places_of = np.array(self._table.places_of, np.int64)
            self._joins = [_with_symbols(join, self._table.places_of) for join in self._joins]
        words = self._words.empty(self._n)
        np.take(self._places_of, self._held["symbols"][: self._n], out=words)
        return words

    def _drop_partnerless(self, words: Int64, first_known: int, n_closed: int, *, trial: bool = False) -> None:
        """Take from the words the places at which events have no partners, join by join, and back where it pays."""
        n, clocks = self._n, self._clocks
        partitions = self._held["partitions"][:n] if "partitions" in self._held else np.empty(0, np.int32)
        events = words, self._held["symbols"][:n], clocks, self._length, self._held["attributes"][:n], partitions
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
            at = first_known, n_closed, 1.0 - PAYS_FROM, apart, bits, slots, chosen, scratch
            n_here, n_dropped = semi_join(*events, tuple(join), *at)
            if n_dropped < PAYS_FROM * n_here and not trial:
                self._rest[number] = RESTS * n

    def _n_in_window(self, clocks: Array) -> int:
        """Return the number of events in one window, which tells of the others."""
        middle = len(clocks) // 2
        return middle - self._first_in_window(clocks[:middle], clocks[middle])


_FIELDS = tuple(field.name for field in fields(RelevantEvents))


def _columns_of(events: RelevantEvents) -> dict[str, Array]:
    """Return the columns of events that are to be held: not the empty ones, and not clocks that are the positions."""
    found = {name: each for name in _FIELDS if len(each := getattr(events, name))}
    positions, clocks = found["positions"], found["window_clocks"]
    if clocks.dtype == np.uint64 and clocks.__array_interface__["data"] == positions.__array_interface__["data"]:
        del found["window_clocks"]
    return found


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
