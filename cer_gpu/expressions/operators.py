"""The operators of expressions and predicates: one record for each, with its spelling in every target.

A target is a way to compute: NumPy over the rows of a block, source for Numba or CUDA over one row, programs of joins
and row patterns (`cer_gpu.backend.joins.filters`), and Arrow for measures.  All of them give the same values, which
docs/reference/ceql_predicates.md defines ("Numbers"); tests/expressions holds each of them to Python's exact numbers.

A new operator is a record here, and for compiled code a function in `cer_gpu.backend.operations` and one in
``kernels/numbers.cuh``.  Functions of one event are columns that Arrow makes, or Python from distinct operands
(`cer_gpu.expressions.string_functions`); every target reads them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.backend import operations
from cer_gpu.columnar.columns import DECIMAL, FLOAT, INTEGER, is_string, kind_of
from cer_gpu.expressions import functions, numbers
from cer_gpu.expressions.string_functions import STRING_FUNCTIONS, StringFunction
from cer_gpu.expressions.terms import COMPARISONS, F8, I8, U8, WIDE

MIXED = "float and wide"
"""Operands of a comparison: a float64 at the left, and a wide integer."""


@dataclass(frozen=True)
class Spelling:
    """An operator on operands of one type, in each target.

    Attributes
    ----------
    numpy : callable
        Function of arrays or scalars, one for each operand.
    numba : str
        Expression of operands ``{x}`` and ``{y}``; a truth is a uint8, 0 or 1.
    cuda : str
        The same in CUDA C++; a truth is a bool.
    program : int or None
        Code within the instructions of a program for such operands, or None if they have it as an instruction of its
        own.
    arrow : callable or None
        Function of arrays or scalars, of measures; it refuses integers that do not fit.  None: Arrow has no such type.
    """

    numpy: Callable[..., Any]
    numba: str
    cuda: str
    program: int | None
    arrow: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Operator:
    """An operator on numbers, or a comparison.

    Attributes
    ----------
    symbol : str
        As it is written, but ``negative``.
    n_operands : int
    of : dict from str to Spelling
        By the type of the operands: `I8`, `U8`, `F8`, `WIDE` (of terms), or `MIXED`.
    exact : callable or None
        Function of Arrow for decimals and times, of measures, or None if there is none.
    null : str
        Operands for which a number is NULL, or a comparison is not TRUE, nor its negation.
    overflow : str
        The same where the exact integer may not fit 64 bits.
    """

    symbol: str
    n_operands: int
    of: Mapping[str, Spelling]
    exact: Callable[..., Any] | None = None
    null: str = "any operand is NULL"
    overflow: str = "none does"


@dataclass(frozen=True)
class Function:
    """A function of one value, and perhaps of a number of digits or a unit, which Arrow computes for a column at once.

    Attributes
    ----------
    symbol : str
        Name, in lower case.
    expected : str
        Values that it takes, for messages.
    takes : callable
        True for a type of its values.
    gives : callable
        Type of the result, from that of the values.
    arrow : callable
        Returns the function of an array without a dictionary, given the digits (of `round`), or the number of the unit
        (of `trunc`), else 0, and the type of its values.
    max_operands : int
    units : tuple of str
        Units that the second operand may name; empty: it is a number of digits.
    of : dict from str to Spelling
        As of `Operator`, for functions one call of which may read several events, as ``abs(b.x - a.x)``.
    """

    symbol: str
    expected: str
    takes: Callable[[pa.DataType], bool]
    gives: Callable[[pa.DataType], pa.DataType]
    arrow: Callable[[int, pa.DataType], functions.Compute]
    max_operands: int = 1
    units: tuple[str, ...] = ()
    of: Mapping[str, Spelling] = field(default_factory=dict)


_WIDENS = "the operands are wide, by their types; in a measure it is an error"
_BY_ZERO = "any operand is NULL, or an integer is divided by 0"


_WIDE_COMPARED = {
    "=": "B(wide_equal({x}, {y}))",
    "<>": "B(not wide_equal({x}, {y}))",
    "<": "B(wide_less({x}, {y}))",
    "<=": "B(not wide_less({y}, {x}))",
    ">": "B(wide_less({y}, {x}))",
    ">=": "B(not wide_less({x}, {y}))",
}
"""Comparisons of wide integers for Numba."""


def _comparison_operator(
    symbol: str, holds: Callable[[Any, Any], Any], device: str, arrow: Callable[..., Any]
) -> Operator:
    """Return a comparison, given as functions of Python, CUDA and Arrow."""
    code, written = COMPARISONS.index(symbol), {"=": "==", "<>": "!="}.get(symbol, symbol)
    cuda = f"{device}({{x}}, {{y}})"

    def of_mixed(x: Any, y: Any) -> Any:
        order = numbers.float_order(x, y)
        return np.where(order == 2, symbol == "<>", holds(order, 0))

    one_type = Spelling(holds, f"B({{x}} {written} {{y}})", cuda, code, arrow)
    wide = Spelling(partial(numbers.compare_wide, holds), _WIDE_COMPARED[symbol], cuda, code)
    mixed = Spelling(of_mixed, f"B(float_compared(I({code}), {{x}}, {{y}}))", cuda, code)
    return Operator(symbol, 2, {I8: one_type, U8: one_type, F8: one_type, WIDE: wide, MIXED: mixed})


def _arithmetic(
    symbol: str,
    numpy: Callable[..., Any],
    cuda: str,
    program: int,
    checked: Callable[..., Any],
    arrow: Callable[..., Any],
    wide: Spelling,
) -> Operator:
    """Return an operator that is spelled alike on all numbers; of integers Arrow has a function that checks it."""
    # Numba assumes that signed integers do not overflow, as those of NULL rows may; unsigned ones wrap around
    of = {
        I8: Spelling(numpy, f"I(U({{x}}) {symbol} U({{y}}))", cuda, program, checked),
        F8: Spelling(numpy, f"{{x}} {symbol} {{y}}", cuda, program, arrow),
        WIDE: wide,
    }
    return Operator(symbol, 2, of, exact=checked, overflow=_WIDENS)


_RECORDS: tuple[Operator | Function | StringFunction, ...] = (
    _comparison_operator("=", operator.eq, "cer_eq", pc.equal),
    _comparison_operator("<>", operator.ne, "cer_ne", pc.not_equal),
    _comparison_operator("<", operator.lt, "cer_lt", pc.less),
    _comparison_operator("<=", operator.le, "cer_le", pc.less_equal),
    _comparison_operator(">", operator.gt, "cer_gt", pc.greater),
    _comparison_operator(">=", operator.ge, "cer_ge", pc.greater_equal),
    _arithmetic(
        "+",
        operator.add,
        "cer_add({x}, {y})",
        operations.PLUS,
        pc.add_checked,
        pc.add,
        Spelling(numbers.wide_sums, "wide_sum({x}, {y})", "cer_add({x}, {y})", operations.PLUS),
    ),
    _arithmetic(
        "-",
        operator.sub,
        "cer_sub({x}, {y})",
        operations.MINUS,
        pc.subtract_checked,
        pc.subtract,
        Spelling(numbers.wide_differences, "wide_difference({x}, {y})", "cer_sub({x}, {y})", operations.MINUS),
    ),
    _arithmetic(
        "*",
        operator.mul,
        "cer_mul({x}, {y})",
        operations.TIMES,
        pc.multiply_checked,
        pc.multiply,
        Spelling(numbers.wide_products, "wide_times({x}, {y})", "cer_mul({x}, {y})", operations.TIMES),
    ),
    Operator(
        "/",
        2,
        {
            I8: Spelling(
                numbers.divide,
                "quotient({x}, {y})",
                "cer_div({x}, {y})",
                operations.DIVIDED,
                numbers.divide_integers,
            ),
            WIDE: Spelling(numbers.wide_quotients, "wide_quotient({x}, {y})", "cer_div({x}, {y})", operations.DIVIDED),
            F8: Spelling(operator.truediv, "{x} / {y}", "cer_div({x}, {y})", operations.DIVIDED, pc.divide),
        },
        exact=numbers.divide_exactly,
        null=_BY_ZERO,
        overflow=_WIDENS,
    ),
    Operator(
        "%",
        2,
        {
            I8: Spelling(
                numbers.remainder,
                "remainder({x}, {y})",
                "cer_mod({x}, {y})",
                operations.MODULO,
                partial(numbers.by_numpy, numbers.remainder),
            ),
            WIDE: Spelling(numbers.wide_remainders, "wide_remainder({x}, {y})", "cer_mod({x}, {y})", operations.MODULO),
            F8: Spelling(
                np.fmod, "fmod({x}, {y})", "cer_mod({x}, {y})", operations.MODULO, partial(numbers.by_numpy, np.fmod)
            ),
        },
        null=_BY_ZERO,
    ),
    Operator(
        "negative",
        1,
        {
            I8: Spelling(operator.neg, "I(U(0) - U({x}))", "cer_neg({x})", operations.NEGATIVE, pc.negate_checked),
            F8: Spelling(operator.neg, "-{x}", "cer_neg({x})", operations.NEGATIVE, pc.negate),
            WIDE: Spelling(numbers.wide_negatives, "wide_negative({x})", "cer_neg({x})", operations.NEGATIVE),
        },
        exact=pc.negate_checked,
        overflow=_WIDENS,
    ),
    Function(
        "abs",
        "a number or a duration",
        lambda t: kind_of(t) in (INTEGER, FLOAT, DECIMAL),
        functions.number_type,
        functions.absolute_value,
        of={
            I8: Spelling(np.abs, "absolute({x})", "cer_abs({x})", operations.ABSOLUTE),
            F8: Spelling(np.abs, "abs({x})", "cer_abs({x})", operations.ABSOLUTE),
            WIDE: Spelling(numbers.wide_absolutes, "wide_absolute({x})", "cer_abs({x})", operations.ABSOLUTE),
        },
    ),
    Function("round", "a number", functions.is_number, functions.rounded_type, functions.rounded, max_operands=2),
    Function("lower", "a text", is_string, functions.string_type, functions.of_strings(pc.utf8_lower)),
    Function("upper", "a text", is_string, functions.string_type, functions.of_strings(pc.utf8_upper)),
    Function("string", "a single value", functions.is_value, functions.string_type, functions.as_text),
    Function("length", "a text", is_string, functions.integer_type, functions.of_strings(pc.utf8_length)),
    *(
        Function(part, "a timestamp or a time of day", functions.is_clock, functions.integer_type, computed)
        for part, computed in (
            ("minute", functions.part_of_time(pc.minute)),
            ("hour", functions.part_of_time(pc.hour)),
        )
    ),
    *(
        Function(part, "a timestamp or a date", functions.is_date, functions.integer_type, computed)
        for part, computed in (
            ("day", functions.part_of_time(pc.day)),
            ("weekday", functions.part_of_time(pc.day_of_week)),
            ("week", functions.part_of_time(pc.iso_week)),
            ("month", functions.part_of_time(pc.month)),
            ("year", functions.year_of_time),
        )
    ),
    Function("date", "a timestamp or a date", functions.is_date, functions.day_type, functions.day_of_time),
    Function(
        "trunc",
        "a timestamp or a date",
        functions.is_date,
        functions.same_type,
        functions.beginning_of,
        max_operands=2,
        units=functions.TRUNC_UNITS,
    ),
    *STRING_FUNCTIONS,
)
OPERATORS: Mapping[str, Operator] = {each.symbol: each for each in _RECORDS if isinstance(each, Operator)}
"""Operators by their symbols."""
FUNCTIONS: Mapping[str, Function | StringFunction] = {
    each.symbol: each for each in _RECORDS if not isinstance(each, Operator)
}
"""Functions by their names."""


def spelling(symbol: str, dtype: str) -> Spelling:
    """Return an operator, or a function of several events, on operands of a type."""
    return (OPERATORS[symbol] if symbol in OPERATORS else FUNCTIONS[symbol]).of[dtype]


def compare_type(left: str, right: str) -> str:
    """Return the key of `Operator.of` for a comparison of two types of terms."""
    return left if left == right else MIXED
