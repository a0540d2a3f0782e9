"""The form of matches as Arrow rows: their columns, the protocol of outputs, and the selection of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Bools, Int64
from cer_gpu.columnar.clocks import times_to_arrow
from cer_gpu.errors import OptionError
from cer_gpu.output.bound_measures import BoundMeasures
from cer_gpu.output.reductions import Aggregation
from cer_gpu.output.retention import Retained


def part_of(shard: tuple[int, int] | None, n_before: int) -> slice:
    """Return the slice of the next rows that belong to a shard (k, n), given the number of rows before them."""
    if shard is None:
        return slice(None)
    part, n_parts = shard
    return slice((part - n_before) % n_parts, None, n_parts)


class Choosing(Protocol):
    """Selection of rows, which come in the order of their ends."""

    def among(self, mask: Bools, ends: Int64) -> Bools:
        """Return the mask of the selected rows, a subset of `mask`, given the end of each row."""


class RowChoice:
    """Selection of rows, which come in the order of their ends, by LIMIT and by shard.

    Parameters
    ----------
    limit
        Maximum number of rows at one end.
    shard
        (k, n): select shard k of n; None for all.
    """

    def __init__(self, limit: int, shard: tuple[int, int] | None) -> None:
        self._limit, self._shard = limit, shard
        self._end, self._n_at_end, self._n = -1, 0, 0

    def among(self, mask: Bools, ends: Int64) -> Bools:
        """Return the mask of the selected rows, a subset of `mask`, given the end of each row."""
        rows = np.flatnonzero(mask)
        if not len(rows):
            return mask
        own = ends[rows]
        if bool((own[1:] < own[:-1]).any()):  # each end is whole here
            order = np.argsort(own, kind="stable")
            own, places = own[order], rows[order]
        else:
            places = rows
        numbers = np.arange(len(rows))
        begins = np.concatenate([[True], own[1:] != own[:-1]])
        before = np.maximum.accumulate(np.where(begins, numbers, 0))
        numbers -= before
        if own[0] == self._end:
            numbers[before == 0] += self._n_at_end
        self._end, self._n_at_end = int(own[-1]), int(numbers[-1]) + 1
        rows = np.sort(places[numbers < self._limit])
        n_before, self._n = self._n, self._n + len(rows)
        rows = rows[part_of(self._shard, n_before)]
        chosen = np.zeros(len(mask), np.bool_)
        chosen[rows] = True
        return chosen

    def snapshot(self) -> list[int]:
        """Return the state that `restore` takes."""
        return [self._end, self._n_at_end, self._n]

    def restore(self, state: list[int]) -> None:
        """Continue from a snapshot."""
        self._end, self._n_at_end, self._n = state


Fields = list[tuple[str, pa.DataType]]
"""Names and types of columns."""


@dataclass(frozen=True)
class Head:
    """A column of the head of a conjunctive query: its name and type, and the atom and retained attribute it shows."""

    name: str
    atom: str
    attribute: int
    type: pa.DataType


@dataclass(frozen=True)
class Columns:
    """Columns that an output may have, for one query over one schema.

    Attributes
    ----------
    variables : tuple of str
        Variables that the query selects.
    time_type : pyarrow.DataType or None
        Type of the time column, or None if there is none, or no event has been seen.
    keys : tuple of (str, pyarrow.DataType)
        Keys of PARTITION BY; empty until an event has been seen.
    attributes : pyarrow.Schema or None
        Attributes of the events; None until one has been seen.
    heads : tuple of Head
    single : frozenset of str
        Variables that hold at most one event.
    measures : BoundMeasures or None
        None if the output needs none, and until an event has been seen.
    retained : tuple of str
        Attributes of events that are retained.
    aggregate : Aggregation or None
        Aggregate that "count" shows instead of the number of matches.
    streams : bool
        True if positions are rows of several streams, which the output names.
    """

    variables: tuple[str, ...]
    time_type: pa.DataType | None = None
    keys: tuple[tuple[str, pa.DataType], ...] = ()
    attributes: pa.Schema | None = None
    heads: tuple[Head, ...] = ()
    single: frozenset[str] = frozenset()
    measures: BoundMeasures | None = None
    retained: tuple[str, ...] = ()
    aggregate: Aggregation | None = None
    streams: bool = False


class Output(ABC):
    """Form of the matches of a query as Arrow rows.

    Parameters
    ----------
    columns
    labels
        Variables of each mark (`Table.labels`).
    retained
        Events that matches may contain, if the output `keeps_events`.

    Attributes
    ----------
    schema : pyarrow.Schema
        Schema of `rows`.
    result_schema : pyarrow.Schema
        The same, with columns for the streams of positions if there are several streams.
    choice : Choosing or None
        Selection among the rows that satisfy HAVING.
    """

    choice: Choosing | None = None

    # ---- a row ----
    name: ClassVar[str]
    row: ClassVar[str] = "match"
    """Meaning of a row, as a noun in the singular."""
    row_each: ClassVar[bool] = True
    """True: a row is one match."""
    each_event: ClassVar[bool] = False
    """True: a row is an event, whether or not it satisfies a predicate."""
    by_starts: ClassVar[bool] = False
    """True: a row is an event that satisfies the first step of a chain, whether or not a match begins there."""
    positions: ClassVar[tuple[str, ...]] = ("start", "end", "positions")
    """Columns that hold positions, besides those of variables."""

    # ---- attributes ----
    keeps_events: ClassVar[bool] = False
    """True: attributes of events are retained for as long as a match may hold them."""
    measured: ClassVar[bool] = False
    """True: its columns are those of measures."""

    # ---- what the runtime computes ----
    counted: ClassVar[bool] = False
    """True: the runtime counts matches instead of listing them."""
    weighed: ClassVar[bool] = False
    """True: the runtime returns a count and a weighted sum for each end instead of matches."""
    most_at_an_end: ClassVar[int] = 0
    """Maximum number of matches listed at one end, or 0 for the limit of the query."""
    labelled: ClassVar[bool] = False
    """True: matches that differ only in the variables of their events are distinct."""
    may_choose: ClassVar[bool] = False
    """True: a row is one valuation, which HAVING may drop."""
    numbered: ClassVar[bool] = False
    """True: matches are numbered from the beginning of the stream."""
    whole_ends: ClassVar[bool] = False
    """True: a shard has all matches of an end, and `rest` returns the last end of a batch."""

    def __init__(self, columns: Columns, labels: list[frozenset[str]], retained: Retained | None = None) -> None:
        self.result_schema: pa.Schema = self.schema_of(columns)
        self.schema: pa.Schema = pa.schema(list(self.result_schema)[: len(self._result_fields(columns))])
        self._columns, self._labels, self._retained = columns, labels, retained

    @classmethod
    def is_labelled(cls, head: tuple[Any, ...] | None) -> bool:
        """Return True if the output is `labelled`, or the query has a head."""
        return cls.labelled or head is not None

    @classmethod
    def retains(cls, head: tuple[Any, ...] | None, having: object = None) -> bool:
        """Return True if attributes of events are retained for the output of a query with this head and HAVING."""
        if cls.keeps_events or cls.measured or (cls.may_choose and having is not None):
            return True
        return bool(head and not cls.counted and cls.most_at_an_end != 1)

    @classmethod
    def schema_of(cls, columns: Columns) -> pa.Schema:
        """Return the schema of the output, without columns whose types are not known yet.

        Raises
        ------
        OptionError
            When two columns would have one name.
        """
        fields = cls._result_fields(columns)
        if columns.streams:
            fields = [*fields, *cls._of_streams(columns)]
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
        """Indices of the columns that hold positions, or lists of positions."""
        names = self._names_of_positions(self._columns)
        return [i for i, name in enumerate(self.schema.names) if name in names]

    @classmethod
    def _names_of_positions(cls, columns: Columns) -> tuple[str, ...]:
        return cls.positions

    @classmethod
    def _of_streams(cls, columns: Columns) -> Fields:
        """Return for each column of positions a column with their streams."""
        names, text = cls._names_of_positions(columns), pa.string()
        of_positions = [(name, kind) for name, kind in cls._result_fields(columns) if name in names]
        return [(f"{name}_stream", pa.list_(text) if pa.types.is_list(kind) else text) for name, kind in of_positions]

    @classmethod
    @abstractmethod
    def _result_fields(cls, columns: Columns) -> Fields:
        """Return the names and types of the columns, in order."""

    def _time_columns(self, *times: Int64) -> list[pa.Array]:
        """Return times as columns, or no columns if the events have no time column."""
        time_type = self._columns.time_type
        return [] if time_type is None else [times_to_arrow(each, time_type) for each in times]

    @abstractmethod
    def rows(self, buffers: Any, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return the rows for a buffer of a runtime.

        Parameters
        ----------
        buffers : MatchBuffers, or CountBuffers if `counted`, or ProgressBuffers if `by_starts`
        keys
            Keys of PARTITION BY of the events that end matches, or of the starts.
        """

    def n_of(self, buffers: Any) -> int:
        """Return the number of matches in the last rows, those of a buffer."""
        n: int = buffers.n_matches
        return n

    def first(self, rows: pa.RecordBatch, n: int, n_all: int) -> pa.RecordBatch:
        """Return the rows of the first `n` of the `n_all` matches that `rows` show."""
        return rows.slice(0, n)

    def reduce(self, shard: tuple[int, int] | None) -> None:
        """Start the reduction, for one shard of the ends; only for `whole_ends`."""
        raise NotImplementedError

    def rest(self) -> pa.RecordBatch | None:
        """Return the rows that remain after all buffers of a batch, or None if there are none."""
        return None

    def snapshot(self) -> list[int]:
        """Return the state that `restore` takes."""
        return []

    def restore(self, state: list[int]) -> None:
        """Continue from a snapshot."""
        assert not state
