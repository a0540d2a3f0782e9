"""Expressions and predicates over columns of every type, with their values in Python's exact numbers.

The meaning is that of docs/reference/ceql_predicates.md ("Numbers", "Values of two events", "Lengths of time").

A tree is a tuple: ``("column", event, name)``, ``("literal", text, kind, value)``, ``("negative", x)``,
``(op, x, y)`` of numbers or times; ``("compare", op, x, y)``, ``("is null", x)``, ``("not", p)``,
``("and", p, q)`` and ``("or", p, q)``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

INTEGER, FLOAT, DECIMAL, TIME, LENGTH, TEXT, BOOLEAN = (
    "integer",
    "float",
    "decimal",
    "time",
    "length",
    "text",
    "boolean",
)
COMPARED = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
Tree = tuple[Any, ...]
Row = Mapping[str, Any]
"""Stored values of an event: numbers as they are, times and lengths in ticks of their type."""


def per_second(data_type: pa.DataType) -> Fraction:
    """Return how many ticks of a type make a second."""
    if pa.types.is_date32(data_type):
        return Fraction(1, 86_400)
    return Fraction(1000 if pa.types.is_date64(data_type) else TICKS[data_type.unit])


def kind_of(data_type: pa.DataType) -> str:
    """Return the kind of the values of a type."""
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    tests = {
        INTEGER: pa.types.is_integer,
        FLOAT: pa.types.is_floating,
        DECIMAL: pa.types.is_decimal,
        LENGTH: pa.types.is_duration,
        BOOLEAN: pa.types.is_boolean,
        TIME: pa.types.is_temporal,
    }
    return next((kind for kind, holds in tests.items() if holds(data_type)), TEXT)


def events_of(tree: Any) -> Iterator[str]:
    """Yield the events that a tree reads."""
    if isinstance(tree, tuple):
        if tree[0] == "column":
            yield tree[1]
        else:
            for part in tree[1:]:
                yield from events_of(part)


class Oracle:
    """Values of trees over events of a schema.

    Parameters
    ----------
    schema : pyarrow.Schema
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._types = {field.name: field.type for field in schema}

    def value(self, tree: Tree, events: Mapping[str, Row]) -> tuple[str, Any]:
        """Return the kind of an expression and its value; None for NULL."""
        match tree:
            case ("column", event, name):
                data_type, stored = self._types[name], events[event][name]
                kind = kind_of(data_type)
                if stored is None:
                    return kind, None
                if kind in (TIME, LENGTH):
                    return kind, Fraction(stored) / per_second(data_type)
                return kind, Fraction(stored) if kind == DECIMAL else stored
            case ("literal", _, kind, value):
                return kind, value
            case ("negative", operand):
                kind, x = self.value(operand, events)
                return kind, None if x is None else -x
            case (op, left, right):
                (one, x), (other, y) = self.value(left, events), self.value(right, events)
                kind = LENGTH if one in (TIME, LENGTH) else FLOAT if FLOAT in (one, other) else INTEGER
                return kind, None if None in (x, y) else _applied(op, kind, x, y)
        raise AssertionError(tree)

    def truth(self, tree: Tree, events: Mapping[str, Row]) -> bool | None:
        """Return the truth of a predicate; None for UNKNOWN."""
        match tree:
            case ("compare", op, left, right):
                (one, x), (other, y) = self.value(left, events), self.value(right, events)
                if None in (x, y):
                    return None
                if {one, other} == {INTEGER, FLOAT} and len({*events_of(left), *events_of(right)}) < 2:
                    x, y = float(x), float(y)
                return _compared(op, x, y)
            case ("is null", operand):
                return self.value(operand, events)[1] is None
            case ("not", operand):
                truth = self.truth(operand, events)
                return None if truth is None else not truth
        decides = tree[0] == "or"
        truths = [self.truth(part, events) for part in tree[1:]]
        return decides if decides in truths else None if None in truths else not decides


def _applied(op: str, kind: str, x: Any, y: Any) -> Any:
    if kind == LENGTH:
        return x - y
    if kind == INTEGER:
        if op in "/%":
            if y == 0:
                return None
            quotient = int(Fraction(x, y))  # truncated toward zero
            return quotient if op == "/" else x - y * quotient
        return {"+": x + y, "-": x - y, "*": x * y}[op]
    with np.errstate(all="ignore"):
        one, other = np.float64(float(x)), np.float64(float(y))
        return float({"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod}[op](one, other))


def _compared(op: str, x: Any, y: Any) -> bool:
    floats = [value for value in (x, y) if isinstance(value, float)]
    if any(math.isnan(value) for value in floats):
        return op == "<>"
    if any(math.isinf(value) for value in floats):
        x, y = (value if isinstance(value, float) and math.isinf(value) else 0 for value in (x, y))
    elif not isinstance(x, str):
        x, y = Fraction(x), Fraction(y)
    return bool(COMPARED[op](x, y))


def text_of(tree: Tree, within: str | None = None) -> str:
    """Return a tree as CEQL; the columns of the event `within` without its name."""
    match tree:
        case ("column", event, name):
            return name if event == within else f"{event}.{name}"
        case ("literal", text, *_):
            return text
        case ("negative", operand):
            return f"-({text_of(operand, within)})"
        case ("compare", op, left, right):
            return f"{text_of(left, within)} {op} {text_of(right, within)}"
        case ("is null", operand):
            return f"{text_of(operand, within)} IS NULL"
        case ("not", operand):
            return f"NOT ({text_of(operand, within)})"
        case ("and" | "or" as word, left, right):
            return f"({text_of(left, within)}) {word.upper()} ({text_of(right, within)})"
    op, left, right = tree
    return f"({text_of(left, within)} {op} {text_of(right, within)})"


def column_of(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """Return stored values as a column."""
    if pa.types.is_dictionary(data_type):
        return column_of(values, data_type.value_type).dictionary_encode().cast(data_type)
    if pa.types.is_decimal(data_type):
        return pa.array([None if x is None else Decimal(x) for x in values], data_type)
    if kind_of(data_type) in (TIME, LENGTH):
        small = pa.types.is_date32(data_type) or pa.types.is_time32(data_type)
        return pa.array(values, pa.int32() if small else pa.int64()).cast(data_type)
    return pa.array(values, data_type)
