"""Reference of SELECT RECENT with `+`, `*`, `?`, `{n,m}`, literally from the definition; no engine is imported.

A pattern is a tree of `reference_recent`, and of `Some`.  It is unrolled to states, each of one event: ``B{n,m}`` are
m of them, of which all after the n-th may be left out; ``B{n,}`` are n, and from the last of them a path goes back to
where it began.  One partial match at most is pending at each state, for each substream and key.

The definition: at each event, from the last state to the first, if the event satisfies the state, then of those that
are pending at the states before it, and fit, the one that started last moves there with the event, in place of what was
pending there; if several started together, the one at the furthest state.  If none does, and a match may begin with the
state, the event begins one there: one at most for each event.  What an event has placed is not moved by it again.  What
is placed at a state with which the pattern may end is a complex event, and stays if the pattern may go on.

Decisions:

- Alternatives of a state are tried from left to right: the first with which anything moves.
- A filter on a part is tested for each choice of events, at the last event that it reads, but not before the first
  event of the part.  In a repeated part it reads the events of one repetition; around it, those of all.
- A filter holds where a variable that it reads has no event.
- What must be absent between two repetitions may read the events of the one before it, and no other.
- A key is a class of columns of all states, made from a state that every match has, by equalities of each event of a
  state with one of a state that has the key, and that every match has which has the first.  It takes two states that
  every match has: else a match might have no event for the first one to equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from reference_recent import (
    ANY,
    Absent,
    Chain,
    Choice,
    Event,
    Filter,
    Filtered,
    Local,
    Named,
    Query,
    Stream,
    Times,
    compare,
    satisfies,
)

START = -1


@dataclass(frozen=True)
class Some:
    """`body{n_min,n_max} UNTIL until`, joined by ``;``, ``:`` or ``->``; without `n_max`, any number."""

    body: Any
    n_min: int
    n_max: int | None
    until: tuple[Absent, ...] = ()
    joint: str = ";"


# ------------------------------------------------------------------------------------------------ unrolled patterns


@dataclass
class State:
    """Events of a state, each with the variables that hold it, and the repetitions without end that it is in."""

    alternatives: list[tuple[Event, set[str]]]
    loops: tuple[int, ...]


@dataclass(frozen=True)
class Scope:
    """What a filter or a window of a part is about: its own states, and those before; `alternative` of its only one."""

    own: frozenset[int]
    visible: frozenset[int]
    loops: tuple[int, ...]
    alternative: int | None = None


@dataclass(frozen=True)
class Gap:
    """A way from one state to the next, and what must be absent; `loop`: it begins another repetition."""

    source: int
    target: int
    absent: tuple[tuple[Absent, Scope], ...] = ()
    loop: int | None = None


@dataclass
class Part:
    own: list[int]
    firsts: list[int]
    lasts: list[int]
    empty: bool = False


@dataclass
class Graph:
    states: list[State] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    filters: list[tuple[Filter, Scope]] = field(default_factory=list)
    windows: list[tuple[tuple[str, int], Scope]] = field(default_factory=list)
    n_loops: int = 0
    whole: Part = field(default_factory=lambda: Part([], [], []))


def graph_of(formula: Any) -> Graph:
    graph = Graph()
    graph.whole = _Unrolling(graph).part(formula, [], ())
    return graph


class _Unrolling:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def part(self, node: Any, visible: list[int], loops: tuple[int, ...]) -> Part:
        graph = self.graph
        match node:
            case Event() | Choice():
                events = node.events if isinstance(node, Choice) else (node,)
                names = {node.variable}
                number = len(graph.states)
                graph.states.append(State([(each, ({each.variable} | names) - {None}) for each in events], loops))
                for i, each in enumerate(events):
                    scope = Scope(frozenset([number]), frozenset(visible), loops, i)
                    graph.filters += [(filter_, scope) for filter_ in each.filters]
                return Part([number], [number], [number])
            case Chain():
                joints = node.joints or (";",) * len(node.parts)
                made = self.part(node.parts[0], visible, loops)
                for below, absent, joint in zip(node.parts[1:], node.absent[1:], joints[1:], strict=True):
                    before = [*visible, *made.own]
                    after = self.part(below, before, loops)
                    self.join(made, after, (*absent, *_of_joint(joint, below)), before, loops)
                    made = Part(
                        made.own + after.own,
                        made.firsts + (after.firsts if made.empty else []),
                        after.lasts + (made.lasts if after.empty else []),
                        made.empty and after.empty,
                    )
                return made
            case Times():
                return self.part(Some(node.body, node.n, node.n, node.until), visible, loops)
            case Some():
                return self.some(node, visible, loops)
            case Named():
                made = self.part(node.body, visible, loops)
                for number in made.own:
                    for event, names in graph.states[number].alternatives:
                        if event.variable is not None:
                            names.add(node.variable)
                return made
            case Filtered():
                made = self.part(node.body, visible, loops)
                scope = Scope(frozenset(made.own), frozenset(visible), loops)
                graph.filters += [(each, scope) for each in node.filters]
                return made
            case Local():
                made = self.part(node.body, visible, loops)
                graph.windows.append((node.within, Scope(frozenset(made.own), frozenset(visible), loops)))
                return made
        raise AssertionError(node)

    def some(self, node: Some, visible: list[int], loops: tuple[int, ...]) -> Part:
        absent = (*node.until, *_of_joint(node.joint, node.body))
        n = node.n_max if node.n_max is not None else max(node.n_min, 1)
        copies: list[Part] = []
        for number in range(n):
            endless = node.n_max is None and number == n - 1
            if endless:
                loop = self.graph.n_loops
                self.graph.n_loops += 1
            own = (*loops, loop) if endless else loops
            copy = self.part(node.body, visible, own)
            if copies:
                before = [*visible, *copies[-1].own]
                self.join(copies[-1], copy, absent, before, loops)
            if endless:
                self.join(copy, copy, absent, [*visible, *copy.own], own, loop)
            copies.append(copy)
        enough = [copy for number, copy in enumerate(copies) if number + 1 >= max(node.n_min, 1)]
        return Part(
            [state for copy in copies for state in copy.own],
            copies[0].firsts,
            [state for copy in enough for state in copy.lasts],
            node.n_min == 0 or copies[0].empty,
        )

    def join(
        self,
        left: Part,
        right: Part,
        absent: tuple[Absent, ...],
        visible: list[int],
        loops: tuple[int, ...],
        loop: int | None = None,
    ) -> None:
        scope = Scope(frozenset(), frozenset(visible), loops)
        for source, target in itertools.product(left.lasts, right.firsts):
            self.graph.gaps.append(Gap(source, target, tuple((each, scope) for each in absent), loop))


def _of_joint(joint: str, part: Any) -> tuple[Absent, ...]:
    """Return what is absent in a gap because of its joint."""
    if joint == ";":
        return ()
    if joint == ":":
        return (Absent(Event(ANY, "any")),)
    while isinstance(part, Some | Times | Named):
        part = part.body
    events = part.events if isinstance(part, Choice) else (part,)
    return tuple(Absent(replace(event, filters=()), event.filters) for event in events)


# ------------------------------------------------------------------------------------------------ partial matches


@dataclass(frozen=True)
class Read:
    """An event of a partial match: its position, state and alternative, and which repetition of each loop it is in."""

    position: int
    state: int
    alternative: int
    rounds: tuple[tuple[int, int], ...]

    def round(self, loops: tuple[int, ...]) -> list[int]:
        return [dict(self.rounds).get(loop, 0) for loop in loops]


Partial = tuple[Read, ...]


class Evaluation:
    """The states of a query, and a stream."""

    def __init__(self, query: Query, stream: Stream) -> None:
        self.query, self.stream = query, stream
        self.graph = graph_of(query.formula)
        self.keys = _keys(self.graph)
        self.substreams = [tuple(event.get(name) for name in query.partition) for event in stream]

    def clock(self, position: int, kind: str) -> Any:
        if kind == "events":
            return sum(each == self.substreams[position] for each in self.substreams[:position])
        return self.stream[position]["ts" if kind == "time" else "o"]

    def apart(self, one: int, other: int, within: tuple[str, int] | None) -> bool:
        return within is not None and self.clock(other, within[0]) - self.clock(one, within[0]) > within[1]

    # ---- whether a partial match may move on ------------------------------------------------------------------

    def moved(self, partial: Partial, gap: Gap, position: int, alternative: int) -> Partial:
        rounds = dict(partial[-1].rounds)
        if gap.loop is not None:
            at = rounds.get(gap.loop, 0) + 1
            loops = self.graph.states[gap.target].loops
            outer = loops[: loops.index(gap.loop)]
            rounds = {loop: rounds.get(loop, 0) for loop in outer} | {gap.loop: at}
        return (*partial, Read(position, gap.target, alternative, tuple(rounds.items())))

    def fits(self, partial: Partial) -> bool:
        """Return whether a partial match passes all that its last event decides."""
        now = partial[-1]
        if self.apart(partial[0].position, now.position, self.query.within):
            return False
        if len(partial) > 1 and self.apart(partial[-2].position, now.position, self.query.each_step):
            return False
        for within, scope in self.graph.windows:
            own = self.events(partial, scope.own, scope, now)
            if now.state in scope.own and self.apart(own[0].position, now.position, within):
                return False
        return all(self.passes(filter_, scope, partial) for filter_, scope in self.graph.filters)

    def events(self, partial: Partial, states: frozenset[int], scope: Scope, now: Read) -> list[Read]:
        """Return the events of some states, in the repetition of an event."""

        def alike(each: Read) -> bool:
            loops = tuple(loop for loop in scope.loops if loop in self.graph.states[each.state].loops)
            return each.round(loops) == now.round(loops)

        return [each for each in partial if each.state in states and alike(each)]

    def passes(self, filter_: Filter, scope: Scope, partial: Partial) -> bool:
        now = partial[-1]
        if now.state not in scope.own or scope.alternative not in (None, now.alternative):
            return True
        own = self.events(partial, scope.own, scope, now)
        begins = own[0] is now
        pools, within = {}, {}
        for ref in filter_.refs:
            within[ref.variable] = bool(self.bound(ref.variable, scope.own))
            states = scope.own if within[ref.variable] else scope.visible
            pools[ref.variable] = [
                each for each in self.events(partial, states, scope, now) if self.holds(each, ref.variable)
            ]
        for ref in filter_.refs:
            states = self.bound(ref.variable, scope.own if within[ref.variable] else scope.visible)
            last = max(states, default=-1)
            if ref.event == "LAST" and (now.state < last or (now.state == last and self.is_repeated(last, scope))):
                return True  # not known yet
        for chosen, picked in self.choices(filter_, pools):
            reads_now = any(each is now for each in (*chosen, *picked))
            if not (reads_now or (begins and not any(within.values()))):
                continue
            if not self.is_true(filter_, [self.stream[each.position] for each in chosen]):
                return False
        return True

    def bound(self, variable: str, states: frozenset[int]) -> list[int]:
        return [n for n in states if any(variable in names for _, names in self.graph.states[n].alternatives)]

    def is_repeated(self, state: int, scope: Scope) -> bool:
        """Return whether one match of a filtered part may hold several events of a state."""
        return not set(self.graph.states[state].loops) <= set(scope.loops)

    def holds(self, each: Read, variable: str) -> bool:
        return variable in self.graph.states[each.state].alternatives[each.alternative][1]

    def choices(self, filter_: Filter, pools: dict[str, list[Read]]) -> Iterator[tuple[list[Read], list[Read]]]:
        """Yield the events that a filter reads, for each choice of one event of each variable, and this choice."""
        picked = list(dict.fromkeys(ref.variable for ref in filter_.refs if ref.event in ("EACH", "PREV")))
        for places in itertools.product(*(range(len(pools[name])) for name in picked)):
            at = dict(zip(picked, places, strict=True))
            chosen = []
            for ref in filter_.refs:
                pool = pools[ref.variable]
                last = len(pool) - 1
                place = {"FIRST": 0, "LAST": last}.get(ref.event, at.get(ref.variable, 0) - (ref.event == "PREV"))
                if 0 <= place <= last:
                    chosen.append(pool[place])
            if len(chosen) == len(filter_.refs):
                yield chosen, [pools[name][place] for name, place in at.items()]

    def is_true(self, filter_: Filter, events: list[dict[str, Any]]) -> bool:
        x = events[0].get(filter_.left.column)
        y = events[1].get(filter_.right.column) if len(events) > 1 else filter_.right
        if y is not None and filter_.plus:
            y = y + filter_.plus
        return compare(filter_.op, x, y)

    def is_clear(self, partial: Partial, gap: Gap, end: int, absent: tuple[tuple[Absent, Scope], ...]) -> bool:
        """Return whether nothing that must be absent lies between a partial match and an event."""
        last = partial[-1]
        for position in range(last.position + 1, end):
            if self.substreams[position] != self.substreams[last.position]:
                continue
            for each, scope in absent:
                if satisfies(self.stream[position], each.event) and self.bars(partial, each, scope, position):
                    return False
        return True

    def bars(self, partial: Partial, absent: Absent, scope: Scope, position: int) -> bool:
        now = Read(position, -1, 0, partial[-1].rounds)
        for filter_ in absent.filters:
            pools = {ref.variable: [now] for ref in filter_.refs if ref.variable == absent.event.variable}
            for ref in filter_.refs:
                if ref.variable not in pools:
                    seen = self.events(partial, scope.visible, scope, partial[-1])
                    pools[ref.variable] = [each for each in seen if self.holds(each, ref.variable)]
            for chosen, _ in self.choices(filter_, pools):
                if not self.is_true(filter_, [self.stream[each.position] for each in chosen]):
                    return False
        return True

    # ---- all events -------------------------------------------------------------------------------------------

    def run(self) -> list[Partial]:
        """Return the complex events, in the order of their ends, and then of their last states, the last first."""
        graph = self.graph
        before: dict[int, list[Gap]] = {n: [] for n in range(len(graph.states))}
        for gap in graph.gaps:
            before[gap.target].append(gap)
        goes_on = {gap.source for gap in graph.gaps}
        pending: dict[Any, dict[int, Partial]] = {}
        found: list[Partial] = []
        for position, event in enumerate(self.stream):
            substream = self.substreams[position]
            if None in substream:
                continue
            begun, ended = False, []
            for k in reversed(range(len(graph.states))):
                own = self.key_at(k, event)
                if own is None:
                    continue
                slots = pending.setdefault((substream, own), {})
                placed = self.chosen(slots, before[k], position)
                if placed is not None:
                    source, made = placed
                    del slots[source]
                elif k in graph.whole.firsts and not begun:
                    made = next((each for each in self.beginnings(k, position) if self.fits(each)), ())
                    begun = bool(made)
                else:
                    made = ()
                if made:
                    slots.pop(k, None)
                    if k in goes_on:
                        slots[k] = made
                    if k in graph.whole.lasts:
                        ended.append(made)
            found += ended
            if ended and self.query.consume == "ANY":
                pending.clear()
            if ended and self.query.consume == "PARTITION":
                pending = {key: slots for key, slots in pending.items() if key[0] != substream}
        return found

    def chosen(self, slots: dict[int, Partial], gaps: list[Gap], position: int) -> tuple[int, Partial] | None:
        """Return the partial match that moves on with an event, with where it is pending, or None."""
        event = self.stream[position]
        for i, (wanted, _) in enumerate(self.graph.states[gaps[0].target].alternatives if gaps else []):
            if not satisfies(event, wanted):
                continue
            fitting: list[tuple[int, int, Partial]] = []
            for gap in gaps:
                partial = slots.get(gap.source, ())
                if not partial or partial[-1].position == position:
                    continue
                moved = self.moved(partial, gap, position, i)
                if self.is_clear(partial, gap, position, gap.absent) and self.fits(moved):
                    fitting.append((partial[0].position, gap.source, moved))
            if fitting:
                best = max(fitting, key=lambda each: each[:2])
                return best[1], best[2]
        return None

    def beginnings(self, k: int, position: int) -> Iterator[Partial]:
        for i, (wanted, _) in enumerate(self.graph.states[k].alternatives):
            if satisfies(self.stream[position], wanted):
                yield (Read(position, k, i, ()),)

    def key_at(self, k: int, event: dict[str, Any]) -> tuple[Any, ...] | None:
        found = []
        for columns in self.keys:
            values = [event.get(name) for name in columns[k]]
            if any(value is None or value != values[0] for value in values) or values[0] != values[0]:
                return None
            found.append(values[0])
        return tuple(found)

    def not_taken_back(self, found: list[Partial]) -> list[Partial]:
        """Return those that no event at the end takes back, in the order in which they are known."""
        query, known = self.query, []
        length = query.lasts or query.within
        assert length is not None
        scope = Scope(frozenset(), frozenset(range(len(self.graph.states))), ())
        for partial in found:
            first, last = partial[0].position, partial[-1].position
            moment = len(self.stream)
            for position in range(last + 1, len(self.stream)):
                same = self.substreams[last] == self.substreams[position]
                if not same and length[0] == "events":
                    continue
                if self.apart(last if query.lasts else first, position, length):
                    moment = position
                    break
                event = self.stream[position]
                if same and any(
                    satisfies(event, each.event) and self.bars(partial, each, scope, position)
                    for each in query.trailing
                ):
                    moment = -1
                    break
            if moment >= 0:
                known.append((moment, last, first, partial))
        return [partial for *_, partial in sorted(known, key=lambda row: row[:3])]


# ------------------------------------------------------------------------------------------------ keys


def _keys(graph: Graph) -> list[list[list[str]]]:
    """Return for each key the columns of each state."""
    edges = [edge for filter_, scope in graph.filters for edge in _equalities(graph, filter_, scope)]
    n = len(graph.states)
    always = [s for s in range(n) if _implied(graph, None, s)]
    if len(always) < 2:
        return []
    keys: list[list[list[str]]] = []
    seen: set[tuple[int, str]] = set()
    for root in always:
        for column in sorted({name for edge in edges for at, name in edge if at == root}):
            if (root, column) in seen:
                continue
            members = {(root, column)}
            while True:
                more = set()
                for one, other in edges:
                    for x, y in ((one, other), (other, one)):
                        if y in members and (x[0] == y[0] or _implied(graph, x[0], y[0])):
                            more.add(x)
                if more <= members:
                    break
                members |= more
            seen |= members
            if {x[0] for x in members} == set(range(n)):
                keys.append([sorted(name for at, name in members if at == state) for state in range(n)])
    return keys


def _equalities(graph: Graph, filter_: Filter, scope: Scope) -> Iterator[tuple[tuple[int, str], tuple[int, str]]]:
    """Yield the columns of two states of which a filter makes all events equal, one by one with each other."""
    left, right = filter_.left, filter_.right
    if filter_.op != "=" or isinstance(right, int | str) or filter_.plus or scope.alternative is not None:
        if scope.alternative is None or len(graph.states[min(scope.own)].alternatives) > 1:
            return
        if filter_.op != "=" or isinstance(right, int | str) or filter_.plus:
            return

    def states_of(name: str) -> list[int] | None:
        for among in (scope.own, scope.visible):
            found = []
            for state in sorted(among):
                which = [name in names for _, names in graph.states[state].alternatives]
                if any(which) and not all(which):
                    return None
                found += [state] if all(which) else []
            if found:
                return found
        return []

    held = {ref.variable: states_of(ref.variable) for ref in (left, right)}
    if None in held.values():
        return
    inner = set(scope.loops)
    places = {name: states or [] for name, states in held.items()}

    def repeated(state: int) -> bool:
        return not set(graph.states[state].loops) <= inner

    def grouped(state: int) -> bool:
        """Whether a repetition of several states holds it, and not the filter's part alone."""
        return any(sum(loop in other.loops for other in graph.states) > 1 for loop in graph.states[state].loops)

    events = {left.event, right.event}
    if left.variable == right.variable and events == {"EACH", "PREV"}:
        own = places[left.variable]
        pairs = list(itertools.pairwise(own)) + [(s, s) for s in own if repeated(s)]
        if any(grouped(s) for s in own):
            return
        for before, after in pairs:
            names = (left.column, right.column) if left.event == "PREV" else (right.column, left.column)
            yield (after, names[1]), (before, names[0])
        return
    if left.variable == right.variable and events == {"EACH"}:
        return
    fixed = all(_implied(graph, None, s) and not repeated(s) for name in places for s in places[name])
    if events != {"EACH"} and not fixed:
        return
    chosen = list(dict.fromkeys(ref.variable for ref in (left, right) if ref.event in ("EACH", "PREV")))
    for at in itertools.product(*(range(len(places[name])) for name in chosen)):
        index = dict(zip(chosen, at, strict=True))
        found = []
        for ref in (left, right):
            own = places[ref.variable]
            place = {"FIRST": 0, "LAST": len(own) - 1}.get(
                ref.event, index.get(ref.variable, 0) - (ref.event == "PREV")
            )
            found.append(own[place] if 0 <= place < len(own) else None)
        if None in found:
            continue
        one, other = found
        shared = set(graph.states[one].loops) & set(graph.states[other].loops) & inner
        if shared:
            continue  # equal in each repetition only
        yield (one, left.column), (other, right.column)


def _implied(graph: Graph, state: int | None, other: int) -> bool:
    """Return whether every match that has a state (None: every match) has another one, too."""
    if state == other:
        return True

    def reached(begin: list[int], ways: dict[int, set[int]]) -> set[int]:
        found, todo = set(), [each for each in begin if each != other]
        while todo:
            at = todo.pop()
            if at not in found:
                found.add(at)
                todo += [each for each in ways.get(at, ()) if each != other]
        return found

    after: dict[int, set[int]] = {}
    before: dict[int, set[int]] = {}
    for gap in graph.gaps:
        after.setdefault(gap.source, set()).add(gap.target)
        before.setdefault(gap.target, set()).add(gap.source)
    without = reached(graph.whole.firsts, after) & reached(graph.whole.lasts, before)
    return not without if state is None else state not in without


# ------------------------------------------------------------------------------------------------ answers


Row = tuple[int, int, tuple[int, ...], tuple[tuple[str, tuple[int, ...]], ...]]


def rows(query: Query, stream: Stream, variables: list[str]) -> list[Row]:
    """Return start, end, selected positions, and the positions of some variables, of each complex event."""
    evaluation = Evaluation(query, stream)
    found = evaluation.run()
    if query.trailing:
        found = evaluation.not_taken_back(found)
    answer = []
    for partial in found:
        pairs = [(each.position, evaluation.graph.states[each.state].alternatives[each.alternative][1])
                for each in partial]  # fmt: skip
        held = tuple((name, tuple(p for p, of in pairs if name in of)) for name in variables)
        chosen = tuple(p for p, of in pairs if (of if query.selected is None else of & set(query.selected)))
        answer.append((partial[0].position, partial[-1].position, chosen, held))
    return answer
