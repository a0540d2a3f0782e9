"""Choices of the physical plan of a query (engine, predicates, memory, distribution), with their reasons."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from cer_gpu.automaton.cea import ANY
from cer_gpu.automaton.chain import ChainStep
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.ceql.functions import NO_EVENT_WITHIN, OVER_AGGREGATES, RISES
from cer_gpu.errors import OptionError
from cer_gpu.explain.ceql_text import aggregate_of_past, attribute_text, guard_text, held_text, name_text
from cer_gpu.explain.plain_words import window_text
from cer_gpu.explain.recent import key_lines, memory_line
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.binding import Binding
from cer_gpu.planning.distribution import Distribution
from cer_gpu.planning.outputs import output_of, why_not_output
from cer_gpu.planning.pattern_spans import UNLIMITED
from cer_gpu.planning.physical import physical_plan
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.predicates import guards
from cer_gpu.predicates.generated import ROWS_TO_COMPILE, ROWS_TO_LOAD
from cer_gpu.predicates.placement import AUTO, before_events


def choice_facts(plan: LogicalPlan, binding: Binding | None) -> dict[str, Any]:
    """Return the choices for a query, with the reasons, from its physical plan.

    Parameters
    ----------
    plan
    binding
        Binding of the plan to the schema of the events, or None if there are no events.
    """
    physical = physical_plan(plan, OUTPUTS["positions"])
    why = physical.reason
    if physical.defers_events:
        why += "; events are buffered until one may end a match, and those outside its window are dropped unevaluated"
    tier, tier_why = _predicates(binding)
    device, device_why = before_events(AUTO)
    within = plan.within
    return {
        "engine": {
            "chosen": physical.engine,
            "why": why,
            "by_output": {name: physical_plan(plan, output_of(plan, name)).engine for name in _outputs(plan)},
        },
        "strategy": plan.strategy.name,
        "device": {"chosen": device, "why": device_why},
        "predicates": {"chosen": tier, "why": tier_why},
        "window": None
        if within is None or within.length >= UNLIMITED
        else {"kind": within.kind, "text": window_text(within)},
        "keys": key_lines(plan),
        "memory": _memory(plan) + _memory_of_the_past(plan),
        "funnel": None if why_not_output(plan, OUTPUTS["funnel"]) else _memory_of_progress(plan),
        "chain": None if plan.chain is None else chain_facts(plan.chain, plan.guards),
        "distribution": _distribution(physical.distribution),
    }


def _outputs(plan: LogicalPlan) -> Iterator[str]:
    """Yield the names of the outputs that a query can have."""
    for name in OUTPUTS:
        with contextlib.suppress(OptionError):
            output_of(plan, name)
            yield name


def _predicates(binding: Binding | None) -> tuple[str, str]:
    """Return the first tier of the predicates, and the reason or the rows until the next tier."""
    if guards.TIER is not None:
        return guards.TIER, "set by CER_GPU_PREDICATES"
    if binding is not None and not binding.guards.may_compile:
        return guards.INTERPRETED, "these predicates are not compiled"
    return (
        guards.INTERPRETED,
        f"one compiled pass after {ROWS_TO_COMPILE:,} rows, or after {ROWS_TO_LOAD:,} if it is cached on disk",
    )


def chain_facts(steps: Sequence[ChainStep], guards: Sequence[Guard]) -> dict[str, Any]:
    """Return the steps that stacks evaluate, as the text of a pattern.

    It is `plain` if no number of events is bounded and no gap bars an event.
    """
    text = ""
    for step in steps:
        barring = "".join(f"!{guard_text(guards[guard])} ; " for guard in step.barring)
        joint = " : " if step.neighbour else f" ; {barring}"
        events = [guard_text(guards[guard]) for guard in step.guards]
        event = events[0] if len(events) == 1 else f"({' OR '.join(events)})"
        text += (joint if text else "") + event + _step_times(step)
    plain = not any(step.barring or step.linked or step.least > 1 or step.bounded for step in steps)
    return {"text": text, "plain": plain}


def _step_times(step: ChainStep) -> str:
    if not step.repeated:
        return ""
    most = "" if step.most is None else f"{step.most}"
    times = f"{{{step.least}}}" if most == f"{step.least}" else f"{{{step.least},{most}}}"
    return (" ->" if step.linked else "") + ("+" if times == "{1,}" else times)


def _memory(plan: LogicalPlan) -> str:
    if plan.recent is not None:
        return memory_line(plan, plan.recent)
    stored = plan.relates  # each event once for each step, until it is out of reach
    if plan.within is not None and plan.within.length < UNLIMITED:
        each = " of each partition" if plan.partition and plan.within.kind == "events" else ""
        bound = f"bounded: the relevant events in the window{each}"
        if plan.trailing:
            bound += ", and the matches that wait until their window has passed"
        if plan.partition and plan.strategy.compares and plan.chooses_first and not stored:
            name = plan.strategy.name
            bound += f"; plus one state per partition, which is never dropped, as {name} compares with older events"
        return bound
    loops = [] if plan.cea is None else [each for each in plan.cea.transitions if each.guard == ANY]
    waits = plan.cea is None or bool(loops)
    if not stored and not waits and not plan.strategy.compares and not plan.strategy.consecutive:
        return "the current partial matches: each is dropped at the first event that does not continue it"
    if plan.consume != "NONE":
        return "grows with the relevant events until a match consumes them, as there is no WITHIN"
    if not stored and loops and all(loop.barred for loop in loops):
        return "grows with the partial matches that no event has excluded yet, as there is no WITHIN"
    return "grows with the relevant events: without WITHIN nothing is ever dropped"


def _memory_of_progress(plan: LogicalPlan) -> str:
    held = "each start is buffered until it and all earlier starts are decided, "
    if plan.within is None:
        return held + "perhaps to the end, as there is no WITHIN"
    each = "s of their partitions have" if plan.partition and plan.within.kind == "events" else " has"
    return held + f"at the latest when the window{each} passed"


def _memory_of_the_past(plan: LogicalPlan) -> str:
    each, n = " per partition" if plan.partition else "", plan.longest_lag
    words = f"; plus, for LAG, the values of the last {f'{n:,} events' if n > 1 else 'event'}{each}" if n else ""
    for past in plan.pasts:
        if past.function == RISES:
            continue  # its aggregates hold what it reads
        if past.over is None:
            words += f"; plus the id of each such process and its descendants, for {aggregate_of_past(past)}"
        elif past.function == NO_EVENT_WITHIN:
            assert past.event is not None
            words += f"; plus, for the absence of {held_text(past.event)}, the time of the last one{each}"
        else:
            entries = OVER_AGGREGATES[past.function].state.value
            words += f"; plus, for {aggregate_of_past(past)}, {entries} in that window{each}"
    return words


def _distribution(distribution: Distribution) -> dict[str, Any]:
    """Return the ways to deal events to threads and to tasks, each with the reason if it is not exact, else None.

    `shared` are the values that all events of a match share, by which tasks can be dealt the events.
    """
    return {
        "threads": {"chosen": distribution.threads, "why": distribution.why_not_threads},
        "tasks": distribution.tasks,
        "chosen": next(name for name, why in distribution.tasks.items() if why is None),
        "shared": [
            attribute_text(column) if kind is None else f"{name_text(kind)}.{attribute_text(column)}"
            for kind, column in distribution.shared
        ],
    }
