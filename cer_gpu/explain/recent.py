"""Explanation of SELECT RECENT: its keys, where its filters are tested, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from cer_gpu.automaton.recent import RecentPattern
from cer_gpu.ceql.syntax import Predicate
from cer_gpu.explain.ceql_text import attribute_text, guard_text, predicate_text
from cer_gpu.planning.plan import LogicalPlan


def key_lines(plan: LogicalPlan) -> list[str]:
    """Return the keys under which partial matches wait, each with the reason for it; none: there is one row for all."""
    pattern = plan.recent
    if pattern is None:
        return []
    lines = [f"{' or '.join(map(attribute_text, names))}: PARTITION BY" for names in plan.partition_keys]
    for key in pattern.keys:
        columns = [" = ".join(attribute_text(column.name) for column in step) for step in key]
        shown = columns[0] if len(set(columns)) == 1 else ", ".join(columns) + " (in the order of the steps)"
        lines.append(f"{shown}: join predicates make it equal in all steps")
    return lines or ["none: no column is equal in all steps, and there is no PARTITION BY"]


def memory_line(plan: LogicalPlan, pattern: RecentPattern) -> str:
    """Return what is kept, and until when."""
    pending = "; plus the matches that wait until their window has passed" if pattern.taking else ""
    return _partial_matches(plan, pattern) + pending


def _partial_matches(plan: LogicalPlan, pattern: RecentPattern) -> str:
    n = len(pattern.steps) - 1
    if not n:
        return "bounded: no partial matches, as each event of the only step is a match"
    most = f"at most {n:,} partial match{'es' if n > 1 else ''}"
    if not pattern.keys and not plan.partition:
        return f"bounded: {most}, whatever the stream"
    if plan.within is not None:
        return f"bounded: {most} per key that has one in the window; other keys are dropped"
    return f"grows with the number of keys: {most} per key, and without WITHIN no key is ever dropped"


def promises(plan: LogicalPlan, pattern: RecentPattern) -> tuple[list[str], list[str]]:
    """Return what is guaranteed, and what is not."""
    n = max(len(pattern.steps) - 1, 0)
    each = " per key" if pattern.keys or plan.partition else ""
    guaranteed = [f"at most {n:,} partial match{'' if n == 1 else 'es'}{each}, whatever came before"]
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
    """Return the filters between events, each with the places where it is tested, as `FilterPlaces` does."""
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
            "places": list(found),
        }
        for predicate, found in places.items()
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
