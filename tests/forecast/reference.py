"""Reference of forecasts: states, waiting times and life tables by brute force, from their definitions.

Nothing here imports the engine.  An event is a mapping with its ``type``, its ``key`` and its ``ts``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

Event = dict[str, Any]
Chain = list[tuple[set[str], set[str]]]  # for each step its types, and the types barred between the step before and it


def substreams(events: Sequence[Event]) -> dict[Any, list[int]]:
    """Return the positions of the events of each key; events without one belong to none."""
    found: dict[Any, list[int]] = {}
    for i, event in enumerate(events):
        if event["key"] is not None:
            found.setdefault(event["key"], []).append(i)
    return found


def partial_matches(events: Sequence[Event], chain: Chain, k: int, now: int, window: float) -> list[tuple[int, ...]]:
    """Return the choices of events for the first k steps among events, within the window that ends at event `now`.

    None that is barred before the step k + 1 lies behind the last of them, up to the event `now` itself.
    """
    found = []
    for chosen in combinations(range(now + 1), k):
        if events[now]["ts"] - events[chosen[0]]["ts"] > window:
            continue
        if any(events[i]["type"] not in types for i, (types, _) in zip(chosen, chain, strict=False)):
            continue
        gaps = [*zip(chosen, [*chosen[1:], now + 1], strict=True)]
        barred = [bars for _, bars in chain[1:]]
        if any(events[j]["type"] in bars for (a, b), bars in zip(gaps, barred, strict=False) for j in range(a + 1, b)):
            continue
        found.append(chosen)
    return found


def state(events: Sequence[Event], chain: Chain, now: int, window: float, ages: int, order: int) -> tuple[Any, ...]:
    """Return the furthest step that is live after an event, the age class of the youngest there, the last types."""
    last = tuple(events[i]["type"] if i >= 0 else None for i in range(now, now - order, -1))
    for k in range(len(chain) - 1, 0, -1):
        live = partial_matches(events, chain, k, now, window)
        if live:
            age = events[now]["ts"] - max(events[chosen[0]]["ts"] for chosen in live)
            return k, min(ages - 1, int(age * ages / (window + 1))), last
    return 0, 0, last


def ends(events: Sequence[Event], chain: Chain, window: float) -> set[int]:
    """Return the positions where matches end."""
    found = set()
    for now in range(len(events)):
        for chosen in combinations(range(now + 1), len(chain)):
            if chosen[-1] != now or events[now]["ts"] - events[chosen[0]]["ts"] > window:
                continue
            fits = all(events[i]["type"] in types for i, (types, _) in zip(chosen, chain, strict=True))
            gaps = zip(chosen, chosen[1:], chain[1:], strict=False)
            if fits and not any(events[j]["type"] in bars for a, b, (_, bars) in gaps for j in range(a + 1, b)):
                found.add(now)
    return found


def waits(events: Sequence[Event], at: set[int], end: int) -> list[tuple[int, int, bool]]:
    """Return for each event of a substream the time and the number of events until the next end, and True.

    If there is none: until the time `end` of the last event of all, and until the last one of the substream, and False.
    """
    found = []
    for i, event in enumerate(events):
        later = [j for j in range(i + 1, len(events)) if j in at]
        if later:
            found.append((events[later[0]]["ts"] - event["ts"], later[0] - i, True))
        else:
            found.append((end - event["ts"], len(events) - 1 - i, False))
    return found


def life_table(waited: Sequence[int], seen: Sequence[bool], edges: Sequence[int]) -> list[float]:
    """Return the share that ended within each edge (Cutler and Ederer): who is cut in a bin counts half in it."""
    survived, found, below = 1.0, [], -1
    for edge in edges:
        ended = sum(s and below < w <= edge for w, s in zip(waited, seen, strict=True))
        cut = sum(not s and below < w <= edge for w, s in zip(waited, seen, strict=True))
        at_risk = sum(w > below for w in waited) - cut / 2
        survived *= 1 - (min(ended / at_risk, 1) if at_risk > 0 else 0)
        found.append(1 - survived)
        below = edge
    return found
