"""Pattern of SELECT RECENT with quantifiers: steps of one event each, and the ways between them.

``f{n,m}`` is m copies of f, of which all after the n-th may be left out, one after the other; ``f{n,}`` is n copies,
and from the end of the last one a way leads back to where it began.  That is the position automaton of the unrolled
pattern, with an absence as a bar on the ways of its gap.

A filter is a test for each choice of events, as without quantifiers; that a step was left out is part of the choice
(`RecentTest.needs`).  A filter may read the first and the latest event of a step that may hold several; one that would
read others is refused.

papers: Glushkov, The abstract theory of automata, Russian Mathematical Surveys 16 (1961), for the positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from cer_gpu.automaton.encoding import NOW
from cer_gpu.automaton.normal_form import Absent, Atom, Guard, NormalForm, Related, Repeat, Then, copies_of
from cer_gpu.automaton.recent import (
    MAX_TESTS,
    NotRecentError,
    PlacedTest,
    RecentBuilder,
    StepColumn,
    alternatives_of,
    build_recent,
    build_with,
    equal_columns,
    event_of,
    span_in,
    step_of,
)
from cer_gpu.automaton.recent_pattern import (
    BEFORE_NOW,
    FIRST_OF,
    LAST_OF_ALL,
    NOT_TAKEN,
    RecentAbsence,
    RecentGraph,
    RecentPattern,
    RecentTest,
    RecentWay,
)
from cer_gpu.automaton.recent_ways import equal_in_all, left_out_need, on_all_ways, taken_need
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import Node, walk

_MAX_ABSENCES = 62
"""Most absences between steps: those that bar a partial match are bits of an int64."""

_AT_THE_END = 1 << 9
"""In place of a step: an event after all that a test reads."""


def build_any_recent(
    formula: NormalForm, guards: Sequence[Guard], selected: frozenset[str], *, trailing: bool = False
) -> RecentPattern:
    """Build the steps of a pattern, with the ways between them if it has quantifiers other than ``{n}``.

    Parameters and errors are those of `cer_gpu.automaton.recent.build_recent`.
    """
    # an absence at the end is an event that may be missing
    ended = formula.body if trailing and isinstance(formula, Related) else formula
    steps = ended.left if trailing and isinstance(ended, Then) else formula
    if not any(_varies(part) for part in walk(steps)):
        return build_recent(formula, guards, selected, trailing=trailing)
    return build_with(_GraphBuilder(guards, selected, keyed=True), formula, trailing=trailing)


def _varies(part: Node) -> bool:
    """Return whether the number of events of a part may vary."""
    match part:
        case Then():
            return any(part.optional)
        case Repeat():
            return part.n_min != part.n_max
    return False


@dataclass
class _Part:
    """Steps of a part of the pattern, those with which it may begin and end."""

    steps: list[int]
    firsts: list[int]
    lasts: list[int]


@dataclass
class _Way:
    """A way under construction: with the absences that bar it, and the loop of which it begins another repetition."""

    source: int
    target: int
    absent: list[int]
    loop: int | None = None


_Link = tuple[StepColumn, StepColumn]


@dataclass
class _Choice:
    """An event that a test may read: how it is stored, and what must have been taken or left out for that."""

    code: int
    needs: list[tuple[int, int]] = field(default_factory=list)
    links: bool = True


class _GraphBuilder(RecentBuilder):
    def __init__(self, guards: Sequence[Guard], selected: frozenset[str], *, keyed: bool) -> None:
        super().__init__(guards, selected, keyed=keyed)
        self._ways: list[_Way] = []
        self._sources: list[list[tuple[int, ...]]] = []  # of the absences of each step
        self._numbers: list[tuple[int, int]] = []  # step of each absence as they are made, and place there
        self._loops: list[tuple[int, ...]] = []  # around each step
        self._members: list[list[int]] = []  # steps of each loop
        self._around: list[int] = []  # the loops around the part under way
        self._firsts: list[int] = []  # steps with which the filtered part may begin
        self._first_depths: dict[int, int] = {}  # loops around the filter that reads the first event of a step
        self._lasts: list[tuple[str, list[int], bool, s.Span | None]] = []  # LAST(x) that no later step is compared to
        self._links: list[_Link] = []  # columns of two steps that are equal in all events
        self._fixed_links: list[tuple[_Link, list[int]]] = []  # if matches have one event of each of some steps
        self._unstored: dict[RecentTest, NotRecentError] = {}
        self._whole = _Part([], [], [])
        self._n_absences = 0
        self._barred: tuple[int, ...] = ()  # steps with which the ways begin that the absence under way bars
        self._dominators: list[set[int]] = []
        self._followers: list[set[int]] = []

    def pattern(
        self, formula: NormalForm, trailing: tuple[Absent, ...] = (), taker: frozenset[str] = frozenset()
    ) -> RecentPattern:
        pattern = super().pattern(formula, trailing, taker)
        for unstored in (self._unstored[test] for test in pattern.tests if test in self._unstored):
            raise unstored
        if len(self._numbers) > _MAX_ABSENCES:
            raise NotRecentError(
                f"RECENT with quantifiers is for at most {_MAX_ABSENCES} absences", "let {n} ask for fewer events"
            )
        first = [0]
        for step in pattern.steps:
            first.append(first[-1] + len(step.absent))
        flat = [first[step] + place for step, place in self._numbers]
        ways = tuple(
            RecentWay(way.source, way.target, tuple(flat[each] for each in way.absent), self._resets(way))
            for way in self._ways
        )
        sources = tuple(each for own in self._sources for each in own)
        steps = []
        for number, step in enumerate(pattern.steps):
            tests = [pruned for test in step.tests if (pruned := self._pruned(test, [number])) is not None]
            absent = [
                replace(absence, tests=self._pruned_all(absence.tests, [*at]))
                for absence, at in zip(step.absent, self._sources[number], strict=True)
            ]
            steps.append(replace(step, tests=tuple(dict.fromkeys(tests)), absent=tuple(absent)))
        graph = RecentGraph(tuple(self._whole.firsts), tuple(self._whole.lasts), ways, sources)
        return replace(pattern, steps=tuple(steps), graph=graph)

    def _resets(self, way: _Way) -> tuple[int, ...]:
        """Return what is no longer read after a way, as of `RecentWay`."""
        if way.loop is None:
            return ()
        members = self._members[way.loop]
        depth = self._loops[members[0]].index(way.loop)
        latest = members if len(members) > 1 else []
        firsts = [FIRST_OF | step for step in members if self._first_depths.get(step, -1) > depth]
        return (*latest, *firsts)

    # ---- steps ------------------------------------------------------------------------------------------------

    def _add_steps(self, formula: NormalForm, visible: list[int], absent: tuple[Absent, ...] = ()) -> list[int]:
        assert not absent
        self._whole = self._add_part(formula, visible)
        return self._whole.steps

    def _add_step(
        self,
        alternatives: list[tuple[Atom, tuple[s.Relation, ...]]],
        visible: list[int],
        absent: tuple[Absent, ...],
    ) -> list[int]:
        number = len(self._steps)
        self._loops.append(tuple(self._around))
        for loop in self._around:
            self._members[loop].append(number)
        self._sources.append([])
        self._firsts = [number]
        return super()._add_step(alternatives, visible, absent)

    def _add_part(self, formula: NormalForm, visible: list[int]) -> _Part:
        """Add the steps of a part, whose filters see the `visible` steps."""
        alternatives = alternatives_of(formula)
        if alternatives is not None:
            own = self._add_step([*alternatives], visible, ())
            return _Part(own, own, own)
        match formula:
            case Then():
                joints = [formula]
                while isinstance(joints[-1].left, Then):
                    joints.append(joints[-1].left)
                part = self._add_part(joints[-1].left, visible)
                for each in reversed(joints):
                    part = self._then(part, each, visible)
                return part
            case Repeat():
                return self._repeat(formula, visible)
            case Related():
                part = self._add_part(formula.body, visible)
                self._firsts = part.firsts
                self._relate(formula.relation, [(step, self._steps[step].all) for step in part.steps], visible)
                return part
        super()._add_steps(formula, visible)  # refuses it
        raise AssertionError(formula)

    def _then(self, left: _Part, joint: Then, visible: list[int]) -> _Part:
        seen = [*visible, *left.steps]
        right = self._add_part(joint.right, seen)
        self._join(left, right, joint.absent, seen)
        lacks_left, lacks_right = joint.optional
        return _Part(
            left.steps + right.steps,
            left.firsts + (right.firsts if lacks_left else []),
            right.lasts + (left.lasts if lacks_right else []),
        )

    def _repeat(self, formula: Repeat, visible: list[int]) -> _Part:
        n, copies = copies_of(formula), list[_Part]()
        for number in range(n):
            endless = formula.n_max is None and number == n - 1
            if endless:
                self._around.append(len(self._members))
                self._members.append([])
            copy = self._add_part(formula.body, visible)
            if endless:
                # an absence of the gap reads the repetition before it, and no other
                self._join(copy, copy, formula.absent, [*visible, *copy.steps], self._around[-1])
                self._around.pop()
            if copies:
                self._join(copies[-1], copy, formula.absent, [*visible, *copies[-1].steps])
            copies.append(copy)
        return _Part(
            [step for copy in copies for step in copy.steps],
            copies[0].firsts,
            [step for copy in copies[formula.n_min - 1 :] for step in copy.lasts],
        )

    def _join(
        self, left: _Part, right: _Part, absent: tuple[Absent, ...], visible: list[int], loop: int | None = None
    ) -> None:
        """Add the ways from one part to the next, and what bars them."""
        numbers = []
        step = min(right.firsts)
        for each in absent:
            numbers.append(len(self._numbers))
            self._numbers.append((step, len(self._steps[step].absent)))
            self._bar(self._steps[step], (each,), visible)
            self._sources[step].append(tuple(dict.fromkeys(left.lasts)))
        self._ways += [_Way(one, other, numbers, loop) for one, other in product(left.lasts, right.firsts)]

    # ---- filters ----------------------------------------------------------------------------------------------

    def _repeats(self, step: int) -> bool:
        """Return whether the part that is filtered may hold several events of a step."""
        return step != NOW and not set(self._loops[step]) <= set(self._around)

    def _in_group(self, step: int) -> bool:
        """Return whether a step is repeated with others, beyond the part that is filtered."""
        return any(len(self._members[loop]) > 1 for loop in self._loops[step] if loop not in self._around)

    def _filter_cases(
        self, relation: s.Relation, steps_of: dict[str, list[tuple[int, int]]], body: list[tuple[int, int]]
    ) -> list[PlacedTest]:
        read = list(dict.fromkeys(event_of(a) for a in s.attributes(relation.predicate)))
        self._refuse_some_alternatives(relation, read, steps_of)
        if isinstance(relation.predicate, s.Apart):
            cases = self._distances(relation, read, steps_of)
            if cases is not None:
                return cases
        of_absent = not body
        self._refuse_unknown(relation, read, steps_of, of_absent=of_absent)
        picked = list(dict.fromkeys(name for name, event in read if event in ("EACH", "PREV")))
        placed: list[PlacedTest] = []
        for places in product(*(range(len(steps_of[name])) for name in picked)):
            at = dict(zip(picked, places, strict=True))
            for chosen in product(*(self._choices(*each, steps_of[each[0]], at) for each in read)):
                case = self._case(relation, dict(zip(read, chosen, strict=True)), at, steps_of, body)
                placed += case
                self._n_tests += len(case)
                if self._n_tests > MAX_TESTS:
                    raise NotRecentError(
                        f"join predicates make more than {MAX_TESTS:,} tests",
                        "let them name variables of fewer events",
                        relation.span,
                    )
        return placed

    def _refuse_unknown(
        self,
        relation: s.Relation,
        read: list[tuple[str, str]],
        steps_of: dict[str, list[tuple[int, int]]],
        *,
        of_absent: bool,
    ) -> None:
        """Refuse a filter that reads events which are not known when it would be tested."""
        for name, event in read:
            own = [step for step, _ in steps_of[name]]
            if event != "EACH" and any(step != NOW and self._in_group(step) for step in own):
                raise NotRecentError(
                    f"{event}({name}) reads all repetitions of a part of several events, of which RECENT stores the "
                    "latest alone",
                    "filter within the parentheses, before the quantifier; SELECT ALL, NEXT or LAST take it",
                    span_in(relation.predicate, name, event),
                )
            if event == "LAST" and not of_absent:
                others = [step for other, _ in read if other != name for step, _ in steps_of[other]]
                if own and max(others, default=-1) <= own[-1]:
                    span = span_in(relation.predicate, name, event)
                    self._lasts.append((name, own, self._repeats(own[-1]), span))

    def _choices(
        self,
        name: str,
        event: str,
        steps: list[tuple[int, int]],
        at: dict[str, int],
    ) -> Iterator[_Choice]:
        """Yield the events that one of a variable may be, for a choice of its event (`at`)."""
        if steps and steps[0][0] == NOW:
            if event != "PREV":
                yield _Choice(NOW)
            return
        own = [step for step, _ in steps]
        place = at.get(name, 0)
        if event == "EACH":
            yield _Choice(own[place])
        elif event == "PREV":
            step, needs = own[place], list[tuple[int, int]]()
            if self._repeats(step):
                yield _Choice(BEFORE_NOW | step, [taken_need(BEFORE_NOW | step)])
                needs = [left_out_need(BEFORE_NOW | step)]
            for before in reversed(own[:place]):
                yield _Choice(before, [*needs, taken_need(before)], before == own[place - 1])
                needs = [*needs, left_out_need(before)]
        elif event == "FIRST":
            needs = []
            for step in own:
                code = FIRST_OF | step if self._repeats(step) else step
                yield _Choice(code, [*needs, taken_need(code)])
                needs = [*needs, left_out_need(code)]
        else:
            needs = []
            for step in reversed(own):
                yield _Choice(step, [*needs, taken_need(step)])
                needs = [*needs, left_out_need(step)]

    def _case(
        self,
        relation: s.Relation,
        chosen: dict[tuple[str, str], _Choice],
        at: dict[str, int],
        steps_of: dict[str, list[tuple[int, int]]],
        body: list[tuple[int, int]],
    ) -> list[PlacedTest]:
        """Return the tests of one choice of events, at the steps at which they are made."""
        picked = {name: steps_of[name][place] for name, place in at.items()}
        mentioned = [step_of(each.code) for each in chosen.values()] + [step for step, _ in picked.values()]
        mentioned = [step for step in mentioned if step != NOW]
        alternatives = {step: bits for step, bits in body if bits != self._steps[step].all}
        steps = [step for step, _ in picked.values() if self._repeats(step)]
        if len({*steps}) < len(steps) and any(bits != self._steps[step].all for step, bits in picked.values()):
            raise self._unstored_error(relation, next(iter(picked)))
        for step, bits in picked.values():
            if step != NOW and bits != self._steps[step].all:
                alternatives[step] = alternatives.get(step, -1) & bits
        last = max(mentioned, default=-1)
        if not body:  # of an absent event
            places = [_AT_THE_END]
        elif last < min(step for step, _ in body):
            places = self._firsts
        else:
            places = [last]
        tests = []
        for place in places:
            codes = {key: choice.code for key, choice in chosen.items()}
            if any(
                event == "LAST" and place <= steps_of[name][-1][0] and codes[name, event] != place
                for name, event in chosen
                if codes[name, event] != NOW
            ):
                continue  # later events of the variable are to come
            needs = dict[int, int]()
            for choice in chosen.values():
                for code, bits in choice.needs:
                    if code not in (place, FIRST_OF | place):
                        needs[code] = needs.get(code, -1) & bits
            for step, _ in picked.values():
                if step not in (NOW, place):
                    needs[step] = needs.get(step, -1) & ((1 << NOT_TAKEN) - 1)
            for step, bits in alternatives.items():
                needs[step] = needs.get(step, -1) & bits
            if any(bits == 0 for bits in needs.values()):
                continue
            of_now = [key for key, code in codes.items() if code == FIRST_OF | place]
            ways = [(needs, codes)]
            if of_now:
                again = needs | {FIRST_OF | place: taken_need(0)[1]}
                none = needs | {FIRST_OF | place: left_out_need(0)[1]}
                only_first = all(step_of(code) != place for key, code in codes.items() if key not in of_now) and (
                    place not in [step for step, _ in picked.values()]
                )
                ways = [(none, codes | dict.fromkeys(of_now, place))]
                if not only_first:
                    ways.append((again, codes))
            for own_needs, own_codes in ways:
                test = RecentTest(relation.predicate, tuple(own_codes.items()), tuple(sorted(own_needs.items())))
                self._note_unstored(relation, test, picked, place)
                equal = None if alternatives else equal_columns(relation.predicate, own_codes)
                tests.append(PlacedTest(place, test, equal))
                if equal is not None:
                    self._link(chosen, equal, steps_of)
        return tests

    def _note_unstored(
        self, relation: s.Relation, test: RecentTest, picked: dict[str, tuple[int, int]], place: int
    ) -> None:
        """Note a test that would read events of a step which are not stored: it must be one that keys stand for."""
        for name, (step, _) in picked.items():
            if step == NOW or not self._repeats(step):
                continue
            others = [other for each, (other, _) in picked.items() if each != name and other != NOW]
            grouped = self._in_group(step) and any(
                set(self._loops[step]) & set(self._loops[other]) - set(self._around) for other in others
            )
            if step != place or step in others or grouped:
                self._unstored[test] = self._unstored_error(relation, name)

    def _unstored_error(self, relation: s.Relation, name: str) -> NotRecentError:
        return NotRecentError(
            f"{name!r} may hold several events, and RECENT stores the first and the latest alone, not each that this "
            "filter compares with others",
            f"read LAST({name}), FIRST({name}) or PREV({name}); for a key, let equalities compare all steps; "
            "SELECT ALL, NEXT or LAST take it",
            span_in(relation.predicate, name, None) or relation.span,
        )

    def _link(
        self,
        chosen: dict[tuple[str, str], _Choice],
        equal: _Link,
        steps_of: dict[str, list[tuple[int, int]]],
    ) -> None:
        """Note columns of which a filter makes all events equal, if it does."""
        (one, _), (other, _) = equal
        if NOW in (one, other) or not all(choice.links for choice in chosen.values()):
            return
        events = {event for _, event in chosen}
        if events == {"EACH"} or (events == {"EACH", "PREV"} and len({name for name, _ in chosen}) == 1):
            if not self._shared(one, other) and not ("PREV" in events and self._in_group(one)):
                self._links.append(equal)
            return
        steps = [step for name, _ in chosen for step, _ in steps_of[name]]
        if not any(self._repeats(step) for step in steps):
            self._fixed_links.append((equal, steps))

    def _shared(self, one: int, other: int) -> bool:
        """Return whether the filtered part is in a loop with two steps, so that they are equal in each repetition."""
        return bool(set(self._loops[one]) & set(self._loops[other]) & set(self._around))

    def _distances(
        self, relation: s.Relation, read: list[tuple[str, str]], steps_of: dict[str, list[tuple[int, int]]]
    ) -> list[PlacedTest] | None:
        """Return the tests of a window of a part, or of EACH STEP; None for another filter."""
        placed = []
        if len({name for name, _ in read}) == 1:  # EACH STEP, of the whole pattern
            for step in range(len(self._steps)):
                codes = tuple((key, step if key[1] == "EACH" else LAST_OF_ALL) for key in read)
                placed.append(PlacedTest(step, RecentTest(relation.predicate, codes), None))
            return placed
        (later, one), (earlier, other) = read
        if (one, other) != ("EACH", "EACH") or any(steps and steps[0][0] == NOW for steps in steps_of.values()):
            return None
        # clocks do not decrease: of a step that may hold several events, the first one decides
        for last, _ in steps_of[later]:
            for first, _ in steps_of[earlier]:
                code = FIRST_OF | first if self._repeats(first) else first
                if code == last or (code == first and first > last):
                    continue
                if code != first and self._first_depths.setdefault(first, len(self._around)) != len(self._around):
                    raise NotRecentError(
                        "windows of parts within each other begin with one step that repeats",
                        "leave one of them out; SELECT ALL, NEXT or LAST take it",
                        relation.span,
                    )
                test = RecentTest(
                    relation.predicate, (((later, one), last), ((earlier, other), code)), (taken_need(code),)
                )
                placed.append(PlacedTest(last, test, None))
        return placed

    # ---- absences ---------------------------------------------------------------------------------------------

    def _absence(
        self,
        absent: Absent,
        filters: list[list[PlacedTest]],
        keys: tuple[tuple[tuple[s.Attribute, ...], ...], ...],
        in_keys: dict[StepColumn, int],
    ) -> RecentAbsence:
        flat = [each for own in self._sources for each in own]  # in this order, then those at the end
        self._barred = flat[self._n_absences] if self._n_absences < len(flat) else tuple(self._whole.lasts)
        self._n_absences += 1
        return super()._absence(absent, filters, keys, in_keys)

    def _absence_key(self, placed: list[PlacedTest], in_keys: dict[StepColumn, int]) -> tuple[int, s.Expression] | None:
        steps = {step for each in placed for step, _ in each.equal or () if step != NOW}
        if not any(all(step in {one} | self._dominators[one] for one in self._barred) for step in steps):
            return None  # where none of them is taken, the filter holds whatever the key
        return super()._absence_key(placed, in_keys)

    # ---- the whole graph --------------------------------------------------------------------------------------

    def _key_classes(self) -> tuple[tuple[tuple[tuple[s.Attribute, ...], ...], ...], dict[StepColumn, int]]:
        n = len(self._steps)
        self._dominators = self._dominated()
        implied = [self._implied(step) for step in range(n)]
        always = sorted(set.intersection(*(set(implied[step]) for step in self._whole.lasts)))
        for name, own, repeats, span in self._lasts:
            if repeats or any(own[-1] not in implied[step] for step in own):
                raise NotRecentError(
                    f"LAST({name}) is known when a later step comes, and this filter of RECENT reads none",
                    f"compare LAST({name}) with an event of a later step; SELECT ALL, NEXT or LAST take it",
                    span,
                )
        links = [*self._links]
        links += [link for link, steps in self._fixed_links if all(step in always for step in steps)]
        spans: dict[StepColumn, s.Span] = {}
        for placed in self._placed:
            for column in placed.equal or ():
                spans.setdefault(column, span_in(placed.test.predicate, None, column[1]) or (0, 0))
        keys: list[tuple[tuple[s.Attribute, ...], ...]] = []
        in_keys = dict[StepColumn, int]()
        seen = set[StepColumn]()
        # a match without two events to be equal may have any key, and none
        for root in always if len(always) > 1 else ():
            for name in sorted({name for link in links for step, name in link if step == root}):
                if (root, name) in seen:
                    continue
                members = equal_in_all((root, name), links, implied)
                seen |= members
                if {step for step, _ in members} == set(range(n)):
                    columns_of = [sorted(column for at, column in members if at == step) for step in range(n)]
                    in_keys |= dict.fromkeys(members, len(keys))
                    keys.append(
                        tuple(
                            tuple(s.Attribute(column, spans[step, column]) for column in columns)
                            for step, columns in enumerate(columns_of)
                        )
                    )
        return tuple(keys), in_keys

    def _dominated(self) -> list[set[int]]:
        """Return for each step those on all ways from the beginning to it, without itself."""
        return on_all_ways(len(self._steps), self._whole.firsts, [(way.source, way.target) for way in self._ways])

    def _implied(self, step: int) -> set[int]:
        """Return the steps that all matches with a step have, with itself."""
        if not self._followers:
            ways = [(way.target, way.source) for way in self._ways]
            self._followers = on_all_ways(len(self._steps), self._whole.lasts, ways)
        return {step} | self._dominators[step] | self._followers[step]

    def _pruned_all(self, tests: tuple[RecentTest, ...], sources: list[int]) -> tuple[RecentTest, ...]:
        """Return the tests of an absence, without what is certain after some steps."""
        pruned = (self._pruned(test, sources, taken=True) for test in tests)
        return tuple(test for test in pruned if test is not None)

    def _pruned(self, test: RecentTest, places: list[int], *, taken: bool = False) -> RecentTest | None:
        """Return a test without what is certain at some places, or None if it always holds there."""
        needs = []
        for code, bits in test.needs:
            step = step_of(code)
            certain = code & BEFORE_NOW == 0 and all(
                step in self._dominators[place] or (taken and step == place) for place in places
            )
            own = code in places and not taken
            if certain and not own:
                bits &= (1 << NOT_TAKEN) - 1
                if bits == 0:
                    return None
                if bits & (1 << NOT_TAKEN) - 1 == (1 << NOT_TAKEN) - 1 or bits == self._steps[step].all:
                    continue
            needs.append((code, bits))
        return replace(test, needs=tuple(needs))
