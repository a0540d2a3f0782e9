"""Bounds on the distances of events within a chain, in units of the clock of its window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cer_gpu.automaton.chain import ChainStep
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
    """

    column: str | None
    longest: _Length
    gaps: tuple[_Length, ...]
    own: tuple[_Length, ...]
    windows: tuple[tuple[int, int, _Length], ...]

    @property
    def n_columns(self) -> int:
        """Columns of an instance (`cer_gpu.backend.chains.spacing`)."""
        return 1 + sum(first > 0 for first, _, _ in self.windows)

    def arrays(self, n_steps: int) -> Spacing:
        """Return the bounds as the loops take them."""
        dtype = self.longest.dtype
        begins = np.array([first for first, _, _ in self.windows], np.int64)
        return Spacing(
            np.array([*self.gaps, self.longest], dtype),
            np.array(self.own, dtype),
            begins,
            np.array([last for _, last, _ in self.windows], np.int64),
            np.array([length for _, _, length in self.windows], dtype),
            np.where(begins > 0, np.cumsum(begins > 0), 0),
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

    return Spacings(
        column,
        longest,
        tuple(bound(step.gap) for step in steps),
        tuple(bound(step.own_gap) if step.repeated else type(longest)(0) for step in steps),
        tuple((first, last, measured(length)[1]) for first, last, length in windows),
    )
