"""Semi-joins that show which events of a conjunction, or of a chain of equalities, can have partners at all.

Yannakakis (VLDB 1981) joins along a tree: relations are first reduced, from the leaves to the root and back, to the
rows that have partners in their neighbours.  Here the tree is that of a parallel pattern, and the relations are the
events of its places in a window.  An event that has no partner is in no match, so that it need not be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cer_gpu.automaton.chain import Rejection
from cer_gpu.automaton.parallel_pattern import ParallelPattern, variables_at

MAX_GROUPS = 16
"""Most groups of one semi-join."""
MAX_PLACES = 62
"""Most places: a bitmask has a bit for each."""


@dataclass(frozen=True)
class SemiJoin:
    """Groups of places whose events need partners in each other group, with equal values and within the window.

    Attributes
    ----------
    groups : tuple of tuple of int
    key : tuple of int
        Variables that the events of all groups have in common.
    ordered : bool
        True: there are two groups, and the events of the first come before those of the second.
    drops : tuple of bool
        For each group, True if dropping its events without partners leaves the order of an end's matches unchanged.
    """

    groups: tuple[tuple[int, ...], ...]
    key: tuple[int, ...]
    ordered: bool
    drops: tuple[bool, ...]


def semi_joins(pattern: ParallelPattern) -> list[SemiJoin] | Rejection:
    """Return the semi-joins of a pattern from the leaves of its tree to the root, or the reason why there are none.

    The listing of an end follows heaps, whose form depends on all that was inserted.  Partial matches of one event come
    in the order of their starts, and their heap is a list; what has no partner is taken from it without a trace.  The
    heap of other partial matches keeps its form only if all of them stay.
    """
    joins = [*_of_trees(pattern)]
    steps = range(pattern.n_conjunction, len(pattern.graph.atoms))
    for place in steps:
        into = [t for t in pattern.transitions if place in t.places]
        if len(into) != 1 or not pattern.without_choice:
            return Rejection("a step is repeated, or stands for another one")
        for source in into[0].sources:
            before = pattern.states[source.state]
            fresh = all(not t.sources for t in pattern.transitions if t.target == source.state)
            joins.append(SemiJoin((before, (place,)), source.key, True, (fresh, True)))
    if len(pattern.graph.atoms) > MAX_PLACES:
        return Rejection(f"it has more than {MAX_PLACES} events")
    if not joins:
        return Rejection("there is a single event")
    if any(len(each.groups) > MAX_GROUPS for each in joins):
        return Rejection(f"more than {MAX_GROUPS} events share a value")
    return joins


def _of_trees(pattern: ParallelPattern) -> Iterator[SemiJoin]:
    """Yield the semi-joins of the conjunction: one for each inner node of a tree, below before above."""
    for places, tree in pattern.trees:
        for node in reversed(tree.inner):
            children = tree.children(node)
            groups = tuple(tuple(places[leaf] for leaf in tree.leaves(child)) for child in children)
            shared = (variables_at(pattern.variables, place) for group in groups for place in group)
            key = tuple(sorted(frozenset.intersection(*shared)))
            yield SemiJoin(groups, key, False, tuple(isinstance(child, int) for child in children))
