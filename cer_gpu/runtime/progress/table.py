"""Funnels: chains of steps of one event each, of which the output "progress" tells how far each start gets.

A start goes on at the earliest event that satisfies its next step.  Starts of one partition that have reached the same
step therefore move on together, and an event matters only by the steps that it satisfies and the gaps that it bars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cer_gpu.arrays import Bools, Int32
from cer_gpu.automaton.chain import MAX_STEPS
from cer_gpu.automaton.encoding import BARS, END_OF_LIST, MOVES
from cer_gpu.automaton.normal_form import (
    Absent,
    Atom,
    Guard,
    NormalForm,
    Related,
    Repeat,
    Trailing,
    absences,
    choices,
    sequence,
)
from cer_gpu.automaton.table import NumberedTable
from cer_gpu.ceql.traversal import walk


@dataclass(frozen=True)
class FunnelStep:
    """A step: an event that satisfies one of `guards`.

    Attributes
    ----------
    guards : tuple of int
        Indices of `Plan.guards`.
    barring : tuple of int
        Guards of the events that must not lie between the step before and this one.
    labels : frozenset of str
        Variables that hold the event, by any of its alternatives.
    """

    guards: tuple[int, ...]
    barring: tuple[int, ...]
    labels: frozenset[str]


class NoFunnelError(Exception):
    """Reason why a pattern is no chain of steps of one event each; the second argument is a hint."""


def funnel_steps(formula: NormalForm, guards: Sequence[Guard]) -> tuple[FunnelStep, ...]:
    """Return the steps of a pattern.

    Raises
    ------
    NoFunnelError
        When it is no chain of steps of one event each, with the reason.
    """
    related = any(isinstance(part, Related) for part in walk(formula))
    if related or any(absent.relations for absent in absences(formula)):
        raise NoFunnelError(
            "it has a filter between events",
            "for events of equal values, PARTITION BY their column",
        )
    if isinstance(formula, Trailing):
        raise NoFunnelError("it ends with an absence", "leave out the absence: `stopped` tells what ends each way")
    number = {guard: i for i, guard in enumerate(guards)}
    steps = _steps(formula, number, ())
    if len(steps) > MAX_STEPS:
        raise NoFunnelError(f"it has more than {MAX_STEPS} steps", "a shorter chain")
    return tuple(steps)


def _steps(formula: NormalForm, number: dict[Guard, int], barring: tuple[Absent, ...]) -> list[FunnelStep]:
    """Return the steps of a part, whose first step is barred by given events."""
    found: list[FunnelStep] = []
    for part, joint in sequence(formula):
        if any(joint.optional):
            raise NoFunnelError("a step may be missing", "write the step without `?` or `*`")
        if joint.contiguous:
            raise NoFunnelError("':' asks for neighbouring events", "`;` allows others between")
        before = joint.absent if found else barring
        if isinstance(part, Repeat):
            if part.least != part.most or part.contiguous:
                raise NoFunnelError("a step is repeated", "f{n}, for a given number of times, is n steps")
            for k in range(part.least):
                found += _steps(part.body, number, part.absent if k else before)
                if len(found) > MAX_STEPS:
                    break
        else:
            found.append(_step(part, number, before))
    return found


def _step(part: NormalForm, number: dict[Guard, int], barring: tuple[Absent, ...]) -> FunnelStep:
    atoms = []
    for each in choices(part):
        if not isinstance(each, Atom):
            raise NoFunnelError("a step is more than one event", "alternatives of a step are single events: (A OR B)")
        atoms.append(each)
    if any(atom.negated for atom in atoms) or any(absent.negated for absent in barring):
        raise NoFunnelError("a step, or an absence, is NOT(...)", "name the types that it may have: (A OR B)")
    return FunnelStep(
        tuple(dict.fromkeys(number[atom.guard] for atom in atoms)),
        tuple(dict.fromkeys(number[absent.guard] for absent in barring)),
        frozenset[str]().union(*(atom.labels for atom in atoms)),
    )


class FunnelTable(NumberedTable):
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
        self.labels = [frozenset[str](), *(step.labels for step in steps)]
        self.ending: Bools = np.zeros(0, np.bool_)
        self.actions: Int32 = np.zeros((0, len(steps) + 1), np.int32)
        tests = [*(step.guards for step in steps), *(step.barring for step in steps)]
        self._masks = [sum(1 << guard for guard in guards) for guards in tests]
        super().__init__()

    def _passed(self, word: int) -> int:
        """Return the steps that an event satisfies, then the gaps before steps that it bars, given its bit vector."""
        return sum(1 << k for k, mask in enumerate(self._masks) if word & mask)

    def _add(self, symbol: int, passed: int) -> None:
        n = len(self.steps)
        moves = [2 * k + MOVES for k in range(n) if passed >> k & 1]
        # an event of the next step is not between: it does not bar
        bars = [2 * k + BARS for k in range(n) if passed >> (n + k) & 1 and not passed >> k & 1]
        actions = np.full((1, n + 1), END_OF_LIST, np.int32)
        actions[0, : len(moves) + len(bars)] = sorted(moves + bars, reverse=True)
        self.actions = np.concatenate([self.actions, actions])
        self.ending = np.append(self.ending, bool(passed >> (n - 1) & 1))
