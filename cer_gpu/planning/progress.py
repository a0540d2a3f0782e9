"""The funnel of a plan, for the output "funnel"."""

from __future__ import annotations

from contextlib import suppress

from cer_gpu.automaton.normal_form import Both, Related
from cer_gpu.automaton.recent import NotRecentError, RecentPattern, build_recent
from cer_gpu.ceql.syntax import Windowed
from cer_gpu.ceql.traversal import walk
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.planning.windows import same_clock
from cer_gpu.runtime.progress.table import FunnelStep, NoFunnelError, funnel_steps, relates

_STRATEGIES = ("ALL", "RECENT")
"""Strategies that ask for nothing else than the steps that each start reaches."""


def funnel_of(plan: LogicalPlan) -> tuple[FunnelStep, ...]:
    """Return the steps of a plan's pattern.

    Raises
    ------
    NoFunnelError
        When the query has no progress, with the reason, and a hint.
    """
    if plan.head is not None:
        raise NoFunnelError(
            "it is a conjunctive query, whose atoms have no order", "write the chain in CEQL: A ; B ; C"
        )
    if any(isinstance(part, Both) for part in walk(plan.formula)):
        raise NoFunnelError("its events come in any order", "write them in their order: A ; B ; C")
    for clause, given, hint in (
        (
            f"SELECT {plan.strategy.name}",
            plan.strategy.name not in _STRATEGIES,
            "leave it out: each step is the earliest event",
        ),
        (f"CONSUME BY {plan.consume}", plan.consume != "NONE", "leave it out: each start is reported by itself"),
        ("measures", bool(plan.measures.measures), "SELECT *, and join the rows with the events by their positions"),
        ("HAVING", plan.having is not None, "filter the rows of the table"),
        ("LIMIT", plan.limit is not None, "leave it out; limit=... ends after so many rows"),
        ("a pipe", bool(plan.pipes), "leave it out: each start has a row"),
    ):
        if given:
            raise NoFunnelError(f"it has {clause}", hint)
    formula, step = plan.formula, plan.syntax.each_step
    if step is not None and isinstance(formula, Related):
        if plan.within is None or not same_clock(step, plan.within):
            raise NoFunnelError("EACH STEP is measured by another clock than WITHIN", "one of the two alone")
        formula = formula.body  # the filter that stands for EACH STEP
    if any(isinstance(part, Windowed) for part in walk(plan.syntax.formula)):
        raise NoFunnelError("it has a window within the pattern", "WITHIN for the whole pattern")
    return funnel_steps(formula, plan.guards, _keyed(plan) if relates(formula) else None)


def _keyed(plan: LogicalPlan) -> RecentPattern | None:
    """Return the steps with their keys, if all filters between events are equalities that all steps share."""
    pattern = plan.recent
    if pattern is None and not plan.trailing:
        with suppress(NotRecentError):
            pattern = build_recent(plan.pattern, plan.guards, frozenset())
    if pattern is None or pattern.tests or not pattern.keys:
        return None
    if plan.partition and plan.window == "events":
        raise NoFunnelError("WITHIN n EVENTS counts the events of PARTITION BY alone", "a window of time")
    return pattern


def funnel_names(plan: LogicalPlan) -> list[str]:
    """Return a name for each step of a plan's funnel: its variable, else the types that it may have."""
    names = []
    for step in funnel_of(plan):
        types = [plan.guards[guard].event_type or "any event" for guard in step.guards]
        of_streams = tuple(f"{stream}>" for stream in plan.streams)  # the same variables, of one stream
        aliases = sorted(label for label in step.labels if label not in types and not label.startswith(of_streams))
        names.append(aliases[0] if aliases else " OR ".join(dict.fromkeys(types)))
    return names
