"""Binding of filters between events to a schema: comparisons of two columns, or small programs over several.

A filter is *separable* if it compares an expression over one event with an expression over another: both sides are
then columns (`cer_gpu.predicates.side_columns`), and an index can find what passes.  Every other filter becomes a
program, a list of instructions for a stack of values, which tests one choice of events.

papers: RMA, definition 4.2 (a guard is a formula over the current event and the contents of registers).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.columnar.columns import BOOLEAN, DECIMAL, FLOAT, INTEGER, MOMENT, STRING, kind_of
from cer_gpu.columnar.fields import column_type
from cer_gpu.columnar.moments import per_second
from cer_gpu.errors import QueryTooLargeError, QueryTypeError
from cer_gpu.predicates import terms as t
from cer_gpu.predicates.binder import Binder
from cer_gpu.predicates.derived import of_event
from cer_gpu.predicates.relation_programs import ProgramBinder
from cer_gpu.predicates.relation_terms import (
    Comparison,
    Condition,
    Program,
    Shared,
    argument_of,
    arguments_of,
)
from cer_gpu.predicates.side_columns import (
    MAX_COLUMNS,
    Bound,
    ExactText,
    OrderKey,
    Raw,
    SideColumn,
    TextNumber,
    Truth,
    inclusive,
    sides_of,
)


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
        return self.conditions, kinds, tuple(_units(column_type(self.binder.schema, n, None, None)) for n in self.names)

    @property
    def names_on_host(self) -> tuple[str, ...]:
        """Columns of `names` that the host reads even if a device computes what it can (`sides_of`)."""
        if any(isinstance(column, Truth) for column in self.columns):
            return self.names  # its tests may read any of them
        others: list[str] = []
        for column in self.columns:
            if isinstance(column, TextNumber):
                others.append(column.column)
            elif isinstance(column, Bound | ExactText):
                others += self._read_by(t.columns_in(column.term))
        computed = set(self._read_by(sides_of(self.columns).columns)) - set(others)
        return tuple(name for name in self.names if name not in computed)

    def _read_by(self, columns: Iterable[t.Column]) -> list[str]:
        return [self.binder.inputs.columns[column.slot][0] for column in columns]


def _units(data_type: pa.DataType) -> Fraction:
    """Return how many stored numbers of a type make up one; 1 for types that store no other numbers."""
    if pa.types.is_decimal(data_type):
        return Fraction(10 ** int(data_type.scale))
    timed = pa.types.is_temporal(data_type) and kind_of(data_type) is not None
    return per_second(data_type) if timed else Fraction(1)


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
    binder = RelationBinder(schema, text)
    conditions = tuple(binder.condition(predicate) for predicate in predicates)
    return binder.bound(conditions, predicates)


def relation_errors(predicates: Iterable[s.Predicate], schema: pa.Schema, text: str) -> list[QueryTypeError]:
    """Return the type errors of filters between events, one for each wrong test."""
    binder, errors = RelationBinder(schema, text), []
    for leaf in (leaf for predicate in predicates for leaf in s.leaves(predicate)):
        try:
            binder.condition(leaf)
        except QueryTypeError as error:
            errors.append(error)
    return errors


class RelationBinder(Shared):
    """Binder of filters: a comparison of two columns where it is one, else a program."""

    def condition(self, predicate: s.Predicate) -> Condition:
        """Bind one filter: as a comparison of two columns where it is one."""
        predicate = self.single.derive(predicate)
        negated, inner = False, predicate
        while isinstance(inner, s.Not):
            negated, inner = not negated, inner.operand
        if isinstance(inner, s.Comparison):
            separable = self._separable(inner, negated)
            if separable is not None:
                return separable
        program = ProgramBinder(self, arguments_of(predicate))
        program.truth(predicate)
        return Program(program.arguments, tuple(program.code))

    def bound(self, conditions: tuple[Condition, ...], predicates: Sequence[s.Predicate]) -> BoundRelations:
        """Return conditions with the columns and constants so far, for filters of these predicates."""
        if len(self.columns) > MAX_COLUMNS:
            raise QueryTooLargeError(
                f"filters between events read more than {MAX_COLUMNS} different expressions", hint="write fewer of them"
            )
        names = dict.fromkeys(a.name for predicate in predicates for a in s.attributes(predicate))
        return BoundRelations(conditions, tuple(self.columns), tuple(self.constants), tuple(names), self.single)

    # ---- equal values -------------------------------------------------------------------------------------

    def equal_columns(self, x: s.Expression, y: s.Expression) -> tuple[SideColumn, SideColumn] | None:
        """Return columns of two expressions over one event each that are equal where the values are; None: none are."""
        x, y = self._alone(x), self._alone(y)
        columns = self._side_columns("=", x, y, {self.single.kind(x), self.single.kind(y)}, x.span)
        return None if columns is None else (columns[1], columns[2])

    def check_transitive(self, expressions: Sequence[s.Expression]) -> None:
        """Refuse decimals and floats among three values or more that are to be equal, as a decimal is compared rounded.

        Raises
        ------
        QueryTypeError
        """
        kinds = {self.single.kind(self._alone(expression)) for expression in expressions}
        if {DECIMAL, FLOAT} <= kinds:
            raise self.single.error(
                "decimals and floats are among three values or more that are to be equal",
                expressions[0].span,
                "cast these columns to one type",
            )

    def exact_column(self, expression: s.Expression) -> SideColumn:
        """Return a column of an expression over one event that equals those of any types for equal values."""
        x = self._alone(expression)
        kind, scale = self.single.kind(x), Fraction(1)
        if isinstance(x, s.Attribute) and (kind == MOMENT or self.single.are_durations(x, x)):
            scale = per_second(self.single.column(x))
        elif isinstance(x, s.Attribute) and kind == DECIMAL:
            scale = Fraction(10) ** self.single.column(x).scale
        return ExactText(self._value(x) if scale == 1 and kind != DECIMAL else self._stored_integer(x), scale)

    def _alone(self, expression: s.Expression) -> Any:
        return of_event(self.single.derive(expression))

    # ---- separable comparisons ----------------------------------------------------------------------------

    def _separable(self, comparison: s.Comparison, negated: bool) -> Comparison | None:
        op, left, right = comparison.op, comparison.left, comparison.right
        times = self._time_difference(op, left, right, comparison.span)
        if times is not None:
            return None if negated else times
        sides = arguments_of(left), arguments_of(right)
        if len(sides[0]) != 1 or len(sides[1]) != 1 or sides[0] == sides[1]:
            return None
        x, y = of_event(left), of_event(right)
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
        unlike = (a.dtype == t.U8) != (b.dtype == t.U8)
        if a_scale == b_scale and not plus and not unlike:
            return op, OrderKey(a), OrderKey(b), False
        if op == "<>":
            return None
        if a_scale <= b_scale:
            bound = Bound(b, op, int(b_scale / a_scale), plus, unsigned=a.dtype == t.U8)
            return inclusive(op), OrderKey(a), bound, False
        assert not plus
        bound = Bound(a, t.MIRRORED[op], int(a_scale / b_scale), unsigned=b.dtype == t.U8)
        return inclusive(op), bound, OrderKey(b), False

    def _moments(
        self, op: str, x: s.Expression, y: s.Expression, span: s.Span
    ) -> tuple[str, SideColumn, SideColumn, bool] | None:
        assert isinstance(x, s.Attribute)
        assert isinstance(y, s.Attribute)
        types = self.single.column(x), self.single.column(y)
        self.check_comparable(x, y, span)
        a, b = (self.single.inputs.column(side.name) for side in (x, y))
        return self._scaled(op, a, b, per_second(types[0]), per_second(types[1]))

    # ---- differences of times -------------------------------------------------------------------------------

    def _time_difference(self, op: str, left: s.Expression, right: s.Expression, span: s.Span) -> Comparison | None:
        """Bind ``x - y op length`` of two times or durations of two events as ``x op y + length``."""
        if isinstance(left, s.Duration):
            left, right, op = right, left, t.MIRRORED[op]
        if not (isinstance(right, s.Duration) and isinstance(left, s.Arithmetic) and left.op == "-"):
            return None
        x, y = left.left, left.right
        if not (isinstance(x, s.Attribute) and isinstance(y, s.Attribute)) or argument_of(x) == argument_of(y):
            return None
        arguments, (x, y) = (argument_of(x), argument_of(y)), (of_event(x), of_event(y))
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
