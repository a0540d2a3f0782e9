"""What lies before an event, by the definitions: OVER aggregates, and absence counted back.

Both read the events of the substream back from an event, which each knows (`BEFORE`), and do not see how a stream is
cut for its windows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

Event = dict[str, Any]
BEFORE = "$before"  # key of an event: the event before it in its stream or substream
TIME = "ts"


@dataclass(frozen=True)
class Over:
    """`function(type.of FILTER condition) OVER within`; `type` None: any (`*`); `of` None: COUNT of events.

    `of` is an `Attr`. In a filter between events `variable` holds the event that it is of.
    """

    function: str
    type: str | None
    of: Any
    condition: Any
    within: tuple[Any, ...]
    variable: str | None = None
    itself: bool = True


@dataclass(frozen=True)
class AbsentFor:
    """`!R FOR within`: `event` is a formula of one event, as those of `Seq`."""

    event: Any
    within: tuple[Any, ...]


@dataclass(frozen=True)
class Preceded:
    """`!R FOR d ; f`."""

    absent: tuple[AbsentFor, ...]
    body: Any


def attribute(event: Event, name: str) -> Any:
    """Return the value of an attribute, None for NULL."""
    value: Any = event
    for part in name.split("."):
        value = None if value is None else value.get(part)
    return value


def within_reach(event: Event, within: tuple[Any, ...]) -> Iterator[Event]:
    """Yield an event, and those before it that are no further back than a length, the latest first."""
    before: Event | None = event
    steps = 0
    while before is not None:
        match within:
            case ("events", n):
                distance = steps
            case ("time", n):
                distance = event[TIME] - before[TIME]
            case ("attribute", n, name):
                distance = attribute(event, name) - attribute(before, name)
        if distance > n:
            return
        yield before
        before, steps = before.get(BEFORE), steps + 1


def clear_before(absent: Sequence[AbsentFor], event: Event, is_such: Callable[[Any, Event], Any]) -> bool:
    """Return True if none of the events that must be absent lies strictly before an event, within its length."""
    return not any(
        is_such(each.event, earlier)
        for each in absent
        for earlier in itertools.islice(within_reach(event, each.within), 1, None)
    )


def aggregated(function: str, values: Sequence[Any]) -> Any:
    """Return an aggregate of values that are not NULL, None for NULL."""
    if function == "COUNT":
        return len(values)
    if function == "COUNT DISTINCT":
        return len({"NaN" if value != value else value for value in values})
    if len(values) < (2 if function in ("STDDEV", "VARIANCE") else 1):
        return None
    if function in ("MIN", "MAX"):
        known = [value for value in values if value == value] or list(values)  # NaN only where there is nothing else
        return min(known) if function == "MIN" else max(known)
    if function in ("STDDEV", "VARIANCE"):
        return deviation([float(value) for value in values], squared=function == "VARIANCE")
    total = exact_sum(values)
    if function == "AVG":
        return float(total) / len(values)
    return total


def exact_sum(values: Sequence[Any]) -> Any:
    """Return the sum: of floats the nearest float, with the rules of infinities and NaN."""
    if all(isinstance(value, int | Decimal) for value in values):
        return sum(values)
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return sum(value for value in values if not math.isfinite(value))
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.copysign(math.inf, total)


def deviation(values: Sequence[float], *, squared: bool) -> float:
    """Return the standard deviation of a sample, or its square, the variance, from its exact sums."""
    if not all(map(math.isfinite, values)):
        return math.nan
    exact, n = [Fraction(value) for value in values], len(values)
    spread = (n * sum(value * value for value in exact) - sum(exact) ** 2) / (n * (n - 1))
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 60, 10**6, -(10**6)
        variance = Decimal(spread.numerator) / Decimal(spread.denominator)
        return float(variance if squared else variance.sqrt())


def descends(
    events: Sequence[Event], at: int, process: Any, ids: tuple[str, str], marks: Callable[[Event], bool]
) -> bool:
    """Return True if events up to one tell that a process has an ancestor that an event before marked.

    An event with the ids of a process and of its parent tells that the process descends if an event before it marks the
    parent, or those before it tell that the parent descends.
    """
    if process is None:
        return False
    for j in range(at + 1):
        own, parent = (attribute(events[j], name) for name in ids)
        if own != process or parent is None:
            continue
        marked = any(attribute(events[k], ids[0]) == parent and marks(events[k]) for k in range(j))
        if marked or descends(events, j - 1, parent, ids, marks):
            return True
    return False
