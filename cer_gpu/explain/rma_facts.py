"""Register match automata as plain data, from which text and pictures are made, and as text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cer_gpu.automaton.normal_form import Guard, variable_name
from cer_gpu.automaton.rma import CURRENT, RMA, RegisterCondition, RegisterFormula, RegisterTransition
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import names_of, path_of
from cer_gpu.ceql.traversal import mapped
from cer_gpu.explain.writing import guard_text, predicate_text

_CURRENT = "~"
_MARKED, _UNMARKED, _NONE = "●", "○", "∅"


def rma_facts(automaton: RMA) -> dict[str, Any]:
    """Return an automaton in the form of `cer_gpu.explain.facts.automaton_facts`, for the same pictures.

    The text of a transition is ``f/rs/R/o``, as in the paper's figure 1: formula, register selection, write registers
    and output.  `kept` names the event ``~`` if the output is ``●``.
    """
    order = [automaton.start, *(state for state in range(automaton.n_states) if state != automaton.start)]
    numbers = {state: number for number, state in enumerate(order)}  # pictures begin with state 0
    return {
        "states": [{"id": numbers[state], "kind": _state_kind(automaton, state)} for state in order],
        "transitions": [
            {
                "source": numbers[t.source],
                "target": numbers[t.target],
                "formula": formula_text(t),
                "selection": [_register(register) for register in t.selection],
                "writes": [_register(register) for register in sorted(t.writes)],
                "text": _parts_text(t),
                "kept": [_CURRENT] if t.marked else [],
            }
            for t in automaton.transitions
        ],
        "silent": [{"source": numbers[source], "target": numbers[target]} for source, target in automaton.silent],
        "registers": [{"name": _register(i), "holds": name} for i, name in enumerate(automaton.registers)],
    }


def rma_text(automaton: RMA) -> str:
    """Return an automaton as text: a line for its states, one for each register, and one for each transition.

    A transition is written ``f/rs/R/o``, as in `rma_facts`.
    """
    finals = ", ".join(map(str, sorted(automaton.finals))) or "none"
    states = "1 state" if automaton.n_states == 1 else f"{automaton.n_states:,} states"
    lines = [f"{states}: {automaton.start} is the start, final: {finals}"]
    lines += [f"{_register(i)} holds {name}" for i, name in enumerate(automaton.registers)]
    for t in automaton.transitions:
        lines.append(f"{t.source} → {t.target}  {_parts_text(t)}")
    lines += [f"{source} → {target}  ε" for source, target in automaton.silent]
    return "\n".join(lines)


def formula_text(transition: RegisterTransition) -> str:
    """Return the guard of a transition; the name of a register stands before the attributes of its event."""
    literals = [_literal_text(formula, required) for formula, required in transition.guard]
    return " AND ".join(literals) or "TRUE"


def _parts_text(transition: RegisterTransition) -> str:
    writes = ", ".join(map(_register, sorted(transition.writes)))
    selection = ", ".join(map(_register, transition.selection))
    if len(transition.selection) > 1:
        selection = f"({selection})"
    output = _MARKED if transition.marked else _UNMARKED
    return f"{formula_text(transition)}/{selection}/{f'{{{writes}}}' if writes else _NONE}/{output}"


def _literal_text(formula: RegisterFormula, required: bool) -> str:
    text = " AND ".join(_condition_text(condition) for condition in formula) or "TRUE"
    return text if required else f"NOT({text})"


def _condition_text(condition: RegisterCondition) -> str:
    if isinstance(condition.test, Guard):
        return guard_text(condition.test, condition.negated)
    text = predicate_text(_of_registers(condition))
    if isinstance(condition.test, s.Or):
        text = f"({text})"
    return f"NOT({text})" if condition.negated else text


def _of_registers(condition: RegisterCondition) -> Any:
    """Return the predicate of a condition with registers in place of its variables."""
    registers = dict(zip(condition.variables, condition.selection, strict=True))

    def named(node: s.Attribute) -> s.Attribute:
        if node.variable is None:
            return node
        register = registers[variable_name(node.variable)]
        if node.past is not None:
            return replace(node, variable=None if register == CURRENT else s.Name(_register(register)))
        name = node.name if register == CURRENT else path_of((_register(register), *names_of(node.name)))
        return s.Attribute(name, node.span, lag=node.lag)

    return mapped(condition.test, s.Attribute, named)


def _register(register: int) -> str:
    return _CURRENT if register == CURRENT else f"r{register + 1}"


def _state_kind(automaton: RMA, state: int) -> str:
    if state == automaton.start:
        return "initial"
    return "final" if automaton.is_final(state) else "inner"
