"""Leaves of measures over the matches of one buffer: attributes of events, and aggregates, by segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Array, Bools, Int32, Int64
from cer_gpu.backend.aggregates.segments import (
    Segments,
    count_bound,
    extreme_bound,
    find_bound_row,
    gather_bound,
    sum_bound,
)
from cer_gpu.backend.compaction import gather
from cer_gpu.columnar.columns import BOOLEAN, DECIMAL, FLOAT, INTEGER, NOTHING, TEMPORAL, kind_of, numbers_of, validity
from cer_gpu.columnar.memory import read_only
from cer_gpu.errors import EventsError
from cer_gpu.output.retention import Retained
from cer_gpu.runtime.matches import MatchBuffers

FIRST_EVENT, LAST_EVENT = "FIRST", "LAST"

_OF_ONE = ("SUM", "AVG", "MIN", "MAX")
"""Aggregates that equal the value if there is exactly one."""

_MAX_IN_LISTS = 2**31 - 1
_NO_NULL = np.empty(0, np.bool_)
"""Validity of values without NULL."""
_INTEGERS, _FLOATS = np.array([-(2**63), 2**63 - 1]), np.array([-np.inf, np.inf])
"""Least and greatest sums."""
_NO_ROWS, _NO_FIRSTS = np.empty(0, np.int32), np.empty(0, np.int64)

_SPARSE = 4
"""Maximum size of a lookup table per position that occurs; beyond that, positions are sorted."""


@dataclass(frozen=True)
class MeasureLeaf:
    """Leaf of a measure.

    Attributes
    ----------
    function : str
        "FIRST", "LAST", "COUNT", "SUM", "AVG", "MIN", "MAX" or "LIST".
    variable : str or None
        None for all events of a match.
    attribute : str or None
        None for COUNT.
    type : pyarrow.DataType
    """

    function: str
    variable: str | None
    attribute: str | None
    type: pa.DataType

    def __str__(self) -> str:
        """Return the leaf in the syntax of a query."""
        name = self.variable or "*"
        return f"{self.function}({name if self.attribute is None else f'{name}.{self.attribute}'})"


@dataclass(frozen=True)
class VariableRows:
    """Rows bound to a variable, and their aggregates.

    Attributes
    ----------
    segments : Segments
    each : bool
        True: an aggregate has a value for each entry of a segment, over the entries up to it.
    """

    segments: Segments
    each: bool = False

    def _empty_array(self, dtype: npt.DTypeLike) -> Array:
        return np.empty(len(self.segments.marks) if self.each else len(self.segments.offsets) - 1, dtype)

    def count(self, valid: Bools = _NO_NULL) -> Int64:
        """Return the number of rows that are not NULL."""
        counts = self._empty_array(np.int64)
        count_bound(tuple(self.segments), valid, self.each, counts)
        return counts

    def find(self, *, first: bool, nth: int = 0) -> Array:
        """Return the `nth` row from the first or from the last one, or -1 if there is none."""
        rows = self._empty_array(self.segments.rows.dtype)
        find_bound_row(tuple(self.segments), first, nth, self.each, rows)
        return rows

    def extreme(self, function: str, ranks: Array, valid: Bools) -> Array:
        """Return the row with the least ("MIN") or greatest ("MAX") value, the first of equals, or -1 if none."""
        rows = self._empty_array(self.segments.rows.dtype)
        extreme_bound(tuple(self.segments), ranks, valid, 1 if function == "MAX" else -1, self.each, rows)
        return rows

    def summed(self, function: str, values: Array, valid: Bools, data_type: pa.DataType) -> pa.Array | int:
        """Return the sums ("SUM") or averages ("AVG") of int64 or float64, or the first row whose sum is beyond int64.

        Decimals are integers in units of the last digit.
        """
        counts, sums = self._empty_array(np.int64), self._empty_array(values.dtype)
        limits = _INTEGERS if values.dtype == np.int64 else _FLOATS
        row: int = sum_bound(tuple(self.segments), values, valid, limits, self.each, sums, counts)
        if row >= 0:
            return row
        if function == "AVG":
            with np.errstate(all="ignore"):
                sums /= counts
        return _as_sum(sums, counts == 0, data_type)

    def gathered(self) -> tuple[Int64, Array]:
        """Return the selected rows of all segments, and the offsets of each segment in them."""
        bounds = np.empty(len(self.segments.offsets), np.int64)
        rows = np.empty(len(self.segments.marks), self.segments.rows.dtype)
        return bounds, rows[: gather_bound(tuple(self.segments), bounds, rows)]

    def lists(self, name: str, take: Callable[[Array], pa.Array], data_type: pa.DataType) -> pa.Array:
        """Return lists of the values that `take` returns for rows; NULL if there are none.

        Raises
        ------
        EventsError
            When there are too many values; the message names the aggregate.
        """
        bounds, rows = self.gathered()
        if self.each:
            counts, begins = self.count(), np.repeat(bounds[:-1], np.diff(self.segments.offsets))
            bounds = np.concatenate(([0], np.cumsum(counts)))
        if bounds[-1] > _MAX_IN_LISTS:
            raise EventsError(f"{name} has more than {_MAX_IN_LISTS:,} values for the matches of one batch")
        if self.each:
            rows = rows[np.arange(bounds[-1]) + np.repeat(begins - bounds[:-1], counts)]
        empty = bounds[1:] == bounds[:-1]
        mask = pa.array(empty) if empty.any() else None
        return pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), take(rows), type=data_type, mask=mask)


class Values:
    """Values of leaves for one buffer of matches; each is computed once.

    Parameters
    ----------
    found
    labels
        Variables of each mark.
    retained
        Events that the matches contain.
    attributes
        Attributes of the retained events.

    Attributes
    ----------
    n : int
        Number of matches.
    """

    def __init__(
        self,
        matches: MatchBuffers,
        labels: Sequence[frozenset[str]],
        retained: Retained | None,
        attributes: Sequence[str],
    ) -> None:
        self.n: int
        self._matches, self._labels, self._retained, self.n = matches, labels, retained, len(matches)
        self._result_fields = {name: i for i, name in enumerate(attributes)}
        self._ones: dict[tuple[str | None, bool], Int32] = {}
        self._computed: dict[MeasureLeaf, pa.Array] = {}
        self._numbers: dict[str, Array] = {}
        self._ranked: dict[str, Int64] = {}

    def of(self, leaf: MeasureLeaf) -> pa.Array:
        """Return the values of a leaf, one for each match.

        Raises
        ------
        EventsError
            When a sum does not fit its type.
        """
        if leaf not in self._computed:
            self._computed[leaf] = self._compute(leaf)
        return self._computed[leaf]

    def repeated(self, value: pa.Scalar) -> pa.Array:
        """Return a constant for each match."""
        return pa.repeat(value, self.n)

    # ---- events -----------------------------------------------------------------------------------------------

    @cached_property
    def _event_rows(self) -> tuple[Int32, pa.StructArray]:
        """Row of the event at each position of the matches, and the events."""
        assert self._retained is not None
        positions = np.ascontiguousarray(self._matches.positions)
        spans = self._matches.spans
        low, high = (int(spans[0].min()), int(spans[1].max())) if len(positions) else (0, -1)
        if high - low < _SPARSE * len(positions):
            event_positions, events = self._retained.between(low, high)
            numbers, places = np.empty(high - low + 1, np.int32), np.empty(len(positions), np.int32)
            numbers[event_positions - low] = np.arange(len(event_positions), dtype=np.int32)
            gather(read_only(numbers), read_only((positions - low).astype(np.int32)), places)
            return places, events
        distinct, inverse = np.unique(positions, return_inverse=True)
        return inverse.astype(np.int32), self._retained.take(distinct)

    @cached_property
    def _common_marks(self) -> Int32 | None:
        """The marks of each match if all matches have the same, or None."""
        matches = self._matches
        n_marks = len(matches.marks) // max(len(matches), 1)
        if not n_marks or n_marks > 2**8 or n_marks * len(matches) != len(matches.marks):
            return None
        marks, offsets = matches.marks, matches.offsets
        same = np.array_equal(marks[n_marks:], marks[:-n_marks])
        return marks[:n_marks] if same and bool((offsets[1:] - offsets[:-1] == n_marks).all()) else None

    def _n_in_pattern(self, variable: str | None) -> int:
        return int(np.count_nonzero(self._marks_of(variable)[self._common_marks]))

    def _rows_of_variable(self, variable: str | None) -> VariableRows:
        return self._variable_rows(variable, self._event_rows[0])

    def _variable_rows(self, variable: str | None, rows: Int32) -> VariableRows:
        return VariableRows(
            Segments(self._matches.offsets, self._matches.marks, self._marks_of(variable), rows, _NO_FIRSTS)
        )

    def _one(self, leaf: MeasureLeaf) -> Int32:
        """Return the row of the first or last event of a variable, or -1 if there is none."""
        key = leaf.variable, leaf.function == LAST_EVENT
        if key not in self._ones:
            if self._common_marks is not None:
                entries, places = np.flatnonzero(self._marks_of(leaf.variable)[self._common_marks]), self._event_rows[0]
                at = entries[-1 if leaf.function == LAST_EVENT else 0] if len(entries) else None
                one = np.full(len(self._matches), -1, np.int32) if at is None else places[at :: len(self._common_marks)]
            else:
                one = self._rows_of_variable(leaf.variable).find(first=leaf.function != LAST_EVENT)
            self._ones[key] = one
        return self._ones[key]

    def _event_values(self, attribute: str) -> pa.Array:
        return self._event_rows[1].field(self._result_fields[attribute])

    def _event_validity(self, attribute: str) -> Bools:
        valid = validity(self._event_values(attribute))
        return _NO_NULL if valid is None else valid

    def _numbers_of(self, attribute: str) -> Array:
        """Return an attribute as int64 or float64."""
        if attribute not in self._numbers:
            events = self._event_values(attribute)
            kind = kind_of(events.type)
            if kind == NOTHING or events.type == pa.uint64():
                events = events.cast(pa.uint64())
            elif kind == DECIMAL and events.type.byte_width < 16:
                events = events.cast(pa.decimal128(18, events.type.scale))
            values = np.ascontiguousarray(numbers_of(events), np.float64 if kind == FLOAT else None)
            self._numbers[attribute] = values.astype(np.int64) if values.dtype.kind in "iub" else values
        return self._numbers[attribute]

    def _ranks_of(self, attribute: str) -> Array:
        """Return the ranks of the values of an attribute, or numbers in the same order."""
        events = self._event_values(attribute)
        kind = kind_of(events.type)
        if kind in (INTEGER, TEMPORAL, BOOLEAN, NOTHING, FLOAT) and events.type != pa.uint64():
            return self._numbers_of(attribute)
        if attribute not in self._ranked:
            self._ranked[attribute] = ranks_of(events)
        return self._ranked[attribute]

    # ---- leaves -----------------------------------------------------------------------------------------------

    def _marks_of(self, variable: str | None) -> Bools:
        return np.array([variable is None or variable in variables for variables in self._labels], np.bool_)

    def _compute(self, leaf: MeasureLeaf) -> pa.Array:
        if leaf.function == "COUNT":
            return self._count_events(leaf.variable)
        assert leaf.attribute is not None
        events = self._event_values(leaf.attribute)
        if leaf.function in _OF_ONE and self._common_marks is not None and self._n_in_pattern(leaf.variable) == 1:
            value = taken(events, self._one(leaf))
            return value if value.type == leaf.type else _as_sum_type(value, leaf.type)
        match leaf.function:
            case "SUM" | "AVG":
                return self._sum(leaf, leaf.attribute, events)
            case "LIST":
                return self._rows_of_variable(leaf.variable).lists(
                    str(leaf), lambda rows: events.take(pa.array(rows)), leaf.type
                )
            case "MIN" | "MAX":
                ranks, valid = self._ranks_of(leaf.attribute), self._event_validity(leaf.attribute)
                return taken(events, self._rows_of_variable(leaf.variable).extreme(leaf.function, ranks, valid))
        return taken(events, self._one(leaf))

    def _count_events(self, variable: str | None) -> pa.Array:
        if variable is None:
            return pa.array(np.diff(self._matches.offsets).astype(np.int64))
        if self._common_marks is not None:
            return self.repeated(pa.scalar(self._n_in_pattern(variable), pa.int64()))
        return pa.array(self._variable_rows(variable, _NO_ROWS).count())

    def _sum(self, leaf: MeasureLeaf, attribute: str, events: pa.Array) -> pa.Array:
        variable_rows, valid, kind = (
            self._rows_of_variable(leaf.variable),
            self._event_validity(attribute),
            kind_of(events.type),
        )
        if leaf.function == "AVG" or kind == FLOAT:
            return variable_rows.summed(leaf.function, floats_of(events), valid, leaf.type)
        if not (kind == DECIMAL and events.type.precision > 18):
            numbers = self._numbers_of(attribute)
            # as int64, the greater half of uint64 is negative
            if not (events.type == pa.uint64() and bool((numbers < 0).any())):
                sums = variable_rows.summed(leaf.function, numbers, valid, leaf.type)
                if not isinstance(sums, int):
                    return sums
        return self._sum_wide(leaf, variable_rows, events)

    def _sum_wide(self, leaf: MeasureLeaf, variable_rows: VariableRows, events: pa.Array) -> pa.Array:
        """Add up values whose sums may exceed int64, with Arrow's group_by."""
        bounds, gathered = variable_rows.gathered()
        n = self.n
        rows = np.repeat(np.arange(n, dtype=np.int32), np.diff(bounds))
        values = events.take(pa.array(gathered))
        # decimals wide enough for any sum of so many
        if pa.types.is_duration(values.type):
            values = values.cast(pa.int64())
        summed = values.cast(pa.decimal256(76, leaf.type.scale if pa.types.is_decimal(leaf.type) else 0))
        table = (
            pa.table({"row": rows, "value": summed}).group_by("row", use_threads=False).aggregate([("value", "sum")])
        )
        at = np.full(n, -1, np.int32)
        at[table["row"].to_numpy()] = np.arange(table.num_rows, dtype=np.int32)
        sums = taken(table["value_sum"].combine_chunks(), at)
        plain = pa.int64() if pa.types.is_duration(leaf.type) else leaf.type
        try:
            return sums.cast(plain).view(leaf.type)
        except pa.ArrowInvalid:
            pass
        for row in range(len(sums)):  # the message names the first
            try:
                sums.slice(row, 1).cast(plain)
            except pa.ArrowInvalid:
                raise self._too_large(leaf, row) from None
        raise self._too_large(leaf, 0)

    def _too_large(self, leaf: MeasureLeaf, row: int) -> EventsError:
        start, end = (int(self._matches.spans[k][row]) for k in (0, 1))
        return EventsError(
            f"{leaf} of the match from {start} to {end} is beyond {leaf.type}\n"
            f"hint: AVG({leaf.variable}.{leaf.attribute}) * COUNT({leaf.variable}) is a float64"
        )


def _as_sum_type(value: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return values as their sum or average."""
    if pa.types.is_floating(data_type):
        valid = validity(value)
        return pa.array(floats_of(value), mask=None if valid is None else ~valid)
    return (value.cast(pa.uint8()) if kind_of(value.type) == BOOLEAN else value).cast(data_type)


def floats_of(values: pa.Array) -> npt.NDArray[np.float64]:
    """Return numbers as float64, 0 for NULL."""
    if kind_of(values.type) == BOOLEAN or pa.types.is_null(values.type):
        values = values.cast(pa.uint8())
    as_floats = values.cast(pa.float64(), safe=False)
    return np.ascontiguousarray(as_floats.fill_null(0.0).to_numpy(zero_copy_only=False))


def ranks_of(values: pa.Array) -> Int64:
    """Return the dense ranks of values."""
    return np.asarray(pc.rank(values, tiebreaker="dense")).astype(np.int64)


def taken(values: pa.Array, rows: Array) -> pa.Array:
    """Return the values at rows; NULL for -1."""
    if len(rows) and rows.min() < 0:
        return values.take(pa.array(rows, mask=rows < 0))
    plain = values.null_count == 0 and (pa.types.is_int64(values.type) or pa.types.is_float64(values.type))
    return pa.array(values.to_numpy()[rows]) if plain else values.take(pa.array(rows))


def _as_sum(sums: Array, nothing: Bools, data_type: pa.DataType) -> pa.Array:
    """Return sums as values of a type; integers are decimals in units of the last digit."""
    if not pa.types.is_decimal(data_type):
        array = pa.array(sums, mask=nothing) if nothing.any() else pa.array(sums)
        return array.view(data_type)
    words = np.empty((len(sums), data_type.byte_width // 8), np.int64)
    words[:, 0], words[:, 1:] = sums, (sums >> 63)[:, None]
    bits = None
    if nothing.any():
        bits = pa.py_buffer(np.packbits(~nothing, bitorder="little"))
    return pa.Array.from_buffers(data_type, len(sums), [bits, pa.py_buffer(words)])
