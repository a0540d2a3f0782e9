"""Construction of the complex event automaton (CEA) of a normal form, of linear size.

papers: CORE, section 4 and appendix A.1.  The paper copies transitions into and out of sub-automata; we keep silent
steps (ε) instead, and determinisation takes their closure.  That keeps the size linear.
"""

from __future__ import annotations

from dataclasses import dataclass

from cer_gpu.automaton.normal_form import Atom, Both, Either, Guard, NormalForm, Related, Repeat, Then
from cer_gpu.ceql.traversal import fold

INITIAL = 0
"""The initial state q0; no transition enters it (CORE, section 4)."""
FINAL = 1
"""The one final state; no transition leaves it."""
ANY = -1
"""Guard that every event satisfies: that of a waiting loop."""


@dataclass(frozen=True)
class Transition:
    """A transition ``source --guard/mark--> target`` of Δ.

    `guard` is an index into `CEA.guards`, or `ANY`; when `negated` the event must not satisfy it.  `labels` are the
    variables that hold the event, and `kept` those of them that SELECT keeps: the event is marked (belongs to the
    complex event) if there are any.  Determinisation merges transitions that differ in `labels` alone.
    """

    source: int
    guard: int
    negated: bool
    kept: frozenset[str]
    target: int
    labels: frozenset[str] = frozenset()


@dataclass(frozen=True)
class CEA:
    """A complex event automaton with silent steps (source, target): states ``0 .. n_states-1``, initial 0, final 1."""

    n_states: int
    guards: tuple[Guard, ...]
    transitions: tuple[Transition, ...]
    silent: tuple[tuple[int, int], ...]


def build_cea(formula: NormalForm, selected: frozenset[str] | None) -> CEA:
    """Build the automaton of a formula.

    Parameters
    ----------
    formula
        The WHERE clause in LP-normal form, without conjunctions; of its filters between events, none is tested.
    selected
        The variables that SELECT keeps; None keeps all (``*``), the empty set none (``NONE``).
    """
    builder = _Builder(selected)
    fold((formula, INITIAL, FINAL), builder.leave, builder.enter)
    return CEA(builder.n_states, tuple(builder.guards), tuple(builder.transitions), tuple(builder.silent))


_Part = tuple[NormalForm, int, int]  # a formula, and its start and end states


class _Builder:
    """Thompson's construction: a part adds edges out of its start, edges into its end, and fresh states between."""

    def __init__(self, selected: frozenset[str] | None) -> None:
        self.selected = selected
        self.n_states = 2
        self.guards: dict[Guard, int] = {}
        self.transitions: list[Transition] = []
        self.silent: list[tuple[int, int]] = []
        self._known: dict[int, int] = {}  # index of a guard by its id: a guard shared by many atoms is hashed once

    def state(self) -> int:
        self.n_states += 1
        return self.n_states - 1

    def waiting_state(self) -> int:
        """Return a fresh state with a waiting loop: it skips any event."""
        state = self.state()
        self.transitions.append(Transition(state, ANY, False, frozenset(), state))
        return state

    def guard(self, guard: Guard) -> int:
        """Return the index of a guard in `CEA.guards`."""
        index = self._known.get(id(guard))
        if index is None:
            index = self._known[id(guard)] = self.guards.setdefault(guard, len(self.guards))
        return index

    def enter(self, part: _Part) -> list[_Part]:
        formula, start, end = part
        match formula:
            case Atom():
                kept = formula.labels if self.selected is None else formula.labels & self.selected
                guard = self.guard(formula.guard)
                self.transitions.append(Transition(start, guard, formula.negated, kept, end, formula.labels))
                return []
            case Either():
                return [(formula.left, start, end), (formula.right, start, end)]
            case Then():
                middle = self.state() if formula.contiguous else self.waiting_state()
                return [(formula.left, start, middle), (formula.right, middle, end)]
            case Repeat():
                first, last = self.state(), self.state()
                self.silent += [(start, first), (last, end)]
                return [(formula.body, first, last)]
            case Related():
                return [(formula.body, start, end)]
            case Both():
                raise TypeError("a conjunction has no complex event automaton of linear size")

    def leave(self, part: _Part, below: list[_Part]) -> _Part:
        """Close the loop of a repetition, between the start and end of its body; return the part."""
        formula = part[0]
        if isinstance(formula, Repeat):
            _, first, last = below[0]
            if formula.contiguous:
                self.silent.append((last, first))
            else:
                wait = self.waiting_state()
                self.silent += [(last, wait), (wait, first)]
        return part
