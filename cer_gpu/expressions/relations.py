"""Binding of join predicates to a schema: comparisons of two columns, or small programs over several.

A filter is *separable* if it compares an expression over one event with an expression over another: both sides are
then columns (`cer_gpu.expressions.side_columns`), and an index can find what passes.  Every other filter becomes a
program (`cer_gpu.expressions.targets.program`), which tests one choice of events.

The variables of a parallel pattern are columns, too, equal where their values are.

papers: RMA, definition 4.2 (a guard is a formula over the current event and the contents of registers); PCEA, section 2
(equality predicates, as two partial functions of events).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import TESTS
from cer_gpu.ceql.traversal import mapped
from cer_gpu.ceql.variables import of_event
from cer_gpu.columnar.clocks import per_second, window_length
from cer_gpu.columnar.columns import DECIMAL, FLOAT, NOTHING, STRING, TEMPORAL, kind_of
from cer_gpu.columnar.fields import column_type
from cer_gpu.errors import QueryTooLargeError
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.arithmetic import length_of
from cer_gpu.expressions.bands import Difference, differences
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.derived import PositionColumn
from cer_gpu.expressions.inputs import NUMBERS, Inputs, Operand
from cer_gpu.expressions.relation_terms import Argument, Comparison, Condition, argument_of, arguments_of
from cer_gpu.expressions.side_columns import (
    MAX_COLUMNS,
    Bound,
    ExactString,
    GridCell,
    OrderKey,
    Raw,
    SideColumn,
    StringId,
    Truth,
    inclusive,
    is_side,
    sides_of,
)
from cer_gpu.expressions.targets.program import ProgramWriter

_BY_DIFFERENCE = (
    "a difference of two times is compared with a length of time: b.ts - a.ts <= 5 MINUTES; of integers, a number"
)


@dataclass(frozen=True)
class BoundRelations:
    """All join predicates of a query, bound to one schema; immutable.

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
    differences : tuple of tuple of Difference
        For each relation the differences of values of two events that it bounds; their events are `Argument`.
    """

    conditions: tuple[Condition, ...]
    columns: tuple[SideColumn, ...]
    constants: tuple[int, ...]
    names: tuple[str, ...]
    binder: Binder = field(compare=False)
    differences: tuple[tuple[Difference, ...], ...] = field(default=(), compare=False)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Kinds of columns and comparisons, which batches of another schema must share."""
        kinds = tuple((type(c), getattr(c, "op", ""), getattr(c, "unsigned", False), _dtype(c)) for c in self.columns)
        return self.conditions, kinds, tuple(_units(column_type(self.binder.schema, n, None, None)) for n in self.names)

    @property
    def ranked(self) -> bool:
        """True if strings are compared by their order."""
        return any(condition.ranked for condition in self.conditions)

    @property
    def names_on_host(self) -> tuple[str, ...]:
        """Columns of `names` that the host reads even if a device computes what it can (`sides_of`)."""
        if any(isinstance(column, Truth) for column in self.columns):
            return self.names  # its tests may read any of them
        others: list[str] = []
        for column in self.columns:
            if isinstance(column, StringId):
                others.append(column.column)
            elif isinstance(column, Bound | ExactString | GridCell | Raw | OrderKey) and not is_side(column):
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
    """Bind the predicates of join predicates.

    Raises
    ------
    QueryTypeError
        When a column is unknown, or types do not go together.
    QueryTooLargeError
        When they read too many different expressions.
    """
    binder = RelationBinder(schema, text)
    binder.is_bounded = True
    conditions = tuple(binder.condition(predicate) for predicate in predicates)
    return binder.bound(conditions, predicates)


def bind_keys(
    keys: Sequence[Sequence[s.Expression]],
    equalities: Sequence[s.Predicate],
    schema: pa.Schema,
    text: str,
    tested: Sequence[s.Predicate] = (),
) -> tuple[BoundRelations, list[list[int]]]:
    """Bind filters that say no more than that the columns of a key are equal, and perhaps others, which are tested.

    Parameters
    ----------
    keys
        For each key, expressions over single events whose values are equal.
    equalities
        The filters that say so.
    schema
    text
    tested
        The other filters.

    Returns
    -------
    BoundRelations
        The columns, with a condition for each of `tested`.
    list of list of int
        For each expression of each key its column.

    Raises
    ------
    QueryTypeError
        When a column is unknown, or types do not go together.
    QueryTooLargeError
        When they read too many different expressions.
    """
    attributes = {side.name for key in keys for side in key if isinstance(side, s.Attribute) and side.aggregate is None}
    if len(attributes) > MAX_COLUMNS:  # each has a column of its own
        raise _too_many_columns()
    binder = RelationBinder(schema, text)
    for predicate in equalities:
        binder.condition(predicate)  # for its errors
    binder.columns.clear()
    binder.is_bounded = True
    conditions = tuple(binder.condition(predicate) for predicate in tested)
    columns = [[binder.column_number(column) for column in binder.key_columns(key)] for key in keys]
    return binder.bound(conditions, [*equalities, *tested]), columns


def _too_many_columns() -> QueryTooLargeError:
    return QueryTooLargeError(
        f"join predicates read more than {MAX_COLUMNS} different expressions", hint="write fewer of them"
    )


class RelationBinder(Binder):
    """Binder of filters over several events, which binds what reads one event by a binder of its own.

    Attributes
    ----------
    single : Binder
        Binder of expressions and predicates over one event.
    columns : dict from SideColumn to int
    constants : dict from int to int
        Constants of programs: int64, or the bits of a float64.
    differences : list of tuple of Difference
        Differences that the filters bound, of each in turn.
    is_bounded : bool
        True to refuse the first column too many, before any filter that comes after it is bound.
    """

    def __init__(self, schema: pa.Schema, text: str) -> None:
        super().__init__(schema, text)
        self.single: Binder = Binder(schema, text)
        self.single.inputs.constants_once = True
        self.columns: dict[SideColumn, int] = {}
        self.constants: dict[int, int] = {}
        self.differences: list[tuple[Difference, ...]] = []
        self.is_bounded = False

    def derive(self, node: Any) -> Any:
        """Return a predicate or expression with derived columns in place of functions and LAG."""
        node = self.single.derive(node)
        self.schema: pa.Schema = self.single.schema
        return node

    def computed(self, test: t.BoundPredicate) -> t.BoundPredicate:
        """Return a test unchanged: the program detects integers of more than 128 bits."""
        return test

    def inputs_of(self, event: object) -> Inputs:
        """Return the inputs of values of one event, or of the filter (None)."""
        return self.inputs if event is None else self.single.inputs

    def alone(self, of: Sequence[Argument]) -> bool:
        """Return True if these events are one, whose values can be computed into a column."""
        return len(of) == 1

    def column_number(self, column: SideColumn) -> int:
        """Return the number of a column; QueryTooLargeError for one too many where they are bounded."""
        number = self.columns.setdefault(column, len(self.columns))
        if self.is_bounded and number >= MAX_COLUMNS:
            raise _too_many_columns()
        return number

    def condition(self, predicate: s.Predicate) -> Condition:
        """Bind one filter: as a comparison of two columns where it is one."""
        test = self.bind(predicate)
        self.differences.append(tuple(differences(test, self.inputs, self.single.inputs)))
        sides = self._separate(test)
        if sides is None:
            return self.program(predicate, test)
        op, left, right = sides
        (one, other), ranked = (
            _events_of_comparison(test),
            any(isinstance(part, t.Text) and part.ranked for part in t.parts(test)),
        )
        return Comparison(op, one, self.column_number(left), other, self.column_number(right), ranked)

    def program(self, predicate: s.Predicate, test: t.BoundPredicate) -> Condition:
        """Return the program of a join predicate from its test."""

        def constant(value: int) -> int:
            return self.constants.setdefault(value, len(self.constants))

        arguments = arguments_of(self.derive(predicate))
        return ProgramWriter(arguments, self.column_number, constant, self.inputs, self.single.inputs).program(test)

    def bound(self, conditions: tuple[Condition, ...], predicates: Sequence[s.Predicate]) -> BoundRelations:
        """Return conditions with the columns and constants so far, for filters of these predicates."""
        named = (a.name for predicate in predicates for a in s.attributes(predicate) if a.aggregate is None)
        names = dict.fromkeys(name for name in named if name != s.COUNTED_POSITION)
        return BoundRelations(
            conditions,
            tuple(self.columns),
            tuple(self.constants),
            tuple(names),
            self.single,
            tuple(self.differences),
        )

    # ---- what reads one event, and what reads several --------------------------------------------------------

    def bound_test(self, predicate: s.Predicate, negated: bool) -> t.BoundPredicate:
        """Return the test of a predicate without functions, or of its negation."""
        if isinstance(predicate, s.Apart):
            return self.apart(predicate, negated)
        of = arguments_of(predicate)
        if self.alone(of):
            return t.TestOfEvent(of[0], self.single.bound_test(of_event(predicate), negated))
        return super().bound_test(predicate, negated)

    def comparison(
        self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span
    ) -> t.BoundPredicate:
        """Bind a comparison by the types of its sides."""
        if any(isinstance(side, s.Call) and side.function in TESTS for side in (left, right)):
            return self.string_relation(op, left, right, negated, span)
        sides = left, right
        are_lengths = [length_of(side) is not None or self.is_length(side) for side in sides]
        if not all(are_lengths) and any(length_of(side) is not None or self.is_distance(side) for side in sides):
            named = " with ".join(self._describe_side(side) for side in sides)
            raise self.error(f"cannot compare {named}", span, _BY_DIFFERENCE)
        return super().comparison(op, left, right, negated, span)

    def string_relation(
        self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span
    ) -> t.BoundPredicate:
        """Bind a comparison of ``contains(x.a, y.b)``, or of its kin, with TRUE or FALSE."""
        call, truth = (right, left) if isinstance(left, s.Literal) else (left, right)
        if op not in ("=", "<>") or not isinstance(call, s.Call) or not isinstance(truth, s.Literal):
            named = call.function if isinstance(call, s.Call) else right.function  # type: ignore[union-attr]
            hint = f"write {named}(...), or NOT {named}(...)"
            raise self.error(f"{named} of several events is TRUE or FALSE, and compared with nothing else", span, hint)
        if not isinstance(truth.value, bool):
            raise self.error(f"cannot compare {self.describe(left)} with {self.describe(right)}", span)
        negated ^= (op == "=") != truth.value
        if NOTHING in map(self.kind, call.operands):
            return t.ConstantPredicate(False)
        text, *others = call.operands
        tests = [self._bind_string_relation(call.function, text, other, negated) for other in others]
        if len(tests) == 1:
            return tests[0]
        if negated:
            return t.And(tuple(tests))
        # NULL among the operands: UNKNOWN, even if one of the others is there
        not_null = [self.bound_test(s.IsNull(each, each.span), True) for each in call.operands]
        return t.And((t.Or(tuple(tests)), *not_null))

    def _bind_string_relation(
        self, function: str, text: s.Expression, other: s.Expression, negated: bool
    ) -> t.BoundPredicate:
        """Return the test of a string and another one."""
        if isinstance(text, s.Attribute) and isinstance(other, s.Attribute):
            one, two = (t.OfEvent(argument_of(side), t.Text(side.name, False)) for side in (text, other))
            if one.event != two.event:
                return t.StringRelation(function, one, two, negated)
        call = self.derive(s.Call(function, (text, other), text.span))
        return self.bound_test(s.Comparison("=", call, s.Literal(True), text.span), negated)

    def apart(self, predicate: s.Apart, negated: bool) -> t.BoundPredicate:
        """Bind a bound on the distance of two events, computed as windows are: exactly, or in floats for floats."""
        column, length = window_length(
            predicate.within, self.schema, predicate.later.name, predicate.time_unit, self.text
        )
        if column is None:
            self.single.add_derived(s.COUNTED_POSITION, PositionColumn())
            self.schema = self.single.schema
        x, y = (self.stored(attribute) for attribute in (predicate.later, predicate.earlier))
        if isinstance(length, np.float64):
            distance = t.Apply("-", (x, y))
            return t.Compare(">", distance, self.inputs.constant(float(length), t.F8), not negated)
        distance = t.Apply("-", (t.ToWide(x), t.ToWide(y)))
        return t.Compare("<=", distance, self.inputs.constant(int(length), t.WIDE), negated)

    def _describe_side(self, side: s.Expression) -> str:
        """Name a side of a comparison of which one is a duration."""
        if isinstance(side, s.Attribute | s.Literal):
            return self.describe(side)
        kind = "the value of" if length_of(side) is None else "the length of time"
        return f"{kind} {self.text[slice(*side.span)]}"

    def string_test(self, test: s.StringTest, negated: bool) -> t.BoundPredicate:
        """Refuse LIKE, GLOB and CIDR of several events."""
        raise self.error(f"{test.name} reads a column of one event", test.span)

    def any_element(self, predicate: s.AnyElement, negated: bool) -> t.BoundPredicate:
        """Refuse ANY of several events."""
        raise self.error("ANY compares elements with values of their own event", predicate.span)

    def is_null(self, operand: s.Expression, negated: bool) -> t.BoundPredicate:
        """Bind ``operand IS NULL``."""
        if isinstance(operand, s.Attribute) and self.kind(operand) == STRING:
            return t.TestOfEvent(argument_of(operand), self.single.is_null(of_event(operand), negated))
        return super().is_null(operand, negated)

    def number(self, expression: s.Expression) -> Operand:
        """Bind a numeric or boolean expression."""
        of = arguments_of(expression)
        if not self.alone(of):
            return super().number(expression)
        value = self.single.number(of_event(expression))
        return t.OfEvent(of[0], value) if isinstance(value, t.Value) else value

    def stored(self, attribute: s.Attribute, read: str = NUMBERS) -> t.Value:
        """Return the values of a column as they are stored."""
        return t.OfEvent(argument_of(attribute), self.single.stored(of_event(attribute), read))

    def floats_compared(self, op: str, x: t.Value, y: t.Value | float, negated: bool) -> t.BoundPredicate:
        """Compare numbers if one of them is a float: a float with an integer exactly."""
        if not isinstance(y, t.Value):
            exact = isinstance(y, int) and -(2**63) <= y < 2**64  # more bits are read as a float
            y = self.inputs.constant(y, t.WIDE) if exact else self.inputs.constant(float(y), t.F8)
        if y.dtype == t.F8:
            x, y, op = y, x, t.MIRRORED[op]
        return super().floats_compared(op, x, y, negated) if y.dtype == t.F8 else t.Compare(op, x, _as_wide(y), negated)

    def numeric(self, op: str, left: s.Expression, right: s.Expression, negated: bool) -> t.BoundPredicate:
        """Compare integers, floats or booleans, and decimals with floats."""
        if DECIMAL in (self.kind(left), self.kind(right)):
            return super().numeric(op, left, right, negated)
        return self._compare(op, self.number(left), self.number(right), negated)

    def columns_by_arrow(
        self, op: str, left: s.Expression, right: s.Expression, negated: bool, span: s.Span
    ) -> t.BoundPredicate:
        """Compare strings of two events, by their numbers or in their order."""
        sides = []
        for side in (left, right):
            if self.kind(side) == DECIMAL and isinstance(side, s.Attribute):
                raise self.error(
                    f"{self.describe(side)} has more than 18 digits, and cannot be compared between events",
                    span,
                    "cast it to a decimal of at most 18 digits, or to a float",
                )
            if not isinstance(side, s.Attribute):
                raise self.error(f"expected a column, found {self.describe(side)}", side.span)
            sides.append(t.OfEvent(argument_of(side), t.Text(side.name, op not in ("=", "<>"))))
        return t.Compare(op, sides[0], sides[1], negated)

    # ---- equal values -------------------------------------------------------------------------------------

    def key_columns(self, expressions: Sequence[s.Expression]) -> list[SideColumn]:
        """Return columns for the equal values of one variable: the columns of comparisons, if all of these agree."""
        if len(expressions) == 2:
            pair = self._equal_columns(*expressions)
            return list(pair) if pair is not None else [self._exact_column(each) for each in expressions]
        self._check_transitive(expressions)
        alone = [self._equal_columns(expression, expression) for expression in expressions]
        columns = [pair[0] for pair in alone if pair is not None]
        if len(columns) == len(expressions) and all(
            self._equal_columns(expressions[0], expression) == (columns[0], column)
            for expression, column in zip(expressions, columns, strict=True)
        ):
            return columns
        return [self._exact_column(expression) for expression in expressions]

    def _equal_columns(self, x: s.Expression, y: s.Expression) -> tuple[SideColumn, SideColumn] | None:
        """Return columns that are equal where two expressions over one event each are, or None if none are."""
        of_x, of_y = (partial(replace, variable=s.Name(name), event="EACH") for name in ("x", "y"))
        sides = [mapped(self.derive(side), s.Attribute, named) for side, named in ((x, of_x), (y, of_y))]
        test = self.bound_test(s.Comparison("=", sides[0], sides[1], x.span), False)
        separated = self._separate(test)
        if separated is None:
            return None
        return separated[1:] if _events_of_comparison(test)[0].variable == "x" else separated[:0:-1]

    def _check_transitive(self, expressions: Sequence[s.Expression]) -> None:
        """Refuse decimals and floats among three values or more that are to be equal, as a decimal is compared rounded.

        Raises
        ------
        QueryTypeError
        """
        sides = (of_event(self.derive(expression)) for expression in expressions)
        kinds = {self.single.kind(side) for side in sides if not self.single.is_distance(side)}
        if {DECIMAL, FLOAT} <= kinds:
            raise self.error(
                "decimals and floats are among three values or more that are to be equal",
                expressions[0].span,
                "cast these columns to one type",
            )

    def _exact_column(self, expression: s.Expression) -> SideColumn:
        """Return a column of an expression over one event that equals columns of any type for equal values."""
        x = of_event(self.derive(expression))
        if self.single.is_distance(x):
            return ExactString(*self.single.length_of_event(x))
        kind, scale = self.single.kind(x), Fraction(1)
        if isinstance(x, s.Attribute) and (kind == TEMPORAL or self.single.are_durations(x, x)):
            scale = per_second(self.single.column(x))
        elif isinstance(x, s.Attribute) and kind == DECIMAL:
            scale = Fraction(10) ** self.single.column(x).scale
        plain = scale == 1 and kind != DECIMAL
        value = self.single.number(x) if plain else self.single.stored(x)
        assert isinstance(value, t.Value)  # it reads an event
        return ExactString(value, scale)

    # ---- separable comparisons ----------------------------------------------------------------------------

    def _separate(self, test: t.BoundPredicate) -> tuple[str, SideColumn, SideColumn] | None:
        """Return a comparison of two events as an operator on columns of integers, or None if it is none."""
        if not isinstance(test, t.Compare) or len(_events_of_comparison(test)) != 2:
            return None
        op, left, right = test.op, test.left, test.right
        if test.negated:
            if t.F8 in (left.dtype, right.dtype):
                return None  # NOT (NaN < 1) is TRUE
            op = t.OPPOSITE[op]
        match left, right:
            case t.OfEvent(operand=t.Text() as x), t.OfEvent(operand=t.Text() as y):
                return op, StringId(x.column), StringId(y.column)
            case t.OfEvent(dtype=t.F8), t.OfEvent(dtype=t.WIDE):
                return None if op == "<>" else (inclusive(op), *_integer_bound(left, op, right))
            case (t.OfEvent(dtype=t.WIDE), t.ToWide(operand=t.OfEvent() as y, factor=1)) if op != "<>":
                return (inclusive(op), *_integer_bound(left, op, y))
            case (t.ToWide(operand=t.OfEvent() as x, factor=1), t.OfEvent(dtype=t.WIDE)) if op != "<>":
                return (inclusive(op), *_integer_bound(right, t.MIRRORED[op], x)[::-1])
            case t.OfEvent(dtype=t.WIDE), t.OfEvent(dtype=t.WIDE):
                return op, OrderKey(left.operand), OrderKey(right.operand)
            case (t.OfEvent(dtype=t.WIDE), _) | (_, t.OfEvent(dtype=t.WIDE)):
                return None
            case t.OfEvent(), t.OfEvent():
                return (
                    None if left.dtype == t.F8 and op == "<>" else (op, OrderKey(left.operand), OrderKey(right.operand))
                )
            case t.OfEvent(), t.ToWide(operand=t.OfEvent() as y):
                return None if op == "<>" else (inclusive(op), *_integer_bound(left, op, y))
            case t.ToWide(), t.ToWide():
                return _scale(op, left, right)
            case t.Apply(op="-", operands=(t.ToWide() as x, t.ToWide() as y)), t.Constant():
                return _scale(op, x, y, self.inputs.constants[t.WIDE][right.slot])
        return None


def _integer_bound(x: t.OfEvent, op: str, y: t.OfEvent) -> tuple[SideColumn, SideColumn]:
    """Return columns for ``x op y`` of a number and an integer: a bound of the integer, and that."""
    return Bound(x.operand, t.MIRRORED[op], unsigned=y.dtype == t.U8), OrderKey(y.operand)


def _as_wide(value: t.Value) -> t.Value:
    return value if value.dtype == t.WIDE else t.ToWide(value)


def _events_of_comparison(test: t.BoundPredicate) -> list[Argument]:
    """Return the events of a comparison, in order, each once."""
    return list(dict.fromkeys(part.event for part in t.parts(test) if isinstance(part, t.OfEvent)))


def _scale(op: str, left: t.ToWide, right: t.ToWide, plus: int = 0) -> tuple[str, SideColumn, SideColumn] | None:
    """Return ``left op right + plus`` as an operator on columns, where one of the factors is 1."""
    if not isinstance(left.operand, t.OfEvent) or not isinstance(right.operand, t.OfEvent):
        return None
    x, y = left.operand.operand, right.operand.operand
    if left.factor == right.factor == 1 and not plus and x.dtype == y.dtype:
        return op, OrderKey(x), OrderKey(y)
    if op == "<>":
        return None
    if right.factor == 1:  # x op (y + plus) / factor
        return inclusive(op), OrderKey(x), Bound(y, op, left.factor, plus, unsigned=x.dtype == t.U8)
    assert left.factor == 1
    return inclusive(op), Bound(x, t.MIRRORED[op], right.factor, -plus, unsigned=y.dtype == t.U8), OrderKey(y)
