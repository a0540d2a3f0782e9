"""The atom graph of a pattern as plain data, from which text and pictures are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cer_gpu.automaton.atom_graph import AtomGraph
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.explain.step_names import tests_text
from cer_gpu.explain.writing import variable_text


def graph_facts(
    graph: AtomGraph, names: Sequence[str], guards: Sequence[Guard], streams: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a graph in the form of `cer_gpu.explain.facts.automaton_facts`, for the same pictures.

    State 0 stands for no event read, every other for an atom: `label` is its name, and the sign before the test of an
    event says if it comes later (``;``), or at the very next position (``:``).

    Parameters
    ----------
    graph
    names
        Names of its atoms (`cer_gpu.explain.step_names.step_names`).
    guards
        `Plan.guards`.
    streams
        Those that FROM names.
    """
    tests = [tests_text(atom.tests, guards) for atom in graph.atoms]
    kept = [sorted(variable_text(name, streams) for name in atom.kept) for atom in graph.atoms]

    def edge(source: int, target: int, sign: str) -> dict[str, Any]:
        return {"source": source, "target": target + 1, "text": sign + tests[target], "kept": kept[target]}

    first = [edge(0, i, "") for i, atom in enumerate(graph.atoms) if atom.initial]
    later = {(each.source + 1, each.target, ": " if each.contiguous else "; "): None for each in graph.edges}
    return {
        "model": "atoms",
        "states": [
            {"id": 0, "kind": "initial", "name": ""},
            *(
                {"id": i, "kind": "final" if atom.final else "inner", "label": name}
                for i, (atom, name) in enumerate(zip(graph.atoms, names, strict=True), 1)
            ),
        ],
        "transitions": [*first, *(edge(*ends) for ends in sorted(later))],
        "silent": [],
    }
