"""Bands: differences of values of two events that filters bound from both sides, and the cells of a grid for them.

A filter ``b.x BETWEEN a.x - c AND a.x + d`` holds only for events of the same cell or of neighbouring ones, if a
cell is as wide as the band.  Equal cells are found by a hash index; the filter itself decides.

Integers, decimals and times have cells of 2**k units, in 64 bits that wrap around: all of their arithmetic does, so
that a band is never torn.  Floats have cells a quarter wider than the band, which is more than rounding can add; all
from the cell `LAST_CELL` on are in that one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pyarrow as pa

from cer_gpu.columnar.fields import attribute_type
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.inputs import FLOATS, Inputs
from cer_gpu.expressions.side_columns import CELL, GridCell

_GREATEST = 2**59
"""Least absolute value of a constant, and least width of a band of integers, that is too great for a grid."""
_NARROW = ("i1", "i2", "i4", "u1", "u2", "u4", t.BIT)
"""Integers whose sums with constants do not wrap around."""

_Place = tuple[Any, t.Value]
"""A value of an event, by the name of the event."""


@dataclass(frozen=True)
class Difference:
    """``least <= factor * value - other_factor * other <= greatest``, of two events; but for rounding, if in floats.

    Attributes
    ----------
    event, other_event
        Names of the events (`OfEvent.event`).
    value, other : Value
        Over the columns of the event.
    factor, other_factor : int
    least, greatest : Fraction or None
        None if there is no bound.
    in_floats : bool
        True if the filter computes in floats.
    constants : Fraction
        Sum of the absolute values of the constants that it adds.
    wrapping : tuple of (event, Value)
        Sums of integers of 64 bits, which may wrap around.
    wraps_all : bool
        True if all of its constants are in such sums.
    stands_in : bool
        True for one of decimals as floats, which another one of them exactly implies.
    """

    event: Any
    value: t.Value
    factor: int
    other_event: Any
    other: t.Value
    other_factor: int
    least: Fraction | None
    greatest: Fraction | None
    in_floats: bool
    constants: Fraction
    wrapping: tuple[_Place, ...]
    wraps_all: bool
    stands_in: bool = False

    def mirror(self) -> Difference:
        """Return the same for the negative difference."""
        return replace(
            self,
            event=self.other_event,
            value=self.other,
            factor=self.other_factor,
            other_event=self.event,
            other=self.value,
            other_factor=self.factor,
            least=None if self.greatest is None else -self.greatest,
            greatest=None if self.least is None else -self.least,
        )

    @property
    def form(self) -> Any:
        """Sums that wrap around: the event of all of them, or themselves if they are of two, or None if none does."""
        events = {event for event, _ in self.wrapping}
        return None if not events else self.wrapping if len(events) > 1 else events.pop()


@dataclass(frozen=True)
class Band:
    """A difference of a later event's value and an earlier one's, bounded from both sides, as cells of a grid.

    Attributes
    ----------
    earlier, later : GridCell
        Columns.  The band holds only where the later cell is the earlier one, or that plus `step`.
    step : int
    """

    earlier: GridCell
    later: GridCell
    step: int


def differences(test: t.BoundPredicate, inputs: Inputs, of_event: Inputs) -> Iterator[Difference]:
    """Yield the differences of two events that a test bounds if it is TRUE.

    Parameters
    ----------
    test
    inputs
        With the constants of the test.
    of_event
        With the constants of the values of its events.
    """
    if isinstance(test, t.And):
        for each in test.tests:
            yield from differences(each, inputs, of_event)
    if not isinstance(test, t.Compare):
        return
    in_floats = t.F8 in (test.left.dtype, test.right.dtype)
    op = t.OPPOSITE[test.op] if test.negated else test.op
    if op == "<>" or (test.negated and in_floats):
        return  # NOT (NaN < 1) is TRUE
    left, right = test.left, test.right
    if _is_absolute(right):
        left, right, op = right, left, t.MIRRORED[op]
    absolute = _is_absolute(left)
    if absolute:
        if op not in ("<", "<="):
            return
        assert isinstance(left, t.Apply)
        left = left.operands[0]
    one, other = _Linear(inputs, of_event, in_floats), _Linear(inputs, of_event, in_floats)
    one.add(left, None, Fraction(1))
    other.add(right, None, Fraction(1))
    sums_fit = one.magnitude + other.magnitude < 8 * _GREATEST
    if not (one.fits and other.fits and sums_fit):
        return
    if absolute and (other.coefficients or one.wrapping):
        return  # the absolute value of the least integer is below 0
    places = one.less(other)
    if places is None:
        return
    bound = other.constant - one.constant
    least = bound if op in ("=", ">", ">=") else -other.constant - one.constant if absolute else None
    (first, factor), (second, negative) = places
    difference = Difference(
        *first,
        int(factor),
        *second,
        int(-negative),
        least,
        bound if op in ("=", "<", "<=") else None,
        in_floats,
        one.magnitude + other.magnitude,
        (*one.wrapping, *other.wrapping),
        one.wraps_all and other.wraps_all,
    )
    yield difference
    digits = _decimal_digits(difference, of_event)
    if digits is not None:
        yield _as_floats(difference, digits, of_event)


def _decimal_digits(difference: Difference, inputs: Inputs) -> int | None:
    """Return the digits after the decimal point of an exact difference of decimals, or None if it is not one."""
    scales = []
    for value, factor in ((difference.value, difference.factor), (difference.other, difference.other_factor)):
        if difference.in_floats or not isinstance(value, t.Column):
            return None
        data_type = attribute_type(inputs.schema, inputs.columns[value.slot][0])
        if data_type is None or not pa.types.is_decimal(data_type):
            return None
        scales.append(data_type.scale + len(str(factor)) - 1)  # factors are powers of 10
    return scales[0] if scales[0] == scales[1] else None


def _as_floats(difference: Difference, digits: int, inputs: Inputs) -> Difference:
    """Return a difference of decimals as floats, which bounds of other filters may be for."""
    value, other = (
        inputs.column(inputs.columns[column.slot][0], FLOATS)
        for column in (difference.value, difference.other)
        if isinstance(column, t.Column)
    )
    least, greatest = (
        None if bound is None else bound / 10**digits for bound in (difference.least, difference.greatest)
    )
    return replace(
        difference,
        value=value,
        factor=1,
        other=other,
        other_factor=1,
        least=least,
        greatest=greatest,
        in_floats=True,
        stands_in=True,
    )


def _is_absolute(value: t.Value) -> bool:
    return isinstance(value, t.Apply) and value.op == "abs"


class _Linear:
    """A sum of values of events, each times a number, and a constant.

    Attributes
    ----------
    coefficients : dict from (event, Value) to Fraction
    constant : Fraction
    magnitude : Fraction
        Sum of the absolute values of the constants.
    wrapping : list of (event, Value)
        Sums of integers of 64 bits.
    wraps_all : bool
        False if a constant is in none of them.
    fits : bool
        False: a grid cannot serve it.
    """

    def __init__(self, inputs: Inputs, of_event: Inputs, in_floats: bool) -> None:
        self._inputs, self._of_event, self._in_floats = inputs, of_event, in_floats
        self.coefficients: dict[_Place, Fraction] = {}
        self.constant = self.magnitude = Fraction(0)
        self.wrapping: list[_Place] = []
        self.fits = self.wraps_all = True

    def add(self, value: t.Value, event: Any, factor: Fraction, *, wraps: bool = False) -> None:
        """Add a value times a factor; `wraps` if it is part of a sum that may wrap around."""
        match value:
            case t.OfEvent():
                self.add(value.operand, value.event, factor, wraps=wraps)
            case t.Constant():
                inputs = self._inputs if event is None else self._of_event
                number = inputs.constants[value.dtype][value.slot]
                self.fits = self.fits and abs(number) < _GREATEST
                if self.fits:
                    self.constant += factor * Fraction(number)
                    self.magnitude += abs(factor * Fraction(number))
                    self.wraps_all = self.wraps_all and (wraps or not number)
            case t.ToFloat() | t.ToWide() if not (self._in_floats and isinstance(value.operand, t.Apply)):
                self.add(value.operand, event, factor * getattr(value, "factor", 1), wraps=wraps)
            case t.Apply(op="+" | "-" | "negative") if not (self._in_floats and value.dtype == t.I8):
                wraps = self._note(value, event) or wraps
                signs = (-1,) if value.op == "negative" else (1, 1 if value.op == "+" else -1)
                for sign, operand in zip(signs, value.operands, strict=True):
                    self.add(operand, event, factor * sign, wraps=wraps)
            case _:
                self.fits = self.fits and event is not None and not isinstance(value, t.Text)
                self.coefficients[event, value] = self.coefficients.get((event, value), Fraction(0)) + factor

    def _note(self, value: t.Apply, event: Any) -> bool:
        """Note a sum of integers if it may wrap around, and return whether it may."""
        inner = {part for part in t.parts(value) if isinstance(part, t.Column) or _is_product(part)}
        if value.dtype != t.I8 or all(isinstance(part, t.Column) and part.stored in _NARROW for part in inner):
            return False
        events = [event] if event is not None else [p.event for p in t.parts(value) if isinstance(p, t.OfEvent)]
        self.wrapping += [(each, value) for each in events]
        return True

    def less(self, other: _Linear) -> list[tuple[_Place, Fraction]] | None:
        """Return the values of this less another, the positive one first, or None if not two, of two events."""
        for place, factor in other.coefficients.items():
            self.coefficients[place] = self.coefficients.get(place, Fraction(0)) - factor
        places = [(place, factor) for place, factor in self.coefficients.items() if factor]
        if len(places) != 2 or any(factor.denominator != 1 for _, factor in places):
            return None
        (one, first), (two, second) = places
        if one[0] == two[0] or first * second > 0:
            return None
        return places if first > 0 else places[::-1]


def _is_product(value: t.Value | t.BoundPredicate) -> bool:
    return isinstance(value, t.Apply) and value.op not in ("+", "-", "negative")


def bands(bounded: Iterable[Difference]) -> list[Band]:
    """Return the bands of differences of later events' values and earlier ones', of one pair of events.

    Parameters
    ----------
    found
        The later event's value comes first in each.
    """
    together: dict[tuple[Any, ...], list[Difference]] = {}
    for each in bounded:
        values = each.value, each.factor, each.other, each.other_factor
        together.setdefault(values, []).append(each)
    result = []
    for bounds in together.values():
        if not all(each.stands_in for each in bounds):
            result += list(filter(None, map(_band, _alike(bounds))))[:1]
    return result


def _alike(bounds: list[Difference]) -> Iterator[list[Difference]]:
    """Yield the bounds of one difference that hold together, of the numbers themselves or as they wrap around.

    The first of ``a.x + 1`` and ``a.x + 5`` wraps around only if the second does, and a band of both wraps, too.  With
    constants at the other side this need not be so: ``b.x - 3 <= a.x + 1`` and ``b.x >= a.x``.
    """
    if any(each.in_floats for each in bounds):
        yield [each for each in bounds if each.in_floats or each.form is None]
    integers = [each for each in bounds if not each.in_floats]
    for form in dict.fromkeys(each.form for each in integers if each.form is not None) or [None]:
        sums = [each for each in integers if form is not None and each.form == form]
        if isinstance(form, tuple):
            yield sums  # one sum, between two constants
            continue
        plain = [each for each in integers if each.form is None]
        yield plain + sums if not sums or all(each.wraps_all for each in plain + sums) else plain


def _band(bounds: list[Difference]) -> Band | None:
    """Return the band of bounds of one difference, or None if there is none, or a grid cannot serve it."""
    leasts = [each.least for each in bounds if each.least is not None]
    greatests = [each.greatest for each in bounds if each.greatest is not None]
    if not leasts or not greatests or max(leasts) > min(greatests):
        return None
    one, least, greatest = bounds[0], max(leasts), min(greatests)
    step: int
    width: float | int
    if any(each.in_floats for each in bounds):
        width, step = float(greatest - least) * CELL, 1
        rounded = max(*(each.constants for each in bounds), Fraction(0))
        if not math.isfinite(width) or width < 2.0**-1000 or rounded / Fraction(width) > 2**40:
            return None
    else:
        greatest = Fraction(math.floor(greatest))
        units = int(greatest) - math.ceil(least)
        if units < 0 or units >= _GREATEST:
            return None
        width = step = 1 << units.bit_length()
    earlier = GridCell(one.other, one.other_factor, Fraction(0), width, 0)
    return Band(earlier, GridCell(one.value, one.factor, greatest, width, 1), step)
