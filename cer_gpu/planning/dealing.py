"""Whether the events of a query can be dealt to several evaluations that together find what one finds."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Clauses:
    """What of a query decides how its events may be dealt to several processes.

    Attributes
    ----------
    keys
        Of PARTITION BY: the names in each bracket.
    strategy, consume
    window
        None, "events", "time" or "attribute".
    window_column
        Of WITHIN n [attribute].
    limit
    """

    keys: tuple[tuple[str, ...], ...]
    strategy: str
    consume: str
    window: str | None
    window_column: str | None
    limit: int | None


def against_keys(clauses: Clauses) -> str | None:
    """Return why the events cannot be dealt by key; None: they can, exactly."""
    if not clauses.keys:
        return "the query has no PARTITION BY"
    if clauses.consume == "ANY":
        return "CONSUME BY ANY forgets what all partitions have read"
    return None


def against_ranges(clauses: Clauses) -> str | None:
    """Return why ranges with the window before them are not exact; None: they are."""
    if clauses.window is None:
        return "the query has no WITHIN, so that a complex event may begin anywhere before"
    if clauses.window == "events" and clauses.keys:
        return "WITHIN n EVENTS counts the events of a partition, which may lie anywhere before"
    if clauses.strategy in ("NEXT", "LAST", "MAX"):
        return f"{clauses.strategy} compares with complex events that may begin before the window"
    if clauses.strategy == "ANY" or clauses.limit is not None:
        what = "ANY" if clauses.strategy == "ANY" else "LIMIT"
        return f"{what} keeps the first of an order that depends on the events before the window"
    if clauses.consume != "NONE":
        return f"CONSUME BY {clauses.consume} depends on what was found before"
    return None


def of_threads(clauses: Clauses) -> tuple[str, str | None]:
    """Return what threads are dealt, "range" or "partition", or "one" and why one thread evaluates everything."""
    by_range = against_ranges(clauses)
    if by_range is None:
        return "range", None
    return ("partition", None) if against_keys(clauses) is None else ("one", by_range)


def at_or_before(value: float, length: float) -> float:
    """Return a number that is not above any from which `value` is at most `length` away, however that is rounded."""
    return value - length - 4 * sys.float_info.epsilon * max(abs(value), abs(length))
