"""Conditions of a DataFrame on stored columns, as expressions of pyarrow with the three-valued logic of SQL.

This module needs no Spark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_glue.files.stored_events import DirectReadError


@dataclass(frozen=True)
class ColumnComparison:
    """Comparison of a column with a value: "=", "<", "<=", ">" or ">=", or "<=>", for which two NULLs are equal."""

    operator: str
    column: str
    value: pa.Scalar


@dataclass(frozen=True)
class OneOf:
    """Condition ``column IN (value, ...)``."""

    column: str
    values: tuple[pa.Scalar, ...]


@dataclass(frozen=True)
class BeginsWith:
    """Condition that a string begins with another."""

    column: str
    text: str


@dataclass(frozen=True)
class NullFilter:
    """Condition ``column IS NULL``."""

    column: str


@dataclass(frozen=True)
class IsTrue:
    """Column of booleans as a condition."""

    column: str


@dataclass(frozen=True)
class ConstantFilter:
    """Constant condition; None is NULL."""

    value: bool | None


@dataclass(frozen=True)
class NotFilter:
    """Negation; that of NULL is NULL."""

    condition: FileFilter


@dataclass(frozen=True)
class AndFilter:
    """Condition ``first AND second``."""

    first: FileFilter
    second: FileFilter


@dataclass(frozen=True)
class OrFilter:
    """Condition ``first OR second``."""

    first: FileFilter
    second: FileFilter


FileFilter = (
    ColumnComparison | OneOf | BeginsWith | NullFilter | IsTrue | ConstantFilter | NotFilter | AndFilter | OrFilter
)

MIRRORED_OPS = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Operators of comparisons, each with that which says the same of its sides exchanged."""


def conjuncts(condition: FileFilter) -> Iterator[FileFilter]:
    """Yield the conditions that a row must all satisfy."""
    if isinstance(condition, AndFilter):
        yield from conjuncts(condition.first)
        yield from conjuncts(condition.second)
    else:
        yield condition


def filter_columns(condition: FileFilter) -> set[str]:
    """Return the columns that a condition reads."""
    if isinstance(condition, AndFilter | OrFilter):
        return filter_columns(condition.first) | filter_columns(condition.second)
    if isinstance(condition, NotFilter):
        return filter_columns(condition.condition)
    return set() if isinstance(condition, ConstantFilter) else {condition.column}


def expression(condition: FileFilter, types: Mapping[str, pa.DataType]) -> pc.Expression:
    """Return a condition as an expression on columns of the files: true, false, or NULL where SQL says so.

    Parameters
    ----------
    condition
    types
        Type of each column as Spark sees it; values of files are cast to it.

    Raises
    ------
    DirectReadError
        If a column and a value cannot be compared here as Spark compares them.
    """
    if isinstance(condition, AndFilter):
        return expression(condition.first, types) & expression(condition.second, types)
    if isinstance(condition, OrFilter):
        return expression(condition.first, types) | expression(condition.second, types)
    if isinstance(condition, NotFilter):
        return ~expression(condition.condition, types)
    if isinstance(condition, ConstantFilter):
        return pc.scalar(pa.scalar(condition.value, pa.bool_()))
    kind = types[condition.column]
    if isinstance(condition, NullFilter):
        return pc.field(condition.column).is_null()
    if isinstance(condition, IsTrue):
        return _cast_column(condition.column, kind, pa.bool_())
    if isinstance(condition, BeginsWith):
        column = _cast_column(condition.column, kind, pa.string())
        return pc.starts_with(column, pattern=condition.text)
    if isinstance(condition, OneOf):
        return _one_of_expression(condition, kind)
    return _comparison_expression(condition, kind)


def _one_of_expression(condition: OneOf, kind: pa.DataType) -> pc.Expression:
    non_null = [value for value in condition.values if value.is_valid]
    if not non_null:
        return pc.scalar(pa.scalar(None, pa.bool_()))
    column, values = _comparable_values(condition.column, kind, non_null)
    if pa.types.is_floating(values[0].type):
        raise DirectReadError(f"{condition.column!r}, a floating-point column, is looked up in a list")
    listed = pa.array([value.as_py() for value in values], values[0].type)
    expression = pc.if_else(column.is_valid(), column.isin(listed), pa.scalar(None, pa.bool_()))
    if len(non_null) == len(condition.values):
        return expression
    return expression | pc.scalar(pa.scalar(None, pa.bool_()))  # one of the values is NULL: perhaps it is that


def _comparison_expression(condition: ColumnComparison, kind: pa.DataType) -> pc.Expression:
    if not condition.value.is_valid:
        if condition.operator == "<=>":
            return pc.field(condition.column).is_null()
        return pc.scalar(pa.scalar(None, pa.bool_()))
    column, (value,) = _comparable_values(condition.column, kind, [condition.value])
    operator = "=" if condition.operator == "<=>" else condition.operator
    expression = {
        "=": column == value,
        "<": column < value,
        "<=": column <= value,
        ">": column > value,
        ">=": column >= value,
    }[operator]
    if pa.types.is_floating(value.type):
        if math.isnan(value.as_py()):
            raise DirectReadError(f"{condition.column!r} is compared with NaN")
        if operator in (">", ">="):
            expression = expression | pc.is_nan(column)  # to Spark, NaN is greater than all numbers
    if condition.operator == "<=>":
        expression = expression & pc.field(condition.column).is_valid()
    return expression


def _comparable_values(
    name: str, kind: pa.DataType, values: Sequence[pa.Scalar]
) -> tuple[pc.Expression, list[pa.Scalar]]:
    """Return a column and values in one type, in which they compare as Spark's do."""
    types = {value.type for value in values}
    if len(types) == 1:
        (other,) = types
        if pa.types.is_signed_integer(kind) and pa.types.is_signed_integer(other):
            return _cast_column(name, kind, pa.int64()), [value.cast(pa.int64()) for value in values]
        if pa.types.is_floating(kind) and pa.types.is_floating(other):
            wide = kind if kind == other else pa.float64()
            return _cast_column(name, kind, wide), [value.cast(wide) for value in values]
        if kind == other and (
            kind in (pa.string(), pa.bool_(), pa.date32()) or (pa.types.is_timestamp(kind) and kind.unit == "us")
        ):
            return _cast_column(name, kind, kind), list(values)
    type_names = " and ".join(sorted(map(str, types)))
    raise DirectReadError(f"a condition compares {name!r}, which is {kind}, with {type_names}")


def _cast_column(name: str, kind: pa.DataType, wanted: pa.DataType) -> pc.Expression:
    """Return a column of the files as `wanted`, where Spark sees it as `kind`."""
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    exact = kind == wanted or (numbers and (pa.types.is_integer(wanted) or pa.types.is_floating(wanted)))
    if not exact:
        raise DirectReadError(f"a condition takes {name!r}, which is {kind}, for {wanted}")
    column = pc.field(name)
    if kind == pa.bool_():
        return column
    return column.cast(wanted, safe=not pa.types.is_timestamp(wanted))
