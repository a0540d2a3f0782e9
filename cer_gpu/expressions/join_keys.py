"""Binding of the variables of a parallel pattern: for each of their values a column, equal where the values are.

papers: PCEA, section 2 (equality predicates, as two partial functions of events).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.expressions.relations import BoundRelations, RelationBinder
from cer_gpu.expressions.side_columns import SideColumn


def bind_keys(
    variables: Sequence[Sequence[s.Expression]], predicates: Sequence[s.Predicate], schema: pa.Schema, text: str
) -> tuple[BoundRelations, list[list[int]]]:
    """Bind variables, each given as expressions over single events whose values are equal.

    Returns
    -------
    BoundRelations
        The columns, without conditions.
    list of list of int
        For each expression of each variable its column.

    Raises
    ------
    QueryTypeError
        When a column is unknown, or types do not go together.
    QueryTooLargeError
        When they read too many different expressions.
    """
    binder = RelationBinder(schema, text)
    for predicate in predicates:
        binder.condition(predicate)  # for its errors
    binder.columns.clear()
    columns = [[binder.column_number(column) for column in _columns(binder, expressions)] for expressions in variables]
    return binder.bound((), predicates), columns


def _columns(binder: RelationBinder, expressions: Sequence[s.Expression]) -> list[SideColumn]:
    """Return columns for the values of one variable: those of comparisons where all of these agree."""
    if len(expressions) == 2:
        pair = binder.equal_columns(*expressions)
        return list(pair) if pair is not None else [binder.exact_column(each) for each in expressions]
    binder.check_transitive(expressions)
    alone = [binder.equal_columns(expression, expression) for expression in expressions]
    columns = [pair[0] for pair in alone if pair is not None]
    if len(columns) == len(expressions) and all(
        binder.equal_columns(expressions[0], expression) == (columns[0], column)
        for expression, column in zip(expressions, columns, strict=True)
    ):
        return columns
    return [binder.exact_column(expression) for expression in expressions]
