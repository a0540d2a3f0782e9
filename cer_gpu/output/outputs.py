"""Outputs: the forms of matches as Arrow rows, one class for each.

A new output is one more class in `OUTPUTS`: its schema, its rows, and its requirements on an evaluation.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Bools
from cer_gpu.backend.compaction import gather_marked
from cer_gpu.errors import QueryTypeError
from cer_gpu.output.form import Columns, Fields, Output, RowChoice
from cer_gpu.output.leaves import Values
from cer_gpu.output.reductions import Reduction, reduced_type
from cer_gpu.output.retention import Retained
from cer_gpu.output.weights import weighed_values
from cer_gpu.runtime.counts import CountBuffers, WeighedBuffers
from cer_gpu.runtime.matches import MatchBuffers
from cer_gpu.runtime.progress.buffers import STOPPED, ProgressBuffers
from cer_gpu.runtime.reading.symbols import EventBuffers

_FUNNEL_POSITIONS = pa.list_(pa.int64())


class ProgressOutput(Output):
    """A row for each event that satisfies the first step: the steps reached, at the earliest events, and the stop.

    `stopped` is one of `STOPPED`: "complete", "window", "barred" by the event `barred_by`, or "end" of the events.
    """

    name = "funnel"
    row = "start"
    row_each = False
    positions: ClassVar[tuple[str, ...]] = ("start", "positions", "barred_by")
    by_starts = True

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        time_type = columns.time_type
        times: Fields = [] if time_type is None else [("times", pa.list_(time_type))]
        return [
            ("start", pa.int64()),
            *columns.keys,
            ("step", pa.int64()),
            ("positions", _FUNNEL_POSITIONS),
            *times,
            ("stopped", pa.string()),
            ("barred_by", pa.int64()),
        ]

    def rows(self, buffers: ProgressBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each start."""
        offsets = pa.array(buffers.offsets)
        columns = [
            pa.array(buffers.positions[buffers.offsets[:-1]]),
            *keys,
            pa.array(np.diff(buffers.offsets).astype(np.int64)),
            pa.ListArray.from_arrays(offsets, pa.array(buffers.positions)),
            *(pa.ListArray.from_arrays(offsets, times) for times in self._time_columns(buffers.times)),
            pa.array(STOPPED, pa.string()).take(pa.array(buffers.states)),
            pa.array(buffers.barring, mask=buffers.barring < 0),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


PARTITION, STATE_CODE, CLOCK = " partition", " state", " clock"
"""Columns besides the keys, with names that no key is likely to have."""


def without_states(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return only the positions, times and keys of rows."""
    return rows.select([name for name in rows.schema.names if name not in (PARTITION, STATE_CODE, CLOCK)])


class EventsRead(Output):
    """A row for each event that the runtime returns: its position, time and keys, and the state after it.

    It cannot be requested by name: `cer_gpu.planning.state_steps.with_symbols` returns the plans that use it.
    """

    name = "symbols"
    row = "event"
    row_each = False
    positions: ClassVar[tuple[str, ...]] = ("end",)
    each_event = True

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        times = [] if columns.time_type is None else [("end_time", columns.time_type)]
        own = [(PARTITION, pa.int32()), (STATE_CODE, pa.int64()), (CLOCK, pa.uint64())]
        return [("end", pa.int64()), *times, *columns.keys, *own]

    def rows(self, buffers: EventBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each event."""
        own = [pa.array(each) for each in (buffers.partitions, buffers.states, buffers.clocks)]
        columns = [pa.array(buffers.ends), *self._time_columns(buffers.times), *keys, *own]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


_POSITIONS = pa.list_(pa.int64())


class PositionsOutput(Output):
    """Start, end and positions of each match."""

    name = "positions"

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        fields: Fields = [("start", pa.int64()), ("end", pa.int64()), ("positions", _POSITIONS)]
        if columns.time_type is not None:
            fields += [("start_time", columns.time_type), ("end_time", columns.time_type)]
        return [*fields, *columns.keys, *((head.name, head.type) for head in columns.heads)]

    def rows(self, buffers: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each match."""
        offsets = pa.array(buffers.offsets)
        positions = pa.ListArray.from_arrays(offsets, pa.array(buffers.positions))
        columns = [*map(pa.array, buffers.spans), positions, *self._time_columns(*buffers.times), *keys]
        columns += [*self._heads(buffers), *self._beside(buffers, offsets)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _heads(self, buffers: MatchBuffers) -> list[pa.Array]:
        """Return the columns of a head: in each match, each atom has one event."""
        columns = []
        memory = np.empty(len(buffers.positions) + 1, np.int64)
        for head in self._columns.heads:
            assert self._retained is not None
            holds = np.array([head.atom in label for label in self._labels])
            n = gather_marked(buffers.positions, buffers.marks, holds, memory)
            columns.append(self._retained.take_attribute(memory[:n], head.attribute))
        return columns

    def _beside(self, buffers: MatchBuffers, offsets: pa.Array) -> list[pa.Array]:
        """Return the columns that follow those common to all listed matches."""
        return []


class Valuations(PositionsOutput):
    """`PositionsOutput` of each valuation that satisfies HAVING."""

    row_each = False
    labelled = True
    may_choose = True

    def __init__(self, columns: Columns, labels: list[frozenset[str]], retained: Retained | None = None) -> None:
        super().__init__(columns, labels, retained)
        self.n_matches: int
        self.n_matches = self._n_last = 0

    def rows(self, buffers: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return the rows of the valuations that satisfy HAVING."""
        measures = self._columns.measures
        if measures is not None and measures.chooses:
            values = self._valuation_values(buffers)
            mask = self._choose_rows(buffers, measures.having_mask(measures.columns(values), values))
            buffers, keys = buffers.at(mask), [key.filter(pa.array(mask)) for key in keys]
        rows = self._valuation_rows(buffers, keys)
        self._count_results(len(buffers))
        return rows

    def n_of(self, buffers: MatchBuffers) -> int:
        """Return the number of valuations that satisfy HAVING."""
        return self._n_last

    def snapshot(self) -> list[int]:
        """Return the number of valuations so far, and the state of their selection."""
        return [self.n_matches, *(self.choice.snapshot() if isinstance(self.choice, RowChoice) else [])]

    def restore(self, state: list[int]) -> None:
        """Continue from a snapshot."""
        self.n_matches = state[0]
        if isinstance(self.choice, RowChoice):
            self.choice.restore(state[1:])

    def _valuation_rows(self, buffers: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        return super().rows(buffers, keys)

    def _valuation_values(self, buffers: MatchBuffers) -> Values:
        return Values(buffers, self._labels, self._retained, self._columns.retained)

    def _choose_rows(self, buffers: MatchBuffers, mask: Bools) -> Bools:
        return mask if self.choice is None else self.choice.among(mask, buffers.ends)

    def _count_results(self, n: int) -> None:
        self._n_last = n
        self.n_matches += n


class BindingsOutput(Valuations):
    """`PositionsOutput`, and the positions of each variable: one row for each valuation.

    A variable that binds at most one event has its position, or NULL; others have lists.
    """

    name = "bindings"
    row = "row of bindings"

    def __init__(self, columns: Columns, labels: list[frozenset[str]], retained: Retained | None = None) -> None:
        super().__init__(columns, labels, retained)
        self._holds = [np.array([name in label for label in labels]) for name in columns.variables]

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        return [
            *super()._result_fields(columns),
            *((name, pa.int64() if name in columns.single else _POSITIONS) for name in columns.variables),
        ]

    @classmethod
    def _names_of_positions(cls, columns: Columns) -> tuple[str, ...]:
        return (*cls.positions, *columns.variables)

    def _beside(self, buffers: MatchBuffers, offsets: pa.Array) -> list[pa.Array]:
        columns = []
        for name, holds in zip(self._columns.variables, self._holds, strict=True):
            mask = holds[buffers.marks]
            before = np.concatenate([[0], np.cumsum(mask)]).astype(np.int32)[buffers.offsets]
            values = pa.array(buffers.positions[mask])
            if name not in self._columns.single:
                columns.append(pa.ListArray.from_arrays(pa.array(before), values))
            elif len(values) == len(buffers):
                columns.append(values)
            else:
                columns.append(values.take(pa.array(before[:-1], mask=before[1:] == before[:-1])))
        return columns


class EventsOutput(PositionsOutput):
    """`PositionsOutput`, and the events themselves, as structs of their attributes."""

    name = "events"
    keeps_events = True

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        fields = super()._result_fields(columns)
        if columns.attributes is not None:
            fields.append(("events", pa.list_(pa.struct(list(columns.attributes)))))
        return fields

    def _beside(self, buffers: MatchBuffers, offsets: pa.Array) -> list[pa.Array]:
        assert self._retained is not None
        assert self._columns.attributes is not None
        events = self._retained.take(buffers.positions)
        if self._columns.heads:  # columns retained only for heads are not attributes of the events
            fields = list(self._columns.attributes)
            events = pa.StructArray.from_arrays([events.field(i) for i in range(len(fields))], fields=fields)
        return [pa.ListArray.from_arrays(offsets, events)]


class MeasuresOutput(Valuations):
    """Start and end of each valuation that satisfies HAVING, and the measures of SELECT."""

    name = "measures"
    row = "row of measures"
    measured = True
    positions: ClassVar[tuple[str, ...]] = ("start", "end")

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        measures = () if columns.measures is None else columns.measures.fields
        spans = [field for field in super()._result_fields(columns) if field[0] != "positions"]
        return [*spans, *measures]

    def rows(self, buffers: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each valuation."""
        measures, values = self._columns.measures, self._valuation_values(buffers)
        assert measures is not None
        measured = measures.columns(values)
        columns = [*map(pa.array, buffers.spans), *self._time_columns(*buffers.times), *keys, *measured]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if measures.chooses:
            rows = rows.filter(pa.array(self._choose_rows(buffers, measures.having_mask(measured, values))))
        self._count_results(rows.num_rows)
        return rows


class RowsOutput(Valuations):
    """Long form: one row for each event and variable of a valuation, with the attributes of the event."""

    name = "rows"
    row = "row of an event"
    keeps_events = True
    positions: ClassVar[tuple[str, ...]] = ("position",)
    numbered = True

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        fields: Fields = [("match", pa.int64()), ("variable", pa.string()), ("position", pa.int64())]
        return [*fields, *((field.name, field.type) for field in columns.attributes or ())]

    def _valuation_rows(self, buffers: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return the rows of valuations, by position, and for one event in the order of the variables."""
        names = self._columns.variables
        holds = np.array([[name in label for name in names] for label in self._labels], np.bool_)
        entries, variables = np.nonzero(holds.reshape(len(self._labels), len(names))[buffers.marks])
        matches = np.repeat(np.arange(self.n_matches, self.n_matches + len(buffers)), np.diff(buffers.offsets))
        assert self._retained is not None
        assert self._columns.attributes is not None
        events = self._retained.take(buffers.positions[entries]).flatten()[: len(self._columns.attributes)]
        columns = [
            pa.array(matches[entries]),
            pa.array(names, pa.string()).take(pa.array(variables)),
            pa.array(buffers.positions[entries]),
        ]
        return pa.RecordBatch.from_arrays([*columns, *events], schema=self.schema)

    def first(self, rows: pa.RecordBatch, n: int, n_all: int) -> pa.RecordBatch:
        """Return the rows of the first `n` valuations, all rows of each."""
        last = self.n_matches - n_all + n
        return rows.slice(0, int(np.searchsorted(rows.column("match").to_numpy(), last)))


def _fields_at_ends(columns: Columns, *shown: tuple[str, pa.DataType]) -> Fields:
    """Return the columns of rows for ends: the position, the `shown` columns, its time and its keys."""
    times = [] if columns.time_type is None else [("end_time", columns.time_type)]
    return [("end", pa.int64()), *shown, *times, *columns.keys]


def _reduced_fields(columns: Columns) -> Fields:
    """Return the columns of "count" with an aggregate of an expression."""
    if columns.measures is None:
        return _fields_at_ends(columns)
    assert columns.aggregate is not None
    ((name, data_type),) = columns.measures.fields
    reduced = reduced_type(columns.aggregate.function, data_type)
    if reduced is None:
        raise QueryTypeError(f"{name} is of type {data_type}, which {columns.aggregate.function} does not take")
    return _fields_at_ends(columns, (name, reduced))


class Count(Output):
    """Number of matches that end at a position: one row for each position with any."""

    name = "count"
    row = "position"
    row_each = False
    positions: ClassVar[tuple[str, ...]] = ("end",)
    counted = True

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        name = "count" if columns.aggregate is None else columns.aggregate.name
        return _fields_at_ends(columns, (name, pa.int64()))

    def rows(self, buffers: CountBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each position that ends matches."""
        columns = [pa.array(buffers.ends), self._valuation_values(buffers), *self._time_columns(buffers.times), *keys]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _valuation_values(self, buffers: CountBuffers) -> pa.Array:
        return pa.array(buffers.counts)


class Weighed(Count):
    """`Count` with an aggregate of an expression over all matches of an end, without listing them."""

    measured = True
    weighed = True

    @classmethod
    def retains(cls, head: tuple[Any, ...] | None, having: object = None) -> bool:
        """Return False."""
        return False

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        return _reduced_fields(columns)

    def _valuation_values(self, buffers: CountBuffers) -> pa.Array:
        assert isinstance(buffers, WeighedBuffers)
        assert self._columns.aggregate is not None
        return weighed_values(buffers, self._columns.aggregate.function, self.schema.types[1])


class Aggregated(Valuations):
    """`Count` with an aggregate of an expression over all valuations of an end, which are listed but not stored."""

    name = "count"
    row = "position"
    measured = True
    positions: ClassVar[tuple[str, ...]] = ("end",)
    whole_ends = True

    def __init__(self, columns: Columns, labels: list[frozenset[str]], retained: Retained | None = None) -> None:
        super().__init__(columns, labels, retained)
        self._reduction: Reduction | None = None

    def reduce(self, shard: tuple[int, int] | None) -> None:
        """Start the reduction, for one shard of the ends."""
        assert self._columns.aggregate is not None
        self._reduction = Reduction(self._columns.aggregate.function, self.schema.types[1], shard)

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        return _reduced_fields(columns)

    def rows(self, buffers: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each end that is complete."""
        measures = self._columns.measures
        assert measures is not None
        assert self._reduction is not None
        (values,) = measures.columns(self._valuation_values(buffers))
        columns, names = (
            [pa.array(buffers.ends), *self._time_columns(buffers.times[1]), *keys],
            ["end", *self.schema.names[2:]],
        )
        shown = pa.RecordBatch.from_arrays(columns, names=names)
        self._count_results(len(buffers))
        return self._show_reduced(self._reduction.take(values, shown))

    def rest(self) -> pa.RecordBatch | None:
        """Return the row of the last end, after all its valuations."""
        assert self._reduction is not None
        last_end = self._reduction.rest()
        return None if last_end is None else self._show_reduced(last_end)

    def snapshot(self) -> list[int]:
        """Return the state that `restore` takes."""
        assert self._reduction is not None
        return [*super().snapshot(), *self._reduction.snapshot()]

    def restore(self, state: list[int]) -> None:
        """Continue from a snapshot."""
        assert self._reduction is not None
        super().restore(state[:1])
        self._reduction.restore(state[1:])

    def _show_reduced(self, reduced: pa.RecordBatch) -> pa.RecordBatch:
        end, *others = reduced.columns
        return pa.RecordBatch.from_arrays([end, others[-2], *others[:-2]], schema=self.schema)


class Ends(Output):
    """Positions that end matches: one row for each.

    Only one match of each end is searched for, and only its end is shown.
    """

    name = "ends"
    row = "end"
    row_each = False
    positions: ClassVar[tuple[str, ...]] = ("end",)
    most_at_an_end = 1

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        return _fields_at_ends(columns)

    def rows(self, buffers: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each position that ends matches."""
        columns = [pa.array(buffers.ends), *self._time_columns(buffers.times[1]), *keys]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


class CountedEnds(Count):
    """`Ends` of queries that depend on the number of matches of an end."""

    name = "ends"
    row = "end"
    most_at_an_end = 0

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        return _fields_at_ends(columns)

    def rows(self, buffers: CountBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each position that ends matches."""
        columns = [pa.array(buffers.ends), *self._time_columns(buffers.times), *keys]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def n_of(self, buffers: CountBuffers) -> int:
        """Return the number of ends."""
        return len(buffers)


OUTPUTS: dict[str, type[Output]] = {
    output.name: output
    for output in (
        PositionsOutput,
        BindingsOutput,
        EventsOutput,
        Count,
        Ends,
        MeasuresOutput,
        RowsOutput,
        ProgressOutput,
    )
}
"""The outputs by name."""
