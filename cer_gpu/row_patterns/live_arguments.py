"""Analysis of what conditions read of a match so far: what is still read after each place.

After a place took a row, the rest of a search depends on the row, the place, and what conditions of the places that may
follow read of the match so far.  It is computed like live variables: backwards along the ways between places until
nothing changes.  The last but k of a variable's rows is the last but k - 1 before one more is taken, and the last one
is then the row itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from cer_gpu.arrays import Bools, Int64
from cer_gpu.backend import row_search as k
from cer_gpu.expressions.relation_terms import Condition
from cer_gpu.row_patterns.program import MATCH_END, RowProgram

_T = TypeVar("_T")

Read = tuple[int, int, int]
"""Kind, set or function, and number, as of `cer_gpu.backend.row_search.SearchPlan.read`."""
RowArgument = tuple[int, int, int, int]
"""As of `cer_gpu.backend.row_search.SearchPlan.arguments`."""
OfPlace = Sequence[tuple[Condition, Sequence[RowArgument]]]
"""Conditions on other rows of a place, each with its arguments."""

MAX_BACK = 64
"""Farthest row from the last one of a variable that is followed; where conditions go farther, nothing is noted."""
MAX_OPENS = 1 << 27
"""Maximum number of numbers for the rows of quiet places."""
MAX_PAIRED = 64
"""Maximum number of places for which two ways to one place are searched."""
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
        For each set, its places.
    conditions
        Those of each place.

    Returns
    -------
    PlaceLists
    bool
        False: a condition reads a row that is too far away, and the list is empty.
    """
    own = [{read for _, read_by in each for a in read_by for read in _reads(a)} for each in conditions]
    if any(kind in _FROM_LAST and nth > MAX_BACK for each in own for kind, _, nth in each):
        return place_lists([[] for _ in own], 3), False

    def before(place: int, after: frozenset[Read]) -> frozenset[Read]:
        reads = set()
        for kind, number, nth in after | own[place]:
            if kind not in _FROM_LAST or not holds[number][place]:
                reads.add((kind, number, nth))
            elif nth:
                reads.add((kind, number, nth - 1))
        return frozenset(reads)

    nothing: frozenset[Read] = frozenset()
    after = backwards(program, nothing, nothing, before, lambda parts: nothing.union(*parts))
    return place_lists([sorted(each) for each in after], 3), True


def noted_places(program: RowProgram, read: PlaceLists, functions: Sequence[tuple[int, int, int, int]]) -> Bools:
    """Return the places after which it pays to note that nothing finishes.

    At others, a search comes at most once with one row: no two ways of one length lead there from the start, and what
    is read later distinguishes the starts, as sums and first rows do.

    Parameters
    ----------
    program
    read
        As of `read_after`.
    functions
        As of `cer_gpu.backend.row_search.SearchPlan.functions`.
    """
    n = len(program.places)
    if n > MAX_PAIRED:
        return np.ones(n, np.bool_)
    nexts = [[q for q in each if q != MATCH_END] for each in program.nexts]
    starts = {q for q in (*program.starts, *program.starts_at_first) if q != MATCH_END}
    # pairs of different places that may take one row
    pairs = {(p, q) for p in starts for q in starts if p < q}
    waiting, met = list(pairs), set[int]()
    while waiting:
        for p, q in product(*(nexts[each] for each in waiting.pop())):
            pair = min(p, q), max(p, q)
            if p == q:
                met.add(p)
            elif pair not in pairs:
                pairs.add(pair)
                waiting.append(pair)
    behind = list(met)
    while behind:
        more = set(nexts[behind.pop()]) - met
        met |= more
        behind += more
    sums = {f for f, (kind, *_) in enumerate(functions) if kind in (k.SUM_I, k.SUM_F, k.AVG)}
    apart = [
        any(kind == k.READ_FIRST or (kind == k.READ_TOTAL and number in sums) for kind, number, _ in of_place.tolist())
        for of_place in np.split(read.rows, read.begins[1:-1])
    ]
    return np.array([place in met or not apart[place] for place in range(n)], np.bool_)


def forced_places(program: RowProgram, able: Bools) -> Bools:
    """Return, for each state of the next row (as of `MatchTables.able`) and each place, if at most one way goes on."""
    ways = np.zeros(able.shape, np.int64)
    for place, nexts in enumerate(program.nexts):
        ways[:, place] = (MATCH_END in nexts) + able[:, [q for q in nexts if q != MATCH_END]].sum(axis=1)
    return ways <= 1


def quiet_places(
    program: RowProgram,
    holds: Sequence[Sequence[bool]],
    conditions: Sequence[OfPlace],
    able: Bools,
    states: npt.NDArray[np.uint16],
) -> tuple[Int64, Int64]:
    """Return `quiet` and `opens` of `cer_gpu.backend.row_search.SearchPlan`.

    Parameters
    ----------
    program, holds, conditions
        As of `read_after`.
    able : bool, shape (n states, n places)
    states : uint16, shape (n rows,)
        As of `cer_gpu.backend.row_patterns.walk_rows`.
    """
    n_rows = len(states)
    quiet = np.full(len(program.places), -1, np.int64)
    opens: list[Int64] = []
    for place, nexts in enumerate(program.nexts):
        is_read = bool(conditions[place]) or any(in_set[place] for in_set in holds)
        if is_read or place not in nexts or MATCH_END in nexts or (len(opens) + 1) * n_rows > MAX_OPENS:
            continue
        others = [q for q in nexts if q != place]
        is_open = (able[:, others].any(axis=1) | ~able[:, place])[states]
        rows = np.where(is_open, np.arange(n_rows), n_rows)
        quiet[place] = len(opens)
        opens.append(np.minimum.accumulate(rows[::-1])[::-1])
    return quiet, np.array(opens, np.int64).reshape(-1, n_rows)


def _reads(argument: RowArgument) -> Iterator[Read]:
    kind, number, nth, _ = argument
    if kind in (k.BEST_ROW, k.TOTAL):
        yield k.READ_TOTAL, number, 0
        yield k.READ_TOTAL, number, 1
    elif kind != k.AT_HAND:
        yield _KINDS[kind], number, nth


def backwards(
    program: RowProgram,
    begin: _T,
    at_end: _T,
    before: Callable[[int, _T], _T],
    merge: Callable[[list[_T]], _T],
) -> list[_T]:
    """Return the facts after each place, computed backwards along the ways between places.

    Parameters
    ----------
    program
    begin
        The first guess for all places.
    at_end
        True where a match ends.
    before
        Function from a place and the facts after it to the facts before it takes a row.
    joined
        Function of what is true on each way.
    """
    n = len(program.places)
    after = [begin] * n
    came = [before(place, begin) for place in range(n)]
    changed = True
    while changed:
        changed = False
        for place in reversed(range(n)):
            parts = [at_end if q == MATCH_END else came[q] for q in program.nexts[place]]
            parts += [at_end] * (place in program.ends)
            merged = merge(parts) if parts else begin
            if merged != after[place]:
                after[place], came[place] = merged, before(place, merged)
                changed = True
    return after


def place_lists(rows: Sequence[Sequence[tuple[int, ...]]], width: int) -> PlaceLists:
    """Return rows of numbers from those of each place."""
    begins = np.cumsum([0, *map(len, rows)])
    return PlaceLists(begins, np.array([item for each in rows for item in each], np.int64).reshape(-1, width))
