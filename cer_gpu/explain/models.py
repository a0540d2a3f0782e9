"""Automaton model of a query, its promises, and the choices of its physical plan, with their reasons.

papers: CORE, theorem 2 (CEA); RMA, section 4; PCEA, theorems 4.2, 5.1 and 5.2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from cer_gpu.automaton.cea import ANY
from cer_gpu.automaton.chain import ChainStep
from cer_gpu.automaton.normal_form import Guard, NormalForm
from cer_gpu.automaton.parallel_pattern import NotParallelError, build_parallel
from cer_gpu.automaton.recent_pattern import RecentPattern
from cer_gpu.ceql.functions import NO_EVENT_WITHIN, OVER_AGGREGATES, RISES
from cer_gpu.ceql.syntax import Predicate
from cer_gpu.errors import OptionError
from cer_gpu.explain.ceql_text import (
    attribute_text,
    expression_text,
    guard_text,
    name_text,
    over_aggregate_text,
    predicate_text,
    qualified_name_text,
)
from cer_gpu.explain.joins import FilterPlaces
from cer_gpu.explain.parallel_facts import ParallelFacts
from cer_gpu.explain.plain_words import window_text
from cer_gpu.explain.step_names import place_names
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.binding import Binding
from cer_gpu.planning.distribution import Distribution
from cer_gpu.planning.outputs import output_of, why_not_output
from cer_gpu.planning.pattern_spans import UNLIMITED
from cer_gpu.planning.physical import Model, PhysicalPlan, physical_plan
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.predicates import guards
from cer_gpu.predicates.generated import ROWS_TO_COMPILE, ROWS_TO_LOAD
from cer_gpu.predicates.placement import AUTO, before_events
from cer_gpu.printable import counted, printable


def key_lines(plan: LogicalPlan) -> list[str]:
    """Return the keys under which partial matches are pending, each with its reason; empty if one row is for all."""
    pattern = plan.recent
    if pattern is None:
        return []
    lines = [f"{' or '.join(map(attribute_text, names))}: PARTITION BY" for names in plan.partition_keys]
    of_steps = plan.step_keys
    lines += [] if of_steps is None else [f"{printable(name)}: keys by step" for name in of_steps.columns]
    for key in pattern.keys:
        columns = [" = ".join(attribute_text(column.name) for column in step) for step in key]
        shown = columns[0] if len(set(columns)) == 1 else ", ".join(columns) + " (in the order of the steps)"
        lines.append(f"{shown}: join predicates make it equal in all steps")
    return lines or ["none: no column is equal in all steps, and there is no PARTITION BY"]


def memory_line(plan: LogicalPlan, pattern: RecentPattern) -> str:
    """Return what is stored in memory, and until when."""
    pending = "; plus the matches that wait until their window has passed" if pattern.taking else ""
    return _partial_matches(plan, pattern) + pending


def _partial_matches(plan: LogicalPlan, pattern: RecentPattern) -> str:
    n = _n_pending(pattern)
    if plan.step_keys is not None and plan.step_keys.samples:
        n_events = len(plan.step_keys.steps)
        return f"grows with the number of keys: at most the first {n_events:,} events of each filter per key"
    if not n:
        return "bounded: no partial matches, as each event of the only step is a match"
    limit = f"at most {n:,} partial match{'es' if n > 1 else ''}"
    if pattern.graph is not None and any(way.source >= way.target for way in pattern.graph.ways):
        per_key = "" if not pattern.keys and not plan.partition else " per key"
        window = "" if plan.within is None else " in the window"
        return f"grows with the events that the iterations of a match take{window}: {limit}{per_key}"
    if not pattern.keys and not plan.partition and plan.step_keys is None:
        return f"bounded: {limit}, whatever the stream"
    if plan.within is not None:
        return f"bounded: {limit} per key that has one in the window; other keys are dropped"
    return f"grows with the number of keys: {limit} per key, and without WITHIN no key is ever dropped"


def _n_pending(pattern: RecentPattern) -> int:
    """Return the number of steps at which a partial match may be pending."""
    if pattern.graph is None:
        return max(len(pattern.steps) - 1, 0)
    return len({way.source for way in pattern.graph.ways})


def promises(plan: LogicalPlan, pattern: RecentPattern) -> tuple[list[str], list[str]]:
    """Return what is guaranteed, and what is not."""
    n = _n_pending(pattern)
    each = " per key" if pattern.keys or plan.partition or plan.step_keys is not None else ""
    guaranteed = [f"at most {counted(n, 'partial match')}{each}, whatever came before"]
    missing = []
    if pattern.scans:
        missing.append(
            "constant time per event: one that must be absent, and is not compared by every key, is tested against "
            "the pending partial match of each"
        )
    else:
        guaranteed.insert(0, "constant time per event")
    missing.append("every match: a partial match that a later one replaces is never completed")
    return guaranteed, missing


def relation_facts(plan: LogicalPlan, pattern: RecentPattern) -> list[dict[str, Any]]:
    """Return the join predicates, each with the places where it is tested, as `FilterPlaces` does."""
    places: dict[Predicate, dict[str, None]] = {}
    for predicate in pattern.equalities:
        places[predicate] = {"nowhere: it is a key by which partial matches are found": None}
    for place, predicate in _test_places(plan, pattern):
        places.setdefault(predicate, {})[place] = None
    return [
        {
            "text": predicate_text(predicate),
            "variables": [],
            "separable": True,
            "why": "it is tested when a partial match would advance",
            "places": list(tested_at),
        }
        for predicate, tested_at in places.items()
    ]


def _test_places(plan: LogicalPlan, pattern: RecentPattern) -> Iterator[tuple[str, Predicate]]:
    """Yield the places of all tests."""

    def kind(guard: int) -> str:
        return guard_text(replace(plan.guards[guard], predicate=None))

    for number, step in enumerate(pattern.steps):
        name = f"step {number + 1} ({' or '.join(dict.fromkeys(kind(event.guard) for event in step.events))})"
        for test in step.tests:
            yield f"{name}: when its event arrives", test.predicate
        for absence in step.absent:
            under = " under any key" if absence.key is None else ""
            for test in absence.tests:
                yield (
                    f"!{kind(absence.guard)} before {name}: against what is pending{under}, when it arrives",
                    test.predicate,
                )
    for absence in pattern.taking:
        for test in absence.tests:
            yield f"!{kind(absence.guard)} at the end: against what ended before, when it arrives", test.predicate


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
    if physical.contiguity is not None:
        why += "; events whose neighbours fit no place of the pattern are dropped before"
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
        "memory": _memory(plan) + _memory_of_over(plan),
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
    plain = not any(step.barring or step.linked or step.n_min > 1 or step.bounded or step.spaced for step in steps)
    return {"text": text, "plain": plain}


def _step_times(step: ChainStep) -> str:
    if not step.repeated:
        return ""
    n_max = "" if step.n_max is None else f"{step.n_max}"
    times = f"{{{step.n_min}}}" if n_max == f"{step.n_min}" else f"{{{step.n_min},{n_max}}}"
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
    start = "each start is buffered until it and all earlier starts are decided, "
    if plan.within is None:
        return start + "perhaps to the end, as there is no WITHIN"
    each = "s of their partitions have" if plan.partition and plan.within.kind == "events" else " has"
    return start + f"at the latest when the window{each} passed"


def _memory_of_over(plan: LogicalPlan) -> str:
    each, n = " per partition" if plan.partition else "", plan.longest_lag
    words = f"; plus, for LAG, the values of the last {f'{n:,} events' if n > 1 else 'event'}{each}" if n else ""
    for aggregate in plan.over_aggregates:
        if aggregate.function == RISES:
            continue  # its aggregates store what it reads
        if aggregate.over is None:
            words += f"; plus the id of each such process and its descendants, for {over_aggregate_text(aggregate)}"
        elif aggregate.function == NO_EVENT_WITHIN:
            assert aggregate.event is not None
            words += (
                f"; plus, for the absence of {qualified_name_text(aggregate.event)}, the time of the last one{each}"
            )
        else:
            entries = OVER_AGGREGATES[aggregate.function].state.value
            words += f"; plus, for {over_aggregate_text(aggregate)}, {entries} in that window{each}"
    return words


def _distribution(distribution: Distribution) -> dict[str, Any]:
    """Return the ways to distribute events to threads and tasks, each with the reason if it is not exact, else None.

    `shared` are the values that all events of a match share, by which events can be distributed to tasks.
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


_TITLES = {
    Model.CEA: "complex event automaton",
    Model.RMA: "register match automaton",
    Model.PCEA: "parallelised complex event automaton",
}
_WAITS = "each match waits until its window has passed, and retracted ones are listed, too"
_CONSTANT = "constant time per event"
_MAX_PLACES = 4
"""Most pairs of steps that one line names."""


def model_facts(plan: LogicalPlan) -> dict[str, Any]:
    """Return the model of a query without join predicates, with what is guaranteed and what is not."""
    guaranteed, missing = ["constant time per event, whatever came before"], []
    speed = _CONSTANT
    delay = "output-linear delay of the listing"
    physical = _physical(plan)
    if plan.recent is not None:
        why = "one partial match is pending per key and step (RECENT)"
        worst_case = "one that must be absent may be tested against the pending partial match of every key"
        speed = f"not constant per event: {worst_case}" if plan.recent.scans else _CONSTANT
        return _facts(plan, why, *promises(plan, plan.recent), speed=speed)
    if physical.runtime == "window_lister":
        name = plan.strategy.name
        guaranteed = [f"exact: {name} chooses among all matches in the window"]
        missing = [f"constant time per event: where matches end, {name} reads the window again"]
        speed = f"constant time per event, except where matches end: there {name} reads the window again"
    if physical.waits:
        missing.append(f"{delay}: {_WAITS}")
    else:
        guaranteed.append(delay)
    return _facts(plan, _why_no_join(plan), guaranteed, missing, speed=speed)


def _why_no_join(plan: LogicalPlan) -> str:
    """Return the reason why no join predicate is evaluated."""
    if not plan.moved_joins:
        return "there is no join predicate"
    first, *others = map(predicate_text, plan.moved_joins)
    more = f" and {counted(len(others), 'more join predicate')}" if others else ""
    return f"{first}{more}: rewritten, as {'they compare' if others else 'it compares'} neighbours, with LAG"


def join_facts(
    plan: LogicalPlan, places: FilterPlaces, why_not_registers: str | None = None, why_not_parallel: str | None = None
) -> dict[str, Any]:
    """Return the same for a query with join predicates, or a conjunction, that is not parallel.

    Parameters
    ----------
    plan
    places
        Places of the join predicates.
    why_not_registers
        Reason why a bounded number of registers cannot test the join predicates, or None if it can.
    why_not_parallel
        Reason why no parallelised automaton evaluates it (`why_not_parallel`), or None if none was tried.
    """
    whys = ["the pattern has a conjunction (ALL)"] if plan.cea is None else []
    if places.strings and len(plan.distances) == len(places.strings):
        whys.append("how far events are apart is tested within the pattern")
    elif places.strings:
        whys.append(f"there {'are join predicates' if len(places.strings) > 1 else 'is a join predicate'}")
    missing = list(_not_guaranteed(plan, places, why_not_registers))
    speed = "by index: candidates are found by equal keys or by position, or all of them match"
    if places.searched:
        speed = f"depends on the data: {_compared_at(places)}"
    return _facts(plan, ", and ".join(whys), list(_guaranteed(places)), missing, why_not_parallel, speed=speed)


def parallel_model_facts(plan: LogicalPlan, facts: ParallelFacts) -> dict[str, Any]:
    """Return the same for a query that a parallelised automaton evaluates."""
    pattern, physical = facts.pattern, _physical(plan)
    one = len(pattern.graph.relations) == 1
    equal = "the join predicate is an equality" if one else "the join predicates are equalities"
    if not pattern.variables:
        why = "the events of the conjunction share no value"
    elif pattern.n_conjunction == len(pattern.graph.atoms):
        why = (
            "the conjunction is hierarchical: the events that share one value are among those that share another, "
            "or apart from them"
        )
    elif pattern.n_conjunction:
        why = f"{equal}, and the pattern is a tree"
    else:
        why = f"{equal}, and the pattern is a chain"
    if facts.is_chain:
        why += " (a CCEA: no event gathers several partial matches)"
    compares = _compares(physical, facts)
    return _facts(
        plan,
        why,
        list(_parallel_guaranteed(plan, compares)),
        list(_parallel_missing(physical, facts, compares)),
        speed=f"time per event logarithmic in {_stored_events(plan)}, on average",
    )


def _stored_events(plan: LogicalPlan) -> str:
    return "the events in the window" if plan.within is not None else "the events so far"


def why_not_parallel(plan: LogicalPlan, formula: NormalForm) -> str | None:
    """Return the reason why no parallelised automaton evaluates a query, in the names of the query.

    Parameters
    ----------
    plan
    formula
        Its formula.
    """
    if plan.why_not_parallel is None:
        return None
    try:
        build_parallel(formula, plan.guards, frozenset(plan.variables))
    except NotParallelError as error:
        conflict = error.conflict
    if conflict is None or plan.graph is None:
        return plan.why_not_parallel
    names = place_names(plan.graph, formula)
    both, one, other = (names[i] for i in (conflict.both, conflict.only_first, conflict.only_second))
    first, second = (expression_text(member.expression) for member in (conflict.first, conflict.second))
    none = "; no PCEA has such joins (PCEA, theorem 4.2)" if conflict.acyclic else ""
    return (
        f"the conjunction is not hierarchical: {both} shares {first} with {one} but not with {other}, "
        f"and {second} with {other} but not with {one}{none}"
    )


def _physical(plan: LogicalPlan) -> PhysicalPlan:
    return physical_plan(plan, OUTPUTS["positions"])


def _facts(
    plan: LogicalPlan,
    why: str,
    guaranteed: list[str],
    missing: list[str],
    why_not_parallel: str | None = None,
    *,
    speed: str,
) -> dict[str, Any]:
    model = _physical(plan).model
    return {
        "name": str(model),
        "title": _TITLES[model],
        "why": why,
        "speed": speed,
        "why_not_parallel": why_not_parallel,
        "guaranteed": guaranteed,
        "not_guaranteed": missing,
    }


# ---- join predicates -----------------------------------------------------------------------------------------


def _compared_at(places: FilterPlaces) -> str:
    """Return the clause that names the pairs of steps between which events are compared one by one."""
    searched = places.searched
    more = [f"{len(searched) - _MAX_PLACES:,} more"] if len(searched) > _MAX_PLACES else []
    return f"an event may be compared with all others in reach at {', '.join([*searched[:_MAX_PLACES], *more])}"


def _guaranteed(places: FilterPlaces) -> Iterator[str]:
    yield f"exact: every match{' that satisfies the join predicates' if places.strings else ''} exactly once"
    yield "each event in reach is stored once for each step that it satisfies"
    if not places.searched:
        yield "no search from step to step: candidates are found by equal keys or by position, or all of them match"


def _not_guaranteed(plan: LogicalPlan, places: FilterPlaces, why_not_registers: str | None) -> Iterator[str]:
    searched = places.searched
    if searched:
        yield f"constant time per event: {_compared_at(places)}"
    in_vain = [*(["candidates"] if searched else []), *(["paths"] if places.in_vain else [])]
    if in_vain:
        yield f"output-linear delay: {' and '.join(in_vain)} may be tested without result"
    if places.plan.graph.ambiguous:
        yield "one path per match: those of one end are compared, and duplicates dropped"
    if plan.strategy.compares:
        yield f"listing only the chosen matches: {plan.strategy.name} compares all that end at the same event"
    if plan.trailing:
        yield f"listing only the reported matches: {_WAITS}"
    if why_not_registers is not None:
        yield f"a bounded number of registers: {why_not_registers}"


# ---- parallelised automata ------------------------------------------------------------------------------------------


def _compares(physical: PhysicalPlan, facts: ParallelFacts) -> bool:
    """Return True if the runs of one end are compared, to drop duplicates."""
    labelled = physical.labelled and facts.pattern.labels_identify_steps
    return facts.pattern.ambiguous and not labelled


def _parallel_guaranteed(plan: LogicalPlan, compares: bool) -> Iterator[str]:
    parallel = plan.parallel
    assert parallel is not None
    what = "match that satisfies the join predicates" if parallel.graph.relations else "match"
    yield f"exact: every {what if plan.head is None else 'answer'} exactly once"
    yield f"time per event logarithmic in {_stored_events(plan)}, on average (PCEA, theorem 5.1)"
    yield "constant time for each partial match whose start is the latest of those that it is stored with"
    if not compares and not plan.strategy.compares and not plan.strategy.consecutive:
        yield "output-linear delay of the listing"
    if plan.within is not None:
        yield "memory follows the window: partial matches that have left it are dropped"


def _parallel_missing(physical: PhysicalPlan, facts: ParallelFacts, compares: bool) -> Iterator[str]:
    strategy = physical.plan.strategy
    if compares:
        yield "one run per match: those of one end are compared, and duplicates dropped"
    if strategy.compares:
        yield f"listing only the chosen matches: {strategy.name} compares all that end at the same event"
    if strategy.consecutive:
        yield f"output-linear delay: matches that {strategy.name} drops are listed, too"
    if facts.n_self_joins:
        n = facts.n_self_joins
        yield (
            "an automaton of quadratic size: one event may satisfy several atoms, and each set of them has its own "
            f"transitions (here {n:,} set{'s' if n > 1 else ''})"
        )
    if physical.plan.within is None:
        yield "bounded memory: without WITHIN no partial match is ever dropped"
