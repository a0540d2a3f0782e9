"""Normal form -> complex event automaton (CEA), of linear size.

papers: CORE, section 4 and appendix A.1.  Where the paper copies transitions into and out of sub-automata, we
keep silent (epsilon) steps and let determinisation close over them; that is what keeps the size linear.
"""

from __future__ import annotations

from dataclasses import dataclass

from cer_gpu.automaton.normal_form import Atom, Either, Guard, NormalForm, Repeat, Then

INITIAL = 0
"""The initial state; no transition enters it (CORE, section 4)."""
FINAL = 1
"""The final state; no transition leaves it."""
ANY = -1
"""The guard of a waiting loop: every event satisfies it."""


@dataclass(frozen=True)
class Transition:
    """``source --guard/mark--> target``.

    `guard` is an index into `CEA.guards`, or `ANY`; when `negated` the event must not satisfy it.  `kept` are the
    selected variables that hold the event: it is marked, a part of the complex event, where there are any.
    """

    source: int
    guard: int
    negated: bool
    kept: frozenset[str]
    target: int


@dataclass(frozen=True)
class CEA:
    """A complex event automaton with silent steps: states ``0 .. n_states-1``, initial 0, final 1."""

    n_states: int
    guards: tuple[Guard, ...]
    transitions: tuple[Transition, ...]
    silent: tuple[tuple[int, int], ...]


def build_cea(formula: NormalForm, selected: frozenset[str] | None) -> CEA:
    """Build the automaton of a formula.

    Parameters
    ----------
    formula
        The WHERE clause in LP-normal form.
    selected
        The variables that SELECT keeps; None keeps all (``*``), the empty set none (``NONE``).
    """
    builder = _Builder(selected)
    builder.build(formula, INITIAL, FINAL)
    return CEA(builder.n_states, tuple(builder.guards), tuple(builder.transitions), tuple(builder.silent))


class _Builder:
    """Thompson's construction: `build` adds edges out of `start`, edges into `end`, and fresh states only."""

    def __init__(self, selected: frozenset[str] | None) -> None:
        self.selected = selected
        self.n_states = 2
        self.guards: dict[Guard, int] = {}
        self.transitions: list[Transition] = []
        self.silent: list[tuple[int, int]] = []

    def state(self) -> int:
        self.n_states += 1
        return self.n_states - 1

    def waiting_state(self) -> int:
        """Return a fresh state that any event may pass by."""
        state = self.state()
        self.transitions.append(Transition(state, ANY, False, frozenset(), state))
        return state

    def build(self, formula: NormalForm, start: int, end: int) -> None:
        match formula:
            case Atom():
                guard = self.guards.setdefault(formula.guard, len(self.guards))
                kept = formula.labels if self.selected is None else formula.labels & self.selected
                self.transitions.append(Transition(start, guard, formula.negated, kept, end))
            case Either():
                self.build(formula.left, start, end)
                self.build(formula.right, start, end)
            case Then():
                middle = self.state() if formula.contiguous else self.waiting_state()
                self.build(formula.left, start, middle)
                self.build(formula.right, middle, end)
            case Repeat():
                first, last = self.state(), self.state()
                self.silent += [(start, first), (last, end)]
                self.build(formula.body, first, last)
                if formula.contiguous:
                    self.silent.append((last, first))
                else:
                    wait = self.waiting_state()
                    self.silent += [(last, wait), (wait, first)]
