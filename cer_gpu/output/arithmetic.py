"""Arithmetic between the columns of measures, typed as Arrow types it, and as filters define it (docs/language.md).

Integers are int64, and a result that needs more is an error.  Integers divided by zero are NULL, and their quotient is
truncated toward zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.ceql import syntax as s
from cer_gpu.columnar.columns import DECIMAL, FLOAT, INTEGER, MOMENT, NOTHING, kind_of
from cer_gpu.errors import EventsError
from cer_gpu.predicates.functions import FUNCTIONS, compute
from cer_gpu.predicates.numbers import INTEGER_ARITHMETIC

_CHECKED = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": pc.divide,
}
_FLOATS = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}
_INT64 = range(-(2**63), 2**63)


class ArithmeticTypeError(Exception):
    """An operation between types that has no meaning."""


def of_literal(literal: s.Literal | s.Duration) -> pa.Scalar:
    """Return a literal as Arrow's scalar; a length of time is a duration in the coarsest unit that holds it."""
    if isinstance(literal, s.Duration):
        for unit, per_second in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
            length = literal.length * per_second
            if length.denominator == 1 and int(length) in _INT64:
                return pa.scalar(int(length), pa.duration(unit))
        raise ArithmeticTypeError("a length of time that no duration holds")
    value = literal.value
    if isinstance(value, int) and not isinstance(value, bool):
        return pa.scalar(value, pa.int64()) if value in _INT64 else pa.scalar(float(value))
    return pa.scalar(value)


def negative(operand: Any) -> Any:
    """Return ``-operand``."""
    kind = _kind(operand)
    if kind not in (INTEGER, FLOAT, DECIMAL, NOTHING):
        raise ArithmeticTypeError(f"arithmetic needs numbers, and not {operand.type}")
    if kind == INTEGER and not pa.types.is_duration(operand.type):
        operand = operand.cast(pa.int64())
    return operand if kind == NOTHING else _checked(pc.negate_checked, operand)


def operation(op: str, *operands: Any) -> Any:
    """Return ``left op right``, or a scalar function of its operands.

    Parameters
    ----------
    op
        One of ``+ - * / %``, or the name of a function in lower case.
    operands
        Arrays of one length, or scalars.

    Raises
    ------
    ArithmeticTypeError
        When there is no such operation for their types.
    EventsError
        When a result does not fit its type.
    """
    if op not in "+-*/%":
        return _call(op, *operands)
    left, right = operands
    kinds = {_kind(left), _kind(right)}
    timed = MOMENT in kinds or any(pa.types.is_duration(x.type) for x in operands)
    try:
        if NOTHING in kinds:
            return _null_like(left, right)
        if timed:
            return _of_times(op, left, right)
        if kinds <= {INTEGER, FLOAT, DECIMAL}:
            return _of_numbers(op, left, right, kinds)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        pass
    except pa.ArrowInvalid as error:
        if "precision" not in str(error):
            raise _too_large(error) from None
    raise ArithmeticTypeError(f"there is no {left.type} {op} {right.type}")


def _of_numbers(op: str, left: Any, right: Any, kinds: set[str | None]) -> Any:
    if FLOAT in kinds or (DECIMAL in kinds and op == "%"):
        left, right = left.cast(pa.float64()), right.cast(pa.float64())
        return _remainder(left, right, np.fmod) if op == "%" else _FLOATS[op](left, right)
    if DECIMAL in kinds:
        if op == "/":
            right = pc.if_else(pc.equal(right, 0), pa.scalar(None, right.type), right)
        return _checked(_CHECKED[op], left, right)
    left, right = (_checked(lambda x: x.cast(pa.int64()), x) for x in (left, right))
    if op in "/%":
        return _remainder(left, right, INTEGER_ARITHMETIC[op])
    return _checked(_CHECKED[op], left, right)


def _of_times(op: str, left: Any, right: Any) -> Any:
    """Return the sum or difference of times and durations, or a duration times or divided by an integer."""
    if op == "%":
        raise pa.ArrowTypeError(op)
    if op == "/":
        if not pa.types.is_integer(right.type):
            raise pa.ArrowTypeError(op)
        right = right.cast(pa.int64())
        return pc.divide(left, pc.if_else(pc.equal(right, 0), pa.scalar(None, pa.int64()), right))
    operands = [x.cast(pa.int64()) if pa.types.is_integer(x.type) else x for x in (left, right)]
    found = _CHECKED[op](*operands)
    if kind_of(found.type) not in (INTEGER, MOMENT) or pa.types.is_integer(found.type):
        raise pa.ArrowTypeError(op)
    return found


def _remainder(left: Any, right: Any, function: Any) -> Any:
    """Return a function of NumPy over values; integers divided by zero are NULL."""
    n = next((len(x) for x in (left, right) if not isinstance(x, pa.Scalar)), None)
    x, y = (pa.repeat(each, 1 if n is None else n) if isinstance(each, pa.Scalar) else each for each in (left, right))
    valid = np.asarray(pc.and_(x.is_valid(), y.is_valid()))
    xs, ys = (each.fill_null(0).to_numpy(zero_copy_only=False) for each in (x, y))
    if pa.types.is_integer(left.type):
        valid = valid & (ys != 0)
    with np.errstate(all="ignore"):
        found = pa.array(function(xs, ys), left.type, mask=~valid)
    return found if n is not None else found[0]


def _null_like(left: Any, right: Any) -> Any:
    known = next((x.type for x in (left, right) if not pa.types.is_null(x.type)), pa.null())
    array = next((x for x in (left, right) if not isinstance(x, pa.Scalar)), None)
    return pa.scalar(None, known) if array is None else pa.nulls(len(array), known)


def _call(function: str, operand: Any, digits: Any = None) -> Any:
    """Return a scalar function, as filters compute it."""
    if isinstance(operand, pa.Scalar):
        return _call(function, pa.repeat(operand, 1), digits)[0]
    known = FUNCTIONS[function]
    if _kind(operand) == NOTHING:
        return operand
    if not known.takes(operand.type):
        raise ArithmeticTypeError(f"{function} takes {known.expected}, and not {operand.type}")
    return compute(function, 0 if digits is None else digits.as_py(), operand.type)(operand)


def _kind(value: Any) -> str | None:
    return kind_of(value.type)


def _checked(function: Any, *operands: Any) -> Any:
    try:
        return function(*operands)
    except pa.ArrowInvalid as error:
        if "precision" in str(error).lower():
            raise
        raise _too_large(error) from None


def _too_large(error: Exception) -> EventsError:
    return EventsError(f"the value of a measure does not fit its type: {error}")


def exact_sum(counts: pa.Array | pa.ChunkedArray) -> int:
    """Return the sum of int64 values, which may be more than int64 holds."""
    return int(pc.sum(counts.cast(pa.decimal128(38, 0))).as_py() or 0)
