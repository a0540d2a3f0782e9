"""Dropping of instances of `cer_gpu.backend.chains.keyed_stacks` that no complex event to come can hold."""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.arguments import Steps
from cer_gpu.backend.chains.keyed_stacks import (
    BASE,
    EVENTS_AHEAD,
    FLOOR,
    IN_STACK,
    LATEST,
    LINKS,
    NEXT_ID,
    ORIGIN,
    Ring,
    Tops,
    before_of,
    has_counts,
    links_of,
    lower_of,
    row_of,
)
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import prefetch

_U = np.uint64


@helper
def _is_alive(i, tops_of, ring, length, regs):
    """Return whether a complex event to come may hold instance `i`, if windows do not end for all at once."""
    tops, tops_latest, instances, latest_of = tops_of.tops, tops_of.tops_latest, ring.instances, ring.latest_of
    row = _U(i)
    n_stacks = tops.shape[1] // 2
    owner = instances[row, _U(instances.shape[1] - 1)]
    alive = owner >= 0
    if alive:
        p = _U(owner)
        forgotten = max(regs[FLOOR], tops[p, _U(2 * n_stacks)])
        # the window ends at the latest start or later
        now = tops_latest[p, _U(n_stacks)]
        alive = min(i, tops[p, 0]) >= forgotten and not (now - latest_of[row, LATEST] > length)
    return alive


@kernel
def drop_oldest(ring, clock, length, regs):
    """Drop the instances before the first in the window that ends at `clock`, for all partitions at once.

    The first instance whose start is in the window is in it, and so are all that came later.

    Parameters
    ----------
    ring : Ring, read
    clock : clock
    length : clock
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        Number of instances left.
    """
    latest_of = Ring(*ring).latest_of
    size, origin = latest_of.shape[0], regs[ORIGIN]
    first, next_id = max(regs[FLOOR], regs[BASE]), regs[NEXT_ID]
    while first < next_id and clock - latest_of[row_of(first, origin, size), LATEST] > length:
        first += 1
    regs[BASE] = first
    if first - origin >= size:
        regs[ORIGIN] += size
    return next_id - first


@kernel
def collect(steps, tops_of, ring, n_partitions, length, regs, new_ids):
    """Keep the instances that partitions still reach, if each has a window of its own, or none.

    They are moved to the front, so that ids begin at 0 again.

    Parameters
    ----------
    steps : Steps
    tops_of : Tops
    ring : Ring
    n_partitions : int
    length : clock
    regs : int64, shape (N_REGS,), written
    new_ids : int64, shape (kept,), written

    Returns
    -------
    int
        Number of instances left.
    """
    steps, tops_of, ring = Steps(*steps), Tops(*tops_of), Ring(*ring)
    tops, instances = tops_of.tops, ring.instances
    counted = steps.kind.ndim > 2 and has_counts(steps.spare)
    depth_at = _U(instances.shape[1] - 3)
    n_stacks = tops.shape[1] // 2
    n = regs[NEXT_ID]
    alive = np.int64(0)
    for i in range(n):
        if i + EVENTS_AHEAD < n:
            prefetch(tops, _U(instances[_U(i + EVENTS_AHEAD), _U(instances.shape[1] - 1)]) * _U(tops.shape[1]))
        if _is_alive(i, tops_of, ring, length, regs):
            links = instances[_U(i), LINKS]
            flag = links & IN_STACK
            lower, before = lower_of(i, links), before_of(i, links - flag)
            for c in range(instances.shape[1]):
                instances[_U(alive), _U(c)] = instances[_U(i), _U(c)]
            lower = new_ids[_U(lower)] if lower >= 0 else np.int64(-1)
            before = new_ids[_U(before)] if before >= 0 else np.int64(-1)
            instances[_U(alive), LINKS] = links_of(alive, lower, before) | flag
            if counted:
                if lower >= 0:
                    instances[_U(lower), depth_at + _U(1)] = alive - lower
                depth = instances[_U(alive), depth_at]
                back = depth & 0xFFFFFFFF
                if depth >= 0 and back > 0:
                    bottom = new_ids[_U(i - back)]
                    instances[_U(alive), depth_at] = (
                        depth - back + alive - bottom if bottom >= 0 else np.int64(-1) - (depth >> 32)
                    )
            new_ids[_U(i)] = alive
            alive += 1
        else:
            new_ids[_U(i)] = -1
    for i in range(n_partitions):
        for k in range(n_stacks):
            top = tops[_U(i), _U(k)]
            if top >= 0:
                tops[_U(i), _U(k)] = new_ids[_U(top)]
        tops[_U(i), _U(2 * n_stacks)] = 0
    regs[FLOOR] = 0
    regs[NEXT_ID] = alive
    return alive
