"""Parallelized complex event automata as plain data, from which text and pictures are made, and as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cer_gpu.automaton.parallel import PCEA, PceaTransition, StateKey

_NO_STATES = "∅"


def pcea_facts(automaton: PCEA) -> dict[str, Any]:
    """Return an automaton in the form of `cer_gpu.explain.facts.automaton_facts`, for the same pictures.

    State 0 stands for no event read: transitions without sources leave it.  A transition of several sources has a
    state of kind ``join`` of its own, in which they meet: each source leads to it by its predicate, and it leads to the
    target by that of the event.  `name` is the name of a state, empty for those two kinds, and `kept` are labels.
    """
    numbers = {state: number for number, state in enumerate(automaton.states, 1)}
    states = [{"id": 0, "kind": "initial", "name": ""}]
    states += [
        {"id": number, "kind": "final" if state in automaton.finals else "inner", "name": state_name(state)}
        for state, number in numbers.items()
    ]
    edges: list[dict[str, Any]] = []

    def edge(source: int, target: int, text: str, kept: list[str]) -> None:
        edges.append({"source": source, "target": target, "text": text, "kept": kept})

    for t in automaton.transitions:
        target, labels = numbers[t.target], _labels(t)
        if len(t.joins) > 1:
            join = len(states)
            states.append({"id": join, "kind": "join", "name": ""})
            for source, predicate in t.joins:
                edge(numbers[source], join, str(predicate), [])
            edge(join, target, str(t.unary), labels)
        else:
            source = numbers[t.sources[0]] if t.joins else 0
            edge(source, target, ", ".join(_predicates(t)), labels)
    return {"model": "pcea", "states": states, "transitions": edges, "silent": []}


def pcea_text(automaton: PCEA) -> str:
    """Return an automaton as text: a line for its states, and one for each transition.

    A transition is written ``P → q  U, B / L``, with the predicates B in the order of the states P.
    """
    n = len(automaton.states)
    finals = ", ".join(state_name(state) for state in automaton.states if state in automaton.finals) or "none"
    states = ", ".join(map(state_name, automaton.states))
    lines = [f"{'1 state' if n == 1 else f'{n:,} states'}: {states}; final: {finals}"]
    for t in automaton.transitions:
        sources = ", ".join(map(state_name, t.sources)) or _NO_STATES
        lines.append(f"{sources} → {state_name(t.target)}  {', '.join(_predicates(t))} / {', '.join(_labels(t))}")
    return "\n".join(lines)


def state_name(state: StateKey) -> str:
    """Return the name of a state; one of a variable and a self join is written ``x{0,1}``."""
    if isinstance(state, tuple):
        variable, atoms = state
        return f"{variable}{{{','.join(map(str, atoms))}}}"
    return str(state)


def _predicates(transition: PceaTransition) -> Iterator[str]:
    yield str(transition.unary)
    yield from (str(predicate) for _, predicate in transition.joins)


def _labels(transition: PceaTransition) -> list[str]:
    return sorted(map(str, transition.labels), key=lambda label: (len(label), label))
