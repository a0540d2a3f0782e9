"""The funnel of a plan, for the output "progress"."""

from __future__ import annotations

from cer_gpu.automaton.funnel import FunnelStep, NoFunnelError, funnel_steps
from cer_gpu.planning.plan import Plan

_STRATEGIES = ("ALL", "RECENT")
"""Strategies that ask for nothing else than the steps that each start reaches."""


def funnel_of(plan: Plan) -> tuple[FunnelStep, ...]:
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
    ):
        if given:
            raise NoFunnelError(f"it has {clause}", hint)
    return funnel_steps(plan.formula, plan.guards)


def funnel_names(plan: Plan) -> list[str]:
    """Return a name for each step of a plan's funnel: its variable, else the types that it may have."""
    names = []
    for step in funnel_of(plan):
        types = [plan.guards[guard].event_type or "any event" for guard in step.guards]
        aliases = sorted(label for label in step.labels if ">" not in label and label not in types)
        names.append(aliases[0] if aliases else " OR ".join(dict.fromkeys(types)))
    return names
