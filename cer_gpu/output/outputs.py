"""Outputs: the forms of the results as Arrow rows, one class for each.

A new output is one more class, in `OUTPUTS`: its schema, its rows, and its demands on an evaluation.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Bools
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
    """A row for each event that satisfies the first step: the steps reached, at the earliest events, and its stop.

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

    def rows(self, found: ProgressBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each start."""
        offsets = pa.array(found.offsets)
        columns = [
            pa.array(found.positions[found.offsets[:-1]]),
            *keys,
            pa.array(np.diff(found.offsets).astype(np.int64)),
            pa.ListArray.from_arrays(offsets, pa.array(found.positions)),
            *(pa.ListArray.from_arrays(offsets, times) for times in self._time_columns(found.times)),
            pa.array(STOPPED, pa.string()).take(pa.array(found.states)),
            pa.array(found.barring, mask=found.barring < 0),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


PARTITION, STATE_CODE, CLOCK = " partition", " state", " clock"
"""Columns beside the keys, by names that no key is likely to have."""


def without_states(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the positions, times and keys of rows alone."""
    return rows.select([name for name in rows.schema.names if name not in (PARTITION, STATE_CODE, CLOCK)])


class EventsRead(Output):
    """A row for each event that the taker of the runtime returns: its position, time and keys, and the state after it.

    No query is asked for it by name: `cer_gpu.planning.state_steps.with_symbols` makes the plans that have it.
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

    def rows(self, found: EventBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each event."""
        own = [pa.array(each) for each in (found.partitions, found.states, found.clocks)]
        columns = [pa.array(found.ends), *self._time_columns(found.times), *keys, *own]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


_POSITIONS = pa.list_(pa.int64())


class PositionsOutput(Output):
    """Start, end and kept positions of each match."""

    name = "positions"

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        fields: Fields = [("start", pa.int64()), ("end", pa.int64()), ("positions", _POSITIONS)]
        if columns.time_type is not None:
            fields += [("start_time", columns.time_type), ("end_time", columns.time_type)]
        return [*fields, *columns.keys, *((head.name, head.type) for head in columns.heads)]

    def rows(self, found: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each match."""
        offsets = pa.array(found.offsets)
        positions = pa.ListArray.from_arrays(offsets, pa.array(found.positions))
        columns = [*map(pa.array, found.spans), positions, *self._time_columns(*found.times), *keys]
        columns += [*self._heads(found), *self._beside(found, offsets)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _heads(self, found: MatchBuffers) -> list[pa.Array]:
        """Return the columns of a head: in each answer, each atom has one event."""
        columns = []
        for head in self._columns.heads:
            assert self._retained is not None
            holds = np.array([head.atom in held for held in self._labels])
            events = self._retained.take(found.positions[holds[found.marks]])
            columns.append(events.field(head.attribute))
        return columns

    def _beside(self, found: MatchBuffers, offsets: pa.Array) -> list[pa.Array]:
        """Return the columns after those that all listed matches have."""
        return []


class Valuations(PositionsOutput):
    """`PositionsOutput` of each valuation, those that HAVING keeps."""

    row_each = False
    labelled = True
    may_choose = True

    def __init__(self, columns: Columns, labels: list[frozenset[str]], retained: Retained | None = None) -> None:
        super().__init__(columns, labels, retained)
        self.n_matches: int
        self.n_matches = self._n_last = 0

    def rows(self, found: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return the rows of the valuations that HAVING keeps."""
        measures = self._columns.measures
        if measures is not None and measures.chooses:
            values = self._valuation_values(found)
            kept = self._choose_rows(found, measures.kept(measures.columns(values), values))
            found, keys = found.at(kept), [key.filter(pa.array(kept)) for key in keys]
        rows = self._valuation_rows(found, keys)
        self._count_results(len(found))
        return rows

    def n_of(self, found: MatchBuffers) -> int:
        """Return the number of valuations that HAVING keeps."""
        return self._n_last

    def snapshot(self) -> list[int]:
        """Return the number of valuations so far, and the state of the choice among them."""
        return [self.n_matches, *(self.choice.snapshot() if isinstance(self.choice, RowChoice) else [])]

    def restore(self, state: list[int]) -> None:
        """Go on from a snapshot."""
        self.n_matches = state[0]
        if isinstance(self.choice, RowChoice):
            self.choice.restore(state[1:])

    def _valuation_rows(self, found: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        return super().rows(found, keys)

    def _valuation_values(self, found: MatchBuffers) -> Values:
        return Values(found, self._labels, self._retained, self._columns.retained)

    def _choose_rows(self, found: MatchBuffers, kept: Bools) -> Bools:
        return kept if self.choice is None else self.choice.among(kept, found.ends)

    def _count_results(self, n: int) -> None:
        self._n_last = n
        self.n_matches += n


class BindingsOutput(Valuations):
    """`PositionsOutput`, and the positions that each variable holds: one row for each valuation.

    A variable that holds at most one event has its position, or NULL; others have lists.
    """

    name = "bindings"
    row = "row of bindings"

    def __init__(self, columns: Columns, labels: list[frozenset[str]], retained: Retained | None = None) -> None:
        super().__init__(columns, labels, retained)
        self._holds = [np.array([name in held for held in labels]) for name in columns.variables]

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        return [
            *super()._result_fields(columns),
            *((name, pa.int64() if name in columns.single else _POSITIONS) for name in columns.variables),
        ]

    @classmethod
    def _names_of_positions(cls, columns: Columns) -> tuple[str, ...]:
        return (*cls.positions, *columns.variables)

    def _beside(self, found: MatchBuffers, offsets: pa.Array) -> list[pa.Array]:
        columns = []
        for name, holds in zip(self._columns.variables, self._holds, strict=True):
            held = holds[found.marks]
            before = np.concatenate([[0], np.cumsum(held)]).astype(np.int32)[found.offsets]
            values = pa.array(found.positions[held])
            if name not in self._columns.single:
                columns.append(pa.ListArray.from_arrays(pa.array(before), values))
            elif len(values) == len(found):
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

    def _beside(self, found: MatchBuffers, offsets: pa.Array) -> list[pa.Array]:
        assert self._retained is not None
        assert self._columns.attributes is not None
        events = self._retained.take(found.positions)
        if self._columns.heads:  # what they alone show is no attribute of the events
            fields = list(self._columns.attributes)
            events = pa.StructArray.from_arrays([events.field(i) for i in range(len(fields))], fields=fields)
        return [pa.ListArray.from_arrays(offsets, events)]


class MeasuresOutput(Valuations):
    """Start and end of each valuation that HAVING keeps, and the measures of SELECT."""

    name = "measures"
    row = "row of measures"
    measured = True
    positions: ClassVar[tuple[str, ...]] = ("start", "end")

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        measures = () if columns.measures is None else columns.measures.fields
        spans = [field for field in super()._result_fields(columns) if field[0] != "positions"]
        return [*spans, *measures]

    def rows(self, found: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each valuation."""
        measures, values = self._columns.measures, self._valuation_values(found)
        assert measures is not None
        measured = measures.columns(values)
        columns = [*map(pa.array, found.spans), *self._time_columns(*found.times), *keys, *measured]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if measures.chooses:
            rows = rows.filter(pa.array(self._choose_rows(found, measures.kept(measured, values))))
        self._count_results(rows.num_rows)
        return rows


class RowsOutput(Valuations):
    """Long form: one row for each event of a valuation and variable that holds it, with the attributes of the event."""

    name = "rows"
    row = "row of an event"
    keeps_events = True
    positions: ClassVar[tuple[str, ...]] = ("position",)
    numbered = True

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        fields: Fields = [("match", pa.int64()), ("variable", pa.string()), ("position", pa.int64())]
        return [*fields, *((field.name, field.type) for field in columns.attributes or ())]

    def _valuation_rows(self, found: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return the rows of valuations, by position, and for one event in the order of the variables."""
        names = self._columns.variables
        holds = np.array([[name in held for name in names] for held in self._labels], np.bool_)
        entries, variables = np.nonzero(holds.reshape(len(self._labels), len(names))[found.marks])
        matches = np.repeat(np.arange(self.n_matches, self.n_matches + len(found)), np.diff(found.offsets))
        assert self._retained is not None
        assert self._columns.attributes is not None
        events = self._retained.take(found.positions[entries]).flatten()[: len(self._columns.attributes)]
        columns = [
            pa.array(matches[entries]),
            pa.array(names, pa.string()).take(pa.array(variables)),
            pa.array(found.positions[entries]),
        ]
        return pa.RecordBatch.from_arrays([*columns, *events], schema=self.schema)

    def first(self, rows: pa.RecordBatch, n: int, n_all: int) -> pa.RecordBatch:
        """Return the rows of the first `n` valuations, all rows of each."""
        last = self.n_matches - n_all + n
        return rows.slice(0, int(np.searchsorted(rows.column("match").to_numpy(), last)))


def _fields_at_ends(columns: Columns, *shown: tuple[str, pa.DataType]) -> Fields:
    """Return the columns of rows for ends: the position, what is shown of it, its time and its keys."""
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

    def rows(self, found: CountBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each position that ends matches."""
        columns = [pa.array(found.ends), self._valuation_values(found), *self._time_columns(found.times), *keys]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _valuation_values(self, found: CountBuffers) -> pa.Array:
        return pa.array(found.counts)


class Weighed(Count):
    """`Count` with an aggregate of an expression over all matches of an end, none of which is listed."""

    measured = True
    weighed = True

    @classmethod
    def retains(cls, head: tuple[Any, ...] | None, having: object = None) -> bool:
        """Return False."""
        return False

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        return _reduced_fields(columns)

    def _valuation_values(self, found: CountBuffers) -> pa.Array:
        assert isinstance(found, WeighedBuffers)
        assert self._columns.aggregate is not None
        return weighed_values(found, self._columns.aggregate.function, self.schema.types[1])


class Aggregated(Valuations):
    """`Count` with an aggregate of an expression over all valuations of an end: all are listed, none is kept."""

    name = "count"
    row = "position"
    measured = True
    positions: ClassVar[tuple[str, ...]] = ("end",)
    whole_ends = True

    def __init__(self, columns: Columns, labels: list[frozenset[str]], retained: Retained | None = None) -> None:
        super().__init__(columns, labels, retained)
        self._reduction: Reduction | None = None

    def reduce(self, shard: tuple[int, int] | None) -> None:
        """Begin, for one share of the ends."""
        assert self._columns.aggregate is not None
        self._reduction = Reduction(self._columns.aggregate.function, self.schema.types[1], shard)

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        return _reduced_fields(columns)

    def rows(self, found: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each end of which no more comes."""
        measures = self._columns.measures
        assert measures is not None
        assert self._reduction is not None
        (values,) = measures.columns(self._valuation_values(found))
        columns, names = (
            [pa.array(found.ends), *self._time_columns(found.times[1]), *keys],
            ["end", *self.schema.names[2:]],
        )
        shown = pa.RecordBatch.from_arrays(columns, names=names)
        self._count_results(len(found))
        return self._show_reduced(self._reduction.take(values, shown))

    def rest(self) -> pa.RecordBatch | None:
        """Return the row of the last end, once all its valuations were given."""
        assert self._reduction is not None
        found = self._reduction.rest()
        return None if found is None else self._show_reduced(found)

    def snapshot(self) -> list[int]:
        """Return the state from which `restore` goes on."""
        assert self._reduction is not None
        return [*super().snapshot(), *self._reduction.snapshot()]

    def restore(self, state: list[int]) -> None:
        """Go on from a snapshot."""
        assert self._reduction is not None
        super().restore(state[:1])
        self._reduction.restore(state[1:])

    def _show_reduced(self, found: pa.RecordBatch) -> pa.RecordBatch:
        end, *others = found.columns
        return pa.RecordBatch.from_arrays([end, others[-2], *others[:-2]], schema=self.schema)


class Ends(Output):
    """Positions that end matches: one row for each.

    One match of an end is looked for, whichever is found first, and only its end is shown.
    """

    name = "ends"
    row = "end"
    row_each = False
    positions: ClassVar[tuple[str, ...]] = ("end",)
    most_at_an_end = 1

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        return _fields_at_ends(columns)

    def rows(self, found: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each position that ends matches."""
        columns = [pa.array(found.ends), *self._time_columns(found.times[1]), *keys]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


class CountedEnds(Count):
    """`Ends`, where it matters how many matches each has."""

    name = "ends"
    row = "end"
    most_at_an_end = 0

    @classmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        return _fields_at_ends(columns)

    def rows(self, found: CountBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each position that ends matches."""
        columns = [pa.array(found.ends), *self._time_columns(found.times), *keys]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def n_of(self, found: CountBuffers) -> int:
        """Return the number of ends."""
        return len(found)


OUTPUTS: dict[str, type[Output]] = {
    made.name: made
    for made in (
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
