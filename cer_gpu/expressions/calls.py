"""Calls of functions of several values of one event (`cer_gpu.expressions.text_functions`), as derived columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import TESTS
from cer_gpu.ceql.variables import of_event
from cer_gpu.columnar.columns import BOOLEAN, NOTHING, STRING, Block, is_string
from cer_gpu.expressions.combinations import (
    OfOneText,
    RowsOperand,
    Uniform,
    Varying,
    coded_numbers,
    column_of,
    combined,
    results_of,
)
from cer_gpu.expressions.derived_names import derived_name, text_of_operand
from cer_gpu.expressions.inputs import ExpressionBinder, Inputs
from cer_gpu.expressions.targets.numpy import values_of
from cer_gpu.expressions.terms import Value
from cer_gpu.expressions.text_functions import A_VALUE, KIND_OF_OPERAND, NOCASE, TEXT_FUNCTIONS, TextFunction

Derive = Callable[[s.Call], s.Expression]
"""Returns the expression that stands for a call."""

_BY_NAME = {each.symbol: each for each in TEXT_FUNCTIONS}


@dataclass(frozen=True)
class CallColumn:
    """A function of several values of one event.

    Attributes
    ----------
    function : str
        Name in `TEXT_FUNCTIONS`.
    operands : tuple
        Each the name of a column of texts, a number or truth with its inputs, or a constant (`Uniform`).
    type : pyarrow.DataType
        Type of the results; texts are a dictionary.
    """

    function: str
    operands: tuple[str | tuple[Value, Inputs] | Uniform, ...]
    type: pa.DataType

    @property
    def names(self) -> list[str]:
        """Names of the columns that it reads."""
        found: list[str] = []
        for operand in self.operands:
            if isinstance(operand, str):
                found.append(operand)
            elif not isinstance(operand, Uniform):
                found += [name for name, _ in operand[1].columns]
        return found

    def maker(self) -> Callable[[Block], pa.Array]:
        """Return a function that makes the column of a block, for the blocks of one stream."""
        if pa.types.is_null(self.type):
            return lambda block: pa.nulls(block.n_rows)
        varying = [each for each in self.operands if not isinstance(each, Uniform)]
        if len(varying) == 1 and isinstance(varying[0], str):
            return OfOneText(varying[0], self._of_texts)
        compute = _BY_NAME[self.function].compute
        return lambda block: column_of(
            *combined(compute, [self._operand(each, block) for each in self.operands], self._plain_result_type)
        )

    @property
    def _plain_result_type(self) -> pa.DataType:
        return self.type.value_type if pa.types.is_dictionary(self.type) else self.type

    def _of_texts(self, texts: pa.Array) -> pa.Array:
        given = [each if isinstance(each, Uniform) else texts.to_pylist() for each in self.operands]
        return results_of(_BY_NAME[self.function].compute, given, len(texts), self._plain_result_type)

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
    """Return what stands for a call of a function of several values: a derived column, or its value.

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
        expected = f"{call.function} takes {function.counted}"
        raise binder.error(f"{expected}, not {len(call.operands)}", call.span, example)
    kinds = function.kinds(len(call.operands))
    operands = []
    for operand, kind in zip(call.operands, kinds, strict=True):
        if kind == A_VALUE and binder.kind(operand) not in (STRING, NOTHING):
            operand = derived(s.Call("string", (operand,), operand.span))
        found = binder.kind(operand)
        if found not in (KIND_OF_OPERAND[kind], NOTHING):
            raise binder.error(
                f"{call.function} takes {kind} there, and {binder.describe(operand)} is none",
                operand.span,
                example,
            )
        operands.append(operand)
    call = s.Call(call.function, tuple(operands), call.span)
    of = {(a.variable and a.variable.name, a.event): a for a in s.attributes(call)}
    if len(of) > 1 and call.function in TESTS:
        return call  # `cer_gpu.expressions.relations` binds it, where a predicate stands
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


def _result_type(function: TextFunction, operands: tuple[str | tuple[Value, Inputs] | Uniform, ...]) -> pa.DataType:
    if any(isinstance(each, Uniform) and each.value is None for each in operands):
        return pa.null()
    return pa.dictionary(pa.int32(), function.type) if is_string(function.type) else function.type
