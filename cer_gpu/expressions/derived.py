"""Derived columns: what functions, ``LAG`` and aggregates over the past in predicates stand for.

They are made from the events before the predicates.  Every function over one event, every ``LAG`` and every aggregate
``OVER`` the past becomes an attribute of its own, which all ways to evaluate a predicate read as an ordinary column.
The same expression is one column, wherever it stands.
The positions of events, which windows of EVENTS within a pattern compare, are one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import DESCENDANT
from cer_gpu.ceql.traversal import children, fold, walk, with_children
from cer_gpu.ceql.variables import of_event
from cer_gpu.columnar.columns import (
    BOOLEAN,
    DECIMAL,
    FLOAT,
    INTEGER,
    MOMENT,
    NOTHING,
    STRING,
    Block,
    is_string,
    kind_of,
    plain_type,
)
from cer_gpu.columnar.moments import has_zone
from cer_gpu.errors import EventsError, did_you_mean
from cer_gpu.expressions.calls import CallColumn, call_of_several
from cer_gpu.expressions.combinations import OfOneText
from cer_gpu.expressions.derived_names import derived_name, is_derived, text_of_operand
from cer_gpu.expressions.functions import MAX_DIGITS
from cer_gpu.expressions.inputs import ExpressionBinder, Inputs
from cer_gpu.expressions.operators import FUNCTIONS, Function
from cer_gpu.expressions.over_aggregates import OverColumn, past_column, past_name
from cer_gpu.expressions.targets.numpy import values_of
from cer_gpu.expressions.terms import MIRRORED, Value
from cer_gpu.expressions.text_functions import NOCASE, TextFunction

MAX_DERIVED_LAG = 1_000_000
"""Most events that LAG goes back: so many values are kept, for each key of PARTITION BY that has as many events."""

Maker = Callable[[Block], pa.Array]


@dataclass(frozen=True)
class FunctionColumn:
    """A function of a column, or of a number computed from columns.

    Attributes
    ----------
    function : str
        Name in `FUNCTIONS`.
    digits : int
        Digits after the point, of `round`.
    operand : str or (Value, Inputs)
        Column, or number with its inputs.
    operand_type : pyarrow.DataType
        Type of the operand's values.
    type : pyarrow.DataType
        Type of the results; texts are a dictionary.
    """

    function: str
    digits: int
    operand: str | tuple[Value, Inputs]
    operand_type: pa.DataType
    type: pa.DataType

    def maker(self) -> Maker:
        """Return a function that makes the column of a block, for the blocks of one stream."""
        if pa.types.is_null(self.operand_type):
            return lambda block: pa.nulls(block.n_rows)
        made, operand = _single(self.function).arrow(self.digits, self.operand_type), self.operand
        if not isinstance(operand, str):
            return lambda block: made(_term_array(*operand, block))
        if is_string(self.operand_type):
            return OfOneText(operand, made)
        return lambda block: made(block.array(operand))


@dataclass(frozen=True)
class LagColumn:
    """The values that an attribute had `n` events before in the stream, or in the substream of PARTITION BY."""

    attribute: str
    n: int
    type: pa.DataType


@dataclass(frozen=True)
class PositionColumn:
    """The number of the event in the stream, or in the substream of PARTITION BY; only differences have a meaning."""

    type: pa.DataType = field(default_factory=pa.int64)


DerivedColumn = FunctionColumn | CallColumn | LagColumn | OverColumn | PositionColumn


def _single(name: str) -> Function:
    """Return a function of one value."""
    function = FUNCTIONS[name]
    assert isinstance(function, Function)
    return function


def makers_of(columns: Mapping[str, DerivedColumn]) -> dict[str, Maker]:
    """Return the functions that make columns of functions from a block."""
    return {name: column.maker() for name, column in columns.items() if isinstance(column, FunctionColumn | CallColumn)}


def lags_of(columns: Mapping[str, DerivedColumn]) -> dict[str, LagColumn]:
    """Return the columns of earlier events, by name."""
    return {name: column for name, column in columns.items() if isinstance(column, LagColumn)}


def has_positions(columns: Mapping[str, DerivedColumn]) -> bool:
    """Return True if the positions of events are a column."""
    return any(isinstance(column, PositionColumn) for column in columns.values())


def pasts_of(columns: Mapping[str, DerivedColumn]) -> dict[str, OverColumn]:
    """Return the aggregates over the past, by name."""
    return {name: column for name, column in columns.items() if isinstance(column, OverColumn)}


def reads_one_event(column: DerivedColumn) -> bool:
    """Return True for a column that is made of the columns of the same event alone."""
    return isinstance(column, FunctionColumn | CallColumn)


def is_descent(column: DerivedColumn) -> bool:
    """Return True for a column that tells of processes, and depends on no clause of the query that asks for it."""
    return isinstance(column, OverColumn) and column.past.function == DESCENDANT


def read_by(columns: Mapping[str, DerivedColumn]) -> list[str]:
    """Return the columns and fields of the events that derived columns are made of, without the tests of the past."""
    names: list[str] = []
    for column in columns.values():
        if isinstance(column, PositionColumn):
            continue
        if isinstance(column, LagColumn):
            names.append(column.attribute)
        elif isinstance(column, OverColumn):
            names += [*column.past.ids, *([] if column.past.attribute is None else [column.past.attribute])]
        elif isinstance(column, CallColumn):
            names += column.names
        elif isinstance(column.operand, str):
            names.append(column.operand)
        else:
            names += [name for name, _ in column.operand[1].columns]
    return [name for name in dict.fromkeys(names) if not is_derived(name)]


def derive(node: Any, binder: ExpressionBinder) -> Any:
    """Return a predicate or expression with derived columns, which the binder then has, in place of what it reads.

    Raises
    ------
    QueryTypeError
        When a column is unknown, or a function does not take its type.
    """
    if not any(isinstance(part, s.Call) or (isinstance(part, s.Attribute) and part.looks_back) for part in walk(node)):
        return node
    return fold(node, lambda each, parts: _derived(each, parts, binder), children)


def _derived(node: Any, parts: list[Any], binder: ExpressionBinder) -> Any:
    node = with_children(node, parts)
    match node:
        case s.Attribute() if node.lag:
            if node.lag > MAX_DERIVED_LAG:
                raise binder.error(f"LAG goes back at most {MAX_DERIVED_LAG:,} events, not {node.lag:,}", node.span)
            data_type = binder.column(replace(node, lag=0))
            name = derived_name(f"LAG({text_of_operand(replace(node, lag=0))}, {node.lag})")
            binder.add_derived(name, LagColumn(node.name, node.lag, plain_type(data_type)))
            return replace(node, name=name, lag=0)
        case s.Attribute() if node.past is not None:
            name = past_name(node)
            binder.add_derived(name, past_column(node, binder))
            return replace(node, name=name, past=None)
        case s.Call():
            return _call(node, binder)
        case s.Comparison(left=s.Call(function="abs") as distance, right=s.Duration() as length):
            return _distance(node.op, distance, length, node.span)
        case s.Comparison(left=s.Duration() as length, right=s.Call(function="abs") as distance):
            return _distance(MIRRORED[node.op], distance, length, node.span)
    return node


def _distance(op: str, distance: s.Call, length: s.Duration, span: s.Span) -> s.Predicate:
    """Return ``abs(difference) op length`` without the function: the difference lies between two lengths, or not."""
    (difference,) = distance.operands
    kind = s.And if op in ("<", "<=", "<>") else s.Or
    opposite = replace(length, length=-length.length)
    return kind(
        (s.Comparison(op, difference, length, span), s.Comparison(MIRRORED[op], difference, opposite, span)), span
    )


def _call(call: s.Call, binder: ExpressionBinder) -> s.Expression:
    """Return the derived column of a call, its value where it reads no event, or itself where it reads several."""
    function = FUNCTIONS.get(NOCASE.get(call.function, call.function))
    if function is None:
        hint = did_you_mean(call.function, FUNCTIONS, "functions")
        raise binder.error(f"there is no function {call.function!r}", call.span, hint)
    if any(isinstance(part, s.Element) for part in walk(call)):
        return call  # of the elements of a list, whose binder sees it (`cer_gpu.expressions.lists`)
    if isinstance(function, TextFunction):
        return call_of_several(call, binder, lambda each: _call(each, binder))
    if not 1 <= len(call.operands) <= function.most_operands:
        expected = "one operand" if function.most_operands == 1 else "a number and perhaps the digits after the point"
        raise binder.error(f"{call.function} takes {expected}, not {len(call.operands)} operands", call.span)
    digits = _round_digits(call, binder)
    operand = call.operands[0]
    of = {(a.variable and a.variable.name, a.event): a for a in s.attributes(operand)}
    if call.function == "abs" and not isinstance(operand, s.Attribute) and _is_difference(operand, binder):
        return call  # beside a length of time; `Binder.kind` refuses it anywhere else
    if len(of) > 1:
        if call.function != "abs":
            raise binder.error(
                f"{call.function} reads one event, and this one several",
                call.span,
                f"{call.function} of each: {call.function}(x.a) and {call.function}(y.b); abs may read several",
            )
        return call
    if not of:
        return _fold_constant(call, digits, binder)
    alone = of_event(operand)
    attribute = next(iter(of.values()))
    name = derived_name(f"{call.function}({', '.join(map(text_of_operand, (alone, *call.operands[1:])))})")
    binder.add_derived(name, _function_column(call, alone, digits, binder))
    return s.Attribute(name, call.span, attribute.variable, attribute.event)


def _round_digits(call: s.Call, binder: ExpressionBinder) -> int:
    if len(call.operands) < 2:
        return 0
    given = call.operands[1]
    if isinstance(given, s.Literal) and type(given.value) is int and 0 <= given.value <= MAX_DIGITS:
        return given.value
    raise binder.error(
        f"{call.function} takes the digits after the point as a whole number from 0 to {MAX_DIGITS}", given.span
    )


def _is_difference(operand: s.Expression, binder: ExpressionBinder) -> bool:
    """Return True for a difference of two times or durations."""
    if not isinstance(operand, s.Arithmetic) or operand.op != "-":
        return False
    types = [binder.column(of_event(x)) for x in (operand.left, operand.right) if isinstance(x, s.Attribute)]
    return len(types) == 2 and all(kind_of(t) == MOMENT or pa.types.is_duration(t) for t in types)


def _function_column(call: s.Call, operand: s.Expression, digits: int, binder: ExpressionBinder) -> FunctionColumn:
    kind = binder.kind(operand)
    if isinstance(operand, s.Attribute):
        data_type = binder.column(operand)
        given: str | tuple[Value, Inputs] = operand.name
    else:
        data_type = {INTEGER: pa.int64(), NOTHING: pa.null()}.get(kind, pa.float64())
        number, inputs = binder.number_apart(operand)
        if number is None:
            data_type = pa.null()
        given = (number, inputs)  # type: ignore[assignment]
    if kind == NOTHING or pa.types.is_null(data_type):
        return FunctionColumn(call.function, digits, given, pa.null(), pa.null())
    _check_operand_type(call, operand, data_type, binder)
    result = _single(call.function).gives(data_type)
    if is_string(result) and is_string(data_type):
        result = pa.dictionary(pa.int32(), result)
    return FunctionColumn(call.function, digits, given, data_type, result)


def _check_operand_type(call: s.Call, operand: s.Expression, data_type: pa.DataType, binder: ExpressionBinder) -> None:
    """Refuse a type that a function does not take, and a time zone that Arrow does not know."""
    function = _single(call.function)
    if not function.takes(data_type):
        fitting = [name for name, other in FUNCTIONS.items() if isinstance(other, Function) and other.takes(data_type)]
        hint = f"functions of {_KINDS.get(str(kind_of(data_type)), 'numbers')} are {', '.join(fitting)}"
        if pa.types.is_integer(data_type) and function.expected.startswith("a timestamp"):
            hint = "cast the column to a timestamp"
        raise binder.error(
            f"{call.function} takes {function.expected}, and {binder.describe(operand)} is none",
            operand.span,
            hint if fitting else None,
        )
    if has_zone(data_type):
        try:
            function.arrow(0, data_type)(pa.array([0]).cast(data_type))
        except pa.ArrowException as error:
            raise binder.error(f"{call.function} of {binder.describe(operand)}: {error}", call.span) from None


_KINDS = {STRING: "texts", MOMENT: "times", DECIMAL: "decimals"}


def _fold_constant(call: s.Call, digits: int, binder: ExpressionBinder) -> s.Literal:
    """Return the value of a function of constants."""
    operand = call.operands[0]
    kind = binder.kind(operand)
    value: Any = operand.value if isinstance(operand, s.Literal) and kind == STRING else None
    if value is None and kind != STRING:
        value = binder.number(operand) if kind in (INTEGER, FLOAT, BOOLEAN) else None
    if value is None:
        raise binder.error(f"{call.function} takes {_single(call.function).expected}", call.span)
    array = pa.array([bool(value) if kind == BOOLEAN else value])
    _check_operand_type(call, operand, array.type, binder)
    result = _single(call.function).arrow(digits, array.type)(array)[0].as_py()
    return s.Literal(result, "" if isinstance(result, str) else repr(result), call.span)


def _term_array(term: Value, inputs: Inputs, block: Block) -> pa.Array:
    """Return the values of a term as an array."""
    values, valid = values_of(term, inputs, block)
    values = np.broadcast_to(np.asarray(values), (block.n_rows,))
    mask = None if valid is None else ~np.broadcast_to(valid, (block.n_rows,))
    if values.dtype != object:
        return pa.array(values, mask=mask)
    try:
        return pa.array(values if mask is None else np.where(mask, 0, values), pa.int64(), mask=mask)
    except (OverflowError, pa.ArrowInvalid):
        raise EventsError("an integer that a function reads does not fit int64") from None
