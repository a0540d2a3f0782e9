"""Binding of predicates to a schema as typed terms: every type is checked here, before any row is read.

Three-valued logic needs no third value: negations are pushed to the leaves, and a leaf, negated or not, is TRUE only
if nothing that it reads is NULL.

An integer that meets a float becomes a float64; integers divided by zero are NULL .
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import children
from cer_gpu.columnar.clocks import per_second, read_timestamp
from cer_gpu.columnar.columns import BOOLEAN, DECIMAL, FLOAT, INTEGER, NOTHING, STRING, TEMPORAL, kind_of
from cer_gpu.errors import QueryTypeError
from cer_gpu.expressions import lists, string_tests
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.arithmetic import (
    LENGTH_HINT,
    apply_operator,
    compare_scaled,
    exact_value,
    float_term,
    length_of,
    with_integer,
)
from cer_gpu.expressions.by_arrow import NullRows, arrow_rows, common_decimal, decimals, of_arrow
from cer_gpu.expressions.derived import DerivedColumn, derive
from cer_gpu.expressions.expression_kinds import ExpressionKinds
from cer_gpu.expressions.globs.compiling import Pattern
from cer_gpu.expressions.hints import article, comparison_hint, timestamp_hint
from cer_gpu.expressions.inputs import CODES, FLOATS, NUMBERS, Inputs, Operand
from cer_gpu.expressions.operators import OPERATORS
from cer_gpu.expressions.targets.numpy import rows_of

_VALUES = {t.I8: range(-(2**63), 2**63), t.U8: range(2**64), t.WIDE: range(-(2**127), 2**127)}
_WIDE = 2**120
"""More than any difference of times, in the finest unit, or than any scaled decimal that is made wide."""
_MAX_FACTOR = 10**18


class Binder(ExpressionKinds):
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
        Columns of functions, LAG and OVER aggregates, by the names that they have in predicates.
    """

    def __init__(self, schema: pa.Schema, text: str) -> None:
        super().__init__(schema, text)
        self.schema: pa.Schema = schema
        self.inputs: Inputs = Inputs(schema)
        self.derived: dict[str, DerivedColumn] = {}
        self._elements: dict[lists.Elements, tuple[Binder, lists.ElementTests]] = {}

    def fresh(self) -> Binder:
        """Return a binder with the same slots for another evaluation."""
        other = Binder(self.schema, self.text)
        other.inputs, other.derived = self.inputs.fresh(), dict(self.derived)
        return other

    def derive(self, node: Any) -> Any:
        """Return a predicate or expression with derived columns in place of what it reads."""
        return derive(node, self)

    def add_derived(self, name: str, column: DerivedColumn) -> None:
        """Add a derived column, unless it is known."""
        if name not in self.derived:
            self.derived[name] = column
            self.schema = self.inputs.schema = self.schema.append(pa.field(name, column.type))

    # ---- predicates -------------------------------------------------------------------------------------

    def bind(self, predicate: s.Predicate, negated: bool = False) -> t.BoundPredicate:
        """Return the test for the rows where a predicate (or its negation) is TRUE.

        Raises
        ------
        QueryTypeError
            When a column is unknown, or types do not go together.
        """
        return self.bound_test(self.derive(predicate), negated)

    def bound_test(self, predicate: s.Predicate, negated: bool) -> t.BoundPredicate:
        """Return the test of a predicate without functions, or of its negation."""
        match predicate:
            case s.Not():
                return self.bound_test(predicate.operand, not negated)
            case s.And() | s.Or():
                # De Morgan: FALSE(p AND q) = FALSE(p) OR FALSE(q), also with NULL
                kind = t.And if isinstance(predicate, s.And) != negated else t.Or
                tests: list[t.BoundPredicate] = []
                for test in (self.bound_test(operand, negated) for operand in predicate.operands):
                    tests += test.tests if isinstance(test, kind) else [test]
                return kind(tuple(tests))
            case s.Comparison():
                self.check_names(predicate.left, predicate.right)
                self.check_names(predicate.right, predicate.left)
                sides = predicate.left, predicate.right
                return self.computed(self.comparison(predicate.op, *sides, negated, predicate.span))
            case s.Membership():
                return self.membership(predicate, negated)
            case s.StringTest():
                return self.string_test(predicate, negated)
            case s.AnyElement():
                return self.any_element(predicate, negated)
            case s.IsNull():
                return self.computed(self.is_null(predicate.operand, negated))
            case s.Apart():
                raise AssertionError("a distance of two events among the predicates of one")

    def computed(self, test: t.BoundPredicate) -> t.BoundPredicate:
        """Return a test unchanged, or as its results if it computes integers that may have more than 128 bits."""
        inputs = self.inputs
        return inputs.give(lambda block: rows_of(test, inputs, block)) if t.goes_beyond(test) else test

    def inputs_of(self, event: object) -> Inputs:
        """Return the inputs of values of one event."""
        return self.inputs

    def comparison(
        self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span
    ) -> t.BoundPredicate:
        """Bind ``left op right``."""
        sides = left, right
        if any(length_of(side) is not None for side in sides) or (
            all(map(self.is_length, sides)) and any(map(self.is_distance, sides))
        ):
            return self.length(op, left, right, negated, span)
        left_kind, right_kind = self.kind(left), self.kind(right)
        kinds = {left_kind, right_kind}
        if NOTHING in kinds:
            return t.ConstantPredicate(False)
        if kinds == {TEMPORAL} or self.are_durations(left, right):
            return self.compare_timestamps(op, left, right, negated)
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
        if kinds == {TEMPORAL, STRING}:
            if left_kind == STRING:
                left, right, op = right, left, t.MIRRORED[op]
            return self.compare_timestamp(op, left, right, negated)
        raise self.error(
            f"cannot compare {self.describe(left)} with {self.describe(right)}",
            span,
            comparison_hint(kinds, left, right),
        )

    def membership(self, predicate: s.Membership, negated: bool) -> t.BoundPredicate:
        """Bind ``operand IN {v, ...}``: TRUE if it equals one of the values."""
        if all(_is_string(v) for v in predicate.values) and self.kind(predicate.operand) == STRING:
            values = tuple(Pattern(str(v.value), plain=True) for v in predicate.values)  # type: ignore[union-attr]
            return self.by_value(predicate.operand, string_tests.OneOfPatterns(values), negated)
        equal = (s.Comparison("=", predicate.operand, value, value.span) for value in predicate.values)
        tests = [self.bound_test(each, negated) for each in equal]
        return (t.And if negated else t.Or)(tuple(tests))

    def string_test(self, test: s.StringTest, negated: bool) -> t.BoundPredicate:
        """Bind LIKE, GLOB or CIDR."""
        kind = self.kind(test.operand)
        if kind not in (STRING, NOTHING):
            raise self.error(
                f"{test.name} needs a string, and {self.describe(test.operand)} is none", test.operand.span
            )
        return (
            t.ConstantPredicate(False)
            if kind == NOTHING
            else self.by_value(test.operand, string_tests.matcher_of(test), negated)
        )

    def any_element(self, predicate: s.AnyElement, negated: bool) -> t.BoundPredicate:
        """Bind a test of the elements of a list."""
        column = predicate.element.list
        data_type = self.column(column)
        if pa.types.is_null(data_type):
            return t.ConstantPredicate(False)
        if not lists.is_list(data_type):
            raise self.error(f"ANY takes a column of lists, and {self.describe(column)} is none", column.span)
        elements, test = lists.elements_of(predicate, self.schema, data_type)
        if elements not in self._elements:
            binder = Binder(elements.schema, self.text)
            self._elements[elements] = binder, lists.ElementTests(elements, binder.inputs, binder.derived)
        binder, of = self._elements[elements]
        return self.inputs.give(lists.AnyOfList(of, binder.bind(test, negated), negated))

    def is_null(self, operand: s.Expression, negated: bool) -> t.BoundPredicate:
        """Bind ``operand IS NULL``: an expression is NULL if a part is, or if it divides an integer by 0."""
        if isinstance(operand, s.Attribute) and kind_of(self.column(operand)) is None:  # a list or a struct
            return self.inputs.give(NullRows(operand.name, negated))
        kind = INTEGER if self.is_length(operand) and self.is_distance(operand) else self.kind(operand)
        match operand:
            case s.Attribute() if kind not in (NOTHING, STRING):
                return t.IsNotNull(self.stored(operand), not negated)
            case s.Attribute() if kind != NOTHING:
                return self.inputs.give(NullRows(operand.name, negated))
            case s.Negative() | s.Call():
                tests = [self.is_null(part, negated) for part in children(operand)]
                return tests[0] if len(tests) == 1 else (t.And if negated else t.Or)(tuple(tests))
            case s.Arithmetic() if kind != NOTHING:
                tests = [self.is_null(part, negated) for part in (operand.left, operand.right)]
                if operand.op in "/%" and kind == INTEGER:
                    zero = s.Literal(0, "0", operand.right.span)
                    tests.append(self.numeric("=", operand.right, zero, negated))
                return (t.And if negated else t.Or)(tuple(tests))
            case _:
                return t.ConstantPredicate((kind == NOTHING) != negated)

    # ---- kinds of comparison ------------------------------------------------------------------------------

    def numeric(self, op: str, left: s.Expression, right: s.Expression, negated: bool) -> t.BoundPredicate:
        """Compare integers, floats or booleans."""
        as_float = FLOAT in (self.kind(left), self.kind(right))
        return self._compare(op, self.number(left), self.number(right), negated, as_float)

    def decimal(
        self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span
    ) -> t.BoundPredicate:
        """Compare decimals exactly: with a literal, with integers or with each other."""
        if isinstance(right, s.Attribute) and not isinstance(left, s.Attribute):
            left, right, op = right, left, t.MIRRORED[op]
        constant = exact_value(right)
        if isinstance(left, s.Attribute) and self.kind(left) == DECIMAL and constant is not None:
            data_type = self.column(left)
            bound = constant * Fraction(10) ** data_type.scale
            if data_type.precision <= 18:
                return self.integers_with_rational(op, left, bound, negated)
            return self.wide_decimal_with_rational(op, left, bound, negated)
        if FLOAT in (self.kind(left), self.kind(right)):
            return self.numeric(op, left, right, negated)
        scales = [self._scale(side) for side in (left, right)]
        if None not in scales:
            scale = max(scales)  # type: ignore[type-var]
            factors = [10 ** (scale - each) for each in scales]  # type: ignore[operator]
            if max(factors) <= _MAX_FACTOR:
                x, y = (self._as_integer(side) for side in (left, right))
                if x is None or y is None:
                    return t.ConstantPredicate(False)
                if t.WIDE in (x.dtype, y.dtype):
                    x, y = (self._scale_integer(each, by) for each, by in zip((x, y), factors, strict=True))
                    factors = [1, 1]
                return compare_scaled(op, x, factors[0], y, factors[1], negated)
        return self.columns_by_arrow(op, left, right, negated, span)

    def _scale(self, side: s.Expression) -> int | None:
        """Return the scale of an integer or of a decimal of at most 18 digits; None: of a longer one."""
        if self.kind(side) != DECIMAL:
            return 0
        assert isinstance(side, s.Attribute)  # other expressions of decimals are floats
        data_type = self.column(side)
        return data_type.scale if data_type.precision <= 18 and data_type.scale >= 0 else None

    def _scale_integer(self, x: t.Value, factor: int) -> t.Value:
        """Return an integer times a factor, exactly."""
        product = apply_operator("*", [x, factor], t.I8, self.inputs, self.inputs_of)
        assert isinstance(product, t.Value)
        return product

    def _as_integer(self, side: s.Expression) -> t.Value | None:
        """Return a decimal column in units of its last digit, or an integer; None for NULL."""
        if isinstance(side, s.Attribute):
            return self.stored(side)
        number = self.number(side)
        return (
            number
            if number is None or isinstance(number, t.Value)
            else self.inputs.constant(number, t.I8 if number in _VALUES[t.I8] else t.WIDE)
        )

    def integers_with_rational(self, op: str, column: s.Attribute, bound: Fraction, negated: bool) -> t.BoundPredicate:
        """Compare values stored as integers with an exact number that may lie between two integers."""
        op, floor, never_equal = with_integer(op, bound)
        values = self.stored(column)
        if never_equal:
            return t.IsNotNull(values) if (op == "<>") != negated else t.ConstantPredicate(False)
        return self._compare(op, values, floor, negated)

    def wide_decimal_with_rational(
        self, op: str, column: s.Attribute, bound: Fraction, negated: bool
    ) -> t.BoundPredicate:
        """Compare a decimal column of more than 18 digits with a number, given in units of its last digit."""
        data_type, name = self.column(column), column.name
        op, floor, never_equal = with_integer(op, bound)
        if never_equal or abs(floor) >= 10**data_type.precision:
            holds = ((op == "<>") if never_equal else _compare_constants(op, 0, floor)) != negated
            return t.IsNotNull(self.stored(column)) if holds else t.ConstantPredicate(False)
        # Arrow compares no decimals of negative scale
        common = data_type if data_type.scale >= 0 else pa.decimal256(76, 0)
        scalar = pa.scalar(Decimal(floor).scaleb(-data_type.scale, Context(prec=76)), common)
        arrow = of_arrow(op)
        return self.inputs.give(lambda block: arrow_rows(arrow(block.array(name).cast(common), scalar), negated))

    def columns_by_arrow(
        self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span
    ) -> t.BoundPredicate:
        """Compare two columns of strings, or of decimals (one of them may be of integers)."""
        if not (isinstance(left, s.Attribute) and isinstance(right, s.Attribute)):
            raise self.error(f"cannot compare {self.describe(left)} with {self.describe(right)}", span)
        function, a, b = of_arrow(op), left.name, right.name
        if self.kind(left) == STRING:
            return self.inputs.give(lambda block: arrow_rows(function(block.strings(a), block.strings(b)), negated))
        common = common_decimal(self.column(left), self.column(right))
        if common is None:
            raise self.error(
                f"cannot compare {self.describe(left)} with {self.describe(right)} exactly in 76 digits", span
            )
        return self.inputs.give(
            lambda block: arrow_rows(function(*(decimals(block.array(name), common) for name in (a, b))), negated)
        )

    def compare_timestamps(self, op: str, left: s.Expression, right: s.Expression, negated: bool) -> t.BoundPredicate:
        """Compare two columns of timestamps, or of durations, exactly: their units may differ."""
        assert isinstance(left, s.Attribute)
        assert isinstance(right, s.Attribute)
        self.check_comparable(left, right)
        units = [per_second(self.column(side)) for side in (left, right)]
        factors = [int(max(units) / unit) for unit in units]
        return compare_scaled(op, self.stored(left), factors[0], self.stored(right), factors[1], negated)

    # ---- lengths of time ------------------------------------------------------------------------------------

    def length(self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span) -> t.BoundPredicate:
        """Compare lengths of time: literals such as 5 MINUTES, columns of durations, and differences, exactly."""
        lengths = length_of(left), length_of(right)
        if lengths[0] is not None:
            left, right, op, lengths = right, left, t.MIRRORED[op], lengths[::-1]
        length = lengths[1]
        if length is not None:
            if lengths[0] is not None:
                return t.ConstantPredicate(_compare_constants(op, lengths[0], length) != negated)
            if isinstance(left, s.Attribute) and pa.types.is_duration(self.column(left)):
                return self.integers_with_rational(op, left, length * per_second(self.column(left)), negated)
        if not self.is_length(left) or not (length is not None or self.is_length(right)):
            raise self.error(
                f"cannot compare {self.text[slice(*left.span)]} with the length {self.text[slice(*right.span)]}",
                span,
                LENGTH_HINT,
            )
        unit = max(per_second(self.column(a)) for side in (left, right) for a in s.attributes(side))
        x = self._wide_length(left, unit)
        if length is None:
            return t.Compare(op, x, self._wide_length(right, unit), negated)
        op, bound, never_equal = with_integer(op, length * unit)
        if never_equal:
            return t.IsNotNull(x) if (op == "<>") != negated else t.ConstantPredicate(False)
        return t.Compare(op, x, self.inputs.constant(max(-_WIDE, min(bound, _WIDE)), t.WIDE), negated)

    def length_of_event(self, side: s.Expression) -> tuple[t.Value, Fraction]:
        """Return a difference of times as a wide integer, and its units in a second."""
        unit = max(per_second(self.column(attribute)) for attribute in s.attributes(side))
        return self._wide_length(side, unit), unit

    def _wide_length(self, side: s.Expression, unit: Fraction) -> t.Value:
        """Return times and durations as wide integers, with `unit` units to a second."""
        if isinstance(side, s.Attribute):
            return t.ToWide(self.stored(side), int(unit / per_second(self.column(side))))
        assert isinstance(side, s.Arithmetic)
        return t.Apply("-", (self._wide_length(side.left, unit), self._wide_length(side.right, unit)))

    def compare_timestamp(self, op: str, column: s.Expression, text: s.Expression, negated: bool) -> t.BoundPredicate:
        """Compare a timestamp, date or time of day with a quoted one."""
        assert isinstance(text, s.Literal | s.Attribute)
        if not isinstance(column, s.Attribute) or not isinstance(text, s.Literal):
            raise self.error(f"cannot compare {self.describe(column)} with {self.describe(text)}", text.span)
        data_type = self.column(column)
        try:
            bound = read_timestamp(str(text.value), data_type)
        except ValueError as error:
            raise self.error(
                f"cannot read {text.value!r} as {article(data_type)}", text.span, timestamp_hint(data_type, error)
            ) from None
        return self.integers_with_rational(op, column, bound, negated)

    def strings(
        self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span
    ) -> t.BoundPredicate:
        """Compare strings by code points."""
        if isinstance(left, s.Literal):
            left, right, op = right, left, t.MIRRORED[op]
        if isinstance(right, s.Literal):
            if isinstance(left, s.Literal):
                return t.ConstantPredicate(_compare_constants(op, str(left.value), str(right.value)) != negated)
            if op in ("=", "<>"):
                equal = string_tests.OneOfPatterns((Pattern(str(right.value), plain=True),))
                return self.by_value(left, equal, negated != (op == "<>"))
            value, compare = pa.scalar(str(right.value), pa.string()), of_arrow(op)
            return self.by_value(left, lambda strings: compare(strings, value), negated)
        return self.columns_by_arrow(op, left, right, negated, span)

    def by_value(self, column: s.Expression, test: Callable[[pa.Array], pa.Array], negated: bool) -> t.BoundPredicate:
        """Test each value of a string column's dictionary once, and look up the rows by code."""
        if isinstance(column, s.Literal):  # such as the value of a function of constants
            return t.ConstantPredicate(bool(arrow_rows(test(pa.array([str(column.value)])), negated)[0]))
        if not isinstance(column, s.Attribute):
            raise self.error(f"expected a column, found {self.describe(column)}", column.span)
        codes = self.inputs.column(column.name, CODES)
        if isinstance(test, string_tests.OneOfPatterns):
            return t.Lookup(codes, self.inputs.string_table(codes, test, negated))
        return t.Lookup(codes, self.inputs.table(codes, lambda values: arrow_rows(test(values), negated)))

    # ---- expressions ----------------------------------------------------------------------------------------

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
                return self.stored(expression, *([FLOATS] if self.kind(expression) == DECIMAL else []))
            case s.Negative(operand=s.Literal(value=int(value))):
                return -value  # exact, also outside of int64
            case s.Negative() | s.Call() | s.Arithmetic():
                op = "negative" if isinstance(expression, s.Negative) else None
                op = op or (expression.op if isinstance(expression, s.Arithmetic) else expression.function)  # type: ignore[union-attr]
                operands = [self.number(part) for part in children(expression)]
                dtype = t.F8 if self.kind(expression) == FLOAT else t.I8
                return apply_operator(op, operands, dtype, self.inputs, self.inputs_of)
        raise AssertionError(expression)

    def number_apart(self, expression: s.Expression) -> tuple[Operand, Inputs]:
        """Bind a numeric or boolean expression of the columns so far, with inputs of its own."""
        own = Binder(self.schema, self.text)
        return own.number(expression), own.inputs

    def stored(self, attribute: s.Attribute, read: str = NUMBERS) -> t.Value:
        """Return the values of a column as they are stored (`Inputs.column`)."""
        return self.inputs.column(attribute.name, read)

    def _compare(self, op: str, x: Operand, y: Operand, negated: bool, as_float: bool = False) -> t.BoundPredicate:
        """Return ``x op y`` or its negation, as floats if either is one or with `as_float`."""
        if x is None or y is None:
            return t.ConstantPredicate(False)
        if not isinstance(x, t.Value):
            x, y, op = y, x, t.MIRRORED[op]
        if not isinstance(x, t.Value):
            assert not isinstance(y, t.Value)
            x, y = (float(x), float(y)) if as_float else (x, y)
            return t.ConstantPredicate(_compare_constants(op, x, y) != negated)
        if as_float or x.dtype == t.F8 or isinstance(y, float) or (isinstance(y, t.Value) and y.dtype == t.F8):
            return self.floats_compared(op, x, y, negated)
        if isinstance(y, t.Value):
            return compare_scaled(op, x, 1, y, 1, negated)
        if y not in _VALUES[x.dtype] and not t.goes_beyond(x):  # all values of x are on one side of y
            return t.IsNotNull(x) if _compare_constants(op, 0, y) != negated else t.ConstantPredicate(False)
        return t.Compare(op, x, self.inputs.constant(y, x.dtype), negated)

    def floats_compared(self, op: str, x: t.Value, y: t.Value | float, negated: bool) -> t.BoundPredicate:
        """Compare numbers as floats if one of them is a float."""
        return t.Compare(op, float_term(self.inputs, x), float_term(self.inputs, y), negated)


def type_errors(predicates: Iterable[s.Predicate], bind: Callable[[s.Predicate], object]) -> list[QueryTypeError]:
    """Return the type errors of predicates that `bind` raises, one for each wrong test."""
    errors = []
    for leaf in (leaf for predicate in predicates for leaf in s.leaves(predicate)):
        try:
            bind(leaf)
        except QueryTypeError as error:
            errors.append(error)
    return errors


# ---- numbers -----------------------------------------------------------------------------------------------------


def _compare_constants(op: str, x: Any, y: Any) -> bool:
    """Return ``x op y`` of two constants."""
    return bool(OPERATORS[op].of[t.I8].numpy(x, y))


def _is_string(expression: s.Expression) -> bool:
    return isinstance(expression, s.Literal) and isinstance(expression.value, str)


def columns_of(predicates: Sequence[s.Predicate]) -> list[str]:
    """Return the names of the attributes of events that predicates read, in order, each once."""
    return list(dict.fromkeys(a.name for p in predicates for a in s.attributes(p) if a.aggregate is None))
