"""Bounds within a chain, for its loops: gaps between neighbouring events, and windows around some of the steps.

A gap bounds the distance of an event from the one before it, so that a run goes on to the instances of a stack from
the latest down, as long as they are near enough.  A window around steps i to j bounds the distance of the last event of
step j from the first one of step i.  Each instance of these steps therefore keeps the clock of the latest first event
of step i that it reaches, as it does for the start of the whole run; like that, it never decreases upwards in a stack.
The latest instance of a stack has the latest of all such clocks, so that the runs of an instance are all out of bounds
if those of the latest one before it are, and listing meets no dead ends.

An instance has, beyond what others have, some columns: the clock of its event, and for each window that does not begin
with the first step, the clock of its latest first event.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cer_gpu.backend.jit import helper


class Spacing(NamedTuple):
    """The bounds within a chain; `cer_gpu.runtime.spacing` makes them.

    Attributes
    ----------
    gaps : clock, shape (steps + 1,)
        Longest distance of the first event of each step from the last one of the step before.
    own : clock, shape (steps,)
        Longest distance of two neighbouring events of a repeated step.
    first_steps : int64, shape (windows,)
    last_steps : int64, shape (windows,)
        First and last step of each window.
    lengths : clock, shape (windows,)
    columns : int64, shape (windows,)
        Column of an instance with the clock of the first event of each window; 0 if the window begins with the run.
    """

    gaps: Any
    own: Any
    first_steps: Any
    last_steps: Any
    lengths: Any
    columns: Any


@helper
def n_columns(spacing):
    """Return how many columns an instance has for the bounds."""
    n = 1
    for w in range(spacing.columns.shape[0]):
        n += spacing.columns[w] > 0
    return n
