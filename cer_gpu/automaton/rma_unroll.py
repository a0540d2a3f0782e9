"""Automata of windowed expressions: unrolled ones, and output-agnostic deterministic ones.

papers: RMA, section 6 and appendix, algorithms 2, 6, 7 and 8.  ``WINDOW w`` admits matches with max - min < w, where
min is the first event that a run reads and max the last; ``WITHIN n EVENTS`` is w = n + 1.

The unrolled automaton of the paper (`unroll`) is a tree with a loop at its root.  Corollary 6.7 determinises it, though
the loop lets two runs that start at different events meet in one state of the tree, with different events in its
registers (`cer_gpu.automaton.rma_determinize`).  `unroll_in_phases` avoids that: the event at position j is stored in
register j modulo w - 1, and states tell positions modulo w - 1 apart.  A run that stored an event w - 1 positions ago
reads its last event now, so that no event that is still needed is overwritten, and the automaton determinises exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cer_gpu.automaton.normal_form import NormalForm
from cer_gpu.automaton.rma import CURRENT, RMA, RegisterLiteral, RegisterTransition, live_registers
from cer_gpu.automaton.rma_construction import build_rma, without_silent
from cer_gpu.automaton.rma_determinize import MAX_RMA_STATES, DeterministicRMA
from cer_gpu.errors import QueryTooLargeError

MAX_UNROLLED = 100_000
"""Most states of an unrolled automaton."""


def windowed_rma(
    formula: NormalForm, w: int, selected: frozenset[str] | None = None, *, max_states: int = MAX_UNROLLED
) -> RMA:
    """Build the unrolled automaton of ``formula WINDOW w`` (algorithms 2 and 6).

    Raises
    ------
    UnboundedFilterError
        When registers cannot test a filter between events.
    QueryTooLargeError
        When it has more than `max_states` states.
    """
    unrolled = unroll(without_silent(build_rma(formula, selected, loop=False)), w, max_states=max_states)
    loop = RegisterTransition(unrolled.start, (), unrolled.start)
    return replace(unrolled, transitions=(loop, *unrolled.transitions))


def output_agnostic_rma(
    formula: NormalForm,
    w: int,
    selected: frozenset[str] | None = None,
    *,
    max_states: int = MAX_RMA_STATES,
    max_unrolled: int = MAX_UNROLLED,
) -> DeterministicRMA:
    """Build the automaton with a single run that recognises the ends of the matches of ``formula WINDOW w``.

    Its states are made on demand, at most `max_states` of them.

    Raises
    ------
    UnboundedFilterError
        When registers cannot test a filter between events.
    QueryTooLargeError
        When the automaton unrolled in phases has more than `max_unrolled` states; later, when there are more than
        `max_states` states.
    """
    automaton = without_silent(build_rma(formula, selected, loop=False))
    phased = unroll_in_phases(automaton, w, max_states=max_unrolled)
    return DeterministicRMA(phased, output_agnostic=True, max_states=max_states)


# ---- the tree of the paper ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Copy:
    """State of a tree: the state that it is a copy of (CopyOfQ), and the last copy of each register on the way."""

    state: int
    latest: dict[int, int] = field(default_factory=dict)


def unroll(automaton: RMA, w: int, *, max_states: int = MAX_UNROLLED) -> RMA:
    """Unroll an automaton without silent transitions into the tree of its walks of length up to `w` (algorithms 7, 8).

    Every transition that writes has a register of its own.  Walks that cannot reach a final state in time are left out.
    """
    distance = _to_final(automaton)
    copies = [_Copy(automaton.start)]
    transitions: list[RegisterTransition] = []
    registers: list[str] = []
    front = [0]
    for length in range(1, w + 1):
        reached = []
        for source in front:
            copy = copies[source]
            for t in automaton.outgoing(copy.state):
                if distance[t.target] > w - length:
                    continue
                latest, writes = copy.latest, frozenset[int]()
                if t.writes:
                    latest = latest | dict.fromkeys(t.writes, len(registers))
                    writes = frozenset({len(registers)})
                    registers.append(", ".join(automaton.registers[register] for register in sorted(t.writes)))
                target = len(copies)
                _check_size(target, max_states)
                copies.append(_Copy(t.target, latest))
                reached.append(target)
                transitions.append(
                    RegisterTransition(source, _with_register_copies(t.guard, copy.latest), target, writes, t.marked)
                )
        front = reached
    finals = frozenset(number for number, copy in enumerate(copies) if copy.state in automaton.finals)
    return RMA(len(copies), 0, finals, tuple(registers), tuple(transitions))


# ---- phases ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Node:
    """State of an automaton unrolled in phases.

    Attributes
    ----------
    phase : int
        Position of the next event, modulo the number of phases.
    age : int
        Number of events that the run has read.
    state : int
        State that it is a copy of.
    places : tuple of (register, copy)
        The copy that holds the event of each live register.
    """

    phase: int
    age: int
    state: int
    places: tuple[tuple[int, int], ...] = ()


def unroll_in_phases(automaton: RMA, w: int, *, max_states: int = MAX_UNROLLED) -> RMA:
    """Unroll an automaton without silent transitions so that its determinised automaton is exact.

    It has the matches of ``unroll(automaton, w)`` with a loop at its start: the start states of the phases form a ring
    that reads any events.  The automaton must have no such loop itself.
    """
    distance, live = _to_final(automaton), live_registers(automaton)
    n_phases = max(w - 1, 1) if any(live) else 1
    start = _Node(0, 0, automaton.start)
    numbers, transitions = {start: 0}, list[RegisterTransition]()

    def number(node: _Node) -> int:
        if node not in numbers:
            _check_size(len(numbers), max_states)
            numbers[node] = len(numbers)
            nodes.append(node)
        return numbers[node]

    for node in (nodes := [start]):  # `number` appends to it
        phase = (node.phase + 1) % n_phases
        if node.age == 0:
            transitions.append(RegisterTransition(numbers[node], (), number(replace(node, phase=phase))))
        for t in automaton.outgoing(node.state):
            if distance[t.target] > w - node.age - 1:
                continue
            before = dict(node.places)
            after = before | dict.fromkeys(t.writes, node.phase)
            places = tuple((r, after[r]) for r in sorted(live[t.target]))
            stored = frozenset({node.phase}) if t.writes & live[t.target] else frozenset[int]()
            target = number(_Node(phase, node.age + 1, t.target, places))
            transitions.append(
                RegisterTransition(numbers[node], _with_register_copies(t.guard, before), target, stored, t.marked)
            )
    finals = frozenset(i for i, node in enumerate(nodes) if node.state in automaton.finals)
    names = tuple(f"event {phase} mod {n_phases}" for phase in range(n_phases)) if any(live) else ()
    return RMA(len(nodes), 0, finals, names, tuple(transitions))


# ---- both -----------------------------------------------------------------------------------------------------------


def _to_final(automaton: RMA) -> list[float]:
    """Return the length of the shortest walk from each state to a final one."""
    distance = [0.0 if automaton.is_final(state) else float("inf") for state in range(automaton.n_states)]
    for _ in range(automaton.n_states):
        for t in automaton.transitions:
            distance[t.source] = min(distance[t.source], distance[t.target] + 1)
    return distance


def _with_register_copies(guard: tuple[RegisterLiteral, ...], copies: dict[int, int]) -> tuple[RegisterLiteral, ...]:
    """Return a guard that reads copies of its registers (FindLastAppearance)."""
    names = copies | {CURRENT: CURRENT}
    return tuple(
        (tuple(replace(c, selection=tuple(names[r] for r in c.selection)) for c in formula), required)
        for formula, required in guard
    )


def _check_size(n_states: int, max_states: int) -> None:
    if n_states >= max_states:
        raise QueryTooLargeError(
            f"the unrolled automaton has more than {max_states:,} states", hint="a shorter window makes it smaller"
        )
