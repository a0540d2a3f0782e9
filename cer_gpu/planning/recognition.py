"""Recognisers of plans: made where the window has few events, and explored as a whole, or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from cer_gpu.automaton.normal_form import is_plain
from cer_gpu.automaton.recogniser import Recogniser, build_recogniser
from cer_gpu.automaton.rma_construction import UnboundedFilterError
from cer_gpu.automaton.rma_determinize import SharedRegisterError
from cer_gpu.errors import QueryTooLargeError
from cer_gpu.planning.plan import LogicalPlan

WIDEST = 6
"""Longest window, in events, for which a recogniser is tried."""


def recogniser_of(plan: LogicalPlan) -> Recogniser | None:
    """Return the recogniser of a plan for the ends of its complex events, or None if it has none.

    There is none for a conjunction, for absences, options and counted repetitions, for a window of more than `WIDEST`
    events, partitions, several streams, CONSUME BY, LIMIT and strategies, for windows within the pattern, for filters
    that registers cannot test, and where the automaton is too large.
    """
    if plan.graph is None or plan.cea is None or plan.distances:
        return None
    if plan.partition or plan.several_streams or plan.consume != "NONE" or plan.limit is not None:
        return None
    if plan.within is None or plan.within.kind != "events" or plan.within.length >= WIDEST + 1:
        return None
    if plan.strategy.name != "ALL":
        return None
    return _cached_recogniser(_Asked(plan.text, plan.relations, plan.type_column, int(plan.within.length), plan))


@dataclass(frozen=True)
class _Asked:
    """Query and window that a recogniser is made for; equal queries share it, whatever else their plans say."""

    text: str
    relations: tuple[tuple[str, tuple[str, ...]], ...]
    type_column: str | None
    width: int
    plan: LogicalPlan = field(compare=False)


@lru_cache(maxsize=32)
def _cached_recogniser(asked: _Asked) -> Recogniser | None:
    plan = asked.plan
    if plan.graph is None or not is_plain(plan.formula):
        return None
    try:
        return build_recogniser(plan.formula, plan.graph, plan.guards, asked.width)
    except (UnboundedFilterError, QueryTooLargeError, SharedRegisterError):
        return None
