"""Arithmetic on integers, exact: in 64 bits where all results fit, by the types of the operands; else in 128 bits.

An int8 plus an int16 never leaves int64, nor does an int64 divided by 10: such terms are `I8`.  The sum of two int64
may, and is `WIDE`.  A term that may leave even 128 bits (the product of three int64) is marked (`Apply.beyond`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.columnar.clocks import has_zone
from cer_gpu.columnar.columns import TEMPORAL, kind_of
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.inputs import Inputs, Operand
from cer_gpu.expressions.numbers import quotient_of, remainder_of, to_float
from cer_gpu.expressions.operators import spelling

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
    return kind_of(later) == kind_of(earlier) == TEMPORAL and same


def with_integer(op: str, bound: Fraction) -> tuple[str, int, bool]:
    """Return operator and integer to compare integers with instead of a bound, and True if no integer can equal it."""
    whole = bound.denominator == 1
    if not whole:
        op = {"<": "<=", ">=": ">"}.get(op, op)  # x < 2.5 is x <= 2, x >= 2.5 is x > 2
    return op, bound.numerator // bound.denominator, not whole and op in ("=", "<>")


IntegerEnds = tuple[int, int]
"""The least and the greatest value that an integer may have."""

InputsOf = Callable[[object], Inputs]
"""Inputs of a value of an event (`OfEvent.event`), or of None: those of the filter."""

_INT64: IntegerEnds = (-(2**63), 2**63 - 1)
_WIDE: IntegerEnds = (-(2**127), 2**127 - 1)


def apply_operator(op: str, operands: Sequence[Operand], dtype: str, inputs: Inputs, inputs_of: InputsOf) -> Operand:
    """Return an operator on numbers; NULL if an operand is NULL, or constants are divided by 0.

    Parameters
    ----------
    op
    operands
        Terms, and constants of the query.
    dtype
        `F8` or `I8`: floats or integers.
    inputs
        Those to which constants are added.
    inputs_of
    """
    if None in operands:
        return None
    if not any(isinstance(operand, t.Value) for operand in operands):
        return _of_constants(op, operands, dtype)
    if dtype == t.F8:
        return t.Apply(op, tuple(float_term(inputs, operand) for operand in operands))
    of = [ends_of(operand, inputs_of) for operand in operands]
    ends = _result_ends(op, of)
    if all(_lies_in(each, _INT64) for each in (*of, ends)):
        small = (x if isinstance(x, t.Value) else inputs.constant(x, t.I8) for x in operands)
        terms = tuple(small)
        if all(term.dtype == t.I8 for term in terms):
            return t.Apply(op, terms)
    wide = tuple(wide_term(inputs, operand) for operand in operands)
    return t.Apply(op, wide, beyond=any(map(t.goes_beyond, wide)) or not _lies_in(ends, _WIDE))


def _of_constants(op: str, constants: Sequence[Operand], dtype: str) -> Operand:
    """Return an operator on constants: integers as they are, of any size."""
    if dtype == t.F8:
        with np.errstate(all="ignore"):
            result = spelling(op, t.F8).numpy(*(to_float(constant) for constant in constants))
            return np.asarray(result).item()  # type: ignore[no-any-return]
    x, y = (int(constant) for constant in (*constants, 0)[:2])  # type: ignore[arg-type]
    if op in ("/", "%"):
        return None if y == 0 else quotient_of(x, y) if op == "/" else remainder_of(x, y)
    return {"+": x + y, "-": x - y, "*": x * y, "negative": -x, "abs": abs(x)}[op]


def ends_of(value: Operand, inputs_of: InputsOf, event: object = None) -> IntegerEnds:
    """Return the ends of an integer, as far as types and constants determine them."""
    match value:
        case int():
            return value, value
        case t.Column(stored=t.BIT):
            return 0, 1
        case t.Column():
            info = np.iinfo(value.stored)
            return int(info.min), int(info.max)
        case t.Constant():
            number = int(inputs_of(event).constants[value.dtype][value.slot])
            return number, number
        case t.OfEvent():
            return ends_of(value.operand, inputs_of, value.event)
        case t.ToWide():
            low, high = ends_of(value.operand, inputs_of, event)
            return low * value.factor, high * value.factor
        case t.Apply():
            return _result_ends(value.op, [ends_of(operand, inputs_of, event) for operand in value.operands])
    raise AssertionError(value)


def _lies_in(ends: IntegerEnds, of: IntegerEnds) -> bool:
    return of[0] <= ends[0] and ends[1] <= of[1]


def _result_ends(op: str, of: Sequence[IntegerEnds]) -> IntegerEnds:
    """Return the range of the results of an operator from the ranges of its operands."""
    (low, high), (least, greatest) = (*of, (0, 0))[:2]
    farthest = max(-low, high, 0)
    if op == "negative":
        return -high, -low
    if op == "abs":
        return 0, farthest
    if op == "+":
        return low + least, high + greatest
    if op == "-":
        return low - greatest, high - least
    if op == "*":
        corners = [x * y for x in (low, high) for y in (least, greatest)]
        return min(corners), max(corners)
    if op == "/":
        if least > 0:  # toward zero
            return quotient_of(low, least if low < 0 else greatest), quotient_of(high, least if high > 0 else greatest)
        return -farthest, farthest
    assert op == "%"
    return (0 if low >= 0 else low), (0 if high <= 0 else high)


# ---- numbers of unlike types made one type ----------------------------------------------------------------------


def compare_scaled(op: str, x: t.Value, x_factor: int, y: t.Value, y_factor: int, negated: bool) -> t.BoundPredicate:
    """Return ``x * x_factor op y * y_factor`` of integers, or its negation, compared exactly."""
    if x_factor == y_factor and x.dtype == y.dtype:
        return t.Compare(op, x, y, negated)
    return t.Compare(op, _scale(x, x_factor), _scale(y, y_factor), negated)


def _scale(x: t.Value, factor: int) -> t.Value:
    """Return an integer times a factor as a wide integer."""
    return x if x.dtype == t.WIDE and factor == 1 else t.ToWide(x, factor)


def wide_term(inputs: Inputs, x: Any) -> t.Value:
    """Return a constant, or the term of an integer, as the term of a wide integer."""
    return _scale(x, 1) if isinstance(x, t.Value) else inputs.constant(x, t.WIDE)


def float_term(inputs: Inputs, x: Any) -> t.Value:
    """Return a constant, or the term of a number, as the term of a float64."""
    if not isinstance(x, t.Value):
        return inputs.constant(float(x), t.F8)
    return x if x.dtype == t.F8 else _coerce_operand(t.ToFloat, x)


def _coerce_operand(coercion: Callable[[t.Value], t.Value], x: t.Value) -> t.Value:
    """Return a value in another type; one of several events, within the event."""
    return t.OfEvent(x.event, coercion(x.operand)) if isinstance(x, t.OfEvent) else coercion(x)


def exact_value(expression: s.Expression) -> Fraction | None:
    """Return the exact value of a numeric literal, with or without a sign; None for any other expression."""
    if isinstance(expression, s.Negative):
        inner = exact_value(expression.operand)
        return None if inner is None else -inner
    if isinstance(expression, s.Literal) and isinstance(expression.value, int | float):
        return None if isinstance(expression.value, bool) else Fraction(expression.text)
    return None
