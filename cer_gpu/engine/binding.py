"""Predicates + schema -> typed tests: every type is checked here, before any row is read.

A test answers for a whole block which rows make it TRUE.  Three-valued logic needs no third value: negations are
pushed to the leaves, and a leaf, negated or not, holds only where nothing that it reads is NULL.

An integer that meets a float becomes a float64; integers divided by zero are NULL (`cer_gpu.engine.numbers` has the
rest).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.ceql import syntax as s
from cer_gpu.engine.columns import (
    BOOLEAN,
    DECIMAL,
    FLOAT,
    INTEGER,
    MOMENT,
    NOTHING,
    STRING,
    Block,
    Bools,
    kind_of,
)
from cer_gpu.engine.moments import ZoneError, has_zone, per_second, read_moment
from cer_gpu.engine.numbers import FLOAT_ARITHMETIC, INTEGER_ARITHMETIC, floats, to_float, to_int64
from cer_gpu.errors import QueryTypeError, did_you_mean

Rows = Bools | bool
"""Which rows, or one answer for all of them."""
Test = Callable[[Block], Rows]
Number = Callable[[Block], tuple[Any, Bools | None]]
"""From a block to values (an array or one for all rows) and to which of them are not NULL (None: all)."""

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARROW = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Binder:
    """Binds predicates to the columns of one schema.

    Parameters
    ----------
    schema : pyarrow.Schema
    text : str
        The query, for error messages.
    """

    def __init__(self, schema: pa.Schema, text: str) -> None:
        self.schema = schema
        self.text = text

    # ---- predicates -------------------------------------------------------------------------------------

    def bind(self, predicate: s.Predicate, negated: bool = False) -> Test:
        """Return the test that is TRUE where the predicate (or its negation) is.

        Raises
        ------
        QueryTypeError
            For an unknown column, or types that do not go together.
        """
        match predicate:
            case s.Not():
                return self.bind(predicate.operand, not negated)
            case s.And() | s.Or():
                left, right = self.bind(predicate.left, negated), self.bind(predicate.right, negated)
                # De Morgan: FALSE(p AND q) = FALSE(p) OR FALSE(q), also with NULL
                if isinstance(predicate, s.And) != negated:
                    return lambda block: left(block) & right(block)
                return lambda block: left(block) | right(block)
            case s.Comparison():
                return self.comparison(predicate.op, predicate.left, predicate.right, negated, predicate.span)
            case s.Membership():
                return self.membership(predicate, negated)
            case s.Like():
                return self.like(predicate, negated)

    def comparison(self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span) -> Test:
        """Bind ``left op right``."""
        left_kind, right_kind = self.kind(left), self.kind(right)
        kinds = {left_kind, right_kind}
        if NOTHING in kinds:
            return lambda block: False
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
                left, right, op = right, left, _MIRRORED.get(op, op)
            return self.moment(op, left, right, negated)
        raise self.error(
            f"cannot compare {self.describe(left)} with {self.describe(right)}", span, _comparison_hint(kinds)
        )

    def membership(self, predicate: s.Membership, negated: bool) -> Test:
        """Bind ``operand IN {v, ...}``: TRUE where it equals one of them."""
        if self.kind(predicate.operand) == STRING and all(_is_text(v) for v in predicate.values):
            values = pa.array([v.value for v in predicate.values], pa.string())  # type: ignore[union-attr]
            return self.by_value(predicate.operand, lambda texts: pc.is_in(texts, values), negated)
        tests = [self.comparison("=", predicate.operand, value, negated, value.span) for value in predicate.values]
        together = operator.and_ if negated else operator.or_

        def test(block: Block) -> Rows:
            rows = tests[0](block)
            for other in tests[1:]:
                rows = together(rows, other(block))
            return rows

        return test

    def like(self, predicate: s.Like, negated: bool) -> Test:
        """Bind ``operand LIKE 'pattern'``."""
        kind = self.kind(predicate.operand)
        if kind == NOTHING:
            return lambda block: False
        if kind != STRING:
            raise self.error(
                f"LIKE needs a string, and {self.describe(predicate.operand)} is none", predicate.operand.span
            )
        return self.by_value(
            predicate.operand, lambda texts: pc.match_substring_regex(texts, predicate.pattern), negated
        )

    # ---- one kind of comparison each ----------------------------------------------------------------------

    def numeric(self, op: str, left: s.Expression, right: s.Expression, negated: bool) -> Test:
        """Compare integers, floats or booleans."""
        compare = _OPERATORS[op]
        a, b = self.number(left), self.number(right)
        as_float = FLOAT in (self.kind(left), self.kind(right))

        def test(block: Block) -> Rows:
            x, x_valid = a(block)
            y, y_valid = b(block)
            if as_float:
                x, y = to_float(x), to_float(y)
            return _where_valid(compare(x, y), negated, x_valid, y_valid)

        return test

    def decimal(self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span) -> Test:
        """Compare decimals exactly: with a literal, with an integer or with one another."""
        if isinstance(right, s.Attribute) and not isinstance(left, s.Attribute):
            left, right, op = right, left, _MIRRORED.get(op, op)
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

    def integers_with_rational(self, op: str, column: s.Attribute, bound: Fraction, negated: bool) -> Test:
        """Compare values stored as integers with an exact number that may lie between two integers."""
        op, floor, never_equal = _with_integer(op, bound)
        compare = _OPERATORS[op]
        name = column.name

        def test(block: Block) -> Rows:
            rows = (op == "<>") if never_equal else compare(block.numbers(name), floor)
            return _where_valid(rows, negated, block.valid(name), None, block.n_rows)

        return test

    def wide_decimal_with_rational(self, op: str, column: s.Attribute, bound: Fraction, negated: bool) -> Test:
        """Compare a decimal column of more than 18 digits with a number, given in units of its last digit."""
        data_type, name = self.column(column), column.name
        op, floor, never_equal = _with_integer(op, bound)
        if never_equal or abs(floor) >= 10**data_type.precision:
            same = (op == "<>") if never_equal else _OPERATORS[op](0, floor)
            return lambda block: _where_valid(same, negated, block.valid(name), None, block.n_rows)
        # Arrow compares no decimals of negative scale
        common = data_type if data_type.scale >= 0 else pa.decimal256(76, 0)
        scalar = pa.scalar(Decimal(floor).scaleb(-data_type.scale, Context(prec=76)), common)
        return lambda block: _arrow_rows(
            pc.call_function(_ARROW[op], [block.array(name).cast(common), scalar]), negated
        )

    def columns_by_arrow(self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span) -> Test:
        """Compare two columns of strings, or of decimals (one of them may be of integers)."""
        if not (isinstance(left, s.Attribute) and isinstance(right, s.Attribute)):
            raise self.error(f"cannot compare {self.describe(left)} with {self.describe(right)}", span)
        function, a, b = _ARROW[op], left.name, right.name
        if self.kind(left) == STRING:
            return lambda block: _arrow_rows(pc.call_function(function, [block.texts(a), block.texts(b)]), negated)
        common = _common_decimal(self.column(left), self.column(right))
        if common is None:
            raise self.error(
                f"cannot compare {self.describe(left)} with {self.describe(right)} exactly in 76 digits", span
            )
        return lambda block: _arrow_rows(
            pc.call_function(function, [block.array(a).cast(common), block.array(b).cast(common)]), negated
        )

    def are_durations(self, left: s.Expression, right: s.Expression) -> bool:
        """Return whether two durations are compared, which may be of different units."""
        return all(isinstance(x, s.Attribute) and pa.types.is_duration(self.column(x)) for x in (left, right))

    def moments(self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span) -> Test:
        """Compare two columns of moments, or of durations, exactly: their units may differ."""
        assert isinstance(left, s.Attribute)
        assert isinstance(right, s.Attribute)
        x_type, y_type = self.column(left), self.column(right)
        if pa.types.is_time(x_type) != pa.types.is_time(y_type) or has_zone(x_type) != has_zone(y_type):
            raise self.error(f"cannot compare {self.describe(left)} with {self.describe(right)}", span)
        if per_second(x_type) > per_second(y_type):
            left, right, op = right, left, _MIRRORED.get(op, op)
            x_type, y_type = y_type, x_type
        ratio = int(per_second(y_type) / per_second(x_type))
        a, b, compare = left.name, right.name, _OPERATORS[op]

        def test(block: Block) -> Rows:
            x, y = block.numbers(a), block.numbers(b)
            if ratio == 1:
                rows = compare(x, y)
            else:  # x units of `ratio` against y: the whole units of y decide, then what is left over
                whole, rest = np.divmod(y.astype(np.int64), np.int64(ratio))
                rows = np.where(x == whole, compare(0, rest), compare(x, whole))
            return _where_valid(rows, negated, block.valid(a), block.valid(b))

        return test

    def moment(self, op: str, column: s.Expression, text: s.Expression, negated: bool) -> Test:
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

    def strings(self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span) -> Test:
        """Compare strings by code points."""
        if isinstance(left, s.Literal):
            left, right, op = right, left, _MIRRORED.get(op, op)
        if isinstance(right, s.Literal):
            if isinstance(left, s.Literal):
                same = _OPERATORS[op](str(left.value), str(right.value)) != negated
                return lambda block: bool(same)
            value = pa.scalar(str(right.value), pa.string())
            return self.by_value(left, lambda texts: pc.call_function(_ARROW[op], [texts, value]), negated)
        return self.columns_by_arrow(op, left, right, negated, span)

    def by_value(self, column: s.Expression, test: Callable[[pa.Array], pa.Array], negated: bool) -> Test:
        """Test each value of a string column's dictionary once, and look the rows up by code."""
        if not isinstance(column, s.Attribute):
            raise self.error(f"expected a column, found {self.describe(column)}", column.span)
        return DictionaryTest(column.name, test, negated)

    # ---- expressions ----------------------------------------------------------------------------------------

    def kind(self, expression: s.Expression) -> str:
        """Return the kind of an expression's value."""
        match expression:
            case s.Literal():
                return {bool: BOOLEAN, int: INTEGER, float: FLOAT, str: STRING}[type(expression.value)]
            case s.Attribute():
                kind = kind_of(self.column(expression))
                if kind is None:
                    what = _article(self.column(expression))
                    message = f"column {expression.name!r} is {what}, which no predicate can read"
                    raise self.error(message, expression.span)
                return kind
            case s.Negative():
                return self.arithmetic_kind(expression.operand)
            case s.Arithmetic():
                kinds = {self.arithmetic_kind(expression.left), self.arithmetic_kind(expression.right)}
                return NOTHING if NOTHING in kinds else FLOAT if FLOAT in kinds else INTEGER

    def arithmetic_kind(self, operand: s.Expression) -> str:
        """Return the kind of an operand of arithmetic; decimals take part as floats."""
        kind = self.kind(operand)
        if kind not in (INTEGER, FLOAT, DECIMAL, NOTHING):
            raise self.error(f"arithmetic needs numbers, and {self.describe(operand)} is none", operand.span)
        return FLOAT if kind == DECIMAL else kind

    def column(self, attribute: s.Attribute) -> pa.DataType:
        """Return the value type of a column."""
        return column_type(self.schema, attribute.name, self.text, attribute.span)

    def number(self, expression: s.Expression) -> Number:
        """Return a function to the values of a numeric or boolean expression and to which of them are not NULL."""
        match expression:
            case s.Literal():
                value = expression.value
                return lambda block: (value, None)
            case s.Attribute():
                name = expression.name
                if self.kind(expression) == DECIMAL:
                    return lambda block: (floats(block.array(name)), block.valid(name))
                return lambda block: (block.numbers(name), block.valid(name))
            case s.Negative(operand=s.Literal(value=int(value))):
                return lambda block: (-value, None)  # exact, also where it lies outside of int64
        number = self.negative(expression) if isinstance(expression, s.Negative) else self.arithmetic(expression)
        return number if any(True for _ in s.attributes(expression)) else _constant(number)

    def negative(self, expression: s.Negative) -> Number:
        """Return a function to the values of ``-operand``."""
        operand = self.number(expression.operand)
        convert = to_float if self.kind(expression) == FLOAT else to_int64

        def values(block: Block) -> tuple[Any, Bools | None]:
            x, valid = operand(block)
            with np.errstate(all="ignore"):
                return -convert(x), valid

        return values

    def arithmetic(self, expression: s.Arithmetic) -> Number:
        """Return a function to the values of ``left op right``."""
        left, right = self.number(expression.left), self.number(expression.right)
        as_float = self.kind(expression) == FLOAT
        compute = (FLOAT_ARITHMETIC if as_float else INTEGER_ARITHMETIC)[expression.op]
        divides = expression.op in "/%" and not as_float
        convert = to_float if as_float else to_int64

        def values(block: Block) -> tuple[Any, Bools | None]:
            x, x_valid = left(block)
            y, y_valid = right(block)
            x, y = convert(x), convert(y)
            valid = _both(x_valid, y_valid)
            if divides:
                valid = _both(valid, np.broadcast_to(y != 0, (block.n_rows,)))
            with np.errstate(all="ignore"):
                return compute(x, y), valid

        return values

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
            case s.Attribute():
                return f"column {expression.name!r} ({self.column(expression)})"
            case _:
                return f"the number {self.text[slice(*expression.span)]}"

    def error(self, message: str, span: s.Span, hint: str | None = None) -> QueryTypeError:
        """Return an error that underlines a place in the query."""
        return QueryTypeError(message, self.text, *span, hint=hint)


def type_errors(predicates: Iterable[s.Predicate], schema: pa.Schema, text: str) -> list[QueryTypeError]:
    """Return all that is wrong with predicates over a schema, test by test."""
    binder = Binder(schema, text)
    errors = []
    for leaf in (leaf for predicate in predicates for leaf in s.leaves(predicate)):
        try:
            binder.bind(leaf)
        except QueryTypeError as error:
            errors.append(error)
    return errors


class PerDictionary:
    """Something computed once for each dictionary of a string column, and kept while the dictionary stays.

    Parameters
    ----------
    compute
        From the dictionary's values to an array with one row for each of them.
    """

    def __init__(self, compute: Callable[[pa.Array], npt.NDArray[Any]]) -> None:
        self._compute = compute
        self._values: pa.Array | None = None  # kept alive, so that its address stays its own
        self._table: npt.NDArray[Any] | None = None

    def __call__(self, values: pa.Array) -> npt.NDArray[Any]:
        """Return the table of a dictionary, with one row more (never empty, so that code 0 can be looked up)."""
        if self._table is None or self._values is None or not _same_memory(values, self._values):
            if self._table is None or not values.equals(self._values):
                rows = self._compute(values)
                self._table = np.concatenate([rows, np.zeros_like(rows, shape=(1, *rows.shape[1:]))])
            self._values = values
        return self._table


class DictionaryTest:
    """A test of a string column that depends on the value alone."""

    def __init__(self, name: str, test: Callable[[pa.Array], pa.Array], negated: bool) -> None:
        self.name = name
        self._table = PerDictionary(lambda values: _arrow_rows(test(values), negated))

    def __call__(self, block: Block) -> Rows:
        """Look every row up."""
        coded = block.coded(self.name)
        return _and_valid(self._table(coded.values)[coded.codes], block.valid(self.name))


def column_type(schema: pa.Schema, name: str, text: str | None, span: s.Span | None) -> pa.DataType:
    """Return the type of a column, for a dictionary that of its values.

    Raises
    ------
    QueryTypeError
        When there is none, or more than one, of that name.
    """
    found = schema.get_all_field_indices(name)
    if len(found) != 1:
        how_many = "no column" if not found else f"{len(found)} columns"
        hint = did_you_mean(name, schema.names, "columns") if not found else None
        message = f"the events have {how_many} {name!r}"
        start, end = span or (None, None)
        raise QueryTypeError(message, text, start, end, hint)
    data_type = schema.field(found[0]).type
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


# ---- rows ------------------------------------------------------------------------------------------------------


def _where_valid(
    rows: Any, negated: bool, x_valid: Bools | None, y_valid: Bools | None, n_rows: int | None = None
) -> Rows:
    rows = np.logical_not(rows) if negated else rows
    if n_rows is not None and not isinstance(rows, np.ndarray):
        rows = np.full(n_rows, bool(rows))
    return _and_valid(_and_valid(rows, x_valid), y_valid)


def _and_valid(rows: Any, valid: Bools | None) -> Rows:
    return rows if valid is None else rows & valid  # type: ignore[no-any-return]


def _both(a: Bools | None, b: Bools | None) -> Bools | None:
    return b if a is None else a if b is None else a & b


def _arrow_rows(answer: pa.Array, negated: bool) -> Bools:
    """Return where Arrow's three-valued answer is TRUE (FALSE when negated)."""
    if negated:
        answer = pc.invert(answer)
    return np.asarray(answer.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _same_memory(a: pa.Array, b: pa.Array) -> bool:
    return (
        len(a) == len(b)
        and a.offset == b.offset
        and a.type == b.type
        and all(
            (x is None and y is None) or (x is not None and y is not None and x.address == y.address)
            for x, y in zip(a.buffers(), b.buffers(), strict=True)
        )
    )


# ---- numbers -----------------------------------------------------------------------------------------------------


def _constant(number: Number) -> Number:
    """Compute an expression without columns once."""
    value, valid = number(Block(pa.record_batch({"row": [0]})))
    value = np.asarray(value).item()
    if valid is None or valid[0]:
        return lambda block: (value, None)
    return lambda block: (value, np.zeros(block.n_rows, np.bool_))


def _exact(expression: s.Expression) -> Fraction | None:
    """Return the exact value of a numeric literal, signed or not."""
    if isinstance(expression, s.Negative):
        inner = _exact(expression.operand)
        return None if inner is None else -inner
    if isinstance(expression, s.Literal) and isinstance(expression.value, int | float):
        return None if isinstance(expression.value, bool) else Fraction(expression.text)
    return None


def _with_integer(op: str, bound: Fraction) -> tuple[str, int, bool]:
    """Return the operator and the integer for a comparison of integers with a bound, and whether none equals it."""
    whole = bound.denominator == 1
    if not whole:
        op = {"<": "<=", ">=": ">"}.get(op, op)  # x < 2.5 is x <= 2, x >= 2.5 is x > 2
    return op, bound.numerator // bound.denominator, not whole and op in ("=", "<>")


def _common_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type that holds all values of two decimal (or integer) types, or None when there is none."""
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


def _comparison_hint(kinds: set[str]) -> str | None:
    if MOMENT in kinds:
        return "write moments in quotes: '2013-01-31 12:30:00'"
    if BOOLEAN in kinds:
        return "booleans are compared with TRUE and FALSE"
    return None


def columns_of(predicates: Sequence[s.Predicate]) -> list[str]:
    """Return the names of the columns that predicates read, in order, each once."""
    return list(dict.fromkeys(a.name for p in predicates for a in s.attributes(p)))
