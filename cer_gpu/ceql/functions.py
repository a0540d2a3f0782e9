"""Functions of CEQL by their names: scalar functions of one event's values, aggregates of measures, OVER aggregates.

A new OVER aggregate is a record here (`OVER_AGGREGATES`), and a statistic of the kernel of its state
(`cer_gpu.backend.over`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cer_gpu.ceql.patterns import STRING_TESTS

SCALAR: dict[str, tuple[int, int | None]] = {
    "abs": (1, 1),
    "round": (1, 2),
    "lower": (1, 1),
    "upper": (1, 1),
    "length": (1, 1),
    "minute": (1, 1),
    "hour": (1, 1),
    "day": (1, 1),
    "weekday": (1, 1),
    "week": (1, 1),
    "month": (1, 1),
    "year": (1, 1),
    "date": (1, 1),
    "trunc": (2, 2),
    "concat": (1, None),
    "substring": (2, 3),
    "between": (3, 4),
    "indexof": (2, 3),
    "number": (1, 2),
    "string": (1, 1),
    "startswith": (2, None),
    "endswith": (2, None),
    "contains": (2, None),
}
"""Least and most operands of each scalar function (None: any number).

The last one of ``round`` is a whole number, and of ``trunc`` a unit of time.
"""

TESTS = ("startswith", "endswith", "contains")
"""Scalar functions that return TRUE or FALSE, and may be used as predicates."""

AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "LIST")
"""Functions over the events that a variable holds."""


class OverValues(Enum):
    """Values that an OVER aggregate takes, with the words for them in messages."""

    EVENTS = "events, or values of any type"
    SINGLE = "single values"
    ORDERED = "numbers, times or strings"
    SUMMABLE = "numbers, booleans or durations"
    NUMBERS = "numbers"


class OverResult(Enum):
    """Type of the results of an OVER aggregate."""

    INTEGER = "int64"
    VALUE = "the type of the values"
    SUM = "the type of a sum of the values"
    FLOAT = "float64"


class OverState(Enum):
    """Entries of the window that an OVER aggregate stores, in the words of `explain`."""

    TIMESTAMPS = "its events"
    DISTINCT = "the distinct values of its events"
    LEAST = "those of its events that are least"
    GREATEST = "those of its events that are greatest"
    SUMS = "the values of its events"


# statistics of `OverState.SUMS`, for the kernel; those from VARIANCE on read the sums of the squares
SUM, MEAN, VARIANCE, DEVIATION = range(4)


@dataclass(frozen=True)
class OverFunction:
    """An aggregate over an event and those before it: ``SUM(R.a) OVER 1 HOUR``.

    Attributes
    ----------
    takes : OverValues
    gives : OverResult
    state : OverState
    statistic : int
        Code for the kernel of `OverState.SUMS`: SUM, or another of these.
    empty : int or None
        Result over no value, or None for NULL.
    """

    takes: OverValues
    gives: OverResult
    state: OverState
    statistic: int = SUM
    empty: int | None = None

    @property
    def counts_events(self) -> bool:
        """True if it needs no attribute."""
        return self.takes is OverValues.EVENTS


OVER_AGGREGATES = {
    "COUNT": OverFunction(OverValues.EVENTS, OverResult.INTEGER, OverState.TIMESTAMPS, empty=0),
    "COUNT DISTINCT": OverFunction(OverValues.SINGLE, OverResult.INTEGER, OverState.DISTINCT, empty=0),
    "SUM": OverFunction(OverValues.SUMMABLE, OverResult.SUM, OverState.SUMS, SUM),
    "AVG": OverFunction(OverValues.NUMBERS, OverResult.FLOAT, OverState.SUMS, MEAN),
    "MIN": OverFunction(OverValues.ORDERED, OverResult.VALUE, OverState.LEAST),
    "MAX": OverFunction(OverValues.ORDERED, OverResult.VALUE, OverState.GREATEST),
    "STDDEV": OverFunction(OverValues.NUMBERS, OverResult.FLOAT, OverState.SUMS, DEVIATION),
    "VARIANCE": OverFunction(OverValues.NUMBERS, OverResult.FLOAT, OverState.SUMS, VARIANCE),
}
"""OVER aggregates, by their names."""

OVER_NAMES = tuple(name for name in OVER_AGGREGATES if " " not in name)
"""Names of OVER aggregates that may come before parentheses."""

NO_EVENT_WITHIN = "CLEAR"
"""The test that no event comes before, for an absence counted back."""

DESCENDANT = "DESCENDANT"
"""The test that an ancestor of the event's process satisfied a condition before."""

RISES = "RISES"
"""``RISES(p, q)``: the test that p begins to hold at an event that satisfies q."""

EVENTS = ("FIRST", "LAST", "PREV")
"""Words that choose an event of a variable: ``FIRST(x).a``."""

LAG = "LAG"
"""``LAG(a, n)``: the attribute of the event n before in the stream."""

ANY_OF = "ANY"
"""``ANY(list) = v``: a test of the elements of a list."""

TRUTHS = tuple(name for name, test in STRING_TESTS.items() if test.call)
"""Functions that are predicates: ``CIDR(ip, '10.0.0.0/8')``."""

EMPTY = {name: function.empty for name, function in OVER_AGGREGATES.items()} | {RISES: False, DESCENDANT: False}
"""Values of OVER aggregates and tests of earlier events where no event counts; None for NULL."""

NAMES = (*EVENTS, LAG, *AGGREGATES, *SCALAR, *TRUTHS, ANY_OF)
"""All names that may come before parentheses in an expression."""


def numbered_operands(n_min: int, n_max: int | None) -> str:
    """Return how many operands a function takes, as `SCALAR` has it.

    Examples
    --------
    >>> numbered_operands(1, 1), numbered_operands(2, 3), numbered_operands(2, None)
    ('one operand', 'two or three operands', 'two operands or more')
    """
    words = ("no", "one", "two", "three", "four")
    if n_max is not None and n_max != n_min:
        return f"{words[n_min]} or {words[n_max]} operands"
    return f"{words[n_min]} operand{'s' * (n_min > 1)}{' or more' * (n_max is None)}"
