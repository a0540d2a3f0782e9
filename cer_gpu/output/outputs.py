"""Outputs: the forms of the results as Arrow rows, one class for each.

A new output is one more class here, in `OUTPUTS`: its schema, its rows, and its demands on an evaluation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.clocks import times_to_arrow
from cer_gpu.errors import OptionError
from cer_gpu.output.retention import Retained
from cer_gpu.runtime.counts import CountBuffers
from cer_gpu.runtime.matches import MatchBuffers

_POSITIONS = pa.list_(pa.int64())
Fields = list[tuple[str, pa.DataType]]


@dataclass(frozen=True)
class Head:
    """A column of a conjunctive query's head: its name and type, the atom and the retained attribute that it shows."""

    name: str
    atom: str
    attribute: int
    type: pa.DataType


@dataclass(frozen=True)
class Columns:
    """Columns that results may have, for one query over one schema.

    Attributes
    ----------
    variables : tuple of str
        Variables that the query selects.
    time_type : pyarrow.DataType or None
        Type of the time column; None: there is none, or no event has been seen.
    keys : tuple of (str, pyarrow.DataType)
        Keys of PARTITION BY; empty while no event has been seen.
    attributes : pyarrow.Schema or None
        Attributes of the events; None while none has been seen.
    heads : tuple of Head
    """

    variables: tuple[str, ...]
    time_type: pa.DataType | None = None
    keys: tuple[tuple[str, pa.DataType], ...] = ()
    attributes: pa.Schema | None = None
    heads: tuple[Head, ...] = ()


class Output(ABC):
    """Form of the results.

    Parameters
    ----------
    columns
    labels
        Variables of each mark (`Table.labels`).
    retained
        Rows that complex events may hold, if the output `keeps_events`.

    Attributes
    ----------
    name : str
    row : str
        Meaning of a row, as a noun in the singular.
    counted : bool
        True: complex events are counted instead of listed.
    row_each : bool
        True: a row is one complex event.
    most_at_an_end : int
        Most complex events that are asked for at one end; 0: those that the query asks for.
    labelled : bool
        True: complex events that differ only in the variables of their events are different.
    keeps_events : bool
        True: attributes of events are retained for as long as a complex event may hold them.
    positions : tuple of str
        Columns of every such result that hold positions; subclasses may have others besides.
    schema : pyarrow.Schema
    """

    name: ClassVar[str]
    row: ClassVar[str] = "complex event"
    counted: ClassVar[bool] = False
    row_each: ClassVar[bool] = True
    most_at_an_end: ClassVar[int] = 0
    labelled: ClassVar[bool] = False
    keeps_events: ClassVar[bool] = False
    positions: ClassVar[tuple[str, ...]] = ("start", "end", "positions")

    def __init__(self, columns: Columns, labels: list[frozenset[str]], retained: Retained | None = None) -> None:
        self.schema = self.schema_of(columns)
        self._columns, self._labels, self._retained = columns, labels, retained

    @classmethod
    def is_labelled(cls, head: tuple[Any, ...] | None) -> bool:
        """Return True if it is `labelled`, or if the results are answers, as those of a query with a head are."""
        return cls.labelled or head is not None

    @classmethod
    def retains(cls, head: tuple[Any, ...] | None) -> bool:
        """Return True if attributes of events are retained for the results of a query with this head, or None."""
        return cls.keeps_events or bool(head and not cls.counted and cls.most_at_an_end != 1)

    @classmethod
    def schema_of(cls, columns: Columns) -> pa.Schema:
        """Return the schema of the results, without columns whose types are not known yet.

        Raises
        ------
        OptionError
            When two columns would have one name.
        """
        fields = cls._fields(columns)
        names = [name for name, _ in fields]
        for name in names:
            if names.count(name) > 1:
                raise OptionError(
                    f"the output {cls.name!r} would have two columns named {name!r}\n"
                    "hint: give the variable another name with AS, or begin the bracket of PARTITION BY with another "
                    "name"
                )
        return pa.schema(fields)

    @property
    def columns_of_positions(self) -> list[int]:
        """Numbers of the columns that hold positions, or lists of them."""
        return [i for i, name in enumerate(self.schema.names) if name in self.positions]

    @classmethod
    @abstractmethod
    def _fields(cls, columns: Columns) -> Fields:
        """Return names and types of the columns, in their order."""

    @abstractmethod
    def rows(self, found: Any, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return the rows for a buffer of a runtime.

        Parameters
        ----------
        found : MatchBuffers, or CountBuffers if `counted`
        keys
            Keys of PARTITION BY of the events that end complex events.
        """


class Positions(Output):
    """Start, end and kept positions of each complex event."""

    name = "positions"

    @classmethod
    def _fields(cls, columns: Columns) -> Fields:
        fields: Fields = [("start", pa.int64()), ("end", pa.int64()), ("positions", _POSITIONS)]
        if columns.time_type is not None:
            fields += [("start_time", columns.time_type), ("end_time", columns.time_type)]
        return [*fields, *columns.keys, *((head.name, head.type) for head in columns.heads)]

    def rows(self, found: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each complex event."""
        offsets, time_type = pa.array(found.offsets), self._columns.time_type
        columns: list[pa.Array] = [
            pa.array(found.spans[0]),
            pa.array(found.spans[1]),
            pa.ListArray.from_arrays(offsets, pa.array(found.positions)),
        ]
        if time_type is not None:
            columns += [times_to_arrow(found.times[k], time_type) for k in (0, 1)]
        columns += [*keys, *self._heads(found), *self._beside(found, offsets)]
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
        """Return the columns after those that all listed complex events have."""
        return []


class Bindings(Positions):
    """`Positions`, and the positions that each variable holds: one row for each valuation."""

    name = "bindings"
    row = "row of bindings"
    row_each = False
    labelled = True

    def __init__(self, columns: Columns, labels: list[frozenset[str]], retained: Retained | None = None) -> None:
        super().__init__(columns, labels, retained)
        self._holds = [np.array([name in held for held in labels]) for name in columns.variables]

    @classmethod
    def _fields(cls, columns: Columns) -> Fields:
        return [*super()._fields(columns), *((name, _POSITIONS) for name in columns.variables)]

    @property
    def columns_of_positions(self) -> list[int]:
        """Numbers of the columns that hold positions, or lists of them."""
        names = {*self.positions, *self._columns.variables}
        return [i for i, name in enumerate(self.schema.names) if name in names]

    def _beside(self, found: MatchBuffers, offsets: pa.Array) -> list[pa.Array]:
        columns = []
        for holds in self._holds:
            held = holds[found.marks]
            before = np.concatenate([[0], np.cumsum(held)]).astype(np.int32)
            columns.append(pa.ListArray.from_arrays(pa.array(before[found.offsets]), pa.array(found.positions[held])))
        return columns


class Events(Positions):
    """`Positions`, and the events themselves, as structs of their attributes."""

    name = "events"
    keeps_events = True

    @classmethod
    def _fields(cls, columns: Columns) -> Fields:
        fields = super()._fields(columns)
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


class Count(Output):
    """Number of complex events that end at a position: one row for each position with any."""

    name = "count"
    row = "position"
    row_each = False
    positions = ("end",)
    counted = True

    @classmethod
    def _fields(cls, columns: Columns) -> Fields:
        fields: Fields = [("end", pa.int64()), ("count", pa.int64())]
        if columns.time_type is not None:
            fields.append(("end_time", columns.time_type))
        return [*fields, *columns.keys]

    def rows(self, found: CountBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each position that ends complex events."""
        time_type = self._columns.time_type
        times = [] if time_type is None else [times_to_arrow(found.times, time_type)]
        columns = [pa.array(found.ends), pa.array(found.counts), *times, *keys]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


class Ends(Output):
    """Positions that end complex events: one row for each.

    One complex event of an end is looked for, whichever is found first, and only its end is shown.
    """

    name = "ends"
    row = "end"
    row_each = False
    positions = ("end",)
    most_at_an_end = 1

    @classmethod
    def _fields(cls, columns: Columns) -> Fields:
        fields: Fields = [("end", pa.int64())]
        if columns.time_type is not None:
            fields.append(("end_time", columns.time_type))
        return [*fields, *columns.keys]

    def rows(self, found: MatchBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each position that ends complex events."""
        time_type = self._columns.time_type
        times = [] if time_type is None else [times_to_arrow(found.times[1], time_type)]
        return pa.RecordBatch.from_arrays([pa.array(found.ends), *times, *keys], schema=self.schema)


OUTPUTS: dict[str, type[Output]] = {made.name: made for made in (Positions, Bindings, Events, Count, Ends)}
"""The outputs by name."""
