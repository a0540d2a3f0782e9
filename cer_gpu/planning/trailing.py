"""Absence at the end of a pattern: the pattern whose complex events tell which others are not to be reported.

``f ; !R`` holds for a valuation of f unless ``f -> R`` has one that begins with it, within the window.  Both are found
at once, as those of f behind which the next R may stand, and each R takes back what it follows.  With ``FOR d`` the
next R lies at most d behind the end of f, whatever the window of f.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from cer_gpu.automaton.normal_form import Absent, Atom, Either, NormalForm, Related, Then, Trailing
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import mapped
from cer_gpu.planning.spans import UNLIMITED, Spans, most_events

PASSED = "\0passed"
"""Variable of every event of a pattern before its absence, so that all of them are kept."""
TAKES_BACK = "\0takes back"
"""Variable of an event that is to be absent at the end of a pattern."""


def followed(formula: NormalForm, spans: Spans, within: s.Within | None) -> NormalForm | None:
    """Return the pattern without its absence at the end, behind which the next event that is absent may stand.

    Filters between events around the absence are filters of the pattern before it, and where the absence has a length,
    so is the window `within`.  None: there is no such absence.
    """
    relations, part = [], formula
    while isinstance(part, Related):
        relations.append(part.relation)
        part = part.body
    if not isinstance(part, Trailing):
        return None
    kept = mapped(part.body, Atom, lambda atom: replace(atom, labels=atom.labels | {PASSED}))
    body = reduce(Related, reversed(relations), kept)
    event = reduce(Either, map(_taking_back, part.absent))
    if part.length is None or most_events(part.body) == 1:  # of one event, the window says all
        return Then(body, event, False, part.absent, (False, True))
    if within is not None:
        body = spans.windowed(body, within)
    body, event, relation = spans.behind(body, event, part.length)
    return Related(Then(body, event, False, part.absent, (False, True)), relation)


def lasting(formula: NormalForm, length: s.Within, within: s.Within | None) -> s.Within:
    """Return the window of a pattern and of what may take it back, if its absence has a length.

    `within` is the window of the pattern alone, by the same clock; None: there is none, or by another clock.
    """
    if most_events(formula) == 1:
        return length
    return replace(length, length=UNLIMITED if within is None else within.length + length.length)


def _taking_back(absent: Absent) -> NormalForm:
    event: NormalForm = Atom(absent.guard, frozenset({TAKES_BACK}), absent.negated, absent.sites, absent.stream)
    return reduce(Related, reversed(absent.relations), event)
