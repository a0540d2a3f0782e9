"""States of OVER aggregates: the events that the window of each key still holds, and the results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Array, Bools, Int64
from cer_gpu.backend.over.exact_sums import DIGITS, WIDE_OF_SQUARES, WIDE_OF_SUMS
from cer_gpu.backend.over.window_queues import (
    FLOATS,
    IN_USE,
    INTEGERS,
    NATURALS,
    STATE_WIDTH,
    UNUSED,
    VALUE,
    Pool,
    WindowEvents,
    count_distinct,
    count_in_windows,
    find_extremes,
    mark_absences,
    rebuild_chains,
)
from cer_gpu.backend.over.window_sums import (
    WIDTH_OF_FLOATS,
    WIDTH_OF_INTEGERS,
    WIDTH_OF_SQUARES,
    ExactSums,
    sum_in_windows,
)
from cer_gpu.ceql.functions import NO_EVENT_WITHIN, OVER_AGGREGATES, SUM, VARIANCE, OverState
from cer_gpu.columnar.columns import BOOLEAN, DECIMAL, FLOAT, STRING, Block, RowsOfBlock, kind_of
from cer_gpu.columnar.memory import read_only, zeros
from cer_gpu.errors import EventsError
from cer_gpu.expressions.numbers import floats
from cer_gpu.expressions.over_aggregates import OverColumn
from cer_gpu.expressions.side_columns import StringIds

MIN_ENTRIES = 1 << 10
"""Entries of a new pool."""
MIN_SWEPT_STRINGS = 1 << 16
"""Number of strings from which on those that no window holds are dropped."""

_NOTHING = read_only(np.zeros(1, np.int64))
_POWERS = read_only(np.ldexp(1.0, np.arange(-1022, 1024)))


class AggregateState(ABC):
    """State of one OVER aggregate.

    Parameters
    ----------
    column
    clock : dtype
        uint64 or float64.
    one_clock
        True if the clock is that of all keys, so that what idle keys hold can be seen to have left their window.
    """

    width: ClassVar[int] = STATE_WIDTH
    """Numbers in the row of a key."""
    columns: ClassVar[int] = 4
    """Numbers of an entry."""
    has_values: ClassVar[bool] = True

    def __init__(self, column: OverColumn, clock: np.dtype[Any], one_clock: bool) -> None:
        self.column: OverColumn = column
        self._clock, self._one_clock = clock, one_clock
        self._state = np.zeros((0, self.width), np.int64)
        self._pool = self._pool_of(MIN_ENTRIES)
        self._pool.free[UNUSED] = 1

    def rebind(self, column: OverColumn) -> None:
        """Go on with the column of another schema.

        Raises
        ------
        EventsError
            When its values have another type than those in the state.
        """
        if (column.values, column.type) != (self.column.values, self.column.type):
            raise EventsError(
                f"{column.aggregate.function} OVER keeps values of column {column.aggregate.attribute!r}, "
                f"which changed its type from {self.column.values} to {column.values}\n"
                "hint: cast the column to one type"
            )
        self.column = column

    def _pool_of(self, n: int) -> Pool:
        cells = zeros((n, self.columns), np.int64)
        return Pool(cells, cells.view(self._clock), np.zeros(3, np.int64))

    def make(
        self, block: Block, rows: Array, keys: Array, n_keys: int, clocks: Array, length: Any, chosen: Bools
    ) -> pa.Array:
        """Return the column of the next block.

        Parameters
        ----------
        block
        rows, keys : int32, shape (n,)
            Events that have a key, and their keys.
        n_keys
        clocks : shape (n,)
        length
        chosen : bool, shape (rows of the block,)
            True for the events that the aggregate is of.
        """
        attribute = self.column.aggregate.attribute
        if attribute is not None:
            valid = block.valid(attribute)
            chosen = chosen if valid is None else chosen & valid
        values = self._kernel_values(block, chosen) if self.has_values else _NOTHING
        if n_keys > len(self._state):
            self._grow_keys(max(64, 2 * n_keys) if n_keys > 1 else 1)
        events = WindowEvents(
            read_only(rows), read_only(keys), read_only(clocks), length, read_only(chosen), read_only(values)
        )
        if self.column.aggregate.itself:
            return self._aggregate(events, block.n_rows, n_keys)
        return self._aggregate(_with_lagged_rows(events), 2 * block.n_rows, n_keys).take(
            pa.array(np.arange(0, 2 * block.n_rows, 2))
        )

    def _grow_keys(self, n: int) -> None:
        state = zeros((n, self.width), np.int64)
        state[: len(self._state)] = self._state
        self._state = state

    def _column_numbers(self, block: Block) -> Array:
        assert self.column.aggregate.attribute is not None
        return block.numbers(self.column.aggregate.attribute)

    @abstractmethod
    def _kernel_values(self, block: Block, chosen: Bools) -> Int64:
        """Return the values of the chosen events of a block; all others are arbitrary."""

    @abstractmethod
    def _aggregate(self, events: WindowEvents, n_rows: int, n_keys: int) -> pa.Array:
        """Return the column."""

    def _run_kernel(self, loop: Callable[[int, int], int], n: int, n_keys: int) -> None:
        """Run a loop over all events, and grow the buffers when it requests so."""
        start = 0
        while start < n:
            start = loop(start, 0)
            if start < n:
                self._grow_pool(loop, start, n_keys)

    def _grow_pool(self, loop: Callable[[int, int], int], start: int, n_keys: int) -> None:
        capacity = len(self._pool.cells)
        if self._one_clock and capacity > n_keys:
            loop(start, 1)
            if 2 * self._pool.free[IN_USE] < capacity:
                return
        old = self._pool
        self._pool = self._pool_of(2 * capacity)
        self._pool.cells[:capacity] = old.cells
        self._pool.free[:] = old.free

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, n_keys: int) -> dict[str, Array]:
        """Return the state as arrays."""
        cells = self._pool.cells[: int(self._pool.free[UNUSED])]
        return {"state": self._state[:n_keys], "cells": cells, "free": self._pool.free}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from a snapshot."""
        self._state = np.array(arrays["state"])
        capacity = MIN_ENTRIES
        while capacity <= len(arrays["cells"]):
            capacity *= 2
        self._pool = self._pool_of(capacity)
        self._pool.cells[: len(arrays["cells"])] = arrays["cells"]
        self._pool.free[:] = arrays["free"]


class CountState(AggregateState):
    """COUNT: the clocks of the events in the window."""

    columns = 2
    has_values = False

    def _kernel_values(self, block: Block, chosen: Bools) -> Int64:
        raise AssertionError("events are counted")

    def _aggregate(self, events: WindowEvents, n_rows: int, n_keys: int) -> pa.Array:
        results = np.zeros(n_rows, np.int64)

        def loop(start: int, sweep: int) -> int:
            n: int = count_in_windows(events, start, sweep, n_keys, self._state, self._pool, results)
            return n

        self._run_kernel(loop, len(events.rows), n_keys)
        return pa.array(results)


class LastEventState(AggregateState):
    """Absence counted back: the clock of the last event."""

    columns = 2
    has_values = False

    def __init__(self, column: OverColumn, clock: np.dtype[Any], one_clock: bool) -> None:
        super().__init__(column, clock, one_clock)
        self._met, self._last = np.zeros(0, np.bool_), np.zeros(0, clock)

    def _kernel_values(self, block: Block, chosen: Bools) -> Int64:
        raise AssertionError("events are absent")

    def _grow_keys(self, n: int) -> None:
        met, last = zeros((n,), np.bool_), zeros((n,), self._clock)
        met[: len(self._met)], last[: len(self._last)] = self._met, self._last
        self._met, self._last = met, last
        super()._grow_keys(n)

    def _aggregate(self, events: WindowEvents, n_rows: int, n_keys: int) -> pa.Array:
        results = np.zeros(n_rows, np.bool_)
        mark_absences(events, self._met, self._last, results)
        return pa.array(results)

    def snapshot(self, n_keys: int) -> dict[str, Array]:
        """Return the state as arrays."""
        return {**super().snapshot(n_keys), "met": self._met[:n_keys], "last": self._last[:n_keys]}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from a snapshot."""
        super().restore(arrays)
        self._met, self._last = np.array(arrays["met"]), np.array(arrays["last"])


class ExtremeState(AggregateState):
    """MIN and MAX: the values that none after them is beyond, as integers in their order."""

    def _kernel_values(self, block: Block, chosen: Bools) -> Int64:
        return as_int64(self._column_numbers(block))

    @property
    def _least(self) -> bool:
        return OVER_AGGREGATES[self.column.aggregate.function].state is OverState.LEAST

    def _aggregate(self, events: WindowEvents, n_rows: int, n_keys: int) -> pa.Array:
        results, is_valid = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.bool_)
        data_type, least = self.column.type, self._least
        kind = FLOATS if kind_of(data_type) == FLOAT else NATURALS if data_type == pa.uint64() else INTEGERS

        def loop(start: int, sweep: int) -> int:
            n: int = find_extremes(
                events, start, sweep, n_keys, self._state, self._pool, kind, least, results, is_valid
            )
            return n

        self._run_kernel(loop, len(events.rows), n_keys)
        return self._extreme_column(results, is_valid)

    def _extreme_column(self, results: Int64, is_valid: Bools) -> pa.Array:
        """Return the column of results, NULL where not `is_valid`."""
        data_type = self.column.type
        if pa.types.is_null(data_type):
            return pa.nulls(len(results))
        if kind_of(data_type) == FLOAT:
            return array_where(results.view(np.float64), is_valid, pa.float64()).cast(data_type)
        if kind_of(data_type) == BOOLEAN:
            return pa.array(results != 0, mask=~is_valid)
        if kind_of(data_type) == DECIMAL:
            return decimals_of(results, results >> 63, is_valid, data_type)
        return array_where(results.astype(f"i{data_type.bit_width // 8}", copy=False), is_valid, data_type)


class StringExtremeState(ExtremeState):
    """MIN and MAX of strings: entries have the ranks of their strings among all strings so far, by code point.

    New strings change the ranks, and the entries with them.
    """

    def __init__(self, column: OverColumn, clock: np.dtype[Any], one_clock: bool) -> None:
        super().__init__(column, clock, one_clock)
        self._strings = StringIds()
        self._order = np.zeros(0, np.int64)  # numbers of the strings by their ranks, as the entries have them
        self._sweep_at = MIN_SWEPT_STRINGS

    def _kernel_values(self, block: Block, chosen: Bools) -> Int64:
        name = self.column.aggregate.attribute
        assert name is not None
        self._drop_strings()
        values = np.zeros(block.n_rows, np.int64)
        rows = np.flatnonzero(chosen).astype(np.int32)
        numbers = self._strings.of(name, RowsOfBlock(block, rows))
        self._rank_entries()
        values[rows] = self._strings.ranks()[numbers]
        return values

    def _entries(self) -> Int64:
        """Return the values of all entries that were in use so far."""
        values: Int64 = self._pool.cells[1 : int(self._pool.free[UNUSED]), VALUE]
        return values

    def _numbers_of_entries(self) -> Int64:
        """Return the numbers of the strings of all entries that were in use so far."""
        return self._order[_mirrored(self._entries(), self._least)]

    def _rank_entries(self) -> None:
        """Give the entries their ranks among the strings that there are now."""
        if len(self._order) < self._strings.n_strings:
            numbers, ranks = self._numbers_of_entries(), self._strings.ranks()
            self._entries()[:] = _mirrored(ranks[numbers], self._least)
            self._order = np.argsort(ranks)

    def _drop_strings(self) -> None:
        """Drop the strings that no entry refers to, once there are many."""
        if self._strings.n_strings < self._sweep_at:
            return
        numbers = self._numbers_of_entries()
        numbers = self._strings.keep(numbers)[numbers]
        ranks = self._strings.ranks()
        self._entries()[:] = _mirrored(ranks[numbers], self._least)
        self._order = np.argsort(ranks)
        self._sweep_at = max(MIN_SWEPT_STRINGS, 2 * self._strings.n_strings)

    def _extreme_column(self, results: Int64, is_valid: Bools) -> pa.Array:
        if not is_valid.any():
            return pa.nulls(len(results), self.column.type)
        numbers = self._order[np.where(is_valid, results, 0)]
        return self._strings.strings().take(pa.array(numbers, mask=~is_valid)).cast(self.column.type)

    def strings(self) -> pa.Array:
        """Return the strings, in the order of their numbers."""
        return self._strings.strings()

    def restore_strings(self, strings: pa.Array) -> None:
        """Restore the strings of a snapshot."""
        self._strings.restore(strings)
        self._order = np.argsort(self._strings.ranks())[: len(strings)]


class DistinctState(AggregateState):
    """COUNT DISTINCT: each value once, in the order of last occurrence."""

    columns = 8

    def __init__(self, column: OverColumn, clock: np.dtype[Any], one_clock: bool) -> None:
        super().__init__(column, clock, one_clock)
        self._strings = StringIds(pc.utf8_lower if column.aggregate.nocase else None)
        self._buckets = np.zeros(0, np.int32)
        self._sweep_at = MIN_SWEPT_STRINGS

    def _kernel_values(self, block: Block, chosen: Bools) -> Int64:
        name = self.column.aggregate.attribute
        if kind_of(self.column.values) == STRING:
            assert name is not None
            self._drop_strings()
            values = np.zeros(block.n_rows, np.int64)
            rows = np.flatnonzero(chosen).astype(np.int32)
            values[rows] = self._strings.of(name, RowsOfBlock(block, rows))
            return values
        numbers = self._column_numbers(block)
        if numbers.dtype.kind == "f":
            numbers = numbers + 0.0  # -0.0 is 0.0
            numbers[np.isnan(numbers)] = np.nan  # all of them are one
        return as_int64(numbers)

    def _drop_strings(self) -> None:
        """Drop the strings that no entry refers to, once there are many."""
        if self._strings.n_strings < self._sweep_at:
            return
        used = slice(1, int(self._pool.free[UNUSED]))
        numbers = self._pool.cells[used, VALUE]
        self._pool.cells[used, VALUE] = self._strings.keep(numbers)[numbers]
        self._sweep_at = max(MIN_SWEPT_STRINGS, 2 * self._strings.n_strings)
        self._buckets = np.zeros(0, np.int32)

    def _aggregate(self, events: WindowEvents, n_rows: int, n_keys: int) -> pa.Array:
        results = np.zeros(n_rows, np.int64)

        def loop(start: int, sweep: int) -> int:
            if len(self._buckets) < len(self._pool.cells):
                self._buckets = zeros((len(self._pool.cells),), np.int32)
                rebuild_chains(self._state, self._pool, self._buckets, min(n_keys, len(self._state)))
            n: int = count_distinct(events, start, sweep, n_keys, self._state, self._pool, self._buckets, results)
            return n

        self._run_kernel(loop, len(events.rows), n_keys)
        return pa.array(results)

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from a snapshot."""
        super().restore(arrays)
        self._buckets = np.zeros(0, np.int32)

    def strings(self) -> pa.Array:
        """Return the strings, in the order of their numbers."""
        return self._strings.strings()

    def restore_strings(self, strings: pa.Array) -> None:
        """Restore the strings of a snapshot."""
        self._strings.restore(strings)


class SumState(AggregateState):
    """SUM, AVG, STDDEV, ...: all values in the window, and their sums."""

    def __init__(self, column: OverColumn, clock: np.dtype[Any], one_clock: bool) -> None:
        self._statistic = OVER_AGGREGATES[column.aggregate.function].statistic
        squares = self._statistic >= VARIANCE
        self._kind = _kind_of_sum(column.values, self._statistic)
        if self._kind != FLOATS:
            self.width: int = WIDTH_OF_INTEGERS  # type: ignore[misc]
        else:
            self.width = WIDTH_OF_SQUARES if squares else WIDTH_OF_FLOATS  # type: ignore[misc]
        self._wide_width = WIDE_OF_SUMS + WIDE_OF_SQUARES * squares
        super().__init__(column, clock, one_clock)
        self._wide, self._n_wide = np.zeros((1, self._wide_width), np.int64), np.ones(1, np.int64)
        self._digits = np.zeros(3 * DIGITS, np.int64)

    def _kernel_values(self, block: Block, chosen: Bools) -> Int64:
        name = self.column.aggregate.attribute
        assert name is not None
        if kind_of(self.column.values) == DECIMAL and self._kind == FLOATS:
            return floats(block.array(name)).view(np.int64)
        numbers = self._column_numbers(block)
        if self._kind == FLOATS:
            numbers = numbers.astype(np.float64, copy=False)
        return as_int64(numbers)

    def _aggregate(self, events: WindowEvents, n_rows: int, n_keys: int) -> pa.Array:
        whole = self._kind != FLOATS and self._statistic == SUM
        integers = np.zeros((n_rows if whole else 0, 2), np.int64)
        results, is_valid = np.zeros(0 if whole else n_rows), np.zeros(n_rows, np.bool_)

        def loop(start: int, sweep: int) -> int:
            last_results = self._state.view(np.float64)
            sums = ExactSums(self._state, self._wide, self._n_wide, last_results, self._digits, _POWERS)
            n: int = sum_in_windows(
                events, start, sweep, n_keys, sums, self._pool, self._kind, self._statistic, integers, results, is_valid
            )
            return n

        self._run_kernel(loop, len(events.rows), n_keys)
        if pa.types.is_null(self.column.type):
            return pa.nulls(n_rows)
        return self._exact_integers(integers, is_valid) if whole else array_where(results, is_valid, pa.float64())

    def _grow_pool(self, loop: Callable[[int, int], int], start: int, n_keys: int) -> None:
        if self._n_wide[0] == len(self._wide):
            wide = np.zeros((max(4, 2 * len(self._wide)), self._wide_width), np.int64)
            wide[: len(self._wide)] = self._wide
            self._wide = wide
        if self._pool.free[IN_USE] == len(self._pool.cells) - 1:
            super()._grow_pool(loop, start, n_keys)

    def _exact_integers(self, integers: Int64, is_valid: Bools) -> pa.Array:
        data_type, low, high = self.column.type, integers[:, 0], integers[:, 1]
        if kind_of(data_type) == DECIMAL:
            return decimals_of(low, high, is_valid, data_type)
        fits = high == (0 if data_type == pa.uint64() else low >> 63)
        if not fits.all():  # where there is no value, both are 0
            raise EventsError(
                f"a sum of {self.column.aggregate.attribute!r} OVER is beyond {data_type}\n"
                "hint: cast the column to float64, or to a decimal of at most 18 digits"
            )
        return array_where(np.ascontiguousarray(low), is_valid, data_type)

    def snapshot(self, n_keys: int) -> dict[str, Array]:
        """Return the state as arrays."""
        wide = self._wide[: int(self._n_wide[0])]
        return {**super().snapshot(n_keys), "wide": wide}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from a snapshot."""
        super().restore(arrays)
        self._wide = np.array(arrays["wide"])
        self._n_wide = np.array([len(self._wide)], np.int64)


def _with_lagged_rows(events: WindowEvents) -> WindowEvents:
    """Duplicate each event as (excluded, included), so that even rows hold the aggregate before the event."""
    rows = np.repeat(2 * events.rows, 2)
    rows[1::2] += 1
    chosen = np.zeros(2 * len(events.chosen), np.bool_)
    chosen[1::2] = events.chosen
    others = (np.repeat(each, 2) for each in (events.keys, events.clocks))
    values = events.values if events.values is _NOTHING else np.repeat(events.values, 2)
    keys, clocks = map(read_only, others)
    return WindowEvents(read_only(rows), keys, clocks, events.length, read_only(chosen), read_only(values))


def _mirrored(ranks: Int64, least: bool) -> Int64:
    """Return ranks as `find_extremes` stores them, and back: with the greatest first where the least is requested."""
    return ~ranks if least else ranks


def _kind_of_sum(values: pa.DataType | None, statistic: int) -> int:
    """Return the kind of the values that are summed for a statistic."""
    kind = kind_of(values)
    if kind == FLOAT or statistic >= VARIANCE or (kind == DECIMAL and statistic != SUM):
        return FLOATS
    return NATURALS if values == pa.uint64() else INTEGERS


_STATES: dict[OverState, type[AggregateState]] = {
    OverState.TIMESTAMPS: CountState,
    OverState.DISTINCT: DistinctState,
    OverState.LEAST: ExtremeState,
    OverState.GREATEST: ExtremeState,
    OverState.SUMS: SumState,
}


def new_state(column: OverColumn, clock: np.dtype[Any], one_clock: bool) -> AggregateState:
    """Return the state of an aggregate at the beginning of a stream; the arguments are those of `AggregateState`."""
    if column.aggregate.function == NO_EVENT_WITHIN:
        return LastEventState(column, clock, one_clock)
    state = _STATES[OVER_AGGREGATES[column.aggregate.function].state]
    if state is ExtremeState and kind_of(column.values) == STRING:
        state = StringExtremeState
    return state(column, clock, one_clock)


def as_int64(values: Array) -> Int64:
    """Return numbers as int64: the bits of uint64 and float64, the values of others."""
    return values.view(np.int64) if values.dtype in (np.uint64, np.float64) else values.astype(np.int64, copy=False)


def array_where(values: Array, is_valid: Bools, data_type: pa.DataType) -> pa.Array:
    """Return values in the layout of a type as an array, NULL where not `is_valid`."""
    valid = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    return pa.Array.from_buffers(data_type, len(values), [valid, pa.py_buffer(values)])


def decimals_of(low: Int64, high: Int64, is_valid: Bools, data_type: pa.DataType) -> pa.Array:
    """Return decimals of their lower and upper 64 bits."""
    words = np.ascontiguousarray(np.stack([low, high], axis=1))
    return array_where(words, is_valid, pa.decimal128(38, data_type.scale)).cast(data_type)
