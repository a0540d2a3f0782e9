"""Aggregates over the events before an event, as derived columns: their types, and what is refused of them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import (
    DESCENDANT,
    NO_EVENT_WITHIN,
    OVER_AGGREGATES,
    RISES,
    OverResult,
    OverValues,
)
from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.columns import BOOLEAN, DECIMAL, INTEGER, NOTHING, STRING, TEMPORAL, kind_of, plain_type
from cer_gpu.columnar.fields import fields_hint
from cer_gpu.expressions.derived_names import derived_name
from cer_gpu.expressions.hints import article
from cer_gpu.expressions.inputs import ExpressionBinder
from cer_gpu.expressions.numbers import sum_type

_MAX_DIGITS = 18
"""Most digits of a decimal that is one int64."""


@dataclass(frozen=True)
class OverColumn:
    """An aggregate over the events before each event, and the event itself (``SUM(R.a) OVER d``).

    Attributes
    ----------
    aggregate : OverAggregate
    values : pyarrow.DataType or None
        Type of the attribute that it is of, without a dictionary, or None if it counts events.
    type : pyarrow.DataType
        Type of its results.
    """

    aggregate: s.OverAggregate
    values: pa.DataType | None
    type: pa.DataType


def over_column_name(attribute: s.Attribute) -> str:
    """Return a unique name for the column; the text alone may be that of two columns."""
    return derived_name(attribute.name[1:-1], repr(attribute.aggregate))


def bind_over_column(attribute: s.Attribute, binder: ExpressionBinder) -> OverColumn:
    """Return the column of an OVER aggregate.

    Raises
    ------
    QueryTypeError
        When its attribute is unknown, or of a type that it does not take.
    """
    aggregate = attribute.aggregate
    assert aggregate is not None
    if aggregate.function in (NO_EVENT_WITHIN, RISES):
        return OverColumn(aggregate, None, pa.bool_())
    if aggregate.function == DESCENDANT:
        return _descent_column(aggregate, binder)
    if aggregate.attribute is None:
        return OverColumn(aggregate, None, pa.int64())
    data_type = written = plain_type(binder.column(s.Attribute(aggregate.attribute, aggregate.span)))
    if kind_of(data_type) == STRING:
        data_type = pa.large_string()  # one type for all that hold strings
    function = OVER_AGGREGATES[aggregate.function]
    if function.takes is OverValues.EVENTS:
        return OverColumn(aggregate, data_type, pa.int64())
    kind = kind_of(data_type)
    if aggregate.nocase and kind not in (STRING, NOTHING):
        raise binder.error(
            f"NOCASE is of strings, and column {dotted(aggregate.attribute)!r} is {article(written)}", aggregate.span
        )
    of = aggregate.attribute

    def refuse(reason: str, hint: str | None = None) -> None:
        shown = f"column {dotted(of)!r} is {article(written)}"
        raise binder.error(f"{aggregate.function} OVER {reason}, and {shown}", aggregate.span, hint)

    if kind is None:
        refuse("reads single values", fields_hint(of, data_type))
    if kind == DECIMAL and data_type.precision > _MAX_DIGITS and function.gives is not OverResult.FLOAT:
        refuse(f"reads decimals of at most {_MAX_DIGITS} digits", "cast the column to fewer digits, or to float64")
    if function.takes in (OverValues.SUMMABLE, OverValues.NUMBERS) and kind in (STRING, TEMPORAL):
        refuse("needs numbers", f"MIN, MAX and COUNT take {'times' if kind == TEMPORAL else 'strings'}")
    if function.takes is OverValues.NUMBERS and (pa.types.is_duration(data_type) or kind == BOOLEAN):
        operand = _operand_text(aggregate)
        refuse("needs numbers", f"SUM({operand}) OVER ... / COUNT({operand}) OVER ... is their mean")
    return OverColumn(aggregate, data_type, _over_type(function.gives, data_type))


def _over_type(gives: OverResult, values: pa.DataType) -> pa.DataType:
    """Return the type of the results of an aggregate over values of a type that it takes."""
    if gives is OverResult.INTEGER:
        return pa.int64()
    if gives is OverResult.VALUE or kind_of(values) == NOTHING:
        return values
    return sum_type(values) if gives is OverResult.SUM else pa.float64()


def _descent_column(aggregate: s.OverAggregate, binder: ExpressionBinder) -> OverColumn:
    """Return the column that marks the events of descendants; its values are ids, as strings."""
    for attribute in s.attributes(aggregate.predicate) if aggregate.predicate is not None else ():
        if attribute.aggregate is not None:
            hint = "let the condition on the ancestor read its own event"
            raise binder.error("an ancestor is not tested for ancestors of its own", attribute.span, hint)
    kinds: dict[str, str | None] = {}
    for name in aggregate.ids:
        data_type = plain_type(binder.column(s.Attribute(name, aggregate.span)))
        kinds[name] = None if pa.types.is_duration(data_type) else kind_of(data_type)
        if kinds[name] not in (STRING, INTEGER, NOTHING):
            message = (
                f"ids of processes are texts or whole numbers, and column {dotted(name)!r} is {article(data_type)}"
            )
            raise binder.error(message, aggregate.span, fields_hint(name, data_type) or "name another column of ids")
    if len(set(kinds.values()) - {NOTHING}) > 1:
        shown = " and ".join(f"{dotted(name)!r} {'texts' if kinds[name] == STRING else 'numbers'}" for name in kinds)
        message = f"the ids of a process and of its parent are compared, and of these columns {shown} are"
        raise binder.error(message, aggregate.span, "cast one of them to the type of the other")
    return OverColumn(aggregate, pa.large_string(), pa.bool_())


def _operand_text(aggregate: s.OverAggregate) -> str:
    """Return the attribute as it is written after its type."""
    return f"{'*' if aggregate.event is None else aggregate.event.name}.{aggregate.attribute}"
