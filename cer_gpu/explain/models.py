"""Automaton model of a query: its name, the reason for it, and the promises that it keeps.

papers: CORE, theorem 2 (CEA); RMA, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cer_gpu.explain.joins import distant, searched
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.physical import Model, physical_plan
from cer_gpu.planning.plan import Plan
from cer_gpu.runtime.join_tables import JoinPlan

_TITLES = {Model.CEA: "complex event automaton", Model.RMA: "register match automaton"}
MOST_PLACES = 4
"""Most pairs of steps that one line names."""


def model_facts(
    plan: Plan, joins: JoinPlan | None = None, names: Sequence[str] = (), against_registers: str | None = None
) -> dict[str, Any]:
    """Return the model of a query, with what is guaranteed and what is not.

    Parameters
    ----------
    plan
    joins
        Places of the filters between events; None: there are none.
    names
        Names of the steps (`cer_gpu.explain.joins.step_names`).
    against_registers
        Reason why a bounded number of registers cannot test the filters between events; None: it can.
    """
    model = physical_plan(plan, OUTPUTS["positions"]).model
    facts = {"name": str(model), "title": _TITLES.get(model, str(model))}
    if joins is None:
        guaranteed = ["constant time for each event, whatever came before", "output-linear delay of the listing"]
        return {**facts, "why": "no filter relates several events", "guaranteed": guaranteed, "not_guaranteed": []}
    several = len(joins.graph.relations) > 1
    return {
        **facts,
        "why": f"{'filters relate' if several else 'a filter relates'} several events",
        "guaranteed": list(_guaranteed(joins, names)),
        "not_guaranteed": list(_not_guaranteed(plan, joins, names, against_registers)),
    }


def _guaranteed(joins: JoinPlan, names: Sequence[str]) -> Iterator[str]:
    yield "exact: every complex event that passes the filters, each once"
    yield "each event in reach is stored once for each step that it satisfies"
    if not searched(joins, names):
        yield "no search from step to step: candidates are found by equal keys or by their position, or all of them fit"


def _not_guaranteed(plan: Plan, joins: JoinPlan, names: Sequence[str], against_registers: str | None) -> Iterator[str]:
    places = searched(joins, names)
    if places:
        more = [f"{len(places) - MOST_PLACES:,} more"] if len(places) > MOST_PLACES else []
        shown = ", ".join([*places[:MOST_PLACES], *more])
        yield f"constant time for each event: it may be compared with all in reach at {shown}"
    in_vain = [*(["candidates"] if places else []), *(["paths"] if joins.general or distant(joins) else [])]
    if in_vain:
        yield f"output-linear delay: {' and '.join(in_vain)} may be tested in vain"
    if joins.graph.ambiguous:
        yield "one path for each complex event: those of one end are compared, and doubles dropped"
    if plan.strategy.compares:
        yield f"listing of the chosen alone: {plan.strategy.name} compares all that end at one event"
    if against_registers is not None:
        yield f"a bounded number of registers: {against_registers}"
