"""Brute-force reference of MATCH_RECOGNIZE: backtracking over one partition, written from SQL:2016 (ISO/IEC 19075-5).

It imports nothing of the package.  A pattern is a nested tuple, and conditions and measures are Python functions of a
`Running` match, so that nothing that parses or compiles takes part:

    ("var", "A"), ("empty",), ("start",), ("end",), ("seq", p, ...), ("alt", p, ...), ("permute", p, ...),
    ("repeat", p, least, most or None, greedy), ("exclude", p)

Preferment is the order in which `_ways` yields: alternatives from left to right, greedy repetitions more first,
reluctant ones fewer first.  A repetition beyond its least number that takes no row is not tried, or there would be
infinitely many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

Pattern = tuple[Any, ...]
Row = Mapping[str, Any]
Step = tuple[int, str, bool]
"""A row's number in the partition, its variable, and whether an exclusion holds it."""


@dataclass(frozen=True)
class Running:
    """A match up to some step, in which conditions and measures are evaluated."""

    rows: Sequence[Row]
    steps: tuple[Step, ...]
    subsets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    number: int = 0

    def positions(self, variable: str | None) -> list[int]:
        """Return the rows of a variable or of a subset; None: all rows."""
        names = self.subsets.get(variable, (variable,)) if variable else None
        return [at for at, name, _ in self.steps if names is None or name in names]

    def value(self, at: int | None, column: str) -> Any:
        """Return the value of a row of the partition, None outside of it."""
        return self.rows[at][column] if at is not None and 0 <= at < len(self.rows) else None

    def last(self, variable: str | None, column: str, back: int = 0, offset: int = 0) -> Any:
        """Return ``LAST(variable.column, back)``, `offset` rows of the partition away (PREV: negative)."""
        found = self.positions(variable)
        return self.value(found[-1 - back] + offset, column) if back < len(found) else None

    def first(self, variable: str | None, column: str, on: int = 0, offset: int = 0) -> Any:
        """Return ``FIRST(variable.column, on)``, `offset` rows of the partition away."""
        found = self.positions(variable)
        return self.value(found[on] + offset, column) if on < len(found) else None

    def values(self, variable: str | None, column: str) -> list[Any]:
        """Return the values of a variable that are not NULL."""
        found = [self.rows[at][column] for at in self.positions(variable)]
        return [value for value in found if value is not None]

    def classifier(self, variable: str | None = None, back: int = 0) -> str | None:
        """Return ``LAST(CLASSIFIER(variable), back)``, or for a negative number FIRST counted from -1."""
        names = self.subsets.get(variable, (variable,)) if variable else None
        found = [name for _, name, _ in self.steps if names is None or name in names]
        at = len(found) - 1 - back if back >= 0 else -1 - back
        return found[at] if 0 <= at < len(found) else None


Condition = Callable[[Running], "bool | None"]


@dataclass(frozen=True)
class Match:
    """A match: the row at which it starts, and its steps; without steps it is empty."""

    start: int
    steps: tuple[Step, ...]
    number: int


class SkipError(Exception):
    """A skip to a row that the match does not have, or to its first row."""


def find_matches(
    rows: Sequence[Row],
    pattern: Pattern,
    define: Mapping[str, Condition],
    *,
    skip: str | tuple[str, str] = "past last row",
    subsets: Mapping[str, Sequence[str]] | None = None,
) -> list[Match]:
    """Return all matches of one partition, empty ones too.

    Parameters
    ----------
    rows
        Rows in their order.
    pattern
    define
        Condition of each variable; a variable without one holds for every row.
    skip
        "past last row", "to next row", ("first", variable) or ("last", variable).
    subsets
        Variables of each subset.
    """
    subsets = subsets or {}
    found: list[Match] = []
    at = 0
    while at < len(rows):
        number = len(found) + 1
        steps = next((way for way in _ways(pattern, at, (), rows, define, (subsets, number))), None)
        if steps is None:
            at += 1
            continue
        found.append(Match(at, steps, number))
        at = _next_start(at, steps, skip, subsets)
    return found


def _next_start(at: int, steps: tuple[Step, ...], skip: str | tuple[str, str], subsets: Any) -> int:
    if not steps or skip == "to next row":
        return at + 1
    if skip == "past last row":
        return steps[-1][0] + 1
    side, variable = skip
    names = subsets.get(variable, (variable,))
    held = [row for row, name, _ in steps if name in names]
    if not held:
        raise SkipError(variable)
    target = held[0] if side == "first" else held[-1]
    if target == at:
        raise SkipError(variable)
    return target


def _ways(
    pattern: Pattern,
    at: int,
    steps: tuple[Step, ...],
    rows: Sequence[Row],
    define: Mapping[str, Condition],
    of_match: tuple[Mapping[str, Sequence[str]], int],
) -> Iterator[tuple[Step, ...]]:
    """Yield the steps of all matches that begin at a row, the preferred one first."""
    for _, found in _from(pattern, at, steps, False, rows, define, of_match):
        yield found


def _from(
    p: Pattern, at: int, steps: tuple[Step, ...], excluded: bool, rows: Any, define: Any, of_match: Any
) -> Iterator[tuple[int, tuple[Step, ...]]]:
    """Yield the row after, and the steps, for each way through a pattern from a row on."""
    rest = (excluded, rows, define, of_match)
    match p[0]:
        case "var":
            if at < len(rows):
                taken = (*steps, (at, p[1], excluded))
                condition = define.get(p[1])
                if condition is None or condition(Running(rows, taken, *of_match)) is True:
                    yield at + 1, taken
        case "empty":
            yield at, steps
        case "start":
            if at == 0:
                yield at, steps
        case "end":
            if at == len(rows):
                yield at, steps
        case "exclude":
            yield from _from(p[1], at, steps, True, rows, define, of_match)
        case "alt":
            for each in p[1:]:
                yield from _from(each, at, steps, *rest)
        case "permute":
            for order in permutations(p[1:]):
                yield from _from(("seq", *order), at, steps, *rest)
        case "seq":
            if len(p) == 1:
                yield at, steps
                return
            for next_at, taken in _from(p[1], at, steps, *rest):
                yield from _from(("seq", *p[2:]), next_at, taken, *rest)
        case "repeat":
            yield from _repeated(p, 0, at, steps, *rest)


def _repeated(p: Pattern, done: int, at: int, steps: Any, *rest: Any) -> Iterator[tuple[int, tuple[Step, ...]]]:
    _, body, least, most, greedy = p
    enough = done >= least
    if enough and not greedy:
        yield at, steps
    if most is None or done < most:
        for next_at, taken in _from(body, at, steps, *rest):
            if next_at > at or not enough:
                yield from _repeated(p, done + 1, next_at, taken, *rest)
    if enough and greedy:
        yield at, steps
