"""Reference of SELECT RECENT: pending partial matches, one for each step and key, literally from the definition.

A pattern is a tree of its own (`Event`, `Choice`, `Chain`, `Times`, `Named`, `Filtered`, `Local`), which `unrolled`
turns into a list of steps and of tests between their events. Streams are lists of dicts as in `reference`: the type
under ``"type"``, the time under ``"ts"``. This module imports neither the engine nor the other reference.

The definition: at each event of a substream, from the last step to the second, if the event satisfies step k and the
partial match that waits for k under the event's key fits, that one moves on to k with the event, in place of what
waited behind k, and waits for k no more. It fits if the tests of which the event is the last hold, and windows and
gaps are kept. Then an event that must be absent before k drops what still waits for k, where its tests hold: under all
keys of the substream. At last, if the event satisfies the first step, it takes the place of what waits behind that.

Decisions:

- The alternatives of a step are tried from left to right, and the first that fits is taken. A filter on a variable that
  only some of them are holds where another one was taken.
- A filter is tested at the last event that it reads, but not before the first event of what it filters.
- A key is a class of columns that filters make equal, each by an equality of two columns alone, with columns of every
  step. Filters on a variable that is only some alternatives of a step make no key. An event whose columns of a key are
  NULL, NaN or unlike takes no part at that step.
- What must be absent between two repetitions may read the events of the one before it, and no other.
- After CONSUME BY, the event that ended a complex event is forgotten with all before.
- What must be absent behind the last step takes back every complex event that ended before it, in its substream, where
  its tests hold and the window from the first event (or the length of FOR from the last) is not over.  What is not
  taken back is known at the first event beyond that, in the order of these events, of starts, and of ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from reference_texts import STRING_FUNCTIONS

Stream = list[dict[str, Any]]
ANY = "*"
NOW = -1
"""In place of a step: an event that must be absent."""


@dataclass(frozen=True)
class Ref:
    """A column of a variable: of the event chosen for it (EACH), the one before that (PREV), FIRST or LAST."""

    variable: str
    column: str
    event: str = "EACH"


@dataclass(frozen=True)
class Filter:
    """`left op right`: columns, or a constant at the right; `plus` is added to the right.

    The operator may be a function of two texts, ``contains`` or its kin.
    """

    left: Ref
    op: str
    right: Ref | int | str
    plus: int = 0

    @property
    def refs(self) -> list[Ref]:
        return [side for side in (self.left, self.right) if isinstance(side, Ref)]


@dataclass(frozen=True)
class Event:
    """`type AS variable`, with `column op constant` on the event alone, and filters; without a name, `NOT(type)`."""

    type: str
    variable: str | None
    test: tuple[str, str, Any] | None = None
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True)
class Choice:
    """Alternatives of one step, which `variable` holds, whichever it is."""

    events: tuple[Event, ...]
    variable: str


@dataclass(frozen=True)
class Absent:
    """`!(type AS variable FILTER ...)`."""

    event: Event
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True)
class Chain:
    """Parts, each with what is absent before it, and with how it is joined to the one before.

    A part joined by `:` has any event absent before it; one joined by `->`, which is one event, all events that satisfy
    it by themselves: what stands in its own parentheses.
    """

    parts: tuple[Any, ...]
    absent: tuple[tuple[Absent, ...], ...]
    joints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Times:
    """`body{n} UNTIL until`."""

    body: Any
    n: int
    until: tuple[Absent, ...] = ()


@dataclass(frozen=True)
class Named:
    """`body AS variable`."""

    body: Any
    variable: str


@dataclass(frozen=True)
class Filtered:
    """`body FILTER f AND g ...`."""

    body: Any
    filters: tuple[Filter, ...]


@dataclass(frozen=True)
class Local:
    """`(body WITHIN kind n)`."""

    body: Any
    within: tuple[str, int]


@dataclass(frozen=True)
class Query:
    formula: Any
    selected: tuple[str, ...] | None = None
    partition: tuple[str, ...] = ()
    within: tuple[str, int] | None = None
    each_step: tuple[str, int] | None = None
    consume: str = "NONE"
    trailing: tuple[Absent, ...] = ()
    lasts: tuple[str, int] | None = None


# ------------------------------------------------------------------------------------------------ unrolled patterns


@dataclass
class Alternative:
    event: Event
    names: set[str]


@dataclass(frozen=True)
class BoundPredicate:
    """A filter of some events: the step of each side, NOW for the absent one, and alternatives that ask for it."""

    filter: Filter
    left: int
    right: int | None
    needs: tuple[tuple[int, frozenset[int]], ...]

    @property
    def steps(self) -> list[int]:
        return [self.left] if self.right is None else [self.left, self.right]


@dataclass
class Step:
    alternatives: list[Alternative]
    absent: list[tuple[Event, list[BoundPredicate]]] = field(default_factory=list)


@dataclass
class Unrolled:
    """Steps; tests, each with the step at whose event it is made; windows of the events from one step to another."""

    steps: list[Step] = field(default_factory=list)
    tests: list[tuple[int, BoundPredicate]] = field(default_factory=list)
    windows: list[tuple[int, int, tuple[str, int]]] = field(default_factory=list)


def unrolled(formula: Any) -> Unrolled:
    made = Unrolled()
    _unroll(formula, [], made)
    return made


def _unroll(node: Any, visible: list[int], made: Unrolled) -> list[int]:
    """Add the steps of a part, which sees some steps before it, and return them."""
    steps = made.steps
    match node:
        case Event():
            steps.append(Step([Alternative(node, {node.variable} - {None})]))
            _filter_step(made, visible)
            return [len(steps) - 1]
        case Choice():
            steps.append(Step([Alternative(event, {event.variable, node.variable}) for event in node.events]))
            _filter_step(made, visible)
            return [len(steps) - 1]
        case Chain():
            own: list[int] = []
            joints = node.joints or (";",) * len(node.parts)
            for part, absent, joint in zip(node.parts, node.absent, joints, strict=True):
                absent = (*absent, *_of_joint(joint, part))
                before = [*visible, *own]
                first = len(steps)
                own += _unroll(part, before, made)
                steps[first].absent[:0] = _bars(absent, before, made)
            return own
        case Times():
            own = last = _unroll(node.body, visible, made)
            for _ in range(node.n - 1):
                first, before = len(steps), [*visible, *last]
                last = _unroll(node.body, visible, made)
                own = [*own, *last]
                steps[first].absent[:0] = _bars(node.until, before, made)
            return own
        case Named():
            own = _unroll(node.body, visible, made)
            for step in own:
                for alternative in steps[step].alternatives:
                    if alternative.event.variable is not None:  # no variable holds a NOT(...)
                        alternative.names.add(node.variable)
            return own
        case Filtered():
            own = _unroll(node.body, visible, made)
            for each in node.filters:
                for test in _tests(each, own, visible, made, None):
                    made.tests.append((max(*test.steps, own[0]), test))
            return own
        case Local():
            own = _unroll(node.body, visible, made)
            made.windows.append((own[0], own[-1], node.within))
            return own
    raise AssertionError(node)


def _of_joint(joint: str, part: Any) -> tuple[Absent, ...]:
    """Return what is absent before a part because of its joint."""
    if joint == ":":
        return (Absent(Event(ANY, "any")),)
    if joint == ";":
        return ()
    events = part.events if isinstance(part, Choice) else (part,)
    return tuple(Absent(replace(event, filters=()), event.filters) for event in events)


def _filter_step(made: Unrolled, visible: list[int]) -> None:
    """Add the tests of the filters of each alternative of the last step, which hold where another one is taken."""
    number, alternatives = len(made.steps) - 1, made.steps[-1].alternatives
    for i, alternative in enumerate(alternatives):
        for each in alternative.event.filters:
            for test in _tests(each, [number], visible, made, None):
                own = ((number, frozenset({i})),) if len(alternatives) > 1 else ()
                made.tests.append((max(*test.steps, number), replace(test, needs=(*test.needs, *own))))


def _bars(absent: tuple[Absent, ...], before: list[int], made: Unrolled) -> list[tuple[Event, list[BoundPredicate]]]:
    return [
        (each.event, [test for f in each.filters for test in _tests(f, [], before, made, each.event.variable)])
        for each in absent
    ]


def _held(name: str, among: list[int], made: Unrolled) -> list[tuple[int, frozenset[int] | None]]:
    """Return the steps whose event a variable holds, with the alternatives that it does; None: all of them."""
    found: list[tuple[int, frozenset[int] | None]] = []
    for step in among:
        alternatives = made.steps[step].alternatives
        which = frozenset(i for i, each in enumerate(alternatives) if name in each.names)
        if which:
            found.append((step, None if len(which) == len(alternatives) else which))
    return found


def _tests(
    filter_: Filter, own: list[int], visible: list[int], made: Unrolled, absent: str | None
) -> Iterator[BoundPredicate]:
    """Yield the tests of a filter: one for each choice of one event of each variable."""
    held: dict[str, list[tuple[int, frozenset[int] | None]]] = {}
    for ref in filter_.refs:
        if ref.variable == absent:
            held[ref.variable] = [(NOW, None)]
        else:
            held[ref.variable] = _held(ref.variable, own, made) or _held(ref.variable, visible, made)
    chosen = list(dict.fromkeys(ref.variable for ref in filter_.refs if ref.event in ("EACH", "PREV")))
    for places in itertools.product(*(range(len(held[name])) for name in chosen)):
        at = dict(zip(chosen, places, strict=True))
        found = []
        for ref in filter_.refs:
            steps = held[ref.variable]
            place = {"FIRST": 0, "LAST": len(steps) - 1}.get(ref.event, at.get(ref.variable, 0) - (ref.event == "PREV"))
            found.append(steps[place] if 0 <= place < len(steps) else None)
        if None in found:
            continue
        needs = tuple((step, which) for step, which in found if which is not None)
        yield BoundPredicate(filter_, found[0][0], found[1][0] if len(found) > 1 else None, needs)


# ------------------------------------------------------------------------------------------------ tests and keys


def compare(op: str, x: Any, y: Any) -> bool:
    """Return whether a comparison is TRUE: it is not for NULL."""
    if x is None or y is None:
        return False
    if op in STRING_FUNCTIONS:
        return STRING_FUNCTIONS[op](x, y) is True
    return {"=": x == y, "<>": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[op]


def satisfies(event: dict[str, Any], wanted: Event) -> bool:
    of_type = wanted.type in (ANY, event["type"])
    if wanted.variable is None or not of_type:
        return wanted.variable is None and not of_type
    return wanted.test is None or compare(wanted.test[1], event.get(wanted.test[0]), wanted.test[2])


def holds(test: BoundPredicate, events: dict[int, dict[str, Any]], taken: dict[int, int]) -> bool:
    """Return whether a test holds, given events by step and the alternative that each is."""
    if any(taken[step] not in which for step, which in test.needs):
        return True
    x = events[test.left].get(test.filter.left.column)
    y = test.filter.right
    if test.right is not None:
        y = events[test.right].get(test.filter.right.column)
    if y is not None and test.filter.plus:
        y = y + test.filter.plus
    return compare(test.filter.op, x, y)


Columns = list[list[str]]
"""The columns of a key, for each step."""


def keys_of(pattern: Unrolled) -> list[Columns]:
    classes: list[set[tuple[int, str]]] = []
    for _, test in pattern.tests:
        if test.filter.op != "=" or test.right is None or test.filter.plus or test.needs:
            continue
        pair = {(test.left, test.filter.left.column), (test.right, test.filter.right.column)}
        near = [each for each in classes if each & pair]
        classes = [each for each in classes if not each & pair] + [pair.union(*near)]
    n = len(pattern.steps)
    if n == 1:
        return []
    return [
        [[name for at, name in sorted(each) if at == step] for step in range(n)]
        for each in classes
        if {step for step, _ in each} == set(range(n))
    ]


def key_at(keys: list[Columns], step: int, event: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return the key of an event at a step; None: it takes no part there."""
    found = []
    for columns in keys:
        values = [event.get(name) for name in columns[step]]
        if any(value is None or value != values[0] for value in values) or values[0] != values[0]:
            return None
        found.append(values[0])
    return tuple(found)


# ------------------------------------------------------------------------------------------------ evaluation


@dataclass(frozen=True)
class Partial:
    """A partial match: the positions of its events, and the alternative that each is."""

    positions: tuple[int, ...] = ()
    taken: tuple[int, ...] = ()

    def then(self, position: int, alternative: int) -> Partial:
        return Partial((*self.positions, position), (*self.taken, alternative))


def evaluate(query: Query, stream: Stream) -> list[Partial]:
    """Return the complex events, in the order of their ends, or in which they are known."""
    found = _ended(query, stream)
    return _not_taken_back(query, stream, found) if query.trailing else found


def _not_taken_back(query: Query, stream: Stream, found: list[Partial]) -> list[Partial]:
    pattern = unrolled(query.formula)
    behind = _bars(query.trailing, list(range(len(pattern.steps))), pattern)
    known: list[tuple[int, int, int, Partial]] = []
    length = query.lasts or query.within
    assert length is not None

    def is_same(one: int, other: int) -> bool:
        return all(stream[one].get(name) == stream[other].get(name) for name in query.partition)

    def clock(position: int) -> Any:
        if length[0] == "events":
            return sum(is_same(position, other) for other in range(position))
        return stream[position]["ts" if length[0] == "time" else "o"]

    for partial in found:
        first, last = partial.positions[0], partial.positions[-1]
        events = {k: stream[position] for k, position in enumerate(partial.positions)}
        taken = dict(enumerate(partial.taken))
        moment = len(stream)
        for position in range(last + 1, len(stream)):
            same = is_same(last, position)
            if not same and length[0] == "events":
                continue
            if clock(position) - clock(last if query.lasts else first) > length[1]:
                moment = position
                break
            if same and any(
                satisfies(stream[position], wanted)
                and all(holds(test, {**events, NOW: stream[position]}, taken) for test in tests)
                for wanted, tests in behind
            ):
                moment = -1
                break
        if moment >= 0:
            known.append((moment, last, first, partial))
    return [partial for *_, partial in sorted(known, key=lambda row: row[:3])]


def _ended(query: Query, stream: Stream) -> list[Partial]:
    """Return the complex events without what may take them back, in the order of their ends."""
    pattern = unrolled(query.formula)
    steps, keys = pattern.steps, keys_of(pattern)
    n = len(steps)
    waiting: dict[Any, dict[int, Partial]] = {}  # by substream and key: behind each step
    substreams = [tuple(event.get(name) for name in query.partition) for event in stream]
    found = []

    def clock(position: int, kind: str) -> Any:
        if kind == "events":
            return sum(each == substreams[position] for each in substreams[:position])
        return stream[position]["ts" if kind == "time" else "o"]

    def near(one: int, other: int, within: tuple[str, int] | None) -> bool:
        return within is None or clock(other, within[0]) - clock(one, within[0]) <= within[1]

    def fits(partial: Partial, step: int) -> bool:
        """Return whether a partial match whose last event is at a step passes all that is decided there."""
        events = {k: stream[position] for k, position in enumerate(partial.positions)}
        taken = dict(enumerate(partial.taken))
        if not all(holds(test, events, taken) for last, test in pattern.tests if last == step):
            return False
        at = partial.positions
        for first, last, within in pattern.windows:
            if last == step and not near(at[first], at[last], within):
                return False
        return near(at[0], at[-1], query.within) and (step == 0 or near(at[-2], at[-1], query.each_step))

    for position, event in enumerate(stream):
        substream = substreams[position]
        if None in substream:
            continue
        ended = []
        for k in range(n - 1, -1, -1):
            own = key_at(keys, k, event)
            slots = waiting.setdefault((substream, own), {}) if own is not None else {}
            before = slots.get(k - 1) if k else Partial()
            for i, alternative in enumerate(steps[k].alternatives):
                if own is None or before is None or not satisfies(event, alternative.event):
                    continue
                moved = before.then(position, i)
                if not fits(moved, k):
                    continue
                slots.pop(k - 1, None)
                if k == n - 1:
                    ended.append(moved)
                else:
                    slots[k] = moved
                break
            for wanted, tests in steps[k].absent:
                if not satisfies(event, wanted):
                    continue
                for (of, _), others in waiting.items():
                    if of != substream or k - 1 not in others:
                        continue
                    partial = others[k - 1]
                    events = {at: stream[p] for at, p in enumerate(partial.positions)} | {NOW: event}
                    if all(holds(test, events, dict(enumerate(partial.taken))) for test in tests):
                        del others[k - 1]
        found += ended
        if ended and query.consume == "ANY":
            waiting.clear()
        if ended and query.consume == "PARTITION":
            waiting = {key: slots for key, slots in waiting.items() if key[0] != substream}
    return found


Row = tuple[int, int, tuple[int, ...], tuple[tuple[str, tuple[int, ...]], ...]]


def rows(query: Query, stream: Stream, variables: list[str]) -> list[Row]:
    """Return start, end, kept positions, and the positions of some variables, of each complex event."""
    steps = unrolled(query.formula).steps
    answer = []
    for each in evaluate(query, stream):
        names = [steps[k].alternatives[i].names for k, i in enumerate(each.taken)]
        pairs = list(zip(each.positions, names, strict=True))
        held = tuple((name, tuple(p for p, of in pairs if name in of)) for name in variables)
        kept = tuple(p for p, of in pairs if (of if query.selected is None else of & set(query.selected)))
        answer.append((each.positions[0], each.positions[-1], kept, held))
    return answer


def variables_in(node: Any) -> list[str]:
    """Return the variables of a pattern, in the order of the text."""
    match node:
        case Event():
            return [] if node.variable is None else [node.variable]
        case Choice():
            return [*(event.variable for event in node.events), node.variable]
        case Chain():
            return [name for part in node.parts for name in variables_in(part)]
        case Named():
            return [*variables_in(node.body), node.variable]
        case _:
            return variables_in(node.body)


def without_local_windows(node: Any) -> Any:
    """Return a pattern without its local windows."""
    match node:
        case Local():
            return without_local_windows(node.body)
        case Chain():
            return replace(node, parts=tuple(map(without_local_windows, node.parts)))
        case Times() | Named() | Filtered():
            return replace(node, body=without_local_windows(node.body))
        case _:
            return node
