"""Binding of a plan to a schema, made once for each schema and immutable."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cer_gpu.ceql.paths import dotted
from cer_gpu.ceql.syntax import Within
from cer_gpu.columnar.clocks import time_column_type, window_length
from cer_gpu.columnar.columns import plain_type
from cer_gpu.columnar.fields import attribute_type, column_type, is_field_column, narrowest
from cer_gpu.errors import EventsError, QueryTypeError
from cer_gpu.expressions.derived import DerivedColumn, aggregates_of, read_by
from cer_gpu.expressions.relations import BoundRelations, bind_keys, bind_relations
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.output.bound_measures import BoundMeasures, bind_measures
from cer_gpu.output.form import Columns, Head, Output
from cer_gpu.output.weights import BoundWeights, Linear, bind_weights
from cer_gpu.partition.partitions import PartitionKeys
from cer_gpu.partition.step_keys import KeysByStep
from cer_gpu.planning.column_binding import BoundLet, BoundOverAggregates, bind_let, bind_over_aggregates
from cer_gpu.planning.pattern_spans import same_clock
from cer_gpu.planning.physical import PhysicalPlan, physical_plan
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.predicates.guards import BoundGuards
from cer_gpu.runtime.join_plan import JoinPlan
from cer_gpu.runtime.join_tables import JoinTables
from cer_gpu.runtime.parallel.parallel_tables import ParallelTables
from cer_gpu.runtime.recent.graph_tables import GraphTables
from cer_gpu.runtime.recent.tables import RecentTables
from cer_gpu.runtime.spacing import Spacings, spacings_of

WindowLength = np.uint64 | np.float64
"""Length of a window, in units of its column or in events."""


@dataclass(frozen=True)
class Binding:
    """Plan over one schema: typed tests, the window in units of its column, keys and attributes; made by `bind`.

    Attributes
    ----------
    plan : LogicalPlan
    schema : pyarrow.Schema
    position_column : str or None
        Column of given positions, which is not an attribute, or None if events are counted.
    guards : BoundGuards
    time_type : pyarrow.DataType or None
    window_column : str or None
        Column in which the window is measured, or None if in positions, or without a window.
    window_length : numpy.uint64 or numpy.float64 or None
    lasting : numpy.uint64 or numpy.float64 or None
        Length for which matches wait after their last event (`LogicalPlan.lasts`), in the same column.
    gap : numpy.uint64 or numpy.float64 or None
        Length of EACH STEP, where it is measured in the same column as the window.
    every : (str or None, numpy.uint64 or numpy.float64) or None
        Column in which the length of LIMIT n EVERY d is measured (None for positions), and the length.
    keys : PartitionKeys
    clocks : tuple of str
        Columns of times, which must not decrease.
    columns_on_host : tuple of str
        Columns that not only predicates read, of single events or, where a GPU computes them, sides of filters.
    compared : BoundRelations or None
        Columns that join predicates read, or None if there are no such filters, and no conjunction.
    joins : JoinTables or None
        Tables of an atom graph.
    parallel : ParallelTables or None
        Tables of a parallel pattern.
    recent : RecentTables or None
        Tables of the steps of SELECT RECENT.
    spacing : Spacings or None
        Bounds on distances within the chain, where stacks may evaluate it.
    over_aggregates : BoundOverAggregates or None
        OVER aggregates of the predicates, or None if there are none.
    let : BoundLet or None
        Columns of LET that are made, or None if there are none.
    """

    plan: LogicalPlan
    schema: pa.Schema
    position_column: str | None
    guards: BoundGuards
    time_type: pa.DataType | None
    window_column: str | None
    window_length: WindowLength | None
    lasting: WindowLength | None
    gap: WindowLength | None
    every: tuple[str | None, WindowLength] | None
    keys: PartitionKeys
    clocks: tuple[str, ...]
    columns_on_host: tuple[str, ...]
    compared: BoundRelations | None
    joins: JoinTables | None
    parallel: ParallelTables | None
    recent: RecentTables | None = None
    spacing: Spacings | None = None
    over_aggregates: BoundOverAggregates | None = None
    let: BoundLet | None = None

    @cached_property
    def alone(self) -> Binding:
        """The binding for stacks, which evaluate windows within a chain without join predicates."""
        if self.spacing is None or (self.joins is None and self.parallel is None):
            return self
        return replace(self, compared=None, joins=None, parallel=None, window_column=self.spacing.column)

    @property
    def full_schema(self) -> pa.Schema:
        """Schema of the events with the columns of LET that are made."""
        return self.schema if self.let is None else self.let.schema

    @property
    def partition_keys(self) -> PartitionKeys | None:
        """Keys of PARTITION BY, or None if there are none."""
        return self.keys if self.plan.partition else None

    @cached_property
    def derived(self) -> dict[str, DerivedColumn]:
        """Columns computed from the others before the predicates are evaluated, by name."""
        of_tests = {} if self.over_aggregates is None else self.over_aggregates.derived
        return {**of_tests, **_derived(self.guards, self.compared)}

    @cached_property
    def reach(self) -> tuple[str | None, WindowLength]:
        """Column of the window, and the length before an event that may end a match in which it may read.

        OVER aggregates read their own length before the window; with ranges, all use one clock.
        """
        assert self.window_length is not None
        of_let = () if self.let is None else (column.over_aggregates for column in self.let.columns)
        every = (each for each in (self.over_aggregates, *of_let) if each is not None)
        lengths = [reach.length for each in every for reach in each.reaches.values()]
        longest = max(lengths, default=None)
        if longest is None:
            return self.window_column, self.window_length
        if isinstance(self.window_length, np.float64):
            return self.window_column, np.float64((self.window_length + longest) * (1 + 2.0**-40))
        return self.window_column, np.uint64(min(int(self.window_length) + int(longest), 2**64 - 1))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns and fields that the query reads for any output."""
        compared = () if self.compared is None else self.compared.names
        let_columns = frozenset() if self.let is None else self.let.names
        read = dict.fromkeys([*self.guards.columns, *self.columns_on_host, *compared])
        return tuple(name for name in read if name not in let_columns)

    @cached_property
    def attribute_schema(self) -> pa.Schema:
        """Schema of the `attributes`, without dictionaries.

        Raises
        ------
        QueryTypeError
            When an attribute in SELECT is missing, or two would have one name.
        """
        plan, schema = self.plan, self.full_schema
        if plan.attributes is None:
            types = dict(zip(schema.names, schema.types, strict=True))
            return pa.schema([(name, plain_type(types[name])) for name in self.attributes])
        named: dict[str, pa.DataType] = {}
        for name in plan.attributes:
            shown = dotted(name.name)
            if shown in named:
                raise QueryTypeError(f"the events would have two attributes {shown!r}", plan.text, *name.span)
            named[shown] = plain_type(column_type(schema, name.name, plan.text, name.span))
        return pa.schema(list(named.items()))

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """Columns and fields of the events in "events"."""
        if self.plan.attributes is not None:
            return tuple(name.name for name in self.plan.attributes)
        added = {self.position_column, ROW_COLUMN}
        if self.plan.time_column is not None and is_field_column(self.schema, self.plan.time_column):
            added.add(self.plan.time_column)
        return tuple(dict.fromkeys(name for name in self.schema.names if name not in added))

    @cached_property
    def measures(self) -> BoundMeasures | None:
        """Measures of SELECT, with HAVING, or None if there are none.

        Raises
        ------
        QueryTypeError
            When they cannot be bound to the schema.
        """
        plan = self.plan
        has_measures = plan.measures.measures or plan.having is not None
        return bind_measures(plan.measures, self.full_schema, plan.text) if has_measures else None

    @cached_property
    def weights(self) -> BoundWeights | None:
        """Weights of events, with which the aggregate lists no matches, or None if it lists them."""
        plan = self.plan
        if plan.aggregate is None or not isinstance(plan.weights, Linear):
            return None
        return bind_weights(plan.weights, plan.aggregate, self.full_schema)

    def columns_for(self, output: type[Output]) -> list[str]:
        """Return the columns that an output needs, or their fields if it needs only those.

        Raises
        ------
        QueryTypeError
            When the output lists the attributes of events, and two columns have one name.
        """
        listed = self._retained_names(output)
        for name in listed:
            column_type(self.full_schema, name, None, None)
        let_columns = frozenset() if self.let is None else self.let.names
        return narrowest(self.schema, {*self.columns, *listed} - let_columns)

    def _retained_names(self, output: type[Output]) -> tuple[str, ...]:
        events = self.attributes if output.keeps_events else ()
        heads = [each.attribute for each in self.plan.head or ()] if output.retains(self.plan.head) else []
        measured = self.plan.measures.attributes if self._measures(output) else ()
        return tuple(dict.fromkeys([*events, *heads, *measured]))

    def _measures(self, output: type[Output]) -> bool:
        """Return True if an output shows the measures, or HAVING chooses among its rows."""
        return output.measured or (output.may_choose and self.plan.having is not None)

    def retained(self, output: type[Output]) -> tuple[pa.Schema, tuple[str, ...]]:
        """Return what an output retains of events: names of attributes in the results, and columns or fields."""
        names = self._retained_names(output)
        shown = self.attribute_schema if output.keeps_events else pa.schema([])
        others = [
            pa.field(name, plain_type(column_type(self.full_schema, name, None, None))) for name in names[len(shown) :]
        ]
        return pa.schema([*shown, *others]) if others else shown, names

    def result_columns(self, output: type[Output]) -> Columns:
        """Return the columns that results may have."""
        shows_keys = self.plan.step_keys is None or not output.by_starts
        keys = tuple(zip(self.keys.names, self.keys.types, strict=True)) if shows_keys else ()
        retained = self.retained(output)[0] if output.retains(self.plan.head, self.plan.having) else pa.schema([])
        names = self._retained_names(output)
        heads = tuple(
            Head(
                each.name, each.atom.name, names.index(each.attribute), retained.field(names.index(each.attribute)).type
            )
            for each in self.plan.head or ()
            if retained.names
        )
        attributes = self.attribute_schema if output.keeps_events else None
        return Columns(
            self.plan.variables,
            self.time_type,
            keys,
            attributes,
            heads,
            self.plan.single,
            self.measures if self._measures(output) else None,
            names,
            self.plan.aggregate,
            self.names_streams,
        )

    @property
    def names_streams(self) -> bool:
        """True if events have the number of their row in one of several streams."""
        return {ROW_COLUMN, STREAM_COLUMN} <= set(self.schema.names)

    def covers(self, schema: pa.Schema) -> bool:
        """Return True if batches of another schema can be evaluated with this binding."""
        return all(attribute_type(schema, name) == data_type for name, data_type in self._column_types.items())

    @cached_property
    def _column_types(self) -> dict[str, pa.DataType | None]:
        return {name: attribute_type(self.schema, name) for name in self.columns}


def bind(plan: LogicalPlan, schema: pa.Schema, position_column: str | None = None) -> Binding:
    """Bind a plan to a schema.

    Raises
    ------
    QueryTypeError
        When the query cannot be bound to the schema.
    EventsError
        When the query names several streams, and the events have no column of streams.
    """
    stream_column = STREAM_COLUMN if plan.several_streams else None
    if stream_column is not None and stream_column not in schema.names:
        raise EventsError(
            f"the query names the streams {', '.join(plan.streams)}, and the events do not say which is theirs\n"
            "hint: give a mapping from stream name to events (NAME=PATH on the command line), or push each batch "
            "with its stream's name"
        )
    let = bind_let(plan, schema)
    full = schema if let is None else let.schema
    guards = BoundGuards(plan.guards, full, plan.type_column, plan.text, stream_column)
    windows = _bind_windows(plan, full)
    of_steps = plan.step_keys
    keys = PartitionKeys(plan.partition, full, plan.text) if of_steps is None else KeysByStep(of_steps, full, plan.text)
    position_columns = _position_columns(schema, position_column)
    joins = _bind_joins(plan, full, windows.lasting)
    derived = _derived(guards, joins.compared)
    over_aggregates = bind_over_aggregates(aggregates_of(derived), plan, full)
    own = (each.later.name for each in plan.distances if each.within.kind == "attribute")
    spaced = None if windows.every is None else windows.every[0]
    named = (
        plan.time_column,
        windows.column,
        spaced,
        *own,
        *(() if over_aggregates is None else over_aggregates.clocks),
        *(() if let is None else let.clocks),
    )
    clocks = tuple(dict.fromkeys(name for name in named if name is not None))
    read = [*read_by(derived), *(() if over_aggregates is None else over_aggregates.read)]
    if joins.compared is not None:
        read += joins.compared.names_on_host
    if let is not None:
        read += let.read
    return Binding(
        plan=plan,
        schema=schema,
        position_column=position_column,
        guards=guards,
        time_type=windows.time_type,
        window_column=windows.column,
        window_length=windows.length,
        lasting=windows.lasting,
        gap=windows.gap,
        every=windows.every,
        keys=keys,
        clocks=clocks,
        columns_on_host=tuple(dict.fromkeys([*clocks, *keys.columns, *position_columns, *read])),
        compared=joins.compared,
        joins=joins.graph,
        parallel=joins.parallel,
        recent=joins.recent,
        spacing=windows.spacing,
        over_aggregates=over_aggregates,
        let=let,
    )


class _Windows(NamedTuple):
    """The lengths of a plan in units of their columns; attributes as of `Binding`."""

    time_type: pa.DataType | None
    column: str | None
    length: WindowLength | None
    lasting: WindowLength | None
    gap: WindowLength | None
    every: tuple[str | None, WindowLength] | None
    spacing: Spacings | None


def _bind_windows(plan: LogicalPlan, schema: pa.Schema) -> _Windows:
    """Measure the lengths of a plan in the columns of a schema."""
    time_type = None if plan.time_column is None else time_column_type(schema, plan.time_column)
    if plan.time_unit is not None and (time_type is None or not pa.types.is_integer(time_type)):
        raise QueryTypeError(
            f"time_unit={plan.time_unit!r} is the unit of an integer time column, and "
            + ("none is named" if time_type is None else f"{plan.time_column!r} is {time_type}")
        )

    def measured(within: Within) -> tuple[str | None, WindowLength]:
        return window_length(within, schema, plan.time_column, plan.time_unit, plan.text)

    column, length = (None, None) if plan.within is None else measured(plan.within)
    step = plan.syntax.each_step
    has_gap = step is not None and plan.within is not None and same_clock(step, plan.within)
    return _Windows(
        time_type,
        column,
        length,
        lasting=None if plan.lasts is None else measured(plan.lasts)[1],
        gap=measured(step)[1] if has_gap and step is not None else None,
        every=None if plan.every is None else measured(plan.every.within),
        spacing=None if plan.chain is None else spacings_of(plan.chain, measured),
    )


class _Joins(NamedTuple):
    """The join predicates of a plan over a schema, and the tables of its evaluation; attributes as of `Binding`."""

    compared: BoundRelations | None = None
    graph: JoinTables | None = None
    parallel: ParallelTables | None = None
    recent: RecentTables | None = None


def _bind_joins(plan: LogicalPlan, schema: pa.Schema, lasting: WindowLength | None) -> _Joins:
    """Bind the join predicates of a plan to a schema."""
    if plan.parallel is not None:
        values = [[member.expression for member in members] for members in plan.parallel.variables]
        compared, columns = bind_keys(values, plan.parallel.predicates, schema, plan.text)
        return _Joins(compared, parallel=ParallelTables(plan.parallel, compared, columns))
    if plan.recent is not None:
        pattern = plan.recent
        compared, columns = bind_keys(pattern.key_columns, pattern.equalities, schema, plan.text, pattern.predicates)
        tables = RecentTables if pattern.graph is None else GraphTables
        return _Joins(compared, recent=tables(pattern, compared, columns, lasting))
    if plan.graph is not None:
        relations = [relation.predicate for relation in plan.graph.relations]
        join_plan = JoinPlan(plan.graph, bind_relations(relations, schema, plan.text), bool(plan.partition))
        return _Joins(join_plan.bound, graph=JoinTables(join_plan))
    return _Joins()


def _position_columns(schema: pa.Schema, position_column: str | None) -> list[str]:
    """Return the columns of positions of events, which are checked, and the column of their streams."""
    positions = [] if position_column is None else [position_column]
    positions += [ROW_COLUMN] if ROW_COLUMN in schema.names else []
    for name in positions:
        if column_type(schema, name, None, None) != pa.int64():
            raise QueryTypeError(f"the column of positions {name!r} must be int64, and is {schema.field(name).type}")
    names_streams = {ROW_COLUMN, STREAM_COLUMN} <= set(schema.names)
    return [*positions, STREAM_COLUMN] if names_streams else positions


def _derived(guards: BoundGuards, compared: BoundRelations | None) -> dict[str, DerivedColumn]:
    """Return the derived columns of the tests of single events, and of those between events."""
    return {**guards.derived, **({} if compared is None else compared.binder.derived)}


class Bindings:
    """Cache of the last bindings of a query, and of its last physical plan; thread-safe.

    Parameters
    ----------
    plan
    """

    def __init__(self, plan: LogicalPlan) -> None:
        self.plan = plan
        self._last: tuple[Binding, ...] = ()  # to the schema of the source, and to that of the columns that are read
        self._physical: tuple[tuple[LogicalPlan, type[Output], bool], PhysicalPlan] | None = None
        self._lock = threading.Lock()

    def physical(self, plan: LogicalPlan, output: type[Output], shard: bool) -> PhysicalPlan:
        """Return the physical plan of a plan of the query, as `physical_plan` makes it."""
        last = self._physical
        if last is None or last[0][0] is not plan or last[0][1:] != (output, shard):
            last = self._physical = (plan, output, shard), physical_plan(plan, output, shard=shard)
        return last[1]

    def bind(self, schema: pa.Schema, position_column: str | None = None) -> Binding:
        """Return the binding to a schema, as `bind` does."""
        with self._lock:
            for cached in self._last:
                if cached.position_column == position_column and cached.schema.equals(schema, check_metadata=True):
                    return cached
            binding = self._bind_anew(schema, position_column)
            self._last = binding, *self._last[:1]
            return binding

    def plan_over(self, schema: pa.Schema) -> LogicalPlan:
        """Return the plan over events of a schema: here it is the same for all."""
        return self.plan

    def _bind_anew(self, schema: pa.Schema, position_column: str | None) -> Binding:
        return bind(self.plan_over(schema), schema, position_column)
