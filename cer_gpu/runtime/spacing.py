"""Bounds on the distances of events within a chain, in units of the clock of its window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cer_gpu.arrays import Bools, Int64
from cer_gpu.automaton.chain import ChainStep, n_sources
from cer_gpu.backend.chains.spacing import Spacing
from cer_gpu.ceql.syntax import Within

_Length = np.uint64 | np.float64


@dataclass(frozen=True)
class Spacings:
    """The bounds within a chain over one schema.

    Attributes
    ----------
    column : str or None
        Column in which they are measured, or None if in positions.
    longest : numpy.uint64 or numpy.float64
        A length without bound.
    gaps : tuple of clock
        Longest distance of the first event of each step from the step before.
    own : tuple of clock
        Longest distance of two neighbouring events of each step; 0 if it has one event.
    windows : tuple of (int, int, clock)
        First step, last step, and length of each window within the pattern.
    least_ends : tuple of int
        First step of each window at which it may end, as the others up to its last are optional.
    n_sources : tuple of int
        For each step, and for the end, at how many steps right before it a run may be that goes on to it.
    repeated : tuple of bool
        Steps of one or more events.
    """

    column: str | None
    longest: _Length
    gaps: tuple[_Length, ...]
    own: tuple[_Length, ...]
    windows: tuple[tuple[int, int, _Length], ...]
    least_ends: tuple[int, ...]
    n_sources: tuple[int, ...]
    repeated: tuple[bool, ...]

    @property
    def n_columns(self) -> int:
        """Columns of an instance (`cer_gpu.backend.chains.spacing`)."""
        return 1 + len({first for first, _, _ in self.windows if first > 0})

    @property
    def n_left_out(self) -> int:
        """Greatest number of optional steps that a run may leave out at once."""
        return max(self.n_sources) - 1

    @cached_property
    def ranges(self) -> tuple[Int64, Int64, int]:
        """Rows of the least instances that those of a step continue at, and reach within a window; and how many rows.

        Row ``[k, s]`` of the former has the least instance of step s from which a run goes on to one of step k, that of
        the latter the least one of step s that is in the window which ends with one of step k; -1 for none.
        """
        n_steps, n = len(self.own), 0
        near, inside = np.full((2, n_steps, n_steps), -1, np.int64)
        for k in range(n_steps):
            sources = [k - 1 - e for e in range(self.n_sources[k]) if k - 1 - e >= 0]
            for s in sources + [k] * self.repeated[k]:
                near[k, s], n = n, n + 1
        for least, (first, last, _) in zip(self.least_ends, self.windows, strict=True):
            for k in range(least, last + 1):
                for s in range(first, k + self.repeated[k]):
                    if inside[k, s] < 0:
                        inside[k, s], n = n, n + 1
        return near, inside, n

    @property
    def _bounded(self) -> Bools:
        """Steps of one event whose distance from the start is bounded; of a window, its first and its last ones."""
        bounded = np.zeros(len(self.own), np.bool_)
        for k, gap in enumerate(self.gaps):
            sources = range(max(k - self.n_sources[k], 0), k)
            bounded[k] = k == 0 or (gap < self.longest and all(bounded[s] for s in sources))
            for least, (first, last, _) in zip(self.least_ends, self.windows, strict=True):
                if first < k <= last:
                    bounded[k] = k >= least and bounded[first]
            bounded[k] &= not self.repeated[k] or any(first < k <= last for first, last, _ in self.windows)
        return bounded

    def arrays(self) -> Spacing:
        """Return the bounds as the loops take them."""
        dtype, n_steps = self.longest.dtype, len(self.own)
        firsts = sorted({first for first, _, _ in self.windows if first > 0})
        begins = np.array([first for first, _, _ in self.windows], np.int64)
        near, inside, _ = self.ranges
        end_of = np.full(n_steps, -1, np.int64)
        for w, (_, last, _) in enumerate(self.windows):
            end_of[self.least_ends[w] : last + 1] = w
        return Spacing(
            np.array([*self.gaps, self.longest], dtype),
            np.array(self.own, dtype),
            begins,
            np.array([last for _, last, _ in self.windows], np.int64),
            np.array(self.least_ends, np.int64),
            np.array([length for _, _, length in self.windows], dtype),
            np.array([1 + firsts.index(first) if first > 0 else 0 for first in begins], np.int64),
            np.array(self.n_sources, np.int64),
            near,
            inside,
            end_of,
            self._bounded,
        )


def spacings_of(
    steps: Sequence[ChainStep], measured: Callable[[Within], tuple[str | None, _Length]]
) -> Spacings | None:
    """Return the bounds within a chain, or None if there are none.

    Parameters
    ----------
    steps
    measured
        Returns the column in which a length is measured, and the length in units of that.
    """
    windows = [(first, last, length) for last, step in enumerate(steps) for first, length in step.windows]
    lengths = [each for step in steps for each in (step.gap, step.own_gap) if each is not None]
    lengths += [length for _, _, length in windows]
    if not lengths:
        return None
    column, some = measured(lengths[0])
    longest = np.float64(np.inf) if isinstance(some, np.float64) else np.uint64(2**64 - 1)

    def bound(length: Within | None) -> _Length:
        return longest if length is None else measured(length)[1]

    sources = n_sources(steps)
    return Spacings(
        column,
        longest,
        tuple(bound(step.gap) for step in steps),
        tuple(bound(step.own_gap) if step.repeated else type(longest)(0) for step in steps),
        tuple((first, last, measured(length)[1]) for first, last, length in windows),
        tuple(last + 1 - sources[last + 1] for _, last, _ in windows),
        sources,
        tuple(step.repeated for step in steps),
    )
