"""Row patterns as programs: the rows that may come next, in the order of preference.

A *place* is one occurrence of a variable in the pattern, with repetitions written out (Thompson 1968).  After each
place, and at the start, the places that may take the next row are listed in the order in which SQL:2016 prefers them;
`MATCH_END` among them ends the match.  Places after `MATCH_END` are never taken, as a match may always end.

A repetition beyond its least number that takes no row is not tried, so that a place is met once on the way through the
silent steps: the first way to it is the preferred one.

Written out, ``A{300,900}`` is 900 places.  A program in which repetitions of a variable are *counted* has one for it,
which takes 300 to 900 rows (`RowCount`), more or fewer of them preferred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations
from math import factorial

from cer_gpu.errors import QueryTooLargeError
from cer_gpu.row_patterns.pattern import (
    Alternation,
    Anchor,
    Concatenation,
    Exclusion,
    Permutation,
    Repetition,
    RowPattern,
    RowVariable,
    counted_together,
    counted_variable,
    is_counted,
    multiplied,
)

MATCH_END = -1
"""In a list of places: the match ends here."""

_MAX_PLACES = 2000
"""Maximum number of places of a program."""
MAX_PROGRAM_STEPS = 3 * 10**6
"""Maximum number of silent steps after all places: optional parts in a repetition have the square of the places."""
MAX_WRITTEN_OUT = 64
"""Maximum number of places of a program that is written out where counts make it much shorter."""
MUCH_SHORTER = 4
NO_BOUND = 2**31 - 1
"""The maximum rows of a place without a bound."""


@dataclass(frozen=True)
class PatternPlace:
    """One occurrence of a variable; `excluded` if it is in ``{- -}``."""

    variable: str
    excluded: bool


@dataclass(frozen=True)
class RowCount:
    """Rows that a place takes, one after another: `minimum` (at least 1) to `maximum`; `greedy` prefers more."""

    minimum: int
    maximum: int
    greedy: bool


@dataclass(frozen=True)
class RowProgram:
    """A row pattern as lists of places in the order of preference.

    Attributes
    ----------
    places : tuple of PatternPlace
    starts : tuple of int
        Places that may take the first row of a match.
    starts_at_first : tuple of int
        The same, where that is the first row of the partition.
    nexts : tuple of tuple of int
        For each place, the places that may take the row after, of which there is one.
    ends : frozenset of int
        Places after which the match may end at the end of the partition.
    counts : tuple of RowCount
        Rows that each place takes; empty if one each.
    """

    places: tuple[PatternPlace, ...]
    starts: tuple[int, ...]
    starts_at_first: tuple[int, ...]
    nexts: tuple[tuple[int, ...], ...]
    ends: frozenset[int]
    counts: tuple[RowCount, ...] = ()


def program_of(pattern: RowPattern, *, may_count: bool = False) -> RowProgram:
    """Return the program of a pattern.

    Parameters
    ----------
    pattern
    may_count
        True: repetitions of a variable may be counted, where there are many places otherwise.

    Raises
    ------
    QueryTooLargeError
        When it has more than `_MAX_PLACES` places, or too many ways between them.
    """
    n_places = _n_places(pattern)
    if may_count and n_places > MAX_WRITTEN_OUT:
        counted = counted_together(pattern)
        if MUCH_SHORTER * _n_places(counted, counted=True) <= n_places:
            return _program(counted, counted=True)
    return _program(pattern, counted=False)


def _n_places(pattern: RowPattern, *, counted: bool = False) -> int:
    """Return the number of places of a pattern."""
    match pattern:
        case RowVariable():
            return 1
        case Concatenation() | Alternation():
            return sum(_n_places(part, counted=counted) for part in pattern.parts)
        case Permutation():
            orders = factorial(len(pattern.parts))
            return orders * sum(_n_places(part, counted=counted) for part in pattern.parts)
        case Exclusion():
            return _n_places(pattern.part, counted=counted)
        case Repetition():
            pattern = multiplied(pattern)
            if counted and is_counted(pattern):
                return 1
            times = max(pattern.minimum, 1) if pattern.maximum is None else pattern.maximum
            return times * _n_places(pattern.part, counted=counted)
    return 0


def _program(pattern: RowPattern, *, counted: bool) -> RowProgram:
    steps = _Steps(counted)
    begin = steps.new()
    end = steps.add(pattern, begin, excluded=False)
    after = [target for _, target in steps.taken]
    nexts = tuple(tuple(steps.order(node, end, first=False, last=False)) for node in after)
    at_end = nexts
    if steps.anchors:
        at_end = tuple(tuple(steps.order(node, end, first=False, last=True)) for node in after)
    ends = frozenset(i for i, places in enumerate(at_end) if MATCH_END in places)
    return RowProgram(
        places=tuple(place for place, _ in steps.taken),
        starts=tuple(steps.order(begin, end, first=False, last=False)),
        starts_at_first=tuple(steps.order(begin, end, first=True, last=False)),
        nexts=nexts,
        ends=ends,
        counts=tuple(steps.counts) if counted else (),
    )


def _too_large() -> QueryTooLargeError:
    text = f"the row pattern has more than {_MAX_PLACES:,} places, with its repetitions written out"
    return QueryTooLargeError(text)


@dataclass
class _Steps:
    """Nodes with ordered silent steps to others.

    Attributes
    ----------
    counted : bool
        True: a repetition of a variable is one place.
    silent : list of list of int
        The nodes after each node, the preferred one first.
    anchors, at : dict
        Nodes that are left at an end of the partition only, and those that are left with a row: by which place.
    taken : list of (PatternPlace, int)
        Places, and the nodes after them.
    body_of : dict from int to int
        For the node after each optional repetition, that at its begin.
    counts : list of RowCount
        One for each place.
    n_steps : int
        Silent steps that were gone so far.
    """

    counted: bool = False
    silent: list[list[int]] = field(default_factory=list)
    anchors: dict[int, Anchor] = field(default_factory=dict)
    at: dict[int, int] = field(default_factory=dict)
    taken: list[tuple[PatternPlace, int]] = field(default_factory=list)
    body_of: dict[int, int] = field(default_factory=dict)
    counts: list[RowCount] = field(default_factory=list)
    n_steps: int = 0

    @cached_property
    def _bodies(self) -> frozenset[int]:
        return frozenset(self.body_of.values())

    def new(self) -> int:
        if len(self.silent) > 20 * _MAX_PLACES:  # of repetitions of nothing
            raise _too_large()
        self.silent.append([])
        return len(self.silent) - 1

    def add(self, pattern: RowPattern, begin: int, excluded: bool) -> int:
        """Add a pattern that begins at a node, and return the node where it ends."""
        match pattern:
            case RowVariable():
                return self._add_place(pattern.name, begin, excluded, RowCount(1, 1, greedy=True))
            case Anchor():
                self.anchors[begin] = pattern
                return self._add_part(begin)
            case Exclusion():
                return self.add(pattern.part, begin, excluded=True)
            case Concatenation():
                for part in pattern.parts:
                    begin = self.add(part, self._add_part(begin), excluded)
                return begin
            case Alternation():
                return self._add_one_of(pattern.parts, begin, excluded)
            case Permutation():
                if factorial(len(pattern.parts)) > _MAX_PLACES:
                    raise _too_large()
                return self._add_one_of(
                    [Concatenation(parts) for parts in permutations(pattern.parts)], begin, excluded
                )
            case Repetition():
                return self._repeated(pattern, begin, excluded)

    def _add_place(self, variable: str, begin: int, excluded: bool, count: RowCount) -> int:
        if len(self.taken) == _MAX_PLACES:
            raise _too_large()
        end = self.new()
        self.at[begin] = len(self.taken)
        self.taken.append((PatternPlace(variable, excluded), end))
        self.counts.append(count)
        return end

    def _add_part(self, begin: int) -> int:
        end = self.new()
        self.silent[begin].append(end)
        return end

    def _add_one_of(self, parts: Sequence[RowPattern], begin: int, excluded: bool) -> int:
        end = self.new()
        for part in parts:
            self.silent[self.add(part, self._add_part(begin), excluded)].append(end)
        return end

    def _repeated(self, pattern: Repetition, begin: int, excluded: bool) -> int:
        pattern = multiplied(pattern)
        part, maximum = pattern.part, pattern.maximum
        if self.counted and is_counted(pattern):
            return self._add_counted(pattern, begin, excluded)
        for _ in range(pattern.minimum):
            begin = self.add(part, self._add_part(begin), excluded)
        end = self.new()
        for _ in range(1 if maximum is None else maximum - pattern.minimum):
            branch, body = self._add_part(begin), self.new()
            self.silent[branch] = [body, end] if pattern.greedy else [end, body]
            last = self.add(part, body, excluded)
            begin = self.new()
            self.silent[last].append(begin)
            self.body_of[begin] = body
        self.silent[begin].append(branch if maximum is None else end)
        return end

    def _add_counted(self, pattern: Repetition, begin: int, excluded: bool) -> int:
        """Add one place for a repetition of a variable, which is skipped if no row is needed."""
        variable, in_exclusion = counted_variable(pattern)
        body, end = self._add_part(begin), self.new()
        maximum = NO_BOUND if pattern.maximum is None else min(pattern.maximum, NO_BOUND)
        count = RowCount(min(max(1, pattern.minimum), NO_BOUND), maximum, pattern.greedy)
        last = self._add_place(variable, body, excluded or in_exclusion, count)
        self.silent[last].append(end)
        if pattern.minimum == 0:
            self.silent[begin].append(end)
            if not pattern.greedy:
                self.silent[begin].reverse()
        return end

    def order(self, node: int, end: int, *, first: bool, last: bool) -> list[int]:
        """Return the places after the silent steps from a node, as they are preferred, up to `MATCH_END`."""
        places: dict[int, None] = {}  # in their order
        seen: set[tuple[int, frozenset[int]]] = set()
        bodies, body_of, at, silent = self._bodies, self.body_of, self.at, self.silent
        waiting: list[tuple[int, frozenset[int]]] = [(node, frozenset())]
        while waiting:
            way = waiting.pop()
            if way in seen:
                continue
            here, begun = way
            if begun and body_of.get(here) in begun:  # a repetition that took no row
                continue
            seen.add(way)
            if here == end:
                places[MATCH_END] = None
                break
            anchor = self.anchors.get(here)
            if anchor is not None and not (last if anchor.at_end else first):
                continue
            if here in at:
                places.setdefault(at[here])
            if here in bodies:
                begun = begun | {here}
            for target in reversed(silent[here]):
                waiting.append((target, begun))
        self.n_steps += len(seen)
        if self.n_steps > MAX_PROGRAM_STEPS:
            raise QueryTooLargeError(
                "the row pattern has too many ways from one place to another, with its repetitions written out",
                hint="put fewer optional parts, as in A? or A*, into a repetition with bounds, as in {40}",
            )
        return list(places)
