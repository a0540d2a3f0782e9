"""Kinds of expressions over a schema: what may be compared with what, and how messages name it."""

from __future__ import annotations

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import TESTS
from cer_gpu.ceql.paths import dotted, names_of, string_literal
from cer_gpu.columnar.columns import BOOLEAN, DECIMAL, FLOAT, INTEGER, NOTHING, STRING, TEMPORAL, kind_of
from cer_gpu.columnar.fields import attribute_type, column_type, fields_hint
from cer_gpu.errors import NULL_HINT, QueryTypeError, nearest
from cer_gpu.expressions import lists
from cer_gpu.expressions.arithmetic import LENGTH_HINT, differ_by_length
from cer_gpu.expressions.derived_names import is_derived, shown
from cer_gpu.expressions.hints import article


class ExpressionKinds:
    """Kinds of expressions over the columns of one schema.

    Parameters
    ----------
    schema : pyarrow.Schema
    text : str
        The query, for error messages.
    """

    def __init__(self, schema: pa.Schema, text: str) -> None:
        self.schema: pa.Schema = schema
        self.text = text

    def kind(self, expression: s.Expression) -> str:
        """Return the kind of an expression's value."""
        match expression:
            case s.Literal():
                return {bool: BOOLEAN, int: INTEGER, float: FLOAT, str: STRING}[type(expression.value)]
            case s.Duration():
                text = self.text[slice(*expression.span)]
                raise self.error(f"{text} is a length of time, and no number", expression.span, LENGTH_HINT)
            case s.Attribute():
                kind = kind_of(self.column(expression))
                if kind is None:
                    data_type, name = self.column(expression), expression.name
                    message = f"column {dotted(name)!r} is {article(data_type)}, which no predicate can read"
                    hint = fields_hint(name, data_type) or lists.hint(name, data_type)
                    raise self.error(message, expression.span, hint)
                return kind
            case s.Negative():
                return self.arithmetic_kind(expression.operand)
            case s.Arithmetic():
                kinds = {self.arithmetic_kind(expression.left), self.arithmetic_kind(expression.right)}
                return NOTHING if NOTHING in kinds else FLOAT if FLOAT in kinds else INTEGER
            case s.Call() if expression.function in TESTS:
                return BOOLEAN
            case s.Call():  # of one event it is a column
                if self.is_distance(expression):
                    message = f"{expression.function} of a difference of times is a length of time, and no number"
                    raise self.error(message, expression.span, LENGTH_HINT)
                return self.arithmetic_kind(expression.operands[0])
        raise AssertionError(expression)

    def arithmetic_kind(self, operand: s.Expression) -> str:
        """Return the kind of an operand of arithmetic, in which decimals are floats."""
        kind = self.kind(operand)
        if kind not in (INTEGER, FLOAT, DECIMAL, NOTHING):
            raise self.error(f"arithmetic needs numbers, and {self.describe(operand)} is none", operand.span)
        return FLOAT if kind == DECIMAL else kind

    def column(self, attribute: s.Attribute) -> pa.DataType:
        """Return the type of a column's values."""
        return column_type(self.schema, attribute.name, self.text, attribute.span)

    def is_distance(self, side: s.Expression) -> bool:
        """Return True for a difference of times, or its absolute value."""
        match side:
            case s.Call(function="abs"):
                return self.is_distance(side.operands[0])
            case s.Arithmetic(op="-"):
                return any(self.is_distance(part) or self._is_temporal(part) for part in (side.left, side.right))
        return False

    def _is_temporal(self, side: s.Expression) -> bool:
        return isinstance(side, s.Attribute) and kind_of(self.column(side)) == TEMPORAL

    def is_length(self, side: s.Expression) -> bool:
        """Return True for a column of durations, or a difference of times or durations."""
        match side:
            case s.Attribute():
                return bool(pa.types.is_duration(self.column(side)))
            case s.Arithmetic(op="-", left=s.Attribute() as later, right=s.Attribute() as earlier):
                return differ_by_length(self.column(later), self.column(earlier))
            case s.Arithmetic(op="-"):
                return self.is_length(side.left) and self.is_length(side.right)
        return False

    def are_durations(self, left: s.Expression, right: s.Expression) -> bool:
        """Return True if both operands are columns of durations, whose units may differ."""
        return all(isinstance(x, s.Attribute) and pa.types.is_duration(self.column(x)) for x in (left, right))

    def check_comparable(self, x: s.Attribute, y: s.Attribute) -> None:
        """Refuse a time of day with a date, and a local time with an instant."""
        if not differ_by_length(self.column(x), self.column(y)):
            span = (min(x.span[0], y.span[0]), max(x.span[1], y.span[1]))
            raise self.error(f"cannot compare {self.describe(x)} with {self.describe(y)}", span)

    def check_names(self, name: s.Expression, other: s.Expression) -> None:
        """Raise an error for a name that is no column, and was probably meant as NULL or as a string."""
        field_indices = self.schema.get_all_field_indices  # the list of all names is expensive
        if not isinstance(name, s.Attribute) or len(names_of(name.name)) > 1 or field_indices(name.name):
            return
        message = f"the events have no column {name.name!r}"
        if name.name.upper() == "NULL":
            raise self.error(message, name.span, NULL_HINT)
        is_column = isinstance(other, s.Attribute) and attribute_type(self.schema, other.name) is not None
        if is_column and self.kind(other) == STRING:
            close = nearest(name.name, self.schema.names)
            quoted = f"for a string write {string_literal(name.name)}"
            raise self.error(message, name.span, f"did you mean {close!r}? Or {quoted}" if close else quoted)

    def describe(self, expression: s.Expression) -> str:
        """Name an expression and its type."""
        match expression:
            case s.Literal(value=bool()):
                return f"the boolean {str(expression.value).upper()}"
            case s.Literal(value=str()):
                return f"the string {expression.value!r}"
            case s.Literal():
                return f"the number {expression.text}"
            case s.Attribute() if is_derived(expression.name):
                return f"{shown(expression.name)} ({self.column(expression)})"
            case s.Attribute():
                return f"column {dotted(expression.name)!r} ({self.column(expression)})"
            case s.Call() if expression.function in TESTS:
                return f"the test {self.text[slice(*expression.span)]}"
            case _:
                return f"the number {self.text[slice(*expression.span)]}"

    def error(self, message: str, span: s.Span, hint: str | None = None) -> QueryTypeError:
        """Return an error that underlines a place in the query."""
        return QueryTypeError(message, self.text, *span, hint=hint)
