"""The automaton in DOT, the language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cer_gpu.printable import printable


def to_dot(automaton: Mapping[str, Any]) -> str:
    """Return an automaton (`automaton_facts`, `rma_facts`, `ParallelFacts.automaton`, `graph_facts`) in DOT."""
    name = automaton.get("model", "rma" if "registers" in automaton else "cea").lower()
    return "\n".join([f"digraph {name} {{", *("  " + line + ";" for line in _statements(automaton)), "}", ""])


def _statements(automaton: Mapping[str, Any]) -> Iterator[str]:
    yield "rankdir=LR"
    yield 'node [shape=circle, fontname="Helvetica"]'
    yield 'edge [fontname="Helvetica", fontsize=11]'
    if automaton["states"][0].get("name") != "":
        yield "start [shape=point]"
    for state in automaton["states"]:
        if state.get("name") == "":  # no run is ever in it
            yield f"{state['id']} [shape=point]"
            continue
        name = f"{state['id']}\n{state['label']}" if "label" in state else ""
        label = f', label="{_lines(name)}"' if name else ""
        yield f"{state['id']} [shape={'doublecircle' if state['kind'] == 'final' else 'circle'}{label}]"
        if state["kind"] == "initial":
            yield f"start -> {state['id']}"
    kinds = {state["id"]: state["kind"] for state in automaton["states"]}
    for transition in automaton["transitions"]:
        label = ("✗ " if transition.get("takes_back") else "") + _escaped(transition["text"])
        if transition["kept"]:
            label += r"\n● " + _escaped(", ".join(transition["kept"]))
        head = ", arrowhead=none" if kinds[transition["target"]] == "join" else ""
        yield f'{transition["source"]} -> {transition["target"]} [label="{label}"{head}]'
    for number, absence in enumerate(automaton.get("absences", ())):
        test = " AND ".join([absence["text"], *absence["filters"]])
        yield f'absent{number} [shape=box, style=dashed, label="{_escaped(absence["name"])}: {_escaped(test)}"]'
        for state in absence["after"]:
            yield f"{state} -> absent{number} [style=dotted, arrowhead=tee]"
    for silent in automaton["silent"]:
        yield f'{silent["source"]} -> {silent["target"]} [style=dashed, label="ε"]'


def _lines(text: str) -> str:
    return r"\n".join(map(_escaped, text.split("\n")))


def _escaped(text: str) -> str:
    """Escape a text for a quoted string; Graphviz also decodes entities such as ``&lt;`` in labels."""
    return printable(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
