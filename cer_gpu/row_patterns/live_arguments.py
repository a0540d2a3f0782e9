"""Analysis of what conditions read of a match so far: what is still read after each place.

After a place took a row, the rest of a search depends on the row, the place, and what conditions of the places that may
follow read of the match so far.  It is computed like live variables: backwards along the ways between places until
nothing changes.  The last but k of a variable's rows is the last but k - 1 before one more is taken, and the last one
is then the row itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from cer_gpu.arrays import Bools, Int32, Int64
from cer_gpu.automaton.encoding import AT_LEAST, AT_MOST, DIFFERENT, EQUAL, GREATER, LESS
from cer_gpu.backend import row_search as k
from cer_gpu.backend.joins import filters as f
from cer_gpu.backend.joins import match_memory as m
from cer_gpu.backend.joins import row_guides as g
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
HITS = 1 << 10
"""Rows that each guide lists at first."""
_AT_MOST, _AT_LEAST = (EQUAL, LESS, AT_MOST), (EQUAL, GREATER, AT_LEAST)
_OPPOSITE = {EQUAL: DIFFERENT, DIFFERENT: EQUAL, LESS: AT_LEAST, AT_LEAST: LESS, AT_MOST: GREATER, GREATER: AT_MOST}
_MIRRORED = {EQUAL: EQUAL, DIFFERENT: DIFFERENT, LESS: GREATER, GREATER: LESS, AT_MOST: AT_LEAST, AT_LEAST: AT_MOST}
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


def noted_places(
    program: RowProgram,
    holds: Sequence[Sequence[bool]],
    read: PlaceLists,
    functions: Sequence[tuple[int, int, int, int]],
) -> Bools:
    """Return the places after which it pays to note that nothing finishes.

    At others, a search comes at most once with one row: no two ways of one length lead there from the start, and what
    is read later distinguishes the starts, as sums and first rows do.

    Parameters
    ----------
    program, holds, read
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
    sums = {f for f, (kind, *_) in enumerate(functions) if kind in (m.SUM_I, m.SUM_F, m.AVG)}
    only_first = starts.difference(*program.nexts)

    def is_apart(kind: int, number: int, nth: int) -> bool:
        if kind == k.READ_LAST and nth == 0:  # the first row, if each match has one of this set, which is that
            return starts <= set(np.flatnonzero(holds[number]).tolist()) <= only_first
        return kind == k.READ_FIRST or (kind == k.READ_TOTAL and number in sums)

    apart = [any(is_apart(*each) for each in of_place.tolist()) for of_place in np.split(read.rows, read.begins[1:-1])]
    return np.array([place in met or not apart[place] for place in range(n)], np.bool_)


def forced_places(program: RowProgram, able: Bools) -> Bools:
    """Return, for each state of the next row (as of `MatchTables.able`) and each place, if at most one way goes on."""
    ways = np.zeros(able.shape, np.int64)
    for place, nexts in enumerate(program.nexts):
        ways[:, place] = (MATCH_END in nexts) + able[:, [q for q in nexts if q != MATCH_END]].sum(axis=1)
    return ways <= 1


def quiet_places(program: RowProgram, holds: Sequence[Sequence[bool]], conditions: Sequence[OfPlace]) -> Bools:
    """Return the places that repeat themselves without a condition on other rows, of whose rows none reads anything.

    Parameters
    ----------
    program, holds, conditions
        As of `read_after`.
    """
    is_read = [bool(own) or any(in_set[place] for in_set in holds) for place, own in enumerate(conditions)]
    return np.array(
        [not is_read[p] and p in nexts and MATCH_END not in nexts for p, nexts in enumerate(program.nexts)], np.bool_
    )


def opens_of(program: RowProgram, places: Bools, able: Bools, states: npt.NDArray[np.uint16]) -> tuple[Int64, Int64]:
    """Return `quiet` and `opens` of `cer_gpu.backend.row_search.SearchPlan` for some quiet places.

    Parameters
    ----------
    program
    places : bool, shape (n places,)
    able : bool, shape (n states, n places)
    states : uint16, shape (n rows,)
        As of `cer_gpu.backend.row_patterns.walk_rows`.
    """
    n_rows = len(states)
    quiet = np.full(len(program.places), -1, np.int64)
    opens: list[Int64] = []
    for place in np.flatnonzero(places).tolist():
        if (len(opens) + 1) * n_rows > MAX_OPENS:
            break
        others = [q for q in program.nexts[place] if q != place]
        is_open = (able[:, others].any(axis=1) | ~able[:, place])[states]
        rows = np.where(is_open, np.arange(n_rows), n_rows)
        quiet[place] = len(opens)
        opens.append(np.minimum.accumulate(rows[::-1])[::-1])
    return quiet, np.array(opens, np.int64).reshape(-1, n_rows)


def guides_of(
    program: RowProgram,
    holds: Sequence[Sequence[bool]],
    conditions: Sequence[OfPlace],
    quiet: Bools,
    able: Bools,
    states: npt.NDArray[np.uint16],
    rows: Int32 | None,
    values: Int64,
    direction: Callable[[int], int],
) -> g.Guides:
    """Return the guides of the quiet places that one other place follows, whose rows are compared with the first row.

    Parameters
    ----------
    program, holds, conditions
        As of `read_after`.
    quiet : bool, shape (n places,)
    able : bool, shape (n states, n places)
    states : uint16, shape (n stored rows,)
        Those of the rows that conditions can read.
    rows : int32, shape (n stored rows,), or None if these are all rows
    values : int64, shape (n stored rows, 1 + n columns)
        The columns that conditions read of rows.
    direction
        Function of a column that returns 1 if it does not decrease in any partition, -1 if it does not increase, and 0
        otherwise, or if some of it is NULL.
    """
    n_places = len(program.places)
    starts = {*program.starts, *program.starts_at_first}
    start = min(starts, default=MATCH_END)
    of_place, of_target = (np.full(n_places, -1, np.int64) for _ in range(2))
    guides, own, comparisons, targets = list[list[int]](), list[list[int]](), list[list[int]](), list[int]()
    candidates, columns = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    fixed = len(starts) == 1 and start != MATCH_END and not any(start in nexts for nexts in program.nexts)
    # from the last place on, as the rows of a place bound those of the places before it
    for place in reversed(range(n_places if fixed else 0)):
        others = [q for q in program.nexts[place] if q != place]
        if not quiet[place] or len(others) != 1 or place in program.ends:
            continue
        [target] = others
        by_own: dict[int, list[list[int]]] = {}
        is_exact = True
        for condition, arguments in conditions[target]:
            its_comparisons, is_all = comparisons_with_first(condition, arguments, holds, target, start)
            is_exact &= is_all
            for op, mine, its in its_comparisons:
                by_own.setdefault(mine, []).append([op, its])
        limit = next((number for number, q in enumerate(targets) if _needs(program, target, q)), -1)
        bounded = {
            c: direction(c) < 0
            for c, compared in by_own.items()
            if any(op in {-1: _AT_LEAST, 1: _AT_MOST}.get(direction(c), ()) for op, _ in compared)
        }
        if not by_own or not (bounded or limit >= 0):
            continue
        valid = sum(1 << column - 1 for column in by_own)
        numbers, taken = np.empty(len(states) + 1, np.int32), np.empty((len(by_own), len(states) + 1), np.int64)
        is_candidate, compared_columns = np.ascontiguousarray(able[:, target]), np.array(list(by_own), np.int64)
        n = g.list_candidates(states, is_candidate, values, valid, compared_columns, numbers, taken)
        numbers = numbers[:n]
        stop = -1
        first, first_own = sum(len(each) for each in candidates), len(own)
        for its_values, (column, compared) in zip(taken, by_own.items(), strict=True):
            stop = len(own) if column in list(bounded)[:1] else stop
            own.append([sum(len(each) for each in columns), len(comparisons), len(comparisons) + len(compared)])
            columns.append(its_values[:n])
            comparisons += compared
        of_place[place] = len(guides)
        falls, is_needed = any(list(bounded.values())[:1]), _needs(program, start, target)
        of_target[target] = len(guides) if is_exact else -1
        guides.append([first, first + n, first_own, len(own), stop, falls, limit, is_needed])
        targets.append(target)
        candidates.append((numbers if rows is None else rows[numbers]).astype(np.int64))
    return g.Guides(
        of_place,
        of_target,
        start if fixed else -1,
        np.array(guides, np.int64).reshape(-1, g.N_GUIDE),
        np.concatenate(candidates),
        np.array(own, np.int64).reshape(-1, 3),
        np.concatenate(columns),
        np.array(comparisons, np.int64).reshape(-1, 2),
        np.array([first for first, *_ in guides], np.int64),
        np.empty((len(guides), HITS), np.int64),
        np.zeros(len(guides), np.int64),
        np.zeros((len(own), 2), np.int64),
        np.zeros(64, np.int64),
    )


def _needs(program: RowProgram, place: int, needed: int) -> bool:
    """Return True if every way from a place to the end of a match passes another place."""
    waiting, met = [place], {place}
    while waiting:
        at = waiting.pop()
        if at in program.ends:
            return False
        for q in program.nexts[at]:
            if q == MATCH_END:
                return False
            if q != needed and q not in met:
                met.add(q)
                waiting.append(q)
    return True


def comparisons_with_first(
    condition: Condition, arguments: Sequence[RowArgument], holds: Sequence[Sequence[bool]], place: int, start: int
) -> tuple[list[tuple[int, int, int]], bool]:
    """Return the comparisons that must hold if a condition is TRUE: of the row at hand with the first row of the match.

    Returns
    -------
    list of (int, int, int)
        The operator, and the columns of the row at hand and of the first row.
    bool
        True if the condition is TRUE whenever they hold.
    """

    def is_own(argument: RowArgument) -> bool:
        kind, number, nth, offset = argument
        return not offset and (kind == k.AT_HAND or (kind == k.LAST_ROW and nth == 0 and holds[number][place]))

    def is_first(argument: RowArgument) -> bool:
        kind, number, nth, offset = argument
        if kind not in (k.FIRST_ROW, k.LAST_ROW) or nth or offset or not holds[number][start]:
            return False
        return kind == k.FIRST_ROW or sum(holds[number]) == 1

    stack: list[Any] = []
    is_all = True
    for op, a, b in condition.instructions:
        if op == f.COLUMN and b > 0:
            stack.append((arguments[a], b))
        elif op == f.COMPARE_INTEGERS and all(isinstance(each, tuple) for each in stack[-2:]):
            (its, y), (mine, x) = stack.pop(), stack.pop()
            operator = _OPPOSITE[a] if b else a
            if is_own(its) and is_first(mine):
                mine, x, its, y, operator = its, y, mine, x, _MIRRORED[operator]
            is_compared = is_own(mine) and is_first(its) and operator != DIFFERENT
            is_all &= is_compared
            stack.append([(operator, x, y)] if is_compared else [])
        elif op == f.AND and all(isinstance(each, list) for each in stack[-2:]):
            stack.append([*stack.pop(), *stack.pop()])
        else:
            return [], False
    return (stack[0], is_all) if isinstance(stack[0], list) else ([], False)


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
