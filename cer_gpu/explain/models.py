"""Automaton model of a query: its name, the reason for it, and the promises that it keeps.

papers: CORE, theorem 2 (CEA); RMA, section 4; PCEA, theorems 4.2, 5.1 and 5.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cer_gpu.automaton.normal_form import NormalForm
from cer_gpu.automaton.parallel_pattern import NotParallelError, build_parallel
from cer_gpu.explain.ceql_text import expression_text
from cer_gpu.explain.joins import FilterPlaces
from cer_gpu.explain.parallel_facts import ParallelFacts
from cer_gpu.explain.recent import promises
from cer_gpu.explain.step_names import place_names
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.physical import Model, PhysicalPlan, physical_plan
from cer_gpu.planning.plan import LogicalPlan

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
    """Return the model of a query without filters between events, with what is guaranteed and what is not."""
    guaranteed, missing = ["constant time per event, whatever came before"], []
    speed = _CONSTANT
    delay = "output-linear delay of the listing"
    physical = _physical(plan)
    if plan.recent is not None:
        why = "one partial match is pending per key and step (RECENT)"
        kept = "one that must be absent may be tested against the pending partial match of every key"
        speed = f"not constant per event: {kept}" if plan.recent.scans else _CONSTANT
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
    return _facts(plan, "there is no join predicate", guaranteed, missing, speed=speed)


def join_facts(
    plan: LogicalPlan, places: FilterPlaces, why_not_registers: str | None = None, why_not_parallel: str | None = None
) -> dict[str, Any]:
    """Return the same for a query with filters between events, or a conjunction, that is not parallel.

    Parameters
    ----------
    plan
    places
        Places of the filters between events.
    why_not_registers
        Reason why a bounded number of registers cannot test the filters between events, or None if it can.
    why_not_parallel
        Reason why no parallelised automaton evaluates it (`why_not_parallel`), or None if none was looked for.
    """
    whys = ["the pattern has a conjunction (ALL)"] if plan.cea is None else []
    if places.texts:
        whys.append(f"there {'are join predicates' if len(places.texts) > 1 else 'is a join predicate'}")
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


# ---- filters between events -----------------------------------------------------------------------------------------


def _compared_at(places: FilterPlaces) -> str:
    """Return the clause that names the pairs of steps between which events are compared one by one."""
    searched = places.searched
    more = [f"{len(searched) - _MAX_PLACES:,} more"] if len(searched) > _MAX_PLACES else []
    return f"an event may be compared with all others in reach at {', '.join([*searched[:_MAX_PLACES], *more])}"


def _guaranteed(places: FilterPlaces) -> Iterator[str]:
    yield f"exact: every match{' that satisfies the join predicates' if places.texts else ''} exactly once"
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
    """Return True if the runs of one end are compared, to drop doubles."""
    told = physical.labelled and facts.pattern.is_told_by_labels
    return facts.pattern.ambiguous and not told


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
