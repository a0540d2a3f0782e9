"""Filters between events as they would be bound to columns of numbers, to be explained without a schema."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import walk
from cer_gpu.errors import QueryError
from cer_gpu.explain.writing import predicate_text
from cer_gpu.expressions.bands import Difference
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.relation_terms import Comparison, Condition, FilterProgram, argument_of, arguments_of
from cer_gpu.expressions.relations import BoundRelations, RelationBinder
from cer_gpu.expressions.terms import MIRRORED

_ZERO = s.Literal(0, "0")


def presumed(predicates: Sequence[s.Predicate]) -> BoundRelations:
    """Bind filters between events as if all columns held numbers, or times beside a length of time.

    Types may turn a comparison into a program: texts by ``<``, ``<>`` of numbers of two types, and some decimals.
    """
    columns: dict[str, int] = {}
    conditions = tuple(_presumed_condition(predicate, columns) for predicate in predicates)
    found = tuple(map(_differences, predicates))
    return BoundRelations(conditions, (), (), (), Binder(pa.schema([]), ""), found)


def compared_sides(predicate: s.Predicate) -> tuple[s.Expression, s.Expression] | None:
    """Return the sides of a comparison, perhaps negated; None: the predicate is none."""
    while isinstance(predicate, s.Not):
        predicate = predicate.operand
    return (predicate.left, predicate.right) if isinstance(predicate, s.Comparison) else None


def _differences(predicate: s.Predicate) -> tuple[Difference, ...]:
    """Return the differences that a filter bounds if its columns are floats, or times beside a length of time."""
    if isinstance(predicate, s.Apart):
        return ()
    compares_times = any(isinstance(node, s.Duration) for node in walk(predicate))
    column_type = pa.timestamp("us") if compares_times else pa.float64()
    names = dict.fromkeys(attribute.name for attribute in s.attributes(predicate))
    binder = RelationBinder(pa.schema([(name, column_type) for name in names]), "")
    try:
        binder.condition(predicate)
    except QueryError:
        return ()
    return binder.differences[-1]


def _presumed_condition(predicate: s.Predicate, columns: dict[str, int]) -> Condition:
    program = FilterProgram(arguments_of(predicate), ())
    if isinstance(predicate, s.Apart):
        sides = [(argument_of(side), columns.setdefault(side.name, len(columns))) for side in _clocks(predicate)]
        return Comparison("<=", *sides[0], *sides[1])
    if not isinstance(predicate, s.Comparison):
        return program
    op, left, right = _times_apart(predicate.op, predicate.left, predicate.right)
    one, other = arguments_of(left), arguments_of(right)
    if len(one) != 1 or len(other) != 1 or one == other:
        return program
    columns_read = [columns.setdefault(_side_text(side), len(columns)) for side in (left, right)]
    return Comparison(op, one[0], columns_read[0], other[0], columns_read[1])


def _clocks(predicate: s.Apart) -> tuple[s.Attribute, s.Attribute]:
    return predicate.later, predicate.earlier


def _times_apart(op: str, left: s.Expression, right: s.Expression) -> tuple[str, s.Expression, s.Expression]:
    """Return a comparison; ``x - y <= 5 MINUTES`` is one of x with y, at the distance of a constant."""
    if isinstance(left, s.Duration):
        op, left, right = MIRRORED[op], right, left
    if isinstance(right, s.Duration) and isinstance(left, s.Arithmetic) and left.op == "-" and op != "<>":
        return op, left.left, left.right
    return op, left, right


def _side_text(side: s.Expression) -> str:
    return predicate_text(s.Comparison("=", side, _ZERO))
