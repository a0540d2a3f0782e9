"""Binding of filters between events to a schema: comparisons of two columns, or small programs over several.

A filter is *separable* if it compares an expression over one event with an expression over another: both sides are
then columns (`cer_gpu.predicates.side_columns`), and an index can find what passes.  Every other filter becomes a
program, a list of instructions for a stack of values, which tests one choice of events.

papers: RMA, definition 4.2 (a guard is a formula over the current event and the contents of registers).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.backend.joins.filters import (
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
from cer_gpu.ceql.traversal import children, fold, walk, with_children
from cer_gpu.columnar.columns import BOOLEAN, DECIMAL, FLOAT, INTEGER, MOMENT, NOTHING, STRING, kind_of
from cer_gpu.columnar.moments import has_zone, per_second
from cer_gpu.errors import QueryTooLargeError, QueryTypeError
from cer_gpu.predicates import terms as t
from cer_gpu.predicates.binder import Binder
from cer_gpu.predicates.side_columns import (
    MAX_COLUMNS,
    Bound,
    OrderKey,
    Raw,
    SideColumn,
    TextNumber,
    Truth,
    inclusive,
)

EACH, PREV, FIRST, LAST = "EACH", "PREV", "FIRST", "LAST"

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "%")
_BY_DIFFERENCE = "a difference of two times is compared with a length of time: b.ts - a.ts <= 5 MINUTES"


@dataclass(frozen=True)
class Argument:
    """An event that a filter reads: that chosen for a variable (EACH), the one before it (PREV), FIRST or LAST."""

    variable: str
    event: str


@dataclass(frozen=True)
class Comparison:
    """``left op right``: two columns, each of one argument; `ranked`: texts by their order."""

    op: str
    left: Argument
    left_column: int
    right: Argument
    right_column: int
    ranked: bool = False

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The events that it reads."""
        return (self.left, self.right)


@dataclass(frozen=True)
class Program:
    """Instructions that leave one truth on the stack; COLUMN names an argument by its index."""

    arguments: tuple[Argument, ...]
    code: tuple[tuple[int, int, int], ...]


Condition = Comparison | Program


@dataclass(frozen=True)
class BoundRelations:
    """All filters between events of a query, bound to one schema; immutable.

    Attributes
    ----------
    conditions : tuple of Condition
        One for each relation.
    columns : tuple of SideColumn
    constants : tuple of int
        Constants of the programs: int64, or the bits of a float64.
    names : tuple of str
        Columns of the events that they read.
    binder : Binder
        Inputs of the terms.
    """

    conditions: tuple[Condition, ...]
    columns: tuple[SideColumn, ...]
    constants: tuple[int, ...]
    names: tuple[str, ...]
    binder: Binder = field(compare=False)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Kinds of columns and comparisons, which batches of another schema must share."""
        kinds = tuple((type(c), getattr(c, "op", ""), getattr(c, "unsigned", False), _dtype(c)) for c in self.columns)
        return self.conditions, kinds


def _dtype(column: SideColumn) -> str:
    return column.term.dtype if isinstance(column, Raw | OrderKey) else ""


def bind_relations(predicates: Sequence[s.Predicate], schema: pa.Schema, text: str) -> BoundRelations:
    """Bind the predicates of filters between events.

    Raises
    ------
    QueryTypeError
        When a column is unknown, or types do not go together.
    QueryTooLargeError
        When they read too many different expressions.
    """
    binder = _RelationBinder(schema, text)
    conditions = tuple(binder.condition(predicate) for predicate in predicates)
    if len(binder.columns) > MAX_COLUMNS:
        raise QueryTooLargeError(
            f"filters between events read more than {MAX_COLUMNS} different expressions", hint="write fewer of them"
        )
    names = dict.fromkeys(a.name for predicate in predicates for a in s.attributes(predicate))
    return BoundRelations(conditions, tuple(binder.columns), tuple(binder.constants), tuple(names), binder.single)


def relation_errors(predicates: Iterable[s.Predicate], schema: pa.Schema, text: str) -> list[QueryTypeError]:
    """Return the type errors of filters between events, one for each wrong test."""
    binder, errors = _RelationBinder(schema, text), []
    for leaf in (leaf for predicate in predicates for leaf in s.leaves(predicate)):
        try:
            binder.condition(leaf)
        except QueryTypeError as error:
            errors.append(error)
    return errors


def arguments_of(predicate: s.Predicate | s.Expression) -> tuple[Argument, ...]:
    """Return the events that a predicate or expression reads, each once, in order."""
    return tuple(dict.fromkeys(_argument(a) for a in s.attributes(predicate)))


def _argument(attribute: s.Attribute) -> Argument:
    assert attribute.variable is not None
    return Argument(attribute.variable.name, attribute.event)


def _of_event(node: Any) -> Any:
    """Return an expression or predicate over one event, without the variable before its attributes."""

    def combine(node: Any, parts: list[Any]) -> Any:
        if isinstance(node, s.Attribute):
            return replace(node, variable=None, event=EACH)
        return with_children(node, parts)

    return fold(node, combine, children)


@dataclass(frozen=True)
class _Times:
    """A difference of two times or durations, or one of them: units in a second, and whether it is a point in time."""

    per_second: Fraction
    point: bool


class _RelationBinder:
    def __init__(self, schema: pa.Schema, text: str) -> None:
        self.single = Binder(schema, text)
        self.columns: dict[SideColumn, int] = {}
        self.constants: dict[int, int] = {}

    def column(self, column: SideColumn) -> int:
        return self.columns.setdefault(column, len(self.columns))

    def constant(self, value: int | float) -> int:
        bits = int(np.float64(value).view(np.int64)) if isinstance(value, float) else value
        return self.constants.setdefault(bits, len(self.constants))

    def condition(self, predicate: s.Predicate) -> Condition:
        """Bind one filter: as a comparison of two columns where it is one."""
        negated, inner = False, predicate
        while isinstance(inner, s.Not):
            negated, inner = not negated, inner.operand
        if isinstance(inner, s.Comparison):
            separable = self._separable(inner, negated)
            if separable is not None:
                return separable
        program = _ProgramBinder(self, arguments_of(predicate))
        program.truth(predicate)
        return Program(program.arguments, tuple(program.code))

    # ---- separable comparisons ----------------------------------------------------------------------------

    def _separable(self, comparison: s.Comparison, negated: bool) -> Comparison | None:
        op, left, right = comparison.op, comparison.left, comparison.right
        times = self._time_difference(op, left, right, comparison.span)
        if times is not None:
            return None if negated else times
        sides = arguments_of(left), arguments_of(right)
        if len(sides[0]) != 1 or len(sides[1]) != 1 or sides[0] == sides[1]:
            return None
        x, y = _of_event(left), _of_event(right)
        single = self.single
        single.check_names(x, y)
        single.check_names(y, x)
        kinds = {single.kind(x), single.kind(y)}
        if FLOAT in kinds and negated:
            return None  # NOT (NaN < 1) is TRUE
        if negated:
            op = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}[op]
        columns = self._side_columns(op, x, y, kinds, comparison.span)
        if columns is None:
            return None
        op, one, other, ranked = columns
        return Comparison(op, sides[0][0], self.column(one), sides[1][0], self.column(other), ranked)

    def _side_columns(
        self, op: str, x: s.Expression, y: s.Expression, kinds: set[str], span: s.Span
    ) -> tuple[str, SideColumn, SideColumn, bool] | None:
        """Return the operator, the columns of both sides, and True if texts are compared by their order."""
        single = self.single
        if kinds == {STRING} and isinstance(x, s.Attribute) and isinstance(y, s.Attribute):
            return op, TextNumber(x.name), TextNumber(y.name), op not in ("=", "<>")
        if kinds == {MOMENT} or single.are_durations(x, y):
            return self._moments(op, x, y, span)
        if kinds == {BOOLEAN} and op not in ("=", "<>"):
            raise single.error(f"booleans are compared by = and <>, not by {op}", span)
        if kinds <= {INTEGER} or kinds == {BOOLEAN}:
            return self._integers(op, x, y)
        if kinds == {FLOAT} or (DECIMAL in kinds and FLOAT in kinds):
            return None if op == "<>" else (op, OrderKey(self._float(x)), OrderKey(self._float(y)), False)
        if kinds == {INTEGER, FLOAT}:
            return self._integer_and_float(op, x, y)
        if kinds <= {INTEGER, DECIMAL}:
            return self._decimals(op, x, y, span)
        return None

    def _value(self, expression: s.Expression) -> t.Value:
        value = self.single.number(expression)
        assert isinstance(value, t.Value)  # it reads an event
        return value

    def _float(self, expression: s.Expression) -> t.Value:
        value = self._value(expression)
        return value if value.dtype == t.F8 else t.ToFloat(value)

    def _integers(self, op: str, x: s.Expression, y: s.Expression) -> tuple[str, SideColumn, SideColumn, bool] | None:
        a, b = self._value(x), self._value(y)
        if (a.dtype == t.U8) == (b.dtype == t.U8):
            return op, OrderKey(a), OrderKey(b), False
        if op == "<>":
            return None
        if a.dtype == t.U8:
            return inclusive(op), Bound(a, t.MIRRORED[op]), OrderKey(b), False  # mirrored twice: b is the integer
        return inclusive(op), OrderKey(a), Bound(b, op), False

    def _integer_and_float(
        self, op: str, x: s.Expression, y: s.Expression
    ) -> tuple[str, SideColumn, SideColumn, bool] | None:
        a, b = self._value(x), self._value(y)
        if op == "<>":
            return None
        if a.dtype == t.F8:
            return inclusive(op), Bound(a, t.MIRRORED[op], unsigned=b.dtype == t.U8), OrderKey(b), False
        return inclusive(op), OrderKey(a), Bound(b, op, unsigned=a.dtype == t.U8), False

    def _decimals(
        self, op: str, x: s.Expression, y: s.Expression, span: s.Span
    ) -> tuple[str, SideColumn, SideColumn, bool] | None:
        scales = []
        for side in (x, y):
            if not isinstance(side, s.Attribute):
                if self.single.kind(side) == DECIMAL:
                    raise AssertionError(side)
                scales.append(0)
                continue
            data_type = self.single.column(side)
            if kind_of(data_type) == DECIMAL and (data_type.precision > 18 or data_type.scale < 0):
                raise self.single.error(
                    f"{self.single.describe(side)} has more than 18 digits, and cannot be compared between events",
                    span,
                    "cast it to a decimal of at most 18 digits, or to a float",
                )
            scales.append(data_type.scale if kind_of(data_type) == DECIMAL else 0)
        a, b = (self._stored_integer(side) for side in (x, y))
        return self._scaled(op, a, b, Fraction(10) ** scales[0], Fraction(10) ** scales[1])

    def _stored_integer(self, side: s.Expression) -> t.Value:
        return self.single.inputs.column(side.name) if isinstance(side, s.Attribute) else self._value(side)

    def _scaled(
        self, op: str, a: t.Value, b: t.Value, a_scale: Fraction, b_scale: Fraction, plus: int = 0
    ) -> tuple[str, SideColumn, SideColumn, bool] | None:
        """Compare a / a_scale with (b + plus) / b_scale, of which one scale is a multiple of the other."""
        if a_scale == b_scale and not plus:
            return op, OrderKey(a), OrderKey(b), False
        if op == "<>":
            return None
        if a_scale <= b_scale:
            return inclusive(op), OrderKey(a), Bound(b, op, int(b_scale / a_scale), plus), False
        assert not plus
        return inclusive(op), Bound(a, t.MIRRORED[op], int(a_scale / b_scale)), OrderKey(b), False

    def _moments(
        self, op: str, x: s.Expression, y: s.Expression, span: s.Span
    ) -> tuple[str, SideColumn, SideColumn, bool] | None:
        assert isinstance(x, s.Attribute)
        assert isinstance(y, s.Attribute)
        types = self.single.column(x), self.single.column(y)
        self.check_comparable(x, y, span)
        a, b = (self.single.inputs.column(side.name) for side in (x, y))
        return self._scaled(op, a, b, per_second(types[0]), per_second(types[1]))

    def check_comparable(self, x: s.Expression, y: s.Expression, span: s.Span) -> None:
        """Refuse a time of day beside a date, and a local time beside an instant."""
        assert isinstance(x, s.Attribute)
        assert isinstance(y, s.Attribute)
        a, b = self.single.column(x), self.single.column(y)
        if pa.types.is_time(a) != pa.types.is_time(b) or has_zone(a) != has_zone(b):
            raise self.single.error(f"cannot compare {self.single.describe(x)} with {self.single.describe(y)}", span)

    # ---- differences of times -------------------------------------------------------------------------------

    def _time_difference(self, op: str, left: s.Expression, right: s.Expression, span: s.Span) -> Comparison | None:
        """Bind ``x - y op length`` of two times or durations of two events as ``x op y + length``."""
        if isinstance(left, s.Duration):
            left, right, op = right, left, t.MIRRORED[op]
        if not (isinstance(right, s.Duration) and isinstance(left, s.Arithmetic) and left.op == "-"):
            return None
        x, y = left.left, left.right
        if not (isinstance(x, s.Attribute) and isinstance(y, s.Attribute)) or _argument(x) == _argument(y):
            return None
        arguments, (x, y) = (_argument(x), _argument(y)), (_of_event(x), _of_event(y))
        if not self._are_times(x, y) or op == "<>":
            return None
        self.check_comparable(x, y, span)
        scales = [per_second(self.single.column(side)) for side in (x, y)]
        a, b = (self.single.inputs.column(side.name) for side in (x, y))
        finer = max(scales)
        length = right.length * finer
        if length.denominator != 1:  # between two ticks
            if op == "=":
                return None
            length, op = Fraction(length.numerator // length.denominator), {"<": "<=", ">=": ">"}.get(op, op)
        n = int(length)
        if scales[0] <= scales[1]:  # x <= (y + n) / ratio
            sides: tuple[SideColumn, SideColumn] = OrderKey(a), Bound(b, op, int(scales[1] / scales[0]), n)
        else:  # (x - n) / ratio <= y
            sides = Bound(a, t.MIRRORED[op], int(scales[0] / scales[1]), -n), OrderKey(b)
        return Comparison(inclusive(op), arguments[0], self.column(sides[0]), arguments[1], self.column(sides[1]))

    def _are_times(self, *sides: s.Expression) -> bool:
        moments = [self.single.kind(side) == MOMENT for side in sides]
        return all(moments) or self.single.are_durations(*sides)


class _ProgramBinder:
    """Binder of one filter to instructions.

    papers: RMA, 3: three-valued logic is needed where a value is missing; a filter passes where it is TRUE.
    """

    def __init__(self, relations: _RelationBinder, arguments: tuple[Argument, ...]) -> None:
        self.relations = relations
        self.single = relations.single
        self.arguments = arguments
        self.code: list[tuple[int, int, int]] = []

    def emit(self, code: int, a: int = 0, b: int = 0) -> None:
        self.code.append((code, a, b))

    def read(self, argument: Argument, column: SideColumn) -> None:
        self.emit(COLUMN, self.arguments.index(argument), self.relations.column(column))

    # ---- truths -------------------------------------------------------------------------------------------

    def truth(self, predicate: s.Predicate) -> None:
        """Emit the instructions that push the truth of a predicate."""
        of = arguments_of(predicate)
        if len(of) == 1:
            alone = _of_event(predicate)
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
            case s.Like():
                raise self.single.error("LIKE reads a column of one event", predicate.span)

    def joined(self, operands: Sequence[s.Predicate], code: int) -> None:
        for i, operand in enumerate(operands):
            self.truth(operand)
            if i:
                self.emit(code)

    def comparison(self, op: str, left: s.Expression, right: s.Expression, span: s.Span) -> None:
        if len(arguments_of(s.Comparison(op, left, right))) == 1:
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
        x, y = self.value(left), self.value(right)
        if x == y:
            self.emit(COMPARE_F if x == t.F8 else COMPARE_I, OPERATORS.index(op))
        else:
            self.emit(COMPARE_IF, OPERATORS.index(op), int(x == t.F8))  # exactly; b: the float is at the left

    def texts(self, op: str, left: s.Expression, right: s.Expression, span: s.Span) -> None:
        for side in (left, right):
            if not isinstance(side, s.Attribute):
                raise self.single.error(f"expected a column, found {self.describe(side)}", side.span)
            self.read(_argument(side), TextNumber(side.name))
        self.emit(COMPARE_I if op in ("=", "<>") else COMPARE_RANKS, OPERATORS.index(op))

    def times(self, op: str, left: s.Expression, right: s.Expression, span: s.Span) -> None:
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
        self.emit(COMPARE_I, OPERATORS.index(op))

    # ---- values -------------------------------------------------------------------------------------------

    def kind(self, expression: s.Expression) -> str | _Times:
        """Return the kind of an expression's value."""
        match expression:
            case s.Duration():
                return _Times(Fraction(expression.length.denominator), point=False)
            case s.Attribute():
                alone = _of_event(expression)
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
            self.relations.check_comparable(_of_event(points[0]), _of_event(other), expression.span)

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
        if len(of) == 1:
            value = self.single.number(_of_event(expression))
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
        raise AssertionError(expression)

    def push_constant(self, number: int | float | None) -> str:
        if number is None:
            self.emit(FIXED, NOT_KNOWN)
            return t.I8
        if isinstance(number, int) and not -(2**63) <= number < 2**63:
            number = float(number)
        self.emit(CONSTANT, self.relations.constant(number))
        return t.F8 if isinstance(number, float) else t.I8

    def arithmetic(self, expression: s.Arithmetic) -> str:
        as_float = self.kind(expression) == FLOAT
        for part in (expression.left, expression.right):
            if self.value(part) != t.F8 and as_float:
                self.emit(TO_FLOAT)
        self.emit(ARITHMETIC_F if as_float else ARITHMETIC_I, ARITHMETIC.index(expression.op))
        return t.F8 if as_float else t.I8

    def time(self, expression: s.Expression, unit: Fraction) -> None:
        """Emit the instructions that push a time or a length of time in ticks of a unit."""
        match expression:
            case s.Duration():
                self.emit(CONSTANT, self.relations.constant(int(expression.length * unit)))
            case s.Attribute():
                alone = _of_event(expression)
                self.read(_argument(expression), Raw(self.single.inputs.column(alone.name)))
                ratio = int(unit / per_second(self.single.column(alone)))
                if ratio != 1:
                    self.emit(CONSTANT, self.relations.constant(ratio))
                    self.emit(ARITHMETIC_I, ARITHMETIC.index("*"))
            case s.Arithmetic():
                self.time(expression.left, unit)
                self.time(expression.right, unit)
                self.emit(ARITHMETIC_I, ARITHMETIC.index("-"))
            case _:
                raise AssertionError(expression)

    def describe(self, expression: s.Expression) -> str:
        if isinstance(expression, s.Attribute):
            return self.single.describe(_of_event(expression))
        if isinstance(expression, s.Literal):
            return self.single.describe(expression)
        text = self.single.text[slice(*expression.span)]
        return f"{'the length of time' if isinstance(expression, s.Duration) else 'the value of'} {text}"
