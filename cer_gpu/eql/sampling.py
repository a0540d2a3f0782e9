"""Samples of EQL: for each key one event of each filter, all different, in any order.

A sample is a conjunction with the keys of PARTITION BY.  The first that is complete is reported for each key, and
``LIMIT 1 EVERY`` more events than any stream has keeps all others back.  Elasticsearch does not say which events a
sample takes, where a filter has several; here they are those with which a sample is complete first.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, islice
from typing import Any

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.one_event import NameTest, may_be_one, name_test
from cer_gpu.errors import QueryError, QueryTooLargeError

MAX_SAMPLED = 12
"""Events of a sample some of which may be one: it has an atom for each set of them, more than an automaton may have."""
_EVER = Fraction(2**62)
"""More events than any stream has."""


def sampled(
    events: Sequence[s.Formula], partition: tuple[tuple[s.Name, ...], ...], text: str
) -> tuple[s.Formula, dict[str, Any]]:
    """Return the formula of a sample, whose filters are not resolved yet, and the clauses that go with it.

    Parameters
    ----------
    events
        For each filter its event, ``R AS x [FILTER ...]``, with variables of their own.
    partition
        Keys that all of them share.
    text
        The query, for messages.

    Raises
    ------
    QueryError
        When there are none.
    QueryTooLargeError
        When there are more than `MAX_SAMPLED` events, and some may be one.
    """
    span = events[0].span[0], events[-1].span[1]
    if not partition:
        raise QueryError(
            "a sample has keys that all of its events share, and these share none",
            text,
            *span,
            hint="sample by host.id",
        )
    found = (pair for pair in combinations(events, 2) if may_be_one((_name_test(event), False) for event in pair))
    pairs = list(islice(found, 1) if len(events) > MAX_SAMPLED else found)
    if pairs and len(events) > MAX_SAMPLED:
        raise QueryTooLargeError(
            f"a sample whose filters may take the same event has at most {MAX_SAMPLED}, and this one {len(events):,}",
            text,
            *events[MAX_SAMPLED].span,
            hint="filters of different categories may be more",
        )
    formula = events[0]
    for event in events[1:]:
        formula = s.Conjunction(formula, event, span)
    apart = [_different(*map(_variable, pair)) for pair in pairs]
    if apart:
        formula = s.Filtered(formula, apart[0] if len(apart) == 1 else s.joined(s.FilterAnd, apart, span), span)
    return formula, {"limit": 1, "every": s.Within("events", _EVER, None, span)}


def _assigned(event: s.Formula) -> s.Assign:
    while isinstance(event, s.Filtered):
        event = event.formula
    assert isinstance(event, s.Assign)
    return event


def _variable(event: s.Formula) -> s.Name:
    return _assigned(event).variable


def _name_test(event: s.Formula) -> NameTest:
    of_type = _assigned(event).formula
    assert isinstance(of_type, s.EventType)
    return name_test(of_type.event)


def _different(one: s.Name, other: s.Name) -> s.Filter:
    """Return the filter by which the events of two variables are not the same."""
    span = other.span
    x, y = (s.Attribute(s.COUNTED_POSITION, span, name) for name in (one, other))
    at_most = s.Within("events", Fraction(0), None, span)
    behind = [s.Not(s.Apart(later, earlier, at_most, None, span), span) for later, earlier in ((x, y), (y, x))]
    return s.Relation(s.joined(s.Or, behind, span), (), span)
