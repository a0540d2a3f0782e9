"""Chain patterns: a run occupies exactly one step, so no determinisation is needed.

A chain is a sequence of steps joined by ``;``.  A step is one event, with alternatives joined by OR, or, with ``+``
or ``{n,m}``, several; two steps may also be joined by ``:``.  Events may be absent from the gap between two steps
(``; !R ;``, ``->``).  The effect of an event depends only on the set of steps that it satisfies and
on the gaps that it bars, which are its symbol; partial matches are in one stack for each step
(`cer_gpu.backend.chains.stacks`).

papers: the instance stacks are those of SASE (Wu, Diao, Rizvi, SIGMOD 2006), with the max-start of CORE, section 5.1,
so that listing meets no dead ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cer_gpu.arrays import Array, Bools, Int32, Int64
from cer_gpu.automaton.alphabet import NumberedAlphabet
from cer_gpu.automaton.encoding import END_OF_LIST
from cer_gpu.automaton.normal_form import Atom, Guard, Joint, NormalForm, Repeat, choices, sequence, unrelated
from cer_gpu.ceql.one_event import are_apart
from cer_gpu.ceql.syntax import Within

MAX_STEPS = 64

UNBOUNDED = 2**62
"""In `Chain.max_counts`: any number of events."""


@dataclass(frozen=True)
class ChainStep:
    """A step: an event that satisfies one of `guards`, or several such events if `repeated`.

    Attributes
    ----------
    guards : tuple of int
        Indices of `LogicalPlan.guards`.
    repeated : bool
        True if the step may hold more than one event.
    labels : frozenset of str or None
        Selected variables that hold the events, or None if they depend on the guard.
    neighbour : bool
        True if the event comes right after that of the step before.
    n_min, n_max : int, int or None
        Number of events of a repeated step, or None for no bound.
    linked : bool
        True if each event of a repeated step but the first follows the previous one of the stream (``->+``).
    barring : tuple of int
        Guards of the events that must not lie between the step before and the first event of this one.
    gap : Within or None
        Longest distance of the first event from the step before, or None if any.
    own_gap : Within or None
        Longest distance of two neighbouring events of a repeated step.
    windows : tuple of (int, Within)
        First step, and length, of each window around some steps of which this one is the last.
    optional : bool
        True if a run may go on without it: it is a further event of the step before (``{n,m}``).
    """

    guards: tuple[int, ...]
    repeated: bool
    labels: frozenset[str] | None
    neighbour: bool = False
    n_min: int = 1
    n_max: int | None = None
    linked: bool = False
    barring: tuple[int, ...] = ()
    gap: Within | None = None
    own_gap: Within | None = None
    windows: tuple[tuple[int, Within], ...] = ()
    optional: bool = False

    @property
    def spaced(self) -> bool:
        """True if there are bounds on the distances of its events from others."""
        return self.gap is not None or self.own_gap is not None or bool(self.windows)

    @property
    def bounded(self) -> bool:
        """True if a repeated step holds a bounded number of events."""
        return self.repeated and self.n_max is not None

    @property
    def varies(self) -> bool:
        """True if the number of events is not fixed."""
        return self.repeated and self.n_min != self.n_max


@dataclass(frozen=True)
class Rejection:
    """Reason why a pattern or an expression has not the form that an algorithm needs; a clause for a message."""

    reason: str


def find_chain(
    formula: NormalForm, guards: Sequence[Guard], selected: frozenset[str] | None, *, strict: bool = False
) -> tuple[ChainStep, ...] | Rejection:
    """Return the steps of a formula that is a chain of two or more steps, else the reason why it is not.

    With `strict`, all events are neighbours.  SELECT must select every step, and the selected events must determine the
    step of each: otherwise several runs would represent one match.  Join predicates are ignored.
    """
    finder = _StepFinder(guards, selected, strict)
    steps: list[ChainStep] = []
    for part, joint in sequence(unrelated(formula)):
        step = finder.step_of(part, joint, steps[-1] if steps else None)
        if isinstance(step, Rejection):
            return step
        steps.append(step)
    return _reject_whole(steps, guards) or tuple(steps)


class _StepFinder:
    """Finder of the steps of one formula.

    Parameters
    ----------
    guards, selected, strict
        As of `find_chain`.
    """

    def __init__(self, guards: Sequence[Guard], selected: frozenset[str] | None, strict: bool) -> None:
        self._selected, self._strict = selected, strict
        self._indices = {guard: i for i, guard in enumerate(guards)}
        self._indices_by_id: dict[int, int] = {}  # a guard shared by many atoms is hashed once

    def step_of(self, part: NormalForm, joint: Joint, previous: ChainStep | None) -> ChainStep | Rejection:
        """Return a part of a sequence as the step that follows `previous`."""
        if any(joint.optional):
            return Rejection("a step may be missing")
        repeat = part if isinstance(part, Repeat) else None
        if repeat is not None and repeat.contiguous:
            return Rejection("':+' asks for neighbouring events")
        atoms = _alternatives(part if repeat is None else repeat.body)
        if isinstance(atoms, Rejection):
            return atoms
        labels = {atom.labels if self._selected is None else atom.labels & self._selected for atom in atoms}
        if frozenset() in labels:
            return Rejection("SELECT does not keep every step")
        repeated = repeat is not None and repeat.n_max != 1
        neighbour = joint.contiguous or (self._strict and previous is not None)
        beside_several = neighbour and (repeated or (previous is not None and previous.repeated))
        if self._strict and beside_several:
            return Rejection("events of a '+' are to be neighbours of others")
        between = () if repeat is None else repeat.absent
        if any(gap.relations or gap.negated for gap in (*joint.absent, *between)):
            return Rejection("a join predicate, or NOT, tells which events are absent")
        own = tuple(dict.fromkeys(self._index(atom.guard) for atom in atoms))
        barring = () if neighbour else tuple(dict.fromkeys(self._indices[gap.guard] for gap in joint.absent))
        only_label = labels.pop() if len(labels) == 1 else None
        if repeat is None:
            return ChainStep(own, False, only_label, neighbour, barring=barring)
        if between and {self._indices[gap.guard] for gap in between} != set(own):
            return Rejection("events that are not of a '->+' bar it")
        if between and (barring or beside_several) and repeat.n_max is not None:
            return Rejection("a '->{n,m}' comes after a gap that may not be crossed")
        linked = repeated and bool(between)
        return ChainStep(own, repeated, only_label, neighbour, repeat.n_min, repeat.n_max, linked, barring)

    def _index(self, guard: Guard) -> int:
        if id(guard) not in self._indices_by_id:
            self._indices_by_id[id(guard)] = self._indices[guard]
        return self._indices_by_id[id(guard)]


def _alternatives(formula: NormalForm) -> list[Atom] | Rejection:
    """Return the alternatives of a step, each of which is one event."""
    parts = list(choices(formula))
    atoms = [part for part in parts if isinstance(part, Atom)]
    if len(atoms) < len(parts):
        return Rejection("a step is more than one event")
    return Rejection("a step is NOT(...)") if any(atom.negated for atom in atoms) else atoms


def _reject_whole(steps: Sequence[ChainStep], guards: Sequence[Guard]) -> Rejection | None:
    """Return the reason why steps, each of which may be in a chain, are not one together, or None if they are."""
    if len(steps) < 2:
        return Rejection("the pattern has one step")
    if len(steps) > MAX_STEPS:
        return Rejection(f"the pattern has more than {MAX_STEPS} steps")
    several = [i for i, step in enumerate(steps) if step.varies]
    # a single + takes all events between its neighbours; with several, each event must determine its own step
    inner = steps[several[0] : several[-1] + 1] if len(several) > 1 else ()
    if inner and not are_apart([guards[i] for i in step.guards] for step in inner):
        return Rejection("an event could be at several steps from the first '+' to the last")
    return None


def are_neighbours(steps: Sequence[ChainStep]) -> bool:
    """Return True if each event of a match is right after the one before it."""
    return all(step.neighbour for step in steps[1:]) and not any(step.repeated for step in steps)


def are_spaced(steps: Sequence[ChainStep]) -> bool:
    """Return True if there are bounds on the distances of the events of a chain, beside its window."""
    return any(step.spaced for step in steps)


def n_sources(steps: Sequence[ChainStep]) -> tuple[int, ...]:
    """Return for each step, and for the end, at how many of the steps right before it a run may be that goes on to it.

    Those are the step before, and others from which a run leaves out optional steps.
    """
    numbers, n_left_out = [], 0
    for step in steps:
        numbers.append(1 if step.optional else 1 + n_left_out)
        n_left_out = n_left_out + 1 if step.optional else 0
    return (*numbers, 1 + n_left_out)


def nests_windows(steps: Sequence[ChainStep]) -> bool:
    """Return True if a step of a chain is in several windows, so that walks along its stacks cannot count matches."""
    covered: set[int] = set()
    for within in (range(first, last + 1) for last, step in enumerate(steps) for first, _ in step.windows):
        if not covered.isdisjoint(within):
            return True
        covered.update(within)
    return False


class Chain(NumberedAlphabet):
    """Symbol table of a chain, with the symbols met so far; takes the place of `Determinization`.

    Attributes
    ----------
    steps : tuple of ChainStep
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
    is_gapped : bool
        True if events are absent from some gap: given ones, or all, where a step of several events, or the step after
        one, must be a neighbour.
    is_counted : bool
        True if some step has two events at least.
    spare : int64 array, shape (steps + 1,), or (0,)
        0, then how many events each step has at least, beyond one; this and the following are empty for a plain chain:
        one without absences and bounds on distances, whose repeated steps are all ``+``.
    max_counts : int64 array, shape (steps,), or (0,)
        Greatest number of events of each step.
    linked : bool array, shape (steps,), or (0,)
        True for steps whose events follow one another (``->+``).
    bars : int32 array, shape (symbols, steps), or (0, 0)
        Steps whose gap before them events of each symbol bar, then `END_OF_LIST`; empty if nothing is absent.
    """

    def __init__(self, steps: tuple[ChainStep, ...]) -> None:
        self.steps = steps
        self.repeated: Bools = np.array([step.repeated for step in steps])
        self.neighbours: Bools = np.array([*(step.neighbour for step in steps), False])
        self.has_gaps: bool = bool(self.neighbours.any())
        self.n_waiting: int = len(steps) - (not steps[-1].repeated)
        self.labels: list[frozenset[str]] = [frozenset[str](), *(step.labels or frozenset[str]() for step in steps)]
        self.steps_of: Int32 = np.full((4, len(steps) + 1), END_OF_LIST, np.int32)
        self.ending: Bools = np.zeros(4, np.bool_)
        beside = any(b.neighbour and (a.repeated or b.repeated) for a, b in pairwise(steps))
        self.is_gapped: bool = beside or any(step.barring for step in steps)
        self.is_counted: bool = any(step.n_min > 1 for step in steps)
        counts_events = any(step.linked or step.bounded or step.n_min > 1 for step in steps) or are_spaced(steps)
        plain = not (self.is_gapped or counts_events)
        bound_steps = () if plain else steps
        self.spare: Int64 = np.array([0, *(step.n_min - 1 for step in bound_steps)][bool(plain) :], np.int64)
        max_counts = [
            1 if not step.repeated else UNBOUNDED if step.n_max is None else step.n_max for step in bound_steps
        ]
        self.max_counts: Int64 = np.array(max_counts, np.int64)
        self.linked: Bools = np.array([step.linked for step in bound_steps], np.bool_)
        shape = (4, len(steps)) if self.is_gapped else (0, 0)
        self.bars: Int32 = np.full(shape, END_OF_LIST, np.int32)
        tests = [*(step.guards for step in steps), *(step.barring for step in steps)]
        self._masks = [sum(1 << guard for guard in guards) for guards in tests]
        self._kind = np.zeros((0,) * (1 + self.is_gapped + 2 * counts_events), np.bool_)
        super().__init__()

    def passed_tests(self, word: int) -> int:
        """Return the steps that an event passes, then the gaps before steps that it bars, given its bit vector."""
        return sum(1 << k for k, mask in enumerate(self._masks) if word & mask)

    def add_symbol(self, symbol: int, passed: int) -> None:
        """Add a new symbol to the tables."""
        if symbol == len(self.steps_of):
            self.steps_of = np.concatenate([self.steps_of, np.full_like(self.steps_of, END_OF_LIST)])
            self.ending = np.concatenate([self.ending, np.zeros_like(self.ending)])
            self.bars = np.concatenate([self.bars, np.full_like(self.bars, END_OF_LIST)])
        steps = [k for k in reversed(range(len(self.steps))) if passed >> k & 1]
        self.steps_of[symbol, : len(steps)] = steps
        self.ending[symbol] = steps[:1] == [len(self.steps) - 1]
        barred = [k for k in range(len(self.steps)) if passed >> (len(self.steps) + k) & 1]
        if barred:
            self.bars[symbol, : len(barred)] = barred

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that the loops read (`cer_gpu.backend.arguments.Steps`)."""
        return (
            self.steps_of,
            self.repeated,
            self.neighbours,
            self._kind,
            self.spare,
            self.max_counts,
            self.linked,
            self.bars,
        )
