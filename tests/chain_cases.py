"""Chains with counts and absences, events for them, and their complex events by brute force (no kernel is imported)."""

from __future__ import annotations

import random
from dataclasses import dataclass

from cer_gpu.automaton.chain import ChainStep


@dataclass(frozen=True)
class Event:
    """An event: the guards that it satisfies, as bits, its clock, and its partition."""

    word: int
    clock: float
    key: int


def satisfies(event: Event, guards: tuple[int, ...]) -> bool:
    """Return whether an event satisfies one of the guards."""
    return any(event.word >> guard & 1 for guard in guards)


def runs(
    steps: tuple[ChainStep, ...], events: dict[int, Event], end: int
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the runs that end at a position: positions and the step of each, by the definition, ascending."""
    places = sorted(events)

    def before(k: int, count: int, place: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return the runs that end with `place`, an event of step k with count - 1 others of it chosen after it."""
        step = steps[k]
        found = []
        if count >= step.n_min and k == 0:
            found.append(((place,), (k,)))
        for other in places:
            if other >= place:
                break
            between = [p for p in places if other < p < place]
            if count >= step.n_min and k > 0 and satisfies(events[other], steps[k - 1].guards):
                fits = not step.neighbour or not between
                if fits and not any(satisfies(events[p], step.barring) for p in between):
                    found += [((*ps, place), (*ks, k)) for ps, ks in before(k - 1, 1, other)]
            more = step.repeated and (step.n_max is None or count < step.n_max)
            skipped = step.linked and any(satisfies(events[p], step.guards) for p in between)
            if more and satisfies(events[other], step.guards) and not skipped:
                found += [((*ps, place), (*ks, k)) for ps, ks in before(k, count + 1, other)]
        return found

    return before(len(steps) - 1, 1, end) if satisfies(events[end], steps[-1].guards) else []


def expected(
    steps: tuple[ChainStep, ...], events: list[Event], length: float | None, consume: str, counted: bool = False
) -> list[tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
    """Return (start, end, positions, steps) of the complex events of all partitions, by their ends.

    With `counted`, windows count the events of a partition.
    """
    found = []
    forgotten: dict[int, int] = {}
    for end, event in enumerate(events):
        own = [p for p in range(end + 1) if events[p].key == event.key]
        number = {p: n for n, p in enumerate(own)}
        first = max(forgotten.get(event.key, 0), forgotten.get(-1, 0))
        ages = {p: number[end] - number[p] if counted else event.clock - events[p].clock for p in own}
        substream = {p: events[p] for p in own if p >= first and (length is None or ages[p] <= length)}
        here = [(ps[0], end, ps, ks) for ps, ks in runs(steps, substream, end)]
        found += sorted(here)
        if here and consume != "NONE":
            forgotten[event.key if consume == "PARTITION" else -1] = end + 1
    return found


def random_steps(rng: random.Random, *, neighbours: bool = True) -> tuple[ChainStep, ...]:
    """Return the steps of a chain in which the positions tell the step of each event."""
    n = rng.randint(2, 4)
    several = rng.random() < 0.3
    steps: list[ChainStep] = []
    varying = rng.randrange(n)
    for i in range(n):
        guards = (i,) if several else tuple(sorted(set(rng.choices(range(3), k=rng.choice([1, 1, 2])))))
        repeated = rng.random() < 0.7 if several or i == varying else rng.random() < 0.2
        least, most = 1, None
        if repeated:
            least = rng.choice([1, 1, 2, 3])
            fixed = not several and i != varying
            most = max(least, 2) if fixed else rng.choice([None, None, max(2, least), max(2, least + 1), least + 2])
            least = most if fixed else least
        barring = tuple(rng.sample(range(4), rng.choice([1, 1, 2]))) if i and rng.random() < 0.5 else ()
        if rng.random() < 0.3 and i:
            barring = guards
        neighbour = neighbours and i > 0 and rng.random() < 0.2
        linked = repeated and not ((barring or neighbour) and most is not None) and rng.random() < 0.3
        labels = frozenset([f"x{i}"])
        steps.append(ChainStep(guards, repeated, labels, neighbour, least, most, linked, () if neighbour else barring))
    return tuple(steps)


def random_events(rng: random.Random, n: int, n_keys: int) -> list[Event]:
    """Return events of four guards, several of which may hold, and often none."""
    clock, events = 0, []
    for _ in range(n):
        clock += rng.choice([0, 0, 1, 1, 2, 9])
        word = 1 << rng.randrange(5) if rng.random() < 0.8 else rng.randrange(16)
        events.append(Event(word & 15, clock, rng.randrange(n_keys)))
    return events
