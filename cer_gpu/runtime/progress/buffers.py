"""Starts of a funnel as arrays, between the loops that hand them over and Arrow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cer_gpu.arrays import Int32, Int64

STOPPED = ("", "complete", "window", "barred", "end")
"""The reasons for which a start stops, by its state (`cer_gpu.backend.progress.starts`); none waits."""


@dataclass(frozen=True)
class ProgressBuffers:
    """Starts in their order; `offsets` and `positions` are those of an Arrow list array.

    Attributes
    ----------
    offsets : int32, shape (n + 1,)
    positions : int64, shape (values,)
        Positions of the steps that each start reached, its own first.
    times : int64, shape (values,), or (0,)
    states : int8, shape (n,)
        Numbers of `STOPPED`.
    barring : int64, shape (n,)
        Position of the event that barred a start; -1 for others.
    """

    offsets: Int32
    positions: Int64
    times: Int64
    states: npt.NDArray[np.int8]
    barring: Int64

    def __len__(self) -> int:
        """Return the number of starts."""
        return len(self.states)

    @property
    def n_matches(self) -> int:
        """The number of starts: one a row."""
        return len(self)

    def at(self, rows: slice) -> ProgressBuffers:
        """Return some of the starts."""
        chosen = np.arange(len(self))[rows]
        lengths = np.diff(self.offsets)
        mask = np.zeros(len(self), np.bool_)
        mask[chosen] = True
        entries = np.repeat(mask, lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths[mask])]).astype(np.int32)
        times = self.times[entries] if len(self.times) else self.times
        return ProgressBuffers(offsets, self.positions[entries], times, self.states[mask], self.barring[mask])
