"""Row patterns by search: conditions that read other rows of the match are tested on the match so far.

A depth-first search takes the places in the order of preference and turns back where a condition fails.  The pass from
the end of `cer_gpu.backend.row_patterns`, over the conditions of each row alone, tells the places at which nothing can
finish; they are not tried.  All that a condition reads of the match is kept for each of its rows, so that turning back
undoes nothing.

After a row that led nowhere, its place, its number and what later conditions read of the match so far are noted
(`SearchPlan.read`): the search turns back at once where it meets them again, in this match or in one that begins later.
A monotone condition (`SearchPlan.bounds`), which stays false once it is false, as a column does not decrease,
ends the search there.

A repetition whose rows only functions read, as `AVG(A.price)` in ``A+ B``, is extended at once to the rows at which it
may end (`cer_gpu.backend.joins.row_repetitions`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.joins.filters import COLUMN, COMPARE_INTEGERS, HIGH, IS_VALID, VALUE, Filters, execute, push_value
from cer_gpu.backend.joins.match_memory import AVG, COUNT, MATCHES, SearchMemory, extend_rows, push_row, push_rows
from cer_gpu.backend.joins.row_guides import FULL_OF_HITS, NO_HITS, Guides, list_hits, next_hit
from cer_gpu.backend.joins.row_repetitions import Repetitions, next_end
from cer_gpu.backend.operations import compared
from cer_gpu.backend.row_patterns import ACCEPT, DONE, FULL, MISSING, SAME, next_start

_U = np.uint64

DEEP, SPENT, BEYOND, PAUSED = range(4, 8)
"""Outcomes of `search` besides those of `walk_rows`: memory too short, all steps taken, a sum too large, pause."""
CHECK = 100
"""Instruction after each condition: continue only if it is TRUE."""
LAST_ROW, FIRST_ROW, LAST_CLASS, FIRST_CLASS, BEST_ROW, TOTAL, AT_HAND, NEXT_ROW = range(8)
"""Kinds of arguments: a row of a variable, the place of such a row, the row of MIN or MAX, a number, the last row of
the match so far, and the row after it."""
NUMBER, STEPS, STEPS_HERE, DEPTH, CHOICE, DEAD = range(6)
"""Places of `SearchMemory.counters`."""
READ_LAST, READ_FIRST, READ_LAST_CLASS, READ_FIRST_CLASS, READ_TOTAL = range(5)
"""Kinds of reads by later conditions: a row of a set, from its last or its first, its place, and a function."""
RARELY = 16
"""Rows after which bounds are looked at, where there is one way to continue."""
NODES_PER_STEP, ROWS_PER_STEP = 8, 16
"""Nodes that are tested, and rows that are taken at once by a repetition, in the time of a step."""
_MIX = np.int64(0x2545F4914F6CDD1D)


class SearchPlan(NamedTuple):
    """A row pattern and its conditions.

    Attributes
    ----------
    begins : int64, shape (lists + 1,)
        First choice after each place, at the start, and at the start of a partition.
    choices : int16, shape (choices,)
        Places in the order of preference; `ACCEPT` ends a match.
    at_end : bool, shape (places,)
        Places after which a match may end at the end of its partition.
    able : bool, shape (states, places)
        Places that can take a row with a state and finish, as far as the row alone tells.
    forced : bool, shape (states, places)
        True if after a place, before a row with a state, there is one way to continue at most, as far as the row alone
        tells: then nothing is noted there, and bounds are looked at rarely.
    quiet : int64, shape (places,)
        For each place that repeats itself without a condition on other rows, and of whose rows none reads anything, its
        row of `opens`; -1 for others.
    opens : int64, shape (quiet places, rows)
        The first row from each row on before which there is another way than to that place.
    programs : int64, shape (places + 1,)
        First instruction of each place.
    holds : bool, shape (sets, places)
        Places of each set of variables that conditions name.
    arguments : int64, shape (arguments, 4)
        Kind, set (function for `BEST_ROW` and `TOTAL`), the number of the row in the set, and an offset.
    functions : int64, shape (functions, 4)
        Kind, set, number of the column of `inputs`, and 1 for the greatest value or -1 for the least.
    inputs : int64, shape (inputs, rows)
        Values of functions: int64, or the bits of a float64.
    inputs_f : float64, shape (inputs, rows)
        The same memory.
    valid : bool, shape (inputs, rows)
        False for NULL.
    ranks : int32, shape (rows + 1,), or (0,)
        Number of rows before each row that conditions can read; empty if they can read all rows.
    values : int64, shape (stored rows + places + 1, columns)
        Columns that conditions read of the rows that they can read, of places, and where there is no row: first a word
        that tells which are valid.
    noted : bool, shape (places,)
        Places after which it is noted that nothing finishes.
    reads : int64, shape (places + 1,)
        First of `read` of each place.
    read : int64, shape (reads, 3)
        Reads of the match so far by conditions, once a place took a row: kind, set (function for `READ_TOTAL`), and
        the number of the row in the set.
    bounded : int64, shape (places + 1,)
        First of `bounds` of each place.
    bounds : int64, shape (bounds, 4)
        Monotone conditions that must hold of a row after a place; once false, they stay false for later rows: first
        instruction, that after the last, and the number of a row in a set that must exist (set -1 if none need exist).
    """

    begins: Any
    choices: Any
    at_end: Any
    able: Any
    forced: Any
    quiet: Any
    opens: Any
    programs: Any
    holds: Any
    arguments: Any
    functions: Any
    inputs: Any
    inputs_f: Any
    valid: Any
    ranks: Any
    values: Any
    noted: Any
    reads: Any
    read: Any
    bounded: Any
    bounds: Any


@kernel
def search(plan, memory, filters, guides, repetitions, states, ends, max_steps, max_here, pause, skip, targets, at,
           partition, starts, offsets, places):  # fmt: skip
    """Find the preferred matches, one after another, until all rows are read or a buffer is full.

    Parameters
    ----------
    plan : SearchPlan
    memory : SearchMemory
    filters : Filters
    guides : Guides
    repetitions : Repetitions
    states : uint16, shape (n rows,)
        As of `walk_rows`.
    ends : int64, shape (n partitions,)
        As of `walk_rows`.
    max_steps : int
        Maximum number of steps of all searches: places tried for a row.
    max_here : int
        Maximum number of steps of the search for the match that begins at one row.
    pause : int
        Steps of all searches after which to return; the next call continues there.
    skip : int
        As of `walk_rows`.
    targets : bool, shape (places,)
        As of `walk_rows`.
    at, partition : int
        Row to begin at, and its partition.
    starts : int64, shape (match capacity,), written
        As of `walk_rows`.
    offsets : int64, shape (match capacity + 1,), written
        As of `walk_rows`.
    places : int16, shape (place capacity,), written

    Returns
    -------
    (int, int, int, int, int)
        Outcome, matches, places, and the row and partition to continue at (for an error: those of the match).
    """
    plan, memory, filters, guides = SearchPlan(*plan), SearchMemory(*memory), Filters(*filters), Guides(*guides)
    repetitions = Repetitions(*repetitions)
    n_matches = n_taken = offsets[0] = 0
    n_places = len(plan.at_end)
    while partition < len(ends):
        end = ends[partition]
        first = ends[partition - 1] if partition else 0
        if at == first:
            memory.counters[NUMBER] = 0
        while at < end:
            if guides.guides.shape[0] > 0 and memory.counters[STEPS_HERE] == 0:
                while at < end and not plan.able[_U(states[_U(at)]), _U(guides.start)]:
                    at += 1
                if at == end:
                    break
            start = n_places + (at == first)
            bounds = max_steps, max_here, pause
            outcome, length = _attempt(
                plan, memory, filters, guides, repetitions, states, at, first, end, start, bounds
            )
            if outcome != DONE:
                return outcome, n_matches, n_taken, at, partition
            if length < 0:
                memory.counters[STEPS_HERE] = 0
                at += 1
                continue
            if n_matches == len(starts) or n_taken + length > len(places):
                return FULL, n_matches, n_taken, at, partition
            for i in range(length):
                places[_U(n_taken + i)] = memory.path[_U(i)]
            starts[n_matches] = at
            n_matches += 1
            offsets[n_matches] = n_taken + length
            memory.counters[NUMBER] += 1
            memory.counters[STEPS_HERE] = 0
            target = next_start(skip, targets, places, n_taken, length, at)
            if target <= at:
                return MISSING if target < 0 else SAME, n_matches, n_taken, at, partition
            at = target
            n_taken += length
        partition += 1
    return DONE, n_matches, n_taken, at, partition


@helper
def _attempt(plan, memory, filters, guides, repetitions, states, at, first, end, start, bounds):
    """Search on for a match that begins at a row: return the outcome, and the number of its rows; -1 if there is none.

    All that it needs to continue is kept, so that after `PAUSED`, `DEEP` or a full buffer nothing is searched again.
    """
    counters = memory.counters
    max_steps, max_here, pause = bounds
    steps = counters[STEPS]
    max_total = min(max_steps, steps - counters[STEPS_HERE] + max_here)
    until = min(max_total, pause)
    begun = counters[STEPS_HERE] > 0
    if not begun and guides.guides.shape[0] > 0:
        if steps >= pause:
            return PAUSED, np.int64(-1)
        n_tiles = list_hits(guides, plan.values, _stored(plan, at), at, end)
        if n_tiles == FULL_OF_HITS:
            return DEEP, np.int64(-1)
        counters[STEPS] += max(n_tiles, np.int64(1))
        if n_tiles == NO_HITS:
            return DONE, np.int64(-1)
        steps = counters[STEPS]
    depth = counters[DEPTH] if begun else np.int64(0)
    k = counters[CHOICE] if begun else plan.begins[start]
    if not begun:
        memory.resumed[0] = -1
    stop = _last_choice(plan, memory, depth, start)
    while True:
        row = at + depth
        taken = False
        if row == end:
            if plan.at_end[_U(memory.path[_U(depth - 1)])]:
                _save_search(memory, steps, depth, k)
                return DONE, depth
        else:
            state = _U(states[_U(row)])
            while k < stop:
                place = np.int64(plan.choices[_U(k)])
                if place == ACCEPT:
                    _save_search(memory, steps, depth, k)
                    return DONE, depth
                if not plan.able[state, _U(place)]:
                    k += 1
                    continue
                repetition = repetitions.of_place[_U(place)]
                if repetition >= 0:
                    if depth > 0 and memory.path[_U(depth - 1)] == place:
                        k += 1  # all rows that may end it were enumerated where it began
                        continue
                    if depth + 1 >= len(memory.path):
                        _save_search(memory, steps, depth, k)
                        return DEEP, np.int64(-1)
                    if steps >= until:
                        _save_search(memory, steps, depth, k)
                        return SPENT if steps >= max_total else PAUSED, np.int64(-1)
                    before = memory.resumed[_U(depth)]
                    after, n_nodes = next_end(plan, memory, repetitions, repetition, at, depth, before, end)
                    steps += 1 + n_nodes // NODES_PER_STEP
                    if after < 0:
                        memory.resumed[_U(depth)] = -1
                        k += 1
                        continue
                    last = after - at - 1
                    if last >= len(memory.path) - 1:
                        _save_search(memory, steps, depth, k)
                        return DEEP, np.int64(-1)
                    k += 1
                    begin = depth if before < 0 else before - at
                    if begin <= last:
                        steps += (last - begin) // ROWS_PER_STEP
                        push_rows(plan, memory, at, begin, last, place)
                    taken = True
                    break
                guide, exact = _guides_of(guides, place)
                n_more = _n_taken(plan, guides, guide, row, end, place)
                if n_more < 0 or (exact >= 0 and next_hit(guides, exact, row) != row):
                    k += 1
                    continue
                last = depth + n_more
                if last >= len(memory.path):
                    _save_search(memory, steps, depth, k)
                    return DEEP, np.int64(-1)
                if steps >= until:
                    _save_search(memory, steps, depth, k)
                    return SPENT if steps >= max_total else PAUSED, np.int64(-1)
                k += 1
                steps += 1
                if not push_row(plan, memory, row, depth, place):
                    return BEYOND, np.int64(-1)
                span = plan.programs[_U(place)], plan.programs[_U(place + 1)]
                if exact >= 0 or _passes(plan, memory, filters, at, depth, first, end, span):
                    if last > depth:
                        extend_rows(memory, depth, last, place)
                    after = at + last + 1
                    forced = after < end and plan.forced[_U(states[_U(after)]), _U(place)]
                    # the row after a guided gap passes, and so bounds hold of it
                    if (forced and last % RARELY) or not (
                        (guide < 0 and _beyond(plan, memory, filters, at, last, first, end, place))
                        or (not forced and _is_dead(plan, memory, at + last, last, at))
                    ):
                        taken = True
                        break
        if taken:
            memory.tried[_U(last)] = -1 - depth
            memory.tried[_U(depth)] = k
            depth = last + 1
            if depth < len(memory.resumed):
                memory.resumed[_U(depth)] = -1
            k = plan.begins[_U(place)]
            stop = plan.begins[_U(place + 1)]
            continue
        if depth == 0:
            _save_search(memory, steps, depth, k)
            return DONE, np.int64(-1)
        depth -= 1
        row = at + depth
        if repetitions.of_place[_U(memory.path[_U(depth)])] >= 0:
            k = memory.tried[_U(depth)]
            if k < 0:
                depth = -1 - k
                k = memory.tried[_U(depth)]
            memory.resumed[_U(depth)] = row + 1
            k -= 1
            stop = _last_choice(plan, memory, depth, start)
            continue
        if row + 1 == end or not plan.forced[_U(states[_U(row + 1)]), _U(memory.path[_U(depth)])]:
            _bury(plan, memory, row, depth, at)
        k = memory.tried[_U(depth)]
        if k < 0:
            depth = -1 - k
            k = memory.tried[_U(depth)]
        stop = _last_choice(plan, memory, depth, start)


@helper
def _guides_of(guides, place):
    """Return the guide of a quiet place, and that whose rows are those that a place can take; -1 for none."""
    if guides.guides.shape[0] == 0:
        return np.int64(-1), np.int64(-1)
    return guides.of_place[_U(place)], guides.of_target[_U(place)]


@helper
def _n_taken(plan, guides, guide, row, end, place):
    """Return how many rows after a row a place takes as well, as there is no other way on; -1 if there is none."""
    if guide >= 0:
        hit = next_hit(guides, guide, row + 1)
        return hit - row - 1 if hit >= 0 else np.int64(-1)
    quiet = plan.quiet[_U(place)]
    if quiet < 0 or row + 1 >= end:
        return np.int64(0)
    return min(np.int64(plan.opens[_U(quiet), _U(row + 1)]), end) - row - 1


@helper
def _beyond(plan, memory, filters, at, depth, first, end, place):
    """Return True if no row after the last required one can satisfy the condition."""
    after = at + depth + 1
    if after == end:
        return False
    bounds = range(plan.bounded[_U(place)], plan.bounded[_U(place + 1)])
    if len(bounds) > 0 and plan.ranks.shape[0] > 0 and plan.ranks[_U(after)] == plan.ranks[_U(end)]:
        return True  # no row is left that a condition can read, and one with a condition is required
    for b in bounds:
        i = _U(b)
        s = plan.bounds[i, 2]
        if s < 0 or plan.bounds[i, 3] < memory.counts[_U(depth), _U(s)]:
            span = plan.bounds[i, 0], plan.bounds[i, 1]
            if not _passes(plan, memory, filters, at, depth, first, end, span):
                return True
    return False


@helper
def _is_dead(plan, memory, row, depth, at):
    """Return whether it is noted that nothing finishes after the last row."""
    place = memory.path[_U(depth)]
    if memory.counters[DEAD] == 0 or not plan.noted[_U(place)]:
        return False
    slot = _slot(plan, memory, row, depth, at, place)
    if memory.dead[slot, 0] != _state(plan, row, place):
        return False
    begin = plan.reads[_U(place)]
    for i in range(begin, plan.reads[_U(place + 1)]):
        if memory.dead[slot, _U(1 + i - begin)] != _read(plan, memory, depth, at, i):
            return False
    return True


@helper
def _bury(plan, memory, row, depth, at):
    """Note that nothing finishes after a row."""
    place = memory.path[_U(depth)]
    if not plan.noted[_U(place)]:
        return
    slot = _slot(plan, memory, row, depth, at, place)
    memory.dead[slot, 0] = _state(plan, row, place)
    begin = plan.reads[_U(place)]
    for i in range(begin, plan.reads[_U(place + 1)]):
        memory.dead[slot, _U(1 + i - begin)] = _read(plan, memory, depth, at, i)
    memory.counters[DEAD] = 1


@helper
def _state(plan, row, place):
    """Return the number of a row and its place, from 1."""
    return np.int64(1) + row * np.int64(len(plan.at_end)) + place


@helper
def _slot(plan, memory, row, depth, at, place):
    """Return where a row with its place, and what is read, is noted: near to its neighbours."""
    mixed = np.int64(0)
    for i in range(plan.reads[_U(place)], plan.reads[_U(place + 1)]):
        mixed = (mixed ^ _read(plan, memory, depth, at, i)) * _MIX
    return _U((_state(plan, row, place) + (mixed >> 20)) & np.int64(len(memory.dead) - 1))


@helper
def _read(plan, memory, depth, at, i):
    """Return a number for something that later conditions read."""
    kind, s, nth = plan.read[_U(i), 0], plan.read[_U(i), 1], plan.read[_U(i), 2]
    if kind >= READ_TOTAL:
        if plan.functions[_U(s), 0] == MATCHES:
            return memory.counters[NUMBER]
        return memory.tallies[_U(depth), _U(s)] if nth else memory.totals[_U(depth), _U(s)]
    n = memory.counts[_U(depth), _U(s)]
    from_first = kind in (READ_FIRST, READ_FIRST_CLASS)
    if nth >= n:
        return -1 - n if from_first else np.int64(-1)
    position = memory.positions[_U(s), _U(nth if from_first else n - 1 - nth)]
    return position if kind in (READ_LAST, READ_FIRST) else np.int64(memory.path[_U(position - at)])


@helper
def _last_choice(plan, memory, depth, start):
    """Return the end of the choices after so many rows of a match."""
    before = start if depth == 0 else np.int64(memory.path[_U(depth - 1)])
    return plan.begins[_U(before + 1)]


@helper
def _save_search(memory, steps, depth, k):
    """Keep where a search is left."""
    counters = memory.counters
    counters[STEPS_HERE] += steps - counters[STEPS]
    counters[STEPS] = steps
    counters[DEPTH], counters[CHOICE] = depth, k


@helper
def _passes(plan, memory, filters, at, depth, first, end, span):
    """Return whether the conditions from one instruction to another hold of the match so far."""
    work = filters.work
    top = 0
    for at_line in range(span[0], span[1]):
        line = _U(at_line)
        code = filters.code[line, 0]
        if code == CHECK:
            if work[0, VALUE] != 1:
                return False
            top = 0
        elif code == COMPARE_INTEGERS:  # as `execute` has it; most conditions are one
            x, y = _U(top - 2), _U(top - 1)
            both_valid = work[x, IS_VALID] & work[y, IS_VALID]
            holds = compared(filters.code[line, 1], work[x, VALUE], work[y, VALUE])
            work[x, VALUE] = both_valid & (np.int64(holds) ^ filters.code[line, 2])
            top -= 1
        elif code != COLUMN:
            top = execute(filters, line, top)
        else:
            argument = _U(filters.code[line, 1])
            kind, i = plan.arguments[argument, 0], plan.arguments[argument, 1]
            if kind == TOTAL:
                _read_total(plan, memory, filters, depth, i, _U(top))
            else:
                row, column = _U(_row_of(plan, memory, at, depth, first, end, argument)), filters.code[line, 2]
                push_value(filters, plan.values[row, 0], plan.values[row, _U(abs(column))], column, top)
            top += 1
    return True


@helper
def _read_total(plan, memory, filters, depth, f, top):
    """Push the value of a function over the match so far."""
    kind, tally = plan.functions[f, 0], memory.tallies[depth, f]
    filters.work[top, IS_VALID] = 1
    if kind == COUNT:
        filters.work[top, VALUE] = tally
    elif kind == MATCHES:
        filters.work[top, VALUE] = memory.counters[NUMBER] + 1
    else:
        filters.work[top, IS_VALID] = tally > 0
        if kind == AVG:
            filters.work_floats[top, VALUE] = memory.totals_f[depth, f] / max(tally, 1)
        else:
            filters.work[top, VALUE] = memory.totals[depth, f]
    filters.work[top, HIGH] = filters.work[top, VALUE] >> np.int64(63)


@helper
def _row_of(plan, memory, at, depth, first, end, argument):
    """Return the row of `values` that an argument reads."""
    nothing = np.int64(plan.values.shape[0] - 1)
    kind, i, nth = plan.arguments[argument, 0], plan.arguments[argument, 1], plan.arguments[argument, 2]
    if kind == BEST_ROW:
        return memory.totals[depth, i] if memory.tallies[depth, i] > 0 else nothing
    if kind == AT_HAND:
        row = at + depth + plan.arguments[argument, 3]
        return _stored(plan, row) if first <= row < end else nothing
    if kind == NEXT_ROW:  # the next one that is stored, as no other one can satisfy the condition
        return _stored(plan, at + depth + 1)
    n = memory.counts[_U(depth), _U(i)]
    if nth >= n:
        return nothing
    row = memory.positions[_U(i), _U(nth if kind in (FIRST_ROW, FIRST_CLASS) else n - 1 - nth)]
    if kind in (LAST_CLASS, FIRST_CLASS):
        return nothing - len(plan.at_end) + memory.path[row - at]
    row += plan.arguments[argument, 3]
    return _stored(plan, row) if first <= row < end else nothing


@helper
def _stored(plan, row):
    """Return the row of `values` of a row, or of the next one that has one."""
    return np.int64(plan.ranks[_U(row)]) if plan.ranks.shape[0] > 0 else row
