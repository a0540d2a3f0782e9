"""Bounds within a chain, for its loops: gaps between neighbouring events, and windows around some of the steps.

A gap bounds the distance of an event from the one before it, so that a run goes on to the instances of a stack from
the latest down, as long as they are near enough.  A window around steps i to j bounds the distance of the last event of
step j from the first one of step i.  Each instance of these steps therefore keeps the clock of the latest first event
of step i that it reaches, as it does for the start of the whole run; like that, it never decreases upwards in a stack.
The latest instance of a stack has the latest of all such clocks, so that the runs of an instance are all out of bounds
if those of the latest one before it are, and listing meets no dead ends.

An instance has, beyond what others have, some columns: the clock of its event, and for each step but the first with
which windows begin, the clock of its latest first event.

A step of n to m events is m steps, of which those after the n-th are optional: a run goes on to the next step from any
of them.  An instance of that step then continues at several stacks, its sources, and keeps the height of each; the one
with the latest start decides.  As the sources hold events of one step, the bounds above hold for all of them together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

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
    least_ends : int64, shape (windows,)
        First step at which each may end, as the others up to its last are optional.
    lengths : clock, shape (windows,)
    columns : int64, shape (windows,)
        Column of an instance with the clock of the first event of each window; 0 if the window begins with the run.
    n_sources : int64, shape (steps + 1,)
        Number of stacks, from the one before downwards, at which the instances of each step, and ends, continue.
    near : int64, shape (steps, steps)
        Row of `cer_gpu.backend.chains.stacks.Stacks.ranges` with the least instance of stack s at which one of stack k
        continues, or -1.
    inside : int64, shape (steps, steps)
        The same of the least instance of stack s in the window that ends with one of stack k.
    end_of : int64, shape (steps,)
        Window that may end with each step, or -1; the last of several.
    bounded : bool, shape (steps,)
        True for steps of one event, not within a window, or at its end, whose distance from the start is bounded.
    """

    gaps: Any
    own: Any
    first_steps: Any
    last_steps: Any
    least_ends: Any
    lengths: Any
    columns: Any
    n_sources: Any
    near: Any
    inside: Any
    end_of: Any
    bounded: Any


@helper
def n_columns(spacing):
    """Return how many columns an instance has for the bounds."""
    n = np.int64(1)
    for w in range(spacing.columns.shape[0]):
        n = max(n, spacing.columns[w] + 1)
    return n


@helper
def n_left_out(spacing):
    """Return how many sources an instance has at most, beyond one."""
    n = np.int64(1)
    for k in range(spacing.n_sources.shape[0]):
        n = max(n, spacing.n_sources[k])
    return n - 1
