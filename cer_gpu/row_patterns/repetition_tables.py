"""Tables of repetitions (`cer_gpu.backend.joins.row_repetitions`): programs, columns, prefix sums and trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from cer_gpu.arrays import Bools, Int64
from cer_gpu.backend.joins import match_memory as m
from cer_gpu.backend.joins import row_repetitions as r
from cer_gpu.expressions.side_columns import GREATEST, Bound, OrderKey, Raw
from cer_gpu.expressions.terms import F8, U8, WIDE
from cer_gpu.row_patterns.bounds import Instruction, ReadColumns

FloatColumn = npt.NDArray[np.float64]
FloatInterval = tuple[float, float]

EXACT = 2**53
"""Integers up to here are floats."""
MAX_SUM = 2.0**62
"""Maximum sum of magnitudes of integers, which no sum of some of them exceeds."""
MAX_SIZE = 2.0**1000
"""Maximum sum of magnitudes of floats, so that no sum of some of them is infinite."""
GRIDS = (0, 8, 20)
"""Binary digits after the point of floats whose sums may be exact."""
NUMBER, KEY, UNSIGNED_KEY, TRUTH, UNKNOWN = range(5)
"""Kinds of values on the stack: numbers, integers in the order of floats or of uint64, truths, and others."""


@dataclass(frozen=True)
class ReadFunctions:
    """The functions of the match so far that conditions read.

    Attributes
    ----------
    functions : sequence of (int, int, int, int)
        As of `cer_gpu.backend.row_search.SearchPlan.functions`.
    inputs : int64, shape (inputs, n rows)
    valid : bool, shape (inputs, n rows)
        As of `SearchPlan`.
    holds : sequence of sequence of bool
        For each set, its places.
    """

    functions: Sequence[tuple[int, int, int, int]]
    inputs: Int64
    valid: Bools
    holds: Sequence[Sequence[bool]]


class RepetitionTables:
    """The tables of `Repetitions`, as they are filled.

    Attributes
    ----------
    sums_fit : bool
        False: a sum of integers may be beyond int64, which is an error where it is met.
    is_useful : bool
        True if a program of the repetition at hand depends on a function over its rows.
    repetitions : list
        Rows of `Repetitions.repetitions`.
    """

    def __init__(self, columns: ReadColumns, read: ReadFunctions) -> None:
        self.columns: ReadColumns = columns
        self.read: ReadFunctions = read
        self.repetitions: list[list[int]] = []
        self.is_useful: bool = False
        self.sums_fit: bool = all(
            np.abs(read.inputs[column].astype(np.float64)).sum() < MAX_SUM
            for kind, _, column, _ in read.functions
            if kind == m.SUM_I
        )
        self._n_rows = len(columns.values)
        self._lines: list[Instruction] = []
        self._programs: list[tuple[int, int, int, int]] = []
        self._first_program = 0
        self._constants: list[FloatInterval] = []
        self._sources: dict[tuple[int, ...], int] = {}
        self._arrays: dict[tuple[Any, ...], int] = {}
        self._values: list[tuple[FloatColumn, FloatColumn]] = []
        self._places: list[tuple[int, int]] = []
        self._n_values = 0
        self._levels = {self._n_rows: 0}
        self._candidates: list[Int64] = []
        self._before: list[Int64] = []
        self._stops: list[Int64] = []
        self._rows = np.empty(0, np.int64)
        self._prefixes: dict[int, tuple[int, FloatColumn, FloatColumn, Int64, Int64] | None] = {}

    # ---- one repetition ------------------------------------------------------------------------------------

    def begin(self, rows: Int64) -> None:
        """Begin a repetition after which some rows may follow."""
        self._rows = rows
        self.is_useful = False
        self._first_program = len(self._programs)

    def drop(self) -> None:
        """Leave out the repetition at hand."""
        del self._programs[self._first_program :]

    def end(self, place: int, is_greedy: bool, takes: Bools) -> None:
        """Add the repetition at hand, of a place that takes some rows."""
        n, first = self._n_rows, sum(map(len, self._candidates))
        programs = self._first_program, len(self._programs)
        self.repetitions.append([first, first + len(self._rows), *programs, place, int(is_greedy)])
        self._candidates.append(self._rows)
        marks = np.zeros(n + 1, np.int64)
        marks[self._rows + 1] = 1
        self._before.append(np.cumsum(marks))
        rows = np.where(takes, n, np.arange(n))
        self._stops.append(np.minimum.accumulate(rows[::-1])[::-1])

    def add_program(self, lines: Sequence[Instruction], needed: tuple[int, int]) -> None:
        """Add a program of the repetition at hand."""
        begin = len(self._lines)
        self._lines += lines
        self._programs.append((begin, len(self._lines), *needed))

    # ---- parts of programs ---------------------------------------------------------------------------------

    def constant(self, low: float, high: float) -> int:
        """Return the number of a constant."""
        self._constants.append((low, high))
        return len(self._constants) - 1

    def source(self, kind: int, **numbers: int) -> int:
        """Return the number of a source."""
        row = [0] * r.N_SOURCE
        row[r.KIND] = kind
        for name, number in numbers.items():
            row[getattr(r, name.upper())] = number
        return self._sources.setdefault(tuple(row), len(self._sources))

    def of_candidates(self, column: int, offset: int) -> int:
        """Return the number of the array of a column at candidates, or at rows at an offset from them."""
        key = (column, offset, len(self.repetitions))
        if key not in self._arrays:
            if offset == 0 and len(self._rows) == self._n_rows:
                return self.of_rows(column)
            low, high = self._float_column(column)
            rows = self._rows + offset
            partition = np.searchsorted(self.columns.ends, self._rows, "right")
            inside = (rows >= np.concatenate(([0], self.columns.ends))[partition]) & (
                rows < self.columns.ends[np.minimum(partition, len(self.columns.ends) - 1)]
            )
            rows = np.where(inside, rows, 0)
            self._add_array(key, np.where(inside, low[rows], np.inf), np.where(inside, high[rows], -np.inf))
        return self._arrays[key]

    def of_rows(self, column: int) -> int:
        """Return the number of the array of a column at all rows."""
        if (column,) not in self._arrays:
            self._add_array((column,), *self._float_column(column))
        return self._arrays[column,]

    def extreme(self, column: int, f: int) -> tuple[int, int] | None:
        """Return the array of a column that rises or falls with the values of an extreme, and if it is the greatest.

        Returns
        -------
        (int, int) or None
            The array, and 1 for its greatest value, or -1 for its least; None if it does neither.
        """
        _, _, number, sign = self.read.functions[f]
        low, high = self._float_column(column)
        valid, ranks = self.read.valid[number], self.read.inputs[number]
        values, ranks = low[valid], ranks[valid]
        if not (np.isfinite(values).all() and np.array_equal(values, high[valid])):
            return None
        rises = 1
        if len(ranks):
            if ranks.min() < 0 or ranks.max() > 2 * self._n_rows:
                return None
            of_rank = np.full(int(ranks.max()) + 1, np.nan)
            of_rank[ranks] = values
            if not np.array_equal(of_rank[ranks], values):
                return None
            steps = np.diff(of_rank[~np.isnan(of_rank)])
            rises = 1 if (steps >= 0).all() else -1 if (steps <= 0).all() else 0
        if not rises:
            return None
        key = (column, "extreme", number)
        if key not in self._arrays:
            self._add_array(key, np.where(valid, low, np.inf), np.where(valid, high, -np.inf))
        return self._arrays[key], sign * rises

    def prefix(self, column: int, *, is_float: bool) -> int | None:
        """Return the number of an input of functions, or None if its sums may be too large."""
        if column not in self._prefixes:
            valid = self.read.valid[column]
            values = self.read.inputs[column]
            values = values.view(np.float64) if is_float else values.astype(np.float64)
            sums, sizes = (np.empty(self._n_rows + 1) for _ in range(2))
            tallies, specials = (np.empty(self._n_rows + 1, np.int64) for _ in range(2))
            r.prefix_sums(values, valid, sums, sizes, tallies, specials)
            if not sizes[-1] < MAX_SIZE:
                self._prefixes[column] = None
            else:
                if _is_exact(values[valid & np.isfinite(values)], sizes[-1]):
                    sizes = np.zeros_like(sizes)
                n = sum(each is not None for each in self._prefixes.values())
                self._prefixes[column] = n, sums, sizes, tallies, specials
        prefix = self._prefixes[column]
        return None if prefix is None else prefix[0]

    def sums(self, column: int, with_candidate: int) -> int:
        """Return the number of the array of sums up to candidates."""
        key = ("sum", column, with_candidate, len(self.repetitions))
        if key not in self._arrays:
            prefix = self._prefixes[column]
            assert prefix is not None
            values = prefix[1][self._rows + with_candidate]
            self._add_array(key, values, values)
        return self._arrays[key]

    def values_between(self, column: int) -> int:
        """Return the number of the array of the values, as floats, from each candidate to the next one."""
        key = ("values", column, len(self.repetitions))
        if key not in self._arrays:
            values = self.read.inputs[column].view(np.float64)
            valid = self.read.valid[column] & np.isfinite(values)  # sums of others are not read by ranges
            low, high = np.where(valid, values, np.inf), np.where(valid, values, -np.inf)
            if 0 < len(self._rows) < self._n_rows:
                low, high = np.minimum.reduceat(low, self._rows), np.maximum.reduceat(high, self._rows)
            elif not len(self._rows):
                low = high = np.empty(0)
            self._add_array(key, low, high)
        return self._arrays[key]

    def kind_of(self, column: int) -> int:
        """Return the kind of the values of a column on the stack."""
        side = self.columns.kinds[column - 1]
        if not isinstance(side, Raw | OrderKey | Bound):
            return UNKNOWN
        dtype = side.term.dtype
        if isinstance(side, Raw):
            return UNKNOWN if dtype in (U8, WIDE) else NUMBER
        if isinstance(side, Bound):
            return UNSIGNED_KEY if side.unsigned else NUMBER
        return {F8: KEY, U8: UNSIGNED_KEY}.get(dtype, NUMBER)

    def _float_column(self, column: int) -> tuple[FloatColumn, FloatColumn]:
        """Return the intervals of a column at all rows."""
        values = np.ascontiguousarray(self.columns.values[:, column])
        valid = self.columns.values[:, 0] & 1 << column - 1 != 0
        side = self.columns.kinds[column - 1]
        if isinstance(side, Raw | OrderKey) and side.term.dtype == F8:
            if isinstance(side, OrderKey):
                values = values ^ (values >> 63 & GREATEST)
            low = high = values.view(np.float64)
        else:
            low = high = values.astype(np.float64)
            if len(values) and (values.min() < -EXACT or values.max() > EXACT):
                beyond = (values < -EXACT) | (values > EXACT)
                low = np.where(beyond, np.nextafter(low, -np.inf), low)
                high = np.where(beyond, np.nextafter(high, np.inf), high)
        if valid.all():
            return low, high
        return np.where(valid, low, np.inf), np.where(valid, high, -np.inf)

    def _add_array(self, key: tuple[Any, ...], low: FloatColumn, high: FloatColumn) -> None:
        """Add an array of intervals, with a tree over them."""
        n = len(low)
        lows, highs = [low], [high]
        while len(lows[-1]) > 1:
            lows.append(_parents(lows[-1], np.minimum))
            highs.append(_parents(highs[-1], np.maximum))
        self._arrays[key] = len(self._places)
        self._places.append((self._n_values, self._levels.setdefault(n, len(self._levels))))
        self._values.append((np.concatenate(lows), np.concatenate(highs)))
        self._n_values += len(self._values[-1][0])

    # ---- all of them ---------------------------------------------------------------------------------------

    def repetitions_of(self, of_place: Int64) -> r.Repetitions:
        """Return the tables; `of_place` has the repetition of each place."""
        n, no_values = self._n_rows, np.empty(0)
        if not self.repetitions:
            self._values, self._prefixes, n = [], {}, 0
        prefixes = [each for each in self._prefixes.values() if each is not None]
        levels = [_level_begins(size) for size in self._levels]
        width = max(map(len, levels))
        return r.Repetitions(
            of_place,
            np.array(self.repetitions, np.int64).reshape(-1, r.N_REPETITION),
            np.concatenate([np.empty(0, np.int64), *self._candidates]),
            np.array(self._before, np.int64).reshape(len(self._before), n + 1),
            np.array(self._stops, np.int64).reshape(len(self._stops), n),
            np.array(self._programs, np.int64).reshape(-1, r.N_PROGRAM),
            np.array(self._lines, np.int64).reshape(-1, 3),
            np.array(self._constants, np.float64).reshape(-1, 2),
            np.array(list(self._sources), np.int64).reshape(-1, r.N_SOURCE),
            np.array(self._places, np.int64).reshape(-1, 2),
            np.array([[*each, *[-1] * (width - len(each))] for each in levels], np.int64),
            np.concatenate([no_values, *(low for low, _ in self._values)]),
            np.concatenate([no_values, *(high for _, high in self._values)]),
            np.array([sums for _, sums, _, _, _ in prefixes], np.float64).reshape(-1, n + 1),
            np.array([sizes for _, _, sizes, _, _ in prefixes], np.float64).reshape(-1, n + 1),
            np.array([tallies for *_, tallies, _ in prefixes], np.int64).reshape(-1, n + 1),
            np.array([specials for *_, specials in prefixes], np.int64).reshape(-1, n + 1),
            np.zeros((1 + len(self._lines), 2)),
            np.zeros((len(self._sources), 4)),
        )


def _parents(children: FloatColumn, join: np.ufunc) -> FloatColumn:
    """Return the level of a tree above another one."""
    fan = 1 << r.FAN_BITS
    whole = len(children) // fan * fan
    parents = reduce(join, (children[i:whole:fan] for i in range(fan)))
    return parents if whole == len(children) else np.append(parents, join.reduce(children[whole:]))


def _level_begins(n: int) -> list[int]:
    """Return the first value of each level of a tree over n values."""
    begins = [0]
    while n > 1:
        begins.append(begins[-1] + n)
        n = -(-n >> r.FAN_BITS)
    return begins


def _is_exact(values: FloatColumn, size: float) -> bool:
    """Return True if all sums of some of these floats are exact."""
    for digits in GRIDS:
        if size * 2.0**digits >= EXACT / 2:
            return False
        scaled = np.ldexp(values, digits)
        if np.array_equal(scaled, np.rint(scaled)):
            return True
    return False


def of_integer(value: int) -> FloatInterval:
    """Return an interval of floats that holds an integer."""
    number = float(value)
    if abs(value) <= EXACT:
        return number, number
    return float(np.nextafter(number, -np.inf)), float(np.nextafter(number, np.inf))
