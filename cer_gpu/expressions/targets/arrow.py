"""Target Arrow: arithmetic between the columns of measures, typed as Arrow types it.

The values are those of filters (docs/reference/ceql_predicates.md, "Numbers"), but that a result which does not fit
its type is an error: nobody should read a sum that has wrapped around.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.ceql import syntax as s
from cer_gpu.columnar.columns import (
    DECIMAL,
    FLOAT,
    INTEGER,
    NOTHING,
    STRING,
    TEMPORAL,
    codes_of,
    is_string,
    kind_of,
    numbers_of,
    plain_strings,
    validity,
)
from cer_gpu.errors import EventsError
from cer_gpu.expressions.combinations import RowsOperand, Uniform, Varying, coded_numbers, distinct_results
from cer_gpu.expressions.operators import FUNCTIONS, OPERATORS, Function
from cer_gpu.expressions.string_functions import A_VALUE, KIND_OF_OPERAND, StringFunction
from cer_gpu.expressions.terms import F8, I8

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
    kind = _arrow_kind(operand)
    if kind not in (INTEGER, FLOAT, DECIMAL, NOTHING):
        raise ArithmeticTypeError(f"arithmetic needs numbers, and not {operand.type}")
    if kind == INTEGER and not pa.types.is_duration(operand.type):
        operand = _compute_array(lambda x: x.cast(pa.int64()), operand)
    return operand if kind == NOTHING else _compute_array(OPERATORS["negative"].exact, operand)


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
    if op in FUNCTIONS:
        return _call(op, *operands)
    left, right = operands
    kinds = {_arrow_kind(left), _arrow_kind(right)}
    timed = TEMPORAL in kinds or any(pa.types.is_duration(x.type) for x in operands)
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
    operator: Any = OPERATORS[op]
    if FLOAT in kinds or (DECIMAL in kinds and operator.exact is None):
        return operator.of[F8].arrow(left.cast(pa.float64()), right.cast(pa.float64()))
    if DECIMAL in kinds:
        return _compute_array(operator.exact, left, right)
    return _compute_array(
        operator.of[I8].arrow, *(_compute_array(lambda x: x.cast(pa.int64()), x) for x in (left, right))
    )


def _of_times(op: str, left: Any, right: Any) -> Any:
    """Return the sum or difference of times and durations, or a duration times or divided by an integer."""
    exact = OPERATORS[op].exact
    if exact is None or (op == "/" and not pa.types.is_integer(right.type)):
        raise pa.ArrowTypeError(op)
    result = exact(*(x.cast(pa.int64()) if pa.types.is_integer(x.type) else x for x in (left, right)))
    if kind_of(result.type) not in (INTEGER, TEMPORAL) or pa.types.is_integer(result.type):
        raise pa.ArrowTypeError(op)
    return result


def _null_like(left: Any, right: Any) -> Any:
    data_type = next((x.type for x in (left, right) if not pa.types.is_null(x.type)), pa.null())
    array = next((x for x in (left, right) if not isinstance(x, pa.Scalar)), None)
    return pa.scalar(None, data_type) if array is None else pa.nulls(len(array), data_type)


def _call(function: str, *operands: Any) -> Any:
    """Return a scalar function, as filters compute it."""
    if all(isinstance(operand, pa.Scalar) for operand in operands):
        return _call(function, *(pa.repeat(operand, 1) for operand in operands))[0]
    definition, operand = FUNCTIONS[function], operands[0]
    if isinstance(definition, StringFunction):
        return _of_several(definition, operands)
    if _arrow_kind(operand) == NOTHING:
        return operand
    if not definition.takes(operand.type):
        raise ArithmeticTypeError(f"{function} takes {definition.expected}, and not {operand.type}")
    return definition.arrow(_second_operand(definition, operands[1:]), operand.type)(operand)


def _second_operand(function: Function, operands: Sequence[Any]) -> int:
    """Return the digits after the point, or the number of a unit."""
    if not operands:
        return 0
    value = (operands[0] if isinstance(operands[0], pa.Scalar) else operands[0][0]).as_py()
    if not function.units:
        return int(value)
    if str(value).lower() not in function.units:
        raise ArithmeticTypeError(f"{function.symbol} takes one of the units {', '.join(function.units)}")
    return function.units.index(str(value).lower())


def _of_several(function: StringFunction, operands: Sequence[Any]) -> Any:
    """Return a function of several values, at least one of which is an array."""
    read: list[RowsOperand] = []
    n = next(len(operand) for operand in operands if not isinstance(operand, pa.Scalar))
    for operand, kind in zip(operands, function.kinds(len(operands)), strict=True):
        if _arrow_kind(operand) == NOTHING:
            return pa.nulls(n, function.type)
        if kind == A_VALUE and _arrow_kind(operand) != STRING:
            operand = _call("string", operand)
        if _arrow_kind(operand) != KIND_OF_OPERAND[kind]:
            raise ArithmeticTypeError(f"{function.symbol} takes {kind} there, and not {operand.type}")
        read.append(_operand(operand))
    results, codes = distinct_results(function.compute, read, function.type)
    return results.take(codes)


def _operand(operand: Any) -> RowsOperand:
    if isinstance(operand, pa.Scalar):
        return Uniform(operand.as_py())
    valid = validity(operand)
    if is_string(operand.type):
        coded = operand.dictionary_encode()
        return Varying(codes_of(coded, valid), plain_strings(coded.dictionary), valid)
    return coded_numbers(numbers_of(operand), valid)


def _arrow_kind(value: Any) -> str | None:
    return kind_of(value.type)


def _compute_array(function: Any, *operands: Any) -> Any:
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
