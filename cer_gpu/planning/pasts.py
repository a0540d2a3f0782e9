"""Binding of aggregates over the past to a schema: their tests of events, and the clocks in which they reach back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.ceql.syntax import Past
from cer_gpu.columnar.clocks import window_length
from cer_gpu.expressions.derived import DerivedColumn, read_by
from cer_gpu.expressions.pasts import PastColumn
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.planning.plan import Plan
from cer_gpu.predicates.guards import BoundGuards


@dataclass(frozen=True)
class Reach:
    """Length that an aggregate reaches back: in units of a column, or for None in events of the substream."""

    column: str | None
    length: np.uint64 | np.float64


@dataclass(frozen=True)
class BoundPasts:
    """Aggregates over the past, bound to a schema.

    Attributes
    ----------
    columns : dict from PastColumn to list of str
        Each once, with the names of the columns that it makes.
    reaches : dict from PastColumn to Reach
        The others have no length: they read all events before, of any key.
    tests : tuple of BoundGuards
        Tests of the events that they are of: those with a type, and those of any.
    test : dict from PastColumn to (int, int) or None
        The number in `tests` of its test, and the guard of that; None: it is of all events.
    """

    columns: dict[PastColumn, list[str]]
    reaches: dict[PastColumn, Reach]
    tests: tuple[BoundGuards, ...]
    test: dict[PastColumn, tuple[int, int] | None]

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
        return (*(name for guards in self.tests for name in guards.columns), *read_by(self.derived))


def bind_pasts(pasts: Mapping[str, PastColumn], plan: Plan, schema: pa.Schema) -> BoundPasts | None:
    """Bind aggregates over the past; None: there are none.

    Raises
    ------
    QueryTypeError
        When their tests, or their clocks, do not fit the schema.
    """
    if not pasts:
        return None
    columns: dict[PastColumn, list[str]] = {}
    for name, column in pasts.items():
        columns.setdefault(column, []).append(name)
    guards = {column: _guard_of(column.past, plan) for column in columns}
    tests: list[BoundGuards] = []
    test: dict[PastColumn, tuple[int, int] | None] = dict.fromkeys(columns)
    streams = STREAM_COLUMN if plan.several_streams else None
    # guards of any type are no row of the table of types
    for typed, of_test in (True, (plan.type_column, streams)), (False, (None, streams)):
        tested = [c for c, guard in guards.items() if guard != Guard(None) and (guard.event_type is not None) == typed]
        some = tuple(dict.fromkeys(guards[column] for column in tested))
        test |= {column: (len(tests), some.index(guards[column])) for column in tested}
        if some:
            tests.append(BoundGuards(some, schema, of_test[0], plan.text, of_test[1]))
    reaches = {
        column: Reach(*window_length(column.past.over, schema, plan.time_column, plan.time_unit, plan.text))
        for column in columns
        if column.past.over is not None
    }
    return BoundPasts(columns, reaches, tuple(tests), test)


def _guard_of(past: Past, plan: Plan) -> Guard:
    """Return the test of the events of an aggregate."""
    if past.event is None:
        return Guard(None, past.predicate)
    if plan.type_column is None:  # the name is that of the stream
        return Guard(None, past.predicate, past.event.name if plan.several_streams else None)
    return Guard(past.event.name, past.predicate, past.event.stream if plan.several_streams else None)
