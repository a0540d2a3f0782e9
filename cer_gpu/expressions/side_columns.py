"""Columns that join predicates read: one int64 for each relevant event, computed in one pass over a block.

A filter ``left op right`` whose sides each read one event needs nothing else of them than two numbers: `OrderKey` and
the other columns encode the values of any type so that int64 compares them exactly as the language does.  A value that
is NULL, or cannot pass, is not valid.

========== =====================================================================================
column     contents
========== =====================================================================================
Raw        an int64, or the bits of a float64, for arithmetic with values of other events
OrderKey   an integer in the order of the values: of int64, uint64 or float64 (-0.0 is 0.0; NaN is not valid); a wide
           integer that does not fit int64 is an error
Bound      for ``x op value`` with an integer x: the bound as an int64 that is included; 2 for x < 2.5, 3 for x > 2.5
StringId the id of a string, unique over all columns and batches
ExactString  the number of a number or time of any type, as an exact string; only where types are unlike
Truth      1 where a test of the event alone is TRUE, else 0
GridCell   the cell of a number in the grid of a band (`cer_gpu.expressions.bands`)
========== =====================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Bools, Int32, Int64
from cer_gpu.backend.joins import filters as k
from cer_gpu.backend.joins.filters import StringTables
from cer_gpu.columnar.columns import Block, RowsOfBlock, plain_strings
from cer_gpu.columnar.dictionary_encoding import DictionaryCache, DictionaryEncoder
from cer_gpu.columnar.memory import Scratch
from cer_gpu.errors import EventsError
from cer_gpu.expressions.inputs import BlockInputs, Inputs
from cer_gpu.expressions.plain_columns import PlainColumn, PlainColumns, affine_in
from cer_gpu.expressions.targets.numpy import both, rows_of, values_of
from cer_gpu.expressions.terms import F8, I8, IN_ORDER, RAW, WIDE, BoundPredicate, Sides, Value, goes_beyond

Keys = tuple[Int64, Bools | None]
"""Values of a column, and a mask of the valid ones (None if all are)."""

LEAST, GREATEST = -(2**63), 2**63 - 1
_INFINITY = 0x7FF0000000000000
"""Bits of the greatest float64."""
SWEEP_FROM = 1 << 16
"""Least number of strings for a sweep, which drops those that no partial match holds."""
CELL = 1.25
"""Width of a cell of floats, in widths of the band: a quarter is more than rounding adds up to `LAST_CELL`."""
LAST_CELL = 2.0**45
"""Number of the last cell of floats, at either end."""
MAX_COLUMNS = 63
"""Most columns of a query: one word says which are valid."""


class StringIds:
    """One numbering of the strings of several columns, and their order.

    Strings get numbers as they come; `ranks` has the place of each in the order by code point.

    Parameters
    ----------
    change
        Function applied to the strings first, or None.
    """

    def __init__(self, change: Callable[[pa.Array], pa.Array] | None = None) -> None:
        self._change = change
        self._coder = DictionaryEncoder(bounded=False)
        self._restart()

    def _restart(self) -> None:
        self._coder.clear()
        self._of_dictionary: dict[str, DictionaryCache] = {}
        self._ranks: Int64 = np.zeros(1, np.int64)
        self._no_ranks: Int64 = np.zeros(1, np.int64)
        self._n_ranked = 0
        self._sweep_at = SWEEP_FROM

    @property
    def n_strings(self) -> int:
        """Number of strings so far."""
        return self._coder.n_values

    def of(self, name: str, view: RowsOfBlock) -> Int64:
        """Return the numbers of the strings of a column; those of NULL rows are arbitrary."""
        column = view.whole.column(name)
        if not pa.types.is_dictionary(column.type):
            return self.of_array(plain_strings(view.column(name)))
        coded = view.coded(name)
        if name not in self._of_dictionary:
            self._of_dictionary[name] = DictionaryCache(self._numbers_of)
        numbers: Int64 = self._of_dictionary[name](coded.values)[coded.codes].astype(np.int64)
        return numbers

    def of_array(self, strings: pa.Array) -> Int64:
        """Return the numbers of plain strings; those of NULL are arbitrary."""
        return self._numbers_of(strings).astype(np.int64)

    def _numbers_of(self, strings: pa.Array) -> Int32:
        return self._coder.number(strings if self._change is None else self._change(plain_strings(strings)))

    def of_strings(self, strings: Sequence[str]) -> Int64:
        """Return the numbers of strings."""
        return self.of_array(pa.array(strings, pa.string()))

    def ranks(self) -> Int64:
        """Return the rank of each string, by its number."""
        if self._n_ranked < self.n_strings:
            self._n_ranked = self.n_strings
            order = pc.sort_indices(self._coder.values()).to_numpy()
            self._ranks = np.empty(len(order), np.int64)
            self._ranks[order] = np.arange(len(order))
        return self._ranks

    def tables(self, *, ranked: bool) -> StringTables:
        """Return the strings as the loops read them, valid until there are more; `ranked`: with their order."""
        return StringTables(self.ranks() if ranked else self._no_ranks, *self._coder.stored)

    @property
    def wants_sweep(self) -> bool:
        """True if there are many more strings than after the last sweep."""
        return self.n_strings >= self._sweep_at

    def keep(self, numbers: Int64) -> Int64:
        """Drop all strings but those of some numbers, and return the new number of each string by its old one."""
        remaining = np.unique(numbers)
        renumbered = np.full(self.n_strings, -1, np.int64)
        renumbered[remaining] = np.arange(len(remaining))
        self.restore(self._coder.values().take(pa.array(remaining)))
        self._sweep_at = max(SWEEP_FROM, 2 * len(remaining))
        return renumbered

    def strings(self) -> pa.Array:
        """Return the strings in the order of their numbers."""
        return self._coder.values()

    def restore(self, strings: pa.Array) -> None:
        """Replace all strings by these, numbered in their order."""
        self._restart()
        self._coder.number(strings)


@dataclass(frozen=True)
class Raw:
    """An int64, or the bits of a float64, as it is."""

    term: Value

    def keys(self, inputs: Inputs, view: RowsOfBlock, numbers: StringIds) -> Keys:
        """Return the values of a block's rows, and which are not NULL."""
        values, valid = values_at(self.term, inputs, view)
        return _as_int64(values), valid


@dataclass(frozen=True)
class OrderKey:
    """An int64 in the order of the values."""

    term: Value

    def keys(self, inputs: Inputs, view: RowsOfBlock, numbers: StringIds) -> Keys:
        """Return the keys of a block's rows, and which are valid."""
        values, valid = values_at(self.term, inputs, view)
        if values.dtype == object:
            return _to_int64(values, valid), valid
        if values.dtype == np.uint64:
            return (values ^ np.uint64(1 << 63)).view(np.int64), valid
        if values.dtype != np.float64:
            return values, valid
        bits = _as_int64(values)
        if len(bits) and bits.min() >= 0 and bits.max() <= _INFINITY:
            return bits, valid  # most columns: nothing below 0, and no NaN
        bits = (values + 0.0).view(np.int64)  # -0.0 and 0.0 are one value
        signs = bits >> 63
        signs &= GREATEST
        bits ^= signs
        unknown = np.isnan(values)
        return bits, both(valid, ~unknown) if unknown.any() else valid


@dataclass(frozen=True)
class Bound:
    """Bound of an integer x under ``x op (value + plus) / divisor``, as an int64 that x may itself be.

    `op` is one of ``< <= > >= =``, and x is compared with the bound by `inclusive` of it: ``x < 2.5`` is ``x <= 2``,
    ``x > 2.5`` is ``x >= 3``, and ``x = 2.5`` has no valid bound.  For a uint64 x (`unsigned`) the bound is an
    `OrderKey` of that type.
    """

    term: Value
    op: str
    divisor: int = 1
    plus: int = 0
    unsigned: bool = False

    def keys(self, inputs: Inputs, view: RowsOfBlock, numbers: StringIds) -> Keys:
        """Return the bounds of a block's rows, and True for those under which some integer passes."""
        values, valid = values_at(self.term, inputs, view)
        least, greatest = (0, 2**64 - 1) if self.unsigned else (LEAST, GREATEST)
        bounds, possible = _inclusive_bounds(values, self.op, self.divisor, self.plus, least, greatest)
        return bounds, both(valid, possible)


def inclusive(op: str) -> str:
    """Return the operator for the comparison with a `Bound`."""
    return {"<": "<=", ">": ">="}.get(op, op)


@dataclass(frozen=True)
class StringId:
    """The number of a string."""

    column: str

    def keys(self, inputs: Inputs, view: RowsOfBlock, numbers: StringIds) -> Keys:
        """Return the numbers of a block's rows, and which are not NULL."""
        return numbers.of(self.column, view), view.valid(self.column)


@dataclass(frozen=True)
class ExactString:
    """The number of the string of an exact value, which is an int64 or float64 divided by `scale`; NaN is not valid."""

    term: Value
    scale: Fraction

    def keys(self, inputs: Inputs, view: RowsOfBlock, numbers: StringIds) -> Keys:
        """Return the numbers of a block's rows, and which are valid."""
        values, valid = values_at(self.term, inputs, view)
        if values.dtype == np.float64:
            valid = both(valid, ~np.isnan(values))
            values = np.where(np.isnan(values), 0.0, values)
        distinct, rows = np.unique(values, return_inverse=True)
        return numbers.of_strings([self._number_text(value) for value in distinct.tolist()])[rows], valid

    def _number_text(self, value: float) -> str:
        return str(value) if isinstance(value, float) and math.isinf(value) else str(Fraction(value) / self.scale)


@dataclass(frozen=True)
class Truth:
    """1 where a test is TRUE, else 0."""

    test: BoundPredicate

    def keys(self, inputs: Inputs, view: RowsOfBlock, numbers: StringIds) -> Keys:
        """Return the truth of a block's rows."""
        rows = np.broadcast_to(rows_of(self.test, inputs, view), view.n_rows)
        return rows.astype(np.int64), None


@dataclass(frozen=True)
class GridCell:
    """The cell of ``factor * value - shift``, by its number or its least integer; NaN is in none.

    Attributes
    ----------
    term : Value
    factor : int
    shift : Fraction
    width : float or int
        Width of a cell.  An integer, for integers, is a power of 2; a float is `CELL` times that of the band.
    ahead : int
        Cells to go on from there: 1 for the later event.
    """

    term: Value
    factor: int
    shift: Fraction
    width: float | int
    ahead: int

    @property
    def added(self) -> int:
        """The addend of ``factor * value`` of an integer."""
        return self.ahead * int(self.width) - int(self.shift)

    @property
    def begin(self) -> float:
        """The begin of the cells of floats; the later event's is a little before its band, as that was rounded, too."""
        return float(self.shift) / self.width + self.ahead * (CELL - 1) / CELL / 4

    def keys(self, inputs: Inputs, view: RowsOfBlock, numbers: StringIds) -> Keys:
        """Return the cells of a block's rows, and which are valid."""
        values, valid = values_at(self.term, inputs, view)
        if isinstance(self.width, int):
            mask = np.uint64(2**64 - self.width)
            shift = np.uint64(self.added % 2**64)
            cell_numbers = _low_halves(values) * np.uint64(self.factor) + shift
            return (cell_numbers & mask).view(np.int64), valid
        low, high = (values.min(), values.max()) if len(values) else (0, 0)
        if low != low:
            unknown = np.isnan(values)
            valid = both(valid, ~unknown)
            values = np.where(unknown, 0.0, values)
        begin = self.begin
        with np.errstate(over="ignore"):
            cells = values * (self.factor / self.width)
            cells -= begin - self.ahead
        np.floor(cells, out=cells)
        farthest = max(abs(float(low)), abs(float(high))) * self.factor / self.width + abs(begin) + 1
        if not farthest < LAST_CELL:
            np.clip(cells, -LAST_CELL, LAST_CELL, out=cells)
        return cells.astype(np.int64), valid


SideColumn = Raw | OrderKey | Bound | StringId | ExactString | Truth | GridCell


def string_columns(columns: Sequence[SideColumn]) -> list[int]:
    """Return the columns that hold numbers of strings."""
    return [number for number, column in enumerate(columns) if isinstance(column, StringId | ExactString)]


def is_side(column: SideColumn) -> TypeGuard[Raw | OrderKey]:
    """Return True if a device can compute a column: others number strings, or need more than 64 bits."""
    return isinstance(column, Raw | OrderKey) and column.term.dtype != WIDE and not goes_beyond(column.term)


def sides_of(columns: Sequence[SideColumn]) -> Sides:
    """Return the columns that a device can compute."""
    return Sides(tuple((RAW if isinstance(c, Raw) else IN_ORDER, c.term) for c in columns if is_side(c)))


class SideColumns:
    """The columns of one evaluation.

    Parameters
    ----------
    columns
    inputs
        Inputs of their terms.
    numbers
        Numbers of strings, which persist from block to block.

    Attributes
    ----------
    sides : Sides
        Columns that a device can compute.
    """

    def __init__(self, columns: Sequence[SideColumn], inputs: Inputs, numbers: StringIds) -> None:
        self._columns, self._inputs, self._numbers = columns, inputs.fresh(), numbers
        self.sides: Sides = sides_of(columns)
        self._constants = inputs.constant_arrays()
        plain = (_plain(column, number, inputs) for number, column in enumerate(columns))
        self._plain = PlainColumns([each for each in plain if each is not None], LAST_CELL)
        self._memory = Scratch(np.int64, 1 + len(columns))
        self._computed: tuple[Block, npt.NDArray[np.int32], Int64] | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns that `sides` read."""
        return [self._inputs.columns[column.slot][0] for column in self.sides.columns]

    def inputs_of(self, block: Block) -> BlockInputs:
        """Return what a device needs to compute `sides` of a block."""
        return BlockInputs(block.n_rows, self._inputs.stored_of(self.sides.columns, block), self._constants)

    def restart(self, numbers: StringIds) -> None:
        """Continue with another numbering of strings, at another part of the stream."""
        self._numbers, self._computed = numbers, None

    def take(self, block: Block, rows: npt.NDArray[np.int32], sides: Int64) -> None:
        """Take what a device computed for the relevant rows of a block, ascending (`SelectedWithSides.sides`)."""
        self._computed = block, rows, sides

    def of(
        self, block: Block, rows: npt.NDArray[np.int32], columns: Int64 | None = None, *, by_columns: bool = False
    ) -> Int64:
        """Compute the columns of some rows of a block; those computed by a device are 0 in rows that are not relevant.

        Parameters
        ----------
        block
        rows
        columns : int64, shape (n rows, 1 + n columns), optional
            Memory for the result.
        by_columns
            True: the numbers of a column are neighbours in memory, where no device computes them.

        Returns
        -------
        int64 array, shape (n rows, 1 + n columns), valid until the next call
            First the bits of the valid columns (bit k: column k), then the columns.
        """
        computed = self._computed_at(block, rows)
        if computed is not None and len(self.sides.values) == len(self._columns):
            return computed
        view = RowsOfBlock(block, rows)
        if columns is None:
            columns = self._memory.empty(len(rows))
            columns = columns.reshape(columns.shape[::-1]).T if by_columns else columns
        filled = self._plain.fill(view, columns) if computed is None else 0
        valid_bits: Any = 0
        n_sides = 0
        for number, column in enumerate(self._columns):
            if filled >> number & 1:
                continue
            if computed is not None and is_side(column):
                columns[:, 1 + number] = computed[:, 1 + n_sides]
                valid_bits = valid_bits | (computed[:, 0] >> n_sides & 1) << number
                n_sides += 1
                continue
            keys, valid = column.keys(self._inputs, view, self._numbers)
            columns[:, 1 + number] = keys
            valid_bits = valid_bits | (1 << number if valid is None else valid.astype(np.int64) << number)
        if not filled:
            columns[:, 0] = valid_bits
        elif isinstance(valid_bits, np.ndarray) or valid_bits:
            columns[:, 0] |= valid_bits
        return columns

    def _computed_at(self, block: Block, rows: npt.NDArray[np.int32]) -> Int64 | None:
        """Return the columns that a device computed, at some rows, or None if it computed none."""
        if self._computed is None or self._computed[0] is not block:
            return None
        _, computed_rows, sides = self._computed
        if np.array_equal(rows, computed_rows):
            return sides
        result = np.zeros((len(rows), sides.shape[1]), np.int64)
        relevant = np.isin(rows, computed_rows, assume_unique=True)
        result[relevant] = sides[np.searchsorted(computed_rows, rows[relevant])]
        return result


def _plain(column: SideColumn, number: int, inputs: Inputs) -> PlainColumn | None:
    """Return a column as one that reads one number, or None if it reads others, or more."""
    affine = affine_in(column.term, inputs) if isinstance(column, Raw | OrderKey | GridCell) else None
    if affine is None:
        return None
    read, factor, plus = affine
    name = inputs.columns[read.slot][0]
    if read.dtype == F8:
        if not isinstance(column, GridCell):
            kind = k.IN_FLOATS if isinstance(column, Raw) else k.IN_ORDER
            return PlainColumn(number, name, F8, kind, scales=(factor, plus, 0.0, 0.0))
        cell = column.factor / column.width, column.begin - column.ahead
        return PlainColumn(number, name, F8, k.IN_CELLS, scales=(factor, plus, *cell))
    integers = factor, plus, -1
    if isinstance(column, GridCell):
        integers = factor * column.factor, plus * column.factor + column.added, -int(column.width)
    return PlainColumn(number, name, I8, k.IN_INTEGERS, integers)


def values_at(term: Value, inputs: Inputs, view: RowsOfBlock) -> tuple[npt.NDArray[Any], Bools | None]:
    """Return the values of a term as int64, uint64 or float64, and a mask of those that are not NULL."""
    values, valid = values_of(term, inputs, view)
    values = np.asarray(values)
    kind: Any = {"f": np.float64, "u": np.uint64, "O": object}.get(values.dtype.kind, np.int64)
    if kind == np.uint64 and values.dtype.itemsize < 8:
        kind = np.int64
    return np.broadcast_to(values.astype(kind, copy=False), view.n_rows), valid


def _to_int64(values: npt.NDArray[Any], valid: Bools | None) -> Int64:
    """Return Python's integers as int64; 0 for NULL.

    Raises
    ------
    EventsError
        When one does not fit.
    """
    integers = values if valid is None else np.where(valid, values, 0)
    beyond = (integers < LEAST) | (integers > GREATEST)
    if beyond.any():
        raise EventsError(
            f"a join predicate compares integers that it computes of each, and {integers[beyond.argmax()]} of an "
            "event is beyond int64; compute with floats: 1.0 * a.x * a.y"
        )
    return integers.astype(np.int64)


def _low_halves(values: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return the low 64 bits of integers."""
    if values.dtype == object:
        return (values & (2**64 - 1)).astype(np.uint64)
    return values.astype(np.int64).view(np.uint64)


def _as_int64(values: npt.NDArray[Any]) -> Int64:
    return np.ascontiguousarray(values).view(np.int64)


def _inclusive_bounds(
    values: npt.NDArray[Any], op: str, divisor: int, plus: int, least: int, greatest: int
) -> tuple[Int64, Bools | None]:
    """Return for ``x op (value + plus) / divisor`` the inclusive bounds of x, and where any x can pass.

    Integers x lie in ``least .. greatest``: int64, or uint64, whose bounds are returned as `OrderKey` has them.
    """
    if values.dtype == np.float64:
        return _float_bounds(values, op, least, greatest)
    exact = values.astype(object) if _may_overflow(values, plus) else values
    total = exact + plus
    floor = total // divisor
    whole = floor * divisor == total
    bound = floor
    if op == "<":
        bound = floor - whole
    elif op == ">":
        bound = floor + 1
    elif op == ">=":
        bound = floor + ~whole.astype(np.bool_)
    return _clip(bound, op, least, greatest, whole if op == "=" else None)


def _may_overflow(values: npt.NDArray[Any], plus: int) -> bool:
    """Return True if adding `plus`, or 1, may leave the integers of 64 bits."""
    if not len(values):
        return False
    low, high = int(values.min()) + min(plus, 0) - 1, int(values.max()) + max(plus, 0) + 1
    return low < LEAST or high > GREATEST or values.dtype == np.uint64


def _float_bounds(values: npt.NDArray[Any], op: str, least: int, greatest: int) -> tuple[Int64, Bools | None]:
    is_number = ~np.isnan(values)
    floor = np.floor(np.where(is_number, values, 0.0))
    whole = floor == np.where(is_number, values, 0.0)
    # beyond the integers every bound is one side of all of them; 2.0**63 and 2.0**64 are exact
    inside = (floor >= float(least)) & (floor < float(greatest + 1))
    bound = np.where(inside, floor, 0.0)
    integers: Any
    if least < 0 and inside.all() and not (bound == float(least)).any():
        integers = bound.astype(np.int64)
    else:
        beyond = np.where(floor > 0, np.array(2**65, object), np.array(-(2**65), object))
        integers = np.where(inside, np.array([int(b) for b in bound], object), beyond)
    if op == "<":
        integers = integers - (whole & inside)
    elif op == ">":
        integers = integers + 1
    elif op == ">=":
        integers = integers + ~whole
    bounds, possible = _clip(integers, op, least, greatest, whole & inside if op == "=" else None)
    return bounds, both(possible, is_number)


def _clip(
    bounds: npt.NDArray[Any], op: str, least: int, greatest: int, equal: Bools | None
) -> tuple[Int64, Bools | None]:
    """Return bounds within ``least .. greatest``, and where an integer can pass."""
    if bounds.dtype == np.int64:
        if least < 0:
            return bounds, equal
        bounds = bounds.astype(object)
    if op in ("<", "<="):
        possible = bounds >= least
    elif op in (">", ">="):
        possible = bounds <= greatest
    else:
        possible = (bounds >= least) & (bounds <= greatest)
    possible = possible.astype(np.bool_)
    limited = np.where(bounds < least, least, np.where(bounds > greatest, greatest, bounds))
    shifted = limited - 2**63 if least == 0 else limited
    return shifted.astype(np.int64), both(possible, None if equal is None else equal.astype(np.bool_))
