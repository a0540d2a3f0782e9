"""Tests of one event: can several be true of the same event?  Types and ``*``, streams, NOT decide.

All that depends on this calls `may_be_one`, or `are_apart` for many tests: which patterns have one path for each match,
so that no duplicates need be removed; which sides of ``ALL`` can share an event; which columns distribute events.
An event has one type, or none, and one stream.  "No" is certain, "yes" is not: predicates are not compared, except that
an event which satisfies a test satisfies the same one without its predicate.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, combinations
from typing import NamedTuple, Protocol

from cer_gpu.ceql import syntax as s


class EventTest(Protocol):
    """A test of one event, each part None for any: its type, a predicate on it, and its stream."""

    @property
    def event_type(self) -> str | None:
        """The type; None for ``*``."""

    @property
    def predicate(self) -> s.Predicate | None:
        """The predicate."""

    @property
    def stream(self) -> str | None:
        """The stream."""


class NameTest(NamedTuple):
    """The test that an event satisfies by its type and its stream alone."""

    event_type: str | None
    stream: str | None = None
    predicate: None = None


def name_test(event: s.Name) -> NameTest:
    """Return the test of ``R`` or ``stream>R``."""
    return NameTest(None if event.name == s.ANY_TYPE else event.name, event.stream)


def may_be_one(tests: Iterable[tuple[EventTest, bool]]) -> bool:
    """Return False if no event passes all tests, each given with True for its negation (``NOT``)."""
    satisfied, failed = list[EventTest](), list[EventTest]()
    for test, negated in tests:
        (failed if negated else satisfied).append(test)
    if any(_exclude(one, other) for one, other in combinations(satisfied, 2)):
        return False
    return not any(_implies(one, other) for other in failed for one in (_ANY_EVENT, *satisfied))


def are_apart(groups: Iterable[Iterable[EventTest]]) -> bool:
    """Return True if no event satisfies tests of two groups."""
    by_type: dict[str | None, list[tuple[int, NameTest]]] = {}
    for number, group in enumerate(groups):
        for test in {NameTest(test.event_type, test.stream) for test in group}:
            # tests of two types are apart
            same, any_type = by_type.get(test.event_type, ()), by_type.get(None, ())
            near = by_type.values() if test.event_type is None else (same, any_type)
            for other_number, other in chain.from_iterable(near):
                if other_number != number and may_be_one(((test, False), (other, False))):
                    return False
            by_type.setdefault(test.event_type, []).append((number, test))
    return True


_ANY_EVENT = NameTest(None)


def _exclude(one: EventTest, other: EventTest) -> bool:
    """Return True if the types or the streams of two tests differ."""
    return any(
        a is not None and b is not None and a != b
        for a, b in ((one.event_type, other.event_type), (one.stream, other.stream))
    )


def _implies(one: EventTest, other: EventTest) -> bool:
    """Return True if every event that satisfies one test satisfies the other."""
    return (
        other.event_type in (None, one.event_type)
        and other.stream in (None, one.stream)
        and other.predicate in (None, one.predicate)
    )
