"""Analysis of what conditions read of a match: what is still read after each place, and bounds that end a search.

After a place took a row, the rest of a search depends on the row, the place, and what conditions of the places that may
follow read of the match so far.  It is found as live variables are: backwards along the ways between places until
nothing changes.  The last but k of a variable's rows is the last but k - 1 before one more is taken, and the last one
is then the row itself.

A *bound* is a comparison of a column of the row at hand, in an order along the rows, with one of a row that is held
already.  If every way from a place to the end takes a row of which it must hold, and it fails of the next row, no later
row will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from cer_gpu.arrays import Int64
from cer_gpu.backend import row_search as k
from cer_gpu.expressions.relation_terms import Comparison, Condition
from cer_gpu.expressions.terms import COMPARISONS, MIRRORED
from cer_gpu.row_patterns.program import MATCH_END, RowProgram

_T = TypeVar("_T")

Read = tuple[int, int, int]
"""Kind, set or function, and number, as of `cer_gpu.backend.row_search.SearchPlan.read`."""
RowArgument = tuple[int, int, int, int]
"""As of `cer_gpu.backend.row_search.SearchPlan.arguments`."""
RowBound = tuple[int, int, int, int]
"""As of `cer_gpu.backend.row_search.SearchPlan.bounds`."""
OfPlace = Sequence[tuple[Condition, Sequence[RowArgument]]]
"""Conditions on other rows of a place, each with its arguments."""

MOST_BACK = 64
"""Farthest row from the last one of a variable that is followed; where conditions go farther, nothing is noted."""
MOST_DEAD = 1 << 20
"""Most rows and places that are noted at once."""
_KINDS = {
    k.LAST_ROW: k.READ_LAST,
    k.FIRST_ROW: k.READ_FIRST,
    k.LAST_CLASS: k.READ_LAST_CLASS,
    k.FIRST_CLASS: k.READ_FIRST_CLASS,
}
_FROM_LAST = (k.READ_LAST, k.READ_LAST_CLASS)


class PlaceLists(NamedTuple):
    """Rows of numbers for each place.

    Attributes
    ----------
    begins : int64, shape (n places + 1,)
        First row of each place, and the number of rows.
    rows : int64, shape (n rows, width)
    """

    begins: Int64
    rows: Int64


def read_after(
    program: RowProgram, holds: Sequence[Sequence[bool]], conditions: Sequence[OfPlace]
) -> tuple[PlaceLists, bool]:
    """Return what is read of the match so far after each place.

    Parameters
    ----------
    program
    holds
        For each set, the places that it holds.
    conditions
        Those of each place.

    Returns
    -------
    PlaceLists
    bool
        False: a condition reads a row that is too far away, and the list is empty.
    """
    own = [{read for _, read_by in each for a in read_by for read in _reads(a)} for each in conditions]
    if any(kind in _FROM_LAST and nth > MOST_BACK for each in own for kind, _, nth in each):
        return _lists([[] for _ in own], 3), False

    def before(place: int, after: frozenset[Read]) -> frozenset[Read]:
        found = set()
        for kind, number, nth in after | own[place]:
            if kind not in _FROM_LAST or not holds[number][place]:
                found.add((kind, number, nth))
            elif nth:
                found.add((kind, number, nth - 1))
        return frozenset(found)

    nothing: frozenset[Read] = frozenset()
    after = _backwards(program, nothing, nothing, before, lambda parts: nothing.union(*parts))
    return _lists([sorted(each) for each in after], 3), True


def dead_room(n_rows: int, read: PlaceLists) -> Int64:
    """Return room for rows and places after which nothing finishes (`cer_gpu.backend.row_search.SearchMemory.dead`)."""
    room = 0 if n_rows < 0 else min(MOST_DEAD, 1 << (n_rows * (len(read.begins) - 1)).bit_length())
    return np.zeros((room, 1 + int(np.diff(read.begins).max(initial=0))), np.int64)


def _reads(argument: RowArgument) -> Iterator[Read]:
    kind, number, nth, _ = argument
    if kind in (k.BEST_ROW, k.TOTAL):
        yield k.READ_TOTAL, number, 0
        yield k.READ_TOTAL, number, 1
    else:
        yield _KINDS[kind], number, nth


def bounds_after(
    program: RowProgram,
    holds: Sequence[Sequence[bool]],
    conditions: Sequence[OfPlace],
    arguments: Sequence[RowArgument],
    values: Int64,
    ends: Int64,
) -> PlaceLists:
    """Return the bounds that must hold of a row behind each place, over rows that are held by then.

    Parameters
    ----------
    program, holds, conditions
        As of `read_after`.
    arguments
        All arguments, by their numbers.
    values : int64, shape (n rows, n columns)
        As of `cer_gpu.backend.row_search.SearchPlan.values`.
    ends : int64, shape (n partitions,)
        The row after each partition.
    """
    directions: dict[int, int] = {}

    def bounds_of(comparison: Comparison, read_by: Sequence[RowArgument]) -> Iterator[RowBound]:
        sides = list(zip(read_by, (1 + comparison.left_column, 1 + comparison.right_column), strict=True))
        for (mine, theirs), op in ((sides, comparison.op), (sides[::-1], MIRRORED[comparison.op])):
            (kind, number, nth, offset), column = mine
            is_row_at_hand = kind == k.LAST_ROW and nth == offset == 0 and all(holds[number])
            if not is_row_at_hand or theirs[0][0] not in (k.LAST_ROW, k.FIRST_ROW):
                continue
            if column not in directions:
                directions[column] = _direction(values, column, ends)
            side = {1: "<", -1: ">", 0: ""}[directions[column]]
            if side and op in (side, side + "=", "="):  # equal values are on this side, too
                bound = COMPARISONS.index(side if op == side else side + "=")
                yield column, bound, arguments.index(theirs[0]), theirs[1]

    own = [
        {
            bound
            for condition, read_by in each
            if isinstance(condition, Comparison) and not condition.ranked and len(read_by) == 2
            for bound in bounds_of(condition, read_by)
        }
        for each in conditions
    ]

    def before(place: int, after: frozenset[RowBound]) -> frozenset[RowBound]:
        return frozenset(bound for bound in after | own[place] if not is_taken(bound, place))

    def is_taken(bound: RowBound, place: int) -> bool:
        kind, number, _, _ = arguments[bound[2]]
        return kind == k.LAST_ROW and holds[number][place]

    every: frozenset[RowBound] = frozenset().union(*own)
    after = _backwards(program, every, frozenset(), before, lambda parts: parts[0].intersection(*parts[1:]))
    return _lists([sorted(each) for each in after], 4)


def _direction(values: Int64, column: int, ends: Int64) -> int:
    """Return 1 for a column that does not decrease along the rows of partitions, -1 for one that does not increase.

    0: it does both, or has NULL.
    """
    if not len(values) or not (values[:, 0] >> (column - 1) & 1).all():
        return 0
    steps = values[1:, column] >= values[:-1, column], values[1:, column] <= values[:-1, column]
    for direction, each in zip((1, -1), steps, strict=True):
        each[ends[:-1] - 1] = True
        if each.all():
            return direction
    return 0


def _backwards(
    program: RowProgram,
    begin: _T,
    at_end: _T,
    before: Callable[[int, _T], _T],
    joined: Callable[[list[_T]], _T],
) -> list[_T]:
    """Return what holds after each place, found backwards from a first guess until nothing changes."""
    n = len(program.places)
    after = [begin] * n
    came = [before(place, begin) for place in range(n)]
    changed = True
    while changed:
        changed = False
        for place in reversed(range(n)):
            parts = [at_end if q == MATCH_END else came[q] for q in program.nexts[place]]
            parts += [at_end] * (place in program.ends)
            found = joined(parts) if parts else begin
            if found != after[place]:
                after[place], came[place] = found, before(place, found)
                changed = True
    return after


def _lists(rows: Sequence[Sequence[tuple[int, ...]]], width: int) -> PlaceLists:
    begins = np.cumsum([0, *map(len, rows)])
    return PlaceLists(begins, np.array([item for each in rows for item in each], np.int64).reshape(-1, width))
