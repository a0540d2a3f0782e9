"""Sets of values of one kind, as unions of intervals between constants."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

MAX_INTERVALS = 256
"""Most intervals of a set; a set of more is not looked at."""


class Interval(NamedTuple):
    """ValueSet from `low` to `high`, without those if open; None: no bound."""

    low: Any
    low_open: bool
    high: Any
    high_open: bool

    @property
    def is_empty(self) -> bool:
        """True if no value lies in it."""
        if self.low is None or self.high is None:
            return False
        return bool(self.low > self.high or (self.low == self.high and (self.low_open or self.high_open)))


@dataclass(frozen=True)
class ValueSet:
    """A set of values.

    Attributes
    ----------
    intervals : tuple of Interval
    nan : bool
        True if NaN is in it.
    """

    intervals: tuple[Interval, ...]
    nan: bool = False

    def __bool__(self) -> bool:
        """Return True if there are values in it."""
        return bool(self.intervals) or self.nan

    def meet(self, other: ValueSet) -> ValueSet:
        """Return the values that are in both sets."""
        both = (_both(mine, its) for mine in self.intervals for its in other.intervals)
        return _value_set(both, self.nan and other.nan)

    def join(self, other: ValueSet) -> ValueSet | None:
        """Return the values that are in one of the sets; None: too many intervals."""
        joined = tuple(dict.fromkeys((*self.intervals, *other.intervals)))
        return ValueSet(joined, self.nan or other.nan) if len(joined) <= MAX_INTERVALS else None

    def of_integers(self, least: int | None = None, most: int | None = None) -> ValueSet:
        """Return the values that are whole numbers from `least` to `most`."""
        between = Interval(least, False, most, False)
        return _value_set(_both(_whole_numbers(each), between) for each in self.intervals)


def values_that_are(op: str, constant: Any) -> ValueSet:
    """Return the values that are ``= <> < <= > >=`` a constant."""
    below, above = Interval(None, False, constant, True), Interval(constant, True, None, False)
    point = Interval(constant, False, constant, False)
    return {
        "=": ValueSet((point,)),
        "<>": ValueSet((below, above)),
        "<": ValueSet((below,)),
        "<=": ValueSet((Interval(None, False, constant, False),)),
        ">": ValueSet((above,)),
        ">=": ValueSet((Interval(constant, False, None, False),)),
    }[op]


def one_of(constants: Iterable[Any], *, negated: bool = False) -> ValueSet:
    """Return the values that are among constants, or not among them."""
    points = sorted(set(constants))
    if not negated:
        return ValueSet(tuple(Interval(point, False, point, False) for point in points))
    ends = [None, *points, None]
    return ValueSet(tuple(Interval(low, True, high, True) for low, high in itertools.pairwise(ends)))


def _value_set(intervals: Iterable[Interval], nan: bool = False) -> ValueSet:
    return ValueSet(tuple(dict.fromkeys(each for each in intervals if not each.is_empty)), nan)


def _both(one: Interval, other: Interval) -> Interval:
    """Return the values in two intervals."""
    low, low_open = one.low, one.low_open
    if other.low is not None and (low is None or other.low > low or (other.low == low and other.low_open)):
        low, low_open = other.low, other.low_open
    high, high_open = one.high, one.high_open
    if other.high is not None and (high is None or other.high < high or (other.high == high and other.high_open)):
        high, high_open = other.high, other.high_open
    return Interval(low, low_open, high, high_open)


def _whole_numbers(interval: Interval) -> Interval:
    """Return the whole numbers in an interval of numbers."""
    low, high = interval.low, interval.high
    if low is not None:
        low = math.floor(low) + 1 if interval.low_open else math.ceil(low)
    if high is not None:
        high = math.ceil(high) - 1 if interval.high_open else math.floor(high)
    return Interval(None if low is None else Fraction(low), False, None if high is None else Fraction(high), False)
