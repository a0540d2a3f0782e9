"""Monotone bounds: conditions that, once false for a row, are false for every later row.

``ts - R.ts <= 1800`` is one where ``ts`` does not decrease along the rows and the row of R is fixed.  If every way from
a place to the end takes a row for which a bound must hold, and it fails for the next row, no later row will do.

The values of a column show whether it is in order.  From there, a program (`cer_gpu.backend.joins.filters`) is followed
instruction by instruction: each value on its stack does not decrease, does not increase, or stays the same
from row to row, and lies in a range, so that integers provably fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cer_gpu.arrays import Int64
from cer_gpu.backend import row_search as k
from cer_gpu.backend.joins import filters as f
from cer_gpu.backend.joins.row_guides import order_of_column
from cer_gpu.backend.operations import MINUS, PLUS, TIMES
from cer_gpu.expressions.side_columns import GREATEST, LEAST, Raw, SideColumn
from cer_gpu.expressions.terms import COMPARISONS, F8, U8
from cer_gpu.row_patterns.live_arguments import OfPlace, RowArgument, backwards
from cer_gpu.row_patterns.program import RowProgram

Instruction = tuple[int, int, int]
SAMPLE = 1 << 10
"""Rows that are looked at first for an order."""
_LESS = {COMPARISONS.index(op): op for op in ("<", "<=")}
_MORE = {COMPARISONS.index(op): op for op in (">", ">=")}
_COMPARE = (f.COMPARE_INTEGERS, f.COMPARE_FLOATS, f.COMPARE_WIDE, f.COMPARE_MIXED)


@dataclass(frozen=True)
class RowBound:
    """A monotone condition: once false for a row, it is false for every later row, so the search may stop.

    Attributes
    ----------
    code : tuple of Instruction
        `COLUMN` names `arguments`.
    arguments : tuple of RowArgument
        The row at hand as `NEXT_ROW`.
    needed : (int, int)
        A set, and the number of its row that must exist before the bound applies; set -1 if none need exist.
    """

    code: tuple[Instruction, ...]
    arguments: tuple[RowArgument, ...]
    needed: tuple[int, int] = (-1, 0)


@dataclass(frozen=True)
class _Value:
    """A value on the stack of a program, from row to row.

    Attributes
    ----------
    direction : int
        1: it does not decrease, -1: it does not increase, 0: it stays the same.
    low, high : int or float
        Its range.
    """

    direction: int
    low: Any
    high: Any

    def __neg__(self) -> _Value:
        return _Value(-self.direction, -self.high, -self.low)


_OnStack = _Value | tuple[int, int] | None
"""A value, both halves of a constant whose type the instructions say, or an unknown value."""


@dataclass(frozen=True)
class ReadColumns:
    """The columns that conditions read of rows.

    Attributes
    ----------
    kinds : sequence of SideColumn
    values : int64, shape (n rows, 1 + n columns)
        As of `cer_gpu.backend.row_search.SearchPlan.values`.
    constants : sequence of int
        As of `cer_gpu.backend.joins.filters.Filters`.
    ends : int64, shape (n partitions,)
        The row after each partition.
    """

    kinds: Sequence[SideColumn]
    values: Int64
    constants: Sequence[int]
    ends: Int64

    @cached_property
    def _cached_values(self) -> dict[int, _Value | None]:
        return {}

    def value(self, column: int) -> _Value | None:
        """Return a column, by its number from 1, from row to row, or None if it keeps no order or has NULL or NaN."""
        if column not in self._cached_values:
            self._cached_values[column] = self._column_direction(column)
        return self._cached_values[column]

    def direction(self, column: int) -> int:
        """Return 1 if a column does not decrease from row to row, -1 if it does not increase, and 0 otherwise."""
        value = self.value(column)
        return 0 if value is None else value.direction

    def constant(self, column: int) -> _Value | None:
        """Return a column of a fixed row, or None if not all are integers or finite floats."""
        read = self._order(column, len(self.values))
        if read is None or not read[3]:
            return None
        return _Value(0, *read[4:])

    def _order(self, column: int, stop: int) -> tuple[int, bool, bool, bool, Any, Any] | None:
        """Return the order and the range of a column of the first rows, or None if it is not of numbers."""
        kind = self.kinds[column - 1]
        dtype = kind.term.dtype if isinstance(kind, Raw) else ""
        if dtype == U8:
            return None
        words = self.values[:stop]
        if not stop:
            return 0, True, True, True, 0, 0
        values = words.view(np.float64) if dtype == F8 else words
        n_valid, *order = order_of_column(values, words, column, 1 << column - 1, self.ends)
        return (n_valid, *order)

    def _column_direction(self, column: int) -> _Value | None:
        n = len(self.values)
        sampled = self._ordered(column, min(n, SAMPLE))
        return self._ordered(column, n) if sampled is not None and n > SAMPLE else sampled

    def _ordered(self, column: int, stop: int) -> _Value | None:
        """Return a column as `value` does, judged by its first rows."""
        read = self._order(column, stop)
        if read is None or not stop:
            return None
        n_valid, rises, falls, is_finite, low, high = read
        if n_valid < stop or not is_finite or not (rises or falls):
            return None
        return _Value(1 if rises else -1, low, high)


def bounds_after(
    program: RowProgram,
    holds: Sequence[Sequence[bool]],
    conditions: Sequence[OfPlace],
    columns: ReadColumns,
    growing: Mapping[int, int],
) -> list[list[RowBound]]:
    """Return the bounds that must hold of a row after each place, over rows that exist by then.

    Parameters
    ----------
    program, holds, conditions
        As of `cer_gpu.row_patterns.live_arguments.read_after`.
    columns
    growing
        The functions over the match so far that do not decrease, each with its set.
    """
    bounds: dict[int, RowBound | None] = {}

    def bound_of(place: int, i: int) -> RowBound | None:
        condition, read_by = conditions[place][i]
        if id(condition) not in bounds:
            bounds[id(condition)] = _monotone_bound(condition.instructions, read_by, columns, growing)
        return bounds[id(condition)]

    own = [
        [bound for i in range(len(each)) if (bound := bound_of(place, i)) is not None]
        for place, each in enumerate(conditions)
    ]
    order = list(dict.fromkeys(bound for each in own for bound in each))

    def is_taken(bound: RowBound, place: int) -> bool:
        return any(kind == k.LAST_ROW and holds[number][place] for kind, number, _, _ in bound.arguments)

    def before(place: int, after: frozenset[RowBound]) -> frozenset[RowBound]:
        return frozenset(bound for bound in after.union(own[place]) if not is_taken(bound, place))

    after = backwards(program, frozenset(order), frozenset(), before, lambda parts: parts[0].intersection(*parts[1:]))
    return [[bound for bound in order if bound in each] for each in after]


def _monotone_bound(
    code: Sequence[Instruction],
    args: Sequence[RowArgument],
    columns: ReadColumns,
    growing: Mapping[int, int],
) -> RowBound | None:
    """Return the condition as a monotone bound, or None if monotonicity cannot be proved."""
    needed = {(number, nth) for kind, number, nth, _ in args if kind == k.FIRST_ROW}
    needed |= {(growing[number], 0) for kind, number, *_ in args if kind == k.TOTAL and number in growing}
    if len(needed) > 1 or not _is_eligible(args):
        return None
    # most conditions read a column that keeps no order, which its first rows show
    if any(op == f.COLUMN and b >= 0 and _is_at_hand(args[a]) and columns.value(b) is None for op, a, b in code):
        return None
    interpreter = _DirectionInterpreter(args, columns, growing)
    instructions: list[Instruction] = []
    for op, a, b in code:
        handler = _HANDLERS.get(op)
        instruction = None if handler is None else handler(interpreter, op, a, b)
        if instruction is None:
            return None
        instructions.append(instruction)
    arguments = tuple((k.NEXT_ROW, 0, 0, 0) if _is_at_hand(arg) else arg for arg in args)
    return RowBound(tuple(instructions), arguments, *needed)


def _is_at_hand(arg: RowArgument) -> bool:
    """Return True for the row that the condition is tested of."""
    kind, _, _, offset = arg
    return kind == k.AT_HAND and offset == 0


def _is_eligible(args: Sequence[RowArgument]) -> bool:
    """Return True if a condition reads the row at hand, or a total, and else only rows that stay the same."""
    kinds = {kind for kind, *_ in args}
    moves = k.TOTAL in kinds or any(map(_is_at_hand, args))
    reads_around = any(kind == k.AT_HAND and offset for kind, _, _, offset in args)
    return moves and not reads_around and not kinds & {k.LAST_CLASS, k.FIRST_CLASS, k.BEST_ROW}


class _DirectionInterpreter:
    """Abstract interpreter of a condition: its stack holds the direction and the range of each value.

    Each method takes an instruction and returns the one of the bound in its place, or None if the condition is no
    monotone bound.

    Parameters
    ----------
    args, columns, growing
        As of `bounds_after`.
    """

    def __init__(self, args: Sequence[RowArgument], columns: ReadColumns, growing: Mapping[int, int]) -> None:
        self._args, self._columns, self._growing = args, columns, growing
        self._stack: list[_OnStack] = []

    def push_column(self, op: int, a: int, b: int) -> Instruction | None:
        """Push a column of a row, or a total."""
        kind, number, *_ = self._args[a]
        at_hand = _is_at_hand(self._args[a])
        value = None
        if kind == k.TOTAL:
            value = _Value(1, 0, GREATEST) if number in self._growing else None
        elif b >= 0:
            value = self._columns.value(b) if at_hand else self._columns.constant(b)
        self._stack.append(value)
        return None if at_hand and value is None else (op, a, b)

    def push_constant(self, op: int, a: int, b: int) -> Instruction:
        """Push both halves of a constant."""
        self._stack.append((self._columns.constants[a], self._columns.constants[b]))
        return op, a, b

    def convert(self, op: int, a: int, b: int) -> Instruction:
        """Convert the value on top to another type; TO_WIDE multiplies it by `a`."""
        value = (_wide_value if op == f.WIDE_TO_FLOAT else _integer)(self._stack.pop())
        if op == f.TO_WIDE:
            value = None if value is None or a <= 0 else replace(value, low=value.low * a, high=value.high * a)
        elif value is not None:
            value = replace(value, low=float(value.low), high=float(value.high))
        self._stack.append(value)
        return op, a, b

    def compare(self, op: int, a: int, b: int) -> Instruction | None:
        """Replace two values by their comparison, whose value is unknown."""
        y, x = self._stack.pop(), self._stack.pop()
        self._stack.append(None)
        operator = _monotone_operator(op, a, b, x, y)
        return None if operator is None else (op, operator, b)

    def connect(self, op: int, a: int, b: int) -> Instruction:
        """Replace two truths by their conjunction or disjunction."""
        self._stack.pop()
        return op, a, b

    def combine(self, op: int, a: int, b: int) -> Instruction:
        """Replace two numbers by their sum, difference or product."""
        y, x = self._stack.pop(), self._stack.pop()
        self._stack.append(_combined(op, a, x, y))
        return op, a, b


_HANDLERS: dict[int, Callable[[_DirectionInterpreter, int, int, int], Instruction | None]] = {
    f.COLUMN: _DirectionInterpreter.push_column,
    f.CONSTANT: _DirectionInterpreter.push_constant,
    **dict.fromkeys((f.TO_FLOAT, f.WIDE_TO_FLOAT, f.TO_WIDE), _DirectionInterpreter.convert),
    **dict.fromkeys(_COMPARE, _DirectionInterpreter.compare),
    **dict.fromkeys((f.AND, f.OR), _DirectionInterpreter.connect),
    **dict.fromkeys((f.TWO_INTEGERS, f.TWO_FLOATS, f.TWO_WIDE), _DirectionInterpreter.combine),
}
"""Handler of each instruction that a monotone bound may have."""


def _integer(value: _OnStack) -> _Value | None:
    """Return a value as an integer, if it is a constant."""
    return _Value(0, value[0], value[0]) if isinstance(value, tuple) else value


def _float(value: _OnStack) -> _Value | None:
    if not isinstance(value, tuple):
        return value
    number = float(np.array([value[0]], np.int64).view(np.float64)[0])
    return _Value(0, number, number) if math.isfinite(number) else None


def _wide_value(value: _OnStack) -> _Value | None:
    if not isinstance(value, tuple):
        return value
    number = (value[1] << 64) + (value[0] & (1 << 64) - 1)
    return _Value(0, number, number)


def _combined(op: int, a: int, x: _OnStack, y: _OnStack) -> _Value | None:
    """Return a sum, a difference or a product of two values, or None if it keeps no order or may not fit."""
    read = {f.TWO_INTEGERS: _integer, f.TWO_FLOATS: _float, f.TWO_WIDE: _wide_value}[op]
    x, y = read(x), read(y)
    if x is None or y is None or a not in (PLUS, MINUS, TIMES):
        return None
    if a == TIMES:
        if y.low != y.high:
            x, y = y, x
        if y.low != y.high or y.direction:
            return None
        x = x if y.low >= 0 else -x
        result = _Value(x.direction, x.low * abs(y.low), x.high * abs(y.low))
    else:
        y = -y if a == MINUS else y
        if x.direction * y.direction < 0:
            return None
        result = _Value(x.direction or y.direction, x.low + y.low, x.high + y.high)
    if op == f.TWO_FLOATS:
        return result if math.isfinite(result.low) and math.isfinite(result.high) else None
    least, greatest = (-(2**127), 2**127 - 1) if op == f.TWO_WIDE else (LEAST, GREATEST)
    return result if least <= result.low <= result.high <= greatest else None


def _monotone_operator(op: int, a: int, negated: int, x: _OnStack, y: _OnStack) -> int | None:
    """Return the operator of a comparison as a monotone one, or None if it is not monotone.

    Equal values are at most, and at least, as great as one another: of these two one may be a bound.
    """
    left = {f.COMPARE_FLOATS: _float, f.COMPARE_MIXED: _float, f.COMPARE_WIDE: _wide_value}.get(op, _integer)
    right = {f.COMPARE_FLOATS: _float, f.COMPARE_MIXED: _wide_value, f.COMPARE_WIDE: _wide_value}.get(op, _integer)
    x, y = left(x), right(y)
    if x is None or y is None:
        return None
    rises = x.direction >= 0 >= y.direction  # x - y does not decrease
    sinks = x.direction <= 0 <= y.direction
    if a == COMPARISONS.index("=") and not negated and (rises or sinks):
        return COMPARISONS.index("<=" if rises else ">=")
    is_bound = sinks if (a in _LESS) == bool(negated) else rises
    return a if a in _LESS.keys() | _MORE.keys() and is_bound else None
