"""The context tree: for each selected context of a state, how many cases it has and how long they waited.

A context of a state is its step; its step and age class; these and the last symbol; and so on.  It is selected where it
was seen often enough and its waiting times differ from those of the context above it; else that one is used (back-off).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cer_gpu.arrays import Int64
from cer_gpu.backend.forecasts.states import AGES, BITS
from cer_gpu.forecast.estimates import Floats, divergence, ended_within, observed_within, smoothed
from cer_gpu.forecast.lengths import IN_EVENTS, IN_TIME, Horizon
from cer_gpu.forecast.wait_counts import WaitCounts

PARENT_WEIGHT = 20.0
"""Cases for which a context above counts."""
MIN_RATIO = 10.83
"""Likelihood ratio from which on a context differs: the 99.9% quantile of chi-squared with one degree of freedom."""
ROOT, STEP, AGE = range(3)
"""Levels of contexts: all events, the step, and its age class; each further level has a symbol more."""


def context_of(states: Int64, level: int, bits: int) -> Int64:
    """Return the contexts of states on a level."""
    upper = states >> bits
    if level == ROOT:
        return np.zeros_like(states)
    if level == STEP:
        return upper // AGES
    n_bits = (level - AGE) * BITS
    contexts: Int64 = (upper << n_bits) | (states & ((1 << n_bits) - 1))
    return contexts


@dataclass(frozen=True)
class ContextTree:
    """Selected contexts, each after the one above it; the first one is of all events.

    Attributes
    ----------
    bits : int
        Bits of the last symbols in a state.
    levels : int64, shape (n,)
    contexts : int64, shape (n,)
    parents : int64, shape (n,)
        Number of the context above; -1 for the first.
    cases : int64, shape (n,)
    ended : dict from str to float64, shape (n, bins)
        By the kind of length, the smoothed probability that a match ends within each edge.
    observed : dict from str to int64, shape (n, bins)
        Cases whose outcome within each edge is known.
    """

    bits: int
    levels: Int64
    contexts: Int64
    parents: Int64
    cases: Int64
    ended: dict[str, Floats]
    observed: dict[str, Int64]

    def __len__(self) -> int:
        """Return the number of contexts."""
        return len(self.levels)

    def lookup(self, states: Int64) -> Int64:
        """Return the number of the deepest selected context of each state."""
        deepest = np.zeros(len(states), np.int64)
        for level in range(STEP, int(self.levels.max(initial=0)) + 1):
            numbers = np.flatnonzero(self.levels == level)
            if len(numbers):
                own = self.contexts[numbers]
                order = np.argsort(own)
                contexts = context_of(states, level, self.bits)
                at = order[np.minimum(np.searchsorted(own[order], contexts), len(own) - 1)]
                deepest = np.where(own[at] == contexts, numbers[at], deepest)
        return deepest


def build_tree(
    counts: WaitCounts, edges: dict[str, Int64], lengths: Sequence[Horizon], bits: int, min_cases: int
) -> ContextTree:
    """Build the context tree of counted waiting times.

    Parameters
    ----------
    counts
    edges
        Ends of the bins by the kind of length.
    lengths
        FitRequest lengths, at which a context must differ from the one above.
    bits
        Bits of the last symbols in a state.
    min_cases
        Fewest cases of a context.
    """
    kinds = [kind for kind in (IN_TIME, IN_EVENTS) if len(edges[kind])]
    columns = {kind: [int(np.searchsorted(edges[kind], e.amount)) for e in lengths if e.kind == kind] for kind in kinds}
    own = _OwnFractions({kind: tuple(each.sum(0, keepdims=True) for each in counts.of(kind)) for kind in kinds})
    # Jeffreys' prior: half a case of either outcome
    ended = {
        kind: smoothed(own.ended[kind], own.observed[kind], np.full(own.ended[kind].shape, 0.5), 1.0) for kind in kinds
    }
    observed, cases = dict(own.observed), own.cases
    levels, contexts, parents = (np.array([each], np.int64) for each in (ROOT, 0, -1))
    above = np.zeros(len(counts.states), np.int64)  # deepest selected context of each state so far
    for level in range(STEP, AGE + bits // BITS + 1):
        groups, first, of_state = np.unique(
            context_of(counts.states, level, bits), return_index=True, return_inverse=True
        )
        own = _OwnFractions(
            {kind: tuple(_sum_groups(each, of_state, len(groups)) for each in counts.of(kind)) for kind in kinds}
        )
        parent = above[first]
        ratios = [
            divergence(own.ended[kind], ended[kind][parent], own.observed[kind])[:, columns[kind]].max(1)
            for kind in kinds
        ]
        selected = np.flatnonzero((own.cases >= min_cases) & (np.max(ratios, axis=0) >= MIN_RATIO))
        number = np.full(len(groups), -1, np.int64)
        number[selected] = np.arange(len(levels), len(levels) + len(selected))
        for kind in kinds:
            drawn = smoothed(own.ended[kind], own.observed[kind], ended[kind][parent], PARENT_WEIGHT)[selected]
            ended[kind] = np.concatenate([ended[kind], drawn])
            observed[kind] = np.concatenate([observed[kind], own.observed[kind][selected]])
        levels = np.concatenate([levels, np.full(len(selected), level, np.int64)])
        contexts, parents, cases = (
            np.concatenate(pair)
            for pair in ((contexts, groups[selected]), (parents, parent[selected]), (cases, own.cases[selected]))
        )
        above = np.where(number[of_state] >= 0, number[of_state], above)
    return ContextTree(bits, levels, contexts, parents, cases, ended, observed)


class _OwnFractions:
    """Shares of contexts by their own cases alone.

    Parameters
    ----------
    counted
        Cases whose end was seen, and censored cases, a row for each context, by the kind of length.
    """

    def __init__(self, counted: dict[str, tuple[Int64, ...]]) -> None:
        self.ended: dict[str, Floats] = {kind: ended_within(*each) for kind, each in counted.items()}
        self.observed: dict[str, Int64] = {kind: observed_within(*each) for kind, each in counted.items()}
        seen, cut = next(iter(counted.values()))
        self.cases: Int64 = (seen + cut).sum(1)


def _sum_groups(counts: Int64, groups: Int64, n: int) -> Int64:
    """Return the sums of the rows of each group."""
    sums = np.zeros((n, counts.shape[1]), np.int64)
    np.add.at(sums, groups, counts)
    return sums
