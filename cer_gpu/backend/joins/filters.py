"""Tests of filters between events over stored instances: comparisons of two columns, and programs over several.

A truth is 1 (TRUE), 0 (FALSE) or 2 (unknown); a filter passes where it is TRUE.  papers: RMA, definition 4.2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import (
    COMPARE_RANKED,
    COND_ARG,
    COND_BEGIN,
    COND_COLUMN,
    COND_END,
    COND_KIND,
    COND_OP,
    COND_OTHER,
)
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import quotient, remainder

_U = np.uint64

NOT_KNOWN = 2

# instructions of a program, each with two numbers a and b; COLUMN pushes column b of the event of argument a
COLUMN, CONSTANT, TO_FLOAT, NEGATIVE_I, NEGATIVE_F, ARITHMETIC_I, ARITHMETIC_F = range(7)
COMPARE_I, COMPARE_F, COMPARE_IF, COMPARE_RANKS, AND, OR, NOT, IS_NULL, FIXED, ABS_I, ABS_F = range(7, 18)


class Filters(NamedTuple):
    """Filters between events of a query.

    Attributes
    ----------
    conditions : int32, shape (conditions, 9)
        Columns COND_KIND to COND_ZONE (`cer_gpu.automaton.encoding`).
    code : int64, shape (instructions, 3)
    constants : int64, shape (at least 1,)
    ranks : int64, shape (at least 1,)
        Rank of each text by its number.
    work : int64, shape (depth, 2), written
        Stack of values of a program: the value, and 1 if it is known.
    work_floats : float64, shape (depth, 2), written
        The same memory.
    """

    conditions: Any
    code: Any
    constants: Any
    ranks: Any
    work: Any
    work_floats: Any


@helper
def compared(op, x, y):
    """Return ``x op y`` of two values of one type; `op` counts = <> < <= > >= from 0."""
    if op == 2:
        return x < y
    if op == 4:
        return x > y
    if op == 3:
        return x <= y
    if op == 5:
        return x >= y
    if op == 0:
        return x == y
    return x != y


@helper
def passes(filters, values, c, p, i, q, k):
    """Return whether condition `c` holds for the earlier instance `i` of atom `p` and the later one `k` of `q`."""
    conditions = filters.conditions
    kind = conditions[c, COND_KIND]
    if kind <= COMPARE_RANKED:
        a, b = _U(conditions[c, COND_COLUMN]), _U(conditions[c, COND_OTHER])
        known = (values[p, 0, i] >> np.int64(a - _U(1))) & (values[q, 0, k] >> np.int64(b - _U(1))) & 1
        if known == 0:
            return False
        x, y = values[p, a, i], values[q, b, k]
        if kind == COMPARE_RANKED:
            x, y = filters.ranks[_U(x)], filters.ranks[_U(y)]
        return compared(conditions[c, COND_OP], x, y)
    if conditions[c, COND_ARG] == 0:
        return run_pair(filters, values, c, p, i, q, k)
    return run_pair(filters, values, c, q, k, p, i)


@kernel
def run_pair(filters, values, c, p, i, q, k):
    """Return whether a program holds for two events.

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
    work, floats = filters.work, filters.work_floats
    top = 0
    for at in range(filters.conditions[c, COND_BEGIN], filters.conditions[c, COND_END]):
        line = _U(at)
        if filters.code[line, 0] == COLUMN:
            atom, instance = (p, i) if filters.code[line, 1] == 0 else (q, k)
            column = filters.code[line, 2]
            work[_U(top), 0] = values[_U(atom), _U(column), _U(instance)]
            work[_U(top), 1] = values[_U(atom), 0, _U(instance)] >> (column - 1) & 1
            top += 1
        else:
            top = execute(filters, line, work, floats, top)
    return work[0, 1] == 1 and work[0, 0] == 1


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
    work, floats = filters.work, filters.work_floats
    top = 0
    for at in range(begin, end):
        line = _U(at)
        if filters.code[line, 0] == COLUMN:
            argument, column = _U(filters.code[line, 1]), filters.code[line, 2]
            atom, instance = _U(atoms[argument]), _U(instances[argument])
            work[_U(top), 0] = values[atom, _U(column), instance]
            work[_U(top), 1] = values[atom, 0, instance] >> (column - 1) & 1
            top += 1
        else:
            top = execute(filters, line, work, floats, top)
    return work[0, 1] == 1 and work[0, 0] == 1


@kernel
def execute(filters, line, work, floats, top):
    """Execute one instruction other than COLUMN.

    Parameters
    ----------
    filters : Filters, read
    line : int
        Instruction.
    work : int64, shape (depth, 2), written
    floats : float64, shape (depth, 2), written
    top : int
        Height of the stack.

    Returns
    -------
    int
        Height of the stack after it.
    """
    filters = Filters(*filters)
    code, a, b = filters.code[line, 0], filters.code[line, 1], filters.code[line, 2]
    one, two = _U(top - 1), _U(top - 2)
    if code == CONSTANT:
        work[_U(top), 0] = filters.constants[_U(a)]
        work[_U(top), 1] = 1
        return top + 1
    if code == FIXED:
        work[_U(top), 0] = a & 1
        work[_U(top), 1] = a != NOT_KNOWN
        return top + 1
    if code == TO_FLOAT:
        floats[one, 0] = float(work[one, 0])
        return top
    if code == NEGATIVE_I:
        work[one, 0] = -work[one, 0]
        return top
    if code == NEGATIVE_F:
        floats[one, 0] = -floats[one, 0]
        return top
    if code == ABS_I:
        work[one, 0] = abs(work[one, 0])
        return top
    if code == ABS_F:
        floats[one, 0] = abs(floats[one, 0])
        return top
    if code == NOT:
        work[one, 0] = 1 - work[one, 0]
        return top
    if code == IS_NULL:
        work[one, 0] = work[one, 1] == 0
        work[one, 1] = 1
        return top
    known = work[one, 1] & work[two, 1]
    if code in (AND, OR):
        # in AND a FALSE decides, in OR a TRUE
        decides = np.int64(code == OR)
        x_decides = work[two, 1] == 1 and work[two, 0] == decides
        y_decides = work[one, 1] == 1 and work[one, 0] == decides
        if x_decides or y_decides:
            work[two, 0] = decides
            known = np.int64(1)
        else:
            work[two, 0] = 1 - decides
    elif code == ARITHMETIC_I:
        y = work[one, 0]
        if (a == 3 or a == 4) and y == 0:
            known = np.int64(0)
        else:
            work[two, 0] = _integers(a, work[two, 0], y)
    elif code == ARITHMETIC_F:
        floats[two, 0] = _floats(a, floats[two, 0], floats[one, 0])
    elif code == COMPARE_I:
        work[two, 0] = compared(a, work[two, 0], work[one, 0])
    elif code == COMPARE_F:
        work[two, 0] = compared(a, floats[two, 0], floats[one, 0])
    elif code == COMPARE_RANKS:
        if known == 1:
            work[two, 0] = compared(a, filters.ranks[_U(work[two, 0])], filters.ranks[_U(work[one, 0])])
    elif b == 1:
        work[two, 0] = _exactly(a, floats[two, 0], work[one, 0], True)
    else:
        work[two, 0] = _exactly(a, floats[one, 0], work[two, 0], False)
    work[two, 1] = known
    return top - 1


@helper
def _exactly(op, x, n, float_first):
    """Return ``x op n``, or ``n op x`` unless `float_first`, of a float and an integer, compared exactly."""
    if x != x:
        return op == 1
    order = 0  # of x and n: -1, 0 or 1
    if x >= 9223372036854775808.0:
        order = 1
    elif x < -9223372036854775808.0:
        order = -1
    else:
        whole = np.floor(x)
        i = np.int64(whole)
        if i > n or (i == n and whole < x):
            order = 1
        elif i < n:
            order = -1
    return compared(op, order, 0) if float_first else compared(op, 0, order)


@helper
def _integers(op, x, y):
    """Return ``x op y`` of two int64; any value for a division by 0."""
    if op == 0:
        return x + y
    if op == 1:
        return x - y
    if op == 2:
        return x * y
    return quotient(x, y) if op == 3 else remainder(x, y)


@helper
def _floats(op, x, y):
    """Return ``x op y`` of two float64."""
    if op == 0:
        return x + y
    if op == 1:
        return x - y
    if op == 2:
        return x * y
    return x / y if op == 3 else np.fmod(x, y)
