"""Binding of predicates to a schema as typed terms: every type is checked here, before any row is read.

Three-valued logic needs no third value: negations are pushed to the leaves, and a leaf, negated or not, is TRUE only
if nothing that it reads is NULL.

An integer that meets a float becomes a float64; integers divided by zero are NULL (`cer_gpu.predicates.numbers` has the
rest).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Bools
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import dotted, names_of
from cer_gpu.columnar.columns import BOOLEAN, DECIMAL, FLOAT, INTEGER, MOMENT, NOTHING, STRING, Block, kind_of
from cer_gpu.columnar.fields import attribute_type, column_type, fields_hint
from cer_gpu.columnar.moments import ZoneError, has_zone, per_second, read_moment
from cer_gpu.errors import NULL_HINT, QueryTypeError, nearest
from cer_gpu.predicates import terms as t
from cer_gpu.predicates.derived import DerivedColumn, derive, is_derived, shown
from cer_gpu.predicates.inputs import CODES, FLOATS, Inputs
from cer_gpu.predicates.interpreter import OPERATORS
from cer_gpu.predicates.lengths import LENGTH_HINT, difference_rows, is_length, length_of, with_integer
from cer_gpu.predicates.numbers import FLOAT_ARITHMETIC, INTEGER_ARITHMETIC, to_float, to_int64

Operand = t.Value | int | float | None
"""A term, or a constant of the query: an exact integer, a float, or None for NULL."""

_ARROW = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)


class Binder:
    """Binder of predicates to the columns of one schema.

    Parameters
    ----------
    schema : pyarrow.Schema
    text : str
        The query, for error messages.

    Attributes
    ----------
    schema : pyarrow.Schema
        That schema, with the derived columns so far.
    inputs : Inputs
        Contents of the slots of the terms.
    derived : dict from str to DerivedColumn
        Columns of functions and LAG, by the names that they have in predicates.
    """

    def __init__(self, schema: pa.Schema, text: str) -> None:
        self.schema = schema
        self.text = text
        self.inputs = Inputs(schema)
        self.derived: dict[str, DerivedColumn] = {}

    def derive(self, node: Any) -> Any:
        """Return a predicate or expression with derived columns in place of functions and LAG."""
        return derive(node, self)

    def add_derived(self, name: str, column: DerivedColumn) -> None:
        """Add a derived column, unless it is known."""
        if name not in self.derived:
            self.derived[name] = column
            self.schema = self.inputs.schema = self.schema.append(pa.field(name, column.type))

    # ---- predicates -------------------------------------------------------------------------------------

    def bind(self, predicate: s.Predicate, negated: bool = False) -> t.Test:
        """Return the test for the rows where a predicate (or its negation) is TRUE.

        Raises
        ------
        QueryTypeError
            When a column is unknown, or types do not go together.
        """
        return self._bound(self.derive(predicate), negated)

    def _bound(self, predicate: s.Predicate, negated: bool) -> t.Test:
        match predicate:
            case s.Not():
                return self._bound(predicate.operand, not negated)
            case s.And() | s.Or():
                # De Morgan: FALSE(p AND q) = FALSE(p) OR FALSE(q), also with NULL
                kind = t.And if isinstance(predicate, s.And) != negated else t.Or
                tests: list[t.Test] = []
                for test in (self._bound(operand, negated) for operand in predicate.operands):
                    tests += test.tests if isinstance(test, kind) else [test]
                return kind(tuple(tests))
            case s.Comparison():
                return self.comparison(predicate.op, predicate.left, predicate.right, negated, predicate.span)
            case s.Membership():
                return self.membership(predicate, negated)
            case s.Like():
                return self.like(predicate, negated)
            case s.IsNull():
                return self.is_null(predicate.operand, negated)

    def comparison(self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span) -> t.Test:
        """Bind ``left op right``."""
        self.check_names(left, right)
        self.check_names(right, left)
        if length_of(left) is not None or length_of(right) is not None:
            return self.length(op, left, right, negated, span)
        left_kind, right_kind = self.kind(left), self.kind(right)
        kinds = {left_kind, right_kind}
        if NOTHING in kinds:
            return t.Fixed(False)
        if kinds == {MOMENT} or self.are_durations(left, right):
            return self.moments(op, left, right, negated, span)
        if kinds <= {INTEGER, FLOAT}:
            return self.numeric(op, left, right, negated)
        if kinds <= {INTEGER, FLOAT, DECIMAL}:
            return self.decimal(op, left, right, negated, span)
        if kinds == {STRING}:
            return self.strings(op, left, right, negated, span)
        if kinds == {BOOLEAN}:
            if op not in ("=", "<>"):
                raise self.error(f"booleans are compared by = and <>, not by {op}", span)
            return self.numeric(op, left, right, negated)
        if kinds == {MOMENT, STRING}:
            if left_kind == STRING:
                left, right, op = right, left, t.MIRRORED[op]
            return self.moment(op, left, right, negated)
        raise self.error(
            f"cannot compare {self.describe(left)} with {self.describe(right)}",
            span,
            _comparison_hint(kinds, left, right),
        )

    def membership(self, predicate: s.Membership, negated: bool) -> t.Test:
        """Bind ``operand IN {v, ...}``: TRUE if it equals one of the values."""
        if self.kind(predicate.operand) == STRING and all(_is_text(v) for v in predicate.values):
            values = pa.array([v.value for v in predicate.values], pa.string())  # type: ignore[union-attr]
            return self.by_value(predicate.operand, lambda texts: pc.is_in(texts, values), negated)
        tests = [self.comparison("=", predicate.operand, value, negated, value.span) for value in predicate.values]
        return (t.And if negated else t.Or)(tuple(tests))

    def like(self, predicate: s.Like, negated: bool) -> t.Test:
        """Bind ``operand LIKE 'pattern'``."""
        kind = self.kind(predicate.operand)
        if kind == NOTHING:
            return t.Fixed(False)
        if kind != STRING:
            raise self.error(
                f"LIKE needs a string, and {self.describe(predicate.operand)} is none", predicate.operand.span
            )
        return self.by_value(
            predicate.operand, lambda texts: pc.match_substring_regex(texts, predicate.pattern), negated
        )

    def is_null(self, operand: s.Expression, negated: bool) -> t.Test:
        """Bind ``operand IS NULL``: an expression is NULL if a part is, or if it divides an integer by 0."""
        kind = self.kind(operand)
        match operand:
            case s.Attribute() if negated and kind not in (NOTHING, STRING):
                return t.Known(self.inputs.column(operand.name))
            case s.Attribute() if kind != NOTHING:
                return self.inputs.give(partial(_null_rows, name=operand.name, negated=negated))
            case s.Negative():
                return self.is_null(operand.operand, negated)
            case s.Arithmetic() if kind != NOTHING:
                tests = [self.is_null(part, negated) for part in (operand.left, operand.right)]
                if operand.op in "/%" and kind == INTEGER:
                    zero = s.Literal(0, "0", operand.right.span)
                    tests.append(self.numeric("=", operand.right, zero, negated))
                return (t.And if negated else t.Or)(tuple(tests))
            case _:
                return t.Fixed((kind == NOTHING) != negated)

    # ---- kinds of comparison ------------------------------------------------------------------------------

    def numeric(self, op: str, left: s.Expression, right: s.Expression, negated: bool) -> t.Test:
        """Compare integers, floats or booleans."""
        as_float = FLOAT in (self.kind(left), self.kind(right))
        return _compare(self.inputs, op, self.number(left), self.number(right), negated, as_float)

    def decimal(self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span) -> t.Test:
        """Compare decimals exactly: with a literal, with an integer or with each other."""
        if isinstance(right, s.Attribute) and not isinstance(left, s.Attribute):
            left, right, op = right, left, t.MIRRORED[op]
        constant = _exact(right)
        if isinstance(left, s.Attribute) and self.kind(left) == DECIMAL and constant is not None:
            data_type = self.column(left)
            bound = constant * Fraction(10) ** data_type.scale
            if data_type.precision <= 18:
                return self.integers_with_rational(op, left, bound, negated)
            return self.wide_decimal_with_rational(op, left, bound, negated)
        columns = isinstance(left, s.Attribute) and isinstance(right, s.Attribute)
        if columns and FLOAT not in (self.kind(left), self.kind(right)):
            return self.columns_by_arrow(op, left, right, negated, span)
        return self.numeric(op, left, right, negated)

    def integers_with_rational(self, op: str, column: s.Attribute, bound: Fraction, negated: bool) -> t.Test:
        """Compare values stored as integers with an exact number that may lie between two integers."""
        op, floor, never_equal = with_integer(op, bound)
        values = self.inputs.column(column.name)
        if never_equal:
            return t.Known(values) if (op == "<>") != negated else t.Fixed(False)
        return _compare(self.inputs, op, values, floor, negated)

    def wide_decimal_with_rational(self, op: str, column: s.Attribute, bound: Fraction, negated: bool) -> t.Test:
        """Compare a decimal column of more than 18 digits with a number, given in units of its last digit."""
        data_type, name = self.column(column), column.name
        op, floor, never_equal = with_integer(op, bound)
        if never_equal or abs(floor) >= 10**data_type.precision:
            holds = ((op == "<>") if never_equal else OPERATORS[op](0, floor)) != negated
            return t.Known(self.inputs.column(name)) if holds else t.Fixed(False)
        # Arrow compares no decimals of negative scale
        common = data_type if data_type.scale >= 0 else pa.decimal256(76, 0)
        scalar = pa.scalar(Decimal(floor).scaleb(-data_type.scale, Context(prec=76)), common)
        return self.inputs.give(
            lambda block: _arrow_rows(pc.call_function(_ARROW[op], [block.array(name).cast(common), scalar]), negated)
        )

    def columns_by_arrow(self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span) -> t.Test:
        """Compare two columns of strings, or of decimals (one of them may be of integers)."""
        if not (isinstance(left, s.Attribute) and isinstance(right, s.Attribute)):
            raise self.error(f"cannot compare {self.describe(left)} with {self.describe(right)}", span)
        function, a, b = _ARROW[op], left.name, right.name
        if self.kind(left) == STRING:
            return self.inputs.give(
                lambda block: _arrow_rows(pc.call_function(function, [block.texts(a), block.texts(b)]), negated)
            )
        common = _common_decimal(self.column(left), self.column(right))
        if common is None:
            raise self.error(
                f"cannot compare {self.describe(left)} with {self.describe(right)} exactly in 76 digits", span
            )
        return self.inputs.give(
            lambda block: _arrow_rows(
                pc.call_function(function, [_decimals(block.array(name), common) for name in (a, b)]), negated
            )
        )

    def are_durations(self, left: s.Expression, right: s.Expression) -> bool:
        """Return True if both operands are columns of durations, whose units may differ."""
        return all(isinstance(x, s.Attribute) and pa.types.is_duration(self.column(x)) for x in (left, right))

    def moments(self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span) -> t.Test:
        """Compare two columns of moments, or of durations, exactly: their units may differ."""
        assert isinstance(left, s.Attribute)
        assert isinstance(right, s.Attribute)
        x_type, y_type = self.column(left), self.column(right)
        if pa.types.is_time(x_type) != pa.types.is_time(y_type) or has_zone(x_type) != has_zone(y_type):
            raise self.error(f"cannot compare {self.describe(left)} with {self.describe(right)}", span)
        if per_second(x_type) > per_second(y_type):
            left, right, op = right, left, t.MIRRORED[op]
            x_type, y_type = y_type, x_type
        ratio = int(per_second(y_type) / per_second(x_type))
        a, b, compare = left.name, right.name, OPERATORS[op]
        if ratio == 1:
            return t.Compare(op, self.inputs.column(a), self.inputs.column(b), negated)

        def test(block: Block) -> Bools:
            # x * ratio against y: compare x with y // ratio, and on equality 0 with the remainder
            x, y = block.numbers(a), block.numbers(b)
            whole, rest = np.divmod(y.astype(np.int64), np.int64(ratio))
            rows: Bools = np.where(x == whole, compare(0, rest), compare(x, whole)) != negated
            for valid in (block.valid(a), block.valid(b)):
                rows = rows if valid is None else rows & valid
            return rows

        return self.inputs.give(test)

    def length(self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span) -> t.Test:
        """Compare a difference of times or durations, or a column of durations, with a length such as 5 MINUTES."""
        if length_of(right) is None:
            left, right, op = right, left, t.MIRRORED[op]
        length, first = length_of(left), length_of(right)
        assert first is not None
        if length is not None:
            return t.Fixed(bool(OPERATORS[op](length, first)) != negated)
        match left:
            case s.Attribute() if pa.types.is_duration(self.column(left)):
                return self.integers_with_rational(op, left, first * per_second(self.column(left)), negated)
            case s.Arithmetic(op="-", left=s.Attribute() as later, right=s.Attribute() as earlier):
                types = self.column(later), self.column(earlier)
                if is_length(*types):
                    names, units = (later.name, earlier.name), (per_second(types[0]), per_second(types[1]))
                    return self.inputs.give(partial(difference_rows, op, names, units, first, negated))
        raise self.error(
            f"cannot compare {self.text[slice(*left.span)]} with the length {self.text[slice(*right.span)]}",
            span,
            LENGTH_HINT,
        )

    def moment(self, op: str, column: s.Expression, text: s.Expression, negated: bool) -> t.Test:
        """Compare a timestamp, date or time of day with a quoted one."""
        assert isinstance(text, s.Literal | s.Attribute)
        if not isinstance(column, s.Attribute) or not isinstance(text, s.Literal):
            raise self.error(f"cannot compare {self.describe(column)} with {self.describe(text)}", text.span)
        data_type = self.column(column)
        try:
            bound = read_moment(str(text.value), data_type)
        except ValueError as error:
            raise self.error(
                f"cannot read {text.value!r} as {_article(data_type)}", text.span, _moment_hint(data_type, error)
            ) from None
        return self.integers_with_rational(op, column, bound, negated)

    def strings(self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span) -> t.Test:
        """Compare strings by code points."""
        if isinstance(left, s.Literal):
            left, right, op = right, left, t.MIRRORED[op]
        if isinstance(right, s.Literal):
            if isinstance(left, s.Literal):
                return t.Fixed(OPERATORS[op](str(left.value), str(right.value)) != negated)
            value = pa.scalar(str(right.value), pa.string())
            return self.by_value(left, lambda texts: pc.call_function(_ARROW[op], [texts, value]), negated)
        return self.columns_by_arrow(op, left, right, negated, span)

    def by_value(self, column: s.Expression, test: Callable[[pa.Array], pa.Array], negated: bool) -> t.Test:
        """Test each value of a string column's dictionary once, and look up the rows by code."""
        if not isinstance(column, s.Attribute):
            raise self.error(f"expected a column, found {self.describe(column)}", column.span)
        codes = self.inputs.column(column.name, CODES)
        return t.Lookup(codes, self.inputs.table(codes, lambda values: _arrow_rows(test(values), negated)))

    # ---- expressions ----------------------------------------------------------------------------------------

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
                    message = f"column {dotted(name)!r} is {_article(data_type)}, which no predicate can read"
                    raise self.error(message, expression.span, fields_hint(name, data_type))
                return kind
            case s.Negative():
                return self.arithmetic_kind(expression.operand)
            case s.Arithmetic():
                kinds = {self.arithmetic_kind(expression.left), self.arithmetic_kind(expression.right)}
                return NOTHING if NOTHING in kinds else FLOAT if FLOAT in kinds else INTEGER
            case s.Call():
                message = f"{expression.function} of a difference of times is a length of time, and no number"
                raise self.error(message, expression.span, LENGTH_HINT)
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

    def number(self, expression: s.Expression) -> Operand:
        """Bind a numeric or boolean expression."""
        match expression:
            case s.Literal():
                value = expression.value
                assert not isinstance(value, str)
                return int(value) if isinstance(value, bool) else value
            case s.Duration():
                raise AssertionError("`kind` refuses it")
            case s.Attribute():
                return self.inputs.column(expression.name, *([FLOATS] if self.kind(expression) == DECIMAL else []))
            case s.Negative(operand=s.Literal(value=int(value))):
                return -value  # exact, also outside of int64
            case s.Negative():
                return _negative(self.number(expression.operand), self.kind(expression) == FLOAT)
            case s.Arithmetic():
                x, y = self.number(expression.left), self.number(expression.right)
                return _arithmetic(self.inputs, expression.op, x, y, self.kind(expression) == FLOAT)
        raise AssertionError(expression)

    def check_names(self, name: s.Expression, other: s.Expression) -> None:
        """Raise an error for a name that is no column, and was meant as NULL or as a text."""
        if not isinstance(name, s.Attribute) or len(names_of(name.name)) > 1 or name.name in self.schema.names:
            return
        message = f"the events have no column {name.name!r}"
        if name.name.upper() == "NULL":
            raise self.error(message, name.span, NULL_HINT)
        known = isinstance(other, s.Attribute) and attribute_type(self.schema, other.name) is not None
        if known and self.kind(other) == STRING:
            close = nearest(name.name, self.schema.names)
            text = name.name.replace("'", "''")
            quoted = f"for a text write '{text}'"
            raise self.error(message, name.span, f"did you mean {close!r}? Or {quoted}" if close else quoted)

    # ---- messages -------------------------------------------------------------------------------------------

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
            case _:
                return f"the number {self.text[slice(*expression.span)]}"

    def error(self, message: str, span: s.Span, hint: str | None = None) -> QueryTypeError:
        """Return an error that underlines a place in the query."""
        return QueryTypeError(message, self.text, *span, hint=hint)


def type_errors(predicates: Iterable[s.Predicate], schema: pa.Schema, text: str) -> list[QueryTypeError]:
    """Return the type errors of predicates over a schema, one for each wrong test."""
    binder = Binder(schema, text)
    errors = []
    for leaf in (leaf for predicate in predicates for leaf in s.leaves(predicate)):
        try:
            binder.bind(leaf)
        except QueryTypeError as error:
            errors.append(error)
    return errors


# ---- rows ------------------------------------------------------------------------------------------------------


def _arrow_rows(answer: pa.Array, negated: bool) -> Bools:
    """Return the rows for which Arrow's three-valued answer is TRUE (FALSE when negated)."""
    if negated:
        answer = pc.invert(answer)
    return np.asarray(answer.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _null_rows(block: Block, name: str, negated: bool) -> Bools:
    """Return the rows of a column that are NULL, or those that are not."""
    valid = block.valid(name)
    rows: Bools = np.ones(block.n_rows, np.bool_) if valid is None else valid
    return rows if negated else np.logical_not(rows)


# ---- numbers -----------------------------------------------------------------------------------------------------


def _compare(inputs: Inputs, op: str, x: Operand, y: Operand, negated: bool, as_float: bool = False) -> t.Test:
    """Return ``x op y`` or its negation, as floats if either is one or with `as_float`."""
    if x is None or y is None:
        return t.Fixed(False)
    if not isinstance(x, t.Value):
        x, y, op = y, x, t.MIRRORED[op]
    if not isinstance(x, t.Value):
        assert not isinstance(y, t.Value)
        x, y = (float(x), float(y)) if as_float else (x, y)
        return t.Fixed(bool(OPERATORS[op](x, y)) != negated)
    if as_float or x.dtype == t.F8 or (isinstance(y, t.Value) and y.dtype == t.F8):
        return t.Compare(op, _to_float(inputs, x), _to_float(inputs, y), negated)
    if isinstance(y, t.Value):
        if (x.dtype, y.dtype) == (t.U8, t.I8):
            x, y, op = y, x, t.MIRRORED[op]
        return t.Compare(op, x, y, negated)
    if y not in (_UINT64 if x.dtype == t.U8 else _INT64):  # all values of x are on one side of y
        return t.Known(x) if bool(OPERATORS[op](0, y)) != negated else t.Fixed(False)
    return t.Compare(op, x, inputs.constant(y, x.dtype), negated)


def _negative(x: Operand, as_float: bool) -> Operand:
    """Return ``-x``, of an int64 or a float64."""
    if x is None:
        return None
    if isinstance(x, t.Value):
        return t.Negative(x if x.dtype != t.U8 else t.ToInt64(x))
    with np.errstate(all="ignore"):
        return (-(to_float if as_float else to_int64)(x)).item()  # type: ignore[no-any-return]


def _arithmetic(inputs: Inputs, op: str, x: Operand, y: Operand, as_float: bool) -> Operand:
    """Return ``x op y`` of int64 or of float64; NULL if an operand is NULL, or an integer is divided by 0."""
    if x is None or y is None:
        return None
    if isinstance(x, t.Value) or isinstance(y, t.Value):
        convert = _to_float if as_float else _to_int64
        return t.Arithmetic(op, convert(inputs, x), convert(inputs, y))
    x, y = (to_float(x), to_float(y)) if as_float else (to_int64(x), to_int64(y))
    if op in "/%" and not as_float and y == 0:
        return None
    with np.errstate(all="ignore"):
        value = (FLOAT_ARITHMETIC if as_float else INTEGER_ARITHMETIC)[op](x, y)
    return np.asarray(value).item()  # type: ignore[no-any-return]


def _to_float(inputs: Inputs, x: Any) -> t.Value:
    if not isinstance(x, t.Value):
        return inputs.constant(float(x), t.F8)
    return x if x.dtype == t.F8 else t.ToFloat(x)


def _to_int64(inputs: Inputs, x: Any) -> t.Value:
    if not isinstance(x, t.Value):
        return inputs.constant(int(to_int64(x)), t.I8)
    return t.ToInt64(x) if x.dtype == t.U8 else x


def _exact(expression: s.Expression) -> Fraction | None:
    """Return the exact value of a numeric literal, with or without a sign; None for any other expression."""
    if isinstance(expression, s.Negative):
        inner = _exact(expression.operand)
        return None if inner is None else -inner
    if isinstance(expression, s.Literal) and isinstance(expression.value, int | float):
        return None if isinstance(expression.value, bool) else Fraction(expression.text)
    return None


def _decimals(array: pa.Array, common: pa.DataType) -> pa.Array:
    """Cast decimals, integers or durations (which Arrow does not cast directly) to a decimal type."""
    return (array.cast(pa.int64()) if pa.types.is_duration(array.type) else array).cast(common)


def _common_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type that holds all values of two decimal (or integer) types; None: there is none."""
    digits = [(t.precision, t.scale) if kind_of(t) == DECIMAL else (20, 0) for t in (a, b)]
    scale = max(0, *(scale for _, scale in digits))
    fits = max(precision - scale for precision, scale in digits) + scale <= 76
    return pa.decimal256(76, scale) if fits else None


# ---- messages -----------------------------------------------------------------------------------------------------


def _is_text(expression: s.Expression) -> bool:
    return isinstance(expression, s.Literal) and isinstance(expression.value, str)


def _article(data_type: pa.DataType) -> str:
    name = str(data_type)
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _moment_hint(data_type: pa.DataType, error: ValueError) -> str:
    if isinstance(error, ZoneError):
        return str(error)
    if pa.types.is_time(data_type):
        return "write '12:30:00'"
    return "write it as in '2013-01-31' or '2013-01-31 12:30:00'"


def _comparison_hint(kinds: set[str], left: s.Expression, right: s.Expression) -> str | None:
    if MOMENT in kinds:
        return "write moments in quotes: '2013-01-31 12:30:00'"
    if BOOLEAN in kinds:
        return "booleans are compared with TRUE and FALSE"
    number = next((x.text for x in (left, right) if isinstance(x, s.Literal) and x.text), None)
    if number is not None:
        return f"write '{number}' to compare it as a text, character by character"
    text = next((x.value for x in (left, right) if isinstance(x, s.Literal) and isinstance(x.value, str)), None)
    if text is not None and _NUMBER.fullmatch(text):
        return f"write {text} without quotes to compare it as a number"
    return None


def columns_of(predicates: Sequence[s.Predicate]) -> list[str]:
    """Return the names of the attributes that predicates read, in order, each once."""
    return list(dict.fromkeys(a.name for p in predicates for a in s.attributes(p)))
