"""Reference for the output "funnel": the steps of a chain that each start reaches, from the definition.

A step is one event: its formula has the valuation [i, i]; a repetition is as many steps as it needs at least; before a
step behind `:` any other event is absent. Of each
event that satisfies the first step, the next step is the earliest event behind it that satisfies the second, and so
on. An absence between two steps bars: the first such event strictly between the step before and the earliest event
that satisfies the next one ends the way, and so does the window of WITHIN, from the first event, or the length of
EACH STEP, from the last one. A length of time has passed once an event of the whole input lies behind it, one of
events once an event of the substream does.

`window_funnel` is the definition of ClickHouse's function of that name, in its default mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import reference as ref
import reference_recent as recent

Step = tuple[ref.Formula, tuple[ref.Formula, ...]]  # (its event, the events that must not lie before it)


@dataclass(frozen=True)
class Progress:
    """One row: the positions of the steps that the start reaches, the reason to stop, and the barring event."""

    positions: tuple[int, ...]
    stopped: str
    barred_by: int | None = None


def steps_of(formula: ref.Formula) -> list[Step]:
    """Return the steps of a chain, each with the absences before it."""
    match formula:
        case ref.Seq(left, right, absent):
            first, *others = steps_of(right)
            return [*steps_of(left), (first[0], absent), *others]
        case ref.Next(left, right, absent):  # the earliest event of its kind: nothing of that kind lies before it
            first, *others = steps_of(right)
            return [*steps_of(left), (first[0], absent), *others]
        case ref.Contig(left, right):  # any event bars that is not the next step
            first, *others = steps_of(right)
            return [*steps_of(left), (first[0], (ref.EventType(ref.ANY),)), *others]
        case ref.Times(body, least, _, joint, until) if least:
            first, *others = steps_of(body)
            between = (ref.EventType(ref.ANY),) if joint == ":" else until or first[1]
            return [first, *others, *[(first[0], between), *others] * (least - 1)]
        case ref.Plus(body) | ref.ContigPlus(body):
            return steps_of(body)
        case _:
            return [(formula, ())]


def progress(query: ref.Query, stream: Sequence[ref.Event]) -> list[Progress]:
    """Return the rows, in the order of their starts."""
    stream = ref.linked(query, stream)
    steps = steps_of(query.formula)
    rows = []
    for own in ref.substreams(query, stream):
        events = [stream[p] for p in own]
        holds = [_places(formula, events) for formula, _ in steps]
        barring = [set().union(*(_places(absent, events) for absent in absences)) for _, absences in steps]
        rows += [_one(query, stream, own, holds, barring, start) for start in holds[0]]
    return sorted(rows, key=lambda row: row.positions[0])


def _places(formula: ref.Formula, events: Sequence[ref.Event]) -> set[int]:
    return {i for i, j, _ in ref.valuations(formula, events) if i == j}


def _one(
    query: ref.Query,
    stream: Sequence[ref.Event],
    own: Sequence[int],
    holds: Sequence[set[int]],
    barring: Sequence[set[int]],
    start: int,
) -> Progress:
    within, step, part = query.within, query.each_step, [stream[p] for p in own]
    chosen = [start]
    for satisfied, bars in zip(holds[1:], barring[1:], strict=True):
        reached = tuple(own[p] for p in chosen)
        for k in range(chosen[-1] + 1, len(own)):
            if not (ref.in_window(within, part, (start, k)) and ref.in_window(step, part, (chosen[-1], k))):
                return Progress(reached, "window")
            if k in satisfied:
                chosen.append(k)
                break
            if k in bars:
                return Progress(reached, "barred", own[k])
        else:
            passes = _passes(within, stream, own[start]) or _passes(step, stream, own[chosen[-1]])
            return Progress(reached, "window" if passes else "end")
    return Progress(tuple(own[p] for p in chosen), "complete")


def _passes(within: ref.Within, stream: Sequence[ref.Event], start: int) -> bool:
    """Return True if some event of the input lies beyond a window of it that begins at an event."""
    if within is None or within[0] == "events":
        return False  # those of the substream are all looked at
    return any(not ref.in_window(within, stream, (start, k)) for k in range(start, len(stream)))


@dataclass(frozen=True)
class KeyedStep:
    """A step of a chain whose steps share a value: its type, the column of the value, and the same of what bars it."""

    type: str
    column: str
    barring: tuple[tuple[str, str], ...] = ()


def keyed_progress(steps: Sequence[KeyedStep], rows: Sequence[dict[str, Any]], within: int | None) -> list[Progress]:
    """Return the rows of a chain whose steps share a value, each in a column of its own; `within` as a time."""

    def has(event: dict[str, Any], kind: str, column: str, value: Any) -> bool:
        return event["type"] == kind and event[column] == value

    found = []
    for start, first in enumerate(rows):
        value = first[steps[0].column]
        if first["type"] != steps[0].type or value is None or value != value:
            continue
        reached, answer = [start], None
        for step in steps[1:]:
            for k in range(reached[-1] + 1, len(rows)):
                if within is not None and rows[k]["ts"] - first["ts"] > within:
                    answer = Progress(tuple(reached), "window")
                    break
                if has(rows[k], step.type, step.column, value):
                    reached.append(k)
                    break
                if any(has(rows[k], *bar, value) for bar in step.barring):
                    answer = Progress(tuple(reached), "barred", k)
                    break
            else:
                answer = Progress(tuple(reached), "end")
            if answer is not None:
                break
        found.append(answer or Progress(tuple(reached), "complete"))
    return found


def tested_progress(query: recent.Query, stream: recent.Stream) -> list[Progress]:
    """Return the rows of a chain whose steps are tested together (`reference_recent`), by join predicates.

    A start without a value of a key, which equalities make all steps share, begins nothing.  A test is made at the last
    step that it reads.  The next step is the earliest event that satisfies it and passes the
    tests made there; an absent event bars if its tests hold, with the steps reached.
    """
    pattern = recent.unrolled(query.formula)
    keys = [tuple(event.get(name) for name in query.partition) for event in stream]
    shared = recent.keys_of(pattern)
    found = []

    def apart(one: int, other: int) -> Any:
        kind = query.within[0]
        if kind == "events":
            return sum(key == keys[one] for key in keys[one:other])
        name = "ts" if kind == "time" else "o"
        return stream[other][name] - stream[one][name]

    def near(one: int, other: int) -> bool:
        return query.within is None or apart(one, other) <= query.within[1]

    def alternative(reached: list[int], taken: list[int], position: int) -> int | None:
        """Return the first alternative of the next step that an event is."""
        k = len(reached)
        for i, each in enumerate(pattern.steps[k].alternatives):
            events = {step: stream[p] for step, p in enumerate([*reached, position])}
            ways = dict(enumerate([*taken, i]))
            tests = [test for last, test in pattern.tests if last == k]
            if recent.satisfies(stream[position], each.event) and all(recent.holds(t, events, ways) for t in tests):
                return i
        return None

    def bars(reached: list[int], taken: list[int], position: int) -> bool:
        events = {step: stream[p] for step, p in enumerate(reached)} | {recent.NOW: stream[position]}
        return any(
            recent.satisfies(stream[position], wanted)
            and all(recent.holds(test, events, dict(enumerate(taken))) for test in tests)
            for wanted, tests in pattern.steps[len(reached)].absent
        )

    for start in range(len(stream)):
        first = None if None in keys[start] else alternative([], [], start)
        if first is None or recent.key_at(shared, 0, stream[start]) is None:
            continue
        reached, taken, answer = [start], [first], None
        while len(reached) < len(pattern.steps) and answer is None:
            for position in range(reached[-1] + 1, len(stream)):
                if keys[position] != keys[start]:
                    continue
                if not near(start, position):
                    answer = Progress(tuple(reached), "window")
                    break
                way = alternative(reached, taken, position)
                if way is not None:
                    reached.append(position)
                    taken.append(way)
                    break
                if bars(reached, taken, position):
                    answer = Progress(tuple(reached), "barred", position)
                    break
            else:
                passed = query.within is not None and query.within[0] != "events"
                passed = passed and any(not near(start, other) for other in range(start, len(stream)))
                answer = Progress(tuple(reached), "window" if passed else "end")
        found.append(answer or Progress(tuple(reached), "complete"))
    return found


def window_funnel(window: int, rows: Iterable[tuple[int, Sequence[bool]]]) -> int:
    """Return ``windowFunnel(window)(timestamp, cond1, cond2, ...)`` over the rows of one user.

    Each condition that a row satisfies is an entry (timestamp, number of the condition); entries are read in their
    order.  One of the first condition begins a chain.  One of condition k goes on with the chain that has reached
    k - 1, the one of the latest begin, if no more than `window` has passed since that.  The longest chain counts.

    Parameters
    ----------
    window
    rows
        The timestamp of each row, and whether each condition holds.
    """
    entries = sorted((time, k) for time, conditions in rows for k, holds in enumerate(conditions) if holds)
    begins: dict[int, Any] = {}  # of the chain that reached each condition
    for time, k in entries:
        if k == 0:
            begins[0] = time
        elif k - 1 in begins and time <= begins[k - 1] + window:
            begins[k] = begins[k - 1]
    return max(begins, default=-1) + 1
