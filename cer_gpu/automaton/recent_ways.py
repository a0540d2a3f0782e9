"""Facts about the ways between the steps of a pattern: which steps, and which equal columns, all matches have."""

from __future__ import annotations

from cer_gpu.automaton.recent import StepColumn
from cer_gpu.automaton.recent_pattern import NOT_TAKEN


def taken_need(code: int) -> tuple[int, int]:
    """Return the need that a step was taken, whatever its alternative."""
    return code, (1 << NOT_TAKEN) - 1


def left_out_need(code: int) -> tuple[int, int]:
    """Return the need that a step was left out."""
    return code, 1 << NOT_TAKEN


def equal_in_all(
    root: StepColumn, links: list[tuple[StepColumn, StepColumn]], implied: list[set[int]]
) -> set[StepColumn]:
    """Return the columns that equal one in all matches: linked to one of a step that is there with theirs."""
    members = {root}
    while True:
        more = {
            x
            for link in links
            for x, y in (link, link[::-1])
            if y in members and x not in members and y[0] in implied[x[0]]
        }
        if not more:
            return members
        members |= more


def on_all_ways(n: int, firsts: list[int], ways: list[tuple[int, int]]) -> list[set[int]]:
    """Return for each of n steps those on all ways from the first ones to it, without itself."""
    before: list[list[int]] = [[] for _ in range(n)]
    for source, target in ways:
        before[target].append(source)
    on_ways = [set(range(n)) for _ in range(n)]
    begins = set(firsts)
    changed = True
    while changed:
        changed = False
        for step in range(n):
            new = {step} if step in begins else set.intersection(*(on_ways[each] for each in before[step])) | {step}
            if new != on_ways[step]:
                on_ways[step], changed = new, True
    return [own - {step} for step, own in enumerate(on_ways)]
