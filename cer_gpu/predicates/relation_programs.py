"""Binding of filters between events to programs: instructions for a stack of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import pyarrow as pa

from cer_gpu.backend.joins.filters import (
    ABS_F,
    ABS_I,
    AND,
    ARITHMETIC_F,
    ARITHMETIC_I,
    COLUMN,
    COMPARE_F,
    COMPARE_I,
    COMPARE_IF,
    COMPARE_RANKS,
    CONSTANT,
    FIXED,
    IS_NULL,
    NEGATIVE_F,
    NEGATIVE_I,
    NOT,
    NOT_KNOWN,
    OR,
    TO_FLOAT,
)
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import children, walk
from cer_gpu.columnar.columns import BOOLEAN, DECIMAL, FLOAT, INTEGER, MOMENT, NOTHING, STRING
from cer_gpu.columnar.moments import per_second
from cer_gpu.predicates import terms as t
from cer_gpu.predicates.derived import of_event
from cer_gpu.predicates.relation_terms import Argument, Shared, argument_of, arguments_of
from cer_gpu.predicates.side_columns import Raw, SideColumn, TextNumber, Truth

_BY_DIFFERENCE = (
    "a difference of two times is compared with a length of time: b.ts - a.ts <= 5 MINUTES; of integers, a number"
)


@dataclass(frozen=True)
class _Times:
    """A difference of two times or durations, or one of them: units in a second, and whether it is a point in time."""

    per_second: Fraction
    point: bool


class ProgramBinder:
    """Binder of one filter to instructions.

    papers: RMA, 3: three-valued logic is needed where a value is missing; a filter passes where it is TRUE.

    Parameters
    ----------
    shared
    arguments
        Events that the filter reads.

    Attributes
    ----------
    code : list of (int, int, int)
        Instructions (`cer_gpu.backend.joins.filters`).
    """

    def __init__(self, shared: Shared, arguments: tuple[Argument, ...]) -> None:
        self.shared = shared
        self.single = shared.single
        self.arguments = arguments
        self.code: list[tuple[int, int, int]] = []

    def emit(self, code: int, a: int = 0, b: int = 0) -> None:
        """Append an instruction."""
        self.code.append((code, a, b))

    def read(self, argument: Argument, column: SideColumn) -> None:
        """Append the reading of a column of an argument."""
        self.emit(COLUMN, self.arguments.index(argument), self.shared.column(column))

    def alone(self, of: Sequence[Argument]) -> bool:
        """Return True if these events are one, of which a column can hold all that is read."""
        return len(of) == 1

    # ---- truths -------------------------------------------------------------------------------------------

    def truth(self, predicate: s.Predicate) -> None:
        """Emit the instructions that push the truth of a predicate."""
        of = arguments_of(predicate)
        if self.alone(of):
            alone = of_event(predicate)
            self.read(of[0], Truth(self.single.bind(alone), self.single.bind(alone, negated=True)))
            return
        match predicate:
            case s.Not():
                self.truth(predicate.operand)
                self.emit(NOT)
            case s.And() | s.Or():
                self.joined(predicate.operands, AND if isinstance(predicate, s.And) else OR)
            case s.Comparison():
                self.comparison(predicate.op, predicate.left, predicate.right, predicate.span)
            case s.Membership():
                tests = [s.Comparison("=", predicate.operand, value, value.span) for value in predicate.values]
                self.joined(tests, OR)
            case s.IsNull():
                self.value(predicate.operand)
                self.emit(IS_NULL)
            case s.TextTest():
                raise self.single.error(f"{predicate.name} reads a column of one event", predicate.span)
            case s.AnyElement():
                raise self.single.error("ANY compares elements with values of their own event", predicate.span)

    def joined(self, operands: Sequence[s.Predicate], code: int) -> None:
        """Append the truths of operands, joined by AND or OR (`code`)."""
        for i, operand in enumerate(operands):
            self.truth(operand)
            if i:
                self.emit(code)

    def comparison(self, op: str, left: s.Expression, right: s.Expression, span: s.Span) -> None:
        """Append a comparison."""
        if self.alone(arguments_of(s.Comparison(op, left, right))):
            self.truth(s.Comparison(op, left, right, span))
            return
        x_kind, y_kind = self.kind(left), self.kind(right)
        if NOTHING in (x_kind, y_kind):
            self.emit(FIXED, NOT_KNOWN)
        elif x_kind == y_kind == STRING:
            self.texts(op, left, right, span)
        elif isinstance(x_kind, _Times) or isinstance(y_kind, _Times):
            self.times(op, left, right, span)
        elif {x_kind, y_kind} <= {INTEGER, FLOAT, DECIMAL} or x_kind == y_kind == BOOLEAN:
            if x_kind == BOOLEAN and op not in ("=", "<>"):
                raise self.single.error(f"booleans are compared by = and <>, not by {op}", span)
            self.numbers(op, left, right)
        else:
            raise self.single.error(f"cannot compare {self.describe(left)} with {self.describe(right)}", span)

    def numbers(self, op: str, left: s.Expression, right: s.Expression) -> None:
        """Append a comparison of numbers; an integer and a float are compared exactly."""
        x, y = self.value(left), self.value(right)
        if x == y:
            self.emit(COMPARE_F if x == t.F8 else COMPARE_I, t.COMPARISONS.index(op))
        else:
            self.emit(COMPARE_IF, t.COMPARISONS.index(op), int(x == t.F8))  # exactly; b: the float is at the left

    def texts(self, op: str, left: s.Expression, right: s.Expression, span: s.Span) -> None:
        """Append a comparison of texts, by their numbers or by their ranks."""
        for side in (left, right):
            if not isinstance(side, s.Attribute):
                raise self.single.error(f"expected a column, found {self.describe(side)}", side.span)
            self.read(argument_of(side), TextNumber(side.name))
        self.emit(COMPARE_I if op in ("=", "<>") else COMPARE_RANKS, t.COMPARISONS.index(op))

    def times(self, op: str, left: s.Expression, right: s.Expression, span: s.Span) -> None:
        """Append a comparison of times, or of lengths of time."""
        x, y = self.kind(left), self.kind(right)
        if not isinstance(x, _Times) or not isinstance(y, _Times) or x.point != y.point:
            raise self.single.error(
                f"cannot compare {self.describe(left)} with {self.describe(right)}",
                span,
                _BY_DIFFERENCE,
            )
        unit = max(x.per_second, y.per_second)
        self.time(left, unit)
        self.time(right, unit)
        self.emit(COMPARE_I, t.COMPARISONS.index(op))

    # ---- values -------------------------------------------------------------------------------------------

    def kind(self, expression: s.Expression) -> str | _Times:
        """Return the kind of an expression's value."""
        match expression:
            case s.Duration():
                return _Times(Fraction(expression.length.denominator), point=False)
            case s.Attribute():
                alone = of_event(expression)
                kind = self.single.kind(alone)
                data_type = self.single.column(alone)
                if kind == MOMENT or pa.types.is_duration(data_type):
                    return _Times(per_second(data_type), point=kind == MOMENT)
                return kind
            case s.Arithmetic(op="-") if isinstance(self.kind(expression.left), _Times):
                x, y = self.kind(expression.left), self.kind(expression.right)
                if isinstance(x, _Times) and isinstance(y, _Times) and x.point == y.point:
                    self._check_points(expression)
                    return _Times(max(x.per_second, y.per_second), point=False)
            case s.Literal():
                return self.single.kind(expression)
        kinds = set[str]()
        for part in children(expression):
            of_part = self.kind(part)
            if isinstance(of_part, _Times) or of_part not in (INTEGER, FLOAT, DECIMAL, NOTHING):
                hint = _BY_DIFFERENCE if isinstance(of_part, _Times) else None
                raise self.single.error(f"arithmetic needs numbers, and {self.describe(part)} is none", part.span, hint)
            kinds.add(FLOAT if of_part == DECIMAL else of_part)
        return NOTHING if NOTHING in kinds else FLOAT if FLOAT in kinds else INTEGER

    def _check_points(self, expression: s.Arithmetic) -> None:
        points = [part for part in walk(expression) if isinstance(part, s.Attribute)]
        for other in points[1:]:
            self.shared.check_comparable(of_event(points[0]), of_event(other), expression.span)

    def value(self, expression: s.Expression) -> str:
        """Emit the instructions that push a number, and return its type."""
        of = arguments_of(expression)
        kind = self.kind(expression)
        if isinstance(kind, _Times):
            self.time(expression, kind.per_second)
            return t.I8
        if kind == STRING and isinstance(expression, s.Attribute):
            self.read(of[0], TextNumber(expression.name))
            return t.I8
        if self.alone(of):
            value = self.single.number(of_event(expression))
            if value is None:
                self.emit(FIXED, NOT_KNOWN)
                return t.I8
            if isinstance(value, t.Value):
                term = t.ToInt64(value) if value.dtype == t.U8 else value
                self.read(of[0], Raw(term))
                return t.F8 if term.dtype == t.F8 else t.I8
        if not of:
            number = self.single.number(expression)
            return self.push_constant(number)  # type: ignore[arg-type]
        match expression:
            case s.Negative():
                dtype = self.value(expression.operand)
                self.emit(NEGATIVE_F if dtype == t.F8 else NEGATIVE_I)
                return dtype
            case s.Arithmetic():
                return self.arithmetic(expression)
            case s.Call():  # `abs`: other functions read one event, and are columns
                dtype = self.value(expression.operands[0])
                self.emit(ABS_F if dtype == t.F8 else ABS_I)
                return dtype
        raise AssertionError(expression)

    def push_constant(self, number: int | float | None) -> str:
        """Append a constant, and return its type."""
        if number is None:
            self.emit(FIXED, NOT_KNOWN)
            return t.I8
        if isinstance(number, int) and not -(2**63) <= number < 2**63:
            number = float(number)
        self.emit(CONSTANT, self.shared.constant(number))
        return t.F8 if isinstance(number, float) else t.I8

    def arithmetic(self, expression: s.Arithmetic) -> str:
        """Append an operation on numbers, and return its type."""
        as_float = self.kind(expression) == FLOAT
        for part in (expression.left, expression.right):
            if self.value(part) != t.F8 and as_float:
                self.emit(TO_FLOAT)
        self.emit(ARITHMETIC_F if as_float else ARITHMETIC_I, t.ARITHMETIC.index(expression.op))
        return t.F8 if as_float else t.I8

    def time(self, expression: s.Expression, unit: Fraction) -> None:
        """Emit the instructions that push a time or a length of time in ticks of a unit."""
        match expression:
            case s.Duration():
                self.emit(CONSTANT, self.shared.constant(int(expression.length * unit)))
            case s.Attribute():
                alone = of_event(expression)
                self.read(argument_of(expression), Raw(self.single.inputs.column(alone.name)))
                ratio = int(unit / per_second(self.single.column(alone)))
                if ratio != 1:
                    self.emit(CONSTANT, self.shared.constant(ratio))
                    self.emit(ARITHMETIC_I, t.ARITHMETIC.index("*"))
            case s.Arithmetic():
                self.time(expression.left, unit)
                self.time(expression.right, unit)
                self.emit(ARITHMETIC_I, t.ARITHMETIC.index("-"))
            case _:
                raise AssertionError(expression)

    def describe(self, expression: s.Expression) -> str:
        """Name an expression and its type."""
        if isinstance(expression, s.Attribute):
            return self.single.describe(of_event(expression))
        if isinstance(expression, s.Literal):
            return self.single.describe(expression)
        text = self.single.text[slice(*expression.span)]
        return f"{'the length of time' if isinstance(expression, s.Duration) else 'the value of'} {text}"
