"""Chain patterns: a run occupies exactly one step, so no determinisation is needed.

A chain is a sequence of steps joined by ``;``.  A step is one event, with alternatives joined by OR, or, with ``+``,
one or more events; two steps of one event each may also be joined by ``:``.  The effect of an event depends only on
the set of steps that it satisfies, which is its symbol; partial matches lie in one stack for each step
(`cer_gpu.backend.stacks`).

papers: the instance stacks are those of SASE (Wu, Diao, Rizvi, SIGMOD 2006), with the max-start of CORE, section 5.1,
which spares the listing dead ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from cer_gpu.automaton.encoding import END_OF_LIST
from cer_gpu.automaton.normal_form import Atom, Guard, NormalForm, Repeat, choices, sequence, unrelated
from cer_gpu.automaton.table import Table

MAX_STEPS = 64


@dataclass(frozen=True)
class Step:
    """A step: an event that satisfies one of `guards` (indices of `CEA.guards`), or several such events if `repeated`.

    `labels` are the selected variables that hold the events; None: they depend on the guard.  A `neighbour` comes right
    after the event of the step before.
    """

    guards: tuple[int, ...]
    repeated: bool
    labels: frozenset[str] | None
    neighbour: bool = False


def find_chain(
    formula: NormalForm, guards: Sequence[Guard], selected: frozenset[str] | None, *, strict: bool = False
) -> tuple[Step, ...] | str:
    """Return the steps of a formula that is a chain of two or more steps, else the reason why it is not.

    With `strict`, all events are neighbours.  SELECT must keep every step, and the kept events must determine the step
    of each: otherwise several runs would stand for one complex event.  Filters between events are left out of account.
    """
    number = {guard: i for i, guard in enumerate(guards)}
    numbers: dict[int, int] = {}  # index of a guard by its id: a guard shared by many atoms is hashed once
    steps: list[Step] = []
    for part, joint in sequence(unrelated(formula)):
        if any(joint.optional):
            return "a step may be missing"
        if joint.absent:
            return "events must be absent between two steps"
        contiguous = joint.contiguous
        repeated = isinstance(part, Repeat)
        if isinstance(part, Repeat):
            if part.contiguous:
                return "':+' asks for neighbouring events"
            if part.absent or part.least != 1 or part.most is not None:
                return "a step is repeated otherwise than by '+'"
            part = part.body
        atoms = _alternatives(part)
        if atoms is None:
            return "a step is more than one event"
        if any(atom.negated for atom in atoms):
            return "a step is NOT(...)"
        kept = {atom.labels if selected is None else atom.labels & selected for atom in atoms}
        if frozenset() in kept:
            return "SELECT does not keep every step"
        labels = kept.pop() if len(kept) == 1 else None
        neighbour = contiguous or (strict and len(steps) > 0)
        if neighbour and (repeated or steps[-1].repeated):
            return "events of a '+' are to be neighbours of others"
        for atom in atoms:
            if id(atom.guard) not in numbers:
                numbers[id(atom.guard)] = number[atom.guard]
        steps.append(Step(tuple(dict.fromkeys(numbers[id(atom.guard)] for atom in atoms)), repeated, labels, neighbour))
    if len(steps) < 2:
        return "the pattern has one step"
    if len(steps) > MAX_STEPS:
        return f"the pattern has more than {MAX_STEPS} steps"
    several = [i for i, step in enumerate(steps) if step.repeated]
    if len(several) > 1:
        # a single + takes all events between its neighbours; with several, each event must determine its own step
        inner = steps[several[0] : several[-1] + 1]
        if not all(_apart(guards, a, b) for a, b in combinations(inner, 2)):
            return "an event could be at several steps from the first '+' to the last"
    return tuple(steps)


def _alternatives(formula: NormalForm) -> list[Atom] | None:
    atoms = []
    for part in choices(formula):
        if not isinstance(part, Atom):
            return None
        atoms.append(part)
    return atoms


def _apart(guards: Sequence[Guard], a: Step, b: Step) -> bool:
    """Return True if types or streams rule out that an event satisfies both steps.

    In one query either all guards of events name a type or none does, and the same holds for streams.
    """
    of_a, of_b = ({(guards[i].event_type, guards[i].stream) for i in step.guards} for step in (a, b))
    return of_a.isdisjoint(of_b)


class Chain(Table):
    """Symbol table of a chain, with the symbols met so far; takes the place of `Determinization`.

    Attributes
    ----------
    steps : tuple of Step
    repeated : bool array, shape (steps,)
        True for steps of one or more events.
    neighbours : bool array, shape (steps + 1,)
        True for steps whose event comes right after that of the step before; False at the end.
    n_waiting : int
        Steps from which a run can go on: all but the last, and the last too if it is repeated.
    steps_of : int32 array, shape (symbols, steps + 1)
        Steps that events of each symbol satisfy, descending, then `END_OF_LIST`.
    ending : bool array, shape (symbols,)
        True for symbols whose events may be at the last step.
    labels : list of frozenset of str
        Variables of each mark; the mark of step k is k + 1.
    has_gaps : bool
        True if any step is a neighbour.
    """

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps
        self.repeated: npt.NDArray[np.bool_] = np.array([step.repeated for step in steps])
        self.neighbours: npt.NDArray[np.bool_] = np.array([*(step.neighbour for step in steps), False])
        self.has_gaps = bool(self.neighbours.any())
        self.n_waiting = len(steps) - (not steps[-1].repeated)
        self.labels = [frozenset[str](), *(step.labels or frozenset[str]() for step in steps)]
        self.steps_of: npt.NDArray[np.int32] = np.full((4, len(steps) + 1), END_OF_LIST, np.int32)
        self.ending: npt.NDArray[np.bool_] = np.zeros(4, np.bool_)
        self._symbols: dict[int, int] = {}  # symbol by the bit mask of the steps
        self._masks = [sum(1 << guard for guard in step.guards) for step in steps]
        self._symbol(0)  # that of events that satisfy no step

    def symbol(self, word: int) -> int:
        """Return the symbol of a bit vector (bit g: the event satisfies guard g)."""
        return self._symbol(sum(1 << k for k, mask in enumerate(self._masks) if word & mask))

    def _symbol(self, satisfied: int) -> int:
        symbol = self._symbols.get(satisfied)
        if symbol is None:
            symbol = self._symbols[satisfied] = len(self._symbols)
            if symbol == len(self.steps_of):
                self.steps_of = np.concatenate([self.steps_of, np.full_like(self.steps_of, END_OF_LIST)])
                self.ending = np.concatenate([self.ending, np.zeros_like(self.ending)])
            steps = [k for k in reversed(range(len(self.steps))) if satisfied >> k & 1]
            self.steps_of[symbol, : len(steps)] = steps
            self.ending[symbol] = steps[:1] == [len(self.steps) - 1]
        return symbol

    def met(self, most: int) -> None:
        """Return None: a chain has no determinised states."""

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the numbering of symbols, for JSON."""
        return {"symbols": list(self._symbols)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Adopt the numbering of another evaluation of the same query."""
        for satisfied in snapshot["symbols"]:
            self._symbol(satisfied)
