"""Binding of the columns of LET to a schema: their types, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.columns import BOOLEAN, DECIMAL, FLOAT, INTEGER, NOTHING, TEMPORAL, Block, kind_of, plain_array
from cer_gpu.columnar.fields import attribute_type
from cer_gpu.errors import QueryTypeError
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.derived import DerivedColumn, aggregates_of, read_by, reads_one_event, term_array
from cer_gpu.planning.over_binding import BoundOverAggregates, bind_over_aggregates
from cer_gpu.planning.plan import LogicalPlan

_TYPES = {INTEGER: pa.int64(), FLOAT: pa.float64(), BOOLEAN: pa.bool_(), NOTHING: pa.null()}


@dataclass(frozen=True)
class BoundLetColumn:
    """A column of LET over a schema.

    Attributes
    ----------
    name : str
        Name of the column.
    type : pyarrow.DataType
    make : callable
        Returns the column of a block that has the derived columns.
    derived : dict from str to DerivedColumn
        Columns that it is made of.
    over_aggregates : BoundOverAggregates or None
    """

    name: str
    type: pa.DataType
    make: Callable[[Block], pa.Array]
    derived: dict[str, DerivedColumn]
    over_aggregates: BoundOverAggregates | None

    @property
    def looks_back(self) -> bool:
        """True if it reads events before its own."""
        return not all(map(reads_one_event, self.derived.values()))


@dataclass(frozen=True)
class BoundLet:
    """The columns of LET that a query makes, over one schema.

    Attributes
    ----------
    columns : tuple of BoundLetColumn
        In the order in which they are made.
    schema : pyarrow.Schema
        That of the events with these columns.
    read : tuple of str
        Columns and fields of the events that they are made of.
    clocks : tuple of str
        Columns in which they reach back, which must not decrease.
    """

    columns: tuple[BoundLetColumn, ...]
    schema: pa.Schema
    read: tuple[str, ...]
    clocks: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """Names of the columns."""
        return frozenset(column.name for column in self.columns)


def bind_let(plan: LogicalPlan, schema: pa.Schema) -> BoundLet | None:
    """Bind the columns of LET that are made, or return None if there are none.

    Raises
    ------
    QueryTypeError
        When the events have a column of a name of LET, or an expression does not fit the schema.
    """
    for column in plan.syntax.let:
        if attribute_type(schema, column.name) is not None:
            raise QueryTypeError(
                f"LET names a column {column.name!r}, which the events have",
                plan.text,
                *column.span,
                "give the column of LET another name",
            )
    if not plan.made_columns:
        return None
    bound: list[BoundLetColumn] = []
    types = dict[str, pa.DataType]()
    for column in _in_order(plan):
        full = _extended(schema, types)
        bound_column = _bind_column(column, plan, full)
        types[column.column] = bound_column.type
        bound.append(bound_column)
    read = [name for column in bound for name in read_by(column.derived)]
    read += [name for column in plan.made_columns for name in _columns_in(column.expression)]
    of_over = [column.over_aggregates for column in bound if column.over_aggregates is not None]
    read += [name for over in of_over for name in (*over.read, *over.clocks)]
    clocks = tuple(dict.fromkeys(name for over in of_over for name in over.clocks))
    read = [name for name in dict.fromkeys(read) if name not in types]
    return BoundLet(tuple(bound), _extended(schema, types), tuple(read), clocks)


def _extended(schema: pa.Schema, types: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*schema, *types.items()], schema.metadata)


def _columns_in(expression: s.Expression) -> list[str]:
    return [each.name for each in s.attributes(expression) if each.aggregate is None]


def _in_order(plan: LogicalPlan) -> list[s.LetColumn]:
    """Return the columns, those that keys of PARTITION BY are made of first: the others may look back by these keys."""
    columns = {column.column: column for column in plan.made_columns}
    first: dict[str, s.LetColumn] = {}

    def add(column: s.LetColumn) -> None:
        for name in _columns_read(column.expression):
            if name in columns:
                add(columns[name])
        if not _has_own_keys(column):
            raise QueryTypeError(
                f"LET {column.name} is a key of PARTITION BY, and is itself read by these keys",
                plan.text,
                *column.span,
                "give what is OVER keys of its own: COUNT(FAIL) OVER 1 MINUTE PARTITION BY [user]",
            )
        first.setdefault(column.column, column)

    for name in dict.fromkeys(name for key in plan.partition_keys for name in key):
        if name in columns:
            add(columns[name])
    return [*first.values(), *(column for name, column in columns.items() if name not in first)]


def _columns_read(expression: s.Expression) -> list[str]:
    """Return all columns that an expression names, those in what is OVER included."""
    names = [each.name for each in s.attributes(expression)]
    for aggregate in s.aggregates_in(expression):
        names += [] if aggregate.attribute is None else [aggregate.attribute]
        names += [attribute.name for below in aggregate.below for attribute in s.attributes(below)]
        names += [part.name.name for key in aggregate.keys or () for part in key]
    return names


def _has_own_keys(column: s.LetColumn) -> bool:
    """Return True for an expression that does not depend on the keys of the query."""
    return all(each.lag == 0 for each in s.attributes(column.expression)) and all(
        aggregate.keys is not None for aggregate in s.aggregates_in(column.expression)
    )


def _bind_column(column: s.LetColumn, plan: LogicalPlan, schema: pa.Schema) -> BoundLetColumn:
    binder = Binder(schema, plan.text)
    node = binder.derive(column.expression)
    data_type, make = _value(node, binder)
    derived = dict(binder.derived)
    over = bind_over_aggregates(aggregates_of(derived), plan, schema)
    if over is not None:
        derived = {**over.derived, **derived}
    return BoundLetColumn(column.column, data_type, make, derived, over)


def _value(node: s.Expression, binder: Binder) -> tuple[pa.DataType, Callable[[Block], pa.Array]]:
    """Return the type of an expression without functions, and how its column is made."""
    if isinstance(node, s.Attribute):
        name, data_type = node.name, binder.column(node)
        if pa.types.is_nested(data_type):
            raise binder.error(f"LET computes single values, and {dotted(name)!r} is {data_type}", node.span)
        return data_type, lambda block: plain_array(block.column(name))
    if isinstance(node, s.Arithmetic) and node.op in "+-" and (of_times := _of_times(node, binder)) is not None:
        return of_times
    kind = binder.kind(node)
    if kind == DECIMAL:
        raise binder.error("LET computes decimals only by functions", node.span, "round(x, 2), or cast the column")
    number, inputs = binder.number_apart(node)
    if number is None:
        return pa.null(), lambda block: pa.nulls(block.n_rows)
    data_type = _TYPES[kind]

    def make(block: Block) -> pa.Array:
        values = term_array(number, inputs, block)  # type: ignore[arg-type]
        return values if values.type == data_type else values.cast(data_type)

    return data_type, make


def _of_times(node: s.Arithmetic, binder: Binder) -> tuple[pa.DataType, Callable[[Block], pa.Array]] | None:
    """Return how a sum or difference of times and lengths is made, or None if it is one of numbers."""
    sides = [_time_side(side, binder) for side in (node.left, node.right)]
    if not all(sides):
        return None
    (left_type, left), (right_type, right) = sides  # type: ignore[misc]
    compute: Any = pc.add_checked if node.op == "+" else pc.subtract_checked
    try:
        data_type = compute(pa.array([], left_type), pa.array([], right_type)).type
    except pa.ArrowException:
        raise binder.error(f"there is no {left_type} {node.op} {right_type}", node.span) from None
    return data_type, lambda block: compute(left(block), right(block))


def _time_side(node: s.Expression, binder: Binder) -> tuple[pa.DataType, Callable[[Block], Any]] | None:
    if isinstance(node, s.Duration):
        micros = node.length * 1_000_000
        if micros.denominator != 1:
            raise binder.error("a length is counted in microseconds here", node.span)
        length = pa.scalar(int(micros), pa.duration("us"))
        return length.type, lambda _: length
    if isinstance(node, s.Attribute):
        data_type = binder.column(node)
        if kind_of(data_type) == TEMPORAL or pa.types.is_duration(data_type):
            name = node.name
            return data_type, lambda block: plain_array(block.column(name))
    if isinstance(node, s.Arithmetic) and node.op in "+-":
        return _of_times(node, binder)
    return None
