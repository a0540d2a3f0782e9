"""Which ways of evaluation a query gets, and why."""

from __future__ import annotations

from typing import Any

from cer_gpu.automaton.cea import ANY
from cer_gpu.ceql.checks import CHOOSE_FIRST
from cer_gpu.engine.evaluator import Evaluator, Options
from cer_gpu.explain.words import window_text
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.dealing import Clauses, against_keys, against_ranges, of_threads
from cer_gpu.planning.plan import Binding, Plan
from cer_gpu.predicates import guards as predicates
from cer_gpu.predicates.generated import ROWS_TO_COMPILE, ROWS_TO_LOAD

_ENGINES = {
    "stacks": "the pattern is a chain; each step has a stack of events, and nothing is determinised",
    "automaton": "determinised as the events need it",
    "counter": "complex events are counted, and not listed",
}


def choices(plan: Plan, clauses: Clauses, binding: Binding | None) -> dict[str, Any]:
    """Return what was chosen for a query, with the reasons.

    Parameters
    ----------
    plan, clauses
    binding
        Of the plan over the events' schema, where there are events.
    """
    evaluators = {output: Evaluator(plan, Options(output)) for output in OUTPUTS}
    engines = {output: evaluator.engine for output, evaluator in evaluators.items()}
    chosen = engines["positions"]
    why = _ENGINES[chosen]
    if chosen == "automaton" and plan.against_chain is not None:
        why += f" (no stacks: {plan.against_chain})"
    if evaluators["positions"].holds_back:
        why += "; while no event may end a complex event, the others wait, and leave the window unseen"
    tier, tier_why = _predicates(binding)
    device, device_why = evaluators["positions"].placement
    within = plan.within
    return {
        "engine": {"chosen": chosen, "why": why, "by_output": engines},
        "strategy": plan.strategy,
        "device": {"chosen": device, "why": device_why},
        "predicates": {"chosen": tier, "why": tier_why},
        "window": None if within is None else {"kind": within.kind, "text": window_text(within)},
        "memory": _memory(plan),
        "dealing": _dealing(clauses),
    }


def _predicates(binding: Binding | None) -> tuple[str, str]:
    """Return how predicates are evaluated at first, and what becomes of that."""
    if predicates.TIER is not None:
        return predicates.TIER, "CER_GPU_PREDICATES asks for it"
    if binding is not None and not binding.guards.may_compile:
        return predicates.INTERPRETED, "these predicates are not compiled"
    return (
        predicates.INTERPRETED,
        f"one compiled pass after {ROWS_TO_COMPILE:,} rows, or after {ROWS_TO_LOAD:,} where it is kept on disk",
    )


def _memory(plan: Plan) -> str:
    if plan.within is not None:
        each = " of each partition" if plan.partition and plan.within.kind == "events" else ""
        bound = f"bounded by the relevant events that are in the window{each}"
        if plan.partition and plan.strategy in CHOOSE_FIRST:
            bound += (
                f"; and a state of each partition, which is kept for good, as {plan.strategy} compares with what is old"
            )
        return bound
    waits = any(transition.guard == ANY for transition in plan.cea.transitions)
    if not waits and plan.strategy in ("ALL", "ANY"):
        return "that of the partial matches under way: each is dropped at the first event that does not continue it"
    if plan.consume != "NONE":
        return "grows with the relevant events until a complex event consumes them: there is no WITHIN"
    return "grows with the relevant events: there is no WITHIN, so that nothing is ever out of reach"


def _dealing(clauses: Clauses) -> dict[str, Any]:
    """Return how the events may be dealt to threads and to tasks: why a way is not exact; None: it is."""
    threads, why = of_threads(clauses)
    tasks = {"partition": against_keys(clauses), "range": against_ranges(clauses), "replicate": None}
    return {
        "threads": {"chosen": threads, "why": why},
        "tasks": tasks,
        "chosen": next(name for name, why in tasks.items() if why is None),
    }
