"""Matches of a row pattern over ordered partitions, in time linear in the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cer_gpu.arrays import Array, Bools, Int32, Int64
from cer_gpu.backend.row_patterns import (
    ACCEPT,
    BEGINS,
    DONE,
    ENDS,
    FULL,
    MISSING,
    NONE,
    NOT_BUILT,
    PAST_LAST_ROW,
    SAME,
    TAKES,
    TO_FIRST,
    TO_LAST,
    TO_NEXT_ROW,
    mark_counted,
    mark_finishing,
    walk_counted,
    walk_past,
    walk_rows,
)
from cer_gpu.errors import EventsError, QueryTooLargeError
from cer_gpu.row_patterns.program import RowProgram

Walked = Callable[..., tuple[int, int, int, int, int]]

_MAX_STATES = 1 << 16
"""Maximum number of states of the automaton, as a row has one in 16 bits."""
MAX_ENTRIES = 1 << 24
"""Maximum number of entries of its tables."""
COUNTED_ROWS = 1 << 20
"""Rows that are marked at once for places that take several rows, or those of one longer partition."""
MATCHES = 1 << 16
"""Matches of a piece; their rows are at least as many."""
ROWS_OF_MATCHES, ROWS_OF_SEARCHED = 4, 32
"""Rows of a piece, as a multiple of its matches, without and with a search, whose matches are mostly longer."""


@dataclass(frozen=True)
class Skip:
    """AFTER MATCH SKIP: where the search continues.

    Attributes
    ----------
    how : int
        `PAST_LAST_ROW`, `TO_NEXT_ROW`, `TO_FIRST` or `TO_LAST`.
    variables : frozenset of str
        Variables of the row to continue at.
    name : str
        The variable or subset, as written.
    """

    how: int = PAST_LAST_ROW
    variables: frozenset[str] = frozenset()
    name: str = ""


@dataclass(frozen=True)
class RowMatches:
    """Matches in the order of their partitions and of their first rows.

    Attributes
    ----------
    starts : int64, shape (n matches,)
        First row; those of a match follow one another.
    offsets : int64, shape (n matches + 1,)
        Index of the first place of each match, one for each row; that of the next for an empty match.
    places : int16, shape (n rows of matches,)
        The place in the pattern that took each row.
    ends : int64, shape (n partitions,)
        The row after each partition.
    n_before : int
        Matches of the first one's partition that are before it, in earlier pieces.
    """

    starts: Int64
    offsets: Int64
    places: npt.NDArray[np.int16]
    ends: Int64
    n_before: int = 0

    def __len__(self) -> int:
        """Return the number of matches."""
        return len(self.starts)

    @cached_property
    def lengths(self) -> Int64:
        """The number of rows of each match; 0: an empty match."""
        return np.diff(self.offsets)

    @cached_property
    def partitions(self) -> Int64:
        """The partition of each match."""
        if len(self.ends) == 1:
            return np.zeros(len(self), np.int64)
        return np.searchsorted(self.ends, self.starts, "right")

    @property
    def numbers(self) -> Int64:
        """MATCH_NUMBER: from 1 in each partition."""
        begins = np.flatnonzero(np.diff(self.partitions, prepend=-1))
        n_of_each = np.diff(begins, append=len(self))
        numbers = np.arange(1, len(self) + 1) - np.repeat(begins, n_of_each)
        if len(begins):
            numbers[: n_of_each[0]] += self.n_before
        return numbers


class MatchTables:
    """The automaton of the pass from the end, built state by state as rows need it.

    Parameters
    ----------
    program
    satisfies
        For each variable, the symbols (bool, shape (n symbols,)) of the rows that satisfy its condition.

    Attributes
    ----------
    bits : int
        Bits of a symbol.
    before : int32, shape (n states, ``1 << bits``)
        As of `mark_finishing`.
    choices : int16, shape (n states, n places + 2)
        As of `walk_rows`.
    """

    def __init__(self, program: RowProgram, satisfies: Mapping[str, Bools]) -> None:
        self._program = program
        n_symbols = len(next(iter(satisfies.values())))
        self.n_places: int = len(program.places)
        self.bits: int = (n_symbols - 1).bit_length()
        self._able = [
            sum(1 << place for place, p in enumerate(program.places) if satisfies[p.variable][symbol])
            for symbol in range(n_symbols)
        ]
        self._followed = [sum(1 << place for place in nexts if place != ACCEPT) for nexts in program.nexts]
        self._final = sum(1 << place for place, nexts in enumerate(program.nexts) if ACCEPT in nexts)
        self._number: dict[int, int] = {}
        # of state 0, the places after which a match may end at the end of its partition
        self._reached: list[int] = [sum(1 << place for place in program.ends)]
        self.before: Int32 = np.full((16, 1 << self.bits), NOT_BUILT, np.int32)
        self.choices: npt.NDArray[np.int16] = np.full((16, self.n_places + 2), NONE, np.int16)

    def make(self, state: int, symbol: int) -> None:
        """Make the entry of a row with a symbol before a row with a state."""
        next_state = self._state_number(self._reached[state] & self._able[symbol])
        self.before[state, symbol] = next_state << self.bits

    def _state_number(self, able: int) -> int:
        """Return the number of the state in which these places can take the row and finish."""
        existing = self._number.get(able)
        if existing is not None:
            return existing
        number = self._number[able] = len(self._reached)
        if number == len(self.before):
            self._grow_tables()
        self._reached.append(
            sum(1 << place for place, after in enumerate(self._followed) if after & able) | self._final
        )
        lists = (*self._program.nexts, self._program.starts, self._program.starts_at_first)
        for i, places in enumerate(lists):
            self.choices[number, i] = next((p for p in places if p == ACCEPT or able >> p & 1), NONE)
        return number

    def able(self) -> Bools:
        """Return the places that can take a row with a state and finish, of shape (n states, n places)."""
        mask = np.zeros((len(self._reached), self.n_places), np.bool_)
        for able, number in self._number.items():
            mask[number] = [able >> place & 1 for place in range(self.n_places)]
        return mask

    def _grow_tables(self) -> None:
        n_states = 2 * len(self.before)
        if n_states > _MAX_STATES or n_states * (self.before.shape[1] + self.choices.shape[1]) > MAX_ENTRIES:
            raise QueryTooLargeError(
                f"the row pattern, of {self.n_places:,} places, needs more than {n_states // 2:,} states here"
            )
        self.before = np.vstack([self.before, np.full_like(self.before, NOT_BUILT)])
        self.choices = np.vstack([self.choices, np.full_like(self.choices, NONE)])

    def steps(self) -> tuple[Int32, int]:
        """Return the steps of `walk_past`, and the bits of a state in them."""
        bits = (len(self.choices) - 1).bit_length()
        choices = self.choices.T.astype(np.int32)
        ended = choices == ACCEPT
        next_places = np.where(ended, choices[self.n_places], choices)
        taken = next_places != NONE
        begun = taken & ended
        begun[self.n_places :] = taken[self.n_places :]
        steps = np.where(taken, next_places, self.n_places) << bits
        steps |= ended * ENDS + begun * BEGINS + taken * TAKES
        return steps.ravel(), bits


Searching = Callable[[MatchTables, npt.NDArray[np.uint16]], Walked]
"""Factory of a search from the automaton of the pass from the end and the state of each row."""


def find_matches(
    program: RowProgram,
    satisfies: Mapping[str, Bools],
    symbols: npt.NDArray[np.uint16],
    ends: Int64,
    skip: Skip,
    search: Searching | None = None,
) -> Iterator[RowMatches]:
    """Yield the matches of all partitions, in pieces of bounded size.

    Parameters
    ----------
    program
    satisfies
        As of `MatchTables`.
    symbols : uint16, shape (n rows,)
        Conditions that hold of each row, partition by partition in the order of ORDER BY.
    ends : int64, shape (n partitions,)
        The row after each partition, ascending; no partition is empty.
    skip
    search
        Factory of the search for matches where conditions read other rows, or None if there are no such conditions.

    Raises
    ------
    QueryTooLargeError
        When the tables would be too large.
    EventsError
        When a match has no row to skip to, or the search would return the same match for ever.
    """
    states = symbols
    if program.counts:
        walked: Walked = _CountedWalk(program, satisfies, skip)
    else:
        states, tables = _finishing(program, satisfies, symbols, ends)
        walked = _walk(program, tables, skip) if search is None else search(tables, states)
    at = partition = 0
    last = -1, 0  # the partition of the last match so far, and its number there
    capacity, n_rows = MATCHES, ROWS_OF_MATCHES if search is None else ROWS_OF_SEARCHED
    outcome = -1
    while outcome != DONE:
        starts, offsets, places = (
            np.empty(capacity, np.int64),
            np.empty(capacity + 1, np.int64),
            np.empty(n_rows * capacity, np.int16),
        )
        outcome, n, n_taken, at, partition = walked(states, ends, at, partition, (starts, offsets, places))
        if outcome in (MISSING, SAME):
            raise _skip_error(skip, outcome == MISSING, at)
        if n:
            first, final = np.searchsorted(ends, (starts[0], starts[n - 1]), "right").tolist()
            n_before = last[1] if first == last[0] else 0
            yield RowMatches(starts[:n], offsets[: n + 1], places[:n_taken], ends, n_before)
            begin = ends[final - 1] if final else 0
            last = final, n - int(np.searchsorted(starts[:n], begin)) + n_before * (first == final)
        elif outcome != DONE:
            capacity *= 2  # one match is longer


def _finishing(
    program: RowProgram, satisfies: Mapping[str, Bools], symbols: npt.NDArray[np.uint16], ends: Int64
) -> tuple[npt.NDArray[np.uint16], MatchTables]:
    """Return the state of each row, by the pass from the end, and the automaton."""
    tables = MatchTables(program, satisfies)
    states = np.empty(len(symbols), np.uint16)
    row, partition, state = len(symbols) - 1, len(ends) - 1, 0
    while row >= 0:
        before = tables.before.reshape(-1)
        row, partition, state = mark_finishing(symbols, ends, before, tables.bits, states, row, partition, state)
        if row >= 0:
            tables.make(state >> tables.bits, int(symbols[row]))
    return states, tables


class _CountedWalk:
    """The walk over rows, some partitions at a time, of a program with places that take several rows."""

    def __init__(self, program: RowProgram, satisfies: Mapping[str, Bools], skip: Skip) -> None:
        self._satisfies = np.array([satisfies[place.variable] for place in program.places], np.bool_).T.copy()
        self._counts = np.array(
            [[getattr(count, name) for count in program.counts] for name in ("minimum", "maximum", "greedy")], np.int32
        )
        lists = (*program.nexts, program.starts, program.starts_at_first)
        self._begins = np.cumsum([0, *map(len, lists)])
        self._nexts = np.array([place for each in lists for place in each], np.int16)
        self._at_end = np.array([place in program.ends for place in range(len(program.places))], np.bool_)
        self._targets = np.array([place.variable in skip.variables for place in program.places], np.bool_)
        self._skip = skip.how
        self._group = 0, 0
        self._runs = self._links = np.empty((0, len(program.places)), np.int32)

    def __call__(
        self, symbols: npt.NDArray[np.uint16], ends: Int64, at: int, partition: int, written: Sequence[Array]
    ) -> tuple[int, int, int, int, int]:
        """Find matches in the symbols of rows, as `cer_gpu.backend.row_patterns.walk_rows` does."""
        while True:
            if partition >= self._group[1]:
                self._mark_partitions(symbols, ends, partition)
            tables = self._counts, self._begins, self._nexts, self._runs, self._links
            how = self._skip, self._targets, at, partition
            outcome, n, n_taken, at, partition = walk_counted(ends, *self._group, *tables, *how, *written)
            if outcome != DONE or partition == len(ends):
                return outcome, n, n_taken, at, partition
            if n:
                return FULL, n, n_taken, at, partition

    def _mark_partitions(self, symbols: npt.NDArray[np.uint16], ends: Int64, partition: int) -> None:
        """Mark some partitions, from one on."""
        first = int(ends[partition - 1]) if partition else 0
        last = max(partition + 1, int(np.searchsorted(ends, first + COUNTED_ROWS, "right")))
        n = int(ends[last - 1]) - first + last - partition
        self._group = partition, last
        self._runs, self._links = (np.empty((n, len(self._at_end)), np.int32) for _ in range(2))
        of_program = self._satisfies, self._counts, self._begins, self._nexts, self._at_end
        mark_counted(symbols[first:], ends, *self._group, *of_program, self._runs, self._links)


def _walk(program: RowProgram, tables: MatchTables, skip: Skip) -> Walked:
    """Return the way through the states of rows: a function of states, ends, row, partition and the buffers."""
    if skip.how == PAST_LAST_ROW and ACCEPT not in (*program.starts, *program.starts_at_first):
        steps, bits = tables.steps()
        return lambda states, ends, at, partition, written: walk_past(
            states, ends, steps, bits, tables.n_places, at, partition, *written
        )
    targets = np.array([place.variable in skip.variables for place in program.places], np.bool_)
    return lambda states, ends, at, partition, written: walk_rows(
        states, ends, tables.choices, tables.n_places, skip.how, targets, at, partition, *written
    )


def _skip_error(skip: Skip, missing: bool, row: int) -> EventsError:
    side = "FIRST" if skip.how == TO_FIRST else "LAST"
    reason = f"has no row of {skip.name}" if missing else "begins there, and would be found again for ever"
    return EventsError(
        f"AFTER MATCH SKIP TO {side} {skip.name}: the match at row {row} of the ordered rows {reason}\n"
        "hint: SKIP PAST LAST ROW, or TO NEXT ROW"
    )


__all__ = ["PAST_LAST_ROW", "TO_FIRST", "TO_LAST", "TO_NEXT_ROW", "RowMatches", "Skip", "find_matches"]
