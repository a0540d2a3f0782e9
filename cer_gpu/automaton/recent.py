"""Pattern of SELECT RECENT: steps of one event each, with one partial match pending for each step and key.

The normal form is unrolled: ``f{n}`` stands as n copies.  Every join predicate is a test at the step whose event
is the last that it reads, for each choice of one event of each of its variables.  Equalities of columns of which all
steps have one are no tests: they are the keys under which partial matches wait.

papers: the "recent" context of Snoop (Chakravarthy, Krishnaprasad, Anwar, Kim, VLDB 1994).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from cer_gpu.automaton.encoding import NOW
from cer_gpu.automaton.normal_form import (
    Absent,
    Atom,
    Either,
    Guard,
    NormalForm,
    Related,
    Repeat,
    Then,
    choices,
    unrelated,
)
from cer_gpu.automaton.recent_pattern import (
    STEP_BITS,
    RecentAbsence,
    RecentEvent,
    RecentPattern,
    RecentStep,
    RecentTest,
)
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import children, fold, with_children
from cer_gpu.ceql.values import Span

_MAX_STEPS = 256
_MAX_ALTERNATIVES = 62
"""Most alternatives of one step: their numbers are bits of an int64."""
MAX_TESTS = 10_000
"""Most tests: one for each choice of events of each filter."""


class NotRecentError(Exception):
    """A pattern is no chain of steps; the message says why.

    Attributes
    ----------
    reason : str
        The message without the words on RECENT: of any pattern that is to be a chain of steps.
    span : (int, int) or None
        Span in the query text, if known.
    hint : str
    """

    def __init__(self, message: str, hint: str, span: s.Span | None = None, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason: str
        self.hint: str
        self.span: Span | None
        self.reason = message if reason is None else reason
        self.hint, self.span = hint, span


StepColumn = tuple[int, str]
"""A column of the event of a step."""


@dataclass(frozen=True)
class PlacedTest:
    """A test at its step, and the columns that it requires to be equal, if it is an equality of two."""

    step: int
    test: RecentTest
    equal: tuple[StepColumn, StepColumn] | None


@dataclass
class UnfinishedStep:
    """A step under construction: its atoms, and the absences before it with their tests."""

    atoms: list[Atom]
    absent: list[tuple[Absent, list[list[PlacedTest]]]] = field(default_factory=list)

    @property
    def all(self) -> int:
        """Its alternatives, as bits."""
        return (1 << len(self.atoms)) - 1


def in_gaps(formula: NormalForm) -> NormalForm:
    """Return a pattern with the absence of any event in the gap of each ``:``."""

    def changed(part: NormalForm, below: list[NormalForm]) -> NormalForm:
        formula: NormalForm = with_children(part, below)
        if isinstance(formula, Then | Repeat) and formula.contiguous:
            formula = replace(formula, contiguous=False, absent=(*formula.absent, _ANY_EVENT))
        return formula

    return fold(formula, changed, children)


_ANY_EVENT = Absent(Guard(None))


def build_recent(
    formula: NormalForm,
    guards: Sequence[Guard],
    selected: frozenset[str],
    *,
    trailing: bool = False,
    keyed: bool = True,
) -> RecentPattern:
    """Build the steps of a pattern.

    Parameters
    ----------
    formula
        The WHERE clause in LP-normal form, without ``:`` (`in_gaps`); where it ends with an absence, as
        `cer_gpu.planning.pattern_spans.followed` has it.
    guards
        `LogicalPlan.guards`.
    selected
        The selected variables.
    trailing
        True if it ends with an absence.  That the absent event is in its window is tested separately.
    keyed
        False: equalities that all steps share are tests as all others; the first event passes one with itself.

    Raises
    ------
    NotRecentError
        When the pattern is no chain of steps, or a join predicate cannot be placed.
    """
    return build_with(RecentBuilder(guards, selected, keyed=keyed), formula, trailing=trailing)


def build_with(builder: RecentBuilder, formula: NormalForm, *, trailing: bool) -> RecentPattern:
    """Build the steps of a pattern, which may end with an absence (`build_recent`)."""
    if not trailing:
        return builder.pattern(formula)
    followed = formula.body if isinstance(formula, Related) else formula  # the filter says how long it lasts
    assert isinstance(followed, Then)
    taker = next(part.labels for part in choices(unrelated(followed.right)) if isinstance(part, Atom))
    return builder.pattern(followed.left, followed.absent, taker)


class RecentBuilder:
    """Builder of a pattern, step by step.

    Parameters
    ----------
    guards
        `LogicalPlan.guards`.
    selected
        The selected variables.
    keyed
        As of `build_recent`.
    """

    def __init__(self, guards: Sequence[Guard], selected: frozenset[str], *, keyed: bool) -> None:
        self._keyed = keyed
        self._number = {guard: i for i, guard in enumerate(guards)}
        self._selected = selected
        self._steps: list[UnfinishedStep] = []
        self._placed: list[PlacedTest] = []
        self._n_tests = 0

    def pattern(
        self, formula: NormalForm, trailing: tuple[Absent, ...] = (), taker: frozenset[str] = frozenset()
    ) -> RecentPattern:
        """Build the steps of a pattern, which the `trailing` absences end; `taker` are variables of such an event."""
        last = UnfinishedStep([])
        self._bar(last, trailing, self._add_steps(formula, []))
        keys, in_keys = self._key_classes()
        if not self._keyed:
            self._placed += self._values_of_first(in_keys)
            keys, in_keys = (), {}
        steps = []
        for number, step in enumerate(self._steps):
            tests = [p.test for p in self._placed if p.step == number and not _is_implied(p.equal, in_keys)]
            absent = [self._absence(each, filters, keys, in_keys) for each, filters in step.absent]
            events = tuple(
                RecentEvent(self._number[atom.guard], atom.labels & self._selected, atom.negated) for atom in step.atoms
            )
            steps.append(RecentStep(events, tuple(dict.fromkeys(tests)), tuple(absent)))
        placed = [
            *self._placed,
            *(p for step in (*self._steps, last) for _, filters in step.absent for each in filters for p in each),
        ]
        written = dict.fromkeys(p.test.predicate for p in placed)
        taking = tuple(self._absence(each, filters, keys, in_keys) for each, filters in last.absent)
        pattern = RecentPattern(tuple(steps), keys, taking=taking, taker=taker)
        tested = set(pattern.predicates)
        return replace(pattern, equalities=tuple(each for each in written if each not in tested))

    # ---- steps ------------------------------------------------------------------------------------------------

    def _add_steps(self, formula: NormalForm, visible: list[int], absent: tuple[Absent, ...] = ()) -> list[int]:
        """Add the steps of a part, whose filters see the `visible` steps, and return them; `absent` come before it."""
        alternatives = alternatives_of(formula)
        if alternatives is not None:
            return self._add_step(alternatives, visible, absent)
        match formula:
            case Then() if not formula.contiguous and not any(formula.optional):
                joints = [formula]
                while isinstance(joints[-1].left, Then) and not joints[-1].left.contiguous:
                    joints.append(joints[-1].left)
                steps = self._add_steps(joints[-1].left, visible, absent)
                for each in reversed(joints):
                    steps = [*steps, *self._add_steps(each.right, [*visible, *steps], each.absent)]
                return steps
            case Repeat(n_min=n, n_max=n_max) if n == n_max and not formula.contiguous:
                steps = last = self._add_steps(formula.body, visible, absent)
                for _ in range(n - 1):
                    first = len(self._steps)
                    copy = self._add_steps(formula.body, visible)
                    # an absence of the gap reads the repetition before it, and no other
                    self._bar(self._steps[first], formula.absent, [*visible, *last])
                    steps, last = [*steps, *copy], copy
                return steps
            case Related():
                steps = self._add_steps(formula.body, visible, absent)
                self._relate(formula.relation, [(step, self._steps[step].all) for step in steps], visible)
                return steps
            case _:
                reason = "this filter with OR makes several patterns of one"
                raise NotRecentError(
                    f"RECENT is for chains of steps, and {reason}",
                    "write a predicate of one event: b[x = a.x OR y > 3]",
                    reason=reason,
                )

    def _add_step(
        self, alternatives: list[tuple[Atom, tuple[s.Relation, ...]]], visible: list[int], absent: tuple[Absent, ...]
    ) -> list[int]:
        number = len(self._steps)
        if number == _MAX_STEPS:
            raise NotRecentError(f"RECENT is for at most {_MAX_STEPS} steps", "let {n} ask for fewer events")
        if len(alternatives) > _MAX_ALTERNATIVES:
            limit = f"at most {_MAX_ALTERNATIVES} alternatives"
            raise NotRecentError(
                f"a step of RECENT has {limit}", "write x[p OR q] for x[p] OR x[q]", reason=f"a step has {limit}"
            )
        step = UnfinishedStep([atom for atom, _ in alternatives])
        self._steps.append(step)
        self._bar(step, absent, visible)
        bits: dict[s.Relation, int] = {}
        for i, (_, relations) in enumerate(alternatives):
            for relation in relations:
                bits[relation] = bits.get(relation, 0) | 1 << i
        for relation, chosen in bits.items():
            self._relate(relation, [(number, chosen)], visible)
        return [number]

    # ---- filters ----------------------------------------------------------------------------------------------

    def _relate(self, relation: s.Relation, body: list[tuple[int, int]], visible: list[int]) -> None:
        """Place a filter on some steps, of which the alternatives are given as bits."""
        seen = [(step, self._steps[step].all) for step in visible]
        steps_of: dict[str, list[tuple[int, int]]] = {}
        for role in relation.roles:
            inside = list(self._steps_bound_to(role, body))
            steps_of.setdefault(role.variable.name, inside or list(self._steps_bound_to(role, seen)))
        self._placed += self._filter_cases(relation, steps_of, body[:1])

    def _steps_bound_to(self, role: s.Role, steps: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield the steps bound to a variable, with the matching alternatives of each."""
        for step, bits in steps:
            for i, atom in enumerate(self._steps[step].atoms):
                stream = role.variable.stream
                if not (atom.sites & role.sites and stream in (None, atom.stream)):
                    bits &= ~(1 << i)
            if bits:
                yield step, bits

    def _filter_cases(
        self, relation: s.Relation, steps_of: dict[str, list[tuple[int, int]]], body: list[tuple[int, int]]
    ) -> list[PlacedTest]:
        """Return the tests of a filter: one for each choice of events.

        It is not tested before `body`, the first step that it filters, and only for alternatives there that it filters.
        """
        read = list(dict.fromkeys(event_of(a) for a in s.attributes(relation.predicate)))
        picked = list(dict.fromkeys(name for name, event in read if event in ("EACH", "PREV")))
        self._refuse_some_alternatives(relation, read, steps_of)
        cases = []
        for places in product(*(range(len(steps_of[name])) for name in picked)):
            at = dict(zip(picked, places, strict=True))
            events = self._event_steps(read, steps_of, at)
            if events is None:
                continue
            self._n_tests += 1
            if self._n_tests > MAX_TESTS:
                raise NotRecentError(
                    f"join predicates make more than {MAX_TESTS:,} tests",
                    "let them name variables of fewer events",
                    relation.span,
                )
            needs = {step: bits for step, bits in body if bits != self._steps[step].all}
            for step, bits in events.values():
                if step != NOW and bits != self._steps[step].all:
                    needs[step] = needs.get(step, -1) & bits
            steps = {each: step for each, (step, _) in events.items()}
            test = RecentTest(relation.predicate, tuple(steps.items()), tuple(sorted(needs.items())))
            last = max([*steps.values(), *(step for step, _ in body)], default=0)
            cases.append(PlacedTest(last, test, None if needs else equal_columns(relation.predicate, steps)))
        return cases

    def _refuse_some_alternatives(
        self, relation: s.Relation, read: list[tuple[str, str]], steps_of: dict[str, list[tuple[int, int]]]
    ) -> None:
        """Refuse a filter that reads FIRST, LAST or PREV of what only some alternatives of a step are."""
        for name, event in read:
            if event != "EACH" and any(step != NOW and bits != self._steps[step].all for step, bits in steps_of[name]):
                why = f"is one event known beforehand, and only some alternatives of a step are {name!r}"
                raise NotRecentError(
                    f"{event}({name}) of RECENT {why}",
                    f"let {name} be each alternative of the step: (A OR B) AS {name}",
                    span_in(relation.predicate, name, event),
                    reason=f"{event}({name}) {why}",
                )

    def _event_steps(
        self, read: list[tuple[str, str]], steps_of: dict[str, list[tuple[int, int]]], at: dict[str, int]
    ) -> dict[tuple[str, str], tuple[int, int]] | None:
        """Return the step of each event of a choice, with the alternatives, or None if there is no such event."""
        chosen = {}
        for name, event in read:
            steps = steps_of[name]
            place = {"FIRST": 0, "LAST": len(steps) - 1}.get(event, at.get(name, 0) - (event == "PREV"))
            if place < 0 or not steps:
                return None
            chosen[name, event] = steps[place]
        return chosen

    # ---- absences ---------------------------------------------------------------------------------------------

    def _bar(self, step: UnfinishedStep, absent: tuple[Absent, ...], visible: list[int]) -> None:
        """Bar events before a step."""
        seen = [(each, self._steps[each].all) for each in visible]
        for each in absent:
            filters = []
            for relation in each.relations:
                steps_of: dict[str, list[tuple[int, int]]] = {}
                for role in relation.roles:
                    own = [(NOW, 1)] if each.sites & role.sites else list(self._steps_bound_to(role, seen))
                    steps_of.setdefault(role.variable.name, own)
                filters.append(self._filter_cases(relation, steps_of, []))
            step.absent.append((each, filters))

    def _absence(
        self,
        absent: Absent,
        filters: list[list[PlacedTest]],
        keys: tuple[tuple[tuple[s.Attribute, ...], ...], ...],
        in_keys: dict[StepColumn, int],
    ) -> RecentAbsence:
        """Return an absence: equalities of its columns with all keys are its key, all other filters are tests."""
        own: dict[int, s.Expression] = {}
        unkeyed, keyed = list[PlacedTest](), list[PlacedTest]()
        for placed in filters:
            key = self._absence_key(placed, in_keys)
            if key is not None and key[0] not in own:
                own[key[0]] = key[1]
                keyed += placed
            else:
                unkeyed += placed
        whole = len(own) == len(keys)
        tests = unkeyed if whole else [*keyed, *unkeyed]
        distinct = tuple(dict.fromkeys(placed.test for placed in tests))
        key_columns = tuple(own[key] for key in range(len(keys))) if whole else None
        return RecentAbsence(self._number[absent.guard], distinct, key_columns, absent.negated)

    def _absence_key(self, placed: list[PlacedTest], in_keys: dict[StepColumn, int]) -> tuple[int, s.Expression] | None:
        """Return the key that a filter makes equal to a column of an absent event, and that column."""
        key_columns = set()
        for each in placed:
            sides = sorted(each.equal or ())  # NOW is the least
            if len(sides) < 2 or sides[0][0] != NOW or sides[1] not in in_keys:
                return None
            key_columns.add((in_keys[sides[1]], sides[0][1]))
        if len(key_columns) != 1:
            return None
        ((key, column),) = key_columns
        return key, s.Attribute(column, span_in(placed[0].test.predicate, None, None) or (0, 0))

    # ---- keys -------------------------------------------------------------------------------------------------

    def _key_classes(self) -> tuple[tuple[tuple[tuple[s.Attribute, ...], ...], ...], dict[StepColumn, int]]:
        """Return the keys: classes of equal columns with one of each step; and the key of each column in one."""
        groups: list[dict[StepColumn, None]] = []
        spans: dict[StepColumn, s.Span] = {}
        for placed in self._placed:
            if placed.equal is None:
                continue
            for column in placed.equal:
                spans.setdefault(column, span_in(placed.test.predicate, None, column[1]) or (0, 0))
            together = dict.fromkeys(placed.equal)
            touched = [group for group in groups if not group.keys().isdisjoint(together)]
            groups = [group for group in groups if all(group is not each for each in touched)]
            groups.append({column: None for group in (*touched, together) for column in group})
        n_steps = len(self._steps)
        whole = [sorted(group) for group in groups if {step for step, _ in group} == set(range(n_steps))]
        whole = sorted(whole) if n_steps > 1 else []
        keys = tuple(
            tuple(
                tuple(s.Attribute(name, spans[step, name]) for at, name in group if at == step)
                for step in range(n_steps)
            )
            for group in whole
        )
        return keys, {column: key for key, group in enumerate(whole) for column in group}

    def _values_of_first(self, in_keys: dict[StepColumn, int]) -> list[PlacedTest]:
        """Return tests that the first event has a value of each key, the same in all columns of the key that it has."""
        columns_of: dict[int, list[tuple[StepColumn, s.Attribute]]] = {}
        for placed in self._placed:
            predicate = placed.test.predicate
            if placed.equal is None or placed.equal[0] not in in_keys or not isinstance(predicate, s.Comparison):
                continue
            for column, side in zip(placed.equal, (predicate.left, predicate.right), strict=True):
                if column[0] == 0 and isinstance(side, s.Attribute):
                    columns_of.setdefault(in_keys[column], []).append((column, side))
        tests = []
        for members in columns_of.values():
            for column, side in dict(members).items():
                first = members[0][1]
                predicate = s.Comparison("=", first, side, side.span)
                events = dict.fromkeys([event_of(first), event_of(side)], 0)
                tests.append(PlacedTest(0, RecentTest(predicate, tuple(events.items())), (members[0][0], column)))
        return tests


def alternatives_of(formula: NormalForm) -> list[tuple[Atom, tuple[s.Relation, ...]]] | None:
    """Return the alternatives of a step, each with the join predicates around it, or None if one is not an event."""
    atoms: list[tuple[Atom, tuple[s.Relation, ...]]] = []
    todo: list[tuple[NormalForm, tuple[s.Relation, ...]]] = [(formula, ())]
    while todo:
        part, around = todo.pop()
        match part:
            case Atom():
                atoms.append((part, around))
            case Either():
                todo += [(part.right, around), (part.left, around)]
            case Related():
                todo.append((part.body, (*around, part.relation)))
            case _:
                return None
    return atoms


def _is_implied(equal: tuple[StepColumn, StepColumn] | None, in_keys: dict[StepColumn, int]) -> bool:
    return equal is not None and in_keys.get(equal[0], -1) == in_keys.get(equal[1], -2)


def step_of(code: int) -> int:
    """Return the step of an event that a test reads; NOW as it is."""
    return code if code == NOW else code & STEP_BITS


def event_of(attribute: s.Attribute) -> tuple[str, str]:
    """Return the variable of an attribute, and which of its events it reads."""
    assert attribute.variable is not None
    return attribute.variable.name, attribute.event


def equal_columns(predicate: s.Predicate, steps: dict[tuple[str, str], int]) -> tuple[StepColumn, StepColumn] | None:
    """Return the two columns that a filter requires to be equal, or None for any other filter."""
    if not (isinstance(predicate, s.Comparison) and predicate.op == "="):
        return None
    sides = predicate.left, predicate.right
    if not all(isinstance(side, s.Attribute) and not side.looks_back for side in sides):
        return None
    one, other = ((step_of(steps[event_of(side)]), side.name) for side in sides if isinstance(side, s.Attribute))
    return one, other


def span_in(predicate: s.Predicate, name: str | None, event: str | None) -> s.Span | None:
    """Return the span of an attribute of a predicate: by its variable and event, by its column, or the first."""
    for attribute in s.attributes(predicate):
        if name is None and event in (None, attribute.name):
            return attribute.span
        if name is not None and event_of(attribute) == (name, event):
            return attribute.span
    return None
