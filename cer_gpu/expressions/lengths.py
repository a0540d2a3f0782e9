"""Lengths of time such as ``5 MINUTES``, compared with differences of two times of an event."""

from __future__ import annotations

from fractions import Fraction

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.columnar.clocks import has_zone
from cer_gpu.columnar.columns import MOMENT, kind_of

LENGTH_HINT = "it is compared with a column of durations, or with the difference of two times: y.ts - x.ts <= 5 MINUTES"


def length_of(expression: s.Expression) -> Fraction | None:
    """Return the seconds of a length of time, with or without a sign; None for any other expression."""
    if isinstance(expression, s.Negative):
        inner = length_of(expression.operand)
        return None if inner is None else -inner
    return expression.length if isinstance(expression, s.Duration) else None


def differ_by_length(later: pa.DataType, earlier: pa.DataType) -> bool:
    """Return True if the difference of two types is a length of time."""
    if pa.types.is_duration(later) or pa.types.is_duration(earlier):
        return bool(pa.types.is_duration(later) and pa.types.is_duration(earlier))
    same = pa.types.is_time(later) == pa.types.is_time(earlier) and has_zone(later) == has_zone(earlier)
    return kind_of(later) == kind_of(earlier) == MOMENT and same


def with_integer(op: str, bound: Fraction) -> tuple[str, int, bool]:
    """Return operator and integer to compare integers with instead of a bound, and True if no integer can equal it."""
    whole = bound.denominator == 1
    if not whole:
        op = {"<": "<=", ">=": ">"}.get(op, op)  # x < 2.5 is x <= 2, x >= 2.5 is x > 2
    return op, bound.numerator // bound.denominator, not whole and op in ("=", "<>")
