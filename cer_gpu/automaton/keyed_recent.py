"""Symbol tables of SELECT RECENT; with keys by step, an event is read once for each of its keys.

The operations of an event are cut where the keys of the steps change, in the order in which they are done: from the
last step to the first, what moves before what drops.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from cer_gpu.arrays import Bools, Int32
from cer_gpu.automaton.alphabet import NumberedAlphabet
from cer_gpu.automaton.recent_pattern import RecentPattern, RecentStep
from cer_gpu.ceql.step_keys import OwnKeys, StepwiseKeys


class RecentTable(NumberedAlphabet):
    """Symbol table of such a pattern, with the symbols met so far.

    Attributes
    ----------
    pattern : RecentPattern
    steps : tuple of RecentStep
    passed : list of int
        For each symbol what its events pass, as bits: each alternative of each step, then each absence.
    ending : bool array, shape (symbols,)
        True for symbols whose events may end matches.
    labels : list of frozenset of str
        Variables of each mark.
    marks : int32 array, shape (steps, alternatives)
        Mark of the events of each alternative; 0 where they are not selected.
    taker : int
        Mark of the events that retract matches.
    has_gaps : bool
        False.
    """

    has_gaps = False

    def __init__(self, pattern: RecentPattern) -> None:
        self.pattern: RecentPattern = pattern
        self.steps: tuple[RecentStep, ...] = pattern.steps
        event_labels = [event.labels for step in pattern.steps for event in step.events]
        self.labels: list[frozenset[str]] = list(dict.fromkeys([frozenset[str](), *event_labels, pattern.taker]))
        number = {labels: mark for mark, labels in enumerate(self.labels)}
        self.marks: Int32 = np.zeros((len(pattern.steps), max(len(step.events) for step in pattern.steps)), np.int32)
        for i, step in enumerate(pattern.steps):
            self.marks[i, : len(step.events)] = [number[event.labels] for event in step.events]
        self.taker: int = number[pattern.taker]
        guards = [(event.guard, event.negated) for step in pattern.steps for event in step.events]
        self._ends = sum(1 << i for i in range(len(guards) - len(pattern.steps[-1].events), len(guards)))
        self._guards = [*guards, *((absence.guard, absence.negated) for absence in pattern.absences)]
        self.ending: Bools = np.zeros(0, np.bool_)
        self.passed: list[int] = []
        super().__init__()

    def passed_tests(self, word: int) -> int:
        """Return the tests that an event passes, given its bit vector."""
        return sum(1 << i for i, (guard, negated) in enumerate(self._guards) if (word >> guard & 1) != negated)

    def add_symbol(self, symbol: int, passed: int) -> None:
        """Add a new symbol to the tables."""
        self.passed.append(passed)
        self.ending = np.append(self.ending, bool(passed & self._ends))


class KeyedRecentTable(RecentTable):
    """Symbol table of a pattern with keys by step; the runtime reads parts in place of symbols.

    Parameters
    ----------
    pattern
    keys
        With as many steps as there are alternatives of all steps, and as many absences as the pattern has.

    Attributes
    ----------
    roles : tuple of OwnKeys
        Distinct keys of steps.
    firsts : int32 array, shape (symbols + 1,)
        First of the parts of each symbol.
    parts : int32 array, shape (parts, 2)
        For each part the number of its keys in `roles`, and its number among what the runtime reads.
    passed : list of int
        As of `RecentTable`, for each of these numbers.
    """

    def __init__(self, pattern: RecentPattern, keys: StepwiseKeys) -> None:
        self.roles: tuple[OwnKeys, ...] = tuple(dict.fromkeys(keys.roles))
        n_events = [len(step.events) for step in pattern.steps]
        n_absent = [*(len(step.absent) for step in pattern.steps), len(pattern.taking)]
        assert (sum(n_events), sum(n_absent)) == (len(keys.steps), len(keys.absences))
        first_of = np.concatenate([[0], np.cumsum([*n_events, *n_absent])]).tolist()
        n = len(n_events)
        order = [n + n]
        for step in reversed(range(n)):
            order += [step, n + step]
        counts = [*n_events, *n_absent]
        bits = [first_of[each] + i for each in order for i in range(counts[each])]
        roles = keys.roles
        # the events of a sample are read each by itself
        self._order = [(bit, self.roles.index(roles[bit]), bit if keys.samples else 0) for bit in bits]
        self.firsts: Int32 = np.zeros(1, np.int32)
        self.parts: Int32 = np.zeros((0, 2), np.int32)
        self._numbers: dict[int, int] = {}
        super().__init__(pattern)

    def add_symbol(self, symbol: int, passed: int) -> None:
        """Add a new symbol to the tables."""
        parts = []
        own = [each for each in self._order if passed >> each[0] & 1]
        for (role, _), cut in groupby(own, key=lambda each: each[1:]):
            parts.append((role, self._number(sum(1 << bit for bit, *_ in cut))))
        self.parts = np.concatenate([self.parts, np.array(parts, np.int32).reshape(len(parts), 2)])
        self.firsts = np.append(self.firsts, np.int32(len(self.parts)))

    def _number(self, passed: int) -> int:
        """Return the number by which the runtime reads a part."""
        if passed not in self._numbers:
            self._numbers[passed] = len(self.passed)
            self.passed.append(passed)
            self.ending: Bools = np.append(self.ending, bool(passed & self._ends))
        return self._numbers[passed]
