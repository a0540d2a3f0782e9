"""Lengths of time such as ``5 MINUTES``, compared with differences of two times of an event."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Bools
from cer_gpu.ceql import syntax as s
from cer_gpu.columnar.columns import MOMENT, Block, kind_of
from cer_gpu.columnar.moments import has_zone
from cer_gpu.predicates.interpreter import OPERATORS

LENGTH_HINT = "it is compared with a column of durations, or with the difference of two times: y.ts - x.ts <= 5 MINUTES"


def length_of(expression: s.Expression) -> Fraction | None:
    """Return the seconds of a length of time, with or without a sign; None for any other expression."""
    if isinstance(expression, s.Negative):
        inner = length_of(expression.operand)
        return None if inner is None else -inner
    return expression.length if isinstance(expression, s.Duration) else None


def is_length(later: pa.DataType, earlier: pa.DataType) -> bool:
    """Return True if the difference of two types is a length of time."""
    if pa.types.is_duration(later) or pa.types.is_duration(earlier):
        return bool(pa.types.is_duration(later) and pa.types.is_duration(earlier))
    same = pa.types.is_time(later) == pa.types.is_time(earlier) and has_zone(later) == has_zone(earlier)
    return kind_of(later) == kind_of(earlier) == MOMENT and same


def difference_rows(
    op: str, names: tuple[str, str], units: tuple[Fraction, Fraction], length: Fraction, negated: bool, block: Block
) -> Bools:
    """Return the rows where the difference of two times (in units per second) is ``op`` a length, exactly."""
    finer = math.lcm(*(unit.numerator for unit in units))
    factors = [int(finer / unit) for unit in units]
    op, bound, never_equal = with_integer(op, length * finer)
    columns = [block.numbers(name).astype(np.int64) for name in names]
    most = sum(_greatest(column) * factor for column, factor in zip(columns, factors, strict=True))
    if max(most, abs(bound)) >= 2**63:  # rare: Python's integers do not wrap around
        columns = [column.astype(object) for column in columns]
    rows: Bools = np.full(block.n_rows, op == "<>", np.bool_)
    if not never_equal:
        rows = OPERATORS[op](columns[0] * factors[0] - columns[1] * factors[1], bound).astype(np.bool_)
    rows = np.not_equal(rows, negated)
    for name in names:
        valid = block.valid(name)
        rows = rows if valid is None else rows & valid
    return rows


def _greatest(column: npt.NDArray[np.int64]) -> int:
    """Return the greatest absolute value."""
    return max(int(column.max()), -int(column.min())) if len(column) else 0


def with_integer(op: str, bound: Fraction) -> tuple[str, int, bool]:
    """Return operator and integer to compare integers with instead of a bound, and True if no integer can equal it."""
    whole = bound.denominator == 1
    if not whole:
        op = {"<": "<=", ">=": ">"}.get(op, op)  # x < 2.5 is x <= 2, x >= 2.5 is x > 2
    return op, bound.numerator // bound.denominator, not whole and op in ("=", "<>")
