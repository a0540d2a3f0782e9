"""Pattern of SELECT RECENT as it is evaluated: its steps, their tests, keys and absences, and the ways between them."""

from __future__ import annotations

from dataclasses import dataclass

from cer_gpu.ceql import syntax as s


@dataclass(frozen=True)
class RecentEvent:
    """One of the alternatives of a step.

    Attributes
    ----------
    guard : int
        Index of `LogicalPlan.guards`: the test that it passes, or does not pass where it is `negated` (``NOT``).
    labels : frozenset of str
        The selected variables that hold it.
    negated : bool
    """

    guard: int
    labels: frozenset[str]
    negated: bool = False


@dataclass(frozen=True)
class RecentTest:
    """A join predicate, for one choice of them.

    Attributes
    ----------
    predicate : Predicate
    events : tuple of ((str, str), int)
        Step of each event that it reads, by variable and by which event of it ("EACH", ...); NOW for the absent one.
    needs : tuple of (int, int)
        Steps at which only some alternatives require the test, and these alternatives as bits; it holds for others.
    """

    predicate: s.Predicate
    events: tuple[tuple[tuple[str, str], int], ...]
    needs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class RecentAbsence:
    """Events that must not come before a step.

    Attributes
    ----------
    guard : int
    tests : tuple of RecentTest
        Filters between such an event and those of the partial match that it drops.
    key : tuple of Expression or None
        Its column for each key of the pattern, if it drops what is pending under its own key alone; None: under any.
    negated : bool
        True: it is an event that does not satisfy the guard (``-> NOT(R)``).
    """

    guard: int
    tests: tuple[RecentTest, ...]
    key: tuple[s.Expression, ...] | None
    negated: bool = False


@dataclass(frozen=True)
class RecentStep:
    """A step of the pattern.

    Attributes
    ----------
    events : tuple of RecentEvent
        Its alternatives, from left to right.
    tests : tuple of RecentTest
        Filters of which its event is the last.
    absent : tuple of RecentAbsence
        Events that must not lie between the step before and this one.
    """

    events: tuple[RecentEvent, ...]
    tests: tuple[RecentTest, ...] = ()
    absent: tuple[RecentAbsence, ...] = ()


@dataclass(frozen=True)
class RecentWay:
    """A way from one step to another, or back to itself.

    Attributes
    ----------
    source, target : int
    absent : tuple of int
        Numbers of the absences that bar it (`RecentPattern.absences`).
    resets : tuple of int
        Steps whose events of the repetition before are no longer read, where it begins another one; with `FIRST_OF`,
        the first events of steps.
    """

    source: int
    target: int
    absent: tuple[int, ...] = ()
    resets: tuple[int, ...] = ()


@dataclass(frozen=True)
class RecentGraph:
    """The ways between the steps of a pattern with quantifiers.

    Attributes
    ----------
    firsts, lasts : tuple of int
        Steps with which a match may begin, and end.
    ways : tuple of RecentWay
    sources : tuple of tuple of int
        For each absence that bars ways, the steps with which they begin.
    """

    firsts: tuple[int, ...]
    lasts: tuple[int, ...]
    ways: tuple[RecentWay, ...]
    sources: tuple[tuple[int, ...], ...] = ()


FIRST_OF, BEFORE_NOW, LAST_OF_ALL = 1 << 10, 2 << 10, 3 << 10
"""Bits of a step in `RecentTest`: its first event; that which it held before this one; the last event of all."""
STEP_BITS = FIRST_OF - 1
NOT_TAKEN = 62
"""In place of an alternative: the step was left out."""


@dataclass(frozen=True)
class RecentPattern:
    """Steps, and the keys that all of them share.

    Attributes
    ----------
    steps : tuple of RecentStep
    keys : tuple of tuple of tuple of Attribute
        For each key, for each step, its columns: one, or several that must be equal.
    equalities : tuple of Predicate
        The filters that the keys stand for.
    taking : tuple of RecentAbsence
        Events that retract matches that ended before them, as they must be absent after the last step.
    taker : frozenset of str
        Variables that hold such an event in the matches that it retracts.
    graph : RecentGraph or None
        The ways between the steps, if there are others than from each to the next.
    """

    steps: tuple[RecentStep, ...]
    keys: tuple[tuple[tuple[s.Attribute, ...], ...], ...]
    equalities: tuple[s.Predicate, ...] = ()
    taking: tuple[RecentAbsence, ...] = ()
    taker: frozenset[str] = frozenset()
    graph: RecentGraph | None = None

    @property
    def absences(self) -> list[RecentAbsence]:
        """All absences: those before the steps in turn, then those after the last one."""
        return [*(each for step in self.steps for each in step.absent), *self.taking]

    @property
    def key_columns(self) -> list[list[s.Expression]]:
        """For each key its columns: of the steps in turn, then of the absences that have keys, in turn."""
        absences = [each.key for each in self.absences if each.key is not None]
        return [
            [*(column for columns in key for column in columns), *(each[number] for each in absences)]
            for number, key in enumerate(self.keys)
        ]

    @property
    def tests(self) -> list[RecentTest]:
        """All tests: those of the steps, then those of absences."""
        tested: list[RecentStep | RecentAbsence] = [*self.steps, *self.absences]
        return [test for each in tested for test in each.tests]

    @property
    def predicates(self) -> list[s.Predicate]:
        """The join predicates that are tested, each once."""
        return list(dict.fromkeys(test.predicate for test in self.tests))

    @property
    def scans(self) -> bool:
        """True if some absent event drops partial matches of all keys, by a filter that each of them is tested for."""
        return any(absence.key is None and absence.tests for absence in self.absences)

    @property
    def chooses(self) -> bool:
        """True if some step has alternatives that differ in what is selected or tested."""
        return any(len(step.events) > 1 for step in self.steps)
