"""The atom graph of a pattern as plain data, from which text and pictures are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.explain.step_names import tests_text
from cer_gpu.explain.writing import predicate_text, variable_text
from cer_gpu.planning.trailing import TAKES_BACK
from cer_gpu.runtime.join_plan import JoinPlan


def graph_facts(
    plan: JoinPlan,
    names: Sequence[str],
    guards: Sequence[Guard],
    streams: Sequence[str] = (),
    selected: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return a graph in the form of `cer_gpu.explain.facts.automaton_facts`, for the same pictures.

    State 0 stands for no event read, every other for an atom: `label` is its name, and the sign before the test of an
    event says if it comes later (``;``), or at the very next position (``:``).  Atoms that bar are no states, as no
    complex event holds their events: they stand in the gaps of the transitions (``; !R ; B``), and in `absences`.

    Parameters
    ----------
    plan
    names
        Names of the atoms of its graph (`cer_gpu.explain.step_names.step_names`).
    guards
        `LogicalPlan.guards`.
    streams
        Those that FROM names.
    selected
        Variables beside which `GraphAtom.kept` has others; None: it has not.
    """
    graph = plan.graph
    tests = [tests_text(atom.tests, guards) for atom in graph.atoms]
    kept = [kept_texts(atom.kept, streams, selected) for atom in graph.atoms]
    events = [i for i, atom in enumerate(graph.atoms) if not atom.bars]
    numbers = {atom: number for number, atom in enumerate(events, 1)}

    def edge(source: int, target: int, sign: str) -> dict[str, Any]:
        return {
            "source": source,
            "target": numbers[target],
            "text": sign + tests[target],
            "kept": kept[target],
            "takes_back": TAKES_BACK in graph.atoms[target].kept,
        }

    def sign(contiguous: bool, absent: tuple[int, ...]) -> str:
        gap = "".join(f"; {names[graph.absences[number].atom]} " for number in absent)
        return f"{gap}{':' if contiguous else ';'} "

    first = [edge(0, i, "") for i in events if graph.atoms[i].initial]
    steps = [each for each in graph.edges if not each.bars]
    later = {(numbers[each.source], each.target, sign(each.contiguous, each.absent)): None for each in steps}
    return {
        "model": "atoms",
        "states": [
            {"id": 0, "kind": "initial", "name": ""},
            *(
                {"id": numbers[i], "kind": "final" if graph.atoms[i].final else "inner", "label": names[i]}
                for i in events
            ),
        ],
        "transitions": [*first, *(edge(*ends) for ends in sorted(later))],
        "silent": [],
        "absences": _absent_facts(plan, names, tests, numbers),
    }


def kept_texts(kept: Iterable[str], streams: Sequence[str], selected: Sequence[str] | None) -> list[str]:
    """Return the texts of the variables that keep an event, sorted; without those that are not `selected`, if given."""
    return sorted(variable_text(name, streams) for name in kept if selected is None or name in selected)


def _absent_facts(
    plan: JoinPlan, names: Sequence[str], tests: Sequence[str], numbers: Mapping[int, int]
) -> list[dict[str, Any]]:
    """Return the events that are absent from gaps, each with the states before the gap, and how it is known there.

    One is known `at_once` where the event before the gap tells by itself which events bar it, and it is told by a mark
    at that event.  Others are searched among all events of the gap while complex events are listed.
    """
    graph, facts = plan.graph, []
    for number, absence in enumerate(graph.absences):
        sources = sorted({edge.source for edge in graph.edges if number in edge.absent})
        facts.append(
            {
                "name": names[absence.atom],
                "text": tests[absence.atom],
                "filters": [predicate_text(graph.relations[r].predicate) for r in absence.relations],
                "after": [numbers[source] for source in sources],
                "at_once": [numbers[source] for source in sources if (number, source) in plan.watched],
            }
        )
    return facts
