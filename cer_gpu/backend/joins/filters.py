"""Join predicates over stored instances: comparisons of two columns, and programs over several.

A program is a list of instructions for a stack; it has the tests of `cer_gpu.expressions.terms`, which are TRUE (1) or
not (0): NULL is in none of its truths.  Two strings, identified by their ids, are compared byte by byte: one contains
the other, or begins or ends with it.  papers: RMA, definition 4.2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import COMPARE, COMPARE_RANKED
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import (
    DIVIDED,
    MODULO,
    compared,
    float_compared,
    of_one_float,
    of_one_integer,
    of_one_wide,
    of_two_floats,
    of_two_integers,
    of_two_wide,
    wide_float,
    wide_order,
    widened,
    widened_natural,
)
from cer_gpu.errors import EventsError

_GREATEST = np.int64(0x7FFFFFFFFFFFFFFF)
HOLDS = np.int64(0b101_001_110_010_011_100)
"""For each operator, from EQUAL on, whether it holds if the left value is greater, less, or equal."""
CONTAINS, BEGINS, ENDS = range(3)
"""Relations of a string to another one; in the empty string nothing is contained, and it is contained in nothing."""


@kernel
def string_relates(offsets, letters, relation, string, other):
    """Return whether a string has a relation to another one.

    Parameters
    ----------
    offsets : int64, shape (at least numbers + 1,)
        First byte of each string.
    letters : uint8, shape (bytes,)
    relation : int
        `CONTAINS`, `BEGINS` or `ENDS`.
    string, other : int
        Ids of the strings.

    Returns
    -------
    bool
    """
    begin, end = offsets[_U(string)], offsets[_U(string + 1)]
    first = offsets[_U(other)]
    n = offsets[_U(other + 1)] - first
    if n > end - begin:
        return False
    if relation == BEGINS:
        return _same(letters, begin, first, n)
    if relation == ENDS:
        return _same(letters, end - n, first, n)
    if n == 0:
        return False
    at, last, letter = begin, end - n, letters[_U(first)]
    while at <= last and not (letters[_U(at)] == letter and _same(letters, at, first, n)):
        at += 1
    return at <= last


@helper
def _same(letters, one, other, n):
    """Return whether n bytes are those at another place."""
    k = 0
    while k < n and letters[_U(one + k)] == letters[_U(other + k)]:
        k += 1
    return k == n


_U = np.uint64

(
    COLUMN,
    CONSTANT,
    TO_FLOAT,
    WIDE_TO_FLOAT,
    TO_WIDE,
    TO_WIDE_NATURAL,
    ONE_INTEGER,
    ONE_FLOAT,
    ONE_WIDE,
    TWO_INTEGERS,
    TWO_FLOATS,
    TWO_WIDE,
    COMPARE_INTEGERS,
    COMPARE_FLOATS,
    COMPARE_WIDE,
    COMPARE_MIXED,
    COMPARE_STRINGS,
    NOT_NULL,
    AND,
    OR,
) = range(20)
"""Instructions of a program, each with two numbers a and b.

`COLUMN` pushes column b of the event of argument a, as it is or, where it is below 0, the rank of the string of column
-b.  `CONSTANT` pushes constants a (the value) and b (its upper half, of a wide integer).  An int64 that these push is a
wide integer, too.  a is the factor of `TO_WIDE` and its twin for uint64, and the code of an operator in the
instructions on one or two numbers and in comparisons, of which b = 1 is the negation, as of `NOT_NULL`.
`COMPARE_STRINGS` takes the ids of two strings.
"""

VALUE, HIGH, IS_VALID = range(3)
"""Columns of the stack: int64, bits of a float64 or lower half of a wide integer; its upper half; and 0 for NULL.

The last row is none of the stack: its `VALUE` is 1 once there was an integer of more than 128 bits.
"""


class StringTables(NamedTuple):
    """The strings of columns with string ids, by id.

    Attributes
    ----------
    ranks : int64, shape (at least 1,)
        Rank of each string in the order of all.
    offsets : int64, shape (at least strings + 1,)
        First byte of each.
    letters : uint8, shape (bytes,)
    """

    ranks: Any
    offsets: Any
    letters: Any


class Filters(NamedTuple):
    """Join predicates of a query.

    Attributes
    ----------
    conditions : CONDITION, shape (conditions,)
        Records of `cer_gpu.automaton.encoding`.
    code : int64, shape (instructions, 3)
    constants : int64, shape (at least 1,)
    ranks : int64, shape (at least 1,)
        Rank of each string by its number.
    offsets : int64, shape (at least strings + 1,)
        First byte of each string.
    letters : uint8, shape (bytes,)
        Strings, one after the other.
    work : int64, shape (depth, 3), written
        Stack of values of a program, columns VALUE to IS_VALID.
    work_floats : float64, shape (depth, 3), written
        The same memory.
    """

    conditions: Any
    code: Any
    constants: Any
    ranks: Any
    offsets: Any
    letters: Any
    work: Any
    work_floats: Any


def filters_of(conditions: Any, code: Any, constants: Any, strings: StringTables) -> Filters:
    """Return filters with scratch for their programs."""
    work = np.zeros((1 + len(code), 3), np.int64)
    code = np.array(code or [(0, 0, 0)], np.int64)
    constants = np.array(constants or [0], np.int64)
    return Filters(conditions, code, constants, *strings, work, work.view(np.float64))


def check_sizes(filters: Filters) -> None:
    """Raise an error if a program met an integer of more than 128 bits.

    Raises
    ------
    EventsError
    """
    if filters.work[-1, VALUE]:
        raise EventsError(
            "a join predicate computes an integer of more than 128 bits; compute with floats: 1.0 * a.x * b.y"
        )


def with_strings(filters: Filters, strings: StringTables) -> Filters:
    """Return filters that read the strings numbered so far."""
    return filters._replace(ranks=strings.ranks, offsets=strings.offsets, letters=strings.letters)


IN_INTEGERS, IN_FLOATS, IN_ORDER, IN_CELLS = range(4)
"""Kinds of `fill_columns`: integers, bits of floats, integers in the order of floats, and cells of floats."""
FILL_SOURCE, FILL_KIND, FILL_COLUMN, FILL_FACTOR, FILL_PLUS, FILL_MASK = range(6)
"""Columns of its plan, the last three for integers."""
TIMES, PLUS, PER_CELL, FIRST_CELL = range(4)
"""Columns of its scales, the last two for cells."""
_UNIT, _UNIT_BITS = 1.5 * 2.0**52, np.int64(0x4338000000000000)
"""A float whose last bit is a unit, and its bits: whole numbers up to 2**51 are their difference from it."""
FILL_TILE = 512
"""Rows that all columns are computed of before the next ones, so that they stay in the cache."""


@kernel
def fill_columns(sources, floats, plan, scales, last_cell, all_bits, columns, tile, tile_f):
    """Compute columns of events, each from one number of the event; NaN is not valid but in `IN_FLOATS`.

    Parameters
    ----------
    sources : int64, shape (numbers, n)
        Integers, or the bits of float64.
    floats : float64, shape (numbers, n)
        The same memory.
    plan : int64, shape (columns, 6)
        Columns FILL_SOURCE to FILL_MASK: ``(factor * number + plus) & mask`` of an integer.
    scales : float64, shape (columns, 4)
        Columns TIMES to FIRST_CELL: ``times * number + plus`` of a float.
    last_cell : float
        The last cell at either end.
    all_bits : int
        The bits of these columns.
    columns : int64, shape (n, 1 + all columns), written
        Column 0 has the bits of the valid ones of these columns.
    tile : int64, shape (1 + all columns, FILL_TILE), written
        Scratch.
    tile_f : float64, shape (1 + all columns, FILL_TILE), written
        The same memory.
    """
    n = columns.shape[0]
    for begin in range(0, n, FILL_TILE):
        end = min(begin + FILL_TILE, n)
        _fill(sources, floats, plan, scales, last_cell, all_bits, tile, tile_f, begin, end, begin)
        for i in range(begin, end):
            columns[_U(i), _U(0)] = tile[_U(0), _U(i - begin)]
        for c in range(plan.shape[0]):
            k = _U(plan[_U(c), FILL_COLUMN])
            for i in range(begin, end):
                columns[_U(i), k] = tile[k, _U(i - begin)]


@kernel
def fill_rows(sources, floats, plan, scales, last_cell, all_bits, rows, rows_f):
    """Compute columns of events as `fill_columns` does, each to a row of its own.

    Parameters
    ----------
    sources : int64, shape (numbers, n)
    floats : float64, shape (numbers, n)
    plan : int64, shape (columns, 6)
    scales : float64, shape (columns, 4)
    last_cell : float
    all_bits : int
    rows : int64, shape (1 + all columns, n), written
    rows_f : float64, shape (1 + all columns, n), written
        The same memory.
    """
    n = rows.shape[1]
    for begin in range(0, n, FILL_TILE):
        end = min(begin + FILL_TILE, n)
        _fill(sources, floats, plan, scales, last_cell, all_bits, rows, rows_f, begin, end, 0)


@helper
def _fill(sources, floats, plan, scales, last_cell, all_bits, rows, rows_f, begin, end, first):
    """Compute the columns of some events, each without branches, so that vector instructions do several at once."""
    for i in range(begin, end):
        rows[_U(0), _U(i - first)] = all_bits
    for c in range(plan.shape[0]):
        line = _U(c)
        source, kind, k = _U(plan[line, FILL_SOURCE]), plan[line, FILL_KIND], _U(plan[line, FILL_COLUMN])
        if kind == IN_INTEGERS:
            factor, added, mask = plan[line, FILL_FACTOR], plan[line, FILL_PLUS], plan[line, FILL_MASK]
            for i in range(begin, end):
                rows[k, _U(i - first)] = (factor * sources[source, _U(i)] + added) & mask
            continue
        factor_f, plus_f = scales[line, TIMES], scales[line, PLUS]
        per_cell, first_cell = scales[line, PER_CELL], scales[line, FIRST_CELL]
        n_unknown = 0
        if kind == IN_FLOATS:
            for i in range(begin, end):
                rows_f[k, _U(i - first)] = floats[source, _U(i)] * factor_f + plus_f
        elif kind == IN_ORDER:
            for i in range(begin, end):
                x = floats[source, _U(i)] * factor_f + plus_f
                n_unknown += x != x
                rows_f[k, _U(i - first)] = x + 0.0  # -0.0 and 0.0 are one value
            for i in range(begin - first, end - first):
                bits = rows[k, _U(i)]
                rows[k, _U(i)] = bits ^ ((bits >> np.int64(63)) & _GREATEST)
        else:
            for i in range(begin, end):
                x = floats[source, _U(i)] * factor_f + plus_f
                n_unknown += x != x
                x = x if x == x else 0.0
                cell = min(max(np.floor(x * per_cell - first_cell), -last_cell), last_cell)
                rows_f[k, _U(i - first)] = cell + _UNIT
            for i in range(begin - first, end - first):
                rows[k, _U(i)] -= _UNIT_BITS
        if n_unknown > 0:
            for i in range(begin, end):
                x = floats[source, _U(i)] * factor_f + plus_f
                rows[_U(0), _U(i - first)] &= ~(np.int64(x != x) << (np.int64(k) - 1))


@helper
def passes(filters, values, c, p, i, q, k):
    """Return whether condition `c` holds for the earlier instance `i` of atom `p` and the later one `k` of `q`."""
    conditions = filters.conditions
    kind = conditions[c].kind
    if kind <= COMPARE_RANKED:
        a, b = _U(conditions[c].column), _U(conditions[c].other)
        both_valid = (values[p, 0, i] >> np.int64(a - _U(1))) & (values[q, 0, k] >> np.int64(b - _U(1))) & 1
        if both_valid == 0:
            return False
        x, y = values[p, a, i], values[q, b, k]
        if kind == COMPARE_RANKED:
            x, y = filters.ranks[_U(x)], filters.ranks[_U(y)]
        return compared(conditions[c].op, x, y)
    if conditions[c].arg == 0:
        return run_pair(filters, values, c, p, i, q, k)
    return run_pair(filters, values, c, q, k, p, i)


@helper
def all_pass(filters, values, first, last, p, i, q, k):
    """Return whether all of some conditions hold for the earlier instance `i` of atom `p` and the later one `k` of `q`.

    Comparisons that follow one another are all made, as which of them holds cannot be foreseen.
    """
    conditions = filters.conditions
    good = np.int64(1)
    for c in range(first, last):
        condition = _U(c)
        if conditions[condition].kind == COMPARE:
            a, b = _U(conditions[condition].column), _U(conditions[condition].other)
            x, y = values[p, a, i], values[q, b, k]
            order = np.int64(x < y) | np.int64(x == y) << np.int64(1)
            good &= (HOLDS >> (np.int64(conditions[condition].op) * 3 + order)) & (
                values[p, 0, i] >> np.int64(a - _U(1)) & (values[q, 0, k] >> np.int64(b - _U(1)))
            )
        elif good & 1 == 0 or not passes(filters, values, condition, p, i, q, k):
            return False
    return good & 1 == 1


@kernel
def run_pair(filters, values, c, p, i, q, k):
    """Return whether a program holds for two events, as `run_events` does; faster, as they are in registers.

    Parameters
    ----------
    filters : Filters
    values : int64, shape (atoms, columns, capacity)
    c : int
        Condition.
    p : int
        Atom of argument 0.
    i : int
        Its instance.
    q : int
        Atom of argument 1.
    k : int
        Its instance.

    Returns
    -------
    bool
    """
    filters = Filters(*filters)
    top = 0
    for at in range(filters.conditions[c].begin, filters.conditions[c].end):
        line = _U(at)
        if filters.code[line, 0] == COLUMN:
            atom, instance = (p, i) if filters.code[line, 1] == 0 else (q, k)
            top = push(filters, values, _U(atom), _U(instance), filters.code[line, 2], top)
        else:
            top = execute(filters, line, top)
    return filters.work[0, VALUE] == 1


@kernel
def run_events(filters, values, begin, end, atoms, instances):
    """Return whether a program holds for the events of its arguments.

    Parameters
    ----------
    filters : Filters
    values : int64, shape (atoms, columns, capacity)
    begin : int
        First instruction.
    end : int
        The instruction after the last.
    atoms : int64, shape (arguments,)
    instances : int64, shape (arguments,)

    Returns
    -------
    bool
    """
    filters = Filters(*filters)
    top = 0
    for at in range(begin, end):
        line = _U(at)
        if filters.code[line, 0] == COLUMN:
            argument = _U(filters.code[line, 1])
            atom, instance = _U(atoms[argument]), _U(instances[argument])
            top = push(filters, values, atom, instance, filters.code[line, 2], top)
        else:
            top = execute(filters, line, top)
    return filters.work[0, VALUE] == 1


@helper
def push(filters, values, atom, instance, column, top):
    """Push a column of an instance of an atom (`COLUMN`), and return the height of the stack."""
    push_value(filters, values[atom, 0, instance], values[atom, _U(abs(column)), instance], column, top)
    return top + 1


@helper
def push_value(filters, valid, value, column, top):
    """Push a value; `valid` has the bits of the valid columns of its event (`COLUMN`)."""
    is_valid = valid >> (abs(column) - 1) & 1
    if column < 0 and is_valid == 1:
        value = filters.ranks[_U(value)]
    filters.work[_U(top), VALUE], filters.work[_U(top), IS_VALID] = value, is_valid
    filters.work[_U(top), HIGH] = value >> np.int64(63)


@kernel
def execute(filters, line, top):
    """Execute one instruction other than COLUMN.

    Parameters
    ----------
    filters : Filters
    line : int
        Instruction.
    top : int
        Height of the stack.

    Returns
    -------
    int
        Height of the stack after it.
    """
    filters = Filters(*filters)
    work, floats = filters.work, filters.work_floats
    code, a, b = filters.code[line, 0], filters.code[line, 1], filters.code[line, 2]
    x, y = _U(top - 2), _U(top - 1)  # the operands; of one operand, y
    if code == CONSTANT:
        work[_U(top), VALUE], work[_U(top), HIGH] = filters.constants[_U(a)], filters.constants[_U(b)]
        work[_U(top), IS_VALID] = 1
        return top + 1
    if code == TO_FLOAT:
        floats[y, VALUE] = float(work[y, VALUE])
    elif code == WIDE_TO_FLOAT:
        floats[y, VALUE] = wide_float(_wide(work, y))
    elif code == TO_WIDE:
        work[y, HIGH], low = widened(work[y, VALUE], a)
        work[y, VALUE] = np.int64(low)
    elif code == TO_WIDE_NATURAL:
        work[y, HIGH], low = widened_natural(_U(work[y, VALUE]), a)
        work[y, VALUE] = np.int64(low)
    elif code == ONE_INTEGER:
        work[y, VALUE] = of_one_integer(a, work[y, VALUE])
    elif code == ONE_FLOAT:
        floats[y, VALUE] = of_one_float(a, floats[y, VALUE])
    elif code == ONE_WIDE:
        result, is_exact = of_one_wide(a, _wide(work, y))
        _put_wide(work, y, result, is_exact)
    elif code == NOT_NULL:
        work[y, VALUE], work[y, IS_VALID] = work[y, IS_VALID] ^ b, 1
    else:
        _execute_two(filters, code, a, b, x, y)
        return top - 1
    return top


@helper
def _execute_two(filters, code, a, b, x, y):
    """Execute an instruction on the upper two values, which leaves its result in `x`."""
    work, floats = filters.work, filters.work_floats
    valid = work[x, IS_VALID] & work[y, IS_VALID]
    work[x, IS_VALID] = valid
    if code == AND:
        work[x, VALUE] &= work[y, VALUE]
    elif code == OR:
        work[x, VALUE] |= work[y, VALUE]
    elif code == TWO_INTEGERS:
        work[x, IS_VALID] = valid & np.int64(work[y, VALUE] != 0 or (a != DIVIDED and a != MODULO))
        work[x, VALUE] = of_two_integers(a, work[x, VALUE], work[y, VALUE])
    elif code == TWO_FLOATS:
        floats[x, VALUE] = of_two_floats(a, floats[x, VALUE], floats[y, VALUE])
    elif code == TWO_WIDE:
        valid &= np.int64(work[y, VALUE] != 0 or work[y, HIGH] != 0 or (a != DIVIDED and a != MODULO))
        work[x, IS_VALID] = valid
        result, is_exact = of_two_wide(a, _wide(work, x), _wide(work, y))
        _put_wide(work, x, result, is_exact)
    else:
        if code == COMPARE_INTEGERS:
            holds = compared(a, work[x, VALUE], work[y, VALUE])
        elif code == COMPARE_FLOATS:
            holds = compared(a, floats[x, VALUE], floats[y, VALUE])
        elif code == COMPARE_WIDE:
            holds = compared(a, wide_order(_wide(work, x), _wide(work, y)), np.int64(0))
        elif code == COMPARE_STRINGS:
            holds = valid == 1 and string_relates(filters.offsets, filters.letters, a, work[x, VALUE], work[y, VALUE])
        else:
            assert code == COMPARE_MIXED
            holds = float_compared(a, floats[x, VALUE], _wide(work, y))
        work[x, VALUE] = valid & (np.int64(holds) ^ b)


@helper
def _put_wide(work, at, value, is_exact):
    """Put a wide integer at a place of the stack, and note it if the exact one does not fit."""
    work[at, HIGH], work[at, VALUE] = value[0], np.int64(value[1])
    if not is_exact and work[at, IS_VALID] == 1:
        work[_U(work.shape[0] - 1), VALUE] = 1


@helper
def _wide(work, at):
    """Return the wide integer of a place of the stack."""
    return work[at, HIGH], _U(work[at, VALUE])
