"""Functions of CEQL by their names: scalar functions of one event's values, and aggregates of measures."""

from __future__ import annotations

from cer_gpu.ceql.patterns import TEXT_TESTS

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
"""Least and most operands of each scalar function (None: any number); that of ``round`` is a whole number."""

TESTS = ("startswith", "endswith", "contains")
"""Scalar functions that give TRUE or FALSE, and may stand where a predicate does."""

AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "LIST")
"""Functions over the events that a variable holds."""

OVER_AGGREGATES = ("COUNT", "COUNT DISTINCT", "SUM", "AVG", "MIN", "MAX", "STDDEV")
"""Aggregates over the events before: ``SUM(R.a) OVER 1 HOUR``."""

NO_EVENT_WITHIN = "CLEAR"
"""The test that no event lies before, which an absence counted back stands for."""

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

TRUTHS = tuple(name for name, test in TEXT_TESTS.items() if test.call)
"""Functions that are predicates: ``CIDR(ip, '10.0.0.0/8')``."""

NAMES = (*EVENTS, LAG, *AGGREGATES, *SCALAR, *TRUTHS, ANY_OF)
"""All names that may stand before parentheses in an expression."""


def numbered_operands(least: int, most: int | None) -> str:
    """Return how many operands a function takes, as `SCALAR` has it.

    Examples
    --------
    >>> numbered_operands(1, 1), numbered_operands(2, 3), numbered_operands(2, None)
    ('one operand', 'two or three operands', 'two operands or more')
    """
    words = ("no", "one", "two", "three", "four")
    if most is not None and most != least:
        return f"{words[least]} or {words[most]} operands"
    return f"{words[least]} operand{'s' * (least > 1)}{' or more' * (most is None)}"
