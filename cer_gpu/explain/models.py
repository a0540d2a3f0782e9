"""Automaton model of a query: its name, the reason for it, and the promises that it keeps.

papers: CORE, theorem 2 (CEA); RMA, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cer_gpu.explain.joins import Places
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.physical import Model, physical_plan
from cer_gpu.planning.plan import Plan

_TITLES = {Model.CEA: "complex event automaton", Model.RMA: "register match automaton"}
MOST_PLACES = 4
"""Most pairs of steps that one line names."""


def model_facts(plan: Plan, places: Places | None = None, against_registers: str | None = None) -> dict[str, Any]:
    """Return the model of a query, with what is guaranteed and what is not.

    Parameters
    ----------
    plan
    places
        Places of the filters between events; None: there are none.
    against_registers
        Reason why a bounded number of registers cannot test the filters between events; None: it can.
    """
    model = physical_plan(plan, OUTPUTS["positions"]).model
    facts = {"name": str(model), "title": _TITLES.get(model, str(model))}
    if places is None:
        guaranteed = ["constant time for each event, whatever came before", "output-linear delay of the listing"]
        return {**facts, "why": "no filter relates several events", "guaranteed": guaranteed, "not_guaranteed": []}
    several = len(places.texts) > 1
    return {
        **facts,
        "why": f"{'filters relate' if several else 'a filter relates'} several events",
        "guaranteed": list(_guaranteed(places)),
        "not_guaranteed": list(_not_guaranteed(plan, places, against_registers)),
    }


def _guaranteed(places: Places) -> Iterator[str]:
    yield "exact: every complex event that passes the filters, each once"
    yield "each event in reach is stored once for each step that it satisfies"
    if not places.searched:
        yield "no search from step to step: candidates are found by equal keys or by their position, or all of them fit"


def _not_guaranteed(plan: Plan, places: Places, against_registers: str | None) -> Iterator[str]:
    searched = places.searched
    if searched:
        more = [f"{len(searched) - MOST_PLACES:,} more"] if len(searched) > MOST_PLACES else []
        shown = ", ".join([*searched[:MOST_PLACES], *more])
        yield f"constant time for each event: it may be compared with all in reach at {shown}"
    in_vain = [*(["candidates"] if searched else []), *(["paths"] if places.plan.general or places.distant else [])]
    if in_vain:
        yield f"output-linear delay: {' and '.join(in_vain)} may be tested in vain"
    if places.plan.graph.ambiguous:
        yield "one path for each complex event: those of one end are compared, and doubles dropped"
    if plan.strategy.compares:
        yield f"listing of the chosen alone: {plan.strategy.name} compares all that end at one event"
    if against_registers is not None:
        yield f"a bounded number of registers: {against_registers}"
