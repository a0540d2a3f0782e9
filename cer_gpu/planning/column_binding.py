"""Binding of columns that look back, or that LET names, to a schema: OVER aggregates with their tests, LET columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import RISES
from cer_gpu.ceql.one_event import NameTest, name_test
from cer_gpu.ceql.paths import dotted
from cer_gpu.ceql.syntax import OverAggregate, OwnKey, Predicate, aggregates_in, attributes
from cer_gpu.columnar.clocks import window_length
from cer_gpu.columnar.columns import BOOLEAN, DECIMAL, FLOAT, INTEGER, NOTHING, TEMPORAL, Block, kind_of, plain_array
from cer_gpu.columnar.fields import attribute_type
from cer_gpu.errors import QueryError, QueryTypeError
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.derived import DerivedColumn, aggregates_of, read_by, reads_one_event, term_array
from cer_gpu.expressions.derived_names import is_derived
from cer_gpu.expressions.over_aggregates import OverColumn
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.partition.partitions import PartitionKeys
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.predicates.guards import BoundGuards


@dataclass(frozen=True)
class Reach:
    """Length that an aggregate reaches back: in units of a column, or, for None, in events of the substream."""

    column: str | None
    length: np.uint64 | np.float64


TestPlace = tuple[int, int]
"""The number of a test among those of `BoundOverAggregates`, and the guard of that."""


@dataclass(frozen=True)
class OverKeys:
    """Keys of an OVER aggregate, in place of those of the query.

    Attributes
    ----------
    columns : PartitionKeys
    tests : tuple of tuple of (TestPlace or None)
        For each key, the places of the tests of the events that have each of its columns, or None if all have.
    """

    columns: PartitionKeys
    tests: tuple[tuple[TestPlace | None, ...], ...]


@dataclass(frozen=True)
class BoundOverAggregates:
    """OVER aggregates and their predicates, bound to a schema.

    Attributes
    ----------
    columns : dict from OverColumn to list of str
        Each once, with the names of the columns that it makes; those that its tests read come before it.
    reaches : dict from OverColumn to Reach
        The others have no length.
    tests : tuple of BoundGuards
        Tests of events before, by their types, those of any type apart; they read columns that come before.
    test, condition, before : dict from OverColumn to TestPlace or None
        Places of the predicate of the aggregated events, of the condition, and of the one just before; None if absent.
    own_keys : dict from OverColumn to OverKeys
        Keys of the aggregates that have some of their own.
    read_at : dict from OverColumn to (tuple of (TestPlace or None) or None), or None
        Predicates of the events at which each aggregate is read, besides the aggregated events.  None, for a predicate,
        for an aggregate or for the whole, stands for all events.
    """

    columns: dict[OverColumn, list[str]]
    reaches: dict[OverColumn, Reach]
    tests: tuple[BoundGuards, ...]
    test: dict[OverColumn, TestPlace | None]
    condition: dict[OverColumn, TestPlace | None]
    before: dict[OverColumn, TestPlace | None]
    own_keys: dict[OverColumn, OverKeys]
    read_at: dict[OverColumn, tuple[TestPlace | None, ...] | None] | None

    @property
    def clocks(self) -> tuple[str, ...]:
        """Columns in which they reach back, which must not decrease."""
        named = (reach.column for reach in self.reaches.values())
        return tuple(dict.fromkeys(column for column in named if column is not None))

    @property
    def derived(self) -> dict[str, DerivedColumn]:
        """Derived columns that their tests read."""
        return {name: column for guards in self.tests for name, column in guards.derived.items()}

    @property
    def read(self) -> tuple[str, ...]:
        """Columns and fields of the events that their tests read."""
        named = (name for guards in self.tests for name in guards.columns if not is_derived(name))
        of_keys = (name for keys in self.own_keys.values() for name in keys.columns.columns)
        return (*named, *read_by(self.derived), *of_keys)


def bind_over_aggregates(
    aggregates: Mapping[str, OverColumn], plan: LogicalPlan, schema: pa.Schema
) -> BoundOverAggregates | None:
    """Bind the OVER aggregates of a query, or return None if it has none.

    Raises
    ------
    QueryTypeError
        When tests, or clocks, cannot be bound to the schema.
    """
    if not aggregates:
        return None
    columns, tests, places = _place_guards(aggregates, plan, schema)
    by_role = {column: _over_guards(column.aggregate, plan) for column in columns}
    test, condition, before = (
        {column: places[guards[role]] if role in guards else None for column, guards in by_role.items()}
        for role in ("test", "condition", "before")
    )
    reaches = _bind_reaches(columns, plan, schema)
    read_at = None
    if _only_rises(aggregates.values(), columns, reaches):
        read_at = {column: _events_that_read(column, columns, plan, test) for column in columns}
    own_keys = _bind_over_keys(by_role, places, plan, schema)
    return BoundOverAggregates(columns, reaches, tests, test, condition, before, own_keys, read_at)


def _place_guards(
    aggregates: Mapping[str, OverColumn], plan: LogicalPlan, schema: pa.Schema
) -> tuple[dict[OverColumn, list[str]], tuple[BoundGuards, ...], dict[tuple[Guard, int], TestPlace]]:
    """Find all aggregates, those that tests read first, and bind their tests.

    Returns
    -------
    columns : dict from OverColumn to list of str
    tests : tuple of BoundGuards
    places : dict from (Guard, int) to TestPlace
        Place of each test, by its guard and the depth of what it reads.
    """
    columns: dict[OverColumn, list[str]] = {}
    tests: list[BoundGuards] = []
    places: dict[tuple[Guard, int], TestPlace] = {}
    todo = dict(aggregates)
    while todo:
        new = [column for column in dict.fromkeys(todo.values()) if column not in columns]
        for name, column in todo.items():
            if name not in (names := columns.setdefault(column, [])):
                names.append(name)
        guards = dict.fromkeys(each for column in new for each in _over_guards(column.aggregate, plan).values())
        bound = _bind_tests([each for each in guards if each not in places], len(tests), places, plan, schema)
        tests += bound
        todo = aggregates_of({name: column for guards in bound for name, column in guards.derived.items()})
    columns = dict(sorted(columns.items(), key=lambda item: _nesting_of_over(item[0].aggregate)))
    return columns, tuple(tests), places


def _bind_tests(
    guards: Sequence[tuple[Guard, int]],
    n_before: int,
    places: dict[tuple[Guard, int], TestPlace],
    plan: LogicalPlan,
    schema: pa.Schema,
) -> list[BoundGuards]:
    """Bind tests by the depth of what they read, and add their places."""
    streams = STREAM_COLUMN if plan.several_streams else None
    bound: list[BoundGuards] = []
    for depth in sorted({depth for _, depth in guards}):
        # guards of any type are no row of the table of types
        for typed, (type_column, stream_column) in (True, (plan.type_column, streams)), (False, (None, streams)):
            some = [guard for guard, own in guards if own == depth and (guard.event_type is not None) == typed]
            if some:
                places |= {(guard, depth): (n_before + len(bound), i) for i, guard in enumerate(some)}
                bound.append(BoundGuards(tuple(some), schema, type_column, plan.text, stream_column))
    return bound


def _bind_reaches(columns: Iterable[OverColumn], plan: LogicalPlan, schema: pa.Schema) -> dict[OverColumn, Reach]:
    """Return the lengths of the aggregates that have one."""
    return {
        column: Reach(*window_length(column.aggregate.over, schema, plan.time_column, plan.time_unit, plan.text))
        for column in columns
        if column.aggregate.over is not None
    }


def _bind_over_keys(
    by_role: Mapping[OverColumn, Mapping[str, tuple[Guard, int]]],
    places: Mapping[tuple[Guard, int], TestPlace],
    plan: LogicalPlan,
    schema: pa.Schema,
) -> dict[OverColumn, OverKeys]:
    """Return the keys of the aggregates that have some of their own; those of equal ones are the same."""
    bound: dict[tuple[tuple[OwnKey, ...], ...], OverKeys] = {}
    own_keys = {}
    for column, guards in by_role.items():
        keys = column.aggregate.keys
        if keys is None:
            continue
        if keys not in bound:
            columns = PartitionKeys(tuple(tuple(part.name for part in key) for key in keys), schema, plan.text)
            tests = (
                tuple(places[guards[role]] if (role := _key_role(i, j)) in guards else None for j in range(len(key)))
                for i, key in enumerate(keys)
            )
            bound[keys] = OverKeys(columns, tuple(tests))
        own_keys[column] = bound[keys]
    return own_keys


def _only_rises(
    requested: Iterable[OverColumn], columns: Iterable[OverColumn], reaches: Mapping[OverColumn, Reach]
) -> bool:
    """Return True if aggregates are read in the conditions of RISES alone, and none counts events as its clock."""
    tests = (each for column in columns for each in column.aggregate.below if each is not column.aggregate.condition)
    read = [column.aggregate for column in requested] + [aggregate for test in tests for aggregate in directly_in(test)]
    return all(aggregate.function == RISES for aggregate in read) and all(
        column in reaches and reaches[column].column is not None
        for column in columns
        if column.aggregate.function != RISES
    )


def _events_that_read(
    column: OverColumn, columns: Iterable[OverColumn], plan: LogicalPlan, test: Mapping[OverColumn, TestPlace | None]
) -> tuple[TestPlace | None, ...] | None:
    """Return the tests of the events at which an aggregate is read, or None for all, as some are known too late."""
    places: list[TestPlace | None] = []
    for other in columns:
        read = [
            aggregate
            for each in (other.aggregate.condition, other.aggregate.before)
            if each is not None
            for aggregate in directly_in(each)
        ]
        if column.aggregate not in read:
            continue
        guards = _over_guards(other.aggregate, plan)
        if "test" in guards and guards["test"][1] > _nesting_of_over(column.aggregate):
            return None
        places.append(test[other])
    return tuple(places)


def directly_in(predicate: Predicate) -> list[OverAggregate]:
    """Return the OVER aggregates that a predicate reads, without those that they read."""
    return [attribute.aggregate for attribute in attributes(predicate) if attribute.aggregate is not None]


def _nesting_of_over(aggregate: OverAggregate) -> int:
    """Return how deeply the OVER aggregates that an aggregate reads are nested."""
    return max((1 + _nesting_of_over(inner) for below in aggregate.below for inner in aggregates_in(below)), default=0)


def _over_guards(aggregate: OverAggregate, plan: LogicalPlan) -> dict[str, tuple[Guard, int]]:
    """Return the tests of events before, those of all events left out, each with the depth of what it reads."""
    guards = {"test": _guard_of_events(aggregate, plan)}
    if aggregate.condition is not None:
        guards |= {"condition": Guard(None, aggregate.condition), "before": Guard(None, aggregate.before)}
    for i, key in enumerate(aggregate.keys or ()):
        guards |= {_key_role(i, j): Guard(None, part.predicate) for j, part in enumerate(key)}
    read = {
        role: () if guard.predicate is None else tuple(aggregates_in(guard.predicate)) for role, guard in guards.items()
    }
    return {
        role: (guard, max((1 + _nesting_of_over(inner) for inner in read[role]), default=0))
        for role, guard in guards.items()
        if guard != Guard(None)
    }


def _key_role(key: int, part: int) -> str:
    return f"key {key} {part}"


def _guard_of_events(aggregate: OverAggregate, plan: LogicalPlan) -> Guard:
    """Return the test of the events of an aggregate."""
    if aggregate.event is None:
        return Guard(None, aggregate.predicate)
    test = name_test(aggregate.event)
    if plan.type_column is None and test.event_type is not None:  # the name is that of the stream
        test = NameTest(None, test.event_type)
    return Guard(test.event_type, aggregate.predicate, test.stream if plan.several_streams else None)


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


def let_errors(syntax: s.QuerySyntax, schema: pa.Schema) -> tuple[pa.Schema, list[QueryError]]:
    """Return the schema of events with the columns of LET that a query makes, and the errors of these columns."""
    errors: list[QueryError] = []
    types = dict[str, pa.DataType]()
    for column in syntax.let:
        try:
            check_let_name(column, schema, syntax.text)
            if column.is_made:
                binder = Binder(_extended(schema, types), syntax.text)
                types[column.column] = _value(binder.derive(column.expression), binder)[0]
        except QueryError as error:
            errors.append(error)
            types[column.column] = pa.null()
    return _extended(schema, types), errors


def check_let_name(column: s.LetColumn, schema: pa.Schema, text: str) -> None:
    """Refuse a name of LET that the events have; raises QueryTypeError."""
    if attribute_type(schema, column.name) is not None:
        raise QueryTypeError(
            f"LET names a column {column.name!r}, which the events have",
            text,
            *column.span,
            "give the column of LET another name",
        )


def bind_let(plan: LogicalPlan, schema: pa.Schema) -> BoundLet | None:
    """Bind the columns of LET that are made, or return None if there are none.

    Raises
    ------
    QueryTypeError
        When the events have a column of a name of LET, or an expression does not fit the schema.
    """
    for column in plan.syntax.let:
        check_let_name(column, schema, plan.text)
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
