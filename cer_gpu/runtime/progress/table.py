"""Funnels: chains of steps of one event each, of which the output "funnel" reports how far each start gets.

A start continues at the earliest event that satisfies its next step.  Starts of a partition that have reached the same
step therefore move on together, and an event matters only by the steps that it satisfies and the gaps that it bars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from cer_gpu.arrays import Bools, Int32
from cer_gpu.automaton.alphabet import NumberedAlphabet
from cer_gpu.automaton.chain import MAX_STEPS
from cer_gpu.automaton.encoding import BARS, END_OF_LIST, MOVES
from cer_gpu.automaton.normal_form import (
    Absent,
    Atom,
    Either,
    Guard,
    NormalForm,
    Related,
    Repeat,
    Then,
    Trailing,
    absences,
    choices,
    sequence,
)
from cer_gpu.automaton.recent import in_gaps
from cer_gpu.automaton.recent_pattern import RecentPattern
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import children, fold, walk, with_children


@dataclass(frozen=True)
class FunnelStep:
    """A step: an event that satisfies one of `guards`.

    Attributes
    ----------
    guards : tuple of int
        Indices of `LogicalPlan.guards`.
    barring : tuple of int
        Guards of the events that must not lie between the step before and this one.
    labels : frozenset of str
        Variables that hold the event, by any of its alternatives.
    keys : tuple of str
        Columns whose values a start shares with the event; empty in all other steps.
    barring_keys : tuple of tuple of str
        The same of each of `barring`, where steps have keys.
    """

    guards: tuple[int, ...]
    barring: tuple[int, ...]
    labels: frozenset[str]
    keys: tuple[str, ...] = ()
    barring_keys: tuple[tuple[str, ...], ...] = ()


class NoFunnelError(Exception):
    """Reason why a pattern is no chain of steps of one event each; the second argument is a hint."""


def funnel_steps(
    formula: NormalForm, guards: Sequence[Guard], keyed: RecentPattern | None = None
) -> tuple[FunnelStep, ...]:
    """Return the steps of a pattern.

    Parameters
    ----------
    formula
    guards
    keyed
        The steps of SELECT RECENT, if join predicates are the equalities that they share as keys.

    Raises
    ------
    NoFunnelError
        When it is no chain of steps of one event each, with the reason.
    """
    if isinstance(formula, Trailing):
        raise NoFunnelError(*_TRAILING)
    number = {guard: i for i, guard in enumerate(guards)}
    if keyed is not None:
        formula = fold(formula, _without_filter, children)
    steps = _steps(formula, number, ())
    if len(steps) > MAX_STEPS:
        raise NoFunnelError(f"it has more than {MAX_STEPS} steps", "a shorter chain")
    if keyed is None:
        return tuple(steps)
    return tuple(_with_keys(step, keyed, k) for k, step in enumerate(steps))


def needs_tests(formula: NormalForm) -> bool:
    """Return True if whether a start goes on depends on more than the type and the filter of an event by itself."""
    atoms = (part.negated for part in walk(formula) if isinstance(part, Atom))
    joints = (part.contiguous for part in walk(formula) if isinstance(part, Then))
    repeats = (part.contiguous and part.n_min > 1 for part in walk(formula) if isinstance(part, Repeat))
    return relates(formula) or any(atoms) or any(a.negated for a in absences(formula)) or any(joints) or any(repeats)


def first_events(formula: NormalForm) -> NormalForm:
    """Return a pattern with as many repetitions as it needs, and with the absence of any event in place of each ``:``.

    Raises
    ------
    NoFunnelError
        When it is no chain of steps of one event each, with the reason.
    """
    return fold(in_gaps(formula), _first_events, children)


def _first_events(part: NormalForm, below: list[NormalForm]) -> NormalForm:
    part = with_children(part, below)
    match part:
        case Then():
            if any(part.optional):
                raise NoFunnelError(*_MISSING)
        case Repeat():
            return replace(part, n_max=part.n_min)
        case Trailing():
            raise NoFunnelError(*_TRAILING)
        case Either():
            for each in choices(part):
                while isinstance(each, Related):
                    each = each.body
                if not isinstance(each, Atom):
                    raise NoFunnelError(
                        "OR is between longer parts",
                        "alternatives of a step are single events, (A OR B); a filter is one predicate: "
                        "b[x = a.x OR y > 3]",
                    )
    return part


_MISSING = "a step may be missing", "write the step without `?` or `*`"
_TRAILING = "it ends with an absence", "leave out the absence: `stopped` tells what ends each way"


def _without_filter(part: NormalForm, below: list[NormalForm]) -> NormalForm:
    formula: NormalForm = below[0] if isinstance(part, Related) else with_children(part, below)
    return formula


def relates(formula: NormalForm) -> bool:
    """Return True if a pattern has join predicates."""
    related = any(isinstance(part, Related) for part in walk(formula))
    return related or any(absent.relations for absent in absences(formula))


def _with_keys(step: FunnelStep, keyed: RecentPattern, number: int) -> FunnelStep:
    """Return a step with the columns of its keys."""
    own = keyed.steps[number]
    if any(absence.key is None for absence in own.absent):
        raise NoFunnelError("what is absent has none of the keys that the steps share", "give it the keys of the steps")
    barring_keys = [
        tuple(column.name for column in absence.key or () if isinstance(column, s.Attribute)) for absence in own.absent
    ]
    return replace(
        step,
        keys=tuple(key[number][0].name for key in keyed.keys),
        barring=tuple(absence.guard for absence in own.absent),
        barring_keys=tuple(barring_keys),
    )


def _steps(formula: NormalForm, number: dict[Guard, int], barring: tuple[Absent, ...]) -> list[FunnelStep]:
    """Return the steps of a part, whose first step `barring` events bar; a repetition has its least number of them."""
    steps: list[FunnelStep] = []
    for part, joint in sequence(formula):
        if any(joint.optional):
            raise NoFunnelError(*_MISSING)
        before = joint.absent if steps else barring
        if isinstance(part, Repeat):
            for k in range(part.n_min):  # the earliest events that suffice
                steps += _steps(part.body, number, part.absent if k else before)
                if len(steps) > MAX_STEPS:
                    break
        else:
            steps.append(_funnel_step(part, number, before))
    return steps


def _funnel_step(part: NormalForm, number: dict[Guard, int], barring: tuple[Absent, ...]) -> FunnelStep:
    atoms = []
    for each in choices(part):
        if not isinstance(each, Atom):
            raise NoFunnelError("a step is more than one event", "alternatives of a step are single events: (A OR B)")
        atoms.append(each)
    return FunnelStep(
        tuple(dict.fromkeys(number[atom.guard] for atom in atoms)),
        tuple(dict.fromkeys(number[absent.guard] for absent in barring)),
        frozenset[str]().union(*(atom.labels for atom in atoms)),
    )


class FunnelTable(NumberedAlphabet):
    """Symbol table of a funnel, with the symbols met so far.

    Attributes
    ----------
    steps : tuple of FunnelStep
    ending : bool array, shape (symbols,)
        True for symbols whose events satisfy the last step.
    actions : int32 array, shape (symbols, steps + 1)
        Effects of an event, from the last step to the first, then `END_OF_LIST`: ``2 * k + MOVES``, the starts that
        wait for step k move to it (or, with k = 0, one begins); ``2 * k + BARS``, they are barred.
    labels : list of frozenset of str
        Variables of the steps, by their numbers from 1 on.
    """

    def __init__(self, steps: tuple[FunnelStep, ...]) -> None:
        self.steps = steps
        self.has_gaps = False
        self.labels: list[frozenset[str]] = [frozenset[str](), *(step.labels for step in steps)]
        self.ending: Bools = np.zeros(0, np.bool_)
        self.actions: Int32 = np.zeros((0, len(steps) + 1), np.int32)
        tests = [*(step.guards for step in steps), *(step.barring for step in steps)]
        self._masks = [sum(1 << guard for guard in guards) for guards in tests]
        super().__init__()

    def passed_tests(self, word: int) -> int:
        """Return the steps that an event with a bit vector satisfies, then the gaps before steps that it bars."""
        return sum(1 << k for k, mask in enumerate(self._masks) if word & mask)

    def add_symbol(self, symbol: int, passed: int) -> None:
        """Add a new symbol to the tables."""
        n = len(self.steps)
        moves = [2 * k + MOVES for k in range(n) if passed >> k & 1]
        # an event of the next step is not between: it does not bar
        bars = [2 * k + BARS for k in range(n) if passed >> (n + k) & 1 and not passed >> k & 1]
        actions = np.full((1, n + 1), END_OF_LIST, np.int32)
        actions[0, : len(moves) + len(bars)] = sorted(moves + bars, reverse=True)
        self.actions = np.concatenate([self.actions, actions])
        self.ending = np.append(self.ending, bool(passed >> (n - 1) & 1))


class KeyedFunnelTable(FunnelTable):
    """Symbol table of such a funnel.

    Attributes
    ----------
    columns : list of tuple of str
        Different columns that make keys.
    firsts : int32 array, shape (symbols + 1,)
        First of the parts of each symbol.
    parts : int32 array, shape (parts, 2)
        For each part its columns, as a number in `columns`, and its row in `actions`.
    """

    def __init__(self, steps: tuple[FunnelStep, ...]) -> None:
        tests = [(k, MOVES, step.guards, step.keys) for k, step in enumerate(steps)]
        for k, step in enumerate(steps):
            for keys in dict.fromkeys(step.barring_keys):
                guards = tuple(guard for guard, of in zip(step.barring, step.barring_keys, strict=True) if of == keys)
                tests.append((k, BARS, guards, keys))
        self.columns: list[tuple[str, ...]] = list(dict.fromkeys(keys for *_, keys in tests))
        # from the last step to the first, and what moves before what bars
        self._effects = sorted(
            ((k, effect, self.columns.index(keys), sum(1 << guard for guard in set(guards)))
             for k, effect, guards, keys in tests),
            key=lambda test: (-test[0], test[1]),
        )  # fmt: skip
        self.firsts: Int32 = np.zeros(1, np.int32)
        self.parts: Int32 = np.zeros((0, 2), np.int32)
        self._rows: dict[tuple[int, ...], int] = {}
        super().__init__(steps)

    def passed_tests(self, word: int) -> int:
        """Return the effects of an event with a bit vector."""
        return sum(1 << i for i, (*_, mask) in enumerate(self._effects) if word & mask)

    def add_symbol(self, symbol: int, passed: int) -> None:
        """Add a symbol with the effects of its events."""
        effects: list[tuple[int, int, int]] = []
        for i, (k, effect, columns, _) in enumerate(self._effects):
            # an event of the next step is not between: it does not bar
            if passed >> i & 1 and (effect == MOVES or (k, MOVES, columns) not in effects):
                effects.append((k, effect, columns))
        parts = []
        for columns, part in groupby(effects, key=lambda each: each[2]):
            parts.append((columns, self._row(tuple(2 * k + effect for k, effect, _ in part))))
        self.parts = np.concatenate([self.parts, np.array(parts, np.int32).reshape(len(parts), 2)])
        self.firsts = np.append(self.firsts, np.int32(len(self.parts)))
        n = len(self.steps)
        self.ending: Bools = np.append(self.ending, (n - 1, MOVES) in {each[:2] for each in effects})

    def _row(self, actions: tuple[int, ...]) -> int:
        """Return the row of some actions."""
        if actions not in self._rows:
            self._rows[actions] = len(self._rows)
            row = np.full((1, len(self.steps) + 1), END_OF_LIST, np.int32)
            row[0, : len(actions)] = actions
            self.actions: Int32 = np.concatenate([self.actions, row])
        return self._rows[actions]
