"""Repetitions in the search for row patterns: the rows at which one may end, by sums and extremes of ranges of rows.

In ``A+ B`` where B reads ``AVG(A.price)``, a search that extends A row by row reads the whole repetition at each start.
Here the sum of any range of rows is the difference of two prefix sums, and the least value that of a tree.  The
condition of B is evaluated in intervals: of one row, or of all rows of a node of a tree, whose children are visited
only if some row may pass.  A row that may pass is then tested as every other row is, with sums in the order of rows.

Operations of floats are monotone, rounding included: the results for the ends of the operands' intervals hold all
results without any rounding outwards; only sums, which prefix sums give in another order, have an error bound.
An interval with a NaN at an end holds every value, and NaN; one whose end is before its begin holds none: NULL.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import DIVIDED, MINUS, NEGATIVE, PLUS, TIMES

_U = np.uint64
_INFINITY = np.inf
_UNIT = 2.0**-53
"""Relative error of one operation."""
_EXACT = 2.0**53
"""Integers up to here are floats."""
_WIDEST = 2.0**126
"""Integers beyond it may be beyond 128 bits, which is an error: they are left to the exact test."""
FAN_BITS = 2
"""A node has four children."""
CANDIDATES, CANDIDATES_END, PROGRAMS, PROGRAMS_END, PLACE, IS_GREEDY, N_REPETITION = range(7)
"""Columns of `Repetitions.repetitions`."""
BEGIN, END, NEEDED, NEEDED_NUMBER, N_PROGRAM = range(5)
"""Columns of `Repetitions.programs`."""
PUSH, PUSH_CONSTANT, UNKNOWN_VALUE, UNKNOWN_TRUTH, ONE_OPERAND, TWO_OPERANDS, COMPARED, ALL_OF, ANY_OF = range(9)
"""Instructions, each with two numbers a and b.

`PUSH` pushes source a, `PUSH_CONSTANT` constant a.  `UNKNOWN_VALUE` and `UNKNOWN_TRUTH` replace the upper a values.
`ONE_OPERAND` and `TWO_OPERANDS` have the code of an operator, and b = 1 for integers.  `COMPARED` has the operator, and
b = 1 for its negation.  A truth is two numbers: whether it may be FALSE, and whether it may be TRUE.
"""
OF_CANDIDATE, OF_FIRST, OF_LAST, ROWS_SO_FAR, SUM_SO_FAR, MEAN_SO_FAR, EXTREME_SO_FAR, MATCHES_SO_FAR = range(8)
"""Kinds of sources: a column of the row behind the repetition; of the first or last rows of a set that is fixed before;
and functions of the match up to that row."""
KIND, ARRAY, NUMBER, NTH, OFFSET, INPUT, WITH_CANDIDATE, GROWS, N_SOURCE = range(9)
"""Columns of `Repetitions.sources`: ARRAY, the index of a column; NUMBER, a set or a function; NTH and OFFSET of a
row (of a sum: OFFSET is 1 for integers; of a mean: NTH, the array of the values from each candidate to the next one);
INPUT, the row of `sums` (-1 to count rows), or 1 if a value is the greatest of some rows, and -1 if it is the least;
WITH_CANDIDATE, 1 if the row behind the repetition counts; GROWS, 1 if the rows of the repetition do."""


class Repetitions(NamedTuple):
    """Places that repeat themselves without a condition on other rows, and whose next place reads functions of them.

    Attributes
    ----------
    of_place : int64, shape (places,)
        The repetition of each place, or -1.
    repetitions : int64, shape (repetitions, 6)
        Columns CANDIDATES and CANDIDATES_END, the range in `rows`; PROGRAMS and PROGRAMS_END, that in `programs`;
        PLACE, and IS_GREEDY.
    rows : int64, shape (rows behind,)
        Rows that the place after each repetition can take, as far as the row alone tells, ascending.
    before : int64, shape (repetitions, tree rows + 1)
        Candidates of each before each row.
    stops : int64, shape (repetitions, tree rows)
        The first row from each row on that the place cannot take.
    programs : int64, shape (programs, 4)
        Columns BEGIN and END, the range in `code`; NEEDED, a set, and NEEDED_NUMBER, the number of its row without
        which the program has no meaning (set -1 if none is needed).
    code : int64, shape (lines, 3)
    constants : float64, shape (interval constants, 2)
        Intervals.
    sources : int64, shape (sources, 8)
        As described at `KIND`.
    arrays : int64, shape (value arrays, 2)
        First value in `low` and `high`, and the row of `levels`.
    levels : int64, shape (trees, levels)
        First value of each level from the first value of an array on; -1 where there is no level.
    low, high : float64, shape (interval values,)
        Intervals of rows or candidates, then those of nodes, level by level.
    sums : float64, shape (summed, tree rows + 1)
        Sum of the values before each row.
    sizes : float64, shape (summed, tree rows + 1)
        Sum of their magnitudes; 0 where all sums are exact.
    tallies : int64, shape (summed, tree rows + 1)
        Values that are not NULL before each row.
    specials : int64, shape (summed, tree rows + 1)
        Values before each row that are NaN or infinite, and in no sum.
    work : float64, shape (lines + 1, 2), written
        Stack.
    fixed : float64, shape (sources, 4), written
        Value of each source before the repetition: an interval, or a sum, its magnitude and its tally.
    """

    of_place: Any
    repetitions: Any
    rows: Any
    before: Any
    stops: Any
    programs: Any
    code: Any
    constants: Any
    sources: Any
    arrays: Any
    levels: Any
    low: Any
    high: Any
    sums: Any
    sizes: Any
    tallies: Any
    specials: Any
    work: Any
    fixed: Any


@kernel
def prefix_sums(values, valid, sums, sizes, tallies, specials):
    """Add up finite values from the first row on, with the rounding errors of the sums.

    Parameters
    ----------
    values : float64, shape (n rows,)
    valid : bool, shape (n rows,)
        False for NULL.
    sums : float64, shape (n rows + 1,), written
        Sum of the values before each row, within 3 * 2**-53 of the sum of their magnitudes.
    sizes : float64, shape (n rows + 1,), written
        Sum of their magnitudes.
    tallies : int64, shape (n rows + 1,), written
        Values that are not NULL before each row.
    specials : int64, shape (n rows + 1,), written
        Values that are NaN or infinite before each row.
    """
    total = error = size = 0.0
    tally = n_special = np.int64(0)
    sums[0], sizes[0], tallies[0], specials[0] = 0.0, 0.0, 0, 0
    for i in range(len(values)):
        x = values[i]
        if valid[i] and x - x != 0.0:
            n_special += 1
            tally += 1
        elif valid[i]:
            added = total + x
            of_x = added - total
            error += (total - (added - of_x)) + (x - of_x)
            total = added
            size += abs(x)
            tally += 1
        sums[i + 1], sizes[i + 1], tallies[i + 1], specials[i + 1] = total + error, size, tally, n_special


@helper
def next_end(plan, memory, repetitions, repetition, at, depth, last, end):
    """Return the next row in the order of preference that may follow a repetition, and how many nodes were tested.

    Parameters
    ----------
    plan : SearchPlan
    memory : SearchMemory
    repetitions : Repetitions
    repetition : int
    at, depth : int
        First row of the match, and the number of the repetition's first row in it.
    last : int
        The row before in that order, or -1 if there is none.
    end : int
        End of the partition.

    Returns
    -------
    (int, int)
        The row, -1 if there is none, and the number of nodes.
    """
    g = _U(repetition)
    first = at + depth
    base = repetitions.repetitions[g, CANDIDATES]
    begin = repetitions.before[g, _U(first + 1)]
    stop = repetitions.before[g, _U(min(repetitions.stops[g, _U(first)] + 1, end))]
    is_greedy = repetitions.repetitions[g, IS_GREEDY] == 1
    if last >= 0:
        if is_greedy:
            stop = repetitions.before[g, _U(last)]
        else:
            begin = repetitions.before[g, _U(last + 1)]
    if begin >= stop:
        return np.int64(-1), np.int64(0)
    _fix_sources(plan, memory, repetitions, g, depth, first)
    if is_greedy:
        i, n_tests = _last_passing(memory, repetitions, g, depth, first, begin, stop)
    else:
        i, n_tests = _first_passing(memory, repetitions, g, depth, first, begin, stop)
    return (repetitions.rows[_U(base + i)] if i >= 0 else np.int64(-1)), n_tests


@helper
def _first_passing(memory, repetitions, g, depth, first, begin, stop):
    """Return the first candidate of a range that may pass, or -1, and how many nodes were tested."""
    i, level, n_tests = begin, np.int64(0), np.int64(0)
    while i < stop:
        span = np.int64(1) << (level * FAN_BITS)
        n_tests += 1
        if _may_pass(memory, repetitions, g, depth, first, level, i, min(i + span, stop)):
            if level == 0:
                return i, n_tests
            level -= 1
            continue
        i += span
        wider = span << np.int64(FAN_BITS)
        if i & (wider - 1) == 0 and i + span < stop:
            level += 1
    return np.int64(-1), n_tests


@helper
def _last_passing(memory, repetitions, g, depth, first, begin, stop):
    """Return the last candidate of a range that may pass, or -1, and how many nodes were tested."""
    i, level, n_tests = stop, np.int64(0), np.int64(0)  # the candidate after the node
    while i > begin:
        span = np.int64(1) << (level * FAN_BITS)
        n_tests += 1
        if _may_pass(memory, repetitions, g, depth, first, level, max(i - span, begin), i):
            if level == 0:
                return i - 1, n_tests
            level -= 1
            continue
        i -= span
        wider = span << np.int64(FAN_BITS)
        if i & (wider - 1) == 0 and i - span > begin:
            level += 1
    return np.int64(-1), n_tests


@helper
def _fix_sources(plan, memory, repetitions, g, depth, first):
    """Note what sources read of the match before the repetition."""
    fixed, sources = repetitions.fixed, repetitions.sources
    before = depth - 1
    for p in range(repetitions.repetitions[g, PROGRAMS], repetitions.repetitions[g, PROGRAMS_END]):
        for at_line in range(repetitions.programs[_U(p), BEGIN], repetitions.programs[_U(p), END]):
            if repetitions.code[_U(at_line), 0] != PUSH:
                continue
            i = _U(repetitions.code[_U(at_line), 1])
            kind, number = sources[i, KIND], sources[i, NUMBER]
            if kind in (OF_FIRST, OF_LAST):
                _fix_row(plan, memory, repetitions, i, before, first)
            elif kind == MATCHES_SO_FAR:
                fixed[i, 0] = fixed[i, 1] = float(memory.counters[0] + 1)
            elif kind >= ROWS_SO_FAR:
                tally = memory.tallies[before, number] if before >= 0 else np.int64(0)
                fixed[i, 2] = float(tally)
                if kind == EXTREME_SO_FAR:
                    fixed[i, 0], fixed[i, 1] = _INFINITY, -_INFINITY
                    if tally > 0:
                        _fix_value(repetitions, i, memory.totals[before, number])
                elif kind != ROWS_SO_FAR:
                    total = memory.totals_f[before, number] if before >= 0 else 0.0
                    if before >= 0 and sources[i, OFFSET] == 1:
                        total = float(memory.totals[before, number])
                    fixed[i, 0], fixed[i, 1] = total, abs(total)


@helper
def _fix_row(plan, memory, repetitions, i, before, first):
    """Note the value of a row of a set, which the match has before the repetition, or with its first row."""
    fixed, sources = repetitions.fixed, repetitions.sources
    number, nth = sources[i, NUMBER], sources[i, NTH]
    n = memory.counts[before, number] if before >= 0 else np.int64(0)
    if nth < n:
        row = memory.positions[number, nth if sources[i, KIND] == OF_FIRST else n - 1 - nth]
    elif sources[i, GROWS] == 1 and nth == n:
        row = first
    else:
        unknown = sources[i, GROWS] == 1 or sources[i, WITH_CANDIDATE] == 1
        fixed[i, 0], fixed[i, 1] = (np.nan, np.nan) if unknown else (_INFINITY, -_INFINITY)
        return
    _fix_value(repetitions, i, row)


@helper
def _fix_value(repetitions, i, row):
    """Note the value of a row."""
    k = _U(repetitions.arrays[_U(repetitions.sources[i, ARRAY]), 0] + row)
    repetitions.fixed[i, 0], repetitions.fixed[i, 1] = repetitions.low[k], repetitions.high[k]


@helper
def _may_pass(memory, repetitions, g, depth, first, level, begin, stop):
    """Return False if no candidate from one to another, all of one node, passes the programs."""
    for p in range(repetitions.repetitions[g, PROGRAMS], repetitions.repetitions[g, PROGRAMS_END]):
        program = _U(p)
        needed = repetitions.programs[program, NEEDED]
        if needed >= 0:
            n = memory.counts[depth - 1, needed] if depth > 0 else np.int64(0)
            if n <= repetitions.programs[program, NEEDED_NUMBER]:
                continue
        span = repetitions.programs[program, BEGIN], repetitions.programs[program, END]
        if not _may_hold(repetitions, g, first, level, begin, stop, span):
            return False
    return True


@helper
def _may_hold(repetitions, g, first, level, begin, stop, span):
    """Return False if a program holds for no candidate from one to another, all of one node."""
    work = repetitions.work
    top = np.int64(0)
    for at_line in range(span[0], span[1]):
        line = _U(at_line)
        code, a, b = repetitions.code[line, 0], repetitions.code[line, 1], repetitions.code[line, 2]
        if code == PUSH:
            low, high = _source(repetitions, g, first, level, begin, stop, _U(a))
            work[_U(top), 0], work[_U(top), 1] = low, high
            top += 1
        elif code == PUSH_CONSTANT:
            work[_U(top), 0], work[_U(top), 1] = repetitions.constants[_U(a), 0], repetitions.constants[_U(a), 1]
            top += 1
        elif code == UNKNOWN_VALUE:
            top -= a - 1
            work[_U(top - 1), 0] = work[_U(top - 1), 1] = np.nan
        elif code == UNKNOWN_TRUTH:
            top -= a - 1
            work[_U(top - 1), 0] = work[_U(top - 1), 1] = 1.0
        elif code == ONE_OPERAND:
            y = _U(top - 1)
            work[y, 0], work[y, 1] = _of_one(a, work[y, 0], work[y, 1])
        else:
            top -= 1
            x, y = _U(top - 1), _U(top)
            if code == TWO_OPERANDS:
                low, high = _of_two(a, work[x, 0], work[x, 1], work[y, 0], work[y, 1])
                if b == 1:
                    low, high = _integers(low, high)
            elif code == COMPARED:
                low, high = _compared(a, work[x, 0], work[x, 1], work[y, 0], work[y, 1])
                if b == 1:
                    low, high = high, low
            elif code == ALL_OF:
                low, high = max(work[x, 0], work[y, 0]), min(work[x, 1], work[y, 1])
            else:
                low, high = min(work[x, 0], work[y, 0]), max(work[x, 1], work[y, 1])
            work[x, 0], work[x, 1] = low, high
    return work[0, 1] != 0.0


@helper
def _source(repetitions, g, first, level, begin, stop, i):
    """Return the interval of a source over some candidates, all of one node."""
    sources, fixed = repetitions.sources, repetitions.fixed
    kind = sources[i, KIND]
    if kind == OF_CANDIDATE:
        k = _node_of(repetitions, sources[i, ARRAY], level, begin)
        return repetitions.low[k], repetitions.high[k]
    if kind in (OF_FIRST, OF_LAST, MATCHES_SO_FAR):
        return fixed[i, 0], fixed[i, 1]
    base = repetitions.repetitions[g, CANDIDATES]
    least = greatest = np.int64(0)
    if sources[i, GROWS] == 1:
        with_candidate = sources[i, WITH_CANDIDATE]
        least = repetitions.rows[_U(base + begin)] + with_candidate
        greatest = repetitions.rows[_U(base + stop - 1)] + with_candidate
    if kind == EXTREME_SO_FAR:
        return _extreme(repetitions, i, first, least, greatest)
    number = _U(sources[i, INPUT])
    tally_low = tally_high = fixed[i, 2]
    if sources[i, GROWS] == 1:
        if sources[i, INPUT] < 0:
            tally_low, tally_high = tally_low + (least - first), tally_high + (greatest - first)
        else:
            before = repetitions.tallies[number, _U(first)]
            tally_low += repetitions.tallies[number, _U(least)] - before
            tally_high += repetitions.tallies[number, _U(greatest)] - before
    if kind == ROWS_SO_FAR:
        return tally_low, tally_high
    if tally_high < 1.0:
        return _INFINITY, -_INFINITY
    total_low = total_high = fixed[i, 0]
    n_special = np.int64(total_low - total_low != 0.0)
    if sources[i, GROWS] == 1:
        n_special += repetitions.specials[number, _U(greatest)] - repetitions.specials[number, _U(first)]
    if n_special > 0:  # the sum may be NaN or infinite, which the conditions themselves decide
        return np.nan, np.nan
    error = 0.0
    if sources[i, GROWS] == 1:
        k = _node_of(repetitions, sources[i, ARRAY], level, begin)
        before_f = repetitions.sums[number, _U(first)]
        size = repetitions.sizes[number, _U(greatest)]
        if size > 0.0:
            so_far = fixed[i, 1] + (size - repetitions.sizes[number, _U(first)]) + 4.0 * _UNIT * size
            error = 1.01 * _UNIT * (24.0 * size + (float(greatest - first) + 16.0) * so_far)
        total_low += repetitions.low[k] - before_f - error
        total_high += repetitions.high[k] - before_f + error
    if kind == SUM_SO_FAR:
        return total_low, total_high
    low = total_low / (tally_high if total_low >= 0.0 else max(tally_low, 1.0))
    high = total_high / (max(tally_low, 1.0) if total_high >= 0.0 else tally_high)
    if level == 0 or sources[i, GROWS] == 0:
        return low, high
    # each mean is one of the first candidate's mean and of some of the values from there on
    k = _node_of(repetitions, sources[i, NTH], level, begin)
    least_f, greatest_f = repetitions.low[k], repetitions.high[k]
    if tally_low > 0.0:
        mean = (fixed[i, 0] + (repetitions.sums[number, _U(least)] - before_f)) / tally_low
        least_f, greatest_f = min(least_f, mean), max(greatest_f, mean)
    error /= max(tally_low, 1.0)
    return max(low, least_f - error), min(high, greatest_f + error)


@helper
def _node_of(repetitions, array, level, begin):
    """Return where the node that holds a candidate, or a row, has its interval."""
    tree = repetitions.arrays[_U(array), 1]
    return _U(
        repetitions.arrays[_U(array), 0] + repetitions.levels[_U(tree), _U(level)] + (begin >> (level * FAN_BITS))
    )


@helper
def _extreme(repetitions, i, first, least, greatest):
    """Return the interval of the value of a column at the row of an extreme, up to a row between two others."""
    low, high = repetitions.fixed[i, 0], repetitions.fixed[i, 1]
    if repetitions.sources[i, GROWS] == 0:
        return low, high
    array = repetitions.sources[i, ARRAY]
    near_low, near_high = _of_rows(repetitions, array, first, least)
    far_low, far_high = _of_rows(repetitions, array, least, greatest)
    if repetitions.sources[i, INPUT] < 0:  # it is the least value
        high = min(low, near_low)
        return min(high, far_low), (high if high < _INFINITY else far_high)
    low = max(high, near_high)
    return (low if low > -_INFINITY else far_low), max(low, far_high)


@helper
def _of_rows(repetitions, array, begin, stop):
    """Return the least and greatest value of a column over rows from one to another."""
    low, high = _INFINITY, -_INFINITY
    level, span = np.int64(0), np.int64(1)
    while begin < stop:
        mask = (span << np.int64(FAN_BITS)) - 1
        while begin < stop and begin & mask != 0:
            k = _node_of(repetitions, array, level, begin)
            low, high = min(low, repetitions.low[k]), max(high, repetitions.high[k])
            begin += span
        while begin < stop and stop & mask != 0:
            stop -= span
            k = _node_of(repetitions, array, level, stop)
            low, high = min(low, repetitions.low[k]), max(high, repetitions.high[k])
        level += 1
        span <<= np.int64(FAN_BITS)
    return low, high


@helper
def _of_one(op, low, high):
    """Return the interval of an operation on one number."""
    if op == NEGATIVE:
        return -high, -low
    if low > high or low >= 0.0 or low != low or high != high:
        return low, high
    return (-high, -low) if high <= 0.0 else (0.0, max(-low, high))


@helper
def _of_two(op, x_low, x_high, y_low, y_high):
    """Return the interval of an operation on two numbers."""
    if x_low > x_high or y_low > y_high:
        return _INFINITY, -_INFINITY
    if op == PLUS:
        low, high = x_low + y_low, x_high + y_high
    elif op == MINUS:
        low, high = x_low - y_high, x_high - y_low
    elif op == TIMES:
        a, b, c, d = x_low * y_low, x_low * y_high, x_high * y_low, x_high * y_high
        low, high = min(min(a, b), min(c, d)), max(max(a, b), max(c, d))
        if a != a or b != b or c != c or d != d:
            return np.nan, np.nan
    else:
        assert op == DIVIDED
        if not (y_low > 0.0 or y_high < 0.0):
            return np.nan, np.nan
        a, b, c, d = x_low / y_low, x_low / y_high, x_high / y_low, x_high / y_high
        low, high = min(min(a, b), min(c, d)), max(max(a, b), max(c, d))
        if a != a or b != b or c != c or d != d:
            return np.nan, np.nan
    return (low, high) if low == low and high == high else (np.nan, np.nan)


@helper
def _integers(low, high):
    """Return an interval of integers, whose ends were rounded, so that it holds the exact ones."""
    if low > high:
        return low, high
    if low < -_WIDEST or high > _WIDEST:
        return np.nan, np.nan
    low = low if -_EXACT < low < _EXACT else low - 2.0 * _UNIT * abs(low)
    high = high if -_EXACT < high < _EXACT else high + 2.0 * _UNIT * abs(high)
    return low, high


@helper
def _compared(op, x_low, x_high, y_low, y_high):
    """Return whether a comparison may be FALSE, and whether it may be TRUE."""
    if x_low > x_high or y_low > y_high:
        return 0.0, 0.0
    if x_low != x_low or x_high != x_high or y_low != y_low or y_high != y_high:
        return 1.0, 1.0
    if op >= 4:  # > and >= as < and <=
        op -= 2
        x_low, x_high, y_low, y_high = y_low, y_high, x_low, x_high
    if op == 2:
        false, true = x_high >= y_low, x_low < y_high
    elif op == 3:
        false, true = x_high > y_low, x_low <= y_high
    else:
        false = not (x_low == x_high and y_low == y_high and x_low == y_low)
        true = x_low <= y_high and y_low <= x_high
        if op == 1:
            false, true = true, false
    return (1.0 if false else 0.0), (1.0 if true else 0.0)
