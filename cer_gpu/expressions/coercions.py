"""Numbers of unlike types made one type: exact comparisons of scaled integers, and constants as terms."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from cer_gpu.ceql import syntax as s
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.inputs import Inputs


def compare_scaled(op: str, x: t.Value, x_factor: int, y: t.Value, y_factor: int, negated: bool) -> t.Test:
    """Return ``x * x_factor op y * y_factor`` of integers, or its negation, compared exactly."""
    if x_factor == y_factor and x.dtype == y.dtype:
        return t.Compare(op, x, y, negated)
    return t.Compare(op, _scaled(x, x_factor), _scaled(y, y_factor), negated)


def _scaled(x: t.Value, factor: int) -> t.Value:
    """Return an integer times a factor as a wide integer."""
    return x if x.dtype == t.WIDE and factor == 1 else t.ToWide(x, factor)


def wide_term(inputs: Inputs, x: Any) -> t.Value:
    """Return a constant, or the term of an integer, as the term of a wide integer."""
    return _scaled(x, 1) if isinstance(x, t.Value) else inputs.constant(x, t.WIDE)


def float_term(inputs: Inputs, x: Any) -> t.Value:
    """Return a constant, or the term of a number, as the term of a float64."""
    if not isinstance(x, t.Value):
        return inputs.constant(float(x), t.F8)
    return x if x.dtype == t.F8 else _coerced(t.ToFloat, x)


def _coerced(coercion: Callable[[t.Value], t.Value], x: t.Value) -> t.Value:
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
