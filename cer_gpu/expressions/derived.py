"""Derived columns: the columns that replace functions, ``LAG`` and OVER aggregates in predicates.

They are made from the events before the predicates.  Every function over one event, every ``LAG`` and every aggregate
``OVER`` becomes an attribute of its own, which all ways to evaluate a predicate read as an ordinary column.
The same expression is one column, wherever it is used.
The positions of events, which windows of EVENTS within a pattern compare, are one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import DESCENDANT, TESTS
from cer_gpu.ceql.traversal import children, fold, walk, with_children
from cer_gpu.ceql.variables import of_event
from cer_gpu.columnar.clocks import has_zone
from cer_gpu.columnar.columns import (
    BOOLEAN,
    DECIMAL,
    FLOAT,
    INTEGER,
    NOTHING,
    STRING,
    TEMPORAL,
    Block,
    is_string,
    kind_of,
    plain_type,
)
from cer_gpu.errors import EventsError, did_you_mean
from cer_gpu.expressions.combinations import (
    OneStringTest,
    RowsOperand,
    Uniform,
    Varying,
    coded_numbers,
    column_of,
    distinct_results,
    results_of,
)
from cer_gpu.expressions.derived_names import derived_name, is_derived, text_of_operand
from cer_gpu.expressions.functions import MAX_DIGITS
from cer_gpu.expressions.inputs import ExpressionBinder, Inputs
from cer_gpu.expressions.operators import FUNCTIONS, Function
from cer_gpu.expressions.over_aggregates import OverColumn, bind_over_column, over_column_name
from cer_gpu.expressions.string_functions import A_VALUE, KIND_OF_OPERAND, NOCASE, STRING_FUNCTIONS, StringFunction
from cer_gpu.expressions.targets.numpy import values_of
from cer_gpu.expressions.terms import MIRRORED, Value

Derive = Callable[[s.Call], s.Expression]
"""Returns the expression that replaces a call."""

_BY_NAME = {each.symbol: each for each in STRING_FUNCTIONS}


@dataclass(frozen=True)
class CallColumn:
    """A function of several values of one event.

    Attributes
    ----------
    function : str
        Name in `STRING_FUNCTIONS`.
    operands : tuple
        Each the name of a column of strings, a number or truth with its inputs, or a constant (`Uniform`).
    type : pyarrow.DataType
        Type of the results; strings are a dictionary.
    """

    function: str
    operands: tuple[str | tuple[Value, Inputs] | Uniform, ...]
    type: pa.DataType

    @property
    def names(self) -> list[str]:
        """Names of the columns that it reads."""
        names: list[str] = []
        for operand in self.operands:
            if isinstance(operand, str):
                names.append(operand)
            elif not isinstance(operand, Uniform):
                names += [name for name, _ in operand[1].columns]
        return names

    def maker(self) -> Callable[[Block], pa.Array]:
        """Return a function that makes the column of a block, for the blocks of one stream."""
        if pa.types.is_null(self.type):
            return lambda block: pa.nulls(block.n_rows)
        varying = [each for each in self.operands if not isinstance(each, Uniform)]
        if len(varying) == 1 and isinstance(varying[0], str):
            return OneStringTest(varying[0], self._of_strings)
        compute = _BY_NAME[self.function].compute
        return lambda block: column_of(
            *distinct_results(compute, [self._operand(each, block) for each in self.operands], self._plain_result_type)
        )

    @property
    def _plain_result_type(self) -> pa.DataType:
        return self.type.value_type if pa.types.is_dictionary(self.type) else self.type

    def _of_strings(self, strings: pa.Array) -> pa.Array:
        operands = [each if isinstance(each, Uniform) else strings.to_pylist() for each in self.operands]
        return results_of(_BY_NAME[self.function].compute, operands, len(strings), self._plain_result_type)

    def _operand(self, operand: str | tuple[Value, Inputs] | Uniform, block: Block) -> RowsOperand:
        if isinstance(operand, Uniform):
            return operand
        if isinstance(operand, str):
            coded = block.coded(operand)
            return Varying(coded.codes, coded.values, block.valid(operand))
        values, valid = values_of(*operand, block)
        values = np.broadcast_to(np.asarray(values), (block.n_rows,))
        return coded_numbers(values, None if valid is None else np.broadcast_to(valid, (block.n_rows,)))


def call_of_several(call: s.Call, binder: ExpressionBinder, derived: Derive) -> s.Expression:
    """Return the replacement of a call of a function of several values: a derived column, or its value.

    Parameters
    ----------
    call
        Its operands have no calls any more.
    binder
    derived
        As this function, for calls of any function.

    Raises
    ------
    QueryTypeError
        When an operand is of a type that the function does not take.
    """
    if call.function in NOCASE:
        small = tuple(
            derived(s.Call("lower", (each,), each.span)) if binder.kind(each) == STRING else each
            for each in call.operands
        )
        call = s.Call(NOCASE[call.function], small, call.span)
    function = _BY_NAME[call.function]
    example = f"as in {function.example}" if function.example else None
    if not function.takes_so_many(len(call.operands)):
        expected = f"{call.function} takes {function.operand_range}"
        raise binder.error(f"{expected}, not {len(call.operands)}", call.span, example)
    kinds = function.kinds(len(call.operands))
    operands = []
    for operand, kind in zip(call.operands, kinds, strict=True):
        if kind == A_VALUE and binder.kind(operand) not in (STRING, NOTHING):
            operand = derived(s.Call("string", (operand,), operand.span))
        actual = binder.kind(operand)
        if actual not in (KIND_OF_OPERAND[kind], NOTHING):
            raise binder.error(
                f"{call.function} takes {kind} there, and {binder.describe(operand)} is none",
                operand.span,
                example,
            )
        operands.append(operand)
    call = s.Call(call.function, tuple(operands), call.span)
    of = {(a.variable and a.variable.name, a.event): a for a in s.attributes(call)}
    if len(of) > 1 and call.function in TESTS:
        return call  # `cer_gpu.expressions.relations` binds it, in place of a predicate
    if len(of) > 1:
        raise binder.error(
            f"{call.function} reads one event, and this one several",
            call.span,
            "compare functions of each of them",
        )
    bound = tuple(_bind_operand(of_event(operand), binder) for operand in operands)
    column = CallColumn(call.function, bound, _result_type(function, bound))
    if not of and not pa.types.is_null(column.type):
        value = function.compute(*(each.value for each in bound if isinstance(each, Uniform)))
        if value is not None:
            return s.Literal(value, "" if isinstance(value, str | bool) else repr(value), call.span)
        column = replace(column, type=pa.null())
    attribute = next(iter(of.values()), s.Attribute(""))
    name = derived_name(f"{call.function}({', '.join(text_of_operand(of_event(each)) for each in operands)})")
    binder.add_derived(name, column)
    return s.Attribute(name, call.span, attribute.variable, attribute.event)


def _bind_operand(operand: s.Expression, binder: ExpressionBinder) -> str | tuple[Value, Inputs] | Uniform:
    """Return an operand of a column."""
    kind = binder.kind(operand)
    if kind == NOTHING:
        return Uniform(None)
    if kind == STRING:
        return Uniform(operand.value) if isinstance(operand, s.Literal) else operand.name  # type: ignore[union-attr]
    number, inputs = binder.number_apart(operand)
    if isinstance(number, Value):
        return number, inputs
    return Uniform(bool(number) if kind == BOOLEAN and number is not None else number)


def _result_type(function: StringFunction, operands: tuple[str | tuple[Value, Inputs] | Uniform, ...]) -> pa.DataType:
    if any(isinstance(each, Uniform) and each.value is None for each in operands):
        return pa.null()
    return pa.dictionary(pa.int32(), function.type) if is_string(function.type) else function.type


MAX_DERIVED_LAG = 1_000_000
"""Most events that LAG goes back: as many values are buffered for each key of PARTITION BY."""

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
        Type of the results; strings are a dictionary.
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
        compute, operand = _single(self.function).arrow(self.digits, self.operand_type), self.operand
        if not isinstance(operand, str):
            return lambda block: compute(term_array(*operand, block))
        if is_string(self.operand_type):
            return OneStringTest(operand, compute)
        return lambda block: compute(block.array(operand))


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


def aggregates_of(columns: Mapping[str, DerivedColumn]) -> dict[str, OverColumn]:
    """Return the OVER aggregates, by name."""
    return {name: column for name, column in columns.items() if isinstance(column, OverColumn)}


def reads_one_event(column: DerivedColumn) -> bool:
    """Return True for a column computed from the columns of the same event alone."""
    return isinstance(column, FunctionColumn | CallColumn)


def is_descent(column: DerivedColumn) -> bool:
    """Return True for a column about processes, which depends on no clause of the query that requests it."""
    return isinstance(column, OverColumn) and column.aggregate.function == DESCENDANT


def read_by(columns: Mapping[str, DerivedColumn]) -> list[str]:
    """Return the columns and fields of the events that derived columns read, without the tests of OVER aggregates."""
    names: list[str] = []
    for column in columns.values():
        if isinstance(column, PositionColumn):
            continue
        if isinstance(column, LagColumn):
            names.append(column.attribute)
        elif isinstance(column, OverColumn):
            names += [
                *column.aggregate.ids,
                *([] if column.aggregate.attribute is None else [column.aggregate.attribute]),
            ]
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
    return fold(node, lambda each, parts: _replace_call(each, parts, binder), children)


def _replace_call(node: Any, parts: list[Any], binder: ExpressionBinder) -> Any:
    node = with_children(node, parts)
    match node:
        case s.Attribute() if node.lag:
            if node.lag > MAX_DERIVED_LAG:
                raise binder.error(f"LAG goes back at most {MAX_DERIVED_LAG:,} events, not {node.lag:,}", node.span)
            data_type = binder.column(replace(node, lag=0))
            name = derived_name(f"LAG({text_of_operand(replace(node, lag=0))}, {node.lag})")
            binder.add_derived(name, LagColumn(node.name, node.lag, plain_type(data_type)))
            return replace(node, name=name, lag=0)
        case s.Attribute() if node.aggregate is not None:
            name = over_column_name(node)
            binder.add_derived(name, bind_over_column(node, binder))
            return replace(node, name=name, aggregate=None)
        case s.Call():
            return _call(node, binder)
        case s.Comparison(left=s.Call(function="abs") as distance, right=s.Duration() as length):
            return _distance(node.op, distance, length, node.span)
        case s.Comparison(left=s.Duration() as length, right=s.Call(function="abs") as distance):
            return _distance(MIRRORED[node.op], distance, length, node.span)
    return node


def _distance(op: str, distance: s.Call, length: s.Duration, span: s.Span) -> s.Predicate:
    """Return ``abs(difference) op length`` without the function: the difference is between two lengths, or not."""
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
    if isinstance(function, StringFunction):
        return call_of_several(call, binder, lambda each: _call(each, binder))
    if function.units and len(call.operands) != 2:
        raise binder.error(f"{call.function} takes a time and a unit", call.span, _units_hint(function))
    if not 1 <= len(call.operands) <= function.max_operands:
        expected = "one operand" if function.max_operands == 1 else "a number and perhaps the digits after the point"
        raise binder.error(f"{call.function} takes {expected}, not {len(call.operands)} operands", call.span)
    digits = _second_operand(call, function, binder)
    operand = call.operands[0]
    of = {(a.variable and a.variable.name, a.event): a for a in s.attributes(operand)}
    if call.function == "abs" and not isinstance(operand, s.Attribute) and _is_difference(operand, binder):
        return call  # with a duration; `Binder.kind` refuses it anywhere else
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


def _units_hint(function: Function) -> str:
    return f"{function.symbol}(ts, 'hour'); units are {', '.join(function.units)}"


def _second_operand(call: s.Call, function: Function, binder: ExpressionBinder) -> int:
    """Return the digits after the point, or the number of a unit."""
    if len(call.operands) < 2:
        return 0
    second = call.operands[1]
    if function.units:
        if isinstance(second, s.Literal) and str(second.value).lower() in function.units:
            return function.units.index(str(second.value).lower())
        raise binder.error(f"{call.function} takes one of its units", second.span, _units_hint(function))
    if isinstance(second, s.Literal) and type(second.value) is int and 0 <= second.value <= MAX_DIGITS:
        return second.value
    raise binder.error(
        f"{call.function} takes the digits after the point as a whole number from 0 to {MAX_DIGITS}", second.span
    )


def _is_difference(operand: s.Expression, binder: ExpressionBinder) -> bool:
    """Return True for a difference of two times or durations."""
    if not isinstance(operand, s.Arithmetic) or operand.op != "-":
        return False
    types = [binder.column(of_event(x)) for x in (operand.left, operand.right) if isinstance(x, s.Attribute)]
    return len(types) == 2 and all(kind_of(t) == TEMPORAL or pa.types.is_duration(t) for t in types)


def _function_column(call: s.Call, operand: s.Expression, digits: int, binder: ExpressionBinder) -> FunctionColumn:
    kind = binder.kind(operand)
    if isinstance(operand, s.Attribute):
        data_type = binder.column(operand)
        source: str | tuple[Value, Inputs] = operand.name
    else:
        data_type = {INTEGER: pa.int64(), NOTHING: pa.null()}.get(kind, pa.float64())
        number, inputs = binder.number_apart(operand)
        if number is None:
            data_type = pa.null()
        source = (number, inputs)  # type: ignore[assignment]
    if kind == NOTHING or pa.types.is_null(data_type):
        return FunctionColumn(call.function, digits, source, pa.null(), pa.null())
    _check_operand_type(call, operand, data_type, binder)
    result = _single(call.function).gives(data_type)
    if is_string(result) and is_string(data_type):
        result = pa.dictionary(pa.int32(), result)
    return FunctionColumn(call.function, digits, source, data_type, result)


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


_KINDS = {STRING: "texts", TEMPORAL: "times", DECIMAL: "decimals"}


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


def term_array(term: Value, inputs: Inputs, block: Block) -> pa.Array:
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
