"""Binding of OVER aggregates to a schema: their tests of events, and the clocks in which they reach back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.ceql.functions import RISES
from cer_gpu.ceql.one_event import NameTest, name_test
from cer_gpu.ceql.syntax import OverAggregate, OwnKey, Predicate, aggregates_in, attributes
from cer_gpu.columnar.clocks import window_length
from cer_gpu.expressions.derived import DerivedColumn, aggregates_of, read_by
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
