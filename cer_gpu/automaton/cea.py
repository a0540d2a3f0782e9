"""Construction of the complex event automaton (CEA) of a normal form, of linear size.

papers: CORE, section 4 and appendix A.1.  The paper copies transitions into and out of sub-automata; we keep silent
steps (ε) instead, and determinisation takes their closure.  That keeps the size linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cer_gpu.automaton.normal_form import (
    Absent,
    Atom,
    Both,
    Either,
    Guard,
    NormalForm,
    Related,
    Repeat,
    Then,
    Trailing,
    copies_of,
)
from cer_gpu.ceql.traversal import fold
from cer_gpu.errors import QueryTooLargeError

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
    variables that hold the event, and `selected` those of them in SELECT: the event is marked (belongs to the
    match) if there are any.  Determinisation merges transitions that differ in `labels` alone.  `barred` are
    guards, each with True if negated, that the event must not pass: those of the events absent from a gap.
    """

    source: int
    guard: int
    negated: bool
    selected: frozenset[str]
    target: int
    labels: frozenset[str] = frozenset()
    barred: tuple[tuple[int, bool], ...] = ()

    def fires(self, word: int) -> bool:
        """Return True for the bit vector of an event that takes the transition (bit g: it satisfies guard g)."""
        if self.guard != ANY and (word >> self.guard & 1) == self.negated:
            return False
        return all((word >> guard & 1) == negated for guard, negated in self.barred)


@dataclass(frozen=True)
class CEA:
    """A complex event automaton with silent steps (source, target): states ``0 .. n_states-1``, initial 0, final 1."""

    n_states: int
    guards: tuple[Guard, ...]
    transitions: tuple[Transition, ...]
    silent: tuple[tuple[int, int], ...]


_MAX_STATES = 50_000
"""Most states of an automaton: counted repetitions copy what they repeat."""


def build_cea(formula: NormalForm, selected: frozenset[str] | None, guards: Sequence[Guard] = ()) -> CEA:
    """Build the automaton of a formula.

    Parameters
    ----------
    formula
        The WHERE clause in LP-normal form, without conjunctions; of its join predicates, none is tested, and of
        its absences none with such a filter.
    selected
        The selected variables: None for all (``*``), the empty set for none (``NONE``).
    guards
        The first of its guards, which may be more than those of the formula.

    Raises
    ------
    QueryTooLargeError
        When counted repetitions copy too much.
    """
    builder = _CeaBuilder(selected, guards)
    fold((formula, INITIAL, FINAL), builder.leave, builder.enter)
    return CEA(builder.n_states, tuple(builder.guards), tuple(builder.transitions), tuple(builder.silent))


_Part = tuple[NormalForm, int, int]  # a formula, and its start and end states


class _CeaBuilder:
    """Thompson's construction: a part adds edges out of its start, edges into its end, and fresh states between."""

    def __init__(self, selected: frozenset[str] | None, guards: Sequence[Guard]) -> None:
        self.selected = selected
        self.n_states = 2
        self.guards: dict[Guard, int] = {guard: i for i, guard in enumerate(guards)}
        self.transitions: list[Transition] = []
        self.silent: list[tuple[int, int]] = []
        self._index_by_id: dict[
            int, int
        ] = {}  # index of a guard by its id: a guard shared by many atoms is hashed once

    def state(self) -> int:
        self.n_states += 1
        if self.n_states > _MAX_STATES:
            raise QueryTooLargeError(
                f"the automaton of the query has more than {_MAX_STATES} states",
                hint="{n,m} copies what it repeats; smaller numbers, or + where the number may be any, need fewer",
            )
        return self.n_states - 1

    def waiting_state(self, absent: tuple[Absent, ...] = ()) -> int:
        """Return a fresh state with a waiting loop: it skips any event that is not `absent`."""
        state = self.state()
        barred = tuple((self.guard(each.guard), each.negated) for each in absent if not each.relations)
        self.transitions.append(Transition(state, ANY, False, frozenset(), state, barred=barred))
        return state

    def guard(self, guard: Guard) -> int:
        """Return the index of a guard in `CEA.guards`."""
        index = self._index_by_id.get(id(guard))
        if index is None:
            index = self._index_by_id[id(guard)] = self.guards.setdefault(guard, len(self.guards))
        return index

    def enter(self, part: _Part) -> list[_Part]:
        formula, start, end = part
        match formula:
            case Atom():
                selected = formula.labels if self.selected is None else formula.labels & self.selected
                guard = self.guard(formula.guard)
                self.transitions.append(Transition(start, guard, formula.negated, selected, end, formula.labels))
                return []
            case Either():
                return [(formula.left, start, end), (formula.right, start, end)]
            case Then():
                middle = self.state() if formula.contiguous else self.waiting_state(formula.absent)
                after_left, before_right = middle, middle
                if formula.optional[1]:
                    after_left = self.state()
                    self.silent += [(after_left, middle), (after_left, end)]
                if formula.optional[0]:
                    before_right = self.state()
                    self.silent += [(middle, before_right), (start, before_right)]
                return [(formula.left, start, after_left), (formula.right, before_right, end)]
            case Repeat():
                parts = [(formula.body, self.state(), self.state()) for _ in range(copies_of(formula))]
                self.silent.append((start, parts[0][1]))
                self.silent += [(last, end) for _, _, last in parts[formula.n_min - 1 :]]
                return parts
            case Related() | Trailing():
                return [(formula.body, start, end)]
            case Both():
                raise TypeError("a conjunction has no complex event automaton of linear size")

    def leave(self, part: _Part, below: list[_Part]) -> _Part:
        """Join the copies of the body of a repetition, and the last to itself if there is no bound; return the part."""
        formula = part[0]
        if isinstance(formula, Repeat):
            onward = below[1:] if formula.n_max is not None else [*below[1:], below[-1]]
            for (_, _, last), (_, first, _) in zip(below, onward, strict=False):
                if formula.contiguous:
                    self.silent.append((last, first))
                else:
                    wait = self.waiting_state(formula.absent)
                    self.silent += [(last, wait), (wait, first)]
        return part
