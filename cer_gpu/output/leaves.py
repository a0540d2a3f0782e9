"""Leaves of measures over the complex events of one buffer: attributes of events, and aggregates, by segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Array, Bools, Int32, Int64
from cer_gpu.backend.aggregates import segments
from cer_gpu.columnar.columns import BOOLEAN, DECIMAL, FLOAT, INTEGER, MOMENT, NOTHING, kind_of, numbers_of
from cer_gpu.errors import EventsError
from cer_gpu.output.retention import Retained
from cer_gpu.runtime.matches import MatchBuffers

FIRST_HELD, LAST_HELD = "FIRST", "LAST"

_OF_ONE = ("SUM", "AVG", "MIN", "MAX")
"""Aggregates that are the value itself where there is one."""

_SPARSE = 4
"""Positions that a table of positions may have for each one that occurs; beyond that they are sorted."""


@dataclass(frozen=True)
class MeasureLeaf:
    """Leaf of a measure.

    Attributes
    ----------
    function : str
        "FIRST", "LAST", "COUNT", "SUM", "AVG", "MIN", "MAX" or "LIST".
    variable : str or None
        None: all kept events.
    attribute : str or None
        None for COUNT.
    type : pyarrow.DataType
    """

    function: str
    variable: str | None
    attribute: str | None
    type: pa.DataType

    def __str__(self) -> str:
        """Return it as a query has it."""
        name = self.variable or "*"
        return f"{self.function}({name if self.attribute is None else f'{name}.{self.attribute}'})"


def sum_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the sum of values: that of Arrow's own, and durations for durations."""
    if pa.types.is_duration(data_type):
        return data_type
    if pa.types.is_decimal(data_type):
        wide = data_type.byte_width > 16
        return pa.decimal256(76, data_type.scale) if wide else pa.decimal128(38, data_type.scale)
    if pa.types.is_floating(data_type):
        return pa.float64()
    return pa.uint64() if pa.types.is_unsigned_integer(data_type) or pa.types.is_boolean(data_type) else pa.int64()


@dataclass(frozen=True)
class _Numbers:
    """Values of the events of a buffer, with False in `valid` for NULL."""

    values: Array
    valid: Bools


class Values:
    """Values of leaves for one buffer of complex events; each is computed once.

    Parameters
    ----------
    found
    labels
        Variables of each mark.
    retained
        Events that the complex events hold.
    attributes
        Attributes of the retained events.
    """

    def __init__(
        self,
        found: MatchBuffers,
        labels: Sequence[frozenset[str]],
        retained: Retained | None,
        attributes: Sequence[str],
    ) -> None:
        self._found, self._labels, self._retained = found, labels, retained
        self._fields = {name: i for i, name in enumerate(attributes)}
        self._ones: dict[tuple[str | None, bool], Int32] = {}
        self._computed: dict[MeasureLeaf, pa.Array] = {}
        self._numbers: dict[str, _Numbers] = {}
        self._ranked: dict[str, _Numbers] = {}

    def of(self, leaf: MeasureLeaf) -> pa.Array:
        """Return the values of a leaf, one for each complex event.

        Raises
        ------
        EventsError
            When a sum does not fit its type.
        """
        if leaf not in self._computed:
            self._computed[leaf] = self._compute(leaf)
        return self._computed[leaf]

    # ---- events -----------------------------------------------------------------------------------------------

    @cached_property
    def _placed(self) -> tuple[Int32, pa.StructArray]:
        """Row of the event at each kept position, and the events."""
        assert self._retained is not None
        positions = np.ascontiguousarray(self._found.positions)
        spans = self._found.spans
        low, high = (int(spans[0].min()), int(spans[1].max())) if len(positions) else (0, -1)
        if high - low < _SPARSE * len(positions):
            known, events = self._retained.between(low, high)
            numbers, places = np.empty(high - low + 1, np.int32), np.empty(len(positions), np.int32)
            numbers[known - low] = np.arange(len(known), dtype=np.int32)
            segments.look_up_positions(positions, low, numbers, places)
            return places, events
        distinct, inverse = np.unique(positions, return_inverse=True)
        return inverse.astype(np.int32), self._retained.take(distinct)

    @cached_property
    def _pattern(self) -> Int32 | None:
        """The marks of each complex event, where all have the same; None: they differ."""
        found = self._found
        n_marks = len(found.marks) // max(len(found), 1)
        if not n_marks or n_marks > 2**8 or n_marks * len(found) != len(found.marks):
            return None
        marks, offsets = found.marks, found.offsets
        same = np.array_equal(marks[n_marks:], marks[:-n_marks])
        return marks[:n_marks] if same and bool((offsets[1:] - offsets[:-1] == n_marks).all()) else None

    def _n_in_pattern(self, variable: str | None) -> int:
        return int(np.count_nonzero(self._holds(variable)[self._pattern]))

    def _one(self, leaf: MeasureLeaf) -> Int32:
        """Return the row of the first or last event that a variable holds; -1 for none."""
        key = leaf.variable, leaf.function == LAST_HELD
        if key not in self._ones:
            found, holds, places = self._found, self._holds(leaf.variable), self._placed[0]
            if self._pattern is not None:
                held = np.flatnonzero(holds[self._pattern])
                at = held[-1 if leaf.function == LAST_HELD else 0] if len(held) else None
                one = np.full(len(found), -1, np.int32) if at is None else places[at :: len(self._pattern)]
            else:
                one = np.empty(len(found), np.int32)
                segments.one_held(found.offsets, found.marks, holds, places, int(leaf.function == LAST_HELD), one)
            self._ones[key] = one
        return self._ones[key]

    def _events(self, attribute: str) -> pa.Array:
        return self._placed[1].field(self._fields[attribute])

    def _numbers_of(self, attribute: str) -> _Numbers:
        """Return an attribute as int64 or float64."""
        if attribute not in self._numbers:
            events = self._events(attribute)
            kind = kind_of(events.type)
            if kind == NOTHING or events.type == pa.uint64():
                events = events.cast(pa.uint64())
            elif kind == DECIMAL and events.type.byte_width < 16:
                events = events.cast(pa.decimal128(18, events.type.scale))
            values = np.ascontiguousarray(numbers_of(events), np.float64 if kind == FLOAT else None)
            if values.dtype.kind in "iub":
                values = values.astype(np.int64)
            self._numbers[attribute] = _Numbers(values, _valid(events))
        return self._numbers[attribute]

    def _ranks_of(self, attribute: str) -> _Numbers:
        """Return an attribute as numbers in the order of its values."""
        events = self._events(attribute)
        kind = kind_of(events.type)
        if kind in (INTEGER, MOMENT, BOOLEAN, NOTHING, FLOAT) and events.type != pa.uint64():
            return self._numbers_of(attribute)
        if attribute not in self._ranked:
            ranks = np.asarray(pc.rank(events, tiebreaker="dense")).astype(np.int64)
            self._ranked[attribute] = _Numbers(ranks, _valid(events))
        return self._ranked[attribute]

    # ---- leaves -----------------------------------------------------------------------------------------------

    def _holds(self, variable: str | None) -> Bools:
        return np.array([variable is None or variable in held for held in self._labels], np.bool_)

    def _compute(self, leaf: MeasureLeaf) -> pa.Array:
        found, n = self._found, len(self._found)
        offsets, marks = found.offsets, found.marks
        if leaf.function == "COUNT":
            if leaf.variable is None:
                return pa.array(np.diff(offsets).astype(np.int64))
            if self._pattern is not None:
                return pa.repeat(pa.scalar(self._n_in_pattern(leaf.variable), pa.int64()), n)
            counts = np.empty(n, np.int64)
            segments.count_held(offsets, marks, self._holds(leaf.variable), counts)
            return pa.array(counts)
        assert leaf.attribute is not None
        if leaf.function in _OF_ONE and self._pattern is not None and self._n_in_pattern(leaf.variable) == 1:
            value = _taken(self._events(leaf.attribute), self._one(leaf))
            return value if value.type == leaf.type else _widened(value, leaf.type)
        where = (offsets, marks, self._holds(leaf.variable), self._placed[0])
        match leaf.function:
            case "SUM" | "AVG":
                return self._sum(leaf, where, n)
            case "LIST":
                return self._list(leaf, where, n)
            case "MIN" | "MAX":
                chosen = np.empty(n, np.int32)
                ranks = self._ranks_of(leaf.attribute)
                sign = 1 if leaf.function == "MAX" else -1
                segments.extreme_held(*where, ranks.values, ranks.valid, sign, chosen)
            case _:
                chosen = self._one(leaf)
        return _taken(self._events(leaf.attribute), chosen)

    def _list(self, leaf: MeasureLeaf, where: tuple[Any, ...], n: int) -> pa.Array:
        assert leaf.attribute is not None
        bounds, gathered = np.empty(n + 1, np.int32), np.empty(len(self._found.positions), np.int32)
        k = segments.gather_held(*where, bounds, gathered)
        values = self._events(leaf.attribute).take(pa.array(gathered[:k]))
        empty = bounds[1:] == bounds[:-1]
        mask = pa.array(empty) if empty.any() else None
        return pa.ListArray.from_arrays(pa.array(bounds), values, type=leaf.type, mask=mask)

    def _sum(self, leaf: MeasureLeaf, where: tuple[Any, ...], n: int) -> pa.Array:
        assert leaf.attribute is not None
        events = self._events(leaf.attribute)
        kind, counts = kind_of(events.type), np.empty(n, np.int64)
        if leaf.function == "AVG" or kind == FLOAT:
            values, valid = _floats(events), _valid(events)
            totals = np.empty(n, np.float64)
            segments.sum_floats(*where, values, valid, totals, counts)
            if leaf.function == "AVG":
                with np.errstate(all="ignore"):
                    totals /= counts
            return _with_nulls(totals, counts == 0)
        wide = kind == DECIMAL and events.type.precision > 18
        numbers = None if wide else self._numbers_of(leaf.attribute)
        # as int64, the greater half of uint64 is negative
        if numbers is not None and not (events.type == pa.uint64() and bool((numbers.values < 0).any())):
            sums = np.empty(n, np.int64)
            row = segments.sum_integers(*where, numbers.values, numbers.valid, sums, counts)
            if row < 0:
                return as_sum(sums, counts == 0, leaf.type)
        return self._sum_wide(leaf, where, n, events)

    def _sum_wide(self, leaf: MeasureLeaf, where: tuple[Any, ...], n: int, events: pa.Array) -> pa.Array:
        """Add up values that may need more than int64, by Arrow's groups."""
        bounds, gathered = np.empty(n + 1, np.int32), np.empty(len(self._found.positions), np.int32)
        k = segments.gather_held(*where, bounds, gathered)
        rows = np.repeat(np.arange(n, dtype=np.int32), np.diff(bounds))
        values = events.take(pa.array(gathered[:k]))
        # decimals with room for any sum of so many
        if pa.types.is_duration(values.type):
            values = values.cast(pa.int64())
        summed = values.cast(pa.decimal256(76, leaf.type.scale if pa.types.is_decimal(leaf.type) else 0))
        table = (
            pa.table({"row": rows, "value": summed}).group_by("row", use_threads=False).aggregate([("value", "sum")])
        )
        at = np.full(n, -1, np.int32)
        at[table["row"].to_numpy()] = np.arange(table.num_rows, dtype=np.int32)
        found = _taken(table["value_sum"].combine_chunks(), at)
        plain = pa.int64() if pa.types.is_duration(leaf.type) else leaf.type
        try:
            return found.cast(plain).view(leaf.type)
        except pa.ArrowInvalid:
            pass
        for row in range(len(found)):  # the message names the first
            try:
                found.slice(row, 1).cast(plain)
            except pa.ArrowInvalid:
                raise self._too_large(leaf, row) from None
        raise self._too_large(leaf, 0)

    def _too_large(self, leaf: MeasureLeaf, row: int) -> EventsError:
        start, end = (int(self._found.spans[k][row]) for k in (0, 1))
        return EventsError(
            f"{leaf} of the complex event from {start} to {end} is beyond {leaf.type}\n"
            f"hint: AVG({leaf.variable}.{leaf.attribute}) * COUNT({leaf.variable}) is a float64"
        )


def _widened(value: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return values as their sum or average."""
    if pa.types.is_floating(data_type):
        return pa.array(_floats(value), mask=~_valid(value)) if value.null_count else pa.array(_floats(value))
    return (value.cast(pa.uint8()) if kind_of(value.type) == BOOLEAN else value).cast(data_type)


def _valid(values: pa.Array) -> Bools:
    return np.ascontiguousarray(values.is_valid().to_numpy(zero_copy_only=False))


def _floats(values: pa.Array) -> npt.NDArray[np.float64]:
    if kind_of(values.type) == BOOLEAN or pa.types.is_null(values.type):
        values = values.cast(pa.uint8())
    as_floats = values.cast(pa.float64(), safe=False)
    return np.ascontiguousarray(as_floats.fill_null(0.0).to_numpy(zero_copy_only=False))


def _taken(values: pa.Array, chosen: Int32) -> pa.Array:
    """Return the chosen values; NULL for -1."""
    if len(chosen) and chosen.min() < 0:
        return values.take(pa.array(chosen, mask=chosen < 0))
    plain = values.null_count == 0 and (pa.types.is_int64(values.type) or pa.types.is_float64(values.type))
    return pa.array(values.to_numpy()[chosen]) if plain else values.take(pa.array(chosen))


def _with_nulls(values: Array, nothing: Bools) -> pa.Array:
    return pa.array(values, mask=nothing) if nothing.any() else pa.array(values)


def as_sum(sums: Int64, nothing: Bools, data_type: pa.DataType) -> pa.Array:
    """Return sums of integers, of which a decimal is a multiple of its least unit, as values of a type."""
    if not pa.types.is_decimal(data_type):
        return _with_nulls(sums, nothing).view(data_type)
    words = np.empty((len(sums), data_type.byte_width // 8), np.int64)
    words[:, 0], words[:, 1:] = sums, (sums >> 63)[:, None]
    bits = None
    if nothing.any():
        bits = pa.py_buffer(np.packbits(~nothing, bitorder="little"))
    return pa.Array.from_buffers(data_type, len(sums), [bits, pa.py_buffer(words)])
